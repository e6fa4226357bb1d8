"""The coordinator's tables, cell by cell, and its log, its failovers and its timeouts."""

import re
from dataclasses import replace

import pytest

from kafka_eos.errors import ErrorCode, NotEnabled
from kafka_eos.formats.transaction_log import LEGAL_TRANSITIONS, TransactionState
from kafka_eos.machines.explorer import explore
from kafka_eos.machines.machine import instances, step, walk
from kafka_eos.machines.transaction_coordinator import (
    DECIDE,
    Answer,
    Constants,
    Identity,
    Rules,
    TransactionCoordinator,
    TransactionMetadata,
)
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.mutants.rules import mutated

S, E = TransactionState, ErrorCode

SHORT_MAX = 32767
REAL = Rules(SHORT_MAX, 2)
OLD = Rules(SHORT_MAX, 1)

KNOWN = TransactionMetadata(producer_id=7, previous_producer_id=7, epoch=5, last_epoch=4, state=S.EMPTY, version=2)
OPEN = replace(KNOWN, state=S.ONGOING, partitions=frozenset({"p"}), number=1)

MODEL = Constants(
    producer_ids=frozenset({0, 1}),
    max_epoch=3,
    partitions=frozenset({"p", "q"}),
    versions=frozenset({2}),
    faults=frozenset({"append times out", "failover", "timeout", "expiry", "no leader"}),
    max_faults=3,
)
VERSION_1 = replace(MODEL, versions=frozenset({1}))

IN = "HandleInitProducerId(-1, -1)"
OK = "AppendIsReplicated"


def after(*labels: str, constants: Constants = MODEL) -> TransactionCoordinator:
    """The state after the actions with these labels."""
    known = {each.label: each for each in instances(TransactionCoordinator, constants)}
    *_, last = walk(TransactionCoordinator.initial(constants), [known[label] for label in labels])
    return last


def going_on(state: TransactionCoordinator, *labels: str) -> TransactionCoordinator:
    """The state after further actions."""
    known = {each.label: each for each in instances(type(state), state.constants)}
    *_, last = walk(state, [known[label] for label in labels])
    return last


def add(epoch: int, partition: str = "p", version: int = 2) -> str:
    return f'HandleAddPartition(0, {epoch}, "{partition}", {version})'


def end(epoch: int, commit: bool, version: int = 2) -> str:
    return f"HandleEndTxn(0, {epoch}, {commit}, {version})"


# --- the table of transitions -----------------------------------------------------------------------------------


def test_the_spec_has_the_table_of_legal_transitions_that_the_reference_has() -> None:
    text = (spec_folder() / "TransactionCoordinator.tla").read_text(encoding="utf-8")
    body = text.split("LegalTransitions ==")[1].split("PreparedStates")[0]
    found = {(S[a], S[b]): int(v) for a, b, v in re.findall(r'<<"(\w+)", "(\w+)", (\d)>>', body)}
    assert found == dict(LEGAL_TRANSITIONS)


# --- InitProducerId ---------------------------------------------------------------------------------------------


def test_init_with_one_half_of_an_identity_is_an_invalid_request() -> None:
    assert REAL.init_error(KNOWN, -1, 5) is E.INVALID_REQUEST
    assert REAL.init_error(KNOWN, 7, -1) is E.INVALID_REQUEST


@pytest.mark.parametrize("pending", [S.EMPTY, S.ONGOING, S.PREPARE_EPOCH_FENCE, S.COMPLETE_ABORT, S.DEAD])
def test_init_waits_for_any_pending_transition_before_it_looks_at_the_identity(pending: TransactionState) -> None:
    assert REAL.init_error(replace(KNOWN, pending=pending), 99, 5) is E.CONCURRENT_TRANSACTIONS


def test_init_with_another_producer_id_is_fenced_in_every_state() -> None:
    for state in (S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_ABORT):
        assert REAL.init_error(replace(KNOWN, state=state), 99, 5) is E.PRODUCER_FENCED


