"""The files next to a log: real ones obey the rules, except for Kafka's own errors; spoiled ones are found."""

import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, fields, replace
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import ControlRecord, ControlType, Record, build_batch, build_control_batch
from kafka_eos.formats.segment import (
    AbortedTransaction,
    ProducerSnapshotEntry,
    StoredBatch,
    read_producer_snapshot,
    read_segment,
    read_transaction_index,
)
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.logs import beside as kernel
from kafka_eos_checks.audit.oracle.synthetic import data_batch, write_segment
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.rules import beside
from kafka_eos_checks.audit.rules.beside import (
    ABORTED_INDEX,
    REPLICAS,
    SNAPSHOT,
    Beside,
    Files,
    audit_beside,
    files_of,
    judge_index,
)
from kafka_eos_checks.audit.rules.log import Batch, Subject
from kafka_eos_checks.audit.rules.transactions.partitions import read_transactions
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.audit.segments.order import stable_order
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.kit.recording import kept_recording, unpacked
from kafka_eos_checks.kit.verdict import Standing

from ..kept import as_kept, run
from ..test_moments import PID, data, marker, partition

PARTITION = "follower-catches-up-0"
FIRST = f"{0:020d}"
STAMPED = 1_700_000_000_000  # ms since the epoch, as `data_batch` stamps


@pytest.fixture(scope="module")
def recorded() -> Iterator[Path]:
    with unpacked(kept_recording("replicated-violations")) as folder:
        yield folder / "brokers"


@pytest.fixture
def brokers(recorded: Path, tmp_path: Path) -> Path:
    """Two brokers' logs of one partition, of the broker that led it first and of the one that came back."""
    for broker in ("1", "2"):
        shutil.copytree(recorded / broker / PARTITION, tmp_path / broker / PARTITION)
    return tmp_path


def judged(folder: Path) -> Beside:
    result = audit_beside(find_logs(folder))
    as_kept(result.findings, *map(str, result.figures.items()))
    return result


def rules(folder: Path) -> Counter[str]:
    return Counter(finding.rule for finding in judged(folder).findings)


def write_index(path: Path, entries: list[AbortedTransaction]) -> None:
    path.write_bytes(b"".join(struct.pack(">hqqqq", 0, *astuple(entry)) for entry in entries))


def write_snapshot(path: Path, entries: list[ProducerSnapshotEntry]) -> None:
    rows = b"".join(
        struct.pack(">qhiqiqiq", *(-1 if value is None else value for value in astuple(entry))) for entry in entries
    )
    checked = struct.pack(">i", len(entries)) + rows
    path.write_bytes(struct.pack(">hI", 1, google_crc32c.value(checked)) + checked)


@pytest.mark.parametrize(
    ("name", "late"), [("one-broker", 0), ("three-brokers", 0), ("transactions", 2), ("transactions-3.9", 0)]
)
def test_files_of_real_brokers_follow_from_their_logs_except_indexes_of_followers(name: str, late: int) -> None:
    with unpacked(kept_recording(name)) as folder:
        result = judged(folder / "brokers")
    assert Counter(finding.rule for finding in result.findings) == Counter({ABORTED_INDEX: late} if late else {})
    assert int(result.figures[ABORTED_INDEX]["entries"]) > 30
    assert int(result.figures[SNAPSHOT]["entries"]) >= 10
    assert {figures["unknown"] for figures in result.figures.values()} == {0}


def test_logs_are_read_in_blocks_of_any_size_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    with unpacked(kept_recording("three-brokers")) as folder:
        whole = judged(folder / "brokers")
        monkeypatch.setattr(headers, "BLOCK_BYTES", 700)
        pieces = judged(folder / "brokers")
    assert pieces == whole
    assert int(whole.figures[SNAPSHOT]["entries"]) >= 10


def test_a_follower_that_caught_up_has_an_entry_with_a_last_stable_offset_that_is_too_high(brokers: Path) -> None:
    (finding,) = judged(brokers).findings
    assert (finding.broker, finding.rule, finding.offset) == ("2", ABORTED_INDEX, 1)
    assert "last stable offset 2, found producer" in finding.evidence


