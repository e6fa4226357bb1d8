"""A release that inherits another one's rules has the methods in which that one has them, in its bytecode."""

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import pytest

from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, have_jars, jars_folder
from kafka_eos_checks.models.releases import Releases

RELEASES = Releases()
SAME = RELEASES.get("4.3")
# Packages that were moved, constants, numbers of local variables, and the instructions' places say nothing of a rule.
NO_RULE = (
    (r"#\d+", ""),
    (r"(?m)^ *\d+: ", ""),
    (r"\b(goto|if\w*) +\d+", r"\1"),
    (r"\b([ailfd](?:load|store))(?:_| +)\d+", r"\1"),
    (r"\biinc \d+", "iinc"),
    (r"lambda\$(\w+)\$\d+", r"lambda$\1"),
    (r"\.", "/"),
    (r"org/apache/kafka/coordinator", "kafka/coordinator"),
    (r"(utils|record)/internals?\b", r"\1"),
    (r" +", " "),
)
# UnifiedLog.append of 4.4 has a limit of decompressed bytes, and another name for the check that a log is not closed.
CHANGED = {
    (
        "UnifiedLog",
        "append",
    ): r"LogValidator/\"<init>\"|/maxDecompressedMessageBytes:|/checkIf\w*Closed:|Method config:|^aload$"
}
# Methods that these call and that differ in other ways than by a rule: names and classes of others, texts of the log.
CALLED = {
    ("LocalLog", "checkIfMemoryMappedBufferClosed"): "checkIfClosed",
    ("LogSegment", "updateTxnIndex"): "an AbortedTxn is a generated message, of the same fields",
    ("ReplicaManager", "getLog"): "LogManager is in Java",
    ("TransactionMarkerChannelManager", "addMarkersForBroker"): "TxnMarkerQueue is in Java",
    ("TransactionStateManager", "appendTransactionToLog"): "another place of the constants -1 and NONE",
    ("TxnMarkerQueue", "addMarkers"): "TxnMarkerQueue is in Java",
    ("UnifiedLog", "analyzeAndValidateRecords"): "another empty list",
    ("UnifiedLog", "maybeIncrementFirstUnstableOffset"): "checkIfClosed",
    ("UnifiedLog", "maybeRoll"): "a text of the log",
}
METHODS: dict[tuple[str, str], dict[str, list[str]]] = {}
CALL = re.compile(r"Method (?:([\w/$]+)/)?([\w$]+):")
METHOD = re.compile(r"(?:([A-Z][\w.]*)\.)?([a-z]\w+)")


def cited(*, is_inherited: bool = True) -> Iterator[tuple[str, str]]:
    """The classes and methods in which Kafka 4.3 has its rules: those that the newest release inherits, or others."""
    for rule in RELEASES.rules:
        name, own = "", rule.by_release.get(SAME.name)
        is_asked = own is not None and (rule.by_release.get(RELEASES.newest) == own) == is_inherited
        for text in re.split(r"[;,] ", rule.kafka) if is_asked else ():
            if found := METHOD.fullmatch(text):
                name = found[1] or name
                yield name, found[2]


@cache
def classes(kafka: str) -> dict[str, tuple[Path, str]]:
    """The classes of a release: their jar and whole name, by this name without what says nothing, and by its end."""
    found = {}
    for jar in sorted(jars_folder(kafka).glob("kafka*.jar")):
        for entry in ZipFile(jar).namelist():
            if entry.endswith(".class"):
                whole = entry.removesuffix(".class")
                found |= dict.fromkeys((without_noise(whole), whole.rpartition("/")[2].replace("$", ".")), (jar, whole))
    return found


def without_noise(text: str) -> str:
    """A text of javap without what says nothing of a rule."""
    for pattern, other in NO_RULE:
        text = re.sub(pattern, other, text)
    return text