def test_init_with_the_previous_producer_id_is_valid_when_its_epochs_had_run_out() -> None:
    rotated = replace(KNOWN, producer_id=8, previous_producer_id=7, epoch=0, last_epoch=SHORT_MAX - 1)
    assert REAL.init_error(rotated, 7, SHORT_MAX - 1) is E.NONE
    assert REAL.init_error(rotated, 7, SHORT_MAX - 2) is E.PRODUCER_FENCED


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_init_waits_for_a_prepared_transaction(state: TransactionState) -> None:
    assert REAL.init_error(replace(KNOWN, state=state), -1, -1) is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, E.NONE), (5, E.NONE), (4, E.NONE), (3, E.PRODUCER_FENCED), (6, E.PRODUCER_FENCED)]
)
@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_init_at_rest_takes_the_present_epoch_and_the_last_one(
    state: TransactionState, epoch: int, error: ErrorCode
) -> None:
    assert REAL.init_error(replace(KNOWN, state=state), -1 if epoch < 0 else 7, epoch) is error


def test_init_gives_the_next_epoch_and_remembers_the_one_that_was_presented() -> None:
    given = REAL.after_init(KNOWN, 5, 99)
    assert (given.state, given.producer_id, given.epoch, given.last_epoch) == (S.EMPTY, 7, 6, 5)
    assert REAL.after_init(KNOWN, -1, 99).last_epoch == -1


def test_a_retry_of_init_gives_the_same_epoch_again() -> None:
    given = REAL.after_init(KNOWN, 5, 99)
    assert REAL.after_init(given, 5, 99) == given


@pytest.mark.parametrize("epoch", [SHORT_MAX - 1, SHORT_MAX])
def test_init_gives_another_producer_id_when_the_epochs_have_run_out(epoch: int) -> None:
    used_up = replace(KNOWN, epoch=epoch, last_epoch=epoch - 1)
    for presented in (-1, epoch):
        given = REAL.after_init(used_up, presented, 8)
        assert (given.producer_id, given.previous_producer_id, given.epoch) == (8, 7, 0)
        assert given.last_epoch == presented


def test_the_retry_of_a_rotation_is_answered_again_and_again() -> None:
    used_up = replace(KNOWN, epoch=SHORT_MAX - 1, last_epoch=SHORT_MAX - 2)
    given = REAL.after_init(used_up, SHORT_MAX - 1, 8)
    for _ in range(3):
        assert REAL.init_error(given, 7, SHORT_MAX - 1) is E.NONE
        assert REAL.after_init(given, SHORT_MAX - 1, 9) == given


def test_a_retry_whose_answer_is_the_last_epoch_but_one_is_answered() -> None:
    used_up = replace(KNOWN, epoch=SHORT_MAX - 1, last_epoch=SHORT_MAX - 2)
    assert REAL.init_error(used_up, 7, SHORT_MAX - 2) is E.NONE
    assert REAL.after_init(used_up, SHORT_MAX - 2, 8).epoch == SHORT_MAX - 1


def test_an_unknown_transactional_id_gets_a_new_producer_id_whatever_the_request_presents() -> None:
    for label in (IN, "HandleInitProducerId(1, 2)"):
        assert after(label, OK).answer == Answer(request="InitProducerId", producer_id=0, epoch=0)


def test_init_aborts_an_open_transaction_and_has_to_be_retried() -> None:
    fenced = after(IN, OK, add(0), OK, IN, "AbortFenced", OK)
    assert fenced.answer == Answer(request="InitProducerId", error=E.CONCURRENT_TRANSACTIONS)
    assert fenced.metadata.state is S.PREPARE_ABORT
    again = going_on(fenced, 'WriteMarker("p")', "CompleteTransaction", OK, IN, OK)
    assert again.answer == Answer(request="InitProducerId", producer_id=0, epoch=2)


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------------


def test_a_partition_of_an_unknown_transactional_id_has_no_producer() -> None:
    assert REAL.add_error(TransactionMetadata(), 7, 5) is E.INVALID_PRODUCER_ID_MAPPING


def test_an_addition_waits_for_a_pending_transition_before_it_looks_at_the_identity() -> None:
    assert REAL.add_error(replace(KNOWN, pending=S.EMPTY), 99, 99) is E.CONCURRENT_TRANSACTIONS


def test_an_addition_with_another_producer_id_or_epoch_is_refused() -> None:
    assert REAL.add_error(OPEN, 99, 5) is E.INVALID_PRODUCER_ID_MAPPING
    assert REAL.add_error(OPEN, 7, 4) is E.PRODUCER_FENCED
    assert REAL.add_error(OPEN, 7, 6) is E.PRODUCER_FENCED


def test_an_addition_to_a_prepared_transaction_waits() -> None:
    assert REAL.add_error(replace(OPEN, state=S.PREPARE_ABORT), 7, 5) is E.CONCURRENT_TRANSACTIONS


