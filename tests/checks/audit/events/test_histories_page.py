"""The page docs/histories.md: its tables are those of the code, and its examples do what it says."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.histories.history import ACTIONS, COLUMN_TYPES, PHASES, VOCABULARY, read_history
from kafka_eos_checks import cli
from kafka_eos_checks.audit.events.columns import DETAILS
from kafka_eos_checks.audit.rules import declared
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES
from kafka_eos_checks.kit.paths import CLONE

PAGE = (CLONE / "docs" / "histories.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```text\n(.*?)```\n```\n\$ kafka-eos audit (\S+)\n(.*?)```", PAGE, re.DOTALL)
OF_REQUESTS = {
    "connection",
    "correlation",
    "broker",
    "delivered",
    "member",
    "instance",
}  # no rule over histories reads these


def table(heading: str) -> list[list[str]]:
    """The cells of the rows of the table below a heading."""
    below = PAGE.split(f"\n## {heading}\n", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    rows = [line.strip("| ").split(" | ") for line in below.splitlines() if line.startswith("| ")]
    return [row for row in rows[1:] if not set(row[0]) <= set("- ")]


def quoted(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def test_the_tables_name_each_column_action_and_rule_once() -> None:
    assert [name for row in table("Columns") for name in quoted(row[0])] == list(COLUMN_TYPES)
    kinds = {"text": str, "texts": str, "integer": int, "integers": int, "object": dict}
    for names, kind, *_ in table("Columns"):
        assert {COLUMN_TYPES[name] for name in quoted(names)} == {kinds[word] for word in kind.split(", ")}
    actions = [name for row in table("Actions") for name in quoted(row[0])]
    assert sorted(actions) == sorted(ACTIONS)
    assert {word for row in table("Actions") for word in quoted(row[1])} <= set(PHASES)
    assert sorted(re.split("[,;] ", "; ".join(row[0] for row in table("What a rule needs")))) == sorted(HISTORY_RULES)
    named = {word for row in table("What a rule needs") for word in quoted(row[1]) if word[0].isupper()}
    assert named <= set(ACTIONS)
    assert all(f"`{word}`" in PAGE for words in (PHASES, VOCABULARY["isolation"]) for word in words)


def test_the_page_names_the_fields_of_a_detail_that_rules_read() -> None:
    before, _, rest = PAGE.partition("## A question about an application")
    question, _, after = rest.partition("\n## ")
    assert set(re.findall(r"`detail\.(\w+)`", before + after)) == set(DETAILS) - OF_REQUESTS
    read = {"everything", "role", "after", "field", "output", "identity"}
    assert set(re.findall(r"`detail\.(\w+)`", question)) == read
    source = Path(declared.__file__).read_text(encoding="utf-8")
    assert all(f'"{name}"' in source for name in read)


def test_the_question_of_the_page_is_one(tmp_path: Path) -> None:
    [lines] = re.findall(r"```\n(\{\"run\":\"serve\".*?)```", PAGE, re.DOTALL)
    (tmp_path / "question.jsonl").write_text(lines, encoding="utf-8")
    [told] = declared.declarations(list(read_history(tmp_path / "question.jsonl")))
    assert (told.group, told.inputs, told.outputs, told.everything) == ("payd", {"payments"}, {"ledger"}, True)
    record = b'{"payment": "p1", "leg": "debit"}'
    assert told.identity((("ledger", 0), 5), record) == ("p1", "debit")


@pytest.mark.parametrize(("lines", "name", "shown"), EXAMPLES, ids=[name for _, name, _ in EXAMPLES])
def test_an_example_is_judged_as_the_page_says(
    lines: str,
    name: str,
    shown: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(lines, encoding="utf-8")
    assert cli.main(["audit", name]) == 1
    printed = capsys.readouterr().out
    assert printed.count("FAIL ") == 2, "in the table, and above the finding"
    [line] = [line for line in shown.splitlines() if line != "…"]
    assert line in printed.splitlines()


def test_there_are_two_examples() -> None:
    assert [name for _, name, _ in EXAMPLES] == ["lost.jsonl", "given.jsonl"]


def test_the_program_of_the_page_writes_a_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = SimpleNamespace(topic=lambda: "orders", partition=lambda: 0, offset=lambda: 3, value="né".encode)
    answers: list[Any] = [None, "_MSG_TIMED_OUT"]

    def produce(topic: str, value: bytes, on_delivery: Callable[[Any, Any], None]) -> None:
        assert (topic, value) == ("orders", "né".encode())
        on_delivery(answers.pop(0), record)

    monkeypatch.chdir(tmp_path)
    program, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"producer": SimpleNamespace(produce=produce)}
    exec(compile(program, "docs/histories.md", "exec"), names)  # noqa: S102 - the program is the page's
    names["send"]("orders", "né")
    names["given"](record)
    names["send"]("orders", "né")
    names["out"].close()
    events = list(read_history(Path("history.jsonl")))
    told = [(event.action, event.phase, event.offset) for event in events]
    assert told == [
        *(("Send", "invoke", None), ("Send", "ok", 3), ("Poll", "ok", 3)),
        *(("Send", "invoke", None), ("Send", "info", None)),
    ]
    assert {event.detail["value"] for event in events} == {"né"}
    assert cli.main(["audit", "history.jsonl"]) in {0, 3}
