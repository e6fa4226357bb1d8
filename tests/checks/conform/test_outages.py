"""Outages of a broker: what a restart may change, and a transaction that ends while its partition has no leader."""

import fnmatch
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from kafka_eos.machines.producer_state import ProducerState
from kafka_eos.server.cluster import Machines, Settings
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.server.transactions import Coordinators, TransactionSettings
from kafka_eos_checks import cli
from kafka_eos_checks.brokers.brokers import Cluster, free_ports
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.conform import outages
from kafka_eos_checks.conform.command import _mechanisms
from kafka_eos_checks.conform.mechanisms import MECHANISMS, SETTLE, Request, asked
from kafka_eos_checks.conform.outages import OPEN_MS, Commands, Interrupting, OutageFailed, Outages, interrupted
from kafka_eos_checks.conform.quotient import Edge, Quotient, explored, step_of
from kafka_eos_checks.conform.result import Report, story
from kafka_eos_checks.conform.run import PLAYS, Counts, Difference, Diverged, Found, Play, Result
from kafka_eos_checks.conform.session import Target, conform, open_session, repeat
from kafka_eos_checks.conform.stage import Places, Stage
from kafka_eos_checks.conform.territory import Territory
from kafka_eos_checks.conform.visible import Visible
from kafka_eos_checks.conform.wire import Address, NoAnswer, Unreachable, Unsupported

from ..kept import keep_output
from .test_behaviours import VERSION_2
from .test_conform import MACHINES, call, coordinators, leaders, served

pytestmark = pytest.mark.usefixtures("one_processor")
NOTHING = Commands(stop="true", start="true")


