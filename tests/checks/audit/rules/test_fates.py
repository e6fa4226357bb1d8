"""Fates of open transactions, of those whose markers are all there, and of entries of a snapshot."""

from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.segment import ProducerSnapshotEntry
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.rules.beside import NO_HOLE, is_gone
from kafka_eos_checks.audit.rules.coordinator import Transaction, follow_coordinator_log
from kafka_eos_checks.audit.rules.decided import (
    LOOK_FIRST,
    TAKES_NOTHING,
    Answer,
    Data,
    Last,
    Marked,
    Owner,
    Said,
    added,
    needs_markers,
    said_of,
)
from kafka_eos_checks.audit.rules.log import Reason, Reasons
from kafka_eos_checks.audit.rules.transactions import torn
from kafka_eos_checks.audit.rules.transactions.coordinators import why_incomplete
from kafka_eos_checks.audit.rules.transactions.matching import Matching, Named
from kafka_eos_checks.audit.rules.transactions.missing import EndedOtherwise, Owed, There, _owed, missing
from kafka_eos_checks.audit.rules.transactions.names import (
    MADE_AGAIN,
    OPEN_OF_NOBODY,
    OPEN_WITHOUT_LOG,
    OTHER_MOMENT,
    RECENT,
    STATE_COMPACTED,
    STATE_DAMAGED,
    TORN,
    UNKNOWN,
)
from kafka_eos_checks.audit.rules.transactions.open import _since, fate_of, held_back
from kafka_eos_checks.audit.rules.transactions.partitions import (
    OpenTransaction,
    PartitionTransactions,
    read_transactions,
)
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs

from ..kept import as_kept
from .test_transactions import NOW, PID, at_the_moment, coordinator, ended, partition


@pytest.mark.parametrize(("logs", "reason"), [([], OPEN_WITHOUT_LOG), (["another"], OPEN_OF_NOBODY)])
def test_without_an_owner_the_reason_is_a_missing_log_or_a_producer_that_the_logs_do_not_name(
    logs: list[str], reason: object, tmp_path: Path
) -> None:
    partition(tmp_path, 0, ("data", 0), at=NOW - 24 * 3_600_000)
    transactions = read_transactions(*find_logs(tmp_path))
    nobody = SimpleNamespace(owner=lambda _: None, logs=logs)
    assert fate_of(transactions, transactions.open[PID], nobody, at_the_moment(NOW)).reason is reason


def test_a_transaction_hangs_whatever_its_age_if_its_coordinator_has_ended_it(tmp_path: Path) -> None:
    coordinator(tmp_path, ("EMPTY", 0), *ended("COMMIT", 0, 2), version=2)
    partition(tmp_path, 0, ("data", 0))
    states, data = find_logs(tmp_path)
    transactions, log = read_transactions(data), follow_coordinator_log(states)
    coordinators = SimpleNamespace(owner=lambda _: (log, log.ids["t"]))
    moments = at_the_moment(NOW)
    moments.covers = lambda *_: True
    fate = fate_of(transactions, transactions.open[PID], coordinators, moments)
    assert (fate.kind, fate.is_overdue) == (Kind.VIOLATION, False)
    told = [fate.why]
    for damage in ({"damaged": True}, {"unreadable": 1}):
        own = replace(log, **damage)  # type: ignore[arg-type]
        coordinators = SimpleNamespace(owner=lambda _, own=own: (own, own.ids["t"]))
        told.append((fate := fate_of(transactions, transactions.open[PID], coordinators, moments)).why)
        assert fate.reason is why_incomplete(own) is STATE_DAMAGED
    assert [why_incomplete(each) for each in (log, replace(log, holes=1))] == [None, STATE_COMPACTED]
    as_kept([], *told)


@pytest.mark.parametrize(("stamped", "appended_by"), [(True, NOW), (False, inf)])
def test_data_that_a_broker_has_stamped_were_appended_then(stamped: bool, appended_by: float) -> None:
    partition = PartitionTransactions(PartitionLog("", "orders", 0, "", ()))
    opened = OpenTransaction(
        file="", position=0, offset=0, producer_id=PID, epoch=0, holes=0, timestamp=NOW, stamped=stamped
    )  # fmt: skip
    assert partition.appended_by(opened) == appended_by


def owed(markers: int, log: object = None, otherwise: EndedOtherwise | None = None, **changes: Any) -> SimpleNamespace:
    """The judgement on a partition that has so many of the markers of one committed transaction."""
    one = Owed(
        producer_id=PID, epoch=1, name=Named("t", 0, PID), decision=ControlType.COMMIT, decided_ms=NOW,
        completed_ms=NOW, ordered=False, due=1,
    )  # fmt: skip
    judged = SimpleNamespace(figures={TORN: {"markers": 0}}, reasons={}, findings=[])
    there = There(markers=markers, follows=True, unended=(), otherwise=otherwise)
    missing(SimpleNamespace(log=log, end=9), replace(one, **changes), there, at_the_moment(NOW), judged)
    return judged


