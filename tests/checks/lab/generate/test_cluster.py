"""Generated clusters: what the audit says of them, and that they have what their description promises."""

import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kafka_eos.formats.coordinator_partition import coordinator_partition
from kafka_eos.formats.log_directory import broker_id, cluster_id, find_log_directories
from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.segment import StoredBatch, read_leader_epochs, read_segment
from kafka_eos.formats.transaction_log import TransactionState, decode_key, decode_value
from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import read_coordinator_log
from kafka_eos_checks.audit.rules.offsets import BEYOND
from kafka_eos_checks.audit.rules.transactions.partitions import read_transactions
from kafka_eos_checks.audit.segments.header_tables import read_table
from kafka_eos_checks.audit.segments.headers import read_blocks
from kafka_eos_checks.audit.segments.records import decode_block
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.brokers.brokers import java_command
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab.generate import traffic
from kafka_eos_checks.lab.generate.batches import Values
from kafka_eos_checks.lab.generate.cluster import BROKERS, Cluster
from kafka_eos_checks.lab.generate.log_files import LogFiles
from kafka_eos_checks.lab.generate.traffic import Workload
from kafka_eos_checks.traces.replays import Rules, in_process
from kafka_eos_checks.traces.scan import COORDINATOR, pieces_of

RULES = {  # what is judged of a cluster of one broker
    *("readable", "duplicate", "gap", "stale epoch", "batch outside transaction", "order"),
    "leader epoch went back",
    *("illegal coordinator transition", "decision changed"),
    *("torn transaction", "hanging transaction", "marker without transaction", "fenced producer committed"),
    *(
        "marker of an old coordinator",
        "data without transaction",
        "committed offset went back",
        BEYOND,
        "aborted index",
        "producer snapshot",
        "leader epoch checkpoint",
    ),
}


def small_slices(monkeypatch: pytest.MonkeyPatch, batches: int = 700) -> None:
    monkeypatch.setattr(traffic, "SLICE_BATCHES", batches)
    monkeypatch.setattr(traffic, "PARTITION_BATCHES", 1)


def judged(folder: Path, *, unknown: bool = False) -> Audit:
    """The audit of a healthy cluster: it has no finding, and leaves nothing unjudged that the cluster has."""
    result = run([folder])
    assert [finding.in_words() for finding in (*result.findings, *result.notes)] == []
    assert all(verdict.ok for verdict in result.verdicts)
    if not unknown:
        unjudged = [verdict.name for verdict in result.verdicts if verdict.unjudged]
        assert unjudged == [BEYOND], "without a history there are no logs of inputs, whose offsets groups commit"
        assert result.unknown == 0
    return result


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.thorough) if seed in {0, 6, 8} else seed for seed in range(12)]
)
def test_a_healthy_cluster_has_no_finding_and_nothing_unknown(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    small_slices(monkeypatch, int(rng.choice([100, 700, 1 << 20])))
    partitions = int(rng.integers(3, 9))
    workload = Workload(
        transactions=300,
        batches=4000,
        partitions=partitions,
        spread=int(rng.integers(1, 4)),
        clients=int(rng.integers(4, 30)),
        producers=int(rng.integers(0, 4)),
        seed=seed,
    )
    made = Cluster(workload=workload, value_bytes=20, segment_bytes=int(rng.choice([4000, 1 << 30]))).write(tmp_path)
    result = judged(tmp_path)
    assert {verdict.name for verdict in result.verdicts} == RULES
    figures = {verdict.name: verdict.figures for verdict in result.verdicts}
    assert figures["readable"]["batches"] == made.all_batches
    assert figures["readable"]["segment_bytes"] == made.size
    assert figures["marker without transaction"]["markers"] == made.markers
    assert figures["decision changed"]["records"] == made.states
    assert int(figures["aborted index"]["entries"]) > 10
    assert int(figures["committed offset went back"]["checked"]) > 50


def test_tables_of_headers_are_judged_as_the_segments_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="tables of headers are Parquet")
    small_slices(monkeypatch)
    workload = Workload(transactions=300, batches=4000, clients=20, seed=3)
    for name, as_tables in (("segments", False), ("tables", True)):
        Cluster(workload=workload, value_bytes=20, as_tables=as_tables, segment_bytes=20_000).write(tmp_path / name)
    segments, tables = judged(tmp_path / "segments"), judged(tmp_path / "tables")
    for of_segments, of_tables in zip(segments.verdicts, tables.verdicts, strict=True):
        figures = {**of_segments.figures, "segment_bytes": 0}
        assert figures == {**of_tables.figures, "segment_bytes": 0}, of_segments.name
    assert main(["headers", str(tmp_path / "segments" / BROKERS / "1"), "--out", str(tmp_path / "made")]) == 0
    for made in (tmp_path / "made").glob("**/generated-*/*.headers.parquet"):
        [table] = (tmp_path / "tables" / BROKERS / "1").glob(f"{made.parent.name}/{made.name}")
        found = [np.concatenate([each.positions for each in read_table(path)]) for path in (made, table)]
        assert np.array_equal(*found), "each batch is where it is in the segment"
    kinds = {path.name.partition(".")[2] for path in (tmp_path / "tables").glob("**/generated-*/0*")}
    assert kinds | {"index"} == {path.name.partition(".")[2] for path in (tmp_path / "made").glob("**/generated-*/0*")}


