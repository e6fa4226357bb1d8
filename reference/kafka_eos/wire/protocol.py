"""Kafka's protocol messages, read and written as the schemas inside ``kafka-clients`` say.

A schema is compiled once per (message, version) into reader and writer functions. A message is a plain ``dict`` under
the schema's own field names (``{"ProducerId": 4000, ...}``) with raw integers, so that error codes no enum knows
survive a round trip. Records stay ``bytes``; ``kafka_eos.formats.record_batch`` reads the batches inside.

Source: KIP-482 (flexible versions, tagged fields), ``common/message/*.json``.
"""

import json
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

Message = dict[str, Any]
_Read = Callable[["Buffer"], Any]
_Write = Callable[[bytearray, Any], None]

_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
    "bool": ">?",
}
_API_VERSIONS = 18
_ALL_VERSIONS = 32767


class MalformedMessage(ValueError):  # noqa: N818 - named for the bytes, as MalformedBatch is
    """Bytes that are no message of the given schema and version.

    Attributes:
        position: where in the given bytes the impossible value stands.
        reason: what is impossible about it.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class Buffer:
    """Bytes with a read position that never runs past the end.

    Args:
        data: the bytes.
        max_elements: how many elements all arrays together may have, because a byte on the wire can be an object here.
    """

    def __init__(self, data: bytes, max_elements: int = 1 << 31) -> None:
        self.data = data
        self.position = 0
        self.max_elements = max_elements

    @property
    def remaining(self) -> int:
        """Bytes not yet read."""
        return len(self.data) - self.position

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes.

        Raises:
            MalformedMessage: when fewer are left.
        """
        start, end = self.position, self.position + count
        if not start <= end <= len(self.data):
            raise MalformedMessage(start, f"{count} bytes announced, {self.remaining} left")
        self.position = end
        return self.data[start:end]

    def varint(self) -> int:
        """An unsigned variable-length integer of at most 32 bits."""
        start = self.position
        if start < len(self.data) and (byte := self.data[start]) < 0x80:  # as most are
            self.position = start + 1
            return byte
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedMessage(self.position, "a varint of more than five bytes")


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@dataclass(frozen=True, slots=True)
class _Versions:
    """A range of versions, both ends included; empty when ``low > high``."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


@cache
def _versions(text: str | None) -> _Versions:
    """Parse ``3``, ``3-5``, ``3+`` or ``none``."""
    if text is None or text == "none":
        return _Versions(1, 0)
    if text.endswith("+"):
        return _Versions(int(text[:-1]), _ALL_VERSIONS)
    low, _, high = text.partition("-")
    return _Versions(int(low), int(high or low))


# --- one type: a reader, a writer, the value of an absent field -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Type:
    read: _Read
    write: _Write


def _number(form: str) -> _Type:
    packed = struct.Struct(form)
    size, pack, unpack = packed.size, packed.pack, packed.unpack_from

    def read(buffer: Buffer) -> Any:
        start = buffer.position
        if start + size > len(buffer.data):
            buffer.take(size)  # refuses
        buffer.position = start + size
        return unpack(buffer.data, start)[0]

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return _Type(read, write)


def _uuid() -> _Type:
    return _Type(lambda b: UUID(bytes=b.take(16)), lambda out, value: out.extend(value.bytes))


def _length(form: str, flexible: bool) -> tuple[Callable[[Buffer], int], Callable[[bytearray, int], None]]:
    """Reader and writer of a length, -1 for null: fixed size, or a varint of the length plus one."""
    if not flexible:
        fixed = _number(form)
        return fixed.read, fixed.write
    return (lambda b: b.varint() - 1), (lambda out, count: _put_varint(out, count + 1))


def _sized(form: str, flexible: bool, nullable: bool, text: bool) -> _Type:
    """A string, bytes or records: a length, then that many bytes."""
    get, put = _length(form, flexible)

    def read(buffer: Buffer) -> Any:
        at = buffer.position
        count = get(buffer)
        if count == -1 and nullable:
            return None
        data = buffer.take(count)
        if not text:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage(at, f"no UTF-8: {error.reason}") from None

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            put(out, -1)
            return
        data = value.encode() if text else value
        put(out, len(data))
        out += data

    return _Type(read, write)


def _array(element: _Type, flexible: bool, nullable: bool) -> _Type:
    get, put = _length(">i", flexible)

    def read(buffer: Buffer) -> Any:
        at = buffer.position
        count = get(buffer)
        if count == -1 and nullable:
            return None
        if count < 0 or count > buffer.remaining:  # an element takes a byte at least
            raise MalformedMessage(at, f"{count} elements announced, {buffer.remaining} bytes left")
        buffer.max_elements -= count
        if buffer.max_elements < 0:
            raise MalformedMessage(at, f"{count} elements more than there may be")
        return [element.read(buffer) for _ in range(count)]

    def write(out: bytearray, value: Any) -> None:
        put(out, -1 if value is None else len(value))
        for item in value or ():
            element.write(out, item)

    return _Type(read, write)


def _nullable_struct(inner: _Type, tagged: bool) -> _Type:
    """A structure after a byte that says whether it is there: -1 or 1, in a tagged field 0 or 1."""
    absent, presence = 0 if tagged else -1, _number(">b")

    def read(buffer: Buffer) -> Any:
        return None if presence.read(buffer) == absent else inner.read(buffer)

    def write(out: bytearray, value: Any) -> None:
        presence.write(out, absent if value is None else 1)
        if value is not None:
            inner.write(out, value)

    return _Type(read, write)


# --- a schema at one version ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: _Type
    default: Any
    tag: int | None


class _Compiler:
    """Compiles the fields of one schema for one version."""

    def __init__(self, schema: Message, version: int) -> None:
        self.version = version
        self.flexible = version in _versions(schema.get("flexibleVersions"))
        self.structs = {s["name"]: s["fields"] for s in schema.get("commonStructs", [])}

    def struct(self, fields: list[Message]) -> _Type:
        compiled = [self._field(f) for f in fields if self.version in _versions(f["versions"])]
        readers = [(f.name, f.type.read) for f in compiled if f.tag is None]
        writers = [(f.name, f.type.write, f.default) for f in compiled if f.tag is None]
        tagged = {f.tag: f for f in compiled if f.tag is not None}
        absent = {f.name: f.default for f in tagged.values()}
        flexible = self.flexible

        def read(buffer: Buffer) -> Message:
            row: Message = {name: get(buffer) for name, get in readers}
            if flexible:
                row.update(absent)
                for _ in range(buffer.varint()):
                    tag, size = buffer.varint(), buffer.varint()
                    if tag in tagged:
                        own = Buffer(buffer.take(size), buffer.max_elements)
                        row[tagged[tag].name] = tagged[tag].type.read(own)
                        buffer.max_elements = own.max_elements
                    else:
                        row.setdefault("_tagged", {})[tag] = buffer.take(size)
            return row

        def write(out: bytearray, row: Message) -> None:
            for name, put, default in writers:
                put(out, row.get(name, default))
            if not flexible:
                return
            if not tagged and "_tagged" not in row:  # as most structures are
                out.append(0)
                return
            extra: dict[int, bytes] = dict(row.get("_tagged", {}))
            for tag, f in tagged.items():
                if row.get(f.name, f.default) != f.default:
                    body = bytearray()
                    f.type.write(body, row[f.name])
                    extra[tag] = bytes(body)
            _put_varint(out, len(extra))
            for tag in sorted(extra):
                _put_varint(out, tag)
                _put_varint(out, len(extra[tag]))
                out.extend(extra[tag])

        return _Type(read, write)

    def _field(self, row: Message) -> _Field:
        nullable = self.version in _versions(row.get("nullableVersions"))
        own = row.get("flexibleVersions")
        flexible = self.flexible if own is None else self.version in _versions(own)
        tag = row["tag"] if self.version in _versions(row.get("taggedVersions")) else None
        own_type = self._type(row, row["type"], flexible, nullable, tag is not None)
        return _Field(row["name"], own_type, self._default(row), tag)

    def _type(self, row: Message, name: str, flexible: bool, nullable: bool, tagged: bool) -> _Type:
        if name.startswith("[]"):
            return _array(self._type(row, name[2:], flexible, False, False), flexible, nullable)
        if name in _NUMBERS:
            return _number(_NUMBERS[name])
        if name == "uuid":
            return _uuid()
        if name in {"string", "bytes", "records"}:
            return _sized(">h" if name == "string" else ">i", flexible, nullable, name == "string")
        inner = self.struct(row.get("fields") or self.structs[name])
        return _nullable_struct(inner, tagged) if nullable else inner

    def _default(self, row: Message) -> Any:
        name, text = row["type"], row.get("default")
        if text == "null":
            return None
        if name.startswith("[]"):
            return []
        if name in {"float64", "bool"}:
            return float(text or 0) if name == "float64" else str(text).lower() == "true"
        if name in _NUMBERS:
            return int(str(text or 0), 0)
        if name == "uuid":
            return UUID(int=0)
        if name in {"string", "bytes", "records"}:
            return (text or "") if name == "string" else b""
        inner = row.get("fields") or self.structs[name]
        return {f["name"]: self._default(f) for f in inner if self.version in _versions(f["versions"])}


class Codec:
    """The protocol of one Kafka release.

    Args:
        schemas: the parsed schema files, by the message's name.
    """

    def __init__(self, schemas: dict[str, Message]) -> None:
        self._schemas = schemas
        self._compiled: dict[tuple[str, int], _Type] = {}
        self.names = {s["apiKey"]: n.removesuffix("Request") for n, s in schemas.items() if s["type"] == "request"}
        self.keys = {name: key for key, name in self.names.items()}

    def messages(self) -> list[str]:
        """The names of all messages."""
        return sorted(self._schemas)

    def versions(self, message: str) -> range:
        """The versions of a message that this release knows."""
        valid = _versions(self._schemas[message]["validVersions"])
        return range(valid.low, valid.high + 1)

    def _type(self, message: str, version: int) -> _Type:
        known = self._compiled.get((message, version))
        if known is None:
            schema = self._schemas.get(message)
            if schema is None or version not in _versions(schema["validVersions"]):
                raise MalformedMessage(0, f"{message} has no version {version}")
            known = self._compiled[message, version] = _Compiler(schema, version).struct(schema["fields"])
        return known

    def read(self, message: str, version: int, buffer: Buffer) -> Message:
        """Read one message at the buffer's position.

        Raises:
            MalformedMessage: when the bytes are no such message.
        """
        return self._type(message, version).read(buffer)  # type: ignore[no-any-return]

    def write(self, message: str, version: int, row: Message) -> bytes:
        """Write one message; fields that ``row`` leaves out take the schema's default."""
        out = bytearray()
        self._type(message, version).write(out, row)
        return bytes(out)

    def fields(self, message: str, version: int) -> list[Message]:
        """The fields of a message in a version, as its schema has them; a structure contains its own fields."""
        schema = self._schemas[message]
        structs = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}

        def present(fields: list[Message]) -> list[Message]:
            found = [field for field in fields if version in _versions(field["versions"])]
            inner = [field.get("fields") or structs.get(field["type"].removeprefix("[]"), []) for field in found]
            return [field | {"fields": present(own)} for field, own in zip(found, inner, strict=True)]

        return present(schema["fields"])

    def flexible(self, message: str, version: int) -> bool:
        """Whether this version of the message has tagged fields."""
        return version in _versions(self._schemas[message].get("flexibleVersions"))

    def write_request(self, api: str, version: int, correlation: int, client_id: str | None, row: Message) -> bytes:
        """A whole request, header included, without its length."""
        header = {
            "RequestApiKey": self.keys[api],
            "RequestApiVersion": version,
            "CorrelationId": correlation,
            "ClientId": client_id,
        }
        head = self.write("RequestHeader", 2 if self.flexible(f"{api}Request", version) else 1, header)
        return head + self.write(f"{api}Request", version, row)

    def read_request_header(self, data: bytes) -> tuple[Message, Buffer]:
        """The header of a request, and the buffer standing at its body.

        Raises:
            MalformedMessage: when the API or its version is unknown to this release.
        """
        key, version = struct.unpack(">hh", Buffer(data).take(4))
        api = self.names.get(key)
        if api is None or version not in self.versions(f"{api}Request"):
            raise MalformedMessage(0, f"no API {key} version {version}")
        buffer = Buffer(data)
        return self.read("RequestHeader", 2 if self.flexible(f"{api}Request", version) else 1, buffer), buffer

    def write_response(self, api: str, version: int, correlation: int, row: Message) -> bytes:
        """A whole response, header included, without its length."""
        head = self.write("ResponseHeader", self._response_header(api, version), {"CorrelationId": correlation})
        return head + self.write(f"{api}Response", version, row)

    def read_response(self, api: str, version: int, data: bytes) -> tuple[int, Message]:
        """Correlation id and body of a whole response.

        Raises:
            MalformedMessage: when the bytes are no such response.
        """
        buffer = Buffer(data)
        header = self.read("ResponseHeader", self._response_header(api, version), buffer)
        row = self.read(f"{api}Response", version, buffer)
        if buffer.remaining:
            raise MalformedMessage(buffer.position, f"{buffer.remaining} bytes after the end of {api} v{version}")
        return header["CorrelationId"], row

    def _response_header(self, api: str, version: int) -> int:
        # A client that asks for versions can't know the answer's header yet: ApiVersions stays at 0 (KIP-511).
        return 1 if self.keys[api] != _API_VERSIONS and self.flexible(f"{api}Response", version) else 0


@cache
def load_codec(clients_jar: Path) -> Codec:
    """The codec of the release whose ``kafka-clients`` jar this is."""
    with zipfile.ZipFile(clients_jar) as jar:
        names = [n for n in jar.namelist() if n.startswith("common/message/") and n.endswith(".json")]
        parsed = [json.loads(re.sub(r"(?m)^\s*//.*$", "", jar.read(name).decode())) for name in names]
    return Codec({schema["name"]: schema for schema in parsed})
