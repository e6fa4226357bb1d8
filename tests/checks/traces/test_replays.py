"""Recordings replayed piece by piece, in this process and on Spark, against the readable way; and spoiled ones."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as some

from kafka_eos.formats.record_batch import CHECKED_FROM, HEADER_BYTES, ControlType
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import (
    MalformedTransactionRecord,
    TopicPartitions,
    TransactionLogValue,
    TransactionState,
    decode_value,
)
from kafka_eos.machines.consumer import Consumer
from kafka_eos.machines.partition_log import PartitionLog
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos_checks import cli
from kafka_eos_checks.kit.paths import recordings_folder
from kafka_eos_checks.kit.recording import kept_recording, unpack
from kafka_eos_checks.kit.verdict import read_verdicts
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.traces import command, coordinators, leaders, replays, scan, transitions
from kafka_eos_checks.traces.clients import SHOWN
from kafka_eos_checks.traces.coordinators import (
    Recorded,
    StateRecord,
    ToldRecord,
    WrittenMarker,
    compared,
    coordinator_constants,
    steps_of,
    told,
)
from kafka_eos_checks.traces.leaders import JUDGED_BY
from kafka_eos_checks.traces.replays import Rules, in_process, verdicts_of
from kafka_eos_checks.traces.scan import (
    COMMIT_MARKER,
    HOLE,
    LOG,
    NEW,
    PLAIN_BATCH,
    TRANSACTIONAL_BATCH,
    Piece,
    batch_of,
    event_rows,
    logs_of,
    pieces_of,
    tasks_of,
)
from kafka_eos_checks.traces.transitions import Transition, read_transition, transition_of
from kafka_eos_checks.traces.validation import Candidate, RememberingJudge, Trace, TraceStep, replay, replayed

from .cut_logs import cut_logs

pq = pytest.importorskip("pyarrow.parquet")

OVERRIDES = Registry().get("CoordinatorOfTraces").overrides
RULES = Rules(tuple(OVERRIDES.items()))
MACHINE = mutated(TransactionCoordinator, OVERRIDES)
WITHOUT_NUMBERS = mutated(coordinators.CoordinatorOfTraces, OVERRIDES)
SMALL = 30_000  # bytes of a piece: many of each log

Verdicts = dict[tuple[str, str], tuple[int, int | None]]  # (subject, trace) -> steps, and the position or None


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("transactions")
    unpack(kept_recording("transactions-3.9"), folder)
    return folder / "brokers"


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("one-broker")
    unpack(kept_recording("one-broker"), folder)
    return sorted((folder / "histories").glob("*.jsonl"))


def in_the_readable_way(folder: Path, *, may_be_new: bool = False, are_apart: bool = False) -> Verdicts:
    """The verdicts on a folder's traces, out of whole decoded logs and machines that keep all."""
    logs = replace(coordinators.read_recorded(folder), are_apart=are_apart)
    logs = logs if may_be_new else replace(logs, new={})
    registry = Registry()
    found: Verdicts = {}
    traces = coordinators.coordinator_traces(logs)
    model = coordinators.coordinator_model(registry.get("CoordinatorOfTraces"), traces, versions=frozenset({1, 2}))
    for trace in traces:
        found["coordinator", trace.name] = len(trace.steps), replay(model, MACHINE, trace).reference_index
    for version, entries in leaders.leader_traces(logs).items():
        model = leaders.leader_model(registry.get("MarkersVersion2"), entries, version)
        for trace in entries:
            found["leader", trace.name] = len(trace.steps), replay(model, Consumer, trace).reference_index
    return found


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The spoiled recording after the cleaner and retention have taken something from most of its logs."""
    folder = tmp_path_factory.mktemp("cut")
    unpack(kept_recording("transactions-3.9"), folder)
    for spoil in SPOILED:
        spoil(folder / "brokers")
    cut_logs(folder / "brokers", random.Random(3))
    return folder / "brokers"


def rows_of(table: Any) -> list[dict[str, Any]]:
    return table.to_pylist()  # type: ignore[no-any-return]


def said(table: Any) -> Verdicts:
    return {(row["subject"], row["trace"]): (row["steps"], row["position"]) for row in rows_of(table)}


# --- spoiled on disk -----------------------------------------------------------------------------------------------


def patched(segment: Path, batch: StoredBatch, at: int, value: bytes) -> None:
    """Write other bytes into a batch, and its CRC."""
    data = bytearray(segment.read_bytes())
    data[at : at + len(value)] = value
    end = batch.position + len(batch.batch.encode())
    checked = crc32c(bytes(data[batch.position + CHECKED_FROM : end]))
    data[batch.position + CHECKED_FROM - 4 : batch.position + CHECKED_FROM] = checked.to_bytes(4, "big")
    segment.write_bytes(bytes(data))


def batches(folder: Path, pattern: str, wanted: Callable[[Any], bool]) -> list[tuple[Path, StoredBatch]]:
    """The batches of the replicas that are read."""
    read = {Path(piece.path) for piece in pieces_of([folder])}
    return [
        (segment, stored)
        for segment in sorted(read.intersection(folder.glob(pattern)))
        for stored in read_segment(segment)
        if isinstance(stored, StoredBatch) and wanted(stored.batch)
    ]


def middle(found: list[Any]) -> Any:
    return found[len(found) // 2]


def another_decision(folder: Path) -> None:
    """A commit is completed as an abort."""

    def completes(batch: Any) -> bool:
        value = decode_value(batch.records()[0].value)
        return value is not None and value.transaction_status is TransactionState.COMPLETE_COMMIT

    segment, stored = middle(batches(folder, "*/__transaction_state-*/*.log", completes))
    value = stored.batch.records()[0].value
    at = segment.read_bytes().index(value, stored.position) + 16
    patched(segment, stored, at, bytes([TransactionState.COMPLETE_ABORT]))


def another_marker(folder: Path) -> None:
    """A marker says abort where the coordinator says commit."""

    def commits(batch: Any) -> bool:
        control = batch.control_record()
        return control is not None and control.control_type is ControlType.COMMIT

    segment, stored = middle(batches(folder, "*/[a-z]*/*.log", commits))
    key = stored.batch.records()[0].key
    patched(segment, stored, segment.read_bytes().index(key, stored.position + CHECKED_FROM) + 2, b"\0\0")


def an_older_epoch(folder: Path) -> None:
    """A batch of a transaction has an older epoch than the producer's last one."""
    found = batches(folder, "*/[a-z]*/*.log", lambda batch: batch.is_transactional and batch.producer_epoch > 0)
    again = [
        later
        for before, later in pairwise(found)
        if not later[1].batch.is_control and (before[0], *written_by(before[1])) == (later[0], *written_by(later[1]))
    ]
    segment, stored = middle(again)
    patched(segment, stored, stored.position + 51, bytes(2))


