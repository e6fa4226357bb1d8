"""``kafka-eos simulate``: a seeded run of the reference under faults, written as a recording that the audit reads."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kafka_eos.history import Event, write_history
from kafka_eos.idempotent_producer import Constants, IdempotentProducer
from kafka_eos.producer_history import PARTITION, TOPIC, history, value_name
from kafka_eos.record_batch import Record, build_batch
from kafka_eos.replicated_log import ReplicaLog
from kafka_eos.simulator import Simulation
from kafka_eos_checks.models import MalformedRegistry, Registry
from kafka_eos_checks.mutants import mutated
from kafka_eos_checks.paths import build_folder

# What goes wrong in a run, and how often beside an ordinary action's weight of 10. A model's constants decide whether
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
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a simulation does; equal plans give equal runs.

    Attributes:
        seed: of the random choices.
        steps: steps with faults; the run then comes to rest without them.
        values: how many values the application sends.
        replicas: how many replicas the partition has.
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
    """What a simulation left behind: its history and its last state."""

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
        "max_sequence": 2**31 - 1,
        "cached_batches": 5,
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
    histories = folder / "histories"
    histories.mkdir(parents=True, exist_ok=True)
    write_history(histories / "simulated.jsonl", simulated.events)
    manifest = {"cluster": "simulated", **asdict(simulated.plan), "faults": {**FAULTS, **simulated.plan.faults}}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for number, replica in enumerate(sorted(simulated.state.replicas), start=1):
        partition = folder / "brokers" / str(number) / f"{TOPIC}-{PARTITION}"
        partition.mkdir(parents=True, exist_ok=True)
        segment = segment_bytes(simulated.state.replicas[replica])
        (partition / f"{0:020d}.log").write_bytes(segment)


DEFAULTS = Plan(seed=0)


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "simulate",
        help=help_line,
        description="A seeded run of the idempotent producer's machine under faults, written as a recording.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random choices (default 0)")
    parser.add_argument(
        "--steps", type=int, default=DEFAULTS.steps, help=f"steps with faults (default {DEFAULTS.steps})"
    )
    parser.add_argument(
        "--values", type=int, default=DEFAULTS.values, help=f"values to send (default {DEFAULTS.values})"
    )
    parser.add_argument("--replicas", type=int, default=DEFAULTS.replicas, choices=range(1, 6), help="default 3")
    parser.add_argument("--fault", action="append", default=[], metavar="ACTION=WEIGHT", help="an ordinary one has 10")
    parser.add_argument("--mutant", default="", help="a mutant of the registry, for a run that goes wrong")
    parser.add_argument("--out", type=Path, help="folder of the recording (default build/simulated)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand."""
    try:
        faults = {name: float(weight) for name, _, weight in (fault.partition("=") for fault in arguments.fault)}
        plan = Plan(
            seed=arguments.seed,
            steps=arguments.steps,
            values=arguments.values,
            replicas=arguments.replicas,
            faults=faults,
            mutant=arguments.mutant,
        )
        simulated = simulate(plan)
    except (MalformedRegistry, ValueError) as error:
        print(f"kafka-eos simulate: {error}", file=sys.stderr)
        return 2
    folder = arguments.out or build_folder() / "simulated"
    write_recording(simulated, folder)
    results = list(simulated.state.outcome.values())
    counts = ", ".join(f"{results.count(name)} {name}" for name in ("acknowledged", "failed", "sent", "unsent"))
    print(f"seed {plan.seed}: {len(simulated.events)} events; values: {counts}; written to {folder}")
    print(f"audit it with: kafka-eos audit {folder}")
    return 0
