"""Reports as rows and as lines for people."""

import shlex
import subprocess
from dataclasses import replace

import pytest

from kafka_eos_checks.watch.reports import (
    RESOLVED,
    Blocked,
    Clock,
    Ends,
    Report,
    Since,
    duration,
    lines_of,
    report_row,
    shell_word,
)

NOW = 1_700_000_065_000
HANGING = Report(
    rule="hanging transaction",
    topic="orders",
    partition=0,
    offset=2,
    producer_id=7,
    producer_epoch=3,
    evidence="open",
    since=Since(ms=1_700_000_000_000, clock=Clock.PRODUCER),
    transactional_id="x",
    state="Ongoing",
    blocked=(Blocked(topic="orders", partition=0, first=2, end=1202),),
    next="Abort it:",
    command="kafka-transactions abort",
)


def words(report: Report) -> list[str]:
    return list(lines_of(report_row(1, NOW, report)))


def test_a_report_is_a_line_followed_by_an_answer_to_each_question() -> None:
    assert words(HANGING) == [
        "2023-11-14T22:14:25+00:00 hanging transaction: orders-0 offset 2 (producer 7 epoch 3): open",
        "  since:   2023-11-14T22:13:20+00:00 (1 min 5 s), as its producer's clock has it",
        "  blocked: 1,200 offsets of orders-0 (2 to 1201): readers of committed data do not see them",
        "  who:     transactional id 'x', Ongoing",
        "  ends:    never",
        "  next:    Abort it:",
        "  kafka-transactions abort",
    ]


def test_a_report_that_follows_another_one_names_it() -> None:
    lines = words(replace(HANGING, follows="last stable offset lags/orders-0/2/producer 7 epoch 3"))
    assert "  part of: last stable offset lags/orders-0/2/producer 7 epoch 3" in lines


@pytest.mark.parametrize(
    ("ends", "ends_ms", "said"),
    [
        (Ends.BY_ITSELF, NOW + 25_000, "by itself, in 25 s: the transaction times out at 2023-11-14T22:14:50+00:00"),
        (Ends.BY_ITSELF, NOW + 1, "by itself, in 0 s: the transaction times out at 2023-11-14T22:14:25+00:00"),
        (Ends.BY_ITSELF, NOW, "by itself, as soon as the coordinator looks, every 10 s by default"),
        (Ends.BY_ITSELF, NOW - 1, "by itself, as soon as the coordinator looks, every 10 s by default"),
        (Ends.BY_ITSELF, None, "by itself, as soon as its markers are written"),
        (Ends.UNKNOWN, None, "unknown, as far as can be told"),
    ],
)
def test_the_expected_end_is_shown_with_its_time(ends: Ends, ends_ms: int | None, said: str) -> None:
    report = Report(rule="r", topic="t", partition=0, offset=0, evidence="e", ends=ends, ends_ms=ends_ms)
    assert any(line.startswith(f"  ends:    {said}") for line in words(report))


def test_a_resolution_names_its_report_and_asks_for_no_action() -> None:
    over = Report(rule=RESOLVED, topic="orders", partition=0, offset=2, evidence="aborted", resolves="a/b/2")
    row = report_row(5, NOW, over)
    assert (row["id"], row["resolves"]) == ("resolved/a/b/2", "a/b/2")
    assert row.keys() == {"number", "id", "seen_ms", "rule", "topic", "partition", "offset", "evidence", "resolves"}
    assert list(lines_of(row)) == ["2023-11-14T22:14:25+00:00 resolved: orders-0 offset 2: aborted"]


def test_a_row_has_no_empty_value_and_counts_blocked_records() -> None:
    row = report_row(1, NOW, HANGING)
    assert row["blocked"] == [{"topic": "orders", "partition": 0, "first": 2, "end": 1202, "offsets": 1200}]
    assert (row["since_ms"], row["since_clock"]) == (1_700_000_000_000, "producer")
    assert not {"base_sequence", "broker", "file", "position", "resolves", "ends_ms"} & row.keys()


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (-5, "0 s"),
        (999, "0 s"),
        (65_000, "1 min 5 s"),
        (3_600_000, "1 h"),
        (86_399_999, "23 h 59 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_duration_has_two_units_at_most(ms: int, said: str) -> None:
    assert duration(ms) == said


@pytest.mark.parametrize(
    "name", ["x", "two words", "it's", "$(touch /tmp/no)", "a\x1b[2Jb", "new\nline", "back\\slash\x07"]
)
def test_a_name_in_a_command_stays_one_word_and_sends_nothing_to_the_terminal(name: str) -> None:
    word = shell_word(name)
    assert word.isprintable()
    said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, text=True, check=True)
    assert said.stdout == name
    if name.isprintable() and "\\" not in name:
        assert shlex.split(word) == [name]