def written_by(stored: StoredBatch) -> tuple[int, int]:
    return stored.batch.producer_id, stored.batch.producer_epoch


SPOILED = (another_decision, another_marker, an_older_epoch)


@pytest.fixture(scope="module")
def spoiled(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording with each of the three done to it, so that some traces of each kind are wrong."""
    folder = tmp_path_factory.mktemp("spoiled")
    unpack(kept_recording("transactions-3.9"), folder)
    for spoil in SPOILED:
        spoil(folder / "brokers")
    return folder / "brokers"


MISSING = "hundreds-other-1"


def without(folder: Path, name: str) -> Path:
    """Remove all replicas of a partition from log directories."""
    replicas = list(folder.glob(f"*/{name}"))
    assert replicas
    for replica in replicas:
        shutil.rmtree(replica)
    return folder


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording without one of its partitions, like a copy of some of the brokers."""
    folder = tmp_path_factory.mktemp("lacking")
    unpack(kept_recording("transactions-3.9"), folder)
    return without(folder / "brokers", MISSING)


def test_a_recording_has_the_same_verdicts_as_in_the_readable_way(recording: Path) -> None:
    expected = in_the_readable_way(recording)
    assert {subject for subject, _ in expected} == {"coordinator", "leader"}
    assert all(position is None for _, position in expected.values())
    whole = in_process(pieces_of([recording]), RULES)
    assert said(whole) == expected
    pieces = pieces_of([recording], SMALL)
    assert len(pieces) > len(pieces_of([recording]))
    assert in_process(pieces, RULES).equals(whole)


def test_a_made_cluster_whose_coordinators_sent_markers_again_is_accepted_in_both_ways(tmp_path: Path) -> None:
    made = ["lab", "generate", str(tmp_path / "made"), "--transactions", "300", "--batches", "2000"]
    assert cli.main(made) == 0
    expected = in_the_readable_way(tmp_path / "made" / "brokers")
    assert {subject for subject, _ in expected} == {"coordinator", "leader"}
    assert all(position is None for _, position in expected.values())
    assert said(in_process(pieces_of([tmp_path / "made" / "brokers"], SMALL), RULES)) == expected
    markers = [
        marker for own in coordinators.read_recorded(tmp_path / "made" / "brokers").markers.values() for marker in own
    ]
    assert any(marker.again for marker in markers)


def test_spoiled_logs_are_rejected_at_the_same_event_as_in_the_readable_way(spoiled: Path) -> None:
    expected = in_the_readable_way(spoiled)
    rejected = {key for key, (_, position) in expected.items() if position is not None}
    assert {subject for subject, _ in rejected} == {"coordinator", "leader"}
    table = in_process(pieces_of([spoiled], SMALL), RULES)
    assert said(table) == expected
    assert {(row["subject"], row["trace"]) for row in rows_of(table) if row["reason"]} == rejected
    assert any("is not enabled" in row["reason"] for row in rows_of(table))
    assert not any("possible states before it: 0" in row["reason"] for row in rows_of(table))
    assert not any("offset -1" in row["reason"] for row in rows_of(table)), "it tells the place in the log"


def test_of_a_partition_that_is_not_given_the_markers_are_taken_for_written_and_its_writers_are_not_judged(
    lacking: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = in_the_readable_way(lacking)
    assert all(position is None for _, position in expected.values()), "nothing is rejected for it"
    table = in_process(pieces_of([lacking], SMALL), RULES)
    assert said(table) == expected
    unjudged = {row["trace"]: row for row in rows_of(table) if row["accepted"] is None}
    absent = coordinators.read_recorded(lacking).absent
    assert unjudged.keys() == {name for name, partitions in absent.items() if partitions}
    assert 0 < len(unjudged) < len(absent)
    assert {row["unjudged"] for row in unjudged.values()} == {"missing-partition"}
    assert all(f"no log of {MISSING}: the markers there" in row["reason"] for row in unjudged.values())
    for allowed, code in (([], 3), (["--allow-unjudged", "missing-partition"], 0)):
        assert cli.main(["check", "traces", str(lacking), "--alone", *allowed]) == code
    words = f"{len(unjudged)} transactional ids with partitions whose logs are not given"
    assert words in " ".join(capsys.readouterr().out.split())


def test_a_partition_whose_log_is_empty_may_have_been_made_again_in_both_ways(tmp_path: Path) -> None:
    unpack(kept_recording("no-leader-3.9"), tmp_path / "copy")
    brokers = tmp_path / "copy" / "brokers"
    for segment in brokers.glob("*/commit-then-abort-0/*.log"):
        segment.write_bytes(b"")
    strict = in_the_readable_way(brokers)
    assert {name for (_, name), (_, position) in strict.items() if position is not None} == {"commit-then-abort-t"}
    table = in_process(pieces_of([brokers]), RULES)
    assert said(table) == in_the_readable_way(brokers, may_be_new=True)
    assert {row["trace"]: row["unjudged"] for row in rows_of(table) if row["unjudged"]} == {
        "commit-then-abort-t": "made-again"
    }


@pytest.mark.parametrize("release", ["", "-3.9"])
def test_a_topic_that_was_made_again_lacks_the_markers_from_before_in_both_ways(release: str, tmp_path: Path) -> None:
    unpack(recordings_folder() / "healthy" / f"healthy-topics-made-again{release}.tar.xz", tmp_path)
    brokers = tmp_path / "brokers"
    strict, loose = in_the_readable_way(brokers), in_the_readable_way(brokers, may_be_new=True)
    doubtful = {name for (_, name), (_, position) in strict.items() if position is not None}
    assert doubtful == {"topics-made-again-slow", "topics-made-again-t"}
    table = in_process(pieces_of([brokers]), RULES)
    assert said(table) == {key: loose[key] if key[1] in doubtful else strict[key] for key in strict}
    assert {row["trace"] for row in rows_of(table) if row["unjudged"] == "made-again"} == doubtful
    assert not [row for row in rows_of(table) if row["accepted"] is False]
    for segment in brokers.glob("*/topics-made-again-1/*.log"):
        *first, _ = (region for region in read_segment(segment) if isinstance(region, StoredBatch))
        segment.write_bytes(b"".join(each.batch.encode() for each in first))
    both = {row["trace"]: row["unjudged"] for row in rows_of(in_process(pieces_of([brokers]), RULES, {0}))}
    assert (both["topics-made-again-slow"], both["topics-made-again-t"]) == ("other-moment", "made-again")


def test_a_partition_whose_folder_has_no_segment_is_not_there_in_both_ways(tmp_path: Path) -> None:
    unpack(kept_recording("no-leader-3.9"), tmp_path / "copy")
    brokers = tmp_path / "copy" / "brokers"
    for segment in brokers.glob("*/commit-then-abort-0/*.log"):
        segment.unlink()
    assert coordinators.read_recorded(brokers).absent["commit-then-abort-t"] == ["commit-then-abort-0"]
    expected = in_the_readable_way(brokers)
    assert all(position is None for _, position in expected.values())
    table = in_process(pieces_of([brokers]), RULES)
    assert said(table) == expected
    assert {row["trace"] for row in rows_of(table) if row["accepted"] is None} == {"commit-then-abort-t"}


def test_histories_have_the_verdicts_of_their_traces_one_by_one(histories: list[Path]) -> None:
    expected: dict[tuple[int, str], tuple[int, int | None]] = {}
    for source, path in enumerate(histories):
        for trace in _traces(path):
            model = command.partition_log_model(Registry().get("PartitionLog"), [trace])
            index = replay(model, PartitionLog, trace).reference_index
            expected[source, trace.name] = len(trace.steps), index
    assert len({index is None for _, index in expected.values()}) == 2
    for piece_bytes in (SMALL, 1 << 25):
        rows = rows_of(in_process(pieces_of(histories, piece_bytes), RULES))
        judged = {(row["source"], row["trace"]): (row["steps"], row["position"]) for row in rows if row["steps"]}
        assert judged == expected
        assert {row["reason"] for row in rows if row["accepted"] is None} == {
            "it has a batch of a transaction, or of a producer without idempotence: left out"
        }


def test_a_restart_is_one_of_its_own_history_though_another_one_has_the_same_name(
    histories: list[Path], tmp_path: Path
) -> None:
    (path,) = (path for path in histories if path.name == "trace.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    files = [tmp_path / "restarted" / path.name, tmp_path / "other" / path.name]
    for file, left_out in zip(files, ("nothing", '"Restart"'), strict=True):
        file.parent.mkdir()
        file.write_text("".join(line for line in lines if left_out not in line), encoding="utf-8")
    alone = [in_process(pieces_of([file]), RULES).to_pylist() for file in files]
    together = in_process(pieces_of(files), RULES).to_pylist()
    assert together == [row | {"source": source} for source, own in enumerate(alone) for row in own]
    assert [row["steps"] for row in alone[0]] != [row["steps"] for row in alone[1]]


def _traces(path: Path) -> list[Trace]:
    return [found for found in command.partitions(path) if isinstance(found, Trace)]


def test_what_workers_of_spark_run_has_the_same_verdicts(
    spoiled: Path, lacking: Path, cut: Path, histories: list[Path]
) -> None:
    import pyarrow as pa  # noqa: PLC0415

    from kafka_eos_checks.traces import spark  # noqa: PLC0415

    pieces = pieces_of([spoiled, lacking, cut, *histories], SMALL)
    tasks = pa.RecordBatch.from_pydict({"task": tasks_of(pieces, 200_000)})
    rows = list(spark._read([tasks]))
    holes, firsts = (pa.Table.from_batches(r for r in rows if r["kind"][0].as_py() == kind) for kind in (HOLE, NEW))
    begins, new = replays.begins_of(holes), replays.new_of(firsts)
    tagged = spark._tagging(RULES, begins)(replays._sorted(rows, replays.BY_PRODUCER))
    found = spark._judging(RULES, logs_of(pieces), begins, new, {1})(replays._sorted(tagged, replays.BY_TRACE))
    whole = pa.Table.from_batches([*found, replays.begun(begins)])
    assert replays.in_order(whole).equals(in_process(pieces, RULES, {1}))
    assert rows_of(spark.on_spark([], RULES)) == [], "for which no session is started"


@pytest.mark.spark
def test_spark_has_the_same_verdicts_row_by_row(
    recording: Path, spoiled: Path, lacking: Path, cut: Path, histories: list[Path], spark: Any
) -> None:
    from kafka_eos_checks.traces.spark import on_spark  # noqa: PLC0415

    pieces = pieces_of([recording, spoiled, lacking, cut, *histories], SMALL)
    expected = in_process(pieces, RULES)
    assert {row["accepted"] for row in rows_of(expected)} == {True, False, None}
    found = on_spark(pieces, RULES, spark=spark, task_bytes=200_000)
    assert rows_of(found) == rows_of(expected)
    assert found.equals(expected)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_command_replays_on_spark(recording: Path, spoiled: Path, tmp_path: Path) -> None:
    table = tmp_path / "verdicts.parquet"
    assert cli.main(["check", "traces", str(recording), "--spark", "--table", str(table)]) == 0
    assert pq.read_table(table).equals(in_process(pieces_of([recording]), RULES))
    assert cli.main(["check", "traces", str(spoiled), "--spark"]) == 1


# --- logs that are no traces ---------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    unpack(kept_recording("transactions-3.9"), tmp_path / "copy")
    return tmp_path / "copy" / "brokers"


def of_logs(folder: Path) -> dict[str, str]:
    """The verdicts on the logs that are no traces, by log."""
    found: dict[str, str] = {}
    for row in rows_of(in_process(pieces_of([folder]), RULES)):
        if row["subject"] == LOG and not row["accepted"]:
            found[row["trace"]] = f"{found.get(row['trace'], '')}{row['reason']}\n"
    return found


def begun(folder: Path) -> dict[str, int]:
    """The offsets from which on logs lack nothing, of those that lack something; the readable way finds the same."""
    rows = rows_of(in_process(pieces_of([folder]), RULES))
    found = {row["trace"]: row["position"] for row in rows if row["subject"] == LOG and row["accepted"]}
    assert coordinators.read_recorded(folder).begins == found
    return found


def largest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


def only_replica(segment: Path) -> None:
    """Remove the other replicas of a partition."""
    for other in segment.parents[2].glob(f"*/{segment.parent.name}/*.log"):
        if other != segment:
            other.unlink()


@pytest.mark.parametrize("pattern", ["*/__transaction_state-*/*.log", "*/[a-z]*/*.log"])
def test_a_log_that_lacks_a_batch_is_judged_from_the_next_one_on(copy: Path, pattern: str) -> None:
    segment = largest(copy, pattern)
    only_replica(segment)
    _, gone = middle(batches(copy, str(segment.relative_to(copy)), lambda _: True))
    data = segment.read_bytes()
    segment.write_bytes(data[: gone.position] + data[gone.position + len(gone.batch.encode()) :])
    assert begun(copy) == {segment.parent.name: gone.batch.next_offset}
    assert of_logs(copy) == {}


def test_a_log_of_states_is_judged_from_after_a_batch_that_has_lost_a_record(copy: Path) -> None:
    segment = largest(copy, "*/__transaction_state-*/*.log")
    only_replica(segment)
    _, last = batches(copy, str(segment.relative_to(copy)), lambda _: True)[-1]
    records = len(last.batch.records())
    patched(segment, last, last.position + 23, records.to_bytes(4, "big"))  # lastOffsetDelta
    assert begun(copy) == {segment.parent.name: last.batch.base_offset + records + 1}


def test_damage_is_reported_and_a_torn_tail_is_not_and_a_log_may_begin_later(copy: Path) -> None:
    assert of_logs(copy) == {}
    segment = largest(copy, "*/__transaction_state-*/*.log")
    only_replica(segment)
    data = segment.read_bytes()
    segment.write_bytes(data[:-10])
    assert of_logs(copy) == {}
    segment.write_bytes(data[:500] + bytes([data[500] ^ 0xFF]) + data[501:])
    assert "at byte" in of_logs(copy)[segment.parent.name]
    verdict = verdicts_of(in_process(pieces_of([copy]), RULES), [copy])[-1]
    assert (verdict.name, verdict.ok) == (f"logs of {copy.name}", False)
    assert verdict.found.startswith("1 not whole")
    segment.write_bytes(data)
    _, second = batches(copy, str(segment.relative_to(copy)), lambda batch: batch.base_offset > 0)[0]
    segment.unlink()
    segment.with_name(f"{second.batch.base_offset:020d}.log").write_bytes(data[second.position :])
    assert begun(copy) == {segment.parent.name: second.batch.base_offset}


def test_a_segment_that_is_torn_before_another_one_is_unreadable(copy: Path) -> None:
    segment = largest(copy, "*/__transaction_state-*/*.log")
    only_replica(segment)
    data = segment.read_bytes()
    found = batches(copy, str(segment.relative_to(copy)), lambda _: True)
    cut = middle(found)[1]
    segment.write_bytes(data[: cut.position - 5])
    segment.with_name(f"{cut.batch.base_offset:020d}.log").write_bytes(data[cut.position :])
    assert "at byte" in of_logs(copy)[segment.parent.name]
    with pytest.raises(coordinators.UnreadableLog, match="at byte"):
        coordinators.read_recorded(copy)


def test_zeroes_in_the_middle_are_unreadable_and_not_the_end_of_a_log(copy: Path) -> None:
    segment = largest(copy, "*/__transaction_state-*/*.log")
    only_replica(segment)
    data = segment.read_bytes()
    gone = middle(batches(copy, str(segment.relative_to(copy)), lambda _: True))[1]
    end = gone.position + len(gone.batch.encode())
    segment.write_bytes(data[: gone.position] + bytes(end - gone.position) + data[end:])
    assert f"at byte {gone.position}" in of_logs(copy)[segment.parent.name]
    with pytest.raises(coordinators.UnreadableLog, match=f"at byte {gone.position}"):
        coordinators.read_recorded(copy)


def test_a_batch_whose_records_cannot_be_decoded_is_unreadable_though_its_crc_is_right(copy: Path) -> None:
    for pattern, wanted in (("*/[a-z]*/*.log", True), ("*/__transaction_state-*/*.log", False)):
        segment, spoiled = batches(copy, pattern, lambda batch, wanted=wanted: batch.is_control is wanted)[0]
        only_replica(segment)
        patched(segment, spoiled, spoiled.position + HEADER_BYTES, b"\x01")  # a record of -1 bytes
        said = f"^{segment.parent.name} offset {spoiled.batch.base_offset}: "
        with pytest.raises(coordinators.UnreadableLog, match=said):
            coordinators.read_recorded(copy)
    assert f"at byte {spoiled.position}" in of_logs(copy)[segment.parent.name]


def test_bytes_after_a_piece_that_are_no_offset_begin_no_batch(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff" * 8)
    piece = Piece(source=0, log="orders-0", path=str(tmp_path / "log"), start=0, end=0, first=0)
    assert scan._following(piece) == -1


def test_a_log_without_a_segment_in_the_middle_is_judged_from_the_next_one_on(copy: Path) -> None:
    segment = largest(copy, "*/__transaction_state-*/*.log")
    only_replica(segment)
    data = segment.read_bytes()
    found = batches(copy, str(segment.relative_to(copy)), lambda _: True)
    first, second = found[len(found) // 3][1], found[2 * len(found) // 3][1]
    segment.write_bytes(data[: first.position])
    later = segment.with_name(f"{second.batch.base_offset:020d}.log")
    later.write_bytes(data[second.position :])
    assert begun(copy) == {segment.parent.name: second.batch.base_offset}
    segment.unlink()
    later.write_bytes(b"")
    assert begun(copy) == {segment.parent.name: second.batch.base_offset}, "and is empty"


def test_a_log_in_three_segments_misses_nothing(copy: Path) -> None:
    segment = largest(copy, "*/__transaction_state-*/*.log")
    only_replica(segment)
    whole = in_process(pieces_of([copy]), RULES)
    data = segment.read_bytes()
    found = batches(copy, str(segment.relative_to(copy)), lambda _: True)
    first, second = found[len(found) // 3][1], found[2 * len(found) // 3][1]
    segment.write_bytes(data[: first.position])
    for begin, end in ((first, second.position), (second, len(data))):
        later = segment.with_name(f"{begin.batch.base_offset:020d}.log")
        later.write_bytes(data[begin.position : end])
    assert in_process(pieces_of([copy]), RULES).equals(whole)


def test_a_history_that_is_none_is_a_verdict(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text('{"run": "r"}\n')
    (row,) = rows_of(in_process(pieces_of([path]), RULES))
    assert (row["subject"], row["accepted"]) == (LOG, False)
    assert "missing column(s) process" in row["reason"]


def test_after_kafkas_last_sequence_comes_the_first_one_again_and_five_batches_are_remembered() -> None:
    last = 2**31 - 1
    sequences = [(1, 0), (2, last - 1), (2, last), *((2, sequence) for sequence in range(4))]
    appended = [
        TraceStep((Candidate("AppendBatch", (producer_id, 0, sequence, 1)),), {"response.offset": offset})
        for offset, (producer_id, sequence) in enumerate(sequences)
    ]

    def again(place: int) -> TraceStep:
        batch = (2, 0, sequences[place][1], 1)
        return TraceStep((Candidate("AcknowledgeDuplicate", batch),), {"response.offset": place})

    for place, position in ((2, None), (1, 8)):
        trace = Trace("wraps", (*appended, again(place)))
        assert replayed(PartitionLog, replays._partition_constants(trace), trace)[0] == position


def test_an_explanation_of_more_than_600_characters_is_cut() -> None:
    assert replays._shortened("x" * 600) == "x" * 600
    assert replays._shortened("x" * 601) == "x" * 600 + "…"


@pytest.mark.parametrize("more", [0, 3])
def test_of_many_rejected_traces_the_first_are_told_and_the_others_counted(more: int) -> None:
    import pyarrow as pa  # noqa: PLC0415

    rows = pa.Table.from_pylist([{"trace": f"t-{number}", "reason": "wrong"} for number in range(SHOWN + more)])
    told = [f"t-{number}: wrong" for number in range(SHOWN)]
    assert replays._evidence(rows).splitlines() == told + ([f"… and {more} more"] if more else [])


# --- what makes it fast ----------------------------------------------------------------------------------------------

_VALUES = some.builds(
    TransactionLogValue,
    version=some.sampled_from([0, 1]),
    producer_id=some.integers(-1, 2**63 - 1),
    producer_epoch=some.integers(-1, 2**15 - 1),
    transaction_timeout_ms=some.integers(0, 100),
    transaction_status=some.sampled_from(list(TransactionState)),
    transaction_partitions=some.none()
    | some.lists(
        some.builds(
            TopicPartitions,
            topic=some.sampled_from(["a", "orders", "t" * 126, "t" * 127, "t" * 200]),
            partition_ids=some.lists(some.integers(0, 99), max_size=130).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    transaction_last_update_timestamp_ms=some.integers(0, 200),
    transaction_start_timestamp_ms=some.integers(-1, 200),
)
_TAGGED = some.fixed_dictionaries(
    {
        "next_producer_id": some.sampled_from([-1, 5]),
        "previous_producer_id": some.sampled_from([-1, 4]),
        "client_transaction_version": some.integers(0, 3),
    }
)


@given(
    _VALUES, _TAGGED, some.lists(some.tuples(some.integers(0, 2**16), some.integers(0, 255)), max_size=2), some.data()
)
def test_a_transition_is_read_out_of_bytes_as_the_codec_reads_it(
    value: TransactionLogValue, tagged: dict[str, int], changes: list[tuple[int, int]], data: some.DataObject
) -> None:
    encoded = bytearray((replace(value, **tagged) if value.version else value).encode())  # type: ignore[arg-type]
    for place, byte in changes:
        encoded[place % len(encoded)] = byte
    whole = bytes(encoded[: data.draw(some.sampled_from([len(encoded), len(encoded), len(encoded) // 2]))])
    assert outcome(read_transition, whole) == outcome(by_the_codec, whole)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("status", [8, 0x7F, 0xFF])
def test_a_state_that_there_is_not_is_told_as_the_codec_tells_it(version: int, status: int) -> None:
    value = TransactionLogValue(
        version=version,
        producer_id=7,
        producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_status=TransactionState.EMPTY,
        transaction_partitions=(),
        transaction_last_update_timestamp_ms=0,
        transaction_start_timestamp_ms=0,
    )
    encoded = bytearray(value.encode())
    encoded[16] = status
    told = outcome(read_transition, bytes(encoded))
    assert "does not exist" in told
    assert told == outcome(by_the_codec, bytes(encoded))


def of_two_topics(version: int) -> TransactionLogValue:
    value = TransactionLogValue(
        version=version,
        producer_id=7,
        producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_status=TransactionState.ONGOING,
        transaction_partitions=(
            TopicPartitions(topic="a" * 20, partition_ids=(0, 1)),
            TopicPartitions(topic="orders" * 3, partition_ids=(7,)),
        ),
        transaction_last_update_timestamp_ms=9,
        transaction_start_timestamp_ms=8,
    )
    return replace(value, next_producer_id=5, client_transaction_version=2) if version else value


@pytest.mark.parametrize("version", [0, 1])
def test_every_cut_and_every_odd_byte_is_told_as_the_codec_tells_it(version: int) -> None:
    whole = of_two_topics(version).encode()
    wrong = [whole[:size] for size in range(len(whole))]
    for place in range(len(whole)):
        wrong += [whole[:place] + bytes([byte]) + whole[place + 1 :] for byte in (0, 1, 0x7E, 0x7F, 0x80, 0xFF)]
    for data in (whole, *wrong):
        assert outcome(read_transition, data) == outcome(by_the_codec, data), data.hex()


@pytest.mark.parametrize("version", [0, 1])
def test_of_two_records_with_the_same_partitions_the_codec_decodes_the_first_only(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = of_two_topics(version)
    read_transition(value.encode())
    second = replace(
        value,
        producer_epoch=3,
        transaction_status=TransactionState.PREPARE_COMMIT,
        transaction_last_update_timestamp_ms=100,
    ).encode()
    expected = by_the_codec(second)
    monkeypatch.setattr(transitions, "decode_value", lambda _: pytest.fail("the codec decodes the second"))
    assert read_transition(second) == expected


def by_the_codec(data: bytes) -> Any:
    value = decode_value(data)
    assert value is not None
    return transition_of(value)


def outcome(read: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return read(data)
    except MalformedTransactionRecord as error:
        return str(error)


def spoiled_at_random(logs: Recorded, seed: int) -> Recorded:
    """The logs with a few records and entries deleted, swapped, doubled, or of a later coordinator."""
    random_number = random.Random(seed)

    def change(rows: list[Any]) -> Iterator[Any]:
        rows = list(rows)
        for _ in range(random_number.choice([0, 1, 2]) if len(rows) > 3 else 0):
            at = random_number.randrange(len(rows) - 1)
            match random_number.randrange(4):
                case 0:
                    del rows[at]
                case 1:
                    rows[at], rows[at + 1] = rows[at + 1], rows[at]
                case 2:
                    rows.insert(at, rows[at])
                case _:
                    if isinstance(rows[at], StateRecord):
                        rows[at] = rows[at]._replace(leader_epoch=rows[at].leader_epoch + 1)
        return iter(rows)

    return Recorded(
        {name: list(change(rows)) for name, rows in logs.records.items()},
        {name: list(change(rows)) for name, rows in logs.entries.items()},
    )


Judged = tuple[list[ToldRecord], list[tuple[str, WrittenMarker]], tuple[int | None, int]]


@pytest.fixture(scope="module")
def judged(recording: Path) -> list[Judged]:
    """Spoiled traces: records and markers of each, its first rejected step, and the number of its steps."""
    logs = coordinators.read_recorded(recording)
    found: list[Judged] = []
    for seed in range(4):
        changed = spoiled_at_random(logs, seed)
        markers = [(name, marker) for name, own in sorted(changed.markers.items()) for marker in own]
        for trace in coordinators.coordinator_traces(changed):
            records = list(map(told, changed.records[trace.name]))
            ids = {record.told.producer_id for record in records if record.told is not None}
            mine = [row for row in markers if row[1].producer_id in ids]
            expected, _ = replayed(MACHINE, coordinator_constants(frozenset({1, 2}), trace), trace)
            found.append((records, mine, (expected, len(trace.steps))))
    return found


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("most", [0, 300, 50_000])
def test_a_judge_that_remembers_gives_the_verdicts_of_one_that_does_not(
    judged: list[Judged], most: int, counts: bool
) -> None:
    judge = RememberingJudge(MACHINE if counts else WITHOUT_NUMBERS, coordinator_constants(frozenset({1, 2})), most)
    for records, mine, expected in judged:
        assert judge.first_rejected(steps_of(records, compared(records, mine), rename=True)) == expected
    assert sum(rejected is not None for _, _, (rejected, _) in judged) > 10


def committed(transactions: int) -> tuple[list[ToldRecord], list[tuple[str, WrittenMarker]]]:
    """Records and markers of a transactional id that commits so many transactions, which have one partition each."""
    states = [TransactionState.EMPTY]
    states += [
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    ] * transactions
    of = {TransactionState.ONGOING: frozenset({"t-0"}), TransactionState.PREPARE_COMMIT: frozenset({"t-0"})}
    records = [
        ToldRecord(0, offset, Transition(state, 7, 0, -1, 1, of.get(state, frozenset()), late=False))
        for offset, state in enumerate(states)
    ]
    return records, [("t-0", WrittenMarker(7, 0, ControlType.COMMIT, 0, offset)) for offset in range(transactions)]


@pytest.mark.parametrize(("machine", "grows"), [(MACHINE, True), (WITHOUT_NUMBERS, False)])
def test_transactions_of_the_same_form_are_judged_once(machine: Any, grows: bool) -> None:
    taken = []
    for transactions in (3, 30):
        judge = RememberingJudge(machine, coordinator_constants(frozenset({1, 2})))
        records, markers = committed(transactions)
        steps = steps_of(records, compared(records, markers), rename=True)
        assert judge.first_rejected(steps) == (None, 2 + 7 * transactions)
        taken.append(judge._remembered)
    assert (taken[0] < taken[1]) == grows


def test_a_rejection_late_in_a_long_trace_is_told() -> None:
    records, markers = committed(100)
    verdict = replays._judge_of(RULES).verdict("x", records, markers[:-1], {"t-0"})
    assert (verdict["accepted"], verdict["steps"], verdict["position"]) == (False, 702, 701)
    assert "CompleteTransaction is not enabled" in verdict["reason"]


def test_leaders_judge_transactions_of_the_same_form_once() -> None:
    taken = []
    for transactions in (3, 30):
        who = leaders.PRODUCER
        data = coordinators.WrittenBatch(who, 0, "transactional", -1)
        entries = [data, WrittenMarker(who, 0, ControlType.ABORT, 0, -1)]
        judge = RememberingJudge(leaders.LeaderOfTraces, leaders.leader_constants(1))
        steps = map(leaders.wordless_step, entries * transactions)
        assert judge.first_rejected(steps) == (None, 2 * transactions)
        taken.append(judge._remembered)
    assert taken[0] == taken[1]


def test_pieces_are_grouped_into_tasks_by_their_bytes() -> None:
    sizes = (60, 30, 20, 90, 150, 10)
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    pieces = [
        Piece(source=0, log="", path="h.jsonl", start=end - size, end=end)
        for size, end in zip(sizes, ends, strict=True)
    ]
    tasks = [[row["end"] - row["start"] for row in json.loads(task)] for task in tasks_of(pieces, 100)]
    assert tasks == [[60, 30], [20], [90], [150], [10]]


def test_the_partitions_of_a_history_are_spread_over_buckets(histories: list[Path]) -> None:
    (path,) = (path for path in histories if path.name == "idempotent-lost-acks.jsonl")
    (piece,) = pieces_of([path])
    found = {(row["log"], row["producer_id"]) for batch in event_rows(piece, 64) for row in batch.to_pylist()}
    assert len({log for log, _ in found}) == len(found) == len({bucket for _, bucket in found}) == 2
    assert all(0 <= bucket < 64 for _, bucket in found)


def test_a_transactional_id_may_expire_often() -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=0,
        transaction_timeout_ms=1000,
        transaction_status=TransactionState.EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=0,
        transaction_start_timestamp_ms=-1,
    )
    values = [item for number in range(4) for item in (replace(value, producer_id=number), None)]
    logs = Recorded({"id": [StateRecord(0, offset, each) for offset, each in enumerate(values)]}, {})
    (trace,) = coordinators.coordinator_traces(logs)
    model = coordinators.coordinator_model(Registry().get("CoordinatorOfTraces"), [trace], versions=frozenset({1, 2}))
    assert replay(model, MACHINE, trace).found == "accepted"


# --- the command ---------------------------------------------------------------------------------------------------


def test_the_command_tells_of_each_kind_and_writes_the_table(
    recording: Path, spoiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "verdicts.jsonl"
    assert cli.main(["check", "traces", str(recording), "--alone", "--table", str(table)]) == 0
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    assert rows == rows_of(in_process(pieces_of([recording]), RULES))
    told = capsys.readouterr().out
    assert "judged by the Python reference without TLC, by the repaired rules of the spec; --kafka" in told
    assert JUDGED_BY in told.splitlines(), "a sentence is not folded"
    assert cli.main(["check", "traces", str(spoiled), "--alone"]) == 1
    assert "rejected at event" in " ".join(capsys.readouterr().out.split())


def test_a_recording_is_replayed_with_its_histories_from_its_folder_and_its_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = kept_recording("violations")
    folder = tmp_path / archive.name
    unpack(archive, folder)
    found = []
    for path in (folder, archive, "example:violations"):
        answer = tmp_path / "verdicts.json"
        assert cli.main(["check", "traces", str(path), "--alone", "--json", str(answer)]) == 1
        verdicts = read_verdicts(answer)
        assert verdicts[0].seconds > 0, "the first verdict has the seconds of the whole replay"
        found.append([(verdict.name, verdict.found) for verdict in verdicts])
    assert found[0] == found[1] == found[2]
    names = [name.removesuffix(f" of {archive.name}") for name, _ in found[0]]
    assert names == ["coordinators", "leaders", "clients"]
    assert "java-crash-with-lost-acks-0: rejected at event 88" in found[0][2][1]


@pytest.mark.tlc
def test_tlc_judges_the_logs_of_a_recording_whose_history_has_nothing_to_replay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["check", "traces", "example:replicated-violations"]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("all accepted") == 2, "coordinators and leaders"
    assert said.count("rejected at event") == 6, "each spoiled log, as expected"
    assert "partitions of replicated-violations" in said, "left out"


@pytest.mark.tlc
@pytest.mark.parametrize(("kafka", "rejected"), [((), 0), (("--kafka", "4.3"), 3)])
def test_copies_of_rejected_coordinators_have_no_verdict_and_those_of_accepted_ones_have(
    kafka: tuple[str, ...], rejected: int, tmp_path: Path
) -> None:
    answer = tmp_path / "verdicts.json"
    code = cli.main(["check", "traces", "example:no-leader", *kafka, "--json", str(answer)])
    first, *others = read_verdicts(answer)
    assert (code, first.ok) == ((3, True) if rejected else (1, False))
    assert all(verdict.ok for verdict in others), "the one rejection that is real"
    copies = [verdict for verdict in others if verdict.name.startswith(first.name)]
    assert [verdict.found == verdict.expected for verdict in copies] == [True] * rejected


def test_a_file_that_is_neither_a_history_nor_a_recording_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    for options in ([], ["--alone"]):
        assert cli.main(["check", "traces", str(path), *options]) == 2
        assert f"{path}: give a log directory, a recording" in " ".join(capsys.readouterr().err.split())
        assert cli.main(["check", "traces", str(tmp_path / "none.jsonl"), *options]) == 2
        told = f"{tmp_path}/none.jsonl: no such file; give a history (.jsonl) that was recorded"
        assert told in " ".join(capsys.readouterr().err.split())


def test_a_history_whose_answers_name_no_request_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated = tmp_path / "simulated"
    assert cli.main(["simulate", "--seed", "7", "--out", str(simulated)]) == 0
    for options in ([], ["--alone"]):
        assert cli.main(["check", "traces", str(simulated), *options]) == 3
        said = capsys.readouterr().out
        assert "a Produce without 'request' in its detail" in said
        assert "no traces" in said
        assert cli.main(["check", "traces", str(simulated), *options, "--allow-unjudged", "no-wire-events"]) == 0


def test_nothing_to_replay_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    for options in ([], ["--alone"]):
        assert cli.main(["check", "traces", str(path), *options]) == 2
        assert "nothing to replay" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--spark"], "give their PATHs"),
        (["logs", "--table", "v.jsonl"], "add --spark or --alone"),
        (["logs", "--alone", "--table", "v.txt"], "*.jsonl or *.parquet"),
        (["logs", "--only", "told"], "--only names one kind of the kept traces; leave it out, or the PATHs"),
    ],
)
def test_options_of_a_replay_need_each_other(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["check", "traces", *arguments])
    assert words in capsys.readouterr().err


def test_a_table_that_cannot_be_written_is_refused_before_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replays, "in_process", lambda *_: pytest.fail("it is replayed"))
    table = tmp_path / "v.jsonl"
    table.mkdir()
    assert cli.main(["check", "traces", "example:violations", "--alone", "--table", str(table)]) == 2
    assert capsys.readouterr().err == f"kafka-eos: {table} cannot be written: it is a folder; give a file\n"


def test_rows_that_are_not_sorted_are_an_error() -> None:
    import pyarrow as pa  # noqa: PLC0415

    rows = pa.RecordBatch.from_pydict({"key": [1, 1, 2, 1]})
    with pytest.raises(AssertionError, match="not sorted by key"):
        list(replays.runs([rows], ["key"]))


def test_a_marker_that_repeats_the_last_one_of_the_rows_before_is_flagged() -> None:
    def rows(*codes: int, reign: int = 2) -> Any:
        reigns = [reign if code == COMMIT_MARKER else -1 for code in codes]
        return batch_of({"code": codes, "epoch": [0] * len(codes), "leader_epoch": reigns}, len(codes))

    data, commit = TRANSACTIONAL_BATCH, COMMIT_MARKER
    slices = [rows(data, commit), rows(commit, commit, data), rows(commit), rows(commit), rows(commit, reign=3)]
    flags = [row["version"] for found in replays._markers_of(slices) for row in rows_of(found)]
    assert flags == [0, 2, 2, 0, 2, 1]
    first = [row["version"] for found in replays._markers_of([rows(commit)], is_cut=True) for row in rows_of(found)]
    assert first == [2], "the entry before it may be gone"
    later = [row["version"] for found in replays._markers_of(slices, is_cut=True) for row in rows_of(found)]
    assert later == flags


def test_after_rows_that_were_just_enough_for_a_batch_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "OUT_ROWS", 2)
    out = replays._Out([])
    out.put(batch_of({"code": [1, 2]}, 2))
    assert [batch.num_rows for batch in out.full()] == [2]
    assert list(out.full(at_end=True)) == []


def test_a_batch_outside_of_the_open_transaction_is_rejected_by_its_code() -> None:
    def verdict(*codes: int) -> tuple[bool, int | None]:
        columns = {
            "code": codes,
            "offset": range(len(codes)),
            "epoch": [0] * len(codes),
            "leader_epoch": [-1] * len(codes),
        }
        found = replays._leader_verdict("t-0", 7, [batch_of(columns, len(codes))], 1, RULES)
        return found["accepted"], found["position"]

    assert verdict(TRANSACTIONAL_BATCH, TRANSACTIONAL_BATCH) == (True, None)
    assert verdict(PLAIN_BATCH, PLAIN_BATCH, TRANSACTIONAL_BATCH) == (True, None)
    assert verdict(TRANSACTIONAL_BATCH, PLAIN_BATCH) == (False, 2)


@pytest.mark.parametrize("versions", [*permutations([0, 1, 2]), (0, 2, 2), (0, 0)])
def test_leaders_are_judged_by_the_lowest_version_that_ended_a_transaction(versions: tuple[int, ...]) -> None:
    import pyarrow as pa  # noqa: PLC0415

    owners: dict[str, int] = {}
    for version in versions:
        rows = pa.RecordBatch.from_pydict({"name": ["x"], "version": [version]})
        replays._note_owners(owners, 7, [rows])
    assert owners == {"x": min(filter(None, versions), default=0)}
    replays._note_owners(owners, 7, [rows], is_whole=False)
    assert owners == {"x": 1}, "a transaction of version 1 may be among the records that are gone"


@pytest.mark.parametrize("engine", [[], ["--alone"]])
@pytest.mark.parametrize("left_out", ["link", "deep"])
def test_logs_that_would_be_left_out_are_refused(
    left_out: str, engine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["lab", "generate", str(tmp_path / "made"), "--transactions", "20", "--clients", "4"]) == 0
    broker = tmp_path / "made" / "brokers" / "1"
    log = max(
        broker.glob("__transaction_state-*"), key=lambda path: sum(file.stat().st_size for file in path.iterdir())
    )
    away = tmp_path / "away" if left_out == "link" else broker.parent / "more" / "deep"
    away.mkdir(parents=True)
    shutil.move(log, away / log.name)
    if left_out == "link":
        log.symlink_to(away / log.name)
    words = (
        "is a symbolic link, which is not followed; put a copy" if left_out == "link" else "lies too deep to be read"
    )
    assert cli.main(["check", "traces", str(tmp_path / "made"), *engine]) == 2
    said = capsys.readouterr().err
    assert f"kafka-eos check traces: {log if left_out == 'link' else away} " in said
    assert words in said
