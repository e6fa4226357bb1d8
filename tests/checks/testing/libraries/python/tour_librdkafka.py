"""The tour of librdkafka, through confluent-kafka."""

import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import tour
from confluent_kafka import admin as ca
from tour import NotInTime, in_time, say, text, wait_until

SECONDS = 60.0
OFFSETS_SECONDS = 5.0  # librdkafka 2.16 may send them for ever when the coordinator was killed; Kafka's as well
BOOTSTRAP, NAME, KEEP = tour.arguments()
RECORDS, TRANSACTIONS, COPIES = (f"{NAME}-{end}" for end in tour.PARTITIONS)
ADMIN = ca.AdminClient({"bootstrap.servers": BOOTSTRAP})


def done(futures: dict[Any, Any]) -> dict[Any, Any]:
    """The results of a request."""
    return {key: future.result(SECONDS) for key, future in futures.items()}


def configured() -> str:
    """``retention.ms`` of the topic."""
    [configs] = done(ADMIN.describe_configs([ca.ConfigResource(ca.ResourceType.TOPIC, RECORDS)])).values()
    return str(configs["retention.ms"].value)


def configure(value: str) -> None:
    """Set ``retention.ms``, and wait until it has the new value."""
    entry = ca.ConfigEntry("retention.ms", value, incremental_operation=ca.AlterConfigOpType.SET)
    resource = ca.ConfigResource(ca.ResourceType.TOPIC, RECORDS, incremental_configs=[entry])
    done(ADMIN.incremental_alter_configs([resource]))
    wait_until(lambda: configured() == value)
    say("configuration", **{"retention.ms": configured()})


def administer() -> None:
    """Describe the cluster, create topics and set their configuration."""
    cluster = ADMIN.describe_cluster().result(SECONDS)
    say("cluster", brokers=[node.id for node in cluster.nodes], controller=cluster.controller.id)
    topics = [
        ca.NewTopic(f"{NAME}-{end}", count, config={"retention.ms": tour.RETENTION[0]} if end == "records" else {})
        for end, count in tour.PARTITIONS.items()
    ]
    done(ADMIN.create_topics(topics))
    wait_until(lambda: len(listed_topics()) == len(topics))  # brokers learn of it after the controller
    described = done(ADMIN.describe_topics(ck.TopicCollection([RECORDS, TRANSACTIONS, COPIES])))
    say("topics", topics={name: len(topic.partitions) for name, topic in described.items()})
    say("configuration", **{"retention.ms": configured()})
    configure(tour.RETENTION[1])


def produce(kind: str, rounds: int, **settings: Any) -> None:
    """Send rounds of records, and wait for each round."""
    producer = ck.Producer({"bootstrap.servers": BOOTSTRAP, **settings})

    def delivered(key: str | None, value: str) -> Callable[[Any, Any], None]:
        def tell(error: Any, message: Any) -> None:
            if error is not None:
                say("failed", kind=kind, value=value, error=str(error))
            else:
                where = {"partition": message.partition(), "offset": message.offset()}
                say("acknowledged", kind=kind, key=key, value=value, **where)

        return tell

    for first in range(0, rounds * tour.ROUND, tour.ROUND):
        for number in range(first, first + tour.ROUND):
            key, value = tour.key_of(number), f"{kind}-{number}"
            producer.produce(RECORDS, value, key, on_delivery=delivered(key, value))
        assert producer.flush(2 * SECONDS) == 0


def end(topic: str, partitions: int) -> None:
    """Send a last record to each partition."""
    producer = ck.Producer({"bootstrap.servers": BOOTSTRAP})
    for partition in range(partitions):
        producer.produce(topic, tour.END, partition=partition)
    assert producer.flush(2 * SECONDS) == 0


