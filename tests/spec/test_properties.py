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


@pytest.mark.parametrize(
    ("reader", "of_one_producer", "is_right"),
    [("buffering", False, True), ("buffering", True, False), ("read_committed", False, False)],
)
def test_only_the_buffering_reader_mixes_producers(reader: str, of_one_producer: bool, is_right: bool) -> None:
    entries = tuple(Map(offset=offset, producerId=0 if of_one_producer else offset) for offset in range(2))
    delivered = Map(dict.fromkeys(("read_committed", "read_uncommitted", "buffering"), ())).set(reader, (1, 0))
    state = {"log": Map(entries=entries), "delivered": delivered}
    assert holds("ThreeReaders", "DeliveredInOrder", **state) is is_right


def test_a_committed_transfer_has_a_marker_in_each_of_its_partitions() -> None:
    marker = Map(kind="commit", transfer=0)
    for lacking in (None, "p0", "p1", "p7"):
        logs = Map({name: () if name == lacking else (marker,) for name in ("p0", "p1", "p7")})
        assert holds("Transfer", "MarkersReachAll", logs=logs, transaction=Map(state="none")) is (lacking is None)


def test_neither_a_commit_nor_an_abort_is_reported_that_did_not_happen() -> None:
    for told, outputs, is_right in (("committed", (1,), True), ("committed", (), False), ("aborted", (1,), False)):
        reported = Map({1: told, 2: "none", 3: "none"})
        assert holds("ApplicationLoop", "ReportIsTrue", reported=reported, outputs=outputs) is is_right


def test_an_input_before_the_position_has_had_its_effect_or_waits_even_if_its_offset_is_not_committed() -> None:
    for effects, outbox, is_right in (((1,), (), True), ((), (1,), True), ((), (), False)):
        state = {"position": 2, "committed": 1, "effects": effects, "outbox": outbox}
        assert holds("UpdateAfterCommit", "EffectAtLeastOnce", **state) is is_right


def test_a_block_belongs_to_one_broker_also_while_it_is_on_its_way() -> None:
    started = Map(next=0, last=-1, ahead=-1, request="none", offered=-1)
    has = {"block": started.update(next=1, last=1), "ahead": started.set("ahead", 0)}
    has["offered"] = started.update(request="answered", offered=0)
    for one in has.values():
        for other, is_right in ((started, True), *((own, False) for own in has.values())):
            assert holds("ProducerIds", "BlocksAreDisjoint", brokers=Map(a=one, b=other)) is is_right
    asked = started.update(request="allocated", offered=0)
    assert holds("ProducerIds", "BlocksAreDisjoint", brokers=Map(a=asked, b=asked)), "another controller forgets it"


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
