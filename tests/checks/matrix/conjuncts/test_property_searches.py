"""Made-up searches of mutants: what each says about the parts of a property, and when a search is made again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.equations import Numbers
from kafka_eos_checks.matrix.conjuncts.guards import Conjunct
from kafka_eos_checks.matrix.conjuncts.outcomes import Means
from kafka_eos_checks.matrix.conjuncts.properties import (
    MOST_STATES,
    Family,
    Mutant,
    PropertySearch,
    Version,
    _claimed,
    _covering,
    _Kinds,
    _tree,
    _versions,
)
from kafka_eos_checks.matrix.conjuncts.sets import Values
from kafka_eos_checks.matrix.conjuncts.sightings import Sighting
from kafka_eos_checks.matrix.conjuncts.spec_steps import NotEvaluable
from kafka_eos_checks.models.registry import Expectation, Model, Registry
from kafka_eos_checks.mutants.rules import MUTANTS
from kafka_eos_checks.tla.parser import parse_expression
from kafka_eos_checks.tla.result_cache import ResultCache
from kafka_eos_checks.tla.sany import Definition, Expression, Span


@pytest.mark.parametrize("indent", ["", " ", "  "])
@pytest.mark.parametrize(
    ("body", "part", "value"),
    [("a < b", "a < b", "a <= b"), ("a < b /\\ c > d", "c > d", "c >= d"), ("x + yy", "x + yy", "x")],
)
def test_the_body_of_a_property_ends_where_its_longer_part_ends(indent: str, body: str, part: str, value: str) -> None:
    line = f"{indent}P == {body}"
    text = f"Q == a\n{line}\nR == b\n"
    begin, column = line.index(body) + 1, line.index(part) + 1
    span = Span("M", 2, column, 2, column + len(part) - 1)
    change = Conjunct(operator="M!P", change=f"{part} -> {value}", span=span, value=value)
    assert _tree(text, Span("M", 2, begin, 2, len(line)), change) == parse_expression(body.replace(part, value), "")


def test_a_property_of_the_module_is_weakened_also_if_an_instance_has_one_of_its_name() -> None:
    def defined(module: str) -> Definition:
        sides = [Expression(span=Span(module, 1, column, 1, column), level=1) for column in (6, 10)]
        body = Expression(span=Span(module, 1, 6, 1, 10), level=1, operator="<", operands=tuple(sides))
        return Definition(name="P", body=body)

    definitions = {"1": defined("Other"), "2": defined("M")}
    numbers = Numbers(definitions, {})
    kinds = _Kinds(frozenset().__contains__, numbers.is_number, Values(definitions, {}))
    found = _versions("P", "M", definitions, {"M": "P == a < b\n"}, {"M"}, kinds)
    assert [each.change.change for each in found if each.change] == ["P -> TRUE", "a < b -> a <= b"]


def allows_nothing(state: object, client: str, amount: int) -> str:
    return "STALE"


def allows_all(state: object, client: str, amount: int) -> str:
    return "NONE"


@pytest.fixture
def key(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The fingerprint of a search of the mutant NoLimit with something changed."""
    monkeypatch.setitem(MUTANTS, "no_limit", allows_nothing)
    mutant = registry.get("NoLimit")

    def key(changed: Callable[[Model], Model] = lambda model: model, versions: tuple[Version, ...] = ()) -> str:
        return PropertySearch(cache=ResultCache(tmp_path))._key(changed(mutant), versions)

    return key


def test_a_search_is_made_again_if_something_changes_that_it_depends_on(
    key: Callable[..., str], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = key()
    assert key() == key(lambda model: replace(model, title="other words", claims=("C1",))) == first
    version = Version(name="P", change=None, tree=None, place="")
    others = [
        key(lambda model: replace(model, constants={**model.constants, "Limit": "4"})),
        key(lambda model: replace(model, bounds="")),
        key(lambda model: replace(model, invariants=("Grows",))),
        key(lambda model: replace(model, specification="Fair")),
        key(versions=(version,)),
        key(versions=(replace(version, name="Q"),)),
    ]
    with monkeypatch.context() as patched:
        patched.setitem(MUTANTS, "no_limit", allows_all)
        others.append(key())
    for name in ("Counter.tla", "mutants/CounterMutants.tla"):
        file = registry.folder.parent / name
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace('"STALE"', '"OLD"'), encoding="utf-8")
        others.append(key())
        file.write_text(text, encoding="utf-8")
    assert len({first, *others}) == 1 + len(others)
    assert key() == first


