"""The proof about reading holds, it can fail, and the laws that it assumes hold on the reference."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import z3
from immutables import Map

from kafka_eos.machines.consumer import Constants, Consumer
from kafka_eos.machines.machine import actions
from kafka_eos.machines.read_committed import AbortedTransaction, IndexedTransaction, ReadCommitted
from kafka_eos.machines.transactional_partition import (
    NO_OFFSET,
    NO_PRODUCER,
    LogEntry,
    UnstableTransaction,
)
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.proofs import reading
from kafka_eos_checks.proofs.induction import Proof, Query, ask, discharge, minimal

SEED = 7
CONSTANTS = Constants(
    producer_ids=frozenset(range(3)),
    epochs=frozenset({0}),
    max_epoch=2,
    coordinator_epochs=frozenset({0}),
    batch_kinds=frozenset({"transactional", "plain"}),
    offsets=frozenset(range(40)),
    transaction_version=1,
    max_leader_epoch=1,
    index_failures=True,
    expiration=True,
    cleaning=False,
    readers=frozenset({"read_committed"}),
    fetch_sizes=frozenset({3, 40}),
)


@pytest.fixture(scope="module")
def queries() -> list[Query]:
    return list(reading.queries({}))


@pytest.fixture(scope="module")
def proof(queries: list[Query]) -> Proof:
    return Proof(name="reading", title="", conjuncts=reading.PROOF.conjuncts, queries=lambda _: iter(queries))


@pytest.mark.thorough  # `make` proves the same
def test_a_read_committed_reader_gets_exactly_the_committed_records(proof: Proof) -> None:
    assert [verdict.name for verdict in discharge(proof) if not verdict.ok] == []


@pytest.mark.thorough  # `make` proves the same
def test_every_action_is_proved_to_keep_every_conjunct(queries: list[Query]) -> None:
    proved = {(query.step, query.goal.name) for query in queries if query.kind == "consecution"}
    assert proved == {(act.name, conjunct.name) for act in actions(Consumer) for conjunct in reading.PROOF.conjuncts}
    taken = {query.step for query in queries if query.kind == "witness"}
    assert taken == {act.name for act in actions(Consumer)} - {"Clean", "FetchUncommitted", "FetchAndHold"}


@pytest.mark.thorough
def test_each_conjunct_of_the_invariant_is_needed(proof: Proof, queries: list[Query]) -> None:
    of_steps = replace(proof, queries=lambda _: (query for query in queries if query.kind != "lemma"))
    assert [verdict.name for verdict in minimal(of_steps) if not verdict.ok] == []


@pytest.mark.thorough
def test_a_follower_that_appends_a_fetch_at_once_breaks_the_index_and_its_log_is_shown(
    proof: Proof, queries: list[Query]
) -> None:
    own = replace(proof, queries=lambda _: (query for query in queries if query.step.startswith("AppendedAtOnce")))
    verdicts = list(discharge(own))
    [limit] = [verdict for verdict in verdicts if verdict.name == "reading: limit, AppendedAtOnce"]
    assert limit.found == "has a counterexample"
    assert "broken: OpenBeginsBehindScan" in limit.evidence
    before, after = limit.evidence.split("after\n")
    ended = int(re.search(r"log: (\d+) entries", before)[1])  # type: ignore[index]
    told = dict(re.findall(r"^    (\d+): (\w+)", after, re.MULTILINE))
    assert [told[str(ended + n)] for n in range(3)] == ["abort", "transactional", "transactional"]
    mended = [verdict for verdict in verdicts if "AppendedAtOnceMended" in verdict.name]
    assert [verdict.found for verdict in mended] == ["proved"] * 3


@pytest.mark.parametrize(
    ("mutant", "action", "goal"),
    [
        ("HighWatermarkOnly", "FetchCommitted", "ReadIsDecided"),
        ("StopsAtLastBehind", "FetchCommitted", "DeliveredIsCommitted"),
        ("ListLost", "FetchCommitted", "DeliveredIsCommitted"),
        ("NothingIndexed", "AppendMarker", "EndedIsIndexedAndReplicated"),
        ("NothingElseOpen", "AppendMarker", "OpenBeginsBehindScan"),
        ("ForgottenTransactions", "ExpireProducer", "OpenIsUnstable"),
    ],
)
def test_with_a_mutated_rule_an_action_breaks_a_conjunct_and_its_log_is_shown(
    mutant: str, action: str, goal: str
) -> None:
    machine = reading.machine_for(Registry().get(mutant).overrides)
    act = next(act for act in actions(machine) if act.name == action)
    asked = reading.ASKING.consecution(act, reading.run_action(machine, act))
    [answer] = [ask(query) for query in asked if query.goal.name == goal]
    assert not answer.ok
    assert f"action: {action}(" in answer.evidence
    assert "\nafter\n" in answer.evidence, "the action has a value"
    assert f"broken: {goal}" in answer.evidence


@pytest.mark.parametrize(
    ("mutant", "count", "goal"),
    [
        ("TransactionsNotRebuilt", 1, "OpenIsUnstable"),
        ("AppendedAtOnce", 3, "OpenBeginsBehindScan"),
    ],
)
def test_with_a_mutated_replay_a_new_leader_has_another_log(mutant: str, count: int, goal: str) -> None:
    machine = reading.machine_for(Registry().get(mutant).overrides)
    kinds = reading.FETCHED_AT_ONCE if count == 3 else ()
    found = [ask(query, tell=False) for query in reading.of_replay(machine, count, "replay", kinds)]
    assert goal in {answer.query.goal.name for answer in found if not answer.ok}


def test_a_client_that_takes_the_list_as_sorted_breaks_the_law_of_two_transactions() -> None:
    machine = reading.machine_for(Registry().get("ListTakenAsSorted").overrides)
    law = next(query for query in reading.of_laws(machine) if query.step == "two transactions")
    assert not ask(law, tell=False).ok


def test_tlc_checks_the_same_conjuncts_from_every_small_state_that_has_them() -> None:
    text = (spec_folder() / "proofs" / "ConsumerInduction.tla").read_text(encoding="utf-8")
    inductive = re.search(r"^Inductive ==\n((?:    /\\ \w+\n)+)", text, re.MULTILINE)
    assert inductive is not None
    names = set(re.findall(r"\w+", inductive[1]))
    assert names == {conjunct.name for conjunct in reading.PROOF.conjuncts}
    model = Registry().get("ConsumerInduction")
    assert model.specification == "IndSpec"
    assert names <= set(model.invariants)
    for conjunct in reading.PROOF.conjuncts:
        assert f"(* {conjunct.says} *)" in text


# --- the laws, on the reference and on collections ------------------------------------------------------------


def some_transactions(rng: random.Random, count: int) -> frozenset[UnstableTransaction]:
    found = set()
    for _ in range(count):
        first = rng.randrange(20)
        last = rng.choice([NO_OFFSET, first + rng.randrange(1, 9)])
        found.add(UnstableTransaction(producer_id=rng.randrange(4), first_offset=first, last_offset=last))
    return frozenset(found)


def test_a_rules_result_for_many_transactions_follows_from_its_results_for_one_and_for_pairs() -> None:
    rng = random.Random(SEED)
    for _ in range(300):
        state = Consumer.initial(CONSTANTS)
        some = some_transactions(rng, rng.randrange(8))
        offset, watermark = rng.randrange(25), rng.randrange(25)
        log = state.log

        def stable(t: Any, log: Any = log, watermark: int = watermark) -> int:
            return Consumer(
                constants=CONSTANTS, log=_with_transactions(log, t), high_watermark=watermark,
                positions=Map(), delivered=Map(), held=Map(),
            ).last_stable_offset()  # fmt: skip

        def after(t: Any, state: Any = state, offset: int = offset) -> int:
            return state.stable_offset_after(t, 1, offset)  # type: ignore[no-any-return]

        for rule in (stable, after):
            assert _is_a_choice(rule, some), f"seed {SEED}"
        for judged in (lambda one, n=offset: state.with_replicated(one, n), lambda one: state.forgotten(one, 1)):  # noqa: B023
            alone = [judged(_with_transactions(log, frozenset({t}))).transactions for t in some]
            assert judged(_with_transactions(log, some)).transactions == frozenset().union(*alone), f"seed {SEED}"


def _with_transactions(log: Any, transactions: frozenset[UnstableTransaction]) -> Any:
    return type(log)(producers=log.producers, transactions=transactions)


def _is_a_choice(rule: Callable[[Any], int], some: frozenset[UnstableTransaction]) -> bool:
    found = rule(some)
    return not some or any(all(rule(frozenset({one, other})) == found for other in some) for one in some)


def test_an_entry_is_listed_if_it_is_after_each_earlier_entry() -> None:
    rng, rules = random.Random(SEED), ReadCommitted()
    for _ in range(300):
        index = []
        for place in range(rng.randrange(7)):
            first, last = rng.randrange(20), rng.randrange(20)
            index.append(
                IndexedTransaction(
                    producer_id=place, first_offset=first, last_offset=last, last_stable_offset=rng.randrange(22)
                )
            )
        position, upper = rng.randrange(20), rng.randrange(22)
        listed = [found.producer_id for found in rules.collected(index, position, upper)]
        expected = [
            place
            for place, entry in enumerate(index)
            if all(
                any(found.producer_id == place for found in rules.collected([*earlier, entry], position, upper))
                for earlier in ([], *([one] for one in index[:place]))
            )
        ]
        assert listed == expected, f"seed {SEED}"


def test_an_entry_passes_if_it_does_for_each_transaction_alone_or_after_an_earlier_entry() -> None:
    rng, rules = random.Random(SEED), ReadCommitted()
    for _ in range(300):
        entries = [
            LogEntry(kind=rng.choice(reading.KINDS), offset=n, producer_id=rng.randrange(3), epoch=0)
            for n in range(rng.randrange(1, 9))
        ]
        aborted = [
            AbortedTransaction(producer_id=rng.randrange(3), first_offset=rng.randrange(-2, 9))
            for _ in range(rng.randrange(5))
        ]
        passed = rules.passed(entries, aborted)
        for place, entry in enumerate(entries):
            expected = bool(rules.passed([entry], [])) and all(
                any(
                    entry in rules.passed([*earlier, entry], [one]) for earlier in ([], *([e] for e in entries[:place]))
                )
                for one in aborted
            )
            assert (entry in passed) == expected, f"seed {SEED}"


def test_a_response_is_a_run_of_entries_that_pass_by_themselves() -> None:
    rng = random.Random(SEED)
    for _ in range(100):
        state = _some_log(rng)
        position, limit, size = rng.randrange(12), rng.randrange(12), rng.randrange(1, 9)
        alone = [entry for entry in state.log.entries if _alone(state, entry).fetched(position, limit, 1)]
        assert state.fetched(position, limit, size) == alone[:size], f"seed {SEED}"


def test_a_new_leader_finds_the_same_as_one_that_appended_entry_by_entry() -> None:
    rng = random.Random(SEED)
    for _ in range(100):
        state = _some_log(rng)
        folded = state.empty_log(CONSTANTS)
        for entry in state.log.entries:
            folded = state.replay(folded, [entry])
        assert state.replay(state.empty_log(CONSTANTS), state.log.entries) == folded, f"seed {SEED}"


def _some_log(rng: random.Random) -> Consumer:
    state = Consumer.initial(CONSTANTS)
    for _ in range(rng.randrange(12)):
        producer_id, is_marker = rng.randrange(3), rng.random() < 0.4
        if is_marker:
            state = state.append_marker(producer_id, 0, rng.random() < 0.5, 0)
        else:
            is_open = state.log.producers[producer_id].is_open
            state = state.append_batch(producer_id, 0, "transactional" if is_open else rng.choice(reading.KINDS[:2]))
    return state


def _alone(state: Consumer, entry: LogEntry) -> Consumer:
    log = type(state.log)(
        entries=state.log.entries[:0].append(entry), producers=Map(dict.fromkeys(range(3), NO_PRODUCER))
    )
    return Consumer(constants=CONSTANTS, log=log, positions=Map(), delivered=Map(), held=Map())


@pytest.mark.parametrize("kind", reading.KINDS)
def test_an_arbitrary_entry_of_a_kind_has_the_properties_of_a_log_entry(kind: str) -> None:
    entry, at = LogEntry(kind=kind, producer_id=0, epoch=0, offset=0), z3.IntVal(0)
    solver = z3.Solver()
    solver.add(reading.KIND(at) == reading.KINDS.index(kind))
    assert solver.check() == z3.sat
    for name in ("is_transactional", "is_marker", "is_abort_marker"):
        told = solver.model().eval(getattr(reading.AnyEntry(at), name).term)
        assert z3.is_true(told) == getattr(entry, name)


def test_a_story_names_the_entries_of_the_log() -> None:
    solver = z3.Solver()
    solver.add(reading.LENGTH == 1, reading.KIND(0) == 1, reading.PRODUCER_ID(0) == 3, reading.REPLICATED == 0)
    assert solver.check() == z3.sat
    lines = reading.TELLING.state(solver.model(), reading.BEFORE)
    assert any(line.startswith("    0: plain of producer 3") for line in lines)
