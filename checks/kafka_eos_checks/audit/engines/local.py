"""The engine of one machine: it runs a plan in this process, or in worker processes.

The rows between two stages stay in memory, and beyond :data:`SPILL_BYTES` in a temporary file without a name. A worker
writes them to a temporary file of its own, from which the other workers read, so that this process only knows where
they are.
"""

import os
import pickle
import shutil
import tempfile
import traceback
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from kafka_eos_checks.audit.engines.engine import ASKED, Item, Result, Row, answered, charged_rows
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.quoting import key_of_names, use_key
from kafka_eos_checks.audit.weights import IMPORTED
from kafka_eos_checks.kit.workers import left_behind, worker_executor

SPILL_BYTES = 32 << 20  # of the rows of a stage that are kept in memory
AHEAD = 4  # tasks for each worker that are submitted and not taken yet, so that no worker waits for the slowest


class Stored(NamedTuple):
    """Where a list of values is stored, pickled: the file, the first byte and the number of bytes.

    The file is a path that all processes know, or a file of this process without a name.
    """

    path: "str | IO[bytes]"
    start: int
    size: int


Places = dict[tuple[int, int], list[Stored]]  # by kind and key


def opened(parts: Iterable[Sequence[Any]]) -> Iterator[Any]:
    """The values of some lists, which may be stored."""
    with ExitStack() as stack:
        files: dict[str, IO[bytes]] = {}
        for part in parts:
            if not isinstance(part, Stored):
                yield from part
                continue
            if not isinstance(part.path, str):
                file = part.path
            else:
                if part.path not in files:
                    files[part.path] = stack.enter_context(Path(part.path).open("rb"))
                file = files[part.path]
            file.seek(part.start)
            yield from pickle.loads(file.read(part.size))  # noqa: S301 - written by `LocalRows`


