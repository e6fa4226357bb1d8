"""Each rule over transactions has logs that violate it, logs on which it is silent, and logs it cannot judge."""

import math
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import (
    TOPIC,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos.histories.history import Event, write_history
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import read_coordinator_log
from kafka_eos_checks.audit.moments import GRACE_MS, LONGEST_MS, SKEW_MS, Source, in_words, span
from kafka_eos_checks.audit.oracle.oracle import readable_transactions
from kafka_eos_checks.audit.oracle.random_clusters import by_steps
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.beside import ABORTED_INDEX
from kafka_eos_checks.audit.rules.coordinator import (
    COORDINATOR_RULES,
    ILLEGAL_TRANSITION,
    Transaction,
    follow_coordinator_log,
)
from kafka_eos_checks.audit.rules.rule_book import rule_of
from kafka_eos_checks.audit.rules.transactions.coordinators import Coordinators
from kafka_eos_checks.audit.rules.transactions.judge import fenced
from kafka_eos_checks.audit.rules.transactions.judged import Judged
from kafka_eos_checks.audit.rules.transactions.matching import Matching, _Group
from kafka_eos_checks.audit.rules.transactions.missing import begins_with_zero
from kafka_eos_checks.audit.rules.transactions.names import (
    END_DAMAGED,
    FENCED,
    HANGING,
    INCOMPLETE,
    MOST_WAYS,
    NO_BIT,
    NO_TRANSACTION,
    OLD_COORDINATOR,
    OPEN_BEHIND_HOLE,
    TORN,
    TRANSACTION_RULES,
)
from kafka_eos_checks.audit.rules.transactions.open import fate_of
from kafka_eos_checks.audit.rules.transactions.partitions import Marker, read_transactions
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.recording import unpack
from kafka_eos_checks.kit.verdict import Standing, Verdict

from ..conftest import in_both
from ..kept import as_kept, run

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
PID = 7
NOW = 1_700_000_000_000

# ("data", epoch), ("plain", epoch) without the transactional bit, (a marker, epoch), ("hole", offsets);
# or (a marker, epoch, when it is written)
Step = tuple[str, int] | tuple[ControlType, int] | tuple[ControlType, int, int]


def partition(
    folder: Path, number: int, *steps: Step, start: int = 0, at: int = NOW, pid: int = PID, marked_at: int | None = None
) -> None:
    """Write partition ``number`` of orders; data and markers of one producer take one offset each."""
    batches: list[RecordBatch] = []
    offset = start
    for what, value, *own in steps:
        if isinstance(what, ControlType):
            stamp = own[0] if own else (at if marked_at is None else marked_at)
            marker = ControlRecord(control_type=what, coordinator_epoch=0)
            batches.append(
                build_control_batch(marker, producer_id=pid, producer_epoch=value, base_offset=offset, timestamp=stamp)
            )
        elif what == "hole":
            offset += value
            continue
        else:
            batches.append(
                build_batch(
                    [Record(value=b"v")],
                    base_offset=offset,
                    base_timestamp=at,
                    producer_id=pid,
                    producer_epoch=value,
                    base_sequence=sum(not batch.is_control and batch.producer_epoch == value for batch in batches),
                    is_transactional=what == "data",
                )
            )
        offset += 1
    path = folder / f"orders-{number}" / f"{start:020d}.log"
    write_segment(path, [batch.encode() for batch in batches], index=False)  # nor an index of aborted transactions


def coordinator(
    folder: Path,
    *states: tuple[str, int],
    version: int,
    start: int = 0,
    partitions: Sequence[int] = (0, 1),
    last_pid: int = PID,
    in_turn: bool = False,
) -> None:
    """Write a log of ``__transaction_state`` with these states and epochs of one transactional id.

    The last state has the producer id ``last_pid``. A transaction begins with its ONGOING if they begin in turn, and at
    the beginning of the log otherwise.
    """
    batches = []
    started, in_transaction = NOW, False
    for number, (name, epoch) in enumerate(states):
        status = TransactionState[name]
        started = NOW + number if in_turn and name == "ONGOING" else started
        was_in_transaction = in_transaction
        in_transaction = name == "ONGOING" or name.startswith("PREPARE")
        begins = in_transaction and not was_in_transaction
        topics = (TopicPartitions(topic="orders", partition_ids=tuple(partitions)),) if in_transaction else ()
        value = TransactionLogValue(
            producer_id=PID if number < len(states) - 1 else last_pid,
            producer_epoch=epoch,
            transaction_timeout_ms=60_000,
            transaction_status=status,
            transaction_partitions=topics,
            transaction_last_update_timestamp_ms=started if begins else NOW + number,
            transaction_start_timestamp_ms=-1 if name == "EMPTY" else started,
            client_transaction_version=version,
        )
        record = Record(key=TransactionLogKey(transactional_id="t").encode(), value=value.encode())
        batches.append(build_batch([record], base_offset=start + number))
    write_segment(folder / f"{TOPIC}-0" / f"{start:020d}.log", [batch.encode() for batch in batches])


def forget(folder: Path) -> None:
    """Add a tombstone, in a segment of its own."""
    record = Record(key=TransactionLogKey(transactional_id="t").encode())
    end = sum(1 for _ in read(folder))
    write_segment(folder / f"{TOPIC}-0" / f"{end:020d}.log", [build_batch([record], base_offset=end).encode()])


def read(folder: Path) -> list[int]:
    [path] = (folder / f"{TOPIC}-0").glob("*.log")
    size = path.stat().st_size
    data, position, offsets = path.read_bytes(), 0, []
    while position < size:
        offsets.append(int.from_bytes(data[position : position + 8], "big"))
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return offsets


def found(folder: Path) -> list[tuple[str, int, int | None]]:
    """Rule, partition and offset of what the audit finds; other rules than those over transactions find nothing."""
    findings = run([folder], one_moment=True).findings
    assert {finding.rule for finding in findings} <= set(TRANSACTION_RULES), findings
    return [(finding.rule, finding.partition, finding.offset) for finding in findings]


def told(folder: Path) -> list[tuple[int, int | None]]:
    """Partition and offset of markers that somebody wrote by hand."""
    notes = run([folder], one_moment=True).notes
    return [(note.partition, note.offset) for note in notes if note.rule == NO_TRANSACTION and note.kind == Kind.TOLD]


def figures(folder: Path) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in run([folder], one_moment=True).verdicts}


def ended(decision: str, data_epoch: int, version: int) -> list[tuple[str, int]]:
    epoch = data_epoch + (version == 2)
    return [("ONGOING", data_epoch), (f"PREPARE_{decision}", epoch), (f"COMPLETE_{decision}", epoch)]


TV1 = [("EMPTY", 0), *ended("COMMIT", 0, 1), *ended("ABORT", 0, 1), *ended("COMMIT", 0, 1)]
TV2 = [("EMPTY", 0), *ended("COMMIT", 0, 2), *ended("ABORT", 1, 2)]


def test_transactions_that_end_everywhere_as_the_coordinator_decided_have_no_finding(tmp_path: Path) -> None:
    steps: list[Step] = [("data", 0), (COMMIT, 0), ("data", 0), ("data", 0), (ABORT, 0), ("data", 0), (COMMIT, 0)]
    coordinator(tmp_path / "1", *TV1, version=0)
    partition(tmp_path / "1", 0, *steps)
    partition(tmp_path / "1", 1, (COMMIT, 0), (COMMIT, 0), (ABORT, 0), (COMMIT, 0))  # no data; one marker again
    assert found(tmp_path / "1") == []
    coordinator(tmp_path / "2", *TV2, version=2)
    partition(tmp_path / "2", 0, ("data", 0), (COMMIT, 1), ("data", 1), (ABORT, 2))
    partition(tmp_path / "2", 1, (COMMIT, 1), ("data", 1), ("data", 1), (ABORT, 2), (ABORT, 2))
    assert found(tmp_path / "2") == []
    for folder, markers in ((tmp_path / "1", 7), (tmp_path / "2", 5)):
        assert figures(folder)[TORN].figures == {"markers": markers, "unknown": 0}


def test_a_client_that_is_fenced_before_version_2_has_its_data_ended_with_the_next_epoch(tmp_path: Path) -> None:
    coordinator(tmp_path, ("EMPTY", 0), ("ONGOING", 0), ("PREPARE_ABORT", 1), ("COMPLETE_ABORT", 1), version=0)
    partition(tmp_path, 0, ("data", 0), (ABORT, 1))
    assert found(tmp_path) == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_is_committed_here_and_aborted_there_is_torn(version: int, tmp_path: Path) -> None:
    coordinator(tmp_path, ("EMPTY", 0), *ended("COMMIT", 0, version), version=version)
    partition(tmp_path, 0, ("data", 0), (COMMIT, version - 1))
    partition(tmp_path, 1, ("data", 0), (ABORT, version - 1))
    assert found(tmp_path) == [(TORN, 1, 1)]
    evidence = figures(tmp_path)[TORN].evidence
    assert "transaction 0 of 't': ABORT here, COMMIT at orders-0 offset 1" in evidence


def test_before_version_2_the_order_of_the_markers_says_which_transaction_is_torn(tmp_path: Path) -> None:
    coordinator(tmp_path, *TV1, version=0)
    partition(tmp_path, 0, ("data", 0), (COMMIT, 0), ("data", 0), (ABORT, 0), ("data", 0), (COMMIT, 0))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 0), ("data", 0), (COMMIT, 0), ("data", 0), (COMMIT, 0))
    assert found(tmp_path) == [(TORN, 1, 3)]
    assert "transaction 1 of 't': COMMIT here, ABORT at orders-0 offset 3" in figures(tmp_path)[TORN].evidence


def test_a_transaction_with_both_markers_on_one_partition_is_torn(tmp_path: Path) -> None:
    coordinator(tmp_path, ("EMPTY", 0), *ended("COMMIT", 0, 2), version=2)
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), (ABORT, 1))
    assert found(tmp_path) == [(TORN, 0, 2)]
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), (ABORT, 1), (ABORT, 1))
    assert "ABORT here, COMMIT at orders-0 offset 1" in figures(tmp_path)[TORN].evidence


def test_a_decision_replaced_after_a_failed_append_must_not_have_markers_of_both(
    tmp_path: Path,
) -> None:
    states = [("EMPTY", 0), ("ONGOING", 0), ("PREPARE_COMMIT", 0), ("PREPARE_ABORT", 1), ("COMPLETE_ABORT", 1)]
    for name, second in (("right", (ABORT, 1)), ("torn", (COMMIT, 0))):
        coordinator(tmp_path / name, *states, version=0)
        partition(tmp_path / name, 0, ("data", 0), (ABORT, 1))
        partition(tmp_path / name, 1, ("data", 0), second)
    assert found(tmp_path / "right") == []
    assert [rule for rule, _, _ in found(tmp_path / "torn")] == [TORN]


