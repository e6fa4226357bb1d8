"""The anomalies of a history of any size: keys are judged one by one, by the rules of ``anomalies``.

A key's part of an operation is an operation itself, so each rule that looks at one key at a time judges a history of
only that key (:class:`KeyHistory`). Three things span keys:

- After an ``:assign`` or ``:subscribe`` a process has forgotten its position in keys. Each part has the last such
  moment for its key, and the key's history gets an ``:assign`` wherever that moment changes.
- An operation of unknown outcome happened if any of its values was read, on any key. So such proofs are collected from
  all keys first (:func:`proofs_of`).
- A cycle goes from key to key. Steps by process and by time go to operations that ended later, so every cycle has a
  step back, from an operation to one that ended before it. All operations of a cycle ended within the intervals of such
  steps, where these overlap (:func:`stretches_of`). Only concurrent operations have such steps, so there are few. The
  graph of a stretch has only its operations, and all graphs together have all cycles of the history.

Here are the steps of this; :mod:`kafka_eos_checks.audit.plan.jepsen_plan` runs them where the rows are.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.jepsen.anomalies import (
    Analysis,
    Step,
    Why,
    happened,
)
from kafka_eos_checks.audit.jepsen.operations import INFO, OK, Key, Operation, sent_again
from kafka_eos_checks.audit.jepsen.pieces import BEFORE, NEVER, Forgets, Inherited, Part

SHOWN_ALLOWED = 20  # findings shown of each allowed anomaly

Steps = NDArray[np.int64]  # from one operation to another, by the places of their completions; shape (n, 2)
NO_STEPS: Steps = np.zeros((0, 2), np.int64)


@dataclass(slots=True)
class KeyHistory:
    """The history of one key.

    Attributes:
        operations: the parts, as operations.
        parts: the parts, by the place of an operation's completion.
    """

    operations: list[Operation] = field(default_factory=list)
    parts: dict[int, Part] = field(default_factory=dict)

    @classmethod
    def of(
        cls, parts: Iterable[Part], begins: list[int], inherited: Mapping[tuple[int, Hashable], Inherited]
    ) -> "KeyHistory":
        """Make a history of parts in their order, with an ``:assign`` where a process had forgotten the key since.

        Args:
            parts: the parts.
            begins: the number of the first form of each piece.
            inherited: what processes had forgotten before a piece, by piece and process.
        """
        history = cls()
        last: dict[Hashable, tuple[int, int]] = {}
        for part in parts:
            before = inherited.get((part.piece, part.process), _NOTHING)
            forgot = _since(part, part.polls_forgot, before.polls), _since(part, part.sends_forgot, before.sends)
            known = last.setdefault(part.process, forgot)
            if known != forgot:
                last[part.process] = forgot
                keys = frozenset({part.key}) if known[1] == forgot[1] else frozenset[Key]()
                history.operations.append(_assign(part.process, keys))
            history.operations.append(part.operation(begins))
            history.parts[part.ended] = part
        return history


_NOTHING = Inherited(0, None, Forgets(NEVER), Forgets(NEVER))


def _since(part: Part, place: int, before: Forgets) -> int:
    return before.of(part.key) if place == BEFORE else place


def _assign(process: Hashable, keys: frozenset[Key]) -> Operation:
    return Operation(
        index=-1, ended=-1, invoked=-1, process=process, outcome=OK, kind=":assign", keys=keys, from_start=True
    )


def by_key(parts: Iterable[Part]) -> dict[Key, list[Part]]:
    """The parts of each key, in their order: those of operations without a completion come last."""
    found: dict[Key, list[Part]] = defaultdict(list)
    for part in parts:
        found[part.key].append(part)
    for own in found.values():
        own.sort(key=lambda part: (not part.completed, part.ended))
    return found


# --- proofs of all keys ----------------------------------------------------------------------------------------------

Proof = tuple[int, int, str]  # the place of an operation's completion, the place of a key in it, and the proof in words


def unknown_of(parts: Iterable[Part]) -> list[int]:
    """The places of the operations of unknown outcome that send to several keys."""
    return [part.ended for part in parts if part.several and part.outcome == INFO]


def proofs_of(parts: Sequence[Part], begins: list[int]) -> Iterator[Proof]:
    """Proofs that operations of unknown outcome happened, for those that send to several keys; the parts of one key."""
    unknown = [part for part in parts if part.several and part.outcome == INFO]
    wanted = {value for part in unknown for _, value in part.sends or ()}
    reader: dict[Any, Operation] = {}
    for part in parts if wanted else ():
        for _, value in part.polls or () if part.outcome == OK else ():
            if value in wanted and value not in reader:
                reader[value] = part.operation(begins)
    for part in unknown:
        words = happened(part.operation(begins), {part.key: reader})
        if words is not None:
            yield part.ended, part.send_place, words


# --- the anomalies of some keys --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Judged:
    """The anomalies of some keys, or of all.

    Attributes:
        findings: those that are errors.
        allowed: the number of each allowed anomaly.
        shown: findings of some of these, the first ones by key and offset.
        figures: the numbers of values that were sent and given.
        stretches: the intervals of steps from an operation to one that ended before it, see :func:`stretches_of`.
        twice: the place of the first operation that sends a value a second time, and the error message.
    """

    findings: list[Finding] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)
    shown: list[Finding] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    stretches: Steps = field(default_factory=lambda: NO_STEPS)
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
        """Add the anomalies of other keys."""
        self.findings += other.findings
        self.allowed += other.allowed
        self.figures.update(other.figures)  # zeros, too
        self.stretches = stretches_of(np.concatenate([self.stretches, other.stretches]))
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


def judge_key(history: KeyHistory, run: str, proofs: Mapping[int, str], fine: frozenset[str], judged: Judged) -> None:
    """Add the anomalies of a key, except cycles.

    Args:
        history: the history of the key.
        run: the name of the whole history.
        proofs: why operations of unknown outcome that send to several keys happened.
        fine: anomalies that are allowed.
        judged: takes the anomalies.
    """
    analysis = Analysis.of(history.operations, run, proofs)
    judged.add(analysis.of_keys(), fine)
    judged.figures.update(analysis.figures())
    steps = np.concatenate([_array(analysis.given()), _array(analysis.behind())])
    back = stretches_of(steps[steps[:, 1] < steps[:, 0]][:, ::-1])
    judged.stretches = stretches_of(np.concatenate([judged.stretches, back]))
    sent: set[Any] = set()
    for operation in history.operations:
        for key, pairs in operation.sends.items():
            for _, value in pairs:
                if value in sent:
                    again = operation.ended, sent_again(key, value)
                    judged.twice = min(filter(None, (judged.twice, again)))
                sent.add(value)


def _array(steps: Iterable[Step]) -> Steps:
    return np.array(list(steps), np.int64).reshape(-1, 2)


# --- cycles ----------------------------------------------------------------------------------------------------------


def stretches_of(intervals: Steps) -> Steps:
    """Intervals, each from its first place to its last, in order and joined where they overlap."""
    if not len(intervals):
        return NO_STEPS
    begins, ends = intervals[np.argsort(intervals[:, 0])].T
    ends = np.maximum.accumulate(ends)
    first = np.append(True, begins[1:] > ends[:-1])
    return np.stack([begins[first], ends[np.append(first[1:], True)]], axis=1)


def stretch_of(places: NDArray[np.int64], stretches: Steps) -> NDArray[np.int64]:
    """The number of the stretch that each place is in; -1 for none."""
    if not len(stretches):
        return np.full(len(places), -1)
    number = np.searchsorted(stretches[:, 0], places, side="right") - 1
    return np.where((number >= 0) & (places <= stretches[number, 1]), number, -1)


class KeySteps(NamedTuple):
    """The steps of some keys within stretches: to the reader of a value, and to the writer of the next value."""

    given: Steps
    behind: Steps


def steps_of_key(analysis: Analysis, stretches: Steps) -> KeySteps:
    """The steps of a key that do not leave their stretch."""
    return KeySteps(_within(_array(analysis.given()), stretches), _within(_array(analysis.behind()), stretches))


def _within(steps: Steps, stretches: Steps) -> Steps:
    numbers = stretch_of(steps[:, 0], stretches)
    kept: Steps = steps[(numbers >= 0) & (numbers == stretch_of(steps[:, 1], stretches))]
    return kept


def reasons_of(history: KeyHistory, analysis: Analysis, steps: frozenset[Step]) -> Iterator[tuple[Step, Why]]:
    """The reasons of some steps that a key has."""
    for step, why in analysis.reasons(steps):
        part = history.parts[step[1]]
        place = part.send_place if why.by_order else part.poll_place
        yield step, why._replace(place=(place, why.place[1]))
