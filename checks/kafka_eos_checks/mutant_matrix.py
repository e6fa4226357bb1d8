"""``kafka-eos mutants``: every mutant against every means that is to kill it.

===========  ====================================================================================
means        how it kills
===========  ====================================================================================
TLC          the mutated spec violates the property that the registry names
graph        the mutated reference is told apart from TLC's graph of the spec
replay       the audit finds what the mutated simulator left behind, by the rule that is named
simulation   random walks of the mutated reference under faults violate a property or miss a goal
proof        a query of the proof that the mutated rule is part of has a solution
===========  ====================================================================================

A means that cannot apply says why, and is no miss. Two means have to kill each mutant. What has been found is kept in
``build/mutants`` for as long as nothing that it depends on changes: an ended call goes on where it was.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from rich.table import Table

from kafka_eos_checks import conformance, model_check
from kafka_eos_checks.conjuncts.outcomes import Cache
from kafka_eos_checks.models import MalformedRegistry, Model, Registry
from kafka_eos_checks.mutant_keys import kept_folder, key_of
from kafka_eos_checks.proofs.command import proofs
from kafka_eos_checks.replay.audit import audit
from kafka_eos_checks.replay.coordinator import COORDINATOR_RULES
from kafka_eos_checks.replay.histories import HISTORY_RULES
from kafka_eos_checks.replay.offsets import OFFSET_RULES
from kafka_eos_checks.replay.rules import LOG_RULES
from kafka_eos_checks.replay.transactions import TRANSACTION_RULES
from kafka_eos_checks.simulate.applications import ApplicationPlan, simulate_application, write_application
from kafka_eos_checks.simulate.command import Plan, simulate, write_recording
from kafka_eos_checks.simulate.transactions import TransactionsPlan, simulate_transactions, write_transactions
from kafka_eos_checks.soak.broken import NOT_FOUND, find_all
from kafka_eos_checks.soak.layers import broken
from kafka_eos_checks.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.verdict import Verdict, verdict_from_json, write_verdicts

MOST_SEEDS = 200
MOST_SECONDS = 60.0  # of CPU, for the walks of one mutant
NOT_VISIBLE = "not visible"
FEWEST_MEANS = 2
RULES = frozenset({*LOG_RULES, *COORDINATOR_RULES, *TRANSACTION_RULES, *OFFSET_RULES, *HISTORY_RULES})
AnyPlan = Plan | TransactionsPlan | ApplicationPlan

# What brings the most out, within a few milliseconds a run. Where the faults differ, so does what the mutant needs:
# a late copy of an expired batch, or a replica that loads its snapshot while batches are in flight.
BUSY: dict[str, Any] = {"steps": 200, "values": 12, "faults": {"Resend": 6.0, "Expire": 1.0, "Crash": 1.0}}
EXPIRING: dict[str, Any] = {"steps": 60, "values": 2, "faults": {"Resend": 6.0, "Expire": 3.0}}
LOADING: dict[str, Any] = {
    "steps": 60,
    "values": 4,
    "replicas": 1,
    "faults": {"Resend": 10.0, "Expire": 0.1, "Crash": 6.0, "TakeSnapshot": 10.0},
}

# The same for transactions. Some mutants need that batches and markers are slow, so that they come in the next
# transaction. A refusal without cause must not be taken for a timeout or for a marker that was written again.
TRANSACTING: dict[str, Any] = {
    "steps": 150,
    "instances": 2,
    "faults": {"Failover": 1.0, "RepeatMarker": 3.0, "TimeOut": 0.2},
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
    },
}
ONCE: dict[str, Any] = {
    **SLOW,
    "faults": {**SLOW["faults"], "Verify": 1.5, "RepeatMarker": 0.0, "Failover": 0.0, "VerifyByFormer": 0.0},
}
ELECTING: dict[str, Any] = {**TRANSACTING, "faults": {"ElectLeader": 5.0, "HandleMarker": 2.0}}
UPGRADING: dict[str, Any] = {
    "steps": 150,
    "instances": 1,
    "partitions": 1,
    "repeats": True,
    "faults": {"HandleEnd": 1.5, "Upgrade": 10.0, "RepeatMarker": 0.0, "TimeOut": 0.0, "Crash": 0.0},
}

# The same for an application. Some mutants need that the marker of the offsets is late, or that an instance is thought
# to be dead while it processes.
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
APPLICATION_SETTINGS: Mapping[str, dict[str, Any]] = {
    "OffsetFetchError": LATE,
    "InitError": LATE,
    "PresentedGeneration": LEAVING,
    "IsFree": LEAVING,
    "InitAborts": LEAVING,
    "MemberEpochError": LEAVING,
}
SETTINGS: Mapping[str, dict[str, Any]] = {
    "IsFenced": EXPIRING,
    "MayExpire": EXPIRING,
    "SnapshotOf": LOADING,
    "DataError": SLOW,
    "EndVerdict": ONCE,
    "EpochAfterMarker": ONCE,
    "KeepsGuard": ONCE,
    "MarkerError": SLOW,
    "MarkersAfterElection": ELECTING,
    "UsesGuardUp": ONCE,
    "Upgraded": UPGRADING,
}

EPILOG = """examples:
  kafka-eos mutants
  kafka-eos mutants --only replay --json build/replay-mutants.json
