"""Histories of Jepsen's workload for Kafka: the operations of its clients, read from ``history.edn``.

A map on its own line stands for the start or the completion of an operation::

    {:index 8, :type :invoke, :process 3, :f :txn, :value [[:poll] [:send 5 17]], :time 12345}
    {:index 9, :type :ok, :process 3, :f :txn, :value [[:poll {4 [[0 11] [2 12]]}] [:send 5 [7 17]]], :time 12399}

``:type`` is ``:invoke``, then ``:ok`` if it happened, ``:fail`` if it did not, ``:info`` if nobody knows.
``:f`` is ``:send``, ``:poll`` or ``:txn``, with ``[:send key value]`` and ``[:poll]`` in its value, and with
``[:send key [offset value]]`` and ``[:poll {key [[offset value] …]}]`` at its completion; or ``:assign`` or
``:subscribe`` with keys. A key stands for a partition, and a value is sent to a key once. ``:rebalance-log`` names the
keys that were given or taken away in between. Operations of others than clients (``:process :nemesis``), and other
``:f``, are left out.

An operation without a completion may still happen: its outcome is unknown.

Source: jepsen.tests.kafka, version 0.3
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.jepsen.edn import MalformedEdn, Name, hashable, read_forms
from kafka_eos_checks.audit.places import count_read_of

SUFFIX, HISTORY = ".edn", "history.edn"  # the latter in a folder of Jepsen's store
OK, FAIL, INFO = ":ok", ":fail", ":info"
INVOKE = ":invoke"
SUBSCRIBE = ":subscribe"
ASSIGNMENTS = {":assign", SUBSCRIBE}
_TRANSACTIONS = {":send", ":poll", ":txn"}

Key = Hashable
Value = Hashable
Pairs = dict[Key, list[tuple[int | None, Value]]]  # by key, offsets as far as they are known, and values


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A completed operation.

    Attributes:
        index: the ``:index`` of its completion, from 0.
        ended: the place of its completion in the history; without one, the place of its invocation.
        invoked: the place of its invocation, -1 if there is none.
        process: its process.
        outcome: :data:`OK`, :data:`FAIL` or :data:`INFO`.
        kind: ``:send``, ``:poll``, ``:txn``, ``:assign`` or ``:subscribe``.
        sends: keys, offsets and values that it sent, in order.
        polls: keys, offsets and values that it was given, in order.
        rebalanced: keys that were given to its process or taken from it in between.
        keys: the keys of an ``:assign`` or ``:subscribe``.
        from_start: whether an ``:assign`` goes to the beginning of its keys.
    """

    index: int
    ended: int
    invoked: int
    process: Hashable
    outcome: str
    kind: str
    sends: Pairs = field(default_factory=dict)
    polls: Pairs = field(default_factory=dict)
    rebalanced: frozenset[Key] = frozenset()
    keys: frozenset[Key] = frozenset()
    from_start: bool = False

    def __str__(self) -> str:
        return f"operation {self.index} ({self.outcome[1:]}, process {self.process})"


def is_jepsen(path: Path) -> bool:
    """Whether a path is named like a history of Jepsen."""
    return path.suffix == SUFFIX


def read_operations(path: Path) -> list[Operation]:
    """The completed operations of a history, in order of their completion.

    Raises:
        MalformedHistory: a line is no operation of this workload, or a value is sent to a key again.
        OSError: the file cannot be read.
    """
    operations = []
    sent: set[tuple[Key, Value]] = set()
    for line, operation in _numbered(path):
        for key, pairs in operation.sends.items():
            for _, value in pairs:
                if (key, value) in sent:
                    raise MalformedHistory(str(path), line, sent_again(key, value))
                sent.add((key, value))
        operations.append(operation)
    return operations


def check_operations(path: Path) -> None:
    """Read a history once, holding only the operations that are under way.

    Raises:
        MalformedHistory: a line is no operation of this workload.
        OSError: the file cannot be read.
    """
    for _ in _numbered(path):
        pass


def sent_again(key: Key, value: Value) -> str:
    """The error message for a value that is sent to a key a second time."""
    again = f"{_short(value)} is sent to key {_short(key)} a second time"
    return f"{again}; the anomalies are defined for values that are sent once"


def _numbered(path: Path) -> Iterator[tuple[int, Operation]]:
    """The operations with the lines at which their completions begin, from 1; without one, with the last line."""
    pending: dict[Hashable, tuple[int, dict[str, Any]]] = {}
    line = number = 0
    try:
        for line, form in forms_in(path):
            made = _take(pending, number, form)
            if made is not None:
                yield line, made
            number += 1
        for invoked, form in pending.values():
            made = unfinished(form, invoked)
            if made is not None:
                yield line, made
    except WrongOperation as error:
        raise MalformedHistory(str(path), line, str(error)) from None


def forms_in(path: Path, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Any]]:
    """The values of a text with their lines, from 1. A line is in memory at a time, or the lines of one value.

    Args:
        path: the file.
        start: the byte at which the first value begins.
        end: the byte at which the last value has ended; the end of the file when not given.

    Raises:
        MalformedHistory: the text is no EDN.
    """
    held, at, retry = "", 1, 0
    for line, text in enumerate(_lines(path, start, end), start=1):
        if text.startswith("{") and len(held) > retry:
            try:
                values = list(read_forms(held))
            except MalformedEdn:
                retry = 2 * len(held)  # the line may be inside a value
            else:
                yield from _with_lines(values, held, at)
                held, at, retry = "", line, 0
        held += text
    try:
        yield from _with_lines(list(read_forms(held)), held, at)
    except MalformedEdn as error:
        place = at + held.count("\n", 0, error.position)
        raise MalformedHistory(str(path), place, f"no EDN: {error.reason}") from None


