import ctypes
import itertools
import json
import random
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kafka_eos.clients import settings
from kafka_eos.clients.settings import (
    JAVA_CONSUMER,
    JAVA_PRODUCER,
    LIBRDKAFKA_CONSUMER,
    LIBRDKAFKA_PRODUCER,
    PROCESSOR,
    Client,
    Number,
    ProducerSettings,
    RefusedSettings,
    Text,
    Word,
    idempotence_of_java,
    processor_settings,
    producer_settings,
)
from kafka_eos.formats.compression import CompressionType
from kafka_eos_checks.brokers.jars import need_jars

JAVA_SOURCE = Path(__file__).parents[2] / "java" / "ClientSettings.java"
STREAMS = json.loads((Path(__file__).parents[2] / "vectors" / "streams_settings.json").read_text())["vectors"]
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
NAMES_OF_JAVA = {"partition.assignment.strategy": {"range": "org.apache.kafka.clients.consumer.RangeAssignor"}}
NAMES_OF_LIBRDKAFKA = {
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
    "retries": "message.send.max.retries",
    "acks": "request.required.acks",
    "compression.type": "compression.codec",
    "max.in.flight.requests.per.connection": "max.in.flight",
}

Row = dict[str, str]


def table(words: Mapping[str, list[str]], clients: tuple[Client, Client], always: Mapping[str, str]) -> list[Row]:
    """Rows for both clients: no setting, each single setting, then only settings that both take by themselves.

    These come in all pairs, and in random rows of up to six settings.
    """
    rows: list[Row] = [{}]
    rows += [{name: word} for name, choices in words.items() for word in choices]
    in_range = [Client(client.kinds, client.source, ()) for client in clients]
    ordinary = {
        name: taken
        for name, choices in words.items()
        if (taken := [word for word in choices if not any(client.refusal({name: word}) for client in in_range)])
    }
    for (one, ones), (other, others) in itertools.combinations(ordinary.items(), 2):
        rows += [{one: first, other: second} for first in ones for second in others]
    dice = random.Random(SEED)
    for _ in range(RANDOM_ROWS):
        names = dice.sample(sorted(ordinary), dice.randint(3, min(6, len(ordinary))))
        rows.append({name: dice.choice(ordinary[name]) for name in names})
    return [{**always, **row} for row in rows]


PRODUCERS, CONSUMERS = (JAVA_PRODUCER, LIBRDKAFKA_PRODUCER), (JAVA_CONSUMER, LIBRDKAFKA_CONSUMER)
PRODUCER_ROWS = table(PRODUCER_WORDS, PRODUCERS, {})
CONSUMER_ROWS = table(CONSUMER_WORDS, CONSUMERS, {"group.id": "g"})


def at_the_bounds(client: Client) -> list[Row]:
    """A number at its bounds and beyond, a default word in capitals, and an empty text, each as the only setting."""
    rows: list[Row] = []
    for name, kind in client.kinds.items():
        match kind:
            case Number(default, low, high):
                rows += [{name: word} for word in (*map(str, (low - 1, low, high, high + 1)), str(default).upper(), "")]
                rows += [{name: f"+{high}"}, {name: f" {high} "}]
            case Word(default):
                rows += [{name: word} for word in (default.upper(), "t", "F", "1", "0", "")]
            case Text() if name != "group.id":  # confluent-kafka ends the process if it is empty
                rows.append({name: ""})
    return rows


