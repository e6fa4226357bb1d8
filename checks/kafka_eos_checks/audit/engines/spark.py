"""The audit's plan on Spark. Workers read their own splits; only rows between stages are sent, never batches.

A stage is a query that runs when its rows are collected for the first time, in one job with the other stages that are
not computed yet. Its rows stay on disk without their lineage. :meth:`SparkEngine.map` is a ``mapInArrow`` over the
numbers of its items: a worker runs the stage's function and keeps its rows in columns ``kind``, ``key`` and ``value``,
the value pickled and compressed. :meth:`SparkEngine.regroup` shuffles them by key and hands those of one key to a
function, which gives other rows. Log directories must be at the same path on every worker, or at a URI
(:mod:`kafka_eos_checks.audit.places`), and this package must be importable there (``--py-files``,
``spark.addArtifacts``).
"""

import logging
import os
import pickle
import re
import signal
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kafka_eos_checks.audit.engines.cost import cpu_seconds_of
from kafka_eos_checks.audit.engines.engine import ANSWER, ASKED, Item, Result, Row, answered, charged_rows
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.quoting import key_of_names, use_key
from kafka_eos_checks.kit.class_archive import class_archive, sharing_options
from kafka_eos_checks.kit.memory import keep_modules
from kafka_eos_checks.kit.missing import MissingExtra, find_java, need
from kafka_eos_checks.kit.progress import part_progress
from kafka_eos_checks.kit.schemas import arrow_schema, ddl
from kafka_eos_checks.kit.spark_failures import in_short, spark_failures, tells_full_disk
from kafka_eos_checks.kit.terminal import progress_console

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame, SparkSession

ROW_COLUMNS = {"kind": "int", "key": "bigint", "value": "binary"}
_SIZE = struct.Struct("<Q")
ROWS_OF_A_BATCH = 256  # rows handed to the JVM at once
TASKS_OF_A_CORE = 8  # of a stage over items, if they are many; each costs the JVM and the worker some 30 ms
ITEMS_OF_A_TASK = 16  # at most, however many there are
MOST_OF_A_SHUFFLE = 8  # tasks of a local shuffle
Tables = Iterator["pa.RecordBatch"]
Convert = Callable[[Any], "pa.RecordBatch"]


