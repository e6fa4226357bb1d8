"""``kafka-eos settings``: whether a client accepts its settings, and what they guarantee.

The names and ranges of settings are those of the clients' own tables: Java's clients and Kafka Streams 4.3.0 and 4.4.0,
librdkafka 2.16.0. The rules are those of :mod:`kafka_eos.clients.settings`. Where the two releases of a Java client
differ about the settings, each is told; --kafka takes one of them. A guarantee, or the lack of one, names the model
that shows it.

A setting that is not given has the client's default; addresses and serializers may be missing. A value that the client
reads as a file, a class, an address or a login is not checked, and is named. A file without any name that the client
knows cannot be used: the defaults would be judged in its place. Nor can one with Spring's names, which are not the
client's: what follows `spring.kafka.producer.`, with . for -, or `spring.kafka.producer.properties.`, is.
"""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from kafka_eos.clients.settings import (
    COUNTERPARTS,
    JAVA,
    LIBRDKAFKA_CONSUMER,
    LIBRDKAFKA_PRODUCER,
    STREAMS_NOT_READ,
    Client,
    JavaClients,
    RefusedSettings,
    StreamsValues,
    Values,
    idempotence_of_java,
    idempotence_of_librdkafka,
    in_transactions,
    is_unchecked,
    refused_by_brokers,
    streams_values,
)
from kafka_eos.formats.transaction_log import DEFAULT_MAX_TIMEOUT_MS
from kafka_eos_checks.conform.security import UnusableProperties, read_properties
from kafka_eos_checks.kit.arguments import add_json, at_least_one
from kafka_eos_checks.kit.nearest import did_you_mean
from kafka_eos_checks.kit.outputs import check_outputs
from kafka_eos_checks.kit.verdict import write_document
from kafka_eos_checks.models.findings import read_findings

Condition: TypeAlias = Callable[[Values, bool], bool]
"""Whether a guarantee is about a client, by its settings and by whether its producer is idempotent."""

Source: TypeAlias = tuple[str, Mapping[str, str]]
"""A file, or the call itself, and its settings."""

EPILOG = """examples:
  kafka-eos settings producer.properties
  kafka-eos settings acks=1 transactional.id=orders              refused: a transactional producer is idempotent
  kafka-eos settings group.id=g isolation.level=read_committed
  kafka-eos settings --require Transactions producer.properties  fails without the guarantee
  kafka-eos settings --client librdkafka-producer enable.idempotence=true --json -
  kafka-eos settings --client librdkafka-producer producer.json  one JSON object, as Python's clients are given
  kafka-eos settings --kafka 4.4 partitioner.rack.aware=true     of a Java client of one release only

exit codes: 0 the client accepts the settings, and they give what --require names; 1 they are refused, or do not
give it, by one release of a Java client; 2 the call or the file cannot be used, or has no name that the client knows
"""


def always(_values: Values, _idempotent: bool) -> bool:
    """A guarantee about each client of its kind."""
    return True


