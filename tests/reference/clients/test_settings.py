import importlib
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kafka_eos.clients import settings
from kafka_eos.clients.settings import (
    JAVA,
    JAVA_CONSUMER,
    JAVA_PRODUCER,
    LIBRDKAFKA_CONSUMER,
    LIBRDKAFKA_PRODUCER,
    STREAMS,
    Client,
    JavaClients,
    Kind,
    Number,
    ProducerSettings,
    RefusedSettings,
    Text,
    Word,
    commit_interval,
    idempotence_of_java,
    in_transactions,
    is_unchecked,
    producer_settings,
    read_c,
    read_c_float,
    read_java,
    refused_by_brokers,
    streams_values,
)
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.transaction_log import DEFAULT_MAX_TIMEOUT_MS
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, jars_folder
from kafka_eos_checks.kit.answering import Ask
from kafka_eos_checks.testing import vendored_settings
from kafka_eos_checks.testing.vendored_settings import java_clients

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "streams_settings.json").read_text())["vectors"]
RANDOM_ROWS = 200
SEED = 5

PRODUCER_WORDS = {
    "acks": ["all", "-1", "0", "1", "2", "1001"],
    "enable.idempotence": ["true", "false", "perhaps"],
    "retries": ["0", "1", "2147483647", "2147483648", "-1"],
    "max.in.flight.requests.per.connection": ["0", "1", "5", "6", "1000001"],
    "linger.ms": ["0", "5", "1000", "100000", "900001", "-1"],
    "batch.size": ["0", "1", "16384", "-1"],
    "buffer.memory": ["0", "33554432", "-1"],
    "max.block.ms": ["0", "60000", "-1"],
    "request.timeout.ms": ["0", "1", "1000", "30000", "900001"],
    "delivery.timeout.ms": ["0", "5", "1005", "30004", "30005", "60000", "60001", "120000", "-1"],
    "compression.type": ["none", "gzip", "zstd", "brotli"],
    "transactional.id": ["t", ""],
    "transaction.timeout.ms": ["-1", "0", "999", "1000", "60000"],
}
OF_JAVA_PRODUCER = {"transaction.two.phase.commit.enable": ["true", "false"]}
OF_NEWEST_PRODUCER = {
    **OF_JAVA_PRODUCER,
    "buffer.memory.allocation.strategy": ["full", "incremental", "Incremental"],
    "batch.size": ["16383"],
    "partitioner.rack.aware": ["true", "false"],
    "client.rack": ["a", " "],
    "bootstrap.resolve.timeout.ms": ["0", "1", "-1"],
}
OF_LIBRDKAFKA_PRODUCER = {
    "socket.timeout.ms": ["60000", "60100", "60101", "300001"],
    "queue.buffering.backpressure.threshold": ["1", "2"],
    "enable.gapless.guarantee": ["true", "false"],
    "queuing.strategy": ["fifo", "lifo"],
    "reconnect.backoff.ms": ["10", "10001"],
    "partition.assignment.strategy": ["sticky"],
}
CONSUMER_WORDS = {
    "group.id": ["g"],
    "group.protocol": ["classic", "consumer", "CONSUMER", "other"],
    "group.remote.assignor": ["uniform", ""],
    "partition.assignment.strategy": ["range", ""],
    "isolation.level": ["read_committed", "read_uncommitted", "serializable"],
    "enable.auto.commit": ["true", "false"],
    "auto.commit.interval.ms": ["-1", "0", "5000"],
    "auto.offset.reset": ["earliest", "latest", "none", "error"],
    "session.timeout.ms": ["0", "3000", "3001", "6000"],
    "heartbeat.interval.ms": ["-1", "0", "3000", "45000"],
    "max.poll.interval.ms": ["0", "1", "6000", "45000"],
}
OF_JAVA_SHARES = {"share.acquire.mode": "record_limit", "share.acknowledgement.mode": "implicit"}
OF_JAVA_CONSUMER = {
    "group.instance.id": ["a", "a,b", ".."],
    **{name: [word] for name, word in OF_JAVA_SHARES.items()},
}
OF_LIBRDKAFKA_CONSUMER = {
    "group.protocol.type": ["consumer", "other"],
    "partition.assignment.strategy": ["range, roundrobin", "cooperative-sticky", "range,cooperative-sticky", "sticky"],
    "fetch.min.bytes": ["0", "1", "100000001"],
    "fetch.max.bytes": ["999999", "1000000"],
    "receive.message.max.bytes": ["1000511", "1000512", "2048511", "2048512", "52429312", "52429311"],
    "queued.max.messages.kbytes": ["1", "2000"],
    "reconnect.backoff.max.ms": ["99", "100"],
}
ASSIGNORS = "partition.assignment.strategy"
FETCHED_ALONE = {"queued.max.messages.kbytes": "1", "receive.message.max.bytes": "2048512"}
NAMES_OF_JAVA = {ASSIGNORS: {"range": "org.apache.kafka.clients.consumer.RangeAssignor"}}

Row = dict[str, str]


def weak(client: Client) -> Client:
    """A client without its rules."""
    return replace(client, rules=())


def table(client: Client, words: Mapping[str, list[str]], others: Mapping[str, list[str]], always: Row) -> list[Row]:
    """Rows for a client: no setting, each single setting, then only settings that it takes by themselves.

    These come in all pairs, and in random rows of up to six settings. Other words make single settings and pairs.
    """
    of_both: dict[str, list[str]] = {name: list(choices) for name, choices in words.items()}
    for name, choices in others.items():
        of_both.setdefault(name, []).extend(choices)
    rows: list[Row] = [{}]
    rows += [{name: word} for name, choices in of_both.items() for word in choices]
    in_range = weak(client)
    ordinary = {
        name: taken
        for name, choices in of_both.items()
        if (taken := [word for word in choices if not in_range.refusal({name: word})])
    }
    for (one, ones), (other, rest) in itertools.combinations(ordinary.items(), 2):
        rows += [{one: first, other: second} for first in ones for second in rest]
    dice = random.Random(SEED)
    for _ in range(RANDOM_ROWS):
        names = dice.sample(sorted(ordinary), dice.randint(3, min(6, len(ordinary))))
        rows.append({name: dice.choice(ordinary[name]) for name in names})
    return [{**always, **row} for row in rows]


PRODUCERS, CONSUMERS = (JAVA_PRODUCER, LIBRDKAFKA_PRODUCER), (JAVA_CONSUMER, LIBRDKAFKA_CONSUMER)
GROUP = {"group.id": "g"}
NO_TIME = {**GROUP, "group.protocol": "consumer", "default.api.timeout.ms": "0"}
JAVA_PRODUCER_ROWS = table(JAVA_PRODUCER, PRODUCER_WORDS, OF_JAVA_PRODUCER, {})
NEWEST_PRODUCER_ROWS = table(JAVA["4.4"].producer, PRODUCER_WORDS, OF_NEWEST_PRODUCER, {})
LIBRDKAFKA_PRODUCER_ROWS = table(LIBRDKAFKA_PRODUCER, PRODUCER_WORDS, OF_LIBRDKAFKA_PRODUCER, {})
JAVA_CONSUMER_ROWS = table(JAVA_CONSUMER, CONSUMER_WORDS, OF_JAVA_CONSUMER, GROUP)
LIBRDKAFKA_CONSUMER_ROWS = table(LIBRDKAFKA_CONSUMER, CONSUMER_WORDS, OF_LIBRDKAFKA_CONSUMER, GROUP)

