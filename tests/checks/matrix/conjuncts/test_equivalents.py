"""The registry of equivalent conjuncts: its form, and a check of the project's own entries on small models."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.equivalents import check_known, read_equivalents, read_follows
from kafka_eos_checks.matrix.conjuncts.outcomes import Outcome
from kafka_eos_checks.matrix.conjuncts.properties import places as weaker_places
from kafka_eos_checks.matrix.conjuncts.reference import GraphSearch, ReferenceSubject, reference_subjects
from kafka_eos_checks.matrix.conjuncts.search import Search, Subject, subjects
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry
from kafka_eos_checks.tla.result_cache import ResultCache

Weaker = tuple[str, str, str]

FEW_STATES = 2_000  # its graph is exported in a second

ENTRY = '[[equivalent]]\noperator = "Queue!Enter"\nchange = "a -> TRUE"\nreason = "it follows"\n'


def smallest(models: tuple[Model, ...]) -> tuple[Model, ...]:
    """The first of these models, which are sorted by cost; none if it has many states."""
    return tuple(model for model in models[:1] if (model.expect.states or 0) <= FEW_STATES)


def written(folder: Path, text: str) -> Path:
    path = folder / "conjuncts.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_entries_are_read_by_operator_and_change(tmp_path: Path) -> None:
    assert read_equivalents(written(tmp_path, ENTRY)) == {("Queue!Enter", "a -> TRUE"): "it follows"}
    assert read_equivalents(tmp_path / "none.toml") == {}


def test_an_entry_may_name_the_properties_that_a_property_follows_from(tmp_path: Path) -> None:
    file = written(tmp_path, ENTRY + ENTRY.replace("Enter", "Leave") + 'follows = ["NoLoss"]\n')
    assert read_follows(file) == {("Queue!Leave", "a -> TRUE"): {"NoLoss"}}
    assert read_equivalents(file).keys() == {("Queue!Enter", "a -> TRUE"), ("Queue!Leave", "a -> TRUE")}


@pytest.mark.tlc
@pytest.mark.thorough
def test_what_a_property_follows_from_is_a_property_that_a_model_of_its_module_checks(weaker: set[Weaker]) -> None:
    known = {(module, operator.partition("!")[2]) for module, operator, _ in weaker}
    for (operator, change), follows in read_follows().items():
        module, _, name = operator.partition("!")
        assert change == f"{name} -> TRUE"
        assert {(module, other) for other in follows} <= known - {(module, name)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[equivalent", "no TOML"),
        (ENTRY + "follows = []\n", "entry 1: give operator, change, reason"),
        (ENTRY + 'follows = "NoLoss"\n', "entry 1: give operator, change, reason"),
        ("[equal]\n", "unknown key 'equal'"),
        (ENTRY.replace("reason", "why"), "entry 1: give operator, change, reason"),
        (ENTRY.replace('"it follows"', '""'), "entry 1: give operator, change, reason"),
        (ENTRY + ENTRY, "entry 2: Queue!Enter: a -> TRUE occurs twice"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MalformedRegistry, match=message):
        read_equivalents(written(tmp_path, text))


def test_an_entry_without_a_conjunct_is_refused_where_its_module_is_known() -> None:
    check_known([("Queue!Enter", "a -> TRUE"), ("Other!Go", "x -> TRUE")], [("Queue!Enter", "a -> TRUE")])
    with pytest.raises(MalformedRegistry, match="no conjunct Queue!Leave: a -> TRUE"):
        check_known([("Queue!Leave", "a -> TRUE")], [("Queue!Enter", "a -> TRUE")])


@pytest.fixture(scope="module")
def weaker() -> set[Weaker]:
    return set(weaker_places(Registry()))


@pytest.fixture(scope="module")
def in_spec() -> list[Subject]:
    return subjects(Registry())


@pytest.fixture(scope="module")
def in_reference() -> list[ReferenceSubject]:
    return reference_subjects(Registry())


@pytest.mark.tlc
@pytest.mark.thorough
def test_each_entry_of_the_project_names_an_existing_conjunct(
    in_spec: list[Subject], in_reference: list[ReferenceSubject], weaker: set[Weaker]
) -> None:
    places = {(s.conjunct.operator, s.conjunct.change) for s in in_spec}
    places |= {(s.part.operator, s.part.change) for s in in_reference}
    places |= {(operator, change) for _, operator, change in weaker}
    assert read_equivalents().keys() <= places


@pytest.mark.tlc
@pytest.mark.thorough
def test_the_smallest_model_does_not_change_without_an_explained_conjunct(
    in_spec: list[Subject], in_reference: list[ReferenceSubject], tmp_path: Path
) -> None:
    reasons, cache = read_equivalents(), ResultCache(tmp_path)
    in_tlc, in_graph = Search(cache=cache, thorough=False), GraphSearch(cache=cache)
    asked = [replace(each, models=smallest(each.models)) for each in in_spec if each.place in reasons]
    tried = [one if isinstance(one, Outcome) else in_tlc.judge(one) for one in in_tlc.compared(asked)]
    parts = [each for each in in_reference if (each.part.operator, each.part.change) in reasons]
    tried += [in_graph.judge(replace(each, models=smallest(each.models))) for each in parts]
    assert [one.name for one in tried if one.means.kills] == []
    assert len(tried) > 100
