"""Citations: the names after ``Spec`` and ``Kafka`` in docstrings, comments and modules exist."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_eos_checks.brokers.jars import jars_folder
from kafka_eos_checks.kit.java_names import JavaNames, read_class
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.tla.citations import (
    Citation,
    citations,
    cited_operators,
    qualified_operators,
    unknown_java_names,
)
from kafka_eos_checks.tla.modules import ModuleFolder

ROOT = Path(__file__).parents[2]
FOLDERS = ("reference", "checks", "tests", "examples", "spec")
# these tests write modules and citations of their own
PLANTED = {
    ROOT / "tests/spec/test_citations.py",
    ROOT / "tests/spec/test_vocabulary.py",
    ROOT / "tests/checks/drawing/test_story_words.py",
    ROOT / "tests/checks/matrix/test_impact.py",
    ROOT / "tests/checks/tla/test_citations.py",
}
SPEC = ModuleFolder(spec_folder())
JARS = ("kafka_2.13", "kafka-clients", "kafka-streams", "connect-mirror")


def sources() -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for file in sorted(path for kind in ("*.py", "*.tla") for path in (ROOT / folder).rglob(kind)):
            if file not in PLANTED:
                yield file.relative_to(ROOT), file.read_text(encoding="utf-8")


def dead_operators(file: Path, text: str) -> list[str]:
    """The operators that a file cites and no module has; and citations of the spec that name no operator."""
    dead = []
    for citation in citations(file, text):
        found = cited_operators(citation) if citation.label == "Spec" else []
        dead += [f"{citation.place}: {one.module}!{one.operator}" for one in found if not one.is_in(SPEC)]
        if citation.label == "Spec" and not found and citation.text != "none":
            dead.append(f"{citation.place}: names nothing")
    dead += [f"{file}:{line}: {one.module}!{one.operator}" for line, one in qualified_operators(text, SPEC)
             if not one.is_in(SPEC)]  # fmt: skip
    return sorted(set(dead))


def test_every_operator_that_is_cited_stands_in_the_spec() -> None:
    cited = 0
    for file, text in sources():
        cited += sum(len(cited_operators(c)) for c in citations(file, text) if c.label == "Spec")
        assert dead_operators(file, text) == []
    assert cited > 250


@pytest.fixture(scope="module")
def known() -> Iterator[JavaNames]:
    folder = jars_folder()
    missing = [jar for jar in JARS if not list(folder.glob(f"{jar}-[0-9]*.jar"))]
    if missing:
        pytest.skip(f"{folder} has no {', '.join(missing)}; `make {folder}/.copied` fetches the jars of Kafka")
    with JavaNames([folder]) as names:
        yield names


def dead_java_names(file: Path, text: str, known: JavaNames) -> list[str]:
    return [
        f"{citation.place}: {name}"
        for citation in citations(file, text)
        if citation.label == "Kafka"
        for name in unknown_java_names(citation, known)
    ]


@pytest.mark.java
def test_every_class_method_and_setting_that_is_cited_is_in_the_jars_of_kafka(known: JavaNames) -> None:
    cited = 0
    for file, text in sources():
        cited += sum(citation.label == "Kafka" for citation in citations(file, text))
        assert dead_java_names(file, text, known) == []
    assert cited > 250


# --- what is dead ----------------------------------------------------------------------------------------------------

TEXT = """
class Leader:


    # Spec: PartitionLog!AppendBatch, RejectBatch; Transactions!Verify, Upgrade
    def end(self):  # Spec: Transactions!HandleEnd
"""
FILE = Path("leader.py")


def test_a_dead_operator_and_a_dead_module_are_found() -> None:
    assert dead_operators(FILE, TEXT) == ["leader.py:5: PartitionLog!RejectBatch"]
    assert dead_operators(FILE, "# Spec: Consumption.tla") == ["leader.py:1: Consumption!"]
    assert dead_operators(FILE, "# by Transactions!Gone") == ["leader.py:1: Transactions!Gone"]
    assert dead_operators(FILE, "# Spec: whatever it does") == ["leader.py:1: names nothing"]
    assert dead_operators(FILE, "# Spec: Consumer!Fetch is one of TransactionalPartition!Cut") == [
        "leader.py:1: Consumer!Fetch",
        "leader.py:1: TransactionalPartition!Cut",
    ]


@pytest.mark.java
@pytest.mark.parametrize(
    ("cited", "dead"),
    [
        ("UnifiedLog.append, ProducerStateManager (takeSnapshot)", []),
        ("UnifiedLog.appendix", ["UnifiedLog.appendix"]),
        ("UnifiedLogs.append", ["UnifiedLogs.append"]),
        ("SampledStat.record, advance, retreat", ["retreat"]),
        ("TransactionManager.InitProducerIdHandler", []),
        ("TransactionManager.ExitProducerIdHandler", ["TransactionManager.ExitProducerIdHandler"]),
        ("org.apache.kafka.common.record.internal.CompressionType", []),
        ("org.apache.kafka.common.record.CompressionType", ["org.apache.kafka.common.record.CompressionType"]),
        ("fetch.max.bytes, fetch.min.miles", ["fetch.min.miles"]),
        ("TransactionLogKey.json, KIP-98", []),
        ("StreamsProducer.commitTransaction, the branch for ALOS and KAFKA-1", []),
        ("none", []),
    ],
)
def test_a_dead_class_method_or_setting_is_found(cited: str, dead: list[str], known: JavaNames) -> None:
    assert unknown_java_names(Citation(label="Kafka", text=cited, file=FILE, line=1), known) == dead


@pytest.mark.java
def test_a_method_that_a_class_inherits_is_its_own(known: JavaNames) -> None:
    assert known.has_member("ProducerFencedException", "getMessage") == known.has_member("ApiException", "getMessage")
    assert known.has_member("ProducerFencedException", "fillInStackTrace")  # of ApiException


def test_what_is_no_class_file_is_refused() -> None:
    with pytest.raises(ValueError, match="CAFEBABE"):
        read_class(b"PK")
