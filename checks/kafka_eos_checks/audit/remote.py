"""Logs and histories that lie elsewhere: any URI that Spark's Hadoop can read, copied here for as long as it is needed.

The file system is Hadoop's, with the session's own configuration, so ``hdfs://``, ``s3a://`` (with the package
``hadoop-aws`` on Spark's path), ``abfs://``, ``gs://`` and ``file://`` work as they do in ``spark.read``. What the
audit reads of a log directory is copied to the driver: segments, their indexes and snapshots, and ``meta.properties``.
Kernels read files by position, so nothing is judged over the network.

Kafka: LogFileUtils
Hadoop: FileSystem.listFiles, copyToLocalFile
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_eos.formats.log_directory import NotALogDirectory
from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.moments import CLEAN_SHUTDOWN, HIGH_WATERMARKS
from kafka_eos_checks.audit.progress import byte_progress
from kafka_eos_checks.kit.missing import need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIXES = (".log", ".index", ".txnindex", ".snapshot", ".jsonl", ".parquet", ".edn", ".tar.xz")
NAMES = ("meta.properties", "leader-epoch-checkpoint", "manifest.json", HIGH_WATERMARKS, CLEAN_SHUTDOWN)


def is_uri(path: str) -> bool:
    """Whether a path names another file system than this machine's."""
    return "://" in path


@contextmanager
def copied(uris: list[str], spark: "SparkSession") -> Iterator[list[Path]]:
    """Local copies of what URIs name, each in a folder of its own with its own name.

    Raises:
        UnusableInput: one cannot be read, or the session is of Spark Connect, whose driver is elsewhere; or the block
            found that a copy cannot be used, and this names the URI in its place.
    """
    if need("pyspark.sql.utils", "spark").is_remote():
        raise UnusableInput(f"{uris[0]}: over Spark Connect nothing can be copied here; give local paths")
    with tempfile.TemporaryDirectory(prefix="kafka-eos-audit-") as folder:
        copies = [_copy(uri, Path(folder, str(number)), spark) for number, uri in enumerate(uris)]
        try:
            yield copies
        except (UnusableInput, NotALogDirectory, MalformedHistory) as error:
            reason = str(error)
            for uri, copy in zip(uris, copies, strict=True):
                reason = reason.replace(str(copy), uri.rstrip("/"))
            raise UnusableInput(reason) from None


def _copy(uri: str, folder: Path, spark: "SparkSession") -> Path:
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext._jsc
    java, python = need("py4j.protocol", "spark").Py4JJavaError, need("pyspark.errors", "spark").PySparkException
    try:
        root = jvm.org.apache.hadoop.fs.Path(uri)
        target = folder / (str(root.getName()) or "root")
        system = root.getFileSystem(context.hadoopConfiguration())
        root = system.makeQualified(root)
        files = list(_files(system, root))
        with byte_progress("copy", sum(size for _, size in files)) as advance:
            for path, size in files:
                inside = root.toUri().relativize(path.toUri()).getPath()
                local = target / inside if not system.getFileStatus(root).isFile() else target
                local.parent.mkdir(parents=True, exist_ok=True)
                system.copyToLocalFile(False, path, jvm.org.apache.hadoop.fs.Path(f"file://{local}"), True)
                advance(size)
    except java as error:
        raise UnusableInput(f"{uri}: {error.java_exception.toString()}") from None
    except python as error:
        raise UnusableInput(f"{uri}: {_first_line(error)}") from None
    if not files:
        raise UnusableInput(f"{uri}: no segment and no history below it")
    return target


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _files(system: Any, root: Any) -> Iterator[tuple[Any, int]]:
    """The files below a path that the audit reads, each with its size in bytes."""
    found = system.listFiles(root, True)
    while found.hasNext():
        status = found.next()
        name = str(status.getPath().getName())
        if name.endswith(SUFFIXES) or name in NAMES:
            yield status.getPath(), int(status.getLen())