"""


def plan_of(mutant: Model, seed: int) -> AnyPlan:
    """The simulation in which a mutant shows, with a seed."""
    if mutant.module == "ConsumeTransformProduce":
        found = next((APPLICATION_SETTINGS[rule] for rule in mutant.overrides if rule in APPLICATION_SETTINGS), {})
        if "RemovedMemberIsTaken" in mutant.overrides.values():
            found = SILENT
        return ApplicationPlan(seed=seed, mutant=mutant.name, **found)
    transactions = mutant.module == "Transactions"
    ordinary = TRANSACTING if transactions else BUSY
    settings = next((SETTINGS[rule] for rule in mutant.overrides if rule in SETTINGS), ordinary)
    if not transactions:
        return Plan(seed=seed, mutant=mutant.name, **settings)
    constants = mutant.machine_constants()
    return TransactionsPlan(
        seed=seed,
        mutant=mutant.name,
        versions=tuple(sorted(constants.versions)),
        verification=constants.verification,
        **settings,
    )


def rules_that_fire(plan: AnyPlan, folder: Path, registry: Registry) -> set[str]:
    """The rules of the audit that find something in the recording of a simulation."""
    if isinstance(plan, TransactionsPlan):
        write_transactions(simulate_transactions(plan, registry), folder)
    elif isinstance(plan, ApplicationPlan):
        write_application(simulate_application(plan, registry), folder)
    else:
        write_recording(simulate(plan, registry), folder)
    return {verdict.name for verdict in audit([folder]) if not verdict.ok} & RULES


def blind(check: str, mutant: Model, reason: str) -> Verdict:
    """A means that cannot see a mutant."""
    return Verdict(check=check, name=mutant.name, expected=NOT_VISIBLE, found=NOT_VISIBLE, ok=True, evidence=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a means is asked.

    Attributes:
        registry: where the mutants stand.
        mutants: to be killed.
        jobs: how many at a time, of the means that are slow.
        kept: results of earlier runs.
    """

    registry: Registry
    mutants: Sequence[Model]
    jobs: int
    kept: Cache


def replay_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether the audit finds what each mutated simulator left behind; the first seed that shows it counts."""
    for mutant in asked.mutants:
        began = monotonic()
        if not mutant.replay:
            yield blind("replay-mutant", mutant, mutant.replay_blind)
            continue
        found: set[str] = set()
        seed = -1
        with tempfile.TemporaryDirectory(prefix="kafka-eos-mutant-") as folder:
            while mutant.replay not in found and seed + 1 < MOST_SEEDS:
                seed += 1
                found = rules_that_fire(plan_of(mutant, seed), Path(folder) / str(seed), asked.registry)
        shown = mutant.replay in found
        yield Verdict(
            check="replay-mutant",
            name=mutant.name,
            expected=f"finds {mutant.replay}",
            found=f"finds {mutant.replay}" if shown else f"nothing in {seed + 1} seeds",
            ok=shown,
            seconds=monotonic() - began,
            figures={"seed": seed},
            evidence=f"rules that fire with seed {seed}: {', '.join(sorted(found)) or 'none'}",
        )


def tlc_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether TLC finds the named property violated."""
    for outcome in model_check.check_models(asked.mutants, jobs=asked.jobs):
        yield model_check.to_verdict(outcome)


def graph_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether the mutated reference is told apart."""
    yield from conformance.check(asked.registry, [], asked.mutants, asked.jobs)


def simulation_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether walks find each mutant of a machine that is walked; what ``kafka-eos soak`` has found counts."""
    walked = {name: asked.registry.get(name) for name in broken(asked.registry)}
    for mutant in asked.mutants:
        if mutant.name not in walked:
            yield blind("walk-mutant", mutant, f"no walk over {mutant.module}")
    names = [mutant.name for mutant in asked.mutants if mutant.name in walked]
    for verdict in find_all(names, MOST_SECONDS, asked.jobs, asked.kept):
        told = verdict.found == NOT_FOUND and verdict.ok
        yield blind("walk-mutant", walked[verdict.name], verdict.evidence) if told else verdict


