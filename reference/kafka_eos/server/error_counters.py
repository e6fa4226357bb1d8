"""The number of a broker's answers per error code, as ``RequestMetrics.markErrorMeter`` of Kafka counts them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_eos.errors import ErrorCode


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
