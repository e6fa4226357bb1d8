"""Histories in Parquet are those in JSON Lines."""

import json
import random
from dataclasses import asdict, fields, replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from msgspec import to_builtins
from msgspec.json import decode

from kafka_eos.histories.history import (
    COLUMN_TYPES,
    INJECTED,
    REQUIRED,
    Event,
    MalformedHistory,
    read_history,
    write_history,
)
from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.events import history_files, history_tables
from kafka_eos_checks.audit.events.blocks import NOWHERE, Block, Lines
from kafka_eos_checks.audit.events.columns import JOINED, Column, Detail, column_of
from kafka_eos_checks.audit.events.history_files import (
    event_of,
    line_of,
    lines_at,
    numbered_events,
    range_bytes_of,
    ranges_of,
    read_events,
)
from kafka_eos_checks.audit.events.recorded import told
from kafka_eos_checks.audit.events.table_blocks import Table
from kafka_eos_checks.audit.oracle.synthetic import write_log
from kafka_eos_checks.audit.places import bytes_read
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


@pytest.mark.parametrize(("gigabytes", "megabytes"), [(1, 32), (8, 32), (16, 64), (32, 128), (33, 128), (100, 128)])
def test_a_long_history_has_larger_ranges_and_not_more(gigabytes: int, megabytes: int, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("h.jsonl", "i.jsonl", "j.parquet")]
    for file in files:
        with file.open("wb") as sparse:
            sparse.truncate(gigabytes << 29)
    assert range_bytes_of(files) == megabytes << 20


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
        ({"run": "r", "process": "p", "action": "send", "phase": "ok"}, "action 'send' is unknown; did you mean Send"),
        (
            {"run": "r", "process": "p", "action": "Poll", "phase": "ok", "isolation": "READ_COMMITTED"},
            "isolation 'READ_COMMITTED' is unknown; did you mean read_committed",
        ),
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


