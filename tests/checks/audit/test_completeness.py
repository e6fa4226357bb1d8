"""A log that lacks records is told as such, and what it lacks counts against nobody."""

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kafka_eos.formats.record_batch import LOG_OVERHEAD_BYTES, RecordBatch, encode_records
from kafka_eos.formats.segment import StoredBatch, read_leader_epochs, read_segment
from kafka_eos.formats.transaction_log import TOPIC
from kafka_eos_checks.audit.audit import COPY_AGAIN, Audit, run, states_are_whole
from kafka_eos_checks.audit.completeness import behind_others, lacks_end, short_logs
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.inputs import UnusableInput, open_inputs
from kafka_eos_checks.audit.kernels.logs.transactions import Partition
from kafka_eos_checks.audit.moments import (
    CLEAN_SHUTDOWN,
    CLEANED,
    HIGH_WATERMARKS,
    LOCK,
    RECOVERY_POINTS,
    START_OFFSETS,
    Directory,
    Source,
)
from kafka_eos_checks.audit.rules.beside import ABORTED_INDEX, REPLICAS
from kafka_eos_checks.audit.rules.log import ORDER
from kafka_eos_checks.audit.rules.rule_book import LOADED_IN_PART, READABLE, rule_of
from kafka_eos_checks.audit.rules.transactions.names import FENCED, HANGING, NO_TRANSACTION
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.paths import recordings_folder
from kafka_eos_checks.kit.recording import unpack
from kafka_eos_checks.kit.verdict import Standing, Verdict
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload
from kafka_eos_checks.models.findings import possible_causes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    workload = Workload(
        transactions=150, batches=1500, clients=20, partitions=3, state_partitions=1, offset_partitions=1, seed=4
    )
    Cluster(workload=workload, value_bytes=20, segment_bytes=20_000).write(folder)
    return folder


@pytest.fixture
def cluster(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "cluster"))


def segments(cluster: Path, name: str) -> list[Path]:
    return sorted((cluster / "brokers" / "1" / name).glob("*.log"))


def busiest(cluster: Path) -> str:
    """The log of ``__transaction_state`` with the most bytes."""
    logs = (cluster / "brokers" / "1").glob(f"{TOPIC}-*")
    return max(logs, key=lambda log: sum(file.stat().st_size for file in log.glob("*.log"))).name


def retain_from(folder: Path, base: int) -> None:
    """Delete the segments below this one, and note where the log begins, as retention does."""
    for file in folder.glob(f"{'[0-9]' * 20}.*"):
        if int(file.name[:20]) < base:
            file.unlink()
    checkpoint = folder / LEADER_EPOCH_CHECKPOINT
    epochs = read_leader_epochs(checkpoint)
    left = [
        each for each, after in zip(epochs, (*epochs[1:], None), strict=True) if not after or after.start_offset > base
    ]
    rows = [f"{each.epoch} {max(each.start_offset, base)}\n" for each in left]
    checkpoint.write_text(f"0\n{len(rows)}\n{''.join(rows)}")


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def of(audit: Audit, name: str) -> Verdict:
    return next(each for each in audit.verdicts if each.name == name)


def violated(audit: Audit) -> list[str]:
    return [each.name for each in audit.verdicts if not each.ok]


