"""Each bound admits states up to its limit, and none beyond it: the graphs' comparison with TLC starts a JVM."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.models import bounds

MOST = {
    "MaxEntries": 2,
    "MaxTransactions": 3,
    "MaxGroupEpoch": 4,
    "ProducerIds": frozenset({0, 1}),
    "Records": frozenset({"a", "b"}),
    "Offsets": frozenset({0, 1, 2}),
}


def logs(entries: int) -> Any:
    return SimpleNamespace(log=SimpleNamespace(entries=["e"] * entries))


def broker(entries: int = 2, number: int = 3, allocated: int = 2, epoch: int = 4) -> Any:
    return SimpleNamespace(
        partitions={"p": logs(0), "q": logs(entries)},
        coordinators={"t": SimpleNamespace(number=0), "u": SimpleNamespace(number=number)},
        allocated=allocated,
        membership=SimpleNamespace(epoch=epoch),
    )


def coordinator(known: int = 3, appending: int = 3, allocated: int = 2) -> Any:
    record = SimpleNamespace(number=appending)
    return SimpleNamespace(
        metadata=SimpleNamespace(number=known), appending=SimpleNamespace(record=record), allocated=allocated
    )


def clients(*known: tuple[int, int]) -> Any:
    return SimpleNamespace(
        clients={place: SimpleNamespace(version=version, number=n) for place, (version, n) in enumerate(known)}
    )


@pytest.mark.parametrize(
    ("bound", "inside", "outside"),
    [
        (
            bounds.broker_bounds,
            [broker(), broker(0, 0, 0, 0)],
            [broker(3), broker(number=4), broker(allocated=3), broker(epoch=5)],
        ),
        (bounds.leader_bounds, [SimpleNamespace(leader=logs(n)) for n in (0, 2)], [SimpleNamespace(leader=logs(3))]),
        (
            bounds.mirror_bounds,
            [SimpleNamespace(target=given) for given in ("", "abc")],
            [SimpleNamespace(target="abcd")],
        ),
        (bounds.partition_log_bounds, [logs(0), logs(2)], [logs(3)]),
        (
            bounds.transaction_coordinator_bounds,
            [coordinator(), coordinator(0, 0, 0)],
            [coordinator(4), coordinator(appending=4), coordinator(allocated=3)],
        ),
        (
            bounds.transactions_upgraded_after_first,
            [clients((1, 1), (2, 2)), clients((2, 9))],
            [clients((2, 2), (1, 2))],
        ),
    ],
)
def test_a_bound_admits_what_is_up_to_its_limit_and_nothing_beyond(
    bound: Callable[..., bool], inside: list[Any], outside: list[Any]
) -> None:
    assert all(bound(state, MOST) for state in inside)
    assert not any(bound(state, MOST) for state in outside)


def reading(markers: str, watermark: int = 0, leader_epoch: int = 0, position: int = 0) -> Any:
    """A log of batches (b), markers that end some (m), and markers that end none (n), and one reader."""
    entries = [SimpleNamespace(is_marker=kind != "b", ends={"b"} if kind == "m" else set()) for kind in markers]
    return SimpleNamespace(
        log=SimpleNamespace(entries=entries),
        batches_ended_by=lambda marker: marker.ends,
        high_watermark=watermark,
        leader_epoch=leader_epoch,
        positions={"r": 0, "s": position},
    )


@pytest.mark.parametrize(
    ("state", "admitted"),
    [
        (reading("b"), True),
        (reading("bm"), True),
        (reading("n"), False),
        (reading("bmn", leader_epoch=1), False),
        (reading("b", watermark=1), False),
        (reading("b", leader_epoch=1), False),
        (reading("bm", watermark=1), True),
        (reading("bm", watermark=1, position=1), False),
        (reading("bm", watermark=1, leader_epoch=1, position=1), True),
    ],
)
def test_a_reader_begins_when_the_log_is_full_and_another_replica_leads(state: Any, admitted: bool) -> None:
    assert bounds.consumer_read_after_election(state, MOST) == admitted
