"""Every mutant with a replay in the registry is detected: exactly its rule fires on a simulated recording."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.machines.broker import Broker
from kafka_eos.machines.idempotent_producer import IdempotentProducer
from kafka_eos.machines.partition_log import PartitionLog
from kafka_eos.machines.producer_state import Batch, Limits, Log
from kafka_eos_checks import cli
from kafka_eos_checks.audit.rules.applications import (
    FENCED_GENERATION,
    NOT_PROCESSED,
    OFFSET_ALONE,
    OUTPUT_ALONE,
    OUTPUT_OF_NOTHING,
    TWICE,
)
from kafka_eos_checks.audit.rules.coordinator import DECISION_CHANGED
from kafka_eos_checks.audit.rules.histories import DUPLICATE_VALUE, REFUSED, UNASKED
from kafka_eos_checks.audit.rules.log import DUPLICATE, GAP, LEADER_BACK, ORDER, OUTSIDE, STALE_EPOCH
from kafka_eos_checks.audit.rules.offsets import BEYOND, WENT_BACK
from kafka_eos_checks.audit.rules.readers import (
    ABORTED_DELIVERED,
    COMMITTED_MISSING,
    INCONSISTENT,
    NON_MONOTONIC,
    POLL_SKIP,
    PRECOMMITTED,
    STABLE_WENT_BACK,
)
from kafka_eos_checks.audit.rules.sent_offsets import NOT_AS_SENT
from kafka_eos_checks.audit.rules.transactions.names import FENCED, HANGING, NO_BIT, NO_TRANSACTION, TORN
from kafka_eos_checks.conform.mechanisms import IDEMPOTENCE
from kafka_eos_checks.graphs.state_graph import GraphUnusable
from kafka_eos_checks.kit.verdict import Verdict, read_verdicts
from kafka_eos_checks.matrix import mutant_matrix, mutant_replays, mutant_requests
from kafka_eos_checks.matrix.mutant_matrix import (
    NOT_VISIBLE,
    Asked,
    blind,
    contract_mutants,
    graph_mutants,
    is_known_failure,
    killed_verdicts,
    proof_mutants,
    replay_mutants,
    requests_mutants,
    rows,
    simulation_mutants,
    verdicts_of,
)
from kafka_eos_checks.matrix.mutant_replays import (
    BUSY,
    ELECTING,
    EXPIRING,
    LATE,
    LEAVING,
    LOADING,
    MOST_SEEDS,
    ONCE,
    RULES,
    SILENT,
    SLOW,
    TRANSACTING,
    AnyPlan,
    find_by_replay,
    plan_of,
    rules_that_fire,
)
from kafka_eos_checks.models import kept_verdicts
from kafka_eos_checks.models.kept_verdicts import Kept
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.mutants.rules import UnknownRule, mutated, owner_of
from kafka_eos_checks.simulate.applications import ApplicationPlan
from kafka_eos_checks.simulate.command import Plan
from kafka_eos_checks.simulate.transactions import TransactionsPlan
from kafka_eos_checks.tla.result_cache import ResultCache
from kafka_eos_checks.walks.broken import FOUND

REGISTRY = Registry()
VISIBLE = [mutant for mutant in REGISTRY.mutants.values() if mutant.replay]
SEEDS = range(MOST_SEEDS)


# Further rules that a violation fires: a batch stored again holds its values again; data in the wrong transaction end
# with it, and are read before the commit of their own; a decision that changes between two partitions tears the
# transaction; the successor of a fenced member processes again what the member committed; the offsets of a removed
# member put the group's back, behind the inputs of outputs that others have committed.
ALONGSIDE = {
    DUPLICATE: {DUPLICATE_VALUE},
    UNASKED: {ABORTED_DELIVERED, PRECOMMITTED},
    FENCED: {HANGING, UNASKED, ABORTED_DELIVERED, PRECOMMITTED},
    STALE_EPOCH: {HANGING, UNASKED, ABORTED_DELIVERED, PRECOMMITTED, NO_TRANSACTION},
    COMMITTED_MISSING: {NO_TRANSACTION, TORN},
    FENCED_GENERATION: {TWICE},
    WENT_BACK: {TWICE},
    OUTPUT_ALONE: {TWICE},
    TWICE: {OUTPUT_ALONE},
    OFFSET_ALONE: {COMMITTED_MISSING, STALE_EPOCH, OUTPUT_ALONE},
    DECISION_CHANGED: {TORN},
}


def alongside(mutant: Model) -> set[str]:
    """The further rules that the mutant's violation fires.

    Java's restamps are refusals. A client sends again in a new epoch what it gave up in the old one; without fencing
    both are stored.
    """
    restamped = {REFUSED} if "KeptAfterError" in mutant.overrides else set()
    unfenced = {DUPLICATE, DUPLICATE_VALUE} if "NoFencing" in mutant.overrides.values() else set()
    return ALONGSIDE.get(mutant.replay, set()) | restamped | unfenced


def first_seed(mutant: Model, folder: Path, seeds: Iterable[int] = SEEDS) -> int | None:
    """The first seed whose recording violates the mutant's rule and no other."""
    for seed in seeds:
        rules = rules_that_fire(plan_of(mutant, seed), folder / str(seed), REGISTRY)
        if mutant.replay in rules and rules <= {mutant.replay} | alongside(mutant):
            return seed
    return None


