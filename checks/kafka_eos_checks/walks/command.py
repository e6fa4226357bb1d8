"""Random walks over every machine, with larger constants than TLC can search, under swarms of faults.

Each seed is a run of one layer (a model with larger constants). The run draws a random subset of the kinds of faults
and takes random actions; every property of the spec is judged after every step. Then the faults stop, and everything
that has to end must end. Coverage of actions, of the conjuncts of guards and of pairs of faults is counted. A run that
goes wrong is cut down to a shortest schedule and told.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from kafka_eos_checks.graphs.state_graph import instance_text
from kafka_eos_checks.kit.arguments import above_zero, add_json, at_least_one
from kafka_eos_checks.kit.progress import count_progress
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.models.kept_verdicts import Kept
from kafka_eos_checks.models.registry import MalformedRegistry, Registry
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.tla.result_cache import ResultCache, cache_folder
from kafka_eos_checks.walks import campaign, executors, guards, kept, whole
from kafka_eos_checks.walks.broken import explained, find_all, find_broken
from kafka_eos_checks.walks.campaign import Tally
from kafka_eos_checks.walks.layers import WALKS, Layer, broken

MOST_TOLD = 3
CLEAN = "nothing violated, all goals reached"
CLEAN_OF_RELEASE = "nothing violated beyond what TLC shows"
EPILOG = """examples:
  kafka-eos check walks --seeds 0..2000 --jobs 2
  kafka-eos check walks --seeds 0..20000 --spark
  kafka-eos check walks --system --seeds 0..500
  kafka-eos check walks --replay 1234
  kafka-eos check walks --kafka 4.3          what TLC does not show violated by Kafka 4.3 has to hold
  kafka-eos check walks --mutant NoGuard
  kafka-eos check walks --mutant all --json build/verdicts/soak-mutants.json
