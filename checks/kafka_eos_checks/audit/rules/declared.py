"""Applications that a test declares: how a history tells of them, and the refusal of declarations that nothing fits.

An application that writes no events itself is *declared* by these events. The history has its requests.

======================  ===============================================================================================
event                   what it says
======================  ===============================================================================================
``DeclareApplication``  ``group``; ``detail.everything``: it has to process every input, not only those that the
                         group's offset is past. The last declaration of a group counts.
``DeclareTopic``        ``group``, ``topic``, ``detail.role``: ``input`` or ``output``; each input has an output in each
                        topic of outputs. What an input and its outputs have in common, their *identity*, is their
                        value; or its value without the prefix ``detail.after``; or the value of
                        ``detail.field`` in a value that is JSON, ``order.id`` for a field of a field. A value without
                        such a prefix or field is its own identity. If an input has several outputs in one topic,
                        ``detail.output`` is the field that tells which one a record is.
``DeclareRecord``       ``group``, ``topic``, ``partition``, ``offset``, ``detail.identity``, and ``detail.output``:
                        which one of several outputs. If there is any, records without one are ignored, and what
                        ``DeclareTopic`` says of identities does not count.
======================  ===============================================================================================

A declaration is a question, and a question about a topic or a group that is not there has no answer: every input would
look as if it had been lost. :func:`check` refuses it, where logs and history show what is there. A declaration with
``detail.checked`` in its ``DeclareApplication`` was compared with the cluster itself, when the cluster was running.

See :mod:`kafka_eos_checks.audit.rules.applications` for the rules.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.events.recorded import DECLARATIONS, Asked
from kafka_eos_checks.audit.rules.offsets import GroupLog
from kafka_eos_checks.audit.segments.contents import Place, Replicas, longest, place_of

APPLICATION, TOPIC, RECORD = "DeclareApplication", "DeclareTopic", "DeclareRecord"
INPUT, OUTPUT = "input", "output"
FIELDS = {
    APPLICATION: ("everything",),
    TOPIC: ("role", "after", "field", "output"),
    RECORD: ("identity", "output"),
}
"""By declaration, the fields of ``detail`` that it can have; besides ``checked`` of an application."""
Found = tuple[Place, int]  # partition and offset of a record


class WrongQuestion(ValueError):  # noqa: N818 - named for the call
    """A question that no run of the application could answer; says what is wrong with it, and the remedy."""


@dataclass(slots=True)
class Declared:
    """An application as its test declares it.

    Attributes:
        group: its consumer group.
        everything: whether it has to process every input.
        checked: whether it was compared with the cluster when it was declared.
        inputs: the topics that it reads.
        outputs: the topics that it writes.
        identities: by place and offset, the identity of a record and, for one of several outputs, which it is. If
            empty, identities are read from the records' values.
        readers: by topic, the function that reads an identity from a value. Without one the value is the identity.
        which: by topic whose inputs have several outputs each, the function that reads which one a value is.
    """

    group: str
    everything: bool = True
    checked: bool = False
    inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    identities: dict[Found, tuple[str, str]] = field(default_factory=dict)
    readers: dict[str, Callable[[bytes], str]] = field(default_factory=dict)
    which: dict[str, Callable[[bytes], str]] = field(default_factory=dict)

    def identity(self, at: Found, value: bytes | None) -> tuple[str, str] | None:
        """The identity of a record, and which of several outputs it is; None for a record that no rule reads."""
        if self.identities:
            return self.identities.get(at)
        topic = at[0][0]
        which = self.which.get(topic)
        return None if value is None else (self.readers.get(topic, text_of)(value), which(value) if which else "")


def text_of(value: bytes) -> str:
    """A value as an identity; different values are different texts."""
    return value.decode(errors="backslashreplace")


def _without(beginning: str, value: bytes) -> str:
    return text_of(value).removeprefix(beginning)


def _field(path: Sequence[str], value: bytes, *, otherwise: Callable[[bytes], str] = text_of) -> str:
    """The field of a JSON value as text; where there is none, what a function makes of the value, or the value."""
    try:
        found = json.loads(value)
        for name in path:
            found = found[name]
    except (ValueError, TypeError, KeyError, RecursionError):
        return otherwise(value)
    return found if isinstance(found, str) else json.dumps(found, sort_keys=True)


def _nothing(_: bytes) -> str:
    return ""


def _reader(detail: Mapping[str, Any]) -> Callable[[bytes], str]:
    """The reader of identities from the values of a declared topic."""
    match detail:
        case {"after": str(beginning)}:
            return partial(_without, beginning)
        case {"field": str(path)}:
            return partial(_field, path.split("."))
    return text_of


def declarations(run: Sequence[Event]) -> list[Declared]:
    """The applications that a run declares; the last declaration of each group counts."""
    found: dict[str, Declared] = {}
    for event in run:
        if event.action not in DECLARATIONS or event.group is None:
            continue
        if event.action == APPLICATION:
            told = event.detail
            found[event.group] = Declared(event.group, told.get("everything") is not False, "checked" in told)
        declared, place = found.get(event.group), place_of(event)
        if declared is None or event.topic is None:
            continue
        if event.action == TOPIC:
            (declared.inputs if event.detail.get("role") == INPUT else declared.outputs).add(event.topic)
            declared.readers[event.topic] = _reader(event.detail)
            declared.which.pop(event.topic, None)
            if isinstance(which := event.detail.get("output"), str):
                declared.which[event.topic] = partial(_field, which.split("."), otherwise=_nothing)
        identity, output = event.detail.get("identity"), event.detail.get("output", "")
        if event.action == RECORD and place is not None and event.offset is not None and isinstance(identity, str):
            declared.identities[place, event.offset] = identity, str(output)
    return list(found.values())


# --- questions without an answer --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """The topics and groups of a cluster, by which a question is checked.

    Attributes:
        topics: those that there are, without the internal ones; None if they are not known.
        groups: those that there are, each with the topics of which it has committed offsets.
    """

    topics: frozenset[str] | None
    groups: Mapping[str, frozenset[str]]


def check_names(inputs: Iterable[str], outputs: Iterable[str], group: str, known: Known, remedy: str) -> None:
    """Refuse a question about topics or a group that are not there.

    Args:
        inputs: the topics of inputs.
        outputs: the topics of outputs.
        group: the consumer group.
        known: what is there.
        remedy: how to name the topics of inputs.

    Raises:
        WrongQuestion: with what is there.
    """
    inputs, outputs = list(inputs), list(outputs)
    for topic in (*inputs, *outputs):
        if known.topics is not None and topic not in known.topics:
            raise WrongQuestion(f"no topic {topic!r}; {_there_is(topic, known.topics)}")
    both = sorted(set(inputs) & set(outputs))
    if both:
        raise WrongQuestion(f"{both[0]!r} is given as an input and as an output; give different topics")
    if group not in known.groups:
        if known.groups:
            raise WrongQuestion(
                f"no group {group!r}; {_there_is(group, known.groups)}. "
                "A group is there once a member has joined it or an offset was committed for it"
            )
        return
    others = known.groups[group]
    if others and not others & set(inputs):
        raise WrongQuestion(
            f"group {group!r} has committed no offset of {_listed(inputs)}, but of {_listed(others)}; {remedy}"
        )


def _there_is(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"there is {close[0]!r}"
    return f"there {'is' if len(names) == 1 else 'are'} {_listed(names)}" if names else "there is none at all"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def check(run: Sequence[Event], replicas: Replicas, logs: Sequence[GroupLog], others: Iterable[str] = ()) -> None:
    """Refuse the declarations of a run that nothing fits.

    Args:
        run: its events, or those of them that are requests and declarations.
        replicas: the logs of the topics that the history names.
        logs: the logs of ``__consumer_offsets``.
        others: the runs that have more than declarations, if this run has nothing else.

    Raises:
        WrongQuestion: names the declaration, and says what is there.
    """
    told = [event for event in run if event.action in DECLARATIONS]
    check_events(told, others)
    known = _known(run, replicas, logs)
    for declared in declarations(told):
        check_declared(declared, known, _identities(declared, replicas))


@dataclass(slots=True)
class Identities:
    """The identities of a declared application's records, as far as they show that its outputs belong to its inputs.

    Attributes:
        first: for inputs and for outputs the first record with an identity, and the identity.
        shared: whether an input, even an aborted one, has the identity of an output.
    """

    first: dict[str, tuple[Found, str]] = field(default_factory=dict)
    shared: bool = False

    def add(self, other: "Identities") -> None:
        """Add the facts of records with other identities."""
        self.shared |= other.shared
        for role, found in other.first.items():
            self.first[role] = min(found, self.first.get(role, found))

    @classmethod
    def of(cls, inputs: Sequence[tuple[Found, str]], outputs: Sequence[tuple[Found, str]]) -> "Identities":
        """The facts of some records with their identities."""
        first = {role: min(records) for role, records in ((INPUT, inputs), (OUTPUT, outputs)) if records}
        return cls(first, not {text for _, text in inputs}.isdisjoint(text for _, text in outputs))


def check_declared(declared: Declared, known: Known, identities: Identities) -> None:
    """Refuse a declaration that nothing fits, unless it was compared with the cluster; errors as of :func:`check`."""
    if declared.checked:
        return
    try:
        remedy = f"declare the topics that it reads: {TOPIC} with the role {INPUT!r}"
        check_names(sorted(declared.inputs), sorted(declared.outputs), declared.group, known, remedy)
        _check_identities(identities)
    except WrongQuestion as error:
        raise WrongQuestion(f"the declaration of group {declared.group!r}: {error}") from None


def check_events(told: Sequence[Event], others: Iterable[str] = ()) -> None:
    """Refuse declarations that are passed over, and applications without inputs or outputs.

    Args:
        told: the declarations of a run.
        others: as of :func:`check`.

    Raises:
        WrongQuestion: names the declaration.
    """
    if others := sorted(others):
        raise WrongQuestion(f"run {told[0].run!r} has a declaration and nothing else; {_there_is(told[0].run, others)}")
    groups: set[str] = set()
    for event in told:
        if event.group is None:
            raise WrongQuestion(f"{event.action} without a group")
        groups |= {event.group} if event.action == APPLICATION else set()
        if event.group not in groups:
            before = _there_is(event.group, groups) if groups else "there is none before it"
            raise WrongQuestion(f"{event.action} of group {event.group!r} without {APPLICATION}; {before}")
        if wrong := wrong_in(event):
            raise WrongQuestion(f"{event.action} {wrong}")
    for declared in declarations(told):
        for role, topics in ((INPUT, declared.inputs), (OUTPUT, declared.outputs)):
            if not topics:
                raise WrongQuestion(f"group {declared.group!r} is declared without {TOPIC} of the role {role!r}")


def wrong_in(event: Event) -> str:
    """The reason why a declaration is passed over, or a part of it; "" for none."""
    detail, fields = event.detail, FIELDS[event.action]
    if unknown := sorted(detail.keys() - {*fields, "checked"}):
        verb = "are" if len(fields) > 1 else "is"
        return f"with the unknown field detail.{unknown[0]}; there {verb} {', '.join(fields)}"
    if event.action == APPLICATION:
        told = detail.get("everything", True)
        return "" if isinstance(told, bool) else "with detail.everything that is neither true nor false"
    if event.action == RECORD:
        there = {"topic": event.topic, "partition": event.partition, "offset": event.offset}
        lacks = [name for name, value in there.items() if value is None]
        lacks += [] if isinstance(detail.get("identity"), str) else ["identity"]
        return f"without {' and '.join(lacks)}" if lacks else ""
    if event.topic is None:
        return "without a topic"
    if detail.get("role") not in [INPUT, OUTPUT]:
        return f"of {event.topic!r} with the role {detail.get('role')!r}; there are the roles {INPUT!r} and {OUTPUT!r}"
    if detail["role"] == INPUT and "output" in detail:
        return f"of {event.topic!r} with detail.output, which only outputs have"
    if "after" in detail and "field" in detail:
        return f"of {event.topic!r} with detail.after and detail.field; give one of them"
    no_text = [name for name in ("after", "field", "output") if not isinstance(detail.get(name, ""), str)]
    return f"of {event.topic!r} with no text in detail.{no_text[0]}" if no_text else ""


def _known(run: Sequence[Event], replicas: Replicas, logs: Sequence[GroupLog]) -> Known:
    """The topics and groups that logs and requests show; topics are not known without logs."""
    asked = Asked()
    for event in run:
        asked.add(event.action, event.topic, event.group)
    return known_from(asked, (topic for topic, _ in replicas), (name for log in logs for name in log.commits))


def known_from(asked: Asked, logs: Iterable[str], committed: Iterable[tuple[str, Place]]) -> Known:
    """The topics and groups that there are.

    Args:
        asked: those that requests name.
        logs: the topics that have logs.
        committed: the groups with the partitions of which the logs have offsets.
    """
    logged = set(logs)
    groups = {group: set(topics) for group, topics in asked.groups.items()}
    for group, (topic, _) in committed:
        groups.setdefault(group, set()).add(topic)
    kept = {group: frozenset(own) for group, own in groups.items()}
    return Known(frozenset(logged - {OFFSETS_TOPIC} | asked.topics) if logged else None, kept)


def _identities(declared: Declared, replicas: Replicas) -> Identities:
    """The identities of an application's records, from their logs."""
    found: dict[bool, list[tuple[Found, str]]] = {True: [], False: []}
    for place in replicas:
        if place[0] in declared.inputs | declared.outputs:
            for offset, value in longest(replicas, place)[1].values.items():
                known = declared.identity((place, offset), value)
                if known is not None:
                    found[place[0] in declared.inputs].append(((place, offset), known[0]))
    return Identities.of(found[True], found[False])


def _check_identities(found: Identities) -> None:
    """Refuse identities that join no output with any input, not even with an aborted one."""
    if len(found.first) == len((INPUT, OUTPUT)) and not found.shared:
        one, other = (
            f"{place[0]}-{place[1]} offset {offset} has {text!r}"
            for (place, offset), text in (found.first[INPUT], found.first[OUTPUT])
        )
        raise WrongQuestion(
            f"no output has the same identity as an input: {one}, and {other}; "
            f"say in {TOPIC} with detail.after or detail.field what they have in common"
        )
