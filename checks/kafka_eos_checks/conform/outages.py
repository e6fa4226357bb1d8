"""Scenarios in which a broker is stopped and started again, by commands that the user gives, or time passes.

``restart``    Before the last request of a scenario the broker of its partition is stopped and started again. The state
               that is read back, and the answer, are those of the machine after ``Broker!Restart``.
``no-leader``  A transaction ends while its partition has no leader, because the only replica is down. The coordinator
               has to wait with the marker until there is a leader (``TransactionCoordinator!FindNoLeader``).
``timeout``    Before the last request a transaction is left open for longer than its timeout: the coordinator aborts it
               (``TransactionCoordinator!TimeOut``). No broker is stopped for it.

Many scenarios share one outage, so a mechanism needs a few of them.
"""

import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kafka_eos.machines.spec_mapping import camel_case
from kafka_eos.machines.transaction_coordinator import ONGOING
from kafka_eos_checks.conform import observation
from kafka_eos_checks.conform.mechanisms import (
    COMMITS,
    GROUP_OFFSETS,
    IDEMPOTENCE,
    MARKERS,
    READING,
    SETTLE,
    TRANSACTIONS,
    Request,
    asked,
)
from kafka_eos_checks.conform.quotient import Edge, Quotient, Step, step_of
from kafka_eos_checks.conform.run import FAILURES, PLAYS, Difference, Diverged, Exchange, Found, Play, Result, Runner
from kafka_eos_checks.conform.territory import Territory
from kafka_eos_checks.conform.visible import DATA, Visible
from kafka_eos_checks.conform.wire import Address, NoAnswer, Unreachable, Unsupported, Wire, wait

RESTART, NO_LEADER, TIMEOUT = "restart", "no-leader", "timeout"
OF_COMMANDS = (RESTART, NO_LEADER)
"""The kinds for which a broker is stopped."""
INTERRUPTED = {
    RESTART: (IDEMPOTENCE, TRANSACTIONS, MARKERS, COMMITS, READING, GROUP_OFFSETS),
    NO_LEADER: (TRANSACTIONS, READING),
    TIMEOUT: (TRANSACTIONS, COMMITS),
}
"""The mechanisms with outages; not those of members and of a static one, whose sessions go on meanwhile."""
TITLES = {
    RESTART: "the broker restarts before the last request",
    NO_LEADER: "a transaction ends without a leader",
    TIMEOUT: "a transaction is left open until its timeout, before the last request",
}
TIMEOUT_MS = 2000
"""The timeout of transactions that are left open; doubled for a scenario that takes longer to get there."""
TIMEOUTS_TRIED = 4
ENDED = ("Empty", "CompleteAbort", "CompleteCommit")
"""The states of a transactional.id without a transaction, as DescribeTransactions names them."""
AT_ONCE = 100
"""Scenarios that share an outage."""
COMPLETING_SECONDS = 5.0
"""How long a coordinator may try to complete what it has to keep."""
OUTAGE_SECONDS = 120.0
"""The longest time that a broker takes to stop or to start."""
OPEN_MS = 600_000
"""The timeout of transactions and of members' sessions, which last over outages; less than Kafka's longest."""
NODE = "{node}"


class OutageFailed(RuntimeError):  # noqa: N818 - what happened
    """A broker could not be stopped or started; the message says what was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The command lines that stop and start a broker; ``{node}`` in them stands for its id.

    Attributes:
        stop: ends it, or leaves that to somebody else.
        start: starts it again, and returns.
        node: the broker that they mean; None: the last one that is not asked first.
    """

    stop: str
    start: str
    node: int | None = None


