"""The scenarios: the clients' work and the faults. Each has a name and a seed, and bounded records and time."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from kafka_eos_checks.brokers.faults import Fault, FaultKind, Plan
from kafka_eos_checks.brokers.jars import RECORDED
from kafka_eos_checks.lab.record.clients import FATAL_EXIT, start_verifiable_producer
from kafka_eos_checks.lab.record.stage import Stage, scenario


@scenario("one-broker/idempotent-lost-acks", {FaultKind.DROP_ANSWER: 0.15})
def idempotent_lost_acks(stage: Stage) -> None:
    """An idempotent producer loses one acknowledgement in seven, and its connection with each."""
    topic = stage.topic(partitions=2)
    with stage.start("producer", topic, records=400) as producer:
        producer.wait()


@scenario(
    "one-broker/repeated-and-reordered-requests",
    {FaultKind.REPEAT: 0.15, FaultKind.OVERTAKE: 0.10, FaultKind.DELAY: 0.10, FaultKind.DROP_ANSWER: 0.05},
    longest=0.15,
)
def repeated_and_reordered_requests(stage: Stage) -> None:
    """Requests arrive twice, late, or after the client's own retry; two producers share two partitions."""
    topic = stage.topic(partitions=2, segment_ms="500")
    with (
        stage.start("producer-a", topic, records=400, prefix="a") as first,
        stage.start("producer-b", topic, records=200, prefix="b", batch=1) as second,
    ):
        first.wait()
        second.wait()


@scenario("one-broker/kill-producer", {FaultKind.DROP_ANSWER: 0.05})
def kill_producer(stage: Stage) -> None:
    """An idempotent producer is killed while it sends; another one takes over with records of its own."""
    topic = stage.topic(partitions=2)
    with stage.start("producer-a", topic, records=5_000, prefix="a", pause_ms=2) as first:
        stage.wait_acknowledged("producer-a", 150)
        first.kill()
    with stage.start("producer-b", topic, records=150, prefix="b") as second:
        second.wait()


@scenario("one-broker/kill-leader", {FaultKind.DROP_ANSWER: 0.05})
def kill_leader(stage: Stage) -> None:
    """The only broker is killed twice and comes back, while an idempotent and a transactional producer send."""
    topic = stage.topic(partitions=2)
    broker = stage.cluster[1]
    identity = {"transactional_id": f"{stage.name}-t", "prefix": "t", "abort_chance": 0.3}
    with (
        stage.start("producer", topic, records=800, pause_ms=10) as plain,
        stage.start("transactional", topic, records=400, pause_ms=10, **identity) as transactional,
    ):
        for acknowledged in (100, 250):
            stage.wait_acknowledged("producer", acknowledged)
            stage.crash(broker)
            stage.restart(broker)
        # After a restart the broker knows only the last batch of each producer; a producer that had more in flight
        # when it died may get OUT_OF_ORDER_SEQUENCE_NUMBER, which is fatal for a strict one.
        plain.wait()
        transactional.wait(expected=(0, FATAL_EXIT))


@scenario("one-broker/zombie")
def zombie(stage: Stage) -> None:
    """A transactional producer is frozen in a transaction, replaced under its transactional.id, and wakes up."""
    topic = stage.topic(partitions=2)
    identity = {"transactional_id": f"{stage.name}-t", "transaction_size": 40, "pause_ms": 20}
    with stage.start("zombie", topic, records=2_000, prefix="z", **identity) as first:
        stage.wait_acknowledged("zombie", 100)
        first.freeze()
        with stage.start("successor", topic, records=120, prefix="s", **identity) as second:
            stage.wait_acknowledged("successor", 60)
            first.resume()
            first.wait(expected=(FATAL_EXIT,))
            second.wait()


@scenario(
    "one-broker/transactions-librdkafka",
    {FaultKind.DROP_ANSWER: 0.08},
    apis=("Produce", "AddPartitionsToTxn", "EndTxn"),
)
def transactions_librdkafka(stage: Stage) -> None:
    """Commits and aborts by librdkafka, with the protocol before KIP-890 part 2 and lost answers."""
    topic = stage.topic(partitions=3, segment_ms="1000")
    identity = {"transactional_id": f"{stage.name}-t", "transaction_size": 8, "abort_chance": 0.35}
    with stage.start("transactional", topic, records=400, **identity) as producer:
        producer.wait()


