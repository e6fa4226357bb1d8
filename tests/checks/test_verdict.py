import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos_checks.terminal import answer_console, print_verdicts, verdict_table
from kafka_eos_checks.verdict import Verdict, read_verdicts, verdict_from_json, write_verdicts

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VERDICTS = st.builds(
    Verdict,
    check=TEXT,
    name=TEXT,
    expected=TEXT,
    found=TEXT,
    ok=st.booleans(),
    seconds=st.floats(0, 1e6),
    figures=st.dictionaries(TEXT, st.integers() | st.floats(0, 1e6) | TEXT, max_size=3),
    evidence=TEXT,
    claims=st.lists(TEXT, max_size=3).map(tuple),
    diagram=TEXT,
)
GOOD = Verdict(check="model", name="M", expected="holds", found="holds", ok=True, figures={"states": 12345})
BAD = Verdict(
    check="mutant", name="B", expected="violates P", found="holds", ok=False, evidence="the [shortest] path:\n1  Init"
)


@given(VERDICTS)
def test_a_verdict_comes_back_from_json(verdict: Verdict) -> None:
    assert verdict_from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_verdicts_come_back_from_their_file_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "verdicts.json"
    write_verdicts(path, [GOOD, BAD])
    assert read_verdicts(path) == [GOOD, BAD]


def test_a_row_with_an_unknown_field_or_without_a_verdict_is_refused() -> None:
    with pytest.raises(TypeError):
        verdict_from_json({**GOOD.to_json(), "mood": "good"})
    row = GOOD.to_json()
    del row["ok"]
    with pytest.raises(TypeError):
        verdict_from_json(row)


def printed(verdicts: list[Verdict]) -> str:
    with answer_console.capture() as captured:
        print_verdicts(verdicts, "checked")
    return captured.get()


def test_a_table_has_one_line_a_verdict_with_its_mark_and_figures() -> None:
    lines = [line.split() for line in printed([GOOD]).splitlines()]
    assert lines[0] == ["checked"]
    assert lines[2] == ["ok", "model", "M", "holds", "holds", "states=12,345", "0.0"]
    assert verdict_table([GOOD, BAD]).row_count == 2


def test_the_evidence_of_what_differs_is_printed_as_it_is_and_of_the_rest_not() -> None:
    said = printed([GOOD, BAD])
    assert "FAIL mutant B: expected violates P, found holds" in said
    assert "the [shortest] path:\n1  Init" in said
    assert "FAIL" not in printed([GOOD])
