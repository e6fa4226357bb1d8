"""The words of histories are those that histories are written with."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_eos.histories.history import ACTIONS, NOTE
from kafka_eos_checks import cli
from kafka_eos_checks.kit.paths import CLONE

LIKE = '{"run":"r","process":"p","action":"Send","phase":"ok","topic":"t"}\n'
WRITERS = (  # whatever writes the histories of recordings, simulations, served clusters and tests
    *("reference/kafka_eos/histories", "reference/kafka_eos/server"),
    *("checks/kafka_eos_checks/brokers", "checks/kafka_eos_checks/lab", "checks/kafka_eos_checks/audit"),
    "checks/kafka_eos_checks/testing",
)
WRITTEN = re.compile(  # an action right after what begins an event in each of these
    r"""(?:happened\(|\btell\(|\.add\([\w./"{}]+,\s*|_told\(instance, producer,\s*|_application\(instance,\s*"""
    r"""|_wire\((?:str\()?instance\)?,\s*|"action"\s*:\s*|action=)\s*\(?"([A-Z]\w+)\""""
)


READERS = {"history.py", "trace.py"}  # the vocabulary itself, and the steps of the spec that recordings are turned into


def sources() -> Iterator[Path]:
    for room in WRITERS:
        yield from (path for path in (CLONE / room).rglob("*.*") if path.suffix in {".py", ".java"})


def test_the_actions_are_those_that_the_writers_of_histories_have() -> None:
    """A new action of a writer is known, and one that no writer has any more is not."""
    written, named = set[str](), set[str]()
    for path in sources():
        if path.name in READERS and path.parent.name in {"histories", "record"}:
            continue
        text = path.read_text(encoding="utf-8")
        written |= set(WRITTEN.findall(text))
        if path.suffix == ".py":
            found = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
            named |= {value for value in found if isinstance(value, str)}
        else:
            named |= set(re.findall(r'"(\w+)"', text))
    assert len(written) > 20, "the pattern finds where events are written"
    assert written <= set(ACTIONS)
    assert set(ACTIONS) - named == {NOTE}
    assert len(set(ACTIONS)) == len(ACTIONS)


@pytest.mark.parametrize("given", ["logs and a history", "a history"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (LIKE.replace("Send", "Sent"), "action 'Sent' is unknown; did you mean Send?; an event that no rule has to"),
        ('{"isolation":"READ_COMMITTED",' + LIKE[1:], "isolation 'READ_COMMITTED' is unknown; did you mean read_com"),
    ],
)
def test_a_history_with_a_word_that_no_rule_reads_is_refused(
    wrong: str, said: str, given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beyond the first block of lines, so that the line is counted over blocks, and with logs as without."""
    history = tmp_path / "h.jsonl"
    before = 2000
    history.write_text(LIKE * before + wrong + LIKE, encoding="utf-8")
    logs = ["example:one-broker"] if given == "logs and a history" else []
    assert cli.main(["audit", *logs, str(history)]) == 2
    assert f"h.jsonl:{before + 1}: {said}" in capsys.readouterr().err
