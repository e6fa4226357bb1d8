"""The parser takes every call of ``kafka-eos`` that the project shows."""

import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from kafka_eos_checks.cli.command import parser_of
from kafka_eos_checks.cli.doors import COMMANDS, DOORS, Group, calls
from kafka_eos_checks.kit.paths import CLONE

SUFFIXES = (".md", ".toml", ".py", ".tla", ".j2", "Makefile")
LEFT_OUT = re.compile("required|expected (one|at least one) argument")
_LINE = re.compile(r"^ *(?:\$ |[A-Z_]+=\S+ |nice -n -?\d+ )*kafka-eos (?!is |=)(.*)$", re.MULTILINE)
_QUOTED = re.compile(r"`(?:[A-Z_]+=\S+ )*kafka-eos ([^`\n]*)`")
_MENTIONED = re.compile(r"kafka-eos (?!is )([a-z][a-z-]+)(?:(?: |\n(?:# )?)([a-z][a-z-]*))?")
_MADE = re.compile(r"^\t\$\(KAFKA_EOS\) ?(.*)$", re.MULTILINE)


def texts() -> Iterator[tuple[str, str]]:
    """The files that show calls, except tests, which also show calls that are refused."""
    listed = subprocess.run(["git", "ls-files"], cwd=CLONE, capture_output=True, text=True, check=True, timeout=60)
    for name in listed.stdout.splitlines():
        if name.endswith(SUFFIXES) and not name.startswith("tests/"):
            yield name, (CLONE / name).read_text(encoding="utf-8")


def words_of(call: str) -> list[str]:
    """The words of a shown call, with values in place of its placeholders."""
    call = re.sub(r"\$\([A-Z]+\)|\{[^{}]*\}", "7", re.split(r"   ?| \| ", call)[0])
    call = re.sub(r"[\[\]…]|\\n$", "", call).replace("0..N", "0..9").rstrip('"),')
    return ["9000000" if word in {"N", "SEED"} else word for word in shlex.split(call)]


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The reason why the parser refuses the words; "" if it takes them."""
    try:
        parser, left = parser_of(words)
        if words:
            parser.parse_args(left)
    except SystemExit as ended:
        return capsys.readouterr().err if ended.code else ""
    return ""


def test_every_call_on_a_line_of_its_own_can_be_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    shown = [(name, call) for name, text in texts() for call in _LINE.findall(text) if "examples:" not in call]
    shown += [("Makefile", call) for call in _MADE.findall((CLONE / "Makefile").read_text(encoding="utf-8"))]
    shown += [("doors", door.example.removeprefix("kafka-eos ")) for door in DOORS]
    for entry in COMMANDS.values():
        if isinstance(entry, Group):
            shown += [("doors", example.removeprefix("kafka-eos ")) for example in entry.examples]
    wrong = {(name, call): why for name, call in shown if (why := refusal(words_of(call), capsys))}
    assert wrong == {}
    assert len(shown) > 120


def test_every_call_in_a_sentence_can_be_parsed_but_may_omit_required_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = [(name, call) for name, text in texts() for call in _QUOTED.findall(text)]
    wrong = {(name, call): why for name, call in shown if (why := refusal(words_of(call), capsys))}
    assert {call: why for call, why in wrong.items() if not LEFT_OUT.search(why)} == {}
    assert len(shown) > 80


def test_every_command_that_is_mentioned_exists() -> None:
    shown = [(name, *words) for name, text in texts() for words in _MENTIONED.findall(text)]
    missing = [
        (name, first, second)
        for name, first, second in shown
        if first not in COMMANDS or (isinstance(COMMANDS[first], Group) and second and (first, second) not in calls())
    ]
    assert missing == []
    assert len(shown) > 250
