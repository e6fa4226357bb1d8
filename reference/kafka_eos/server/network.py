"""Connections and timers: the cluster on sockets.

A connection's requests are answered one after the other, as in Kafka. What is no request costs the sender its
connection and nobody else anything: a frame of an impossible length, an unknown API or version, bytes that are no such
message, a peer that is gone or reads nothing.

Kafka: SocketServer, RequestChannel
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol, Self

from kafka_eos.errors import ErrorCode
from kafka_eos.protocol import Buffer, MalformedMessage, Message
from kafka_eos.server.cluster import Broker, Cluster, Limits
from kafka_eos.server.handlers import handle
from kafka_eos.server.handlers.request import Request, served_versions
from kafka_eos.server.schemas import served_codec

log = logging.getLogger("kafka_eos.server")

SMALLEST_FRAME = 8
"""Bytes: API, version and correlation id are in each."""

_API_VERSIONS = 18
_READ_AHEAD = 1 << 16


def wall_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Observer(Protocol):
    """Who is told of every request before it is handled, and of every answer before it is sent."""

    def asked(self, connection: int, node: int, frame: bytes) -> Any:
        """A request, by the number of its connection and the broker; what is returned belongs to the answer."""

    def answered(self, request: Any, frame: bytes) -> None:
        """The answer to a request for which ``asked`` has returned something else than None."""


class Connection(asyncio.Protocol):
    """A client's connection to a logical broker."""

    def __init__(self, server: "Server", node: int) -> None:
        self._server = server
        self._node = node
        self._number = next(server.numbers)
        self._buffer = bytearray()
        self._answering = self._writable = False
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._request: Request | None = None  # that waits for its answer
        self.last_heard = server.clock()

    # --- what asyncio calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connects."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._writable = transport, True
        peer = transport.get_extra_info("peername") or ("", 0)
        self._peer = str(peer[0])
        opened = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._server.admit(self):
            self.close(f"{self._server.limits.connections} connections are open already")

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """It is gone."""
        self._transport = None
        if self._request is not None and self._request.cancel is not None:
            self._request.cancel()
        self._request = None
        self._server.forget(self, len(self._buffer))
        self._buffer.clear()

    def pause_writing(self) -> None:
        """The peer does not read what it asked for: nothing more is done for it."""
        self._writable = False

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writable = True
        self._process()

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        self.last_heard = self._server.clock()
        self._buffer += data
        if self._server.takes(len(data)):
            self._process()
        else:
            self.close("too many bytes of unfinished requests are waiting")

    @property
    def is_full(self) -> bool:
        """The peer does not read what it has been sent."""
        return not self._writable

    # --- frames ------------------------------------------------------------------------------------------------------

    def close(self, why: str) -> None:
        """Close the connection, without a word to the client."""
        if self._transport is not None:
            log.info("connection from %s closed: %s", self._peer, why)
            self._transport.abort()

    def _process(self) -> None:
        """Handle the requests that have arrived whole, as long as each is answered at once."""
        transport = self._transport
        position = 0
        while transport is not None and not transport.is_closing() and self._writable and not self._answering:
            size = int.from_bytes(self._buffer[position : position + 4], "big", signed=True)
            if len(self._buffer) - position < 4:
                break
            if not SMALLEST_FRAME <= size <= self._server.limits.frame_bytes:
                self.close(f"a frame of {size} bytes")
                break
            end = position + 4 + size
            if end > len(self._buffer):
                break
            with memoryview(self._buffer) as view:
                frame = bytes(view[position + 4 : end])
            position = end
            self._handle(frame)
        self._server.done_with(position)
        del self._buffer[:position]
        self._pace()

    def _pace(self) -> None:
        """Read on, unless there is enough to do."""
        if self._transport is None or self._transport.is_closing():
            return
        if (self._answering or not self._writable) and len(self._buffer) > _READ_AHEAD:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _handle(self, frame: bytes) -> None:
        key, version = int.from_bytes(frame[:2], "big", signed=True), int.from_bytes(frame[2:4], "big", signed=True)
        correlation = int.from_bytes(frame[4:8], "big", signed=True)
        codec = served_codec()
        api = codec.names.get(key)
        if key == _API_VERSIONS and version not in served_versions("ApiVersions"):
            self._write(correlation, "ApiVersions", 0, _unsupported())
            return
        if api is None or version not in served_versions(api):
            self.close(f"API {key} version {version} is not served")
            return
        try:
            header, _ = codec.read_request_header(frame)
            buffer = Buffer(frame, self._server.limits.elements)
            codec.read("RequestHeader", 2 if codec.flexible(f"{api}Request", version) else 1, buffer)
            row = codec.read(f"{api}Request", version, buffer)
        except MalformedMessage as error:
            self.close(f"{api} version {version}: {error}")
            return
        self._answering = True
        seen = None
        if self._server.observer is not None:
            seen = self._server.observer.asked(self._number, self._node, frame)
        request = Request(
            api=api,
            version=version,
            row=row,
            node=self._node,
            client_id=header["ClientId"] or "",
            client_host=f"/{self._peer}",
            reply=partial(self._reply, correlation, api, version, seen),
        )
        self._request = request
        is_silent = api == "Produce" and row["Acks"] == 0
        try:
            answer = self._server.handle(request)
        except Exception:
            log.exception("%s version %d of %s", api, version, self._peer)
            self.close("the server failed at its request")
            return
        if answer is not None:
            self._answering, self._request = False, None
            self._write(correlation, api, version, answer, seen)
        elif is_silent:
            self._answering, self._request = False, None
        self._server.settle()

    def _reply(self, correlation: int, api: str, version: int, seen: Any, row: Message) -> None:
        """Answer a request that had to wait, and go on with the next one."""
        self._answering, self._request = False, None
        self._write(correlation, api, version, row, seen)
        self._server.soon(self._process)

    def _write(self, correlation: int, api: str, version: int, row: Message, seen: Any = None) -> None:
        if self._transport is None:
            return
        answer = served_codec().write_response(api, version, correlation, row)
        if seen is not None and self._server.observer is not None:
            self._server.observer.answered(seen, answer)
        self._transport.write(len(answer).to_bytes(4, "big") + answer)


