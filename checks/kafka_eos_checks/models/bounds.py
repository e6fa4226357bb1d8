"""The Python twins of the operators in ``spec/bounds``: how far a search goes.

One function an operator, named for module and operator: ``PartitionLog`` and ``Bounds`` are ``partition_log_bounds``.
It takes a state and the model's constants by their TLA+ names. Graph equality compares each with TLC's on every state.
"""

from collections.abc import Mapping

from kafka_eos.machines.broker import Broker
from kafka_eos.machines.consumer import Consumer
from kafka_eos.machines.leader import Leader
from kafka_eos.machines.mirror import Mirror
from kafka_eos.machines.partition_log import PartitionLog
from kafka_eos.machines.spec_mapping import SpecValue
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos.machines.transactions import Transactions


def broker_bounds(state: Broker, constants: Mapping[str, SpecValue]) -> bool:
    """Few entries, transactions and changes of a group, and as many producer ids as requests can carry."""
    return (
        all(len(each.log.entries) <= int(constants["MaxEntries"]) for each in state.partitions.values())
        and all(known.number <= int(constants["MaxTransactions"]) for known in state.coordinators.values())
        and state.allocated <= len(constants["ProducerIds"])
        and state.membership.epoch <= int(constants["MaxGroupEpoch"])
    )


def consumer_read_after_election(state: Consumer, constants: Mapping[str, SpecValue]) -> bool:
    """The log is full, of transactions that markers end, before anything else happens to it.

    Then another replica leads, and the reader begins.
    """
    entries = state.log.entries
    if any(entry.is_marker and not state.batches_ended_by(entry) for entry in entries):
        return False
    full = len(entries) + 1 == len(constants["Offsets"])
    begun = state.high_watermark > 0 or state.leader_epoch > 0
    return (full or not begun) and (state.leader_epoch > 0 or not any(state.positions.values()))


def leader_bounds(state: Leader, constants: Mapping[str, SpecValue]) -> bool:
    """At most ``MaxEntries`` batches and markers in the log."""
    return len(state.leader.log.entries) <= int(constants["MaxEntries"])


def mirror_bounds(state: Mirror, constants: Mapping[str, SpecValue]) -> bool:
    """At most one record is in the target a second time."""
    return len(state.target) <= len(constants["Records"]) + 1


def partition_log_bounds(state: PartitionLog, constants: Mapping[str, SpecValue]) -> bool:
    """At most ``MaxEntries`` batches in the log."""
    return len(state.log.entries) <= int(constants["MaxEntries"])


def transaction_coordinator_bounds(state: TransactionCoordinator, constants: Mapping[str, SpecValue]) -> bool:
    """At most ``MaxTransactions`` transactions, and as many producer ids as requests can carry."""
    numbers = (state.metadata.number, state.appending.record.number)
    return max(numbers) <= int(constants["MaxTransactions"]) and state.allocated <= len(constants["ProducerIds"])


def transactions_upgraded_after_first(state: Transactions, constants: Mapping[str, SpecValue]) -> bool:  # noqa: ARG001
    """A client speaks version 1 in its first transaction only."""
    return all(client.version != 1 or client.number <= 1 for client in state.clients.values())