def test_without_a_coordinators_log_only_the_epochs_of_version_2_show_a_torn_transaction(tmp_path: Path) -> None:
    between = "an epoch between that may have had a transaction"
    cases: dict[str, tuple[list[Step], list[Step], list[str]]] = {
        "torn": ([("data", 0), (COMMIT, 1)], [("data", 0), (ABORT, 1)], [TORN]),
        "torn at an even epoch": ([("data", 1), (COMMIT, 2)], [("data", 1), (ABORT, 2)], [TORN]),
        "before version 2": ([("data", 0), (COMMIT, 0)], [("data", 0), (ABORT, 0)], []),
        "without data": ([("data", 0), (COMMIT, 1)], [(ABORT, 1)], []),
        "two transactions": ([("data", 0), (COMMIT, 1)], [("data", 1), (ABORT, 2)], []),
        between: ([("data", 0), (COMMIT, 2)], [("data", 0), (ABORT, 2)], [FENCED]),
    }
    for name, (first, second, rules) in cases.items():
        partition(tmp_path / name, 0, *first)
        partition(tmp_path / name, 1, *second)
        assert [rule for rule, _, _ in found(tmp_path / name)] == rules, name
        verdicts = figures(tmp_path / name)
        assert verdicts[NO_TRANSACTION].figures["unknown"] == verdicts[NO_TRANSACTION].figures["markers"] == 2
        assert not set(COORDINATOR_RULES) & verdicts.keys()


@pytest.mark.parametrize("compacted", [False, True])
def test_an_abort_by_hand_of_what_was_committed_is_torn_although_no_log_has_its_partitions(
    compacted: bool, tmp_path: Path
) -> None:
    after, before = NOW + SKEW_MS + 1, NOW - SKEW_MS - 1
    cases: dict[str, tuple[Step, Step, int, bool]] = {
        "by hand": ((COMMIT, 4), (ABORT, 3), after, True),
        "of version 1, before the last one of the epoch": ((COMMIT, 4), (ABORT, 3), before, False),
        "not certainly later": ((COMMIT, 4), (ABORT, 3), NOW + SKEW_MS, False),
        "aborted by its coordinator": ((ABORT, 4), (ABORT, 3), after, False),
        "two of version 1": ((COMMIT, 3), (ABORT, 3), after, False),
        "committed by hand, which no tool does": ((COMMIT, 4), (COMMIT, 3), after, False),
    }
    for name, (first, second, marked_at, is_torn) in cases.items():
        if compacted:
            coordinator(tmp_path / name, ("COMPLETE_COMMIT", 4), version=2, start=5)
        partition(tmp_path / name, 0, ("data", 3), first)
        partition(tmp_path / name, 1, ("data", 3), second, marked_at=marked_at)
        result = run([tmp_path / name], one_moment=True, oracle=1.0)
        torn = [(each.rule, each.partition, each.offset) for each in result.findings if each.rule == TORN]
        assert torn == ([(TORN, 1, 1)] if is_torn else []), name
        assert result.verdicts[-1].ok, f"{name}: {result.verdicts[-1].evidence}"  # the readable rules find the same
    evidence = figures(tmp_path / "by hand")[TORN].evidence
    said = "the transaction of epoch 3: ABORT here, COMMIT at orders-0 offset 1; this ABORT is by hand"
    assert said in evidence


@pytest.mark.parametrize("late", [0, 2])
def test_an_abort_by_hand_comes_after_the_first_of_the_commits(late: int, tmp_path: Path) -> None:
    for number in (0, 2):
        marked_at = NOW + 3 * SKEW_MS if number == late else NOW
        partition(tmp_path, number, ("data", 3), (COMMIT, 4), marked_at=marked_at)
    partition(tmp_path, 1, ("data", 3), (ABORT, 3), marked_at=NOW + 2 * SKEW_MS)
    assert found(tmp_path) == [(TORN, 1, 1)]
    assert "COMMIT at orders-0 offset 1, orders-2 offset 1; this" in figures(tmp_path)[TORN].evidence


def test_an_abort_by_hand_is_found_among_the_markers_of_a_producer_that_is_cut(tmp_path: Path) -> None:
    coordinator(tmp_path, ("COMPLETE_COMMIT", 90), version=2, start=9)
    every: list[Step] = [step for epoch in range(40) for step in (("data", epoch), (COMMIT, epoch + 1))]
    partition(tmp_path, 0, *every)
    by_hand = [(ABORT, 20) if step == (COMMIT, 21) else step for step in every]
    partition(tmp_path, 1, *by_hand, marked_at=NOW + 2 * SKEW_MS)
    assert "the transaction of epoch 20: ABORT here, COMMIT at orders-0 offset 41; this" in alone(tmp_path, is_torn)


def is_torn(finding: Finding) -> bool:
    return finding.rule == TORN


def test_a_marker_of_a_decision_that_the_coordinator_never_took_has_no_transaction(tmp_path: Path) -> None:
    coordinator(tmp_path, *TV2, version=2, partitions=[0])
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), ("data", 1), (COMMIT, 2))
    assert found(tmp_path) == [(NO_TRANSACTION, 0, 3)]
    assert "the log has no PREPARE_COMMIT at epoch 2" in figures(tmp_path)[NO_TRANSACTION].evidence


@pytest.mark.parametrize("later_ms", [-1, 0, 1])
def test_a_marker_before_any_decision_is_by_hand_and_one_from_the_decision_on_contradicts_it(
    later_ms: int, tmp_path: Path
) -> None:
    coordinator(tmp_path, *TV1[:4], version=1, partitions=[0])
    decided = NOW + 2
    partition(tmp_path, 0, ("data", 0), (ABORT, 0), marked_at=decided + later_ms)
    is_contradicted = later_ms >= 0
    assert found(tmp_path) == ([(NO_TRANSACTION, 0, 1)] if is_contradicted else [])
    assert told(tmp_path) == ([] if is_contradicted else [(0, 1)])


@pytest.mark.parametrize("after", [[], [("data", 1)]], ids=["nothing", "more data"])
@pytest.mark.parametrize("decision", [COMMIT, ABORT])
def test_an_abort_by_hand_within_a_transaction_of_version_2_tears_it_if_it_is_committed(
    decision: ControlType, after: list[Step], tmp_path: Path
) -> None:
    coordinator(tmp_path, ("EMPTY", 0), *ended("COMMIT", 0, 2), *ended(decision.name, 1, 2), version=2)
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), ("data", 1), (ABORT, 1), *after, (decision, 2))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 1), ("data", 1), (decision, 2))
    if decision is ABORT:
        assert (found(tmp_path), told(tmp_path)) == ([], [(0, 3)])
        return
    assert (found(tmp_path), told(tmp_path)) == ([(TORN, 0, 3)], [])
    said = f"transaction 1 of 't': ABORT here, COMMIT at orders-1 offset 3, orders-0 offset {4 + len(after)}"
    assert said in evidence(tmp_path, TORN)


@pytest.mark.parametrize("after", [[], [("data", 1)]], ids=["nothing", "more data"])
@pytest.mark.parametrize("states", [1, 3], ids=["the last state", "the last transaction"])
def test_an_abort_by_hand_within_a_transaction_is_found_although_the_coordinators_log_is_compacted(
    states: int, after: list[Step], tmp_path: Path
) -> None:
    coordinator(tmp_path, *ended("COMMIT", 1, 2)[-states:], version=2, start=5)
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), ("data", 1), (ABORT, 1), *after, (COMMIT, 2))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 1), ("data", 1), (COMMIT, 2))
    assert alone(tmp_path, is_torn).count("ABORT here, COMMIT at orders-1 offset 3") == 1


@pytest.mark.parametrize("after", [[], [("data", 0)]], ids=["nothing", "more data"])
@pytest.mark.parametrize(("decision", "began", "tears"), [(COMMIT, 0, True), (COMMIT, 1, False), (ABORT, 0, False)])
def test_an_abort_by_hand_within_a_transaction_of_version_1_tears_it_if_it_is_committed(
    decision: ControlType, began: int, tears: bool, after: list[Step], tmp_path: Path
) -> None:
    states = [("EMPTY", 0), *ended("COMMIT", 0, 1), *ended(decision.name, 0, 1), *ended("COMMIT", 0, 1)]
    coordinator(tmp_path, *states, version=1, partitions=[0], in_turn=True)
    by_hand: list[Step] = [("data", 0), (ABORT, 0, NOW + 4 - began), *after, (decision, 0, NOW + 5)]
    partition(tmp_path, 0, ("data", 0), (COMMIT, 0, NOW + 2), *by_hand, ("data", 0), (COMMIT, 0, NOW + 8))
    if not tears:
        is_told = decision is COMMIT or after  # otherwise it is as the coordinator's own, written twice
        assert (found(tmp_path), told(tmp_path)) == ([], [(0, 3)] if is_told else [])
        return
    assert (found(tmp_path), told(tmp_path)) == ([(TORN, 0, 3)], [])
    said = f"transaction 1 of 't': ABORT here, COMMIT at orders-0 offset {4 + len(after)}"
    assert said in evidence(tmp_path, TORN)


@pytest.mark.parametrize(("states", "lacks"), [(4, "the log has no"), (7, "by then the log has no more")])
def test_an_abort_by_hand_is_told_with_what_the_log_had_by_then(states: int, lacks: str, tmp_path: Path) -> None:
    coordinator(tmp_path, *TV1[:states], version=1, partitions=[0])
    partition(tmp_path, 0, ("data", 0), (ABORT, 0), marked_at=NOW + 1)
    [note] = [each for each in run([tmp_path], one_moment=True).notes if each.rule == NO_TRANSACTION]
    by_hand = "with this partition: a transaction that was open since offset 0 was aborted by hand"
    assert note.evidence == f"ABORT, but {lacks} PREPARE_ABORT at epoch 0 {by_hand}"


def test_a_marker_on_a_partition_that_is_not_in_the_transaction_has_none(tmp_path: Path) -> None:
    coordinator(tmp_path, *TV2, version=2, partitions=[0])
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1))
    partition(tmp_path, 1, (COMMIT, 1))
    assert found(tmp_path) == [(NO_TRANSACTION, 1, 0)]


def test_one_marker_too_many_that_ends_data_has_no_transaction(tmp_path: Path) -> None:
    coordinator(tmp_path, ("EMPTY", 0), *ended("COMMIT", 0, 1), version=0)
    partition(tmp_path, 0, ("data", 0), (COMMIT, 0), ("data", 0), (COMMIT, 0))
    assert found(tmp_path) == [(NO_TRANSACTION, 0, 3)]


def evidence(folder: Path, rule: str) -> str:
    """The evidence of the only finding of a rule; see :func:`alone`."""
    return alone(folder, lambda each: each.rule == rule and each.is_violation)


ONE_EPOCH = [("EMPTY", 0), *(state for each in ("ABORT", "COMMIT", "COMMIT", "COMMIT", "ABORT")
                             for state in ended(each, 0, 1))]  # fmt: skip


@pytest.mark.parametrize(
    ("markers", "lacking"),
    [
        ([ABORT, ABORT], "transaction 1, 2, 3"),
        ([ABORT, COMMIT, ABORT], "at least 2 of these 3: transaction 1, 2, 3"),
        ([ABORT, COMMIT, COMMIT, ABORT], "at least 1 of these 3: transaction 1, 2, 3"),
    ],
)
def test_a_marker_out_of_turn_is_told_with_the_decisions_that_have_no_marker_if_it_is_right(
    markers: list[ControlType], lacking: str, tmp_path: Path
) -> None:
    coordinator(tmp_path, *ONE_EPOCH, version=1, partitions=[0])
    partition(tmp_path, 0, *(step for marker in markers for step in (("data", 0), (marker, 0))), marked_at=NOW + 60)
    is_right = f"it is the marker of transaction 4 of 't', and this partition has no COMMIT of {lacking}"
    assert evidence(tmp_path, NO_TRANSACTION) == f"ABORT out of turn: it is wrong, or {is_right}"


