"""Offsets sent in transactions have histories that agree with the log, histories that do not, and some not to judge."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_eos.formats.consumer_offsets import TOPIC, OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.record_batch import ControlRecord, ControlType, Record, build_batch, build_control_batch
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.sent_offsets import NOT_AS_SENT
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs

from ..both_forms import join
from ..kept import kept_join

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def request(action: str, phase: str, epoch: int = 0, **detail: Any) -> Event:
    where = {"topic": "in", "partition": 0, "group": "g"} if action == "TxnOffsetCommit" else {}
    who = {"process": "wire/p", "producer_id": 7, "producer_epoch": epoch}
    return Event(run="r", action=action, phase=phase, detail=detail, **who, **where)


def sent(offset: int, phase: str = "ok", epoch: int = 0) -> list[Event]:
    return [request("TxnOffsetCommit", each, epoch, committed_offset=offset) for each in ("invoke", phase)]


def ended(commit: bool, phase: str = "ok", epoch: int = 0) -> list[Event]:
    return [request("EndTxn", each, epoch, committed=commit) for each in ("invoke", phase)]


def value_of(offset: int | None) -> bytes | None:
    return None if offset is None else OffsetCommitValue(offset=offset).encode()


def log_of(
    folder: Path, *entries: int | ControlType | None, transactional: bool = True, start: int = 0
) -> PartitionLog:
    """A log of ``__consumer_offsets``: an offset of the group for each number, tombstones for None, and markers."""
    key = OffsetCommitKey(group="g", topic="in", partition=0).encode()
    own: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True} if transactional else {}
    batches = [
        build_control_batch(
            ControlRecord(control_type=entry, coordinator_epoch=0), producer_id=7, producer_epoch=0, base_offset=at
        )
        if isinstance(entry, ControlType)
        else build_batch([Record(key=key, value=value_of(entry))], base_offset=at, **own)
        for at, entry in enumerate(entries, start)
    ]
    path = folder / f"{TOPIC}-0" / f"{start:020d}.log"
    write_segment(path, [batch.encode() for batch in batches])
    [log] = find_logs(path.parent)
    return log


def found(events: Sequence[Event], *logs: PartitionLog) -> list[tuple[str, int | None]]:
    numbered = [replace(each, order=number) for number, each in enumerate(events)]
    return [(each.evidence.rpartition(", ")[2], each.offset) for each in kept_join(join(numbered, logs)).findings]


def unknown(events: Sequence[Event], *logs: PartitionLog) -> int:
    numbered = [replace(each, order=number) for number, each in enumerate(events)]
    result = kept_join(join(numbered, logs))
    assert not result.findings
    return int(result.figures[NOT_AS_SENT]["unknown"])


def test_offsets_that_count_as_they_were_sent_are_no_finding(tmp_path: Path) -> None:
    log = log_of(tmp_path, 3, 5, COMMIT, 8, ABORT, 9, COMMIT)
    events = [*sent(3), *sent(5), *ended(True), *sent(8), *ended(False), *sent(9), *ended(True)]
    assert unknown(events, log) == 0


def test_an_offset_of_a_committed_transaction_that_does_not_count_is_missing(tmp_path: Path) -> None:
    log = log_of(tmp_path, 3, COMMIT, 5, ABORT)
    assert found([*sent(3), *ended(True), *sent(5), *ended(True)], log) == [("and does not count", None)]
    assert unknown([*sent(3), *ended(True), *sent(5, "fail"), *ended(True)], log) == 0, "it was not stored"
    assert unknown([*sent(3), *ended(True), *sent(5), *ended(True, "info")], log) == 0, "nobody was told"
    first = log_of(tmp_path / "first", 3, COMMIT)
    assert found([*sent(3), *sent(5), *ended(True)], first) == [("and does not count", None)], "only the first one does"


def test_an_offset_that_counts_and_was_never_sent_is_found_at_its_record(tmp_path: Path) -> None:
    assert found([*sent(3), *ended(True)], log_of(tmp_path, 3, 4, COMMIT)) == [("and was never sent", 1)]


def test_a_removed_offset_of_a_transaction_is_none_that_counts(tmp_path: Path) -> None:
    assert unknown([*sent(3), *ended(True)], log_of(tmp_path, 3, None, COMMIT)) == 0


def test_an_offset_that_counts_and_was_sent_only_in_an_aborted_transaction_is_found(tmp_path: Path) -> None:
    log = log_of(tmp_path, 3, COMMIT)
    how = "and was sent only in transactions that are aborted"
    assert found([*sent(3), *ended(False)], log) == [(how, 0)]
    assert unknown([*sent(3), *ended(False), *sent(3), *ended(True)], log) == 0, "sent again in the next one"
    assert unknown([*sent(3), *ended(False, "info")], log) == 0, "it may have ended in another way"


def test_the_end_of_a_transaction_without_offsets_is_not_that_of_the_one_before(tmp_path: Path) -> None:
    produced = [request("Produce", phase) for phase in ("invoke", "ok")]
    events = [*sent(3), *ended(False, "info"), *produced, *ended(True)]
    assert unknown(events, log_of(tmp_path, ABORT)) == 0


def test_a_late_answer_to_an_offset_of_the_transaction_before_stores_nothing_in_this_one(tmp_path: Path) -> None:
    asked, answered = sent(3)
    events = [asked, *ended(False), *sent(5), answered, *ended(True)]
    assert unknown(events, log_of(tmp_path, 3, ABORT, 5, COMMIT)) == 0


def test_a_delayed_duplicate_belongs_to_the_transaction_of_its_original(tmp_path: Path) -> None:
    copy = [request("TxnOffsetCommit", phase, committed_offset=3, repeats=1) for phase in ("invoke", "ok")]
    events = [*sent(3), *ended(False), *sent(5), *copy, *ended(True)]
    how = "and was sent only in transactions that are aborted"
    assert found(events, log_of(tmp_path, 3, ABORT, 5, 3, COMMIT)) == [(how, 3)]


def test_what_a_log_cannot_show_is_unknown(tmp_path: Path) -> None:
    events = [*sent(3), *ended(True)]
    assert unknown(events) == 1, "no log"
    assert unknown(events, log_of(tmp_path / "hole", 5, ABORT, 7, start=4)) == 1, "its beginning is missing"
    plain = log_of(tmp_path / "plain", 9, transactional=False)
    assert unknown(events, plain) == 1, "a later one outside of transactions may have replaced it"
    assert unknown([request("TxnOffsetCommit", "ok"), *events], log_of(tmp_path / "no", 4, COMMIT)) == 0