def _lines(path: Path, start: int, end: int | None) -> Iterator[str]:
    with path.open("rb") as file:
        file.seek(start)
        at = start
        for line in file:
            yield line.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
            at += len(line)
            if end is not None and at >= end:
                break
        count_read_of(path, at - start)


def _with_lines(values: Iterable[tuple[int, Any]], text: str, line: int) -> Iterator[tuple[int, Any]]:
    """Values with the lines at which they begin, for a text that begins at a line."""
    at = 0
    for position, form in values:
        line += text.count("\n", at, position)
        at = position
        yield line, form


class WrongOperation(ValueError):  # noqa: N818 - named for the operation
    """An operation that does not belong to this workload; the message says why."""


def _take(pending: dict[Hashable, tuple[int, dict[str, Any]]], number: int, form: Any) -> Operation | None:
    """Follow one form of a history; return the operation that it completes, or None.

    Args:
        pending: by process, the place and the form of the operation that it has begun.
        number: the place of the form.
        form: the form.
    """
    if not is_of_a_client(form):
        return None
    process = hashable(form[":process"])
    if form[":type"] != INVOKE:
        invoked, _ = pending.pop(process, (-1, form))
        return operation_of(form, number, invoked)
    if process in pending:
        raise WrongOperation(f"process {process} begins a second operation")
    pending[process] = number, form
    return None


def unfinished(form: dict[str, Any], invoked: int) -> Operation | None:
    """The operation of an invocation without a completion: it may still happen."""
    return operation_of({**form, ":type": INFO}, invoked, invoked)


def is_of_a_client(form: Any) -> bool:
    """Whether a form is of a client of the workload, and not of the nemesis.

    Raises:
        WrongOperation: the form is no operation.
    """
    if not isinstance(form, dict):
        raise WrongOperation(f"expected an operation, a map, found {_short(form)}")
    for name in (":type", ":process", ":f"):
        if name not in form:
            raise WrongOperation(f"an operation without {name}")
    if hashable(form[":type"]) not in {INVOKE, OK, FAIL, INFO}:
        raise WrongOperation(f":type {_short(form[':type'])} is none of {INVOKE}, {OK}, {FAIL}, {INFO}")
    return not isinstance(form[":process"], Name)


def operation_of(form: dict[str, Any], number: int, invoked: int) -> Operation | None:
    """The operation of a form, if it is one of this workload's.

    Args:
        form: the form of its completion.
        number: the place of the form.
        invoked: the place of its invocation.

    Raises:
        WrongOperation: its value is none of this workload's.
    """
    kind, value = hashable(form[":f"]), form.get(":value")
    if kind not in _TRANSACTIONS | ASSIGNMENTS:
        return None
    if value is not None and not isinstance(value, tuple | frozenset):
        raise WrongOperation(f"expected a vector as the :value of {kind}, found {_short(value)}")
    sends: Pairs = {}
    polls: Pairs = {}
    if kind in _TRANSACTIONS:
        for micro in value or ():
            _take_micro(micro, sends, polls)
    log = form.get(":rebalance-log")
    events = [event for event in log if isinstance(event, dict)] if isinstance(log, tuple) else []
    given = [keys for event in events if isinstance(keys := event.get(":keys"), tuple | frozenset)]
    index = form.get(":index")
    return Operation(
        index=index if isinstance(index, int) else number,
        ended=number,
        invoked=invoked,
        process=hashable(form[":process"]),
        outcome=form[":type"],
        kind=kind,
        sends=sends,
        polls=polls,
        rebalanced=frozenset(hashable(key) for keys in given for key in keys),
        keys=frozenset(map(hashable, value or ())) if kind in ASSIGNMENTS else frozenset(),
        from_start=form.get(":seek-to-beginning?") is True,
    )


def _take_micro(micro: Any, sends: Pairs, polls: Pairs) -> None:
    """Add one part of a transaction."""
    match micro:
        case (":send", key, value):
            pair = _pair(value) if isinstance(value, tuple) else (None, hashable(value))
            sends.setdefault(hashable(key), []).append(pair)
        case (":poll",) | (":poll", None):
            pass
        case (":poll", dict() as given):
            for key, pairs in given.items():
                if not isinstance(pairs, tuple):
                    raise WrongOperation(f"expected a vector of [offset value], found {_short(pairs)}")
                polls.setdefault(hashable(key), []).extend(map(_pair, pairs))
        case _:
            raise WrongOperation(f"{_short(micro)} is neither [:send key value] nor [:poll {{key [[offset value] …]}}]")


def _pair(pair: Any) -> tuple[int | None, Value]:
    """The offset and value of a pair; no offset if the client knew none."""
    if not isinstance(pair, tuple) or len(pair) != 2 or isinstance(pair[0], bool):
        raise WrongOperation(f"expected [offset value], found {_short(pair)}")
    offset, value = pair
    if offset is not None and not isinstance(offset, int):
        raise WrongOperation(f"offset {_short(offset)} is no integer")
    return (None if offset is None or offset < 0 else offset), hashable(value)


def _short(form: Any) -> str:
    text = repr(form)
    return text if len(text) <= 60 else f"{text[:60]}…"