def test_a_partition_whose_segments_are_packed_is_incomplete(cluster: Path) -> None:
    for file in segments(cluster, "generated-0"):
        file.with_suffix(".log.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    result = run([cluster])
    assert violated(result) == [READABLE]
    assert of(result, READABLE).found == "1 incomplete log"
    assert "generated-0 has no segment" in of(result, READABLE).evidence
    assert "copy this log again" in of(result, READABLE).advice
    broker = cluster / "brokers" / "1"
    marks = (broker / HIGH_WATERMARKS).read_text()
    end = marks.partition("generated 0 ")[2].partition("\n")[0]
    (broker / HIGH_WATERMARKS).write_text(marks.replace(f"generated 0 {end}", "generated 0 0"))
    assert violated(run([cluster])) == [], "nothing was ever in it"
    (broker / HIGH_WATERMARKS).write_text(marks)
    shutil.rmtree(broker / "generated-0")
    result = run([cluster])
    assert violated(result) == [], "a copy of some of the partitions"
    assert of(result, READABLE).unjudged_for == {"missing-partition": 1}


def test_an_emptied_last_segment_is_incomplete_and_one_that_is_really_empty_is_not(cluster: Path) -> None:
    last = segments(cluster, "generated-0")[-1]
    cut(last, 0)
    result = run([cluster])
    assert violated(result) == [READABLE]
    told = f"generated-0 ends at offset {int(last.stem):,}"
    assert told in of(result, READABLE).evidence
    [found] = result.findings
    assert (found.rule, found.file, found.evidence.startswith(told)) == (READABLE, last.name, True)
    checkpoint = cluster / "brokers" / "1" / HIGH_WATERMARKS
    lines = checkpoint.read_text().splitlines()
    own = [f"generated 0 {int(last.stem)}" if line.startswith("generated 0 ") else line for line in lines]
    checkpoint.write_text("\n".join(own))
    assert READABLE not in violated(run([cluster]))
    retain_from(last.parent, int(last.stem))
    assert READABLE not in violated(run([cluster]))


def test_decisions_behind_the_end_of_a_cut_coordinators_log_are_not_judged(cluster: Path) -> None:
    name = busiest(cluster)
    first, *rest = segments(cluster, name)
    for file in rest:
        file.unlink()
    cut(first, first.stat().st_size // 2)
    result = run([cluster])
    assert violated(result) == [READABLE]
    assert of(result, NO_TRANSACTION).standing is Standing.NOT_JUDGED
    assert of(result, NO_TRANSACTION).unjudged_for.keys() == {"incomplete"}
    broker = cluster / "brokers" / "1"
    os.utime(first, (0, 0))  # as of a copy that kept the time of an early file
    assert of(run([cluster]), NO_TRANSACTION).recent == 0, "a later audit of these files finds no more"
    (broker / CLEAN_SHUTDOWN).unlink()
    copied = of(run([broker]), NO_TRANSACTION)
    assert "incomplete" not in copied.unjudged_for, "it may be the older copy"
    (broker / HIGH_WATERMARKS).unlink()
    for index in (file for segment in rest for file in segment.parent.glob(f"{segment.stem}.*index")):
        index.unlink()  # nothing says now that the log is cut
    assert NO_TRANSACTION in violated(run([cluster]))


def test_a_log_of_a_broker_that_was_shut_down_is_incomplete_next_to_others_of_other_moments(cluster: Path) -> None:
    (cluster / "manifest.json").unlink()  # without it, brokers may have stopped at different times
    other = cluster / "brokers" / "2"
    shutil.copytree(cluster / "brokers" / "1", other)
    (other / "meta.properties").write_text("version=1\nnode.id=2\n")
    for log in (cluster / "brokers").glob(f"*/{TOPIC}-*"):
        first, *rest = sorted(log.glob("*.log"))
        for file in rest:
            file.unlink()
        cut(first, first.stat().st_size // 2)
        os.utime(first, (0, 0))
    result = run([cluster / "brokers"])
    assert violated(result) == [READABLE]
    found = of(result, NO_TRANSACTION)
    assert "incomplete" in found.unjudged_for, "rather than too recent, or in an older copy"
    assert found.recent == 0


def test_a_transaction_whose_marker_was_cut_off_does_not_hang(cluster: Path) -> None:
    last = segments(cluster, "generated-1")[-1]
    cut(last, last.stat().st_size - 3)
    while not run([cluster]).counts:  # until a marker is among what is cut off
        cut(last, last.stat().st_size - 40)
    result = run([cluster])
    assert violated(result) == [READABLE]
    assert of(result, HANGING).unjudged_for.keys() == {"incomplete"}
    (cluster / "brokers" / "1" / HIGH_WATERMARKS).unlink()
    assert HANGING in violated(run([cluster]))


def test_without_a_clean_shutdown_a_short_log_of_one_moment_is_not_judged(cluster: Path) -> None:
    (cluster / "brokers" / "1" / CLEAN_SHUTDOWN).unlink()
    assert of(run([cluster]), READABLE).standing is Standing.OK
    last = segments(cluster, "generated-0")[-1]
    cut(last, 0)
    found = of(run([cluster]), READABLE)
    assert found.standing is Standing.NOT_JUDGED
    assert (found.unknown, found.unjudged_for) == (1, {"incomplete": 1})
    assert found.figures["incomplete"] == 1
    copied = of(run([cluster / "brokers"]), READABLE)
    assert copied.standing is Standing.OK, "the checkpoint may be of a later moment"


def test_a_segment_or_a_partition_that_is_given_alone_is_not_short(cluster: Path) -> None:
    files = segments(cluster, "generated-0")
    assert len(files) > 1
    for given in (files[0], files[-1], files[0].parent):
        assert of(run([given], one_moment=True), READABLE).found == "0 corrupt regions", given
        assert of(run([given], one_moment=True), READABLE).standing is Standing.OK


def test_folders_that_nobody_asked_for_need_not_be_readable(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = segments(cluster, "generated-0")[0].parent
    read = Path.iterdir

    def own_only(path: Path) -> Iterator[Path]:
        if path.name.startswith(("generated-", "__")) and path.name != folder.name:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "iterdir", own_only)
    assert of(run([folder], one_moment=True), READABLE).standing is Standing.OK


@pytest.mark.parametrize(("name", "how"), [(HIGH_WATERMARKS, "read_text"), (LOCK, "open")])
def test_a_file_that_must_not_be_read_does_not_count_as_missing(
    name: str, how: str, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = getattr(Path, how)

    def refused(path: Path, *args: Any, **named: Any) -> Any:
        if path.name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *args, **named)

    monkeypatch.setattr(Path, how, refused)
    with pytest.raises(PermissionError, match=name):
        run([cluster / "brokers"], one_moment=True)


def test_the_end_of_a_running_brokers_own_file_is_certain(made: Path) -> None:
    log = next(each for each in find_logs(made / "brokers") if each.topic == "generated")
    marks = {(log.topic, log.partition): 10**9}
    directory = Directory(read_ms=1, high_watermarks=marks)
    [short] = short_logs([Partition(log=log, end=5)], Source(one_moment=False, directories={log.directory: directory}))
    assert short.is_certain
    copied = Source(one_moment=False, directories={log.directory: replace(directory, read_ms=None)})
    assert not list(short_logs([Partition(log=log, end=5)], copied))


def test_each_log_is_held_against_its_own_directory_and_told_with_its_broker_end_and_mark(tmp_path: Path) -> None:
    for name in ("1/a-0", "1/a-1", "2/a-0", "2/b-0"):
        (tmp_path / name).mkdir(parents=True)
        if name != "1/a-1":
            (tmp_path / name / f"{0:020}.log").touch()
    logs = find_logs(tmp_path)
    read = [Partition(log=log, end=4_000) for log in logs]
    one = Directory(stopped=True, high_watermarks={("a", 1): 1, ("a", 0): 12_000})
    two = Directory(high_watermarks={("a", 0): 4_000, ("b", 0): 4_001})
    found = sorted(short_logs(read, Source(directories={tmp_path / "1": one, tmp_path / "2": two})))
    told = "and replication-offset-checkpoint has the high watermark"
    assert [(short.in_words(), short.is_certain) for short in found] == [
        (f"1/a-0 ends at offset 4,000, {told} 12,000", True),
        (f"1/a-1 has no segment, {told} 1", True),
        (f"2/b-0 ends at offset 4,000, {told} 4,001", False),
    ]


def test_a_directory_whose_replicas_end_below_the_mark_of_another_is_told_once_by_the_one_that_lacks_most(
    tmp_path: Path,
) -> None:
    for broker, name in ((broker, name) for broker in "1234" for name in ("a-0", "a-1", "a-2", "alone-0")):
        if name != "alone-0" or broker == "2":
            (tmp_path / broker / name).mkdir(parents=True)
            (tmp_path / broker / name / f"{0:020}.log").touch()
    marks = {("a", 0): 4_000, ("a", 1): 4_000, ("a", 2): 4_000, ("b", 0): 9_000}
    whole = Directory(high_watermarks=marks, cluster="own")
    higher = Directory(high_watermarks=marks | {("a", 1): 4_100}, cluster="own")
    alone = Directory(high_watermarks={("alone", 0): 9_000})
    known = {"1": whole, "2": alone, "3": higher, "4": Directory(cluster="x")}
    source = Source(directories={tmp_path / name: each for name, each in known.items()})
    ends = {"1/a-0": 4_000, "2/a-0": 3_999, "2/a-1": 10, "3/a-2": 3_990, "1/a-1": 3_800, "3/a-1": 4_100}
    logs = [Partition(log=log, end=ends.get(str(log), 4_000 * (log.broker != "4"))) for log in find_logs(tmp_path)]
    one, two, three = behind_others(logs, source)
    assert [(str(each.log), *each[1:]) for each in (one, two, three)] == [
        ("1/a-1", 3_800, "3", 4_100, 1, 3),
        ("2/a-1", 10, "3", 4_100, 2, 3),
        ("3/a-2", 3_990, "1", 4_000, 1, 3),
    ], "a log at the mark is not behind, nor one of another cluster, nor one that no other broker has"
    assert two.in_words().startswith(
        "ends at offset 10, below the high watermark 4,100 of broker 3, as do 2 of the 3 logs here"
    )
    assert "the 4,090 offsets after its end are lost" in two.in_words()
    assert ", as do" not in two._replace(shared=1).in_words(), "it is the only one"
    swapped = known | {"1": higher, "3": whole}
    by_first = behind_others(logs, Source(directories={tmp_path / name: each for name, each in swapped.items()}))
    assert [each[2:4] for each in by_first if str(each.log) == "2/a-1"] == [("1", 4_100)], "the highest, not the last"
    moved = [Partition(log=replace(each.log, segments=(f"{4_100:020}.log",)), end=0) for each in logs]
    assert not behind_others(moved, source), "its segment begins at the mark"


def test_an_old_backup_of_one_broker_is_told_and_no_violation(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster / "manifest.json").unlink()
    one, two = (cluster / "brokers" / name for name in "12")
    shutil.copytree(one, two)
    (two / "meta.properties").write_text("version=1\nnode.id=2\n")
    result = run([cluster / "brokers"])
    assert violated(result) == []
    assert not told(result, REPLICAS), "both have everything"
    marks = {}
    for log in sorted(two.glob("generated-*")):
        rest = sorted(log.glob("*.log"))[1:]
        for file in (each for begin in rest for each in log.glob(f"{begin.stem}.*")):
            file.unlink()
        marks[log.name] = int(rest[0].stem)
    lines = (two / HIGH_WATERMARKS).read_text().splitlines()
    kept = [line for line in lines[2:] if not line.startswith("generated ")]
    kept += [f"{name.replace('-', ' ')} {mark}" for name, mark in marks.items()]
    (two / HIGH_WATERMARKS).write_text("\n".join(["0", str(len(kept)), *kept, ""]))
    result = run([cluster / "brokers"])
    assert violated(result) == []
    [note] = told(result, REPLICAS)
    assert (note.broker, note.topic, note.offset) == ("2", "generated", marks[f"generated-{note.partition}"])
    assert "of broker 1, as do 3 of the" in note.evidence
    assert main(["audit", str(cluster / "brokers"), "--allow-unjudged"]) == 0
    assert "told, no violation: 1\nreplicas differ (told): broker 2: generated-" in capsys.readouterr().out
    [first, second, _] = (two / f"generated-{number}" / f"{0:020}.log" for number in range(3))
    damaged = bytearray(first.read_bytes())
    damaged[LOG_OVERHEAD_BYTES + 20] ^= 1
    first.write_bytes(damaged)
    cut(second, list(read_segment(second))[-1].position)
    [note] = told(run([cluster / "brokers"], one_moment=True), REPLICAS)
    assert "as do 1 of the" in note.evidence, "what is damaged or lost here is reported by itself"
    assert note.partition == 2


def told(audit: Audit, rule: str) -> list[Finding]:
    return [each for each in audit.notes if each.rule == rule and each.kind == Kind.TOLD]


def incomplete(*paths: Path, engine: str = "local", **how: Any) -> tuple[list[tuple[str, int | None]], str]:
    """File and offset of each log that certainly lacks records, and what may lack some, in words."""
    result = run(list(paths), engine, **how)
    return [(each.file, each.offset) for each in result.findings if each.rule == READABLE], of(
        result, READABLE
    ).unjudged


@pytest.mark.parametrize("number", [0, 1])
def test_an_emptied_segment_before_the_last_one_is_told_by_its_index(cluster: Path, number: int) -> None:
    file = segments(cluster, "generated-0")[number]
    (cluster / "brokers" / "1" / CLEANED).write_text(f"0\n1\ngenerated 0 {1 << 40}\n")
    cut(file, 0)
    [(name, offset)], unjudged = incomplete(cluster)
    assert (name, offset, unjudged) == (file.name, int(file.stem), "")
    assert f"nothing in the segment {file.name}, whose .index has entries" in of(run([cluster]), READABLE).evidence
    index = file.with_suffix(".index")
    cut(index, 0)
    assert incomplete(cluster) == ([], ""), "the cleaner leaves both empty"
    index.write_bytes(bytes(16))
    assert incomplete(cluster) == ([], ""), "reserved, and no entry"
    file.with_suffix(".timeindex").write_bytes((1_700_000_000_000).to_bytes(8, "big") + bytes(4))
    assert incomplete(cluster) == ([(file.name, int(file.stem))], "")
    file.with_suffix(".timeindex").unlink()
    index.unlink()
    assert (
        f"the first: generated-0 has nothing in the segment {file.name}, and no index that " in incomplete(cluster)[1]
    )


@pytest.mark.spark
def test_spark_tells_an_emptied_first_segment(cluster: Path, spark: Any) -> None:
    first = segments(cluster, "generated-0")[0]
    cut(first, 0)
    assert incomplete(cluster, engine="spark", spark=spark) == ([(first.name, 0)], "")


def test_an_empty_segment_of_a_coordinators_topic_without_indexes_was_compacted(cluster: Path) -> None:
    for name in (busiest(cluster), "generated-0"):
        first, _, *_ = segments(cluster, name)
        (first.parent / f"{0:020}.log").write_bytes(b"")
        for index in first.parent.glob(f"{0:020}.*index"):
            index.unlink()
    result = run([cluster])
    assert of(result, READABLE).unknown == 1
    assert "generated-0" in of(result, READABLE).unjudged


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_an_index_whose_segment_is_missing_shows_that_it_was_lost(cluster: Path, suffix: str) -> None:
    first = segments(cluster, "generated-0")[0]
    retain_from(first.parent, int(segments(cluster, "generated-0")[1].stem))
    assert incomplete(cluster) == ([], ""), "retention"
    first.with_suffix(f".{suffix}").touch()
    assert incomplete(cluster) == ([(first.name, 0)], "")
    for aside in (".log.deleted", ".log.swap", ".log.cleaned"):
        file = first.with_name(f"{first.stem}{aside}")
        file.touch()
        assert incomplete(cluster) == ([], ""), "its broker is at it"
        file.unlink()
    first.with_name(f"{first.name}.gz").touch()
    assert incomplete(cluster)[0] == [(first.name, 0)]


def test_of_two_segments_that_a_log_lacks_the_certain_one_is_told(cluster: Path) -> None:
    emptied, lost, *_ = segments(cluster, "generated-0")
    cut(emptied, 0)
    for index in emptied.parent.glob(f"{emptied.stem}.*index"):
        index.unlink()
    assert incomplete(cluster)[0] == [], "the cleaner may have emptied it"
    lost.unlink()
    assert incomplete(cluster) == ([(lost.name, int(lost.stem))], "")


def test_first_segments_are_lost_if_the_leader_epochs_begin_before_the_log(cluster: Path) -> None:
    first, second = segments(cluster, "generated-0")[:2]
    for file in first.parent.glob(f"{first.stem}.*"):
        file.unlink()
    assert incomplete(cluster) == ([(second.name, 0)], "")
    starts = cluster / "brokers" / "1" / START_OFFSETS
    starts.write_text("0\n1\ngenerated 0 0\n")
    assert incomplete(cluster) == ([], ""), "in tiered storage"
    starts.unlink()
    found, unjudged = incomplete(cluster)
    assert (found, "without log-start-offset-checkpoint" in unjudged) == ([], True)
    first.with_name(f"{first.name}.deleted").touch()
    assert incomplete(cluster) == ([], ""), "it is being deleted"
    first.with_name(f"{first.name}.deleted").unlink()
    (first.parent / LEADER_EPOCH_CHECKPOINT).write_text("no checkpoint")
    assert incomplete(cluster) == ([(LEADER_EPOCH_CHECKPOINT, None)], ""), "the damaged file only"


def test_what_a_volumes_snapshot_lacks_is_not_judged_and_in_copies_of_other_moments_not_told(cluster: Path) -> None:
    (cluster / "brokers" / "1" / CLEAN_SHUTDOWN).unlink()
    cut(segments(cluster, "generated-0")[0], 0)
    found, unjudged = incomplete(cluster)
    assert (found, "the first: generated-0" in unjudged) == ([], True)
    assert of(run([cluster / "brokers"]), READABLE).standing is Standing.OK


def test_segments_that_retention_deleted_or_compaction_left_are_not_missed(tmp_path: Path) -> None:
    workload = Workload(transactions=300, batches=4000, clients=20, partitions=4, seed=3)
    cluster = Cluster(workload=workload, value_bytes=20, segment_bytes=20_000, retained_bytes=60_000, compacted=True)
    cluster.write(tmp_path)
    late = [log for log in find_logs(tmp_path / "brokers") if int(log.segments[0][:20])]
    assert {log.topic for log in late} == {"generated"}
    last = segments(tmp_path, "generated-0")[-1]
    end = int((tmp_path / "brokers" / "1" / HIGH_WATERMARKS).read_text().partition("generated 0 ")[2].split()[0])
    last.with_name(f"{end:020}.log").touch()  # rolled just now
    assert incomplete(tmp_path) == ([], "")


def test_one_segment_that_is_given_alone_lacks_no_other(cluster: Path) -> None:
    first, second, *_ = segments(cluster, "generated-0")
    cut(first, 0)
    assert of(run([second], one_moment=True), READABLE).standing is Standing.OK
    (cluster / "moved").mkdir()
    with open_inputs([second.rename(cluster / "moved" / second.name)]) as inputs:
        assert [(log.topic, log.partition) for log in inputs.logs] == [("moved", 0)], "no folder of a partition"


def missing(*paths: Path, **how: Any) -> str:
    found, unjudged = incomplete(*paths, **how)
    assert found == []
    return unjudged.partition("the first: ")[2]


def test_a_partition_of_a_checkpoint_that_is_missing_may_be_lost(cluster: Path) -> None:
    broker = cluster / "brokers" / "1"
    folder = broker / "generated-1"
    folder.rename(cluster / "lost")
    mark = (broker / HIGH_WATERMARKS).read_text().partition("generated 1 ")[2].split()[0]
    told = f"generated-1 is not in the log directory, and {HIGH_WATERMARKS} has the offset {int(mark):,} for it"
    assert missing(cluster) == missing(broker) == told
    assert of(run([broker]), READABLE).unjudged_for == {"missing-partition": 1}
    for aside in ("delete", "future", "stray"):
        there = broker / f"generated-1.{'0f' * 16}-{aside}"
        there.mkdir()
        assert missing(broker) == (
            "generated-1 has a transaction that its coordinator decided, and no given directory has a log of it, "
            f"only {there.name}, which its broker has set aside"
        ), "the checkpoint is told of it, but the partition may be on a broker that is not given"
        there.rename(broker / f"generated-2.{'0f' * 16}-{aside}")
        assert missing(broker) == told
    assert missing(broker / "generated-0", one_moment=True) == "", "nobody asked for the others"
    (broker / HIGH_WATERMARKS).write_text("0\n0\n")
    (broker / RECOVERY_POINTS).write_text("0\n2\ngenerated 1 7\nother 0 0\n")
    assert missing(broker) == f"generated-1 is not in the log directory, and {RECOVERY_POINTS} has the offset 7 for it"
    assert of(run([broker]), READABLE).unknown == 1, "nothing was ever in the other one"
    (broker / HIGH_WATERMARKS).write_text("0\n1\ngenerated 1 0\n")
    assert missing(broker).endswith(f"{RECOVERY_POINTS} has the offset 7 for it"), "nobody had replicated it yet"


def test_a_partition_that_only_its_coordinator_names_is_on_a_broker_that_is_missing(cluster: Path) -> None:
    broker = cluster / "brokers" / "1"
    shutil.rmtree(broker / "generated-1")
    marks = (broker / HIGH_WATERMARKS).read_text().splitlines()
    left = [line for line in marks[2:] if not line.startswith("generated 1 ")]
    (broker / HIGH_WATERMARKS).write_text("\n".join(["0", str(len(left)), *left, ""]))
    (broker / RECOVERY_POINTS).write_text("0\n0\n")
    assert missing(cluster).startswith("generated-1 has a transaction that its coordinator decided, and no given ")
    verdict = of(run([broker], one_moment=True), READABLE)
    assert (verdict.standing, verdict.unjudged_for) == (Standing.NOT_JUDGED, {"missing-partition": 1})
    assert COPY_AGAIN not in verdict.advice, "there is nothing to copy again"
    assert missing(*(broker / f"{topic}" for topic in ("generated-0", "__transaction_state-0"))) == ""
    empty = broker / "generated-1"
    empty.mkdir()
    assert missing(cluster) == "", "its folder is there"
    empty.rename(broker / f"generated-1.{'0f' * 16}-delete")
    assert missing(cluster).endswith("-delete, which its broker has set aside"), "its topic is there, so it has moved"
    (broker / f"generated-1.{'0f' * 16}-delete").rmdir()
    properties = (broker / "meta.properties").read_bytes()
    (broker / "meta.properties").unlink()
    assert missing(cluster) == "", "nobody knows that it is all of a broker"
    (broker / "meta.properties").write_bytes(properties)
    assert missing(cluster) != ""
    for number in (0, 2):
        shutil.rmtree(broker / f"generated-{number}")
    (broker / HIGH_WATERMARKS).write_text("0\n0\n")
    assert missing(cluster) == "", "the topic may have been deleted"


def test_a_broker_without_any_partition_of_its_checkpoint_may_have_lost_them(cluster: Path) -> None:
    other = cluster / "brokers" / "2"
    other.mkdir()
    (other / "meta.properties").write_text("version=1\nnode.id=2\n")
    assert missing(cluster) == ""
    shutil.copy(cluster / "brokers" / "1" / HIGH_WATERMARKS, other)
    assert missing(cluster).startswith(f"2/{OFFSETS_TOPIC}-0 is not in the log directory")


def test_the_tables_of_headers_of_a_log_without_its_first_segment_lack_it_too(cluster: Path, tmp_path: Path) -> None:
    first, second, *_ = segments(cluster, "generated-0")
    for file in first.parent.glob(f"{first.stem}.*"):
        file.unlink()
    assert main(["headers", str(cluster), "--out", str(tmp_path / "headers"), "--topic", "generated"]) == 0
    assert incomplete(tmp_path / "headers") == ([(f"{second.stem}.headers.parquet", 0)], "")


def without_indexes_of_aborts(log: Path) -> None:
    for file in log.glob("*.txnindex"):
        file.unlink()


def empty_the_second(log: Path) -> None:
    sorted(log.glob("*.log"))[1].write_bytes(b"")


def lose_the_second(log: Path) -> None:
    sorted(log.glob("*.log"))[1].unlink()


def link_the_second(log: Path) -> None:
    lose_the_second(log)
    sorted(log.glob("*.index"))[1].with_suffix(".log").symlink_to("nowhere")


def link_the_last(log: Path) -> None:
    last = max(log.glob("*.log"))
    last.unlink()
    last.symlink_to("nowhere")


def link_the_partition(log: Path) -> None:
    shutil.rmtree(log)
    log.symlink_to("nowhere")


def replace_the_second(log: Path) -> None:
    second = sorted(log.glob("*.log"))[1]
    second.rename(second.with_suffix(".log.swap"))


def delete_the_first(log: Path) -> None:
    for file in log.glob(f"{0:020d}.*"):
        file.rename(f"{file}.deleted")


def without_segments(log: Path) -> None:
    for file in log.glob("*.log"):
        file.unlink()


def set_aside(log: Path) -> None:
    log.rename(log.with_name(f"{log.name}.{'0' * 32}-delete"))


def unknown_to_high_watermarks(log: Path) -> None:
    shutil.rmtree(log)
    marks = log.parent / HIGH_WATERMARKS
    lines = [line for line in marks.read_text().splitlines()[2:] if not line.startswith("generated 0")]
    marks.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    (log.parent / RECOVERY_POINTS).write_text("0\n1\ngenerated 0 5\n")


@pytest.mark.parametrize(
    "damage",
    [
        *(without_indexes_of_aborts, empty_the_second, lose_the_second, link_the_second, link_the_last),
        *(link_the_partition, replace_the_second, delete_the_first, without_segments, set_aside),
        unknown_to_high_watermarks,
    ],
)
def test_tables_of_headers_show_the_same_damage_as_their_logs(
    damage: Callable[[Path], None], cluster: Path, tmp_path: Path
) -> None:
    damage(cluster / "brokers" / "1" / "generated-0")
    shutil.copytree(cluster / "brokers" / "1", tmp_path / "logs" / "1", symlinks=True)
    meta = cluster / "brokers" / "1" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    shutil.copytree(cluster / "brokers" / "1", tmp_path / "logs" / "2", symlinks=True)
    (tmp_path / "logs" / "3").mkdir()
    for name in ("meta.properties", HIGH_WATERMARKS):  # a broker whose partitions are all missing
        shutil.copy(tmp_path / "logs" / "1" / name, tmp_path / "logs" / "3")
    assert main(["headers", str(tmp_path / "logs"), "--out", str(tmp_path / "tables")]) == 0
    of_logs, of_tables = (run([tmp_path / name], one_moment=True) for name in ("logs", "tables"))
    assert [(each.name, each.found, each.unjudged_for, each.recent) for each in of_tables.verdicts] == [
        (each.name, each.found, each.unjudged_for, each.recent) for each in of_logs.verdicts
    ]
    if "link" in damage.__name__:
        assert violated(of_logs) == [], "nobody knows what is behind the link"


@pytest.mark.parametrize("name", ["retention", "retention-2.8", "compaction", "deleted-records"])
def test_in_logs_of_real_brokers_a_first_segment_that_is_emptied_or_removed_is_told(name: str, tmp_path: Path) -> None:
    unpack(recordings_folder() / "healthy" / f"healthy-{name}.tar.xz", tmp_path)
    [log] = (log for log in find_logs(tmp_path / "brokers") if len(log.segments) > 1 and not log.topic.startswith("__"))
    first = log.file(log.segments[0])
    cut(first, 0)
    [(file, offset)], _ = incomplete(tmp_path)
    assert (file, offset) == (first.name, int(first.stem))
    assert "whose .timeindex has entries" in of(run([tmp_path]), READABLE).evidence
    first.unlink()
    assert incomplete(tmp_path)[0] == [(first.name, int(first.stem))]
    for left in first.parent.glob(f"{first.stem}.*"):
        left.unlink()
    assert bool(incomplete(tmp_path)[0]) == name.startswith(("retention", "compaction"))


def test_a_log_of_old_formats_whose_end_is_unknown_may_lack_a_segment_too(tmp_path: Path) -> None:
    unpack(recordings_folder() / "healthy" / "healthy-old-formats-2.8.tar.xz", tmp_path)
    first = segments(tmp_path, "old-formats-0")[0]
    first.unlink()
    assert incomplete(tmp_path)[0] == [(first.name, 0)]


# --- offsets that are missing inside of a log ------------------------------------------------------------------------


def remove(segment: Path) -> None:
    """Remove a segment with its indexes."""
    for file in segment.parent.glob(f"{segment.stem}.*"):
        file.unlink()


def cut_out(file: Path, number: int) -> None:
    """Remove a batch from a segment, by its number."""
    batches = [item for item in read_segment(file) if isinstance(item, StoredBatch)]
    start, end = (batches[at].position for at in (number, number + 1))
    file.write_bytes(file.read_bytes()[:start] + file.read_bytes()[end:])


def test_a_segment_that_is_missing_in_the_middle_of_a_log_is_not_judged(cluster: Path) -> None:
    _, second, third, *_ = segments(cluster, "generated-0")
    remove(second)
    result = run([cluster])
    found = of(result, READABLE)
    assert (found.standing, found.unknown, found.unjudged_for) == (Standing.NOT_JUDGED, 1, {"holes": 1})
    missing = (
        f"generated-0 lacks records of the offsets {int(second.stem):,} to {int(third.stem) - 1:,} before {third.name}"
    )
    assert missing in found.evidence
    assert found.advice.startswith("next: look into the folder"), "and nothing else"
    assert "copy this log again" not in found.advice
    assert "1 log: offsets are missing inside, and nothing" in found.unjudged
    assert violated(result) == []


def test_a_log_whose_missing_segment_is_shown_by_its_index_is_told_once(cluster: Path) -> None:
    segments(cluster, "generated-0")[1].unlink()
    found = of(run([cluster]), READABLE)
    assert (found.ok, found.unknown, found.figures["incomplete"]) == (False, 0, 1)


def test_data_and_a_marker_on_the_two_sides_of_a_hole_show_no_fenced_producer(cluster: Path) -> None:
    """The data's own marker and the data that the other marker ends are in the hole."""
    remove(segments(cluster, "generated-0")[1])
    found = of(run([cluster]), FENCED)
    assert (found.standing, found.unknown, found.unjudged_for) == (Standing.NOT_JUDGED, 1, {"compacted": 1})
    assert "a hole in their partition may have had their marker" in found.unjudged


@pytest.mark.parametrize("number", [0, 3])
def test_a_batch_that_is_missing_inside_of_a_segment_is_not_judged(cluster: Path, number: int) -> None:
    file = segments(cluster, "generated-1")[0]
    cut_out(file, number)
    found = of(run([cluster]), READABLE)
    assert found.unjudged_for == {"holes": 1}
    assert f"inside of {file.name}" in found.evidence


def test_each_log_that_is_not_judged_has_a_row_and_is_named(cluster: Path) -> None:
    own = [cluster / "brokers" / "1" / f"generated-{number}" for number in range(3)]
    for folder in own:
        cut_out(min(folder.glob("*.log")), 3)
    result = run([cluster], one_moment=True)
    rows = [note for note in result.notes if note.rule == READABLE]
    names = [f"{note.topic}-{note.partition}" for note in rows]
    assert sorted(names) == [folder.name for folder in own]
    assert {(note.kind, bool(note.file), note.offset is not None) for note in rows} == {(Kind.NOT_JUDGED, True, True)}
    verdict = of(result, READABLE)
    assert (verdict.found, verdict.unknown) == ("0 corrupt regions", 3)
    assert result.counts[READABLE, Kind.NOT_JUDGED] == 3
    assert f"; the first: {own[0].name} lacks records of" in verdict.unjudged
    assert verdict.unjudged.endswith(f"; also {own[1].name}, {own[2].name}")


def sealed(batch: RecordBatch) -> RecordBatch:
    """The batch with the CRC of what it has."""
    return batch._sealed()


@pytest.mark.parametrize("left", [0, 1])
def test_a_batch_with_fewer_records_than_offsets_is_a_hole(left: int, cluster: Path) -> None:
    [file, *_] = segments(cluster, "generated-1")
    batches = [each.batch for each in read_segment(file) if isinstance(each, StoredBatch)]
    number = next(number for number, each in enumerate(batches) if each.record_count > 1 and not each.is_control)
    whole = batches[number]
    payload = encode_records(whole.records()[:left])
    batches[number] = sealed(replace(whole, record_count=left, payload=payload))
    file.write_bytes(b"".join(each.encode() for each in batches))
    result = run([cluster])
    told = (
        f"generated-1 lacks records of the offsets {whole.base_offset:,} to {whole.last_offset:,} inside of {file.name}"
    )
    assert (violated(result), of(result, READABLE).unjudged_for) == ([], {"holes": 1})
    assert told in of(result, READABLE).evidence
    (cluster / "brokers" / "1" / CLEANED).write_text(f"0\n1\ngenerated 1 {whole.last_offset + 1}\n")
    assert of(run([cluster]), READABLE).standing is Standing.OK, "the cleaner has removed them"
    batches[number] = sealed(replace(whole, record_count=0))
    file.write_bytes(b"".join(each.encode() for each in batches))
    result = run([cluster])
    assert READABLE in violated(result), "readers are not given the records that are there"
    assert "record count 0, and " in of(result, READABLE).evidence


def test_a_hole_below_the_cleaners_offset_is_of_compaction(cluster: Path) -> None:
    _, second, third, *_ = segments(cluster, "generated-0")
    remove(second)
    checkpoint = cluster / "brokers" / "1" / CLEANED
    for reached, standing in ((int(third.stem), Standing.OK), (int(third.stem) - 1, Standing.NOT_JUDGED)):
        checkpoint.write_text(f"0\n1\ngenerated 0 {reached}\n")
        assert of(run([cluster]), READABLE).standing is standing, reached
    checkpoint.write_text(f"0\n1\ngenerated 1 {third.stem}\n")
    assert of(run([cluster]), READABLE).standing is Standing.NOT_JUDGED, "it is of another partition"


def test_a_segment_that_the_cleaner_merged_into_another_one_while_they_were_copied_is_left_out(cluster: Path) -> None:
    directory = cluster / "brokers" / "1"
    first, second, third, *_ = segments(cluster, "generated-0")
    first.write_bytes(first.read_bytes() + second.read_bytes())
    checkpoint = directory / CLEANED
    checkpoint.write_text("0\n1\ngenerated 0 1\n")
    assert ORDER in violated(run([directory])), "its broker was shut down"
    (directory / CLEAN_SHUTDOWN).unlink()
    result = run([directory])
    assert f"generated-0/{second.name} is left out: the cleaner merged it into {first.name} while" in result.subject
    assert violated(result) == [ABORTED_INDEX], "whose files are of before"
    checkpoint.write_text("0\n1\ngenerated 1 1\n")
    assert ORDER in violated(run([directory])), "no cleaner was there"
    checkpoint.write_text("0\n1\ngenerated 0 1\n")
    second.write_bytes(third.read_bytes())
    assert ORDER in violated(run([directory])), "the segment has other batches"


def test_only_the_last_hole_of_a_log_is_told_and_damage_is_told_by_itself(cluster: Path) -> None:
    first, second, third, fourth, *_ = segments(cluster, "generated-0")
    remove(second)
    cut_out(first, 2)
    assert f"before {third.name}" in of(run([cluster]), READABLE).evidence
    third.write_bytes(third.read_bytes()[:100] + bytes(40) + third.read_bytes()[140:])
    found = of(run([cluster]), READABLE)
    assert (found.ok, found.unknown) == (False, 0)
    assert fourth.exists()


def test_coordinators_logs_are_always_compacted(cluster: Path) -> None:
    cut_out(segments(cluster, busiest(cluster))[0], 5)
    assert of(run([cluster]), READABLE).standing is Standing.OK


def test_a_hole_of_a_coordinators_log_above_the_cleaners_offset_is_not_judged(cluster: Path) -> None:
    name = busiest(cluster)
    cut_out(segments(cluster, name)[0], 5)
    checkpoint = cluster / "brokers" / "1" / CLEANED
    topic, _, number = name.rpartition("-")
    for reached, standing in ((5, Standing.NOT_JUDGED), (1 << 40, Standing.OK)):
        checkpoint.write_text(f"0\n1\n{topic} {number} {reached}\n")
        found = of(run([cluster]), READABLE)
        assert found.standing is standing
    checkpoint.write_text("")
    assert of(run([cluster]), READABLE).standing is Standing.OK, "a broker makes it empty, and does not fill it at once"


@pytest.mark.parametrize("name", ["generated-0", OFFSETS_TOPIC])
def test_a_segment_emptied_with_its_indexes_is_not_judged_where_no_cleaner_was(name: str, cluster: Path) -> None:
    folder = next((cluster / "brokers" / "1").glob(f"{name}*"))
    first = min(folder.glob("*.log"))
    last = folder / f"{10**9:020d}.log"
    last.touch()
    for file in folder.glob(f"{first.stem}.*"):
        cut(file, 0)
    topic, _, number = folder.name.rpartition("-")
    checkpoint = cluster / "brokers" / "1" / CLEANED
    for named, is_told in ((f"{topic} {number}", False), ("other 0", True)):
        checkpoint.write_text(f"0\n1\n{named} {1 << 40}\n")
        found, unjudged = incomplete(cluster)
        assert (found, f"has nothing in the segment {first.name}, and {CLEANED} does not name it, " in unjudged) == (
            [],
            is_told,
        )


# --- batches whose records cannot be decoded -------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TOPIC, "generated"])
def test_a_batch_that_says_it_is_compressed_and_is_not_is_damage_where_records_are_read(
    topic: str, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_eos_checks.audit.segments.headers.BLOCK_BYTES", 4096)
    monkeypatch.setattr("kafka_eos_checks.audit.kernels.logs.summary.CHUNK_BATCHES", 1)  # told once, not by each chunk
    segment = segments(cluster, f"{topic}-0")[0]
    batch = next(
        item
        for item in read_segment(segment)
        if isinstance(item, StoredBatch) and item.position and not item.batch.is_control
    )
    data = bytearray(segment.read_bytes())
    data[batch.position + 22] |= CompressionType.SNAPPY
    end = batch.position + LOG_OVERHEAD_BYTES + int.from_bytes(data[batch.position + 8 : batch.position + 12], "big")
    crc = google_crc32c.value(bytes(data[batch.position + 21 : end]))
    data[batch.position + 17 : batch.position + 21] = crc.to_bytes(4, "big")
    segment.write_bytes(data)
    history = tmp_path / "history.jsonl"
    event = {"run": "a", "process": "p", "action": "Send", "phase": "ok", "topic": topic, "partition": 0, "offset": 0}
    history.write_text(json.dumps({**event, "detail": {"value": "v"}}) + "\n")
    result = run([cluster], histories=[history] if topic == "generated" else [])
    readable = of(result, READABLE)
    assert readable.found == "1 corrupt region"
    assert f"{segment.name} bytes {batch.position}-{end}: corrupt: " in readable.evidence
    [finding] = [each for each in result.findings if each.rule == READABLE]
    assert (finding.file, finding.position) == (segment.name, batch.position)
    assert topic != "generated" or not violated(run([cluster])), "without a history nobody reads its records"


@pytest.mark.parametrize(("byte", "is_told"), [(16, True), (1, False)], ids=["a state", "a later version"])
def test_a_record_that_no_coordinator_can_read_is_damage_unless_its_version_is_not_known(
    byte: int, is_told: bool, cluster: Path
) -> None:
    segment = segments(cluster, f"{TOPIC}-0")[0]
    batch = next(item for item in read_segment(segment) if isinstance(item, StoredBatch) and item.position)
    value = batch.batch.records()[-1].value
    assert value
    data = bytearray(segment.read_bytes())
    data[data.index(value, batch.position) + byte] = 99
    end = batch.position + batch.batch.size
    data[batch.position + 17 : batch.position + 21] = google_crc32c.value(
        bytes(data[batch.position + 21 : end])
    ).to_bytes(4, "big")
    segment.write_bytes(data)
    findings = [each for each in run([cluster]).findings if each.rule == READABLE]
    assert [(each.file, each.position) for each in findings] == [(segment.name, batch.position)] * is_told
    for each in findings:
        assert f"transaction status 99 does not exist; {LOADED_IN_PART}" in each.evidence
        assert "half-loaded-coordinator" in rule_of(READABLE).advice(each)[0]


def test_a_coordinator_that_loaded_a_part_is_no_possible_cause_where_its_logs_are_whole(tmp_path: Path) -> None:
    for topic in ("orders", TOPIC):
        (tmp_path / f"{topic}-0").mkdir()
        (tmp_path / f"{topic}-0" / f"{0:020d}.log").touch()
    damaged, other = (Finding(rule=READABLE, topic=topic, partition=0) for topic in (TOPIC, "orders"))
    with open_inputs([tmp_path]) as inputs:
        assert states_are_whole(inputs, [other])
        assert not states_are_whole(inputs, [other, damaged])
    with open_inputs([tmp_path / "orders-0"]) as inputs:
        assert not states_are_whole(inputs, [])
    assert "half-loaded-coordinator" in possible_causes(HANGING)
    assert "half-loaded-coordinator" not in possible_causes(HANGING, states_are_whole=True)


# --- links in the place of logs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_place_of_a_partition_is_not_judged(there: bool, cluster: Path, tmp_path: Path) -> None:
    folder = cluster / "brokers" / "1" / "generated-0"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / ("elsewhere" if there else "not mounted"))
    (cluster / "brokers" / "1" / "a link").symlink_to(tmp_path / "elsewhere")
    (cluster / "brokers" / "1" / "generated-1" / "other.txt").symlink_to(tmp_path / "elsewhere")
    found = of(run([cluster]), READABLE)
    assert (found.standing, found.unjudged_for) == (Standing.NOT_JUDGED, {"links": 1})
    assert found.evidence == str(folder)
    assert found.unjudged.startswith("1 link: ")
    assert "give the folders that the links lead to" in found.unjudged
    alone = of(run([tmp_path / "elsewhere" / ".." / "cluster" / "brokers" / "1" / "generated-1"]), READABLE)
    assert alone.standing is Standing.OK, "nobody asked for the others"


def test_links_to_what_is_given_too_are_judged_by_it_and_a_link_to_another_broker_is_not_judged(
    cluster: Path, tmp_path: Path
) -> None:
    moved = shutil.move(cluster / "brokers" / "1" / "generated-0", tmp_path / "elsewhere" / "generated-0")
    (cluster / "brokers" / "1" / "generated-0").symlink_to(moved)
    shutil.copytree(cluster / "brokers" / "1" / "generated-1", tmp_path / "mounted" / "other-1")
    (cluster / "brokers" / "2").symlink_to(tmp_path / "mounted")
    (cluster / "brokers" / "latest").symlink_to(cluster / "brokers" / "1")
    (tmp_path / "empty").mkdir()
    (cluster / "brokers" / "empty").symlink_to(tmp_path / "empty")
    found = of(run([cluster]), READABLE)
    assert found.unjudged_for == {"links": 2}
    assert found.evidence.splitlines() == [str(cluster / "brokers" / name) for name in ("1/generated-0", "2")]
    assert of(run([cluster, tmp_path / "mounted", Path(moved)]), READABLE).standing is Standing.OK


def test_a_link_to_a_folder_of_several_brokers_is_not_judged_until_all_of_them_are_given(
    cluster: Path, tmp_path: Path
) -> None:
    shutil.copytree(cluster / "brokers" / "1", tmp_path / "mounted" / "1")
    shutil.copytree(cluster / "brokers" / "1" / "generated-1", tmp_path / "mounted" / "2" / "other-1")
    below = cluster / "brokers" / "host" / "kafka"
    below.mkdir(parents=True)
    link = below / "data"
    link.symlink_to(tmp_path / "mounted")
    shutil.rmtree(tmp_path / "mounted" / "1")
    (tmp_path / "mounted" / "1").symlink_to(cluster / "brokers" / "1")
    found = of(run([cluster]), READABLE)
    assert (found.standing, found.unjudged_for, found.evidence) == (Standing.NOT_JUDGED, {"links": 1}, str(link))
    assert of(run([cluster, tmp_path / "mounted"]), READABLE).standing is Standing.OK


def test_a_broker_whose_folder_lies_deeper_than_the_others_is_not_judged_unless_it_is_given(
    cluster: Path, tmp_path: Path
) -> None:
    deep = cluster / "brokers" / "deep" / "kafka"
    shutil.copytree(cluster / "brokers" / "1", deep / "2")
    meta = deep / "2" / "meta.properties"
    meta.write_text(meta.read_text(encoding="ascii").replace("node.id=1", "node.id=2"), encoding="ascii")
    found = of(run([cluster]), READABLE)
    assert (found.standing, found.unjudged_for) == (Standing.NOT_JUDGED, {"too-deep": 1})
    assert found.unjudged.startswith("1 folder: they have partitions and are not read")
    assert found.unjudged.endswith("/brokers/deep/kafka/2")
    assert of(run([cluster, deep]), READABLE).standing is Standing.OK


def test_a_partition_with_links_only_is_not_judged(cluster: Path, tmp_path: Path) -> None:
    for file in segments(cluster, "generated-0"):
        file.rename(tmp_path / file.name)
        file.symlink_to(tmp_path / file.name)
    found = of(run([cluster]), READABLE)
    assert found.standing is Standing.NOT_JUDGED
    assert found.unjudged_for == {"links": len(segments(cluster, "generated-0"))}


def test_a_link_in_the_place_of_a_segment_is_not_judged(cluster: Path, tmp_path: Path) -> None:
    last = segments(cluster, "generated-0")[-1]
    last.rename(tmp_path / "elsewhere.log")
    last.symlink_to(tmp_path / "elsewhere.log")
    found = of(run([cluster]), READABLE)
    assert (found.standing, found.unjudged_for) == (Standing.NOT_JUDGED, {"links": 1}), "it may have the log's end"
    assert found.evidence == str(last)


def test_a_link_to_a_segment_that_is_given_itself_is_the_segment_of_its_own_folder(
    cluster: Path, tmp_path: Path
) -> None:
    wanted, other = segments(cluster, "generated-0")[0], segments(cluster, "generated-1")[0]
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(wanted, tmp_path / "elsewhere" / "named otherwise")
    shutil.copy(other, tmp_path / "elsewhere" / wanted.name)
    link = tmp_path / "orders-3" / wanted.name
    link.parent.mkdir()
    link.symlink_to(tmp_path / "elsewhere" / "named otherwise")
    [log] = run([link]).logs
    assert (log.log.topic, log.log.partition, log.segment_bytes) == ("orders", 3, wanted.stat().st_size)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("generated-1.bak", "generated-1.bak"),
        ("generated-01", "generated-01"),
        ("copy of générated-1", "copy of générated-1"),
        ("generated-1\x1b[2J\n", r"generated-1\x1b[2J\n"),
        ("generated\udcff-1", r"generated\udcff-1"),
    ],
)
def test_a_folder_with_segments_that_is_not_named_like_a_partition_is_not_judged(
    name: str, shown: str, cluster: Path
) -> None:
    (cluster / "brokers" / "1" / HIGH_WATERMARKS).write_text("0\n0\n")
    (cluster / "brokers" / "1" / RECOVERY_POINTS).write_text("0\n0\n")
    folder = cluster / "brokers" / "1" / "generated-1"
    renamed = folder.rename(folder.with_name(name))
    for given in (cluster, renamed.parent):
        found = of(run([given], one_moment=True), READABLE)
        assert (found.standing, found.unjudged_for["misnamed"]) == (Standing.NOT_JUDGED, 1)
        assert str(renamed.with_name(shown)) in found.evidence.split("\n")
    renamed.rename(folder.with_name(f"generated-1.{'0f' * 16}-stray"))
    assert "misnamed" not in of(run([cluster]), READABLE).unjudged_for, "its broker has set it aside"


def test_a_packed_segment_is_not_judged(cluster: Path) -> None:
    (cluster / "brokers" / "1" / HIGH_WATERMARKS).unlink()
    last = segments(cluster, "generated-0")[-1]
    for suffix in (".index", ".timeindex", ".txnindex"):
        last.with_suffix(suffix).unlink(missing_ok=True)
    packed = last.rename(last.with_name(f"{last.name}.gz"))
    found = of(run([last.parent], one_moment=True), READABLE)
    assert (found.standing, found.unjudged_for, found.evidence) == (Standing.NOT_JUDGED, {"misnamed": 1}, str(packed))
    only = cluster / "brokers" / "1" / "other-0" / packed.name
    only.parent.mkdir()
    only.touch()
    told = of(run([cluster], one_moment=True), READABLE).evidence.splitlines()
    assert told[-2:] == [str(packed), str(only)], "also in a partition without any other segment"
    packed.rename(last.with_name(f"{last.name}.deleted"))
    assert of(run([last.parent], one_moment=True), READABLE).standing is Standing.OK


def pack(segment: Path) -> None:
    for suffix in (".index", ".timeindex", ".txnindex"):
        segment.with_suffix(suffix).unlink(missing_ok=True)
    segment.rename(segment.with_name(f"{segment.name}.gz"))


def leave_its_index(segment: Path) -> None:
    segment.unlink()


def put_a_link(segment: Path) -> None:
    segment.unlink()
    segment.symlink_to("nowhere")


def pack_the_one_before_and_empty_the_last(segment: Path) -> None:
    pack(sorted(segment.parent.glob("*.log"))[-2])
    segment.write_bytes(b"")
    for suffix in (".index", ".timeindex", ".txnindex"):
        segment.with_suffix(suffix).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("lose", "engine"),
    [
        *((lose, "local") for lose in (pack, leave_its_index, put_a_link, pack_the_one_before_and_empty_the_last)),
        pytest.param(pack, "spark", marks=pytest.mark.spark),
    ],
)
@pytest.mark.parametrize(("topic", "rule"), [("generated-0", HANGING), (TOPIC, NO_TRANSACTION)])
def test_what_the_unread_end_of_a_log_has_counts_against_nobody_without_a_checkpoint_either(
    lose: Callable[[Path], None],
    topic: str,
    rule: str,
    engine: str,
    cluster: Path,
    request: pytest.FixtureRequest,
) -> None:
    for checkpoint in (HIGH_WATERMARKS, RECOVERY_POINTS):
        (cluster / "brokers" / "1" / checkpoint).unlink(missing_ok=True)
    last = segments(cluster, topic if topic != TOPIC else busiest(cluster))[-1]
    whole = last.read_bytes()
    last.write_bytes(b"")
    assert not of(run([cluster], one_moment=True), rule).ok, "without anything that shows that the log had more"
    last.write_bytes(whole)
    lose(last)
    how: dict[str, Any] = {"engine": engine, "spark": request.getfixturevalue("spark") if engine == "spark" else None}
    result = run([cluster], one_moment=True, oracle=1.0 if engine == "local" else None, **how)
    assert [finding for finding in result.findings if finding.rule != READABLE] == []
    assert of(result, rule).unjudged_for["incomplete"] > 0
    assert of(result, READABLE).standing is not Standing.OK
    assert engine != "local" or result.verdicts[-1].ok, "the readable rules find the same"