class LocalRows:
    """Rows in memory, and in temporary files once they are many.

    Rows that only this process reads are in a file without a name, so that nothing stays if the process is killed.

    Args:
        folder: where the files are that other processes read, too. The first use of :attr:`folder` makes one, which is
            removed with the rows or when they are closed.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.places: Places = defaultdict(list)
        self._values: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._size = 0
        self.close: Callable[[], object] = lambda: None

    @property
    def folder(self) -> str:
        """The folder of the files."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="kafka-eos-")
            self.close = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def add(self, row: Row) -> None:
        """Keep a row."""
        self._values[row.kind, row.key].append(row.value)
        self._size += row.size
        if self._size > SPILL_BYTES:
            self.store()

    def add_stored(self, places: Places) -> None:
        """Keep rows that another process has stored in the folder."""
        for place, own in places.items():
            self.places[place] += own

    def store(self) -> None:
        """Move all rows from memory to this process's file."""
        if self._folder is not None:
            path = f"{self._folder}/{os.getpid()}"
            with Path(path).open("ab") as file:
                self._store(path, file)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="kafka-eos-")  # noqa: SIM115 - open as long as the rows
            self.close = weakref.finalize(self, self._file.close)
        self._store(self._file, self._file)

    def _store(self, path: "str | IO[bytes]", file: IO[bytes]) -> None:
        file.seek(0, os.SEEK_END)
        for place, values in self._values.items():
            start = file.tell()
            pickle.dump(values, file, pickle.HIGHEST_PROTOCOL)
            self.places[place].append(Stored(path, start, file.tell() - start))
        file.flush()
        self._values.clear()
        self._size = 0

    def keys(self, kinds: Sequence[int]) -> set[int]:
        """All keys of some kinds."""
        return {key for kind, key in (*self._values, *self.places) if kind in kinds}

    def values(self, kinds: Sequence[int], key: int) -> Iterator[Any]:
        """The values of a key, in the order in which they were added."""
        return opened(self.parts(kinds, key))

    def parts(self, kinds: Sequence[int], key: int) -> Iterator[Sequence[Any]]:
        """The same as lists for :func:`opened`."""
        for kind in kinds:
            yield from self.places.get((kind, key), ())
            yield self._values.get((kind, key), ())


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
        for _label, rows in self.stages:
            rows.close()

    def map(
        self, function: Callable[[Item], Iterable[Row]], items: Sequence[Item], sizes: Sequence[int], label: str
    ) -> LocalRows:
        """As :meth:`Engine.map`."""
        from kafka_eos_checks.kit.progress import byte_progress  # noqa: PLC0415 - a worker shows none and starts sooner

        rows = LocalRows()
        self.stages.append((label, rows))
        with byte_progress(label, sum(sizes)) as advance:
            for _, size in zip(self._each_done(function, ((item,) for item in items), rows), sizes, strict=True):
                advance(size)
        return rows

    def regroup(
        self, function: Callable[[int, Iterator[Any]], Iterable[Row]], kinds: Sequence[int], *rows: Any, label: str
    ) -> LocalRows:
        """As :meth:`Engine.regroup`."""
        whole = LocalRows()
        self.stages.append((label, whole))
        keys = sorted(set[int]().union(*(each.keys(kinds) for each in rows)))
        for _ in self._each_done(function, ((key, _parts(rows, kinds, key)) for key in keys), whole):
            pass
        return whole

    def _each_done(
        self, function: Callable[..., Iterable[Row]], tasks: Iterable[tuple[Any, ...]], rows: LocalRows
    ) -> Iterator[None]:
        """Run tasks, add the rows of each and its cost, in order; in workers only a few tasks are under way at once."""
        if self.jobs == 1:
            for task in tasks:
                _run(function, task, rows)
                yield
            return
        if self._workers is None:
            self._workers = worker_executor(self.jobs, *IMPORTED)
        with tempfile.NamedTemporaryFile(prefix="kafka-eos-") as file:
            pickle.dump(function, file, pickle.HIGHEST_PROTOCOL)
            file.flush()
            waiting: deque[Future[Places | Exception]] = deque()
            try:
                for task in tasks:
                    waiting.append(self._workers.submit(_in_worker, file.name, key_of_names(), task, rows.folder))
                    if len(waiting) > AHEAD * self.jobs:
                        rows.add_stored(_places_of(waiting.popleft()))
                        yield
                while waiting:
                    rows.add_stored(_places_of(waiting.popleft()))
                    yield
            except BrokenProcessPool:  # by a task, or when the next one is submitted
                told = "a process of the audit was killed, perhaps for want of memory; try --jobs 1"
                raise UnusableInput(told) from None

    def collect(self, kind: int, *rows: Any) -> list[tuple[int, Any]]:
        """As :meth:`Engine.collect`."""
        keys = sorted(set[int]().union(*(each.keys([kind]) for each in rows)))
        return [(key, value) for key in keys for each in rows for value in each.values([kind], key)]

    def collect_each(self, *wanted: tuple[int, Sequence[Any]]) -> list[list[tuple[int, Any]]]:
        """As :meth:`Engine.collect_each`."""
        return [self.collect(kind, *rows) for kind, rows in wanted]

    def stream(self, kind: int, *rows: Any) -> Iterator[Any]:
        """As :meth:`Engine.stream`."""
        for each in rows:
            for key in sorted(each.keys([kind])):
                yield from each.values([kind], key)

    def ask_each(self, ask: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """As :meth:`Engine.ask_each`."""
        from kafka_eos_checks.kit.progress import count_progress  # noqa: PLC0415 - see :meth:`map`

        costs = LocalRows()
        self.stages.append((ASKED, costs))
        with count_progress(ASKED, len(items)) as advance:
            for item in items:
                answer, cost = charged_rows(partial(answered, ask, (0, item)))
                costs.add(cost)
                yield answer.value
                advance(1)


def _parts(rows: Iterable[LocalRows], kinds: Sequence[int], key: int) -> list[Sequence[Any]]:
    return [part for each in rows for part in each.parts(kinds, key) if part]


def _run(function: Callable[..., Iterable[Row]], task: tuple[Any, ...], rows: LocalRows) -> None:
    """Add the rows of a task about an item, or about a key and the lists of its values; then its cost."""
    for row in charged_rows(partial(function, *task[:1], *map(opened, task[1:]))):
        rows.add(row)


@lru_cache(maxsize=1)
def _function_in(path: str) -> Callable[..., Iterable[Row]]:
    function: Callable[..., Iterable[Row]] = pickle.loads(Path(path).read_bytes())  # noqa: S301 - of the parent
    return function


def _in_worker(path: str, key: bytes | None, task: tuple[Any, ...], folder: str) -> Places | Exception:
    """Where the rows of a task are, whose function is pickled in a file; or its error, if that can be sent."""
    use_key(key)
    left_behind.add(folder)
    try:
        rows = LocalRows(folder)
        _run(_function_in(path), task, rows)
        rows.store()
        return dict(rows.places)
    except Exception as error:  # noqa: BLE001 - raised in the parent
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 - just made
        except Exception:  # noqa: BLE001 - an error whose arguments are not those of its class
            return RuntimeError("".join(traceback.format_exception(error)))
        return error


def _places_of(task: "Future[Places | Exception]") -> Places:
    answer = task.result()
    if isinstance(answer, Exception):
        raise answer
    return answer
