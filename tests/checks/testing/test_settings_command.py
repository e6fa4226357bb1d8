"""Settings of clients: refused with the client's own rule, or accepted with the guarantees that models show."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_eos.clients.settings import COUNTERPARTS, JAVA_CONSUMER, JAVA_PRODUCER, LIBRDKAFKA_PRODUCER
from kafka_eos_checks.cli import main
from kafka_eos_checks.models.findings import read_findings
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.testing.settings_command import (
    CONSUMER,
    PRODUCER,
    REQUIRABLE,
    STREAMS,
    judge,
    known_names,
)

from ..kept import keep_output

EOS = {"processing.guarantee": "exactly_once_v2"}


@pytest.fixture(autouse=True)
def kept(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test reads of the output is compared whole."""
    keep_output(capsys, tmp_path, monkeypatch)


def models(client: str, given: Mapping[str, str]) -> list[str]:
    judged = judge(client, given)
    assert judged.refused is None
    return [guarantee.model for guarantee in judged.guarantees]


@pytest.mark.parametrize("guarantee", [*PRODUCER, *CONSUMER, *STREAMS.values()])
def test_a_guarantee_holds_in_its_model_and_a_lack_of_one_is_violated_there(guarantee) -> None:
    assert (not Registry().get(guarantee.model).expect.violates) is guarantee.holds


