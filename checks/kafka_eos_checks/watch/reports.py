"""A watcher's reports: a finding together with the facts that an operator needs to act on it.

A report says since when, which offsets readers of committed data cannot see, which producer causes it, whether it ends
by itself, and what to do. Later reports may say that an earlier one is over (``resolved``).
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.drawing.svg import visible

RESOLVED = "resolved"
Row = dict[str, Any]


class Clock(StrEnum):
    """The clock that gave the time at which something began."""

    COORDINATOR = "coordinator"  # the start of the transaction, as its coordinator has it
    BROKER = "broker"  # the time of the append, or of a marker
    PRODUCER = "producer"  # the time stamp that the client gave its record; may be the time of an earlier event
    WATCHER = "watcher"  # nobody else tells, so it is when the watcher saw it first


class Ends(StrEnum):
    """Whether the reported problem ends by itself."""

    BY_ITSELF = "by itself"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """The time at which something began: in milliseconds since the epoch, by a clock."""

    ms: int
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Offsets of a partition that readers of committed data cannot see.

    Attributes:
        topic: topic name.
        partition: its number.
        first: the first of them.
        end: one past the last of them; the high watermark.
    """

    topic: str
    partition: int
    first: int
    end: int

    @property
    def offsets(self) -> int:
        """The number of offsets."""
        return self.end - self.first

    def in_words(self) -> str:
        """The number of offsets and their range, in words."""
        what = "1 offset" if self.offsets == 1 else f"{self.offsets:,} offsets"
        return f"{what} of {self.topic}-{self.partition} ({self.first} to {self.end - 1})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Finding):
    """A finding of a watcher.

    Attributes:
        since: when it began; None for an end of something.
        transactional_id: the producer's; "" where no coordinator tells one.
        state: its transaction's state at the coordinator; "" where none tells one.
        decision: ``committed`` or ``aborted``: by the coordinator, or by the marker if over or torn; "" if unknown.
        blocked: the offsets that readers of committed data cannot see because of it.
        ends: whether it ends by itself.
        ends_ms: when it ends by itself, in milliseconds since the epoch; None for not known.
        next: what to do, in words.
        command: what to do, as a line for a shell; "" for nothing.
        resolves: the id of the report that is over; "" for a report of something that is wrong.
        end: of offsets that were deleted before they were read: one past the last one; None for any other report.
        follows: the id of the first report of the same transaction; "" for the first one, and for no transaction.
    """

    since: Since | None = None
    transactional_id: str = ""
    state: str = ""
    decision: str = ""
    blocked: tuple[Blocked, ...] = ()
    ends: Ends = Ends.NEVER
    ends_ms: int | None = None
    next: str = ""
    command: str = ""
    resolves: str = ""
    follows: str = ""
    end: int | None = None


class OfTransaction(NamedTuple):
    """The transaction that a report is about: where it begins, and whose it is."""

    offset: int
    producer_id: int
    epoch: int


def transaction_of(report: Report) -> OfTransaction:
    """The transaction that a report is about."""
    assert report.offset is not None, "it has a first offset"
    assert report.producer_id is not None, "it has a producer"
    assert report.producer_epoch is not None, "its producer has an epoch"
    return OfTransaction(report.offset, report.producer_id, report.producer_epoch)


def identity(finding: Finding) -> str:
    """The name of a report: the same violation has the same name, whoever finds it.

    What is not judged, or has no offset, has its beginning in the name, because it may end and begin again at the same
    place.
    """
    who = "" if finding.producer_id is None else f"/producer {finding.producer_id} epoch {finding.producer_epoch}"
    if isinstance(finding, Report) and (finding.offset is None or not finding.is_violation):
        where = f"/{finding.topic}" * bool(finding.topic) + f"-{finding.partition}" * (finding.partition >= 0)
        return f"{finding.rule}{where}/{finding.since.ms if finding.since else 0}{who}"
    return f"{finding.rule}/{finding.topic}-{finding.partition}/{finding.offset}{who}"


