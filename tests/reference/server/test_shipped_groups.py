"""The server's group coordinators go step by step with Kafka's own GroupCoordinatorShard, in what concerns offsets.

As ``tests/checks/models/test_shipped_log.py`` does for the log of a partition. Requests of members are compared only as
far as they decide who may commit: by errors, generations and epochs. The server lets no offset expire by its age.
"""

import json
import random
import subprocess
from base64 import b64encode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, decode_batch
from kafka_eos.server.cluster import CONSUMER_OFFSETS, Settings
from kafka_eos.server.consumer_groups import FollowingGroup
from kafka_eos.server.consumer_protocol import assignment_bytes
from kafka_eos.server.groups import ClassicGroup
from kafka_eos.server.handlers import offsets as handler
from kafka_eos.server.handlers.request import ticket_for
from kafka_eos.server.offset_records import CLASSIC_GROUP, OFFSET, kind_of, read_key, read_value
from kafka_eos.server.schemas import served_codec
from kafka_eos.server.storage import Directory
from kafka_eos.wire.protocol import Buffer, Message
from kafka_eos_checks.brokers.brokers import java_command

from .conftest import NOW, Make

SEED, STEPS = 6, 450
TOPICS = ("t", "u")
SETTINGS = Settings(internal_partitions=1, consumer_heartbeat_ms=5_000)