def reads_uncommitted(values: Values, _idempotent: bool) -> bool:
    """A guarantee about consumers that read what is not committed."""
    return values.word("isolation.level") == "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A guarantee of settings, or the lack of one.

    Attributes:
        holds: whether it is guaranteed.
        words: the guarantee, or what happens without it.
        model: the model that holds, by the repaired rules, or that shows how it is violated.
        about: the clients that it is about.
        findings: how Kafka 4.3 and 4.4 as they ship break the guarantee: ids of ``kafka-eos ledger findings``.
        cure: what to do where it is not guaranteed.
    """

    holds: bool
    words: str
    model: str
    about: Condition
    findings: tuple[str, ...] = ()
    cure: str = ""


PRODUCER = (
    Guarantee(
        False,
        "nobody acknowledges a record; one that is lost on the way is not sent again",
        "AtMostOnceIsNotAtLeastOnce",
        lambda values, _: values.acks() == 0,
        cure="give acks=all",
    ),
    Guarantee(
        False,
        "a leader that fails takes acknowledged records with it",
        "AcksOne",
        lambda values, _: values.acks() > 0,
        cure="give acks=all",
    ),
    Guarantee(
        True,
        "every acknowledged record is stored at least once (with min.insync.replicas=2, and no unclean election)",
        "RefinesAtLeastOnce",
        lambda values, _: values.acks() == -1,
    ),
    Guarantee(
        False,
        "a lost acknowledgement and a retry store a record twice",
        "LostAcknowledgement",
        lambda values, idempotent: values.acks() != 0 and not idempotent and values.number("retries") > 0,
        cure="give enable.idempotence=true, with acks=all",
    ),
    Guarantee(
        True,
        "no record is stored twice or out of order, for one life of the producer",
        "IdempotentProducer",
        lambda _, idempotent: idempotent,
        ("retry-refused-after-restart", "gap-after-expiry"),
    ),
    Guarantee(
        False,
        "an application that restarts and sends again stores records twice",
        "ResendAfterRestart",
        lambda values, _: not values.has("transactional.id"),
        cure="give transactional.id, and send in transactions, if records must not be stored twice after a restart",
    ),
    Guarantee(
        True,
        "the records of a transaction take effect all or none, and an instance that was replaced adds none",
        "Transactions",
        lambda values, _: values.has("transactional.id") and values.number("transaction.timeout.ms") > 0,
        ("no-leader-no-marker", "late-end-of-transaction", "client-keeps-epoch"),
    ),
)
CONSUMER = (
    Guarantee(
        True,
        "the reader is given committed records only, up to the last stable offset",
        "ReadCommitted",
        lambda values, _: values.word("isolation.level") == "read_committed",
        ("aborted-records-delivered", "no-leader-no-marker"),
    ),
    Guarantee(
        False,
        "isolation.level is not read_committed: records of aborted and of open transactions are processed",
        "HighWatermarkOnly",
        reads_uncommitted,
        cure="give isolation.level=read_committed, if producers send in transactions",
    ),
    Guarantee(
        True,
        "the reader is given every record up to the high watermark, and waits for no transaction",
        "ReadUncommitted",
        reads_uncommitted,
    ),
    Guarantee(
        False,
        "offsets are committed apart from their effects, so that a crash has records processed twice",
        "CommitAfterProcessingTwice",
        lambda values, _: values.flag("enable.auto.commit") and values.has("group.id"),
        cure="give enable.auto.commit=false, and commit each offset together with its effects",
    ),
)
STREAMS = {
    "committed": Guarantee(
        True,
        "each input that no exception handler skips takes effect once: outputs and offset are committed together",
        "ConsumeTransformProduce",
        always,
        ("late-offsets", "aborted-records-delivered", "no-leader-no-marker", "retry-refused-after-restart"),
    ),
    "without transactions": Guarantee(
        False,
        "processing.guarantee is not exactly_once_v2: a crash has records processed twice",
        "CommitAfterProcessingTwice",
        always,
        cure="give processing.guarantee=exactly_once_v2",
    ),
    "inputs": Guarantee(
        False,
        "main.consumer.isolation.level overrides exactly_once_v2: records of aborted transactions are processed",
        "HighWatermarkOnly",
        always,
        cure="leave out main.consumer.isolation.level",
    ),
    "stores": Guarantee(
        False,
        "restore.consumer.isolation.level overrides exactly_once_v2: aborted changes are restored",
        "RestoresUncommitted",
        always,
        cure="leave out restore.consumer.isolation.level",
    ),
}


def of_streams(values: StreamsValues) -> tuple[Guarantee, ...]:
    """The guarantees of Kafka Streams; it lets users override what its consumers read."""
    if not in_transactions(values.own):
        return (STREAMS["without transactions"],)
    of_consumers = {"inputs": values.main_consumer, "stores": values.restore_consumer}
    uncommitted = [name for name, one in of_consumers.items() if one.word("isolation.level") != "read_committed"]
    return tuple(STREAMS[name] for name in uncommitted or ["committed"])


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of client: its rules, its guarantees, and when its producer is idempotent."""

    client: Client
    guarantees: tuple[Guarantee, ...]
    idempotence: Callable[[Values], bool]


STREAMS_CLIENT = "streams"
OF_JAVA = ("java-producer", "java-consumer")
OF_LIBRDKAFKA = ("librdkafka-producer", "librdkafka-consumer")

OLDEST = next(iter(JAVA))
KINDS = {
    "librdkafka-producer": Kind(LIBRDKAFKA_PRODUCER, PRODUCER, idempotence_of_librdkafka),
    "librdkafka-consumer": Kind(LIBRDKAFKA_CONSUMER, CONSUMER, lambda _: False),
}
CLIENTS = (*OF_JAVA, *KINDS, STREAMS_CLIENT)


