"""The scenarios of transactions, each with a librdkafka client and a Java client."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from kafka_eos.formats.transaction_log import TOPIC
from kafka_eos_checks.brokers.faults import Fault, FaultKind, Plan
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, RECORDED
from kafka_eos_checks.lab.record.clients import CALLS, FATAL_EXIT, ClientProcess
from kafka_eos_checks.lab.record.stage import Stage, scenario

OTHER_KAFKA = frozenset(RECORDED) - {KAFKA_VERSION}
LIBRARIES = ("librdkafka", "java")


def start(stage: Stage, library: str, client: str, topic: str, **work: Any) -> ClientProcess:
    """Start a transactional client with the scenario's transactional id for this library."""
    identity = {"transactional_id": f"{stage.name}-{library}", "prefix": f"{client}-"}
    by_library: dict[str, Callable[..., ClientProcess]] = {"librdkafka": stage.start, "java": stage.start_java}
    return by_library[library](client, topic, **(identity | work))


def settle(stage: Stage) -> None:
    """Wait until the transactions of the scenario's transactional ids have ended."""
    stage.wait_settled(*(f"{stage.name}-{library}" for library in LIBRARIES))


def source(stage: Stage, records: int, partitions: int = 1) -> dict[str, Any]:
    """Fill a topic without transactions; returns a workload's settings for this source."""
    topic = stage.topic(partitions, suffix="-input")
    with stage.start("producer", topic, records=records, prefix="i", pause_ms=1) as producer:
        producer.wait()
    return {"source": topic, "records": records}


@scenario("transactions/commit-and-abort", kafka=RECORDED)
def commit_and_abort(stage: Stage) -> None:
    """Transactions over two topics of two partitions are committed and aborted, while both kinds of readers read."""
    topic, other = stage.topic(2), stage.topic(2, suffix="-other")
    work: dict[str, Any] = {"also": (other,), "records": 80, "transaction_size": 4, "abort_chance": 0.4}
    with (
        stage.readers(topic, other),
        start(stage, "librdkafka", "librdkafka", topic, **work) as first,
        start(stage, "java", "java", topic, **work) as second,
    ):
        first.wait()
        second.wait()
        settle(stage)


@scenario("transactions/copy", kafka=RECORDED)
def copy(stage: Stage) -> None:
    """Two groups copy a topic and commit their offsets in the same transactions, and abort some of these."""
    work = source(stage, 60, partitions=2) | {"transaction_size": 4, "abort_chance": 0.3}
    topics = {library: stage.topic(2, suffix=f"-{library}") for library in LIBRARIES}
    with stage.readers(*topics.values()), ExitStack() as stack:
        clients = [
            stack.enter_context(start(stage, library, library, topic, group=topic, **work))
            for library, topic in topics.items()
        ]
        for client in clients:
            client.wait()
        settle(stage)


@scenario("transactions/frozen-zombie", kafka=RECORDED)
def frozen_zombie(stage: Stage) -> None:
    """A client is frozen in a transaction, replaced under its transactional.id by another one, and wakes up."""
    topic = stage.topic(2)
    work: dict[str, Any] = {"transaction_size": 40, "pause_ms": 20}
    with stage.readers(topic):
        for library in LIBRARIES:
            zombie, successor = f"zombie-{library}", f"successor-{library}"
            with start(stage, library, zombie, topic, records=2_000, **work) as first:
                stage.wait_acknowledged(zombie, 60)
                first.freeze()
                with start(stage, library, successor, topic, records=80, **work) as second:
                    stage.wait_acknowledged(successor, 20)
                    first.resume()
                    first.wait(expected=(FATAL_EXIT,))
                    second.wait()
        settle(stage)


@scenario("transactions/killed-between-calls", kafka=RECORDED)
def killed_between_calls(stage: Stage) -> None:
    """A copying client is killed after each of its calls in turn; the next one with its transactional.id goes on."""
    work = source(stage, 40) | {"transaction_size": 4}
    topics = {library: stage.topic(suffix=f"-{library}") for library in LIBRARIES}
    with stage.readers(*topics.values()):
        for library, topic in topics.items():
            for call in CALLS:
                client = f"{library}-{call.replace('_', '-')}"
                with start(stage, library, client, topic, group=topic, pause_after=call, **work) as killed:
                    stage.wait_paused(client)
                    killed.kill()
            with start(stage, library, f"{library}-last", topic, group=topic, **work) as last:
                last.wait()
        settle(stage)


@scenario("transactions/killed-before-markers", kafka=RECORDED)
def killed_before_markers(stage: Stage) -> None:
    """The coordinator is killed between preparing and completing a commit; a frozen leader holds a marker back."""
    topics: list[str] = []
    for library in LIBRARIES:
        partition, row = stage.cluster.coordinator(f"{stage.name}-{library}")
        old = stage.cluster[row["LeaderId"]]
        # The next coordinator is the first remaining replica, so the last one can be frozen.
        *_, next_node, frozen_node = (node for node in row["ReplicaNodes"] if node != old.node)
        frozen = stage.cluster[frozen_node]
        # The frozen broker is the only replica of one topic: nobody else can take the marker.
        held = stage.topic(suffix=f"-{library}-held", replicas=[[frozen_node]], min_insync_replicas="1")
        other = stage.topic(suffix=f"-{library}", replicas=[[next_node, old.node]], min_insync_replicas="1")
        topics += [held, other]
        work: dict[str, Any] = {"also": (other,), "records": 6, "transaction_size": 6, "pause_after": "flush"}
        with start(stage, library, library, held, **work) as client:
            stage.wait_paused(library)
            stage.freeze(frozen)
            client.go_on()
            stage.wait_transactions(library, 1)
            stage.crash(old)
            stage.resume(frozen)
            stage.new_leader(TOPIC, old, partition)
            client.wait()
            stage.wait_settled(f"{stage.name}-{library}")
        stage.restart(old)
        stage.cluster.wait_in_sync(TOPIC, 3)
    with stage.readers(*topics):
        pass  # read afterwards: one topic is unavailable while its only broker is frozen


