"""Findings stay where they were made: the asking process holds a few of each rule, however many there are."""

import io
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.engines.opening import open_engine
from kafka_eos_checks.audit.engines.spark import SparkEngine
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.oracle.synthetic import faulty_log, write_log
from kafka_eos_checks.audit.plan import found as module
from kafka_eos_checks.audit.plan.found import SHOWN_FINDINGS, Found, found_rows
from kafka_eos_checks.audit.rules.rule_book import READABLE
from kafka_eos_checks.kit.verdict import read_verdicts


class Counting(pickle.Pickler):
    """Counts the findings in what it pickles."""

    findings = 0

    def reducer_override(self, value: Any) -> Any:
        self.findings += isinstance(value, Finding)
        return NotImplemented


def logs_with(folder: Path, batches: int) -> Path:
    for number in range(3):
        write_log(folder / f"orders-{number}", faulty_log(number, batches, 0.5), segment_batches=1000)
    return folder


def collected(
    monkeypatch: pytest.MonkeyPatch, engine: type, folder: Path, *more: Any, **named: Any
) -> tuple[int, int, int]:
    """The numbers of findings of an audit, of those brought to the process that asks, and of rules and kinds."""
    counting, total = Counting(io.BytesIO()), [0]
    collect = engine.collect  # type: ignore[attr-defined]

    def counted(self: Any, kind: int, *rows: Any) -> Any:
        brought = collect(self, kind, *rows)
        counting.dump(brought)
        return brought

    monkeypatch.setattr(engine, "collect", counted)
    result = run([folder], *more, take=lambda found: total.append(len(found)), **named)
    monkeypatch.undo()
    assert len(result.findings) + len(result.notes) <= len(result.counts) * SHOWN_FINDINGS
    assert sum(result.counts.values()) == total[-1]
    return total[-1], counting.findings, len(result.counts)


def test_the_asking_process_holds_a_bounded_number_of_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, brought, kinds = collected(monkeypatch, LocalEngine, logs_with(tmp_path / "few", 300))
    many, still, same = collected(monkeypatch, LocalEngine, logs_with(tmp_path / "many", 3000))
    assert many > 5 * few > 5 * SHOWN_FINDINGS
    assert kinds == same >= 4
    assert 0 < brought <= still <= kinds * SHOWN_FINDINGS


def test_the_asking_process_holds_few_anomalies_of_jepsen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.edn"
    send = '{{:type :ok, :process 0, :f :send, :value [[:send "{0}" [0 {0}]]]}}\n'
    poll = '{{:type :ok, :process 1, :f :poll, :value [[:poll {{"{0}" [[0 {0}] [1 {0}]]}}]]}}\n'
    path.write_text("".join(send.format(key) + poll.format(key) for key in range(200)), encoding="utf-8")
    expected = run([path])
    assert Counter(each.rule for each in expected.findings)[":duplicate"] == 200
    found, brought, kinds = collected(monkeypatch, LocalEngine, path)
    assert found == len(expected.findings)
    assert 0 < brought <= kinds * SHOWN_FINDINGS
    assert list(expected.findings) == sorted(expected.findings, key=Finding.sort_key)


def test_findings_that_a_stage_brings_to_the_driver_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of_them(findings: Any, *_: Any) -> Any:
        yield from ()
        yield module.Row(module.TALLY, 0, _tally_with_all(findings))

    monkeypatch.setattr("kafka_eos_checks.audit.plan.stages.found_rows", all_of_them)
    monkeypatch.setattr(module, "SHOWN_FINDINGS", 10**9)
    with pytest.raises(AssertionError):
        collected(monkeypatch, LocalEngine, logs_with(tmp_path, 300))


def _tally_with_all(findings: Any) -> module.Tally:
    tally = module.Tally()
    tally.add(findings)
    return tally


