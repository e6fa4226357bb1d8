"""``kafka-eos lab costs``: the costs of exactly-once in bytes, requests, throughput and latency.

The bytes are those of the codec, the requests and markers are counted through the recorder's proxy, and the rest is
measured on one real broker on loopback, with sides that take turns. The measurements are kept as JSON; the verdicts on
the claims follow from them by criteria that each verdict states. No figure is a promise: each is given with the
machine and its load.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kafka_eos_checks.brokers.brokers import BrokerFailed
from kafka_eos_checks.brokers.jars import NoJars
from kafka_eos_checks.brokers.journal import StillWaiting
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.missing import MissingExtra
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import write_verdicts
from kafka_eos_checks.lab.costs.client import JobFailed
from kafka_eos_checks.lab.costs.measure import PARTS, measure
from kafka_eos_checks.lab.costs.verdicts import UnusableEvidence, read_evidence, verdicts

KEPT = Path(__file__).with_name("measured.json")

EPILOG = f"""examples:
  kafka-eos lab costs                              measure again: a quarter of an hour on two idle cores
  kafka-eos lab costs --quick                      fewer rounds: about four minutes
  kafka-eos lab costs --only wire                  some of: {", ".join(PARTS)}
  kafka-eos lab costs --kept                       verdicts from the kept figures, without measuring
  nice -n -5 kafka-eos lab costs --measured measured.json --json build/verdicts/costs.json

exit codes: 0 all as expected, 1 a verdict differs or the broker failed, 2 the call or the input cannot be used
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``costs``."""
    parser = subparsers.add_parser(
        "costs",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter runs, fewer records")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--kept", action="store_true", help=f"read the figures of {KEPT.name}, and measure nothing")
    parser.add_argument(
        "--measured",
        type=Path,
        metavar="FILE",
        help="write the figures, or with --kept read them; --only leaves the other parts of FILE as they are",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure or read the figures, then print the verdicts."""
    try:
        evidence = read_evidence(arguments.measured or KEPT) if arguments.kept else _measured(arguments)
    except (UnusableEvidence, NoJars, MissingExtra) as error:
        print(f"kafka-eos lab costs: {error}", file=sys.stderr)
        return 2
    except (BrokerFailed, JobFailed, StillWaiting) as error:
        print(f"kafka-eos lab costs: {error}", file=sys.stderr)
        return 1
    found = verdicts(evidence)
    print_verdicts(found, "costs")
    for verdict in found:
        if verdict.ok:
            answer_console.print(f"\n{', '.join(verdict.claims) or 'no claim'}: {verdict.name}: {verdict.found}")
            answer_console.print(verdict.evidence, markup=False, soft_wrap=True)
    if arguments.json:
        write_verdicts(arguments.json, found)
    return 0 if all(verdict.ok for verdict in found) else 1


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafka-eos-costs-") as folder:
        evidence = measure(Path(folder), quick=arguments.quick, only=arguments.only)
    progress_console.print(f"measured in {time.monotonic() - began:.0f} s")
    if arguments.measured:
        if set(arguments.only) != set(PARTS) and arguments.measured.exists():
            evidence["parts"] = read_evidence(arguments.measured)["parts"] | evidence["parts"]
        arguments.measured.parent.mkdir(parents=True, exist_ok=True)
        arguments.measured.write_text(to_text(evidence), encoding="utf-8")
    return evidence


def to_text(evidence: dict[str, Any]) -> str:
    """JSON with one line for each side or row, so that two measurements can be compared."""
    head = {name: value for name, value in evidence.items() if name != "parts"}
    parts = []
    for name, part in evidence["parts"].items():
        lines = []
        for field, value in part.items():
            if isinstance(value, dict):
                inner = ",\n".join(f"   {json.dumps(key)}: {json.dumps(row)}" for key, row in value.items())
                lines.append(f"  {json.dumps(field)}: {{\n{inner}\n  }}")
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                inner = ",\n".join(f"   {json.dumps(row)}" for row in value)
                lines.append(f"  {json.dumps(field)}: [\n{inner}\n  ]")
            else:
                lines.append(f"  {json.dumps(field)}: {json.dumps(value)}")
        parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    written = json.dumps(head, indent=1).removesuffix("\n}")
    return f'{written},\n "parts": {{\n' + ",\n".join(parts) + "\n }\n}\n"
