"""The transactional producer, against Kafka's own clients: its table, its reactions, and every run of a model.

``TransactionalProducers.java`` runs Kafka's TransactionManager, Sender and RecordAccumulator step by step.
"""

import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.machines import transactional_producer as producer
from kafka_eos.machines.machine import Instance, instances, step, walk
from kafka_eos.machines.transactional_producer import LEGAL_TRANSITIONS, Constants, TransactionalProducer
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, RELEASES, have_jars, need_jars
from kafka_eos_checks.kit.answering import answering
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.mutants.rules import mutated

pytestmark = pytest.mark.usefixtures("one_processor")

TESTS = Path(__file__).parents[2]
CLASS = "org.apache.kafka.clients.producer.internals.TransactionalProducers"

ONE = Constants(
    partitions=frozenset({"p"}),
    errors=frozenset({"PRODUCER_FENCED", "NOT_COORDINATOR", "TRANSACTION_ABORTABLE"}),
    versions=frozenset({1}),
    supports_bump=True,
    max_transactions=1,
    max_sends=1,
    max_faults=2,
    max_recreations=0,
)

INITIALIZED = ("InitTransactions", 'ReceiveCoordinator("TRANSACTION")', "ReceiveProducerId", "EndCall")
BEGUN = (*INITIALIZED, "BeginTransaction")
REGISTERED = (*BEGUN, 'Send("p")', "ReceivePartitionsAdded")
ACKNOWLEDGED = (*REGISTERED, 'AcknowledgeBatch("p")')


@pytest.fixture(scope="module", params=[KAFKA_VERSION, pytest.param(NEWEST, marks=pytest.mark.thorough)])
def release(request: pytest.FixtureRequest) -> str:
    """The release of Kafka's client; :data:`KAFKA_VERSION` is fetched if it is not there."""
    if request.param == NEWEST and not have_jars(NEWEST):
        pytest.skip(f"the jars of Kafka {NEWEST} are not there; `make peers` fetches them")
    return str(request.param)


@pytest.fixture(scope="module")
def by_release(release: str) -> type[Any]:
    """The machine with the rules of the release of Kafka's client."""
    name = release.rpartition(".")[0]
    return mutated(TransactionalProducer, Releases().of_module("TransactionalProducer", name))


@pytest.fixture(scope="module")
def kafka(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., list[Any]]]:
    """The answers of Kafka's client to the questions."""
    folder, jars = tmp_path_factory.mktemp("java"), f"{need_jars(release)}/*"
    java = TESTS / "java"
    sources = [str(java / "TransactionalProducers.java"), str(java / RELEASES[release] / "Release.java")]
    quick = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    javac = ("javac", *(f"-J{option}" for option in quick), "-nowarn", "-d", str(folder), "-cp", jars, *sources)
    subprocess.run(javac, check=True, capture_output=True)
    with answering(["java", *quick, "-cp", f"{folder}:{jars}", CLASS], 300) as ask:
        yield lambda *questions: ask(questions)


def run(labels: Sequence[str], refused: Sequence[str] = (), settle: bool = True, version: int = 1) -> dict[str, Any]:
    """The question how Kafka's client takes these steps; ``refused`` are calls that are made after the last."""
    last = len(labels) - 1
    steps = [
        {"take": label, "settle": settle or at < last, "refused": list(refused) if at == last else []}
        for at, label in enumerate(labels)
    ]
    return {"ask": "run", "version": version, "bump": True, "steps": steps}


# --- the table of transitions -------------------------------------------------------------------------------------


@pytest.mark.java
def test_the_table_of_transitions_is_the_one_of_kafkas_client(kafka: Callable[..., list[Any]]) -> None:
    (found,) = kafka({"ask": "transitions"})
    assert {(before, after) for before, after in found} == LEGAL_TRANSITIONS
    assert {state for pair in found for state in pair} == set(producer.STATES)


def test_the_spec_has_the_table_of_transitions_that_the_reference_has() -> None:
    text = (spec_folder() / "TransactionalProducer.tla").read_text(encoding="utf-8")
    body = text.split("LegalTransitions ==")[1].split("\n\n")[0]
    found = set(re.findall(r'<<"(\w+)", "(\w+)">>', body))
    assert found | {(state, producer.FATAL_ERROR) for state in producer.STATES} == LEGAL_TRANSITIONS


# --- the reaction to every error code -----------------------------------------------------------------------------

