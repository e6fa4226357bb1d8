"""``kafka-eos simulate transactions``: seeded runs and named failures of transactions, written as recordings."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from kafka_eos.formats.record_batch import RecordBatch
from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos.histories.history import Event, write_history
from kafka_eos.histories.simulator import Simulation
from kafka_eos.histories.transaction_history import TOPIC, ReadCommitted, TransactionRecorder, possible_arguments
from kafka_eos.machines.transactions import Constants, Transactions
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.explain import Moment, drawn, of_finding, story
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.simulate import recording
from kafka_eos_checks.simulate.named_failures import NAMED_FAILURES, Script

MOST_PARTITIONS = 3

# The faults of a run, with their weights next to an ordinary action's 10; another instance that begins is one.
FAULTS: dict[str, float] = {
    "Initialize": 0.1,
    "Upgrade": 0.5,
    "Crash": 0.03,
    "TimeOut": 0.05,
    "Failover": 0.5,
    "ElectLeader": 0.3,
    "FindNoLeader": 0.3,
    "RepeatMarker": 2.0,
    "VerifyByFormer": 2.0,
    "AbortByAdmin": 0.0,
}
# The faults that go on when the others stop: they end what is open.
RECOVERY = ("TimeOut",)
# Kinds of faults that every transaction version withstands, and those that version 2 does: before it nothing tells a
# delayed duplicate of a request from one of the next transaction. No version withstands an abort by hand.
WITHSTOOD = frozenset({"timeout", "failover", "crash", "election", "no leader"})
FORMER, BY_HAND = "former coordinator", "admin abort"
REPEATS = frozenset({"repeat request", "repeat marker"})
UNLIMITED = 1 << 31
CURED = 2  # the transaction version that, with verification, withstands every named failure


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsPlan:
    """The plan of simulated transactions; equal plans give equal runs.

    Attributes:
        seed: the seed of the random choices.
        steps: steps with faults; the run then comes to rest without them.
        transactions: the most transactions of each instance.
        partitions: the number of partitions that transactions write to.
        instances: the number of instances with the transactional.id; each that starts fences the others.
        versions: transaction versions that the instances speak: of 1 and 2. With both, an instance of version 1 finds
            version 2 between two transactions.
        verification: whether leaders ask the coordinator before a transaction's first batch (KIP-890 part 1).
        repeats: whether the network repeats requests and markers; None if all versions withstand it.
        faults: action -> weight, in place of ``FAULTS``; another action, such as ``HandleMarker``, is only slower.
        mutant: a mutant of the registry, or "" for the reference as it is.
    """

    seed: int
    steps: int = 600
    transactions: int = 30
    partitions: int = 2
    instances: int = 3
    versions: tuple[int, ...] = (2,)
    verification: bool = True
    repeats: bool | None = None
    faults: Mapping[str, float] = field(default_factory=dict)
    mutant: str = ""

    def constants(self) -> Constants:
        """The constants of the machine."""
        kinds = set(WITHSTOOD)
        if self.versions == (2,):
            kinds.add(FORMER)
        if self.versions == (2,) if self.repeats is None else self.repeats:
            kinds |= REPEATS
        if self.faults.get("AbortByAdmin", 0.0) > 0:
            kinds.add(BY_HAND)
        return Constants(
            instances=frozenset(chr(ord("A") + i) for i in range(self.instances)),
            partitions=frozenset(f"p{i}" for i in range(self.partitions)),
            numbers=frozenset(range(1, self.transactions + 1)),
            epochs=frozenset(range(32768)),
            coordinator_epochs=frozenset(range(self.steps + 1)),
            versions=frozenset(self.versions),
            verification=self.verification,
            faults=frozenset(kinds),
            max_faults=UNLIMITED,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTransactions:
    """The result of a simulation: its history, its logs and its last state.

    Attributes:
        manifest: what was simulated.
        events: the history.
        logs: by partition number, its batches.
        coordinator_log: the batches of ``__transaction_state``.
        state: the last state.
    """

    manifest: Mapping[str, Any]
    events: list[Event]
    logs: Mapping[int, list[RecordBatch]]
    coordinator_log: list[RecordBatch]
    state: Transactions


def simulate_transactions(
    plan: TransactionsPlan, registry: Registry | None = None, reader: ReadCommitted | None = None
) -> SimulatedTransactions:
    """Run a plan.

    Args:
        plan: what to do.
        registry: where the mutant is.
        reader: another reader, for a run in which reading goes wrong.

    Raises:
        MalformedRegistry: for an unknown mutant.
        ValueError: for a fault that is no action.
    """
    machine: type[Any] = Transactions
    if plan.mutant:
        machine = mutated(Transactions, (registry or Registry()).get(plan.mutant).overrides)
    constants = plan.constants()
    faults = FAULTS | dict(plan.faults)
    recovery = {*RECOVERY, *(faults.keys() - FAULTS.keys())}  # what is no fault is only slower
    simulation = Simulation(machine, constants, plan.seed, faults, recovery, possible_arguments())
    recorder = TransactionRecorder(
        run=f"simulated-transactions/{plan.mutant or 'reference'}/{plan.seed}",
        constants=constants,
        reader=reader or ReadCommitted(),
    )
    recorder.watch(simulation.run(plan.steps))
    return SimulatedTransactions(
        manifest={**asdict(plan), "faults": faults},
        events=recorder.events,
        logs=recorder.logs,
        coordinator_log=recorder.coordinator_log,
        state=simulation.state,
    )


def simulate_failure(name: str, version: int | None = None, verification: bool | None = None) -> SimulatedTransactions:
    """Run the script of a named failure.

    Args:
        name: one of ``NAMED_FAILURES``.
        version: the transaction version of the clients; None for the one with which the failure is known.
        verification: whether leaders ask the coordinator before a transaction's first batch; None as above.
    """
    failure = NAMED_FAILURES[name]
    plan = TransactionsPlan(
        seed=0,
        transactions=2,
        instances=2,
        versions=(failure.version if version is None else version,),
        verification=failure.verification if verification is None else verification,
        repeats=True,
    )
    script = Script(plan.constants())
    failure.script(script)
    recorder = TransactionRecorder(run=f"simulated-transactions/{name}", constants=plan.constants())
    recorder.watch(script.steps)
    told = {"scenario": name, "known": failure.known, "versions": plan.versions, "verification": plan.verification}
    return SimulatedTransactions(
        manifest=told,
        events=recorder.events,
        logs=recorder.logs,
        coordinator_log=recorder.coordinator_log,
        state=script.state,
    )


def scenarios() -> Iterator[Verdict]:
    """The verdict on each named failure, as it is known and under version 2 with verification, with a diagram."""
    for name, failure in NAMED_FAILURES.items():
        if failure.found:
            yield _scenario(name, simulate_failure(name), failure.found)
        yield _scenario(name, simulate_failure(name, CURED, verification=True), frozenset())


def _scenario(name: str, simulated: SimulatedTransactions, expected: frozenset[str]) -> Verdict:
    started = monotonic()
    with TemporaryDirectory(prefix="kafka-eos-scenario-") as folder:
        write_transactions(simulated, Path(folder))
        findings = audit.run([Path(folder)]).findings
    [version], verification = simulated.manifest["versions"], simulated.manifest["verification"]
    runs = {simulated.events[0].run: simulated.events}
    moment = of_finding(findings[0], runs) if findings else Moment(simulated.events, None)
    known = f" ({simulated.manifest['known']})" if expected and simulated.manifest["known"] else ""
    said, found = _rules(expected), _rules({finding.rule for finding in findings})
    return Verdict(
        check="simulation",
        name=f"{name}, version {version}{'' if verification else ', without verification'}",
        expected=said,
        found=found,
        ok=found == said,
        seconds=monotonic() - started,
        figures={"events": len(simulated.events), "findings": len(findings)},
        evidence="\n".join([*(finding.in_words() for finding in findings), "", story(moment)]),
        diagram=drawn(moment),
        title=(NAMED_FAILURES[name].script.__doc__ or "").strip() + known,
    )


def _rules(rules: Iterable[str]) -> str:
    return ", ".join(sorted(rules)) or "0 findings"


def write_transactions(simulated: SimulatedTransactions, folder: Path) -> None:
    """Write manifest.json, histories/ and brokers/, as a recording of a real cluster has them."""
    write_history(recording.begin(folder, simulated.manifest), simulated.events)
    logs = {f"{TOPIC}-{number}": batches for number, batches in simulated.logs.items()}
    for name, batches in {**logs, f"{COORDINATOR_TOPIC}-0": simulated.coordinator_log}.items():
        recording.write_segment(folder, 1, name, b"".join(batch.encode() for batch in batches))
