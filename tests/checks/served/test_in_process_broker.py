"""The broker of tests: applications that are right pass, and each mistake is found; without a client library."""

import html
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.history import Event, read_history
from kafka_eos.protocol import Message
from kafka_eos.record_batch import Record, build_batch
from kafka_eos.server.network import Server
from kafka_eos.server.schemas import served_codec
from kafka_eos_checks.served.exactly_once import AmbiguousRecords, StoredRecord, read_requests
from kafka_eos_checks.served.in_process_broker import HISTORY, InProcessBroker, NotExactlyOnce

EXACTLY_ONCE: dict[str, Any] = {"inputs": "in", "outputs": "out", "group": "g"}


class Application:
    """A client that copies "in" to "out" one step at a time, by raw requests over the server's sockets."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.codec = served_codec()
        self.sequence = 0
        row = self.ask("InitProducerId", 4, TransactionalId="app", TransactionTimeoutMs=60_000)
        self.producer = row["ProducerId"], row["ProducerEpoch"]

    def ask(self, api: str, version: int, **row: Any) -> Message:
        port = int(self.broker.bootstrap_servers.rpartition(":")[2])
        data = self.codec.write_request(api, version, 1, "app", row)
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(struct.pack(">i", len(data)) + data)
            reader = client.makefile("rb")
            size = struct.unpack(">i", reader.read(4))[0]
            return self.codec.read_response(api, version, reader.read(size))[1]

    def _transaction(self) -> dict[str, Any]:
        return {"TransactionalId": "app", "ProducerId": self.producer[0], "ProducerEpoch": self.producer[1]}

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
        data = {"Name": topic, "PartitionData": [{"Index": 0, "Records": batch.encode()}]}
        name = "app" if transactional else None
        row = self.ask("Produce", 12, TransactionalId=name, Acks=-1, TimeoutMs=1000, TopicData=[data])
        assert row["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0

    def send_offset(self, offset: int) -> None:
        """The offset belongs to the transaction."""
        topics = [{"Name": "in", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": offset}]}]
        row = self.ask("TxnOffsetCommit", 5, GroupId="g", Topics=topics, **self._transaction())
        assert row["Topics"][0]["Partitions"][0]["ErrorCode"] == 0

    def commit_offset(self, offset: int) -> None:
        """The offset belongs to no transaction."""
        topics = [{"Name": "in", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": offset}]}]
        row = self.ask("OffsetCommit", 8, GroupId="g", Topics=topics)
        assert row["Topics"][0]["Partitions"][0]["ErrorCode"] == 0

    def end(self, commit: bool = True) -> None:
        row = self.ask("EndTxn", 5, Committed=commit, **self._transaction())
        assert row["ErrorCode"] == 0
        if (row["ProducerId"], row["ProducerEpoch"]) != self.producer:
            self.producer, self.sequence = (row["ProducerId"], row["ProducerEpoch"]), 0

    def copy(self, value: str, offset: int, *, commit: bool = True) -> None:
        """One transaction, as it should be."""
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
    """Three inputs are there."""
    application = Application(broker)
    application.produce("in", "a", "b", "c", transactional=False)
    return application


def found(broker: InProcessBroker, **options: Any) -> str:
    """What the broker says is wrong."""
    with pytest.raises(NotExactlyOnce) as caught:
        broker.assert_exactly_once(**{**EXACTLY_ONCE, **options})
    return str(caught.value)


def copy_all(app: Application) -> None:
    for offset, value in enumerate("abc"):
        app.copy(value, offset)


# --- what is found ---------------------------------------------------------------------------------------------------


def test_an_application_that_processes_every_input_once_passes(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("b", 1, commit=False)
    app.copy("b", 1)
    app.copy("c", 2)
    broker.assert_exactly_once(**EXACTLY_ONCE)


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


def test_an_input_of_which_nothing_was_written_is_found(broker: InProcessBroker, app: Application) -> None:
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


def test_an_output_that_comes_from_nowhere_is_found(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    app.produce("out", "z")
    app.end()
    assert "output of no input: out-0" in found(broker)


def test_an_output_of_an_open_transaction_does_not_appear_yet(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.produce("out", "b")
    broker.assert_exactly_once(**EXACTLY_ONCE, everything=False)


# --- what belongs together -------------------------------------------------------------------------------------------


def test_an_identity_joins_outputs_that_are_no_copies(broker: InProcessBroker, app: Application) -> None:
    def number(record: StoredRecord) -> str:
        return (record.value or b"").decode()[-1]

    for offset, value in enumerate("abc"):
        app.copy(f"shipped {value}", offset)
    broker.assert_exactly_once(**EXACTLY_ONCE, identity=number)
    assert "output of no input" in found(broker)


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


def test_inputs_that_nobody_can_tell_apart_are_refused(broker: InProcessBroker, app: Application) -> None:
    app.produce("in", "a", transactional=False)
    with pytest.raises(AmbiguousRecords, match=r"in-0 offset 0 and at in-0 offset 3 have the same identity b'a'"):
        broker.assert_exactly_once(**EXACTLY_ONCE)


def test_records_without_an_identity_are_not_looked_at(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    app.produce("out", "heartbeat")
    app.end()
    broker.assert_exactly_once(
        **EXACTLY_ONCE, identity=lambda record: None if record.value == b"heartbeat" else record.value
    )


@pytest.mark.parametrize("missing", ["inputs", "outputs", "group"])
def test_a_question_that_is_not_whole_is_refused(broker: InProcessBroker, missing: str) -> None:
    with pytest.raises(ValueError, match="inputs, outputs and group belong together"):
        broker.assert_exactly_once(**{name: value for name, value in EXACTLY_ONCE.items() if name != missing})


def test_a_test_without_inputs_has_tested_nothing(broker: InProcessBroker) -> None:
    assert found(broker) == "no input in in: nothing was tested"


def test_without_an_application_the_logs_alone_are_audited(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    broker.assert_exactly_once()

    def tear(server: Server) -> None:
        """A marker that no coordinator has decided on."""
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
    story = html.unescape(re.sub("<[^>]+>", "", page[page.rindex("<pre") :])).splitlines()
    place = next(number for number, line in enumerate(story) if "^  input skipped" in line)
    assert re.search(r"EndTxn .*committed=True", story[place - 1])  # the commit that is behind it, not the abort
    assert any(re.search(r"EndTxn .*committed=False", line) for line in story[:place])


def test_a_diagram_of_an_output_shows_its_transaction(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "b", "c")
    app.end()
    assert "diagram:" in found(broker)
    page = (broker.folder / "exactly-once.html").read_text()
    assert "EndTxn" in page
    assert "coordinator of app" in page


def test_long_lists_are_cut(broker: InProcessBroker) -> None:
    app = Application(broker)
    app.produce("in", *(str(number) for number in range(30)), transactional=False)
    assert "… and 20 more" in found(broker)


# --- transactions as the broker sees them ----------------------------------------------------------------------------


def test_a_repeated_commit_is_no_further_transaction(broker: InProcessBroker, app: Application) -> None:
    broker.fault("repeat", api="EndTxn", nth=1)
    app.copy("a", 0)
    app.copy("b", 1)
    app.copy("c", 2)
    events = list(read_history(broker.folder / HISTORY))
    numbers = {attempt[1] for attempt in read_requests(events).batches.values() if attempt[0] == "app"}
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
    assert read_requests(events).batches == {(("t", 0), 0): ("x", 0), (("t", 0), 2): ("x", 1)}
