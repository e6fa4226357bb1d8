"""Ways through the graph of a mechanism."""

from kafka_eos_checks.conform.mechanisms import MECHANISMS
from kafka_eos_checks.conform.quotient import explored

from .test_behaviours import VERSION_2


def test_a_way_goes_around_the_edges_to_avoid_and_there_is_none_without_them() -> None:
    graph = explored(next(each for each in MECHANISMS if each.name == "idempotence"), VERSION_2)
    start, first = graph.initial(), {arc.edge for arc in graph.arcs[0]}
    far = next(edge for edge in graph.edges.values() if len(edge.path) > 2)
    assert graph.way_to(start, {far.name}, ()) == list(far.path)
    assert graph.way_to(start, {far.name}, first) == []
    for arc in graph.arcs[0]:
        assert graph.way_to(start, {arc.edge}, first - {arc.edge}) == [arc.request]
        assert graph.way_to(start, {arc.edge}, {arc.edge}) == []
