"""A TCP proxy between clients and brokers that writes down what it sees and injects faults by plan.

It reads the headers of all requests and the bodies of those that matter to exactly-once, and passes every byte on
unchanged. One event loop in one thread serves all brokers of a cluster, so the wire events have one order. A request
is stamped before the broker can see it and an answer before the client can.
"""

import asyncio
import itertools
import struct
import threading
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from kafka_eos.errors import MalformedBatch
from kafka_eos.wire.protocol import Codec, MalformedMessage
from kafka_eos_checks.brokers.faults import NO_FAULT, NO_FAULTS, Fault, FaultKind, Plan
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.brokers.wire_events import Columns, Interpreter, Request, phase_of

HOST = "127.0.0.1"
FRAME_LIMIT = 1 << 26  # bytes
ANSWER_SECONDS = 15.0  # how long an answer is waited for once nobody else waits for it


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next length-prefixed frame; None at the end of the stream, whole or torn."""
    try:
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        if not 0 <= size <= FRAME_LIMIT:
            return None
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, OSError):
        return None


def framed(data: bytes) -> bytes:
    """A frame with its length."""
    return struct.pack(">i", len(data)) + data


@dataclass(slots=True, eq=False)
class _Link:
    """A client's connection and the one to its broker."""

    number: int
    broker: str
    client: asyncio.StreamWriter
    upstream: asyncio.StreamWriter
    pending: deque[Request] = field(default_factory=deque)
    dropped: set[int] = field(default_factory=set)  # requests whose answer the client will not get
    mute: bool = False  # answers are withheld, while the connection stays open
    cut: bool = False  # nothing goes to the client any more: it left, or a fault closed its side


@dataclass(frozen=True, slots=True)
class Route:
    """A broker behind the proxy: its name in histories, the proxy's port for it, the broker's own port."""

    broker: str
    listen: int
    target: int