def test_a_marker_that_may_have_been_written_again_counts_for_the_most_decisions_that_it_may_be_of(
    tmp_path: Path,
) -> None:
    coordinator(tmp_path, *ONE_EPOCH, version=1, partitions=[0])
    steps: list[Step] = [("data", 0), (ABORT, 0), ("data", 0), (COMMIT, 0), (COMMIT, 0), ("data", 0), (ABORT, 0)]
    partition(tmp_path, 0, *steps, marked_at=NOW + 60)
    assert evidence(tmp_path, NO_TRANSACTION).endswith("no COMMIT of at least 1 of these 3: transaction 1, 2, 3")


def test_the_first_decisions_of_an_epoch_may_be_those_without_a_marker(tmp_path: Path) -> None:
    coordinator(tmp_path, *TV1[:4], *ended("COMMIT", 0, 1), *ended("ABORT", 0, 1), version=1, partitions=[0])
    partition(tmp_path, 0, (ABORT, 0), at=NOW - 1, pid=PID + 1)  # so the partition is older than the decisions
    partition(tmp_path, 0, ("data", 0), (COMMIT, 0), ("data", 0), (ABORT, 0), start=1, marked_at=NOW + 60)
    assert evidence(tmp_path, NO_TRANSACTION).endswith("no COMMIT of at least 1 of these 2: transaction 0, 1")


def test_of_many_decisions_without_a_marker_the_first_are_named(tmp_path: Path) -> None:
    states = [state for each in ("ABORT", *["COMMIT"] * 7, "ABORT") for state in ended(each, 0, 1)]
    coordinator(tmp_path, ("EMPTY", 0), *states, version=1, partitions=[0])
    partition(tmp_path, 0, ("data", 0), (ABORT, 0), ("data", 0), (ABORT, 0), marked_at=NOW + 60)
    assert evidence(tmp_path, NO_TRANSACTION).endswith("no COMMIT of transaction 1, 2, 3, 4, 5 and 2 more")


@pytest.mark.parametrize(("later_ms", "is_possible"), [(0, True), (1, False)])
def test_a_marker_is_of_no_transaction_that_was_decided_after_it(
    later_ms: int, is_possible: bool, tmp_path: Path
) -> None:
    states = [("EMPTY", 0), *ended("COMMIT", 0, 1), *ended("ABORT", 0, 1)]
    coordinator(tmp_path, *states, version=1, partitions=[0])
    decided_ms = NOW + 5  # the PREPARE_ABORT
    partition(tmp_path, 0, ("data", 0), (COMMIT, 0), ("data", 0), (COMMIT, 0), marked_at=decided_ms)
    assert "the log has no more PREPARE_COMMIT at epoch 0 with this partition" in evidence(tmp_path, NO_TRANSACTION)
    early = tmp_path / "early"
    coordinator(early, *states, version=1, partitions=[0])
    partition(early, 0, (ABORT, 0), at=decided_ms - SKEW_MS - later_ms)
    assert ("is the marker of transaction 1" in evidence(early, NO_TRANSACTION)) == is_possible


def test_a_torn_transaction_may_lack_its_marker_and_the_other_one_be_that_of_the_next(tmp_path: Path) -> None:
    states = [state for each in ("ABORT", "COMMIT", "ABORT") for state in ended(each, 0, 1)]
    coordinator(tmp_path, ("EMPTY", 0), *states, version=1)
    steps: list[Step] = [("data", 0), (ABORT, 0), ("data", 0), (COMMIT, 0), ("data", 0), (ABORT, 0)]
    partition(tmp_path, 0, *steps, marked_at=NOW + 20)
    partition(tmp_path, 1, *steps[:3], *steps[4:], marked_at=NOW + 20)
    torn = "transaction 1 of 't': ABORT here, COMMIT at orders-0 offset 3"
    right = "it is the marker of transaction 2 of 't', and this partition has no COMMIT of transaction 1"
    assert evidence(tmp_path, TORN) == f"{torn}; or {right}"


def test_a_transaction_that_is_open_and_one_that_was_ended_each_have_their_advice(tmp_path: Path) -> None:
    coordinator(tmp_path, EMPTY, *ended("COMMIT", 0, 2), *ended("ABORT", 1, 2), version=2)
    partition(tmp_path, 0, ("data", 0), ("data", 1), (ABORT, 2))
    partition(tmp_path, 1, ("data", 0))
    advice = figures(tmp_path)[HANGING].advice
    first, about, second = advice.partition(f"\nabout orders-1/{0:020d}.log byte 0 offset 0:\n")
    assert about
    assert first.startswith("means: The marker of a later transaction ended this transaction")
    assert second.startswith("means: Nobody will end this transaction.")
    assert "restart: " in first
    assert "restart: " not in second, "what is the same is said once"


def test_a_partition_that_is_younger_than_a_transaction_needs_no_marker_of_it(tmp_path: Path) -> None:
    coordinator(tmp_path / "young", *TV1, version=0, partitions=[0])
    partition(tmp_path / "young", 0, ("data", 0), (ABORT, 0), ("data", 0), (COMMIT, 0), at=NOW + 4)
    assert found(tmp_path / "young") == []
    coordinator(tmp_path / "old", *TV1, version=0, partitions=[0])
    partition(tmp_path / "old", 0, ("data", 0), (ABORT, 0), ("data", 0), (COMMIT, 0), marked_at=NOW - 1)
    assert found(tmp_path / "old") == []
    assert told(tmp_path / "old") == [(0, 1)], "an ABORT before the first transaction"


@pytest.mark.parametrize(("later_ms", "unknown"), [(-1, 2), (0, 2), (1, 0)])
def test_only_a_partition_whose_first_batch_is_after_the_decision_is_certainly_younger(
    later_ms: int, unknown: int, tmp_path: Path
) -> None:
    coordinator(tmp_path, *TV1, version=0, partitions=[0])
    decided = NOW + 2
    steps: list[Step] = [("data", 0), (ABORT, 0), ("data", 0), (COMMIT, 0)]
    partition(tmp_path, 0, *steps, at=decided + later_ms, marked_at=NOW + 9)
    assert found(tmp_path) == []
    assert figures(tmp_path)[NO_TRANSACTION].figures == {"markers": 2, "unknown": unknown}


def test_where_a_topic_may_have_been_made_again_after_a_decision_its_marker_is_not_missed(tmp_path: Path) -> None:
    """A record that waited in its client is older than the topic that it is in, and than what was decided meanwhile."""
    coordinator(tmp_path, *TV1, version=0, partitions=[0])
    partition(tmp_path, 0, ("data", 0), (ABORT, 0), ("data", 0), (COMMIT, 0), marked_at=NOW + 6)
    assert found(tmp_path) == []
    assert figures(tmp_path)[NO_TRANSACTION].figures == {"markers": 2, "unknown": 2}
    assert figures(tmp_path)[NO_TRANSACTION].standing is Standing.NOT_JUDGED


def test_transactions_before_a_partitions_start_and_markers_in_its_holes_are_not_missed(tmp_path: Path) -> None:
    coordinator(tmp_path / "late", *TV1, version=0, partitions=[0])
    partition(tmp_path / "late", 0, ("data", 0), (ABORT, 0), ("data", 0), (COMMIT, 0), start=10)
    assert found(tmp_path / "late") == []
    coordinator(tmp_path / "hole", *TV1, version=0, partitions=[0])
    partition(tmp_path / "hole", 0, ("data", 0), (COMMIT, 0), ("hole", 3), ("data", 0), (COMMIT, 0))
    assert found(tmp_path / "hole") == []


def test_with_a_part_of_the_coordinators_log_only_version_2_is_judged(tmp_path: Path) -> None:
    states = [("ONGOING", 0), ("PREPARE_COMMIT", 1), ("COMPLETE_COMMIT", 1)]
    coordinator(tmp_path / "2", *states, version=2, start=20)
    partition(tmp_path / "2", 0, ("data", 0), (COMMIT, 1))
    partition(tmp_path / "2", 1, ("data", 0), (ABORT, 1))
    assert found(tmp_path / "2") == [(TORN, 1, 1)]
    coordinator(tmp_path / "1", ("ONGOING", 0), ("PREPARE_COMMIT", 0), ("COMPLETE_COMMIT", 0), version=0, start=20)
    partition(tmp_path / "1", 0, ("data", 0), (ABORT, 0))
    assert found(tmp_path / "1") == []
    assert figures(tmp_path / "1")[NO_TRANSACTION].figures == {"markers": 1, "unknown": 1}


def test_data_that_stay_open_although_the_coordinator_is_done_hang(tmp_path: Path) -> None:
    done = {
        "complete": [("EMPTY", 0), *ended("COMMIT", 0, 2)],
        "begun anew": [("EMPTY", 0), *ended("COMMIT", 0, 2), ("ONGOING", 1)],
        "empty": [("EMPTY", 0), ("EMPTY", 1)],
    }
    for name, states in done.items():
        coordinator(tmp_path / name, *states, version=2)
        partition(tmp_path / name, 0, ("data", 0), ("data", 0))
        assert found(tmp_path / name) == [(HANGING, 0, 0)], name
    assert "has 't' COMPLETE_COMMIT with producer 7 epoch 1" in figures(tmp_path / "complete")[HANGING].evidence


def at_the_moment(now_ms: int) -> SimpleNamespace:
    """Moments of a copy that was made at once, of logs whose data were appended at NOW."""
    return SimpleNamespace(
        source=SimpleNamespace(longest_ms=LONGEST_MS),
        last_ms=now_ms,
        reach=lambda _: now_ms,
        written_by=lambda *_: NOW,
        common_recent_after=lambda _: now_ms,
    )


@pytest.mark.parametrize(("later_ms", "kind"), [(0, Kind.NOT_JUDGED), (1, Kind.VIOLATION)])
def test_without_a_coordinator_data_hang_after_the_longest_timeout_and_its_grace(
    later_ms: int, kind: Kind, tmp_path: Path
) -> None:
    partition(tmp_path, 0, ("data", 0), at=NOW - 24 * 3_600_000)
    transactions = read_transactions(*find_logs(tmp_path))
    nobody = SimpleNamespace(owner=lambda _: None, logs=[])
    moments = at_the_moment(NOW + LONGEST_MS + GRACE_MS + later_ms)
    fate = fate_of(transactions, transactions.open[PID], nobody, moments)
    nobodys = "no given log of __transaction_state names its producer"
    limit = f"no transaction may take more than {span(LONGEST_MS)} (transaction.max.timeout.ms)"
    age = span(LONGEST_MS + GRACE_MS + 1)
    said = nobodys if kind is Kind.NOT_JUDGED else f"open for at least {age}, and {limit}; {nobodys}"
    assert (fate.kind, fate.why) == (kind, said)


STATE = "the coordinator has 't' ONGOING with producer 7 epoch 0"


