"""A scenario's place on a broker: ids and epochs in the machines' terms, waiting, reading back, and leaving."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode, MalformedBatch
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    build_control_batch,
    decode_batch,
)
from kafka_eos.machines.broker import HEARTBEAT
from kafka_eos.machines.transaction_coordinator import Identity
from kafka_eos.machines.transactional_partition import ABORT, COMMIT, PLAIN, TRANSACTIONAL
from kafka_eos.server.consumer_protocol import subscription
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.conform import stage as module
from kafka_eos_checks.conform.beyond import DELETE, INSTANCE, MARK, TIMED, VERIFY, WITH_UNKNOWN, as_instance
from kafka_eos_checks.conform.mechanisms import ONE_ACK, TOO_LONG, TOO_SHORT, Asked, Request
from kafka_eos_checks.conform.observation import coordinator_line
from kafka_eos_checks.conform.stage import Places, Stage, _kind
from kafka_eos_checks.conform.territory import Territory
from kafka_eos_checks.conform.visible import DATA, FIRST, MEMBER, OFFSETS, SECOND, STRANGER
from kafka_eos_checks.conform.wire import Address, ConnectionClosed, NoAnswer, Unsupported

HERE = {"Coordinators": [{"ErrorCode": 0, "Host": "127.0.0.1", "Port": 1}]}


def staged(answer: Callable[[str, Message], Message], **versions: int) -> Stage:
    """A stage whose broker answers so; it is the coordinator of everything."""

    def ask(api: str, row: Message, at: Address | None = None, version: int | None = None) -> Message:
        return HERE if api == "FindCoordinator" else answer(api, row)

    wire: Any = SimpleNamespace(ask=ask, version=lambda api, cap=4: versions.get(api, cap))
    return Stage(wire, Places(wire, seconds=0.2, closing_seconds=0.2), "topic", 0, "prefix")


def marker(control_type: ControlType) -> RecordBatch:
    record = ControlRecord(control_type=control_type, coordinator_epoch=0)
    return build_control_batch(record, producer_id=1, producer_epoch=0, base_offset=0)


def nothing(api: str, row: Message) -> Message:
    raise AssertionError(f"{api} was asked")


def given(producer_id: int, epoch: int) -> Message:
    return {"ProducerId": producer_id, "ProducerEpoch": epoch}


def test_a_producer_id_of_the_machines_stands_for_one_of_the_broker_for_the_whole_scenario() -> None:
    stage = staged(nothing)
    assert stage.learn(Identity(producer_id=0, epoch=0), given(7000, 0)) == Identity(producer_id=0, epoch=0)
    another = stage.learn(Identity(producer_id=0, epoch=1), given(7001, 1))
    assert another.producer_id != 0  # a new producer id where a new epoch was expected
    assert stage.learn(Identity(producer_id=0, epoch=1), given(7000, 1)) == Identity(producer_id=0, epoch=1)
    assert stage.learn(Identity(producer_id=1, epoch=0), given(7000, 0)).producer_id == 0  # nor is one given twice


def test_an_answer_without_a_producer_id_takes_no_number_of_the_machines() -> None:
    stage = staged(nothing)
    assert stage.learn(Identity(producer_id=0, epoch=0), given(-1, 0)) == Identity(producer_id=-1, epoch=0)
    assert stage.learn(Identity(producer_id=0, epoch=0), given(7000, 0)) == Identity(producer_id=0, epoch=0)


def test_a_strangers_producer_id_is_none_that_the_broker_has_given() -> None:
    stage = staged(nothing)
    for number in range(3):
        stage.learn(Identity(producer_id=number, epoch=0), given(7000 + number, 0))
    real = stage._real(Identity(producer_id=STRANGER, epoch=3))
    assert real["ProducerId"] > 7002
    assert real["ProducerEpoch"] == 3


def test_a_question_is_repeated_at_growing_intervals_until_the_leader_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(module, "wait", waited.append)
    said = iter([["NOT_LEADER_OR_FOLLOWER"], ["COORDINATOR_LOAD_IN_PROGRESS"], ["NOT_COORDINATOR"], ["7"]])
    assert staged(nothing)._when_there(lambda: next(said)) == ["7"]
    assert waited == [0, 1, 2]


def test_a_request_is_repeated_at_the_new_coordinator_when_the_old_one_refuses_it() -> None:
    old, new = Address("127.0.0.1", 2), Address("127.0.0.1", 1)
    asked: list[Address | None] = []

    def ask(api: str, row: Message, at: Address | None = None, version: int | None = None) -> Message:
        if api == "FindCoordinator":
            return HERE
        assert at not in asked, "it has refused the request"
        asked.append(at)
        return {"ErrorCode": ErrorCode.NOT_COORDINATOR if at == old else ErrorCode.NONE}

    wire: Any = SimpleNamespace(ask=ask, version=lambda _: 4)
    stage = Stage(wire, Places(wire), "topic", 0, "prefix")
    stage.places._known["coordinator", "prefix-A", module.TRANSACTION_KEY] = old
    assert stage.ask(Asked(request=Request("EndTxn", "A")), None).error == ErrorCode.NONE
    assert asked == [old, new]


def test_a_request_that_is_not_taken_yet_is_repeated_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(module, "wait", waited.append)
    errors = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3 + [ErrorCode.NONE])
    stage = staged(lambda *_: {"ErrorCode": next(errors)})
    stage.places.seconds = 20.0
    assert stage.ask(Asked(request=Request("EndTxn", "A")), None).error == ErrorCode.NONE
    assert waited == [0, 1, 2]


def test_a_leader_is_asked_for_until_its_partition_has_no_error() -> None:
    errors = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE])

    def broker(api: str, row: Message) -> Message:
        part = {"PartitionIndex": 0, "LeaderId": 1, "ErrorCode": next(errors)}
        brokers = [{"NodeId": 1, "Host": "127.0.0.1", "Port": 1}]
        return {"Brokers": brokers, "Topics": [{"ErrorCode": 0, "Partitions": [part]}]}

    stage = staged(broker)
    stage.places.seconds = 20.0
    assert stage.places.leader("topic", 0) == Address("127.0.0.1", 1)
    assert list(errors) == []


@pytest.mark.parametrize(("ended", "asked"), [(0, 1), (1, 2), (2, 2)])
def test_a_question_that_changes_nothing_is_asked_again_once_if_its_connection_has_ended(
    ended: int, asked: int
) -> None:
    rows = []

    def ask(api: str, *_: object) -> Message:
        rows.append(api)
        if len(rows) <= ended:
            raise ConnectionClosed(f"{api}: the broker closed the connection")
        return HERE if api == "FindCoordinator" else {"Topics": [], "TransactionStates": []}

    wire: Any = SimpleNamespace(ask=ask, version=lambda *_: 4)
    stage = Stage(wire, Places(wire), "topic", 0, "prefix")
    stage.places._known["coordinator", "prefix-A", 1] = Address("127.0.0.1", 1)
    for question in (
        lambda: Places(wire).metadata("topic"),
        lambda: Places(wire).coordinator(0, "group"),
        lambda: stage.describe("A"),
        lambda: stage._read({}, {}, ["log"], lambda: [str(ask("Fetch"))]),
    ):
        rows.clear()
        with pytest.raises(ConnectionClosed) if ended > 1 else nullcontext():
            question()
        assert len(rows) == asked


def test_bytes_that_are_no_batch_are_told_as_such() -> None:
    def read() -> tuple[str, str]:
        raise MalformedBatch(7, "half a header")

    assert module._or_malformed(read) == (f"no record batch: {MalformedBatch(7, 'half a header')}", "")
    assert module._or_malformed(lambda: ("a", "b")) == ("a", "b")


@pytest.mark.parametrize("api", ["TxnOffsetCommit", "OffsetCommit"])
def test_a_generation_of_the_machines_stands_for_one_of_the_broker_and_none_for_none(api: str) -> None:
    stage = staged(nothing)
    stage.generation_shift = 4  # the group's first generation is 5
    rows = [stage._row(Asked(request=Request(api), generation=generation)) for generation in (-1, 0, 1, 2)]
    told = [row["GenerationIdOrMemberEpoch"] for row in rows]
    assert told == [-1, 4, 5, 6]


def test_a_consumer_joins_when_the_coordinator_has_loaded_the_group() -> None:
    errors = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE])

    def answer(api: str, row: Message) -> Message:
        if api == "SyncGroup":
            return {"ErrorCode": 0}
        return {"ErrorCode": next(errors), "MemberId": "m", "GenerationId": 5}

    stage = staged(answer)
    assert stage.ask(Asked(request=Request("JoinGroup", MEMBER)), None).error == 0
    assert (stage.member_id, stage.generation_shift) == ("m", 4)


@pytest.mark.parametrize("action", ["TxnOffsetCommit", "OffsetCommit", "JoinConsumerGroup"])
def test_a_request_with_the_group_marks_it_as_used(action: str) -> None:
    stage = staged(lambda *_: {"Topics": [{"TopicId": "id"}]})
    assert not stage.has_group
    stage._row(Asked(request=Request(action, FIRST), member=FIRST))
    assert stage.has_group


@pytest.mark.parametrize(("version", "named"), [(4, {}), (5, {}), (6, {"TopicId": "id"})])
def test_offsets_in_a_transaction_have_the_topics_id_from_version_6_on(version: int, named: Message) -> None:
    stage = staged(lambda *_: {"Topics": [{"TopicId": "id"}]}, TxnOffsetCommit=version)
    [topic] = stage._row(Asked(request=Request("TxnOffsetCommit"), member=FIRST))["Topics"]
    assert {key: value for key, value in topic.items() if key == "TopicId"} == named


@pytest.mark.parametrize("member", [FIRST, SECOND])
def test_a_member_has_an_id_of_its_own_and_owns_what_it_was_given(member: str) -> None:
    stage = staged(lambda *_: {"Topics": [{"TopicId": "id"}]})
    for owned, partitions in ((False, []), (True, [{"TopicId": "id", "Partitions": [0]}])):
        row = stage._row(Asked(request=Request("JoinConsumerGroup", member), member=member, owned=owned))
        assert (row["MemberId"], row["TopicPartitions"]) == (f"prefix-{member}", partitions)


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        (build_batch([Record(value=b"v")]), PLAIN),
        (build_batch([Record(value=b"v")], producer_id=1, producer_epoch=0, is_transactional=True), TRANSACTIONAL),
        (marker(ControlType.COMMIT), COMMIT),
        (marker(ControlType.ABORT), ABORT),
    ],
)
def test_a_batch_is_of_the_kind_that_the_machines_give_it(batch: RecordBatch, kind: str) -> None:
    assert _kind(batch) == kind


def test_a_control_batch_without_a_marker_is_told_and_is_no_abort() -> None:
    other = Record(key=b"\0\0\0\2", value=b"")  # a leader change, which only the quorum's log has
    for records in ([other], []):
        batch = build_batch(
            records, producer_id=1, producer_epoch=0, is_transactional=True, is_control=True, base_timestamp=0
        )
        assert _kind(batch) == "control batch without a marker"


def test_epochs_of_members_count_from_the_first_one_even_if_all_have_left() -> None:
    stage = staged(nothing)
    joins, leaves = (
        Asked(request=Request(action, FIRST), member=FIRST) for action in ("JoinConsumerGroup", "LeaveConsumerGroup")
    )

    def told(asked: Asked, expected: int, epoch: int) -> Identity | None:
        answer = {"ErrorCode": ErrorCode.NONE, "MemberEpoch": epoch}
        return stage._beaten(asked, Identity(epoch=expected), answer)

    assert told(joins, 2, 5) == Identity(epoch=2)
    assert told(leaves, -1, -1) == Identity(epoch=-1)
    assert told(joins, 4, 7) == Identity(epoch=4)
    assert told(leaves, -1, -1) == Identity(epoch=-1)
    assert told(joins, 6, 5) == Identity(epoch=2)  # a group that begins again


@pytest.mark.parametrize(
    ("version", "row", "answer"),
    [
        (7, {"GroupId": "prefix-group"}, lambda group: group),
        (8, {"Groups": [{"GroupId": "prefix-group"}]}, lambda group: {"Groups": [group]}),
        (9, {"Groups": [{"GroupId": "prefix-group"}]}, lambda group: {"Groups": [group]}),
    ],
)
def test_the_offset_is_asked_for_in_the_shape_of_the_version(
    version: int, row: Message, answer: Callable[[Message], Message]
) -> None:
    topics = [{"Name": "topic", "PartitionIndexes": [0]}]
    expected = {"RequireStable": True, **row}
    (expected if version < 8 else expected["Groups"][0])["Topics"] = topics

    def broker(api: str, sent: Message) -> Message:
        assert (api, sent) == ("OffsetFetch", expected)
        part = {"ErrorCode": 0, "CommittedOffset": 3, "Metadata": "next is 3"}
        return answer({"ErrorCode": 0, "Topics": [{"Partitions": [part]}]})

    assert staged(broker, OffsetFetch=version)._offset() == "3"


def test_the_offsets_of_all_partitions_are_asked_for_without_topics() -> None:
    rows: list[Message] = []

    def broker(api: str, sent: Message) -> Message:
        rows.append(sent)
        return {"Groups": [{"ErrorCode": 0, "Topics": []}]}

    assert staged(broker, OffsetFetch=8)._offset(of_all=True) == "-1"
    assert rows == [{"RequireStable": True, "Groups": [{"GroupId": "prefix-group", "Topics": None}]}]


def test_a_batch_is_told_with_its_producer_its_sequences_and_whether_it_is_in_a_transaction() -> None:
    stage = staged(nothing)
    one = stage.learn(Identity(producer_id=0, epoch=3), given(7000, 3))
    for action, records, said in (
        ("Produce", 1, "sequence 5, transactional"),
        ("ProduceOutside", 2, "sequences 5 to 6, plain"),
    ):
        batch = Asked(request=Request(action), identity=one, sequence=5, count=records)
        assert stage._batch_in_words(batch) == f", a batch of producer 7000 epoch 3 {said}"
    assert stage._batch_in_words(Asked(request=Request("EndTxn", "A"))) == ""
    assert module.shown({"A": [{"B": b"ab"}, None], "C": "d\n e"}) == "{A: [{B: 2 bytes}, None], C: d e}"


def test_a_leader_begins_a_segment_every_few_batches_of_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "time_ns", lambda: 1_000_000)
    stage = staged(nothing)
    written = []
    for sequence in range(2 * module.BATCHES_OF_SEGMENT + 1):
        row = stage._row(
            Asked(request=Request("Produce"), identity=Identity(producer_id=0, epoch=0), sequence=sequence)
        )
        batch, _ = decode_batch(row["TopicData"][0]["PartitionData"][0]["Records"])
        written.append(batch.max_timestamp)
    jumps = [later - earlier for earlier, later in pairwise(written)]
    assert [place for place, jump in enumerate(jumps, 1) if jump > module.SEGMENT_MS] == [4, 8]


@pytest.mark.parametrize("refusal", [ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION])
def test_a_topic_has_long_segments_where_the_broker_refuses_short_ones(refusal: ErrorCode) -> None:
    asked: list[list[str]] = []

    def ask(api: str, row: Message, at: Address | None = None, version: int | None = None) -> Message:
        if api == "Metadata":
            part = {"PartitionIndex": 0, "LeaderId": 1, "ErrorCode": 0}
            return {
                "Brokers": [{"NodeId": 1, "Host": "127.0.0.1", "Port": 1}],
                "Topics": [{"ErrorCode": 0, "Partitions": [part]}],
            }
        configs = [each["Name"] for each in row["Topics"][0]["Configs"]]
        asked.append(configs)
        return {"Topics": [{"ErrorCode": refusal if "segment.ms" in configs else ErrorCode.NONE}]}

    wire: Any = SimpleNamespace(ask=ask, version=lambda _: 7)
    territory = Territory(wire)
    territory._create("topic", 1)
    territory._create("other", 1, node=1)
    assert asked == [["segment.ms"], [], ["segment.ms", "min.insync.replicas"], ["min.insync.replicas"]]


def test_offsets_of_timestamps_are_asked_for_until_the_leader_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = [build_batch([Record(value=b"v")], base_offset=offset, base_timestamp=offset) for offset in range(2)]
    errors = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.NONE])

    def broker(api: str, row: Message) -> Message:
        [part] = row["Topics"][0]["Partitions"]
        if api == "ListOffsets":
            found = part["Timestamp"] if part["Timestamp"] < 1 else -1
            return {"Topics": [{"Partitions": [{"ErrorCode": next(errors), "Offset": found}]}]}
        end = 1 if row["IsolationLevel"] else 2
        own = {"ErrorCode": 0, "HighWatermark": 2, "LastStableOffset": 1, "AbortedTransactions": None}
        own |= {"PartitionIndex": 0, "Records": b"".join(each.encode() for each in stored[part["FetchOffset"] : end])}
        return {"Responses": [{"Topic": "topic", "Partitions": [own]}]}

    monkeypatch.setattr(module, "wait", lambda _: None)
    stage = staged(broker)
    monkeypatch.setattr(Places, "leader", lambda *_: Address("127.0.0.1", 1))
    timed, later = stage._when_there(stage._later)
    assert (timed, later) == ("as in the log, below the last stable offset", "from 1: nothing")
    assert list(errors) == []


def closing(*states: str) -> Callable[[str, Message], Message]:
    """A coordinator that tells these states one after another, and the last one for ever."""
    left = list(states)

    def broker(api: str, row: Message) -> Message:
        assert api == "DescribeTransactions"
        state = left.pop(0) if len(left) > 1 else left[0]
        return {"TransactionStates": [{"ErrorCode": 0, "TransactionState": state}]}

    return broker


def test_a_scenario_waits_until_every_coordinator_has_closed_its_transaction() -> None:
    asked: list[str] = []
    broker = closing("CompleteCommit", "PrepareCommit", "CompleteCommit")

    def noting(api: str, row: Message) -> Message:
        asked.append(row["TransactionalIds"][0])
        return broker(api, row)

    staged(noting).settle(["A", "B"], 0)
    assert asked == ["prefix-A", "prefix-B"] * 2


def test_a_transaction_that_is_never_closed_is_no_answer() -> None:
    with pytest.raises(NoAnswer, match="did not close"):
        staged(closing("PrepareAbort")).settle(["A"], 0)


def mark(stage: Stage, detail: str, **told: Any) -> Any:
    return stage.ask(
        Asked(request=Request(MARK, detail=detail), identity=Identity(producer_id=1, epoch=3), **told), None
    )


@pytest.mark.parametrize(
    ("detail", "commits", "epoch"),
    [("commit", True, 7), ("abort, coordinator epoch - 1", False, 6), ("commit, coordinator epoch + 1", True, 8)],
)
def test_a_marker_is_sent_to_the_leader_with_a_coordinator_epoch_relative_to_the_producers_last_one(
    detail: str, commits: bool, epoch: int
) -> None:
    sent: list[Message] = []
    written = [
        build_control_batch(
            ControlRecord(control_type=ControlType.COMMIT, coordinator_epoch=coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=0,
            base_offset=offset,
        )
        for offset, (producer_id, coordinator_epoch) in enumerate([(1, 7), (2, 9)])
    ]

    def answer(api: str, row: Message) -> Message:
        part: Message = {"PartitionIndex": 0, "ErrorCode": 52}
        if api == "Fetch":
            data = b"".join(batch.encode() for batch in written)
            part |= {"ErrorCode": 0, "HighWatermark": 2, "LastStableOffset": 2, "Records": data}
            return {"Responses": [{"Topic": "topic", "Partitions": [part]}]}
        if api == "Metadata":
            brokers = [{"NodeId": 1, "Host": "127.0.0.1", "Port": 1}]
            led = {"PartitionIndex": 0, "LeaderId": 1, "ErrorCode": 0}
            return {"Brokers": brokers, "Topics": [{"ErrorCode": 0, "Partitions": [led]}]}
        sent.append(row["Markers"][0])
        return {"Markers": [{"ProducerId": 1, "Topics": [{"Name": "topic", "Partitions": [part]}]}]}

    assert mark(staged(answer), detail, version=2).error == 52
    [row] = sent
    assert (row["ProducerId"], row["ProducerEpoch"], row["TransactionVersion"]) == (1, 3, 2)
    assert (row["TransactionResult"], row["CoordinatorEpoch"]) == (commits, epoch)


def verified(answer: Message, **versions: int) -> tuple[Any, Message]:
    sent: Message = {}

    def broker(api: str, row: Message) -> Message:
        sent.update(row["Transactions"][0])
        return answer

    given = Asked(request=Request(VERIFY), identity=Identity(producer_id=1, epoch=3))
    return staged(broker, **versions).ask(given, None), sent


def test_a_question_about_a_transaction_is_sent_as_a_leader_does() -> None:
    result = {"Name": "topic", "ResultsByPartition": [{"PartitionIndex": 0, "PartitionErrorCode": 51}]}
    told = {"ErrorCode": 0, "ResultsByTransaction": [{"TransactionalId": "prefix-A", "TopicResults": [result]}]}
    reply, sent = verified(told)
    assert reply.error == 51
    assert (sent["TransactionalId"], sent["ProducerEpoch"], sent["VerifyOnly"]) == ("prefix-A", 3, True)
    assert verified({"ErrorCode": 53})[0].error == 53


def test_what_clients_may_not_ask_as_brokers_do_is_not_supported() -> None:
    with pytest.raises(Unsupported, match="needs ClusterAction"):
        verified({"ErrorCode": 31})
    with pytest.raises(Unsupported, match="version 4 is needed, the broker offers 3"):
        verified({}, AddPartitionsToTxn=3)


@pytest.mark.parametrize(("detail", "instance"), [("", None), ("as its instance", INSTANCE)])
def test_a_consumer_joins_with_its_subscription_and_a_static_one_with_its_instance(
    detail: str, instance: str | None
) -> None:
    sent: dict[str, Message] = {}

    def answer(api: str, row: Message) -> Message:
        sent[api] = row
        return {"ErrorCode": 0, "MemberId": "m", "GenerationId": 1}

    stage = staged(answer)
    stage.ask(Asked(request=Request("JoinGroup", "", detail=detail)), None)
    assert sent["JoinGroup"]["GroupInstanceId"] == sent["SyncGroup"]["GroupInstanceId"] == instance
    said = subscription(sent["JoinGroup"]["Protocols"][0]["Metadata"])
    assert said is not None
    assert said.topics == {"topic"}


@pytest.mark.parametrize(
    ("member", "sent"),
    [
        (MEMBER, ("m", None)),
        (as_instance(MEMBER, INSTANCE), ("m", INSTANCE)),
        (as_instance("somebody", INSTANCE), ("somebody", INSTANCE)),
        (None, ("", None)),
    ],
)
def test_offsets_are_sent_with_the_members_id_and_its_instance(
    member: str | None, sent: tuple[str, str | None]
) -> None:
    stage = staged(nothing)
    stage.member_id = "m"
    row = stage._row(Asked(request=Request("OffsetCommit", ""), member=member))
    assert (row["MemberId"], row["GroupInstanceId"]) == sent


@pytest.mark.parametrize("of_group", [True, False])
def test_a_deletion_is_answered_for_the_group_or_for_the_partition(of_group: bool) -> None:
    def answer(api: str, row: Message) -> Message:
        part = {"PartitionIndex": row["Topics"][0]["Partitions"][0]["PartitionIndex"], "ErrorCode": 86}
        topics = [{"Name": row["Topics"][0]["Name"], "Partitions": [part]}]
        return {"ErrorCode": 69, "Topics": []} if of_group else {"ErrorCode": 0, "Topics": topics}

    stage = staged(answer)
    assert stage.ask(Asked(request=Request(DELETE, "")), None).error == (69 if of_group else 86)
    assert stage.has_group


def test_after_a_transaction_that_was_never_closed_the_next_one_is_waited_for_a_quarter_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = staged(closing("PrepareAbort"))
    stage.places.closing_seconds = 8.0
    monkeypatch.setattr("kafka_eos_checks.conform.stage.time", SimpleNamespace(monotonic=count(0, 3).__next__))
    with pytest.raises(NoAnswer, match="within 8 s"):
        stage.settle(["A"], 0)
    assert stage.places.closing_seconds == 2


def test_without_states_of_transactions_the_last_expected_offset_shows_that_they_are_closed() -> None:
    watermarks = iter([2, 3])

    def leader(api: str, row: Message) -> Message:
        if api == "DescribeTransactions":
            raise Unsupported(api)
        own = {"HighWatermark": next(watermarks)}  # asked a third time, there is no answer
        return {"Responses": [{"Partitions": [own]}]}

    stage = staged(leader)
    stage.places.closing_seconds = 20.0
    stage.places._known["leader", "topic", 0] = Address("127.0.0.1", 1)
    stage.settle(["A"], 3)
    assert stage.places.closing_seconds == 20


def test_of_a_transactions_partitions_the_scenarios_own_has_its_topic_and_its_number() -> None:
    topics = [{"Topic": "topic", "Partitions": [0, 1]}, {"Topic": "other", "Partitions": [0]}]
    told = {"ErrorCode": 0, "TransactionState": "Ongoing", "ProducerId": 7, "ProducerEpoch": 0, "Topics": topics}
    described = staged(lambda *_: {"TransactionStates": [told]}).described("A")
    assert described == coordinator_line("Ongoing", "id 7", 0, [DATA, "?", "?"])


@pytest.mark.parametrize(
    ("committed", "second", "said"), [([0, 1], 1, "5"), ([1, 0], 1, "5"), ([1], 1, "-1"), ([0], -1, "5")]
)
def test_of_all_offsets_of_a_group_the_scenarios_own_partition_counts(
    committed: list[int], second: int, said: str
) -> None:
    parts = [
        {"PartitionIndex": number, "ErrorCode": 0, "CommittedOffset": 5 + number, "Metadata": f"next is {5 + number}"}
        for number in committed
    ]
    told = {"ErrorCode": 0, "Topics": [{"Name": "topic", "Partitions": parts}]}
    stage = staged(lambda *_: {"Groups": [{"GroupId": "p-group", **told}]}, OffsetFetch=9)
    stage.prefix, stage.second_partition = "p", second
    stage.places._known["coordinator", stage.group, 0] = Address("127.0.0.1", 1)
    assert stage._offset(of_all=True) == said


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([0, 1], DATA),
        ([1, 0], DATA),
        ([0], "data of the first partition only"),
        ([1], "data of the second partition only"),
    ],
)
def test_a_transaction_with_one_of_two_partitions_is_told_apart_from_one_with_both(
    numbers: list[int], said: str
) -> None:
    topics = [{"Topic": "topic", "Partitions": numbers}]
    told = {"ErrorCode": 0, "TransactionState": "Ongoing", "ProducerId": 7, "ProducerEpoch": 0, "Topics": topics}
    stage = staged(lambda *_: {"TransactionStates": [told]})
    stage.second_partition = 1
    assert stage.described("A") == coordinator_line("Ongoing", "id 7", 0, [said])


def test_offsets_of_two_groups_are_told_as_in_the_transaction_whether_one_partition_has_both_or_two() -> None:
    for numbers in ([3], [3, 4]):
        topics = [{"Topic": "__consumer_offsets", "Partitions": numbers}]
        told = {"ErrorCode": 0, "TransactionState": "Ongoing", "ProducerId": 7, "ProducerEpoch": 0, "Topics": topics}
        stage = staged(lambda *_, told=told: {"TransactionStates": [told]})
        stage.groups = ("group", "group-1")
        assert stage.described("A") == coordinator_line("Ongoing", "id 7", 0, [OFFSETS])
        stage.groups = ("group",)
        assert stage.described("A") == coordinator_line("Ongoing", "id 7", 0, [OFFSETS] * len(numbers))


def test_a_second_group_has_the_same_place_and_a_name_of_its_own() -> None:
    stage = staged(nothing)
    stage.groups = ("group", "group-1")
    assert stage.second is not None
    assert (stage.group, stage.second.group) == ("prefix-group", "prefix-group-1")
    assert (stage.second.partition, stage.second.second) == (stage.partition, stage)


@pytest.mark.parametrize(("which", "told"), [("", 60_001), (TOO_SHORT, 0), (TOO_LONG, 2**31 - 1)])
def test_a_transaction_timeout_is_an_own_one_or_one_that_no_broker_allows(which: str, told: int) -> None:
    stage = staged(nothing)
    row = stage._row(Asked(request=Request(TIMED if which else "InitProducerId", "A", detail=which)))
    assert (row["TransactionTimeoutMs"], row["ProducerId"]) == (told, -1)


def test_a_broker_that_allows_every_timeout_cannot_be_asked_for_one_that_it_does_not_allow() -> None:
    stage = staged(nothing)
    stage.longest_timeout = lambda: (2**31 - 1) / 1000
    assert stage._timeout(TOO_SHORT) == 0
    with pytest.raises(Unsupported, match="2147483647 ms"):
        stage._timeout(TOO_LONG)


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_request_with_an_unknown_partition_the_answer_about_the_known_one_counts(order: int) -> None:
    errors = {0: ErrorCode.OPERATION_NOT_ATTEMPTED, module.UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    asked: list[Message] = []

    def broker(api: str, row: Message, *_: object) -> Message:
        asked.append(row)
        rows = [{"PartitionIndex": number, "PartitionErrorCode": errors[number]} for number in errors][::order]
        return {"ResultsByTopicV3AndBelow": [{"Name": "topic", "ResultsByPartition": rows}]}

    stage = staged(broker)
    stage.places._known["coordinator", "prefix-A", module.TRANSACTION_KEY] = Address("127.0.0.1", 1)
    for action, numbers in ((WITH_UNKNOWN, [*errors]), ("AddPartitionsToTxn", [0])):
        assert stage.ask(Asked(request=Request(action, "A")), None).error == ErrorCode.OPERATION_NOT_ATTEMPTED
        assert asked.pop()["V3AndBelowTopics"] == [{"Name": "topic", "Partitions": numbers}]


@pytest.mark.parametrize(("detail", "acks"), [("next", -1), (ONE_ACK, 1)])
def test_a_batch_waits_for_all_replicas_or_for_none(detail: str, acks: int) -> None:
    row = staged(nothing)._produce_row(Asked(request=Request("Produce", "A", detail=detail), sequence=0), given(7, 0))
    assert row["Acks"] == acks


def test_what_could_not_be_deleted_is_told_with_the_reason() -> None:
    def broker(api: str, row: Message, *_: object) -> Message:
        assert (api, row["TopicNames"]) == ("DeleteTopics", ["ours"])
        return {"Responses": [{"ErrorCode": ErrorCode.NOT_COORDINATOR}]}

    wire: Any = SimpleNamespace(ask=broker)
    territory = Territory(wire, seconds=0.0)
    territory.topics.append("ours")
    territory.clean()
    assert territory.left == ["topic ours (NOT_COORDINATOR)"]


def test_records_that_are_not_those_that_were_sent_are_told() -> None:
    stage = staged(nothing)
    request = Asked(request=Request("ProduceOutside", FIRST), sequence=0, count=2)
    row = stage._produce_row(request, given(7000, 0))
    sent, _ = decode_batch(row["TopicData"][0]["PartitionData"][0]["Records"])
    assert "other records" not in stage._entry(sent)
    for records in (sent.records()[:1], [replace(record, value=b"w") for record in sent.records()]):
        named = {"producer_id": 7000, "producer_epoch": 0, "base_sequence": 0}
        assert stage._entry(build_batch(records, **named)).endswith(" with other records than were sent")
    assert "other" not in stage._entry(build_batch([Record(value=b"w")], producer_id=1, base_sequence=0)), "of another"


def test_a_log_is_read_on_up_to_where_reading_ends() -> None:
    stored = [build_batch([Record(value=b"v")], base_offset=offset) for offset in range(3)]

    def leader(api: str, row: Message) -> Message:
        [part] = row["Topics"][0]["Partitions"]
        own = {"ErrorCode": 0, "HighWatermark": 3, "LastStableOffset": 2, "AbortedTransactions": None}
        own |= {"PartitionIndex": 0, "Records": stored[part["FetchOffset"]].encode()}
        return {"Responses": [{"Topic": "topic", "Partitions": [own]}]}

    stage = staged(leader)
    stage.places._known["leader", "topic", 0] = Address("127.0.0.1", 1)
    for committed, end in ((False, 3), (True, 2)):
        read = [batch.base_offset for _, batches in stage._fetched(committed) for batch in batches]
        assert read == list(range(end))


def log_of(stored: list[RecordBatch], told: int) -> tuple[str, int]:
    """The line that is read back of a log, and how often Metadata was asked; ``told``: the epoch that it tells."""
    asked = []

    def leader(api: str, row: Message) -> Message:
        asked.append(api)
        if api == "Metadata":
            return {"Topics": [{"Partitions": [{"PartitionIndex": 0, "LeaderEpoch": told}]}]}
        own = {"ErrorCode": 0, "HighWatermark": stored[-1].next_offset, "AbortedTransactions": None}
        own |= {"PartitionIndex": 0, "Records": b"".join(batch.encode() for batch in stored)}
        return {"Responses": [{"Topic": "topic", "Partitions": [own]}]}

    stage = staged(leader)
    stage.places._known["leader", "topic", 0] = Address("127.0.0.1", 1)
    return stage._log()[0], asked.count("Metadata")


@pytest.mark.parametrize(
    ("epochs", "told", "words", "asked"),
    [
        ((0, 0, 0), 0, [], 1),
        ((0, 3, 3), 3, [], 1),
        ((3, 3, 4), 3, ["", "", " in leader epoch 4 of a leader in epoch 3"], 2),
        ((0, 2, 1), 2, ["", "", " in leader epoch 1 where 2 had been reached"], 1),
        ((-1, 0, 0), 0, [" in leader epoch -1 where 0 had been reached", "", ""], 1),
        ((0, 5, 5), -1, [], 3),  # a broker that does not tell the epoch
    ],
)
def test_a_leader_epoch_that_the_leader_has_not_or_that_goes_back_is_told(
    epochs: tuple[int, ...], told: int, words: list[str], asked: int
) -> None:
    stored = [
        build_batch([Record(value=b"v")], base_offset=offset, partition_leader_epoch=epoch)
        for offset, epoch in enumerate(epochs)
    ]
    lines = [f"{offset} {PLAIN} of producer id -1 epoch -1" for offset in range(3)]
    expected = [line + word for line, word in zip(lines, words or [""] * 3, strict=True)]
    assert log_of(stored, told) == ("; ".join(expected), asked)


def test_the_coordinator_epoch_of_a_producers_markers_does_not_go_back() -> None:
    def ended(offset: int, producer_id: int, coordinator_epoch: int) -> RecordBatch:
        record = ControlRecord(control_type=ControlType.COMMIT, coordinator_epoch=coordinator_epoch)
        batch = build_control_batch(record, producer_id=producer_id, producer_epoch=0, base_offset=offset)
        return replace(batch, partition_leader_epoch=0)

    markers = [(7, 1), (7, 1), (7, 2), (8, 0), (7, 1), (8, -1), (7, 2)]
    said = log_of([ended(offset, *each) for offset, each in enumerate(markers)], 0)[0].split("; ")
    assert [line.partition(" epoch 0")[2] for line in said] == [
        *[""] * 4,
        " in coordinator epoch 1 where 2 had been reached",
        " in coordinator epoch -1 where 0 had been reached",
        "",
    ]


def test_a_batch_that_no_leader_writes_is_told() -> None:
    ended = replace(marker(ControlType.COMMIT), partition_leader_epoch=0)
    for batch, words in (
        (ended, "0 commit of producer id 1 epoch 0"),
        (replace(ended, base_sequence=5), "0 commit of producer id 1 epoch 0 sequence 5"),
        (replace(ended, attributes=0x20), "0 commit of producer id 1 epoch 0 that is not transactional"),
        (replace(ended, last_offset_delta=1), "0 commit of producer id 1 epoch 0 up to offset 1 with 1 records"),
    ):
        assert staged(nothing)._entry(batch) == words


@pytest.mark.parametrize(("aborted", "is_right"), [([0, 2], True), ([2, 0], False), ([0, 0], False)])
def test_the_aborted_transactions_of_a_producer_are_told_once_each_and_in_order(
    aborted: list[int], is_right: bool
) -> None:
    stored = [
        build_batch([Record(value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        build_control_batch(
            ControlRecord(control_type=ControlType.ABORT, coordinator_epoch=0),
            producer_id=7,
            producer_epoch=0,
            base_offset=1,
        ),
    ]

    def leader(api: str, row: Message) -> Message:
        told = [{"ProducerId": 7, "FirstOffset": offset} for offset in aborted]
        told.insert(1, {"ProducerId": 8, "FirstOffset": 0})
        own = {"ErrorCode": 0, "LastStableOffset": 2, "PartitionIndex": 0, "AbortedTransactions": told}
        own |= {"Records": b"".join(batch.encode() for batch in stored)}
        return {"Responses": [{"Topic": "topic", "Partitions": [own]}]}

    stage = staged(leader)
    stage.places._known["leader", "topic", 0] = Address("127.0.0.1", 1)
    stage.ids[3] = 7
    order = f"aborted transactions of producer 3 from {aborted[0]}, {aborted[1]} on"
    assert stage._committed()[0].startswith("nothing" if is_right else order)


@pytest.mark.parametrize(
    ("marked", "words"),
    [
        (None, ""),
        ({7: 2}, ""),
        ({7: 1}, " in coordinator epoch 2, where its last marker has 1"),
        ({}, " in coordinator epoch 2, where its last marker has -1"),
    ],
)
def test_a_producer_has_the_coordinator_epoch_of_its_last_marker(marked: dict[int, int] | None, words: str) -> None:
    stage = staged(nothing)
    stage._marked = marked
    assert stage._marked_otherwise({"ProducerId": 7, "CoordinatorEpoch": 2}) == words


def test_metadata_that_is_not_that_of_the_commit_is_told() -> None:
    part = {"PartitionIndex": 0, "ErrorCode": 0, "CommittedOffset": 3, "Metadata": "next is 3"}
    answer = {"ErrorCode": 0, "Topics": [{"Name": "topic", "Partitions": [part]}]}
    stage = staged(lambda *_: answer, OffsetFetch=7)
    assert stage._offset() == "3"
    part["Metadata"] = ""
    assert stage._offset() == "3 with other metadata than was committed"
    part["CommittedOffset"] = -1
    assert stage._offset() == "-1"


def test_timestamps_are_those_that_were_sent_unless_the_topic_has_the_time_of_the_append() -> None:
    stage = staged(nothing)
    request = Asked(request=Request("ProduceOutside", FIRST), sequence=0, count=2)
    row = stage._produce_row(request, given(7000, 0))
    sent, _ = decode_batch(row["TopicData"][0]["PartitionData"][0]["Records"])
    named = {"producer_id": 7000, "producer_epoch": 0, "base_sequence": 0}
    later = build_batch(list(sent.records()), base_timestamp=sent.base_timestamp + 1, **named)
    assert stage._entry(later).endswith(" with other records than were sent")
    assert "other records" not in stage._entry(sent.stamped(TimestampType.LOG_APPEND_TIME, sent.max_timestamp + 5))
    other = build_batch([Record(value=b"w")] * 2, **named).stamped(TimestampType.LOG_APPEND_TIME, 5)
    assert stage._entry(other).endswith(" with other records than were sent")


def test_requests_tell_nothing_that_a_client_does_not_know() -> None:
    stage = staged(nothing)
    row = stage._row(Asked(request=Request("TxnOffsetCommit"), offset=3))
    part = {"PartitionIndex": 0, "CommittedOffset": 3, "CommittedLeaderEpoch": -1, "CommittedMetadata": "next is 3"}
    assert row["Topics"] == [{"Name": "topic", "Partitions": [part]}]
    asked: dict[str, Message] = {}

    def broker(api: str, row: Message) -> Message:
        asked[api] = row
        if api == "ListOffsets":
            return {"Topics": [{"Partitions": [{"ErrorCode": 0, "Offset": 7}]}]}
        listed = {"TransactionalId": "prefix-A", "TransactionState": "Empty", "ProducerId": 7000}
        return {"ErrorCode": 0, "TransactionStates": [listed]}

    stage = staged(broker)
    stage.places._known["leader", "topic", 0] = Address("127.0.0.1", 1)
    assert stage._offset_at(module.LATEST) == 7
    latest = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}
    topics = [{"Name": "topic", "Partitions": [latest]}]
    assert asked["ListOffsets"] == {"ReplicaId": -1, "IsolationLevel": 1, "Topics": topics}
    state: Any = SimpleNamespace(known=lambda _: SimpleNamespace(producer_id=0))
    assert stage._listed("A", state) == "Empty"
    assert asked["ListTransactions"] == {"StateFilters": [], "ProducerIdFilters": [], "DurationFilter": -1}
    stage.ids[0] = 7000
    assert stage._listed("A", state) == "Empty"
    assert asked["ListTransactions"]["ProducerIdFilters"] == [7000]
    stage.ids[0] = 7001
    assert stage._listed("A", state) == "Empty, and other producer ids than were asked for"


def test_a_member_presents_the_epoch_that_the_broker_gave_it_and_its_own_ones_to_join_and_to_leave() -> None:
    stage = staged(lambda *_: {"Topics": [{"TopicId": "id"}]})
    stage.generation_shift = 4
    told = {}
    for action in ("JoinConsumerGroup", "Heartbeat", "LeaveConsumerGroup"):
        told[action] = stage._row(Asked(request=Request(action, FIRST), member=FIRST, generation=2))["MemberEpoch"]
    assert told == {"JoinConsumerGroup": 0, "Heartbeat": 6, "LeaveConsumerGroup": -1}


@pytest.mark.parametrize(("error", "offset"), [(0, 5), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None)])
def test_only_a_batch_that_was_appended_has_an_offset(error: int, offset: int | None) -> None:
    part = {"ErrorCode": error, "BaseOffset": 5}
    stage = staged(lambda *_: {"Responses": [{"PartitionResponses": [part]}]})
    stage.places._known["leader", "topic", 0] = Address("127.0.0.1", 1)
    reply = stage.ask(Asked(request=Request("ProduceOutside", FIRST), sequence=0), None)
    assert (reply.error, reply.offset) == (error, offset)


def test_without_a_version_of_offset_fetch_that_can_require_stable_offsets_nothing_is_read() -> None:
    with pytest.raises(Unsupported, match="requireStable needs version 7, the broker offers 6"):
        staged(nothing, OffsetFetch=6)._offset()


def renamed(row: object, field: str) -> object:
    """A response with another value in every field of that name."""
    if isinstance(row, list):
        return [renamed(each, field) for each in row]
    if not isinstance(row, dict):
        return row
    others = {True: 99, False: "another"}
    return {k: others[isinstance(v, int)] if k == field else renamed(v, field) for k, v in row.items()}


NAMED = {
    "Produce": {
        "Responses": [{"Name": "topic", "PartitionResponses": [{"Index": 0, "ErrorCode": 0, "BaseOffset": 3}]}]
    },
    "AddPartitionsToTxn": {
        "ResultsByTopicV3AndBelow": [
            {"Name": "topic", "ResultsByPartition": [{"PartitionIndex": 0, "PartitionErrorCode": 0}]}
        ]
    },
    "TxnOffsetCommit": {"Topics": [{"Name": "topic", "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0}]}]},
    "OffsetCommit": {"Topics": [{"Name": "topic", "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0}]}]},
    "Fetch": {
        "Responses": [
            {
                "Topic": "topic",
                "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0, "HighWatermark": 0, "Records": b""}],
            }
        ]
    },
    "ListOffsets": {"Topics": [{"Name": "topic", "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0, "Offset": 3}]}]},
    "DescribeProducers": {
        "Topics": [{"Name": "topic", "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0, "ActiveProducers": []}]}]
    },
    "OffsetFetch": {
        "Groups": [
            {
                "GroupId": "prefix-group",
                "ErrorCode": 0,
                "Topics": [
                    {"Name": "topic", "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0, "CommittedOffset": -1}]}
                ],
            }
        ]
    },
    "ConsumerGroupDescribe": {"Groups": [{"GroupId": "prefix-group", "ErrorCode": 0, "GroupEpoch": 1, "Members": []}]},
    "DescribeTransactions": {
        "TransactionStates": [
            {
                "TransactionalId": "prefix-A",
                "ErrorCode": 0,
                "TransactionState": "Empty",
                "ProducerId": 1,
                "ProducerEpoch": 0,
                "Topics": [],
            }
        ]
    },
}
"""An answer to each question, with the fields that name what it is about."""
READ: dict[str, Callable[[Stage], object]] = {
    "Produce": lambda stage: stage.ask(Asked(request=Request("ProduceOutside", FIRST), sequence=0), None),
    "AddPartitionsToTxn": lambda stage: stage.ask(Asked(request=Request("AddPartitionsToTxn")), None),
    "TxnOffsetCommit": lambda stage: stage.ask(Asked(request=Request("TxnOffsetCommit"), offset=1), None),
    "OffsetCommit": lambda stage: stage.ask(Asked(request=Request("OffsetCommit"), offset=1), None),
    "Fetch": lambda stage: stage._log(),
    "ListOffsets": lambda stage: stage._offset_at(module.LATEST),
    "DescribeProducers": lambda stage: stage._producers(),
    "OffsetFetch": lambda stage: stage._offset(),
    "ConsumerGroupDescribe": lambda stage: stage._members(),
    "DescribeTransactions": lambda stage: stage.described("A"),
}
SUBJECTS = {"Name", "Topic", "Index", "PartitionIndex", "GroupId", "TransactionalId"}


@pytest.mark.parametrize("api", NAMED)
def test_an_answer_about_another_partition_group_or_transactional_id_is_no_answer(api: str) -> None:
    def read(answer: Any) -> object:
        stage = staged(lambda *_: answer, OffsetFetch=9)
        stage.second_partition = 99  # an answer about this one, too, is about another than was asked about
        stage.places._known["leader", "topic", 0] = Address("127.0.0.1", 1)
        return READ[api](stage)

    read(NAMED[api])
    fields = {field for field in SUBJECTS if f"'{field}'" in str(NAMED[api])}
    assert fields
    for field in fields:
        with pytest.raises(NoAnswer, match=f"a response about {field} (another|99), where .* was asked about"):
            read(renamed(NAMED[api], field))


def test_an_answer_about_another_topic_id_is_no_answer() -> None:
    def answer(api: str, _: Message) -> Message:
        if api == "Metadata":
            return {"Topics": [{"ErrorCode": 0, "Name": "topic", "TopicId": "one", "Partitions": []}]}
        return {"Topics": [{"TopicId": "another", "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0}]}]}

    stage = staged(answer, TxnOffsetCommit=module.FIRST_WITH_TOPIC_IDS)
    with pytest.raises(NoAnswer, match="a response about TopicId another, where one was asked about"):
        stage.ask(Asked(request=Request("TxnOffsetCommit"), offset=1), None)


def test_a_coordinator_of_another_key_is_no_answer() -> None:
    other = {"Coordinators": [{"Key": "another", "ErrorCode": 0, "Host": "127.0.0.1", "Port": 1}]}
    wire: Any = SimpleNamespace(ask=lambda *_: other, version=lambda _: 4)
    with pytest.raises(NoAnswer, match="a response about Key another, where id was asked about"):
        Places(wire).coordinator(module.TRANSACTION_KEY, "id")


def test_a_request_presents_the_producer_id_that_the_broker_gave() -> None:
    stage = staged(nothing)
    stage.learn(Identity(producer_id=0, epoch=0), given(7000, 0))
    assert stage._real(Identity(producer_id=0, epoch=3)) == given(7000, 3)
    assert stage._real(Identity()) == given(-1, -1), "none stays none"


@pytest.mark.parametrize(
    ("version", "row"),
    [
        (3, {"Key": "id", "KeyType": module.TRANSACTION_KEY}),
        (4, {"KeyType": module.TRANSACTION_KEY, "CoordinatorKeys": ["id"]}),
        (6, {"KeyType": module.TRANSACTION_KEY, "CoordinatorKeys": ["id"]}),
    ],
)
def test_a_coordinator_is_asked_for_in_the_shape_of_the_version_until_it_is_there(version: int, row: Message) -> None:
    errors = iter([ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE])

    def ask(api: str, sent: Message, *_: object) -> Message:
        assert (api, sent) == ("FindCoordinator", row)
        found = {"ErrorCode": next(errors), "Host": "127.0.0.1", "Port": 1}
        return found if version < 4 else {"Coordinators": [found]}

    wire: Any = SimpleNamespace(ask=ask, version=lambda _: version)
    assert Places(wire).coordinator(module.TRANSACTION_KEY, "id") == Address("127.0.0.1", 1)
    assert list(errors) == []


def test_a_scenario_that_is_left_has_nothing_open_and_no_member() -> None:
    asked: list[tuple[str, Message]] = []
    states = {"prefix-A": iter(["Ongoing", "PrepareAbort", "CompleteAbort"]), "prefix-B": iter(["Empty"])}

    def broker(api: str, row: Message) -> Message:
        if api == "DescribeTransactions":
            [asked_about] = row["TransactionalIds"]
            return {"TransactionStates": [{"ErrorCode": 0, "TransactionState": next(states[asked_about])}]}
        asked.append((api, row))
        return {}

    stage = staged(broker)
    stage.places.closing_seconds = 20.0
    stage.consumers, stage.member_id = {SECOND}, "m"
    stage.leave(["A", "B"])
    nobody = {"ProducerId": -1, "ProducerEpoch": -1}
    assert asked == [
        ("InitProducerId", {"TransactionalId": "prefix-A", "TransactionTimeoutMs": stage.timeout_ms, **nobody}),
        (HEARTBEAT, {"GroupId": "prefix-group", "MemberId": f"prefix-{SECOND}", "MemberEpoch": -1}),
        ("LeaveGroup", {"GroupId": "prefix-group", "MemberId": "m", "Members": [{"MemberId": "m"}]}),
    ]
    assert all(list(left) == [] for left in states.values())