@scenario("one-broker/transactions-java", {FaultKind.DROP_ANSWER: 0.05}, apis=("Produce", "EndTxn"))
def transactions_java(stage: Stage) -> None:
    """Kafka's TransactionalMessageCopier (KIP-890 part 2) copies a topic in transactions, aborting some by chance."""
    source = stage.topic(suffix="-input")
    target = stage.topic(suffix="-output")
    with stage.start("producer", source, records=300, prefix="i") as producer:
        producer.wait()
    with stage.start_copier("copier", source, target, records=300, transaction_size=12) as copier:
        copier.wait()


@scenario("one-broker/crash-with-lost-acks")
def crash_with_lost_acks(stage: Stage) -> None:
    """The broker dies after several acknowledgements are lost, and comes back knowing only the last batch."""
    topic = stage.topic()
    # librdkafka counts records in flight, not batches, against its limit of five: batches of one are pipelined.
    with stage.start("producer", topic, records=300, batch=1) as producer:
        stage.wait_acknowledged("producer", 100)
        stage.lose_acknowledgements_and_crash(stage.cluster[1])
        producer.wait(expected=(0, FATAL_EXIT))


@scenario("one-broker/trace", {FaultKind.DROP_ANSWER: 0.12, FaultKind.REPEAT: 0.2}, longest=0.1)
def trace(stage: Stage) -> None:
    """One producer, one partition, lost acknowledgements, repeated requests, one restart: short enough to validate."""
    topic = stage.topic()
    broker = stage.cluster[1]
    with stage.start("producer", topic, records=400) as producer:
        stage.wait_acknowledged("producer", 160)
        stage.crash(broker)
        stage.restart(broker)
        producer.wait()


@scenario("three-brokers/leader-failover", {FaultKind.DROP_ANSWER: 0.05})
def leader_failover(stage: Stage) -> None:
    """The leader is killed while an idempotent and a transactional producer send; it comes back as a follower."""
    topic, transactions = stage.topic(), stage.topic(suffix="-transactions")
    old = stage.leader(topic)
    identity = {"transactional_id": f"{stage.name}-t", "prefix": "t", "abort_chance": 0.3}
    with (
        stage.start("producer", topic, records=1_000, pause_ms=20) as plain,
        stage.start("transactional", transactions, records=300, pause_ms=20, **identity) as transactional,
    ):
        stage.wait_acknowledged("producer", 150)
        stage.crash(old)
        stage.new_leader(topic, old)
        stage.wait_acknowledged("producer", 400)
        stage.restart(old)
        plain.wait()
        transactional.wait(expected=(0, FATAL_EXIT))
    for each in (topic, transactions):
        stage.cluster.wait_in_sync(each, 3)


@scenario("three-brokers/kill-follower", {FaultKind.DROP_ANSWER: 0.05})
def kill_follower(stage: Stage) -> None:
    """A follower is killed while an idempotent producer sends, misses records, and catches up."""
    topic = stage.topic()
    leader = stage.leader(topic)
    follower = next(broker for broker in stage.cluster.brokers if broker is not leader)
    with stage.start("producer", topic, records=800, pause_ms=20) as producer:
        stage.wait_acknowledged("producer", 150)
        stage.crash(follower)
        stage.wait_acknowledged("producer", 400)
        stage.restart(follower)
        producer.wait()
    stage.cluster.wait_in_sync(topic, 3)


@scenario("violations/java-crash-with-lost-acks")
def java_crash_with_lost_acks(stage: Stage) -> None:
    """Like one-broker/crash-with-lost-acks, but the Java producer goes on with a new epoch: records are duplicated."""
    topic = stage.topic()
    work = stage.workload("producer", topic, records=300)
    with start_verifiable_producer(work, stage.journal, stage.folder) as producer:
        stage.wait_acknowledged("producer", 100)
        stage.lose_acknowledgements_and_crash(stage.cluster[1])
        producer.wait()


@scenario("violations/late-end-of-transaction")
def late_end_of_transaction(stage: Stage) -> None:
    """A repeated EndTxn arrives in the next transaction of a client before KIP-890 part 2, and commits half of it."""
    topic = stage.topic(partitions=2)
    late = {3: Fault(FaultKind.REPEAT, 0.1)}  # the transactions take longer than that
    stage.proxy.follow(Plan(seed=stage.name, scripted=late, apis=frozenset({"EndTxn"})))
    identity = {"transactional_id": f"{stage.name}-t", "transaction_size": 40, "pause_ms": 25}
    with stage.start("transactional", topic, records=400, **identity) as producer:
        producer.wait(expected=(0, FATAL_EXIT))


