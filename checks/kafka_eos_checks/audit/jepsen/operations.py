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

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.jepsen.edn import MalformedEdn, Name, hashable, read_forms

SUFFIX, HISTORY = ".edn", "history.edn"  # the latter in a folder of Jepsen's store
OK, FAIL, INFO = ":ok", ":fail", ":info"
_INVOKE = ":invoke"
SUBSCRIBE = ":subscribe"
ASSIGNMENTS = {":assign", SUBSCRIBE}
_TRANSACTIONS = {":send", ":poll", ":txn"}

PIECE = 1 << 22  # characters of a history that are read at once

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


def each_operation(path: Path) -> Iterator[Operation]:
    """Read operations one after the other, without checking for values that are sent to a key again.

    Raises:
        MalformedHistory: a line is no operation of this workload.
        OSError: the file cannot be read.
    """
    return (operation for _, operation in _numbered(path))


def sent_again(key: Key, value: Value) -> str:
    """The error message for a value that is sent to a key a second time."""
    again = f"{_short(value)} is sent to key {_short(key)} a second time"
    return f"{again}; the anomalies are defined for values that are sent once"


def _numbered(path: Path) -> Iterator[tuple[int, Operation]]:
    """The operations with the lines at which their completions begin, from 1; without one, with the last line."""
    pending: dict[Hashable, tuple[int, dict[str, Any]]] = {}
    line = number = 0
    try:
        for line, form in _forms(path):
            made = _take(pending, number, form)
            if made is not None:
                yield line, made
            number += 1
        for invoked, form in pending.values():  # an operation without a completion may still happen
            made = _operation({**form, ":type": INFO}, invoked, invoked)
            if made is not None:
                yield line, made
    except _Wrong as error:
        raise MalformedHistory(str(path), line, str(error)) from None


def _forms(path: Path) -> Iterator[tuple[int, Any]]:
    """The values of a text with their lines, read piece by piece.

    A piece ends where a line ends and the next one begins with a map, as every operation does in a history of Jepsen.
    If that map was inside a value, the piece is no EDN, and more of the text is read.

    Raises:
        MalformedHistory: the text is no EDN.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        lines, text, size = 1, "", PIECE
        while True:
            more = file.read(size)
            text += more
            cut = text.rfind("\n{") + 1 if more else len(text)
            try:
                forms = list(read_forms(text[:cut]))
            except MalformedEdn as error:
                if more:
                    size *= 2
                    continue
                place = lines + text.count("\n", 0, error.position)
                raise MalformedHistory(str(path), place, f"no EDN: {error.reason}") from None
            at = 0
            for position, form in forms:
                lines += text.count("\n", at, position)
                at = position
                yield lines, form
            lines += text.count("\n", at, cut)
            text = text[cut:]
            if not more:
                return


class _Wrong(ValueError):  # noqa: N818 - never leaves this module
    """An operation that does not belong to this workload; the message says why."""


def _take(pending: dict[Hashable, tuple[int, dict[str, Any]]], number: int, form: Any) -> Operation | None:
    """Follow one form of a history; return the operation that it completes, or None.

    Args:
        pending: by process, the place and the form of the operation that it has begun.
        number: the place of the form.
        form: the form.
    """
    if not _is_of_a_client(form):
        return None
    process = hashable(form[":process"])
    if form[":type"] != _INVOKE:
        invoked, _ = pending.pop(process, (-1, form))
        return _operation(form, number, invoked)
    if process in pending:
        raise _Wrong(f"process {process} begins a second operation")
    pending[process] = number, form
    return None


def _is_of_a_client(form: Any) -> bool:
    if not isinstance(form, dict):
        raise _Wrong(f"expected an operation, a map, found {_short(form)}")
    for name in (":type", ":process", ":f"):
        if name not in form:
            raise _Wrong(f"an operation without {name}")
    if form[":type"] not in {_INVOKE, OK, FAIL, INFO}:
        raise _Wrong(f":type {_short(form[':type'])} is none of {_INVOKE}, {OK}, {FAIL}, {INFO}")
    return not isinstance(form[":process"], Name)


def _operation(form: dict[str, Any], number: int, invoked: int) -> Operation | None:
    """The operation of a form, if it is one of this workload's."""
    kind, value = form[":f"], form.get(":value")
    if kind not in _TRANSACTIONS | ASSIGNMENTS:
        return None
    if value is not None and not isinstance(value, tuple | frozenset):
        raise _Wrong(f"expected a vector as the :value of {kind}, found {_short(value)}")
    sends: Pairs = {}
    polls: Pairs = {}
    if kind in _TRANSACTIONS:
        for micro in value or ():
            _take_micro(micro, sends, polls)
    log = form.get(":rebalance-log")
    events = [event for event in log if isinstance(event, dict)] if isinstance(log, tuple) else []
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
        rebalanced=frozenset(hashable(key) for event in events for key in event.get(":keys") or ()),
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
                    raise _Wrong(f"expected a vector of [offset value], found {_short(pairs)}")
                polls.setdefault(hashable(key), []).extend(map(_pair, pairs))
        case _:
            raise _Wrong(f"{_short(micro)} is neither [:send key value] nor [:poll {{key [[offset value] …]}}]")


def _pair(pair: Any) -> tuple[int | None, Value]:
    """The offset and value of a pair; no offset if the client knew none."""
    if not isinstance(pair, tuple) or len(pair) != 2 or isinstance(pair[0], bool):
        raise _Wrong(f"expected [offset value], found {_short(pair)}")
    offset, value = pair
    if offset is not None and not isinstance(offset, int):
        raise _Wrong(f"offset {_short(offset)} is no integer")
    return (None if offset is None or offset < 0 else offset), hashable(value)


def _short(form: Any) -> str:
    text = repr(form)
    return text if len(text) <= 60 else f"{text[:60]}…"
