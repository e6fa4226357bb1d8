"""The tour of kafka-python."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import kafka
import tour
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import KafkaError
from tour import NotInTime, again, in_time, say, text, wait_until

SECONDS = 60.0
SENDING_SECONDS = 10.0  # after which the tour gives a transaction up
CALL_SECONDS = 30.0  # kafka-python 3.0 drops a request, and waits for ever, if the coordinator refuses the connection
BOOTSTRAP, NAME, KEEP = tour.arguments()
RECORDS, TRANSACTIONS, COPIES = (f"{NAME}-{end}" for end in tour.PARTITIONS)
ADMIN = kafka.KafkaAdminClient(bootstrap_servers=BOOTSTRAP)


def configured() -> str:
    """``retention.ms`` of the topic."""
    described = ADMIN.describe_configs([ConfigResource(ConfigResourceType.TOPIC, RECORDS)])
    return str(described["topic"][RECORDS]["retention.ms"]["value"])


def configure(value: str) -> None:
    """Set ``retention.ms``, and wait until it has the new value."""
    ADMIN.alter_configs([ConfigResource(ConfigResourceType.TOPIC, RECORDS, {"retention.ms": value})])
    wait_until(lambda: configured() == value)
    say("configuration", **{"retention.ms": configured()})


def administer() -> None:
    """Describe the cluster, create topics and set their configuration."""
    cluster = ADMIN.describe_cluster()
    brokers = [row["broker_id"] for row in cluster["brokers"]]
    say("cluster", brokers=brokers, controller=cluster["controller_id"])
    topics = [
        NewTopic(f"{NAME}-{end}", count, 1, topic_configs={"retention.ms": tour.RETENTION[0]})
        for end, count in tour.PARTITIONS.items()
    ]
    ADMIN.create_topics(topics)
    wait_until(lambda: len(listed_topics()) == len(topics))  # brokers learn of it after the controller
    described = ADMIN.describe_topics([RECORDS, TRANSACTIONS, COPIES])
    say("topics", topics={topic["name"]: len(topic["partitions"]) for topic in described})
    say("configuration", **{"retention.ms": configured()})
    configure(tour.RETENTION[1])


def produce(kind: str, rounds: int, **settings: Any) -> None:
    """Send rounds of records, and wait for each round."""
    producer = kafka.KafkaProducer(bootstrap_servers=BOOTSTRAP, **settings)
    for first in range(0, rounds * tour.ROUND, tour.ROUND):
        sent = []
        for number in range(first, first + tour.ROUND):
            key, value = tour.key_of(number), f"{kind}-{number}"
            sent.append((key, value, producer.send(RECORDS, value.encode(), key.encode() if key else None)))
        for key, value, future in sent:
            try:
                where = future.get(2 * SECONDS)
            except KafkaError as error:
                say("failed", kind=kind, value=value, error=str(error))
            else:
                say("acknowledged", kind=kind, key=key, value=value, partition=where.partition, offset=where.offset)
    producer.close()


def end(topic: str, partitions: int) -> None:
    """Send a last record to each partition."""
    producer = kafka.KafkaProducer(bootstrap_servers=BOOTSTRAP)
    for partition in range(partitions):
        producer.send(topic, tour.END.encode(), partition=partition).get(SECONDS)
    producer.close()


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
                self._producer = kafka.KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=self._id)
                in_time(self._producer.init_transactions, seconds=CALL_SECONDS)
            self._producer.begin_transaction()
            write(self._producer)
            committing = commit
            if commit:
                in_time(self._producer.commit_transaction, seconds=CALL_SECONDS)
            else:
                in_time(self._producer.abort_transaction, seconds=CALL_SECONDS)
        except (KafkaError, NotInTime) as error:
            self.close()
            return ("unknown" if committing else "aborted"), str(error)
        return ("committed" if commit else "aborted"), None

    def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            with suppress(KafkaError):
                self._producer.close(timeout=1)
            self._producer = None


def transact() -> None:
    """Run transactions, most of which are committed and some aborted."""
    transactions = Transactions(f"{NAME}-transactions")

    def write(number: int) -> Callable[[Any], None]:
        def both(producer: Any) -> None:
            sent = [
                producer.send(TRANSACTIONS, f"{number}-{partition}".encode(), partition=partition)
                for partition in range(2)
            ]
            for future in sent:
                future.get(SENDING_SECONDS)

        return both

    for number in range(tour.TRANSACTIONS):
        outcome, error = transactions.run(write(number), commit=number % 3 != 2)
        say("transaction", number=number, outcome=outcome, error=error)
    transactions.close()
    end(TRANSACTIONS, 2)


def reader(group: str, topic: str, **settings: Any) -> Any:
    """A consumer that begins with the first record."""
    return kafka.KafkaConsumer(
        topic, bootstrap_servers=BOOTSTRAP, group_id=f"{NAME}-{group}", auto_offset_reset="earliest", **settings
    )


def polled(consumer: Any, most: int | None = None) -> list[Any]:
    """The next records; none if there are none for a while."""
    found = consumer.poll(timeout_ms=500, max_records=most)
    return [message for messages in found.values() for message in messages]


def copy() -> None:
    """Copy the records, each in a transaction with the offset after it."""
    transactions = Transactions(f"{NAME}-copier")
    ends: dict[int, int] = {}
    reached: dict[int, int] = {}
    consumer = None
    while len(ends) < tour.PARTITIONS["records"] or reached != ends:
        consumer = consumer or reader("copier", RECORDS, enable_auto_commit=False)
        batch = polled(consumer, tour.COPIED)
        if not batch:
            reached = group_offsets("copier")
            continue
        behind = {message.partition: message.offset + 1 for message in batch}
        ends |= {message.partition: message.offset + 1 for message in batch if text(message.value) == tour.END}

        def write(producer: Any, consumer: Any = consumer, batch: Any = batch, behind: Any = behind) -> None:
            for message in batch:
                producer.send(COPIES, f"{message.partition}-{message.offset}".encode())
            offsets = {
                kafka.TopicPartition(RECORDS, partition): kafka.OffsetAndMetadata(offset, "", -1)
                for partition, offset in behind.items()
            }
            send = producer.send_offsets_to_transaction
            in_time(send, offsets, consumer.group_metadata(), seconds=CALL_SECONDS)

        outcome, error = transactions.run(write)
        inputs = [[message.partition, message.offset] for message in batch]
        say("copied", inputs=inputs, outcome=outcome, error=error)
        if outcome == "committed":
            reached |= behind
        else:
            consumer.close(autocommit=False)
            consumer = None
    if consumer is not None:
        consumer.close()
    transactions.close()
    end(COPIES, 1)


def consume(name: str, group: str, topic: str, most: int | None = None, **settings: Any) -> None:
    """Read until each partition's end, or at most so many; commit and leave."""
    consumer = reader(group, topic, **settings)
    ended = tour.ENDED[group]
    count = 0
    while len(ended) < tour.PARTITIONS[topic.removeprefix(f"{NAME}-")] and count != most:
        for message in polled(consumer, None if most is None else most - count):
            count += 1
            where = {"topic": topic, "partition": message.partition, "offset": message.offset}
            say("consumed", reader=name, **where, key=text(message.key), value=text(message.value))
            if text(message.value) == tour.END:
                ended.add(message.partition)
    again(consumer.commit, KafkaError)
    consumer.close()