def test_an_entry_of_the_index_that_is_wrong_or_missing_or_too_many_is_found(brokers: Path) -> None:
    path = brokers / "1" / PARTITION / f"{FIRST}.txnindex"
    entries = list(read_transaction_index(path))
    for name in ("producer_id", "first_offset", "last_stable_offset"):
        write_index(path, [replace(entries[0], **{name: getattr(entries[0], name) + 1}), *entries[1:]])
        assert rules(brokers)[ABORTED_INDEX] == 2, name
    write_index(path, [replace(entries[0], last_stable_offset=0), *entries[1:]])
    assert rules(brokers)[ABORTED_INDEX] == 2
    write_index(path, entries[1:])
    assert rules(brokers)[ABORTED_INDEX] == 2
    write_index(path, [*entries, replace(entries[0], first_offset=3, last_offset=3)])
    assert rules(brokers)[ABORTED_INDEX] == 2
    write_index(path, [*entries[1:], entries[0]])
    (found, *_) = [finding for finding in judged(brokers).findings if finding.broker == "1"]
    assert found.offset == entries[0].last_offset
    assert f"behind the one of offset {entries[-1].last_offset}: a search may end before it" in found.evidence
    path.write_bytes(path.read_bytes()[:-1])
    assert "no multiple of an entry" in str(judged(brokers).findings)


@pytest.mark.parametrize(("others", "is_there"), [(".index", True), (".index", False), (".txnindex", True),
                                                  (".txnindex", False), ("", True)])  # fmt: skip
def test_an_empty_or_missing_index_lacks_what_its_segment_aborted(others: str, is_there: bool, brokers: Path) -> None:
    folder = brokers / "1" / PARTITION
    for path in (*folder.glob("*.index"), *folder.glob("*.txnindex"), *folder.glob("*.snapshot")):
        path.unlink()
    found = judged(brokers / "1")
    assert not found.findings
    assert found.figures[ABORTED_INDEX]["entries"] == 0, "a copy without any index says nothing of indexes"
    (log,) = find_logs(brokers / "1")
    aborted = list(read_transactions(log).aborts_in(FIRST))
    if others == ".index":
        (folder / f"{FIRST}.index").touch()
    elif others:
        write_index(folder / f"{1 << 40:020d}.txnindex", [replace(aborted[0], last_offset=1 << 40)])
    if is_there:
        (folder / f"{FIRST}.txnindex").touch()
    lost = [finding for finding in judged(brokers / "1").findings if finding.file == f"{FIRST}.txnindex"]
    assert [finding.offset for finding in lost] == [each.last_offset for each in aborted] != []
    assert all(f"the file is {'empty' if is_there else 'missing'}: no entry" in finding.evidence for finding in lost)


def test_only_files_next_to_batches_are_looked_at_and_no_link_is_followed(brokers: Path, tmp_path: Path) -> None:
    folder = brokers / "1" / PARTITION
    (log,) = find_logs(brokers / "1")
    name, stray, snapshot = f"{FIRST}.txnindex", f"{1 << 40:020d}.txnindex", f"{1 << 41:020d}.snapshot"
    shutil.copy(folder / name, folder / stray)
    (folder / snapshot).touch()
    assert files_of(log) == Files(files_of(log).snapshots, (name, stray))
    assert snapshot not in files_of(log).snapshots, "Kafka deletes an empty one and reads the log"
    (folder / stray).rename(tmp_path / "elsewhere")
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "elsewhere")
    (folder / f"{1 << 42:020d}.snapshot").symlink_to(tmp_path / "elsewhere")
    assert files_of(log).indexes == ()
    assert f"{1 << 42:020d}.snapshot" not in files_of(log).snapshots
    result = Beside()
    judge_index(read_transactions(log), name, result)
    assert result.figures[ABORTED_INDEX]["entries"] == 0, "what the link names is not read"
    for path in (*folder.glob("*.snapshot"), folder / name):
        path.unlink()
    (folder / log.segments[0]).write_bytes(b"")
    assert files_of(log) is None, "an empty log has no index that could lack anything"


def test_in_a_log_with_a_hole_an_empty_index_is_not_judged(brokers: Path) -> None:
    (log,) = find_logs(brokers / "1")
    transactions, result = read_transactions(log), Beside()
    transactions.hole_starts.append(0)
    aborted = len(list(transactions.aborts_in(FIRST)))
    log.file(f"{FIRST}.txnindex").write_bytes(b"")
    judge_index(transactions, f"{FIRST}.txnindex", result)
    assert not result.findings
    assert result.figures[ABORTED_INDEX]["unknown"] == aborted > 0
    first = min(transactions.aborts_in(FIRST), key=lambda each: each.last_offset)
    assert result.first[ABORTED_INDEX] == (log.topic, log.partition, first.last_offset, first.producer_id)


def aborted(first: int) -> AbortedTransaction:
    """An aborted transaction of one batch and its marker, with no other one open."""
    last = first + 1
    return AbortedTransaction(producer_id=PID, first_offset=first, last_offset=last, last_stable_offset=last + 1)


