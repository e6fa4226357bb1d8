import ast
from dataclasses import replace
from pathlib import Path

import pytest

import kafka_eos.machines
from kafka_eos.errors import ErrorCode
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.machines.broker import Broker
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos.machines.transaction_coordinator import TransactionMetadata
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.findings import concerned, read_findings
from kafka_eos_checks.models.registry import MalformedRegistry, Registry, Shipped
from kafka_eos_checks.models.releases import MARK, Releases, columns, marked, reached_findings, releases_of
from kafka_eos_checks.mutants.rules import MUTANTS, UnknownRule, mutated
from kafka_eos_checks.tla.modules import ModuleFolder


@pytest.fixture(scope="module")
def releases() -> Releases:
    return Releases()


def departures(releases: Releases) -> set[tuple[str, str]]:
    """The rules that the newest release has otherwise."""
    return {
        (rule.module, rule.name) for rule in releases.rules if releases.newest in rule.by_release or rule.unmodelled
    }


def test_the_rules_marked_in_the_spec_are_those_that_the_newest_release_has_otherwise(releases: Releases) -> None:
    assert set(marked(ModuleFolder(spec_folder()))) == departures(releases)


def test_a_mark_above_a_rule_without_an_entry_is_noticed(registry: Registry) -> None:
    module = registry.folder.parent / "Counter.tla"
    assert set(marked(ModuleFolder(registry.folder.parent))) == set()
    text = module.read_text(encoding="utf-8").replace("(* A client reads", f"(* {MARK}: twice. *)\n\n(* A client reads")
    module.write_text(text, encoding="utf-8")
    assert set(marked(ModuleFolder(registry.folder.parent))) == {("Counter", "Read")}


def test_the_reference_marks_the_same_rules_as_the_spec(releases: Releases) -> None:
    found = set()
    for file in Path(kafka_eos.machines.__path__[0]).glob("*.py"):
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef):
                continue
            if any(f"{MARK}:" in line for line in lines[node.lineno : node.end_lineno]):
                found.add((file.stem, node.name))
    assert found == {(snake_case(module), snake_case(name)) for module, name in departures(releases)}


def test_every_operator_of_a_release_has_its_function_and_every_finding_its_entry(releases: Releases) -> None:
    operators = {other for rule in releases.rules for other in rule.by_release.values()}
    assert [name for name in sorted(operators) if snake_case(name) not in MUTANTS] == []
    known = {finding.id for finding in read_findings()}
    assert {rule.finding for rule in releases.rules} - {""} <= known


def test_every_model_has_an_expectation_for_each_release_that_it_depends_on(releases: Releases) -> None:
    models = [model for model in Registry().models.values() if not model.expect.violates and model.tier != "deep"]
    found = [column for column in columns(models, releases.releases, releases) if column.rules]
    assert [column.name for column in found if column.expected(releases) is None] == []
    assert len(found) > 100


def test_an_expectation_names_rules_of_its_column_and_is_of_use(releases: Releases) -> None:
    for column in columns(Registry().models.values(), releases.releases, releases):
        if column.release in column.model.shipped:
            rules = {rule.name for rule in column.rules}
            assert rules, f"{column.name}: nothing runs, so delete its expectation"
            for name, causes in column.model.shipped[column.release].violates.items():
                assert set(causes.split(", ")) <= rules, f"{column.name}: {name}"


