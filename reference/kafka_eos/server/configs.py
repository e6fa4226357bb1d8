"""The configurations of topics and brokers: names, the values that Kafka accepts, and where a value comes from.

A topic's value is its own, or its broker's under another name, or Kafka's default. A broker's is its own, or that of
all brokers, both altered by clients; or what it was started with, or Kafka's default.

Configurations of retention, cleaning, flushing, tiering and throttling are accepted without effect, because nothing is
deleted here, and all brokers share one storage. :class:`AppendRules` has those with an effect.

Kafka: TopicConfig, LogConfig, ServerLogConfigs, DynamicBrokerConfig, ConfigurationControlManager, ConfigHelper
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from kafka_eos.errors import ErrorCode, Rejected
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import TimestampType
from kafka_eos.formats.transaction_log import DEFAULT_MAX_TIMEOUT_MS

LARGEST_INT, LARGEST_LONG = 2**31 - 1, 2**63 - 1
ALL_BROKERS = ""
"""The resource that stands for all brokers."""

Values = dict[str, str]


class ConfigType(IntEnum):
    """Kafka: DescribeConfigsResponse.ConfigType."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Source(IntEnum):
    """The source of a value.    Kafka: DescribeConfigsResponse.ConfigSource."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """Kafka: AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Synonym(NamedTuple):
    """A value that a configuration has or would have, with the name under which it was set and its source."""

    name: str
    value: str
    source: Source


Wrong = tuple[Any, str]
Check = Callable[[Any], Wrong | None]
"""A check of a value of the right type: the value that is wrong and why, or None."""


def _in_range(least: int, most: int | None = None) -> Check:
    def wrong(value: float) -> Wrong | None:
        if value < least:
            return value, f"Value must be at least {least}"
        return (value, f"Value must be no more than {most}") if most is not None and value > most else None

    return wrong


def _one_of(*names: str) -> Check:
    return lambda value: None if value in names else (value, f"String must be one of: {', '.join(names)}")


def _each_of(*names: str) -> Check:
    check = _one_of(*names)
    return lambda values: next(filter(None, map(check, values)), None)


def _anything(value: Any) -> None:
    """Accept any value."""


def _gzip_level(value: int) -> Wrong | None:
    return None if value == -1 or 1 <= value <= 9 else (value, "Value must be between 1 and 9 or equal to -1")


_THROTTLED = re.compile(r"[0-9]+:[0-9]+")


