"""One partition on several replicas: in-sync set, high watermark, leader epochs, elections, truncation, restart.

Spec:  ReplicatedLog.tla
KIPs:  101, 106, 279, 497, 966
Kafka: Partition, ReplicaFetcherThread, ReplicaManager, UnifiedLog, PartitionChangeBuilder, ReplicationControlManager

=================  =====================  =============================================================
spec variable      field                 Kafka
=================  =====================  =============================================================
replicas           ``replicas``          UnifiedLog and ProducerStateManager of each broker
alive              ``alive``             the controller's registered brokers
leader             ``leader``            PartitionRegistration.leader
leaderEpoch        ``leader_epoch``      PartitionRegistration.leaderEpoch
isr                ``isr``               PartitionRegistration.isr
elr                ``elr``               PartitionRegistration.elr
lastKnownLeader    ``last_known_leader`` PartitionRegistration.lastKnownElr
highWatermark      ``high_watermark``    UnifiedLog.highWatermark of the leader
=================  =====================  =============================================================
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from immutables import Map
from pyrsistent import PVector, pvector

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.producer_state import Batch, Limits, Log
from kafka_eos.machines.spec_mapping import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedConstants:
    """The constants of ReplicatedLog.tla.

    Attributes:
        max_sequence: the last sequence before the wrap to 0.
        cached_batches: batches remembered for each producer.
        replicas: the replicas' names.
        initial_leader: the first of them to lead.
        snapshots: whether a replica may write a snapshot of the producers.
        unclean_election: unclean.leader.election.enable.
        min_insync_replicas: min.insync.replicas.
        eligible_leader_replicas: whether the controller keeps eligible leader replicas (KIP-966).
        volatile: the replicas that lose batches that they have not flushed when they are killed.
        max_leader_epoch: how often a crash or a move of the leader may force an election.
    """

    max_sequence: int
    cached_batches: int
    replicas: frozenset[str]
    initial_leader: str
    snapshots: bool
    unclean_election: bool
    min_insync_replicas: int = 1
    eligible_leader_replicas: bool = False
    volatile: frozenset[str] = frozenset()
    max_leader_epoch: int

    def domain(self, name: str) -> Iterable[Hashable]:
        """The constant set ``name``, in order."""
        assert name == "Replicas", name
        return sorted(self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedBatch(Batch):
    """A batch with its identity: the epoch of the leader that appended it, and its content.

    Attributes:
        leader_epoch: -1 until a leader has appended it.
        value: the identity of the record that the application sent.
    """

    leader_epoch: int = -1
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLog(Log):
    """One replica's log, with the leader epoch of each batch."""

    entries: PVector[ReplicatedBatch] = field(default_factory=pvector)  # type: ignore[assignment]


