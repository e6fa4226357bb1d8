"""The rule book has an entry for every rule, which says what to do about a finding."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.audit import _copied
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.jepsen.anomalies import ANOMALIES
from kafka_eos_checks.audit.places import place
from kafka_eos_checks.audit.rules.applications import NOT_PROCESSED, OFFSET_ALONE, OUTPUT_ALONE, SKIPPED, TWICE
from kafka_eos_checks.audit.rules.beside import ABORTED_INDEX, BESIDE_RULES, REPLICAS
from kafka_eos_checks.audit.rules.coordinator import COORDINATOR_RULES
from kafka_eos_checks.audit.rules.decided import AS_DECIDED, ENDED, NOT_BY_HAND, TAKES_NOTHING
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES, LOST
from kafka_eos_checks.audit.rules.log import DUPLICATE, GAP, LOG_RULES
from kafka_eos_checks.audit.rules.offsets import BEYOND, OFFSET_RULES
from kafka_eos_checks.audit.rules.rule_book import READABLE, Place, most_urgent_first, rule_of
from kafka_eos_checks.audit.rules.transactions.names import (
    HANGING,
    NO_TRANSACTION,
    OLD_COORDINATOR,
    OUT_OF_TURN,
    TORN,
    TRANSACTION_RULES,
    WITHOUT_MARKER,
)
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.testing.exactly_once import _by_rule
from kafka_eos_checks.watch.advice import Tools

RULES = [
    *(READABLE, *LOG_RULES, *COORDINATOR_RULES, *TRANSACTION_RULES, *OFFSET_RULES, *BESIDE_RULES, *HISTORY_RULES),
    *ANOMALIES,
]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_says_what_a_finding_means_and_what_to_do(rule: str) -> None:
    finding = Finding(rule=rule, topic="orders", partition=3, offset=57, file="0.log", producer_id=7)
    lines = rule_of(rule).advice(finding)
    names = ["means", "ends by itself", "restart", "next"]
    assert [line.partition(":")[0] for line in lines][:4] == names
    drawn = rule_of(rule).advice(finding, drawn=True)
    assert not any("kafka-eos explain" in line for line in drawn)
    assert not {"{", "}"} & set("".join(lines))


def test_the_broker_to_restart_is_named_and_a_command_on_an_archive_unpacks_it_first() -> None:
    finding = Finding(rule=ABORTED_INDEX, topic="orders", partition=3, offset=57, broker="2")
    place = Place(broker="broker 2", unpack="tar -xJf a.tar.xz && ", directory="brokers/2/")
    restart, then = rule_of(ABORTED_INDEX).advice(finding, place)[2:4]
    assert restart == "restart: broker 2 as the next line says, then each other broker with such a finding; no other"
    assert "stop broker 2, remove *.index and *.txnindex in its orders-3 and in each other partition of it" in then
    assert then.index("stop the transactional producers") < then.index("stop broker 2"), "else it happens again"
    assert "Not where the rule `readable` has found a corrupt region" in then, "the broker cuts the segment there"
    lines = rule_of(DUPLICATE).advice(finding, place)
    assert lines[2] == "restart: no broker needs it"
    assert lines[3].startswith("next: tar -xJf a.tar.xz && kafka-dump-log --deep-iteration --files brokers/2/orders-3/")


def test_an_abort_by_hand_is_the_next_step_only_where_it_takes_nothing_away() -> None:
    finding = Finding(rule=HANGING, topic="orders", partition=3, offset=57, file="0.log", evidence="open")
    abort = Tools().abort("orders", 3, 57)
    assert rule_of(HANGING).advice(finding)[3] == f"next: first see below what to decide; then {abort}"
    for safe in (AS_DECIDED, TAKES_NOTHING):
        told = rule_of(HANGING).advice(replace(finding, evidence=f"open; {safe}"))
        assert told[3] == f"next: {abort}"
        assert told[4].startswith("decide: nothing: ")
    [unjudged] = rule_of(HANGING).advice(replace(finding, kind=Kind.NOT_JUDGED))
    assert unjudged.index("ask its application") < unjudged.index(abort)
    cut = replace(finding, kind=Kind.NOT_JUDGED, evidence="the coordinator has 'a' EMPTY, but orders-3 lacks its end")
    [copied_again] = rule_of(HANGING).advice(cut)
    assert copied_again.startswith("next: copy the log that lacks its end again, ")
    assert abort not in copied_again


def test_the_command_that_sets_a_group_back_executes_and_a_way_without_reading_inputs_again_comes_first() -> None:
    finding = Finding(rule=BEYOND, topic="__consumer_offsets", partition=3, offset=57, file="0.log")
    [decide] = [line for line in rule_of(BEYOND).advice(finding) if line.startswith("decide: ")]
    assert decide.endswith("--reset-offsets --topic=TOPIC:PARTITION --to-offset=OFFSET --execute"), "else it only tells"
    for rule in (SKIPPED, OFFSET_ALONE):
        ends = rule_of(rule).advice(replace(finding, rule=rule))[1]
        assert ends.startswith("ends by itself: no; process it by itself, or set the group's offset back, which")


@pytest.mark.parametrize("rule", [*LOG_RULES, REPLICAS])
def test_a_fault_of_a_log_says_what_to_decide_after_a_command_without_prose(rule: str) -> None:
    finding = Finding(rule=rule, topic="orders", partition=3, offset=57, file="0.log", producer_id=7)
    then, decide = rule_of(rule).advice(finding)[3:5]
    assert then == "next: kafka-dump-log --deep-iteration --files orders-3/0.log"
    assert decide.startswith("decide: which ")
    assert ("producer 7;" in decide) == (rule != REPLICAS)
    assert "consumers" in decide
    assert decide.endswith("; delete no segment")
    without_id = rule_of(rule).advice(replace(finding, producer_id=-1))[4]
    assert "kafka-transactions" not in without_id
    assert ("its batch has no producer id" in without_id) == (rule != REPLICAS)
    first = rule_of(rule).advice(replace(finding, producer_id=0))[4]
    assert ("producer 0;" in first) == (rule != REPLICAS)


@pytest.mark.parametrize("rule", [*LOG_RULES, REPLICAS])
def test_of_a_segment_only_the_lines_around_the_batch_are_shown(rule: str) -> None:
    finding = Finding(rule=rule, topic="orders", partition=3, offset=57, file="0.log", position=4711)
    then = rule_of(rule).advice(finding)[3]
    assert then == "next: kafka-dump-log --deep-iteration --files orders-3/0.log | grep -C 20 ' position: 4711 '"


def test_the_command_on_a_table_of_headers_names_the_segment_of_its_broker() -> None:
    finding = Finding(rule=GAP, topic="orders", partition=3, offset=57, file=f"{0:020d}.headers.parquet", position=6)
    [then] = [line for line in rule_of(GAP).advice(finding, Place(directory="headers/")) if line.startswith("next")]
    assert f"--files LOG_DIR/orders-3/{0:020d}.log | grep -C 20 ' position: 6 '" in then


def test_of_a_segment_that_cannot_be_read_all_lines_are_shown() -> None:
    finding = Finding(rule=READABLE, topic="orders", partition=3, file="0.log", position=4711)
    assert rule_of(READABLE).advice(finding)[3].endswith("kafka-dump-log --deep-iteration --files orders-3/0.log")


@pytest.mark.parametrize(
    ("directory", "unpack"),
    [
        ("s3a://bucket/1", "mkdir -p t-0 && aws s3 cp s3://bucket/1/t-0/00.log t-0/ && "),
        ("gs://bucket/a b", "mkdir -p t-0 && gcloud storage cp 'gs://bucket/a b/t-0/00.log' t-0/ && "),
        ("hdfs://host:9000/1", "mkdir -p t-0 && hdfs dfs -get hdfs://host:9000/1/t-0/00.log t-0/ && "),
        ("hdfs:///1", None),
        ("abfs://box@host/1", None),
        ("/var/lib/kafka", None),
    ],
)
def test_the_file_of_a_finding_in_a_store_is_copied_before_kafkas_tools_read_it(
    directory: str, unpack: str | None
) -> None:
    finding = Finding(rule=GAP, topic="t", partition=0, offset=7, file="00.log", position=9)
    copied = _copied(finding, place(directory))
    assert copied == (None if unpack is None else (unpack, ""))
    assert _copied(replace(finding, file=""), place(directory)) is None
    if unpack is not None:
        then = rule_of(GAP).advice(finding, Place(unpack=unpack))[3]
        assert then == f"next: {unpack}kafka-dump-log --deep-iteration --files t-0/00.log | grep -C 20 ' position: 9 '"


def test_a_hanging_transaction_is_told_with_the_command_that_ends_it() -> None:
    finding = Finding(rule=HANGING, topic="orders", partition=3, offset=57)
    assert "abort --topic=orders --partition=3 --start-offset=57" in str(rule_of(HANGING).advice(finding))
    assert "diagram" in rule_of(HANGING).next_in_test(finding, Place())


def test_before_a_committed_transaction_is_aborted_by_hand_its_producer_is_stopped() -> None:
    finding = Finding(rule=HANGING, topic="orders", partition=3, offset=57, file="0.log", evidence=NOT_BY_HAND)
    then, decide = rule_of(HANGING).advice(finding)[3:5]
    assert then.startswith("next: keep its records: kafka-dump-log ")
    assert decide.startswith("decide: stop this producer first: ")
    assert decide.endswith("abort --topic=orders --partition=3 --start-offset=57")


def test_a_transaction_that_a_later_marker_ended_is_not_told_to_hang_and_has_no_command_to_abort_it() -> None:
    finding = Finding(rule=HANGING, topic="orders", partition=3, offset=57, file="0.log")
    ended = replace(finding, evidence=f"still open when data of epoch 1 came; ABORT at offset 59 {ENDED}; not known")
    means, ends, *rest = rule_of(HANGING).advice(ended)
    assert means.startswith("means: The marker of a later transaction ended this transaction")
    assert ends.startswith("ends by itself: it has ended")
    assert not any("kafka-transactions" in line for line in rest)
    assert means == list(_by_rule(Path(), [ended], []))[1].strip(), "as in a test"
    means, ends, *rest = rule_of(HANGING).advice(finding)
    assert means.startswith("means: Nobody will end this transaction.")
    assert ends == "ends by itself: no"


def test_a_test_names_the_command_that_draws_a_finding_only_if_a_history_has_an_event_of_it() -> None:
    finding = Finding(rule=LOST, topic="orders", partition=3, offset=57, run="r")
    sent = Event(run="r", order=0, process="p", action="Send", phase="ok", topic="orders", partition=3, offset=57)
    for events, drawn in (([], False), ([sent], True)):
        assert any("kafka-eos explain" in line for line in _by_rule(Path("logs"), [finding], events)) == drawn


@pytest.mark.parametrize("rule", RULES)
def test_the_next_steps_of_a_rule_with_cases_name_no_number_of_a_finding(rule: str) -> None:
    for case in rule_of(rule).cases:
        assert "{number}" not in "".join(case)
        finding = Finding(rule=rule, topic="orders", partition=3)
        told = rule_of(rule).advice(finding, Place(number=4711), drawn=True)
        assert "4711" not in "".join(told)


def test_a_marker_that_is_missing_is_neither_called_aborted_nor_for_certain_lost() -> None:
    evidence = f"transaction 0 of 't': COMPLETE_ABORT, decided at noon, and {WITHOUT_MARKER} its marker"
    finding = Finding(rule=TORN, topic="orders", partition=3, offset=57, file="0.log", evidence=evidence)
    lines = rule_of(TORN).advice(finding)
    assert lines[0].startswith("means: A transaction is complete, and a partition lacks its marker. Either ")
    assert "If no log was cut, the records are there" in lines[-1]
    assert not any("by hand" in line for line in lines), "nobody takes a marker away by hand"
    other = rule_of(TORN).advice(replace(finding, evidence="transaction 0 of 't': ABORT here, COMMIT at orders-1"))
    lone = Finding(rule=NO_TRANSACTION, topic="orders", partition=3, file="0.log", evidence=f"{OUT_OF_TURN} COMMIT")
    assert rule_of(NO_TRANSACTION).advice(lone)[0].startswith("means: The coordinator decided otherwise about the next")
    assert rule_of(NO_TRANSACTION).next_in_test(lone, Place()).endswith(" --print-data-log")
    assert other[0].startswith("means: A transaction is committed in one partition, and aborted or lost in another")
    assert "by hand" in other[-1]


@pytest.mark.parametrize(
    ("rule", "evidence"),
    [
        (SKIPPED, "group 'g' committed offset 2, and no output of it was ever written"),
        (OFFSET_ALONE, "group 'g' committed offset 2, and no output of it appears in dlq"),
    ],
)
def test_an_input_without_an_output_is_told_how_to_be_left_out_of_a_question(rule: str, evidence: str) -> None:
    finding = Finding(rule=rule, topic="in", partition=0, evidence=evidence)
    [step] = [line for line in rule_of(rule).advice(finding) if line.startswith("next: ")]
    assert step.endswith("by DeclareRecord for each record that matters")
    assert "DeclareRecord" not in rule_of(rule).next_in_test(finding, Place())
    other = replace(finding, evidence="group 'g' committed offset 2 in the transaction of its output")
    assert "DeclareRecord" not in "".join(rule_of(rule).advice(other))


def test_an_unknown_rule_has_no_entry() -> None:
    with pytest.raises(KeyError):
        rule_of("no rule")


def test_lost_and_torn_data_come_before_what_hangs_and_the_state_of_brokers_comes_last() -> None:
    rules = [OLD_COORDINATOR, HANGING, "the oracle agrees", TORN, DUPLICATE]
    verdicts = [Verdict(check="replay", name=rule, expected="", found="", ok=False) for rule in rules]
    in_order = [verdict.name for verdict in most_urgent_first(verdicts)]
    assert in_order == ["the oracle agrees", TORN, DUPLICATE, HANGING, OLD_COORDINATOR]


def test_an_output_and_an_offset_that_are_apart_come_before_what_they_lead_to() -> None:
    rules = [DUPLICATE, TWICE, SKIPPED, OUTPUT_ALONE, OFFSET_ALONE, NOT_PROCESSED, HANGING]
    verdicts = [Verdict(check="replay", name=rule, expected="", found="", ok=False) for rule in rules]
    in_order = [verdict.name for verdict in most_urgent_first(verdicts)]
    assert in_order == [DUPLICATE, OUTPUT_ALONE, OFFSET_ALONE, TWICE, SKIPPED, HANGING, NOT_PROCESSED]
