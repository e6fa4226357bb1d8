# ruff: noqa: ARG002 - the fake has the signatures of confluent-kafka
"""Applications on a real broker: a killed one is exact, and a killed one with a mistake is found."""

import json
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
from kafka_eos_checks.lab.record.application import ACCOUNTS, Member
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

    def __init__(self, settings: dict[str, Any]) -> None:
        self.script: list[Any] = []
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
        return [SimpleNamespace(partition=each.partition, offset=-1001) for each in partitions]

    def seek(self, place: Any) -> None:
        self.sought.append((place.partition, place.offset))


def place(topic: str, partition: int, offset: int = -1001) -> SimpleNamespace:
    return SimpleNamespace(topic=topic, partition=partition, offset=offset)


def polled(partition: int, offset: int) -> Any:
    row = {"topic": "in", "partition": partition, "offset": offset, "value": b"0 to be", "error": None}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in row.items()})


@pytest.fixture
def member() -> Member:
    """A member of a group that owns both partitions of its source."""
    kafka = SimpleNamespace(Consumer=FakeConsumer, TopicPartition=place, KafkaException=RuntimeError)
    row = {"bootstrap": "x:1", "client": "c", "topic": "out", "records": 9, "prefix": "", "partitions": 2}
    found = Member(kafka, Task(kind=WORD_COUNT, source="in", group="g", **row))
    found.begin()
    found.consumer.called["on_assign"](found.consumer, [place("in", 0), place("in", 1)])
    return found


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