def common_length(a: PVector[ReplicatedBatch], b: PVector[ReplicatedBatch]) -> int:
    """The number of batches that two logs have in common from their start. Kafka: LeaderEpochFileCache (KIP-101)."""
    length = 0
    for one, other in zip(a, b, strict=False):
        if (one.offset, one.leader_epoch) != (other.offset, other.leader_epoch):
            break
        length += 1
    return length


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedLog:
    """The variables of ReplicatedLog.tla and its actions; a module that extends it adds its own."""

    MODULE: ClassVar[str] = "ReplicatedLog"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        "replicas",
        "alive",
        "leader",
        "leaderEpoch",
        "isr",
        "elr",
        "lastKnownLeader",
        "highWatermark",
    )
    LOG: ClassVar[type[ReplicaLog]] = ReplicaLog
    LIMITS: ClassVar[type[Limits]] = Limits

    constants: ReplicatedConstants = field(compare=False)
    replicas: Map[str, ReplicaLog]
    alive: frozenset[str]
    leader: str | None
    leader_epoch: int = 0
    isr: frozenset[str]
    elr: frozenset[str] = frozenset()
    last_known_leader: str | None = None
    high_watermark: int = 0

    @classmethod
    def limits(cls, constants: ReplicatedConstants) -> Limits:
        """The limits of the replicas' logs."""
        return cls.LIMITS(constants.max_sequence, constants.cached_batches)

    @classmethod
    def context(cls, constants: ReplicatedConstants) -> Context:
        """The class of the logs, which a mutant changes, and their limits."""
        return {ReplicaLog: cls.LOG, Limits: cls.limits(constants)}

    def end_offset(self, replica: str) -> int:
        """The offset of the next record on a replica."""
        return self.replicas[replica].log_end_offset

    def in_common(self, follower: str) -> int:
        """The number of batches that a follower's log has in common with the leader's."""
        assert self.leader is not None
        return common_length(self.replicas[follower].entries, self.replicas[self.leader].entries)

    def is_follower(self, replica: str) -> bool:
        """The replica runs and somebody else leads."""
        return replica in self.alive and self.leader is not None and replica != self.leader

    def leader_appends(self, batch: ReplicatedBatch) -> Map[str, ReplicaLog]:
        """The logs after the leader has appended a produce request's batch."""
        assert self.leader is not None
        entry = replace(batch, leader_epoch=self.leader_epoch)
        return self.replicas.set(self.leader, self.replicas[self.leader].appended(entry))

    # --- replication                                                                WHO: a follower ---------------

    @action("Replicate", "Replicas")
    def replicate(self, replica: str) -> Self:
        """A follower fetches the next batch from the leader and appends it without any check.

        Spec:  ReplicatedLog!Replicate
        KIP:   none; KAFKA-6003 (no checks on replication)
        Kafka: ReplicaFetcherThread.processPartitionData
        """
        enabled(self.is_follower(replica), "not a follower")
        shared, log = self.in_common(replica), self.replicas[replica]
        assert self.leader is not None
        source = self.replicas[self.leader].entries
        enabled(shared == len(log.entries), "the follower has diverged")
        enabled(shared < len(source), "the follower has everything")
        return replace(self, replicas=self.replicas.set(replica, log.appended(source[shared])))

    @action("TruncateFollower", "Replicas")
    def truncate_follower(self, replica: str) -> Self:
        """A follower whose log is not a prefix of the leader's truncates it to their common prefix.

        Spec:  ReplicatedLog!TruncateFollower
        KIP:   KIP-101, KIP-279
        Kafka: AbstractFetcherThread.truncateToEpochEndOffsets
        """
        enabled(self.is_follower(replica), "not a follower")
        shared, log = self.in_common(replica), self.replicas[replica]
        enabled(shared < len(log.entries), "the follower has not diverged")
        return replace(self, replicas=self.replicas.set(replica, log.truncated(log.entries[shared].offset)))

    # --- in-sync set and high watermark                                             WHO: the leader ---------------

    @property
    def effective_min_isr(self) -> int:
        """The number of in-sync replicas that acks=all and the high watermark need."""
        return min(self.constants.min_insync_replicas, len(self.constants.replicas))

    def has_min_isr(self) -> bool:
        """As many replicas are in sync as min.insync.replicas asks for.    Kafka: Partition.isUnderMinIsr."""
        return len(self.isr) >= self.effective_min_isr

    def may_advance(self) -> bool:
        """The high watermark may move: not while fewer replicas are in sync than min.insync.replicas asks for."""
        return self.has_min_isr()

    def eligible_with(self, members: frozenset[str], killed: frozenset[str]) -> frozenset[str]:
        """The eligible leader replicas once only members are in sync.

        Those that leave the in-sync set while it is small stay eligible, because nothing is committed without them. One
        that was killed may have lost batches and is not eligible.

        Kafka: PartitionChangeBuilder.maybePopulateTargetElr
        """
        if not self.constants.eligible_leader_replicas or len(members) >= self.effective_min_isr:
            return frozenset()
        return (self.isr | self.elr) - members - killed

    def in_sync_end_offset(self) -> int:
        """The offset up to which every in-sync replica has the leader's log."""
        assert self.leader is not None
        source = self.replicas[self.leader].entries
        shared = min(len(source) if replica == self.leader else self.in_common(replica) for replica in self.isr)
        return source[shared - 1].offset + source[shared - 1].count if shared else 0

    @action("AdvanceHighWatermark")
    def advance_high_watermark(self) -> Self:
        """The leader moves the high watermark to what every in-sync replica has.

        Spec:  ReplicatedLog!AdvanceHighWatermark
        KIP:   none
        Kafka: Partition.maybeIncrementLeaderHW
        """
        enabled(self.leader is not None, "no leader")
        enabled(self.may_advance(), "fewer replicas are in sync than min.insync.replicas")
        end = self.in_sync_end_offset()
        enabled(end > self.high_watermark, "nothing new is replicated")
        return replace(self, high_watermark=end)

    @action("ShrinkIsr", "Replicas")
    def shrink_isr(self, replica: str) -> Self:
        """The leader drops a follower that has fallen behind from the in-sync set.

        Spec:  ReplicatedLog!ShrinkIsr
        KIP:   KIP-497
        Kafka: Partition.maybeShrinkIsr
        """
        enabled(self.leader is not None, "no leader")
        enabled(replica in self.isr and replica != self.leader, "not an in-sync follower")
        assert self.leader is not None
        behind = self.in_common(replica) < len(self.replicas[self.leader].entries)
        enabled(replica not in self.alive or behind, "the follower keeps up")
        isr = self.isr - {replica}
        return replace(self, isr=isr, elr=self.eligible_with(isr, frozenset()))

    @action("ExpandIsr", "Replicas")
    def expand_isr(self, replica: str) -> Self:
        """The leader takes a follower that has caught up into the in-sync set.

        Spec:  ReplicatedLog!ExpandIsr
        KIP:   KIP-497
        Kafka: Partition.maybeExpandIsr
        """
        enabled(self.is_follower(replica), "not a follower")
        enabled(replica not in self.isr, "in sync already")
        enabled(self.in_common(replica) == len(self.replicas[replica].entries), "the follower has diverged")
        enabled(self.end_offset(replica) >= self.high_watermark, "the follower lacks what is committed")
        isr = self.isr | {replica}
        return replace(self, isr=isr, elr=self.eligible_with(isr, frozenset()))

    # --- crash and restart                                                          WHO: a replica ----------------

    def may_be_killed(self, replica: str) -> bool:  # noqa: ARG002 - another rule in its place needs it
        """The replicas that may be killed: any."""
        return True

    @action("Crash", "Replicas")
    def crash(self, replica: str) -> Self:
        """A replica's process is killed. Its log stays on its disk.

        Spec:  ReplicatedLog!Crash
        KIP:   none
        Kafka: kill -9
        """
        enabled(self.leader_epoch < self.constants.max_leader_epoch, "crashes have run out")
        enabled(self.may_be_killed(replica), "the replica is never killed")
        enabled(replica in self.alive, "the replica does not run")
        leader = None if replica == self.leader else self.leader
        return replace(self, alive=self.alive - {replica}, leader=leader)

    @action("LoseUnflushed", "Replicas")
    def lose_unflushed(self, replica: str) -> Self:
        """A killed replica's machine failed as well: its last batch was not on the disk yet.

        Spec:  ReplicatedLog!LoseUnflushed
        KIP:   KIP-966
        Kafka: UnifiedLog.flush, and the operating system's page cache
        """
        enabled(replica in self.constants.volatile - self.alive, "the replica runs, or loses nothing")
        log = self.replicas[replica]
        enabled(bool(log.entries), "the log is empty")
        return replace(self, replicas=self.replicas.set(replica, log.truncated(log.entries[-1].offset)))

    def leaves_isr(self, replica: str) -> bool:
        """A killed replica leaves the in-sync set when it registers again.

        Without eligible leader replicas the last one stays in it. A replica that loses nothing would come back at once,
        so that its leaving is left out there.    Kafka: ReplicationControlManager.handleBrokerShutdown
        """
        volatile = replica in self.constants.volatile and self.isr != {replica}
        return self.constants.eligible_leader_replicas or volatile

    def last_known_with(self, members: frozenset[str], replica: str) -> str | None:
        """The last known leader once only members are in sync: the replica that was the last one in sync.

        Kafka: PartitionChangeBuilder.maybeUpdateLastKnownLeader
        """
        return replica if not members and replica in self.isr else self.last_known_leader

    @action("Restart", "Replicas")
    def restart(self, replica: str) -> Self:
        """A replica starts again and rebuilds the producers from snapshot and log.

        Spec:  ReplicatedLog!Restart
        KIP:   KIP-98
        Kafka: UnifiedLog.rebuildProducerState
        """
        enabled(replica not in self.alive, "the replica runs")
        replicas = self.replicas.set(replica, self.replicas[replica].reloaded())
        isr = self.isr - {replica} if self.leaves_isr(replica) else self.isr
        return replace(
            self,
            alive=self.alive | {replica},
            replicas=replicas,
            isr=isr,
            elr=self.eligible_with(isr, frozenset({replica})),
            last_known_leader=self.last_known_with(isr, replica),
        )

    @action("TakeSnapshot", "Replicas")
    def take_snapshot(self, replica: str) -> Self:
        """A replica writes what it knows of the producers to a snapshot.

        Spec:  ReplicatedLog!TakeSnapshot
        KIP:   KIP-98
        Kafka: ProducerStateManager.takeSnapshot
        """
        enabled(self.constants.snapshots, "no snapshots in this model")
        enabled(replica in self.alive, "the replica does not run")
        log = self.replicas[replica]
        enabled(log.snapshot.offset < log.log_end_offset, "the snapshot is of the log's end already")
        return replace(self, replicas=self.replicas.set(replica, log.with_snapshot()))

    # --- elections                                                                  WHO: the controller -----------

    @action("FenceReplica", "Replicas")
    def fence_replica(self, replica: str) -> Self:
        """The controller notices that a replica was killed. With eligible replicas the in-sync set may become empty.

        Spec:  ReplicatedLog!FenceReplica
        KIP:   KIP-966
        Kafka: ReplicationControlManager.handleBrokerFenced
        """
        enabled(self.constants.eligible_leader_replicas, "no eligible leader replicas in this model")
        enabled(self.leader is None, "the leader takes it out of the in-sync set")
        enabled(replica in self.isr - self.alive, "the replica runs or is not in sync")
        isr = self.isr - {replica}
        elr = self.eligible_with(isr, frozenset())
        return replace(self, isr=isr, elr=elr, last_known_leader=self.last_known_with(isr, replica))

    def has_fenced(self) -> bool:
        """With eligible leader replicas the controller fences killed replicas one by one, and elects then."""
        return not self.constants.eligible_leader_replicas or self.isr <= self.alive

    def candidates(self) -> frozenset[str]:
        """The replicas that may lead: those in sync, else the eligible ones, else the last known leader.

        Kafka: PartitionChangeBuilder.isValidNewLeader, canElectLastKnownLeader
        """
        if self.isr or self.elr:
            return self.isr or self.elr
        return frozenset() if self.last_known_leader is None else frozenset({self.last_known_leader})

    def led_by(self, replica: str, members: frozenset[str], elr: frozenset[str]) -> Self:
        """The replica leads, and members are in sync with it. What is above its log's end is lost."""
        return replace(
            self,
            leader=replica,
            leader_epoch=self.leader_epoch + 1,
            isr=members,
            elr=elr,
            last_known_leader=None,
            high_watermark=min(self.high_watermark, self.end_offset(replica)),
        )

    @action("ElectLeader", "Replicas")
    def elect_leader(self, replica: str) -> Self:
        """An in-sync replica becomes the leader, or one that stands in for it; the in-sync set keeps those that run.

        Spec:  ReplicatedLog!ElectLeader
        KIP:   KIP-497, KIP-966
        Kafka: PartitionChangeBuilder.electLeader
        """
        recovery = self.leader is None
        enabled(recovery or self.leader_epoch < self.constants.max_leader_epoch, "moves have run out")
        enabled(replica != self.leader, "the replica leads already")
        enabled(self.has_fenced(), "a killed replica is in sync")
        enabled(replica in self.candidates() & self.alive, "the replica is not in sync or does not run")
        return self.led_by(replica, self.isr & self.alive | {replica}, self.elr - {replica})

    @action("ElectUncleanLeader", "Replicas")
    def elect_unclean_leader(self, replica: str) -> Self:
        """No in-sync replica runs, and any other one becomes the leader: what it does not have is lost.

        Spec:  ReplicatedLog!ElectUncleanLeader
        KIP:   KIP-106
        Kafka: PartitionChangeBuilder.electLeader, Election.UNCLEAN
        """
        enabled(self.constants.unclean_election, "unclean elections are off")
        enabled(self.has_fenced(), "a killed replica is in sync")
        enabled(not self.candidates() & self.alive, "an in-sync replica runs")
        enabled(replica in self.alive, "the replica does not run")
        return self.led_by(replica, frozenset({replica}), frozenset())
