"""The number of a broker's answers per error code, as ``RequestMetrics.markErrorMeter`` of Kafka counts them."""

from collections import Counter
from dataclasses import dataclass, field

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import Message

_ERROR_CODES = {"ErrorCode", "PartitionErrorCode"}  # the latter in AddPartitionsToTxn


@dataclass(slots=True)
class ErrorCounters:
    """The number of a broker's answers per error code: ``kafka.network:type=RequestMetrics,name=ErrorsPerSec``.

    An answer about several partitions counts once for each of them, as in Kafka. Success is not counted.

    Attributes:
        counted: (API, error code) -> times.
    """

    counted: Counter[tuple[str, int]] = field(default_factory=Counter)

    def count(self, api: str, answer: Message) -> None:
        """Count what an answer says.    Kafka: AbstractResponse.errorCounts."""
        for name, value in answer.items():
            if isinstance(value, dict):
                self.count(api, value)
            elif isinstance(value, list):
                for element in value:
                    if isinstance(element, dict):
                        self.count(api, element)
            elif value and name in _ERROR_CODES:
                self.counted[api, value] += 1

    def lines(self) -> list[str]:
        """The counters in words, the most frequent first."""
        ranked = sorted(self.counted.items(), key=lambda item: (-item[1], item[0]))
        return [f"{api} {_name(code)}: {times:,}" for (api, code), times in ranked]


def _name(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
