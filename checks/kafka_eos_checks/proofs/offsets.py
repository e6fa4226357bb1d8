"""Offsets: what a group has committed moves with a transaction's marker, to what that transaction sent, or not at all.

The proof runs the actions of ``ConsumeTransformProduce`` and the rules of ``GroupCoordinator`` themselves,
symbolically; no rule is written down again. A rule that goes through all producers, partitions, inputs or instances
runs for an arbitrary one, which the goal is about: a guard that holds for all holds for that one, so no step is left
out. Membership and ownership of partitions may be anything (``members``, ``ids_of``, ``written_in``, ``has_had_since``,
``joined``, ``reconciled``, ``returned``, ``membership_without`` and ``assigned_to`` are stand-ins), because nothing
here depends on them. The emptiness of a map is a truth value with a law: an empty map has nothing at the goal's terms,
any other has something somewhere.

Unbounded: instances, partitions, transactional ids, inputs, offsets, generations and epochs, faults. EOS v1 and v2, a
classic group and one of KIP-848.

Proved: committed offsets change only with the marker of a committed transaction, to the pending ones; a pending offset
is neither lost nor changed before; an aborted transaction moves nothing; a transaction that commits has an offset for
each partition that it wrote outputs for, after the last of these inputs, and for no other; nobody is told an offset
while another one is pending.

Assumed, as in ``ConsumeTransformProduce.tla``: ``__consumer_offsets`` is one partition, durable; a request and its
answer are one step. Not covered: that offsets never go back and that no input is skipped, which rests on who owns a
partition (TLC: OnePendingOffset, NoSkip, RefinesExactlyOnce), and whatever needs fairness.

Spec:  ConsumeTransformProduce.tla, GroupCoordinator.tla; TLC checks the same invariant in
       spec/proofs/OffsetsInduction.tla
KIPs:  98, 447, 848
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

import z3
from immutables import Map

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.consume_transform_produce import (
    NO_TRANSACTION,
    OFFSETS_SENT,
    OPEN,
    V1,
    V2,
    Constants,
    ConsumeTransformProduce,
    Process,
    Transaction,
)
from kafka_eos.machines.consumer_group import Member, Membership
from kafka_eos.machines.group_coordinator import (
    ABORT,
    CLASSIC,
    COMMIT,
    CONSUMER,
    NO_OFFSET,
    PREPARING_REBALANCE,
    STABLE,
    Group,
)
from kafka_eos.machines.machine import Action
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.proofs.induction import Conjunct, Proof, Query, Telling, value
from kafka_eos_checks.proofs.kit import Asking, Terms, conjunct, each_way
from kafka_eos_checks.proofs.symbolic import Condition, Number, Outcome, chosen, disjunction, explore, term_of

STATES = (NO_TRANSACTION, OPEN, OFFSETS_SENT, COMMIT, ABORT)
EOS, PROTOCOLS, GROUP_STATES = (V1, V2), (CLASSIC, CONSUMER), (STABLE, PREPARING_REBALANCE)
NOBODY = -1

# The constants of every query: what a negated goal is about, the request, the configuration, and a partition owned.
PRODUCER, PARTITION, INPUT, INSTANCE = z3.Ints("producer partition input instance")
ASKED = {name: z3.Int(f"asked_{name}") for name in ("instance", "producer", "partition")}
VERSION, PROTOCOL, GROUP_STATE, OWNED = z3.Ints("eos group_protocol group_state owned")


@cache
def _function(name: str, arity: int, *, predicate: bool = False) -> Any:
    return z3.Function(name, *[z3.IntSort()] * arity, z3.BoolSort() if predicate else z3.IntSort())


STATE, HOLDER, COMMITTED = (_function(name, 1) for name in ("state", "holder", "committed"))
PENDING, POSITION = (_function(name, 2) for name in ("pending", "position"))
WRITTEN, OUTPUTS = _function("written", 3), _function("outputs", 2)
INITIALIZED = _function("initialized", 2, predicate=True)


# --- maps and sets of any size --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Laws:
    """The facts about the maps that an action has compared: formulas, and the number of maps."""

    facts: list[Any]
    used: int = 0


_laws = Laws([])  # of the action that runs


def known(name: str) -> Any:
    """A truth value about which nothing is known."""
    _laws.used += 1
    return z3.Bool(f"{name}_{_laws.used}")


class AnyMap:
    """A map of numbers to numbers: a function, and the key that an iteration yields.

    Attributes:
        at: key -> value, as terms.
        key: the one arbitrary key.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, at: Callable[[Any], Any], key: Any) -> None:
        self.at, self.key = at, key

    def __getitem__(self, key: Any) -> Number:
        return Number(self.at(term_of(key)))

    def get(self, key: Any, default: int) -> Number:  # noqa: ARG002 - it has every key
        """As ``Map.get``."""
        return self[key]

    def items(self) -> list[tuple[Number, Number]]:
        """The one arbitrary key and its value."""
        return [(Number(self.key), self[Number(self.key)])]

    def set(self, key: Any, number: Any) -> "AnyMap":
        """As ``Map.set``."""
        return AnyMap(lambda term: z3.If(term == term_of(key), term_of(number), self.at(term)), self.key)

    def update(self, changes: Mapping[Any, Any]) -> "AnyMap":
        """As ``Map.update``, for the one arbitrary key or none."""
        found = self
        for key, number in changes.items():
            found = found.set(key, number)
        return found

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, AnyMap)
        if z3.is_true(z3.simplify(self.at(self.key) == other.at(self.key))):
            return True
        same = known("same")
        somewhere = z3.Int(f"somewhere_{_laws.used}")
        places = (self.key, ASKED["partition"], PARTITION, INPUT, POSITION(INSTANCE, PARTITION))
        _laws.facts += [z3.Implies(same, self.at(place) == other.at(place)) for place in places]
        _laws.facts.append(z3.Implies(z3.Not(same), self.at(somewhere) != other.at(somewhere)))
        return Condition(same)

    def __ne__(self, other: object) -> Any:
        found = self.__eq__(other)
        return Condition(z3.Not(found.term)) if isinstance(found, Condition) else not found


