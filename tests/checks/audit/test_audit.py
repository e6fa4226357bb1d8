"""The audit from files to findings, in this process and on Spark."""

import os
import random
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google_crc32c import value as crc32c

from kafka_eos.formats.log_directory import LogDirectory
from kafka_eos.formats.message_set import Message, build_message_set
from kafka_eos.formats.record_batch import CHECKED_FROM
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.histories.history import Event, write_history
from kafka_eos_checks import cli
from kafka_eos_checks.audit import inputs
from kafka_eos_checks.audit.audit import RuleDraft, _shortened, of_inputs, place_of, run
from kafka_eos_checks.audit.engines.spark import SparkEngine
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.inputs import Inputs, UnusableInput
from kafka_eos_checks.audit.kernels.logs import fold
from kafka_eos_checks.audit.kernels.logs.copies import with_first_copies
from kafka_eos_checks.audit.kernels.logs.summary import reread_from
from kafka_eos_checks.audit.moments import HIGH_WATERMARKS
from kafka_eos_checks.audit.oracle import oracle
from kafka_eos_checks.audit.oracle.synthetic import data_batch, faulty_log, write_log, write_segment
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.plan.found import SHOWN_FINDINGS, Tally
from kafka_eos_checks.audit.rules.beside import ABORTED_INDEX
from kafka_eos_checks.audit.rules.log import (
    DUPLICATE,
    SEQUENCE_MASK,
    STALE_EPOCH,
    Batch,
    Reason,
    Reasons,
    Subject,
    audit_log,
)
from kafka_eos_checks.audit.rules.rule_book import READABLE, Place, rule_of
from kafka_eos_checks.audit.rules.transactions.names import NO_TRANSACTION, RECENT, TORN, UNKNOWN
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs, plan
from kafka_eos_checks.kit.recording import kept_recordings, unpack
from kafka_eos_checks.kit.verdict import counted
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload


def log_of(folder: Path, batches: list[Batch], partition: int = 0, **how: Any) -> PartitionLog:
    path = folder / f"orders-{partition}"
    write_log(path, batches, **how)
    [log] = find_logs(path)
    return log


def empty_log(folder: Path, partition: int) -> PartitionLog:
    path = folder / f"orders-{partition}" / f"{0:020d}.log"
    path.parent.mkdir()
    path.touch()
    [log] = find_logs(path.parent)
    return log


def clean(count: int) -> list[Batch]:
    return [Batch(i, i, i, 7, 0, i, i, unsequenced=False) for i in range(count)]


def with_a_duplicate() -> list[Batch]:
    return [*clean(500), Batch(0, 500, 500, 7, 0, 499, 499, unsequenced=False)]


def test_a_clean_log_has_no_finding(tmp_path: Path) -> None:
    [audit] = stages.audit_logs([log_of(tmp_path, clean(500))])
    assert (audit.findings, audit.batches, audit.records, audit.markers) == ((), 500, 500, 0)


def test_a_duplicate_is_found_with_file_position_offset_and_producer(tmp_path: Path) -> None:
    log = log_of(tmp_path, with_a_duplicate())
    [audit] = stages.audit_logs([log])
    [finding] = audit.findings
    assert (finding.rule, finding.topic, finding.partition, finding.offset) == (DUPLICATE, "orders", 0, 500)
    assert (finding.producer_id, finding.producer_epoch, finding.base_sequence) == (7, 0, 499)
    assert finding.position is not None
    data = (Path(log.folder) / finding.file).read_bytes()
    assert int.from_bytes(data[finding.position : finding.position + 8], "big") == 500


def copies(folder: Path, batches: list[Batch], **how: Any) -> list[str]:
    """The words on the first copies of a log's duplicates, which are those of the oracle and of other splits, too."""
    log = log_of(folder, batches, **how)
    whole, cut = ([*stages.audit_logs([log], split_bytes=size)] for size in (1 << 20, 500))
    assert whole[0].findings == cut[0].findings
    assert oracle.judge(cut).found == "0 differences"
    return [each.evidence.partition("; ")[2] for each in cut[0].findings if each.rule == DUPLICATE]


