"""The history: one schema for everything that happened.

One event is one row, the same for simulator, recorder, live conformance and audit. JSON Lines for people,
Parquet for volume. Absent values are ``None`` (JSON: the key is left out).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isinf
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NoReturn, get_args, get_type_hints

PHASES = ("invoke", "ok", "fail", "info")
OF_CLIENTS = (
    *("Send", "BeginTransaction", "SendOffsetsToTransaction", "CommitTransaction", "AbortTransaction"),
    *("Assign", "Revoke", "Seek", "Poll", "EndOfPartition", "CommitOffsets"),
)
OF_REQUESTS = (
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn"),
    *("JoinGroup", "OffsetCommit"),
)
OF_CLUSTERS = (
    *("WriteTxnMarkers", "TimeOut", "ExpireSession", "LeaderChange", "Failover"),
    *("Crash", "Restart", "Freeze", "Resume", "Pause", "AdvanceClock"),
)
OF_TESTS = ("DeclareApplication", "DeclareTopic", "DeclareRecord")
INJECTED = "error"
"""The ``detail["fault"]`` of a request whose answer a test has made up: ``kafka_eos.server.faults.Fault.ERROR``."""
NOTE = "Note"
"""The action of an event of a user's own, which no rule reads."""
ACTIONS = (*OF_CLIENTS, *OF_REQUESTS, *OF_CLUSTERS, *OF_TESTS, NOTE)
VOCABULARY = {"action": ACTIONS, "phase": PHASES, "isolation": ("read_committed", "read_uncommitted")}
"""The columns that have one of a few words, and these words. What has another one would be read by no rule."""


def _finite(word: str) -> float:
    """A number with a point or an exponent; raises if no double holds it, since all those would be read as equal."""
    number = float(word)
    if isinf(number):
        raise ValueError(f"{word[:20]!r} is too large a number for a double")
    return number


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


MILLISECONDS = range(10**12, 10**13)
"""Times between 2001 and 2286 in milliseconds. In microseconds, they are of January to April 1970."""
DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)
"""Reads JSON, all of whose numbers are finite."""


