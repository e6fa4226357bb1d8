"""Findings name producer, epoch and sequence; a request that names no producer is not judged."""

from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.rules.histories import REFUSED
from kafka_eos_checks.audit.rules.transactions.names import TORN

from ..both_forms import join
from ..kept import kept_join, run
from .test_histories import event, numbered
from .test_transactions import coordinator, ended, partition


@pytest.mark.parametrize(
    ("producer_id", "epoch", "judged"),
    [(0, 0, 1), (-1, 0, 0), (7, -1, 0), (None, 0, 0), (7, None, 0), (-1, -1, 0)],
)
def test_the_refusal_of_a_request_without_producer_id_or_epoch_is_not_judged(
    producer_id: int | None, epoch: int | None, judged: int
) -> None:
    error = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    refused = event("EndTxn", "fail", producer_id=producer_id, producer_epoch=epoch, error=error)
    result = kept_join(join(numbered([refused]), []))
    assert result.findings == []
    assert result.figures[REFUSED].get("unknown", 0) == judged


def test_a_finding_at_a_marker_has_no_sequence(tmp_path: Path) -> None:
    coordinator(tmp_path, ("EMPTY", 0), *ended("COMMIT", 0, 2), version=2)
    partition(tmp_path, 0, ("data", 0), (ControlType.COMMIT, 1))
    partition(tmp_path, 1, ("data", 0), (ControlType.ABORT, 1))
    [finding] = run([tmp_path], one_moment=True).findings
    assert (finding.rule, finding.partition, finding.offset, finding.base_sequence) == (TORN, 1, 1, -1)
