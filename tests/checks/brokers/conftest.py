"""A fake broker, so that the proxy is tested without Kafka's jars."""

import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.wire.protocol import Codec


@pytest.fixture
def produce(codec: Codec) -> Callable[..., bytes]:
    """A whole Produce v9 request for partition 0 of "t", length included."""

    def request(correlation: int, sequence: int, *, acks: int = -1, epoch: int = 0) -> bytes:
        batch = build_batch([Record(value=b"x")], producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        data = {"Index": 0, "Records": batch.encode()}
        row = {"Acks": acks, "TimeoutMs": 1, "TopicData": [{"Name": "t", "PartitionData": [data]}]}
        body = codec.write_request("Produce", 9, correlation, "client", row)
        return struct.pack(">i", len(body)) + body

    return request


class FakeBroker(socketserver.ThreadingTCPServer):
    """A broker that answers a Produce request with the next offset and any other request with the request's bytes.

    Attributes:
        received: the frames, in the order of their arrival.
        closes_after: the number of frames after which it closes the connection instead of answering.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.received: list[bytes] = []
        self.closes_after: int | None = None
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def answer(self, frame: bytes) -> bytes | None:
        with self.lock:
            offset = len(self.received)
            self.received.append(frame)
        if self.closes_after is not None and offset >= self.closes_after:
            return b""
        if frame[:2] != b"\x00\x00":
            return frame
        header, body = self.codec.read_request_header(frame)
        if self.codec.read("ProduceRequest", 9, body)["Acks"] == 0:
            return None
        part = {"Index": 0, "ErrorCode": 0, "BaseOffset": offset}
        row = {"Responses": [{"Name": "t", "PartitionResponses": [part]}]}
        return self.codec.write_response("Produce", 9, header["CorrelationId"], row)


class _Handler(socketserver.StreamRequestHandler):
    server: FakeBroker

    def handle(self) -> None:
        while len(head := self.rfile.read(4)) == 4:
            answer = self.server.answer(self.rfile.read(struct.unpack(">i", head)[0]))
            if answer == b"":
                return
            if answer is not None:
                self.wfile.write(struct.pack(">i", len(answer)) + answer)


@pytest.fixture
def broker(codec: Codec) -> Iterator[FakeBroker]:
    server = FakeBroker(codec)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join(10)
    server.server_close()


class Connection:
    """A client's connection to the proxy."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.stream = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next frame, or None if the connection was closed."""
        try:
            head = self.stream.read(4)
        except ConnectionError:
            return None
        return self.stream.read(struct.unpack(">i", head)[0]) if len(head) == 4 else None

    def is_silent(self) -> bool:
        """Whether no data arrive and the connection stays open."""
        self.socket.settimeout(0.2)
        try:
            return not isinstance(self.socket.recv(1), bytes)
        except TimeoutError:
            return True

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


@pytest.fixture
def connect() -> Iterator[Callable[[int], Connection]]:
    opened: list[Connection] = []

    def to(port: int) -> Connection:
        opened.append(Connection(port))
        return opened[-1]

    yield to
    for connection in opened:
        connection.close()
