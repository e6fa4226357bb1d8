"""The check of an output before the work: what it refuses, and that it leaves nothing behind."""

import errno
import os
import select
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from kafka_eos_checks.cli import command
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.outputs import Unwritable, check_output, check_outputs, whole_or_nothing
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts


def test_a_file_that_can_be_written_is_not_made_and_keeps_its_content(tmp_path: Path) -> None:
    check_output(tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()
    (tmp_path / "old.json").write_text("old")
    check_output(tmp_path / "old.json")
    assert (tmp_path / "old.json").read_text() == "old"
    check_output(Path("/dev/null"))


def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(
        OSError, match=f"f.json cannot be written: there is no folder {tmp_path}/one; make it, or give another"
    ):
        check_output(tmp_path / "one" / "f.json")
    assert not (tmp_path / "one").exists()


def test_a_folder_and_a_place_that_takes_no_file_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"{tmp_path} cannot be written: it is a folder; give a file"):
        check_output(tmp_path)
    with pytest.raises(OSError, match=r"^/proc/x.html cannot be written: [A-Z][a-z ]*; give another file, or see to "):
        check_output(Path("/proc/x.html"))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"file/f.json cannot be written: there is no folder .*/file; make it"):
        check_output(tmp_path / "file" / "f.json")


def test_a_file_that_exists_and_takes_no_bytes_is_refused(tmp_path: Path) -> None:
    busy = Path(shutil.copy(shutil.which("sleep") or "", tmp_path / "busy"))
    with subprocess.Popen([busy, "60"]) as running:
        try:
            with pytest.raises(OSError, match="busy cannot be written"):  # nobody may write a program that runs
                check_output(busy)
        finally:
            running.kill()


def test_a_link_is_left_as_it_is_and_refused_if_its_file_cannot_be_written(tmp_path: Path) -> None:
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "today.json")
    check_output(link)
    assert (link.is_symlink(), (tmp_path / "today.json").exists()) == (True, False)
    astray = tmp_path / "astray.json"
    astray.symlink_to(tmp_path / "missing" / "today.json")
    with pytest.raises(OSError, match=r"astray.json cannot be written: No such file"):
        check_output(astray)


def test_the_reader_of_a_pipe_is_not_told_of_an_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        asked = select.poll()
        asked.register(reader)
        check_output(tmp_path / "pipe")
        assert asked.poll(0) == [], "the reader was told that a writer has come and gone"
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    "name",
    ["orders-0/00000000000000000000.log", "replication-offset-checkpoint", "history.jsonl", "histories/clients.jsonl"],
)
def test_no_output_overwrites_a_file_of_the_input(tmp_path: Path, name: str) -> None:
    read = tmp_path / "copy" / name
    read.parent.mkdir(parents=True, exist_ok=True)
    read.touch()
    with pytest.raises(Unwritable, match=f"--json {read} would overwrite a file of the input; give another file"):
        check_outputs({"--json": read}, [tmp_path / "copy"])
    with pytest.raises(Unwritable, match="would overwrite"):
        check_outputs({"--json": read}, [tmp_path / "nothing", str(read)])


def test_an_earlier_report_in_the_folder_of_the_input_may_be_written_again(tmp_path: Path) -> None:
    names = ("findings.jsonl", "verdicts.json", "audit.html")
    for name in names:
        (tmp_path / name).touch()
    check_outputs({f"--{name}": tmp_path / name for name in names}, [tmp_path])
    check_outputs({"--json": tmp_path / "orders-0" / "new.log", "--html": None}, [tmp_path])