def test_a_guarantee_that_kafka_as_it_ships_breaks_names_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    known = {finding.id for finding in read_findings()}
    for guarantee in (*PRODUCER, *CONSUMER, *STREAMS.values()):
        assert set(guarantee.findings) <= known
        assert guarantee.holds or not guarantee.findings
        assert bool(guarantee.cure) is not guarantee.holds
    assert main(["settings", "acks=all"]) == 0
    told = capsys.readouterr().out
    finding = (
        "it in these cases:\n     After a restart a leader remembers one batch of each producer, and refuses the retry "
        "of an earlier one. (kafka-eos ledger findings retry-refused-after-restart)\n"
    )
    assert f"(model IdempotentProducer); Kafka 4.4 and 4.3 as they ship break {finding}" in told
    assert "(model RefinesAtLeastOnce); no known finding breaks it\n" in told
    assert main(["settings", "--kafka", "4.4", "acks=all"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("accepted by java-producer of Kafka 4.4\n")
    assert f"Kafka 4.4 as it ships breaks {finding}" in told


@pytest.mark.parametrize("model", ["Transactions", "ReadCommitted", "ConsumeTransformProduce"])
def test_a_guarantee_about_transactions_names_what_a_partition_without_a_leader_does_to_it(model: str) -> None:
    assert "no-leader-no-marker" in REQUIRABLE[model].findings


@pytest.mark.parametrize(
    ("client", "given", "expected"),
    [
        ("java-producer", {}, ["RefinesAtLeastOnce", "IdempotentProducer", "ResendAfterRestart"]),
        ("librdkafka-producer", {}, ["RefinesAtLeastOnce", "LostAcknowledgement", "ResendAfterRestart"]),
        ("java-producer", {"acks": "0"}, ["AtMostOnceIsNotAtLeastOnce", "ResendAfterRestart"]),
        ("java-producer", {"acks": "1"}, ["AcksOne", "LostAcknowledgement", "ResendAfterRestart"]),
        ("java-producer", {"acks": "1", "retries": "0"}, ["AcksOne", "ResendAfterRestart"]),
        ("java-producer", {"acks": "1", "retries": "1"}, ["AcksOne", "LostAcknowledgement", "ResendAfterRestart"]),
        ("java-producer", {"transactional.id": "orders"}, ["RefinesAtLeastOnce", "IdempotentProducer", "Transactions"]),
        (
            "librdkafka-producer",
            {"transactional.id": "orders"},
            ["RefinesAtLeastOnce", "IdempotentProducer", "Transactions"],
        ),
        ("java-consumer", {"group.id": "g"}, ["HighWatermarkOnly", "ReadUncommitted", "CommitAfterProcessingTwice"]),
        ("librdkafka-consumer", {"group.id": "g", "enable.auto.commit": "false"}, ["ReadCommitted"]),
        ("streams", EOS, ["ConsumeTransformProduce"]),
        ("streams", {"commit.interval.ms": "30000"}, ["CommitAfterProcessingTwice"]),
        ("streams", {**EOS, "consumer.isolation.level": "read_uncommitted"}, ["ConsumeTransformProduce"]),
        ("streams", {**EOS, "main.consumer.isolation.level": "read_uncommitted"}, ["HighWatermarkOnly"]),
        ("streams", {**EOS, "restore.consumer.isolation.level": "read_uncommitted"}, ["RestoresUncommitted"]),
    ],
)
def test_settings_give_the_guarantees_of_the_models_with_the_same_settings(client, given, expected) -> None:
    assert models(client, given) == expected


@pytest.mark.parametrize(
    ("words", "client", "then"),
    [
        (["acks=all"], "java-producer", "next: give transactional.id"),
        (["group.id=g", "enable.auto.commit=false"], "java-consumer", "next: give isolation.level=read_committed"),
        (["max.poll.interval.ms=1", "default.api.timeout.ms=1"], "java-consumer", "next: give isolation.level"),
        (["application.id=a"], "streams", "next: give processing.guarantee=exactly_once_v2"),
        (["transactional.id=t"], "java-producer", "next: nothing to change"),
        (["message.timeout.ms=1000"], "librdkafka-producer", "next: give transactional.id"),
        (["group.id=g", "queued.min.messages=1"], "librdkafka-consumer", "next: give enable.auto.commit=false"),
        (["producer.acks=all", "state.dir=d"], "streams", "next: give processing.guarantee=exactly_once_v2"),
    ],
)
def test_without_a_client_the_names_of_the_settings_say_whose_they_are(
    words: list[str], client: str, then: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["settings", *words]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"accepted by {client}"
    assert told[-1].startswith(then)


def test_settings_of_a_producer_and_of_a_consumer_need_a_client(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "acks=all", "group.id=g"]) == 2
    assert "acks is a producer's setting, group.id a consumer's; give --client" in capsys.readouterr().err
    assert main(["settings", "message.timeout.ms=1", "max.block.ms=1"]) == 2
    assert "only librdkafka has message.timeout.ms, only Java max.block.ms; give --client" in capsys.readouterr().err
    for client in ("java-producer", "librdkafka-producer"):
        assert main(["settings", "--client", client, "acks=all", "group.id=g"]) == 0
        assert f"not used by {client}, which only logs a warning: group.id\n" in capsys.readouterr().out


def test_a_misspelt_name_is_refused_by_librdkafka_and_told_for_java(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "compression.typ=zstd", "bootstrap.servers=a:9092"]) == 0
    told = capsys.readouterr().out
    assert (
        "only logs a warning: compression.typ; did you mean compression.type?\nnot checked: bootstrap.servers\n" in told
    )
    assert main(["settings", "--client", "librdkafka-producer", "compression.typ=zstd"]) == 1
    told = capsys.readouterr().out
    assert "compression.typ: there is no such setting" in told
    assert "next: correct compression.typ; did you mean compression.type?" in told
    assert "not used by" not in told


def test_a_name_of_librdkafka_is_told_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "transactional.id=a", "max.in.flight=10"]) == 1
    assert "refused by librdkafka-producer: max.in.flight, enable.idempotence: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "model", "status"),
    [
        (["transactional.id=t"], "Transactions", 0),
        (["transactional.id=t"], "RefinesAtLeastOnce", 0),
        (["acks=all"], "Transactions", 1),
        (["acks=1"], "IdempotentProducer", 1),
        (["group.id=g"], "ReadCommitted", 1),
        (["group.id=g", "isolation.level=read_committed"], "ReadCommitted", 0),
        (["application.id=a"], "ConsumeTransformProduce", 1),
        (["application.id=a", "processing.guarantee=exactly_once_v2"], "ConsumeTransformProduce", 0),
        (["acks=1", "transactional.id=t"], "Transactions", 1),
    ],
)
def test_a_required_guarantee_that_is_not_given_ends_with_1(
    words: list[str], model: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["settings", "--require", model, *words, "--json", "-"]) == status
    told = capsys.readouterr()
    assert (f"required, and not given: {REQUIRABLE[model].words} ({model})" in told.err) is bool(status)
    assert json.loads(told.out)["missing"] == [model] * status


