"""Named failures of transactions as scripts: each step is an action of ``Transactions``, and nothing is left to chance.

A script is the same for every transaction version; a failure that the version cures does not happen in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_eos.histories.simulator import Taken
from kafka_eos.machines.machine import Instance, actions, step
from kafka_eos.machines.transactions import Constants, Transactions
from kafka_eos_checks.audit.rules.histories import UNASKED
from kafka_eos_checks.audit.rules.readers import ABORTED_DELIVERED, COMMITTED_MISSING
from kafka_eos_checks.audit.rules.transactions.names import HANGING, TORN

A, B = "A", "B"
ONE, TWO = "p0", "p1"


class Script:
    """A run that is written down step by step.

    Args:
        constants: the machine's constants.

    Attributes:
        state: the last state.
        steps: the steps so far.
    """

    def __init__(self, constants: Constants) -> None:
        self.state = Transactions.initial(constants)
        self.steps: list[Taken[Transactions]] = []
        self._actions = {action.name: action for action in actions(Transactions)}
        self._version = min(constants.versions)

    def do(self, name: str, *arguments: str | int | bool) -> None:
        """Take one action.

        Raises:
            NotEnabled: it cannot be taken, so that the script is no run of the machine.
        """
        instance = Instance(self._actions[name], arguments)
        after = step(self.state, instance)
        self.steps.append(Taken(self.state, instance, after))
        self.state = after

    def initialize(self, instance: str) -> None:
        """An instance gets its epoch; the transaction of the one before it is ended first."""
        while self.state.clients[instance].state == "new":
            self.do("Initialize", instance, self._version)
            self.do("HandleInit", instance)
            self.do("Receive", instance)
            self.complete()

    def register(self, instance: str, partition: str) -> None:
        """Before version 2 an instance registers a partition itself."""
        if self._version == 1:
            self.do("AddPartition", instance, partition)
            self.do("HandleAdd", instance, self.state.clients[instance].number, partition)
            self.do("Receive", instance)

    def deliver(self, instance: str, number: int, partition: str) -> None:
        """A batch that was sent arrives, and is appended unless someone refuses it."""
        batch = (instance, number, partition)
        if not self.state.needs_guard(self._version):
            self.do("AppendUnverified", *batch)
            return
        self.do("StartVerification", *batch, False)
        if self.state.verifying:
            self.do("Verify", *batch)
        if self.state.verified:
            self.do("AppendVerified", *batch)

    def write(self, instance: str, partition: str) -> None:
        """An instance sends a batch, and it is acknowledged."""
        self.register(instance, partition)
        self.do("Produce", instance, partition)
        self.deliver(instance, self.state.clients[instance].number, partition)
        self.do("Receive", instance)

    def mark(self, partition: str, repeated: bool = False) -> None:
        """A partition gets its marker; the network may keep a copy."""
        self.do("SendMarker", partition)
        marker = self.state.marker_to(partition)
        arguments = (partition, marker.version, marker.epoch, marker.commit, marker.coordinator_epoch)
        if repeated:
            self.do("RepeatMarker", *arguments, True)
        else:
            self.do("HandleMarker", *arguments)

    def complete(self) -> None:
        """Write the missing markers of a decided transaction, and close it."""
        if self.state.is_prepared():
            for partition in sorted(self.state.to_mark):
                self.mark(partition)
            self.do("CompleteTransaction")

    def end(self, instance: str, commit: bool) -> None:
        """An instance ends its transaction, and learns its outcome."""
        self.do("End", instance, commit)
        self.do("HandleEnd", instance, self.state.clients[instance].number, commit, False)
        self.complete()
        self.do("Receive", instance)


def late_end_of_transaction(script: Script) -> None:
    """A delayed duplicate of the EndTxn of a committed transaction comes in the next one, which is to be aborted."""
    script.initialize(A)
    script.write(A, ONE)
    script.do("End", A, True)
    script.do("HandleEnd", A, 1, True, True)
    script.complete()
    script.do("Receive", A)
    script.write(A, ONE)
    script.do("HandleEnd", A, 1, True, False)
    script.complete()
    script.write(A, TWO)
    script.end(A, False)


def late_marker(script: Script) -> None:
    """A delayed duplicate of the marker of an aborted transaction comes in the next one, which is to be committed."""
    script.initialize(A)
    script.write(A, ONE)
    script.do("End", A, False)
    script.do("HandleEnd", A, 1, False, False)
    script.mark(ONE, repeated=True)
    [copy] = script.state.marker_requests
    script.complete()
    script.do("Receive", A)
    script.write(A, ONE)
    script.do("HandleMarker", ONE, copy.version, copy.epoch, copy.commit, copy.coordinator_epoch)
    script.end(A, True)


def hanging_transaction(script: Script) -> None:
    """A batch of an aborted transaction comes when the markers are written."""
    script.initialize(A)
    script.register(A, ONE)
    script.do("Produce", A, ONE)
    script.do("Expire", A, False)
    script.end(A, False)
    script.deliver(A, 1, ONE)


def zombie(script: Script) -> None:
    """An instance is replaced during its transaction, and then tries to commit it."""
    script.initialize(A)
    script.write(A, ONE)
    script.initialize(B)
    script.write(B, ONE)
    script.end(A, True)
    script.end(B, True)


def coordinator_failover(script: Script) -> None:
    """The coordinator fails between PREPARE and COMPLETE; its last marker comes after its successor's."""
    script.initialize(A)
    script.write(A, ONE)
    script.write(A, TWO)
    script.do("End", A, True)
    script.do("HandleEnd", A, 1, True, False)
    script.mark(ONE)
    script.do("SendMarker", TWO)
    [late] = script.state.marker_requests
    script.do("Failover")
    script.complete()
    script.do("HandleMarker", TWO, late.version, late.epoch, late.commit, late.coordinator_epoch)
    script.do("Receive", A)


def timeout(script: Script) -> None:
    """A transaction is open for longer than its timeout, and then its application wants to commit it."""
    script.initialize(A)
    script.write(A, ONE)
    script.do("TimeOut")
    script.complete()
    script.end(A, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFailure:
    """A script, and the protocol with which it is known.

    Attributes:
        script: the steps.
        version: the transaction version of the clients.
        verification: whether leaders ask the coordinator before a transaction's first batch.
        known: where it is reported, or "".
        found: the rules of the audit that it violates there; none under version 2 with verification.
    """

    script: Callable[[Script], None]
    version: int
    verification: bool = True
    known: str = ""
    found: frozenset[str] = frozenset()


NAMED_FAILURES: Mapping[str, NamedFailure] = {
    "late-end": NamedFailure(
        script=late_end_of_transaction, version=1, known="KAFKA-17754", found=frozenset({UNASKED, ABORTED_DELIVERED})
    ),
    "late-marker": NamedFailure(
        script=late_marker, version=1, known="KIP-1228", found=frozenset({COMMITTED_MISSING, TORN})
    ),
    "hanging": NamedFailure(
        script=hanging_transaction, version=1, verification=False, known="KAFKA-12671", found=frozenset({HANGING})
    ),
    "zombie": NamedFailure(script=zombie, version=2),
    "coordinator-failover": NamedFailure(script=coordinator_failover, version=2),
    "timeout": NamedFailure(script=timeout, version=2),
}
"""By the name for ``kafka-eos simulate transactions --scenario``."""