class AnyCounts:
    """Numbers for each partition and input: a map of maps."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, at: Callable[[Any, Any], Any]) -> None:
        self.at = at

    def __getitem__(self, partition: Any) -> AnyMap:
        return AnyMap(lambda number: self.at(term_of(partition), number), INPUT)

    def items(self) -> list[tuple[Number, AnyMap]]:
        """The one arbitrary partition and its numbers."""
        return [(Number(PARTITION), self[Number(PARTITION)])]

    def set(self, partition: Any, numbers: AnyMap) -> "AnyCounts":
        """As ``Map.set``."""
        return AnyCounts(lambda p, n: z3.If(p == term_of(partition), numbers.at(n), self.at(p, n)))

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, AnyCounts)
        if z3.is_true(z3.simplify(self.at(PARTITION, INPUT) == other.at(PARTITION, INPUT))):
            return True
        same = known("same")
        partition, number = z3.Ints(f"somewhere_{_laws.used} some_input_{_laws.used}")
        places = [(p, n) for p in (PARTITION, ASKED["partition"]) for n in (INPUT, POSITION(INSTANCE, PARTITION))]
        _laws.facts += [z3.Implies(same, self.at(*place) == other.at(*place)) for place in places]
        _laws.facts.append(z3.Implies(z3.Not(same), self.at(partition, number) != other.at(partition, number)))
        return Condition(same)


class AnySet:
    """A set of numbers: a predicate, and the element that an iteration yields, if it is one."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, has: Callable[[Any], Any], element: Any) -> None:
        self.has, self.element = has, element

    def __contains__(self, element: Any) -> bool:
        return bool(Condition(self.has(term_of(element))))

    def __iter__(self) -> Iterator[Number]:
        if Condition(self.has(self.element)):
            yield Number(self.element)

    def __bool__(self) -> bool:
        return bool(Condition(known("has_elements")))

    def __or__(self, other: Iterable[Any]) -> "AnySet":
        if isinstance(other, AnySet):
            return AnySet(lambda term: z3.Or(self.has(term), other.has(term)), self.element)
        added = [term_of(element) for element in other]
        return AnySet(lambda term: z3.Or(self.has(term), *(term == one for one in added)), self.element)

    def __sub__(self, other: Iterable[Any]) -> "AnySet":
        gone = [term_of(element) for element in other]
        return AnySet(lambda term: z3.And(self.has(term), *(term != one for one in gone)), self.element)

    def __rsub__(self, other: Iterable[Any]) -> frozenset[Any]:
        return frozenset(element for element in other if element not in self)

    __ror__ = __or__

    def __le__(self, other: object) -> Any:
        return Condition(known("is_subset"))

    def __eq__(self, other: object) -> Any:
        return Condition(known("is_equal"))

    def __ne__(self, other: object) -> Any:
        return Condition(known("differs"))


