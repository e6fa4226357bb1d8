"""A property of the spec is violated by each case that its comment speaks of, and so is a bound.

That TLC finds a property to hold shows nothing of a part of it that is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from immutables import Map

from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.parser import parse_expression
from kafka_eos_checks.tla.values import function


@cache
def formulas(model: str, module: str) -> Formulas:
    found = Registry().get(model)
    return Formulas(replace(found, module=module or found.module))


def holds(model: str, name: str, *, of: str = "", before: Mapping[str, Any] | None = None, **state: Any) -> Any:
    """Whether an operator, of a model's module or of another one, holds in a state with these variables.

    With the variables ``before``, in the step from these to ``state``.
    """
    own, first = formulas(model, of), state if before is None else before
    return own.named(name)(*(tuple(each.get(variable, 0) for variable in own.variables) for each in (first, state)))


def delivers(
    action: str,
    *,
    before: tuple[Any, ...],
    after: tuple[Any, ...],
    outcome: Mapping[Any, str],
    outcome_after: Mapping[Any, str] | None = None,
) -> Any:
    """Whether an action of Delivery takes readers that found some values to others, and a sender to what it sees."""
    own = formulas("RefinesAtLeastOnce", "Delivery")
    first, second = (function(dict(each)) for each in (outcome, outcome_after or outcome))
    return own.evaluate(parse_expression(action, "a test"))((first, before), (second, after))


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


def test_an_aborted_transaction_is_in_the_index_once() -> None:
    batch = Map(kind="transactional", offset=0, producerId=0, epoch=0)
    index = Map(producerId=0, firstOffset=0, lastOffset=1, lastStableOffset=2)
    log = Map(entries=(batch, batch.update(kind="abort", offset=1)))
    for times, is_right in ((1, True), (2, False)):
        state = {"log": log.set("abortedIndex", (index,) * times), "highWatermark": 2}
        assert holds("ThreeReaders", "IndexFollowsLog", **state) is is_right


def test_the_last_stable_offset_is_neither_beyond_what_is_decided_nor_behind_it() -> None:
    batch = Map(kind="transactional", offset=0, producerId=0, epoch=0)
    log = Map(entries=(batch, batch.update(kind="commit", offset=1)))
    ongoing = Map(producerId=0, firstOffset=0, lastOffset=-1)
    for watermark, open_, is_right in ((2, (), True), (2, (ongoing,), False), (1, (ongoing,), True), (1, (), False)):
        state = {"log": log.set("transactions", frozenset(open_)), "highWatermark": watermark}
        assert holds("ThreeReaders", "StableOffsetFollowsLog", **state) is is_right


def test_a_committed_transfer_has_a_marker_in_each_of_its_partitions() -> None:
    marker = Map(kind="commit", transfer=0)
    for lacking in (None, "p0", "p1", "p7"):
        logs = Map({name: () if name == lacking else (marker,) for name in ("p0", "p1", "p7")})
        assert holds("Transfer", "MarkersReachAll", logs=logs, transaction=Map(state="none")) is (lacking is None)


@pytest.mark.parametrize("account", ["p0", "p1"])
def test_a_transfer_is_made_once_its_readers_find_it_once_in_each_account(account: str) -> None:
    entry = Map(kind="plain", transfer=1)
    for times in range(3):
        logs = Map(p0=(entry,), p1=(entry,)).set(account, (entry,) * times)
        assert holds("Transfer", "EveryTransferIsMade", logs=logs) is (times == 1)


def test_fetches_of_decided_offsets_are_answered_at_the_latest_when_the_marker_is_replicated() -> None:
    log = Map(kind="offset", offset=1, epoch=0), Map(kind="commit", offset=0, epoch=0)
    for replicated, is_settled in ((1, False), (2, True)):
        state = {"transaction": Map(state="PREPARE_COMMIT"), "log": log, "replicated": replicated}
        assert holds("OffsetsAreSettled", "OffsetsAreSettled", **state) is is_settled


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


@pytest.mark.parametrize(("state", "is_right"), [("EMPTY", True), ("COMPLETE_ABORT", False), ("PREPARE_ABORT", False)])
def test_a_producer_id_is_given_after_the_log_says_that_no_transaction_is_open(state: str, is_right: bool) -> None:
    answer = Map(request="InitProducerId", error="NONE")
    holding = holds("TransactionCoordinator", "GivenAtRest", before={}, answer=answer, durable=Map(state=state))
    assert holding is is_right


def test_a_pending_offset_is_the_only_one_of_its_partition_and_moves_the_committed_one() -> None:
    for one, other, is_right in ((2, -1, True), (1, -1, False), (2, 3, False)):
        pending = Map(A=Map(p=one), B=Map(p=other))
        state = {"pending": pending, "committed": Map(p=1)}
        assert holds("ConsumeTransformProduceTwoInputs", "OnePendingOffset", **state) is is_right


def test_a_sender_gives_up_only_what_it_has_sent_and_knows_nothing_of() -> None:
    for outcome in ("unsent", "sent", "acknowledged", "failed"):
        before, after = ((of_one, "sent") for of_one in (outcome, "failed"))
        given_up = holds("RefinesAtLeastOnce", "Failing", of="Delivery", before={"outcome": before}, outcome=after)
        assert given_up is (outcome == "sent")


@pytest.mark.parametrize(
    ("action", "outcomes"),
    [
        ('SendValue("v")', {("unsent", "sent")}),
        ('AcknowledgeDelivered("v")', {("sent", "acknowledged")}),
        ('AcknowledgeAny("v")', {("unsent", "acknowledged"), ("sent", "acknowledged")}),
    ],
)
def test_a_value_goes_on_only_from_where_its_sender_sees_it(action: str, outcomes: set[tuple[str, str]]) -> None:
    every = ("unsent", "sent", "acknowledged", "failed")
    for delivered, after in (((), ()), (("v",), ("v",)), (("v",), ())):
        found = {
            (one, other)
            for one in every
            for other in every
            if delivers(action, before=delivered, after=after, outcome={"v": one}, outcome_after={"v": other})
        }
        is_allowed = after == delivered and (delivered or "Delivered" not in action)
        assert found == (outcomes if is_allowed else set())


@pytest.mark.parametrize(
    ("before", "values", "allowed"),
    [
        ((), (1,), {"DeliverAny", "DeliverNew", "DeliverNext"}),
        ((), (1, 2), {"DeliverAny", "DeliverNew", "DeliverNext"}),
        ((1,), (2,), {"DeliverAny", "DeliverNew", "DeliverNext"}),
        ((), (2, 1), {"DeliverAny", "DeliverNew"}),  # not in order
        ((2,), (1,), {"DeliverAny", "DeliverNew"}),
        ((), (2,), {"DeliverAny", "DeliverNew"}),  # the first is missing, and has not failed
        ((1,), (1,), {"DeliverAny"}),  # again
        ((), (1, 1), {"DeliverAny"}),
        ((1,), (3,), {"DeliverAny", "DeliverNew"}),
        ((), (4,), set()),  # never sent
    ],
)
def test_readers_find_what_was_sent_each_promise_in_its_own_way(
    before: tuple[int, ...], values: tuple[int, ...], allowed: set[str]
) -> None:
    outcome = {1: "sent", 2: "acknowledged", 3: "sent", 4: "unsent"}
    shown = f"<<{', '.join(map(str, values))}>>"
    for action in ("DeliverAny", "DeliverNew", "DeliverNext"):
        call = f"{action}({shown})"
        assert delivers(call, before=before, after=before + values, outcome=outcome) is (action in allowed)
        assert not delivers(call, before=before, after=(*before, *values, 1), outcome=outcome)
        changed = outcome | {1: "acknowledged"}
        assert not delivers(call, before=before, after=before + values, outcome=outcome, outcome_after=changed)
    failed = {1: "failed", 2: "failed", 3: "sent", 4: "unsent"}
    for read, value, is_next in (((), 3, True), ((), 2, True), ((2,), 1, False)):  # what failed may be missing
        found = delivers(f"DeliverNext(<<{value}>>)", before=read, after=(*read, value), outcome=failed)
        assert found is is_next


def test_only_the_last_values_are_lost() -> None:
    for after, is_lost in (((1,), True), ((), True), ((1, 2), False), ((2,), False), ((1, 2, 1), False)):
        outcome = {1: "acknowledged", 2: "sent"}
        assert delivers("LoseTail", before=(1, 2), after=after, outcome=outcome) is is_lost
        assert not delivers(
            "LoseTail", before=(1, 2), after=after, outcome=outcome, outcome_after={1: "sent", 2: "sent"}
        )


def test_a_search_of_readers_after_an_election_admits_none_that_reads_before() -> None:
    search = {"of": "ConsumerBounds", "log": Map(entries=()), "highWatermark": 0, "leaderEpoch": 0}
    for position, is_inside in ((0, True), (1, False)):
        positions = Map(read_committed=position)
        assert holds("FollowerCatchesUp", "ReadAfterElection", positions=positions, **search) is is_inside


@pytest.mark.parametrize(("count", "is_right"), [(0, False), (1, True), (2, False)])
def test_changelog_and_store_have_counted_each_input_once(count: int, is_right: bool) -> None:
    fates = [("committed", count), ("aborted", 9), ("open", 9)]
    changelog = tuple(Map(key="a", count=each, fate=fate) for fate, each in fates)
    assert holds("StatefulProcessor", "ChangelogAgrees", changelog=changelog, committed=1) is is_right
    own = Map(stage="running", store=Map(a=count, b=0), position=1)
    other = Map(stage="running", store=Map(a=9, b=9), position=1)
    assert holds("StatefulProcessor", "StoreAgrees", owner="A", processes=Map(A=own, B=other)) is is_right


def leader(entries: Sequence[Map[str, Any]] = (), **transactions: Any) -> Map[str, Any]:
    """A leader of two producers that has appended some entries."""
    log = Map(entries=tuple(entries), producers=function({0: Map(epoch=1)}))
    known = {"entries": tuple(entries), "transactions": frozenset[Any](), **transactions}
    return Map(log=log, transactions=Map(known))


@pytest.mark.parametrize(("epochs", "is_right"), [((1, -1), True), ((0, -1), False), ((2, -1), False), ((1, 0), False)])
def test_a_leaders_log_and_transactions_know_the_same_epochs(epochs: tuple[int, int], is_right: bool) -> None:
    producers = function({number: Map(epoch=epoch) for number, epoch in enumerate(epochs)})
    state = leader(producers=producers)
    assert holds("LeaderTwoProducersBriefly", "OneEpoch", leader=state) is is_right


@pytest.mark.parametrize(
    ("epoch", "sequence", "is_right"),
    [(0, 1, True), (0, 0, False), (0, 2, False), (1, 0, True), (1, 1, False)],
)
def test_a_leaders_batches_follow_each_other_within_an_epoch(epoch: int, sequence: int, is_right: bool) -> None:
    told = [(0, 0, 0), (1, 0, 0), (1, 0, 1), (0, epoch, sequence)]
    entries = [Map(producerId=who, epoch=own, sequence=number, count=1) for who, own, number in told]
    assert holds("LeaderTwoProducersBriefly", "NoGapNoDuplicate", leader=leader(entries)) is is_right


@pytest.mark.parametrize(("unstable", "is_right"), [(1, True), (0, False), (2, False)])
def test_a_leaders_last_stable_offset_is_that_of_the_first_undecided_batch(unstable: int, is_right: bool) -> None:
    kinds = [(0, "commit"), (1, "transactional"), (1, "transactional")]
    entries = [
        Map(offset=offset, kind=kind, producerId=who, epoch=0, count=1) for offset, (who, kind) in enumerate(kinds)
    ]
    held = Map(producerId=1, firstOffset=unstable, lastOffset=-1)
    state = leader(entries, transactions=frozenset({held}))
    assert holds("LeaderTwoProducersBriefly", "StableIsDecided", leader=state) is is_right


@pytest.mark.parametrize("first", ["transactional", "plain", "commit", "abort"])
@pytest.mark.parametrize("last", ["transactional", "plain", "commit", "abort"])
def test_a_leaders_index_leads_from_a_batch_of_a_transaction_to_an_abort(first: str, last: str) -> None:
    entries = [Map(offset=offset, kind=kind, producerId=0, epoch=0) for offset, kind in enumerate((first, last))]
    index = (Map(producerId=0, firstOffset=0, lastOffset=1, lastStableOffset=2),)
    is_right = (first, last) == ("transactional", "abort")
    assert holds("LeaderTwoProducersBriefly", "IndexIsOfLog", leader=leader(entries, abortedIndex=index)) is is_right


@pytest.mark.parametrize("name", ["InSyncHaveCommitted", "EligibleHaveCommitted"])
def test_a_replica_that_runs_and_may_lead_has_the_committed_batches(name: str) -> None:
    batch = Map(offset=0, count=1, value=1)
    for entries, is_right in (
        ((batch,), True),
        ((batch, batch.set("offset", 1)), True),
        ((), False),
        ((batch.set("value", 2),), False),
    ):
        state = {"replicas": Map(a=Map(entries=(batch,)), b=Map(entries=entries)), "leader": "a", "highWatermark": 1}
        for alive, holding in (({"a", "b"}, is_right), ({"a"}, True)):
            state |= {"alive": frozenset(alive), "isr": frozenset({"a", "b"}), "elr": frozenset({"b"})}
            assert holds("EligibleLeaders", name, **state) is holding