def _unsupported() -> Message:
    """What a client is told that asks for versions in an unknown version."""
    versions = served_versions("ApiVersions")
    known = {"ApiKey": _API_VERSIONS, "MinVersion": versions.start, "MaxVersion": versions.stop - 1}
    return {"ErrorCode": ErrorCode.UNSUPPORTED_VERSION, "ApiKeys": [known]}


class Server:
    """A cluster on sockets that are bound already.

    Args:
        make_cluster: makes the cluster, once the addresses are known, for a time.
        sockets: one for each logical broker; the first is broker 1.
        advertised_host: where clients are told to connect; None for where the sockets are.
        limits: what clients may ask for at most.
        clock: milliseconds since the epoch.
        observer: who is told of requests and answers.

    Attributes:
        numbers: of connections.
        cluster: what is served.
        connections: that are open.
        waiting_bytes: of requests that have not arrived whole.
    """

    def __init__(
        self,
        make_cluster: Callable[[list[Broker], int], Cluster],
        sockets: Sequence[socket.socket],
        *,
        advertised_host: str | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        clock: Callable[[], int] = wall_clock,
        observer: Observer | None = None,
    ) -> None:
        self.clock = clock
        self.observer = observer
        self.numbers = count()
        self.limits = limits
        self._sockets = sockets
        brokers = [
            Broker(node, advertised_host or each.getsockname()[0], each.getsockname()[1])
            for node, each in enumerate(sockets, start=1)
        ]
        self.cluster = make_cluster(brokers, clock())
        self.connections: set[Connection] = set()
        self.waiting_bytes = 0
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for = -1

    @property
    def bootstrap(self) -> str:
        """What clients have to be given as ``bootstrap.servers``."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.cluster.brokers)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for broker, each in zip(self.cluster.brokers, self._sockets, strict=True):
            self._servers.append(await loop.create_server(partial(Connection, self, broker.node), sock=each))
        self._wind()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.close("the server ends")
        for server in self._servers:
            with suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), 1)
        self.cluster.close()

    # --- what connections call ---------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Whether one more connection may be open."""
        self.connections.add(connection)
        return len(self.connections) <= self.limits.connections

    def forget(self, connection: Connection, unread: int) -> None:
        """A connection is gone, with what it had sent."""
        self.connections.discard(connection)
        self.waiting_bytes -= unread

    def takes(self, size: int) -> bool:
        """Whether so many more bytes may wait for the rest of their requests."""
        self.waiting_bytes += size
        return self.waiting_bytes <= self.limits.waiting_bytes

    def done_with(self, size: int) -> None:
        """So many bytes wait no longer."""
        self.waiting_bytes -= size

    def handle(self, request: Request) -> Message | None:
        """Let the cluster answer a request at this time."""
        self.cluster.advance(self.clock())
        return handle(self.cluster, request)

    def settle(self) -> None:
        """Let the cluster do what requests have left to do, and see to it that it is woken in time."""
        try:
            self.cluster.settle()
        except Exception:
            log.exception("what requests have left to do")
        self._wind()

    def soon(self, action: Callable[[], None]) -> None:
        """Do something when this is done."""
        asyncio.get_running_loop().call_soon(action)

    # --- time --------------------------------------------------------------------------------------------------------

    def _wind(self) -> None:
        when = self.cluster.next_timer()
        if self._timer is not None:
            if when == self._timer_for:
                return
            self._timer.cancel()
        self._timer_for = when
        delay = max(when - self.clock(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self.clock()
        self.cluster.advance(now)
        for connection in list(self.connections):
            if connection.last_heard + self.limits.idle_ms < now:
                connection.close("nothing was heard of it for too long")
        self.settle()


def bind(host: str, ports: Sequence[int]) -> list[socket.socket]:
    """Listening sockets.

    Raises:
        OSError: when an address is not there or is taken.
    """
    sockets: list[socket.socket] = []
    try:
        for port in ports:
            sockets.append(socket.create_server((host, port), backlog=256))  # noqa: PERF401 - those that are open must be closed
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
