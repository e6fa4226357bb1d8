"""Judge histories by the readable rules only: the oracle of the plan, with all events in memory."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from typing import Any

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.events.recorded import DECLARATIONS
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.coordinators.group_log import read_group_log
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT, SKEW_MS, Moments
from kafka_eos_checks.audit.places import Ask, ask_here
from kafka_eos_checks.audit.rules.applications import FENCED_GENERATION, judge_generations, judge_inputs
from kafka_eos_checks.audit.rules.declared import check
from kafka_eos_checks.audit.rules.histories import (
    DUPLICATE_VALUE,
    HISTORY_RULES,
    LOST,
    REFUSED,
    UNASKED,
    Join,
    duplicate_values,
    lost,
    refused,
    unasked,
)
from kafka_eos_checks.audit.rules.readers import (
    ABORTED_DELIVERED,
    COMMITTED_MISSING,
    INCONSISTENT,
    NON_MONOTONIC,
    POLL_SKIP,
    PRECOMMITTED,
    STABLE_WENT_BACK,
    delivered,
    inconsistent,
    polled,
    precommitted,
    undone,
    went_back,
)
from kafka_eos_checks.audit.rules.sent_offsets import NOT_AS_SENT, not_as_sent
from kafka_eos_checks.audit.rules.timeouts import Deadlines
from kafka_eos_checks.audit.rules.transactions.judge import longest
from kafka_eos_checks.audit.segments.contents import Contents, Figures, Place, read_contents
from kafka_eos_checks.audit.segments.splits import PartitionLog


def join(
    events: Iterable[Event],
    logs: Sequence[PartitionLog],
    moments: Moments = AT_ONE_MOMENT,
    *,
    check_crc: bool = True,
    ask: Ask[PartitionLog, Any] = ask_here,
) -> Join:
    """Judge histories by the logs of the brokers they were recorded with.

    Args:
        events: the events of one or several runs. A run is sorted by ``order``, unless an event has none.
        logs: replicas of partitions; those whose topic is in no event are not read.
        moments: the moments of the logs; if a log may be older than a history, its end proves nothing.
        check_crc: whether to compare each batch with its CRC.
        ask: applies a function to each log, here or in tasks.

    Raises:
        WrongQuestion: nothing fits an application that is declared.
    """
    by_run: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_run[event.run].append(event)
    topics = {event.topic for run in by_run.values() for event in run}
    replicas: dict[Place, list[tuple[PartitionLog, Contents]]] = defaultdict(list)
    told = [log for log in logs if log.topic in topics]
    for log, contents in zip(told, ask(partial(read_contents, check_crc=check_crc), told), strict=True):
        contents.deleted_below = moments.source.deleted_below(log)
        replicas[log.topic, log.partition].append((log, contents))
    offsets = [log for log in logs if log.topic == OFFSETS_TOPIC]
    groups = longest(ask(partial(read_group_log, check_crc=check_crc), offsets))
    ends = [(log, contents.end, contents.stamped_ms) for own in replicas.values() for log, contents in own]
    ends += [(group.log, group.end, group.stamped_ms) for group in groups]
    reach = min((moments.reach_of(*end) for end in ends), default=inf)
    findings: list[Finding] = []
    result = Join(findings, {rule: _figures() for rule in HISTORY_RULES})
    refusals = any(event.phase == "fail" for run in by_run.values() for event in run)
    deadlines = Deadlines.read(logs) if refusals else Deadlines()
    for run in by_run.values():
        covered = _last_ms(run) + SKEW_MS <= reach
        if all(event.order is not None for event in run):
            run.sort(key=lambda event: event.order or 0)
        findings += lost(run, replicas, result.figures[LOST], covered=covered)
        findings += duplicate_values(run, replicas, result.figures[DUPLICATE_VALUE])
        findings += refused(run, replicas, result.figures[REFUSED], deadlines)
        findings += unasked(run, replicas, result.figures[UNASKED])
        findings += undone(run, replicas, result.figures[COMMITTED_MISSING], covered=covered)
        findings += delivered(run, replicas, result.figures[ABORTED_DELIVERED], covered=covered)
        findings += precommitted(run, replicas, result.figures[PRECOMMITTED])
        findings += polled(run, replicas, result.figures[POLL_SKIP], result.figures[NON_MONOTONIC])
        findings += inconsistent(run, replicas, result.figures[INCONSISTENT], covered=covered)
        findings += went_back(run, result.figures[STABLE_WENT_BACK])
        lonely = all(event.action in DECLARATIONS for event in run)
        if any(event.action in DECLARATIONS for event in run):
            check(run, replicas, groups, by_run.keys() - {run[0].run} if lonely else ())
        findings += judge_inputs(run, replicas, groups, result.figures, covered=covered)
        findings += judge_generations(run, result.figures[FENCED_GENERATION])
        findings += not_as_sent(run, groups, result.figures[NOT_AS_SENT], covered=covered)
    return result


def _figures() -> Figures:
    return {"checked": 0, "unknown": 0}


def _last_ms(run: Iterable[Event]) -> float:
    """The time of the last event of a run, in milliseconds since the epoch; ``inf`` if an event has no time."""
    return max((inf if event.time_us is None else event.time_us / 1000 for event in run), default=-inf)
