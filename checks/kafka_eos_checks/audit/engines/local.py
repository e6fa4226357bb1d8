"""The two executors of the audit's plan: this process, and Spark.

A plan (:mod:`kafka_eos_checks.audit.plan`) is made of functions. The first function is mapped over items and gives
rows; a second one reduces the rows of each kind and key. The rows between the two stay where they were made. In this
process that is memory, and a temporary file beyond :data:`SPILL_BYTES`; on Spark it is the executors
(:mod:`kafka_eos_checks.audit.engines.spark`).
"""

import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from kafka_eos_checks.audit.engines.cost import StageCost, charged
from kafka_eos_checks.audit.places import Ask, ask_here, is_uri
from kafka_eos_checks.audit.segments.splits import PartitionLog
from kafka_eos_checks.kit.progress import byte_progress, count_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("local", "spark")
SPILL_BYTES = 256 << 20  # of all rows that are kept in memory

ANSWER, COST = -1, -2  # kinds of rows: of `ask_each`, and of each task
ASKED = "tasks"  # the label of what `ask_each` runs

Item = TypeVar("Item")
Result = TypeVar("Result")


class Row(NamedTuple):
    """A row between two stages.

    Attributes:
        kind: what it is, see :mod:`kafka_eos_checks.audit.plan.stages`.
        key: rows of a kind and key are reduced together.
        value: any value that can be pickled.
        size: bytes that it takes, about.
    """

    kind: int
    key: int
    value: Any
    size: int = 0