def kind_of(client: str, java: JavaClients) -> Kind:
    """The kind of a client of this name; a Java client's by its release."""
    of_java = {
        OF_JAVA[0]: Kind(java.producer, PRODUCER, idempotence_of_java),
        OF_JAVA[1]: Kind(java.consumer, CONSUMER, lambda _: False),
    }
    return of_java.get(client) or KINDS[client]


OF_THE_OTHER = {name: [java] for name, java in COUNTERPARTS.items()} | {
    java: [name for name, other in COUNTERPARTS.items() if other == java] for java in COUNTERPARTS.values()
}
"""The names that the other library has for a setting."""
EVERY_NAME = frozenset().union(*(client.kinds for java in JAVA.values() for client in (java.producer, java.consumer)))
"""The names that suggestions are made of where the client is not sure."""
MOST_NAMES = 3
OTHER_FORMATS = (".yml", ".yaml", ".toml", ".xml")
SINGLE = "the call"
SPRING = (
    "; of Spring's names, what follows spring.kafka.producer. (with . for -) or spring.kafka.producer.properties. is "
    "the client's, and the same for consumer; transaction-id-prefix becomes transactional.id"
)

REQUIRABLE = {guarantee.model: guarantee for guarantee in (*PRODUCER, *CONSUMER, *STREAMS.values()) if guarantee.holds}
"""The guarantees that a call can require, by their models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The judgement on settings.

    Attributes:
        client: the client that they were judged for.
        release: the release of Kafka whose client it is; "" for every release, and for a client of another project.
        refused: why the client refuses them, None if it accepts them.
        by_brokers: why brokers refuse the producer's transactions, "" if none does.
        guarantees: those about this client; none of a refused one.
        ignored: settings that the client does not use, about which it logs a warning.
        unchecked: settings from which the client reads more than is checked here.
        known: the names that the client knows, in any release.
    """

    client: str
    release: str = ""
    refused: RefusedSettings | None = None
    by_brokers: str = ""
    guarantees: tuple[Guarantee, ...] = ()
    ignored: tuple[str, ...]
    unchecked: tuple[str, ...]
    known: frozenset[str]

    @property
    def whose(self) -> str:
        """The client in words."""
        return f"{self.client} of Kafka {self.release}" if self.release else self.client

    def missing(self, required: Iterable[str]) -> list[str]:
        """The required guarantees, by their models, that are not given: all where brokers refuse the producer."""
        given = {guarantee.model for guarantee in self.guarantees if guarantee.holds and not self.by_brokers}
        return [model for model in required if model not in given]

    def to_json(self) -> dict[str, Any]:
        """The judgement as a JSON object."""
        refused = self.refused
        return {
            "client": self.client,
            "release": self.release or None,
            "accepted": refused is None,
            "refused": None
            if refused is None
            else {"settings": list(refused.settings), "why": refused.why, "source": refused.source},
            "refused_by_brokers": self.by_brokers or None,
            "guarantees": [
                {
                    "holds": guarantee.holds,
                    "words": guarantee.words,
                    "model": guarantee.model,
                    "findings": list(guarantee.findings),
                    "cure": guarantee.cure or None,
                }
                for guarantee in self.guarantees
            ],
            "ignored": list(self.ignored),
            "unchecked": list(self.unchecked),
        }

    def _shipped(self) -> str:
        if self.release:
            return f"Kafka {self.release} as it ships breaks it"
        return f"Kafka {' and '.join([*JAVA][::-1])} as they ship break it"

    def _meant(self, name: str) -> str:
        return "" if name in self.known else meant(name, self.known)

    def lines(self) -> Iterator[str]:
        """The judgement in words."""
        if self.refused is not None:
            yield f"refused by {self.whose}: {self.refused}"
        else:
            yield f"accepted by {self.whose}"
        strays = [name for name in self.ignored if name not in self.known and strayed(name, self.known)]
        for name in strays:
            yield f"WARN {name} is not read: {self.whose} has no such setting{self._meant(name)}"
        if self.by_brokers:
            yield f"NO   {self.by_brokers}"
        yield from self._of_guarantees()
        for name in self.ignored:
            if name not in strays:
                yield f"not used by {self.whose}, which only logs a warning: {name}{self._meant(name)}"
        if self.unchecked:
            yield f"not checked: {', '.join(self.unchecked)}"
        yield from (f"next: {step}" for step in self._steps())

    def _of_guarantees(self) -> Iterator[str]:
        findings = {finding.id: finding for finding in read_findings()}
        for guarantee in self.guarantees:
            if not guarantee.holds:
                yield f"NO   {guarantee.words} (model {guarantee.model} shows it)"
                continue
            broken = f"{self._shipped()} in these cases:" if guarantee.findings else "no known finding breaks it"
            yield f"yes  {guarantee.words} (model {guarantee.model}); {broken}"
            for name in guarantee.findings:
                concerns = findings[name].concerns and f" Concerns {findings[name].concerns}."
                yield f"     {findings[name].title}{concerns} (kafka-eos ledger findings {name})"

    def _steps(self) -> Iterator[str]:
        """The next steps of the user."""
        if self.refused is not None:
            nearest = "".join(self._meant(name) for name in self.refused.settings)
            yield f"correct {' or '.join(self.refused.settings)}{nearest}; --client names another client"
        elif self.by_brokers:
            yield (
                "give another transaction.timeout.ms, or raise transaction.max.timeout.ms of each broker; "
                "--transaction-max-timeout-ms says what it is there"
            )
        elif all(guarantee.holds for guarantee in self.guarantees):
            yield "nothing to change in these settings; `kafka-eos ledger findings` says what helps in these cases"
        yield from (guarantee.cure for guarantee in self.guarantees if not guarantee.holds)