def test_a_partition_that_is_there_already_is_answered_without_a_record() -> None:
    state = after(IN, OK, add(0), OK, add(0))
    assert state.answer == Answer(request="AddPartition")
    assert state.is_idle()


def test_a_further_partition_is_a_record_of_the_same_transaction() -> None:
    state = after(IN, OK, add(0), OK, add(0, "q"), OK)
    assert state.durable.partitions == {"p", "q"}
    assert state.durable.number == 1


# --- EndTxn, version 1 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [REAL, OLD])
@pytest.mark.parametrize("version", [1, 2])
def test_the_end_of_an_unknown_transactional_id_has_no_producer(rules: Rules, version: int) -> None:
    assert rules.end_verdict(TransactionMetadata(), 7, 5, True, version) == "INVALID_PRODUCER_ID_MAPPING"


def test_version_1_looks_at_the_identity_first_and_at_the_pending_transition_then() -> None:
    busy = replace(OPEN, pending=S.PREPARE_COMMIT)
    assert OLD.end_verdict(busy, 99, 5, True, 1) == "INVALID_PRODUCER_ID_MAPPING"
    assert OLD.end_verdict(busy, 7, 6, True, 1) == "PRODUCER_FENCED"
    assert OLD.end_verdict(busy, 7, 4, True, 1) == "PRODUCER_FENCED"
    assert OLD.end_verdict(busy, 7, 5, True, 1) == "CONCURRENT_TRANSACTIONS"


VERSION_1_TABLE = [
    (S.EMPTY, True, "INVALID_TXN_STATE"),
    (S.EMPTY, False, "INVALID_TXN_STATE"),
    (S.ONGOING, True, DECIDE),
    (S.ONGOING, False, DECIDE),
    (S.PREPARE_COMMIT, True, "CONCURRENT_TRANSACTIONS"),
    (S.PREPARE_COMMIT, False, "INVALID_TXN_STATE"),
    (S.PREPARE_ABORT, True, "INVALID_TXN_STATE"),
    (S.PREPARE_ABORT, False, "CONCURRENT_TRANSACTIONS"),
    (S.COMPLETE_COMMIT, True, "NONE"),
    (S.COMPLETE_COMMIT, False, "INVALID_TXN_STATE"),
    (S.COMPLETE_ABORT, True, "INVALID_TXN_STATE"),
    (S.COMPLETE_ABORT, False, "NONE"),
]


@pytest.mark.parametrize(("state", "commit", "verdict"), VERSION_1_TABLE)
def test_the_table_of_version_1(state: TransactionState, commit: bool, verdict: str) -> None:
    assert OLD.end_verdict(replace(OPEN, state=state), 7, 5, commit, 1) == verdict


def test_the_end_of_a_transaction_of_version_1_keeps_the_epoch_and_answers_without_one() -> None:
    add_1, end_1 = add(0, version=1), end(0, True, version=1)
    state = after(IN, OK, add_1, OK, end_1, OK, constants=VERSION_1)
    assert (state.durable.state, state.durable.epoch) == (S.PREPARE_COMMIT, 0)
    assert state.answer == Answer(request="EndTxn")


# --- EndTxn, version 2 ------------------------------------------------------------------------------------------


def test_version_2_looks_at_the_pending_transition_first() -> None:
    busy = replace(OPEN, pending=S.PREPARE_COMMIT)
    assert REAL.end_verdict(busy, 99, 99, True, 2) == "CONCURRENT_TRANSACTIONS"
    assert REAL.end_verdict(OPEN, 99, 5, True, 2) == "INVALID_PRODUCER_ID_MAPPING"


PF, ITS, WAIT = "PRODUCER_FENCED", "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"
VERSION_2_TABLE = [  # state, commit, the epoch before, the present one, a later one
    (S.EMPTY, True, PF, ITS, PF),
    (S.EMPTY, False, PF, DECIDE, PF),
    (S.ONGOING, True, PF, DECIDE, PF),
    (S.ONGOING, False, PF, DECIDE, PF),
    (S.PREPARE_COMMIT, True, WAIT, PF, PF),
    (S.PREPARE_COMMIT, False, ITS, PF, PF),
    (S.PREPARE_ABORT, True, ITS, PF, PF),
    (S.PREPARE_ABORT, False, WAIT, PF, PF),
    (S.COMPLETE_COMMIT, True, "NONE", ITS, PF),
    (S.COMPLETE_COMMIT, False, ITS, DECIDE, PF),
    (S.COMPLETE_ABORT, True, ITS, ITS, PF),
    (S.COMPLETE_ABORT, False, "NONE", DECIDE, PF),
]


