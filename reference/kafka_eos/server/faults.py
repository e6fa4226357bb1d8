"""Faults on demand: a plan decides which request of a client meets which fault; the network carries it out.

A plan is a list of rules. Each says which requests it matches, which of those it hits, and how. Whether a rule fires
depends on the requests that matched it before and on the seed, not on a clock: the same requests meet the same faults.

A *fate* changes what happens to one request; an *event* happens to the cluster, before or after the request is handled.

=======================  ==============================================================================================
``drop-answer``          the request is handled; the connection is closed instead of the answer
``withhold``             the request is handled; neither its answer nor anything later comes on the connection
``close``                the connection is closed, and the request is never handled
``delay``                the request waits, and so do those after it on its connection
``repeat``               the request is handled once more, later; nobody gets that answer
``overtake``             the connection is closed, and the request is handled later, after the client's own retry
``error``                the request is answered with an error code, and not handled
``move-leader``          the partitions that it names get another leader
``move-coordinator``     the transactional.ids and groups that it names get another coordinator
``time-out-transaction`` the open transaction of the transactional.id that it names is aborted, as by its timeout
``delay-markers``        for a while the transactional.id that it names gets no markers: an ended transaction stays
                         pending, and the next requests are answered CONCURRENT_TRANSACTIONS
``kill-broker``          a broker is gone for a while; others lead its partitions, and what it coordinated is loaded
                         only when it is back
``restart``              all brokers stop, and come back with what is in their files
``advance-clock``        time moves forward at once: timeouts of transactions, sessions, expiry
=======================  ==============================================================================================
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from random import Random
from typing import Any, NamedTuple

from kafka_eos.errors import ErrorCode
from kafka_eos.server.refusals import REFUSABLE
from kafka_eos.server.schemas import SERVED
from kafka_eos.wire.protocol import Message


class Fault(StrEnum):
    """The kind of a fault."""

    DROP_ANSWER = "drop-answer"
    WITHHOLD = "withhold"
    CLOSE = "close"
    DELAY = "delay"
    REPEAT = "repeat"
    OVERTAKE = "overtake"
    ERROR = "error"
    MOVE_LEADER = "move-leader"
    MOVE_COORDINATOR = "move-coordinator"
    TIME_OUT_TRANSACTION = "time-out-transaction"
    DELAY_MARKERS = "delay-markers"
    KILL_BROKER = "kill-broker"
    RESTART = "restart"
    ADVANCE_CLOCK = "advance-clock"


FATES = frozenset(
    {Fault.DROP_ANSWER, Fault.WITHHOLD, Fault.CLOSE, Fault.DELAY, Fault.REPEAT, Fault.OVERTAKE, Fault.ERROR}
)
"""The faults of a request; the others are events of the cluster."""
_NEVER_HANDLED = frozenset({Fault.CLOSE, Fault.ERROR})
UNANSWERED = frozenset({Fault.DROP_ANSWER, Fault.WITHHOLD})
"""The fates of an answer, which a Produce request with acks=0 does not have."""
_ENDS_CONNECTIONS = frozenset({Fault.KILL_BROKER, Fault.RESTART})

_SELECTING = ("api", "client", "topic", "transactional-id", "group", "broker")
_CHOOSING = ("nth", "chance", "at-most")
# The further keys that a rule of each fault may have, and those that it must have.
_OPTIONS: Mapping[Fault, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Fault.DROP_ANSWER: ((), ()),
    Fault.WITHHOLD: ((), ()),
    Fault.CLOSE: ((), ()),
    Fault.DELAY: (("seconds",), ("seconds",)),
    Fault.REPEAT: (("seconds",), ()),
    Fault.OVERTAKE: (("seconds",), ("seconds",)),
    Fault.ERROR: (("error",), ("api", "error")),
    Fault.MOVE_LEADER: (("to", "when"), ()),
    Fault.MOVE_COORDINATOR: (("to", "when"), ()),
    Fault.TIME_OUT_TRANSACTION: (("when",), ()),
    Fault.DELAY_MARKERS: (("seconds", "when"), ("seconds",)),
    Fault.KILL_BROKER: (("seconds", "to", "when"), ("seconds",)),
    Fault.RESTART: (("when",), ()),
    Fault.ADVANCE_CLOCK: (("seconds", "when"), ("seconds",)),
}


class MalformedPlan(ValueError):  # noqa: N818 - named for the input, as MalformedBatch is
    """A plan that cannot be used; says where and the remedy."""


class Subjects(NamedTuple):
    """The partitions, transactional ids and groups that a request names.

    Attributes:
        partitions: topics with numbers; -1 where a topic is named without any.
        transactional_ids: those of producers.
        groups: consumer groups.
    """

    partitions: tuple[tuple[str, int], ...]
    transactional_ids: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as rules see it.

    Attributes:
        api: the name of its API.
        client: as the client calls itself.
        node: the broker that it came to.
        subjects: what it names.
        is_silent: nobody waits for an answer.
    """

    api: str
    client: str
    node: int
    subjects: Subjects
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: requests, and the fault that they meet.

    Attributes:
        fault: what happens.
        api: the name of the requests' API; None for any.
        client: a pattern of client ids, as those of file names; so are topic, transactional_id and group.
        topic: the topic that they name.
        transactional_id: the transactional id that they name.
        group: the group that they name.
        broker: the broker that they came to.
        nth: which of them it hits, from 1 on; empty for all.
        chance: the probability with which it hits one of those.
        at_most: how often it fires; None for any number of times.
        seconds: a duration, whose meaning depends on the fault.
        error: the code of an answer.
        to: the broker that a leader or coordinator moves to; None for the next one.
        after: an event happens after the request is handled, and before it is answered.
    """

    fault: Fault
    api: str | None = None
    client: str | None = None
    topic: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    broker: int | None = None
    nth: frozenset[int] = frozenset()
    chance: float = 1.0
    at_most: int | None = None
    seconds: float = 0.0
    error: ErrorCode = ErrorCode.NONE
    to: int | None = None
    after: bool = False

    def matches(self, asked: Asked) -> bool:
        """Whether it is about a request."""
        partitions, transactional_ids, groups = asked.subjects
        is_there = {
            Fault.MOVE_LEADER: any(number >= 0 for _, number in partitions),
            Fault.MOVE_COORDINATOR: bool(transactional_ids or groups),
            Fault.DELAY_MARKERS: bool(transactional_ids),
            Fault.TIME_OUT_TRANSACTION: bool(transactional_ids),
        } | dict.fromkeys(UNANSWERED, not asked.is_silent)
        return (
            self.api in {None, asked.api}
            and self.broker in {None, asked.node}
            and _one_of(self.client, [asked.client])
            and _one_of(self.topic, [topic for topic, _ in partitions])
            and _one_of(self.transactional_id, transactional_ids)
            and _one_of(self.group, groups)
            and is_there.get(self.fault, True)
        )

    def __str__(self) -> str:
        about = {
            "client": self.client,
            "topic": self.topic,
            "transactional-id": self.transactional_id,
            "group": self.group,
            "broker": self.broker,
            "nth": ", ".join(map(str, sorted(self.nth))) or None,
            "chance": self.chance if self.chance < 1 else None,
        }
        said = " ".join(f"{name} {value}" for name, value in about.items() if value is not None)
        return " ".join(filter(None, (str(self.fault), self.api or "any request", said)))


def _one_of(pattern: str | None, names: Sequence[str]) -> bool:
    return pattern is None or any(fnmatchcase(name, pattern) for name in names)


@dataclass(slots=True, eq=False)
class Tally:
    """A rule, with how many requests matched it and how often it fired; not the same as another one of that rule.

    Attributes:
        rule: the rule.
        number: the number of rules before it that say the same.
        matched: requests that it is about.
        fired: how often it fired.
    """

    rule: Rule
    number: int = 0
    matched: int = 0
    fired: int = 0

    def in_words(self) -> str:
        """A line with the rule and its counts."""
        return f"{self.rule}: fired {self.fired} time(s), {self.matched} request(s) matched"


class Faults:
    """The rules of a plan, with their counts.

    Args:
        rules: in the order in which they are asked. All that fire bring about their events; of several fates the
            first one counts, and the rules after it have not fired.
        seed: the seed of the chances. They depend on the rule's own words and requests, and on no other rule.
    """

    def __init__(self, rules: Sequence[Rule] = (), seed: int | str = 0) -> None:
        self.tallies: list[Tally] = []
        self._removed: list[Tally] = []
        self._seed = seed
        for rule in rules:
            self.add(rule)

    def add(self, rule: Rule) -> Tally:
        """Add a rule; it counts from now on."""
        alike = sum(str(each.rule) == str(rule) for each in (*self.tallies, *self._removed))
        self.tallies.append(Tally(rule, alike))
        return self.tallies[-1]

    def remove(self, tally: Tally) -> None:
        """Remove a rule."""
        self.tallies.remove(tally)
        self._removed.append(tally)

    def never_fired(self) -> list[Tally]:
        """The rules, present and removed, that have not fired although no chance decides whether they do."""
        return [each for each in (*self.tallies, *self._removed) if not each.fired and each.rule.chance >= 1]

    def due(self, asked: Asked) -> list[Rule]:
        """The rules that fire at a request: events in their order, and one fate at most.

        An event after a request that is never handled does not fire, nor does its fate or an event after it if an event
        before it ends its connection.
        """
        chosen: list[Tally] = []
        spoiled = False
        for tally in self.tallies:
            rule = tally.rule
            if not rule.matches(asked):
                continue
            tally.matched += 1
            is_fate = rule.fault in FATES
            if (is_fate and spoiled) or not self._chosen(tally):
                continue
            spoiled = spoiled or is_fate
            chosen.append(tally)
        if any(tally.rule.fault in _NEVER_HANDLED for tally in chosen):
            chosen = [tally for tally in chosen if not tally.rule.after]
        if any(tally.rule.fault in _ENDS_CONNECTIONS and not tally.rule.after for tally in chosen):
            chosen = [tally for tally in chosen if not (tally.rule.after or tally.rule.fault in FATES)]
        for tally in chosen:
            tally.fired += 1
        return [tally.rule for tally in chosen]

    def _chosen(self, tally: Tally) -> bool:
        rule = tally.rule
        if (rule.nth and tally.matched not in rule.nth) or tally.fired == rule.at_most:
            return False
        return Random(f"{self._seed}/{rule}/{tally.number}/{tally.matched}").random() < rule.chance  # noqa: S311 - below 1 always


# --- what a request names --------------------------------------------------------------------------------------------

_PARTITION_COLUMNS = ("PartitionIndex", "Partition", "Index")


def subjects_of(row: Message, name_of: Mapping[Any, str]) -> Subjects:
    """The partitions, transactional ids and groups that a request names.

    Args:
        row: its fields.
        name_of: topics by their ids.
    """
    partitions: dict[tuple[str, int], None] = {}
    transactional_ids: dict[str, None] = {}
    groups: dict[str, None] = {}

    def walk(row: Message) -> None:
        for column, value in row.items():
            if column in {"TransactionalId", "V3AndBelowTransactionalId"} and value:
                transactional_ids[value] = None
            elif column == "GroupId" and value:
                groups[value] = None
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, dict):
                        if "Topic" in column:
                            partitions.update(dict.fromkeys(_partitions(item, name_of)))
                        walk(item)

    walk(row)
    keys = row.get("CoordinatorKeys") or [row.get("Key")]
    if "KeyType" in row:  # FindCoordinator
        (transactional_ids if row["KeyType"] == 1 else groups).update(dict.fromkeys(filter(None, keys)))
    return Subjects(tuple(partitions), tuple(transactional_ids), tuple(groups))


def _partitions(item: Message, name_of: Mapping[Any, str]) -> Iterator[tuple[str, int]]:
    topic = item.get("Name") or item.get("Topic") or name_of.get(item.get("TopicId"))
    if not isinstance(topic, str):
        return
    rows = [row for column, value in item.items() if "Partition" in column and isinstance(value, list) for row in value]
    numbers = [
        row if isinstance(row, int) else next((row[c] for c in _PARTITION_COLUMNS if c in row), -1) for row in rows
    ]
    yield from ((topic, number) for number in numbers or [-1])


# --- plans -----------------------------------------------------------------------------------------------------------


def read_plan(text: str, source: str) -> list[Rule]:
    """The rules of a plan in TOML: a table ``[[fault]]`` for each.

    Args:
        text: what is in the file.
        source: its name.

    Raises:
        MalformedPlan: with the line and the remedy.
    """
    try:
        plan = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # no TOML, a number of too many digits, too deep
        raise MalformedPlan(f"{source}: no TOML: {error}") from None
    unknown = sorted(plan.keys() - {"fault"})
    if unknown:
        raise MalformedPlan(f"{source}: unknown table {unknown[0]!r}; each rule is a table [[fault]]")
    tables = plan.get("fault", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables) or not tables:
        raise MalformedPlan(f'{source}: expected one table [[fault]] or more, each with do = "…"')
    lines = [
        number for number, line in enumerate(text.splitlines(), start=1) if line.split("#")[0].strip() == "[[fault]]"
    ]
    places = lines if len(lines) == len(tables) else [0] * len(tables)
    return [
        rule_of(table, f"{source}:{line}: fault {number}" if line else f"{source}: fault {number}")
        for number, (table, line) in enumerate(zip(tables, places, strict=True), start=1)
    ]


def rule_of(table: Mapping[str, Any], where: str) -> Rule:
    """A rule, as a plan's table or a call has it.

    Args:
        table: ``do`` and what else the fault may have; names with hyphens.
        where: for the message of an error.

    Raises:
        MalformedPlan: a key or a value that cannot be used, with the remedy.
    """
    names = [str(fault) for fault in Fault]
    if table.get("do") not in names:
        raise MalformedPlan(f"{where}: do = {table.get('do')!r}; expected one of {', '.join(names)}")
    fault = Fault(table["do"])
    may, must = _OPTIONS[fault]
    known = {"do", *_SELECTING, *_CHOOSING, *may}
    for key in table:
        if key not in known:
            raise MalformedPlan(f"{where}: unknown key {key!r} of {fault}; it may have {', '.join(sorted(known))}")
    for key in must:
        if key not in table:
            raise MalformedPlan(f"{where}: {fault} needs {key!r}: {_VALUES[key][1]}")
    values = {key: _value(key, value, where) for key, value in table.items() if key != "do"}
    if fault is Fault.ERROR and values["api"] not in REFUSABLE:
        raise MalformedPlan(f"{where}: api = {values['api']!r} has no answer that is only an error; choose another one")
    rename = {"at-most": "at_most", "transactional-id": "transactional_id", "when": "after"}
    return Rule(fault=fault, **{rename.get(key, key): value for key, value in values.items()})


def check_brokers(rules: Iterable[Rule], brokers: int, where: str, more: str = "brokers=") -> None:
    """Refuse rules about a broker that a cluster does not have: they would never do what they say.

    Args:
        rules: the rules.
        brokers: the number of the cluster's brokers.
        where: for the message of an error.
        more: how a caller asks for more brokers.

    Raises:
        MalformedPlan: with the remedy.
    """
    for rule in rules:
        for broker in (rule.broker, rule.to):
            if broker is not None and broker > brokers:
                raise MalformedPlan(f"{where}: {rule}: there is no broker {broker}; give {more}{broker}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_counts(value: Any) -> bool:
    return _is_count(value) or (isinstance(value, list | tuple) and bool(value) and all(map(_is_count, value)))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


# For each key, the check of its value, and the expected value in words.
_VALUES: Mapping[str, tuple[Any, str]] = {
    "api": (
        lambda value: value in SERVED,
        'the name of an API that is served, such as "Produce" or "EndTxn"',
    ),
    "client": (_is_text, 'a client id, or a pattern such as "copier-*"'),
    "topic": (_is_text, 'a topic, or a pattern such as "out*"'),
    "transactional-id": (_is_text, "a transactional.id, or a pattern"),
    "group": (_is_text, "a group, or a pattern"),
    "broker": (_is_count, "the number of a broker, from 1 on"),
    "nth": (_is_counts, "which of the matching requests, from 1 on: a number or a list of them"),
    "chance": (lambda value: _is_number(value) and 0 <= value <= 1, "a probability from 0 to 1"),
    "at-most": (_is_count, "how often, 1 or more"),
    "seconds": (lambda value: _is_number(value) and 0 <= value < 1e9, "seconds, 0 or more"),
    "error": (
        lambda value: _is_text(value) and value in ErrorCode.__members__ and value != "NONE",
        'the name of an error code, such as "NOT_LEADER_OR_FOLLOWER"',
    ),
    "to": (_is_count, "the number of a broker, from 1 on"),
    "when": (lambda value: value in ("before", "after"), '"before" or "after" the request is handled'),
}


def _value(key: str, value: Any, where: str) -> Any:
    allowed, expected = _VALUES[key]
    if isinstance(value, dict) or not allowed(value):
        raise MalformedPlan(f"{where}: {key} = {value!r}; expected {expected}")
    if key == "nth":
        return frozenset([value] if isinstance(value, int) else value)
    if key == "error":
        return ErrorCode[value]
    return value == "after" if key == "when" else value
