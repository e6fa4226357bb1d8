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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts

EPILOG = """examples:
  kafka-eos check contracts                      every contract, with 10 s of CPU time for each
  kafka-eos check contracts varint --seconds 60
  kafka-eos check contracts --json build/verdicts/contracts.json

exit codes: 0 no contract was broken, 1 one was, 2 the call cannot be used
"""
SECONDS = 10.0
CONFIRMED, NOT_BROKEN, BROKEN = "confirmed", "not broken", "broken"


def assumed(contract: Callable[..., None]) -> list[str]:
    """The assumptions about a contract's arguments: the asserts that it begins with, as Python."""
    [function] = ast.parse(inspect.getsource(contract)).body
    assert isinstance(function, ast.FunctionDef)
    found = []
    for statement in function.body[1:]:  # behind the docstring
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
    found = BROKEN if broken or not messages else CONFIRMED if exhausted else NOT_BROKEN
    says = (contract.__doc__ or "").strip()
    left = "no path" if exhausted else "the paths that were left when it was broken, or the time over"
    evidence = [says, f"of arguments with {', '.join(assumed(contract)) or 'any values'}", f"unexplored: {left}"]
    evidence += (message.message for message in broken)
    return Verdict(
        check="contract",
        name=f"{module}: {contract.__name__}",
        expected="not broken",
        found=found,
        ok=found != BROKEN,
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
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="CPU time for each contract")
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
    verdicts = list(checked(arguments.modules, arguments.seconds))
    print_verdicts(verdicts, "contracts")
    for verdict in verdicts:
        if not verdict.ok:
            answer_console.print(f"\n{verdict.name}\n{verdict.evidence}", markup=False, soft_wrap=True)
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(verdict.ok for verdict in verdicts) else 1
