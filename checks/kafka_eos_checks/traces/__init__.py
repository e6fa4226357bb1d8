"""Trace validation: TLC and the reference check that recorded and simulated runs are behaviours of the spec.

``coordinators`` and ``leaders`` turn logs into traces; ``markers`` says which marker is of which decision. ``scan`` and
``replays`` do so piece by piece for logs of any size, in process or on Spark (``spark``); only the reference judges
these.

Read ``validation`` first.
"""