def plain(value: Any) -> Any:
    """A message as Kafka writes it in JSON."""
    if isinstance(value, dict):
        return {name[0].lower() + name[1:]: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode() if isinstance(value, UUID) else value


def in_words(record: Record) -> Any:
    """A record of an offset; of a classic group's only that it is there, and of other records nothing."""
    assert record.key is not None
    kind = kind_of(record.key)
    if kind != OFFSET:
        return [kind, record.value is None] if kind == CLASSIC_GROUP else None
    value = None if record.value is None else read_value(kind, record.value)
    version = None if record.value is None else record.value[1]
    return [kind, plain([*read_key(record.key), version, value])]


class Run:
    """A random run: the steps as Kafka's coordinator is told them, and what the reference answers."""

    def __init__(self, rng: random.Random, make: Make, folder: Path) -> None:
        self._rng, self._make, self._folder = rng, make, folder
        self._clusters = 0
        self.steps: list[str] = []
        self.answers: list[Any] = []
        self.begin()

    def begin(self) -> None:
        """Go on with another cluster, with groups of one protocol or of both."""
        self._clusters += 1
        self._wire = self._make(1, SETTINGS, storage=Directory(self._folder / str(self._clusters)))
        self._ids: list[str] = []
        self._markers: list[tuple[int, bool]] = []
        self._producers: dict[str, tuple[int, int, int, bool]] = {}
        self._kinds = self._rng.choice(["classic", "consumer", "both"])
        self._wire.cluster.happened = self._happened
        for topic in TOPICS:
            self._wire.topic(topic, 2)
        self._read = self._partition.log_end_offset
        self._answers: list[Any] = []
        self._tell(f"new {self._topics()}")

    def _topics(self) -> str:
        return json.dumps(
            {name: [2, plain(self._wire.cluster.topics[name].topic_id)] for name in TOPICS}, separators=(",", ":")
        )

    def _happened(self, action: str, _: int, **columns: Any) -> None:
        if action == "WriteTxnMarkers" and columns["topic"] == CONSUMER_OFFSETS:
            self._markers.append((columns["producer_id"], columns["detail"]["committed"]))

    @property
    def _partition(self) -> Any:
        return self._wire.cluster.topics[CONSUMER_OFFSETS].partitions[0]

    # --- what is compared --------------------------------------------------------------------------------------------

    def _tell(self, step: str) -> None:
        self._wire.wait(0)  # what is due now
        self._hear()
        for number, member_id in enumerate(self._ids):
            step = step.replace(f'"{member_id}"', f'"@{number}"')
        markers, self._markers = self._markers, []
        steps = [step] if step else []
        steps += [f"marker {producer_id} {int(commit)}" for producer_id, commit in markers]
        last: dict[str, Any] = {"answers": self._answers, "records": self._records(), "state": self._state()}
        text, self._answers = json.dumps(last), []
        for number, member_id in enumerate(self._ids):
            text = text.replace(member_id, f"@{number}")
        last = json.loads(text)
        last["records"] = distinct(last["records"])
        ranked(last["state"])
        last["answers"].sort(key=str)
        state = last.pop("state")
        self.steps += steps
        self.answers += [last | {"state": None}, *([{"answers": [], "records": [], "state": None}] * len(markers))][
            -len(steps) :
        ]
        self.answers[-1] = self.answers[-1] | {"state": state}

    def _hear(self) -> None:
        """Answers to requests that had to wait."""
        ids = []
        for row in self._wire.late:
            if "GenerationId" in row or "MemberId" in row:
                if row["MemberId"] and row["MemberId"] not in self._ids:
                    ids.append(row["MemberId"])
                self._answers.append(["JoinGroup", row["ErrorCode"], row["GenerationId"], row["MemberId"]])
            else:
                self._answers.append(["SyncGroup", row["ErrorCode"]])
        self._wire.late.clear()
        self._ids += sorted(ids)

    def _records(self) -> list[Any]:
        end, found = self._partition.log_end_offset, []
        if self._read < end:
            data, place = self._partition.store.read(self._read, end, 1 << 30, at_least_one=True), 0
            while place < len(data):
                batch, place = decode_batch(data, place)
                found += [] if batch.is_control else [in_words(record) for record in batch.records()]
        self._read = end
        return found

    def _state(self) -> Any:
        groups, committed, pending = {}, {}, {}
        for name, group in self._wire.cluster.groups.known.items():
            state = "with members" if isinstance(group, FollowingGroup) and not group.is_empty else str(group.state)
            groups[name] = [group.group_type, state]
            for partition, place in group.machine.committed.items():
                committed[f"{name} {partition}"] = self._told(group, place)
            for producer, places in group.machine.pending.items():
                for partition, place in places.items():
                    pending[f"{producer} {name} {partition}"] = self._told(group, place)
        return {"groups": groups, "committed": committed, "pending": pending}

    def _told(self, group: Any, place: int) -> list[Any]:
        value = group.values[place]
        topic = self._wire.cluster.names.get(value.topic_id, "")
        return [value.offset, value.leader_epoch, value.metadata, value.timestamp, place, topic]

    # --- steps -------------------------------------------------------------------------------------------------------

    def go(self) -> None:
        """Take one more step."""
        kinds = {
            self.begin: 2,
            self._reload: 3,
            self._delete_topic: 2,
            self._wait: 6,
            self._commit: 20,
            self._commit_in_transaction: 25,
            self._end: 14,
            self._fetch: 20,
            self._delete_offsets: 4,
            self._delete_group: 4,
            self._classic_member: 0 if self._kinds == "consumer" else 20,
            self._consumer_member: 0 if self._kinds == "classic" else 14,
        }
        self._rng.choices(list(kinds), list(kinds.values()))[0]()

    def _ask(self, api: str, version: int, **row: Any) -> Message | None:
        """Send a request, and note it for Kafka."""
        codec = served_codec()
        full = codec.read(f"{api}Request", version, Buffer(codec.write(f"{api}Request", version, row)))
        self._asked = f"{api} {version} {json.dumps(plain(full), separators=(',', ':'))}"
        return self._wire.send(api, version, **row)

    def _reload(self) -> None:
        self._wire.cluster = self._wire.cluster.restarted()
        self._wire.cluster.happened = self._happened
        self._wire.late.clear()
        self._read = self._partition.log_end_offset
        self._tell("reload")

    def _delete_topic(self) -> None:
        topic = self._rng.choice(TOPICS) if self._kinds == "classic" else "u"
        self._wire.cluster.delete_topic(topic)
        self._wire.topic(topic, 2)
        self._tell(f"topics {self._topics()}")

    def _wait(self) -> None:
        milliseconds = self._rng.choice([1, 100, 2_000, 4_000, 9_000, 20_000])
        self._wire.wait(milliseconds)
        self._tell(f"wait {milliseconds}")

    def _group(self) -> str:
        return self._rng.choice(["g", "g", "g", "h"])

    def _who(self, name: str, waiting: bool = True) -> tuple[str, int, str | None]:
        """A member id, a generation or epoch, and an instance id: mostly those of a member.

        To Kafka a new member that waits for its first generation is silent as soon as it sends something else.
        """
        group, rng = self._wire.cluster.groups.known.get(name), self._rng
        if rng.random() < 0.3:
            return "", rng.choice([-1, -1, -1, -1, -2, 0, 1, 3]), rng.choice([None, None, None, None, "i"])
        members: list[tuple[str, int, str | None]] = [("nobody", 1, None)]
        if isinstance(group, ClassicGroup):
            of = sorted((group.members.keys() if waiting else group.machine.group.members) & set(self._ids))
            members = [(each, group.generation, group.members[each].instance_id) for each in of] or members
        elif isinstance(group, FollowingGroup):
            members = [
                (e.member_id, group.current(e.member_id).epoch, e.instance_id) for e in group.followers.values()
            ] or members
        member_id, epoch, instance_id = rng.choice(members)
        if rng.random() < 0.2:
            epoch += rng.choice([-1, -1, 1, -2])
        if rng.random() < 0.1:
            epoch = -1
        if rng.random() < 0.1:
            instance_id = rng.choice(["i", "j"])
        if rng.random() < 0.1:
            member_id = rng.choice(["", "nobody"])
        return member_id, epoch, instance_id

    def _offsets(self, by_id: bool = False) -> list[Message]:
        rng = self._rng
        return [
            ({"TopicId": self._wire.cluster.topics[topic].topic_id} if by_id else {"Name": topic})
            | {
                "Partitions": [
                    {
                        "PartitionIndex": number,
                        "CommittedOffset": rng.randint(0, 50),
                        "CommittedLeaderEpoch": rng.choice([-1, 0, 3]),
                        "CommittedMetadata": "x" * 4097 if rng.random() < 0.02 else rng.choice([None, "", "m"]),
                    }
                    for number in rng.sample([0, 1], rng.choice([1, 1, 2]))
                ]
            }
            for topic in rng.sample(TOPICS, rng.choice([1, 1, 1, 2]))
        ]

    def _commit(self) -> None:
        name, version = self._group(), self._rng.choice([2, 6, 7, 8, 9, 9, 10])
        member_id, epoch, instance_id = self._who(name, waiting=False)
        row = self._ask(
            "OffsetCommit",
            version,
            GroupId=name,
            MemberId=member_id,
            GenerationIdOrMemberEpoch=epoch,
            **({"GroupInstanceId": instance_id} if version >= 7 else {}),
            Topics=self._offsets(version >= 10),
        )
        self._told_of_partitions("OffsetCommit", row)
        self._tell(self._asked)

    def _told_of_partitions(self, api: str, row: Message | None) -> None:
        assert row is not None
        names = self._wire.cluster.names
        found = [
            [topic.get("Name") or names[topic["TopicId"]], part["PartitionIndex"], part["ErrorCode"]]
            for topic in row["Topics"]
            for part in topic["Partitions"]
        ]
        errors = {error for _, _, error in found} - {0, ErrorCode.OFFSET_METADATA_TOO_LARGE}
        self._answers.append([api, *(errors or found)])

    def _commit_in_transaction(self) -> None:
        transactional_id = self._rng.choice(["x", "y"])
        if transactional_id not in self._producers:
            self._init(transactional_id)
        producer_id, epoch, version, _ = self._producers[transactional_id]
        name = self._group()
        if version < 5:
            row = self._wire.ask(
                "AddOffsetsToTxn",
                3,
                TransactionalId=transactional_id,
                ProducerId=producer_id,
                ProducerEpoch=epoch,
                GroupId=name,
            )
            if row["ErrorCode"]:  # the time of its transaction was over
                self._init(transactional_id)
                return
        member_id, generation, instance_id = self._who(name)
        refused: list[ErrorCode] = []

        def recording(*given: Any) -> Any:
            error, ticket = ticket_for(*given)
            refused.append(error)
            return error, ticket

        handler.ticket_for = recording  # type: ignore[attr-defined]
        try:
            row = self._ask(
                "TxnOffsetCommit",
                version,
                TransactionalId=transactional_id,
                GroupId=name,
                ProducerId=producer_id,
                ProducerEpoch=epoch,
                GenerationIdOrMemberEpoch=generation,
                MemberId=member_id,
                GroupInstanceId=instance_id,
                Topics=self._offsets(),
            )
        finally:
            handler.ticket_for = ticket_for  # type: ignore[attr-defined]
        if refused != [ErrorCode.NONE]:
            self._init(transactional_id)
            return
        self._producers[transactional_id] = producer_id, epoch, version, True
        self._told_of_partitions("TxnOffsetCommit", row)
        self._tell(self._asked.replace('"generationIdOrMemberEpoch"', '"generationId"'))

    def _init(self, transactional_id: str) -> None:
        row = self._wire.ask("InitProducerId", 4, TransactionalId=transactional_id, TransactionTimeoutMs=60_000)
        if row["ErrorCode"] != 0:
            row = self._wire.ask("InitProducerId", 4, TransactionalId=transactional_id, TransactionTimeoutMs=60_000)
        assert row["ErrorCode"] == 0
        version = self._rng.choice([3, 4, 5, 5])
        self._producers[transactional_id] = row["ProducerId"], row["ProducerEpoch"], version, False
        self._tell_markers()

    def _tell_markers(self) -> None:
        if self._markers:
            self._tell("")

    def _end(self) -> None:
        if not self._producers:
            return
        transactional_id = self._rng.choice(sorted(self._producers))
        producer_id, epoch, version, is_open = self._producers[transactional_id]
        if self._rng.random() < 0.15 or not is_open:
            self._init(transactional_id)
            return
        row = self._wire.ask(
            "EndTxn",
            5 if version == 5 else 3,
            TransactionalId=transactional_id,
            ProducerId=producer_id,
            ProducerEpoch=epoch,
            Committed=self._rng.random() < 0.6,
        )
        if row["ErrorCode"] != 0:  # its time was over
            self._init(transactional_id)
            return
        if version == 5:
            producer_id, epoch = row["ProducerId"], row["ProducerEpoch"]
        self._producers[transactional_id] = producer_id, epoch, version, False
        self._tell_markers()

    def _fetch(self) -> None:
        rng, name, version = self._rng, self._group(), self._rng.choice([8, 9, 10])
        group: Message = {"GroupId": name, "Topics": None}
        if rng.random() < 0.7:
            group["Topics"] = [
                ({"TopicId": self._wire.cluster.topics[topic].topic_id} if version >= 10 else {"Name": topic})
                | {"PartitionIndexes": [0, 1]}
                for topic in TOPICS
            ]
        if version >= 9 and rng.random() < 0.5:
            member_id, epoch, _ = self._who(name)
            group |= {"MemberId": member_id or (None if epoch < 0 else ""), "MemberEpoch": epoch}
        row = self._ask("OffsetFetch", version, Groups=[group], RequireStable=rng.random() < 0.6)
        assert row is not None
        [told] = row["Groups"]
        names = self._wire.cluster.names
        if told["ErrorCode"]:
            self._answers.append(["OffsetFetch", told["ErrorCode"]])
        else:
            parts = [
                [
                    topic.get("Name") or names[topic["TopicId"]],
                    *(part[each] for each in ("PartitionIndex", "CommittedOffset", "CommittedLeaderEpoch", "Metadata")),
                    part["ErrorCode"],
                ]
                for topic in told["Topics"]
                for part in topic["Partitions"]
            ]
            self._answers.append(["OffsetFetch", *sorted(parts)])
        self._tell(self._asked)

    def _delete_offsets(self) -> None:
        topics = [
            {"Name": topic, "Partitions": [{"PartitionIndex": number} for number in self._rng.sample([0, 1], 1)]}
            for topic in self._rng.sample(TOPICS, self._rng.choice([1, 2]))
        ]
        row = self._ask("OffsetDelete", 0, GroupId=self._group(), Topics=topics)
        assert row is not None
        if row["ErrorCode"]:
            self._answers.append(["OffsetDelete", row["ErrorCode"]])
        else:
            parts = [
                [topic["Name"], part["PartitionIndex"], part["ErrorCode"]]
                for topic in row["Topics"]
                for part in topic["Partitions"]
            ]
            self._answers.append(["OffsetDelete", *parts])
        self._tell(self._asked)

    def _delete_group(self) -> None:
        row = self._ask("DeleteGroups", 2, GroupsNames=[self._group()])
        assert row is not None
        self._answers.append(["DeleteGroups", *([each["GroupId"], each["ErrorCode"]] for each in row["Results"])])
        self._tell(self._asked)

    # --- members -----------------------------------------------------------------------------------------------------

    def _classic_member(self) -> None:
        group, rng = self._wire.cluster.groups.known.get("g"), self._rng
        if isinstance(group, FollowingGroup) and not group.is_empty:
            return
        kind = rng.random()
        known = sorted(set(group.members) & set(self._ids)) if isinstance(group, ClassicGroup) else []
        if not isinstance(group, ClassicGroup):
            self._join(None)
        elif group.expected and kind < 0.6:
            self._join(rng.choice(sorted(group.expected)))
        elif not known or kind < 0.25:
            has_room = len(group.members) + len(group.expected) < 2  # which of two others leads, Kafka leaves to hashes
            self._join(rng.choice([None, *known] if has_room or not known else known))
        elif kind < 0.65:
            member_id = group.leader if group.leader in known and rng.random() < 0.6 else rng.choice(known)
            given = [
                {"MemberId": each, "Assignment": assignment_bytes([("t", [0])] if each == group.leader else [], 1)}
                for each in group.members
            ]
            self._say(
                self._ask(
                    "SyncGroup",
                    4,
                    GroupId="g",
                    GenerationId=group.generation + rng.choice([0, 0, 0, 0, 0, -1]),
                    MemberId=member_id,
                    GroupInstanceId=group.members[member_id].instance_id if member_id in group.members else None,
                    Assignments=given if member_id == group.leader else [],
                ),
                "SyncGroup",
            )
        elif kind < 0.8:
            member_id = rng.choice(sorted(group.machine.group.members & set(known)) or ["nobody"])
            row = self._ask("Heartbeat", 3, GroupId="g", GenerationId=group.generation, MemberId=member_id)
            self._say(row, "Heartbeat")
        else:
            member = group.members[rng.choice(known)]
            leaving = [{"MemberId": member.member_id, "GroupInstanceId": member.instance_id}]
            row = self._ask("LeaveGroup", 4, GroupId="g", Members=leaving)
            assert row is not None
            self._answers.append(["LeaveGroup", *(each["ErrorCode"] for each in row["Members"])])
            self._tell(self._asked)

    def _say(self, row: Message | None, api: str) -> None:
        if row is not None:
            if api == "JoinGroup":
                self._wire.late.insert(0, row)
            else:
                self._answers.append([api, row["ErrorCode"]])
        self._tell(self._asked)

    def _join(self, member_id: str | None) -> None:
        group = self._wire.cluster.groups.known.get("g")
        member = group.members.get(member_id or "") if isinstance(group, ClassicGroup) else None
        instance_id = member.instance_id if member else None
        if member_id is None and self._rng.random() < 0.4:
            instance_id = self._rng.choice(["i", "j"])
        said = {"Topics": ["t"], "UserData": None, "OwnedPartitions": []}
        metadata = b"\0\1" + served_codec().write("ConsumerProtocolSubscription", 1, said)
        row = self._ask(
            "JoinGroup",
            5,
            GroupId="g",
            SessionTimeoutMs=10_000,
            RebalanceTimeoutMs=15_000,
            MemberId=member_id or "",
            GroupInstanceId=instance_id,
            ProtocolType="consumer",
            Protocols=[{"Name": "range", "Metadata": metadata}],
        )
        self._say(row, "JoinGroup")

    def _consumer_member(self) -> None:
        group, rng = self._wire.cluster.groups.known.get("g"), self._rng
        if isinstance(group, ClassicGroup) and (group.members or group.expected):
            return
        member_id = rng.choice(["a", "b", "s"])
        instance_id = "s" if member_id == "s" else None
        known = group.followers.get(member_id) if isinstance(group, FollowingGroup) else None
        row: Message = {"GroupId": "g", "MemberId": member_id, "InstanceId": instance_id, "TopicPartitions": None}
        if known is None or rng.random() < 0.05 or known.is_away:
            row |= {"MemberEpoch": 0, "RebalanceTimeoutMs": 300_000, "SubscribedTopicNames": ["t"]}
            row |= {"TopicPartitions": [], "ServerAssignor": "range"}
        else:
            assert isinstance(group, FollowingGroup)
            current = group.current(member_id)
            row["MemberEpoch"] = current.epoch + rng.choice([0] * 8 + [-1])
            if rng.random() < 0.5:
                row["TopicPartitions"] = [
                    {
                        "TopicId": self._wire.cluster.topics[topic].topic_id,
                        "Partitions": sorted(n for n in (0, 1) if f"{topic}-{n}" in current.assigned),
                    }
                    for topic in TOPICS
                    if any(each.startswith(topic) for each in current.assigned)
                ]
            if rng.random() < 0.25:
                row["MemberEpoch"] = -2 if instance_id and rng.random() < 0.5 else -1
        told = self._ask("ConsumerGroupHeartbeat", 1, **row)
        assert told is not None
        error = told["ErrorCode"]
        self._answers.append(["ConsumerGroupHeartbeat", error, *([] if error else [told["MemberEpoch"]])])
        self._tell(self._asked)


def by_kafka(steps: Sequence[str]) -> list[Any]:
    """What Kafka's coordinator answers."""
    program = Path(__file__).parents[2] / "java" / "GroupOffsets.java"
    given = "".join(f"{step}\n" for step in steps)
    done = subprocess.run(
        java_command(str(program), str(NOW)), input=given, capture_output=True, check=True, text=True, timeout=300
    )
    return [as_told(json.loads(line)) for line in done.stdout.splitlines()]


def as_told(answer: Any) -> Any:
    """An answer of Kafka's in the form that the reference's has."""
    answer["records"] = distinct(
        in_words(Record(key=bytes.fromhex(key), value=bytes.fromhex(value) if value else None))
        for key, value in answer["records"]
    )
    for group in answer["state"]["groups"].values():
        if group[0] == "consumer" and group[1] != "Empty":
            group[1] = "with members"
    ranked(answer["state"])
    for told in answer["answers"]:
        if told[0] == "OffsetFetch" and isinstance(told[-1], list):
            told[1:] = sorted(told[1:])
    answer["answers"].sort(key=str)
    return answer


def ranked(state: Any) -> Any:
    """A state with places in their order, because Kafka writes some tombstones more than once."""
    offsets = [*state["committed"].values(), *state["pending"].values()]
    places = sorted(each[4] for each in offsets)
    for each in offsets:
        each[4] = places.index(each[4])
    return state


def distinct(records: Iterable[Any]) -> list[Any]:
    """Records in an order, without those that are there before."""
    return [json.loads(each) for each in sorted({json.dumps(each) for each in records if each})]


@pytest.mark.java
@pytest.mark.parametrize(("seed", "steps"), [(SEED, STEPS), pytest.param(3, 10_000, marks=pytest.mark.thorough)])
def test_the_offsets_of_groups_go_step_by_step_with_kafkas_own_coordinator(
    seed: int, steps: int, make: Make, tmp_path: Path
) -> None:
    run = Run(random.Random(seed), make, tmp_path)
    while len(run.steps) < steps:
        run.go()
    answers = by_kafka(run.steps)
    assert len(answers) == len(run.steps)
    reached = Counter[str]()
    for place, (step, expected, answer) in enumerate(zip(run.steps, run.answers, answers, strict=True)):
        if expected["state"] is None:  # there is more to come at the same time
            answer["state"] = None
        assert answer == expected, "\n".join(run.steps[max(0, place - 20) : place + 1])
        reached[step.partition(" ")[0]] += 1
        reached.update(f"{api} {found[0]}" for api, *found in answer["answers"] if found and isinstance(found[0], int))
    kinds = {"new", "topics", "wait", "reload", "marker", "OffsetCommit", "TxnOffsetCommit", "OffsetFetch"}
    kinds |= {"OffsetDelete", "DeleteGroups", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"}
    code = ErrorCode
    refused = {
        "OffsetCommit": [code.UNKNOWN_MEMBER_ID, code.ILLEGAL_GENERATION, code.GROUP_ID_NOT_FOUND],
        "TxnOffsetCommit": [code.UNKNOWN_MEMBER_ID, code.ILLEGAL_GENERATION],
        "OffsetFetch": [code.UNKNOWN_MEMBER_ID],
        "OffsetDelete": [code.GROUP_ID_NOT_FOUND],
    }
    wanted = kinds | {f"{api} {int(error)}" for api, errors in refused.items() for error in errors}
    assert wanted <= reached.keys(), wanted - reached.keys()