def test_a_model_has_the_rules_that_it_depends_on_and_no_others(releases: Releases) -> None:
    models = Registry().models

    def rules(name: str, release: str) -> list[str]:
        [column] = columns([models[name]], [release], releases)
        return [rule.name for rule in column.rules]

    assert rules("PartitionLog", "4.3") == ["SnapshotOf", "AcceptsUnknownProducer"]
    assert rules("Leader", "4.3") == ["AcceptsUnknownProducer", "SequenceError", "AskedAfterBatch", "QuestionVersion"]
    assert rules("TransactionCoordinatorVersion1", "3.9")[-2:] == ["GoesOn", "AnswerTo"]
    assert {"AddError", "InLog"} <= set(rules("TransactionCoordinatorVersion1", "3.9"))
    assert rules("BrokerVersion1", "4.3") == [
        "SnapshotOf",
        "AcceptsUnknownProducer",
        "SequenceError",
        "AskedAfterBatch",
        "QuestionVersion",
        "BumpError",
        "AfterRetryOfInit",
    ]
    assert rules("ApplicationLoop", "4.3") == []
    assert rules("FatalErrorFailsAll", "4.3")[0] == "AcceptsUnknownProducer"  # it has another SnapshotOf itself


def test_a_finding_is_of_a_model_if_a_rule_behind_it_is_in_a_module_of_the_model(releases: Releases) -> None:
    models = Registry().models

    def found(name: str, release: str) -> list[set[str]]:
        [column] = columns([models[name]], [release], releases)
        return [set(each) for each in reached_findings(column, releases)]

    assert found("PartitionLog", "4.3") == [{"retry-refused-after-restart", "gap-after-expiry"}, set()]
    assert found("ApplicationLoop", "4.3") == [set(), set()]


def test_no_step_comes_upon_a_finding_by_an_action_that_the_model_never_takes(releases: Releases) -> None:
    model = Registry().models["Broker"]
    [column] = columns([model], ["4.3"], releases)
    expected = column.expected(releases)
    assert expected is not None
    assert (expected.never, "Restart" in model.never) == (None, True)
    reached, others = reached_findings(column, releases)
    assert "retry-refused-after-restart" in others - reached


def test_rules_with_one_name_are_told_apart_by_the_module_that_has_them(releases: Releases) -> None:
    of_transactions, of_coordinator = releases.rule("Transactions", "AddError"), releases.rule("Broker", "AddError")
    assert of_transactions is not None
    assert of_coordinator is not None
    assert of_transactions.by_release == {"3.9": "FencedBeforePending"}
    assert of_coordinator.by_release == {"3.9": "IdentityBeforePending"}
    assert (of_transactions.key, of_coordinator.key) == ("AddError", "TransactionCoordinator!AddError")
    assert releases.rule("Leader", "AddError") is None
    assert not releases.has_alike("Transactions", "AddError", "3.9", "4.3")


def test_the_reference_has_the_rules_of_a_release_in_the_classes_that_a_machine_takes_over(releases: Releases) -> None:
    model = Registry().models["BrokerVersion1"]
    [column] = columns([model], ["3.9"], releases)
    machine = mutated(Broker, column.as_shipped.overrides)
    assert issubclass(machine, Broker)
    add_error = machine.COORDINATING(2, 1).add_error
    busy = TransactionMetadata(producer_id=1, epoch=1, state=TransactionState.EMPTY, pending=TransactionState.ONGOING)
    assert add_error(busy, 1, 0) is ErrorCode.PRODUCER_FENCED
    assert Broker.COORDINATING(2, 1).add_error(busy, 1, 0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert machine.LEADING.verification_error is not Broker.LEADING.verification_error
    assert machine.SEQUENCES.accepts_unknown_producer is not Broker.SEQUENCES.accepts_unknown_producer
    with pytest.raises(UnknownRule, match="has no rule data_error"):
        mutated(Broker, {"Transactions!DataError": "GuardBeforeEpoch"})


def test_a_model_depends_on_what_its_own_rules_use_instead_of_others(registry: Registry) -> None:
    folder = registry.folder.parent
    for file, line in (
        (folder / "Counter.tla", "Spare(x) == x"),
        (folder / "mutants" / "CounterMutants.tla", "UsesSpare(client, amount) == Spare(client)"),
    ):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("\n====", f"\n{line}\n====", 1), encoding="utf-8")
    with (folder / "releases.toml").open("a", encoding="utf-8") as table:
        table.write('\n[rule.Counter.Spare]\n"2.0" = "NoLimit"\nkafka = "Counter.spare"\nfinding = "lowest-sequence"\n')
    made, counter = Releases(folder), registry.get("Counter")

    def rules(**overrides: str) -> list[str]:
        [column] = columns([replace(counter, overrides=overrides)], ["2.0"], made)
        return [rule.name for rule in column.rules]

    assert rules() == ["AddError"]
    assert rules(AddError="UsesSpare") == ["Spare"]
    assert rules(NeverFull="UsesSpare") == ["AddError"], "nothing that is checked uses NeverFull"