class AnyKeyed:
    """A map to values of the reference, each made of terms; what an action has put in comes first."""

    def __init__(self, of: Callable[[Any], Any], key: Any, changes: tuple[tuple[Any, Any], ...] = ()) -> None:
        self.of, self.key, self.changes = of, key, changes

    def __getitem__(self, key: Any) -> Any:
        for changed, found in reversed(self.changes):
            if changed == key:
                return found
        return self.of(term_of(key))

    def set(self, key: Any, found: Any) -> "AnyKeyed":
        """As ``Map.set``."""
        return AnyKeyed(self.of, self.key, (*self.changes, (key, found)))

    def update(self, changes: Mapping[Any, Any]) -> "AnyKeyed":
        """As ``Map.update``, for the one arbitrary key or none."""
        return AnyKeyed(self.of, self.key, (*self.changes, *changes.items()))

    def __iter__(self) -> Iterator[Number]:
        yield Number(self.key)

    def values(self) -> list[Any]:
        """The value of the one arbitrary key."""
        return [self[Number(self.key)]]


class Every:
    """A constant set that has every element; an iteration yields an arbitrary one."""

    def __init__(self, element: Any = None) -> None:
        self.element = element

    def __contains__(self, element: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Number]:
        yield Number(self.element)


class AnyOf:
    """A name that may be any of some; compared with one of them, the execution forks."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: Any, names: Sequence[str]) -> None:
        self.code, self.names = code, names

    def __eq__(self, other: object) -> Any:
        return Condition(self.code == self.names.index(str(other)))


class Inputs:
    """The inputs of a partition: the numbers from 1 on."""

    def __contains__(self, number: Any) -> bool:
        return bool(Condition(term_of(number) >= 1))


# --- the machine on terms -------------------------------------------------------------------------------------------

NOTHING = AnyMap(lambda partition: z3.IntVal(NO_OFFSET), PARTITION)  # noqa: ARG005
NO_COUNT = AnyMap(lambda number: z3.IntVal(0), INPUT)  # noqa: ARG005
NO_OUTPUT = AnyCounts(lambda partition, number: z3.IntVal(0))  # noqa: ARG005


def machine_for(overrides: Mapping[str, str]) -> type[ConsumeTransformProduce]:
    """The reference's machine, mutated or not, whose maps and sets are of any size."""
    machine: Any = mutated(ConsumeTransformProduce, overrides) if overrides else ConsumeTransformProduce

    def ids_of(state: Any, instance: Any) -> frozenset[Any]:
        owned = Number(OWNED)
        return frozenset({state.id_of(instance, owned)} if owned in state.processes[instance].assigned else ())

    def has_had_since(state: Any, *of: Any) -> Condition:  # noqa: ARG001
        return Condition(_function("has_had_since", 3, predicate=True)(*map(term_of, of)))

    members: dict[str, Any] = {
        "__slots__": (),
        "nothing_pending": lambda state: NOTHING,  # noqa: ARG005
        "no_output": lambda state: NO_OUTPUT,  # noqa: ARG005
        "_none_of_partition": lambda state: NO_COUNT,  # noqa: ARG005
        "ids_of": ids_of,
        "written_in": lambda state, producer: Every(OWNED),  # noqa: ARG005
        "has_had_since": has_had_since,
        "members": lambda state: state.group.members,
        "joined": lambda state, member: any_membership("joined"),  # noqa: ARG005
        "reconciled": lambda state, member, owned: any_membership("reconciled"),  # noqa: ARG005
        "membership_without": lambda state, member: any_membership("left"),  # noqa: ARG005
        "returned": lambda state, member: any_membership("returned"),  # noqa: ARG005
        "assigned_to": lambda state, member, leader: any_set("assigned_anew", PARTITION),  # noqa: ARG005
    }
    found: type[ConsumeTransformProduce] = type("UnboundedApplication", (machine,), members)
    return found