@pytest.mark.parametrize("split_bytes", [100, 1 << 20])
@pytest.mark.parametrize("one_moment", [True, False])
def test_what_lies_before_the_first_hole_of_a_log_is_judged(one_moment: bool, split_bytes: int, tmp_path: Path) -> None:
    """Two segments of ten transactions; markers are missing at offsets 25 and 31, entries before and behind these."""
    batches = [
        each
        for number in range(20)
        for each in (
            data(2 * number, STAMPED, sequence=number),
            marker(2 * number + 1, STAMPED, ControlType.ABORT, epoch=0),
        )
    ]
    for begin in (0, 20):
        own = [each for each in batches[begin : begin + 20] if each.base_offset not in {25, 31}]
        write_segment(tmp_path / "orders-0" / f"{begin:020d}.log", [each.encode() for each in own])
        right = [aborted(first) for first in range(begin, begin + 20, 2)]
        wrong = [replace(each, last_stable_offset=99) if each.last_offset in {3, 21, 35} else each for each in right]
        lacking = [each for each in wrong if each.last_offset not in {5, 23, 33}]
        write_index(tmp_path / "orders-0" / f"{begin:020d}.txnindex", lacking)
    logs = find_logs(tmp_path)
    result = audit_beside(logs, one_moment=one_moment)
    assert [finding.offset for finding in result.findings] == [3, 5, 21, 23]
    assert result.figures[ABORTED_INDEX]["entries"] == 17
    assert result.figures[ABORTED_INDEX]["unknown"] == 7
    assert result.first[ABORTED_INDEX] == ("orders", 0, 25, PID)
    engine = LocalEngine()
    scanned = stages.scan_logs(logs, engine, split_bytes=split_bytes)
    _, ended = stages.judge_transactions(scanned, *stages.audit_coordinators(scanned, engine), engine)
    found, quick = stages.audit_around(scanned, engine, ended, one_moment=one_moment)
    assert sorted(found, key=Finding.sort_key) == sorted(result.findings, key=Finding.sort_key)
    assert (quick.figures, quick.first) == (result.figures, result.first)


def test_entries_that_are_missing_after_a_hole_are_not_judged_even_if_there_are_others_before_it(brokers: Path) -> None:
    (log,) = find_logs(brokers / "1")
    transactions, result = read_transactions(log), Beside()
    first, *rest = transactions.aborts_in(FIRST)
    transactions.hole_starts.append(first.last_offset + 1)
    write_index(log.file(f"{FIRST}.txnindex"), [first])
    judge_index(transactions, f"{FIRST}.txnindex", result)
    assert not result.findings
    assert result.figures[ABORTED_INDEX]["unknown"] == len(rest) > 0


def test_the_newest_index_of_a_running_broker_may_not_be_there_yet(brokers: Path) -> None:
    path = brokers / "1" / PARTITION / f"{FIRST}.txnindex"
    entries = len(read_transaction_index(path))
    path.write_bytes(b"")
    (log,) = find_logs(brokers / "1")
    result = audit_beside([log], one_moment=False)
    assert not [finding for finding in result.findings if finding.rule == ABORTED_INDEX]
    assert result.figures[ABORTED_INDEX]["recent"] == entries > 0


def test_an_index_that_went_with_its_segment_meanwhile_is_not_missed(brokers: Path) -> None:
    (log,) = find_logs(brokers / "1")
    transactions, result = read_transactions(log), Beside()
    (brokers / "1" / PARTITION / f"{FIRST}.txnindex").unlink()
    log.file(log.segments[0]).unlink()
    later = replace(transactions, log=replace(log, segments=(*log.segments, f"{1 << 40:020d}.log")))
    judge_index(later, f"{FIRST}.txnindex", result, one_moment=False)
    assert result == Beside()
    judge_index(later, f"{FIRST}.txnindex", result, one_moment=True)
    assert result.findings
    (brokers / "1" / PARTITION / f"{FIRST}.txnindex").write_bytes(b"")
    still_there = Beside()
    judge_index(later, f"{FIRST}.txnindex", still_there, one_moment=False)
    assert still_there.findings


