"""The common part of the tours of all libraries: the names, the numbers, and the form of the events.

A tour is a program of one library with that library's default settings. Its arguments are the bootstrap servers, the
prefix of all its topics, groups and transactional ids, and ``keep`` or ``delete``: the fate of topics and groups in the
end. It prints one JSON object per line, whose key ``saw`` is one of ``EVENTS``. The tours in other languages have the
same constants and print the same events.
"""

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

PARTITIONS = {"records": 3, "transactions": 2, "copies": 1}
"""Partitions of the topics, by the ends of their names."""
ROUNDS = 5
"""Rounds of the producers with default settings and of idempotent ones; others write one."""
ROUND = 20
"""Records of a round: they are sent at once and waited for together. Every second one has a key, of three."""
TRANSACTIONS = 9
"""Transactions, of two records each, in partition 0 and 1 of the topic; every third is aborted."""
COPIED = 25
"""Records that a transaction of the copier takes at most."""
FIRST = 50
"""Records after which the first reader commits and is closed."""
END = "end"
"""Value of the last record of each partition, by which readers know that they have seen all."""
ENDED: defaultdict[str, set[int]] = defaultdict(set)
"""Partitions that readers of a group have seen the end of: the second reader goes on after the first."""
RETENTION = ("3600000", "7200000")
"""``retention.ms`` of the topic of records, as it is created and as it is altered."""
EVENTS = (
    "cluster",  # brokers: ids, controller: id
    "topics",  # topics: name -> number of partitions
    "configuration",  # retention.ms
    "acknowledged",  # kind, key, value, partition, offset
    "sent",  # kind, key, value: by a producer with acks=0
    "failed",  # kind, value, error: the library gave up
    "transaction",  # number, outcome: committed, aborted or unknown; error
    "copied",  # inputs: [[partition, offset]…], outcome, error
    "consumed",  # reader, topic, partition, offset, key, value
    "committed",  # group, offsets: partition -> offset
    "assigned",  # member, partitions
    "groups",  # listed
    "group",  # group, state, members
    "deleted groups",  # listed: the remaining ones
    "deleted topics",  # listed: the remaining ones
    "end",
)


def say(saw: str, **what: Any) -> None:
    """Print an event, in one piece, as several threads print theirs."""
    assert saw in EVENTS, saw
    sys.stdout.write(json.dumps({"saw": saw, **what}) + "\n")
    sys.stdout.flush()


def key_of(number: int) -> str | None:
    """The key of a record of a round."""
    return f"key-{number % 3}" if number % 2 else None


def arguments() -> tuple[str, str, bool]:
    """Bootstrap servers, name, and whether to keep topics and groups."""
    bootstrap, name, end = sys.argv[1:]
    return bootstrap, name, end == "keep"


def wait_until(ready: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "condition not reached in time"
        time.sleep(0.05)


def again(call: Callable[[], T], error: type[Exception], seconds: float = 60.0) -> T:
    """Call until there is no error: the connection may be lost with the server."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class NotInTime(Exception):  # noqa: N818 - what happened
    """Raised if a call does not return in time."""


def in_time(call: Callable[..., None], *arguments: Any, seconds: float) -> None:
    """Call in a thread, which is abandoned if the call does not return.

    Raises:
        NotInTime: if the call does not return in time.
    """
    outcome = Future[None]()

    def run() -> None:
        try:
            outcome.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001 - the caller's
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        outcome.result(seconds)
    except TimeoutError as error:
        raise NotInTime("the call did not return") from error


def text(data: bytes | None) -> str | None:
    """A key or a value."""
    return None if data is None else data.decode()
