"""The steps of a changed spec against the reference's graph: the same outcome as TLC's, without TLC."""

from dataclasses import replace

import pytest

from kafka_eos_checks.matrix.conjuncts import search as search_module
from kafka_eos_checks.matrix.conjuncts.edges import Edges, NotComparable, difference, edges_of
from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.matrix.conjuncts.search import Search, Subject, subjects
from kafka_eos_checks.models.registry import Expectation, Model, Registry
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.result_cache import ResultCache

STATES = 248


def unbounded(registry: Registry, states: int = STATES) -> Model:
    model = registry.models["Counter"]
    constants = {"Clients": '{"a", "b"}', "Amounts": "{1, 2}", "Limit": "2"}
    return replace(model, constants=constants, bounds="", expect=Expectation(states=states))


@pytest.fixture
def edges(registry: Registry) -> Edges:
    return edges_of(unbounded(registry))


def changed(registry: Registry, old: str, new: str) -> str:
    text = (registry.folder.parent / "Counter.tla").read_text(encoding="utf-8")
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("operator", "old", "new", "found"),
    [
        ("Read", "    /\\ seen[client] # total\n", "", (Means.GRAPH, "Read leads to another state, or is allowed")),
        ("AddError", "total + amount > Limit", "FALSE", (Means.GRAPH, "Add leads to another state, or is allowed")),
        ("AddError", "total + amount > Limit", "total > 0", (Means.GRAPH, "Add is refused where the spec allows it")),
        ("Reset", "    /\\ total >= 0\n", "", (Means.NONE, "")),
        ("Reset", "total = Limit \\/ response", "FALSE \\/ response", (Means.NONE, "")),
        ("Reset", "total' = 0", "total' = 1", (Means.GRAPH, "Reset leads to another state")),
        ("Read", "\\union {client}", "", (Means.GRAPH, "Read leads to another state")),
    ],
)
def test_an_edge_too_many_one_too_few_and_another_target_are_noticed(
    registry: Registry, edges: Edges, operator: str, old: str, new: str, found: tuple[Means, str]
) -> None:
    means, by = difference(edges, "Counter", f"Counter!{operator}", changed(registry, old, new))
    assert means is found[0]
    assert by.startswith(found[1])


def test_a_guard_that_gives_the_next_one_its_value_is_noticed_by_an_evaluation_error(registry: Registry) -> None:
    module = registry.folder.parent / "Counter.tla"
    asked_last = "Head(log).amount > 0\n    /\\ total = Limit\n"
    text = changed(registry, "    /\\ total = Limit\n    /\\ total >= 0\n", "    /\\ total >= 0\n")
    module.write_text(text.replace("Head(log).amount > 0\n", asked_last), encoding="utf-8")
    without = changed(registry, "log # <<>> /\\ Head", "Head")
    means, by = difference(edges_of(unbounded(registry)), "Counter", "Counter!Reset", without)
    assert (means, by) == (Means.EVALUATION, "Reset has no value: Head of an empty sequence")


def test_a_spec_that_differs_from_the_machine_as_it_is_is_left_to_tlc(registry: Registry) -> None:
    module = registry.folder.parent / "Counter.tla"
    module.write_text(changed(registry, "    /\\ total = Limit\n", "    /\\ total > 0\n"), encoding="utf-8")
    with pytest.raises(NotComparable, match="Reset of the spec as it is differs from the machine's"):
        difference(
            edges_of(unbounded(registry)), "Counter", "Counter!Reset", changed(registry, "    /\\ total >= 0\n", "")
        )


BRANCHES = """Know(reader, value) == seen' = [seen EXCEPT ![reader] = value]

Read(client) ==
    \\E one \\in Clients :
        /\\ one = client
        /\\ LET known == [seen EXCEPT ![one] = total] IN
           /\\ Know(one, total)
           /\\ known[one] = total
           /\\ seen' # seen
        /\\ \\/ /\\ one \\in readers
              /\\ UNCHANGED readers
           \\/ /\\ one \\notin readers
              /\\ readers' = readers \\union {one}
        /\\ UNCHANGED <<total, log, response>>

(* A client that knows"""


