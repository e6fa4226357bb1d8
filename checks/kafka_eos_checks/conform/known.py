"""The known differences, which were looked into and stay, and the causes of divergences of real brokers."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("known.toml")
CAUSES_FILE = Path(__file__).with_name("causes.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDifference:
    """A difference that was looked into.

    Attributes:
        title: the difference in a sentence.
        reason: why the spec stays as it is.
        brokers: the releases of Apache Kafka that differ.
        source: the source that decides it.
        rule: the rule of the spec that Kafka has otherwise.
        operator: the operator of ``spec/mutants`` that is Kafka's rule without its other differences.
    """

    title: str
    reason: str
    brokers: str
    source: str
    rule: str
    operator: str


@cache
def known_differences() -> dict[str, KnownDifference]:
    """The known differences, by id."""
    with FILE.open("rb") as file:
        return {name: KnownDifference(**row) for name, row in tomllib.load(file).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The cause of a divergence of released brokers.

    Attributes:
        name: a pattern of the edge's name.
        what: a pattern of the answer, or of the field that was read back.
        observed: a pattern of what was observed.
        brokers: the brokers that diverge so.
        cause: the cause.
        source: the source of the behaviour, and of its repair.
    """

    name: str
    what: str
    observed: str
    brokers: str
    cause: str
    source: str

    def explains(self, name: str, what: str, observed: str) -> bool:
        """Whether the cause explains a divergence."""
        said = re.fullmatch(self.what, what) and re.fullmatch(self.observed, observed)
        return bool(said and re.search(self.name, name))


@cache
def causes() -> tuple[Cause, ...]:
    """The known causes of divergences."""
    with CAUSES_FILE.open("rb") as file:
        return tuple(Cause(**row) for row in tomllib.load(file).values())
