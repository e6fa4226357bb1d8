"""``kafka-eos audit``: the rules of exactly-once over log directories and histories, in process or on Spark.

``kernels`` turn bytes into columns, ``rules`` say what must hold. ``stages`` is the plan, which ``engines`` runs in
this process and ``spark`` on executors; ``places`` opens the files. ``jepsen`` reads Jepsen's histories. ``source`` is
Spark's data source ``kafka_log``, for which ``folded`` makes rows of transactions and committed offsets. ``explain``
draws what led to a finding.

Read ``audit``, then ``rules/log``.
"""
