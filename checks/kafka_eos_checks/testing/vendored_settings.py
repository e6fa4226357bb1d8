"""The settings that clients know, out of Kafka's jars and of librdkafka (``make schemas``)."""

import ctypes
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from kafka_eos.clients import settings
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, need_jars
from kafka_eos_checks.kit.answering import Ask, answering

Row: TypeAlias = dict[str, Any]

TARGET = Path(settings.__file__).with_name(settings.KNOWN)
JAVA_SOURCE = Path(__file__).with_name("ClientSettings.java")
JAVA_CLIENTS = ("producer", "consumer", "admin", "streams")
BOOLEAN_OF_LIBRDKAFKA = ("0", "1", "f", "false", "t", "true")
SIDES = {"*": "both", "P": "producer", "C": "consumer"}
_JAVA_SECONDS = 240
_PROPERTY = re.compile(
    r"^(?P<name>[\w.]+) +\| +(?P<side>[CP*]) +\| (?P<range>.*?) +\| *(?P<default>.*?) +\| \w+ +\| (?P<about>.*)"
)
_QUOTED = re.compile(r"`([^`]+)`")
_ALIAS = re.compile(r"(?:\*\*DEPRECATED\*\* )?Alias for `([\w.]+)`")


def java_clients(kafka: str = KAFKA_VERSION) -> AbstractContextManager[Ask]:
    """A release's Java clients in a process; questions and answers are those of ``ClientSettings.java``."""
    java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{need_jars(kafka)}/*", str(JAVA_SOURCE)]
    return answering(java, _JAVA_SECONDS)


def of_java(ask: Ask, kafka: str) -> dict[str, Any]:
    """The settings of each Java client, by the definitions in the jars of a release, which answer the questions."""
    rows = ask({"known": {"of": client}} for client in JAVA_CLIENTS)
    return {"release": kafka, **dict(zip(JAVA_CLIENTS, rows, strict=True))}


def of_newest(ask: Ask, older: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the newest release that the older one does not have, or has otherwise.

    The newest one has to have all settings of the older one, because the file does not say what is gone.
    """
    found = of_java(ask, NEWEST)
    for client in JAVA_CLIENTS:
        assert older[client].keys() <= found[client].keys(), f"{client}: {NEWEST} has fewer settings"
        found[client] = {name: row for name, row in found[client].items() if older[client].get(name) != row}
    return found


def of_librdkafka() -> dict[str, Any]:
    """The settings of librdkafka by side, and its aliases, as the library of confluent-kafka prints them.

    What only a program can set, a callback for example, is left out. Names without documentation are texts.
    """
    import confluent_kafka  # noqa: PLC0415 - only the maker of the file needs it

    [path] = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    library, standard = ctypes.CDLL(str(path)), ctypes.CDLL(None)
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    found: dict[str, Any] = {"release": confluent_kafka.libversion()[0], **{side: {} for side in SIDES.values()}}
    aliases: dict[str, str] = {}
    named: set[str] = set()
    of_topics = False
    for line in _properties(library, standard):
        of_topics |= line.startswith("## Topic")
        matched = _PROPERTY.match(line)
        if matched is None or matched["name"] in named:  # a setting of all topics gives way to the global one
            continue
        named.add(matched["name"])
        if alias := _ALIAS.match(matched["about"]):
            aliases[matched["name"]] = alias[1]
        elif "see dedicated API" not in matched["about"]:
            takes = partial(_takes, library, matched["name"])
            row = _row(matched, takes) | ({"of_topics": True} if of_topics else {})
            found[SIDES[matched["side"]]][matched["name"]] = row
    for name in _dumped(library) - named:
        found["both"][name] = {}
    return {**found, "aliases": aliases}


def _properties(library: ctypes.CDLL, standard: ctypes.CDLL) -> list[str]:
    standard.fopen.restype = ctypes.c_void_p
    standard.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    with tempfile.NamedTemporaryFile() as printed:
        stream = standard.fopen(printed.name.encode(), b"w")
        library.rd_kafka_conf_properties_show(stream)
        standard.fclose(stream)
        return Path(printed.name).read_text(encoding="utf-8").splitlines()


def _takes(library: ctypes.CDLL, name: str, word: str) -> bool:
    library.rd_kafka_conf_set.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
    ]
    done: int = library.rd_kafka_conf_set(library.rd_kafka_conf_new(), name.encode(), word.encode(), None, 0)
    return done == 0


def _dumped(library: ctypes.CDLL) -> set[str]:
    library.rd_kafka_conf_dump.restype = ctypes.POINTER(ctypes.c_char_p)
    library.rd_kafka_conf_dump.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    size = ctypes.c_size_t()
    pairs = library.rd_kafka_conf_dump(library.rd_kafka_conf_new(), ctypes.byref(size))
    return {pairs[at].decode() for at in range(0, size.value, 2)}


def _row(matched: re.Match[str], takes: Callable[[str], bool]) -> Row:
    row: Row = {"default": matched["default"]} if matched["default"] else {}
    if " .. " in matched["range"]:
        low, high = map(int, matched["range"].split(" .. "))
        numbers = {"low": low, "high": high, **({"word": "all"} if takes("all") else {})}
        return row | numbers | ({"fraction": True} if "*Type: float*" in matched["about"] else {})
    if "*Type: boolean*" in matched["about"]:
        return {**row, "any_case": True, "words": list(BOOLEAN_OF_LIBRDKAFKA)}
    if "*Type: enum value*" in matched["about"]:
        return {**row, "any_case": True, "words": sorted(word.strip().lower() for word in matched["range"].split(","))}
    words = sorted(filter(takes, _QUOTED.findall(matched["about"])))
    if words and not takes("none of them"):  # a text of which the library takes only the words that it describes
        return {**row, "any_case": takes(words[0].upper()), "words": words}
    return row


def compact(known: Mapping[str, Any]) -> str:
    """The content of the file, with one setting a line."""
    parts = []
    for library, tables in known.items():
        sections = []
        for section, rows in tables.items():
            if isinstance(rows, str):
                sections.append(f"  {json.dumps(section)}: {json.dumps(rows)}")
            else:
                lines = ",\n".join(f"   {json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
                sections.append(f"  {json.dumps(section)}: {{\n{lines}\n  }}")
        parts.append(f" {json.dumps(library)}: {{\n" + ",\n".join(sections) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Write the file."""
    with java_clients() as ask, java_clients(NEWEST) as ask_newest:
        java = of_java(ask, KAFKA_VERSION)
        newest = of_newest(ask_newest, java)
    text = compact({"java": java, "java_newest": newest, "librdkafka": of_librdkafka()})
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET}: {len(text)} bytes")


if __name__ == "__main__":
    main()
