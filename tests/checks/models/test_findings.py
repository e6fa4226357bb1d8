"""The evidence of a finding, and the verdicts on it."""

from dataclasses import replace
from typing import Any

from kafka_eos.histories.history import Event
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.findings import _TAKES, Evidence, KafkaFinding, Shown, possible_causes, read_findings

TWICE = "input processed twice"
ALL = {"no-leader-no-marker", "former-group-coordinator", "late-offsets", "late-end-of-transaction"}
ALL |= {"timed-out-offsets", "latest-member-epoch"}
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


def event(action: str, phase: str = "ok", run: str = "serve", **columns: Any) -> Event:
    return Event(run=run, order=0, process="proxy/app", action=action, phase=phase, group="g", **columns)


def test_a_served_run_rules_out_the_findings_whose_conditions_it_lacks() -> None:
    joined, sent = event("JoinGroup", generation=1), event("TxnOffsetCommit", generation=1)
    assert not possible_causes(TWICE, [[joined, sent]])
    refused = event("TxnOffsetCommit", "fail", error=14, generation=1)
    away = replace(event("Crash"), process="broker-1")
    assert set(possible_causes(TWICE, [[joined, sent, refused]])) == {"timed-out-offsets"}
    assert set(possible_causes(TWICE, [[joined, sent, away]])) == ALL - {
        "late-end-of-transaction",
        "latest-member-epoch",
    }
    member_of_kip_848 = event("TxnOffsetCommit", generation=5)
    assert set(possible_causes(TWICE, [[joined, sent, member_of_kip_848]])) == {"latest-member-epoch"}
    late = event("TxnOffsetCommit", "invoke", generation=1, detail={"repeats": 3})
    ended = event("EndTxn", detail={"committed": True})
    assert set(possible_causes(TWICE, [[joined, late, ended]])) == {"late-offsets", "late-end-of-transaction"}
    by_version_2 = event("EndTxn", detail={"committed": True, "next_producer_id": 7})
    assert set(possible_causes(TWICE, [[joined, late, by_version_2]])) == {"late-offsets"}
    assert set(possible_causes(TWICE, [[joined, sent], [joined, refused]])) == {"timed-out-offsets"}


def test_a_run_of_real_brokers_rules_out_none() -> None:
    own = [event("JoinGroup", run="a scenario", generation=1), event("TxnOffsetCommit", run="a scenario", generation=1)]
    by_a_client = [replace(each, run="serve", process="app") for each in own]
    assert (
        {*possible_causes(TWICE, [own])} == {*possible_causes(TWICE, [by_a_client])} == {*possible_causes(TWICE)} == ALL
    )


def test_what_rules_a_finding_out_is_about_findings_that_are_there() -> None:
    assert _TAKES.keys() <= {each.id for each in read_findings()}
