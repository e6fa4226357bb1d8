"""One partition on several replicas: in-sync set, high watermark, leader epochs, elections, truncation, restart.

Spec:  ReplicatedLog.tla
KIPs:  101, 106, 279, 497
Kafka: Partition, ReplicaFetcherThread, ReplicaManager, UnifiedLog

=================  ====================  =============================================================
spec variable      field                 Kafka
=================  ====================  =============================================================
replicas           ``replicas``          UnifiedLog and ProducerStateManager of each broker
alive              ``alive``             the controller's registered brokers
leader             ``leader``            PartitionRegistration.leader
leaderEpoch        ``leader_epoch``      PartitionRegistration.leaderEpoch
isr                ``isr``               PartitionRegistration.isr
highWatermark      ``high_watermark``    UnifiedLog.highWatermark of the leader
=================  ====================  =============================================================
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
        max_leader_epoch: how often a crash or a move of the leader may force an election.
    """

    max_sequence: int
    cached_batches: int
    replicas: frozenset[str]
    initial_leader: str
    snapshots: bool
    unclean_election: bool
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
    VARIABLES: ClassVar[tuple[str, ...]] = ("replicas", "alive", "leader", "leaderEpoch", "isr", "highWatermark")
    LOG: ClassVar[type[ReplicaLog]] = ReplicaLog
    LIMITS: ClassVar[type[Limits]] = Limits

    constants: ReplicatedConstants = field(compare=False)
    replicas: Map[str, ReplicaLog]
    alive: frozenset[str]
    leader: str | None
    leader_epoch: int = 0
    isr: frozenset[str]
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
        return replace(self, isr=self.isr - {replica})

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
        return replace(self, isr=self.isr | {replica})

    # --- crash and restart                                                          WHO: a replica ----------------

    @action("Crash", "Replicas")
    def crash(self, replica: str) -> Self:
        """A replica's process is killed. Its log stays on its disk.

        Spec:  ReplicatedLog!Crash
        KIP:   none
        Kafka: kill -9
        """
        enabled(self.leader_epoch < self.constants.max_leader_epoch, "crashes have run out")
        enabled(replica in self.alive, "the replica does not run")
        leader = None if replica == self.leader else self.leader
        return replace(self, alive=self.alive - {replica}, leader=leader)

    @action("Restart", "Replicas")
    def restart(self, replica: str) -> Self:
        """A replica starts again and rebuilds the producers from snapshot and log.

        Spec:  ReplicatedLog!Restart
        KIP:   KIP-98
        Kafka: UnifiedLog.rebuildProducerState
        """
        enabled(replica not in self.alive, "the replica runs")
        replicas = self.replicas.set(replica, self.replicas[replica].reloaded())
        return replace(self, alive=self.alive | {replica}, replicas=replicas)

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

    @action("ElectLeader", "Replicas")
    def elect_leader(self, replica: str) -> Self:
        """An in-sync replica becomes the leader; the in-sync set keeps those that run.

        Spec:  ReplicatedLog!ElectLeader
        KIP:   KIP-497
        Kafka: PartitionChangeBuilder.electLeader
        """
        recovery = self.leader is None
        enabled(recovery or self.leader_epoch < self.constants.max_leader_epoch, "moves have run out")
        enabled(replica != self.leader, "the replica leads already")
        enabled(replica in self.isr & self.alive, "the replica is not in sync or does not run")
        return replace(self, leader=replica, leader_epoch=self.leader_epoch + 1, isr=self.isr & self.alive)

    @action("ElectUncleanLeader", "Replicas")
    def elect_unclean_leader(self, replica: str) -> Self:
        """No in-sync replica runs, and any other one becomes the leader: what it does not have is lost.

        Spec:  ReplicatedLog!ElectUncleanLeader
        KIP:   KIP-106
        Kafka: PartitionChangeBuilder.electLeader, Election.UNCLEAN
        """
        enabled(self.constants.unclean_election, "unclean elections are off")
        enabled(not self.isr & self.alive, "an in-sync replica runs")
        enabled(replica in self.alive, "the replica does not run")
        return replace(
            self,
            leader=replica,
            leader_epoch=self.leader_epoch + 1,
            isr=frozenset({replica}),
            high_watermark=min(self.high_watermark, self.end_offset(replica)),
        )