def test_two_outputs_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match=r"f.jsonl is named by --findings and --json; give two files"):
        check_outputs({"--findings": tmp_path / "f.jsonl", "--json": tmp_path / "." / "f.jsonl"})
    check_outputs({"--findings": Path("/dev/null"), "--json": Path("/dev/null")})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("settings acks=all --json /proc/f.json", "/proc/f.json cannot be written: "),
        ("settings acks=all --json /proc/new/folder/f.json", "/proc/new/folder cannot be made: "),
        ("check models --json {own}/f.json", "{own}/f.json cannot be written: there is no folder {own}"),
        ("settings {own} --json {own}", "--json {own} would overwrite a file of the input"),
        ("explain {own} --out {own}", "--out {own} would overwrite a file of the input"),
        ("check traces {own} --alone --json {own}", "--json {own} would overwrite a file of the input"),
        ("audit {own} --findings {own}", "--findings {own} would overwrite a file of the input"),
        ("simulate --steps 3 --out /proc/simulated", "/proc/simulated/histories cannot be made: "),
        ("conform --bootstrap 127.0.0.1:1 --junit /proc/f.xml", "/proc/f.xml cannot be written: "),
    ],
)
def test_a_command_says_which_output_it_cannot_write_and_writes_nothing(
    tmp_path: Path, call: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / ("own.html" if "--out {own}" in call else "own.jsonl")
    own.write_text("acks=all\n")
    assert main([word.format(own=own) for word in call.split()]) == 2
    assert message.format(own=own) in capsys.readouterr().err
    assert own.read_text() == "acks=all\n"


@pytest.mark.parametrize("name", ["proofs", "models", "traces", "walks", "graphs"])
def test_a_check_whose_verdicts_cannot_be_written_does_not_begin(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begun(*_: object) -> None:
        raise AssertionError("it has begun")

    parser, _ = command.parser_of(["check", name])
    monkeypatch.setitem(parser._defaults, "run", begun)
    monkeypatch.setattr(command, "parser_of", lambda words: (parser, words[2:]))
    assert main(["check", name, "--json", "/proc/new/f.json"]) == 2
    assert capsys.readouterr().err.startswith("kafka-eos: /proc/new cannot be made: ")


def test_a_folder_that_is_made_later_is_not_made_by_the_check(tmp_path: Path) -> None:
    check_output(tmp_path / "new" / "folder" / "f.json", makes_folder=True)
    assert not any(tmp_path.iterdir())


def test_one_file_by_two_spellings_is_one_file(tmp_path: Path) -> None:
    outputs = {"--json": tmp_path / "a.json", "--out": tmp_path / "folder" / ".." / "a.json"}
    with pytest.raises(Unwritable, match="is named by --json and --out; give two files"):
        check_outputs(outputs)


@pytest.mark.parametrize(
    "call",
    [
        "explain example:violations --out {0}.html",
        "explain example:violations --out {0}.svg",
        "ledger report --verdicts {1} --out {0}.html",
    ],
)
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/proc/new/page", "/proc/new cannot be made: No such file or directory; give another folder"),
        ("full/page", "cannot be written: No space left on device; give another file, or see to its disk and rights"),
    ],
)
def test_a_page_that_cannot_be_written_is_told_with_its_name_and_a_remedy(
    place: str,
    words: str,
    call: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    for suffix in (".html", ".svg", ".json"):
        (tmp_path / "full" / "page").with_suffix(suffix).symlink_to("/dev/full")
    write_verdicts(tmp_path / "v.json", [Verdict(check="model", name="X", expected="holds", found="holds", ok=True)])
    assert main(call.format(place, tmp_path / "v.json").split()) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("kafka-eos")


def write_a_part(file: Path, end: BaseException) -> None:
    file.write_text("a part")
    raise end


@pytest.mark.parametrize("end", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_file_that_could_not_be_written_to_its_end_keeps_what_it_had(end: BaseException, tmp_path: Path) -> None:
    file, link = tmp_path / "found.jsonl", tmp_path / "link.jsonl"
    file.write_text("of an earlier audit\n")
    link.symlink_to(file)
    for path, before in ((file, file.read_text()), (link, file.read_text()), (tmp_path / "new.jsonl", None)):
        with pytest.raises((Unwritable, KeyboardInterrupt)), whole_or_nothing(path) as place:
            write_a_part(place, end)
        assert (path.read_text() if path.exists() else None) == before
    assert sorted(tmp_path.iterdir()) == [file, link]
    assert link.is_symlink()


def test_a_file_that_was_written_to_its_end_takes_the_place_and_the_rights_of_the_one_before(tmp_path: Path) -> None:
    file, link = tmp_path / "found.jsonl", tmp_path / "link.jsonl"
    file.write_text("of an earlier audit\n")
    file.chmod(0o640)
    link.symlink_to(file)
    with whole_or_nothing(link) as place:
        place.write_text("of this one")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("of this one", 0o640)
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_a_pipe_is_written_itself_by_whatever_name() -> None:
    reader, writer = os.pipe()
    with whole_or_nothing(Path(f"/dev/fd/{writer}")) as place:
        place.write_text("whole")
    os.close(writer)
    with os.fdopen(reader) as told:
        assert told.read() == "whole"


def test_a_device_is_written_itself_and_named_where_it_is_full() -> None:
    with (
        pytest.raises(Unwritable, match=r"^/dev/full cannot be written: No space left on device; give another file"),
        whole_or_nothing(Path("/dev/full")) as place,
    ):
        write_verdicts(place, [])
