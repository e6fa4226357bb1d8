"""The scenarios of conformance as behaviours of the module Broker: requests, allowed answers, and rules that decide."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256

import pytest
from immutables import Map

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.broker import DATA, NO_ANSWER, Broker, Constants
from kafka_eos.machines.machine import actions, instances, step
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos.machines.transaction_coordinator import PREPARED_STATES
from kafka_eos_checks.conform import deciding, visible
from kafka_eos_checks.conform.beyond import DELETE, MARK, TIMED, VERIFY, WITH_UNKNOWN
from kafka_eos_checks.conform.known import known_differences
from kafka_eos_checks.conform.mechanisms import (
    ABORT,
    COMMIT,
    GROUP_OFFSETS,
    IDEMPOTENCE,
    MARKERS,
    MECHANISMS,
    NOT_ASKED,
    QUESTIONS,
    READING,
    SETTLE,
    TRANSACTIONS,
    Mechanism,
    Request,
    asked,
    outcomes,
)
from kafka_eos_checks.conform.quotient import Quotient, Step, step_of, steps
from kafka_eos_checks.conform.visible import (
    ANOTHER_ID,
    CURRENT,
    EPOCHS,
    ID_ALONE,
    INTERNAL,
    NONE,
    OF_OTHER,
    RESTART,
    ConformingBroker,
    Outcome,
    Settings,
    Visible,
    by_spec,
    shipped_rules,
    under,
)
from kafka_eos_checks.kit.paths import CLONE, spec_folder
from kafka_eos_checks.tla.modules import ModuleFolder

from ..kept import compared

OLD = Map(
    InitProducerId=5,
    AddPartitionsToTxn=3,
    AddOffsetsToTxn=4,
    EndTxn=4,
    Produce=11,
    TxnOffsetCommit=4,
    WriteTxnMarkers=2,
)
NEW = OLD.update(EndTxn=5, Produce=12, TxnOffsetCommit=5)
VERSION_1 = Settings(level=1, client=1, verification=True, versions=OLD)
VERSION_2 = Settings(level=2, client=2, verification=True, versions=NEW)
UNVERIFIED = Settings(level=1, client=1, verification=False, versions=VERSION_1.versions)
SETTINGS = pytest.mark.parametrize("settings", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])


def taken(settings: Settings, mechanism: Mechanism, *requests: Request) -> Visible:
    """The state after some requests, by the spec's answers."""
    return taken_from(Quotient(mechanism, settings).initial(), *requests)


def taken_from(state: Visible, *requests: Request) -> Visible:
    """The state after some more requests."""
    for request in requests:
        given = asked(state, request)
        assert given is not None, request
        state = outcomes(state, given)[0][1]
    return state


@cache
def every_step(mechanism: Mechanism, settings: Settings) -> tuple[Step, ...]:
    """Every step that is tried from a node of a mechanism's graph."""
    start = Quotient(mechanism, settings).initial()
    met, waiting, found = {mechanism.place(start)}, [start], []
    for state in waiting:
        for each in steps(mechanism, state):
            found.append(each)
            after = each.outcomes[0][1]
            if (place := mechanism.place(after)) not in met:
                met.add(place)
                waiting.append(after)
    return tuple(found)


def answers(state: Visible, request: Request) -> dict[str, str]:
    """The allowed codes, each with the recorded difference that it belongs to."""
    given = asked(state, request)
    assert given is not None
    return {answer.error.name: answer.known for answer, _ in outcomes(state, given)}


def without_questions(state: Broker) -> Broker:
    """A state of which nothing tells what leaders have asked."""
    partitions = {name: replace(leader, asked=Map()) for name, leader in state.partitions.items()}
    return under(ConformingBroker, replace(state, partitions=Map(partitions)))


# --- Kafka's own rules -----------------------------------------------------------------------------------------------


