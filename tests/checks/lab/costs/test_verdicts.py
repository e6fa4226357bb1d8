import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_eos_checks.drawing.svg import inert
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.costs.measure import READ_TOPICS, TRANSACTION_SIZES
from kafka_eos_checks.lab.costs.verdicts import (
    CONFIDENCE,
    UnusableEvidence,
    interval,
    of_evidence,
    ratio,
    read_evidence,
    summary,
)

Evidence = dict[str, Any]
Make = Callable[[], Evidence]


def named(evidence: Evidence, name: str) -> Verdict:
    return next(verdict for verdict in of_evidence(evidence) if verdict.name.startswith(name))


def slowed(part: dict[str, Any], side: str, factor: float, column: str = "rate") -> None:
    row = part["sides"][side]
    row[column] = [value * factor for value in row[column]]


@pytest.mark.parametrize(("count", "left_out"), [(3, 0), (5, 0), (6, 0), (8, 0), (9, 1), (15, 3), (17, 4), (31, 9)])
def test_the_interval_leaves_out_as_many_values_as_the_sign_test_lets_it(count: int, left_out: int) -> None:
    values = [float(n) for n in range(count)]
    assert interval(values) == (left_out, count - 1 - left_out)

    def outside(each_side: int) -> float:
        return 2 * sum(math.comb(count, k) for k in range(each_side + 1)) / 2**count

    assert outside(left_out) <= 1 - CONFIDENCE or left_out == 0
    assert outside(left_out + 1) > 1 - CONFIDENCE


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    dice = random.Random(1)
    held = 0
    for _ in range(2000):
        low, high = interval([dice.lognormvariate(0, 1) for _ in range(15)])
        held += low <= 1 <= high
    assert held / 2000 > CONFIDENCE - 0.02


def test_a_ratio_is_taken_within_a_round() -> None:
    part = {"sides": {"a": {"rate": [10, 200, 3000]}, "b": {"rate": [20, 400, 6000]}}}
    found = ratio(part, "a", "b")
    assert (found.median, found.low, found.high) == (0.5, 0.5, 0.5)
    assert str(found) == "50 % (50-50)"
    assert (summary([1, 2, 3]), summary([4.5])) == ("2 (1-3)", "4.5")


def test_every_measured_claim_has_a_verdict_with_its_criterion_and_circumstances(evidence: Make) -> None:
    found = of_evidence(evidence())
    assert {claim for verdict in found for claim in verdict.claims} == {"C39", "C40", "C42", "C43", "C51"}
    for verdict in found:
        assert verdict.check == "cost"
        assert "criterion: " in verdict.evidence
        assert "2 cores" in verdict.evidence
        assert "load average" in verdict.evidence
        assert not verdict.diagram or inert(verdict.diagram) == verdict.diagram


def test_counts_that_do_not_depend_on_the_messages_hold(evidence: Make) -> None:
    assert named(evidence(), "requests and markers").found == "holds"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row.update(markers=row["markers"] + 1), "16 markers, not 15"),
        (lambda row: row["requests"]["EndTxn"].update(requests=6), "6 ends of 5 transactions"),
        (lambda row: row["requests"]["AddPartitionsToTxn"].update(partitions=16), "16 registrations, more than 15"),
        (lambda row: row["requests"]["AddPartitionsToTxn"].update(partitions=10), "not the same for each number"),
    ],
)
def test_a_count_that_differs_refutes(evidence: Make, change: Callable[[Any], None], said: str) -> None:
    made = evidence()
    change(
        next(r for r in made["parts"]["wire"]["transactions"] if r["client"] == "librdkafka" and r["partitions"] == 3)
    )
    verdict = named(made, "requests and markers")
    assert verdict.found == "refuted"
    assert not verdict.ok
    assert said in verdict.evidence


def test_batches_that_grow_with_idempotence_are_reported(evidence: Make) -> None:
    made = evidence()
    assert named(made, "batches of the Java client").ok
    made["parts"]["wire"]["batches"]["with idempotence"] = {"5": [618]}
    assert not named(made, "batches of the Java client").ok
    made["parts"]["wire"]["batches"]["with idempotence"] = {"4": [500]}
    assert not named(made, "batches of the Java client").ok


