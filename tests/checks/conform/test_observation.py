"""The lines in which a broker's state is compared."""

from kafka_eos_checks.conform.observation import (
    NOTHING,
    coordinator_line,
    entry_line,
    joined,
    members_line,
    producer_line,
)


def test_the_first_offset_and_the_first_sequence_are_told_like_any_other() -> None:
    assert producer_line("a", 1, 2, 0) == "producer a epoch 1 last sequence 2 open since 0"
    assert producer_line("a", 1, 2, -1) == "producer a epoch 1 last sequence 2 nothing open"
    assert entry_line(0, "data", "a", 1, 0) == "0 data of producer a epoch 1 sequence 0"
    assert entry_line(0, "commit", "a", 1, -1) == "0 commit of producer a epoch 1"


def test_partitions_and_members_are_in_order_and_none_is_nothing() -> None:
    assert coordinator_line("Ongoing", 0, 1, {"offsets", "data"}) == "Ongoing, producer 0 epoch 1, data+offsets in it"
    assert coordinator_line("Empty", 0, 1, set()) == f"Empty, producer 0 epoch 1, {NOTHING} in it"
    members = {"second": (0, False), "first": (3, True)}
    assert members_line(3, members) == f"epoch 3; first in epoch 3 with the partition; second in epoch 0 with {NOTHING}"
    assert joined([]) == NOTHING