def test_transactions_of_one_epoch_are_owed_since_the_last_decision_and_complete_since_the_last_completion() -> None:
    log = SimpleNamespace(segments=("00000000000000000000.log",))
    partition: Any = SimpleNamespace(log=log, first_marker_ms=0, start=0, begins_ms=0, begins_epoch=0)
    moments: Any = SimpleNamespace(covers=lambda *_: True)
    some = [
        Transaction(
            transactional_id="t", number=number, offset=number, producer_id=PID, data_epoch=0, marker_epoch=0,
            version=0, decision=ControlType.COMMIT, partitions=frozenset(), decided_ms=NOW + number,
            completed_ms=NOW + completed,
        )
        for number, completed in ((0, 9), (2, 5), (1, 7))
    ]  # fmt: skip
    owes = _owed(partition, some, moments, inf)
    assert owes is not None
    assert (owes.due, owes.name.number, owes.decided_ms, owes.completed_ms) == (3, 2, NOW + 2, NOW + 9)


@pytest.mark.parametrize("markers", [1, 2])
def test_nothing_is_counted_if_all_markers_are_there(markers: int) -> None:
    judged = owed(markers)
    assert (judged.figures, judged.findings) == ({TORN: {"markers": 0}}, [])


@pytest.mark.parametrize(
    ("markers", "doubtful", "recent", "reasons"),
    [(5, 0, 1, []), (4, 0, 0, [MADE_AGAIN]), (5, 1, 0, [MADE_AGAIN]), (6, 1, 0, [OTHER_MOMENT])],
)
def test_a_log_that_may_be_older_than_its_last_decisions_is_not_said_to_have_been_emptied(
    markers: int, doubtful: int, recent: int, reasons: list[Reason]
) -> None:
    """Of its first moments, whose transactions may be older than the log, it may have all markers."""
    log = SimpleNamespace(topic="orders", partition=0, segments=("00000000000000000000.log",))
    one = Owed(
        producer_id=PID, epoch=0, name=Named("t", 0, PID), decision=ControlType.COMMIT, decided_ms=NOW,
        completed_ms=NOW, ordered=True, due=3, due_later=1, near=2, doubtful=doubtful,
    )  # fmt: skip
    figures = dict.fromkeys(("markers", UNKNOWN, RECENT), 0)
    judged: Any = SimpleNamespace(figures={TORN: figures}, reasons={TORN: Reasons()}, findings=[])
    there = There(markers=markers, follows=False, unended=())
    moments: Any = SimpleNamespace(recent_after=lambda _: NOW, source=SimpleNamespace(is_incomplete=lambda *_: False))
    missing(SimpleNamespace(log=log, start=0, end=9), one, there, moments, judged)
    assert figures[RECENT] == recent
    assert list(judged.reasons[TORN]) == reasons


def test_a_missing_marker_is_found_at_the_end_of_its_partition() -> None:
    log = SimpleNamespace(topic="orders", partition=3, broker=2, segments=[f"{at:020d}.log" for at in (3, 8)])
    judged = owed(0, log)
    [finding] = judged.findings
    assert judged.figures == {TORN: {"markers": 1}}
    assert (finding.topic, finding.partition, finding.broker, finding.file) == ("orders", 3, 2, log.segments[-1])
    assert (finding.offset, finding.producer_id, finding.producer_epoch) == (9, PID, 1)
    as_kept(
        [
            each
            for own in (
                judged,
                owed(2, log, due=5, ordered=True),
                owed(0, log, due=1, ordered=True, decision=ControlType.ABORT),
                owed(1, log, due=3, near=2),
                owed(0, log, EndedOtherwise(4, 6, 0, ControlType.ABORT)),
                owed(0, log, EndedOtherwise(4, 6, 3, ControlType.COMMIT)),
                owed(0, log, EndedOtherwise(4, 6, 3, None)),
                owed(0, log, EndedOtherwise(4, 6, 3, None), ordered=True),
            )
            for each in own.findings
        ],
        judged.figures,
    )


@pytest.mark.parametrize(
    ("in_log", "in_snapshot", "gone"), [(-1, 3, True), (-1, -1, False), (3, 3, False), (3, -1, False)]
)
def test_a_snapshot_that_knows_a_marker_of_a_log_without_markers_is_of_batches_that_are_gone(
    in_log: int, in_snapshot: int, gone: bool
) -> None:
    one = ProducerSnapshotEntry(
        producer_id=PID, producer_epoch=0, last_sequence=0, last_offset=0, offset_delta=0, timestamp=NOW,
        coordinator_epoch=in_log, current_txn_first_offset=None,
    )  # fmt: skip
    assert is_gone(one, replace(one, coordinator_epoch=in_snapshot), 0, NO_HOLE) == gone