@pytest.mark.parametrize(("later_ms", "kind"), [(0, Kind.TOLD), (1, Kind.VIOLATION)])
def test_a_coordinator_that_has_not_aborted_after_its_timeout_and_its_grace_never_will(
    later_ms: int, kind: Kind, tmp_path: Path
) -> None:
    coordinator(tmp_path, ("EMPTY", 0), ("ONGOING", 0), version=2, partitions=[0])
    partition(tmp_path, 0, ("data", 0))
    states, data = find_logs(tmp_path)
    transactions, log = read_transactions(data), follow_coordinator_log(states)
    coordinators = SimpleNamespace(owner=lambda _: (log, log.ids["t"]))
    moments = at_the_moment(NOW + 60_000 + GRACE_MS + later_ms)
    fate = fate_of(transactions, transactions.open[PID], coordinators, moments)
    due = f"{in_words(NOW + 60_000)} (timeout 1 min)"
    late = f"and should have aborted it at {due}, {span(GRACE_MS + 1)} ago"
    said = f"will end: {STATE} and aborts it at {due} at the latest" if kind is Kind.TOLD else f"{STATE} {late}"
    assert (fate.kind, fate.why) == (kind, said)


@pytest.mark.parametrize(
    ("elected", "after_ms", "kind"),
    [(1, 0, Kind.TOO_RECENT), (1, 1, Kind.VIOLATION), (0, 0, Kind.VIOLATION)],
    ids=["just elected", "elected before", "never elected anew"],
)
def test_a_transaction_whose_coordinator_was_elected_just_before_the_copy_may_still_be_aborted(
    elected: int, after_ms: int, kind: Kind, tmp_path: Path
) -> None:
    hour = 3_600_000
    coordinator(tmp_path, EMPTY, ("ONGOING", 0), version=2, partitions=[0])
    other = Record(key=TransactionLogKey(transactional_id="u").encode())
    started = replace(build_batch([other], base_offset=2, base_timestamp=NOW + hour), partition_leader_epoch=elected)
    write_segment(tmp_path / f"{TOPIC}-0" / f"{2:020d}.log", [started.encode()])
    partition(tmp_path, 0, ("data", 0))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 0), pid=8, at=NOW + hour + GRACE_MS + after_ms)
    found = [each for each in readable_transactions(find_logs(tmp_path), Source()).findings if each.offset == 0]
    [finding] = [each for each in found if each.rule == HANGING]
    assert finding.kind == kind
    assert ("its coordinator was elected less than 5 min before the last known moment" in finding.evidence) == (
        kind is Kind.TOO_RECENT
    )
    told = [*(result := run([tmp_path], one_moment=True)).findings, *result.notes]
    assert [replace(each, time_ms=None) for each in told if each.rule == HANGING] == [finding]


@pytest.mark.parametrize(("noted_ms", "kind"), [(-GRACE_MS, Kind.TOO_RECENT), (-GRACE_MS - 1000, Kind.VIOLATION)])
def test_a_coordinator_whose_election_only_the_time_of_a_file_shows_may_still_abort(
    noted_ms: int, kind: Kind, tmp_path: Path
) -> None:
    now = NOW + 3_600_000
    coordinator(tmp_path, EMPTY, ("ONGOING", 0), version=2, partitions=[0])
    noted = tmp_path / f"{TOPIC}-0" / LEADER_EPOCH_CHECKPOINT
    noted.write_text("0\n1\n4 2\n")
    os.utime(noted, (0, (now + noted_ms) / 1000))
    partition(tmp_path, 0, ("data", 0))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 0), pid=8, at=now)
    os.utime(tmp_path / "orders-1" / f"{0:020d}.log", (0, now / 1000))  # so the times of files were kept
    result = run([tmp_path], one_moment=True)
    [finding] = [each for each in (*result.findings, *result.notes) if (each.rule, each.partition) == (HANGING, 0)]
    assert finding.kind == kind


@pytest.mark.parametrize("cut", range(7))
def test_a_coordinators_log_tells_since_when_its_last_leader_leads_wherever_it_is_cut(cut: int, tmp_path: Path) -> None:
    record = Record(key=TransactionLogKey(transactional_id="t").encode())
    batches = [
        replace(build_batch([record], base_offset=place, base_timestamp=NOW + place), partition_leader_epoch=epoch)
        for place, epoch in enumerate((0, 0, 3, 3, 5, 5))
    ]
    for part in (batches[:cut], batches[cut:]):
        if part:
            name = f"{part[0].base_offset:020d}.log"
            write_segment(tmp_path / f"{TOPIC}-0" / name, [batch.encode() for batch in part])
    [log] = find_logs(tmp_path)
    assert follow_coordinator_log(log).led == read_coordinator_log(log).led == (5, NOW + 4)


def test_data_of_a_forgotten_transactional_id_hang(tmp_path: Path) -> None:
    coordinator(tmp_path, ("EMPTY", 0), *ended("COMMIT", 0, 2), version=2)
    forget(tmp_path)
    partition(tmp_path, 0, ("data", 0))
    assert found(tmp_path) == [(HANGING, 0, 0)]
    assert "the coordinator forgot 't'" in figures(tmp_path)[HANGING].evidence


def test_data_on_a_partition_that_is_not_in_the_transaction_hang(tmp_path: Path) -> None:
    coordinator(tmp_path, ("EMPTY", 0), ("ONGOING", 0), version=2, partitions=[1])
    partition(tmp_path, 0, ("data", 0))
    partition(tmp_path, 1, ("data", 0))
    assert found(tmp_path) == [(HANGING, 0, 0)]


def test_data_of_a_transaction_that_goes_on_or_waits_for_its_marker_do_not_hang(tmp_path: Path) -> None:
    cases = [[("ONGOING", 0)], [("ONGOING", 0), ("PREPARE_COMMIT", 1)], [("ONGOING", 0), ("PREPARE_ABORT", 1)]]
    for number, states in enumerate(cases):
        folder = tmp_path / str(number)
        coordinator(folder, ("EMPTY", 0), *states, version=2)
        partition(folder, 0, ("data", 0))
        assert found(folder) == []
        assert figures(folder)[HANGING].figures == {"transactions": 1, "open": 1, "unknown": 0}


def test_data_that_are_open_when_data_of_a_later_epoch_come_hang(tmp_path: Path) -> None:
    steps: list[Step] = [("data", 0), ("data", 1), (COMMIT, 2)]
    partition(tmp_path / "1", 0, *steps)
    assert found(tmp_path / "1") == [(HANGING, 0, 0)]
    assert "still open when data of epoch 1 came" in figures(tmp_path / "1")[HANGING].evidence
    partition(tmp_path / "2", 0, steps[0], ("hole", 1), *steps[1:])
    assert found(tmp_path / "2") == [], "the marker may be in the hole"


def test_data_of_a_producer_that_no_given_coordinator_names_are_unknown(tmp_path: Path) -> None:
    coordinator(tmp_path, ("EMPTY", 0), version=2)
    partition(tmp_path, 0, ("data", 0), pid=8)
    assert found(tmp_path) == []
    assert figures(tmp_path)[HANGING].figures == {"transactions": 1, "open": 1, "unknown": 1}


def test_a_producer_id_above_all_of_hundreds_that_the_coordinators_name_is_of_nobody(tmp_path: Path) -> None:
    value = TransactionLogValue(
        producer_id=0, producer_epoch=0, transaction_timeout_ms=60_000, transaction_status=TransactionState.EMPTY,
        transaction_partitions=None, transaction_last_update_timestamp_ms=NOW, transaction_start_timestamp_ms=-1,
    )  # fmt: skip
    states = [
        Record(
            key=TransactionLogKey(transactional_id=f"t{pid}").encode(),
            value=replace(value, producer_id=pid).encode(),
            offset_delta=pid,
        )
        for pid in range(300)
    ]
    write_segment(tmp_path / f"{TOPIC}-0" / f"{0:020d}.log", [build_batch(states, base_offset=0).encode()])
    partition(tmp_path, 0, ("data", 0), pid=300)
    assert found(tmp_path) == []
    assert figures(tmp_path)[HANGING].figures == {"transactions": 1, "open": 1, "unknown": 1}


def test_of_a_replicated_partition_the_longest_replica_counts(tmp_path: Path) -> None:
    coordinator(tmp_path / "1", ("EMPTY", 0), *ended("COMMIT", 0, 2), version=2)
    partition(tmp_path / "1", 0, ("data", 0))
    partition(tmp_path / "2", 0, ("data", 0), (COMMIT, 1))
    assert found(tmp_path) == []
    assert found(tmp_path / "1") == [(HANGING, 0, 0)]


def test_what_two_clusters_say_of_one_producer_id_is_not_mixed(tmp_path: Path) -> None:
    coordinator(tmp_path / "1", ("EMPTY", 0), *ended("COMMIT", 0, 2), version=2)
    coordinator(tmp_path / "2", ("EMPTY", 0), version=2)
    (tmp_path / "2" / f"{TOPIC}-0").rename(tmp_path / "2" / f"{TOPIC}-1")
    partition(tmp_path / "1", 0, ("data", 0), (ABORT, 1))
    assert found(tmp_path) == []
    assert figures(tmp_path)[TORN].figures == {"markers": 1, "unknown": 1}


def test_without_transactions_there_is_no_verdict_on_them(tmp_path: Path) -> None:
    batch = build_batch([Record(value=b"v")], producer_id=PID, producer_epoch=0, base_sequence=0)
    write_segment(tmp_path / "orders-0" / f"{0:020d}.log", [batch.encode()])
    assert not {*TRANSACTION_RULES, *COORDINATOR_RULES} & figures(tmp_path).keys()


def test_a_transaction_is_read_across_segments_with_what_its_marker_ends(tmp_path: Path) -> None:
    partition(tmp_path, 0, ("data", 3), ("data", 3))
    partition(tmp_path, 0, (COMMIT, 4), ("data", 4), start=2)
    [log] = find_logs(tmp_path)
    transactions = read_transactions(log)
    [marker] = transactions.markers
    assert (marker.file, marker.offset, marker.epoch, marker.decision) == (f"{2:020d}.log", 2, 4, COMMIT)
    assert marker.ends is not None
    assert (marker.ends.offset, marker.ends.epoch) == (0, 3)
    assert {pid: opened.offset for pid, opened in transactions.open.items()} == {PID: 3}
    assert (transactions.start, transactions.end, transactions.holes, transactions.batches) == (0, 4, 0, 4)


def test_a_log_that_had_ended_at_an_offset_had_nothing_from_there_on(tmp_path: Path) -> None:
    partition(tmp_path, 0, ("data", 3), (COMMIT, 3), ("data", 3), marked_at=NOW + 5)
    [log] = find_logs(tmp_path)
    transactions = read_transactions(log)
    ends = range(4)
    assert [transactions.open_at(end) for end in ends] == [{}, {PID: 0}, {}, {PID: 2}]
    assert [transactions.stamped_before(end) for end in ends] == [-math.inf, -math.inf, NOW + 5, NOW + 5]
    assert [transactions.coordinator_epochs_at(end, -1) for end in ends] == [{}, {}, {PID: 0}, {PID: 0}]


def test_markers_that_may_belong_to_very_many_transactions_are_unknown(tmp_path: Path) -> None:
    states = [("EMPTY", 0), *(state for _ in range(200) for state in ended("COMMIT", 0, 1))]
    coordinator(tmp_path, *states, version=0)
    with_data: list[Step] = [("data", 0), (COMMIT, 0)]
    partition(tmp_path, 0, *with_data[1:] * 200)
    partition(tmp_path, 1, *with_data * 200)
    assert found(tmp_path) == []
    assert figures(tmp_path)[TORN].figures == {"markers": 400, "unknown": 200 - MOST_WAYS - 1}


