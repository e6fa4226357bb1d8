"""Mutated frames against a served cluster: it stays, others are served, and its memory is bounded.

Each connection sends a burst of requests of every API and version, filled at random, most of them damaged: bytes
changed, cut out, repeated, a size that lies. After each burst a connection of good manners asks for the versions and
has to be answered. A frame follows from the seed and its number.
"""

import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from kafka_eos.protocol import Codec, Message
from kafka_eos.server.schemas import SERVED, served_codec
from kafka_eos_checks.replay.progress import count_progress
from kafka_eos_checks.served_process import ServedProcess
from kafka_eos_checks.verdict import Verdict

BURST = 8  # frames of a connection, which the server closes at the first that it cannot read
PATIENCE_SECONDS = 20.0
MOST_MEMORY = 1 << 30  # bytes that the server may have resident
EXPECTED = "alive, others served, memory bounded"
_NUMBERS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}
_WORDS = ("t", "g", "a", "", "__transaction_state", "x" * 300, "\N{SNOWMAN}")


class NotServed(Exception):  # noqa: N818 - what happened
    """The server does not answer a connection of good manners."""


def row_of(fields: Sequence[Message], dice: random.Random) -> Message:
    """A message at random, by its schema's fields."""
    return {field["name"]: _value(field, field["type"], dice) for field in fields if "tag" not in field}


def _value(field: Message, kind: str, dice: random.Random) -> Any:
    if kind.startswith("[]"):
        return [_value(field, kind.removeprefix("[]"), dice) for _ in range(dice.choice((0, 1, 1, 2)))]
    if field["fields"]:
        return row_of(field["fields"], dice)
    if kind in _NUMBERS:
        most = (1 << _NUMBERS[kind]) - 1
        return dice.choice((0, 0, 1, 1, 2, most, dice.randrange(most)))
    others: dict[str, Callable[[], Any]] = {
        "bool": lambda: dice.random() < 0.5,
        "float64": dice.random,
        "string": lambda: dice.choice(_WORDS),
        "uuid": lambda: UUID(int=dice.getrandbits(128)),
        "bytes": lambda: dice.randbytes(dice.choice((0, 1, 61, 200))),
    }
    return others.get(kind, others["bytes"])()


def frame(codec: Codec, seed: int, number: int) -> bytes:
    """One frame with its size, damaged or not."""
    dice = random.Random(f"frame {seed} {number}")
    api = dice.choice(SERVED)
    version = dice.choice(codec.versions(f"{api}Request"))
    given = row_of(codec.fields(f"{api}Request", version), dice)
    data = bytearray(codec.write_request(api, version, number & 0x7FFFFFFF, "fuzz", given))
    for _ in range(dice.choice((0, 1, 1, 2, 5))):
        at = dice.randrange(len(data))
        change = dice.randrange(4)
        if change == 0:
            data[at] = dice.choice((0, 1, 2, 127, 128, 255, dice.randrange(256)))
        elif change == 1 and len(data) > 8:
            del data[at : at + dice.randint(1, 8)]
        elif change == 2:
            data[at:at] = data[at : at + dice.randint(1, 40)]
        else:
            data[at:at] = dice.randbytes(dice.randint(1, 8))
    size = len(data) if dice.random() < 0.98 else dice.choice((0, -1, 3, 1 << 30, (1 << 31) - 1))
    return struct.pack(">i", size) + bytes(data)


def resident(pid: int) -> int:
    """Bytes of a process in memory, at most so far; 0 where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line)
    return int(lines.get("VmHWM", "0 kB").split()[0]) * 1024


class Neighbour:
    """A connection that asks for the versions, and is answered."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=PATIENCE_SECONDS)
        self._asked = 0

    def ask(self) -> None:
        """Ask once more.

        Raises:
            NotServed: there is no answer.
        """
        self._asked += 1
        data = served_codec().write_request("ApiVersions", 3, self._asked, "neighbour", {})
        try:
            self._socket.sendall(struct.pack(">i", len(data)) + data)
            answer = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        except OSError as error:
            raise NotServed(f"the neighbour's question {self._asked}: {error}") from None
        if struct.unpack(">i", answer[:4])[0] != self._asked:
            raise NotServed(f"the neighbour's question {self._asked} got another one's answer")

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
        return data

    def close(self) -> None:
        """Go."""
        self._socket.close()


def judge(count: int, seed: int, server: ServedProcess | None = None) -> Verdict:
    """Send ``count`` frames to a server of its own.

    Args:
        count: of frames.
        seed: of the frames.
        server: another server than the project's own, for tests of the judge.
    """
    began, tally, codec = time.perf_counter(), Counter[str](), served_codec()
    wrong = ""
    with server or ServedProcess() as served, count_progress("frames", count) as advance:
        host, _, port = served.bootstrap.rpartition(":")
        address = (host, int(port))
        neighbour = Neighbour(address)
        done = 0
        try:
            while done < count:
                burst = [frame(codec, seed, number) for number in range(done, min(done + BURST, count))]
                tally += _send(address, burst)
                done += len(burst)
                neighbour.ask()
                advance(len(burst))
        except (NotServed, OSError) as error:
            wrong = f"{error}, after frame {done} of seed {seed}"
        finally:
            neighbour.close()
        memory = resident(served.pid)
        if not wrong and not served.is_alive:
            wrong = "the server has ended"
        if not wrong and memory > MOST_MEMORY:
            wrong = f"{memory >> 20} MB resident"
        tally["refused_with_an_error"] = sum(served.errors().values()) if served.is_alive else 0
    return Verdict(
        check="fuzz",
        name="frames",
        expected=EXPECTED,
        found=wrong or EXPECTED,
        ok=not wrong,
        seconds=time.perf_counter() - began,
        figures={"seed": seed, "frames": count, **tally, "resident_mb": memory >> 20},
    )


def _send(address: tuple[str, int], frames: Sequence[bytes]) -> Counter[str]:
    """Send frames on one connection, until it is closed; how many were sent, and whether it was closed on them."""
    tally = Counter[str]()
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for data in frames:
            try:
                connection.sendall(data)
            except OSError:
                tally["connections_closed_early"] += 1
                break
            tally["sent"] += 1
    return tally
