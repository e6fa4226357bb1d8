"""Steps of transactions, one at a time, in the form that the readable rules take them."""

from collections.abc import Sequence

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.kernels.marks import NO_DECISION, NO_EPOCH
from kafka_eos_checks.audit.kernels.transactions import NOTHING, Paired
from kafka_eos_checks.audit.rules.transactions import Marker, OpenTransaction


def data_of(steps: Paired, row: int, segments: Sequence[str]) -> OpenTransaction:
    """The data of a transaction that begins at a step.

    Args:
        steps: all steps.
        row: number of the step.
        segments: file names of the splits of the step's log.
    """
    step = steps.steps[row]
    return OpenTransaction(
        file=segments[int(steps.split[row])],
        position=int(step["position"]),
        offset=int(step["offset"]),
        producer_id=int(step["producer_id"]),
        epoch=int(step["producer_epoch"]),
        holes=int(step["holes"]),
        timestamp=int(step["timestamp"]),
        stamped=bool(step["stamped"]),
        followed_ms=int(step["next_ms"]),
    )


def marker_of(steps: Paired, number: int, segments: Sequence[str], last_stable_offset: int = -1) -> Marker:
    """A marker with the data that it ends.

    Args:
        steps: all steps.
        number: of the marker among ``steps.markers``.
        segments: file names of the splits of the marker's log.
        last_stable_offset: of the partition after the marker; -1 if no rule needs it.
    """
    row, ends = int(steps.markers[number]), int(steps.ends[number])
    step = steps.steps[row]
    decision, coordinator_epoch = int(step["decision"]), int(step["coordinator_epoch"])
    return Marker(
        file=segments[int(steps.split[row])],
        position=int(step["position"]),
        offset=int(step["offset"]),
        producer_id=int(step["producer_id"]),
        epoch=int(step["producer_epoch"]),
        decision=None if decision == NO_DECISION else ControlType(decision),
        coordinator_epoch=None if coordinator_epoch == NO_EPOCH else coordinator_epoch,
        ends=None if ends == NOTHING else data_of(steps, ends, segments),
        last_stable_offset=last_stable_offset,
        stamped_ms=int(step["timestamp"]),
    )
