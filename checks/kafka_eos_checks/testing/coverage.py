"""The list of what `kafka-eos serve` answers and refuses, for its help and as a page of the documentation.

All of it is read from the server's own tables. `make schemas` writes the page again.
"""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from textwrap import fill

from kafka_eos.server.configs import (
    DYNAMIC_BROKER_CONFIGS,
    EFFECTIVE,
    EFFECTIVE_OF_BROKERS,
    READ_ONLY_BROKER_CONFIGS,
    TOPIC_CONFIGS,
)
from kafka_eos.server.handlers.request import served_versions
from kafka_eos.server.schemas import NEWEST, NOT_SERVED, REFUSED, SERVED
from kafka_eos_checks.kit.paths import CLONE

PAGE = Path("docs/served.md")
_WIDTH = 118
_INHERITED = tuple(config.broker for name in EFFECTIVE if (config := TOPIC_CONFIGS[name]).broker is not None)


def not_served() -> list[tuple[str, list[str]]]:
    """Reasons, each with the APIs that are not served for it."""
    return [(why, list(apis)) for why, apis in groupby(NOT_SERVED, key=NOT_SERVED.__getitem__)]


def in_help() -> str:
    """The list of what is served, for the end of the help."""
    rows = [
        (f"APIs that are answered, in the versions of Kafka 4.3, {' and '.join(NEWEST)} in those of 4.4:", SERVED),
        ("refused, as by a broker without security:", REFUSED),
        *((f"not served, as {why}:", apis) for why, apis in not_served()),
        ("configurations of topics that have an effect; Kafka's others are accepted without one:", EFFECTIVE),
    ]
    return "\n".join(f"{title}\n{_wrapped(names, '  ')}" for title, names in rows)


def _wrapped(names: Iterable[str], indent: str = "", quote: str = "") -> str:
    text = ", ".join(f"{quote}{name}{quote}" for name in names)
    return fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def page() -> str:
    """The page of the documentation."""
    versions = ((api, served_versions(api)) for api in SERVED)
    refused = [f"| {api} | {error.name} |" for api, (error, _) in REFUSED.items()]
    without = [name for name in TOPIC_CONFIGS if name not in EFFECTIVE]
    alterable = [*sorted(_INHERITED), *EFFECTIVE_OF_BROKERS]
    idle = [name for name in DYNAMIC_BROKER_CONFIGS if name not in alterable]
    return "\n".join(
        [
            "# What `kafka-eos serve` answers",
            "",
            "This page is written by `make schemas` from the server's own tables.",
            "",
            "## APIs",
            f"These are answered, in all versions that Kafka 4.3 offers, {' and '.join(NEWEST)} in those of Kafka 4.4:",
            "",
            "| API | versions |",
            "| --- | --- |",
            *(f"| {api} | {known[0]} to {known[-1]} |" for api, known in versions),
            "",
            "These are refused with the error of a Kafka broker without security:",
            "",
            "| API | error |",
            "| --- | --- |",
            *refused,
            "",
            "These are not offered. A client that sends one gets UNSUPPORTED_VERSION, and the log says why:",
            "",
            *(f"- {', '.join(apis)}: {why}." for why, apis in not_served()),
            "",
            "A request in an unknown version, or of an unknown API, closes the sender's connection, as in Kafka.",
            "",
            "## Configurations of topics",
            "Names and values are checked as in Kafka 4.3. These have an effect on what a leader appends:",
            "",
            _wrapped(EFFECTIVE, quote="`") + ".",
            "",
            "A topic with `cleanup.policy=compact` refuses records without a key, and nothing is cleaned. No batch is",
            "larger than `segment.bytes`, and segments stay as they are. These are accepted, described and kept, but",
            "have no effect, because nothing is deleted, cleaned, tiered or throttled:",
            "",
            _wrapped(without, quote="`") + ".",
            "",
            "## Configurations of brokers",
            "Clients can alter these for one broker or for all, and they have an effect:",
            "",
            _wrapped(alterable, quote="`") + ".",
            "",
            "Clients can also alter these, without an effect:",
            "",
            _wrapped(idle, quote="`") + ".",
            "",
            "Clients can only read these:",
            "",
            _wrapped(READ_ONLY_BROKER_CONFIGS, quote="`") + ".",
            "",
            "Altering any other is refused: `Cannot update these configs dynamically`.",
            "",
        ]
    )


def main() -> None:
    """Write the page."""
    (CLONE / PAGE).write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {len(SERVED)} APIs served, {len(REFUSED)} refused, {len(NOT_SERVED)} not served")


if __name__ == "__main__":
    main()
