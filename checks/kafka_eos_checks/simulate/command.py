"""``kafka-eos simulate``: a seeded run of the reference under faults, written as a recording that the audit reads."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.histories.history import Event, write_history
from kafka_eos.histories.producer_history import PARTITION, TOPIC, history, value_name
from kafka_eos.histories.simulator import Simulation
from kafka_eos.machines.idempotent_producer import Constants, IdempotentProducer
from kafka_eos.machines.producer_state import Limits
from kafka_eos.machines.replicated_log import ReplicaLog
from kafka_eos_checks.kit.arguments import at_least_one
from kafka_eos_checks.kit.paths import output_folder
from kafka_eos_checks.models.registry import MalformedRegistry, Registry
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.simulate import mirror, payment, recording, transfer, word_count
from kafka_eos_checks.simulate.applications import ApplicationPlan, simulate_application, write_application
from kafka_eos_checks.simulate.named_failures import NAMED_FAILURES
from kafka_eos_checks.simulate.schedules import EVERY_STEP, Scenario, first_step, run_scenarios
from kafka_eos_checks.simulate.transactions import (
    MOST_PARTITIONS,
    TransactionsPlan,
    simulate_failure,
    simulate_transactions,
    write_transactions,
)

# The faults of a run, with their weights next to an ordinary action's 10. A model's constants decide whether
# RestartProducer, ExpireProducer, TakeSnapshot and ElectUncleanLeader can happen at all.
FAULTS: dict[str, float] = {
    "Resend": 2.0,
    "Expire": 0.1,
    "Crash": 0.3,
    "ElectLeader": 1.0,
    "ElectUncleanLeader": 0.3,
    "ShrinkIsr": 0.3,
    "RestartProducer": 0.1,
    "ExpireProducer": 0.1,
    "TakeSnapshot": 0.5,
}
# The ones that go on when the others stop: what is lost is sent again or given up, and the partition gets a leader.
RECOVERY = ("Resend", "Expire", "ElectLeader")
EPILOG = """examples:
  kafka-eos simulate --seed 7 --out build/simulated
  kafka-eos simulate --seed 7 --fault Crash=2 --fault Expire=0
  kafka-eos simulate --mutant RetriesAppended --seed 3 --out build/broken
  kafka-eos audit build/broken
  kafka-eos simulate transactions --seed 7 --partitions 3
  kafka-eos simulate transactions --scenario late-end --out build/late-end
  kafka-eos simulate transactions --scenario late-end --transaction-version 2 --out build/cured
  kafka-eos simulate application --seed 1 --mutant NoGenerationCheck --out build/fenced
  kafka-eos simulate word-count --crash-at every-step
  kafka-eos simulate word-count --crash-at 12 --mutant NoGenerationCheck
  kafka-eos simulate transfer
  kafka-eos simulate payment --mutant KeyOfAttempt
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a simulation; equal plans give equal runs.

    Attributes:
        seed: the seed of the random choices.
        steps: steps with faults; the run then comes to rest without them.
        values: the number of values that the application sends.
        replicas: the number of the partition's replicas.
        faults: action -> weight, in place of ``FAULTS``.
        mutant: a mutant of the registry, or "" for the reference as it is.
    """

    seed: int
    steps: int = 600
    values: int = 30
    replicas: int = 3
    faults: Mapping[str, float] = field(default_factory=dict)
    mutant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The result of a simulation: its history and its last state."""

    plan: Plan
    events: list[Event]
    state: IdempotentProducer


def simulate(plan: Plan, registry: Registry | None = None) -> Simulated:
    """Run a plan.

    Raises:
        MalformedRegistry: for an unknown mutant.
        ValueError: for a fault that is no action.
    """
    names = [chr(ord("a") + i) for i in range(plan.replicas)]
    settings: dict[str, Any] = {
        **asdict(Limits()),
        "replicas": frozenset(names),
        "initial_leader": names[0],
        "snapshots": False,
        "unclean_election": False,
        "max_leader_epoch": 6,
        "values": frozenset(range(1, plan.values + 1)),
        "attempts": frozenset(range(1, 7)),
        "max_in_flight": 5,
        "acks": "all",
        "idempotence": True,
        "max_epoch": 32767,
        "max_producer_id": 0,
        "resend_after_restart": False,
        "expiration": False,
    }
    machine: type[Any] = IdempotentProducer
    if plan.mutant:
        mutant = (registry or Registry()).get(plan.mutant)
        machine = mutated(IdempotentProducer, mutant.overrides)
        settings["snapshots"] = mutant.constants.get("Snapshots", "TRUE") == "TRUE"  # PartitionLog always has them
        settings["expiration"] = mutant.constants.get("Expiration") == "TRUE"
    constants = Constants(**settings)
    simulation = Simulation(machine, constants, plan.seed, FAULTS | dict(plan.faults), RECOVERY)
    run = f"simulated/{plan.mutant or 'reference'}/{plan.seed}"
    events = list(history(run, simulation.run(plan.steps)))
    return Simulated(plan=plan, events=events, state=simulation.state)


