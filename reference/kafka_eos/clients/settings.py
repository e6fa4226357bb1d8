"""The settings of clients: which of them Kafka's own clients refuse, and the producer with those that remain.

Settings are what a properties file has: names and words. Each client has its own defaults and ranges, and rules about
settings that exclude each other; a rule names its settings and where it is in the client's source. The reference's
producer is the Java client's: :func:`producer_settings` gives its settings as a value, with those that idempotence
decides.

The two clients differ where they are said to do the same. librdkafka accepts and Java refuses: a delivery timeout
below linger and request timeout together; six requests in flight, because librdkafka's producer is not idempotent by
default; an acks above 1; an empty transactional id, which is none; a heartbeat that is not below the session timeout.
Java accepts and librdkafka refuses: a transaction that ends before its records are given up; a transaction timeout
below a second; a request timeout of 0; a batch size of 0; a linger that is not shorter than the default delivery
timeout; a session that is longer than the time between two polls; a consumer without a group; and two settings that
librdkafka does not have, ``buffer.memory`` and ``max.block.ms``.

Kafka:      org.apache.kafka.clients.producer.ProducerConfig, KafkaProducer, clients.consumer.ConsumerConfig 4.3.0
librdkafka: rdkafka_conf.c 2.16.0
KIP:        KIP-91 (delivery.timeout.ms), KIP-98 (transactions), KIP-679 (idempotence by default), KIP-848
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.varint import INT32_MAX, INT32_MIN, INT64_MAX

Given: TypeAlias = Mapping[str, str]
"""Settings by name, as words."""

NOT_GIVEN = ""
MAX_IN_FLIGHT_WITH_IDEMPOTENCE = 5


class RefusedSettings(ValueError):  # noqa: N818 - named for the input
    """Settings that a client refuses.

    Attributes:
        settings: the names that the refusal is about.
        why: the reason in words.
        source: where the client's source has the rule.
    """

    def __init__(self, settings: tuple[str, ...], why: str, source: str) -> None:
        super().__init__(f"{', '.join(settings)}: {why} ({source})")
        self.settings = settings
        self.why = why
        self.source = source


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number: its default, the smallest and largest that the client accepts, and a word that it accepts too."""

    default: int | str
    low: int
    high: int
    word: str = NOT_GIVEN


@dataclass(frozen=True, slots=True)
class Word:
    """A setting whose value is one of some words: the default, and the words."""

    default: str
    words: frozenset[str]
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Any text, not given by default; and whether it may be empty, which then counts as not given."""

    may_be_empty: bool


Kind: TypeAlias = Number | Word | Text


@dataclass(frozen=True, slots=True)
class Values:
    """Settings with a client's defaults.

    Attributes:
        given: those that the user gave.
        kinds: the client's kinds of settings.
    """

    given: Given
    kinds: Mapping[str, Kind]

    def has(self, name: str) -> bool:
        """Whether the user gave it a value."""
        return self.given.get(name, NOT_GIVEN) != NOT_GIVEN

    def word(self, name: str) -> str:
        """A word, or a text; "" for a text that is not given."""
        kind = self.kinds[name]
        default = NOT_GIVEN if isinstance(kind, Text) else str(kind.default)
        value = self.given.get(name, default)
        return value.lower() if isinstance(kind, Word) and kind.any_case else value

    def number(self, name: str) -> int:
        """The value of a setting as a number."""
        return int(self.word(name))

    def flag(self, name: str) -> bool:
        """A word that is true or false."""
        return self.word(name) in _TRUE

    def acks(self) -> int:
        """The acknowledgements that a producer waits for; -1 stands for all in-sync replicas."""
        word = self.word("acks")
        return -1 if word.lower() == "all" else int(word)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about settings that exclude each other.

    Attributes:
        settings: the settings that it is about.
        why: the reason in words.
        source: its place in the client's source.
        refuses: whether it refuses these values, each of which is in its range.
    """

    settings: tuple[str, ...]
    why: str
    source: str
    refuses: Callable[[Values], bool]


@dataclass(frozen=True, slots=True)
class Client:
    """A kind of client: the settings it knows, where their ranges stand, and its rules in its own order.

    Attributes:
        kinds: the kind of each setting, by name.
        source: the source of the ranges.
        rules: asked one after the other.
    """

    kinds: Mapping[str, Kind]
    source: str
    rules: tuple[Rule, ...]

    def values(self, given: Given) -> Values:
        """The settings with the client's defaults.

        Raises:
            RefusedSettings: at the first that the client does not know, that is out of range, or that a rule refuses.
        """
        for name, word in given.items():
            if name not in self.kinds:
                raise RefusedSettings((name,), "there is no such setting", self.source)
            if why := _out_of_range(self.kinds[name], word):
                raise RefusedSettings((name,), f"{word!r} is {why}", self.source)
        values = Values(given, self.kinds)
        for rule in self.rules:
            if rule.refuses(values):
                raise RefusedSettings(rule.settings, rule.why, rule.source)
        return values

    def refusal(self, given: Given) -> RefusedSettings | None:
        """The reason why the client refuses these settings, None if it accepts them."""
        try:
            self.values(given)
        except RefusedSettings as refused:
            return refused
        return None