def found_in(engine: LocalEngine, findings: list[Finding]) -> Found:
    rows = engine.map(lambda item: found_rows(item[1], item[0]), [(n, findings[n::3]) for n in range(3)], [1] * 3, "t")
    return Found(engine, rows, own=[Finding(rule="own", topic="a", partition=0, offset=7)])


def test_all_findings_are_in_order_however_many_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("violation", "told")
    findings = [
        Finding(rule=f"r{n % 5}", topic="t", partition=n % 7, offset=n * 7919 % 1000, kind=kinds[n % 2])
        for n in range(1000)
    ]
    with open_engine("local") as engine:
        assert isinstance(engine, LocalEngine)
        found = found_in(engine, findings)
        whole = list(found.in_order())
        monkeypatch.setattr(module, "HELD_AT_ONCE", 64)
        assert list(found.in_order()) == whole
        assert len(whole) == len(found) == 1001
        assert (
            found.tally.of("r1", violations=True)[1]
            == [each for each in whole if each.rule == "r1" and each.is_violation][:SHOWN_FINDINGS]
        )
        violations = [each for each in whole if each.is_violation]
        assert violations == whole[: len(violations)]
        assert all(one.sort_key() <= other.sort_key() for one, other in pairwise(violations))
        expected = {
            rule: next(n for n, each in enumerate(violations, 1) if each.rule == rule) for rule in found.numbers()
        }
        assert found.numbers() == expected
        assert set(expected) == {"own", "r0", "r1", "r2", "r3", "r4"}
        few = found_in(engine, findings[:20])
        violations = [each for each in few.in_order() if each.is_violation]
        assert all(violations[number - 1].rule == rule for rule, number in few.numbers().items())


def test_the_last_row_of_a_task_has_all_findings_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEY_BITS", 1)
    monkeypatch.setattr(module, "OF_A_ROW", 2)
    findings = [Finding(rule="r", topic="t", partition=0, offset=offset) for offset in range(7)]
    rows = [row for row in found_rows(findings, 3) if row.kind == module.FINDINGS]
    assert [(row.key, len(row.value)) for row in rows] == [(6, 2), (7, 5)]
    assert [finding for row in rows for finding in row.value] == findings


@pytest.fixture
def warehouse(spark: Any) -> Iterator[Any]:
    """A session without the table that the test makes."""

    def clear() -> None:
        spark.sql("DROP TABLE IF EXISTS found_by_executors")
        place = urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path
        shutil.rmtree(Path(place, "found_by_executors"), ignore_errors=True)  # of a run that was killed

    clear()
    yield spark
    clear()


@pytest.mark.spark
def test_executors_write_the_findings_and_spark_brings_a_few(
    tmp_path: Path, warehouse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = logs_with(tmp_path / "logs", 1000)
    damaged = max(logs.rglob("*.log"), key=lambda path: path.stat().st_size)
    data = damaged.read_bytes()
    damaged.write_bytes(data[:300] + bytes(byte ^ 0xFF for byte in data[300:304]) + data[304:])
    found, brought, kinds = collected(monkeypatch, SparkEngine, logs, "spark", spark=warehouse)
    assert 0 < brought <= kinds * SHOWN_FINDINGS < found
    engine = "--spark", "--sink", "found_by_executors"
    texts, verdicts = [], []
    for more in ((), engine):
        out, findings = tmp_path / "v.json", tmp_path / "f.jsonl"
        assert cli.main(["audit", str(logs), "--json", str(out), "--findings", str(findings), *more]) == 1
        texts.append(findings.read_text())
        verdicts.append([(each.name, each.found, each.evidence, each.advice) for each in read_verdicts(out)])
    assert verdicts[0] == verdicts[1]
    assert texts[0] == texts[1]
    rows = Counter(Finding(**json.loads(line)) for line in texts[0].splitlines())
    assert rows.total() == found
    assert any(row.rule == READABLE for row in rows)
    table = warehouse.table("found_by_executors").drop("audit")
    assert Counter(Finding(**row.asDict()) for row in table.collect()) == rows
