"""``kafka-eos serve`` with real clients: librdkafka, and Kafka's own tools if the jars are there."""

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.formats.log_directory import cluster_id
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.histories.history import Event, read_history, write_history
from kafka_eos.machines.consumer import Consumer
from kafka_eos.machines.group_coordinator import GroupCoordinator
from kafka_eos.machines.leader import LeaderRules
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos.machines.transactional_partition import ReadablePartition
from kafka_eos.server.cluster import Limits, Machines, Settings
from kafka_eos.server.faults import Fault, read_plan
from kafka_eos.server.network import Server
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos_checks.brokers.brokers import java_command
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.testing import command, history
from kafka_eos_checks.testing.history import continued
from kafka_eos_checks.testing.process import ServedProcess
from kafka_eos_checks.traces import coordinators, leaders
from kafka_eos_checks.traces.validation import replay

confluent = pytest.importorskip("confluent_kafka", reason="the clients are in the extra `record`")
confluent_admin = pytest.importorskip("confluent_kafka.admin", reason="the clients are in the extra `record`")
JAVA = pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
SECONDS = 20.0
ROWS = 40


# --- servers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def start() -> Iterator[Callable[..., ServedProcess]]:
    with ExitStack() as started:
        yield lambda *arguments: started.enter_context(ServedProcess(*arguments))


@contextmanager
def moving(cluster: ServedCluster) -> Iterator[None]:
    """A cluster in which each partition gets the next broker as its leader every 0.7 seconds."""
    ended = threading.Event()

    def move_all(server: Server) -> None:
        for leader in list(server.cluster.leaders()):
            server.move_leader(leader.topic, leader.partition)

    def run() -> None:
        while not ended.wait(0.7):
            cluster.call(move_all)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)


# --- librdkafka ------------------------------------------------------------------------------------------------------


def create(bootstrap: str, *topics: str, partitions: int = 2) -> None:
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([confluent_admin.NewTopic(topic, partitions) for topic in topics]).values():
        made.result(SECONDS)


def produce(bootstrap: str, topic: str, rows: int = ROWS) -> None:
    producer = confluent.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for row in range(rows):
        producer.produce(topic, str(row).encode(), partition=row % 2)
    assert producer.flush(SECONDS) == 0


def consumer(bootstrap: str, group: str, isolation: str = "read_committed", protocol: str = "classic") -> Any:
    settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True}
    return confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "group.protocol": protocol,
            **settings,
        }
    )


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """All records that a reader gets, in the order of their values."""
    reader = consumer(bootstrap, "reader", isolation)
    partitions = reader.list_topics(topic, SECONDS).topics[topic].partitions
    reader.assign([confluent.TopicPartition(topic, number, 0) for number in partitions])
    values, open_ends = [], len(partitions)
    while open_ends:
        message = reader.poll(SECONDS)
        assert message is not None, "nothing came"
        if message.error():
            assert message.error().code() == confluent.KafkaError._PARTITION_EOF
            open_ends -= 1
        else:
            values.append(message.value().decode())
    reader.close()
    return sorted(values, key=lambda value: (len(value), value))


def transactional(bootstrap: str, name: str = "x") -> Any:
    producer = confluent.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(SECONDS)
    return producer


def committed_offsets(reader: Any) -> list[Any]:
    """The committed offsets of a reader's assignment; after a move of the coordinator, the caller has to retry."""
    for _ in range(20):
        with suppress(confluent.KafkaException):
            return list(reader.committed(reader.assignment(), SECONDS))
        time.sleep(0.1)
    raise AssertionError("no coordinator")


def copy(bootstrap: str, source: str, target: str, *, aborts: int = 1, protocol: str = "classic") -> int:
    """Copy a topic by transactions, of which the first few are aborted; return their number."""
    reader, producer = consumer(bootstrap, "copier", protocol=protocol), transactional(bootstrap)
    reader.subscribe([source])
    copied = transactions = 0
    while copied < ROWS:
        messages = [m for m in reader.consume(10, 1) if not m.error()]
        if not messages:
            continue
        transactions += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        producer.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata())
        if transactions <= aborts:
            producer.flush(SECONDS)
            producer.abort_transaction(SECONDS)
            for committed in committed_offsets(reader):
                committed.offset = max(committed.offset, 0)
                reader.seek(committed)
        else:
            producer.commit_transaction(SECONDS)
            copied += len(messages)
    reader.close()
    return transactions


