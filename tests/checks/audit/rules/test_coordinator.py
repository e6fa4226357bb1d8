"""Each rule over ``__transaction_state`` has a log that violates it and one on which it is silent."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos.formats.record_batch import ControlType, Record, build_batch
from kafka_eos.formats.transaction_log import (
    TOPIC,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import read_coordinator_log
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules import coordinator
from kafka_eos_checks.audit.rules.coordinator import (
    DECISION_CHANGED,
    ILLEGAL_TRANSITION,
    CoordinatorLog,
    follow_coordinator_log,
    wrong_step,
)
from kafka_eos_checks.audit.segments.splits import find_logs

from ..kept import as_kept

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
NOW = 1_700_000_000_000
IN_TRANSACTION = {ONGOING, PREPARE_COMMIT, PREPARE_ABORT}


def state(
    status: TransactionState,
    epoch: int = 0,
    *,
    version: int = 0,
    pid: int = 7,
    next_pid: int = -1,
    partitions: Iterable[int] | None = None,
) -> TransactionLogValue:
    """A state of a transaction with partition 0 of orders, unless ``partitions`` says otherwise."""
    ids = tuple(partitions if partitions is not None else [0] if status in IN_TRANSACTION else [])
    return TransactionLogValue(
        producer_id=pid,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=None
        if status is EMPTY and not ids
        else (TopicPartitions(topic="orders", partition_ids=ids),),
        transaction_last_update_timestamp_ms=NOW,
        transaction_start_timestamp_ms=-1 if status is EMPTY else NOW,
        next_producer_id=next_pid,
        client_transaction_version=version,
    )


def log_of(folder: Path, *values: TransactionLogValue | bytes | None, offsets: Iterable[int] = ()) -> CoordinatorLog:
    """A log of one transactional id, at these offsets or from 0 on."""
    key = TransactionLogKey(transactional_id="t").encode()
    at = list(offsets) or list(range(len(values)))
    records = [value.encode() if isinstance(value, TransactionLogValue) else value for value in values]
    batches = [build_batch([Record(key=key, value=v)], base_offset=o) for o, v in zip(at, records, strict=True)]
    path = folder / f"{TOPIC}-3"
    write_segment(path / f"{at[0]:020d}.log", [batch.encode() for batch in batches])
    [log] = find_logs(path)
    found = follow_coordinator_log(log)
    by_columns = read_coordinator_log(log)
    assert dict(by_columns.ids) == found.ids
    assert replace(by_columns, ids=found.ids, folded=None) == found
    as_kept(found.findings)
    return found


def rules(log: CoordinatorLog) -> list[tuple[str, int | None]]:
    return [(finding.rule, finding.offset) for finding in log.findings]


BEGUN = (state(EMPTY), state(ONGOING))
COMMITTED = (*BEGUN, state(PREPARE_COMMIT), state(COMPLETE_COMMIT))
BEGUN_2 = (state(EMPTY), state(ONGOING, version=2))
COMMITTED_2 = (*BEGUN_2, state(PREPARE_COMMIT, 1, version=2), state(COMPLETE_COMMIT, 1, version=2))
EXHAUSTED = (state(EMPTY, 32766), state(ONGOING, 32766, version=2))
ROTATING = (*EXHAUSTED, state(PREPARE_COMMIT, 32767, version=2, next_pid=8))

SHORTER, LATER = {"transaction_timeout_ms": 59_999}, {"transaction_start_timestamp_ms": NOW + 1}

LEGAL = {
    "a commit before version 2": COMMITTED,
    "the next transaction has the same epoch": (
        *COMMITTED,
        state(ONGOING),
        state(PREPARE_ABORT),
        state(COMPLETE_ABORT),
    ),
    "a commit of version 2": COMMITTED_2,
    "the next one of version 2 has the next epoch": (
        *COMMITTED_2,
        state(ONGOING, 1, version=2),
        state(PREPARE_ABORT, 2, version=2),
        state(COMPLETE_ABORT, 2, version=2),
    ),
    "partitions are added": (
        *BEGUN,
        state(ONGOING, partitions=[0, 1]),
        state(PREPARE_COMMIT, partitions=[0, 1]),
        state(COMPLETE_COMMIT),
    ),
    "a fenced client before version 2": (*BEGUN, state(PREPARE_ABORT, 1), state(COMPLETE_ABORT, 1), state(EMPTY, 2)),
    "an abort of nothing": (
        *COMMITTED_2,
        state(PREPARE_ABORT, 2, version=2, partitions=[]),
        state(COMPLETE_ABORT, 2, version=2),
    ),
    "a retried InitProducerId": (state(EMPTY), state(EMPTY), state(EMPTY, 1)),
    "forgotten and begun anew": (*COMMITTED, None, state(EMPTY, pid=8)),
    "the commit's append failed, then the transaction timed out": (
        *BEGUN,
        state(PREPARE_COMMIT),
        state(PREPARE_ABORT, 1),
        state(COMPLETE_ABORT, 1),
    ),
    "the commit's append failed, and it was tried again": (
        *BEGUN_2,
        state(PREPARE_COMMIT, 1, version=2),
        state(PREPARE_COMMIT, 1, version=2),
        state(COMPLETE_COMMIT, 1, version=2),
    ),
    "the last append was tried again": (*COMMITTED, state(COMPLETE_COMMIT), state(ONGOING)),
    "another timeout for the next instance": (*COMMITTED, replace(state(EMPTY, 1), **SHORTER)),
    "the previous producer id is written": (
        *BEGUN,
        *(replace(each, previous_producer_id=7) for each in COMMITTED[2:]),
        replace(state(EMPTY, 1), previous_producer_id=7),
    ),
    "the append of the first partition failed, and the transaction starts later": (
        *BEGUN,
        *(replace(each, **LATER, transaction_last_update_timestamp_ms=NOW + 1) for each in COMMITTED[1:]),
    ),
}

ILLEGAL = {
    "the first state": ((state(ONGOING),), 0),
    "the first epoch": ((state(EMPTY, 1),), 0),
    "a state that may not follow": ((*COMMITTED, state(PREPARE_COMMIT)), 4),
    "an abort of nothing before version 2": ((*COMMITTED, state(PREPARE_ABORT, 1, partitions=[])), 4),
    "a commit of nothing": ((*COMMITTED_2, state(PREPARE_COMMIT, 2, version=2, partitions=[])), 4),
    "an epoch raised by a commit before version 2": ((*BEGUN, state(PREPARE_COMMIT, 1)), 2),
    "an epoch not raised in version 2": ((*BEGUN_2, state(PREPARE_COMMIT, 0, version=2)), 2),
    "an epoch raised twice by an abort": ((*BEGUN, state(PREPARE_ABORT, 2)), 2),
    "an epoch raised by the completion": ((*COMMITTED_2[:3], state(COMPLETE_COMMIT, 2, version=2)), 3),
    "an epoch raised by new partitions": ((*BEGUN, state(ONGOING, 1)), 2),
    "an epoch that goes back": ((*COMMITTED_2, state(EMPTY, 0)), 4),
    "an epoch left out": ((state(EMPTY), state(EMPTY, 2)), 1),
    "a partition that is gone from the transaction": (
        (state(EMPTY), state(ONGOING, partitions=[0, 1]), state(PREPARE_COMMIT)),
        2,
    ),
    "a partition that is left after the completion": ((*COMMITTED[:3], state(COMPLETE_COMMIT, partitions=[0])), 3),
    "another producer id too early": ((state(EMPTY), state(EMPTY, pid=8)), 1),
    "another producer id in a transaction": ((*BEGUN, state(PREPARE_COMMIT, pid=8)), 2),
    "forgotten in a transaction": ((*COMMITTED[:3], None), 3),
    "a timeout that new partitions change": ((*BEGUN, replace(state(ONGOING), **SHORTER)), 2),
    "a timeout that the decision changes": ((*BEGUN, replace(state(PREPARE_COMMIT), **SHORTER)), 2),
    "a timeout that the completion changes": ((*COMMITTED[:3], replace(state(COMPLETE_COMMIT), **SHORTER)), 3),
    "a timeout that the next transaction changes": ((*COMMITTED, replace(state(ONGOING), **SHORTER)), 4),
    "a start that new partitions change": ((*BEGUN, replace(state(ONGOING), **LATER)), 2),
    "a start that the decision changes": ((*BEGUN, replace(state(PREPARE_COMMIT), **LATER)), 2),
    "a start that the completion changes": ((*COMMITTED[:3], replace(state(COMPLETE_COMMIT), **LATER)), 3),
    "a start that is not kept from the first partition": (
        (state(EMPTY), replace(state(ONGOING), transaction_last_update_timestamp_ms=NOW + 1)),
        1,
    ),
    "a partition in the first state": ((state(EMPTY, partitions=[0]),), 0),
    "a start without a transaction": ((replace(state(EMPTY), **LATER),), 0),
    "a start without a transaction after one": ((*COMMITTED, replace(state(EMPTY, 1), **LATER)), 4),
    "another previous producer id": ((*BEGUN, replace(state(PREPARE_COMMIT), previous_producer_id=8)), 2),
    "a next producer id after the end": ((*COMMITTED[:3], replace(state(COMPLETE_COMMIT), next_producer_id=8)), 3),
    "a next producer id in the first state": ((state(EMPTY, next_pid=8),), 0),
    "a next epoch after the end": ((*COMMITTED[:3], replace(state(COMPLETE_COMMIT), next_producer_epoch=0)), 3),
    "a second completion of the other kind": ((*COMMITTED, state(COMPLETE_ABORT)), 4),
}


@pytest.mark.parametrize("values", LEGAL.values(), ids=LEGAL.keys())
def test_a_legal_log_has_no_finding(values: tuple[TransactionLogValue | None, ...], tmp_path: Path) -> None:
    log = log_of(tmp_path, *values)
    assert (rules(log), log.unknown, log.whole) == ([], 0, True)


@pytest.mark.parametrize(("values", "offset"), ILLEGAL.values(), ids=ILLEGAL.keys())
def test_an_illegal_transition_is_found_once(
    values: tuple[TransactionLogValue | None, ...], offset: int, tmp_path: Path
) -> None:
    assert rules(log_of(tmp_path, *values)) == [(ILLEGAL_TRANSITION, offset)]


SAID = {
    "the first epoch": "EMPTY of producer 7 epoch 1 after nothing: the first state is not EMPTY at epoch 0",
    "an epoch raised twice by an abort": "PREPARE_ABORT of producer 7 epoch 2 after ONGOING of producer 7 epoch 0: "
    "expected epoch 0 or 1",
    "a timeout that the decision changes": "PREPARE_COMMIT of producer 7 epoch 0 after ONGOING of producer 7 epoch 0: "
    "expected a timeout of 60000 ms, not 59999 ms",
    "a start that new partitions change": "ONGOING of producer 7 epoch 0 after ONGOING of producer 7 epoch 0: "
    f"expected a start at {NOW} ms, not {NOW + 1} ms",
    "a start without a transaction": "EMPTY of producer 7 epoch 0 after nothing: "
    f"no transaction, and a start at {NOW + 1} ms",
    "another previous producer id": "PREPARE_COMMIT of producer 7 epoch 0 after ONGOING of producer 7 epoch 0: "
    "expected previous producer 7, not 8",
    "a next producer id after the end": "COMPLETE_COMMIT of producer 7 epoch 0 after PREPARE_COMMIT of producer 7 "
    "epoch 0: no transaction to end, and next producer 8 epoch -1",
}


def test_a_transition_is_told_with_both_states_and_what_was_expected(tmp_path: Path) -> None:
    for name, said in SAID.items():
        [finding] = log_of(tmp_path / name, *ILLEGAL[name][0]).findings
        assert finding.evidence == f"'t': {said}", name


@pytest.mark.parametrize(
    ("prepared", "completed"), [(PREPARE_COMMIT, COMPLETE_ABORT), (PREPARE_ABORT, COMPLETE_COMMIT)]
)
def test_a_decision_that_changed_is_found_and_the_fold_goes_on_from_there(
    prepared: TransactionState, completed: TransactionState, tmp_path: Path
) -> None:
    log = log_of(tmp_path, *BEGUN, state(prepared), state(completed), state(ONGOING))
    assert rules(log) == [(DECISION_CHANGED, 3)]
    [finding] = log.findings
    assert f"'t': {completed.name} of producer 7 epoch 0 after {prepared.name}" in finding.evidence
    assert (finding.topic, finding.partition, finding.producer_id, finding.producer_epoch) == (TOPIC, 3, 7, 0)


def test_a_completion_after_that_of_the_other_decision_does_not_tell_when_the_markers_were_written(
    tmp_path: Path,
) -> None:
    log = log_of(tmp_path, *BEGUN, state(PREPARE_COMMIT), state(COMPLETE_ABORT), state(COMPLETE_COMMIT))
    [told] = log.ids["t"].transactions
    assert (told.completed, told.replaced, told.completed_ms) == (True, True, -1)


def test_initproducerid_gives_another_producer_id_from_the_last_but_one_epoch_on() -> None:
    another = state(EMPTY, 0, pid=8)
    assert wrong_step(state(EMPTY, 32766), another) == ""
    assert wrong_step(state(COMPLETE_ABORT, 32767), another) == "", "the last epoch was used to fence"
    assert wrong_step(state(EMPTY, 32765), another) == "another producer id, although 7 has epochs left"


def test_the_promised_producer_id_may_be_0() -> None:
    prepared, completed = (state(each, 32767, version=2, next_pid=0) for each in (PREPARE_COMMIT, COMPLETE_COMMIT))
    assert wrong_step(prepared, completed) == "expected producer 0, whose epochs are not used up"
    other = state(COMPLETE_COMMIT, 0, version=2, pid=8)
    assert wrong_step(replace(prepared, next_producer_id=9), other) == "expected producer 9"
    assert wrong_step(replace(prepared, next_producer_id=0), other) == "expected producer 0"


def test_a_producer_id_follows_when_the_epochs_are_used_up(tmp_path: Path) -> None:
    legal = {
        "promised": (*ROTATING, state(COMPLETE_COMMIT, 0, version=2, pid=8)),
        "not in the log before Kafka 4.3": (
            *ROTATING[:2],
            replace(ROTATING[2], next_producer_id=-1),
            state(COMPLETE_COMMIT, 0, version=2, pid=8),
        ),
        "by InitProducerId": (state(EMPTY, 32766), state(EMPTY, 0, pid=8)),
    }
    for name, values in legal.items():
        assert rules(log_of(tmp_path / name, *values, offsets=range(5, 5 + len(values)))) == [], name
    illegal = {
        "another one than promised": (*ROTATING, state(COMPLETE_COMMIT, 0, version=2, pid=9)),
        "the old one": (*ROTATING, state(COMPLETE_COMMIT, 32767, version=2)),
        "not at epoch 0": (*ROTATING, state(COMPLETE_COMMIT, 1, version=2, pid=8)),
        "before version 2": (
            state(EMPTY, 32766),
            state(ONGOING, 32766),
            state(PREPARE_COMMIT, 32766),
            state(COMPLETE_COMMIT, 0, pid=8),
        ),
    }
    for name, values in illegal.items():
        found = rules(log_of(tmp_path / name, *values, offsets=range(5, 5 + len(values))))
        assert found == [(ILLEGAL_TRANSITION, 5 + len(values) - 1)], name


def test_what_follows_over_a_hole_is_unknown_and_the_rest_is_judged_again(tmp_path: Path) -> None:
    log = log_of(tmp_path / "1", *BEGUN, state(COMPLETE_COMMIT, 9), state(ONGOING, 9), offsets=[0, 1, 5, 6])
    assert (rules(log), log.unknown, log.whole) == ([], 1, False)
    later = (state(ONGOING, 5), state(PREPARE_COMMIT, 5), state(COMPLETE_ABORT, 5))
    log = log_of(tmp_path / "2", *later, offsets=[4, 5, 6])
    assert (rules(log), log.unknown) == ([(DECISION_CHANGED, 6)], 1)


def test_a_completion_right_after_the_other_decision_is_found_even_where_the_log_begins_later(tmp_path: Path) -> None:
    log = log_of(tmp_path, state(PREPARE_COMMIT, 5), state(COMPLETE_ABORT, 5), offsets=[4, 5])
    assert rules(log) == [(DECISION_CHANGED, 5)]


def test_a_completion_that_was_appended_twice_is_found_nowhere_not_even_where_the_log_begins_later(
    tmp_path: Path,
) -> None:
    twice = [state(COMPLETE_COMMIT), state(COMPLETE_COMMIT)]
    assert rules(log_of(tmp_path, *twice, offsets=[5, 6])) == []


def test_a_record_of_a_later_version_is_counted_and_what_follows_it_is_unknown(tmp_path: Path) -> None:
    log = log_of(tmp_path, state(EMPTY), b"\0\2later", state(PREPARE_COMMIT, 4))
    assert (rules(log), log.unreadable, log.unknown, log.whole) == ([], 1, 1, False)


def test_transactional_ids_are_judged_apart(tmp_path: Path) -> None:
    batches = [
        build_batch([Record(key=TransactionLogKey(transactional_id=name).encode(), value=v.encode())], base_offset=i)
        for i, (name, v) in enumerate(
            [
                ("a", state(EMPTY)),
                ("b", state(EMPTY, pid=8)),
                ("a", state(ONGOING)),
                ("b", state(PREPARE_COMMIT, pid=8)),
            ]
        )
    ]
    write_segment(tmp_path / f"{TOPIC}-0" / f"{0:020d}.log", [batch.encode() for batch in batches])
    [log] = find_logs(tmp_path)
    found = follow_coordinator_log(log)
    assert rules(found) == [(ILLEGAL_TRANSITION, 3)]
    assert "'b'" in found.findings[0].evidence


def test_the_decisions_are_told_with_the_epochs_of_data_and_markers(tmp_path: Path) -> None:
    values = (
        *COMMITTED_2,
        state(ONGOING, 1, version=2, partitions=[0, 4]),
        state(PREPARE_ABORT, 2, version=2, partitions=[0, 4]),
    )
    first, second = log_of(tmp_path, *values).ids["t"].transactions
    assert (first.number, first.data_epoch, first.marker_epoch, first.decision) == (0, 0, 1, ControlType.COMMIT)
    assert (second.number, second.data_epoch, second.marker_epoch, second.decision) == (1, 1, 2, ControlType.ABORT)
    assert (first.completed, second.completed) == (True, False)
    assert second.partitions == {("orders", 0), ("orders", 4)}


def test_a_decision_that_was_given_up_may_be_followed_by_another_partition_and_the_same_decision(
    tmp_path: Path,
) -> None:
    values = (
        *BEGUN,
        state(PREPARE_COMMIT),
        state(ONGOING, partitions=[0, 4]),
        state(PREPARE_COMMIT, partitions=[0, 4]),
        state(COMPLETE_COMMIT),
    )
    found = log_of(tmp_path, *values)
    first, second = found.ids["t"].transactions
    assert rules(found) == []
    assert (first.number, first.replaced, first.completed) == (0, True, False)
    assert (second.number, second.replaced, second.completed) == (0, False, True)


def test_a_decision_whose_append_failed_belongs_to_the_same_transaction(tmp_path: Path) -> None:
    values = (*BEGUN, state(PREPARE_COMMIT), state(PREPARE_ABORT, 1), state(COMPLETE_ABORT, 1))
    first, second = log_of(tmp_path, *values).ids["t"].transactions
    assert (first.number, first.replaced, first.completed) == (0, True, False)
    assert (second.number, second.replaced, second.completed) == (0, False, True)
    assert (second.data_epoch, second.marker_epoch) == (0, 1)


def test_a_log_of_large_transactions_and_repeated_states_takes_a_few_steps_for_each_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted(before: TransactionLogValue | None, after: TransactionLogValue | None) -> str:
        asked.append(before)
        return wrong_step(before, after)

    monkeypatch.setattr(coordinator, "wrong_step", counted)
    growing = [state(ONGOING, partitions=range(number)) for number in range(1, 101)]
    prepared = state(PREPARE_COMMIT, partitions=range(100))
    values = [*[state(EMPTY)] * 100, *[*growing, *growing[-1:] * 100, prepared, state(COMPLETE_COMMIT)] * 3]
    found = log_of(tmp_path, *values)
    assert rules(found) == []
    assert [len(transaction.partitions) for transaction in found.ids["t"].transactions] == [100, 100, 100]
    assert len(values) <= len(asked) <= 3 * len(values)


def test_what_may_precede_a_state_is_found_alike_with_and_without_a_proof() -> None:
    states = [
        replace(
            state(status, epoch, version=version, pid=pid, partitions=partitions),
            transaction_start_timestamp_ms=-1 if status is EMPTY else start,
            transaction_last_update_timestamp_ms=update,
        )
        for status in (EMPTY, ONGOING, COMPLETE_ABORT)
        for epoch in (0, 1)
        for version in (0, 2)
        for pid in (7, 8)
        for partitions in ([], [0], [0, 1])
        for start, update in ((NOW, NOW), (NOW, NOW + 1), (NOW + 1, NOW + 1))
    ]
    ongoing = [value for value in states if value.transaction_status is ONGOING]
    following = [(first, second) for first in ongoing for second in ongoing if not wrong_step(first, second)]
    found = set()
    for first, second in following:
        current = [first, *(value for value in states if not wrong_step(value, first))]
        explained = [value for value in current if not wrong_step(value, second)]
        assert coordinator._explaining(current, second) == explained
        found |= {(value.transaction_status, value in explained) for value in current}
    assert found == {(ONGOING, True), *((status, told) for status in (EMPTY, COMPLETE_ABORT) for told in (True, False))}
