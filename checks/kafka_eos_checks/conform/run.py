"""Scenarios on a broker: walks through the graph, each answer compared with the spec's, each state read back."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafka_eos.errors import ErrorCode, MalformedBatch
from kafka_eos.machines.transaction_coordinator import Identity
from kafka_eos_checks.conform import observation
from kafka_eos_checks.conform.deciding import Rule
from kafka_eos_checks.conform.mechanisms import Request, asked
from kafka_eos_checks.conform.observation import OFFSET
from kafka_eos_checks.conform.quotient import Edge, Quotient, Step, edge_of, step_of
from kafka_eos_checks.conform.stage import Reply, Stage
from kafka_eos_checks.conform.visible import Answer, Outcome, Visible
from kafka_eos_checks.conform.wire import NoAnswer, Unreachable, Unsupported, error_name, wait

LONGEST_SCENARIO = 60
"""Requests; a log that is read back again and again has to stay short."""

ANSWER = "answer"
"""The name of a difference that is no field that was read back."""

LAST_REQUESTS = (2, 3, 5, 8, 13)
"""The numbers of last requests of a long scenario that are tried, if the shortest scenario of an edge shows nothing."""
BY_ANOTHER_WAY = "--repeat, which plays the shortest way to it, does not show it; this one does"
NO_ANSWER = "no answer"
NOT_ASKED = "it was not asked, because the run ended"
OUT_OF_REACH = "every way to it leads through what"
"""The beginning of the reason of an edge that was not asked for because of others."""
IN_SECOND, OF_SECOND_GROUP = " in the second partition", ", second group"
"""The ends of the names of what differs in the second partition of a scenario, or in its second group."""
MARKED_AGAIN = "a marker comes twice in a row, whenever it is played"
PLAYS = 3
"""The number of times that a scenario is played, if something may be the reason that is no rule of the broker."""
OF_PARTITIONS = {"AddPartitionsToTxn", "Produce", "TxnOffsetCommit", "OffsetCommit", "OffsetDelete"}
"""The requests that a scenario with two partitions makes about each of them."""
OF_GROUPS = {"AddOffsetsToTxn", "TxnOffsetCommit"}
"""The requests that a scenario with two groups makes about each of them."""

BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}
"""Codes that say "not yet": the request is repeated for as long as a broker needs for what it does by itself."""


class Found(StrEnum):
    """The outcome of an edge."""

    CONFORMS = "conforms"
    KNOWN = "known difference"
    DIVERGES = "diverges"
    UNSUPPORTED = "not supported"
    UNKNOWN = "could not tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A step of a scenario: what was asked and answered, what the spec allows, and the operators that decide it."""

    label: str
    api: str
    name: str
    allowed: tuple[str, ...] = ()
    answered: str = ""
    request: str = ""
    response: str = ""
    rules: Callable[[], tuple[Rule, ...]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference that the spec does not allow.

    Attributes:
        what: the answer, or the field that was read back.
        allowed: what the spec allows.
        observed: what the broker did.
    """

    what: str
    allowed: str
    observed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """An edge with its outcome.

    Attributes:
        edge: the edge.
        found: its outcome.
        differences: those that were seen, if it diverges.
        reason: why it is not supported, or could not be told.
        scenario: the scenario that was played, if it does not conform.
        answers: the codes that were given to requests that may be answered in several ways.
        known: the id of the recorded difference that it shows.
        disturbed: the reason may be no rule of the broker, so that the scenario is played again.
        hidden: if it conforms, fields that differ after it, and differed earlier in its scenario: they were not judged.
    """

    edge: Edge
    found: Found
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    scenario: tuple[Exchange, ...] = ()
    answers: tuple[str, ...] = ()
    known: str = ""
    disturbed: bool = False
    hidden: tuple[str, ...] = ()


@dataclass(slots=True)
class Counts:
    """The counts of a run.

    Attributes:
        scenarios: the number of played scenarios.
        requests: requests of the machines.
        retries: requests that were repeated because the broker was busy.
        disturbed: scenarios in which a marker came twice in a row.
        observations: how often the state, or a part of it, was read back.
        unread: why parts of it were not.
    """

    scenarios: int = 0
    requests: int = 0
    retries: int = 0
    disturbed: int = 0
    observations: int = 0
    unread: set[str] = field(default_factory=set)


class Diverged(Exception):  # noqa: N818 - what happened
    """The broker did something that the spec does not allow."""

    def __init__(self, differences: Sequence[Difference], *, answer: bool) -> None:
        super().__init__(f"{'; '.join(each.what for each in differences)}: another than the spec allows")
        self.differences = tuple(differences)
        self.answer = answer


FAILURES = (Diverged, NoAnswer, Unsupported, Unreachable)
"""The ways in which a step may end that is not taken."""


@dataclass(slots=True)
class Play:
    """A scenario while it is played.

    Attributes:
        quotient: the graph.
        stage: the broker's side.
        state: the machines' side.
        patience: seconds that a busy broker is given.
        counts: the counts of the run.
        tolerated: fields in which the two sides differ already.
        hidden: those of them that still differ after the last step.
        transcript: the steps so far.
        requests: the requests that were taken.
        places: the node of the graph before each of them.
        known: the id of the recorded difference that the last answer belongs to.
    """

    quotient: Quotient
    stage: Stage
    state: Visible
    patience: float
    counts: Counts
    tolerated: set[str] = field(default_factory=set)
    hidden: tuple[str, ...] = ()
    transcript: list[Exchange] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    places: list[Hashable] = field(default_factory=list)
    known: str = ""

    def step(self, request: Request) -> Step:
        """A request as the next step."""
        given = asked(self.state, request)
        assert given is not None, f"{request} makes no sense here"
        return step_of(self.quotient.mechanism, self.state, given)

    def step_after(self, step: Step, request: Request) -> Step | None:
        """A request as the step after another one, prepared before that is taken, so that no time is lost then."""
        after = step.outcomes[0][1]
        given = asked(after, request)
        return step_of(self.quotient.mechanism, after, given) if given is not None else None

    def take(self, step: Step, *, read_back: bool) -> None:
        """Play a step: ask, compare, and read the state back, unless it was asked while markers were being written.

        Raises:
            Diverged: for what the spec does not allow.
            NoAnswer, Unsupported: when it could not be asked.
        """
        compares = read_back and (step.is_settle or self.state.is_settled)
        self.hidden = ()
        self.places.append(self.quotient.mechanism.place(self.state))
        if step.is_settle:
            [(_, after)] = step.outcomes
            for stage in filter(None, (self.stage, self.stage.second)):
                stage.settle(sorted(after.coordinators), after.data.end)
            self.requests.append(step.asked.request)
            label = "markers are written, the transaction is closed"
            self.transcript.append(Exchange(label=label, api="", name="A", rules=step.rules))
        else:
            after = self._asked(step)
        self.state = after
        if compares and after.is_settled:
            self.compare_state()

    def _asked(self, step: Step) -> Visible:
        self.known = ""
        try:
            reply, outcome = self._answered(self.stage, step, step.outcomes)
        except (NoAnswer, Unreachable):
            self.transcript.append(self._exchange(step, step.outcomes, None))
            raise
        self.transcript.append(self._exchange(step, step.outcomes, reply))
        self.requests.append(step.asked.request)
        if outcome is None:
            raise Diverged([_wrong(step.outcomes, reply)], answer=True)
        apis = OF_GROUPS if self.quotient.mechanism.has_second_group else OF_PARTITIONS
        if self.stage.second is not None and step.asked.request.api in apis:
            reply, again = self._answered(self.stage.second, step, [outcome])
            if again is None:
                self.transcript.append(self._exchange(step, [outcome], reply, self._in_second))
                raise Diverged([_wrong([outcome], reply, self._in_second)], answer=True)
        self.known = outcome[0].known
        return outcome[1]

    @property
    def _in_second(self) -> str:
        return OF_SECOND_GROUP if self.quotient.mechanism.has_second_group else IN_SECOND

    def _answered(self, stage: Stage, step: Step, outcomes: Sequence[Outcome]) -> tuple[Reply, Outcome | None]:
        """The answer of a broker that is not busy any more, and the outcome that it agrees with."""
        identity = next((answer.identity for answer, _ in step.outcomes if answer.error is ErrorCode.NONE), None)
        deadline, attempt = time.monotonic() + self.patience, 0
        self.counts.requests += 1
        while True:
            reply = stage.ask(step.asked, identity)
            outcome = next((each for each in outcomes if agrees(reply, each[0])), None)
            if outcome is not None or reply.error not in BUSY or time.monotonic() > deadline:
                return reply, outcome
            self.counts.retries += 1
            wait(attempt)
            attempt += 1

    def _exchange(self, step: Step, outcomes: Sequence[Outcome], reply: Reply | None, where: str = "") -> Exchange:
        """A step in words; ``reply`` is None if there was none."""
        given, answers = step.asked, [answer for answer, _ in outcomes]
        return Exchange(
            label=given.request.label(self.quotient.mechanism.alone) + where,
            api=given.request.api,
            name=given.request.name,
            allowed=tuple(shown_answer(answer) for answer in answers if not answer.known),
            answered=shown_reply(reply) if reply is not None else NO_ANSWER,
            request=reply.request if reply is not None else "",
            response=reply.response if reply is not None else "",
            rules=step.rules,
        )

    def is_marked_again(self) -> bool:
        """Whether a log has markers right after the same marker that the machine's log has not.

        A coordinator that gets no answer in time writes its marker again, and the leader has to take it
        (``TransactionalPartition!RepeatedMarkerIsTaken``).
        """
        entries = ((entry.kind, entry.producer_id, entry.epoch) for entry in self.state.data.entries)
        allowed = observation.repeats(entries)
        try:
            return any(stage.repeats() > allowed for stage in (self.stage, self.stage.second) if stage is not None)
        except (*FAILURES, MalformedBatch):
            return False

    def compare_state(self) -> None:
        """Read the state back, and compare it with the machines'.

        Raises:
            Diverged: for what the spec does not allow.
            NoAnswer: when it could not be read.
        """
        allowed = observation.expected(self.state, with_offset=self.quotient.mechanism.with_offset)
        found, missing = self.stage.observe(self.state, with_offset=OFFSET in allowed)
        if self.stage.second is not None:
            also = self.stage.second.observe_partition(offsets=OFFSET in allowed)
            for name in [name for name, said in also.items() if said != found.get(name)]:
                second = f"{name}{self._in_second}"
                found[second], allowed[second] = also[name], allowed[name]
        self.counts.observations += bool(found)
        self.counts.unread.update(missing.values())
        differences = [
            Difference(what=name, allowed=allowed[name], observed=said)
            for name, said in found.items()
            if said != allowed[name] and name not in self.tolerated
        ]
        self.hidden = tuple(name for name, said in found.items() if said != allowed[name] and name in self.tolerated)
        if differences:
            self.tolerated.update(each.what for each in differences)
            raise Diverged(differences, answer=False)


def _wrong(outcomes: Sequence[Outcome], reply: Reply, where: str = "") -> Difference:
    """The difference of an answer that none of the outcomes has."""
    allowed = " or ".join(shown_answer(answer) for answer, _ in outcomes if not answer.known)
    return Difference(what=f"{ANSWER}{where}", allowed=allowed, observed=shown_reply(reply))


def agrees(reply: Reply, answer: Answer) -> bool:
    """The broker's answer is the spec's."""
    if reply.error != answer.error:
        return False
    if answer.error is not ErrorCode.NONE:
        return True
    return answer.identity in {None, reply.identity} and answer.offset in {None, reply.offset}


def _shown(error: str, identity: object, offset: object) -> str:
    more = [] if identity is None else [str(identity)]
    more += [] if offset is None else [f"offset {offset}"]
    return f"{error} ({', '.join(more)})" if more else error


def _shown_identity(identity: Identity) -> str:
    producer = f"producer {identity.producer_id} " if identity.producer_id >= 0 else ""
    return f"{producer}epoch {identity.epoch}"


def shown_answer(answer: Answer) -> str:
    """An answer of the machines in words."""
    if answer.error is not ErrorCode.NONE:
        return answer.error.name
    given = None
    if answer.identity is not None:
        given = _shown_identity(answer.identity)
    return _shown(answer.error.name, given, answer.offset)


def shown_reply(reply: Reply) -> str:
    """An answer of the broker in words."""
    given = None
    if reply.identity is not None:
        given = _shown_identity(reply.identity)
    return _shown(error_name(reply.error), given, reply.offset)


@dataclass(slots=True)
class Runner:
    """A runner that covers the edges of one mechanism.

    Attributes:
        quotient: its graph.
        new_stage: makes a place for a scenario.
        patience: seconds that a busy broker is given.
        counts: the counts of the run.
        results: the results by edge.
    """

    quotient: Quotient
    new_stage: Callable[[], Stage]
    patience: float = 2.0
    counts: Counts = field(default_factory=Counts)
    results: dict[str, Result] = field(default_factory=dict)
    _blocked: set[str] = field(default_factory=set)
    _suspect: set[str] = field(default_factory=set)
    _left_out: dict[str, str] = field(default_factory=dict)
    _disturbed: Counter[str] = field(default_factory=Counter)

    def cover(
        self, wanted: Collection[str], on_progress: Callable[[int, list[str]], None] | None = None
    ) -> dict[str, Result]:
        """Play scenarios until every wanted edge has a result; ``on_progress`` as in ``session.conform``."""
        todo = dict.fromkeys(name for name in self.quotient.edges if name in wanted)
        while path := self._way(self.quotient.initial(), todo):
            self._play(path, todo)
            if on_progress is not None:
                diverged = [name for name, result in self.results.items() if result.found is Found.DIVERGES]
                on_progress(len(todo), diverged)
        for name in todo:
            self.results[name] = self._out_of_reach(self.quotient.edges[name])
        return self.results

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Edges that the broker does not support, with the reason."""
        self._left_out = dict(reasons)
        self._blocked.update(reasons)

    def _out_of_reach(self, edge: Edge) -> Result:
        """An edge to which no way is left."""
        if reason := self._left_out.get(edge.name, ""):
            return Result(edge=edge, found=Found.UNSUPPORTED, reason=reason)
        diverging = self._blocked - self._left_out.keys()
        if self.quotient.way_to(self.quotient.initial(), {edge.name}, diverging):
            reason = f"every way to it needs what is not supported: {next(iter(self._left_out.values()))}"
            return Result(edge=edge, found=Found.UNSUPPORTED, reason=reason)
        failed = [self.results[name] for name in diverging if name in self.results]
        told = {Found.DIVERGES: "diverges", Found.UNKNOWN: "could not be told"}
        what = " or ".join(said for found, said in told.items() if any(each.found is found for each in failed))
        reason = f"{OUT_OF_REACH} {what or 'did not conform'}"
        return Result(edge=edge, found=Found.UNKNOWN, reason=reason)

    def shortest(self, edge: Edge) -> Result:
        """Play the shortest scenario of one edge."""
        result = self._played_once(edge)
        for _ in range(PLAYS - 1):
            if result.disturbed:
                result = self._played_once(edge)
        return result

    def _played_once(self, edge: Edge) -> Result:
        play = self._begin()
        try:
            for place, request in enumerate(edge.path):
                step, last = play.step(request), place == len(edge.path) - 1
                error = self._take(play, step, read_back=last)
                if error is not None:
                    return self._result(edge, play, error, None if last else request)
        finally:
            self._end(play)
        found = Found.KNOWN if play.known else Found.CONFORMS
        return Result(edge=edge, found=found, known=play.known, scenario=tuple(play.transcript))

    # --- one scenario ------------------------------------------------------------------------------------------------

    def _way(self, state: Visible, todo: Collection[str]) -> list[Request]:
        """A way to the nearest edge without a result; it avoids edges that left an unexpected state if it can."""
        way = self.quotient.way_to(state, todo, self._blocked | self._suspect)
        return way or self.quotient.way_to(state, todo, self._blocked)

    def _begin(self) -> Play:
        self.counts.scenarios += 1
        return Play(self.quotient, self.new_stage(), self.quotient.initial(), self.patience, self.counts)

    @staticmethod
    def _end(play: Play) -> None:
        play.stage.leave(sorted(play.state.coordinators))

    @staticmethod
    def _take(play: Play, step: Step, *, read_back: bool) -> Exception | None:
        try:
            play.take(step, read_back=read_back)
        except FAILURES as error:
            return error
        return None

    def _play(self, path: list[Request], todo: dict[str, None]) -> None:
        """Walk from edge to edge until one does not conform, or the scenario is long enough."""
        play, taken = self._begin(), 0
        try:
            while path and taken < LONGEST_SCENARIO:
                ahead: Step | None = None
                for place, request in enumerate(path):
                    step = ahead if ahead is not None and ahead.state is play.state else play.step(request)
                    ahead = play.step_after(step, path[place + 1]) if place + 1 < len(path) else None
                    taken += 1
                    read_back = step.edge in todo or step.edge in self._suspect
                    error = self._take(play, step, read_back=read_back)
                    if error is None:
                        self._conforms(step, play, todo)
                    elif step.edge not in self._suspect or not _differs_in_state(error):
                        self._fails(step, play, error, todo)
                        return
                path = self._way(play.state, todo)
        finally:
            self._end(play)

    def _conforms(self, step: Step, play: Play, todo: dict[str, None]) -> None:
        if step.edge not in todo:
            return
        del todo[step.edge]
        edge = self.quotient.edges[step.edge]
        if play.known:
            scenario = tuple(play.transcript)
            self._suspect.add(step.edge)
            self.results[step.edge] = Result(edge=edge, found=Found.KNOWN, known=play.known, scenario=scenario)
            return
        several = sum(not answer.known for answer, _ in step.outcomes) > 1
        answers = (play.transcript[-1].answered,) if several else ()
        self.results[step.edge] = Result(edge=edge, found=Found.CONFORMS, answers=answers, hidden=play.hidden)

    def _fails(self, step: Step, play: Play, error: Exception, todo: dict[str, None]) -> None:
        """Note an edge that does not conform, with the shortest scenario that shows it, or play it again."""
        edge = self.quotient.edges.get(step.edge) or edge_of(self.quotient.mechanism, step, play.requests)
        long = self._result(edge, play, error)
        self._disturbed[step.edge] += long.disturbed
        if long.disturbed and self._disturbed[step.edge] < PLAYS:
            return
        todo.pop(step.edge, None)
        (self._suspect if _differs_in_state(error) else self._blocked).add(step.edge)
        self.results[step.edge] = long  # if the broker is gone, this stays
        short = self.shortest(edge)
        if short.found in {long.found, Found.DIVERGES}:
            self.results[step.edge] = short
        elif shortened := self._shortened(edge, play):
            self.results[step.edge] = replace(shortened, reason=BY_ANOTHER_WAY)
        else:
            reason = f"{long.reason}; the shortest way to it does not show it".removeprefix("; ")
            self.results[step.edge] = replace(long, reason=reason)

    def _shortened(self, edge: Edge, play: Play) -> Result | None:
        """The divergence after the last requests only, with a shortest way to the state before them; None if none does.

        A broker may remember what the machines forget. Then the way to an edge counts, and not only its state.
        """
        for kept in LAST_REQUESTS:
            if kept >= len(play.requests):
                return None
            path = (*self.quotient.way_to_place(play.places[-kept]), *play.requests[-kept:])
            if self._is_possible(path):
                found = self.shortest(replace(edge, path=path))
                if found.found is Found.DIVERGES:
                    return replace(found, edge=edge)
        return None

    def _is_possible(self, path: Sequence[Request]) -> bool:
        """Whether the requests of a path can be asked one after the other."""
        state = self.quotient.initial()
        for request in path:
            given = asked(state, request)
            if given is None:
                return False
            state = step_of(self.quotient.mechanism, state, given).outcomes[0][1]
        return True

    def _result(self, edge: Edge, play: Play, error: Exception, on_way: Request | None = None) -> Result:
        """The result of a scenario that has ended with an error, perhaps with a request on the way to the edge."""
        found, reason = Found.UNKNOWN, str(error)
        differences: tuple[Difference, ...] = ()
        disturbed = isinstance(error, Diverged) and play.is_marked_again()
        if on_way is not None:
            reason = f"on the way to it, {on_way.label(self.quotient.mechanism.alone)}: {error}"
        elif isinstance(error, Diverged):
            found, differences, reason = Found.DIVERGES, error.differences, MARKED_AGAIN if disturbed else ""
        if isinstance(error, Unsupported):
            found = Found.UNSUPPORTED
        self.counts.disturbed += disturbed
        scenario = tuple(play.transcript)
        return Result(
            edge=edge, found=found, differences=differences, reason=reason, scenario=scenario, disturbed=disturbed
        )


def _differs_in_state(error: Exception) -> bool:
    return isinstance(error, Diverged) and not error.answer