def test_a_refused_setting_is_told_with_the_clients_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "acks=1", "transactional.id=orders"]) == 1
    told = capsys.readouterr().out
    assert "a transactional producer is idempotent" in told
    assert told.startswith("refused by java-producer: ")
    assert "\nnext: correct " in told
    assert "ProducerConfig.postProcessAndValidateIdempotenceConfigs" in told
    judged = judge("java-producer", {"acks": "1", "transactional.id": "orders"})
    why = judged.refused
    assert why is not None
    as_json = {"settings": list(why.settings), "why": why.why, "source": why.source}
    assert (judged.to_json()["accepted"], judged.to_json()["refused"]) == (False, as_json)


def test_a_commit_interval_beyond_the_transaction_timeout_is_refused_with_transactions_only() -> None:
    given = {"commit.interval.ms": "30000", "processing.guarantee": "exactly_once_v2"}
    assert judge("streams", given).refused is not None
    assert judge("streams", {**given, "processing.guarantee": "at_least_once"}).refused is None


def test_a_properties_file_is_read_and_settings_that_are_not_checked_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("# ours\n\nbootstrap.servers = a:9092,b:9092\nenable.idempotence: true\n")
    assert main(["settings", str(file), "acks=all", "--json", "-"]) == 0
    told = capsys.readouterr()
    assert "not checked: bootstrap.servers" in told.err
    answer = json.loads(told.out)
    assert answer["accepted"]
    assert [(row["model"], row["holds"]) for row in answer["guarantees"]] == [
        ("RefinesAtLeastOnce", True),
        ("IdempotentProducer", True),
        ("ResendAfterRestart", False),
    ]
    assert answer["guarantees"][0] == {
        "holds": True,
        "words": REQUIRABLE["RefinesAtLeastOnce"].words,
        "model": "RefinesAtLeastOnce",
        "findings": [],
        "cure": None,
    }
    assert answer["ignored"] == answer["missing"] == []
    assert answer["unchecked"] == ["bootstrap.servers"]


def test_kafka_streams_uses_what_the_clients_use_that_it_makes() -> None:
    given = {**EOS, "acks": "all", "main.consumer.max.poll.records": "1", "topic.retention.ms": "1", "state.dirr": "d"}
    judged = judge("streams", {**given, "producer.key.serializer": "S", "state.dir": "d", "producer.group.id": "g"})
    assert judged.ignored == ("producer.group.id", "state.dirr")
    assert judged.unchecked == ("producer.key.serializer", "state.dir", "topic.retention.ms")
    assert known_names("streams") >= {"application.id", "linger.ms", "isolation.level"}
    assert judge("java-producer", given).ignored == (
        "main.consumer.max.poll.records",
        "processing.guarantee",
        "state.dirr",
        "topic.retention.ms",
    )


@pytest.mark.parametrize(
    "given",
    [
        {"processing.guarantee": "exactly_once"},  # gone with Kafka 4.0
        {"processing.guarantee": "exactly_once_beta"},
        {**EOS, "acks": "1"},
        {**EOS, "producer.acks": "1"},
    ],
)
def test_kafka_streams_refuses_what_would_not_be_exactly_once(given: Mapping[str, str]) -> None:
    assert judge("streams", given).refused is not None


def test_a_later_setting_wins_and_a_file_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "acks=1"
    file.write_text("acks=1\nenable.idempotence=false\n")
    for words, shown in ((["acks=all"], True), ([str(file)], False), (["acks=0", str(file), "acks=all"], True)):
        assert main(["settings", *words, "enable.idempotence=false"]) == 0
        assert ("RefinesAtLeastOnce" in capsys.readouterr().out) is shown
    assert main(["settings", "acks=all", str(file)]) == 0
    assert "AcksOne" in capsys.readouterr().out