@SETTINGS
def test_the_rule_that_forgets_questions_decides_nothing_else_in_a_graph(settings: Settings) -> None:
    mechanism = TRANSACTIONS
    start = Quotient(mechanism, settings).initial()
    twin = ConformingBroker.initial(start.broker.constants)
    met, waiting, kept = {mechanism.place(start)}, [(start, twin)], 0
    for state, spec in waiting:
        for each in steps(mechanism, state):
            after = each.outcomes[0][1]
            beside = replace(state, broker=spec).settled().broker if each.is_settle else step(spec, each.asked.instance)
            assert each.is_settle or beside.answer == step(state.broker, each.asked.instance).answer
            assert without_questions(after.broker) == without_questions(beside)
            kept += after.broker.partitions != beside.partitions
            if (place := mechanism.place(after)) not in met:
                met.add(place)
                waiting.append((after, beside))
    assert kept > 0  # the rule does leave other questions


@pytest.mark.thorough
@pytest.mark.parametrize("client", [1, 2])
def test_the_rule_that_forgets_questions_decides_nothing_else_whatever_is_asked(client: int) -> None:
    versions = NEW if client == 2 else OLD
    constants = Constants(
        max_sequence=4,
        cached_batches=2,
        producer_ids=frozenset({0}),
        max_epoch=1,
        sequences=frozenset({0, 1}),
        batch_counts=frozenset({1}),
        transactional_ids=frozenset({"A"}),
        members=frozenset({None}),
        generations=frozenset({-1}),
        writers=frozenset(),
        cluster_version=client,
        client_version=client,
        outside=False,
        verification=True,
        api_versions=versions.delete("TxnOffsetCommit"),
    )
    start = by_spec().initial(constants), ConformingBroker.initial(constants)
    met, waiting, kept = {start}, [start], 0
    for kafkas, specs in waiting:
        for instance in instances(Broker, constants):
            try:
                after = step(kafkas, instance), step(specs, instance)
            except NotEnabled:
                continue
            assert after[0].answer == after[1].answer
            assert without_questions(after[0]) == without_questions(after[1])
            kept += after[0].partitions != after[1].partitions
            known = after[0].coordinators["A"]
            is_short = len(after[0].partitions[DATA].log.entries) <= 2 and known.number <= 1 and known.producer_id <= 0
            if is_short and after not in met:
                met.add(after)
                waiting.append(after)
    assert kept > 0  # the rule does leave other questions


def after_restart(each: Step) -> list[Outcome]:
    """The outcomes of a client's request before which the broker restarts."""
    return [] if each.is_settle else outcomes(each.state.restarted(), each.asked)


def test_recorded_differences_are_rules_of_the_newest_kafka_and_each_is_seen_in_some_graph() -> None:
    rules = {known.rule for known in known_differences().values()}
    assert rules <= shipped_rules().keys()
    found = {
        answer.known
        for settings in (VERSION_1, VERSION_2)
        for mechanism in (IDEMPOTENCE, TRANSACTIONS, READING)
        for each in every_step(mechanism, settings)
        for answer, _ in (*each.outcomes, *after_restart(each))
    }
    assert found == {"", *known_differences()}


IN_ONE = (Request("InitProducerId", whose=NONE), Request("Produce", detail="next"), Request("EndTxn", detail="commit"))


@pytest.mark.parametrize(
    ("settings", "before", "request_", "allowed"),
    [
        # a partition that nothing was written to, by a producer outside of transactions: Kafka takes any sequence
        (
            VERSION_2,
            (Request("InitIdempotentProducer", "P"),),
            Request("ProduceOutside", "P", detail="gap"),
            {"OUT_OF_ORDER_SEQUENCE_NUMBER": "", "NONE": "first-sequence"},
        ),
        # in a transaction of version 2 it does not: the two differences cancel out, so neither may be shown
        (
            VERSION_2,
            IN_ONE[:1],
            Request("Produce", detail="gap"),
            {"OUT_OF_ORDER_SEQUENCE_NUMBER": ""},
        ),
        (
            VERSION_1,
            (IN_ONE[0], Request("AddPartitionsToTxn")),
            Request("Produce", detail="gap"),
            {"OUT_OF_ORDER_SEQUENCE_NUMBER": "", "NONE": "first-sequence"},
        ),
        # nothing is asked a second time within a transaction: Kafka answers as the spec
        (VERSION_2, IN_ONE[:2], Request("Produce", detail="next"), {"NONE": ""}),
        (VERSION_2, IN_ONE[:2], Request("Produce", detail="gap"), {"OUT_OF_ORDER_SEQUENCE_NUMBER": ""}),
    ],
)
def test_kafkas_answer_is_allowed_where_all_its_rules_together_give_it(
    settings: Settings, before: tuple[Request, ...], request_: Request, allowed: dict[str, str]
) -> None:
    assert answers(taken(settings, TRANSACTIONS, *before), request_) == allowed


