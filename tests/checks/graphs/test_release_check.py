import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

import pytest

from kafka_eos_checks.cli.command import main
from kafka_eos_checks.graphs import release_check
from kafka_eos_checks.graphs.model_check import MOST_TOLD, Outcome
from kafka_eos_checks.graphs.release_check import (
    Judged,
    check_columns,
    judge_model,
    to_verdict,
    watched,
    without_causes,
)
from kafka_eos_checks.kit.verdict import Standing, read_verdicts
from kafka_eos_checks.models.registry import Expectation, Model, Registry, Shipped
from kafka_eos_checks.models.releases import Column, Releases, columns
from kafka_eos_checks.tla import tlc

BROKEN = Shipped(violates={"NotAboveLimit": "AddError"}, states=20)
FOUND = Judged(seconds=1.0, states=20, outcomes={"NotAboveLimit": "violated after 3 steps", "NoDebt": "holds"})


def checks_of(configuration: str) -> dict[str, list[str]]:
    """The properties that a configuration of TLC names, by kind."""
    found: dict[str, list[str]] = {}
    for kind, _, name in (line.partition(" ") for line in configuration.splitlines()):
        if kind in {"INVARIANT", "PROPERTY"}:
            found.setdefault(kind, []).append(name)
    return found


@pytest.fixture
def releases(registry: Registry) -> Releases:
    return Releases(registry.folder.parent)


def column_of(registry: Registry, releases: Releases, **changes: object) -> Column:
    given: dict[str, object] = {"invariants": ("NotAboveLimit", "NoDebt"), "shipped": {"2.0": BROKEN}}
    model = replace(registry.models["Counter"], **(given | changes))  # type: ignore[arg-type]
    [column] = columns([model], ["2.0"], releases)
    return column


@pytest.mark.tlc
def test_each_property_is_judged_although_others_are_violated(registry: Registry, releases: Releases) -> None:
    properties = ("Grows", "NeverShrinks", "Drained")
    judged = judge_model(column_of(registry, releases, properties=properties).entry)
    assert judged.violated == ["NotAboveLimit", "NeverShrinks", "Drained"]
    assert judged.outcomes["NotAboveLimit"] == "violated after 3 steps"
    assert judged.outcomes["NeverShrinks"] == "violated after 4 steps"
    assert judged.outcomes["NoDebt"] == judged.outcomes["Grows"] == "holds"
    assert judged.silent == ("NoDebt",)  # the total is never negative, so that nothing could break it
    assert judged.problems == ()


@pytest.mark.tlc
def test_a_rule_that_is_missing_in_a_column_makes_an_expected_violation_vanish(
    registry: Registry, releases: Releases
) -> None:
    column = column_of(registry, releases, invariants=("NotAboveLimit",))
    without = judge_model(replace(column, rules=()).entry)
    verdict = to_verdict(column, without, releases)
    assert without.outcomes == {"NotAboveLimit": "holds"}
    assert not verdict.ok
    assert "NotAboveLimit holds, and" in verdict.evidence


@pytest.mark.tlc
def test_the_named_cause_of_a_violation_is_one_if_the_property_holds_without_it(
    registry: Registry, releases: Releases
) -> None:
    [verdict] = without_causes(column_of(registry, releases, invariants=("NotAboveLimit",)), releases)
    assert verdict.ok
    assert verdict.name == "Counter, Kafka 2.0 without AddError"


def test_a_wrong_cause_is_noticed(registry: Registry, releases: Releases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_check, "judge_model", lambda _: replace(FOUND, outcomes=dict(FOUND.outcomes)))
    [verdict] = without_causes(column_of(registry, releases), releases)
    assert not verdict.ok
    assert verdict.found == "violates NotAboveLimit"


def test_a_cause_is_not_confirmed_by_a_run_that_judged_no_property(
    registry: Registry, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_check, "judge_model", lambda _: Judged(seconds=1.0, states=20))
    [verdict] = without_causes(column_of(registry, releases), releases)
    assert not verdict.ok
    monkeypatch.setattr(
        release_check, "judge_model", lambda _: Judged(seconds=1.0, outcomes={"NotAboveLimit": "holds"})
    )
    [verdict] = without_causes(column_of(registry, releases), releases)
    assert (verdict.ok, verdict.found) == (True, "holds")


