"""``kafka-eos conform`` against the reference's server: it conforms, and with a changed rule it diverges."""

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from xml.etree import ElementTree

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.consumer_group import ConsumerGroup
from kafka_eos.machines.group_coordinator import GroupCoordinator
from kafka_eos.machines.leader import LeaderRules, Rules
from kafka_eos.machines.producer_state import Log
from kafka_eos.machines.read_committed import ReadCommitted
from kafka_eos.machines.transactional_partition import ReadablePartition
from kafka_eos.server import consumer_groups
from kafka_eos.server.cluster import CONSUMER_OFFSETS, INTERNAL_TOPICS, Cluster, Machines, Settings
from kafka_eos.server.groups import ClassicGroup
from kafka_eos.server.groups import Groups as ServedGroups
from kafka_eos.server.handlers import logs, offsets, transactions
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.server.transactions import Coordinators, ServedCoordinator, TransactionSettings
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.brokers.brokers import free_ports
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.conform import command, stage, territory
from kafka_eos_checks.conform import session as session_module
from kafka_eos_checks.conform.beyond import TIMED, WITH_UNKNOWN
from kafka_eos_checks.conform.known import known_differences
from kafka_eos_checks.conform.mechanisms import MECHANISMS, MEMBERS, TOO_LONG, TOO_SHORT
from kafka_eos_checks.conform.observation import LOG, STABLE
from kafka_eos_checks.conform.result import Report, diagram, story, to_json, write_json, write_junit
from kafka_eos_checks.conform.run import IN_SECOND, MARKED_AGAIN, OF_SECOND_GROUP, PLAYS, Found
from kafka_eos_checks.conform.session import Session, Target, Unusable, conform, open_session
from kafka_eos_checks.conform.stage import Reply, Stage
from kafka_eos_checks.conform.territory import PARTITIONS
from kafka_eos_checks.conform.wire import Address, Connection, Unreachable
from kafka_eos_checks.mutants.rules import mutated

from ..kept import keep_output

pytestmark = pytest.mark.usefixtures("one_processor")
MACHINES = Machines()


