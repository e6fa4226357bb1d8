"""Open an engine by its name: ``local`` or ``spark``."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from kafka_eos_checks.audit.engines.engine import Engine
from kafka_eos_checks.audit.engines.local import LocalEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("local", "spark")


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
