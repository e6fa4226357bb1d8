"""The topics, ids and groups that a run creates on a cluster, under its own names, and deletes again."""

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.conform.stage import GROUP_KEY, SEGMENT_MS, TRANSACTION_KEY, Places, Stage
from kafka_eos_checks.conform.wire import Address, NoAnswer, Unreachable, Unsupported, Wire, error_name, wait

PARTITIONS = 32
"""The number of partitions of a topic; each scenario has a partition of its own."""
IDS_TRIED = 100
"""Transactional.ids that are tried until the coordinators of a scenario are where they have to be."""
PREFIX = "kafka-eos-conform"
BROKER, INTERVAL = 4, "group.consumer.assignment.interval.ms"
MAX_TIMEOUT = "transaction.max.timeout.ms"
TIMEOUT_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
_CONFIG_REFUSED = {ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION}
_FIRST_WITH_DEFAULTS = 4
"""CreateTopics: from this version on the broker's own replication factor can be asked for (KIP-464)."""


class NotOurs(RuntimeError):  # noqa: N818 - what is wrong
    """A name that this run wants to create exists already, or cannot be created."""


@dataclass(slots=True)
class Territory:
    """The topics, ids and groups of one run; a context manager that deletes them.

    Attributes:
        wire: the connections to the cluster.
        prefix: the prefix of all names.
        token: the part that makes this run's names differ from another's.
        seconds: how long to wait for what a broker does by itself.
        topics: the topics that were created.
        left: what could not be deleted.
    """

    wire: Wire
    prefix: str = PREFIX
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    seconds: float = 10.0
    topics: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    places: Places = field(init=False)
    _stages: list[Stage] = field(default_factory=list)
    _free: list[tuple[str, int]] = field(default_factory=list)
    _on_node: list[tuple[str, int]] = field(default_factory=list)
    _of_members: str = ""
    _assigns_after: float = 0.0
    _most: float | None = None

    def __post_init__(self) -> None:
        self.places = Places(self.wire, max(self.seconds, 20.0), self.seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clean()

    @property
    def names(self) -> str:
        """The prefix of all names."""
        return f"{self.prefix}-{self.token}"

    def stage(self, *, has_topic: bool = False, has_second: bool = False, has_second_group: bool = False) -> Stage:
        """A place for one more scenario, with a topic of one partition if it has one, or with a second partition.

        There is no second one where the broker makes topics of a single partition.

        Args:
            has_topic: its topic has one partition.
            has_second: it has a second partition.
            has_second_group: it has a second group.
        """
        if has_topic:
            return self._stage_of_members()
        if len(self._free) < 1 + has_second:
            topic = f"{self.names}-topic-{len(self.topics)}"
            self._free = [(topic, number) for number in range(self._create(topic))]
        stage = self._stage(*self._free.pop(0))
        if has_second and self._free:
            _, stage.second_partition = self._free.pop(0)
        if has_second_group:
            # of another number each time, so that brokers have both groups in one partition, or in two
            stage.groups = (*stage.groups, f"{stage.groups[0]}-{len(self._stages)}")
        return stage

    def stage_on(self, node: int, names: Sequence[str], away: Address | None = None) -> Stage:
        """A place for one more scenario, in a partition whose only replica is on this broker.

        Args:
            node: the broker's id.
            names: the scenario's transactional.ids.
            away: the address where none of them may have its coordinator.

        Raises:
            NotOurs: no such transactional.ids were found.
        """
        if not self._on_node:
            topic = f"{self.names}-node-{len(self.topics)}"
            self._create(topic, node=node)
            self._on_node = [(topic, number) for number in range(PARTITIONS)]
        stage = self._stage(*self._on_node.pop(0))
        for name in names if away is not None else ():
            salts = iter(range(IDS_TRIED))
            while self.places.coordinator(TRANSACTION_KEY, stage.transactional_id(name)) == away:
                if (salt := next(salts, None)) is None:
                    raise NotOurs(
                        f"of {IDS_TRIED} transactional.ids each has its coordinator on {away}, whose broker is to "
                        "stop; name another broker with --node"
                    )
                stage.salts[name] = f"-{salt}"
        return stage

    def _stage(self, topic: str, number: int) -> Stage:
        prefix = f"{self.names}-{len(self._stages)}"
        stage = Stage(
            self.wire,
            self.places,
            topic,
            number,
            prefix,
            assigns_after=self._assigns_after,
            longest_timeout=self._longest_timeout,
        )
        self._stages.append(stage)
        return stage

    def _stage_of_members(self) -> Stage:
        """A place whose topic has one partition; nothing is written to it, so that all such places share it."""
        if self._of_members:
            return self._stage(self._of_members, 0)
        topic = f"{self.names}-members"
        self._create(topic, 1)
        self._assigns_after = self._assignment_interval()
        deadline, attempt = time.monotonic() + self.seconds, 0
        while not self._stage(topic, 0).assigns() and time.monotonic() < deadline:
            wait(attempt)  # until the coordinator knows the topic, which no other request tells
            attempt += 1
        self._of_members = topic
        return self._stage(topic, 0)

    def _assignment_interval(self) -> float:
        """Seconds from one assignment of a group of KIP-848 to the next; 0 if the broker does not say.

        Kafka: group.consumer.assignment.interval.ms, since 4.3
        """
        return self._seconds_of(INTERVAL, 0.0)

    def _longest_timeout(self) -> float:
        """The longest timeout of transactions that the broker allows, in seconds; 0 if it does not say.

        Kafka: transaction.max.timeout.ms
        """
        if self._most is None:
            self._most = self._seconds_of(MAX_TIMEOUT, 0.0)
        return self._most

    def timeout_interval(self) -> float:
        """The longest time in seconds from a transaction's timeout until its coordinator notices it.

        Kafka: transaction.abort.timed.out.transaction.cleanup.interval.ms
        """
        return self._seconds_of(TIMEOUT_INTERVAL, 10.0)

    def _seconds_of(self, name: str, unknown: float) -> float:
        """A configuration of the first broker in seconds; ``unknown`` if it does not say."""
        with suppress(NoAnswer, Unsupported):
            broker = self.wire.ask("Metadata", {"Topics": []})["Brokers"][0]
            asked = {"ResourceType": BROKER, "ResourceName": str(broker["NodeId"]), "ConfigurationKeys": [name]}
            at = Address(broker["Host"], broker["Port"])
            for result in self.wire.ask("DescribeConfigs", {"Resources": [asked]}, at)["Results"]:
                for config in result["Configs"]:
                    if config["Value"] is not None:  # Kafka before 4.3 lists the unknown name without a value
                        return int(config["Value"]) / 1000
        return unknown

    def _create(self, topic: str, partitions: int = PARTITIONS, node: int | None = None) -> int:
        """Create a topic, and return its number of partitions; without CreateTopics a question may create it.

        Args:
            topic: its name.
            partitions: the number of partitions.
            node: the broker that has the only replica of each; by default as many replicas as the cluster wants.
        """
        try:
            copies = -1 if self.wire.version("CreateTopics") >= _FIRST_WITH_DEFAULTS else 1
        except Unsupported:
            if node is not None:
                raise
            self.topics.append(topic)
            return self.places.asked_into_being(topic)
        configs = [{"Name": "segment.ms", "Value": str(SEGMENT_MS)}]
        row: Message = {"Name": topic, "NumPartitions": partitions, "ReplicationFactor": copies}
        if node is not None:
            placed = [{"PartitionIndex": number, "BrokerIds": [node]} for number in range(partitions)]
            configs += [{"Name": "min.insync.replicas", "Value": "1"}]
            row |= {"NumPartitions": -1, "ReplicationFactor": -1, "Assignments": placed}
        request = {"timeoutMs": 10_000, "ValidateOnly": False}
        answer = self.wire.ask("CreateTopics", {"Topics": [row | {"Configs": configs}], **request})
        if any(each["ErrorCode"] in _CONFIG_REFUSED for each in answer["Topics"]):  # it has no such segments
            answer = self.wire.ask("CreateTopics", {"Topics": [row | {"Configs": configs[1:]}], **request})
        for each in answer["Topics"]:
            if each["ErrorCode"]:
                message = each.get("ErrorMessage") or ""
                raise NotOurs(f"topic {topic}: {error_name(each['ErrorCode'])} {message}".strip())
        self.topics.append(topic)
        for partition in range(partitions):
            self.places.leader(topic, partition)
        return partitions

    def clean(self) -> None:
        """Delete everything that can be deleted; transactional.ids expire by themselves."""
        for stage in self._stages:
            for used in filter(None, (stage, stage.second)) if stage.has_group else ():
                self._gone(f"group {used.group}", lambda used=used: self._delete_group(used.group))  # type: ignore[misc]
        for topic in self.topics:
            self._gone(f"topic {topic}", lambda topic=topic: self._delete_topic(topic))  # type: ignore[misc]
        self.topics.clear()
        self._stages.clear()

    def _gone(self, what: str, delete: Callable[[], int]) -> None:
        deadline, attempt = time.monotonic() + self.seconds, 0
        code = 0
        with suppress(NoAnswer, Unreachable, Unsupported):
            while (code := delete()) and time.monotonic() < deadline:
                self.places.forget()
                wait(attempt)
                attempt += 1
            if code == 0:
                return
        self.left.append(f"{what}{f' ({error_name(code)})' if code else ''}")

    def _delete_group(self, group: str) -> int:
        at = self.places.coordinator(GROUP_KEY, group)
        [found] = self.wire.ask("DeleteGroups", {"GroupsNames": [group]}, at)["Results"]
        code = int(found["ErrorCode"])
        return 0 if code == ErrorCode.GROUP_ID_NOT_FOUND else code

    def _delete_topic(self, topic: str) -> int:
        [found] = self.wire.ask("DeleteTopics", {"TopicNames": [topic], "TimeoutMs": 10_000})["Responses"]
        return int(found["ErrorCode"])
