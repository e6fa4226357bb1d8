"""The state machines: one file for each TLA+ module, with the module's name in snake case.

A machine is a frozen value with one method per action; no clock, no randomness, no files, no sockets. ``machine`` says
how one is written, ``explorer`` searches its states, ``spec_mapping`` turns its values into TLA+ values and back.
``read_committed`` has the rules of the aborted index that leaders and readers share.

Read ``partition_log`` first, next to ``spec/PartitionLog.tla``.
"""
