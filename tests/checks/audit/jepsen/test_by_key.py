"""Histories judged piece by piece and key by key, against the same rules over the whole history in memory."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.engines.engine import Engine
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.jepsen import by_key
from kafka_eos_checks.audit.jepsen.anomalies import ANOMALIES, allowed, anomalies, subscribes
from kafka_eos_checks.audit.jepsen.by_key import stretch_of, stretches_of
from kafka_eos_checks.audit.jepsen.operations import FAIL, INFO, OK, Operation, Pairs, forms_in, read_operations
from kafka_eos_checks.audit.jepsen.pieces import Part, pieces_of
from kafka_eos_checks.audit.plan import jepsen_plan
from kafka_eos_checks.audit.plan.found import Found

from ..conftest import in_both


def by_pieces(path: Path, engine: Engine | None = None) -> tuple[list[Finding], Counter[str], dict[str, Any]]:
    """The findings of a history, the numbers of allowed anomalies, and the figures."""
    running, kept = engine or LocalEngine(), list[Any]()
    judged = jepsen_plan.judge_operations(path, path.stat().st_size, running, kept)
    assert judged.findings == []
    return sorted(Found(running, *kept), key=Finding.sort_key), judged.allowed, dict(judged.figures)


def test_the_parts_of_operations_without_a_completion_come_last() -> None:
    place, completed = Part._fields.index("ended"), Part._fields.index("completed")
    given = [(3, True), (1, False), (2, True)]
    parts = [
        Part(*(at if i == place else has if i == completed else 0 for i in range(len(Part._fields))))
        for at, has in given
    ]
    assert [part.ended for part in by_key.by_key(parts)[0]] == [2, 3, 1]


def write(path: Path, operations: list[Operation], *, numbered: bool = True) -> list[Operation]:
    """Write completed operations as a history, numbered or not, and read it as a whole."""
    lines: dict[int, str] = {}
    for own in operations:
        names = f":process {own.process}, :f {own.kind}"
        micros = [
            f"[:send {key} {value if offset is None else f'[{offset} {value}]'}]"
            for key, pairs in own.sends.items()
            for offset, value in pairs
        ]
        for key, pairs in own.polls.items():
            micros.append(f"[:poll {{{key} [{' '.join(f'[{_edn(offset)} {value}]' for offset, value in pairs)}]}}]")
        if own.keys:
            micros = [str(key) for key in own.keys]
        more = ", :seek-to-beginning? true" if own.from_start else ""
        if own.rebalanced:
            more += f", :rebalance-log [{{:keys [{' '.join(map(str, own.rebalanced))}]}}]"
        value = f":value [{' '.join(micros)}]"
        if own.ended != own.invoked:
            number = f":index {own.index}, " if numbered else ""
            lines[own.ended] = f"{{{number}:type {own.outcome}, {names}, {value}{more}}}\n"
            value = ":value nil"
        if own.invoked >= 0:
            lines[own.invoked] = f"{{:type :invoke, {names}, {value}{more}}}\n"
    path.write_text("".join(lines[place] for place in sorted(lines)), encoding="utf-8")
    return read_operations(path)


def _edn(offset: int | None) -> str:
    return "nil" if offset is None else str(offset)


def in_memory(operations: list[Operation], run: str) -> tuple[list[Finding], Counter[str], dict[str, Any]]:
    found, figures = anomalies(operations, run)
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


@pytest.fixture
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces and buckets of so many bytes."""
    piece, bucket = request.param
    monkeypatch.setattr(jepsen_plan, "PIECE_BYTES", piece)
    monkeypatch.setattr(jepsen_plan, "BUCKET_BYTES", bucket)
    monkeypatch.setattr(jepsen_plan, "ROWS_AT_ONCE", 7)


@pytest.mark.parametrize("small", [(1 << 20, 1 << 20), (700, 4000), (150, 9000)], indirect=True)
@pytest.mark.usefixtures("small")
@in_both("count", 20, 60)
def test_pieces_judged_key_by_key_have_the_anomalies_of_the_whole_history(count: int, tmp_path: Path) -> None:
    shown: Counter[str] = Counter()
    for seed in range(count):
        path = tmp_path / f"{seed}.edn"
        operations = write(path, random_history(seed, 120), numbered=seed % 2 == 0)
        findings, noted, figures = in_memory(operations, str(path))
        judged = by_pieces(path)
        assert judged == (findings, noted, figures), f"seed {seed}"
        shown.update(finding.rule for finding in findings)
        shown.update(noted)
    assert set(ANOMALIES) - set(shown) == set()