#: Request -> the steps after which Kafka's client waits for its answer.
WAITING_FOR = {
    producer.LOOKUPS["TRANSACTION"]: INITIALIZED[:1],
    producer.INIT_PRODUCER_ID: INITIALIZED[:2],
    producer.ADD_PARTITIONS: (*BEGUN, 'Send("p")'),
    producer.ADD_OFFSETS: (*BEGUN, "SendOffsets"),
    producer.LOOKUPS["GROUP"]: (*BEGUN, "SendOffsets", "ReceiveOffsetsAdded"),
    producer.COMMIT_OFFSETS: (*BEGUN, "SendOffsets", "ReceiveOffsetsAdded", 'ReceiveCoordinator("GROUP")'),
    producer.COMMIT: (*ACKNOWLEDGED, "CommitTransaction"),
    producer.ABORT: (*ACKNOWLEDGED, "AbortTransaction"),
    producer.PRODUCE: (*ACKNOWLEDGED, 'Send("p")'),
}


def reaction(request: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    """The reaction of Kafka's client to an answer, in the reference's terms."""
    state = after["state"]
    if state == producer.FATAL_ERROR:
        return producer.FATAL
    if request == producer.PRODUCE and after["batch"] == producer.NOTHING and state == before["state"]:
        return producer.ACKNOWLEDGED
    if request in after["queue"] or (request == producer.PRODUCE and after["batch"] == "incomplete"):
        return producer.RETRY
    assert state == (producer.ABORTING if request == producer.ABORT else producer.ABORTABLE_ERROR)
    return producer.WITH_BUMP if after["bump"] and request != producer.PRODUCE else producer.ABORTABLE


@pytest.fixture(scope="module")
def answered(kafka: Callable[..., list[Any]]) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Request -> error code -> the client's reaction at once, and after its sender thread went on."""
    (codes,) = kafka({"ask": "errors"})
    answers = dict.fromkeys(WAITING_FOR, 'FailTransaction("{}")') | {producer.PRODUCE: 'FailBatch("p", "{}")'}
    asked = [(request, code) for request in WAITING_FOR for code in codes]
    runs = [(*WAITING_FOR[request], answers[request].format(code)) for request, code in asked]
    at_once = kafka(*(run(each, settle=False) for each in runs))
    later = kafka(*(run((*each, ""), refused=["send"]) for each in runs))
    found: dict[str, dict[str, tuple[Any, Any]]] = {request: {} for request in WAITING_FOR}
    for (request, code), first, last in zip(asked, at_once, later, strict=True):
        found[request][code] = (first, last[-1])
    return found


@pytest.mark.java
def test_the_transient_codes_are_those_of_kafkas_client(kafka: Callable[..., list[Any]]) -> None:
    (codes,) = kafka({"ask": "errors"})
    assert {code for code, is_retriable in codes.items() if is_retriable} == producer.RETRIABLE_ERRORS


@pytest.mark.java
@pytest.mark.parametrize("asked", sorted(WAITING_FOR))
def test_kafkas_client_reacts_to_every_error_code_as_the_reference_does(
    asked: str, by_release: type[Any], answered: dict[str, dict[str, tuple[Any, Any]]]
) -> None:
    machine = by_release.initial(ONE)
    assert set(answered[asked]) >= producer.ERRORS_OF_TOPIC_IDS
    for code, ((*_, before, after), later) in answered[asked].items():
        assert asked in {before["inFlight"], producer.PRODUCE}
        found, expected = reaction(asked, before, after), machine.reaction(asked, code)
        if expected == producer.AGAIN_FROM_START:
            assert (found, later["state"]) == (producer.ABORTABLE, producer.UNINITIALIZED), code
            continue
        assert found == expected, code
        if later["state"] in {producer.FATAL_ERROR, producer.ABORTABLE_ERROR}:
            assert later["refused"]["send"] == machine.exception_of(asked, code), code
        if found == producer.RETRY and asked not in {producer.PRODUCE, *producer.LOOKUPS.values()}:
            lookup = producer.LOOKUPS[producer.coordinator_of(asked)]
            assert (lookup in after["queue"]) == producer.asks_for_coordinator(asked, code), code


# --- every run of a model -----------------------------------------------------------------------------------------

SENDERS = {"FindCoordinator", "SendRequest", "SkipEnd", "TerminateRequest", "SendBatch", "DropBatches", "StartOver"}

Beliefs = frozenset[TransactionalProducer]


class Explorer:
    """The runs of a machine whose sender works, after every step of the others, until it has nothing to do.

    Args:
        machine: the class.
        constants: the model's.
    """

    def __init__(self, machine: type[Any], constants: Constants) -> None:
        every = instances(machine, constants)
        self.senders = [each for each in every if each.action.name in SENDERS]
        self.others = [each for each in every if each.action.name not in SENDERS]
        self.start = self.settled(machine.initial(constants))

    @staticmethod
    def _after(state: TransactionalProducer, instance: Instance) -> TransactionalProducer | None:
        # Kafka's client looks at the age of its batches only when it waits for no answer to a request.
        if instance.action.name == "ExpireBatch" and state.in_flight != producer.NOTHING:
            return None
        try:
            return step(state, instance)
        except NotEnabled:
            return None

    def settled(self, state: TransactionalProducer) -> Beliefs:
        seen, waiting, found = {state}, [state], set()
        while waiting:
            now = waiting.pop()
            following = {after for each in self.senders if (after := self._after(now, each)) is not None}
            if not following:
                found.add(now)
            waiting += following - seen
            seen |= following
        return frozenset(found)

    def following(self, beliefs: Beliefs, instance: Instance) -> Beliefs:
        taken = (after for state in beliefs if (after := self._after(state, instance)) is not None)
        return frozenset(settled for after in taken for settled in self.settled(after))

    def runs(self) -> Iterator[list[Instance]]:
        """Runs that together take every step from every set of settled states."""
        paths: dict[Beliefs, list[Instance]] = {self.start: []}
        waiting, inner = deque([self.start]), set()
        while waiting:
            beliefs = waiting.popleft()
            for each in self.others:
                after = self.following(beliefs, each)
                if after in paths:
                    yield [*paths[beliefs], each]
                elif after:
                    paths[after] = [*paths[beliefs], each]
                    inner.add(beliefs)
                    waiting.append(after)
        yield from (path for beliefs, path in paths.items() if beliefs not in inner)


def refusals(state: TransactionalProducer) -> dict[str, str]:
    """The refused calls with their exceptions; Kafka wraps errors without an exception of their own."""
    if state.call.running:
        return {}
    found = {operation: state.call_error(operation) for operation in producer.CALLS}
    wrapped = {producer.UNAUTHORIZED: producer.KAFKA_EXCEPTION}
    return {name: wrapped.get(error, error) for name, error in found.items() if error != producer.NO_ERROR}


def expected(state: TransactionalProducer) -> dict[str, Any]:
    """The expected observation of Kafka's client in a settled state; without its requests after a fatal error."""
    client, call, batch = state.client, state.call, state.batches["p"]
    seen = {
        "state": client.state,
        "identity": client.identity,
        "version": client.version,
        "operation": call.operation,
        "running": call.running,
        "outcome": call.outcome,
    }
    if client.state == producer.FATAL_ERROR:
        return seen
    if batch.status == producer.IN_FLIGHT:
        seen["last"] = [batch.identity, batch.sequence]
    return seen | {
        "inFlight": state.in_flight,
        "queue": sorted(state.due),
        "bump": client.bump,
        "started": client.started,
        "added": bool(state.partitions.added),
        "batch": batch.status if batch.status in {producer.NOTHING, producer.IN_FLIGHT} else "incomplete",
    }


@dataclass(frozen=True)
class Comparison:
    """The number of compared steps, and the labels of the first run of each kind of difference."""

    steps: int
    differing: list[tuple[str, ...]]


def compared(machine: type[Any], constants: Constants, kafka: Callable[..., list[Any]]) -> Comparison:
    """Every run of the machine, taken by Kafka's client too."""
    explorer = Explorer(machine, constants)
    runs = list(explorer.runs())
    questions = []
    for labels in runs:
        beliefs, steps = explorer.start, []
        for each in labels:
            beliefs = explorer.following(beliefs, each)
            steps.append({"take": each.label, "settle": True, "refused": sorted(refusals(next(iter(beliefs))))})
        questions.append({"ask": "run", "version": min(constants.versions), "bump": True, "steps": steps})
    steps_compared, differing = 0, []
    for labels, seen in zip(runs, kafka(*questions), strict=True):
        beliefs = explorer.start
        for at, (each, found) in enumerate(zip(labels, seen, strict=True)):
            before, beliefs = beliefs, explorer.following(beliefs, each)
            if not beliefs:
                break  # another order of its requests, in which this step does not exist
            asked = refusals(next(iter(beliefs)))
            beliefs = frozenset(
                state
                for state in beliefs
                if expected(state).items() <= found.items() and (refusals(state) != asked or found["refused"] == asked)
            )
            steps_compared += 1
            if not beliefs:
                assert before
                differing.append(tuple(label.label for label in labels[: at + 1]))
                break
    return Comparison(steps_compared, sorted(set(differing), key=len))


@pytest.mark.thorough
@pytest.mark.java
@pytest.mark.parametrize(
    ("constants", "least"),
    [
        (ONE, 20_000),
        (replace(ONE, versions=frozenset({2}), max_transactions=2, max_faults=1), 5_000),
        (replace(ONE, versions=frozenset({1, 2}), max_transactions=2, max_faults=0), 1_000),
    ],
    ids=["version 1", "version 2", "upgrade"],
)
def test_kafkas_client_takes_every_run_of_a_model_as_the_machine_with_kafkas_rules_does(
    constants: Constants, least: int, by_release: type[Any], kafka: Callable[..., list[Any]]
) -> None:
    found = compared(by_release, constants, kafka)
    assert found.differing == []
    assert found.steps >= least


@pytest.mark.java
def test_without_kafkas_rules_the_runs_with_a_departure_differ(
    kafka: Callable[..., list[Any]],
) -> None:
    found = compared(TransactionalProducer, replace(ONE, max_faults=1), kafka).differing
    assert {labels[-1].split("(")[0] for labels in found} >= {"ExpireBatch", "FailProducer"}


# --- errors of Kafka's client -------------------------------------------------------------------------------------

EXPIRED_IN_ABORT = (
    *REGISTERED,
    'RetryBatch("p", "NOT_LEADER_OR_FOLLOWER")',
    "AbortTransaction",
    'ExpireBatch("p")',
    'ReceiveEnd("EndTxn(abort)")',
    "EndCall",
)


@pytest.mark.java
def test_a_retried_batch_that_expires_in_an_abort_leaves_kafkas_producer_initializing(
    kafka: Callable[..., list[Any]],
) -> None:
    ((*_, aborted, last),) = kafka(run(EXPIRED_IN_ABORT, refused=producer.CALLS))
    assert aborted["outcome"] == producer.DONE
    assert (last["state"], last["inFlight"], last["queue"]) == (producer.INITIALIZING, producer.NOTHING, [])
    assert last["refused"] == dict.fromkeys(producer.CALLS, producer.ILLEGAL_STATE)


@pytest.mark.java
def test_a_batch_that_expires_during_a_commit_leaves_the_epoch_of_kafkas_producer_as_it_is(
    kafka: Callable[..., list[Any]],
) -> None:
    labels = (
        *REGISTERED,
        "CommitTransaction",
        'ExpireBatch("p")',
        "EndCall",
        "AbortTransaction",
        'ReceiveEnd("EndTxn(abort)")',
        "EndCall",
        "BeginTransaction",
        'Send("p")',
        "ReceivePartitionsAdded",
    )
    (seen,) = kafka(run(labels))
    first, last = seen[len(REGISTERED) - 1], seen[-1]
    assert (first["batch"], last["batch"]) == (producer.IN_FLIGHT, producer.IN_FLIGHT)
    assert (first["last"], last["last"]) == ([1, 0], [1, 1])


@pytest.mark.java
def test_kafkas_producer_retries_offsets_of_a_call_that_timed_out_after_those_of_the_next_call(
    kafka: Callable[..., list[Any]],
) -> None:
    labels = (
        *BEGUN,
        "SendOffsets",
        'ReceiveCoordinator("GROUP")',
        "TimeOutCall",
        "SendOffsets",
        'RetryRequest("COORDINATOR_LOAD_IN_PROGRESS")',
        "ReceiveOffsetsCommitted",
        "EndCall",
        "CommitTransaction",
        "ReceiveOffsetsCommitted",
    )
    (seen,) = kafka(run(labels, version=2))
    first, *last = seen[len(BEGUN) + 1], *seen[-5:]
    assert first["offset"] == 1
    assert [each["offset"] for each in last] == [2, 1, 1, 1, 0]
    assert last[1]["outcome"] == producer.DONE, "the call that sent offset 2"
    assert last[-1]["inFlight"] == producer.COMMIT, "offset 1 is the last that the coordinator has stored"


@pytest.mark.java
def test_in_transaction_version_2_kafkas_producer_sends_offsets_with_topic_ids_since_4_4(
    release: str, by_release: type[Any], kafka: Callable[..., list[Any]]
) -> None:
    labels = (*BEGUN, "SendOffsets", 'ReceiveCoordinator("GROUP")')
    first, second = (
        kafka(run((*labels[: len(BEGUN) + 1], *added, labels[-1], "ReceiveOffsetsCommitted"), version=version))[0]
        for version, added in ((1, ("ReceiveOffsetsAdded",)), (2, ()))
    )
    assert [each[-2]["inFlight"] for each in (first, second)] == [producer.COMMIT_OFFSETS] * 2
    assert (first[-2]["requested"], second[-2]["requested"]) == (4, 6 if release == NEWEST else 5)
    for version, seen in ((1, first), (2, second)):
        initial = by_release.initial(ONE)
        named = replace(initial, client=replace(initial.client, version=version)).names_topics_by_id()
        assert named == (seen[-2]["requested"] == 6)
    assert first[-1]["outcome"] == second[-1]["outcome"] == producer.DONE


@pytest.mark.java
def test_an_abort_before_kafkas_refused_producer_starts_over_makes_one_ready_that_has_no_id(
    kafka: Callable[..., list[Any]],
) -> None:
    refused = run((*INITIALIZED[:2], 'RefuseInitialization("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")'), settle=False)
    refused["steps"] += [
        {"take": "EndCall", "settle": False, "refused": []},
        {"take": "AbortTransaction", "settle": True, "refused": []},
        {"take": "EndCall", "settle": True, "refused": ["initTransactions"]},
        {"take": "BeginTransaction", "settle": True, "refused": ["send"]},
    ]
    (seen,) = kafka(refused)
    assert [each["state"] for each in seen[-2:]] == [producer.READY, producer.IN_TRANSACTION]
    assert (seen[-1]["identity"], seen[-1]["refused"]) == (0, {"send": producer.ILLEGAL_STATE})
    assert seen[-2]["refused"] == {"initTransactions": producer.ILLEGAL_STATE}


@pytest.mark.java
def test_a_failed_send_of_another_thread_in_a_commit_ends_kafkas_producer(
    kafka: Callable[..., list[Any]],
) -> None:
    labels = (*ACKNOWLEDGED, "CommitTransaction", "FailSend", 'ReceiveEnd("EndTxn(commit)")')
    (seen,) = kafka(run(labels))
    assert [each.get("state") for each in seen[-3:-1]] == [producer.COMMITTING, producer.ABORTABLE_ERROR]
    assert "from state ABORTABLE_ERROR to state READY" in seen[-1]["thrown"]


@pytest.mark.java
def test_a_failed_send_of_another_thread_in_a_commit_makes_kafkas_producer_require_an_abort(
    kafka: Callable[..., list[Any]],
) -> None:
    labels = (*ACKNOWLEDGED, "CommitTransaction", "FailSend", "LoseConnection", 'ReceiveCoordinator("TRANSACTION")')
    (seen,) = kafka(run((*labels, "EndCall", "AbortTransaction")))
    asked = [each["inFlight"] for each in seen if each["inFlight"] in producer.ENDS]
    assert (asked[0], asked[-1]) == (producer.COMMIT, producer.ABORT)


# --- the machine --------------------------------------------------------------------------------------------------


def after(*labels: str, constants: Constants = ONE) -> TransactionalProducer:
    """The state after the actions with these labels, with the sender's actions after each of them."""
    explorer = Explorer(TransactionalProducer, constants)
    known = {each.label: each for each in explorer.others}
    beliefs = explorer.start
    for label in labels:
        beliefs = explorer.following(beliefs, known[label])
    (state,) = beliefs
    return state


def test_after_a_retried_batch_expires_in_an_abort_the_machine_requests_another_epoch() -> None:
    constants = replace(ONE, errors=ONE.errors | {"NOT_LEADER_OR_FOLLOWER"})
    state = after(*EXPIRED_IN_ABORT[:-1], constants=constants)
    assert (state.client.state, state.in_flight) == (producer.INITIALIZING, producer.INIT_PRODUCER_ID)


def test_a_call_that_has_timed_out_may_only_be_repeated() -> None:
    state = after(*ACKNOWLEDGED, "CommitTransaction", "TimeOutCall")
    assert refusals(state) == dict.fromkeys(set(producer.CALLS) - {producer.COMMIT_CALL}, producer.ILLEGAL_STATE)
    assert state.repeat_call().call.running


def test_a_fatal_error_refuses_every_call_with_its_exception() -> None:
    state = after(*BEGUN, 'Send("p")', 'FailProducer("PRODUCER_FENCED")')
    assert refusals(state) == dict.fromkeys(producer.CALLS, producer.FENCED_EXCEPTION)


def test_a_refused_call_leaves_the_state_unchanged() -> None:
    state = after(*BEGUN)
    with pytest.raises(NotEnabled, match=producer.ILLEGAL_STATE):
        state.init_transactions()


def test_a_path_of_labels_is_a_path_of_states() -> None:
    every = {each.label: each for each in instances(TransactionalProducer, ONE)}
    *_, last = walk(TransactionalProducer.initial(ONE), [every["InitTransactions"], every["TimeOutCall"]])
    assert last.call == producer.Call(operation=producer.INIT, outcome=producer.WAITING)