def any_set(name: str, element: Any, *of: Any) -> AnySet:
    """A set about which nothing is known, perhaps one of many."""
    return AnySet(lambda term: _function(name, len(of) + 1, predicate=True)(*of, term), element)


def any_membership(name: str) -> Any:
    """A group of KIP-848 about which nothing is known."""

    def member(instance: Any) -> Member:
        fields = {field: Number(_function(f"{name}_{field}", 1)(instance)) for field in ("epoch", "since")}
        sets = {field: any_set(f"{name}_{field}", PARTITION, instance) for field in ("assigned", "revoking")}
        return Member(**fields, **sets)  # type: ignore[arg-type]

    return Membership(epoch=Number(z3.Int(f"{name}_epoch")), members=AnyKeyed(member, INSTANCE))  # type: ignore[arg-type]


class AnyTransaction:
    """The transaction of a transactional id; its state is chosen where the code looks at it."""

    __dataclass_fields__ = Transaction.__dataclass_fields__

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.holder = Number(HOLDER(producer))
        self.written = AnyCounts(lambda partition, number: WRITTEN(producer, partition, number))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return Transaction  # what dataclasses.replace makes of it

    @property
    def state(self) -> str:
        """The transaction's state."""
        return str(chosen(STATE(self.producer), STATES))


def any_process(instance: Any) -> Process:
    """An instance."""
    stand_ins: dict[str, Any] = {
        "is_up": Condition(_function("is_up", 1, predicate=True)(instance)),
        "generation": Number(_function("generation", 1)(instance)),
        "assigned": any_set("assigned", PARTITION, instance),
        "initialized": AnySet(lambda producer: INITIALIZED(instance, producer), PRODUCER),
        "positions": AnyMap(lambda partition: POSITION(instance, partition), PARTITION),
    }
    return Process(**stand_ins)


def any_state(machine: type[ConsumeTransformProduce]) -> ConsumeTransformProduce:
    """A state about which nothing is known."""
    configuration: dict[str, Any] = {
        "instances": Every(INSTANCE),
        "partitions": Every(PARTITION),
        "transactional_ids": Every(PRODUCER),
        "preferred": Map(),
        "group_protocol": AnyOf(PROTOCOL, PROTOCOLS),
        "inputs": Inputs(),
        "eos": AnyOf(VERSION, EOS),
        "faults": Every(),
        "max_faults": Number(z3.Int("max_faults")),
    }
    group: dict[str, Any] = {
        "state": AnyOf(GROUP_STATE, GROUP_STATES),
        "generation": Number(z3.Int("group_generation")),
        "members": any_set("members", INSTANCE),
        "joined": any_set("joined_members", INSTANCE),
    }

    def pending_of(producer: Any) -> AnyMap:
        return AnyMap(lambda partition: PENDING(producer, partition), PARTITION)

    stand_ins: dict[str, Any] = {
        "group": Group(**group),
        "membership": any_membership("membership"),
        "pending": AnyKeyed(pending_of, PRODUCER),
        "committed": AnyMap(COMMITTED, PARTITION),
        "transactions": AnyKeyed(AnyTransaction, PRODUCER),
        "outputs": AnyCounts(OUTPUTS),
        "processes": AnyKeyed(any_process, INSTANCE),
        "faults": Number(z3.Int("faults")),
    }
    return machine(constants=Constants(**configuration), **stand_ins)


# --- the invariant --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """A state as the invariant sees it, at the goal's terms: functions of them."""

    state: Callable[[Any], Any]
    holder: Callable[[Any], Any]
    pending: Callable[[Any, Any], Any]
    written: Callable[[Any, Any, Any], Any]
    committed: Callable[[Any], Any]
    position: Callable[[Any, Any], Any]
    initialized: Callable[[Any, Any], Any]


BEFORE = View(STATE, HOLDER, PENDING, WRITTEN, COMMITTED, POSITION, INITIALIZED)
Changes = Iterable[tuple[Any, Any]]


