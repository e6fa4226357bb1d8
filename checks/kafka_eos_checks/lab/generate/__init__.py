"""``kafka-eos lab generate``: logs of any size, with violations at known places."""