def random_run(rng: random.Random, folder: Path, version: int, *, flip: bool = False) -> bool:
    """One transactional id over three partitions: any decisions, partitions without data, markers again, a fence.

    It stops anywhere: in a transaction, or with some of the markers written. With ``flip`` one marker says the other
    thing; the answer is whether there was one.
    """
    epoch, states = 0, [("EMPTY", 0)]
    steps: dict[int, list[Step]] = {0: [], 1: [], 2: []}
    for _ in range(rng.randint(1, 12)):
        states.append(("ONGOING", epoch))
        for number in steps:
            steps[number] += [("data", epoch)] * rng.choice((0, 0, 1, 3))
        if rng.random() < 0.05:
            break
        decision = rng.choice((COMMIT, ABORT))
        fenced = version < 2 and decision is ABORT and rng.random() < 0.2
        epoch += version == 2 or fenced
        states.append((f"PREPARE_{decision.name}", epoch))
        stops = rng.random() < 0.1
        for own in steps.values():
            if not (stops and rng.random() < 0.5):
                own.extend([(decision, epoch)] * rng.choice((1, 1, 1, 2)))
        if stops:
            break
        states.append((f"COMPLETE_{decision.name}", epoch))
        if fenced:
            epoch += 1
            states.append(("EMPTY", epoch))
    markers = [(n, i) for n, own in steps.items() for i, (what, _) in enumerate(own) if isinstance(what, ControlType)]
    if flip and markers:
        n, i = rng.choice(markers)
        what, value = steps[n][i]
        steps[n][i] = (ABORT if what is COMMIT else COMMIT, value)
    coordinator(folder, *states, version=version if version == 2 else 0, partitions=[0, 1, 2])
    for number, own in steps.items():
        partition(folder, number, *own)
    return bool(markers)


@in_both("count", 20, 80)
@pytest.mark.parametrize("version", [1, 2])
def test_random_runs_of_a_coordinator_that_keeps_the_rules_have_no_finding(
    version: int, count: int, tmp_path: Path
) -> None:
    judged = 0
    for seed in range(count):
        folder = tmp_path / str(seed)
        random_run(random.Random(seed), folder, version)
        result = run([folder], one_moment=True)
        assert result.findings == (), f"seed {seed}"
        verdicts = {verdict.name: verdict for verdict in result.verdicts}
        assert verdicts[TORN].figures["unknown"] == 0, f"seed {seed}"
        judged += int(verdicts[TORN].figures["markers"])
    assert judged > 10 * count


@in_both("count", 20, 80)
@pytest.mark.parametrize(("version", "share"), [(1, 0.8), (2, 0.9)])
def test_in_a_random_run_one_marker_that_says_the_other_thing_is_found_once(
    version: int, share: float, count: int, tmp_path: Path
) -> None:
    """Before version 2 a marker that was written again may pass for the one of the next transaction."""
    flipped = seen = 0
    for seed in range(count):
        folder = tmp_path / str(seed)
        if not random_run(random.Random(seed), folder, version, flip=True):
            continue
        flipped += 1
        findings = found(folder)
        assert len(findings) == 1 or (version == 1 and not findings), f"seed {seed}: {findings}"
        seen += len(findings) or len(told(folder))
    assert flipped >= seen > share * count


RECORDING = CLONE / "checks" / "recordings" / "one-broker.tar.xz"


def markers_of(log: PartitionLog) -> list[tuple[Path, StoredBatch]]:
    items = [(Path(log.folder, name), item) for name in log.segments for item in read_segment(Path(log.folder, name))]
    return [(path, item) for path, item in items if isinstance(item, StoredBatch) and item.batch.is_control]


@pytest.mark.parametrize("topic", ["transactions-librdkafka", "transactions-java-output"])
def test_one_changed_marker_of_a_real_broker_is_one_finding(topic: str, tmp_path: Path) -> None:
    """Every tenth marker in turn says the other thing; librdkafka's epochs are constant, those of Java rise."""
    folder = tmp_path / "recording"
    unpack(RECORDING, folder)
    for log in find_logs(folder / "brokers"):
        if not log.topic.startswith((topic.removesuffix("-output"), "__")):
            shutil.rmtree(log.folder)  # of other clients
    places = [place for log in find_logs(folder / "brokers") if log.topic == topic for place in markers_of(log)]
    assert len(places) >= 30
    rules = set()
    for path, item in places[::10]:
        before, marker = path.read_bytes(), item.batch.control_record()
        assert marker is not None
        other = replace(marker, control_type=ControlType(1 - marker.control_type))
        changed = build_control_batch(
            other,
            producer_id=item.batch.producer_id,
            producer_epoch=item.batch.producer_epoch,
            base_offset=item.batch.base_offset,
            timestamp=item.batch.base_timestamp,
        )
        end = item.position + item.batch.size
        path.write_bytes(before[: item.position] + changed.encode() + before[end:])
        found = [f for f in run([folder / "brokers"], one_moment=True).findings if f.topic != TOPIC]
        assert {(f.topic, f.offset) for f in found} == {(topic, item.batch.base_offset)}
        [finding] = [f for f in found if f.rule != ABORTED_INDEX]  # the index still says what the marker said
        rules.add(finding.rule)
        path.write_bytes(before)
    assert TORN in rules
    assert rules <= {TORN, NO_TRANSACTION}


def test_a_real_log_that_ends_before_its_last_marker_hangs(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    unpack(RECORDING, folder)
    logs = find_logs(folder / "brokers")
    coordinators = [Path(log.folder) for log in logs if log.topic == TOPIC]
    cut = 0
    for log in logs:
        places = markers_of(log)
        if (
            not places
            or log.topic == TOPIC
            or places[-1][1].batch.size + places[-1][1].position < (places[-1][0].stat().st_size)
        ):
            continue
        path, item = places[-1]
        before = path.read_bytes()
        ends = read_transactions(log).markers[-1].ends
        path.write_bytes(before[: item.position])
        found_here = [
            (f.rule, f.topic, f.partition, f.offset)
            for f in run([Path(log.folder), *coordinators], one_moment=True).findings
        ]
        expected = [] if ends is None else [(HANGING, log.topic, log.partition, ends.offset)]
        assert found_here == expected, log
        path.write_bytes(before)
        cut += ends is not None
    assert cut > 3


def marked(*steps: tuple[ControlType | None, int, int], place: Path) -> None:
    """Write partition 0 of orders: data (None) and markers, each with its producer epoch and coordinator epoch."""
    batches = []
    for offset, (what, epoch, coordinator_epoch) in enumerate(steps):
        if what is None:
            own = sum(1 for kind, other, _ in steps[:offset] if kind is None and other == epoch)
            data = build_batch(
                [Record(value=b"v")],
                base_offset=offset,
                base_timestamp=NOW,
                producer_id=PID,
                producer_epoch=epoch,
                base_sequence=own,
                is_transactional=True,
            )
            batches.append(data)
        else:
            marker = ControlRecord(control_type=what, coordinator_epoch=coordinator_epoch)
            ended = build_control_batch(
                marker, producer_id=PID, producer_epoch=epoch, base_offset=offset, timestamp=NOW
            )
            batches.append(ended)
    write_segment(place / "orders-0" / f"{0:020d}.log", [batch.encode() for batch in batches])


def test_a_marker_of_a_coordinator_that_was_replaced_is_found(tmp_path: Path) -> None:
    marked((None, 0, 0), (COMMIT, 0, 3), (None, 0, 0), (COMMIT, 0, 3), place=tmp_path / "right")
    assert found(tmp_path / "right") == []
    marked((None, 0, 0), (COMMIT, 0, 3), (None, 0, 0), (COMMIT, 0, 2), place=tmp_path / "wrong")
    assert found(tmp_path / "wrong") == [(OLD_COORDINATOR, 0, 3)]


def test_data_of_a_fenced_producer_that_a_later_marker_commits_are_found(tmp_path: Path) -> None:
    def history(folder: Path, granted: int, version: int) -> None:
        states, marker = [("EMPTY", epoch) for epoch in range(granted + 1)], granted + (version == 2)
        after = [("ONGOING", granted), ("PREPARE_COMMIT", marker), ("COMPLETE_COMMIT", marker)]
        coordinator(folder, *states, *after, version=version, partitions=(0,))
        marked((None, 0, 0), (COMMIT, marker, 0), place=folder)

    for version in (1, 2):
        history(tmp_path / f"own {version}", 0, version)
        assert found(tmp_path / f"own {version}") == []
        history(tmp_path / f"fenced {version}", 1, version)
        assert found(tmp_path / f"fenced {version}") == [(FENCED, 0, 0)]


def test_a_client_that_is_given_the_epoch_of_its_last_markers_is_not_fenced(tmp_path: Path) -> None:
    """The end of a transaction of version 2 raises the epoch; InitProducerId with the old one gives the new one."""
    states = [("EMPTY", 0), ("ONGOING", 0), ("PREPARE_COMMIT", 1), ("COMPLETE_COMMIT", 1), ("EMPTY", 1)]
    coordinator(tmp_path, *states, version=2, partitions=(0,))
    marked((None, 0, 0), (COMMIT, 1, 0), place=tmp_path)
    assert found(tmp_path) == []


def test_data_that_the_commit_of_a_later_transaction_has_ended_are_found(tmp_path: Path) -> None:
    """A transaction of epoch 0 has ended without the partition, so its data came late; the next one commits them."""
    coordinator(tmp_path, ("EMPTY", 0), *ended("COMMIT", 0, 2), version=2, partitions=(1,))
    coordinator(tmp_path, *ended("COMMIT", 1, 2), version=2, start=4, partitions=(0,))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 1))
    partition(tmp_path, 0, ("data", 0), (COMMIT, 2))
    assert found(tmp_path) == [(FENCED, 0, 0)]
    assert evidence(tmp_path, FENCED) == "committed at offset 1 with epoch 2, which no transaction of epoch 0 has"
    partition(tmp_path, 0, ("data", 1), (COMMIT, 2))
    assert found(tmp_path) == []


def test_an_abort_may_have_a_later_epoch_than_the_next_and_a_commit_behind_a_hole_is_unknown(tmp_path: Path) -> None:
    partition(tmp_path / "abort", 0, ("data", 0), (ABORT, 2))
    assert found(tmp_path / "abort") == []
    partition(tmp_path / "hole", 0, ("data", 0), ("hole", 2), (COMMIT, 2))
    assert found(tmp_path / "hole") == []
    assert figures(tmp_path / "hole")[FENCED].figures == {"committed": 1, "unknown": 1}


def test_without_the_coordinators_log_nobody_knows_who_was_fenced(tmp_path: Path) -> None:
    marked((None, 0, 0), (COMMIT, 1, 0), place=tmp_path)
    assert found(tmp_path) == []
    assert figures(tmp_path)[FENCED].figures == {"committed": 1, "unknown": 1}
    marked((None, 0, 0), (COMMIT, 2, 0), place=tmp_path)
    assert found(tmp_path) == [(FENCED, 0, 0)]


