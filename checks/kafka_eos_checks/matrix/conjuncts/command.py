"""Remove every conjunct of every guard, and weaken every property, one part at a time: some check has to notice each.

In the spec TLC has to find a property violated, or fail to evaluate, or find another graph than the spec's. With
--first the changed spec's steps are compared with the reference's graph, which takes seconds a module. In the reference
the comparison with TLC's graph has to find a difference. A weaker property has to accept some mutant that
the property refuses. A property is needed if some mutant is refused by it and by no other. Otherwise
spec/conjuncts.toml names the properties that it follows from, and no mutant may contradict that. A table names the
mutant, or those properties, for each property. A part whose change nothing notices is a survivor, unless
spec/conjuncts.toml says why nothing can notice it; an explained conjunct is tried only in models of the small tier.
Results are kept in build/checked/conjuncts, so that unchanged parts are not run again.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar

from rich.table import Table
from rich.text import Text

from kafka_eos_checks.graphs.state_graph import GraphUnusable
from kafka_eos_checks.kit.arguments import above_zero, add_json, at_least_one
from kafka_eos_checks.kit.terminal import WordTable, answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.matrix.conjuncts.equivalents import check_known, read_equivalents, read_follows
from kafka_eos_checks.matrix.conjuncts.outcomes import EXPECTED, Means, Outcome, Pair, pairs, verdicts
from kafka_eos_checks.matrix.conjuncts.properties import MOST_STATES, PropertySearch, families, judged_modules
from kafka_eos_checks.matrix.conjuncts.properties import places as weaker_places
from kafka_eos_checks.matrix.conjuncts.reference import GraphSearch, ReferenceSubject, reference_subjects
from kafka_eos_checks.matrix.conjuncts.search import TIERS, Search, Subject, UnusableMutant, spec_modules, subjects
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry
from kafka_eos_checks.tla.result_cache import ResultCache, cache_folder
from kafka_eos_checks.tla.sany import UnparsableModule

SPEC, REFERENCE, PROPERTIES = "spec", "reference", "properties"
# The modules whose properties take a few CPU seconds, which `make` judges, and those of `make check`, at most 30 s.
SECONDS = ("ApplicationLoop", "EpochBump", "ExactlyOnce", "ExternalSink", "StatefulProcessor")
HALF_A_MINUTE = ("AtomicTransactions", "Mirror", "ProducerIds", "SharePartition", "TransactionalOffsets")
CHECKS = {SPEC: "conjunct", REFERENCE: "reference-conjunct", PROPERTIES: "property-part"}

EPILOG = """examples:
  kafka-eos check conjuncts
  kafka-eos check conjuncts EpochBump epoch_bump --json build/conjuncts.json
  kafka-eos check conjuncts --only reference
  kafka-eos check conjuncts PartitionLog --only properties
  kafka-eos check conjuncts --only properties --named
  kafka-eos check conjuncts Transactions --list
"""


_S = TypeVar("_S", Subject, ReferenceSubject)


def _chosen(every: Sequence[_S], modules: Sequence[str], reasons: Set[tuple[str, str]]) -> list[_S]:
    """The conjuncts of the modules; an explained one is tried only in models of the small tier."""
    return [
        replace(subject, models=_smallest(subject.models)) if subject.place in reasons else subject
        for subject in every
        if not modules or subject.module in modules
    ]


def _smallest(models: Sequence[Model]) -> tuple[Model, ...]:
    return tuple(model for model in models if model.tier == TIERS[0]) or tuple(models[:1])


def _in_spec(
    registry: Registry, arguments: argparse.Namespace, cache: ResultCache, reasons: Set[tuple[str, str]]
) -> Iterator[Outcome]:
    """The outcomes of the spec's mutants, as they come."""
    chosen = _chosen(subjects(registry, arguments.modules), arguments.modules, reasons)
    search = Search(cache=cache, timeout=arguments.timeout, thorough=not arguments.first)
    running: dict[str, str] = {}
    if arguments.first:
        with progress_console.status("the spec's steps") as status:
            found = list(search.compared(chosen, lambda line: status.update(f"spec: {line}")))
        yield from (outcome for outcome in found if isinstance(outcome, Outcome))
        chosen = [subject for subject in found if isinstance(subject, Subject)]
    with progress_console.status("TLC starts") as status, ThreadPoolExecutor(arguments.jobs) as pool:

        def report(name: str) -> Callable[[str], None]:
            def on_model(model: str) -> None:
                running[name] = model
                status.update(f"spec: {done} of {len(chosen)}; {', '.join(running.values())}")

            return on_model

        done = 0
        waiting = {pool.submit(search.judge, s, report(s.conjunct.name)): s.conjunct.name for s in chosen}
        try:
            for future in as_completed(waiting):
                done += 1
                running.pop(waiting[future], None)
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _in_reference(
    registry: Registry, arguments: argparse.Namespace, cache: ResultCache, reasons: Set[tuple[str, str]]
) -> Iterator[Outcome]:
    """The outcomes of the reference's mutants."""
    chosen = _chosen(reference_subjects(registry), arguments.modules, reasons)
    with progress_console.status("reference") as status:
        search = GraphSearch(
            cache=cache,
            on_progress=lambda line: status.update(f"reference: {done} of {len(chosen)}; {line}"),
        )
        for done, subject in enumerate(chosen):  # noqa: B007 - the progress line above reads it
            yield search.judge(subject)


