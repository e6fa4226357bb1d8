"""``kafka-eos settings``: whether a client accepts its settings, and what they guarantee.

The rules of the clients are those of :mod:`kafka_eos.clients.settings`. A guarantee, or the lack of one, names the
model that shows it.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kafka_eos.clients.settings import (
    JAVA_CONSUMER,
    JAVA_PRODUCER,
    LIBRDKAFKA_CONSUMER,
    LIBRDKAFKA_PRODUCER,
    PROCESSOR,
    Client,
    RefusedSettings,
    Values,
    idempotence_of_java,
    idempotence_of_librdkafka,
)
from kafka_eos_checks.conform.security import UnusableProperties, read_properties
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.verdict import write_document

Condition: TypeAlias = Callable[[Values, bool], bool]
"""Whether a guarantee is about a client, by its settings and by whether its producer is idempotent."""

EPILOG = """examples:
  kafka-eos settings producer.properties
  kafka-eos settings acks=1 transactional.id=orders              refused: a transactional producer is idempotent
  kafka-eos settings group.id=g isolation.level=read_committed
  kafka-eos settings --client librdkafka-producer enable.idempotence=true --json -

exit codes: 0 the client accepts the settings, 1 it refuses them, 2 the call or the file cannot be used
"""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A guarantee of settings, or the lack of one.

    Attributes:
        holds: whether it is guaranteed.
        words: the guarantee, or what happens without it.
        model: the model that holds, by the repaired rules, or that shows how it is violated.
        about: the clients that it is about.
        findings: how Kafka 4.3 as it ships breaks the guarantee: ids of ``kafka-eos ledger findings``.
    """

    holds: bool
    words: str
    model: str
    about: Condition
    findings: tuple[str, ...] = ()


