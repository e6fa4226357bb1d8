"""Steps of transactions, one at a time, in the form of the readable rules."""

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.kernels.logs.transactions import NOTHING, STEP, Paired
from kafka_eos_checks.audit.rules.transactions.partitions import Marker, OpenTransaction
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH

_Step = namedtuple("_Step", STEP.names or ())  # type: ignore[misc]  # the names are the array's
_DECISIONS = {NO_DECISION: None, **{int(each): each for each in ControlType}}


def _step(steps: Paired, row: int) -> Any:
    """A step with its fields as Python numbers; converting field by field takes five times as long."""
    return _Step._make(steps.steps[row].item())


def data_of(steps: Paired, row: int, segments: Sequence[str]) -> OpenTransaction:
    """The data of a transaction that begins at a step.

    Args:
        steps: all steps.
        row: number of the step.
        segments: file names of the splits of the step's log.
    """
    step = _step(steps, row)
    return OpenTransaction(
        file=segments[int(steps.split[row])],
        position=step.position,
        offset=step.offset,
        producer_id=step.producer_id,
        epoch=step.producer_epoch,
        holes=step.holes,
        timestamp=step.timestamp,
        stamped=bool(step.stamped),
        followed_ms=step.next_ms,
    )


def ending_of(steps: Paired, row: int) -> dict[str, Any]:
    """The marker at a step as the fields of :class:`kafka_eos_checks.audit.rules.transactions.partitions.Replaced`."""
    step = _step(steps, row)
    return {"ended_at": step.offset, "decision": _DECISIONS[step.decision]}


def marker_of(steps: Paired, number: int, segments: Sequence[str], last_stable_offset: int = -1) -> Marker:
    """A marker with the data that it ends.

    Args:
        steps: all steps.
        number: the number of the marker among ``steps.markers``.
        segments: file names of the splits of the marker's log.
        last_stable_offset: the last stable offset of the partition after the marker; -1 if no rule needs it.
    """
    row, ends = int(steps.markers[number]), int(steps.ends[number])
    step = _step(steps, row)
    return Marker(
        file=segments[int(steps.split[row])],
        position=step.position,
        offset=step.offset,
        producer_id=step.producer_id,
        epoch=step.producer_epoch,
        decision=_DECISIONS[step.decision],
        coordinator_epoch=None if step.coordinator_epoch == NO_EPOCH else step.coordinator_epoch,
        ends=None if ends == NOTHING else data_of(steps, ends, segments),
        last_stable_offset=last_stable_offset,
        stamped_ms=step.timestamp,
        holes=step.holes,
    )
