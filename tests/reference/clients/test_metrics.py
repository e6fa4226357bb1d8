"""Rates compared with Kafka's own class, and the counts of a producer and a broker."""

import subprocess
from pathlib import Path
from random import Random

import pytest

from kafka_eos.clients.metrics import ErrorCounters, Meter, Rate, SenderMetrics
from kafka_eos.errors import ErrorCode
from kafka_eos_checks.brokers.jars import need_jars

TESTS = Path(__file__).parents[2]
SEED = 20_261_122
RUNS = 300


def kafkas(lines: list[str]) -> list[float]:
    """The values that Kafka's Rate measures."""
    command = [
        "java",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{need_jars()}/*",
        str(TESTS / "java" / "Rates.java"),
    ]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, check=True, text=True, timeout=300)
    return [float(line) for line in done.stdout.splitlines()]


@pytest.mark.java
def test_rates_equal_those_of_kafkas_class_for_all_times_of_events_and_measurements() -> None:
    print(f"seed {SEED}")
    random, lines, expected = Random(SEED), [], []
    for _ in range(RUNS):
        rate, now = Rate(), random.randrange(100_000)
        lines.append("new")
        for _ in range(random.randrange(1, 30)):
            now += random.choice((0, 1, 700, 12_000, 30_000, 59_999, 60_000, 100_000))
            if random.random() < 0.7:
                count = random.randrange(1, 100)
                rate = rate.recorded(count, now)
                lines.append(f"record {count} {now}")
            else:
                value, rate = rate.measured(now)
                expected.append(value)
                lines.append(f"measure {now}")
    assert len(expected) > RUNS
    assert kafkas(lines) == pytest.approx(expected)


def test_a_burst_is_spread_over_the_window_before_it_and_forgotten_after_two() -> None:
    meter = Meter().recorded(60, 1000)
    assert meter.per_second(1000) == 2.0
    assert meter.per_second(31_000) == 2.0
    assert meter.per_second(60_999) == pytest.approx(1.0, rel=1e-3)
    assert meter.per_second(61_000) == 0.0
    assert meter.total == 60


def test_a_meter_without_counts_starts_no_window() -> None:
    assert Meter().recorded(0, 5) == Meter()


def test_a_producers_metrics_have_kafkas_names() -> None:
    metrics = SenderMetrics(failed=Meter().recorded(3, 0))
    assert metrics.names(0) == {
        "record-send-total": 0.0,
        "record-retry-total": 0.0,
        "record-error-total": 3.0,
        "record-send-rate": 0.0,
        "record-retry-rate": 0.0,
        "record-error-rate": pytest.approx(0.1),
    }


def test_a_broker_counts_errors_of_every_partition_and_no_success() -> None:
    counters = ErrorCounters()
    partition = {"Index": 0, "ErrorCode": int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), "BaseOffset": -1}
    counters.count("Produce", {"Responses": [{"Name": "t", "PartitionResponses": [partition, dict(partition)]}]})
    counters.count("EndTxn", {"ErrorCode": int(ErrorCode.NONE)})
    counters.count("EndTxn", {"ErrorCode": int(ErrorCode.CONCURRENT_TRANSACTIONS), "Nodes": [1, 2]})
    counters.count("EndTxn", {"ErrorCode": 9999})
    added = {"PartitionIndex": 0, "PartitionErrorCode": int(ErrorCode.CONCURRENT_TRANSACTIONS)}
    results = [{"Name": "t", "ResultsByPartition": [added] * 3}]
    counters.count("AddPartitionsToTxn", {"ResultsByTopicV3AndBelow": results})
    assert counters.lines() == [
        "AddPartitionsToTxn CONCURRENT_TRANSACTIONS: 3",
        "Produce OUT_OF_ORDER_SEQUENCE_NUMBER: 2",
        "EndTxn CONCURRENT_TRANSACTIONS: 1",
        "EndTxn error 9999: 1",
    ]