PRODUCER = (
    Guarantee(
        False,
        "nobody acknowledges a record; one that is lost on the way is not sent again",
        "AtMostOnceIsNotAtLeastOnce",
        lambda values, _: values.acks() == 0,
    ),
    Guarantee(
        False,
        "a leader that fails takes acknowledged records with it",
        "AcksOne",
        lambda values, _: values.acks() > 0,
    ),
    Guarantee(
        True,
        "every acknowledged record is stored at least once (with min.insync.replicas=2, and no unclean election)",
        "RefinesAtLeastOnce",
        lambda values, idempotent: values.acks() == -1 and not idempotent,
    ),
    Guarantee(
        False,
        "a lost acknowledgement and a retry store a record twice",
        "LostAcknowledgement",
        lambda values, idempotent: values.acks() != 0 and not idempotent and values.number("retries") > 0,
    ),
    Guarantee(
        True,
        "every record is stored once and in order, for one life of the producer",
        "IdempotentProducer",
        lambda _, idempotent: idempotent,
        ("retry-refused-after-restart", "gap-after-expiry"),
    ),
    Guarantee(
        False,
        "an application that restarts and sends again stores records twice",
        "ResendAfterRestart",
        lambda values, _: not values.has("transactional.id"),
    ),
    Guarantee(
        True,
        "the records of a transaction take effect all or none, and an instance that was replaced adds none",
        "Transactions",
        lambda values, _: values.has("transactional.id"),
        ("late-end-of-transaction", "client-keeps-epoch"),
    ),
)
CONSUMER = (
    Guarantee(
        True,
        "the reader is given committed records only, up to the last stable offset",
        "ReadCommitted",
        lambda values, _: values.word("isolation.level") == "read_committed",
        ("aborted-records-delivered",),
    ),
    Guarantee(
        True,
        "the reader is given every record, those of aborted and of open transactions too",
        "ReadUncommitted",
        lambda values, _: values.word("isolation.level") == "read_uncommitted",
    ),
    Guarantee(
        False,
        "offsets are committed apart from their effects, so that a crash has records processed twice",
        "CommitAfterProcessingTwice",
        lambda values, _: values.flag("enable.auto.commit") and values.has("group.id"),
    ),
)
STREAMS = (
    Guarantee(
        True,
        "each input takes effect once: its outputs and its offset are committed together",
        "ConsumeTransformProduce",
        lambda _values, _: True,
        ("late-offsets", "aborted-records-delivered", "retry-refused-after-restart"),
    ),
)
STREAMS_WITHOUT_TRANSACTIONS = (
    Guarantee(
        False,
        "processing.guarantee is not exactly_once_v2: a crash has records processed twice",
        "CommitAfterProcessingTwice",
        lambda _values, _: True,
    ),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of client: its rules, its guarantees, and when its producer is idempotent."""

    client: Client
    guarantees: tuple[Guarantee, ...]
    idempotence: Callable[[Values], bool]


STREAMS_CLIENT, GUARANTEE = "streams", "processing.guarantee"
STREAMS_ONLY = frozenset({GUARANTEE, "application.id", "commit.interval.ms"})
PRODUCERS, CONSUMERS = "java-producer", "java-consumer"
STREAMS_KINDS = {
    True: Kind(PROCESSOR, STREAMS, lambda _: True),
    False: Kind(Client({}, "", ()), STREAMS_WITHOUT_TRANSACTIONS, lambda _: False),
}
"""Kafka Streams with and without ``processing.guarantee=exactly_once_v2``."""

KINDS = {
    PRODUCERS: Kind(JAVA_PRODUCER, PRODUCER, idempotence_of_java),
    "librdkafka-producer": Kind(LIBRDKAFKA_PRODUCER, PRODUCER, idempotence_of_librdkafka),
    CONSUMERS: Kind(JAVA_CONSUMER, CONSUMER, lambda _: False),
    "librdkafka-consumer": Kind(LIBRDKAFKA_CONSUMER, CONSUMER, lambda _: False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The judgement on settings.

    Attributes:
        client: the client that they were judged for.
        refused: why the client refuses them, None if it accepts them.
        guarantees: those about this client; none of a refused one.
        ignored: settings without a rule.
    """

    client: str
    refused: RefusedSettings | None
    guarantees: tuple[Guarantee, ...]
    ignored: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The judgement as a JSON object."""
        refused = self.refused
        return {
            "client": self.client,
            "accepted": refused is None,
            "refused": None
            if refused is None
            else {"settings": list(refused.settings), "why": refused.why, "source": refused.source},
            "guarantees": [
                {
                    "holds": guarantee.holds,
                    "words": guarantee.words,
                    "model": guarantee.model,
                    "findings": list(guarantee.findings),
                }
                for guarantee in self.guarantees
            ],
            "ignored": list(self.ignored),
        }

    def lines(self) -> Iterator[str]:
        """The judgement in words."""
        if self.refused is not None:
            yield f"refused by {self.client}: {self.refused}"
        else:
            yield f"accepted by {self.client}"
        for guarantee in self.guarantees:
            mark, models = ("yes", "holds by the repaired rules") if guarantee.holds else ("NO ", "shows it")
            yield f"{mark}  {guarantee.words} ({guarantee.model} {models})"
            for finding in guarantee.findings:
                yield f"     Kafka 4.3 as it ships breaks this: kafka-eos ledger findings {finding}"
        if self.ignored:
            yield f"no rule about: {', '.join(self.ignored)}"
        if self.refused is not None:
            yield f"next: correct {' or '.join(self.refused.settings)}; --client names another client"
        for guarantee in sorted(self.guarantees, key=lambda guarantee: guarantee.holds)[:1]:
            yield f"next: kafka-eos check models {guarantee.model}"


def client_of(given: Mapping[str, str]) -> str:
    """The Java client that settings are for, by the names that only its kind has; a producer if there are none.

    Raises:
        UnusableProperties: names of a producer and of a consumer are among them.
    """
    if given.keys() & STREAMS_ONLY:
        return STREAMS_CLIENT
    of_producer, of_consumer = (
        sorted(given.keys() & KINDS[name].client.kinds.keys()) for name in (PRODUCERS, CONSUMERS)
    )
    if of_producer and of_consumer:
        raise UnusableProperties(
            f"{of_producer[0]} is a producer's setting, {of_consumer[0]} a consumer's; give --client"
        )
    return CONSUMERS if of_consumer else PRODUCERS


def kind_of(client: str, given: Mapping[str, str]) -> Kind:
    """The kind of a client; that of Kafka Streams depends on ``processing.guarantee``."""
    if client == STREAMS_CLIENT:
        return STREAMS_KINDS[given.get(GUARANTEE) == "exactly_once_v2"]
    return KINDS[client]


def judge(client: str, given: Mapping[str, str]) -> Judged:
    """Whether a client accepts settings, and what they guarantee; settings that it has no rule for are left out."""
    kind = kind_of(client, given)
    known = {name: word for name, word in given.items() if name in kind.client.kinds}
    ignored = tuple(sorted(given.keys() - known.keys() - ({GUARANTEE} if client == STREAMS_CLIENT else set())))
    try:
        values = kind.client.values(known)
    except RefusedSettings as refused:
        return Judged(client=client, refused=refused, guarantees=(), ignored=ignored)
    idempotent = kind.idempotence(values)
    guarantees = tuple(guarantee for guarantee in kind.guarantees if guarantee.about(values, idempotent))
    return Judged(client=client, refused=None, guarantees=guarantees, ignored=ignored)


def read_settings(words: Iterable[str]) -> dict[str, str]:
    """Settings of properties files and of ``NAME=VALUE``; a later one wins.

    Raises:
        UnusableProperties: when a file cannot be read, or has a line that is no property.
    """
    given: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition("=")
        is_file = not separator or Path(word).exists()
        given |= read_properties(Path(word)) if is_file else {name.strip(): value.strip()}
    return given


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", line: str) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "settings", help=line, description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="FILE|NAME=VALUE", help="properties files, or single settings")
    parser.add_argument(
        "--client",
        choices=(*KINDS, STREAMS_CLIENT),
        help="whose settings (default: the Java producer or consumer or Kafka Streams, by the names of the settings)",
    )
    add_json(parser, "the judgement")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    try:
        given = read_settings(arguments.settings)
        judged = judge(arguments.client or client_of(given), given)
    except UnusableProperties as error:
        print(f"kafka-eos settings: {error}", file=sys.stderr)
        return 2
    if arguments.json is not None:
        write_document(arguments.json, judged.to_json())
    print("\n".join(judged.lines()))
    return 0 if judged.refused is None else 1