def report_row(number: int, seen_ms: int, report: Report) -> Row:
    """A report as it is written: its number and name, when it was seen, and what it says; no empty values."""
    said = asdict(report)
    if report.is_violation:
        del said["kind"]
    if report.partition < 0:
        del said["partition"]
    since: Mapping[str, Any] = said.pop("since") or {}
    said |= {"since_ms": since.get("ms"), "since_clock": since.get("clock")}
    said["blocked"] = [{**asdict(each), "offsets": each.offsets} for each in report.blocked]
    name = f"{RESOLVED}/{report.resolves}" if report.resolves else identity(report)
    if report.resolves:
        del said["ends"]
    return {"number": number, "id": name, "seen_ms": seen_ms} | {
        key: value for key, value in said.items() if value is not None and value not in ("", [])
    }


def line_of(row: Row) -> str:
    """A row as a line of JSON."""
    return json.dumps(row, separators=(",", ":"))


# --- for people ------------------------------------------------------------------------------------------------------


def moment(ms: int) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def duration(ms: int) -> str:
    """A length of time in its two largest units: ``3 d 4 h``, ``1 min 5 s``, ``7 s``."""
    seconds = max(ms, 0) // 1000
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    largest = next((place for place, (_, size) in enumerate(units) if seconds >= size), len(units) - 1)
    parts: list[str] = []
    for name, size in units[largest : largest + 2]:
        count, seconds = divmod(seconds, size)
        parts += [f"{count} {name}"] if count or not parts else []
    return " ".join(parts)


def lines_of(row: Row) -> Iterator[str]:
    """A row for people: when, what, where, who and why in the first line, then an indented line for each question."""
    producer = row.get("producer_id")
    who = "" if producer is None else f" (producer {producer} epoch {row.get('producer_epoch')})"
    where = row["topic"] + (f"-{row['partition']}" if "partition" in row else "")
    where += f" offset {row['offset']}" if "offset" in row else ""
    yield visible(f"{moment(row['seen_ms'])} {row['rule']}: {where}{who}: {row['evidence']}")
    answers = {
        "since": _since(row),
        "blocked": "" if "resolves" in row else _blocked(row),
        "who": _who(row),
        "part of": "" if "resolves" in row else row.get("follows", ""),
        "ends": _ends(row),
        "next": row.get("next", ""),
    }
    for question, answer in answers.items():
        if answer:
            yield visible(f"  {question + ':':<9}{answer}")
    if "command" in row:
        yield f"  {row['command']}"


def _since(row: Row) -> str:
    if "since_ms" not in row:
        return ""
    whose = {
        Clock.COORDINATOR: ", when its coordinator began the transaction",
        Clock.BROKER: "",
        Clock.PRODUCER: ", as its producer's clock has it",
        Clock.WATCHER: ", when it was read; it may be older",
    }
    age = duration(row["seen_ms"] - row["since_ms"])
    return f"{moment(row['since_ms'])} ({age}){whose[Clock(row['since_clock'])]}"


def _blocked(row: Row) -> str:
    columns = ("topic", "partition", "first", "end")
    held = [Blocked(**{name: each[name] for name in columns}) for each in row.get("blocked", [])]
    if not held:
        return "nothing"
    words = ", ".join(each.in_words() for each in held)
    return f"{words}: readers of committed data do not see them"


def _who(row: Row) -> str:
    if "transactional_id" not in row:
        return ""
    return f"transactional id {row['transactional_id']!r}" + (f", {row['state']}" if "state" in row else "")


def _ends(row: Row) -> str:
    if "ends" not in row:
        return ""
    if row["ends"] != Ends.BY_ITSELF:
        return f"{row['ends']}" + (", as far as can be told" if row["ends"] == Ends.UNKNOWN else "")
    if "ends_ms" not in row:
        return "by itself, as soon as its markers are written"
    left = row["ends_ms"] - row["seen_ms"]
    when = f"in {duration(left)}" if left > 0 else "as soon as the coordinator looks, every 10 s by default"
    return f"by itself, {when}: the transaction times out at {moment(row['ends_ms'])}"


def shell_word(text: str) -> str:
    r"""Text as one word of a shell; what cannot be printed is written as bash does it (``$'\x1b'``)."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(
        character if character.isprintable() and character not in "'\\" else _escape(character) for character in text
    )
    return f"$'{escaped}'"


def _escape(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
