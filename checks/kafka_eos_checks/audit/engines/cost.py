"""The cost of an audit, stage by stage, and its least time on more cores: ``kafka-eos audit --explain-cost``.

Each task reports its CPU time, the bytes that it read and the memory of its process (:func:`charged`). The rest of the
time is the driver's.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kafka_eos_checks.audit.places import bytes_read
from kafka_eos_checks.kit.memory import without_collections

CORES = (10, 100, 1000)
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # of getrusage, in bytes

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one task.

    Attributes:
        seconds: CPU time, in seconds.
        read: bytes that the task read of segments, tables, the files next to them, and histories.
        memory: the peak memory of its process since the process started, in bytes.
    """

    seconds: float
    read: int
    memory: int


def charged(task: Callable[[], Iterable[Made]], tell: Callable[[Cost], Made]) -> Iterator[Made]:
    """Yield the results of a task, then its cost. The cost includes the time in which the caller takes the results.

    The garbage collector rests meanwhile: a task's objects do not refer to themselves, and are gone with it.
    """
    began, read = time.process_time(), bytes_read()
    with without_collections():
        yield from task()
    yield tell(Cost(time.process_time() - began, bytes_read() - read, memory_of_process()))


def memory_of_process() -> int:
    """The peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT


@dataclass(frozen=True, slots=True)
class StageCost:
    """The cost of a stage: the costs of its tasks.

    Attributes:
        label: the name of the stage.
        tasks: the cost of each task. Between two stages, a task is the rows of one key, which cores cannot share.
    """

    label: str
    tasks: Sequence[Cost]

    @property
    def seconds(self) -> float:
        """CPU seconds of all tasks."""
        return sum(task.seconds for task in self.tasks)

    @property
    def largest(self) -> float:
        """CPU seconds of the largest task, the least time of the stage on any number of cores."""
        return max((task.seconds for task in self.tasks), default=0.0)

    @property
    def read(self) -> int:
        """Bytes that all tasks read."""
        return sum(task.read for task in self.tasks)

    @property
    def memory(self) -> int:
        """The highest peak memory of the tasks' processes, in bytes."""
        return max((task.memory for task in self.tasks), default=0)

    def wall_seconds(self, cores: int) -> float:
        """The least time of the stage on this number of cores."""
        return max(self.largest, self.seconds / cores)


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of an audit.

    Attributes:
        stages: the costs of the stages, in the order in which they ran.
        driver: CPU seconds of this process outside of tasks.
        input_bytes: the size of the audited segments, tables and histories.
        memory: the peak memory of this process, in bytes.
        wall: wall time, in seconds.
        jvm: CPU seconds of Spark's JVM with its local executors, including their start; None without a JVM that we
            started.
    """

    stages: Sequence[StageCost]
    driver: float
    input_bytes: int
    memory: int
    wall: float = 0.0
    jvm: float | None = None

    @property
    def seconds(self) -> float:
        """CPU seconds of driver and tasks, without the JVM's."""
        return self.driver + sum(stage.seconds for stage in self.stages)

    @property
    def serial_share(self) -> float:
        """The driver's share of all CPU seconds, which more cores do not shorten."""
        return self.driver / self.seconds if self.seconds else 0.0

    @property
    def read(self) -> int:
        """Bytes that all tasks read."""
        return sum(stage.read for stage in self.stages)

    def wall_seconds(self, cores: int) -> float:
        """The least time on this number of cores, one stage after the other, without Spark's own work."""
        return self.driver + sum(stage.wall_seconds(cores) for stage in self.stages)

    def bound(self, cores: int) -> str:
        """The longest part on this number of cores, in words."""
        parts = {
            (f"one of the {len(stage.tasks)} tasks" if len(stage.tasks) > 1 else "the only task") + f" of {stage.label}"
            if stage.largest > stage.seconds / cores
            else f"all tasks of {stage.label}": stage.wall_seconds(cores)
            for stage in self.stages
        }
        return max({"the driver": self.driver, **parts}.items(), key=lambda part: part[1])[0]


def bill(
    stages: Sequence[StageCost], spent: float, input_bytes: int, *, in_process: bool, wall: float, jvm: float | None
) -> Bill:
    """The bill of an audit.

    Args:
        stages: the costs of the stages that ran.
        spent: CPU seconds of this process since the audit started.
        input_bytes: see :class:`Bill`.
        in_process: whether the tasks ran in this process, so that its CPU time includes theirs.
        wall: see :class:`Bill`.
        jvm: see :class:`Bill`.
    """
    own = sum(stage.seconds for stage in stages) if in_process else 0.0
    return Bill(tuple(stages), max(spent - own, 0.0), input_bytes, memory_of_process(), wall, jvm)


def cpu_seconds_of(pid: int) -> float | None:
    """CPU seconds of another process of this machine, without its children; None on a system without ``/proc``."""
    try:
        told = Path("/proc", str(pid), "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = told.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