def _in_properties(
    registry: Registry, arguments: argparse.Namespace, cache: ResultCache, reasons: Set[tuple[str, str]]
) -> Iterator[Outcome]:
    """The outcomes of the weaker properties."""
    search = PropertySearch(cache=cache, follows=read_follows(), explained=reasons, most=arguments.states)
    with progress_console.status("properties") as status:
        for family in families(registry, arguments.modules, named=arguments.named):

            def on_search(mutant: str, module: str = family.module) -> None:
                status.update(f"properties: {module}: {mutant}")

            yield from search.judge(family, on_search)


def judged(registry: Registry, modules: Sequence[str]) -> Iterator[Verdict]:
    """The verdict on the weaker properties of each module, and on what ``spec/conjuncts.toml`` says of the module.

    Args:
        registry: the registry.
        modules: the names of modules, as :func:`judged_modules` has them.
    """
    reasons = read_equivalents()
    cache = ResultCache(cache_folder("conjuncts"))
    search = PropertySearch(cache=cache, follows=read_follows(), explained=reasons.keys())
    for module in modules:
        began = monotonic()
        try:
            check_known(reasons, [place[1:] for place in _places(registry, [SPEC, PROPERTIES], [module])])
            (family,) = families(registry, [module])
            (verdict,) = verdicts(CHECKS[PROPERTIES], search.judge(family), reasons)
        except (MalformedRegistry, UnparsableModule) as error:
            verdict = Verdict(check=CHECKS[PROPERTIES], name=module, expected=EXPECTED, found=str(error), ok=False)
        yield replace(verdict, seconds=monotonic() - began)


SIDES = {SPEC: _in_spec, REFERENCE: _in_reference, PROPERTIES: _in_properties}


def table(module: str, outcomes: Sequence[Outcome]) -> Table:
    """The table of one module, one row for each conjunct."""
    shown = WordTable("place", "conjunct", "killed by", "model", title=module)
    shown.add_column("states", justify="right")
    shown.add_column("depth", justify="right")
    for outcome in outcomes:
        by = outcome.by if outcome.means is Means.PROPERTY else f"{outcome.means}: {outcome.by}".removesuffix(": ")
        conjunct = f"{outcome.operator.partition('!')[2]}: {outcome.change}"
        marked = Text(by, "" if outcome.means.kills else "yellow")
        states = f"{outcome.states:,}" if outcome.states else ""
        depth = str(outcome.depth) if outcome.depth else ""
        place = outcome.place.partition(":")[2]
        shown.add_row(place, conjunct, marked, outcome.model, states, depth)
    return shown