def test_a_module_cannot_have_two_rules_of_one_name(registry: Registry) -> None:
    folder = registry.folder.parent
    more = '\n[rule.More.AddError]\n"2.0" = "NoLimit"\nkafka = "x"\n'
    (folder / "More.tla").write_text("---- MODULE More ----\nAddError == TRUE\n====", encoding="utf-8")
    (folder / "mutants" / "MoreMutants.tla").write_text("---- MODULE MoreMutants ----\nNoLimit == TRUE\n====")
    with (folder / "releases.toml").open("a", encoding="utf-8") as file:
        file.write(more)
    assert len(Releases(folder).rules) == 2
    (folder / "Both.tla").write_text("---- MODULE Both ----\nEXTENDS Counter\nOther == INSTANCE More\n====")
    with (folder / "releases.toml").open("a", encoding="utf-8") as file:
        file.write('\n[instances]\nBoth = ["More"]\n')
    with pytest.raises(MalformedRegistry, match="Both has two rules AddError"):
        Releases(folder)


def test_a_model_of_version_2_says_nothing_of_a_release_without_it(releases: Releases) -> None:
    models = Registry().models
    found = {column.model.name: column.outside for column in columns(models.values(), ["3.9"], releases)}
    assert found["Transactions"] == "Kafka 3.9 has no Versions = 2"
    assert found["TransactionsVersion1"] == ""
    assert found["SharePartition"] == "Kafka 3.9 has no DeliveryCountLimit = 2"
    assert found["MarkersVersion2"] == "Kafka 3.9 has no TransactionVersion = 2"
    assert found["TransactionalOffsetsUnverified"].startswith("TransactionalOffsets with FALSE is not stated for 3.9: ")
    assert found["TransactionalProducer"] == ""
    own = models["TransactionalProducerErrors"]
    version_1 = replace(own, constants={**own.constants, "Versions": "{1}"})
    reason = releases.outside(version_1, "3.9")
    assert reason.startswith('TransactionalProducer with "INVALID_PRODUCER_ID_MAPPING" is not stated for 3.9: ')
    assert releases.outside(version_1, "4.3") == ""


