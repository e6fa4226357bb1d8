"""The plan of an audit: the same on both engines, and on Spark no rule over logs runs on the driver."""

import ast
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.engines import local as engines
from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.engines.local import LocalEngine, LocalRows
from kafka_eos_checks.audit.engines.spark import failures_told
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.plan import beside_stages, history_stages, slice_stages, stages
from kafka_eos_checks.audit.plan.found import Found
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.kit.paths import recordings_folder
from kafka_eos_checks.kit.recording import unpack
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.generate import traffic
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload

from ..conftest import in_both

RULES = {
    stages: (
        *("summaries_of", "fold", "state_chunk", "commit_chunk", "fold_states"),
        *("judge_steps", "fold_group_log", "went_back", "sliced", "sliced_ids", "fold_slice", "cuts_of"),
    ),
    slice_stages: ("paired", "judge_steps", "prove_slices", "routed", "ways_through"),
    beside_stages: (
        *("audit_beside", "judge_index", "judge_entries", "judge_replicas"),
        *("last_batches", "tails", "stored_in", "held_in"),
    ),
}


def comparable(audit: Audit) -> tuple[object, ...]:
    verdicts: list[Verdict] = [replace(verdict, seconds=0.0) for verdict in audit.verdicts]
    return audit.findings, audit.notes, audit.logs, verdicts


