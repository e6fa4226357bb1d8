import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import Event
from kafka_eos.wire.protocol import Codec
from kafka_eos_checks.brokers.faults import NO_FAULTS, Fault, FaultKind, Plan
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.brokers.proxy import Proxy, Route
from kafka_eos_checks.brokers.wire_events import phase_of

Produce = Callable[..., bytes]
Connect = Callable[[int], Any]


@pytest.fixture
def journal() -> Journal:
    return Journal("run")


@pytest.fixture
def proxy(codec: Codec, journal: Journal, broker: Any) -> Iterator[Proxy]:
    with Proxy(codec, journal, [Route("broker-1", 0, broker.port)]) as running:
        yield running


def spoil(proxy: Proxy, journal: Journal, **faults: Fault) -> None:
    """Apply faults to request 0 (``first``), 1 (``second``) … and to no other."""
    numbers = ("first", "second", "third")
    proxy.begin(journal, Plan(seed="test", scripted={numbers.index(name): fault for name, fault in faults.items()}))


def produced(journal: Journal, count: int) -> list[Event]:
    """The Produce events, as soon as there are ``count``."""
    journal.wait_for(lambda e: e.action == "Produce", count, 10, "Produce events")
    return [e for e in journal.events() if e.action == "Produce"]


def test_a_request_passes_and_its_call_and_answer_are_recorded(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect, broker: Any
) -> None:
    client = connect(proxy.ports["broker-1"])
    client.send(produce(41, 0))
    assert client.receive()[:4] == struct.pack(">i", 41)
    invoke, answer = produced(journal, 2)
    assert (invoke.phase, invoke.producer_id, invoke.producer_epoch, invoke.base_sequence) == ("invoke", 7, 0, 0)
    assert (invoke.process, invoke.topic, invoke.partition, invoke.record_count) == ("proxy/client", "t", 0, 1)
    assert (answer.phase, answer.error, answer.offset, answer.base_sequence) == ("ok", 0, 0, 0)
    assert invoke.detail == {"request": 0, "connection": 0, "correlation": 41, "broker": "broker-1"}
    assert answer.detail == invoke.detail
    assert broker.received == [produce(41, 0)[4:]]


def test_requests_of_unknown_apis_and_malformed_requests_pass_unchanged(
    proxy: Proxy, journal: Journal, connect: Connect, produce: Produce
) -> None:
    client = connect(proxy.ports["broker-1"])
    for frame in (bytes.fromhex("0063 0001 00000002 ffff"), b"\xff" * 40, b""):
        client.send(struct.pack(">i", len(frame)) + frame)
        if frame:
            assert client.receive() == frame
    torn = produce(1, 0)[4:-9]  # a Produce request whose batch is cut off
    client.send(struct.pack(">i", len(torn)) + torn)
    assert [e for e in journal.events() if e.phase != "invoke"] == []


def test_a_dropped_answer_closes_the_connection_after_the_broker_has_handled_the_request(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect, broker: Any
) -> None:
    spoil(proxy, journal, second=Fault(FaultKind.DROP_ANSWER))
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0) + produce(2, 1))
    assert client.receive() is not None
    assert client.receive() is None
    events = produced(journal, 4)
    lost = next(e for e in events if e.phase == "ok" and e.base_sequence == 1)
    assert lost.offset == 1
    assert lost.detail["delivered"] is False
    assert [e.detail.get("fault") for e in events if e.phase == "invoke"] == [None, "drop-answer"]
    assert len(broker.received) == 2


def test_answers_on_a_cut_connection_are_still_recorded(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect
) -> None:
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0) + produce(2, 1))
    client.close()
    answers = [e for e in produced(journal, 4) if e.phase == "ok"]
    assert [e.offset for e in answers] == [0, 1]


def test_a_repeated_request_reaches_the_broker_twice_and_the_client_once(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect, broker: Any
) -> None:
    spoil(proxy, journal, first=Fault(FaultKind.REPEAT, 0.01))
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0))
    assert client.receive() is not None
    events = produced(journal, 4)
    assert broker.received[0] == broker.received[1]
    copies = [e for e in events if "repeats" in e.detail]
    assert [(e.phase, e.detail["repeats"], e.offset) for e in copies] == [("invoke", 0, None), ("ok", 0, 1)]
    assert copies[1].detail["delivered"] is False
    assert copies[0].detail["connection"] != events[0].detail["connection"]
    assert client.is_silent()


