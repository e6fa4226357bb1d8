"""The proofs hold, they can fail, and their assumptions are compared with the reference."""

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import z3

from kafka_eos.machines.machine import actions
from kafka_eos.machines.partition_log import PartitionLog
from kafka_eos.machines.producer_state import NO_PRODUCERS, Batch, Log
from kafka_eos_checks import cli
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.kit.verdict import read_verdicts
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.proofs import append, command
from kafka_eos_checks.proofs.induction import (
    EXPECTED,
    SOLUTION,
    Conjunct,
    Proof,
    Query,
    ask,
    discharge,
    minimal,
    refute,
)
from kafka_eos_checks.proofs.symbolic import Condition, Number, TooManyPaths, explore, merged

SEED = 11


# --- symbolic execution -------------------------------------------------------------------------------------------


def test_a_function_is_run_once_for_each_path_through_it() -> None:
    x = Number(z3.Int("x"))

    def sign(number: Number) -> int:
        if number == 0:
            return 0
        return 1 if number > 0 else -1

    outcomes = explore(lambda: sign(x))
    assert sorted(outcome.value for outcome in outcomes) == [-1, 0, 1]
    assert z3.Solver().check(z3.Not(z3.Or(*(outcome.condition for outcome in outcomes)))) == z3.unsat


def test_a_condition_that_is_asked_again_is_as_it_was() -> None:
    x = z3.Int("x")
    outcomes = explore(lambda: [bool(Number(x) > 5) for _ in range(2)])
    assert sorted(outcome.value for outcome in outcomes) == [[False, False], [True, True]]


def test_paths_that_the_assumptions_exclude_are_not_taken() -> None:
    x = z3.Int("x")
    outcomes = explore(lambda: "small" if Number(x) < 5 else "large", [x > 7])
    assert [outcome.value for outcome in outcomes] == ["large"]


def test_a_merged_function_is_one_term_and_its_caller_does_not_fork() -> None:
    x = z3.Int("x")
    absolute = merged(lambda n: n if n >= 0 else 0 - n)
    [outcome] = explore(lambda: absolute(Number(x)) + 1)
    assert z3.Solver().check(outcome.value.term != z3.Abs(x) + 1) == z3.unsat


def test_where_a_merged_function_has_no_value_is_kept() -> None:
    x = z3.Int("x")
    element = merged(lambda n: {0: 7}[0 if n == 0 else 1])
    [outcome] = explore(lambda: element(Number(x)))
    assert z3.Solver().check(outcome.crashed != (x != 0)) == z3.unsat


def test_where_a_merged_function_inside_of_another_one_has_no_value_is_kept() -> None:
    x = z3.Int("x")
    element = merged(lambda n: {0: 7}[0 if n == 0 else 1])
    outer = merged(lambda n: element(n) if n < 5 else 0)
    [outcome] = explore(lambda: outer(Number(x)))
    assert z3.Solver().check(outcome.crashed != z3.And(x != 0, x < 5)) == z3.unsat
    [direct] = explore(lambda: merged(element)(Number(x)))
    assert z3.Solver().check(direct.crashed != (x != 0)) == z3.unsat, "its only way with a value"


def test_a_merged_function_is_run_once_for_all_ways_that_begin_with_the_same_decisions() -> None:
    x, y = z3.Ints("x y")
    calls: list[str] = []

    def distance(name: str, number: Number) -> Number:
        calls.append(name)
        return number if number >= 0 else 0 - number

    apart = merged(distance)

    def run() -> Number:
        whole = apart("before", Number(x))
        if Number(y) > 0:
            whole += apart("positive", Number(x) + Number(y))
            whole += apart("then", Number(x) - 1) if Number(y) > 5 else apart("else", Number(x) - Number(y))
        return whole + apart("after", Number(y))

    outcomes = explore(run)
    # with y <= 0 it may be 0, or "after" has two ways
    assert Counter(calls) == {"before": 2, "positive": 2, "then": 2, "else": 2, "after": 4}
    between = z3.If(y > 5, z3.Abs(x - 1), z3.Abs(x - y))
    expected = z3.Abs(x) + z3.If(y > 0, z3.Abs(x + y) + between, 0) + z3.Abs(y)
    for outcome in outcomes:
        assert z3.Solver().check(outcome.condition, outcome.value.term != expected) == z3.unsat
    assert len(outcomes) == 3
    assert z3.Solver().check(z3.Not(z3.Or(*(outcome.condition for outcome in outcomes)))) == z3.unsat


