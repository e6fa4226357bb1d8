"""The reader of EDN: its values, where they begin, and what it refuses."""

import contextlib
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos_checks.audit.jepsen.edn import DEEPEST, MalformedEdn, Name, read_forms


def forms(text: str) -> list[Any]:
    return [form for _, form in read_forms(text)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nil", None),
        ("true", True),
        ("-17", -17),
        ("17N", 17),
        ("0", 0),
        ("1.5M", 1.5),
        ("2e3", 2000.0),
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("-1/2", Fraction(-1, 2)),
        ("##-Inf", float("-inf")),
        (":a.b/c", ":a.b/c"),
        ("seq->x!", "seq->x!"),
        (r'"a\"b\\n\nA"', 'a"b\\n\nA'),
        (r'"\uD83D\uDE00\uD83D"', "\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}"),
        (r"\a", "a"),
        (r"\newline", "\n"),
        ('{:a [1 (2)], "b" #{3}}', {":a": (1, (2,)), "b": frozenset({3})}),
        ("{{:a 1} 2}", {frozenset({(":a", 1)}): 2}),
        ("#jepsen.history.Op{:index 0}", {":index": 0}),
        ('#object[java.lang.Object 0x1f "x"]', ("java.lang.Object", 31, "x")),
        ("{:a #_ #_ {} 1 2}", {":a": 2}),
        ("{:a 1 #_:b #_2}", {":a": 1}),
    ],
)
def test_a_value_is_what_edn_says(text: str, value: object) -> None:
    [read] = forms(text)
    assert read == value
    assert type(read) is type(value) or isinstance(read, Name)


def test_forms_come_with_their_positions_and_comments_are_skipped() -> None:
    assert list(read_forms("{:a 1}\n; not this {\n  {:a 2},\n#_ {:a 3} {:a 4}")) == [
        (0, {":a": 1}),
        (22, {":a": 2}),
        (40, {":a": 4}),
    ]


@pytest.mark.parametrize("text", ["[{:a 1} {:a 2}]", "({:a 1}\n{:a 2})", "{:a 1}{:a 2}"])
def test_a_vector_or_list_that_is_the_whole_text_gives_its_elements(text: str) -> None:
    assert forms(text) == [{":a": 1}, {":a": 2}]


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("[1", 2, "']' is missing"),
        ("1]", 1, "']' closes nothing"),
        ("{1 [2)}", 5, "')' closes nothing"),
        ("{1 [2", 3, "'[' is not closed"),
        ("[1] 2", 4, "'2' follows the vector or list that has to be the whole text"),
        ("{:a}", 0, "a map has a key without a value"),
        ("{:a 1 :a 2}", 0, "a map has a key twice"),
        ("#{1 1}", 0, "a set has something twice"),
        ('"abc', 0, "'\"' begins nothing"),
        (r'"\q"', 1, r"'\\q' is no escape sequence"),
        (r"\nothing", 0, "'nothing' is no character"),
        ("007", 0, "'007' is no keyword, symbol or number"),
        ("0" * 30, 0, f"'{'0' * 20}' is no keyword, symbol or number"),
        ("1/0", 0, "'1/0' is no keyword, symbol or number"),
        (":", 0, "':' is no keyword, symbol or number"),
        ("[0.5 1e400]", 5, "'1e400' is too large a number for a double"),
        ("-1e500M", 0, "'-1e500M' is too large a number for a double"),
        ("9" * 400 + ".0", 0, f"'{'9' * 20}' is too large a number for a double"),
        ("#_", 0, "'#_' is not closed"),
        ("9" * 5000, 0, "a number of 5000 digits"),
        ("[" * 100_000, DEEPEST + 1, f"deeper than {DEEPEST} levels"),
        ("#a " * 1_000, 3 * DEEPEST, f"deeper than {DEEPEST} levels"),
    ],
)
def test_text_that_is_no_edn_is_refused_with_its_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(MalformedEdn) as error:
        forms(text)
    assert (error.value.position, error.value.reason) == (position, reason)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text() | st.from_regex(r":[a-z]{1,5}", fullmatch=True).map(Name)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner).map(tuple) | st.dictionaries(st.integers(), inner), max_leaves=20
)


def written(value: object) -> str:
    """A value as Clojure prints it."""
    match value:
        case None | bool():
            return {None: "nil", True: "true", False: "false"}[value]
        case Name() | int():
            return str(value)
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case tuple():
            return f"[{' '.join(map(written, value))}]"
        case dict():
            return f"{{{', '.join(f'{written(key)} {written(each)}' for key, each in value.items())}}}"
    raise AssertionError(value)


@given(VALUES)
def test_what_is_written_is_read(value: object) -> None:
    assert forms(f"[{written(value)}]") == [value]


@given(st.text(alphabet='[](){}#_"\\;: \n,a1/.-N'))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(MalformedEdn):
        assert all(0 <= position < len(text) for position, _ in read_forms(text))
