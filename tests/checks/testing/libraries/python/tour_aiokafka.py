"""The tour of aiokafka."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiokafka
import tour
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from tour import say, text

SECONDS = 60.0
STOP_SECONDS = 30.0
TOUR_SECONDS = 280.0  # the test kills a tour after 300, and nobody would know where it was
BOOTSTRAP, NAME, KEEP = tour.arguments()
RECORDS, TRANSACTIONS, COPIES = (f"{NAME}-{end}" for end in tour.PARTITIONS)


async def wait_until(ready: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(SECONDS):
        while not await ready():
            await asyncio.sleep(0.05)


async def started(make: Callable[[], Any]) -> Any:
    """A client that has started.

    aiokafka 0.14: ``start`` fails at once if the connection is refused or cut, and the client can only be stopped.
    """
    async with asyncio.timeout(SECONDS):
        while True:
            client = make()
            try:
                await client.start()
            except KafkaError:
                await client.stop()
                await asyncio.sleep(0.1)
            else:
                return client


async def stop(consumer: Any) -> None:
    """Stop a consumer, its broker being there or not.

    aiokafka 0.14: ``stop`` cancels a fetch that waits for its next try, and lets the CancelledError through. It also
    commits a last time. If the coordinator is lost meanwhile, it tries again for ever, but no longer looks for the
    coordinator, as it is closing (``GroupCoordinator.ensure_coordinator_known``). So the tour gives such a consumer up;
    its session ends without heartbeats.
    """
    try:
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(STOP_SECONDS):
                await consumer.stop()
    except TimeoutError:
        print("stop did not return: the consumer is given up", file=sys.stderr)


async def configured(admin: Any) -> str:
    """``retention.ms`` of the topic."""
    resource = ConfigResource(ConfigResourceType.TOPIC, RECORDS, {"retention.ms": None})
    [answer] = await admin.describe_configs([resource])
    [(_, _, _, _, configs)] = answer.resources
    return str(configs[0][1])


async def administer(admin: Any) -> None:
    """Describe the cluster, create topics and set their configuration."""
    cluster = await admin.describe_cluster()
    say("cluster", brokers=[row["node_id"] for row in cluster["brokers"]], controller=cluster["controller_id"])
    await admin.create_topics(
        [
            NewTopic(f"{NAME}-{end}", count, 1, topic_configs={"retention.ms": tour.RETENTION[0]})
            for end, count in tour.PARTITIONS.items()
        ]
    )

    async def are_there() -> bool:
        return len(await listed_topics(admin)) == len(tour.PARTITIONS)

    await wait_until(are_there)  # brokers learn of it after the controller
    described = await admin.describe_topics([RECORDS, TRANSACTIONS, COPIES])
    say("topics", topics={topic["topic"]: len(topic["partitions"]) for topic in described})
    say("configuration", **{"retention.ms": await configured(admin)})
    altered = ConfigResource(ConfigResourceType.TOPIC, RECORDS, {"retention.ms": tour.RETENTION[1]})
    await admin.alter_configs([altered])

    async def is_altered() -> bool:
        return await configured(admin) == tour.RETENTION[1]

    await wait_until(is_altered)
    say("configuration", **{"retention.ms": await configured(admin)})


@asynccontextmanager
async def producing(**settings: Any) -> AsyncIterator[Any]:
    """A producer that is stopped in the end."""
    producer = await started(lambda: aiokafka.AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, **settings))
    try:
        yield producer
    finally:
        await producer.stop()


async def produce(kind: str, rounds: int, **settings: Any) -> None:
    """Send rounds of records, and wait for each round."""
    async with producing(**settings) as producer:
        for first in range(0, rounds * tour.ROUND, tour.ROUND):
            sent = []
            for number in range(first, first + tour.ROUND):
                key, value = tour.key_of(number), f"{kind}-{number}"
                future = await producer.send(RECORDS, value.encode(), key.encode() if key else None)
                sent.append((key, value, future))
            for key, value, future in sent:
                try:
                    where = await future
                except KafkaError as error:
                    say("failed", kind=kind, value=value, error=repr(error))
                else:
                    say("acknowledged", kind=kind, key=key, value=value, partition=where.partition, offset=where.offset)


async def end(topic: str, partitions: int) -> None:
    """Send a last record to each partition."""
    async with producing() as producer:
        for partition in range(partitions):
            await producer.send_and_wait(topic, tour.END.encode(), partition=partition)


class Transactions:
    """A transactional producer, replaced by a new one when it cannot go on."""

    def __init__(self, transactional_id: str) -> None:
        self._id = transactional_id
        self._producer: Any = None

    async def run(self, write: Callable[[Any], Awaitable[None]], *, commit: bool = True) -> tuple[str, str | None]:
        """Run a transaction; return its outcome, and the error of an unknown one."""
        committing = False
        try:
            if self._producer is None:
                self._producer = aiokafka.AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=self._id)
                await self._producer.start()
            await self._producer.begin_transaction()
            await write(self._producer)
            committing = commit
            await (self._producer.commit_transaction() if commit else self._producer.abort_transaction())
        except KafkaError as error:
            await self.close()
            return ("unknown" if committing else "aborted"), repr(error)
        return ("committed" if commit else "aborted"), None

    async def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            await self._producer.stop()
            self._producer = None


async def transact() -> None:
    """Run transactions, most of which are committed and some aborted."""
    transactions = Transactions(f"{NAME}-transactions")

    def write(number: int) -> Callable[[Any], Awaitable[None]]:
        async def both(producer: Any) -> None:
            for partition in range(2):
                await producer.send_and_wait(TRANSACTIONS, f"{number}-{partition}".encode(), partition=partition)

        return both

    for number in range(tour.TRANSACTIONS):
        outcome, error = await transactions.run(write(number), commit=number % 3 != 2)
        say("transaction", number=number, outcome=outcome, error=error)
    await transactions.close()
    await end(TRANSACTIONS, 2)


async def reader(group: str, topic: str, **settings: Any) -> Any:
    """A consumer that begins with the first record."""
    where = {"bootstrap_servers": BOOTSTRAP, "group_id": f"{NAME}-{group}", "auto_offset_reset": "earliest"}
    return await started(lambda: aiokafka.AIOKafkaConsumer(topic, **where, **settings))


async def polled(consumer: Any, most: int | None = None) -> list[Any]:
    """The next records; none if there are none for a while."""
    found = await consumer.getmany(timeout_ms=500, max_records=most)
    return [message for messages in found.values() for message in messages]


async def copy(admin: Any) -> None:
    """Copy the records, each in a transaction with the offset after it."""
    transactions = Transactions(f"{NAME}-copier")
    ends: dict[int, int] = {}
    reached: dict[int, int] = {}
    consumer = None
    while len(ends) < tour.PARTITIONS["records"] or reached != ends:
        consumer = consumer or await reader("copier", RECORDS, enable_auto_commit=False)
        batch = await polled(consumer, tour.COPIED)
        if not batch:
            reached = await group_offsets(admin, "copier")
            continue
        behind = {message.partition: message.offset + 1 for message in batch}
        ends |= {message.partition: message.offset + 1 for message in batch if text(message.value) == tour.END}

        async def write(producer: Any, batch: Any = batch, behind: Any = behind) -> None:
            for message in batch:
                await producer.send(COPIES, f"{message.partition}-{message.offset}".encode())
            offsets = {aiokafka.TopicPartition(RECORDS, partition): offset for partition, offset in behind.items()}
            await producer.send_offsets_to_transaction(offsets, f"{NAME}-copier")

        outcome, error = await transactions.run(write)
        inputs = [[message.partition, message.offset] for message in batch]
        say("copied", inputs=inputs, outcome=outcome, error=error)
        if outcome == "committed":
            reached |= behind
        else:
            await stop(consumer)
            consumer = None
    if consumer is not None:
        await stop(consumer)
    await transactions.close()
    await end(COPIES, 1)


async def consume(name: str, group: str, topic: str, most: int | None = None, **settings: Any) -> None:
    """Read until each partition's end, or at most so many; commit and leave."""
    consumer = await reader(group, topic, **settings)
    ended = tour.ENDED[group]
    count = 0
    while len(ended) < tour.PARTITIONS[topic.removeprefix(f"{NAME}-")] and count != most:
        for message in await polled(consumer, None if most is None else most - count):
            count += 1
            where = {"topic": topic, "partition": message.partition, "offset": message.offset}
            say("consumed", reader=name, **where, key=text(message.key), value=text(message.value))
            if text(message.value) == tour.END:
                ended.add(message.partition)
    await consumer.commit()
    await stop(consumer)


