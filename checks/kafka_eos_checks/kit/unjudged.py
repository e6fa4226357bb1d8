"""The exit code of a check that found nothing but could not judge everything or anything, and what allows it."""

import argparse
from collections.abc import Iterable

from kafka_eos_checks.kit.verdict import Standing, Verdict

UNJUDGED_EXIT = 3
EVERY_REASON = frozenset({"*"})


def add_allow_unjudged(parser: argparse.ArgumentParser, reasons: Iterable[str]) -> None:
    """Add ``--allow-unjudged``.

    Args:
        parser: the parser of a check.
        reasons: the codes of all reasons that its verdicts give (:attr:`Verdict.unjudged_for`).
    """
    known = frozenset(reasons)

    def codes(text: str) -> frozenset[str]:
        found = frozenset(part.strip() for part in text.split(","))
        if unknown := sorted(found - known):
            raise argparse.ArgumentTypeError(f"no reason {unknown[0]!r}; there are {', '.join(sorted(known))}")
        return found

    parser.add_argument(
        "--allow-unjudged",
        nargs="?",
        type=codes,
        const=EVERY_REASON,
        default=frozenset(),
        metavar="REASON,…",
        help="exit with 0 if nothing was found but not all could be judged, for any reason or only for these: "
        + ", ".join(sorted(known)),
    )


def exit_code(verdicts: Iterable[Verdict], allowed: frozenset[str]) -> int:
    """1 if a verdict differs, 3 if something was not judged, for a reason that is not allowed or for none, else 0.

    It is also 3 if no verdict judged anything, unless every reason is allowed or what is there is too recent.
    """
    every = list(verdicts)
    if not all(verdict.ok for verdict in every):
        return 1
    unjudged = [verdict for verdict in every if verdict.unknown]
    judged = any(verdict.standing is not Standing.NOTHING or verdict.recent for verdict in every)
    fine = allowed == EVERY_REASON or (
        judged and all(verdict.unjudged_for and set(verdict.unjudged_for) <= allowed for verdict in unjudged)
    )
    return 0 if fine else UNJUDGED_EXIT
