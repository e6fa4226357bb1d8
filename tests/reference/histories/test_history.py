import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.histories.history import (
    ACTIONS,
    COLUMN_TYPES,
    MILLISECONDS,
    VOCABULARY,
    Event,
    MalformedHistory,
    event_from_json,
    event_from_row,
    read_history,
    write_history,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "histories.md"
LEFT_OUT = "; an event that no rule has to read is left out, or has the action Note"
GOOD = '{"run":"r","process":"p","action":"Send","phase":"invoke"}'

# Text that a file in UTF-8 can hold; JSON's own numbers of any size.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
BY_TYPE = {int: st.none() | st.integers(), str: st.none() | TEXT, dict: st.dictionaries(TEXT, JSON, max_size=3)}
EVENTS = st.builds(
    Event,
    **{name: BY_TYPE[kind] for name, kind in COLUMN_TYPES.items()}
    | dict.fromkeys(("run", "process"), TEXT)
    | {"time_us": st.none() | st.integers().filter(lambda time_us: time_us not in MILLISECONDS)}
    | {name: st.sampled_from(words) for name, words in VOCABULARY.items()},
)


@given(EVENTS)
def test_an_event_comes_back_from_its_line(event: Event) -> None:
    line = event.to_json()
    assert "\n" not in line
    assert event_from_json(line) == event


@given(st.lists(EVENTS, max_size=5))
def test_a_history_comes_back_from_its_file(tmp_path_factory: pytest.TempPathFactory, events: list[Event]) -> None:
    path = tmp_path_factory.mktemp("history") / "h.jsonl"
    assert write_history(path, events) == len(events)
    assert list(read_history(path)) == events


def test_absent_values_are_left_out_of_the_line() -> None:
    event = Event(run="r", process="p", action="Send", phase="invoke")
    assert event.to_json() == GOOD
    assert event_from_json('{"offset":null,' + GOOD[1:]) == event


def test_the_document_of_histories_names_all_actions_and_no_others() -> None:
    table = DOCUMENT.read_text(encoding="utf-8").partition("\n## Actions\n")[2].partition("\n\n`detail")[0]
    named = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    assert sorted(name for cell in named for name in re.findall(r"`(\w+)`", cell)) == sorted(ACTIONS)


def test_every_column_has_a_type() -> None:
    assert list(COLUMN_TYPES) == [f.name for f in fields(Event)]
    assert set(COLUMN_TYPES.values()) == {int, str, dict}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "no JSON: Expecting property name enclosed in double quotes at column 1"),
        ("[" * 100_000, "no JSON: maximum recursion depth exceeded while decoding a JSON array from a unicode string"),
        ('{"detail":{"value":-1e400}}', "no JSON: '-1e400' is too large a number for a double"),
        (f'{{"detail":{{"value":{"9" * 30}e300}}}}', f"no JSON: '{'9' * 20}' is too large a number for a double"),
        ('{"detail":{"value":NaN}}', "no JSON: NaN is no number"),
        ("[]", "expected a JSON object, found list"),
        ("3", "expected a JSON object, found int"),
        (GOOD.replace("run", "ruin"), "unknown column 'ruin'; put it into 'detail'"),
        (GOOD.replace('"r"', "3"), "column 'run': expected str, found 3"),
        ('{"offset":"3",' + GOOD[1:], "column 'offset': expected int, found '3'"),
        (GOOD[:-1] + ',"offset":"3"}', "column 'offset': expected int, found '3'"),
        ('{"offset":3.5,' + GOOD[1:], "column 'offset': expected int, found 3.5"),
        ('{"offset":true,' + GOOD[1:], "column 'offset': expected int, found True"),
        ('{"detail":[],' + GOOD[1:], "column 'detail': expected dict, found []"),
        (GOOD.replace('"run":"r",', ""), "missing column(s) run"),
        ('{"run":null,"offset":3}', "missing column(s) run, process, action, phase"),
        (GOOD.replace("invoke", "begin"), "phase 'begin' is none of invoke, ok, fail, info"),
        (GOOD.replace("Send", "send"), "action 'send' is unknown; did you mean Send?" + LEFT_OUT),
        (
            '{"isolation":"READ_COMMITTED",' + GOOD[1:],
            "isolation 'READ_COMMITTED' is unknown; did you mean read_committed?",
        ),
        (
            '{"isolation":"uncommitted",' + GOOD[1:],
            "isolation 'uncommitted' is unknown; did you mean read_uncommitted?",
        ),
        ('{"isolation":"",' + GOOD[1:], "isolation '' is none of read_committed, read_uncommitted"),
        (GOOD.replace("Send", "poll_"), "action 'poll_' is unknown; did you mean Poll?" + LEFT_OUT),
        (GOOD.replace("Send", "x"), f"action 'x' is none of {', '.join(ACTIONS)}{LEFT_OUT}"),
        (GOOD.replace("Send", ""), f"action '' is none of {', '.join(ACTIONS)}{LEFT_OUT}"),
        (GOOD.replace('"r"', '""'), "missing column(s) run"),
        (
            '{"time_us":1764500000123,' + GOOD[1:],
            "time_us 1764500000123 seems to be in milliseconds; in microseconds, it is 1764500000123000",
        ),
        ('{"detail":{"transaction":"t1"},' + GOOD[1:], "detail.transaction: expected int, found 't1'"),
        ('{"detail":{"transaction":true},' + GOOD[1:], "detail.transaction: expected int, found True"),
        (
            '{"detail":{"input":["t","0",1]},' + GOOD[1:],
            "detail.input: expected [topic, partition, offset], found ['t', '0', 1]",
        ),
        ('{"detail":{"input":5},' + GOOD[1:], "detail.input: expected [topic, partition, offset], found 5"),
        (
            '{"detail":{"offsets":{"0":"5"}},' + GOOD[1:],
            "detail.offsets: expected {\"partition\": offset}, found {'0': '5'}",
        ),
        (
            '{"detail":{"offsets":{"t-0":5}},' + GOOD[1:],
            "detail.offsets: expected {\"partition\": offset}, found {'t-0': 5}",
        ),
    ],
)
def test_a_line_that_is_no_event_is_refused_with_file_line_and_reason(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n", encoding="utf-8")
    with pytest.raises(MalformedHistory) as caught:
        list(read_history(path))
    assert str(caught.value) == f"{path}:3: {caught.value.reason}"
    assert caught.value.reason == reason
    assert (caught.value.source, caught.value.line) == (str(path), 3)


def test_a_line_of_no_file_is_the_first_one_of_a_history() -> None:
    with pytest.raises(MalformedHistory, match=r"^history:1: no JSON"):
        event_from_json("{")


def test_the_lines_before_a_bad_line_are_read(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(f"{GOOD}\nnonsense\n", encoding="utf-8")
    events = read_history(path)
    assert next(events).action == "Send"
    with pytest.raises(MalformedHistory, match=r"h\.jsonl:2"):
        next(events)


def is_event_or_refused(line: str) -> bool:
    """Whether a line is either an event with words that are known, or refused."""
    try:
        event = event_from_json(line)
        return all(getattr(event, name) in {None, *words} for name, words in VOCABULARY.items())
    except MalformedHistory:
        return True


@given(st.text(max_size=60))
def test_any_text_is_an_event_or_refused(line: str) -> None:
    assert is_event_or_refused(line)


@given(st.dictionaries(st.sampled_from([*COLUMN_TYPES, "other"]), JSON, max_size=6))
def test_any_json_object_is_an_event_or_refused(row: dict[str, object]) -> None:
    assert is_event_or_refused(json.dumps(row))


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(GOOD.encode() + b"\n\xff\xfe\n")
    with pytest.raises(MalformedHistory, match=r"h\.jsonl:2: no JSON"):
        list(read_history(path))


def test_a_row_without_a_place_is_the_first_of_its_history_and_a_long_word_is_cut() -> None:
    with pytest.raises(MalformedHistory) as refused:
        event_from_row({"run": "r", "order": 0, "process": "p", "action": "x" * 50, "phase": "ok"})
    assert str(refused.value).startswith(f"history:1: action {'x' * 40!r} is none of ")