@pytest.fixture(autouse=True)
def kept(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test reads of the output is compared whole."""
    keep_output(capsys, tmp_path, monkeypatch)


def quotient(name: str) -> Quotient:
    return explored(next(each for each in MECHANISMS if each.name == name), VERSION_2)


def state_after(graph: Quotient, edge: Edge) -> Visible:
    state = graph.initial()
    for request in edge.path:
        given = asked(state, request)
        assert given is not None
        state = step_of(graph.mechanism, state, given).outcomes[0][1]
    return state


# --- the machine after a restart -------------------------------------------------------------------------------------


def test_a_restart_keeps_the_log_and_its_producers_and_forgets_the_leaders_questions() -> None:
    graph = quotient("transaction")
    refused = next(edge for name, edge in graph.edges.items() if name.endswith("closed, no batch: Produce(gap)"))
    before = state_after(graph, refused)
    after = before.restarted()
    assert before.data.state.questions(0).lowest_sequence == 1
    assert after.data.state.questions(0).lowest_sequence == -1
    assert after.data.state.log.producers == before.data.state.log.producers
    assert after.data.entries == before.data.entries
    assert after.coordinators == Map({"A": replace(before.known("A"), last_epoch=-1)})


def test_a_retry_of_a_request_for_an_epoch_is_fenced_after_a_restart() -> None:
    graph = quotient("transaction")
    again = next(
        edge for name, edge in graph.edges.items() if name.endswith("bumped before: InitProducerId(epoch - 1)")
    )
    before = state_after(graph, replace(again, path=again.path[:-1]))
    for state, code in ((before, "NONE"), (before.restarted(), "PRODUCER_FENCED")):
        given = asked(state, again.path[-1])
        assert given is not None
        assert [answer.error.name for answer, _ in step_of(graph.mechanism, state, given).outcomes] == [code]


def test_only_kafka_refuses_after_a_restart_a_retry_of_a_batch_before_the_last_one() -> None:
    graph = quotient("idempotence")
    found = {}
    for name, edge in graph.edges.items():
        if edge.request.detail in {"again", "the oldest remembered again"}:
            state = state_after(graph, replace(edge, path=edge.path[:-1])).restarted()
            given = asked(state, edge.request)
            assert given is not None
            step = step_of(graph.mechanism, state, given)
            found[name] = {answer.error.name: answer.known for answer, _ in step.outcomes}
            for _, after in step.outcomes:
                assert (after.before, after.since) == (None, ())
    oldest = [said for name, said in found.items() if "oldest" in name]
    last = [said for name, said in found.items() if "oldest" not in name]
    assert oldest == [{"NONE": "", "OUT_OF_ORDER_SEQUENCE_NUMBER": "one-batch-after-restart"}] * 2
    assert last == [{"NONE": ""}] * len(last) != []


# --- the graphs ------------------------------------------------------------------------------------------------------


def test_all_edges_get_a_restart_and_those_that_end_data_go_without_a_leader() -> None:
    graphs = [quotient(name) for name in ("transaction", "members")]
    restart, without = interrupted(graphs)
    assert (restart.mechanism.name, without.mechanism.name) == ("restart-transaction", "no-leader-transaction")
    assert [edge.name for edge in restart.edges.values()] == [f"restart-{name}" for name in graphs[0].edges]
    assert {edge.request.label(True) for edge in without.edges.values()} == {"EndTxn(commit)", "EndTxn(abort)"}
    assert all("Ongoing, data" in name for name in without.edges)
    assert len(without.edges) == 8
    assert {edge.mechanism for edge in without.edges.values()} == {without.mechanism}
    assert restart.plan(set(restart.edges), 1) == [len(edge.path) for edge in graphs[0].edges.values()]


# --- left open until the timeout -------------------------------------------------------------------------------------


def left_open(machines: Machines = MACHINES, version: int = 2, only: str = "timeout-") -> Report:
    """A report on transactions that are left open, of the mechanism commit."""
    settings = Settings(transactions=TransactionSettings(version=version), timeout_check_ms=50)
    with ServedCluster(settings=settings, machines=machines) as cluster:
        target = Target(bootstrap=cluster.bootstrap_servers, timeouts=True, seconds=1)
        session = open_session(target, [each for each in MECHANISMS if each.name == "commit"])
        try:
            return conform(session, [name for name in session.edges() if name.startswith(only)])
        finally:
            session.wire.close()


@pytest.mark.parametrize("version", [1, 2])
def test_the_reference_aborts_what_is_left_open(version: int) -> None:
    report = left_open(version=version)
    assert set(report.found) == {Found.CONFORMS}
    asked_after = {edge.request.api for edge in report.quotients[-1].edges.values()}
    assert asked_after >= {"InitProducerId", "TxnOffsetCommit", "EndTxn"}


def test_a_broker_that_leaves_transactions_open_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinators, "time_out", lambda *_: None)
    monkeypatch.setattr(Territory, "timeout_interval", lambda _: 0.1)
    report = left_open()
    assert set(report.found) == {Found.DIVERGES}
    told = {(each.allowed, each.observed) for result in report.differing() for each in result.differences}
    assert told == {("CompleteAbort, 2 s after the transaction began", "Ongoing")}


@pytest.mark.parametrize("error", [NoAnswer("late"), Unreachable("gone"), Unsupported("no")])
def test_a_coordinator_that_does_not_tell_whether_a_transaction_has_ended_is_no_end_of_the_run(
    error: Exception,
) -> None:
    def describe(_: str) -> None:
        raise error

    play: Any = SimpleNamespace(stage=SimpleNamespace(describe=describe))
    run: Any = SimpleNamespace(
        quotient=SimpleNamespace(mechanism=SimpleNamespace(transactional_ids=["A"])),
        results={},
        _result=lambda _edge, _play, reason: reason,
    )
    edge: Any = SimpleNamespace(name="timeout-edge")
    assert not Interrupting._is_aborted(run, edge, play, 0.0)
    assert run.results == {"timeout-edge": error}
    for state in ("Empty", "CompleteAbort", "CompleteCommit"):
        play.stage.describe = lambda _, state=state: {"TransactionState": state}
        assert Interrupting._is_aborted(run, edge, play, 0.0)


def test_a_broker_that_does_not_fence_whom_it_times_out_diverges() -> None:
    report = left_open(coordinators(AfterFence="AbortWithoutBump"), version=1)
    told = {each.what for result in report.differing() for each in result.differences}
    assert "coordinator of A" in told
    assert Found.CONFORMS not in report.found


def test_a_scenario_that_takes_longer_than_the_timeout_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "TIMEOUT_MS", 0)
    report = left_open()
    assert set(report.found) == {Found.UNKNOWN}
    reasons = {result.reason for result in report.results.values()}
    assert "on the way to it more than 0 s pass, the timeout of the transaction" in reasons
    assert all(reason.startswith("on the way to it") for reason in reasons), "the timeout may come before an answer"


@pytest.mark.parametrize(("late_plays", "found"), [(PLAYS - 1, Found.CONFORMS), (PLAYS, Found.DIVERGES)])
def test_what_differs_after_another_timeout_is_played_again(
    late_plays: int, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, after = [0.0], Interrupting._after
    plays: dict[str, int] = {}

    def late(self: Interrupting, edge: Edge, play: Play, early: tuple[Difference, ...]) -> Result:
        """A play that takes longer than its timeout, and differs."""
        plays[edge.name] = plays.get(edge.name, 0) + 1
        if plays[edge.name] > late_plays:
            return after(self, edge, play, early)
        passed[0] += 2 * play.stage.timeout_ms / 1000
        return Result(edge=edge, found=Found.DIVERGES)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0], sleep=time.sleep)
    monkeypatch.setattr(outages, "time", clock)
    monkeypatch.setattr(Interrupting, "_after", late)
    report = left_open(only="timeout-commit: Ongoing, offsets, partition: same epoch, open, pending: EndTxn(commit)")
    assert set(report.found) == {found}
    assert set(plays.values()) == {PLAYS}


@pytest.mark.parametrize(("told", "seconds"), [([{"Value": "1500"}], 1.5), ([{"Value": None}], 10.0), ([], 10.0)])
def test_the_interval_in_which_timeouts_are_noticed_is_the_brokers(told: list[Any], seconds: float) -> None:
    def ask(api: str, row: Any, at: Address | None = None) -> Any:
        if api == "Metadata":
            return {"Brokers": [{"NodeId": 7, "Host": "h", "Port": 1}]}
        [resource] = row["Resources"]
        assert resource["ConfigurationKeys"] == ["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
        return {"Results": [{"Configs": told}]}

    wire: Any = SimpleNamespace(ask=ask)
    assert Territory(wire).timeout_interval() == seconds


# --- stop and start --------------------------------------------------------------------------------------------------


@dataclass
class Told:
    """A cluster that says what it is told to say.

    Attributes:
        leaders: the leaders of all partitions, one list after the other; the last one stays.
        brokers: ports by node id.
    """

    leaders: list[Any]
    brokers: dict[int, int]
    bootstrap: Address = field(default=Address("h", 1))
    closed: int = 0

    def ask(self, api: str, row: Any, at: Address | None = None) -> Any:  # noqa: ARG002 - as Wire's
        if not row["Topics"]:
            return {"Brokers": [{"NodeId": node, "Host": "h", "Port": port} for node, port in self.brokers.items()]}
        said = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
        if isinstance(said, Exception):
            raise said
        return {"Topics": [{"Partitions": [{"LeaderId": leader} for leader in said]}]}

    def close(self) -> None:
        self.closed += 1


def outages_of(told: Told, commands: Commands = NOTHING) -> Outages:
    wire: Any = told
    return Outages(wire, commands)


def test_the_last_broker_is_stopped_and_another_one_is_asked_meanwhile() -> None:
    named = Commands(stop="stop {node}", start="start {node}")
    told = Told([[]], {1: 1, 2: 2, 3: 3})
    found = outages_of(told, named)
    assert (found.node, found.address, found.is_alone, told.bootstrap) == (3, Address("h", 3), False, Address("h", 1))
    told = Told([[]], {1: 1, 2: 2}, bootstrap=Address("h", 2))
    assert (outages_of(told, named).node, told.bootstrap) == (1, Address("h", 2))
    told = Told([[]], {1: 1, 2: 2}, bootstrap=Address("h", 2))
    assert (outages_of(told, replace(NOTHING, node=2)).node, told.bootstrap) == (2, Address("h", 1))
    alone = outages_of(Told([[]], {4: 1}))
    assert (alone.node, alone.is_alone) == (4, True)


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (NOTHING, r"the brokers 1, 2: write \{node\} into --stop and --start"),
        (Commands(stop="stop {node}", start="start it"), "or say with --node"),
        (replace(NOTHING, node=7), "--node 7: the cluster has the brokers 1, 2"),
    ],
)
def test_commands_that_name_no_broker_are_refused(commands: Commands, said: str) -> None:
    with pytest.raises(OutageFailed, match=said):
        outages_of(Told([[]], {1: 1, 2: 2}), commands)


def test_an_outage_begins_when_the_broker_leads_nothing_and_ends_when_it_leads_again(tmp_path: Path) -> None:
    file = tmp_path / "said"
    told = Told(
        [[3, 3], NoAnswer("late"), [3, -1], [-1, -1], [-1, 3], NoAnswer("not yet"), [3, 3], ["never asked"]], {}
    )
    told.brokers = {1: 1, 3: 3}
    commands = Commands(stop=f"echo stop {{node}} >> {file}", start=f"echo start {{node}} >> {file}")
    with outages_of(told, commands).outage(["t"]):
        assert file.read_text() == "stop 3\n"
        assert told.leaders[0] == [-1, 3]
        assert told.closed == 1  # the connections of before are none any more
    assert file.read_text() == "stop 3\nstart 3\n"
    assert told.leaders == [["never asked"]]
    assert told.closed == 2


def test_a_broker_that_is_alone_is_down_when_nobody_answers() -> None:
    told = Told([[1], NoAnswer("closing"), Unreachable("gone"), Unreachable("starting"), [1]], {1: 1})
    with outages_of(told).outage(["t"]):
        assert len(told.leaders) == 2


def test_a_broker_that_is_not_alone_is_not_down_because_another_one_is_unreachable() -> None:
    told = Told([Unreachable("another"), [2], [1], [2]], {1: 1, 2: 2})
    with outages_of(told, replace(NOTHING, node=2)).outage(["t"]):
        assert told.leaders == [[2]]


def test_a_command_that_fails_says_what_it_said_and_the_broker_is_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    commands = Commands(stop="echo no such unit >&2; exit 5", start=f"touch {started}")
    with (
        pytest.raises(OutageFailed, match=r"--stop: 'echo .* exit 5' ended with 5: no such unit"),
        outages_of(Told([[1]], {1: 1}), commands).outage(["t"]),
    ):
        raise AssertionError("nothing was stopped")
    assert started.exists()


def test_a_broker_that_goes_on_or_does_not_come_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.05)
    with (
        pytest.raises(OutageFailed, match=r"--stop: broker 1 is still there after 0.05 s: it still answers"),
        outages_of(Told([[1]], {1: 1})).outage(["t"]),
    ):
        raise AssertionError("nothing was stopped")
    with (
        pytest.raises(OutageFailed, match=r"--start: broker 1 does not lead its partitions after 0.05 s: gone"),
        outages_of(Told([Unreachable("gone")], {1: 1})).outage(["t"]),
    ):
        pass
    with (
        pytest.raises(OutageFailed, match=r"partitions after 0.05 s: Metadata names -1, 2 as their leader"),
        outages_of(Told([[2], [-1, 2]], {1: 1, 2: 2}), replace(NOTHING, node=1)).outage(["t"]),
    ):
        pass


def test_a_command_may_leave_a_process_behind_but_has_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    background = Commands(stop="true", start="sleep 20 & echo $!")
    with outages_of(Told([Unreachable("gone"), [1]], {1: 1}), background).outage(["t"]):
        pass
    assert time.monotonic() - began < 15
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.3)
    with (
        pytest.raises(OutageFailed, match=r"--stop: 'sleep 1' has not ended after 0.3 s"),
        outages_of(Told([[1]], {1: 1}), Commands(stop="sleep 1", start="true")).outage(["t"]),
    ):
        raise AssertionError("nothing was stopped")


# --- a cluster of the reference --------------------------------------------------------------------------------------


def report_on(
    cluster: ServedCluster,
    patterns: Collection[str],
    monkeypatch: pytest.MonkeyPatch,
    outage: Callable[[Outages], Any],
    node: int = 1,
) -> Report:
    """The report on the edges whose names match, with outages that a test makes."""

    @contextmanager
    def made(self: Outages, topics: Collection[str]) -> Iterator[None]:
        assert topics
        with outage(self):
            yield

    monkeypatch.setattr(Outages, "outage", made)
    mechanisms = [each for each in MECHANISMS if any(f"-{each.name}:" in pattern for pattern in patterns)]
    target = Target(
        bootstrap=cluster.bootstrap_servers.split(",")[0], commands=Commands(stop="stop", start="start", node=1)
    )
    session = open_session(target, mechanisms)
    try:
        wanted = {name for name in session.edges() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}
        return conform(session, wanted)
    finally:
        session.wire.close()


def restarts(cluster: ServedCluster, then: Callable[[Any], None] | None = None) -> Callable[[Outages], Any]:
    @contextmanager
    def outage(found: Outages) -> Iterator[None]:
        yield
        cluster.restart()
        if then is not None:
            cluster.call(then)
        found.wire.close()

    return outage


@dataclass
class Calls:
    """Calls that a test counts: how often, and of what they returned."""

    count: int = 0
    returned: list[Any] = field(default_factory=list)

    def of(self, owner: type, method: str, monkeypatch: pytest.MonkeyPatch) -> "Calls":
        called = getattr(owner, method)

        def counted(*arguments: Any) -> Any:
            self.count += 1
            self.returned.append(called(*arguments))
            return self.returned[-1]

        monkeypatch.setattr(owner, method, counted)
        return self


def test_nobody_sees_a_restart_of_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "AT_ONCE", 30)
    restarted = Calls().of(Visible, "restarted", monkeypatch)
    forgotten = Calls().of(Places, "forget", monkeypatch)
    stages = Calls().of(Territory, "stage_on", monkeypatch)
    with served(data=tmp_path / "data") as cluster:
        report = report_on(
            cluster,
            ["restart-commit: *", "restart-idempotence: *again*", "restart-transaction: *bumped before: Init*"],
            monkeypatch,
            restarts(cluster),
        )
    assert report.found == {Found.CONFORMS: 104}
    assert report.counts.scenarios == 104
    assert report.counts.observations > 100
    assert report.left == []
    assert restarted.count == 2 * 104  # with and without what coordinators may forget
    assert forgotten.count >= 2 * 3  # two in each outage
    assert {(stage.timeout_ms, stage.session_ms) for stage in stages.returned} == {(OPEN_MS, OPEN_MS)}


def keep_last_batches(server: Any) -> None:
    """Keep of each producer what a snapshot of Kafka keeps."""

    def kept(known: ProducerState) -> ProducerState:
        return replace(known, batches=known.batches[-1:])

    for leader in server.cluster.leaders():
        log = leader.state.log
        producers = Map({producer_id: kept(known) for producer_id, known in log.producers.items()})
        leader.state = replace(leader.state, log=replace(log, producers=producers))


def test_a_broker_that_remembers_one_batch_after_a_restart_differs_as_kafka_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(data=tmp_path / "data") as cluster:
        report = report_on(cluster, ["restart-idempotence: *again*"], monkeypatch, restarts(cluster, keep_last_batches))
    assert report.found.keys() == {Found.CONFORMS, Found.KNOWN}
    [(name, known)] = report.known().items()
    assert (name, len(known)) == ("one-batch-after-restart", 2)
    assert {result.edge.request.detail for result in known} == {"the oldest remembered again"}
    told = story(known[0], report.client)
    assert "broker 1 is stopped and started again" in told
    assert "the oldest remembered again, P): OUT_OF_ORDER_SEQUENCE_NUMBER" in told


def waiting(cluster: ServedCluster, seconds: float) -> Callable[[Outages], Any]:
    """An outage in which no marker is written for so long, by the clock of the cluster."""

    def hold(server: Any) -> None:
        served_cluster = server.cluster
        for transactional_id in list(served_cluster.transactions.known):
            served_cluster.delay_markers(transactional_id, served_cluster.now + round(seconds * 1000))

    @contextmanager
    def outage(_: Outages) -> Iterator[None]:
        if seconds:
            cluster.call(hold)
        yield
        cluster.advance(seconds + 1)

    return outage


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a coordinator that completes what it has to keep."""
    monkeypatch.setattr(outages, "COMPLETING_SECONDS", 0.1)


def test_a_coordinator_that_waits_for_a_leader_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = Calls().of(Territory, "stage_on", monkeypatch)
    with served(brokers=2) as cluster:
        report = report_on(cluster, ["no-leader-reading: *"], monkeypatch, waiting(cluster, 30))
    assert report.found == {Found.CONFORMS: 12}
    assert report.counts.unread == set()
    assert stages.count == 12
    for stage in stages.returned:  # the partition is on broker 1, and neither coordinator is
        leader = stage.places.leader(stage.topic, stage.partition)
        coordinators = {stage.places._known["coordinator", stage.transactional_id(name), 1] for name in "AB"}
        assert leader not in coordinators


@pytest.mark.parametrize(("back", "found"), [(1, {Found.CONFORMS}), (2, {Found.CONFORMS, Found.DIVERGES})])
def test_a_coordinator_may_remember_the_epoch_before_the_present_one_over_a_restart_and_no_other(
    back: int, found: set[Found], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: dict[str, int] = {}

    def keep(server: Any) -> None:
        for name, known in server.cluster.transactions.known.items():
            before[name] = known.machine.metadata.last_epoch

    def put_back(server: Any) -> None:
        for name, known in server.cluster.transactions.known.items():
            if before[name] >= 0:
                metadata = replace(known.machine.metadata, last_epoch=known.machine.metadata.epoch - back)
                known.machine = replace(known.machine, metadata=metadata)

    with served(data=tmp_path / "data") as cluster:

        @contextmanager
        def outage(_: Outages) -> Iterator[None]:
            cluster.call(keep)
            with restarts(cluster, put_back)(_):
                yield

        report = report_on(cluster, ["restart-transaction: Empty, bumped before: Init*"], monkeypatch, outage)
    assert set(report.found) == found
    assert {"epoch - 1", "epoch - 2"} <= {result.edge.request.whose for result in report.results.values()}


def refusing(monkeypatch: pytest.MonkeyPatch, error: Exception, asks: Callable[[Request], bool]) -> None:
    """Let a step fail."""
    taken = Play.take

    def take(self: Play, step: Any, *, read_back: bool) -> None:
        if asks(step.asked.request):
            raise error
        taken(self, step, read_back=read_back)

    monkeypatch.setattr(Play, "take", take)


def test_what_is_not_answered_in_an_outage_is_unknown_and_the_others_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusing(monkeypatch, NoAnswer("late"), lambda request: request.detail == "abort")
    with served(brokers=2) as cluster:
        report = report_on(cluster, ["no-leader-reading: *"], monkeypatch, waiting(cluster, 30))
    assert report.found == {Found.CONFORMS: 6, Found.UNKNOWN: 6}
    assert {each.reason for each in report.results.values() if each.found is Found.UNKNOWN} == {"late"}


@pytest.mark.parametrize(
    ("error", "found"), [(NoAnswer("late"), Found.UNKNOWN), (Unsupported("no"), Found.UNSUPPORTED)]
)
def test_a_scenario_that_cannot_be_led_up_to_its_last_request_is_left(
    error: Exception, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, error, lambda request: request.action == "Produce")
    left = Calls().of(Stage, "leave", monkeypatch)
    with served(brokers=2) as cluster:
        report = report_on(cluster, ["no-leader-reading: *"], monkeypatch, waiting(cluster, 30))
    assert report.found == {found: 12}
    assert {each.reason for each in report.results.values()} == {
        f"on the way to it, Produce(next, {n}): {error}" for n in "AB"
    }
    assert left.count == 12


@pytest.mark.parametrize(("seconds", "found"), [(0.0, Found.DIVERGES), (30.0, Found.UNKNOWN)])
def test_what_was_seen_in_the_outage_stays_a_difference_if_nothing_can_be_read_after_it(
    seconds: float, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, NoAnswer("late"), lambda request: request.action == SETTLE)
    with served(brokers=2) as cluster:
        report = report_on(cluster, ["no-leader-reading: open: A: *"], monkeypatch, waiting(cluster, seconds))
    assert report.found == {found: 2}


def test_the_state_after_the_outage_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(_: Play) -> None:
        raise Diverged([Difference(what="log", allowed="a marker", observed="none")], answer=False)

    monkeypatch.setattr(Play, "compare_state", compare)
    with served(brokers=2) as cluster:
        report = report_on(cluster, ["no-leader-reading: open: A: *"], monkeypatch, waiting(cluster, 30))
    assert report.found == {Found.DIVERGES: 2}
    assert {each.differences[0].what for each in report.results.values()} == {"log"}


def test_a_coordinator_that_waits_for_a_moment_only_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "COMPLETING_SECONDS", 2.0)
    with served(brokers=2) as cluster:
        report = report_on(cluster, ["no-leader-reading: open: A: *"], monkeypatch, waiting(cluster, 0.5))
    assert report.found == {Found.DIVERGES: 2}


def test_a_recorded_difference_is_known_after_a_restart_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = leaders(AcceptsUnknownProducer="AnySequenceOnVirginPartition")
    with served(machines=machines, data=tmp_path / "data") as cluster:
        report = report_on(cluster, ["restart-idempotence: *empty partition: *gap*"], monkeypatch, restarts(cluster))
    assert set(report.found) == {Found.KNOWN}
    assert {each.known for each in report.results.values()} == {"first-sequence"}


def test_a_coordinator_that_completes_without_a_leader_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(brokers=2) as cluster:
        report = report_on(cluster, ["no-leader-reading: *"], monkeypatch, waiting(cluster, 0))
    assert report.found == {Found.DIVERGES: 12}
    first = report.kinds()[0][0]
    assert [each.what for each in first.differences] == ["coordinator of A"]
    told = story(first, report.client)
    assert "the spec: PrepareCommit, with the partition in it, until the partition has a leader" in told
    assert "the broker: CompleteCommit, producer 0 epoch 1, nothing in it" in told
    assert "no-leader-no-marker" in told


def test_a_coordinator_that_waits_without_the_partition_diverges() -> None:
    graph = quotient("reading")
    edge = next(edge for name, edge in graph.edges.items() if name.endswith("open: A: EndTxn(commit, A)"))
    [without] = [each for each in interrupted([graph]) if each.kind == "no-leader"]
    told: dict[str, Any] = {"TransactionState": "PrepareCommit", "Topics": []}
    stage: Any = SimpleNamespace(topic="t", partition=3, describe=lambda _: told, described=lambda _: "what it says")
    play = Play(without, stage, state_after(graph, edge), 0.0, Counts())
    unused: Any = None
    runner = Interrupting(quotient=without, new_stage=unused, territory=unused, outages=unused)
    for others in ([], [{"Topic": "t", "Partitions": [2]}], [{"Topic": "u", "Partitions": [3]}]):
        told["Topics"] = others
        [found] = runner._does_not_wait(edge, play)
        assert (found.what, found.observed) == ("coordinator of A", "what it says")
    told["Topics"] = [{"Topic": "t", "Partitions": [3]}]
    assert list(runner._does_not_wait(edge, play)) == []
    told["TransactionState"] = "PrepareAbort"
    assert list(runner._does_not_wait(edge, play)) != []


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (NoAnswer("late"), Found.UNKNOWN),
        (Unreachable("gone"), Found.UNKNOWN),
        (Unsupported("not offered"), Found.UNSUPPORTED),
    ],
    ids=["no answer", "unreachable", "unsupported"],
)
def test_of_a_coordinator_that_tells_nothing_in_the_outage_nobody_says_that_it_waits(
    error: Exception, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> Iterator[Difference]:
        raise error

    monkeypatch.setattr(Interrupting, "_does_not_wait", silent)
    with served(brokers=2) as cluster:
        report = report_on(cluster, ["no-leader-reading: open: A: *"], monkeypatch, waiting(cluster, 30))
    assert report.found == {found: 2}
    assert {each.reason for each in report.results.values()} == {f"the coordinator while there is no leader: {error}"}
    assert not report.conforms


def test_after_an_outage_every_scenario_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Calls().of(Stage, "leave", monkeypatch)
    with served(brokers=2) as cluster:
        report = report_on(cluster, ["no-leader-reading: open: A: *"], monkeypatch, waiting(cluster, 30))
    assert left.count == report.counts.scenarios == 2


def test_one_scenario_is_repeated_with_an_outage_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outage = restarts(served_cluster := ServedCluster(data=tmp_path / "data"))

    @contextmanager
    def made(self: Outages, topics: Collection[str]) -> Iterator[None]:
        with outage(self):
            yield

    monkeypatch.setattr(Outages, "outage", made)
    with served_cluster:
        target = Target(bootstrap=served_cluster.bootstrap_servers, commands=NOTHING)
        session = open_session(target, [each for each in MECHANISMS if each.name == "commit"])
        edge = next(edge for name, edge in session.edges().items() if name.startswith("restart-commit: Ongoing"))
        try:
            result = repeat(session, edge)
        finally:
            session.wire.close()
    assert (result.edge, result.found) == (edge, Found.CONFORMS)
    assert "broker 1 is stopped and started again" in [each.label for each in result.scenario]


def test_a_cluster_of_one_broker_has_no_partition_without_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as cluster:
        report = report_on(cluster, ["no-leader-reading: *"], monkeypatch, waiting(cluster, 30))
    assert report.found == {Found.UNSUPPORTED: 12}
    assert {result.reason.partition(":")[0] for result in report.results.values()} == {"no-leader"}


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["--stop", "true"], ["--start", "true"], ["--node", "1"]], ids=["stop", "start", "node"]
)
def test_half_of_an_outage_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with served() as cluster:
        assert call(cluster, *arguments) == 2
    assert "--stop and --start belong together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "graphs"),
    [
        ("no-leader-reading: *", 1),
        ("restart-commit-12ab34", 1),
        ("restart-commit: *", 1),
        ("timeout-commit: *", 1),
        ("commit: *", 1),
        ("restart-*", len(MECHANISMS)),
        ("no-leader*", len(MECHANISMS)),
    ],
)
def test_only_the_graphs_that_a_pattern_can_mean_are_explored(pattern: str, graphs: int) -> None:
    assert len(_mechanisms([pattern])) == graphs


