import argparse
import errno
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafka_eos_checks.cli.command import main, parser_of
from kafka_eos_checks.cli.doors import COMMANDS, DOORS, FORMER, Command, Group, calls
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.paths import CLONE


def exit_code(*arguments: str) -> int:
    """The exit code, also when argparse exits by itself."""
    try:
        return main(arguments)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1


CALLS = {" ".join(words): command for words, command in calls().items()}
GROUPS = [name for name, entry in COMMANDS.items() if isinstance(entry, Group)]


def test_the_overview_has_a_line_and_an_example_for_each_reader(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0
    said = capsys.readouterr().out
    assert [door.reader for door in DOORS] == ["I run Kafka", "I build on Kafka", "I implement Kafka", "I read specs"]
    for door in DOORS:
        shown = said.split(f"{door.reader}: {door.line}\n", maxsplit=1)[1].split("\n\n", maxsplit=1)[0]
        listed = [line.split()[0] for line in shown.splitlines() if re.match(r"  \w", line)]
        assert listed == [*door.commands, "example:"]
        assert f"example: {door.example}" in shown
    assert "exit codes: 0 all verdicts as expected" in said


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_lists_its_commands_with_their_lines(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(group, "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    entry = COMMANDS[group]
    assert isinstance(entry, Group)
    for name, command in entry.commands.items():
        assert f" {name} {command.line} " in said


@pytest.mark.parametrize("call", CALLS)
def test_the_help_of_a_command_has_no_markup_of_docstrings(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*call.split(), "--help") == 0
    assert re.findall(r"``|:[a-z]+:`", capsys.readouterr().out) == []


@pytest.mark.parametrize("call", CALLS)
def test_the_help_of_a_command_shows_examples_of_it(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*call.split(), "--help") == 0
    said = capsys.readouterr().out
    assert f"usage: kafka-eos {call}" in said
    assert f"kafka-eos {call}" in said.split("examples:", maxsplit=1)[1]


@pytest.mark.parametrize("words", [(), *((group,) for group in GROUPS if (group,) not in calls())])
def test_a_call_without_a_command_shows_the_help_and_fails(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*words) == 2
    shown = capsys.readouterr()
    assert exit_code(*words, "--help") == 0
    assert shown.out == capsys.readouterr().out
    assert shown.err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("audi", "kafka-eos: unknown command audi; did you mean audit? (see kafka-eos --help)"),
        ("check modls", "kafka-eos check: unknown command modls; did you mean models? (see kafka-eos check --help)"),
        ("model", "kafka-eos: unknown command model; did you mean kafka-eos check models? (see kafka-eos --help)"),
        ("veriffy", "kafka-eos: unknown command veriffy; did you mean kafka-eos check all? (see kafka-eos --help)"),
        (
            "check findngs",
            "kafka-eos check: unknown command findngs; did you mean kafka-eos ledger findings? "
            "(see kafka-eos check --help)",
        ),
        ("lab --quikc", "kafka-eos lab: unknown option --quikc (see kafka-eos lab --help)"),
        ("nothing-like-it", "kafka-eos: unknown command nothing-like-it (see kafka-eos --help)"),
    ],
)
def test_an_unknown_word_is_answered_with_the_nearest_command_of_any_level(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*words.split()) == 2
    assert capsys.readouterr() == ("", f"{said}\n")


@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_a_former_spelling_names_the_new_one_and_runs_it(
    former: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(former, "--help") == 0
    old = capsys.readouterr()
    assert old.err == f"kafka-eos {former} is now kafka-eos {now}\n"
    assert exit_code(*now.split(), "--help") == 0
    assert old.out == capsys.readouterr().out
    assert former not in COMMANDS


def test_a_command_imports_neither_spark_nor_the_modules_of_other_commands() -> None:
    program = (
        "import sys; from kafka_eos_checks.cli.command import parser_of; parser_of(sys.argv[1:])\n"
        "print(*(name for name in sys.modules if name.startswith('kafka_eos_checks') or name == 'pyspark'))"
    )
    asked = [sys.executable, "-c", program]
    overview = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert {name.rpartition(".")[2] for name in overview} == {
        *("kafka_eos_checks", "kit", "arguments", "missing", "nearest", "outputs", "paths", "cli", "doors", "command"),
    }  # fmt: skip
    audit = subprocess.run([*asked, "audit"], capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert {"pyspark", "kafka_eos_checks.graphs.models_command", "kafka_eos_checks.tlc"} & {*audit} == set()
    assert "kafka_eos_checks.audit.command" in audit


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"kafka-eos {project['version']}\n"


@pytest.mark.parametrize("call", CALLS)
def test_every_command_refuses_an_unknown_option_in_one_line(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*call.split(), "--wrong") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"kafka-eos {call}: unknown option --wrong")
    assert said.err.endswith(f" (see kafka-eos {call} --help)\n")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("call", CALLS)
def test_every_command_says_what_it_does_and_what_each_of_its_options_is_for(call: str) -> None:
    parser = parser_of(call.split())[0]
    assert parser.description
    assert not [action.dest for action in parser._actions if not action.help]


@pytest.mark.parametrize("call", CALLS)
def test_every_json_option_takes_a_dash_for_standard_output(call: str) -> None:
    for action in parser_of(call.split())[0]._actions:
        if "--json" in action.option_strings:
            assert action.type is Path
            assert "- writes them to standard output" in str(action.help)


def command(run: Callable[[argparse.Namespace], int]) -> ModuleType:
    """A module with a command that does this."""
    module = ModuleType("command")

    def add_parser(subparsers: Any, help_line: str) -> None:
        subparsers.add_parser("probe", help=help_line).set_defaults(run=run)

    vars(module)["add_parser"] = add_parser
    return module


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[argparse.Namespace], int]], int]:
    def run(action: Callable[[argparse.Namespace], int]) -> int:
        monkeypatch.setitem(sys.modules, "kafka_eos_checks.probe", command(action))
        monkeypatch.setitem(COMMANDS, "probe", Command("kafka_eos_checks.probe", "does what the test says"))
        return main(["probe"])

    return run


