"""The audit of a real broker's log directory under load, in place and as copies that were made meanwhile.

A healthy broker has no finding, and what hangs or is torn is found.
"""

import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.moments import GRACE_MS, LAG_MS, SKEW_MS
from kafka_eos_checks.audit.rules.epochs import LEADER_EPOCHS
from kafka_eos_checks.audit.rules.transactions.names import HANGING, TORN
from kafka_eos_checks.brokers.brokers import HOST, Broker, Cluster, ask
from kafka_eos_checks.brokers.jars import have_jars

kafka = pytest.importorskip("confluent_kafka", reason="the extra 'record' is not installed")
pytestmark = [
    pytest.mark.broker,
    pytest.mark.thorough,
    pytest.mark.skipif(not have_jars(), reason="Kafka's jars are not here; make test fetches them"),
]
TOPICS = [f"orders-{number}" for number in range(4)]
SECONDS = 30.0
TIMES = 10  # audits of each kind
SETTINGS = {
    "transaction.state.log.num.partitions": "50",
    "transaction.partition.verification.enable": "false",  # so that a late batch is taken
}


def producer(bootstrap: str, transactional_id: str) -> "kafka.Producer":
    made = kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 2})
    made.init_transactions(SECONDS)
    return made


def work(number: int, bootstrap: str, stop: threading.Event) -> None:
    """Commit and abort transactions over two partitions each, as one instance after the other."""
    dice = random.Random(number)
    while not stop.is_set():
        own = producer(bootstrap, f"load-{number}")
        for _ in range(50):
            if stop.wait(0.05):
                return
            own.begin_transaction()
            for topic in dice.sample(TOPICS, 2):
                for _ in range(3):
                    own.produce(topic, "v", partition=dice.randrange(2))
            own.flush(SECONDS)
            (own.abort_transaction if dice.random() < 0.2 else own.commit_transaction)(SECONDS)


@contextmanager
def load(bootstrap: str, clients: int) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(number, bootstrap, stop)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker under load."""
    with Cluster(tmp_path_factory.mktemp("live") / "cluster", settings=SETTINGS) as cluster:
        for topic in (*TOPICS, "idle"):
            cluster.create_topic(topic, 2)
        broker = cluster[1]
        with load(f"{HOST}:{broker.port}", 6):
            time.sleep(8)
            yield broker


def copy_of(broker: Broker, folder: Path, how: str = "-r") -> Path:
    """A copy as ``cp -r`` makes it, file after file, while the broker writes; files may vanish under it."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", how, str(broker.data), str(folder)], check=False, capture_output=True)
    return folder