def test_a_duplicate_is_told_with_the_first_copy_of_its_producer_and_epoch(tmp_path: Path) -> None:
    others = [Batch(0, i, i, 8, 0, i, i, unsequenced=False) for i in range(20)]
    old = [Batch(0, 20 + i, 20 + i, 7, 0, i, i, unsequenced=False) for i in range(20)]
    new = [Batch(0, 40 + 2 * i, 41 + 2 * i, 7, 1, 2 * i, 2 * i + 1, unsequenced=False) for i in range(100)]
    again = [Batch(0, 240 + i, 240 + i, 7, 1, 5, 5, unsequenced=False) for i in range(2)]
    assert copies(tmp_path, [*others, *old, *new, *again]) == ["the first copy is at offset 44"] * 2


def test_a_first_copy_whose_sequences_wrap_is_found(tmp_path: Path) -> None:
    wraps = [Batch(0, 5, 8, 7, 0, SEQUENCE_MASK - 1, 1, unsequenced=False)]
    again = [Batch(0, 9 + i, 9 + i, 7, 0, each, each, unsequenced=False) for i, each in enumerate((SEQUENCE_MASK, 0))]
    assert copies(tmp_path, wraps + again) == ["the first copy is at offset 5"] * 2


def test_a_first_copy_in_an_earlier_segment_is_told_to_be_there(tmp_path: Path) -> None:
    assert copies(tmp_path, with_a_duplicate(), segment_batches=250) == [
        "the first copy is not in this segment, but in an earlier one, or gone"
    ]
    book = rule_of(DUPLICATE).advice(run([tmp_path]).findings[0])
    assert any("`baseSequence: 499 `, `producerId: 7 ` and `producerEpoch: 0 `" in line for line in book)


def test_a_segment_that_changes_before_the_first_copy_is_looked_for_is_gone(tmp_path: Path) -> None:
    log = log_of(tmp_path, with_a_duplicate())
    splits = plan([log])
    [audit] = stages.audit_logs([log])
    write_log(tmp_path / "orders-0", clean(400))
    with pytest.raises(FileNotFoundError, match="it was replaced or cut"):
        with_first_copies(audit.findings, splits)


@pytest.mark.parametrize(("check_crc", "found"), [(True, []), (False, [DUPLICATE])])
def test_a_batch_with_a_wrong_crc_is_judged_only_when_crcs_are_not_compared(
    tmp_path: Path, check_crc: bool, found: list[str]
) -> None:
    log = log_of(tmp_path, with_a_duplicate())
    segment = Path(log.folder, log.segments[0])
    *_, duplicate = [item.position for item in read_segment(segment)]
    data = bytearray(segment.read_bytes())
    data[duplicate + CHECKED_FROM + 10] ^= 1  # of the time, which no rule reads
    segment.write_bytes(data)
    [audit] = stages.audit_logs([log], check_crc=check_crc)
    assert [finding.rule for finding in audit.findings] == found
    assert (audit.batches, len(audit.damage)) == ((500, 1) if check_crc else (501, 0))


def test_sequences_that_a_coordinator_writes_are_not_judged_but_its_epochs_are(tmp_path: Path) -> None:
    zeroes = [Batch(0, i, i, 7, epoch, 0, 0, unsequenced=False) for i, epoch in enumerate((1, 1, 0))]
    write_log(tmp_path / "__consumer_offsets-3", zeroes)
    write_log(tmp_path / "orders-3", zeroes)
    coordinator, client = stages.audit_logs(find_logs(tmp_path))
    assert [finding.rule for finding in coordinator.findings] == [STALE_EPOCH]
    assert [finding.rule for finding in client.findings] == [DUPLICATE, STALE_EPOCH]


