"""Settings of clients: refused with the client's own rule, or accepted with the guarantees that models show."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_eos_checks.cli import main
from kafka_eos_checks.models.findings import read_findings
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.testing.settings_command import (
    CONSUMER,
    PRODUCER,
    STREAMS,
    STREAMS_WITHOUT_TRANSACTIONS,
    judge,
)


def models(client: str, given: Mapping[str, str]) -> list[str]:
    judged = judge(client, given)
    assert judged.refused is None
    return [guarantee.model for guarantee in judged.guarantees]


@pytest.mark.parametrize("guarantee", [*PRODUCER, *CONSUMER, *STREAMS, *STREAMS_WITHOUT_TRANSACTIONS])
def test_a_guarantee_holds_in_its_model_and_a_lack_of_one_is_violated_there(guarantee) -> None:
    assert (not Registry().get(guarantee.model).expect.violates) is guarantee.holds


def test_a_guarantee_that_kafka_as_it_ships_breaks_names_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    known = {finding.id for finding in read_findings()}
    for guarantee in (*PRODUCER, *CONSUMER, *STREAMS, *STREAMS_WITHOUT_TRANSACTIONS):
        assert set(guarantee.findings) <= known
        assert guarantee.holds or not guarantee.findings
    assert main(["settings", "acks=all"]) == 0
    told = capsys.readouterr().out
    assert "Kafka 4.3 as it ships breaks this: kafka-eos ledger findings retry-refused-after-restart" in told


@pytest.mark.parametrize(
    ("client", "given", "expected"),
    [
        ("java-producer", {}, ["IdempotentProducer", "ResendAfterRestart"]),
        ("librdkafka-producer", {}, ["RefinesAtLeastOnce", "LostAcknowledgement", "ResendAfterRestart"]),
        ("java-producer", {"acks": "0"}, ["AtMostOnceIsNotAtLeastOnce", "ResendAfterRestart"]),
        ("java-producer", {"acks": "1"}, ["AcksOne", "LostAcknowledgement", "ResendAfterRestart"]),
        ("java-producer", {"acks": "1", "retries": "0"}, ["AcksOne", "ResendAfterRestart"]),
        ("java-producer", {"transactional.id": "orders"}, ["IdempotentProducer", "Transactions"]),
        ("librdkafka-producer", {"transactional.id": "orders"}, ["IdempotentProducer", "Transactions"]),
        ("java-consumer", {"group.id": "g"}, ["ReadUncommitted", "CommitAfterProcessingTwice"]),
        ("librdkafka-consumer", {"group.id": "g", "enable.auto.commit": "false"}, ["ReadCommitted"]),
        ("streams", {"processing.guarantee": "exactly_once_v2"}, ["ConsumeTransformProduce"]),
        ("streams", {"commit.interval.ms": "30000"}, ["CommitAfterProcessingTwice"]),
        ("streams", {"processing.guarantee": "exactly_once"}, ["CommitAfterProcessingTwice"]),  # gone with Kafka 4.0
    ],
)
def test_settings_give_the_guarantees_of_the_models_with_the_same_settings(client, given, expected) -> None:
    assert models(client, given) == expected


@pytest.mark.parametrize(
    ("words", "client", "then"),
    [
        (["acks=all"], "java-producer", "next: kafka-eos check models ResendAfterRestart"),
        (["group.id=g", "enable.auto.commit=false"], "java-consumer", "next: kafka-eos check models ReadUncommitted"),
        (["application.id=a"], "streams", "next: kafka-eos check models CommitAfterProcessingTwice"),
        (["transactional.id=t"], "java-producer", "next: kafka-eos check models IdempotentProducer"),
    ],
)
def test_without_a_client_the_names_of_the_settings_say_whose_they_are(
    words: list[str], client: str, then: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["settings", *words]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"accepted by {client}"
    assert told[-1] == then


def test_settings_of_a_producer_and_of_a_consumer_need_a_client(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "acks=all", "group.id=g"]) == 2
    assert "acks is a producer's setting, group.id a consumer's; give --client" in capsys.readouterr().err
    assert main(["settings", "--client", "java-producer", "acks=all", "group.id=g"]) == 0
    assert "no rule about: group.id" in capsys.readouterr().out


def test_a_refused_setting_is_told_with_the_clients_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "acks=1", "transactional.id=orders"]) == 1
    told = capsys.readouterr().out
    assert "a transactional producer is idempotent" in told
    assert told.startswith("refused by java-producer: ")
    assert "\nnext: correct " in told
    assert "ProducerConfig.postProcessAndValidateIdempotenceConfigs" in told


def test_a_commit_interval_beyond_the_transaction_timeout_is_refused_with_transactions_only() -> None:
    given = {"commit.interval.ms": "30000", "processing.guarantee": "exactly_once_v2"}
    assert judge("streams", given).refused is not None
    assert judge("streams", {**given, "processing.guarantee": "at_least_once"}).refused is None


def test_a_properties_file_is_read_and_settings_without_a_rule_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("# ours\n\nbootstrap.servers = a:9092,b:9092\nenable.idempotence: true\n")
    assert main(["settings", str(file), "acks=all", "--json", "-"]) == 0
    told = capsys.readouterr()
    assert "no rule about: bootstrap.servers" in told.err
    answer = json.loads(told.out)
    assert answer["accepted"]
    assert [row["model"] for row in answer["guarantees"]] == ["IdempotentProducer", "ResendAfterRestart"]
    assert answer["ignored"] == ["bootstrap.servers"]


def test_the_guarantee_of_kafka_streams_is_a_setting_of_no_other_client() -> None:
    given = {"processing.guarantee": "exactly_once_v2", "num.stream.threads": "4"}
    assert judge("streams", given).ignored == ("num.stream.threads",)
    assert judge("java-producer", given).ignored == ("num.stream.threads", "processing.guarantee")


def test_a_later_setting_wins_and_a_file_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "acks=1"
    file.write_text("acks=1\nenable.idempotence=false\n")
    for words, shown in ((["acks=all"], True), ([str(file)], False), (["acks=0", str(file), "acks=all"], True)):
        assert main(["settings", *words, "enable.idempotence=false"]) == 0
        assert ("RefinesAtLeastOnce" in capsys.readouterr().out) is shown
    assert main(["settings", "acks=all", str(file)]) == 0
    assert "AcksOne" in capsys.readouterr().out


def test_a_line_that_is_no_setting_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("acks=all\nacks all\n")
    assert main(["settings", str(file)]) == 2
    assert f"{file}, line 2: 'acks all' is not name=value" in capsys.readouterr().err