def test_a_healthy_broker_under_load_has_no_finding_in_place_or_copied(
    loaded: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recent = 0
    for _ in range(TIMES):
        for folder in (loaded.data, *(copy_of(loaded, tmp_path / how, how) for how in ("-r", "-a"))):
            code, said = cli.main(["audit", str(folder)]), capsys.readouterr().out
            assert code == 0, said
            recent += "too recent to judge" in said
    assert recent, "no copy was of different moments, so nothing was tried"
    assert sum(log.batches for log in run([loaded.data]).logs) > 5_000


def commit_behind_an_abort_by_hand(broker: Broker) -> int:
    """Tear a transaction; the offset of its first record in the partition that was aborted by hand."""
    own, offsets = producer(f"{HOST}:{broker.port}", "torn"), {}
    own.begin_transaction()
    for topic in TOPICS[:2]:
        own.produce(topic, "v", partition=0, on_delivery=lambda _, sent: offsets.update({sent.topic(): sent.offset()}))
    own.flush(SECONDS)
    where = ("--topic", TOPICS[0], "--partition", "0", "--start-offset", str(offsets[TOPICS[0]]))
    bootstrap = ("--bootstrap-server", f"{HOST}:{broker.port}")
    broker.run_tool("org.apache.kafka.tools.TransactionsCommand", *bootstrap, "abort", *where)
    own.commit_transaction(SECONDS)
    return offsets[TOPICS[0]]


def write_late(broker: Broker, topic: str) -> int:
    """Append a batch to a transaction that is over; its offset."""
    name = f"late-{topic}"
    own = producer(f"{HOST}:{broker.port}", name)
    own.begin_transaction()
    own.produce(topic, "v", partition=0)
    own.flush(SECONDS)
    own.commit_transaction(SECONDS)
    asked = {"TransactionalIds": [name]}
    [state] = ask(broker.port, "DescribeTransactions", 0, asked)["TransactionStates"]
    late = build_batch(
        [Record(value=b"late")],
        producer_id=state["ProducerId"],
        producer_epoch=state["ProducerEpoch"],
        base_sequence=1,
        base_timestamp=time.time_ns() // 1_000_000,
        is_transactional=True,
    )
    data = [{"Name": topic, "PartitionData": [{"Index": 0, "Records": late.encode()}]}]
    answer = ask(broker.port, "Produce", 9, {"TransactionalId": name, "Acks": -1, "TimeoutMs": 5000, "TopicData": data})
    [written] = answer["Responses"][0]["PartitionResponses"]
    assert written["ErrorCode"] == 0
    return int(written["BaseOffset"])


def found(result: Audit) -> set[tuple[str, str, int | None]]:
    return {(finding.rule, finding.topic, finding.offset) for finding in result.findings}


def test_hanging_and_torn_transactions_are_found_under_load(loaded: Broker, tmp_path: Path) -> None:
    first = commit_behind_an_abort_by_hand(loaded)
    late = {topic: write_late(loaded, topic) for topic in (TOPICS[3], "idle")}
    time.sleep(LAG_MS / 1000 + 16)  # the checkpoint of high watermarks is written every 5 s
    busy = (HANGING, TOPICS[3], late[TOPICS[3]])
    idle = (HANGING, "idle", late["idle"])
    for _ in range(3):
        torn, *others = sorted(found(run([loaded.data])), key=lambda each: each[0] != TORN)
        assert torn[:2] == (TORN, TOPICS[0])
        assert (torn[2] or 0) > first
        assert set(others) == {busy, idle}
        copied = run([copy_of(loaded, tmp_path / "copy")])
        assert {torn, busy} <= found(copied) <= {torn, busy, idle}
        # Nothing was written to the idle partition later, so its copy may be of before the end of the transaction.
        told = {(note.topic, note.offset) for note in copied.notes if note.kind != Kind.TOLD}
        assert ("idle", late["idle"]) in told or idle in found(copied)
        timed = run([copy_of(loaded, tmp_path / "copy", "-a")])
        assert found(timed) == {torn, busy, idle}, "it kept the times of files"


def commit(broker: Broker) -> None:
    """Run a transaction over both partitions of a topic."""
    own = producer(f"{HOST}:{broker.port}", "whole")
    own.begin_transaction()
    for number in range(2):
        own.produce("emptied", "v", partition=number)
    own.commit_transaction(SECONDS)


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_a_log_that_was_emptied_and_filled_again_begins_with_a_later_leader(
    end: Callable[[Broker], None], tmp_path: Path
) -> None:
    with Cluster(tmp_path / "cluster", settings=SETTINGS) as cluster:
        cluster.create_topic("emptied", 2)
        broker = cluster[1]
        commit(broker)
        time.sleep(SKEW_MS / 1000 + 1)
        commit(broker)
        # Kafka 4.3 may leave out the markers that are not written when it is killed: finding no-leader-no-marker.
        cluster.wait_transaction("whole", {"CompleteCommit"})
        end(broker)
        for file in (broker.data / "emptied-1").iterdir():
            if file.name != PARTITION_METADATA:
                file.unlink()
        broker.start()
        cluster.wait_ready()
        commit(broker)
        broker.stop()
        audit = run([broker.data])
        assert audit.findings == ()
        assert {each.name: each.unjudged_for for each in audit.verdicts}[TORN] == {"made-again": 2}
        longest_ms = -GRACE_MS  # of transactions that take no time the second has begun after the topic was there
        rules = [each.rule for each in run([broker.data], longest_ms=longest_ms).findings]
        assert rules.count(TORN) == 1


def ends_of_leaders(broker: Broker, epochs: range) -> list[tuple[int, int]]:
    """The answers of a leader about each epoch: the last epoch up to it, and where the log of that one ends."""
    found = []
    for epoch in epochs:
        asked = {"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": epoch}
        request = {"ReplicaId": -1, "Topics": [{"Topic": TOPICS[0], "Partitions": [asked]}]}
        [row] = ask(broker.port, "OffsetForLeaderEpoch", 3, request)["Topics"][0]["Partitions"]
        found.append((row["LeaderEpoch"], row["EndOffset"]))
    return found


def test_a_broker_believes_a_wrong_line_of_leader_epochs_until_it_has_neither_the_file_nor_indexes(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.create_topic(TOPICS[0], 1)
        broker = cluster[1]
        file = broker.data / f"{TOPICS[0]}-0" / LEADER_EPOCH_CHECKPOINT

        def restart() -> None:
            broker.start()
            cluster.wait_ready()
            cluster.wait_leader(TOPICS[0], 0, other_than=-1)

        def found() -> tuple[str, list[Finding]]:
            """The verdict on the stopped broker, with its findings."""
            broker.stop()
            result = run([broker.data])
            [verdict] = [each for each in result.verdicts if each.name == LEADER_EPOCHS]
            return verdict.standing, [each for each in result.findings if each.rule == LEADER_EPOCHS]

        for _ in range(3):
            sender = kafka.Producer({"bootstrap.servers": f"{HOST}:{broker.port}", "log_level": 0})
            for _ in range(20):
                sender.produce(TOPICS[0], "v", partition=0)
            assert sender.flush(SECONDS) == 0
            assert found() == ("ok", [])
            restart()
        known = range(int(file.read_text().splitlines()[-1].split()[0]))
        right = ends_of_leaders(broker, known)
        broker.stop()
        version, count, first, _, *rest = file.read_text().splitlines()
        file.write_text("\n".join([version, str(int(count) - 1), first, *rest, ""]))
        restart()
        wrong = ends_of_leaders(broker, known)
        assert wrong != right, "followers are told another end of the first leader's log"
        standing, [finding] = found()
        assert (standing, finding.offset) == ("FAIL", right[0][1])
        file.unlink()
        restart()
        assert found()[0] == "not judged", "the broker has not read its batches"
        file.unlink()
        for index in file.parent.glob("*.index"):
            index.unlink()
        restart()
        assert ends_of_leaders(broker, known) == right
        assert found() == ("ok", [])
