from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_eos_checks.brokers.brokers import Cluster
from kafka_eos_checks.lab.costs import measure
from kafka_eos_checks.lab.costs.client import CostClient, JobFailed, busy_seconds, cpu_seconds
from kafka_eos_checks.lab.costs.measure import ACKS_ALL, IDEMPOTENT
from kafka_eos_checks.lab.costs.turns import Effort, Stage
from kafka_eos_checks.lab.costs.wire import batch_sizes, stored


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("costs")
    effort = Effort(rounds=1, slices=1, seconds=0.1, shrink=1)
    with Cluster(folder / "broker") as cluster, CostClient(folder) as client:
        yield Stage(cluster, client, effort)


@pytest.mark.thorough
@pytest.mark.broker
def test_the_records_that_the_client_reports_are_in_the_log_and_are_read(stage: Stage) -> None:
    topic = stage.topic("made", 1)
    wrote = stage.do({
        "job": "produce", "topic": topic, "partitions": 1, "value_bytes": 10, "records": 60, "seconds": 60,
        "producer": {"transactional.id": topic}, "transaction_size": 20, "abort_every": 3,
    })  # fmt: skip
    assert (wrote["records"], wrote["transactions"], wrote["failed"], wrote["missing"]) == (60, 3, 0, 0)
    batches = stored(stage.cluster[1].data / f"{topic}-0")
    assert sum(batch.record_count for batch in batches if not batch.is_control) == 60
    read = stage.do({
        "job": "consume pairs", "topic": topic, "partitions": 1, "slices": 3,
        "consumer": {"isolation.level": "read_uncommitted"}, "consumer_1": {"isolation.level": "read_committed"},
    })  # fmt: skip
    assert (read["records_0"], read["records_1"]) == ([60] * 3, [40] * 3)
    assert all(seconds > 0 for seconds in read["seconds_0"] + read["seconds_1"])


@pytest.mark.thorough
@pytest.mark.broker
def test_two_producers_take_turns_and_write_to_their_own_topics(stage: Stage) -> None:
    topics = stage.topic("pair", 1), stage.topic("pair", 1)
    wrote = stage.do({
        "job": "produce pairs", "partitions": 1, "value_bytes": 10, "seconds": 0.02, "slices": 5,
        "topic": topics[0], "producer": ACKS_ALL, "topic_1": topics[1], "producer_1": IDEMPOTENT,
    })  # fmt: skip
    for number, topic in enumerate(topics):
        batches = stored(stage.cluster[1].data / f"{topic}-0")
        assert all((batch.producer_id >= 0) is (number == 1) for batch in batches)
        counted = sum(wrote[f"records_{number}"])
        assert 0 < counted < sum(batch.record_count for batch in batches)  # those of the warm-up are not counted
        assert len(wrote[f"seconds_{number}"]) == 5


@pytest.mark.thorough
@pytest.mark.broker
def test_a_copy_in_each_mode_and_a_run_for_latency_do_what_they_say(stage: Stage) -> None:
    source, target = stage.topic("source"), stage.topic("target")
    stage.do({
        "job": "produce", "topic": source, "value_bytes": 10, "records": 300, "seconds": 60, "producer": IDEMPOTENT,
        "flush_every": 100,
    })  # fmt: skip
    for mode in ("at-most-once", "at-least-once", "exactly-once"):
        producer = {"transactional.id": "copy"} if mode == "exactly-once" else ACKS_ALL
        copied = stage.do({
            "job": "copy", "mode": mode, "source": source, "topic": target, "transaction_size": 10, "seconds": 0.3,
            "producer": producer, "consumer": {"group.id": mode, "enable.auto.commit": "false"},
        })  # fmt: skip
        assert copied["records"] == 10 * copied["transactions"] > 0
        assert copied["failed"] == 0
    topic = stage.topic("latency", 1)
    late = stage.do({
        "job": "latency", "topic": topic, "partitions": 1, "value_bytes": 10, "rate": 500, "records": 100,
        "commit_interval_ms": 20, "producer": {"transactional.id": topic},
        "consumer": {"isolation.level": "read_committed"},
    })  # fmt: skip
    assert late["records"] == 100
    assert late["transactions"] > 1
    assert 0 < late["p50_ms"] <= late["p90_ms"] <= late["p99_ms"]


@pytest.mark.thorough
@pytest.mark.broker
def test_idempotence_adds_no_byte_to_a_stored_batch(stage: Stage) -> None:
    sizes = batch_sizes(stage)
    assert sizes["with idempotence"] == sizes["without idempotence"]


@pytest.mark.thorough
@pytest.mark.broker
def test_a_job_that_cannot_be_done_says_why_and_the_client_goes_on(stage: Stage) -> None:
    with pytest.raises(JobFailed, match=r"IllegalArgumentException: dance; see .*client\.log"):
        stage.do({"job": "dance", "topic": "any"})
    refused = {"job": "produce", "topic": stage.topic("any"), "value_bytes": 1, "seconds": 1}
    with pytest.raises(JobFailed, match="idempotent producer"):
        stage.do({**refused, "producer": {"acks": "1", "enable.idempotence": "true"}})
    assert stage.do({**refused, "records": 1, "producer": ACKS_ALL})["records"] == 1


def test_every_side_of_a_part_has_a_name_of_its_own() -> None:
    for size in measure.VALUE_BYTES:
        names = [side.name for side in measure.producing_sides(size, 1.0)]
        assert len(names) == len(set(names)) == 4 + len(measure.TRANSACTION_SIZES)


def test_the_cpu_time_of_an_unknown_process_is_zero(tmp_path: Path) -> None:
    assert busy_seconds() >= 0
    assert cpu_seconds(2**22 + 1) == 0
