"""The facts on the pages of an operator follow from the sources, and change with them."""

import shutil
from pathlib import Path

import pytest

from kafka_eos.machines import machine as machines
from kafka_eos_checks.book.errors import errors_page
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.modules import header, kafka_names, operator_entry
from kafka_eos_checks.book.sources import Book, Kind, labelled
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.matrix.impact import Sources


@pytest.fixture(scope="module")
def book() -> Book:
    return Book()


def test_every_action_of_every_machine_has_an_entry_in_both_languages(book: Book) -> None:
    operators = {(each.module, each.name): each for module in book.modules for each in book.operators(module)}
    known = {name for _, name in book.actions}
    for model in {entry.module: entry for entry in book.registry.models.values() if entry.graph}.values():
        for action in machines.actions(model.machine_class()):
            assert action.name in known
    for place in book.actions:
        operator = operators[place]
        assert operator.kind is Kind.ACTION
        assert operator.tla.text.startswith(operator.name)
        if place[0] not in {"AtomicTransactions", "ExactlyOnce", "Delivery"} and not book.modules[place[0]]:
            assert operator.python is not None, operator.name
            assert operator.sentence, operator.name


def test_every_line_of_a_definition_is_in_its_entry(book: Book) -> None:
    for module in ("TransactionCoordinator", "Leader", "ProducerStateMutants"):
        text = book.spec.text(module).splitlines()
        for operator in book.operators(module):
            lines = operator.tla.text.splitlines()
            assert lines == text[operator.tla.line - 1 : operator.tla.line - 1 + len(lines)]
            following = "".join(text[operator.tla.line - 1 + len(lines) :][:1])
            assert not following.startswith(" "), operator.name


def test_error_codes_are_in_the_order_of_the_checks_and_comparisons_are_no_answers(book: Book) -> None:
    assert book.errors_of("TransactionCoordinator", "InitError") == (
        "INVALID_REQUEST", "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED")  # fmt: skip
    assert book.errors_of("TransactionCoordinator", "HandleEndTxn")[:2] == (
        "COORDINATOR_LOAD_IN_PROGRESS", "INVALID_PRODUCER_ID_MAPPING")  # fmt: skip
    assert book.errors_of("Leader", "AppendBatch") == ()  # it asks that no check refuses the batch
    assert book.errors_of("Transactions", "HandleMarker")[0] == "INVALID_PRODUCER_EPOCH"  # the condition of an IF
    assert "STALE_MEMBER_EPOCH" in book.errors_of("ConsumeTransformProduce", "RefuseOffsets")
    assert "INVALID_TXN_STATE" in book.errors_of("Leader", "RefuseBatch")  # asked of an instantiated module
    assert book.errors_of("TransactionalProducer", "AsksForCoordinator") == ()


def test_citations_are_read_from_docstring_and_comment(book: Book) -> None:
    of = {each.name: each for each in book.operators("TransactionCoordinator")}
    assert of["HandleEndTxn"].kafka == "TransactionCoordinator.handleEndTransaction"
    assert of["HandleEndTxn"].kips == "KIP-98, KIP-890"
    assert "Departs from Kafka" in of["BumpError"].notes[0]
    next_sequence = next(each for each in book.operators("ProducerState") if each.name == "NextSequence")
    assert next_sequence.sentence == "The sequence after another one."
    assert next_sequence.kafka == "DefaultRecordBatch.incrementSequence"


def test_a_docstrings_labels_go_on_where_their_lines_are_indented() -> None:
    assert labelled("One.\n\nKIPs:  98\nKafka: A.b,\n       C.d\nMore.") == {"KIP": "98", "Kafka": "A.b, C.d"}


def test_the_head_of_a_module_and_the_table_of_its_variables_are_read(book: Book) -> None:
    assert header(book.spec.text("PartitionLog"))[0].startswith("One replica that leads a partition")
    table = "=====  =====  =====\nspec variable  x  y\n=====  =====  =====\nlog    ``lg``  Log\n=====  =====  ====="
    assert kafka_names(table)["log"] == ("lg", "Log")


def test_a_changed_rule_changes_its_entry_and_its_codes_and_no_other(tmp_path: Path) -> None:
    shutil.copytree(CLONE / "spec", tmp_path / "spec")
    shutil.copytree(CLONE / "reference" / "kafka_eos" / "machines", tmp_path / "reference" / "kafka_eos" / "machines")

    def entries() -> dict[str, str]:
        links = Links(Book(Sources(tmp_path)))
        return {
            each.name: operator_entry(links, each, (), "") for each in links.book.operators("TransactionCoordinator")
        }

    def answering(code: str) -> str:
        text = errors_page(Links(Book(Sources(tmp_path)))).text
        return text.partition(f'id="{code}"')[2].partition('class="anchor"')[0]

    before = entries()
    assert "TransactionCoordinator.html#AddError" not in answering("INVALID_PRODUCER_EPOCH")
    file = tmp_path / "spec" / "TransactionCoordinator.tla"
    text = file.read_text(encoding="utf-8")
    rule = 'ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"\n    ELSE IF known.state \\in PreparedStates'
    assert text.count(rule) == 1
    file.write_text(text.replace(rule, rule.replace("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")), encoding="utf-8")
    after = entries()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"AddError", "HandleAddPartition", "NoSpuriousFencing"}
    assert "errors.html#INVALID_PRODUCER_EPOCH" in after["HandleAddPartition"]
    assert "TransactionCoordinator.html#AddError" in answering("INVALID_PRODUCER_EPOCH")
