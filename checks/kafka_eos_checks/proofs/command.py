"""Prove invariants of the reference without bounds, with z3.

Initiation, consecution and safety are separate queries. A query that fails prints a counterexample to induction: a
state that the invariant allows, the action, the state after it, and the conjunct that broke.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.kit.workers import worker_pool
from kafka_eos_checks.models.registry import MalformedRegistry, Registry
from kafka_eos_checks.models.releases import Releases

if TYPE_CHECKING:
    from kafka_eos_checks.proofs.induction import Proof

EPILOG = """examples:
  kafka-eos check proofs                          every proof
  kafka-eos check proofs append --queries         with the time of each query
  kafka-eos check proofs append --minimal         each conjunct is needed: without it some query fails
  kafka-eos check proofs append --mutant NoWrap   with a mutated rule some query fails, and says how
  kafka-eos check proofs coordinator              one proof
  kafka-eos check proofs --kafka 4.3              with every rule of Kafka 4.3 that the proof does not need repaired
  kafka-eos check proofs --mutant all             every mutant of the rules that are proved

exit codes: 0 all as expected, 1 a verdict differs, 2 the call cannot be used
"""
NAMES = ("append", "reading", "coordinator", "fencing", "offsets")


def proofs(names: Sequence[str]) -> "list[Proof]":
    """The proofs of these names; all for none.

    Raises:
        MissingExtra: when z3 is not installed.
    """
    need("z3", "prove")
    from kafka_eos_checks.proofs import append, coordinator, fencing, offsets, reading  # noqa: PLC0415 - the light install has no z3

    found = {module.PROOF.name: module.PROOF for module in (append, reading, coordinator, fencing, offsets)}
    return [found[name] for name in names or NAMES]


def proved(chosen: "Sequence[Proof]") -> Iterator[Verdict]:
    """Each proof's verdicts; several proofs share the processors."""
    from kafka_eos_checks.proofs.induction import discharge  # noqa: PLC0415 - as above

    with progress_console.status("z3 starts") as status:
        if len(chosen) == 1:
            name = chosen[0].name
            yield from discharge(chosen[0], lambda query: status.update(f"{name}: {query.kind}, {query.step}"))
            return
        status.update(f"z3: {', '.join(proof.name for proof in chosen)}")
        with worker_pool(min(len(chosen), os.cpu_count() or 1)) as pool:
            for verdicts in pool.imap(_proved, [proof.name for proof in chosen]):
                yield from verdicts


def _proved(name: str) -> list[Verdict]:
    """A proof's verdicts, in a worker, which shows no progress of its own."""
    from kafka_eos_checks.proofs.induction import discharge  # noqa: PLC0415 - as above

    [proof] = proofs([name])
    return list(discharge(proof))


def refuted(chosen: "Sequence[Proof]", mutant: str, registry: Registry) -> Iterator[Verdict]:
    """The verdicts on one mutant, or on all mutants of the proofs' models.

    Raises:
        MalformedRegistry: when there is no such mutant, or none of these proofs is about it.
    """
    from kafka_eos_checks.proofs.induction import refute  # noqa: PLC0415 - as above

    mutants = registry.mutants.values() if mutant == "all" else [registry.get(mutant)]
    pairs = [(proof, entry) for proof in chosen for entry in mutants if proof.is_refuted_by(entry)]
    if not pairs:
        raise MalformedRegistry(f"{mutant!r} is no mutant of what is proved here")
    with progress_console.status("z3 starts") as status:
        for proof, entry in pairs:
            status.update(f"{proof.name}: mutant {entry.name}")
            yield refute(proof, entry)


def of_kafka(chosen: "Sequence[Proof]", release: str) -> Iterator[Verdict]:
    """The verdicts on proofs with the rules of a release, except those that a proof needs repaired.

    Raises:
        MalformedRegistry: when the release is not known.
    """
    from kafka_eos_checks.proofs.induction import of_release  # noqa: PLC0415 - as above

    releases = Releases()
    name = releases.get(release).name
    with progress_console.status("z3 starts") as status:
        for proof in chosen:
            status.update(f"{proof.name}: Kafka {name}")
            yield of_release(proof, releases.of_module(proof.module, name), name)


def _unproved(chosen: "Sequence[Proof]", release: str, releases: Releases) -> Iterator[str]:
    """A line for each repair that a proof rests on and that a release of Kafka lacks, with the finding behind it."""
    for proof in chosen:
        for name in proof.rests_on:
            rule = releases.rule(proof.module, name)
            if rule is not None and release in rule.by_release:
                told = f"{proof.name} is no theorem about Kafka {release} as it ships: it rests on the repair of {name}"
                yield f"{told} (kafka-eos ledger findings {rule.finding})" if rule.finding else told


def needed(chosen: "Sequence[Proof]") -> Iterator[Verdict]:
    """The verdicts on each proof's conjuncts."""
    from kafka_eos_checks.proofs.induction import minimal  # noqa: PLC0415 - as above

    with progress_console.status("dropping conjuncts"):
        for proof in chosen:
            yield from minimal(proof)


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``proofs``."""
    parser = subparsers.add_parser(
        "proofs",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("proofs", nargs="*", metavar="PROOF", help=f"some of {', '.join(NAMES)}; default: all")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--minimal", action="store_true", help="check that each conjunct is needed")
    what.add_argument("--mutant", metavar="ID", help="a mutant of the registry, or all: some query must fail")
    what.add_argument("--kafka", metavar="RELEASE", help="with the rules of this release of Kafka as it ships")
    parser.add_argument("--queries", action="store_true", help="print each query with its time")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``proofs``."""
    unknown = sorted(set(arguments.proofs) - set(NAMES))
    if unknown:
        print(f"kafka-eos check proofs: no proof {unknown[0]!r}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    chosen = proofs(arguments.proofs)
    from kafka_eos_checks.proofs.induction import EXPECTED  # noqa: PLC0415 - the light install has no z3

    try:
        if arguments.mutant:
            verdicts = list(refuted(chosen, arguments.mutant, Registry()))
        elif arguments.kafka:
            arguments.kafka = Releases().chosen(arguments.kafka, {proof.module for proof in chosen})
            verdicts = list(of_kafka(chosen, arguments.kafka))
        elif arguments.minimal:
            verdicts = list(needed(chosen))
        else:
            verdicts = list(proved(chosen))
    except MalformedRegistry as error:
        print(f"kafka-eos check proofs: {error}", file=sys.stderr)
        return 2
    print_verdicts(verdicts, "proofs")
    if arguments.kafka:
        for line in _unproved(chosen, arguments.kafka, Releases()):
            answer_console.print(line, markup=False, soft_wrap=True)
    for verdict in verdicts:
        wanted = arguments.queries or arguments.mutant or arguments.minimal or verdict.expected == EXPECTED["limit"]
        if verdict.ok and wanted and verdict.evidence:
            answer_console.print(f"\n{verdict.name}: {verdict.found}", markup=False, soft_wrap=True)
            answer_console.print(verdict.evidence, markup=False, soft_wrap=True)
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(verdict.ok for verdict in verdicts) else 1
