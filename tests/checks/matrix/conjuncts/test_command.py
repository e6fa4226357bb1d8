"""``kafka-eos check conjuncts``: exit codes, the table, the verdicts that it writes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.verdict import read_verdicts
from kafka_eos_checks.matrix.conjuncts import command
from kafka_eos_checks.matrix.conjuncts.guards import Conjunct
from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.matrix.conjuncts.properties import Family, PropertySearch, judged_modules
from kafka_eos_checks.matrix.conjuncts.reference import GraphSearch, ReferenceSubject
from kafka_eos_checks.matrix.conjuncts.search import Search, Subject
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.sany import Span

SURVIVOR = ("Counter!Reset", "total >= 0 -> TRUE")
KILLED = ("Counter!AddError", "total + amount > Limit -> FALSE")
PART = ("Counter!NotAboveLimit", "NotAboveLimit -> TRUE")


@pytest.fixture(autouse=True)
def made_up(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All conjuncts of the counter are killed except the planted one; none is found by SANY here."""

    def made_up_subjects(registry: Registry, _: object) -> list[Subject]:
        return [
            Subject(
                conjunct=Conjunct(operator=operator, change=change, span=Span("Counter", 7, 1, 7, 1), value="TRUE"),
                text="",
                models=tuple(registry.models[name] for name in ("Counter", "OneClient") if name in registry.models),
            )
            for operator, change in (SURVIVOR, KILLED)
            if registry.models
        ]

    monkeypatch.setattr(command, "subjects", made_up_subjects)
    monkeypatch.setattr(command, "weaker_places", lambda *_: iter([("Counter", *PART)]))

    def judge(self: Search, subject: Subject, on_model: Callable[[str], None]) -> Outcome:
        conjunct = subject.conjunct
        on_model(subject.models[0].name)
        alive = (conjunct.operator, conjunct.change) == SURVIVOR
        return Outcome(
            operator=conjunct.operator,
            change=conjunct.change,
            place=f"Counter.tla:{conjunct.span.line}",
            means=Means.NONE if alive else Means.PROPERTY,
            by="" if alive else "NotAboveLimit",
        )

    monkeypatch.setattr(Search, "judge", judge)
    monkeypatch.setattr(command, "Registry", lambda: registry)
    monkeypatch.setattr(command, "cache_folder", lambda name: tmp_path / "build" / name)
    monkeypatch.setattr(command, "read_equivalents", dict)


def test_a_survivor_is_a_failing_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "verdicts.json"
    assert main(["check", "conjuncts", "Counter", "--only", "spec", "--json", str(file)]) == 1
    (verdict,) = read_verdicts(file)
    assert (verdict.check, verdict.name, verdict.ok) == ("conjunct", "Counter", False)
    assert "1 survive" in verdict.found
    shown = capsys.readouterr().out
    assert "survives: Counter.tla:" in shown
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert rows[2:4] == [
        "7 AddError: total + amount > Limit -> FALSE NotAboveLimit",
        "7 Reset: total >= 0 -> TRUE nothing",
    ]


def test_an_explained_survivor_is_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "read_equivalents", lambda: {SURVIVOR: "the counter starts at 0 and only grows"})
    assert main(["check", "conjuncts", "--only", "spec"]) == 0


def test_an_explained_conjunct_is_tried_in_the_smallest_models_only(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.models["OneClient"] = replace(registry.models["OneClient"], tier="full")
    judge, tried = Search.judge, dict[str, list[str]]()

    def noting(self: Search, subject: Subject, on_model: Callable[[str], None]) -> Outcome:
        tried[subject.conjunct.change] = [model.name for model in subject.models]
        return judge(self, subject, on_model)

    monkeypatch.setattr(Search, "judge", noting)
    monkeypatch.setattr(command, "read_equivalents", lambda: {SURVIVOR: "the counter starts at 0 and only grows"})
    assert main(["check", "conjuncts", "--only", "spec"]) == 0
    assert tried == {SURVIVOR[1]: ["Counter"], KILLED[1]: ["Counter", "OneClient"]}


def test_with_first_tlc_is_asked_only_for_what_the_graphs_cannot_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge, asked = Search.judge, list[tuple[str, bool]]()

    def compared(
        self: Search, subjects: Sequence[Subject], on_model: Callable[[str], None]
    ) -> Iterator[Outcome | Subject]:
        for subject in subjects:
            if subject.place == KILLED:
                by, where = "Add leads to another state", "Counter.tla:7"
                yield Outcome(operator=KILLED[0], change=KILLED[1], place=where, means=Means.GRAPH, by=by, states=1248)
            else:
                yield subject

    def noting(self: Search, subject: Subject, on_model: Callable[[str], None]) -> Outcome:
        asked.append((subject.conjunct.change, self.thorough))
        return judge(self, subject, on_model)

    monkeypatch.setattr(Search, "judge", noting)
    monkeypatch.setattr(Search, "compared", compared)
    assert main(["check", "conjuncts", "--only", "spec", "--first"]) == 1
    assert asked == [(SURVIVOR[1], False)]
    shown = " ".join(capsys.readouterr().out.split())
    assert "graph: Add leads to another state" in shown
    assert "1,248" in shown
    assert main(["check", "conjuncts", "--only", "spec"]) == 1
    assert set(asked[1:]) == {(SURVIVOR[1], True), (KILLED[1], True)}


def test_the_parts_of_the_reference_are_judged_by_its_graphs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def judge(self: GraphSearch, subject: ReferenceSubject) -> Outcome:
        self.on_progress(subject.part.name)
        operator, change = subject.place
        return Outcome(operator=operator, change=change, place=f"counter.py:{subject.part.line}", means=Means.GRAPH)

    monkeypatch.setattr(GraphSearch, "judge", judge)
    file = tmp_path / "verdicts.json"
    assert main(["check", "conjuncts", "--only", "reference", "--json", str(file)]) == 0
    (verdict,) = read_verdicts(file)
    assert (verdict.check, verdict.name, verdict.ok) == ("reference-conjunct", "counter", True)
    assert verdict.figures["graph"] > 3  # type: ignore[operator]


def test_an_explanation_without_a_conjunct_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "read_equivalents", lambda: {("Counter!Reset", "gone -> TRUE"): "no longer there"})
    assert main(["check", "conjuncts", "--only", "spec"]) == 2
    assert "no conjunct Counter!Reset: gone -> TRUE" in capsys.readouterr().err


