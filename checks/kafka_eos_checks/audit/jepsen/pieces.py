"""A history of Jepsen in pieces, each read without the others and cut into the parts that concern one key.

A piece is a byte range of the file (:func:`pieces_of`). The place of a form has the number of its piece and its own
number in it (:func:`place_of`). So places are in the order of the history, although no piece knows how many forms came
before it. What a piece says of a process depends on earlier pieces in two ways, which :class:`Processes` resolves:

- An operation may have begun in an earlier piece. Without a completion in any piece, it may still happen.
- After an ``:assign`` or ``:subscribe`` a process has forgotten its position in all keys that it was not given. A part
  has the place of the last such operation, :data:`BEFORE` if it is in an earlier piece.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.jepsen.edn import hashable
from kafka_eos_checks.audit.jepsen.operations import (
    ASSIGNMENTS,
    FAIL,
    INFO,
    INVOKE,
    SUBSCRIBE,
    Key,
    Operation,
    WrongOperation,
    forms_in,
    is_of_a_client,
    operation_of,
    unfinished,
)

PIECE_BYTES = 16 << 20
NEVER, BEFORE = -1, -2  # when a process forgot a key, instead of a place
_LINE, _LOOKED_AT = b"\n{", 1 << 16  # the end of a line before a form; bytes that are read at once to find it
_PIECE_BITS = 40


class Piece(NamedTuple):
    """A byte range of a history.

    Attributes:
        number: its number, from 0.
        path: the history.
        start: the first byte, at the beginning of a line.
        end: the byte after the last one.
    """

    number: int
    path: Path
    start: int
    end: int


def place_of(piece: int, number: int) -> int:
    """The place of the form with a number, from 0, in a piece."""
    return piece << _PIECE_BITS | number


def number_of(place: int, begins: list[int]) -> int:
    """The number of a form in its history, from the numbers at which the pieces begin."""
    return begins[place >> _PIECE_BITS] + (place & (1 << _PIECE_BITS) - 1)


def pieces_of(path: Path, size: int, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of a history, each of about the same size, from the beginning of a line with a map to another.

    Such a line may be inside a value. Then the piece before it ends within that value, and cannot be read.
    """
    cuts = [0]
    with path.open("rb") as file:
        for due in range(piece_bytes, size, piece_bytes):
            if due > cuts[-1]:
                file.seek(due)
                found = _next_line(file)
                cuts += [due + found] if found >= 0 else []
    ends = [*cuts[1:], size]
    return [Piece(number, path, *bounds) for number, bounds in enumerate(zip(cuts, ends, strict=True))]


def _next_line(file: BinaryIO) -> int:
    """How many bytes ahead the next line begins with a map; -1 if none does."""
    held, passed = b"", 0
    while more := file.read(_LOOKED_AT):
        held += more
        found = held.find(_LINE)
        if found >= 0:
            return passed + found + 1
        passed += len(held) - 1
        held = held[-1:]
    return -1


class Part(NamedTuple):
    """The part of an operation that concerns one key.

    Attributes:
        key: the key.
        ended: the place of the operation's completion; without one, of its invocation.
        own_index: its ``:index``; None if it has none.
        process: its process.
        outcome: its outcome.
        sends: offsets and values that it sent to the key; None if it sent to other keys only.
        polls: offsets and values that it was given of the key; None if it did not poll it.
        rebalanced: whether the key was given to its process or taken from it meanwhile.
        polls_forgot: when its process had last forgotten its position in the key: a place, or :data:`NEVER`.
        sends_forgot: the same of its sends.
        send_place: the key's place among the keys that the operation sends to.
        poll_place: the key's place among the keys that it was given.
        several: whether it sends to several keys.
        completed: whether it has a completion.
    """

    key: Key
    ended: int
    own_index: int | None
    process: Hashable
    outcome: str
    sends: list[tuple[int | None, Hashable]] | None
    polls: list[tuple[int | None, Hashable]] | None
    rebalanced: bool
    polls_forgot: int
    sends_forgot: int
    send_place: int
    poll_place: int
    several: bool
    completed: bool

    @property
    def piece(self) -> int:
        """The number of the piece with its completion."""
        return self.ended >> _PIECE_BITS

    def operation(self, begins: list[int]) -> Operation:
        """The part as an operation."""
        key = self.key
        return Operation(
            index=number_of(self.ended, begins) if self.own_index is None else self.own_index,
            ended=self.ended,
            invoked=-1,
            process=self.process,
            outcome=self.outcome,
            kind=":txn",
            sends={} if self.sends is None else {key: self.sends},
            polls={} if self.polls is None else {key: self.polls},
            rebalanced=frozenset({key}) if self.rebalanced else frozenset(),
        )


