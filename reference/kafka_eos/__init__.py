"""Apache Kafka's exactly-once semantics as executable state machines.

Each machine mirrors one TLA+ module of ``spec/``: ``PartitionLog.tla`` is ``machines/partition_log.py``, the action
``AppendBatch`` is the method ``append_batch``, and the variables have the same names. The machines are pure: no input,
no output, no clock, no randomness. ``formats`` has bytes on disk, ``wire`` bytes on the network, ``histories`` recorded
events, ``server`` a cluster around the machines.
"""