def test_a_batch_of_an_epoch_that_was_refused_makes_only_kafka_refuse_the_next_one() -> None:
    """The finding lowest-sequence: a delayed duplicate of the last transaction's batch is asked about."""
    begin = (Request("AddPartitionsToTxn"), Request("Produce", detail="next"))
    state = taken(VERSION_1, TRANSACTIONS, IN_ONE[0], *begin, IN_ONE[2], Request(SETTLE), begin[0])
    assert answers(state, begin[1]) == {"NONE": ""}
    again = taken_from(state, Request("Produce", detail="again"))
    assert answers(again, begin[1]) == {"NONE": "", "OUT_OF_ORDER_SEQUENCE_NUMBER": "lowest-sequence"}


def test_an_answer_of_kafka_that_no_recorded_difference_explains_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = taken(VERSION_2, TRANSACTIONS, Request("InitIdempotentProducer", "P"))
    monkeypatch.setattr(visible, "by_difference", dict)
    with pytest.raises(AssertionError, match="no recorded difference"):
        answers(state, Request("ProduceOutside", "P", detail="gap"))


# --- the order of markers and completions ----------------------------------------------------------------------------


def test_markers_of_two_partitions_are_written_in_any_order_and_end_in_one_state() -> None:
    both = (IN_ONE[0], IN_ONE[1], Request("TxnOffsetCommit"), IN_ONE[2])
    state = taken(VERSION_2, TRANSACTIONS, *both)
    due = [sorted(each.broker.to_mark["A"]) for each in state.meanwhile()]
    assert due == [["data", "offsets"], ["offsets"], ["data"], [], []]
    assert state.meanwhile()[-1] == state.settled()
    assert state.settled().is_settled


def test_two_transactions_that_are_closed_at_once_have_no_one_end() -> None:
    of_both = [replace(request, name=name) for request in IN_ONE for name in ("A", "B")]
    state = taken(VERSION_2, READING, *of_both)
    assert all(known.state in PREPARED_STATES for known in state.coordinators.values())
    with pytest.raises(AssertionError, match="the order of markers"):
        state.settled()


@SETTINGS
def test_between_two_steps_of_the_broker_no_answer_is_allowed_that_neither_before_nor_after_is(
    settings: Settings,
) -> None:
    several = 0
    for each in every_step(TRANSACTIONS, settings):
        if each.is_settle or each.state.is_settled:
            continue
        ends = (each.state, each.state.settled())
        assert {answer for answer, _ in each.outcomes} == {
            answer for state in ends for answer, _ in state.outcomes(each.asked.instance)
        }
        several += len(each.outcomes) > 1
    assert several > 0


@SETTINGS
def test_only_steps_of_the_broker_answer_nobody(settings: Settings) -> None:
    for mechanism in MECHANISMS:
        for each in every_step(mechanism, settings):
            if each.is_settle:
                assert each.outcomes[0][1].broker.answer == NO_ANSWER
            else:
                assert step(each.state.broker, each.asked.instance).answer.api == each.asked.request.api


@SETTINGS
def test_the_answer_to_the_end_of_a_transaction_has_an_epoch_in_version_2_only(settings: Settings) -> None:
    ends = [
        answer
        for each in every_step(TRANSACTIONS, settings)
        for answer, _ in each.outcomes
        if each.asked.request.action == "EndTxn" and not answer.error
    ]
    assert ends
    assert {answer.identity is not None for answer in ends} == {settings.client >= 2}


# --- requests --------------------------------------------------------------------------------------------------------

PRESENTED = {
    "Epochs": {ANOTHER_ID, *EPOCHS},
    "RequestEpochs": {NONE, ID_ALONE, ANOTHER_ID, *EPOCHS},
}
"""Everything that can be presented, by the set over which the parameter of an action ranges."""


