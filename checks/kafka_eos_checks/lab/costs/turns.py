"""Sides that take turns on one real broker, and the figures that are kept of their runs.

A round runs every side once, and each round begins with another side; the first round warms up and does not count. The
figures of a run are the rate, the CPU time of client and broker, and the cores that other processes used meanwhile.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kafka_eos_checks.brokers.brokers import HOST, Cluster
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.lab.costs.client import CostClient, busy_seconds, cpu_seconds

PARTITIONS = 3

Evidence = dict[str, Any]
Job = dict[str, Any]

# The defaults of a job of CostClient.java.
_COMMON: Job = {
    "partitions": PARTITIONS,
    "producer": {},
    "consumer": {},
    "transaction_size": 0,
    "flush_every": 0,
    "abort_every": 0,
    "spread": False,
    "records": 1 << 40,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The amount of measurement.

    Attributes:
        rounds: the number of counted rounds, for a part with many sides.
        slices: the number of counted slices per side, for a part that compares two sides closely.
        seconds: the length of a run that is limited by time.
        shrink: a divisor for the records of a run that is limited by their number.
    """

    rounds: int
    slices: int
    seconds: float
    shrink: int


FULL = Effort(rounds=9, slices=120, seconds=1.2, shrink=1)
QUICK = Effort(rounds=3, slices=30, seconds=0.4, shrink=8)


@dataclass(frozen=True, slots=True)
class Side:
    """A side that takes turns with others: its name, and its job without the fields that the stage adds."""

    name: str
    job: Mapping[str, Any]


@dataclass(slots=True)
class Stage:
    """The broker and the client on which the sides run.

    Attributes:
        cluster: a cluster of one broker.
        client: the client that does the jobs.
        effort: the amount of measurement.
    """

    cluster: Cluster
    client: CostClient
    effort: Effort
    _numbers: dict[str, int] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """The broker's own port: a proxy would be the slowest part."""
        return f"{HOST}:{self.cluster[1].port}"

    def topic(self, name: str, partitions: int = PARTITIONS) -> str:
        """A new topic."""
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        made = f"{name.replace(' ', '-')}-{number}"
        self.cluster.create_topic(made, partitions)
        return made

    def do(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Do a job; the answer has ``broker_cpu`` (seconds) and ``others`` (cores) besides the client's own fields."""
        process = self.cluster[1].process
        assert process is not None, "the broker runs"
        before = time.monotonic(), busy_seconds(), cpu_seconds(process.pid), cpu_seconds(self.client.pid)
        answer = self.client.do(_COMMON | {"bootstrap": self.bootstrap} | dict(job))
        after = time.monotonic(), busy_seconds(), cpu_seconds(process.pid), cpu_seconds(self.client.pid)
        wall, busy, broker, client = (late - early for early, late in zip(before, after, strict=True))
        return answer | {"broker_cpu": broker, "others": max(0.0, busy - broker - client) / wall}


def take_turns(
    sides: Sequence[Side], rounds: int, label: str, do: Callable[[Side], dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Run the sides in turns; return the answers by side, one per counted round."""
    answers: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    with progress_console.status("") as status:
        for number in range(-1, rounds):
            first = number % len(sides)
            for side in [*sides[first:], *sides[:first]]:
                said = "warm-up" if number < 0 else f"round {number + 1} of {rounds}"
                status.update(f"{label}: {said}, {side.name}")
                answer = do(side)
                if number >= 0:
                    answers[side.name].append(answer)
    progress_console.print(f"{label}: {rounds} rounds of {len(sides)} sides")
    return answers


def _column(answers: Sequence[Mapping[str, Any]], name: str, digits: int = 4) -> list[float]:
    return [float(f"{answer[name]:.{digits}g}") for answer in answers]


def kept(answers: Mapping[str, Sequence[Mapping[str, Any]]], extra: Sequence[str] = ()) -> dict[str, Any]:
    """The kept figures of a part's answers: a column per figure, with one value per round."""
    rows: dict[str, Any] = {}
    for name, given in answers.items():
        rated = []
        for answer in given:
            cpu = answer["client_cpu"] + answer["broker_cpu"]
            more = {"rate": answer["records"] / answer["seconds"], "cpu_us": cpu / max(1, answer["records"]) * 1e6}
            rated.append({**answer, **more, "cpu_seconds": cpu})
        rows[name] = {column: _column(rated, column) for column in ("rate", "cpu_us", "others", *extra)}
        for column in ("failed", "missing"):
            if total := sum(answer.get(column, 0) for answer in given):
                rows[name][column] = total
    return rows


def kept_pairs(names: tuple[str, str], answer: Mapping[str, Any], columns: Sequence[str] = ("rate",)) -> dict[str, Any]:
    """The kept figures of two sides that took turns within one job.

    One value per slice; but only the sum of the client's CPU time, whose ticks are longer than some slices.
    """
    rows: dict[str, Any] = {}
    for number, name in enumerate(names):
        records, seconds, cpu = (answer[f"{column}_{number}"] for column in ("records", "seconds", "cpu"))
        slices = [{"rate": n / wall, "seconds": wall} for n, wall in zip(records, seconds, strict=True)]
        whole = {"cpu_seconds": sum(cpu), "cpu_us": sum(cpu) / max(1, sum(records)) * 1e6, "others": answer["others"]}
        rows[name] = {column: _column(slices, column, 3) for column in columns}
        rows[name] |= {column: _column([whole], column) for column in whole}
    if answer.get("failed"):
        rows[names[0]]["failed"] = answer["failed"]
    return rows


@contextmanager
def part(evidence: Evidence, name: str, about: str) -> Iterator[dict[str, Any]]:
    """A part of the evidence, with its date, the load average before and after it and its wall time."""
    begun, before = time.monotonic(), os.getloadavg()[0]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    content: dict[str, Any] = {"about": about, "date": now, "niceness": os.getpriority(os.PRIO_PROCESS, 0)}
    yield content
    content["load_average"] = [round(before, 2), round(os.getloadavg()[0], 2)]
    content["wall_seconds"] = round(time.monotonic() - begun, 1)
    evidence["parts"][name] = content
