import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from kafka_eos_checks.kit.terminal import WordTable, answer_console, breaks, plain_table, print_verdicts, verdict_table
from kafka_eos_checks.kit.verdict import (
    Standing,
    Verdict,
    counted,
    headline,
    read_verdicts,
    verdict_from_json,
    write_verdicts,
)

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
    unjudged=TEXT,
    unknown=st.integers(0, 9),
    unjudged_for=st.dictionaries(TEXT, st.integers(0, 9), max_size=2),
    recent=st.integers(0, 9),
    advice=TEXT,
    causes=st.lists(TEXT, max_size=3).map(tuple),
)
GOOD = Verdict(check="model", name="M", expected="holds", found="holds", ok=True, figures={"states": 12345})
BAD = Verdict(
    check="mutant", name="B", expected="violates P", found="holds", ok=False, evidence="the [shortest] path:\n1  Init"
)

UNSURE = Verdict(
    check="replay", name="U", expected="0 findings", found="0 findings", ok=True, unjudged="2 of 3: no log", unknown=2
)
EMPTY = Verdict(check="replay", name="E", expected="0 findings", found="0 findings", ok=True, unjudged="there are none")


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("transaction committed", 13, ["transaction ", "committed"]),
        ("violates OneTransactionPerMarker", 20, ["violates ", "OneTransactionPer", "Marker"]),
        ("generated=160,123 depth=10", 13, ["generated=", "160,123 ", "depth=10"]),
        ("conform_run", 8, ["conform_", "run"]),
        ("incomprehensible", 10, ["incomprehe", "nsible"]),
        ("short", 5, ["short"]),
    ],
)
def test_a_cell_is_broken_between_words_and_a_long_name_between_the_words_in_it(
    text: str, width: int, lines: list[str]
) -> None:
    ends = [*breaks(text, width), len(text)]
    assert [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)] == lines


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40), st.integers(1, 20))
def test_a_broken_cell_has_the_whole_text_in_lines_that_fit(text: str, width: int) -> None:
    ends = [*breaks(text, width), len(text)]
    parts = [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    assert "".join(parts) == text
    assert all(len(part.rstrip()) <= width for part in parts)


def test_a_table_shows_coloured_text_broken_between_words() -> None:
    table = WordTable("", "name")
    table.add_row(Text("ok", "green"), Text("CoordinatorTwoPartitions"))
    with answer_console.capture() as shown:
        answer_console.print(table, width=20)
    assert [line.rstrip() for line in shown.get().splitlines()] == ["    name", "ok  CoordinatorTwo", "    Partitions"]


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
    assert lines[2] == ["ok", "M", "holds", "states=12,345", "0.0"]
    assert verdict_table([GOOD, BAD]).row_count == 2


def test_a_table_names_the_kinds_of_checks_if_there_are_several() -> None:
    lines = [line.split() for line in printed([GOOD, BAD]).splitlines()]
    assert [line[:4] for line in lines[2:4]] == [["ok", "model", "M", "holds"], ["FAIL", "mutant", "B", "holds"]]
    assert printed([GOOD, EMPTY]).splitlines()[1].split() == ["name", "found", "figures", "seconds"]


def test_only_the_evidence_of_differing_verdicts_is_printed_and_unchanged() -> None:
    said = printed([GOOD, BAD])
    assert "FAIL mutant B: expected violates P, found holds" in said
    assert "FAIL B: expected violates P, found holds" in printed([BAD]), "there is only one kind of check"
    assert "the [shortest] path:\n1  Init" in said
    assert "FAIL" not in printed([GOOD])


def test_a_command_in_the_evidence_stays_on_its_line() -> None:
    command = f"kafka-eos audit {' '.join(f'--topic orders-{number}' for number in range(20))}"
    assert command in printed([replace(BAD, evidence=command)]).splitlines()


@pytest.mark.parametrize("ok", [True, False])
def test_the_evidence_of_a_verdict_that_is_not_judged_is_printed_once(ok: bool) -> None:
    said = printed([replace(UNSURE, ok=ok, evidence="the one of orders-0", advice="copy the log")])
    assert [said.count(text) for text in ("the one of orders-0", "copy the log", "not judged U")] == [1, 1, 1]


def test_no_part_of_a_verdict_becomes_a_picture() -> None:
    said = printed([replace(BAD, name="protocol.py:100: x", found="orders:1234:", evidence=":boom:")])
    assert [said.count(word) for word in ("protocol.py:100: x", "orders:1234:", ":boom:")] == [2, 2, 1]


def test_no_part_of_a_verdict_or_a_table_is_taken_for_a_style() -> None:
    named = "install kafka-eos[bench]"
    bad = replace(BAD, check=f"{named} 1", name=f"{named} 2", found=f"{named} 3", expected=f"{named} 4")
    said = printed([bad])
    assert [said.count(f"{named} {number}") for number in (1, 2, 3, 4)] == [0, 2, 2, 1]
    assert printed([bad, GOOD]).count(f"{named} 1 {named} 2: expected ") == 1
    assert f"not judged {named}: [red]why[/]" in printed([replace(UNSURE, name=named, unjudged="[red]why[/]")])
    with answer_console.capture() as shown:
        answer_console.print(plain_table(["[red]x[/]", "y"], [["[bench]", "[/]"]]))
    assert [line.split() for line in shown.get().splitlines()] == [["[red]x[/]", "y"], ["[bench]", "[/]"]]


def test_a_verdict_that_is_skipped_or_absent_is_never_ok() -> None:
    standings = [Standing.OK, Standing.FAIL, Standing.NOT_JUDGED, Standing.NOTHING]
    assert [each.standing for each in (GOOD, BAD, UNSURE, EMPTY)] == standings
    rows = [each.to_json() for each in (GOOD, BAD, UNSURE, EMPTY)]
    assert [(row["standing"], row["ok"]) for row in rows] == [
        *(("ok", True), ("FAIL", False), ("not judged", False), ("nothing to judge", False))
    ]


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([GOOD], "1 verdict, as expected"),
        ([GOOD, GOOD], "2 verdicts, all as expected"),
        ([GOOD, UNSURE], "1 of 2 verdicts not judged, 1 as expected"),
        ([GOOD, BAD, UNSURE], "B: holds (1 of 3 verdicts differs; 1 not judged)"),
        ([BAD] * 3, "B: holds; B: holds; B: holds (3 of 3 verdicts differ)"),
        ([BAD] * 5, "B: holds; B: holds; B: holds; and 2 more (5 of 5 verdicts differ)"),
        ([replace(GOOD, recent=4)], "1 verdict, as expected; too recent to judge: 4"),
        ([GOOD, EMPTY], "1 verdict, as expected; nothing to judge for 1 more"),
        ([EMPTY], "nothing was judged; nothing to judge for 1 more"),
        ([], "nothing was judged"),
    ],
)
def test_the_headline_begins_with_what_differs_and_counts_unjudged_verdicts(verdicts: list[Verdict], said: str) -> None:
    assert headline(verdicts) == said


def test_one_thing_is_counted_without_an_s() -> None:
    assert [counted(count, "finding") for count in (0, 1, 2)] == ["0 findings", "1 finding", "2 findings"]


def test_unjudged_verdicts_are_printed_with_their_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_verdicts([GOOD, UNSURE, EMPTY])
    printed = capsys.readouterr().out
    assert "not judged U: 2 of 3: no log" in printed
    assert "nothing to judge for: E" in printed
    assert "replay  E" not in printed
    print_verdicts([replace(EMPTY, name=f"E{number}") for number in range(60)])
    assert " more" not in capsys.readouterr().out
    print_verdicts([replace(EMPTY, name=f"E{number}") for number in range(100)])
    printed = capsys.readouterr().out
    assert "E0, E1" in printed
    assert "E59 and 40 more; the report has them" in " ".join(printed.split())
    assert "E60" not in printed
