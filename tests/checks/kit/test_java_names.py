"""Names in class files and jars, made here byte by byte."""

import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_eos_checks.kit.java_names import JavaNames, read_class

OBJECT = "java/lang/Object"
# one constant of each other tag, as wide as chapter 4.4 of the specification says
OTHERS = {3: 4, 4: 4, 5: 8, 6: 8, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


class Constants:
    """A constant pool."""

    def __init__(self) -> None:
        self.content, self.count = b"", 1

    def add(self, tag: int, body: bytes) -> int:
        place = self.count
        self.content += bytes([tag]) + body
        self.count += 2 if tag in {5, 6} else 1
        return place

    def text(self, value: str) -> int:
        encoded = value.encode()
        return self.add(1, struct.pack(">H", len(encoded)) + encoded)

    def named(self, value: str) -> int:
        return self.add(7, struct.pack(">H", self.text(value)))


def class_file(
    fields: Sequence[str], methods: Sequence[str], parent: str = OBJECT, interfaces: Sequence[str] = (), text: str = ""
) -> bytes:
    pool = Constants()
    for tag, width in OTHERS.items():
        pool.add(tag, b"\x01" * width)
    code = pool.text("Code")
    if text:
        pool.text(text)
    own, above = pool.named("Thing"), pool.named(parent)
    besides = [pool.named(each) for each in interfaces]
    rest = struct.pack(f">HHHH{len(besides)}H", 1, own, above, len(besides), *besides)
    for members in (fields, methods):
        rest += struct.pack(">H", len(members))
        for name in members:
            rest += struct.pack(">HHHH", 1, pool.text(name), code, 2)
            for size in (0, 3):
                rest += struct.pack(">HI", code, size) + b"\xff" * size
    return b"\xca\xfe\xba\xbe" + struct.pack(">HHH", 0, 61, pool.count) + pool.content + rest


def test_a_class_file_has_its_parents_members_and_texts() -> None:
    names = read_class(
        class_file(["size", "LIMIT"], ["append", "close"], interfaces=("a/One", "a/Two"), text="größe" * 60)
    )
    assert names.parents == (OBJECT, "a/One", "a/Two")
    assert names.members == {"size", "LIMIT", "append", "close"}
    assert {"größe" * 60, "Thing", "Code", OBJECT} <= names.texts


def test_a_file_that_is_no_class_is_refused() -> None:
    with pytest.raises(ValueError, match="CAFEBABE"):
        read_class(b"PK\x03\x04" + bytes(20))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    jars: dict[str, dict[str, bytes]] = {
        "a.jar": {
            "org/apache/kafka/log/Log.class": class_file(["end"], ["append"]),
            "org/apache/kafka/log/Log$Inner.class": class_file([], ["read"], "org/apache/kafka/log/Log"),
            "org/apache/kafka/log/LogConfig.class": class_file([], [], text="retention.ms"),
            "notes.txt": b"",
        },
        "b.jar": {
            "other/Log.class": class_file([], ["write"]),
            "other/TopicConfig.class": class_file([], [], text="not.kafkas"),
        },
    }
    for jar, entries in jars.items():
        with zipfile.ZipFile(tmp_path / jar, "w") as file:
            for name, content in entries.items():
                file.writestr(name, content)
    return tmp_path


def test_a_class_is_found_by_its_name_with_or_without_what_is_around_it(folder: Path) -> None:
    with JavaNames([folder]) as names:
        assert names.packages == {"org.apache.kafka.log", "other"}
        assert sorted(names.classes("Log")) == ["org/apache/kafka/log/Log", "other/Log"]
        assert names.classes("kafka.log.Log") == ["org/apache/kafka/log/Log"]
        assert names.classes("Log.Inner") == names.classes("Inner") == ["org/apache/kafka/log/Log$Inner"]
        assert names.classes("Nothing") == []


def test_a_member_is_found_in_the_class_and_in_those_that_it_inherits_from(folder: Path) -> None:
    with JavaNames([folder]) as names:
        assert all(names.has_member("Log.Inner", member) for member in ("read", "append", "end"))
        assert not names.has_member("Log.Inner", "write")
        assert names.has_member("Log", "write"), "there is another Log"
        assert not names.has_member("Log", "read")


def test_settings_are_the_texts_of_kafkas_own_classes_of_settings(folder: Path) -> None:
    with JavaNames([folder]) as names:
        assert "retention.ms" in names.settings
        assert "not.kafkas" not in names.settings


def test_the_jars_are_closed_with_the_context(folder: Path) -> None:
    with JavaNames([folder]) as names:
        pass
    with pytest.raises(ValueError, match="closed"):
        names.has_member("Log", "write")