def test_a_value_that_is_too_long_for_the_name_of_a_file_is_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = ",".join(f"broker-{number}.example.com:9092" for number in range(12))
    assert main(["settings", "acks=all", f"bootstrap.servers={brokers}"]) == 0
    assert "accepted by java-producer" in capsys.readouterr().out


def test_a_line_that_is_no_setting_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("acks=all\nacks\n")
    assert main(["settings", str(file)]) == 2
    assert f"{file}, line 2: 'acks' is not name=value" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("client", "given", "said"),
    [
        ("java-producer", {"transaction.timeout.ms": "0"}, "every broker refuses transaction.timeout.ms=0, and"),
        ("java-producer", {"transaction.timeout.ms": "1"}, ""),
        ("java-producer", {"transaction.timeout.ms": "900000"}, ""),
        (
            "java-producer",
            {"transaction.timeout.ms": "900001"},
            "a broker refuses transaction.timeout.ms=900001 unless",
        ),
        (
            "librdkafka-producer",
            {"transaction.timeout.ms": "900001"},
            "a broker refuses transaction.timeout.ms=900001",
        ),
    ],
)
def test_a_transaction_timeout_that_brokers_refuse_is_told(
    client: str, given: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(client, given).by_brokers == "", "without transactions nobody is told of it"
    in_transactions = given | {"transactional.id": "a"}
    told = judge(client, in_transactions)
    assert told.by_brokers[: len(said)] == said
    assert bool(told.by_brokers) is bool(said)
    assert told.to_json()["refused_by_brokers"] == (told.by_brokers or None)
    assert ("Transactions" in models(client, in_transactions)) is (given["transaction.timeout.ms"] != "0")
    words = [f"{name}={value}" for name, value in in_transactions.items()]
    main(["settings", "--client", client, *words])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"accepted by {client}"
    assert (lines[1] == f"NO   {told.by_brokers}") is bool(said)


def test_a_transaction_timeout_of_streams_that_brokers_refuse_is_told() -> None:
    longer = EOS | {"producer.transaction.timeout.ms": "1000000"}
    for given in (EOS, longer | {"processing.guarantee": "at_least_once"}):
        assert judge("streams", given).by_brokers == ""
    assert judge("streams", longer).by_brokers.startswith("a broker refuses transaction.timeout.ms=1000000 unless")


def test_where_two_releases_differ_about_settings_each_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    static = ["processing.guarantee=exactly_once_v2", "group.protocol=streams", "group.instance.id=a"]
    assert main(["settings", *static, "--json", "-"]) == 1
    told = capsys.readouterr()
    assert "refused by streams of Kafka 4.3: group.instance.id, group.protocol" in told.err
    assert "\naccepted by streams of Kafka 4.4\n" in told.err
    answer = json.loads(told.out)
    assert (answer["release"], answer["accepted"]) == ("4.3", False)
    assert [(row["release"], row["accepted"]) for row in answer["releases"]] == [("4.3", False), ("4.4", True)]
    assert main(["settings", *static, "--kafka", "4.4"]) == 0
    assert capsys.readouterr().out.startswith("accepted by streams of Kafka 4.4\n")


def test_a_setting_of_the_newest_release_is_not_used_by_the_one_before(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "partitioner.rack.aware=true"]) == 1
    told = capsys.readouterr().out
    assert "accepted by java-producer of Kafka 4.3" in told
    assert "not used by java-producer of Kafka 4.3, which only logs a warning: partitioner.rack.aware\n" in told, (
        "it is spelt right"
    )
    assert "refused by java-producer of Kafka 4.4: partitioner.rack.aware, client.rack" in told
    assert main(["settings", "acks=1", "--json", "-"]) == 0
    told_of_both = capsys.readouterr()
    assert told_of_both.err.startswith("accepted by java-producer\n")
    assert [row["release"] for row in json.loads(told_of_both.out)["releases"]] == [None]
    assert main(["settings", "--require", "Transactions", "partitioner.rack.aware=true", "--json", "-"]) == 1
    deciding = json.loads(capsys.readouterr().out)
    assert (deciding["release"], deciding["accepted"], deciding["missing"]) == ("4.3", True, ["Transactions"])


