from types import SimpleNamespace
from typing import Any

from kafka_eos.machines.broker import HEARTBEAT
from kafka_eos_checks.conform.mechanisms import GROUP_OFFSETS, MEMBERS
from kafka_eos_checks.conform.session import _left_out


def quotient(*apis: str) -> Any:
    edges = {api: SimpleNamespace(request=SimpleNamespace(api=api)) for api in apis}
    return SimpleNamespace(edges=edges, mechanism=MEMBERS if HEARTBEAT in apis else GROUP_OFFSETS)


def test_a_broker_without_heartbeats_is_asked_for_no_edge_of_members() -> None:
    unsupported = {HEARTBEAT: "the broker does not offer it", "EndTxn": "version 5 is needed"}
    reason = unsupported[HEARTBEAT]
    assert _left_out(quotient(HEARTBEAT, "OffsetCommit"), unsupported) == {HEARTBEAT: reason, "OffsetCommit": reason}
    assert _left_out(quotient("EndTxn", "OffsetCommit"), unsupported) == {"EndTxn": "version 5 is needed"}
