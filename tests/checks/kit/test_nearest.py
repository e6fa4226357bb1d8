from kafka_eos_checks.kit.nearest import did_you_mean


def test_the_nearest_known_word_is_asked_for_and_a_far_one_is_not() -> None:
    assert did_you_mean("auditt", ["explain", "audit", "watch"]) == "; did you mean audit?"
    assert did_you_mean("sing", ["explain", "audit", "watch"]) == ""
    assert did_you_mean("sing", []) == ""