RACK, TWO_PHASES, STATIC = "partitioner.rack.aware", "transaction.two.phase.commit.enable", "group.instance.id"
ALLOCATION = "buffer.memory.allocation.strategy"
DELIVERY = {"linger.ms": "5", "request.timeout.ms": "1000"}
REFUSED_PRODUCERS: list[tuple[Row, tuple[str, ...]]] = [
    ({"enable.idempotence": "true", "retries": "0"}, ("retries", "enable.idempotence")),
    ({"enable.idempotence": "true", "acks": "0"}, ("acks", "enable.idempotence")),
    (
        {"max.in.flight.requests.per.connection": "6"},
        ("max.in.flight.requests.per.connection", "enable.idempotence"),
    ),
    ({"max.in.flight.requests.per.connection": "6", "enable.idempotence": "false"}, ()),
    ({"transactional.id": "t", "acks": "1"}, ("transactional.id", "enable.idempotence")),
    ({"transactional.id": "t", TWO_PHASES: "true"}, ()),
    ({"transaction.timeout.ms": "60000", TWO_PHASES: "false"}, ()),
    ({"transaction.timeout.ms": "60000", TWO_PHASES: "true"}, ("transaction.timeout.ms", TWO_PHASES)),
    ({**DELIVERY, "delivery.timeout.ms": "1005"}, ()),
    ({**DELIVERY, "delivery.timeout.ms": "1004"}, ("delivery.timeout.ms", "linger.ms", "request.timeout.ms")),
]
"""Settings of Java's producer, and those that its refusal names; none if it takes them."""
REFUSED_BY_NEWEST: list[tuple[Row, tuple[str, ...]]] = [
    ({RACK: "true"}, (RACK, "client.rack")),
    ({RACK: "true", "client.rack": "a"}, ()),
    ({RACK: "false", "client.rack": " "}, ()),
    ({ALLOCATION: "incremental", "compression.type": "gzip"}, (ALLOCATION, "compression.type")),
    ({ALLOCATION: "incremental", "compression.type": "gzip", "batch.size": "16383"}, ()),
    ({ALLOCATION: "full", "compression.type": "gzip"}, ()),
]
REFUSED_CONSUMERS: list[tuple[Row, tuple[str, ...]]] = [
    ({}, ()),
    ({"group.id": " "}, ("group.id",)),
    ({"group.id": ""}, ("group.id",)),
    ({STATIC: "a" * 249}, ()),
    *(({STATIC: name}, (STATIC,)) for name in ("a" * 250, "a,b", ".", "..", "\u00e4")),
    *(({name: word}, (name,)) for name, word in OF_JAVA_SHARES.items()),
    *(
        ({**GROUP, "group.protocol": protocol, name: word}, (name, "group.protocol") if protocol == refusing else ())
        for refusing, settings in (
            ("consumer", {"session.timeout.ms": "45000", "heartbeat.interval.ms": "3000", ASSIGNORS: "range"}),
            ("classic", {"group.remote.assignor": "uniform"}),
        )
        for name, word in settings.items()
        for protocol in ("classic", "consumer")
    ),
    ({"enable.auto.commit": "true"}, ("enable.auto.commit", "group.id")),
    ({"enable.auto.commit": "true", **GROUP}, ()),
    ({"enable.auto.commit": "false"}, ()),
    ({**GROUP, "session.timeout.ms": "3000"}, ("heartbeat.interval.ms", "session.timeout.ms")),
    ({**GROUP, "session.timeout.ms": "3001"}, ()),
    ({"session.timeout.ms": "3000"}, ()),
    ({**GROUP, "heartbeat.interval.ms": "-1"}, ("heartbeat.interval.ms",)),
    ({**GROUP, "heartbeat.interval.ms": "0"}, ()),
    ({"heartbeat.interval.ms": "-1"}, ()),
]
_IDEMPOTENT, _IN_FLIGHT = "enable.idempotence", "max.in.flight.requests.per.connection"
REFUSED_PRODUCERS_OF_LIBRDKAFKA: list[tuple[Row, tuple[str, ...]]] = [
    *(
        ({_IDEMPOTENT: "true", name: word}, (name, _IDEMPOTENT))
        for name, word in (
            (_IN_FLIGHT, "6"),
            ("retries", "0"),
            ("queue.buffering.backpressure.threshold", "2"),
            ("queuing.strategy", "lifo"),
            ("acks", "1"),
        )
    ),
    ({"transactional.id": "t", _IDEMPOTENT: "false"}, ("transactional.id", _IDEMPOTENT)),
    ({"transactional.id": "t", "socket.timeout.ms": "60101"}, ("socket.timeout.ms", "transaction.timeout.ms")),
    ({"transactional.id": "t", "delivery.timeout.ms": "60001"}, ("delivery.timeout.ms", "transaction.timeout.ms")),
    ({"enable.gapless.guarantee": "true"}, ("enable.gapless.guarantee", _IDEMPOTENT)),
    ({"reconnect.backoff.ms": "10001"}, ("reconnect.backoff.max.ms", "reconnect.backoff.ms")),
    ({ASSIGNORS: "sticky"}, (ASSIGNORS, "group.protocol.type")),
    ({"linger.ms": "400000", "acks": "all"}, ("delivery.timeout.ms", "linger.ms")),
]
REFUSED_CONSUMERS_OF_LIBRDKAFKA: list[tuple[Row, tuple[str, ...]]] = [
    ({}, ("group.id",)),
    *(
        (GROUP | {"group.protocol": "consumer", name: word}, (name, "group.protocol"))
        for name, word in (
            ("session.timeout.ms", "45000"),
            ("heartbeat.interval.ms", "3000"),
            (ASSIGNORS, ""),
            ("group.protocol.type", "consumer"),
        )
    ),
    (GROUP | {"max.poll.interval.ms": "6000"}, ("max.poll.interval.ms", "session.timeout.ms")),
    (GROUP | {"fetch.min.bytes": "0"}, ("fetch.min.bytes",)),
    (GROUP | {"fetch.max.bytes": "999999"}, ("fetch.max.bytes", "message.max.bytes")),
    (GROUP | {"receive.message.max.bytes": "1000511"}, ("receive.message.max.bytes", "fetch.max.bytes")),
]

