import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import MalformedMessage
from kafka_eos_checks.brokers import brokers
from kafka_eos_checks.brokers.brokers import (
    BROKER,
    HOST,
    KEPT_FILES,
    SMALL_JAVA,
    Broker,
    BrokerFailed,
    Cluster,
    ask,
    coordinator_partition,
    free_ports,
    java_command,
)
from kafka_eos_checks.brokers.jars import have_jars


def test_free_ports_are_distinct() -> None:
    ports = free_ports(12)
    assert len(set(ports)) == 12
    assert all(1024 <= port < 65536 for port in ports)


def test_programs_of_a_release_share_the_classes_that_one_of_its_brokers_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "classes.jsa"
    (tmp_path / "jars").mkdir()
    monkeypatch.setattr(brokers, "need_jars", lambda _: tmp_path / "jars")
    monkeypatch.setattr(brokers, "class_archive", lambda *_: archive)
    monkeypatch.setattr(shutil, "which", lambda _: "/java")
    java_command("Tool", "list")
    java_command(BROKER, java=("java",))
    assert not archive.exists()
    java_command(BROKER)
    assert archive.exists(), "the mark that a later broker writes"
    archive.write_bytes(b"\xa8\xab\x0b\xf0")
    shared = [*SMALL_JAVA, "-Xlog:disable", f"-XX:SharedArchiveFile={archive}", "-cp", f"{tmp_path}/jars/*"]
    assert java_command("Tool", "list") == [*shared, "Tool", "list"]
    assert java_command(BROKER) == [*shared, BROKER]
    assert java_command("Tool", java=("java", "-Xmx1g")) == ["java", "-Xmx1g", "-cp", f"{tmp_path}/jars/*", "Tool"]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert java_command("Tool") == [*SMALL_JAVA, "-cp", f"{tmp_path}/jars/*", "Tool"]


