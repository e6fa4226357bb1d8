"""The pages name only things that exist, and a book with something broken in it is refused."""

import ast
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pygments.lexers import get_lexer_by_name

from kafka_eos.formats.transaction_log import LEGAL_TRANSITIONS
from kafka_eos.histories.history import Event
from kafka_eos.machines.explorer import explore
from kafka_eos.machines.machine import dump, instances
from kafka_eos_checks.book import errors, guides, touches
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.listing import listing
from kafka_eos_checks.book.pages import Page, table, written
from kafka_eos_checks.book.pictures import Arrow, drawn, refinements
from kafka_eos_checks.book.properties import property_page
from kafka_eos_checks.book.reference import reference_pages, schemas
from kafka_eos_checks.book.site import MENU, MOST_BYTES, problems
from kafka_eos_checks.book.sources import Book
from kafka_eos_checks.book.stories import Story, readers_of, seen_by_readers, told
from kafka_eos_checks.book.touches import touches_pages
from kafka_eos_checks.book.trying import SCENARIOS, graph_of, scenario_model
from kafka_eos_checks.brokers.jars import clients_jar
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.ledger.report import report_of
from kafka_eos_checks.proofs.command import proofs
from kafka_eos_checks.tla.behaviour import Step


@pytest.fixture(scope="module")
def links() -> Links:
    return Links(Book())


def test_every_guide_names_what_exists(links: Links) -> None:
    assert {page.path for page in guides.guide_pages(links, run=False)} == {f"guides/{name}" for name in guides.ORDER}
    assert {file.stem for file in guides.FOLDER.glob("*.md")} == set(guides.ORDER)


@pytest.mark.parametrize(
    "name", ["NoModule!NoRule", "NO_SUCH_CODE", "story:PartitionLog", "try:Nothing", "finding:none", "depth:Nothing"]
)
def test_a_guide_that_names_nothing_is_refused(links: Links, tmp_path: Path, name: str) -> None:
    (tmp_path / "guide.md").write_text(f"# Title\nSee {{{{{name}}}}}.\n", encoding="utf-8")
    with pytest.raises(guides.MalformedGuide, match="names nothing"):
        guides.guide(links, tmp_path / "guide.md", run=False)


def test_a_guide_shows_an_operator_as_it_stands_and_refuses_another(links: Links, tmp_path: Path) -> None:
    file = tmp_path / "guide.md"
    file.write_text("# Title\n```show\nPartitionLog!AppendBatch\n```\n", encoding="utf-8")
    assert " append_batch(self" in guides.guide(links, file, run=False).text
    file.write_text(f"# Title\n```show\nPartitionLog!{'NoRule'}\n```\n", encoding="utf-8")
    with pytest.raises(guides.MalformedGuide, match="is no operator"):
        guides.guide(links, file, run=False)


def test_a_guide_shows_what_a_command_prints_and_refuses_another_exit_code(links: Links, tmp_path: Path) -> None:
    file = tmp_path / "guide.md"
    file.write_text("# Title\n```run exit 2 lines 1-1\nkafka-eos no-such-command\n```\n", encoding="utf-8")
    assert "$ kafka-eos no-such-command\n" in guides.guide(links, file).text
    file.write_text("# Title\n```run\nkafka-eos no-such-command\n```\n", encoding="utf-8")
    with pytest.raises(guides.MalformedGuide, match="ends with 2, not 0"):
        guides.guide(links, file)


def test_lines_that_a_guide_leaves_out_are_an_ellipsis(
    monkeypatch: pytest.MonkeyPatch, links: Links, tmp_path: Path
) -> None:
    monkeypatch.setattr(guides, "output_of", lambda _: (0, "one\ntwo\nthree\n"))
    file = tmp_path / "guide.md"

    def shown(lines: str) -> str:
        file.write_text(f"# Title\n```run lines {lines}\nkafka-eos\n```\n", encoding="utf-8")
        return guides.guide(links, file).text.partition("kafka-eos\n")[2].removesuffix("\n```\n")

    assert [shown(each) for each in ("1-3", "2-3", "1-2")] == ["one\ntwo\nthree", "…\ntwo\nthree", "one\ntwo\n…"]


def test_every_error_code_of_the_reference_has_its_two_sentences(tmp_path: Path) -> None:
    assert errors.read_advice()["PRODUCER_FENCED"].do.startswith("Close this producer")
    text = errors.FILE.read_text(encoding="utf-8")
    (tmp_path / "errors.toml").write_text(text.replace("[PRODUCER_FENCED]", "[PRODUCER_FENCE]"), encoding="utf-8")
    with pytest.raises(errors.MalformedErrors, match="PRODUCER_FENCED has no entry"):
        errors.read_advice(tmp_path / "errors.toml")
    (tmp_path / "errors.toml").write_text(text.replace("code = 13\n", ""), encoding="utf-8")
    with pytest.raises(errors.MalformedErrors, match="NETWORK_EXCEPTION has means, do; write code and do and means"):
        errors.read_advice(tmp_path / "errors.toml")


