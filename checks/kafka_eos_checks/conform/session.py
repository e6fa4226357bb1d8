"""A broker that is asked, and what it is compared with: one session of ``kafka-eos conform``."""

import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from immutables import Map

from kafka_eos.machines.broker import HEARTBEAT
from kafka_eos_checks.conform.beyond import MARK
from kafka_eos_checks.conform.mechanisms import MECHANISMS, SETTLE, Mechanism
from kafka_eos_checks.conform.outages import (
    OF_COMMANDS,
    TIMEOUT,
    Commands,
    Interrupted,
    Interrupting,
    OutageFailed,
    Outages,
    interrupted,
)
from kafka_eos_checks.conform.quotient import Edge, Quotient, explored
from kafka_eos_checks.conform.result import Report
from kafka_eos_checks.conform.run import NOT_ASKED, Counts, Found, Result, Runner
from kafka_eos_checks.conform.security import Security
from kafka_eos_checks.conform.territory import PREFIX, NotOurs, Territory
from kafka_eos_checks.conform.visible import Settings
from kafka_eos_checks.conform.wire import NoAnswer, Unreachable, Unsupported, Wire, address_of

CAPS = {
    "Fetch": 12,
    "Metadata": 12,
    "ListOffsets": 7,
    "OffsetFetch": 9,
    "OffsetCommit": 9,
    "JoinGroup": 9,
    "CreateTopics": 7,
    "DeleteTopics": 5,
    "InitProducerId": 5,
    "AddPartitionsToTxn": 3,
}
"""The newest versions that name topics by their names, and that clients may send."""
_TRANSACTIONAL = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "Produce", "TxnOffsetCommit")
_OLD_CLIENT = {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}
_FIRST_OF_NEW_CLIENT = {"Produce": 12, "EndTxn": 5, "TxnOffsetCommit": 5}
_NEW_CLIENT = {**_FIRST_OF_NEW_CLIENT, "TxnOffsetCommit": 6}
"""KIP-890: the newest versions of a client of transaction version 1, those with which version 2 begins, and the newest
of these (KIP-1319: with topic ids)."""
FEATURE, GROUPS = "transaction.version", "group.version"
NEWEST_LEVEL = 2
"""The newest transaction version that the spec has; clients of today follow it on a cluster of a later one."""


class Unusable(RuntimeError):  # noqa: N818 - what is wrong
    """The call or the broker cannot be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The broker to ask, and how to ask it.

    Attributes:
        bootstrap: ``host:port`` of a broker.
        transaction_version: the version that clients follow; None: the broker's.
        verification: whether the broker is expected to verify transactions of version 1.
        security: TLS and SASL.
        seconds: the longest wait for any answer.
        prefix: the prefix of all names.
        name: its name in reports, by default the address.
        unasked: the APIs that it is not asked for although it offers them, with the reason.
        commands: stop and start a broker; None: none is stopped.
        timeouts: leave transactions open until their timeout, too, which takes some seconds.
    """

    bootstrap: str
    transaction_version: int | None = None
    verification: bool = True
    security: Security = field(default=Security())
    seconds: float = 10.0
    prefix: str = PREFIX
    name: str = ""
    unasked: Mapping[str, str] = field(default_factory=dict)
    commands: Commands | None = None
    timeouts: bool = False


@dataclass(slots=True)
class Session:
    """A broker that answers, and the graphs that it is compared with.

    Attributes:
        target: the broker to ask.
        wire: the connections to the cluster.
        settings: the broker's settings.
        asked: the transaction version.
        quotients: the graphs.
        outages: stop a broker and start it again; None: none is stopped.
    """

    target: Target
    wire: Wire
    settings: Settings
    asked: int
    quotients: list[Quotient]
    outages: Outages | None = None

    def edges(self) -> dict[str, Edge]:
        """All edges, by name."""
        return {name: edge for quotient in self.quotients for name, edge in quotient.edges.items()}

    def unsupported(self) -> dict[str, str]:
        """The APIs that the broker cannot be asked for, or not in the versions that are needed, with the reason."""
        reasons = dict(self.target.unasked)
        for api in {edge.request.api for edge in self.edges().values()} - {SETTLE, *reasons}:
            try:
                version = self.wire.version(api)
            except Unsupported as reason:
                reasons[api] = str(reason)
                continue
            needed = _FIRST_OF_NEW_CLIENT.get(api, 0) if self.settings.client > 1 else 0
            features = self.wire.features
            if api == HEARTBEAT and features and features.get(GROUPS, 0) < 1:
                reasons[api] = f"{api}: {GROUPS} 1 is needed, the broker has {features.get(GROUPS, 0)}"
            if version < needed:
                reasons[api] = f"{api}: version {needed} is needed, the broker offers up to {version}"
        return reasons


def open_session(target: Target, mechanisms: Iterable[Mechanism] = MECHANISMS) -> Session:
    """Connect, learn the broker's settings, and explore the graphs for it.

    Raises:
        Unreachable: when nobody answers.
        Unusable: when it is asked for a version that it does not have.
    """
    wire = Wire(address_of(target.bootstrap), target.security, target.seconds, CAPS, gives_up=True)
    try:
        wire.connect()
        return _session(target, wire, mechanisms)
    except BaseException:
        wire.close()
        raise