def test_every_action_of_broker_is_asked_or_is_a_step_of_the_broker_itself() -> None:
    sent = {row.action for mechanism in MECHANISMS for row in mechanism.sends}
    assert sent | {*INTERNAL, RESTART.action.name} == {action.name for action in actions(ConformingBroker)}
    assert not sent & set(INTERNAL)


def test_every_identity_is_presented_with_every_action_or_there_is_a_reason() -> None:
    possible = {
        (action.name, whose)
        for action in actions(ConformingBroker)
        for domain in action.domains
        for whose in PRESENTED.get(domain, ())
    }
    sent = {(row.action, whose) for each in MECHANISMS for row in each.sends for whose in row.whose}
    assert possible - sent == NOT_ASKED.keys()
    assert {whose for action, whose in sent - possible} == {CURRENT, OF_OTHER}  # present none; only of two ids


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: each.name)
def test_every_bound_leaves_out_requests_that_nothing_else_leaves_out(mechanism: Mechanism) -> None:
    idle = set(mechanism.bounds)
    for settings in (VERSION_1, VERSION_2, UNVERIFIED):
        states = {id(each.state): each.state for each in every_step(mechanism, settings)}
        for state in states.values():
            if not idle:
                return
            for request in mechanism.all_requests():
                by = [bound for bound in mechanism.bounds if bound.leaves_out(state, request)]
                if len(by) == 1 and by[0] in idle and asked(state, request) is not None:
                    idle.remove(by[0])
    assert [bound.reason for bound in idle] == []


@pytest.mark.parametrize(
    ("mechanism", "of_version_1", "of_version_2"),
    [
        ("idempotence", 132, 132),
        ("transaction", 404, 256),
        ("question", 64, 76),
        ("marker", 108, 89),
        ("commit", 74, 47),
        ("reading", 171, 167),
        ("offsets", 285, 283),
        ("static", 37, 36),
        ("members", 192, 191),
    ],
)
def test_no_edge_is_lost_unnoticed(mechanism: str, of_version_1: int, of_version_2: int) -> None:
    [chosen] = [each for each in MECHANISMS if each.name == mechanism]
    edges = [len({each.edge for each in every_step(chosen, settings)}) for settings in (VERSION_1, VERSION_2)]
    assert edges == [of_version_1, of_version_2]
    compared([f"{chosen.title} ({chosen.kips})", *summary(chosen, VERSION_1), *summary(chosen, VERSION_2)])


def summary(mechanism: Mechanism, settings: Settings) -> Iterator[str]:
    """Of the steps with each action, how many they are and a digest of their edges, arguments and allowed answers.

    Where it differs, ``kafka-eos conform --list`` shows most of it.
    """
    told: dict[str, list[str]] = defaultdict(list)
    for each in every_step(mechanism, settings):
        allowed = [(answer.error.name, answer.identity, answer.offset, answer.known) for answer, _ in each.outcomes]
        told[each.asked.request.action].append(f"{each.edge}: {each.asked}: {allowed}")
    for action, lines in sorted(told.items()):
        digest = sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]
        yield f"version {settings.client}: {len(lines)} steps with {action}, {digest}"


def test_an_edge_says_what_the_guards_look_at() -> None:
    send, commit = Request("Produce", detail="next"), Request("EndTxn", detail="commit")
    fresh = Quotient(TRANSACTIONS, VERSION_2).initial()
    empty = taken_from(fresh, Request("InitProducerId", whose=NONE))
    ongoing = taken_from(empty, send)
    committed = taken_from(ongoing, commit, Request(SETTLE))
    assert TRANSACTIONS.seen(fresh, Request("InitProducerId", whose=NONE), True) == "Unknown"
    assert [TRANSACTIONS.seen(state, send, True) for state in (empty, ongoing, committed)] == [
        "Empty, nothing, partition: unknown, no batch",
        "Ongoing, data, partition: same epoch, open",
        "CompleteCommit, nothing, partition: same epoch, closed, no batch",
    ]
    assert [TRANSACTIONS.seen(state, commit, True) for state in (ongoing, committed)] == [
        "Ongoing, data, partition open",
        "CompleteCommit, nothing, partition closed",
    ]