NOT_COMPARED = {
    "default.api.timeout.ms",  # with the protocol of KIP-848 a short one is refused or not, by the machine's speed
    "delivery.report.only.error",  # confluent-kafka takes True and False only
    "log_level",  # the test has its own
}
TEXTS = ("transactional.id", "group.instance.id", "group.remote.assignor", "client.id", "group.protocol.type")


def compared(client: Client) -> dict[str, Kind]:
    """The settings of a client of which the words are judged whole."""
    return {
        name: kind
        for name, kind in client.kinds.items()
        if (name in TEXTS or not isinstance(kind, Text))
        and name not in NOT_COMPARED
        and not name.startswith(("sasl.", "ssl.", "security."))
    }


def words_of(kind: Kind) -> list[str]:
    """Words about a setting, most of which are in its range."""
    match kind:
        case Number(default, low, high):
            middle = (low + high) // 2
            bounds = map(str, (low - 1, low, low + 1, middle, high - 1, high, high + 1))
            return [default or "0", *bounds, "0", "1", "1000", "60000", "010", "0x10", "x"]
        case Word(_, words):
            known = sorted(word for word in words if ":" not in word)
            return [*known, *map(str.upper, known), "other"]
        case Text():
            return ["a", "consumer", "a,b", ""]


HOT = (
    "transactional.id",
    "enable.idempotence",
    "acks",
    "retries",
    "linger.ms",
    "delivery.timeout.ms",
    "group.protocol",
)


def drawn(client: Client, always: Row) -> list[Row]:
    """Random rows of all settings of a client; librdkafka's with its own names, too."""
    dice = random.Random(SEED)
    pool = compared(client)
    names = {real: [real] for real in pool}
    for alias, real in client.aliases.items():
        names.get(real, []).append(alias)
    rows = []
    for _ in range(RANDOM_ROWS):
        chosen = {*dice.sample(sorted(pool), dice.randint(1, 5)), *dice.sample(HOT, dice.randint(0, 3))} & pool.keys()
        row = {dice.choice(names[real]): dice.choice(words_of(pool[real])) for real in sorted(chosen)}
        in_range = {name: word for name, word in row.items() if not weak(client).refusal({name: word})}
        rows.append({**always, **(row if dice.random() < 0.1 else in_range)})
    return rows


def at_the_bounds(client: Client) -> list[Row]:
    """A number at its bounds and beyond, a default word in capitals, and an empty text, each as the only setting."""
    rows: list[Row] = []
    for name, kind in compared(client).items():
        match kind:
            case Number(default, low, high):
                rows += [{name: word} for word in (*map(str, (low - 1, low, high, high + 1)), default.upper(), "")]
                rows += [{name: f"+{high}"}, {name: f" {high} "}, {name: "010"}, {name: "0x1f"}, {name: "08"}]
            case Word(default):
                rows += [{name: word} for word in (default.upper(), "t", "F", "1", "0", "")]
            case Text():
                rows.append({name: ""})
    return rows


@pytest.fixture(scope="module", params=[KAFKA_VERSION, pytest.param(NEWEST, marks=pytest.mark.thorough)])
def kafka(request: pytest.FixtureRequest) -> str:
    """The release of Kafka's Java clients."""
    if request.param == NEWEST and not (jars_folder(NEWEST) / f"kafka-streams-{NEWEST}.jar").is_file():
        pytest.skip(f"the jars of Kafka {NEWEST} are not there; `make peers` fetches them")
    return str(request.param)


@pytest.fixture(scope="module")
def rules(kafka: str) -> JavaClients:
    """Our rules of the release."""
    return JAVA[kafka.rpartition(".")[0]]


@pytest.fixture(scope="module")
def ask_java(kafka: str) -> Iterator[Ask]:
    """Kafka's Java clients, started once for all tests."""
    with java_clients(kafka) as ask:
        yield ask


def java(ask: Ask, kind: str, rows: list[Row]) -> list[dict[str, Any]]:
    """The answer of Kafka's Java client to each row."""
    return ask(
        {kind: {name: NAMES_OF_JAVA.get(name, {}).get(word, word) for name, word in row.items()}} for row in rows
    )


def librdkafka(kind: str, row: Row) -> str | None:
    """librdkafka's answer to a row, None if it takes the row."""
    make: Callable[[Row], Any] = confluent_kafka.Producer if kind == "producer" else confluent_kafka.Consumer
    try:
        made = make({"log_level": "0", **row})
        if kind == "consumer":
            made.close()
    except confluent_kafka.KafkaException as refused:
        return str(refused.args[0].str())
    except ValueError as refused:
        return str(refused)
    return None


def read_by_streams(given: Row, rules: JavaClients) -> Row:
    """The isolation levels that we say the consumers of Kafka Streams have, as Java answers them."""
    values = streams_values(given, rules)
    consumers = {"main": values.main_consumer, "restore": values.restore_consumer}
    return {name: consumer.word("isolation.level") for name, consumer in consumers.items()}


def refused_by_streams(given: Row, rules: JavaClients = JAVA["4.3"]) -> RefusedSettings | None:
    """Why we say that Kafka Streams refuses these settings."""
    try:
        streams_values(given, rules)
    except RefusedSettings as refused:
        return refused
    return None


def wrong(refusal: Callable[[Row], RefusedSettings | None], rows: list[Row], said: list[str | None]) -> list[str]:
    """The rows on which a client and its rules disagree."""
    found = []
    for row, refused in zip(rows, said, strict=True):
        ours = refusal(row)
        if (ours is None) is not (refused is None):
            found.append(f"{row}: the client says {refused or 'yes'}, the rules {ours or 'yes'}")
    return found


def not_named(client: Client, rows: list[Row], said: list[str | None]) -> list[str]:
    """The rows of up to two settings whose refusal by the client names no setting that our refusal names."""
    found = []
    for row, refused in zip(rows, said, strict=True):
        ours = client.refusal(row)
        if ours is not None and refused is not None and len(row) <= 2:
            names = {*ours.settings, *(alias for alias, name in client.aliases.items() if name in ours.settings)}
            names |= {name.removesuffix(".ms").replace(".", " ") for name in ours.settings}
            names.add("Invalid negative timeout")  # a timer that does not know whose time it is
            if not any(name.lower() in refused.lower() for name in names):
                found.append(f"{row}: the client says {refused}, the rules {ours}")
    return found


SHARES = pytest.mark.parametrize("nth", [4, pytest.param(1, marks=pytest.mark.thorough)])
"""Java takes long for a client: each nth row of several settings that are taken."""


def thinned(rows: list[Row], client: Client, nth: int) -> list[Row]:
    """Of the rows of several settings that are taken, each nth; and all others."""
    several = [row for row in rows if len(row.keys() - GROUP.keys()) > 1 and client.refusal(row) is None]
    return [*(row for row in rows if row not in several), *several[::nth]]


