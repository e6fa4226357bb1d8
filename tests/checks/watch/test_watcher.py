"""The reports of a watcher on a cluster."""

import json
import random
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import ControlType, Record, build_batch
from kafka_eos_checks.audit.findings import Kind
from kafka_eos_checks.audit.oracle.synthetic import faulty_log
from kafka_eos_checks.audit.rules.log import (
    DUPLICATE,
    GAP,
    LEADER_BACK,
    LOG_RULES,
    ORDER,
    OUTSIDE,
    STALE_EPOCH,
    Batch,
    audit_log,
)
from kafka_eos_checks.audit.rules.transactions.names import HANGING, TORN
from kafka_eos_checks.audit.segments.headers import SMALLEST_LENGTH
from kafka_eos_checks.conform.wire import NoAnswer
from kafka_eos_checks.watch.advice import WORDS, Tools
from kafka_eos_checks.watch.backoff import FIRST_MS, BackOff
from kafka_eos_checks.watch.cluster import EARLIEST, LATEST, Fetched, Place, Topics, Transaction
from kafka_eos_checks.watch.reports import RESOLVED, Clock, Ends, Report, Since, identity
from kafka_eos_checks.watch.state import CORRUPT, CUT, LAGS, PartitionState, partition_from_json
from kafka_eos_checks.watch.watcher import REFRESH_MS, WAIT_MS, AnotherCluster, Watcher

from .conftest import PLACE, STAMP_MS, Log, Written

NOW = 1_700_000_000_000
PID, EPOCH = 7, 3
STOP = "Stop its producer first, because its next transaction in this partition ends this one, too, by its own "
STOP += "decision."
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def ongoing(**changes: object) -> Transaction:
    """A coordinator's state for PID during a transaction with the partition."""
    known = Transaction(
        name="x",
        state="Ongoing",
        producer_id=PID,
        epoch=EPOCH,
        start_ms=NOW,
        timeout_ms=60_000,
        partitions=frozenset({PLACE}),
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def looks(watcher: Watcher, times: int = 4, at: int = NOW) -> list[Report]:
    return [finding for _ in range(times) for finding in watcher.poll(at)]


def found(watcher: Watcher, times: int = 4, at: int = NOW) -> list[tuple[str, int | None]]:
    return [(finding.rule, finding.offset) for finding in looks(watcher, times, at)]


def in_order(batches: list[Batch]) -> bool:
    """Whether no offset goes back; every leader returns batches in this order."""
    return all(a.last_offset < b.base_offset for a, b in pairwise(batches))


# --- rules over logs -------------------------------------------------------------------------------------------------


def test_the_rules_over_logs_agree_with_the_readable_rule_however_a_log_is_fetched(written: Written) -> None:
    rules = set()
    for seed in range(120):
        rng = random.Random(seed)
        rate, first = rng.choice((0, 0.1, 0.4)), rng.choice((0, 5))
        batches = faulty_log(seed, rng.randint(1, 60), rate, first, transactions=bool(seed % 2))
        if not in_order(batches):
            continue
        batches = [b._replace(last_offset=b.base_offset) if b.unsequenced else b for b in batches]  # as they are stored
        log = Log(start=batches[0].base_offset)
        for batch in batches:
            log.append(batch)
        written.logs, written.batches_a_fetch = {PLACE: log}, partial(rng.randint, 1, 9)
        expected = [
            (batch.base_offset, violation.rule, violation.evidence)
            for batch, violation in audit_log(batches)
            if violation.kind is Kind.VIOLATION
        ]
        reports = [each for each in looks(written.watcher(), times=80) if each.rule in LOG_RULES]
        assert [(report.offset, report.rule, report.evidence) for report in reports] == expected, f"seed {seed}"
        rules |= {rule for _, rule, _ in expected}
    assert rules == set(LOG_RULES) - {ORDER}


def test_a_watcher_that_continues_from_json_finds_the_rest(written: Written) -> None:
    for batch in next(filter(in_order, (faulty_log(seed, 60, 0.3) for seed in range(100)))):
        written.logs[PLACE].append(batch)
    written.batches_a_fetch = lambda: 7
    whole = looks(written.watcher(), times=30)
    parts: list[Report] = []
    state = None
    for _ in range(30):
        watcher = written.watcher()
        if state is not None:
            watcher.resume(state)
        parts += watcher.poll(NOW)
        state = watcher.to_json()
    assert parts == whole
    assert whole


HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def remembered(watcher: Watcher) -> set[int]:
    return set(watcher.partitions[PLACE].fold.log.producers)


def test_a_producer_is_forgotten_after_one_to_two_days_without_a_batch_as_its_leader_does(written: Written) -> None:
    log = written.logs[PLACE]
    for pid in (1, 2):
        log.append(Batch(0, log.end, log.end, pid, 0, 0, 0, unsequenced=False))
    watcher = written.watcher()
    for hours in range(0, 25, 6):
        assert not hours or remembered(watcher) == {1, 2}
        if hours == 18:
            log.append(Batch(0, 2, 2, 2, 0, 1, 1, unsequenced=False))
        assert not looks(watcher, 1, NOW + hours * HOUR_MS)
    assert remembered(watcher) == {2}
    log.append(Batch(0, 3, 3, 1, 0, 5, 5, unsequenced=False))  # a leader accepts any sequence of a producer it forgot
    log.append(Batch(0, 4, 4, 2, 0, 1, 1, unsequenced=False))
    assert found(watcher, 1, NOW + 47 * HOUR_MS) == [("duplicate", 4)]
    assert not looks(watcher, 1, NOW + 48 * HOUR_MS)
    assert remembered(watcher) == {1, 2}, "both wrote an hour ago"
    assert not looks(watcher, 1, NOW + 72 * HOUR_MS)
    assert remembered(watcher) == set()


def test_a_producer_stays_while_its_transaction_is_open_or_there_is_more_to_read(written: Written) -> None:
    log = written.logs[PLACE]
    log.data(PID, EPOCH, 0)
    log.append(Batch(0, 1, 1, 1, 0, 0, 0, unsequenced=False))
    watcher = written.watcher(hanging_after_ms=1e12, lag_after_ms=1e12)
    for day in range(4):
        watcher.poll(NOW + day * DAY_MS)
    assert remembered(watcher) == {PID}
    log.append(Batch(0, 2, 2, 1, 0, 0, 0, unsequenced=False))
    watcher.poll(NOW + 4 * DAY_MS)
    log.marker(PID, EPOCH + 1)
    log.append(Batch(0, 4, 4, 2, 0, 0, 0, unsequenced=False))
    written.batches_a_fetch = lambda: 1
    watcher.poll(NOW + 9 * DAY_MS)  # reads the marker, and not what is after it
    assert remembered(watcher) == {PID, 1}
    watcher.poll(NOW + 9 * DAY_MS)
    assert remembered(watcher) == {PID, 2}


def test_who_is_idle_survives_a_restart_and_a_clock_that_is_set_back(written: Written) -> None:
    written.logs[PLACE].append(Batch(0, 0, 0, 1, 0, 0, 0, unsequenced=False))
    first = written.watcher()
    first.poll(NOW)
    kept = json.loads(json.dumps(first.to_json()))
    second = written.watcher()
    second.resume(kept)
    second.poll(NOW + DAY_MS - 1)
    assert remembered(second) == {1}
    second.poll(NOW - DAY_MS)
    assert remembered(second) == {1}, "the day begins anew"
    second.poll(NOW)
    assert remembered(second) == set()
    another = written.watcher()
    another.resume(kept)
    another.poll(NOW + DAY_MS)
    assert remembered(another) == set()
    for name in ("idle", "looked_through_ms"):  # which a checkpoint of an earlier version does not have
        del kept["partitions"][0][name]
    third = written.watcher()
    third.resume(kept)
    third.poll(NOW + 5 * DAY_MS)
    assert remembered(third) == {1}


def test_a_producer_that_need_not_be_remembered_is_forgotten_in_the_next_look(written: Written) -> None:
    written.logs[PLACE].append(Batch(0, 0, 0, 1, 0, 0, 0, unsequenced=False))
    watcher = written.watcher(forget_after_ms=0)
    watcher.poll(NOW)
    assert remembered(watcher) == {1}
    watcher.poll(NOW)
    assert remembered(watcher) == set()


def test_a_batch_with_a_wrong_crc_is_reported_and_reading_goes_on_after_it(written: Written) -> None:
    log = written.logs[PLACE]
    for sequence in range(3):
        log.append(Batch(0, sequence, sequence, PID, 0, sequence, sequence, unsequenced=False))
    offset, data = log.batches[1]
    log.batches[1] = (offset, data[:-1] + bytes([data[-1] ^ 1]))
    watcher = written.watcher()
    assert found(watcher) == [(CORRUPT, 1)]
    log.append(Batch(0, 3, 3, PID, 0, 0, 0, unsequenced=False))
    assert found(watcher) == [("duplicate", 3)]


def test_what_follows_a_corrupt_batch_up_to_the_high_watermark_is_not_read(written: Written) -> None:
    log = written.logs[PLACE]
    for at, sequence in enumerate((0, 1, 2, 0)):  # the last one is a duplicate
        log.append(Batch(0, at, at, PID, 0, sequence, sequence, unsequenced=False))
    offset, data = log.batches[1]
    log.batches[1] = (offset, data[:-1] + bytes([data[-1] ^ 1]))
    [report] = looks(written.watcher())
    assert (report.rule, report.offset) == (CORRUPT, 1)
    assert report.evidence.endswith("offsets up to 4 are not read")


def test_what_a_leader_gives_once_more_is_said_once_and_passed_over(written: Written) -> None:
    batches = [build_batch([Record(value=b"v")], base_offset=offset, producer_id=PID) for offset in (0, 1, 1)]
    records = b"".join(batch.encode() for batch in batches)
    state = PartitionState(topic="orders", partition=0, high_watermark=4)
    assert [report.rule for report in state.take(records, NOW).reports] == [ORDER]
    assert (state.position, state.drained) == (2, False)
    [report] = state.take(records[len(batches[0].encode()) :], NOW).reports
    assert (report.rule, report.offset) == (CORRUPT, 2)
    why = "the leader gives nothing but offsets up to 1 where 2 was asked for; offsets up to 4 are not read"
    assert report.evidence == why
    assert (state.position, state.drained) == (4, True)


@pytest.mark.parametrize("position", [6, 7])
def test_what_cannot_be_read_at_the_high_watermark_is_passed_over_by_one_offset(position: int) -> None:
    records = build_batch([Record(value=b"v")], base_offset=5, producer_id=PID).encode()
    state = PartitionState(topic="orders", partition=0, position=position, high_watermark=position)
    assert [report.rule for report in state.take(records, NOW).reports] == [CORRUPT]
    assert (state.position, state.drained) == (position + 1, True)


def test_a_state_of_an_earlier_version_has_looked_through_no_producers() -> None:
    row = PartitionState(topic="orders", partition=0).to_json()
    old = {name: value for name, value in row.items() if name not in {"looked_through_ms", "idle", "leader_epoch"}}
    assert partition_from_json(old).to_json() == row


def test_a_time_stamp_of_this_moment_is_one_and_offsets_that_go_back_have_none() -> None:
    stamped = [
        build_batch(
            [Record(value=b"v")],
            base_offset=offset,
            base_timestamp=NOW,
            producer_id=pid,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ).encode()
        for offset, pid in ((5, 1), (3, 2))
    ]
    for records, clock in ((stamped[0], Clock.PRODUCER), (b"".join(stamped), Clock.WATCHER)):
        state = PartitionState(topic="orders", partition=0, high_watermark=6)
        state.take(records, NOW)
        assert state.open[1].since == Since(ms=NOW, clock=clock)


def test_a_large_batch_that_is_cut_off_is_not_corrupt() -> None:
    batch = build_batch([Record(value=bytes(9 << 20))])
    state = PartitionState(topic="orders", partition=0, high_watermark=1)
    taken = state.take(batch.encode()[:1_000], NOW)
    assert (taken.batches, list(taken.reports)) == (0, [])


@pytest.mark.parametrize("size", range(8))
def test_an_answer_that_ends_within_a_later_batch_tells_of_nothing_corrupt_wherever_it_ends(size: int) -> None:
    first = build_batch([Record(value=bytes(size))]).encode()
    both = first + replace(build_batch([Record(value=b"v")]), base_offset=1).encode()
    for end in range(len(first), len(both)):
        state = PartitionState(topic="orders", partition=0, high_watermark=2)
        taken = state.take(both[:end], NOW)
        assert (taken.batches, state.position, list(taken.reports)) == (1, 1, [])


@pytest.mark.parametrize(
    ("length", "is_corrupt"), [(SMALLEST_LENGTH - 1, True), (SMALLEST_LENGTH, False), (2**31 - 1, False), (-1, True)]
)
def test_only_a_length_that_a_batch_can_have_promises_more_bytes(length: int, is_corrupt: bool) -> None:
    state = PartitionState(topic="orders", partition=0, high_watermark=1)
    taken = state.take(bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(4), NOW)
    assert [(report.rule, report.offset) for report in taken.reports] == ([(CORRUPT, 0)] if is_corrupt else [])


def test_a_watcher_waits_for_more_only_when_it_has_read_everything(written: Written) -> None:
    for sequence in range(3):
        written.logs[PLACE].data(PID, EPOCH, sequence)
    written.batches_a_fetch = lambda: 1
    looks(written.watcher(hanging_after_ms=60_000), times=4)
    assert written.waits == [0, 0, 0, WAIT_MS]


# --- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "no coordinator tells of a transactional id with this producer"),
        ({PID: ongoing(partitions=frozenset())}, "'x' Ongoing with producer 7 epoch 3, will not end it"),
        (
            {PID: ongoing(state="CompleteAbort", epoch=4, partitions=frozenset())},
            "it has aborted the transaction of epoch 3",
        ),
        (
            {PID: ongoing(state="CompleteCommit", epoch=4, partitions=frozenset())},
            "it has committed the transaction of epoch 3",
        ),
        ({PID: ongoing(state="CompleteCommit", epoch=5, partitions=frozenset())}, "epoch 3 is fenced"),
        ({PID: ongoing(epoch=4)}, "epoch 3 is fenced, its data came late or their marker was left out"),
    ],
)
def test_open_data_that_no_coordinator_will_end_hang(
    known: dict[int, Transaction], said: str, written: Written
) -> None:
    written.known = known
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    [report] = looks(written.watcher())
    assert (report.rule, report.offset, report.producer_id, report.producer_epoch) == (HANGING, 0, PID, EPOCH)
    assert said in report.evidence