def test_a_curve_that_stays_within_what_is_claimed_holds(evidence: Make) -> None:
    for name in ("throughput of producers", "throughput of an application"):
        assert named(evidence(), name).found == "holds: 70 % with 1 record a transaction, 70 % with 10,000"


@pytest.mark.parametrize("size", TRANSACTION_SIZES)
@pytest.mark.parametrize("factor", [0.5, 1.4])
def test_a_curve_that_leaves_it_at_one_size_is_refuted(evidence: Make, size: int, factor: float) -> None:
    made = evidence()
    slowed(made["parts"]["produce 100"], f"transactions of {size}", factor)
    slowed(made["parts"]["copy"], f"exactly-once, {size}", factor)
    assert named(made, "throughput of producers, values of 100").found.startswith("refuted")
    assert named(made, "throughput of an application").found.startswith("refuted")
    assert named(made, "throughput of producers, values of 1000").found.startswith("holds")


def test_at_least_once_far_from_90_percent_is_refuted(evidence: Make) -> None:
    made = evidence()
    slowed(made["parts"]["produce 100"], "at least once (acks=1)", 0.5)
    assert named(made, "throughput of producers, values of 100").found.startswith("refuted")


def test_a_curve_whose_interval_reaches_what_is_claimed_is_not_refuted_by_its_median(evidence: Make) -> None:
    made = evidence()
    row = made["parts"]["produce 100"]["sides"]["transactions of 10"]
    row["rate"] = [500.0] * 6 + [700.0] * 3
    assert named(made, "throughput of producers, values of 100").found.startswith("holds")


def test_equal_sides_show_no_difference(evidence: Make) -> None:
    for name in ("read_committed against", "acks=all with"):
        assert named(evidence(), name).found.startswith("none beyond 5 % shown")


def test_a_difference_in_throughput_refutes_and_one_in_cpu_time_is_only_reported(evidence: Make) -> None:
    made = evidence()
    slowed(made["parts"][f"read, {next(iter(READ_TOPICS))}"], "read_committed", 1.5, "seconds")
    slowed(made["parts"]["idempotence 100"], "acks=all, idempotent", 1.5, "cpu_us")
    reading = named(made, "read_committed against")
    assert reading.found == "refuted: 66.7 % (66.7-66.7), no transactions"
    assert not reading.ok
    idempotence = named(made, "acks=all with")
    assert idempotence.ok
    assert "CPU time of the client, values of 100 bytes: 150 %" in idempotence.evidence


def test_latency_that_does_not_grow_with_the_interval_is_reported(evidence: Make) -> None:
    made = evidence()
    assert named(made, "latency").ok
    slowed(made["parts"]["latency"], "commit every 30 ms", 0.1, "p50_ms")
    assert not named(made, "latency").ok
    made = evidence()
    sides = made["parts"]["latency"]["sides"]
    sides["commit every 30 ms"]["p50_ms"] = sides["commit every 10 ms"]["p50_ms"]
    assert not named(made, "latency").ok


def test_parts_that_were_not_measured_have_no_verdict(evidence: Make) -> None:
    made = evidence()
    made["parts"] = {"latency": made["parts"]["latency"]}
    assert [verdict.name for verdict in of_evidence(made)] == ["latency over commit interval"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "no measured evidence"), ('{"format": 0, "parts": {}}', "format 0"), ('{"format": 1}', "parts")],
)
def test_a_file_that_is_no_evidence_says_why(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "measured.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UnusableEvidence, match=rf"measured\.json: .*{reason}"):
        read_evidence(file)
    with pytest.raises(UnusableEvidence, match="No such file"):
        read_evidence(tmp_path / "absent.json")


def test_evidence_is_read_as_it_was_made(tmp_path: Path, evidence: Make) -> None:
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(evidence()), encoding="utf-8")
    assert read_evidence(file) == evidence()