class Engine(Protocol):
    """An executor of the plan.

    Attributes:
        buckets: the least number of buckets of producer ids.
        stages: the stages that have run, each as label and rows.
        in_process: whether its tasks run in this process.
    """

    buckets: int
    stages: list[tuple[str, Any]]
    in_process: bool

    @property
    def jvm_seconds(self) -> float | None:
        """CPU seconds of Spark's JVM up to now; None without one that this process has started."""
        ...

    def map(
        self, function: Callable[[Item], Iterable[Row]], items: Sequence[Item], sizes: Sequence[int], label: str
    ) -> Any:
        """The rows that a function makes of each item; they stay where they were made.

        Args:
            function: gives the rows of an item; all that it refers to is sent along.
            items: the items, in tasks of one item each.
            sizes: bytes of each item, for progress.
            label: the name of the stage.
        """
        ...

    def regroup(
        self, function: Callable[[int, Iterator[Any]], Iterable[Row]], kinds: Sequence[int], *rows: Any, label: str
    ) -> Any:
        """The rows that a function makes of the values of each key; they stay where they were made.

        Args:
            function: takes a key and its values, of all these kinds, in any order.
            kinds: rows of others are left out.
            rows: from one or several stages.
            label: the name of the stage.
        """
        ...

    def collect(self, kind: int, rows: Any) -> list[tuple[int, Any]]:
        """All keys and values of a kind, in order of keys, brought to the caller."""
        ...

    def ask_each(self, ask: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        """The answers of a function about each item, in order, each by a task of its own.

        In this process an item is asked when its answer is taken, so that one answer at a time is in memory. On Spark
        function, items and answers are pickled, and a file among the items has to be at the same path on every worker.
        """
        ...


class LocalRows:
    """Rows in memory, and in a temporary file for each key once they are many."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self._files: dict[tuple[int, int], IO[bytes]] = {}
        self._size = 0

    def __del__(self) -> None:
        for file in self._files.values():
            file.close()

    def add(self, row: Row) -> None:
        """Keep a row."""
        self._values[row.kind, row.key].append(row.value)
        self._size += row.size
        if self._size > SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        for place, values in self._values.items():
            if place not in self._files:
                self._files[place] = tempfile.TemporaryFile(prefix="kafka-eos-")  # noqa: SIM115 - closed with the rows
            pickle.dump(values, self._files[place], pickle.HIGHEST_PROTOCOL)
        self._values.clear()
        self._size = 0

    def keys(self, kinds: Sequence[int]) -> set[int]:
        """All keys of some kinds."""
        return {key for kind, key in (*self._values, *self._files) if kind in kinds}

    def values(self, kinds: Sequence[int], key: int) -> Iterator[Any]:
        """The values of a key."""
        for kind in kinds:
            yield from self._values.get((kind, key), ())
            file = self._files.get((kind, key))
            if file is not None:
                end = file.seek(0, 2)
                file.seek(0)
                while file.tell() < end:
                    yield from pickle.load(file)  # noqa: S301 - written above


class LocalEngine:
    """The executor in this process: no Spark, no JVM, no pyarrow. Below about a million batches it is the fastest."""

    buckets = 1
    in_process = True
    jvm_seconds = None

    def __init__(self) -> None:
        self.stages: list[tuple[str, Any]] = []

    def map(
        self, function: Callable[[Item], Iterable[Row]], items: Sequence[Item], sizes: Sequence[int], label: str
    ) -> LocalRows:
        """As :meth:`Engine.map`."""
        rows = LocalRows()
        self.stages.append((label, rows))
        with byte_progress(label, sum(sizes)) as advance:
            for item, size in zip(items, sizes, strict=True):
                for row in charged_rows(partial(function, item)):
                    rows.add(row)
                advance(size)
        return rows

    def regroup(
        self, function: Callable[[int, Iterator[Any]], Iterable[Row]], kinds: Sequence[int], *rows: Any, label: str
    ) -> LocalRows:
        """As :meth:`Engine.regroup`."""
        made = LocalRows()
        self.stages.append((label, made))
        for key in sorted(set[int]().union(*(each.keys(kinds) for each in rows))):
            values = (value for each in rows for value in each.values(kinds, key))
            for row in charged_rows(partial(function, key, values)):
                made.add(row)
        return made

    def collect(self, kind: int, rows: Any) -> list[tuple[int, Any]]:
        """As :meth:`Engine.collect`."""
        return [(key, value) for key in sorted(rows.keys([kind])) for value in rows.values([kind], key)]

    def ask_each(self, ask: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """As :meth:`Engine.ask_each`."""
        costs = LocalRows()
        self.stages.append((ASKED, costs))
        with count_progress(ASKED, len(items)) as advance:
            for item in items:
                answer, cost = charged_rows(partial(answered, ask, (0, item)))
                costs.add(cost)
                yield answer.value
                advance(1)


def charged_rows(task: Callable[[], Iterable[Row]]) -> Iterator[Row]:
    """The rows of a task, followed by one of the kind :data:`COST`."""
    return charged(task, partial(Row, COST, 0))


def answered(ask: Callable[[Item], Any], numbered: tuple[int, Item]) -> Iterator[Row]:
    """The answer about an item with a number, as a row of the kind :data:`ANSWER`."""
    yield Row(ANSWER, numbered[0], ask(numbered[1]))


def costs_of(engine: Engine) -> list[StageCost]:
    """The cost of each stage that an engine has run."""
    return [StageCost(label, [cost for _, cost in engine.collect(COST, rows)]) for label, rows in engine.stages]


def asker(engine: Engine, logs: Iterable[PartitionLog]) -> Ask[Any, Any]:
    """The reader of facts about files: this process for files of its machine, the engine's tasks for others."""
    if not any(is_uri(log.folder) for log in logs):
        return ask_here
    return lambda ask, items: list(engine.ask_each(ask, items))


@contextmanager
def open_engine(name: str, spark: "SparkSession | None" = None) -> Iterator[Engine]:
    """An executor, for as long as the block lasts.

    Args:
        name: one of :data:`ENGINES`.
        spark: the session for the engine ``spark``; without one a local session is started and stopped.

    Raises:
        ValueError: there is no engine of this name.
        UnusableInput: Spark cannot start.
        MissingExtra: its packages are not installed.
    """
    if name == "local":
        yield LocalEngine()
        return
    if name != "spark":
        raise ValueError(f"engine {name!r} is none of {', '.join(ENGINES)}")
    from kafka_eos_checks.audit.engines.spark import SparkEngine, session  # noqa: PLC0415 - the light install has no Spark

    with ExitStack() as stack:
        yield stack.enter_context(SparkEngine(stack.enter_context(session(spark))))