def methods(kafka: str, name: str) -> dict[str, list[str]]:
    """The instructions of each method of a class, and of the functions within it, by its name."""
    read(kafka, [name])
    return METHODS[kafka, name]


def read(kafka: str, names: Iterable[str]) -> None:
    """Ask javap for all of these classes that the release has at once: most of the time is that of its start."""
    left = {name: classes(kafka)[name] for name in names if name in classes(kafka) and (kafka, name) not in METHODS}
    if not left:
        return
    jars = {str(jar) for jar, _ in left.values()}
    asked = [whole.replace("/", ".") for _, whole in left.values()]
    call = ["javap", "-p", "-c", "-cp", os.pathsep.join(sorted(jars)), *asked]
    told = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    for name, text in zip(left, re.split(r"(?m)^Compiled from .*\n", told)[1:], strict=True):
        found = defaultdict[str, list[str]](list)
        for block in text.split("\n\n"):
            if method := re.search(r"(?m)^  .*?([\w$]+)\(.*;$", block):
                outer = re.sub(r"^(?:lambda|\$anonfun)\$(\w+?)\$\d+.*", r"\1", method[1])
                found[outer].append(without_noise(block))
        METHODS[kafka, name] = {own: sorted(blocks) for own, blocks in found.items()}


def called(name: str, method: str) -> Iterator[tuple[str, str]]:
    """The classes and methods that a method calls, Kafka's and others'."""
    for block in methods(KAFKA_VERSION, name)[method]:
        for owner, other in CALL.findall(block):
            yield owner or name, other


def differing(name: str, method: str) -> list[str]:
    """The lines in which a method differs between the two releases, without those that are explained."""
    explained = CHANGED.get((name, method), "(?!)")
    own, other = (
        sorted(
            [line.strip() for line in block.splitlines() if not re.search(rf"{explained}|^}}$", line.strip())]
            for block in (methods(kafka, name).get(method, []) if name in classes(kafka) else [])
        )
        for kafka in (KAFKA_VERSION, NEWEST)
    )
    lines = [{line for block in each for line in block} for each in (own, other)]
    return sorted(lines[0] ^ lines[1]) or ([] if own == other else ["the order"])


def test_the_newest_release_inherits_the_rules_of_the_one_before() -> None:
    assert RELEASES.get(NEWEST.rpartition(".")[0]).inherits == SAME.name
    assert KAFKA_VERSION.startswith(SAME.name)


@pytest.mark.java
@pytest.mark.thorough
@pytest.mark.skipif(
    not have_jars(NEWEST), reason=f"the jars of Kafka {NEWEST} are not there; `make peers` fetches them"
)
def test_the_methods_in_which_a_release_has_its_rules_are_those_of_the_other_one() -> None:
    named, own = set(cited()), set(cited(is_inherited=False))
    for kafka in (KAFKA_VERSION, NEWEST):
        read(kafka, {name for name, _ in named | own})
    there = {(name, method) for name, method in named if method in methods(KAFKA_VERSION, name)}
    assert {method for _, method in named - there} == {"sendTxnMarkersCallback"}, "a function within endTransaction"
    assert len(there) > 20
    assert {each: lines for each in sorted(there) if (lines := differing(*each))} == {}
    assert differing("UnifiedLog", "fetchOffsetByTimestamp"), "a method that did change is noticed"
    assert len(own) == 2
    assert [each for each in own if not differing(*each)] == [], "a rule that names the newest release is in other code"
    calls = {each for one in there for each in called(*one) if each[0] in classes(KAFKA_VERSION)}
    for kafka in (KAFKA_VERSION, NEWEST):
        read(kafka, {name for name, _ in calls})
    others = {(name, method) for name, method in calls if method in methods(KAFKA_VERSION, name)} - there
    assert len(others) > 200
    changed = {(name.rpartition("/")[2], method) for name, method in others if differing(name, method)}
    assert changed == CALLED.keys(), "read each, before it is said to change no rule"
