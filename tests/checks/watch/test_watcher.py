"""What a watcher reports of a cluster, and what it does not."""

import json
import random
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.record_batch import ControlType
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.rules import LOG_RULES, ORDER, Batch, audit_log
from kafka_eos_checks.replay.synthetic import faulty_log
from kafka_eos_checks.replay.transactions import HANGING, TORN
from kafka_eos_checks.watch.cluster import Transaction
from kafka_eos_checks.watch.state import CORRUPT, CUT, LAGS
from kafka_eos_checks.watch.watcher import RETRY_MS, AnotherCluster, Watcher

from .conftest import PLACE, Log, Written

NOW = 1_700_000_000_000
PID, EPOCH = 7, 3
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def ongoing(**changes: object) -> Transaction:
    """What a coordinator knows of PID while a transaction with the partition is under way."""
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


def looks(watcher: Watcher, times: int = 4, at: int = NOW) -> list[Finding]:
    return [finding for _ in range(times) for finding in watcher.poll(at)]


def found(watcher: Watcher, times: int = 4, at: int = NOW) -> list[tuple[str, int | None]]:
    return [(finding.rule, finding.offset) for finding in looks(watcher, times, at)]


def in_order(batches: list[Batch]) -> bool:
    """No leader gives offsets that go back."""
    return all(a.last_offset < b.base_offset for a, b in pairwise(batches))


# --- rules over logs -------------------------------------------------------------------------------------------------


def test_the_rules_over_logs_find_what_the_readable_rule_finds_however_the_log_comes(written: Written) -> None:
    rules = set()
    for seed in range(120):
        rng = random.Random(seed)
        batches = faulty_log(seed, rng.randint(1, 60), rng.choice((0, 0.1, 0.4)), rng.choice((0, 5)))
        if not in_order(batches):
            continue
        batches = [b._replace(last_offset=b.base_offset) if b.unsequenced else b for b in batches]  # as they are stored
        log = Log(start=batches[0].base_offset)
        for batch in batches:
            log.append(batch)
        written.logs, written.batches_a_fetch = {PLACE: log}, partial(rng.randint, 1, 9)
        expected = [(batch.base_offset, violation.rule, violation.evidence) for batch, violation in audit_log(batches)]
        reports = looks(written.watcher(), times=80)
        assert [(report.offset, report.rule, report.evidence) for report in reports] == expected, f"seed {seed}"
        rules |= {rule for _, rule, _ in expected}
    assert rules == set(LOG_RULES) - {ORDER}


def test_a_watcher_that_goes_on_from_json_finds_the_rest(written: Written) -> None:
    for batch in next(filter(in_order, (faulty_log(seed, 60, 0.3) for seed in range(100)))):
        written.logs[PLACE].append(batch)
    written.batches_a_fetch = lambda: 7
    whole = looks(written.watcher(), times=30)
    parts: list[Finding] = []
    state = None
    for _ in range(30):
        watcher = written.watcher()
        if state is not None:
            watcher.resume(state)
        parts += watcher.poll(NOW)
        state = watcher.to_json()
    assert parts == whole
    assert whole


def test_a_batch_with_a_wrong_crc_is_reported_and_what_follows_the_watermark_is_read(written: Written) -> None:
    log = written.logs[PLACE]
    for sequence in range(3):
        log.append(Batch(0, sequence, sequence, PID, 0, sequence, sequence, unsequenced=False))
    offset, data = log.batches[1]
    log.batches[1] = (offset, data[:-1] + bytes([data[-1] ^ 1]))
    watcher = written.watcher()
    assert found(watcher) == [(CORRUPT, 1)]
    log.append(Batch(0, 3, 3, PID, 0, 0, 0, unsequenced=False))
    assert found(watcher) == [("duplicate", 3)]


