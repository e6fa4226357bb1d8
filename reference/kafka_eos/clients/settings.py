"""The settings of clients: which of them Kafka's own clients refuse, and the producer with those that remain.

Settings are what a properties file has: names and words. Each client has its own defaults and ranges, and rules about
settings that exclude each other; a rule names its settings and where it is in the client's source. The reference's
producer is the Java client's: :func:`producer_settings` gives its settings as a value, with those that idempotence
decides.

Which settings a client knows, their ranges, words and defaults, and librdkafka's aliases, are in
``known_settings.json``: the libraries say so themselves, `make schemas` writes it again, and a test compares it with
them. The rules are written by hand, and compared with the clients on random settings.

The two clients differ where they are said to do the same. librdkafka accepts and Java refuses: a delivery timeout
below linger and request timeout together; six requests in flight, because librdkafka's producer is not idempotent by
default; an acks above 1; an empty transactional id, which is none; a heartbeat that is not below the session timeout.
Java accepts and librdkafka refuses: a transaction that ends before its records are given up; a transaction timeout
below a second; a request timeout of 0; a batch size of 0; a linger that is not shorter than the default delivery
timeout; a session that is longer than the time between two polls; a consumer without a group; and two settings that
librdkafka does not have, ``buffer.memory`` and ``max.block.ms``.

Java's clients are those of two releases (:data:`JAVA`). The names without a release are those of 4.3. Its settings are
also settings of 4.4, with the same defaults.

Kafka:      org.apache.kafka.clients.producer.ProducerConfig, KafkaProducer, clients.consumer.ConsumerConfig of both
librdkafka: rdkafka_conf.c 2.16.0
KIP:        KIP-91 (delivery.timeout.ms), KIP-98 (transactions), KIP-679 (idempotence by default), KIP-848
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeAlias

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.transaction_log import DEFAULT_MAX_TIMEOUT_MS
from kafka_eos.formats.varint import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

Given: TypeAlias = Mapping[str, str]
"""Settings by name, as words."""

KNOWN = "known_settings.json"
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


def read_java(word: str) -> int | None:
    """A whole number as Java reads it, None if it is none."""
    return int(word) if re.fullmatch(r"\s*[+-]?\d+\s*", word) else None


def read_c(word: str) -> float | None:
    """A number as librdkafka reads it, None if it is none: octal after 0, hexadecimal after 0x, and any text behind it.

    librdkafka: rdkafka_conf.c: rd_kafka_anyconf_set_prop, with strtol
    """
    matched = re.match(r"\s*([+-]?)(?:0x([0-9a-f]+)|0([0-7]*)|([1-9]\d*))", word, re.ASCII | re.IGNORECASE)
    if matched is None:
        return None
    sign, hexadecimal, octal, decimal = matched.groups()
    size = int(hexadecimal, 16) if hexadecimal else int(decimal) if decimal else int(octal or "0", 8)
    number = max(INT64_MIN, min(-size if sign == "-" else size, INT64_MAX))
    return (number - INT32_MIN) % (1 << 32) + INT32_MIN


def read_c_float(word: str) -> float | None:
    """A number with a fraction as librdkafka reads it, None if it is none.

    librdkafka also reads ``nan`` and such words of C; they are none here.

    librdkafka: rdkafka_conf.c: rd_kafka_anyconf_set_prop, with strtod
    """
    number = r"\s*([+-]?(?:0x[0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))"
    matched = re.match(number, word, re.ASCII | re.IGNORECASE)
    if matched is None:
        return None
    return float.fromhex(matched[1]) if "x" in matched[1].lower() else float(matched[1])


@dataclass(frozen=True, slots=True)
class Number:
    """A number: its default, the smallest and largest that the client accepts, and a word that it accepts too."""

    default: str
    low: int
    high: int
    word: str = NOT_GIVEN
    read: Callable[[str], float | None] = read_java


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
        default = NOT_GIVEN if isinstance(kind, Text) else kind.default
        value = self.given.get(name, default)
        return value.lower() if isinstance(kind, Word) and kind.any_case else value

    def number(self, name: str) -> int:
        """The value of a setting as a number, without its fraction."""
        kind = self.kinds[name]
        assert isinstance(kind, Number), f"{name} is no number"
        return int(kind.read(self.word(name)) or 0)

    def flag(self, name: str) -> bool:
        """A word that is true or false."""
        return self.word(name) in _TRUE

    def acks(self) -> int:
        """The acknowledgements that a producer waits for; -1 stands for all in-sync replicas."""
        word = self.word("acks")
        return -1 if word.lower() == "all" else int(read_c(word) or 0)


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
        aliases: other names of settings, with the name in ``kinds``.
        of_others: settings that it knows and does not use, because they are for another kind of client.
        refuses_unknown: whether the client refuses a setting that it does not know, or only logs a warning.
    """

    kinds: Mapping[str, Kind]
    source: str
    rules: tuple[Rule, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    of_others: frozenset[str] = frozenset()
    refuses_unknown: bool = False

    def real(self, name: str) -> str:
        """The name of a setting in ``kinds``."""
        return self.aliases.get(name, name)

    def knows(self, name: str) -> bool:
        """Whether the client knows a setting."""
        return self.real(name) in self.kinds

    def uses(self, name: str) -> bool:
        """Whether the client knows a setting, and uses it."""
        return self.knows(name) and self.real(name) not in self.of_others

    def values(self, given: Given) -> Values:
        """The settings with the client's defaults.

        Raises:
            RefusedSettings: at the first that the client does not know, that is out of range, or that a rule refuses.
        """
        own: dict[str, str] = {}
        written: dict[str, str] = {}
        for name, word in given.items():
            real = self.real(name)
            if not self.knows(name):
                raise RefusedSettings((name,), "there is no such setting", self.source)
            if why := _out_of_range(self.kinds[real], word):
                raise RefusedSettings((name,), f"{word!r} is {why}", self.source)
            own[real], written[real] = word, name
        values = Values(own, self.kinds)
        for rule in self.rules:
            if rule.refuses(values):
                names = tuple(written.get(name, name) for name in rule.settings)
                raise RefusedSettings(names, rule.why, rule.source)
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
        case Number(_, low, high, other, read):
            if other and word.lower() == other:
                return ""
            number = read(word)
            if number is None:
                return "no whole number"
            return "" if low <= number <= high else f"not between {low} and {high}"
        case Word(_, words, any_case):
            known = (word.lower() if any_case else word) in words - {_BY_DURATION}
            lasting = _BY_DURATION in words and _LASTING.fullmatch(word)
            return "" if known or lasting else f"none of {', '.join(sorted(words))}"
        case Text(may_be_empty):
            return "" if word or may_be_empty else "empty"


_TRUE = frozenset({"true", "t", "1"})
_BY_DURATION = "by_duration:PnDTnHnMn.nS"
_LASTING = re.compile(r"by_duration:[Pp](?=.)(\d+[Dd])?([Tt](?=.)(\d+[Hh])?(\d+[Mm])?(\d+([.,]\d{0,9})?[Ss])?)?")


# ---- the settings that clients know


def _kinds(rows: Mapping[str, Mapping[str, Any]], read: Callable[[str], float | None]) -> dict[str, Kind]:
    """The kinds of settings, by the rows of ``known_settings.json``."""
    kinds: dict[str, Kind] = {}
    for name, row in rows.items():
        default = row.get("default", NOT_GIVEN)
        if "words" in row:
            kinds[name] = Word(default, frozenset(row["words"]), row["any_case"])
        elif "low" in row:
            reads = read_c_float if "fraction" in row else read
            kinds[name] = Number(default, row["low"], row["high"], row.get("word", NOT_GIVEN), reads)
        else:
            kinds[name] = Text(may_be_empty=not row.get("not_empty", False))
    return kinds


_known: Mapping[str, Any] = json.loads(files("kafka_eos.clients").joinpath(KNOWN).read_text(encoding="utf-8"))
_java, _java_newest, _librdkafka = _known["java"], _known["java_newest"], _known["librdkafka"]


def _of_java(client: str) -> Mapping[str, Kind]:
    return MappingProxyType(_kinds(_java[client], read_java))


def _of_newest(client: str, older: Mapping[str, Kind]) -> Mapping[str, Kind]:
    """The settings of a client of the newest release: those of the release before, and those that it has otherwise."""
    return MappingProxyType({**older, **_kinds(_java_newest[client], read_java)})


def _names_of_librdkafka() -> dict[str, str]:
    """Each name of a setting with more than one, with the one that we use: Java's, if there is one."""
    same: dict[str, list[str]] = {}
    for alias, name in _librdkafka["aliases"].items():
        same.setdefault(name, [name]).append(alias)
    names: dict[str, str] = {}
    for group in same.values():
        used = next((name for name in group if name in _java["producer"] or name in _java["consumer"]), group[0])
        names |= dict.fromkeys(set(group) - {used}, used)
    return names


_ALIASES = MappingProxyType(_names_of_librdkafka())

COUNTERPARTS: Mapping[str, str] = MappingProxyType({
    **_ALIASES,
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "message.max.bytes": "max.request.size",
    "queue.buffering.max.kbytes": "buffer.memory",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "ssl.ca.location": "ssl.truststore.location",
})  # fmt: skip
"""Names of librdkafka that Java does not know, with Java's names: librdkafka's aliases, and settings with two names.

librdkafka: CONFIGURATION.md
Kafka:      ProducerConfig, ConsumerConfig, CommonClientConfigs, SslConfigs
"""


def _ours(names: Iterable[str]) -> frozenset[str]:
    return frozenset(_ALIASES.get(name, name) for name in names)


_SIDES = ("both", "producer", "consumer")
_KINDS_OF_LIBRDKAFKA = MappingProxyType(
    {_ALIASES.get(name, name): kind for side in _SIDES for name, kind in _kinds(_librdkafka[side], read_c).items()}
)
_OF_TOPICS = _ours(name for side in _SIDES for name, row in _librdkafka[side].items() if "of_topics" in row)


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
    kinds=_of_java("producer"),
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
            ("transaction.timeout.ms", "transaction.two.phase.commit.enable"),
            "a transaction that is prepared does not time out",
            _IDEMPOTENCE_OF_JAVA,
            lambda values: values.has("transaction.timeout.ms") and values.flag("transaction.two.phase.commit.enable"),
        ),
        Rule(
            ("delivery.timeout.ms", "linger.ms", "request.timeout.ms"),
            "a record must have the time to wait for its batch and for one request",
            "KafkaProducer.configureDeliveryTimeout",
            _too_short_to_deliver,
        ),
    ),
)  # fmt: skip