@pytest.mark.java
@SHARES
@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_the_java_client_agrees_with_the_rules(kind: str, nth: int, rules: JavaClients, ask_java: Ask) -> None:
    client = rules.producer if kind == "producer" else rules.consumer
    rows = at_the_bounds(client)
    if kind == "producer":
        rows += JAVA_PRODUCER_ROWS if client is JAVA_PRODUCER else NEWEST_PRODUCER_ROWS
        refusals = REFUSED_PRODUCERS + (REFUSED_BY_NEWEST if client is not JAVA_PRODUCER else [])
    else:
        rows = [GROUP | row for row in rows] + JAVA_CONSUMER_ROWS + [{"enable.auto.commit": "TRUE"}]
        refusals = REFUSED_CONSUMERS
    rows += [row for row, _ in refusals]
    rows = thinned(rows, client, nth)
    answers = java(ask_java, kind, rows)
    said = [answer.get("refused") for answer in answers]
    assert not wrong(client.refusal, rows, said)
    assert not not_named(client, rows, said)
    if kind == "producer":
        for row, answer in zip(rows, answers, strict=True):
            if "refused" not in answer:
                made = producer_settings({name: word for name, word in row.items() if JAVA_PRODUCER.knows(name)})
                assert answer == {"acks": str(made.acks), "enable.idempotence": made.enable_idempotence}, row


@pytest.mark.parametrize(
    ("client", "refusals"),
    [
        (JAVA_PRODUCER, REFUSED_PRODUCERS),
        (JAVA["4.4"].producer, REFUSED_PRODUCERS + REFUSED_BY_NEWEST),
        (JAVA_CONSUMER, [*REFUSED_CONSUMERS, (NO_TIME, ("default.api.timeout.ms", "group.protocol"))]),
        (LIBRDKAFKA_PRODUCER, REFUSED_PRODUCERS_OF_LIBRDKAFKA),
        (LIBRDKAFKA_CONSUMER, REFUSED_CONSUMERS_OF_LIBRDKAFKA),
    ],
    ids=["producer", "producer of 4.4", "consumer", "producer of librdkafka", "consumer of librdkafka"],
)
def test_a_refusal_names_the_settings_that_it_is_about(
    client: Client, refusals: list[tuple[Row, tuple[str, ...]]]
) -> None:
    for row, named in refusals:
        refused = client.refusal(row)
        assert (refused.settings if refused else ()) == named, row


@pytest.mark.parametrize(
    ("kind", "client", "rows"),
    [
        ("producer", LIBRDKAFKA_PRODUCER, [*LIBRDKAFKA_PRODUCER_ROWS, *at_the_bounds(LIBRDKAFKA_PRODUCER)]),
        (
            "consumer",
            LIBRDKAFKA_CONSUMER,
            [
                *LIBRDKAFKA_CONSUMER_ROWS,
                *({"group.id": "g"} | row for row in at_the_bounds(LIBRDKAFKA_CONSUMER)),
                {"group.id": "g", "session.timeout.ms": "1", "max.poll.interval.ms": "1"},
                {"group.id": "g", **FETCHED_ALONE, "fetch.max.bytes": "3000000"},
                {"group.id": "g", **FETCHED_ALONE},
            ],
        ),
    ],
    ids=["producer", "consumer"],
)
def test_librdkafka_agrees_with_the_rules(kind: str, client: Client, rows: list[Row]) -> None:
    said = [librdkafka(kind, row) for row in rows]
    assert not wrong(client.refusal, rows, said)
    assert not not_named(client, rows, said)


@pytest.mark.java
@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "always"), [("producer", {}), ("consumer", GROUP)])
def test_the_java_client_agrees_with_the_rules_on_random_settings(
    kind: str, always: Row, rules: JavaClients, ask_java: Ask
) -> None:
    client = rules.producer if kind == "producer" else rules.consumer
    rows = drawn(client, always)
    assert not wrong(client.refusal, rows, [answer.get("refused") for answer in java(ask_java, kind, rows)])


@pytest.mark.parametrize(
    ("kind", "client", "always"), [("producer", LIBRDKAFKA_PRODUCER, {}), ("consumer", LIBRDKAFKA_CONSUMER, GROUP)]
)
def test_librdkafka_agrees_with_the_rules_on_random_settings(kind: str, client: Client, always: Row) -> None:
    rows = drawn(client, always)
    assert not wrong(client.refusal, rows, [librdkafka(kind, row) for row in rows])


EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2"}
_TOO_SHORT = ("delivery.timeout.ms", "linger.ms", "request.timeout.ms")
_BY_BOTH: list[tuple[Row, tuple[str, ...]]] = [
    ({}, ()),
    *(
        ({prefix + "enable.metrics.push": "true"}, (prefix + "enable.metrics.push",) if is_cast else ())
        for is_cast, prefixes in ((True, ("admin.", "consumer.", "main.consumer.")), (False, ("", "restore.consumer.")))
        for prefix in prefixes
    ),
    ({"processing.guarantee": "exactly_once"}, ("processing.guarantee",)),
    ({"processing.guarantee": "exactly_once_beta"}, ("processing.guarantee",)),
    ({"acks": "1"}, ()),
    ({"admin.default.api.timeout.ms": "29999"}, ("default.api.timeout.ms", "request.timeout.ms")),
    ({"bootstrap.resolve.timeout.ms": "-1"}, ()),
    ({"admin.bootstrap.resolve.timeout.ms": "-1", "producer.bootstrap.resolve.timeout.ms": "1"}, ()),
    ({"upgrade.from": "4.2"}, ()),
    *(
        ({"enable.transactional.statestores": "true", "processing.guarantee": guarantee, **others}, ())
        for guarantee in ("at_least_once", "exactly_once_v2")
        for others in ({}, {"default.interactive.query.isolation.level": "READ_committed"})
    ),
    ({"group.protocol": "streams", "consumer.heartbeat.interval.ms": "60000"}, ()),
    ({"consumer.group.protocol": "other"}, ()),
    ({"consumer.allow.auto.create.topics": ""}, ()),
    ({"main.consumer.enable.auto.commit": "other"}, ()),
    ({"main.consumer.group.id": ""}, ()),
    ({"restore.consumer.auto.offset.reset": ""}, ()),
    ({"restore.consumer.group.instance.id": "a,b"}, ()),
    ({"delivery.timeout.ms": "30099"}, _TOO_SHORT),  # the linger of Streams is 100
    ({"delivery.timeout.ms": "30100"}, ()),
    ({"producer.transactional.id": ""}, ("transactional.id",)),
    ({"producer.enable.idempotence": "true", "acks": "1"}, ("acks", "enable.idempotence")),
    *(
        (EXACTLY_ONCE | {name: word}, named)
        for name, word, named in (
            ("acks", "1", ("acks", "enable.idempotence")),
            ("producer.acks", "1", ("acks", "enable.idempotence")),
            ("retries", "0", ("retries", "enable.idempotence")),
            ("enable.idempotence", "false", ()),
            ("producer.transactional.id", "", ()),
            ("consumer.isolation.level", "other", ()),
            ("main.consumer.isolation.level", "other", ("isolation.level",)),
            ("restore.consumer.isolation.level", "other", ("isolation.level",)),
            ("transaction.timeout.ms", "99", ()),
            ("producer." + TWO_PHASES, "true", ("transaction.timeout.ms", TWO_PHASES)),
        )
    ),
]
_BY_ONE: list[tuple[Row, tuple[str, ...], tuple[str, ...]]] = [
    (
        {f"producer.{ALLOCATION}": "incremental", "compression.type": "gzip"},
        (),
        (ALLOCATION, "compression.type"),
    ),
    ({"upgrade.from": "4.3"}, ("upgrade.from",), ()),
    (
        {"default.interactive.query.isolation.level": "other"},
        (),
        ("default.interactive.query.isolation.level",),
    ),
    ({"statestore.uncommitted.max.bytes": "-2"}, (), ("statestore.uncommitted.max.bytes",)),
    ({"topology.description.push.enabled": "perhaps"}, (), ("topology.description.push.enabled",)),
    ({"group.protocol": "streams", f"consumer.{STATIC}": "a"}, (STATIC, "group.protocol"), ()),
]
REFUSED_BY_STREAMS = [*((row, named, named) for row, named in _BY_BOTH), *_BY_ONE]
"""Settings of Kafka Streams, and those that its refusal names in 4.3 and in 4.4; none if it takes them."""
STREAMS_ROWS = [row for row, *_ in REFUSED_BY_STREAMS]


