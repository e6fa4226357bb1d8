"""The exceptions by which Spark fails, and their reasons without Java's stack."""

import importlib

from kafka_eos_checks.kit.missing import need


def spark_failures() -> tuple[type[Exception], ...]:
    """The classes of Spark's exceptions: pyspark's own, and py4j's for those of Java that pyspark does not translate.

    Raises:
        MissingExtra: without pyspark.
    """
    own: type[Exception] = need("pyspark.errors", "spark").PySparkException
    try:
        of_java: type[Exception] = importlib.import_module("py4j.protocol").Py4JError
    except ModuleNotFoundError:  # a client of Spark Connect has no JVM
        return (own,)
    return own, of_java


def reasons(error: Exception) -> list[str]:
    """The lines of a message that say what failed, from the outermost cause to the innermost; at least one."""
    lines = [line.strip() for line in str(error).splitlines()]
    if hasattr(error, "java_exception"):  # the rest is the stack
        causes = [line for line in lines if line.startswith((": ", "Caused by: "))]
        lines = [line.removeprefix("Caused by").removeprefix(": ") for line in causes]
    # Spark Connect ends a worker's reason with a line for the state
    return [line for line in lines if line and not line.startswith("SQLSTATE: ")] or [type(error).__name__]


def in_short(error: Exception) -> str:
    """The first and the last reason: what Spark was doing, and what went wrong below it."""
    words = reasons(error)
    return words[0] + f" … {words[-1]}" * (len(words) > 1)


def tells_full_disk(told: str) -> bool:
    """Whether a reason is that a disk, or its quota, has no room, as Java says it."""
    return "No space left on device" in told or "Disk quota exceeded" in told
