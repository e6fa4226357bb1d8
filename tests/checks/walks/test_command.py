"""Walks over the machines under swarms of faults."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_eos.machines import partition_log
from kafka_eos_checks import cli
from kafka_eos_checks.kit.imports import needed
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.kit.verdict import read_verdicts
from kafka_eos_checks.models import bounds
from kafka_eos_checks.models.registry import MalformedRegistry, Registry
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.walks import broken as broken_module
from kafka_eos_checks.walks import campaign, command, executors, guards, kept
from kafka_eos_checks.walks import layers as layers_module
from kafka_eos_checks.walks.broken import FOUND, NOT_FOUND, Search, explained, find_broken
from kafka_eos_checks.walks.campaign import Tally
from kafka_eos_checks.walks.corpus import EXHAUSTED, MOST_NUMBER, Corpus
from kafka_eos_checks.walks.layers import (
    BEYOND,
    EXPOSED,
    WALKS,
    Layer,
    broken,
    broken_layer,
    layers,
    layers_of_release,
    violated_by_release,
)
from kafka_eos_checks.walks.properties import Judge, Wrong
from kafka_eos_checks.walks.shrink import shrunk
from kafka_eos_checks.walks.walk import STEPS_FROM_KEPT, Run, Walker

TWO_RUNS = """
from kafka_eos_checks.walks import campaign
for seed in (9, 60):
    run = campaign.walker_of(campaign.layer_of(seed)).run(seed)
    print([(one.action.name, one.arguments) for one in (*run.schedule, *run.fair)], run.wrong)