def all_once(bootstrap: str, protocol: str = "classic") -> None:
    """Run librdkafka: produce, copy with an abort, read; every record must be there once."""
    create(bootstrap, "in", "out")
    produce(bootstrap, "in")
    copy(bootstrap, "in", "out", protocol=protocol)
    assert read(bootstrap, "out") == [str(row) for row in range(ROWS)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--transaction-version", "2"),
        ("--transaction-version", "1", "--brokers", "3"),
        ("--transaction-version", "0", "--verification", "off"),
    ],
)
def test_librdkafka_copies_a_topic_exactly_once(
    start: Callable[..., ServedProcess], arguments: tuple[str, ...]
) -> None:
    server = start(*arguments)
    all_once(server.bootstrap)
    assert len(read(server.bootstrap, "out", "read_uncommitted")) > ROWS  # aborted records are there too
    assert server.end() == 0


def aborted_copy(bootstrap: str) -> tuple[bool, list[str]]:
    """Copy a topic in an aborted transaction: whether the offsets moved, and the records that a reader gets."""
    create(bootstrap, "in", "out")
    produce(bootstrap, "in")
    reader, producer = consumer(bootstrap, "copier"), transactional(bootstrap)
    reader.subscribe(["in"])
    messages: list[Any] = []
    while not messages:
        messages = [m for m in reader.consume(ROWS, 1) if not m.error()]
    producer.begin_transaction()
    producer.produce("out", b"aborted")
    producer.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata())
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)
    went_on = any(place.offset > 0 for place in reader.committed(reader.assignment(), SECONDS))
    reader.close()
    return went_on, read(bootstrap, "out")