def segment_bytes(log: ReplicaLog) -> bytes:
    """A replica's log as Kafka would have it on disk: one uncompressed segment."""
    return b"".join(
        build_batch(
            [Record(offset_delta=0, timestamp_delta=0, key=None, value=value_name(entry.value).encode())],
            base_offset=entry.offset,
            partition_leader_epoch=entry.leader_epoch,
            base_timestamp=0,
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            base_sequence=entry.sequence,
        ).encode()
        for entry in log.entries
    )


def write_recording(simulated: Simulated, folder: Path) -> None:
    """Write manifest.json, histories/ and brokers/, as a recording of a real cluster has them."""
    manifest = {**asdict(simulated.plan), "faults": {**FAULTS, **simulated.plan.faults}}
    write_history(recording.begin(folder, manifest), simulated.events)
    for number, replica in enumerate(sorted(simulated.state.replicas), start=1):
        segment = segment_bytes(simulated.state.replicas[replica])
        recording.write_segment(folder, number, f"{TOPIC}-{PARTITION}", segment)


DEFAULTS, TRANSACTIONS_DEFAULTS = Plan(seed=0), TransactionsPlan(seed=0)
PRODUCER, TRANSACTIONS, APPLICATION = "producer", "transactions", "application"
# Applications of which every schedule is tried: what there is to try, without a protection if a mutant is named.
APPLICATIONS: dict[str, Callable[[str], Sequence[Scenario]]] = {
    "word-count": word_count.scenarios,
    "transfer": transfer.scenarios,
    "payment": payment.scenarios,
    "mirror": mirror.scenarios,
}
# Options of only one machine, by their names in the namespace.
OWN = {
    PRODUCER: ("values", "replicas"),
    TRANSACTIONS: (
        "transactions",
        "partitions",
        "instances",
        "transaction_version",
        "verification",
        "repeats",
        "scenario",
    ),
    APPLICATION: ("inputs",),
    **dict.fromkeys(APPLICATIONS, ("crash_at",)),
}
WRITTEN = ("steps", "out")  # what only a run that is written as a recording has
DRAWN = ("steps", "mutant", "repeats", *OWN[TRANSACTIONS][:3])  # what a scenario leaves no choice of


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "simulate",
        help=help_line,
        description="A seeded run of a machine under faults, written as a recording that the audit reads; "
        "or every schedule with one fault and with two of an application that the package has. To test an application "
        "of your own, take `kafka-eos serve` or the pytest fixture.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "machine",
        nargs="?",
        default=PRODUCER,
        choices=tuple(OWN),
        help="the idempotent producer (default), transactions, an application on a group, or every schedule of one",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choices (default 0)")
    parser.add_argument("--steps", type=at_least_one, help=f"steps with faults (default {DEFAULTS.steps})")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="ACTION=WEIGHT",
        help="weight of a fault; an ordinary action has 10",
    )
    parser.add_argument(
        "--mutant",
        help="a rule that is changed, so that a run goes wrong; an unknown name lists an application's",
    )
    parser.add_argument("--out", type=Path, help="folder of the recording (default build/simulated)")
    producer = parser.add_argument_group(PRODUCER)
    producer.add_argument("--values", type=at_least_one, help=f"values to send (default {DEFAULTS.values})")
    producer.add_argument("--replicas", type=int, choices=range(1, 6), help=f"default {DEFAULTS.replicas}")
    transactions = parser.add_argument_group(TRANSACTIONS)
    transactions.add_argument("--scenario", choices=tuple(NAMED_FAILURES), help="a named failure, step by step")
    transactions.add_argument(
        "--transactions",
        type=at_least_one,
        help=f"transactions of each instance (default {TRANSACTIONS_DEFAULTS.transactions})",
    )
    transactions.add_argument(
        "--partitions",
        type=int,
        choices=range(1, MOST_PARTITIONS + 1),
        help=f"default {TRANSACTIONS_DEFAULTS.partitions}",
    )
    transactions.add_argument(
        "--instances",
        type=int,
        choices=range(1, 6),
        help=f"instances that share a transactional.id (default {TRANSACTIONS_DEFAULTS.instances})",
    )
    transactions.add_argument(
        "--transaction-version",
        type=int,
        nargs="+",
        choices=(1, 2),
        help="versions that instances speak (default 2, or the one with which a named failure is known)",
    )
    transactions.add_argument(
        "--verification",
        action=argparse.BooleanOptionalAction,
        help="leaders ask the coordinator before a transaction's first batch (default yes, except for hanging)",
    )
    transactions.add_argument(
        "--repeats",
        action=argparse.BooleanOptionalAction,
        help="the network repeats requests and markers (default in version 2, which withstands it)",
    )
    application = parser.add_argument_group(APPLICATION)
    application.add_argument(
        "--inputs", type=at_least_one, help=f"inputs of each partition (default {ApplicationPlan(seed=0).inputs})"
    )
    applications = parser.add_argument_group(", ".join(APPLICATIONS))
    applications.add_argument(
        "--crash-at",
        type=first_step,
        metavar="STEP",
        help=f"{EVERY_STEP} (default), or the number of the step before which the first fault comes; "
        "exits with 1 if a schedule is wrong that must not be, with --mutant if none is wrong; with 2 if no fault can "
        "come before that step",
    )
    parser.set_defaults(run=run)