def _changed(changes: Changes, key: Any, base: Any, of: Callable[[Any], Any]) -> Any:
    """The term of a map's value for a key: its base, or what was put in."""
    for changed, found in changes:
        base = z3.If(term_of(changed) == key, of(found), base)
    return base


def _at(numbers: Any, key: Any) -> Any:
    """A number of a map that is a stand-in, or that the code has made from the one arbitrary key."""
    return numbers.at(key) if isinstance(numbers, AnyMap) else term_of(next(iter(numbers.values())))


def _has(elements: Any, element: Any) -> Any:
    """Whether an element is in a set that is a stand-in, or that the code has made."""
    if isinstance(elements, AnySet):
        return elements.has(element)
    return disjunction([term_of(one) == element for one in elements])


def _changes(mapping: Any) -> Changes:
    return mapping.changes if isinstance(mapping, AnyKeyed) else mapping.items()


def view_of(state: ConsumeTransformProduce) -> View:
    """A state after an action, as the invariant sees it."""
    transactions, pending, processes = (_changes(m) for m in (state.transactions, state.pending, state.processes))
    committed: Any = state.committed

    def stage(transaction: Any) -> Any:
        unchanged = type(transaction) is AnyTransaction
        return STATE(transaction.producer) if unchanged else z3.IntVal(STATES.index(transaction.state))

    def holder(transaction: Transaction) -> Any:
        return z3.IntVal(NOBODY) if transaction.holder is None else term_of(transaction.holder)

    return View(
        state=lambda t: _changed(transactions, t, STATE(t), stage),
        holder=lambda t: _changed(transactions, t, HOLDER(t), holder),
        pending=lambda t, p: _changed(pending, t, PENDING(t, p), lambda found: _at(found, p)),
        written=lambda t, p, n: _changed(transactions, t, WRITTEN(t, p, n), lambda found: found.written.at(p, n)),
        committed=lambda p: _at(committed, p),
        position=lambda i, p: _changed(processes, i, POSITION(i, p), lambda found: _at(found.positions, p)),
        initialized=lambda i, t: _changed(processes, i, INITIALIZED(i, t), lambda found: _has(found.initialized, t)),
    )


def is_in(view: View, producer: Any, *states: str) -> Any:
    """A transaction is in one of some states."""
    return z3.Or(*(view.state(producer) == STATES.index(state) for state in states))


# What a conjunct may be about: the constant of a goal, and the terms at which a hypothesis is taken.
_TERMS: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "t": (PRODUCER, (PRODUCER, ASKED["producer"])),
    "p": (PARTITION, (PARTITION, ASKED["partition"])),
    "n": (
        INPUT,
        (
            INPUT,
            POSITION(INSTANCE, PARTITION),
            POSITION(ASKED["instance"], PARTITION),
            PENDING(PRODUCER, PARTITION),
            POSITION(INSTANCE, PARTITION) + 1,
            z3.Int("somewhere_1"),
            z3.Int("some_input_1"),
        ),
    ),
    "i": (INSTANCE, (INSTANCE, ASKED["instance"])),
}


def _about(names: str) -> Terms:
    """Terms: of a transactional id, a partition, an input and an instance, by their letters."""
    return Terms(tuple(_TERMS[name][0] for name in names), tuple(product(*(_TERMS[name][1] for name in names))))


@conjunct(_about("tp"))
def pending_is_sent(view: View, t: Any, p: Any) -> Any:
    """An offset is pending in a transaction that has sent its offsets."""
    return z3.Implies(view.pending(t, p) != NO_OFFSET, is_in(view, t, OFFSETS_SENT, COMMIT, ABORT))


@conjunct(_about("tpn"))
def none_has_written(view: View, t: Any, p: Any, n: Any) -> Any:
    """Without a transaction nothing is written."""
    return z3.Implies(is_in(view, t, NO_TRANSACTION), view.written(t, p, n) == 0)


@conjunct(_about("tpn"))
def written_is_of_inputs(view: View, t: Any, p: Any, n: Any) -> Any:
    """Outputs are of inputs."""
    written = view.written(t, p, n)
    return z3.And(written >= 0, z3.Implies(written > 0, n >= 1))