def _out_of_range(kind: Kind, word: str) -> str:
    """The error in a word, "" for none."""
    match kind:
        case Number(_, low, high, other):
            if other and word.lower() == other:
                return ""
            if not _WHOLE_NUMBER.fullmatch(word):
                return "no whole number"
            return "" if low <= int(word) <= high else f"not between {low} and {high}"
        case Word(_, words, any_case):
            return "" if (word.lower() if any_case else word) in words else f"none of {', '.join(sorted(words))}"
        case Text(may_be_empty):
            return "" if word or may_be_empty else "empty"


_BOOLEAN = frozenset({"true", "false"})
_TRUE = frozenset({"true", "t", "1"})
_BOOLEAN_OF_LIBRDKAFKA = frozenset({*_TRUE, "false", "f", "0"})
_WHOLE_NUMBER = re.compile(r"\s*[+-]?\d+\s*")
_COMPRESSIONS = frozenset(codec.name.lower() for codec in CompressionType)
_ISOLATION = frozenset({"read_committed", "read_uncommitted"})
_PROTOCOLS = frozenset({"classic", "consumer"})


# ---- the Java producer


def idempotence_of_java(values: Values) -> bool:
    """Whether a Java producer is idempotent: unless acks or retries say otherwise, and nobody asked for it.

    Kafka: ProducerConfig.postProcessAndValidateIdempotenceConfigs
    """
    asked = values.has("enable.idempotence")
    return values.flag("enable.idempotence") and (asked or (values.number("retries") > 0 and values.acks() == -1))


def delivery_timeout_of_java(values: Values) -> int:
    """The delivery timeout of a record, in milliseconds: by default at least linger and request timeout together.

    Kafka: KafkaProducer.configureDeliveryTimeout
    """
    least = min(values.number("linger.ms"), INT32_MAX) + values.number("request.timeout.ms")
    given = values.number("delivery.timeout.ms")
    return given if values.has("delivery.timeout.ms") else max(given, min(least, INT32_MAX))


def _asked_for_idempotence(values: Values) -> bool:
    return values.has("enable.idempotence") and values.flag("enable.idempotence")


def _too_short_to_deliver(values: Values) -> bool:
    least = min(min(values.number("linger.ms"), INT32_MAX) + values.number("request.timeout.ms"), INT32_MAX)
    return delivery_timeout_of_java(values) < least


_IDEMPOTENCE_OF_JAVA = "ProducerConfig.postProcessAndValidateIdempotenceConfigs"