"""


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


def layer_named(name: str) -> Layer:
    return next(layer for layer in campaign.all_layers() if layer.name == name)


def first_wrong(walker: Walker, most: int = 2_000) -> Run:
    return next(run for run in map(walker.run, range(most)) if run.wrong is not None)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_the_same_seeds_give_the_same_runs_in_every_process() -> None:
    command = [sys.executable, "-c", TWO_RUNS]
    told = {
        subprocess.run(command, env={"PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True).stdout
        for salt in ("1", "2")
    }
    assert len(told) == 1
    runs = next(iter(told)).splitlines()
    assert [run.endswith("None") for run in runs] == [True, True]


def test_earlier_runs_do_not_change_a_run() -> None:
    walker = Walker(layer_named("ConsumeTransformProduce"))
    alone = walker.run(7)
    for seed in range(3):
        walker.run(seed)
    again = walker.run(7)
    assert (again.schedule, again.fair, again.coverage) == (alone.schedule, alone.fair, alone.coverage)


def test_runs_differ_in_the_faults_and_the_actors_that_they_draw() -> None:
    walker = Walker(layer_named("Transactions"))
    runs = [walker.run(seed) for seed in range(12)]
    actors = [{one.arguments[0] for one in run.schedule if one.action.name == "Produce"} for run in runs]
    assert {"A", "B"} in actors
    assert any(len(own) == 1 for own in actors)
    crashes = [any(one.action.name == "Crash" for one in run.schedule) for run in runs]
    assert any(crashes)
    assert not all(crashes)


def test_virtual_time_goes_on_with_every_step() -> None:
    assert Walker(layer_named("MirrorOffsetsInTarget")).run(1).time > 0


def test_every_layer_is_a_model_that_holds_with_constants_that_are_not_smaller(registry: Registry) -> None:
    found = layers(registry)
    assert {layer.model.module for layer in found} == set(WALKS)
    for layer in found:
        model = registry.models[layer.name]
        assert not model.expect.violates or model.expect.violates not in EXPOSED[layer.name] == layer.properties
        assert set(layer.model.constants) == set(model.constants)
        assert set(layer.properties) <= {
            *layer.walk.goals(layer.model.constants),
            *_all_properties(registry, model.module),
        }


def _all_properties(registry: Registry, module: str) -> set[str]:
    own = (model for model in registry.models.values() if model.module == module)
    return {name for model in own for name in (*model.invariants, *model.properties)}


SELDOM_WRONG = {"TransactionsUnverified": 9_955, "UnverifiedTwoPartitions": 3_474}  # layer -> a seed


@pytest.mark.parametrize(("name", "left_out"), sorted(BEYOND))
def test_a_property_that_a_layer_leaves_out_is_violated_in_it(registry: Registry, name: str, left_out: str) -> None:
    walker = Walker(replace(layer_named(name), properties=(left_out,)))
    wrong = walker.run(SELDOM_WRONG[name]).wrong if name in SELDOM_WRONG else first_wrong(walker).wrong
    assert wrong is not None
    assert wrong.name == left_out


def test_faults_are_actions_of_the_machine() -> None:
    for layer in campaign.all_layers():
        known = guards.action_names(layer.model.machine_class())
        assert layer.walk.faults | layer.walk.kinds <= known
        assert not layer.walk.faults & layer.walk.kinds


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("TransactionalProducerErrors", {"RetryBatch", "FailBatch", "FailTransaction", "FailProducerByBatch"}),
        ("AbortByAdmin", {"AbortByAdmin"}),
        ("HangingTransaction", {"AppendUnverified"}),
    ],
)
def test_rarely_enabled_actions_are_taken(name: str, wanted: set[str]) -> None:
    walker = Walker(layer_named(name))
    taken: set[str] = set()
    for seed in range(1_000):
        run = walker.run(seed)
        assert run.wrong is None
        taken |= set(run.coverage.actions)
        if wanted <= taken:
            return
    raise AssertionError(wanted - taken)


# --- walks that go on from kept states --------------------------------------------------------------------------------


def test_a_walk_continues_from_a_kept_state_and_its_schedule_is_complete(registry: Registry) -> None:
    walker, corpus = Walker(broken_layer(registry, "MarkerOfAnyEpoch", larger=False)), Corpus()
    runs = [walker.run(seed, corpus) for seed in range(40)]
    going_on = [run for run in runs if run.before]
    assert going_on
    for run in going_on:
        assert run.steps <= STEPS_FROM_KEPT
        wrong, taken, _ = walker.replay(run.schedule)
        assert wrong == run.wrong
        assert taken == run.schedule


def test_a_continued_walk_has_no_more_faults_than_the_model_allows(registry: Registry) -> None:
    walker, corpus = Walker(broken_layer(registry, "NoEndBump", larger=False)), Corpus()
    for seed in range(60):
        walker.run(seed, corpus)
    assert {kept.state.faults for kept in corpus.kept} == {0, 1}


def test_a_continued_walk_ends_at_a_known_state(registry: Registry) -> None:
    walker = Walker(broken_layer(registry, "LateEndOfTransaction", larger=False))
    corpus = Corpus(every=True)
    met: set[object] = set()
    for seed in range(200):
        run = walker.run(seed, corpus)
        states = walker.replay(run.schedule)[2][run.before + 1 :]
        assert not met & set(states[:-1])
        met.update(states)


def test_a_state_is_kept_if_it_looks_new() -> None:
    corpus = Corpus()
    corpus.begin((0, 0))
    for step, (spec, changed) in enumerate(
        [((1, 0), 1), ((1, 1), 2), ((1, MOST_NUMBER), 2), ((1, MOST_NUMBER + 5), 2)]
    ):
        corpus.offer(step, spec, changed, ())
    assert [kept.state for kept in corpus.kept] == [0, 1, 2]
    assert [kept.visits for kept in corpus.kept] == [0, 0, 1]


@pytest.mark.parametrize("shorter", [(), (2,), (1, 2)])
def test_of_sequences_only_those_that_are_longer_than_what_is_told_apart_look_the_same(
    shorter: tuple[int, ...],
) -> None:
    corpus = Corpus()
    corpus.begin((0,))
    for step, sequence in enumerate([shorter, (0, 1, 2), (3, 0, 1, 2)]):
        corpus.offer(step, (sequence,), 1, ())
    assert [kept.state for kept in corpus.kept] == [0, 1]


def test_with_small_constants_every_state_is_kept() -> None:
    corpus = Corpus(every=True)
    corpus.begin((0,))
    for step, number in enumerate([MOST_NUMBER, MOST_NUMBER + 5, MOST_NUMBER]):
        corpus.offer(step, (number,), 1, ())
    assert [kept.state for kept in corpus.kept] == [0, 1]


def test_walks_begin_in_kept_states_in_turn() -> None:
    corpus, random = Corpus(every=True), Random(1)
    corpus.begin((0,))
    for number in (1, 2, 3):
        corpus.offer(number, (number,), 1, ())
    chosen = [kept.state for _ in range(60) if (kept := corpus.choose(random)) is not None]
    visits = [chosen.count(kept.state) for kept in corpus.kept]
    assert visits == [kept.visits for kept in corpus.kept]
    assert max(visits) - min(visits) <= 1


def test_walks_seldom_continue_from_a_kept_state_that_led_to_nothing_new() -> None:
    corpus = Corpus(every=True)
    corpus.begin((0,))
    for number in (1, 2):
        corpus.offer(number, (number,), 1, ())
    corpus.kept[0].visits += EXHAUSTED
    random = Random(1)
    chosen = [kept.state for _ in range(EXHAUSTED) if (kept := corpus.choose(random)) is not None]
    assert set(chosen) == {2}


def test_the_same_search_meets_the_same_states(registry: Registry) -> None:
    def schedules() -> list[object]:
        search = Search(registry, "UncleanElection")
        return [search.run()[1].schedule for _ in range(30)]

    assert schedules() == schedules()


# --- judging ----------------------------------------------------------------------------------------------------------


def test_evaluating_only_properties_whose_variables_changed_gives_the_same_result() -> None:
    by_module = {layer.model.module: layer for layer in campaign.all_layers()}
    tally = campaign.run_seeds(range(len(by_module)), list(by_module.values()), sample=1)
    assert not tally.failures
    assert tally.sampled == tally.runs == len(by_module)


def test_evaluating_only_changed_properties_gives_the_same_result_for_violations(registry: Registry) -> None:
    for name in ("NoEndBump", "NeverFenced", "OldRetry"):
        layer = broken_layer(registry, name)
        run = first_wrong(Walker(layer))
        assert campaign.difference(run, Walker(layer, every_time=True).run(run.seed)) == ""


def test_a_judge_that_overlooks_a_variable_is_detected(registry: Registry) -> None:
    layer = broken_layer(registry, "NoEndBump")
    seed = first_wrong(Walker(layer)).seed
    blind = Walker(layer)
    blind.judge = Judge(
        steps=blind.judge.steps, invariants=[replace(part, reads=0, places=()) for part in blind.judge.invariants]
    )
    assert "violates" in campaign.difference(blind.run(seed), Walker(layer, every_time=True).run(seed))


def test_a_run_whose_goal_is_not_reached_is_reported(registry: Registry) -> None:
    walk = replace(WALKS["ExternalSink"], left_out={})
    layer = replace(layer_named("UpdateAfterCommit"), properties=("EveryInputTakesEffect",), walk=walk)
    walker = Walker(layer)
    run = first_wrong(walker)
    assert run.wrong is not None
    assert run.wrong.how == "comes to rest, and EveryInputTakesEffect is not so"
    text, _, steps = explained(walker, run)
    assert steps < len(run.schedule)
    assert text.splitlines()[-1].strip() == run.wrong.how
    assert "Crash" in text


def test_the_goals_of_a_run_that_the_bounds_end_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    fair = Walker(layer_named("TransactionCoordinator"))
    monkeypatch.setattr(fair.fairness, "_within", lambda _: False)
    assert not any(fair.run(seed).wrong for seed in range(40))
    monkeypatch.setattr(fair.fairness, "_fair", {})
    assert any(fair.run(seed).wrong for seed in range(40)), "nothing is fair, so that it rests too early"


def test_the_actions_that_go_on_without_faults_are_the_specs_fair_ones() -> None:
    fair = Walker(layer_named("Transactions")).fairness
    assert not {"Crash", "Failover", "ElectLeader", "RepeatMarker", "Initialize"} & set(fair.actions)
    assert {arguments[3] for arguments in fair.actions["HandleEnd"]} == {False}
    sink = Walker(layer_named("Outbox")).fairness
    assert "RestartRelay" not in sink.actions
    assert "Publish" in sink.actions


# --- mistakes that are found ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "TimeoutRaisesEpoch",
        "SixInFlight",
        "HangingTransaction",
        "AbortByAdmin",
        "FencedInstanceAborts",
    ],
)
def test_a_required_violation_is_found_and_shrunk_to_tlcs_shortest(registry: Registry, name: str) -> None:
    verdict = find_broken(registry, name, limit=60)
    assert verdict.ok
    assert verdict.figures["shortest"] == verdict.figures["shortest_by_tlc"]


@pytest.mark.parametrize("name", ["NoEndBump", "NeverFenced", "OffsetOfLast", "PendingReplacesLater"])
def test_a_mutant_is_found_and_no_step_of_its_schedule_can_be_left_out(registry: Registry, name: str) -> None:
    walker = Walker(broken_layer(registry, name))
    wrong, schedule, at_rest = shrunk(walker, first_wrong(walker))
    assert not at_rest
    assert walker.replay(schedule)[0] == wrong
    for place in range(len(schedule)):
        found, _, _ = walker.replay(schedule[:place] + schedule[place + 1 :])
        assert found is None or found.name != wrong.name


def test_a_mutant_is_shown_as_a_story_and_a_diagram(registry: Registry) -> None:
    verdict = find_broken(registry, "NoEndBump", limit=60)
    assert "   0  At the start" in verdict.evidence
    assert "   1  An instance initializes its transactions" in verdict.evidence
    assert verdict.evidence.rstrip().endswith(verdict.evidence.splitlines()[0])
    assert verdict.diagram.startswith("<svg")


def test_a_violation_that_is_not_found_in_time_is_no_success(registry: Registry) -> None:
    verdict = find_broken(registry, "LateMarker", limit=1e-6)
    assert not verdict.ok
    assert (verdict.expected, verdict.found) == (FOUND, NOT_FOUND)


def test_a_walk_in_which_a_property_has_no_value_finds_no_mutant(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    walker = Walker(broken_layer(registry, "NoEndBump"))
    violating, how = first_wrong(walker), "cannot be judged: P has no value (CHOOSE from nothing)"
    walks = iter([Run(0, wrong=Wrong("P", how, is_judged=False)), Run(1), violating])
    monkeypatch.setattr(Search, "run", lambda _: (walker, next(walks)))
    assert find_broken(registry, "NoEndBump", limit=60).evidence.startswith("violates ")
    without = Run(0, wrong=Wrong("P", how, is_judged=False))
    monkeypatch.setattr(Search, "run", lambda _: (walker, without))
    monkeypatch.setattr(broken_module, "process_time", iter(range(9)).__next__)
    verdict = find_broken(registry, "NoEndBump", limit=3)
    assert (verdict.ok, verdict.found, verdict.evidence) == (False, NOT_FOUND, f"a walk {how}")


def test_a_found_violation_is_kept_and_a_missing_one_is_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "cache_folder", lambda _: tmp_path)
    monkeypatch.setattr(command, "broken", lambda _: ["EndRaisesEpoch", "NoEndBump", "LateMarker"])
    find = broken_module.find_broken
    monkeypatch.setattr(
        broken_module,
        "find_broken",
        lambda given, name, limit: find(given, name, 1e-6 if name == "LateMarker" else limit),
    )
    for known in (0, 2, 2):
        assert cli.main(["check", "walks", "--mutant", "all", "--jobs", "1"]) == 1
        assert f"{known} known, {3 - known} to look at" in capsys.readouterr().err
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_only_required_violations_are_searched(registry: Registry) -> None:
    with pytest.raises(MalformedRegistry, match="need not fail"):
        broken_layer(registry, "Transactions")
    assert {registry.get(name).module for name in broken(registry)} == set(WALKS) - {"AtomicTransactions"}


# --- campaigns --------------------------------------------------------------------------------------------------------


def test_coverage_counts_actions_refusals_and_pairs_of_faults() -> None:
    layer = layer_named("TransactionsZombie")
    tally = campaign.run_seeds(range(6), [layer], sample=1_000)
    coverage = tally.layers["TransactionsZombie"].coverage
    machine = layer.model.machine_class()
    assert coverage.actions["Produce"] > 0
    assert set(coverage.actions) <= guards.action_names(machine)
    assert {reason for _, reason in coverage.refusals} & guards.refusals(machine)
    assert all(one < two for one, two in coverage.faults)
    assert tally.steps == sum(sum(row.coverage.actions.values()) for row in tally.layers.values())
    assert kept.to_json(kept.from_json(kept.to_json(tally))) == kept.to_json(tally)


def test_a_campaign_without_a_step_is_no_success() -> None:
    assert command.summary_of(campaign.run_seeds([0], [layer_named("Outbox")], sample=1_000), 0, 0, 1.0).ok
    assert not command.summary_of(Tally(), 0, 0, 1.0).ok


def test_results_by_the_rules_of_a_release_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "runs_fingerprint", lambda release="": f"rules of {release}")
    for seconds, release in ((1.0, ""), (2.0, "4.3")):
        kept.keep(tmp_path, (0, 9), Tally(seconds=seconds), release)
    found = [kept.read_kept(tmp_path, (0, 9), release) for release in ("", "4.3", "3.9")]
    assert found == [Tally(seconds=1.0), Tally(seconds=2.0), None]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("seconds", "soon"),
        ("seconds", None),
        ("failures", [["Outbox", 1]]),
        ("news", [7]),
        ("layers", []),
        ("layers", {"Outbox": {}}),
    ],
)
def test_results_that_this_program_has_not_written_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, value: object
) -> None:
    monkeypatch.setattr(kept, "runs_fingerprint", lambda _: "rules")
    kept.keep(tmp_path, (0, 9), Tally(seconds=1.0))
    file = next(tmp_path.iterdir())
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {part: value}), encoding="utf-8")
    assert kept.read_kept(tmp_path, (0, 9)) is None


def test_a_property_without_a_value_is_told_apart_from_a_violated_one_and_is_not_ok() -> None:
    layer = layer_named("Outbox")
    tally = campaign.run_seeds([0, 1], [layer], sample=1_000)
    how = "cannot be judged: P has no value (CHOOSE from nothing)"
    tally.failures = [campaign.Failure(layer.name, 0, how, is_judged=False)]
    assert kept.from_json(kept.to_json(tally)).failures == tally.failures
    verdicts = [*command.verdicts_of(tally, [layer]), command.summary_of(tally, 0, 1, 1.0)]
    assert [verdict.ok for verdict in verdicts] == [False, False]
    assert [verdict.found for verdict in verdicts] == [
        f"1 run(s) without a verdict: {how}",
        "1 run(s) without a verdict",
    ]
    tally.failures += [campaign.Failure(layer.name, 1, "violates P"), campaign.Failure(layer.name, 1, "violates Q")]
    verdicts = [*command.verdicts_of(tally, [layer]), command.summary_of(tally, 0, 1, 1.0)]
    assert verdicts[0].found == f"2 run(s) wrong: violates P; 1 run(s) without a verdict: {how}"
    assert verdicts[1].found == "2 run(s) wrong, 1 run(s) without a verdict"
    assert verdicts[0].evidence.startswith("Outbox, seed 1: violates P; again: ")


def test_pairs_of_faults_are_counted_against_those_of_the_machine_and_those_never_met_are_named() -> None:
    layer = layer_named("FollowerCatchesUp")
    tally = campaign.run_seeds(range(30), [layer], sample=1_000)
    [verdict] = command.verdicts_of(tally, [layer])
    met = set(tally.layers[layer.name].coverage.faults)
    pairs = guards.fault_pairs([layer], met)
    assert met < pairs
    assert verdict.figures["fault_pairs"] == f"{len(met)}/{len(pairs)}"
    told = verdict.evidence.splitlines()[-1]
    assert all(" and ".join(pair) in told for pair in pairs - met)
    assert not any(" and ".join(pair) in told for pair in met)
    assert guards.fault_pairs([layer], [("A", "B")]) > pairs


def test_runs_that_the_bounds_end_are_counted(registry: Registry) -> None:
    layer = layer_named("FollowerCatchesUp")
    tally = campaign.run_seeds(range(20), [layer], sample=1_000)
    walker = Walker(layer)
    ended = [walker.run(seed).cut_off for seed in range(20)]
    assert 0 < sum(ended) < 20
    assert tally.layers[layer.name].cut_off == sum(ended)


def test_a_seed_that_meets_nothing_new_does_not_enter_the_corpus(tmp_path: Path) -> None:
    tally, again = Tally(), campaign.run_seeds([0, 1], [layer_named("Outbox")], sample=1_000)
    tally.add(again)
    known = len(tally.news)
    tally.add(again)
    assert len(tally.news) == known
    kept.write_corpus(tmp_path, tally)
    assert 0 in kept.read_corpus(tmp_path)


def test_the_corpus_keeps_the_coverage_of_earlier_calls(tmp_path: Path) -> None:
    for seeds in ([5], [0, 1]):
        kept.write_corpus(tmp_path, campaign.run_seeds(seeds, [layer_named("Outbox")], sample=1_000))
    assert {0, 5} <= set(kept.read_corpus(tmp_path))


@pytest.mark.parametrize(
    "text",
    ["[]", "[[1]]", "[" * 100_000, "{", '{"fingerprint": "x", "seeds": []}', '{"fingerprint": "x", "seeds": [{}]}'],
)
def test_a_file_that_is_no_corpus_is_named(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "corpus.json").write_text(text, encoding="utf-8")
    assert cli.main(["check", "walks", "--corpus", "--folder", str(tmp_path)]) == 2
    assert "corpus.json: no corpus of seeds" in " ".join(capsys.readouterr().err.split())


def test_a_corpus_of_other_runs_is_not_run_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = campaign.run_seeds([0], [layer_named("Outbox")], sample=1_000)
    with monkeypatch.context() as earlier:
        earlier.setattr(kept, "runs_fingerprint", lambda *_: "another reference")
        kept.write_corpus(tmp_path, tally)
    assert cli.main(["check", "walks", "--corpus", "--folder", str(tmp_path)]) == 2
    assert "its seeds are other runs by now" in " ".join(capsys.readouterr().err.split())
    kept.write_corpus(tmp_path, campaign.run_seeds([5], [layer_named("Outbox")], sample=1_000))
    assert kept.read_corpus(tmp_path) == [5]


@pytest.fixture
def two_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = (layer_named("MirrorOffsetsInTarget"), layer_named("Outbox"))
    monkeypatch.setattr(campaign, "all_layers", lambda *_: chosen)


@pytest.mark.usefixtures("two_layers")
def test_an_interrupted_campaign_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "SEEDS_PER_CHUNK", 4)
    asked: list[tuple[int, int]] = []
    run_chunks = executors.run_chunks

    def noted(waiting: list[tuple[int, int]], jobs: int, **options: Any) -> Any:
        asked.extend(waiting)
        return run_chunks(waiting, jobs, **options)

    monkeypatch.setattr(executors, "run_chunks", noted)
    arguments = ["check", "walks", "--jobs", "1", "--folder", str(tmp_path), "--seeds"]
    assert cli.main([*arguments, "0..7"]) == 0
    assert cli.main([*arguments, "2..11"]) == 0
    assert asked == [(0, 3), (4, 7), (2, 3), (8, 11)]
    monkeypatch.setattr(kept, "runs_fingerprint", lambda *_: "another reference")
    assert cli.main([*arguments, "0..3"]) == 0
    assert asked[4:] == [(0, 3)]


@pytest.mark.parametrize(
    ("name", "before", "after", "same"),
    [
        ("conjuncts.toml", "", "# another reason\n", True),
        ("proofs/ConsumerInduction.tla", "", "\n", True),
        ("models/Mirror.toml", "OffsetsIn = '\"target\"'", "OffsetsIn = '\"source\"'", False),
        ("models/Mirror.toml", 'BatchSize = "2"', 'BatchSize = "3"', True),
        ("models/Mirror.toml", "states = 3190", "states = 3191", True),
        ("models/Mirror.toml", "exactly once", "never twice", True),
        ("Mirror.tla", "", "\n", False),
        ("mutants/TransactionsMutants.tla", "", "\n", False),
        ("ReplicatedLog.tla", "", "\n", False),
    ],
    ids=[
        "conjuncts",
        "proof",
        "constant",
        "constant that walks enlarge",
        "states",
        "titles",
        "module",
        "mutants",
        "module of a module",
    ],
)
def test_the_corpus_depends_only_on_the_layers_and_their_modules(
    name: str, before: str, after: str, same: bool, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(spec_folder(), tmp_path / "spec"))
    changed = (folder / name).read_text(encoding="utf-8")
    assert before in changed
    (folder / name).write_text(changed.replace(before, after) if before else changed + after, encoding="utf-8")
    found = list(kept.specs(layers(Registry(folder / "models"))))
    assert (found == list(kept.specs(campaign.all_layers()))) == same


def test_what_is_kept_of_a_release_depends_on_its_rules() -> None:
    layer = next(layer for layer in campaign.all_layers("4.3") if layer.model.overrides)
    (rule, *_), model = layer.model.overrides, layer.model
    other = replace(layer, model=replace(model, overrides={**model.overrides, rule: "AnotherOperator"}))
    assert list(kept.specs([other])) != list(kept.specs([layer]))


def test_the_corpus_depends_on_exactly_the_modules_that_a_run_imports() -> None:
    code = "import sys, kafka_eos_checks.walks.campaign\n"
    code += "for name, each in sys.modules.items(): name.startswith('kafka_eos') and print(each.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {path for path in map(Path, done.stdout.splitlines()) if path.name != "__init__.py"}
    found = {path for path in needed(kept.modules(campaign.all_layers())) if path.name != "__init__.py"}
    assert Path(campaign.__file__) in imported
    assert found - imported == {Path(bounds.__file__), Path(partition_log.__file__)}, "imported when a walk begins"
    assert imported <= found


@pytest.mark.usefixtures("two_layers")
def test_a_campaign_writes_its_verdicts_and_its_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "soak.json"
    assert (
        cli.main(["check", "walks", "--jobs", "1", "--folder", str(tmp_path), "--seeds", "0..9", "--json", str(target)])
        == 0
    )
    verdicts = {verdict["name"]: verdict for verdict in json.loads(target.read_text(encoding="utf-8"))}
    assert set(verdicts) == {"Mirror", "ExternalSink", "seeds 0..9"}
    assert verdicts["seeds 0..9"]["figures"]["runs"] == 10
    assert "actions never taken" in verdicts["Mirror"]["evidence"]
    assert cli.main(["check", "walks", "--folder", str(tmp_path), "--corpus"]) == 0
    assert "nothing violated" in capsys.readouterr().out


def test_a_violating_run_is_reported_and_can_be_repeated(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = broken_layer(registry, "OffsetOfLast")
    monkeypatch.setattr(campaign, "all_layers", lambda *_: (layer,))
    seed = first_wrong(Walker(layer)).seed
    call = ["check", "walks", "--jobs", "1", "--folder", str(tmp_path), "--seeds", f"{seed}..{seed}"]
    assert cli.main([*call, "--json", str(tmp_path / "walks.json")]) == 1
    told = json.loads((tmp_path / "walks.json").read_text(encoding="utf-8"))[0]
    assert told["diagram"].startswith("<svg")
    assert f"again: kafka-eos check walks --replay {seed}" in capsys.readouterr().out
    assert cli.main(["check", "walks", "--replay", str(seed), "--folder", str(tmp_path)]) == 1
    assert "steps are enough" in capsys.readouterr().out
    assert (tmp_path / f"seed-{seed}.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    "wrong",
    [
        *(["--seeds", "9..1"], ["--seeds", "many"], ["--jobs", "0"], ["--limit", "0"], ["--mutant", "Nobody"]),
        *(["--spark", "--corpus"], ["--spark", "--replay", "1"], ["--spark", "--mutant", "NoEndBump"]),
        *(["--kafka", "4.3", *other] for other in (["--corpus"], ["--system"], ["--mutant", "NoEndBump"])),
    ],
)
def test_a_call_that_cannot_be_used_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = cli.main(["check", "walks", *wrong])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert "kafka-eos check walks" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_runs_the_seeds_that_worker_processes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "SEEDS_PER_CHUNK", 5)
    here = command.soak(0, 14, 1, tmp_path / "here")
    spark = command.soak(0, 14, 1, tmp_path / "spark", spark=True)
    assert here.runs == 15
    assert (spark.layers, sorted(spark.news)) == (here.layers, sorted(here.news))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_run_that_goes_wrong_on_spark_is_an_answer() -> None:
    waiting = [(3, 3), (8, 8)]
    answers = dict(executors.each_of(fails_at_eight, waiting, 1, spark=True))
    assert {chunk: [failure.seed for failure in tally.failures] for chunk, tally in answers.items()} == {
        (3, 3): [],
        (8, 8): [8],
    }


def fails_at_eight(chunk: tuple[int, int]) -> tuple[tuple[int, int], Tally]:
    tally = Tally()
    if chunk[0] == 8:
        tally.failures.append(campaign.Failure("layer", 8, "violates Everything"))
    return chunk, tally


# --- releases of Kafka ------------------------------------------------------------------------------------------------


def of_release(registry: Registry, name: str) -> Layer:
    return next(layer for layer in layers_of_release(registry, "4.3") if layer.model.name == name)


def test_a_layer_of_a_release_has_its_rules_and_leaves_out_what_tlc_shows_violated(registry: Registry) -> None:
    layer = of_release(registry, "PartitionLogTwoProducers")
    assert layer.model.overrides["SnapshotOf"] == "LastBatchOnly"
    usual = layer_named("PartitionLogTwoProducers")
    left = set(usual.properties) - set(layer.properties)
    assert left == {"StateFollowsLog", "NoGapAtLogStart", "RecentRetryIsAcknowledged"}
    assert layer.model.constants == usual.model.constants
    assert layer_named("Outbox").name not in {other.model.name for other in layers_of_release(registry, "4.3")}


@pytest.mark.parametrize(
    ("name", "left_out"),
    [("PartitionLogTwoProducers", "NoGapAtLogStart"), ("FollowerCatchesUp", "IndexFollowsLog")],
)
def test_walks_by_the_rules_of_a_release_violate_what_is_left_out(registry: Registry, name: str, left_out: str) -> None:
    layer = of_release(registry, name)
    with_it = replace(layer, name=f"{name} with {left_out}", properties=(left_out,))
    tally = campaign.run_seeds(range(60), [with_it], sample=1_000)
    assert {failure.how for failure in tally.failures} == {f"violates {left_out}"}
    assert not campaign.run_seeds(range(20), [layer], sample=1_000).failures


def test_a_violation_by_a_rule_that_another_release_has_too_counts_for_both(registry: Registry) -> None:
    releases = Releases(registry.folder.parent)
    assert "EpochsRiseByOne" in violated_by_release(registry, releases, "3.9")["TransactionCoordinator"]
    assert releases.has_alike("TransactionCoordinator", "MayAct", "4.3", "3.9")
    assert not releases.has_alike("TransactionCoordinator", "InLog", "3.9", "4.3")
    assert not releases.has_alike("TransactionCoordinator", "MayActs", "3.9", "4.3")


def test_the_command_walks_by_the_rules_of_a_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["check", "walks", "--kafka", "3.9", "--seeds", "0..12", "--jobs", "1", "--folder", str(tmp_path)]
    verdicts = tmp_path / "walks.json"
    assert cli.main([*call, "--json", str(verdicts)]) == 0
    found = read_verdicts(verdicts)
    assert found[-1].name == "seeds 0..12, Kafka 3.9"
    [readers] = [verdict for verdict in found if verdict.name == "Consumer, Kafka 3.9"]
    told = "left out, since TLC shows how Kafka 3.9 violates it: FateIsFinal, IndexFollowsLog, NoAbortedIsDelivered"
    assert told in readers.evidence
    assert not list(tmp_path.glob("corpus*"))
    assert cli.main([*call, "--corpus"]) == 2
    assert cli.main(["check", "walks", "--kafka", "1.0"]) == 2
    assert "no release '1.0'; there are 4.4, 4.3, 3.9" in capsys.readouterr().err


def test_a_run_by_the_rules_of_a_release_is_repeated_by_them(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    by_release = {"": (layer_named("Outbox"),), "4.3": (of_release(registry, "PartitionLogTwoProducers"),)}
    monkeypatch.setattr(campaign, "all_layers", lambda release="": by_release[release])
    for release, (layer,) in by_release.items():
        assert cli.main(["check", "walks", "--replay", "5", *(["--kafka", release] if release else [])]) == 0
        assert f"layer {layer.name}: " in capsys.readouterr().out


def test_a_layer_of_which_tlc_shows_every_property_violated_is_not_walked(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = {layer.model.module: frozenset(_all_properties(registry, layer.model.module)) for layer in layers(registry)}
    kept_ones = {**every, "Leader": frozenset()}
    monkeypatch.setattr(layers_module, "violated_by_release", lambda *_: kept_ones)
    assert {layer.model.module for layer in layers_of_release(registry, "4.3")} == {"Leader"}
