"""Connections and timers: the cluster on sockets.

A connection's requests are answered one after the other, as in Kafka. An invalid request closes its sender's connection
and disturbs no other: a frame of an impossible length, an unknown API or version, bytes that are no such message, a
peer that is gone or reads nothing. Faults are carried out here too: a connection carries out the fate of its request,
the server the events of brokers and clock.

Kafka: SocketServer, RequestChannel
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Protocol, Self

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.transaction_coordinator import ONGOING
from kafka_eos.server.cluster import CONSUMER_OFFSETS, TRANSACTION_STATE, Broker, Cluster, Limits
from kafka_eos.server.error_counters import ErrorCounters
from kafka_eos.server.faults import FATES, UNANSWERED, Asked, Fault, Faults, Rule, Subjects, subjects_of
from kafka_eos.server.handlers import handle
from kafka_eos.server.handlers.request import Request, served_versions
from kafka_eos.server.refusals import refusal
from kafka_eos.server.schemas import NOT_SERVED, served_codec
from kafka_eos.wire.protocol import MalformedMessage, Message

log = logging.getLogger("kafka_eos.server")

SMALLEST_FRAME = 8
"""Bytes: API, version and correlation id are in each."""

_API_VERSIONS = 18
_READ_AHEAD = 1 << 16


def wall_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class MovableClock:
    """The wall clock, which can be put forward."""

    def __init__(self) -> None:
        self._ahead = 0

    def __call__(self) -> int:
        """Milliseconds since the epoch, plus the time that the clock was put forward."""
        return wall_clock() + self._ahead

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._ahead += round(seconds * 1000)


class Observer(Protocol):
    """An observer: it is told of every request before it is handled, and of every answer before it is sent."""

    def asked(self, connection: int, node: int, frame: bytes, *, fault: str = "", repeats: Any = None) -> Any:
        """A request, by the number of its connection and the broker; what is returned belongs to the answer.

        Args:
            connection: its number.
            node: the broker.
            frame: the request.
            fault: its fate, if it meets a fault.
            repeats: the value that was returned for the request of which this is a copy.
        """

    def answered(self, request: Any, frame: bytes, *, delivered: bool) -> None:
        """The answer to a request for which ``asked`` has not returned None, and whether it reaches the client."""

    def happened(self, action: str, node: int, **columns: Any) -> None:
        """Something that no client asked for: a crash, a marker, a timeout, a leader or a clock that moves.

        Args:
            action: the name of the action.
            node: the broker where it happens; 0 for all of them.
            columns: the columns of the event in the history.
        """


@dataclass(slots=True)
class Exchange:
    """A request on its way to its answer.

    Attributes:
        api: the name of its API.
        version: the messages' version.
        frame: the request.
        correlation: the id that joins the two.
        seen: the value that the observer has returned.
        fate: its fate, if it meets a fault.
    """

    api: str
    version: int
    frame: bytes
    correlation: int
    seen: Any = None
    fate: Rule | None = None


class Connection(asyncio.Protocol):
    """A client's connection to a logical broker."""

    def __init__(self, server: "Server", node: int) -> None:
        self._server = server
        self.node = node
        self._number = next(server.numbers)
        self._buffer = bytearray()
        self._answering = self._writable = False
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._request: Request | None = None  # that waits for its answer
        self.last_heard = server.clock()

    # --- what asyncio calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._writable = transport, True
        peer = transport.get_extra_info("peername") or ("", 0)
        self._peer = str(peer[0])
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._server.admit(self):
            self.close(f"{self._server.limits.connections} connections are open already")
        elif self.node in self._server.cluster.gone:
            self.close("the broker is gone")

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """The connection has ended: forget its requests and its bytes."""
        self._transport = None
        if self._request is not None and self._request.cancel is not None:
            self._request.cancel()
        self._request = None
        self._server.forget(self, len(self._buffer))
        self._buffer.clear()

    def pause_writing(self) -> None:
        """The peer does not read its answers: stop handling its requests."""
        self._writable = False

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writable = True
        self._process()

    def data_received(self, data: bytes) -> None:
        """Take bytes from the peer, and handle the requests that are complete."""
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
            self._write(Exchange("ApiVersions", 0, frame, correlation), _unsupported())
            return
        if api is None or version not in served_versions(api):
            known = "" if api is None else f"; {api} is, from {served_versions(api)[0]} to {served_versions(api)[-1]}"
            self.close(f"API {key} version {version} is not known{known}")
            return
        try:
            header, buffer = codec.read_request_header(frame)
            buffer.max_elements = self._server.limits.elements
            row = codec.read(f"{api}Request", version, buffer)
        except MalformedMessage as error:
            self.close(f"{api} version {version}: {error}")
            return
        exchange = Exchange(api, version, frame, correlation)
        request = Request(
            api=api,
            version=version,
            row=row,
            node=self.node,
            client_id=header["ClientId"] or "",
            client_host=f"/{self._peer}",
            reply=partial(self._reply, exchange),
        )
        self._answering, self._request = True, request
        due = self._server.due(request)
        if due:
            exchange.fate = next((rule for rule in due if rule.fault in FATES), None)
        if self._server.observer is not None:
            fault = str(exchange.fate.fault) if exchange.fate is not None else ""
            exchange.seen = self._server.observer.asked(self._number, self.node, frame, fault=fault)
        if due:
            self._meet(exchange, request, [rule for rule in due if rule.fault not in FATES])
        else:
            self._handle_now(exchange, request)

    def _meet(self, exchange: Exchange, request: Request, events: Sequence[Rule]) -> None:
        """Carry out a request's fate, and the events of the cluster before and after.

        Args:
            exchange: the request.
            request: the same, for handlers.
            events: the events of the cluster.
        """
        for rule in events:
            if not rule.after:
                self._server.bring_about(rule, request)
        if self._transport is None or self._transport.is_closing():  # the broker is gone
            return
        after = [rule for rule in events if rule.after]
        match exchange.fate:
            case Rule(fault=Fault.CLOSE):
                self.close(f"the fate of its {exchange.api}")
            case Rule(fault=Fault.OVERTAKE, seconds=seconds):
                self.close(f"the fate of its {exchange.api}")
                self._server.later(seconds, partial(self._handle_alone, exchange, request, after))
            case Rule(fault=Fault.DELAY, seconds=seconds):
                self._server.later(seconds, partial(self._handle_now, exchange, request, after))
            case Rule(fault=Fault.ERROR, error=error) if _is_silent(request):
                self.close(f"Produce with acks=0: {error.name}")
            case Rule(fault=Fault.ERROR, error=error):
                self._reply(exchange, refusal(served_codec(), request.api, request.version, request.row, error))
            case Rule(fault=Fault.REPEAT, seconds=seconds):
                again = replace(exchange, fate=None)
                if self._server.observer is not None:
                    arguments = self._number, self.node, exchange.frame
                    again.seen = self._server.observer.asked(*arguments, repeats=exchange.seen)
                self._server.later(seconds, partial(self._handle_alone, again, request))
                self._handle_now(exchange, request, after)
            case _:
                self._handle_now(exchange, request, after)

    def _handle_now(self, exchange: Exchange, request: Request, events: Sequence[Rule] = ()) -> None:
        is_silent = _is_silent(request)
        try:
            answer = self._server.handle(request)
        except Exception:
            log.exception("%s version %d of %s", request.api, request.version, self._peer)
            self.close("the server failed at its request")
            return
        for rule in events:
            self._server.bring_about(rule, request)
        if answer is not None or is_silent:
            self._answering, self._request = False, None
        if answer is not None:
            self._write(exchange, answer)
        elif request.failed:
            self.close(request.failed)
        self._server.settle_after_answer()
        if exchange.fate is not None:
            self._server.soon(self._process)  # it may have waited

    def _handle_alone(self, exchange: Exchange, request: Request, events: Sequence[Rule] = ()) -> None:
        """Handle a request whose answer nobody will get."""

        def tell(row: Message) -> None:
            self._tell(exchange, row, delivered=False)

        try:
            answer = self._server.handle(replace(request, reply=tell))
        except Exception:
            log.exception("%s version %d, once more", request.api, request.version)
            return
        for rule in events:
            self._server.bring_about(rule, request)
        if answer is not None:
            tell(answer)
        self._server.settle()

    def _reply(self, exchange: Exchange, row: Message) -> None:
        """Answer a request that had to wait, and go on with the next one."""
        self._answering, self._request = False, None
        self._write(exchange, row)
        self._server.soon(self._process)

    def _tell(self, exchange: Exchange, row: Message, *, delivered: bool) -> bytes:
        """Encode an answer, and tell the observer."""
        answer = served_codec().write_response(exchange.api, exchange.version, exchange.correlation, row)
        self._server.errors.count(exchange.api, row)
        if exchange.seen is not None and self._server.observer is not None:
            self._server.observer.answered(exchange.seen, answer, delivered=delivered)
        return answer

    def _write(self, exchange: Exchange, row: Message) -> None:
        fate, transport = exchange.fate, self._transport
        is_open = transport is not None and not transport.is_closing()
        delivered = is_open and (fate is None or fate.fault not in UNANSWERED)
        answer = self._tell(exchange, row, delivered=delivered)
        if delivered and transport is not None:
            transport.write(len(answer).to_bytes(4, "big") + answer)
        elif fate is not None and fate.fault is Fault.WITHHOLD:
            self._answering = True  # for ever: nothing else that comes is handled
        else:
            self.close(f"the fate of its {exchange.api}")