def test_a_cycle_with_an_operation_that_never_ends_is_told_as_of_the_whole_history(tmp_path: Path) -> None:
    ends = (
        (1, "send", "[[:send :x [1 :b]] [:send :y [0 :c]]]"),
        (2, "poll", "[[:poll {:x [[0 :a] [1 :b]] :y [[0 :c] [1 :d]]}]]"),
    )
    lines = ["{:type :invoke, :process 0, :f :send, :value [[:send :x :a] [:send :y :d]]}\n"]
    lines += [
        f"{{:type :{kind}, :process {process}, :f :{function}, :value {own}}}\n"
        for process, function, value in ends
        for kind, own in (("invoke", "nil"), ("ok", value))
    ]
    path = tmp_path / "history.edn"
    path.write_text("".join(lines), encoding="utf-8")
    expected, _ = anomalies(read_operations(path), str(path))
    assert [finding.rule for finding in expected] == [":G0"]
    assert jepsen_plan.judge_operations(path, path.stat().st_size, LocalEngine(), []).shown == expected


def test_a_written_history_is_read_as_it_was_made(tmp_path: Path) -> None:
    made = random_history(5, 200)
    assert write(tmp_path / "h.edn", made) == made
    assert write(tmp_path / "h.edn", made, numbered=False) == made


LINES = [
    f"{{:index {number}, :type :{kind}, :process {number // 2 % 3}, :f :txn, :value {value}}}\n"
    for number, (kind, value) in enumerate(
        pair
        for each in range(200)
        for pair in (("invoke", "nil"), ("ok", f'[[:send "key {each % 5}" [{each // 5} {each}]] [:poll {{}}]]'))
    )
]


@pytest.mark.parametrize("small", [(100, 1000), (1000, 4000)], indirect=True)
@pytest.mark.usefixtures("small")
def test_a_cut_within_a_value_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    lines = list(LINES)
    for number in range(0, 400, 10):  # a line within a value, which begins with a map
        lines[number] = lines[number].replace(", :f", "\n, :f").replace("nil", "[[:poll\n{}]]")
    path.write_text("".join(lines), encoding="utf-8")
    findings, noted, figures = in_memory(read_operations(path), str(path))
    assert by_pieces(path) == (findings, noted, figures)
    broken = "".join(lines[:100]) + "{:type\n" + "".join(lines[101:])
    path.write_text(broken, encoding="utf-8")
    with pytest.raises(MalformedHistory, match="no EDN"):
        by_pieces(path)


