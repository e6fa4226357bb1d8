"""Transactions: its clients react as the producer's own machine does, and a marker that was refused is dropped."""

import inspect
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode, NotEnabled
from kafka_eos.machines import transactional_producer as producer
from kafka_eos.machines import transactions
from kafka_eos.machines.transactional_producer import TransactionalProducer
from kafka_eos.machines.transactions import Client, Constants, Reply, Transactions
from kafka_eos_checks.mutants.rules import mutated

REQUESTS = {
    "init": (producer.INIT_PRODUCER_ID,),
    "add": (producer.ADD_PARTITIONS,),
    "produce": (producer.PRODUCE,),
    "end": (producer.COMMIT, producer.ABORT),
}
STATES = {producer.ABORTABLE: "abortable", producer.FATAL: "failed"}
# A leader answers it to the coordinator, and no client hears of it.
TO_COORDINATORS = {ErrorCode.NONE, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
ANSWERED = sorted(
    {error for error in ErrorCode if error.name in inspect.getsource(transactions)} - TO_COORDINATORS,
    key=lambda error: error.name,
)
FROM_LEADERS = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
ANSWERS = [
    (awaits, error) for awaits, error in product(REQUESTS, ANSWERED) if awaits == "produce" or error not in FROM_LEADERS
]
ONE = Constants(
    instances=frozenset({"A"}),
    partitions=frozenset({"p"}),
    numbers=frozenset({1, 2}),
    epochs=frozenset(range(6)),
    coordinator_epochs=frozenset({0, 1}),
    versions=frozenset({1, 2}),
    verification=True,
    faults=frozenset({"failover"}),
    max_faults=1,
)


def a_producer(machine: type[Any] = TransactionalProducer, **client: Any) -> TransactionalProducer:
    constants = producer.Constants(
        partitions=frozenset({"p"}),
        errors=frozenset(),
        versions=frozenset({1, 2}),
        supports_bump=True,
        max_transactions=1,
        max_sends=1,
        max_faults=1,
        max_recreations=0,
    )
    state: TransactionalProducer = machine.initial(constants)
    return replace(state, client=replace(state.client, **client))


def test_every_error_that_clients_are_answered_with_is_compared() -> None:
    assert {error.name for error in ANSWERED} == {
        "CONCURRENT_TRANSACTIONS",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "NOT_LEADER_OR_FOLLOWER",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "PRODUCER_FENCED",
        "TRANSACTION_ABORTABLE",
    }


@pytest.mark.parametrize(("awaits", "error"), ANSWERS, ids=str)
def test_a_client_reacts_to_an_answer_as_the_producers_own_machine_does(awaits: str, error: ErrorCode) -> None:
    client = Client(state="open", version=1, epoch=0, number=1, awaits=awaits, partition="p")
    after = Transactions.initial(ONE).after_answer(client, Reply(instance="A", error=error, epoch=0))
    assert after.awaits == "nothing"
    for request in REQUESTS[awaits]:
        if a_producer().may_answer(request, error.name):
            reaction = a_producer().reaction(request, error.name)
            assert after.state == ("open" if reaction == producer.RETRY else STATES[reaction])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("rule", "kafka"), [({}, {}), ({"AsksForEpoch": "KeepsEpochWhileEnding"}, {"BumpsAfter": "BumpsNotWhileEnding"})]
)
def test_a_client_asks_for_another_epoch_when_the_producers_own_machine_does(
    version: int, rule: dict[str, str], kafka: dict[str, str]
) -> None:
    state: Transactions = mutated(Transactions, rule).initial(ONE)
    machine = mutated(TransactionalProducer, kafka)
    for ending, its_state in ((False, producer.IN_TRANSACTION), (True, producer.ABORTING), (True, producer.COMMITTING)):
        other = a_producer(machine, version=version, state=its_state)
        asks = other.bumps_after(producer.ProducerBatch(status=producer.IN_FLIGHT), expired=True)
        failed = state.failed(Client(version=version, awaits="produce", state="open"), ending)
        assert failed.bump == asks
        ended = replace(failed, awaits="end")
        after = state.after_answer(ended, Reply(instance="A", error=ErrorCode.NONE, epoch=version - 1))
        goes_on = replace(other, client=other.failed("", asks)).after_end(version == 2).state
        assert (after.state, after.bump) == ({producer.INITIALIZING: "new", producer.READY: "ready"}[goes_on], False)


