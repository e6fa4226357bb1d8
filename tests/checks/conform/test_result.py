"""The order in which results are shown."""

from types import SimpleNamespace
from typing import Any

from kafka_eos_checks.conform.result import Report
from kafka_eos_checks.conform.run import Found


def test_what_diverges_is_shown_before_what_is_unknown_or_not_supported_and_short_scenarios_first() -> None:
    every = [SimpleNamespace(found=found, scenario=[0] * length) for length in (2, 1) for found in Found]
    report: Any = SimpleNamespace(results=dict(enumerate(every)))
    assert [(one.found, len(one.scenario)) for one in Report.differing(report)] == [
        (found, length) for found in (Found.DIVERGES, Found.UNKNOWN, Found.UNSUPPORTED) for length in (1, 2)
    ]
