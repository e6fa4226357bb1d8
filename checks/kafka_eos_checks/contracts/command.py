"""Try to break contracts of the reference's arithmetic, codec and guards, with CrossHair.

CrossHair runs a function on symbolic arguments, path after path. A contract is confirmed when every path was run and
kept it; if paths are left when the time is over, the verdict says so.
"""

import argparse
import ast
import inspect
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks.kit.arguments import above_zero, add_json
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.models.registry import MalformedRegistry
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.mutants.rules import mutated

if TYPE_CHECKING:
    from kafka_eos_checks.contracts.conditions import Contract

EPILOG = """examples:
  kafka-eos check contracts                      every contract, with 10 s of CPU time for each
  kafka-eos check contracts varint --seconds 60
  kafka-eos check contracts --kafka 4.3          those about a rule that Kafka 4.3 has otherwise, with its rules
  kafka-eos check contracts --json build/verdicts/contracts.json

exit codes: 0 no contract was broken, 1 one was, 2 the call cannot be used
"""
SECONDS = 10.0
CONFIRMED, NOT_BROKEN, BROKEN = "confirmed", "not broken", "broken"
FAILS = "fails"
"""The contract ends with an error, for the arguments that are shown, or CrossHair cannot run it. For the reference that
is as bad as a broken promise. A mutant that ends so does not work, and breaks nothing."""


def assumed(contract: Callable[..., None]) -> list[str]:
    """The assumptions about a contract's arguments: the asserts that it begins with, as Python."""
    [function] = ast.parse(inspect.getsource(contract)).body
    assert isinstance(function, ast.FunctionDef)
    found = []
    for statement in function.body[1:]:  # after the docstring
        if not isinstance(statement, ast.Assert):
            break
        found.append(ast.unparse(statement.test))
    return found


def check(module: str, contract: Callable[..., None], seconds: float = SECONDS) -> Verdict:
    """Try to break one contract.

    Args:
        module: its subject.
        contract: a function of :mod:`.conditions`.
        seconds: the most CPU time.
    """
    from crosshair.core_and_libs import MessageType, analyze_function, run_checkables  # noqa: PLC0415 - an extra
    from crosshair.options import AnalysisKind, AnalysisOptionSet  # noqa: PLC0415

    stats: Counter[str] = Counter()
    options = AnalysisOptionSet(
        analysis_kind=[AnalysisKind.asserts],
        per_condition_timeout=seconds,
        per_path_timeout=seconds,
        report_all=True,
        stats=stats,
    )
    began, cpu_began = time.perf_counter(), time.process_time()
    messages = run_checkables(analyze_function(contract, options))
    cpu = time.process_time() - cpu_began
    unbroken = {MessageType.CONFIRMED, MessageType.CANNOT_CONFIRM}
    broken = [message for message in messages if message.state not in unbroken]
    exhausted = stats["exhaustion"] > 0
    kept = CONFIRMED if exhausted else NOT_BROKEN
    if any(message.message.startswith(AssertionError.__name__) for message in broken):
        found = BROKEN
    else:
        found = FAILS if broken or not messages else kept
    says = (contract.__doc__ or "").strip()
    left = "no path" if exhausted else "the paths that were left when it was broken, or the time over"
    evidence = [says, f"of arguments with {', '.join(assumed(contract)) or 'any values'}", f"unexplored: {left}"]
    evidence += (message.message for message in broken)
    return Verdict(
        check="contract",
        name=f"{module}: {contract.__name__}",
        expected="not broken",
        found=found,
        ok=found == kept,
        seconds=time.perf_counter() - began,
        figures={"paths": stats["num_paths"], "unexplored": "none" if exhausted else "some", "CPU": f"{cpu:.1f} s"},
        evidence="\n".join(evidence),
        title=says,
    )


def checked(names: Sequence[str], seconds: float) -> Iterator[Verdict]:
    """The verdicts on the contracts of some modules, or of all.

    Raises:
        MissingExtra: when CrossHair is not installed.
    """
    need("crosshair", "prove")
    from kafka_eos_checks.contracts.conditions import CONTRACTS  # noqa: PLC0415 - takes the time of its imports

    with progress_console.status("CrossHair starts") as status:
        for module in names or CONTRACTS:
            for contract in CONTRACTS[module]:
                status.update(f"{module}: {contract.promise.__name__}")
                yield check(module, contract.promise, seconds)