class Transactions:
    """A transactional producer, replaced by a new one when it cannot go on."""

    def __init__(self, transactional_id: str) -> None:
        self._id = transactional_id
        self._producer: Any = None

    def run(self, write: Callable[[Any], None], *, commit: bool = True) -> tuple[str, str | None]:
        """Run a transaction; return its outcome, and the error of an unknown one."""
        committing = False
        try:
            if self._producer is None:
                self._producer = ck.Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": self._id})
                self._producer.init_transactions(SECONDS)
            self._producer.begin_transaction()
            write(self._producer)
            if commit:
                committing = True
                self._retried(self._producer.commit_transaction)
            else:
                self._retried(self._producer.abort_transaction)
        except NotInTime as error:
            self._producer = None
            return "aborted", str(error)
        except ck.KafkaException as error:
            self._give_up(error)
            return ("unknown" if committing and not error.args[0].txn_requires_abort() else "aborted"), str(error)
        return ("committed" if commit else "aborted"), None

    @staticmethod
    def _retried(call: Callable[[], None]) -> None:
        """Call again while the error is retriable."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return call()
            except ck.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _give_up(self, error: ck.KafkaException) -> None:
        if error.args[0].txn_requires_abort():
            self._retried(self._producer.abort_transaction)
        else:
            self._producer = None


def transact() -> None:
    """Run transactions, most of which are committed and some aborted."""
    transactions = Transactions(f"{NAME}-transactions")

    def write(number: int) -> Callable[[Any], None]:
        def both(producer: Any) -> None:
            for partition in range(2):
                producer.produce(TRANSACTIONS, f"{number}-{partition}", partition=partition)
            producer.flush(SECONDS)  # an abort would drop unsent records

        return both

    for number in range(tour.TRANSACTIONS):
        outcome, error = transactions.run(write(number), commit=number % 3 != 2)
        say("transaction", number=number, outcome=outcome, error=error)
    end(TRANSACTIONS, 2)


def reader(group: str, topic: str, **settings: Any) -> Any:
    """A consumer that begins with the first record."""
    consumer = ck.Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": f"{NAME}-{group}", "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe([topic])
    return consumer


def polled(consumer: Any) -> Any:
    """The next record, or None; ignores errors after which the library goes on."""
    message = consumer.poll(0.5)
    if message is None or message.error() is None:
        return message
    assert not message.error().fatal(), message.error()
    return None


def taken(consumer: Any) -> list[Any]:
    """Records for a transaction: the available ones, up to ``COPIED``."""
    batch: list[Any] = []
    while len(batch) < tour.COPIED:
        message = polled(consumer)
        if message is None:
            break
        batch.append(message)
    return batch


def copy() -> None:
    """Copy the records, each in a transaction with the offset after it."""
    transactions = Transactions(f"{NAME}-copier")
    ends: dict[int, int] = {}
    reached: dict[int, int] = {}
    consumer = None
    while len(ends) < tour.PARTITIONS["records"] or reached != ends:
        consumer = consumer or reader("copier", RECORDS, **{"enable.auto.commit": False})
        batch = taken(consumer)
        if not batch:
            reached = group_offsets("copier")
            continue
        behind = {message.partition(): message.offset() + 1 for message in batch}
        ends |= {message.partition(): message.offset() + 1 for message in batch if text(message.value()) == tour.END}

        def write(producer: Any, consumer: Any = consumer, batch: Any = batch, behind: Any = behind) -> None:
            for message in batch:
                producer.produce(COPIES, f"{message.partition()}-{message.offset()}")
            offsets = [ck.TopicPartition(RECORDS, partition, offset) for partition, offset in behind.items()]
            metadata = consumer.consumer_group_metadata()
            send = producer.send_offsets_to_transaction
            in_time(send, offsets, metadata, OFFSETS_SECONDS, seconds=2 * OFFSETS_SECONDS)

        outcome, error = transactions.run(write)
        inputs = [[message.partition(), message.offset()] for message in batch]
        say("copied", inputs=inputs, outcome=outcome, error=error)
        if outcome == "committed":
            reached |= behind
        else:
            consumer.close()
            consumer = None
    if consumer is not None:
        consumer.close()
    end(COPIES, 1)


def consume(name: str, group: str, topic: str, most: int | None = None, **settings: Any) -> None:
    """Read until each partition's end, or at most so many; commit and leave."""
    consumer = reader(group, topic, **settings)
    ended = tour.ENDED[group]
    count = 0
    while len(ended) < tour.PARTITIONS[topic.removeprefix(f"{NAME}-")] and count != most:
        message = polled(consumer)
        if message is None:
            continue
        count += 1
        where = {"topic": topic, "partition": message.partition(), "offset": message.offset()}
        say("consumed", reader=name, **where, key=text(message.key()), value=text(message.value()))
        if text(message.value()) == tour.END:
            ended.add(message.partition())
    consumer.commit(asynchronous=False)
    consumer.close()


