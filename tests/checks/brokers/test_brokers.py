import time
from pathlib import Path

import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.brokers.brokers import BrokerFailed, Cluster, ask, coordinator_partition, free_ports
from kafka_eos_checks.brokers.jars import have_jars


def test_free_ports_are_distinct() -> None:
    ports = free_ports(12)
    assert len(set(ports)) == 12
    assert all(1024 <= port < 65536 for port in ports)


def test_each_broker_gets_a_configuration_of_its_own_on_the_loopback_interface(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c", size=3, settings={"num.io.threads": "2"})
    texts = [broker.properties.read_text().splitlines() for broker in cluster.brokers]
    for number, lines in enumerate(texts, start=1):
        assert f"node.id={number}" in lines
        assert "num.io.threads=2" in lines
        assert "transaction.state.log.min.isr=2" in lines
        addresses = [line for line in lines if "listeners=" in line or line.startswith("controller.quorum.voters=")]
        assert all("127.0.0.1" in line for line in addresses)
    assert len({tuple(lines) for lines in texts}) == 3


def test_a_release_before_kraft_is_configured_with_its_zookeeper(tmp_path: Path) -> None:
    lines = Cluster(tmp_path / "c", kafka="2.8.2").brokers[0].properties.read_text().splitlines()
    assert "broker.id=1" in lines
    assert any(line.startswith("zookeeper.connect=127.0.0.1:") for line in lines)
    assert not any(line.startswith(("process.roles", "node.id", "controller.")) for line in lines)
    assert not any("CONTROLLER://" in line for line in lines)


def test_the_seed_decides_the_clusters_id(tmp_path: Path) -> None:
    first, same, other = (Cluster(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert first.cluster_id == same.cluster_id != other.cluster_id
    assert len(first.cluster_id) == 22


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(BrokerFailed, match="not empty"):
        Cluster(tmp_path)


@pytest.mark.parametrize(
    ("transactional_id", "partition"),
    [("", 0), ("a", 47), ("hello", 22), ("thousand-java-copy", 31), ("polygenelubricants", 0)],
)
def test_a_coordinators_partition_is_chosen_by_javas_hash_of_the_transactional_id(
    transactional_id: str, partition: int
) -> None:
    assert coordinator_partition(transactional_id, 50) == partition


def produce(port: int, sequence: int) -> tuple[int, int]:
    """Append one batch as producer 7000; return error and offset of the answer."""
    batch = build_batch(
        [Record(value=b"x")],
        base_timestamp=int(time.time() * 1000),  # producers expire by the age of their last batch
        producer_id=7000,
        producer_epoch=0,
        base_sequence=sequence,
    )
    data = {"Name": "t", "PartitionData": [{"Index": 0, "Records": batch.encode()}]}
    answer = ask(port, "Produce", 9, {"Acks": -1, "TimeoutMs": 5_000, "TopicData": [data]})
    part = answer["Responses"][0]["PartitionResponses"][0]
    return part["ErrorCode"], part["BaseOffset"]


@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
def test_a_broker_that_was_killed_comes_back_knowing_only_the_last_batch_of_a_producer(tmp_path: Path) -> None:
    with Cluster(tmp_path / "c") as cluster:
        assert cluster.features()["transaction.version"] == 2
        cluster.create_topic("t")
        broker = cluster[1]
        assert [produce(broker.port, n) for n in range(3)] == [(0, 0), (0, 1), (0, 2)]
        assert [produce(broker.port, n) for n in range(3)] == [(0, 0), (0, 1), (0, 2)]
        broker.kill()
        broker.start()
        cluster.wait_ready()
        cluster.wait_in_sync("t", 1)
        assert [produce(broker.port, n) for n in range(4)] == [(45, -1), (45, -1), (0, 2), (0, 3)]
        process = broker.process
        assert process is not None
        cluster.stop_all()
        assert process.returncode is not None
    assert (broker.data / "t-0" / "00000000000000000004.snapshot").is_file()


@pytest.mark.broker
@pytest.mark.skipif(not have_jars("2.8.2"), reason="the jars of Kafka 2.8.2 are not there; `make peers` fetches them")
def test_brokers_with_zookeeper_take_batches_and_nothing_is_left_running(tmp_path: Path) -> None:
    with Cluster(tmp_path / "c", size=2, kafka="2.8.2") as cluster:
        cluster.create_topic("t", replicas=[[1, 2]])
        cluster.wait_in_sync("t", 2)
        assert [produce(cluster[1].port, n) for n in (0, 1, 1, 3)] == [(0, 0), (0, 1), (0, 1), (45, -1)]
        processes = [cluster._quorum._process, *(broker.process for broker in cluster.brokers)]  # type: ignore[union-attr]
        assert [process.poll() for process in processes] == [None, None, None]
    assert [process.poll() for process in processes] == [-9, -9, -9]


@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
def test_a_partition_has_the_replicas_it_is_given_and_changes_its_leader_without_a_crash(tmp_path: Path) -> None:
    with Cluster(tmp_path / "c", size=2) as cluster:
        cluster.create_topic("t", replicas=[[2, 1]])
        (partition,) = cluster.partitions("t")
        assert (partition["LeaderId"], partition["ReplicaNodes"]) == (2, [2, 1])
        cluster.wait_in_sync("t", 2)
        cluster.make_leader("t", 0, 1)
        moved = cluster.wait_leader("t", 0, 2)
        assert (moved["LeaderId"], moved["ReplicaNodes"]) == (1, [1, 2])
        assert moved["LeaderEpoch"] > partition["LeaderEpoch"]
        number, coordinator = cluster.coordinator("x")
        assert number == coordinator_partition("x", 2) == coordinator["PartitionIndex"]
        assert len(cluster.running()) == 2