@pytest.mark.parametrize(("state", "commit", "before", "present", "later"), VERSION_2_TABLE)
def test_the_table_of_version_2(state: TransactionState, commit: bool, before: str, present: str, later: str) -> None:
    known = replace(OPEN, state=state)
    assert [REAL.end_verdict(known, 7, epoch, commit, 2) for epoch in (4, 5, 6)] == [before, present, later]


def test_a_retry_across_the_last_epoch_presents_the_producer_id_from_before() -> None:
    rotated = replace(OPEN, state=S.COMPLETE_COMMIT, producer_id=8, previous_producer_id=7, epoch=0)
    assert REAL.end_verdict(rotated, 7, SHORT_MAX - 1, True, 2) == "NONE"
    assert REAL.end_verdict(rotated, 7, SHORT_MAX - 1, False, 2) == "INVALID_TXN_STATE"
    assert REAL.end_verdict(rotated, 7, SHORT_MAX - 2, True, 2) == "INVALID_PRODUCER_ID_MAPPING"
    assert REAL.end_verdict(replace(rotated, state=S.EMPTY), 7, SHORT_MAX - 1, True, 2) == "PRODUCER_FENCED"


def test_in_version_2_an_end_bumps_the_epoch_and_answers_with_it_before_any_marker() -> None:
    state = after(IN, OK, add(0), OK, end(0, True), OK)
    assert state.answer == Answer(request="EndTxn", producer_id=0, epoch=1)
    assert state.markers == frozenset()
    assert (state.durable.state, state.durable.epoch, state.metadata.last_epoch) == (S.PREPARE_COMMIT, 1, 0)


def test_in_the_last_epoch_the_answer_is_the_next_producer_id_and_completion_goes_over_to_it() -> None:
    state = after(IN, OK, IN, OK, IN, OK, add(2), OK, end(2, True), OK)
    assert state.answer == Answer(request="EndTxn", producer_id=1, epoch=0)
    assert (state.durable.producer_id, state.durable.epoch, state.durable.next_producer_id) == (0, 3, 1)
    done = going_on(state, 'WriteMarker("p")', "CompleteTransaction", OK)
    assert {marker.epoch for marker in done.markers} == {3}
    assert (done.durable.producer_id, done.durable.epoch, done.durable.next_producer_id) == (1, 0, -1)
    assert done.metadata.last_epoch == 2


def test_an_abort_of_nothing_raises_the_epoch_and_needs_no_marker() -> None:
    state = after(IN, OK, end(0, False), OK, "CompleteTransaction", OK)
    assert (state.durable.state, state.durable.epoch, state.markers) == (S.COMPLETE_ABORT, 1, frozenset())


# --- the coordinator's own abort --------------------------------------------------------------------------------


def test_between_the_halves_of_a_fence_a_commit_fails_and_an_abort_goes_through() -> None:
    fenced = replace(OPEN, pending=S.PREPARE_EPOCH_FENCE)
    for rules, version in ((OLD, 1), (REAL, 2)):
        assert rules.end_verdict(fenced, 7, 5, True, version) == "UNKNOWN_SERVER_ERROR"
        assert rules.end_verdict(fenced, 7, 5, False, version) == DECIDE
        assert rules.end_verdict(fenced, 7, 4, False, version) == "PRODUCER_FENCED"


@pytest.mark.parametrize("written", [OK, "AppendTimesOut"])
def test_an_abort_of_version_1_between_the_halves_of_a_fence_forgets_the_last_epoch(written: str) -> None:
    fenced = after(IN, OK, "HandleInitProducerId(0, 0)", OK, add(1, version=1), OK, IN, constants=VERSION_1)
    assert fenced.metadata.last_epoch == 0
    ended = going_on(fenced, end(1, False, version=1), written).metadata
    assert (ended.epoch, ended.last_epoch, ended.failed_fence) == (1, -1, False)
    assert OLD.init_error(replace(ended, state=S.COMPLETE_ABORT, pending=None), 0, 0) is E.PRODUCER_FENCED


def test_the_second_half_of_a_fence_leaves_what_its_client_has_ended_meanwhile() -> None:
    state = after(IN, OK, add(0), OK, IN, end(0, False), OK, "AbortFenced")
    assert state.answer == Answer(request="InitProducerId", error=E.CONCURRENT_TRANSACTIONS)
    assert (state.metadata.state, state.metadata.epoch) == (S.PREPARE_ABORT, 1)


