from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.machines.broker import HEARTBEAT
from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Buffer, MalformedMessage
from kafka_eos_checks.conform.mechanisms import GROUP_OFFSETS, MEMBERS
from kafka_eos_checks.conform.session import CAPS, GROUPS, Session, Target, Unusable, _left_out, _session, open_session
from kafka_eos_checks.conform.wire import Address, Wire

from .test_behaviours import VERSION_1, VERSION_2
from .test_conform import served


def quotient(*apis: str) -> Any:
    edges = {api: SimpleNamespace(request=SimpleNamespace(api=api)) for api in apis}
    return SimpleNamespace(edges=edges, mechanism=MEMBERS if HEARTBEAT in apis else GROUP_OFFSETS)


def test_a_broker_without_heartbeats_is_asked_for_no_edge_of_members() -> None:
    unsupported = {HEARTBEAT: "the broker does not offer it", "EndTxn": "version 5 is needed"}
    reason = unsupported[HEARTBEAT]
    assert _left_out(quotient(HEARTBEAT, "OffsetCommit"), unsupported) == {HEARTBEAT: reason, "OffsetCommit": reason}
    assert _left_out(quotient("EndTxn", "OffsetCommit"), unsupported) == {"EndTxn": "version 5 is needed"}


@pytest.mark.parametrize(("level", "is_asked"), [(None, True), (0, False), (1, True)])
def test_a_broker_that_tells_of_features_is_asked_for_members_only_with_groups_of_version_1(
    level: int | None, is_asked: bool
) -> None:
    features = {} if level is None else {GROUPS: level, "transaction.version": 2}
    wire = Wire(Address("localhost", 1), offered={HEARTBEAT: (0, 1)}, features=features)
    own = SimpleNamespace(request=SimpleNamespace(api=HEARTBEAT))
    graph: Any = SimpleNamespace(edges={"join": own})
    session = Session(Target(bootstrap="localhost:1"), wire, VERSION_2, 2, [graph])
    assert (HEARTBEAT not in session.unsupported()) == is_asked


@pytest.mark.parametrize(
    ("level", "wanted", "followed"),
    [
        (None, None, (0, 1, 0)),
        (0, None, (0, 1, 0)),
        (1, None, (1, 1, 1)),
        (2, None, (2, 2, 2)),
        (3, None, (2, 2, 2)),  # a later Kafka's: clients of today follow 2
        (3, 1, (1, 1, 2)),
        (2, 0, (0, 1, 2)),
        (None, 2, (2, 2, 2)),
    ],
)
def test_clients_follow_the_newest_transaction_version_that_they_and_the_cluster_know(
    level: int | None, wanted: int | None, followed: tuple[int, int, int]
) -> None:
    wire = Wire(Address("localhost", 1), features={} if level is None else {"transaction.version": level})
    session = _session(Target(bootstrap="localhost:1", transaction_version=wanted), wire, [])
    assert (session.asked, session.settings.client, session.settings.level) == followed
    newest = {api: session.wire.caps[api] for api in ("Produce", "EndTxn", "TxnOffsetCommit")}
    assert newest == (
        {"Produce": 12, "EndTxn": 5, "TxnOffsetCommit": 6}
        if followed[1] == 2
        else {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}
    )


@pytest.mark.parametrize(("level", "wanted"), [(0, 1), (1, 2)])
def test_a_transaction_version_above_the_clusters_is_refused(level: int, wanted: int) -> None:
    wire = Wire(Address("localhost", 1), features={"transaction.version": level})
    with pytest.raises(Unusable, match=f"the broker's transaction.version is {level}"):
        _session(Target(bootstrap="localhost:1", transaction_version=wanted), wire, [])


@pytest.mark.parametrize(("newest", "is_asked"), [(4, False), (5, True), (6, True)])
def test_a_broker_is_asked_to_end_transactions_of_version_2_only_if_it_offers_the_request_for_them(
    newest: int, is_asked: bool
) -> None:
    graph: Any = SimpleNamespace(edges={"end": SimpleNamespace(request=SimpleNamespace(api="EndTxn"))})
    wire = Wire(Address("localhost", 1), offered={"EndTxn": (0, newest)})
    found = Session(Target(bootstrap="localhost:1"), wire, VERSION_2, 2, [graph]).unsupported()
    wanted = {} if is_asked else {"EndTxn": "EndTxn: version 5 is needed, the broker offers up to 4"}
    assert found == wanted
    assert Session(Target(bootstrap="localhost:1"), wire, VERSION_1, 1, [graph]).unsupported() == {}


def test_a_reason_names_the_level_that_a_broker_has() -> None:
    own = SimpleNamespace(request=SimpleNamespace(api=HEARTBEAT))
    graph: Any = SimpleNamespace(edges={"join": own})
    wire = Wire(Address("localhost", 1), offered={HEARTBEAT: (0, 1)}, features={"transaction.version": 2})
    reasons = Session(Target(bootstrap="localhost:1"), wire, VERSION_2, 2, [graph]).unsupported()
    assert reasons == {HEARTBEAT: f"{HEARTBEAT}: group.version 1 is needed, the broker has 0"}


@pytest.mark.parametrize(
    ("api", "row"),
    [
        (
            "AddPartitionsToTxn",
            {"V3AndBelowTransactionalId": "id", "V3AndBelowTopics": [{"Name": "t", "Partitions": [3]}]},
        ),
        ("DeleteTopics", {"TopicNames": ["t"]}),
    ],
)
def test_requests_have_the_newest_version_in_which_a_client_names_topics_so(api: str, row: dict[str, Any]) -> None:
    codec, kept = served_codec(), []
    for version in codec.versions(f"{api}Request"):
        with suppress(MalformedMessage, KeyError, ValueError):
            read = codec.read(f"{api}Request", version, Buffer(codec.write(f"{api}Request", version, row)))
            kept += [version] if all(read.get(name) == value for name, value in row.items()) else []
    assert CAPS[api] == max(kept)


def test_a_run_gives_up_on_a_broker_that_hangs() -> None:
    with served() as cluster:
        session = open_session(Target(bootstrap=cluster.bootstrap_servers), [])
        session.wire.close()
    assert session.wire.gives_up
