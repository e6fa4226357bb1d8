"""Registries of changes that nothing can notice, each with the reason; conjuncts are in ``spec/conjuncts.toml``.

An entry::

[[equivalent]]
operator = "EpochBump!RepeatBump"      # or epoch_bump!EpochBump.repeat_bump, in the reference
change = "IsAlive -> TRUE"
reason = "a client that has ended waits for no answer"

A property that is needed for no mutant may name others of its module that it follows from::

[[equivalent]]
operator = "Transfer!DebitedOnce"
change = "DebitedOnce -> TRUE"
follows = ["RefinesExactlyOnce"]
reason = "a refinement says how often each output is found"

The reason is the argument. The mutants check it: whatever violates the property has to violate one of those.
"""

import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.registry import MalformedRegistry

KEYS = ("operator", "change", "reason")


def read_equivalents(path: Path | None = None, keys: tuple[str, str, str] = KEYS) -> dict[tuple[str, str], str]:
    """Read a registry as (operator, change) -> reason; empty if the file does not exist.

    Args:
        path: the registry; by default ``spec/conjuncts.toml``.
        keys: the keys of an entry, the reason last.

    Raises:
        MalformedRegistry: an entry is wrong; the message names the first.
    """
    return {(entry[keys[0]], entry[keys[1]]): entry[keys[2]] for entry in _entries(path, keys)}


def read_follows(path: Path | None = None) -> dict[tuple[str, str], frozenset[str]]:
    """Read a registry as (operator, change) -> the properties that this one follows from, where an entry names some.

    Args:
        path: the registry; by default ``spec/conjuncts.toml``.

    Raises:
        MalformedRegistry: an entry is wrong; the message names the first.
    """
    entries = _entries(path, KEYS)
    return {(e["operator"], e["change"]): frozenset(e["follows"]) for e in entries if "follows" in e}


def _entries(path: Path | None, keys: tuple[str, str, str]) -> list[dict[str, Any]]:
    """The entries of a registry."""
    path = path or spec_folder() / "conjuncts.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedRegistry(f"{path}: no TOML: {error}") from None
    unknown = content.keys() - {"equivalent"}
    if unknown:
        raise MalformedRegistry(f"{path}: unknown key {min(unknown)!r}; entries are [[equivalent]]")
    entries: list[dict[str, Any]] = content.get("equivalent", [])
    seen: set[tuple[str, str]] = set()
    for number, entry in enumerate(entries, start=1):
        follows = entry.get("follows", ["-"])
        texts = [entry.get(key) for key in keys] + (follows if isinstance(follows, list) and follows else [None])
        if set(entry) - {"follows"} != set(keys) or not all(isinstance(text, str) and text for text in texts):
            raise MalformedRegistry(f"{path}: entry {number}: give {', '.join(keys)}, each a text, and nothing else")
        place = entry[keys[0]], entry[keys[1]]
        if place in seen:
            raise MalformedRegistry(f"{path}: entry {number}: {': '.join(place)} occurs twice; delete one")
        seen.add(place)
    return entries


def check_known(reasons: Iterable[tuple[str, str]], known: Collection[tuple[str, str]]) -> None:
    """Check that every entry names an existing conjunct. Entries of modules without a known conjunct are not checked.

    Raises:
        MalformedRegistry: an entry names no conjunct; the message names the first.
    """
    modules = {operator.partition("!")[0] for operator, _ in known}
    strays = sorted(place for place in set(reasons) - set(known) if place[0].partition("!")[0] in modules)
    if strays:
        raise MalformedRegistry(
            f"conjuncts.toml: no conjunct {': '.join(strays[0])}; `kafka-eos check conjuncts --list` has them all"
        )
