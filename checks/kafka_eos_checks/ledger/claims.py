"""The claims ledger: claims about Kafka's exactly-once semantics, and the verdicts that settle them.

The texts are in ``claims.toml``. What was found comes only from verdicts: nobody types in that a claim holds.
"""

import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kafka_eos_checks.kit.verdict import Standing as VerdictStanding
from kafka_eos_checks.kit.verdict import Verdict

CLAIMS_FILE = Path(__file__).with_name("claims.toml")


class MalformedClaims(ValueError):  # noqa: N818 - named for the input
    """A claims file that cannot be used; says file, entry and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim about exactly-once, from a document.

    Attributes:
        id: its name in verdicts, e.g. ``C07``.
        text: the claim, in the project's words.
        sources: the documents that make it, each with title and section.
        expect: what the project believes the checks find, in one line.
    """

    id: str
    text: str
    sources: tuple[str, ...]
    expect: str


class Standing(StrEnum):
    """The standing of a claim."""

    SETTLED = "settled"  # every verdict on it is as expected, and at least one judged something
    DIFFERS = "differs"  # a verdict on it is not as expected
    OPEN = "not checked here"  # no verdict on it, or one that could not judge everything
    UNKNOWN = "not in the ledger"  # a verdict names it, but claims.toml does not have it


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row of the ledger: a claim with the indices of the verdicts that name it."""

    claim: Claim
    standing: Standing
    verdicts: tuple[int, ...]


def read_claims(path: Path = CLAIMS_FILE) -> list[Claim]:
    """Read the claims, in the order of the file.

    Raises:
        MalformedClaims: when the file is no TOML, an entry lacks a field or has one too many, an id comes twice, or a
            source is no section of a document.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedClaims(f"{path.name}: no TOML: {error}") from None
    documents = content.get("documents", {})
    claims: list[Claim] = []
    for position, row in enumerate(content.get("claim", []), start=1):
        where = f"{path.name}: claim {position}"
        if set(row) != {"id", "text", "sources", "expect"}:
            raise MalformedClaims(f"{where}: expected id, text, sources and expect, found {', '.join(row)}")
        if any(claim.id == row["id"] for claim in claims):
            raise MalformedClaims(f"{where}: the id {row['id']} is taken")
        sources = tuple(_citation(source, documents, where) for source in row["sources"])
        claims.append(Claim(id=row["id"], text=row["text"], sources=sources, expect=row["expect"]))
    return claims


def _citation(source: str, documents: Mapping[str, str], where: str) -> str:
    """Title and section of a source, which the file gives as ``document: section``."""
    document, _, section = source.partition(": ")
    if document not in documents or not section:
        known = ", ".join(documents)
        raise MalformedClaims(
            f"{where}: the source {source!r} is no 'document: section'; documents are {known or 'none'}"
        )
    return f"{documents[document]}, section “{section}”"


def ledger(claims: Sequence[Claim], verdicts: Sequence[Verdict]) -> list[Entry]:
    """The ledger's rows: a row for each claim, then one for each id that only a verdict names."""
    ids = [claim.id for claim in claims]
    strays = sorted({name for verdict in verdicts for name in verdict.claims} - set(ids))
    entries = []
    for claim in [*claims, *(Claim(id=name, text="", sources=(), expect="") for name in strays)]:
        named = tuple(index for index, verdict in enumerate(verdicts) if claim.id in verdict.claims)
        standing = Standing.UNKNOWN if claim.id in strays else _standing({verdicts[index].standing for index in named})
        entries.append(Entry(claim=claim, standing=standing, verdicts=named))
    return entries


def _standing(found: Set[VerdictStanding]) -> Standing:
    """The standing of a claim, by those of the verdicts on it."""
    if VerdictStanding.FAIL in found:
        return Standing.DIFFERS
    is_settled = VerdictStanding.OK in found and VerdictStanding.NOT_JUDGED not in found
    return Standing.SETTLED if is_settled else Standing.OPEN
