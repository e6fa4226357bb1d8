import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from kafka_eos_checks.tla.evaluation import Undefined, apply
from kafka_eos_checks.tla.values import (
    MalformedValue,
    ValueMemo,
    canonical,
    format_value,
    parse_state,
    parse_value,
)

atoms = st.one_of(st.integers(), st.booleans(), st.text(alphabet='ab"\\\n\t {}<>', max_size=6))
names = st.from_regex(r"[a-z][A-Za-z0-9]{0,5}", fullmatch=True)
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.dictionaries(names, inner, max_size=3).map(Map),
        st.dictionaries(st.integers(), inner, max_size=3).map(Map),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-12", -12),
        ("TRUE", True),
        ('"a\\"b"', 'a"b'),
        ("<<>>", ()),
        ("{}", frozenset()),
        ("1..3", frozenset({1, 2, 3})),
        ("<< [a |-> 1, b |-> {2}],\n   [b |-> {}, a |-> 0] >>", (Map(a=1, b=frozenset({2})), Map(a=0, b=frozenset()))),
        ("(0 :> <<1>> @@ 5 :> <<>>)", Map({0: (1,), 5: ()})),
    ],
)
def test_a_value_is_read_as_tlc_prints_it(text: str, value: object) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<<1, 2", "expected"),
        ("[a -> 1]", "begins no token"),
        ("p1", "is a model value; write the string 'p1'"),
        ("1 2", "expected the end, found '2'"),
        ("", "expected a value, found the end"),
        ("(1 |-> 2)", "expected ':>'"),
        ("(1 , 2)", "expected ':>'"),
        ('(1 ":>" 2)', "expected ':>'"),
        ("{1 )", "expected ','"),
        ("[a |-> 1 >> b |-> 2]", "expected ','"),
    ],
)
def test_a_text_that_is_no_value_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(MalformedValue, match=r"at character \d+") as caught:
        parse_value(text)
    assert reason in str(caught.value)


@given(values)
def test_a_written_value_is_read_back_unchanged(value: object) -> None:
    assert canonical(parse_value(format_value(value))) == canonical(value)


def test_equal_values_have_one_text() -> None:
    assert format_value(Map(b=1, a=frozenset({3, 1}))) == format_value(Map(a=frozenset({1, 3}), b=1))
    assert format_value(frozenset({10, 9, -1, "a", (0,)})) == '{-1, 9, 10, "a", <<0>>}'


def test_a_function_over_one_to_n_equals_the_sequence() -> None:
    assert canonical(Map({1: "a", 2: Map()})) == ("a", ())
    assert canonical(Map({2: "a"})) == Map({2: "a"})


def test_a_state_is_read_whatever_the_order_of_its_variables_and_however_long_they_are() -> None:
    text = '/\\ log = << [client |-> "a"],\n   [client |-> "b"] >>\n/\\ total = 3\n'
    assert parse_state(text, ValueMemo()) == {"log": (Map(client="a"), Map(client="b")), "total": 3}
    assert parse_state("total = 3", ValueMemo()) == {"total": 3}


def test_a_text_without_variables_is_no_state() -> None:
    with pytest.raises(MalformedValue, match="no variable"):
        parse_state("nothing", ValueMemo())


def test_a_text_is_parsed_once() -> None:
    memo = ValueMemo()
    assert memo.parse("<<1>>") is memo.parse("<<1>>")
    assert len(memo) == 1


def test_a_long_text_that_is_no_value_is_shown_by_its_beginning() -> None:
    with pytest.raises(MalformedValue, match=r"at character 0 of '\?a{116}\.\.\.'"):
        parse_value("?" + "a" * 200)
    with pytest.raises(MalformedValue, match=r"at character 0 of '\?a{119}'"):
        parse_value("?" + "a" * 119)
    with pytest.raises(MalformedValue, match=r"at character 0 of '\?a{116}\.\.\.'"):
        parse_value("?" + "a" * 120)
    with pytest.raises(MalformedValue, match=r"at character 0 of '\?a{10}'"):
        parse_value("?" + "a" * 10)


@pytest.mark.parametrize("argument", [0, 3, True, "a"])
def test_a_sequence_has_no_value_outside_of_its_places(argument: int | str) -> None:
    assert [apply(("x", "y"), place) for place in (1, 2)] == ["x", "y"]
    with pytest.raises(Undefined, match=r"is outside of 1\.\.2"):
        apply(("x", "y"), argument)