class SparkEngine:
    """Spark as an executor of the plan.

    Args:
        spark: the session that runs its queries.

    Attributes:
        buckets: the least number of buckets of producer ids.
        stages: the stages that have run, each as label and rows.
        in_process: False, because no task runs in this process.
    """

    buckets = 8
    in_process = False

    def __init__(self, spark: "SparkSession") -> None:
        self.spark = spark
        self.stages: list[tuple[str, DataFrame]] = []
        self._waiting: dict[int, Sequence[DataFrame]] = {}  # by id of rows that are not computed yet: what they read
        is_remote = need("pyspark.sql.utils", "spark").is_remote()
        self._cores = None if is_remote else spark.sparkContext.defaultParallelism
        self._level = stored_level(spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _label, frame in self.stages:
            release(frame)

    @property
    def jvm_seconds(self) -> float | None:
        """As :attr:`kafka_eos_checks.audit.engines.engine.Engine.jvm_seconds`; its local executors are in it."""
        gateway = None if need("pyspark.sql.utils", "spark").is_remote() else self.spark.sparkContext._gateway
        process = getattr(gateway, "proc", None)
        return None if process is None else cpu_seconds_of(process.pid)

    def map(
        self, function: Callable[[Item], Iterable[Row]], items: Sequence[Item], sizes: Sequence[int], label: str
    ) -> "DataFrame":
        """As :meth:`kafka_eos_checks.audit.engines.engine.Engine.map`; the rows stay on the executors' disks."""
        del sizes
        if not items:
            none = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in ROW_COLUMNS.items()]
            return self.spark.range(0).selectExpr(*none)  # of no task, unlike a table of rows of this process
        count = task_count(len(items), self._cores)
        numbers = self.spark.range(0, count, 1, count)
        with quiet_about_pandas():
            return self._kept(label, numbers.mapInArrow(_mapped(function, items, count), ddl(ROW_COLUMNS)), ())

    def regroup(
        self, function: Callable[[int, Iterator[Any]], Iterable[Row]], kinds: Sequence[int], *rows: Any, label: str
    ) -> "DataFrame":
        """As :meth:`kafka_eos_checks.audit.engines.engine.Engine.regroup`."""
        own = _of_kinds(self._whole(zip(rows, rows, strict=True)), kinds)
        with quiet_about_pandas():
            return self._kept(label, own.groupBy("key").applyInArrow(_regrouped(function), ddl(ROW_COLUMNS)), rows)

    def collect(self, kind: int, *rows: "DataFrame") -> list[tuple[int, Any]]:
        """As :meth:`kafka_eos_checks.audit.engines.engine.Engine.collect`.

        Raises:
            UnusableInput: Spark fails on the input.
        """
        return self.collect_each((kind, rows))[0]

    def collect_each(self, *wanted: tuple[int, "Sequence[DataFrame]"]) -> list[list[tuple[int, Any]]]:
        """As :meth:`kafka_eos_checks.audit.engines.engine.Engine.collect_each`.

        Raises:
            UnusableInput: Spark fails on the input.
        """
        asked: dict[int, tuple[DataFrame, dict[int, list[int]]]] = {}  # by id of rows: these, and questions by kind
        for number, (kind, rows) in enumerate(wanted):
            for each in rows:
                asked.setdefault(id(each), (each, {}))[1].setdefault(kind, []).append(number)
        if not asked:
            return [[] for _ in wanted]
        chosen = self._whole(
            (rows, _of_kinds(rows, kinds).selectExpr(f"{place} AS place", *ROW_COLUMNS))
            for place, (rows, kinds) in enumerate(asked.values())
        )
        found: list[list[tuple[int, Any]]] = [[] for _ in wanted]
        with failures_told(), task_progress(self.spark), quiet_about_pandas():
            # for a few rows this takes the driver a third of the time that toArrow takes
            told = chosen.collect()
        questions = [own for _, own in asked.values()]
        self._note_computed(rows for rows, _ in asked.values())
        for place, kind, key, value in sorted(told, key=lambda row: row[2]):
            unpickled = unpacked(value)
            for number in questions[place][kind]:
                found[number].append((key, unpickled))
        return found

    def stream(self, kind: int, *rows: "DataFrame") -> Iterator[Any]:
        """As :meth:`kafka_eos_checks.audit.engines.engine.Engine.stream`: a partition of the rows at a time.

        Raises:
            UnusableInput: Spark fails on the input.
        """
        with failures_told(), quiet_about_pandas():
            for row in _of_kinds(_union(rows), [kind]).select("value").toLocalIterator():
                yield unpacked(row[0])

    def table(
        self, kind: int, rows: "Sequence[DataFrame]", columns: Mapping[str, str], convert: Convert
    ) -> "DataFrame":
        """The values of a kind as a table, which the workers write where it is sent.

        Args:
            kind: the kind of the rows.
            rows: the rows of some stages.
            columns: the names and types of the table.
            convert: gives a value the form of this table.
        """
        own = _of_kinds(self._whole(zip(rows, rows, strict=True)), [kind]).select("value")
        with quiet_about_pandas():
            return own.mapInArrow(partial(_converted, convert), ddl(columns))

    def ask_each(self, ask: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """As :meth:`kafka_eos_checks.audit.engines.engine.Engine.ask_each`.

        Raises:
            UnusableInput: Spark fails on an item.
        """
        rows = self.map(partial(answered, ask), list(enumerate(items)), [], ASKED)
        return [answer for _, answer in self.collect(ANSWER, rows)]

    def _kept(self, label: str, rows: "DataFrame", reads: "Sequence[DataFrame]") -> "DataFrame":
        """Rows of a stage that stay on the executors' disks, and forget how they were made.

        Otherwise Spark plans all stages before it anew for each stage, and sends them with each task.
        """
        with failures_told():  # with adaptive execution Spark shuffles at once
            kept = rows.localCheckpoint(False, self._level)
        self.stages.append((label, kept))
        self._waiting[id(kept)] = reads
        return kept

    def _whole(self, parts: "Iterable[tuple[DataFrame, DataFrame]]") -> "DataFrame":
        """Parts of the rows of some stages; what is on disk in a task for each core, because each task costs 30 ms."""
        waiting, stored = list["DataFrame"](), list["DataFrame"]()
        for rows, part in parts:
            (waiting if id(rows) in self._waiting else stored).append(part)
        if stored and self._cores is not None:
            stored = [_union(stored).coalesce(self._cores)]
        return _union([*stored, *waiting])

    def _note_computed(self, rows: "Iterable[DataFrame]") -> None:
        """Note that rows are on disk, and so are all that they were made of."""
        for each in rows:
            self._note_computed(self._waiting.pop(id(each), ()))


def stored_level(spark: "SparkSession") -> "StorageLevel":
    """Where rows without lineage are kept: they are lost with their executor, unless another one has them, too."""
    from pyspark import StorageLevel  # noqa: PLC0415 - see `session`

    is_remote = need("pyspark.sql.utils", "spark").is_remote()
    is_local = not is_remote and re.match(r"local(\[|$)", str(spark.sparkContext.master))
    return StorageLevel.DISK_ONLY if is_local else StorageLevel.DISK_ONLY_2


def release(kept: "DataFrame") -> None:
    """Take the rows of a ``localCheckpoint`` off the disks; with Spark Connect they go with the session."""
    if not need("pyspark.sql.utils", "spark").is_remote():
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)


