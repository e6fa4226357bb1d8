"""The audit as other parts of the project call it: paths in, verdicts out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kafka_eos.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.history import Event
from kafka_eos.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos_checks.replay import local
from kafka_eos_checks.replay.beside import audit_beside
from kafka_eos_checks.replay.contents import Figures
from kafka_eos_checks.replay.coordinator import COORDINATOR_RULES, read_coordinator_log
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.histories import HISTORY_RULES, join
from kafka_eos_checks.replay.history_files import read_events
from kafka_eos_checks.replay.inputs import Inputs, UnusableInput, open_inputs
from kafka_eos_checks.replay.jepsen import read_operations
from kafka_eos_checks.replay.jepsen_anomalies import ANOMALIES, allowed, anomalies
from kafka_eos_checks.replay.jepsen_export import write_operations
from kafka_eos_checks.replay.local import LogAudit
from kafka_eos_checks.replay.offsets import OFFSET_RULES, longest_logs, read_group_log, went_back
from kafka_eos_checks.replay.oracle import judge
from kafka_eos_checks.replay.progress import Advance, byte_progress
from kafka_eos_checks.replay.quoting import redacted
from kafka_eos_checks.replay.rules import LOG_RULES
from kafka_eos_checks.replay.splits import PartitionLog
from kafka_eos_checks.replay.transactions import (
    TRANSACTION_RULES,
    PartitionTransactions,
    audit_transactions,
    read_transactions,
)
from kafka_eos_checks.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("local", "spark")
SHOWN_FINDINGS = 20  # in a verdict's evidence; all of them are in the file of findings
READABLE = "readable"

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit.

    Attributes:
        verdicts: one for readability and one for each rule over logs; if there are any to judge, also one for each
            rule over the coordinator's logs, over transactions, over committed offsets, over histories, and for each
            anomaly of Jepsen's.
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
    oracle: float | None = None,
    seed: int = 0,
    redact: bool = False,
    spark: "SparkSession | None" = None,
    as_jepsen: Path | None = None,
) -> Audit:
    """As :func:`audit`, with all findings and the figures of each log.

    Args:
        paths: what to audit.
        engine: ``local`` or ``spark``.
        histories: further histories.
        check_crc: whether to compare each batch with its CRC.
        oracle: the share of the logs that the readable rule judges again, see :func:`oracle.judge`; None for none.
        seed: decides which logs these are.
        redact: whether evidence leaves out what clients wrote, see :func:`quoting.redacted`.
        spark: a session for the engine ``spark``.
        as_jepsen: where to write the history as Jepsen has it, see :mod:`jepsen_export`.

    Raises:
        UnusableInput: also, of ``as_jepsen``, unless there is one run.
    """
    with open_inputs(paths, histories) as inputs, redacted(redact):
        if as_jepsen is not None:
            try:
                write_operations(as_jepsen, _events(inputs))
            except ValueError as error:
                raise UnusableInput(str(error)) from None
        result = of_inputs(inputs, engine, check_crc=check_crc, spark=spark)
        if oracle is None or not result.logs:
            return result
        return replace(result, verdicts=(*result.verdicts, judge(result.logs, oracle, seed)))


def of_inputs(
    inputs: Inputs, engine: str = "local", *, check_crc: bool = True, spark: "SparkSession | None" = None
) -> Audit:
    """As :func:`run`, of inputs that are open already. Histories alone are judged by what clients and readers tell.

    Raises:
        UnusableInput: there is neither a log nor a history among them.
    """
    if not inputs.logs and not inputs.histories and not inputs.operations:
        raise UnusableInput("nothing to audit; give a broker's log directory, a recording or a history")
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    audits: list[LogAudit] = []
    if inputs.logs:
        verdicts, findings, audits = _of_logs(inputs.logs, engine, check_crc, spark)
    for given, judge_them in ((inputs.histories, history_verdicts), (inputs.operations, jepsen_verdicts)):
        if given:
            judged, more = judge_them(inputs)
            verdicts += judged
            findings += more
    return Audit(verdicts=tuple(verdicts), findings=tuple(sorted(findings, key=Finding.sort_key)), logs=tuple(audits))


def _of_logs(
    logs: Sequence[PartitionLog], engine: str, check_crc: bool, spark: "SparkSession | None"
) -> tuple[list[Verdict], list[Finding], list[LogAudit]]:
    """The verdicts of all rules that need no history, all their findings, and the audit of each log."""
    started = time.perf_counter()
    if engine == "local":
        audits = local.audit_logs(logs, check_crc=check_crc)
    elif engine == "spark":
        from kafka_eos_checks.replay import spark as spark_engine  # noqa: PLC0415 - the light install has no Spark

        audits = spark_engine.audit_logs(logs, spark=spark, check_crc=check_crc)
    else:
        raise ValueError(f"engine {engine!r} is none of {', '.join(ENGINES)}")
    verdicts = log_verdicts(audits, time.perf_counter() - started)
    findings = [finding for log in audits for finding in log.findings]
    judged, more, partitions = transaction_verdicts(audits)
    verdicts += judged
    findings += more
    for judged, more in (offset_verdicts(audits), beside_verdicts(audits, partitions)):
        verdicts += judged
        findings += more
    return verdicts, findings, audits


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


def transaction_verdicts(
    audits: Sequence[LogAudit],
) -> tuple[list[Verdict], list[Finding], list[PartitionTransactions]]:
    """A verdict for each rule over the coordinator's logs and over transactions, all their findings, and what was read.

    Without a log of ``__transaction_state`` and without markers there are none. In this process, for every engine.
    """
    started = time.perf_counter()
    coordinators = [a for a in audits if a.log.topic == COORDINATOR_TOPIC and a.batches and a.log.has_records]
    others = [audit for audit in audits if audit.log.topic != COORDINATOR_TOPIC and (coordinators or audit.markers)]
    if not coordinators and not others:
        return [], [], []
    with byte_progress("transactions", sum(audit.segment_bytes for audit in [*coordinators, *others])) as advance:
        states = [_read(read_coordinator_log, audit, advance) for audit in coordinators]
        partitions = [_read(read_transactions, audit, advance) for audit in others]
    result = audit_transactions(partitions, states)
    findings = [finding for state in states for finding in state.findings] + result.findings
    figures: Figures = {
        "records": sum(state.records for state in states),
        "transactional_ids": sum(len(state.ids) for state in states),
        "unknown": sum(state.unknown + state.unreadable for state in states),
    }
    seconds = time.perf_counter() - started
    verdicts = [_verdict(rule, findings, figures) for rule in COORDINATOR_RULES if states]
    verdicts += [_verdict(rule, findings, result.figures[rule]) for rule in TRANSACTION_RULES]
    return [replace(verdicts[0], seconds=seconds), *verdicts[1:]], findings, partitions


def beside_verdicts(
    audits: Sequence[LogAudit], partitions: Sequence[PartitionTransactions]
) -> tuple[list[Verdict], list[Finding]]:
    """A verdict for each rule over what lies beside the logs, as far as there is any of it, and all their findings."""
    started = time.perf_counter()
    result = audit_beside([audit.log for audit in audits], partitions)
    seconds = time.perf_counter() - started
    there = {rule: figures for rule, figures in result.figures.items() if any(figures.values())}
    verdicts = [_verdict(rule, result.findings, figures) for rule, figures in there.items()]
    return ([replace(verdicts[0], seconds=seconds), *verdicts[1:]] if verdicts else []), result.findings


def _read(read: Callable[[PartitionLog], Read], audit: LogAudit, advance: Advance) -> Read:
    result = read(audit.log)
    advance(audit.segment_bytes)
    return result


def offset_verdicts(audits: Sequence[LogAudit]) -> tuple[list[Verdict], list[Finding]]:
    """A verdict for each rule over logs of ``__consumer_offsets``, and all their findings; none without such logs."""
    own = [a.log for a in audits if a.log.topic == OFFSETS_TOPIC and a.batches and a.log.has_records]
    if not own:
        return [], []
    started = time.perf_counter()
    figures: Figures = {"checked": 0, "unknown": 0}
    findings = list(went_back(longest_logs(map(read_group_log, own)), figures))
    seconds = time.perf_counter() - started
    return [_verdict(rule, findings, figures, seconds) for rule in OFFSET_RULES], findings


def _events(inputs: Inputs) -> list[Event]:
    events = [event for path in inputs.histories for event in read_events(path)]
    if not events:
        given = ", ".join(map(str, inputs.histories))
        raise UnusableInput(f"{given}: no event in it, so nothing to judge" if given else "no history is given")
    return events


def history_verdicts(inputs: Inputs) -> tuple[list[Verdict], list[Finding]]:
    """A verdict for each rule over histories, and all their findings."""
    started = time.perf_counter()
    events = _events(inputs)
    result = join(events, [log for log in inputs.logs if log.has_records])
    seconds = time.perf_counter() - started
    verdicts = [
        _verdict(rule, result.findings, {"events": len(events), **result.figures[rule]}, seconds if i == 0 else 0.0)
        for i, rule in enumerate(HISTORY_RULES)
    ]
    return verdicts, result.findings


def jepsen_verdicts(inputs: Inputs) -> tuple[list[Verdict], list[Finding]]:
    """A verdict for each anomaly of Jepsen's, and all that are violations; what Jepsen allows is told as evidence.

    Raises:
        UnusableInput: a history without an operation of the workload.
    """
    started = time.perf_counter()
    findings: list[Finding] = []
    noted: list[Finding] = []
    figures: Figures = {}
    for path in inputs.operations:
        operations = read_operations(path)
        found, own = anomalies(operations, str(path))
        if not own["sent"] and not own["given"]:
            raise UnusableInput(f"{path}: no :send, :poll or :txn of Jepsen's workload for Kafka with anything in it")
        figures = {name: int(figures.get(name, 0)) + int(count) for name, count in own.items()}
        fine = allowed(operations)
        noted += [finding for finding in found if finding.rule in fine]
        findings += [finding for finding in found if finding.rule not in fine]
    seconds = time.perf_counter() - started
    verdicts: list[Verdict] = []
    for rule in ANOMALIES:
        own_noted = [f"allowed: {finding.in_words()}" for finding in noted if finding.rule == rule]
        verdict = _verdict(rule, findings, {**figures, "allowed": len(own_noted)}, 0.0 if verdicts else seconds)
        evidence = "\n".join(filter(None, [verdict.evidence, *_shortened(own_noted)]))
        verdicts.append(replace(verdict, evidence=evidence))
    return verdicts, findings


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