def test_the_error_codes_are_kafkas(tmp_path: Path) -> None:
    if not clients_jar().is_file():
        pytest.skip(f"needs {clients_jar().name}: make setup")
    asking = tmp_path / "Codes.java"
    asking.write_text(
        "import org.apache.kafka.common.protocol.Errors; class Codes { public static void main(String[] none) {"
        'for (Errors each : Errors.values()) System.out.println(each.name() + " " + each.code()); } }',
        encoding="utf-8",
    )
    classes = f"{clients_jar()}{os.pathsep}{clients_jar().parent}/*"
    done = subprocess.run(["java", "-cp", classes, str(asking)], capture_output=True, text=True, check=True)
    told = dict(line.split() for line in done.stdout.splitlines())
    assert told == {name: str(each.code) for name, each in errors.read_advice().items()}


def test_the_java_producers_reaction_is_that_of_the_machine(links: Links) -> None:
    text = errors.errors_page(links).text
    fenced = text[text.index('id="PRODUCER_FENCED"') : text.index('id="UNKNOWN_TOPIC_ID"')]
    assert "fatal (Produce" in fenced
    assert "modules/TransactionCoordinator.html#AddError" in fenced


def test_names_are_links_except_an_operators_own() -> None:
    shown = listing("tla", 'F(x) == IF Known(x) THEN "CODE" ELSE x', {"Known": "#Known", "CODE": "e.html#CODE"}.get)
    assert '<a href="#Known">Known</a>(x)' in shown
    assert listing("tla", "F == A /\\ A", {"A": "#A"}.get).count("href") == 1
    assert '"<a href="e.html#CODE">CODE</a>"' in shown
    assert "&lt;script" in listing("python", 'a = "<script>"', lambda _: None)


def test_addresses_are_relative_and_a_pages_own_are_anchors() -> None:
    text = '<a href="@/modules/Leader.html#X"></a><a href="@/index.html"></a>'
    assert written(Page(path="modules/Leader", title="Leader", text=text)).endswith(
        '<a href="#X"></a><a href="../index.html"></a>\n'
    )


def test_a_table_names_its_heads_in_every_cell_for_narrow_screens() -> None:
    assert '<td data-head="A &amp; B">1</td>' in table(("A & B",), [("1",)])


def test_every_known_failure_and_every_finding_has_a_story(links: Links) -> None:
    names = {model.name for model in told(links.book)}
    assert {"LateEndIsNotAtomic", "LostAcknowledgement", "SnapshotWindow"} <= names
    assert not {"PartitionLog", "PartitionLogInductionExpiry"} & names
    findings = [finding for finding in links.book.sources.findings if finding.models]
    assert len(findings) > 20
    assert [finding.id for finding in findings if not names & {*finding.models}] == []


def test_a_walk_has_the_whole_graph_with_a_reason_for_each_refusal(links: Links) -> None:
    scenario = next(each for each in SCENARIOS if each.name == "Transfer")
    graph = graph_of(scenario_model(links, scenario))
    assert len(graph.states) == links.book.entries["Transfer"].expect.states
    for edges, row in zip(graph.edges, graph.rows, strict=True):
        marks = graph.refused[row]
        assert {place for place, mark in enumerate(marks) if mark == " "} == set(edges)
        assert all(graph.reasons[ord(mark) - 40] for mark in marks if mark != " ")


@pytest.mark.parametrize(("name", "doubled"), [("WithoutIdempotence", True), ("WithIdempotence", False)])
def test_a_story_tells_what_readers_find_after_a_step(links: Links, name: str, doubled: bool) -> None:
    model = scenario_model(links, next(each for each in SCENARIOS if each.name == name))
    machine, constants = model.machine_class(), model.machine_constants()
    states = explore(machine.initial(constants), instances(machine, constants)).states
    seen = seen_by_readers(links.book, Story(model, [Step("", dump(state)) for state in states], None))
    found = {line for lines in seen for line in lines}
    assert "The values that a reader finds, in order: [1]" in found
    assert ("The values that a reader finds, in order: [1, 1]" in found) is doubled


