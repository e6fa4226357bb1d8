"""Recorded histories as traces of PartitionLog: what a leader answered to idempotent producers must be the spec's.

A trace is of one partition in one run, because the order of events is of a run. A damaged run costs its own traces
only: each is a :class:`NotJudged` with the file, the run, the event and what to do.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_eos.histories.history import Event
from kafka_eos_checks.kit.verdict import Verdict, counted, first_of
from kafka_eos_checks.lab.record.trace import DAMAGED, INCOMPLETE, NO_WIRE_EVENTS, NoTrace, wire_trace
from kafka_eos_checks.traces.validation import Trace, TraceUnusable, partition_log_trace

OTHER_BATCHES, MISSING_PARTITION, NOTHING = "other-batches", "missing-partition", "nothing-to-replay"
CUT_LOG, MADE_AGAIN, OTHER_MOMENT = "cut-log", "made-again", "other-moment"
WORDS = {
    OTHER_BATCHES: (
        "partition",
        "with batches of a transaction, or of a producer without idempotence; a replay judges transactions by the logs",
    ),
    DAMAGED: ("partition", "of a damaged history"),
    INCOMPLETE: ("partition", "of a history that lacks requests, or whose leader left offsets out"),
    NO_WIRE_EVENTS: ("partition", "of a history without wire events"),
    MISSING_PARTITION: ("transactional id", "with partitions whose logs are not given"),
    CUT_LOG: ("log", "that compaction or retention has cut; what lies before the place from which on it is whole"),
    MADE_AGAIN: ("transactional id", "judged without what came before a topic was made again"),
    OTHER_MOMENT: (
        "transactional id",
        "judged up to the end of the older log, because the logs are of different moments",
    ),
    NOTHING: ("path", "with nothing to replay"),
}
"""The reasons why a trace is not judged, by their codes: what it is of, and what is wrong."""

NOTHING_TO_REPLAY = (
    "nothing to replay; give a directory with transactions, "
    "or a history with idempotent batches outside of transactions"
)
NAMELESS = "no topic or no partition"
SHOWN = 20  # partitions in a verdict's evidence

Read = tuple[str, Event]  # the name of a file, and an event in it


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A partition of a history that gives no trace, or a transactional id of which markers are not known.

    Attributes:
        name: as that of its trace would be.
        code: one of :data:`WORDS`.
        reason: the place, the reason and what to do.
    """

    name: str
    code: str
    reason: str


def without(transactional_id: str, absent: Sequence[str]) -> NotJudged:
    """A transactional id whose transactions have partitions that are not there."""
    words = f"no log of {first_of(absent, SHOWN)}: the markers there are taken for written"
    return NotJudged(transactional_id, MISSING_PARTITION, f"{words}; give the log directories of every broker")


def not_to_the_end(transactional_id: str, ragged: Sequence[str]) -> NotJudged:
    """A transactional id that is accepted only up to the end of the older ones of its logs."""
    partitions = first_of(ragged, 3) if ragged else "its partitions"
    words = f"its records and the logs of {partitions} are of different moments: not judged to the end"
    return NotJudged(transactional_id, OTHER_MOMENT, f"{words}; if the brokers stood still, say --snapshot")


def made_again(transactional_id: str, partitions: Sequence[str]) -> NotJudged:
    """A transactional id that is accepted only without the markers from before some partitions were made again."""
    words = (
        f"{first_of(partitions, 3)}: its log begins after transactions with it were complete, as that of a topic does"
    )
    words += " that was deleted and made again: their markers there are taken for written"
    return NotJudged(transactional_id, MADE_AGAIN, words)


def client_traces(written: Iterable[Read], restarts: Iterable[Read]) -> Iterator[Trace | NotJudged]:
    """The traces of one partition, one for each run; none where no request was answered.

    Args:
        written: the events of action Produce for the partition, or those that name none (:data:`NAMELESS`).
        restarts: the events of action Restart.
    """
    runs: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for file, event in written:
        runs[file, event.run].append(event)
    restarted: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for file, event in restarts:
        restarted[file, event.run].append(event)
    for (file, run), events in sorted(runs.items()):
        name = log_name(events[0])
        if len(runs) > 1:
            name = f"{name} of run {run} in {file}"
        found = _trace(name, file, events, restarted[file, run])
        if isinstance(found, NotJudged) or found.steps:
            yield found