@pytest.fixture(autouse=True)
def kept(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test reads of the output is compared whole."""
    keep_output(capsys, tmp_path, monkeypatch)


@contextmanager
def served(
    version: int = 2, machines: Machines = MACHINES, brokers: int = 1, data: Path | None = None
) -> Iterator[ServedCluster]:
    settings = Settings(transactions=TransactionSettings(version=version))
    with ServedCluster(brokers, settings=settings, machines=machines, data=data) as cluster:
        yield cluster


def names(cluster: ServedCluster) -> set[str]:
    """The existing topics and groups."""

    def found(server: Any) -> set[str]:
        return {*server.cluster.topics, *server.cluster.groups.known} - set(INTERNAL_TOPICS)

    return cluster.call(found)


def report_on(cluster: ServedCluster, *mechanisms: str, only: str = "", **target: Any) -> Report:
    """A report on the edges whose names have some text, of some mechanisms or of all."""
    chosen = [each for each in MECHANISMS if not mechanisms or each.name in mechanisms]
    session = open_session(Target(bootstrap=cluster.bootstrap_servers.split(",")[0], **target), chosen)
    try:
        return conform(session, [name for name in session.edges() if only in name])
    finally:
        session.wire.close()


# --- the reference's server ------------------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The APIs that are asked for."""
    found: set[str] = set()
    ask = Connection.ask

    def watched(self: Connection, api: str, *rest: Any) -> Any:
        found.add(api)
        return ask(self, api, *rest)

    monkeypatch.setattr(Connection, "ask", watched)
    return found


@pytest.mark.parametrize(
    ("version", "mechanisms"), [(0, ("commit", "offsets")), (1, ("idempotence", "transaction")), (2, ())]
)
def test_the_reference_conforms_in_every_version_and_leaves_logs_that_the_audit_accepts(
    version: int, mechanisms: tuple[str, ...], sent: set[str], tmp_path: Path
) -> None:
    with served(version, data=tmp_path) as cluster:
        report = report_on(cluster, *mechanisms)
        assert report.asked == version
        assert report.found == {Found.CONFORMS: sum(len(quotient.edges) for quotient in report.quotients)}
        assert report.left == []
        assert names(cluster) == set()
    audited = run([tmp_path])
    assert [verdict.evidence for verdict in audited.verdicts if not verdict.ok or verdict.unknown] == []
    assert len(audited.verdicts) > 7, "rules over transactions, too"
    # every request stands for an action of the spec, or is named with its purpose
    of_spec = {request.api for mechanism in MECHANISMS for request in mechanism.all_requests()}
    assert not of_spec & stage.BESIDE.keys()
    assert sent <= of_spec | stage.BESIDE.keys()
    if not mechanisms:
        assert sent >= stage.BESIDE.keys() - {"SaslHandshake", "SaslAuthenticate"}  # test_wire.py logs in


def test_clients_of_version_1_conform_on_a_cluster_of_version_2_with_two_brokers() -> None:
    with served(brokers=2) as cluster:
        report = report_on(cluster, "commit", transaction_version=1)
        assert set(report.found) == {Found.CONFORMS}
        assert report.versions["EndTxn"] == 4


def test_clients_may_follow_version_0_on_a_cluster_of_version_2() -> None:
    with served() as cluster:
        session = open_session(Target(bootstrap=cluster.bootstrap_servers, transaction_version=0), [])
        session.wire.close()
    assert (session.asked, session.settings.client, session.settings.level) == (0, 1, 2)


@pytest.mark.thorough
def test_a_broker_without_verification_conforms_only_to_the_spec_without_verification() -> None:
    with served(1, Machines(leaders=LeaderRules(verification=False))) as cluster:
        assert set(report_on(cluster, "commit", verification=False).found) == {Found.CONFORMS}
        chosen = [each for each in MECHANISMS if each.name == "commit"]
        session = open_session(Target(bootstrap=cluster.bootstrap_servers, seconds=3), chosen)
        report = conform(session, {"commit: Empty, nothing, partition: unknown: TxnOffsetCommit"})
        session.wire.close()
        assert report.found == {Found.DIVERGES: 1}


# --- a rule is changed -----------------------------------------------------------------------------------------------


def leaders(**overrides: str) -> Machines:
    return Machines(leaders=LeaderRules(sequences=mutated(Log, overrides)))  # type: ignore[arg-type]


def partitions(**overrides: str) -> Machines:
    return Machines(leaders=LeaderRules(partition=mutated(ReadablePartition, overrides)))  # type: ignore[arg-type]


def coordinators(**overrides: str) -> Machines:
    return Machines(coordinator=mutated(ServedCoordinator, overrides))  # type: ignore[arg-type]


def members(**overrides: str) -> Machines:
    return Machines(consumer_group=mutated(ConsumerGroup, overrides))  # type: ignore[arg-type]


def groups(**overrides: str) -> Machines:
    return Machines(group=mutated(GroupCoordinator, overrides))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mechanism", "version", "machines", "edge", "what"),
    [
        ("idempotence", 2, leaders(IsDuplicate="NoDuplicateCache"), "ProduceOutside(again", "answer"),
        ("idempotence", 2, leaders(IsInSequence="NoSequenceCheck"), "ProduceOutside(gap", "answer"),
        ("transaction", 2, leaders(AcceptsUnknownProducer="AnySequenceOnVirginPartition"), "Produce(gap)", "answer"),
        ("commit", 1, coordinators(AfterFence="AbortWithoutBump"), "PrepareAbort: settle", "coordinator of A"),
        ("transaction", 2, coordinators(IsEpochToEnd="EndByAnyEpoch"), "EndTxn(commit, epoch + 1)", "answer"),
        ("reading", 2, partitions(LastStableOffset="HighWatermarkOnly"), "Produce(next, A)", "last stable offset"),
        ("reading", 1, partitions(IsIndexed="NothingIndexed"), "PrepareAbort", "given to read_committed"),
        ("commit", 2, groups(OffsetFetchError="NoRequireStable"), "TxnOffsetCommit", "offset of the group"),
        ("commit", 2, groups(CommittedAtMarker="MaterialisedOnAbort"), "PrepareAbort", "offset of the group"),
        ("offsets", 1, groups(TxnOffsetCommitError="NoGenerationCheck"), "of the generation before", "answer"),
        ("offsets", 2, groups(TxnOffsetCommitError="NoGenerationCheck"), "OffsetCommit(member of the next", "answer"),
        ("members", 2, members(MemberEpochError="StaleEpochIsTaken"), "OffsetCommit(second, epoch - 1)", "answer"),
        ("members", 1, members(ErrorInTransaction="StaleEpochIsTold"), "TxnOffsetCommit(first, epoch + 1", "answer"),
        ("marker", 1, partitions(IsOldMarker="AnyMarkerEpoch"), "WriteTxnMarkers(commit, epoch - 1)", "answer"),
        ("marker", 2, partitions(IsOldMarker="OwnEpochEnds"), "open: WriteTxnMarkers(commit)", "answer"),
        ("marker", 2, partitions(IsOldMarker="NoMarkerTwice"), "closed: WriteTxnMarkers(commit)", "answer"),
        ("marker", 2, partitions(IsOfOldCoordinator="AnyCoordinator"), "coordinator epoch - 1", "answer"),
        ("members", 2, members(IsFree="GivenBeforeRevoked"), "JoinConsumerGroup(first)", "members of the group"),
    ],
)
def test_a_broker_with_another_rule_diverges(
    mechanism: str, version: int, machines: Machines, edge: str, what: str
) -> None:
    with served(version, machines) as cluster:
        report = report_on(cluster, mechanism, only=edge if mechanism != "commit" else "")  # whole where that is small
    found = [result for result in report.differing() if result.found is Found.DIVERGES]
    assert any(edge in result.edge.name and what in {d.what for d in result.differences} for result in found)
    assert not report.conforms


# --- what is read back otherwise than clients mostly do ---------------------------------------------------------------


def _aborted_since_offset(patch: pytest.MonkeyPatch) -> None:
    """A response leaves out the aborted transactions that began before it."""
    overlaps = ReadCommitted.overlaps
    patch.setattr(
        ReadCommitted,
        "overlaps",
        lambda self, entry, position, upper: entry.first_offset >= position and overlaps(self, entry, position, upper),
    )


def _unstable_among_all(patch: pytest.MonkeyPatch) -> None:
    """Who asks for the offsets of all partitions is not told that one is unstable."""
    fetch = offsets._fetch_offsets
    patch.setattr(
        offsets,
        "_fetch_offsets",
        lambda cluster, request, group, stable: fetch(cluster, request, group, stable and group["Topics"] is not None),
    )


def _pending_without_require_stable(patch: pytest.MonkeyPatch) -> None:
    """Who does not ask for a stable offset is given one that a transaction may still abort."""
    fetch = ServedGroups.fetch

    def found(self: ServedGroups, name: str, partition: str, require_stable: bool, *topic: UUID) -> Any:
        group = self.known.get(name)
        for pending in group.machine.pending.values() if group is not None and not require_stable else ():
            if (place := pending.get(partition, -1)) >= 0:
                return ErrorCode.NONE, group.values[place]
        return fetch(self, name, partition, require_stable, *topic)

    patch.setattr(ServedGroups, "fetch", found)


