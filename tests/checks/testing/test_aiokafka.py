"""aiokafka, with its own implementation of the protocol, on the reference's server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafka_eos_checks.cli.command import main
from kafka_eos_checks.testing.process import ServedProcess

aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed; make bench installs it")


async def write(bootstrap: str) -> None:
    """Write a committed transaction, an aborted one, and another one."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="a")
    await producer.start()
    try:
        for value, commit in ((b"first", True), (b"aborted", False), (b"second", True)):
            await producer.begin_transaction()
            await producer.send_and_wait("t", value, partition=0)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    finally:
        await producer.stop()


async def read(bootstrap: str, isolation: str, count: int) -> list[bytes]:
    """Read the first records of the topic, and those in the same batch."""
    consumer = aiokafka.AIOKafkaConsumer(
        "t",
        bootstrap_servers=bootstrap,
        group_id=f"readers-{isolation}",
        isolation_level=isolation,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    found: list[Any] = []
    try:
        async with asyncio.timeout(30):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [record.value for record in records]
            for records in (await consumer.getmany(timeout_ms=300)).values():
                found += [record.value for record in records]
        await consumer.commit()
    finally:
        await consumer.stop()
    return found


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_transactions_of_aiokafka_are_read_back_as_they_ended(version: str) -> None:
    with ServedProcess("--transaction-version", version) as server:
        asyncio.run(write(server.bootstrap))
        assert asyncio.run(read(server.bootstrap, "read_committed", 2)) == [b"first", b"second"]
        assert asyncio.run(read(server.bootstrap, "read_uncommitted", 3)) == [b"first", b"aborted", b"second"]


async def write_plainly(bootstrap: str) -> None:
    """Write two batches of a producer without a producer id, each with first sequence 0."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for value in (b"first", b"second"):
            await producer.send_and_wait("t", value, partition=0)
    finally:
        await producer.stop()


def test_a_plain_producer_of_aiokafka_is_served_and_its_log_is_in_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for count in (2, 4):
        with ServedProcess("--data", str(data)) as server:
            asyncio.run(write_plainly(server.bootstrap))
            expected = [b"first", b"second"] * (count // 2)
            assert asyncio.run(read(server.bootstrap, f"read_{'un' * (count > 2)}committed", count)) == expected
    assert main(["audit", str(data)]) == 0
