"""Healthy but unusual clusters have no finding, and a violation that is planted in any of them is found."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.formats.record_batch import ControlType, RecordBatch, build_control_batch
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import TOPIC
from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.findings import Kind
from kafka_eos_checks.audit.rules.beside import REPLICAS
from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS, DUPLICATE, GAP, STALE_EPOCH
from kafka_eos_checks.audit.rules.rule_book import READABLE
from kafka_eos_checks.audit.rules.transactions.names import HANGING, NO_TRANSACTION, TORN
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.kit.paths import recordings_folder
from kafka_eos_checks.kit.recording import unpack
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.record import healthy_scenarios
from kafka_eos_checks.lab.record.healthy_scenarios import EVERY
from kafka_eos_checks.lab.record.stage import SCENARIOS

FOLDER = recordings_folder() / "healthy"
ARCHIVES = sorted(FOLDER.glob("*.tar.xz"))
NAMES = [archive.name.removesuffix(".tar.xz").removeprefix("healthy-") for archive in ARCHIVES]
# Records removed by retention, cleaner or operator are not judged, nor those of an earlier topic of the same name.
UNJUDGED = {
    "compacted-coordinators": {
        *("illegal coordinator transition", "decision changed", TORN, NO_TRANSACTION, "aborted index"),
        "fenced producer committed",
    },
    "compacted-replicas": {TORN, NO_TRANSACTION, "aborted index", READABLE},  # without cleaner-offset-checkpoint
    "compaction": {TORN, NO_TRANSACTION, "aborted index", READABLE},
    "old-formats": {TORN, NO_TRANSACTION, "fenced producer committed", "producer snapshot"},
    "tiered": {"acknowledged but lost", "committed record missing"},
    "topics-made-again": {GAP},
}


def scenario(name: str) -> str:
    """The scenario of an archive of any release."""
    return name.removesuffix("-4.4").removesuffix("-3.9").removesuffix("-2.8")


def test_every_scenario_is_kept_of_every_release_that_it_is_made_with() -> None:
    suffix = {EVERY[0]: "", **{release: f"-{release.rpartition('.')[0]}" for release in EVERY[1:]}}
    made = [s for s in SCENARIOS.values() if s.cluster.startswith("healthy-")]
    assert sorted(NAMES) == sorted(s.short_name + suffix[release] for s in made for release in s.kafka)


def test_before_its_last_transaction_the_tiered_scenario_waits_until_the_first_segment_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    did: list[object] = []
    first = tmp_path / "t-0" / f"{0:020d}.log"
    first.parent.mkdir()
    first.touch()

    class Written:
        def __init__(self, *_: object) -> None: ...

        def send(self, topic: str, count: int) -> None:
            did.append((topic, count))

        def transaction(self, topics: list[str], *, abort: bool = False) -> None:
            did.append((*topics, abort))

    def wait_until(_: str, reached: Callable[[], bool]) -> None:
        assert not reached()
        first.unlink()
        assert reached()
        did.append("waited")

    monkeypatch.setattr(healthy_scenarios, "Writer", Written)
    monkeypatch.setattr(healthy_scenarios, "wait_until", wait_until)
    monkeypatch.setattr(healthy_scenarios, "java", lambda *_, also: did.append(also))
    monkeypatch.setattr(healthy_scenarios.time, "sleep", lambda _: None)
    topics = {"": "t", "-other": "o"}
    cluster = {1: SimpleNamespace(data=tmp_path)}
    stage: Any = SimpleNamespace(name="n", cluster=cluster, topic=lambda suffix="", **_: topics[suffix])
    healthy_scenarios.tiered(stage)
    before = [each for abort in (False, True, False) * 4 for each in (("t", 4), ("t", "o", abort))]
    assert did == [*before, "waited", ("t", "o", False), ("o",)]


@pytest.fixture(scope="module", params=list(zip(ARCHIVES, NAMES, strict=True)), ids=NAMES)
def healthy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Audit]:
    """A recording: its scenario, its folder, and its audit."""
    archive, name = request.param
    folder = tmp_path_factory.mktemp(name)
    unpack(archive, folder)
    return scenario(name), folder, run([folder])


def test_nothing_is_found_and_only_what_cannot_be_judged_is_unjudged(healthy: tuple[str, Path, Audit]) -> None:
    name, _, result = healthy
    assert result.findings == ()
    assert {verdict.name for verdict in result.verdicts if verdict.unknown} <= UNJUDGED.get(name, set())
    batches = sum(log.batches for log in result.logs)
    assert batches > 12


def test_the_same_folder_as_a_copy_made_at_unknown_times_has_no_finding(healthy: tuple[str, Path, Audit]) -> None:
    _, folder, _ = healthy
    assert run(sorted((folder / "brokers").iterdir())).findings == ()


TOLD = {
    "aborted-by-hand": (NO_TRANSACTION, Kind.TOLD),
    "offsets-set-back": ("committed offset went back", Kind.TOLD),
    "open-transactions": (HANGING, Kind.TOLD),
    "preallocated": (HANGING, Kind.TOLD),  # the broker was killed between a decision and its marker
    "topics-made-again": (GAP, Kind.NOT_JUDGED),
}


def test_deliberate_changes_are_reported(healthy: tuple[str, Path, Audit]) -> None:
    name, _, result = healthy
    [readable] = [verdict for verdict in result.verdicts if verdict.name == READABLE]
    lacking = [note for note in result.notes if note.rule == READABLE]
    assert ({note.kind for note in lacking} <= {Kind.NOT_JUDGED}, len(lacking)) == (True, readable.unknown)
    told = {(note.rule, note.kind) for note in result.notes if note.rule != READABLE}
    assert told == ({TOLD[name]} if name in TOLD else set())


# --- planted violations ----------------------------------------------------------------------------------------------


def stored(log: PartitionLog) -> Iterator[tuple[Path, StoredBatch]]:
    """The batches of a log, each with its file."""
    for name in log.segments:
        path = Path(log.folder, name)
        yield from ((path, item) for item in read_segment(path) if isinstance(item, StoredBatch))


def data_logs(folder: Path) -> list[PartitionLog]:
    return [log for log in find_logs(*(folder / "brokers").iterdir()) if log.topic not in COORDINATOR_TOPICS]


def last_data(folder: Path) -> tuple[Path, StoredBatch, int]:
    """The last batch of an idempotent producer, and the end of its log."""
    for log in data_logs(folder):
        batches = list(stored(log))
        own = [(path, item) for path, item in batches if item.batch.base_sequence >= 0 and item.batch.record_count]
        if own:
            path, item = own[-1]
            last = batches[-1][1].batch
            if batches[-1][0] == path:
                return path, item, last.base_offset + last.last_offset_delta + 1
    raise AssertionError("no log with a batch of an idempotent producer")


def insert(path: Path, batch: RecordBatch) -> None:
    """Write a batch after the last one of a segment, before the preallocated space."""
    content = path.read_bytes()
    last = [item for item in read_segment(path) if isinstance(item, StoredBatch)][-1]
    end = last.position + last.batch.size
    path.write_bytes(content[:end] + batch.encode() + content[end:])


def test_a_planted_duplicate_batch_is_found_in_each_recording(healthy: tuple[str, Path, Audit]) -> None:
    """After a marker of transaction version 2, its epoch has also ended."""
    _, folder, _ = healthy
    path, item, end = last_data(folder)
    before = path.read_bytes()
    insert(path, replace(item.batch, base_offset=end))
    found = [(finding.rule, finding.offset) for finding in run([folder]).findings]
    path.write_bytes(before)
    assert {(DUPLICATE, end), (STALE_EPOCH, end)} & set(found)


def verdict_of(result: Audit, rule: str) -> Verdict | None:
    return next((verdict for verdict in result.verdicts if verdict.name == rule), None)


def test_a_marker_with_the_wrong_decision_is_found_if_all_markers_are_judged(
    healthy: tuple[str, Path, Audit],
) -> None:
    name, folder, result = healthy
    judged = verdict_of(result, TORN)
    if judged is None or judged.unknown or name in {"aborted-by-hand", "open-transactions"}:
        assert name in {*UNJUDGED, "aborted-by-hand", "open-transactions"}
        return
    path, item = [
        place
        for log in find_logs(*(folder / "brokers").iterdir())
        if log.topic != TOPIC
        for place in stored(log)
        if place[1].batch.is_control and place[1].batch.record_count
    ][-1]
    marker = item.batch.control_record()
    assert marker is not None
    other = replace(marker, control_type=ControlType(1 - marker.control_type))
    changed = build_control_batch(
        other,
        producer_id=item.batch.producer_id,
        producer_epoch=item.batch.producer_epoch,
        base_offset=item.batch.base_offset,
        timestamp=item.batch.base_timestamp,
    )
    changed = replace(changed, partition_leader_epoch=item.batch.partition_leader_epoch)
    before = path.read_bytes()
    end = item.position + item.batch.size
    path.write_bytes(before[: item.position] + changed.encode() + before[end:])
    rules = {finding.rule for finding in run([folder]).findings if finding.topic != TOPIC}
    path.write_bytes(before)
    assert rules & {TORN, NO_TRANSACTION, REPLICAS}


def test_a_cluster_without_its_coordinators_log_fails_and_names_what_hangs_and_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = recordings_folder() / "broken" / "lost-coordinator.tar.xz"
    assert cli.main(["audit", str(archive), "--html", str(tmp_path / "audit.html")]) == 3
    said = capsys.readouterr().out
    assert "4 of 18 verdicts not judged, 14 as expected" in said
    unjudged = "hanging transaction (not judged): lost-coordinator-0/00000000000000000000.log byte 4766 offset 72 "
    assert unjudged in said
    assert "for 8.49 s; readers of committed data get none of the 14 offsets from 72 to 85" in said
    assert "abort --topic=lost-coordinator --partition=0 --start-offset=72" in said
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert '<header class="unjudged">' in page
    assert "offset 72" in page
