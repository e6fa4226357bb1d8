"""A served cluster in a thread of its own, with the controls that a test needs while clients use it.

Every call is made by the server's own thread, between two requests, and has happened when it returns.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kafka_eos.errors import Rejected
from kafka_eos.server.cluster import INTERNAL_TOPICS, Broker, Cluster, Machines, Settings
from kafka_eos.server.configs import TOPIC_CONFIGS, check_values
from kafka_eos.server.faults import Fault, Faults, MalformedPlan, Subjects, Tally, check_brokers, rule_of
from kafka_eos.server.network import MovableClock, Observer, Server, bind
from kafka_eos.server.storage import Directory, Memory

PATIENCE_SECONDS = 120.0
"""The time that a call waits for the server's thread before it says that the server is stuck."""

Result = TypeVar("Result")


class ServedCluster:
    """A cluster on loopback, in a thread.

    Args:
        brokers: logical brokers, a port each.
        settings: the operator's settings.
        machines: the classes of the machines.
        data: the directory where it is kept; None for in memory.
        faults: the rules of the plan of faults; :meth:`fault` adds to them.
        observer: the observer of requests and answers.
        clock: the clock, which :meth:`advance` puts forward.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        machines: Machines = Machines(),  # noqa: B008 - frozen
        data: Path | None = None,
        faults: Faults | None = None,
        observer: Observer | None = None,
        clock: MovableClock | None = None,
    ) -> None:
        self.clock = clock or MovableClock()
        self.faults = faults or Faults()
        self._settings, self._machines, self._data, self._observer = settings, machines, data, observer
        self._brokers = brokers
        self._ready: Future[Server] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="kafka-eos", daemon=True)

    def start(self) -> Self:
        """Start serving.

        Raises:
            DamagedLog, OSError: it cannot.
        """
        self._thread.start()
        self._ready.result(PATIENCE_SECONDS)
        return self

    def stop(self) -> None:
        """Stop serving."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        sockets = []
        try:
            sockets = bind("127.0.0.1", [0] * self._brokers)
            server = Server(
                self._cluster,
                sockets,
                limits=self._settings.limits,
                clock=self.clock,
                observer=self._observer,
                faults=self.faults,
            )
            async with server:
                self._ready.set_result(server)
                await self._ended.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            for each in sockets:
                each.close()

    def _cluster(self, brokers: list[Broker], now: int) -> Cluster:
        storage = Directory(self._data) if self._data else Memory()
        return Cluster(brokers, self._settings, storage, self._machines, now=now)

    # --- control -----------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The value of ``bootstrap.servers`` for clients."""
        return self._ready.result(PATIENCE_SECONDS).bootstrap

    def call(self, action: Callable[[Server], Result]) -> Result:
        """Let the server's thread do something, and wait for it."""
        done: Future[Result] = Future()
        server = self._ready.result(PATIENCE_SECONDS)

        def run() -> None:
            try:
                server.cluster.advance(server.clock())
                server.settle()  # a client may know of an answer before its markers are written
                done.set_result(action(server))
            except Exception as error:  # noqa: BLE001 - is raised where it was asked for
                done.set_exception(error)
            server.settle()

        self._loop.call_soon_threadsafe(run)
        return done.result(PATIENCE_SECONDS)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Make a topic.

        Raises:
            ValueError: there is one of that name already, or there cannot be one, or none with these configurations.
        """

        def create(server: Server) -> None:
            try:
                server.cluster.check_new_topic(name)
                check_values(TOPIC_CONFIGS, configs)
            except Rejected as rejected:
                raise ValueError(f"topic {name!r}: {rejected}") from None
            server.cluster.create_topic(name, partitions, dict(configs))

        self.call(create)

    def fault(self, do: str, **options: Any) -> Tally:
        """Make requests meet a fault from now on; the same as a table ``[[fault]]`` of a plan.

        Args:
            do: the name of the fault.
            options: the table's other keys, with underscores.

        Returns:
            How often it fires.

        Raises:
            MalformedPlan: what is wrong with it.
        """
        table = {name.replace("_", "-"): value for name, value in options.items()}
        where = f"fault({do!r})"
        rule = rule_of({"do": do, **table}, where)
        check_brokers([rule], self._brokers, where)
        if rule.fault is Fault.RESTART and self._data is None:
            raise MalformedPlan(f"{where}: restart needs files to come back with; give data=, a directory")
        return self.call(lambda _: self.faults.add(rule))

    @contextmanager
    def faulty(self, do: str, **options: Any) -> Iterator[Tally]:
        """As :meth:`fault`, for as long as the block lasts."""
        tally = self.fault(do, **options)
        try:
            yield tally
        finally:
            self.call(lambda _: self.faults.remove(tally))

    def move_leader(self, topic: str, partition: int, to: int | None = None) -> None:
        """Make another broker the leader of a partition; the next one if none is named.

        Raises:
            ValueError: there is no such partition or broker; says which there are.
        """

        def move(server: Server) -> None:
            topics = server.cluster.topics
            if topic not in topics:
                raise ValueError(f"no topic {topic!r}; there {_are(sorted({*topics} - {*INTERNAL_TOPICS}))}")
            partitions = range(len(topics[topic].partitions))
            if partition not in partitions:
                raise ValueError(f"no partition {partition} of topic {topic!r}; there {_are(partitions)}")
            self._check_broker(to)
            server.move_leader(topic, partition, to)

        self.call(move)

    def move_coordinator(
        self, *, transactional_id: str | None = None, group: str | None = None, to: int | None = None
    ) -> None:
        """Make another broker the coordinator of a transactional.id or a group; the next one if none is named.

        Raises:
            ValueError: neither is given, or there is no such broker.
        """
        if transactional_id is None and group is None:
            raise ValueError("give transactional_id= or group=, whose coordinator is to move")
        self._check_broker(to)
        subjects = Subjects((), (transactional_id,) if transactional_id else (), (group,) if group else ())
        self.call(lambda server: server.move_coordinators(subjects, to))

    def time_out_transaction(self, transactional_id: str) -> bool:
        """Abort the open transaction of a transactional.id, as if its timeout were over; whether there was one.

        Raises:
            ValueError: no producer has used this transactional.id; says which were used.
        """

        def time_out(server: Server) -> bool:
            known = server.cluster.transactions.known
            if transactional_id not in known:
                raise ValueError(f"no producer has used {transactional_id!r} yet; there {_are(sorted(known))}")
            return server.time_out_transaction(transactional_id)

        return self.call(time_out)

    def kill_broker(self, broker: int = 1, seconds: float = 1.0) -> None:
        """Kill a broker for a while.

        Raises:
            ValueError: there is no such broker.
        """
        self._check_broker(broker)
        self.call(lambda server: server.kill(broker, seconds))

    def _check_broker(self, broker: int | None) -> None:
        if broker is not None and not 1 <= broker <= self._brokers:
            raise ValueError(f"no broker {broker}; there {_are(range(1, self._brokers + 1))}")

    def restart(self) -> None:
        """Stop all brokers, and bring them back with what is in their files.

        librdkafka forgets its group coordinator when all brokers are gone, and ``send_offsets_to_transaction`` may then
        wait for ever (librdkafka issue 5511). Under its clients, kill one of two brokers instead.

        Raises:
            NothingStored: there are none.
        """
        self.call(lambda server: server.restart())

    def advance(self, seconds: float) -> None:
        """Advance the time at once; due timers have run when this returns."""
        self.call(partial(Server.advance, seconds=seconds))
        self.call(lambda _: None)


def _are(there: Iterable[object]) -> str:
    """The words that list the names of brokers, topics or ids after "there"."""
    names = [repr(each) for each in there]
    return f"{'is' if len(names) <= 1 else 'are'} {', '.join(names) or 'none'}"