def test_a_history_of_other_files_is_not_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, data = tmp_path / "served.jsonl", tmp_path / "data"
    record.write_text("{}\n", encoding="utf-8")
    call = ["serve", "--port", "0", "--record", str(record)]
    for arguments, place in ((call, "memory"), ([*call, "--data", str(data)], str(data))):
        assert main(arguments) == 2
        assert f"{record} has a history already, and {place} has no files that it is of" in capsys.readouterr().err
    data.mkdir()
    (data / "meta.properties").write_text("cluster.id=mine\n")
    note = '"process":"cluster","action":"Note","phase":"ok","order":0,"detail":{"cluster":"other"}}\n'
    for line, wrong in (
        ("{}\n", "missing column"),
        (f'{{"run":"orders",{note}', "no event that a server recorded, of run 'serve'"),
        (f'{{"run":"serve",{note}', "a history of cluster other, and the files are of cluster mine"),
    ):
        record.write_text(line, encoding="utf-8")
        assert main([*call, "--data", str(data)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"kafka-eos serve: {record}:1: {wrong}")
        assert said.endswith(f"{wrong}\n") or wrong == "missing column"
        assert record.read_text(encoding="utf-8") == line


def test_a_history_that_another_server_writes_is_not_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, data = tmp_path / "served.jsonl", tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").touch()
    with command._opened(record) as other:
        other.write('{"run":"ser')
        other.flush()
        assert main(["serve", "--port", "0", "--record", str(record), "--data", str(data)]) == 2
    assert f"{record}: another server writes its history there" in capsys.readouterr().err
    assert record.read_text(encoding="utf-8") == '{"run":"ser'


def test_a_history_goes_on_after_its_last_request_although_most_requests_are_no_events(tmp_path: Path) -> None:
    record = tmp_path / "served.jsonl"
    note = Event(run="serve", process="p", action="Note", phase="ok", order=0, detail={"request": 7})
    write_history(record, [note])
    assert continued(record, "serve", None) == 8


def test_a_server_with_a_long_history_tells_how_much_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, told = tmp_path / "served.jsonl", list[str]()
    write_history(record, [Event(run="serve", process="p", action="Note", phase="ok", order=n) for n in range(4)])
    (tmp_path / "meta.properties").touch()
    status = SimpleNamespace(update=told.append)
    monkeypatch.setattr(progress_console, "status", lambda what: nullcontext(told.append(what) or status))
    arguments = argparse.Namespace(record=record, data=tmp_path)
    assert command._first_number(arguments) == 4
    assert told == []
    for each in (command, history):
        monkeypatch.setattr(each, "TOLD_EVERY", record.stat().st_size // 2)
    assert command._first_number(arguments) == 4
    what = f"read {record}, to go on after its last event"
    assert told == [what, f"{what}: 50 %", f"{what}: 100 %"]


def test_requests_and_answers_are_recorded(start: Callable[..., ServedProcess], tmp_path: Path) -> None:
    data, record = tmp_path / "data", tmp_path / "served.jsonl"
    server = start("--data", str(data), "--record", str(record))
    all_once(server.bootstrap)
    server.end()  # a killed one is the next
    before = len(list(read_history(record)))
    with record.open("a", encoding="utf-8") as half:
        half.write('{"run":"ser')
    server = start("--data", str(data), "--record", str(record))
    produce(server.bootstrap, "in", 2)
    server.end(signal.SIGKILL)
    events = list(read_history(record))
    assert [event.order for event in events] == [*range(len(events))]
    one, other = (
        [event.detail["request"] for event in part if "request" in event.detail]
        for part in (events[:before], events[before:])
    )
    assert max(one) < min(other), "no number is given again"
    asked = Counter(event.detail["request"] for event in events if event.phase == "invoke")
    answers = [event for event in events if event.phase != "invoke" and "request" in event.detail]
    assert asked == Counter(event.detail["request"] for event in answers)
    assert {event.detail["broker"] for event in answers} == {"1"}
    assert {event.action for event in events} - {event.action for event in answers} == {"Note", "WriteTxnMarkers"}
    notes = [(event.process, event.detail) for event in events if event.action == "Note"]
    assert notes == [("cluster", {"cluster": cluster_id(data)})]
    ends = [event.detail["committed"] for event in events if (event.action, event.phase) == ("EndTxn", "ok")]
    assert (ends[0], set(ends[1:])) == (False, {True})
    offsets = {(e.topic, e.partition, e.offset) for e in events if (e.action, e.phase) == ("Produce", "ok")}
    batches = {
        (log.parent.name[:-2], int(log.parent.name[-1]), each.batch.base_offset)
        for name in ("in", "out")
        for log in data.glob(f"{name}-?/*.log")
        for each in read_segment(log)
        if isinstance(each, StoredBatch) and not each.batch.is_control
    }
    assert offsets == batches
    assert main(["audit", str(data), "--history", str(record)]) == 0


def test_librdkafka_copies_a_topic_exactly_once_in_a_group_of_kip_848(start: Callable[..., ServedProcess]) -> None:
    server = start("--brokers", "2")
    all_once(server.bootstrap, "consumer")
    assert server.end() == 0


def judged(data: Path) -> list[str]:
    """The reference's verdict on the coordinators' and the partitions' logs, as traces of the spec."""
    logs = coordinators.read_recorded(data)
    assert logs.transactions > 0
    registry = Registry()
    base = registry.get("CoordinatorOfTraces")
    traces = coordinators.coordinator_traces(logs)
    model = coordinators.coordinator_model(base, traces, versions=frozenset({1, 2}))
    machine = mutated(TransactionCoordinator, base.overrides)
    found = [replay(model, machine, trace).found for trace in traces]
    for version, entries in leaders.leader_traces(logs).items():
        rules = leaders.leader_model(registry.get("MarkersVersion2"), entries, version)
        found += [replay(rules, Consumer, trace).found for trace in entries]
    return found


def judgement_of(trace: Any) -> str:
    """The reference's verdict on one coordinator's log."""
    base = Registry().get("CoordinatorOfTraces")
    model = coordinators.coordinator_model(base, [trace], versions=frozenset({1, 2}))
    return replay(model, mutated(TransactionCoordinator, base.overrides), trace).found


def test_the_files_contain_a_behaviour_of_the_spec(start: Callable[..., ServedProcess], tmp_path: Path) -> None:
    server = start("--data", str(tmp_path))
    all_once(server.bootstrap)
    server.end()
    assert set(judged(tmp_path)) == {"accepted"}
    wrong = coordinators.spoiled(coordinators.read_recorded(tmp_path))
    assert wrong
    for trace, place in wrong.values():
        assert judgement_of(trace) == f"rejected at event {place}"


NOTHING_INDEXED = mutated(ReadablePartition, {"IsIndexed": "NothingIndexed"})
MATERIALISED = mutated(GroupCoordinator, {"CommittedAtMarker": "MaterialisedOnAbort"})


@pytest.mark.parametrize(
    ("machines", "seen"),
    [
        (Machines(), (False, [])),
        (Machines(leaders=LeaderRules(partition=NOTHING_INDEXED)), (False, ["aborted"])),  # type: ignore[arg-type]
        (Machines(group=MATERIALISED), (True, [])),  # type: ignore[arg-type]
    ],
    ids=["the rules", "no aborted index", "offsets of aborted transactions"],
)
def test_librdkafka_detects_a_changed_rule(machines: Machines, seen: tuple[bool, list[str]]) -> None:
    with ServedCluster(machines=machines) as cluster:
        assert aborted_copy(cluster.bootstrap_servers) == seen


def test_librdkafka_copies_a_topic_exactly_once_while_every_leader_and_coordinator_moves() -> None:
    with ServedCluster(brokers=3) as cluster, moving(cluster):
        all_once(cluster.bootstrap_servers)


def test_an_instance_that_was_replaced_is_fenced(start: Callable[..., ServedProcess]) -> None:
    server = start()
    bootstrap = server.bootstrap
    create(bootstrap, "out")
    old = transactional(bootstrap)
    old.begin_transaction()
    old.produce("out", b"old")
    old.flush(SECONDS)
    new = transactional(bootstrap)
    new.begin_transaction()
    new.produce("out", b"new")
    new.commit_transaction(SECONDS)
    with pytest.raises(confluent.KafkaException) as caught:
        old.commit_transaction(SECONDS)
    assert caught.value.args[0].fatal()
    assert read(bootstrap, "out") == ["new"]
    assert server.end() == 0
    assert "answered EndTxn INVALID_PRODUCER_EPOCH: 1\n" in server.last_words


def test_a_transaction_outlives_a_kill_of_the_server(start: Callable[..., ServedProcess], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    arguments = ("--data", str(tmp_path / "data"), "--port", port)
    server = start(*arguments)
    create(server.bootstrap, "out")
    producer = transactional(server.bootstrap)
    producer.begin_transaction()
    producer.produce("out", b"before")
    assert producer.flush(SECONDS) == 0
    server.end(signal.SIGKILL)
    started_again = start(*arguments)
    producer.produce("out", b"after")
    producer.commit_transaction(SECONDS)
    assert read(started_again.bootstrap, "out") == ["after", "before"]  # by length
    assert main(["audit", str(tmp_path / "data")]) == 0


# --- Kafka's own tools -----------------------------------------------------------------------------------------------


def java(main_class: str, *arguments: str) -> str:
    done = subprocess.run(java_command(main_class, *arguments), capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@JAVA
@pytest.mark.broker
@pytest.mark.parametrize("version", [pytest.param("1", marks=pytest.mark.thorough), "2"])
def test_kafkas_own_tools_run_and_accept_the_files(
    start: Callable[..., ServedProcess], tmp_path: Path, version: str
) -> None:
    data = tmp_path / "data"
    server = start("--transaction-version", version, "--data", str(data))
    produced = java(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--bootstrap-server", server.bootstrap, "--topic", "in", "--max-messages", "200", "--acks", "-1"),
    )
    assert json.loads(produced.splitlines()[-1])["acked"] == 200
    java(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", server.bootstrap, "--input-topic", "in", "--input-partition", "0", "--output-topic", "out"),
        *("--max-messages", "200", "--consumer-group", "copier", "--transaction-size", "4"),
        *("--transactional-id", "copier", "--enable-random-aborts", "--group-mode"),
    )
    assert read(server.bootstrap, "out") == [str(row) for row in range(200)]
    command = "org.apache.kafka.tools.TransactionsCommand"
    assert "CompleteCommit" in java(command, "--bootstrap-server", server.bootstrap, "list")
    hanging = java(command, "--bootstrap-server", server.bootstrap, "find-hanging", "--topic", "out")
    assert len(hanging.splitlines()) == 1  # the header
    server.end(signal.SIGKILL)
    logs = ",".join(str(log) for log in sorted(data.glob("*/*.log")) if log.stat().st_size)
    dumped = java("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", logs)
    assert "endTxnMarker: ABORT" in dumped
    assert "isvalid: true" in dumped
    assert "isvalid: false" not in dumped
    states = ",".join(str(log) for log in data.glob("__transaction_state-*/*.log") if log.stat().st_size)
    decoded = java("org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", states)
    assert ('"clientTransactionVersion":2' in decoded) == (version == "2")
    assert set(judged(data)) == {"accepted"}
    assert main(["audit", str(data)]) == 0


@JAVA
@pytest.mark.broker
def test_kafkas_tool_for_configurations_alters_and_describes_them(
    start: Callable[..., ServedProcess], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    server = start("--data", str(data))
    create(server.bootstrap, "t")

    def configs(*arguments: str) -> str:
        return java("kafka.admin.ConfigCommand", "--bootstrap-server", server.bootstrap, *arguments)

    topic, brokers = ("--entity-type", "topics", "--entity-name", "t"), ("--entity-type", "brokers")
    altered = configs("--alter", *topic, "--add-config", "max.message.bytes=100,cleanup.policy=[compact,delete]")
    assert "Completed updating config for topic t." in altered
    configs("--alter", *brokers, "--entity-default", "--add-config", "message.max.bytes=5000")
    server.end(signal.SIGKILL)
    server = start("--data", str(data))
    described = configs("--describe", *topic)
    assert "max.message.bytes=100 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=100," in described
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=5000, DEFAULT_CONFIG:message.max.bytes" in described
    assert "cleanup.policy=compact,delete" in described


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_librdkafka_retries_while_markers_are_not_written(
    start: Callable[..., ServedProcess], tmp_path: Path, version: str
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[[fault]]\ndo = "delay-markers"\napi = "EndTxn"\nseconds = 0.2\n', encoding="ascii")
    server = start("--transaction-version", version, "--faults", str(plan))
    create(server.bootstrap, "out")
    producer = transactional(server.bootstrap)
    for row in range(4):
        producer.begin_transaction()
        producer.produce("out", str(row).encode(), partition=0)
        producer.commit_transaction(SECONDS)
    assert read(server.bootstrap, "out") == ["0", "1", "2", "3"]
    assert server.end() == 0
    assert "answered AddPartitionsToTxn CONCURRENT_TRANSACTIONS: " in server.last_words
    assert "delay-markers EndTxn: fired 4 time(s)" in server.last_words


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [((), False), (("--host", "0.0.0.0", "--any-client"), True)],  # noqa: S104 - the address is taken
)
def test_a_used_address_is_reported_and_one_that_others_reach_is_warned_of(
    arguments: tuple[str, ...], warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--port", str(taken.getsockname()[1]), *arguments]) == 2
    said = capsys.readouterr().err
    assert "choose another --port" in said
    assert ("anybody who reaches 0.0.0.0" in said) == warned


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), "--any-client allows it"),  # noqa: S104 - is refused
        (("--host", "broker.example.org"), "--any-client allows it"),
        (("--brokers", "0"), "--brokers is 1 to 100"),
        (("--brokers", "101"), "--brokers is 1 to 100"),
        (("--port", "65535", "--brokers", "2"), "--port is 0 to 65535"),
        (("--max-connections", "0"), "--max-connections is 1 or more"),
        (("--max-frame-bytes", "0"), "--max-frame-bytes is 1 or more"),
        (("--default-partitions", "-1"), "0 or more"),
    ],
)
def test_an_unusable_call_says_why(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["serve", *arguments])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


LIMITS = {field.name: 1000 + place for place, field in enumerate(fields(Limits)) if field.name in command._LIMITS}


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ((), Settings()),
        (("--host", "localhost"), Settings()),
        (("--default-partitions", "3"), Settings(default_partitions=3)),
        (("--transaction-version", "1"), Settings(transactions=TransactionSettings(version=1))),
        (
            [f"--max-{name.replace('_', '-')}={most}" for name, most in LIMITS.items()],
            Settings(limits=replace(Limits(), **LIMITS)),
        ),
    ],
)
def test_a_cluster_has_the_settings_of_the_call_and_otherwise_the_usual_ones(
    arguments: Sequence[str], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Settings] = []

    async def serve(given: argparse.Namespace, *_: object) -> int:
        seen.append(command.settings_of(given))
        return 0

    monkeypatch.setattr(command, "bind", lambda *_: [])
    monkeypatch.setattr(command, "serve", serve)
    assert main(["serve", *arguments]) == 0
    assert seen == [settings]


