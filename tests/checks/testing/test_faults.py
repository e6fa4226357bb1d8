"""Single faults against librdkafka: with any fault of a request, every input takes effect once, by the spec."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kafka_eos_checks.brokers.brokers import java_command
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.testing.in_process_broker import DATA, HISTORY, InProcessBroker

confluent = pytest.importorskip("confluent_kafka", reason="the clients are in the extra `record`")
SECONDS = 20.0
ROWS = 30
TRANSACTIONAL = ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", "EndTxn")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "broker", brokers=2) as running:
        for topic in ("in", "out"):
            running.create_topic(topic, partitions=2)
        producer = confluent.Producer({"bootstrap.servers": running.bootstrap_servers, "enable.idempotence": True})
        for row in range(ROWS):
            producer.produce("in", str(row).encode(), partition=row % 2)
        assert producer.flush(SECONDS) == 0
        yield running


def copy(broker: InProcessBroker) -> None:
    """Copy "in" to "out", some messages per transaction; the messages of an aborted transaction are read again."""
    common = {"bootstrap.servers": broker.bootstrap_servers}
    reading = {"group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    producer = confluent.Producer({**common, "transactional.id": "x"})
    producer.init_transactions(SECONDS)
    with closing(confluent.Consumer({**common, **reading})) as reader:
        reader.subscribe(["in"])
        copied: set[tuple[int, int]] = set()
        while len(copied) < ROWS:
            messages = [m for m in reader.consume(5, 1) if not m.error()]
            if messages and transaction(producer, reader, messages):
                copied.update((m.partition(), m.offset()) for m in messages)


def transaction(producer: Any, reader: Any, messages: list[Any]) -> bool:
    """Copy some messages in a transaction; return whether it was committed."""
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce("out", message.value(), partition=message.partition())
        offsets = reader.position(reader.assignment())
        producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS)
    except confluent.KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(SECONDS)
        for message in reversed(messages):
            reader.seek(confluent.TopicPartition("in", message.partition(), message.offset()))
        return False
    return True


@pytest.mark.parametrize(
    ("do", "options"),
    [
        ("drop-answer", {}),
        ("close", {}),
        ("delay", {"seconds": 0.2}),
        ("repeat", {"seconds": 0.1}),
        ("overtake", {"seconds": 0.2}),
        ("move-coordinator", {}),
        ("move-leader", {}),
    ],
)
def test_each_fault_at_each_step_leaves_the_outcome_exact(
    broker: InProcessBroker, do: str, options: dict[str, Any]
) -> None:
    named = {"move-leader": ("AddPartitionsToTxn", "Produce")}
    tallies = [
        broker.fault(do, api=api, transactional_id="x", nth=place, **options)
        for place, api in enumerate(named.get(do, TRANSACTIONAL), start=1)
    ]
    copy(broker)
    assert [tally.fired for tally in tallies] == [1] * len(tallies)
    broker.assert_exactly_once(inputs="in", outputs="out", group="g")


@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
def test_kafkas_own_copier_is_exact_under_faults(broker: InProcessBroker) -> None:
    faults: tuple[tuple[str, dict[str, float]], ...] = (
        ("drop-answer", {}),
        ("repeat", {"seconds": 0.1}),
        ("overtake", {"seconds": 0.3}),
    )
    tallies = [
        broker.fault(do, api=api, transactional_id="copier", nth=place + 3 * number, **options)
        for place, api in enumerate(("Produce", "TxnOffsetCommit", "EndTxn"), start=1)
        for number, (do, options) in enumerate(faults)
    ]
    tallies.append(broker.fault("kill-broker", api="EndTxn", nth=8, when="after", seconds=0.5))
    command = java_command(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", broker.bootstrap_servers, "--input-topic", "in", "--input-partition", "0"),
        *("--output-topic", "out", "--max-messages", str(ROWS), "--consumer-group", "g"),
        *(
            "--transaction-size",
            "2",
            "--transactional-id",
            "copier",
            "--enable-random-aborts",
            "--group-mode",
            "--use-group-metadata",
        ),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [tally.fired for tally in tallies] == [1] * 10
    broker.assert_exactly_once(inputs="in", outputs="out", group="g")


@pytest.mark.tlc
@pytest.mark.thorough
def test_tlc_also_accepts_a_run_under_faults_as_a_behaviour_of_the_spec(
    broker: InProcessBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.fault("drop-answer", api="EndTxn", nth=1)
    broker.fault("kill-broker", api="EndTxn", nth=3, when="after", seconds=0.3)
    copy(broker)
    told = [str(broker.folder / DATA), str(broker.folder / HISTORY)]
    # The history's transactional partitions are judged by their logs.
    assert main(["check", "traces", *told, "--allow-unjudged", "other-batches"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("all accepted") == 3  # coordinators, leaders, partitions
    assert "coordinators of data, copy with a fault: a marker is missing rejected at event" in said


def test_a_directory_without_transactions_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with InProcessBroker(tmp_path / "broker"):
        pass
    assert main(["check", "traces", str(tmp_path / "broker" / DATA)]) == 2
    assert "nothing to replay; give a directory with transactions" in capsys.readouterr().err
    assert main(["check", "traces", str(tmp_path / "broker" / HISTORY)]) == 2
    assert "or a history with idempotent batches outside of transactions" in capsys.readouterr().err
