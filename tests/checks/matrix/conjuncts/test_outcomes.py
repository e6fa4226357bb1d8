"""The score of a module, and the reasons for which it fails."""

from dataclasses import replace

from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome, Pair, pairs, tell, verdicts


def outcome(change: str, means: Means, by: str = "") -> Outcome:
    return Outcome(operator="Queue!Enter", change=change, place="Queue.tla:7", means=means, by=by, model="Small")


KILLED = outcome("a -> TRUE", Means.PROPERTY, "NoLoss")
SHOWN = outcome("b -> TRUE", Means.GRAPH, "5 states, the spec has 4")
SURVIVOR = outcome("c -> TRUE", Means.NONE)
LATE = outcome("d -> TRUE", Means.UNDECIDED, "after 120 s")


def test_a_module_whose_conjuncts_are_all_killed_is_as_expected() -> None:
    (verdict,) = verdicts("conjunct", [KILLED, SHOWN], {})
    assert verdict.ok
    assert (verdict.name, verdict.found) == ("Queue", "2 of 2 killed")
    assert verdict.figures == {"score": "2/2", "property": 1, "evaluation error": 0, "graph": 1}
    assert "Queue!Enter: a -> TRUE: violates NoLoss in Small" in verdict.evidence


def test_a_survivor_fails_and_stands_first_in_the_evidence() -> None:
    (verdict,) = verdicts("conjunct", [KILLED, SURVIVOR], {})
    assert not verdict.ok
    assert verdict.found == "1 of 2 killed, 1 survive"
    assert verdict.evidence.startswith("survives: Queue.tla:7 Queue!Enter: c -> TRUE: nothing differs")


def test_an_undecided_conjunct_is_not_killed() -> None:
    (verdict,) = verdicts("conjunct", [LATE], {})
    assert not verdict.ok
    assert "not decided: after 120 s" in verdict.evidence


def test_an_explained_survivor_is_as_expected_and_shown_with_its_reason() -> None:
    (verdict,) = verdicts("conjunct", [KILLED, SURVIVOR], {("Queue!Enter", "c -> TRUE"): "it follows from a"})
    assert verdict.ok
    assert verdict.found == "1 of 2 killed, 1 equivalent"
    assert "it follows from a" in verdict.evidence


def test_an_explanation_of_something_that_is_killed_fails() -> None:
    (verdict,) = verdicts("conjunct", [KILLED], {("Queue!Enter", "a -> TRUE"): "nothing needs it"})
    assert not verdict.ok
    assert verdict.found == "1 of 1 killed, 1 refuted"


def test_each_module_has_a_verdict_of_its_own() -> None:
    other = Outcome(operator="Log!Append", change="x -> TRUE", place="Log.tla:1", means=Means.NONE)
    found = verdicts("conjunct", [KILLED, other], {})
    assert [(verdict.name, verdict.ok) for verdict in found] == [("Queue", True), ("Log", False)]


def test_a_property_as_a_whole_is_paired_with_the_mutant_that_it_alone_notices_or_with_a_reason() -> None:
    def whole(name: str, means: Means, by: str) -> Outcome:
        return replace(KILLED, operator=f"Queue!{name}", change=f"{name} -> TRUE", means=means, by=by)

    found = [
        whole("NoLoss", Means.MUTANT, "Forgets"),
        whole("Order", Means.NONE, "also NoLoss"),
        whole("NoGap", Means.NONE, "also Order"),
        replace(KILLED, operator="Queue!NoLoss", change="a -> TRUE"),  # a part of it
    ]
    shown = pairs(found, {("Queue!NoGap", "NoGap -> TRUE"): "it follows from Order"})
    assert shown == [
        Pair(module="Queue", name="NoLoss", by="Forgets", reason=""),
        Pair(module="Queue", name="Order", by="", reason=""),
        Pair(module="Queue", name="NoGap", by="", reason="it follows from Order"),
    ]
    assert [pair.ok for pair in shown] == [True, False, True]


def test_an_outcome_is_told_with_the_numbers_that_it_has() -> None:
    assert tell(replace(KILLED, states=1200, depth=4)).endswith(": violates NoLoss in Small, 1,200 states, depth 4")
    assert tell(KILLED).endswith(": violates NoLoss in Small")
