"""Each rule over histories has a history that violates it, one on which it is silent, and one it cannot judge."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos.formats.transaction_log import (
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.applications import Begun, not_ended
from kafka_eos_checks.audit.rules.declared import Declared
from kafka_eos_checks.audit.rules.histories import DUPLICATE_VALUE, LOST, REFUSED, UNASKED
from kafka_eos_checks.audit.segments.contents import read_contents
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs

from ..both_forms import join
from ..kept import kept_join


def event(action: str, phase: str, value: str | None = None, **columns: Any) -> Event:
    detail = {} if value is None else {"value": value}
    return Event(run="r", process="p", action=action, phase=phase, detail=detail, **columns)


def send(phase: str, value: str, offset: int | None = None, partition: int = 0) -> Event:
    return event("Send", phase, value, topic="orders", partition=partition, offset=offset)


def produce(
    phase: str,
    sequence: int,
    error: ErrorCode = ErrorCode.NONE,
    epoch: int = 0,
    count: int = 2,
    attempt: int | None = None,
) -> Event:
    made = event(
        "Produce", phase, topic="orders", partition=0, producer_id=7, producer_epoch=epoch, base_sequence=sequence,
        record_count=count, error=None if phase == "invoke" else int(error),
    )  # fmt: skip
    return replace(made, detail={} if attempt is None else {"attempt": attempt})


def init(phase: str, pid: int = -1, epoch: int = -1, transactional_id: str | None = "t") -> Event:
    return event("InitProducerId", phase, transactional_id=transactional_id, producer_id=pid, producer_epoch=epoch)


def found(events: Sequence[Event], logs: Sequence[PartitionLog] = ()) -> list[tuple[str, int | None]]:
    return [(f.rule, f.offset) for f in kept_join(join(numbered(events), logs)).findings]


def unknown(events: Sequence[Event], rule: str, logs: Sequence[PartitionLog] = ()) -> int:
    result = kept_join(join(numbered(events), logs))
    assert result.findings == []
    return int(result.figures[rule]["unknown"])


def numbered(events: Sequence[Event]) -> list[Event]:
    return [replace(e, order=i) for i, e in enumerate(events)]


def log_of(folder: Path, batches: Sequence[RecordBatch]) -> PartitionLog:
    path = folder / "orders-0" / f"{batches[0].base_offset:020d}.log"
    write_segment(path, [batch.encode() for batch in batches])
    [log] = find_logs(path.parent)
    return log


def values(offset: int, *given: bytes, transactional: bool = False, pid: int = 7) -> RecordBatch:
    return build_batch(
        [Record(offset_delta=i, value=value) for i, value in enumerate(given)],
        base_offset=offset,
        producer_id=pid,
        producer_epoch=0,
        is_transactional=transactional,
    )


def ended(offset: int, how: ControlType, epoch: int = 0, pid: int = 7) -> RecordBatch:
    marker = ControlRecord(control_type=how, coordinator_epoch=0)
    return build_control_batch(marker, producer_id=pid, producer_epoch=epoch, base_offset=offset)


def test_acknowledged_values_that_are_in_the_log_are_not_lost(tmp_path: Path) -> None:
    log = log_of(tmp_path, [values(0, b"a", b"b")])
    assert found([send("invoke", "a"), send("ok", "a", 0), send("ok", "b", 1)], [log]) == []


def test_an_acknowledged_value_that_is_not_at_its_offset_is_lost(tmp_path: Path) -> None:
    log = log_of(tmp_path, [values(0, b"a", b"b")])
    assert found([send("ok", "b", 0)], [log]) == [(LOST, 0)]
    assert found([send("ok", "c", 2)], [log]) == [(LOST, 2)]
    marked = log_of(tmp_path / "marked", [values(0, b"a", transactional=True), ended(1, ControlType.COMMIT)])
    [finding] = kept_join(join([send("ok", "a", 1)], [marked])).findings
    assert (finding.rule, finding.evidence) == (LOST, "p was told that 'a' is at offset 1; there is a marker")


def test_a_value_is_lost_whose_offset_a_later_segment_has_again(tmp_path: Path) -> None:
    log_of(tmp_path, [values(0, b"a", b"b")])
    write_segment(tmp_path / "orders-0" / f"{1:020d}.log", [values(1, b"c").encode()])
    [log] = find_logs(tmp_path / "orders-0")
    assert found([send("ok", "a", 0), send("ok", "b", 1)], [log]) == [(LOST, 1)]


def test_a_value_that_one_replica_has_is_not_lost(tmp_path: Path) -> None:
    short, long = log_of(tmp_path / "1", [values(0, b"a")]), log_of(tmp_path / "2", [values(0, b"a", b"b")])
    assert found([send("ok", "b", 1)], [short, long]) == []
    assert found([send("ok", "b", 1)], [short]) == [(LOST, 1)]


def test_what_the_logs_cannot_tell_is_unknown_and_never_guessed(tmp_path: Path) -> None:
    log = log_of(tmp_path, [values(5, b"a"), values(9, b"b")])
    assert unknown([send("ok", "x", 4)], LOST, [log]) == 1, "below the beginning of the log"
    assert unknown([send("ok", "x", 7)], LOST, [log]) == 1, "in a hole"
    assert unknown([send("ok", "x", 0, partition=1)], LOST, [log]) == 1, "a partition that is not given"
    assert unknown([send("ok", "x")], LOST, [log]) == 1, "no offset was acknowledged, and the value is nowhere"
    assert unknown([send("ok", "b")], LOST, [log]) == 0, "no offset was acknowledged, but the value is there"
    path = Path(log.folder, log.segments[0])
    path.write_bytes(path.read_bytes() + b"torn")
    assert unknown([send("ok", "x", 10)], LOST, [log]) == 1, "after the last batch that can be read"


def test_a_value_sent_once_that_is_there_twice_is_a_duplicate(tmp_path: Path) -> None:
    log = log_of(tmp_path, [values(0, b"a", b"b"), values(2, b"a")])
    once = [send("invoke", "a"), send("invoke", "b")]
    assert found(once, [log]) == [(DUPLICATE_VALUE, 2)]
    assert found([*once, send("invoke", "a")], [log]) == []
    again = [*once, send("fail", "a"), send("invoke", "a")]
    assert found(again, [log]) == [(DUPLICATE_VALUE, 2)], "the first send is known to have failed"
    [finding] = kept_join(join(numbered([once[1], send("fail", "b")]), [log])).findings
    assert finding.evidence == "'b' was sent 1 time(s), of which 1 failed, and is at orders-0 offset 1"
    [more] = kept_join(join(numbered([once[1], *(send("fail", "b") for _ in range(2))]), [log])).findings
    assert more.evidence == finding.evidence, "no more sends fail than there are"


def test_a_client_may_leave_the_partition_to_its_library(tmp_path: Path) -> None:
    log = log_of(tmp_path, [values(0, b"a", b"b"), values(2, b"a")])
    assert found([event("Send", "invoke", "a", topic="orders")], [log]) == [(DUPLICATE_VALUE, 2)]
    assert found([event("Send", "invoke", "a", topic="another")], [log]) == []


def test_values_of_aborted_and_open_transactions_do_not_count(tmp_path: Path) -> None:
    aborted = [values(0, b"a", transactional=True), ended(1, ControlType.ABORT)]
    still_open = values(4, b"a", transactional=True)
    committed = [values(2, b"a", transactional=True), ended(3, ControlType.COMMIT)]
    assert found([send("invoke", "a")], [log_of(tmp_path, [*aborted, *committed, still_open])]) == []
    twice = [*committed, still_open, ended(5, ControlType.COMMIT)]
    assert found([send("invoke", "a")], [log_of(tmp_path / "2", twice)]) == [(DUPLICATE_VALUE, 4)]


def test_contents_know_what_a_reader_of_committed_data_does_not_see(tmp_path: Path) -> None:
    log = log_of(tmp_path, [values(0, b"a", transactional=True), values(1, b"b"), ended(2, ControlType.ABORT, epoch=3)])
    contents = read_contents(log)
    assert (contents.start, contents.end, contents.values) == (0, 3, {0: b"a", 1: b"b"})
    assert (contents.hidden, contents.highest_abort) == ({0}, {7: 3})


GRANTED = [init("invoke"), init("ok", 7, 0)]
FENCED = produce("fail", 0, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_an_epoch_refused_although_nobody_fenced_it_is_without_cause() -> None:
    assert found([*GRANTED, produce("invoke", 0), FENCED]) == [(REFUSED, None)]
    refused = event("EndTxn", "fail", producer_id=7, producer_epoch=0, error=int(ErrorCode.PRODUCER_FENCED))
    [finding] = kept_join(join(numbered([*GRANTED, refused]), [])).findings
    assert finding.rule == REFUSED
    assert "EndTxn refused with PRODUCER_FENCED, but nothing has a higher epoch" in finding.evidence


def test_an_event_is_named_by_its_order_and_without_one_by_its_process() -> None:
    events = [*GRANTED, produce("invoke", 0), FENCED]
    assert FENCED.order is None
    for run, said in ((numbered(events), f"event {len(events) - 1} of p: Produce"), (events, "p: Produce")):
        [finding] = kept_join(join(run, ())).findings
        assert finding.evidence.startswith(said)
    for order, said in ((3, " began a transaction with event 3 and never"), (None, " began a transaction and never")):
        assert said in not_ended(Declared("g"), {"t": Begun(order, {"g"})}, {})


def test_a_higher_epoch_or_another_request_for_the_transactional_id_is_a_cause() -> None:
    assert found([*GRANTED, init("invoke"), FENCED]) == []
    assert found([*GRANTED, produce("invoke", 0, epoch=1), FENCED]) == []
    assert found([*GRANTED, init("invoke", transactional_id="another"), FENCED]) == [(REFUSED, None)]
    crossed = 2 * [init("invoke", transactional_id="another")]
    assert found([*crossed, *GRANTED, FENCED]) == [(REFUSED, None)], "the process asks for two ids without numbers"
    assert found([*GRANTED, FENCED, init("invoke")]) == [(REFUSED, None)], "a cause comes before its effect"


def test_a_request_that_is_given_a_higher_epoch_later_is_a_cause_whoever_gave_the_former_one() -> None:
    later, busy = init("ok", 7, 1), replace(init("fail"), error=int(ErrorCode.CONCURRENT_TRANSACTIONS))
    assert unknown([FENCED, init("invoke"), later], REFUSED) == 1, "the cause comes before its effect"
    assert unknown([init("invoke"), FENCED, later], REFUSED) == 0
    assert unknown([init("invoke"), busy, FENCED, init("invoke"), later], REFUSED) == 0
    assert unknown([init("invoke"), init("ok", 6, 0), FENCED, init("invoke"), later], REFUSED) == 1
    assert unknown([init("invoke"), FENCED, init("ok", 8, 1)], REFUSED) == 1, "of another producer id"
    assert unknown([init("invoke", transactional_id="u"), FENCED, init("invoke"), later], REFUSED) == 1


def test_a_timeout_of_the_transaction_is_a_cause() -> None:
    def timeout(pid: int | None, transactional_id: str = "t") -> Event:
        return event("TimeOut", "ok", producer_id=pid, transactional_id=transactional_id)

    next_epoch = [init("invoke"), init("ok", 7, 1), produce("fail", 0, ErrorCode.INVALID_PRODUCER_EPOCH, epoch=1)]
    assert found([*GRANTED, timeout(7), FENCED]) == []
    assert found([*GRANTED, timeout(None), FENCED]) == []
    assert found([*GRANTED, timeout(8, "u"), FENCED]) == [(REFUSED, None)], "of another producer"
    assert found([*GRANTED, timeout(None, "u"), FENCED]) == [(REFUSED, None)], "of another transactional.id"
    assert found([*GRANTED, FENCED, timeout(7)]) == [(REFUSED, None)], "a cause comes before its effect"
    assert found([*GRANTED, timeout(7), *next_epoch]) == [(REFUSED, None)], "of an earlier epoch"
    asked_before = [next_epoch[0], timeout(7), *next_epoch[1:]]
    assert found([*GRANTED, *asked_before]) == [(REFUSED, None)], "before the epoch was given"
    assert found([*GRANTED, *next_epoch[:2], timeout(7), next_epoch[2]]) == []


def test_a_refusal_is_unknown_if_the_history_does_not_show_the_grant_or_a_marker_has_a_higher_epoch(
    tmp_path: Path,
) -> None:
    assert unknown([FENCED], REFUSED) == 1
    log = log_of(tmp_path, [values(0, b"a", transactional=True), ended(1, ControlType.ABORT, epoch=1)])
    assert unknown([*GRANTED, FENCED], REFUSED, [log]) == 1


def test_a_transaction_whose_end_was_refused_is_still_open_and_may_have_timed_out() -> None:
    begun = [*GRANTED, produce("invoke", 0), produce("ok", 0)]
    refused = replace(end("fail", 0), error=int(ErrorCode.CONCURRENT_TRANSACTIONS))
    assert unknown([*begun, end("invoke", 0), refused, FENCED], REFUSED) == 1
    assert found([*begun, end("invoke", 0), end("ok", 0), FENCED]) == [(REFUSED, None)]


def coordinator_log(folder: Path, epoch: int, lasted_ms: int) -> PartitionLog:
    """A log of ``__transaction_state`` with one decision to abort, so long after the transaction began."""
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionState.PREPARE_ABORT,
        transaction_partitions=(TopicPartitions(topic="orders", partition_ids=(0,)),),
        transaction_last_update_timestamp_ms=1_000 + lasted_ms,
        transaction_start_timestamp_ms=1_000,
        client_transaction_version=2,
    )
    record = Record(key=TransactionLogKey(transactional_id="t").encode(), value=value.encode())
    path = folder / f"{COORDINATOR_TOPIC}-0" / f"{0:020d}.log"
    write_segment(path, [build_batch([record], base_offset=0).encode()])
    [log] = find_logs(path.parent)
    return log


def test_the_abort_of_the_refused_client_itself_excuses_no_refusal(tmp_path: Path) -> None:
    refusal = produce("fail", 0, ErrorCode.INVALID_TXN_STATE)
    aborted = [end("invoke", 0), end("ok", 0, next_producer_id=7, next_producer_epoch=1)]
    events = [*GRANTED, produce("invoke", 0), refusal, *aborted]
    log = log_of(tmp_path, [values(0, b"a", transactional=True), ended(1, ControlType.ABORT, epoch=1)])
    for lasted_ms, epoch, known in ((60_000, 1, True), (60_001, 1, False), (60_000, 2, False)):
        decided = coordinator_log(tmp_path / f"{lasted_ms}-{epoch}", epoch, lasted_ms)
        if known:
            assert found(events, [log, decided]) == [(REFUSED, None)], "no timeout has made the marker"
        else:
            assert unknown(events, REFUSED, [log, decided]) == 1
    assert unknown(events, REFUSED, [log]) == 1


def end(phase: str, epoch: int, **detail: int) -> Event:
    ended_by = event("EndTxn", phase, producer_id=7, producer_epoch=epoch, transactional_id="t")
    return replace(ended_by, detail=detail)


def test_a_refusal_that_a_test_has_injected_is_no_refusal_of_the_server(tmp_path: Path) -> None:
    def injected(request: int, fault: str = "error") -> list[Event]:
        refusal = replace(end("fail", 0, request=request), error=int(ErrorCode.INVALID_PRODUCER_EPOCH))
        return [replace(end("invoke", 0), detail={"request": request, "fault": fault}), refusal]

    own = end("invoke", 0, request=9), replace(end("fail", 0, request=9), error=int(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert found([*GRANTED, *injected(8)]) == []
    assert kept_join(join(numbered([*GRANTED, *injected(8)]), [])).figures[REFUSED] == {"checked": 0, "unknown": 0}
    assert found([*GRANTED, *injected(8), *own]) == [(REFUSED, None)]
    assert found([*GRANTED, *injected(8, "delay")]) == [(REFUSED, None)], "the server has handled it"
    asked = replace(init("invoke"), detail={"request": 8, "fault": "error"})
    assert found([*GRANTED, asked, FENCED]) == [(REFUSED, None)], "a request that was not handled fences nobody"


def test_a_request_that_was_under_way_when_the_epoch_was_given_is_a_cause() -> None:
    other = replace(init("invoke"), process="other")
    assert found([init("invoke"), other, init("ok", 7, 0), FENCED]) == []


def test_a_copy_of_the_request_that_gave_the_epoch_is_a_cause_if_it_may_have_arrived_after_it() -> None:
    def request(number: int, made: Event) -> Event:
        return replace(made, detail={"request": number})

    late, retry = request(1, init("invoke")), [request(2, init("invoke")), request(2, init("ok", 7, 0))]
    busy = request(1, replace(init("fail"), error=int(ErrorCode.CONCURRENT_TRANSACTIONS)))
    lost = request(1, init("info"))
    assert (
        found([late, *retry, FENCED])
        == found([late, *retry, busy, FENCED])
        == found([late, lost, *retry, FENCED])
        == []
    )
    assert found([late, busy, *retry, FENCED]) == [(REFUSED, None)], "it was answered before the other one was sent"
    of_another = replace(late, transactional_id="another")
    assert found([of_another, *retry, FENCED]) == [(REFUSED, None)]
    ended_with = [end("invoke", 0), end("ok", 0, next_producer_id=7, next_producer_epoch=1)]
    next_refused = produce("fail", 0, ErrorCode.INVALID_PRODUCER_EPOCH, epoch=1)
    assert found([late, *retry, *ended_with, next_refused]) == [], "it may arrive later"


def test_the_end_of_a_transaction_may_raise_the_epoch() -> None:
    ended_with = end("ok", 0, next_producer_id=7, next_producer_epoch=1)
    assert found([*GRANTED, end("invoke", 0), ended_with, FENCED]) == [], "a late request of the old epoch"
    assert unknown([*GRANTED, end("invoke", 0), FENCED], REFUSED) == 1, "it may have been raised already"
    assert found([*GRANTED, end("invoke", 0), end("ok", 0), FENCED]) == [(REFUSED, None)], "it was not raised"
    rotated = end("ok", 0, next_producer_id=8, next_producer_epoch=0)
    assert found([*GRANTED, end("invoke", 0), rotated, FENCED]) == []
    next_refused = produce("fail", 0, ErrorCode.INVALID_PRODUCER_EPOCH, epoch=1)
    assert found([*GRANTED, end("invoke", 0), ended_with, next_refused]) == [(REFUSED, None)]


def test_the_next_expected_sequence_must_not_be_refused_as_out_of_order() -> None:
    refusal = produce("fail", 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    acknowledged = [produce("invoke", 0), produce("ok", 0)]
    assert found([*acknowledged, produce("invoke", 2), refusal]) == [(REFUSED, None)]
    first = produce("fail", 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert found([produce("invoke", 0), first]) == [(REFUSED, None)]


def test_out_of_order_is_a_fair_answer_to_anything_else() -> None:
    refusal = produce("fail", 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert found([produce("invoke", 0), produce("invoke", 2), refusal]) == [], "0 may not have arrived"
    acknowledged = [produce("invoke", 0), produce("ok", 0)]
    beyond = [produce("invoke", 4), produce("fail", 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
    assert found([*acknowledged, *beyond]) == []


OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def sent_and_acknowledged(*sequences: int) -> list[Event]:
    return [event for sequence in sequences for event in (produce("invoke", sequence), produce("ok", sequence))]


def test_a_retry_within_the_window_of_five_must_not_be_refused_as_out_of_order() -> None:
    retried = [*sent_and_acknowledged(0), produce("invoke", 2), produce("invoke", 2)]
    later = [produce("invoke", sequence) for sequence in (4, 6, 8, 10, 12)]
    refusal = produce("fail", 2, OUT_OF_ORDER)
    assert found([*retried, refusal]) == [(REFUSED, None)], "stored it is a duplicate, and not stored the next one"
    assert found([*retried, *later[:4], refusal]) == [(REFUSED, None)]
    assert found([*retried, *later, refusal]) == [], "it may be stored and older than what the leader remembers"
    assert found([*sent_and_acknowledged(0, 2), produce("invoke", 2), refusal]) == [(REFUSED, None)]
    overtaken = [produce("invoke", 4), produce("ok", 4)]
    assert found([*retried, *overtaken, refusal]) == [(REFUSED, None)], "4 is acknowledged, so 2 has to be stored"


def test_an_attempt_is_judged_by_what_was_acknowledged_when_that_attempt_was_sent() -> None:
    def run(number: int, refused: int | None) -> list[Event]:
        early, late = (produce("invoke", 2, attempt=None if refused is None else n) for n in (1, 2))
        refusal = produce("fail", 2, OUT_OF_ORDER, attempt=refused)
        return [produce("invoke", 0), early, produce("ok", 0), late, refusal][:number]

    assert found(run(5, refused=2)) == [(REFUSED, None)]
    assert found(run(5, refused=1)) == [], "it may have come before the batch before it"
    assert found(run(5, refused=None)) == [], "it may be either"
    assert found(run(4, refused=2)) == []


def test_two_batches_with_one_sequence_are_not_taken_for_attempts_of_one() -> None:
    sent = [*sent_and_acknowledged(0), produce("invoke", 2), produce("invoke", 2, count=1)]
    assert found([*sent, produce("fail", 2, OUT_OF_ORDER, count=1)]) == []


def test_the_sequence_after_the_wrap_is_next_only_when_what_is_before_it_is_acknowledged() -> None:
    last = 2**31 - 2
    before, refusal = produce("invoke", last), produce("fail", 0, OUT_OF_ORDER)
    assert found([before, produce("invoke", 0), refusal]) == []
    assert found([before, produce("ok", last), produce("invoke", 0), refusal]) == [(REFUSED, None)]
    retry = [*sent_and_acknowledged(last - 2), before, *(produce("invoke", sequence) for sequence in (0, 2, 4, 6))]
    assert found([*retry, produce("fail", last, OUT_OF_ORDER)]) == [(REFUSED, None)]
    assert found([*retry, produce("invoke", 8), produce("fail", last, OUT_OF_ORDER)]) == []


def test_runs_are_judged_apart() -> None:
    other = [replace(e, run="other") for e in numbered([init("invoke")])]
    assert [f.run for f in kept_join(join([*numbered([*GRANTED, FENCED]), *other], [])).findings] == ["r"]


def begun(number: int, *rest: Event) -> list[Event]:
    """A client that tells of its transaction and sends one value in it."""
    sent = replace(send("invoke", f"v{number}"), detail={"value": f"v{number}", "transaction": number})
    return [replace(event("BeginTransaction", "invoke"), detail={"transaction": number}), sent, *rest]


def asked(action: str, number: int) -> Event:
    return replace(event(action, "invoke"), detail={"transaction": number})


def test_what_a_marker_commits_without_the_application_asking_is_found_once(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        [
            values(0, b"v0", transactional=True), ended(1, ControlType.COMMIT), values(2, b"v1", transactional=True),
            values(3, b"v1", transactional=True), ended(4, ControlType.COMMIT),
        ],
    )  # fmt: skip
    committed = begun(0, asked("CommitTransaction", 0))
    aborted = begun(1, asked("AbortTransaction", 1))
    both = [*committed, *aborted, *aborted[1:2]]  # sent twice, so that the second copy is no duplicate
    [finding] = kept_join(join(numbered(both), [log])).findings
    assert (finding.rule, finding.offset) == (UNASKED, 2)
    assert "transaction 1 of p was committed (marker at offset 4)" in finding.evidence
    assert found([*both, asked("CommitTransaction", 1)], [log]) == []
    assert found([*committed, *begun(1)], [log])[-1] == (UNASKED, 2), "nor did it abort"
    again = asked("CommitTransaction", 1)
    failed = [*both, again, replace(again, phase="fail")]
    [finding] = kept_join(join(numbered(failed), [log])).findings
    assert finding.evidence.endswith("(marker at offset 4), although it was told that the commit failed")
    assert found([*failed, again], [log]) == [], "the second call may have committed it"
    [finding] = kept_join(
        join(numbered([*both, again, replace(asked("AbortTransaction", 1), phase="ok")]), [log])
    ).findings
    assert finding.evidence.endswith("(marker at offset 4), although it was told that it is aborted")


def test_a_value_that_was_sent_again_after_an_abort_is_of_the_transaction_that_was_not_aborted(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        [
            values(0, b"v", transactional=True), ended(1, ControlType.ABORT), values(2, b"v", transactional=True),
            ended(3, ControlType.COMMIT), values(4, b"w", transactional=True), ended(5, ControlType.COMMIT),
        ],
    )  # fmt: skip

    def sends(number: int, value: str) -> Event:
        return replace(send("invoke", value), detail={"value": value, "transaction": number})

    def aborts(number: int) -> list[Event]:
        return [asked("AbortTransaction", number), replace(asked("AbortTransaction", number), phase="ok")]

    again = [sends(1, "v"), *aborts(1), sends(2, "v"), asked("AbortTransaction", 2)]
    assert said(again, log) == [(2, "transaction 2 of p")]
    assert said([sends(1, "w"), *again], log) == [(2, "transaction 2 of p"), (4, "transaction 1 of p")]


def said(events: Sequence[Event], log: PartitionLog) -> list[tuple[int | None, str]]:
    """The offsets and the transactions that are found to be committed without their application."""
    own = [f for f in kept_join(join(numbered(events), [log])).findings if f.rule == UNASKED]
    return sorted((f.offset, f.evidence.partition(" was")[0]) for f in own if f.offset is not None)


def test_a_transaction_of_two_producer_ids_is_found_at_the_data_that_were_committed_first(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        [
            values(0, b"v0", transactional=True), values(1, b"w", transactional=True, pid=8),
            ended(2, ControlType.COMMIT, pid=8), ended(3, ControlType.COMMIT),
        ],
    )  # fmt: skip
    other = replace(send("invoke", "w"), detail={"value": "w", "transaction": 0})
    assert found(begun(0, other), [log]) == [(UNASKED, 1)]


def test_what_is_aborted_or_open_was_not_committed(tmp_path: Path) -> None:
    data = values(0, b"v0", transactional=True)
    assert found(begun(0), [log_of(tmp_path / "1", [data, ended(1, ControlType.ABORT)])]) == []
    assert found(begun(0), [log_of(tmp_path / "2", [data])]) == []
    assert found(begun(0), [log_of(tmp_path / "3", [data, ended(1, ControlType.COMMIT)])]) == [(UNASKED, 0)]


def test_a_value_sent_in_two_transactions_is_committed_by_the_one_that_asked(tmp_path: Path) -> None:
    log = log_of(tmp_path, [values(0, b"v0", transactional=True), ended(1, ControlType.COMMIT)])
    again = replace(send("invoke", "v0"), detail={"value": "v0", "transaction": 1})
    assert found([*begun(0), again, asked("CommitTransaction", 1)], [log]) == []
    assert found([*begun(0), again], [log]) != []


def test_whether_a_silent_client_asked_for_a_commit_is_unknown(tmp_path: Path) -> None:
    log = log_of(tmp_path, [values(0, b"v0", transactional=True), ended(1, ControlType.COMMIT)])
    assert unknown(begun(0)[1:], UNASKED, [log]) == 1


def test_a_marker_after_a_hole_is_not_taken_for_the_marker_of_the_data_before_the_hole(tmp_path: Path) -> None:
    log = log_of(tmp_path, [values(0, b"v0", transactional=True), ended(5, ControlType.COMMIT)])
    assert found(begun(0), [log]) == []
