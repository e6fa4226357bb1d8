"""A scenario's place on a broker: its own partition, ids and group, and the machines' requests as messages.

The machines count producer ids from 0; requests get the broker's own ids instead, and answers the machines'.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

from kafka_eos.errors import ErrorCode, MalformedBatch
from kafka_eos.formats.record_batch import ControlType, Header, Record, RecordBatch, TimestampType, build_batch
from kafka_eos.machines.broker import FIRST_WITH_TOPIC_IDS, HEARTBEAT
from kafka_eos.machines.transaction_coordinator import Identity
from kafka_eos.machines.transactional_partition import ABORT, COMMIT, PLAIN, TRANSACTIONAL
from kafka_eos.server.cluster import CONSUMER_OFFSETS
from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers import fetched
from kafka_eos_checks.conform import observation
from kafka_eos_checks.conform.beyond import DELETE, INSTANCE, MARK, VERIFY, WITH_UNKNOWN, claimed
from kafka_eos_checks.conform.mechanisms import COMMIT as COMMITS
from kafka_eos_checks.conform.mechanisms import COORDINATOR_EPOCHS, ONE_ACK, TOO_LONG, TOO_SHORT, Asked, Request
from kafka_eos_checks.conform.visible import DATA, FIRST, MEMBER, OFFSETS, SECOND, STRANGER, Visible
from kafka_eos_checks.conform.wire import (
    Address,
    NoAnswer,
    Unsupported,
    Wire,
    again_if_closed,
    error_name,
    wait,
)

BESIDE = {
    "ApiVersions": "learns the versions and features of the broker",
    "SaslHandshake": "logs in",
    "SaslAuthenticate": "logs in",
    "Metadata": "finds leaders",
    "FindCoordinator": "finds coordinators",
    "DescribeConfigs": "learns how long a group of KIP-848 keeps an assignment",
    "CreateTopics": "makes the partitions of scenarios",
    "SyncGroup": "completes JoinGroup, which is one step in Broker",
    "DescribeTransactions": "reads the coordinator's state back",
    "ListTransactions": "reads the coordinator's state back",
    "Fetch": "reads the log back",
    "ListOffsets": "reads the last stable offset back",
    "DescribeProducers": "reads the leader's state of producers back",
    "OffsetFetch": "reads the committed offset back",
    "ConsumerGroupDescribe": "reads the members of a group of KIP-848 back",
    "LeaveGroup": "ends a scenario",
    "DeleteGroups": "cleans up",
    "DeleteTopics": "cleans up",
}
"""The requests that no action of ``Broker`` stands for, with what they are for.

None of them is judged by an answer of the spec. Those that read back are compared with the fields of ``observation``,
which are values of the machine.
"""
Records = tuple[tuple[bytes | None, bytes | None, tuple[Header, ...], int], ...]
"""Key, value, headers and timestamp of each record, in milliseconds since the epoch."""

TRANSACTION_TIMEOUT_MS, MAX_TIMEOUT_MS = 60_000, 2**31 - 1
UNKNOWN_PARTITION = 1_000_000
SESSION_TIMEOUT_MS = 45_000


NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    5,  # LEADER_NOT_AVAILABLE
}
"""Codes that say "ask again, perhaps another broker": they concern the place, not the request."""
_NOT_YET_NAMES = {error_name(code) for code in NOT_YET}
GROUP_KEY, TRANSACTION_KEY = 0, 1
SEGMENT_MS = 1000
"""The topics' ``segment.ms``: a leader begins a segment with a batch that is later than its first one by more."""
BATCHES_OF_SEGMENT = 4
"""The batches that a scenario writes between two jumps of its timestamps.

A broker looks a producer, an aborted transaction or a timestamp up in the segment that has it, which may be another one
than that of the reader or of the marker.
"""
FIRST_DATA, SECOND_DATA = f"{DATA} of the first partition only", f"{DATA} of the second partition only"
LATEST = -1
"""The timestamp that asks for the last stable offset."""
FIRST_TO_VERIFY, NEWEST_TO_VERIFY = 4, 5
"""The versions of AddPartitionsToTxn that ask about partitions in a transaction, as brokers do.    KIP-890."""
CLUSTER_AUTHORIZATION_FAILED = 31
NO_MARKER = "control batch without a marker"
SHORTEST_WAIT = 0.5
"""Seconds for a coordinator that has not closed transactions before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A broker's answer, in the machines' terms.

    Attributes:
        error: the code, perhaps an unknown one.
        identity: the producer id and epoch that it gave, None if it gave none.
        offset: the batch's offset, None if it told none.
        request: the message that was sent.
        response: the message that came back.
    """

    error: int
    identity: Identity | None = None
    offset: int | None = None
    request: str = ""
    response: str = ""


