"""Connections to a broker: raw requests in chosen versions, over TCP or TLS, with SASL if need be.

Nothing is retried here and nothing is hidden: the caller gets the fields of the response, or one of the errors below.
"""

import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_eos.errors import ErrorCode
from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Codec, MalformedMessage, Message
from kafka_eos_checks.conform.security import NotAuthenticated, Security, authenticate

_Answer = TypeVar("_Answer")
CLIENT_ID = "kafka-eos-conform"
ANSWER_LIMIT = 1 << 26  # bytes
SILENT_LIMIT = 3
"""Requests in a row that are not answered in time, after which a broker is not asked for that API any more."""
_UNSUPPORTED = (ErrorCode.UNSUPPORTED_VERSION,)  # as it is unpacked
_SASL = """[
{"apiKey":17,"type":"request","name":"SaslHandshakeRequest","validVersions":"0-1","flexibleVersions":"none",
 "fields":[{"name":"Mechanism","type":"string","versions":"0+"}]},
{"apiKey":17,"type":"response","name":"SaslHandshakeResponse","validVersions":"0-1","flexibleVersions":"none",
 "fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Mechanisms","type":"[]string","versions":"0+"}]},
{"apiKey":36,"type":"request","name":"SaslAuthenticateRequest","validVersions":"0","flexibleVersions":"none",
 "fields":[{"name":"AuthBytes","type":"bytes","versions":"0+"}]},
{"apiKey":36,"type":"response","name":"SaslAuthenticateResponse","validVersions":"0","flexibleVersions":"none",
 "fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},
           {"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+"},
           {"name":"AuthBytes","type":"bytes","versions":"0+"}]},
{"type":"header","name":"RequestHeader","validVersions":"1-2","flexibleVersions":"2+",
 "fields":[{"name":"RequestApiKey","type":"int16","versions":"0+"},
           {"name":"RequestApiVersion","type":"int16","versions":"0+"},
           {"name":"CorrelationId","type":"int32","versions":"0+"},
           {"name":"ClientId","type":"string","versions":"1+","nullableVersions":"1+","flexibleVersions":"none"}]},
{"type":"header","name":"ResponseHeader","validVersions":"0-1","flexibleVersions":"1+",
 "fields":[{"name":"CorrelationId","type":"int32","versions":"0+"}]}
]"""
_SASL_CODEC = Codec({schema["name"]: schema for schema in json.loads(_SASL)})


class Unreachable(ConnectionError):  # noqa: N818 - what is wrong
    """Nobody answers at an address, or not as a Kafka broker does."""


class NoAnswer(ConnectionError):  # noqa: N818 - what happened
    """A request without an answer, with a late one, or with bytes that are no response to it."""


class ConnectionClosed(NoAnswer):
    """A request on a connection that ended before its answer, as one that was idle or whose login has expired does."""


class NotInTime(NoAnswer):
    """A request that a broker has taken, and has not answered for as long as is waited."""


class Unsupported(LookupError):  # noqa: N818 - what is wrong
    """An API, or the version of it that is needed, that the broker does not offer."""


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address_of(text: str) -> Address:
    """``host:port``, the first of a list.

    Raises:
        ValueError: when the text has another form.
    """
    host, _, port = text.partition(",")[0].strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Address(host.strip("[]"), int(port))