JAVA_PRODUCER = Client(
    kinds=MappingProxyType({
        "acks": Word("all", frozenset({"all", "-1", "0", "1"})),
        "enable.idempotence": Word("true", _BOOLEAN, any_case=True),
        "retries": Number(INT32_MAX, 0, INT32_MAX),
        "max.in.flight.requests.per.connection": Number(5, 1, INT32_MAX),
        "linger.ms": Number(5, 0, INT64_MAX),
        "batch.size": Number(16_384, 0, INT32_MAX),
        "buffer.memory": Number(33_554_432, 0, INT64_MAX),
        "max.block.ms": Number(60_000, 0, INT64_MAX),
        "request.timeout.ms": Number(30_000, 0, INT32_MAX),
        "delivery.timeout.ms": Number(120_000, 0, INT32_MAX),
        "compression.type": Word("none", _COMPRESSIONS),
        "transactional.id": Text(may_be_empty=False),
        "transaction.timeout.ms": Number(60_000, INT32_MIN, INT32_MAX),  # the broker refuses an invalid one
    }),
    source="ProducerConfig.CONFIG",
    rules=(
        Rule(
            ("retries", "enable.idempotence"),
            "an idempotent producer has to retry",
            _IDEMPOTENCE_OF_JAVA,
            lambda values: _asked_for_idempotence(values) and values.number("retries") == 0,
        ),
        Rule(
            ("acks", "enable.idempotence"),
            "an idempotent producer waits for all in-sync replicas",
            _IDEMPOTENCE_OF_JAVA,
            lambda values: _asked_for_idempotence(values) and values.acks() != -1,
        ),
        Rule(
            ("max.in.flight.requests.per.connection", "enable.idempotence"),
            "a leader remembers five batches of an idempotent producer; this is asked before acks or retries turn "
            "idempotence off, so that it also refuses a producer that is not going to be idempotent",
            _IDEMPOTENCE_OF_JAVA,
            lambda values: values.flag("enable.idempotence")
            and values.number("max.in.flight.requests.per.connection") > MAX_IN_FLIGHT_WITH_IDEMPOTENCE,
        ),
        Rule(
            ("transactional.id", "enable.idempotence"),
            "a transactional producer is idempotent, which enable.idempotence, acks or retries turn off here",
            _IDEMPOTENCE_OF_JAVA,
            lambda values: values.has("transactional.id") and not idempotence_of_java(values),
        ),
        Rule(
            ("delivery.timeout.ms", "linger.ms", "request.timeout.ms"),
            "a record must have the time to wait for its batch and for one request",
            "KafkaProducer.configureDeliveryTimeout",
            _too_short_to_deliver,
        ),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The settings of a producer of the reference.

    Attributes:
        acks: -1 for all in-sync replicas, 1 for the leader, 0 for nobody.
        enable_idempotence: whether batches have a producer id and sequences.
        retries: attempts after the first one of a batch.
        max_in_flight_requests_per_connection: requests without an answer.
        linger_ms: how long a batch waits for more records.
        batch_size: bytes of a batch at most, if it has more than one record; 0 for batches of one record.
        buffer_memory: bytes of all batches together.
        max_block_ms: how long send() waits for memory.
        request_timeout_ms: how long a request waits for its answer.
        delivery_timeout_ms: time after which a record is given up.
        compression_type: the compression of batches.
        transactional_id: None without transactions.
        transaction_timeout_ms: time after which the coordinator aborts.
    """

    acks: int
    enable_idempotence: bool
    retries: int
    max_in_flight_requests_per_connection: int
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    compression_type: CompressionType
    transactional_id: str | None
    transaction_timeout_ms: int


def producer_settings(given: Given) -> ProducerSettings:
    """The producer with these settings and the Java client's defaults.

    Raises:
        RefusedSettings: when the Java client refuses them.
    """
    values = JAVA_PRODUCER.values(given)
    return ProducerSettings(
        acks=values.acks(),
        enable_idempotence=idempotence_of_java(values),
        retries=values.number("retries"),
        max_in_flight_requests_per_connection=values.number("max.in.flight.requests.per.connection"),
        linger_ms=min(values.number("linger.ms"), INT32_MAX),
        batch_size=values.number("batch.size"),
        buffer_memory=values.number("buffer.memory"),
        max_block_ms=values.number("max.block.ms"),
        request_timeout_ms=values.number("request.timeout.ms"),
        delivery_timeout_ms=delivery_timeout_of_java(values),
        compression_type=CompressionType[values.word("compression.type").upper()],
        transactional_id=values.word("transactional.id") or None,
        transaction_timeout_ms=values.number("transaction.timeout.ms"),
    )


# ---- librdkafka's producer


def idempotence_of_librdkafka(values: Values) -> bool:
    """Whether a librdkafka producer is idempotent: if it is asked for, or transactional.

    librdkafka: rdkafka_conf.c: rd_kafka_conf_finalize
    """
    return values.flag("enable.idempotence") or values.has("transactional.id")


def _delivery_timeout_of_librdkafka(values: Values) -> int:
    """In milliseconds; by default that of the transaction, if there is one."""
    transactional = values.has("transactional.id") and not values.has("delivery.timeout.ms")
    return values.number("transaction.timeout.ms" if transactional else "delivery.timeout.ms")


_OF_TOPICS = ("acks", "request.timeout.ms", "delivery.timeout.ms")
_FINALIZE = "rdkafka_conf.c: rd_kafka_conf_finalize"
_FINALIZE_TOPIC = "rdkafka_conf.c: rd_kafka_topic_conf_finalize"

LIBRDKAFKA_PRODUCER = Client(
    kinds=MappingProxyType({
        "acks": Number("all", -1, 1000, "all"),
        "enable.idempotence": Word("false", _BOOLEAN_OF_LIBRDKAFKA, any_case=True),
        "retries": Number(INT32_MAX, 0, INT32_MAX),
        "max.in.flight.requests.per.connection": Number(1_000_000, 1, 1_000_000),
        "linger.ms": Number(5, 0, 900_000),
        "batch.size": Number(1_000_000, 1, INT32_MAX),
        "request.timeout.ms": Number(30_000, 1, 900_000),
        "delivery.timeout.ms": Number(300_000, 0, INT32_MAX),  # 0 for no limit
        "compression.type": Word("none", _COMPRESSIONS, any_case=True),
        "transactional.id": Text(may_be_empty=True),
        "transaction.timeout.ms": Number(60_000, 1000, INT32_MAX),
    }),
    source="rdkafka_conf.c: rd_kafka_properties",
    rules=(
        Rule(
            ("transactional.id", "enable.idempotence"),
            "a transactional producer is idempotent",
            _FINALIZE,
            lambda values: values.has("transactional.id")
            and values.has("enable.idempotence")
            and not values.flag("enable.idempotence"),
        ),
        Rule(
            ("max.in.flight.requests.per.connection", "enable.idempotence"),
            "a leader remembers five batches of an idempotent producer",
            _FINALIZE,
            lambda values: idempotence_of_librdkafka(values)
            and values.has("max.in.flight.requests.per.connection")
            and values.number("max.in.flight.requests.per.connection") > MAX_IN_FLIGHT_WITH_IDEMPOTENCE,
        ),
        Rule(
            ("retries", "enable.idempotence"),
            "an idempotent producer has to retry",
            _FINALIZE,
            lambda values: idempotence_of_librdkafka(values) and values.number("retries") == 0,
        ),
        Rule(
            ("acks", "enable.idempotence"),
            "an idempotent producer waits for all in-sync replicas",
            _FINALIZE_TOPIC,
            lambda values: idempotence_of_librdkafka(values) and values.acks() != -1,
        ),
        Rule(
            ("delivery.timeout.ms", "transaction.timeout.ms"),
            "a transaction must not end before its records are given up",
            _FINALIZE_TOPIC,
            lambda values: values.has("transactional.id")
            and values.has("delivery.timeout.ms")
            and values.number("delivery.timeout.ms") > values.number("transaction.timeout.ms"),
        ),
        Rule(
            ("delivery.timeout.ms", "linger.ms"),
            "a record must have the time to wait for its batch; asked only where a setting of topics is given, and "
            "where linger is not given, it gives way",
            _FINALIZE_TOPIC,
            lambda values: values.has("linger.ms")
            and any(values.has(name) for name in _OF_TOPICS)
            and 0 < _delivery_timeout_of_librdkafka(values) <= values.number("linger.ms"),
        ),
    ),
)  # fmt: skip


# ---- consumers


def _not_with(name: str, protocol: str, source: str, why: str, *, empty_too: bool = False) -> Rule:
    return Rule(
        (name, "group.protocol"),
        why,
        source,
        lambda values: (
            (values.has(name) or (empty_too and name in values.given)) and values.word("group.protocol") == protocol
        ),
    )


_BY_THE_BROKER = "with the protocol of KIP-848 the group coordinator decides this"
_UNSUPPORTED_BY_JAVA = "ConsumerConfig.checkUnsupportedConfigsPostProcess"

JAVA_CONSUMER = Client(
    kinds=MappingProxyType({
        "group.id": Text(may_be_empty=False),
        "group.protocol": Word("classic", _PROTOCOLS, any_case=True),
        "group.remote.assignor": Text(may_be_empty=True),
        "partition.assignment.strategy": Text(may_be_empty=True),
        "isolation.level": Word("read_uncommitted", _ISOLATION),
        "enable.auto.commit": Word("true", _BOOLEAN, any_case=True),
        "auto.commit.interval.ms": Number(5000, 0, INT32_MAX),
        "auto.offset.reset": Word("latest", frozenset({"earliest", "latest", "none"})),
        "session.timeout.ms": Number(45_000, INT32_MIN, INT32_MAX),
        "heartbeat.interval.ms": Number(3000, INT32_MIN, INT32_MAX),
        "max.poll.interval.ms": Number(300_000, 1, INT32_MAX),
    }),
    source="ConsumerConfig.CONFIG",
    rules=(
        *(
            _not_with(name, "consumer", _UNSUPPORTED_BY_JAVA, _BY_THE_BROKER)
            for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
        ),
        _not_with("group.remote.assignor", "classic", _UNSUPPORTED_BY_JAVA, "in a classic group a member assigns"),
        Rule(
            ("enable.auto.commit", "group.id"),
            "offsets are committed to a group",
            "ConsumerConfig.maybeOverrideEnableAutoCommit",
            lambda values: values.has("enable.auto.commit")
            and values.flag("enable.auto.commit")
            and not values.has("group.id"),
        ),
        Rule(
            ("heartbeat.interval.ms", "session.timeout.ms"),
            "a member has to be heard of within its session",
            "Heartbeat",
            lambda values: values.has("group.id")
            and values.word("group.protocol") == "classic"
            and values.number("heartbeat.interval.ms") >= values.number("session.timeout.ms"),
        ),
        Rule(
            ("heartbeat.interval.ms",),
            "no timer runs for a negative time",
            "Timer",
            lambda values: values.has("group.id")
            and values.word("group.protocol") == "classic"
            and values.number("heartbeat.interval.ms") < 0,
        ),
    ),
)  # fmt: skip

LIBRDKAFKA_CONSUMER = Client(
    kinds=MappingProxyType({
        "group.id": Text(may_be_empty=False),
        "group.protocol": Word("classic", _PROTOCOLS, any_case=True),
        "group.remote.assignor": Text(may_be_empty=True),
        "partition.assignment.strategy": Text(may_be_empty=True),
        "isolation.level": Word("read_committed", _ISOLATION, any_case=True),
        "enable.auto.commit": Word("true", _BOOLEAN_OF_LIBRDKAFKA, any_case=True),
        "auto.commit.interval.ms": Number(5000, 0, 86_400_000),
        "auto.offset.reset": Word(
            "largest",
            frozenset({"smallest", "earliest", "beginning", "largest", "latest", "end", "error"}),
            any_case=True,
        ),
        "session.timeout.ms": Number(45_000, 1, 3_600_000),
        "heartbeat.interval.ms": Number(3000, 1, 3_600_000),
        "max.poll.interval.ms": Number(300_000, 1, 86_400_000),
    }),
    source="rdkafka_conf.c: rd_kafka_properties",
    rules=(
        Rule(
            ("group.id",),
            "a consumer has a group",
            "rdkafka.c: rd_kafka_new, as confluent-kafka calls it",
            lambda values: not values.has("group.id"),
        ),
        *(
            _not_with(name, "consumer", _FINALIZE, _BY_THE_BROKER, empty_too=True)
            for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
        ),
        Rule(
            ("max.poll.interval.ms", "session.timeout.ms"),
            "a session must not outlast the time between two polls",
            _FINALIZE,
            lambda values: values.word("group.protocol") == "classic"
            and values.number("max.poll.interval.ms") < values.number("session.timeout.ms"),
        ),
    ),
)  # fmt: skip


# ---- a processor that commits in transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSettings:
    """The settings of a processor of the reference.

    Attributes:
        commit_interval_ms: time between the ends of two transactions.
        producer: its producer, whose timeout bounds them.
    """

    commit_interval_ms: int
    producer: ProducerSettings


PROCESSOR = Client(
    kinds=MappingProxyType({
        **JAVA_PRODUCER.kinds,
        "commit.interval.ms": Number(100, 0, INT64_MAX),
        "enable.idempotence": Word("true", _BOOLEAN, any_case=True),
        "transaction.timeout.ms": Number(10_000, INT32_MIN, INT32_MAX),
    }),
    source="StreamsConfig.CONFIG",
    rules=(
        Rule(
            ("commit.interval.ms", "transaction.timeout.ms"),
            "a transaction that is committed later than it times out is always aborted",
            "StreamsConfig.verifyEOSTransactionTimeoutCompatibility",
            lambda values: values.number("commit.interval.ms") > values.number("transaction.timeout.ms"),
        ),
        Rule(
            ("max.in.flight.requests.per.connection",),
            "a leader remembers five batches of an idempotent producer",
            "StreamsConfig.verifyMaxInFlightRequestPerConnection",
            lambda values: values.number("max.in.flight.requests.per.connection") > MAX_IN_FLIGHT_WITH_IDEMPOTENCE,
        ),
    ),
)  # fmt: skip


def processor_settings(given: Given) -> ProcessorSettings:
    """The processor with these settings and the defaults of Kafka Streams under ``exactly_once_v2``.

    Its producer is idempotent, whatever ``enable.idempotence`` says, and has the processor's transactional id.

    Departs from Kafka: Streams looks at the transaction timeout only if it is given with the prefix ``producer.``.

    Raises:
        RefusedSettings: when Kafka Streams refuses them.

    Kafka: org.apache.kafka.streams.StreamsConfig.getProducerConfigs
    """
    values = PROCESSOR.values(given)
    own = {name: word for name, word in given.items() if name != "commit.interval.ms"}
    timeout = str(values.number("transaction.timeout.ms"))
    decided = {"enable.idempotence": "true", "transaction.timeout.ms": timeout}
    return ProcessorSettings(
        commit_interval_ms=values.number("commit.interval.ms"), producer=producer_settings({**own, **decided})
    )
