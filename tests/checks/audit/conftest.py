from typing import Any

from kafka_eos.histories.history import Event


def event(action: str, phase: str, process: str = "p", offset: int | None = None, **detail: Any) -> Event:
    """An event of a client, which is at a partition where its action is about one."""
    placed = action in {"Send", "Poll", "EndOfPartition", "LeaderChange", "Seek"}
    return Event(
        run="r",
        process=process,
        action=action,
        phase=phase,
        topic="orders" if placed else None,
        partition=0 if placed else None,
        offset=offset,
        isolation="read_committed" if action in {"Poll", "EndOfPartition"} else None,
        detail=detail,
    )