def _is_silent(request: Request) -> bool:
    """Whether nobody waits for the answer to a request."""
    return request.api == "Produce" and request.row["Acks"] == 0


def _unsupported() -> Message:
    """Answer to an ApiVersions request whose own version we do not know."""
    versions = served_versions("ApiVersions")
    known = {"ApiKey": _API_VERSIONS, "MinVersion": versions.start, "MaxVersion": versions.stop - 1}
    return {"ErrorCode": ErrorCode.UNSUPPORTED_VERSION, "ApiKeys": [known]}


class Server:
    """A cluster on sockets that are bound already.

    Args:
        make_cluster: makes the cluster, once the addresses are known, for a time.
        sockets: one for each logical broker; the first is broker 1.
        advertised_host: the host that clients are told to connect to; None for that of the sockets.
        limits: upper limits on what clients may request.
        clock: milliseconds since the epoch.
        observer: the observer of requests and answers.
        faults: the rules of the plan of faults.

    Attributes:
        numbers: the numbers of connections.
        cluster: the cluster that is served.
        connections: the open connections.
        waiting_bytes: bytes of requests that have not arrived whole.
        errors: how often it answered with each error code.
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
        faults: Faults | None = None,
    ) -> None:
        self.clock = clock
        self.faults = faults
        self.observer = observer
        self.numbers = count()
        self.limits = limits
        self._sockets = sockets
        brokers = [
            Broker(node, advertised_host or each.getsockname()[0], each.getsockname()[1])
            for node, each in enumerate(sockets, start=1)
        ]
        self._adopt(make_cluster(brokers, clock()))
        self.connections: set[Connection] = set()
        self.waiting_bytes = 0
        self.errors = ErrorCounters()
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for = -1
        self._later: set[asyncio.TimerHandle] = set()

    @property
    def bootstrap(self) -> str:
        """The value of ``bootstrap.servers`` for clients."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.cluster.brokers)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for broker, each in zip(self.cluster.brokers, self._sockets, strict=True):
            self._servers.append(await loop.create_server(partial(Connection, self, broker.node), sock=each))
        self._wind()
        return self

    async def __aexit__(self, *_: object) -> None:
        for timer in (self._timer, *self._later):
            if timer is not None:
                timer.cancel()
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
        """Whether this many more bytes may wait for the rest of their requests."""
        self.waiting_bytes += size
        return self.waiting_bytes <= self.limits.waiting_bytes

    def done_with(self, size: int) -> None:
        """This many bytes wait no longer."""
        self.waiting_bytes -= size

    def handle(self, request: Request) -> Message | None:
        """Let the cluster answer a request at this time."""
        self.cluster.advance(self.clock())
        if why := NOT_SERVED.get(request.api):
            log.warning("%s of client %r is not served: %s", request.api, request.client_id, why)
        return handle(self.cluster, request)

    def settle(self) -> None:
        """Let the cluster do what requests have left to do, and set the timer of its next task."""
        try:
            self.cluster.settle()
        except Exception:
            log.exception("what requests have left to do")
        self._wind()

    def settle_after_answer(self) -> None:
        """Settle; markers and completions are a step of their own, after the requests that are here already.

        In Kafka a thread of its own sends markers after the answer to EndTxn.

        Kafka: TransactionMarkerChannelManager
        """
        if self.cluster.transactions.has_work:
            self.soon(self.settle)
        else:
            self.settle()

    def soon(self, action: Callable[[], None]) -> None:
        """Do something when this is done."""
        asyncio.get_running_loop().call_soon(action)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call a function after some time."""

        def run() -> None:
            self._later.discard(timer)
            action()

        timer = asyncio.get_running_loop().call_later(seconds, run)
        self._later.add(timer)

    # --- faults ------------------------------------------------------------------------------------------------------

    def due(self, request: Request) -> list[Rule]:
        """The faults that a request meets."""
        if self.faults is None or not self.faults.tallies:
            return []
        subjects = subjects_of(request.row, self.cluster.names)
        asked = Asked(
            api=request.api,
            client=request.client_id,
            node=request.node,
            subjects=subjects,
            is_silent=_is_silent(request),
        )
        return self.faults.due(asked)

    def bring_about(self, rule: Rule, request: Request) -> None:
        """Let something happen to the cluster."""
        subjects = subjects_of(request.row, self.cluster.names)
        match rule.fault:
            case Fault.MOVE_LEADER:
                for topic, number in subjects.partitions:
                    if not isinstance(self.cluster.find(topic, number), ErrorCode):
                        self.move_leader(topic, number, rule.to)
            case Fault.MOVE_COORDINATOR:
                self.move_coordinators(subjects, rule.to)
            case Fault.DELAY_MARKERS:
                until = self.clock() + round(rule.seconds * 1000)
                for name in subjects.transactional_ids:
                    self.cluster.delay_markers(name, until)
                self._wind()
            case Fault.TIME_OUT_TRANSACTION:
                for name in subjects.transactional_ids:
                    self.time_out_transaction(name)
            case Fault.KILL_BROKER:
                self.kill(request.node, rule.seconds, rule.to)
            case Fault.RESTART:
                self.restart()
            case Fault.ADVANCE_CLOCK:
                self.advance(rule.seconds)

    def move_leader(self, topic: str, number: int, to: int | None = None) -> None:
        """Make another broker the leader of a partition; None for the next one (the same one if there is only one)."""
        leader = self.cluster.topics[topic].partitions[number]
        self.cluster.move_leader(topic, number, to or self.cluster.next_broker(leader.node))

    def move_coordinators(self, subjects: Subjects, to: int | None = None) -> None:
        """Make other brokers the coordinators of transactional.ids and groups."""
        led = {self.cluster.state_partition(name).name: TRANSACTION_STATE for name in subjects.transactional_ids}
        led |= {self.cluster.offsets_partition(name).name: CONSUMER_OFFSETS for name in subjects.groups}
        for name, topic in led.items():
            self.move_leader(topic, int(name.rpartition("-")[2]), to)

    def time_out_transaction(self, name: str) -> bool:
        """Begin to abort an open transaction; whether there was one."""
        coordinators = self.cluster.transactions
        known = coordinators.known.get(name)
        if known is None or known.state is not ONGOING:
            return False
        if coordinators.is_loading(name):  # its coordinator does not know it yet
            return False
        coordinators.time_out_now(known, self.cluster.now)
        return True

    def kill(self, node: int, seconds: float, to: int | None = None) -> None:
        """Kill a broker for a while, with its connections and without finishing anything."""
        self.cluster.advance(self.clock())
        self._happened("Crash", node)
        self.cluster.crash(node, self.cluster.now + round(seconds * 1000), to)
        self._hang_up(node)
        self._wind()

    def restart(self) -> None:
        """Stop all brokers, and bring them back with what is in their files."""
        self._adopt(self.cluster.restarted())
        for broker in self.cluster.brokers:
            self._happened("Crash", broker.node)
            self._hang_up(broker.node)
        for broker in self.cluster.brokers:
            self._happened("Restart", broker.node)

    def advance(self, seconds: float) -> None:
        """Advance the clock, and run the timers that are due then."""
        assert isinstance(self.clock, MovableClock), "a clock that cannot be moved"
        self._happened("AdvanceClock", 0, detail={"seconds": seconds})
        self.clock.advance(seconds)
        self.soon(self._ring)

    def _hang_up(self, node: int) -> None:
        for connection in list(self.connections):
            if connection.node == node:
                connection.close("the broker is gone")

    def _adopt(self, cluster: Cluster) -> None:
        """Serve a cluster, and pass on what it does by itself."""
        self.cluster = cluster
        cluster.happened = self._happened

    def _happened(self, action: str, node: int, **columns: Any) -> None:
        if self.observer is not None:
            self.observer.happened(action, node, **columns)

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
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        now = self.clock()
        self.cluster.advance(now)
        for connection in list(self.connections):
            if connection.last_heard + self.limits.idle_ms < now:
                connection.close("nothing was heard of it for too long")
        self.settle()


def bind(host: str, ports: Sequence[int]) -> list[socket.socket]:
    """Open the listening sockets.

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