def without_prefix(name: str, known: Collection[str]) -> str:
    """The longest end of a name, after a dot, that is known as it is or with . for -; "" if none is."""
    ends = [name[at + 1 :] for at, letter in enumerate(name) if letter == "."]
    return next((real for end in ends for real in (end, end.replace("-", ".")) if real in known), "")


def strayed(name: str, known: Collection[str]) -> str:
    """The words about a name of the other library, or about a known one with a prefix; "" if it is neither."""
    if counterpart := next((other for other in OF_THE_OTHER.get(name, ()) if other in known), ""):
        return f"; its counterpart here is {counterpart}"
    real = without_prefix(name, known)
    return real and f"; if {real} is meant, give it by this name"


def meant(name: str, known: Collection[str]) -> str:
    """The words to append to a message about an unknown name; "" when no known name is near."""
    return strayed(name, known) or did_you_mean(name, known)


@cache
def known_names(client: str) -> frozenset[str]:
    """The names that a client knows, in any release."""
    if client == STREAMS_CLIENT:
        return frozenset().union(
            *({*each.streams.kinds, *each.producer.kinds, *each.consumer.kinds} for each in JAVA.values())
        )
    of_releases = [kind_of(client, java).client for java in JAVA.values()]
    return frozenset({*of_releases[0].aliases}.union(*(each.kinds for each in of_releases)))


def need_known(client: str, sources: Iterable[Source]) -> None:
    """Refuse files, and all single settings together, without any name that the client knows.

    A client that refuses unknown names says so itself.

    Raises:
        UnusableProperties: for the first of them.
    """
    names: dict[str, list[str]] = {}
    for source, settings in sources:
        names.setdefault(source, []).extend(settings)
    for source, given in names.items():
        if not given:
            raise UnusableProperties(f"{source} has no settings; give a properties file of {client}")
        is_spring = any(name.startswith("spring.") for name in given)
        is_known = any(_knows(client, name) for name in given)
        if client in KINDS or (is_known and not is_spring):
            continue
        found = ", ".join(f"{name}{meant(name, EVERY_NAME)}" for name in given[:MOST_NAMES])
        more = f", and {len(given) - MOST_NAMES} more" if len(given) > MOST_NAMES else ""
        what = "names of Spring, which the client does not read" if is_known else f"no setting that {client} knows"
        raise UnusableProperties(
            f"{source} has {what}, and was not judged; give the client's own names{SPRING if is_spring else ''}; "
            f"found: {found}{more}"
        )


def _knows(client: str, name: str) -> bool:
    if client == STREAMS_CLIENT:
        return name.startswith(STREAMS_NOT_READ) or any(java.known_to_streams(name) for java in JAVA.values())
    return name in known_names(client)


def of_others(model: str, client: str) -> str:
    """The words about a guarantee that no settings of a client give; "" for its own."""
    owners = [name for name in CLIENTS if any(REQUIRABLE[model] is each for each in guarantees_of(name))]
    if client in owners:
        return ""
    apart = (
        "; of a producer and a consumer require Transactions and ReadCommitted, in a call for each, and send offsets "
        "with the transaction: no setting shows that"
    )
    return f"; {client} cannot give it, only {' or '.join(owners)}{apart if owners == [STREAMS_CLIENT] else ''}"


