"""A watcher's gauges as a text file, for the textfile collector of Prometheus' node exporter.

The file is written next to its place and renamed, so that no reader sees a part of it.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka_eos_checks.audit.rules.transactions.names import HANGING
from kafka_eos_checks.watch.blindness import NO_BROKER, NO_COORDINATOR, NOT_READ
from kafka_eos_checks.watch.prepared import STAYS
from kafka_eos_checks.watch.state import LAGS
from kafka_eos_checks.watch.watcher import Watcher

PREFIX = "kafka_eos_watch_"


def write(path: Path, watcher: Watcher, reports: int) -> None:
    """Replace the file.

    Args:
        path: the file; the collector reads those that end in ``.prom``.
        watcher: the watcher, as it is now.
        reports: the number of reports since it began.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text("".join(f"{line}\n" for line in _lines(watcher, reports)), encoding="utf-8")
    new.replace(path)


def _lines(watcher: Watcher, reports: int) -> Iterator[str]:
    opened = Counter(watcher.open_reports.values())
    blind = Counter(spot.rule for spot in watcher.blindness.since_ms)
    states = [state for state in watcher.watched.values() if state.high_watermark >= 0]
    held: Counter[str] = Counter()
    for state in states:
        held[state.topic] += max(state.high_watermark - state.last_stable_offset, 0)
    yield from _metric("reports_total", "Reports of something wrong since the start.", {"": reports}, "counter")
    by_rule = {_label("rule", rule): opened[rule] for rule in (HANGING, LAGS, STAYS)}
    yield from _metric("open_reports", "Reports of transactions that are not over.", by_rule)
    by_rule = {_label("rule", rule): blind[rule] for rule in (NO_BROKER, NOT_READ, NO_COORDINATOR)}
    yield from _metric("not_seen", "Partitions, or other things, that cannot be seen now.", by_rule)
    words = "When a broker gave data last, or said that there were none."
    yield from _metric("last_read_timestamp_seconds", words, {"": watcher.heard_ms // 1000})
    yield from _metric("partitions", "Partitions that are watched.", {"": len(watcher.watched)})
    behind = sum(max(state.high_watermark - state.position, 0) for state in states)
    yield from _metric("unread_offsets", "Offsets that the watcher has still to read.", {"": behind})
    by_topic = {_label("topic", topic): held[topic] for topic in sorted(held)}
    yield from _metric("held_back_offsets", "Offsets that readers of committed data cannot see yet.", by_topic)


def _label(name: str, value: str) -> str:
    return f'{{{name}="{value}"}}'  # neither topics nor rules have characters that would be escaped


def _metric(name: str, words: str, values: Mapping[str, int], kind: str = "gauge") -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {words}"
    yield f"# TYPE {PREFIX}{name} {kind}"
    yield from (f"{PREFIX}{name}{label} {value}" for label, value in values.items())