# --- requests that Broker leaves out ---------------------------------------------------------------------------------


def test_while_a_transaction_is_being_closed_no_partition_is_vouched_for() -> None:
    question = Request(VERIFY)
    ongoing = taken(VERSION_2, QUESTIONS, Request("InitProducerId", whose=NONE), Request("Produce", detail="next"))
    assert answers(ongoing, question) == {"NONE": ""}
    for decision in (COMMIT, ABORT):
        closing = taken_from(ongoing, Request("EndTxn", detail=decision))
        assert set(answers(closing, question)) == {"CONCURRENT_TRANSACTIONS", "TRANSACTION_ABORTABLE"}
        assert set(answers(closing.settled(), question)) == {"TRANSACTION_ABORTABLE"}


@SETTINGS
def test_a_marker_is_judged_by_the_version_that_its_request_tells(settings: Settings) -> None:
    marker = Request(MARK, detail=COMMIT)
    of_version_1 = replace(settings, versions=settings.versions.set(MARK, 1))
    told = []
    for each in (settings, of_version_1):
        begun = [
            Request("InitProducerId", whose=NONE),
            Request("AddPartitionsToTxn"),
            Request("Produce", detail="next"),
        ]
        state = taken(each, MARKERS, *(begun if settings.client == 1 else begun[::2]))
        told += answers(state, marker)
    assert told == (["NONE"] * 2 if settings.client == 1 else ["INVALID_PRODUCER_EPOCH", "NONE"])


def test_only_the_coordinator_epoch_of_a_marker_that_was_written_has_one_before() -> None:
    state = taken(VERSION_2, MARKERS, Request("InitProducerId", whose=NONE))
    before = Request(MARK, detail=f"{ABORT}, coordinator epoch - 1")
    assert asked(state, before) is None
    after = taken_from(state, Request(MARK, detail=f"{COMMIT}, coordinator epoch + 1"))
    assert set(answers(after, before)) == {"TRANSACTION_COORDINATOR_FENCED"}
    assert set(answers(taken_from(state, Request(MARK, detail=COMMIT)), before)) == {"TRANSACTION_COORDINATOR_FENCED"}


def test_offsets_are_deleted_with_the_pending_ones_of_a_group_that_is_there() -> None:
    delete, commit = Request(DELETE, ""), Request("EndTxn", detail=COMMIT)
    state = taken(VERSION_2, GROUP_OFFSETS, Request("InitProducerId", whose=NONE))
    assert answers(state, delete) == {"GROUP_ID_NOT_FOUND": ""}
    pending = taken_from(state, Request("TxnOffsetCommit"))
    deleted = taken_from(pending, delete)
    assert (pending.group.pending, deleted.group.pending) != (deleted.group.pending, Map())
    assert deleted.group.pending == Map()
    assert taken_from(deleted, commit).settled().group.committed[DATA] == -1
    assert taken_from(pending, commit).settled().group.committed[DATA] >= 0
    joined = taken_from(pending, Request("JoinGroup", ""))
    assert answers(joined, delete) == {"GROUP_SUBSCRIBED_TO_TOPIC": ""}


@SETTINGS
def test_a_batch_that_names_another_transactional_id_joins_what_is_open_and_begins_nothing(settings: Settings) -> None:
    foreign = Request("Produce", "A", OF_OTHER, "next")
    state = taken(settings, READING, Request("InitProducerId", "A", NONE))
    assert asked(state, foreign) is None, "the other has no producer id yet"
    state = taken_from(state, Request("InitProducerId", "B", NONE))
    if settings.client == 1:
        state = taken_from(state, Request("AddPartitionsToTxn", "A"), Request("AddPartitionsToTxn", "B"))
    assert answers(state, foreign) == {"INVALID_PRODUCER_ID_MAPPING": ""}
    begun = taken_from(state, Request("Produce", "B", detail="next"))
    assert answers(begun, foreign) == {"NONE": ""}
    assert taken_from(begun, foreign).data.entries[-1].producer_id == begun.known("B").producer_id


