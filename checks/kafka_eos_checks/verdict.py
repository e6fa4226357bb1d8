"""What a check answers: one verdict, the same shape for every check, on the terminal, in JSON and in the report."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer of one check.

    Attributes:
        check: the kind of check: ``model``, ``mutant``, ``graph``, ``trace``, ``replay`` …
        name: what was checked, unique within its kind.
        expected: what the check had to find, in words (``holds``, ``violates NoGap``, ``0 findings`` …).
        found: what it found, in the same words.
        ok: whether the two agree. Decided by the check, never typed in.
        seconds: wall time.
        figures: counts with a name: states, depth, edges, events …
        evidence: plain text a person can follow: the counterexample as a story, the shortest path, the findings.
        claims: ids of the ledger's claims that this verdict settles.
        diagram: a sequence diagram as SVG, or "".
        title: one line that says what it is about, or "".
    """

    check: str
    name: str
    expected: str
    found: str
    ok: bool
    seconds: float = 0.0
    figures: dict[str, int | float | str] = field(default_factory=dict)
    evidence: str = ""
    claims: tuple[str, ...] = ()
    diagram: str = ""
    title: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields above."""
        return asdict(self)


def verdict_from_json(row: dict[str, Any]) -> Verdict:
    """The inverse of :meth:`Verdict.to_json`."""
    return Verdict(**{**row, "claims": tuple(row.get("claims", ()))})


def write_verdicts(path: Path, verdicts: Sequence[Verdict]) -> None:
    """Write verdicts as one JSON document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([v.to_json() for v in verdicts], indent=1) + "\n", encoding="utf-8")


def read_verdicts(path: Path) -> list[Verdict]:
    """Read what :func:`write_verdicts` wrote."""
    return [verdict_from_json(row) for row in json.loads(path.read_text(encoding="utf-8"))]