# --- the coordinator's decision about what hangs ----------------------------------------------------------------------

EMPTY = ("EMPTY", 0)
AT = f"{TOPIC}-0 offset"


def hangs(folder: Path) -> str:
    """The evidence of the only transaction that hangs; see :func:`alone`."""
    return alone(folder, is_hanging)


def alone(folder: Path, is_wanted: Callable[[Finding], bool]) -> str:
    """The evidence of the only such finding; the plan, with one bucket and cut, and Spark's order agree."""
    logs = find_logs(folder)
    [expected] = filter(is_wanted, readable_transactions(logs, Source()).findings)
    for buckets, slice_markers in ((1, 1000), (3, 2)):
        engine = LocalEngine()
        engine.buckets = buckets
        told = by_steps(logs, engine, Source(), 100, slice_markers)[0]
        assert [replace(each, time_ms=None) for each in told.findings if is_wanted(each)] == [expected]
    as_kept([expected])
    return expected.evidence


def is_hanging(finding: Finding) -> bool:
    return finding.rule == HANGING and finding.is_violation


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (
            ended("COMMIT", 0, 2),
            f"its coordinator has committed it (PREPARE_COMMIT at {AT} 2): do not abort it by hand before "
            "its records are kept, because an abort takes them away",
        ),
        (
            ended("ABORT", 0, 2),
            f"its coordinator has aborted it (PREPARE_ABORT at {AT} 2): an abort by hand is what it decided",
        ),
        (
            [*ended("COMMIT", 0, 2), *ended("ABORT", 1, 2), ("ONGOING", 2)],
            f"its coordinator has committed it (PREPARE_COMMIT at {AT} 2): do not abort it by hand before "
            "its records are kept, because an abort takes them away",
        ),
        ([], f"{TOPIC}-0 has no decision about a transaction of epoch 0 with this partition: an abort by hand takes "
             "nothing away that was committed"),
    ],
)  # fmt: skip
def test_what_hangs_is_told_with_its_coordinators_decision_and_the_remedy(
    states: list[tuple[str, int]], told: str, tmp_path: Path
) -> None:
    coordinator(tmp_path, EMPTY, *states, version=2)
    partition(tmp_path, 0, ("data", 0))
    assert hangs(tmp_path).endswith(told)


def test_what_hangs_on_a_partition_that_its_transaction_does_not_have_came_late(tmp_path: Path) -> None:
    coordinator(tmp_path, EMPTY, *ended("COMMIT", 0, 2), version=2, partitions=[1])
    partition(tmp_path, 0, ("data", 0))
    without = f"its coordinator has committed the transaction of epoch 0 without this partition (PREPARE_COMMIT at {AT}"
    assert hangs(tmp_path).endswith(f"{without} 2): an abort by hand takes nothing away that was committed")


@pytest.mark.parametrize(
    ("decisions", "told", "remedy"),
    [
        (["COMMIT", "ABORT"], "has committed 1 and aborted 1 (the last: PREPARE_ABORT at", "before an abort by hand"),
        (["ABORT", "ABORT"], "has committed 0 and aborted 2 (the last: PREPARE_ABORT at", "takes nothing away"),
    ],
)
def test_before_version_2_an_epoch_names_no_transaction_and_only_numbers_are_told(
    decisions: list[str], told: str, remedy: str, tmp_path: Path
) -> None:
    states = [state for each in decisions for state in ended(each, 0, 1)]
    coordinator(tmp_path, EMPTY, *states, version=0)
    partition(tmp_path, 0, ("data", 0))
    assert f"{told} {AT} 5): " in hangs(tmp_path)
    assert remedy in hangs(tmp_path)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (2, f"committed the transaction of epoch 0 (COMPLETE_COMMIT at {AT} 3); its log no longer has the record with"),
        (0, f"{TOPIC}-0 no longer has its coordinator's decision about it: before an abort by hand, ask"),
    ],
)
def test_a_compacted_log_tells_what_its_last_state_tells(version: int, told: str, tmp_path: Path) -> None:
    epoch = 1 if version == 2 else 0
    coordinator(tmp_path, ("COMPLETE_COMMIT", epoch), version=version, start=3)
    partition(tmp_path, 0, ("data", 0))
    assert told in hangs(tmp_path)


MARKED = "has ended data of epoch 0 there, which in transaction version 2 are of the same transaction"


@pytest.mark.parametrize(
    ("version", "marker", "told"),
    [
        (2, (COMMIT, 1), f"the COMMIT marker at orders-1 offset 1 {MARKED}: do not abort it by hand before its"),
        (2, (ABORT, 1), f"the ABORT marker at orders-1 offset 1 {MARKED}: an abort by hand is what it decided"),
        (
            1,
            (ABORT, 1),
            f"the ABORT marker at orders-1 offset 1 {MARKED}: before an abort by hand, ask its application",
        ),
        (2, (COMMIT, 0), "no longer has its coordinator's decision about it: before an abort by hand, ask its"),
    ],
)
def test_where_compaction_has_taken_the_decision_a_marker_of_another_partition_tells_it(
    version: int, marker: Step, told: str, tmp_path: Path
) -> None:
    coordinator(tmp_path, ("COMPLETE_COMMIT", 5), version=version, start=9)
    partition(tmp_path, 0, ("data", 0))
    partition(tmp_path, 1, ("data", 0), marker)
    assert told in hangs(tmp_path)


def test_of_several_markers_that_tell_the_decision_the_first_is_named(tmp_path: Path) -> None:
    coordinator(tmp_path, ("COMPLETE_COMMIT", 5), version=2, start=9)
    partition(tmp_path, 2, ("data", 0))
    for number in (0, 1, 3):
        partition(tmp_path, number, ("data", 0), (COMMIT, 1))
    assert "the COMMIT marker at orders-0 offset 1 has ended" in hangs(tmp_path)


def test_markers_that_contradict_each_other_tell_no_decision(tmp_path: Path) -> None:
    coordinator(tmp_path, ("COMPLETE_COMMIT", 5), version=2, start=9)
    partition(tmp_path, 0, ("data", 0))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 1))
    partition(tmp_path, 2, ("data", 0), (ABORT, 1))
    assert "no longer has its coordinator's decision about it" in hangs(tmp_path)


def test_without_a_coordinators_log_a_marker_of_another_partition_tells_the_decision(tmp_path: Path) -> None:
    partition(tmp_path, 0, ("data", 0), ("data", 1), (COMMIT, 2))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 1), ("data", 1), (COMMIT, 2))
    [finding, *_] = run([tmp_path], one_moment=True).findings
    assert f"the COMMIT marker at orders-1 offset 1 {MARKED}" in finding.evidence


def test_a_decision_is_told_by_the_markers_of_a_producer_that_is_cut(tmp_path: Path) -> None:
    coordinator(tmp_path, ("COMPLETE_COMMIT", 90), version=2, start=9)
    every: list[Step] = [step for epoch in range(40) for step in (("data", epoch), (COMMIT, epoch + 1))]
    partition(tmp_path, 0, *(step for step in every if step != (COMMIT, 21)))
    partition(tmp_path, 1, *every)
    assert "the COMMIT marker at orders-1 offset 41 has ended data of epoch 20 there" in hangs(tmp_path)


def test_a_decision_is_told_by_a_marker_of_a_log_whose_offsets_go_backwards(tmp_path: Path) -> None:
    partition(tmp_path, 0, ("data", 0), ("data", 1), (COMMIT, 2))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 1))
    path = tmp_path / "orders-1" / f"{0:020d}.log"
    data = path.read_bytes()
    partition(tmp_path, 1, ("plain", 0), pid=PID + 1)
    path.write_bytes(data + path.read_bytes())
    assert "the COMMIT marker at orders-1 offset 1 has ended data of epoch 0 there" in hangs(tmp_path)


def test_of_a_producer_that_no_log_names_only_commits_may_be_of_a_fenced_one(tmp_path: Path) -> None:
    coordinator(tmp_path, EMPTY, version=2)
    partition(tmp_path, 0, ("data", 0), (ABORT, 1), ("data", 1), (COMMIT, 2), pid=PID + 1)
    verdict = figures(tmp_path)[FENCED]
    assert (verdict.figures["committed"], verdict.unknown) == (1, 1)


def test_of_markers_of_several_producers_that_are_not_judged_the_first_in_the_log_is_named(tmp_path: Path) -> None:
    coordinator(tmp_path, EMPTY, version=2)
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), pid=PID + 2)
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), start=2, pid=PID + 1)
    assert f"at orders-0 offset 1 (producer {PID + 2})" in figures(tmp_path)[NO_TRANSACTION].unjudged


def test_a_decision_that_waits_for_its_marker_is_told_with_its_place(tmp_path: Path) -> None:
    coordinator(tmp_path, EMPTY, ("ONGOING", 0), ("PREPARE_COMMIT", 1), version=2)
    partition(tmp_path, 0, ("data", 0))
    partition(tmp_path, 1, ("data", 0), (COMMIT, 1), ("data", 1), at=NOW + 3_600_000)
    [finding, *_] = run([tmp_path], one_moment=True).findings
    waits = f"its coordinator has decided to COMMIT (PREPARE_COMMIT at {AT} 2) and still has to write the marker"
    assert f"{waits}: do not abort it by hand, let its coordinator end it" in finding.evidence


@pytest.mark.parametrize(
    ("decision", "marker", "effect"),
    [
        ("COMMIT", ABORT, ": readers of committed data do not get its records; produce them again"),
        ("ABORT", COMMIT, ": readers of committed data get its records"),
        ("COMMIT", COMMIT, ""),
    ],
)
def test_data_that_the_next_transaction_has_ended_are_told_with_both_decisions(
    decision: str, marker: ControlType, effect: str, tmp_path: Path
) -> None:
    coordinator(tmp_path, EMPTY, *ended(decision, 0, 2), *ended(marker.name, 1, 2), version=2)
    partition(tmp_path, 0, ("data", 0), ("data", 1), (marker, 2))
    partition(tmp_path, 1, (ControlType[decision], 1), (marker, 2))
    has = "committed" if decision == "COMMIT" else "aborted"
    told = f"; {marker.name} at offset 2 ended it; its coordinator has {has} it (PREPARE_{decision} at {AT} 2){effect}"
    assert hangs(tmp_path) == f"still open when data of epoch 1 came{told}"


def test_data_that_are_still_open_with_those_of_the_next_transaction_are_told_with_what_to_do(tmp_path: Path) -> None:
    coordinator(tmp_path, EMPTY, *ended("COMMIT", 0, 2), ("ONGOING", 1), version=2)
    partition(tmp_path, 0, ("data", 0), ("data", 1))
    told = f"its coordinator has committed it (PREPARE_COMMIT at {AT} 2): do not abort it by hand"
    assert hangs(tmp_path).startswith(f"still open when data of epoch 1 came; {told}")


def test_of_a_decision_that_no_given_log_has_only_that_is_told(tmp_path: Path) -> None:
    partition(tmp_path, 0, ("data", 0), ("data", 1), (COMMIT, 2))
    assert hangs(tmp_path).endswith("; COMMIT at offset 2 ended it; its coordinator's decision is in no given log")


