"""Mutated frames against a served cluster, which must keep running, serve others, and stay within bounded memory.

Connections send bursts of random requests of every API and version, most of them damaged: bytes changed, cut out or
repeated, or a false size. After each frame the connection sends ApiVersions, and so learns what happened to the frame:
it was answered, needs no answer, closed the connection, or waits. A frame that waits is followed by the rest of the
burst on another connection. After each burst a well-behaved connection sends ApiVersions too, and must get an answer.
The seed and its number determine a frame.
"""

import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any
from uuid import UUID

from kafka_eos.server.schemas import SERVED, served_codec
from kafka_eos.wire.protocol import Codec, Message
from kafka_eos_checks.conform.security import Security
from kafka_eos_checks.conform.wire import Address, Connection, address_of
from kafka_eos_checks.kit.progress import count_progress
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.testing.process import MOST_MEMORY, ServedProcess, peak_memory

BURST = 8  # frames that are sent at a time
CONNECTIONS = 16  # at a time
SILENCE_SECONDS = 0.5  # without an answer, after which a frame counts as waiting
PATIENCE_SECONDS = 20.0
ANSWERED, UNANSWERED, CLOSED, WAITING = "answered", "wanted_no_answer", "cost_their_connection", "waited"
BECAME = (ANSWERED, UNANSWERED, CLOSED, WAITING)
QUESTION = (1 << 31) - 1  # the correlation id of the ApiVersions request after a frame
EXPECTED = "alive, others served, memory bounded"
_NUMBERS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}
_WORDS = ("t", "g", "a", "", "__transaction_state", "x" * 300, "\N{SNOWMAN}")


def row_of(fields: Sequence[Message], dice: random.Random) -> Message:
    """A random message with its schema's fields."""
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
    """A frame with its size, damaged or not."""
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


def judge(count: int, seed: int, server: ServedProcess | None = None) -> Verdict:
    """Send ``count`` frames to a server of its own.

    Args:
        count: the number of frames.
        seed: the seed of the frames.
        server: a server other than the project's own, for tests of the judge.
    """
    began, tally, done = time.perf_counter(), Counter[str](), 0
    wrong = ""
    with (
        server or ServedProcess() as served,
        ThreadPoolExecutor(CONNECTIONS) as pool,
        count_progress("frames", count) as advance,
    ):
        address = address_of(served.bootstrap)
        bursts = [range(first, min(first + BURST, count)) for first in range(0, count, BURST)]
        try:
            with closing(Connection(address, Security(), PATIENCE_SECONDS)) as neighbour:
                for numbers, became in zip(bursts, pool.map(partial(_send, address, seed), bursts), strict=True):
                    tally += became
                    done = numbers.stop
                    neighbour.ask("ApiVersions", 3, {})
                    advance(len(numbers))
        except OSError as error:
            wrong = f"{error}, after frame {done} of seed {seed}"
        finally:
            pool.shutdown(cancel_futures=True)
        memory = peak_memory(served.pid)
        if not wrong and not served.is_alive:
            wrong = "the server has ended"
        if not wrong and memory is not None and memory > MOST_MEMORY:
            wrong = f"{memory >> 20} MB resident"
        refused = sum(served.errors().values()) if served.is_alive else 0
    figures = {"seed": seed, "frames": done, **{became: tally[became] for became in BECAME}}
    expected = EXPECTED
    if memory is None:
        expected = "alive, others served, memory not reported by this system"
    else:
        figures["resident_mb"] = memory >> 20
    return Verdict(
        check="fuzz",
        name="frames",
        expected=expected,
        found=wrong or expected,
        ok=not wrong,
        seconds=time.perf_counter() - began,
        figures={**figures, "refused_with_an_error": refused},
    )


def _send(address: Address, seed: int, numbers: range) -> Counter[str]:
    """Send frames and read the answers; return the number of frames by outcome.

    If a frame waits or closes its connection, the frames after it go on another one.
    """
    tally, codec = Counter[str](), served_codec()
    left = [frame(codec, seed, number) for number in numbers]
    while left:
        answers, ended = _ask(address, left)
        passed = answers.count(QUESTION)
        answered = len(answers) - passed
        passed = max(passed, answered)
        tally += Counter({ANSWERED: answered, UNANSWERED: passed - answered, ended: passed < len(left)})
        del left[: passed + 1]
    return tally


def _ask(address: Address, frames: Sequence[bytes]) -> tuple[list[int], str]:
    """Send frames on one connection, each followed by ApiVersions; return the answers' ids and how it ended."""
    question = served_codec().write_request("ApiVersions", 3, QUESTION, "fuzz", {})
    behind = struct.pack(">i", len(question)) + question
    answers = bytearray()
    with socket.create_connection((address.host, address.port), timeout=PATIENCE_SECONDS) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(ConnectionError):
            try:
                connection.sendall(b"".join(data + behind for data in frames))
                connection.settimeout(SILENCE_SECONDS)
                while correlations(answers).count(QUESTION) < len(frames) and (some := connection.recv(1 << 16)):
                    answers += some
            except TimeoutError:
                return correlations(answers), WAITING
    return correlations(answers), CLOSED


def correlations(data: bytes | bytearray) -> list[int]:
    """The correlation ids of the frames that have arrived completely."""
    found, position = [], 0
    while len(data) - position >= 4:
        size = int.from_bytes(data[position : position + 4], "big")
        if position + 4 + size > len(data):
            break
        found.append(int.from_bytes(data[position + 4 : position + 8], "big", signed=True))
        position += 4 + size
    return found
