"""Gauges for Prometheus: what is open, what is not seen, and when data were read."""

import threading
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos_checks.cli import main
from kafka_eos_checks.watch import cluster, command, metrics
from kafka_eos_checks.watch.command import follow

from .conftest import PLACE, Log, Written


def gauges(path: Path) -> dict[str, int]:
    """The values of a file, by name and label."""
    lines = [line.rpartition(" ") for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name.removeprefix("kafka_eos_watch_"): int(value) for name, _, value in lines}


def test_the_gauges_tell_what_is_open_what_is_not_seen_and_how_far_everything_is_read(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "Cluster", lambda *_: written)
    monkeypatch.setattr(command, "now_ms", lambda: 1_700_000_000_999)
    log, path = written.logs[PLACE], tmp_path / "watch.prom"
    log.stable = log.data(7, 3, 0)
    log.data(8, 0, 0)
    written.logs["unread", 0] = Log()
    written.errors["unread", 0] = ErrorCode.KAFKA_STORAGE_ERROR
    assert main(["watch", "--bootstrap", "localhost:9092", "--once", "--from-start", "--metrics", str(path)]) == 1
    assert gauges(path) == {
        "reports_total": 2, 'open_reports{rule="hanging transaction"}': 2,
        'open_reports{rule="last stable offset lags"}': 0, 'open_reports{rule="transaction stays prepared"}': 0,
        'not_seen{rule="no broker answers"}': 0,
        'not_seen{rule="not read"}': 1, 'not_seen{rule="coordinators do not tell"}': 0,
        "last_read_timestamp_seconds": 1_700_000_000, "partitions": 1, "unread_offsets": 0,
        'held_back_offsets{topic="orders"}': 2,
    }  # fmt: skip
    kinds = [line for line in path.read_text().splitlines() if line.startswith("# TYPE")]
    assert kinds[:2] == ["# TYPE kafka_eos_watch_reports_total counter", "# TYPE kafka_eos_watch_open_reports gauge"]
    assert [each.name for each in tmp_path.iterdir()] == ["watch.prom"], "the new file was renamed"


def test_a_file_that_cannot_be_written_is_refused_before_the_watch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "missing" / "watch.prom"
    assert main(["watch", "--bootstrap", "localhost:9092", "--metrics", str(path)]) == 2
    assert f"kafka-eos watch: {path} cannot be written: there is no folder" in capsys.readouterr().err


def test_offsets_that_are_not_read_yet_are_counted(written: Written, tmp_path: Path) -> None:
    for sequence in range(5):
        written.logs[PLACE].data(7, 0, sequence)
    written.batches_a_fetch = lambda: 2
    watcher, path = written.watcher(), tmp_path / "watch.prom"
    metrics.write(path, watcher, 0)
    assert (gauges(path)["last_read_timestamp_seconds"], gauges(path)["partitions"]) == (0, 0)
    watcher.poll(1_700_000_000_000)
    metrics.write(path, watcher, 0)
    assert (gauges(path)["unread_offsets"], gauges(path)["partitions"]) == (3, 1)
    after_restart = written.watcher()
    after_restart.resume(watcher.to_json())
    written.gone.add(1)
    after_restart.poll(1_700_000_000_000)
    metrics.write(path, after_restart, 0)
    assert gauges(path)["partitions"] == 1
    assert not [name for name in gauges(path) if name.startswith("held_back_offsets")], "no broker has told it yet"


def test_gauges_are_written_once_a_second_and_at_the_end(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = 0

    def count(*_: object) -> None:
        nonlocal times
        times += 1

    monkeypatch.setattr(metrics, "write", count)
    monkeypatch.setattr(command.time, "monotonic", lambda: 7.0)
    follow(written.watcher(), None, threading.Event(), once=True, metrics=tmp_path / "x")
    assert times == 2