def proof_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether a proof fails with each mutant of a rule that it is about."""
    from kafka_eos_checks.proofs.induction import refute  # noqa: PLC0415 - the light install has no z3

    every = proofs(())
    for mutant in asked.mutants:
        about = next((proof for proof in every if proof.is_refuted_by(mutant)), None)
        if about is None:
            yield blind("proof-mutant", mutant, "its rule is part of no proof")
        else:
            yield replace(refute(about, mutant), check="proof-mutant", name=mutant.name)


MEANS: dict[str, Callable[[Asked], Iterator[Verdict]]] = {
    "TLC": tlc_mutants,
    "graph": graph_mutants,
    "replay": replay_mutants,
    "simulation": simulation_mutants,
    "proof": proof_mutants,
}


def verdicts_of(means: str, registry: Registry, mutants: Sequence[Model], kept: Cache, jobs: int) -> list[Verdict]:
    """The verdicts of a means: those that are kept, and those that are found now; what survives is not kept."""
    keys = {mutant.name: key_of(means, registry, mutant) for mutant in mutants}
    known = {name: found for name, key in keys.items() if (found := kept.get(key)) is not None}
    verdicts = [verdict_from_json(json.loads(str(found["verdict"]))) for found in known.values()]
    waiting = [mutant for mutant in mutants if mutant.name not in known]
    progress_console.print(f"mutants by {means}: {len(known)} known, {len(waiting)} to look at")
    for verdict in MEANS[means](Asked(registry=registry, mutants=waiting, jobs=jobs, kept=kept)):
        if verdict.ok:
            kept.put(keys[verdict.name], {"verdict": json.dumps(verdict.to_json())})
        verdicts.append(verdict)
    return verdicts


def matrix(registry: Registry, verdicts: Mapping[str, Sequence[Verdict]]) -> Table:
    """A row a mutant, a column a means."""
    table = Table(box=None, pad_edge=False)
    for column in ("mutant", *verdicts, "why not"):
        table.add_column(column, overflow="fold")
    cells = by_mutant(verdicts)
    for mutant in registry.mutants.values():
        own = cells.get(mutant.name, {})
        reasons = [f"{means}: {v.evidence}" for means, v in own.items() if v.found == NOT_VISIBLE]
        table.add_row(mutant.name, *(_cell(own.get(means)) for means in verdicts), "; ".join(reasons))
    return table


def by_mutant(verdicts: Mapping[str, Sequence[Verdict]]) -> dict[str, dict[str, Verdict]]:
    """The verdicts by mutant, then by means."""
    cells: dict[str, dict[str, Verdict]] = {}
    for means, own in verdicts.items():
        for verdict in own:
            cells.setdefault(verdict.name, {})[means] = verdict
    return cells


def killed_verdicts(registry: Registry, verdicts: Mapping[str, Sequence[Verdict]]) -> Iterator[Verdict]:
    """By how many means each mutant is killed; two are wanted where two apply."""
    cells = by_mutant(verdicts)
    for mutant in registry.mutants.values():
        own = cells.get(mutant.name, {})
        killing = [means for means, v in own.items() if v.ok and v.found != NOT_VISIBLE]
        blind_means = [f"{means}: {v.evidence}" for means, v in own.items() if v.found == NOT_VISIBLE]
        wanted = min(FEWEST_MEANS, len(own) - len(blind_means))
        yield Verdict(
            check="mutant-means",
            name=mutant.name,
            expected=f"killed by {wanted} means or more",
            found=f"killed by {len(killing)}: {', '.join(killing) or 'none'}",
            ok=len(killing) >= wanted > 0,
            figures={means: _shown(v) for means, v in own.items()},
            evidence="\n".join(blind_means),
            title=mutant.title,
        )


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    return _shown(verdict) if verdict.ok else "[red]survives[/]"


def _shown(verdict: Verdict) -> str:
    if not verdict.ok:
        return "survives"
    return "-" if verdict.found == NOT_VISIBLE else verdict.found.removeprefix("violates ").removeprefix("finds ")


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``mutants``."""
    parser = subparsers.add_parser(
        "mutants",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=tuple(MEANS), metavar="MEANS", help=f"of {', '.join(MEANS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time (default: all cores)")
    parser.add_argument("--cache", type=Path, default=kept_folder(), help="results of earlier runs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``mutants``."""
    if arguments.jobs < 1:
        print("kafka-eos mutants: --jobs is at least 1", file=sys.stderr)
        return 2
    try:
        registry = Registry()
        every = list(registry.mutants.values())
        verdicts: dict[str, list[Verdict]] = {}
        for means in arguments.only or MEANS:
            verdicts[means] = verdicts_of(means, registry, every, Cache(arguments.cache), arguments.jobs)
    except MalformedRegistry as error:
        print(f"kafka-eos mutants: {error}", file=sys.stderr)
        return 2
    answer_console.print(matrix(registry, verdicts))
    answers = [verdict for own in verdicts.values() for verdict in own]
    if len(verdicts) == len(MEANS):
        answers += killed_verdicts(registry, verdicts)
    surviving = [verdict for verdict in answers if not verdict.ok]
    if surviving:
        print_verdicts(surviving, "survivors")
    if arguments.json:
        write_verdicts(arguments.json, answers)
    return 1 if surviving else 0
