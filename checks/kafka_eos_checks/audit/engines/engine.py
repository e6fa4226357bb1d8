"""The protocol of an engine: it runs the stages of the audit's plan, and keeps the rows between them.

A plan (:mod:`kafka_eos_checks.audit.plan`) is made of functions. The first function is mapped over items and gives
rows; a second one reduces the rows of each kind and key. The rows between the two stay where they were made: in this
process and its workers (:mod:`kafka_eos_checks.audit.engines.local`), or on Spark's executors
(:mod:`kafka_eos_checks.audit.engines.spark`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka_eos_checks.audit.engines.cost import StageCost, charged
from kafka_eos_checks.audit.places import Ask, ask_here, is_uri
from kafka_eos_checks.audit.segments.splits import PartitionLog

ANSWER, COST = -1, -2  # kinds of rows: of `ask_each`, and of each task
ASKED = "tasks"  # the label of what `ask_each` runs

Item = TypeVar("Item")
Result = TypeVar("Result")


class Row(NamedTuple):
    """A row between two stages.

    Attributes:
        kind: the kind of row, see :mod:`kafka_eos_checks.audit.plan.stages`.
        key: rows of a kind and key are reduced together.
        value: any value that can be pickled.
        size: about how many bytes it takes.
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
            kinds: the kinds of the values; rows of other kinds are left out.
            rows: the rows of one or several stages.
            label: the name of the stage.
        """
        ...

    def collect(self, kind: int, *rows: Any) -> list[tuple[int, Any]]:
        """All keys and values of a kind, in the rows of some stages and in order of keys, brought to the caller."""
        ...

    def collect_each(self, *wanted: tuple[int, Sequence[Any]]) -> list[list[tuple[int, Any]]]:
        """As :meth:`collect`, several times, each for a kind and the rows of some stages; on Spark by one query."""
        ...

    def stream(self, kind: int, *rows: Any) -> Iterator[Any]:
        """All values of a kind, in any order, brought to the caller piece by piece."""
        ...

    def ask_each(self, ask: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        """The answers of a function about each item, in order, each by a task of its own.

        In this process an item is asked when its answer is taken, so that one answer at a time is in memory. On Spark
        function, items and answers are pickled, and a file among the items has to be at the same path on every worker.
        """
        ...


def charged_rows(task: Callable[[], Iterable[Row]]) -> Iterator[Row]:
    """The rows of a task, followed by one of the kind :data:`COST`."""
    return charged(task, partial(Row, COST, 0))


def answered(ask: Callable[[Item], Any], numbered: tuple[int, Item]) -> Iterator[Row]:
    """The answer about an item with a number, as a row of the kind :data:`ANSWER`."""
    yield Row(ANSWER, numbered[0], ask(numbered[1]))


def costs_of(engine: Engine) -> list[StageCost]:
    """The cost of each stage that an engine has run; a stage without a task has none."""
    labels = [label for label, _ in engine.stages]
    found = engine.collect_each(*((COST, [rows]) for _, rows in engine.stages))
    return [StageCost(label, [cost for _, cost in own]) for label, own in zip(labels, found, strict=True) if own]


def asker(engine: Engine, logs: Iterable[PartitionLog]) -> Ask[Any, Any]:
    """The reader of facts about files: this process for files of its machine, the engine's tasks for others."""
    if not any(is_uri(log.folder) for log in logs):
        return ask_here
    return lambda ask, items: list(engine.ask_each(ask, items))
