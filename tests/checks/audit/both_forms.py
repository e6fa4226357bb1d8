"""Histories judged in both forms: by the readable rules only, and by the plan that users run."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path

from kafka_eos.histories.history import Event, write_history
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT, Moments
from kafka_eos_checks.audit.oracle import readable_histories
from kafka_eos_checks.audit.plan.history_plan import judge_histories
from kafka_eos_checks.audit.rules.histories import Join
from kafka_eos_checks.audit.segments.splits import PartitionLog


def join(events: Iterable[Event], logs: Sequence[PartitionLog], moments: Moments = AT_ONE_MOMENT) -> Join:
    """The result of the readable rules; raises unless the plan gives the same, with one bucket and with several."""
    told = list(events)
    expected = readable_histories.join(told, logs, moments)
    with tempfile.TemporaryDirectory(prefix="kafka-eos-") as folder:
        path = Path(folder) / "history.jsonl"
        write_history(path, told)
        for buckets in (1, 3):
            engine = LocalEngine()
            engine.buckets = buckets
            count, found = judge_histories([path], logs, moments, engine)
            assert count == len(told)
            assert Counter(map(astuple, found.findings)) == Counter(map(astuple, expected.findings))
            assert found.figures == expected.figures
    return expected
