"""Runs of TLC over changed specs, made up: what each result says about the change, and which results are kept."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.guards import Conjunct
from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.matrix.conjuncts.search import LIMIT, Search, Subject, UnusableMutant
from kafka_eos_checks.models.registry import Expectation, Registry
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.behaviour import Step
from kafka_eos_checks.tla.result_cache import ResultCache
from kafka_eos_checks.tla.sany import Span

HOLDS = tlc.Result(verdict="holds", distinct=20)
NO_VALUE = "The error occurred when TLC was evaluating the nested\nexpressions at the following positions:"
CHANGED = "---- MODULE Counter ----\n\\* changed\n===="
BEHAVIOUR = (Step("Init", {"total": 0}), Step("Add", {"total": 1}))


def is_changed(job: tlc.Job) -> bool:
    return "changed" in (job.folder / "Counter.tla").read_text(encoding="utf-8")


@pytest.fixture
def subject(registry: Registry) -> Subject:
    conjunct = Conjunct(operator="Counter!Add", change="a -> TRUE", span=Span("Counter", 7, 1, 7, 1), value="TRUE")
    return Subject(conjunct=conjunct, text=CHANGED, models=(registry.get("Counter"),))


@pytest.fixture
def judged(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """The outcome of a change in one model, by what TLC says in the end and what edges it writes."""

    def judge(said: tlc.Result, edges: str = "1 -> 2\n", in_time: bool = True) -> Outcome:
        def run(job: tlc.Job) -> tlc.Result:
            if job.dump is not None:
                job.dump.write_text(edges if is_changed(job) else "1 -> 2\n", encoding="utf-8")
                return HOLDS if in_time else tlc.Result(verdict="times out")
            return said if is_changed(job) else HOLDS

        monkeypatch.setattr(tlc, "run", run)
        return Search(cache=ResultCache(tmp_path / "cache")).judge(subject)

    return judge


@pytest.mark.parametrize(
    ("said", "means", "by"),
    [
        (tlc.Result(verdict="violates NotAboveLimit"), Means.PROPERTY, "NotAboveLimit"),
        (tlc.Result(verdict="deadlocks"), Means.PROPERTY, "absence of deadlock"),
        (tlc.Result(verdict=f"violates {LIMIT}"), Means.GRAPH, "more states than the spec's 20"),
        (replace(HOLDS, distinct=21), Means.GRAPH, "21 states, the spec has 20"),
        (
            tlc.Result(verdict="error", error=f"it\n: no head\n{NO_VALUE}", behaviour=BEHAVIOUR),
            Means.EVALUATION,
            "no head",
        ),
        (tlc.Result(verdict="fails an assertion", behaviour=BEHAVIOUR), Means.EVALUATION, ""),
        (HOLDS, Means.NONE, ""),
        (tlc.Result(verdict="times out", error="after 120 s"), Means.UNDECIDED, "after 120 s"),
        (tlc.Result(verdict="error", error="OutOfMemoryError"), Means.UNDECIDED, "OutOfMemoryError"),
    ],
)
def test_what_tlc_says_of_a_changed_spec_is_the_means_that_notices_it(
    said: tlc.Result, means: Means, by: str, judged: Callable[..., Outcome]
) -> None:
    found = judged(said)
    assert (found.means, found.by) == (means, by)
    assert found.depth == len(said.behaviour)
    assert judged(replace(HOLDS, distinct=99)).means is (means if means is not Means.UNDECIDED else Means.GRAPH), (
        "what another run would say as well is kept, and nothing else"
    )


@pytest.mark.parametrize(
    "error",
    [
        "TLC ended with exit code -9 and no verdict",
        "the state has no value at 'garbled'",
        f"java.lang.OutOfMemoryError\n{NO_VALUE}",
    ],
)
def test_a_tlc_that_was_ended_or_cannot_be_read_notices_nothing(error: str, judged: Callable[..., Outcome]) -> None:
    found = judged(tlc.Result(verdict="error", error=error, behaviour=BEHAVIOUR))
    assert (found.means, found.by) == (Means.UNDECIDED, error.splitlines()[0])
    assert judged(HOLDS).means is Means.NONE, "it is not kept"


def test_other_edges_between_the_same_states_notice_a_change(judged: Callable[..., Outcome]) -> None:
    found = judged(HOLDS, "1 -> 3\n")
    assert (found.means, found.by) == (Means.GRAPH, "the same states, other edges")


def test_edges_that_are_not_written_in_time_decide_nothing_and_are_written_again(
    judged: Callable[..., Outcome],
) -> None:
    assert judged(HOLDS, "1 -> 3\n", in_time=False).means is Means.UNDECIDED
    assert judged(HOLDS, "1 -> 3\n").means is Means.GRAPH


def test_another_change_is_run_and_the_same_one_is_not(
    subject: Subject, judged: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = judged(tlc.Result(verdict="violates NotAboveLimit"))
    monkeypatch.setattr(tlc, "run", lambda _: pytest.fail("TLC is started"))
    search = Search(cache=ResultCache(tmp_path / "cache"))
    assert search.judge(subject) == first
    with pytest.raises(pytest.fail.Exception, match="TLC is started"):
        search.judge(replace(subject, text=CHANGED.replace("changed", "changed again")))


def test_if_the_first_means_is_enough_the_graph_decides_unless_a_property_has(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(job: tlc.Job) -> tlc.Result:
        checks = "NotAboveLimit" in (job.folder / f"{job.module}.cfg").read_text(encoding="utf-8")
        found = tlc.Result(verdict="violates NotAboveLimit") if checks else replace(HOLDS, distinct=21)
        return found if is_changed(job) else HOLDS

    monkeypatch.setattr(tlc, "run", run)
    hasty, thorough = (Search(cache=ResultCache(tmp_path / "cache"), thorough=each) for each in (False, True))
    assert [search.judge(subject).means for search in (hasty, thorough, hasty)] == [
        Means.GRAPH,
        Means.PROPERTY,
        Means.PROPERTY,
    ]


def test_the_cheapest_model_that_notices_a_change_is_the_last_one_that_is_run(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model,) = subject.models
    models = tuple(
        replace(model, name=name, tier=tier, expect=Expectation(generated=cost))
        for name, tier, cost in (("Small", "small", 30), ("Smaller", "small", 20), ("Full", "full", 10))
    )
    asked: list[str] = []
    rows = (
        (True, {"Small"}, ["Small", "Smaller"]),  # another model of the tier may violate a property
        (True, {"Smaller"}, ["Small", "Smaller"]),
        (True, {"Full"}, ["Small", "Smaller", "Full"]),
        (False, {"Smaller"}, ["Full", "Smaller"]),
        (False, {"Full", "Small"}, ["Full"]),
    )
    for number, (thorough, noticing, run_in) in enumerate(rows):
        asked.clear()

        def run(job: tlc.Job, noticing: set[str] = noticing) -> tlc.Result:
            name = next(each.name for each in models if job.module == f"MC_{each.name}_conjunct")
            return replace(HOLDS, distinct=21) if is_changed(job) and name in noticing and not job.dump else HOLDS

        monkeypatch.setattr(tlc, "run", run)
        monkeypatch.setattr(Search, "_edges_of", lambda *_: "the same")
        search = Search(cache=ResultCache(tmp_path / str(number)), thorough=thorough)
        outcome = search.judge(replace(subject, models=models), asked.append)
        assert (outcome.means, outcome.model in noticing, asked) == (Means.GRAPH, True, run_in)


def test_a_changed_spec_that_tlc_cannot_read_ends_the_check_and_is_not_kept(judged: Callable[..., Outcome]) -> None:
    with pytest.raises(UnusableMutant, match="Counter!Add: a -> TRUE: TLC cannot read the module"):
        judged(tlc.Result(verdict="error", error="Parse Error"))
    assert judged(HOLDS).means is Means.NONE


def test_a_run_is_kept_unless_it_was_ended(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = iter(["times out", "holds"])
    monkeypatch.setattr(tlc, "run", lambda _: tlc.Result(verdict=next(verdicts), distinct=20))
    cache, model = ResultCache(tmp_path / "cache"), registry.get("Counter")
    found = [Search(cache=cache).reference(model) for _ in range(3)]
    assert [run.verdict for run in found] == ["times out", "holds", "holds"]


@pytest.mark.parametrize("verdict", ["violates NotAboveLimit", "deadlocks", "error"])
def test_nothing_is_changed_in_a_model_that_does_not_hold_itself(
    verdict: str, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlc, "run", lambda _: tlc.Result(verdict=verdict, error="it is broken"))
    with pytest.raises(UnusableMutant, match=f"Counter itself {verdict}: it is broken"):
        Search(cache=ResultCache(tmp_path / "cache")).reference(registry.get("Counter"))