def test_a_release_of_kafka_is_refused_for_librdkafka(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--client", "librdkafka-producer", "--kafka", "4.4", "acks=all"]) == 2
    assert "librdkafka-producer is no client of Kafka's own; leave --kafka out" in capsys.readouterr().err


SPRING = "spring.kafka.producer."


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.properties", f"{SPRING}acks=1\n", f"; found: {SPRING}acks; if acks is meant, give it by this name\n"),
        ("a.properties", f"{SPRING}batch-size=1\n", "; if batch.size is meant"),
        ("a.properties", f"{SPRING}properties.linger.ms=1\n", "; if linger.ms is meant"),
        ("a.properties", "spring.kafka.consumer.isolation-level=x\n", "; if isolation.level is meant"),
        ("a.properties", f"{SPRING}acks=1\n", "with . for -) or spring.kafka.producer.properties. is the client's"),
        ("a.properties", "ack=1\n", "; give the client's own names; found: ack; did you mean acks?\n"),
        ("a.properties", "a1=\na2=\na3=\na4=\na5=\n", "found: a1, a2, a3, and 2 more\n"),
        ("a.properties", "# nothing\n", "a.properties has no settings; give a properties file of java-producer"),
        *((f"a.{kind}", "acks: 1\n", f"a.{kind}: not read; give") for kind in ("yaml", "toml", "xml")),
        ("a.yml", "acks: 1\n", "a.yml: not read; give a properties file, or the client's own names as NAME=VALUE"),
        ("a.json", '{"spring.kafka.producer.acks": 1}', "; if acks is meant, give it by this name"),
        ("a.json", '["acks"]', "a.json: no JSON object; give one of names and values"),
        ("a.json", '{"acks": {"is": 1}}', "a.json: acks is neither text nor number nor truth value"),
        ("a.json", "acks=1\n", "a.json: Expecting value: line 1 column 1 (char 0); give a JSON object of settings\n"),
        ("a.json", "[" * 100_000, "a.json: maximum recursion depth exceeded"),
        ("a.properties", f"{SPRING}acks=1\nretries=3\n", "a.properties has names of Spring, which the client does not"),
    ],
)
def test_a_file_without_a_setting_of_the_client_cannot_be_used(
    name: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(text)
    for others in ([], ["acks=all"]):
        assert main(["settings", "--require", "IdempotentProducer", str(file), *others]) == 2
        told = capsys.readouterr()
        assert said in told.err
        assert not told.out


def test_an_object_of_settings_is_read_as_the_clients_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "producer.json"
    file.write_text(
        '{"transactional.id": "x", "enable.idempotence": false, "linger.ms": 5, "queue.buffering.max.ms": "5"}'
    )
    assert main(["settings", str(file)]) == 1
    assert "refused by librdkafka-producer: transactional.id, enable.idempotence: " in capsys.readouterr().out
    assert main(["settings", str(tmp_path / "consumer.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_single_settings_of_which_the_client_knows_none_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", f"{SPRING}acks=1", "a=b"]) == 2
    assert "the call has no setting that java-producer knows, and was not judged" in capsys.readouterr().err
    assert main(["settings", "--client", "java-consumer", "acks=all"]) == 2
    assert "the call has no setting that java-consumer knows" in capsys.readouterr().err
    assert main(["settings", "a=b", "acks=1"]) == 0
    assert main(["settings"]) == 2
    assert "no settings; give FILE or NAME=VALUE, or --client alone" in capsys.readouterr().err
    assert main(["settings", "--client", "java-producer"]) == 0, "these are the defaults"
    for known in ("topic.retention.ms=1", "main.consumer.max.poll.records=1", "application.id=a"):
        assert main(["settings", "--client", "streams", known]) == 0


def test_a_prefixed_name_among_others_is_told_before_the_guarantees(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["own.enable-idempotence=false", "linger.ms=1", "other=1"]
    assert main(["settings", "--require", "IdempotentProducer", *words]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[1] == (
        "WARN own.enable-idempotence is not read: java-producer has no such setting; if enable.idempotence is "
        "meant, give it by this name"
    )
    assert told.count("enable-idempotence") == 1
    assert "which only logs a warning: other\n" in told
    assert main(["settings", "--client", "librdkafka-producer", f"{SPRING}acks=1"]) == 1
    assert f"next: correct {SPRING}acks; if acks is meant, give it by this name; --client" in capsys.readouterr().out


@pytest.mark.parametrize("required", ["Transactions", "IdempotentProducer"])
@pytest.mark.parametrize(("timeout", "status"), [("900000", 0), ("3600000", 1)])
def test_a_producer_that_brokers_refuse_gives_nothing_that_is_required(
    required: str, timeout: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["transactional.id=x", f"transaction.timeout.ms={timeout}"]
    assert main(["settings", "--require", required, *words]) == status
    told = capsys.readouterr().out
    assert (f" ({required}); brokers refuse its transactions\n" in told) is bool(status)
    assert main(["settings", *words]) == 0, "the client accepts them"
    allowed = ["--transaction-max-timeout-ms", "3600000"]
    capsys.readouterr()
    assert main(["settings", "--require", required, *words, *allowed]) == 0
    assert "\nNO " not in capsys.readouterr().out
    assert main(["settings", *words, "--transaction-max-timeout-ms", "1000"]) == 0
    said = f"\nNO   brokers with transaction.max.timeout.ms=1000 refuse transaction.timeout.ms={timeout}: initTrans"
    assert said in capsys.readouterr().out


def test_streams_whose_producer_brokers_refuse_gives_nothing_that_is_required() -> None:
    words = ["processing.guarantee=exactly_once_v2", "producer.transaction.timeout.ms=3600000"]
    assert main(["settings", "--require", "ConsumeTransformProduce", *words]) == 1


def test_a_consumer_that_reads_uncommitted_is_warned(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["group.id=payd", "enable.auto.commit=false"]
    danger = "isolation.level is not read_committed: records of aborted and of open transactions are processed"
    assert main(["settings", *words]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == f"NO   {danger} (model HighWatermarkOnly shows it)"
    assert told[2].startswith("yes  the reader is given every record up to the high watermark, ")
    assert len(told) == 4, "a lack has no finding, and what follows is told"
    assert main(["settings", *words, "isolation.level=read_committed"]) == 0
    assert danger not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["acks=1"], ["give acks=all", "give enable.idempotence=true, with acks=all", "give transactional.id"]),
        (["group.id=g"], ["give isolation.level=read_committed", "give enable.auto.commit=false"]),
        (["transactional.id=a"], ["nothing to change in these settings; `kafka-eos ledger findings` says"]),
        (["transactional.id=a", "transaction.timeout.ms=0"], ["give another transaction.timeout.ms, or raise"]),
        ([*(f"{name}={word}" for name, word in EOS.items())], ["nothing to change in these settings"]),
        (["acks=1", "transactional.id=a"], ["correct transactional.id"]),
    ],
)
def test_the_next_step_is_a_setting_for_each_lack(
    words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["settings", *words])
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    assert [line.startswith(f"next: {start}") for line, start in zip(told, expected, strict=True)] == [True] * len(told)


def test_a_finding_that_concerns_some_clients_only_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    main(["settings", "transactional.id=a"])
    told = capsys.readouterr().out
    assert "A delayed duplicate of EndTxn ends the next transaction. Concerns transaction version 1: Kafka 3.9" in told
    assert "never gets its marker there. (kafka-eos ledger findings no-leader-no-marker)\n" in told


@pytest.mark.parametrize(
    ("client", "given", "counterpart"),
    [
        ("java-producer", "message.timeout.ms", "delivery.timeout.ms"),
        ("java-producer", "queue.buffering.max.kbytes", "buffer.memory"),
        ("java-producer", "message.max.bytes", "max.request.size"),
        ("java-producer", "request.required.acks", "acks"),
        ("java-consumer", "fetch.wait.max.ms", "fetch.max.wait.ms"),
        ("librdkafka-producer", "buffer.memory", "queue.buffering.max.kbytes"),
        ("librdkafka-consumer", "receive.buffer.bytes", "socket.receive.buffer.bytes"),
    ],
)
def test_a_name_of_the_other_library_is_told_with_its_counterpart(
    client: str, given: str, counterpart: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = client.startswith("librdkafka")
    words = f"next: correct {given}" if refused else f"WARN {given} is not read: {client} has no such setting"
    assert main(["settings", "--client", client, f"{given}=5000", "client.id=a"]) == refused
    assert f"\n{words}; its counterpart here is {counterpart}" in capsys.readouterr().out


def test_a_counterpart_is_a_name_of_java_for_one_that_only_librdkafka_has() -> None:
    of_java = {*JAVA_PRODUCER.kinds, *JAVA_CONSUMER.kinds}
    for name, java in COUNTERPARTS.items():
        assert LIBRDKAFKA_PRODUCER.knows(name)
        assert name not in of_java
        assert java in of_java or LIBRDKAFKA_PRODUCER.aliases[name] == java
        assert LIBRDKAFKA_PRODUCER.real(name) == java or not LIBRDKAFKA_PRODUCER.knows(java)


@pytest.mark.parametrize(
    ("required", "words", "said"),
    [
        (
            "ConsumeTransformProduce",
            ["transactional.id=a"],
            "java-producer cannot give it, only streams; of a producer and a consumer require Transactions and "
            "ReadCommitted, in a call for each, and send offsets with the transaction",
        ),
        ("ReadCommitted", ["acks=1"], "java-producer cannot give it, only java-consumer or librdkafka-consumer\n"),
        ("Transactions", ["group.id=a"], "java-consumer cannot give it, only java-producer or librdkafka-producer\n"),
        ("Transactions", ["application.id=a"], "streams cannot give it, only java-producer or librdkafka-producer\n"),
        ("ConsumeTransformProduce", ["application.id=a"], ""),
        ("ReadCommitted", ["group.id=a"], ""),
    ],
)
def test_a_required_guarantee_of_another_client_says_of_which(
    required: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["settings", "--require", required, *words]) == 1
    last = capsys.readouterr().out.partition("required, and not given: ")[2]
    assert last.startswith(f"{REQUIRABLE[required].words} ({required})" + (f"; {said}" if said else "\n"))


def test_files_of_a_producer_and_of_a_consumer_are_judged_in_two_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    producer, consumer = tmp_path / "producer.properties", tmp_path / "consumer.properties"
    producer.write_text("transactional.id=a\n")
    consumer.write_text("group.id=g\nisolation.level=read_committed\n")
    assert main(["settings", "--require", "ConsumeTransformProduce", str(producer), str(consumer)]) == 2
    assert (
        "; give --client java-producer with the producer's settings, and --client java-consumer with the consumer's in "
        "another call\n"
    ) in capsys.readouterr().err
    assert main(["settings", "--client", "java-producer", "--require", "Transactions", str(producer)]) == 0
    assert main(["settings", "--client", "java-consumer", "--require", "ReadCommitted", str(consumer)]) == 0


@pytest.mark.parametrize(("word", "status"), [("murmur2_random", 0), ("random2", 1), ("RANDOM", 1), ("", 1)])
def test_a_partitioner_of_librdkafka_is_one_of_its_words(
    word: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["settings", "--client", "librdkafka-producer", f"partitioner={word}"]) == status
    told = capsys.readouterr().out
    refused = f"partitioner: {word!r} is none of consistent, consistent_random, fnv1a, fnv1a_random, murmur2, "
    assert (refused in told) is bool(status)
    assert "not checked" not in told


def test_an_empty_file_of_librdkafka_cannot_be_used_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("# nothing\n")
    assert main(["settings", "--client", "librdkafka-producer", str(file)]) == 2
    assert f"{file} has no settings; give a properties file of librdkafka-producer" in capsys.readouterr().err
