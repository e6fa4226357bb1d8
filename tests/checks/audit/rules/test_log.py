"""Each rule has a log that violates it, and a clean log on which all rules are silent."""

from collections.abc import Sequence

from kafka_eos_checks.audit.rules.log import (
    DUPLICATE,
    FIRST_SEQUENCE,
    GAP,
    HALF,
    LEADER_BACK,
    MARKER,
    NONE,
    ORDER,
    OUTSIDE,
    SEQUENCE_MASK,
    STALE_EPOCH,
    TRANSACTIONAL,
    Batch,
    Log,
    Reasons,
    Sequenced,
    Subject,
    Unjudged,
    Violation,
    audit_log,
)

from ..kept import as_kept


def data(offset: int, sequence: int, *, count: int = 1, pid: int = 7, epoch: int = 0) -> Batch:
    last = (sequence + count - 1) & SEQUENCE_MASK
    return Batch(offset * 100, offset, offset + count - 1, pid, epoch, sequence, last, unsequenced=False)


def marker(offset: int, epoch: int, pid: int = 7) -> Batch:
    return Batch(offset * 100, offset, offset, pid, epoch, NONE, NONE, unsequenced=True, kind=MARKER)


def plain(offset: int) -> Batch:
    return Batch(offset * 100, offset, offset, -1, -1, NONE, NONE, unsequenced=False)


def found(log: Sequence[Batch]) -> list[tuple[str, int]]:
    violations = list(audit_log(log))
    as_kept([], *(violation for _, violation in violations))
    return [(violation.rule, batch.base_offset) for batch, violation in violations]


def test_sequences_that_follow_one_another_violate_nothing() -> None:
    assert found([data(0, 0, count=3), data(3, 3, count=2), data(5, 5), data(6, 0, pid=8)]) == []


def test_a_batch_again_is_a_duplicate_and_the_log_goes_on_from_the_highest_sequence() -> None:
    assert found([data(0, 0), data(1, 1), data(2, 0), data(3, 2)]) == [(DUPLICATE, 2)]


def test_a_batch_that_overlaps_the_last_one_is_a_duplicate_and_the_log_goes_on_from_its_end() -> None:
    assert found([data(0, 0, count=5), data(5, 3, count=5), data(10, 8)]) == [(DUPLICATE, 5)]


def test_a_sequence_beyond_the_next_is_one_gap() -> None:
    assert found([data(0, 0), data(1, 2), data(2, 3)]) == [(GAP, 1)]


def test_a_new_epoch_begins_at_sequence_zero() -> None:
    assert found([data(0, 0), data(1, 1), data(2, 0, epoch=1)]) == []
    assert found([data(0, 0), data(1, 1), data(2, 2, epoch=1), data(3, 3, epoch=1)]) == [(GAP, 2)]


def test_a_log_that_begins_at_offset_zero_has_the_first_sequence_of_every_producer() -> None:
    assert found([data(0, 4)]) == [(GAP, 0)]
    assert found([plain(0), data(1, 4)]) == [(GAP, 1)]


def test_a_log_whose_beginning_is_gone_may_begin_with_any_sequence() -> None:
    assert found([data(9, 4), data(10, 5), data(11, 7, pid=8)]) == []
    assert found([data(9, 4), data(10, 6)]) == [(GAP, 10)]


def test_sequences_wrap_after_the_largest() -> None:
    assert found([plain(9), data(10, SEQUENCE_MASK - 1, count=2), data(12, 0), data(13, 1)]) == []
    assert found([plain(9), data(10, SEQUENCE_MASK), data(11, SEQUENCE_MASK)]) == [(DUPLICATE, 11)]
    assert found([plain(9), data(10, SEQUENCE_MASK), data(11, 1)]) == [(GAP, 11)]


def test_the_shorter_way_round_says_whether_a_sequence_is_ahead() -> None:
    assert found([data(0, 0), data(1, HALF)]) == [(GAP, 1)]
    assert found([data(0, 0), data(1, HALF + 1)]) == [(DUPLICATE, 1)]


def test_an_epoch_below_the_highest_is_stale_and_changes_nothing() -> None:
    assert found([data(0, 0, epoch=1), data(1, 0, epoch=0), data(2, 1, epoch=1)]) == [(STALE_EPOCH, 1)]
    assert found([data(0, 0, epoch=1), marker(1, 0), data(2, 1, epoch=1)]) == [(STALE_EPOCH, 1)]


def test_a_marker_of_the_same_epoch_keeps_the_sequence_and_a_higher_one_resets_it() -> None:
    assert found([data(0, 0), marker(1, 0), data(2, 1)]) == []
    assert found([data(0, 0), marker(1, 0), data(2, 0)]) == [(DUPLICATE, 2)]
    assert found([data(0, 0), marker(1, 1), data(2, 0, epoch=1)]) == []
    assert found([data(0, 0), marker(1, 1), data(2, 1, epoch=1)]) == [(GAP, 2)]
    assert found([data(0, 0), marker(1, 1), data(2, 1, epoch=0)]) == [(STALE_EPOCH, 2)]