def test_decisions_of_a_producer_that_is_cut_are_found_in_its_slices(tmp_path: Path) -> None:
    decisions = ["COMMIT", "ABORT"] * 30
    states = [state for epoch, each in enumerate(decisions) for state in ended(each, epoch, 2)]
    coordinator(tmp_path, EMPTY, *states, version=2)
    markers = [step for epoch, each in enumerate(decisions)
               for step in (("data", epoch), (ControlType[each], epoch + 1))]  # fmt: skip
    del markers[2 * 20 + 1]  # its data are still open when those of the next epoch come
    partition(tmp_path, 0, *markers)
    committed = f"ABORT at offset 42 ended it; its coordinator has committed it (PREPARE_COMMIT at {AT} 62)"
    assert f"; {committed}: readers" in hangs(tmp_path)


def test_numbers_of_decisions_of_a_producer_that_is_cut_count_each_once(tmp_path: Path) -> None:
    decisions = ["COMMIT", "ABORT", "COMMIT"] * 20
    coordinator(tmp_path, EMPTY, *(state for each in decisions for state in ended(each, 0, 1)), version=0)
    ends = [step for each in decisions for step in (("data", 0), (ControlType[each], 0))]
    partition(tmp_path, 0, *ends, ("data", 0))
    assert f"has committed 40 and aborted 20 (the last: PREPARE_COMMIT at {AT} 179)" in hangs(tmp_path)


def test_decisions_of_an_id_that_has_another_producer_id_now_count_once(tmp_path: Path) -> None:
    states = [EMPTY, *ended("COMMIT", 0, 1), *ended("ABORT", 0, 1), EMPTY]
    coordinator(tmp_path, *states, version=0, last_pid=PID + 1)  # in another bucket
    partition(tmp_path, 0, ("data", 0))
    assert f"has committed 1 and aborted 1 (the last: PREPARE_ABORT at {AT} 5)" in hangs(tmp_path)


def test_a_decision_whose_append_failed_does_not_count(tmp_path: Path) -> None:
    states = [EMPTY, ("ONGOING", 0), ("PREPARE_COMMIT", 0), ("PREPARE_ABORT", 0), ("COMPLETE_ABORT", 0)]
    coordinator(tmp_path, *states, version=0)
    partition(tmp_path, 0, ("data", 0))
    assert f"has committed 0 and aborted 1 (the last: PREPARE_ABORT at {AT} 3)" in hangs(tmp_path)


def test_a_marker_of_another_producer_does_not_end_what_hangs(tmp_path: Path) -> None:
    partition(tmp_path, 0, ("data", 0), ("data", 1))
    partition(tmp_path, 0, (COMMIT, 0), start=2, pid=PID + 1)
    assert hangs(tmp_path) == "still open when data of epoch 1 came; its coordinator's decision is in no given log"


def test_what_may_have_its_marker_in_a_hole_and_is_committed_is_not_to_be_aborted_either(tmp_path: Path) -> None:
    coordinator(tmp_path, EMPTY, *ended("COMMIT", 0, 2), version=2)
    partition(tmp_path, 0, ("data", 0), ("hole", 1))
    partition(tmp_path, 0, ("data", 0), start=2, pid=PID + 1)
    [note] = [each for each in run([tmp_path], one_moment=True).notes if (each.rule, each.offset) == (HANGING, 0)]
    assert note.kind == Kind.NOT_JUDGED
    assert f"; its coordinator has committed it (PREPARE_COMMIT at {AT} 2): do not abort it by hand" in note.evidence
    [advice] = rule_of(HANGING).advice(note)
    assert advice.startswith("next: keep its records: ")
    [other] = [each for each in run([tmp_path], one_moment=True).notes if (each.rule, each.offset) == (HANGING, 2)]
    assert rule_of(HANGING).advice(other)[0].startswith("next: give all logs of __transaction_state")


@pytest.mark.parametrize("hours", [0, 24])
@pytest.mark.parametrize("lost", ["the end", "the end before zeroes", "the end after a step back", "a hole"])
def test_what_may_have_its_marker_in_a_damaged_end_or_in_a_hole_does_not_hang_however_old_it_is(
    lost: str, hours: int, tmp_path: Path
) -> None:
    coordinator(tmp_path, EMPTY, *ended("COMMIT", 0, 2), version=2)
    partition(tmp_path, 0, ("data", 0), at=NOW - hours * 3_600_000, marked_at=NOW)
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    data = path.read_bytes()
    if lost != "a hole":
        path.write_bytes(data * (1 + lost.endswith("step back")) + b"?" * len(data))
    if lost == "the end before zeroes":
        (tmp_path / "orders-0" / f"{2:020d}.log").write_bytes(bytes(90))
    if lost == "a hole":
        partition(tmp_path, 0, (COMMIT, 0), start=2, pid=PID + 1)
    states, log = find_logs(tmp_path)
    why = OPEN_BEHIND_HOLE if lost == "a hole" else END_DAMAGED
    for audit in (
        readable_transactions([states, log], Source()),
        *(by_steps([states, log], LocalEngine(), Source(), size, 1000)[0] for size in (100, 1 << 20)),
    ):
        assert [finding.kind for finding in audit.findings if finding.rule == HANGING] == [Kind.NOT_JUDGED]
        assert [*audit.reasons[HANGING]] == [why]
    path.write_bytes(data)
    for other in (tmp_path / "orders-0").glob(f"{2:020d}.*"):
        other.unlink()
    assert hangs(tmp_path), "with a log of which the end is known"


def test_damage_before_a_batch_says_nothing_of_the_end(tmp_path: Path) -> None:
    coordinator(tmp_path, EMPTY, *ended("COMMIT", 0, 2), version=2)
    partition(tmp_path, 0, ("data", 0))
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(b"?" * len(data) + data)
    assert "COMPLETE_COMMIT" in hangs(tmp_path)
    path.write_bytes(data + data[:-1])
    assert "COMPLETE_COMMIT" in hangs(tmp_path), "a crash leaves such a tail of a batch that nobody has acknowledged"


def test_data_without_the_transactional_bit_of_a_transactional_id_are_one_finding_a_log(tmp_path: Path) -> None:
    """Kafka 4.3.0 accepts them, because the producer has no transaction open on the partition."""
    coordinator(tmp_path, ("EMPTY", 0), *ended("ABORT", 0, 2), version=2)
    partition(tmp_path, 0, ("data", 0), (ABORT, 1))
    partition(tmp_path, 1, ("plain", 0), ("data", 0), (ABORT, 1), ("plain", 1), ("plain", 1))
    partition(tmp_path, 2, ("plain", 0), pid=PID + 1)  # an idempotent producer's
    partition(tmp_path, 3, ("plain", 0), ("plain", 0))
    partition(tmp_path, 4, ("plain", 0))
    assert found(tmp_path) == [(NO_BIT, 1, 0), (NO_BIT, 3, 0), (NO_BIT, 4, 0)]
    verdict = figures(tmp_path)[NO_BIT]
    assert verdict.figures == {"producer_ids": 1}
    words = "no transactional bit, and the producer id is that of transactional id 't'"
    assert [line.partition("): ")[2] for line in verdict.evidence.splitlines()] == [
        f"{words}; so are 2 more batches here",
        f"{words}; so is 1 more batch here",
        words,
    ]


@pytest.mark.parametrize(("step", "count"), [("plain", 1), ("data", 1), (COMMIT, 1), ("hole", 0)])
def test_a_producer_id_that_has_written_anything_is_looked_at(
    tmp_path: Path, step: str | ControlType, count: int
) -> None:
    coordinator(tmp_path, ("EMPTY", 0), version=2)
    partition(tmp_path, 0, (step, 0))  # type: ignore[arg-type]
    partition(tmp_path, 1, ("plain", 0), ("data", 0), (COMMIT, 0), pid=PID + 1)
    logs = find_logs(tmp_path)
    for audit in (readable_transactions(logs, Source()), by_steps(logs, LocalEngine(), Source(), 100, 1000)[0]):
        assert audit.figures[NO_BIT] == {"producer_ids": count}


def test_data_without_the_transactional_bit_are_right_if_no_log_or_logs_of_several_clusters_name_the_producer(
    tmp_path: Path,
) -> None:
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), ("plain", 1))
    assert found(tmp_path) == []
    assert NO_BIT not in figures(tmp_path), "no log of __transaction_state, so nobody's producer id is known"
    coordinator(tmp_path, ("EMPTY", 0), *ended("COMMIT", 0, 2), version=2, partitions=[0])
    assert found(tmp_path) == [(NO_BIT, 0, 2)]
    (tmp_path / f"{TOPIC}-0").rename(tmp_path / f"{TOPIC}-1")
    coordinator(tmp_path, ("EMPTY", 0), version=2)
    assert found(tmp_path) == []
    assert figures(tmp_path)[NO_BIT].figures == {"producer_ids": 0}
    assert (
        figures(tmp_path)[NO_BIT].unjudged == "there are no producer ids of transactional ids in these logs to look at"
    )


@pytest.mark.parametrize(("clusters", "count"), [("AA", 1), ("AB", 0), ("A ", 1), (" B", 1)])
def test_a_producer_id_is_of_its_own_cluster(tmp_path: Path, clusters: str, count: int) -> None:
    """Audits of a mirror have the logs of two clusters, whose producer ids have nothing to do with each other."""
    coordinator(tmp_path / "1", ("EMPTY", 0), version=2)
    partition(tmp_path / "2", 0, ("plain", 0))
    for broker, cluster in zip("12", clusters.replace(" ", "."), strict=True):
        if cluster != ".":
            (tmp_path / broker / "meta.properties").write_text(f"cluster.id={cluster}\n")
    for oracle in (None, 1.0):
        result = run([tmp_path / "1", tmp_path / "2"], one_moment=True, oracle=oracle)
        assert [finding.rule for finding in result.findings if finding.rule == NO_BIT] == [NO_BIT] * count
        assert oracle is None or result.verdicts[-1].ok


@pytest.mark.parametrize("second", ["coordinator", "partition"])
@pytest.mark.parametrize(("clusters", "apart"), [("AB", True), ("AA", False), ("A.", False)])
def test_transactions_of_several_clusters_have_nothing_to_do_with_each_other(
    tmp_path: Path, second: str, clusters: str, *, apart: bool
) -> None:
    """Producer id 0 of both has committed in one and aborted in the other: a torn transaction, if they were one."""
    partition(tmp_path / "1", 0, ("data", 0), (COMMIT, 1))
    if second == "partition":
        partition(tmp_path / "2", 1, ("data", 0), (ABORT, 1))
    else:
        coordinator(tmp_path / "2", *ended("ABORT", 0, 2), version=2)
    partition(tmp_path / "2", 2, ("plain", 0))
    for broker, cluster in zip("12", clusters, strict=True):
        if cluster != ".":
            (tmp_path / broker / "meta.properties").write_text(f"cluster.id={cluster}\n")
    brokers = [tmp_path / "1", tmp_path / "2"]
    for oracle in (None, 1.0):
        result = run(brokers, one_moment=True, oracle=oracle)
        assert bool({finding.rule for finding in result.findings} & {TORN, NO_TRANSACTION}) != apart
        assert oracle is None or result.verdicts[-1].ok
    if apart:  # a history does not tell of which cluster it is
        said = (
            f"transactions of several clusters: {brokers[0]} of cluster A, {brokers[1]} of cluster B; audit each "
            f"cluster for itself, with its own histories and the same options:\n  kafka-eos audit {brokers[0]}\n"
            f"  kafka-eos audit {brokers[1]}"
        )
        write_history(
            tmp_path / "history.jsonl", [Event(run="r", order=0, process="broker-1", action="Crash", phase="ok")]
        )
        with pytest.raises(UnusableInput, match=f"^{re.escape(said)}$"):
            run(brokers, histories=[tmp_path / "history.jsonl"], one_moment=True)


