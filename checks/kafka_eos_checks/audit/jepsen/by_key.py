"""The anomalies of a history of any size: keys are judged one by one, by the rules of ``anomalies``.

The operations are read one after the other and written by key to a few files (:class:`Spill`). A key's part of an
operation is an operation itself, so each rule that looks at one key at a time judges a history of only that key
(:class:`KeyHistory`). Three things span keys:

- After an ``:assign`` or ``:subscribe`` a process has forgotten its position in keys. Each part has the number of times
  that its process had forgotten its key, and the key's history gets an ``:assign`` wherever that number rises.
- An operation of unknown outcome happened if any of its values was read, on any key. So such proofs are collected from
  all keys first (:func:`proofs_in`).
- A cycle goes from key to key. Steps by process and by time go to operations that ended later, so every cycle has a
  step back, from an operation to one that ended before it. All operations of a cycle ended within the intervals of such
  steps, where these overlap. Only concurrent operations have such steps, so there are few. The graph has only the
  operations of these stretches, and still has all cycles of the history.

Only the keys of one file, the operations of the stretches, and each process's assigned keys are in memory.
"""

import pickle
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nsmallest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.jepsen.anomalies import (
    NO_PROOFS,
    Analysis,
    Step,
    Why,
    allowed,
    cycle_finding,
    cycles_of,
    first_reasons,
    steps_of,
)
from kafka_eos_checks.audit.jepsen.operations import (
    ASSIGNMENTS,
    FAIL,
    INFO,
    OK,
    SUBSCRIBE,
    Key,
    Operation,
    Pairs,
    sent_again,
)

FILE_BYTES = 16 << 20  # of a history for each file of keys
MOST_FILES = 256
ROWS_AT_ONCE = 500  # written to a file in one piece
SHOWN_ALLOWED = 20  # findings shown of each allowed anomaly


class Part(NamedTuple):
    """The part of an operation that concerns one key.

    Attributes:
        key: the key.
        operation: the operation with only its sends to the key and its polls of it.
        forgot: how often its process had forgotten the key, for polls and for sends.
        place: the key's place among the keys that the operation sends to, and among those that it was given.
        several: whether it sends to several keys.
    """

    key: Key
    operation: Operation
    forgot: tuple[int, int]
    place: tuple[int, int]
    several: bool


@dataclass(slots=True)
class _Forgets:
    """Counts of how often a process has forgotten each key.

    Attributes:
        times: how often it was assigned keys.
        since: by assigned key, the number of the last assignment without it.
    """

    times: int = 0
    since: dict[Key, int] = field(default_factory=dict)

    def assign(self, kept: Iterable[Key]) -> None:
        self.since = {key: self.since.get(key, self.times) for key in kept}
        self.times += 1

    def of(self, key: Key) -> int:
        return self.since.get(key, self.times)


@dataclass(slots=True)
class _Process:
    """Counts of how often a process has forgotten each key, for its polls and for its sends."""

    polls: _Forgets = field(default_factory=_Forgets)
    sends: _Forgets = field(default_factory=_Forgets)


def parts_of(operations: Iterable[Operation]) -> Iterator[tuple[Operation, list[Part]]]:
    """Cut each operation into parts, one for each key of its sends and polls."""
    processes: dict[Hashable, _Process] = defaultdict(_Process)
    for operation in operations:
        process = processes[operation.process]
        if operation.kind in ASSIGNMENTS:
            if operation.outcome != FAIL:
                process.polls.assign(() if operation.from_start else operation.keys)
                process.sends.assign(operation.keys)
            yield operation, []
            continue
        sends = {key: place for place, key in enumerate(operation.sends)}
        polls = {key: place for place, key in enumerate(operation.polls)}
        parts = []
        for key in {**sends, **polls}:
            own = replace(
                operation,
                sends=_only(operation.sends, key),
                polls=_only(operation.polls, key),
                rebalanced=operation.rebalanced & {key},
            )
            forgot = process.polls.of(key), process.sends.of(key)
            parts.append(Part(key, own, forgot, (sends.get(key, -1), polls.get(key, -1)), len(sends) > 1))
        yield operation, parts