def drawn_for_streams(rules: JavaClients) -> list[Row]:
    """Random rows of Kafka Streams, half of them with transactions."""
    dice = random.Random(SEED)
    pools = {
        ("",): rules.streams,
        ("", "producer."): rules.producer,
        ("", "consumer.", "main.consumer.", "restore.consumer."): rules.consumer,
    }
    ours = {"num.stream.threads", "processing.guarantee"}  # each thread makes its clients
    rows = []
    for _ in range(RANDOM_ROWS):
        row = {"processing.guarantee": dice.choice(("at_least_once", "exactly_once_v2"))}
        for _ in range(dice.randint(1, 5)):
            prefixes, client = dice.choice(list(pools.items()))
            name = dice.choice(sorted(compared(client).keys() - ours))
            taken = [word for word in words_of(client.kinds[name]) if not weak(client).refusal({name: word})]
            row[dice.choice(prefixes) + name] = dice.choice(taken)
        rows.append(row)
    return rows


@pytest.mark.parametrize(("release", "place"), [("4.3", 1), ("4.4", 2)])
def test_the_refusal_of_kafka_streams_names_its_settings(release: str, place: int) -> None:
    for refusal in REFUSED_BY_STREAMS:
        refused = refused_by_streams(refusal[0], JAVA[release])
        assert (refused.settings if refused else ()) == refusal[place], refusal[0]


@pytest.mark.java
@SHARES
def test_kafka_streams_agrees_with_the_rules(nth: int, rules: JavaClients, ask_java: Ask) -> None:
    rows = [*STREAMS_ROWS, *drawn_for_streams(rules)[::nth], *(vector["given"] | VECTOR_ALWAYS for vector in VECTORS)]
    answers = ask_java({"streams": row} for row in rows)
    said = [answer.get("refused") for answer in answers]
    assert not wrong(lambda row: refused_by_streams(row, rules), rows, said)
    for row, answer in zip(rows, answers, strict=True):
        if "refused" not in answer:
            assert answer == read_by_streams(row, rules), row


@pytest.mark.java
def test_kafka_streams_lets_its_users_read_uncommitted_in_exactly_once(ask_java: Ask) -> None:
    """The finding streams-reads-uncommitted: two prefixes override what the others cannot."""
    exactly_once = {"processing.guarantee": "exactly_once_v2"}
    prefixes = ("", "consumer.", "main.consumer.", "restore.consumer.")
    rows = [exactly_once | {prefix + "isolation.level": "read_uncommitted"} for prefix in prefixes]
    committed, uncommitted = "read_committed", "read_uncommitted"
    assert ask_java({"streams": row} for row in rows) == [
        *({"main": committed, "restore": committed} for _ in range(2)),
        {"main": uncommitted, "restore": committed},
        {"main": committed, "restore": uncommitted},
    ]


@pytest.mark.java
def test_the_known_settings_are_those_of_kafkas_clients_and_of_librdkafka(
    kafka: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ask_java: Ask,
) -> None:
    text = vendored_settings.TARGET.read_text(encoding="utf-8")
    vendored = json.loads(text)
    of_java = {KAFKA_VERSION: vendored["java"], NEWEST: whole_newest(vendored)}

    def answers(asked: str) -> Ask:
        """The answers of the release that runs, and for the other release those that the file has."""
        return (
            ask_java if asked == kafka else lambda questions: [of_java[asked][row["known"]["of"]] for row in questions]
        )

    monkeypatch.setattr(vendored_settings, "java_clients", lambda asked=KAFKA_VERSION: nullcontext(answers(asked)))
    monkeypatch.setattr(vendored_settings, "TARGET", tmp_path / "known.json")
    vendored_settings.main()
    assert (tmp_path / "known.json").read_text(encoding="utf-8") == text
    assert "known.json" in capsys.readouterr().out


def whole_newest(vendored: dict[str, Any]) -> dict[str, Any]:
    """The settings of the newest release, of which the file has those that the release before does not have."""
    return {
        client: {**vendored["java"][client], **vendored["java_newest"][client]}
        for client in vendored_settings.JAVA_CLIENTS
    }


def test_a_setting_that_the_newest_release_no_longer_has_is_not_passed_over() -> None:
    vendored = json.loads(vendored_settings.TARGET.read_text(encoding="utf-8"))
    fewer = whole_newest(vendored)
    del fewer["consumer"]["group.id"]
    with pytest.raises(AssertionError, match=r"consumer: 4\.4\.0 has fewer settings"):
        vendored_settings.of_newest(lambda rows: [fewer[row["known"]["of"]] for row in rows], vendored["java"])


