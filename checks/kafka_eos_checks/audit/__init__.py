"""``kafka-eos audit``: the rules of exactly-once over log directories and histories, in process or on Spark.

Top modules: commands (``command``, ``explain``, ``headers_command``), the call (``audit``), Spark's data source
``kafka_log`` (``source``), and what every room uses: inputs, places of files, moments of copies, findings.
Rooms, lowest first: ``segments``, ``internal_topics``, ``events`` and ``jepsen`` read; ``rules`` judge; ``kernels``
prove; ``engines`` run a ``plan``; ``oracle`` compares; ``tables`` feed the data source. Read ``audit``, ``rules/log``.
"""