@conjunct(_about("tpn"))
def written_by_own(view: View, t: Any, p: Any, n: Any) -> Any:
    """In version 1 the outputs of a partition have its transactional id."""
    return z3.Implies(z3.And(EOS.index(V1) == VERSION, view.written(t, p, n) > 0), t == p)


@conjunct(_about("ti"))
def initialized_is_own(view: View, t: Any, i: Any) -> Any:
    """In version 2 an instance writes with its own transactional id."""
    return z3.Implies(z3.And(EOS.index(V2) == VERSION, view.initialized(i, t)), t == i)


def _is_behind(view: View, offset: Any, t: Any, p: Any, n: Any) -> Any:
    """The offset equals the number of the last input with outputs, so it is right after that input."""
    return z3.Implies(view.written(t, p, n) > 0, z3.And(n <= offset, view.written(t, p, offset) > 0))


@conjunct(_about("tpni"))
def position_is_behind_written(view: View, t: Any, p: Any, n: Any, i: Any) -> Any:
    """An instance that writes has its position after the last input with outputs."""
    writes = z3.And(is_in(view, t, OPEN), view.initialized(i, t), view.holder(t) == i)
    return z3.Implies(writes, _is_behind(view, view.position(i, p), t, p, n))


@conjunct(_about("tpn"))
def sent_is_behind_written(view: View, t: Any, p: Any, n: Any) -> Any:
    """The offset that was sent is after the last input with outputs, and there is such an input."""
    offset = view.pending(t, p)
    has_outputs = z3.Implies(offset != NO_OFFSET, view.written(t, p, offset) > 0)
    return z3.Implies(is_in(view, t, OFFSETS_SENT), z3.And(_is_behind(view, offset, t, p, n), has_outputs))


INVARIANT = (
    pending_is_sent,
    none_has_written,
    written_is_of_inputs,
    written_by_own,
    initialized_is_own,
    position_is_behind_written,
    sent_is_behind_written,
)


@cache
def hypotheses() -> dict[str, list[Any]]:
    """The invariant before, at the terms that matter."""
    return {each.name: each.instances(BEFORE) for each in INVARIANT}


@cache
def definitions() -> list[Any]:
    """The constraints on codes and ids."""
    found = [z3.And(STATE(t) >= 0, STATE(t) < len(STATES)) for t in (PRODUCER, *ASKED.values())]
    found += [z3.And(code >= 0, code < 2) for code in (VERSION, PROTOCOL, GROUP_STATE)]
    return [*found, *(term >= 0 for term in (PRODUCER, PARTITION, INSTANCE, OWNED, *ASKED.values()))]


# --- actions --------------------------------------------------------------------------------------------------------

_ARGUMENTS = {"Instances": "instance", "TransactionalIds": "producer", "Partitions": "partition"}


@dataclass(frozen=True, slots=True)
class Step:
    """The result of an action: the state, and the facts about the maps that it compared."""

    state: ConsumeTransformProduce
    facts: tuple[Any, ...]


def run_action(machine: type[ConsumeTransformProduce], act: Action) -> list[Outcome]:
    """Every way through an action of the reference, from any state, for any request."""

    def run() -> Step:
        _laws.facts, _laws.used = [], 0
        arguments = [Number(ASKED[_ARGUMENTS[domain]]) for domain in act.domains]
        state = getattr(any_state(machine), act.method)(*arguments)
        return Step(state, tuple(_laws.facts))

    found = explore(run, definitions())
    return [outcome for outcome in found if not isinstance(outcome.error, NotEnabled | Rejected)]


def broken(outcome: Outcome, holds: Callable[[View], Any]) -> Any:
    """The action goes this way, and afterwards something is false."""
    if outcome.error is not None:
        return outcome.condition
    return z3.And(outcome.condition, *outcome.value.facts, z3.Not(holds(view_of(outcome.value.state))))