def test_the_clients_of_the_newest_release_differ_from_those_before_where_they_do() -> None:
    before, newest = JAVA.values()
    assert (before.release, newest.release) == (KAFKA_VERSION.rpartition(".")[0], NEWEST.rpartition(".")[0])
    vendored = json.loads(vendored_settings.TARGET.read_text(encoding="utf-8"))
    changed = {
        name
        for client in vendored_settings.JAVA_CLIENTS
        for name in vendored["java_newest"][client]
        if name in vendored["java"][client]
    }
    assert changed == {"upgrade.from"}
    incremental = {"buffer.memory.allocation.strategy": "incremental"}
    static = {"group.protocol": "streams", "group.instance.id": "a"}
    assert newest.producer.refusal(incremental) is None
    for codec in ("gzip", "lz4", "snappy", "zstd"):
        assert newest.producer.refusal(incremental | {"compression.type": codec}) is not None
    for size, is_accepted in (("16383", True), ("16384", False), ("65536", False)):
        large = {"compression.type": "gzip", "batch.size": size}
        assert (newest.producer.refusal(incremental | large) is None) == is_accepted
    assert newest.producer.refusal({"partitioner.rack.aware": "true", "client.rack": " "}) is not None
    assert newest.producer.refusal({"partitioner.rack.aware": "true", "client.rack": "a"}) is None
    assert [refused_by_streams(static, rules) is None for rules in (before, newest)] == [False, True]
    assert [refused_by_streams({"upgrade.from": "4.3"}, rules) is None for rules in (before, newest)] == [False, True]
    for rules in (before, newest):
        assert refused_by_streams(VECTOR_ALWAYS | {"commit.interval.ms": "10000"}, rules) is None
        assert refused_by_streams(VECTOR_ALWAYS | {"commit.interval.ms": "10001"}, rules) is not None
        assert refused_by_streams(VECTOR_ALWAYS | {"max.in.flight.requests.per.connection": "6"}, rules) is not None
    assert refused_by_streams({"bootstrap.resolve.timeout.ms": "-1"}, newest) is None
    assert newest.producer.refusal({"bootstrap.resolve.timeout.ms": "-1"}) is not None


def test_the_known_settings_are_written_by_the_script_only(capsys: pytest.CaptureFixture[str]) -> None:
    importlib.reload(vendored_settings)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("word", "of_java", "of_c", "of_c_float"),
    [
        ("10", 10, 10, 10.0),
        (" +10 ", 10, 10, 10.0),
        ("010", 10, 8, 10.0),
        ("08", 8, 0, 8.0),
        ("0x1F", None, 31, 31.0),
        ("0X1f", None, 31, 31.0),
        ("5ms", None, 5, 5.0),
        ("-.5", None, None, -0.5),
        ("1e3", None, 1, 1000.0),
        ("4294967297", 4294967297, 1, 4294967297.0),
        ("99999999999999999999", 99999999999999999999, -1, 1e20),
        ("", None, None, None),
        ("x", None, None, None),
        ("\u0663", 3, None, None),
    ],
)
def test_each_client_reads_numbers_in_its_own_way(
    word: str, of_java: int | None, of_c: int | None, of_c_float: float | None
) -> None:
    assert (read_java(word), read_c(word), read_c_float(word)) == (of_java, of_c, of_c_float)


@pytest.mark.parametrize("word", ["random", "murmur2_random", "random2", "RANDOM", "random ", ""])
def test_librdkafka_takes_the_partitioners_that_it_describes(word: str) -> None:
    row = {"partitioner": word}
    assert (LIBRDKAFKA_PRODUCER.refusal(row) is None) is (librdkafka("producer", row) is None)


def test_librdkafka_requires_a_group_for_a_consumer() -> None:
    assert "group.id" in (librdkafka("consumer", {}) or "")
    refused = LIBRDKAFKA_CONSUMER.refusal({})
    assert refused is not None
    assert refused.settings == ("group.id",)


@pytest.mark.parametrize(
    ("client", "rows"),
    [
        (JAVA_PRODUCER, JAVA_PRODUCER_ROWS),
        (LIBRDKAFKA_PRODUCER, LIBRDKAFKA_PRODUCER_ROWS),
        (JAVA_CONSUMER, [*JAVA_CONSUMER_ROWS, {"group.id": ""}, {"enable.auto.commit": "true"}, NO_TIME]),
        (LIBRDKAFKA_CONSUMER, [*LIBRDKAFKA_CONSUMER_ROWS, {}]),
    ],
    ids=["Java's producer", "librdkafka's producer", "Java's consumer", "librdkafka's consumer"],
)
def test_without_one_of_its_rules_a_client_would_take_a_row_that_it_refuses(client: Client, rows: list[Row]) -> None:
    for rule in client.rules:
        weaker = replace(client, rules=tuple(other for other in client.rules if other is not rule))
        assert any(client.refusal(row) and not weaker.refusal(row) for row in rows), rule.settings


IDEMPOTENT = {"enable.idempotence": "true"}
TRANSACTIONAL = {"transactional.id": "t"}


@pytest.mark.parametrize(
    ("given", "by_java", "by_librdkafka"),
    [
        ({**IDEMPOTENT, "acks": "1"}, True, True),
        ({**IDEMPOTENT, "retries": "0"}, True, True),
        ({**IDEMPOTENT, "max.in.flight.requests.per.connection": "6"}, True, True),
        ({**TRANSACTIONAL, "enable.idempotence": "false"}, True, True),
        ({**TRANSACTIONAL, "acks": "1"}, True, True),
        ({**TRANSACTIONAL, "retries": "0"}, True, True),
        # where they differ
        ({"max.in.flight.requests.per.connection": "6"}, True, False),
        ({"acks": "2"}, True, False),
        ({"transactional.id": ""}, True, False),
        ({"delivery.timeout.ms": "1000"}, True, False),
        ({"delivery.timeout.ms": "0"}, True, False),
        ({**TRANSACTIONAL, "delivery.timeout.ms": "60001"}, False, True),
        ({"linger.ms": "400000"}, False, False),
        ({"linger.ms": "400000", "acks": "all"}, False, True),
        ({**TRANSACTIONAL, "transaction.timeout.ms": "999"}, False, True),
        ({"request.timeout.ms": "0"}, False, True),
        ({"batch.size": "0"}, False, True),
        ({"linger.ms": "900001"}, False, True),
        ({"buffer.memory": "33554432"}, False, True),
        ({"max.block.ms": "0"}, False, True),
    ],
)
def test_where_the_clients_agree_and_where_they_differ(given: Row, by_java: bool, by_librdkafka: bool) -> None:
    assert (JAVA_PRODUCER.refusal(given) is not None) is by_java
    assert (LIBRDKAFKA_PRODUCER.refusal(given) is not None) is by_librdkafka


@pytest.mark.parametrize(
    ("given", "by_java", "by_librdkafka"),
    [
        ({"isolation.level": "serializable", "group.id": "g"}, True, True),
        ({"group.id": "g", "group.protocol": "consumer", "session.timeout.ms": "6000"}, True, True),
        ({"group.id": "g", "heartbeat.interval.ms": "45000"}, True, False),
        ({"group.id": "g", "group.remote.assignor": "uniform"}, True, False),
        ({"group.id": "g", "heartbeat.interval.ms": "-1"}, True, True),
        ({"heartbeat.interval.ms": "-1"}, False, True),
        ({"group.id": "g", "group.protocol": "consumer", "partition.assignment.strategy": ""}, False, True),
        ({"group.id": "g", "enable.auto.commit": "F"}, True, False),
        ({"group.id": "g", "isolation.level": "READ_COMMITTED"}, True, False),
        ({"group.id": "g", "auto.offset.reset": "error"}, True, False),
        ({"group.id": "g", "auto.offset.reset": "by_duration:P1D"}, False, True),
        ({"group.id": "g", "isolation.level": "by_duration:P1D"}, True, True),
        ({"group.id": "g", "auto.offset.reset": "none"}, False, True),
        ({"group.id": "g", "max.poll.interval.ms": "6000"}, False, True),
        ({}, False, True),
        ({"enable.auto.commit": "true"}, True, True),
        ({"enable.auto.commit": "true", "group.id": "g"}, False, False),
        ({"enable.auto.commit": "false"}, False, True),
    ],
)
def test_where_consumers_agree_and_where_they_differ(given: Row, by_java: bool, by_librdkafka: bool) -> None:
    assert (JAVA_CONSUMER.refusal(given) is not None) is by_java
    assert (LIBRDKAFKA_CONSUMER.refusal(given) is not None) is by_librdkafka


