"""Text of others in evidence: in quotes, escaped, or under another name if strangers get the report (``--redact``)."""

import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from secrets import token_bytes

from kafka_eos.histories.history import Event

_KEY: ContextVar[bytes | None] = ContextVar("key", default=None)


def quoted(text: object) -> str:
    """A value, transactional id or group as evidence shows it: in quotes, or as ``#…`` inside :func:`redacted`."""
    key = _KEY.get()
    return repr(text) if key is None else f"#{hmac.digest(key, repr(text).encode(), 'sha256').hex()[:12]}"


def unquoted(text: str) -> str:
    """A transactional id as a column of findings has it: without quotes, or as ``#…`` inside :func:`redacted`."""
    return text if _KEY.get() is None else quoted(text)


def legible(path: object) -> str:
    """A path as evidence shows it: what a terminal would obey, or cannot show, as Python escapes it."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(path))


def named(event: Event) -> str:
    """An event as evidence names it: by its order and process, by its process alone if it has no order."""
    return event.process if event.order is None else f"event {event.order} of {event.process}"


@contextmanager
def redacted(wanted: bool = True) -> Iterator[None]:
    """Replace all that clients wrote in evidence, as long as the block lasts.

    Equal texts have equal names within one block. The key is thrown away with it, so that nobody can try texts.
    """
    token = _KEY.set(token_bytes(32) if wanted else None)
    try:
        yield
    finally:
        _KEY.reset(token)


def key_of_names() -> bytes | None:
    """The key inside :func:`redacted`, for the processes that work for this one; None outside."""
    return _KEY.get()


def use_key(key: bytes | None) -> None:
    """Replace what clients wrote by the names that the process with this key has for it; without a key, keep it."""
    _KEY.set(key)
