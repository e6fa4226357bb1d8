"""Watch: the rules of exactly-once over a running cluster, while it is written to.

``state`` folds what a partition's leader gives, batch headers only, ``cluster`` asks brokers and coordinators,
``watcher`` does both in turn, ``reports`` and ``advice`` are what it says, ``journal`` keeps state and reports so that
a restart neither loses nor repeats one.
"""