def _timestamps_above_the_last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    """The offset of a timestamp is told a reader of committed data although it may not read it."""
    offset_at = logs._offset_at
    patch.setattr(
        logs,
        "_offset_at",
        lambda leader, timestamp, committed: offset_at(leader, timestamp, committed and timestamp < 0),
    )


def _timeout_of_the_first(patch: pytest.MonkeyPatch) -> None:
    """A coordinator keeps the timeout of the first producer that had the transactional.id."""
    init = Coordinators.init_producer_id

    def kept(self: Coordinators, name: str | None, timeout_ms: int, *rest: Any) -> Any:
        first = self.known[name].timeout_ms if name is not None and name in self.known else 0
        return init(self, name, first or timeout_ms, *rest)

    patch.setattr(Coordinators, "init_producer_id", kept)


@pytest.mark.parametrize(
    ("mechanism", "broken", "what"),
    [
        ("reading", _aborted_since_offset, "given to read_committed from later offsets"),
        ("reading", _timestamps_above_the_last_stable_offset, "read_committed offsets of timestamps"),
        ("commit", _unstable_among_all, "offset of the group among all"),
        ("commit", _pending_without_require_stable, "offset of the group without requireStable"),
        ("commit", _timeout_of_the_first, "coordinator of A"),
    ],
)
def test_a_broker_that_answers_only_the_usual_questions_right_diverges(
    mechanism: str, broken: Callable[[pytest.MonkeyPatch], None], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with served() as cluster:
        report = report_on(cluster, mechanism)
    found = [result for result in report.differing() if result.found is Found.DIVERGES]
    whats = {each.what for result in found for each in result.differences}
    # the words about a timestamp depend on which batches have the same one, and may differ in the second partition
    assert {each.removesuffix(IN_SECOND) for each in whats} == {what}


def _one_marker(patch: pytest.MonkeyPatch) -> None:
    """A coordinator leaves a marker out, and completes the transaction."""
    write = Cluster.write_marker
    patch.setattr(
        Cluster,
        "write_marker",
        lambda self, partition, *rest: (
            ErrorCode.NONE if int(partition.rpartition("-")[2]) % 2 else write(self, partition, *rest)
        ),
    )


def _second_marker(patch: pytest.MonkeyPatch, times: int, **changed: Any) -> None:
    """A coordinator writes some of its markers of data again, perhaps with another decision or epoch."""
    write, left = Cluster.write_marker, [times]

    def written(self: Cluster, partition: str, *rest: Any) -> ErrorCode:
        error = write(self, partition, *rest)
        if left[0] > 0 and not partition.startswith(CONSUMER_OFFSETS):
            left[0] -= 1
            named = dict(zip(("producer_id", "epoch", "commit", "coordinator_epoch", "version"), rest, strict=False))
            again = {name: change(named[name]) for name, change in changed.items()}
            write(self, partition, **{**named, **again})
        return error

    patch.setattr(Cluster, "write_marker", written)


@pytest.mark.parametrize(
    ("version", "only"),
    [
        (2, "transaction: Prepare"),
        (1, "reading: open: A, PrepareAbort of A"),
        (1, "timeout-transaction: Ongoing, data, partition: same epoch, open"),
    ],
)
def test_a_marker_that_is_written_again_now_and_then_is_no_divergence(
    version: int, only: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _second_marker(monkeypatch, PLAYS - 1)
    with served(version) as cluster:
        report = report_on(cluster, "transaction", "reading", only=only, timeouts=True)
    assert set(report.found) == {Found.CONFORMS}
    assert report.counts.disturbed > 0


@pytest.mark.parametrize(
    ("times", "changed", "reason"),
    [
        (1000, {}, MARKED_AGAIN),
        (1000, {"commit": lambda commit: not commit}, ""),
        (1000, {"epoch": lambda epoch: epoch + 1}, ""),
    ],
    ids=["always", "another decision", "another epoch"],
)
def test_a_broker_that_always_writes_two_markers_diverges(
    times: int, changed: dict[str, Callable[[Any], Any]], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _second_marker(monkeypatch, times, **changed)
    edge = "transaction: PrepareCommit, data: settle"
    with served() as cluster:
        report = report_on(cluster, "transaction", only=edge)
    result = report.results[edge]
    assert (result.found, result.reason) == (Found.DIVERGES, reason)
    assert {LOG, STABLE} <= {each.what for each in result.differences}
    assert report.counts.disturbed == (2 * PLAYS if reason else 0)


def test_a_transaction_that_is_decided_in_one_of_its_partitions_only_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    _one_marker(monkeypatch)
    edge = "reading: open: A, PrepareCommit of A, last entry: transactional A: settle"
    with served() as cluster:
        report = report_on(cluster, "reading", only=edge)
    result = report.results[edge]
    assert result.found is Found.DIVERGES
    told = {each.what: (each.allowed, each.observed) for each in result.differences}
    assert all(name.endswith(IN_SECOND) for name in told), "the first partition has its marker"
    assert told[f"{STABLE}{IN_SECOND}"] == ("2", "0")


def test_a_group_that_loses_one_of_two_offsets_of_a_transaction_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = ServedGroups.fetch

    def found(self: ServedGroups, name: str, partition: str, require_stable: bool, *topic: UUID) -> Any:
        is_lost = int(partition.rpartition("-")[2]) % 2
        return fetch(self, name, "never-0" if is_lost else partition, require_stable, *topic)

    monkeypatch.setattr(ServedGroups, "fetch", found)
    edge = "offsets: written: A, PrepareCommit of A: settle"
    with served() as cluster:
        report = report_on(cluster, "offsets", only=edge)
    assert report.results[edge].found is Found.DIVERGES
    told = {each.what: (each.allowed, each.observed) for each in report.results[edge].differences}
    assert told[f"offset of the group{IN_SECOND}"] == ("0", "-1")
    assert all(name.endswith(IN_SECOND) for name in told), "the first partition has its offset"


def test_a_batch_that_only_one_of_two_leaders_refuses_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Stage.ask
    refused = Reply(error=ErrorCode.INVALID_TXN_STATE)
    monkeypatch.setattr(Stage, "ask", lambda self, *rest: refused if self.partition == 1 else ask(self, *rest))
    edge = "reading: open: nothing, last entry: nothing: Produce(next, A)"
    with served() as cluster:
        report = report_on(cluster, "reading", only=edge)
    [difference] = report.results[edge].differences
    assert (difference.what, difference.allowed) == (f"answer{IN_SECOND}", "NONE (offset 0)")
    assert difference.observed == "INVALID_TXN_STATE"
    assert report.results[edge].scenario[-1].label == f"Produce(next, A){IN_SECOND}"


def test_a_broker_that_keeps_the_offsets_of_one_group_of_a_transaction_diverges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pending, first = ServedGroups._pending, dict[str, str]()

    def noted(group: Any, rows: Any, producer: str, place: int) -> None:
        if first.setdefault(producer, group.name) == group.name:
            pending(group, rows, producer, place)

    monkeypatch.setattr(ServedGroups, "_pending", staticmethod(noted))
    with served(1) as cluster:
        report = report_on(cluster, "commit")
    told = [each for result in report.differing() for each in result.differences]
    assert f"offset of the group{OF_SECOND_GROUP}" in {each.what for each in told}
    assert all(each.what.endswith(OF_SECOND_GROUP) for each in told), "the first group has its offset"


def test_a_broker_that_refuses_the_offsets_of_a_second_group_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Stage.ask
    refused = Reply(error=ErrorCode.INVALID_TXN_STATE)
    monkeypatch.setattr(Stage, "ask", lambda self, *rest: ask(self, *rest) if self.groups[0] == "group" else refused)
    edge = "commit: Empty, nothing, partition: unknown: TxnOffsetCommit"
    with served() as cluster:
        report = report_on(cluster, "commit", only=edge)
    result = report.results[edge]
    assert [each.what for each in result.differences] == [f"answer{OF_SECOND_GROUP}"]
    assert result.scenario[-1].label == f"TxnOffsetCommit{OF_SECOND_GROUP}"


# --- requests that cannot be granted, and those with other arguments than clients mostly give -------------------------


def _any_timeout(patch: pytest.MonkeyPatch) -> None:
    """A coordinator accepts every transaction timeout."""
    init = Coordinators.init_producer_id
    patch.setattr(
        Coordinators,
        "init_producer_id",
        lambda self, name, timeout_ms, *rest: init(
            self, name, min(max(timeout_ms, 1), self.settings.max_timeout_ms), *rest
        ),
    )


def _id_of_producer(patch: pytest.MonkeyPatch) -> None:
    """A leader asks about the transaction of the batch's producer, whichever transactional.id the request names."""
    added, verified = Coordinators.add_partitions, Coordinators.verify

    def owner(self: Coordinators, name: str, producer_id: int) -> str:
        ids = {known.machine.metadata.producer_id: each for each, known in self.known.items()}
        return ids.get(producer_id, name)

    patch.setattr(
        Coordinators,
        "add_partitions",
        lambda self, name, known, *rest: added(self, owner(self, name, known), known, *rest),
    )
    patch.setattr(
        Coordinators, "verify", lambda self, name, known, *rest: verified(self, owner(self, name, known), known, *rest)
    )


def _known_partition_is_added(patch: pytest.MonkeyPatch) -> None:
    """Of the partitions of a request those are added that exist."""
    added = transactions._add_partitions

    def add(cluster: Any, request: Any, given: Any, topics: list[Any], verify_only: bool) -> list[Any]:
        found = [
            {**topic, "Partitions": [each for each in topic["Partitions"] if each < PARTITIONS]} for topic in topics
        ]
        return added(cluster, request, given, found, verify_only)

    patch.setattr(transactions, "_add_partitions", add)


def _all_replicas_or_none(patch: pytest.MonkeyPatch) -> None:
    """A leader refuses batches that do not wait for its replicas."""
    admitted = logs._admitted

    def admit(cluster: Any, request: Any, *rest: Any) -> Any:
        refused = logs.Refused(ErrorCode.INVALID_REQUIRED_ACKS)
        return refused if request.row["Acks"] == 1 else admitted(cluster, request, *rest)

    patch.setattr(logs, "_admitted", admit)


@pytest.mark.parametrize(
    ("version", "broken", "mechanism", "request_", "allowed"),
    [
        (2, _any_timeout, "transaction", TIMED, "INVALID_TRANSACTION_TIMEOUT"),
        (2, _id_of_producer, "reading", "Produce(next, producer id of the other", "INVALID_PRODUCER_ID_MAPPING"),
        (1, _id_of_producer, "reading", "Produce(next, producer id of the other", "INVALID_PRODUCER_ID_MAPPING"),
        (1, _known_partition_is_added, "transaction", WITH_UNKNOWN, "OPERATION_NOT_ATTEMPTED"),
        (2, _all_replicas_or_none, "question", "Produce(next, acks=1)", "NONE (offset 0)"),
    ],
)
def test_a_broker_that_judges_only_the_usual_arguments_right_diverges(
    version: int,
    broken: Callable[[pytest.MonkeyPatch], None],
    mechanism: str,
    request_: str,
    allowed: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch)
    with served(version) as cluster:
        report = report_on(cluster, mechanism)
    found = [result for result in report.differing() if result.found is Found.DIVERGES]
    assert allowed in {each.allowed for result in found for each in result.differences}
    assert all(request_ in result.edge.name for result in found), "nothing else shows it"


def test_a_broker_that_allows_every_timeout_is_not_asked_for_one_that_it_does_not_allow() -> None:
    settings = Settings(transactions=TransactionSettings(max_timeout_ms=2**31 - 1))
    with ServedCluster(1, settings=settings) as cluster:
        report = report_on(cluster, "transaction", only=f"transaction: Unknown: {TIMED}")
    assert {result.edge.request.detail: result.found for result in report.results.values()} == {
        TOO_LONG: Found.UNSUPPORTED,
        TOO_SHORT: Found.CONFORMS,
    }


def _any_instance(patch: pytest.MonkeyPatch) -> None:
    """No static member is fenced."""
    patch.setattr(ClassicGroup, "instance_error", lambda *_: ErrorCode.NONE)


def _vouches_for_all(patch: pytest.MonkeyPatch) -> None:
    """A coordinator says of any partition that it is in the transaction."""
    patch.setattr(Coordinators, "verify", lambda *_: ErrorCode.NONE)


def _subscriptions_unread(patch: pytest.MonkeyPatch) -> None:
    """The offset of a topic is deleted although a member subscribes to it."""
    for group in (ClassicGroup, consumer_groups.FollowingGroup):
        patch.setattr(group, "is_subscribed_to", lambda *_: False)


def _pending_outlives_deletion(patch: pytest.MonkeyPatch) -> None:
    """A pending offset stays when the committed one is deleted."""
    patch.setattr(ServedGroups, "delete_offsets", lambda *_: None)


@pytest.mark.parametrize(
    ("mechanism", "edge", "broken", "what"),
    [
        ("static", "somebody else, as its instance", _any_instance, "answer"),
        ("static", "member, as another instance", _any_instance, "answer"),
        ("question", "CompleteCommit, nothing: VerifyPartitions", _vouches_for_all, "answer"),
        ("question", "Ongoing, data: VerifyPartitions(epoch + 1)", _vouches_for_all, "answer"),
        ("offsets", "nothing, a member: OffsetDelete", _subscriptions_unread, "answer"),
        ("members", ": members: OffsetDelete", _subscriptions_unread, "answer"),
        ("offsets", "A, no member: OffsetDelete", _pending_outlives_deletion, "offset of the group"),
        ("members", "no members, offsets pending: OffsetDelete", _pending_outlives_deletion, "offset of the group"),
    ],
)
def test_a_broker_with_another_answer_to_brokers_administrators_or_static_members_diverges(
    mechanism: str, edge: str, broken: Callable[[pytest.MonkeyPatch], None], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with served() as cluster:
        report = report_on(cluster, mechanism, only=edge)
    found = [result for result in report.differing() if edge in result.edge.name]
    assert {result.found for result in found} == {Found.DIVERGES}
    assert all(what in {each.what for each in result.differences} for result in found)


def test_a_divergence_shows_its_shortest_scenario_its_rule_and_a_diagram() -> None:
    with served(1, leaders(IsDuplicate="NoDuplicateCache")) as cluster:
        report = report_on(cluster, "idempotence")
    first = report.kinds()[0][0]
    told = story(first, report.client)
    assert [each.label for each in first.scenario][-2:] == ["ProduceOutside(next, P)", "ProduceOutside(again, P)"]
    assert "the spec: NONE (offset 0)\n    the broker: OUT_OF_ORDER_SEQUENCE_NUMBER" in told
    assert "Leader!IsRetry: The batch is in the log already" in told
    assert re.search(
        r"^  why: Leader!IsRetry.* \[spec/Leader.tla:\d+, reference/.*/leader.py:\d+\]$", told, re.MULTILINE
    )
    assert "request: Produce v11 {TransactionalId: None, " in told
    assert f"\n  response: {first.scenario[-1].response}\n  1. " in told
    assert told.splitlines()[-1].startswith(f"  {len(first.scenario)}. ")
    assert re.search(r"request: .*}, a batch of producer \d+ epoch 0 sequence 0, plain$", told, re.MULTILINE)
    drawn = ElementTree.fromstring(diagram(first))  # noqa: S314 - our own
    assert any("where the spec says" in text for text in drawn.itertext())


def test_a_recorded_difference_is_no_divergence() -> None:
    with served(2, leaders(AcceptsUnknownProducer="AnySequenceOnVirginPartition")) as cluster:
        report = report_on(cluster, "idempotence")
    assert report.conforms
    assert set(report.known()) == {"first-sequence"}
    assert {result.edge.request.detail for result in report.known()["first-sequence"]} == {
        "gap",
        "the last before the wrap",
    }


@pytest.mark.parametrize(
    ("overrides", "conforms"),
    [
        ({"SequenceError": "LowestSequenceCounts", "AskedAfterBatch": "EveryBatchUsesGuardUp"}, True),
        ({"SequenceError": "LowestSequenceCounts"}, False),  # it refuses batches that no Kafka refuses
    ],
)
def test_a_refusal_of_kafka_is_excused_only_where_kafka_refuses(overrides: dict[str, str], conforms: bool) -> None:
    machines = Machines(leaders=LeaderRules(leader=mutated(Rules, overrides)))  # type: ignore[arg-type]
    with served(1, machines) as cluster:
        report = report_on(cluster, "transaction")
    assert set(report.known()) == {"lowest-sequence"}
    assert report.conforms is conforms
    for result in report.differing():
        assert (result.edge.request.api, result.differences[0].observed) == ("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")


# --- files -----------------------------------------------------------------------------------------------------------


def test_json_and_junit_have_every_edge(tmp_path: Path) -> None:
    with served(2, groups(OffsetFetchError="NoRequireStable")) as cluster:
        report = report_on(cluster, "commit", "idempotence")
    write_json(tmp_path / "r.json", [report])
    write_junit(tmp_path / "r.xml", report)
    [row] = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert len(row["results"]) == sum(row["found"].values()) == len(report.results)
    worst = next(each for each in row["results"] if each["found"] == "diverges")
    assert {"id", "name", "kips", "allowed", "differences", "scenario", "rules"} <= worst.keys()
    suites = ElementTree.parse(tmp_path / "r.xml").getroot()  # noqa: S314 - our own
    assert [suite.get("name") for suite in suites] == ["idempotence", "commit"]
    commits = suites.find("testsuite[@name='commit']")
    assert commits is not None
    assert len(commits.findall("testcase/failure")) == int(commits.get("failures", "0")) > 0


# --- the command line ------------------------------------------------------------------------------------------------


def call(cluster: ServedCluster, *arguments: str) -> int:
    return main(["conform", "--bootstrap", cluster.bootstrap_servers, *arguments])


def test_the_command_prints_which_edges_conform(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed, observe = [], stage.Stage.observe

    def watched(self: stage.Stage, *rest: Any, **more: Any) -> Any:
        observed.append(self)
        return observe(self, *rest, **more)

    monkeypatch.setattr(stage.Stage, "observe", watched)
    with served() as cluster:
        assert call(cluster, "--only", "commit: *TxnOffsetCommit*", "--json", str(tmp_path / "r.json")) == 0
    told = capsys.readouterr().out
    assert "TxnOffsetCommit" in told
    assert "edges at transaction version 2 (the cluster's: 2)" in told
    assert f", {len(observed)} states read back, " in told
    [row] = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert {each["kips"] for each in row["results"]} == {"KIP-447, KIP-890 part 2"}


def test_the_command_ends_with_1_for_a_divergence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with served(2, leaders(IsDuplicate="NoDuplicateCache")) as cluster:
        assert call(cluster, "--only", "idempotence: *again*", "--diagrams", str(tmp_path)) == 1
    told = capsys.readouterr()
    at_once = re.findall("^diverges: (.+)$", told.err, re.MULTILINE)
    assert len(at_once) > 1
    assert len(set(at_once)) == len(at_once)
    assert any(f"  {name}\n" in told.out for name in at_once)
    assert list(tmp_path.glob("idempotence-*.svg"))


def test_a_report_is_printed_word_for_word(capsys: pytest.CaptureFixture[str]) -> None:
    machines = leaders(IsDuplicate="NoDuplicateCache", AcceptsUnknownProducer="AnySequenceOnVirginPartition")
    with served(2, machines) as cluster:
        report = report_on(cluster, "idempotence")
    report.target, report.left = "[b]roker:9092", ["topic [b]t"] * 9
    report.counts.unread.add("Fetch: [b]not offered")
    report.counts.disturbed = 3
    name, result = next((name, each) for name, each in report.results.items() if each.found is Found.CONFORMS)
    report.results[name] = replace(result, hidden=(LOG,))
    command.print_report(report)
    told = capsys.readouterr().out
    for first, *others in report.kinds():
        assert story(first, report.client) in told
        assert not others or f"\n  also: {', '.join(result.edge.id for result in others)}\n" in told
    [(name, known)] = report.known().items()
    why = known_differences()[name]
    assert (
        f"KNOWN DIFFERENCE  {name}, {len(known)} edges, first {known[0].edge.id}\n  {why.title}\n  {why.reason}" in told
    )
    assert "\nNOT READ BACK  Fetch: [b]not offered\nNOT JUDGED  log (Fetch, read_uncommitted): 1 edges conform" in told
    assert "while markers were being written: nothing was asked" in told, "no batch outside of transactions waits"
    assert to_json(report)["not_judged"] == {"log (Fetch, read_uncommitted)": 1}
    counts = report.counts
    assert (
        f"\n[b]roker:9092: {report.edges} edges at transaction version 2 (the cluster's: 2), "
        f"{counts.scenarios} scenarios, {counts.requests} requests, "
        f"{counts.observations} states read back, 0 retries of a busy broker, {report.seconds:.1f} s\n" in told
    )
    assert f"\nleft behind: {', '.join(report.left)}\n" in told
    assert "\nplayed again, because a marker came twice in a row: 3 scenarios\n" in told
    assert "nothing was compared" not in told
    assert "so not judged" not in told
    assert "only answers were compared" not in told


@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], sent: set[str]
) -> None:
    with served() as cluster:
        assert call(cluster, "--only", "commit: *", option, str(tmp_path)) == 2
    assert f"{tmp_path} cannot be written: it is a folder" in capsys.readouterr().err
    assert sent == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--peers", "--stop", "true"], "--stop: not with --peers"),
        (["--peers", "--timeout", "3"], "--timeout: not with --peers"),
        (["--bootstrap", "127.0.0.1:1", "--out", "page.html"], "--out: not with --bootstrap"),
    ],
)
def test_an_option_of_the_other_kind_of_call_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["conform", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_scenario_is_repeated_with_every_message(capsys: pytest.CaptureFixture[str]) -> None:
    with served() as cluster:
        assert call(cluster, "--repeat", "transaction: Empty: EndTxn(commit)") == 0
        told = capsys.readouterr().out
        assert "2. EndTxn(commit): INVALID_TXN_STATE   (allowed: INVALID_TXN_STATE)" in told
        assert call(cluster, "--repeat", "nothing") == 2
        assert call(cluster, "--repeat", "") == 2, "an empty variable of a script is not: play everything"
        with cluster.faulty("close", api="EndTxn"):
            assert call(cluster, "--repeat", "transaction: Empty: EndTxn(commit)") == 1
        assert capsys.readouterr().out.startswith("COULD NOT TELL  transaction-")


@pytest.mark.parametrize("option", [["--repeat", "transaction: Empty: EndTxn(commit)"], ["--dry-run"], ["--list"]])
@pytest.mark.parametrize("file", ["--json", "--junit", "--diagrams"])
def test_a_call_that_makes_no_report_takes_no_file_for_one(
    option: list[str], file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["conform", "--bootstrap", "127.0.0.1:1", *option, file, str(tmp_path / "file")])
    assert ended.value.code == 2
    assert f"{file}: not with {option[0]}: it makes no report" in capsys.readouterr().err


def test_a_dry_run_touches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with served() as cluster:
        assert call(cluster, "--dry-run") == 0
        assert "INVALID_TXN_STATE" not in capsys.readouterr().out
        assert call(cluster, "--list") == 0
        assert names(cluster) == set()
        assert cluster.call(lambda server: server.cluster.transactions.known) == {}
    told = capsys.readouterr().out
    made = re.search(r"would make about (\d+) topic.*, and up to (\d+) transactional.ids\s+and (\d+) groups", told)
    assert made is not None
    scenarios = sum(map(int, re.findall(r"in (\d+) scenarios of \d+ steps", told)))
    assert tuple(map(int, made.groups())) == (-(-scenarios // PARTITIONS), 2 * scenarios, scenarios)
    assert "transaction: Empty: EndTxn(commit)  ->  INVALID_TXN_STATE" in told
    assert "TransactionCoordinator!TimeOut" in told


def test_brokers_elsewhere_are_written_to_only_with_yes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "is_loopback", lambda _: False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with served() as cluster:
        assert call(cluster, "--only", "commit: *") == 2
        assert "--yes" in capsys.readouterr().err
        assert names(cluster) == set()
        assert call(cluster, "--only", "commit: *", "--yes") == 0


@pytest.mark.parametrize(
    ("asked", "told", "elsewhere"),
    [
        ("here", ["here", "here"], ""),
        ("here", ["here", "away"], "away: topics"),
        ("away", ["here"], "away: topics"),
        ("far", ["here", "away"], "away, far: topics"),
    ],
)
def test_the_broker_that_is_asked_first_and_all_that_it_tells_of_have_to_be_on_loopback(
    asked: str, told: list[str], elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "is_loopback", lambda host: host == "here")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    rows = {"Brokers": [{"Host": host} for host in told]}
    wire = SimpleNamespace(bootstrap=Address(asked, 9092), ask=lambda *_: rows)
    session: Any = SimpleNamespace(wire=wire, target=Target(bootstrap=f"{asked}:9092"))
    with pytest.raises(Unusable, match=f"^{elsewhere}") if elsewhere else nullcontext():
        command._may_write(session)


def test_names_of_loopback_are_recognised() -> None:
    assert command.is_loopback("127.0.0.1")
    assert command.is_loopback("::1")
    assert not command.is_loopback("192.0.2.7")
    assert not command.is_loopback("no such name.invalid")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "nothing"), "no edge matches --only 'nothing'; --list names"),
        (("--only", "commit: *", "--only", "comit: *"), "no edge matches --only 'comit: *'; --list names"),
        (("--prefix", "a b"), "--prefix"),
        (("--command-config", "/nowhere"), "/nowhere"),
    ],
)
def test_a_call_that_cannot_be_used_ends_with_2(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with served() as cluster:
        assert call(cluster, *arguments) == 2
    assert said in capsys.readouterr().err


def test_a_version_that_the_cluster_does_not_have_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with served(1) as cluster:
        assert call(cluster, "--transaction-version", "2") == 2
    assert "transaction.version is 1" in capsys.readouterr().err


def test_an_unreachable_cluster_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "--bootstrap", f"127.0.0.1:{free_ports(1)[0]}", "--timeout", "2"]) == 2
    assert "refused" in capsys.readouterr().err
    for version in "012":
        assert main(["conform", "--bootstrap", "nowhere", "--transaction-version", version]) == 2
        assert "nowhere" in capsys.readouterr().err, "the version is none that there is not"