def test_headers_with_any_values_are_judged_as_the_readable_rule_judges_them(tmp_path: Path) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        folder = tmp_path / f"orders-{seed}"
        encoded = [hostile_batch(rng) for _ in range(rng.randint(1, 60))]
        write_segment(folder / f"{0:020d}.log", encoded)
        stored = [item for item in read_segment(folder / f"{0:020d}.log") if isinstance(item, StoredBatch)]
        readable = [
            Batch(
                item.position, batch.base_offset, batch.last_offset, batch.producer_id, batch.producer_epoch,
                batch.base_sequence, (batch.base_sequence + batch.last_offset_delta) & SEQUENCE_MASK,
                batch.is_control or batch.base_sequence < 0, leader_epoch=batch.partition_leader_epoch,
            )
            for item in stored
            for batch in [item.batch]
        ]  # fmt: skip
        [audit] = stages.audit_logs(find_logs(folder), split_bytes=rng.choice((100, 1000)))
        expected = [(batch.position, violation.rule) for batch, violation in audit_log(readable)]
        assert [(f.position, f.rule) for f in audit.findings] == expected, f"seed {seed}"
        assert audit.batches == len(stored), f"seed {seed}"


def hostile_batch(rng: random.Random) -> bytes:
    """A header with the right CRC and any other values, small and extreme ones."""

    def some(bits: int) -> int:
        top = 1 << (bits - 1)
        return rng.choice((0, 0, 1, 2, 3, -1, -top, top - 1, rng.randrange(-top, top)))

    checked = struct.pack(
        ">hiqqqhii", rng.choice((0, 0x10, 0x20, 0x30, some(16))), some(32), some(64), some(64), some(64), some(16),
        some(32), 0,
    )  # fmt: skip
    return struct.pack(">qiibI", some(64), 49, some(32), 2, crc32c(checked)) + checked


