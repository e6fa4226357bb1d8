"""The evidence of a finding, and the verdicts on it."""

from dataclasses import replace

from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.findings import Evidence, KafkaFinding, Shown, read_findings

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


def finding(**changes: object) -> KafkaFinding:
    """A finding with nothing that shows it except what is given."""
    bare = {"recording": "", "rules": (), "scenario": "", "broker": "", "test": "", "models": (), "mended": ()}
    return replace(read_findings()[0], id="torn", **(bare | changes))  # type: ignore[arg-type]


def test_a_recording_shows_the_first_rule_of_a_finding() -> None:
    found = finding(recording="violations", rules=("torn transaction", "gap"))
    [evidence] = found.evidence()
    assert evidence.words == "the audit finds 'torn transaction' in the kept recording violations"
    assert "kafka-eos audit example:violations" in list(found.commands())


def test_the_commands_that_reproduce_a_finding_are_those_of_its_evidence() -> None:
    assert list(finding(test="tests/test_it.py::test_torn").commands()) == ["pytest tests/test_it.py::test_torn"]
    assert list(finding(models=("Torn",), mended=("Whole",)).commands()) == ["kafka-eos check models Torn Whole"]
    assert list(finding(scenario="ab12", version=2).commands()) == [
        "kafka-eos ledger findings torn --check",
        "kafka-eos conform --bootstrap HOST:PORT --transaction-version 2 --repeat ab12",
    ]


def test_a_test_shows_a_finding_on_real_brokers_only_if_it_starts_them_itself() -> None:
    test = "tests/test_it.py::test_torn"
    [clients] = finding(test=test).evidence()
    [brokers] = finding(test=test, broker="kafka-4.3").evidence()
    _, other = finding(test=test, broker="kafka-4.3", scenario="ab12", version=2).evidence()
    assert (clients.shown, clients.name) == (Shown.CLIENT, "torn: client")
    assert (brokers.shown, brokers.name) == (Shown.REAL, "torn: brokers")
    assert (other.shown, other.name) == (Shown.CLIENT, "torn: client"), "the broker is the scenario's"
