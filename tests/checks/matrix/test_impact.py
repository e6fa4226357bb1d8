"""``kafka-eos check impact``: the places that depend on a rule, from the sources and the registries."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_eos_checks.cli.command import main, parser_of
from kafka_eos_checks.kit.missing import MissingExtra
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.matrix import impact as impact_module
from kafka_eos_checks.matrix.impact import (
    Place,
    Sources,
    UnknownOperator,
    _in_reference,
    _in_registry,
    _in_spec,
    commands,
    impact,
    rule_of,
    told,
)
from kafka_eos_checks.models.registry import MalformedRegistry, Registry

SOURCES = Sources()


@pytest.fixture(scope="module")
def found() -> list[Place]:
    return impact(rule_of("AcceptsUnknownProducer", SOURCES))


def of_kind(places: list[Place], kind: str) -> list[str]:
    return [f"{place.file} {place.what}" for place in places if place.kind == kind]


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("spec", "spec/ProducerState.tla ProducerState!AcceptsUnknownProducer"),
        ("action", "spec/PartitionLog.tla PartitionLog!AppendBatch depends on it"),
        ("reference", "reference/kafka_eos/machines/producer_state.py def accepts_unknown_producer"),
        ("mutant", "spec/mutants/ProducerStateMutants.tla ProducerStateMutants!AnySequenceOnVirginPartition"),
        ("mutant", "checks/kafka_eos_checks/mutants/producer_state.py def any_sequence_on_virgin_partition"),
        ("property", "spec/IdempotentProducer.tla IdempotentProducer!NoGap breaks with VirginPartitionGap"),
        ("proof", "checks/kafka_eos_checks/proofs/append.py append: refuted by AnySequenceOnVirginPartition"),
        ("contract", "checks/kafka_eos_checks/contracts/conditions.py unknown_producer_begins_with_zero"),
        ("walk", "checks/kafka_eos_checks/walks/layers.py WALKS of PartitionLog"),
        ("conform", 'checks/kafka_eos_checks/conform/known.toml rule = "ProducerState!AcceptsUnknownProducer"'),
        ("claim", "checks/kafka_eos_checks/ledger/claims.toml C03, settled by its models"),
        # these name the finding that Kafka's form of the rule causes
        (
            "replay",
            "checks/kafka_eos_checks/audit/rules/log.py "
            "topic of the same name: a leader accepts any first sequence (finding gap-after-expiry).",
        ),
        (
            "check",
            'checks/kafka_eos_checks/testing/settings_command.py ("retry-refused-after-restart", "gap-after-expiry"),',
        ),
    ],
)
def test_a_rule_has_its_places_on_all_floors(found: list[Place], kind: str, what: str) -> None:
    assert what in of_kind(found, kind)


def test_of_the_reference_only_the_rules_own_method_is_edited(found: list[Place]) -> None:
    methods = [place for place in of_kind(found, "reference") if " def " in place]
    assert methods == ["reference/kafka_eos/machines/producer_state.py def accepts_unknown_producer"]


def test_every_place_is_a_line_of_a_file_and_comes_once(found: list[Place]) -> None:
    assert len({(place.file, place.line) for place in found}) == len(found)
    for place in found:
        assert 1 <= place.line <= SOURCES.texts[place.file].count("\n") + 1
    named = [place for place in found if place.what.startswith("def ")]
    for place in named:
        assert place.what in SOURCES.texts[place.file].splitlines()[place.line - 1]


def planted(texts: Mapping[str, str]) -> Sources:
    """The sources with files changed or added, of which none is a module."""
    sources = Sources()
    vars(sources).update(spec=SOURCES.spec, registry=SOURCES.registry, texts={**SOURCES.texts, **texts})
    return sources


PLANTED = [
    ("checks/kafka_eos_checks/audit/planted.py", "# as accepts_unknown_producer does", "replay"),
    ("checks/kafka_eos_checks/models/findings.toml", "# AcceptsUnknownProducer", "finding"),
    ("checks/kafka_eos_checks/proofs/planted.py", 'RULES = ("accepts_unknown_producer",)', "proof"),
    ("reference/kafka_eos/server/planted.py", "# Spec: ProducerState!AcceptsUnknownProducer", "server"),
    ("spec/conjuncts.toml", 'operator = "producer_state!Log.accepts_unknown_producer"', "conjuncts"),
    ("tests/planted.py", 'MUTANT = "VirginPartitionGap"', "test"),
    ("docs/planted.md", "`AnySequenceOnVirginPartition` is what Kafka ships.", "document"),
]


@pytest.fixture(scope="module")
def with_planted() -> tuple[Sources, list[Place]]:
    """The sources with all of these lines, and the places found in them."""
    sources = planted({path: f"{SOURCES.texts.get(path, '')}\n{line}\n" for path, line, _ in PLANTED})
    return sources, impact(rule_of("AcceptsUnknownProducer", sources))


@pytest.mark.parametrize(("path", "line", "kind"), PLANTED)
def test_a_planted_reference_is_found(
    with_planted: tuple[Sources, list[Place]], path: str, line: str, kind: str
) -> None:
    sources, found = with_planted
    last = sources.texts[path].count("\n")
    assert Place(kind=kind, file=path, line=last, what=line) in found


def test_an_ordinary_word_is_found_only_where_it_names_the_operator() -> None:
    lines = "# verify it\nverify = 1\n# Transactions!Verify\nx.verify()\n# Spec: PartitionLog!Verify\n"
    sources = planted({"tests/planted.py": lines})
    places = impact(rule_of("Transactions!Verify", sources))
    assert [place.line for place in places if place.file == "tests/planted.py"] == [3, 4]


def test_what_depends_on_a_rule_through_an_instance_is_found_and_the_proofs_of_its_actions() -> None:
    rule = rule_of("EndVerdictOfVersion2", SOURCES)
    places = impact(rule)
    assert "spec/Broker.tla Broker!EndTxn depends on it" in of_kind(places, "action")
    assert "BrokerVersion1" in {model.name for model in rule.models}
    assert "checks/kafka_eos_checks/proofs/fencing.py fencing: about EndTxn" in of_kind(places, "proof")
    tests = "tests/reference/machines/test_{0}.py the tests of {1}"
    expected = {tests.format("broker", "Broker"), tests.format("transaction_coordinator", "TransactionCoordinator")}
    assert expected <= set(of_kind(places, "test"))
    run = list(commands(rule, places))
    assert {"kafka-eos check proofs --queries fencing", "kafka-eos check walks"} <= set(run)
    assert "kafka-eos check walks" not in commands(rule, [])


def test_an_instances_operator_is_used_where_the_instance_is_named() -> None:
    users = {(module, user.name) for module, user in rule_of("TransactionCoordinator!EndVerdict", SOURCES).users}
    assert {("Broker", "EndTxn"), ("TransactionCoordinator", "HandleEndTxn")} <= users
    assert ("Transactions", "HandleEndTxn") not in users
    assert not any(module == "Transactions" for module, _ in users), "it has an operator of this name of its own"


def test_a_constant_of_the_rules_name_is_found() -> None:
    found = impact(rule_of("LegalTransitions", SOURCES))
    files = {place.file for place in found if "LEGAL_TRANSITIONS" in place.what}
    assert {"reference/kafka_eos/formats/transaction_log.py"} <= files
    assert any(file.startswith("checks/kafka_eos_checks/audit/rules/") for file in files)


def test_a_typo_in_the_table_of_releases_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def malformed(*_: object) -> None:
        raise MalformedRegistry("releases.toml: no TOML")

    monkeypatch.setattr("kafka_eos_checks.matrix.impact.impact", malformed)
    assert main(["check", "impact", "AcceptsUnknownProducer"]) == 2
    assert capsys.readouterr().err == "kafka-eos check impact: releases.toml: no TOML\n"


REGISTRY = Registry()
MUTATED = sorted({(entry.module, rule) for entry in REGISTRY.mutants.values() for rule in entry.overrides})


def test_every_operator_that_has_a_mutant_has_a_spec_a_method_a_mutant_and_a_model() -> None:
    assert len(MUTATED) > 100
    for module, name in MUTATED:
        rule = rule_of(name, SOURCES)
        places = [place for part in (_in_spec, _in_reference, _in_registry) for place in part(rule)]
        wanted = {"spec", "mutant", "model"}
        if name in SOURCES.spec.reached(module, "Next"):  # otherwise only a property depends on it
            wanted.add("reference")
        assert wanted <= {place.kind for place in places}, name


def test_a_method_or_module_in_front_names_the_rule_too() -> None:
    assert rule_of("accepts_unknown_producer", SOURCES).name == "AcceptsUnknownProducer"
    assert set(rule_of("AppendBatch", SOURCES).homes) > set(rule_of("PartitionLog!AppendBatch", SOURCES).homes)


@pytest.mark.parametrize("name", ["AcceptsUnknownProducers", "Mirror!AcceptsUnknownProducer", "any_sequence_on_virgin"])
def test_a_name_that_no_operator_has_is_refused(name: str) -> None:
    with pytest.raises(UnknownOperator, match="no operator of the spec is named"):
        rule_of(name, SOURCES)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("AcceptUnknownProducer", "AcceptsUnknownProducer"),
        ("PartitionLog!AppendError", "ProducerState!AppendError, Transactions!AppendError\n"),  # of another module
    ],
)
def test_the_command_tells_the_nearest_names(name: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "impact", name]) == 2
    assert f"similar names: {near}" in capsys.readouterr().err


def test_the_command_shows_the_places_as_text_and_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["check", "impact", "EpochBump!BumpError", "--json", str(tmp_path / "impact.json")]) == 0
    shown = capsys.readouterr().out
    assert "spec (" in shown
    written = json.loads((tmp_path / "impact.json").read_text(encoding="utf-8"))
    assert written["operator"] == "BumpError"
    for place in written["places"]:
        assert f"{place['file']}:{place['line']}" in shown


def test_the_tutorial_on_changing_a_rule_shows_the_commands_output(found: list[Place]) -> None:
    text = (CLONE / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = text.split("$ kafka-eos check impact AcceptsUnknownProducer\n")[1].split("```")[0].splitlines()
    run = list(commands(rule_of("AcceptsUnknownProducer", SOURCES), found))
    real = list(map(without_number, told(found, run)))
    lines = [line.removesuffix(" …") for line in shown if line.strip() != "…"]
    assert [line for line in lines if not any(one.startswith(line) for one in real)] == []
    assert headings(lines) == headings(real)  # groups and kinds: neither has one that the other lacks


def headings(lines: list[str]) -> list[str]:
    return [line for line in lines if re.fullmatch(r"\S.*:|  \w+ \(…\)", line)]


def test_a_change_is_checked_by_commands_that_run_about_the_models_mutants_and_tests_of_the_rule() -> None:
    rule = rule_of("AcceptsUnknownProducer", SOURCES)
    run = list(commands(rule, impact(rule)))
    for command in run:
        program, *words = shlex.split(command)
        if program == "kafka-eos":
            parser, left = parser_of(words)
            parser.parse_args(left)  # ends the process if a word is wrong
    assert any(command.startswith("kafka-eos check models --update --kafka 4.3 --kafka 3.9 ") for command in run)
    assert "kafka-eos check graphs --mutant AnySequenceOnVirginPartition" in run
    assert "kafka-eos check proofs --queries append" in run
    assert "kafka-eos check contracts 'append guards'" in run
    mutant = [command for command in run if "VirginPartitionGap" in command]
    of_no_release = rule_of("Transactions!Verify", SOURCES)
    assert mutant
    assert not any("--kafka" in command for command in commands(of_no_release, []))


@pytest.mark.parametrize("name", ["MarkersWithoutLeader", "Transactions!Verify"])
def test_every_model_that_depends_on_a_rule_is_run_and_those_of_each_tier_in_a_line_of_their_own(name: str) -> None:
    rule = rule_of(name, SOURCES)
    updates = [command for command in commands(rule, []) if "check models --update" in command]
    named: dict[str, set[str]] = {}
    for command in updates:
        parser, left = parser_of(shlex.split(command)[1:])
        asked = parser.parse_args(left)
        assert named.setdefault(asked.tier, set(asked.models)) == set(asked.models), "by releases as by repaired rules"
        assert {REGISTRY.get(model).tier for model in asked.models} == {asked.tier}
    assert set.union(*named.values()) == {model.name for model in rule.models}
    by_release = [command for command in updates if "--kafka" in command]
    assert len(by_release) == (len(named) if name == "MarkersWithoutLeader" else 0)
    assert {"small", "full"} <= set(named)


def without_number(line: str) -> str:
    """A line of the answer with … for its numbers of lines and places, which change with every edit."""
    return re.sub(r":\d+  ", ":…  ", re.sub(r" \(\d+\)$", " (…)", line))


def test_without_z3_the_places_are_those_that_are_no_proofs(
    found: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: object) -> None:
        raise MissingExtra("needs the extra `prove`")

    monkeypatch.setattr(impact_module, "proofs", missing)
    without = impact(rule_of("AcceptsUnknownProducer", SOURCES))
    gone = [place for place in found if place not in without]
    assert gone
    assert all(place.kind == "proof" and "refuted by" in place.what for place in gone)