@pytest.mark.parametrize(
    ("old", "new", "means"),
    [
        ("one = client", "TRUE", Means.GRAPH),  # the same edges under other arguments, which TLC's labels lack
        ("one = client", "one # client", Means.GRAPH),
        ("seen' # seen", "TRUE", Means.GRAPH),
        ("one \\notin readers", "TRUE", Means.NONE),  # whoever reads again changes nothing either way
        ("one \\in readers", "TRUE", Means.GRAPH),
        ("one \\in readers", "FALSE", Means.GRAPH),
    ],
)
def test_choices_branches_and_guards_with_primes_are_compared(
    registry: Registry, old: str, new: str, means: Means
) -> None:
    module = registry.folder.parent / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    begin, end = text.index("Read(client) =="), text.index("(* A client that knows")
    module.write_text(text[:begin] + BRANCHES + text[end + len("(* A client that knows") :], encoding="utf-8")
    edges = edges_of(unbounded(registry))
    assert difference(edges, "Counter", "Counter!Read", module.read_text(encoding="utf-8")) == (Means.NONE, "")
    assert difference(edges, "Counter", "Counter!Read", changed(registry, old, new))[0] is means


def test_a_graph_that_is_not_the_registrys_and_an_operator_of_no_action_are_left_to_tlc(
    registry: Registry, edges: Edges
) -> None:
    with pytest.raises(NotComparable, match=f"has {STATES} states, the registry {STATES + 1}"):
        edges_of(unbounded(registry, STATES + 1))
    with pytest.raises(NotComparable, match="has no machine"):
        edges_of(replace(unbounded(registry), machine="", module="CounterMutants"))
    with pytest.raises(NotComparable, match="Counter!Grows belongs to no action"):
        difference(edges, "Counter", "Counter!Grows", changed(registry, "total' >= total \\/", "FALSE \\/"))


def every(registry: Registry) -> list[Subject]:
    model = replace(unbounded(registry), invariants=(), properties=())
    return [replace(subject, models=(model,)) for subject in subjects(registry)]


@pytest.mark.tlc
@pytest.mark.thorough
def test_every_conjunct_has_the_outcome_that_tlc_gives_it(registry: Registry, edges: Edges) -> None:
    search = Search(cache=ResultCache(registry.folder / "cache"), thorough=False)
    for subject in every(registry):
        means, _ = difference(edges, "Counter", subject.conjunct.operator, subject.text)
        assert means.kills == search.judge(subject).means.kills, subject.conjunct.name


def test_a_search_asks_tlc_only_where_the_graphs_cannot_tell(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Search(cache=ResultCache(registry.folder / "cache"), thorough=False)
    chosen = every(registry)
    other = replace(unbounded(registry), name="Uncounted", expect=Expectation(states=1))
    planted = next(subject for subject in chosen if subject.conjunct.change == "total >= 0 -> TRUE")
    limit = next(subject for subject in chosen if subject.conjunct.change == "total + amount > Limit -> FALSE")
    found = list(search.compared([planted, limit, *(replace(one, models=(other,)) for one in chosen[:1])]))
    outcomes = {one.change: one.means for one in found if isinstance(one, Outcome)}
    assert outcomes == {"total + amount > Limit -> FALSE": Means.GRAPH, "total >= 0 -> TRUE": Means.NONE}
    assert [one.models for one in found if isinstance(one, Subject)] == [(other,)]

    def never(_: Model) -> Edges:
        raise AssertionError("a graph is made")

    monkeypatch.setattr(search_module, "edges_of", never)
    monkeypatch.setattr(tlc, "run", never)
    again = list(Search(cache=search.cache, thorough=False).compared([planted, limit]))
    assert {one.change: one.means for one in again if isinstance(one, Outcome)} == outcomes