def broker(folder: Path, cluster: str, node: int, partition: int = 0) -> Path:
    write_log(folder / f"orders-{partition}", clean(10))
    (folder / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id={node}\n", encoding="utf-8")
    return folder


def test_logs_of_one_broker_are_no_replicas_of_each_other(tmp_path: Path) -> None:
    first, second = broker(tmp_path / "a", "one", 1), broker(tmp_path / "b", "one", 1)
    moved = "if it moved between the broker's log.dirs while they were copied, remove orders-0 from"
    said = rf"orders-0 is in .*/a and .*/b, both of broker 1.*audit each for itself, or, {moved}"
    with pytest.raises(UnusableInput, match=said):
        run([first, second])


def test_partitions_of_one_name_in_several_clusters_are_judged_apart_unless_it_is_not_known_of_which_they_are(
    tmp_path: Path,
) -> None:
    first, second = broker(tmp_path / "a", "one", 1), broker(tmp_path / "the b", "other", 1)
    result = run([first, second])
    assert "2 clusters, each judged for itself" in result.subject
    assert [verdict.figures["logs"] for verdict in result.verdicts if verdict.name == "readable"] == [2]
    (first / HIGH_WATERMARKS).write_text("0\n2\norders 0 10\norders 9 5\n", encoding="utf-8")
    assert [note.partition for note in run([first, second]).notes] == [9], "told of its own cluster only"
    write_history(first / "sends.jsonl", [Event(run="r", process="p", action="Send", phase="invoke")])
    with pytest.raises(UnusableInput, match=f"kafka-eos audit {first}\n  kafka-eos audit '{second}'$"):
        run([first, second], histories=[first / "sends.jsonl"])
    commands = f"audit each cluster for itself, .*:\n  kafka-eos audit {first}\n  kafka-eos audit '{second}'"
    broker(tmp_path / "c", "", 1, partition=1)
    (tmp_path / "c" / "meta.properties").unlink()
    commands += f"\n  and {tmp_path / 'c'} with the one whose cluster it is of"
    with pytest.raises(UnusableInput, match=f"orders-0 .* of the clusters one and other: no replicas, so {commands}"):
        run([tmp_path])


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_the_verdicts_over_two_clusters_are_those_of_each_together(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    how: dict[str, Any] = {"engine": engine, "spark": request.getfixturevalue("spark") if engine == "spark" else None}
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders, 3):
        workload = Workload(transactions=1500, batches=9000, partitions=6, clients=25, seed=seed)
        Cluster(workload=workload, value_bytes=8, faults=1, as_tables=seed == 4).write(folder)
    each, both = [run([folder]) for folder in folders], run(folders, **how)
    places = [Counter((f.rule, f.topic, f.partition, f.offset, f.kind) for f in result.findings) for result in each]
    found = Counter((f.rule, f.topic, f.partition, f.offset, f.kind) for f in both.findings)
    assert found == places[0] + places[1]
    assert len({verdict.name for verdict in both.verdicts}) == len(both.verdicts) > 15
    for verdict in both.verdicts:
        own = [each for result in each for each in result.verdicts if each.name == verdict.name]
        figures = Counter[str]()
        for one in own:
            figures.update({name: int(value) for name, value in one.figures.items()})
        assert {name: figures[name] for name in verdict.figures} == verdict.figures
        count = sum(number for (rule, *_), number in found.items() if rule == verdict.name)
        assert verdict.found == ("0 corrupt regions" if verdict.name == READABLE else counted(count, "finding"))
        assert (verdict.unknown, verdict.recent) == (sum(one.unknown for one in own), sum(one.recent for one in own))


def test_replicas_disks_of_a_broker_and_clusters_without_a_common_partition_are_audited_together(
    tmp_path: Path,
) -> None:
    paths = [broker(tmp_path / "a", "one", 1), broker(tmp_path / "b", "one", 2), broker(tmp_path / "c", "one", 1, 1)]
    paths.append(broker(tmp_path / "d", "other", 1, 2))
    result = run(paths)
    assert not result.findings
    assert [verdict.figures["logs"] for verdict in result.verdicts if verdict.name == "readable"] == [4]


@pytest.mark.spark
def test_a_log_that_a_worker_cannot_read_is_reported(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path, clean(10))
    gone = replace(log, folder=str(tmp_path / "gone"))
    planned = [replace(split, log=gone) for split in plan([log])]
    monkeypatch.setattr(stages, "plan", lambda *_: planned)
    with pytest.raises(UnusableInput, match="No such file"):
        stages.audit_logs([gone], SparkEngine(spark))


@pytest.mark.spark
def test_spark_finds_what_the_local_engine_finds(tmp_path: Path, spark: Any) -> None:
    logs = [log_of(tmp_path, faulty_log(k, 400, 0.05), k, segment_batches=150) for k in range(3)]
    logs += [log_of(tmp_path, with_a_duplicate(), 3), empty_log(tmp_path, 4)]
    damaged = Path(logs[0].folder, logs[0].segments[1])
    damaged.write_bytes(damaged.read_bytes()[:-100])
    expected = stages.audit_logs(logs, split_bytes=20_000)
    assert [region.kind for _, region in expected[0].damage] == ["torn tail"]
    assert sum(len(audit.findings) for audit in expected) > 20
    assert stages.audit_logs(logs, SparkEngine(spark), split_bytes=20_000) == expected


@pytest.mark.spark
def test_spark_finds_in_tables_of_headers_what_the_local_engine_finds(tmp_path: Path, spark: Any) -> None:
    for number in range(3):
        log_of(tmp_path / "data", faulty_log(number, 400, 0.05), number, segment_batches=50)
    assert cli.main(["headers", str(tmp_path / "data"), "--out", str(tmp_path / "tables")]) == 0
    logs = find_logs(tmp_path / "tables")
    assert sum(len(log.segments) for log in logs) == 24
    expected = stages.audit_logs(logs)
    assert sum(len(audit.findings) for audit in expected) > 20
    assert stages.audit_logs(logs, SparkEngine(spark)) == expected


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(
            archive,
            id=archive.name,
            marks=pytest.mark.thorough if archive.name.startswith(("transactions", "one-broker")) else (),
        )
        for archive in kept_recordings()
    ],
)
def test_a_history_alone_is_judged_by_what_clients_and_readers_tell(archive: Path, tmp_path: Path) -> None:
    folder = tmp_path / archive.name
    unpack(archive, folder)
    recording, alone = run([folder]), run(sorted((folder / "histories").glob("*.jsonl")))
    assert alone.logs == ()
    found = {(finding.rule, finding.topic, finding.offset) for finding in alone.findings}
    assert found <= {(finding.rule, finding.topic, finding.offset) for finding in recording.findings}
    figures = {verdict.name: verdict.figures for verdict in alone.verdicts}
    assert figures["input skipped"]["checked"] == figures["input skipped"]["unknown"]