def test_after_a_failure_a_client_may_only_abort() -> None:
    state = Transactions.initial(ONE).initialize("A", 2).handle_init("A").receive("A").produce("A", "p")
    state = state.expire("A", False)
    for refused in (lambda: state.produce("A", "p"), lambda: state.end("A", True)):
        with pytest.raises(NotEnabled):
            refused()
    state = state.end("A", False).handle_end("A", 1, False, False).receive("A")
    assert (state.outcome["A"][1], state.clients["A"].state, state.clients["A"].epoch) == ("aborted", "ready", 1)


def test_a_marker_that_was_refused_is_not_sent_again_before_the_next_failover() -> None:
    # without a bump at the end, a leader of version 2 takes the marker for one of the transaction before
    state = mutated(Transactions, {"EndEpoch": "NoEndBump"}).initial(ONE)
    state = state.initialize("A", 2).handle_init("A").receive("A").produce("A", "p")
    state = state.start_verification("A", 1, "p", False).verify("A", 1, "p").append_verified("A", 1, "p").receive("A")
    state = state.end("A", True).handle_end("A", 1, True, False).send_marker("p")
    [marker] = state.marker_requests
    sent = ("p", marker.version, marker.epoch, marker.commit, marker.coordinator_epoch)
    state = state.handle_marker(*sent)
    assert (state.to_mark, state.refused) == ({"p"}, {"p"})
    with pytest.raises(NotEnabled, match="no marker is due"):
        state.send_marker("p")
    with pytest.raises(NotEnabled, match="markers are missing"):
        state.complete_transaction()
    assert state.failover().send_marker("p").marker_requests


def test_a_coordinator_finds_no_leader_only_where_a_marker_is_due_and_not_on_its_way() -> None:
    state = Transactions.initial(replace(ONE, faults=frozenset({"no leader"})))
    state = state.initialize("A", 2).handle_init("A").receive("A").produce("A", "p")
    state = state.start_verification("A", 1, "p", False).verify("A", 1, "p").append_verified("A", 1, "p").receive("A")
    with pytest.raises(NotEnabled, match="no marker is due"):
        state.find_no_leader("p")
    state = state.end("A", True).handle_end("A", 1, True, False)
    assert state.find_no_leader("p") == replace(state, faults=1), "it asks again"
    with pytest.raises(NotEnabled):
        state.find_no_leader("p").find_no_leader("p")
    with pytest.raises(NotEnabled, match="on its way"):
        state.send_marker("p").find_no_leader("p")
    with pytest.raises(NotEnabled, match="no marker is due"):
        replace(state, refused=frozenset({"p"})).find_no_leader("p")


def test_a_former_coordinators_marker_that_is_refused_changes_nothing_for_the_present_one() -> None:
    state = Transactions.initial(ONE).initialize("A", 2).handle_init("A").receive("A").produce("A", "p")
    state = state.start_verification("A", 1, "p", False).verify("A", 1, "p").append_verified("A", 1, "p").receive("A")
    state = state.end("A", True).handle_end("A", 1, True, False).send_marker("p")
    [former] = state.marker_requests
    state = state.failover().send_marker("p").handle_marker("p", former.version, former.epoch, True, 1)
    state = state.complete_transaction().handle_marker("p", former.version, former.epoch, True, 0)
    assert (state.refused, len(state.logs["p"].entries)) == (set(), 2)
