"""Strongly connected components, compared with the nodes that reach each other."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_eos_checks.kit.components import components

Graph = dict[int, list[int]]

graphs = st.integers(1, 7).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, size - 1), max_size=3), min_size=size, max_size=size).map(
        lambda rows: dict(enumerate(rows))
    )
)


def reached(graph: Graph, node: int) -> set[int]:
    found, waiting = {node}, [node]
    while waiting:
        further = set(graph[waiting.pop()]) - found
        found |= further
        waiting += further
    return found


@given(graphs)
def test_nodes_are_in_one_component_if_they_reach_each_other(graph: Graph) -> None:
    reach = {node: reached(graph, node) for node in graph}
    together = {node: frozenset(other for other in reach[node] if node in reach[other]) for node in graph}
    found = list(components(graph))
    assert sorted(node for component in found for node in component) == sorted(graph)
    assert {frozenset(component) for component in found} == set(together.values())


def test_a_component_comes_after_those_that_it_leads_to_also_in_a_long_graph() -> None:
    size = 400
    chain: Graph = {node: [node + 1] for node in range(size - 1)} | {size - 1: []}
    assert list(components(chain)) == [[node] for node in reversed(range(size))]
    ring = chain | {size - 1: [300]}
    found = list(components(ring))
    assert sorted(found[0]) == list(range(300, size))
    assert found[1:] == [[node] for node in reversed(range(300))]
