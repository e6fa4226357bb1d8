"""The evidence of a finding, and the verdicts on it."""

from dataclasses import replace

from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.findings import Evidence, Shown

MODEL = Verdict(check="model", name="TornTransaction", expected="holds", found="holds", ok=True)


def test_a_verdict_is_on_the_evidence_that_has_its_name_and_its_check() -> None:
    model = Evidence(shown=next(iter(Shown)), check="", name="TornTransaction", words="holds", command="check models")
    assert model.is_of(MODEL)
    assert model.is_of(replace(MODEL, check="mutant"))
    assert not model.is_of(replace(MODEL, check="graph"))
    for other in ("TornTransactio", "TornTransactions", "ATransaction", "Z"):
        assert not model.is_of(replace(MODEL, name=other))
    recording = replace(model, check="replay")
    assert recording.is_of(replace(MODEL, check="replay"))
    assert not recording.is_of(MODEL)