def guarantees_of(client: str) -> tuple[Guarantee, ...]:
    """Each guarantee that settings of a client may give, or may lack."""
    return tuple(STREAMS.values()) if client == STREAMS_CLIENT else kind_of(client, JAVA[OLDEST]).guarantees


def client_of(given: Mapping[str, str]) -> str:
    """The client that settings are for, by the names that only its kind has; Java's producer if there are none.

    Raises:
        UnusableProperties: only librdkafka knows one of them and only Java another, or they are a producer's and a
            consumer's.
    """
    of_java = [name for name in given if any(java.known_to_streams(name) for java in JAVA.values())]
    of_librdkafka = [name for name in given if LIBRDKAFKA_PRODUCER.knows(name)]
    only_java, only_librdkafka = (
        sorted(set(ones) - set(others)) for ones, others in ((of_java, of_librdkafka), (of_librdkafka, of_java))
    )
    if only_java and only_librdkafka:
        raise UnusableProperties(f"only librdkafka has {only_librdkafka[0]}, only Java {only_java[0]}; give --client")
    made = [client for java in JAVA.values() for client in (java.producer, java.consumer)]
    if any(not any(client.knows(name) for client in made) for name in only_java):
        return STREAMS_CLIENT
    names = OF_LIBRDKAFKA if only_librdkafka else OF_JAVA
    producers, consumers = ([kind_of(name, java).client for java in JAVA.values()] for name in names)
    of_producer, of_consumer = (
        sorted(name for name in given if uses(ones, name) and not uses(others, name))
        for ones, others in ((producers, consumers), (consumers, producers))
    )
    if of_producer and of_consumer:
        raise UnusableProperties(
            f"{of_producer[0]} is a producer's setting, {of_consumer[0]} a consumer's; give --client {names[0]} with "
            f"the producer's settings, and --client {names[1]} with the consumer's in another call"
        )
    return names[bool(of_consumer)]


def uses(clients: Iterable[Client], name: str) -> bool:
    """Whether one of the clients uses a setting."""
    return any(client.uses(name) for client in clients)


def judge_releases(
    client: str,
    given: Mapping[str, str],
    releases: Sequence[str] = tuple(JAVA),
    most_ms: int = DEFAULT_MAX_TIMEOUT_MS,
) -> list[Judged]:
    """The judgement of a client, and of each release of a Java client if they differ."""
    judged = [judge(client, given, release, most_ms) for release in releases]
    if len(judged) > 1 and all(each.to_json() == judged[0].to_json() for each in judged):
        return judged[:1]
    return [replace(each, release=release) for each, release in zip(judged, releases, strict=True)]


def judge(
    client: str, given: Mapping[str, str], release: str = OLDEST, most_ms: int = DEFAULT_MAX_TIMEOUT_MS
) -> Judged:
    """Whether a client accepts settings, and what they guarantee; settings that it does not use are left out.

    Args:
        client: the client.
        given: its settings.
        release: the release of Kafka, of a Java client.
        most_ms: the brokers' ``transaction.max.timeout.ms``.
    """
    java = JAVA[release]
    if client == STREAMS_CLIENT:
        return _judge_streams(given, java, most_ms)
    kind = kind_of(client, java)
    rules = kind.client
    read = {name: word for name, word in given.items() if rules.refuses_unknown or rules.knows(name)}
    judged = Judged(
        client=client,
        ignored=tuple(
            sorted(name for name in given if not rules.uses(name) and (name not in read or rules.knows(name)))
        ),
        unchecked=tuple(sorted(name for name in read if rules.uses(name) and is_unchecked(rules, name))),
        known=known_names(client),
    )
    try:
        values = rules.values(read)
    except RefusedSettings as refused:
        return replace(judged, refused=refused)
    idempotent = kind.idempotence(values)
    about = tuple(guarantee for guarantee in kind.guarantees if guarantee.about(values, idempotent))
    by_brokers = "" if kind.guarantees is CONSUMER else refused_by_brokers(values, most_ms)
    return replace(judged, guarantees=about, by_brokers=by_brokers)


def _judge_streams(given: Mapping[str, str], java: JavaClients, most_ms: int) -> Judged:
    judged = Judged(
        client=STREAMS_CLIENT,
        ignored=tuple(
            sorted(name for name in given if not java.known_to_streams(name) and not name.startswith(STREAMS_NOT_READ))
        ),
        unchecked=tuple(sorted(filter(java.is_unchecked_by_streams, given))),
        known=known_names(STREAMS_CLIENT),
    )
    try:
        values = streams_values(given, java)
    except RefusedSettings as refused:
        return replace(judged, refused=refused)
    return replace(judged, guarantees=of_streams(values), by_brokers=refused_by_brokers(values.producer, most_ms))


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except OSError:  # a value of hundreds of characters is no name of a file
        return False


