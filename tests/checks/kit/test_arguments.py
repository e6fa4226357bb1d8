import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.audit.moments import options_of
from kafka_eos_checks.kit.arguments import Parser, add_json, add_source_arguments, standard_output
from kafka_eos_checks.kit.terminal import print_verdicts
from kafka_eos_checks.kit.verdict import Verdict, read_verdicts, write_verdicts

VERDICT = Verdict(check="replay", name="gap", expected="0 findings", found="1 finding", ok=False)


def even(text: str) -> int:
    if int(text) % 2:
        raise argparse.ArgumentTypeError("expected an even number")
    return int(text)


def _seconds(text: str) -> float:
    return float(text)


def made() -> Parser:
    """A command with a subcommand that has arguments of every kind."""
    parser = Parser(prog="tool")
    parser.add_argument("--version", action="store_true")
    paint = parser.add_subparsers(metavar="COMMAND", required=True).add_parser("paint")
    paint.add_argument("surface", metavar="SURFACE", choices=("wall", "door"))
    paint.add_argument("--colour", required=True)
    paint.add_argument("--coats", type=int)
    paint.add_argument("--litres", type=float)
    paint.add_argument("--ladders", type=even)
    paint.add_argument("--wait", type=_seconds)
    paint.add_argument("--gloss", choices=("matt", "satin", "high"))
    return parser


def refusal(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as left:
        made().parse_args(words)
    assert left.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err.rstrip("\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pant", "tool: unknown command pant; did you mean paint? (see tool --help)"),
        ("sing", "tool: unknown command sing (see tool --help)"),
        ("--versoin", "tool: unknown option --versoin; did you mean --version? (see tool --help)"),
        ("paint --color=red", "tool paint: unknown option --color; did you mean --colour? (see tool paint --help)"),
        ("paint wall --version", "tool paint: unknown option --version (see tool paint --help)"),
        ("paint wall --colour red -q", "tool paint: unknown option -q (see tool paint --help)"),
        ("paint wall door --colour red", "tool paint: unexpected argument door (see tool paint --help)"),
        (
            "paint --colour red -- --wall",
            "tool paint: SURFACE --wall: expected wall or door; did you mean wall? (see tool paint --help)",
        ),
        ("paint wall", "tool paint: the following arguments are required: --colour (see tool paint --help)"),
        ("paint wall --colour", "tool paint: --colour: expected one argument (see tool paint --help)"),
    ],
)
def test_an_unusable_call_is_refused_with_the_nearest_known_word(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(words.split(), capsys) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["--coats", "two"], "--coats two: expected a whole number"),
        (["--coats", ""], "--coats '': expected a whole number"),
        (["--litres", "some"], "--litres some: expected a number"),
        (["--ladders", "3"], "--ladders 3: expected an even number"),
        (["--wait", "a while"], "--wait 'a while': expected seconds"),
        (["--gloss", "sating"], "--gloss sating: expected matt, satin or high; did you mean satin?"),
        (["floor"], "SURFACE floor: expected wall or door; did you mean door?"),
    ],
)
def test_a_wrong_value_is_named_with_its_option_and_with_what_is_accepted(
    value: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["paint", "--colour", "red", *value]
    assert refusal(words, capsys) == f"tool paint: {said} (see tool paint --help)"


def test_values_that_look_like_options_and_beginnings_of_options_are_taken() -> None:
    words = ["paint", "--col", "red", "--coats", "-1", "--wait=-2.5", "--", "wall"]
    parsed = made().parse_args(words)
    assert (parsed.colour, parsed.coats, parsed.wait, parsed.surface) == ("red", -1, -2.5, "wall")
    assert made().parse_args(["paint", "wall", "--colour", "--red or so"]).colour == "--red or so"


# --- --json ----------------------------------------------------------------------------------------------------------


def answer(json_file: str) -> None:
    """Print a table and write the verdicts, as a subcommand does."""
    parser = Parser(prog="tool")
    add_json(parser)
    arguments = parser.parse_args(["--json", json_file])
    with standard_output(arguments):
        print_verdicts([VERDICT])
        print("a line of its own")
        write_verdicts(arguments.json, [VERDICT])


def test_a_dash_writes_verdicts_to_standard_output_and_the_rest_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer("-")
    said = capsys.readouterr()
    assert json.loads(said.out) == [json.loads(json.dumps(VERDICT.to_json()))]
    assert "FAIL" in said.err
    assert "a line of its own" in said.err


def test_verdicts_that_go_to_a_file_leave_the_table_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(str(tmp_path / "verdicts.json"))
    assert "FAIL" in capsys.readouterr().out
    assert read_verdicts(tmp_path / "verdicts.json") == [VERDICT]


def test_a_call_that_ends_before_its_verdicts_writes_nothing_to_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = argparse.Namespace(json=Path("-"))
    with standard_output(arguments):
        print("the input cannot be used")
    assert capsys.readouterr().out == ""


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    program = (
        "import argparse; from pathlib import Path; from kafka_eos_checks.kit.arguments import standard_output\n"
        "arguments = argparse.Namespace(json=Path('-'))\n"
        "with standard_output(arguments):\n"
        "    arguments.json.write_text('[' + ' ' * 1_000_000 + ']')\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_every_number_of_jobs_is_at_least_one(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("audit .", "check models", "check graphs", "check walks", "check mutants", "check code formats"):
        with pytest.raises(SystemExit) as refused:
            cli.main([*command.split(), "--jobs=0"])
        assert refused.value.code == 2
        assert "--jobs 0: expected a whole number, at least 1" in capsys.readouterr().err, command


@pytest.mark.parametrize(
    "call",
    [
        *(
            "check models --timeout",
            "check conjuncts --timeout",
            "check walks --limit",
            "check contracts --seconds",
        ),
        "conform --bootstrap 127.0.0.1:1 --timeout",
    ],
)
def test_every_limit_of_time_is_above_zero(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(SystemExit) as refused:
            cli.main([*call.split()[:-1], f"{call.rsplit(maxsplit=1)[-1]}={text}"])
        assert refused.value.code == 2
        assert f"{call.rsplit(maxsplit=1)[-1]} {text}: expected a number above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0.5", 30_000), ("15", 900_000), ("999999", 59_999_940_000), ("100801.5", 6_048_090_000)],
)
def test_the_longest_time_of_a_transaction_is_given_in_minutes(text: str, milliseconds: int) -> None:
    parser = Parser(prog="tool")
    add_source_arguments(parser)
    assert parser.parse_args(["--max-transaction-timeout", text]).longest_ms == milliseconds
    again = " ".join(options_of(False, milliseconds)).split()
    assert parser.parse_args(again).longest_ms == milliseconds, "the next command has the same"


@pytest.mark.parametrize("text", ["0", "-1", "1000000", "nan", "inf", "soon"])
def test_a_time_of_a_transaction_that_no_broker_has_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="tool")
    add_source_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([f"--max-transaction-timeout={text}"])
    assert f"--max-transaction-timeout {text}: expected minutes above 0" in capsys.readouterr().err
