from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from pyrsistent import PVector, pvector

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.producer_state import Batch, CachedBatch, Limits, Log, ProducerState, Snapshot
from kafka_eos.machines.spec_mapping import SpecValue, camel_case, from_spec, snake_case, to_spec


@dataclass(frozen=True, kw_only=True)
class Seat:
    row_number: int
    is_taken: bool


@dataclass(frozen=True, kw_only=True)
class Room:
    """A record with a value of each kind."""

    open_seats: frozenset[Seat]
    last_guest: str | None
    answers: tuple[ErrorCode, ...]
    waiting: PVector[int]
    names: Map[int, str]
    size: int = field(default=5, compare=False)


SEATS = st.builds(Seat, row_number=st.integers(), is_taken=st.booleans())
NAMES = st.text(max_size=5).filter(lambda name: name != "none")  # TLA+ writes None as "none"
ROOMS = st.builds(
    Room,
    open_seats=st.frozensets(SEATS, max_size=4),
    last_guest=st.none() | NAMES,
    answers=st.lists(st.sampled_from(ErrorCode), max_size=4).map(tuple),
    waiting=st.lists(st.integers(), max_size=4).map(pvector),
    names=st.dictionaries(st.integers(-1, 4), NAMES, max_size=4).map(Map)
    | st.integers(1, 4).flatmap(lambda n: st.lists(NAMES, min_size=n, max_size=n)).map(lambda v: Map(enumerate(v, 1))),
)
CONTEXT: dict[type, int] = {int: 5}


def as_tlc_prints(value: SpecValue) -> SpecValue:
    """A function over 1..n as a sequence, the empty one too."""
    if isinstance(value, frozenset):
        return frozenset(map(as_tlc_prints, value))
    if isinstance(value, tuple):
        return tuple(map(as_tlc_prints, value))
    if isinstance(value, Map):
        inner = {key: as_tlc_prints(of) for key, of in value.items()}
        is_sequence = inner.keys() == set(range(1, len(inner) + 1))
        return tuple(inner[key] for key in sorted(inner)) if is_sequence else Map(inner)
    return value


@given(ROOMS)
def test_a_value_comes_back_from_the_spec(room: Room) -> None:
    assert from_spec(Room, to_spec(room), CONTEXT) == room


@given(ROOMS)
def test_a_value_comes_back_however_tlc_prints_its_functions(room: Room) -> None:
    printed = as_tlc_prints(to_spec(room))
    assert from_spec(Room, printed, CONTEXT) == room


def test_a_sequence_stands_for_a_function_only_where_a_function_is_asked_for() -> None:
    assert from_spec(Map[int, int], (7, 8)) == Map({1: 7, 2: 8})
    assert from_spec(tuple[int, ...], (7, 8)) == (7, 8)
    assert from_spec(Map[int, int], ()) == Map()
    assert from_spec(PVector[int], (7, 8)) == pvector([7, 8])


def test_a_log_is_a_record_without_its_limits_which_the_context_brings_back() -> None:
    batch = Batch(producer_id=3, epoch=1, sequence=0, count=2)
    log = Log(limits=Limits(9, 2)).appended(batch).with_snapshot()
    entry = Map({"producerId": 3, "epoch": 1, "sequence": 0, "count": 2, "offset": 0})
    producers = Map({3: Map({"epoch": 1, "batches": (Map({"sequence": 0, "count": 2, "offset": 0}),)})})
    value = to_spec(log)
    assert value == Map(
        {"entries": (entry,), "producers": producers, "snapshot": Map({"offset": 2, "producers": producers})}
    )
    back = from_spec(Log, value, {Limits: Limits(9, 2)})
    assert (back, back.limits) == (log, Limits(9, 2))
    state = ProducerState(epoch=1, batches=(CachedBatch(sequence=0, count=2, offset=0),))
    assert back.snapshot == Snapshot(offset=2, producers=Map({3: state}))


def test_the_context_can_put_a_subclass_in_the_place_of_a_record() -> None:
    class OtherLog(Log):
        __slots__ = ()

    assert type(from_spec(Log, to_spec(Log()), {Log: OtherLog, Limits: Limits()})) is OtherLog


def test_none_and_error_codes_are_strings_of_the_spec() -> None:
    assert to_spec((None, ErrorCode.NONE)) == ("none", "NONE")
    assert from_spec(str | None, "none") is None
    assert from_spec(ErrorCode, "NONE") is ErrorCode.NONE


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, True),
        (bool, 1),
        (int, "1"),
        (str, 1),
        (ErrorCode, "NO_SUCH_ERROR"),
        (ErrorCode, 45),
        (frozenset[int], (1, 2)),
        (frozenset[int], 1),
        (tuple[int, ...], frozenset({1})),
        (tuple[int, ...], Map({0: 1})),
        (PVector[int], frozenset({1})),
        (Map[int, int], 3),
        (Map[int, int], frozenset({1})),
        (Seat, Map({"rowNumber": 1})),
        (Seat, Map({"rowNumber": 1, "isTaken": True, "price": 2})),
        (Seat, Map({"rowNumber": 1, "taken": True})),
        (Seat, (1, True)),
        (float, 1.0),
        (str | None, 3),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused(hint: Any, value: SpecValue) -> None:
    with pytest.raises(TypeError):
        from_spec(hint, value)


def test_a_value_without_tla_form_is_refused() -> None:
    with pytest.raises(TypeError, match="no TLA\\+ value for float"):
        to_spec(1.5)


@given(st.lists(st.from_regex(r"[a-z]+", fullmatch=True), min_size=1, max_size=4))
def test_a_name_comes_back_from_the_case_of_the_spec(parts: list[str]) -> None:
    name = "_".join(parts)
    assert snake_case(camel_case(name)) == name or any(len(part) == 1 for part in parts[1:])
    assert snake_case(camel_case(name, capital=True)) == name or any(len(part) == 1 for part in parts)


def test_names_are_the_ones_that_the_specs_use() -> None:
    assert snake_case("nextProducerId") == "next_producer_id"
    assert snake_case("MaxInFlight") == "max_in_flight"
    assert camel_case("max_in_flight", capital=True) == "MaxInFlight"
    assert camel_case("high_watermark") == "highWatermark"
