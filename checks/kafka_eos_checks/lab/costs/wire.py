"""The costs of a transaction in requests, markers and records of the coordinator's log, counted and not timed.

Clients connect through the recorder's proxy, which records each request that matters to exactly-once; the markers and
the coordinator's records are counted in the broker's log. The same functions count the reference: its simulator writes
the same events and batches.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kafka_eos.formats.record_batch import RecordBatch
from kafka_eos.formats.segment import StoredBatch, scan
from kafka_eos.formats.transaction_log import TOPIC, decode_key
from kafka_eos.histories.history import Event
from kafka_eos_checks.brokers.brokers import HOST
from kafka_eos_checks.brokers.faults import NO_FAULTS
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.brokers.proxy import Proxy
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.lab.costs.turns import Stage
from kafka_eos_checks.simulate.transactions import FAULTS, TransactionsPlan, simulate_transactions

TRANSACTIONS = 5  # of each kind
MESSAGES = (10, 100, 1000)  # in a transaction
PARTITION_COUNTS = (1, 3, 10)
REGISTERING = "AddPartitionsToTxn"
ENDING = "EndTxn"
_SECONDS = 60

Row = dict[str, Any]


def requests(events: Iterable[Event]) -> dict[str, dict[str, int]]:
    """The successful requests of each API, the partitions in them, and the refusals that were retried."""
    numbers: dict[str, set[Any]] = {}
    counts: dict[str, Counter[str]] = {}
    for event in events:
        if not event.process.startswith(("proxy/", "wire/")) or event.phase not in {"ok", "fail"}:
            continue
        said = counts.setdefault(event.action, Counter(requests=0, partitions=0, refused=0))
        if event.phase == "fail":
            said["refused"] += 1
            continue
        said["partitions"] += 1
        numbers.setdefault(event.action, set()).add(event.detail.get("request", ("", said["partitions"])))
    for action, seen in numbers.items():
        counts[action]["requests"] = len(seen)
    return {action: dict(said) for action, said in sorted(counts.items())}


def markers(logs: Iterable[Iterable[RecordBatch]]) -> int:
    """The number of control batches in some partitions."""
    return sum(batch.is_control for log in logs for batch in log)


def coordinator_records(log: Iterable[RecordBatch], transactional_id: str) -> int:
    """The number of records about a transactional id."""
    found = 0
    for batch in log:
        if batch.is_control:
            continue
        keys = [record.key for record in batch.records()]
        found += sum(key is not None and decode_key(key).transactional_id == transactional_id for key in keys)
    return found


def stored(folder: Path) -> list[RecordBatch]:
    """The batches of a partition's folder, to which the broker may still write."""
    segments = sorted(folder.glob("*.log"))
    return [found.batch for file in segments for found in scan(file.read_bytes()) if isinstance(found, StoredBatch)]


def count(stage: Stage, proxy: Proxy) -> dict[str, Any]:
    """Count the requests of both clients, and compare the sizes of batches with and without idempotence."""
    rows = [
        _of_client(stage, proxy, client, messages, partitions)
        for client in ("Java", "librdkafka")
        for partitions in PARTITION_COUNTS
        for messages in MESSAGES
    ]
    return {"transactions": rows, "batches": batch_sizes(stage)}


def _of_client(stage: Stage, proxy: Proxy, client: str, messages: int, partitions: int) -> Row:
    journal = Journal("costs")
    proxy.begin(journal, NO_FAULTS)
    topic = stage.topic("wire", partitions)
    bootstrap = f"{HOST}:{stage.cluster[1].advertised_port}"
    if client == "Java":
        stage.do({
            "job": "produce", "bootstrap": bootstrap, "topic": topic, "partitions": partitions, "value_bytes": 100,
            "producer": {"transactional.id": topic}, "transaction_size": messages, "spread": True,
            "records": messages * TRANSACTIONS, "seconds": _SECONDS,
        })  # fmt: skip
    else:
        _produce_by_librdkafka(bootstrap, topic, partitions, messages)
    stage.cluster.wait_transaction(topic, {"CompleteCommit"})
    proxy.quiesce()
    data = stage.cluster[1].data
    coordinator = stage.cluster.coordinator(topic)[0]
    return {
        "client": client,
        "messages": messages,
        "partitions": partitions,
        "transactions": TRANSACTIONS,
        "requests": requests(journal.events()),
        "markers": markers(stored(data / f"{topic}-{number}") for number in range(partitions)),
        "coordinator_records": coordinator_records(stored(data / f"{TOPIC}-{coordinator}"), topic),
    }


def _produce_by_librdkafka(bootstrap: str, topic: str, partitions: int, messages: int) -> None:
    confluent_kafka = need("confluent_kafka", "record")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(_SECONDS)
    for _ in range(TRANSACTIONS):
        producer.begin_transaction()
        for number in range(messages):
            producer.produce(topic, value=b"v" * 100, partition=number % partitions)
            producer.poll(0)
        producer.commit_transaction(_SECONDS)


def batch_sizes(stage: Stage) -> dict[str, dict[str, list[int]]]:
    """The sizes of stored batches by their number of records, with idempotence and without."""
    found: dict[str, dict[str, list[int]]] = {}
    for name, enabled in (("without idempotence", "false"), ("with idempotence", "true")):
        topic = stage.topic("batches", 1)
        stage.do({
            "job": "produce", "topic": topic, "partitions": 1, "value_bytes": 100, "seconds": _SECONDS,
            "producer": {"acks": "all", "enable.idempotence": enabled}, "records": 100, "flush_every": 5,
        })  # fmt: skip
        sizes: dict[str, set[int]] = {}
        for batch in stored(stage.cluster[1].data / f"{topic}-0"):
            assert (batch.producer_id >= 0) is (enabled == "true"), "the client does as it is told"
            sizes.setdefault(str(batch.record_count), set()).add(batch.size)
        found[name] = {records: sorted(seen) for records, seen in sorted(sizes.items())}
    return found


@cache
def of_reference(version: int, partitions: int, transactions: int = TRANSACTIONS) -> Mapping[str, Any]:
    """The same counts for the reference, whose transactions have a message for each partition."""
    plan = TransactionsPlan(
        seed=version * 10 + partitions,
        steps=2000,
        transactions=transactions,
        partitions=partitions,
        instances=1,
        versions=(version,),
        repeats=False,
        faults=dict.fromkeys(FAULTS.keys() - {"Initialize"}, 0.0),
    )
    simulated = simulate_transactions(plan)
    commits = sum(event.action == ENDING and event.phase == "ok" for event in simulated.events)
    return {
        "client": f"reference, version {version}",
        "messages": partitions,
        "partitions": partitions,
        "transactions": commits,
        "requests": requests(simulated.events),
        "markers": markers(simulated.logs.values()),
        "coordinator_records": sum(batch.record_count for batch in simulated.coordinator_log),
    }