async def group_offsets(admin: Any, group: str) -> dict[int, int]:
    """The committed offsets of a group, by partition."""
    found: dict[Any, Any] = {}

    async def is_told() -> bool:
        try:
            found.update(await admin.list_consumer_group_offsets(f"{NAME}-{group}"))
        except KafkaError:  # the connection may be lost with the server
            return False
        return True

    await wait_until(is_told)
    return {partition.partition: row.offset for partition, row in found.items()}


async def committed(admin: Any, group: str) -> None:
    """Print the committed offsets of a group."""
    say("committed", group=f"{NAME}-{group}", offsets=await group_offsets(admin, group))


class Member:
    """A member of the pair."""

    def __init__(self, name: str) -> None:
        self._called = name
        self.partitions: list[int] = []
        self.leaves = False

    async def run(self) -> None:
        """Poll until told to leave."""
        consumer = await reader("pair", RECORDS)
        while not self.leaves:
            await polled(consumer)
            partitions = sorted(row.partition for row in consumer.assignment())
            if partitions != self.partitions:
                say("assigned", member=self._called, partitions=partitions)
                self.partitions = partitions
        await stop(consumer)


async def rebalance(admin: Any) -> None:
    """Run a member alone, then with a second one, then alone again."""
    first, second = Member("a"), Member("b")

    async def has_all() -> bool:
        return len(first.partitions) == 3

    async def share() -> bool:
        return sorted(first.partitions + second.partitions) == [0, 1, 2] and bool(second.partitions)

    runs = [asyncio.create_task(first.run())]
    await wait_until(has_all)
    runs.append(asyncio.create_task(second.run()))
    await wait_until(share)
    [answer] = await admin.describe_consumer_groups([f"{NAME}-pair"])
    [(_, group, state, _, _, members, *_)] = answer.groups
    say("group", group=group, state=state, members=len(members))
    second.leaves = True
    await runs[1]
    await wait_until(has_all)
    first.leaves = True
    await runs[0]


