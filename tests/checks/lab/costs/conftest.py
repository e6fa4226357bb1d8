from collections.abc import Callable
from typing import Any

import pytest

from kafka_eos_checks.lab.costs import wire
from kafka_eos_checks.lab.costs.measure import COMMIT_INTERVALS_MS, FORMAT, READ_TOPICS, TRANSACTION_SIZES, VALUE_BYTES

ROUNDS = 9
WOBBLE = (0.97, 0.98, 0.99, 1.0, 1.0, 1.0, 1.01, 1.02, 1.03)

Evidence = dict[str, Any]


def column(value: float) -> list[float]:
    return [value * wobble for wobble in WOBBLE]


def side(rate: float, **more: float) -> dict[str, Any]:
    columns = {name: column(value) for name, value in more.items()}
    return {"rate": column(rate), "cpu_us": [1.0] * ROUNDS, "others": [0.5] * ROUNDS, **columns}


def counted(client: str, messages: int, partitions: int) -> dict[str, Any]:
    ends = {"requests": 5, "partitions": 5, "refused": 0}
    asked = {"EndTxn": ends, "Produce": ends}
    if client == "librdkafka":
        asked["AddPartitionsToTxn"] = {"requests": 5, "partitions": 5 * partitions, "refused": 1}
    return {
        "client": client,
        "messages": messages,
        "partitions": partitions,
        "transactions": 5,
        "requests": asked,
        "markers": 5 * partitions,
        "coordinator_records": 16,
    }


@pytest.fixture
def evidence() -> Callable[[], Evidence]:
    """A measurement in which exactly once has 70 % of the throughput, and nothing else costs anything."""

    def made() -> Evidence:
        rates = {"at most once (acks=0)": 1000.0, "at least once (acks=1)": 900.0, "acks=all": 800.0}
        rates |= {"acks=all, idempotent": 800.0} | {f"transactions of {n}": 700.0 for n in TRANSACTION_SIZES}
        parts: dict[str, Any] = {
            "wire": {
                "transactions": [
                    counted(client, messages, partitions)
                    for client in ("Java", "librdkafka")
                    for partitions in wire.PARTITION_COUNTS
                    for messages in wire.MESSAGES
                ],
                "batches": {"without idempotence": {"5": [606]}, "with idempotence": {"5": [606]}},
            },
            "copy": {
                "sides": {
                    f"{mode}, {n}": side(rate)
                    for mode, rate in (("at-most-once", 1000.0), ("at-least-once", 900.0), ("exactly-once", 700.0))
                    for n in TRANSACTION_SIZES
                }
            },
            "latency": {
                "sides": {"no transactions": side(500.0, p50_ms=1, p90_ms=2, p99_ms=3)}
                | {
                    f"commit every {ms} ms": side(500.0, p50_ms=ms / 2, p90_ms=ms, p99_ms=ms * 1.1)
                    for ms in COMMIT_INTERVALS_MS
                }
            },
        }
        for size in VALUE_BYTES:
            parts[f"produce {size}"] = {"sides": {name: side(rate) for name, rate in rates.items()}}
            parts[f"idempotence {size}"] = {
                "sides": {name: side(800.0) for name in ("acks=all", "acks=all, idempotent")}
            }
        for name in READ_TOPICS:
            levels = ("read_uncommitted", "read_committed")
            rows = {level: side(5000.0, seconds=2, cpu_seconds=1) for level in levels}
            parts[f"read, {name}"] = {"records": 10_000, "transactions": 10, "sides": rows}
        for part in parts.values():
            part |= {"about": "made up", "date": "2026-01-01 00:00 UTC", "niceness": 0}
            part |= {"load_average": [1.0, 1.5], "wall_seconds": 2.0}
        return {
            "format": FORMAT,
            "date": "2026-01-01 00:00 UTC",
            "quick": False,
            "machine": {"cores": 2, "architecture": "x86_64", "processor": ""},
            "kafka": "4.3.0",
            "java": {"broker": "java", "client": "java"},
            "features": {"transaction.version": 2},
            "parts": parts,
        }

    return made