def test_messages_of_the_formats_before_batches_are_counted_and_no_damage(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", clean(9)[3:])
    [segment] = (tmp_path / "orders-0").glob("*.log")
    old = build_message_set([Message(offset=offset, magic=1, timestamp=5, value=b"v") for offset in range(3)])
    for before, figures in ((b"", {}), (old, {"old_format_bytes": len(old)})):
        segment.write_bytes(before + segment.read_bytes())
        readable = next(verdict for verdict in run([tmp_path]).verdicts if verdict.name == READABLE)
        told = {name: number for name, number in readable.figures.items() if name.startswith("old")}
        assert (readable.ok, readable.found, told) == (True, "0 corrupt regions", figures)
    assert f"bytes 0-{len(old)}: old format: messages of format version 0 or 1, offsets 0 to 2" in readable.evidence
    last = data_batch(Batch(0, 12, 12, 7, 0, 9, 9, unsequenced=False))
    write_segment(segment.with_name(f"{12:020d}.log"), [last.encode()])
    readable = next(verdict for verdict in run([tmp_path]).verdicts if verdict.name == READABLE)
    assert readable.ok, "nor in a segment before the last"


ONE, OTHER = Reason("one", "one thing"), Reason("other", "another thing")


def test_reasons_of_several_clusters_are_added_and_the_most_frequent_is_told_first() -> None:
    drafts = []
    for number, reason in enumerate((OTHER, ONE, OTHER)):
        reasons = Reasons()
        reasons.count(reason, Subject("orders", number), 2)
        drafts.append(RuleDraft(rule=TORN, figures={"markers": 9, UNKNOWN: 2}, reasons=reasons))
    verdict = drafts[0].joined(drafts[1]).joined(drafts[2])(Tally())
    assert (verdict.unknown, verdict.unjudged_for) == (6, {"other": 4, "one": 2})
    assert "4: another thing; the first in orders-0; 2: one thing; the first in orders-1" in verdict.unjudged


@pytest.mark.parametrize(("recent", "told"), [(3, (9, 0)), (2, (6, 2))])
def test_what_is_too_recent_is_not_judged_if_nothing_else_was(recent: int, told: tuple[int, int]) -> None:
    verdict = RuleDraft(rule=NO_TRANSACTION, figures={"markers": 9, UNKNOWN: 6, RECENT: recent})(Tally())
    assert (verdict.unknown, verdict.recent) == told


def test_as_many_lines_as_are_shown_are_not_said_to_have_more_after_them() -> None:
    lines = [str(number) for number in range(SHOWN_FINDINGS + 1)]
    assert _shortened(lines[:-1]) == lines[:-1]
    assert _shortened(lines) == [*lines[:-1], "… and 1 more"]


def test_the_cause_in_a_wrong_index_is_told_of_its_own_partition_only() -> None:
    wrong = Finding(rule=ABORTED_INDEX, topic="orders", partition=1)
    for partition, is_told in ((0, False), (1, True)):
        place = place_of(Finding(rule=TORN, topic="orders", partition=partition), 1, Inputs((), ()), [wrong])
        assert (place.wrong_index != Place().wrong_index) is is_told


def test_nothing_at_all_is_no_input() -> None:
    with pytest.raises(UnusableInput, match="nothing to audit"):
        of_inputs(Inputs((), ()))


def test_a_segment_that_a_running_broker_deletes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "orders-0", clean(100), segment_batches=25)
    first = min((tmp_path / "orders-0").glob("*.log"))
    listed, deleted = inputs.logs_in, []

    def find(directories: list[LogDirectory]) -> list[PartitionLog]:
        logs = listed(directories)
        if not deleted:
            first.unlink()
            deleted.append(first)
        return logs

    monkeypatch.setattr(inputs, "logs_in", find)
    result = run([tmp_path])
    assert first.name not in result.logs[0].log.segments
    assert result.findings == ()
    assert "beginning anew" in capsys.readouterr().err