def test_a_part_that_was_not_tried_is_not_taken_for_a_noticed_one(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(command.SIDES, "spec", lambda *_: iter(()))
    with pytest.raises(AssertionError, match="spec: not every part was tried"):
        main(["check", "conjuncts", "--only", "spec"])
    registry.models.clear()
    assert main(["check", "conjuncts", "--only", "spec"]) == 2
    assert "no guard or property of a model to take a part from\n" in capsys.readouterr().err


def test_a_module_without_a_part_is_not_taken_for_a_judged_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "spec_modules", lambda _: {"Counter", "Delivery"})
    assert main(["check", "conjuncts", "Counter", "Delivery", "--only", "spec"]) == 2
    assert "no guard or property of a model to take a part from in Delivery\n" in capsys.readouterr().err


def test_an_explained_part_of_a_property_is_known_to_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {PART: "another property says it", SURVIVOR: "it only grows"}
    monkeypatch.setattr(command, "read_equivalents", lambda: reasons)
    for side in ("spec", "properties"):
        assert main(["check", "conjuncts", "--only", side, "--list"]) == 0


def test_an_unknown_module_is_refused_with_the_known_ones_before_any_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("subjects", "weaker_places"):
        monkeypatch.delattr(command, name)
    for only, there in (([], "Counter, counter"), (["--only", "properties"], "Counter")):
        assert main(["check", "conjuncts", "Cuonter", *only]) == 2
        assert f"no module 'Cuonter'; there are {there}\n" in capsys.readouterr().err


def test_the_listing_runs_nothing_and_names_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "conjuncts", "--list"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert ": ".join(SURVIVOR) in shown
    assert "counter!Counter.read: self.seen[client] != self.total -> True" in shown


def test_a_module_that_make_judges_fails_with_a_survivor_and_with_a_stale_explanation(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(self: PropertySearch, family: Family) -> list[Outcome]:
        return [Outcome(operator=PART[0], change=PART[1], place="Counter.tla:62", means=Means.NONE)]

    monkeypatch.setattr(command, "families", lambda *_: [Family(module="Counter", versions=(), mutants=())])
    monkeypatch.setattr(PropertySearch, "judge", judge)
    explained = {PART: "it is never refused"}
    for reasons, ok, found in (
        ({}, False, "0 of 1 killed, 1 survive"),
        (explained, True, "0 of 1 killed, 1 equivalent"),
        (explained | {("Counter!Reset", "gone -> TRUE"): "no longer there"}, False, "no conjunct Counter!Reset: gone"),
    ):
        monkeypatch.setattr(command, "read_equivalents", lambda reasons=reasons: reasons)
        (verdict,) = command.judged(registry, ["Counter"])
        assert (verdict.check, verdict.name, verdict.ok) == ("property-part", "Counter", ok)
        assert found in verdict.found


def test_the_modules_that_make_judges_are_there() -> None:
    assert judged_modules(Registry()).issuperset((*command.SECONDS, *command.HALF_A_MINUTE))


def test_the_pairs_are_a_table_and_named_is_handed_on(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[bool] = []

    def made_up_families(registry: Registry, modules: Sequence[str], named: bool) -> list[Family]:
        asked.append(named)
        return [Family(module="Counter", versions=(), mutants=())]

    def judge(self: PropertySearch, family: Family, on_search: Callable[[str], None]) -> list[Outcome]:
        on_search("NoLimit")
        places = [("NotAboveLimit", Means.NONE, "also Grows"), ("Grows", Means.MUTANT, "NoLimit")]
        return [
            Outcome(operator=f"Counter!{name}", change=f"{name} -> TRUE", place="Counter.tla:62", means=means, by=by)
            for name, means, by in places
        ]

    made_up_places = [("Counter", f"Counter!{name}", f"{name} -> TRUE") for name in ("NotAboveLimit", "Grows")]
    monkeypatch.setattr(command, "weaker_places", lambda *_: iter(made_up_places))
    monkeypatch.setattr(command, "families", made_up_families)
    monkeypatch.setattr(PropertySearch, "judge", judge)
    assert main(["check", "conjuncts", "--only", "properties"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "properties that alone notice a mutant, or are shown to follow: 1 of 2" in shown
    assert "Counter Grows NoLimit" in shown
    assert "Counter NotAboveLimit none" in shown
    reasons = {PART: "it is never refused"}
    monkeypatch.setattr(command, "read_equivalents", lambda: reasons)
    assert main(["check", "conjuncts", "--only", "properties", "--named"]) == 0
    assert "follows: it is never refused" in " ".join(capsys.readouterr().out.split())
    assert asked == [False, True]