@pytest.mark.parametrize("small", [(200, 1000)], indirect=True)
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("process", "place"),
    [("0", 300), ("7", 12)],  # it begins its next operation; and it ends, and both are in other pieces
)
def test_an_operation_that_is_begun_twice_is_refused_with_the_line(process: str, place: int, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    begun = f"{{:type :invoke, :process {process}, :f :txn, :value nil}}\n"
    more = [begun] if process == "0" else [begun, *LINES[place:200], begun]
    path.write_text("".join([*LINES[:place], *more, *LINES[place:]]), encoding="utf-8")
    with pytest.raises(MalformedHistory) as readable:
        read_operations(path)
    with pytest.raises(MalformedHistory) as error:
        by_pieces(path)
    assert (error.value.line, error.value.reason) == (readable.value.line, readable.value.reason)


def test_forms_of_a_range_are_those_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_text("".join(LINES), encoding="utf-8")
    whole = [form for _, form in forms_in(path)]
    for size in (1, 99, 100, 101, 5000, 1 << 20):
        pieces = pieces_of(path, path.stat().st_size, size)
        assert [piece.number for piece in pieces] == list(range(len(pieces)))
        assert [form for piece in pieces for _, form in forms_in(path, piece.start, piece.end)] == whole
    assert len(pieces_of(path, path.stat().st_size, 1)) == 400
    path.write_text("[" + "".join(LINES) + "]", encoding="utf-8")
    assert [form for _, form in forms_in(path)] == whole


def test_stretches_are_joined_where_they_overlap() -> None:
    intervals = np.array([(5, 9), (2, 6), (20, 30), (21, 25), (40, 41)], np.int64)
    joined = stretches_of(intervals)
    assert joined.tolist() == [[2, 9], [20, 30], [40, 41]]
    assert stretch_of(np.array([1, 2, 9, 10, 25, 41, 42]), joined).tolist() == [-1, 0, 0, -1, 1, 2, -1]
    assert stretches_of(by_key.NO_STEPS).tolist() == []


def test_a_value_that_is_sent_again_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    send = "{{:type :ok, :process {}, :f :send, :value [[:send 1 [{} 5]]]}}\n"
    path.write_text(send.format(0, 0) + send.format(1, 1), encoding="utf-8")
    with pytest.raises(MalformedHistory) as readable:
        read_operations(path)
    with pytest.raises(MalformedHistory) as error:
        run([path])
    assert (error.value.line, error.value.reason) == (readable.value.line, readable.value.reason)


def test_of_values_that_are_sent_again_the_first_is_told_whichever_key_is_judged_first() -> None:
    judged = by_key.Judged()
    for place in (7, 5, 6):
        judged.join(by_key.Judged(twice=(place, f"at {place}")))
        judged.join(by_key.Judged())
    assert judged.twice == (5, "at 5")


def test_an_operation_without_an_end_that_is_none_of_the_workload_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    whole = "{:type :ok, :process 0, :f :send, :value [[:send 1 [0 5]]]}\n"
    path.write_text(whole + "{:type :invoke, :process 1, :f :send, :value [[:send 1]]}\n", encoding="utf-8")
    with pytest.raises(MalformedHistory) as readable:
        read_operations(path)
    with pytest.raises(MalformedHistory) as error:
        run([path])
    assert (error.value.line, error.value.reason) == (readable.value.line, readable.value.reason)


def test_allowed_anomalies_are_all_counted_and_the_first_are_kept(tmp_path: Path) -> None:
    sends = [(2 * number, number) for number in range(300)]
    between = [(2 * number + 1, 1000 + number) for number in range(300)]
    one, other = (
        Operation(index=place, ended=place, invoked=-1, process=place, outcome=OK, kind=":send", sends={1: own})
        for place, own in enumerate((sends, between))
    )
    path = tmp_path / "h.edn"
    write(path, [one, other])
    judged = jepsen_plan.judge_operations(path, path.stat().st_size, LocalEngine(), [])
    assert judged.allowed[":int-send-skip"] == 598
    kept = [finding.offset for finding in judged.shown if finding.rule == ":int-send-skip"]
    assert kept == list(range(1, 1 + by_key.SHOWN_ALLOWED))


@pytest.mark.spark
@pytest.mark.parametrize("small", [(3000, 9000)], indirect=True)
@pytest.mark.usefixtures("small")
def test_spark_finds_the_same_and_its_driver_reads_and_judges_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_eos_checks.audit.engines.spark import SparkEngine  # noqa: PLC0415

    path = tmp_path / "h.edn"
    operations = write(path, random_history(3, 400))
    findings, noted, figures = in_memory(operations, str(path))
    assert findings
    assert noted

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("in the driver")

    for module, name in ((jepsen_plan, "read_piece"), (jepsen_plan, "judge_key"), (jepsen_plan, "cycles_of")):
        monkeypatch.setattr(module, name, refuse)  # workers import their own
    monkeypatch.setattr(jepsen_plan.Analysis, "of", refuse)
    with SparkEngine(spark) as engine:
        assert by_pieces(path, engine) == (findings, noted, figures)


def test_workers_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jepsen_plan, "PIECE_BYTES", 5000)
    monkeypatch.setattr(jepsen_plan, "BUCKET_BYTES", 9000)
    path = tmp_path / "h.edn"
    expected = in_memory(write(path, random_history(4, 300)), str(path))
    with LocalEngine(2) as engine:
        assert by_pieces(path, engine) == expected


def test_each_byte_of_a_history_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jepsen_plan, "PIECE_BYTES", 3000)
    path = tmp_path / "h.edn"
    write(path, random_history(4, 300))
    cost = run([path], explain_cost=True).bill
    assert cost is not None
    assert cost.read == cost.input_bytes == path.stat().st_size
    [reading] = (stage for stage in cost.stages if stage.read)
    assert len(reading.tasks) > 5