def group_offsets(group: str) -> dict[int, int]:
    """The committed offsets of a group, by partition."""
    name = f"{NAME}-{group}"
    found = again(lambda: ADMIN.list_group_offsets(name), KafkaError)[name]
    return {partition.partition: row.offset for partition, row in found.items()}


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
            time.sleep(0.05)
        consumer.close()


def rebalance() -> None:
    """Run a member alone, then with a second one, then alone again."""
    first, second = Member("a"), Member("b")
    first.start()
    wait_until(lambda: len(first.partitions) == 3)
    second.start()
    wait_until(lambda: sorted(first.partitions + second.partitions) == [0, 1, 2] and bool(second.partitions))
    described = ADMIN.describe_groups([f"{NAME}-pair"])[f"{NAME}-pair"]
    say("group", group=f"{NAME}-pair", state=described["group_state"], members=len(described["members"]))
    second.leaves.set()
    second.join()
    wait_until(lambda: len(first.partitions) == 3)
    first.leaves.set()
    first.join()


def listed_groups() -> list[str]:
    """The groups of this tour."""
    return sorted(row["group_id"] for row in ADMIN.list_groups() if row["group_id"].startswith(NAME))


def listed_topics() -> list[str]:
    """The topics of this tour."""
    return sorted(topic for topic in ADMIN.list_topics() if topic.startswith(NAME))


def clean_up() -> None:
    """List the groups, and delete groups and topics."""
    say("groups", listed=listed_groups())
    ADMIN.delete_groups(listed_groups())
    say("deleted groups", listed=listed_groups())
    ADMIN.delete_topics([RECORDS, TRANSACTIONS, COPIES])
    wait_until(lambda: not listed_topics())
    say("deleted topics", listed=listed_topics())


administer()
produce("default", tour.ROUNDS)
for codec in ("gzip", "zstd"):
    produce(codec, 1, compression_type=codec)
produce("not idempotent", tour.ROUNDS, enable_idempotence=False)
end(RECORDS, tour.PARTITIONS["records"])
transact()
copy()
consume("first", "readers", RECORDS, tour.FIRST)
committed("readers")
consume("second", "readers", RECORDS)
committed("readers")
committed("copier")
consume("committed", "transactions", TRANSACTIONS, isolation_level="read_committed")
consume("copies", "copies", COPIES, isolation_level="read_committed")
consume("uncommitted", "uncommitted", TRANSACTIONS)
rebalance()
if not KEEP:
    clean_up()
say("end")