def test_releases_with_the_same_rules_share_an_expectation(registry: Registry) -> None:
    releases = Releases(registry.folder.parent)
    model = replace(registry.models["Counter"], shipped={"2.0": Shipped(states=7)})
    newer, older = columns([model], ["2.0", "1.0"], releases)
    assert newer.expected(releases) == older.expected(releases) == Shipped(states=7)
    assert columns([replace(model, shipped={})], ["1.0"], releases)[0].expected(releases) is None
    file = registry.folder.parent / "releases.toml"
    file.write_text(file.read_text(encoding="utf-8").replace('"1.0" = "NoLimit"\n', ""), encoding="utf-8")
    other = Releases(registry.folder.parent)
    newer, older = columns([model], ["2.0", "1.0"], other)
    assert (newer.expected(other), older.expected(other)) == (Shipped(states=7), None), "the older one has no such rule"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"2.0" = "NoLimit"', '"2.0" = "Nothing"', "CounterMutants.tla defines no Nothing"),
        ("[rule.Counter.AddError]", "[rule.Counter.Missing]", "Counter.tla defines no Missing"),
        ('kafka = "Counter.add"', 'source = "x"', "it takes 2.0, 1.0, kafka, finding, unmodelled"),
        ('"1.0" = "NoLimit"', 'unmodelled = "x"', "give the operator of a release, or unmodelled"),
        ('title = "the older one"', "", "it takes title, inherits, absent and unstated"),
        ('title = "the older one"', 'title = "x"\nunstated = { Other = { constant = "x" } }', "no module Other.tla"),
        (
            'title = "the older one"',
            'title = "x"\nunstated = { Counter = { constant = "Limit" } }',
            "takes constant, value and reason",
        ),
        ('title = "the newer one"', 'title = "x"\ninherits = "2.1"', "inherits = '2.1' is no release below it"),
        ('title = "the older one"', 'title = "x"\ninherits = "2.0"', "a release that inherits takes nothing but title"),
        ('"1.0" = "NoLimit"', '"1.0" = "AddError"', "1.0 inherits nothing"),
        ("[release", "[releases", "tables are"),
        ("[rule.Counter", '[instances]\nCounter = ["Other"]\n[rule.Counter', "Counter instantiates no Other"),
        ('title = "the older one"', "title = ", "no TOML"),
    ],
)
def test_a_table_of_releases_that_cannot_be_used_says_why(registry: Registry, old: str, new: str, reason: str) -> None:
    file = registry.folder.parent / "releases.toml"
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(MalformedRegistry) as error:
        Releases(registry.folder.parent)
    assert reason in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('shipped."2.0" = { violates = { Nowhere = "AddError" } }', "no such property holds here"),
        ('shipped."2.0" = { violates = "AddError" }', 'write shipped."4.3" ='),
        ("shipped = 3", 'write shipped."4.3" ='),
        ('shipped."2.0" = { states = "7" }', 'write shipped."4.3" ='),
        ('shipped."2.0" = { silent = "NotAboveLimit" }', "write a list of strings"),
        ('shipped."2.0" = { never = "Reset" }', "write a list of strings"),
    ],
)
def test_an_expectation_that_cannot_be_used_says_why(registry: Registry, line: str, reason: str) -> None:
    file = registry.folder / "Counter.toml"
    text = file.read_text(encoding="utf-8").replace('title = "two clients"', f'title = "two clients"\n{line}')
    file.write_text(text, encoding="utf-8")
    with pytest.raises(MalformedRegistry) as error:
        Registry(registry.folder)
    assert reason in str(error.value)


def test_a_result_is_written_after_those_of_newer_releases(registry: Registry) -> None:
    registry.update_shipped("Counter", "2.0", Shipped(states=7, violates={"NotAboveLimit": "AddError"}))
    again = Registry(registry.folder)
    again.update_shipped("Counter", "1.0", Shipped(states=8))
    again = Registry(registry.folder)
    newer = Shipped(states=9, silent=("NotAboveLimit",), never=("Reset",))
    again.update_shipped("Counter", "2.0", newer)
    found = Registry(registry.folder).models["Counter"].shipped
    assert list(found) == ["2.0", "1.0"]
    assert found == {"2.0": newer, "1.0": Shipped(states=8)}


def test_an_action_that_only_a_releases_rules_allow_is_taken_by_them(registry: Registry, releases: Releases) -> None:
    model = Registry().models["SharePartition"]
    shared, own = columns([model], ["3.9", "4.3"], releases)
    assert (shared.never(releases), own.never(releases)) == (("AcquireForNobody",), ())
    registry.update_shipped("Counter", "2.0", Shipped(states=9, never=()))
    assert Registry(registry.folder).models["Counter"].shipped["2.0"].never == ()