def test_an_overtaken_request_arrives_after_the_clients_retry(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect, broker: Any
) -> None:
    spoil(proxy, journal, first=Fault(FaultKind.OVERTAKE, 0.4))
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0))
    assert client.receive() is None
    again = connect(proxy.ports["broker-1"])
    again.send(produce(9, 0))
    assert again.receive() is not None
    events = produced(journal, 4)
    assert broker.received == [produce(9, 0)[4:], produce(1, 0)[4:]]
    assert [(e.phase, e.detail["request"]) for e in events] == [("invoke", 0), ("invoke", 1), ("ok", 1), ("ok", 0)]


def test_a_delayed_request_keeps_its_place_on_its_connection_and_loses_it_to_others(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect, broker: Any
) -> None:
    spoil(proxy, journal, first=Fault(FaultKind.DELAY, 0.4))
    slow, fast = connect(proxy.ports["broker-1"]), connect(proxy.ports["broker-1"])
    slow.send(produce(1, 0) + produce(2, 1))
    produced(journal, 1)
    fast.send(produce(3, 2))
    assert all(connection.receive() is not None for connection in (fast, slow, slow))
    assert broker.received == [produce(n, s)[4:] for n, s in ((3, 2), (1, 0), (2, 1))]


def test_withheld_answers_leave_the_client_waiting_on_an_open_connection(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect
) -> None:
    spoil(proxy, journal, first=Fault(FaultKind.WITHHOLD))
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0) + produce(2, 1))
    answers = [e for e in produced(journal, 4) if e.phase == "ok"]
    assert [e.detail["delivered"] for e in answers] == [False, False]
    assert client.is_silent()


def test_a_request_that_the_broker_never_answers_has_an_open_outcome(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect, broker: Any
) -> None:
    broker.closes_after = 0
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0))
    assert client.receive() is None
    invoke, outcome = produced(journal, 2)
    assert (outcome.phase, outcome.error, outcome.offset) == ("info", None, None)
    assert outcome.detail["request"] == invoke.detail["request"]


def test_a_request_without_acknowledgement_waits_for_no_answer(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect
) -> None:
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0, acks=0) + produce(2, 1))
    assert client.receive()[:4] == struct.pack(">i", 2)
    assert [(e.phase, e.base_sequence) for e in produced(journal, 3)] == [("invoke", 0), ("invoke", 1), ("ok", 1)]


def test_nothing_is_on_its_way_once_the_proxy_is_quiet(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect, broker: Any
) -> None:
    spoil(proxy, journal, first=Fault(FaultKind.REPEAT, 0.3))
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0))
    assert client.receive() is not None
    proxy.quiesce()
    assert len(broker.received) == 2
    assert [event.phase for event in journal.events()].count("ok") == 2


def test_a_broker_that_is_down_looks_down_to_the_client(
    codec: Codec, journal: Journal, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy(codec, journal, [Route("broker-1", 0, 1)]) as proxy:  # nobody listens on port 1
        client = connect(proxy.ports["broker-1"])
        assert client.receive() is None
    assert journal.events() == []
    assert caplog.records == [], "nothing went wrong in the proxy"


def test_the_numbers_of_a_new_run_start_at_zero(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect
) -> None:
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0))
    client.receive()
    proxy.quiesce()
    second = Journal("second")
    proxy.begin(second, NO_FAULTS)
    client.send(produce(2, 1))
    client.receive()
    assert [e.detail["request"] for e in produced(second, 2)] == [0, 0]
    assert len(produced(journal, 2)) == 2


def test_only_requests_of_the_plans_apis_get_faults(
    proxy: Proxy, journal: Journal, produce: Produce, connect: Connect
) -> None:
    proxy.begin(journal, Plan(seed="x", chances={FaultKind.DROP_ANSWER: 1.0}, apis=frozenset({"EndTxn"})))
    client = connect(proxy.ports["broker-1"])
    client.send(produce(1, 0))
    assert client.receive() is not None


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        (ErrorCode.NONE, "ok"),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "fail"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "fail"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "info"),  # KAFKA-13574: the batch may be found later
        (ErrorCode.REQUEST_TIMED_OUT, "info"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "info"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, "fail"),  # before the append
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "info"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "info"),
        (12_345, "fail"),
    ],
)
def test_an_error_after_which_the_batch_may_be_stored_leaves_the_outcome_open(error: int, phase: str) -> None:
    assert phase_of(error) == phase