def test_a_dry_run_lists_the_graphs_with_outages(capsys: pytest.CaptureFixture[str]) -> None:
    with served() as cluster:
        assert call(cluster, "--stop", "true", "--start", "true", "--dry-run", "--only", "restart-commit: *") == 0
    said = capsys.readouterr().out
    assert "restart-commit: the broker restarts before the last request" in said
    assert "45 edges and 2 internal ones" in said


def test_a_server_is_killed_and_started_by_command_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [port] = free_ports(1)
    pid, serve = tmp_path / "pid", [sys.executable, "-m", "kafka_eos_checks.cli", "serve", "--port", str(port)]
    serve += ["--data", str(tmp_path / "data")]
    start = f"{shlex.join(serve)} > {tmp_path / 'output'} 2>&1 & echo $! > {pid}"
    subprocess.run(start, shell=True, check=True)  # noqa: S602 - our own
    try:
        for _ in range(300):
            output = tmp_path / "output"
            if output.exists() and "ready" in output.read_text(encoding="utf-8"):
                break
            time.sleep(0.05)
        arguments = ["--stop", f"kill -9 $(cat {pid})", "--start", start, "--only", "restart-commit: Ongoing*EndTxn*"]
        code = cli.main(["conform", "--bootstrap", f"127.0.0.1:{port}", *arguments])
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(pid.read_text()), signal.SIGKILL)
    said = capsys.readouterr()
    assert code == 0, said
    assert "restart-commit" in said.out