@pytest.mark.spark
@pytest.mark.parametrize("name", ["operator-mistakes", "transactions", "replicated-violations"])
def test_spark_finds_in_recordings_what_the_local_engine_finds_and_its_driver_runs_no_rule(
    name: str, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack(recordings_folder() / f"{name}.tar.xz", tmp_path / "recording")
    brokers = [tmp_path / "recording" / "brokers"]
    expected = run(brokers)
    assert any(verdict.name == "torn transaction" for verdict in expected.verdicts)

    def not_here(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a rule runs on the driver")

    for module, names in RULES.items():
        for rule in names:
            monkeypatch.setattr(module, rule, not_here)
    assert comparable(run(brokers, "spark", spark=spark)) == comparable(expected)
    with pytest.raises(AssertionError, match="on the driver"):
        run(brokers)


@pytest.mark.spark
def test_a_failure_of_spark_is_told_in_one_line(spark: Any) -> None:
    with pytest.raises(UnusableInput, match=r"^Spark failed: .*no such place.*$"), failures_told():
        spark.sql("SELECT raise_error('no such place')").collect()


def test_this_process_asks_about_an_item_when_its_answer_is_taken() -> None:
    asked: list[int] = []

    def ask(item: int) -> int:
        asked.append(item)
        return 2 * item

    answers = iter(LocalEngine().ask_each(ask, [3, 1, 2]))
    assert (next(answers), asked) == (6, [3])
    assert (list(answers), asked) == ([2, 4], [3, 1, 2])


def test_the_driver_asks_as_often_for_many_logs_as_for_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    collect = LocalEngine.collect
    monkeypatch.setattr(LocalEngine, "collect", lambda *told: asked.append(told[1]) or collect(*told))
    for partitions in (1, 12):
        made = Workload(transactions=60, batches=400, partitions=partitions, spread=1, clients=6)
        Cluster(workload=made).write(tmp_path / str(partitions))
        run([tmp_path / str(partitions)], take=lambda _: None)
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
    assert len(asked) == 2 * 7, "each of them is a query"


def test_rows_between_stages_spill_to_a_file_once_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SPILL_BYTES", 1000)
    rows = LocalRows()
    for number in range(100):
        rows.add(Row(number % 2, number % 3, number, 90))
    assert rows.places, "most are in the file"
    assert rows.keys([0, 1]) == {0, 1, 2}
    assert sorted(rows.values([0, 1], 1)) == [number for number in range(100) if number % 3 == 1]
    assert sorted(rows.values([0], 1)) == sorted(rows.values([0], 1)), "they can be read again"
    assert list(rows.values([7], 1)) == []


def test_a_killed_process_leaves_no_rows_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SPILL_BYTES", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = LocalRows()
    for number in range(100):
        rows.add(Row(0, 0, number, 90))
        if number == 50:
            assert len(list(rows.values([0], 0))) == 51, "rows may be read between two others"
    assert rows.places
    assert not [*tmp_path.iterdir()], "the file has no name"
    assert list(rows.values([0], 0)) == [*range(100)]
    rows.close()


def generated(folder: Path) -> list[PartitionLog]:
    """Logs with violations, in which each stage has something to judge."""
    made = Workload(transactions=200, batches=1000, partitions=4, clients=12, state_partitions=1)
    Cluster(workload=made, value_bytes=8, faults=1).write(folder)
    return find_logs(folder / "brokers")


def recorded(folder: Path) -> list[PartitionLog]:
    """Logs of a real broker."""
    unpack(recordings_folder() / "transactions.tar.xz", folder)
    return find_logs(folder / "brokers")


@in_both("made", generated, recorded)
def test_the_result_depends_neither_on_the_number_of_buckets_nor_on_spilling(
    made: Callable[[Path], list[PartitionLog]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = made(tmp_path / "logs")
    results = []
    for buckets, spill in ((1, 1 << 30), (7, 1), (64, 1 << 30)):
        monkeypatch.setattr(engines, "SPILL_BYTES", spill)
        engine = LocalEngine()
        engine.buckets = buckets
        scanned = stages.scan_logs(logs, engine, split_bytes=4096)
        assert scanned.buckets == buckets
        states, known = stages.audit_coordinators(scanned, engine)
        judged, _ = stages.judge_transactions(scanned, states, known, engine)
        found = sorted(finding.in_words() for finding in judged.findings)
        results.append((found, judged.figures, [(state.records, state.known, state.unknown) for state in states]))
    assert results[0] == results[1] == results[2]
    assert results[0][1]["torn transaction"]["markers"]


def same_in_slices(logs: Sequence[PartitionLog], markers: int = 8) -> tuple[list[str], bool]:
    """The findings, which are the same with slices and without; and whether slices were put together again.

    Args:
        logs: the logs.
        markers: in a chunk, of a producer id that is cut into slices.
    """
    results, together = [], False
    for buckets, least in ((1, 1 << 30), (7, markers), (2, 50)):
        engine = LocalEngine()
        engine.buckets = buckets
        scanned = stages.scan_logs(logs, engine, split_bytes=30_000, slice_markers=least)
        states, known = stages.audit_coordinators(scanned, engine)
        assert (bool(scanned.slices), bool(known.bases)) == (buckets > 1, buckets > 1 and bool(states))
        judged, ended = stages.judge_transactions(scanned, states, known, engine)
        beside, around = stages.audit_around(scanned, engine, ended, one_moment=True)
        found = [*Found(engine, known.rows), *judged.findings, *beside]
        counts = [(state.records, state.known, state.unknown) for state in states]
        results.append((sorted(each.in_words() for each in found), judged.figures, judged.reasons, around, counts))
        together |= "slices put together" in dict(engine.stages)
    assert results[0] == results[1] == results[2]
    return results[0][0], together


HOT = Workload(transactions=500, batches=3000, partitions=6, clients=25, hot_client=0.8)


@pytest.mark.parametrize(
    ("version_2", "faults"),
    [(0.2, 1), (0.8, 0), *(pytest.param(*other, marks=pytest.mark.thorough) for other in ((0.2, 0), (0.8, 1)))],
)
def test_slices_of_a_hot_producer_and_transactional_id_find_what_the_whole_finds(
    version_2: float, faults: int, tmp_path: Path
) -> None:
    hot = replace(HOT, version_2=version_2)
    Cluster(workload=hot, value_bytes=8, segment_bytes=30_000, faults=faults).write(tmp_path)
    found, together = same_in_slices(find_logs(tmp_path / "brokers"))
    assert bool(found) == together == bool(faults), "only where something is wrong one task gets the whole"


@pytest.mark.parametrize(("version_2", "faults"), [(0.0, 0), (0.8, 2)])
def test_slices_are_judged_without_a_coordinators_log(version_2: float, faults: int, tmp_path: Path) -> None:
    hot = replace(HOT, version_2=version_2)
    Cluster(workload=hot, value_bytes=8, segment_bytes=30_000, faults=faults).write(tmp_path)
    logs = [log for log in find_logs(tmp_path / "brokers") if log.topic != COORDINATOR_TOPIC]
    found, together = same_in_slices(logs, markers=2)  # few enough for the torn ones
    assert (sum(each.startswith("torn transaction:") for each in found), together) == (faults, bool(faults))
    assert bool(found) == bool(faults)


def test_slices_with_many_markers_that_are_written_again_are_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share, value in {"FENCED": 0.0, "BEGUN_ANEW": 0.0, "WRITTEN_AGAIN": 0.2}.items():
        monkeypatch.setattr(traffic, share, value)
    made = replace(HOT, version_2=0.0, partitions=3)  # its transactions have one epoch
    Cluster(workload=made, value_bytes=8, segment_bytes=30_000).write(tmp_path)
    assert same_in_slices(find_logs(tmp_path / "brokers")) == ([], False)


def test_slices_of_a_log_that_begins_late_are_judged_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share in ("ABORTED", "FENCED"):  # so that nothing but the number of markers tells them from each other
        monkeypatch.setattr(traffic, share, 0.0)
    made = replace(HOT, version_2=0.0)
    Cluster(workload=made, value_bytes=8, segment_bytes=30_000).write(tmp_path)
    for log in find_logs(tmp_path / "brokers"):
        if log.topic != COORDINATOR_TOPIC and len(log.segments) > 2:
            log.file(log.segments[0]).unlink()
    found, together = same_in_slices(find_logs(tmp_path / "brokers"))
    assert (found, together) == ([], True), "too many transactions may be meant"


@in_both("version_2", 1.0, 0.0)
def test_slices_of_logs_that_have_lost_their_last_markers_are_judged_as_the_whole(
    version_2: float, tmp_path: Path
) -> None:
    Cluster(workload=replace(HOT, version_2=version_2), value_bytes=8, segment_bytes=15_000).write(tmp_path)
    cut = [log for log in find_logs(tmp_path / "brokers") if log.topic != COORDINATOR_TOPIC and len(log.segments) > 3]
    for log in cut[:2]:
        for segment in log.segments[-2:]:
            log.file(segment).unlink()
    found, _ = same_in_slices(find_logs(tmp_path / "brokers"))
    lost = [finding for finding in found if finding.startswith("torn transaction")]
    assert len({finding.partition(" offset ")[0] for finding in lost}) == 2, "of each log"
    hot = Counter(finding.partition("(producer ")[2].partition(" ")[0] for finding in lost).most_common(1)
    assert hot[0][1] > (20 if version_2 else 1), "also of the producer that is cut into slices"


def test_workers_find_what_one_process_finds_and_their_errors_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack(recordings_folder() / "violations.tar.xz", tmp_path / "recording")
    expected = run([tmp_path / "recording"], redact=True, explain_cost=True)
    monkeypatch.setattr("kafka_eos_checks.audit.audit.LEAST_WEIGHT", 0)
    found = run([tmp_path / "recording"], jobs=2, explain_cost=True)
    plain = run([tmp_path / "recording"])
    assert comparable(found) == comparable(plain)
    assert comparable(found) != comparable(expected), "in workers, too, evidence is redacted only where it is asked for"
    assert found.bill is not None
    assert found.bill.driver > 0
    with LocalEngine(2) as engine:
        assert engine.buckets > 1
        rows = engine.map(list, [[Row(0, 0, 3)], [Row(0, 0, 4)]], [1, 1], "t")
        assert engine.collect(0, rows) == [(0, 3), (0, 4)]
        assert rows.places, "they are in a file of the worker"
        assert not rows._values, "and not in this process"
        folder = Path(rows.folder)
        assert list(folder.iterdir())
        with pytest.raises(FileNotFoundError, match="nowhere"):
            engine.map(Path.read_bytes, [tmp_path / "nowhere"], [1], "t")
        with pytest.raises(UnusableInput, match="was killed"):
            # some are submitted after the first has died
            engine.map(signal.raise_signal, [signal.SIGKILL] * 50, [1] * 50, "t")
    assert not folder.exists()


@in_both("made", generated, recorded)
def test_tasks_leave_a_row_for_each_bucket_whatever_the_number_of_chunks(
    made: Callable[[Path], list[PartitionLog]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = made(tmp_path / "logs")
    monkeypatch.setattr("kafka_eos_checks.audit.segments.headers.BLOCK_BYTES", 4096)
    monkeypatch.setattr("kafka_eos_checks.audit.kernels.logs.summary.CHUNK_BATCHES", 8)
    engine = LocalEngine()
    engine.buckets = 3
    scanned = stages.scan_logs(logs, engine)
    (data, coordinators) = scanned.rows
    steps = {key: list(data.values([stages.STEPS], key)) for key in data.keys([stages.STEPS])}
    assert {key: len(rows) for key, rows in steps.items()} == {0: 1, 1: 1, 2: 1}, "one task has read all logs"
    assert all(len(rows[0].chunks) > 3 for rows in steps.values())
    numbers = coordinators.keys([stages.STATE_CHUNK])
    chunks = [len(list(coordinators.values([stages.STATE_CHUNK], log))) for log in numbers]
    states = [row for key in coordinators.keys([stages.STATES]) for row in coordinators.values([stages.STATES], key)]
    assert 0 < len(states) < 3 + len(numbers) < sum(chunks)
    assert all(len({log for log, *_ in coordinators.values([stages.STATES], key)}) == 1 for key in range(len(states)))


def test_a_row_about_transactional_ids_has_only_their_own_sets_of_partitions(tmp_path: Path) -> None:
    unpack(recordings_folder() / "transactions.tar.xz", tmp_path / "recording")
    engine = LocalEngine()
    engine.buckets = 8
    scanned = stages.scan_logs(find_logs(tmp_path / "recording" / "brokers"), engine)
    _, known = stages.audit_coordinators(scanned, engine)
    rows = [folded for key in known.rows.keys([stages.KNOWN]) for _, folded in known.rows.values([stages.KNOWN], key)]
    assert len(rows) > 8
    for folded in rows:
        assert set(range(len(folded.decisions.sets))) == set(folded.decisions.partitions.tolist())


def kinds_of(module: Any) -> list[int]:
    """The kinds of rows of a module of stages: the names that are numbered by a range."""
    numbered = [
        each.targets[0]
        for each in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
        if isinstance(each, ast.Assign) and ast.unparse(each.value).startswith("range(")
    ]
    return [getattr(module, name.id) for each in numbered for name in ast.walk(each) if isinstance(name, ast.Name)]


def test_each_kind_of_rows_of_an_audit_with_a_history_has_a_number_of_its_own() -> None:
    own = {module: kinds_of(module) for module in (stages, beside_stages, slice_stages, history_stages)}
    assert all(len(kinds) > 4 for kinds in own.values())
    every = [kind for kinds in own.values() for kind in kinds]
    assert len(set(every)) == len(every)
