# ruff: noqa: ARG002 - the fake has the signatures of confluent-kafka
"""Applications on a real broker: a killed one is exact, and a killed one with a mistake is found."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.audit.oracle.readable_histories import join
from kafka_eos_checks.audit.rules.applications import INPUT_RULES, OFFSET_ALONE, OUTPUT_ALONE
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.brokers.brokers import HOST, Cluster
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.lab.record import workload
from kafka_eos_checks.lab.record.application import ACCOUNTS, Application, Input, Member, OtherCluster
from kafka_eos_checks.lab.record.application_scenarios import TARGET_PARTITIONS, WORDS, contents
from kafka_eos_checks.lab.record.clients import (
    COMMITS_OUTSIDE,
    MIRROR,
    TRANSFER,
    WORD_COUNT,
    ClientProcess,
    Task,
    Workload,
    start_application,
    start_workload,
)

RECORDS = 4


class FakeConsumer:
    """A consumer of a group: it gives what ``script`` has, and calls callable items before the next one."""

    script: list[Any] = []  # noqa: RUF012 - set by each test
    stored: dict[str, dict[int, int]] = {}  # noqa: RUF012 - cluster -> partition -> committed offset

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.sought: list[tuple[int, int]] = []

    def subscribe(self, topics: list[str], **called: Callable[..., None]) -> None:
        self.called = called

    def poll(self, seconds: float) -> Any:
        while callable(self.script[0]):
            self.script.pop(0)()
        return self.script.pop(0)

    def assign(self, partitions: list[Any]) -> None:
        self.mine = partitions

    def assignment(self) -> list[Any]:
        return self.mine

    def unassign(self) -> None:
        self.mine = []

    def committed(self, partitions: list[Any], seconds: float) -> list[Any]:
        known = self.stored.get(self.settings["bootstrap.servers"], {})
        return [place(each.topic, each.partition, known.get(each.partition, -1001)) for each in partitions]

    def seek(self, place: Any) -> None:
        self.sought.append((place.partition, place.offset))

    def get_watermark_offsets(self, place: Any, seconds: float) -> tuple[int, int]:
        assert self.settings["isolation.level"] == "read_uncommitted"
        return 0, 4

    def close(self) -> None:
        pass


class FakeProducer:
    """A producer that keeps what it is given."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.sent: list[tuple[str, int, str]] = []

    def produce(self, topic: str, value: bytes, *, partition: int, on_delivery: Callable[..., None]) -> None:
        self.sent.append((topic, partition, value.decode()))

    def poll(self, seconds: float) -> None:
        pass


def place(topic: str, partition: int, offset: int = -1001) -> SimpleNamespace:
    return SimpleNamespace(topic=topic, partition=partition, offset=offset)


def polled(partition: int, offset: int, value: str = "0 to be", error: int = 0) -> Any:
    said = SimpleNamespace(code=lambda: error) if error else None
    row = {"topic": "in", "partition": partition, "offset": offset, "value": value.encode(), "error": said}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in row.items()})


EOF = -191
KAFKA = SimpleNamespace(
    Consumer=FakeConsumer,
    Producer=FakeProducer,
    TopicPartition=place,
    KafkaException=RuntimeError,
    KafkaError=SimpleNamespace(_PARTITION_EOF=EOF),
)


def task(kind: str = WORD_COUNT, **more: Any) -> Task:
    row = {"bootstrap": "here:1", "client": "c", "topic": "out", "records": 9, "prefix": "", "partitions": 2}
    return Task(kind=kind, source="in", group="g", pause_ms=0, **(row | more))


@pytest.fixture(autouse=True)
def nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeConsumer, "stored", {})
    monkeypatch.setattr(workload, "need", lambda *_: KAFKA)


def assigned(member: Any) -> None:
    """Both partitions of the source are given to a member of the group."""
    member.begin()
    member.consumer.called["on_assign"](member.consumer, [place("in", 0), place("in", 1)])


@pytest.fixture
def member() -> Member:
    """A member of a group that owns both partitions of its source."""
    found = Member(KAFKA, task())
    assigned(found)
    return found


@pytest.mark.parametrize("committed", [{0: 9}, {1: 9}, {0: 4, 1: 5}])
def test_the_last_inputs_are_processed_without_waiting_for_more_and_the_end_comes_when_all_are_committed(
    member: Member, committed: dict[int, int]
) -> None:
    member.consumer.script = [polled(0, 0), None, None, lambda: FakeConsumer.stored.update({"here:1": committed}), None]
    assert [each.offset for each in member.poll_some(3)] == [0]
    assert member.poll_some(3) == []
    assert member.consumer.script == []


def test_a_mirror_begins_at_the_offsets_of_the_target_cluster() -> None:
    FakeConsumer.stored = {"here:1": {0: 5}, "source:1": {0: 7, 1: 7}}
    mirror = OtherCluster(KAFKA, task(MIRROR, source_bootstrap="source:1"))
    mirror.begin()
    assert mirror.consumer.settings["bootstrap.servers"] == "source:1"
    assert [(each.partition, each.offset) for each in mirror.consumer.mine] == [(0, 5), (1, 0)]


def test_a_transfer_debits_and_credits_on_the_partitions_of_the_accounts() -> None:
    application = Application(task(TRANSFER))
    application.send_some([Input("in", 1, 3, "17 carol bob 5")])
    places = ("out", ACCOUNTS["carol"], "carol -5 <1@3.0>"), ("out", ACCOUNTS["bob"], "bob 5 <1@3.1>")
    assert application.producer.sent == list(places)