class WrongOption(ValueError):  # noqa: N818 - named for the input
    """An option that does not belong to what is simulated."""


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand."""
    folder = arguments.out or output_folder() / "simulated"
    try:
        for other, names in OWN.items():
            foreign = tuple(name for name in names if name not in OWN[arguments.machine])
            _refuse(arguments, foreign, f"belongs to 'kafka-eos simulate {other}'")
        if arguments.machine in APPLICATIONS:
            _refuse(arguments, WRITTEN, f"is not for {arguments.machine}, in which every schedule is tried")
            if arguments.fault:
                raise WrongOption(f"--fault is not for {arguments.machine}, in which every fault is tried")
            return run_scenarios(APPLICATIONS[arguments.machine](arguments.mutant or ""), arguments.crash_at or 0)
        if arguments.scenario is not None:
            _refuse(arguments, DRAWN, "is not for a scenario, in which nothing is drawn")
        faults = dict(map(_weighted, arguments.fault))
        runs = {PRODUCER: _run_producer, TRANSACTIONS: _run_transactions, APPLICATION: _run_application}
        said = runs[arguments.machine](arguments, faults, folder)
    except (MalformedRegistry, ValueError) as error:
        print(f"kafka-eos simulate: {error}", file=sys.stderr)
        return 2
    print(f"{said}; written to {folder}")
    print(f"audit it with: kafka-eos audit {folder}")
    return 0


def _weighted(fault: str) -> tuple[str, float]:
    name, _, weight = fault.partition("=")
    try:
        number = float(weight)
    except ValueError:
        number = inf
    if not isfinite(number):
        raise WrongOption(f"--fault {fault}: expected ACTION=WEIGHT with a number, such as Crash=2")
    return name, number


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    given = [name for name in names if getattr(arguments, name) is not None]
    if given:
        raise WrongOption(f"--{given[0].replace('_', '-')} {why}")


def _given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}


def _run_producer(arguments: argparse.Namespace, faults: Mapping[str, float], folder: Path) -> str:
    given = _given(arguments, "steps", "values", "replicas", "mutant")
    simulated = simulate(Plan(seed=arguments.seed, faults=faults, **given))
    write_recording(simulated, folder)
    results = list(simulated.state.outcome.values())
    counts = ", ".join(f"{results.count(name)} {name}" for name in ("acknowledged", "failed", "sent", "unsent"))
    return f"seed {arguments.seed}: {len(simulated.events)} events; values: {counts}"


def _run_application(arguments: argparse.Namespace, faults: Mapping[str, float], folder: Path) -> str:
    given = _given(arguments, "steps", "inputs", "mutant")
    simulated = simulate_application(ApplicationPlan(seed=arguments.seed, weights=faults, **given))
    write_application(simulated, folder)
    committed = ", ".join(f"{offset} of {name}" for name, offset in sorted(simulated.state.committed.items()))
    return f"seed {arguments.seed}: {len(simulated.events)} events; committed by the group: {committed}"


def _run_transactions(arguments: argparse.Namespace, faults: Mapping[str, float], folder: Path) -> str:
    versions = arguments.transaction_version
    if arguments.scenario is not None:
        if faults or (versions is not None and len(versions) > 1):
            raise WrongOption("a scenario has its own faults, and one transaction version")
        version = versions[0] if versions else None
        simulated = simulate_failure(arguments.scenario, version, arguments.verification)
        named = f"scenario {arguments.scenario}"
    else:
        given = _given(arguments, "steps", "transactions", "partitions", "instances", "verification", "mutant")
        given |= {"versions": tuple(versions)} if versions else {}
        plan = TransactionsPlan(seed=arguments.seed, repeats=arguments.repeats, faults=faults, **given)
        simulated = simulate_transactions(plan)
        named = f"seed {arguments.seed}"
    write_transactions(simulated, folder)
    results = [result for outcome in simulated.state.outcome.values() for result in outcome.values()]
    counts = ", ".join(f"{results.count(name)} {name}" for name in ("committed", "aborted"))
    begun = len(results) - results.count("none")
    return f"{named}: {len(simulated.events)} events; transactions: {begun} begun, {counts}"
