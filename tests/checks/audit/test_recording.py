"""The vectorised readers against the readable decoder on the segments of a real broker."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.inputs import open_inputs
from kafka_eos_checks.audit.kernels.logs.runs import columns_of
from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS, Batch, audit_log
from kafka_eos_checks.audit.segments.headers import read_blocks, read_index
from kafka_eos_checks.audit.segments.reading import read_headers
from kafka_eos_checks.audit.segments.records import decode_block
from kafka_eos_checks.audit.segments.splits import PartitionLog
from kafka_eos_checks.kit.paths import CLONE

RECORDINGS = CLONE / "checks" / "recordings"


@pytest.fixture(scope="module", params=["one-broker", "three-brokers", "violations"])
def logs(request: pytest.FixtureRequest) -> Iterator[tuple[PartitionLog, ...]]:
    with open_inputs([RECORDINGS / f"{request.param}.tar.xz"]) as inputs:
        yield inputs.logs


def found_in(recording: str) -> Counter[tuple[str, str]]:
    return Counter((f.rule, f.topic) for f in run([RECORDINGS / f"{recording}.tar.xz"]).findings)


def test_the_audit_finds_duplicates_of_java_and_a_commit_by_a_delayed_request_and_nothing_else() -> None:
    found = found_in("violations")
    assert found.keys() == {
        ("refused without cause", "java-crash-with-lost-acks"),
        ("duplicate value", "java-crash-with-lost-acks"),
        ("transaction committed without its application", "late-end-of-transaction"),
    }
    assert found["duplicate value", "java-crash-with-lost-acks"] > 1
    assert found["transaction committed without its application", "late-end-of-transaction"] == 1


@pytest.mark.parametrize(
    ("recording", "records", "ids", "markers", "hung_or_ended", "transactions"),
    [("one-broker", 441, 4, 307, 307, 59), ("three-brokers", 273, 3, 30, 30, 19), ("violations", 16, 1, 10, 10, 5)],
)
def test_every_marker_of_a_real_broker_is_judged_by_its_coordinators_log(
    recording: str, records: int, ids: int, markers: int, hung_or_ended: int, transactions: int
) -> None:
    verdicts = run([RECORDINGS / f"{recording}.tar.xz"]).verdicts
    assert [sum(v.unjudged_for.values()) for v in verdicts] == [v.unknown for v in verdicts]
    figures = {v.name: v.figures for v in verdicts}
    state = {"records": records, "transactional_ids": ids, "unknown": 0}
    assert figures["illegal coordinator transition"] == figures["decision changed"] == state
    assert figures["torn transaction"] == figures["marker without transaction"] == {"markers": markers, "unknown": 0}
    assert figures["hanging transaction"] == {"transactions": hung_or_ended, "open": 0, "unknown": 0}
    joined = figures["transaction committed without its application"]
    assert (joined["checked"], joined["unknown"]) == (transactions, 0)


def test_the_audit_finds_the_retries_that_a_restarted_broker_refuses_and_no_other_refusal() -> None:
    assert found_in("one-broker").keys() == {("refused without cause", "crash-with-lost-acks")}
    assert found_in("three-brokers").keys() == set()


def stored(log: PartitionLog) -> list[StoredBatch]:
    items = [item for name in log.segments for item in read_segment(Path(log.folder, name))]
    return [item for item in items if isinstance(item, StoredBatch)]


def test_headers_of_a_real_broker_are_read_as_by_the_readable_decoder(logs: tuple[PartitionLog, ...]) -> None:
    total = 0
    for log in logs:
        expected = [
            Batch(
                item.position,
                item.batch.base_offset,
                item.batch.last_offset,
                item.batch.producer_id,
                item.batch.producer_epoch,
                item.batch.base_sequence,
                (item.batch.base_sequence + item.batch.last_offset_delta) & 0x7FFFFFFF,
                item.batch.base_sequence < 0 or log.topic in COORDINATOR_TOPICS,
                item.batch.is_transactional + 2 * item.batch.is_control,
                item.batch.partition_leader_epoch,
            )
            for item in stored(log)
        ]
        paths = [Path(log.folder, name) for name in log.segments]
        parts = [part for path in paths for part in read_headers(path, index=read_index(path))]
        found = [batch for part in parts for batch in columns_of(part, log.topic).batches()]
        assert found == expected, log
        assert list(audit_log(found)) == [], f"{log}: a real broker keeps the rules"
        total += len(found)
    assert total > 50


def test_records_of_a_real_broker_are_read_as_by_the_readable_decoder(logs: tuple[PartitionLog, ...]) -> None:
    total = 0
    for log in logs:
        expected = [
            (item.batch.offset(record), item.batch.timestamp(record), record.key, record.value)
            for item in stored(log)
            for record in item.batch.records()
        ]
        found = []
        for name in log.segments:
            for block in read_blocks(Path(log.folder, name)):
                records = decode_block(block)
                assert records.damage == ()
                columns = (records.offset.tolist(), records.timestamp.tolist(), records.keys(), records.values())
                found += list(zip(*columns, strict=True))
        assert found == expected, log
        total += len(found)
    assert total > 100
