"""Each rule over readers has a history that violates it, one on which it is silent, and one it cannot judge."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.histories import DUPLICATE_VALUE, LOST, UNASKED
from kafka_eos_checks.audit.rules.readers import (
    ABORTED_DELIVERED,
    COMMITTED_MISSING,
    INCONSISTENT,
    NON_MONOTONIC,
    POLL_SKIP,
    PRECOMMITTED,
    READER_RULES,
    STABLE_WENT_BACK,
    look,
)
from kafka_eos_checks.audit.segments.contents import Contents
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.simulate.named_failures import NAMED_FAILURES
from kafka_eos_checks.simulate.transactions import simulate_failure, write_transactions

from ..both_forms import join
from ..conftest import event
from ..kept import kept_join

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
Step = str | None | ControlType | int  # a transactional value, a marker, or a hole of so many offsets


def log_of(folder: Path, *steps: Step) -> PartitionLog:
    """A partition in which each step except a hole takes one offset."""
    batches: list[RecordBatch] = []
    offset = 0
    for what in steps:
        if isinstance(what, ControlType):
            marker = ControlRecord(control_type=what, coordinator_epoch=0)
            batches.append(build_control_batch(marker, producer_id=7, producer_epoch=0, base_offset=offset))
        elif what is None or isinstance(what, str):
            own: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
            value = None if what is None else what.encode()
            batches.append(build_batch([Record(value=value)], base_offset=offset, **own))
        offset += what if type(what) is int else 1
    path = folder / "orders-0" / f"{0:020d}.log"
    write_segment(path, [batch.encode() for batch in batches])
    [log] = find_logs(path.parent)
    return log


def transaction(number: int, value: str, how: str, offset: int | None = None) -> list[Event]:
    sent = event("Send", "invoke", value=value, transaction=number)
    heard = [event("Send", "ok", offset=offset, value=value, transaction=number)] if offset is not None else []
    ended = f"{how}Transaction"
    return [sent, *heard, event(ended, "invoke", transaction=number), event(ended, "ok", transaction=number)]


def poll(offset: int, value: str) -> Event:
    return event("Poll", "ok", "reader", offset, value=value)


def end(offset: int) -> Event:
    return event("EndOfPartition", "ok", "reader", offset)


def judged(events: Sequence[Event], *logs: PartitionLog) -> tuple[list[tuple[str, int | None]], dict[str, int]]:
    """Rule and offset of each finding, and the number of unknown subjects of each rule over readers."""
    result = kept_join(join([replace(each, order=number) for number, each in enumerate(events)], logs))
    unknown = {rule: int(result.figures[rule]["unknown"]) for rule in READER_RULES}
    return [(finding.rule, finding.offset) for finding in result.findings], unknown


def found(events: Sequence[Event], *logs: PartitionLog) -> list[tuple[str, int | None]]:
    return judged(events, *logs)[0]


def said(events: Sequence[Event], *logs: PartitionLog) -> list[str]:
    """The evidence of each finding."""
    result = kept_join(join([replace(each, order=number) for number, each in enumerate(events)], logs))
    return [finding.evidence for finding in result.findings]


def test_a_null_value_is_a_null_record_and_no_name_of_a_record(tmp_path: Path) -> None:
    log = log_of(tmp_path, None, COMMIT, "a", COMMIT, None)
    null = [event("Poll", "ok", "reader", offset, value=None) for offset in (0, 2)]
    assert found(null[:1], log) == []
    assert [rule for rule, *_ in found(null, log)] == [INCONSISTENT], "the record at offset 2 is not null"
    other = event("Send", "invoke", value=None, transaction=2)
    assert found([other, *null[:1]], log) == [], "readers and writers of null are not those of one record"
    assert found([replace(other, detail={"transaction": 2}), event("Poll", "ok", "reader", 0)], log) == []
    ended = [event("CommitTransaction", phase, transaction=2) for phase in ("invoke", "ok")]
    assert found([other, *ended], log) == [], "no value to look for"


def test_a_committed_record_that_is_in_the_log_and_was_given_to_the_reader_is_not_missing(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", COMMIT)
    assert found([end(0), *transaction(1, "a", "Commit", 0), poll(0, "a"), end(2)], log) == []


def test_an_aborted_record_of_a_committed_transaction_is_found_missing_once_per_transaction(
    tmp_path: Path,
) -> None:
    log = log_of(tmp_path, "a", "b", ABORT)
    events = [event("Send", "invoke", value="b", transaction=1), *transaction(1, "a", "Commit", 0)]
    [finding] = kept_join(join([replace(each, order=number) for number, each in enumerate(events)], [log])).findings
    assert (finding.rule, finding.file, finding.offset) == (COMMITTED_MISSING, f"{0:020d}.log", 1)
    told = "p was told that its transaction 1 is committed; 'b' is aborted (marker at offset 2)"
    assert finding.evidence == told


def test_a_record_of_a_committed_transaction_that_is_nowhere_is_missing_or_if_acknowledged_lost(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", COMMIT)
    assert found(transaction(1, "b", "Commit"), log) == [(COMMITTED_MISSING, None)]
    assert found(transaction(1, "b", "Commit", 5), log) == [(LOST, 5)]
    given_up = [event("Send", "fail", value="b", transaction=1), *transaction(1, "b", "Commit")]
    assert found(given_up, log) == []


def test_a_record_that_was_refused_at_first_and_then_acknowledged_is_looked_for(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", ABORT)
    refused = [event("Send", phase, value="a", transaction=1) for phase in ("invoke", "fail")]
    assert found([*refused, *transaction(1, "a", "Commit", 0)], log) == [(COMMITTED_MISSING, 0)]
    assert found([*refused, *transaction(1, "b", "Commit")], log_of(tmp_path / "b", "b", COMMIT)) == []


def test_a_send_without_a_partition_is_looked_for_where_its_acknowledgement_says(tmp_path: Path) -> None:
    bare, *rest = transaction(1, "a", "Commit", 0)
    bare = replace(bare, partition=None)
    assert bare.phase == "invoke"
    aborted, stored = log_of(tmp_path / "a", "a", ABORT), log_of(tmp_path / "b", "a", COMMIT)
    assert found([bare, *rest], aborted) == [(COMMITTED_MISSING, 0)]
    refused = replace(bare, phase="fail")
    assert found([bare, refused, *rest], aborted) == [(COMMITTED_MISSING, 0)], "a refusal names no partition"
    assert judged([bare, *rest], stored) == ([], dict.fromkeys(READER_RULES, 0))
    other = [replace(each, partition=1) for each in rest if each.action == "Send"]
    for events in ([bare, *rest, *other], [bare, *(each for each in rest if each.action != "Send")]):
        assert judged(events, stored)[1][COMMITTED_MISSING] == 1


def test_one_replica_with_the_commit_is_enough_and_a_shorter_one_says_nothing(tmp_path: Path) -> None:
    short, long = log_of(tmp_path / "1", "a"), log_of(tmp_path / "2", "a", COMMIT)
    assert found(transaction(1, "a", "Commit", 0), short, long) == []
    assert judged(transaction(1, "a", "Commit", 0), short)[1][COMMITTED_MISSING] == 1


def test_a_reader_may_be_given_the_value_of_any_replica(tmp_path: Path) -> None:
    logs = [log_of(tmp_path / value, value, COMMIT) for value in ("a", "b")]
    assert [found([poll(0, value)], *logs) for value in ("a", "b")] == [[], []]
    assert found([poll(0, "c")], *logs) == [(INCONSISTENT, 0)]


def test_after_a_hole_the_transaction_of_a_marker_is_unknown(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", 3, ABORT)
    assert judged(transaction(1, "a", "Commit", 0), log) == (
        [],
        {**dict.fromkeys(READER_RULES, 0), COMMITTED_MISSING: 1},
    )
    assert found([poll(0, "a")], log) == []


def test_a_reader_that_skips_a_committed_record_is_found_and_may_skip_an_aborted_one(
    tmp_path: Path,
) -> None:
    log = log_of(tmp_path, "a", ABORT, "b", "c", COMMIT)
    assert found([end(0), poll(2, "b"), poll(3, "c"), end(5)], log) == []
    assert found([end(0), poll(3, "c"), end(5)], log) == [(POLL_SKIP, 2)]
    assert said([end(0), poll(3, "c"), end(5)], log) == ["reader went from offset 0 to 3 and was not given 'b'"]
    assert found([end(0), end(5)], log) == [(POLL_SKIP, 2)]
    assert said([end(0), end(5)], log) == ["reader went from offset 0 to 5 and was not given 'b' and 1 more"]
    assert found([poll(3, "c"), end(5)], log) == [], "nobody knows where it began"
    crashed = [end(0), event("Crash", "ok", "reader"), poll(3, "c")]
    assert found(crashed, log) == []
    member = [replace(each, group="g") for each in (end(0), poll(3, "c"))]
    assert found(member, log) == [(POLL_SKIP, 2)]
    assert found([member[0], event("Revoke", "ok", "reader"), event("Assign", "ok", "reader"), member[1]], log) == []
    for moved in ("Revoke", "Assign"):
        assert found([member[0], event(moved, "ok", "reader"), member[1]], log) == []


def test_a_reader_that_reads_uncommitted_data_may_not_pass_over_an_aborted_record_either(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", ABORT, "b", COMMIT)
    unsure = [replace(each, isolation="read_uncommitted") for each in (end(0), poll(2, "b"))]
    assert found(unsure, log) == [(POLL_SKIP, 0)]


def test_without_a_log_records_that_a_reader_passed_over_are_unknown(tmp_path: Path) -> None:
    assert judged([poll(0, "a"), poll(2, "b")]) == (
        [],
        {**dict.fromkeys(READER_RULES, 0), POLL_SKIP: 1, ABORTED_DELIVERED: 2},
    )


def test_a_record_given_twice_is_found_unless_the_reader_sought_aborted_or_was_assigned_again(
    tmp_path: Path,
) -> None:
    log = log_of(tmp_path, "a", "b", COMMIT)
    again = [poll(0, "a"), poll(1, "b"), poll(0, "a")]
    assert found(again, log) == [(NON_MONOTONIC, 0)]
    assert found([poll(0, "a"), poll(0, "a")], log) == [(NON_MONOTONIC, 0)]
    [finding] = kept_join(join([replace(each, order=number) for number, each in enumerate(again)], [log])).findings
    assert finding.evidence.endswith(": it had been given offset 1 before")
    for moved in (
        event("Seek", "ok", "reader", 0),
        event("AbortTransaction", "ok", "reader", transaction=1),
        event("Assign", "ok", "reader"),
        event("Crash", "ok", "reader"),
    ):
        assert found([*again[:2], moved, again[2]], log) == [], moved
    elsewhere = event("Seek", "ok", "another", 0)
    assert found([*again[:2], elsewhere, again[2]], log) == [(NON_MONOTONIC, 0)]


def test_a_reader_that_sought_is_judged_from_there_on(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", "b", "c", COMMIT)
    assert found([poll(2, "c"), event("Seek", "ok", "reader", 0), poll(1, "b")], log) == [(POLL_SKIP, 0)]


def test_two_values_at_one_offset_are_inconsistent_whoever_was_told_and_whatever_the_log_has(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", COMMIT)
    other = event("Poll", "ok", "other", 0, value="z")
    assert found([poll(0, "a"), other]) == [(INCONSISTENT, 0)]
    assert found([poll(0, "a"), replace(poll(0, "a"), process="other")], log) == []
    assert found([other], log) == [(INCONSISTENT, 0)]
    sent = event("Send", "ok", "p", 0, value="a")
    assert found([sent, other]) == [(INCONSISTENT, 0)]
    assert said([poll(0, "a"), other]) == ["reader was told of 'a', other of 'z'"]
    assert said([other], log) == ["other was given 'z', the log has 'a'"]


def test_a_record_that_was_given_where_the_log_has_a_marker_or_ended_is_inconsistent(tmp_path: Path) -> None:
    log, holed = log_of(tmp_path / "1", "a", COMMIT), log_of(tmp_path / "2", "a", 3, "b", COMMIT)
    for offset, there in ((1, "a marker"), (2, "nothing: the log ends before offset 2")):
        [finding] = kept_join(join([poll(offset, "z")], [log])).findings
        assert (finding.rule, finding.offset) == (INCONSISTENT, offset)
        assert finding.evidence == f"reader was given 'z'; there is {there}"
    assert found([poll(2, "z")], holed) == [], "in a hole"
    assert found([poll(2, "b")], log, log_of(tmp_path / "3", "a", COMMIT, "b", COMMIT)) == [], "a replica has it"


def test_an_empty_value_is_not_the_null_that_the_log_has(tmp_path: Path) -> None:
    assert found([poll(0, "")], log_of(tmp_path / "empty", "", COMMIT)) == []
    [finding] = kept_join(join([poll(0, "")], [log_of(tmp_path / "null", None, COMMIT)])).findings
    assert (finding.rule, finding.offset) == (INCONSISTENT, 0)
    assert finding.evidence == "reader was given '', the log has null"


def test_a_poll_counts_only_with_what_it_tells(tmp_path: Path) -> None:
    log = log_of(tmp_path, "None", COMMIT)
    without_value, without_offset = event("Poll", "ok", "reader", 0), event("Poll", "ok", "reader", value="None")
    told = kept_join(join([without_value, without_offset, poll(0, "None")], [log])).figures
    assert told[INCONSISTENT]["checked"] == 1, "no value is not the text None"
    assert told[ABORTED_DELIVERED]["checked"] == 2, "a record at no offset cannot be looked up"


def test_a_record_that_is_given_before_anybody_asks_to_commit_it_is_found_once_for_its_transaction(
    tmp_path: Path,
) -> None:
    log = log_of(tmp_path, "a", "b", COMMIT)
    a, b = (transaction(1, value, "Commit", offset) for offset, value in enumerate("ab"))
    early = [a[0], b[0], poll(0, "a"), poll(1, "b"), *a[1:]]
    assert found(early, log) == [(PRECOMMITTED, 0)]
    told = "event 2: reader was given 'a', and p had not asked to commit its transaction 1 yet"
    assert said(early, log) == [told]
    assert found([a[0], b[0], *a[2:3], poll(0, "a"), poll(1, "b"), *a[3:]], log) == []
    itself = [replace(each, process="p") for each in (poll(0, "a"),)]
    assert found([a[0], *itself, *a[1:]], log) == [(PRECOMMITTED, 0)]


def test_a_record_that_is_given_too_early_is_of_the_transaction_that_was_not_aborted(tmp_path: Path) -> None:
    """A client that copies sends the same value again after an abort."""
    log = log_of(tmp_path, "a", ABORT, "a", COMMIT)
    first, second = transaction(1, "a", "Abort", 0), transaction(2, "a", "Commit", 2)
    early = [*first, second[0], poll(2, "a"), *second[1:]]
    [finding] = kept_join(join([replace(each, order=order) for order, each in enumerate(early)], [log])).findings
    assert (finding.rule, finding.offset) == (PRECOMMITTED, 2)
    assert finding.evidence.endswith("p had not asked to commit its transaction 2 yet")


def test_a_record_that_was_never_sent_and_is_given_all_the_same_is_found() -> None:
    events = [event("Send", "invoke", value="a"), event("Send", "fail", value="a"), poll(0, "a")]
    assert found(events) == [(DUPLICATE_VALUE, 0), (ABORTED_DELIVERED, 0)]
    assert found([*events[:2], event("Send", "invoke", value="a"), poll(0, "a")]) == []


def test_a_record_of_an_aborted_or_open_transaction_that_a_reader_was_given_is_found_once(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", "b", ABORT, "c")
    assert found([poll(0, "a"), poll(1, "b")], log) == [(ABORTED_DELIVERED, 0)]
    assert found([poll(3, "c")], log) == [(ABORTED_DELIVERED, 3)]
    given = "whose transaction is aborted (marker at offset 2)"
    assert said([poll(0, "a"), poll(1, "b")], log) == [f"reader was given 'a', {given}"]
    uncommitted = [replace(poll(0, "a"), isolation="read_uncommitted")]
    assert found(uncommitted, log) == []


def test_what_its_application_was_told_is_aborted_must_not_be_given_even_if_a_marker_commits_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", COMMIT)
    events = [*transaction(1, "a", "Abort", 0), poll(0, "a")]
    assert sorted(found(events, log)) == [(ABORTED_DELIVERED, 0), (UNASKED, 0)]


def test_a_record_that_is_not_in_the_log_is_unknown(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", COMMIT)
    assert judged([poll(9, "z")], log)[1][ABORTED_DELIVERED] == 1


@pytest.mark.parametrize(
    ("offset", "damaged", "there"), [(2, False, "nothing: the log ends before offset 2"), (2, True, "unknown")]
)
def test_what_may_be_in_a_damaged_end_is_unknown(offset: int, damaged: bool, there: str) -> None:
    contents = Contents(start=0, end=2, whole=not damaged, damaged_end=damaged)
    assert look(contents, offset, "a", covered=True) == there


@pytest.mark.parametrize(("sent_in", "unknown"), [({}, 0), ({"transaction": 1}, 1)])
def test_a_poll_without_an_order_is_unknown_only_if_its_record_is_of_a_transaction(
    sent_in: dict[str, int], unknown: int, tmp_path: Path
) -> None:
    log = log_of(tmp_path, "a", COMMIT)
    result = kept_join(join([event("Send", "invoke", value="a", **sent_in), poll(0, "a")], [log]))
    assert result.figures[PRECOMMITTED] == {"checked": 1, "unknown": unknown}
    assert result.findings == []


def test_the_last_stable_offset_goes_back_only_with_another_leader(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a", COMMIT, "b", COMMIT)
    assert found([end(2), end(2), end(4)], log) == [(POLL_SKIP, 2)]
    assert found([end(4), end(2)], log) == [(STABLE_WENT_BACK, 2)]
    assert said([end(4), end(2)], log) == ["event 1 of reader: the end was at offset 4 before"]
    without_order = kept_join(join([end(4), end(2), poll(2, "a"), poll(2, "a")], ())).findings
    assert [finding.evidence.partition(": ")[0] for finding in without_order] == ["reader", "reader"]
    assert found([end(4), event("LeaderChange", "ok", "broker"), end(2)], log) == []
    assert found([end(4), event("Crash", "ok", "broker"), end(2)], log) == [], "the brokers of all partitions"
    led, crashed = event("LeaderChange", "ok", "broker"), replace(event("Crash", "ok", "broker"), partition=None)
    assert found([led, end(4), crashed, end(2)], log) == [], "also of one that has had another leader before"
    elsewhere = replace(event("LeaderChange", "ok", "broker"), partition=1)
    assert found([end(4), elsewhere, end(2)], log) == [(STABLE_WENT_BACK, 2)]


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_gives_the_same_verdicts_and_findings_for_simulated_transactions(tmp_path: Path, spark: Any) -> None:
    some = 0
    for name in NAMED_FAILURES:
        write_transactions(simulate_failure(name), tmp_path / name)
        here = run([tmp_path / name])
        there = run([tmp_path / name], "spark", spark=spark)
        assert here.findings == there.findings
        assert [(v.name, v.ok) for v in here.verdicts] == [(v.name, v.ok) for v in there.verdicts]
        some += len(here.findings)
    assert some > 3


def sent(value: str, offset: int, **detail: Any) -> list[Event]:
    return [event("Send", "invoke", value=value, **detail), event("Send", "ok", offset=offset, value=value, **detail)]


def test_without_logs_an_acknowledged_record_that_readers_passed_and_none_was_given_is_lost() -> None:
    a, b, c = sent("a", 0), sent("b", 1), sent("c", 2)
    assert found([*a, *b, *c, poll(0, "a"), poll(2, "c")]) == [(LOST, 1)]
    assert found([*a, *b, *c, poll(0, "a"), poll(1, "b"), poll(2, "c")]) == []
    assert found([*a, *b, *c, poll(0, "a")]) == [], "no reader has gone that far"
    assert found([*a, *b, *c, poll(2, "c")]) == [], "nobody knows where it began"


def test_without_logs_a_record_of_a_transaction_is_lost_only_if_it_was_committed() -> None:
    inside = sent("b", 1, transaction=1)
    commit = [event("CommitTransaction", "invoke", transaction=1), event("CommitTransaction", "ok", transaction=1)]
    passed = [poll(0, "a"), poll(3, "d")]
    assert found([*inside, *commit, *passed]) == [(LOST, 1)]
    assert found([*inside, *passed]) == []


def test_without_logs_a_record_that_one_of_two_readers_skipped_is_found() -> None:
    other = [replace(poll(offset, value), process="other") for offset, value in ((0, "a"), (1, "b"), (2, "c"))]
    assert found([*other, poll(0, "a"), poll(2, "c")]) == [(POLL_SKIP, 1)]


def test_without_logs_a_value_that_was_given_at_more_offsets_than_it_was_sent_is_a_duplicate() -> None:
    once = event("Send", "invoke", value="a")
    assert found([once, poll(0, "a"), poll(1, "a")]) == [(DUPLICATE_VALUE, 1)]
    assert found([once, once, poll(0, "a"), poll(1, "a")]) == []
    unsure = [replace(each, isolation="read_uncommitted") for each in (poll(0, "a"), poll(1, "a"))]
    assert found([once, *unsure]) == [], "one of them may be aborted"