@contextmanager
def with_rules(contract: "Contract", overrides: Mapping[str, str]) -> Iterator[None]:
    """The contract's classes have other rules, as long as the context lasts.

    Args:
        contract: the contract.
        overrides: TLA+ operator -> the operator of ``spec/mutants`` that takes its place; rules of other classes are
            left out.
    """
    from kafka_eos_checks.contracts import conditions  # noqa: PLC0415 - takes the time of its imports

    own = {owner.__name__: owner for owner in contract.about}
    for name, owner in own.items():
        rules = {rule: other for rule, other in overrides.items() if hasattr(owner, snake_case(rule))}
        setattr(conditions, name, mutated(owner, rules))
    try:
        yield
    finally:
        for name, owner in own.items():
            setattr(conditions, name, owner)


def rules_of_release(contract: "Contract", releases: Releases, release: str) -> dict[str, str]:
    """The rules that a contract is about and that a release has otherwise, each with Kafka's operator."""
    about = {(owner.__module__.rpartition(".")[2], rule) for owner, rules in contract.about.items() for rule in rules}
    return {
        rule.name: rule.by_release[release]
        for rule in releases.rules
        if release in rule.by_release and (snake_case(rule.module), snake_case(rule.name)) in about
    }


def modules_of(contracts: "Mapping[str, Sequence[Contract]]", releases: Releases) -> set[str]:
    """The modules of the spec that contracts are about."""
    about = {owner.__module__.rpartition(".")[2] for own in contracts.values() for each in own for owner in each.about}
    return {module for module in releases.modules.paths if snake_case(module) in about}


def of_kafka(names: Sequence[str], release: str, seconds: float) -> Iterator[Verdict]:
    """The verdicts on the contracts about rules that a release of Kafka has otherwise, with these rules.

    Each rule that a contract rests on has to break it by itself, and no other rule may break it.

    Raises:
        MissingExtra: when CrossHair is not installed.
        MalformedRegistry: when there is no such release.
    """
    need("crosshair", "prove")
    from kafka_eos_checks.contracts.conditions import CONTRACTS  # noqa: PLC0415 - takes the time of its imports

    releases = Releases()
    releases.get(release)
    for module in names or CONTRACTS:
        for contract in CONTRACTS[module]:
            rules = rules_of_release(contract, releases, release)
            if not rules:
                continue
            alone = [rule for rule, other in rules.items() if _is_broken(module, contract, {rule: other}, seconds)]
            with with_rules(contract, rules):
                found = check(module, contract.promise, seconds)
            causes = sorted(contract.rests_on & rules.keys())
            is_broken = found.found == BROKEN
            told = f"{BROKEN} by Kafka's own {', '.join(sorted(alone) or rules)}" if is_broken else found.found
            yield replace(
                found, name=f"{found.name}, Kafka {release}", found=told,
                ok=found.found != FAILS and is_broken == bool(causes) and sorted(alone) == causes,
                expected=f"{BROKEN} by Kafka's own {', '.join(causes)}" if causes else NOT_BROKEN,
            )  # fmt: skip


def _is_broken(module: str, contract: "Contract", overrides: Mapping[str, str], seconds: float) -> bool:
    with with_rules(contract, overrides):
        return check(module, contract.promise, seconds).found == BROKEN


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``contracts``."""
    parser = subparsers.add_parser(
        "contracts",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="the subjects of the contracts; default: all")
    parser.add_argument("--seconds", type=above_zero, default=SECONDS, metavar="S", help="CPU time for each contract")
    parser.add_argument(
        "--kafka", default="", metavar="RELEASE", help="by the rules of this release of Kafka as it ships"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``contracts``."""
    from kafka_eos_checks.contracts.conditions import CONTRACTS  # noqa: PLC0415 - as above

    unknown = sorted(set(arguments.modules) - set(CONTRACTS))
    if unknown:
        there = ", ".join(CONTRACTS)
        print(f"kafka-eos check contracts: no contracts of {unknown[0]!r}; there are {there}", file=sys.stderr)
        return 2
    try:
        if arguments.kafka:
            releases = Releases()
            arguments.kafka = releases.chosen(arguments.kafka, modules_of(CONTRACTS, releases))
            verdicts = list(of_kafka(arguments.modules, arguments.kafka, arguments.seconds))
        else:
            verdicts = list(checked(arguments.modules, arguments.seconds))
    except MalformedRegistry as error:
        print(f"kafka-eos check contracts: {error}", file=sys.stderr)
        return 2
    print_verdicts(verdicts, "contracts")
    if arguments.kafka:
        about = [contract for name in arguments.modules or CONTRACTS for contract in CONTRACTS[name]]
        rest = len(about) - len(verdicts)
        told = f"{rest} more contracts are about no rule that Kafka {arguments.kafka} has otherwise, and are of it too"
        answer_console.print(f"\n{told}: kafka-eos check contracts", markup=False, soft_wrap=True)
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(verdict.ok for verdict in verdicts) else 1