# One of each rule, since `check mutants` looks for all; and those that an expiry or a timeout too many would hide
QUICK = {*{mutant.replay: mutant.name for mutant in VISIBLE}.values(), "SnapshotWindowJava", "EveryAppendUsesGuardUp"}
QUICK = QUICK - {"EpochBeforePending", "OpenTransactionIsLeft"} | {"RetriesRefused", "NoRequireStable"}  # soon seen
# The seeds that show others of them; if another one does by now, it is found after them.
SHOWN_BY = {"FencedInstanceAdds": 44, "GenerationNotChecked": 27, "SnapshotWindowJava": 17, "DataOfAnyEpoch": 8}
SHOWN_BY |= {"EveryAppendUsesGuardUp": 7, "MarkerOfEqualEpoch": 6, "RestIsAborted": 6}


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=() if mutant.name in QUICK else pytest.mark.thorough)
        for mutant in VISIBLE
    ],
)
def test_a_mutant_is_seen_in_a_recording_by_the_rule_that_the_registry_names(mutant: Model, tmp_path: Path) -> None:
    seeds = dict.fromkeys([SHOWN_BY.get(mutant.name, 0), *SEEDS])
    assert first_seed(mutant, tmp_path, seeds) is not None, f"{mutant.replay!r} alone is shown by no seed of {SEEDS}"


def test_a_mutant_is_looked_for_in_so_many_recordings_and_the_first_that_shows_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mutant_replays, "MOST_SEEDS", 3)
    mutant, seeds, shown = REGISTRY.get("OffsetOfLogEnd"), list[int](), {GAP}

    def fire(plan: AnyPlan, *_: Any) -> set[str]:
        seeds.append(plan.seed)
        return {GAP} if plan.seed < 2 else shown

    monkeypatch.setattr(mutant_replays, "rules_that_fire", fire)
    unseen = find_by_replay(REGISTRY, mutant)
    assert (unseen.ok, unseen.found, seeds) == (False, "nothing in 3 seeds", [0, 1, 2])
    shown = {GAP, mutant.replay}
    seen = find_by_replay(REGISTRY, mutant)
    assert (seen.ok, seen.found, seen.figures["seed"]) == (True, f"finds {mutant.replay}", 2)
    assert seeds == [0, 1, 2] * 2


def test_a_mutant_under_the_name_of_another_rule_or_one_that_changes_nothing_is_not_seen(tmp_path: Path) -> None:
    shifted = REGISTRY.get("OffsetOfLogEnd")
    assert first_seed(shifted, tmp_path / "right", range(10)) is not None
    assert first_seed(replace(shifted, replay=GAP), tmp_path / "wrong", range(10)) is None
    unseen = replace(REGISTRY.get("FirstSequenceOnly"), replay=shifted.replay)
    assert first_seed(unseen, tmp_path / "unseen", range(10)) is None