class Connection:
    """A connection to one broker, logged in.

    Args:
        address: the broker's address.
        security: how to connect.
        seconds: how long to wait for anything.

    Raises:
        Unreachable: when nobody answers there, or the login fails.
    """

    def __init__(self, address: Address, security: Security, seconds: float) -> None:
        self.address = address
        self._seconds = seconds
        self._correlation = 0
        try:
            self._socket = socket.create_connection((address.host, address.port), timeout=seconds)
        except OSError as error:
            raise Unreachable(f"{address}: {error}") from None
        try:
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=address.host)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.mechanism:
                self._log_in(security)
        except (OSError, NoAnswer) as error:
            self.close()
            raise Unreachable(f"{address}: {error}") from None

    def _log_in(self, security: Security) -> None:
        row = self.ask("SaslHandshake", 1, {"Mechanism": security.mechanism}, _SASL_CODEC)
        if row["ErrorCode"]:
            offered = ", ".join(row["Mechanisms"])
            instead = f"but {offered}" if offered else "nor any other mechanism: its listener has no SASL"
            raise NotAuthenticated(f"SASL {security.mechanism} is not offered, {instead}")

        def exchange(data: bytes) -> bytes:
            answer = self.ask("SaslAuthenticate", 0, {"AuthBytes": data}, _SASL_CODEC)
            if answer["ErrorCode"]:
                raise NotAuthenticated(f"SASL: {answer['ErrorMessage']}")
            return bytes(answer["AuthBytes"])

        authenticate(security, exchange)

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._socket.close()

    def ask(self, api: str, version: int, row: Message, codec: Codec | None = None) -> Message:
        """Send a request and return the fields of its response.

        Raises:
            NoAnswer: when there is none; ConnectionClosed if the connection has ended.
        """
        codec = codec or served_codec()
        self._correlation += 1
        data = codec.write_request(api, version, self._correlation, CLIENT_ID, row)
        try:
            self._socket.sendall(struct.pack(">i", len(data)) + data)
            body = self._frame()
            if api == "ApiVersions" and version > 0 and struct.unpack_from(">h", body, 4) == _UNSUPPORTED:
                version = 0  # KIP-511: told in the oldest version
            correlation, answer = codec.read_response(api, version, body)
        except TimeoutError:
            raise NotInTime(f"{api} v{version}: no answer within {self._seconds:g} s") from None
        except OSError as error:
            raise ConnectionClosed(f"{api} v{version}: {error}") from None
        except (struct.error, MalformedMessage) as error:
            raise NoAnswer(f"{api} v{version}: {error}") from None
        if correlation != self._correlation:
            raise NoAnswer(f"{api} v{version}: the answer to another request")
        return answer

    def _frame(self) -> bytes:
        size = struct.unpack(">i", self._bytes(4))[0]
        if not 0 <= size <= ANSWER_LIMIT:
            raise MalformedMessage(0, f"{size} bytes announced")
        return self._bytes(size)

    def _bytes(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            some = self._socket.recv(count - len(found))
            if not some:
                raise ConnectionError("the broker closed the connection")
            found += some
        return bytes(found)


@dataclass(slots=True)
class Wire:
    """A cluster, as a client reaches it.

    Attributes:
        bootstrap: the first broker to ask.
        security: how to connect.
        seconds: how long to wait for an answer.
        caps: the newest version to be used, by API.
        offered: the oldest and the newest version that the broker offers, by API.
        features: the finalized levels of features, by name.
        gives_up: a broker that hangs is not asked for an API any more: right for a run that ends, not for a watch.
    """

    bootstrap: Address
    security: Security = field(default=Security())
    seconds: float = 10.0
    caps: Mapping[str, int] = field(default_factory=dict)
    offered: dict[str, tuple[int, int]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    gives_up: bool = False
    _connections: dict[Address, Connection] = field(default_factory=dict)
    _silent: Counter[tuple[str, Address]] = field(default_factory=Counter)

    def connect(self) -> None:
        """Connect, and learn what the broker offers.

        Raises:
            Unreachable: when nobody answers as a Kafka broker does.
        """
        software = {"ClientSoftwareName": CLIENT_ID, "ClientSoftwareVersion": "1"}
        try:
            try:
                row = self._connection(self.bootstrap).ask("ApiVersions", 3, software)
            except NoAnswer:  # a broker from before 2.4 may close the connection
                self._drop(self.bootstrap)
                row = {"ErrorCode": ErrorCode.UNSUPPORTED_VERSION}
            if row["ErrorCode"] == ErrorCode.UNSUPPORTED_VERSION:
                row = self._connection(self.bootstrap).ask("ApiVersions", 0, {})
        except NoAnswer as error:
            self._drop(self.bootstrap)
            said = f"no Kafka broker answers: {error}; it may still be starting, or want another security.protocol"
            raise Unreachable(f"{self.bootstrap}: {said}") from None
        names = served_codec().names
        self.offered = {
            names[each["ApiKey"]]: (each["MinVersion"], each["MaxVersion"])
            for each in row["ApiKeys"]
            if each["ApiKey"] in names
        }
        self.features = {each["Name"]: each["MaxVersionLevel"] for each in row.get("FinalizedFeatures", [])}

    def close(self) -> None:
        """End all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._silent.clear()

    def version(self, api: str, cap: int | None = None) -> int:
        """The newest version that both sides know, up to the cap, by default the wire's own.

        Raises:
            Unsupported: when there is none.
        """
        known = served_codec().versions(f"{api}Request")
        low, high = self.offered.get(api, (0, -1))
        newest = min(high, known.stop - 1, self.caps.get(api, high) if cap is None else cap)
        if newest < max(low, known.start):
            offer = f"offers versions {low} to {high}" if api in self.offered else "does not offer it"
            raise Unsupported(f"{api}: the broker {offer}")
        return newest

    def ask(self, api: str, row: Message, at: Address | None = None, version: int | None = None) -> Message:
        """Send a request to a broker, by default the first one.

        Raises:
            NoAnswer: when it is not answered; the connection is closed then.
            Unreachable: when nobody answers there.
            Unsupported: when the broker does not offer it.
        """
        chosen = self.version(api) if version is None else version
        address = at or self.bootstrap
        if self.gives_up and self._silent[api, address] >= SILENT_LIMIT:
            times = f"{SILENT_LIMIT} times in a row"
            raise NoAnswer(f"{api}: no answer within {self.seconds:g} s, {times}; {address} is not asked for it again")
        try:
            answer = self._connection(address).ask(api, chosen, row)
        except NoAnswer as error:
            self._silent[api, address] += isinstance(error, NotInTime)
            self._drop(address)
            raise
        self._silent.pop((api, address), None)
        return answer

    def _connection(self, address: Address) -> Connection:
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = Connection(address, self.security, self.seconds)
        return found

    def _drop(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


def again_if_closed(ask: Callable[[], _Answer]) -> _Answer:
    """The answer to a question that changes nothing: asked once more if its connection has ended, as an idle one does.

    Raises:
        ConnectionClosed: when the second one ends, too.
    """
    try:
        return ask()
    except ConnectionClosed:
        return ask()


def error_name(code: int) -> str:
    """Kafka's name of an error code, as far as it is known here."""
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"


def wait(attempt: int) -> None:
    """A pause that grows, up to a tenth of a second."""
    time.sleep(0.1 if attempt > 5 else 0.002 * 2**attempt)
