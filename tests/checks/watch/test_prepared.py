"""Transactions that are decided, and that their coordinators do not complete."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_eos_checks.watch import command
from kafka_eos_checks.watch import watcher as watching
from kafka_eos_checks.watch.cluster import Transaction
from kafka_eos_checks.watch.command import follow
from kafka_eos_checks.watch.journal import Journal
from kafka_eos_checks.watch.prepared import STAYS
from kafka_eos_checks.watch.reports import RESOLVED, Clock, Ends, Report, Since, lines_of, report_row
from kafka_eos_checks.watch.watcher import Watcher

from .conftest import PLACE, Log, Written

NOW = 1_700_000_000_000
STUCK = Transaction(
    name="shipping-1",
    state="PrepareCommit",
    producer_id=7,
    epoch=4,
    start_ms=NOW - 5_000,
    timeout_ms=60_000,
    partitions=frozenset({PLACE}),
)
NAME = f"{STAYS}/__transaction_state-0/{NOW - 5_000}/producer 7 epoch 4"


def reports(watcher: Watcher, *seconds: int) -> list[list[Report]]:
    """The reports of looks, so many seconds after the first."""
    return [watcher.poll(NOW + 1000 * each) for each in seconds]


@pytest.fixture
def stuck(written: Written) -> Written:
    """A cluster with a transaction that stays prepared, and whose data are open nowhere."""
    written.logs["__transaction_state", 0] = Log()
    written.prepared = [STUCK]
    return written


def test_a_transaction_that_stays_prepared_is_reported_once_and_resolved_when_it_is_completed(stuck: Written) -> None:
    watcher = stuck.watcher()
    first, early, [report], again = reports(watcher, 0, 59, 69, 79)
    assert first == early == again == []
    assert (report.rule, report.topic, report.partition, report.offset) == (STAYS, "__transaction_state", 0, None)
    assert (report.transactional_id, report.state, report.decision) == ("shipping-1", "PrepareCommit", "committed")
    assert (report.producer_id, report.producer_epoch, report.ends) == (7, 4, Ends.UNKNOWN)
    assert report.since == Since(ms=NOW - 5_000, clock=Clock.COORDINATOR)
    assert watcher.open_reports == {NAME: STAYS}
    stuck.prepared = None
    assert reports(watcher, 89) == [[]], "no answer is no end"
    stuck.prepared = []
    assert reports(watcher, 99) == [[]], "a coordinator may be moving"
    assert watcher.open_reports == {NAME: STAYS}
    stuck.prepared = [STUCK]
    assert reports(watcher, 101) == [[]], "it has moved"
    stuck.prepared = []
    empty, [over] = reports(watcher, 111, 112)
    assert empty == []
    assert (over.rule, over.resolves, over.decision) == (RESOLVED, NAME, "committed")
    assert over.evidence == f"{STAYS}, reported 43 s ago: it is completed"
    assert watcher.open_reports == {}


def test_its_report_says_where_and_what_to_do(stuck: Written) -> None:
    _, [report] = reports(stuck.watcher(), 0, 60)
    row = report_row(1, NOW, report)
    assert row["id"] == NAME
    head, *rest, command = lines_of(row)
    assert (
        f"{STAYS}: __transaction_state-0 (producer 7 epoch 4): decided, and not completed for at least 1 min: its"
        in head
    )
    assert any("restart the broker that leads __transaction_state-0." in line for line in rest)
    assert any("says of refused-marker or of half-loaded-coordinator." in line for line in rest)
    assert command.endswith("--describe --unavailable-partitions")


def test_each_transaction_of_an_id_has_a_time_of_its_own_and_one_with_open_data_is_not_reported_twice(
    stuck: Written,
) -> None:
    watcher = stuck.watcher()
    assert reports(watcher, 0, 50) == [[], []]
    stuck.prepared = [replace(STUCK, start_ms=NOW + 45_000)]
    assert reports(watcher, 60, 110) == [[], []], "the next transaction of the producer"
    stuck.logs[PLACE].data(7, 3, 0)
    assert reports(watcher, 120) == [[]], "it may hold readers back, which has a report of its own"
    stuck.logs[PLACE].marker(7, 4)
    assert [each.rule for each in watcher.poll(NOW + 130_000)] == [STAYS]


def test_a_look_that_continues_from_a_checkpoint_knows_how_long_and_tells_again(
    stuck: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    for at in (0, 60_000, 120_000, 180_000):
        stuck.prepared = [STUCK] if at < 180_000 else []
        monkeypatch.setattr(command, "now_ms", lambda at=at: NOW + at)
        with Journal(tmp_path) as journal:
            follow(
                stuck.watcher(),
                journal,
                threading.Event(),
                once=True,
                show=lambda row: told.append(("new", row["id"])),
                remind=lambda row: told.append(("again", row["id"])),
            )
    over = ("new", f"{RESOLVED}/{NAME}")  # a single look asks twice
    assert told == [("new", NAME), ("again", NAME), over]


def test_one_that_a_single_look_meets_is_not_reported_however_short_the_accepted_time_is(stuck: Written) -> None:
    watcher = stuck.watcher(lag_after_ms=0)
    first, [report] = reports(watcher, 0, 10)
    assert (first, report.rule) == ([], STAYS)


def test_coordinators_that_let_one_wait_in_vain_are_asked_less_often(
    stuck: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = [0], list[int]()

    def in_vain() -> None:
        asked.append(clock[0])
        clock[0] += 10

    monkeypatch.setattr(stuck, "prepared_transactions", in_vain)
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    watcher = stuck.watcher()
    while clock[0] < 100:
        watcher.poll(NOW + 1000 * clock[0])
        clock[0] += 1
    assert asked == [0, 30, 60, 90]


def test_one_whose_partitions_are_all_of_topics_that_are_not_watched_is_not_reported(stuck: Written) -> None:
    stuck.prepared = [replace(STUCK, partitions=frozenset({("payments", 0)}))]
    watcher = stuck.watcher(topics=frozenset({PLACE[0]}))
    assert reports(watcher, 0, 60) == [[], []]
    stuck.prepared = [replace(STUCK, partitions=frozenset({("payments", 0), PLACE}))]
    assert [each.rule for each in watcher.poll(NOW + 70_000)] == [STAYS]


def test_a_partition_that_is_not_known_is_not_named(stuck: Written) -> None:
    del stuck.logs["__transaction_state", 0]
    _, [report] = reports(stuck.watcher(), 0, 60)
    head, *rest = lines_of(report_row(1, NOW, report))
    assert f"{STAYS}: __transaction_state (producer 7 epoch 4)" in head
    assert any("that leads its partition of __transaction_state." in line for line in rest)


def test_no_coordinator_is_asked_while_one_of_them_is_without_a_leader(stuck: Written) -> None:
    watcher = stuck.watcher()
    watcher.poll(NOW)
    stuck.leaders["__transaction_state", 0], stuck.prepared = -1, []
    assert reports(watcher, 10, 20) == [[], []]
    stuck.leaders["__transaction_state", 0], stuck.prepared = 1, [STUCK]
    assert [each.rule for each in watcher.poll(NOW + 60_000)] == [STAYS], "it was prepared all the time"