class Bare(NamedTuple):
    """An operation without its sends and polls; the fields are those of :class:`Part` and of ``Operation``."""

    ended: int
    own_index: int | None
    invoked: int
    process: Hashable
    outcome: str
    kind: str
    completed: bool = True

    def operation(self, begins: list[int]) -> Operation:
        """The operation."""
        index = number_of(self.ended, begins) if self.own_index is None else self.own_index
        *_, process, outcome, kind, _ = self
        return Operation(
            index=index, ended=self.ended, invoked=self.invoked, process=process, outcome=outcome, kind=kind
        )


def bucket_of(key: Key, buckets: int) -> int:
    """The bucket of a key, the same in every process."""
    return crc32(repr(key).encode("utf-8", "replace")) % buckets


@dataclass(slots=True)
class Forgets:
    """When a process has last forgotten its position in each key.

    Attributes:
        others: the place for all keys that are not in ``kept``.
        kept: the places of the keys of the last ``:assign`` or ``:subscribe``.
    """

    others: int = BEFORE
    kept: dict[Key, int] = field(default_factory=dict)

    def of(self, key: Key) -> int:
        """The place for a key."""
        return self.kept.get(key, self.others)

    def assign(self, kept: Iterable[Key], place: int) -> None:
        """Forget all keys except some."""
        self.kept = {key: self.of(key) for key in kept}
        self.others = place

    def after(self, before: "Forgets") -> "Forgets":
        """The same in the history, for what a piece says, after the pieces before it."""
        if self.others == BEFORE:
            return before
        own = {key: before.of(key) if place == BEFORE else place for key, place in self.kept.items()}
        return Forgets(self.others, own)


@dataclass(slots=True)
class Process:
    """A process in a piece.

    Attributes:
        polls: when it forgot keys, for its polls.
        sends: the same for its sends.
        pending: place and form of the operation that is under way at the end of the piece.
        head: the operation of its first form in the piece, if that is a completion of the workload's.
        ends_earlier: whether its first form in the piece is a completion of any kind.
        begun: whether it has a form yet.
    """

    polls: Forgets = field(default_factory=Forgets)
    sends: Forgets = field(default_factory=Forgets)
    pending: tuple[int, dict[str, Any]] | None = None
    head: Bare | None = None
    ends_earlier: bool = False
    begun: bool = False

    def parts(self, operation: Operation, index: int | None, *, completed: bool = True) -> Iterator[Part]:
        """Follow an operation, and cut it into parts, one for each key of its sends and polls."""
        if operation.kind in ASSIGNMENTS:
            if operation.outcome != FAIL:
                self.polls.assign(() if operation.from_start else operation.keys, operation.ended)
                self.sends.assign(operation.keys, operation.ended)
            return
        sends = {key: place for place, key in enumerate(operation.sends)}
        polls = {key: place for place, key in enumerate(operation.polls)}
        for key in {**sends, **polls}:
            yield Part(
                key,
                operation.ended,
                index,
                operation.process,
                operation.outcome,
                operation.sends.get(key),
                operation.polls.get(key),
                key in operation.rebalanced,
                self.polls.of(key),
                self.sends.of(key),
                sends.get(key, -1),
                polls.get(key, -1),
                len(sends) > 1,
                completed,
            )


@dataclass(slots=True)
class Boundary:
    """The facts of a piece that later pieces need, or the whole history.

    Attributes:
        number: the piece's number.
        forms: the number of its forms.
        operations: the number of its completed operations.
        unknown: whether one of unknown outcome sends to several keys.
        subscribes: whether there is a ``:subscribe``.
        wrong: whether it cannot be read, at least not without the pieces before it.
        processes: its processes.
    """

    number: int
    forms: int = 0
    operations: int = 0
    unknown: bool = False
    subscribes: bool = False
    wrong: bool = False
    processes: dict[Hashable, Process] = field(default_factory=dict)

    def count(self, operation: Operation) -> None:
        """Count an operation."""
        self.operations += 1
        self.subscribes |= operation.kind == SUBSCRIBE
        self.unknown |= operation.outcome == INFO and len(operation.sends) > 1