def test_a_producer_has_the_defaults_of_the_java_client() -> None:
    made = producer_settings({})
    assert made == ProducerSettings(
        acks=-1,
        enable_idempotence=True,
        retries=(1 << 31) - 1,
        max_in_flight_requests_per_connection=5,
        linger_ms=5,
        batch_size=16_384,
        buffer_memory=32 << 20,
        max_block_ms=60_000,
        request_timeout_ms=30_000,
        delivery_timeout_ms=120_000,
        compression_type=CompressionType.NONE,
        transactional_id=None,
        transaction_timeout_ms=60_000,
    )
    assert producer_settings(TRANSACTIONAL) == replace(made, transactional_id="t")


def test_acks_are_numbers_and_one_retry_leaves_idempotence_on() -> None:
    assert [producer_settings({"acks": word}).acks for word in ("0", "1", "-1", "all")] == [0, 1, -1, -1]
    assert producer_settings({"retries": "1"}).enable_idempotence


@pytest.mark.parametrize(
    ("timeout", "why"),
    [
        (-1, "every broker refuses transaction.timeout.ms=-1"),
        (0, "every broker refuses transaction.timeout.ms=0"),
        (1, ""),
        (DEFAULT_MAX_TIMEOUT_MS, ""),
        (DEFAULT_MAX_TIMEOUT_MS + 1, "a broker refuses transaction.timeout.ms=900001 unless"),
    ],
)
def test_brokers_take_timeouts_of_transactions_above_zero_and_up_to_their_limit(timeout: int, why: str) -> None:
    given = {"transaction.timeout.ms": str(timeout)}
    assert refused_by_brokers(JAVA_PRODUCER.values(TRANSACTIONAL | given)).startswith(why)
    assert bool(refused_by_brokers(JAVA_PRODUCER.values(TRANSACTIONAL | given))) is bool(why)
    assert refused_by_brokers(JAVA_PRODUCER.values(given)) == "", "it has no transactions"


def test_what_a_client_knows_uses_and_refuses() -> None:
    for producer, consumer, strict in (
        (JAVA_PRODUCER, JAVA_CONSUMER, False),
        (LIBRDKAFKA_PRODUCER, LIBRDKAFKA_CONSUMER, True),
    ):
        for client, own, other in ((producer, "linger.ms", "isolation.level"), (consumer, "isolation.level", "acks")):
            assert client.knows(own)
            assert client.uses(own)
            assert not client.uses(other)
            assert not client.knows("linger.sm")
            assert not client.uses("linger.sm")
            assert client.refuses_unknown is strict


def test_a_setting_of_librdkafka_has_the_name_of_java_if_java_has_one_and_else_its_first() -> None:
    known = json.loads(vendored_settings.TARGET.read_text(encoding="utf-8"))
    of_java = known["java"]["producer"].keys() | known["java"]["consumer"].keys()
    for alias, name in known["librdkafka"]["aliases"].items():
        real = LIBRDKAFKA_PRODUCER.real(alias)
        assert real == LIBRDKAFKA_PRODUCER.real(name)
        assert real in of_java or real == name


@pytest.mark.parametrize(
    ("client", "name", "is_more"),
    [
        (JAVA_PRODUCER, "client.id", False),
        (JAVA_PRODUCER, "transactional.id", False),
        (JAVA["4.4"].producer, "client.rack", False),
        (JAVA_CONSUMER, "group.id", False),
        (JAVA_CONSUMER, "group.instance.id", False),
        (JAVA_CONSUMER, "group.remote.assignor", False),
        (JAVA_PRODUCER, "linger.ms", False),
        (JAVA_PRODUCER, "key.serializer", True),
        (JAVA_PRODUCER, "bootstrap.servers", True),
        (JAVA_PRODUCER, "ssl.protocol", True),
        (JAVA_PRODUCER, "security.protocol", True),
        (JAVA_CONSUMER, "partition.assignment.strategy", True),
        (LIBRDKAFKA_CONSUMER, "partition.assignment.strategy", False),
        (LIBRDKAFKA_CONSUMER, "group.protocol.type", False),
        (LIBRDKAFKA_CONSUMER, "group.id", False),
        (LIBRDKAFKA_CONSUMER, "sasl.mechanisms", True),
        (STREAMS, "application.id", False),
        (STREAMS, "state.dir", True),
        (LIBRDKAFKA_CONSUMER, "sasl.oauthbearer.method", True),
        (LIBRDKAFKA_CONSUMER, "ssl.endpoint.identification.algorithm", True),
    ],
)
def test_files_classes_addresses_and_logins_are_more_than_their_form(client: Client, name: str, is_more: bool) -> None:
    assert client.knows(name)
    assert is_unchecked(client, name) is is_more


def test_kafka_streams_knows_its_own_settings_and_those_of_its_clients() -> None:
    for name in ("num.stream.threads", "linger.ms", "producer.linger.ms", "admin.default.api.timeout.ms"):
        assert JAVA["4.3"].known_to_streams(name)
        assert not JAVA["4.3"].is_unchecked_by_streams(name)
    for name in ("no.such.thing", "producer.num.stream.threads"):
        assert not JAVA["4.3"].known_to_streams(name)
    for name in ("topic.retention.ms", "global.consumer.group.id", "state.dir", "consumer.ssl.protocol"):
        assert JAVA["4.3"].is_unchecked_by_streams(name)


@pytest.mark.parametrize(
    ("given", "is_refused"),
    [
        ({"group.protocol": "streams"}, False),
        ({"group.instance.id": "a"}, False),
        ({"group.instance.id": "a", "group.protocol": "streams"}, True),
        ({"consumer.group.instance.id": "a", "group.protocol": "streams"}, True),
        ({"heartbeat.interval.ms": "45000"}, True),
        ({"heartbeat.interval.ms": "45000", "group.protocol": "streams"}, False),
        ({"admin.request.timeout.ms": "60000"}, False),
        ({"admin.request.timeout.ms": "60001"}, False),
        ({"admin.default.api.timeout.ms": "30000"}, False),
        ({"admin.default.api.timeout.ms": "30001"}, False),
        ({"admin.default.api.timeout.ms": "29999"}, True),
        ({"producer.max.in.flight.requests.per.connection": "5"} | EXACTLY_ONCE, False),
        ({"producer.max.in.flight.requests.per.connection": "6"} | EXACTLY_ONCE, True),
        ({"producer.enable.idempotence": "false"} | EXACTLY_ONCE, False),
    ],
)
def test_kafka_streams_refuses_what_it_or_one_of_its_clients_refuses(given: Row, is_refused: bool) -> None:
    assert (refused_by_streams(given) is not None) is is_refused


