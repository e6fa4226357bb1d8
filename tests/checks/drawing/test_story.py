from immutables import Map

from kafka_eos_checks.drawing.story import Step, differences, tell


def test_only_what_changed_is_told_as_deep_as_it_can_be_named() -> None:
    before = {"log": (Map(epoch=0),), "known": Map({7: Map(epoch=0, last=1)}), "total": 1}
    after = {"log": (Map(epoch=0), Map(epoch=1)), "known": Map({7: Map(epoch=1, last=1)}), "total": 1}
    assert [str(change) for change in differences(before, after)] == [
        "log[2]: absent -> [epoch |-> 1]",
        "known[7].epoch: 0 -> 1",
    ]


def test_sets_gain_and_lose_elements() -> None:
    changes = differences({"s": frozenset({1, 2})}, {"s": frozenset({2, 3})})
    assert [str(change) for change in changes] == ["s loses 1", "s gains 3"]


def test_changes_come_in_the_order_of_their_places_whatever_the_hashes_are() -> None:
    names = ["instance", "leader", "partition", "replica", "transaction"]
    before, after = Map(dict.fromkeys([10, 2, *names], 0)), Map(dict.fromkeys([2, *names], 1))
    changes = differences({"x": before}, {"x": after})
    assert [change.path for change in changes] == ["x[2]", "x[10]", *(f'x["{name}"]' for name in names)]


def test_true_is_not_one() -> None:
    assert [str(change) for change in differences({"x": 1}, {"x": True})] == ["x: 1 -> TRUE"]


def test_a_story_has_a_line_for_each_step_and_says_how_it_ends() -> None:
    steps = [Step("Init", {"x": 0}), Step("Add(1)", {"x": 1}), Step("Skip", {"x": 1})]
    assert tell(steps, "It stops.").splitlines() == [
        "   1  Init",
        "       x = 0",
        "   2  Add(1)",
        "       x: 0 -> 1",
        "   3  Skip",
        "       nothing changes",
        "It stops.",
    ]


def test_a_behaviour_without_end_says_where_it_goes_back_to() -> None:
    steps = [Step("Init", {"x": 0}), Step("Add", {"x": 1})]
    assert "and again from step 1" in tell(steps, loop_to=1)
    assert "and so for ever" in tell(steps, loop_to=2)