def test_what_readers_see_is_read_from_the_refinements(links: Links) -> None:
    assert [said for said, _ in readers_of(links.book, "Transactions")] == [
        "for each partition: the transactions whose batch a reader finds, in order"
    ]
    assert [said.partition(",")[0] for said, _ in readers_of(links.book, "Transfer")] == ["Debits", "Credits"]
    assert list(readers_of(links.book, "TransactionalProducer")) == []


def test_a_picture_has_every_arrow_of_its_table_and_words_for_those_who_cannot_see_it() -> None:
    names = sorted({state.name for pair in LEGAL_TRANSITIONS for state in pair})
    arrows = [Arrow(before.name, after.name) for before, after in LEGAL_TRANSITIONS]
    picture = drawn([names], arrows, 'a "label"')
    assert picture.count('class="edge"') == len(LEGAL_TRANSITIONS)
    assert 'aria-label="a &quot;label&quot;"' in picture
    with pytest.raises(KeyError):
        drawn([names[1:]], arrows, "one box is missing")


def test_the_tower_is_read_from_the_formulas(links: Links) -> None:
    found = set(refinements(links))
    assert ("Transactions", "RefinesAtomicTransactions", "AtomicTransactions") in found
    assert ("ConsumeTransformProduce", "RefinesExactlyOnce", "ExactlyOnce") in found


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value fits a schema, as far as the book's schemas go."""
    if "anyOf" in schema:
        return any(fits(value, each) for each in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    kinds = {"string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict,
             "null": type(None)}  # fmt: skip
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):
        return False
    if isinstance(value, list):
        return all(fits(each, schema.get("items", {})) for each in value)
    if not isinstance(value, dict):
        return True
    if not {*schema.get("required", [])} <= value.keys():
        return False
    parts, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
    return all(
        fits(each, parts[name]) if name in parts else rest is not False and fits(each, rest)
        for name, each in value.items()
    )


def test_what_is_written_fits_its_schema_and_nothing_else_does() -> None:
    history, verdicts, report = (schema for schema, _ in schemas().values())
    event = json.loads(
        Event(run="a", process="p", action="Send", phase="ok", offset=3, detail={"value": "v"}).to_json()
    )
    assert fits(event, history)
    assert not fits({**event, "offset": "3"}, history)
    assert not fits({**event, "ofset": 3}, history)
    assert not fits({name: value for name, value in event.items() if name != "run"}, history)
    verdict = Verdict(check="model", name="A", expected="holds", found="holds", ok=True, figures={"states": 3})
    row = json.loads(json.dumps(verdict.to_json()))
    assert fits([row], verdicts)
    assert not fits([{**row, "standing": "well"}], verdicts)
    written = json.loads(json.dumps(report_of([verdict]).to_json()))
    assert fits(written, report)
    assert not fits({**written, "verdicts": 3}, report)


def test_a_book_with_something_broken_is_told_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there"></a><a href="b.html#gone"></a><a href="c.html"></a><img src="b.html">'
        '<svg role="img"></svg><a href="https://example.org/x"></a>',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<p id="there">' + "x" * MOST_BYTES, encoding="utf-8")
    assert [line.split(",")[0] for line in problems(tmp_path)] == [
        "a.html: <img> without words",
        "a.html: <svg> without words",
        "a.html: b.html#gone names no place",
        "a.html: c.html leads nowhere",
        "b.html: 300",
    ]


def test_a_property_tells_of_which_kafka_it_holds(links: Links) -> None:
    def shown(module: str, name: str) -> str:
        (operator,) = (each for each in links.book.operators(module) if each.name == name)
        return property_page(links, operator, frozenset()).text.partition("## Kafka as it ships")[2]

    broken = shown("TransactionalOffsets", "FindsWhatWasAsked")
    assert "violated in" in broken
    assert "IsOutdated" in broken
    assert "late-offsets" in broken
    whole = shown("TransactionalOffsets", "AnsweredIsKept")
    assert "violated" not in whole
    assert "with rules of this release" in whole
    assert "not checked in 1 model with rules of this release" in shown("IdempotentProducer", "NoLoss")
    assert "that no rule of this release touches" in shown("AtomicTransactions", "VisibleOnce")


