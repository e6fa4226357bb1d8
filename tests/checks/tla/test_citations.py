"""Citations: where they begin and end, what they name, and which names no jar has."""

from pathlib import Path
from typing import cast

from kafka_eos_checks.kit.java_names import JavaNames
from kafka_eos_checks.tla.citations import Citation, CitedOperator, citations, cited_operators, unknown_java_names

TEXT = '''
class Leader:
    """A leader. Departs from Kafka: it is faster, NotCited.

    Spec:  PartitionLog!AppendBatch, RejectBatch; Transactions!Verify,
           Upgrade
    Kafka: UnifiedLog.append, truncateTo (ProducerStateManager, the part
           with takeSnapshot). Not.Cited
    KIP:   KIP-98
    """

    def end(self):  # Spec: Transactions!HandleEnd
        """End it.    Kafka: Sender.canRetry, its code."""
'''
FILE = Path("leader.py")


def test_a_citation_goes_on_over_lines_and_ends_with_its_sentence() -> None:
    found = [(citation.label, citation.line, citation.text) for citation in citations(FILE, TEXT)]
    assert found == [
        ("Spec", 5, "PartitionLog!AppendBatch, RejectBatch; Transactions!Verify, Upgrade"),
        ("Kafka", 7, "UnifiedLog.append, truncateTo (ProducerStateManager, the part with takeSnapshot)"),
        ("Spec", 12, "Transactions!HandleEnd"),
        ("Kafka", 13, "Sender.canRetry, its code"),
    ]


def test_a_line_that_begins_below_the_label_does_not_go_on_with_the_citation() -> None:
    text = "    Kafka: UnifiedLog.append\n    and this is prose\n"
    assert [citation.text for citation in citations(FILE, text)] == ["UnifiedLog.append"]


def test_a_citation_in_a_box_of_comments_is_read_without_the_box() -> None:
    text = "(* KIPs: 98.  Kafka: TransactionIndex,   *)\n(* CompletedFetch.                         *)\n"
    assert [citation.text for citation in citations(FILE, text)] == ["TransactionIndex, CompletedFetch"]


def test_a_bare_operator_belongs_to_the_module_before_it() -> None:
    first = next(citations(FILE, TEXT))
    assert cited_operators(first) == [
        CitedOperator("PartitionLog", "AppendBatch"),
        CitedOperator("PartitionLog", "RejectBatch"),
        CitedOperator("Transactions", "Verify"),
        CitedOperator("Transactions", "Upgrade"),
    ]


class Known:
    """The names of a jar with one class."""

    settings = frozenset({"acks"})
    packages = frozenset({"org.apache"})

    def classes(self, name: str) -> list[str]:
        return [name] if name == "Sender" else []

    def has_member(self, owner: str, name: str) -> bool:
        return (owner, name) == ("Sender", "canRetry")


def test_a_method_belongs_to_the_class_before_it() -> None:
    def unknown(text: str) -> list[str]:
        citation = Citation(label="Kafka", text=text, file=FILE, line=1)
        return unknown_java_names(citation, cast(JavaNames, Known()))

    assert unknown("Sender.canRetry, org.apache, acks, Sender, canRetry, none") == []
    assert unknown("Sender, canFail, Sender.canFail, Receiver") == ["canFail", "Sender.canFail", "Receiver"]
    assert unknown("canRetry, Sender") == ["canRetry"], "no class is before it"
    assert unknown("Sender, lost, when it was lost") == ["lost"], "a word alone is a name, one in a sentence is none"