def test_a_line_that_begins_with_a_range_is_of_this_range_only(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_history(path, [EVENTS[0]] * 3)
    size = path.stat().st_size // 3
    parts = [[at for places, _ in numbered_events(part) for at in places] for part in ranges_of(path, size)]
    assert parts == [[0], [size], [2 * size]]


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


def in_full(path: Path) -> list[Event] | str:
    """The events that are read one by one, or the reason why one of them is none."""
    try:
        return list(read_events(path))
    except MalformedHistory as error:
        return error.reason


class Same(dict[Any, Any]):
    """A mapping of each text to itself."""

    def __missing__(self, text: Any) -> Any:
        return text


def _told(value: Any) -> Any:
    return None if value == NOWHERE else value


def events_of(block: Block) -> list[Any]:
    """The events of a block, each with the fields of its detail that rules join by."""
    if isinstance(block, Lines):
        return [Column(**{name: _told(getattr(each, name)) for name in COLUMN_TYPES}) for each in block.events]
    columns: dict[str, Any] = {}
    for name, kind in COLUMN_TYPES.items():
        if kind is int:
            columns[name] = list(map(_told, block.integers(name).tolist()))
        else:
            every = np.arange(len(block))
            details = (Detail(*row) for row in zip(*block.fields(every, JOINED), strict=True))
            columns[name] = details if kind is dict else block.texts(name, Same(), object)
    return [Column(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def by_columns(path: Path, range_bytes: int) -> list[Event] | str:
    """The events of all ranges as they are turned into columns, or the reason why one of them is none."""
    names = [field.name for field in fields(Event)]
    try:
        blocks = [
            (at, events_of(block)) for part in ranges_of(path, range_bytes) for at, block in numbered_events(part)
        ]
    except MalformedHistory as error:
        return error.reason
    found = [(at, event) for places, events in blocks for at, event in zip(places, events, strict=True)]
    assert [event_of(line) for _, line in lines_at(path, [at for at, _ in found])] == in_full(path)
    firsts = [part.first for part in ranges_of(path, range_bytes)]
    assert firsts == sorted(set(firsts))
    assert all(at >= firsts[0] == 0 for at, _ in found)
    details = [to_builtins(event.detail) for _, event in found]
    details = [{k: list(v) if isinstance(v, tuple) else v for k, v in each.items()} for each in details]
    events = [event for _, event in found]
    rows = [
        {name: getattr(event, name) for name in names} | {"detail": detail}
        for event, detail in zip(events, details, strict=True)
    ]
    return [Event(**{name: value for name, value in row.items() if value is not None}) for row in rows]


def joined_by(events: list[Event] | str) -> list[Event] | str:
    """Events with those fields of their detail that rules join by."""
    if isinstance(events, str):
        return events
    names = Detail.__struct_fields__
    return [replace(each, detail={k: v for k, v in each.detail.items() if k in names}) for each in events]


ODD = (
    *(b'"\\ud800"', b'"\xff"', b'"\xc3\xa9"', b'"a\tb"', b"true", b"null", b"NaN", b"[]", b"[" * 3000),
    *(b"1.0", b"-0", b"1e2", b"01", b"1e400", b"12345678901234567890123"),
    *(b'{"value": 1e22}', b'{"value": -0.0}', b'{"value": {"value": [1, 2.5]}}'),
)
WORDS = {"action": (b'"send"', b'""', b'"Poll"', b'"Note"'), "phase": (b'"OK"', b'"info"')}
WORDS["isolation"] = (b'"READ_COMMITTED"', b'"read_committed"', b'"read_uncommitted"', b"null")
BROKEN = (b"{} {}", b'{"value":1', b',"request":2}')  # together, one below the other, three objects in three lines
INNER = (b"transaction", b"input", b"offsets", b"request", b"value", b"reason")  # fields, the last one unknown


@pytest.mark.parametrize("detail", [{"transaction": 3}, {"input": ["in", 0, 7]}, {"offsets": {"0": 5}}], ids=str)
def test_fields_that_rules_join_by_are_read_fast(detail: dict[str, Any]) -> None:
    """Python's decoder, which reads what msgspec refuses, takes many times as long."""
    assert json.dumps(to_builtins(decode(json.dumps(detail), type=Detail))) == json.dumps(detail)


def test_attempts_with_fields_that_are_null_are_read_fast() -> None:
    told = {"process": "p", "action": "Produce", "phase": "ok"}
    absent = dict.fromkeys(("topic", "group", "transactional_id", "order", "partition", "offset", "record_count"))
    assert to_builtins(history_files.ATTEMPTS.decode(json.dumps(told | absent))) == told | absent | {"detail": {}}


def test_lines_are_read_by_columns_as_they_are_one_by_one(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    path = tmp_path / "h.jsonl"
    refused = 0
    for _ in range(400):
        columns = {"run": b'"r"', "process": b'"p"', "action": b'"Send"', "phase": b'"ok"', "offset": b"3"}
        columns |= {
            "detail": rng.choice((b'{"value": "x"}', b'{"value": "x", "transaction": 3, "input": ["t", 0, 5]}'))
        }
        lines = []
        for _ in range(rng.randint(1, 4)):
            own = dict(columns)
            for name in rng.sample([*own, "topic", "order", "isolation", "what"], rng.choice((0, 0, 1, 2))):
                details = (b'{"value": "x", "%b": %b}' % (k, v) for k in INNER for v in ODD)
                own[name] = rng.choice((*ODD, *(WORDS.get(name, ()) * 5), *details))
            parts = [b'"%b": %b' % (name.encode(), value) for name, value in own.items()]
            rng.shuffle(parts)
            lines.append(
                rng.choice((b"", b" ", b"\t")) + b"{" + b",".join(parts) + b"}" + rng.choice((b"", b" ", b"\r", b"x"))
            )
            lines += [b""] * rng.choice((0, 0, 1))
        path.write_bytes(b"\n".join(lines) + rng.choice((b"", b"\n", b"\n \n")))
        expected = joined_by(in_full(path))
        refused += isinstance(expected, str)
        assert by_columns(path, rng.choice((10, 100, 1 << 20))) == expected, (seed, path.read_bytes())
    assert 200 < refused < 390  # of 400, each refused at 0.84: seeds beyond it are fewer than one in 10^15


INPUT = pa.struct([("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64())])
FORMS: dict[str, list[tuple[Any, list[Any]]]] = {
    "value": [(pa.string(), ["", "é", None]), (pa.int32(), [7, None]), (pa.bool_(), [True]), (INPUT, [{"offset": 3}])],
    "transaction": [(pa.int64(), [1 << 62, -1, None]), (pa.uint64(), [3, 1 << 63]), (pa.string(), ["3"])],
    "input": [
        (INPUT, [{"topic": "t", "partition": 0, "offset": 5}, None]),
        (INPUT, [{"topic": "t", "partition": 0, "offset": None}]),
        (pa.list_(pa.string()), [["t", "0", "5"], ["u", "07", "-1"], None]),
        (pa.list_(pa.string()), [["t", "0", text] for text in ("0x1", "x", "", None, "9" * 30)]),
        (pa.list_(pa.string()), [["t", "0"], ["t", "0", "5", "5"], [None, "0", "5"]]),
        (pa.list_(pa.int64()), [[1, 0, 5]]),
        (pa.struct([("topic", pa.string()), ("offset", pa.int64())]), [{"topic": "t", "offset": 5}]),
    ],
    "offsets": [
        (pa.map_(pa.string(), pa.int64()), [[("0", 5), ("1", None)], [], None]),
        (pa.map_(pa.string(), pa.int64()), [[("x", 5)]]),
        (pa.map_(pa.string(), pa.string()), [[("0", "5")]]),
        (pa.struct([("0", pa.int64()), ("1", pa.int64())]), [{"0": 5}, {"1": 7}, None]),
        (pa.struct([("0", pa.float64())]), [{"0": 5.5}, None]),
    ],
    "request": [(pa.int64(), [1, None]), (pa.list_(pa.int64()), [[1]])],
    "fault": [(pa.string(), ["error", "x", None])],
    "reason": [(pa.string(), ["y", None])],
}


SOUND = {name: forms[:1] for name, forms in FORMS.items()} | {"offsets": FORMS["offsets"][3:4]}
SOUND["value"], SOUND["input"] = FORMS["value"][:3], [FORMS["input"][number] for number in (0, 2)]


def any_structs(rng: random.Random, present: list[Any], forms: dict[str, list[tuple[Any, list[Any]]]]) -> Any:
    """Details in a column of structs, with fields of any of some types; null where ``present`` is None."""
    fields = {}
    for name in rng.sample(list(forms), rng.randint(1, 4)):
        kind, values = rng.choice(forms[name])
        fields[name] = pa.array([rng.choice(values) for _ in present], kind)
    mask = pa.array([each is None for each in present])
    return pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=mask)


def any_table(rng: random.Random) -> Any:
    """A table of some events, or nearly: of any types, with rows that lack something."""
    count = rng.randint(1, 9)
    texts: dict[str, tuple[str, ...]] = {
        "run": ("r",),
        "process": ("p", "q", "é"),
        "action": ("Send", "Poll"),
        "phase": ("ok", "ok", "ok", "invoke"),
    }
    columns = {name: [rng.choice(values) for _ in range(count)] for name, values in texts.items()}
    columns |= {name: [rng.choice(("t", "u", None)) for _ in range(count)] for name in ("topic", "group")}
    columns["isolation"] = [rng.choice(("read_committed", "read_uncommitted", None)) for _ in range(count)]
    numbers = {name: [rng.choice((0, 3, 1 << 40, -1, None)) for _ in range(count)] for name in ("order", "offset")}
    if rng.random() < 0.1:
        name = rng.choice([*columns, *numbers])
        strange = rng.choice(([None], ["done"], ["Send"], [0.5], [True], [7]))
        columns |= {name: strange * count}
        numbers.pop(name, None)
    if rng.random() < 0.03:
        columns["who"] = ["me"] * count
    if rng.random() < 0.03:
        columns.pop(rng.choice([*columns]))
    kinds = (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))
    made = {
        name: pa.array(values, rng.choice(kinds) if name in texts and isinstance(values[0], str) else None)
        for name, values in columns.items()
    }
    made |= {name: pa.array(values, pa.int64()) for name, values in numbers.items()}
    some = ({"value": "x"}, {"value": "x", "transaction": 3}, {"reason": "y"}, None)
    details = [rng.choice(some) for _ in range(count)]
    form = rng.choice(("text", "text", "text", "struct", "map", "none", "without"))
    if form == "text":
        plain = (b"{}", b'{"value":"x"}', b'{"value":"x","transaction":3,"input":["t",0,5]}', b'{"request":null}')
        odd = (*(b'{"%b": %b}' % (k, v) for k in INNER for v in ODD), *ODD, *BROKEN, b"")
        rare = rng.choice((0.0, 0.0, 0.1))
        chosen = [rng.choice(odd if rng.random() < rare else plain) for _ in range(count)]
        made["detail"] = pa.array([rng.choice((text.decode("latin-1"), None)) for text in chosen], pa.string())
    elif form == "struct":
        made["detail"] = any_structs(rng, details, rng.choice((FORMS, SOUND)))
    elif form == "map":
        kept = [None if detail is None else [("value", "x")] for detail in details]
        made["detail"] = pa.array(kept, pa.map_(pa.string(), pa.string()))
    elif form == "none":
        made["detail"] = pa.nulls(count)
    return pa.table(made)


def test_rows_are_read_by_columns_as_they_are_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    path = tmp_path / "h.parquet"
    refused = 0
    for _ in range(400):
        pq.write_table(any_table(rng), path, row_group_size=rng.choice((1, 3, 100)))
        monkeypatch.setattr(history_tables, "ROWS_AT_ONCE", rng.choice((1, 2, 4096)))  # fewer than a group's texts
        expected = joined_by(in_full(path))
        refused += isinstance(expected, str)
        assert by_columns(path, 1) == expected, (seed, pq.read_table(path).to_pylist())
    assert 5 < refused < 200  # of 400, each refused at 0.13: seeds beyond it are fewer than one in 10^10


def facts_of(block: Block) -> list[Any]:
    """All that columns are made of, of a block and of a part of it."""
    found: list[Any] = []
    for own in (block, block.take(np.arange(len(block))[::2])):
        found += [len(own), own.integers("time_us").tolist(), events_of(own), own.forms(Numbered()).tolist()]
        text, *columns = own.values()
        found += [text, *(each.tolist() for each in columns), own.transactions().tolist(), INJECTED in own.faults()]
        for name, some, rows in own.by_run():
            found += [name, events_of(some), None if rows is None else rows.tolist(), some.forms(Numbered()).tolist()]
    return found


class Numbered(dict[Any, int]):
    """A number for each key, a hash of it that is the same in both blocks."""

    def __missing__(self, form: tuple[Any, ...]) -> int:
        return crc32(repr(tuple(form)).encode())


def test_a_block_of_rows_is_one_of_lines(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    rng, tables = random.Random(seed), 0
    for _ in range(300):
        columns = {
            **{name: [rng.choice(("p", "q", "r")) for _ in range(9)] for name in ("run", "process")},
            "action": [rng.choice(("Send", "Poll")) for _ in range(9)],
            "phase": [rng.choice(("ok", "invoke")) for _ in range(9)],
            **{name: [rng.choice(("a", "b", None)) for _ in range(9)] for name in ("topic", "group")},
            "partition": [rng.choice((0, 7, None)) for _ in range(9)],
            "time_us": [rng.choice((1, 1_999, rng.choice((5, None)))) for _ in range(9)],
            "isolation": [rng.choice(("read_committed", "read_uncommitted", None)) for _ in range(9)],
            "detail": [rng.choice(('{"value":"x"}', '{"transaction":3}', '{"fault":"error"}', None)) for _ in range(9)],
        }
        if rng.random() < 0.5:
            columns["detail"] = any_structs(rng, [rng.choice((True, None)) for _ in range(9)], SOUND)
        path = tmp_path / "h.parquet"
        pq.write_table(pa.table(columns).slice(0, rng.randint(1, 9)), path)
        [(_, block)] = [each for part in ranges_of(path) for each in numbered_events(part)]
        tables += isinstance(block, Table)
        assert facts_of(block) == facts_of(Lines(list(map(column_of, read_events(path))))), seed
    assert tables == 300


def test_details_are_one_in_each_row(tmp_path: Path) -> None:
    path = tmp_path / "h.parquet"
    columns = {name: ["ok"] * len(BROKEN) for name in REQUIRED}
    pq.write_table(pa.table(columns | {"detail": [text.decode() for text in BROKEN]}), path)
    assert by_columns(path, 1) == in_full(path) == "column 'detail': no JSON: Extra data: line 1 column 4 (char 3)"


def test_a_row_without_a_required_value_is_refused_in_a_block_of_others(tmp_path: Path) -> None:
    whole = {"run": "r", "process": "p", "action": "Send", "phase": "ok"}
    for name in whole:
        pq.write_table(pa.Table.from_pylist([whole, {**whole, name: None}]), tmp_path / "h.parquet")
        with pytest.raises(MalformedHistory, match=f"column.*{name}"):
            [list(numbered_events(part)) for part in ranges_of(tmp_path / "h.parquet")]


def test_an_empty_detail_is_refused_as_no_json(tmp_path: Path) -> None:
    path = tmp_path / "h.parquet"
    pq.write_table(pa.Table.from_pylist([{**rows(EVENTS[:1], "text")[0], "detail": ""}]), path)
    assert by_columns(path, 1) == in_full(path) == "column 'detail': no JSON: Expecting value: line 1 column 1 (char 0)"


def test_of_two_columns_of_a_name_the_last_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "h.parquet"
    pq.write_table(pa.Table.from_pylist(rows(EVENTS[:1], "text")).append_column("topic", [["u"]]), path)
    assert by_columns(path, 1) == in_full(path) == [replace(EVENTS[0], topic="u")]


def test_only_groups_with_wanted_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "h.parquet"
    events = [replace(EVENTS[0], order=order, detail={"value": f"{order:064}"}) for order in range(3000)]
    pq.write_table(pa.Table.from_pylist(rows(events, "text")), path, row_group_size=1000)
    before = bytes_read()
    found = [(at, event_of(line)) for at, line in lines_at(path, [1999, 1000])]
    assert found == [(1000, events[1000]), (1999, events[1999])]
    assert [part.first for part in ranges_of(path)] == [0, 1000, 2000]
    assert 0 < bytes_read() - before < path.stat().st_size / 2


def test_a_row_in_any_range_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "h.parquet"
    own = rows([replace(EVENTS[0], order=order) for order in range(9)], "text")
    own[7]["detail"] = "{"
    pq.write_table(pa.Table.from_pylist(own), path, row_group_size=3)
    with pytest.raises(MalformedHistory) as refused:
        [list(numbered_events(part)) for part in ranges_of(path)]
    assert line_of(path, refused.value.line) == 8
    with pytest.raises(MalformedHistory, match=r"h\.parquet:8: column 'detail'"):
        list(read_events(path))


def test_recorded_requests_are_read_as_fast_as_other_events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An unknown field in a detail has the line read once more, and only this line."""
    again, decode = list[bytes](), history_files._ANY.decode

    def slow(line: bytes) -> Any:
        again.append(line)
        return decode(line)

    monkeypatch.setattr(history_files, "_ANY", SimpleNamespace(decode=slow))
    with unpacked(kept_recording("transactions")) as recording:
        lines = (recording / "histories" / "copy.jsonl").read_bytes().splitlines()
    requests = [line for line in lines if b'"request"' in line]
    odd = b'{"run":"r","process":"p","action":"Send","phase":"fail","detail":{"value":"x","reason":"y"}}'
    path = tmp_path / "h.jsonl"
    path.write_bytes(b"\n".join([*requests, odd, *requests, b""]))
    events = [event for part in ranges_of(path) for _, block in numbered_events(part) for event in events_of(block)]
    assert len(events) == 2 * len(requests) + 1
    assert again == [odd]


@pytest.mark.parametrize("name", [b"transaction", b"request"])
@pytest.mark.parametrize("value", [b"1e400", b"9" * 5000])
def test_a_number_that_no_reader_accepts_is_refused_wherever_a_detail_has_it(
    name: bytes, value: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "h.jsonl"
    line = b'{"run":"r","process":"p","action":"Send","phase":"ok","detail":{"%b":%b}}\n'
    path.write_bytes(line % (b"value", b'"x"') + line % (name, value))
    assert isinstance(in_full(path), str)
    assert by_columns(path, 1 << 20) == in_full(path)


@pytest.mark.parametrize("offsets", ["struct", "map"])
def test_a_table_that_has_offsets_by_partition_is_read_as_lines_are(offsets: str, tmp_path: Path) -> None:
    kinds = {"struct": pa.struct([("0", pa.int64()), ("1", pa.int64())]), "map": pa.map_(pa.string(), pa.int64())}
    detail = [{"offsets": {"0": 5} if offsets == "struct" else [("0", 5)]}]
    texts = {"run": ["r"], "process": ["p"], "action": ["CommitOffsets"], "phase": ["invoke"]}
    path = tmp_path / "h.parquet"
    pq.write_table(pa.table({**texts, "detail": pa.array(detail, pa.struct([("offsets", kinds[offsets])]))}), path)
    for found in (by_columns(path, 1), in_full(path)):
        assert [event.detail for event in found] == [{"offsets": {"0": 5}}]


def test_a_number_that_a_line_leaves_out_is_as_one_that_is_null(tmp_path: Path) -> None:
    line = '{"run":"r","process":"p","action":"Send","phase":"ok","topic":"t"'
    path = tmp_path / "h.jsonl"
    nulls = ',"order":null,"time_us":null,"partition":null'
    for one, other in (("", nulls), ("", ""), (nulls, nulls)):
        path.write_text(f"{line}{one}}}\n{line}{other}}}\n", encoding="utf-8")
        [(_, block)] = [each for part in ranges_of(path) for each in numbered_events(part)]
        assert block.integers("order").tolist() == [NOWHERE, NOWHERE]
        assert next(told([(np.arange(2), block)], "h")).facts.last_ms == inf
        assert len(set(block.forms(Numbered()).tolist())) == 1