@pytest.mark.parametrize(
    "known",
    [ongoing(), ongoing(state="PrepareCommit"), ongoing(state="PrepareAbort", epoch=EPOCH + 1), None],
    ids=["ongoing", "being committed", "being fenced", "no answer"],
)
def test_data_that_a_coordinator_will_end_or_does_not_report_on_do_not_hang(
    known: Transaction | None, written: Written
) -> None:
    written.known = None if known is None else {PID: known}
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    assert found(written.watcher()) == []
    assert written.asked


def test_a_transaction_that_ends_between_the_question_and_the_next_look_does_not_hang(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing(partitions=frozenset())}
    watcher = written.watcher()
    assert watcher.poll(NOW) == []
    assert written.asked == 1
    log.marker(PID, EPOCH)
    log.stable = None
    assert found(watcher) == []


def test_a_suspect_that_ends_while_another_transaction_holds_readers_back_does_not_hang(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(8, 0, 0)
    log.data(PID, EPOCH, 0)
    written.known = {8: ongoing(name="y", producer_id=8, epoch=0), PID: ongoing(partitions=frozenset())}
    watcher = written.watcher()
    assert watcher.poll(NOW) == []
    log.marker(PID, EPOCH)
    assert found(watcher) == []


def test_each_suspect_is_asked_about_in_each_look(written: Written) -> None:
    for pid in (1, 2, 3):
        written.logs["orders", pid] = log = Log()
        log.data(pid, 0, 0)
        log.stable = 0
    watcher = written.watcher()
    assert [len(found(watcher, times=1)) for _ in range(5)] in ([0, 0, 3, 0, 0], [0, 3, 0, 0, 0])


def test_a_transaction_whose_coordinator_was_moving_at_first_does_not_hang(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher()
    assert watcher.poll(NOW) == []
    written.known = {PID: ongoing()}
    assert found(watcher) == []
    written.known = {}
    assert found(watcher, times=2) == []
    assert found(watcher, times=1) == [(HANGING, 0)]


def test_no_broker_is_asked_while_a_coordinators_partition_has_no_leader(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.logs["__transaction_state", 3] = Log()
    written.leaders = {("__transaction_state", 3): -1}
    watcher = written.watcher()
    assert found(watcher) == []
    assert written.asked == 0
    written.leaders.clear()
    assert found(watcher, at=NOW + 10_000) == [(HANGING, 0)]


def test_broker_0_leads_coordinators_partitions_like_any_other(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.logs["__transaction_state", 3] = Log()
    written.leader = 0
    assert found(written.watcher()) == [(HANGING, 0)]


def test_a_transaction_whose_epoch_the_coordinator_raises_before_it_aborts_does_not_hang(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing(epoch=EPOCH + 1)}  # Kafka writes that it aborts, and sends no marker before
    watcher = written.watcher()
    assert watcher.poll(NOW) == []
    written.known = {PID: ongoing(epoch=EPOCH + 1, state="PrepareAbort")}
    assert found(watcher) == []


def test_a_coordinator_without_the_partition_is_asked_once_and_otherwise_all_are_asked_twice(
    written: Written,
) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    for known, times in (({PID: ongoing(partitions=frozenset())}, 1), ({PID: ongoing(epoch=EPOCH + 1)}, 2), ({}, 2)):
        written.known, written.asked = known, 0
        watcher = written.watcher(lag_after_ms=0)
        while not (reports := watcher.poll(NOW)):
            pass
        assert [report.rule for report in reports] == [HANGING]
        assert written.asked == times, "and not about what is advised already"


def test_only_data_of_an_earlier_epoch_are_called_late(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing(partitions=frozenset())}
    [report] = looks(written.watcher())
    assert "late" not in report.evidence


def test_data_that_hold_no_reader_back_do_not_hang(written: Written) -> None:
    log = written.logs[PLACE]
    log.data(PID, EPOCH, 0)
    log.stable = None  # the leader has ended the transaction by a marker that retention has removed
    assert found(written.watcher()) == []
    assert written.asked


def test_a_partition_for_which_an_answer_had_no_room_is_asked_for_first(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [("orders", number) for number in range(3)]
    written.logs = {place: Log() for place in places}
    for log in written.logs.values():
        log.append(Batch(0, 0, 0, PID, 0, 0, 0, unsequenced=False))
    asked: list[list[Place]] = []

    def only_the_first_has_room(node: int, positions: dict[Place, int], wait_ms: int) -> dict[Place, Fetched]:
        asked.append(list(positions))
        answers = Written.fetch(written, node, positions, wait_ms)
        return {place: replace(answers[place], records=b"") if n else answers[place] for n, place in enumerate(answers)}

    monkeypatch.setattr(written, "fetch", only_the_first_has_room)
    watcher = written.watcher()
    looks(watcher, times=3)
    assert [first for first, *_ in asked] == places
    assert watcher.batches == 3


def test_a_transaction_whose_marker_is_still_to_be_read_does_not_hang(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing(partitions=frozenset())}
    watcher = written.watcher()
    assert watcher.poll(NOW) == []
    for sequence in range(3):
        log.data(PID, EPOCH, sequence + 1)
    log.marker(PID, EPOCH)
    log.stable = None
    written.batches_a_fetch = lambda: 1
    assert found(watcher, times=8) == []


def test_the_coordinator_is_not_asked_about_young_transactions(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher(hanging_after_ms=10_000)
    assert found(watcher) == []
    assert found(watcher, at=NOW - 1) == [], "the clock was set back"
    assert written.asked == 0
    assert found(watcher, at=NOW + 10_000) == [(HANGING, 0)]


def test_the_coordinators_are_asked_every_so_many_milliseconds(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing()}
    watcher = written.watcher(check_ms=2_000)
    asked = []
    for ms in (0, 1, 1_999, 2_000, 4_001):
        watcher.poll(NOW - 1 + ms)
        asked.append(written.asked)
    assert asked == [1, 1, 1, 2, 3]


def test_a_transaction_that_a_broker_calls_old_is_no_suspect_before_it_was_seen_for_long_enough(
    written: Written,
) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0, stamp_ms=NOW - 3_600_000, by_broker=True)
    watcher = written.watcher(hanging_after_ms=10_000)
    assert found(watcher) == [(LAGS, 0)]
    assert found(watcher, at=NOW + 9_999) == []
    assert found(watcher, at=NOW + 10_000) == [(HANGING, 0)]


def test_data_of_a_later_epoch_in_an_open_transaction_make_it_hang(written: Written) -> None:
    log = written.logs[PLACE]
    log.data(PID, EPOCH, 0)
    log.stable = log.data(PID, EPOCH + 1, 0) - 1
    written.known = {PID: ongoing(epoch=EPOCH + 1)}
    assert found(written.watcher()) == [(HANGING, 0)]


@pytest.mark.parametrize("hanging_after_ms", [0, 3_600_000], ids=["asked about before", "not asked about before"])
def test_the_coordinator_is_asked_about_a_transaction_when_data_of_a_later_epoch_come(
    hanging_after_ms: int, written: Written
) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing()}
    watcher = written.watcher(hanging_after_ms=hanging_after_ms)
    assert found(watcher) == []
    log.data(PID, EPOCH + 1, 0)
    written.known = {PID: ongoing(epoch=EPOCH + 1)}
    [report] = looks(watcher)
    assert (report.rule, report.transactional_id, report.state) == (HANGING, "x", "Ongoing")


def test_the_producer_that_holds_back_the_last_stable_offset_is_reported_once_by_name(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    log.data(8, 0, 0)
    written.known = {PID: ongoing(), 8: ongoing(name="y", producer_id=8, epoch=0)}
    watcher = written.watcher(lag_after_ms=60_000)
    assert found(watcher, at=NOW + 59_999) == []
    [report] = looks(watcher, at=NOW + 60_999)
    assert (report.rule, report.offset, report.producer_id) == (LAGS, 0, PID)
    said = "2 offsets up to 2 are held back for 60 s by 'x' Ongoing with producer 7 epoch 3, timeout 60000 ms"
    assert report.evidence == said
    log.marker(PID, EPOCH)
    log.stable = 1
    over, following = looks(watcher, at=NOW + 120_000)
    assert [(each.rule, each.offset) for each in (over, following)] == [(RESOLVED, 0), (LAGS, 1)], (
        "the next one holds it"
    )
    assert following.evidence.startswith("2 offsets up to 3 are held back for 120 s by 'y' Ongoing")


def test_readers_that_wait_for_a_hanging_transaction_are_no_second_report(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher(hanging_after_ms=10_000, lag_after_ms=60_000)
    assert found(watcher, at=NOW) == []
    [report] = looks(watcher, at=NOW + 10_000)
    assert (report.rule, [each.offsets for each in report.blocked]) == (HANGING, [1])
    assert found(watcher, at=NOW + 60_000, times=4) == []
    assert len(watcher.unresolved) == 1


def test_readers_that_wait_are_reported_if_a_suspect_is_neither_read_nor_reported(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher(lag_after_ms=0)
    watcher.poll(NOW)
    written.errors[PLACE] = ErrorCode.KAFKA_STORAGE_ERROR
    assert found(watcher, at=NOW + 60_000, times=6) == [(LAGS, 0)]


def test_readers_may_be_let_wait_for_less_time_than_a_transaction_needs_to_hang(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher(hanging_after_ms=10_000, lag_after_ms=2_000)
    assert found(watcher, at=NOW) == []
    assert written.asked == 0
    [lags] = looks(watcher, at=NOW + 2_000)
    assert (lags.rule, lags.follows) == (LAGS, "")
    assert found(watcher, at=NOW + 9_999) == []
    [hangs] = looks(watcher, at=NOW + 10_000)
    assert hangs.rule == HANGING
    assert hangs.follows == identity(lags)


def test_the_reports_of_one_transaction_name_the_first_of_them_also_after_a_restart(written: Written) -> None:
    other = written.logs["orders", 1] = Log()
    late = written.logs["orders", 2] = Log()
    for log in (written.logs[PLACE], other):
        log.data(8, 0, 0)
        log.marker(8, 0)
        log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing(partitions=frozenset({PLACE, ("orders", 1)}))}
    first = written.watcher(lag_after_ms=0)
    lags, second = looks(first)
    assert (lags.partition, second.partition) == (0, 1)
    assert (lags.follows, second.follows) == ("", identity(lags))
    written.known = {}
    watcher = written.watcher(lag_after_ms=0)
    watcher.resume(json.loads(json.dumps(first.to_json())))
    written.logs[PLACE].marker(PID, EPOCH, COMMIT)
    written.logs[PLACE].stable = None
    [over, hangs] = looks(watcher, at=NOW + 1_000)
    assert (over.rule, over.resolves, over.follows) == (RESOLVED, identity(lags), "")
    assert (over.transactional_id, over.decision) == ("x", "committed")
    assert (hangs.rule, hangs.follows, hangs.transactional_id) == (HANGING, identity(lags), "x")
    late.stable = late.data(PID, EPOCH, 0)
    [again] = looks(watcher, at=NOW + 2_000)
    assert (again.rule, again.partition, again.follows) == (HANGING, 2, identity(lags)), "the first is over by now"
    other.marker(PID, EPOCH, ABORT)
    other.stable = None
    ends = looks(watcher, at=NOW + 3_000)
    assert [(each.follows, each.decision) for each in ends] == [(identity(lags), "aborted")] * 2


def test_a_transaction_that_is_over_before_it_is_reported_follows_no_other(written: Written) -> None:
    log = written.logs[PLACE]
    log.data(PID, EPOCH, 0)
    log.data(PID, EPOCH + 1, 0)
    log.marker(PID, EPOCH + 1)
    hangs, over = looks(written.watcher())
    assert (hangs.rule, hangs.follows, over.rule, over.follows) == (HANGING, "", RESOLVED, "")


def test_a_restart_does_not_repeat_the_report_of_an_open_transaction(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    first = written.watcher(lag_after_ms=0)
    assert found(first) == [(HANGING, 0)]
    second = written.watcher(lag_after_ms=0)
    second.resume(first.to_json())
    assert found(second) == []


def test_a_restart_does_not_repeat_that_readers_wait_for_an_open_transaction(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing()}
    first = written.watcher(lag_after_ms=0)
    assert found(first) == [(LAGS, 0)]
    second = written.watcher(lag_after_ms=0)
    second.resume(first.to_json())
    assert found(second) == []


def ended(written: Written, marker_epoch: int, *decisions: ControlType, epoch: int = EPOCH) -> None:
    """Write a transaction of PID with data and a marker on one partition per decision."""
    for number, decision in enumerate(decisions):
        log = written.logs.setdefault(("orders", number), Log())
        log.data(PID, epoch, 0)
        log.marker(PID, marker_epoch, decision)


def test_a_transaction_that_is_committed_here_and_aborted_there_is_torn_once(written: Written) -> None:
    ended(written, EPOCH + 1, COMMIT, COMMIT)
    watcher = written.watcher()
    assert found(watcher) == []
    ended(written, EPOCH + 2, COMMIT, ABORT, COMMIT, epoch=EPOCH + 1)
    [report] = looks(watcher, at=NOW + 10_000)
    assert (report.rule, report.partition, report.offset) == (TORN, 1, 3)
    assert (report.producer_id, report.producer_epoch) == (PID, EPOCH + 2)
    assert report.evidence == "the transaction of this epoch: ABORT here, COMMIT at orders-0 offset 3"
    assert report.decision == "aborted"
    written.logs["orders", 3] = Log()
    written.logs["orders", 3].data(PID, EPOCH + 1, 0)
    written.logs["orders", 3].marker(PID, EPOCH + 2, ABORT)
    assert found(watcher, at=NOW + 20_000) == []


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_an_abort_by_hand_within_a_transaction_that_is_committed_tears_it(
    later: bool, elsewhere: bool, is_restarted: bool, written: Written
) -> None:
    ended(written, EPOCH + 1, COMMIT)
    log, other = written.logs[PLACE], written.logs.setdefault(("orders", 1), Log())
    log.data(PID, EPOCH + 1, 0)
    log.marker(PID, EPOCH + 1, ABORT)
    watcher = written.watcher()
    assert found(watcher) == []
    if is_restarted:
        kept, watcher = watcher.to_json(), written.watcher()
        watcher.resume(json.loads(json.dumps(kept)))
    if later:
        log.data(PID, EPOCH + 1, 1)
    if elsewhere:
        other.data(PID, EPOCH + 1, 0)
    log.marker(PID, EPOCH + 2, COMMIT)
    other.marker(PID, EPOCH + 2, COMMIT)
    [report] = looks(watcher, at=NOW + 10_000)
    assert (report.rule, report.producer_epoch, report.decision) == (TORN, EPOCH + 2, "committed")
    evidence = "the transaction of this epoch: COMMIT here, ABORT at orders-0 offset 3; the ABORT is by hand"
    assert report.evidence == evidence
    assert found(watcher, at=NOW + 20_000) == []


def test_an_abort_by_hand_after_the_commit_of_another_partition_tears_the_transaction(written: Written) -> None:
    ended(written, EPOCH + 1, COMMIT, COMMIT)
    ended(written, EPOCH + 2, COMMIT, epoch=EPOCH + 1)
    hung = written.logs["orders", 1]
    hung.data(PID, EPOCH + 1, 0)
    hung.marker(PID, EPOCH + 1, ABORT)
    [report] = looks(written.watcher())
    evidence = "the transaction of this epoch: ABORT here, COMMIT at orders-0 offset 3; the ABORT is by hand"
    assert report.evidence == evidence


@pytest.mark.parametrize("before", [[], [EPOCH]], ids=["the first transaction", "one of version 1"])
def test_an_abort_with_the_epoch_of_its_data_may_be_of_version_1(before: list[int], written: Written) -> None:
    """A client of version 1 goes on in version 2 with the epoch that it has."""
    log = written.logs[PLACE]
    for epoch in before:
        log.data(PID, epoch, 0)
        log.marker(PID, epoch, COMMIT)
    log.data(PID, EPOCH, len(before))
    log.marker(PID, EPOCH, ABORT)
    log.data(PID, EPOCH, len(before) + 1)
    log.marker(PID, EPOCH + 1, COMMIT)
    assert found(written.watcher()) == []


def test_an_abort_by_hand_of_what_is_aborted_tears_nothing(written: Written) -> None:
    ended(written, EPOCH + 1, COMMIT)
    log = written.logs[PLACE]
    log.data(PID, EPOCH + 1, 0)
    log.marker(PID, EPOCH + 1, ABORT)
    log.data(PID, EPOCH + 1, 1)
    log.marker(PID, EPOCH + 2, ABORT)
    assert found(written.watcher()) == []


def test_an_epoch_of_version_1_names_no_transaction(written: Written) -> None:
    ended(written, EPOCH, COMMIT, ABORT)
    assert found(written.watcher()) == []


@pytest.mark.parametrize(("decision", "other_decision"), [(COMMIT, ABORT), (ABORT, COMMIT)])
def test_a_marker_that_ends_nothing_tears_nothing(
    decision: ControlType, other_decision: ControlType, written: Written
) -> None:
    ended(written, EPOCH + 1, decision)
    other = written.logs["orders", 1] = Log()
    other.marker(PID, EPOCH + 1, other_decision)
    assert found(written.watcher()) == []


def test_a_torn_transaction_is_also_found_across_a_restart(written: Written) -> None:
    ended(written, EPOCH + 1, COMMIT)
    first = written.watcher()
    assert found(first) == []
    second = written.watcher()
    second.resume(json.loads(json.dumps(first.to_json())))
    late = written.logs["orders", 1] = Log()
    late.data(PID, EPOCH, 0)
    late.marker(PID, EPOCH + 1, ABORT)
    assert found(second, at=NOW + 10_000) == [(TORN, 1)]


@pytest.mark.parametrize("decision", [COMMIT, ABORT])
def test_a_restart_does_not_repeat_that_a_transaction_is_torn(written: Written, decision: ControlType) -> None:
    ended(written, EPOCH + 1, COMMIT, ABORT)
    first = written.watcher()
    assert found(first) == [(TORN, 1)]
    second = written.watcher()
    second.resume(json.loads(json.dumps(first.to_json())))
    late = written.logs["orders", 2] = Log()
    late.data(PID, EPOCH, 0)
    late.marker(PID, EPOCH + 1, decision)
    assert found(second, at=NOW + 10_000) == []


def transactions(log: Log, pid: int, *decisions: ControlType) -> None:
    """Write transactions of version 2, with data and a marker each, from epoch 0 on."""
    for epoch, decision in enumerate(decisions):
        log.data(pid, epoch, 0)
        log.marker(pid, epoch + 1, decision)


def test_torn_transactions_are_found_however_far_apart_their_partitions_are_read(written: Written) -> None:
    written.logs["orders", 1] = Log()
    transactions(written.logs[PLACE], PID, *[COMMIT] * 40)
    transactions(written.logs["orders", 1], PID, COMMIT, ABORT, *[COMMIT] * 37, ABORT)
    reports = looks(written.watcher())
    assert [(report.rule, report.producer_epoch) for report in reports] == [(TORN, 2), (TORN, 40)]


def test_ends_of_transactions_wait_for_a_partition_that_is_read_slowly(written: Written) -> None:
    slow = written.logs["orders", 1] = Log()
    transactions(written.logs[PLACE], PID, *[COMMIT] * 10)
    transactions(slow, 9, *[COMMIT] * 60)
    transactions(slow, PID, ABORT)
    written.batches_a_fetch = lambda: 20
    assert found(written.watcher(), times=10) == [(TORN, 121)]


def test_the_memory_of_producers_and_their_transactions_is_bounded(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_eos_checks.watch.endings.MOST_PRODUCERS", 2)
    for pid in (1, 2, 1, 3):
        transactions(written.logs[PLACE], pid, *[COMMIT] * 5)
    watcher = written.watcher()
    looks(watcher)
    kept = {pid: sorted(ends) for pid, ends in watcher.endings.ends.items()}
    assert kept == {1: [3, 4, 5], 3: [3, 4, 5]}


def test_the_watcher_says_that_it_forgets_ends_of_transactions_before_all_partitions_are_read(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_eos_checks.watch.endings.MOST_ENDS", 8)
    transactions(written.logs[PLACE], PID, *[COMMIT] * 20)
    told: list[str] = []
    watcher = written.watcher(told)
    watcher.poll(NOW)
    assert len(watcher.endings.ends[PID]) <= 8
    [line] = told
    assert line.endswith("audit the log directories to find these")


# --- the text of reports ----------------------------------------------------------------------------------------------


def test_a_hanging_transactions_report_has_start_extent_producer_and_remedy(
    written: Written,
) -> None:
    log, other = written.logs[PLACE], written.logs.setdefault(("orders", 1), Log())
    log.data(9, 0, 0)
    log.marker(9, 0)
    log.stable = log.data(PID, EPOCH, 0)
    log.data(8, 0, 0)
    other.stable = other.data(PID, EPOCH, 0)
    written.known = {
        PID: ongoing(partitions=frozenset({("orders", 1)})),
        8: ongoing(name="y", producer_id=8, epoch=0),
    }
    tools = Tools(bootstrap="broker-1:9092,broker-2:9092", command_config="my client.properties")
    [report] = looks(written.watcher(tools=tools, lag_after_ms=3_600_000))
    assert (report.rule, report.partition, report.offset) == (HANGING, 0, 2)
    assert report.since == Since(ms=STAMP_MS, clock=Clock.PRODUCER)
    assert [each.in_words() for each in report.blocked] == [
        "2 offsets of orders-0 (2 to 3)",
        "1 offset of orders-1 (0 to 0)",
    ]
    assert (report.transactional_id, report.state, report.ends, report.ends_ms) == ("x", "Ongoing", Ends.NEVER, None)
    assert report.command == (
        "kafka-transactions --bootstrap-server=broker-1:9092,broker-2:9092 '--command-config=my client.properties' "
        "abort --topic=orders --partition=0 --start-offset=2"
    )


@pytest.mark.parametrize(
    ("state", "epoch", "said", "command"),
    [
        ("CompleteCommit", EPOCH + 1, "Do not abort it before its records are kept: ", "kafka-console-consumer"),
        ("CompleteAbort", EPOCH + 1, "Abort it in this partition, too", "kafka-transactions"),
        ("PrepareCommit", EPOCH + 1, "Do not abort it before its records are kept: ", "kafka-console-consumer"),
        ("CompleteCommit", EPOCH, "Look first whether its coordinator has committed it", "kafka-transactions"),
        ("CompleteCommit", EPOCH + 2, "Look first whether its coordinator has committed it", "kafka-transactions"),
        ("Empty", EPOCH + 1, "Look first whether its coordinator has committed it", "kafka-transactions"),
    ],
)
def test_what_its_coordinator_has_committed_is_not_to_be_aborted_at_once(
    state: str, epoch: int, said: str, command: str, written: Written
) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    log.data(8, 0, 0)
    log.marker(8, 0)
    written.known = {PID: ongoing(state=state, epoch=epoch, partitions=frozenset())}
    [report] = looks(written.watcher(lag_after_ms=3_600_000))
    assert report.next.startswith(f"{STOP} {said}")
    assert report.decision == {"Do not": "committed", "Abort ": "aborted"}.get(said[:6], "")
    assert report.command.startswith(f"{command} --bootstrap-server=HOST:PORT ")
    assert report.command.endswith(" --start-offset=0" if command == "kafka-transactions" else "print.key=true")
    records = " --topic=orders --partition=0 --offset=0 --isolation-level=read_uncommitted --max-messages=3 "
    assert (records in report.command) == ("consumer" in command)


def test_the_start_offset_is_the_leaders_for_the_producer(written: Written) -> None:
    log = written.logs[PLACE]
    log.data(PID, EPOCH, 0)
    log.stable = log.data(PID, EPOCH + 1, 0) - 1
    written.started = {PID: 0}
    first, second = (
        looks(written.watcher(lag_after_ms=3_600_000), times=1) + looks(written.watcher(lag_after_ms=0))[-1:]
    )
    assert (first.offset, first.command[-16:]) == (0, "--start-offset=0")
    assert (second.rule, second.command[-16:]) == (HANGING, "--start-offset=0")


def test_a_leader_that_does_not_tell_the_start_of_a_transaction_leaves_the_offset_that_was_read(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object) -> None:
        raise NoAnswer("late")

    written.logs[PLACE].data(PID, EPOCH, 0)
    written.logs[PLACE].stable = 0
    monkeypatch.setattr(written, "open_transactions", late)
    [report] = looks(written.watcher())
    assert (report.rule, report.command[-16:]) == (HANGING, "--start-offset=0")


def test_offsets_of_which_a_new_leader_does_not_know_yet_that_readers_may_see_them_are_not_held_back(
    written: Written,
) -> None:
    log, other = written.logs[PLACE], written.logs.setdefault(("orders", 1), Log())
    other.append(Batch(0, 0, 0, 9, 0, 0, 0, unsequenced=False))
    log.stable, other.stable = log.data(PID, EPOCH, 0), other.data(PID, EPOCH, 0)
    written.known = {PID: ongoing(partitions=frozenset({PLACE, ("orders", 1)}))}
    watcher = written.watcher()
    assert found(watcher) == []
    other.stable = other.watermark = 0
    written.known = {PID: ongoing(partitions=frozenset({("orders", 1)}))}
    [report] = looks(watcher)
    assert [each.in_words() for each in report.blocked] == ["1 offset of orders-0 (0 to 0)"]


def test_no_coordinator_is_asked_about_a_batch_without_a_producer(written: Written) -> None:
    log = written.logs[PLACE]
    for leader_epoch in (1, 0):
        batch = replace(build_batch([Record(value=b"v")], base_offset=log.end), partition_leader_epoch=leader_epoch)
        log.batches.append((log.end, batch.encode()))
        log.end += 1
    assert found(written.watcher()) == [(LEADER_BACK, 1)]
    assert written.asked == 0


def test_a_violation_of_producer_0_is_named_like_any_other(written: Written) -> None:
    written.known = {0: ongoing(producer_id=0)}
    for offset in range(2):
        written.logs[PLACE].append(Batch(0, offset, offset, 0, EPOCH, 0, 0, unsequenced=False))
    assert [(report.rule, report.transactional_id) for report in looks(written.watcher())] == [("duplicate", "x")]


def test_as_many_names_are_kept_as_are_allowed_and_the_oldest_goes(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_eos_checks.watch.watcher.MOST_NAMES", 2)
    watcher = written.watcher()
    kept = []
    for pid in (1, 2, 3):
        watcher._transactions_of({pid}, NOW)
        kept.append(sorted(watcher._names))
    assert kept == [[1], [1, 2], [2, 3]]


def test_a_producer_unknown_to_coordinators_may_be_one_that_the_client_may_not_describe(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    [report] = looks(written.watcher())
    assert report.next.startswith(f"{STOP} Make sure that this client may describe all transactional ids")
    assert " abort " in report.command
    assert report.transactional_id == ""


@pytest.mark.parametrize(
    ("known", "ends", "ends_ms", "command"),
    [
        (
            ongoing(name="it's"),
            Ends.BY_ITSELF,
            NOW + 60_000,
            """forceTerminateTransaction '--transactionalId=it'"'"'s'""",
        ),
        (ongoing(state="PrepareCommit"), Ends.BY_ITSELF, None, "--describe --unavailable-partitions"),
        (None, Ends.UNKNOWN, None, "describe-producers --topic=orders --partition=0"),
    ],
    ids=["open", "decided", "no answer"],
)
def test_a_report_on_blocked_readers_says_whether_and_when_it_ends_by_itself(
    known: Transaction | None, ends: Ends, ends_ms: int | None, command: str, written: Written
) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = None if known is None else {PID: known}
    watcher = written.watcher(lag_after_ms=30_000)
    assert found(watcher) == []
    [report] = looks(watcher, at=NOW + 30_000)
    assert (report.rule, report.ends, report.ends_ms) == (LAGS, ends, ends_ms)
    assert report.command.endswith(command)
    assert report.next.startswith(
        {None: "The coordinators do not tell", "Ongoing": "Wait"}.get(known and known.state, "It is decided")
    )
    assert [(each.first, each.end) for each in report.blocked] == [(0, 1)]
    assert report.decision == ("committed" if known is not None and known.state == "PrepareCommit" else "")


def test_a_report_on_a_decided_transaction_names_the_broker_to_restart_if_no_marker_comes(written: Written) -> None:
    """Kafka's coordinator may forget to send markers: finding fence-aborts-next."""
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing(state="PrepareAbort")}
    [report] = looks(written.watcher(lag_after_ms=0))
    assert "restart the broker that leads its partition of __transaction_state" in report.next


@pytest.mark.parametrize("stamp_ms", [-1, 0, NOW + 1])
def test_a_transaction_began_when_its_coordinator_says_or_when_it_was_seen(stamp_ms: int, written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0, stamp_ms=stamp_ms)
    written.known = {PID: ongoing(start_ms=NOW - 90_000, timeout_ms=600_000)}
    [lag] = looks(written.watcher())
    assert lag.since == Since(ms=NOW - 90_000, clock=Clock.COORDINATOR)
    written.known = {}
    reports = looks(written.watcher(lag_after_ms=0))
    assert [report.since for report in reports] == [Since(ms=NOW, clock=Clock.WATCHER)]


@pytest.mark.parametrize("start_ms", [-1, 0])
def test_a_producers_clock_makes_no_transaction_old_and_the_brokers_does(start_ms: int, written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0, stamp_ms=NOW - 3_600_000)
    written.known = {PID: ongoing(start_ms=start_ms)}
    assert found(written.watcher()) == []
    log.batches.clear()
    log.end = 0
    log.stable = log.data(PID, EPOCH, 0, stamp_ms=NOW - 3_600_000, by_broker=True)
    [report] = looks(written.watcher())
    assert report.since == Since(ms=NOW - 3_600_000, clock=Clock.BROKER)


def test_a_violation_in_a_log_names_its_producers_transactional_id_and_the_remedy(written: Written) -> None:
    log = written.logs[PLACE]
    for _ in range(2):
        log.data(PID, EPOCH, 0)
    log.marker(PID, EPOCH)
    written.known = {PID: ongoing(state="Empty", partitions=frozenset())}
    watcher = written.watcher()
    [report] = looks(watcher)
    assert (report.rule, report.transactional_id, report.blocked) == ("duplicate", "x", ())
    assert report.since == Since(ms=STAMP_MS, clock=Clock.PRODUCER)
    assert report.command.endswith("describe-producers --topic=orders --partition=0")
    log.data(PID, EPOCH, 0)
    log.marker(PID, EPOCH)
    assert found(watcher) == [("duplicate", 3)]
    assert written.asked == 1, "the name is remembered"


def test_every_rule_has_a_remedy() -> None:
    assert set(WORDS) == {*LOG_RULES, TORN, CUT, CORRUPT}
    assert all(len(words) > 60 for words in WORDS.values())


def test_the_command_about_a_log_shows_its_producers_or_its_replicas() -> None:
    by_producer = {DUPLICATE, GAP, OUTSIDE, STALE_EPOCH}
    for rule in WORDS:
        command = "" if rule == TORN else "describe-producers" if rule in by_producer else "--describe"
        assert command in Tools().about(rule, "orders", 0)
        assert bool(command) == bool(Tools().about(rule, "orders", 0))
        assert WORDS[rule].endswith("list` names the transactional id of each.") == (rule in by_producer)


# --- resolved reports -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (COMMIT, "committed by the marker at offset 1; readers of committed data are given its records"),
        (ABORT, "aborted by the marker at offset 1"),
    ],
)
def test_a_hanging_transaction_that_has_ended_is_resolved_once(
    decision: ControlType, said: str, written: Written
) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher(hanging_after_ms=10_000, lag_after_ms=0)
    reports = [*looks(watcher), *looks(watcher, at=NOW + 10_000)]
    assert [report.rule for report in reports] == [LAGS, HANGING]
    assert len(watcher.unresolved) == 2
    log.marker(PID, EPOCH, decision)
    log.stable = None
    over = looks(watcher, at=NOW + 65_000)
    assert [report.rule for report in over] == [RESOLVED, RESOLVED]
    assert {report.resolves for report in over} == {identity(report) for report in reports}
    assert {report.evidence for report in over} == {
        f"{rule}, reported {ago} ago: {said}" for rule, ago in ((HANGING, "55 s"), (LAGS, "1 min 5 s"))
    }
    assert watcher.unresolved == []
    assert found(watcher, at=NOW + 70_000) == []


def test_an_unreported_violation_is_not_resolved(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = {PID: ongoing()}
    watcher = written.watcher()
    assert found(watcher) == []
    log.marker(PID, EPOCH)
    log.stable = None
    assert found(watcher) == []


def test_a_report_from_before_a_restart_is_resolved_after_it(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    first = written.watcher()
    assert found(first) == [(HANGING, 0)]
    log.marker(PID, EPOCH)
    log.stable = None
    second = written.watcher()
    second.resume(json.loads(json.dumps(first.to_json())))
    assert found(second) == [(RESOLVED, 0)]
    third = written.watcher()
    third.resume(json.loads(json.dumps(second.to_json())))
    assert found(third) == []


def test_a_checkpoint_without_names_of_reports_and_without_what_is_not_seen_is_continued_from(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    first = written.watcher()
    assert found(first) == [(HANGING, 0)]
    kept = json.loads(json.dumps(first.to_json()))
    del kept["blind"]
    kept["partitions"][0]["reported"][0] = kept["partitions"][0]["reported"][0][:5]
    second = written.watcher()
    second.resume(kept)
    log.marker(PID, EPOCH)
    log.stable = None
    assert found(second) == [(RESOLVED, 0)]


def test_after_a_restart_the_coordinators_are_not_asked_about_a_log_that_is_not_read_yet(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    first = written.watcher(hanging_after_ms=1)
    assert found(first) == []
    written.errors[PLACE] = ErrorCode.KAFKA_STORAGE_ERROR
    second = written.watcher()
    second.resume(json.loads(json.dumps(first.to_json())))
    assert found(second) == []
    assert written.asked == 0, "a marker may be behind what the first watcher has read"


def test_a_transaction_that_hangs_behind_another_one_is_not_over(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    log.data(8, 0, 0)
    watcher = written.watcher()
    assert found(watcher) == [(HANGING, 0), (HANGING, 1)]
    assert len(watcher.unresolved) == 2


def test_a_transaction_whose_marker_nobody_read_is_resolved_by_the_last_stable_offset(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher()
    assert found(watcher) == [(HANGING, 0)]
    log.batches, log.start, log.end, log.stable = [], 50, 50, None
    [report] = looks(watcher)
    assert report.rule == RESOLVED
    assert report.evidence.endswith("the last stable offset is 50 now; the marker was not read")


def test_a_marker_that_is_still_to_be_read_tells_how_the_transaction_ended(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher()
    assert found(watcher) == [(HANGING, 0)]
    for sequence in range(3):
        log.data(PID, EPOCH, sequence + 1)
    log.marker(PID, EPOCH)
    log.stable = None
    written.batches_a_fetch = lambda: 1
    [report] = looks(watcher, times=8)
    assert report.evidence.endswith("aborted by the marker at offset 4")


def test_a_batch_that_cannot_be_read_resolves_nothing(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher()
    assert found(watcher) == [(HANGING, 0)]
    log.data(8, 0, 0)
    offset, data = log.batches[1]
    log.batches[1] = (offset, data[:-1] + bytes([data[-1] ^ 1]))
    assert found(watcher) == [(CORRUPT, 1)]
    assert len(watcher.unresolved) == 1
    log.marker(PID, EPOCH)
    log.stable = None
    assert found(watcher) == [(RESOLVED, 0)]


@pytest.mark.parametrize(("cut", "said"), [(True, "the log was cut before it"), (False, "its topic was deleted")])
def test_a_transaction_whose_log_or_topic_was_deleted_is_resolved(cut: bool, said: str, written: Written) -> None:
    log = written.logs[PLACE]
    log.append(Batch(0, 0, 0, 9, 0, 0, 0, unsequenced=False))
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher()
    assert found(watcher) == [(HANGING, 1)]
    if cut:
        log.batches, log.end, log.stable = log.batches[:1], 1, None
    else:
        del written.logs[PLACE]
    over = [report for report in looks(watcher, at=NOW + 10_000) if report.rule == RESOLVED]
    assert [(report.offset, report.evidence.rpartition(": ")[2]) for report in over] == [(1, said)]


def test_a_transaction_in_a_part_of_a_log_that_was_cut_is_resolved(written: Written) -> None:
    log = written.logs[PLACE]
    log.append(Batch(0, 0, 0, 1, 0, 0, 0, unsequenced=False))
    log.append(Batch(0, 1, 1, 1, 0, 1, 1, unsequenced=False))
    log.data(PID, EPOCH, 0)
    log.stable = 2
    watcher = written.watcher()
    assert found(watcher) == [(HANGING, 2)]
    log.batches, log.end, log.stable = log.batches[:1], 1, None
    assert found(watcher) == [(CUT, 1), (RESOLVED, 2)]


def test_a_transaction_stays_open_while_nothing_can_be_told_of_its_topic(written: Written) -> None:
    log = written.logs[PLACE]
    log.data(PID, EPOCH, 0)
    log.stable = 0
    watcher = written.watcher()
    assert found(watcher) == [(HANGING, 0)]
    written.unsure = {"orders"}
    assert found(watcher, at=NOW + REFRESH_MS) == []
    assert watcher.partitions[PLACE].position == 1
    written.unsure = set()
    assert found(watcher, at=NOW + 2 * REFRESH_MS) == [], "it is not read again"


def test_a_hanging_transaction_is_not_reported_again_when_data_of_a_later_epoch_come(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher()
    assert found(watcher) == [(HANGING, 0)]
    log.data(PID, EPOCH + 1, 0)
    written.known = {PID: ongoing(epoch=EPOCH + 1)}
    assert found(watcher) == []
    log.marker(PID, EPOCH + 1)
    log.stable = None
    assert found(watcher) == [(RESOLVED, 0)]


# --- what happens to partitions --------------------------------------------------------------------------------------


def test_by_default_a_watcher_starts_at_the_last_stable_offset_or_a_new_partitions_start(
    written: Written,
) -> None:
    log = written.logs[PLACE]
    for sequence in (0, 0, 1):  # a duplicate from before the watcher's start
        log.append(Batch(0, log.end, log.end, 9, 0, sequence, sequence, unsequenced=False))
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher(from_start=False)
    assert found(watcher) == [(HANGING, 3)]
    young = written.logs["payments", 0] = Log()
    for _ in range(2):
        young.append(Batch(0, young.end, young.end, 9, 0, 0, 0, unsequenced=False))
    assert found(watcher, at=NOW + 10_000) == [("duplicate", 1)]


def twice(log: Log) -> None:
    for _ in range(2):
        log.append(Batch(0, log.end, log.end, 9, 0, 0, 0, unsequenced=False))


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_partition_that_comes_to_a_cluster_without_any_is_read_from_its_start(
    is_resumed: bool, written: Written
) -> None:
    written.logs.clear()
    watcher = written.watcher(from_start=False)
    assert found(watcher) == []
    if is_resumed:
        kept, watcher = watcher.to_json(), written.watcher(from_start=False)
        watcher.resume(kept)
    twice(written.logs.setdefault(PLACE, Log()))
    assert found(watcher, at=NOW + REFRESH_MS) == [("duplicate", 1)]


def test_a_partition_that_was_there_at_first_without_a_leader_is_no_new_one_to_the_next_watcher(
    written: Written,
) -> None:
    twice(written.logs[PLACE])
    written.leaders[PLACE] = -1
    watcher = written.watcher(from_start=False)
    assert found(watcher) == []
    kept, watcher = json.loads(json.dumps(watcher.to_json())), written.watcher(from_start=False)
    watcher.resume(kept)
    written.leaders.clear()
    assert found(watcher, at=NOW + REFRESH_MS) == []
    assert watcher.partitions[PLACE].position == 2
    twice(written.logs.setdefault(("payments", 0), Log()))
    assert found(watcher, at=NOW + 2 * REFRESH_MS) == [("duplicate", 1)]


@pytest.mark.parametrize("others", [(), (("payments", 0),)])
def test_a_topic_that_was_there_at_first_and_is_made_again_is_read_from_its_start(
    others: tuple[Place, ...], written: Written
) -> None:
    written.logs |= {place: Log() for place in others}
    twice(written.logs[PLACE])
    watcher = written.watcher(from_start=False)
    assert found(watcher) == []
    del written.logs[PLACE]
    assert found(watcher, at=NOW + REFRESH_MS) == []
    twice(written.logs.setdefault(PLACE, Log()))
    assert found(watcher, at=NOW + 2 * REFRESH_MS) == [("duplicate", 1)]


def test_a_log_that_ends_before_the_read_position_was_truncated(written: Written) -> None:
    log = written.logs[PLACE]
    for sequence in range(5):
        log.append(Batch(0, sequence, sequence, 9, 0, sequence, sequence, unsequenced=False))
    watcher = written.watcher()
    assert found(watcher) == []
    log.batches, log.end = log.batches[:3], 3
    [cut] = looks(watcher)
    assert (cut.rule, cut.offset) == (CUT, 3)
    assert cut.evidence == "offset 4 was read before, and now the log ends here"
    log.append(Batch(0, 3, 3, 9, 0, 3, 3, unsequenced=False))
    assert found(watcher) == []


def test_records_that_were_deleted_before_reading_are_reported_and_are_no_violation(written: Written) -> None:
    log = written.logs[PLACE]
    log.data(PID, EPOCH, 0)
    told: list[str] = []
    watcher = written.watcher(told)
    written.known = {PID: ongoing()}
    assert found(watcher) == []
    log.batches, log.start, log.end = [], 50, 50
    log.append(Batch(0, 50, 50, 9, 0, 20, 20, unsequenced=False))
    written.known = {}
    assert found(watcher) == []
    assert told == ["orders-0: offsets 1 to 49 were deleted before they were read"]


def test_all_offsets_that_were_deleted_before_reading_are_counted(written: Written) -> None:
    written.logs["payments", 0] = Log()
    watcher = written.watcher()
    assert found(watcher) == []
    for log, start in zip(written.logs.values(), (50, 7), strict=True):
        log.start = log.end = start
    assert found(watcher) == []
    assert watcher.deleted == 57


@pytest.mark.parametrize("another", ["a", "z"])
def test_a_topic_that_was_deleted_and_created_again_starts_again(another: str, written: Written) -> None:
    written.logs[PLACE].append(Batch(0, 0, 0, 9, 5, 0, 0, unsequenced=False))
    watcher = written.watcher()
    assert found(watcher) == []
    written.topic_id, written.logs[PLACE] = another, Log()
    for offset in range(2):
        written.logs[PLACE].append(Batch(0, offset, offset, 9, 0, 0, 0, unsequenced=False))
    assert found(watcher, at=NOW + 10_000) == [("duplicate", 1)], "epoch 0 is not stale in the new topic"


@pytest.mark.parametrize("untold", [EARLIEST, LATEST])
def test_a_leader_that_tells_only_one_end_of_its_log_is_asked_again(untold: int, written: Written) -> None:
    log = written.logs[PLACE]
    for sequence in range(5):
        log.append(Batch(0, sequence, sequence, 9, 0, sequence, sequence, unsequenced=False))
    watcher = written.watcher()
    assert found(watcher) == []
    log.batches, log.end, written.untold = log.batches[:3], 3, {untold}
    assert found(watcher) == []
    assert set(watcher.unread) == {PLACE}
    written.untold.clear()
    assert found(watcher, at=NOW + FIRST_MS) == [(CUT, 3)]


def test_a_partition_that_the_leader_leaves_out_of_its_answer_is_not_read(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.logs["payments", 0] = Log()
    fetch = written.fetch

    def without_orders(node: int, positions: dict[Place, int], wait_ms: int) -> dict[Place, Fetched]:
        return {place: answer for place, answer in fetch(node, positions, wait_ms).items() if place != PLACE}

    monkeypatch.setattr(written, "fetch", without_orders)
    told: list[str] = []
    watcher = written.watcher(told)
    watcher.poll(NOW)
    assert told == ["orders-0 is not read: the leader leaves it out of its answer; asked again in 1 s"]
    assert set(watcher.unread) == {PLACE}


def test_an_unreadable_partition_is_reported_and_the_others_are_read(written: Written) -> None:
    other = written.logs["payments", 0] = Log()
    for _ in range(2):
        other.append(Batch(0, other.end, other.end, 9, 0, 0, 0, unsequenced=False))
    written.errors[PLACE] = ErrorCode.KAFKA_STORAGE_ERROR
    told: list[str] = []
    watcher = written.watcher(told)
    assert found(watcher) == [("duplicate", 1)]
    assert told == ["orders-0 is not read: the leader tells no offset; asked again in 1 s"]
    assert watcher.drained
    assert set(watcher.unread) == {PLACE}
    written.errors.clear()
    written.logs[PLACE].stable = written.logs[PLACE].data(PID, EPOCH, 0)
    assert found(watcher, at=NOW + FIRST_MS) == [(HANGING, 0)]
    written.errors[PLACE] = ErrorCode.KAFKA_STORAGE_ERROR
    watcher.poll(NOW + FIRST_MS)
    assert told[1:] == [
        "orders-0 is read again, after 1 s",
        "orders-0 is not read: KAFKA_STORAGE_ERROR; asked again in 1 s",
    ]


def test_partitions_that_wait_for_different_times_are_told_of_with_their_own(written: Written) -> None:
    written.logs |= {("orders", 1): Log(), ("payments", 0): Log()}
    told: list[str] = []
    watcher = written.watcher(told)
    watcher.poll(NOW)
    written.errors = dict.fromkeys([PLACE, ("orders", 1)], ErrorCode.KAFKA_STORAGE_ERROR)
    watcher.poll(NOW)
    written.errors["payments", 0] = ErrorCode.KAFKA_STORAGE_ERROR
    watcher.poll(NOW + FIRST_MS)
    assert told == [
        "orders-0, orders-1 are not read: KAFKA_STORAGE_ERROR; asked again in 1 s",
        "orders-0, orders-1 are not read: KAFKA_STORAGE_ERROR; asked again in 2 s",
        "payments-0 is not read: KAFKA_STORAGE_ERROR; asked again in 1 s",
    ]


def test_a_partition_that_was_not_read_stays_so_while_nothing_can_be_told_of_its_topic(written: Written) -> None:
    watcher = written.watcher()
    written.errors[PLACE] = ErrorCode.KAFKA_STORAGE_ERROR
    watcher.poll(NOW)
    written.unsure = {"orders"}
    watcher.poll(NOW + FIRST_MS)
    assert set(watcher.unread) == {PLACE}
    written.unsure.clear()
    written.logs = {("payments", 0): Log()}
    watcher.poll(NOW + 2 * FIRST_MS)
    assert set(watcher.unread) == set(), "the topic is gone"


def test_the_watcher_waits_neither_for_a_missing_leader_nor_for_a_missing_broker(written: Written) -> None:
    written.leaders = {PLACE: -1}
    told: list[str] = []
    watcher = written.watcher(told)
    assert found(watcher) == []
    assert (watcher.drained, set(watcher.unread)) == (True, {PLACE})
    written.leaders.clear()
    written.logs[PLACE].stable = written.logs[PLACE].data(PID, EPOCH, 0)
    written.gone = {written.leader}
    assert found(watcher, at=NOW + FIRST_MS) == []
    assert (watcher.drained, set(watcher.unread)) == (True, {PLACE})
    written.gone.clear()
    assert found(watcher, at=NOW + 3 * FIRST_MS) == [(HANGING, 0)]
    assert told == [
        "orders-0 is not read: no leader; asked again in 1 s",
        "orders-0 is not read: nobody there; asked again in 2 s",
        "orders-0 is read again, after 3 s",
    ]


def test_a_broker_that_does_not_answer_keeps_no_other_one_from_being_read(written: Written) -> None:
    other = written.logs["payments", 0] = Log()

    def is_read(offset: int, at: int) -> bool:
        other.append(Batch(0, offset, offset, 9, 0, 0, 0, unsequenced=False))
        return found(watcher, 1, at) == ([("duplicate", offset)] if offset else [])

    watcher = written.watcher()
    written.leaders, written.gone = {PLACE: 2}, {2}
    assert is_read(0, NOW), "it did not answer when the watcher began"
    assert watcher.batches == 1
    written.gone.clear()
    assert is_read(1, NOW + FIRST_MS)
    assert written.waits[-2:] == [WAIT_MS // 2] * 2, "one after the other"
    written.gone = {2}
    assert is_read(2, NOW + 2 * FIRST_MS)
    assert set(watcher.unread) == {PLACE}
    assert is_read(3, NOW + 2 * FIRST_MS), "it is not asked yet"


def test_topics_and_leaders_are_looked_up_every_ten_seconds_and_after_each_wait(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[int] = []

    def topics() -> Topics:
        lookups.append(ms)
        return Written.topics(written)

    monkeypatch.setattr(written, "topics", topics)
    watcher = written.watcher()
    for ms in (0, 1, 9_999, 10_000, 10_001, 20_500):
        watcher.poll(NOW + ms)
    assert lookups == [0, 10_000, 20_500]
    written.errors[PLACE] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for ms in (21_000, 21_001, 21_999, 22_000):
        watcher.poll(NOW + ms)
    assert lookups[3:] == [22_000], "another broker may lead what is asked for again"


def test_an_unreachable_broker_is_asked_less_and_less_often_with_a_message_each_time(written: Written) -> None:
    written.logs |= {("orders", number): Log() for number in range(1, 6)}
    told: list[str] = []
    watcher = written.watcher(told)
    assert found(watcher) == []
    written.gone = {written.leader}
    asked = []
    for second in range(300):
        before = len(written.waits)
        watcher.poll(NOW + 1000 * second)
        asked += [second] * (len(written.waits) - before)
    assert asked == [0, 1, 3, *range(7, 300, 5)], "and a broker that has restarted is read within five seconds"
    where = "orders-0, orders-1, orders-2 and 3 more are not read: nobody there; asked again"
    assert told == [f"{where} {often}" for often in ("in 1 s", "in 2 s", "in 4 s", "every 5 s")]
    written.gone.clear()
    watcher.poll(NOW + 302_000)
    assert told[4:] == ["orders-0, orders-1, orders-2 and 3 more are read again, after 5 min 2 s"]


def test_a_broker_that_is_waited_for_in_vain_is_asked_less_often_so_that_others_are_read(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = [0.0]
    monkeypatch.setattr("kafka_eos_checks.watch.watcher.time.monotonic", lambda: moment[0])

    def in_vain(*_: object) -> None:
        moment[0] += 4
        raise NoAnswer("nobody there")

    told: list[str] = []
    watcher = written.watcher(told)
    assert found(watcher) == []
    monkeypatch.setattr(written, "fetch", in_vain)
    attempts = []
    for second in range(60):
        before = moment[0]
        watcher.poll(NOW + 1000 * second)
        attempts += [second] if moment[0] > before else []
    assert attempts == [0, 5, 11, 19, 31, 47], "the wait begins when the attempt has ended"
    assert told[-1].endswith("nobody there; asked again every 12 s")


def test_a_partition_with_a_new_leader_is_read_as_soon_as_the_leader_is_known(written: Written) -> None:
    watcher = written.watcher()
    assert found(watcher) == []
    written.errors[PLACE] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for second in range(23):
        watcher.poll(NOW + 1000 * second)
    assert watcher.unread[PLACE].until_ms == NOW + 27_000
    written.errors.clear()
    written.leader = 0
    watcher._refreshed_ms = NOW + 15_000
    watcher.poll(NOW + 25_000)  # the leaders are looked up every ten seconds
    assert watcher.unread == {}


def test_coordinators_that_do_not_answer_are_asked_less_and_less_often(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.known = None
    told: list[str] = []
    watcher = written.watcher(told, lag_after_ms=3_600_000)
    for second in range(60):
        watcher.poll(NOW + 1000 * second)
    assert written.asked == 14  # at 0, 1, 3, 7, 12, … 57
    written.known = {}
    assert found(watcher, at=NOW + 62_000, times=3) == [(HANGING, 0)]
    line = "the coordinators do not tell of transactions now; asked again"
    assert told == [
        *(f"{line} {often}" for often in ("in 1 s", "in 2 s", "in 4 s", "every 5 s")),
        "the coordinators tell of transactions again, after 1 min 2 s",
    ]


def test_only_the_given_topics_are_read(written: Written) -> None:
    log = written.logs[PLACE]
    for _ in range(2):
        log.append(Batch(0, log.end, log.end, 9, 0, 0, 0, unsequenced=False))
    told: list[str] = []
    assert found(written.watcher(told, topics=frozenset({"payments"}))) == []
    assert told == ["topic payments is not there, or may not be described"]
    assert found(written.watcher(topics=frozenset({"orders"}))) == [("duplicate", 1)]


def test_partitions_of_a_checkpoint_that_are_not_asked_for_stay_as_they_are_and_unjudged(
    written: Written,
) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    first = written.watcher(hanging_after_ms=3_600_000)
    assert found(first) == []
    kept = first.to_json()
    other = written.logs["payments", 0] = Log()
    other.data(PID + 1, EPOCH, 0)
    other.marker(PID + 1, EPOCH)
    second = written.watcher(topics=frozenset({"payments"}), hanging_after_ms=3_600_000)
    second.resume(kept)
    assert found(second, at=NOW + 120_000, times=3) == [], "nobody looked whether the transaction in orders-0 has ended"
    assert list(second.watched) == [("payments", 0)]
    assert second.to_json()["partitions"][0] == kept["partitions"][0]
    third = written.watcher(hanging_after_ms=3_600_000)
    third.resume(second.to_json())
    assert found(third, at=NOW + 120_000, times=3) == [(LAGS, 0)]


def test_a_checkpoint_of_another_cluster_is_refused(written: Written) -> None:
    watcher = written.watcher()
    watcher.poll(NOW)
    written.cluster_id = "another"
    resumed = written.watcher()
    resumed.resume(watcher.to_json())
    with pytest.raises(AnotherCluster, match="is of cluster cluster, and this is another"):
        resumed.poll(NOW)


def test_a_failure_is_told_again_only_for_a_new_reason_once_the_wait_is_the_longest() -> None:
    back_off = BackOff()
    assert [back_off.failed(0, "gone") for _ in range(6)] == [True] * 4 + [False] * 2
    assert back_off.failed(0, "refused")
    assert not back_off.failed(0, "gone")
