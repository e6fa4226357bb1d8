"""The rule book has an entry for every rule, which says what to do about a finding."""

import pytest

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.jepsen.anomalies import ANOMALIES
from kafka_eos_checks.audit.rules.beside import ABORTED_INDEX, BESIDE_RULES, REPLICAS
from kafka_eos_checks.audit.rules.coordinator import COORDINATOR_RULES
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES
from kafka_eos_checks.audit.rules.log import DUPLICATE, LOG_RULES
from kafka_eos_checks.audit.rules.offsets import OFFSET_RULES
from kafka_eos_checks.audit.rules.rule_book import READABLE, Place, most_urgent_first, rule_of
from kafka_eos_checks.audit.rules.transactions import HANGING, OLD_COORDINATOR, TORN, TRANSACTION_RULES
from kafka_eos_checks.kit.verdict import Verdict

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
    assert restart.startswith("restart: broker 2, ")
    assert "stop broker 2, remove *.index and *.txnindex in its orders-3, " in then
    lines = rule_of(DUPLICATE).advice(finding, place)
    assert lines[2] == "restart: no broker needs it"
    assert lines[3].startswith("next: tar -xJf a.tar.xz && kafka-dump-log --deep-iteration --files brokers/2/orders-3/")


@pytest.mark.parametrize("rule", [*LOG_RULES, REPLICAS])
def test_a_fault_of_a_log_says_what_to_decide_after_a_command_without_prose(rule: str) -> None:
    finding = Finding(rule=rule, topic="orders", partition=3, offset=57, file="0.log", producer_id=7)
    then, decide = rule_of(rule).advice(finding)[3:5]
    assert then == "next: kafka-dump-log --deep-iteration --files orders-3/0.log"
    assert decide.startswith("decide: which ")
    assert ("producer 7;" in decide) == (rule != REPLICAS)
    assert "consumers" in decide
    assert decide.endswith("; delete no segment")


def test_a_hanging_transaction_is_told_with_the_command_that_ends_it() -> None:
    finding = Finding(rule=HANGING, topic="orders", partition=3, offset=57)
    assert "abort --topic orders --partition 3 --start-offset 57" in str(rule_of(HANGING).advice(finding))
    assert "diagram" in rule_of(HANGING).next_in_test(finding, Place())


def test_an_unknown_rule_has_no_entry() -> None:
    with pytest.raises(KeyError):
        rule_of("no rule")


def test_lost_and_torn_data_come_before_what_hangs_and_the_state_of_brokers_comes_last() -> None:
    rules = [OLD_COORDINATOR, HANGING, "the oracle agrees", TORN, DUPLICATE]
    verdicts = [Verdict(check="replay", name=rule, expected="", found="", ok=False) for rule in rules]
    in_order = [verdict.name for verdict in most_urgent_first(verdicts)]
    assert in_order == ["the oracle agrees", TORN, DUPLICATE, HANGING, OLD_COORDINATOR]