def test_a_timeout_answers_nobody_and_raises_the_epoch_once() -> None:
    for constants, version in ((MODEL, 2), (VERSION_1, 1)):
        state = after(IN, OK, add(0, version=version), OK, "TimeOut", "AbortFenced", OK, constants=constants)
        assert (state.durable.state, state.durable.epoch) == (S.PREPARE_ABORT, 1)
        assert state.answer == Answer()


def test_a_fence_in_the_last_epoch_brings_the_next_producer_id() -> None:
    state = after(IN, OK, IN, OK, IN, OK, add(2), OK, "TimeOut", "AbortFenced", OK, 'WriteMarker("p")')
    done = going_on(state, "CompleteTransaction", OK)
    assert (done.durable.producer_id, done.durable.epoch) == (1, 0)


def test_a_fence_of_version_1_that_could_not_be_written_bumps_once_for_all_tries() -> None:
    opened = after(IN, OK, add(0, version=1), OK, constants=VERSION_1)
    state = opened
    for _ in range(3):
        state = going_on(state, IN, "AbortFenced", "AppendTimesOut")
        assert state.answer == Answer(request="InitProducerId", error=E.COORDINATOR_NOT_AVAILABLE)
        assert (state.metadata.state, state.metadata.epoch, state.metadata.failed_fence) == (S.ONGOING, 1, True)
    written = going_on(state, IN, "AbortFenced", OK)
    assert (written.durable.epoch, written.metadata.failed_fence) == (1, False)


def test_the_log_does_not_know_of_a_fence_that_failed_so_that_the_next_coordinator_fences_again() -> None:
    for constants, version in ((MODEL, 2), (VERSION_1, 1)):
        state = after(IN, OK, add(0, version=version), OK, IN, "AbortFenced", "AppendTimesOut", constants=constants)
        epoch = state.metadata.epoch
        state = going_on(state, add(epoch, "q", version), OK)
        assert (state.metadata.failed_fence, state.durable.failed_fence) == (version == 1, False)
        assert going_on(state, "Failover(0)", IN, "AbortFenced", OK).durable.epoch == epoch + 1


# --- the log ----------------------------------------------------------------------------------------------------


def test_after_an_abandoned_append_the_coordinator_has_its_previous_state() -> None:
    before = after(IN, OK, add(0), OK)
    state = going_on(before, end(0, True), "AppendTimesOut")
    assert state.answer == Answer(request="EndTxn", error=E.COORDINATOR_NOT_AVAILABLE)
    assert state.metadata == before.metadata
    assert [record.state for record in state.tail] == [S.PREPARE_COMMIT]


def test_an_abandoned_decision_has_no_marker_and_the_other_one_may_follow_it_in_the_log() -> None:
    state = after(IN, OK, add(0), OK, end(0, True), "AppendTimesOut", "ReplicateTail")
    assert (state.durable.state, state.metadata.state) == (S.PREPARE_COMMIT, S.ONGOING)
    aborted = going_on(state, "TimeOut", "AbortFenced", OK, 'WriteMarker("p")')
    assert aborted.durable.state is S.PREPARE_ABORT
    assert {marker.commit for marker in aborted.markers} == {False}


def test_an_abandoned_completion_is_retried() -> None:
    state = after(IN, OK, end(0, False), OK, "CompleteTransaction", "AppendTimesOut", "CompleteTransaction", OK)
    assert state.metadata.state is S.COMPLETE_ABORT


def test_a_new_coordinator_answers_nothing_until_its_loaded_records_are_replicated() -> None:
    state = after(IN, OK, add(0), OK, end(0, True), "Failover(1)")
    assert state.answer == Answer(request="EndTxn", error=E.NOT_COORDINATOR)
    assert state.metadata.state is S.PREPARE_COMMIT
    for label in (IN, add(0), end(0, True)):
        assert going_on(state, label).answer.error is E.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(NotEnabled):
        going_on(state, 'WriteMarker("p")')
    assert going_on(state, "ReplicateTail", 'WriteMarker("p")').markers


def test_a_new_coordinator_sends_every_marker_of_a_prepared_transaction_again() -> None:
    state = after(IN, OK, add(0), OK, add(0, "q"), OK, end(0, True), OK, 'WriteMarker("p")', "Failover(0)")
    assert state.to_mark == {"p", "q"}
    done = going_on(state, 'WriteMarker("q")', 'WriteMarker("p")', "CompleteTransaction", OK)
    assert done.metadata.state is S.COMPLETE_COMMIT