def test_an_index_that_a_copy_lacks_of_its_first_segment_may_have_gone_before_it_was_copied(
    brokers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = find_logs(brokers / "1")
    transactions = read_transactions(log)
    (brokers / "1" / PARTITION / f"{FIRST}.txnindex").unlink()
    for one_moment, running, is_told in ((False, False, False), (False, True, True), (True, False, True)):
        monkeypatch.setattr("kafka_eos_checks.audit.rules.beside.is_locked", lambda _, running=running: running)
        result = Beside()
        later = replace(transactions, log=replace(log, segments=(*log.segments, f"{1 << 40:020d}.log")))
        judge_index(later, f"{FIRST}.txnindex", result, one_moment=one_moment)
        assert (bool(result.findings), bool(result.figures[ABORTED_INDEX]["unknown"])) == (is_told, not is_told)


@pytest.mark.parametrize("one_moment", [True, False])
def test_an_entry_beyond_the_end_of_the_log_excuses_no_entry_that_is_missing_before_it(
    one_moment: bool, brokers: Path
) -> None:
    """A byte of the entry's last offset is wrong. In copies of a running broker the index is then the later file."""
    path = brokers / "1" / PARTITION / f"{FIRST}.txnindex"
    *entries, last = read_transaction_index(path)
    write_index(path, [*entries, replace(last, last_offset=last.last_offset + (1 << 40))])
    (log,) = find_logs(brokers / "1")
    result = audit_beside([log], one_moment=one_moment)
    [finding] = [each for each in result.findings if each.rule == ABORTED_INDEX]
    assert (finding.offset, finding.evidence.startswith("no entry of producer")) == (last.last_offset, True)
    assert result.figures[ABORTED_INDEX]["unknown" if one_moment else "recent"] == 1


def test_an_entry_beyond_the_end_of_the_log_in_an_index_that_is_not_the_newest_is_wrong(brokers: Path) -> None:
    path = brokers / "1" / PARTITION / f"{FIRST}.txnindex"
    *entries, last = read_transaction_index(path)
    write_index(path, [*entries, replace(last, last_offset=last.last_offset + (1 << 40))])
    (log,) = find_logs(brokers / "1")
    rolled, result = replace(log, segments=(*log.segments, f"{last.last_offset + 1:020d}.log")), Beside()
    judge_index(replace(read_transactions(log), log=rolled), f"{FIRST}.txnindex", result, one_moment=False)
    assert [finding.offset for finding in result.findings] == [last.last_offset + (1 << 40), last.last_offset]
    assert result.figures[ABORTED_INDEX]["recent"] == 0


def test_a_marker_that_is_too_recent_counts_among_the_entries(brokers: Path) -> None:
    path = brokers / "1" / PARTITION / f"{FIRST}.txnindex"
    entries = read_transaction_index(path)
    write_index(path, list(entries[:-1]))
    (log,) = find_logs(brokers / "1")
    figures = audit_beside([log], one_moment=False).figures[ABORTED_INDEX]
    assert (figures["entries"], figures["recent"]) == (len(entries), 1)


def test_snapshots_of_a_log_without_a_batch_left_are_judged_up_to_its_last_segment(brokers: Path) -> None:
    (log,) = find_logs(brokers / "1")
    folder, end = brokers / "1" / PARTITION, read_transactions(log).end
    for segment in log.segments:
        (folder / segment).unlink()
    [*_, newest] = sorted(folder.glob("*.snapshot"))
    newest.rename(folder / f"{end:020d}.snapshot")
    (folder / f"{end:020d}.log").touch()
    figures = both_forms(brokers / "1").figures[SNAPSHOT]
    assert (figures["unknown"], figures["gone"] > 0) == (0, True)


@pytest.mark.parametrize("beyond", [0, 1_000])
def test_an_entry_beyond_the_end_of_the_log_is_unknown(beyond: int, brokers: Path) -> None:
    path = brokers / "1" / PARTITION / f"{FIRST}.txnindex"
    entries = list(read_transaction_index(path))
    [*_, last] = (part for part in read_segment(path.with_suffix(".log")) if isinstance(part, StoredBatch))
    write_index(path, [*entries, replace(entries[-1], last_offset=last.batch.next_offset + beyond)])
    result = judged(brokers)
    assert len(result.findings) == 1
    assert result.figures[ABORTED_INDEX]["unknown"] == 1


def test_the_first_entry_and_the_first_snapshot_that_are_not_judged_are_named(brokers: Path) -> None:
    folder = brokers / "1" / PARTITION
    path = folder / f"{FIRST}.txnindex"
    entries = list(read_transaction_index(path))
    (log,) = find_logs(brokers / "1")
    end = read_transactions(log).end
    later = [replace(entries[-1], last_offset=end + more, producer_id=PID + more) for more in (9, 2, 5)]
    write_index(path, [*entries, *later])
    for more in (4, 3):
        shutil.copy(max(folder.glob("*.snapshot")), folder / f"{end + more:020d}.snapshot")
    told = {each.name: each.unjudged for each in run([brokers / "1"], one_moment=True).verdicts}
    assert told[ABORTED_INDEX].endswith(f"; the first at {PARTITION} offset {end + 2} (producer {PID + 2})")
    assert told[SNAPSHOT].endswith(f"; the first at {PARTITION} offset {end + 3}")
    both_forms(brokers / "1")


@pytest.mark.parametrize("name", [f.name for f in fields(ProducerSnapshotEntry)])
def test_every_field_of_a_snapshot_is_compared(name: str, brokers: Path) -> None:
    path = max((brokers / "1" / PARTITION).glob("*.snapshot"))
    first, *others = read_producer_snapshot(path)
    write_snapshot(path, [first, *others])
    assert rules(brokers)[SNAPSHOT] == 0
    changed = (getattr(first, name) or 0) + 7
    write_snapshot(path, [replace(first, **{name: changed}), *others])
    (finding,) = [finding for finding in judged(brokers).findings if finding.rule == SNAPSHOT]
    assert (name if name != "producer_id" else "no batch") in finding.evidence


def test_a_snapshot_with_a_wrong_crc_is_found(brokers: Path) -> None:
    path = max((brokers / "1" / PARTITION).glob("*.snapshot"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert rules(brokers)[SNAPSHOT] == 1


def test_the_last_sequence_of_a_snapshot_is_that_after_the_wrap(tmp_path: Path) -> None:
    records = [Record(value=b"v", offset_delta=delta) for delta in range(2)]
    given = {"producer_id": PID, "producer_epoch": 0, "base_timestamp": STAMPED}
    partition(tmp_path, build_batch(records, base_offset=0, base_sequence=2**31 - 1, **given))
    entry = replace(entry_of(0, 1, None), offset_delta=1)
    write_snapshot(tmp_path / "orders-0" / f"{2:020d}.snapshot", [entry])
    result = judged(tmp_path)
    assert (result.findings, result.figures[SNAPSHOT]["entries"]) == ([], 1)


def test_a_transaction_that_began_before_the_log_has_an_entry_that_is_gone(tmp_path: Path) -> None:
    partition(tmp_path, data(2, STAMPED), data(3, STAMPED))
    for first, findings, gone in ((0, 0, 1), (3, 1, 0)):
        write_snapshot(tmp_path / "orders-0" / f"{4:020d}.snapshot", [entry_of(0, 3, first)])
        result = judged(tmp_path)
        assert (len(result.findings), result.figures[SNAPSHOT]["gone"]) == (findings, gone)


def test_producers_that_a_snapshot_does_not_have_may_have_expired(brokers: Path) -> None:
    path = max((brokers / "1" / PARTITION).glob("*.snapshot"))
    write_snapshot(path, list(read_producer_snapshot(path))[1:])
    assert rules(brokers)[SNAPSHOT] == 0


def test_replicas_with_another_batch_in_the_same_leader_epoch_differ_and_with_another_epoch_are_not_judged(
    brokers: Path,
) -> None:
    segment = brokers / "2" / PARTITION / f"{FIRST}.log"
    stored = [part for part in read_segment(segment) if isinstance(part, StoredBatch)]
    first = stored[0].batch

    def put(leader_epoch: int, delete_horizon_ms: int | None = None) -> None:
        made = build_batch(
            [Record(value=b"something else")],
            base_offset=0,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            base_sequence=first.base_sequence,
            base_timestamp=first.base_timestamp,
            partition_leader_epoch=leader_epoch,
            is_transactional=True,
            delete_horizon_ms=delete_horizon_ms,
        )
        segment.write_bytes(b"".join([made.encode(), *(part.batch.encode() for part in stored[1:])]))

    put(first.partition_leader_epoch)
    (finding,) = [finding for finding in judged(brokers).findings if finding.rule == REPLICAS]
    assert (finding.offset, finding.broker) == (0, "2")
    put(first.partition_leader_epoch + 9)
    assert rules(brokers)[REPLICAS] == 0
    found = judged(brokers)
    assert found.figures[REPLICAS]["unknown"] == 1
    assert (found.first[REPLICAS].offset, found.first[REPLICAS].producer_id) == (0, first.producer_id)
    (verdict,) = [each for each in run([brokers]).verdicts if each.name == REPLICAS]
    assert (verdict.standing, verdict.unjudged_for) == (Standing.NOT_JUDGED, {"other-moment": 1})
    led = (replace(part.batch, partition_leader_epoch=9) for part in stored)
    segment.write_bytes(b"".join(each.encode() for each in led))
    assert judged(brokers).figures[REPLICAS]["unknown"] == len(stored) > 1
    put(first.partition_leader_epoch, delete_horizon_ms=1)
    assert rules(brokers)[REPLICAS] == 0, "the cleaner of one replica has seen the batch"
    put(first.partition_leader_epoch)
    (brokers / "2" / PARTITION / "partition.metadata").write_text(f"version: 0\ntopic_id: {'A' * 22}\n")
    (brokers / "1" / PARTITION / "partition.metadata").unlink(missing_ok=True)
    assert rules(brokers)[REPLICAS] == 1, "nothing tells that they are of two topics"


@pytest.mark.parametrize("offsets", [(3, 9), (9, 3)])
def test_of_what_is_unknown_in_several_logs_the_first_by_place_is_named(offsets: tuple[int, int]) -> None:
    one, other = Beside(), Beside()
    for own, offset in zip((one, other), offsets, strict=True):
        own.leave(SNAPSHOT, PartitionLog("", "orders", 0, "", ()), offset)
    one.add(other)
    assert (one.first[SNAPSHOT].offset, one.figures[SNAPSHOT]["unknown"]) == (3, 2)


def test_batches_that_are_damaged_in_both_replicas_are_compared(brokers: Path) -> None:
    for broker, place in (("1", 65), ("2", 50)):  # in the records and in the producer id of the first batch
        segment = brokers / broker / PARTITION / f"{FIRST}.log"
        data = bytearray(segment.read_bytes())
        data[place] ^= 1
        segment.write_bytes(data)
    [finding] = [finding for finding in run([brokers], one_moment=True).findings if finding.rule == REPLICAS]
    assert (finding.offset, finding.broker) == (0, "2")


def test_a_log_without_its_beginning_is_judged_from_where_it_begins(brokers: Path) -> None:
    segment = brokers / "2" / PARTITION / f"{FIRST}.log"
    stored = [part for part in read_segment(segment) if isinstance(part, StoredBatch)]
    segment.write_bytes(segment.read_bytes()[stored[1].position :])
    result = judged(brokers)
    assert result.findings == []
    assert result.figures[ABORTED_INDEX] == {"entries": 4, "gone": 1, "unknown": 0, "recent": 0}
    assert result.figures[SNAPSHOT] == {"snapshots": 2, "entries": 4, "gone": 0, "unknown": 0, "recent": 0}
    index = brokers / "2" / PARTITION / f"{FIRST}.txnindex"
    index.write_bytes(index.read_bytes()[:-8] + (10**6).to_bytes(8, "big"))
    assert rules(brokers)[ABORTED_INDEX] == 1


def transaction_log(folder: Path, *batches: tuple[int, int, int | None]) -> Path:
    """A log of data of a transaction of producer 7, and of its marker: offset, epoch, and coordinator epoch or None."""
    made = []
    for offset, epoch, coordinator_epoch in batches:
        if coordinator_epoch is None:
            place = Batch(0, offset, offset, 7, epoch, 0, 0, unsequenced=False)
            made.append(data_batch(place, transactional=True))
            continue
        marker = ControlRecord(control_type=ControlType.ABORT, coordinator_epoch=coordinator_epoch)
        abort = build_control_batch(marker, producer_id=7, producer_epoch=epoch, timestamp=STAMPED)
        made.append(replace(abort, base_offset=offset))
    write_segment(folder / "t-0" / f"{FIRST}.log", [batch.encode() for batch in made])
    return folder / "t-0"


def entry_of(epoch: int, offset: int, first: int | None, coordinator_epoch: int = -1) -> ProducerSnapshotEntry:
    sequence = -1 if offset < 0 else 0
    return ProducerSnapshotEntry(
        producer_id=7,
        producer_epoch=epoch,
        last_sequence=sequence,
        last_offset=offset,
        offset_delta=0,
        timestamp=STAMPED,
        coordinator_epoch=coordinator_epoch,
        current_txn_first_offset=first,
    )


def both_forms(folder: Path, buckets: int = 1) -> Beside:
    """The files judged by the readable rules, and not otherwise by the plan."""
    expected = judged(folder)
    logs, engine = find_logs(folder), LocalEngine()
    engine.buckets = buckets
    scanned = stages.scan_logs(logs, engine)
    states, known = stages.audit_coordinators(scanned, engine)
    _, ended = stages.judge_transactions(scanned, states, known, engine)
    found, result = stages.audit_around(scanned, engine, ended, one_moment=True)
    assert [*found] == expected.findings
    assert (result.figures, result.first) == (expected.figures, expected.first)
    return expected


def test_data_of_a_later_epoch_are_of_the_transaction_that_is_open(tmp_path: Path) -> None:
    log = transaction_log(tmp_path, (0, 0, None), (1, 1, None), (2, 2, 5))
    write_snapshot(log / f"{1:020d}.snapshot", [entry_of(0, 0, 0)])
    write_snapshot(log / f"{2:020d}.snapshot", [entry_of(1, 1, 0)])
    write_snapshot(log / f"{3:020d}.snapshot", [entry_of(2, -1, None, 5)])
    write_index(
        log / f"{FIRST}.txnindex",
        [AbortedTransaction(producer_id=7, first_offset=0, last_offset=2, last_stable_offset=3)],
    )
    assert both_forms(tmp_path).findings == []
    write_snapshot(log / f"{2:020d}.snapshot", [entry_of(1, 1, 1)])
    [finding] = both_forms(tmp_path).findings
    assert finding.evidence == "current_txn_first_offset 1, expected 0"


@pytest.mark.parametrize("batches", [((0, 0, None), (2, 0, None), (4, 0, 5)), ((1, 0, None), (4, 0, 5))])
def test_a_hole_may_have_had_the_first_data_of_a_transaction(
    batches: tuple[tuple[int, int, int | None], ...], tmp_path: Path
) -> None:
    log = transaction_log(tmp_path, *batches)
    first, last = batches[0][0], batches[-2][0]
    write_snapshot(log / f"{first + 1:020d}.snapshot", [entry_of(0, first, 0)])
    write_snapshot(log / f"{last + 1:020d}.snapshot", [entry_of(0, last, 0)])
    assert both_forms(tmp_path).findings == []
    write_snapshot(log / f"{last + 1:020d}.snapshot", [entry_of(0, last, None)])
    assert len(both_forms(tmp_path).findings) == (last != 2), "the log has data that no marker has ended yet"


def test_what_a_hole_may_have_had_is_unknown_until_the_next_batch_and_the_next_marker(tmp_path: Path) -> None:
    """The hole has the offsets 2 to 3. The snapshots are of a log that had a marker of another coordinator in it."""
    log = transaction_log(tmp_path, (0, 0, None), (1, 0, 5), (4, 0, None), (5, 0, 6))
    write_index(log / f"{FIRST}.txnindex", [aborted(0)])
    later = replace(entry_of(0, 0, None, 5), timestamp=STAMPED + 7)
    snapshots = {2: later, 3: later, 4: later, 5: entry_of(0, 4, 4, 9), 6: entry_of(0, 4, None, 9)}
    for offset, entry in snapshots.items():
        write_snapshot(log / f"{offset:020d}.snapshot", [entry])
    result = both_forms(tmp_path)
    assert [(finding.file, finding.evidence) for finding in result.findings] == [
        (f"{2:020d}.snapshot", f"timestamp {STAMPED + 7}, expected {STAMPED}"),
        (f"{6:020d}.snapshot", "coordinator_epoch 9, expected 6"),
    ]
    assert result.figures[SNAPSHOT]["gone"] == 3


def test_a_transaction_that_was_open_before_a_hole_may_have_ended_there(tmp_path: Path) -> None:
    log = transaction_log(tmp_path, (0, 0, None))
    plain = data_batch(Batch(0, 3, 3, 7, 0, 0, 0, unsequenced=False))
    segment = log / f"{FIRST}.log"
    segment.write_bytes(segment.read_bytes() + plain.encode())
    write_snapshot(log / f"{4:020d}.snapshot", [entry_of(0, 3, None)])
    result = both_forms(tmp_path)
    assert (result.findings, result.figures[SNAPSHOT]["gone"]) == ([], 1)


@pytest.mark.parametrize("end", [2, 3])
def test_an_entry_is_unknown_if_the_last_segment_begins_beyond_the_last_batch(end: int, tmp_path: Path) -> None:
    log = transaction_log(tmp_path, (0, 0, None), (1, 0, None))
    (log / f"{end:020d}.log").touch()
    write_snapshot(log / f"{end:020d}.snapshot", [entry_of(0, 1, None, 5)])
    result = both_forms(tmp_path)
    assert (len(result.findings), result.figures[SNAPSHOT]["gone"]) == ((1, 0) if end == 2 else (0, 1))


def test_a_transaction_whose_marker_the_cleaner_has_emptied_needs_no_entry(tmp_path: Path) -> None:
    log = transaction_log(tmp_path, (0, 0, None), (1, 0, 5))
    write_index(log / f"{FIRST}.txnindex", [])
    [finding] = both_forms(tmp_path).findings
    assert finding.rule == ABORTED_INDEX
    data = data_batch(Batch(0, 0, 0, 7, 0, 0, 0, unsequenced=False), transactional=True)
    emptied = build_batch(
        [],
        base_offset=1,
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        last_offset_delta=0,
        base_timestamp=STAMPED,
        max_timestamp=STAMPED,
    )
    write_segment(log / f"{FIRST}.log", [data.encode(), emptied.encode()])
    assert both_forms(tmp_path).findings == []


@pytest.mark.parametrize("buckets", [1, 5])
def test_a_snapshot_whose_producers_several_tasks_judge_is_counted_once(buckets: int, tmp_path: Path) -> None:
    producers = range(7, 15)
    batches = [data_batch(Batch(0, pid - 7, pid - 7, pid, 0, 0, 0, unsequenced=False)) for pid in producers]
    write_segment(tmp_path / "t-0" / f"{FIRST}.log", [batch.encode() for batch in batches])
    entries = [replace(entry_of(0, pid - 7, None), producer_id=pid) for pid in producers]
    write_snapshot(tmp_path / "t-0" / f"{len(entries):020d}.snapshot", entries)
    result = both_forms(tmp_path, buckets)
    assert result.findings == []
    assert (result.figures[SNAPSHOT]["snapshots"], result.figures[SNAPSHOT]["entries"]) == (1, len(entries))


def test_a_chunk_costs_nothing_for_the_snapshots_of_a_logs_other_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = 20
    for offset in range(segments):
        own = data_batch(Batch(offset, offset, offset, PID, 0, offset, 0, unsequenced=False))
        write_segment(tmp_path / "t-0" / f"{offset:020d}.log", [own.encode()])
        write_snapshot(tmp_path / "t-0" / f"{offset:020d}.snapshot", [])
    sorted_ids: list[int] = []

    def counted(ids: NDArray[np.int64]) -> NDArray[np.int64]:
        sorted_ids.append(len(ids))
        return stable_order(ids)

    for module in (beside, kernel):
        monkeypatch.setattr(module, "stable_order", counted)
    audit = run([tmp_path])
    assert next(v for v in audit.verdicts if v.name == SNAPSHOT).figures["snapshots"] == segments
    assert len(sorted_ids) < 5 * segments


@pytest.mark.parametrize("buckets", [1, 5])
def test_data_of_a_later_epoch_hold_the_last_stable_offset_back_as_of_the_transaction_that_is_open(
    buckets: int, tmp_path: Path
) -> None:
    batches = [data(0, STAMPED, pid=7), data(1, STAMPED, pid=7, epoch=1), data(2, STAMPED, pid=8)]
    partition(tmp_path, *batches, marker(3, STAMPED, ControlType.ABORT, pid=8))
    aborted = AbortedTransaction(producer_id=8, first_offset=2, last_offset=3, last_stable_offset=0)
    index = tmp_path / "orders-0" / f"{FIRST}.txnindex"
    write_index(index, [aborted])
    assert both_forms(tmp_path, buckets).findings == []
    write_index(index, [replace(aborted, last_stable_offset=1)])
    assert {finding.rule for finding in both_forms(tmp_path, buckets).findings} == {ABORTED_INDEX}


def test_replicas_differ_if_one_has_a_marker_where_the_other_has_data() -> None:
    columns = {name: np.zeros(3, np.int64) for name in beside.REPLICA_COLUMNS}
    others = columns | {"attributes": np.array([0, headers.CONTROL_MASK, headers.TRANSACTIONAL_MASK])}
    assert beside._differ(columns, others).tolist() == [False, True, True]


@pytest.mark.parametrize("step", [1, -1])
def test_what_is_next_to_several_logs_is_added_up_and_the_first_unknown_place_kept(step: int) -> None:
    finding = Finding(rule=SNAPSHOT, topic="t", partition=0)
    one = Beside([finding], first={SNAPSHOT: Subject("t", 0, 9), ABORTED_INDEX: Subject("t", 0, 3)})
    two = Beside([replace(finding, topic="u")], first={SNAPSHOT: Subject("t", 0, 4), ABORTED_INDEX: Subject("t", 0, 8)})
    for more, part in ((1, one), (10, two)):
        for number, (rule, figures) in enumerate(part.figures.items(), 1):
            for name in figures:
                part.count(rule, name, more * number)
    parts = (one, two)[::step]
    parts[0].add(parts[1])
    assert sorted(each.topic for each in parts[0].findings) == ["t", "u"]
    assert parts[0].first == {SNAPSHOT: Subject("t", 0, 4), ABORTED_INDEX: Subject("t", 0, 3)}
    assert [set(figures.values()) for figures in parts[0].figures.values()] == [{11}, {22}, {33}]
