"""The verdicts on the claims from the kept figures, by criteria that are given here and in each verdict.

Every ratio is taken within a round, in which both sides ran one after the other on the same broker. Next to the median
of the rounds is the interval that holds the true median with 95 % confidence for any distribution (the sign test). A
claim is refuted if such an interval lies wholly outside the claimed range, never by a median alone.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from kafka_eos_checks.drawing.plots import Curve, Point, curve_plot
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.costs import formats, wire
from kafka_eos_checks.lab.costs.measure import COMMIT_INTERVALS_MS, FORMAT, READ_TOPICS, TRANSACTION_SIZES, VALUE_BYTES
from kafka_eos_checks.lab.costs.turns import Evidence

CONFIDENCE = 0.95
AT_LEAST_ONCE_CLAIMED = (0.85, 0.95)  # "about 90 %"
EXACTLY_ONCE_CLAIMED = (0.60, 0.80)
NO_DIFFERENCE = (0.95, 1.05)

Part = Mapping[str, Any]


class UnusableEvidence(ValueError):  # noqa: N818 - named for the input
    """Raised for a file without measured evidence; names the file and the reason."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of paired ratios, and the interval that holds the true one."""

    median: float
    low: float
    high: float

    def within(self, claimed: tuple[float, float]) -> bool:
        """Whether the interval overlaps the claimed range."""
        return self.low <= claimed[1] and self.high >= claimed[0]

    def __str__(self) -> str:
        return f"{100 * self.median:.3g} % ({100 * self.low:.3g}-{100 * self.high:.3g})"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The two of the values between which the true median lies with ``CONFIDENCE``.

    Fewer than six values cannot give that confidence; then the interval spans all of them.
    """
    ordered = sorted(values)
    count = len(ordered)
    outside, left_out = 0.0, 0
    while left_out < count // 2:
        outside += 2 * math.comb(count, left_out) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        left_out += 1
    left_out = max(0, left_out - 1)
    return ordered[left_out], ordered[-1 - left_out]


def ratio(part: Part, side: str, base: str, column: str = "rate") -> Ratio:
    """The figure of one side divided by that of another, round by round."""
    pairs = zip(part["sides"][side][column], part["sides"][base][column], strict=True)
    ratios = [mine / others for mine, others in pairs if others]
    return Ratio(statistics.median(ratios), *interval(ratios))


def summary(values: Sequence[float]) -> str:
    """The median, the smallest and the largest value as text; a single value as it is."""
    if len(values) == 1:
        return f"{values[0]:,.4g}"
    return f"{statistics.median(values):,.4g} ({min(values):,.4g}-{max(values):,.4g})"


def read_evidence(path: Path) -> Evidence:
    """Read the evidence of a measurement.

    Raises:
        UnusableEvidence: if the file has none, or has another format.
    """
    try:
        evidence: Evidence = json.loads(path.read_text(encoding="utf-8"))
        if evidence["format"] != FORMAT:
            raise UnusableEvidence(f"{path}: format {evidence['format']}; only {FORMAT} is supported")
        assert isinstance(evidence["parts"], dict), "what measure() writes"
    except OSError as error:
        raise UnusableEvidence(f"{path}: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise UnusableEvidence(f"{path}: no measured evidence: {error}") from None
    return evidence


def circumstances(evidence: Evidence, part: Part) -> list[str]:
    """The circumstances of the measurement, for the evidence of a verdict."""
    machine = evidence["machine"]
    java = evidence["java"]
    lines = [
        f"measured {part['date']}{' with --quick' if evidence['quick'] else ''} on {machine['cores']} cores "
        f"({machine['processor'] or machine['architecture']}), niceness {part['niceness']}; one broker of Kafka "
        f"{evidence['kafka']} on loopback, replication factor 1",
        f"broker: {java['broker']}; client: {java['client']}",
        f"load average before and after: {part['load_average'][0]} and {part['load_average'][1]}",
    ]
    others = [value for row in part.get("sides", {}).values() for value in row["others"]]
    if others:
        lines.append(f"cores in use by others meanwhile: {summary(others)}")
    return lines


def side_lines(part: Part, base_of: Mapping[str, str]) -> list[str]:
    """A table of each side's records per second, CPU time per record, and rate relative to its base."""
    lines = [f"{'':36} {'records/s':>32} {'CPU us/record':>26}   rate as part of"]
    for name, row in part["sides"].items():
        base = base_of[name]
        against = "" if name == base else f"{base}: {ratio(part, name, base)}"
        lost = "".join(f"; {row[word]} {word}" for word in ("failed", "missing") if row.get(word))
        lines.append(f"{name:36} {summary(row['rate']):>32} {summary(row['cpu_us']):>26}   {against}{lost}".rstrip())
    return lines