def initiation(machine: type[ConsumeTransformProduce]) -> Iterator[Query]:
    """The initial state of any configuration has each conjunct, for one partition, instance and input of it."""
    for eos, protocol in product(EOS, PROTOCOLS):
        constants = Constants(
            instances=frozenset({"i"}), partitions=frozenset({"p"}), transactional_ids=frozenset({"t"}),
            preferred=Map({"p": "i"}), group_protocol=protocol, inputs=frozenset({1}), eos=eos, faults=frozenset(),
            max_faults=0,
        )  # fmt: skip
        view = _first_view(machine.__mro__[1].initial(constants))  # type: ignore[attr-defined]
        yield from ASKING.initiation(view, f"Init, {eos}, {protocol}", definitions())


def _first_view(state: ConsumeTransformProduce) -> View:
    """The view of the initial state, whose maps have the same value for every key."""
    transaction, process = state.transactions["t"], state.processes["i"]
    stage, offset = z3.IntVal(STATES.index(transaction.state)), z3.IntVal(state.pending["t"]["p"])
    written, committed = z3.IntVal(transaction.written["p"][1]), z3.IntVal(state.committed["p"])
    position, has_initialized = z3.IntVal(process.positions["p"]), z3.BoolVal("t" in process.initialized)

    def always(term: Any) -> Callable[..., Any]:
        return lambda *_: term

    return View(
        always(stage), always(z3.IntVal(NOBODY)), always(offset), always(written), always(committed),
        always(position), always(has_initialized),
    )  # fmt: skip


# --- properties -----------------------------------------------------------------------------------------------------


def _moves(act: Action, view: View) -> Any:
    """Committed offsets are as before, or those that were pending in the committed transaction whose marker came."""
    same = view.committed(PARTITION) == COMMITTED(PARTITION)
    if act.name != "PublishOffsets":
        return same
    asked = ASKED["producer"]
    sent = z3.And(PENDING(asked, PARTITION) != NO_OFFSET, view.committed(PARTITION) == PENDING(asked, PARTITION))
    return z3.Or(same, z3.And(is_in(BEFORE, asked, COMMIT), sent))


def _waits(act: Action, view: View) -> Any:
    """A pending offset stays pending until its marker comes; then it is committed, or was aborted."""
    before, after = PENDING(PRODUCER, PARTITION), view.pending(PRODUCER, PARTITION)
    same = z3.Implies(before != NO_OFFSET, after == before)
    if act.name != "PublishOffsets":
        return same
    committed = z3.And(is_in(BEFORE, PRODUCER, COMMIT), view.committed(PARTITION) == before)
    done = z3.And(after == NO_OFFSET, z3.Or(committed, is_in(BEFORE, PRODUCER, ABORT)))
    return z3.Implies(before != NO_OFFSET, z3.If(ASKED["producer"] == PRODUCER, done, after == before))


def _is_whole(act: Action, view: View) -> Any:
    """A transaction that commits has an offset for each partition with outputs, after the last of these inputs."""
    begins = z3.And(is_in(view, PRODUCER, COMMIT), z3.Not(is_in(BEFORE, PRODUCER, COMMIT)))
    offset = view.pending(PRODUCER, PARTITION)
    outputs = _is_behind(view, offset, PRODUCER, PARTITION, INPUT)
    no_more = z3.Implies(offset != NO_OFFSET, view.written(PRODUCER, PARTITION, offset) > 0)
    return z3.Implies(begins, z3.And(outputs, no_more, z3.BoolVal(act.name == "Commit")))


def _is_settled(act: Action, view: View) -> Any:  # noqa: ARG001
    """A committed transaction is over when all its outputs are found and all its offsets committed."""
    over = z3.And(is_in(BEFORE, PRODUCER, COMMIT), z3.Not(is_in(view, PRODUCER, COMMIT)))
    left = z3.And(view.pending(PRODUCER, PARTITION) == NO_OFFSET, view.written(PRODUCER, PARTITION, INPUT) == 0)
    return z3.Implies(over, left)


def _is_stable(act: Action, view: View) -> Any:  # noqa: ARG001
    """An instance is told the committed offset of a partition when nothing is pending for it."""
    asked, partition = ASKED["instance"], ASKED["partition"]
    told = z3.And(partition == PARTITION, view.position(asked, partition) == COMMITTED(partition))
    return z3.Implies(partition == PARTITION, z3.And(told, PENDING(PRODUCER, partition) == NO_OFFSET))