def test_a_release_inherits_the_rules_of_another_except_those_that_name_it(releases: Releases) -> None:
    reaction = releases.rule("TransactionalProducer", "OffsetCommitReaction")
    assert reaction is not None
    assert reaction.by_release == {"4.3": "KnowsErrorsOfNames", "3.9": "KnowsErrorsOfNames"}
    own, before = (releases.of_module("TransactionalProducer", name) for name in ("4.4", "4.3"))
    assert before.keys() - own.keys() == {"OffsetCommitReaction", "NamesTopicsById"}
    assert own.keys() - before.keys() == {"IsRetried"}
    assert {name: own[name] for name in own.keys() & before.keys()}.items() < before.items()
    modules = {model.module for model in Registry().models.values()}
    assert {module for module in modules if releases.stated(module, "4.4") != "4.3"} == {"TransactionalProducer"}


def test_releases_with_all_rules_of_a_module_in_common_share_its_columns(releases: Releases) -> None:
    models = [Registry().models[name] for name in ("PartitionLog", "TransactionalProducerErrors")]
    assert [column.name for column in columns(models, releases.releases, releases)] == [
        *(f"PartitionLog, Kafka {name}" for name in ("4.3", "3.9")),
        *(f"TransactionalProducerErrors, Kafka {name}" for name in ("4.4", "4.3", "3.9")),
    ]


def test_a_release_is_checked_under_the_name_of_the_one_that_has_its_rules(
    releases: Releases, capsys: pytest.CaptureFixture[str]
) -> None:
    assert releases.chosen("4.3", ["PartitionLog"]) == "4.3"
    assert releases.chosen("4.4", ["TransactionalProducer"]) == "4.4"
    assert capsys.readouterr().err == ""
    assert releases.chosen("4.4", ["PartitionLog", "Transactions"]) == "4.3"
    assert "Kafka 4.4 has the rules of 4.3, which are checked under that name (" in capsys.readouterr().err
    assert releases.chosen("4.4", ["PartitionLog", "TransactionalProducer"]) == "4.4"
    told = "Kafka 4.4 has the rules of 4.3, which are checked under that name, except in TransactionalProducer ("
    assert told in capsys.readouterr().err
    for modules in ([], ["PartitionLog"]):
        with pytest.raises(MalformedRegistry, match=r"no release '4\.5'; there are 4\.4, 4\.3, 3\.9"):
            releases.chosen("4.5", modules)


def test_a_release_that_inherits_has_what_the_other_one_lacks_and_may_have_the_rule_of_the_spec(
    registry: Registry,
) -> None:
    file = registry.folder.parent / "releases.toml"
    text = file.read_text(encoding="utf-8")
    text = text.replace('[release."1.0"]', 'inherits = "1.0"\n\n[release."1.0"]').replace('"2.0" = "NoLimit"\n', "")
    file.write_text(text, encoding="utf-8")
    found = Releases(registry.folder.parent)
    assert found.get("2.0").absent == found.get("1.0").absent == {"Limit": "9"}
    assert found.rules[0].by_release == {"2.0": "NoLimit", "1.0": "NoLimit"}
    assert found.stated("Counter", "2.0") == "1.0"
    file.write_text(text.replace('"1.0" = "NoLimit"', '"2.0" = "AddError"\n"1.0" = "NoLimit"'), encoding="utf-8")
    other = Releases(registry.folder.parent)
    assert other.rules[0].by_release == {"1.0": "NoLimit"}
    assert other.stated("Counter", "2.0") == "2.0"


def test_a_finding_concerns_the_releases_with_its_rule_and_those_with_the_same_rules() -> None:
    assert releases_of("late-offsets") == ("4.4", "4.3", "3.9")
    assert releases_of("no-leader-no-marker") == ("4.4", "4.3")
    said = {each.id: concerned(each) for each in read_findings()}
    assert said["late-offsets"] == "Kafka 4.4, 4.3 and 3.9"
    assert said["no-leader-no-marker"] == "Kafka 4.4 and 4.3"
    assert said["streams-reads-uncommitted"] == "Kafka Streams, of 4.4 and 4.3"