def _throttled(name: str) -> Check:
    expected = "a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."

    def wrong(values: list[str]) -> Wrong | None:
        if values == ["*"] or all(map(_THROTTLED.fullmatch, values)):
            return None
        return f"[{', '.join(values)}]", f"{name} must be the literal '*' or {expected}"

    return wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A configuration.

    Attributes:
        name: its name.
        type: the type of its value.
        default: Kafka's default, as text.
        wrong: the check of a value.
        broker: its name in brokers; None if they have none.
        default_name: the name of the default there, and its value; None if there is none. That of another configuration
            is told only behind a value of this one.    Kafka: ConfigHelper.configSynonyms.
    """

    name: str
    type: ConfigType
    default: str
    wrong: Check = _anything
    broker: str | None = None
    default_name: tuple[str, str] | None = None

    def parsed(self, text: str) -> Any:
        """A value.

        Raises:
            Rejected: INVALID_CONFIG, in Kafka's words.    Kafka: ConfigDef.parseType, Validator.
        """
        value = self._read(text.strip(), text)
        if wrong := self.wrong(value):
            raise self._refused(*wrong)
        return value

    def described(self, text: str) -> str:
        """A value as it is told, whatever spelling it was given in.    Kafka: ConfigDef.convertToString."""
        value = self.parsed(text)
        if isinstance(value, list):
            return ",".join(dict.fromkeys(value))
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _read(self, text: str, given: str) -> Any:
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in {"true", "false"}:
                    raise self._refused(given, "Expected value to be either true or false")
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                largest = LARGEST_LONG if self.type is ConfigType.LONG else LARGEST_INT
                if re.fullmatch(r"[+-]?[0-9]{1,30}", text) is None or not -largest - 1 <= int(text) <= largest:
                    raise self._refused(given, f"Not a number of type {self.type.name}")
                return int(text)
            case ConfigType.DOUBLE:
                try:
                    return float(text)
                except ValueError:
                    raise self._refused(given, "Not a number of type DOUBLE") from None
            case ConfigType.LIST:
                return elements(text)
        return text

    def _refused(self, value: Any, why: str) -> Rejected:
        return Rejected(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {self.name}: {why}")


def elements(text: str) -> list[str]:
    """The elements of a list."""
    return [each.strip() for each in text.split(",")] if text.strip() else []


_POLICIES = ("compact", "delete")
_COMPRESSIONS = {
    "uncompressed": CompressionType.NONE,
    "zstd": CompressionType.ZSTD,
    "lz4": CompressionType.LZ4,
    "snappy": CompressionType.SNAPPY,
    "gzip": CompressionType.GZIP,
    "producer": None,
}
_TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


def _config(
    name: str,
    kind: ConfigType,
    default: object,
    wrong: Check = _anything,
    broker: str = "",
    from_other: tuple[str, str] | None = None,
) -> Config:
    """A configuration. The default of a broker may follow from another configuration, given with its own default."""
    text = str(default)
    known = from_other or ((broker, text) if broker else None)
    return Config(name=name, type=kind, default=text, wrong=wrong, broker=broker or None, default_name=known)


_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST
_LEADER, _FOLLOWER = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_FLUSHES = "log.flush.scheduler.interval.ms", str(LARGEST_LONG)

TOPIC_CONFIGS: Mapping[str, Config] = {
    config.name: config
    for config in (
        _config("cleanup.policy", _LIST, "delete", _each_of(*_POLICIES), "log.cleanup.policy"),
        _config("compression.gzip.level", _INT, -1, _gzip_level, "compression.gzip.level"),
        _config("compression.lz4.level", _INT, 9, _in_range(1, 17), "compression.lz4.level"),
        _config("compression.type", _STRING, "producer", _one_of(*_COMPRESSIONS), "compression.type"),
        _config("compression.zstd.level", _INT, 3, _in_range(-131072, 22), "compression.zstd.level"),
        _config("delete.retention.ms", _LONG, 86_400_000, _in_range(0), "log.cleaner.delete.retention.ms"),
        _config("file.delete.delay.ms", _LONG, 60_000, _in_range(0), "log.segment.delete.delay.ms"),
        _config("flush.messages", _LONG, LARGEST_LONG, _in_range(1), "log.flush.interval.messages"),
        _config("flush.ms", _LONG, LARGEST_LONG, _in_range(0), "log.flush.interval.ms", _FLUSHES),
        _config(_FOLLOWER, _LIST, "", _throttled(_FOLLOWER)),
        _config("index.interval.bytes", _INT, 4096, _in_range(0), "log.index.interval.bytes"),
        _config(_LEADER, _LIST, "", _throttled(_LEADER)),
        _config("local.retention.bytes", _LONG, -2, _in_range(-2), "log.local.retention.bytes"),
        _config("local.retention.ms", _LONG, -2, _in_range(-2), "log.local.retention.ms"),
        _config("max.compaction.lag.ms", _LONG, LARGEST_LONG, _in_range(1), "log.cleaner.max.compaction.lag.ms"),
        _config("max.message.bytes", _INT, 1_048_588, _in_range(0), "message.max.bytes"),
        _config("message.timestamp.after.max.ms", _LONG, 3_600_000, _in_range(0), "log.message.timestamp.after.max.ms"),
        _config(
            "message.timestamp.before.max.ms", _LONG, LARGEST_LONG, _in_range(0), "log.message.timestamp.before.max.ms"
        ),
        _config(
            "message.timestamp.type", _STRING, "CreateTime", _one_of(*_TIMESTAMP_TYPES), "log.message.timestamp.type"
        ),
        _config("min.cleanable.dirty.ratio", _DOUBLE, 0.5, _in_range(0, 1), "log.cleaner.min.cleanable.ratio"),
        _config("min.compaction.lag.ms", _LONG, 0, _in_range(0), "log.cleaner.min.compaction.lag.ms"),
        _config("min.insync.replicas", _INT, 1, _in_range(1), "min.insync.replicas"),
        _config("preallocate", _BOOLEAN, "false", _anything, "log.preallocate"),
        _config("remote.log.copy.disable", _BOOLEAN, "false"),
        _config("remote.log.delete.on.disable", _BOOLEAN, "false"),
        _config("remote.storage.enable", _BOOLEAN, "false"),
        _config("retention.bytes", _LONG, -1, _anything, "log.retention.bytes"),
        _config("retention.ms", _LONG, 604_800_000, _in_range(-1), "log.retention.ms", ("log.retention.hours", "168")),
        _config("segment.bytes", _INT, 1 << 30, _in_range(1 << 20), "log.segment.bytes"),
        _config("segment.index.bytes", _INT, 10 << 20, _in_range(4), "log.index.size.max.bytes"),
        _config("segment.jitter.ms", _LONG, 0, _in_range(0), "log.roll.jitter.ms", ("log.roll.jitter.hours", "0")),
        _config("segment.ms", _LONG, 604_800_000, _in_range(1), "log.roll.ms", ("log.roll.hours", "168")),
        _config("unclean.leader.election.enable", _BOOLEAN, "false", _anything, "unclean.leader.election.enable"),
    )
}
"""The configurations of topics, by name."""

EFFECTIVE = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.insync.replicas",
    "segment.bytes",
)
"""The configurations of topics that have an effect here, all on what a leader appends."""

_OF_TOPICS: Mapping[str, Config] = {each.broker: each for each in TOPIC_CONFIGS.values() if each.broker is not None}
VERIFICATION, PRODUCER_EXPIRATION = "transaction.partition.verification.enable", "producer.id.expiration.ms"
EFFECTIVE_OF_BROKERS = (PRODUCER_EXPIRATION, VERIFICATION)
"""The configurations of brokers that have an effect here, besides those that topics inherit."""

_OF_BROKERS: Mapping[str, Config] = {
    config.name: config
    for config in (
        _config(VERIFICATION, _BOOLEAN, "true", _anything, VERIFICATION),
        _config(PRODUCER_EXPIRATION, _INT, 86_400_000, _in_range(1), PRODUCER_EXPIRATION),
        *(
            _config(name, _INT, default, _in_range(least), name)
            for name, default, least in (  # these have no effect
                ("background.threads", 10, 1),
                ("max.connection.creation.rate", LARGEST_INT, 0),
                ("max.connections", LARGEST_INT, 0),
                ("max.connections.per.ip", LARGEST_INT, 0),
                ("num.io.threads", 8, 1),
                ("num.network.threads", 3, 1),
                ("num.recovery.threads.per.data.dir", 2, 1),
                ("num.replica.fetchers", 1, 0),
            )
        ),
    )
}
DYNAMIC_BROKER_CONFIGS: Mapping[str, Config] = {
    **{name: replace(each, name=name) for name, each in _OF_TOPICS.items()},
    **_OF_BROKERS,
}
"""The configurations of brokers that clients can alter, by name."""

READ_ONLY_BROKER_CONFIGS: Mapping[str, Config] = {
    name: _config(name, kind, default, _anything, name)
    for name, kind, default in (
        ("auto.create.topics.enable", _BOOLEAN, "true"),
        ("broker.id", _INT, -1),
        ("connections.max.idle.ms", _LONG, 600_000),
        ("default.replication.factor", _INT, 1),
        ("fetch.max.bytes", _INT, 55 << 20),
        ("group.consumer.heartbeat.interval.ms", _INT, 5_000),
        ("group.consumer.session.timeout.ms", _INT, 45_000),
        ("group.initial.rebalance.delay.ms", _INT, 3_000),
        ("group.max.size", _INT, LARGEST_INT),
        ("node.id", _INT, -1),
        ("num.partitions", _INT, 1),
        ("offsets.topic.num.partitions", _INT, 50),
        ("offsets.topic.replication.factor", ConfigType.SHORT, 3),
        ("socket.request.max.bytes", _INT, 100 << 20),
        ("transaction.max.timeout.ms", _INT, DEFAULT_MAX_TIMEOUT_MS),
        ("transaction.state.log.num.partitions", _INT, 50),
        ("transaction.state.log.replication.factor", ConfigType.SHORT, 3),
        ("transactional.id.expiration.ms", _INT, 604_800_000),
    )
}
"""The configurations of brokers that clients can only read, by name."""


class AppendRules(NamedTuple):
    """The configurations that a leader applies to a client's batch.

    Attributes:
        max_message_bytes: largest size of a batch.
        segment_bytes: another limit on the size of a batch.
        timestamp_type: who sets timestamps.
        before_max_ms: how long ago a record's timestamp may be.
        after_max_ms: how far ahead it may be.
        is_compacted: records need keys.
        compression: the compression of what is stored; None: the producer's.
        min_in_sync: the minimum number of in-sync replicas.
    """

    max_message_bytes: int
    segment_bytes: int
    timestamp_type: TimestampType
    before_max_ms: int
    after_max_ms: int
    is_compacted: bool
    compression: CompressionType | None
    min_in_sync: int


class Change(NamedTuple):
    """A change that a client asks for: a name, an operation, and a value."""

    name: str
    operation: Operation
    value: str | None


class Configs:
    """The configurations of a cluster's topics and brokers.

    Args:
        started_with: the values that brokers were started with, as text, by Kafka's names.

    Attributes:
        topics: each topic's own values.
        brokers: the values that clients have altered, by the broker's number as text; ``ALL_BROKERS`` is for all.
    """

    def __init__(self, started_with: Mapping[str, str]) -> None:
        self._static = started_with
        self.topics: dict[str, Values] = {}
        self.brokers: dict[str, Values] = {}
        self._rules: dict[tuple[str, int], AppendRules] = {}

    def topic_synonyms(self, topic: str, config: Config, node: int) -> list[Synonym]:
        """The values of a topic's configuration, the one that counts first."""
        own = self.topics.get(topic, {}).get(config.name)
        found = [Synonym(config.name, config.described(own), Source.TOPIC)] if own is not None else []
        return found + self.broker_synonyms(config, str(node))

    def broker_synonyms(self, config: Config, broker: str) -> list[Synonym]:
        """The values of a broker's configuration, the one that counts first."""
        name, found = config.broker, []
        if name is not None:
            for values, source in (
                (self.brokers.get(broker, {}) if broker != ALL_BROKERS else {}, Source.DYNAMIC_BROKER),
                (self.brokers.get(ALL_BROKERS, {}), Source.DYNAMIC_DEFAULT_BROKER),
                (self._static, Source.STATIC_BROKER),
            ):
                if name in values and (source is not Source.STATIC_BROKER or values[name] != config.default):
                    found.append(Synonym(name, values[name], source))
        if config.default_name is not None and (found or config.default_name[0] == name):
            found.append(Synonym(*config.default_name, Source.DEFAULT))
        return found

    def of_topic(self, topic: str, name: str, node: int) -> Any:
        """The value that counts for a topic on a broker; the name is one of :data:`EFFECTIVE`."""
        config = TOPIC_CONFIGS[name]
        return config.parsed(self.topic_synonyms(topic, config, node)[0].value)

    def of_broker(self, node: int, name: str) -> Any:
        """The value that counts on a broker; the name is one of :data:`EFFECTIVE_OF_BROKERS`."""
        config = DYNAMIC_BROKER_CONFIGS[name]
        return config.parsed(self.broker_synonyms(config, str(node))[0].value)

    def append_rules(self, topic: str, node: int) -> AppendRules:
        """The rules that the leaders of a topic on a broker apply."""
        found = self._rules.get((topic, node))
        if found is None:
            given = {name: self.of_topic(topic, name, node) for name in EFFECTIVE}
            found = self._rules[topic, node] = AppendRules(
                max_message_bytes=given["max.message.bytes"],
                segment_bytes=given["segment.bytes"],
                timestamp_type=_TIMESTAMP_TYPES[given["message.timestamp.type"]],
                before_max_ms=given["message.timestamp.before.max.ms"],
                after_max_ms=given["message.timestamp.after.max.ms"],
                is_compacted="compact" in given["cleanup.policy"],
                compression=_COMPRESSIONS[given["compression.type"]],
                min_in_sync=given["min.insync.replicas"],
            )
        return found

    # --- what clients alter ------------------------------------------------------------------------------------------

    def set_topic(self, topic: str, values: Values) -> None:
        """Give a topic its own values, which replace those it had."""
        self.topics.pop(topic, None)
        if values:
            self.topics[topic] = values
        self._rules.clear()

    def set_broker(self, broker: str, values: Values) -> None:
        """Give a broker, or all of them, values, which replace those that clients have given before."""
        self.brokers.pop(broker, None)
        if values:
            self.brokers[broker] = values
        self._rules.clear()

    # --- what is kept ------------------------------------------------------------------------------------------------

    def kept(self) -> dict[str, dict[str, Values]]:
        """The values that clients have set and altered."""
        return {"topics": self.topics, "brokers": self.brokers}

    def recover(self, kept: Mapping[str, Mapping[str, Values]]) -> None:
        """Restore what :meth:`kept` returned to an earlier process.

        Raises:
            Rejected: a name or a value that cannot be used.
        """
        for topic, values in kept["topics"].items():
            check_values(TOPIC_CONFIGS, values)
            self.set_topic(topic, values)
        for broker, values in kept["brokers"].items():
            check_values(DYNAMIC_BROKER_CONFIGS, values)
            self.set_broker(broker, values)


