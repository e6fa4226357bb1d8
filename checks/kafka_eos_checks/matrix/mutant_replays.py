"""Mutants against the audit: the simulator runs a mutant of the reference, and the audit judges its recordings."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from kafka_eos_checks.audit.audit import audit
from kafka_eos_checks.audit.rules.coordinator import COORDINATOR_RULES
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES
from kafka_eos_checks.audit.rules.log import LOG_RULES
from kafka_eos_checks.audit.rules.offsets import OFFSET_RULES
from kafka_eos_checks.audit.rules.transactions.names import TRANSACTION_RULES
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry
from kafka_eos_checks.simulate.applications import ApplicationPlan, simulate_application, write_application
from kafka_eos_checks.simulate.command import Plan, simulate, write_recording
from kafka_eos_checks.simulate.transactions import TransactionsPlan, simulate_transactions, write_transactions

MOST_SEEDS = 200
RULES = frozenset({*LOG_RULES, *COORDINATOR_RULES, *TRANSACTION_RULES, *OFFSET_RULES, *HISTORY_RULES})
AnyPlan = Plan | TransactionsPlan | ApplicationPlan

# The settings that show most mutants, within a few milliseconds a run. Settings with other faults are for mutants that
# need them: a delayed duplicate of an expired batch, or a replica that loads its snapshot with batches in flight.
BUSY: dict[str, Any] = {"steps": 200, "values": 12, "faults": {"Resend": 6.0, "Expire": 1.0, "Crash": 1.0}}
EXPIRING: dict[str, Any] = {"steps": 60, "values": 2, "faults": {"Resend": 6.0, "Expire": 3.0}}
LOADING: dict[str, Any] = {
    "steps": 60,
    "values": 4,
    "replicas": 1,
    "faults": {"Resend": 10.0, "Expire": 0.1, "Crash": 6.0, "TakeSnapshot": 10.0},
}

# Settings for transactions. Some mutants need slow batches and markers, which arrive in the next transaction. A refusal
# without cause must not be taken for a timeout or for a marker that was written again.
TRANSACTING: dict[str, Any] = {
    "steps": 150,
    "instances": 2,
    "faults": {"Failover": 1.0, "RepeatMarker": 3.0, "TimeOut": 0.2, "FindNoLeader": 0.0},
}
SLOW: dict[str, Any] = {
    "steps": 150,
    "instances": 1,
    "partitions": 1,
    "faults": {
        "AppendVerified": 1.0,
        "HandleMarker": 1.5,
        "RepeatMarker": 6.0,
        "TimeOut": 0.0,
        "Crash": 0.0,
        "ElectLeader": 0.0,
        "FindNoLeader": 0.0,
    },
}
ONCE: dict[str, Any] = {
    **SLOW,
    "faults": {**SLOW["faults"], "Verify": 1.5, "RepeatMarker": 0.0, "Failover": 0.0, "VerifyByFormer": 0.0},
}
ELECTING: dict[str, Any] = {**TRANSACTING, "faults": {"ElectLeader": 5.0, "HandleMarker": 2.0}}
LEADERLESS: dict[str, Any] = {
    "steps": 150,
    "instances": 1,
    "faults": {"FindNoLeader": 5.0, "TimeOut": 0.0, "Crash": 0.0},
}
UPGRADING: dict[str, Any] = {
    "steps": 150,
    "instances": 1,
    "partitions": 1,
    "repeats": True,
    "faults": {"HandleEnd": 1.5, "Upgrade": 10.0, "RepeatMarker": 0.0, "TimeOut": 0.0, "Crash": 0.0},
}

# Settings for an application. Some mutants need a late marker of the offsets, or an instance that is taken for dead
# while it processes.
LATE: dict[str, Any] = {"faults": 6, "weights": {"PublishOffsets": 0.5, "ExpireSession": 3.0, "TimeOut": 0.1}}
LEAVING: dict[str, Any] = {
    "faults": 8,
    "weights": {"ExpireSession": 8.0, "Commit": 2.0, "SendOffsets": 2.0, "Crash": 0.3, "TimeOut": 0.1, "Abort": 0.1},
}
SILENT: dict[str, Any] = {
    "faults": 8,
    "inputs": 6,
    "weights": {**LEAVING["weights"], "Heartbeat": 3.0, "Commit": 10.0},
}
SETTINGS: Mapping[str, dict[str, Any]] = {
    "expiring": EXPIRING,
    "loading": LOADING,
    "slow": SLOW,
    "once": ONCE,
    "electing": ELECTING,
    "leaderless": LEADERLESS,
    "upgrading": UPGRADING,
    "late": LATE,
    "leaving": LEAVING,
    "silent": SILENT,
}
USUAL: Mapping[str, dict[str, Any]] = {"ConsumeTransformProduce": {}, "Transactions": TRANSACTING}
"""By module, the settings for mutants whose entry names none; :data:`BUSY` for other modules."""


def plan_of(mutant: Model, seed: int) -> AnyPlan:
    """The simulation in which a mutant shows, with a seed.

    Raises:
        MalformedRegistry: the mutant's entry names a simulation that :data:`SETTINGS` does not have.
    """
    if mutant.simulation and mutant.simulation not in SETTINGS:
        raise MalformedRegistry(f"{mutant.source}: no simulation {mutant.simulation!r}; write {', '.join(SETTINGS)}")
    settings = SETTINGS[mutant.simulation] if mutant.simulation else USUAL.get(mutant.module, BUSY)
    if mutant.module == "ConsumeTransformProduce":
        return ApplicationPlan(seed=seed, mutant=mutant.name, **settings)
    if mutant.module != "Transactions":
        return Plan(seed=seed, mutant=mutant.name, **settings)
    constants = mutant.machine_constants()
    return TransactionsPlan(
        seed=seed,
        mutant=mutant.name,
        versions=tuple(sorted(constants.versions)),
        verification=constants.verification,
        **settings,
    )


def write_simulation(plan: AnyPlan, folder: Path, registry: Registry) -> None:
    """Run a simulation and write its recording."""
    if isinstance(plan, TransactionsPlan):
        write_transactions(simulate_transactions(plan, registry), folder)
    elif isinstance(plan, ApplicationPlan):
        write_application(simulate_application(plan, registry), folder)
    else:
        write_recording(simulate(plan, registry), folder)


def rules_that_fire(plan: AnyPlan, folder: Path, registry: Registry) -> set[str]:
    """The rules of the audit that find something in the recording of a simulation."""
    write_simulation(plan, folder, registry)
    return {verdict.name for verdict in audit([folder]) if not verdict.ok} & RULES


def find_by_replay(registry: Registry, mutant: Model) -> Verdict:
    """Whether the audit finds a mutant in the simulator's recordings; the first seed that shows it counts.

    Args:
        registry: the registry that has the mutant.
        mutant: a mutant whose entry names the rule by which the audit finds it.
    """
    began = monotonic()
    found: set[str] = set()
    seed = -1
    with tempfile.TemporaryDirectory(prefix="kafka-eos-mutant-") as folder:
        while mutant.replay not in found and seed + 1 < MOST_SEEDS:
            seed += 1
            found = rules_that_fire(plan_of(mutant, seed), Path(folder) / str(seed), registry)
    shown = mutant.replay in found
    return Verdict(
        check="replay-mutant",
        name=mutant.name,
        expected=f"finds {mutant.replay}",
        found=f"finds {mutant.replay}" if shown else f"nothing in {seed + 1} seeds",
        ok=shown,
        seconds=monotonic() - began,
        figures={"seed": seed},
        evidence=f"rules that fire with seed {seed}: {', '.join(sorted(found)) or 'none'}",
    )