# --- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "no coordinator tells of a transactional id with this producer"),
        ({PID: ongoing(partitions=frozenset())}, "'x' Ongoing with producer 7 epoch 3, will not end it"),
        (
            {PID: ongoing(state="CompleteAbort", epoch=4, partitions=frozenset())},
            "epoch 3 is fenced, its data came late",
        ),
        ({PID: ongoing(epoch=4)}, "epoch 3 is fenced"),
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
def test_data_that_a_coordinator_will_end_or_says_nothing_of_do_not(
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


def test_nor_does_one_whose_coordinator_was_moving_when_it_was_asked_first(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher()
    assert watcher.poll(NOW) == []
    written.known = {PID: ongoing()}
    assert found(watcher) == []
    written.known = {}
    assert found(watcher, times=2) == []
    assert found(watcher, times=1) == [(HANGING, 0)]


def test_while_a_coordinator_has_no_leader_nobody_is_asked(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    written.logs["__transaction_state", 3] = Log()
    written.unled = {("__transaction_state", 3)}
    watcher = written.watcher()
    assert found(watcher) == []
    assert written.asked == 0
    written.unled.clear()
    assert found(watcher, at=NOW + 10_000) == [(HANGING, 0)]


def test_nor_does_one_whose_marker_is_still_to_be_read(written: Written) -> None:
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


def test_young_transactions_are_not_asked_about(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher(hanging_after_ms=10_000)
    assert found(watcher) == []
    assert written.asked == 0
    assert found(watcher, at=NOW + 10_000) == [(HANGING, 0)]


def test_data_of_a_later_epoch_in_an_open_transaction_make_it_hang(written: Written) -> None:
    log = written.logs[PLACE]
    log.data(PID, EPOCH, 0)
    log.stable = log.data(PID, EPOCH + 1, 0) - 1
    written.known = {PID: ongoing(epoch=EPOCH + 1)}
    assert found(written.watcher()) == [(HANGING, 0)]


def test_who_holds_the_last_stable_offset_back_is_told_once_and_by_name(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    log.data(8, 0, 0)
    written.known = {PID: ongoing(), 8: ongoing(name="y", producer_id=8, epoch=0)}
    watcher = written.watcher(lag_after_ms=60_000)
    assert found(watcher, at=NOW + 59_999) == []
    [report] = looks(watcher, at=NOW + 60_000)
    assert (report.rule, report.offset, report.producer_id) == (LAGS, 0, PID)
    said = "2 offsets up to 2 are held back for 60 s by 'x' Ongoing with producer 7 epoch 3, timeout 60000 ms"
    assert report.evidence == said
    log.marker(PID, EPOCH)
    log.stable = 1
    assert found(watcher, at=NOW + 120_000) == [(LAGS, 1)], "the next one holds it now"


def test_a_restart_does_not_repeat_what_was_told_of_an_open_transaction(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(PID, EPOCH, 0)
    first = written.watcher(lag_after_ms=0)
    assert sorted(found(first)) == sorted([(HANGING, 0), (LAGS, 0)])
    second = written.watcher(lag_after_ms=0)
    second.resume(first.to_json())
    assert found(second) == []


def ended(written: Written, marker_epoch: int, *decisions: ControlType, epoch: int = EPOCH) -> None:
    """A transaction of PID with data on as many partitions, each with a marker."""
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
    written.logs["orders", 3] = Log()
    written.logs["orders", 3].data(PID, EPOCH + 1, 0)
    written.logs["orders", 3].marker(PID, EPOCH + 2, ABORT)
    assert found(watcher, at=NOW + 20_000) == []


def test_an_epoch_of_version_1_names_no_transaction(written: Written) -> None:
    ended(written, EPOCH, COMMIT, ABORT)
    assert found(written.watcher()) == []


def test_a_marker_that_ends_nothing_tears_nothing(written: Written) -> None:
    ended(written, EPOCH + 1, COMMIT)
    other = written.logs["orders", 1] = Log()
    other.marker(PID, EPOCH + 1, ABORT)
    assert found(written.watcher()) == []


def test_a_transaction_is_torn_across_a_restart_too(written: Written) -> None:
    ended(written, EPOCH + 1, COMMIT)
    first = written.watcher()
    assert found(first) == []
    second = written.watcher()
    second.resume(json.loads(json.dumps(first.to_json())))
    late = written.logs["orders", 1] = Log()
    late.data(PID, EPOCH, 0)
    late.marker(PID, EPOCH + 1, ABORT)
    assert found(second, at=NOW + 10_000) == [(TORN, 1)]


def test_what_is_remembered_of_producers_and_their_transactions_is_bounded(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_eos_checks.watch.watcher.MOST_PRODUCERS", 2)
    log = written.logs[PLACE]
    for pid in (1, 2, 1, 3):
        for epoch in range(5):
            log.data(pid, epoch, 0)
            log.marker(pid, epoch + 1, COMMIT)
    watcher = written.watcher()
    watcher.poll(NOW)
    kept = {pid: sorted(epochs) for pid, epochs in watcher.decided.items()}
    assert kept == {1: [3, 4, 5], 3: [3, 4, 5]}


# --- what happens to partitions --------------------------------------------------------------------------------------


def test_without_a_wish_a_watcher_begins_at_the_last_stable_offset_and_new_partitions_at_their_start(
    written: Written,
) -> None:
    log = written.logs[PLACE]
    for sequence in (0, 0, 1):  # a duplicate, before the watcher came
        log.append(Batch(0, log.end, log.end, 9, 0, sequence, sequence, unsequenced=False))
    log.stable = log.data(PID, EPOCH, 0)
    watcher = written.watcher(from_start=False)
    assert found(watcher) == [(HANGING, 3)]
    young = written.logs["payments", 0] = Log()
    for _ in range(2):
        young.append(Batch(0, young.end, young.end, 9, 0, 0, 0, unsequenced=False))
    assert found(watcher, at=NOW + 10_000) == [("duplicate", 1)]


def test_a_log_that_ends_before_what_was_read_of_it_was_cut(written: Written) -> None:
    log = written.logs[PLACE]
    for sequence in range(5):
        log.append(Batch(0, sequence, sequence, 9, 0, sequence, sequence, unsequenced=False))
    watcher = written.watcher()
    assert found(watcher) == []
    log.batches, log.end = log.batches[:3], 3
    assert found(watcher) == [(CUT, 3)]
    log.append(Batch(0, 3, 3, 9, 0, 3, 3, unsequenced=False))
    assert found(watcher) == []


def test_what_was_deleted_before_it_was_read_is_told_and_is_no_violation(written: Written) -> None:
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


def test_a_topic_that_was_deleted_and_made_again_begins_anew(written: Written) -> None:
    written.logs[PLACE].append(Batch(0, 0, 0, 9, 5, 0, 0, unsequenced=False))
    watcher = written.watcher()
    assert found(watcher) == []
    written.topic_id, written.logs[PLACE] = "another", Log()
    written.logs[PLACE].append(Batch(0, 0, 0, 9, 0, 0, 0, unsequenced=False))
    assert found(watcher, at=NOW + 10_000) == []
    assert watcher.partitions[PLACE].position == 1


def test_a_partition_that_cannot_be_read_is_told_of_and_keeps_nobody_from_the_others(written: Written) -> None:
    other = written.logs["payments", 0] = Log()
    for _ in range(2):
        other.append(Batch(0, other.end, other.end, 9, 0, 0, 0, unsequenced=False))
    written.errors[PLACE] = ErrorCode.KAFKA_STORAGE_ERROR
    told: list[str] = []
    watcher = written.watcher(told)
    assert found(watcher) == [("duplicate", 1)]
    assert told == ["orders-0 is not read: KAFKA_STORAGE_ERROR"]
    assert watcher.drained
    assert set(watcher.unread) == {PLACE}
    written.errors.clear()
    written.logs[PLACE].stable = written.logs[PLACE].data(PID, EPOCH, 0)
    assert found(watcher, at=NOW + RETRY_MS) == [(HANGING, 0)]


def test_neither_a_partition_without_a_leader_nor_a_broker_that_is_gone_is_waited_for(written: Written) -> None:
    written.unled = {PLACE}
    told: list[str] = []
    watcher = written.watcher(told)
    assert found(watcher) == []
    assert (watcher.drained, set(watcher.unread), told) == (True, {PLACE}, ["orders-0 is not read: no leader"])
    written.unled.clear()
    written.logs[PLACE].stable = written.logs[PLACE].data(PID, EPOCH, 0)
    written.gone = True
    assert found(watcher, at=NOW + RETRY_MS) == []
    assert (watcher.drained, set(watcher.unread), told[1:]) == (True, {PLACE}, ["orders-0 is not read: nobody there"])
    written.gone = False
    assert found(watcher, at=NOW + 2 * RETRY_MS) == [(HANGING, 0)]


def test_only_the_topics_that_were_asked_for_are_read(written: Written) -> None:
    log = written.logs[PLACE]
    for _ in range(2):
        log.append(Batch(0, log.end, log.end, 9, 0, 0, 0, unsequenced=False))
    told: list[str] = []
    assert found(written.watcher(told, topics=frozenset({"payments"}))) == []
    assert told == ["topic payments is not there, or may not be described"]
    assert found(written.watcher(topics=frozenset({"orders"}))) == [("duplicate", 1)]


def test_a_checkpoint_of_another_cluster_is_refused(written: Written) -> None:
    watcher = written.watcher()
    watcher.poll(NOW)
    written.cluster_id = "another"
    resumed = written.watcher()
    resumed.resume(watcher.to_json())
    with pytest.raises(AnotherCluster, match="is of cluster cluster, and this is another"):
        resumed.poll(NOW)