def test_too_many_requests_in_flight_are_refused_for_the_guarantee_with_the_prefix_too() -> None:
    for prefix in ("", "producer."):
        refused = refused_by_streams(EXACTLY_ONCE | {f"{prefix}max.in.flight.requests.per.connection": "6"})
        assert refused is not None
        assert refused.settings == ("max.in.flight.requests.per.connection", "processing.guarantee")


def test_consumers_of_kafka_streams_read_committed_data_with_transactions_unless_they_are_told_otherwise() -> None:
    read = {"main": "read_committed", "restore": "read_committed"}
    assert read_by_streams({}, JAVA["4.3"]) == dict.fromkeys(read, "read_uncommitted")
    assert read_by_streams(EXACTLY_ONCE, JAVA["4.3"]) == read
    for prefix, of_main, of_restore in (
        ("consumer.", "read_committed", "read_committed"),
        ("main.consumer.", "read_uncommitted", "read_committed"),
        ("restore.consumer.", "read_committed", "read_uncommitted"),
    ):
        found = read_by_streams(EXACTLY_ONCE | {f"{prefix}isolation.level": "read_uncommitted"}, JAVA["4.3"])
        assert found == {"main": of_main, "restore": of_restore}, prefix


def test_the_last_prefix_of_a_setting_wins_in_any_order_of_the_settings() -> None:
    given = {f"{prefix}max.poll.records": word for prefix, word in (("", "1"), ("consumer.", "2"))}
    rows = [dict(row) for row in itertools.permutations([*given.items(), ("main.consumer.max.poll.records", "3")])]
    found = [streams_values(row) for row in rows]
    assert {values.main_consumer.number("max.poll.records") for values in found} == {3}
    assert {values.restore_consumer.number("max.poll.records") for values in found} == {2}


def test_acks_or_retries_turn_idempotence_off_unless_it_is_set() -> None:
    for given in ({"acks": "1"}, {"acks": "0"}, {"retries": "0"}):
        assert not producer_settings(given).enable_idempotence
        assert not idempotence_of_java(JAVA_PRODUCER.values(given))
        with pytest.raises(RefusedSettings, match=next(iter(given))):
            producer_settings({**given, **IDEMPOTENT})


def test_a_default_delivery_timeout_grows_with_linger_and_request_timeout() -> None:
    assert producer_settings({"linger.ms": "200000"}).delivery_timeout_ms == 230_000
    with pytest.raises(RefusedSettings, match="the time to wait"):
        producer_settings({"linger.ms": "200000", "delivery.timeout.ms": "229999"})


def test_a_linger_beyond_32_bits_is_cut_to_the_longest_one() -> None:
    assert producer_settings({"linger.ms": "3000000000"}).linger_ms == 2**31 - 1


def test_a_refusal_names_the_settings_the_reason_and_the_source() -> None:
    with pytest.raises(RefusedSettings) as caught:
        producer_settings({"acks": "1", "enable.idempotence": "true"})
    assert caught.value.settings == ("acks", "enable.idempotence")
    assert caught.value.why == "an idempotent producer waits for all in-sync replicas"
    assert str(caught.value) == (
        "acks, enable.idempotence: an idempotent producer waits for all in-sync replicas "
        "(ProducerConfig.postProcessAndValidateIdempotenceConfigs)"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"linger.sm": "5"}, "there is no such setting"),
        ({"retries": "many"}, "'many' is no whole number"),
        ({"retries": "1_000"}, "'1_000' is no whole number"),
        ({"retries": "-1"}, "'-1' is not between 0 and 2147483647"),
        ({"acks": "some"}, "none of -1, 0, 1, all"),
        ({"transactional.id": ""}, "is empty"),
    ],
)
def test_an_unknown_setting_is_refused(given: Row, why: str) -> None:
    with pytest.raises(RefusedSettings, match=why) as refused:
        producer_settings(given)
    assert (refused.value.settings, refused.value.source) == ((*given,), "ProducerConfig.CONFIG")


VECTOR_ALWAYS = {"processing.guarantee": "exactly_once_v2"}


@pytest.mark.parametrize("vector", VECTORS, ids=[json.dumps(vector["given"]) for vector in VECTORS])
def test_streams_with_transactions_is_refused_as_kafka_refuses_it(vector: dict[str, Any]) -> None:
    given = vector["given"] | VECTOR_ALWAYS
    if "refused" in vector:
        with pytest.raises(RefusedSettings):
            streams_values(given)
    else:
        made = streams_values(given)
        assert in_transactions(made.own)
        assert commit_interval(made.own) == vector["commit_interval_ms"]
        assert made.producer.number("transaction.timeout.ms") == vector["transaction_timeout_ms"]
        assert idempotence_of_java(made.producer)


def test_without_one_of_its_rules_kafka_streams_would_take_settings_that_it_refuses() -> None:
    rows = [*STREAMS_ROWS, *(vector["given"] | VECTOR_ALWAYS for vector in VECTORS)]
    for rule in STREAMS.rules:
        weaker = replace(STREAMS, rules=(rule,))
        known = [{name: word for name, word in row.items() if name in STREAMS.kinds} for row in rows]
        assert any(weaker.refusal(row) for row in [*known, {"group.instance.id": "a", "group.protocol": "streams"}])


def test_every_rule_names_its_source() -> None:
    parts = (part.client for java in JAVA.values() for part in java.parts)
    clients = (JAVA_PRODUCER, LIBRDKAFKA_PRODUCER, JAVA_CONSUMER, LIBRDKAFKA_CONSUMER, STREAMS, *parts)
    for rule in (rule for client in clients for rule in client.rules):
        assert re.fullmatch(
            r"[A-Z]\w+(\.\w+)?|rdkafka\w*\.c: rd_kafka_\w+(, as confluent-kafka calls it)?", rule.source
        )
        assert re.match(r"[a-z]+ [a-z]|Kafka Streams ", rule.why), rule.why
    assert all(name in client.kinds for client in clients for rule in client.rules for name in rule.settings)
    assert settings.MAX_IN_FLIGHT_WITH_IDEMPOTENCE == 5


@pytest.mark.parametrize(
    ("size", "is_accepted"), [("0", False), ("1", True), ("100000000", True), ("100000001", False)]
)
def test_the_bounds_of_fetch_min_bytes_are_accepted(size: str, is_accepted: bool) -> None:
    given = {"group.id": "g", "fetch.min.bytes": size}
    assert (LIBRDKAFKA_CONSUMER.refusal(given) is None) == is_accepted
