"""``kafka-eos check mutants``: every mutant, and every model that must fail, against every means of killing it.

===========  ====================================================================================
means        how it kills
===========  ====================================================================================
TLC          the mutated spec violates the property that the registry names
graph        the mutated reference's graph differs from TLC's graph of the spec
replay       the audit finds the mutant in recordings of the mutated simulator, by the rule that is named
simulation   random walks of the mutated reference under faults violate a property or miss a goal
proof        a query of a proof about the mutated rule has a solution
contract     CrossHair finds arguments that break a contract about the mutated rule
requests     kafka-eos conform finds a divergence of a served reference with the mutated rule
===========  ====================================================================================

A model that must fail has unchanged rules and reaches a known failure. A means that cannot detect a mutant gives the
reason, and does not count as a miss. A mutant that only fails, with an error, is killed by nothing: it does not work.
Two means have to kill each mutant. Verdicts are kept in ``build/checked/mutants`` as long as nothing that they depend
on changes, so an interrupted call continues.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from kafka_eos_checks.drawing.page import CANNOT_APPLY, SURVIVES
from kafka_eos_checks.graphs import command as conformance
from kafka_eos_checks.graphs import model_check
from kafka_eos_checks.graphs.state_graph import GraphUnusable
from kafka_eos_checks.kit.arguments import add_json, at_least_one
from kafka_eos_checks.kit.terminal import WordTable, answer_console, print_verdicts
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.matrix.mutant_replays import find_by_replay
from kafka_eos_checks.matrix.mutant_requests import find_by_requests, machines_with
from kafka_eos_checks.models.kept_verdicts import Kept
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry
from kafka_eos_checks.mutants.rules import UnknownRule
from kafka_eos_checks.proofs.command import proofs
from kafka_eos_checks.tla.result_cache import ResultCache, cache_folder
from kafka_eos_checks.walks.broken import find_all
from kafka_eos_checks.walks.layers import WALKS, broken

MOST_SECONDS = 60.0  # CPU time for the walks of one mutant
NOT_VISIBLE = "not visible"
FEWEST_MEANS = 2

EPILOG = """examples:
  kafka-eos check mutants
  kafka-eos check mutants ZeroAfterLeave NoDuplicateCache --only requests
  kafka-eos check mutants --only replay --json build/replay-mutants.json

With all means, --json writes one verdict for each row of the matrix; with --only, the verdicts of these means.
"""


def blind(check: str, mutant: Model, reason: str) -> Verdict:
    """The verdict of a means that cannot see a mutant, with the reason."""
    return Verdict(check=check, name=mutant.name, expected=NOT_VISIBLE, found=NOT_VISIBLE, ok=True, evidence=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The mutants that a means has to judge.

    Attributes:
        registry: the registry that has the mutants.
        mutants: the mutants to be killed.
        jobs: the number of parallel jobs, for slow means.
    """

    registry: Registry
    mutants: Sequence[Model]
    jobs: int


def replay_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether the audit finds each mutant in the recordings of its simulator."""
    for mutant in asked.mutants:
        if is_known_failure(mutant):
            yield blind("replay-mutant", mutant, "the rules are unchanged: recordings and scenarios show the failure")
        elif mutant.replay:
            yield find_by_replay(asked.registry, mutant)
        else:
            yield blind("replay-mutant", mutant, mutant.blind["replay"])


def tlc_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether TLC finds the named property violated."""
    for outcome in model_check.check_models(asked.mutants, jobs=asked.jobs):
        yield model_check.to_verdict(outcome)


def graph_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether the mutated reference differs."""
    mutants = []
    for mutant in asked.mutants:
        if is_known_failure(mutant):
            yield blind("graph-mutant", mutant, "the rules are unchanged: the graphs have to be equal")
        else:
            mutants.append(mutant)
    yield from conformance.check(asked.registry, [], mutants, asked.jobs)


def simulation_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether walks find each mutant of a machine that is walked."""
    walked = set(broken(asked.registry))
    for mutant in asked.mutants:
        if mutant.name not in walked:
            reason = mutant.blind.get("simulation", f"no walk over {mutant.module}")
            yield blind("walk-mutant", mutant, reason)
    yield from find_all([mutant for mutant in asked.mutants if mutant.name in walked], MOST_SECONDS, asked.jobs)


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


def contract_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether CrossHair breaks a contract about a rule that a mutant replaces."""
    from kafka_eos_checks.matrix.mutant_contracts import contracts_about, find_by_contract  # noqa: PLC0415 - as above

    for mutant in asked.mutants:
        contracts = contracts_about(mutant)
        if contracts:
            yield find_by_contract(mutant, contracts)
        else:
            yield blind("contract-mutant", mutant, "no contract is about its rule")


def requests_mutants(asked: Asked) -> Iterator[Verdict]:
    """Whether raw requests to a served reference with a mutant's rules are answered otherwise than the spec allows."""
    for mutant in asked.mutants:
        machines = machines_with(mutant)
        if is_known_failure(mutant):
            yield blind("requests-mutant", mutant, "the rules are unchanged: a broker with them conforms")
        elif "requests" in mutant.blind:
            yield blind("requests-mutant", mutant, mutant.blind["requests"])
        elif machines is None:
            yield blind("requests-mutant", mutant, "no served machine has its rules")
        else:
            yield find_by_requests(mutant, machines)


