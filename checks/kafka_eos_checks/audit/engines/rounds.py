"""Parts of a plan side by side, so that one query of Spark answers what all of them ask next.

A query of Spark takes some 0.2 CPU seconds, however few rows it brings. A part of a plan that needs rows at the caller
is a generator: it yields the kinds of rows and the stages that have them, and is sent the rows.
"""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from kafka_eos_checks.audit.engines.engine import Engine

Question = tuple[int, Sequence[Any]]  # a kind of rows, and the rows of some stages
Answers = list[list[tuple[int, Any]]]  # of each question: keys and values, in order of keys
Result = TypeVar("Result")
Part = Generator[Sequence[Question], Answers, Result]


def together(engine: Engine, *parts: Part[Any]) -> list[Any]:
    """Run parts that do not depend on each other; return their results."""
    results: list[Any] = [None] * len(parts)
    answers: dict[int, Answers | None] = dict.fromkeys(range(len(parts)))
    while answers:
        asked: dict[int, Sequence[Question]] = {}
        for number, own in answers.items():
            try:
                asked[number] = next(parts[number]) if own is None else parts[number].send(own)
            except StopIteration as end:
                results[number] = end.value
        told = iter(engine.collect_each(*(each for own in asked.values() for each in own)))
        answers = {number: [next(told) for _ in own] for number, own in asked.items()}
    return results
