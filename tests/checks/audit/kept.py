"""Findings of a test compared whole, each field and each word of the evidence, with those in ``kept/<test file>.txt``.

A test says which rule is violated where. What else is told, in evidence and figures, is kept in the file, so that a
wrong number or name in it is noticed. After a change that is meant,
``KAFKA_EOS_KEEP=1 pytest tests/checks/audit/rules`` writes the files anew; then read what is different.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.rules.histories import Join
from kafka_eos_checks.audit.rules.log import LOG_RULES
from kafka_eos_checks.audit.segments.contents import Figures

from ..kept import compared


def as_kept(findings: Iterable[Finding], *others: object) -> None:
    """Compare what the running test has found with what is kept; ``others`` are told besides."""
    compared([*map(_line, findings), *(_short(str(other)) for other in others)])


def kept_join(result: Join) -> Join:
    """Compare the findings and figures of a history."""
    as_kept(result.findings, *_counts(result.figures.items()))
    return result


def run(*arguments: Any, **options: Any) -> audit.Audit:
    """An audit, of which findings, notes, figures, and why something is not judged are compared.

    Redacted names are others each time.
    """
    result = audit.run(*arguments, **options)
    if options.get("redact"):
        return result
    own = [verdict for verdict in result.verdicts if verdict.name not in LOG_RULES]
    unjudged: dict[str, list[str]] = {}
    for verdict in own:
        if verdict.unknown:
            unjudged.setdefault(verdict.unjudged, []).append(verdict.name)
    told = [f"{', '.join(rules)}: {why}" for why, rules in unjudged.items()]
    as_kept([*result.findings, *result.notes], *_counts((each.name, each.figures) for each in own), *told)
    return result


def _counts(figures: Iterable[tuple[str, Figures]]) -> Iterator[str]:
    """The figures of the rules that are not 0, in one line; no line if all are 0."""
    counted = (
        f"{name}: {', '.join(f'{key} {value}' for key, value in sorted(own.items()) if value)}"
        for name, own in sorted(figures)
        if any(own.values())
    )
    if line := "; ".join(counted):
        yield line


def _line(finding: Finding) -> str:
    own = {each.name: getattr(finding, each.name) for each in fields(finding) if each.name != "evidence"}
    defaults = {each.name: each.default for each in fields(finding)}
    named = ", ".join(f"{name} {value}" for name, value in own.items() if value != defaults[name])
    return _short(f"{named}: {finding.evidence}")


def _short(text: str) -> str:
    return re.sub(r"\b0{10,}(?=\d)", "", text.encode("unicode_escape").decode()).strip()