def test_the_effect_of_another_transactions_marker_says_what_to_ask_where_the_decision_is_not_known() -> None:
    get = ": readers of committed data get its records"
    assert (
        Said("", LOOK_FIRST).effect_of(ControlType.COMMIT)
        == f"{get}; ask its application whether it has committed them"
    )
    assert Said("", TAKES_NOTHING).effect_of(ControlType.COMMIT) == ""
    lost = ": readers of committed data do not get its records; produce them again"
    assert Said("", LOOK_FIRST, ControlType.COMMIT).effect_of(ControlType.ABORT) == lost
    assert Said("", LOOK_FIRST, ControlType.ABORT).effect_of(ControlType.ABORT) == ""


def test_a_marker_that_the_cleaner_has_emptied_hides_no_contradiction_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def unmatched(decision: ControlType | None) -> SimpleNamespace:
        return SimpleNamespace(partition=None, marker=SimpleNamespace(decision=decision), meant=())

    monkeypatch.setattr(torn, "_without_transaction", lambda each: each.marker.decision)
    matching = Matching(unmatched=[unmatched(None), unmatched(ControlType.COMMIT)])  # type: ignore[list-item]
    assert list(torn.contradictions(matching)) == [ControlType.COMMIT]


OWNER = Owner("t", 3, "", "ONGOING", 42, is_open=False, completed=None)
OWNERS = {
    "nobody": None,
    "open": OWNER._replace(is_open=True),
    "to be ended": OWNER._replace(is_open=True, status="PREPARE_ABORT"),
    "ended": OWNER._replace(status="COMPLETE_ABORT"),
    "ended, lacks": OWNER._replace(status="COMPLETE_ABORT", lacks="lacks"),
    "committed, lacks": OWNER._replace(status="COMPLETE_COMMIT", lacks="lacks", completed=ControlType.COMMIT),
    "aborted, lacks": OWNER._replace(status="COMPLETE_ABORT", lacks="lacks", completed=ControlType.ABORT),
    "version 2, lacks": OWNER._replace(lacks="lacks", is_version_2=True),
}
TOLD = {
    "nothing": Answer(),
    "committed": Answer(commits=1, last=Last(True, 41, ControlType.COMMIT)),
    "aborted": Answer(aborts=1, last=Last(True, 41, ControlType.ABORT)),
    "several": Answer(commits=2, aborts=3, is_named=False, last=Last(True, 41, ControlType.ABORT)),
    "several aborted": Answer(aborts=3, is_named=False, last=Last(True, 41, ControlType.ABORT)),
    "elsewhere": Answer(last=Last(False, 41, ControlType.COMMIT)),
    "several elsewhere": Answer(is_named=False, last=Last(False, 41, ControlType.COMMIT)),
    "a marker": Answer(committed=Marked("orders", 4, 43)),
    "another marker": Answer(aborted=Marked("orders", 5, 44)),
    "both": Answer(committed=Marked("orders", 4, 43), aborted=Marked("orders", 5, 44)),
}


@pytest.mark.parametrize("owner", OWNERS)
def test_each_answer_about_data_is_said_with_its_place_and_remedy(owner: str) -> None:
    lines = []
    for told, answer in TOLD.items():
        whole = replace(answer, owner=OWNERS[owner])
        said = said_of(Data(PID, 6, "orders", 0), whole)
        words = [] if said is None else [*said, *filter(None, map(said.effect_of, ControlType))]
        lines.append(f"{told}: {'| '.join(map(str, words))} {'(and the markers)' * needs_markers(whole)}")
    as_kept([], *lines)


def test_answers_of_several_logs_about_the_same_data_are_one() -> None:
    one, other = Data(PID, 6, "orders", 0), Data(PID, 6, "orders", 1)
    parts = [{one: TOLD["committed"], other: TOLD["a marker"]}, {one: TOLD["aborted"]}]
    both = Answer(commits=1, aborts=1, last=max(Last(True, 41, each) for each in ControlType))
    assert added(parts) == {one: both, other: TOLD["a marker"]}
    assert needs_markers(None)


@pytest.mark.parametrize("timestamp", [-1, 0, 1, NOW])
def test_it_is_told_since_when_and_by_whose_clock_data_are_open(timestamp: int) -> None:
    opened = OpenTransaction(file="", position=0, offset=0, producer_id=PID, epoch=0, holes=0, timestamp=timestamp)
    both = (replace(opened, stamped=stamped) for stamped in (True, False))
    as_kept([], *(_since(each, now) for each in both for now in (inf, NOW, NOW + 90_000)))


def test_readers_are_held_back_by_the_first_open_transaction_of_each_log() -> None:
    opened = [
        Finding(rule="", topic=topic, partition=partition, broker=broker, offset=offset, evidence=f"open {offset}")
        for topic, partition, broker, offset in (
            ("a", 0, "1", 7), ("a", 0, "1", 5), ("a", 0, "2", 6), ("a", 1, "1", 4), ("b", 0, "1", 3), ("a", 0, "1", 9),
        )
    ]  # fmt: skip
    ends = {("1", "a", 0): 20, ("2", "a", 0): 21, ("1", "a", 1): 22, ("1", "b", 0): 23}
    as_kept(held_back(opened, ends))
