"""A cluster: brokers, topics, coordinators. It knows no socket and no clock: its caller tells it the time.

Brokers are logical: each is an address and leads some of the partitions; they share one storage. So a leader or a
coordinator that moves is real to a client, while replication takes no time.

Kafka: KafkaApis, MetadataCache, ReplicationControlManager
"""

import heapq
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from kafka_eos.errors import ErrorCode, Rejected
from kafka_eos.formats.coordinator_partition import coordinator_partition
from kafka_eos.formats.record_batch import RecordBatch
from kafka_eos.machines.consumer_group import ConsumerGroup
from kafka_eos.machines.group_coordinator import GroupCoordinator
from kafka_eos.machines.leader import LeaderRules
from kafka_eos.server.configs import PRODUCER_EXPIRATION, VERIFICATION, Configs, Values
from kafka_eos.server.followers import ConsumerGroups
from kafka_eos.server.groups import Groups
from kafka_eos.server.partitions import Leader
from kafka_eos.server.storage import METADATA_TOPIC, TOPICS_AND_CONFIGS, DamagedLog, Directory, Memory, Store, damage_at
from kafka_eos.server.transactions import Coordinators, ProducerIds, ServedCoordinator, TransactionSettings

TRANSACTION_STATE, CONSUMER_OFFSETS = "__transaction_state", "__consumer_offsets"
INTERNAL_TOPICS = (TRANSACTION_STATE, CONSUMER_OFFSETS)
EXPIRY_CHECK_MS = 10_000
SESSION_TIMEOUT_MS = 9_000  # broker.session.timeout.ms
_LONGEST_NAME = 249
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_INTERNAL_CONFIGS: dict[str, Values] = {
    CONSUMER_OFFSETS: {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    TRANSACTION_STATE: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}


Happened = Callable[..., None]
"""A callback for what no client asked for: its action, the broker, and columns of an event of the history."""


def unheard(action: str, node: int, **columns: Any) -> None:
    """Ignore an event, because nobody listens."""


class NothingStored(RuntimeError):  # noqa: N818 - named for what is missing
    """There is nothing to restart from."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A logical broker and where clients reach it."""

    node: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper limits on what clients may request.

    Attributes:
        connections: open at a time.
        frame_bytes: bytes of one request.    Kafka: socket.request.max.bytes.
        waiting_bytes: bytes of all requests that have not arrived whole.
        elements: elements of all arrays in one request.
        idle_ms: a connection without a request for this long is closed.    Kafka: connections.max.idle.ms.
        batch_bytes: bytes of one batch, where its topic has no max.message.bytes.    Kafka: message.max.bytes.
        log_bytes: bytes of all partitions together, where they are kept in memory.
        fetch_bytes: bytes of one Fetch response.    Kafka: fetch.max.bytes.
        fetch_wait_ms: time that a Fetch request may wait, which Kafka does not limit.
        partitions: partitions of all topics together.
        groups: consumer groups.
        members: members of one group, those included that were given an id and have not come back with it.
        transactional_ids: transactional ids of producers.
        producers: producers that one partition remembers.
    """

    connections: int = 1000
    frame_bytes: int = 100 << 20
    waiting_bytes: int = 512 << 20
    elements: int = 200_000
    idle_ms: int = 600_000
    batch_bytes: int = (1 << 20) + 12
    log_bytes: int = 1 << 30
    fetch_bytes: int = 55 << 20
    fetch_wait_ms: int = 60_000
    partitions: int = 10_000
    groups: int = 10_000
    members: int = 1_000
    transactional_ids: int = 100_000
    producers: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's settings.

    Attributes:
        transactions: version and times of transactions.
        limits: upper limits on what clients may request.
        internal_partitions: partitions of each internal topic.
        default_partitions: partitions of a topic that is created when a client asks for it; 0: none is created.
        producer_id_expiration_ms: producer.id.expiration.ms.
        timeout_check_ms: transaction.abort.timed.out.transaction.cleanup.interval.ms; 10000 in Kafka.
        group_initial_delay_ms: group.initial.rebalance.delay.ms.
        consumer_heartbeat_ms: group.consumer.heartbeat.interval.ms; 5000 in Kafka.
        consumer_session_ms: group.consumer.session.timeout.ms.
        migration_policy: group.consumer.migration.policy.
        rebalance_protocols: group.coordinator.rebalance.protocols, of "classic" and "consumer".
    """

    transactions: TransactionSettings = field(default=TransactionSettings())
    limits: Limits = Limits()
    internal_partitions: int = 4
    default_partitions: int = 1
    producer_id_expiration_ms: int = 86_400_000
    timeout_check_ms: int = 500
    group_initial_delay_ms: int = 0
    consumer_heartbeat_ms: int = 1_000
    consumer_session_ms: int = 45_000
    migration_policy: str = "bidirectional"
    rebalance_protocols: frozenset[str] = frozenset({"classic", "consumer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The classes of the machines that decide; each may be a mutant."""

    leaders: LeaderRules = field(default=LeaderRules())
    coordinator: type[ServedCoordinator] = ServedCoordinator
    group: type[GroupCoordinator] = GroupCoordinator
    consumer_group: type[ConsumerGroup] = ConsumerGroup


@dataclass(slots=True)
class Topic:
    """A topic: its id, and the leaders of its partitions by number."""

    name: str
    topic_id: UUID
    partitions: list[Leader]


class Cluster:
    """The state of a cluster.

    Args:
        brokers: the logical brokers.
        settings: the operator's settings.
        storage: the storage of the partitions.
        machines: the classes of the machines.
        now: milliseconds since the epoch.
        seed: the seed of generated names: topic ids and member ids.

    Attributes:
        happened: the callback for markers, timeouts, sessions that end, leaders and coordinators that move, and brokers
            that come back.
    """

    def __init__(
        self,
        brokers: list[Broker],
        settings: Settings = Settings(),
        storage: Memory | Directory | None = None,
        machines: Machines = Machines(),
        *,
        now: int,
        seed: int | str | None = None,
    ) -> None:
        self.brokers = brokers
        self.happened: Happened = unheard
        self.settings = settings
        self.now = self._until = now
        self.storage = storage or Memory()
        self.machines = machines
        self._random = Random(seed)  # noqa: S311 - names, no secrets
        proposed = urlsafe_b64encode(self._random.randbytes(16)).rstrip(b"=").decode()
        self.cluster_id = self.storage.cluster_id(proposed)
        self.configs = Configs(_started_with(settings, machines))
        self.topics: dict[str, Topic] = {}
        self.names: dict[UUID, str] = {}
        self._assigned: dict[str, list[tuple[int, ...]]] = {}  # of topics with other replicas than one, in turn
        self.partition_count = 0
        self.gone: dict[int, int] = {}  # brokers that have crashed, and until when
        self.fenced = set[int]()  # those of which the controller has noticed it, and which are no longer told
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._woken: dict[Callable[[], None], None] = {}
        self.groups = Groups(
            cluster=self,
            machine=machines.group,
            initial_delay_ms=settings.group_initial_delay_ms,
            max_members=settings.limits.members,
        )
        self.consumer_groups = ConsumerGroups(
            groups=self.groups,
            machine=machines.consumer_group,
            heartbeat_ms=settings.consumer_heartbeat_ms,
            session_ms=settings.consumer_session_ms,
            policy=settings.migration_policy,
        )
        self.transactions = Coordinators(
            settings=settings.transactions,
            partitions=self,
            producer_ids=ProducerIds(self.storage.reserved_producer_ids(), self.storage.reserve_producer_ids),
            machine=machines.coordinator,
        )
        try:
            self._recover()
        except BaseException:
            self.storage.release()
            raise
        for name in INTERNAL_TOPICS:
            if name not in self.topics:
                self.create_topic(name, settings.internal_partitions, _INTERNAL_CONFIGS[name])
        self._abort_timed_out()
        self._expire()

    def restarted(self) -> "Cluster":
        """The cluster after all its brokers have stopped and come back: they find what was stored.

        Raises:
            NothingStored: it is kept in memory.
        """
        if not isinstance(self.storage, Directory):
            raise NothingStored("a cluster in memory cannot be restarted; keep it in a directory")
        led = {leader.name: leader.node for leader in self.leaders()}
        self.close()
        storage = Directory(self.storage.path)
        again = Cluster(self.brokers, self.settings, storage, self.machines, now=self.now, seed=self.new_id())
        for leader in again.leaders():
            again.move_leader(leader.topic, leader.partition, led[leader.name])
        return again

    def close(self) -> None:
        """Close the files. Nothing is left to be written."""
        for leader in self.leaders():
            leader.store.close()
        self.storage.close()

    # --- time --------------------------------------------------------------------------------------------------------

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._timers, (when, next(self._numbers), action))

    def advance(self, now: int) -> None:
        """Time has passed: do what was due until now; do periodic tasks once, at the end."""
        self._until = max(self._until, now)
        while self._timers and self._timers[0][0] <= now:
            when, _, action = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            action()
        self.now = max(self.now, now)

    def next_timer(self) -> int:
        """The time of the next task, if only to look for timeouts."""
        return self._timers[0][0]

    def settle(self) -> None:
        """Do what requests have left to do: markers and completions, then Fetch requests that can be answered."""
        self.transactions.work(self.now)
        woken, self._woken = self._woken, {}
        for action in woken:
            action()

    def _abort_timed_out(self) -> None:
        self.transactions.time_out(self.now)
        self.settle()
        self.at(max(self.now + self.settings.timeout_check_ms, self._until), self._abort_timed_out)

    def _expire(self) -> None:
        self.transactions.expire(self.now)
        after = {broker.node: self.configs.of_broker(broker.node, PRODUCER_EXPIRATION) for broker in self.brokers}
        for leader in self.leaders():
            leader.expire(self.now - after[leader.node])
        self.at(max(self.now + EXPIRY_CHECK_MS, self._until), self._expire)

    def new_id(self) -> str:
        """A name that nobody has."""
        return str(UUID(bytes=self._random.randbytes(16), version=4))

    def partition_counts(self) -> dict[str, int]:
        """Number of partitions per topic, without the internal topics."""
        return {name: len(t.partitions) for name, t in self.topics.items() if name not in INTERNAL_TOPICS}

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic; None if there is none."""
        found = self.topics.get(topic)
        return None if found is None else found.topic_id

    # --- brokers and topics ------------------------------------------------------------------------------------------

    def leaders(self) -> Iterator[Leader]:
        """The leaders of all partitions."""
        return (leader for topic in self.topics.values() for leader in topic.partitions)

    @staticmethod
    def check_name(name: str) -> None:
        """Check that there can be a topic of this name.

        Raises:
            Rejected: INVALID_TOPIC_EXCEPTION, in Kafka's words.    Kafka: Topic.validate.
        """
        if not name:
            why = "the empty string is not allowed"
        elif name in {".", ".."}:
            why = f"'{name}' is not allowed"
        elif len(name) > _LONGEST_NAME:
            why = f"the length of '{name}' is longer than the max allowed length {_LONGEST_NAME}"
        elif _LEGAL_TOPIC.fullmatch(name) is None:
            why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        else:
            return
        raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")

    def check_new_topic(self, name: str) -> None:
        """Check that a topic of this name can be made.

        Raises:
            Rejected: why not.    Kafka: ReplicationControlManager.createTopics.
        """
        self.check_name(name)
        if name in self.topics:
            raise Rejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name == METADATA_TOPIC:
            raise Rejected(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        alike = name.replace(".", "_")
        other = next((each for each in self.topics if each.replace(".", "_") == alike), None)
        if other is not None:
            why = f"Topic '{name}' collides with existing topic: {other}"
            raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, why)

    def room_for(self, partitions: int) -> bool:
        """There may be this many more partitions."""
        return self.partition_count + partitions <= self.settings.limits.partitions

    def create_topic(
        self,
        name: str,
        partitions: int,
        configs: Values | None = None,
        replicas: Sequence[tuple[int, ...]] | int = 1,
    ) -> Topic:
        """Create a topic.

        Args:
            name: its name.
            partitions: the number of partitions.
            configs: its own configurations.
            replicas: for each partition the brokers, the preferred leader first; or how many, spread over the brokers.
        """
        topic = Topic(name, UUID(bytes=self._random.randbytes(16), version=4), [])
        self.topics[name] = topic
        self.names[topic.topic_id] = name
        self.configs.set_topic(name, configs or {})
        self.grow_topic(topic, partitions, replicas)
        return topic

    def grow_topic(self, topic: Topic, partitions: int, replicas: Sequence[tuple[int, ...]] | int) -> None:
        """Add partitions to a topic; ``replicas`` are those of the new ones, as for :meth:`create_topic`."""
        first = len(topic.partitions)
        spread = replicas if isinstance(replicas, int) else 1
        nodes = [self._spread(number, spread) for number in range(first, partitions)]
        if not isinstance(replicas, int):
            nodes = list(replicas)
        if topic.name in self._assigned or nodes != [self._spread(number, 1) for number in range(first, partitions)]:
            self._assigned[topic.name] = [leader.replicas for leader in topic.partitions] + nodes
        if topic.name in self._assigned or topic.name in self.configs.topics:
            self._note()  # first, so that there is no partition whose configuration is not known
        self.storage.forget(topic.name, range(first, partitions))  # those of a deletion that was cut short
        for number, brokers in enumerate(nodes, start=first):
            store = self.storage.create(topic.name, number, topic.topic_id)
            leader = self._leader(topic.name, number, store, brokers)
            store.epochs(leader.epochs)
            topic.partitions.append(leader)
            self.partition_count += 1

    def _spread(self, number: int, replicas: int) -> tuple[int, ...]:
        """The brokers of a partition for which a client has named none.

        Departs from Kafka: they are not kept, so that a directory can be served by more or fewer brokers than before.
        """
        count = len(self.brokers)
        return tuple(self.brokers[(number + further) % count].node for further in range(min(replicas, count)))

    def _leader(self, topic: str, number: int, store: Store, replicas: tuple[int, ...]) -> Leader:
        rules = self.machines.leaders
        leader = Leader(topic=topic, partition=number, node=replicas[0], replicas=replicas, store=store, rules=rules)
        self._set_verification(leader)
        return leader

    def _set_verification(self, leader: Leader) -> None:
        leader.verify(self.configs.of_broker(leader.node, VERIFICATION))

    def in_sync(self, leader: Leader) -> list[int]:
        """The replicas of a partition that are in sync: all that are not gone."""
        return [node for node in leader.replicas if node not in self.gone]

    def lacking_replicas(self, leader: Leader, least: int) -> str:
        """The reason why a partition has too few replicas in sync; the empty string if it has enough.

        Kafka: Partition.effectiveMinIsr
        """
        count, least = len(self.in_sync(leader)), min(least, len(leader.replicas))
        return f"{count} replica(s) of {leader.name} are in sync, and {least} have to be" if count < least else ""

    def alter_topic(self, topic: str, values: Values) -> None:
        """Give a topic its own configurations, which replace those it had."""
        self.configs.set_topic(topic, values)
        self._note()

    def alter_broker(self, broker: str, values: Values) -> None:
        """Give a broker, or all of them (``ALL_BROKERS``), configurations, which replace those given before."""
        self.configs.set_broker(broker, values)
        for leader in self.leaders():
            self._set_verification(leader)
        self._note()

    def _note(self) -> None:
        self.storage.note({**self.configs.kept(), "replicas": self._assigned})

    def delete_topic(self, name: str) -> None:
        """Delete a topic and what it holds."""
        topic = self.topics.pop(name)
        was_noted = name in self.configs.topics or name in self._assigned
        del self.names[topic.topic_id]
        self.configs.set_topic(name, {})
        self._assigned.pop(name, None)
        for leader in reversed(topic.partitions):  # none is missing before others if the process ends meanwhile
            leader.store.delete()
            self.partition_count -= 1
            self.wake(leader)
        self.storage.forget(name, range(len(topic.partitions)))
        if was_noted:
            self._note()
        partitions = [leader.name for leader in topic.partitions]
        for group in list(self.groups.known.values()):
            self.groups.delete_offsets(group.name, partitions)
        self.consumer_groups.lose_topic(name, topic.topic_id)

    def find(self, topic: str | UUID, number: int) -> Leader | ErrorCode:
        """The leader of a partition, by the topic's name or id, or why there is none."""
        name = self.names.get(topic, "") if isinstance(topic, UUID) else topic
        found = self.topics.get(name)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID if isinstance(topic, UUID) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not 0 <= number < len(found.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return found.partitions[number]

    def find_led(self, topic: str | UUID, number: int, node: int, epoch: int = -1) -> Leader | ErrorCode:
        """The leader of a partition if it is on a broker and, unless -1, has a leader epoch; or why not."""
        found = self.find(topic, number)
        if isinstance(found, ErrorCode):
            return found
        if found.node != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch in {-1, found.leader_epoch}:
            return found
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < found.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def move_leader(self, topic: str, number: int, node: int) -> None:
        """Make another broker the leader of a partition, and so the coordinator of what belongs to it.

        Spec: Transactions!ElectLeader, Failover
        """
        leader = self.topics[topic].partitions[number]
        leader.lead(node)
        self._set_verification(leader)
        self.happened("LeaderChange", node, topic=topic, partition=number, leader_epoch=leader.leader_epoch)
        if topic == TRANSACTION_STATE:
            for name in self.transactions.fail_over(lambda name: self.state_partition(name) is leader):
                self.happened("Failover", node, transactional_id=name, coordinator_epoch=leader.leader_epoch)
        elif topic == CONSUMER_OFFSETS:
            for name in self.groups.known:
                if self.offsets_partition(name) is leader:
                    self.happened("Failover", node, group=name, coordinator_epoch=leader.leader_epoch)
        self.wake(leader)

    def next_broker(self, node: int) -> int:
        """The broker after this one that is not gone; itself if all others are."""
        nodes = [broker.node for broker in self.brokers]
        place = nodes.index(node)
        return next((other for other in nodes[place + 1 :] + nodes[:place] if other not in self.gone), node)

    def crash(self, node: int, until: int, to: int | None = None) -> None:
        """Crash a broker until a time: others lead what it led, and what it coordinated is loaded only then.

        Departs from Kafka: others lead at once. In Kafka they do when the controller fences the broker, after
        :data:`SESSION_TIMEOUT_MS`; until then it is told to clients, as here.

        Args:
            node: the broker.
            until: milliseconds since the epoch.
            to: the broker that leads its partitions from now on; None for the next one.
        """
        self.gone[node] = until
        led = [leader for leader in self.leaders() if leader.node == node]
        self.transactions.loading |= {leader.name: until for leader in led}
        for leader in led:
            heir = next(iter(self.in_sync(leader)), self.next_broker(node))
            self.move_leader(leader.topic, leader.partition, to or heir)

        def come_back() -> None:
            if self.gone.get(node) == until:
                del self.gone[node]
                self.fenced.discard(node)
                self.happened("Restart", node)
            loading = self.transactions.loading
            self.transactions.loading = {name: later for name, later in loading.items() if later > self.now}

        def fence() -> None:
            if self.gone.get(node) == until:
                self.fenced.add(node)

        self.at(self.now + SESSION_TIMEOUT_MS, fence)
        self.at(until, come_back)

    def delay_markers(self, transactional_id: str, until: int) -> None:
        """Write no marker of a transactional.id before a time, so that what ends stays pending until then."""
        self.transactions.delayed[transactional_id] = until
        self.at(until, lambda: None)  # whoever runs the timers settles afterwards

    def delete_records(self, leader: Leader, offset: int) -> None:
        """Move a partition's start to a later offset; what is before it stays in the storage, but is not readable."""
        leader.log_start_offset = max(leader.log_start_offset, offset)
        self._note_start_offsets()

    def _note_start_offsets(self) -> None:
        started = {each.name: each.log_start_offset for each in self.leaders() if each.log_start_offset}
        self.storage.note_start_offsets(started)

    # --- coordinators ------------------------------------------------------------------------------------------------

    def _partition_for(self, topic: str, key: str) -> Leader:
        partitions = self.topics[topic].partitions
        return partitions[coordinator_partition(key, len(partitions))]

    def state_partition(self, transactional_id: str) -> Leader:
        """The partition of ``__transaction_state`` that a transactional.id belongs to."""
        return self._partition_for(TRANSACTION_STATE, transactional_id)

    def offsets_partition(self, group: str) -> Leader:
        """The partition of ``__consumer_offsets`` that a group belongs to."""
        return self._partition_for(CONSUMER_OFFSETS, group)

    def write_marker(
        self,
        partition: str,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int,
        version: int,
        transactional_id: str | None = None,
    ) -> ErrorCode:
        """Write a marker to a partition, by its name; one that is gone needs none.

        Args:
            partition: topic and number.
            producer_id: the producer whose transaction ends.
            epoch: the marker's epoch.
            commit: the decision.
            coordinator_epoch: the epoch of the coordinator that sends it.
            version: the transaction's version.
            transactional_id: the one whose coordinator sends it; None for an operator who aborts by hand.
        """
        topic, _, number = partition.rpartition("-")
        found = self.find(topic, int(number))
        if isinstance(found, ErrorCode):
            return ErrorCode.NONE
        error = found.append_marker(producer_id, epoch, commit, coordinator_epoch, version, self.now)
        if error is ErrorCode.NONE:
            sender = found if transactional_id is None else self.state_partition(transactional_id)
            self.happened(
                "WriteTxnMarkers",
                sender.node,
                topic=topic,
                partition=int(number),
                offset=found.log_end_offset - 1,
                transactional_id=transactional_id,
                producer_id=producer_id,
                coordinator_epoch=coordinator_epoch,
                # Not in the column: there it would say which epoch a client was given.
                detail={"committed": commit, "epoch": epoch}
                | ({} if transactional_id is not None else {"by_hand": True}),
            )
            if topic == CONSUMER_OFFSETS:
                self.groups.end_transaction(found, producer_id, commit)
            self.wake(found)
        return error

    # --- Fetch requests that wait ------------------------------------------------------------------------------------

    def wake(self, leader: Leader) -> None:
        """A partition has changed: try its waiting Fetch requests again."""
        self._woken.update(leader.watchers)

    def has_room(self) -> bool:
        """Whether partitions may hold more bytes."""
        return isinstance(self.storage, Directory) or self.storage.stored_bytes < self.settings.limits.log_bytes

    # --- recovery ----------------------------------------------------------------------------------------------------

    def _recover_noted(self) -> None:
        noted = self.storage.noted()
        if noted is None:
            return
        try:
            self.configs.recover(noted)
            self._assigned = {
                name: [tuple(map(int, each)) for each in rows] for name, rows in noted["replicas"].items()
            }
        except (Rejected, LookupError, TypeError, AttributeError, ValueError) as error:
            raise DamagedLog(f"{TOPICS_AND_CONFIGS}: {error}") from None

    def _recover(self) -> None:
        """Restore topics, coordinators and groups from what is stored.

        Departs from Kafka: a partition that ends before its first offset starts at its end, and not at that offset.
        """
        found: dict[str, dict[int, tuple[Leader, list[RecordBatch]]]] = {}
        started = self.storage.start_offsets()
        self._recover_noted()
        nodes = {broker.node for broker in self.brokers}
        for each in self.storage.recover():
            name, number = each.topic, each.partition
            if name not in self.topics:
                self.topics[name] = Topic(name, each.topic_id, [])
                self.names[each.topic_id] = name
            if self.topics[name].topic_id != each.topic_id:
                raise DamagedLog(f"{name}-{number}: its topic id is not that of the topic's other partitions")
            known = self._assigned.get(name, [])[number : number + 1]
            replicas = tuple(node for row in known for node in row if node in nodes) or self._spread(number, 1)
            leader = self._leader(name, number, each.store, replicas)
            leader.epochs = each.epochs or [(0, 0)]
            with damage_at(leader.name):
                leader.recover(each.batches, each.end)
            leader.log_start_offset = min(max(started.get(leader.name, 0), each.start), leader.log_end_offset)
            self.transactions.producer_ids.pass_over(batch.producer_id for batch in each.batches)
            found.setdefault(name, {})[number] = (leader, each.batches if name in INTERNAL_TOPICS else [])
        gone = (self.configs.topics.keys() | self._assigned.keys()) - found.keys()
        for name in gone:
            self.configs.set_topic(name, {})
            self._assigned.pop(name, None)
        if gone:  # or a later topic of that name has them after the next restart
            self._note()
        for name, partitions in found.items():
            numbers = list(partitions)  # in their order
            if numbers != list(range(len(numbers))):
                raise DamagedLog(f"{name}: partitions {numbers} are there, and others are missing")
            self.topics[name].partitions = [partitions[number][0] for number in numbers]
            self.partition_count += len(numbers)
        for leader, batches in found.get(TRANSACTION_STATE, {}).values():
            with damage_at(leader.name):
                self.transactions.recover(batches)
        self.transactions.producer_ids.pass_over(self.transactions.known_producer_ids())
        for leader, batches in found.get(CONSUMER_OFFSETS, {}).values():
            with damage_at(leader.name):
                self.groups.recover(leader, batches)
                self.consumer_groups.recover(leader)


def _started_with(settings: Settings, machines: Machines) -> Values:
    """The settings that Kafka has too, by Kafka's names."""
    limits, transactions = settings.limits, settings.transactions
    values = {
        "auto.create.topics.enable": str(settings.default_partitions > 0).lower(),
        "connections.max.idle.ms": limits.idle_ms,
        "default.replication.factor": 1,
        "fetch.max.bytes": limits.fetch_bytes,
        "group.consumer.heartbeat.interval.ms": settings.consumer_heartbeat_ms,
        "group.consumer.session.timeout.ms": settings.consumer_session_ms,
        "group.initial.rebalance.delay.ms": settings.group_initial_delay_ms,
        "group.max.size": limits.members,
        "message.max.bytes": limits.batch_bytes,
        "num.partitions": max(settings.default_partitions, 1),
        "offsets.topic.num.partitions": settings.internal_partitions,
        "offsets.topic.replication.factor": 1,
        PRODUCER_EXPIRATION: settings.producer_id_expiration_ms,
        "socket.request.max.bytes": limits.frame_bytes,
        "transaction.max.timeout.ms": transactions.max_timeout_ms,
        VERIFICATION: str(machines.leaders.verification).lower(),
        "transaction.state.log.num.partitions": settings.internal_partitions,
        "transaction.state.log.replication.factor": 1,
        "transactional.id.expiration.ms": transactions.id_expiration_ms,
    }
    return {name: str(value) for name, value in values.items()}