def _session(target: Target, wire: Wire, mechanisms: Iterable[Mechanism]) -> Session:
    level = wire.features.get(FEATURE)
    asked = target.transaction_version if target.transaction_version is not None else min(level or 0, NEWEST_LEVEL)
    if level is not None and asked > level:
        raise Unusable(f"the broker's {FEATURE} is {level}: --transaction-version {asked} needs another one")
    client = 2 if asked == 2 else 1
    wire.caps = CAPS | (_NEW_CLIENT if client > 1 else _OLD_CLIENT)
    settings = Settings(
        level=asked if level is None else min(level, NEWEST_LEVEL),
        client=client,
        verification=target.verification,
        versions=_versions(wire),
    )
    quotients = [explored(mechanism, settings) for mechanism in mechanisms]
    kinds = {*(OF_COMMANDS if target.commands is not None else ()), *([TIMEOUT] if target.timeouts else [])}
    outages = Outages(wire, target.commands) if target.commands is not None else None
    return Session(target, wire, settings, asked, [*quotients, *interrupted(quotients, kinds)], outages)


def _versions(wire: Wire) -> Map[str, int]:
    """The version of each request that changes something; the newest if the broker does not offer it."""
    versions = {}
    for api in (*_TRANSACTIONAL, MARK):
        try:
            versions[api] = wire.version(api)
        except Unsupported:
            versions[api] = wire.caps.get(api, 4)
    return Map(versions)


STOPS = (Unreachable, NotOurs, NoAnswer, OutageFailed, Unsupported)
"""The ways in which a run may end before all edges were asked for."""


def conform(
    session: Session,
    wanted: Container[str],
    on_progress: Callable[[str, int, list[str]], None] | None = None,
    *,
    keeps: bool = False,
) -> Report:
    """Cover the wanted edges, and delete what was created.

    Args:
        session: the session.
        wanted: the names of the edges.
        on_progress: is told, at first and after each scenario, the mechanism, how many of its edges are left, and
            those that have diverged so far.
        keeps: if the broker cannot be used any more, report what was found until then.

    Raises:
        Unreachable, NotOurs, NoAnswer, OutageFailed, Unsupported: when the broker cannot be used any more.
    """
    started = time.monotonic()
    report = report_of(session)
    unsupported = session.unsupported()
    with Territory(session.wire, session.target.prefix, seconds=session.target.seconds) as territory:
        report.names, report.left = territory.names, territory.left
        for quotient in session.quotients:
            runner = _runner(session, quotient, territory, report.counts)
            runner.leave_out(_left_out(quotient, unsupported))
            names = [name for name in quotient.edges if name in wanted]
            say = partial(on_progress, quotient.mechanism.name) if on_progress is not None else None
            if say is not None and names:
                say(len(names), [])  # what is about to be asked: with outages it may be long until anything is known
            try:
                report.results |= runner.cover(names, say)
            except STOPS as error:
                report.results |= runner.results
                if not keeps or not report.is_compared:
                    raise
                report.stopped = str(error)
                break
    if report.stopped:
        reason = f"{NOT_ASKED}: {report.stopped}"
        for name, edge in session.edges().items():
            if name in wanted and name not in report.results:
                report.results[name] = Result(edge=edge, found=Found.UNKNOWN, reason=reason)
    report.seconds = time.monotonic() - started
    return report


def _left_out(quotient: Quotient, unsupported: Mapping[str, str]) -> dict[str, str]:
    """The edges that the broker cannot be asked for, with the reason; all, if it lacks what their mechanism needs."""
    whole = unsupported.get(quotient.mechanism.needs, "")
    reasons = {name: whole or unsupported.get(edge.request.api, "") for name, edge in quotient.edges.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def repeat(session: Session, edge: Edge) -> Result:
    """Play the shortest scenario of one edge, and delete what was created."""
    quotient = next(each for each in session.quotients if each.mechanism is edge.mechanism)
    with Territory(session.wire, session.target.prefix, seconds=session.target.seconds) as territory:
        return _runner(session, quotient, territory, Counts()).shortest(edge)


def _runner(session: Session, quotient: Quotient, territory: Territory, counts: Counts) -> Runner:
    """The runner of a graph."""
    mechanism = quotient.mechanism
    new_stage = partial(
        territory.stage,
        has_topic=mechanism.has_topic,
        has_second=mechanism.has_second,
        has_second_group=mechanism.has_second_group,
    )
    if not isinstance(quotient, Interrupted):
        return Runner(quotient, new_stage, counts=counts)
    return Interrupting(
        quotient=quotient, new_stage=new_stage, counts=counts, territory=territory, outages=session.outages
    )


def report_of(session: Session) -> Report:
    """A report without results."""
    target = session.target
    return Report(
        target=target.name or target.bootstrap,
        level=session.wire.features.get(FEATURE),
        asked=session.asked,
        client=session.settings.client,
        versions=dict(session.settings.versions),
        quotients=session.quotients,
    )
