"""The two executors of the audit's plan: this process with its workers, and Spark.

A plan (:mod:`kafka_eos_checks.audit.plan`) is made of functions. The first function is mapped over items and gives
rows; a second one reduces the rows of each kind and key. The rows between the two stay where they were made. In this
process, with workers or without, that is memory, and a temporary file beyond :data:`SPILL_BYTES`; on Spark it is the
executors (:mod:`kafka_eos_checks.audit.engines.spark`).
"""

import pickle
import tempfile
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from os import SEEK_END
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from kafka_eos_checks.audit.engines.cost import StageCost, charged
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.places import Ask, ask_here, is_uri
from kafka_eos_checks.audit.quoting import key_of_names, use_key
from kafka_eos_checks.audit.segments.splits import PartitionLog
from kafka_eos_checks.kit.progress import byte_progress, count_progress
from kafka_eos_checks.kit.workers import worker_executor

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

    def collect(self, kind: int, rows: Any) -> list[tuple[int, Any]]:
        """All keys and values of a kind, in order of keys, brought to the caller."""
        ...

    def stream(self, kind: int, rows: Any) -> Iterator[Any]:
        """All values of a kind, in any order, brought to the caller piece by piece."""
        ...

    def ask_each(self, ask: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        """The answers of a function about each item, in order, each by a task of its own.

        In this process an item is asked when its answer is taken, so that one answer at a time is in memory. On Spark
        function, items and answers are pickled, and a file among the items has to be at the same path on every worker.
        """
        ...


class Packed(bytes):
    """A pickled value, which goes from worker to worker and is not looked at in between."""


def opened(value: Any) -> Any:
    """A value, which may be packed."""
    return pickle.loads(value) if isinstance(value, Packed) else value  # noqa: S301 - of a worker


class LocalRows:
    """Rows in memory, and in a temporary file once they are many."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self._places: dict[tuple[int, int], list[int]] = defaultdict(list)  # in the file
        self._file: IO[bytes] | None = None
        self._size = 0

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, row: Row) -> None:
        """Keep a row."""
        self._values[row.kind, row.key].append(row.value)
        self._size += row.size
        if self._size > SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="kafka-eos-")  # noqa: SIM115 - closed with the rows
        self._file.seek(0, SEEK_END)
        for place, values in self._values.items():
            self._places[place].append(self._file.tell())
            pickle.dump(values, self._file, pickle.HIGHEST_PROTOCOL)
        self._values.clear()
        self._size = 0

    def keys(self, kinds: Sequence[int]) -> set[int]:
        """All keys of some kinds."""
        return {key for kind, key in (*self._values, *self._places) if kind in kinds}

    def values(self, kinds: Sequence[int], key: int) -> Iterator[Any]:
        """The values of a key, in the order in which they were added."""
        return map(opened, self.kept(kinds, key))

    def kept(self, kinds: Sequence[int], key: int) -> Iterator[Any]:
        """The same, those of workers as they came."""
        for kind in kinds:
            for at in self._places.get((kind, key), ()):
                assert self._file is not None
                self._file.seek(at)
                yield from pickle.load(self._file)  # noqa: S301 - written above
            yield from self._values.get((kind, key), ())


class LocalEngine:
    """The executor on this machine: no Spark, no JVM, no pyarrow. Below about a million batches it is the fastest.

    Args:
        jobs: the number of processes that run tasks; with one it is this process. Workers import the caller's main
            module anew, so that more than one is for commands.
    """

    jvm_seconds = None

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs
        self.buckets = 1 if jobs == 1 else 2 * jobs
        self.in_process = jobs == 1
        self.stages: list[tuple[str, Any]] = []
        self._workers: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._workers is not None:
            self._workers.shutdown(cancel_futures=True)

    def map(
        self, function: Callable[[Item], Iterable[Row]], items: Sequence[Item], sizes: Sequence[int], label: str
    ) -> LocalRows:
        """As :meth:`Engine.map`."""
        rows = LocalRows()
        self.stages.append((label, rows))
        with byte_progress(label, sum(sizes)) as advance:
            for made, size in zip(self._each_done(function, ((item,) for item in items)), sizes, strict=True):
                for row in made:
                    rows.add(row)
                advance(size)
        return rows

    def regroup(
        self, function: Callable[[int, Iterator[Any]], Iterable[Row]], kinds: Sequence[int], *rows: Any, label: str
    ) -> LocalRows:
        """As :meth:`Engine.regroup`."""
        whole = LocalRows()
        self.stages.append((label, whole))
        keys = sorted(set[int]().union(*(each.keys(kinds) for each in rows)))
        for made in self._each_done(function, ((key, _kept(rows, kinds, key)) for key in keys)):
            for row in made:
                whole.add(row)
        return whole

    def _each_done(
        self, function: Callable[..., Iterable[Row]], tasks: Iterable[tuple[Any, ...]]
    ) -> Iterator[Iterable[Row]]:
        """The rows of each task, in order, with its cost; in workers only a few tasks are under way at once."""
        if self.jobs == 1:
            yield from (charged_rows(partial(function, *_opened(task))) for task in tasks)
            return
        if self._workers is None:
            self._workers = worker_executor(self.jobs)
        with tempfile.NamedTemporaryFile(prefix="kafka-eos-") as file:
            pickle.dump(function, file, pickle.HIGHEST_PROTOCOL)
            file.flush()
            waiting: deque[Future[list[Row] | Exception]] = deque()
            try:
                for task in tasks:
                    given = (*task[:1], *map(list, task[1:]))  # an item, or a key and its values
                    waiting.append(self._workers.submit(_in_worker, file.name, key_of_names(), given))
                    if len(waiting) > self.jobs:
                        yield _rows_of(waiting.popleft())
                while waiting:
                    yield _rows_of(waiting.popleft())
            except BrokenProcessPool:  # by a task, or when the next one is submitted
                told = "a process of the audit was killed, perhaps for want of memory; try --jobs 1"
                raise UnusableInput(told) from None

    def collect(self, kind: int, rows: Any) -> list[tuple[int, Any]]:
        """As :meth:`Engine.collect`."""
        return [(key, value) for key in sorted(rows.keys([kind])) for value in rows.values([kind], key)]

    def stream(self, kind: int, rows: Any) -> Iterator[Any]:
        """As :meth:`Engine.stream`."""
        for key in sorted(rows.keys([kind])):
            yield from rows.values([kind], key)

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


def _kept(rows: Iterable[LocalRows], kinds: Sequence[int], key: int) -> Iterator[Any]:
    for each in rows:
        yield from each.kept(kinds, key)


def _opened(task: tuple[Any, ...]) -> tuple[Any, ...]:
    """An item; or a key and its values."""
    return *task[:1], *(map(opened, values) for values in task[1:])


@lru_cache(maxsize=1)
def _function_in(path: str) -> Callable[..., Iterable[Row]]:
    function: Callable[..., Iterable[Row]] = pickle.loads(Path(path).read_bytes())  # noqa: S301 - of the parent
    return function


def _in_worker(path: str, key: bytes | None, given: tuple[Any, ...]) -> list[Row] | Exception:
    """The rows of a task, whose function is pickled in a file; or its error, if that can be sent."""
    use_key(key)
    try:
        rows = charged_rows(partial(_function_in(path), *_opened(given)))
        return [row._replace(value=Packed(pickle.dumps(row.value, pickle.HIGHEST_PROTOCOL))) for row in rows]
    except Exception as error:  # noqa: BLE001 - raised in the parent
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 - just made
        except Exception:  # noqa: BLE001 - an error whose arguments are not those of its class
            return RuntimeError("".join(traceback.format_exception(error)))
        return error


def _rows_of(task: "Future[list[Row] | Exception]") -> list[Row]:
    answer = task.result()
    if isinstance(answer, Exception):
        raise answer
    return answer


def charged_rows(task: Callable[[], Iterable[Row]]) -> Iterator[Row]:
    """The rows of a task, followed by one of the kind :data:`COST`."""
    return charged(task, partial(Row, COST, 0))


def answered(ask: Callable[[Item], Any], numbered: tuple[int, Item]) -> Iterator[Row]:
    """The answer about an item with a number, as a row of the kind :data:`ANSWER`."""
    yield Row(ANSWER, numbered[0], ask(numbered[1]))


def costs_of(engine: Engine) -> list[StageCost]:
    """The cost of each stage that an engine has run; a stage without a task has none."""
    stages = [StageCost(label, [cost for _, cost in engine.collect(COST, rows)]) for label, rows in engine.stages]
    return [stage for stage in stages if stage.tasks]


def asker(engine: Engine, logs: Iterable[PartitionLog]) -> Ask[Any, Any]:
    """The reader of facts about files: this process for files of its machine, the engine's tasks for others."""
    if not any(is_uri(log.folder) for log in logs):
        return ask_here
    return lambda ask, items: list(engine.ask_each(ask, items))


@contextmanager
def open_engine(name: str, spark: "SparkSession | None" = None, jobs: int = 1) -> Iterator[Engine]:
    """An executor, for as long as the block lasts.

    Args:
        name: one of :data:`ENGINES`.
        spark: the session for the engine ``spark``; without one a local session is started and stopped.
        jobs: the number of processes of the engine ``local``.

    Raises:
        ValueError: there is no engine of this name.
        UnusableInput: Spark cannot start.
        MissingExtra: its packages are not installed.
    """
    if name == "local":
        with LocalEngine(jobs) as local:
            yield local
        return
    if name != "spark":
        raise ValueError(f"engine {name!r} is none of {', '.join(ENGINES)}")
    from kafka_eos_checks.audit.engines.spark import SparkEngine, session  # noqa: PLC0415 - the light install has no Spark

    with ExitStack() as stack:
        yield stack.enter_context(SparkEngine(stack.enter_context(session(spark))))
