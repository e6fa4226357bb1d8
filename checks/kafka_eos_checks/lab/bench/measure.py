"""Measurements: the sides of a comparison take turns, so that other load on the machine affects them all.

A round runs every side, one after the other (A B C, A B C, …), and repeats the short ones. A ratio is taken within a
round, and the median of the rounds is given with the smallest and the largest. Next to the wall time is the CPU time
of the process tree, which other load affects less.
"""

import importlib
import os
import platform
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.kit.verdict import Verdict

Answer = Mapping[str, int]  # counts and checksums by name; two sides are compared on the names that they share

SAMPLED_EVERY = 0.05  # seconds between looks at the CPU time of a process that ends within the measurement
SHORTEST = 0.1  # seconds; a shorter run is repeated within its round
MAX_REPEATS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A side of a comparison: a program that does the same work as the others.

    Attributes:
        name: the program, and its method.
        run: the work; its answer is compared with the others' answers.
        check: the same work with a more thorough answer, run once and not measured; None for ``run`` itself.
        start: the same without input, run before ``run`` in each round: the start of a process, whose median is
            subtracted. None for a side without such a start.
        times: how often ``run`` does the work.
        absent: the reason why the side cannot run, "" if it can.
        in_process: whether the side works in this process and in children that outlive ``run``.
    """

    name: str
    run: Callable[[], Answer] = dict
    check: Callable[[], Answer] | None = None
    start: Callable[[], Answer] | None = None
    times: int = 1
    absent: str = ""
    in_process: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """The times of one run of a side.

    Attributes:
        wall: seconds for doing the work once, without the start; 0 or less if it is lost in the start's noise.
        cpu: CPU seconds of the process tree for doing the work once, with the start; None without psutil.
        start: seconds of the start.
    """

    wall: float
    cpu: float | None
    start: float = 0.0


@dataclass(slots=True)
class Measured:
    """The results of the rounds.

    Attributes:
        samples: one sample per round, by name of the side.
        answers: the answer, by name of the side.
        unsteady: the sides whose answer was not the same in every round.
        load: the load average over a minute, before the first round and after the last.
    """

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    unsteady: set[str] = field(default_factory=set)
    load: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work that the sides do.

    Attributes:
        part: the part of the benchmark.
        name: the name of the work.
        given: the input, in words.
        amount: the amount of work, in ``unit`` times seconds.
        unit: the unit of the rates, as ``records/s``; ``s`` stands for the seconds themselves, where less is better.
        target: the project's own target for our side, in ``unit``; None if there is none.
        per_core: whether the target is for one core.
    """

    part: str
    name: str
    given: str
    amount: float
    unit: str
    target: float | None = None
    per_core: bool = False

    def rate(self, seconds: float) -> float:
        """Convert a time to ``unit``."""
        return seconds if self.unit == "s" else self.amount / max(seconds, 1e-9)

    def meets_target(self, rate: float) -> bool:
        """Whether a rate is at least as good as the target."""
        assert self.target is not None, "the caller has looked"
        return rate <= self.target if self.unit == "s" else rate >= self.target


def module_or_reason(name: str) -> tuple[Any, str]:
    """A module that only measurements need, or the reason for its absence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own imports warn
            return importlib.import_module(name), ""
    except ImportError as error:
        return None, f"{name} cannot be imported ({error}); install it with: pip install 'kafka-eos[bench]'"


def machine_line() -> str:
    """The machine's cores, architecture and load average, in a line."""
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} cores, {platform.machine()}, load average {load}"


def tree_cpu() -> dict[int, float] | None:
    """CPU seconds so far of this process, its children and those it waited for, by process id; None without psutil."""
    psutil, _ = module_or_reason("psutil")
    if psutil is None:
        return None
    waited_for = os.times()
    total = {os.getpid(): time.process_time() + waited_for.children_user + waited_for.children_system}
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total[process.pid] = times.user + times.system + times.children_user + times.children_system
    return total