def _verdict(name: str, claims: tuple[str, ...], expected: str, found: str, **more: Any) -> Verdict:
    return Verdict(
        check="cost", name=name, claims=claims, expected=expected, found=found, ok=found.startswith(expected), **more
    )


# ---- C40 and C39, counted


def counted_differences(row: Mapping[str, Any]) -> list[str]:
    """Deviations of a row from one end, at most one registration per partition, and one marker per partition."""
    transactions, partitions = row["transactions"], row["partitions"]
    ends = row["requests"][wire.ENDING]["requests"]
    registered = row["requests"].get(wire.REGISTERING, {"partitions": 0})["partitions"]
    differences = [f"{ends} ends of {transactions} transactions"] if ends != transactions else []
    if registered > transactions * partitions:
        differences.append(f"{registered} registrations, more than {transactions * partitions}")
    if row["markers"] != transactions * partitions:
        differences.append(f"{row['markers']} markers, not {transactions * partitions}")
    return [f"{row['client']}, {row['messages']} messages, {partitions} partitions: {text}" for text in differences]


def counted(part: Part, evidence: Evidence) -> Verdict:
    """C40: the requests and markers of a transaction do not depend on its number of records."""
    lines = [
        f"{'':22} {'messages':>8} {'partitions':>10}   a transaction: {'ends':>5} {'registering requests':>21} "
        f"{'partitions in them':>19} {'markers':>8} {'coordinator records':>20}   refused, tried again"
    ]
    differences = []
    by_kind: dict[tuple[str, int], set[tuple[float, float, float]]] = {}
    for row in part["transactions"]:
        differences += counted_differences(row)
        asked = row["requests"]
        registering = asked.get(wire.REGISTERING, {"requests": 0, "partitions": 0})
        each = [
            count / row["transactions"]
            for count in (
                asked[wire.ENDING]["requests"],
                registering["requests"],
                registering["partitions"],
                row["markers"],
                row["coordinator_records"] - 1,  # InitProducerId's
            )
        ]
        refused = sum(api["refused"] for api in asked.values())
        lines.append(
            f"{row['client']:22} {row['messages']:>8,} {row['partitions']:>10}   {'':14} {each[0]:>5.3g} "
            f"{each[1]:>21.3g} {each[2]:>19.3g} {each[3]:>8.3g} {each[4]:>20.3g}   {refused}"
        )
        by_kind.setdefault((row["client"], row["partitions"]), set()).add((each[0], each[2], each[3]))
    for (client, partitions), kinds in by_kind.items():
        if len(kinds) > 1:
            differences.append(f"{client}, {partitions} partitions: not the same for each number of messages")
    for version in (1, 2):
        for partitions in (1, 2, 3):
            row = wire.of_reference(version, partitions)
            registered = row["requests"].get(wire.REGISTERING, {"partitions": 0})["partitions"]
            lines.append(
                f"{row['client']}, up to {partitions} partitions: {row['transactions']} ends, {registered} "
                f"registrations, {row['markers']} markers"
            )
            if version == 1 and registered != row["markers"]:
                differences.append(f"{row['client']}: {registered} registrations and {row['markers']} markers")
    lines += [
        "",
        "librdkafka registers partitions by AddPartitionsToTxn, several in a request; the Java client, which speaks "
        "transaction version 2, only by its Produce requests",
        "criterion: holds when, for each client and number of partitions, ends, registrations and markers are the same "
        "for every number of messages, with at most one registration and exactly one marker for each partition",
    ]
    messages = sorted({row["messages"] for row in part["transactions"]})
    return _verdict(
        "requests and markers of a transaction",
        ("C40",),
        "holds",
        "refuted" if differences else "holds",
        figures={"kinds": len(part["transactions"]), "messages": f"{messages[0]}-{messages[-1]}"},
        evidence="\n".join([*differences, *lines, *circumstances(evidence, part)]),
        title="counted through a proxy and in the broker's log, for two clients and the reference",
    )


def same_batches(part: Part, evidence: Evidence) -> Verdict:
    """C39 on a real broker: the size of the batches that a client sends with and without idempotence."""
    without, numbered = part["batches"]["without idempotence"], part["batches"]["with idempotence"]
    shared = sorted(set(without) & set(numbered), key=int)
    same = bool(shared) and all(without[count] == numbered[count] for count in shared)
    lines = [f"{count} records: {without[count]} bytes without, {numbered[count]} with idempotence" for count in shared]
    lines.append("criterion: holds when batches of as many records are 12 bytes larger with idempotence")
    return _verdict(
        "batches of the Java client with and without idempotence",
        ("C39",),
        "refuted",
        "refuted: no bytes are added" if same else "differing sizes",
        evidence="\n".join([*lines, *circumstances(evidence, part)]),
        title="values of 100 bytes, the batches as the broker stored them",
    )


