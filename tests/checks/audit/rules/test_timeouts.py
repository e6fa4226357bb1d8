"""The decisions that came before a transaction's timeout, at the very millisecond."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.formats.transaction_log import (
    TOPIC,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos_checks.audit.internal_topics.states import state_rows
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.plan.history_stages import pick_decisions
from kafka_eos_checks.audit.rules.timeouts import Deadlines
from kafka_eos_checks.audit.segments.splits import find_logs, plan

BEGAN, TIMEOUT = 1_700_000_000_000, 60_000
DECISION = TransactionLogValue(
    producer_id=7,
    producer_epoch=3,
    transaction_timeout_ms=TIMEOUT,
    transaction_status=TransactionState.PREPARE_ABORT,
    transaction_partitions=(TopicPartitions(topic="orders", partition_ids=(0,)),),
    transaction_last_update_timestamp_ms=BEGAN,
    transaction_start_timestamp_ms=BEGAN,
    next_producer_id=-1,
    client_transaction_version=2,
)


def deadlines(folder: Path, *values: TransactionLogValue, topic: str = TOPIC) -> Deadlines:
    """The decisions in time of a log; columns give the same as the readable rule."""
    key = TransactionLogKey(transactional_id="x").encode()
    batches = [build_batch([Record(key=key, value=value.encode())], base_offset=o) for o, value in enumerate(values)]
    path = folder / f"{topic}-3"
    write_segment(path / f"{0:020d}.log", [batch.encode() for batch in batches])
    logs = find_logs(path)
    rows = [("", 0, chunk.states) for split in plan(logs) if topic == TOPIC for chunk in state_rows(split)]
    picked = [row.value for row in pick_decisions(0, rows, wanted={5: np.array([7, 8])})]
    assert Deadlines.of(each for decisions in picked for each in decisions) == Deadlines.read(logs)
    return Deadlines.read(logs)


@pytest.mark.parametrize(
    ("after", "kept"), [(0, True), (TIMEOUT - 1, True), (TIMEOUT, True), (TIMEOUT + 1, False), (10 * TIMEOUT, False)]
)
def test_a_coordinator_times_a_transaction_out_only_after_its_timeout(after: int, kept: bool, tmp_path: Path) -> None:
    decided = replace(DECISION, transaction_last_update_timestamp_ms=BEGAN + after)
    assert deadlines(tmp_path, decided).are_kept(7, 3) is kept


def test_a_decision_without_a_start_may_be_a_timeout(tmp_path: Path) -> None:
    without = replace(DECISION, transaction_start_timestamp_ms=-1, transaction_last_update_timestamp_ms=TIMEOUT - 1)
    assert not deadlines(tmp_path, without).are_kept(7, 3)
    assert deadlines(tmp_path / "0", replace(without, transaction_start_timestamp_ms=0)).are_kept(7, 3)


def test_only_decisions_of_the_producer_and_its_epoch_count(tmp_path: Path) -> None:
    kept = deadlines(
        tmp_path, DECISION, replace(DECISION, transaction_status=TransactionState.PREPARE_COMMIT, producer_id=8)
    )
    assert [kept.are_kept(*who) for who in ((7, 3), (8, 3), (7, 2), (7, 4), (9, 3))] == [
        True,
        True,
        False,
        False,
        False,
    ]
    ongoing = replace(DECISION, transaction_status=TransactionState.ONGOING)
    assert not deadlines(tmp_path / "ongoing", ongoing).are_kept(7, 3)
    assert not deadlines(tmp_path / "other", DECISION, topic="orders").are_kept(7, 3)
    assert not Deadlines().are_kept(7, 3)


def test_one_late_decision_of_an_epoch_makes_the_others_doubtful(tmp_path: Path) -> None:
    late = replace(DECISION, transaction_last_update_timestamp_ms=BEGAN + TIMEOUT + 1)
    assert not deadlines(tmp_path, DECISION, late).are_kept(7, 3), "version 1 names several transactions by one epoch"