def test_an_api_that_a_broker_does_not_offer_is_not_supported() -> None:
    with served() as cluster:
        chosen = [each for each in MECHANISMS if each.name == "commit"]
        session = open_session(Target(bootstrap=cluster.bootstrap_servers), chosen)
        del session.wire.offered["TxnOffsetCommit"]
        del session.wire.offered["DescribeTransactions"]
        report = conform(session, session.edges())
        session.wire.close()
    assert report.found[Found.UNSUPPORTED] > 20
    assert set(report.found) == {Found.CONFORMS, Found.UNSUPPORTED}
    assert report.counts.unread == {"DescribeTransactions: the broker does not offer it"}
    assert report.conforms


@pytest.mark.parametrize(("offered", "code"), [(5, "ILLEGAL_GENERATION"), (6, "STALE_MEMBER_EPOCH")])
def test_offsets_are_sent_in_the_newest_version_that_is_offered_with_the_codes_of_that_version(
    offered: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session_module._NEW_CLIENT, "TxnOffsetCommit", offered)  # as a broker that offers no more
    with served() as cluster:
        report = report_on(cluster, "members", only="TxnOffsetCommit(first, epoch + 1")
    assert report.versions["TxnOffsetCommit"] == offered
    assert set(report.found) == {Found.CONFORMS}
    assert {code} == {name for each in report.results.values() for name in each.edge.answers}


