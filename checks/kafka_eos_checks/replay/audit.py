"""The audit as other parts of the project call it: paths in, verdicts out."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_eos.history import Event, read_history
from kafka_eos_checks.replay import local
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.histories import HISTORY_RULES, Figures, join
from kafka_eos_checks.replay.inputs import Inputs, UnusableInput, open_inputs
from kafka_eos_checks.replay.local import LogAudit
from kafka_eos_checks.replay.rules import LOG_RULES
from kafka_eos_checks.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("local", "spark")
SHOWN_FINDINGS = 20  # in a verdict's evidence; all of them are in the file of findings
READABLE = "readable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit.

    Attributes:
        verdicts: one for readability, one for each rule over logs, and one for each rule over histories if there are
            any.
        findings: all violations, by place.
        logs: the audits of the single logs.
    """

    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    logs: tuple[LogAudit, ...] = field(default=())


def audit(
    paths: Sequence[Path],
    engine: str = "local",
    *,
    histories: Sequence[Path] = (),
    check_crc: bool = True,
    spark: "SparkSession | None" = None,
) -> list[Verdict]:
    """Audit log directories, recordings and histories; see :func:`open_inputs` for what ``paths`` may be.

    Args:
        paths: what to audit.
        engine: ``local`` (this process) or ``spark``; the findings are the same.
        histories: histories to join with the logs, besides those of recordings.
        check_crc: whether to compare each batch with its CRC.
        spark: a session for the engine ``spark``; without one a local session is started and stopped.

    Raises:
        UnusableInput, NotALogDirectory, MalformedHistory, OSError: the input cannot be used.
        MissingExtra: the engine's packages are not installed.
    """
    return list(run(paths, engine, histories=histories, check_crc=check_crc, spark=spark).verdicts)


def run(
    paths: Sequence[Path],
    engine: str = "local",
    *,
    histories: Sequence[Path] = (),
    check_crc: bool = True,
    spark: "SparkSession | None" = None,
) -> Audit:
    """As :func:`audit`, with all findings and the figures of each log."""
    with open_inputs(paths, histories) as inputs:
        started = time.perf_counter()
        if engine == "local":
            audits = local.audit_logs(inputs.logs, check_crc=check_crc)
        elif engine == "spark":
            from kafka_eos_checks.replay import spark as spark_engine  # noqa: PLC0415 - the light install has no Spark

            audits = spark_engine.audit_logs(inputs.logs, spark=spark, check_crc=check_crc)
        else:
            raise ValueError(f"engine {engine!r} is none of {', '.join(ENGINES)}")
        verdicts = log_verdicts(audits, time.perf_counter() - started)
        findings = [finding for log in audits for finding in log.findings]
        if inputs.histories:
            joined, more = history_verdicts(inputs)
            verdicts += joined
            findings += more
    return Audit(verdicts=tuple(verdicts), findings=tuple(sorted(findings, key=Finding.sort_key)), logs=tuple(audits))


def log_verdicts(audits: Sequence[LogAudit], seconds: float = 0.0) -> list[Verdict]:
    """A verdict on readability, and one for each rule over logs."""
    figures: Figures = {"logs": len(audits)}
    for name in ("segment_bytes", "batches", "records", "markers", "holes", "reruns"):
        figures[name] = sum(getattr(audit, name) for audit in audits)
    verdicts = [_readable(audits, figures, seconds)]
    findings = [finding for audit in audits for finding in audit.findings]
    verdicts += [_verdict(rule, findings, {"batches": figures["batches"]}) for rule in LOG_RULES]
    return verdicts


def _readable(audits: Sequence[LogAudit], figures: Figures, seconds: float) -> Verdict:
    """A torn or zero-filled tail of a log's last segment is what a crash leaves; any other damage is a violation."""
    tails: list[str] = []
    regions: list[str] = []
    for audit in audits:
        last = audit.log.segments[-1] if audit.log.segments else ""
        for file, region in audit.damage:
            words = f"{audit.log}/{file} bytes {region.position}-{region.end}: {region.kind}: {region.reason}"
            is_tail = file == last and region.kind != "corrupt"
            (tails if is_tail else regions).append(words)
    found = f"{len(regions)} corrupt regions" if figures["batches"] else "no batch to read"
    return Verdict(
        check="replay",
        name=READABLE,
        expected="0 corrupt regions",
        found=found,
        ok=found == "0 corrupt regions",
        seconds=seconds,
        figures={**figures, "unfinished_tails": len(tails)},
        evidence="\n".join(_shortened([*regions, *tails])),
    )


def history_verdicts(inputs: Inputs) -> tuple[list[Verdict], list[Finding]]:
    """A verdict for each rule over histories, and all their findings."""
    started = time.perf_counter()
    events: list[Event] = [event for path in inputs.histories for event in read_history(path)]
    if not events:
        raise UnusableInput(f"{', '.join(map(str, inputs.histories))}: no event in it, so nothing to judge")
    result = join(events, inputs.logs)
    seconds = time.perf_counter() - started
    verdicts = [
        _verdict(rule, result.findings, {"events": len(events), **result.figures[rule]}, seconds if i == 0 else 0.0)
        for i, rule in enumerate(HISTORY_RULES)
    ]
    return verdicts, result.findings


def _verdict(
    rule: str, findings: Sequence[Finding], figures: dict[str, int | float | str], seconds: float = 0.0
) -> Verdict:
    own = [finding for finding in findings if finding.rule == rule]
    found = f"{len(own)} findings"
    return Verdict(
        check="replay",
        name=rule,
        expected="0 findings",
        found=found,
        ok=not own,
        seconds=seconds,
        figures=figures,
        evidence="\n".join(_shortened([finding.in_words() for finding in own])),
    )


def _shortened(lines: list[str]) -> list[str]:
    rest = len(lines) - SHOWN_FINDINGS
    return lines if rest <= 0 else [*lines[:SHOWN_FINDINGS], f"… and {rest} more"]
