"""The server on real sockets: an invalid request closes its sender's connection, and affects nobody else."""

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.server import handlers
from kafka_eos.server.cluster import Cluster, Limits
from kafka_eos.server.network import MovableClock, Server, bind, wall_clock
from kafka_eos.server.schemas import NOT_SERVED, SERVED, served_codec
from kafka_eos.wire.protocol import Message

Test = Callable[["Running"], Awaitable[None]]
CODEC = served_codec()
LIMITS = Limits()


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why connections were closed, in the words of the log; those that the server's end closed are left out."""
    said = [record.getMessage().split(" closed: ") for record in caplog.records if " closed: " in record.getMessage()]
    assert {peer for peer, _ in said} <= {"connection from 127.0.0.1"}
    return [why for _, why in said if why != "the server ends"]


class Running:
    """A server, and clients of it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = server.cluster.brokers[0].port
        self.clients: list[Client] = []

    async def connect(self) -> "Client":
        self.clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.clients[-1]

    async def close(self) -> None:
        for client in self.clients:
            client.writer.close()
            with suppress(ConnectionError):
                await client.writer.wait_closed()

    async def is_served(self) -> None:
        """Check that another client gets answers."""
        other = await self.connect()
        assert (await other.ask("ApiVersions", 3))["ErrorCode"] == 0


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, api: str, version: int, correlation: int = 1, **row: object) -> None:
        self.frame(CODEC.write_request(api, version, correlation, "test", row))

    def frame(self, data: bytes) -> None:
        self.writer.write(struct.pack(">i", len(data)) + data)

    async def receive(self) -> bytes | None:
        """The next frame, None if the connection was closed."""
        try:
            head = await asyncio.wait_for(self.reader.readexactly(4), 10)
            return await self.reader.readexactly(struct.unpack(">i", head)[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ask(self, api: str, version: int, **row: object) -> Message:
        self.send(api, version, **row)
        data = await self.receive()
        assert data is not None
        return CODEC.read_response(api, version, data)[1]


def serve(test: Test, limits: Limits = LIMITS, brokers: int = 1) -> None:
    async def run() -> None:
        def cluster(addresses: list, now: int) -> Cluster:
            return Cluster(addresses, now=now, seed=1)

        async with Server(cluster, bind("127.0.0.1", [0] * brokers), limits=limits) as server:
            running = Running(server)
            try:
                await test(running)
            finally:
                await running.close()

    asyncio.run(run())


def test_requests_are_answered_in_their_order_even_if_one_waits() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        await client.ask("Metadata", 9, Topics=[{"Name": "t"}])
        part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1000}
        topics = [{"Topic": "t", "Partitions": [part]}]
        client.send("Fetch", 12, 7, MaxWaitMs=200, MinBytes=1, Topics=topics)
        client.send("ApiVersions", 3, 8)
        answers = [await client.receive(), await client.receive()]
        assert [int.from_bytes(answer[:4], "big") for answer in answers if answer is not None] == [7, 8]

    serve(test)


def test_a_request_may_come_byte_by_byte_and_many_at_once() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        data = CODEC.write_request("ApiVersions", 3, 5, "test", {})
        whole = struct.pack(">i", len(data)) + data
        for place in range(len(whole)):
            client.writer.write(whole[place : place + 1])
            await asyncio.sleep(0)
        assert await client.receive() is not None
        client.writer.write(whole * 50)
        answers = [await client.receive() for _ in range(50)]
        assert all(answers)

    serve(test)


def test_an_api_that_is_not_served_is_named_in_the_log_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        assert (await client.ask("DescribeLogDirs", 4, Topics=None))["ErrorCode"] == ErrorCode.UNSUPPORTED_VERSION

    with caplog.at_level("WARNING"):
        serve(test)
    [record] = caplog.records
    assert record.getMessage() == f"DescribeLogDirs of client 'test' is not served: {NOT_SERVED['DescribeLogDirs']}"


def test_each_logical_broker_has_its_own_port() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        brokers = (await client.ask("Metadata", 9, Topics=[]))["Brokers"]
        assert len({broker["Port"] for broker in brokers}) == 3
        assert running.server.bootstrap == ",".join(f"127.0.0.1:{broker['Port']}" for broker in brokers)

    serve(test, brokers=3)


@pytest.mark.parametrize("version", [5, 99, 0x0103, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_version(version: int) -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        client.frame(struct.pack(">hhih", 18, version, 4, -1))
        data = await client.receive()
        assert data is not None
        correlation, row = CODEC.read_response("ApiVersions", 0, data)
        assert (correlation, row["ErrorCode"], row["ApiKeys"]) == (
            4,
            35,
            [{"ApiKey": 18, "MinVersion": 0, "MaxVersion": 4}],
        )
        assert (await client.ask("ApiVersions", 0))["ErrorCode"] == 0

    serve(test)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", 0), "a frame of 0 bytes"),
        (struct.pack(">ihhh", 7, 18, 0, 0) + b"\0", "a frame of 7 bytes"),
        (struct.pack(">i", 2**31 - 1), f"a frame of {2**31 - 1} bytes"),
        (struct.pack(">ihhi", 8, 999, 0, 1), "API 999 version 0 is not known"),
        (struct.pack(">ihhi", 8, -1, 0, 1), "API -1 version 0 is not known"),
        (struct.pack(">ihhi", 8, 0, -1, 1), "API 0 version -1 is not known; Produce is, from 3 to 13"),
        (struct.pack(">ihhi", 8, 0, 99, 1), "API 0 version 99 is not known; Produce is, from 3 to 13"),
        (struct.pack(">ihhi", 8, 22, 6, 1), "API 22 version 6 is not known; InitProducerId is, from 0 to 5"),
        (struct.pack(">ihhih", 10, 3, 1, 1, 500), "Metadata version 1: at byte 10: 500 bytes announced, 0 left"),
        (
            struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**30),
            f"Metadata version 1: at byte 10: {2**30} elements announced, 0 bytes left",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", f"a frame of {0x47455420} bytes"),
    ],
)
def test_what_is_no_request_closes_the_connection_with_a_reason_in_the_log_and_nothing_else(
    data: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(running: Running) -> None:
        client, bystander = await running.connect(), await running.connect()
        later = CODEC.write_request("Metadata", 9, 1, "test", {"Topics": [{"Name": "later"}]})
        client.writer.write(data + struct.pack(">i", len(later)) + later)
        assert await client.receive() is None
        assert "later" not in running.server.cluster.topics
        assert (await bystander.ask("ApiVersions", 3))["ErrorCode"] == 0

    with caplog.at_level("INFO"):
        serve(test)
    assert reasons(caplog) == [said]


def test_a_handler_is_told_who_the_client_is() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        row = {"SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 10_000, "ProtocolType": "consumer"}
        row |= {"MemberId": "", "Protocols": [{"Name": "range", "Metadata": b""}]}
        for group, client_id in (("g", "test"), ("h", None)):
            client.frame(CODEC.write_request("JoinGroup", 3, 1, client_id, row | {"GroupId": group}))
            assert await client.receive() is not None
        groups = (await client.ask("DescribeGroups", 4, Groups=["g", "h"]))["Groups"]
        found = [(member["ClientId"], member["ClientHost"]) for group in groups for member in group["Members"]]
        assert found == [("test", "/127.0.0.1"), ("", "/127.0.0.1")]

    serve(test)


def test_clients_are_told_the_host_that_is_advertised() -> None:
    async def run() -> None:
        def cluster(addresses: list, now: int) -> Cluster:
            return Cluster(addresses, now=now, seed=1)

        sockets = bind("127.0.0.1", [0, 0])
        ports = [each.getsockname()[1] for each in sockets]
        async with Server(cluster, sockets, advertised_host="broker.example") as server:
            assert [(each.node, each.host, each.port) for each in server.cluster.brokers] == [
                (1, "broker.example", ports[0]),
                (2, "broker.example", ports[1]),
            ]
            assert server.bootstrap == f"broker.example:{ports[0]},broker.example:{ports[1]}"

    asyncio.run(run())


def test_errors_are_counted_by_the_server_that_answers_with_them() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        await client.ask("DescribeGroups", 4, Groups=["g"])
        await client.ask("DeleteGroups", 2, GroupsNames=["g", "h"])
        assert running.server.errors.lines() == ["DeleteGroups GROUP_ID_NOT_FOUND: 2"]

    serve(test)


def test_a_client_that_leaves_in_a_request_or_a_wait_leaves_nothing_behind() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        await client.ask("Metadata", 9, Topics=[{"Name": "t"}])
        part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1000}
        client.send("Fetch", 12, MaxWaitMs=60_000, MinBytes=1, Topics=[{"Topic": "t", "Partitions": [part]}])
        client.writer.write(struct.pack(">i", 1_000) + b"x" * 500)
        await client.writer.drain()
        await asyncio.sleep(0.05)
        client.writer.transport.abort()
        await asyncio.sleep(0.05)
        await running.is_served()
        assert not running.server.cluster.topics["t"].partitions[0].watchers
        assert running.server.waiting_bytes == 0

    serve(test)


def test_connections_frames_requests_and_unfinished_ones_have_limits(caplog: pytest.LogCaptureFixture) -> None:
    async def test(running: Running) -> None:
        first, second = await running.connect(), await running.connect()
        await first.ask("ApiVersions", 3)
        transports = [connection._transport for connection in running.server.connections]
        opened = [transport.get_extra_info("socket") for transport in transports if transport is not None]
        assert all(each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for each in opened), "dead peers are noticed"
        await second.ask("ApiVersions", 3)
        assert await (await running.connect()).receive() is None
        assert (await first.ask("Metadata", 9, Topics=[{"Name": name} for name in "abc"]))["Topics"]
        first.send("Metadata", 9, Topics=[{"Name": name} for name in "abcd"])
        assert await first.receive() is None
        first = await running.connect()
        await first.ask("ApiVersions", 3)
        first.writer.write(struct.pack(">i", 1_001))
        assert await first.receive() is None
        second.writer.write(struct.pack(">i", 1_000) + b"x" * 700)
        assert await second.receive() is None
        await running.is_served()
        assert running.server.waiting_bytes == 0
        assert [running.server.takes(size) for size in (600, 0, 1)] == [True, True, False]

    with caplog.at_level("INFO"):
        serve(test, replace(Limits(), connections=2, frame_bytes=1_000, waiting_bytes=600, elements=3))
    assert reasons(caplog) == [
        "2 connections are open already",
        "Metadata version 9: at byte 15: 4 elements more than there may be",
        "a frame of 1001 bytes",
        "too many bytes of unfinished requests are waiting",
    ]


def test_a_frame_may_be_as_large_as_its_limit() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        assert (await client.ask("Metadata", 9, Topics=[]))["Brokers"]
        client.frame(CODEC.write_request("Metadata", 9, 1, "test!", {"Topics": []}))
        assert await client.receive() is None

    serve(test, replace(Limits(), frame_bytes=len(CODEC.write_request("Metadata", 9, 1, "test", {"Topics": []}))))


def test_a_connection_of_which_nothing_is_heard_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def test(running: Running) -> None:
        assert await (await running.connect()).receive() is None

    with caplog.at_level("INFO"):
        serve(test, replace(Limits(), idle_ms=100))
    assert reasons(caplog) == ["nothing was heard of it for too long"]


class StoppedClock(MovableClock):
    """A clock that only moves when it is put forward."""

    def __init__(self) -> None:
        super().__init__()
        self._start = wall_clock()

    def __call__(self) -> int:
        return self._start + self._ahead


def test_a_connection_stays_as_long_as_something_is_heard_of_it() -> None:
    async def test(running: Running) -> None:
        running.server.clock = clock = StoppedClock()
        client = await running.connect()
        await client.ask("ApiVersions", 3)
        clock.advance(60)
        await client.ask("ApiVersions", 3)
        running.server.advance(30)
        assert (await client.ask("ApiVersions", 3))["ErrorCode"] == ErrorCode.NONE
        running.server.advance(30.001)
        assert await client.receive() is None

    serve(test, replace(Limits(), idle_ms=30_000))


def test_there_is_one_timer_whatever_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(running: Running) -> None:
        loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
        call_later = loop.call_later

        def noted(delay: float, callback: Callable[..., object], *given: object) -> asyncio.TimerHandle:
            handle = call_later(delay, callback, *given)
            timers.extend([handle] if callback == running.server._ring else ())
            return handle

        monkeypatch.setattr(loop, "call_later", noted)
        running.server.clock = MovableClock()
        client = await running.connect()
        await client.ask("Metadata", 9, Topics=[{"Name": "t"}])
        part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1000}
        for wait in (400, 300):
            other = await running.connect()
            other.send("Fetch", 12, MaxWaitMs=wait, MinBytes=1, Topics=[{"Topic": "t", "Partitions": [part]}])
            await running.is_served()
        running.server.advance(1)
        await running.is_served()
        assert len(timers) > 2
        assert len([each for each in timers if each.when() > loop.time() and not each.cancelled()]) == 1

    serve(test)


def test_a_peer_that_reads_nothing_is_not_worked_for() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        await client.ask("Metadata", 9, Topics=[{"Name": "t"}])
        batch = build_batch([Record(value=b"x" * 1_000_000)]).encode()
        data = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": batch}]}]
        await client.ask("Produce", 9, Acks=-1, TopicData=data)
        part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 2_000_000}
        for _ in range(100):
            client.send("Fetch", 12, MaxWaitMs=0, MinBytes=1, Topics=[{"Topic": "t", "Partitions": [part]}])
        await client.writer.drain()
        await running.is_served()
        full = [connection for connection in running.server.connections if connection.is_full]
        assert len(full) == 1
        assert running.server.waiting_bytes > 0  # the rest of its requests
        client.writer.transport.abort()

    serve(test)


def test_no_more_is_read_of_a_peer_whose_request_waits_than_the_next_few_requests() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        await client.ask("Metadata", 9, Topics=[{"Name": "t"}])
        part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1000}
        client.send("Fetch", 12, MaxWaitMs=60_000, MinBytes=1, Topics=[{"Topic": "t", "Partitions": [part]}])
        for _ in range(64):
            client.frame(bytes(1 << 20))
        for _ in range(64):
            await running.is_served()
            assert running.server.waiting_bytes < 1 << 20
        data = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": build_batch([Record()]).encode()}]}]
        await (await running.connect()).ask("Produce", 9, Acks=-1, TopicData=data)
        assert await client.receive() is not None, "its request still waits"
        client.writer.transport.abort()

    serve(test)


def test_a_peer_that_reads_again_is_given_all_its_answers() -> None:
    async def test(running: Running) -> None:
        client = await running.connect()
        await client.ask("Metadata", 9, Topics=[{"Name": "t"}])
        batch = build_batch([Record(value=b"x" * 1_000_000)]).encode()
        data = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": batch}]}]
        await client.ask("Produce", 9, Acks=-1, TopicData=data)
        part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 2_000_000}
        for _ in range(20):
            client.send("Fetch", 12, MaxWaitMs=0, MinBytes=1, Topics=[{"Topic": "t", "Partitions": [part]}])
        await running.is_served()
        assert [connection.is_full for connection in running.server.connections].count(True) == 1
        for _ in range(20):
            assert await client.receive() is not None

    serve(test)


def test_a_failure_of_the_server_is_logged_and_closes_the_connection_that_met_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(cluster: object, request: object) -> None:
        raise ZeroDivisionError

    async def test(running: Running) -> None:
        client = await running.connect()
        client.send("ListGroups", 4)
        assert await client.receive() is None
        await running.is_served()

    monkeypatch.setitem(handlers.HANDLERS, "ListGroups", fails)  # type: ignore[misc]
    serve(test)
    [record] = caplog.records
    assert record.getMessage() == "ListGroups version 4 of 127.0.0.1"


def test_mutated_requests_leave_the_server_alive(request: pytest.FixtureRequest) -> None:
    seed = int(request.config.option.hypothesis_seed)
    dice = random.Random(seed)
    requests = [CODEC.write_request(api, v, 1, "t", {}) for api in SERVED for v in CODEC.versions(f"{api}Request")]

    def mutated() -> bytes:
        data = bytearray(dice.choice(requests))
        for _ in range(dice.randint(1, 3)):
            data[dice.randrange(4, len(data))] = dice.choice((0, 1, 2, 127, 128, 255, dice.randrange(256)))
        return bytes(data)

    async def test(running: Running) -> None:
        for _ in range(20):
            client = await running.connect()
            for _ in range(20):
                client.frame(mutated())
            await client.writer.drain()
            client.writer.transport.abort()
            await running.is_served()

    serve(test)


def test_an_address_that_is_taken_is_an_error_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", [0, port])