@pytest.mark.parametrize(
    ("arguments", "ports"),
    [
        (("--brokers", "2"), [9092, 9093]),
        (("--port", "65535"), [65535]),
        (("--port", "65534", "--brokers", "2"), [65534, 65535]),
        (("--port", "0", "--brokers", "2"), [0, 0]),
        (("--port", "0", "--brokers", "100"), [0] * 100),
        (("--port", "9092", "--max-connections", "1", "--default-partitions", "0"), [9092]),
        (("--port", "0", "--record", "{folder}/new/er/served.jsonl"), [0]),
        (("--port", "0", "--record", "{folder}/empty.jsonl"), [0]),
        (("--port", "0", "--faults", "{folder}/plan.toml", "--brokers", "2", "--seed", "x"), [0, 0]),
    ],
)
def test_a_call_at_the_bounds_is_served(
    arguments: tuple[str, ...], ports: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []

    def bind(host: str, ports: list[int]) -> list[socket.socket]:
        seen.append(ports)
        return []

    async def serve(arguments: argparse.Namespace, _sockets: object, _record: object, faults: Any, _first: int) -> int:
        assert (len(faults.tallies), faults._seed) == ((1, "x") if arguments.faults else (0, "0"))
        return 0

    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "plan.toml").write_text("[[fault]]\ndo = 'move-leader'\nto = 2\n", encoding="utf-8")
    monkeypatch.setattr(command, "bind", bind)
    monkeypatch.setattr(command, "serve", serve)
    assert main(["serve", *(word.format(folder=tmp_path) for word in arguments)]) == 0
    assert seen == [ports]