def test_a_broker_that_tells_of_a_generation_where_the_version_has_epochs_diverges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_groups, "FIRST_OF_TRANSACTIONS_WITH_TOPIC_IDS", 7)
    with served() as cluster:
        report = report_on(cluster, "members", only="TxnOffsetCommit(first, epoch + 1")
    assert Found.DIVERGES in report.found


def test_groups_of_kip_848_are_not_supported_where_group_version_is_0() -> None:
    with served() as cluster:
        session = open_session(Target(bootstrap=cluster.bootstrap_servers), [MEMBERS])
        session.wire.features = {
            "metadata.version": 21
        }  # as Kafka 3.9, which offers the API and answers it with an error
        report = conform(session, session.edges())
        session.wire.close()
    assert report.found[Found.UNSUPPORTED] > 150
    assert set(report.found) == {Found.UNSUPPORTED}
    assert not report.conforms, "nothing was compared"


def test_a_broker_that_supports_nothing_that_it_is_asked_for_does_not_conform(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "unsupported", lambda _: {MEMBERS.needs: "not here"})
    with served() as cluster:
        assert call(cluster, "--only", "members: *") == 1
    told = capsys.readouterr().out
    assert "NOT SUPPORTED  not here" in told
    assert "nothing was compared: the broker supports none of these edges" in told
    assert "mechanism" not in told, "a table without a number"


