"""Walks in worker processes and on Spark. Results do not depend on this module, so kept ones outlive its changes."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from kafka_eos_checks.audit.engines.opening import open_engine
from kafka_eos_checks.kit.workers import each_done
from kafka_eos_checks.walks import campaign
from kafka_eos_checks.walks.campaign import Tally

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_chunks(
    waiting: Sequence[tuple[int, int]], jobs: int, *, spark: bool = False, release: str = ""
) -> Iterator[tuple[tuple[int, int], Tally]]:
    """The tally of each chunk, as it is done: in this process for one job, else in workers, or on those of Spark."""
    return each_of(partial(_run_chunk, release=release), waiting, jobs, spark=spark)


def _run_chunk(chunk: tuple[int, int], release: str) -> tuple[tuple[int, int], Tally]:
    return chunk, campaign.run_seeds(range(chunk[0], chunk[1] + 1), campaign.all_layers(release))


def each_of(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int, *, spark: bool, chunksize: int = 1
) -> Iterator[Result]:
    """The results of a function for each item: on Spark by a task for each, at the end; else as :func:`each_done`."""
    if not spark:
        yield from each_done(function, items, jobs, chunksize)
        return
    with open_engine("spark") as engine:
        yield from engine.ask_each(function, items)
