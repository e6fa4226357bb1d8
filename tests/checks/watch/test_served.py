"""A watcher on sockets: plain, behind TLS and SASL PLAIN, and killed with kill -9."""

import json
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.brokers.brokers import HOST, Cluster, free_ports, java_command
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.conform.security import Security
from kafka_eos_checks.conform.wire import Wire, address_of
from kafka_eos_checks.testing.in_process_broker import InProcessBroker
from kafka_eos_checks.testing.process import ServedProcess
from kafka_eos_checks.watch.advice import Tools
from kafka_eos_checks.watch.cluster import Cluster as AskedCluster
from kafka_eos_checks.watch.journal import REPORTS


@contextmanager
def served(advertised: str = "127.0.0.1") -> Iterator[str]:
    """The bootstrap address of two brokers without verification, with a topic of two partitions."""
    arguments = ("--brokers", "2", "--transaction-version", "1", "--verification", "off", "--default-partitions", "2")
    with ServedProcess(*arguments, "--advertised-host", advertised) as server:
        bootstrap = server.bootstrap.replace(advertised, "127.0.0.1")
        wire = Wire(address_of(bootstrap))
        wire.connect()
        wire.ask("Metadata", {"Topics": [{"Name": "orders"}], "AllowAutoTopicCreation": True})
        wire.close()
        yield bootstrap


def test_the_cluster_that_operators_practise_with_hangs_where_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = str(tmp_path / "copy")
    assert main(["lab", "generate", made, *shlex.split("--transactions 2000 --clients 8 --faults 1 --seed 7")]) == 0
    with ServedProcess("--data", f"{made}/brokers/1") as server:
        assert main(["watch", "--bootstrap", server.bootstrap, "--once", "--lag-after", "5"]) == 1
    printed = capsys.readouterr().out
    assert "hanging transaction: generated-0 offset 6429 " in printed
    assert printed.endswith("abort --topic=generated --partition=0 --start-offset=6429\n")


def test_a_log_with_offsets_that_go_back_is_watched_to_its_end_and_each_report_comes_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = str(tmp_path / "copy")
    assert main(["lab", "generate", made, *shlex.split("--transactions 2000 --clients 8 --faults 1 --seed 7")]) == 0
    capsys.readouterr()
    with ServedProcess("--data", f"{made}/brokers/1") as server:
        assert main(["watch", "--bootstrap", server.bootstrap, "--once", "--from-start", "--jsonl"]) == 1
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    once = [(row["rule"], row["topic"], row["partition"], row["offset"], row["evidence"]) for row in reports]
    assert len(once) == len(set(once))
    assert {row["rule"] for row in reports} >= {"order", "duplicate", "hanging transaction"}


