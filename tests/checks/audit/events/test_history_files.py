"""Histories in Parquet are those in JSON Lines."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import Event, MalformedHistory, read_history, write_history
from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.events.history_files import read_events
from kafka_eos_checks.audit.oracle.synthetic import write_log
from kafka_eos_checks.audit.rules.log import Batch
from kafka_eos_checks.kit.recording import kept_recording, unpacked

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

EVENTS = [
    Event(run="r", process="p", action="Send", phase="ok", topic="t", partition=0, offset=3, detail={"value": "x"}),
    Event(run="r", order=2, time_us=5, process="p", action="Crash", phase="info"),
]


def rows(events: list[Event], form: str) -> list[dict[str, Any]]:
    made = []
    for event in events:
        row = asdict(event)
        if form == "text":
            row["detail"] = json.dumps(event.detail)
        if form == "map":
            row["detail"] = list(event.detail.items())
        made.append(row)
    return made


@pytest.mark.parametrize("form", ["struct", "text", "map"])
def test_a_parquet_file_has_the_events_whatever_form_its_detail_has(form: str, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(rows(EVENTS, form))
    if form == "map":
        kind = pa.map_(pa.string(), pa.string())
        number = table.schema.get_field_index("detail")
        table = table.set_column(number, "detail", pa.array([row["detail"] for row in rows(EVENTS, form)], kind))
    pq.write_table(table, tmp_path / "h.parquet")
    assert list(read_events(tmp_path / "h.parquet")) == EVENTS


def test_a_folder_of_parquet_files_is_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "h.parquet"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    for number, event in enumerate(EVENTS):
        pq.write_table(pa.Table.from_pylist(rows([event], "text")), folder / f"part-{number:05d}.snappy.parquet")
    assert list(read_events(folder)) == EVENTS


def test_an_audit_of_a_history_in_parquet_finds_what_that_of_the_lines_finds(tmp_path: Path) -> None:
    with unpacked(kept_recording("violations")) as folder:
        path = min((folder / "histories").glob("*.jsonl"))
        events = list(read_history(path))
        pq.write_table(pa.Table.from_pylist(rows(events, "text")), tmp_path / "h.parquet")
        assert list(read_events(tmp_path / "h.parquet")) == events
        by_lines, by_rows = run([folder / "brokers", path]), run([folder / "brokers", tmp_path / "h.parquet"])
    assert by_rows.findings == by_lines.findings
    assert by_rows.findings


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"run": "r", "process": "p", "action": "Send"}, "h.parquet:1: missing column.s. phase"),
        ({"run": "r", "process": "p", "action": "Send", "phase": "done"}, "phase 'done' is none of"),
        ({"run": "r", "process": "p", "action": "Send", "phase": "ok", "who": "me"}, "unknown column 'who'"),
        ({"run": "r", "process": "p", "action": "Send", "phase": "ok", "detail": "{"}, "column 'detail': no JSON"),
        (
            {"run": "r", "process": "p", "action": "Send", "phase": "ok", "detail": '{"value": 1e400}'},
            "h.parquet:1: column 'detail': no JSON: '1e400' is too large",
        ),
        ({"run": "r", "process": "p", "action": "Send", "phase": "ok", "offset": "3"}, "expected int, found '3'"),
    ],
)
def test_a_row_that_is_no_event_is_refused_with_its_number(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "h.parquet")
    with pytest.raises(MalformedHistory, match=said):
        list(read_events(tmp_path / "h.parquet"))


def test_a_file_that_is_no_parquet_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.parquet").write_bytes(b"no")
    assert cli.main(["audit", str(tmp_path / "h.parquet")]) == 2
    assert "no Parquet" in capsys.readouterr().err


def test_a_history_of_lines_and_one_of_rows_are_given_together(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "t-0", [Batch(0, 0, 0, 7, 0, 0, 0, unsequenced=False)])
    write_history(tmp_path / "h.jsonl", EVENTS[1:])
    pq.write_table(pa.Table.from_pylist(rows(EVENTS[:1], "text")), tmp_path / "h.parquet")
    found = run([tmp_path / "logs", tmp_path / "h.jsonl"], histories=[tmp_path / "h.parquet"], one_moment=True).findings
    assert [finding.rule for finding in found] == ["acknowledged but lost"]
