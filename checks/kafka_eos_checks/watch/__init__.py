"""Watch: the rules of exactly-once over a running cluster, while it is written to.

``state`` folds the batch headers that a partition's leader gives. ``cluster`` asks brokers and coordinators.
``watcher`` does both in turn. ``reports`` and ``advice`` have its messages, ``blindness`` those about what it cannot
see. ``journal`` keeps state and reports, so that a restart neither loses nor repeats a report. ``metrics`` has gauges.
"""