class MalformedHistory(ValueError):  # noqa: N818 - named for the input, as MalformedBatch is
    """A line of a history that is no event; says file, line and reason."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}:{line}: {reason}")
        self.source = source
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a run. ``docs/histories.md`` says what each action needs, and what each rule reads.

    Attributes:
        run: the run's name; events of different runs are never compared.
        order: total order within the run, from 0; None where no order is known.
        time_us: microseconds since the epoch, on the clock of the process that wrote the event. Never an order.
        process: who did it (a client, a broker), unique within the run.
        action: one of :data:`ACTIONS`, by the spec's names (``Send``, ``Produce``, ``InitProducerId``, ``Crash`` …).
        phase: ``invoke`` when it begins, ``ok`` when it is known to have happened, ``fail`` when it is known not
            to have happened, ``info`` when its outcome is unknown.
        topic: topic name.
        partition: partition number.
        offset: base offset of the batch, in records.
        transactional_id: the producer's transactional.id.
        producer_id: 64-bit producer id, -1 for none.
        producer_epoch: 16-bit producer epoch, -1 for none.
        base_sequence: sequence of the batch's first record, -1 for none.
        record_count: records in the batch.
        group: consumer group.
        generation: the group's generation or member epoch.
        isolation: ``read_uncommitted`` or ``read_committed``.
        leader_epoch: leader epoch of the partition.
        coordinator_epoch: epoch of the transaction coordinator.
        error: Kafka's error code, 0 for none.
        detail: the small rest, e.g. ``{"value": "v17"}`` for the identity of the record that a client sent.
    """

    run: str
    order: int | None = None
    time_us: int | None = None
    process: str
    action: str
    phase: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    record_count: int | None = None
    group: str | None = None
    generation: int | None = None
    isolation: str | None = None
    leader_epoch: int | None = None
    coordinator_epoch: int | None = None
    error: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The event as a line of JSON, without absent values."""
        row = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps({k: v for k, v in row.items() if v is not None and v != {}}, separators=(",", ":"))


def _types() -> dict[str, type]:
    """The type of each column, without its ``| None``."""

    def plain(hint: Any) -> type:
        if isinstance(hint, UnionType):
            return next(t for t in get_args(hint) if t is not NoneType)  # type: ignore[no-any-return]
        return dict if hint == dict[str, Any] else hint

    return {name: plain(hint) for name, hint in get_type_hints(Event).items()}


COLUMN_TYPES: dict[str, type] = _types()
REQUIRED = ("run", "process", "action", "phase")


def event_from_json(line: str, source: str = "history", number: int = 1) -> Event:
    """Parse one line.

    Raises:
        MalformedHistory: when the line is not a JSON object with the columns of :class:`Event`.
    """
    try:
        row = DECODER.decode(line)
    except json.JSONDecodeError as error:  # its own line is that of the text, not of the file
        raise MalformedHistory(source, number, f"no JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits, too deep
        raise MalformedHistory(source, number, f"no JSON: {error}") from None
    if not isinstance(row, dict):
        raise MalformedHistory(source, number, f"expected a JSON object, found {type(row).__name__}")
    return event_from_row(row, source, number)


def event_from_row(row: Mapping[str, Any], source: str = "history", number: int = 1) -> Event:
    """An event from its columns; one that is absent or None has no value.

    Raises:
        MalformedHistory: when they are not the columns of :class:`Event`.
    """
    for name, value in row.items():
        wanted = COLUMN_TYPES.get(name)
        if type(value) is wanted:  # the usual one first: histories have many events
            continue
        if wanted is None:
            raise MalformedHistory(source, number, f"unknown column {name!r}; put it into 'detail'")
        if value is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
            raise MalformedHistory(source, number, f"column {name!r}: expected {wanted.__name__}, found {value!r}")
    missing = [name for name in REQUIRED if row.get(name) is None or (row[name] == "" and name not in VOCABULARY)]
    if missing:
        raise MalformedHistory(source, number, f"missing column(s) {', '.join(missing)}")
    reason = wrong_time(row.get("time_us") or 0) or wrong_detail(row.get("detail") or {})
    if reason:
        raise MalformedHistory(source, number, reason)
    for name, words in VOCABULARY.items():
        word = row.get(name)
        if word is not None and word not in words:
            raise MalformedHistory(source, number, _no_word(name, word, words))
    return Event(**{name: value for name, value in row.items() if value is not None})


def wrong_time(time_us: int) -> str:
    """Why a time is not in microseconds; "" if it may be."""
    if time_us not in MILLISECONDS:
        return ""
    return f"time_us {time_us} seems to be in milliseconds; in microseconds, it is {time_us * 1000}"


def wrong_detail(detail: Mapping[str, Any]) -> str:
    """Why a field of a detail that rules read is of a type that they do not read; "" if all are."""
    number, origin, offsets = (detail.get(name) for name in ("transaction", "input", "offsets"))
    if number is not None and type(number) is not int:
        return f"detail.transaction: expected int, found {number!r:.60}"
    if origin is not None and not (isinstance(origin, list) and [*map(type, origin)] == [str, int, int]):
        return f"detail.input: expected [topic, partition, offset], found {origin!r:.60}"
    if offsets is not None and not (isinstance(offsets, dict) and all(map(_is_offset, offsets.items()))):
        return f'detail.offsets: expected {{"partition": offset}}, found {offsets!r:.60}'
    return ""


def _is_offset(item: tuple[str, Any]) -> bool:
    partition, offset = item
    return partition.isdecimal() and type(offset) is int


def _no_word(column: str, word: str, words: Sequence[str]) -> str:
    """Why a word of a column is refused, and what to write instead."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a history that is refused needs it

    by_letters = {known.replace("_", "").lower(): known for known in words}
    near = get_close_matches(word.replace("_", "").lower(), by_letters, n=1)
    known = f"is unknown; did you mean {by_letters[near[0]]}?" if near else f"is none of {', '.join(words)}"
    kept = f"; an event that no rule has to read is left out, or has the action {NOTE}" if column == "action" else ""
    return f"{column} {word[:40]!r} {known}{kept}"


def read_history(path: Path) -> Iterator[Event]:
    """Read a JSON Lines history, skipping blank lines.

    Raises:
        MalformedHistory: at the first line that is no event.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield event_from_json(line, str(path), number)


def write_history(path: Path, events: Iterable[Event]) -> int:
    """Write a JSON Lines history; returns the number of events."""
    count = 0
    with path.open("w", encoding="utf-8") as out:
        for event in events:
            out.write(event.to_json() + "\n")
            count += 1
    return count
