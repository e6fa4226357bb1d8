"""The waits before a failed operation is tried again."""

from kafka_eos_checks.watch.backoff import BackOff


def test_the_wait_is_half_a_minute_at_most_however_long_an_attempt_takes() -> None:
    back_off = BackOff()
    for _ in range(6):
        back_off.failed(0, "gone", 20_000)
    assert (back_off.wait_ms, back_off.until_ms, back_off.in_words()) == (30_000, 50_000, "every 30 s")