def read_object(path: Path) -> dict[str, str]:
    """Settings of a file with one JSON object, as clients in Python and JavaScript are given them.

    Raises:
        UnusableProperties: when it is none, or has a value that is neither text nor number nor truth value.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnusableProperties(f"{path}: {error}; give a JSON object of settings") from None
    if not isinstance(found, dict):
        raise UnusableProperties(f"{path}: no JSON object; give one of names and values")
    for name, value in found.items():
        if not isinstance(value, str | int | float):
            raise UnusableProperties(f"{path}: {name} is neither text nor number nor truth value; give one of these")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}


def read_settings(words: Iterable[str]) -> list[Source]:
    """Settings of properties files, of JSON objects and of ``NAME=VALUE``, each with its file; a later one wins.

    Raises:
        UnusableProperties: when a file cannot be read, is of another format, or has a line that is no property.
    """
    sources: list[Source] = []
    for word in words:
        name, separator, value = word.partition("=")
        if separator and not _exists(word):
            sources.append((SINGLE, {name.strip(): value.strip()}))
        elif Path(word).suffix.lower() in OTHER_FORMATS:
            raise UnusableProperties(
                f"{word}: not read; give a properties file, or the client's own names as NAME=VALUE{SPRING}"
            )
        else:
            read = read_object if Path(word).suffix.lower() == ".json" else read_properties
            sources.append((word, read(Path(word))))
    return sources


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", line: str) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "settings", help=line, description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    files = "properties files, JSON objects, or single settings"
    parser.add_argument("settings", nargs="*", metavar="FILE|NAME=VALUE", help=files)
    parser.add_argument(
        "--client",
        choices=CLIENTS,
        help="whose settings (default: by the names that only one client has, else the Java producer)",
    )
    parser.add_argument(
        "--kafka",
        choices=tuple(JAVA),
        help="the release of a Java client (default: each; both are told where they differ)",
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        choices=REQUIRABLE,
        metavar="GUARANTEE",
        help=f"end with 1 without this guarantee, named by its model; repeat for more: {', '.join(REQUIRABLE)}",
    )
    parser.add_argument(
        "--transaction-max-timeout-ms",
        type=at_least_one,
        default=DEFAULT_MAX_TIMEOUT_MS,
        metavar="N",
        help=f"transaction.max.timeout.ms of the brokers (default {DEFAULT_MAX_TIMEOUT_MS})",
    )
    add_json(parser, "the judgement")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    check_outputs({"--json": arguments.json}, arguments.settings)
    if not arguments.settings and arguments.client is None:
        told = "no settings; give FILE or NAME=VALUE, or --client alone to judge its defaults"
        print(f"kafka-eos settings: {told}", file=sys.stderr)
        return 2
    try:
        sources = read_settings(arguments.settings)
        given = {name: value for _, settings in sources for name, value in settings.items()}
        client = arguments.client or client_of(given)
        need_known(client, sources)
    except UnusableProperties as error:
        print(f"kafka-eos settings: {error}", file=sys.stderr)
        return 2
    if client in KINDS and arguments.kafka:
        print(f"kafka-eos settings: {client} is no client of Kafka's own; leave --kafka out", file=sys.stderr)
        return 2
    releases = [arguments.kafka] if arguments.kafka else tuple(JAVA)
    judged = judge_releases(client, given, releases, arguments.transaction_max_timeout_ms)
    missing = [each.missing(arguments.require) for each in judged]
    if arguments.json is not None:
        rows = [each.to_json() | {"missing": models} for each, models in zip(judged, missing, strict=True)]
        deciding = next((row for row in rows if not row["accepted"] or row["missing"]), rows[0])
        write_document(arguments.json, {**deciding, "releases": rows})
    for each, models in zip(judged, missing, strict=True):
        print("\n".join(each.lines()))
        for model in models:
            why = "; brokers refuse its transactions" if each.by_brokers else of_others(model, client)
            print(f"required, and not given: {REQUIRABLE[model].words} ({model}){why}")
    return 0 if all(each.refused is None for each in judged) and not any(missing) else 1