def index_of(form: dict[str, Any]) -> int | None:
    """The ``:index`` of a form, if it has one."""
    index = form.get(":index")
    return index if isinstance(index, int) else None


def read_piece(piece: Piece, boundary: Boundary) -> Iterator[tuple[Bare | None, list[Part]]]:
    """The operations that are completed in a piece, and their parts; an operation that may have begun earlier is None.

    Args:
        piece: the piece.
        boundary: takes what the piece says of its processes.
    """
    try:
        for number, (_, form) in enumerate(forms_in(piece.path, piece.start, piece.end)):
            boundary.forms = number + 1
            if is_of_a_client(form):
                yield from _take(place_of(piece.number, number), form, boundary)
    except (MalformedHistory, WrongOperation):
        boundary.wrong = True


def _take(place: int, form: dict[str, Any], boundary: Boundary) -> Iterator[tuple[Bare | None, list[Part]]]:
    name = hashable(form[":process"])
    process = boundary.processes.setdefault(name, Process())
    is_first, process.begun = not process.begun, True
    if form[":type"] == INVOKE:
        if process.pending is not None:
            raise WrongOperation("a second operation is begun")
        process.pending = place, form
        return
    invoked = -1 if process.pending is None else process.pending[0]
    process.pending = None
    process.ends_earlier |= is_first
    operation = operation_of(form, place, invoked)
    if operation is None:
        return
    boundary.count(operation)
    index = index_of(form)
    bare = Bare(place, index, invoked, name, operation.outcome, operation.kind)
    if is_first:
        process.head = bare
    yield None if is_first else bare, list(process.parts(operation, index))


class Inherited(NamedTuple):
    """When a process had last forgotten keys before a piece began, of the keys of one bucket."""

    piece: int
    process: Hashable
    polls: Forgets
    sends: Forgets


@dataclass(slots=True)
class Processes:
    """The processes of a history, after some of its pieces in order.

    Attributes:
        forgot: when each process has forgotten keys, for its polls and its sends.
        pending: its operation under way.
        begins: the number of the first form of each piece, and of the one after the last.
        whole: the counts of all pieces.
    """

    forgot: dict[Hashable, tuple[Forgets, Forgets]] = field(default_factory=dict)
    pending: dict[Hashable, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    begins: list[int] = field(default_factory=lambda: [0])
    whole: Boundary = field(default_factory=lambda: Boundary(-1))

    def take(self, boundary: Boundary) -> Iterator[Bare | Inherited]:
        """Take the next piece: its operations that may have begun earlier, and what its processes had forgotten."""
        whole = self.whole
        self.begins.append(self.begins[-1] + boundary.forms)
        whole.operations += boundary.operations
        whole.unknown |= boundary.unknown
        whole.subscribes |= boundary.subscribes
        whole.wrong |= boundary.wrong
        for name, process in boundary.processes.items():
            pending = self.pending.pop(name, None)
            if process.head is not None:
                yield process.head._replace(invoked=-1 if pending is None else pending[0])
            whole.wrong |= pending is not None and not process.ends_earlier
            if process.pending is not None:
                self.pending[name] = process.pending
            if name in self.forgot:
                polls, sends = self.forgot[name]
                yield Inherited(boundary.number, name, polls, sends)
            else:
                polls = sends = Forgets(NEVER)
            after = process.polls.after(polls), process.sends.after(sends)
            if after[0].others != NEVER or after[1].others != NEVER:
                self.forgot[name] = after

    def finish(self) -> Iterator[tuple[Bare, list[Part]]]:
        """The operations without a completion, after the last piece.

        Raises:
            WrongOperation: one of them is none of the workload's.
        """
        for name, (place, form) in self.pending.items():
            operation = unfinished(form, place)
            if operation is None:
                continue
            self.whole.count(operation)
            polls, sends = self.forgot.get(name, (Forgets(NEVER), Forgets(NEVER)))
            index = index_of(form)
            parts = list(Process(polls, sends).parts(operation, index, completed=False))
            yield Bare(place, index, place, name, operation.outcome, operation.kind, completed=False), parts
