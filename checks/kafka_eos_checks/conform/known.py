"""The recorded differences between real brokers and the spec, from ``known.toml``."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("known.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDifference:
    """A difference that was looked into.

    Attributes:
        title: what differs, in a sentence.
        reason: why the spec stays as it is.
        brokers: releases of Apache Kafka that do so.
        source: where it is decided.
    """

    title: str
    reason: str
    brokers: str
    source: str


@cache
def known_differences() -> dict[str, KnownDifference]:
    """All of them, by id."""
    with FILE.open("rb") as file:
        return {name: KnownDifference(**row) for name, row in tomllib.load(file).items()}