def test_a_property_tells_its_proof_and_its_walks(links: Links) -> None:
    def shown(module: str, name: str) -> str:
        (operator,) = (each for each in links.book.operators(module) if each.name == name)
        return property_page(links, operator, frozenset()).text

    text = shown("PartitionLog", "NoGapNoDuplicate")
    proof = text.partition("## Proof")[2].partition("\n## ")[0]
    assert "kafka-eos check proofs append" in proof
    assert "follows from it" in proof
    assert "ProducerState.html#SnapshotOf" in proof  # the repaired rule that it rests on
    assert "#NoSequenceCheck" in proof  # a mutant that refutes it
    assert "conjunct of the invariant" in shown("PartitionLog", "StateFollowsLog")
    assert "kafka-eos check proofs fencing" in shown("FencingInduction", "EndedByNewest")
    assert "PartitionLogTwoProducers" in text
    assert "MaxEntries = 20" in text.partition("## Random walks")[2]
    assert "Kafka 4.3" in text.partition("## Random walks")[2].partition("\n## ")[0]
    unproved = shown("EpochBump", links.book.registry.models["EpochBump"].invariants[0])
    assert "## Proof" not in unproved
    assert "## Random walks" in unproved


def test_every_proof_says_which_properties_follow() -> None:
    assert [proof.name for proof in proofs(()) if not proof.properties] == []


def test_every_place_of_a_rule_is_listed_and_a_long_list_is_cut_into_pages(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators = {each.name: each for each in links.book.operators("ProducerState")}
    told_ = [(operators[name], links.book.places("ProducerState", name)) for name in ("AppendError", "IsDuplicate")]
    (page,), where = touches_pages(links, "ProducerState", told_)
    assert where == {"AppendError": "touches/ProducerState", "IsDuplicate": "touches/ProducerState"}
    places = dict(zip(("AppendError", "IsDuplicate"), page.text.split("<h2 ")[1:], strict=True))
    assert "tests/reference/machines/test_producer_state.py:" in places["AppendError"]
    assert "models of Leader</a>" in places["AppendError"]
    assert "WALKS of " in places["AppendError"]
    assert ">NoDuplicateCache</a>" in places["IsDuplicate"]
    monkeypatch.setattr(touches, "_MOST_CHARACTERS", 10)
    made, where = touches_pages(links, "ProducerState", told_)
    assert [each.path for each in made] == ["touches/ProducerState", "touches/ProducerState-2"]
    assert where["IsDuplicate"] == "touches/ProducerState-2"
    told = "".join(touches.facts(links, *told_[1], where["IsDuplicate"]))
    assert "noticed by TLC: " in told
    assert "touches/ProducerState-2.html#IsDuplicate" in told


def test_a_long_line_of_a_listing_goes_on_below_its_own_beginning() -> None:
    line = "    " + "a" * 60
    shown = listing("python", f"a = 1\n{line}\n", lambda _: None)
    assert f'<span style="--i:4">{line}\n</span>' in shown
    assert "a = 1" not in shown.partition("<span")[2]
    assert listing("python", '"""one\ntwo"""', lambda _: None).count("<i class=s>") == 2  # no mark spans two lines


def test_every_document_is_in_the_menu() -> None:
    documents = {f"docs/{path.stem}" for path in (CLONE / "docs").glob("*.md")}
    assert documents <= {page for pages in MENU.values() for page in pages}


def lex(language: str, text: str) -> None:
    """Raise if Pygments' lexer does not know a character."""
    lexer = get_lexer_by_name(language)
    lexer.add_filter("raiseonerror", excclass=ValueError)
    list(lexer.get_tokens(text))


READ_BY: dict[str, Callable[[str], object]] = {
    **{language: partial(lex, language) for language in ("sql", "yaml")},
    "json": json.loads,
    "python": ast.parse,
    "text": str,
}
"""Language of a block of code -> what reads it, or raises. Sphinx refuses a block that its lexer does not take."""
_BLOCK = re.compile(r"^( *)```([^\s`{]+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def unreadable(pages: Iterable[Page]) -> list[str]:
    """The blocks that are not in the language that they are labelled with: page, language, first line."""
    wrong = []
    for page in pages:
        for _, language, text in _BLOCK.findall(page.text):
            try:
                READ_BY[language](dedent(text))
            except (KeyError, SyntaxError, ValueError):
                wrong.append(f"{page.path} {language}: {text.splitlines()[0]}")
    return wrong


def test_every_block_of_code_is_in_the_language_that_it_is_labelled_with(links: Links) -> None:
    made = [*guides.guide_pages(links, run=False), *reference_pages(links.book)]
    assert unreadable(made) == []
    assert {language for page in made for _, language, _ in _BLOCK.findall(page.text)} >= {"python", "sql", "text"}


@pytest.mark.parametrize("block", ['json\n{"leader": …}', "python\na = …", "sql\nSELECT …", "tla\nA == B"])
def test_a_block_of_another_language_is_told(block: str) -> None:
    language, _, line = block.partition("\n")
    page = Page(path="docs/a", title="A", text=f"- so:\n\n  ```{language}\n  {line}\n  ```\n")
    assert unreadable([page]) == [f"docs/a {language}:   {line}"]