"""


def seed_range(text: str) -> tuple[int, int]:
    """``0..N``, both included.

    Raises:
        argparse.ArgumentTypeError: for anything else.
    """
    found = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError("expected a range of seeds, such as 0..2000")
    return int(found[1]), int(found[2])


def verdicts_of(tally: Tally, layers: Sequence[Layer], release: str = "") -> list[Verdict]:
    """One verdict for each machine, with the coverage of its runs.

    Args:
        tally: the tally of the runs.
        layers: the layers that were walked.
        release: the release of Kafka whose rules the layers have; "" for the rules of the specs.
    """
    found = []
    for module in dict.fromkeys(layer.model.module for layer in layers):
        own = {layer.name: layer for layer in layers if layer.model.module == module and layer.name in tally.layers}
        if own:
            found.append(_verdict(module, own, tally, release))
    return found


def _verdict(module: str, own: dict[str, Layer], tally: Tally, release: str) -> Verdict:
    rows = [tally.layers[name] for name in own]
    machine = next(iter(own.values())).model.machine_class()
    taken = {action for row in rows for action in row.coverage.actions}
    said = {reason for row in rows for _, reason in row.coverage.refusals}
    known, possible = guards.action_names(machine), guards.refusals(machine)
    failures = [failure for failure in tally.failures if failure.layer in own]
    evidence, diagram = [], ""
    for failure in sorted(failures, key=lambda failure: not failure.is_judged)[:MOST_TOLD]:
        layer = own[failure.layer]
        walker = campaign.walker_of(layer)
        run = walker.run(failure.seed)
        again = f"kafka-eos check walks --replay {failure.seed}{f' --kafka {release}' if release else ''}"
        head = f"{failure.layer}, seed {failure.seed}: {failure.how}; again: {again}"
        if run.wrong is None:
            evidence.append(head)
            continue
        text, drawn, _ = explained(walker, run)
        diagram = diagram or drawn
        evidence.append(f"{head}\n{text}")
    missing = [f"actions never taken: {', '.join(sorted(known - taken)) or 'none'}"]
    missing.append(f"conjuncts that never said no: {', '.join(sorted(possible - said)) or 'none'}")
    met = {pair for row in rows for pair in row.coverage.faults}
    pairs = guards.fault_pairs(own.values(), met)
    never = ", ".join(map(" and ".join, sorted(pairs - met))) or "none"
    missing.append(f"faults that never happened in one run, some of which no constants allow together: {never}")
    left = _left_out(own) if release else ""
    if release:
        named = {name for layer in own.values() for name in layer.properties}
        missing.append(f"judged: {', '.join(sorted(named)) or 'nothing'}")
        missing.append(f"left out, since TLC shows how Kafka {release} violates it: {left or 'none'}")
    clean = f"violated, as TLC shows: {left}; nothing else" if left else CLEAN
    found = _told(failures) or clean
    return Verdict(
        check="walk",
        name=_named(module, release),
        expected=clean,
        found=found,
        ok=not failures,
        figures={
            "layers": len(own),
            "runs": sum(row.runs for row in rows),
            "steps": sum(row.steps for row in rows),
            "without_faults": sum(row.fair_steps for row in rows),
            "cut_off": sum(row.cut_off for row in rows),
            "judged_twice": sum(row.sampled for row in rows),
            "actions": f"{len(taken & known)}/{len(known)}",
            "guard_conjuncts": f"{len(said & possible)}/{len(possible)}",
            "fault_pairs": f"{len(met)}/{len(pairs)}",
        },
        evidence="\n\n".join([*evidence, *missing]),
        diagram=diagram,
    )


def _told(failures: Sequence[campaign.Failure]) -> str:
    """How many runs are wrong and how the first one is, and the same of those that could not be judged."""
    wrong = [failure.how for failure in failures if failure.is_judged]
    others = [failure.how for failure in failures if not failure.is_judged]
    said = [f"{len(wrong)} run(s) wrong: {wrong[0]}"] if wrong else []
    return "; ".join([*said, f"{len(others)} run(s) without a verdict: {others[0]}"] if others else said)


def _left_out(own: dict[str, Layer]) -> str:
    usual = {layer.model.name: layer for layer in campaign.all_layers()}
    left = {name for layer in own.values() for name in set(usual[layer.model.name].properties) - set(layer.properties)}
    return ", ".join(sorted(left))


def _named(name: str, release: str) -> str:
    return f"{name}, Kafka {release}" if release else name


def summary_of(tally: Tally, first: int, last: int, seconds: float, release: str = "") -> Verdict:
    """The whole campaign as one verdict."""
    clean = CLEAN_OF_RELEASE if release else CLEAN
    counts = Counter("wrong" if failure.is_judged else "without a verdict" for failure in tally.failures)
    found = ", ".join(f"{count} run(s) {what}" for what, count in sorted(counts.items(), reverse=True)) or clean
    return Verdict(
        check="walk",
        name=_named(f"seeds {first}..{last}", release),
        expected=clean,
        found=found,
        ok=not tally.failures and tally.steps > 0,
        seconds=seconds,
        figures={
            "layers": len(tally.layers),
            "runs": tally.runs,
            "steps": tally.steps,
            "cpu_seconds": round(tally.seconds, 1),
            "steps_per_cpu_second": round(tally.steps / max(tally.seconds, 1e-9)),
            "judged_twice": tally.sampled,
            "corpus": len({seed for seed, _, _ in tally.news}),
        },
    )


def soak(first: int, last: int, jobs: int, folder: Path, *, spark: bool = False, release: str = "") -> Tally:
    """Run seeds, going on where an earlier call was ended; writes the corpus of the rules as the specs have them."""
    total = Tally()
    waiting = []
    for chunk in kept.chunks(first, last):
        known = kept.read_kept(folder, chunk, release)
        if known is None:
            waiting.append(chunk)
        else:
            total.add(known)
    with count_progress("runs", sum(end - begin + 1 for begin, end in waiting)) as advance:
        for chunk, tally in executors.run_chunks(
            waiting, min(jobs, max(1, len(waiting))), spark=spark, release=release
        ):
            kept.keep(folder, chunk, tally, release)
            total.add(tally)
            advance(chunk[1] - chunk[0] + 1)
    if not release:
        kept.write_corpus(folder, total)
    return total


def replay(seed: int, folder: Path, release: str = "") -> int:
    """Run one seed again and tell what it did."""
    layer = campaign.layer_of(seed, campaign.all_layers(release))
    walker = campaign.walker_of(layer)
    run = walker.run(seed)
    answer_console.print(f"seed {seed}: {layer.model.module}, layer {layer.name}: {layer.model.title}", markup=False)
    answer_console.print(f"{len(run.schedule)} steps with faults, {len(run.fair)} without", markup=False)
    if run.wrong is None:
        answer_console.print("\n".join(map(instance_text, (*run.schedule, *run.fair))), markup=False)
        answer_console.print(CLEAN)
        return 0
    text, drawn, steps = explained(walker, run)
    answer_console.print(f"{run.wrong.how}; {steps} steps are enough:\n{text}", markup=False, soft_wrap=True)
    if drawn:
        path = folder / f"seed-{seed}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(drawn, encoding="utf-8")
        answer_console.print(f"diagram: {path}", markup=False, soft_wrap=True)
    return 1


def _system(arguments: argparse.Namespace) -> int:
    """Runs of the whole system, or one of them again."""
    if arguments.replay is not None:
        outcome = whole.run_whole(arguments.replay)
        outcome = whole.shrunk(arguments.replay) if outcome.wrong else outcome
        answer_console.print(f"seed {outcome.seed}: {outcome.title}", *outcome.events, sep="\n", markup=False)
        answer_console.print(outcome.wrong or whole.CLEAN, markup=False)
        if outcome.diagram:
            path = arguments.folder / f"system-{outcome.seed}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(outcome.diagram, encoding="utf-8")
            answer_console.print(f"diagram: {path}", markup=False, soft_wrap=True)
        return 1 if outcome.wrong else 0
    first, last = arguments.seeds
    began = monotonic()
    outcomes = []
    with count_progress("runs", last - first + 1) as advance:
        for outcome in whole.run_all(range(first, last + 1), arguments.jobs, spark=arguments.spark):
            outcomes.append(outcome)
            advance(1)
    verdict = whole.verdict_of(sorted(outcomes, key=lambda outcome: outcome.seed), monotonic() - began)
    print_verdicts([verdict], "walks")
    if arguments.json:
        write_verdicts(arguments.json, [verdict])
    return 0 if verdict.ok else 1


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``walks``."""
    parser = subparsers.add_parser(
        "walks",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=seed_range, default=(0, 1999), metavar="A..B", help="default 0..1999")
    parser.add_argument("--jobs", type=at_least_one, default=2, help="worker processes (default: 2); 1 needs none")
    parser.add_argument(
        "--spark", action="store_true", help="run the seeds on Spark (a local one, or the active session)"
    )
    parser.add_argument(
        "--folder", type=Path, default=cache_folder("walks"), help="folder that keeps results (build/checked/walks)"
    )
    parser.add_argument("--corpus", action="store_true", help="run the kept seeds, each the first to meet something")
    parser.add_argument("--system", action="store_true", help="walk served clusters with applications and a mirror")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed again and tell what it does")
    parser.add_argument(
        "--kafka", default="", metavar="RELEASE", help="by the rules of this release of Kafka as it ships"
    )
    parser.add_argument("--mutant", metavar="NAME", help="find a mutant or a model that must fail; or all")
    parser.add_argument("--limit", type=above_zero, default=60.0, help="seconds of CPU for a mutant (default: 60)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``walks``."""
    if arguments.limit <= 0:
        print("kafka-eos check walks: --limit is above 0", file=sys.stderr)
        return 2
    if arguments.spark and (arguments.corpus or arguments.replay is not None or arguments.mutant):
        print("kafka-eos check walks: --spark runs --seeds; leave out --corpus, --replay, --mutant", file=sys.stderr)
        return 2
    if arguments.kafka and (arguments.corpus or arguments.system or arguments.mutant):
        print("kafka-eos check walks: --kafka runs --seeds; leave out --corpus, --system, --mutant", file=sys.stderr)
        return 2
    try:
        if arguments.kafka:
            arguments.kafka = Releases().chosen(arguments.kafka, sorted(WALKS))
        if arguments.system:
            return _system(arguments)
        if arguments.replay is not None:
            return replay(arguments.replay, arguments.folder, arguments.kafka)
        if arguments.mutant:
            return _mutants(arguments)
        return _seeds(arguments)
    except (MalformedRegistry, OSError, ValueError) as error:
        print(f"kafka-eos check walks: {error}", file=sys.stderr)
        return 2


def _seeds(arguments: argparse.Namespace) -> int:
    first, last = arguments.seeds
    began = monotonic()
    if arguments.corpus:
        seeds = kept.read_corpus(arguments.folder)
        first, last = seeds[0], seeds[-1]
        tally = campaign.run_seeds(seeds)
    else:
        release = arguments.kafka
        tally = soak(first, last, arguments.jobs, arguments.folder, spark=arguments.spark, release=release)
    verdicts = [
        *verdicts_of(tally, campaign.all_layers(arguments.kafka), arguments.kafka),
        summary_of(tally, first, last, monotonic() - began, arguments.kafka),
    ]
    print_verdicts(verdicts, "walks")
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def _mutants(arguments: argparse.Namespace) -> int:
    registry = Registry()
    if arguments.mutant != "all":
        found = find_broken(registry, arguments.mutant, arguments.limit)
        verdicts = [found]
        print_verdicts(verdicts)
        if found.evidence:
            answer_console.print(found.evidence, markup=False, soft_wrap=True)
    else:
        verdicts = []
        names = broken(registry)
        kept = Kept(
            means="simulation", registry=registry, cache=ResultCache(cache_folder("mutants")), limit=arguments.limit
        )
        find = partial(find_all, limit=arguments.limit, jobs=arguments.jobs)
        with count_progress("mutants", len(names)) as advance:
            for found in kept.verdicts([registry.get(name) for name in names], find):
                verdicts.append(found)
                advance(1)
                progress_console.print(f"{found.name}: {found.found}, {found.figures['cpu_seconds']} s of CPU")
        verdicts.sort(key=lambda verdict: names.index(verdict.name))
        print_verdicts(verdicts, "mutants and models that must fail, by walks")
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(verdict.ok for verdict in verdicts) else 1
