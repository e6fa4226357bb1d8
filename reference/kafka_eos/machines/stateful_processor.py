"""A processor that counts its inputs by key, in a store that a changelog topic restores.

Spec:  StatefulProcessor.tla
KIPs:  98, 129
Kafka: ProcessorStateManager, StoreChangelogReader, TaskCorruptedException

=============  =============  ======================================================================================
spec variable  field          Kafka
=============  =============  ======================================================================================
changelog      ``changelog``  the changelog topic's partition, with the fate of each record's transaction
outputs        ``outputs``    the output partition, as a read_committed reader finds it
committed      ``committed``  the group's committed offset
owner          ``owner``      whoever has the newest epoch of the transactional.id
processes      ``processes``  StreamTask of each process: its state store, restored offset, position, open transaction
faults         ``faults``     none: bounds what may go wrong
=============  =============  ======================================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from immutables import Map

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
DOWN, RESTORING, RUNNING = "down", "restoring", "running"

Store = Map[str, int]  # key -> count


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of StatefulProcessor.tla.

    Attributes:
        inputs: 1..n.
        key_of: for each input, its key.
        keys: the keys.
        instances: processes of the application.
        max_faults: the maximum number of crashes, aborts and instances taken for dead.
    """

    inputs: frozenset[int]
    key_of: Map[int, str]
    keys: frozenset[str]
    instances: frozenset[str]
    max_faults: int

    def domain(self, name: str) -> Iterable[str]:
        """The constant set ``name``, in order."""
        assert name == "Instances", name
        return sorted(self.instances)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An entry of the changelog: key, count, and its fate: "open", "committed" or "aborted"."""

    key: str
    count: int
    fate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOutput:
    """An output: the input that it is of, its key and the count."""

    input: int
    key: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProcess:
    """A process: its stage, its store, how much of the changelog it has restored, its position, its open outputs."""

    stage: str = DOWN
    store: Store
    restored: int = 0
    position: int = 0
    batch: tuple[CountOutput, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulProcessor:
    """A state of StatefulProcessor.tla."""

    MODULE: ClassVar[str] = "StatefulProcessor"
    VARIABLES: ClassVar[tuple[str, ...]] = ("changelog", "outputs", "committed", "owner", "processes", "faults")

    constants: Constants = field(compare=False)
    changelog: tuple[Change, ...] = ()
    outputs: tuple[CountOutput, ...] = ()
    committed: int = 0
    owner: str | None = None
    processes: Map[str, StoreProcess]
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: nothing is counted, every instance is down."""
        nothing: Store = Map(dict.fromkeys(constants.keys, 0))
        return cls(constants=constants, processes=Map(dict.fromkeys(constants.instances, StoreProcess(store=nothing))))

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    # --- rules ------------------------------------------------------------------------------------------------------

    def nothing_counted(self) -> Store:
        """A store that has counted nothing."""
        return Map(dict.fromkeys(self.constants.keys, 0))

    def may_write(self, instance: str) -> bool:
        """The leaders take what an instance writes as long as nobody has fenced it."""
        return self.owner == instance

    def fate_at_write(self) -> str:
        """The fate of an entry when it is written: that of its transaction, which is open."""
        return OPEN

    def is_restored(self, entry: Change) -> bool:
        """An entry of the changelog changes the store that is restored: its transaction is committed."""
        return entry.fate == COMMITTED

    def store_at_start(self, instance: str) -> Store:  # noqa: ARG002 - a mutant of this rule looks at the instance
        """The store with which an instance starts: nothing that an earlier process has left on disk."""
        return self.nothing_counted()

    def restoring(self, store: Store) -> StoreProcess:
        """A process that restores its store from the first entry of the changelog on."""
        return StoreProcess(stage=RESTORING, store=store)

    def after_abort(self, instance: str) -> StoreProcess:  # noqa: ARG002 - a mutant of this rule looks at the instance
        """A process after it has aborted: its store is gone, and is restored."""
        return self.restoring(self.nothing_counted())

    def decided(self, fate: str) -> tuple[Change, ...]:
        """The changelog after the decision of the transaction."""
        return tuple(replace(entry, fate=fate) if entry.fate == OPEN else entry for entry in self.changelog)

    def _fault(self) -> int:
        """The number of faults after one more."""
        enabled(self.faults < self.constants.max_faults, "no more faults")
        return self.faults + 1

    def _with(self, instance: str, **changes: Any) -> Map[str, StoreProcess]:
        return self.processes.set(instance, replace(self.processes[instance], **changes))

    # --- the instances                                                              WHO: the application ----------

    @action("Initialize", "Instances")
    def initialize(self, instance: str) -> Self:
        """An instance starts and fences the one before, which may still live and whose open transaction is aborted.

        Spec:  StatefulProcessor!Initialize
        KIP:   KIP-98
        Kafka: KafkaProducer.initTransactions
        """
        enabled(self.processes[instance].stage == DOWN, "it is up")
        lives = self.owner is not None and self.processes[self.owner].stage != DOWN
        return replace(
            self,
            faults=self._fault() if lives else self.faults,
            owner=instance,
            changelog=self.decided(ABORTED),
            processes=self.processes.set(instance, self.restoring(self.store_at_start(instance))),
        )

    @action("Restore", "Instances")
    def restore(self, instance: str) -> Self:
        """An instance restores the next entry of the changelog, which is decided.

        Spec:  StatefulProcessor!Restore
        KIP:   KIP-129
        Kafka: StoreChangelogReader.restore, isolation.level of the restore consumer
        """
        process = self.processes[instance]
        enabled(process.stage == RESTORING and process.restored < len(self.changelog), "nothing to restore")
        entry = self.changelog[process.restored]
        enabled(entry.fate != OPEN, "its transaction is open")
        store = process.store.set(entry.key, entry.count) if self.is_restored(entry) else process.store
        return replace(self, processes=self._with(instance, restored=process.restored + 1, store=store))

    @action("Start", "Instances")
    def start(self, instance: str) -> Self:
        """An instance has restored its store, and goes to the committed offset.

        Spec:  StatefulProcessor!Start
        KIP:   KIP-129
        Kafka: StreamTask.completeRestoration
        """
        process = self.processes[instance]
        enabled(process.stage == RESTORING and process.restored == len(self.changelog), "it is not restored")
        return replace(self, processes=self._with(instance, stage=RUNNING, position=self.committed))

    @action("Process", "Instances")
    def process(self, instance: str) -> Self:
        """An instance counts its next input, in its store, in the changelog and in an output.

        Spec:  StatefulProcessor!Process
        KIP:   KIP-98
        Kafka: StreamTask.process
        """
        process = self.processes[instance]
        following = process.position + 1
        enabled(process.stage == RUNNING and following in self.constants.inputs, "not running, or nothing to read")
        enabled(self.may_write(instance), "fenced")
        key = self.constants.key_of[following]
        count = process.store[key] + 1
        output = CountOutput(input=following, key=key, count=count)
        return replace(
            self,
            changelog=(*self.changelog, Change(key=key, count=count, fate=self.fate_at_write())),
            processes=self._with(
                instance, store=process.store.set(key, count), position=following, batch=(*process.batch, output)
            ),
        )

    @action("Commit", "Instances")
    def commit(self, instance: str) -> Self:
        """An instance commits its transaction: outputs, changes and offset.

        Spec:  StatefulProcessor!Commit
        KIP:   KIP-98
        Kafka: StreamsProducer.commitTransaction
        """
        process = self._with_open(instance)
        return replace(
            self,
            changelog=self.decided(COMMITTED),
            outputs=self.outputs + process.batch,
            committed=process.position,
            processes=self._with(instance, batch=()),
        )

    def _with_open(self, instance: str) -> StoreProcess:
        enabled(bool(self.processes[instance].batch), "no open transaction")
        enabled(self.may_write(instance), "fenced")
        return self.processes[instance]

    @action("Abort", "Instances")
    def abort(self, instance: str) -> Self:
        """An instance aborts its transaction after a failure.

        Spec:  StatefulProcessor!Abort
        KIP:   KIP-98
        Kafka: StreamsProducer.abortTransaction, TaskCorruptedException
        """
        self._with_open(instance)
        return replace(
            self,
            faults=self._fault(),
            changelog=self.decided(ABORTED),
            processes=self.processes.set(instance, self.after_abort(instance)),
        )

    @action("LearnFencing", "Instances")
    def learn_fencing(self, instance: str) -> Self:
        """An instance learns that it is fenced, and ends.

        Spec:  StatefulProcessor!LearnFencing
        KIP:   KIP-98
        Kafka: TaskMigratedException
        """
        enabled(self.processes[instance].stage != DOWN, "it is down")
        enabled(not self.may_write(instance), "not fenced")
        return replace(self, processes=self._with(instance, stage=DOWN, batch=()))

    @action("Crash", "Instances")
    def crash(self, instance: str) -> Self:
        """An instance crashes; its store stays on disk.

        Spec:  StatefulProcessor!Crash
        KIP:   KIP-98
        Kafka: none
        """
        enabled(self.processes[instance].stage != DOWN, "it is down")
        return replace(self, faults=self._fault(), processes=self._with(instance, stage=DOWN, batch=()))