def test_a_broker_that_conforms_as_far_as_it_goes_says_how_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "unsupported", lambda _: {"Produce": "Produce: not here"})
    monkeypatch.setattr(stage.Stage, "observe", lambda *_, **__: ({}, {"log": "Fetch: not here"}))
    monkeypatch.setattr(stage.Stage, "observe_partition", lambda *_, **__: {})
    with served() as cluster:
        assert call(cluster, "--only", "reading: *") == 0
    told = capsys.readouterr().out
    judged, every = map(int, re.findall(r"not supported, so not judged: (\d+) of (\d+) edges", told)[0])
    assert 72 < judged < every
    assert "only answers were compared: the state was not read back anywhere" in told


def test_scenarios_wait_for_the_next_assignment_of_a_group_as_long_as_the_broker_says() -> None:
    with served() as cluster:
        session = open_session(Target(bootstrap=cluster.bootstrap_servers), [MEMBERS])
        wanted = {name for name in session.edges() if "JoinConsumerGroup(second)" in name or "OffsetCommit" in name}
        slept: list[float] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(territory.Territory, "_assignment_interval", lambda _: 1.5)
            patch.setattr(stage.time, "sleep", slept.append)
            report = conform(session, wanted)
        session.wire.close()
    assert set(report.found) == {Found.CONFORMS}
    assert slept.count(1.5) > 5