Probe = Callable[[Callable[[argparse.Namespace], int]], int]


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_exit_code_is_the_commands(probe: Probe, code: int) -> None:
    assert probe(lambda _: code) == code


def test_a_missing_extra_is_named_in_one_line_with_the_remedy(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: argparse.Namespace) -> int:
        need("no_such_package.part", "spark")
        return 0

    assert probe(run) == 2
    said = capsys.readouterr().err
    assert said == ("kafka-eos: this needs no_such_package.part; install it with: pip install 'kafka-eos[spark]'\n")


def test_an_interrupted_command_has_the_shells_exit_code(probe: Probe) -> None:
    def run(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    assert probe(run) == 130


def test_a_bug_is_not_reported_as_an_unusable_call(probe: Probe) -> None:
    def run(_: argparse.Namespace) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        probe(run)


def test_a_disk_that_is_full_for_another_file_is_not_told_of_the_output(probe: Probe) -> None:
    def run(_: argparse.Namespace) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "verdicts.json")

    with pytest.raises(OSError, match=r"verdicts\.json"):
        probe(run)


@pytest.mark.parametrize("words", [["settings", "--client", "java-producer"], ["check", "models", "--list"]])
def test_a_reader_that_has_seen_enough_ends_a_command_without_a_traceback(words: list[str]) -> None:
    command = [sys.executable, "-m", "kafka_eos_checks.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("words", [["settings", "--client", "java-producer"], ["audit", "example:violations"]])
def test_a_full_disk_is_told_and_is_no_verdict(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "kafka_eos_checks.cli", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("kafka-eos: the output cannot be written: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="closes a stream as a shell does")
@pytest.mark.parametrize(
    ("more", "code", "said"),
    [("", 1, ""), (" --json -", 2, "kafka-eos: standard output is closed; give --json a file\n")],
)
def test_a_closed_standard_output_costs_no_verdict(more: str, code: int, said: str, tmp_path: Path) -> None:
    call = f'"{sys.executable}" -m kafka_eos_checks.cli audit example:violations --findings "{tmp_path}/f.jsonl"'
    done = subprocess.run(["sh", "-c", f"{call}{more} >&-"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (code, said)
    assert (tmp_path / "f.jsonl").exists() == (not more)