def test_an_error_of_a_merged_function_is_that_of_each_way_that_reaches_it() -> None:
    x, y = z3.Ints("x y")
    found = merged(lambda: {}[0])

    def run() -> bool:
        if Number(x) == 0:
            found()
        return bool(Number(y) == 0) and found()

    outcomes = explore(run)
    errors = z3.Or(*(outcome.condition for outcome in outcomes if isinstance(outcome.error, KeyError)))
    assert z3.Solver().check(errors != z3.Or(x == 0, y == 0)) == z3.unsat
    assert [outcome.value for outcome in outcomes if outcome.error is None] == [False]


def test_a_loop_without_a_concrete_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_eos_checks.proofs.symbolic.MAX_DECISIONS", 20)

    def count_down(number: Number) -> int:
        steps = 0
        while number > steps:
            steps += 1
        return steps

    with pytest.raises(TooManyPaths):
        explore(lambda: count_down(Number(z3.Int("x"))))


def test_a_modulus_that_is_not_positive_is_refused() -> None:
    assert z3.Solver().check((Number(z3.Int("x")) % 1).term != 0) == z3.unsat
    for modulus in (0, -1):
        with pytest.raises(AssertionError):
            Number(z3.Int("x")) % modulus


def test_a_condition_cannot_be_decided_outside_of_an_exploration() -> None:
    with pytest.raises(AssertionError):
        bool(Condition(z3.Bool("b")))


# --- the machinery of induction, on a counter that must stay even ---------------------------------------------------


EVEN = Conjunct(name="Even", says="The counter is even.")
POSITIVE = Conjunct(name="Positive", says="The counter is not negative.")


def counter(step: int, *, decoration: bool = False) -> Proof:
    x = z3.Int("x")
    formulas = {"Even": x % 2 == 0, "Positive": x >= 0}
    primed = {"Even": (x + step) % 2 == 0, "Positive": x + step >= 0}

    def queries(overrides: object) -> Iterable[Query]:
        hypotheses = {name: [formula] for name, formula in formulas.items()}
        for goal in (EVEN, POSITIVE):
            yield Query(kind="consecution", step="Add", goal=goal, hypotheses=hypotheses, facts=[],
                        negated=z3.Not(primed[goal.name]), tell=lambda model: f"before: {model[x]}")  # fmt: skip
        never_one = Conjunct(name="NeverOne", says="The counter is not 1.")
        yield Query(kind="safety", step="NeverOne", goal=never_one, hypotheses=hypotheses, facts=[],
                    negated=x == 1, tell=str)  # fmt: skip

    positive = Conjunct(name="Positive", says="", documentation=decoration)
    return Proof(name="counter", title="", conjuncts=(EVEN, positive), queries=queries)  # type: ignore[arg-type]


def test_an_inductive_invariant_is_proved_and_another_is_not() -> None:
    assert all(verdict.ok for verdict in discharge(counter(2)))
    failing = [verdict for verdict in discharge(counter(3)) if not verdict.ok]
    assert [verdict.found for verdict in failing] == ["not proved: Even"]
    assert "before:" in failing[0].evidence


def test_an_action_is_shown_with_its_own_arguments() -> None:
    solver = z3.Solver()
    assert solver.check() == z3.sat
    told = {act.name: append._asked(solver.model(), act)[0] for act in actions(PartitionLog)}
    assert re.fullmatch(r"action: ExpireProducer\(producer_id -?\d+\)", told["ExpireProducer"])
    assert re.fullmatch(r"action: Restart\(\)", told["Restart"])
    assert [word for word in ("producer_id", "epoch", "sequence", "count") if word not in told["AppendBatch"]] == []


