"""The registry ``spec/conjuncts.toml`` of the conjuncts whose removal nothing can notice, each with the reason.

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


def read_equivalents(path: Path | None = None) -> dict[tuple[str, str], str]:
    """(operator, change) -> reason; nothing when there is no such file.

    Raises:
        MalformedRegistry: with the first entry that is wrong.
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
        if set(entry) != set(KEYS) or not all(isinstance(entry[key], str) and entry[key] for key in KEYS):
            raise MalformedRegistry(f"{path}: entry {number}: give {', '.join(KEYS)}, each a text, and nothing else")
        place = entry["operator"], entry["change"]
        if place in reasons:
            raise MalformedRegistry(f"{path}: entry {number}: {': '.join(place)} is there twice; delete one")
        reasons[place] = entry["reason"]
    return reasons


def check_known(reasons: Iterable[tuple[str, str]], known: Collection[tuple[str, str]]) -> None:
    """Every entry names a conjunct that is there, as far as its module is among those of the known ones.

    Raises:
        MalformedRegistry: with the first that does not.
    """
    modules = {operator.partition("!")[0] for operator, _ in known}
    strays = sorted(place for place in set(reasons) - set(known) if place[0].partition("!")[0] in modules)
    if strays:
        raise MalformedRegistry(
            f"conjuncts.toml: no conjunct {': '.join(strays[0])}; `kafka-eos check conjuncts --list` has them all"
        )