@scenario("operator-mistakes/abort-by-hand")
def abort_by_hand(stage: Stage) -> None:
    """An operator aborts an open transaction in one of its two partitions, and then its client commits it."""
    topic = stage.topic(partitions=2)
    identity: dict[str, Any] = {"transactional_id": f"{stage.name}-t", "transaction_size": 4, "pause_after": "flush"}
    with stage.readers(topic), stage.start("transactional", topic, records=4, timeout_ms=300_000, **identity) as client:
        stage.wait_paused("transactional")
        stage.cluster.abort_by_hand(topic, 0)
        client.go_on()
        client.wait()


@scenario("replicated-violations/follower-catches-up")
def follower_catches_up(stage: Stage) -> None:
    """A follower comes back, fetches all missing records at once, and leads: a reader gets an aborted record."""
    # With an index entry for every batch, the search for aborted transactions ends at the last stable offset.
    topic = stage.topic(replicas=[[1, 2]], min_insync_replicas="1", index_interval_bytes="0")
    leader, follower = stage.cluster[1], stage.cluster[2]
    work: dict[str, Any] = {"records": 1, "transaction_size": 1, "timeout_ms": 300_000}
    aborting = work | {"transactional_id": f"{stage.name}-aborting", "abort_chance": 1.0}
    committing = work | {"transactional_id": f"{stage.name}-committing"}
    stage.crash(follower)
    with stage.start("first", topic, prefix="first-", **aborting) as first:
        first.wait()
    with (
        stage.start("second", topic, prefix="second-", pause_after="flush", **aborting) as second,
        ExitStack() as later,
    ):
        stage.wait_paused("second")
        still_open = later.enter_context(stage.start("open", topic, prefix="open-", pause_after="flush", **committing))
        stage.wait_paused("open")
        second.go_on()
        second.wait()
        stage.restart(follower)
        stage.cluster.wait_in_sync(topic, 2)
        stage.cluster.make_leader(topic, 0, follower.node)
        stage.new_leader(topic, leader)
        with stage.readers(topic):
            stage.wait_read("read-committed", 1)
            still_open.go_on()
            still_open.wait()


@scenario("no-leader/commit-then-abort", kafka=RECORDED)
def commit_then_abort(stage: Stage) -> None:
    """A transaction is committed while a partition of it has no leader; the next one's ABORT marker ends it there."""
    _end_without_leader(stage, {}, ABORTS)


@scenario("no-leader/abort-then-commit", kafka=RECORDED)
def abort_then_commit(stage: Stage) -> None:
    """A transaction is aborted while a partition of it has no leader; the next one's COMMIT marker commits it there."""
    _end_without_leader(stage, ABORTS, {})


ABORTS: Mapping[str, Any] = {"abort_chance": 1.0}


def _end_without_leader(stage: Stage, ends: Mapping[str, Any], next_ends: Mapping[str, Any]) -> None:
    """A transaction over two partitions ends while the second one has no leader, and then the next one ends."""
    identity: dict[str, Any] = {"transactional_id": f"{stage.name}-t", "records": 2, "transaction_size": 2}
    _, coordinator = stage.cluster.coordinator(identity["transactional_id"])
    other = next(broker for broker in stage.cluster.brokers if broker.node != coordinator["LeaderId"])
    topic = stage.topic(2, replicas=[[coordinator["LeaderId"]], [other.node]], min_insync_replicas="1")
    ending = {**identity, "prefix": "first-", "pause_after": "flush", "timeout_ms": 300_000, **ends}
    with stage.readers(topic):
        with stage.start("first", topic, **ending) as first:
            stage.wait_paused("first")
            stage.crash(other)
            stage.cluster.wait_leaderless(topic, 1)
            first.go_on()
            first.wait()
        stage.restart(other)
        stage.new_leader(topic, stage.cluster[coordinator["LeaderId"]], 1)
        stage.wait_settled(identity["transactional_id"])
        with stage.start("second", topic, prefix="second-", **identity, **next_ends) as second:
            second.wait()
        stage.wait_settled(identity["transactional_id"])