def test_a_coordinator_asks_again_for_the_leader_of_a_partition_and_kafkas_4_3_takes_it_for_deleted() -> None:
    prepared = (IN, OK, add(0), OK, add(0, "q"), OK, end(0, True), OK, 'FindNoLeader("q")')
    state = after(*prepared)
    assert (state.to_mark, state.faults, state.answer) == ({"p", "q"}, 1, Answer(request="none"))
    with pytest.raises(NotEnabled):
        going_on(state, 'WriteMarker("p")', "CompleteTransaction")
    kafkas = mutated(TransactionCoordinator, {"MarkersWithoutLeader": "NoLeaderIsDeleted"}).initial(MODEL)
    left_out = going_on(kafkas, *prepared, 'WriteMarker("p")', "CompleteTransaction", OK)
    assert left_out.metadata.state is S.COMPLETE_COMMIT
    assert [marker.partition for marker in left_out.markers] == ["p"]


@pytest.mark.parametrize(
    "labels",
    [(IN, OK, add(0), OK), (IN, OK, add(0), OK, end(0, True), "Failover(1)"), (IN, OK, add(0), OK, end(0, True))],
)
def test_no_leader_is_looked_for_before_the_markers_are_due(labels: tuple[str, ...]) -> None:
    with pytest.raises(NotEnabled, match="no marker is due"):
        after(*labels, 'FindNoLeader("p")')


def test_the_last_epoch_is_lost_in_a_failover_and_the_retry_of_init_with_it() -> None:
    given = after(IN, OK, "HandleInitProducerId(0, 0)", OK)
    assert going_on(given, "HandleInitProducerId(0, 0)", OK).answer.epoch == 1
    assert going_on(given, "Failover(0)", "HandleInitProducerId(0, 0)").answer.error is E.PRODUCER_FENCED


def test_a_forgotten_transactional_id_gets_a_new_producer_id_and_its_old_client_none() -> None:
    state = after(IN, OK, "ExpireTransactionalId", OK)
    assert going_on(state, end(0, False)).answer.error is E.INVALID_PRODUCER_ID_MAPPING
    assert going_on(state, IN, OK).answer == Answer(request="InitProducerId", producer_id=1, epoch=0)


def test_an_open_transaction_keeps_its_transactional_id_from_being_forgotten() -> None:
    with pytest.raises(NotEnabled):
        after(IN, OK, add(0), OK, "ExpireTransactionalId")


def test_no_coordinator_action_is_enabled_when_there_is_nothing_to_do() -> None:
    idle = after(IN, OK)
    for label in ("AbortFenced", OK, "AppendTimesOut", "ReplicateTail", "CompleteTransaction", "TimeOut"):
        with pytest.raises(NotEnabled):
            going_on(idle, label)
    with pytest.raises(NotEnabled):
        going_on(idle, "Failover(1)")


def test_verdicts_are_given_for_every_request_in_every_state() -> None:
    for state in S:
        for pending in (None, *S):
            known = replace(OPEN, state=state, pending=pending)
            for epoch in range(-1, 8):
                assert isinstance(REAL.init_error(known, 7, epoch), ErrorCode)
                assert isinstance(REAL.add_error(known, 7, epoch), ErrorCode)
                for version in (1, 2):
                    verdict = REAL.end_verdict(known, 7, epoch, True, version)
                    assert verdict == DECIDE or verdict in ErrorCode.__members__


def test_a_request_is_answered_or_begins_a_record_in_every_state_of_a_small_model() -> None:
    small = replace(MODEL, producer_ids=frozenset({0}), partitions=frozenset({"p"}), max_epoch=2, max_faults=1)
    every = instances(TransactionCoordinator, small)
    found = explore(
        TransactionCoordinator.initial(small),
        every,
        lambda state: max(state.metadata.number, state.appending.record.number, state.allocated) <= 1,
    )
    requests = [each for each in every if each.action.name.startswith("Handle")]
    for state in found.states:
        for request in requests[::5]:
            next_state = step(state, request)
            waits = next_state.answer.request == "none"
            assert not waits or not next_state.is_idle() or next_state.fencing != "none"


def test_an_identity_is_empty_unless_it_is_given() -> None:
    assert Identity() == Identity(producer_id=-1, epoch=-1)