def group_offsets(group: str) -> dict[int, int]:
    """The committed offsets of a group, by partition."""
    asked = [ck.ConsumerGroupTopicPartitions(f"{NAME}-{group}")]
    fresh = ca.AdminClient({"bootstrap.servers": BOOTSTRAP})  # ADMIN may never ask a killed coordinator
    [answer] = done(fresh.list_consumer_group_offsets(asked)).values()
    return {row.partition: row.offset for row in answer.topic_partitions if row.offset >= 0}


def committed(group: str) -> None:
    """Print the committed offsets of a group."""
    say("committed", group=f"{NAME}-{group}", offsets=group_offsets(group))


class Member(threading.Thread):
    """A member of the pair."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._called = name
        self.partitions: list[int] = []
        self.leaves = threading.Event()

    def run(self) -> None:
        """Poll until told to leave."""
        consumer = reader("pair", RECORDS)
        while not self.leaves.is_set():
            polled(consumer)
            partitions = sorted(row.partition for row in consumer.assignment())
            if partitions != self.partitions:
                say("assigned", member=self._called, partitions=partitions)
                self.partitions = partitions
        consumer.close()


def rebalance() -> None:
    """Run a member alone, then with a second one, then alone again."""
    first, second = Member("a"), Member("b")
    first.start()
    wait_until(lambda: len(first.partitions) == 3)
    second.start()
    wait_until(lambda: sorted(first.partitions + second.partitions) == [0, 1, 2] and bool(second.partitions))
    [described] = done(ADMIN.describe_consumer_groups([f"{NAME}-pair"])).values()
    say("group", group=f"{NAME}-pair", state=described.state.name.capitalize(), members=len(described.members))
    second.leaves.set()
    second.join()
    wait_until(lambda: len(first.partitions) == 3)
    first.leaves.set()
    first.join()


def listed_groups() -> list[str]:
    """The groups of this tour."""
    found = ADMIN.list_consumer_groups().result(SECONDS).valid
    return sorted(group.group_id for group in found if group.group_id.startswith(NAME))


def listed_topics() -> list[str]:
    """The topics of this tour."""
    return sorted(topic for topic in ADMIN.list_topics(timeout=SECONDS).topics if topic.startswith(NAME))


def clean_up() -> None:
    """List the groups, and delete groups and topics."""
    say("groups", listed=listed_groups())
    done(ADMIN.delete_consumer_groups(listed_groups()))
    say("deleted groups", listed=listed_groups())
    done(ADMIN.delete_topics([RECORDS, TRANSACTIONS, COPIES]))
    wait_until(lambda: not listed_topics())
    say("deleted topics", listed=listed_topics())


administer()
produce("default", tour.ROUNDS)
for codec in ("gzip", "snappy", "lz4", "zstd"):
    produce(codec, 1, **{"compression.type": codec})
produce("idempotent", tour.ROUNDS, **{"enable.idempotence": True})
end(RECORDS, tour.PARTITIONS["records"])
transact()
copy()
consume("first", "readers", RECORDS, tour.FIRST)
committed("readers")
consume("second", "readers", RECORDS)
committed("readers")
committed("copier")
consume("committed", "transactions", TRANSACTIONS)
consume("copies", "copies", COPIES)
consume("uncommitted", "uncommitted", TRANSACTIONS, **{"isolation.level": "read_uncommitted"})
rebalance()
if not KEEP:
    clean_up()
say("end")
