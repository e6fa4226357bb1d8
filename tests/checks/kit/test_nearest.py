from kafka_eos_checks.kit.nearest import did_you_mean


def test_a_near_word_is_suggested_and_a_far_one_is_not() -> None:
    assert did_you_mean("auditt", ["explain", "audit", "watch"]) == "; did you mean audit?"
    assert did_you_mean("sing", ["explain", "audit", "watch"]) == ""
    assert did_you_mean("sing", []) == ""
