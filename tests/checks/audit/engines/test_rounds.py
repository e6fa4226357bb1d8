"""Parts of a plan that ask together."""

from collections.abc import Iterator, Sequence
from typing import Any

from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.engines.rounds import Part, together


def twice(item: int) -> Iterator[Row]:
    yield Row(0, item, item)
    yield Row(1, item, 10 * item)


class Counting(LocalEngine):
    """An engine that notes how many questions each query answers."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[int] = []

    def collect_each(self, *wanted: tuple[int, Sequence[Any]]) -> list[list[tuple[int, Any]]]:
        if wanted:
            self.queries.append(len(wanted))
        return super().collect_each(*wanted)


def test_a_query_answers_what_all_parts_ask_next_and_each_part_is_given_its_own() -> None:
    with Counting() as engine:

        def asks_twice() -> Part[int]:
            rows = engine.map(twice, [1, 2], [0, 0], "first")
            plain, tens = yield (0, [rows]), (1, [rows])
            assert (plain, tens) == ([(1, 1), (2, 2)], [(1, 10), (2, 20)])
            more = engine.map(twice, [value for _, value in tens], [0, 0], "second")
            (last,) = yield ((1, [more]),)
            return sum(value for _, value in last)

        def asks_once(item: int) -> Part[int]:
            ((told,),) = yield ((0, [engine.map(twice, [item], [0], "other")]),)
            return told[1]

        def asks_nothing() -> Part[str]:
            yield from ()
            return "nothing"

        assert together(engine, asks_twice(), asks_once(7), asks_nothing(), asks_once(8)) == [300, 7, "nothing", 8]
        assert engine.queries == [4, 1]
        assert together(engine) == []