def test_progress_names_the_mechanism_before_its_first_scenario() -> None:
    told: list[tuple[str, int, list[str]]] = []
    with served() as cluster:
        session = open_session(Target(bootstrap=cluster.bootstrap_servers), [MECHANISMS[0]])
        wanted = [name for name in session.edges() if "any: Init" in name]
        conform(session, wanted, lambda *said: told.append(said))
        session.wire.close()
    assert told[0] == ("idempotence", 2, [])
    assert told[-1] == ("idempotence", 0, [])


def test_a_step_without_an_answer_is_told_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    with served() as cluster:
        assert call(cluster, "--repeat", "commit: PrepareAbort: settle") == 0
    assert re.search(r"^\d+\. markers are written, the transaction is closed$", capsys.readouterr().out, re.MULTILINE)


def test_a_broker_that_ends_leaves_a_report_with_the_request_that_ended_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Connection.ask
    gone: list[str] = []

    def ends(self: Connection, api: str, *rest: Any) -> Any:
        if gone or api == "EndTxn":
            gone.append(api)
            raise Unreachable("nobody listens")
        return ask(self, api, *rest)

    with served() as cluster:
        monkeypatch.setattr(Connection, "ask", ends)
        assert call(cluster, "--only", "commit: *") == 1
        monkeypatch.undo()
    told = capsys.readouterr().out
    assert "the run ended early: nobody listens" in told
    assert "it was not asked, because the run ended: nobody listens" in told
    last_step = re.compile(r"^  \d+\. EndTxn\(\w+\): no answer$", re.MULTILINE)
    [culprit] = [each for each in told.split("\n\n") if last_step.search(each)]
    assert culprit.startswith("COULD NOT TELL  commit-")
    assert re.search(r"commit +InitProducerId .* [1-9]", told), "what was found before is there"


def test_a_broker_that_ends_before_anything_was_compared_cannot_be_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with served() as cluster:
        monkeypatch.setattr(territory.Territory, "stage", lambda *_, **__: unreachable())
        assert call(cluster, "--only", "commit: *") == 2
    assert capsys.readouterr().err.endswith("kafka-eos conform: nobody listens\n")


def unreachable() -> Any:
    raise Unreachable("nobody listens")


def test_the_edges_of_a_broker_that_does_not_answer_are_unknown() -> None:
    with served() as cluster, cluster.faulty("close", api="EndTxn"):
        report = report_on(cluster, "commit")
    assert report.found[Found.UNKNOWN] > 0
    assert report.found[Found.DIVERGES] == 0
    assert not report.conforms