def test_one_segment_of_several_is_judged_by_itself(cluster: Path) -> None:
    first, *_, last = segments(cluster, "generated-0")
    pack(last)
    assert not lacks_end((run([first]).logs[0].log, True))
    log = run([first.parent]).logs[0].log
    assert lacks_end((log, False))
    alone = cluster / "brokers" / "1" / "alone-0" / first.name
    for path in (alone, alone.with_name(f"{first.name}.gz")):
        path.parent.mkdir(exist_ok=True)
        shutil.copy(first, path)
    assert not lacks_end((find_logs(alone.parent)[0], False)), "a packed copy of a segment that is there"
    shutil.rmtree(first.parent)
    assert not lacks_end((log, False)), "it is gone meanwhile"


# --- topics of one name -----------------------------------------------------------------------------------------------


def of_another_topic(cluster: Path, *names: str) -> None:
    """Let partitions of broker 1 tell another id of their topic."""
    for name in names:
        (cluster / "brokers" / "1" / name / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {'A' * 22}\n")


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_partitions_of_topics_of_one_name_with_different_ids_are_not_judged(
    engine: str, cluster: Path, request: pytest.FixtureRequest
) -> None:
    how: dict[str, Any] = {"engine": engine, "spark": request.getfixturevalue("spark") if engine == "spark" else None}
    of_another_topic(cluster, "generated-1")
    cut(segments(cluster, "generated-1")[0], 100)
    result = run([cluster], **how)
    found = of(result, READABLE)
    assert (violated(result), found.standing, found.unjudged_for) == ([], Standing.NOT_JUDGED, {"mixed-topics": 1})
    assert "topic generated has id " in found.evidence
    assert f"generated-0, id {'A' * 22} in {cluster / 'brokers' / '1' / 'generated-1'}" in found.evidence
    assert {log.log.topic for log in result.logs} == {TOPIC, OFFSETS_TOPIC}
    of_another_topic(cluster, "generated-0", "generated-2")
    assert READABLE in violated(run([cluster], **how)), "all are of the same topic"


def test_replicas_of_topics_of_one_name_with_different_ids_are_not_judged(cluster: Path) -> None:
    one, two = (cluster / "brokers" / name for name in "12")
    shutil.copytree(one, two)
    (two / "meta.properties").write_text("version=1\nnode.id=2\n")
    of_another_topic(cluster, *(f"generated-{number}" for number in range(3)))
    assert of(run([cluster]), READABLE).unjudged_for == {"mixed-topics": 1}
    with pytest.raises(UnusableInput, match=f"topic generated has id {'A' * 22} in .*audit those of each id for"):
        run([one / "generated-0", two / "generated-0"])


def test_copies_of_two_clusters_are_told_by_the_ids_of_their_topics(cluster: Path) -> None:
    other = cluster / "brokers" / "2"
    Cluster(workload=Workload(transactions=9, batches=90, clients=2, partitions=1, seed=5)).write(cluster / "made")
    shutil.move(cluster / "made" / "brokers" / "1", other)
    for file in (cluster / "brokers").glob("*/meta.properties"):
        file.unlink()
    with pytest.raises(UnusableInput, match=f"topic {OFFSETS_TOPIC} has id "):
        run([cluster / "brokers"])


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (HIGH_WATERMARKS, "garbage\n", 1),
        (START_OFFSETS, "0\nmany\n", 2),
        (RECOVERY_POINTS, "0\n1\norders 0 x\n", 3),
        (CLEANED, "0\n2\norders 0 1\n", 2),
        ("meta.properties", "\0\0\0\0", 1),
    ],
)
def test_a_damaged_file_of_a_directory_is_told_with_its_line_and_remedy(
    name: str, text: str, line: int, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster / "brokers" / "1" / name
    file.write_text(text)
    assert main(["audit", str(cluster / "brokers" / "1")]) == 1
    told = capsys.readouterr().out
    assert f"expected 0 corrupt regions, found 1 damaged file\n1/{name}: damaged file: line {line}: " in told
    assert f"next: compare {name} with the broker's own file" in told
    assert name == "meta.properties" or ", stop broker 1, move the file away" in told
    file.unlink()
    assert of(run([cluster]), READABLE).ok


@pytest.mark.parametrize(
    ("name", "text"), [(LEADER_EPOCH_CHECKPOINT, "0\n1\n5\n"), ("partition.metadata", "version: 0\n")]
)
def test_a_damaged_file_of_a_partition_is_told_whatever_the_moment_of_its_log_is(
    name: str, text: str, cluster: Path
) -> None:
    (cluster / "brokers" / "1" / CLEAN_SHUTDOWN).unlink()
    (cluster / "brokers" / "1" / "generated-1" / name).write_text(text)
    result = run([cluster / "brokers" / "1"])
    [finding] = result.findings
    assert (finding.rule, finding.topic, finding.partition, finding.file) == (READABLE, "generated", 1, name)
    assert finding.evidence.startswith("damaged file: line ")
    advice = "\n".join(rule_of(READABLE).advice(finding))
    assert (", move the file away, and start it" in advice) == (name != "partition.metadata")
    assert ("do not move it away" in advice) == (name == "partition.metadata"), "its broker would begin an empty log"


def test_an_empty_checkpoint_is_not_damaged_and_a_link_is_not_followed(cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("garbage")
    for name in (START_OFFSETS, RECOVERY_POINTS, CLEANED):
        (cluster / "brokers" / "1" / name).write_text("")
    (cluster / "brokers" / "1" / "generated-0" / LEADER_EPOCH_CHECKPOINT).unlink(missing_ok=True)
    (cluster / "brokers" / "1" / "generated-0" / LEADER_EPOCH_CHECKPOINT).symlink_to(tmp_path / "elsewhere")
    assert of(run([cluster]), READABLE).found == "0 corrupt regions"


@pytest.mark.parametrize("options", [["--snapshot"], []])
def test_a_replica_that_is_behind_contradicts_that_all_logs_are_of_one_moment(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--transactions", "40", "--batches", "200", "--brokers", "2", "--partitions", "2"]
    assert main(["lab", "generate", str(tmp_path / "made"), *sizes]) == 0
    older = tmp_path / "made" / "brokers" / "1"
    for name in (".kafka_cleanshutdown", "replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (older / name).unlink(missing_ok=True)
    segment = older / "generated-0" / f"{0:020d}.log"
    batches = [region for region in read_segment(segment) if isinstance(region, StoredBatch)]
    segment.write_bytes(b"".join(each.batch.encode() for each in batches[: len(batches) // 2]))
    capsys.readouterr()
    main(["audit", str(tmp_path / "made" / "brokers"), *options])
    assert ("1 log at 1 below the high watermark" in capsys.readouterr().out) == bool(options)