def spent(before: dict[int, float], after: dict[int, float]) -> float:
    """CPU seconds between two looks at a tree, without processes that ended unwaited for, as workers of Spark do."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


@contextmanager
def sampled_cpu() -> Iterator[Callable[[], float | None]]:
    """CPU seconds of the processes that begin and end within the block, also of those that nobody waits for.

    The last look at each process counts, so up to :data:`SAMPLED_EVERY` of each is missing. The value is a function to
    call after the block.
    """
    psutil, _ = module_or_reason("psutil")
    if psutil is None:
        yield lambda: None
        return
    me = psutil.Process()
    before = {process.pid for process in me.children(recursive=True)}
    seen: dict[int, float] = {}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(SAMPLED_EVERY):
            for process in me.children(recursive=True):
                if process.pid in before:
                    continue
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                seen[process.pid] = times.user + times.system

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: sum(seen.values())
    finally:
        ended.set()
        thread.join()


def _seconds(work: Callable[[], Answer]) -> tuple[float, Answer]:
    began = time.perf_counter()
    answer = work()
    return time.perf_counter() - began, answer


def _sample(side: Side, repeats: int) -> tuple[Sample, Answer]:
    """Run a side; the start is not subtracted yet."""
    start = _seconds(side.start)[0] if side.start is not None else 0.0
    runs: list[tuple[float, Answer]] = []
    cpu: float | None
    if side.in_process:
        before = tree_cpu()
        runs = [_seconds(side.run) for _ in range(repeats)]
        after = tree_cpu()
        cpu = None if before is None or after is None else spent(before, after)
    else:
        with sampled_cpu() as total:
            runs = [_seconds(side.run) for _ in range(repeats)]
        cpu = total()
    wall = sum(seconds for seconds, _ in runs) / repeats
    return Sample(wall, None if cpu is None else cpu / repeats / side.times, start), runs[-1][1]


def measure(sides: Sequence[Side], rounds: int, *, label: str, warm_up: bool = True) -> Measured:
    """Run all sides that can run, in turns.

    Args:
        sides: the sides of the comparison.
        rounds: the number of counted rounds.
        label: the label of the progress.
        warm_up: whether a round that does not count goes first, for page cache, imports and compilers. It also shows
            which sides are short and have to be repeated.
    """
    present = [side for side in sides if not side.absent]
    measured = Measured(samples={side.name: [] for side in present})
    repeats = dict.fromkeys(measured.samples, 1)
    before = os.getloadavg()[0]
    with progress_console.status("") as status:
        for number in range(-1 if warm_up else 0, rounds):
            for side in present:
                status.update(f"{label}: {'warm-up' if number < 0 else f'round {number + 1} of {rounds}'}, {side.name}")
                sample, answer = _sample(side, repeats[side.name])
                if number < 0:
                    repeats[side.name] = min(MAX_REPEATS, max(1, round(SHORTEST / sample.wall)))
                else:
                    measured.samples[side.name].append(sample)
                if measured.answers.setdefault(side.name, answer) != answer:
                    measured.unsteady.add(side.name)
        for side in present:
            status.update(f"{label}: results of {side.name}")
            measured.samples[side.name] = without_start(measured.samples[side.name], side.times)
            if side.check is not None:
                measured.answers[side.name] = {**measured.answers[side.name], **side.check()}
    measured.load = (before, os.getloadavg()[0])
    return measured


def without_start(samples: Sequence[Sample], times: int) -> list[Sample]:
    """The samples for doing the work once, with the median start subtracted; see :class:`Sample`."""
    starts = [sample.start for sample in samples]
    median, noise = statistics.median(starts), max(starts) - min(starts)
    lost = min(sample.wall for sample in samples) - median < noise
    return [replace(sample, wall=0.0 if lost else (sample.wall - median) / times) for sample in samples]


def difference(ours: Answer, theirs: Answer) -> str:
    """The difference of two answers, "" for equal ones; answers without a common name differ."""
    shared = sorted(set(ours) & set(theirs))
    if not shared:
        return f"nothing to compare: {', '.join(ours)} and {', '.join(theirs)}"
    return ", ".join(f"{name} {ours[name]:,} and {theirs[name]:,}" for name in shared if ours[name] != theirs[name])


def spread(values: Sequence[float]) -> str:
    """The smallest and the largest value, as text."""
    low, high = short(min(values)), short(max(values))
    return f"{low.split()[0]}-{high}" if low.split()[1:] == high.split()[1:] else f"{low}-{high}"


def short(value: float) -> str:
    """A number with three significant digits, and k, M or G if it is large."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


SAME = "the same each round"


def own_verdict(work: Work, ours: Side, measured: Measured) -> Verdict:
    """The verdict of our side by itself, with the target if there is one."""
    samples = measured.samples[ours.name]
    rates = [work.rate(sample.wall) for sample in samples]
    ok = ours.name not in measured.unsteady
    found = SAME if ok else "not the same each round"
    figures: dict[str, int | float | str] = {"ours": _rounded(statistics.median(rates)), "ours_range": spread(rates)}
    if work.target is not None:
        figures["target"] = work.target
        found += f"; target {short(work.target)} {_standing(work, samples)}"
    answer = ", ".join(f"{name} {value:,}" for name, value in measured.answers[ours.name].items())
    return Verdict(
        check="bench",
        name=f"{work.part}, {work.name}: {ours.name}",
        expected=SAME,
        found=found,
        ok=ok,
        seconds=statistics.median(sample.wall for sample in samples),
        figures={**figures, **_cpu(samples, "cpu_seconds"), **_circumstances(work, measured, len(samples))},
        evidence=f"{_line(ours.name, work, samples)}\nanswer: {answer}",
    )


