"""``kafka-eos simulate``: the reference under named failures, and applications crashed before every step.

Read ``named_failures`` first.
"""