async def listed_topics(admin: Any) -> list[str]:
    """The topics of this tour."""
    return sorted(topic for topic in await admin.list_topics() if topic.startswith(NAME))


async def clean_up(admin: Any) -> None:
    """List the groups, and delete topics; aiokafka deletes no groups."""
    groups = await admin.list_consumer_groups()
    say("groups", listed=sorted(name for name, *_ in groups if name.startswith(NAME)))
    await admin.delete_topics([RECORDS, TRANSACTIONS, COPIES])

    async def are_gone() -> bool:
        return not await listed_topics(admin)

    await wait_until(are_gone)
    say("deleted topics", listed=await listed_topics(admin))


async def main() -> None:
    """The tour."""
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    await administer(admin)
    await produce("default", tour.ROUNDS)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        await produce(codec, 1, compression_type=codec)
    await produce("idempotent", tour.ROUNDS, enable_idempotence=True)
    await end(RECORDS, tour.PARTITIONS["records"])
    await transact()
    await copy(admin)
    await consume("first", "readers", RECORDS, tour.FIRST)
    await committed(admin, "readers")
    await consume("second", "readers", RECORDS)
    await committed(admin, "readers")
    await committed(admin, "copier")
    await consume("committed", "transactions", TRANSACTIONS, isolation_level="read_committed")
    await consume("copies", "copies", COPIES, isolation_level="read_committed")
    await consume("uncommitted", "uncommitted", TRANSACTIONS)
    await rebalance(admin)
    if not KEEP:
        await clean_up(admin)
    await admin.close()
    say("end")


asyncio.run(asyncio.wait_for(main(), TOUR_SECONDS))