def test_a_segment_that_a_running_broker_compacts_or_cuts_meanwhile_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "orders-0", clean(100), segment_batches=50)
    last = max((tmp_path / "orders-0").glob("*.log"))
    index_of, cut = fold.read_index, []

    def read_index(segment: Path) -> Any:
        if segment == last and not cut:
            cut.append(segment.stat().st_size)
            os.truncate(segment, list(read_segment(segment))[20].position)
        return index_of(segment)

    monkeypatch.setattr(fold, "read_index", read_index)
    result = run([tmp_path])
    assert cut
    assert result.logs[0].batches == 70
    assert result.findings == ()
    assert f"{last.name} is gone; beginning anew" in capsys.readouterr().err.replace("\n", "")


def test_a_chunk_that_is_another_when_it_is_read_again_is_not_judged_as_it_is(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", clean(100))
    [split] = plan(find_logs(tmp_path))
    [(summary, *_)] = fold.summaries_of(split)
    reread = reread_from([split])
    assert len(reread(summary)) == summary.batches == 100
    os.truncate(split.path, list(read_segment(split.path))[20].position)
    with pytest.raises(FileNotFoundError, match="replaced or cut"):
        reread(summary)
    os.truncate(split.path, 0)
    with pytest.raises(FileNotFoundError, match="replaced or cut"):
        reread(summary)


@pytest.mark.parametrize(
    "others",
    [[b""] * 100, [*[b"%d" % number for number in range(98)], b"x" * 70]],
    ids=["as many batches", "as many bytes"],
)
def test_a_chunk_of_another_size_or_number_of_batches_is_another(others: list[bytes], tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", clean(100))
    [split] = plan(find_logs(tmp_path))
    [(summary, *_)] = fold.summaries_of(split)
    batches = [data_batch(each, [value]).encode() for each, value in zip(clean(len(others)), others, strict=True)]
    write_segment(split.path, batches)
    assert (len(batches) == summary.batches) != (split.path.stat().st_size == summary.end)
    with pytest.raises(FileNotFoundError, match="replaced or cut"):
        reread_from([split])(summary)


def test_where_segments_are_deleted_faster_than_they_are_read_a_copy_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "orders-0", clean(100), segment_batches=20)
    listed = inputs.logs_in

    def find(directories: list[LogDirectory]) -> list[PartitionLog]:
        logs = listed(directories)
        min((tmp_path / "orders-0").glob("*.log")).unlink()
        return logs

    monkeypatch.setattr(inputs, "logs_in", find)
    with pytest.raises(UnusableInput, match=r"\.log is gone, and a file was gone in each of 3 tries.*cp -al"):
        run([tmp_path])
    assert len([*(tmp_path / "orders-0").glob("*.log")]) == 2, "each try has lost one of five"


def test_a_file_that_is_no_segment_is_not_said_to_be_deleted_by_a_broker(tmp_path: Path) -> None:
    history, out = tmp_path / "history.jsonl", tmp_path / "nowhere" / "history.edn"
    write_history(history, [Event(run="r", process="p", action="Send", phase="ok", topic="orders", partition=0)])
    with pytest.raises(FileNotFoundError) as gone:
        run([history], as_jepsen=out)
    assert gone.value.filename == str(out)


@pytest.mark.parametrize("declared", [True, False])
def test_a_history_of_requests_without_a_question_says_that_nobody_asks(declared: bool, tmp_path: Path) -> None:
    own = {"run": "serve", "process": "app", "transactional_id": "t", "producer_id": 7, "producer_epoch": 0}
    sent = {"group": "payd", "topic": "in", "partition": 0, "detail": {"committed_offset": 1, "request": 1}}
    events = [Event(action="TxnOffsetCommit", phase=phase, **own, **sent) for phase in ("invoke", "ok")]
    if declared:
        question = {"run": "serve", "process": "me", "phase": "ok", "group": "payd"}
        events += [
            Event(action="DeclareApplication", **question),
            Event(action="DeclareTopic", topic="in", detail={"role": "input"}, **question),
            Event(action="DeclareTopic", topic="out", detail={"role": "output"}, **question),
        ]
    history = tmp_path / "history.jsonl"
    write_history(history, events)
    said = run([history]).subject
    assert ("no question about group 'payd', whose offsets were committed in transactions" in said) is not declared
