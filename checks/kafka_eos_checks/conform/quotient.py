"""The graph of a mechanism, seen as a client sees it, and paths that cover its edges."""

import hashlib
from collections import Counter, deque
from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Self

from kafka_eos_checks.conform.beyond import ConformingBroker
from kafka_eos_checks.conform.deciding import Rule, deciding, of_action
from kafka_eos_checks.conform.mechanisms import SETTLE, Asked, Mechanism, Request, asked, outcomes
from kafka_eos_checks.conform.visible import Outcome, Settings, Visible, action_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge of the quotient.

    Attributes:
        name: its name on the command line and in reports: what is seen of the broker's state, and the request.
        mechanism: the mechanism whose graph has it.
        request: the request.
        answers: the codes that are allowed.
        path: the shortest run that ends with this edge.
    """

    name: str
    mechanism: Mechanism
    request: Request
    answers: tuple[str, ...]
    path: tuple[Request, ...] = field(compare=False)

    @property
    def is_internal(self) -> bool:
        """No client sends this request."""
        return self.request.action == SETTLE

    @property
    def id(self) -> str:
        """A short name."""
        return id_of(self.name)


def id_of(name: str) -> str:
    """The short name of an edge: the mechanism, and six digits that are the same for every version."""
    return f"{name.partition(':')[0]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def name_of(mechanism: Mechanism, seen: str, request: Request) -> str:
    """The name of an edge."""
    return f"{mechanism.name}: {seen}: {request.label(mechanism.alone)}"


@dataclass(frozen=True, slots=True)
class Step:
    """A request that may be tried in a state, with all answers that the spec allows."""

    state: Visible
    asked: Asked
    outcomes: tuple[Outcome, ...]
    edge: str

    def rules(self) -> tuple[Rule, ...]:
        """The operators of the spec that decide the answers, or the actions that the broker takes by itself."""
        if self.is_settle:
            return tuple(
                of_action(ConformingBroker, action_of(name)) for name in ("WriteMarker", "CompleteTransaction")
            )
        found = [rule for state in self.state.meanwhile() for rule in deciding(state.broker, self.asked.instance)]
        return tuple(dict.fromkeys(found))

    @property
    def is_settle(self) -> bool:
        """No client sends this request."""
        return self.asked.request.action == SETTLE


def steps(mechanism: Mechanism, state: Visible) -> Iterator[Step]:
    """The steps that may be tried in a state."""
    for request in mechanism.requests(state):
        given = asked(state, request)
        if given is not None:
            yield step_of(mechanism, state, given)


def step_of(mechanism: Mechanism, state: Visible, given: Asked) -> Step:
    """The step of a request in a state."""
    allowed = tuple(outcomes(state, given))
    begins = state.is_settled and any(not after.is_settled for _, after in allowed)
    seen = mechanism.seen(state, given.request, begins)
    return Step(state, given, allowed, name_of(mechanism, seen, given.request))


def edge_of(mechanism: Mechanism, step: Step, path: Iterable[Request]) -> Edge:
    """The edge of a step, with a run that ends with it."""
    answers = tuple(answer.error.name for answer, _ in step.outcomes if not answer.known)
    return Edge(name=step.edge, mechanism=mechanism, request=step.asked.request, answers=answers, path=tuple(path))


@dataclass(frozen=True, slots=True)
class Arc:
    """A step between two nodes: its edge, its request, and where it leads if nothing is faster than expected."""

    edge: str
    request: Request
    target: int


@dataclass(slots=True)
class Quotient:
    """The graph of a mechanism.

    Attributes:
        mechanism: its mechanism.
        settings: the settings of the broker and its clients.
        edges: the edges by name: those that a client asks for, and the internal ones that it waits for.
        places: the states that a client can tell apart, each with its number; the initial one is 0.
        arcs: the arcs that leave each of them.
        apart: the steps that only a fault or a timeout takes, with the number of nodes from which it can.
    """

    mechanism: Mechanism
    settings: Settings
    edges: dict[str, Edge] = field(default_factory=dict)
    places: dict[Hashable, int] = field(default_factory=dict)
    arcs: list[list[Arc]] = field(default_factory=list)
    apart: Counter[str] = field(default_factory=Counter)

    def initial(self) -> Visible:
        """The state in which every scenario begins."""
        return Visible.initial(self.settings, self.mechanism.transactional_ids, self.mechanism.group_protocol)

    def explore(self) -> Self:
        """Search the graph breadth-first."""
        start = self.initial()
        self.places[self.mechanism.place(start)] = 0
        queue: deque[tuple[Visible, tuple[Request, ...]]] = deque([(start, ())])
        while queue:
            state, path = queue.popleft()
            self.apart.update(state.faults())
            leaving = []
            for step in steps(self.mechanism, state):
                request, after = step.asked.request, step.outcomes[0][1]
                longer = (*path, request)
                if step.edge not in self.edges:
                    self.edges[step.edge] = edge_of(self.mechanism, step, longer)
                place = self.mechanism.place(after)
                if place not in self.places:
                    self.places[place] = len(self.places)
                    queue.append((after, longer))
                leaving.append(Arc(step.edge, request, self.places[place]))
            self.arcs.append(leaving)
        return self

    def way_to(self, state: Visible, wanted: Container[str], avoided: Container[str]) -> list[Request]:
        """A shortest run from a state over a wanted edge, without those that are avoided; empty: there is none."""
        start = self.places.get(self.mechanism.place(state))
        if start is None:  # a recorded difference has led out of the graph
            return []
        met = {start}
        queue: deque[tuple[int, tuple[Request, ...]]] = deque([(start, ())])
        while queue:
            here, path = queue.popleft()
            for arc in self.arcs[here]:
                if arc.edge in avoided:
                    continue
                longer = (*path, arc.request)
                if arc.edge in wanted:
                    return list(longer)
                if arc.target not in met:
                    met.add(arc.target)
                    queue.append((arc.target, longer))
        return []

    def way_to_place(self, place: Hashable) -> list[Request]:
        """A shortest run from the initial state to a node; empty for the initial one, and for one that is not there."""
        wanted = self.places.get(place, 0)
        queue: deque[tuple[int, tuple[Request, ...]]] = deque([(0, ())])
        met = {0}
        while queue:
            here, path = queue.popleft()
            if here == wanted:
                return list(path)
            for arc in self.arcs[here]:
                if arc.target not in met:
                    met.add(arc.target)
                    queue.append((arc.target, (*path, arc.request)))
        return []

    def plan(self, wanted: Container[str], longest: int) -> list[int]:
        """The lengths of the scenarios that cover the wanted edges of a broker that conforms."""
        todo = {name for name in self.edges if name in wanted}
        lengths = []
        while path := self.way_to(self.initial(), todo, ()):
            state, taken = self.initial(), 0
            while path and taken < longest:
                for request in path:
                    given = asked(state, request)
                    assert given is not None, f"{request} makes no sense here"
                    step = step_of(self.mechanism, state, given)
                    todo.discard(step.edge)
                    state = step.outcomes[0][1]
                taken += len(path)
                path = self.way_to(state, todo, ())
            lengths.append(taken)
        return lengths


@cache
def explored(mechanism: Mechanism, settings: Settings) -> Quotient:
    """The graph of a mechanism, searched once for all brokers with the same settings. It is shared: change nothing."""
    return Quotient(mechanism, settings).explore()
