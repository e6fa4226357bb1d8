"""Ways through the graph of a mechanism."""

from kafka_eos_checks.conform.mechanisms import MECHANISMS
from kafka_eos_checks.conform.quotient import explored
from kafka_eos_checks.conform.run import LONGEST_SCENARIO

from .test_behaviours import VERSION_2
from .test_conform import report_on, served


def test_a_way_goes_around_the_edges_to_avoid_and_there_is_none_without_them() -> None:
    graph = explored(next(each for each in MECHANISMS if each.name == "idempotence"), VERSION_2)
    start, first = graph.initial(), {arc.edge for arc in graph.arcs[0]}
    far = next(edge for edge in graph.edges.values() if len(edge.path) > 2)
    assert graph.way_to(start, {far.name}, ()) == list(far.path)
    assert graph.way_to(start, {far.name}, first) == []
    for arc in graph.arcs[0]:
        assert graph.way_to(start, {arc.edge}, first - {arc.edge}) == [arc.request]
        assert graph.way_to(start, {arc.edge}, {arc.edge}) == []


def test_a_dry_run_tells_as_many_scenarios_and_steps_as_a_broker_that_conforms_takes() -> None:
    with served() as cluster:
        report = report_on(cluster, "idempotence")
    [graph] = report.quotients
    lengths = graph.plan(graph.edges, LONGEST_SCENARIO)
    assert (len(lengths), sum(lengths)) == (report.counts.scenarios, report.counts.requests)
    assert len(lengths) > 3
    some = [name for name in graph.edges if "wrap" in name]
    assert 0 < len(graph.plan(some, LONGEST_SCENARIO)) < len(lengths)