def version(name: str, change: str = "", value: str = "TRUE", has_tree: bool = True) -> Version:
    span = Span("M", 1, 1, 1, 1)
    made = Conjunct(operator=f"M!{name}", change=change, span=span, value=value) if change else None
    return Version(name=name, change=made, tree=("literal", True) if has_tree else None, place="M.tla:1")


P, P_GONE, P_PART, P_SOME, Q, Q_GONE = range(6)
VERSIONS = (
    version("P"),
    version("P", "P -> TRUE", has_tree=False),
    version("P", "a -> TRUE"),
    version("P", "\\\\A -> \\\\E", value="\\E"),
    version("Q"),
    version("Q", "Q -> TRUE", has_tree=False),
)
FOLLOWS = {("M!Q", "Q -> TRUE"): frozenset({"P"})}


def seen(violated: dict[int, int], states: int = 10, whole: bool = True) -> Sighting:
    return Sighting(violated, whole, "" if whole else "KeyError: 'a'", states)


Judge = Callable[..., dict[int, str]]


@pytest.fixture
def judge(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """For each weaker version the mutant that notices it, or in brackets why nothing does."""
    model = replace(registry.models["Counter"], invariants=("P", "Q"), expect=Expectation(states=20))

    def judge(
        sightings: dict[str, Sighting],
        follows: dict[tuple[str, str], frozenset[str]] | None = None,
        checked: str = "PQ",
    ) -> dict[int, str]:
        def sighting(_: PropertySearch, mutant: Mutant, __: object) -> Sighting:
            return sightings[mutant.label]

        monkeypatch.setattr(PropertySearch, "sighting", sighting)
        mutants = [Mutant(label=label, model=replace(model, invariants=tuple(checked))) for label in sightings]
        search = PropertySearch(cache=ResultCache(tmp_path), follows=follows or {})
        outcomes = search.judge(Family(module="M", versions=VERSIONS, mutants=tuple(mutants)))
        places = [place for place, each in enumerate(VERSIONS) if each.change]
        return {
            place: outcome.by if outcome.means is Means.MUTANT else f"({outcome.by})"
            for place, outcome in zip(places, outcomes, strict=True)
        }

    return judge


def test_a_mutant_that_violates_a_property_and_not_a_weaker_one_notices_the_part(judge: Judge) -> None:
    nobody = {P_GONE: "(no mutant violates it)", P_PART: "()", P_SOME: "()", Q_GONE: "(no mutant violates it)"}
    assert judge({"": seen({}), "X": seen({})}) == nobody
    assert judge({"": seen({}), "X": seen({P: 3})}) == nobody | {P_GONE: "X", P_PART: "X", P_SOME: "X"}
    assert judge({"": seen({}), "X": seen({P: 3, P_PART: 3, P_SOME: 3})}) == nobody | {P_GONE: "X"}
    both = nobody | {P_GONE: "(also Q)", Q_GONE: "(also P)"}
    assert judge({"": seen({}), "X": seen({P: 3, P_PART: 3, P_SOME: 3, Q: 3})}) == both
    assert judge({"": seen({}), "X": seen({P: 3, P_PART: 9, P_SOME: 4, Q: 3})}) == both | {P_SOME: "X"}
    first = judge({"": seen({}), "X": seen({P: 3, Q: 3, P_PART: 3, P_SOME: 3}), "Y": seen({P: 3}), "Z": seen({P: 3})})
    assert first == nobody | {P_GONE: "Y", P_PART: "Y", P_SOME: "Y", Q_GONE: "(also P)"}


def test_the_spec_itself_notices_what_was_to_be_weaker_and_is_not(judge: Judge) -> None:
    assert judge({"": seen({P_PART: 2})})[P_PART] == "the spec"
    assert judge({"": seen({P_PART: 2}), "X": seen({P: 3})})[P_PART] == "the spec"


def test_a_mutant_that_is_not_about_the_property_notices_nothing(judge: Judge) -> None:
    nothing = judge({"": seen({})})
    assert judge({"": seen({}), "X": seen({P: 3})}, checked="Q") == nothing


def test_a_named_mutant_that_has_no_value_leaves_undecided_what_no_other_one_notices(judge: Judge) -> None:
    failing = seen({P: 3}, whole=False)
    undecided = judge({"": seen({}), "X": failing})
    assert undecided[P_GONE] == "(no mutant violates it, X is not evaluated: KeyError: 'a')"
    assert undecided[P_PART] == "(X is not evaluated: KeyError: 'a')"
    assert judge({"": seen({}), "X": failing}, checked="Q")[P_GONE] == "(no mutant violates it)"
    assert judge({"": seen({}), "X": failing, "Y": seen({P: 3})})[P_GONE] == "Y"


def test_a_specification_whose_steps_are_not_known_is_not_evaluated(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searcher(*_: object) -> None:
        raise NotEvaluable("an action of another form")

    monkeypatch.setattr(PropertySearch, "_searcher", searcher)
    search = PropertySearch(cache=ResultCache(tmp_path))
    model = replace(registry.models["Counter"], invariants=("P",))
    found = search.sighting(Mutant(label="X", model=model), VERSIONS)
    assert (found.failed, found.whole, found.violated) == ("an action of another form", False, {})


def test_a_search_that_ended_at_its_limit_says_so(judge: Judge) -> None:
    cut = judge({"": seen({}), "X": seen({P: 3}, states=MOST_STATES + 1), "Y": seen({}, states=MOST_STATES + 1)})
    assert cut[P_GONE] == f"X, in its first {MOST_STATES + 1:,} states"
    assert cut[Q_GONE] == "(no mutant violates it, 2 searches ended at their limit)"
    whole = judge({"": seen({}), "X": seen({P: 3}, states=MOST_STATES)})
    assert (whole[P_GONE], whole[Q_GONE]) == ("X", "(no mutant violates it)")


def test_a_property_that_follows_from_another_takes_no_mutant_from_it(judge: Judge) -> None:
    both = {"": seen({}), "X": seen({P: 3, Q: 3})}
    assert judge(both)[P_GONE] == "(also Q)"
    assert judge(both, FOLLOWS)[P_GONE] == "X"
    assert judge(both, FOLLOWS)[Q_GONE] == "(also P)"


def test_a_mutant_refutes_that_a_property_follows_if_all_of_it_was_searched(judge: Judge) -> None:
    def refuted(mutant: Sighting, checked: str = "PQ") -> bool:
        return judge({"": seen({}), "X": mutant}, FOLLOWS, checked)[Q_GONE] == "X"

    assert refuted(seen({Q: 3}))
    assert refuted(seen({Q: 3}, states=MOST_STATES))
    assert not refuted(seen({Q: 3}, states=MOST_STATES + 1))
    assert not refuted(seen({Q: 3}), checked="Q")
    assert not refuted(seen({Q: 3, P: 4}))


def test_the_fewest_models_check_every_property_over_sets_of_more_than_one_value(registry: Registry) -> None:
    model = registry.models["Counter"]

    def checks(name: str, clients: str, amounts: str, *invariants: str, silent: tuple[str, ...] = ()) -> Model:
        constants = {"Clients": f"{{{clients}}}", "Amounts": f"{{{amounts}}}", "Limit": "3"}
        return replace(model, name=name, constants=constants, invariants=invariants, silent=silent)

    models = (
        checks("First", "1", "1", "P"),
        checks("Again", "1", "1, 2", "P"),
        checks("Clients", "1, 2", "1", "P"),
        checks("Silent", "1", "1", "Q", silent=("Q",)),
        checks("Last", "1, 2", "1, 2", "P", "Q"),
    )
    ranges = {"P": frozenset({"Clients"}), "Q": frozenset({"Amounts"})}
    assert [each.name for each in _covering(models, ranges)] == ["First", "Clients", "Last"]
    assert [each.name for each in _covering(models[:2], ranges)] == ["First"]


def test_a_known_failure_may_violate_the_properties_of_the_models_that_are_like_it(registry: Registry) -> None:
    model = registry.models["Counter"]

    def holding(*names: str, mode: str = "TRUE", specification: str = "Spec") -> Model:
        constants = {**model.constants, "Strict": mode}
        return replace(
            model, invariants=names[:1], properties=names[1:], constants=constants, specification=specification
        )

    every = [holding("A", "B"), holding("C", mode="FALSE"), holding("D", specification="Fair")]
    failure = replace(registry.models["OneClient"], constants={**model.constants, "Strict": "TRUE"})
    assert list(_claimed(registry, replace(failure, specification="Spec"), every)) == ["A", "B"]
    lenient = {**model.constants, "Strict": "FALSE", "Other": "TRUE"}
    assert list(_claimed(registry, replace(failure, constants=lenient), every)) == ["A", "B", "C"]
    assert list(_claimed(registry, registry.get("NoLimit"), every)) == ["NotAboveLimit"], "those of its own model"