def log_name(event: Event) -> str:
    """The name of an event's partition, :data:`NAMELESS` if it names none."""
    return NAMELESS if event.topic is None or event.partition is None else f"{event.topic}-{event.partition}"


def _trace(name: str, file: str, events: list[Event], restarts: list[Event]) -> Trace | NotJudged:
    if any(event.transactional_id is not None or event.producer_id == -1 for event in events):
        reason = "it has a batch of a transaction, or of a producer without idempotence: left out"
        return NotJudged(name, OTHER_BATCHES, reason)
    together = sorted((*events, *restarts), key=lambda event: -1 if event.order is None else event.order)
    topic, partition = events[0].topic, events[0].partition
    if topic is None or partition is None:
        return NotJudged(name, DAMAGED, f"{file}: {counted(len(events), 'event')} of action Produce; record again")
    try:
        return partition_log_trace(name, wire_trace(together, topic, partition))
    except NoTrace as error:
        return NotJudged(name, error.code, f"{file}: {error}")


def with_left_out(verdict: Verdict, left_out: Sequence[NotJudged]) -> Verdict:
    """The verdict on traces that also says what was left out, and why."""
    codes = Counter(each.code for each in left_out)
    told = [f"{each.name}: {each.reason}" for each in left_out if each.code != OTHER_BATCHES]
    shown = [*told[:SHOWN], *([f"… and {len(told) - SHOWN} more"] if len(told) > SHOWN else [])]
    others = [each.name for each in left_out if each.code == OTHER_BATCHES]
    if others:
        shown.append(f"left out: {first_of(others, SHOWN)}")
    return replace(
        verdict,
        evidence="\n".join(filter(None, (verdict.evidence, *shown))),
        unjudged="; ".join(
            f"{counted(codes[code], subject)} {words}" for code, (subject, words) in WORDS.items() if code in codes
        ),
        unknown=len(left_out),
        unjudged_for=dict(sorted(codes.items())),
    )


def verdict_on_logs(name: str, begins: Mapping[str, int], unreadable: int = 0, evidence: str = "") -> Verdict:
    """The verdict on the logs of a path: whether all can be read, and which of them lack what came first.

    Args:
        name: the name of the path.
        begins: log -> the offset from which on it lacks nothing, for logs that lack something.
        unreadable: the number of logs that cannot be read.
        evidence: why they cannot be read.
    """
    later = [f"{log} at offset {begin:,}" for log, begin in sorted(begins.items())]
    found = f"{unreadable} not whole, although traces may depend on them" if unreadable else "all readable"
    if later:
        found += f"; judged from where {'it lacks' if len(later) == 1 else 'they lack'} nothing: {first_of(later, 3)}"
    verdict = Verdict(
        check="trace",
        name=f"logs of {name}",
        expected="all readable",
        found=found,
        ok=not unreadable,
        figures={"begin_later": len(later)},
        evidence=evidence,
    )
    cut = [NotJudged(log, CUT_LOG, f"judged from offset {begin:,} on") for log, begin in sorted(begins.items())]
    return with_left_out(verdict, cut)


def of_paths(found: Iterable[tuple[Path, Sequence[Verdict]]]) -> list[Verdict]:
    """The verdicts on all given paths; one that has nothing to replay is told.

    Raises:
        TraceUnusable: none of them has anything to replay.
    """
    verdicts: list[Verdict] = []
    empty: list[Path] = []
    for path, own in found:
        verdicts += own
        if all(map(_has_nothing, own)):
            empty.append(path)
            if not any({OTHER_BATCHES, NOTHING} & {*verdict.unjudged_for} for verdict in own):
                told = Verdict(check="trace", name=path.name, expected="all accepted", found="no traces", ok=True)
                verdicts.append(with_left_out(told, [NotJudged(path.name, NOTHING, NOTHING_TO_REPLAY)]))
    if empty and all(map(_has_nothing, verdicts)):
        raise TraceUnusable(f"{', '.join(map(str, empty))}: {NOTHING_TO_REPLAY}")
    return verdicts


def _has_nothing(verdict: Verdict) -> bool:
    """Whether a verdict is on no trace: on logs that can be read, or on what is no subject of a replay of histories."""
    of_none = {*verdict.unjudged_for} in ({OTHER_BATCHES}, {NOTHING}, {CUT_LOG})
    return verdict.ok and of_none and not verdict.figures.get("traces")