def test_an_unneeded_conjunct_is_reported_unless_it_is_marked_as_documentation() -> None:
    assert [(v.name, v.found, v.ok) for v in minimal(counter(2))] == [
        ("counter: conjunct Even", "needed", True),
        ("counter: conjunct Positive", "documentation", False),
    ]
    assert all(verdict.ok for verdict in minimal(counter(2, decoration=True)))


# --- append ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def queries() -> list[Query]:
    return list(append.queries({}))


@pytest.fixture(scope="module")
def proof(queries: list[Query]) -> Proof:
    return Proof(name="append", title="", conjuncts=append.PROOF.conjuncts, queries=lambda _: iter(queries))


@pytest.mark.thorough  # `make` proves the same
def test_appending_leaves_no_gap_and_no_duplicate_for_logs_of_any_length(proof: Proof) -> None:
    assert [verdict.name for verdict in discharge(proof) if not verdict.ok] == []


def test_every_action_of_the_machine_is_proved_to_keep_every_conjunct(queries: list[Query]) -> None:
    proved = {(query.step, query.goal.name) for query in queries if query.kind == "consecution"}
    assert proved == {(act.name, conjunct.name) for act in actions(PartitionLog) for conjunct in append.PROOF.conjuncts}


def test_with_six_in_flight_the_leader_refuses_a_retry_and_the_story_says_so(
    proof: Proof, queries: list[Query]
) -> None:
    [limit] = discharge(replace(proof, queries=lambda _: (query for query in queries if query.step == "6 in flight")))
    assert limit.name == "append: limit, 6 in flight"
    assert limit.found == "has a counterexample"
    assert limit.evidence.count("append: ") == 6
    assert limit.evidence.endswith("the leader: not a duplicate, OUT_OF_ORDER_SEQUENCE_NUMBER")


@pytest.mark.thorough
def test_each_conjunct_of_the_invariant_is_needed(proof: Proof) -> None:
    assert [verdict.name for verdict in minimal(proof) if not verdict.ok] == []


@pytest.mark.parametrize(
    ("mutant", "where"),
    [
        ("NoSequenceCheck", "consecution fails: AppendBatch, SequenceIsPosition"),
        ("CacheOfOne", "lemma fails: replay, StateFollowsLog"),
        pytest.param(
            "EpochStartsAnywhere", "consecution fails: AppendBatch, NoGapAtEpochStart", marks=pytest.mark.thorough
        ),
        pytest.param("NoFencing", "consecution fails: AppendBatch, ", marks=pytest.mark.thorough),
        pytest.param("NoWrap", "safety fails: NextIsAccepted, NextIsAccepted", marks=pytest.mark.thorough),
    ],
)
def test_with_a_mutated_rule_a_query_fails_and_its_state_is_shown(mutant: str, where: str) -> None:
    verdict = refute(append.PROOF, Registry().get(mutant))
    assert verdict.ok
    assert verdict.found.startswith(where)
    assert "before" in verdict.evidence
    assert "broken: " in verdict.evidence


def test_contradictory_hypotheses_are_detected(queries: list[Query]) -> None:
    taken = [query for query in queries if query.kind == "witness"]
    assert {query.step for query in taken} == {act.name for act in actions(PartitionLog)} - {"ExpireProducer"}
    assert all(ask(query, tell=False).found == SOLUTION for query in taken)
    empty = Query(
        kind="witness", step="", goal=EVEN, hypotheses={"Even": [z3.BoolVal(False)]}, facts=[],
        negated=z3.BoolVal(True), tell=str,
    )  # fmt: skip
    assert not ask(empty).ok
    assert set(EXPECTED) == {"witness", "limit"}