def table_of_pairs(found: Sequence[Pair]) -> Table:
    """The table of the properties, a row for each, with a mutant that no other property notices."""
    score = f"{sum(pair.ok for pair in found)} of {len(found)}"
    title = f"properties that alone notice a mutant, or are shown to follow: {score}"
    shown = WordTable("module", "property", "mutant that it alone notices", title=title)
    for pair in found:
        by = f"follows: {pair.reason}" if pair.reason and not pair.by else pair.by
        shown.add_row(pair.module, pair.name, by or Text("none", "yellow"))
    return shown


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``conjuncts``."""
    parser = subparsers.add_parser(
        "conjuncts",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help="modules of the spec or of the reference; default: all"
    )
    parser.add_argument("--only", choices=tuple(SIDES), help="one of the three sides")
    parser.add_argument("--list", action="store_true", help="say what would be removed, and run nothing")
    parser.add_argument(
        "--first",
        action="store_true",
        help="compare the spec's steps with the reference's graph, and ask TLC only where that cannot tell: "
        "much faster, names no properties",
    )
    parser.add_argument(
        "--named",
        action="store_true",
        help="try properties only against the mutants of spec/models: faster; others may notice a survivor",
    )
    parser.add_argument(
        "--states",
        type=int,
        default=MOST_STATES,
        metavar="N",
        help="properties: search at most so many states of each mutant of spec/models (default 20000)",
    )
    parser.add_argument("--jobs", type=at_least_one, default=2, metavar="N", help="runs of TLC at a time (default 2)")
    parser.add_argument(
        "--timeout", type=above_zero, default=120.0, metavar="S", help="seconds for each run (default 120)"
    )
    add_json(parser, "the verdicts, one a module")
    parser.set_defaults(run=run)


def _places(registry: Registry, sides: Sequence[str], modules: Sequence[str]) -> list[tuple[str, str, str]]:
    """(module, operator, change) of every conjunct of these modules, or of all."""
    found = []
    if SPEC in sides:
        found += [(s.module, *s.place) for s in subjects(registry, modules)]
    if REFERENCE in sides:
        found += [(s.module, *s.place) for s in reference_subjects(registry)]
    if PROPERTIES in sides:
        found += weaker_places(registry, modules)
    return [place for place in found if not modules or place[0] in modules]


def _modules(registry: Registry, sides: Sequence[str]) -> set[str]:
    """The modules of these sides. SANY reads none of them here, so that a misspelt one is refused at once."""
    found: set[str] = set()
    if SPEC in sides:
        found |= spec_modules(registry)
    if REFERENCE in sides:
        found |= {subject.module for subject in reference_subjects(registry)}
    if PROPERTIES in sides:
        found |= judged_modules(registry)
    return found


def _check_modules(named: Sequence[str], there: Set[str]) -> None:
    strays = set(named) - there
    if strays:
        raise MalformedRegistry(f"no module {min(strays)!r}; there are {', '.join(sorted(there))}")


def _check_parts(named: Sequence[str], there: Set[str]) -> None:
    bare = set(named) - there
    if bare or not there:
        where = f" in {min(bare)}" if bare else ""
        raise MalformedRegistry(f"no guard or property of a model to take a part from{where}")


def run(arguments: argparse.Namespace) -> int:
    """Run ``conjuncts``."""
    sides = [arguments.only] if arguments.only else list(SIDES)
    try:
        registry = Registry()
        reasons = read_equivalents()
        _check_modules(arguments.modules, _modules(registry, sides))
        places = _places(registry, sides, arguments.modules)
        _check_parts(arguments.modules, {place[0] for place in places})
        in_spec = {SPEC, PROPERTIES}  # their entries name the same modules
        known = places
        if in_spec.intersection(sides):
            known = _places(registry, sorted(in_spec.union(sides)), arguments.modules)
        check_known(reasons, [place[1:] for place in known])
        if arguments.list:
            for _, operator, change in places:
                answer_console.print(f"{operator}: {change}", markup=False, soft_wrap=True)
            return 0
        found = _judge(registry, arguments, sides, reasons)
    except (MalformedRegistry, UnparsableModule, UnusableMutant, GraphUnusable) as error:
        print(f"kafka-eos check conjuncts: {error}", file=sys.stderr)
        return 2
    print_verdicts(found, "guards, conjunct by conjunct")
    if arguments.json:
        write_verdicts(arguments.json, found)
    return 0 if all(verdict.ok for verdict in found) else 1


def _judge(
    registry: Registry, arguments: argparse.Namespace, sides: Sequence[str], reasons: dict[tuple[str, str], str]
) -> list[Verdict]:
    """Run the sides, print a table a module, and return the verdicts."""
    cache = ResultCache(cache_folder("conjuncts"))
    found: list[Verdict] = []
    for side in sides:
        outcomes: list[Outcome] = []
        for outcome in SIDES[side](registry, arguments, cache, reasons.keys()):
            outcomes.append(outcome)
            if not outcome.means.kills:
                by = f" ({outcome.by})" if outcome.by else ""
                progress_console.print(f"{outcome.means}: {outcome.place} {outcome.name}{by}", markup=False)
        every = _places(registry, [side], arguments.modules)
        tried = {outcome.entry for outcome in outcomes}
        assert {place[1:] for place in every} == tried, f"{side}: not every part was tried"
        outcomes.sort(key=lambda o: (o.module, int(o.place.rpartition(":")[2]), o.name))
        for module in dict.fromkeys(outcome.module for outcome in outcomes):
            answer_console.print(table(module, [o for o in outcomes if o.module == module]))
        if side == PROPERTIES:
            answer_console.print(table_of_pairs(pairs(outcomes, reasons)))
        found += verdicts(CHECKS[side], outcomes, reasons)
    return found