PROPERTIES: tuple[tuple[Conjunct, Callable[[Action, View], Any], str], ...] = tuple(
    (Conjunct(name=name, says=says), holds, action)
    for name, says, holds, action in (
        (
            "OffsetsMoveWithMarker",
            "Committed offsets move with the marker of a commit, to the pending offsets.",
            _moves,
            "",
        ),
        ("PendingWaitsForMarker", "What is pending waits for its marker, which commits it or drops it.", _waits, ""),
        (
            "CommitIsWhole",
            "A transaction commits an offset for each partition with outputs, after the last.",
            _is_whole,
            "",
        ),
        ("CommitIsFinished", "A committed transaction ends when outputs and offsets are found.", _is_settled, ""),
        ("OnlyStableIsTold", "No offset is told while another one is pending.", _is_stable, "FetchOffset"),
    )
)


def safety(runs: Mapping[Action, Sequence[Outcome]]) -> Iterator[Query]:
    """The invariant gives the properties of each step."""
    for goal, holds, name in PROPERTIES:
        for act, outcomes in runs.items():
            if name in {"", act.name}:
                wrong = [broken(o, lambda view, act=act: holds(act, view)) for o in outcomes]  # type: ignore[misc]  # noqa: B023
                yield ASKING.query("safety", goal.name, goal, disjunction(wrong), outcomes, act)


# --- a solution as text ---------------------------------------------------------------------------------------------

READABLE = tuple(
    z3.And(term >= 0, term <= 3)
    for term in (PRODUCER, PARTITION, INSTANCE, INPUT, COMMITTED(PARTITION), *ASKED.values())
)


def _asked(model: Any, act: Action | None) -> list[str]:
    if act is None:
        return []
    names = [_ARGUMENTS[domain] for domain in act.domains]
    return [f"action: {act.name}({', '.join(f'{name} {value(model, ASKED[name])}' for name in names)})"]


def _state(model: Any, view: View) -> list[str]:
    number = partial(value, model)
    partition, instance = number(PARTITION), number(INSTANCE)
    eos, protocol = EOS[number(VERSION)], PROTOCOLS[number(PROTOCOL)]
    lines = [f"  EOS {eos}, {protocol} group; partition {partition} has committed {number(view.committed(PARTITION))}"]
    for producer in dict.fromkeys(number(term) for term in (PRODUCER, ASKED["producer"])):
        at = z3.IntVal(producer)
        offset, state = number(view.pending(at, PARTITION)), STATES[number(view.state(at))]
        pending = "nothing pending" if offset == NO_OFFSET else f"{offset} pending"
        written = number(view.written(at, PARTITION, INPUT))
        lines.append(
            f"  transactional id {producer}: {state}, held by {number(view.holder(at))}, {pending}, "
            f"{written} outputs of input {number(INPUT)}"
        )
    lines.append(f"  instance {instance} is at {number(view.position(INSTANCE, PARTITION))}")
    return lines


TELLING = Telling(before=BEFORE, after=lambda o: view_of(o.value.state), state=_state, asked=_asked)
ASKING = Asking(
    invariant=INVARIANT,
    hypotheses=hypotheses,
    facts=lambda act: definitions(),  # noqa: ARG005 - the same for each action
    telling=TELLING,
    readable=READABLE,
    run=run_action,
    broken=each_way(lambda outcome, goal: broken(outcome, goal.holds)),
    taken=lambda outcome: z3.And(outcome.condition, *outcome.value.facts),
)


# --- the proof ------------------------------------------------------------------------------------------------------


def queries(overrides: Mapping[str, str]) -> Iterator[Query]:
    """All queries, with some rules replaced by mutants or none."""
    machine = machine_for(overrides)
    yield from initiation(machine)
    runs: dict[Action, Sequence[Outcome]] = {}
    yield from ASKING.of_actions(machine, runs)
    yield from safety(runs)


PROOF = Proof(
    name="offsets",
    module="ConsumeTransformProduce",
    title="a group's offsets move only with their transaction's marker, and with all its outputs",
    conjuncts=tuple(each.conjunct for each in INVARIANT),
    properties=tuple(goal for goal, _, _ in PROPERTIES),
    queries=queries,
)