def test_tlc_checks_the_same_conjuncts_from_every_small_state_that_has_them() -> None:
    text = (spec_folder() / "proofs" / "PartitionLogInduction.tla").read_text(encoding="utf-8")
    inductive = re.search(r"^Inductive ==\n((?:    /\\ \w+\n)+)", text, re.MULTILINE)
    assert inductive is not None
    names = set(re.findall(r"\w+", inductive[1]))
    assert names == {conjunct.name for conjunct in append.PROOF.conjuncts}
    model = Registry().get("PartitionLogInduction")
    assert model.specification == "IndSpec"
    assert names <= set(model.invariants)
    for conjunct in append.PROOF.conjuncts:
        if re.search(rf"^{conjunct.name} ==", text, re.MULTILINE) and "2^31" not in conjunct.says:
            assert f"(* {conjunct.says} *)" in text


def test_the_replay_of_a_log_is_a_fold_of_its_steps() -> None:
    rng = random.Random(SEED)
    for _ in range(200):
        entries = [
            Batch(
                producer_id=rng.randrange(-1, 3), epoch=rng.randrange(3), sequence=rng.randrange(9), count=1, offset=n
            )
            for n in range(rng.randrange(12))
        ]
        folded = NO_PRODUCERS
        for entry in entries:
            folded = Log().replay(folded, [entry])
        assert Log().replay(NO_PRODUCERS, entries) == folded, f"seed {SEED}"


@pytest.mark.parametrize(("step", "code"), [(2, 0), (3, 1)])
def test_the_command_writes_its_verdicts_and_fails_if_a_proof_fails(
    step: int, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "proofs", lambda _: [counter(step)])
    assert cli.main(["check", "proofs", "--json", str(tmp_path / "proofs.json")]) == code
    verdicts = read_verdicts(tmp_path / "proofs.json")
    assert [verdict.check for verdict in verdicts] == ["proof", "proof"]
    assert all(verdict.ok for verdict in verdicts) == (code == 0)
    assert ("not proved: Even" in capsys.readouterr().out) == (code == 1)


def test_each_chosen_proof_has_a_verdict_by_the_rules_of_a_release_and_says_the_repairs_it_rests_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resting = replace(counter(2), name="other", module=append.PROOF.module, rests_on=append.PROOF.rests_on)
    monkeypatch.setattr(command, "proofs", lambda _: [counter(2), resting])
    assert cli.main(["check", "proofs", "--kafka", "4.3", "--json", str(tmp_path / "proofs.json")]) == 0
    names = [verdict.name for verdict in read_verdicts(tmp_path / "proofs.json")]
    assert names == ["counter: Kafka 4.3", "other: Kafka 4.3"]
    said = [line for line in capsys.readouterr().out.splitlines() if "no theorem" in line]
    assert said == [
        "other is no theorem about Kafka 4.3 as it ships: it rests on the repair of SnapshotOf "
        "(kafka-eos ledger findings retry-refused-after-restart)",
        "other is no theorem about Kafka 4.3 as it ships: it rests on the repair of AcceptsUnknownProducer "
        "(kafka-eos ledger findings gap-after-expiry)",
    ]


def test_proofs_are_chosen_by_name_and_all_without_names() -> None:
    assert [proof.name for proof in command.proofs([])] == list(command.NAMES)
    assert [proof.name for proof in command.proofs(["offsets", "append"])] == ["offsets", "append"]


@pytest.mark.parametrize("producer_id", [0, 3])
@pytest.mark.parametrize("sequence", [0, 1])
def test_the_first_batch_of_every_producer_begins_with_sequence_0(producer_id: int, sequence: int) -> None:
    holds = append.no_gap_at_log_start(append.BEFORE)
    solver = z3.Solver()
    solver.add(append.LENGTH == 1, append.PRODUCER_ID(0) == producer_id, append.SEQUENCE(0) == sequence, holds)
    assert (solver.check() == z3.sat) == (sequence == 0)


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["check", "proofs", "--help"])
    assert "kafka-eos check proofs append --minimal" in capsys.readouterr().out


def test_an_unknown_proof_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "proofs", "apend"]) == 2
    assert "no proof 'apend'; there are append" in capsys.readouterr().err


def test_a_mutant_of_another_machine_is_not_usable(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "proofs", "append", "--mutant", "PresentsNothing"]) == 2
    assert "no mutant of what is proved here" in capsys.readouterr().err
