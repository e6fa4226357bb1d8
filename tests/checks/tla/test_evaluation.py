"""The operators of TLA+ on values: what each gives, and where it has no value."""

from dataclasses import dataclass
from enum import Enum

import pytest
from immutables import Map
from pyrsistent import pvector

from kafka_eos_checks.tla import evaluation
from kafka_eos_checks.tla.evaluation import Converter, Undefined


def test_a_sequence_is_a_function_from_one_on() -> None:
    assert evaluation.pairs_of(("a", "b")) == {1: "a", 2: "b"}
    assert evaluation.merged(("a", "b"), Map({2: "c", 3: "d"})) == ("a", "b", "d")
    assert evaluation.merged(Map({0: "z"}), ("a",)) == Map({0: "z", 1: "a"})
    assert set(evaluation.domain(("a", "b"))) == {1, 2}
    assert evaluation.changed(("a", "b"), (2,), lambda at: at + "!") == ("a", "b!")


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Thing:
    name: str
    colours: frozenset[Colour]
    owner: str | None = None


@dataclass(frozen=True)
class Kept:
    last_one: int


def test_a_value_of_the_reference_has_one_value_of_the_spec() -> None:
    value = {1: Thing("a", frozenset({Colour.RED})), 2: pvector([1, True]), 3: Kept(7)}
    convert = Converter()
    found = convert(value)
    assert found == (Map(name="a", colours=frozenset({"RED"}), owner=evaluation.NONE), (1, True), Map(lastOne=7))
    assert convert(dict(value)) is found
    assert convert.copy()(value) is found
    with pytest.raises(TypeError, match="no TLA\\+ value for object"):
        convert(object())


def test_parts_of_sequences() -> None:
    assert evaluation.head(("a", "b")) == "a"
    assert evaluation.append(("a",), "b") == ("a", "b")
    assert evaluation.subsequence(("a", "b", "c"), 2, 3) == ("b", "c")
    assert evaluation.subsequence(("a", "b", "c"), 3, 2) == ()
    assert evaluation.selected((1, 2, 3), lambda x: x != 2) == (1, 3)
    with pytest.raises(Undefined):
        evaluation.head(())


def test_sets_of_sets_and_of_functions() -> None:
    assert set(evaluation.subsets((1, 2))) == {frozenset(), frozenset({1}), frozenset({2}), frozenset({1, 2})}
    assert set(evaluation.functions((1, 2), ("a", "b"))) == {("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")}
    assert evaluation.union((frozenset({1}), frozenset({2, 3}))) == frozenset({1, 2, 3})
    assert evaluation.choose(iter(("a", "b"))) == "a"
    with pytest.raises(Undefined):
        evaluation.choose(iter(()))