class Proxy:
    """The proxy, running in a thread of its own; a context manager.

    Args:
        codec: the codec of the brokers' release.
        journal: where events go; :meth:`begin` sets another.
        routes: the brokers; a ``listen`` of 0 takes any free port, see :attr:`ports`.
    """

    def __init__(self, codec: Codec, journal: Journal, routes: list[Route]) -> None:
        self.ports: dict[str, int] = {}
        self._codec = codec
        self._interpreter = Interpreter(codec)
        self._journal = journal
        self._plan = NO_FAULTS
        self._routes = routes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: set[_Link] = set()
        self._reset_counters()

    def _reset_counters(self) -> None:
        self._requests = itertools.count()
        self._connections = itertools.count()
        self._planned = itertools.count()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._call(self._listen(), 10)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close everything and end the thread."""
        self._call(self._shut(), 10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def begin(self, journal: Journal, plan: Plan) -> None:
        """Begin a run: its events go to ``journal``, its faults come from ``plan``, counters start at 0."""

        async def switch() -> None:
            self._journal, self._plan = journal, plan
            self._reset_counters()

        self._call(switch(), 5)

    def follow(self, plan: Plan, *, anew: bool = False) -> None:
        """Take the faults of the requests to come from another plan; numbers go on, or begin anew at 0."""
        self._loop.call_soon_threadsafe(setattr, self, "_plan", plan)
        if anew:
            self._loop.call_soon_threadsafe(setattr, self, "_planned", itertools.count())

    def quiesce(self, seconds: float = 20.0) -> None:
        """Wait until no request is on its way: repeats are answered, broken connections drained."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._call(self._busy(), 5):
            time.sleep(0.05)

    def _call(self, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    async def _busy(self) -> bool:
        return bool(self._tasks) or any(link.pending for link in self._links)

    async def _listen(self) -> None:
        for route in self._routes:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: Route = route) -> None:
                with suppress(asyncio.CancelledError):  # when the proxy closes; Python 3.11 prints it otherwise
                    await self._serve(to, reader, writer)

            server = await asyncio.start_server(serve, HOST, route.listen)
            self._servers.append(server)
            self.ports[route.broker] = server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    # --- one client's connection ------------------------------------------------------------------------------------

    async def _serve(self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, upstream = await asyncio.open_connection(HOST, route.target)
        except OSError:  # the broker is down, and so the proxy looks to the client
            writer.close()
            return
        link = _Link(next(self._connections), route.broker, writer, upstream)
        self._links.add(link)
        back = asyncio.create_task(self._answers(link, answers))
        try:
            await self._requests_of(link, route, reader)
            link.cut = True
            deadline = time.monotonic() + ANSWER_SECONDS
            while link.pending and not back.done() and time.monotonic() < deadline:
                await asyncio.sleep(0.01)  # the client is gone; what the broker answers is still written down
        except OSError:  # the broker went away while something was written to it
            pass
        finally:
            back.cancel()
            for request in link.pending:
                self._unanswered(request)
            link.pending.clear()
            self._links.discard(link)
            upstream.close()
            writer.close()

    async def _requests_of(self, link: _Link, route: Route, reader: asyncio.StreamReader) -> None:
        """Pass on requests until the client goes, the broker goes, or a fault cuts the connection."""
        while (frame := await read_frame(reader)) is not None and not link.cut:
            request = self._read(link, frame)
            planned = request.api in self._plan.apis
            fault = self._plan.fault(next(self._planned)) if planned else NO_FAULT
            self._asked(request, fault)
            if fault.kind is FaultKind.OVERTAKE:
                self._spawn(self._alone(route, request, fault.seconds))
                link.client.close()
                return
            if fault.kind is FaultKind.DELAY:
                await asyncio.sleep(fault.seconds)
            if fault.kind is FaultKind.DROP_ANSWER:
                link.dropped.add(request.number)
            link.mute = link.mute or fault.kind is FaultKind.WITHHOLD
            if request.answered:
                link.pending.append(request)
            link.upstream.write(framed(frame))
            await link.upstream.drain()
            if fault.kind is FaultKind.REPEAT:
                again = replace(request, number=next(self._requests), repeats=request.number)
                self._spawn(self._again(route, again, fault.seconds))

    async def _answers(self, link: _Link, reader: asyncio.StreamReader) -> None:
        """Pass on answers, in the order of their requests, which Kafka keeps per connection."""
        while (frame := await read_frame(reader)) is not None and link.pending:
            request = link.pending.popleft()
            dropped = request.number in link.dropped
            link.dropped.discard(request.number)
            link.cut = link.cut or dropped or link.client.is_closing()
            self._answered(request, frame, delivered=not (link.cut or link.mute))
            if link.cut:
                link.client.close()
            elif not link.mute:
                link.client.write(framed(frame))
        link.cut = True
        link.client.close()

    # --- requests that travel on a connection of their own ----------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _again(self, route: Route, request: Request, seconds: float) -> None:
        await asyncio.sleep(seconds)
        moved = replace(request, connection=next(self._connections))
        self._asked(moved, NO_FAULT)
        await self._exchange(route, moved)

    async def _alone(self, route: Route, request: Request, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._exchange(route, request)

    async def _exchange(self, route: Route, request: Request) -> None:
        """Send one request on a connection of its own, write down its answer and give it to nobody."""
        frame = None
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(HOST, route.target)
                try:
                    writer.write(framed(request.frame))
                    frame = await read_frame(reader)
                finally:
                    writer.close()
        if frame is None:
            self._unanswered(request)
        else:
            self._answered(request, frame, delivered=False)

    # --- what is written down ---------------------------------------------------------------------------------------

    def _read(self, link: _Link, frame: bytes) -> Request:
        """Read a request; what this release does not know is passed on as ``unknown``."""
        common: Columns = {
            "number": next(self._requests),
            "connection": link.number,
            "broker": link.broker,
            "frame": frame,
        }
        try:
            header, body = self._codec.read_request_header(frame)
            api = self._codec.names[header["RequestApiKey"]]
            subjects, answered = self._interpreter.subjects(api, header["RequestApiVersion"], body)
        except (MalformedMessage, MalformedBatch):
            return Request(**common, client="unknown", api="unknown", version=0, correlation=0)
        return Request(
            **common,
            client=header["ClientId"] or "unknown",
            api=api,
            version=header["RequestApiVersion"],
            correlation=header["CorrelationId"],
            subjects=subjects,
            answered=answered,
        )

    def _write(self, request: Request, phase: str | None, subjects: list[Columns], **detail: Any) -> None:
        at = time.monotonic_ns()
        for subject in subjects:
            columns = dict(subject)
            more = columns.pop("detail", {})
            said = phase or phase_of(columns["error"])
            about = request.detail(**more, **detail)
            self._journal.add(f"proxy/{request.client}", request.api, said, at=at, **columns, detail=about)

    def _asked(self, request: Request, fault: Fault) -> None:
        detail = {} if fault.kind is FaultKind.NONE else {"fault": str(fault.kind)}
        self._write(request, "invoke", list(request.subjects), **detail)

    def _answered(self, request: Request, frame: bytes, *, delivered: bool) -> None:
        try:
            results = self._interpreter.answer(request, frame)
        except MalformedMessage as error:
            self._write(request, "info", list(request.subjects), unreadable=str(error))
            return
        self._write(request, None, results, **({} if delivered else {"delivered": False}))

    def _unanswered(self, request: Request) -> None:
        self._write(request, "info", list(request.subjects), delivered=False)
