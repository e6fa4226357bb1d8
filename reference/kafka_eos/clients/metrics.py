"""Error statistics of clients and brokers: rates as Kafka's metrics measure them, and error counters by code.

Time is an argument, in milliseconds; nothing happens by itself.

Kafka: org.apache.kafka.common.metrics.stats.Rate, SampledStat; Sender.SenderMetrics; RequestMetrics.markErrorMeter
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_eos.errors import ErrorCode

WINDOW_MS = 30_000
"""``metrics.sample.window.ms``"""
SAMPLES = 2
"""``metrics.num.samples``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The events of one window.

    Attributes:
        start_ms: when it began.
        last_ms: when something happened last.
        value: the sum.
    """

    start_ms: int
    last_ms: int
    value: float = 0.0


def _empty(now_ms: int) -> Sample:
    return Sample(start_ms=now_ms, last_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A sum per second over the last windows, the present one included.

    The sum is divided by at least all windows except one, so that a first burst is no peak. Measuring forgets what is
    too old, so it also returns the rate that goes on from there.

    Attributes:
        samples: the windows, one more than are looked at.
        current: the place of the window that is being filled.
    """

    samples: tuple[Sample, ...] = ()
    current: int = 0

    def recorded(self, value: float, now_ms: int) -> "Rate":
        """The rate after something happened.    Kafka: SampledStat.record, advance."""
        samples = list(self.samples) or [_empty(now_ms)]
        current = self.current
        if now_ms - samples[current].start_ms >= WINDOW_MS:
            current = (current + 1) % (SAMPLES + 1)
            samples[current : current + 1] = [_empty(now_ms)]
        samples[current] = replace(samples[current], value=samples[current].value + value, last_ms=now_ms)
        return Rate(samples=tuple(samples), current=current)

    def measured(self, now_ms: int) -> tuple[float, "Rate"]:
        """The rate per second, and what it goes on from.    Kafka: Rate.measure, windowSize."""
        kept = tuple(s if now_ms - s.last_ms < SAMPLES * WINDOW_MS else _empty(now_ms) for s in self.samples)
        kept = kept or (_empty(now_ms),)
        elapsed = now_ms - min(sample.start_ms for sample in kept)
        elapsed += max(SAMPLES - 1 - elapsed // WINDOW_MS, 0) * WINDOW_MS
        return sum(sample.value for sample in kept) / (max(elapsed, 1) / 1000), replace(self, samples=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """A total and its rate: ``record-error-total`` and ``record-error-rate``.    Kafka: Meter."""

    total: int = 0
    rate: Rate = Rate()

    def recorded(self, count: int, now_ms: int) -> "Meter":
        """The meter after ``count`` more."""
        return Meter(total=self.total + count, rate=self.rate.recorded(count, now_ms)) if count else self

    def per_second(self, now_ms: int) -> float:
        """The rate."""
        return self.rate.measured(now_ms)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderMetrics:
    """A producer's metrics, in records.    Kafka: Sender.SenderMetrics.

    Attributes:
        sent: ``record-send-rate``; a record that is sent again counts again.
        retried: ``record-retry-rate``.
        failed: ``record-error-rate``: records whose ``send()`` or future fails.
    """

    sent: Meter = Meter()
    retried: Meter = Meter()
    failed: Meter = Meter()

    def names(self, now_ms: int) -> dict[str, float]:
        """The metrics by Kafka's names."""
        meters = {"record-send": self.sent, "record-retry": self.retried, "record-error": self.failed}
        totals = {f"{name}-total": float(meter.total) for name, meter in meters.items()}
        return totals | {f"{name}-rate": meter.per_second(now_ms) for name, meter in meters.items()}


@dataclass(slots=True)
class ErrorCounters:
    """The number of a broker's answers per error code: ``kafka.network:type=RequestMetrics,name=ErrorsPerSec``.

    An answer about several partitions counts once for each of them, as in Kafka. Success is not counted.

    Attributes:
        counted: (API, error code) -> times.
    """

    counted: Counter[tuple[str, int]] = field(default_factory=Counter)

    def count(self, api: str, answer: Mapping[str, Any]) -> None:
        """Count what an answer says.    Kafka: AbstractResponse.errorCounts."""
        for code in _error_codes(answer):
            self.counted[api, code] += 1

    def lines(self) -> list[str]:
        """The counters in words, the most frequent first."""
        ranked = sorted(self.counted.items(), key=lambda item: (-item[1], item[0]))
        return [f"{api} {_name(code)}: {times:,}" for (api, code), times in ranked]


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in {"ErrorCode", "PartitionErrorCode"}:  # the latter in AddPartitionsToTxn
                if inner:
                    yield inner
            elif isinstance(inner, list | Mapping):
                yield from _error_codes(inner)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, Mapping):
                yield from _error_codes(inner)


def _name(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