# --- real brokers ----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(("release", "waits"), [("4.4.0", False), ("4.3.0", False), ("3.9.1", True)])
def test_of_real_brokers_kafka_4_does_not_wait_for_a_leader_and_none_remembers_more_than_a_batch(
    release: str, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not have_jars(release) or shutil.which("java") is None:
        pytest.skip(f"no jars of Kafka {release}, or no Java; make test-all fetches the jars")
    with Cluster(tmp_path / "cluster", size=3, kafka=release) as cluster:

        def run(found: Outages, option: str, _: str) -> None:
            broker = cluster[found.node]
            (broker.stop if option == "--stop" else broker.start)()

        monkeypatch.setattr(Outages, "_run", run)
        target = Target(
            bootstrap=f"127.0.0.1:{cluster.brokers[0].port}", commands=Commands(stop="{node}", start="{node}")
        )
        mechanisms = [each for each in MECHANISMS if each.name in {"idempotence", "reading"}]
        session = open_session(target, mechanisms)
        remembered = [name for name in session.edges() if "restart-idempotence" in name and "remembered again" in name]
        without = [name for name in session.edges() if name.startswith("no-leader-reading")]
        try:
            report = conform(session, {*remembered, *without})
        finally:
            session.wire.close()
    assert {report.results[name].known for name in remembered} == {"one-batch-after-restart"}
    assert {report.results[name].found for name in without} == {Found.CONFORMS if waits else Found.DIVERGES}
    for name in () if waits else without:
        assert {"log"} < {difference.what for difference in report.results[name].differences}
    assert report.left == []