def test_every_broker_has_the_same_logs_and_a_name_of_its_own(tmp_path: Path) -> None:
    Cluster(workload=Workload(transactions=40, batches=500, clients=5), brokers=3, value_bytes=10).write(tmp_path)
    directories = find_log_directories(tmp_path / BROKERS)
    assert [broker_id(each.path) for each in directories] == [1, 2, 3]
    assert len({cluster_id(each.path) for each in directories}) == 1
    contents = [
        {path.relative_to(each.path): path.read_bytes() for path in each.path.glob("*-*/*")} for each in directories
    ]
    assert contents[0] == contents[1] == contents[2]
    verdicts = {verdict.name: verdict for verdict in judged(tmp_path).verdicts}
    assert verdicts.keys() == RULES | {"replicas differ"}
    assert verdicts["replicas differ"].figures["batches"] == int(verdicts["readable"].figures["batches"]) * 2 / 3


@pytest.mark.parametrize("version_2", [0.0, 1.0])
def test_the_coordinators_of_a_healthy_cluster_do_what_the_machine_of_the_reference_does(
    version_2: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader epochs of ``__transaction_state`` are the coordinator epochs of the markers."""
    pytest.importorskip("pyarrow", reason="traces travel as Arrow tables")
    small_slices(monkeypatch)
    monkeypatch.setattr(traffic, "WRITTEN_AGAIN", 0.0)  # the machine writes a marker once in a coordinator's reign
    workload = Workload(transactions=300, batches=3000, clients=12, version_2=version_2, seed=5)
    Cluster(workload=workload, value_bytes=10).write(tmp_path)
    logs = list((tmp_path / BROKERS / "1").glob("__transaction_state-*"))
    for log in logs:
        batches = [stored for segment in sorted(log.glob("*.log")) for stored in read_segment(segment)]
        epochs = [stored.batch.partition_leader_epoch for stored in batches if isinstance(stored, StoredBatch)]
        assert epochs == sorted(epochs), "one leader after the other"
        assert [each.epoch for each in read_leader_epochs(log / "leader-epoch-checkpoint")] == sorted(set(epochs))
    assert any(len(read_leader_epochs(log / "leader-epoch-checkpoint")) > 1 for log in logs), "some are replaced"
    rows = in_process(pieces_of([tmp_path / BROKERS / "1"]), Rules(())).to_pylist()
    assert [row for row in rows if not row["accepted"]] == []
    assert sum(row["subject"] == COORDINATOR for row in rows) == 12


def test_a_slice_has_about_as_many_batches_as_are_asked_for_with_markers_and_commits() -> None:
    workload = Workload(transactions=100, batches=600, spread=3, slice_batches=100)
    assert workload.slices == (600 + 100 * 3 + 100) // 100
    assert replace(workload, batches=601).slices == workload.slices + 1
    assert Workload(transactions=1, batches=1).slices == 1


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    def made(name: str, seed: int) -> dict[str, bytes]:
        folder = tmp_path / name
        Cluster(workload=Workload(transactions=60, batches=600, clients=7, seed=seed)).write(folder)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("**/*") if path.is_file()}

    first, again, other = made("first", 1), made("again", 1), made("other", 2)
    assert first == again
    assert all(first[name] != other[name] for name in first if name.endswith("generated-0/00000000000000000000.log"))


def test_epochs_that_are_used_up_are_followed_by_the_next_producer_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "BEGUN_ANEW", 0.0005)
    workload = Workload(transactions=33_000, batches=200, partitions=1, spread=1, clients=1, version_2=1.0, producers=0)
    Cluster(workload=workload, value_bytes=1).write(tmp_path)
    judged(tmp_path)
    logs = [log for log in find_logs(tmp_path / BROKERS / "1") if log.topic == "__transaction_state"]
    ids = [known for log in logs for known in read_coordinator_log(log).ids.values()]
    assert [len(known.producer_ids) for known in ids] == [2]
    assert max(each.marker_epoch for known in ids for each in known.transactions) == 32767


def test_a_cluster_has_all_that_its_description_promises(tmp_path: Path) -> None:
    workload = Workload(transactions=3000, batches=30_000, clients=20, seed=4)
    Cluster(workload=workload, value_bytes=10).write(tmp_path)
    logs = find_logs(tmp_path / BROKERS / "1")
    states: Counter[TransactionState] = Counter()
    versions: Counter[int] = Counter()
    for log in (log for log in logs if log.topic == "__transaction_state"):
        for block in read_blocks(Path(log.folder, log.segments[0])):
            records = decode_block(block)
            for key, value in zip(records.keys(), records.values(), strict=True):
                assert key is not None
                decoded = decode_value(value)
                assert decoded is not None
                name = decode_key(key).transactional_id
                assert coordinator_partition(name, workload.state_partitions) == log.partition
                states[decoded.transaction_status] += 1
                versions[decoded.client_transaction_version] += 1
    assert states[TransactionState.COMPLETE_COMMIT] == states[TransactionState.PREPARE_COMMIT] > 2500
    assert states[TransactionState.COMPLETE_ABORT] == states[TransactionState.PREPARE_ABORT] > 200
    assert sum(states[each] for each in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)) == 3000
    assert states[TransactionState.EMPTY] > 20
    assert states[TransactionState.ONGOING] > 3000
    assert min(versions[0], versions[2]) > 3000
    coordinators = [read_coordinator_log(log) for log in logs if log.topic == "__transaction_state"]
    ended = [each for log in coordinators for known in log.ids.values() for each in known.transactions]
    kinds = Counter((each.version, each.decision, each.marker_epoch - each.data_epoch) for each in ended)
    assert set(kinds) == {
        *((0, ControlType.COMMIT, 0), (0, ControlType.ABORT, 0), (0, ControlType.ABORT, 1)),
        *((2, ControlType.COMMIT, 1), (2, ControlType.ABORT, 1)),
    }
    assert min(kinds.values()) > 15
    partitions = [read_transactions(log) for log in logs if log.topic == "generated"]
    markers = [marker for partition in partitions for marker in partition.markers]
    without_data = sum(marker.ends is None for marker in markers)
    assert len(markers) + 3 * 60 >= 9000
    assert without_data > 100
    assert Counter(marker.decision for marker in markers)[ControlType.ABORT] > 600
    overlapping = [marker for marker in markers if marker.last_stable_offset <= marker.offset]
    assert len(overlapping) > len(markers) / 2, "transactions overlap"


@pytest.mark.java
def test_kafkas_own_tool_reads_every_file_of_a_cluster(tmp_path: Path) -> None:
    if not have_jars():
        pytest.skip("Kafka's jars are not there; `make test-all` fetches them")
    workload = Workload(transactions=300, batches=3000, clients=10, seed=5)
    made = Cluster(workload=workload, segment_bytes=20_000).write(tmp_path)
    files = [path for kind in ("log", "index", "txnindex", "snapshot") for path in sorted(tmp_path.rglob(f"0*.{kind}"))]
    tool = ("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(str(path) for path in files))
    dumped = subprocess.run(java_command(*tool), capture_output=True, text=True, timeout=120, check=False)
    assert dumped.returncode == 0, dumped.stderr
    assert dumped.stdout.count("Dumping ") == len(files)
    assert dumped.stdout.count("isvalid: true") == made.all_batches
    assert not re.findall(r"isvalid: false|Exception|ismatch|Index offset: ", dumped.stdout + dumped.stderr)
    figures = {verdict.name: verdict.figures for verdict in judged(tmp_path).verdicts}
    aborted = len(re.findall(r"^version: 0 producerId: ", dumped.stdout, re.MULTILINE))
    remembered = len(re.findall(r"^producerId: ", dumped.stdout, re.MULTILINE))
    assert aborted == figures["aborted index"]["entries"] > 0
    assert remembered == figures["producer snapshot"]["entries"] > 0


def test_retention_and_the_cleaner_leave_logs_that_begin_later(tmp_path: Path) -> None:
    workload = Workload(transactions=300, batches=4000, clients=20, seed=3)
    cluster = Cluster(workload=workload, value_bytes=20, segment_bytes=5000, retained_bytes=20_000, compacted=True)
    cluster.write(tmp_path)
    result = judged(tmp_path, unknown=True)
    assert result.unknown, "what was deleted or compacted cannot be judged"
    logs = find_logs(tmp_path / BROKERS / "1")
    starts = [read_transactions(log).start or 0 for log in logs if log.topic == "generated"]
    assert min(starts) > 0
    states = [read_coordinator_log(log) for log in logs if log.topic == "__transaction_state"]
    assert not any(state.whole for state in states if state.records)


@pytest.mark.parametrize(("size", "start"), [(111, 0), (110, 10), (61, 10), (60, 20), (0, 20)])
def test_segments_are_deleted_while_the_others_have_the_retained_size_and_with_them_the_epochs_that_ended_there(
    tmp_path: Path, size: int, start: int
) -> None:
    log = LogFiles(tmp_path / "t-0", Values(1, 0))
    log.segments, log.size, log.leader_epochs = [(0, 100), (10, 50), (20, 60)], 210, [(0, 0), (1, 10), (2, 15), (4, 20)]
    deleted = log.retain(size)
    assert log.segments[0][0] == start
    assert log.size == 210 - deleted == sum(own for _, own in log.segments)
    kept = {0: [(0, 0), (1, 10), (2, 15), (4, 20)], 10: [(1, 10), (2, 15), (4, 20)], 20: [(4, 20)]}
    assert log.leader_epochs == kept[start]


def test_the_command_writes_a_cluster_that_the_audit_takes_as_of_one_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    arguments = ["--transactions", "50", "--partitions", "4", "--brokers", "2", "--seed", "9"]
    assert main(["lab", "generate", str(made), *arguments]) == 0
    assert "50 transactions" in capsys.readouterr().out
    assert (made / "planted.jsonl").read_bytes() == b""
    assert main(["audit", str(made)]) == 0
    assert "of one moment" in capsys.readouterr().out


def test_a_cluster_of_few_partitions_needs_no_spread_to_be_given(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert main(["lab", "generate", str(made), "--transactions", "20", "--partitions", "2", "--seed", "9"]) == 0
    assert {path.name for path in made.glob("brokers/1/generated-*")} == {"generated-0", "generated-1"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--transactions", "5", "--spread", "9"], "--spread 9: give at most 8, the number of partitions"),
        (["--transactions", "5", "--hot-client", "2"], "--hot-client 2.0: give a share from 0 to 1"),
        (["--transactions", "5", "--aborted", "2"], "--aborted 2.0: give a share from 0 to 1"),
        (["--brokers", "2"], "--brokers 2: only with --transactions"),
        (
            ["--transactions", "5", "--partitions", "70000", "--batches", "80000"],
            "--partitions 70000: give at most 65535",
        ),
        (["--segment-bytes", "5"], "--segment-bytes 5: give 1024 to 2147483647"),
    ],
)
def test_a_call_that_makes_no_cluster_says_why(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "generate", str(tmp_path / "made"), *arguments]) == 2
    assert says in capsys.readouterr().err