def test_an_offset_that_goes_back_is_one_finding_and_its_batch_is_not_followed() -> None:
    assert found([data(0, 0, count=3), data(2, 9), data(3, 3)]) == [(ORDER, 2)]
    assert found([data(0, 0), data(0, 0), data(1, 1)]) == [(ORDER, 0)]


def test_one_wrong_base_offset_is_one_finding_with_the_batches_after_it_counted() -> None:
    before, after = [plain(offset) for offset in range(3)], [plain(offset) for offset in range(4, 104)]
    [(batch, violation)] = audit_log([*before, plain(5000), *after, plain(5001)])
    assert (batch.base_offset, violation.rule) == (4, ORDER)
    assert violation.evidence.endswith("offset 5000 before it; so are the 99 batches after it, up to offset 103")
    [(_, violation)] = audit_log([*before, plain(5000), *after[:2], plain(5001)])
    assert violation.evidence.endswith("; so is the batch after it, up to offset 5")


def test_each_place_where_offsets_go_back_is_a_finding() -> None:
    assert found([plain(9), plain(3), plain(4), plain(3), plain(5), plain(10), plain(8)]) == [
        (ORDER, 3), (ORDER, 3), (ORDER, 8)
    ]  # fmt: skip
    assert found([plain(9), plain(3), plain(10), plain(4)]) == [(ORDER, 3), (ORDER, 4)]


def test_batches_of_a_segment_with_a_wrong_name_are_counted_in_one_finding() -> None:
    log, violations = Log(), []
    for offset, room in [(0, range(100, 200)), (1, range(100, 200)), (100, range(100, 200)), (50, range(100, 200))]:
        log, violation = log.append(plain(offset), room)
        violations += [] if violation is None else [violation.follows]
    assert violations == [False, True, False]


def test_a_jump_over_a_hole_is_no_gap_but_a_sequence_again_is_a_duplicate() -> None:
    assert found([data(0, 0), data(5, 3), data(6, 4)]) == []
    assert found([data(0, 0), data(5, 3, epoch=1)]) == []
    assert found([data(0, 0), data(5, 0)]) == [(DUPLICATE, 5)]
    assert found([data(0, 0), data(5, 3), data(6, 5)]) == [(GAP, 6)]
    assert found([data(0, 0), data(5, 3, pid=8)]) == []


def test_a_marker_after_a_hole_does_not_make_the_sequence_certain_again() -> None:
    assert found([data(0, 0), marker(5, 0), data(6, 3)]) == []


def test_a_marker_of_a_new_epoch_after_a_hole_may_have_ended_data_of_its_epoch_in_the_hole() -> None:
    """Kafka 3.9.1 compacts so, as before version 2 a marker has the epoch of its data."""
    assert found([data(0, 0), marker(1, 0), marker(5, 1), data(6, 3, epoch=1)]) == []
    assert found([data(0, 0), marker(1, 0), marker(5, 1), marker(6, 1), data(7, 3, epoch=1)]) == []
    assert found([marker(0, 0), plain(3), marker(4, 1), data(5, 3, epoch=1)]) == []


def test_without_a_hole_since_its_last_data_a_new_epoch_begins_at_sequence_zero() -> None:
    """The data of version 2 come right after a marker with their epoch."""
    assert found([data(0, 0), marker(1, 1), data(2, 3, epoch=1)]) == [(GAP, 2)]
    assert found([plain(0), data(5, 3), marker(6, 1), data(7, 3, epoch=1)]) == [(GAP, 7)]
    assert found([marker(0, 0), marker(1, 1), data(2, 3, epoch=1)]) == [(GAP, 2)], "the whole log has no hole"
    assert found([data(0, 0), marker(5, 1), data(6, 3, epoch=1), data(7, 5, epoch=1)]) == [(GAP, 7)]
    assert found([data(0, 0), marker(5, 1), data(6, 3, epoch=1), data(7, 3, epoch=1)]) == [(DUPLICATE, 7)]


def led(offset: int, epoch: int) -> Batch:
    return plain(offset)._replace(leader_epoch=epoch)


def test_a_leader_epoch_that_goes_back_is_one_finding_whether_it_or_the_one_before_is_wrong() -> None:
    assert found([led(0, 1), led(1, 1), led(2, 3)]) == []
    assert found([led(0, 3), led(1, 2), led(2, 3), led(3, 3)]) == [(LEADER_BACK, 1)]
    assert found([led(0, 3), led(1, 9), led(2, 3), led(3, 3)]) == [(LEADER_BACK, 2)]
    assert found([led(0, 3), led(1, -1), led(2, 2), led(3, -1)]) == [(LEADER_BACK, 2)], "-1 is none"
    assert found([led(0, 1), led(1, 0)]) == [(LEADER_BACK, 1)], "0 is one"