def test_a_model_as_the_registry_expects_of_a_release_is_ok_and_says_the_finding(
    registry: Registry, releases: Releases
) -> None:
    verdict = to_verdict(column_of(registry, releases), FOUND, releases)
    assert verdict.ok
    assert verdict.found == "violates NotAboveLimit"
    assert verdict.figures == {"states": 20, "NotAboveLimit": "violated after 3 steps", "NoDebt": "holds"}
    assert "NotAboveLimit is violated after 3 steps, by AddError (finding lowest-sequence)" in verdict.evidence


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"outcomes": {"NotAboveLimit": "holds", "NoDebt": "holds"}}, "NotAboveLimit holds, and"),
        (
            {"outcomes": {"NotAboveLimit": "violated after 3 steps", "NoDebt": "violated after 1 steps"}},
            "NoDebt is violated, and",
        ),
        ({"states": 21}, 'states: 21; shipped."2.0" says 20'),
        ({"silent": ("NoDebt",)}, "says nothing: NoDebt"),
        ({"problems": ("all: TLC error",)}, "all: TLC error"),
    ],
)
def test_every_difference_from_the_registry_is_a_failure(
    registry: Registry, releases: Releases, changes: dict[str, object], problem: str
) -> None:
    verdict = to_verdict(column_of(registry, releases), replace(FOUND, **changes), releases)  # type: ignore[arg-type]
    assert not verdict.ok
    assert problem in verdict.evidence


def test_a_property_that_says_something_although_it_is_called_silent_is_a_failure(
    registry: Registry, releases: Releases
) -> None:
    verdict = to_verdict(
        column_of(registry, releases, shipped={"2.0": replace(BROKEN, silent=("NoDebt",))}), FOUND, releases
    )
    assert not verdict.ok
    assert "says nothing: no property; shipped.\"2.0\" says otherwise in 'silent'" in verdict.evidence


def test_a_cause_that_is_no_rule_of_the_column_is_a_failure(registry: Registry, releases: Releases) -> None:
    shipped = {"2.0": replace(BROKEN, violates={"NotAboveLimit": "?"})}
    verdict = to_verdict(column_of(registry, releases, shipped=shipped), FOUND, releases)
    assert not verdict.ok
    assert "NotAboveLimit: ? is no rule that differs here; name some of AddError" in verdict.evidence


def test_a_model_without_an_expectation_of_a_release_is_a_failure(registry: Registry, releases: Releases) -> None:
    verdict = to_verdict(column_of(registry, releases, shipped={}), FOUND, releases)
    assert not verdict.ok
    assert (
        'the registry has no shipped."2.0"; `kafka-eos check models Counter --kafka 2.0 --update`' in verdict.evidence
    )
    none_said = column_of(registry, releases, shipped={"2.0": replace(BROKEN, states=None)})
    assert 'states: 20; shipped."2.0" says nothing\n' in to_verdict(none_said, FOUND, releases).evidence


def test_a_claim_that_does_not_hold_needs_no_expectation_of_a_release(registry: Registry, releases: Releases) -> None:
    changes = {"invariants": ("NotAboveLimit",), "shipped": {}, "expect": Expectation(violates="NotAboveLimit")}
    column = column_of(registry, releases, **changes)
    found = Judged(seconds=1.0, outcomes={"NotAboveLimit": "violated after 3 steps"})
    assert to_verdict(column, found, releases).ok
    assert not to_verdict(column, Judged(seconds=1.0, states=4, outcomes={"NotAboveLimit": "holds"}), releases).ok


def test_what_is_not_run_is_neither_ok_nor_a_failure_and_says_why(registry: Registry, releases: Releases) -> None:
    column = column_of(registry, releases)
    unaffected = to_verdict(replace(column, rules=()), None, releases)
    assert unaffected.standing is Standing.NOTHING
    assert "no rule that Counter depends on is otherwise in Kafka 2.0" in unaffected.unjudged
    outside = to_verdict(replace(column, rules=(), outside="it has no such thing"), None, releases)
    assert (outside.standing, outside.unjudged) == (Standing.NOTHING, "it has no such thing")


