"""A property of the spec is violated by each case that its comment speaks of, and so is a bound.

That TLC finds a property to hold shows nothing of a part of it that is gone.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from immutables import Map

from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Registry


@cache
def formulas(model: str, module: str) -> Formulas:
    found = Registry().get(model)
    return Formulas(replace(found, module=module or found.module))


def holds(model: str, name: str, *, of: str = "", **state: Any) -> Any:
    """Whether an operator, of a model's module or of another one, holds in a state with these variables."""
    own = formulas(model, of)
    return own.named(name)(tuple(state.get(variable, 0) for variable in own.variables), ())


@pytest.mark.parametrize("request_", ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"])
def test_no_request_of_a_transaction_is_sent_behind_its_end(request_: str) -> None:
    for ends, is_right in (((), True), (("EndTxn",), False)):
        state = {"seen": Map(ends=frozenset(ends)), "inFlight": request_}
        assert holds("TransactionalProducer", "NoRequestBehindEnd", **state) is is_right


def test_an_acknowledged_batch_is_in_the_log_as_one_of_its_own_transaction() -> None:
    entries = Map(kind="data", instance="A", number=1), Map(kind="commit")
    state = {"logs": Map(p=Map(entries=entries)), "outcome": Map(A=("committed", "committed"))}
    for number, is_right in ((1, True), (2, False)):
        stored = frozenset({Map(instance="A", number=number, partition="p")})
        assert holds("Transactions", "CommittedIsKept", stored=stored, **state) is is_right


def test_a_fenced_client_has_an_earlier_identity_than_the_coordinator() -> None:
    for epoch, is_right in ((0, True), (1, False), (2, False)):
        state = {"coordinator": Map(current=Map(producerId=0, epoch=1)), "takenOver": True}
        client = Map(identity=Map(producerId=0, epoch=epoch))
        assert holds("EpochBump", "NobodySharesItsIdentity", client=client, **state) is is_right


def test_a_search_of_readers_after_an_election_admits_none_that_reads_before() -> None:
    search = {"of": "ConsumerBounds", "log": Map(entries=()), "highWatermark": 0, "leaderEpoch": 0}
    for position, is_inside in ((0, True), (1, False)):
        positions = Map(read_committed=position)
        assert holds("FollowerCatchesUp", "ReadAfterElection", positions=positions, **search) is is_inside
