import pytest
from immutables import Map

from kafka_eos_checks.drawing.story import WIDTH, differences, in_words, tell
from kafka_eos_checks.drawing.story_words import Words
from kafka_eos_checks.tla.behaviour import Step

WORDS = Words(
    sentences={"Add": "A client adds to the counter."},
    parameters={"Add": ("client", "amounts")},
    variables={"total": "the sum of what was added", "log": ""},
)


def changes(old: object, new: object) -> list[str]:
    """The text of a story between two values of a variable x."""
    lines = tell([Step("Init", {"x": old}), Step("Go", {"x": new})]).splitlines()  # type: ignore[dict-item]
    return [line.strip() for line in lines[lines.index("   1  Go") + 1 :]]


def test_only_the_innermost_named_changes_are_shown() -> None:
    before = {"log": (Map(epoch=0),), "known": Map({7: Map(epoch=0, last=1)}), "total": 1}
    after = {"log": (Map(epoch=0), Map(epoch=1)), "known": Map({7: Map(epoch=1, last=1)}), "total": 1}
    assert [str(change) for change in differences(before, after)] == [
        "log gains [epoch |-> 1]",
        "known[7].epoch: 0 -> 1",
    ]


def test_sets_gain_and_lose_elements() -> None:
    changes = differences({"s": frozenset({1, 2})}, {"s": frozenset({2, 3})})
    assert [str(change) for change in changes] == ["s loses 1", "s gains 3"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ((1, 2), (1, 2, 3), ["x gains 3"]),
        ((1, 2, 3), (2, 3), ["x loses 1"]),
        ((1, 2, 3), (1,), ["x loses 2", "x loses 3"]),
        ((1, 2), (1, 3), ["x[2]: 2 -> 3"]),
        ((1, 2, 3), (3, 1), ["x: [1, 2, 3] -> [3, 1]"]),
        ((), (Map(a=1),), ["x gains (a 1)"]),
    ],
)
def test_a_sequence_gains_and_loses_at_its_ends(old: object, new: object, told: list[str]) -> None:
    assert changes(old, new) == told


def test_the_short_changes_of_one_record_share_a_line() -> None:
    old = Map(state="EMPTY", epoch=0, partitions=frozenset(), entries=())
    new = Map(state="ONGOING", epoch=1, partitions=frozenset({"p"}), entries=(Map(offset=0),))
    assert changes(old, new) == [
        "x.entries gains (offset 0)",
        "x: epoch 0 -> 1, partitions gains p, state EMPTY -> ONGOING",
    ]


def test_added_and_removed_elements_are_named_as_such() -> None:
    assert changes(Map({0: 1}), Map({0: 1, 7: 2})) == ["x[7] is new: 2"]
    assert changes(Map({0: 1, 7: 2}), Map({0: 1})) == ["x[7] is gone; it was 2"]


def test_changes_come_in_the_order_of_their_places_whatever_the_hashes_are() -> None:
    names = ["instance", "leader", "partition", "replica", "transaction"]
    before, after = Map(dict.fromkeys([10, 2, *names], 0)), Map(dict.fromkeys([2, *names], 1))
    changes = differences({"x": before}, {"x": after})
    assert [change.path for change in changes] == ["x[2]", "x[10]", *(f'x["{name}"]' for name in names)]


def test_true_is_not_one() -> None:
    assert [str(change) for change in differences({"x": 1}, {"x": True})] == ["x: 1 -> TRUE"]


def test_values_are_shown_without_tla_punctuation() -> None:
    value = Map(ok=True, ids=frozenset({"b", "a"}), log=(1, Map({3: "x"})))
    assert in_words(value) == "(ids {a, b}, log [1, (3: x)], ok yes)"


def test_a_step_is_shown_by_its_sentence_its_arguments_and_its_changes() -> None:
    steps = [
        Step("Init", {"log": (), "total": 0}),
        Step('Add("a", {1, 2})', {"log": ("a",), "total": 3}),
        Step("Reset", {"log": ("a",), "total": 0}),
        Step("Skip", {"log": ("a",), "total": 0}),
    ]
    assert tell(steps, "It stops.", words=WORDS).splitlines() == [
        "   0  At the start",
        "        total: 0",
        "        empty: log",
        "   1  A client adds to the counter.",
        "      Add(client a, amounts {1, 2})",
        "        total: 0 -> 3",
        "          (total: the sum of what was added)",
        "        log gains a",
        "   2  Reset",
        "        total: 3 -> 0",
        "   3  Skip",
        "        nothing changes",
        "It stops.",
    ]


def test_arguments_that_cannot_be_named_are_left_as_they_are() -> None:
    steps = [Step("Init", {"x": 0}), Step("Add(1)", {"x": 1}), Step("Add(a b)", {"x": 2}), Step("Add", {"x": 3})]
    assert [line.strip() for line in tell(steps, words=WORDS).splitlines() if "Add" in line] == [
        "Add(1)",
        "Add(a b)",
        "Add",
    ]


def test_long_lines_are_folded() -> None:
    told = tell([Step("Init", {"x": tuple(range(200))})])
    assert max(map(len, told.splitlines())) <= WIDTH
    assert "199" in told


def test_an_infinite_behaviour_names_the_state_it_returns_to() -> None:
    steps = [Step("Init", {"x": 0}), Step("Add", {"x": 1})]
    assert "and again from step 1" in tell(steps, loop_to=1)
    assert "and then nothing more happens" in tell(steps, loop_to=2)
