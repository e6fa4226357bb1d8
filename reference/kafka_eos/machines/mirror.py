"""Tasks that copy a partition from one cluster to another, with the offsets in the one cluster or in the other.

Spec:  Mirror.tla
KIPs:  618, 656
Kafka: MirrorSourceTask, ExactlyOnceWorkerSourceTask

=============  =============  ==============================================================================
spec variable  field          Kafka
=============  =============  ==============================================================================
produced       ``produced``   log end offset of the source partition
deleted        ``deleted``    its log start offset
target         ``target``     the target partition, read_committed
offset         ``offset``     the connector's source offset, or the committed offset of its group
tasks          ``tasks``      MirrorSourceTask: its consumer's position, its open transaction
owner          ``owner``      the last task to return from initTransactions
=============  =============  ==============================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from immutables import Map

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of Mirror.tla.

    Attributes:
        records: 1..n, in the order of the source.
        tasks: those that may be given the partition.
        batch_size: the maximum number of records that a task copies in one transaction.
        offsets_in: the cluster that keeps the offsets: "target" or "source".
    """

    records: frozenset[int]
    tasks: frozenset[str]
    batch_size: int
    offsets_in: str

    def domain(self, name: str) -> Iterable[str]:
        """The constant set ``name``, in order."""
        assert name == "Tasks", name
        return sorted(self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task: its stage, the record that it copies next (0: it knows none), and the batch in its transaction."""

    stage: str = "down"
    position: int = 0
    batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A state of Mirror.tla."""

    MODULE: ClassVar[str] = "Mirror"
    VARIABLES: ClassVar[tuple[str, ...]] = ("produced", "deleted", "target", "offset", "tasks", "owner")

    constants: Constants = field(compare=False)
    produced: int = 0
    deleted: int = 0
    target: tuple[int, ...] = ()
    offset: int = 1
    tasks: Map[str, Task]
    owner: str | None = None

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: no record, every task down."""
        return cls(constants=constants, tasks=Map(dict.fromkeys(constants.tasks, Task())))

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    def may_commit(self, task: str) -> bool:
        """A task may commit as long as nobody has fenced it."""
        return self.owner == task

    def start_position(self, task: str) -> int:  # noqa: ARG002 - the mutants look at the task
        """The record with which a task starts to copy: the one that the offsets name, whatever the task had before."""
        return self.offset

    def offset_after(self, position: int) -> int:
        """The offsets after a transaction: in the target cluster they are part of it."""
        return position if self.constants.offsets_in == "target" else self.offset

    def _with(self, task: str, **changes: Any) -> Map[str, Task]:
        return self.tasks.set(task, replace(self.tasks[task], **changes))

    def _is_at(self, task: str, stage: str) -> Task:
        enabled(self.tasks[task].stage == stage, f"the task is not {stage}")
        return self.tasks[task]

    # --- the source                                                                 WHO: the source ---------------

    @action("Produce")
    def produce(self) -> Self:
        """The source gets its next record.

        Spec:  Mirror!Produce
        Kafka: KafkaProducer.send
        """
        enabled(self.produced + 1 in self.constants.records, "records have run out")
        return replace(self, produced=self.produced + 1)

    @action("Delete")
    def delete(self) -> Self:
        """The source deletes its first record, which the offsets say is copied.

        Spec:  Mirror!Delete
        Kafka: UnifiedLog.deleteOldSegments, Admin.deleteRecords
        """
        enabled(self.deleted + 1 < self.offset, "the first record is not copied")
        return replace(self, deleted=self.deleted + 1)

    # --- the tasks                                                                  WHO: a task -------------------

    @action("Initialize", "Tasks")
    def initialize(self, task: str) -> Self:
        """A task is given the partition, initializes its producer, and so fences the one before.

        Spec:  Mirror!Initialize
        KIP:   KIP-618
        Kafka: KafkaProducer.initTransactions
        """
        self._is_at(task, "down")
        return replace(self, tasks=self._with(task, stage="initialized"), owner=task)

    @action("Rewind", "Tasks")
    def rewind(self, task: str) -> Self:
        """A task reads the offsets and seeks to them.

        Spec:  Mirror!Rewind
        KIP:   KIP-618, KIP-656
        Kafka: MirrorSourceTask.initializeConsumer
        """
        self._is_at(task, "initialized")
        return replace(self, tasks=self._with(task, stage="copying", position=self.start_position(task)))

    @action("Copy", "Tasks")
    def copy(self, task: str) -> Self:
        """A task copies a record, in its open transaction.

        Spec:  Mirror!Copy
        Kafka: MirrorSourceTask.poll
        """
        mine = self._is_at(task, "copying")
        enabled(mine.position <= self.produced, "there is no record")
        enabled(len(mine.batch) < self.constants.batch_size, "the batch is full")
        return replace(self, tasks=self._with(task, position=mine.position + 1, batch=(*mine.batch, mine.position)))

    @action("Commit", "Tasks")
    def commit(self, task: str) -> Self:
        """A task commits its transaction.

        Spec:  Mirror!Commit
        KIP:   KIP-618
        Kafka: ExactlyOnceWorkerSourceTask.commitTransaction
        """
        mine = self.tasks[task]
        enabled(bool(mine.batch), "there is nothing to commit")
        enabled(self.may_commit(task), "the task is fenced")
        stage = "copying" if self.constants.offsets_in == "target" else "committed"
        return replace(
            self,
            target=self.target + mine.batch,
            offset=self.offset_after(mine.position),
            tasks=self._with(task, stage=stage, batch=()),
        )

    @action("CommitOffset", "Tasks")
    def commit_offset(self, task: str) -> Self:
        """A task commits its offset in the source cluster.

        Spec:  Mirror!CommitOffset
        Kafka: KafkaConsumer.commitSync
        """
        mine = self._is_at(task, "committed")
        enabled(self.owner == task, "the task has lost the partition")
        return replace(self, offset=mine.position, tasks=self._with(task, stage="copying"))

    @action("LearnFencing", "Tasks")
    def learn_fencing(self, task: str) -> Self:
        """A task learns that it is fenced, and gives the partition up.

        Spec:  Mirror!LearnFencing
        KIP:   KIP-618
        Kafka: ProducerFencedException
        """
        enabled(self.tasks[task].stage != "down", "the task is down")
        enabled(self.owner != task, "nobody has fenced the task")
        return replace(self, tasks=self._with(task, stage="down", batch=()))

    @action("Crash", "Tasks")
    def crash(self, task: str) -> Self:
        """A task crashes; the next owner of the partition aborts its transaction.

        Spec:  Mirror!Crash
        """
        enabled(self.tasks[task].stage != "down", "the task is down")
        return replace(self, tasks=self.tasks.set(task, Task()))
