"""The three kinds of error, which are never mixed.

``Rejected``        the protocol says no; the state is unchanged
``MalformedBatch``  bytes that are no record batch; the codec only
``assert``          the reference contradicts itself
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Kafka's error codes, as far as this project meets them.

    Kafka: org.apache.kafka.common.protocol.Errors
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    TRANSACTION_ABORTABLE = 120


class Rejected(Exception):  # noqa: N818 - the protocol's word; nothing went wrong in the program
    """The protocol refuses a request, or an action is not enabled; the state is unchanged."""

    def __init__(self, code: ErrorCode, why: str = "") -> None:
        super().__init__(f"{code.name}: {why}" if why else code.name)
        self.code = code
        self.why = why


class MalformedBatch(ValueError):  # noqa: N818 - named for the bytes, not for the program
    """Bytes that are no record batch.

    Attributes:
        position: where in the given buffer the first impossible byte stands, in bytes.
        reason: what is impossible about it.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class NotEnabled(Exception):  # noqa: N818 - TLA+'s word for an action whose guard is false
    """An action of the spec whose enabling condition is false in this state; the state is unchanged."""


def require(code: ErrorCode, why: str = "") -> None:
    """Raise :class:`Rejected` unless ``code`` is ``NONE``."""
    if code is not ErrorCode.NONE:
        raise Rejected(code, why)


def enabled(condition: bool, why: str = "") -> None:
    """Raise :class:`NotEnabled` unless the enabling condition holds."""
    if not condition:
        raise NotEnabled(why)
