"""Histories judged key by key, in files, against the same rules over the whole history in memory."""

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.jepsen import by_key
from kafka_eos_checks.audit.jepsen import operations as reading
from kafka_eos_checks.audit.jepsen.anomalies import ANOMALIES, allowed, anomalies, subscribes
from kafka_eos_checks.audit.jepsen.by_key import judge, spilled, stretches_of
from kafka_eos_checks.audit.jepsen.operations import FAIL, INFO, OK, Operation, Pairs, each_operation, read_operations


def by_files(operations: Iterable[Operation], files: int, each: Any = map) -> by_key.Judged:
    with spilled(operations, "r", files * by_key.FILE_BYTES) as spill:
        assert len(spill.files) == files
        return judge(spill, each)


def in_memory(operations: list[Operation]) -> tuple[list[Finding], Counter[str], dict[str, Any]]:
    found, figures = anomalies(operations, "r")
    fine = allowed(subscribes(operations))
    noted = Counter(finding.rule for finding in found if finding.rule in fine)
    return sorted((each for each in found if each.rule not in fine), key=Finding.sort_key), noted, figures


def random_history(seed: int, count: int) -> list[Operation]:
    """Concurrent operations over a few keys, which write when they begin and read when they end; some go wrong."""
    rng = random.Random(seed)
    logs: dict[int, list[int | None]] = {key: [] for key in range(4)}
    running: list[tuple[int, int, Pairs]] = []  # the place of an invocation, its process, and what it has sent
    done: list[Operation] = []
    positions: Counter[tuple[int, int]] = Counter()
    values = iter(range(1, 1 << 20))

    def sent() -> Pairs:
        sends: Pairs = {}
        for key in (rng.randrange(4) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))):
            log, value = logs[key], next(values)
            holes = [offset for offset, each in enumerate(log) if each is None]
            if holes and rng.random() < 0.1:
                offset = rng.choice(holes)
                log[offset] = value
            else:
                log.extend([None] * (rng.random() < 0.1))
                offset = len(log) - (rng.random() < 0.03)
                log.append(value)
            sends.setdefault(key, []).append((max(offset, 0) if rng.random() < 0.9 else None, value))
        return sends

    def given(process: int, moves: bool) -> Pairs:
        polls: Pairs = {}
        for key in {rng.randrange(4) for _ in range(rng.choice((0, 1, 1, 2)))}:
            log = logs[key]
            start = positions[process, key] + (rng.choice((-1, 1, 2)) if rng.random() < 0.05 else 0)
            own: list[tuple[int | None, Any]] = [
                (offset, each) for offset, each in enumerate(log) if offset >= start and each is not None
            ][: rng.choice((0, 2, 9))]
            if rng.random() < 0.02:
                own.append((len(log) + 3, -next(values)))  # nobody sends it
            if own and rng.random() < 0.03:
                own.append(own[0])
            polls[key] = own
            if own and moves:
                positions[process, key] = 1 + max(offset for offset, _ in own if offset is not None)
        return polls

    place = 0
    while len(done) < count:
        free = [process for process in range(6) if process not in {each for _, each, _ in running}]
        if free and (len(running) < 2 or rng.random() < 0.5):
            running.append((place, rng.choice(free), sent()))
            place += 1
            continue
        invoked, process, sends = running.pop(rng.randrange(len(running)))
        common: dict[str, Any] = {"index": place, "ended": place, "invoked": invoked, "process": process}
        common["outcome"] = rng.choice((OK, OK, OK, OK, OK, FAIL, INFO))
        place += 1
        if rng.random() < 0.08:
            keys = frozenset(rng.sample(range(4), rng.randint(0, 3)))
            kind = ":subscribe" if seed % 3 == 0 and rng.random() < 0.3 else ":assign"
            done.append(Operation(**common, kind=kind, keys=keys, from_start=rng.random() < 0.3))
            continue
        common["rebalanced"] = frozenset(rng.sample(range(4), rng.randint(0, 1)))
        done.append(Operation(**common, kind=":txn", sends=sends, polls=given(process, common["outcome"] == OK)))
    done += [
        Operation(index=at, ended=at, invoked=at, process=process, outcome=INFO, kind=":txn", sends=sends)
        for at, process, sends in sorted(running, key=lambda each: each[0])
    ]
    return done