def test_a_count_goes_on_from_the_stored_outputs_and_is_read_again_after_an_abort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = {"to": 4}
    monkeypatch.setattr(Application, "_restore", lambda *_: Counter(stored))
    application = Application(task())
    assigned(application.inputs)
    for _ in range(2):
        application.inputs.consumer.script = [polled(0, 0, "0 to to")]
        application.send_some(application.next_values(1))
        application.inputs.rewind()
        stored["to"] = 7
    counts = [value.split()[1] for _, _, value in application.producer.sent]
    assert counts == ["5", "6", "8", "9"]


def test_the_outputs_of_a_partition_are_read_to_the_end_of_its_log_and_not_only_to_the_last_stable_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = [polled(0, offset, error=EOF) for offset in (1, 4)]
    script = [polled(0, 0, "to 1 <0@0.0>"), ends[0], None, polled(0, 1, "to 2 <0@1.0>"), polled(0, 2, "be 1 <0@1.1>")]
    monkeypatch.setattr(FakeConsumer, "script", [*script, ends[1], "left"])
    assert Application(task())._restore(0) == {"to": 2, "be": 1}
    assert FakeConsumer.script == ["left"]


@pytest.mark.parametrize("how", ["on_revoke", "on_lost"])
def test_inputs_that_were_polled_before_the_group_has_changed_are_left_to_their_next_owner(
    member: Member, how: str
) -> None:
    consumer = member.consumer
    change = [lambda: consumer.called[how](consumer, []), lambda: consumer.called["on_assign"](consumer, [])]
    consumer.script = [polled(0, 0), *change, polled(1, 5), polled(1, 6)]
    assert [(each.partition, each.offset) for each in member.poll_some(2)] == [(1, 5), (1, 6)]
    assert [(each.partition, each.offset) for each in member.offsets()] == [(1, 7)]


def test_an_abort_before_anything_is_committed_goes_back_to_the_beginning(
    member: Member, capsys: pytest.CaptureFixture[str]
) -> None:
    member.rewind()
    assert member.consumer.sought == [(0, 0), (1, 0)]
    events = [json.loads(line.partition(" ")[2]) for line in capsys.readouterr().out.splitlines()]
    assert [(e["partition"], e["offset"]) for e in events if e["action"] == "Seek"] == [(0, 0), (1, 0)]


def test_inputs_are_numbered_and_of_the_form_that_their_application_reads() -> None:
    many = 2_000
    rows = {kind: [value.split() for value in contents(kind, 0, many)] for kind in (WORD_COUNT, TRANSFER, MIRROR)}
    assert all([row[0] for row in own] == [str(number) for number in range(many)] for own in rows.values())
    assert {len(row) for row in rows[WORD_COUNT]} == {3}
    assert {word for row in rows[WORD_COUNT] for word in row[1:]} == set(WORDS)
    assert all(len({payer, payee} & ACCOUNTS.keys()) == 2 for _, payer, payee, _ in rows[TRANSFER])
    assert {int(amount) for *_, amount in rows[TRANSFER]} == set(range(1, 100))
    assert {content for _, content in rows[MIRROR]} == {"record"}
    assert contents(WORD_COUNT, 0, 9) == contents(WORD_COUNT, 0, 9) != contents(WORD_COUNT, 1, 9)


def feed(port: int, topic: str, kind: str, folder: Path) -> None:
    values = tuple(contents(kind, 0, RECORDS))
    work = Workload(
        bootstrap=f"{HOST}:{port}", client="producer", topic=topic, records=RECORDS, prefix="", values=values
    )
    with start_workload(work, Journal("fill"), folder) as producer:
        producer.wait()


def kill_and_replace(port: int, journal: Journal, folder: Path, **work: Any) -> None:
    """Kill an instance that has sent its outputs, and let another one with its transactional id do the rest."""

    def start(client: str, **more: Any) -> ClientProcess:
        row: dict[str, Any] = {"bootstrap": f"{HOST}:{port}", "records": RECORDS, "prefix": "", "transaction_size": 2}
        return start_application(Task(client=client, **row, **work, **more), journal, folder)

    with start("killed", pause_after="send_offsets") as killed:
        journal.wait_for(lambda e: e.action == "Pause", 1, 60, "pauses")
        killed.kill()
    with start("successor") as successor:
        successor.wait()


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
def test_a_killed_application_is_exact_unless_it_commits_offsets_outside_of_the_transaction(
    tmp_path: Path,
) -> None:
    journals: dict[str, Journal] = {}
    with Cluster(tmp_path / "c") as cluster:
        port = cluster[1].port
        for kind, mistake in ((WORD_COUNT, ""), (TRANSFER, COMMITS_OUTSIDE)):
            journals[kind] = Journal(kind)
            cluster.create_topic(f"{kind}-input")
            cluster.create_topic(kind, TARGET_PARTITIONS[kind])
            feed(port, f"{kind}-input", kind, tmp_path)
            names = {"topic": kind, "source": f"{kind}-input", "group": f"{kind}-group", "transactional_id": kind}
            kill_and_replace(port, journals[kind], tmp_path, kind=kind, mistake=mistake, **names)
            cluster.wait_transaction(kind, {"CompleteCommit"})
        cluster.stop_all()
    logs = find_logs(tmp_path / "c" / "1" / "data")
    exact, mistaken = (join(journals[kind].events(), logs) for kind in (WORD_COUNT, TRANSFER))
    assert exact.findings == []
    for rule in INPUT_RULES:
        assert exact.figures[rule] == mistaken.figures[rule] == {"checked": RECORDS, "unknown": 0}
    assert {finding.rule for finding in mistaken.findings} == {OFFSET_ALONE, OUTPUT_ALONE}
    lost = [finding.offset for finding in mistaken.findings if finding.rule == OFFSET_ALONE]
    assert lost == [0, 1]
