"""The in-process broker: right applications pass, and each mistake is found; without a client library."""

import html
import json
import re
import shlex
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.histories.history import Event, read_history
from kafka_eos.server.network import Server
from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Message
from kafka_eos_checks import cli
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.explain import NothingToDraw
from kafka_eos_checks.audit.rules.applications import INPUT_RULES, NOT_PROCESSED, TWICE, read_requests
from kafka_eos_checks.audit.rules.declared import Known, WrongQuestion, check_names
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.testing import exactly_once, in_process_broker
from kafka_eos_checks.testing.exactly_once import AmbiguousRecords, Progress, StoredRecord, _not_judged
from kafka_eos_checks.testing.in_process_broker import (
    DATA,
    HISTORY,
    ExactlyOnceWarning,
    InProcessBroker,
    NotExactlyOnce,
)

from ..kept import kept_text

pytestmark = pytest.mark.usefixtures("one_processor")
EXACTLY_ONCE: dict[str, Any] = {"inputs": "in", "outputs": "out", "group": "g"}


class Application:
    """A client that copies "in" to "out" step by step, with raw requests over the server's sockets."""

    def __init__(self, broker: InProcessBroker, version: int = 2, name: str = "app") -> None:
        self.broker, self.version, self.name = broker, version, name
        self.codec = served_codec()
        self.sequence = 0
        row = self.ask("InitProducerId", 4, TransactionalId=self.name, TransactionTimeoutMs=60_000)
        self.producer = row["ProducerId"], row["ProducerEpoch"]

    def ask(self, api: str, version: int, client: str | None = "app", **row: Any) -> Message:
        port = int(self.broker.bootstrap_servers.rpartition(":")[2])
        data = self.codec.write_request(api, version, 1, client, row)
        with socket.create_connection(("127.0.0.1", port), 10) as link:
            link.sendall(struct.pack(">i", len(data)) + data)
            reader = link.makefile("rb")
            size = struct.unpack(">i", reader.read(4))[0]
            return self.codec.read_response(api, version, reader.read(size))[1]

    def transaction(self) -> dict[str, Any]:
        return {"TransactionalId": self.name, "ProducerId": self.producer[0], "ProducerEpoch": self.producer[1]}

    def produce(self, topic: str, *values: str, transactional: bool = True) -> None:
        batch = build_batch(
            [Record(value=value.encode(), offset_delta=delta) for delta, value in enumerate(values)],
            base_timestamp=1,
            is_transactional=transactional,
            producer_id=self.producer[0] if transactional else -1,
            producer_epoch=self.producer[1] if transactional else -1,
            base_sequence=self.sequence if transactional else -1,
        )
        self.sequence += len(values) if transactional else 0
        if transactional and self.version == 1:
            topics = [{"Name": topic, "Partitions": [0]}]
            row = self.ask("AddPartitionsToTxn", 3, V3AndBelowTopics=topics, **self.v3_transaction())
            assert row["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"][0]["PartitionErrorCode"] == 0
        data = {"Name": topic, "PartitionData": [{"Index": 0, "Records": batch.encode()}]}
        name = self.name if transactional else None
        row = self.ask("Produce", 10 + self.version, TransactionalId=name, Acks=-1, TimeoutMs=1000, TopicData=[data])
        assert row["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0

    def v3_transaction(self) -> dict[str, Any]:
        return {f"V3AndBelow{name}": value for name, value in self.transaction().items()}

    def send_offset(self, offset: int, topic: str = "in", group: str = "g") -> None:
        """Send an offset to the transaction."""
        if self.version == 1:
            assert self.ask("AddOffsetsToTxn", 3, GroupId=group, **self.transaction())["ErrorCode"] == 0
        topics = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": offset}]}]
        row = self.ask("TxnOffsetCommit", 3 + self.version, GroupId=group, Topics=topics, **self.transaction())
        assert row["Topics"][0]["Partitions"][0]["ErrorCode"] == 0

    def commit_offset(self, offset: int) -> None:
        """Commit an offset outside of any transaction."""
        topics = [{"Name": "in", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": offset}]}]
        row = self.ask("OffsetCommit", 8, GroupId="g", Topics=topics)
        assert row["Topics"][0]["Partitions"][0]["ErrorCode"] == 0

    def end(self, commit: bool = True) -> None:
        row = self.ask("EndTxn", 3 + self.version, Committed=commit, **self.transaction())
        assert row["ErrorCode"] == 0
        if self.version == 2 and (row["ProducerId"], row["ProducerEpoch"]) != self.producer:
            self.producer, self.sequence = (row["ProducerId"], row["ProducerEpoch"]), 0

    def copy(self, value: str, offset: int, *, commit: bool = True) -> None:
        """Copy one input in a transaction with its offset."""
        self.produce("out", value)
        self.send_offset(offset + 1)
        self.end(commit)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "broker") as running:
        running.create_topic("in")
        running.create_topic("out")
        yield running


@pytest.fixture
def app(broker: InProcessBroker) -> Application:
    """An application with three inputs."""
    application = Application(broker)
    application.produce("in", "a", "b", "c", transactional=False)
    return application


def found(broker: InProcessBroker, **options: Any) -> str:
    """The broker's findings, which are compared with those that are kept; the events that they name are in its history.

    Args:
        broker: the broker.
        options: of the question.
    """
    with pytest.raises(NotExactlyOnce) as caught:
        broker.assert_exactly_once(**{**EXACTLY_ONCE, **options})
    said = str(caught.value)
    if named := {
        int(number) for pair in re.findall(r"\bevents? (\d+)(?: and (\d+))?", said) for number in pair if number
    }:
        assert named <= {event.order for event in read_history(broker.folder / HISTORY)}
    kept_text(said, broker.folder)
    return said


def copy_all(app: Application) -> None:
    for offset, value in enumerate("abc"):
        app.copy(value, offset)


def test_a_broker_is_one_of_transaction_version_2_whose_leaders_verify(broker: InProcessBroker) -> None:
    settings, machines = broker.call(lambda server: (server.cluster.settings, server.cluster.machines))
    assert (settings.transactions.version, machines.leaders.verification) == (2, True)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("planned", [False, True], ids=["by call", "by plan"])
def test_an_application_that_is_fenced_by_a_timeout_and_restarted_passes(
    tmp_path: Path, version: int, planned: bool
) -> None:
    with InProcessBroker(tmp_path / "broker", transaction_version=version) as broker:
        broker.create_topic("in")
        broker.create_topic("out")
        broker.fault("time-out-transaction", api="EndTxn", transactional_id="app", nth=1) if planned else None
        app = Application(broker, version)
        app.produce("in", "a", transactional=False)
        app.produce("out", "a")
        app.send_offset(1)
        assert planned or broker.time_out_transaction("app")
        refused = ErrorCode.CONCURRENT_TRANSACTIONS
        while refused == ErrorCode.CONCURRENT_TRANSACTIONS:  # the abort is under way
            refused = app.ask("EndTxn", 4, Committed=True, **app.transaction())["ErrorCode"]
        assert refused == ErrorCode.PRODUCER_FENCED
        Application(broker, version).copy("a", 0)
        broker.assert_exactly_once(**EXACTLY_ONCE)
        assert len(told(broker, "TimeOut")) == 1


# --- mistakes that are found ------------------------------------------------------------------------------------------


def test_an_application_that_processes_every_input_once_passes(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("b", 1, commit=False)
    app.copy("b", 1)
    app.copy("c", 2)
    broker.assert_exactly_once(**EXACTLY_ONCE)


def delete_inputs(app: Application, count: int = 1) -> None:
    where = [{"Name": "in", "Partitions": [{"PartitionIndex": 0, "Offset": count}]}]
    row = app.ask("DeleteRecords", 2, Topics=where, TimeoutMs=1000)
    assert row["Topics"][0]["Partitions"][0]["LowWatermark"] == count


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.thorough])])
def test_an_input_that_was_deleted_on_request_need_not_be_processed(
    broker: InProcessBroker, app: Application, engine: str, request: pytest.FixtureRequest
) -> None:
    delete_inputs(app)
    app.copy("b", 1)
    app.copy("c", 2)
    broker.assert_exactly_once(**EXACTLY_ONCE)
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    result = audit.run([broker.folder], engine, spark=spark, oracle=1.0)
    assert (result.findings, result.verdicts[-1].ok) == ((), True), "by both forms of the rules"


