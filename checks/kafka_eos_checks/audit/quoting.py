"""Text of clients in evidence: in quotes, or replaced by a name if the report goes to strangers (``--redact``)."""

import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from secrets import token_bytes

_KEY: ContextVar[bytes | None] = ContextVar("key", default=None)


def quoted(text: object) -> str:
    """A value, transactional id or group, as evidence says it: in quotes, or inside :func:`redacted` as ``#…``."""
    key = _KEY.get()
    return repr(text) if key is None else f"#{hmac.digest(key, repr(text).encode(), 'sha256').hex()[:12]}"


@contextmanager
def redacted(wanted: bool = True) -> Iterator[None]:
    """As long as the block lasts evidence names nothing that a client wrote.

    Equal texts have equal names within one block. The key is thrown away with it, so that nobody can try texts.
    """
    token = _KEY.set(token_bytes(32) if wanted else None)
    try:
        yield
    finally:
        _KEY.reset(token)
