from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.machines.broker import HEARTBEAT
from kafka_eos_checks.conform.mechanisms import GROUP_OFFSETS, MEMBERS
from kafka_eos_checks.conform.session import GROUPS, Session, Target, _left_out
from kafka_eos_checks.conform.wire import Address, Wire

from .test_behaviours import VERSION_2


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
