"""Change the Python code, one place at a time: the tests of the changed module have to fail.

A sample of mutants is drawn with a seed, by place. Each is tried in a copy of the clone, by the tests of its room that
execute the changed line and start no JVM, with --java by those that do, and with --whole by all tests of `make test`:
first the tests in the file that mirrors the module, then the quick ones, and last those of more than 5 s. A mutant
that no test notices is a survivor, unless matrix/equivalent_code.toml says why no test can notice it. Such a one is
tried all the same, and takes long, because every test that executes its line runs; --trust leaves that out. If no test
is seen to execute the line, none is run, and the survivor's line says so. Nothing is seen of a process that is killed,
that becomes another program, or that its test starts without the test's environment; nor of the tests that only --java
or --whole would try. A test that fails now and then notices nothing: it has to fail twice with the mutant, and to pass
again without it. Results are kept in build/checked/code, so unchanged mutants are not run again, and an interrupted
call continues.

Kinds of changes: core/... are those of Cosmic Ray (operators, numbers, loops, decorators, exceptions). eos/Argument,
Element, Operand and Statement leave one out, eos/Branch takes a condition for true or false, eos/Field and Parameter
take another field of the object or another parameter of the type, eos/Order exchanges two arguments, and eos/Text
changes a value in a text.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any

from kafka_eos_checks.kit.arguments import add_json, at_least_one
from kafka_eos_checks.kit.missing import Missing, need_clone
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import write_verdicts
from kafka_eos_checks.matrix import code
from kafka_eos_checks.tla.result_cache import ResultCache, cache_folder

EPILOG = """examples:
  kafka-eos check code server --sample 20
  kafka-eos check code reference/kafka_eos/server/fetching.py --sample 50 --seed 7
  kafka-eos check code formats server audit watch conform testing --json build/verdicts/code.json
  kafka-eos check code formats --seed 103 --trust
  kafka-eos check code audit --kinds eos/Text --sample 1000
  kafka-eos check code server --list

exit codes: 0 every mutant is killed or explained, 1 one survives, 2 the call cannot be used, or tests fail unmutated
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``code``."""
    parser = subparsers.add_parser(
        "code",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="rooms, or files from the clone's root")
    parser.add_argument("--sample", type=int, default=300, metavar="N", help="mutants of each package (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default 1)")
    parser.add_argument(
        "--kinds",
        metavar="PATTERN",
        default="*",
        help="changes of these names, as core/Number* or eos/* (default: all)",
    )
    parser.add_argument(
        "--java", action="store_true", help="try survivors with the tests of their room that start a JVM"
    )
    parser.add_argument("--whole", action="store_true", help="try survivors with all tests")
    parser.add_argument("--trust", action="store_true", help="do not try the mutants that are explained")
    parser.add_argument("--list", action="store_true", help="list the changes, and run nothing")
    parser.add_argument("--jobs", type=at_least_one, default=2, metavar="N", help="copies of the clone (default 2)")
    add_json(parser, "the verdicts, one a package")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``code``."""
    root = CLONE
    try:
        need_clone("sources and tests")
        reasons = code.read_explained()
        drawn = {
            package: code.sample(root, code.modules(root, package), arguments.sample, arguments.seed, arguments.kinds)
            for package in arguments.packages
        }
        if arguments.list:
            for mutant in (mutant for own in drawn.values() for mutant in own):
                answer_console.print(str(mutant), markup=False, soft_wrap=True)
            return 0
        found = []
        with (
            tempfile.TemporaryDirectory(prefix="kafka-eos-code-") as name,
            ExitStack() as ends,
            progress_console.status("copying") as status,
        ):
            cache, measured = ResultCache(cache_folder("code")), dict[str, Lock]()
            benches = [
                code.Bench(
                    root=root,
                    folder=Path(name) / str(place),
                    cache=cache,
                    java=arguments.java,
                    whole=arguments.whole,
                    measured=measured,
                )
                for place in range(arguments.jobs)
            ]
            for bench in benches:
                ends.callback(bench.close)
            for package, mutants in drawn.items():
                trusted = {each for each in mutants if arguments.trust and each.entry in reasons}
                tried = [each for each in mutants if each not in trusted]
                done = 0

                def on_fate(fate: code.Fate, package: str = package, total: int = len(tried)) -> None:
                    nonlocal done
                    done += 1
                    status.update(f"{package}: {done} of {total} mutants")
                    if not fate.is_killed:
                        progress_console.print(str(fate), markup=False)

                status.update(f"{package}: 0 of {len(tried)} mutants")
                fates = code.judged(benches, tried, on_fate)
                found.append(code.verdict(package, fates, reasons, trusted))
    except (code.UnusableCode, Missing) as error:
        print(f"kafka-eos check code: {error}", file=sys.stderr)
        return 2
    print_verdicts(found, f"code, seed {arguments.seed}")
    if arguments.json:
        write_verdicts(arguments.json, found)
    return 0 if all(verdict.ok for verdict in found) else 1
