"""Trace validation: recorded and simulated runs are behaviours of the spec, for TLC and for the reference.

``coordinators`` and ``leaders`` turn logs into traces. ``scan`` and ``replays`` do so piece by piece for logs of any
size, in process or on Spark (``spark``), and let the reference alone judge.

Read ``validation`` first.
"""
