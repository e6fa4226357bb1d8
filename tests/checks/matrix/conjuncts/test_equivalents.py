"""The registry of equivalent conjuncts: its form, and a check of the project's own entries on small models."""

from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.equivalents import check_known, read_equivalents, read_follows
from kafka_eos_checks.matrix.conjuncts.properties import places as weaker_places
from kafka_eos_checks.matrix.conjuncts.reference import GraphSearch, ReferenceSubject, reference_subjects
from kafka_eos_checks.matrix.conjuncts.search import Search, Subject, subjects
from kafka_eos_checks.models.registry import MalformedRegistry, Registry
from kafka_eos_checks.tla.result_cache import ResultCache

FEW_STATES = 2_000  # its graph is exported in a second

ENTRY = '[[equivalent]]\noperator = "Queue!Enter"\nchange = "a -> TRUE"\nreason = "it follows"\n'


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
def test_what_a_property_follows_from_is_a_property_that_a_model_of_its_module_checks() -> None:
    known = {(module, operator.partition("!")[2]) for module, operator, _ in weaker_places(Registry())}
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
def in_spec() -> list[Subject]:
    return subjects(Registry())


@pytest.fixture(scope="module")
def in_reference() -> list[ReferenceSubject]:
    return reference_subjects(Registry())


@pytest.mark.tlc
@pytest.mark.thorough
def test_each_entry_of_the_project_names_an_existing_conjunct(
    in_spec: list[Subject], in_reference: list[ReferenceSubject]
) -> None:
    places = {(s.conjunct.operator, s.conjunct.change) for s in in_spec}
    places |= {(s.part.operator, s.part.change) for s in in_reference}
    places |= {(operator, change) for _, operator, change in weaker_places(Registry())}
    assert read_equivalents().keys() <= places


@pytest.mark.tlc
@pytest.mark.thorough
def test_the_smallest_model_does_not_change_without_an_explained_conjunct(
    in_spec: list[Subject], in_reference: list[ReferenceSubject], tmp_path: Path
) -> None:
    reasons = read_equivalents()
    tlc_search, graph_search = Search(cache=ResultCache(tmp_path)), GraphSearch(cache=ResultCache(tmp_path))
    refuted = []
    for subject in in_spec:
        conjunct, models = subject.conjunct, subject.models[:1]
        if (conjunct.operator, conjunct.change) in reasons:
            smallest = Subject(conjunct=conjunct, text=subject.text, models=models)
            refuted += [conjunct.name] if tlc_search.judge(smallest).means.kills else []
    for part in in_reference:
        small = tuple(m for m in part.models[:1] if (m.expect.states or 0) <= FEW_STATES)
        if (part.part.operator, part.part.change) in reasons:
            smallest_graph = ReferenceSubject(part=part.part, models=small)
            refuted += [part.part.name] if graph_search.judge(smallest_graph).means.kills else []
    assert not refuted