class Client:
    """A client that writes batches to ``orders`` that no client library would write."""

    def __init__(self, bootstrap: str) -> None:
        self.wire = Wire(address_of(bootstrap), Security())
        self.wire.connect()
        topics = self.wire.ask("Metadata", {"Topics": None})
        nodes = {row["NodeId"]: address_of(f"{row['Host']}:{row['Port']}") for row in topics["Brokers"]}
        [topic] = [row for row in topics["Topics"] if row["Name"] == "orders"]
        self.leaders = {row["PartitionIndex"]: nodes[row["LeaderId"]] for row in topic["Partitions"]}

    def init(self, name: str | None) -> tuple[int, int]:
        asked = {"TransactionalId": name, "TransactionTimeoutMs": 60_000}
        for _ in range(300):
            rows = [self.wire.ask("InitProducerId", asked, at=at, version=4) for at in set(self.leaders.values())]
            done = [row for row in rows if not row["ErrorCode"]]  # one of the brokers is the coordinator
            if done:
                return done[0]["ProducerId"], done[0]["ProducerEpoch"]
            # loading, not chosen yet, or still at the transaction before
            assert {row["ErrorCode"] for row in rows} & {14, 16, 51}, "it is not only busy"
            time.sleep(0.1)
        raise AssertionError("no coordinator within half a minute")

    def produce(self, partition: int, producer: tuple[int, int], sequence: int, name: str | None = None) -> int:
        batch = build_batch(
            [Record(value=b"v")],
            base_timestamp=1_700_000_000_000,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=name is not None,
        )
        row = self.wire.ask(
            "Produce",
            {
                "TransactionalId": name,
                "Acks": -1,
                "TimeoutMs": 1000,
                "TopicData": [
                    {"Name": "orders", "PartitionData": [{"Index": partition, "Records": batch.encode()}]}
                ],
            },
            at=self.leaders[partition],
            version=9,
        )  # fmt: skip
        part = row["Responses"][0]["PartitionResponses"][0]
        assert part["ErrorCode"] == 0, part
        return int(part["BaseOffset"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()


def test_late_data_of_a_fenced_producer_hang_and_block_readers(capsys: pytest.CaptureFixture[str]) -> None:
    with served() as bootstrap, Client(bootstrap) as client:
        zombie = client.init("x")
        assert client.init("x")[1] > zombie[1]
        client.produce(0, zombie, 0, "x")  # nobody has asked the coordinator to add the partition
        client.produce(0, client.init(None), 0)
        assert main(["watch", "--bootstrap", bootstrap, "--once", "--lag-after", "0"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    [line] = lines
    assert " hanging transaction: " in line
    assert "epoch 0 is fenced, its data came late or their marker was left out" in line


def hang(client: Client, name: str) -> None:
    """Write late data of a fenced producer, without adding the partition to a transaction."""
    zombie = client.init(name)
    client.init(name)
    client.produce(0, zombie, 0, name)


def rows(capsys: pytest.CaptureFixture[str], bootstrap: str, folder: Path, code: int) -> list[dict[str, Any]]:
    """The watcher's reports of one look at a cluster; the next look continues from there."""
    options = ["--once", "--jsonl", "--hanging-after", "0", "--lag-after", "1e6", "--checkpoint", str(folder)]
    assert main(["watch", "--bootstrap", bootstrap, *options]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.java
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `make setup` fetches them")
def test_the_command_of_a_report_ends_the_transaction_and_the_report_is_resolved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served() as bootstrap, Client(bootstrap) as client:
        hang(client, "it's x")
        run_the_command_and_look_again(bootstrap, tmp_path, capsys)


@pytest.mark.java
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `make setup` fetches them")
def test_the_command_that_keeps_records_prints_all_parts_of_them_and_ends_though_more_come() -> None:
    topic = "-weird.-_"
    with ServedProcess("--default-partitions", "1") as server:
        wire = Wire(address_of(server.bootstrap))
        wire.connect()
        wire.ask("Metadata", {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": True})
        whole = Record(key=b"k", headers=((b"h", b"x"),))
        records = [replace(whole, value=b"v%d" % number, offset_delta=number) for number in range(9)]
        batch = build_batch(records, base_timestamp=1_700_000_000_000)
        partition = {"Index": 0, "Records": batch.encode()}
        row = {"Acks": -1, "TimeoutMs": 1000, "TopicData": [{"Name": topic, "PartitionData": [partition]}]}
        answer = wire.ask("Produce", {"TransactionalId": None, **row}, version=9)
        assert answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0
        wire.close()
        _, *arguments = shlex.split(Tools(bootstrap=server.bootstrap).records(topic, 0, 2, 5))
        called = java_command("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments)
        printed = subprocess.run(called, check=True, capture_output=True, text=True, timeout=60).stdout
    deprecated, *lines = printed.splitlines()
    assert deprecated.startswith("Option --property is deprecated")
    assert lines == [
        f"CreateTime:1700000000000\tPartition:0\tOffset:{offset}\th:x\tk\tv{offset}" for offset in (2, 3, 4)
    ]


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `make setup` fetches them")
def test_the_command_of_a_report_also_ends_a_transaction_on_a_real_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"transaction.partition.verification.enable": "false"}
    with Cluster(tmp_path / "c", features={"transaction.version": 1}, settings=settings) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.coordinator("x")
        bootstrap = f"{HOST}:{cluster.any_port()}"
        with Client(bootstrap) as client:
            hang(client, "x")
            run_the_command_and_look_again(bootstrap, tmp_path / "w", capsys)


def run_the_command_and_look_again(bootstrap: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [report] = rows(capsys, bootstrap, folder, 1)
    tool, *arguments = shlex.split(report["command"])
    assert (report["rule"], report["ends"], tool) == ("hanging transaction", "never", "kafka-transactions")
    assert rows(capsys, bootstrap, folder, 1) == [], "it is not over, and its row is there already"
    called = java_command("org.apache.kafka.tools.TransactionsCommand", *arguments)
    subprocess.run(called, check=True, capture_output=True, timeout=60)
    [over] = rows(capsys, bootstrap, folder, 0)
    assert (over["resolves"], over["number"]) == (report["id"], 2)
    assert "aborted by the marker" in over["evidence"]


def test_a_broker_that_comes_back_is_read_again(tmp_path: Path) -> None:
    data, [port] = ("--data", str(tmp_path / "data")), free_ports(1)
    fixed = ("--port", str(port), "--verification", "off", "--transaction-version", "1", *data)
    command = [sys.executable, "-m", "kafka_eos_checks.cli", "watch", "--bootstrap", f"127.0.0.1:{port}", "--jsonl"]
    options = ["--hanging-after", "0", "--lag-after", "1e6"]
    with ServedProcess(*fixed) as server:
        wire = Wire(address_of(server.bootstrap))
        wire.connect()
        wire.ask("Metadata", {"Topics": [{"Name": "orders"}], "AllowAutoTopicCreation": True})
        wire.close()
        watcher = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert watcher.stdout is not None
        assert watcher.stderr is not None
        try:
            with Client(server.bootstrap) as client:
                hang(client, "x")
            assert json.loads(watcher.stdout.readline())["transactional_id"] == "x"
            assert "watching 9 partitions, and silent while nothing is wrong" in watcher.stderr.readline()
            server.end(signal.SIGKILL)
            assert "asked again in 1 s" in watcher.stderr.readline()
            with ServedProcess(*fixed) as again, Client(again.bootstrap) as client:
                hang(client, "y")
                rows_after = map(json.loads, watcher.stdout)
                blind = list(takewhile(lambda row: row.get("transactional_id") != "y", rows_after))
        finally:
            watcher.terminate()
            _, told = watcher.communicate(timeout=20)
    assert {row["kind"] for row in blind} == {"not judged"}
    begun, over = ([row for row in blind if ("resolves" in row) is ended] for ended in (False, True))
    assert {row["id"] for row in begun} == {row["resolves"] for row in over}
    assert len([row for row in begun if row["rule"] == "not read"]) >= 9, "each partition"
    assert "again, after" in told
    assert watcher.returncode == 1


def test_a_leader_tells_of_a_transaction_that_begins_with_the_log_and_of_no_idle_producer() -> None:
    with served() as bootstrap, Client(bootstrap) as client:
        open_one, idle = client.init("x"), client.init(None)
        client.produce(0, open_one, 0, "x")
        client.produce(0, idle, 0)
        cluster = AskedCluster([address_of(bootstrap)], Security())
        node = cluster.topics().leaders["orders", 0]
        assert cluster.open_transactions(node, ("orders", 0)) == {open_one[0]: 0}
        cluster.close()


def test_a_healthy_cluster_has_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    with served() as bootstrap, Client(bootstrap) as client:
        producer = client.init(None)
        for sequence in range(5):
            client.produce(1, producer, sequence)
        assert main(["watch", "--bootstrap", bootstrap, "--once", "--from-start"]) == 0
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "5 batches, 0 reports" in streams.err


def test_a_broker_that_answers_each_fetch_with_an_error_is_named_and_what_it_leads_is_not_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with InProcessBroker(tmp_path / "broker") as broker:
        broker.create_topic("orders")
        refused = broker.fault("error", api="Fetch", error="UNKNOWN_SERVER_ERROR")
        assert main(["watch", "--bootstrap", broker.bootstrap_servers, "--topic", "orders", "--once"]) == 2
        assert refused.fired < 5, "it is asked again after a wait"
    said = capsys.readouterr().err
    assert "orders-0 is not read: Fetch: UNKNOWN_SERVER_ERROR; asked again in 1 s\n" in said
    assert "not read: orders-0\n" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bootstrap", "nowhere"], "is not HOST:PORT"),
        (["--bootstrap", "127.0.0.1:1"], "127.0.0.1:1: "),
        (["--bootstrap", "127.0.0.1:1", "--command-config", "{folder}/gone"], "gone"),
    ],
)
def test_a_call_that_cannot_be_used_exits_with_2(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", *(word.format(folder=tmp_path) for word in arguments)]) == 2
    assert said in capsys.readouterr().err


# --- kill -9 ---------------------------------------------------------------------------------------------------------


def test_a_watcher_that_is_killed_again_and_again_reports_each_hanging_transaction_once(tmp_path: Path) -> None:
    with served() as bootstrap, Client(bootstrap) as client:
        offsets = []
        for number in range(4):
            producer = client.init(f"x{number}")
            offsets.append(client.produce(0, producer, 0, f"x{number}"))
            options = ["--hanging-after", "0", "--lag-after", "1e6", "--from-start", "--checkpoint", str(tmp_path)]
            process = subprocess.Popen(
                [sys.executable, "-m", "kafka_eos_checks.cli", "watch", "--bootstrap", bootstrap, *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                if number < 3:
                    time.sleep((0.6, 1.1, 1.6)[number])  # at whatever step it is then
                else:
                    wait_for(lambda: len(reports(tmp_path)) >= 4)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait(10)
    found = reports(tmp_path)
    assert sorted(row["offset"] for row in found) == offsets
    assert {row["rule"] for row in found} == {"hanging transaction"}


def reports(folder: Path) -> list[dict[str, Any]]:
    path = folder / REPORTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


# --- TLS and SASL ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.2 and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    key, made = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.2 "
    command += f"-keyout {key} -out {made}"
    try:
        subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    return made, key


class Gateway:
    """A gateway before a broker: terminates TLS, asks for a password, and passes the rest on."""

    def __init__(self, ports: list[int], certificate: tuple[Path, Path]) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*certificate)
        self._listeners = [socket.create_server(("127.0.0.2", port)) for port in ports]
        for listener, port in zip(self._listeners, ports, strict=True):
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def close(self) -> None:
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket, port: int) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection, port), daemon=True).start()

    def _serve(self, connection: socket.socket, port: int) -> None:
        with suppress(OSError), self._tls.wrap_socket(connection, server_side=True) as client:
            known = False
            with socket.create_connection(("127.0.0.1", port)) as broker:
                while True:
                    frame = receive(client)
                    api = int.from_bytes(frame[:2], "big")
                    if api == 17:
                        send(client, frame[4:8] + b"\0\0" + b"\0\0\0\1\0\5PLAIN")
                    elif api == 36:
                        known = frame.endswith(b"\0alice\0secret")
                        send(client, frame[4:8] + (b"\0\0\0\0\0\0\0\0" if known else b"\0\x3a\0\2no\0\0\0\0"))
                    elif known or api == 18:
                        send(broker, frame)
                        send(client, receive(broker))
                    else:
                        return


def send(to: socket.socket, frame: bytes) -> None:
    to.sendall(len(frame).to_bytes(4, "big") + frame)


def receive(of: socket.socket) -> bytes:
    def take(count: int) -> bytes:
        data = b""
        while len(data) < count:
            some = of.recv(count - len(data))
            if not some:
                raise ConnectionError
            data += some
        return data

    return take(int.from_bytes(take(4), "big"))


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({}, 0, "10 partitions, 0 batches, 0 reports"),
        ({"password": "wrong"}, 2, "no"),
        ({"truststore": ""}, 2, "CERTIFICATE_VERIFY_FAILED"),
    ],
    ids=["alice", "a wrong password", "nobody vouches for the certificate"],
)
def test_a_cluster_behind_tls_and_a_password_is_read_with_the_properties_of_kafkas_tools(
    changes: dict[str, str],
    code: int,
    said: str,
    certificate: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    password = changes.get("password", "secret")
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{password}";'
    truststore = changes.get("truststore", f"ssl.truststore.type=PEM\nssl.truststore.location={certificate[0]}\n")
    config = tmp_path / "client.properties"
    config.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n{truststore}")
    with served(advertised="127.0.0.2") as bootstrap:
        ports = [int(word.rpartition(":")[2]) for word in bootstrap.split(",")]
        gateway = Gateway(ports, certificate)
        try:
            through = bootstrap.replace("127.0.0.1", "127.0.0.2")
            assert main(["watch", "--bootstrap", through, "--command-config", str(config), "--once"]) == code
        finally:
            gateway.close()
    assert said in capsys.readouterr().err