_CHUNK_BYTES = 16_384
_ALLOCATION = "buffer.memory.allocation.strategy"
_JAVA_PRODUCER_NEWEST = replace(
    JAVA_PRODUCER,
    kinds=_of_newest("producer", JAVA_PRODUCER.kinds),
    rules=(
        *JAVA_PRODUCER.rules,
        Rule(
            ("partitioner.rack.aware", "client.rack"),
            "a producer that prefers the leaders of its rack has to know its rack",
            "RecordAccumulator.PartitionerConfig",
            lambda values: values.flag("partitioner.rack.aware") and not values.word("client.rack").strip(),
        ),
        Rule(
            (_ALLOCATION, "compression.type"),
            "memory that grows with a batch is for batches without compression; it is not used where batch.size is "
            f"below {_CHUNK_BYTES}",
            "KafkaProducer",
            lambda values: values.word(_ALLOCATION) == "incremental"
            and values.number("batch.size") >= _CHUNK_BYTES
            and values.word("compression.type") != "none",
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


def refused_by_brokers(values: Values, most_ms: int = DEFAULT_MAX_TIMEOUT_MS) -> str:
    """Why a broker refuses the transactions of a producer whose settings its client accepts; "" if none does.

    ``most_ms`` is the brokers' ``transaction.max.timeout.ms``.

    Kafka: TransactionStateManager.validateTransactionTimeoutMs
    """
    timeout = values.number("transaction.timeout.ms")
    if not values.has("transactional.id") or 0 < timeout <= most_ms:
        return ""
    refused = "initTransactions() fails with INVALID_TRANSACTION_TIMEOUT"
    if timeout <= 0:
        return f"every broker refuses transaction.timeout.ms={timeout}, and {refused}; give one above 0"
    if most_ms != DEFAULT_MAX_TIMEOUT_MS:
        return f"brokers with transaction.max.timeout.ms={most_ms} refuse transaction.timeout.ms={timeout}: {refused}"
    return (
        f"a broker refuses transaction.timeout.ms={timeout} unless its transaction.max.timeout.ms, "
        f"{DEFAULT_MAX_TIMEOUT_MS} by default, is as large: {refused}"
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


_FINALIZE = "rdkafka_conf.c: rd_kafka_conf_finalize"
_FINALIZE_TOPIC = "rdkafka_conf.c: rd_kafka_topic_conf_finalize"

_RECONNECT = Rule(
    ("reconnect.backoff.max.ms", "reconnect.backoff.ms"),
    "the longest time to wait before a connection must not be shorter than the first one",
    _FINALIZE,
    lambda values: values.number("reconnect.backoff.max.ms") < values.number("reconnect.backoff.ms"),
)

_TOGETHER = "cooperative-sticky"


def _unsupported_assignors(values: Values) -> bool:
    assignors = {word.strip() for word in values.word("partition.assignment.strategy").split(",") if word.strip()}
    at_once = assignors - {_TOGETHER}
    unknown = bool(at_once - {"range", "roundrobin"})
    of_others = values.has("group.protocol.type") and values.word("group.protocol.type") != "consumer"
    return unknown or of_others or (_TOGETHER in assignors and bool(at_once))


_ASSIGNORS = Rule(
    ("partition.assignment.strategy", "group.protocol.type"),
    "assignors are those of groups of consumers: range, roundrobin, or cooperative-sticky by itself",
    "rdkafka_assignor.c: rd_kafka_assignors_init",
    _unsupported_assignors,
)

LIBRDKAFKA_PRODUCER = Client(
    kinds=_KINDS_OF_LIBRDKAFKA,
    aliases=_ALIASES,
    refuses_unknown=True,
    of_others=_ours(_librdkafka["consumer"]),
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
            ("socket.timeout.ms", "transaction.timeout.ms"),
            "a request must not outlast the transaction",
            _FINALIZE,
            lambda values: values.has("transactional.id")
            and values.has("socket.timeout.ms")
            and values.number("socket.timeout.ms") > values.number("transaction.timeout.ms") + 100,
        ),
        Rule(
            ("queue.buffering.backpressure.threshold", "enable.idempotence"),
            "an idempotent producer begins a batch when the one before it is sent",
            _FINALIZE,
            lambda values: idempotence_of_librdkafka(values)
            and values.number("queue.buffering.backpressure.threshold") > 1,
        ),
        Rule(
            ("enable.gapless.guarantee", "enable.idempotence"),
            "only the sequences of an idempotent producer show a gap",
            _FINALIZE,
            lambda values: values.flag("enable.gapless.guarantee") and not idempotence_of_librdkafka(values),
        ),
        _RECONNECT,
        _ASSIGNORS,
        Rule(
            ("queuing.strategy", "enable.idempotence"),
            "an idempotent producer keeps the order of records",
            _FINALIZE_TOPIC,
            lambda values: idempotence_of_librdkafka(values) and values.word("queuing.strategy") != "fifo",
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
            and any(name in values.given for name in _OF_TOPICS)
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


def _given(name: str) -> Callable[[Values], bool]:
    return lambda values: name in values.given


_BY_THE_BROKER = "with the protocol of KIP-848 the group coordinator decides this"
_BY_COORDINATOR = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
_UNSUPPORTED_BY_JAVA = "ConsumerConfig.checkUnsupportedConfigsPostProcess"

JAVA_CONSUMER = Client(
    kinds=_of_java("consumer"),
    source="ConsumerConfig.CONFIG",
    rules=(
        Rule(
            ("group.id",),
            "the name of a group is not empty",
            "KafkaConsumer",
            lambda values: "group.id" in values.given and not values.word("group.id").strip(),
        ),
        Rule(
            ("group.instance.id",),
            "the name of a static member has letters, digits, '.', '_' and '-' only, at most 249",
            "JoinGroupRequest.validateGroupInstanceId",
            lambda values: values.has("group.instance.id")
            and not re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", values.word("group.instance.id")),
        ),
        Rule(
            ("default.api.timeout.ms", "group.protocol"),
            "the thread of the consumer has no time to start, which fails more often than not",
            "ConsumerNetworkThread.start",
            lambda values: values.word("group.protocol") == "consumer"
            and values.number("default.api.timeout.ms") == 0,
        ),
        *(
            Rule((name,), "a setting of share consumers only", _UNSUPPORTED_BY_JAVA, _given(name))
            for name in ("share.acknowledgement.mode", "share.acquire.mode")
        ),
        *(
            _not_with(name, "consumer", _UNSUPPORTED_BY_JAVA, _BY_THE_BROKER)
            for name in _BY_COORDINATOR
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
            and values.number("heartbeat.interval.ms") >= values.number("session.timeout.ms"),
        ),
        Rule(
            ("heartbeat.interval.ms",),
            "no timer runs for a negative time",
            "Timer",
            lambda values: values.has("group.id") and values.number("heartbeat.interval.ms") < 0,
        ),
    ),
)  # fmt: skip


def _largest_answer(values: Values) -> int:
    """In bytes; by default as much as the queue takes, but at least one message."""
    most = values.number("fetch.max.bytes")
    if values.has("fetch.max.bytes"):
        return most
    return max(min(most, values.number("queued.max.messages.kbytes") * 1024), values.number("message.max.bytes"))


LIBRDKAFKA_CONSUMER = Client(
    kinds=_KINDS_OF_LIBRDKAFKA,
    aliases=_ALIASES,
    refuses_unknown=True,
    of_others=_ours(_librdkafka["producer"]),
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
            for name in (*_BY_COORDINATOR, "group.protocol.type")
        ),
        Rule(
            ("max.poll.interval.ms", "session.timeout.ms"),
            "a session must not outlast the time between two polls",
            _FINALIZE,
            lambda values: values.word("group.protocol") == "classic"
            and values.number("max.poll.interval.ms") < values.number("session.timeout.ms"),
        ),
        Rule(
            ("fetch.min.bytes",),
            "a consumer's is between 1 and 100000000",
            _FINALIZE,
            lambda values: not 1 <= values.number("fetch.min.bytes") <= 100_000_000,
        ),
        Rule(
            ("fetch.max.bytes", "message.max.bytes"),
            "an answer must have room for the largest message",
            _FINALIZE,
            lambda values: values.has("fetch.max.bytes")
            and values.number("fetch.max.bytes") < values.number("message.max.bytes"),
        ),
        Rule(
            ("receive.message.max.bytes", "fetch.max.bytes"),
            "an answer is as long as what was fetched, and 512 bytes",
            _FINALIZE,
            lambda values: values.has("receive.message.max.bytes")
            and _largest_answer(values) + 512 > values.number("receive.message.max.bytes"),
        ),
        _RECONNECT,
        _ASSIGNORS,
    ),
)  # fmt: skip


# ---- Kafka Streams

GUARANTEE, EXACTLY_ONCE = "processing.guarantee", "exactly_once_v2"
_TRANSACTION_TIMEOUT, _IN_FLIGHT = "producer.transaction.timeout.ms", "max.in.flight.requests.per.connection"
_TIMEOUT_OF_STREAMS = "10000"


def in_transactions(values: Values) -> bool:
    """Whether Kafka Streams commits in transactions."""
    return values.word(GUARANTEE) == EXACTLY_ONCE


def commit_interval(values: Values) -> int:
    """The time between two commits in milliseconds, which is shorter by default with transactions.

    Kafka: StreamsConfig.EOS_DEFAULT_COMMIT_INTERVAL_MS
    """
    given = values.has("commit.interval.ms") or not in_transactions(values)
    return values.number("commit.interval.ms") if given else 100


_ADMIN = Client(
    kinds=_of_java("admin"),
    source="AdminClientConfig.CONFIG",
    rules=(
        Rule(
            ("default.api.timeout.ms", "request.timeout.ms"),
            "a call must have the time for one request",
            "KafkaAdminClient.configureDefaultApiTimeoutMs",
            lambda values: values.has("default.api.timeout.ms")
            and values.number("default.api.timeout.ms") < values.number("request.timeout.ms"),
        ),
    ),
)  # fmt: skip
_STATIC_MEMBERS = ("group.instance.id", "group.protocol")
_METRICS = tuple(f"{prefix}.enable.metrics.push" for prefix in ("consumer", "main.consumer", "admin"))
STREAMS = Client(
    kinds=MappingProxyType({
        **_of_java("streams"),
        _TRANSACTION_TIMEOUT: Number(_TIMEOUT_OF_STREAMS, INT32_MIN, INT32_MAX),
        **dict.fromkeys(_METRICS, JAVA_CONSUMER.kinds["enable.metrics.push"]),
        _IN_FLIGHT: JAVA_PRODUCER.kinds[_IN_FLIGHT],
        "group.instance.id": JAVA_CONSUMER.kinds["group.instance.id"],
    }),
    source="StreamsConfig.CONFIG",
    rules=(
        Rule(
            ("commit.interval.ms", _TRANSACTION_TIMEOUT),
            "a transaction that is committed later than it times out is always aborted; without the prefix the timeout "
            "is not looked at",
            "StreamsConfig.verifyEOSTransactionTimeoutCompatibility",
            lambda values: in_transactions(values)
            and commit_interval(values) > values.number(_TRANSACTION_TIMEOUT),
        ),
        Rule(
            (_IN_FLIGHT, GUARANTEE),
            "a leader remembers five batches of an idempotent producer",
            "StreamsConfig.verifyMaxInFlightRequestPerConnection",
            lambda values: in_transactions(values) and values.number(_IN_FLIGHT) > MAX_IN_FLIGHT_WITH_IDEMPOTENCE,
        ),
        Rule(
            _STATIC_MEMBERS,
            "the protocol of KIP-1071 has no static members",
            "StreamsConfig.verifyStreamsProtocolCompatibility",
            lambda values: values.has("group.instance.id") and values.word("group.protocol") == "streams",
        ),
        *(
            Rule(
                (name,),
                "Kafka Streams casts it to Boolean, which fails for the text of a file; without the prefix it works",
                "StreamsConfig.verifyClientTelemetryConfigs",
                _given(name),
            )
            for name in _METRICS
        ),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Part:
    """A client that Kafka Streams makes.

    Attributes:
        client: its rules.
        prefixes: the prefixes of its settings; the last one wins.
        defaults: the defaults of Streams.
        decided: the settings that Streams decides.
        in_transactions: those that it also decides with transactions.
        not_decided: the prefix by which a user nevertheless gives them, of which Streams does not think.
    """

    client: Client
    prefixes: tuple[str, ...]
    defaults: Given
    decided: Given = field(default_factory=dict)
    in_transactions: Given = field(default_factory=dict)
    not_decided: str = NOT_GIVEN

    def given(self, given: Given) -> dict[str, str]:
        """The user's settings for this client: those without a prefix, then those of each prefix."""
        found = {name: word for name, word in given.items() if name in self.client.kinds}
        for prefix in self.prefixes:
            own = {name.removeprefix(prefix): word for name, word in given.items() if name.startswith(prefix)}
            found |= {name: word for name, word in own.items() if name in self.client.kinds}
        return found


_OF_CONSUMERS: Given = {"enable.auto.commit": "false", "allow.auto.create.topics": "false", "group.protocol": "classic"}
_COMMITTED: Given = {"isolation.level": "read_committed"}
_PARTS = (
    _Part(
        JAVA_PRODUCER,
        ("producer.",),
        {"linger.ms": "100"},
        in_transactions={"enable.idempotence": "true", "transactional.id": "of Kafka Streams"},
    ),
    _Part(
        JAVA_CONSUMER,
        ("consumer.", "main.consumer."),
        {"max.poll.records": "1000", "auto.offset.reset": "earliest"},
        {**_OF_CONSUMERS, "group.id": "application.id"},
        _COMMITTED,
        "main.consumer.",
    ),
    _Part(
        JAVA_CONSUMER,
        ("consumer.", "restore.consumer."),
        {},
        {**_OF_CONSUMERS, "auto.offset.reset": "none", "group.instance.id": "none"},
        _COMMITTED,
        "restore.consumer.",
    ),
    _Part(_ADMIN, ("admin.",), {}),
)
STREAMS_NOT_READ = ("global.consumer.", "topic.")
"""Prefixes of what Kafka Streams reads later than at its start, or not for each application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaClients:
    """The Java clients of a release of Kafka.

    Attributes:
        release: its number.
        producer: the producer's rules.
        consumer: the consumer's.
        streams: those of Kafka Streams itself.
        parts: the clients that Kafka Streams makes.
    """

    release: str
    producer: Client
    consumer: Client
    streams: Client
    parts: tuple[_Part, ...]

    def known_to_streams(self, name: str) -> bool:
        """Whether Kafka Streams, or a client that it makes, knows a setting."""
        return name in self.streams.kinds or any(part.given({name: ""}) for part in self.parts)

    def is_unchecked_by_streams(self, name: str) -> bool:
        """Whether Kafka Streams or a client that it makes reads more from a setting than its form."""
        of_parts = ((part.client, real) for part in self.parts for real in part.given({name: ""}))
        return name.startswith(STREAMS_NOT_READ) or any(
            is_unchecked(client, real) for client, real in ((self.streams, name), *of_parts)
        )


def _newest(older: JavaClients) -> JavaClients:
    """The clients of 4.4. Its Kafka Streams takes static members, and resolves addresses itself."""
    consumer = replace(older.consumer, kinds=_of_newest("consumer", older.consumer.kinds))
    admin = replace(_ADMIN, kinds=_of_newest("admin", _ADMIN.kinds))
    newer = ((older.producer, _JAVA_PRODUCER_NEWEST), (older.consumer, consumer), (_ADMIN, admin))
    return JavaClients(
        release=_release("java_newest"),
        producer=_JAVA_PRODUCER_NEWEST,
        consumer=consumer,
        streams=replace(
            older.streams,
            kinds=_of_newest("streams", older.streams.kinds),
            rules=tuple(rule for rule in older.streams.rules if rule.settings != _STATIC_MEMBERS),
        ),
        parts=tuple(
            replace(part, client=client, decided={**part.decided, "bootstrap.resolve.timeout.ms": "0"})
            for part in older.parts
            for before, client in newer
            if part.client is before
        ),
    )


def _release(java: str) -> str:
    return str(_known[java]["release"]).rpartition(".")[0]


_SHIPPED = JavaClients(
    release=_release("java"), producer=JAVA_PRODUCER, consumer=JAVA_CONSUMER, streams=STREAMS, parts=_PARTS
)
JAVA: Mapping[str, JavaClients] = MappingProxyType({each.release: each for each in (_SHIPPED, _newest(_SHIPPED))})
"""The Java clients by release, "4.3" and "4.4"; the newest is the last."""


def is_unchecked(client: Client, name: str) -> bool:
    """Whether the client reads more from a setting than its form: a file, a class, an address, or a way to log in."""
    real = client.real(name)
    read_by_rules = _ANY_TEXT | (frozenset(_ASSIGNORS.settings) if client.aliases else frozenset())
    text = isinstance(client.kinds.get(real), Text) and real not in read_by_rules
    return text or real.startswith(("sasl.", "ssl.", "security."))


_ANY_TEXT = frozenset({
    "application.id", "client.id", "client.rack", "group.id", "group.instance.id", "group.remote.assignor",
    "transactional.id",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamsValues:
    """The settings of Kafka Streams, and those of the clients that it makes."""

    own: Values
    producer: Values
    main_consumer: Values
    restore_consumer: Values


def streams_values(given: Given, java: JavaClients = _SHIPPED) -> StreamsValues:
    """The settings with the defaults of Kafka Streams; those that neither it nor one of its clients knows are left out.

    Raises:
        RefusedSettings: when Kafka Streams refuses them, or a client that it makes does.

    Kafka: org.apache.kafka.streams.StreamsConfig.getProducerConfigs, getMainConsumerConfigs, getRestoreConsumerConfigs
    """
    of_parts = [part.given(given) for part in java.parts]
    of_clients = of_parts[0] | of_parts[1]
    looked_at = {name: of_clients[name] for name in (_IN_FLIGHT, "group.instance.id") if name in of_clients}
    own = java.streams.values({name: word for name, word in given.items() if name in java.streams.kinds} | looked_at)
    timeouts = {"transaction.timeout.ms": _TIMEOUT_OF_STREAMS}
    made = []
    for part, user in zip(java.parts, of_parts, strict=True):
        defaults, decided = dict(part.defaults), dict(part.decided)
        if in_transactions(own):
            defaults |= timeouts if part.client is java.producer else {}
            decided |= {
                name: word
                for name, word in part.in_transactions.items()
                if not part.not_decided or part.not_decided + name not in given
            }
        if own.word("group.protocol") == "streams":  # the coordinator decides these
            user = {name: word for name, word in user.items() if name not in _BY_COORDINATOR}  # noqa: PLW2901
        made.append(part.client.values({**defaults, **user, **decided}))
    return StreamsValues(own, *made[:3])
