"""``kafka-eos audit``: the rules of exactly-once over log directories and histories, in process or on Spark.

``kernels`` turn bytes into columns, ``rules`` say what must hold, ``local`` and ``spark`` run them, ``jepsen`` reads
Jepsen's histories, ``source`` is Spark's data source ``kafka_log``, for which ``folded`` makes rows of transactions and
committed offsets, ``explain`` draws what led to a finding.

Read ``audit``, then ``rules/log``.
"""
