"""The answer of a check: one verdict, the same shape for every check, on the terminal, in JSON and in the report."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kafka_eos_checks.kit.outputs import write_text


class Standing(StrEnum):
    """The values of a verdict: as expected, not as expected, not judged, or nothing there to judge.

    The last two are neither green nor red. NOT_JUDGED is about things that are there.
    """

    OK = "ok"
    FAIL = "FAIL"
    NOT_JUDGED = "not judged"
    NOTHING = "nothing to judge"


NOT_FOUND = "not found"
"""The result in a verdict on a search that ended at its limit."""
NAMED = 3  # verdicts by their names in the headline


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer of one check.

    Attributes:
        check: the kind of check: ``model``, ``mutant``, ``graph``, ``trace``, ``replay`` …
        name: what was checked, unique within its kind.
        expected: what the check had to find, in words (``holds``, ``violates NoGap``, ``0 findings`` …).
        found: what it found, in the same words.
        ok: whether the two agree. Decided by the check, never typed in.
        unjudged: why something could not be judged, or that there was nothing to judge; "" where all was judged. If
            not "", a verdict without a violation is not green.
        unknown: the number of existing things that could not be judged.
        unjudged_for: the reasons of these by a short name, each with its count.
        recent: the number of things that were too recent to judge: a later run of the check judges them.
        seconds: wall time.
        figures: counts with a name: states, depth, edges, events …
        evidence: plain text for people: the counterexample as a story, the shortest path, the findings.
        claims: ids of the ledger's claims that this verdict settles.
        diagram: a sequence diagram as SVG, or "".
        title: one line that says what it is about, or "".
        advice: what a finding means and what to do next, or "".
        causes: ids of the findings in Kafka that are known to have this effect; each is a possible cause.
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
    unjudged: str = ""
    unknown: int = 0
    unjudged_for: dict[str, int] = field(default_factory=dict)
    recent: int = 0
    advice: str = ""
    causes: tuple[str, ...] = ()

    @property
    def standing(self) -> Standing:
        """The standing of the verdict."""
        if not self.ok:
            return Standing.FAIL
        if not self.unjudged:
            return Standing.OK
        return Standing.NOT_JUDGED if self.unknown else Standing.NOTHING

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields above and the standing; ``ok`` is true for the standing ``ok`` only."""
        return {**asdict(self), "standing": self.standing.value, "ok": self.standing is Standing.OK}


def verdict_from_json(row: dict[str, Any]) -> Verdict:
    """The inverse of :meth:`Verdict.to_json`."""
    fields = {name: value for name, value in row.items() if name != "standing"}
    if fields.get("ok") is False and "standing" in row:
        fields["ok"] = row["standing"] != Standing.FAIL
    return Verdict(**{**fields, "claims": tuple(row.get("claims", ())), "causes": tuple(row.get("causes", ()))})


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 finding``, ``2 findings``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def first_of(names: Sequence[str], most: int) -> str:
    """The first of some names, and how many more there are: ``a, b and 3 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def headline(verdicts: Sequence[Verdict]) -> str:
    """All verdicts in one line: what was found that differs, how many are not judged, or have nothing to judge."""
    counts = Counter(verdict.standing for verdict in verdicts)
    nothing = counts.pop(Standing.NOTHING, 0)
    total, unjudged = counts.total(), counts[Standing.NOT_JUDGED]
    differing = [verdict for verdict in verdicts if verdict.standing is Standing.FAIL]
    noun = "verdict" if total == 1 else "verdicts"
    if not total:
        said = "nothing was judged"
    elif differing:
        said = f"{len(differing)} of {total} {noun} {'differs' if len(differing) == 1 else 'differ'}"
        said += f"; {unjudged} not judged" if unjudged else ""
    elif unjudged:
        said = f"{unjudged} of {total} {noun} not judged, {counts[Standing.OK]} as expected"
    else:
        said = "1 verdict, as expected" if total == 1 else f"{total} verdicts, all as expected"
    recent = sum(verdict.recent for verdict in verdicts)
    said += f"; too recent to judge: {recent}" if recent else ""
    said += f"; nothing to judge for {nothing} more" if nothing else ""
    if not differing:
        return said
    more = f"; and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
    return f"{'; '.join(f'{verdict.name}: {verdict.found}' for verdict in differing[:NAMED])}{more} ({said})"


def write_verdicts(path: Path, verdicts: Sequence[Verdict]) -> None:
    """Write verdicts as one JSON document."""
    write_document(path, [verdict.to_json() for verdict in verdicts])


def write_document(path: Path, content: Any) -> None:
    """Write a JSON document, and the folder it stands in.

    Raises:
        Unwritable: the file cannot be written.
    """
    write_text(path, json.dumps(content, indent=1) + "\n")


def read_verdicts(path: Path) -> list[Verdict]:
    """Read what :func:`write_verdicts` wrote."""
    return [verdict_from_json(row) for row in json.loads(path.read_text(encoding="utf-8"))]
