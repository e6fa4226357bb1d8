"""The Python twins of the operators in ``spec/bounds``: how far a search goes.

One function an operator, named for module and operator: ``PartitionLog`` and ``Bounds`` are ``partition_log_bounds``.
It takes a state and the model's constants by their TLA+ names. Graph equality compares each with TLC's on every state.
"""

from collections.abc import Mapping

from kafka_eos.partition_log import PartitionLog
from kafka_eos.spec_mapping import SpecValue


def partition_log_bounds(state: PartitionLog, constants: Mapping[str, SpecValue]) -> bool:
    """At most ``MaxEntries`` batches in the log."""
    return len(state.log.entries) <= int(constants["MaxEntries"])
