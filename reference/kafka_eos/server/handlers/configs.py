"""Requests that describe and alter the configurations of topics and brokers.

Kafka: ConfigHelper, ConfigAdminManager, ConfigurationControlManager
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from kafka_eos.errors import ErrorCode, Rejected
from kafka_eos.server.cluster import Cluster
from kafka_eos.server.configs import (
    ALL_BROKERS,
    DYNAMIC_BROKER_CONFIGS,
    READ_ONLY_BROKER_CONFIGS,
    TOPIC_CONFIGS,
    Change,
    Config,
    Operation,
    Source,
    Synonym,
    Values,
    altered,
    check_values,
)
from kafka_eos.server.handlers.request import Request
from kafka_eos.wire.protocol import Message

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_OF_THE_BROKER_ALONE = {"broker.id", "node.id"}


def describe_configs(cluster: Cluster, request: Request) -> Message:
    """The configurations of topics and brokers, with their sources."""
    rows = []
    for asked in request.row["Resources"]:
        row = {"ResourceType": asked["ResourceType"], "ResourceName": asked["ResourceName"]}
        try:
            configs = _described(cluster, request, asked)
            rows.append(row | {"Configs": configs})
        except Rejected as rejected:
            rows.append(row | {"ErrorCode": rejected.code, "ErrorMessage": rejected.why})
    return {"Results": rows}


def _described(cluster: Cluster, request: Request, asked: Message) -> list[Message]:
    kind, name, keys = asked["ResourceType"], asked["ResourceName"], asked["ConfigurationKeys"] or None
    found: list[tuple[Config, list[Synonym], str | None]]
    if kind == TOPIC:
        cluster.check_name(name)
        if name not in cluster.topics:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found = [
            (config, cluster.configs.topic_synonyms(name, config, request.node), config.default)
            for config in TOPIC_CONFIGS.values()
        ]
    elif kind == BROKER:
        found = _of_broker(cluster, name, request.node)
    else:
        raise Rejected(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no configurations here")
    with_synonyms = request.row["IncludeSynonyms"]
    return [
        _entry(config, synonyms, default, kind, with_synonyms)
        for config, synonyms, default in found
        if keys is None or config.name in keys
    ]


def _of_broker(cluster: Cluster, name: str, node: int) -> list[tuple[Config, list[Synonym], str | None]]:
    """The configurations of a broker; for all brokers together only those that clients have altered."""
    if name != ALL_BROKERS and _number(name, "Broker") != node:
        why = f"Unexpected broker id, expected {node} or empty string, but received {name}"
        raise Rejected(ErrorCode.INVALID_REQUEST, why)
    found: list[tuple[Config, list[Synonym], str | None]] = []
    for config in (*DYNAMIC_BROKER_CONFIGS.values(), *READ_ONLY_BROKER_CONFIGS.values()):
        synonyms = cluster.configs.broker_synonyms(config, name)
        if config.name in _OF_THE_BROKER_ALONE:
            synonyms = [Synonym(config.name, str(node), Source.STATIC_BROKER), *synonyms]
        if name == ALL_BROKERS:
            synonyms = [each for each in synonyms if each.source is Source.DYNAMIC_DEFAULT_BROKER]
        default = config.default if config.default_name == (config.name, config.default) else None
        if synonyms or name != ALL_BROKERS:
            found.append((config, synonyms, default))
    return found


def _number(name: str, what: str) -> int:
    if not name.isascii() or not name.isdigit():
        raise Rejected(ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}")
    return int(name)


def _entry(config: Config, synonyms: list[Synonym], default: str | None, kind: int, with_synonyms: bool) -> Message:
    first = synonyms[0] if synonyms else None
    is_set = first is not None and first.source is not Source.DEFAULT
    return {
        "Name": config.name,
        "Value": config.described(first.value) if first is not None and is_set else default,
        "ReadOnly": kind == BROKER and config.name in READ_ONLY_BROKER_CONFIGS,
        "ConfigSource": first.source if first is not None else Source.DEFAULT,
        "ConfigType": config.type,
        "Synonyms": [
            {"Name": each.name, "Value": each.value, "Source": each.source} for each in synonyms if with_synonyms
        ],
        "Documentation": None,
    }


def list_config_resources(cluster: Cluster, request: Request) -> Message:
    """Topics, brokers and their loggers; version 0 asks only for clients' metrics, of which there are none.

    Kafka: KafkaApis.handleListConfigResources
    """
    kinds = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}
    asked = set(request.row["ResourceTypes"]) if request.version >= 1 else {CLIENT_METRICS}
    if not asked <= kinds:
        return {"ErrorCode": ErrorCode.UNSUPPORTED_VERSION}
    found = [(kind, str(broker.node)) for kind in (BROKER_LOGGER, BROKER) for broker in cluster.brokers]
    found += [(TOPIC, name) for name in cluster.topics]
    rows = [{"ResourceName": name, "ResourceType": kind} for kind, name in found if kind in (asked or kinds)]
    return {"ConfigResources": rows}


def incremental_alter_configs(cluster: Cluster, request: Request) -> Message:
    """Change some configurations of topics and brokers."""
    return {"Responses": _altered(cluster, request)}


def alter_configs(cluster: Cluster, request: Request) -> Message:
    """Replace all configurations of topics and brokers; those that are not named get their inherited values again."""
    return {"Responses": _altered(cluster, request)}


def _altered(cluster: Cluster, request: Request) -> list[Message]:
    """The rows of the response, one for each resource; each is altered whole or not at all."""
    given = Counter((row["ResourceType"], row["ResourceName"]) for row in request.row["Resources"])
    rows = []
    for row in request.row["Resources"]:
        resource = row["ResourceType"], row["ResourceName"]
        error, why = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        if given[resource] == 1:
            error, why = _alter_error(cluster, request, row)
        told = {"ErrorCode": error, "ErrorMessage": why or None}
        rows.append(told | {"ResourceType": resource[0], "ResourceName": resource[1]})
    return rows


def _alter_error(cluster: Cluster, request: Request, row: Message) -> tuple[ErrorCode, str]:
    try:
        _check_keys(row["Configs"])
        _alter(cluster, request, row)
    except Rejected as rejected:
        return rejected.code, rejected.why
    return ErrorCode.NONE, ""


def _check_keys(configs: Iterable[Message]) -> None:
    """Kafka: ConfigAdminManager.preprocess."""
    given = list(configs)
    lacking = [
        each["Name"]
        for each in given
        if each["Value"] is None and each.get("ConfigOperation", Operation.SET) != Operation.DELETE
    ]
    if lacking:
        raise Rejected(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(lacking)}")
    if len({each["Name"] for each in given}) < len(given):
        raise Rejected(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _changes(row: Message) -> list[Change]:
    """The changes that a request asks for a resource; AlterConfigs sets every name."""
    changes = []
    for each in row["Configs"]:
        number = each.get("ConfigOperation", Operation.SET)
        if number not in set(Operation):
            raise Rejected(ErrorCode.UNKNOWN_SERVER_ERROR)
        changes.append(Change(each["Name"], Operation(number), each["Value"]))
    return changes


def _alter(cluster: Cluster, request: Request, row: Message) -> None:
    """Alter a resource.

    Raises:
        Rejected: why not; nothing is altered.
    """
    kind, name, configs = row["ResourceType"], row["ResourceName"], cluster.configs
    if kind == TOPIC:
        _check_topic(cluster, name)
        known, before, broker = TOPIC_CONFIGS, configs.topics.get(name, {}), ALL_BROKERS
    elif kind == BROKER:
        if name != ALL_BROKERS and _number(name, "Node") != request.node:
            why = f"Unexpected broker id, expected {request.node}, but received {name}"
            raise Rejected(ErrorCode.INVALID_REQUEST, why)
        known, before, broker = DYNAMIC_BROKER_CONFIGS, configs.brokers.get(name, {}), name
    else:
        raise Rejected(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")

    def inherited(config: Config) -> str:
        synonyms = configs.broker_synonyms(config, broker)
        return synonyms[0].value if synonyms else config.default

    values = altered(known, before if request.api == "IncrementalAlterConfigs" else {}, inherited, _changes(row))
    (check_values if kind == TOPIC else _check_dynamic)(known, values)
    if not request.row["ValidateOnly"]:
        (cluster.alter_topic if kind == TOPIC else cluster.alter_broker)(name, values)


def _check_topic(cluster: Cluster, name: str) -> None:
    if not name:
        raise Rejected(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    cluster.check_name(name)
    if name not in cluster.topics:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_dynamic(known: Mapping[str, Config], values: Values) -> None:
    """Kafka: DynamicBrokerConfig.validate.

    Departs from Kafka, which accepts a name that it does not know, because plugins may; there are none here.
    """
    fixed = [name for name in values if name not in known]
    if fixed:
        why = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise Rejected(ErrorCode.INVALID_REQUEST, why)
    try:
        check_values(known, values)
    except Rejected as rejected:
        raise Rejected(ErrorCode.INVALID_REQUEST, rejected.why) from None