def test_a_batch_that_violates_another_rule_is_one_finding_and_its_leader_epoch_still_counts() -> None:
    assert found([data(0, 0)._replace(leader_epoch=3), data(1, 5)._replace(leader_epoch=2)]) == [(GAP, 1)]
    assert found([led(5, 3), led(2, 1), led(6, 3)]) == [(ORDER, 2)], "what is in no order is ignored"
    assert found([data(0, 0), data(1, 5)._replace(leader_epoch=3), led(2, 2)]) == [(GAP, 1), (LEADER_BACK, 2)]


def inside(offset: int, sequence: int, *, pid: int = 7, epoch: int = 0) -> Batch:
    return data(offset, sequence, pid=pid, epoch=epoch)._replace(kind=TRANSACTIONAL)


def test_plain_data_of_a_producer_with_an_open_transaction_is_outside_of_it() -> None:
    assert found([inside(0, 0), data(1, 1), inside(2, 2), marker(3, 0), data(4, 3)]) == [(OUTSIDE, 1)]
    assert found([inside(0, 0), data(1, 1), data(2, 2)]) == [(OUTSIDE, 1), (OUTSIDE, 2)]
    assert found([inside(0, 0), data(1, 0, epoch=1)]) == [(OUTSIDE, 1)], "the epoch does not matter"
    assert found([inside(0, 0), data(1, 0, pid=8), plain(2)]) == [], "of other producers"
    assert found([inside(0, 0), marker(1, 1), data(2, 0, epoch=1)]) == []
    assert found([inside(0, 0, epoch=1), marker(1, 0), data(2, 1, epoch=1)]) == [(STALE_EPOCH, 1), (OUTSIDE, 2)]


def test_a_transaction_that_was_open_before_a_hole_may_have_ended_there() -> None:
    assert found([inside(0, 0), data(2, 1)]) == []
    assert found([inside(0, 0), inside(2, 1), data(3, 2)]) == [(OUTSIDE, 3)]


def test_plain_data_in_a_transaction_that_is_also_a_duplicate_or_after_a_gap_is_one_finding() -> None:
    assert found([inside(0, 0), data(1, 0)]) == [(DUPLICATE, 1)]
    assert found([inside(0, 0), data(1, 5)]) == [(GAP, 1)]


def test_a_batch_whose_segment_cannot_hold_its_offset_is_ignored() -> None:
    log, room = Log(), range(5, 10)
    for offset, is_wrong in ((4, True), (5, False), (10, True), (11, True), (9, False)):
        log, violation = log.append(plain(offset), room)
        assert (violation is not None and violation.rule == ORDER) is is_wrong, offset
        told = f"base offset {offset} is not in its segment's range 5 to 9"
        assert violation is None or violation.evidence.partition("; ")[0] == told
    assert (log.end, log.holes, log.whole) == (10, 1, False)


def test_a_violation_is_told_with_what_the_log_has_and_what_came_before() -> None:
    said = {
        "epoch 1 after epoch 3": [data(0, 0, epoch=3), data(1, 0, epoch=1)],
        "no transactional bit at epoch 2, in an open transaction": [inside(0, 0, epoch=2), data(1, 1, epoch=2)],
        "sequence 5, expected 1 at epoch 2": [data(0, 0, epoch=2), data(1, 5, epoch=2)],
        "sequence 3 again, the last was 4 at epoch 2": [data(0, 0, count=5, epoch=2), data(5, 3, epoch=2)],
        "begins with sequence 4 at epoch 2: those before are lost, or were written to a topic of this name that was"
        " deleted": [data(0, 4, epoch=2)],
        "base offset 3 is not above the last offset 9 before it": [plain(9), plain(3)],
        "leader epoch 1 after leader epoch 3": [led(0, 3), led(1, 1)],
    }
    assert [violation.evidence for log in said.values() for _, violation in audit_log(log)] == list(said)


def test_of_subjects_that_could_not_be_judged_the_first_by_place_is_kept_whichever_was_counted_first() -> None:
    assert str(Subject("t", 1, 3, 7)) == "at t-1 offset 3 (producer 7)"
    assert str(Subject("t", 1, 3)) == "at t-1 offset 3"
    assert str(Subject("t", 1, -1, 7)) == "in t-1"
    for offsets in ((3, 9), (9, 3)):
        reasons = Reasons()
        for offset in offsets:
            reasons.count(FIRST_SEQUENCE, Subject("t", 0, offset), 2)
        assert reasons == {FIRST_SEQUENCE: Unjudged(4, Subject("t", 0, 3))}


def test_a_violation_is_told_with_its_first_copy_and_with_what_follows_from_it() -> None:
    duplicate, gap = Violation(DUPLICATE, "said"), Violation(GAP, "said")
    batch = data(9, 5, epoch=2)
    as_kept(
        [],
        *(each.with_copy(batch, {Sequenced(7, 2, 5): at}) for each in (duplicate, gap) for at in (9, 4)),
        *(gap.followed_by(others, 12) for others in (0, 1, 2)),
    )
