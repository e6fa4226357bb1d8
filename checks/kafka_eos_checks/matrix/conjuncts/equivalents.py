"""Registries of changes that nothing can notice, each with the reason; conjuncts are in ``spec/conjuncts.toml``.

An entry::

[[equivalent]]
operator = "EpochBump!RepeatBump"      # or epoch_bump!EpochBump.repeat_bump, in the reference
change = "IsAlive -> TRUE"
reason = "a client that has ended waits for no answer"
"""

import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path

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
    path = path or spec_folder() / "conjuncts.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedRegistry(f"{path}: no TOML: {error}") from None
    unknown = content.keys() - {"equivalent"}
    if unknown:
        raise MalformedRegistry(f"{path}: unknown key {min(unknown)!r}; entries are [[equivalent]]")
    reasons: dict[tuple[str, str], str] = {}
    for number, entry in enumerate(content.get("equivalent", []), start=1):
        if set(entry) != set(keys) or not all(isinstance(entry[key], str) and entry[key] for key in keys):
            raise MalformedRegistry(f"{path}: entry {number}: give {', '.join(keys)}, each a text, and nothing else")
        place = entry[keys[0]], entry[keys[1]]
        if place in reasons:
            raise MalformedRegistry(f"{path}: entry {number}: {': '.join(place)} occurs twice; delete one")
        reasons[place] = entry[keys[2]]
    return reasons


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