@pytest.mark.parametrize("share", [0.3, pytest.param(1.0, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("plan", "seeds"),
    [
        (Plan(seed=0, **BUSY), 100),
        (Plan(seed=0, **EXPIRING), 30),
        (Plan(seed=0, **LOADING), 30),
        (TransactionsPlan(seed=0, **TRANSACTING), 20),
        (TransactionsPlan(seed=0, **ELECTING), 20),
        (TransactionsPlan(seed=0, **SLOW), 20),
        (TransactionsPlan(seed=0, **ONCE), 20),
        (TransactionsPlan(seed=0, **SLOW, versions=(1,)), 20),
        (ApplicationPlan(seed=0), 30),
        (ApplicationPlan(seed=0, **LATE, model="ConsumeTransformProduceVersion1"), 30),
        (ApplicationPlan(seed=0, **LEAVING), 30),
        (ApplicationPlan(seed=0, **SILENT, model="ConsumerGroup"), 30),
    ],
    ids=str,
)
def test_the_reference_as_it_is_violates_no_rule(plan: AnyPlan, seeds: int, share: float, tmp_path: Path) -> None:
    tried = range(round(share * seeds))
    found = {seed: rules_that_fire(replace(plan, seed=seed), tmp_path / str(seed), REGISTRY) for seed in tried}
    assert {seed: rules for seed, rules in found.items() if rules} == {}


def test_every_rule_that_a_client_can_break_has_a_mutant_a_named_failure_or_a_wrong_reader() -> None:
    by_mutants = {mutant.replay for mutant in VISIBLE}
    by_scenarios = {ABORTED_DELIVERED}
    by_a_reader = {STABLE_WENT_BACK, POLL_SKIP, NON_MONOTONIC, INCONSISTENT, PRECOMMITTED}
    of_declared_applications = {NOT_PROCESSED, OUTPUT_OF_NOTHING}  # tests/checks/testing/test_in_process_broker.py
    of_requests = {NOT_AS_SENT}  # simulated applications record calls, not requests; `lab generate` plants it
    of_no_client = {ORDER, LEADER_BACK, OUTSIDE, NO_BIT}  # no client gives offsets or leader epochs, or omits the bit
    of_lost_records = {BEYOND}  # no simulated broker loses what a group has read; `lab generate` plants it
    others = by_scenarios | by_a_reader | of_declared_applications | of_requests | of_no_client | of_lost_records
    assert by_mutants == RULES - others


def test_a_mutant_that_no_replay_can_see_says_why() -> None:
    blind = [mutant for mutant in REGISTRY.mutants.values() if not mutant.replay]
    assert all(len(mutant.blind["replay"].split()) > 3 for mutant in blind)


BATCH = Batch(producer_id=7, epoch=0, sequence=0, count=1)


def test_a_mutated_machine_has_the_other_rule_everywhere_and_the_machine_keeps_its_own() -> None:
    forgetful = mutated(PartitionLog, {"IsDuplicate": "NoDuplicateCache", "NextSequence": "NoWrap"})
    log = forgetful.LOG(limits=forgetful.LIMITS(2, 5)).appended(BATCH)  # type: ignore[attr-defined]
    assert not log.is_duplicate(BATCH)
    assert log.limits.next_sequence(2) == 3
    assert Log().appended(BATCH).is_duplicate(BATCH)
    assert Limits(2, 5).next_sequence(2) == 0


def test_a_rule_of_the_producer_is_replaced_on_the_machine_itself() -> None:
    careless: Any = mutated(IdempotentProducer, {"MayExpire": "ExpireAnyTime"})
    assert careless.may_expire(None, 0) is True
    assert careless.MODULE == "IdempotentProducer"


def test_a_rule_that_is_an_attribute_of_its_class_stays_one() -> None:
    empty = mutated(PartitionLog, {"LogEndOffset": "OffsetsFromOne"}).LOG()  # type: ignore[attr-defined]
    assert (empty.log_end_offset, Log().log_end_offset) == (1, 0)


@pytest.mark.parametrize(
    ("module", "rule", "owner"),
    [
        ("Leader", "VerificationError", "LEADING"),
        ("TransactionCoordinator", "AddError", "COORDINATING"),
        ("TransactionCoordinator", "VerificationError", "COORDINATING"),
        ("Leader", "AddError", None),
        ("Transactions", "AddError", None),
        ("Coordinator", "AddError", None),
        ("", "VerificationError", ""),
        ("", "AddError", None),
    ],
)
def test_a_rule_of_an_instance_is_that_of_the_class_that_has_the_rules_of_its_module(
    module: str, rule: str, owner: str | None
) -> None:
    class WithItsOwn(Broker):
        """A machine that has a rule of the same name as an instance."""

        def verification_error(self) -> None:
            """Nothing."""

    assert owner_of(WithItsOwn, f"{module}!{rule}" if module else rule) == owner


def test_an_unknown_rule_or_mutant_is_refused_by_its_name() -> None:
    with pytest.raises(UnknownRule, match="no function no_such_mutant"):
        mutated(PartitionLog, {"IsDuplicate": "NoSuchMutant"})
    with pytest.raises(UnknownRule, match="PartitionLog has no rule no_such_rule"):
        mutated(PartitionLog, {"NoSuchRule": "NoDuplicateCache"})


# --- the matrix ---------------------------------------------------------------------------------------------------


def of(name: str, found: str, *, ok: bool = True) -> Verdict:
    return Verdict(check="m", name=name, expected="found", found=found, ok=ok)


def test_two_means_have_to_kill_a_mutant_unless_all_others_say_why_they_cannot() -> None:
    registry = Registry()
    asked = rows(registry)
    first, second, third = list(registry.mutants)[:3]
    verdicts = {
        "TLC": [of(first, "violates P"), of(second, "violates Q"), of(third, "violates R")],
        "graph": [of(first, "told apart"), of(second, "equal", ok=False), blind("graph", registry.get(third), "none")],
        "replay": [blind("replay", registry.get(name), "too deep") for name in (first, second, third)],
    }
    found = {v.name: v for v in killed_verdicts(asked, verdicts)}
    assert (found[first].ok, found[first].found) == (True, "killed by 2: TLC, graph")
    assert (found[second].ok, found[second].found) == (False, "killed by 1: TLC")
    assert (found[third].ok, found[third].expected) == (True, "killed by 1 means or more")
    assert found[third].evidence == "graph: none\nreplay: too deep"
    assert not found[list(registry.mutants)[3]].ok, "nobody has looked at it"
    unseen = {means: [blind(means, registry.get(first), "too deep")] for means in ("TLC", "graph", "replay")}
    assert not next(v for v in killed_verdicts(asked, unseen) if v.name == first).ok, "no means can see it"
    verdicts["replay"][0] = of(first, "finds R")
    assert next(v for v in killed_verdicts(asked, verdicts) if v.name == first).ok, "three are more than enough"
    verdicts["replay"][0] = of(first, "nothing in 5 seeds", ok=False)
    assert next(v for v in killed_verdicts(asked, verdicts) if v.name == first).ok, "two are enough where three look"
    del verdicts["replay"][0]
    forgotten = next(v for v in killed_verdicts(asked, verdicts) if v.name == first)
    assert (forgotten.ok, forgotten.found) == (False, "killed by 2: TLC, graph; no verdict by replay")


def test_no_walk_looks_for_a_mutant_that_walks_cannot_see_and_its_reason_is_told() -> None:
    mutant = REGISTRY.mutants["AddsWait"]
    [verdict] = simulation_mutants(Asked(registry=REGISTRY, mutants=[mutant], jobs=1))
    assert (verdict.found, verdict.evidence) == (NOT_VISIBLE, mutant.blind["simulation"])


def test_a_mutant_without_walks_and_one_without_proofs_give_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = Registry()
    monkeypatch.setattr(mutant_matrix, "broken", lambda _: [])
    asked = Asked(registry=registry, mutants=list(registry.mutants.values()), jobs=1)
    assert {v.found for v in simulation_mutants(asked)} == {NOT_VISIBLE}
    monkeypatch.setattr(mutant_matrix, "proofs", lambda _: [])
    assert {v.evidence for v in proof_mutants(asked)} == {"its rule is part of no proof"}


def test_models_that_must_fail_are_rows_and_means_that_need_a_changed_rule_give_the_reason() -> None:
    known = [row for row in rows(REGISTRY) if is_known_failure(row)]
    failing = [model for model in REGISTRY.models.values() if model.expect.violates]
    not_walked = {"AtomicTransactions", "ExactlyOnce", "SharePartition"}
    left_out = {model.module for model in failing} - {row.module for row in known}
    assert {name for name in left_out if "Induction" not in name} == not_walked
    assert {row.name for row in known} == {model.name for model in failing if model.module not in left_out}
    asked = Asked(registry=REGISTRY, mutants=known[:2], jobs=1)
    for means in (graph_mutants, replay_mutants, proof_mutants, contract_mutants, requests_mutants):
        assert {v.found for v in means(asked)} == {NOT_VISIBLE}
        assert all(len(v.evidence.split()) > 3 for v in means(asked))


def test_the_whole_matrix_is_written_as_its_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def means(asked: Asked) -> Iterable[Verdict]:
        return (of(row.name, "found", ok=row.name != "NoEndBump") for row in asked.mutants)

    monkeypatch.setattr(mutant_matrix, "MEANS", {"TLC": means, "graph": means})
    target = tmp_path / "matrix.json"
    assert cli.main(["check", "mutants", "--jobs", "1", "--cache", str(tmp_path / "kept"), "--json", str(target)]) == 1
    verdicts = {verdict.name: verdict for verdict in read_verdicts(target)}
    assert list(verdicts) == [row.name for row in rows(REGISTRY)]
    assert [name for name, verdict in verdicts.items() if not verdict.ok] == ["NoEndBump"]
    assert set(verdicts["NoEndBump"].figures.values()) == {"survives"}
    assert "NoEndBump" in capsys.readouterr().out


def test_a_mutant_that_requests_do_not_notice_fails_the_command_unless_its_entry_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutant_requests, "MECHANISMS", (IDEMPOTENCE,))
    registry = Registry()
    monkeypatch.setattr(mutant_matrix, "Registry", lambda: registry)
    call = ["check", "mutants", "ZeroAfterLeave", "--only", "requests", "--jobs", "1", "--cache", str(tmp_path)]
    assert cli.main(call) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert ("ZeroAfterLeave - " in shown, "requests: no member" in shown) == (True, True)
    unexplained = replace(registry.get("ZeroAfterLeave"), blind={})
    registry.mutants["ZeroAfterLeave"] = unexplained
    assert cli.main(call) == 1
    assert "ZeroAfterLeave" in capsys.readouterr().out
    assert cli.main(["check", "mutants", "NoDuplicateCache", *call[3:]]) == 0, "of the others nothing is asked"
    assert cli.main(["check", "mutants", "PartitionLog", *call[3:]]) == 2
    assert "neither a mutant nor a model that must fail" in capsys.readouterr().err


def test_a_result_is_kept_until_something_changes_that_it_depends_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry = Registry()
    first, second = list(registry.mutants.values())[:2]
    looked_at: list[str] = []

    def means(asked: Asked) -> Iterable[Verdict]:
        assert asked.jobs == 1
        for mutant in asked.mutants:
            looked_at.append(mutant.name)
            yield of(mutant.name, "found", ok=mutant is not second)

    monkeypatch.setitem(mutant_matrix.MEANS, "proof", means)
    kept = ResultCache(tmp_path)
    for _ in range(2):
        found = verdicts_of("proof", registry, [first, second], kept, 1)
        assert {v.name: v.ok for v in found} == {first.name: True, second.name: False}
    assert looked_at == [first.name, second.name, second.name], "what survives is looked at again"
    verdicts_of("proof", registry, [replace(first, constants={**first.constants, "MaxEntries": "9"})], kept, 1)
    monkeypatch.setattr(kept_verdicts, "python_fingerprint", lambda *_: "other sources")
    verdicts_of("proof", registry, [first], kept, 1)
    assert looked_at[3:] == [first.name, first.name]


def test_a_walk_that_ran_for_soak_counts_and_is_kept_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mutant = REGISTRY.get("NoEndBump")
    kept = Kept(means="simulation", registry=REGISTRY, cache=ResultCache(tmp_path), limit=240.0)
    assert [v.found for v in kept.verdicts([mutant], lambda _: [of(mutant.name, FOUND)])] == [FOUND]
    monkeypatch.setattr(mutant_matrix, "find_all", lambda models, *_: iter(map(pytest.fail, models)))
    assert [v.found for v in verdicts_of("simulation", REGISTRY, [mutant], ResultCache(tmp_path), 1)] == [FOUND]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_means_that_cannot_be_used_ends_the_call_and_judges_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def means(asked: Asked) -> Iterable[Verdict]:
        yield of(asked.mutants[0].name, "found")
        raise GraphUnusable("TLC gives no graph")

    monkeypatch.setitem(mutant_matrix.MEANS, "graph", means)
    assert cli.main(["check", "mutants", "--only", "graph", "--jobs", "1", "--cache", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert ("kafka-eos check mutants: TLC gives no graph" in shown.err, shown.out) == (True, "")


def test_an_interrupted_call_is_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def means(asked: Asked) -> Iterable[Verdict]:
        for mutant in asked.mutants:
            yield of(mutant.name, "found")
            if len(list(tmp_path.glob("*.json"))) == 3:
                raise KeyboardInterrupt

    monkeypatch.setitem(mutant_matrix.MEANS, "graph", means)
    arguments = ["check", "mutants", "--only", "graph", "--jobs", "1", "--cache", str(tmp_path)]
    assert cli.main(arguments) != 0
    assert cli.main(arguments) == 0
    assert "3 known" in capsys.readouterr().err