def test_each_broker_gets_a_configuration_of_its_own_on_the_loopback_interface(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c", size=3, settings={"num.io.threads": "2"})
    texts = [broker.properties.read_text().splitlines() for broker in cluster.brokers]
    for number, lines in enumerate(texts, start=1):
        assert f"node.id={number}" in lines
        assert "num.io.threads=2" in lines
        assert {"transaction.state.log.min.isr=2", "min.insync.replicas=2"} <= set(lines)
        addresses = [line for line in lines if "listeners=" in line or line.startswith("controller.quorum.voters=")]
        assert all("127.0.0.1" in line for line in addresses)
        broker = cluster.brokers[number - 1]
        assert f"advertised.listeners=PLAINTEXT://{HOST}:{broker.port},PROXY://{HOST}:{broker.advertised_port}" in lines
        listeners = f"PLAINTEXT://{HOST}:{broker.port},PROXY://{HOST}:{broker.proxied_port}"
        assert [line for line in lines if line.startswith(f"listeners={listeners}")]
    assert len({tuple(lines) for lines in texts}) == 3


def test_a_process_that_runs_is_waited_for_until_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(brokers.time, "sleep", waits.append)
    brokers.wait_stopped(os.getpid(), seconds=0.01)
    assert waits


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


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A cluster that is configured and does not run."""
    return Cluster(tmp_path / "c")


def test_a_broker_that_never_started_is_no_error_to_end_and_a_frozen_one_is_ended(cluster: Cluster) -> None:
    (broker,) = cluster.brokers
    broker.stop()
    with pytest.raises(BrokerFailed, match="never started"):
        broker.check_running()
    for end, number in ((broker.stop, signal.SIGTERM), (broker.kill, signal.SIGKILL)):
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        broker.process = started
        assert cluster.running() == [broker]
        broker.freeze()
        end()
        assert (started.returncode, broker.process) == (-number, None)


def test_if_a_broker_does_not_come_up_the_others_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(broker: Broker) -> None:
        """The first broker runs, the second one ends at once."""
        work = "import time; time.sleep(600)" if broker.node == 1 else "raise SystemExit(3)"
        broker.process = subprocess.Popen([sys.executable, "-c", work])
        started.append(broker.process)

    def refuses(*_: object) -> None:
        raise ConnectionRefusedError

    cluster = Cluster(tmp_path / "c", size=2)
    monkeypatch.setattr(cluster._quorum, "begin", lambda _: None)
    monkeypatch.setattr(Broker, "start", start)
    monkeypatch.setattr(brokers, "ask", refuses)
    try:
        with pytest.raises(BrokerFailed, match=r"broker-2 ended \(3\)"), cluster:
            pass
        assert [process.poll() for process in started] == [-signal.SIGKILL, 3]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("leader", "error", "answered", "leads"),
    [(-1, 0, 0, False), (1, 5, 0, False), (1, 0, 6, False), (1, 0, 0, True)],
)
def test_a_partition_is_led_when_its_leader_says_so_too(
    leader: int, error: int, answered: int, leads: bool, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ask_leader(_: int, api: str, __: int, row: dict[str, Any], *___: float) -> dict[str, object]:
        asked.append((api, row["ReplicaId"]))
        return {"Topics": [{"Partitions": [{"ErrorCode": answered}]}]}

    monkeypatch.setattr(brokers, "ask", ask_leader)
    assert cluster._leads("t", {"LeaderId": leader, "ErrorCode": error, "PartitionIndex": 0}) is leads
    assert asked == ([("ListOffsets", -1)] if leader > 0 and not error else [])


@pytest.mark.parametrize("error", [ConnectionRefusedError("nobody"), MalformedMessage(0, "no answer")])
def test_a_broker_that_does_not_answer_yet_is_asked_again(error: Exception, cluster: Cluster) -> None:
    answers = iter([error, None])

    def ready() -> bool:
        if answer := next(answers):
            raise answer
        return True

    def never() -> bool:
        raise error

    cluster._wait("ready", ready)
    with pytest.raises(BrokerFailed, match=f"ready: not after 0 s .*{error}"):
        cluster._wait("ready", never, 0.15)


def test_replicas_are_in_sync_when_they_are_so_in_every_partition(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"IsrNodes": [1, 2]}, {"IsrNodes": [2]}]
    monkeypatch.setattr(cluster, "partitions", lambda _: rows)
    with pytest.raises(BrokerFailed, match="2 replicas of t in sync: not after 0 s"):
        cluster.wait_in_sync("t", 2, 0.15)
    rows[1]["IsrNodes"].append(3)
    cluster.wait_in_sync("t", 2)


@pytest.mark.parametrize("size", [None, 0, 1 << 30])
def test_a_request_is_answered_by_one_frame_of_a_size_that_an_answer_may_have(
    size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = served_codec()
    monkeypatch.setattr(brokers, "clients_jar", lambda: None)
    monkeypatch.setattr(brokers, "load_codec", lambda _: codec)
    answer = codec.write_response("InitProducerId", 4, 1, {"ErrorCode": 0, "ProducerId": 9, "ProducerEpoch": 0})
    frame = b"" if size == 0 else struct.pack(">i", size or len(answer)) + answer
    with socket.create_server((brokers.HOST, 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(frame)

        thread = threading.Thread(target=serve)
        thread.start()
        row = {"TransactionalId": "t", "TransactionTimeoutMs": 1, "ProducerId": -1, "ProducerEpoch": -1}
        try:
            if size is None:
                assert ask(server.getsockname()[1], "InitProducerId", 4, row)["ProducerId"] == 9
            else:
                with pytest.raises(ConnectionError, match="closed the connection or announced"):
                    ask(server.getsockname()[1], "InitProducerId", 4, row)
        finally:
            thread.join()


def test_a_transaction_is_looked_for_at_its_coordinator(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(["Ongoing", "PrepareAbort", "CompleteAbort"])
    asked = []

    def ask_for_state(port: int, *_: object) -> dict[str, object]:
        asked.append(port)
        return {"TransactionStates": [{"TransactionState": next(states)}]}

    monkeypatch.setattr(brokers, "ask", ask_for_state)
    monkeypatch.setattr(Cluster, "coordinator", lambda *_: (7, {"LeaderId": 1}))
    cluster.wait_transaction("t", {"CompleteAbort", "CompleteCommit"})
    assert asked == [cluster[1].port] * 3


@pytest.mark.parametrize(("size", "replication"), [(1, 1), (4, 3)])
def test_a_topic_has_one_partition_on_up_to_three_brokers_unless_its_replicas_are_named(
    size: int, replication: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path / "c", size=size)
    asked = []

    def created(_: int, api: str, *given: Any) -> dict[str, object]:
        asked.append((api, given[1]["Topics"][0]))
        return {"Topics": [{"ErrorCode": 0}]}

    monkeypatch.setattr(brokers, "ask", created)
    monkeypatch.setattr(Cluster, "controller_port", lambda _: 1)
    monkeypatch.setattr(Cluster, "partitions", lambda *_: [{}])
    monkeypatch.setattr(Cluster, "_leads", lambda *_: True)
    cluster.create_topic("t", configs={"cleanup.policy": "compact"})
    cluster.create_topic("u", replicas=[[1]])
    configs = [{"Name": "cleanup.policy", "Value": "compact"}]
    first = {"Name": "t", "NumPartitions": 1, "ReplicationFactor": replication, "Configs": configs}
    assigned = [{"PartitionIndex": 0, "BrokerIds": [1]}]
    second = {"Name": "u", "NumPartitions": -1, "ReplicationFactor": -1, "Configs": [], "Assignments": assigned}
    assert asked == [("CreateTopics", first), ("CreateTopics", second)]


def test_a_coordinator_is_waited_for_until_its_partition_has_a_leader(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = iter([None, {"LeaderId": 1}])
    monkeypatch.setattr(brokers, "ask", lambda *_: {})
    monkeypatch.setattr(Cluster, "any_port", lambda _: 1)
    monkeypatch.setattr(Cluster, "leader", lambda *_: next(rows))
    number, row = cluster.coordinator("t")
    assert (number, row) == (
        coordinator_partition("t", int(brokers.SETTINGS["transaction.state.log.num.partitions"])),
        {"LeaderId": 1},
    )


def test_the_copied_logs_are_those_with_records_and_the_files_that_say_where_they_begin(
    cluster: Cluster, tmp_path: Path
) -> None:
    (data,) = cluster.brokers[0].all_data
    contents = {"t-0": b"records", "empty-0": b"", "__cluster_metadata-0": b"records"}
    for name, content in contents.items():
        (data / name).mkdir(parents=True)
        (data / name / "00000000000000000000.log").write_bytes(content)
    for name in (*KEPT_FILES, "another-file"):
        (data / name).write_text(name, encoding="utf-8")
    cluster.copy_logs(tmp_path / "copies", "node-")
    assert {path.name for path in (tmp_path / "copies" / "node-1").iterdir()} == {"t-0", *KEPT_FILES}


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
@pytest.mark.thorough  # takes long
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