# ---- C42


def throughput(part: Part, evidence: Evidence, size: int) -> Verdict:
    """C42 for producers."""
    base = "at most once (acks=0)"
    least = ratio(part, "at least once (acks=1)", base)
    curve = {count: ratio(part, f"transactions of {count}", base) for count in TRANSACTION_SIZES}
    return _of_curve(
        f"throughput of producers, values of {size} bytes",
        part,
        evidence,
        [(0, least)],
        curve,
        side_lines(part, dict.fromkeys(part["sides"], base)),
    )


def copying(part: Part, evidence: Evidence) -> Verdict:
    """C42 for an application that reads, writes and commits offsets."""
    least = [(n, ratio(part, f"at-least-once, {n}", f"at-most-once, {n}")) for n in TRANSACTION_SIZES]
    curve = {n: ratio(part, f"exactly-once, {n}", f"at-most-once, {n}") for n in TRANSACTION_SIZES}
    lines = side_lines(part, {name: f"at-most-once, {name.partition(', ')[2]}" for name in part["sides"]})
    return _of_curve("throughput of an application that copies", part, evidence, least, curve, lines)


def _of_curve(
    name: str,
    part: Part,
    evidence: Evidence,
    least: Sequence[tuple[int, Ratio]],
    curve: Mapping[int, Ratio],
    lines: Sequence[str],
) -> Verdict:
    outside = [f"at least once{f', {n}' if n else ''}: {r}" for n, r in least if not r.within(AT_LEAST_ONCE_CLAIMED)]
    outside += [f"exactly once, {n}: {r}" for n, r in curve.items() if not r.within(EXACTLY_ONCE_CLAIMED)]
    first, last = curve[TRANSACTION_SIZES[0]], curve[TRANSACTION_SIZES[-1]]
    said = f"{100 * first.median:.2g} % with 1 record a transaction, {100 * last.median:.2g} % with 10,000"
    points = [Point(n, 100 * r.median, 100 * r.low, 100 * r.high) for n, r in curve.items()]
    low, high = EXACTLY_ONCE_CLAIMED
    compared = [f"at least once{f', {n}' if n else ''}: {r} of at most once" for n, r in least]
    compared += [f"exactly once, {n} records a transaction: {r} of at most once" for n, r in curve.items()]
    return _verdict(
        name,
        ("C42",),
        "refuted",
        f"refuted: {said}" if outside else f"holds: {said}",
        figures={f"percent at {n}": float(f"{100 * r.median:.3g}") for n, r in curve.items()}
        | {"percent, at least once": float(f"{100 * least[-1][1].median:.3g}")},
        evidence="\n".join([
            *compared,
            "",
            *lines,
            "",
            "criterion: refuted when the interval of any ratio to at most once lies wholly outside the claimed range: "
            "85-95 % for at least once, 60-80 % for exactly once at each number of records a transaction",
            *circumstances(evidence, part),
        ]),
        diagram=curve_plot(
            [Curve("exactly once", points)],
            x_label="records a transaction",
            y_label="% of the at-most-once throughput; shaded: claimed",
            band=(100 * low, 100 * high),
        ),
        title=part["about"],
    )  # fmt: skip


# ---- C43, C51: no difference


def _no_difference(
    name: str,
    claims: tuple[str, ...],
    ratios: Mapping[str, Ratio],
    cpu: Mapping[str, float],
    lines: Sequence[str],
    title: str,
) -> Verdict:
    """The verdict on a claim that two sides are equal: refuted if an interval is wholly off by more than 5 %."""
    off = {what: r for what, r in ratios.items() if not r.within(NO_DIFFERENCE)}
    low, high = min(r.low for r in ratios.values()), max(r.high for r in ratios.values())
    medians = ", ".join(f"{100 * r.median:.3g} %" for r in ratios.values())
    found = (
        "refuted: " + "; ".join(f"{r}, {what}" for what, r in off.items())
        if off
        else f"none beyond 5 % shown: {medians}, all within {100 * low:.3g}-{100 * high:.3g} %"
    )
    criterion = (
        "criterion: refuted when the interval of a throughput's ratio lies wholly below 95 % or above 105 %. "
        "Otherwise no difference beyond 5 % is shown, and the intervals give the largest one that may still exist. "
        "CPU time is given but not judged, because the claim is about throughput"
    )
    return _verdict(
        name,
        claims,
        "none beyond 5 % shown",
        found,
        figures={f"percent, {what}": float(f"{100 * r.median:.3g}") for what, r in ratios.items()},
        evidence="\n".join([
            *(f"throughput, {what}: {r}" for what, r in ratios.items()),
            *(f"CPU time of the client, {what}: {100 * part:.3g} %" for what, part in cpu.items()),
            "",
            *lines,
            "",
            criterion,
        ]),
        title=title,
    )  # fmt: skip