def test_an_input_that_is_deleted_after_it_was_processed_is_judged_still(
    broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    delete_inputs(app)
    broker.assert_exactly_once(**EXACTLY_ONCE)
    app.copy("a", 0)
    assert f"{TWICE}: out-0 offset " in found(broker)


def test_if_all_inputs_are_deleted_and_none_was_processed_nothing_was_tested(
    broker: InProcessBroker, app: Application
) -> None:
    app.commit_offset(3)
    app.end(commit=False)
    delete_inputs(app, 3)
    assert found(broker).startswith("no input in in is committed and not deleted: nothing was tested")


def test_offsets_that_were_never_sent_are_found(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "b", "c")
    app.end()
    assert "output without its offset: out-0 offset 0" in found(broker)


def test_offsets_outside_of_the_transaction_are_found(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "b", "c")
    app.commit_offset(3)
    app.end()
    said = found(broker)
    assert "output without its offset: out-0 offset 0: 'a'" in said or "outside of its transaction" in said


def test_outputs_without_any_transaction_are_found(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "b", "c", transactional=False)
    app.commit_offset(3)
    said = found(broker)
    assert "output without its offset: out-0 offset 0: 'a' is the output of in-0 offset 0 of group 'g'" in said
    assert "it was written outside of any transaction" in said
    assert "3 finding(s)" in said, "each of them"
    assert "write the output in a transaction" in said


def test_one_of_two_outputs_without_any_transaction_is_found(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("too")
    copy_all(app)
    app.produce("too", "a", "b", "c", transactional=False)
    said = found(broker, outputs=["out", "too"])
    assert "output without its offset: too-0 offset 0" in said
    assert "it was written outside of any transaction" in said


def test_an_input_that_is_processed_twice_is_found(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    app.copy("b", 2)
    assert "input processed twice: out-0" in found(broker)


def test_an_input_that_is_left_behind_after_an_abort_is_found(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("b", 1, commit=False)
    app.copy("c", 2)
    said = found(broker)
    assert "input skipped: in-0 offset 1" in said
    assert "which did not commit" in said


def test_an_input_without_output_is_found(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("c", 2)
    said = "input skipped: in-0 offset 1: group 'g' committed offset 3, and no output of it was ever written"
    assert said in found(broker)


def test_an_input_that_is_not_reached_is_found_unless_the_test_ends_earlier(
    broker: InProcessBroker, app: Application
) -> None:
    app.copy("a", 0)
    said = found(broker)
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:3]] == ["input not processed"] * 2
    broker.assert_exactly_once(**EXACTLY_ONCE, everything=False)


def test_an_offset_without_any_output_is_judged_although_the_test_ends_earlier(
    broker: InProcessBroker, app: Application
) -> None:
    app.commit_offset(1)
    assert "input skipped: in-0 offset 0" in found(broker, everything=False)
    app.ask("InitProducerId", 4, TransactionalId=None, TransactionTimeoutMs=1, ProducerId=-1, ProducerEpoch=-1)
    met = broker.assert_exactly_once(
        **EXACTLY_ONCE, everything=False, identity=lambda record: None if record.value == b"a" else record.value
    )
    assert met is not None
    assert (met.committed, met.most_partitions) == (0, 0), "the offset is in no transaction"
    assert met.started == 0, "a producer without transactional.id may be anybody's"


def test_an_answer_that_was_dropped_is_written_down_as_not_delivered(broker: InProcessBroker) -> None:
    broker.fault("drop-answer", api="InitProducerId")
    with pytest.raises(struct.error):
        Application(broker)
    history = read_history(broker.folder / HISTORY)
    told = [
        event.detail.get("delivered") for event in history if (event.action, event.phase) == ("InitProducerId", "ok")
    ]
    assert told == [False]


def test_a_request_whose_batch_is_malformed_is_refused_and_not_written_down(
    broker: InProcessBroker, app: Application
) -> None:
    batch = build_batch([Record(value=b"d")], base_timestamp=1).encode()
    for wrong, code in (
        (batch[:-1] + bytes([batch[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
        (batch[:30], ErrorCode.INVALID_RECORD),
    ):
        topic = {"Name": "in", "PartitionData": [{"Index": 0, "Records": wrong}]}
        row = app.ask("Produce", 11, Acks=-1, TimeoutMs=1000, TopicData=[topic])
        assert row["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == code, wrong
    assert len(told(broker, "Produce")) == 2, "request and answer of the three inputs"


def test_an_output_that_comes_from_nowhere_is_found(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    app.produce("out", "z")
    app.end()
    assert "output of no input: out-0" in found(broker)


@pytest.mark.parametrize("identity", [None, lambda record: record.value], ids=["by value", "by a function"])
def test_the_output_of_an_aborted_input_is_told_from_one_of_no_input(
    broker: InProcessBroker, app: Application, identity: Any
) -> None:
    writer = Application(broker, name="writer")
    writer.produce("in", "d")
    writer.end(commit=False)
    Application(broker, name="slow").produce("in", "open")
    copy_all(app)
    app.copy("d", 3)
    app.copy("open", 5)
    said = found(broker, identity=identity)
    assert said.count("which was aborted") == 1
    assert "'d' appears, and no input of group 'g' has this identity; in-0 offset 3 has it, which was aborted" in said
    assert "isolation.level=read_committed" in said.partition("means:")[0]


@pytest.mark.parametrize("everything", [True, False])
def test_a_test_in_which_all_inputs_were_aborted_has_tested_nothing(broker: InProcessBroker, everything: bool) -> None:
    writer = Application(broker, name="writer")
    writer.produce("in", "d")
    writer.end(commit=False)
    Application(broker).commit_offset(2)
    assert found(broker, everything=everything) == "no input in in: nothing was tested"


def test_outputs_of_aborted_inputs_only_are_no_wrong_question(broker: InProcessBroker) -> None:
    writer = Application(broker, name="writer")
    writer.produce("in", "d")
    writer.end(commit=False)
    app = Application(broker)
    app.produce("in", "a", transactional=False)
    app.copy("d", 0)
    assert "output of no input" in found(broker)


def test_a_transaction_that_was_begun_and_never_ended_is_named(broker: InProcessBroker, app: Application) -> None:
    said = "; transactional.id {} began a transaction with event {} and never ended it"
    app.copy("a", 0)
    app.produce("out", "b")
    other = Application(broker, name="other")
    other.produce("in", "d")
    [*_, began, _] = [event.order for event in told(broker, "Produce") if event.topic == "out"]
    assert found(broker).count(said.format("'app'", began)) == 2
    assert "'other'" not in found(broker)
    app.send_offset(2)
    app.end()
    assert "never ended" not in found(broker)


def test_an_input_that_is_dropped_on_purpose_has_a_remedy(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("c", 2)
    assert "drops this input on purpose, let identity= return None for it" in found(broker)
    broker.assert_exactly_once(**EXACTLY_ONCE, identity=lambda each: None if each.value == b"b" else each.value)


def test_an_output_of_an_open_transaction_does_not_appear_yet(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.produce("out", "b")
    with pytest.warns(ExactlyOnceWarning, match="transactional.id 'app' has a transaction open since .* of 60 s"):
        broker.assert_exactly_once(**EXACTLY_ONCE, everything=False)


# --- inputs and their outputs -----------------------------------------------------------------------------------------


def test_an_identity_joins_outputs_that_differ_from_their_inputs(broker: InProcessBroker, app: Application) -> None:
    def number(record: StoredRecord) -> str:
        return (record.value or b"").decode()[-1]

    for offset, value in enumerate("abc"):
        app.copy(f"shipped {value}", offset)
    broker.assert_exactly_once(**EXACTLY_ONCE, identity=number)


def test_an_input_may_have_several_outputs_with_names(broker: InProcessBroker, app: Application) -> None:
    def halves(record: StoredRecord) -> object:
        text = (record.value or b"").decode()
        return text if record.topic == "in" else (text[0], text[1:])

    for offset, value in enumerate("abc"):
        app.produce("out", f"{value}1", f"{value}2")
        app.send_offset(offset + 1)
        app.end()
    broker.assert_exactly_once(**EXACTLY_ONCE, identity=halves)
    assert "input processed twice" in found(broker, identity=lambda record: (record.value or b"")[:1])


def test_indistinguishable_inputs_are_refused(broker: InProcessBroker, app: Application) -> None:
    app.produce("in", "a", transactional=False)
    with pytest.raises(AmbiguousRecords, match=r"in-0 offset 0 and at in-0 offset 3 have the same identity b'a'"):
        broker.assert_exactly_once(**EXACTLY_ONCE)


def test_an_input_whose_transaction_was_aborted_is_none(broker: InProcessBroker, app: Application) -> None:
    app.produce("in", "a")
    app.end(commit=False)
    copy_all(app)
    broker.assert_exactly_once(**EXACTLY_ONCE)


def test_an_input_that_was_aborted_and_written_again_is_one(broker: InProcessBroker) -> None:
    writer = Application(broker, name="writer")
    for commit in (False, True):
        writer.produce("in", "a")
        writer.end(commit)
    Application(broker).copy("a", 2)
    broker.assert_exactly_once(**EXACTLY_ONCE)


def test_records_without_an_identity_are_ignored(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    app.produce("out", "heartbeat")
    app.end()
    broker.assert_exactly_once(
        **EXACTLY_ONCE, identity=lambda record: None if record.value == b"heartbeat" else record.value
    )


def is_read(broker: InProcessBroker, *inputs: str) -> bool:
    return broker.wait_until_read(inputs=inputs or "in", group="g", seconds=0)


def test_inputs_are_read_when_the_groups_offset_is_past_the_last_that_is_committed(
    broker: InProcessBroker, app: Application
) -> None:
    broker.create_topic("more")
    assert not is_read(broker), "there is no group yet"
    app.copy("a", 0)
    app.copy("b", 1)
    assert not is_read(broker)
    app.copy("c", 2, commit=False)
    assert not is_read(broker)
    app.copy("c", 2)
    assert is_read(broker)
    assert is_read(broker, "in", "more"), "an empty partition has nothing to read"
    app.produce("more", "x", transactional=False)
    assert not is_read(broker, "in", "more"), "its only record"
    shop = Application(broker, name="shop")
    shop.produce("in", "d")
    assert is_read(broker), "an input that is not committed cannot be read yet"
    shop.end(commit=False)
    assert is_read(broker), "an aborted input never can"
    shop.produce("in", "e")
    shop.end()
    assert not is_read(broker)


def test_waiting_ends_as_soon_as_the_inputs_are_read(broker: InProcessBroker, app: Application) -> None:
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(broker.wait_until_read, inputs="in", group="g", seconds=60)
        copy_all(app)
        assert waited.result(60)


def test_waiting_in_vain_ends_after_its_seconds(
    broker: InProcessBroker, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        slept.append(seconds)
        assert sum(slept) < 10, "it goes on waiting"

    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 100.0 + sum(slept), sleep=sleep)
    monkeypatch.setattr(in_process_broker, "time", clock)
    assert not broker.wait_until_read(inputs="in", group="g", seconds=3)
    assert sum(slept) == pytest.approx(3, abs=2 * in_process_broker.POLL_SECONDS)
    copy_all(app)
    assert broker.wait_until_read(inputs="in", group="g", seconds=3)


def test_inputs_that_come_meanwhile_are_waited_for(broker: InProcessBroker, app: Application) -> None:
    progress = Progress(broker.folder / DATA, ["in"], "g")
    copy_all(app)
    assert broker.call(lambda server: progress.is_past_all(server.cluster))
    app.produce("in", "d")
    app.end()
    assert not broker.call(lambda server: progress.is_past_all(server.cluster))


def test_inputs_that_are_deleted_meanwhile_are_not_waited_for(broker: InProcessBroker, app: Application) -> None:
    """An application that never read them never will."""
    progress = Progress(broker.folder / DATA, ["in"], "g")

    def is_past_all() -> bool:
        return broker.call(lambda server: progress.is_past_all(server.cluster))

    assert not is_past_all()
    delete_inputs(app, 3)
    assert is_past_all()


def test_waiting_for_a_topic_that_is_not_there_is_refused(broker: InProcessBroker) -> None:
    with pytest.raises(ValueError, match=r"^no topic 'inn'; there is 'in'$"):
        broker.wait_until_read(inputs="inn", group="g")


@pytest.mark.parametrize("missing", ["inputs", "outputs", "group"])
def test_an_incomplete_question_is_refused(broker: InProcessBroker, missing: str) -> None:
    with pytest.raises(ValueError, match="inputs, outputs and group belong together"):
        broker.assert_exactly_once(**{name: value for name, value in EXACTLY_ONCE.items() if name != missing})


def test_a_test_without_inputs_has_tested_nothing(broker: InProcessBroker) -> None:
    assert found(broker) == "no input in in: nothing was tested"


def test_without_an_application_only_the_logs_are_audited(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    broker.assert_exactly_once()

    def tear(server: Server) -> None:
        """Append a marker that no coordinator has decided on."""
        leader = server.cluster.topics["out"].partitions[0]
        producer_id, epoch = app.producer
        assert leader.append_marker(producer_id, epoch + 1, False, 0, 2, server.cluster.now) is ErrorCode.NONE

    app.produce("out", "torn")
    broker.call(tear)
    app.end()
    with pytest.raises(NotExactlyOnce, match="torn transaction"):
        broker.assert_exactly_once()


# --- what a failure says ---------------------------------------------------------------------------------------------


def test_a_failure_names_diagram_requests_logs_and_faults(broker: InProcessBroker, app: Application) -> None:
    broker.fault("delay", api="Produce", nth=1, seconds=0)
    app.copy("a", 0)
    app.copy("b", 1, commit=False)
    app.copy("c", 2)
    said = found(broker)
    folder = broker.folder
    for name in (
        f"diagram:  {folder}/exactly-once.html",
        f"requests: {folder}/history.jsonl",
        f"logs:     {folder}/data",
    ):
        assert name in said
    assert "fault:    delay Produce nth 1: fired 1 time(s), 3 request(s) matched" in said
    page, picture = (folder / "exactly-once.html").read_text(), (folder / "exactly-once.svg").read_text()
    assert "input skipped" in page
    assert "TxnOffsetCommit" in page
    assert picture.startswith("<svg")
    story = html.unescape(re.sub("<[^>]+>", "", page[page.index("<pre") :])).splitlines()
    place = next(number for number, line in enumerate(story) if "^  input skipped" in line)
    assert "EndTxn (commit)" in story[place - 1]  # the commit after it, not the abort
    assert any("EndTxn (abort)" in line for line in story[:place])


def test_a_refused_end_of_a_transaction_is_drawn_by_the_command_that_the_failure_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with InProcessBroker(tmp_path / "a broker") as broker:
        broker.create_topic("in")
        broker.create_topic("out")
        app = Application(broker)
        app.produce("in", "a", transactional=False)
        app.produce("out", "a")
        with broker.faulty("error", api="EndTxn", error="INVALID_PRODUCER_EPOCH"):
            app.ask("EndTxn", 5, Committed=True, **app.transaction())
        app.send_offset(1)
        app.end()
        app.copy("a", 0)
        said = found(broker)
    command = f"kafka-eos explain '{broker.folder}' --finding 1"
    assert f"next:  {command} draws the history around it" in said
    assert "PATH" not in said
    assert "refused without cause" not in said, "the test itself has refused it"
    ends = [event for event in read_history(broker.folder / HISTORY) if event.action == "EndTxn"]
    [refusal] = [event.order for event in ends if event.phase == "fail"]
    assert cli.main([*shlex.split(command)[1:], "--out", str(tmp_path / "again.svg")]) == 0
    story = capsys.readouterr().out
    assert re.search(rf"^ +{refusal}  .*INVALID_PRODUCER_EPOCH", story, re.MULTILINE)
    assert cli.main(["audit", str(broker.folder)]) == 1
    assert f"{command} draws" in capsys.readouterr().out


def test_the_next_step_after_several_findings_of_a_rule_draws_the_first(
    broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    app.copy("a", 2)
    app.copy("b", 2)
    said = found(broker)
    assert said.startswith("input processed twice (not exactly once: 2 finding(s))")
    assert "next:  kafka-eos explain" in said
    assert "--finding 1 draws the history around it" in said


def test_the_first_finding_of_which_the_history_tells_is_drawn(
    broker: InProcessBroker, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explained(number: int, *others: Any) -> Any:
        if number == 1:
            raise NothingToDraw("no event")
        return exactly_once_explained(number, *others)

    exactly_once_explained = exactly_once.explained
    monkeypatch.setattr(exactly_once, "explained", explained)
    copy_all(app)
    app.copy("a", 2)
    app.copy("b", 2)
    assert "--finding 2\n" in found(broker)


def test_a_history_names_clients_by_their_ids(broker: InProcessBroker) -> None:
    app = Application(broker)
    for client in ("shop", None, ""):
        app.ask("InitProducerId", 4, client=client, TransactionalId=None, TransactionTimeoutMs=60_000)
    told = [event.process for event in read_history(broker.folder / HISTORY) if event.phase == "invoke"]
    assert told == ["proxy/app", "proxy/shop", "proxy/unknown", "proxy/unknown"]


def test_a_diagram_of_an_output_shows_its_transaction(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "b", "c")
    app.end()
    assert "diagram:" in found(broker)
    page = (broker.folder / "exactly-once.html").read_text()
    assert "EndTxn" in page
    assert "coordinator of app" in page


def test_a_diagram_shows_the_commit_outside_of_the_transaction(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "b", "c")
    app.commit_offset(3)
    app.end()
    said = found(broker)
    assert "offset 3 was committed outside of its transaction" in said
    story = (broker.folder / "exactly-once.html").read_text().partition("<pre")[2]
    lines = [line for line in story.splitlines() if "->" in html.unescape(line)]
    names = [re.search(r": ([\w:]+( \w+)?)", html.unescape(line)) for line in lines]
    told = [name[1] for name in names if name is not None]
    assert told.index("Produce") < told.index("OffsetCommit") < told.index("EndTxn") < told.index("marker: commit")


def test_each_finding_says_what_it_means_and_what_to_do_next(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("b", 1, commit=False)
    app.copy("c", 2)
    lines = found(broker).splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("  input skipped"))
    assert lines[place + 1].startswith("    means: The input is lost")
    assert lines[place + 2] == "    here:  by their identities: 'b'"
    assert lines[place + 3].startswith("    next:  after an abort, seek back")


# --- one judge, two callers ------------------------------------------------------------------------------------------


def audited(broker: InProcessBroker) -> list[str]:
    """The findings of `kafka-eos audit` in the folder, in words."""
    return [finding.in_words() for finding in audit.run([broker.folder], one_moment=True).findings]


def twice(app: Application) -> None:
    copy_all(app)
    app.copy("b", 2)


def skipped(app: Application) -> None:
    app.copy("a", 0)
    app.copy("c", 2)


def without_offsets(app: Application) -> None:
    app.produce("out", "a", "b", "c")
    app.end()


def of_nothing(app: Application) -> None:
    copy_all(app)
    app.produce("out", "z")
    app.end()


def aborted(app: Application) -> None:
    app.copy("a", 0)
    app.copy("b", 1, commit=False)
    app.copy("c", 2)


def causes_of(broker: InProcessBroker) -> set[str]:
    """The findings in Kafka that the audit of the folder names as possible causes."""
    return {cause for verdict in audit.run([broker.folder]).verdicts for cause in verdict.causes}


def test_a_mistake_of_an_application_has_no_possible_cause_in_kafka(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "b", "c")
    broker.fault("drop-answer", api="EndTxn", nth=1)
    with pytest.raises(struct.error):
        app.end()
    old = Application(broker, version=1, name="of version 1")
    old.produce("out", "a", "b", "c")
    old.end()
    said = found(broker)
    assert said.startswith("output without its offset, input processed twice (")
    assert causes_of(broker) == set()
    assert "possible cause" not in (broker.folder / "exactly-once.html").read_text()


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_request_may_be_a_cause_in_version_1(version: int, broker: InProcessBroker, app: Application) -> None:
    writer = Application(broker, version=version, name="writer")
    broker.fault("repeat", api="Produce", topic="out", nth=1, seconds=0)
    writer.produce("out", "a", "b", "c")
    writer.end()
    assert found(broker).startswith("output without its offset (")
    assert causes_of(broker) == ({"late-end-of-transaction"} if version == 1 else set())


def test_a_broker_that_was_away_may_be_a_cause(broker: InProcessBroker, app: Application) -> None:
    twice(app)
    found(broker)
    assert causes_of(broker) == set()
    broker.restart()
    assert causes_of(broker) == {"no-leader-no-marker", "former-group-coordinator", "late-offsets", "timed-out-offsets"}


@pytest.mark.parametrize("mistake", [twice, skipped, without_offsets, of_nothing, aborted])
@pytest.mark.parametrize("given", [False, True], ids=["by value", "by identity"])
def test_the_audit_of_the_artefacts_finds_what_the_test_found(
    mistake: Callable[[Application], None], given: bool, broker: InProcessBroker, app: Application
) -> None:
    mistake(app)
    options = {"identity": lambda record: (record.value or b"").decode()} if given else {}
    said = found(broker, **options)
    listed = [line.strip() for line in said.splitlines() if re.match(r"  \w.*: (in|out)-0 offset", line)]
    assert sorted(audited(broker)) == sorted(listed)
    assert f"(not exactly once: {len(listed)} finding(s))" in said.partition("\n")[0]
    assert listed


def test_the_audit_of_the_artefacts_of_a_right_application_finds_nothing(
    broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    broker.assert_exactly_once(**EXACTLY_ONCE)
    verdicts = {verdict.name: verdict for verdict in audit.audit([broker.folder])}
    assert [name for name, verdict in verdicts.items() if not verdict.ok] == []
    assert verdicts[TWICE].figures["checked"] == 3
    assert verdicts[NOT_PROCESSED].figures["checked"] == 3


def test_the_history_has_the_question_and_the_identities_that_a_function_gave(
    broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    broker.assert_exactly_once(**EXACTLY_ONCE)
    assert len(told(broker, "DeclareApplication")) == 1
    assert told(broker, "DeclareRecord") == []
    broker.assert_exactly_once(**EXACTLY_ONCE, identity=lambda record: record.value)
    records = told(broker, "DeclareRecord")
    assert [event.detail["identity"] for event in records if event.topic == "in"] == ["a", "b", "c"]
    assert [event.offset for event in records if event.topic == "out"] == [0, 2, 4]


def test_identities_that_differ_only_in_their_type_are_told_apart(broker: InProcessBroker, app: Application) -> None:
    identities: dict[bytes | None, object] = {b"a": b"1", b"b": "1", b"c": 1}
    copy_all(app)
    broker.assert_exactly_once(**EXACTLY_ONCE, identity=lambda record: identities[record.value])
    assert audited(broker) == []


@pytest.mark.parametrize("rule", INPUT_RULES)
def test_an_unjudged_history_is_no_success(rule: str) -> None:
    said = {
        "check": "replay",
        "expected": "0 findings",
        "found": "0 findings",
        "ok": True,
        "seconds": 0.0,
        "evidence": "",
    }
    verdicts = [Verdict(name=rule, figures={"unknown": 2 * (name == rule)}, **said) for name in INPUT_RULES]
    judged = audit.Audit(verdicts=tuple(verdicts), findings=())
    assert _not_judged(judged) == f"could not be judged: {rule!r} of 2 input(s)"
    others = tuple(verdict for verdict in verdicts if verdict.name != rule)
    assert _not_judged(replace(judged, verdicts=others)) == ""


def test_a_history_that_is_given_twice_is_read_once(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    broker.assert_exactly_once(**EXACTLY_ONCE)
    verdicts = audit.audit([broker.folder], histories=[broker.folder / HISTORY])
    [once] = [verdict for verdict in verdicts if verdict.name == TWICE]
    assert (once.ok, once.figures["checked"]) == (True, 3)
    assert once.figures["events"] == len(list(read_history(broker.folder / HISTORY)))


def declaration(inputs: str = "in", outputs: str = "out", group: str = "g", **reading: str) -> list[dict[str, Any]]:
    """A declaration as one writes it by hand."""
    roles = [
        {"topic": inputs, "detail": {"role": "input"}},
        {"topic": outputs, "detail": {"role": "output", **reading}},
    ]
    rows = [{"action": "DeclareApplication"}, *({"action": "DeclareTopic", **role} for role in roles)]
    return [{"run": "test", "process": "me", "phase": "ok", "group": group, **row} for row in rows]


def record(offset: int, **columns: Any) -> dict[str, Any]:
    """The declaration of an input."""
    row = {"run": "test", "process": "me", "phase": "ok", "group": "g", "action": "DeclareRecord", "topic": "in"}
    return row | {"partition": 0, "offset": offset, "detail": {"identity": "abc"[offset]}} | columns


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """A file of events."""
    path = folder / "declared.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def changed(rows: list[dict[str, Any]], number: int, **columns: Any) -> list[dict[str, Any]]:
    return [row | columns if at == number else row for at, row in enumerate(rows)]


def test_a_declaration_that_is_written_by_hand_is_judged_as_well(
    broker: InProcessBroker, app: Application, tmp_path: Path
) -> None:
    twice(app)
    by_hand = written(tmp_path, declaration())
    broker.call(lambda _: None)
    found = audit.run([broker.folder, by_hand]).findings
    assert [finding.rule for finding in found] == [TWICE]


@pytest.mark.parametrize("everything", [True, False])
def test_a_question_about_an_application_that_has_written_nothing_has_no_answer(
    everything: bool, broker: InProcessBroker, app: Application, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app.produce("out", "a")
    app.end(commit=False)
    by_hand = written(tmp_path, changed(declaration(), 0, detail={"everything": everything}))
    broker.call(lambda _: None)
    assert cli.main(["audit", str(broker.folder), str(by_hand)]) == (1 if everything else 3)
    said = "not judged output of no input: no output of a declared application is committed, so that nothing was tested"
    assert said in capsys.readouterr().out
    assert "could not be judged" not in found(broker, everything=everything)


ROLE = "there are the roles 'input' and 'output'"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (declaration(inputs="im"), "the declaration of group 'g': no topic 'im'; there are 'in', 'out'"),
        (declaration(outputs="shipments"), "the declaration of group 'g': no topic 'shipments'; there are 'in', 'out'"),
        (declaration(group="gg"), "the declaration of group 'gg': no group 'gg'; there is 'g'."),
        (declaration(inputs="out", outputs="in"), "group 'g' has committed no offset of 'out', but of 'in'; declare"),
        (declaration(outputs="in"), "'in' is given as an input and as an output"),
        (
            declaration(after="shiped "),
            "no output has the same identity as an input: in-0 offset 0 has 'a', and out-0 offset 0 has 'shipped a'",
        ),
        (changed(declaration(), 1, group="gg"), "DeclareTopic of group 'gg' without DeclareApplication; there is 'g'"),
        (declaration()[1:], "DeclareTopic of group 'g' without DeclareApplication; there is none before it"),
        (declaration()[:2], "group 'g' is declared without DeclareTopic of the role 'output'"),
        (changed(declaration(), 1, detail={"role": "inputs"}), f"DeclareTopic of 'in' with the role 'inputs'; {ROLE}"),
        (changed(declaration(), 1, topic=None), "DeclareTopic without a topic"),
        (changed(declaration(), 1, group=None), "DeclareTopic without a group"),
        (
            [*declaration(), record(0, partition=None), record(1, topic=None)],
            "DeclareRecord without partition",
        ),
        (
            [record(0), *declaration(), record(1)],
            "DeclareRecord of group 'g' without DeclareApplication; there is none before it",
        ),
        (
            [row | {"run": "tests"} for row in declaration()],
            "run 'tests' has a declaration and nothing else; there is 'test'",
        ),
    ],
)
def test_a_declaration_that_nothing_fits_is_refused(
    broker: InProcessBroker,
    app: Application,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rows: list[dict[str, Any]],
    said: str,
) -> None:
    for offset, value in enumerate("abc"):
        app.copy(f"shipped {value}" if "after" in str(rows) else value, offset)
    broker.call(lambda _: None)
    assert cli.main(["audit", str(broker.folder), str(written(tmp_path, rows))]) == 2
    assert said in capsys.readouterr().err


def test_logs_without_requests_refuse_a_group_that_has_no_offset(
    broker: InProcessBroker, app: Application, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_all(app)
    broker.call(lambda _: None)
    assert cli.main(["audit", str(broker.folder / DATA), str(written(tmp_path, declaration(group="gg")))]) == 2
    assert "no group 'gg'; there is 'g'." in capsys.readouterr().err


def test_a_group_that_has_joined_and_topics_of_which_no_logs_are_given_are_not_refused(
    broker: InProcessBroker, app: Application, tmp_path: Path
) -> None:
    app.commit_offset(0)
    row = {"GroupId": "joins", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 10_000, "ProtocolType": "consumer"}
    app.ask("JoinGroup", 3, MemberId="", Protocols=[{"Name": "range", "Metadata": b""}], **row)
    broker.call(lambda _: None)
    joined = written(tmp_path, declaration(group="joins"))
    assert [finding.rule for finding in audit.run([broker.folder, joined]).findings] == [NOT_PROCESSED] * 3
    alone = written(tmp_path, declaration(outputs="elsewhere"))
    assert audit.run([broker.folder / HISTORY, alone]).findings == ()


def test_what_the_fixture_has_asked_is_not_refused_afterwards(
    broker: InProcessBroker, app: Application, tmp_path: Path
) -> None:
    """The cluster knows a group without offsets, which no history has, and the topics without any record."""
    app.commit_offset(0)
    broker.create_topic("empty")
    broker.call(lambda server: server.cluster.groups.known.update(joined=server.cluster.groups.new("joined")))
    assert "input not processed" in found(broker, outputs="empty", group="joined")
    assert all(each.startswith("input not processed: in-0 offset") for each in audited(broker))
    by_hand = written(tmp_path, declaration())
    assert len(audit.run([broker.folder, by_hand]).findings) == 6, "those of both questions"


def test_the_last_question_about_a_group_is_the_one_that_the_audit_asks(
    broker: InProcessBroker, app: Application
) -> None:
    app.copy("a", 0)
    assert "input not processed" in found(broker)
    broker.assert_exactly_once(**EXACTLY_ONCE, everything=False)
    assert audited(broker) == []


# --- questions without an answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"group": "gg"}, "no group 'gg'; there is 'g'."),
        ({"group": "enricher"}, "no group 'enricher'; there is 'g'."),
        ({"inputs": "inn"}, "no topic 'inn'; there is 'in'"),
        ({"outputs": ["out", "shipments"]}, "no topic 'shipments'; there are 'in', 'out'"),
        ({"inputs": "out", "outputs": "in"}, "group 'g' has committed no offset of 'out', but of 'in'"),
        ({"outputs": "in"}, "'in' is given as an input and as an output"),
        ({"identity": lambda _: None}, "identity gives None for every input, for example in-0 offset 0"),
        (
            {"identity": lambda record: record.value if record.topic == "in" else None},
            "identity gives None for every output, for example out-0 offset",
        ),
        (
            {"identity": lambda record: f"{record.topic} {record.offset}"},
            "no output has the same identity as an input: in-0 offset 0 has 'in 0', and out-0 offset 0 has 'out 0'",
        ),
    ],
)
def test_a_wrong_question_is_refused_with_what_exists(
    wrong: dict[str, Any], said: str, broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    with pytest.raises(WrongQuestion, match=re.escape(said)) as caught:
        broker.assert_exactly_once(**{**EXACTLY_ONCE, **wrong})
    assert not isinstance(caught.value, AssertionError)


def test_a_cluster_without_topics_has_none_of_those_that_are_asked_about() -> None:
    with pytest.raises(WrongQuestion, match="no topic 'in'; there is none at all"):
        check_names(["in"], ["out"], "g", Known(frozenset(), {}), "")
    check_names(["in"], ["out"], "g", Known(None, {}), "")  # without logs nobody knows


def test_outputs_with_other_values_need_an_identity(broker: InProcessBroker, app: Application) -> None:
    for offset, value in enumerate("abc"):
        app.copy(f"shipped {value}", offset)
    said = "no output has the same value as an input: in-0 offset 0 has b'a', and out-0 offset 0 has b'shipped a'"
    with pytest.raises(WrongQuestion, match=f"{re.escape(said)}; give identity="):
        broker.assert_exactly_once(**EXACTLY_ONCE)


def test_an_unknown_group_is_noted_with_the_findings(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "b", "c")
    app.end()
    assert "note:     no group has joined or committed an offset; is 'g' its name?" in found(broker)
    app.commit_offset(3)
    assert "note: " not in found(broker)


def test_a_test_in_which_nothing_was_processed_has_tested_nothing(broker: InProcessBroker, app: Application) -> None:
    said = "no output in out, and no offset committed past an input: nothing was tested"
    assert found(broker, everything=False) == said
    app.commit_offset(0)
    assert found(broker, everything=False) == said, "its first offset, which it committed before it did anything"
    app.commit_offset(1)
    assert found(broker, everything=False) != said


def test_a_group_at_the_first_input_that_is_left_has_tested_nothing(broker: InProcessBroker, app: Application) -> None:
    deleted = {"Name": "in", "Partitions": [{"PartitionIndex": 0, "Offset": 2}]}
    app.ask("DeleteRecords", 2, Topics=[deleted], TimeoutMs=1000)
    for offset in (1, 2):
        app.commit_offset(offset)
        assert found(broker, everything=False).endswith("no offset committed past an input: nothing was tested")
    app.commit_offset(3)
    assert "input skipped: in-0 offset 2" in found(broker, everything=False)


@pytest.mark.parametrize("ended", [True, False], ids=["aborted", "open"])
def test_a_test_in_which_nothing_was_committed_has_tested_nothing(
    broker: InProcessBroker, app: Application, ended: bool
) -> None:
    app.produce("out", "a")
    app.send_offset(1)
    if ended:
        app.end(commit=False)
    said = "no committed output in out, and no offset committed past an input: nothing was tested"
    assert found(broker, everything=False) == said


def test_an_input_without_an_output_in_one_of_the_topics_is_found(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("also")
    for offset, value in enumerate("abc"):
        if value != "c":
            app.produce("also", value)
            app.sequence = 0  # of another partition
        app.copy(value, offset)
    said = found(broker, outputs=["out", "also"])
    assert "offset without its output: in-0 offset 2: group 'g' committed offset 3" in said
    assert "and no output of it appears in also" in said
    assert "not exactly once: 1 finding(s)" in said


def test_long_lists_are_cut(broker: InProcessBroker) -> None:
    app = Application(broker)
    app.produce("in", *(str(number) for number in range(30)), transactional=False)
    said = found(broker)
    assert "… and 25 more" in said
    assert said.count("input not processed: ") == 5


# --- what no client has asked for -------------------------------------------------------------------------------------


def told(broker: InProcessBroker, action: str) -> list[Event]:
    broker.call(lambda _: None)  # the pending work of the last request is done
    return [event for event in read_history(broker.folder / HISTORY) if event.action == action]


def test_events_have_the_time_of_the_brokers_clock_in_microseconds(broker: InProcessBroker, app: Application) -> None:
    times = [broker.clock()]
    for moment in range(2):
        broker.advance(60)
        app.copy("a", moment)
        times.append(broker.clock())
    [first, second] = [event.time_us or 0 for event in told(broker, "AdvanceClock")]
    assert times[0] * 1000 <= first < second - 59_000_000
    assert second <= times[2] * 1000


def test_markers_are_recorded_with_the_transactional_id(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("b", 1, commit=False)
    markers = [event for event in told(broker, "WriteTxnMarkers") if event.topic == "out"]
    assert [(event.transactional_id, event.offset, event.detail["committed"]) for event in markers] == [
        ("app", 1, True),
        ("app", 3, False),
    ]
    assert {event.process for event in markers} == {"broker-1"}


def test_a_marker_by_hand_is_recorded_as_such(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a")
    topics = [{"Name": "out", "PartitionIndexes": [0]}]
    marker = {
        "ProducerId": app.producer[0],
        "ProducerEpoch": app.producer[1],
        "TransactionResult": False,
        "Topics": topics,
    }
    app.ask("WriteTxnMarkers", 1, Markers=[marker | {"CoordinatorEpoch": 0}])
    [event] = told(broker, "WriteTxnMarkers")
    assert (event.transactional_id, event.detail["by_hand"]) == (None, True)


def test_a_timeout_is_recorded(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a")
    broker.advance(61)
    [event] = told(broker, "TimeOut")
    assert (event.transactional_id, event.producer_id) == ("app", app.producer[0])
    assert [event.detail for event in told(broker, "AdvanceClock")] == [{"seconds": 61}]


def test_moves_of_leaders_and_coordinators_are_recorded(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "two", brokers=2) as broker:
        broker.create_topic("in")
        app = Application(broker)
        app.commit_offset(0)
        place = broker.call(lambda server: server.cluster.state_partition("app").node)
        broker.move_coordinator(transactional_id="app")
        broker.move_coordinator(group="g")
        broker.move_leader("in", 0, 2)
        [moved, group] = told(broker, "Failover")
        assert (moved.transactional_id, moved.process) == ("app", f"broker-{3 - place}")
        assert group.group == "g"
        assert [event.leader_epoch for event in told(broker, "LeaderChange") if event.topic == "in"] == [1]


def test_a_broker_is_killed_before_others_lead_its_partitions(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "two", brokers=2) as broker:
        broker.create_topic("in")
        broker.kill_broker(1, 0.01)
        actions = [event.action for event in read_history(broker.folder / HISTORY)]
        assert actions.index("Crash") < actions.index("LeaderChange")


def test_an_expired_session_is_recorded(broker: InProcessBroker, app: Application) -> None:
    row = {"GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 10_000, "ProtocolType": "consumer"}
    answer = app.ask("JoinGroup", 3, MemberId="", Protocols=[{"Name": "range", "Metadata": b""}], **row)
    broker.advance(11)
    [event] = told(broker, "ExpireSession")
    assert (event.group, event.detail) == ("g", {"member": answer["MemberId"]})


def test_a_restarted_cluster_continues_its_history(broker: InProcessBroker, app: Application) -> None:
    broker.restart()
    app.copy("a", 0)
    assert any(event.topic == "out" for event in told(broker, "WriteTxnMarkers"))


# --- transactions as the broker sees them ----------------------------------------------------------------------------


def test_a_repeated_commit_is_no_further_transaction(broker: InProcessBroker, app: Application) -> None:
    broker.fault("repeat", api="EndTxn", nth=1)
    app.copy("a", 0)
    app.copy("b", 1)
    app.copy("c", 2)
    events = list(read_history(broker.folder / HISTORY))
    requests = read_requests(events)
    numbers = {attempt[1] for batches in requests.batches.values() for _, _, attempt in batches if attempt[0] == "app"}
    assert numbers == {0, 1, 2}
    broker.assert_exactly_once(**EXACTLY_ONCE)


def test_a_transaction_that_was_never_ended_is_over_with_the_next_instance() -> None:
    def event(order: int, action: str, phase: str, offset: int | None = None) -> Event:
        place: dict[str, Any] = {"topic": "t", "partition": 0} if action == "Produce" else {}
        return Event(
            run="r",
            order=order,
            process="p",
            action=action,
            phase=phase,
            transactional_id="x",
            offset=offset,
            detail={"request": order // 2},
            **place,
        )

    events = [
        event(0, "Produce", "invoke"),
        event(1, "Produce", "ok", 0),
        event(2, "InitProducerId", "invoke"),
        event(3, "InitProducerId", "ok"),
        event(4, "Produce", "invoke"),
        event(5, "Produce", "ok", 2),
    ]
    requests = read_requests(events)
    assert [requests.attempt((("t", 0), offset)) for offset in range(3)] == [("x", 0), ("nobody", None), ("x", 1)]


def test_a_folder_with_files_of_another_broker_is_refused_and_left(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "one") as broker:
        broker.create_topic("orders")
        broker.advance(1)
        before = (tmp_path / "one" / "history.jsonl").read_bytes()
        with pytest.raises(ValueError, match=r"one has history\.jsonl of another broker; give an empty"):
            InProcessBroker(tmp_path / "one")
        assert (tmp_path / "one" / "history.jsonl").read_bytes() == before
    (tmp_path / "one" / "history.jsonl").unlink()
    with pytest.raises(ValueError, match="one has data of another broker"):
        InProcessBroker(tmp_path / "one")
