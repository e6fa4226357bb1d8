"""Views of a state by mechanisms: sequences to send, and how far a leader and a coordinator know a producer."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.machines.producer_state import Batch, CachedBatch, Limits, ProducerState
from kafka_eos.machines.transaction_coordinator import NO_EPOCH, Identity
from kafka_eos_checks.conform.mechanisms import (
    GROUP_OFFSETS,
    MECHANISMS,
    MEMBERS,
    READING,
    TRANSACTIONS,
    Mechanism,
    Request,
    _asked_before,
    _members,
    _place_in_transaction,
    _relation,
    _sequence,
)
from kafka_eos_checks.conform.quotient import Edge, Quotient
from kafka_eos_checks.conform.visible import DATA, FIRST, NONE, SECOND

from .test_behaviours import VERSION_1, taken, taken_from

MOST = Limits().cached_batches
OWN = Identity(producer_id=7, epoch=2)


def leader(*batches: tuple[int, int], epoch: int = 2, log: tuple[Batch, ...] = ()) -> Any:
    """A leader that remembers these batches of producer 7: first sequence and number of records."""
    cached = tuple(CachedBatch(sequence=first, count=count, offset=0) for first, count in batches)
    known = {7: ProducerState(epoch=epoch, batches=cached)} if batches else {}
    return SimpleNamespace(state=SimpleNamespace(log=SimpleNamespace(producers=known, limits=Limits(), entries=log)))


LAST = (10, 3)
ALL = [(4 + n, 1) for n in range(MOST)]


@pytest.mark.parametrize(
    ("which", "of_nothing", "of_last", "of_all"),
    [
        ("next", (0, 1), (13, 1), (4 + MOST, 1)),
        ("next, two records", (0, 2), (13, 2), (4 + MOST, 2)),
        ("gap", (1, 1), (14, 1), (5 + MOST, 1)),
        ("again", None, (10, 3), (3 + MOST, 1)),
        ("again and one more", None, (10, 4), (3 + MOST, 2)),
        ("the oldest remembered again", None, None, (4, 1)),
        ("one that is forgotten again", None, None, (3, 1)),
        ("the last before the wrap", (2**31 - 1, 1), None, None),
    ],
)
def test_a_sequence_is_chosen_by_what_the_leader_remembers(
    which: str, of_nothing: object, of_last: object, of_all: object
) -> None:
    assert _sequence(leader(), OWN, which) == of_nothing
    assert _sequence(leader(LAST), OWN, which) == of_last
    assert _sequence(leader(*ALL), OWN, which) == of_all


def test_what_is_sent_again_is_the_last_batch_with_all_its_records() -> None:
    remembering = leader((3, 4), (7, 3), LAST)
    assert _sequence(remembering, OWN, "again") == LAST
    assert _sequence(remembering, OWN, "again and one more") == (LAST[0], LAST[1] + 1)


def test_batches_of_another_epoch_are_not_continued() -> None:
    assert _sequence(leader(LAST, epoch=1), OWN, "next") == (0, 1)
    assert _sequence(leader(LAST, epoch=1), OWN, "again") is None


def test_the_batch_that_is_forgotten_is_sent_again_with_all_its_records() -> None:
    def batch(sequence: int, count: int, producer_id: int = 7, epoch: int = 2) -> Batch:
        return Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)

    others = (batch(3, 1, producer_id=8), batch(3, 1, epoch=1), batch(0, 2))
    assert _sequence(leader(*ALL, log=(*others, batch(2, 2))), OWN, "one that is forgotten again") == (2, 2)
    assert _sequence(leader(*ALL, log=others), OWN, "one that is forgotten again") == (3, 1)


def test_before_sequence_0_none_is_forgotten() -> None:
    batches = [(n, 1) for n in range(MOST)]
    assert _sequence(leader(*batches), OWN, "the oldest remembered again") == (0, 1)
    assert _sequence(leader(*batches), OWN, "one that is forgotten again") is None


@pytest.mark.parametrize(
    ("epoch", "is_open", "told"),
    [
        (-1, False, "unknown"),
        (1, True, "older epoch, open"),
        (2, False, "same epoch, closed"),
        (3, True, "newer epoch, open"),
    ],
)
def test_a_leaders_epoch_is_compared_with_the_producers_own(epoch: int, is_open: bool, told: str) -> None:
    known = SimpleNamespace(epoch=epoch, is_open=is_open)
    leader: Any = SimpleNamespace(state=SimpleNamespace(producer=lambda _: known))
    assert _relation(leader, OWN) == told


def test_a_mechanism_of_one_transactional_id_is_alone() -> None:
    assert TRANSACTIONS.alone
    assert {mechanism.alone for mechanism in MECHANISMS if len(mechanism.transactional_ids) == 2} == {False}


def test_an_edge_is_the_same_whichever_way_leads_to_it() -> None:
    request = Request("InitProducerId", whose=NONE)
    one, other = (
        Edge(name="e", mechanism=TRANSACTIONS, request=request, answers=("ok",), path=path) for path in ((), (request,))
    )
    assert one == other


def test_a_place_tells_whether_the_coordinator_remembers_an_epoch_to_repeat() -> None:
    new = taken(VERSION_1, TRANSACTIONS, Request("InitProducerId", whose=NONE))
    bumped = taken(VERSION_1, TRANSACTIONS, Request("InitProducerId", whose=NONE), Request("InitProducerId"))
    assert [_place_in_transaction(state)[3] for state in (new, bumped)] == [False, True]


@pytest.mark.parametrize(
    ("guard_epoch", "lowest", "last", "is_told"),
    [(NO_EPOCH, -1, 5, False), (1, 6, 5, False), (1, 5, 5, True), (1, 3, 5, True), (1, 0, -1, False)],
)
def test_a_place_tells_whether_a_leader_was_asked_about_a_sequence_that_is_not_the_next(
    guard_epoch: int, lowest: int, last: int, is_told: bool
) -> None:
    asked = SimpleNamespace(guard_epoch=guard_epoch, lowest_sequence=lowest)
    leader = SimpleNamespace(questions=lambda _: asked, last_sequence=lambda _: last)
    state: Any = SimpleNamespace(data=SimpleNamespace(state=leader))
    assert bool(_asked_before(state, OWN)) is is_told


@pytest.mark.parametrize(
    ("mechanism", "names"),
    [(READING, ["A", "B", "P"]), (GROUP_OFFSETS, ["A", "B"]), (MEMBERS, ["A"])],
    ids=lambda each: getattr(each, "name", None),
)
def test_producers_get_their_ids_one_after_another_before_anything_else_is_asked(
    mechanism: Mechanism, names: list[str]
) -> None:
    state = Quotient(mechanism, VERSION_1).initial()
    for name in names:
        [request] = mechanism.requests(state)
        assert (request.name, request.action.startswith("Init")) == (name, True)
        state = taken_from(state, request)
    then = list(mechanism.requests(state))
    assert then
    assert not any(request.action.startswith("Init") for request in then)


def test_a_place_tells_which_members_have_the_partition_since_when_and_are_behind() -> None:
    def place(first: tuple[int, bool], second: tuple[int, bool] | None) -> str:
        """Of members, each with the epochs since its assignment and whether it still has the partition."""
        given = {who: of for who, of in zip((FIRST, SECOND), (first, second), strict=True) if of is not None}
        members = {
            who: SimpleNamespace(
                epoch=given[who][0] + 1 if who in given else 0,
                assigned={DATA} if who in given and given[who][1] else set(),
                revoking={DATA} if who in given and not given[who][1] else set(),
                assignment_epochs={DATA: 1},
            )
            for who in (FIRST, SECOND)
        }
        membership = SimpleNamespace(members=members, epoch=3)
        group = SimpleNamespace(members=lambda: given)
        state: Any = SimpleNamespace(broker=SimpleNamespace(membership=membership), group=group)
        return _members(state)

    assert [place((since, True), None) for since in range(4)] == [
        "first has the partition since this epoch, behind; second no member",
        "first has the partition since the last epoch, behind; second no member",
        "first has the partition since before the last epoch; second no member",
        "first has the partition since before the last epoch; second no member",
    ]
    assert place((2, False), (2, True)) == (
        "first gives up the partition since before the last epoch; second has the partition since before the last epoch"
    )
