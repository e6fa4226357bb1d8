"""Columns prove a producer only if the readable rules find nothing, and they count the same."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import ControlType
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.events.blocks import Lines
from kafka_eos_checks.audit.events.history_files import column_of
from kafka_eos_checks.audit.events.recorded import Told, joined_hashes, name_hash, place_hash, text_hash, told
from kafka_eos_checks.audit.kernels.histories.requesting import (
    COUNTED,
    LINK,
    Crowds,
    Proved,
    date_epochs,
    links_of,
    prove_generations,
    prove_offsets,
    prove_refusals,
)
from kafka_eos_checks.audit.rules.applications import judge_generations
from kafka_eos_checks.audit.rules.histories import refused
from kafka_eos_checks.audit.rules.offsets import Commit, GroupLog
from kafka_eos_checks.audit.rules.sent_offsets import not_as_sent
from kafka_eos_checks.audit.segments.contents import Figures
from kafka_eos_checks.audit.segments.splits import PartitionLog

GROUPS = ("g", "h")
TOPIC = "in"


def columns(events: Sequence[Event], *cuts: int) -> Told:
    """The events as columns, of each piece between two cuts by itself."""
    edges = [0, *cuts, len(events)]
    pieces = [
        (np.arange(low, high), Lines([column_of(event) for event in events[low:high]])) for low, high in pairwise(edges)
    ]
    first, *others = [found for piece in pieces if len(piece[0]) for found in told([piece], "events")]
    for each in others:
        first.facts.add(each.facts)
    names = ("epochs", "epoch_requests", "refusals", "offset_steps", "members")
    return first._replace(
        **{name: np.concatenate([getattr(each, name) for each in (first, *others)]) for name in names}
    )


def proved_refusals(own: Told, *, ordered: bool) -> Proved:
    epochs = np.concatenate([own.epochs, date_epochs(own.epoch_requests, ordered=ordered)])
    return prove_refusals(epochs, own.refusals, ordered=ordered)


def shuffled(rng: random.Random, events: list[Event], faults: float) -> list[Event]:
    """Events of which some are left out, repeated, early, or at one time; their order is not that of the list."""
    made: list[Event] = []
    for event in events:
        chance = rng.random()
        if chance < faults:
            if chance < faults / 3:
                continue
            made.insert(rng.randint(max(0, len(made) - 4), len(made)), event)
        made.append(event)
    order = np.cumsum([rng.random() >= faults for _ in made]).tolist()
    made = [replace(event, order=number) for number, event in zip(order, made, strict=True)]
    some = rng.randint(0, len(made))
    return made[some:] + made[:some]


# --- offsets ----------------------------------------------------------------------------------------------------------


def offsets_of(rng: random.Random, faults: float) -> tuple[list[Event], list[GroupLog]]:
    """The requests of three producers that send offsets, and the logs in which they count, most of them rightly."""
    logs = [GroupLog(PartitionLog("", "__consumer_offsets", number, "", ())) for number in range(2)]
    events, record = list[Event](), 0
    for _ in range(rng.randint(1, 12)):
        who: dict[str, Any] = {"producer_id": rng.randint(1, 3), "producer_epoch": rng.randint(0, 1)}
        who["process"] = f"wire/{who['producer_id']}"
        commit, group = rng.random() < 0.7, rng.choice(GROUPS)
        log = logs[GROUPS.index(group)]
        for _ in range(rng.choice((0, 1, 1, 2))):
            where: dict[str, Any] = {"topic": TOPIC, "partition": rng.randint(0, 1), "group": group}
            offset: Any = rng.randint(0, 9)
            told_offset = offset if rng.random() > faults / 5 else rng.choice((None, "9", True, 1 << 80))
            more = {"repeats": 1} if rng.random() < faults / 5 else {}
            for phase in ("invoke", "ok" if rng.random() > faults else rng.choice(("fail", "info"))):
                detail = {"committed_offset": told_offset} | more
                events.append(Event(run="r", action="TxnOffsetCommit", phase=phase, detail=detail, **where, **who))
            if rng.random() > faults / 5:
                record += 1
                own = {
                    "transactional": rng.random() > faults / 5,
                    "offset": offset if rng.random() > faults / 5 else None,
                }
                commit_of = Commit(
                    file="", position=0, record=record, holes=0,
                    producer_id=who["producer_id"], producer_epoch=who["producer_epoch"], **own,
                )  # fmt: skip
                log.take((group, (TOPIC, where["partition"])), commit_of)
        if rng.random() < faults:
            events.append(Event(run="r", action="Produce", phase="invoke", topic="out", partition=0, **who))
        committed: Any = commit if rng.random() > faults / 5 else rng.choice((None, 1))
        while rng.random() < faults:  # the request is lost, or refused, or its answer is lost
            asked = Event(run="r", action="EndTxn", phase="invoke", detail={"committed": committed}, **who)
            events += [asked, replace(asked, phase=rng.choice(("fail", "info", "ok")))][: rng.randint(1, 2)]
            if rng.random() < faults:
                events.append(Event(run="r", action="Produce", phase="invoke", topic="out", partition=0, **who))
        for phase in ("invoke", "ok" if rng.random() > faults else rng.choice(("fail", "info"))):
            events.append(Event(run="r", action="EndTxn", phase=phase, detail={"committed": committed}, **who))
        decided = commit if rng.random() > faults / 5 else not commit
        log.end_transaction(who["producer_id"], ControlType.COMMIT if decided else ControlType.ABORT)
    for log in logs:
        log.whole = rng.random() > faults / 3
    return shuffled(rng, events, faults / 5), logs


def counted_rows(logs: Sequence[GroupLog], events: Sequence[Event]) -> Any:
    groups = {event.group for event in events if event.action == "TxnOffsetCommit"}
    rows = []
    for number, log in enumerate(logs):
        for (group, (topic, partition)), commits in log.commits.items():
            name = name_hash(text_hash(group), place_hash(topic, partition))
            for commit in commits:
                if commit.transactional and commit.offset is not None and group in groups:
                    key = joined_hashes(np.array([name], np.uint64), np.array([commit.offset]))[0]
                    rows.append((commit.producer_id, commit.producer_epoch, text_hash(group), key, number))
    return np.array(rows, COUNTED)


def totals(*figures: Figures) -> dict[str, int]:
    return {name: sum(int(own.get(name, 0)) for own in figures) for name in ("checked", "unknown")}


@pytest.mark.parametrize("faults", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("covered", [True, False])
def test_what_is_proved_about_offsets_is_what_the_readable_rule_finds(faults: float, covered: bool) -> None:
    rng, suspects, producers, found = random.Random(f"{faults} {covered}"), 0, 0, 0
    for number in range(150):
        events, logs = offsets_of(rng, faults)
        events = events or [Event(run="r", order=0, process="p", action="Produce", phase="ok")]
        ordered = number % 3 > 0
        events = events if ordered else sorted(events, key=lambda event: event.order or 0)
        own = columns(events, *sorted(rng.sample(range(len(events) + 1), min(len(events) + 1, number % 4))))
        in_order = sorted(events, key=lambda event: event.order or 0) if ordered else events
        whole: Figures = {}
        expected = list(not_as_sent(in_order, logs, whole, covered=covered))
        facts: dict[str, bool] = {"ordered": ordered, "straight": not ordered or own.facts.straight}
        proved = prove_offsets(own.offset_steps, counted_rows(logs, events), decided=covered, **facts)
        rest: Figures = {}
        only = set(proved.suspects.tolist())
        asked = [event for event in in_order if event.producer_id in only]
        judged = not_as_sent(asked, logs, rest, covered=covered, groups=own.facts.sending, only=only)
        assert sorted(map(repr, judged)) == sorted(map(repr, expected))
        assert totals(whole) == totals(rest, {"checked": proved.checked, "unknown": proved.unknown})
        suspects, found = suspects + len(only), found + len(expected)
        producers += len({event.producer_id for event in events})
    assert found > 0 or not faults or not covered, "something is found"
    assert suspects < (0, 0.5, 1)[(faults > 0) + (faults > 0.1)] * producers + 1, "most producers are proved"


# --- generations ------------------------------------------------------------------------------------------------------


def generations_of(rng: random.Random, number: int) -> list[Event]:
    """Joins and commits of two groups and two processes, of which some requests have the same number, and some none."""
    orders = rng.sample(range(60), rng.randint(1, 60))
    events = []
    for place, order in enumerate(orders):
        action = rng.choice(("JoinGroup", "OffsetCommit", "OffsetCommit", "TxnOffsetCommit", "Produce"))
        phase, generation = rng.choice(("invoke", "ok", "ok", "fail")), rng.choice((None, -1, 0, 1, 2, 3))
        more: dict[str, Any] = {"group": rng.choice("ggh"), "order": order if number % 3 or place % 7 else None}
        more["detail"] = rng.choice(({"request": order // 25}, {"request": str(order // 25)}, {}))
        events.append(
            Event(run="r", process=rng.choice("pq"), action=action, phase=phase, generation=generation, **more)
        )
    return events


def test_what_is_proved_about_generations_is_what_the_readable_rule_finds() -> None:
    rng, found, chosen, proofs = random.Random("generations"), 0, 0, 0
    for number in range(300):
        events = generations_of(rng, number)
        own = columns(events, *sorted(rng.sample(range(len(events) + 1), min(len(events) + 1, number % 4))))
        ordered = own.facts.ordered
        in_order = (
            sorted(enumerate(events), key=lambda each: each[1].order or 0) if ordered else list(enumerate(events))
        )
        whole: Figures = {}
        expected = list(judge_generations([event for _, event in in_order], whole))
        proved, rest = prove_generations(own.members, ordered=ordered), Figures()
        suspects = [event for at, event in in_order if at in proved.suspects]
        assert list(judge_generations(suspects, rest)) == expected
        assert totals(whole) == totals(rest, {"checked": proved.checked, "unknown": proved.unknown})
        found, chosen, proofs = found + len(expected), chosen + len(suspects), proofs + proved.checked - proved.unknown
    assert found > 30
    assert chosen <= 3 * found, "only what shows a past generation is judged one by one"
    assert proofs > 30


def test_a_generation_that_began_again_lower_is_the_present_one() -> None:
    """A group that the coordinator has forgotten begins anew."""
    join = {"action": "JoinGroup", "phase": "ok"}
    commit = {"action": "OffsetCommit", "generation": 1}
    steps = (
        {**join, "generation": 4},
        {**join, "generation": 1},
        {**commit, "phase": "invoke"},
        {**commit, "phase": "ok"},
    )
    events = [Event(run="r", process="p", group="g", order=order, **step) for order, step in enumerate(steps)]
    proved = prove_generations(columns(events).members, ordered=True)
    assert (proved.suspects.tolist(), proved.checked, proved.unknown) == ([], 1, 0)
    without = prove_generations(columns([events[0], *events[2:]]).members, ordered=True)
    assert (without.suspects.tolist(), without.checked) == ([0, 1, 2], 0)


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusals_of(rng: random.Random, faults: float) -> list[Event]:
    """Requests of clients that fence each other, or are refused without a cause."""
    events, epochs = list[Event](), dict.fromkeys(range(1, 5), 0)
    for _ in range(rng.randint(1, 25)):
        pid = rng.randint(1, 4)
        name, epoch = f"t{pid % 3}", max(0, epochs[pid] - (rng.random() < 0.4))
        named: dict[str, Any] = {"process": f"p{rng.randint(0, 3)}"}
        if rng.random() > faults / 2:
            named["transactional_id"] = name
        action = rng.choice(("InitProducerId", "Produce", "EndTxn", "AddPartitionsToTxn", "TimeOut"))
        who: dict[str, Any] = {"producer_id": pid, "producer_epoch": epoch}
        where: dict[str, Any] = {"topic": "out", "partition": 0} if action in {"Produce", "AddPartitionsToTxn"} else {}
        detail: dict[str, Any] = {"request": len(events)} if rng.random() < 0.7 else {}
        if action == "InitProducerId":
            events.append(Event(run="r", action=action, phase="invoke", **named))
            if rng.random() < 0.3:
                error = int(ErrorCode.CONCURRENT_TRANSACTIONS)
                events.append(Event(run="r", action=action, phase="fail", error=error, **named))
                events.append(Event(run="r", action=action, phase="invoke", **named))
            if rng.random() < 0.5:
                events.append(event("p0", "Produce", "fail", pid, epochs[pid], **FENCED))
            epochs[pid] += 1
            who["producer_epoch"] = epochs[pid]
        elif action == "TimeOut":
            events.append(Event(run="r", action=action, phase="ok", **named, **(who if rng.random() < 0.3 else {})))
            epochs[pid] += rng.random() < 0.5
            continue
        else:
            events.append(Event(run="r", action=action, phase="invoke", detail=detail, **named, **who, **where))
        if action == "Produce":
            where["base_sequence"] = rng.randint(0, 2)
        stale = who["producer_epoch"] < epochs[pid]
        if action != "InitProducerId" and (stale or rng.random() < faults):
            error = rng.choice((47, 47, 90, 48, 45)) if rng.random() < 0.5 else ErrorCode.INVALID_PRODUCER_EPOCH
            events.append(
                Event(run="r", action=action, phase="fail", error=int(error), detail=detail, **named, **who, **where)
            )
            continue
        if action == "EndTxn" and rng.random() < 0.5:
            following = rng.choice((pid, pid, rng.randint(1, 4)))
            epochs[following] += following == pid
            detail = detail | {"next_producer_id": following, "next_producer_epoch": epochs[following]}
        events.append(Event(run="r", action=action, phase="ok", detail=detail, **named, **who, **where))
    return shuffled(rng, events, faults / 5)


@pytest.mark.parametrize("faults", [0.0, 0.1, 0.5])
def test_what_is_proved_about_refusals_is_what_the_readable_rule_finds(faults: float) -> None:
    rng, suspects, refusals, found, left_out = random.Random(f"{faults}"), 0, 0, 0, 0
    for number in range(300):
        events = refusals_of(rng, faults)
        own = columns(events, *sorted(rng.sample(range(len(events) + 1), min(len(events) + 1, number % 4))))
        ordered = number % 3 > 0
        in_order = sorted(events, key=lambda event: event.order or 0) if ordered else events
        whole: Figures = {}
        expected = list(refused(in_order, {}, whole))
        proved = proved_refusals(own, ordered=ordered)
        clients = set(Crowds.of(proved.suspects, links_of(own.epochs)).clients.tolist())
        asked = [
            event
            for event in in_order
            if text_hash(event.process if event.transactional_id is None else event.transactional_id) in clients
        ]
        rest: Figures = {}
        only = set(proved.suspects.tolist())
        assert sorted(map(repr, refused(asked, {}, rest, only=only))) == sorted(map(repr, expected))
        assert totals(whole) == totals(rest, {"checked": proved.checked})
        suspects, refusals, found = suspects + len(only), refusals + totals(whole)["checked"], found + len(expected)
        left_out += len(in_order) - len(asked)
    assert refusals > 100
    assert left_out > 100, "the readable rule is given only what it needs"
    assert found > 0 or not faults, "something is found"
    assert suspects < refusals / 2, "most refusals are proved to have a cause"


def test_clients_that_shared_a_producer_id_are_one_crowd_and_others_are_left_out() -> None:
    links = np.array([(1, 10), (1, 11), (2, 11), (2, 12), (3, 13), (4, 14), (5, 14), (6, 15)], LINK)
    crowds = Crowds.of(np.array([1, 5, 6]), links)
    assert dict(zip(crowds.clients.tolist(), crowds.crowd.tolist(), strict=True)) == {10: 0, 11: 0, 12: 0, 14: 1, 15: 2}
    assert crowds.number_of(np.array([2, 6, 4])).tolist() == [0, 2, 1]


def event(
    process: str, action: str, phase: str, pid: int | None = None, epoch: int | None = None, **more: Any
) -> Event:
    return Event(run="r", process=process, action=action, phase=phase, producer_id=pid, producer_epoch=epoch, **more)


FENCED = {"error": int(ErrorCode.INVALID_PRODUCER_EPOCH), "topic": "out", "partition": 0}


def test_a_higher_epoch_at_the_same_time_explains_nothing() -> None:
    refusal = event("p", "Produce", "fail", 7, 0, order=5, **FENCED)
    for order, suspects in ((4, []), (5, [7]), (6, [7])):
        own = columns([event("q", "Produce", "invoke", 7, 1, order=order), refusal])
        assert proved_refusals(own, ordered=True).suspects.tolist() == suspects


def test_each_epoch_that_a_client_is_given_has_its_own_first_request() -> None:
    asked, refusal = event("p", "InitProducerId", "invoke"), event("p", "InitProducerId", "fail", error=51)
    given = [event("p", "InitProducerId", "ok", 3, epoch) for epoch in (0, 1)]
    own = columns([asked, given[0], asked, refusal, asked, given[1]], 3)
    dated = date_epochs(own.epoch_requests, ordered=False)
    assert dated[["pid", "epoch", "at"]].tolist() == [(3, 0, 0), (3, 1, 2)]


def test_a_refusal_while_a_higher_epoch_is_asked_for_has_a_cause() -> None:
    """A coordinator fences the former epoch with the first request, even if it answers CONCURRENT_TRANSACTIONS."""
    ask, busy = event("q", "InitProducerId", "invoke"), event("q", "InitProducerId", "fail", error=51)
    refusal = event("p", "Produce", "fail", 7, 0, **FENCED)
    given, before = event("q", "InitProducerId", "ok", 7, 1), event("q", "InitProducerId", "ok", 6, 0)
    another = event("r", "InitProducerId", "invoke")
    for events, suspects in (
        ([ask, busy, refusal, ask, given], []),
        ([refusal, ask, given], [7]),
        ([ask, before, refusal, ask, given], [7]),
        ([another, refusal, ask, given], [7]),
        ([ask, refusal, busy], [7]),
    ):
        ordered = [replace(each, order=order) for order, each in enumerate(events)]
        mixed = columns([*ordered[1:], ordered[0]])
        for own, known in ((columns(ordered, 1, 2), True), (mixed, True), (columns(events, 1, 2), False)):
            assert proved_refusals(own, ordered=known).suspects.tolist() == suspects


def test_who_gave_an_id_is_found_over_the_id_before_it() -> None:
    """A producer of epoch 32767 is given its next id at the end of a transaction, and is refused with it."""
    after = {"committed": True, "next_producer_id": 8, "next_producer_epoch": 0}
    events = [
        event("starter", "InitProducerId", "invoke", transactional_id="t"),
        event("starter", "InitProducerId", "ok", 7, 3, transactional_id="t"),
        event("p", "EndTxn", "invoke", 7, 3),
        event("p", "EndTxn", "ok", 7, 3, detail=after),
        event("p", "Produce", "fail", 8, 0, **FENCED),
        event("other", "Produce", "ok", 9, 0),
    ]
    own = columns(events)
    proved = proved_refusals(own, ordered=False)
    assert proved.suspects.tolist() == [8]
    assert set(Crowds.of(proved.suspects, links_of(own.epochs)).clients.tolist()) == {text_hash("t"), text_hash("p")}


def test_an_offset_that_does_not_count_is_unknown_if_the_logs_are_too_old() -> None:
    where: dict[str, Any] = {"topic": TOPIC, "partition": 0, "group": "g", "detail": {"committed_offset": 4}}
    events = [event("p", "TxnOffsetCommit", phase, 7, 0, **where) for phase in ("invoke", "ok")]
    events += [event("p", "EndTxn", phase, 7, 0, detail={"committed": True}) for phase in ("invoke", "ok")]
    steps, nothing = columns(events).offset_steps, np.zeros(0, COUNTED)
    undecided = prove_offsets(steps, nothing, ordered=False, decided=False)
    assert (undecided.suspects.tolist(), undecided.checked, undecided.unknown) == ([], 1, 1)
    assert prove_offsets(steps, nothing, ordered=False, decided=True).suspects.tolist() == [7]


def test_an_end_without_answer_makes_no_suspect() -> None:
    """Neither of the producer that waits for it, nor of the next one."""
    events = [event("p", "EndTxn", "invoke", 7, 0, detail={"committed": True})]
    events += [event("q", "EndTxn", phase, 8, 0, detail={"committed": True}) for phase in ("invoke", "ok")]
    proved = prove_offsets(columns(events).offset_steps, np.zeros(0, COUNTED), ordered=False, decided=True)
    assert proved.suspects.tolist() == []


@pytest.mark.parametrize(
    ("requests", "is_proved"),
    [
        ("EEA", True),
        ("EFEA", True),
        ("EpEA", True),
        ("EPEA", False),
        ("E|EA", False),
        ("EP|FEA", False),
    ],
    ids=["lost", "refused", "another epoch between", "another request", "another chunk", "a refusal in the next chunk"],
)
def test_an_end_that_is_requested_again_is_proved_if_nothing_else_was_requested(requests: str, is_proved: bool) -> None:
    events, cuts = told_in(requests)
    assert both(events, cuts) == (([], 1) if is_proved else ([7], 0))


@pytest.mark.parametrize(
    ("requests", "orders"),
    [("EE|PA", (1, 5, 3, 6)), ("EEPA", (1, 5, 3, 6)), ("EEA|P", (1, 5, 6, 3))],
    ids=["chunks", "one chunk", "chunks that rise"],
)
def test_a_request_between_two_ends_is_seen_wherever_it_is(requests: str, orders: tuple[int, ...]) -> None:
    events, cuts = told_in(requests)
    events[2:] = [replace(each, order=order) for each, order in zip(events[2:], orders, strict=True)]
    assert both(events, cuts) == ([7], 0)


def told_in(requests: str) -> tuple[list[Event], list[int]]:
    """An offset that a producer sends, and what comes then: E asks for the end, A answers, F refuses, P is a batch."""
    where: dict[str, Any] = {"topic": TOPIC, "partition": 0, "group": "g", "detail": {"committed_offset": 4}}
    events = [event("p", "TxnOffsetCommit", phase, 7, 0, **where) for phase in ("invoke", "ok")]
    cuts = [2 + requests.index("|")] if "|" in requests else []
    phases = {"E": "invoke", "A": "ok", "F": "fail"}
    for each in requests.replace("|", ""):
        if each in phases:
            events.append(event("p", "EndTxn", phases[each], 7, 0, detail={"committed": True}))
        else:
            events.append(event("p", "Produce", "invoke", 7, int(each == "p"), topic="out", partition=0))
    return [replace(each, order=order - 1) for order, each in enumerate(events)], cuts


def both(events: list[Event], cuts: list[int]) -> tuple[list[int], int]:
    """The suspects of the proof, and how much it checks; without suspects it checks what the readable rule does."""
    own, figures = columns(events, *cuts), Figures(checked=0, unknown=0)
    assert not list(not_as_sent(sorted(events, key=lambda each: each.order or 0), [], figures))
    facts: dict[str, bool] = {"ordered": True, "straight": own.facts.straight}
    proved = prove_offsets(own.offset_steps, np.zeros(0, COUNTED), decided=False, **facts)
    suspects = proved.suspects.tolist()
    assert suspects or (proved.checked, proved.unknown) == (figures["checked"], figures["unknown"])
    return suspects, proved.checked