@pytest.mark.parametrize("files", [1, 3])
def test_keys_judged_one_by_one_have_the_anomalies_of_the_whole_history(files: int) -> None:
    shown: Counter[str] = Counter()
    for seed in range(60):
        operations = random_history(seed, 120)
        findings, noted, figures = in_memory(operations)
        judged = by_files(iter(operations), files)
        assert judged.findings == findings, f"seed {seed}"
        assert judged.allowed == noted, f"seed {seed}"
        assert judged.figures == figures, f"seed {seed}"
        shown.update(finding.rule for finding in findings)
        shown.update(noted)
    assert set(ANOMALIES) - set(shown) == set()


def test_a_cut_between_operations_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.edn"
    lines = [
        f"{{:index {number}, :type :{kind}, :process {number // 2 % 3}, :f :txn, :value {value}}}\n"
        for number, (kind, value) in enumerate(
            pair
            for each in range(200)
            for pair in (("invoke", "nil"), ("ok", f'[[:send "key {each % 5}" [{each // 5} {each}]] [:poll {{}}]]'))
        )
    ]
    lines[50] = lines[50].replace(", :f", "\n, :f").replace("nil", "[[:poll\n{}]]")
    path.write_text("".join(lines), encoding="utf-8")
    whole = read_operations(path)
    for size in (1, 7, 100, 1000):
        monkeypatch.setattr(reading, "PIECE", size)
        assert list(each_operation(path)) == whole
    path.write_text("".join(lines[:100]) + "{:type\n" + "".join(lines[101:]), encoding="utf-8")
    with pytest.raises(MalformedHistory) as error:
        list(each_operation(path))
    assert "no EDN" in error.value.reason


def test_stretches_are_joined_where_they_overlap() -> None:
    assert stretches_of([(9, 5), (6, 2), (30, 20), (25, 21), (41, 40)]) == [(2, 9), (20, 30), (40, 41)]


def test_a_value_that_is_sent_again_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    send = "{{:type :ok, :process {}, :f :send, :value [[:send 1 [{} 5]]]}}\n"
    path.write_text(send.format(0, 0) + send.format(1, 1), encoding="utf-8")
    with pytest.raises(MalformedHistory) as readable:
        read_operations(path)
    with pytest.raises(MalformedHistory) as error:
        run([path])
    assert (error.value.line, error.value.reason) == (readable.value.line, readable.value.reason)


def test_allowed_anomalies_are_all_counted_and_the_first_are_kept() -> None:
    sends = [(2 * number, number) for number in range(300)]
    between = [(2 * number + 1, 1000 + number) for number in range(300)]
    one, other = (
        Operation(index=place, ended=place, invoked=-1, process=place, outcome=OK, kind=":send", sends={"k": own})
        for place, own in enumerate((sends, between))
    )
    judged = by_files([one, other], 1)
    assert judged.allowed[":int-send-skip"] == 598
    kept = [finding.offset for finding in judged.shown if finding.rule == ":int-send-skip"]
    assert kept == list(range(1, 1 + by_key.SHOWN_ALLOWED))


@pytest.mark.spark
def test_spark_finds_the_same(spark: Any, tmp_path: Path) -> None:
    from kafka_eos_checks.audit.engines.spark import SparkEngine  # noqa: PLC0415

    operations = random_history(3, 400)
    expected = by_files(operations, 3)
    assert expected.findings
    assert expected.allowed
    with SparkEngine(spark) as engine:
        found = by_files(operations, 3, engine.ask_each)
    assert (found.findings, found.allowed, found.figures) == (expected.findings, expected.allowed, expected.figures)