@scenario("transactions/coordinator-moves", kafka=RECORDED)
def coordinator_moves(stage: Stage) -> None:
    """The coordinator of running transactions is killed; after its restart, coordination also moves without a crash."""
    topic = stage.topic()
    work: dict[str, Any] = {"records": 200, "transaction_size": 2, "abort_chance": 0.3, "batch": 2, "pause_ms": 250}
    with (
        stage.readers(topic),
        start(stage, "librdkafka", "librdkafka", topic, **work) as first,
        start(stage, "java", "java", topic, **work) as second,
    ):
        for library in LIBRARIES:
            stage.wait_transactions(library, 10)
        transactional_id = f"{stage.name}-librdkafka"
        partition, row = stage.cluster.coordinator(transactional_id)
        old = stage.cluster[row["LeaderId"]]
        stage.crash(old)
        stage.new_leader(TOPIC, old, partition)
        stage.restart(old)
        stage.cluster.wait_in_sync(TOPIC, 3)
        move_coordinator(stage, transactional_id)
        first.wait()
        second.wait()
        settle(stage)


def move_coordinator(stage: Stage, transactional_id: str) -> None:
    """Let another in-sync replica coordinate a transactional id, without stopping a broker."""
    partition, row = stage.cluster.coordinator(transactional_id)
    present = stage.cluster[row["LeaderId"]]
    stage.cluster.make_leader(TOPIC, partition, next(node for node in row["IsrNodes"] if node != present.node))
    stage.new_leader(TOPIC, present, partition)


@scenario("late-offsets/retry-after-the-next")
def retry_after_the_next(stage: Stage) -> None:
    """A TxnOffsetCommit arrives after its retry and after the next one of its transaction, which then commits it."""
    work = source(stage, 2) | {"transaction_size": 2, "offsets_each": True}
    for library in LIBRARIES:
        topic = stage.topic(suffix=f"-{library}")
        # The first TxnOffsetCommit arrives before the fourth request, which is EndTxn.
        late = {0: Fault(FaultKind.OVERTAKE, 1.0), 3: Fault(FaultKind.DELAY, 2.0)}
        plan = Plan(seed=stage.name, scripted=late, apis=frozenset({"TxnOffsetCommit", "EndTxn"}))
        stage.proxy.follow(plan, anew=True)
        with stage.readers(topic):
            with start(stage, library, library, topic, group=topic, **work) as client:
                client.wait()
            stage.wait_settled(f"{stage.name}-{library}")
            with start(stage, library, f"{library}-next", topic, group=topic, **work) as successor:
                successor.wait()
            stage.wait_settled(f"{stage.name}-{library}")


@scenario("transactions/expired", kafka=RECORDED)
def expired(stage: Stage) -> None:
    """A client is frozen in a transaction until the coordinator has aborted it, and wakes up."""
    topic = stage.topic()
    work: dict[str, Any] = {"records": 200, "transaction_size": 50, "pause_ms": 20, "timeout_ms": 3_000}
    with stage.readers(topic):
        for library in LIBRARIES:
            with start(stage, library, library, topic, **work) as client:
                stage.wait_acknowledged(library, 60)
                client.freeze()
                stage.cluster.wait_transaction(f"{stage.name}-{library}", {"CompleteAbort"})
                client.resume()
                client.wait(expected=(0, FATAL_EXIT))
        settle(stage)


_LOST_ANSWERS = {FaultKind.DROP_ANSWER: 0.02}
_APIS = ("Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


def mixed(stage: Stage, transactions: int) -> None:
    """Run four transactional ids with so many transactions each, two of them copying, over four topics."""
    topic, other = stage.topic(2), stage.topic(2, suffix="-other")
    copies = {library: stage.topic(suffix=f"-{library}") for library in LIBRARIES}
    common: dict[str, Any] = {"abort_chance": 0.2, "pause_ms": 0}
    made = common | {"also": (other,), "records": 2 * transactions, "transaction_size": 2}
    copied = common | source(stage, transactions) | {"transaction_size": 1}
    ids = {name: f"{stage.name}-{name}" for library in LIBRARIES for name in (library, f"{library}-copy")}
    with stage.readers(topic, other, *copies.values()), ExitStack() as stack:
        clients = []
        for library, target in copies.items():
            clients.append(stack.enter_context(start(stage, library, library, topic, **made)))
            name = f"{library}-copy"
            identity = {"transactional_id": ids[name], "group": ids[name]}
            clients.append(stack.enter_context(start(stage, library, name, target, **copied, **identity)))
        for name in ids:
            stage.wait_transactions(name, transactions // 5)
        move_coordinator(stage, ids["librdkafka"])
        for client in clients:
            client.wait()
        stage.wait_settled(*ids.values())


@scenario("transactions/thousand", _LOST_ANSWERS, apis=_APIS, kafka=(KAFKA_VERSION,))
def thousand(stage: Stage) -> None:
    """More than a thousand transactions of four clients; answers are lost and a coordinator moves."""
    mixed(stage, 240)


@scenario("transactions/hundreds", _LOST_ANSWERS, apis=_APIS, kafka=OTHER_KAFKA)
def hundreds(stage: Stage) -> None:
    """Hundreds of transactions of four clients; answers are lost and a coordinator moves."""
    mixed(stage, 60)