def test_what_cannot_be_granted_is_refused_in_every_state_and_changes_nothing() -> None:
    refused = {TIMED: "INVALID_TRANSACTION_TIMEOUT", WITH_UNKNOWN: "OPERATION_NOT_ATTEMPTED"}
    found = [each for each in every_step(TRANSACTIONS, VERSION_1) if each.asked.request.action in refused]
    assert {each.asked.request.action for each in found} == refused.keys()
    for each in found:
        [(answer, after)] = each.outcomes
        assert answer.error.name == refused[each.asked.request.action]
        assert replace(after.broker, answer=each.state.broker.answer) == each.state.broker


# --- the operators that decide ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "before", "request_", "rules"),
    [
        (VERSION_2, (), Request("InitProducerId", whose=NONE), ["Broker!InitProducerId"]),
        (VERSION_2, IN_ONE[:2], IN_ONE[0], ["Broker!InitProducerId", "Broker!AbortsFirst"]),
        (VERSION_2, IN_ONE[:2], Request("Produce", detail="again"), ["Broker!Produce", "Leader!IsRetry"]),
        (VERSION_2, IN_ONE[:1], Request("Produce", detail="next"), ["Broker!Produce", "Leader!NeedsVerification"]),
        (VERSION_2, IN_ONE[:1], Request("Produce", detail="gap"), ["ProducerState!AppendError"]),
        (VERSION_2, IN_ONE[:2], Request("ProduceOutside", detail="next"), ["TransactionalPartition!BatchError"]),
        (
            VERSION_2,
            IN_ONE[:1],
            Request("Produce", whose="epoch + 1", detail="next"),
            ["TransactionCoordinator!AddError", "Broker!WireError"],
        ),
        (VERSION_1, IN_ONE[:1], Request("Produce", detail="next"), ["Broker!AnswerToLeader"]),
        (
            VERSION_2,
            IN_ONE,
            Request("EndTxn", whose="epoch - 1", detail="commit"),
            ["TransactionCoordinator!EndVerdictOfVersion2", "Broker!EndTxn"],
        ),
    ],
)
def test_a_step_names_the_operators_that_decide_its_answers(
    settings: Settings, before: tuple[Request, ...], request_: Request, rules: list[str]
) -> None:
    state = taken(settings, TRANSACTIONS, *before)
    given = asked(state, request_)
    assert given is not None
    found = step_of(TRANSACTIONS, state, given).rules()
    assert [rule.name for rule in found] == rules


BEYOND_BROKER = {"conform": {MARK, VERIFY, DELETE, TIMED, WITH_UNKNOWN}}


def test_what_decides_is_an_operator_of_the_spec_with_its_comment() -> None:
    modules = ModuleFolder(spec_folder())
    for mechanism in MECHANISMS:
        for each in every_step(mechanism, VERSION_2)[::7]:
            for rule in each.rules():
                module, _, operator = rule.name.partition("!")
                assert modules.defines(module, operator) or operator in BEYOND_BROKER[module], rule
                assert rule.says
                *of_spec, method = [CLONE / place.partition(":")[0] for place in rule.places]
                lines = [int(place.partition(":")[2]) - 1 for place in rule.places]
                assert of_spec == ([] if module == "conform" else [modules.paths[module]])
                for file, line in zip(of_spec, lines, strict=False):
                    assert re.match(rf"{operator}\b.*==", file.read_text(encoding="utf-8").splitlines()[line])
                code = method.read_text(encoding="utf-8").splitlines()[lines[-1] :][:3]
                assert any(f"def {snake_case(operator)}(" in line for line in code), rule


def test_what_the_broker_does_by_itself_is_explained_by_its_own_actions() -> None:
    state = taken(VERSION_2, TRANSACTIONS, *IN_ONE)
    given = asked(state, Request(SETTLE))
    assert given is not None
    found = step_of(TRANSACTIONS, state, given).rules()
    assert [rule.name for rule in found] == ["Broker!WriteMarker", "Broker!CompleteTransaction"]


def test_a_rule_says_the_first_paragraph_of_its_operators_comment() -> None:
    assert (
        deciding._comment("The leader\n    refuses it.\n\n    Spec: Leader!IsRetry\n    ") == "The leader refuses it."
    )
    assert deciding._comment(None) == ""