def test_releases_with_the_same_rules_share_a_run(
    registry: Registry, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def judge(model: Model, *, timeout: float) -> Judged:
        ran.append(model.name)
        return FOUND

    monkeypatch.setattr(release_check, "judge_model", judge)
    found = list(check_columns(columns([registry.models["Counter"]], ["2.0", "1.0"], releases)))
    assert [judged for _, judged in found] == [FOUND, FOUND]
    assert ran == ["Counter_Kafka_2_0"]
    large = replace(registry.models["Counter"], name="Large", expect=Expectation(generated=9))
    small = replace(large, name="Able", expect=Expectation(generated=8))
    ran.clear()
    list(check_columns(columns([small, large], ["2.0"], releases)))
    assert ran == ["Large_Kafka_2_0", "Able_Kafka_2_0"], "the largest first"


def test_releases_with_other_rules_have_a_run_each(
    registry: Registry, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(model: Model, *, timeout: float) -> Judged:
        return replace(FOUND, states=len(model.overrides["AddError"]))

    monkeypatch.setattr(release_check, "judge_model", judge)
    newer, older = columns([registry.models["Counter"]], ["2.0", "1.0"], releases)
    [rule] = older.rules
    own = replace(older, rules=(replace(rule, by_release={**rule.by_release, "1.0": "NoLimitAtAll"}),))
    found = [judged.states for _, judged in check_columns([newer, own]) if judged is not None]
    assert found == [len("NoLimit"), len("NoLimitAtAll")]


def test_a_run_that_tlc_does_not_end_judges_nothing_and_counts_no_states(
    registry: Registry, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = column_of(registry, releases)
    monkeypatch.setattr(tlc, "run", lambda _: tlc.Result(verdict="times out", distinct=20, seconds=3.0))
    judged = judge_model(column.entry)
    assert judged == Judged(seconds=3.0, problems=("all: TLC times out",))
    verdict = to_verdict(column, judged, releases)
    assert not verdict.ok
    assert "states" not in verdict.figures


@pytest.mark.parametrize(
    ("found", "outcomes", "problems"),
    [
        ("holds", {"Drained": "holds"}, ()),
        ("violates Drained", {"Drained": "violated after 0 steps"}, ()),
        ("times out", {}, ("Drained: TLC times out",)),
        ("error", {}, ("Drained: TLC error",)),
    ],
)
@pytest.mark.parametrize("expect", [Expectation(), Expectation(violates="Drained")])
def test_a_property_with_a_run_of_its_own_is_judged_by_what_tlc_says(
    found: str,
    outcomes: dict[str, str],
    problems: tuple[str, ...],
    expect: Expectation,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tlc, "run", lambda _: tlc.Result(verdict=found, distinct=20))
    model = replace(registry.get("Counter"), invariants=(), properties=("Drained",), expect=expect)
    judged = judge_model(model)
    assert (judged.outcomes, judged.problems) == (outcomes, problems)
    assert judged.states == (20 if found == "holds" else 0)


def test_one_run_judges_all_properties_that_it_can_and_others_have_one_each(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def ran(job: tlc.Job) -> tlc.Result:
        asked.append(tuple((job.folder / f"{job.module}.{kind}").read_text() for kind in ("cfg", "tla")))  # type: ignore[arg-type]
        said = '<<"violated", "NotAboveLimit", 3>>', '<<"violated", "NeverShrinks", 4>>', "witness true: Grows"
        return tlc.Result(verdict="holds", distinct=20, prints=said, seconds=2.0)

    monkeypatch.setattr(tlc, "run", ran)
    properties = ("Grows", "NeverShrinks", "Drained")
    model = replace(registry.get("Counter"), invariants=("NotAboveLimit", "NoDebt"), properties=properties)
    judged = judge_model(model)
    (together, definitions), (single, _) = asked
    assert checks_of(together) == {
        "INVARIANT": ["Judged__NotAboveLimit", "Judged__NoDebt", "Watch__NotAboveLimit", "Watch__NoDebt"],
        "PROPERTY": ["Judged__Grows", "Judged__NeverShrinks", "Watch__Grows"],
    }
    assert checks_of(single) == {"PROPERTY": ["Drained"]}
    said = '(TLCSet({0}, TRUE) /\\ PrintT(ToString(<<"violated", "{1}", TLCGet("level")>>)))'
    for line in (
        f"Judged__NoDebt == TLCGet(3002) \\/ NoDebt \\/ {said.format(3002, 'NoDebt')}",
        f"Judged__Grows == [][TLCGet(3003) \\/ Body__Grows \\/ {said.format(3003, 'Grows')}]_vars",
    ):
        assert line in definitions.splitlines()
    assert judged.outcomes == {
        "NotAboveLimit": "violated after 3 steps",
        "NoDebt": "holds",
        "Grows": "holds",
        "NeverShrinks": "violated after 4 steps",
        "Drained": "holds",
    }
    assert (judged.silent, judged.states, judged.seconds) == (("NoDebt",), 20, 4.0)


def test_the_witness_of_a_property_with_a_run_of_its_own_is_watched_in_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = registry.folder.parent / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    module.write_text(text.replace("Drained ==", "DrainedWitness == total = 0\nDrained ==", 1), encoding="utf-8")
    asked: list[str] = []

    def ran(job: tlc.Job) -> tlc.Result:
        asked.append((job.folder / f"{job.module}.cfg").read_text())
        return tlc.Result(verdict="holds", distinct=20)

    monkeypatch.setattr(tlc, "run", ran)
    judged = judge_model(replace(registry.get("Counter"), invariants=(), properties=("Drained",)))
    assert checks_of(asked[0]) == {"INVARIANT": ["Watch__Drained"], "PROPERTY": ["Drained"]}
    assert judged.silent == ("Drained",)


def test_a_property_of_steps_keeps_the_columns_of_its_conjuncts(registry: Registry) -> None:
    module = registry.folder.parent / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    steps = "Slowly == [][/\\ total' <= total + 2\n             /\\ total' >= 0]_vars\nGrows =="
    module.write_text(text.replace("Grows ==", steps, 1), encoding="utf-8")
    [found], _ = watched(replace(registry.get("Counter"), invariants=(), properties=("Slowly",)))
    body = found.definition.splitlines()[1:3]
    assert [line.index("/\\") for line in body] == [13, 13]
    assert found.definition.endswith("]_vars")


@pytest.mark.parametrize(
    ("models", "tell", "violated", "is_told"),
    [
        ([], None, ["NotAboveLimit"], []),  # expected, and nobody asked for it
        (["Counter"], None, ["NotAboveLimit"], ["NotAboveLimit"]),
        ([], None, ["NotAboveLimit", "NoDebt"], ["NoDebt"]),
        (["Counter", *["OneClient"] * MOST_TOLD], None, ["NotAboveLimit"], []),  # too many to be told
        ([], ["NotAboveLimit"], ["NotAboveLimit", "NoDebt"], ["NotAboveLimit"]),
        (["Counter"], ["NoDebt"], ["NotAboveLimit"], []),  # it is not violated
    ],
)
def test_a_counterexample_is_told_if_it_is_asked_for_or_unexpected_or_the_models_are_named_and_few(
    models: list[str],
    tell: list[str] | None,
    violated: list[str],
    is_told: list[str],
    registry: Registry,
    releases: Releases,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    column = column_of(registry, releases)
    judged = replace(FOUND, outcomes={**FOUND.outcomes, **dict.fromkeys(violated, "violated after 3 steps")})
    checked = []

    def check(model: Model) -> Outcome:
        checked.append((*model.invariants, *model.properties))
        return Outcome(model=model, result=tlc.Result(verdict="holds"), found="holds")

    monkeypatch.setattr(release_check, "check_columns", lambda *_, **__: [(column, judged)])
    monkeypatch.setattr(release_check, "check_model", check)
    monkeypatch.setattr(release_check, "story", str)
    names = {"models": models, "kafka": ["2.0"], "jobs": 1, "timeout": 1.0}
    json_file = registry.folder / "verdicts.json"
    arguments = argparse.Namespace(**names, tell=tell, update=False, causes=False, json=json_file)
    expected = 0 if violated == ["NotAboveLimit"] else 1
    assert release_check.run(arguments, [registry.get(name) for name in models], registry) == expected
    assert checked == [(name,) for name in is_told]
    assert [verdict.name for verdict in read_verdicts(json_file)] == [column.name]


@pytest.mark.parametrize(("violated", "code"), [(["NotAboveLimit"], 0), (["NotAboveLimit", "NoDebt"], 1)])
def test_an_update_settles_the_numbers_but_not_the_rules_behind_a_new_violation(
    violated: list[str], code: int, registry: Registry, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = column_of(registry, releases)
    monkeypatch.setattr(registry, "get", lambda _: column.model)
    column.model.file.write_text(f'[model.Counter]\nshipped."2.0" = {BROKEN.line}\n', encoding="utf-8")
    judged = replace(FOUND, states=21, outcomes=FOUND.outcomes | dict.fromkeys(violated, "violated after 3 steps"))
    monkeypatch.setattr(release_check, "check_columns", lambda *_, **__: [(column, judged)])
    monkeypatch.setattr(release_check, "counterexample", lambda *_: "")
    names = {"models": ["Counter"], "kafka": ["2.0"], "jobs": 1, "timeout": 1.0}
    arguments = argparse.Namespace(**names, tell=None, update=True, causes=False, json=None)
    assert release_check.run(arguments, [column.model], registry) == code
    assert "states = 21" in column.model.file.read_text(encoding="utf-8")


def test_an_update_writes_nothing_of_a_run_that_did_not_end_well(
    registry: Registry, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = column_of(registry, releases)
    before = column.model.file.read_text(encoding="utf-8")
    judged = replace(FOUND, states=21, problems=("TLC ended",))
    monkeypatch.setattr(release_check, "check_columns", lambda *_, **__: [(column, judged)])
    monkeypatch.setattr(release_check, "counterexample", lambda *_: "")
    names = {"models": ["Counter"], "kafka": ["2.0"], "jobs": 1, "timeout": 1.0}
    arguments = argparse.Namespace(**names, tell=None, update=True, causes=False, json=None)
    assert release_check.run(arguments, [column.model], registry) == 1
    assert column.model.file.read_text(encoding="utf-8") == before


def test_an_unknown_release_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "models", "PartitionLog", "--kafka", "2.8"]) == 2
    assert "no release '2.8'; there are 4.4, 4.3, 3.9" in capsys.readouterr().err
    assert main(["check", "graphs", "PartitionLog", "--kafka", "2.8"]) == 2
    assert main(["check", "models", "PartitionLog", "--causes"]) == 2
    assert main(["check", "models", "PartitionLog", "--tell", "NoGap"]) == 2
    assert "--causes and --tell need --kafka" in capsys.readouterr().err


def test_a_property_that_the_models_do_not_judge_is_refused_with_those_that_they_judge(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "models", "TransactionsNoLeader", "--kafka", "4.3", "--tell", "NoGap"]) == 2
    told = capsys.readouterr().err
    assert "these models do not judge NoGap; --tell takes one of " in told
    assert "NoHangingTransaction" in told


SHOP = """---- MODULE Shop ----
EXTENDS Integers, Sequences
CONSTANTS Clients, Amounts, Most
VARIABLES total, seen, log, readers, response
Till == INSTANCE Counter WITH Limit <- Most - 1
Spec == Till!Init /\\ [][Till!Next]_<<total, seen, log, readers, response>>
Bounds == Len(log) <= 3
BelowMost == total < Most
===="""


@pytest.mark.tlc
def test_a_rule_of_an_instantiated_module_is_that_of_the_release_too(registry: Registry) -> None:
    folder = registry.folder.parent
    (folder / "Shop.tla").write_text(SHOP, encoding="utf-8")
    with (folder / "releases.toml").open("a", encoding="utf-8") as file:
        file.write('\n[instances]\nShop = ["Counter"]\n')
    constants = {"Clients": '{"a"}', "Amounts": "{1, 2}", "Most": "3"}
    changes = {"module": "Shop", "constants": constants, "invariants": ("BelowMost",), "probes": ()}
    column = column_of(registry, Releases(folder), **changes)
    assert [rule.key for rule in column.rules] == ["Counter!AddError"]
    assert judge_model(column.entry).outcomes == {"BelowMost": "violated after 3 steps"}
    assert judge_model(replace(column, rules=()).entry).outcomes == {"BelowMost": "holds"}


class Told:
    """A console whose status lets the work go on once it was told twice how far that is."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.twice = Event()

    @contextmanager
    def status(self, _: str) -> Iterator["Told"]:
        yield self

    def update(self, text: str) -> None:
        self.said.append(text)
        if len(self.said) > 1:
            self.twice.set()


def test_it_is_told_how_many_columns_are_done_while_one_is_waited_for(
    registry: Registry, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()

    def judged(_: Model, **__: float) -> Judged:
        assert told.twice.wait(10)
        return FOUND

    monkeypatch.setattr(release_check, "progress_console", told)
    monkeypatch.setattr(release_check, "judge_model", judged)
    [(_, found)] = check_columns([column_of(registry, releases)])
    assert found is FOUND
    assert set(told.said) == {"0 of 1 done, the largest first"}
