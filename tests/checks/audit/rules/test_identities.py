"""Findings name producer, epoch and sequence; a request that names no producer is not judged."""

from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.rules.histories import REFUSED

from ..both_forms import join
from .test_histories import event, numbered
from .test_transactions import partition


@pytest.mark.parametrize(
    ("producer_id", "epoch", "judged"),
    [(0, 0, 1), (-1, 0, 0), (7, -1, 0), (None, 0, 0), (7, None, 0), (-1, -1, 0)],
)
def test_the_refusal_of_a_request_without_producer_id_or_epoch_is_not_judged(
    producer_id: int | None, epoch: int | None, judged: int
) -> None:
    error = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    refused = event("EndTxn", "fail", producer_id=producer_id, producer_epoch=epoch, error=error)
    result = join(numbered([refused]), [])
    assert result.findings == []
    assert result.figures[REFUSED].get("unknown", 0) == judged


def test_a_finding_at_a_marker_has_no_sequence(tmp_path: Path) -> None:
    partition(tmp_path, 0, ("data", 1), (ControlType.COMMIT, 0))
    [finding, *_] = run([tmp_path], one_moment=True).findings
    assert (finding.offset, finding.base_sequence) == (1, -1)