def java(kind: str, rows: list[Row]) -> list[dict[str, Any]]:
    """The answer of Kafka's Java client to each row; of kind ``defaults`` to the kind that is named."""

    def named(row: Row) -> Row:
        return {name: NAMES_OF_JAVA.get(name, {}).get(word, word) for name, word in row.items()}

    done = subprocess.run(
        ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{need_jars()}/*", str(JAVA_SOURCE)],
        input="".join(json.dumps({kind: named(row)}) + "\n" for row in rows),
        capture_output=True,
        check=True,
        text=True,
        timeout=240,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


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


def default_of_librdkafka(name: str) -> str:
    """librdkafka's default of a setting, of its topics if it is one of theirs."""
    [path] = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    library = ctypes.CDLL(str(path))
    for of in ("conf", "topic_conf"):
        make, get = getattr(library, f"rd_kafka_{of}_new"), getattr(library, f"rd_kafka_{of}_get")
        make.restype = ctypes.c_void_p
        get.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]
        value = ctypes.create_string_buffer(200)
        if get(make(), name.encode(), value, ctypes.byref(ctypes.c_size_t(len(value)))) == 0:
            return value.value.decode()
    raise AssertionError(f"librdkafka has no {name}")


def defaults(client: Client) -> dict[str, str]:
    """The defaults of a client's numbers and words."""
    return {name: str(kind.default) for name, kind in client.kinds.items() if not isinstance(kind, Text)}


def wrong(client: Client, rows: list[Row], said: list[str | None]) -> list[str]:
    """The rows on which a client and its rules disagree."""
    found = []
    for row, refused in zip(rows, said, strict=True):
        ours = client.refusal(row)
        if (ours is None) is not (refused is None):
            found.append(f"{row}: the client says {refused or 'yes'}, the rules {ours or 'yes'}")
    return found


def not_named(client: Client, rows: list[Row], said: list[str | None]) -> list[str]:
    """The rows of up to two settings whose refusal by the client names no setting that our refusal names."""
    found = []
    for row, refused in zip(rows, said, strict=True):
        ours = client.refusal(row)
        if ours is not None and refused is not None and len(row) <= 2:
            names = {*ours.settings, *(NAMES_OF_LIBRDKAFKA.get(name, name) for name in ours.settings)}
            names |= {name.removesuffix(".ms").replace(".", " ") for name in ours.settings}
            names.add("Invalid negative timeout")  # a timer that does not know whose time it is
            if not any(name in refused for name in names):
                found.append(f"{row}: the client says {refused}, the rules {ours}")
    return found


@pytest.mark.java
@pytest.mark.parametrize(
    ("kind", "client", "rows"),
    [
        ("producer", JAVA_PRODUCER, [*PRODUCER_ROWS, *at_the_bounds(JAVA_PRODUCER)]),
        (
            "consumer",
            JAVA_CONSUMER,
            [
                *(*CONSUMER_ROWS, {}, {"enable.auto.commit": "true"}, {"enable.auto.commit": "TRUE"}),
                *({"group.id": "g"} | row for row in at_the_bounds(JAVA_CONSUMER)),
            ],
        ),
    ],
    ids=["producer", "consumer"],
)
def test_the_java_client_agrees_with_the_rules(kind: str, client: Client, rows: list[Row]) -> None:
    answers = java(kind, rows)
    said = [answer.get("refused") for answer in answers]
    assert not wrong(client, rows, said)
    assert not not_named(client, rows, said)
    if kind == "producer":
        for row, answer in zip(rows, answers, strict=True):
            if "refused" not in answer:
                made = producer_settings(row)
                assert answer == {"acks": str(made.acks), "enable.idempotence": made.enable_idempotence}, row


@pytest.mark.parametrize(
    ("kind", "client", "rows"),
    [
        ("producer", LIBRDKAFKA_PRODUCER, [*PRODUCER_ROWS, *at_the_bounds(LIBRDKAFKA_PRODUCER)]),
        (
            "consumer",
            LIBRDKAFKA_CONSUMER,
            [
                *CONSUMER_ROWS,
                *({"group.id": "g"} | row for row in at_the_bounds(LIBRDKAFKA_CONSUMER)),
                {"group.id": "g", "session.timeout.ms": "1", "max.poll.interval.ms": "1"},
            ],
        ),
    ],
    ids=["producer", "consumer"],
)
def test_librdkafka_agrees_with_the_rules(kind: str, client: Client, rows: list[Row]) -> None:
    said = [librdkafka(kind, row) for row in rows]
    assert not wrong(client, rows, said)
    assert not not_named(client, rows, said)


@pytest.mark.java
@pytest.mark.parametrize(("kind", "client"), [("producer", JAVA_PRODUCER), ("consumer", JAVA_CONSUMER)])
def test_the_defaults_are_those_of_the_java_client(kind: str, client: Client) -> None:
    [answer] = java("defaults", [{"of": kind}])
    assert {name: answer[name] for name in defaults(client)} == defaults(client)


@pytest.mark.parametrize("client", [LIBRDKAFKA_PRODUCER, LIBRDKAFKA_CONSUMER], ids=["producer", "consumer"])
def test_the_defaults_are_those_of_librdkafka(client: Client) -> None:
    ours = defaults(client)
    assert {name: default_of_librdkafka(name).replace("-1", "all") for name in ours} == ours


def test_librdkafka_requires_a_group_for_a_consumer() -> None:
    assert "group.id" in (librdkafka("consumer", {}) or "")
    refused = LIBRDKAFKA_CONSUMER.refusal({})
    assert refused is not None
    assert refused.settings == ("group.id",)


@pytest.mark.parametrize(
    ("client", "rows"),
    [
        *((client, PRODUCER_ROWS) for client in PRODUCERS),
        *((client, [*CONSUMER_ROWS, {}, {"enable.auto.commit": "true"}]) for client in CONSUMERS),
    ],
    ids=["Java's producer", "librdkafka's producer", "Java's consumer", "librdkafka's consumer"],
)
def test_without_one_of_its_rules_a_client_would_take_a_row_that_it_refuses(client: Client, rows: list[Row]) -> None:
    for rule in client.rules:
        weaker = Client(client.kinds, client.source, tuple(other for other in client.rules if other is not rule))
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
        ({"group.id": "g", "auto.offset.reset": "none"}, False, True),
        ({"group.id": "g", "max.poll.interval.ms": "6000"}, False, True),
        ({}, False, True),
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


def test_a_refusal_names_the_settings_the_reason_and_the_source() -> None:
    with pytest.raises(RefusedSettings) as caught:
        producer_settings({"acks": "1", "enable.idempotence": "true"})
    assert caught.value.settings == ("acks", "enable.idempotence")
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
    with pytest.raises(RefusedSettings, match=why):
        producer_settings(given)


@pytest.mark.parametrize("vector", STREAMS, ids=[json.dumps(vector["given"]) for vector in STREAMS])
def test_a_processor_is_refused_as_kafka_streams_refuses_it(vector: dict[str, Any]) -> None:
    refused = PROCESSOR.refusal(vector["given"])
    if "refused" in vector:
        with pytest.raises(RefusedSettings):
            processor_settings(vector["given"])
    else:
        assert refused is None
        made = processor_settings(vector["given"])
        assert made.commit_interval_ms == vector["commit_interval_ms"]
        assert made.producer.transaction_timeout_ms == vector["transaction_timeout_ms"]
        assert made.producer.enable_idempotence


def test_every_rule_names_its_source() -> None:
    clients = (JAVA_PRODUCER, LIBRDKAFKA_PRODUCER, JAVA_CONSUMER, LIBRDKAFKA_CONSUMER, PROCESSOR)
    assert all(rule.source and rule.why for client in clients for rule in client.rules)
    assert all(name in client.kinds for client in clients for rule in client.rules for name in rule.settings)
    assert settings.MAX_IN_FLIGHT_WITH_IDEMPOTENCE == 5
