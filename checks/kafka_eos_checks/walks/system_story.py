"""A run of the whole system as a sequence diagram: processes, coordinators, partitions, and the faults between them."""

from collections.abc import Iterator

from kafka_eos.errors import ErrorCode
from kafka_eos_checks.drawing.sequence_diagram import Kind, Role, Step, Violation, from_story
from kafka_eos_checks.walks.served_application import GROUP, INPUT, OUTPUT, Application, Ask, Heard, To

ROUTINE = frozenset({"Fetch", "OffsetFetch", "ConsumerGroupHeartbeat"})
"""The requests that are drawn only if they are lost or refused."""

COORDINATOR, READER, TIME = "transaction coordinators", "reader", "time"


class Silence:
    """The story of a run that is not drawn: nothing is kept."""

    def asked(self, application: Application, ask: Ask, fate: str) -> None:
        """A request, and what the network does with it."""

    def answered(self, application: Application, ask: Ask, fate: str, answer: Heard) -> None:
        """The answer to a request that has arrived."""

    def late(self, application: Application, ask: Ask) -> None:
        """A copy of a request that the network has kept arrives."""

    def happens(self, where: str, what: str, kind: Kind = Kind.EVENT, role: Role = Role.CLIENT) -> None:
        """An event in one place."""


class Story(Silence):
    """The diagram of a run; it grows as the run goes on."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._roles = {COORDINATOR: Role.COORDINATOR, f"group {GROUP}": Role.COORDINATOR}

    def asked(self, application: Application, ask: Ask, fate: str) -> None:
        """An arrow, which does not arrive if the request is lost."""
        if fate or ask.api not in ROUTINE:
            note = f"epoch {ask.row['ProducerEpoch']}" if "ProducerEpoch" in ask.row else ""
            kind = Kind.LOST if fate == "lose request" else Kind.MESSAGE
            self._steps.append(Step(application.name, self._target(ask), _label(ask), kind, note))

    def answered(self, application: Application, ask: Ask, fate: str, answer: Heard) -> None:
        """An arrow back if the answer is lost or an error."""
        error = next(_errors(answer), None)
        if fate == "lose answer":
            self._steps.append(Step(self._target(ask), application.name, f"answer to {_label(ask)}", Kind.LOST))
        elif error is not None:
            self._steps.append(Step(self._target(ask), application.name, f"{_label(ask)}: {error.name}", Kind.REFUSED))

    def late(self, application: Application, ask: Ask) -> None:
        """Draw the duplicate as an arrow."""
        self._steps.append(Step(application.name, self._target(ask), f"late copy of {_label(ask)}"))

    def happens(self, where: str, what: str, kind: Kind = Kind.EVENT, role: Role = Role.CLIENT) -> None:
        """Draw the event as a box."""
        self._roles.setdefault(where, role)
        self._steps.append(Step(where, label=what, kind=kind))

    def drawn(self, wrong: str) -> str:
        """The diagram as SVG, with what went wrong at its end; "" if nothing is to be drawn."""
        if not self._steps:
            return ""
        return from_story(self._steps, Violation(len(self._steps) - 1, wrong) if wrong else None, self._roles)

    def _target(self, ask: Ask) -> str:
        if ask.to is To.TRANSACTIONS:
            return COORDINATOR
        if ask.to is To.GROUPS:
            return f"group {GROUP}"
        name = f"{INPUT if ask.to is To.SOURCE else OUTPUT}-{ask.partition}"
        self._roles.setdefault(name, Role.PARTITION)
        return name


def _label(ask: Ask) -> str:
    """The request, with what it decides."""
    if ask.api == "EndTxn":
        return f"EndTxn({'commit' if ask.row['Committed'] else 'abort'})"
    if ask.api == "TxnOffsetCommit":
        [topic] = ask.row["Topics"]
        [part] = topic["Partitions"]
        return f"TxnOffsetCommit({topic['Name']}-{part['PartitionIndex']}: {part['CommittedOffset']})"
    return ask.api


def _errors(answer: object) -> Iterator[ErrorCode]:
    """The errors of an answer, those of its parts too."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("ErrorCode") and value != ErrorCode.NONE:
                yield ErrorCode(value)
            else:
                yield from _errors(value)
    elif isinstance(answer, list):
        for part in answer:
            yield from _errors(part)