def peer_verdict(work: Work, ours: Side, peer: Side, measured: Measured) -> Verdict:
    """The verdict of our side against another; equal answers decide, the ratio is only given."""
    name = f"{work.part}, {work.name}: {ours.name} against {peer.name}"
    expected = "equal results"
    if peer.absent or ours.absent:
        reason = f"skipped: {peer.absent or ours.absent}"
        return Verdict(
            check="bench", name=name, expected=expected, found=reason, ok=True, figures={"input": work.given}
        )
    own, others = measured.samples[ours.name], measured.samples[peer.name]
    differs = difference(measured.answers[ours.name], measured.answers[peer.name])
    unsteady = ", ".join(sorted({ours.name, peer.name} & measured.unsteady))
    found = f"results differ: {differs}" if differs else "equal results"
    found += f"; not the same each round: {unsteady}" if unsteady else ""
    own_rates = [work.rate(sample.wall) for sample in own]
    figures: dict[str, int | float | str] = {"ours": _rounded(statistics.median(own_rates))}
    figures["ours_range"] = spread(own_rates)
    if all(sample.wall > 0 for sample in (*own, *others)):
        rates = [work.rate(sample.wall) for sample in others]
        ratios = [theirs.wall / mine.wall for mine, theirs in zip(own, others, strict=True)]
        figures |= {"theirs": _rounded(statistics.median(rates)), "theirs_range": spread(rates)}
        figures |= {"ratio": _rounded(statistics.median(ratios)), "ratio_range": spread(ratios)}
    else:
        found += "; too short next to its own start to be rated"
    if peer.start is not None:
        figures["their_start_seconds"] = _rounded(statistics.median(sample.start for sample in others))
    return Verdict(
        check="bench",
        name=name,
        expected=expected,
        found=found,
        ok=not differs and not unsteady,
        seconds=sum(sample.wall for sample in others),
        figures={
            **figures,
            **_cpu(own, "cpu_seconds"),
            **_cpu(others, "their_cpu_seconds"),
            **_circumstances(work, measured, len(own)),
        },
        evidence="\n".join([_line(ours.name, work, own), _line(peer.name, work, others)]),
    )


def _standing(work: Work, samples: Sequence[Sample]) -> str:
    """Whether the target is met. On a shared machine, CPU time shows the figure that an idle machine would give."""
    if work.meets_target(work.rate(statistics.median(sample.wall for sample in samples))):
        return "met"
    cpu = [sample.cpu for sample in samples if sample.cpu is not None]
    alone = bool(cpu) and work.per_core and work.meets_target(work.rate(statistics.median(cpu)))
    return "missed by wall time, met by CPU time" if alone else "missed"


def verdicts(work: Work, ours: Side, peers: Sequence[Side], measured: Measured) -> list[Verdict]:
    """The verdicts of our side by itself and against each peer."""
    own = [] if ours.absent else [own_verdict(work, ours, measured)]
    return [*own, *(peer_verdict(work, ours, peer, measured) for peer in peers)]


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _cpu(samples: Sequence[Sample], name: str) -> dict[str, int | float | str]:
    known = [sample.cpu for sample in samples if sample.cpu is not None]
    return {name: float(f"{statistics.median(known):.3g}")} if known else {}


def _circumstances(work: Work, measured: Measured, rounds: int) -> dict[str, int | float | str]:
    load = f"{measured.load[0]:.1f}-{measured.load[1]:.1f}"
    return {"unit": work.unit, "input": work.given, "rounds": rounds, "cores": os.cpu_count() or 0, "load": load}


def _line(name: str, work: Work, samples: Sequence[Sample]) -> str:
    walls = [sample.wall for sample in samples]
    rate = f"{short(work.rate(statistics.median(walls)))} {work.unit}" if min(walls) > 0 else "not rated"
    cpu = _cpu(samples, "cpu").get("cpu", "unknown")
    start = statistics.median(sample.start for sample in samples)
    told = f"{name}: {rate}; wall {statistics.median(walls):.3g} s ({spread(walls)}), CPU {cpu} s"
    return told + (f", start {start:.3g} s more" if start else "")