def reading(parts: Mapping[str, Part], evidence: Evidence) -> Verdict:
    """C43: read_committed against read_uncommitted on the same topics."""
    ratios, cpu, lines = {}, {}, []
    for name in READ_TOPICS:
        part = parts[f"read, {name}"]
        # Rates of the whole topic, because a read_committed consumer gets fewer records if transactions were aborted.
        ratios[name] = ratio(part, "read_uncommitted", "read_committed", "seconds")
        cpu[name] = ratio(part, "read_committed", "read_uncommitted", "cpu_seconds").median
        lines += [f"{name}: {part['records']:,} records, {part['transactions']:,} transactions"]
        lines += side_lines(part, dict.fromkeys(part["sides"], "read_uncommitted"))
    last = parts[f"read, {list(READ_TOPICS)[-1]}"]
    return _no_difference(
        "read_committed against read_uncommitted",
        ("C43",),
        ratios,
        cpu,
        [*lines, *circumstances(evidence, last)],
        "whole topics with read_committed, in percent of the same with read_uncommitted",
    )


def idempotence(parts: Mapping[str, Part], evidence: Evidence) -> Verdict:
    """C51: acks=all with and without idempotence."""
    ratios, cpu, lines = {}, {}, []
    for size in VALUE_BYTES:
        part = parts[f"idempotence {size}"]
        ratios[f"values of {size} bytes"] = ratio(part, "acks=all, idempotent", "acks=all")
        cpu[f"values of {size} bytes"] = ratio(part, "acks=all, idempotent", "acks=all", "cpu_us").median
        lines += [f"values of {size} bytes", *side_lines(part, dict.fromkeys(part["sides"], "acks=all"))]
        lines += circumstances(evidence, part)
    return _no_difference(
        "acks=all with and without idempotence",
        ("C51",),
        ratios,
        cpu,
        lines,
        "a producer with idempotence, in percent of the same without",
    )


# ---- latency, which no claim is about


def latency(part: Part, evidence: Evidence) -> Verdict:
    """The time of a record to a read_committed consumer, as a curve over the commit interval."""
    sides = part["sides"]
    lines = [f"{'':22} {'p50 ms':>26} {'p90 ms':>26} {'p99 ms':>26}"]
    for name, row in sides.items():
        cells = "".join(f" {summary(row[f'p{percent}_ms']):>26}" for percent in (50, 90, 99))
        lines.append(f"{name:22}{cells}")

    def points(percent: int) -> list[Point]:
        made = []
        for each in COMMIT_INTERVALS_MS:
            values = sides[f"commit every {each} ms"][f"p{percent}_ms"]
            made.append(Point(each, statistics.median(values), *interval(values)))
        return made

    curves = [Curve("p99", points(99)), Curve("p50", points(50))]
    middle = [point.y for point in curves[1].points]
    grows = all(later > earlier for earlier, later in pairwise(middle))
    said = f"{middle[0]:.3g} ms with {COMMIT_INTERVALS_MS[0]} ms, {middle[-1]:.4g} ms with {COMMIT_INTERVALS_MS[-1]} ms"
    return _verdict(
        "latency over commit interval",
        (),
        "grows with the interval",
        f"grows with the interval: {said}" if grows else f"does not grow at each step: {said}",
        figures={f"p50 at {each} ms": float(f"{y:.3g}") for each, y in zip(COMMIT_INTERVALS_MS, middle, strict=True)},
        evidence="\n".join([
            *lines,
            "",
            "criterion: the median latency is larger for each larger interval",
            *circumstances(evidence, part),
        ]),
        diagram=curve_plot(
            curves, x_label="commit interval (ms)", y_label="ms from send() to a read_committed poll()", log_y=True
        ),
        title=part["about"],
    )  # fmt: skip


def of_evidence(evidence: Evidence) -> list[Verdict]:
    """The verdicts on the parts that were measured."""
    parts = evidence["parts"]
    found = []
    if "wire" in parts:
        found += [counted(parts["wire"], evidence), same_batches(parts["wire"], evidence)]
    found += [throughput(parts[f"produce {n}"], evidence, n) for n in VALUE_BYTES if f"produce {n}" in parts]
    if "copy" in parts:
        found.append(copying(parts["copy"], evidence))
    if all(f"read, {name}" in parts for name in READ_TOPICS):
        found.append(reading(parts, evidence))
    if all(f"idempotence {size}" in parts for size in VALUE_BYTES):
        found.append(idempotence(parts, evidence))
    if "latency" in parts:
        found.append(latency(parts["latency"], evidence))
    return found


def verdicts(evidence: Evidence) -> list[Verdict]:
    """The verdicts of the codec, then those of the measured evidence."""
    return [*formats.verdicts(), *of_evidence(evidence)]