def altered(
    known: Mapping[str, Config], before: Values, inherited: Callable[[Config], str], changes: Iterable[Change]
) -> Values:
    """The values after changes; they are not checked.

    Args:
        known: the configurations that there are.
        before: the values.
        inherited: the value of a configuration that has none here.
        changes: the changes, in order.

    Raises:
        Rejected: INVALID_CONFIG: not a list.    Kafka: ConfigurationControlManager.incrementalAlterConfigResource.
    """
    after = dict(before)
    for name, operation, value in changes:
        if operation is Operation.DELETE:
            after.pop(name, None)
            continue
        assert value is not None, "only a deletion has none"
        if operation is Operation.SET:
            after[name] = value
        else:
            config = known.get(name)
            if config is None or config.type is not ConfigType.LIST:
                why = f"Can't {operation.name} to key {name} because its type is not LIST."
                raise Rejected(ErrorCode.INVALID_CONFIG, why)
            present, given = elements(after.get(name, inherited(config))), elements(value)
            for each in given:
                if operation is Operation.APPEND and each not in present:
                    present.append(each)
                elif operation is Operation.SUBTRACT and each in present:
                    present.remove(each)
            after[name] = ",".join(present)
    return after


def check_values(known: Mapping[str, Config], values: Mapping[str, str]) -> None:
    """Check that values can be used, alone and together.

    Raises:
        Rejected: INVALID_CONFIG, in Kafka's words.    Kafka: LogConfig.validate.
    """
    for name in values:
        if name not in known:
            raise Rejected(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    parsed = {name: known[name].parsed(text) for name, text in values.items()}
    least, most = parsed.get("min.compaction.lag.ms", 0), parsed.get("max.compaction.lag.ms", LARGEST_LONG)
    if least > most:
        why = f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        raise Rejected(ErrorCode.INVALID_CONFIG, why)
    if parsed.get("remote.storage.enable"):
        why = "Tiered Storage functionality is disabled in the broker. "
        raise Rejected(ErrorCode.INVALID_CONFIG, f"{why}Topic cannot be configured with remote log storage.")
