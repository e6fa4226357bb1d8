"""How many bytes this process has read of logs, so that an audit can say how often it read each."""

_read = 0


def count(size: int) -> None:
    """Some bytes more have been read."""
    global _read  # noqa: PLW0603 - a counter of the process
    _read += size


def bytes_read() -> int:
    """Bytes that were read since the process began."""
    return _read