class Backwards(LocalEngine):
    """Gives the rows to the stages in the opposite order."""

    def regroup(self, stage: Any, *arguments: Any, **named: Any) -> Any:
        return super().regroup(lambda key, values: stage(key, reversed([*values])), *arguments, **named)


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("split_bytes", [50, 100, 1 << 20])
def test_the_first_batch_without_the_transactional_bit_is_found_wherever_a_log_is_cut(
    tmp_path: Path, buckets: int, split_bytes: int
) -> None:
    """In all segments of the longest replica, in the order of the files, in whatever order the tasks end."""
    coordinator(tmp_path / "1", ("EMPTY", 0), version=2)
    for broker, count in (("1", 1), ("2", 2)):
        partition(tmp_path / broker, 0, ("data", 0), ("plain", 0))
        partition(tmp_path / broker, 0, *[("plain", 0)] * count, start=2)
        partition(tmp_path / broker, 2, ("data", 0))
        partition(tmp_path / broker, 2, ("plain", 0), start=1)
    partition(tmp_path / "2", 1, ("data", 0), (COMMIT, 0), ("hole", 3), ("plain", 0), ("hole", -2), ("plain", 0))
    logs = find_logs(tmp_path / "1") + find_logs(tmp_path / "2")
    engine = Backwards()
    engine.buckets = buckets
    expected, told = readable_transactions(logs, Source()), by_steps(logs, engine, Source(), split_bytes, 1000)[0]
    assert told.figures[NO_BIT] == expected.figures[NO_BIT] == {"producer_ids": 1}
    slow, quick = ({each for each in audit.findings if each.rule == NO_BIT} for audit in (expected, told))
    assert {replace(each, time_ms=None) for each in quick} == slow
    first, backwards, second = sorted(slow, key=lambda each: each.partition)
    assert (first.partition, first.file, first.offset) == (0, f"{0:020d}.log", 1)
    assert first.evidence.endswith("so are 2 more batches here"), "the longer replica has one more"
    assert (second.partition, second.file, second.offset) == (2, f"{1:020d}.log", 1)
    assert (backwards.partition, backwards.offset) == (1, 5)
    assert backwards.evidence.endswith("so is 1 more batch here")


def test_a_producer_id_that_logs_of_two_clusters_have_is_of_nobody(tmp_path: Path) -> None:
    for cluster in ("1", "2"):
        coordinator(tmp_path / cluster, *TV2, version=2)
    logs = [follow_coordinator_log(log) for log in find_logs(tmp_path)]
    assert len(logs) == 2
    assert Coordinators(logs[:1]).owner(PID) is not None
    assert Coordinators(logs).owner(PID) is None


@pytest.mark.parametrize(("pid", "epoch", "count"), [(PID, 1, 1), (PID, 0, 0), (PID, 2, 0), (PID + 1, 1, 0)])
def test_a_producer_is_fenced_only_by_a_later_epoch_of_its_own_producer_id(
    pid: int, epoch: int, count: int, tmp_path: Path
) -> None:
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1))
    known: Any = SimpleNamespace(logs=[], owner=lambda _: (None, SimpleNamespace(grants=[(pid, epoch)])))
    judged = Judged()
    fenced(read_transactions(*find_logs(tmp_path)), known, at_the_moment(NOW), judged)  # type: ignore[arg-type]
    assert [finding.rule for finding in judged.findings] == [FENCED] * count


def test_a_torn_transaction_is_told_with_its_marker_on_another_partition_though_its_own_has_one_twice(
    tmp_path: Path,
) -> None:
    coordinator(tmp_path, EMPTY, *ended("COMMIT", 0, 2), version=2)
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), (COMMIT, 1), (ABORT, 1))
    partition(tmp_path, 1, (COMMIT, 1))
    told = "transaction 0 of 't': ABORT here, COMMIT at orders-1 offset 0, orders-0 offset 1"
    assert evidence(tmp_path, TORN) == told


@pytest.mark.parametrize("has_log", [True, False])
@pytest.mark.parametrize(("odd", "other"), [(ABORT, COMMIT), (COMMIT, ABORT)])
def test_the_siblings_of_a_marker_tell_which_decision_is_the_odd_one(
    odd: ControlType, other: ControlType, has_log: bool, tmp_path: Path
) -> None:
    if has_log:
        coordinator(tmp_path, EMPTY, *ended("COMMIT", 0, 2), version=2, partitions=range(9))
    for number in range(9):
        partition(tmp_path, number, *[("plain", 0)] * number, ("data", 0), (odd if number == 4 else other, 1))
    which = "transaction 0 of 't'" if has_log else "the transaction of this epoch"
    five = "orders-0 offset 1, orders-1 offset 2, orders-2 offset 3, orders-3 offset 4"
    if odd is ABORT:
        told = f"ABORT here, COMMIT at {five}, orders-5 offset 6 and 3 more"
    else:
        five = five.partition(", ")[2]
        told = f"ABORT here and at {five}, orders-5 offset 6, orders-6 offset 7 and 2 more, COMMIT at orders-4 offset 5"
    assert evidence(tmp_path, TORN) == f"{which}: {told}"


@pytest.mark.parametrize("redact", [False, True])
def test_a_finding_has_the_transactional_id_and_its_coordinators_decision_where_they_are_known(
    redact: bool, tmp_path: Path
) -> None:
    states = [EMPTY, *ended("COMMIT", 0, 2), *ended("COMMIT", 1, 2), ("PREPARE_ABORT", 9)]
    coordinator(tmp_path, *states, version=2)
    partition(tmp_path, 0, ("data", 0), (COMMIT, 1), ("data", 1))
    partition(tmp_path, 1, ("data", 0), (ABORT, 1), ("plain", 1))
    partition(tmp_path, 2, ("data", 0), (COMMIT, 1), pid=99)
    found = run([tmp_path], one_moment=True, redact=redact, oracle=1.0)
    assert found.verdicts[-1].found == "0 differences"
    told = {each.rule: (each.transactional_id, each.decision) for each in found.findings if each.producer_id == PID}
    names = {name for name, _ in told.values()}
    [name] = names - {""}
    assert name == "t" if not redact else name.startswith("#")
    decided = {rule: decision for rule, (own, decision) in told.items() if own}
    assert decided == {TORN: "COMMIT", HANGING: "COMMIT", NO_BIT: "", ILLEGAL_TRANSITION: ""}


def test_a_transaction_that_is_torn_in_several_ways_is_found_once(tmp_path: Path) -> None:
    states = [EMPTY, ("ONGOING", 0), ("PREPARE_COMMIT", 0), ("PREPARE_ABORT", 1), ("COMPLETE_ABORT", 1)]
    coordinator(tmp_path, *states, version=0, partitions=(0, 1, 2))
    for number, marker in enumerate(((ABORT, 1), (COMMIT, 0), (ABORT, 0))):
        partition(tmp_path, number, ("data", 0), marker)
    told = "transaction 0 of 't': ABORT here and at orders-0 offset 1, COMMIT at orders-1 offset 1"
    assert evidence(tmp_path, TORN) == told


def test_in_a_compacted_log_a_decision_that_was_given_up_contradicts_no_marker(tmp_path: Path) -> None:
    coordinator(tmp_path, ("ONGOING", 0), ("PREPARE_COMMIT", 1), ("ONGOING", 0), version=2, start=20, partitions=[0])
    partition(tmp_path, 0, ("data", 0), (ABORT, 1))
    logs = find_logs(tmp_path)
    for audit in (readable_transactions(logs, Source()), by_steps(logs, LocalEngine(), Source(), 100, 1000)[0]):
        assert list(audit.findings) == []
        assert audit.figures[NO_TRANSACTION] == {"markers": 1, "unknown": 1, "recent": 0}


def test_each_marker_of_a_coordinator_that_was_replaced_is_found(tmp_path: Path) -> None:
    marked(*(step for epoch in (3, 1, 2) for step in ((None, 0, 0), (COMMIT, 0, epoch))), place=tmp_path)
    assert found(tmp_path) == [(OLD_COORDINATOR, 0, 3), (OLD_COORDINATOR, 0, 5)]


@pytest.mark.parametrize(
    ("start", "segments", "begins"),
    [(0, [0], True), (0, [], True), (3, [0], False), (None, [0, 9], True), (None, [9], False), (None, [], False)],
)
def test_a_log_begins_with_offset_0_if_its_first_batch_does_or_without_any_its_first_segment(
    start: int | None, segments: list[int], begins: bool
) -> None:
    names = tuple(f"{each:020d}.log" for each in segments)
    assert begins_with_zero(PartitionLog("", "orders", 0, "orders-0", names), start) == begins


def grouped(decisions: Sequence[Transaction], *markers: tuple[ControlType, int], begins_ms: int) -> Matching:
    """How markers without data, each with its time, match decisions of one epoch; the coordinator's log ends at NOW."""
    partition: Any = SimpleNamespace(place=("orders", 0), start=0, begins_ms=begins_ms, first_marker_ms=begins_ms)
    read = [
        Marker(
            file="",
            position=0,
            offset=offset,
            producer_id=PID,
            epoch=0,
            decision=decision,
            coordinator_epoch=0,
            ends=None,
            last_stable_offset=0,
            stamped_ms=stamped_ms,
        )
        for offset, (decision, stamped_ms) in enumerate(markers)
    ]
    return _Group(partition, read, list(decisions), float(NOW), float(NOW), INCOMPLETE).in_order()


def decided(number: int, decision: ControlType, *, replaced: bool = False) -> Transaction:
    return Transaction(
        transactional_id="t",
        number=number,
        producer_id=PID,
        data_epoch=0,
        marker_epoch=0,
        version=1,
        decision=decision,
        partitions=frozenset({("orders", 0)}),
        decided_ms=NOW - SKEW_MS - 9,
        replaced=replaced,
    )


def test_a_marker_that_may_be_of_a_decision_after_the_end_of_the_log_is_no_sure_marker_of_the_last_one() -> None:
    for late, is_seen in ((0, True), (1, False)):
        matching = grouped([decided(0, COMMIT)], (COMMIT, NOW - SKEW_MS + late), begins_ms=NOW)
        assert (bool(matching.seen), matching.unmatched, matching.unknown) == (is_seen, [], [])


def test_a_decision_whose_append_failed_is_not_counted_among_those_without_a_marker() -> None:
    own = [decided(0, COMMIT), decided(1, COMMIT), decided(2, COMMIT, replaced=True), decided(2, ABORT)]
    stamped_ms = NOW - SKEW_MS
    [unmatched] = grouped(own, (COMMIT, stamped_ms), (ABORT, stamped_ms), begins_ms=NOW - 10 * SKEW_MS).unmatched
    told = "no COMMIT of at least 1 of these 2: transaction 0, 1"
    assert unmatched.otherwise == f"it is the marker of transaction 2 of 't', and this partition has {told}"