@dataclass(slots=True)
class Outages:
    """The outages of one broker.

    Attributes:
        wire: the connections to the cluster; another broker is asked first, if there is one.
        commands: stop and start it.
        node: its id.
        address: its address.
        is_alone: the cluster has no other broker.
    """

    wire: Wire
    commands: Commands
    node: int = field(init=False)
    address: Address = field(init=False)
    is_alone: bool = field(init=False)

    def __post_init__(self) -> None:
        rows = self.wire.ask("Metadata", {"Topics": []})["Brokers"]
        found = {row["NodeId"]: Address(row["Host"], row["Port"]) for row in rows}
        others = [node for node in sorted(found) if found[node] != self.wire.bootstrap]
        self.is_alone = len(found) == 1
        names_it = all(NODE in command for command in (self.commands.stop, self.commands.start))
        if self.commands.node is None and not self.is_alone and not names_it:
            listed = ", ".join(map(str, sorted(found)))
            raise OutageFailed(
                f"the cluster has the brokers {listed}: write {NODE} into --stop and --start where its id belongs, or "
                "say with --node which of them these commands stop"
            )
        self.node = self.commands.node if self.commands.node is not None else (others or sorted(found))[-1]
        if self.node not in found:
            raise OutageFailed(f"--node {self.node}: the cluster has the brokers {', '.join(map(str, sorted(found)))}")
        self.address = found[self.node]
        if not self.is_alone:
            self.wire.bootstrap = next(found[node] for node in sorted(found) if node != self.node)

    @contextmanager
    def outage(self, topics: Collection[str]) -> Iterator[None]:
        """Stop the broker for as long as the block takes.

        Args:
            topics: topics whose partitions it alone has.

        Raises:
            OutageFailed: it does not stop or start.
        """
        try:
            self._run("--stop", self.commands.stop)
            self._wait_until(
                lambda: "" if self._is_down(topics) else "it still answers",
                f"--stop: broker {self.node} is still there",
            )
            yield
        finally:
            self._run("--start", self.commands.start)
            self._wait_until(
                lambda: self._is_missing(topics), f"--start: broker {self.node} does not lead its partitions"
            )

    def _run(self, option: str, command: str) -> None:
        line = command.replace(NODE, str(self.node))
        with tempfile.TemporaryFile() as output:  # a broker that it leaves behind may keep a pipe open
            try:
                done = subprocess.run(  # noqa: S602 - the user's own command line
                    line,
                    shell=True,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=OUTAGE_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise OutageFailed(f"{option}: {line!r} has not ended after {OUTAGE_SECONDS:g} s") from None
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
        if done.returncode:
            raise OutageFailed(f"{option}: {line!r} ended with {done.returncode}: {said or 'it said nothing'}")

    def _wait_until(self, missing: Callable[[], str], otherwise: str) -> None:
        """Wait until nothing is missing any more.

        Raises:
            OutageFailed: something still is; the message has what.
        """
        deadline, attempt = time.monotonic() + OUTAGE_SECONDS, 0
        while why := missing():
            if time.monotonic() > deadline:
                raise OutageFailed(f"{otherwise} after {OUTAGE_SECONDS:g} s: {why}")
            wait(attempt)
            attempt += 1
        self.wire.close()

    def _leaders(self, topics: Collection[str]) -> set[int]:
        """The leaders of all partitions of topics, as the cluster says."""
        asked_about = [{"Name": topic} for topic in topics]
        row = self.wire.ask("Metadata", {"Topics": asked_about, "AllowAutoTopicCreation": False})
        return {part["LeaderId"] for topic in row["Topics"] for part in topic["Partitions"]}

    def _is_down(self, topics: Collection[str]) -> bool:
        try:
            return self.node not in self._leaders(topics)
        except NoAnswer:
            return False
        except Unreachable:
            return self.is_alone

    def _is_missing(self, topics: Collection[str]) -> str:
        """The reason why the broker does not lead all partitions of topics again; "" if it does."""
        try:
            self.wire.ask("Metadata", {"Topics": []}, self.address)  # Kafka elects a leader before it opens its port
            leaders = self._leaders(topics)
        except (NoAnswer, Unreachable) as error:
            return str(error)
        if leaders == {self.node}:
            return ""
        return f"Metadata names {', '.join(map(str, sorted(leaders))) or 'nobody'} as their leader"


@dataclass(slots=True)
class Interrupted(Quotient):
    """The graph of a mechanism, with an outage at the end of each scenario.

    Attributes:
        kind: the kind of outage.
    """

    kind: str = RESTART

    def plan(self, wanted: Container[str], longest: int) -> list[int]:  # noqa: ARG002 - of the shape of all graphs
        """The lengths of the scenarios: each covers one edge."""
        return [len(edge.path) for name, edge in self.edges.items() if name in wanted]


def interrupted(quotients: Iterable[Quotient], kinds: Collection[str] = OF_COMMANDS) -> list[Interrupted]:
    """The graphs with outages of some kinds, of those that have them."""
    return [
        _interrupted(quotient, kind)
        for kind, mechanisms in INTERRUPTED.items()
        for quotient in quotients
        if kind in kinds and quotient.mechanism in mechanisms
    ]


def _interrupted(quotient: Quotient, kind: str) -> Interrupted:
    mechanism = replace(
        quotient.mechanism,
        name=f"{kind}-{quotient.mechanism.name}",
        title=f"{TITLES[kind]}: {quotient.mechanism.title}",
    )
    edges = {
        edge.name: edge
        for own in quotient.edges.values()
        if kind == RESTART or (_ends_data if kind == NO_LEADER else _is_asked_after_timeout)(quotient, own)
        for edge in [replace(own, name=f"{kind}-{own.name}", mechanism=mechanism)]
    }
    return Interrupted(mechanism, quotient.settings, edges, quotient.places, quotient.arcs, kind=kind)


def _ends_data(quotient: Quotient, edge: Edge) -> bool:
    """Whether an edge begins to end a transaction with data."""
    if edge.request.action != "EndTxn":
        return False
    before = state = quotient.initial()
    for request in edge.path:
        before, given = state, asked(state, request)
        assert given is not None, f"{request} makes no sense here"
        state = step_of(quotient.mechanism, state, given).outcomes[0][1]
    return not state.is_settled and DATA in before.known(edge.request.name).partitions


def _is_asked_after_timeout(quotient: Quotient, edge: Edge) -> bool:
    """Whether an edge leaves a state with an open transaction, and its request may be asked after the timeout too."""
    *before, last = edge.path
    [name] = quotient.mechanism.transactional_ids
    state = quotient.initial()
    for request in before:
        given = asked(state, request)
        assert given is not None, f"{request} makes no sense here"
        state = step_of(quotient.mechanism, state, given).outcomes[0][1]
    return state.known(name).state is ONGOING and asked(state.timed_out(name), last) is not None


@dataclass(slots=True, kw_only=True)
class Interrupting(Runner):
    """A runner that covers the edges of a graph with outages.

    Attributes:
        territory: where its topics are.
        outages: stop the broker and start it again; None for timeouts, which need no commands.
    """

    quotient: Interrupted
    territory: Territory
    outages: Outages | None

    def cover(
        self, wanted: Collection[str], on_progress: Callable[[int, list[str]], None] | None = None
    ) -> dict[str, Result]:
        """Play the scenario of every wanted edge, many in one outage."""
        edges = [edge for name, edge in self.quotient.edges.items() if name in wanted]
        for first in range(0, len(edges), AT_ONCE):
            self._played(edges[first : first + AT_ONCE])
            if on_progress is not None:
                diverged = [name for name, result in self.results.items() if result.found is Found.DIVERGES]
                on_progress(len(edges) - len(self.results), diverged)
        return self.results

    def shortest(self, edge: Edge) -> Result:
        """Play the scenario of one edge, in an outage of its own."""
        self._played([edge])
        return self.results[edge.name]

    @property
    def _stops(self) -> Outages:
        """The commands, which graphs with a stopped broker come with."""
        assert self.outages is not None, "nothing stops a broker"
        return self.outages

    def _played(self, edges: Sequence[Edge]) -> None:
        """Play scenarios together, and those that were disturbed again."""
        for _ in range(PLAYS):
            for edge in edges:
                self.results.pop(edge.name, None)
            self._play_together(edges)
            edges = [edge for edge in edges if self.results[edge.name].disturbed]

    def _play_together(self, edges: Sequence[Edge]) -> None:
        if self.quotient.kind == TIMEOUT:
            self._time_out_together(edges)
            return
        if self.quotient.kind == NO_LEADER and self._stops.is_alone:
            reason = (
                "no-leader: the cluster has one broker, and the coordinator has to be on another than the partition"
            )
            self.results |= {edge.name: Result(edge=edge, found=Found.UNSUPPORTED, reason=reason) for edge in edges}
            return
        plays = [(edge, play) for edge in edges if (play := self._led_up_to(edge)) is not None]
        if not plays:
            return
        try:
            with self._stops.outage({play.stage.topic for _, play in plays}):
                self.territory.places.forget()
                early = self._end_without_leader(plays) if self.quotient.kind == NO_LEADER else {}
            self.territory.places.forget()
            for edge, play in plays:
                if edge.name not in self.results:
                    self.results[edge.name] = self._after(edge, play, early.get(edge.name, ()))
        finally:
            for _, play in plays:
                self._end(play)

    def _led_up_to(self, edge: Edge, timeout_ms: int = OPEN_MS) -> Play | None:
        """A scenario before its last request; None if it cannot be played so far, which is the edge's result."""
        if reason := self._left_out.get(edge.name, ""):
            self.results[edge.name] = Result(edge=edge, found=Found.UNSUPPORTED, reason=reason)
            return None
        self.counts.scenarios += 1
        names = self.quotient.mechanism.transactional_ids
        if self.quotient.kind == TIMEOUT:
            stage = self.new_stage()
        else:
            away = self._stops.address if self.quotient.kind == NO_LEADER else None
            stage = self.territory.stage_on(self._stops.node, names, away)
            stage.session_ms = OPEN_MS
        stage.timeout_ms = timeout_ms
        play = Play(self.quotient, stage, self.quotient.initial(), self.patience, self.counts)
        for request in edge.path[:-1]:
            error = self._take(play, play.step(request), read_back=False)
            if error is not None:
                self.results[edge.name] = self._result(edge, play, error, request)
                self._end(play)
                return None
        return play

    def _after(self, edge: Edge, play: Play, early: tuple[Difference, ...]) -> Result:
        """The result of a scenario after the outage, with the differences that were seen in it."""
        try:
            if self.quotient.kind == RESTART:
                self._tell(play, f"broker {self._stops.node} is stopped and started again")
                remembering, play.state = play.state.remembering(), play.state.restarted()
                if play.state.is_settled:
                    play.compare_state()
                play.take(self._either(play.step(edge.path[-1]), remembering), read_back=True)
            elif self.quotient.kind == TIMEOUT:
                play.compare_state()
                play.take(play.step(edge.path[-1]), read_back=True)
            else:
                self._tell(play, f"broker {self._stops.node} is started again")
                play.take(play.step(Request(SETTLE)), read_back=True)
        except FAILURES as error:
            failed = self._result(edge, play, error)
            if not early:
                return failed
            early += failed.differences
        scenario = tuple(play.transcript)
        if early:
            return Result(edge=edge, found=Found.DIVERGES, differences=early, scenario=scenario)
        found = Found.KNOWN if play.known else Found.CONFORMS
        return Result(edge=edge, found=found, known=play.known, scenario=scenario)

    def _either(self, step: Step, remembering: Visible) -> Step:
        """A step whose answer may also be that of coordinators that have kept what Kafka's forget in a restart."""
        given = asked(remembering, step.asked.request)
        assert given is not None, f"{step.asked.request} makes no sense here"
        found = dict(step.outcomes)
        for answer, after in step_of(self.quotient.mechanism, remembering, given).outcomes:
            found.setdefault(answer, after)
        return replace(step, outcomes=tuple(found.items()))

    @staticmethod
    def _tell(play: Play, what: str) -> None:
        play.transcript.append(Exchange(label=what, api="", name="A"))

    # --- without a leader --------------------------------------------------------------------------------------------

    def _end_without_leader(self, plays: Sequence[tuple[Edge, Play]]) -> dict[str, tuple[Difference, ...]]:
        """End the transactions, and return for each edge what differs as long as the coordinator has to wait."""
        for edge, play in plays:
            self._tell(play, f"broker {self._stops.node} is stopped, the partition has no leader")
            error = self._take(play, play.step(edge.path[-1]), read_back=False)
            if error is not None:
                self.results[edge.name] = self._result(edge, play, error)
        time.sleep(COMPLETING_SECONDS)
        early: dict[str, tuple[Difference, ...]] = {}
        for edge, play in plays:
            if edge.name in self.results:
                continue
            try:
                early[edge.name] = tuple(self._does_not_wait(edge, play))
            except (NoAnswer, Unreachable, Unsupported) as error:  # whether it waits is what the edge is about
                told = type(error)(f"the coordinator while there is no leader: {error}")
                self.results[edge.name] = self._result(edge, play, told)
        return early

    def _does_not_wait(self, edge: Edge, play: Play) -> Iterator[Difference]:
        """The difference, if the coordinator has completed a transaction whose partition has no leader.

        Raises:
            NoAnswer, Unreachable, Unsupported: the coordinator does not tell.
        """
        name, stage = edge.request.name, play.stage
        expected = camel_case(play.state.known(name).state.name.lower(), capital=True)
        row = stage.describe(name)
        observed = stage.described(name)
        registered = {(topic["Topic"], number) for topic in row["Topics"] for number in topic["Partitions"]}
        if row["TransactionState"] != expected or (stage.topic, stage.partition) not in registered:
            allowed = f"{expected}, with the partition in it, until the partition has a leader"
            yield Difference(what=observation.coordinator_field(name), allowed=allowed, observed=observed)

    # --- left open until the timeout ---------------------------------------------------------------------------------

    def _time_out_together(self, edges: Sequence[Edge]) -> None:
        """Leave transactions open, wait until the coordinators have aborted all of them, and ask the last requests."""
        plays = [(edge, play) for edge in edges if (play := self._left_open(edge)) is not None]
        try:
            longest = max((play.stage.timeout_ms for _, play in plays), default=0) / 1000
            deadline = time.monotonic() + longest + self.territory.timeout_interval() + self.territory.seconds
            for edge, play in plays:
                self._tell(play, "the transaction is left open until its timeout")
                if self._is_aborted(edge, play, deadline):
                    [name] = self.quotient.mechanism.transactional_ids
                    play.state = play.state.timed_out(name)
                    asked_at, result = time.monotonic(), self._after(edge, play, ())
                    if result.found is Found.DIVERGES and time.monotonic() - asked_at >= play.stage.timeout_ms / 1000:
                        result = replace(result, disturbed=True)  # by the timeout of what the last request has begun
                    self.results[edge.name] = result
        finally:
            for _, play in plays:
                self._end(play)

    def _left_open(self, edge: Edge) -> Play | None:
        """A scenario with an open transaction whose timeout has not passed; None if there is none."""
        timeouts = [TIMEOUT_MS << attempt for attempt in range(TIMEOUTS_TRIED)]
        for timeout_ms in timeouts:
            started = time.monotonic()
            play = self._led_up_to(edge, timeout_ms)
            if time.monotonic() - started < timeout_ms / 1000:
                return play
            if play is not None:
                self._end(play)
                reason = f"on the way to it more than {timeout_ms / 1000:g} s pass, the timeout of the transaction"
                self.results[edge.name] = Result(edge=edge, found=Found.UNKNOWN, reason=reason)
        return None

    def _is_aborted(self, edge: Edge, play: Play, deadline: float) -> bool:
        """Wait until a transaction has ended; if it does not, that is the edge's result."""
        [name] = self.quotient.mechanism.transactional_ids
        attempt = 0
        try:
            while (state := play.stage.describe(name)["TransactionState"]) not in ENDED:
                if time.monotonic() > deadline:
                    allowed = f"CompleteAbort, {play.stage.timeout_ms / 1000:g} s after the transaction began"
                    open_still = Difference(what=observation.coordinator_field(name), allowed=allowed, observed=state)
                    self.results[edge.name] = self._result(edge, play, Diverged([open_still], answer=False))
                    return False
                wait(attempt)
                attempt += 1
        except (NoAnswer, Unreachable, Unsupported) as error:
            self.results[edge.name] = self._result(edge, play, error)
            return False
        return True
