"""The outcomes of many runs add up, and a run that is judged twice takes the same steps."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos.machines.machine import Action, Instance
from kafka_eos_checks.walks import campaign, kept
from kafka_eos_checks.walks.campaign import Failure, LayerTally, Tally, all_layers, difference, run_seeds
from kafka_eos_checks.walks.properties import Wrong
from kafka_eos_checks.walks.walk import Coverage, Run

STEP = Instance(Action(name="Crash", domains=(), method="crash"), ())


def of_layer(times: int) -> Tally:
    coverage = Coverage(Counter(Crash=6 * times), Counter({("Crash", "NONE"): 7 * times}), Counter())
    layer = LayerTally(times, 2 * times, 3 * times, 4 * times, 5 * times, coverage)
    return Tally({"Outbox": layer}, seconds=8.0 * times, setup=9.0 * times)


def test_the_counts_of_a_layer_are_those_of_all_its_chunks() -> None:
    total = Tally()
    for times in (1, 10, 100):
        total.add(of_layer(times))
    assert total == of_layer(111)
    assert (total.runs, total.steps, total.sampled) == (111, 222, 555)


def test_of_each_layer_the_same_share_of_runs_is_judged_twice() -> None:
    chosen = [layer for layer in all_layers() if layer.name in {"MirrorOffsetsInTarget", "Outbox"}]
    tally = run_seeds(range(8), chosen, sample=2)
    assert [(layer.runs, layer.sampled) for layer in tally.layers.values()] == [(4, 2), (4, 2)]


def test_a_seed_of_the_corpus_keeps_what_it_met_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "runs_fingerprint", lambda: "these runs")
    for news in ([(5, "Outbox", ("Crash",))], [(5, "Outbox", ("Restart",)), (7, "Outbox", ("Crash", "Stop"))]):
        path = kept.write_corpus(tmp_path, Tally(news=news))
    rows = json.loads(path.read_text(encoding="utf-8"))["seeds"]
    assert {row["seed"]: row["adds"] for row in rows} == {5: ["Crash"], 7: ["Stop"]}


def test_a_second_judgement_that_differs_is_a_failure_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [layer for layer in all_layers() if layer.name == "Outbox"]
    monkeypatch.setattr(campaign, "difference", lambda run, _: f"run {run.seed} differs")
    assert run_seeds(range(2), chosen, sample=2).failures == [Failure("Outbox", 0, "run 0 differs")]


def test_a_second_judgement_that_takes_other_steps_or_finds_something_else_is_a_difference() -> None:
    run, wrong = Run(1, [STEP], fair=[STEP]), Wrong("P", "violates P")
    assert difference(run, replace(run)) == ""
    others = "takes other steps when every property is evaluated at every step"
    assert difference(run, replace(run, schedule=[])) == difference(run, replace(run, fair=[])) == others
    seen = "violates nothing; with every property evaluated at every step it violates P"
    assert difference(run, replace(run, wrong=wrong)) == seen