@dataclass(slots=True)
class Places:
    """The leaders of partitions and the coordinators of ids.

    Attributes:
        wire: the connections to the cluster.
        seconds: how long to ask for one that will be there soon.
        closing_seconds: how long a coordinator may take to close a transaction; less once it has not.
    """

    wire: Wire
    seconds: float = 20.0
    closing_seconds: float = 10.0
    _known: dict[tuple[str, str, int], Address] = field(default_factory=dict)
    _leader_epochs: dict[tuple[str, int], int] = field(default_factory=dict)

    def leader(self, topic: str, partition: int) -> Address:
        """The address of a partition's leader."""
        return self._found(("leader", topic, partition), self._ask_leader)

    def metadata(self, topic: str, at: Address | None = None) -> Message:
        """The answer to Metadata about a topic, by default of the first broker; the topic is not created."""
        row = {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": False}
        return again_if_closed(lambda: self.wire.ask("Metadata", row, at))

    def leader_epoch(self, topic: str, partition: int, reached: int) -> int:
        """The epoch of a partition's leader as Metadata tells it, -1 if it does not.

        It is asked for again only if ``reached`` is above what was told before.
        """
        if reached > self._leader_epochs.get((topic, partition), -1):
            for found in self.metadata(topic, self.leader(topic, partition))["Topics"]:
                for part in found["Partitions"]:
                    self._leader_epochs[topic, part["PartitionIndex"]] = part.get("LeaderEpoch", -1)
        return self._leader_epochs.get((topic, partition), -1)

    def coordinator(self, kind: int, key: str) -> Address:
        """The address of the coordinator of a group or a transactional.id."""
        return self._found(("coordinator", key, kind), self._ask_coordinator)

    def forget(self) -> None:
        """Ask again."""
        self._known.clear()

    def _found(self, key: tuple[str, str, int], ask: Callable[[str, int], Address | str]) -> Address:
        if key in self._known:
            return self._known[key]
        deadline = time.monotonic() + self.seconds
        attempt = 0
        while isinstance(answer := ask(key[1], key[2]), str):
            if time.monotonic() > deadline:
                raise NoAnswer(f"no {key[0]} of {key[1]}: {answer}")
            wait(attempt)
            attempt += 1
        self._known[key] = answer
        return answer

    def asked_into_being(self, topic: str) -> int:
        """Ask about a topic, so that the broker creates it, and return its number of partitions."""
        deadline, attempt = time.monotonic() + self.seconds, 0
        while time.monotonic() < deadline:
            row = self.wire.ask("Metadata", {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": True})
            if count := sum(len(found["Partitions"]) for found in row["Topics"]):
                return count
            wait(attempt)
            attempt += 1
        raise NoAnswer(
            f"topic {topic}: the broker does not offer CreateTopics, and {self.seconds:g} s after Metadata has asked "
            "about the topic, with AllowAutoTopicCreation, it has not created it"
        )

    def _ask_leader(self, topic: str, partition: int) -> Address | str:
        row = self.metadata(topic)
        nodes = {each["NodeId"]: Address(each["Host"], each["Port"]) for each in row["Brokers"]}
        for found in row["Topics"]:
            for part in found["Partitions"]:
                if part["PartitionIndex"] == partition and part["LeaderId"] in nodes and not part["ErrorCode"]:
                    return nodes[part["LeaderId"]]
        return joined_errors(found["ErrorCode"] for found in row["Topics"])

    def _ask_coordinator(self, key: str, kind: int) -> Address | str:
        version = self.wire.version("FindCoordinator")
        row = {"Key": key, "KeyType": kind} if version < 4 else {"KeyType": kind, "CoordinatorKeys": [key]}
        answer = again_if_closed(lambda: self.wire.ask("FindCoordinator", row))
        found = answer if version < 4 else _first(answer["Coordinators"], Key=key)
        if found["ErrorCode"]:
            return error_name(found["ErrorCode"])
        return Address(found["Host"], found["Port"])


def joined_errors(codes: Any) -> str:
    """Codes in words."""
    return ", ".join(error_name(code) for code in codes) or "no leader"


@dataclass(slots=True)
class Stage:
    """The place of one scenario on a broker.

    Attributes:
        wire: the connections to the cluster.
        places: the leaders and coordinators.
        topic: its partition's topic.
        partition: its partition's number.
        prefix: the prefix of its ids.
        ids: the broker's producer ids by those of the machines.
        member_id: the id of the group's member, as the broker has named it.
        generation_shift: the difference from the machines' generations or member epochs to the broker's.
        assigns_after: seconds from one assignment of a group of KIP-848 to the next.
        timeout_ms: the timeout of its transactions.
        session_ms: the session timeout of its members.
        salts: the ends of the names of transactional.ids, which decide where their coordinators are.
        consumers: the members of a group of KIP-848 that have joined.
        second_partition: the number of another partition, which takes part in the same transactions; -1: there is none.
        groups: the group's name, and that of another one whose offsets are in the same transactions, if there is one.
        longest_timeout: the longest timeout of transactions that the broker allows, in seconds; 0 if it does not say.
        has_group: the group was used.
        sent: by the broker's producer id, epoch and sequence, the records of the batches that were sent.
    """

    wire: Wire
    places: Places
    topic: str
    partition: int
    prefix: str
    ids: dict[int, int] = field(default_factory=dict)
    member_id: str = ""
    generation_shift: int = 0
    has_group: bool = False
    assigns_after: float = 0.0
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    session_ms: int = SESSION_TIMEOUT_MS
    salts: dict[str, str] = field(default_factory=dict)
    consumers: set[str] = field(default_factory=set)
    sent: dict[tuple[int, int, int], set[Records]] = field(default_factory=lambda: defaultdict(set))
    second_partition: int = -1
    groups: tuple[str, ...] = ("group",)
    longest_timeout: Callable[[], float] = float
    _has_epochs: bool = False
    _initialized: int = 0
    _written: int = 0
    _marked: dict[int, int] | None = None
    _timeouts: dict[str, int] = field(default_factory=dict)

    def transactional_id(self, name: str) -> str:
        """The broker's name of a transactional.id."""
        return f"{self.prefix}-{name}{self.salts.get(name, '')}"

    @property
    def second(self) -> "Stage | None":
        """The same place as seen from its second partition, or with its second group."""
        if len(self.groups) > 1:
            return replace(self, groups=self.groups[::-1])
        number = self.second_partition
        return replace(self, partition=number, second_partition=self.partition) if number >= 0 else None

    @property
    def group(self) -> str:
        """The group's id."""
        return f"{self.prefix}-{self.groups[0]}"

    # --- producer ids ------------------------------------------------------------------------------------------------

    def _real(self, identity: Identity) -> Message:
        """Producer id and epoch as the broker knows them."""
        if identity.producer_id == STRANGER:
            return {"ProducerId": max(self.ids.values(), default=0) + (1 << 40), "ProducerEpoch": identity.epoch}
        real = self.ids.get(identity.producer_id, identity.producer_id)
        return {"ProducerId": real, "ProducerEpoch": identity.epoch}

    def _producer(self, real: int) -> object:
        """A broker's producer id as the machines count."""
        for number, known in self.ids.items():
            if known == real:
                return number
        return f"id {real}"

    def learn(self, expected: Identity, row: Message) -> Identity:
        """The identity of an answer; one that is new stands for the one that the machines expect."""
        real, epoch = row["ProducerId"], row["ProducerEpoch"]
        producer = self._producer(real)
        if isinstance(producer, int):
            return Identity(producer_id=producer, epoch=epoch)
        if expected.producer_id >= 0 and expected.producer_id not in self.ids and real >= 0:
            self.ids[expected.producer_id] = real
            return Identity(producer_id=expected.producer_id, epoch=epoch)
        return Identity(producer_id=-1 if real < 0 else STRANGER + 1, epoch=epoch)

    # --- requests ----------------------------------------------------------------------------------------------------

    def ask(self, given: Asked, expected: Identity | None) -> Reply:
        """Send a request of the machines; where the broker says "not here" or "not yet", ask again.

        Raises:
            NoAnswer, Unsupported: as ``Wire.ask`` does.
        """
        deadline = time.monotonic() + self.places.seconds
        attempt = 0
        while True:
            reply = self._ask_once(given, expected)
            if reply.error not in NOT_YET or time.monotonic() > deadline:
                return reply
            self.places.forget()
            wait(attempt)
            attempt += 1

    def _ask_once(self, given: Asked, expected: Identity | None) -> Reply:
        request = given.request
        api = request.api
        own = {"JoinGroup": self._join, MARK: self._mark, VERIFY: self._verify}.get(request.action)
        if own is not None:
            return own(given)
        row = self._row(given)
        kind, key = TRANSACTION_KEY, self.transactional_id(request.name)
        if api == "Produce":
            at: Address | None = self.places.leader(self.topic, self.partition)
        elif api in {"TxnOffsetCommit", "OffsetCommit", HEARTBEAT, DELETE}:
            at = self.places.coordinator(GROUP_KEY, self.group)
        elif row.get("TransactionalId", "") is None:
            at = None
        else:
            at = self.places.coordinator(kind, key)
        version = self.wire.version(api)
        sent = f"{api} v{version} {shown(row)}{self._batch_in_words(given)}"
        answer = self.wire.ask(api, row, at, version)
        came = shown(answer)
        if api == "Produce":
            topic = _first(answer["Responses"], Name=self.topic)
            part = _first(topic["PartitionResponses"], Index=self.partition)
            offset = part["BaseOffset"] if part["ErrorCode"] == 0 else None
            return Reply(error=part["ErrorCode"], offset=offset, request=sent, response=came)
        if api == "AddPartitionsToTxn":
            topic = _first(answer["ResultsByTopicV3AndBelow"], Name=self.topic)
            rows = [row for row in topic["ResultsByPartition"] if row["PartitionIndex"] != UNKNOWN_PARTITION]
            part = _first(rows, PartitionIndex=self.partition)
            return Reply(error=part["PartitionErrorCode"], request=sent, response=came)
        if api in {"TxnOffsetCommit", "OffsetCommit", DELETE}:
            if answer.get("ErrorCode"):
                return Reply(error=answer["ErrorCode"], request=sent, response=came)
            by = "TopicId" if "TopicId" in row["Topics"][0] else "Name"
            topic = _first(answer["Topics"], **{by: row["Topics"][0][by]})
            part = _first(topic["Partitions"], PartitionIndex=self.partition)
            return Reply(error=part["ErrorCode"], request=sent, response=came)
        identity = None
        if api == HEARTBEAT:
            identity = self._beaten(given, expected, answer)
        elif answer["ErrorCode"] == 0 and expected is not None and "ProducerId" in answer:
            identity = self.learn(expected, answer)
            if api == "InitProducerId" and row["TransactionalId"] is not None:
                self._timeouts[request.name] = row["TransactionTimeoutMs"]
        return Reply(error=answer["ErrorCode"], identity=identity, request=sent, response=came)

    def _batch_in_words(self, given: Asked) -> str:
        """The producer, the epoch and the sequences of a batch, in words; "" for a request without a batch."""
        if given.request.api != "Produce":
            return ""
        real, last = self._real(given.identity), given.sequence + given.count - 1
        numbers = f"sequence {given.sequence}" if given.count == 1 else f"sequences {given.sequence} to {last}"
        kind = TRANSACTIONAL if given.request.action == "Produce" else PLAIN
        return f", a batch of producer {real['ProducerId']} epoch {real['ProducerEpoch']} {numbers}, {kind}"

    def _mark(self, given: Asked) -> Reply:
        """Write a marker, as a coordinator does.

        Raises:
            Unsupported: when clients may not.
        """
        real, version = self._real(given.identity), self.wire.version(MARK)
        decision, _, shift = given.request.detail.partition(", ")
        marker = {
            **real,
            "TransactionResult": decision == COMMITS,
            "Topics": [{"Name": self.topic, "PartitionIndexes": [self.partition]}],
            "CoordinatorEpoch": self._coordinator_epoch(real) + COORDINATOR_EPOCHS[shift],
            "TransactionVersion": given.version,
        }
        answer = self.wire.ask(MARK, {"Markers": [marker]}, self.places.leader(self.topic, self.partition), version)
        topic = _first(_first(answer["Markers"], ProducerId=real["ProducerId"])["Topics"], Name=self.topic)
        error = _first(topic["Partitions"], PartitionIndex=self.partition)["ErrorCode"]
        return _of_broker(error, f"{MARK} v{version} {shown(marker)}", answer)

    def _verify(self, given: Asked) -> Reply:
        """Ask whether the partition is in the transaction, as a leader does.

        Raises:
            Unsupported: when clients may not, or the broker has no such question.
        """
        api, name = given.request.api, self.transactional_id(given.request.name)
        version = self.wire.version(api, NEWEST_TO_VERIFY)
        if version < FIRST_TO_VERIFY:
            raise Unsupported(f"{api}: version {FIRST_TO_VERIFY} is needed, the broker offers {version}")
        topics = [{"Name": self.topic, "Partitions": [self.partition]}]
        row = {"TransactionalId": name, **self._real(given.identity), "VerifyOnly": True, "Topics": topics}
        answer = self.wire.ask(api, {"Transactions": [row]}, self.places.coordinator(TRANSACTION_KEY, name), version)
        error = answer["ErrorCode"]
        if not error:
            topic = _first(
                _first(answer["ResultsByTransaction"], TransactionalId=name)["TopicResults"], Name=self.topic
            )
            error = _first(topic["ResultsByPartition"], PartitionIndex=self.partition)["PartitionErrorCode"]
        return _of_broker(error, f"{api} v{version} {shown(row)}", answer)

    def _coordinator_epoch(self, real: Message) -> int:
        """The coordinator epoch of a producer's last marker, as its log has it; 0 before its first."""
        batches = (batch for _, found in self._fetched(committed=False) for batch in found)
        markers = (batch.control_record() for batch in batches if batch.producer_id == real["ProducerId"])
        return max([0, *(marker.coordinator_epoch for marker in markers if marker is not None)])

    def _row(self, given: Asked) -> Message:
        request, real = given.request, self._real(given.identity)
        name = self.transactional_id(request.name)
        match request.api:
            case "InitProducerId":
                named = None if request.action == "InitIdempotentProducer" else name
                return {"TransactionalId": named, "TransactionTimeoutMs": self._timeout(request.detail), **real}
            case "AddPartitionsToTxn":
                unknown = [UNKNOWN_PARTITION] if request.action == WITH_UNKNOWN else []
                return {
                    "V3AndBelowTransactionalId": name,
                    "V3AndBelowProducerId": real["ProducerId"],
                    "V3AndBelowProducerEpoch": real["ProducerEpoch"],
                    "V3AndBelowTopics": [{"Name": self.topic, "Partitions": [self.partition, *unknown]}],
                }
            case "AddOffsetsToTxn":
                return {"TransactionalId": name, "GroupId": self.group, **real}
            case "EndTxn":
                return {"TransactionalId": name, "Committed": request.detail == COMMITS, **real}
            case "TxnOffsetCommit":
                row = self._offset_row(given)
                if self.wire.version(request.api) >= FIRST_WITH_TOPIC_IDS:
                    row["Topics"] = [{**topic, "TopicId": self._topic_id()} for topic in row["Topics"]]
                return {"TransactionalId": name, "GenerationIdOrMemberEpoch": self._generation(given), **row, **real}
            case "OffsetCommit":
                return {"GenerationIdOrMemberEpoch": self._generation(given), **self._offset_row(given)}
            case "OffsetDelete":
                self.has_group = True
                partitions = [{"PartitionIndex": self.partition}]
                return {"GroupId": self.group, "Topics": [{"Name": self.topic, "Partitions": partitions}]}
            case "ConsumerGroupHeartbeat":
                return self._heartbeat_row(given)
            case "Produce":
                return self._produce_row(given, real)
        raise ValueError(request.api)

    def _timeout(self, which: str) -> int:
        """A transaction timeout in milliseconds; each is another one, so that one that is kept shows.

        Raises:
            Unsupported: when the broker allows every timeout, and is asked for one that it does not allow.
        """
        if which == TOO_LONG and self.longest_timeout() * 1000 >= MAX_TIMEOUT_MS:
            raise Unsupported(f"InitProducerId: the broker allows transactions of {MAX_TIMEOUT_MS} ms")
        self._initialized += 1
        return {TOO_LONG: MAX_TIMEOUT_MS, TOO_SHORT: 0}.get(which, self.timeout_ms + self._initialized)

    def _generation(self, given: Asked) -> int:
        """The broker's generation that stands for one of the machines; -1 is none on both sides."""
        return given.generation + (self.generation_shift if given.generation >= 0 else 0)

    def _offset_row(self, given: Asked) -> Message:
        self.has_group = True
        member, instance = claimed(given.member)
        part = {
            "PartitionIndex": self.partition,
            "CommittedOffset": given.offset,
            "CommittedLeaderEpoch": -1,
            "CommittedMetadata": _metadata(given.offset),
        }
        return {
            "GroupId": self.group,
            "MemberId": self._member(member),
            "GroupInstanceId": instance,
            "Topics": [{"Name": self.topic, "Partitions": [part]}],
        }

    def _topic_id(self) -> object:
        """The id of the topic, as Metadata has it."""
        return _first(self.places.metadata(self.topic)["Topics"])["TopicId"]

    def _member(self, member: str | None) -> str:
        """A member's id; those of a group of KIP-848 have made up their own, in the order of their names."""
        if member in {FIRST, SECOND}:
            return f"{self.prefix}-{member}"
        return self.member_id if member == MEMBER else (member or "")

    def _heartbeat_row(self, given: Asked) -> Message:
        """A whole heartbeat, so that the answer is whole too; a member that joins or leaves has its own epochs."""
        self.has_group = True
        if given.assigns and self.assigns_after:
            time.sleep(self.assigns_after)
        owned = [{"TopicId": self._topic_id(), "Partitions": [self.partition]}]
        epochs = {"JoinConsumerGroup": 0, "LeaveConsumerGroup": -1}
        return {
            "GroupId": self.group,
            "MemberId": self._member(given.member),
            "MemberEpoch": epochs.get(given.request.action, given.generation + self.generation_shift),
            "RebalanceTimeoutMs": self.session_ms,
            "SubscribedTopicNames": [self.topic],
            "ServerAssignor": "range",
            "TopicPartitions": owned if given.owned else [],
        }

    def assigns(self) -> bool:
        """Whether a member that joins is assigned the partition; it leaves again."""
        joining = Asked(request=Request("JoinConsumerGroup", FIRST), member=FIRST)
        at = self.places.coordinator(GROUP_KEY, self.group)
        answer = self.wire.ask(HEARTBEAT, self._heartbeat_row(joining), at)
        self.consumers.add(FIRST)
        self.leave(())
        return bool((answer["Assignment"] or {}).get("TopicPartitions"))

    def _beaten(self, given: Asked, expected: Identity | None, answer: Message) -> Identity | None:
        """The epoch that a member was told, as the machines count; the first one stands for the one they expect."""
        if answer["ErrorCode"] != ErrorCode.NONE:
            return None
        epoch = answer["MemberEpoch"]
        if epoch < 0:
            self.consumers.discard(given.member or "")
            return Identity(epoch=epoch)
        if not self.consumers and expected is not None and not self._has_epochs:
            self.generation_shift, self._has_epochs = epoch - expected.epoch, True
        self.consumers.add(given.member or "")
        return Identity(epoch=epoch - self.generation_shift)

    def _produce_row(self, given: Asked, real: Message) -> Message:
        transactional = given.request.action == "Produce"
        value = f"{self.prefix} {given.request.name} {given.sequence}".encode()
        batch = build_batch(
            [Record(value=value, offset_delta=delta) for delta in range(given.count)],
            base_timestamp=time.time_ns() // 1_000_000 + self._written // BATCHES_OF_SEGMENT * 2 * SEGMENT_MS,
            is_transactional=transactional,
            producer_id=real["ProducerId"],
            producer_epoch=real["ProducerEpoch"],
            base_sequence=given.sequence,
        )
        self._written += 1
        self.sent[batch.producer_id, batch.producer_epoch, batch.base_sequence].add(_contents(batch))
        part = {"Index": self.partition, "Records": batch.encode()}
        return {
            "TransactionalId": self.transactional_id(given.request.name) if transactional else None,
            "Acks": 1 if given.request.detail == ONE_ACK else -1,
            "TimeoutMs": 10_000,
            "TopicData": [{"Name": self.topic, "PartitionData": [part]}],
        }

    def _join(self, given: Asked) -> Reply:
        """A consumer joins the group as its only member: JoinGroup, twice unless it is static (KIP-394), SyncGroup."""
        self.has_group = True
        subscribed = served_codec().write("ConsumerProtocolSubscription", 0, {"Topics": [self.topic], "UserData": None})
        at = self.places.coordinator(GROUP_KEY, self.group)
        row: Message = {
            "GroupId": self.group,
            "SessionTimeoutMs": self.session_ms,
            "RebalanceTimeoutMs": self.session_ms,
            "MemberId": "",
            "GroupInstanceId": INSTANCE if given.request.detail else None,
            "ProtocolType": "consumer",
            "Protocols": [{"Name": "range", "Metadata": b"\0\0" + subscribed}],
        }
        sent = f"JoinGroup {shown(row)}"
        answer = self.wire.ask("JoinGroup", row, at)
        if answer["ErrorCode"] == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self.wire.ask("JoinGroup", row | {"MemberId": answer["MemberId"]}, at)
        if answer["ErrorCode"]:
            return Reply(error=answer["ErrorCode"], request=sent, response=shown(answer))
        self.member_id = answer["MemberId"]
        self.generation_shift = answer["GenerationId"] - 1
        synced = self.wire.ask(
            "SyncGroup",
            {
                "GroupId": self.group,
                "GenerationId": answer["GenerationId"],
                "MemberId": self.member_id,
                "GroupInstanceId": row["GroupInstanceId"],
                "ProtocolType": "consumer",
                "ProtocolName": "range",
                "Assignments": [{"MemberId": self.member_id}],  # of no bytes: nobody reads it
            },
            at,
        )
        return Reply(error=synced["ErrorCode"], request=sent, response=shown(answer))

    # --- what the broker does by itself ------------------------------------------------------------------------------

    def settle(self, names: Sequence[str], end: int) -> None:
        """Wait until the coordinators have closed what they are closing.

        Args:
            names: the transactional.ids.
            end: the log end offset that the machines expect, for a broker without DescribeTransactions.

        Raises:
            NoAnswer: when they have not done so in time.
        """
        seconds = self.places.closing_seconds
        deadline = time.monotonic() + seconds
        attempt, told = 0, False
        while time.monotonic() < deadline:
            try:
                rows = [self.describe(name) for name in names]
            except Unsupported:
                told = False
                if self._fetch(committed=False)["HighWatermark"] >= end:
                    time.sleep(0.05)  # the coordinator has yet to learn of the marker
                    return
            else:
                told = True
                if not any(row["TransactionState"].startswith("Prepare") for row in rows):
                    return
            wait(attempt)
            attempt += 1
        self.places.closing_seconds = max(seconds / 4, SHORTEST_WAIT)
        if not told:  # what is read back shows what is missing
            return
        raise NoAnswer(f"the coordinator did not close the transaction within {seconds:g} s")

    def describe(self, name: str) -> Message:
        """The row of DescribeTransactions about a transactional.id."""
        asked = self.transactional_id(name)
        at = self.places.coordinator(TRANSACTION_KEY, asked)
        answer = again_if_closed(lambda: self.wire.ask("DescribeTransactions", {"TransactionalIds": [asked]}, at))
        rows = answer["TransactionStates"]
        found: Message = (
            _first(rows, TransactionalId=asked)
            if rows
            else {"ErrorCode": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "TransactionState": ""}
        )
        return found

    # --- reading back ------------------------------------------------------------------------------------------------

    def observe(self, state: Visible, *, with_offset: bool = True) -> tuple[dict[str, str], dict[str, str]]:
        """The broker's values of the machines' fields, and why some are missing."""
        found: dict[str, str] = {}
        missing: dict[str, str] = {}
        read = partial(self._read, found, missing)
        for name in sorted(state.coordinators):
            read([observation.coordinator_field(name)], lambda name=name: [self.described(name)])  # type: ignore[misc]
            read([observation.listed_field(name)], lambda name=name: [self._listed(name, state)])  # type: ignore[misc]
        self._read_partition(read)
        if observation.has_members(state):
            read([observation.MEMBERS], lambda: [self._members()])
        if with_offset:
            self._read_offsets(read)
        return found, missing

    def observe_partition(self, *, offsets: bool) -> dict[str, str]:
        """The broker's values of those fields that are about the partition: of its offsets in the group, or its log."""
        found: dict[str, str] = {}
        read = partial(self._read, found, {})
        if offsets:
            self._read_offsets(read)
        else:
            self._read_partition(read)
        return found

    def _read_offsets(self, read: "Callable[[Sequence[str], Callable[[], Sequence[str]]], None]") -> None:
        read([observation.OFFSET], lambda: [self._offset()])
        read([observation.ALL_OFFSETS], lambda: [self._offset(of_all=True)])
        read([observation.PLAIN_OFFSET], lambda: [self._offset(stable=False)])

    def _read_partition(self, read: "Callable[[Sequence[str], Callable[[], Sequence[str]]], None]") -> None:
        read([observation.LOG, observation.WATERMARK], partial(_or_malformed, self._log))
        read([observation.COMMITTED, observation.STABLE], partial(_or_malformed, self._committed))
        read([observation.TIMED, observation.LATER], partial(_or_malformed, self._later))
        read([observation.LATEST_COMMITTED], lambda: [str(self._offset_at(LATEST))])
        read([observation.PRODUCERS], lambda: [self._producers()])

    def _read(
        self,
        found: dict[str, str],
        missing: dict[str, str],
        names: Sequence[str],
        ask: Callable[[], Sequence[str]],
    ) -> None:
        try:
            found.update(zip(names, again_if_closed(lambda: self._when_there(ask)), strict=True))
        except Unsupported as error:
            missing.update(dict.fromkeys(names, str(error)))

    def _when_there(self, ask: Callable[[], Sequence[str]]) -> Sequence[str]:
        """Repeat a question until the broker's leader or coordinator is known."""
        deadline = time.monotonic() + self.places.seconds
        attempt = 0
        while (said := ask())[0] in _NOT_YET_NAMES and time.monotonic() < deadline:
            self.places.forget()
            wait(attempt)
            attempt += 1
        return said

    def described(self, name: str) -> str:
        """A transactional.id at its coordinator, in the machines' terms."""
        row = self.describe(name)
        if row["ErrorCode"]:
            return error_name(row["ErrorCode"])
        named = {self._data: DATA} if self.second is None else {self._data: DATA, self.second._data: SECOND_DATA}
        partitions = [
            OFFSETS if topic["Topic"] == CONSUMER_OFFSETS else named.get((topic["Topic"], number), "?")
            for topic in row["Topics"]
            for number in topic["Partitions"]
        ]
        if len(self.groups) > 1:  # which may be in one partition, or in two
            partitions = list(dict.fromkeys(partitions))
        if DATA in partitions and SECOND_DATA in partitions:  # the machines have one partition for both
            partitions.remove(SECOND_DATA)
        elif self.second is not None and DATA in partitions:
            partitions[partitions.index(DATA)] = FIRST_DATA
        producer = self._producer(row["ProducerId"])
        line = observation.coordinator_line(row["TransactionState"], producer, row["ProducerEpoch"], partitions)
        timeout = self._timeouts.get(name)
        if timeout is not None and row["TransactionTimeoutMs"] != timeout:
            line += f", with a timeout of {row['TransactionTimeoutMs']} ms instead of {timeout} ms"
        return line

    @property
    def _data(self) -> tuple[str, int]:
        return self.topic, self.partition

    def _listed(self, name: str, state: Visible) -> str:
        asked = self.transactional_id(name)
        at = self.places.coordinator(TRANSACTION_KEY, asked)
        known = state.known(name).producer_id
        row = {
            "StateFilters": [],
            "ProducerIdFilters": [self.ids[known]] if known in self.ids else [],
            "DurationFilter": -1,
        }
        answer = self.wire.ask("ListTransactions", row, at)
        if answer["ErrorCode"]:
            return error_name(answer["ErrorCode"])
        states = [each["TransactionState"] for each in answer["TransactionStates"] if each["TransactionalId"] == asked]
        said = observation.joined(states) if states else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name
        if known in self.ids and any(each["ProducerId"] != self.ids[known] for each in answer["TransactionStates"]):
            said += ", and other producer ids than were asked for"
        return said

    def _fetch(self, committed: bool, offset: int = 0) -> Message:
        part = {"Partition": self.partition, "FetchOffset": offset, "PartitionMaxBytes": 1 << 24}
        row = {
            "MaxWaitMs": 0,
            "MinBytes": 0,
            "MaxBytes": 1 << 24,
            "IsolationLevel": int(committed),
            "Topics": [{"Topic": self.topic, "Partitions": [part]}],
        }
        answer = self.wire.ask("Fetch", row, self.places.leader(self.topic, self.partition))
        topic = _first(answer["Responses"], Topic=self.topic)
        found: Message = _first(topic["Partitions"], PartitionIndex=self.partition)
        return found

    def _fetched(self, committed: bool, offset: int = 0) -> Iterator[tuple[Message, list[RecordBatch]]]:
        """Responses, each with its batches, from an offset up to where reading ends."""
        end = offset + 1
        while offset < end:
            row = self._fetch(committed, offset)
            batches = fetched.batches(row)
            yield row, batches
            end = 0 if not batches else row["LastStableOffset" if committed else "HighWatermark"]
            offset = batches[-1].next_offset if batches else end

    def _log(self) -> tuple[str, str]:
        lines: list[str] = []
        watermark = ""
        epochs = _Epochs(partial(self.places.leader_epoch, self.topic, self.partition))
        self._marked = epochs.coordinators
        for row, batches in self._fetched(committed=False):
            if row["ErrorCode"]:
                return error_name(row["ErrorCode"]), ""
            watermark = str(row["HighWatermark"])
            lines += [self._entry(batch) + epochs.wrong(batch) for batch in batches]
        return observation.joined(lines), watermark

    def repeats(self) -> int:
        """The number of markers in the log right after the same marker."""
        batches = (batch for _, found in self._fetched(committed=False) for batch in found)
        return observation.repeats((_kind(each), each.producer_id, each.producer_epoch) for each in batches)

    def _entry(self, batch: RecordBatch) -> str:
        return (
            observation.entry_line(
                batch.base_offset,
                _kind(batch),
                self._producer(batch.producer_id),
                batch.producer_epoch,
                batch.base_sequence,
            )
            + _malformation(batch)
            + self._changed(batch)
        )

    def _changed(self, batch: RecordBatch) -> str:
        """The words for a batch whose records are not those that were sent; "" for any other batch."""
        sent = self.sent.get((batch.producer_id, batch.producer_epoch, batch.base_sequence))
        if sent is None or batch.is_control:
            return ""
        found, asked = _contents(batch), sent
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:  # the topic's setting: the leader's own clock
            found, asked = _untimed(found), set(map(_untimed, sent))
        return "" if found in asked else " with other records than were sent"

    def _committed(self, offset: int = 0) -> tuple[str, str]:
        given: list[str] = []
        stable = ""
        for row, batches in self._fetched(committed=True, offset=offset):
            if row["ErrorCode"]:
                return error_name(row["ErrorCode"]), ""
            stable = str(row["LastStableOffset"])
            passed = fetched.committed(batches, row["AbortedTransactions"])
            given += [f"{batch.base_offset}{self._changed(batch)}" for batch in passed]
            given += self._disordered(row["AbortedTransactions"] or [])
        return observation.joined(given), stable

    def _disordered(self, aborted: Sequence[Message]) -> list[str]:
        """The words for producers whose aborted transactions are not told once each, in the order of their offsets.

        A leader's index has them in this order. Clients such as franz-go take the next one from the front, and give
        aborted records if it is another.

        Kafka: LogSegment.collectAbortedTxns
        """
        told: dict[int, list[int]] = defaultdict(list)
        for each in aborted:
            told[each["ProducerId"]].append(each["FirstOffset"])
        return [
            f"aborted transactions of producer {self._producer(producer_id)} from {', '.join(map(str, offsets))} on"
            for producer_id, offsets in told.items()
            if any(one >= other for one, other in pairwise(offsets))
        ]

    def _later(self) -> tuple[str, str]:
        """The offsets that readers of committed data find by timestamp, and what later offsets give them."""
        offsets: list[int] = []
        written: list[tuple[int, int]] = []
        for row, batches in self._fetched(committed=False):
            if row["ErrorCode"]:
                return error_name(row["ErrorCode"]), ""
            offsets += [batch.base_offset for batch in batches]
            written += [(batch.timestamp(each), batch.offset(each)) for batch in batches for each in batch.records()]
        return self._timed(written), observation.later_line(offsets, lambda start: self._committed(start)[0])

    def _timed(self, written: Sequence[tuple[int, int]]) -> str:
        """Whether ListOffsets finds the last timestamps of a log, and none from the last stable offset on."""
        stable = self._fetch(committed=True)["LastStableOffset"]
        for timestamp in dict.fromkeys(at for at, _ in written[-observation.LATER_STARTS :]):
            first = next(offset for at, offset in written if at >= timestamp)
            allowed, found = first if first < stable else -1, self._offset_at(timestamp)
            if isinstance(found, str):  # a replica that does not lead yet gives records, and no offsets
                return found
            if found != allowed:
                return f"{found} for the timestamp of offset {first}, where {stable} is the last stable offset"
        return observation.AS_IN_LOG

    def _offset_at(self, timestamp: int) -> int | str:
        """The offset that ListOffsets tells a reader of committed data."""
        part = {"PartitionIndex": self.partition, "CurrentLeaderEpoch": -1, "Timestamp": timestamp}
        row = {"ReplicaId": -1, "IsolationLevel": 1, "Topics": [{"Name": self.topic, "Partitions": [part]}]}
        answer = self.wire.ask("ListOffsets", row, self.places.leader(self.topic, self.partition))
        found = _first(_first(answer["Topics"], Name=self.topic)["Partitions"], PartitionIndex=self.partition)
        return error_name(found["ErrorCode"]) if found["ErrorCode"] else int(found["Offset"])

    def _producers(self) -> str:
        row = {"Topics": [{"Name": self.topic, "PartitionIndexes": [self.partition]}]}
        answer = self.wire.ask("DescribeProducers", row, self.places.leader(self.topic, self.partition))
        found = _first(_first(answer["Topics"], Name=self.topic)["Partitions"], PartitionIndex=self.partition)
        if found["ErrorCode"]:
            return error_name(found["ErrorCode"])
        return observation.joined(
            sorted(
                observation.producer_line(
                    self._producer(each["ProducerId"]),
                    each["ProducerEpoch"],
                    each["LastSequence"],
                    each["CurrentTxnStartOffset"],
                )
                + self._marked_otherwise(each)
                for each in found["ActiveProducers"]
            )
        )

    def _marked_otherwise(self, producer: Message) -> str:
        """The words for a producer whose coordinator epoch is not that of its last marker, if the log was read.

        `kafka-transactions abort` writes its marker with this epoch.
        """
        told = producer["CoordinatorEpoch"]
        marked = told if self._marked is None else self._marked.get(producer["ProducerId"], -1)
        return "" if told == marked else f" in coordinator epoch {told}, where its last marker has {marked}"

    def _offset(self, *, stable: bool = True, of_all: bool = False) -> str:
        """The group's offset; ``of_all`` asks for all partitions that have one."""
        version = self.wire.version("OffsetFetch")
        if version < 7:
            raise Unsupported(f"OffsetFetch: requireStable needs version 7, the broker offers {version}")
        topics = None if of_all else [{"Name": self.topic, "PartitionIndexes": [self.partition]}]
        row: Message = {"RequireStable": stable}
        row |= (
            {"GroupId": self.group, "Topics": topics}
            if version < 8
            else {"Groups": [{"GroupId": self.group, "Topics": topics}]}
        )
        answer = self.wire.ask("OffsetFetch", row, self.places.coordinator(GROUP_KEY, self.group))
        group = answer if version < 8 else _first(answer["Groups"], GroupId=self.group)
        if group["ErrorCode"]:
            return error_name(group["ErrorCode"])
        if of_all and not group["Topics"]:
            return observation.NO_OFFSET
        parts = _first(group["Topics"], Name=self.topic)["Partitions"]
        if of_all and self.second_partition >= 0:
            parts = [part for part in parts if part["PartitionIndex"] != self.second_partition]
            if not parts:
                return observation.NO_OFFSET
        part = _first(parts, PartitionIndex=self.partition)
        if part["ErrorCode"]:
            return error_name(part["ErrorCode"])
        offset = part["CommittedOffset"]
        is_sent = offset < 0 or part["Metadata"] == _metadata(offset)
        return str(offset) if is_sent else f"{offset} with other metadata than was committed"

    def _members(self) -> str:
        at = self.places.coordinator(GROUP_KEY, self.group)
        groups = self.wire.ask("ConsumerGroupDescribe", {"GroupIds": [self.group]}, at)["Groups"]
        row = _first(groups, GroupId=self.group)
        if row["ErrorCode"]:
            return error_name(row["ErrorCode"])
        members = {
            each["MemberId"].removeprefix(f"{self.prefix}-"): (
                each["MemberEpoch"] - self.generation_shift,
                any(topic["TopicName"] == self.topic for topic in each["Assignment"]["TopicPartitions"]),
            )
            for each in row["Members"]
        }
        return observation.members_line(row["GroupEpoch"] - self.generation_shift, members)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def leave(self, names: Sequence[str]) -> None:
        """Abort what may be open, and leave the group."""
        for name in names:
            with suppress(NoAnswer, Unsupported):
                if self.describe(name)["TransactionState"] == "Ongoing":
                    nobody = {"ProducerId": -1, "ProducerEpoch": -1}
                    row = {
                        "TransactionalId": self.transactional_id(name),
                        "TransactionTimeoutMs": self.timeout_ms,
                    }
                    at = self.places.coordinator(TRANSACTION_KEY, self.transactional_id(name))
                    self.wire.ask("InitProducerId", row | nobody, at)
                    self.settle([name], 0)
        for member in self.consumers:
            with suppress(NoAnswer, Unsupported):
                row = {"GroupId": self.group, "MemberId": self._member(member), "MemberEpoch": -1}
                self.wire.ask(HEARTBEAT, row, self.places.coordinator(GROUP_KEY, self.group))
        if self.member_id:
            with suppress(NoAnswer, Unsupported):
                row = {"GroupId": self.group, "MemberId": self.member_id, "Members": [{"MemberId": self.member_id}]}
                self.wire.ask("LeaveGroup", row, self.places.coordinator(GROUP_KEY, self.group))


@dataclass(slots=True)
class _Epochs:
    """The epochs of leaders and coordinators in a log that is read from its start.

    Attributes:
        known: the epoch of the partition's leader, if it is asked about one that a batch has.
        coordinators: the highest epoch of a coordinator that a producer's markers have, by producer id.
    """

    known: Callable[[int], int]
    coordinators: dict[int, int] = field(default_factory=dict)
    _leader: int = 0

    def wrong(self, batch: RecordBatch) -> str:
        """The words for the epochs of the next batch, if no leader or coordinator writes them there; "" otherwise.

        A leader stamps batches with its own epoch, which only rises (KIP-101). A marker has the epoch of the
        transaction coordinator that decided it, which a coordinator of the same transactional.id only raises (KIP-98).
        """
        words, epoch = "", batch.partition_leader_epoch
        known = self.known(epoch)
        if epoch < self._leader:
            words += f" in leader epoch {epoch} where {self._leader} had been reached"
        elif epoch > known >= 0:
            words += f" in leader epoch {epoch} of a leader in epoch {known}"
        self._leader = max(self._leader, epoch)
        control = batch.control_record() if batch.is_control else None
        if control is not None:
            reached = self.coordinators.get(batch.producer_id, 0)
            if control.coordinator_epoch < reached:
                words += f" in coordinator epoch {control.coordinator_epoch} where {reached} had been reached"
            self.coordinators[batch.producer_id] = max(reached, control.coordinator_epoch)
        return words


def _metadata(offset: int) -> str:
    """The metadata that is committed with an offset."""
    return f"next is {offset}"


def _contents(batch: RecordBatch) -> Records:
    return tuple((record.key, record.value, record.headers, batch.timestamp(record)) for record in batch.records())


def _untimed(records: Records) -> Records:
    return tuple((key, value, headers, -1) for key, value, headers, _ in records)


def _malformation(batch: RecordBatch) -> str:
    """The words for a batch that no leader writes; "" for any other batch.

    Nothing is compacted in a scenario, so a batch has an offset for each of its records. A marker is transactional
    (KIP-98).
    """
    words = ""
    if batch.last_offset_delta != batch.record_count - 1:
        words += f" up to offset {batch.last_offset} with {batch.record_count} records"
    if batch.is_control and not batch.is_transactional:
        words += " that is not transactional"
    return words


def _kind(batch: RecordBatch) -> str:
    if not batch.is_control:
        return TRANSACTIONAL if batch.is_transactional else PLAIN
    control = batch.control_record()
    if control is None:
        return NO_MARKER
    return COMMIT if control.control_type is ControlType.COMMIT else ABORT


def _or_malformed(read: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """The text that was read, or that it is no record batch."""
    try:
        return read()
    except MalformedBatch as malformed:
        return f"no record batch: {malformed}", ""


def _of_broker(error: int, request: str, answer: Message) -> Reply:
    """The reply to a request that brokers send each other.

    Raises:
        Unsupported: when a client may not send it.
    """
    if error == CLUSTER_AUTHORIZATION_FAILED:
        raise Unsupported(f"{request.partition(' ')[0]}: as brokers send it, it needs ClusterAction on the cluster")
    return Reply(error=error, request=request, response=shown(answer))


def _first(rows: list[Message], **asked: str | int) -> Message:
    """The row that was asked for.

    Args:
        rows: the rows of a response.
        asked: the fields by which the row names its subject, with the value that was asked about. A version may lack
            the field.

    Raises:
        NoAnswer: when there is none, or it is about something else.
    """
    if not rows:
        raise NoAnswer("a response without what was asked for")
    row = rows[0]
    for name, value in asked.items():
        if row.get(name, value) != value:
            raise NoAnswer(f"a response about {name} {row[name]}, where {value} was asked about")
    return row


def shown(row: Any) -> str:
    """A message on a line, without its bytes."""
    if isinstance(row, Mapping):
        return "{" + ", ".join(f"{key}: {shown(value)}" for key, value in row.items()) + "}"
    if isinstance(row, list):
        return "[" + ", ".join(shown(each) for each in row) + "]"
    if isinstance(row, bytes):
        return f"{len(row)} bytes"
    return re.sub(r"\s+", " ", str(row))