MEANS: dict[str, Callable[[Asked], Iterator[Verdict]]] = {
    "TLC": tlc_mutants,
    "graph": graph_mutants,
    "replay": replay_mutants,
    "simulation": simulation_mutants,
    "proof": proof_mutants,
    "contract": contract_mutants,
    "requests": requests_mutants,
}


def is_known_failure(row: Model) -> bool:
    """Whether a row is a model that must fail, with unchanged rules."""
    return not row.model


def rows(registry: Registry) -> list[Model]:
    """The mutants, then the models that must fail, except those of proofs, which start in any state."""
    failing = [model for model in registry.models.values() if model.expect.violates and model.module in WALKS]
    return [*registry.mutants.values(), *failing]


def verdicts_of(
    means: str, registry: Registry, mutants: Sequence[Model], cache: ResultCache, jobs: int
) -> list[Verdict]:
    """The verdicts of a means, kept or found now."""
    kept = Kept(means=means, registry=registry, cache=cache, limit=MOST_SECONDS)

    def find(waiting: Sequence[Model]) -> Iterator[Verdict]:
        return MEANS[means](Asked(registry=registry, mutants=waiting, jobs=jobs))

    return list(kept.verdicts(mutants, find))


def chosen(registry: Registry, names: Sequence[str]) -> list[Model]:
    """The rows of these names, all if there is none.

    Raises:
        MalformedRegistry: when one of them is no mutant and no model that must fail.
    """
    every = {row.name: row for row in rows(registry)}
    for name in names:
        if name not in every:
            raise MalformedRegistry(f"{registry.get(name).source}: neither a mutant nor a model that must fail")
    return [every[name] for name in dict.fromkeys(names)] or [*every.values()]


def matrix(mutants: Sequence[Model], verdicts: Mapping[str, Sequence[Verdict]]) -> Table:
    """The matrix as a table: a row for each mutant, a column for each means."""
    table = WordTable("mutant", *verdicts, "why not")
    cells = by_mutant(verdicts)
    for mutant in mutants:
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


def killed_verdicts(mutants: Sequence[Model], verdicts: Mapping[str, Sequence[Verdict]]) -> Iterator[Verdict]:
    """The verdicts on the number of means that kill each mutant: two have to, if two can detect it."""
    cells = by_mutant(verdicts)
    for mutant in mutants:
        own = cells.get(mutant.name, {})
        killing = [means for means, v in own.items() if v.ok and v.found != NOT_VISIBLE]
        blind_means = [f"{means}: {v.evidence}" for means, v in own.items() if v.found == NOT_VISIBLE]
        without = [means for means in verdicts if means not in own]
        wanted = min(FEWEST_MEANS, len(verdicts) - len(blind_means))
        yield Verdict(
            check="mutant-means",
            name=mutant.name,
            expected=f"killed by {wanted} means or more",
            found=f"killed by {len(killing)}: {', '.join(killing) or 'none'}{_unasked(without)}",
            ok=len(killing) >= wanted > 0 and not without,
            seconds=sum(v.seconds for v in own.values()),
            figures={means: _shown(v) for means, v in own.items()},
            evidence="\n".join(blind_means),
            title=mutant.title,
        )


def _unasked(means: Sequence[str]) -> str:
    return f"; no verdict by {', '.join(means)}" if means else ""


def _cell(verdict: Verdict | None) -> str | Text:
    if verdict is None:
        return ""
    return _shown(verdict) if verdict.ok else Text(SURVIVES, "red")


def _shown(verdict: Verdict) -> str:
    if not verdict.ok:
        return SURVIVES
    if verdict.found == NOT_VISIBLE:
        return CANNOT_APPLY
    return (
        verdict.found.removeprefix("violates ")
        .removeprefix("finds ")
        .removeprefix("breaks ")
        .removeprefix("diverges: ")
    )


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``mutants``."""
    parser = subparsers.add_parser(
        "mutants",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="of the registry (default: all)")
    parser.add_argument("--only", nargs="+", choices=tuple(MEANS), metavar="MEANS", help=f"of {', '.join(MEANS)}")
    add_json(parser)
    parser.add_argument(
        "--jobs", type=at_least_one, default=os.cpu_count() or 1, help="parallel jobs (default: all cores)"
    )
    parser.add_argument("--cache", type=Path, default=cache_folder("mutants"), help="results of earlier runs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``mutants``."""
    if arguments.jobs < 1:
        print("kafka-eos check mutants: --jobs is at least 1", file=sys.stderr)
        return 2
    try:
        registry = Registry()
        asked = chosen(registry, arguments.mutants)
        verdicts: dict[str, list[Verdict]] = {}
        for means in arguments.only or MEANS:
            verdicts[means] = verdicts_of(means, registry, asked, ResultCache(arguments.cache), arguments.jobs)
    except (MalformedRegistry, GraphUnusable, UnknownRule) as error:
        print(f"kafka-eos check mutants: {error}", file=sys.stderr)
        return 2
    answer_console.print(matrix(asked, verdicts))
    of_means = [verdict for own in verdicts.values() for verdict in own]
    of_rows = list(killed_verdicts(asked, verdicts)) if len(verdicts) == len(MEANS) else []
    surviving = [verdict for verdict in (*of_means, *of_rows) if not verdict.ok]
    if surviving:
        print_verdicts(surviving, "survivors")
    if arguments.json:
        write_verdicts(arguments.json, of_rows or of_means)
    return 1 if surviving else 0
