"""The lines in which a broker's state is compared."""

from kafka_eos_checks.conform.observation import (
    ALL_OFFSETS,
    COMMITTED,
    LATER,
    LATEST_COMMITTED,
    LOG,
    MEMBERS,
    NOTHING,
    OFFSET,
    PLAIN_OFFSET,
    PRODUCERS,
    STABLE,
    TIMED,
    WATERMARK,
    asked_by,
    coordinator_field,
    coordinator_line,
    entry_line,
    joined,
    listed_field,
    members_line,
    producer_line,
)


def test_the_first_offset_and_the_first_sequence_are_told_like_any_other() -> None:
    assert producer_line("a", 1, 2, 0) == "producer a epoch 1 last sequence 2 open since 0"
    assert producer_line("a", 1, 2, -1) == "producer a epoch 1 last sequence 2 nothing open"
    assert entry_line(0, "data", "a", 1, 0) == "0 data of producer a epoch 1 sequence 0"
    assert entry_line(0, "commit", "a", 1, -1) == "0 commit of producer a epoch 1"


def test_every_field_says_which_request_reads_it_back() -> None:
    fields = [coordinator_field("A"), listed_field("A"), LOG, WATERMARK, STABLE, LATEST_COMMITTED, COMMITTED, LATER]
    fields += [TIMED, PRODUCERS, OFFSET, ALL_OFFSETS, PLAIN_OFFSET, MEMBERS]
    assert len({asked_by(name) for name in fields}) == 9
    assert all(asked_by(name) for name in fields)
    assert asked_by("answer") == ""


def test_partitions_and_members_are_in_order_and_none_is_nothing() -> None:
    assert coordinator_line("Ongoing", 0, 1, {"offsets", "data"}) == "Ongoing, producer 0 epoch 1, data+offsets in it"
    assert coordinator_line("Empty", 0, 1, set()) == f"Empty, producer 0 epoch 1, {NOTHING} in it"
    members = {"second": (0, False), "first": (3, True)}
    assert members_line(3, members) == f"epoch 3; first in epoch 3 with the partition; second in epoch 0 with {NOTHING}"
    assert joined([]) == NOTHING
