"""The names that jars hold: packages, classes, their methods and fields, and the settings that classes define.

Only the names are read out of class files, by the format of chapter 4 of the Java Virtual Machine Specification.
"""

import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

_UTF8, _CLASS = 1, 7
# tag of a constant -> the bytes behind it; a long or a double (5, 6) takes two places
_WIDTHS = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_WIDE = (5, 6)


@dataclass(frozen=True, slots=True)
class ClassNames:
    """The names in a class file.

    Attributes:
        parents: superclass and interfaces, as in ``java/lang/Object``.
        members: methods and fields.
        texts: every text of the constant pool.
    """

    parents: tuple[str, ...]
    members: frozenset[str]
    texts: frozenset[str]


def read_class(content: bytes) -> ClassNames:
    """The names in a class file.

    Raises:
        ValueError: when the content is no class file.
    """
    if content[:4] != b"\xca\xfe\xba\xbe":
        raise ValueError("no class file: it does not start with CAFEBABE")
    texts: dict[int, str] = {}
    classes: dict[int, int] = {}
    at, place, count = 10, 1, int.from_bytes(content[8:10])
    while place < count:
        tag = content[at]
        if tag == _UTF8:
            length = int.from_bytes(content[at + 1 : at + 3])
            texts[place] = content[at + 3 : at + 3 + length].decode("utf-8", errors="replace")
            at += 3 + length
        else:
            if tag == _CLASS:
                classes[place] = int.from_bytes(content[at + 1 : at + 3])
            at += 1 + _WIDTHS[tag]
        place += 2 if tag in _WIDE else 1
    _, _, parent, interfaces = struct.unpack_from(">HHHH", content, at)
    at += 8
    parents = [parent, *struct.unpack_from(f">{interfaces}H", content, at)]
    at += 2 * interfaces
    members: set[str] = set()
    for _ in ("fields", "methods"):
        entries = int.from_bytes(content[at : at + 2])
        at += 2
        for _ in range(entries):
            _, name, _, attributes = struct.unpack_from(">HHHH", content, at)
            members.add(texts[name])
            at += 8
            for _ in range(attributes):
                at += 6 + int.from_bytes(content[at + 2 : at + 6])
    return ClassNames(tuple(texts[classes[p]] for p in parents if p), frozenset(members), frozenset(texts.values()))


class JavaNames:
    """The names in the jars of some folders; a context manager, which holds the jars open."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.packages: set[str] = set()
        self._classes: dict[str, zipfile.ZipFile] = {}  # kafka/api/Thing$Inner -> its jar
        self._by_name: dict[str, list[str]] = defaultdict(list)  # Thing.Inner, Inner -> the classes above
        self._read: dict[str, ClassNames] = {}
        self._jars = [zipfile.ZipFile(jar) for folder in folders for jar in sorted(folder.glob("*.jar"))]
        for jar in self._jars:
            for entry in jar.namelist():
                if entry.endswith(".class"):
                    self._add(jar, entry.removesuffix(".class"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for jar in self._jars:
            jar.close()

    def _add(self, jar: zipfile.ZipFile, path: str) -> None:
        self._classes[path] = jar
        package, _, name = path.rpartition("/")
        self.packages.add(package.replace("/", "."))
        parts = [part for part in name.split("$") if part]
        for start in range(len(parts)):
            self._by_name[".".join(parts[start:])].append(path)

    def classes(self, name: str) -> list[str]:
        """The classes of this name, which may have an outer class or a package before it."""
        simple = ".".join(part for part in name.split(".") if part[:1].isupper())
        package = name.removesuffix(simple).rstrip(".").replace(".", "/")
        return [path for path in self._by_name.get(simple, ()) if path.rpartition("/")[0].endswith(package)]

    def has_member(self, name: str, member: str) -> bool:
        """Whether a class of this name, one that it inherits from, or its companion object has a method or field."""
        waiting = self.classes(name)
        while waiting:
            path = waiting.pop()
            if path in self._classes:
                names = self._names(path)
                if member in names.members:
                    return True
                waiting += names.parents
        return False

    @cached_property
    def settings(self) -> frozenset[str]:
        """The texts of the classes that define settings, features and metrics, by their names."""
        kinds = ("Config", "Configs", "Version", "Feature")
        of_settings = [path for path in self._classes if path.startswith("org/apache/kafka") and path.endswith(kinds)]
        return frozenset(text for path in of_settings for text in self._names(path).texts)

    def _names(self, path: str) -> ClassNames:
        if path not in self._read:
            self._read[path] = read_class(self._classes[path].read(f"{path}.class"))
        return self._read[path]