def _of_kinds(rows: "DataFrame", kinds: Iterable[int]) -> "DataFrame":
    return rows.where(f"kind IN ({', '.join(map(str, kinds))})")


def _union(rows: "Sequence[DataFrame]") -> "DataFrame":
    whole = rows[0]
    for more in rows[1:]:
        whole = whole.union(more)
    return whole


def _converted(convert: Convert, batches: Tables) -> Tables:
    """A function for ``mapInArrow``: pickled values in, a table out."""
    for batch in batches:
        for value in batch.column(0):
            yield convert(unpacked(value.as_py()))


def task_count(items: int, cores: int | None) -> int:
    """The number of Spark's tasks for so many items; one each if the cores are not known, as with Spark Connect."""
    if cores is None:
        return items
    return min(items, max(TASKS_OF_A_CORE * cores, -(-items // ITEMS_OF_A_TASK)))


def shuffle_count(cores: int | None) -> int:
    """The number of tasks of a local shuffle: one for each core, as each takes the JVM time. Few are enough."""
    return min(MOST_OF_A_SHUFFLE, cores or MOST_OF_A_SHUFFLE)


def _mapped(function: Callable[[Item], Iterable[Row]], items: Sequence[Item], count: int) -> Callable[[Tables], Tables]:
    """A function for ``mapInArrow``: numbers of tasks in, rows out; of so many tasks each has every ``count``-th item.

    So the large items, which are often neighbours, are spread over the tasks.
    """
    key = key_of_names()

    def run(batches: Tables) -> Tables:
        use_key(key)
        need("pyarrow.parquet", "spark")  # what reads tables is among the modules that are kept, then
        keep_modules()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for item in items[number::count]:
                    yield from _batches(charged_rows(partial(function, item)))

    return run


def _regrouped(function: Callable[[int, Iterator[Any]], Iterable[Row]]) -> Callable[["pa.Table"], "pa.Table"]:
    """A function for ``applyInArrow``: the rows of one key in, other rows out."""
    redacting = key_of_names()

    def run(table: "pa.Table") -> "pa.Table":
        import pyarrow as pa  # noqa: PLC0415

        use_key(redacting)
        keep_modules()
        values = (unpacked(value.as_py()) for value in table["value"])
        made = _batches(charged_rows(partial(function, table["key"][0].as_py(), values)))
        return pa.Table.from_batches(list(made), schema=arrow_schema(ROW_COLUMNS))

    return run


def packed(value: Any) -> bytes:
    """A value as the JVM stores and shuffles it: the size of its pickle in eight bytes, and the compressed pickle.

    Each stage reads the rows of the stages before it as a whole. A fifth of the bytes takes the JVM less time than
    compressing takes the workers.
    """
    pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    compressed: bytes = _codec().compress(pickled, asbytes=True)
    return _SIZE.pack(len(pickled)) + compressed


def unpacked(stored: bytes) -> Any:
    """The value of :func:`packed`, of a worker of this audit."""
    (size,) = _SIZE.unpack_from(stored)
    return pickle.loads(_codec().decompress(memoryview(stored)[_SIZE.size :], size))  # noqa: S301 - see above


@cache
def _codec() -> "pa.Codec":
    return need("pyarrow", "spark").Codec("zstd", compression_level=1)


def _batches(rows: Iterable[Row]) -> Tables:
    """Rows in batches for the JVM."""
    for some in batched(rows, ROWS_OF_A_BATCH):
        yield _to_arrow(some)


def batched(rows: Iterable[Row], count: int) -> Iterator[list[Row]]:
    """Rows in lists of at most so many."""
    iterator = iter(rows)
    while some := list(islice(iterator, count)):
        yield some


def _to_arrow(rows: Sequence[Row]) -> "pa.RecordBatch":
    """Rows as a batch for the JVM, built of buffers: ``pa.array`` of a list imports pandas, in each worker."""
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    schema = arrow_schema(ROW_COLUMNS)
    values = [packed(row.value) for row in rows]
    kinds = np.array([row.kind for row in rows], np.int32)
    keys = np.array([row.key for row in rows], np.int64)
    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    buffers: list[list[Any]] = [[kinds], [keys], [ends, b"".join(values)]]
    arrays = [
        pa.Array.from_buffers(field.type, len(rows), [None, *(pa.py_buffer(each) for each in own)])
        for field, own in zip(schema, buffers, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_CLUSTERS = {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}  # set by spark-submit, and by a user of Spark Connect
_START_SECONDS = 10.0  # that the end of a session waits for its workers at most


@contextmanager
def session(given: "SparkSession | None" = None) -> "Iterator[SparkSession]":
    """The session to use: the given one, the active one, else a new one that ends with the block.

    A new session connects to the cluster that ``spark-submit`` or ``SPARK_REMOTE`` names, with that cluster's settings;
    otherwise it is local. The JVM of a local session uses only its first compiler (C1): it only hands tasks to workers,
    and the second compiler takes more CPU time than that work. It takes its classes from an archive
    (:mod:`kafka_eos_checks.kit.class_archive`), which a session writes that begins some minutes after the first one.

    Args:
        given: a session that is used as it is and stays open.

    Raises:
        MissingExtra: without pyspark, pyarrow or pandas, or without Java for a local session.
        UnusableInput: the named cluster gives no session.
    """
    need("pyarrow", "spark")
    sql = need("pyspark.sql", "spark")
    need("pandas", "spark")  # pyspark's Arrow functions refuse to work without it
    existing = given or sql.SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    if _CLUSTERS & os.environ.keys():
        named = sorted(_CLUSTERS & os.environ.keys())
        asked = ", ".join(f"{name}={os.environ[name].partition(';')[0]}" for name in named)  # a token may follow
        try:
            with quiet_about_pandas(), progress_console.status(f"waiting for a session of Spark with {asked}"):
                made = sql.SparkSession.builder.appName("kafka-eos").getOrCreate()
        except Exception as error:  # an error of Spark, of Java, of gRPC, or of a missing package
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UnusableInput(f"no session of Spark with {asked}: {reason}") from error
        try:
            yield made
        finally:
            made.stop()
        return
    java = find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise local mode takes the first python3 on the path
    builder = sql.SparkSession.builder.master("local[*]").appName("kafka-eos")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in _java_options(java)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",  # otherwise each shuffle is a job of its own
        "spark.sql.codegen.wholeStage": "false",  # generated code needs rows in millions to be worth its compilation
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.python.daemon.module": "kafka_eos_checks.audit.engines.python_daemon",
        "spark.sql.shuffle.partitions": str(shuffle_count(os.cpu_count())),
        "spark.rdd.compress": "false",  # values are compressed, see `packed`
        "spark.shuffle.compress": "false",
        "spark.python.unix.domain.socket.enabled": "true",  # with TCP each task takes some 50 ms longer
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(name, value)
    with _unlogged():
        try:
            with _interrupts_wait(), quiet_about_pandas():
                made = builder.getOrCreate()
        except spark_failures() as error:
            remedy = "set JAVA_HOME to a JDK 17 or later"
            raise MissingExtra(f"Spark does not start with {java}; {remedy}: {in_short(error)}") from error
        starting = _start_workers(made)
        try:
            yield made
        except KeyboardInterrupt:
            with suppress(*spark_failures()):  # the interrupted connection may be of no use
                made.sparkContext.setLogLevel("OFF")  # tasks fail now
            raise
        finally:
            starting.join(_START_SECONDS)  # Spark logs each task that the end of its session stops
            with suppress(*spark_failures()):
                made.stop()


def _start_workers(spark: "SparkSession") -> threading.Thread:
    """Let Spark start a worker for each core while the driver plans: the first tasks would wait a second for theirs.

    Returns:
        The thread that ends once they have started.
    """
    cores = spark.sparkContext.defaultParallelism
    with quiet_about_pandas():
        numbers = spark.range(0, cores, 1, cores).mapInArrow(_unchanged, "id bigint")

    def run() -> None:
        with suppress(Exception):  # the session may end before, and then pyspark's own cleaning up fails, too
            numbers.collect()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _unchanged(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    return batches  # the worker has imported this module


def _java_options(java: str) -> list[str]:
    """The options of a local session's JVM, for a quick start."""
    home = os.environ.get("SPARK_HOME") or Path(need("pyspark", "spark").__file__ or "").parent
    log4j = Path(__file__).with_name("log4j2.properties")
    options = [f"-Dlog4j2.configurationFile={log4j}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    with suppress(OSError):  # SPARK_HOME may be wrong, which Spark tells
        options += sharing_options(class_archive("spark", java, Path(home, "jars")), write=True)
    return options


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let an interrupt wait for the end of the block, which starts a JVM: one that is interrupted before stays forever.

    Afterwards, interrupts go where they went before. Spark's own handler, which the block sets, asks the JVM to cancel
    its jobs, on the connection that already waits for their end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[bool] = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _unlogged() -> Iterator[None]:
    """Log no exception of the gateway to the JVM: it is raised, too, and an interrupt is no error."""

    def is_other(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], (KeyboardInterrupt, *spark_failures())))

    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver", "py4j.java_gateway")]
    for logger in loggers:
        logger.addFilter(is_other)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_other)


@contextmanager
def failures_told() -> Iterator[None]:
    """Raise :class:`UnusableInput` where Spark fails, with the first and the last reason in its message.

    Raises:
        UnusableInput: Spark fails in the block.
        MissingExtra: without pyspark.
    """
    try:
        yield
    except spark_failures() as error:
        told = in_short(error)
        remedy = "; make room in the executors' spark.local.dir" * tells_full_disk(told)
        raise UnusableInput(f"Spark failed: {told}{remedy}") from error


@contextmanager
def quiet_about_pandas() -> Iterator[None]:
    """Suppress pyspark 4.3's warning of pandas 3, which Arrow functions import and never use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*pandas.*", category=FutureWarning)
        yield


@contextmanager
def task_progress(spark: "SparkSession") -> Iterator[None]:
    """Show the number of finished tasks while a query runs; Spark Connect shows its own progress."""
    if need("pyspark.sql.utils", "spark").is_remote():
        yield
        return
    with part_progress("spark", "tasks") as show:
        stop = _poll(spark, show)
        try:
            yield
        finally:
            stop()


def _poll(spark: "SparkSession", show: Callable[[int, int], None]) -> Callable[[], None]:
    """Ask the status tracker of a classic session once a second; return a function that ends this."""
    ended = threading.Event()

    def ask() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(1):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [info for info in infos if info is not None]
            if known:
                show(sum(i.numCompletedTasks for i in known), sum(i.numTasks for i in known))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()

    def stop() -> None:
        ended.set()
        thread.join()

    return stop