def test_a_damaged_directory_is_reported_and_left_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="ascii")
    assert main(["serve", "--port", "0", "--data", str(tmp_path)]) == 2
    assert "no meta.properties" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_directory_is_served_by_one_process(start: Callable[..., ServedProcess], tmp_path: Path) -> None:
    first = start("--data", str(tmp_path))
    command = [sys.executable, "-m", "kafka_eos_checks.cli", "serve", "--port", "0", "--data", str(tmp_path)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (second.returncode, "another process serves it" in second.stderr) == (2, True)
    first.end(signal.SIGKILL)
    assert start("--data", str(tmp_path)).end() == 0


@pytest.mark.parametrize(
    ("arguments", "hosts", "version"),
    [
        ((), ["127.0.0.1"], 2),
        (("--brokers", "2", "--transaction-version", "1", "--advertised-host", "localhost"), ["localhost"] * 2, 1),
    ],
)
def test_the_server_prints_its_address_and_its_settings(
    arguments: tuple[str, ...], hosts: list[str], version: int, start: Callable[..., ServedProcess]
) -> None:
    server = start(*arguments)
    said = re.fullmatch(r"ready: bootstrap\.servers=(\S+) \((.*)\)\n", server.ready)
    assert said is not None
    assert [re.sub(r":\d+$", "", each) for each in said[1].split(",")] == hosts
    assert said[2] == f"transaction.version {version}, in memory"
    assert server.end(signal.SIGINT) == 0


# --- faults ----------------------------------------------------------------------------------------------------------

PLAN = """
[[fault]]  # the first answer to a commit is lost
do = "drop-answer"
api = "EndTxn"
nth = 1

[[fault]]  # the coordinator crashes between a decision and its markers
do = "kill-broker"
api = "EndTxn"
nth = 4
when = "after"
seconds = 0.3

[[fault]]
do = "error"
api = "Produce"
nth = [2, 5]
error = "NOT_LEADER_OR_FOLLOWER"

[[fault]]
do = "repeat"
api = "Produce"
chance = 0.3

[[fault]]
do = "move-coordinator"
api = "TxnOffsetCommit"
nth = 3

[[fault]]
do = "restart"
api = "InitProducerId"
client = "rdkafka"
nth = 2
"""


def test_librdkafka_copies_a_topic_exactly_once_under_a_plan_of_faults(
    start: Callable[..., ServedProcess], tmp_path: Path
) -> None:
    plan, data, record = tmp_path / "plan.toml", tmp_path / "data", tmp_path / "served.jsonl"
    plan.write_text(PLAN, encoding="utf-8")
    arguments = ("--brokers", "2", "--faults", str(plan), "--seed", "7")
    server = start(*arguments, "--data", str(data), "--record", str(record))
    all_once(server.bootstrap)
    assert server.end() == 0
    fired = dict(re.findall(r"fault (\d): .*: fired (\d+) time", server.last_words))
    assert fired.pop("4") != "0"
    assert fired == {"1": "1", "2": "1", "3": "2", "5": "1", "6": "1"}, server.last_words
    spoiled = Counter(event.detail.get("fault") for event in read_history(record) if event.phase == "invoke")
    assert (spoiled["drop-answer"], spoiled["error"]) == (1, 2)
    assert set(judged(data)) == {"accepted"}
    wrong = coordinators.spoiled(coordinators.read_recorded(data))
    assert wrong
    for trace, place in wrong.values():
        assert judgement_of(trace) == f"rejected at event {place}"
    assert main(["audit", str(data), "--history", str(record)]) == 0


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("[[fault]]\ndo = 'drop'", "plan.toml:1: fault 1: do = 'drop'; expected one of"),
        ("[[fault]]\ndo = 'restart'", "plan.toml: restart needs files to come back with; add --data DIR"),
        (
            "[[fault]]\ndo = 'move-leader'\nto = 2",
            "plan.toml: move-leader any request: there is no broker 2; give --brokers 2",
        ),
        (
            "[[fault]]\ndo = 'close'\nbroker = 2",
            "plan.toml: close any request broker 2: there is no broker 2; give --brokers 2",
        ),
    ],
)
def test_a_plan_that_cannot_be_used_ends_the_call(
    plan: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan, encoding="utf-8")
    assert main(["serve", "--port", "0", "--faults", str(path)]) == 2
    assert said in capsys.readouterr().err
    assert main(["serve", "--port", "0", "--faults", str(tmp_path / "other.toml")]) == 2
    assert "No such file" in capsys.readouterr().err
    path.write_bytes(b"\xff")
    assert main(["serve", "--port", "0", "--faults", str(path)]) == 2
    assert "plan.toml: no TOML: " in capsys.readouterr().err


def test_the_plan_in_the_help_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    begin = shown.index("  [[fault]]")
    plan = textwrap.dedent(shown[begin : shown.index("which requests", begin)])
    assert [rule.fault for rule in read_plan(plan, "help")] == ["drop-answer", "kill-broker", "overtake"]
    assert all(f"{fault}" in shown for fault in Fault)
