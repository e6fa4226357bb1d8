"""The file of reports is in the end the same, at whatever step a watcher is killed."""

import json
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kafka_eos_checks.audit.rules.log import Batch
from kafka_eos_checks.audit.rules.transactions.names import HANGING
from kafka_eos_checks.watch import journal as journals
from kafka_eos_checks.watch.journal import CHECKPOINT, FORMAT, REPORTS, Journal, UnusableFolder
from kafka_eos_checks.watch.reports import RESOLVED, Clock, Report, Row, Since, report_row

from .conftest import PLACE, Written

NOW = 1_700_000_000_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal without fsync: a killed process loses nothing that it has written."""
    monkeypatch.setattr(journals.os, "fsync", lambda _: None)


class Killed(BaseException):
    """Raised in place of kill -9."""


def reports(folder: Path) -> list[Row]:
    return [json.loads(line) for line in (folder / REPORTS).read_text().splitlines()]


def finding(offset: int) -> Report:
    since = Since(ms=NOW - 5_000, clock=Clock.BROKER)
    return Report(rule="duplicate", topic="orders", partition=0, offset=offset, evidence="again", since=since)


def with_duplicates(written: Written, count: int) -> None:
    """Every other batch is a duplicate of the previous one."""
    for offset in range(count):
        sequence = offset // 2
        written.logs[PLACE].append(Batch(0, offset, offset, 7, 0, sequence, sequence, unsequenced=False))


def run(written: Written, folder: Path, at: int) -> None:
    """Watch until everything was read, like the command."""
    watcher = written.watcher()
    with Journal(folder) as journal:
        if journal.state is not None:
            watcher.resume(journal.state)
        while True:
            found = watcher.poll(at)
            journal.commit(watcher.to_json(), at, found)
            if watcher.drained:
                return


STEPS = ("before the checkpoint", "half a checkpoint", "before the reports", "half a report", "after the reports")


def killing(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Kill one of the next commits at a random step."""
    left, step = rng.randint(0, 3), rng.choice(STEPS)
    replace, append = Journal._replace, Journal._append

    def now() -> bool:
        return left < 0

    def replacing(self: Journal, text: str) -> None:
        nonlocal left
        left -= 1
        if now() and step == STEPS[0]:
            raise Killed
        if now() and step == STEPS[1]:
            (self._folder / f"{CHECKPOINT}.new").write_text(text[: len(text) // 2])
            raise Killed
        replace(self, text)
        if now() and step == STEPS[2]:
            raise Killed

    def appending(self: Journal, rows: Sequence[Row]) -> None:
        if now() and step == STEPS[3] and rows:
            text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
            with (self._folder / REPORTS).open("a") as out:
                out.write(text[: rng.randint(1, len(text) - 1)])
            raise Killed
        append(self, rows)
        if now():
            raise Killed

    monkeypatch.setattr(Journal, "_replace", replacing)
    monkeypatch.setattr(Journal, "_append", appending)


def killed_often(written: Written, folder: Path, seed: int) -> int:
    """Run and kill until a run reaches its end; return the number of kills."""
    rng = random.Random(seed)
    written.batches_a_fetch = lambda: rng.randint(1, 5)
    kills = 0
    while kills < 60:
        with pytest.MonkeyPatch.context() as monkeypatch:
            killing(monkeypatch, rng)
            try:
                run(written, folder, NOW + kills)
            except Killed:
                kills += 1
                continue
        return kills
    run(written, folder, NOW + kills)
    return kills


def test_a_watcher_that_is_killed_at_any_step_reports_everything_once(written: Written, tmp_path: Path) -> None:
    with_duplicates(written, 40)
    kills = 0
    for seed in range(40):
        kills += killed_often(written, tmp_path / str(seed), seed)
        found = reports(tmp_path / str(seed))
        assert [row["offset"] for row in found] == list(range(1, 40, 2)), f"seed {seed}"
        assert [row["number"] for row in found] == list(range(1, 21)), f"seed {seed}"
        assert len({row["id"] for row in found}) == 20
    assert kills > 80


def with_hanging(written: Written, count: int) -> None:
    """Transactions that hang one after the other until a marker ends each; the last one stays open."""
    log = written.logs[PLACE]
    for number in range(count):
        log.stable = log.data(100 + number, 0, 0)
        log.data(100 + number, 1, 0)  # while the first is open
        if number < count - 1:
            log.marker(100 + number, 1)


def test_a_watcher_that_is_killed_at_any_step_resolves_everything_once(written: Written, tmp_path: Path) -> None:
    with_hanging(written, 12)
    written.known = None  # so that only the log shows it
    for seed in range(25):
        killed_often(written, tmp_path / str(seed), seed)
        rows = reports(tmp_path / str(seed))
        hanging = [row["id"] for row in rows if row["rule"] == HANGING]
        resolved = [row["resolves"] for row in rows if row["rule"] == RESOLVED]
        assert (len(hanging), resolved) == (12, hanging[:-1]), f"seed {seed}"
        assert [row["number"] for row in rows] == list(range(1, 24)), f"seed {seed}"
        assert len({row["id"] for row in rows}) == 23, f"seed {seed}"


def reports_first(self: Journal, state: Row, seen_ms: int, findings: Sequence[Report]) -> list[Row]:
    rows = [report_row(1, seen_ms, one) for one in findings]
    self._append(rows)
    self._replace(json.dumps({"format": 1, "reports": 0, "latest": [], "state": state}))
    return rows


def checkpoint_alone(self: Journal, state: Row, seen_ms: int, findings: Sequence[Report]) -> list[Row]:
    self._replace(json.dumps({"format": 1, "reports": 0, "latest": [], "state": state}))
    self._append([report_row(1, seen_ms, one) for one in findings])
    return []


@pytest.mark.parametrize(("commit", "wrong"), [(reports_first, "repeats"), (checkpoint_alone, "loses")])
def test_another_order_of_reports_and_checkpoint_repeats_or_loses_reports(
    commit: Callable[..., Any], wrong: str, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "commit", commit)
    monkeypatch.setattr(Journal, "_restore", lenient)
    with_duplicates(written, 40)
    counts = []
    for seed in range(40):
        killed_often(written, tmp_path / str(seed), seed)
        counts.append(len(reports(tmp_path / str(seed))))
    assert max(counts) > 20 if wrong == "repeats" else min(counts) < 20


def lenient(self: Journal) -> list[Row]:
    """Trust the checkpoint, like a journal without numbers."""
    self._whole_lines()
    path = self._folder / CHECKPOINT
    self.state = json.loads(path.read_text())["state"] if path.exists() else None
    return []


def test_checkpoint_and_reports_are_on_the_disk_before_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        journals.os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
    )
    with Journal(tmp_path) as journal:
        journal.commit({}, NOW, [finding(5)])
    assert synced == [f"{CHECKPOINT}.new", tmp_path.name, REPORTS, tmp_path.name]


def test_a_report_says_who_where_and_when_and_equal_reports_have_equal_ids(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        [row] = journal.commit({}, NOW, [finding(5)])
    assert row == {
        "number": 1, "id": "duplicate/orders-0/5", "seen_ms": NOW, "rule": "duplicate", "topic": "orders",
        "partition": 0, "offset": 5, "evidence": "again", "since_ms": NOW - 5_000, "since_clock": "broker",
        "ends": "never",
    }  # fmt: skip
    assert reports(tmp_path) == [row]


def test_the_folder_of_a_checkpoint_is_made_with_those_above_it(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "of" / "watchers" / "1")) as journal:
        assert journal.state is None


def test_two_watchers_cannot_use_one_folder(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(UnusableFolder, match="used by another process"):
        Journal(tmp_path)
    Journal(tmp_path).close()


WHOLE = {"format": FORMAT, "reports": 2, "latest": [], "state": {}}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / CHECKPOINT).write_text("{"), "is no checkpoint"),
        (lambda folder: (folder / CHECKPOINT).write_text("[]"), "is no checkpoint"),
        (lambda folder: (folder / CHECKPOINT).write_text("[" * 100_000), "is no checkpoint"),
        (lambda folder: (folder / CHECKPOINT).write_bytes(b"\xff"), "is no checkpoint"),
        *(
            (lambda folder, own=own: (folder / CHECKPOINT).write_text(json.dumps(WHOLE | own)), "is no checkpoint")
            for own in ({"reports": "2"}, {"latest": None}, {"latest": [2]})
        ),
        (lambda folder: (folder / CHECKPOINT).unlink(), "has 2 reports and no checkpoint.json"),
        (lambda folder: (folder / REPORTS).unlink(), "knows 2 reports, and reports.jsonl has 0"),
        (lambda folder: (folder / REPORTS).write_text("{}\n" * 3), "knows 2 reports, and reports.jsonl has 3"),
    ],
)
def test_a_changed_folder_is_refused(damage: Callable[[Path], Any], said: str, tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.commit({}, NOW, [finding(1)])
        journal.commit({}, NOW, [finding(2)])
    damage(tmp_path)
    refusals = []
    for _ in range(2):  # a refused folder is not held, whoever keeps the error and its frames
        with pytest.raises(UnusableFolder, match=said) as refused:
            Journal(tmp_path)
        refusals.append(refused)


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path) as journal:
        journal.commit({}, NOW, [])
    assert not (tmp_path / REPORTS).exists(), "there is nothing to write into it"
    monkeypatch.setattr(journals, "FORMAT", 4)
    with pytest.raises(UnusableFolder, match="has format 3, and known is 4; give another folder"):
        Journal(tmp_path)
