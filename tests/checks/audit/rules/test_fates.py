"""Fates of open transactions, of those whose markers are all there, and of entries of a snapshot."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.segment import ProducerSnapshotEntry
from kafka_eos_checks.audit.findings import Kind
from kafka_eos_checks.audit.rules.beside import NO_HOLE, is_gone
from kafka_eos_checks.audit.rules.coordinator import follow_coordinator_log
from kafka_eos_checks.audit.rules.decided import LOOK_FIRST, TAKES_NOTHING, Said
from kafka_eos_checks.audit.rules.transactions import torn
from kafka_eos_checks.audit.rules.transactions.matching import Matching, Named
from kafka_eos_checks.audit.rules.transactions.missing import Owed, There, missing
from kafka_eos_checks.audit.rules.transactions.names import OPEN_OF_NOBODY, OPEN_WITHOUT_LOG, TORN
from kafka_eos_checks.audit.rules.transactions.open import fate_of
from kafka_eos_checks.audit.rules.transactions.partitions import read_transactions
from kafka_eos_checks.audit.segments.splits import find_logs

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


def owed(markers: int, log: object = None) -> SimpleNamespace:
    """The judgement on a partition that has so many of the markers of one committed transaction."""
    one = Owed(
        producer_id=PID, epoch=1, name=Named("t", 0, PID), decision=ControlType.COMMIT, decided_ms=NOW,
        completed_ms=NOW, ordered=False, due=1,
    )  # fmt: skip
    judged = SimpleNamespace(figures={TORN: {"markers": 0}}, reasons={}, findings=[])
    there = There(markers=markers, follows=True, unended=())
    missing(SimpleNamespace(log=log, end=9), one, there, at_the_moment(NOW), judged)
    return judged


@pytest.mark.parametrize("markers", [1, 2])
def test_nothing_is_counted_if_all_markers_are_there(markers: int) -> None:
    judged = owed(markers)
    assert (judged.figures, judged.findings) == ({TORN: {"markers": 0}}, [])


def test_a_missing_marker_is_found_at_the_end_of_its_partition() -> None:
    log = SimpleNamespace(topic="orders", partition=3, broker=2, segments=["first", "last"])
    judged = owed(0, log)
    [finding] = judged.findings
    assert judged.figures == {TORN: {"markers": 1}}
    assert (finding.topic, finding.partition, finding.broker, finding.file) == ("orders", 3, 2, "last")
    assert (finding.offset, finding.producer_id, finding.producer_epoch) == (9, PID, 1)


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