def _only(pairs: Pairs, key: Key) -> Pairs:
    return {key: pairs[key]} if key in pairs else {}


# --- on disk -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spill:
    """The parts of a history's operations, each key in one of several files, and the operations themselves in another.

    Attributes:
        run: the name of the history.
        files: the files of parts.
        operations: the file of all operations, without sends and polls.
        count: the number of operations.
        unknown: whether an operation of unknown outcome sends to several keys.
        fine: anomalies that Jepsen allows in this history.
    """

    run: str
    files: tuple[Path, ...]
    operations: Path
    count: int
    unknown: bool
    fine: frozenset[str]


@contextmanager
def spilled(operations: Iterable[Operation], run: str, size: int, folder: Path | None = None) -> Iterator[Spill]:
    """Write a history by key to files, for as long as the block lasts.

    Args:
        operations: the completed operations, in their order; read once.
        run: the name of the history.
        size: the size of the history, in bytes.
        folder: where to write; every worker has to be able to read it. A temporary folder of the machine if not given.
    """
    number = min(max(1, -(-size // FILE_BYTES)), MOST_FILES)
    count, unknown, subscribes = 0, False, False
    with TemporaryDirectory(prefix="kafka-eos-jepsen-", dir=folder) as place:
        paths = [Path(place, f"keys-{file}") for file in range(number)]
        whole = Path(place, "operations")
        with ExitStack() as stack:
            files = [_Rows(stack.enter_context(path.open("wb"))) for path in (*paths, whole)]
            for operation, parts in parts_of(operations):
                count += 1
                subscribes |= operation.kind == SUBSCRIBE
                unknown |= operation.outcome == INFO and len(operation.sends) > 1
                files[-1].put(replace(operation, sends={}, polls={}, rebalanced=frozenset(), keys=frozenset()))
                for part in parts:
                    files[crc32(repr(part.key).encode("utf-8", "replace")) % number].put(part)
            for rows in files:
                rows.flush()
        yield Spill(run, tuple(paths), whole, count, unknown, allowed(subscribes))


@dataclass(slots=True)
class _Rows:
    """A buffer of rows for a file."""

    file: BinaryIO
    rows: list[Any] = field(default_factory=list)

    def put(self, row: Any) -> None:
        self.rows.append(row)
        if len(self.rows) >= ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if self.rows:
            pickle.dump(self.rows, self.file, pickle.HIGHEST_PROTOCOL)
            self.rows = []


def _rows(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        while True:
            try:
                yield from pickle.load(file)  # noqa: S301 - written by this process, in a folder of its own
            except EOFError:
                return


@dataclass(slots=True)
class KeyHistory:
    """The history of one key.

    Attributes:
        operations: the parts, as operations.
        places: by the place of an operation's completion, see :attr:`Part.place`.
        several: the operations that also send to other keys, by the place of their completion.
        forgot: by process, how often it had forgotten the key at its last operation.
    """

    operations: list[Operation] = field(default_factory=list)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    several: set[int] = field(default_factory=set)
    forgot: dict[Hashable, tuple[int, int]] = field(default_factory=dict)

    def add(self, part: Part) -> None:
        """Add a part, and an ``:assign`` before it if the process has forgotten the key since its last part."""
        operation = part.operation
        before = self.forgot.get(operation.process, part.forgot)
        if before != part.forgot:
            keys = frozenset({part.key}) if before[1] == part.forgot[1] else frozenset()
            self.operations.append(
                Operation(
                    index=-1,
                    ended=-1,
                    invoked=-1,
                    process=operation.process,
                    outcome=OK,
                    kind=":assign",
                    keys=keys,
                    from_start=True,
                )
            )
        self.forgot[operation.process] = part.forgot
        self.operations.append(operation)
        self.places[operation.ended] = part.place
        if part.several:
            self.several.add(operation.ended)


def histories_in(path: Path) -> list[KeyHistory]:
    """The histories of all keys in a file of parts."""
    found: dict[Key, KeyHistory] = defaultdict(KeyHistory)
    for part in _rows(path):
        found[part.key].add(part)
    return list(found.values())


# --- one file at a time ----------------------------------------------------------------------------------------------

Proof = tuple[int, int, str]  # the place of an operation's completion, the place of a key in it, and the proof in words


def proofs_in(path: Path) -> list[Proof]:
    """Proofs that operations of unknown outcome happened, for those that send to several keys."""
    return [
        (ended, history.places[ended][0], words)
        for history in histories_in(path)
        if any(each.outcome == INFO and each.ended in history.several for each in history.operations)
        for ended, words in Analysis.of(history.operations, "").proofs.items()
        if ended in history.several
    ]


@dataclass(frozen=True, slots=True)
class Question:
    """The facts of the whole history that judging a file of keys needs.

    Attributes:
        run: the name of the history.
        fine: anomalies that are allowed.
        proofs: why operations of unknown outcome that send to several keys happened.
    """

    run: str
    fine: frozenset[str]
    proofs: Mapping[int, str] = field(default_factory=lambda: NO_PROOFS)

    def analyses(self, path: Path) -> Iterator[tuple[KeyHistory, Analysis]]:
        """The history of each key in a file, prepared for the rules."""
        for history in histories_in(path):
            yield history, Analysis.of(history.operations, self.run, self.proofs)


@dataclass(slots=True)
class Judged:
    """The anomalies of some keys, or of all.

    Attributes:
        findings: those that are errors.
        allowed: the number of each allowed anomaly.
        shown: findings of some of these, the first ones by key and offset.
        figures: the numbers of values that were sent and given.
        back: steps from an operation to one that ended before it.
        twice: the place of the first operation that sends a value a second time, and the error message.
    """

    findings: list[Finding] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)
    shown: list[Finding] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    back: list[Step] = field(default_factory=list)
    twice: tuple[int, str] | None = None

    def add(self, found: Iterable[Finding], fine: frozenset[str]) -> None:
        """Add some findings."""
        for finding in found:
            if finding.rule in fine:
                self.allowed[finding.rule] += 1
                self.shown.append(finding)
                if len(self.shown) > 100 * SHOWN_ALLOWED:
                    self._keep_few()
            else:
                self.findings.append(finding)

    def join(self, other: "Judged") -> None:
        """Add the anomalies of another file."""
        self.findings += other.findings
        self.allowed += other.allowed
        self.figures.update(other.figures)  # zeros, too
        self.back += other.back
        self.shown += other.shown
        self._keep_few()
        if other.twice is not None:
            self.twice = min(filter(None, (self.twice, other.twice)))

    def finish(self) -> None:
        """Sort the findings."""
        self._keep_few()
        self.findings.sort(key=Finding.sort_key)

    def _keep_few(self) -> None:
        of_rule: dict[str, list[Finding]] = defaultdict(list)
        for finding in self.shown:
            of_rule[finding.rule].append(finding)
        self.shown = [each for own in of_rule.values() for each in nsmallest(SHOWN_ALLOWED, own, key=Finding.sort_key)]


def judged_in(path: Path, question: Question) -> Judged:
    """The anomalies of the keys in a file, except cycles."""
    judged = Judged()
    for history, analysis in question.analyses(path):
        judged.add(analysis.of_keys(), question.fine)
        judged.figures.update(analysis.figures())
        judged.back += [step for step in analysis.given() | analysis.behind() if step[1] < step[0]]
        sent: set[Any] = set()
        for operation in history.operations:
            for key, pairs in operation.sends.items():
                for _, value in pairs:
                    if value in sent:
                        again = operation.ended, sent_again(key, value)
                        judged.twice = min(filter(None, (judged.twice, again)))
                    sent.add(value)
    return judged


def steps_in(path: Path, question: Question, stretches: Sequence[Step]) -> tuple[set[Step], set[Step]]:
    """The steps in some stretches: those to the reader of a value, and those to the writer of the next value."""
    within = _Stretches(stretches)
    given: set[Step] = set()
    behind: set[Step] = set()
    for _, analysis in question.analyses(path):
        given.update(step for step in analysis.given() if within.one_of(*step))
        behind.update(step for step in analysis.behind() if within.one_of(*step))
    return given, behind


def reasons_in(path: Path, question: Question, steps: frozenset[Step]) -> list[tuple[Step, Why]]:
    """The reasons of some steps."""
    found = []
    for history, analysis in question.analyses(path):
        for step, why in analysis.reasons(steps):
            place = history.places[step[1]][0 if why.by_order else 1]
            found.append((step, why._replace(place=(place, why.place[1]))))
    return found


class _Stretches:
    """Intervals of a history that do not overlap, in order."""

    def __init__(self, stretches: Sequence[Step]) -> None:
        self._begins = [begin for begin, _ in stretches]
        self._ends = [end for _, end in stretches]

    def number(self, place: int) -> int:
        """The number of the stretch that a place is in; -1 for none."""
        number = bisect_right(self._begins, place) - 1
        return number if number >= 0 and place <= self._ends[number] else -1

    def one_of(self, one: int, other: int) -> bool:
        """Whether two places are in one stretch."""
        number = self.number(one)
        return number >= 0 and number == self.number(other)


def stretches_of(back: Iterable[Step]) -> list[Step]:
    """The intervals of steps back, joined where they overlap."""
    found: list[Step] = []
    for begin, end in sorted((other, one) for one, other in back):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


# --- all together ----------------------------------------------------------------------------------------------------


EachFile = Callable[[Callable[[Path], Any], Sequence[Path]], Iterable[Any]]
"""Applies a function to each file, in any process; the answers come in any order."""


def judge(spill: Spill, each: EachFile = map, judging: EachFile | None = None) -> Judged:
    """All anomalies of a history, the same as by :func:`kafka_eos_checks.audit.jepsen.anomalies.anomalies`.

    Args:
        spill: the history.
        each: applies a function to each file.
        judging: applies the function that finds the anomalies, if not ``each``; it may keep the anomalies, and leave
            them out of its answers.

    Raises:
        MalformedHistory: a value is sent to a key a second time.
    """
    question = Question(spill.run, spill.fine)
    if spill.unknown:
        first: dict[int, tuple[int, str]] = {}
        for proofs in each(proofs_in, spill.files):
            for ended, place, words in proofs:
                first[ended] = min(first.get(ended, (place, words)), (place, words))
        question = replace(question, proofs={ended: words for ended, (_, words) in first.items()})
    judged = Judged()
    for some in (judging or each)(partial(judged_in, question=question), spill.files):
        judged.join(some)
    if judged.twice is not None:
        ended, reason = judged.twice
        raise MalformedHistory(spill.run, ended + 1, reason)  # as each form has its own line
    judged.figures["operations"] = spill.count
    stretches = stretches_of(judged.back)
    if stretches:
        given: set[Step] = set()
        behind: set[Step] = set()
        for steps in each(partial(steps_in, question=question, stretches=stretches), spill.files):
            given |= steps[0]
            behind |= steps[1]
        found = _cycles(spill, stretches, given, behind)
        wanted = frozenset(step for _, cycle in found for step in steps_of(cycle))
        ask = partial(reasons_in, question=question, steps=wanted)
        reasons = first_reasons(why for some in (each(ask, spill.files) if found else ()) for why in some)
        judged.add((cycle_finding(rule, cycle, reasons, spill.run) for rule, cycle in found), spill.fine)
    judged.finish()
    return judged


def _cycles(
    spill: Spill, stretches: Sequence[Step], given: Iterable[Step], behind: Iterable[Step]
) -> list[tuple[str, list[Operation]]]:
    """The cycles of all stretches."""
    within = _Stretches(stretches)
    operations: list[list[Operation]] = [[] for _ in stretches]
    for operation in _rows(spill.operations):
        number = within.number(operation.ended)
        if number >= 0:
            operations[number].append(operation)
    reads: list[list[Step]] = [[] for _ in stretches]
    writes: list[list[Step]] = [[] for _ in stretches]
    for kind, steps in ((reads, given), (writes, behind)):
        for step in steps:
            kind[within.number(step[0])].append(step)
    return [
        found
        for own, reading, writing in zip(operations, reads, writes, strict=True)
        for found in cycles_of(own, reading, writing)
    ]
