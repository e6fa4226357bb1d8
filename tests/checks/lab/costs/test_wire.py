import pytest

from kafka_eos.formats.record_batch import ControlRecord, ControlType, Record, build_batch, build_control_batch
from kafka_eos.formats.transaction_log import TransactionLogKey
from kafka_eos.histories.history import Event
from kafka_eos_checks.lab.costs import wire


def event(action: str, phase: str, request: int, process: str = "proxy/client") -> Event:
    return Event(run="r", process=process, action=action, phase=phase, detail={"request": request})


def test_requests_are_counted_once_partitions_each_and_refusals_apart() -> None:
    events = [
        event("AddPartitionsToTxn", "invoke", 1),
        event("AddPartitionsToTxn", "fail", 1),
        event("AddPartitionsToTxn", "ok", 2),
        event("AddPartitionsToTxn", "ok", 2),
        event("EndTxn", "ok", 3),
        event("EndTxn", "ok", 4),
        event("EndTxn", "ok", 4, process="client"),
    ]
    assert wire.requests(events) == {
        "AddPartitionsToTxn": {"requests": 1, "partitions": 2, "refused": 1},
        "EndTxn": {"requests": 2, "partitions": 2, "refused": 0},
    }


def test_requests_without_a_number_count_one_for_each_answer() -> None:
    events = [Event(run="r", process="wire/client", action="EndTxn", phase="ok")] * 2
    assert wire.requests(events) == {"EndTxn": {"requests": 2, "partitions": 2, "refused": 0}}


def test_markers_are_the_control_batches() -> None:
    data = build_batch([Record(value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = build_control_batch(
        ControlRecord(control_type=ControlType.COMMIT, coordinator_epoch=0), producer_id=7, producer_epoch=0
    )
    assert wire.markers([[data, marker], [data], [data, marker, marker]]) == 3


def test_the_coordinators_records_are_those_of_the_transactional_id() -> None:
    keys = [TransactionLogKey(transactional_id=name).encode() for name in ("mine", "mine", "other")]
    log = [build_batch([Record(key=key)]) for key in keys]
    assert wire.coordinator_records(log, "mine") == 2


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_the_reference_writes_one_marker_for_each_registered_partition_and_ends_once(partitions: int) -> None:
    row = wire.of_reference(1, partitions)
    assert row["requests"]["EndTxn"]["requests"] == row["transactions"] == wire.TRANSACTIONS
    assert row["markers"] == row["requests"]["AddPartitionsToTxn"]["partitions"] <= wire.TRANSACTIONS * partitions
    assert "AddPartitionsToTxn" not in wire.of_reference(2, partitions)["requests"]
