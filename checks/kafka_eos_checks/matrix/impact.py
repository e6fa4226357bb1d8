"""The places that a change to a rule has to touch, or that check it: ``kafka-eos check impact OPERATOR``.

A rule is an operator of the spec. Its places follow from the modules, the registry of models, the tables of the methods
that check it, and the lines that name it in either of its names (``AppendError``, ``append_error``), or that name the
finding which Kafka's form of the rule causes. Nothing is listed by hand, so a place is missing only where a file names
neither the rule, nor a mutant of it, nor that finding.

An operator of the same name in another module counts too: often it is the same rule on another floor of the tower.
``Module!Name`` leaves it out, as far as the sources distinguish the two.
"""

import argparse
import inspect
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from typing import Any

from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks.contracts.conditions import CONTRACTS, Contract
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.missing import Missing, MissingExtra, need_clone
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.verdict import write_document
from kafka_eos_checks.matrix.mutant_requests import SERVED
from kafka_eos_checks.models.findings import KafkaFinding, read_findings
from kafka_eos_checks.models.registry import TIERS, MalformedRegistry, Model, Registry
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.mutants.rules import MUTANTS
from kafka_eos_checks.proofs.command import proofs
from kafka_eos_checks.tla.citations import citations, cited_operators
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import Definition
from kafka_eos_checks.walks.layers import WALKS

FOLDERS = ("spec", "reference", "checks", "tests", "examples", "docs")
SUFFIXES = (".tla", ".toml", ".py", ".java", ".md")
NOT_READ = ("CHANGELOG.md", "CONTRIBUTING.md", "impact.py", "test_impact.py")  # the past, the how-to, this command
_CHECKS = "checks/kafka_eos_checks/"
_WORD = re.compile(r"\w+")
_FUNCTION = re.compile(r" *def (\w+)")
# the start of a path -> the kind of a place there; the first match counts
KINDS: Mapping[str, str] = {
    "spec/conjuncts.toml": "conjuncts",
    "spec/mutants/": "mutant",
    "spec/proofs/": "proof",
    "spec/": "spec",
    "reference/kafka_eos/server/": "server",
    "reference/": "reference",
    f"{_CHECKS}mutants/": "mutant",
    f"{_CHECKS}matrix/conjuncts/": "conjuncts",
    f"{_CHECKS}proofs/": "proof",
    f"{_CHECKS}contracts/": "contract",
    f"{_CHECKS}audit/": "replay",
    f"{_CHECKS}matrix/mutant_replays.py": "replay",
    f"{_CHECKS}walks/": "walk",
    f"{_CHECKS}conform/": "conform",
    f"{_CHECKS}matrix/mutant_requests.py": "conform",
    f"{_CHECKS}ledger/claims.toml": "claim",
    f"{_CHECKS}models/findings.toml": "finding",
    "tests/": "test",
    "checks/": "check",
    "": "document",
}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "edit": ("spec", "reference", "server", "mutant"),
    "read, and edit what no longer holds": (
        *("conjuncts", "proof", "contract", "replay", "conform", "finding", "test", "check", "document"),
    ),
    "depends on it, and is checked by running": ("action", "property", "model", "claim", "walk"),
}
"""The groups of the kinds, by what to do with their places."""
ORDER = tuple(kind for kinds in GROUPS.values() for kind in kinds)
THEN_RUN = "then run"

EPILOG = """examples:
  kafka-eos check impact AcceptsUnknownProducer
  kafka-eos check impact TransactionalPartition!BatchError --json -

exit codes: 0 the places are shown, 2 no operator of the spec has this name
"""


class UnknownOperator(ValueError):  # noqa: N818 - named for what is unknown
    """A name that no operator of the spec has; the message has the nearest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place that a change to a rule touches.

    Attributes:
        kind: one of ``KINDS``' values, or "action", "model", "property".
        file: path from the root of the clone.
        line: number of the line, counted from 1.
        what: the content of that line.
    """

    kind: str
    file: str
    line: int
    what: str


@dataclass(frozen=True)
class Sources:
    """The project's files.

    Attributes:
        root: the clone.
    """

    root: Path = CLONE

    @cached_property
    def texts(self) -> dict[str, str]:
        """Path from the root -> contents."""
        files = [file for folder in FOLDERS for file in sorted((self.root / folder).rglob("*"))]
        files += sorted(self.root.glob("*.md"))
        read = [file for file in files if file.suffix in SUFFIXES and file.name not in NOT_READ]
        return {file.relative_to(self.root).as_posix(): file.read_text(encoding="utf-8") for file in read}

    @cached_property
    def lines(self) -> dict[str, list[str]]:
        """Path from the root -> lines."""
        return {path: text.splitlines() for path, text in self.texts.items()}

    @cached_property
    def spec(self) -> ModuleFolder:
        """The modules."""
        return ModuleFolder(self.spec_folder)

    @cached_property
    def acting(self) -> dict[tuple[str, str], dict[tuple[str, str], Definition]]:
        """Operator -> the actions that depend on it, also through instances; each by its module and its name."""
        found: dict[tuple[str, str], dict[tuple[str, str], Definition]] = defaultdict(dict)
        for name in self.spec.paths:
            steps = self.spec.actions(name, "Next") if "Next" in self.spec.operators(name) else {}
            for home, action in steps.values():
                for operator in self.spec.reached_through(name, action.name):
                    found[operator][home, action.name] = action
        return found

    @cached_property
    def checking(self) -> dict[tuple[str, str], list[Model]]:
        """Operator -> the models whose steps or properties depend on it, also through instances."""
        found: dict[tuple[str, str], list[Model]] = defaultdict(list)
        for model in self.registry.models.values():
            starts = (model.specification, *model.invariants, *model.properties)
            for operator in frozenset().union(*(self.spec.reached_through(model.module, name) for name in starts)):
                found[operator].append(model)
        return found

    @cached_property
    def naming(self) -> dict[str, list[tuple[str, Definition, str]]]:
        """Operator -> the definitions whose body names it: module, definition, and the instance in front or ""."""
        found: dict[str, list[tuple[str, Definition, str]]] = defaultdict(list)
        for module in self.spec.paths:
            for own in self.spec.module(module).definitions.values():
                for name in sorted(self.spec.asked(module, own.name)):
                    instance, _, operator = name.rpartition("!")
                    found[operator].append((module, own, instance))
        return found

    @property
    def spec_folder(self) -> Path:
        """The folder of the modules."""
        return self.root / "spec"

    @cached_property
    def findings(self) -> list[KafkaFinding]:
        """The findings in Kafka."""
        return read_findings()

    @cached_property
    def releases(self) -> Releases:
        """The rules that releases of Kafka have otherwise."""
        return Releases(self.spec_folder)

    @cached_property
    def registry(self) -> Registry:
        """The models and mutants."""
        return Registry(self.spec_folder / "models")

    def place(self, kind: str, file: Path | str, line: int, what: str) -> Place:
        """A place in a file of the project."""
        path = Path(file)
        name = path.relative_to(self.root) if path.is_absolute() else path
        return Place(kind=kind, file=name.as_posix(), line=line, what=what)

    @cached_property
    def methods(self) -> list[tuple[str, int, str, frozenset[str]]]:
        """The functions of the reference: file, line, name, and the modules that the file cites."""
        found = []
        for path, text in self.texts.items():
            if kind_of(path) == "reference" and path.endswith(".py"):
                modules = frozenset(
                    one.module
                    for each in citations(Path(path), text)
                    if each.label == "Spec"
                    for one in cited_operators(each)
                )
                found += [
                    (path, number, function[1], modules)
                    for number, line in enumerate(self.lines[path], start=1)
                    if (function := _FUNCTION.match(line))
                ]
        return found

    @cached_property
    def words(self) -> dict[str, frozenset[str]]:
        """Path from the root -> its words; without the modules and the registry of models."""
        return {
            path: frozenset(_WORD.findall(text))
            for path, text in self.texts.items()
            if not path.endswith(".tla") and not path.startswith("spec/models/")
        }

    def lines_with(self, words: Set[str]) -> Iterator[tuple[str, int]]:
        """The lines that have one of some words, by file and number."""
        for path in (path for path, own in self.words.items() if not words.isdisjoint(own)):
            for number, line in enumerate(self.lines[path], start=1):
                if not words.isdisjoint(_WORD.findall(line)):
                    yield path, number

    @cached_property
    def cited(self) -> dict[str, list[tuple[str, int, str]]]:
        """Operator -> the lines that cite it after ``Spec:``, each with the module that the citation names."""
        found: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
        for path, text in self.texts.items():
            for each in citations(Path(path), text):
                for one in cited_operators(each) if each.label == "Spec" else ():
                    found[one.operator].append((path, each.line, one.module))
        return found

    def line_of(self, file: Path | str, pattern: str) -> int:
        """The first line that matches a pattern; 1 if none does."""
        name = Path(file)
        text = self.texts[(name.relative_to(self.root) if name.is_absolute() else name).as_posix()]
        found = re.search(pattern, text, re.MULTILINE)
        return 1 + text.count("\n", 0, found.start()) if found else 1


def kind_of(path: str) -> str:
    """The kind of a place in a file."""
    return next(kind for start, kind in KINDS.items() if path.startswith(start))


@dataclass(frozen=True)
class Rule:
    """An operator of the spec, in the modules that define it.

    Attributes:
        name: the operator's name.
        homes: the modules.
        sources: the project's files.
    """

    name: str
    homes: tuple[str, ...]
    sources: Sources

    @property
    def method(self) -> str:
        """The rule's name in the reference."""
        return snake_case(self.name)

    @cached_property
    def modules(self) -> list[str]:
        """The modules in which the operator is visible."""
        spec = self.sources.spec
        return [name for name in spec.paths if spec.operators(name).get(self.name, ("",))[0] in self.homes]

    @cached_property
    def mutants(self) -> list[Model]:
        """The mutants, and the models that must fail, that replace the operator."""
        every = (*self.sources.registry.models.values(), *self.sources.registry.mutants.values())
        own = (entry for entry in every if entry.module in self.modules)
        return [entry for entry in own if self.name in entry.overrides and entry.expect.violates]

    @cached_property
    def models(self) -> list[Model]:
        """The models that check the rule: their steps or their properties depend on it."""
        found = {each.name: each for home in self.homes for each in self.sources.checking.get((home, self.name), ())}
        return [entry for name, entry in self.sources.registry.models.items() if name in found]

    @cached_property
    def actions(self) -> dict[tuple[str, str], Definition]:
        """The actions that depend on the rule, by module and name."""
        return {place: each for home in self.homes for place, each in self.sources.acting[home, self.name].items()}

    def is_reached(self, module: str, operator: str) -> bool:
        """Whether an operator that a module sees depends on the rule, also through instances."""
        return any((home, self.name) in self.sources.spec.reached_through(module, operator) for home in self.homes)

    @property
    def users(self) -> Iterator[tuple[str, Definition]]:
        """The operators whose own body names the rule, of their module or of an instance there."""
        for module, definition, instance in self.sources.naming[self.name]:
            seen_in = self.sources.spec.instances(module).get(instance) if instance else module
            if seen_in in self.modules:
                yield module, definition

    def is_of(self, contract: Contract) -> bool:
        """Whether a contract is about the rule."""
        return any(self.method in about for about in contract.about.values())

    def judged(self, model: Model) -> list[str]:
        """The properties of a model."""
        return [*model.invariants, *model.properties]


def rule_of(name: str, sources: Sources) -> Rule:
    """The rule of a name: ``Operator``, ``Module!Operator``, or the method's name.

    Raises:
        UnknownOperator: no module of the spec defines it.
    """
    module, _, operator = name.rpartition("!")
    spec = sources.spec
    defined: dict[str, list[str]] = {}
    for each in spec.paths:
        if kind_of(spec.paths[each].relative_to(sources.root).as_posix()) == "spec":
            for found in spec.module(each).definitions:
                defined.setdefault(found, []).append(each)
    own = operator if operator in defined else next((one for one in defined if snake_case(one) == operator), "")
    homes = [each for each in defined.get(own, ()) if module in {"", each}]
    if not homes:
        known = [f"{home}!{one}" for one, homes in defined.items() for home in homes] if module else list(defined)
        elsewhere = [f"{each}!{own}" for each in defined.get(own, ())]
        near = elsewhere or get_close_matches(name, known, n=5, cutoff=0.5)
        known_by = f"; similar names: {', '.join(near)}" if near else "; see the modules in spec/ for all operators"
        raise UnknownOperator(f"no operator of the spec is named {name}{known_by}")
    return Rule(own, tuple(homes), sources)


def impact(rule: Rule) -> list[Place]:
    """The places of a rule, starting with its definitions, each file and line once."""
    found: dict[tuple[str, int], Place] = {}
    for place in (*_in_spec(rule), *_in_reference(rule), *_in_registry(rule), *_by_methods(rule), *_by_name(rule)):
        found.setdefault((place.file, place.line), place)
    return sorted(found.values(), key=lambda place: (ORDER.index(place.kind), place.file, place.line))


def _in_spec(rule: Rule) -> Iterator[Place]:
    """A rule's definitions, the actions and properties that depend on it, and the operators that use it."""
    spec, place = rule.sources.spec, rule.sources.place
    for home in rule.homes:
        yield place("spec", spec.paths[home], spec.module(home).definitions[rule.name].line, f"{home}!{rule.name}")
    for (home, name), action in rule.actions.items():
        yield place("action", spec.paths[home], action.line, f"{home}!{name} depends on it")
    judged = {(model.module, name) for model in (*rule.models, *rule.mutants) for name in rule.judged(model)}
    named = {model.expect.violates for model in rule.mutants}
    for module, name in sorted(judged):
        home, found = spec.operators(f"{module}Mutants" if f"{module}Mutants" in spec.paths else module)[name]
        if name in named or rule.is_reached(module, name):
            breaks = [mutant.name for mutant in rule.mutants if mutant.expect.violates == name]
            what = f"{home}!{name}" + (f" breaks with {', '.join(breaks)}" if breaks else " depends on it")
            yield place("property", spec.paths[home], found.line, what)
    for name, other in rule.users:
        kind = kind_of(spec.paths[name].relative_to(rule.sources.root).as_posix())
        yield place(kind, spec.paths[name], other.line, f"{name}!{other.name} uses it")


def _in_reference(rule: Rule) -> Iterator[Place]:
    """A rule's methods: functions of its name in files of the reference that cite a module in which it is visible.

    And the tests of the machines that depend on it.
    """
    for path, line, name, modules in rule.sources.methods:
        if name == rule.method and modules & set(rule.modules):
            yield rule.sources.place("reference", path, line, f"def {name}")
    for module in sorted({*rule.homes, *(entry.module for entry in rule.models)}):
        path = f"tests/reference/machines/test_{snake_case(module)}.py"
        if path in rule.sources.texts:
            yield rule.sources.place("test", path, 1, f"the tests of {module}")


def _in_registry(rule: Rule) -> Iterator[Place]:
    """The entries of models and mutants, the texts of each mutated rule, and the claims and findings of the entries."""
    place, spec = rule.sources.place, rule.sources.spec
    for entry in (*rule.mutants, *rule.models):
        kind = "mutant" if entry in rule.mutants else "model"
        what = f"{entry.name}: {entry.title}"
        yield place(kind, entry.file, _entry_line(rule, entry), what)
    for entry in rule.mutants:
        other = entry.overrides[rule.name]
        home, found = spec.operators(f"{entry.module}Mutants")[other]
        yield place("mutant", spec.paths[home], found.line, f"{home}!{other}")
        function = MUTANTS.get(snake_case(other))
        if function is not None:
            yield place("mutant", inspect.getsourcefile(function) or "", _line(function), f"def {snake_case(other)}")
    entries = {entry.name for entry in (*rule.mutants, *rule.models)}
    for claim in sorted({claim for entry in (*rule.mutants, *rule.models) for claim in entry.claims}):
        file = f"{_CHECKS}ledger/claims.toml"
        yield place("claim", file, rule.sources.line_of(file, rf'^id = "{claim}"'), f"{claim}, settled by its models")
    for finding in rule.sources.findings:
        if entries & {*finding.models, *finding.mended}:
            file = f"{_CHECKS}models/findings.toml"
            yield place("finding", file, rule.sources.line_of(file, rf'^id = "{finding.id}"'), finding.title)
    for shipped in rule.sources.releases.rules:
        if shipped.finding and shipped.name == rule.name and shipped.module in rule.homes:
            for path, text in rule.sources.texts.items():
                for number, line in enumerate(rule.sources.lines[path] if shipped.finding in text else (), start=1):
                    if re.search(rf"\b{shipped.finding}\b", line):
                        yield place(kind_of(path), path, number, line.strip())


def _by_methods(rule: Rule) -> Iterator[Place]:
    """The places in the methods' tables: conjuncts, proofs, contracts, rules of the audit, walks, raw requests."""
    sources = rule.sources
    for contracts in CONTRACTS.values():
        for contract in contracts:
            if rule.is_of(contract):
                file = inspect.getsourcefile(contract.promise) or ""
                yield sources.place("contract", file, _line(contract.promise), contract.promise.__name__)
    yield from _proofs(rule)
    for mutant in rule.mutants:
        if mutant.replay:
            yield _audit_rule(sources, mutant.replay)
    for module in sorted({entry.module for entry in (*rule.mutants, *rule.models)}):
        tables = (("walk", f"{_CHECKS}walks/layers.py", WALKS, "WALKS"),
                  ("conform", f"{_CHECKS}matrix/mutant_requests.py", SERVED, "SERVED"))  # fmt: skip
        for kind, file, table, name in tables:
            if module in table:
                line = sources.line_of(file, rf'^    "{module}": ')
                yield sources.place(kind, file, line, f"{name} of {module}")


def _proofs(rule: Rule) -> Iterator[Place]:
    """The proofs that a mutant of the rule refutes, or that name an action that depends on it."""
    try:
        every = proofs(())
    except MissingExtra:
        return
    for proof in every:
        file = f"{_CHECKS}proofs/{proof.name}.py"
        refuting = [mutant.name for mutant in rule.mutants if proof.is_refuted_by(mutant)]
        taken = [name for _, name in rule.actions if re.search(_mention(name), rule.sources.texts[file])]
        if refuting or taken:
            line = rule.sources.line_of(file, r"^PROOF = ")
            why = f"refuted by {', '.join(refuting)}" if refuting else f"about {', '.join(dict.fromkeys(taken))}"
            yield rule.sources.place("proof", file, line, f"{proof.name}: {why}")


def _is_proof(place: Place) -> bool:
    """Whether a place is one of :func:`_proofs`, and not a line in a proof."""
    return place.kind == "proof" and place.what.startswith(f"{Path(place.file).stem}: ")


def _audit_rule(sources: Sources, name: str) -> Place:
    """The place where the audit names a rule."""
    pattern = rf'^[A-Z_, ]+ = .*"{re.escape(name)}"'
    files = [path for path in sources.texts if path.startswith(f"{_CHECKS}audit/")]
    file = next(path for path in files if re.search(pattern, sources.texts[path], re.MULTILINE))
    return sources.place("replay", file, sources.line_of(file, pattern), f"the audit's rule {name!r}")


def _by_name(rule: Rule) -> Iterator[Place]:
    """The lines that name the rule or a mutant of it, cite it, or are about a conjunct of it."""
    sources = rule.sources
    others = {entry.overrides[rule.name] for entry in rule.mutants} | {mutant.name for mutant in rule.mutants}
    names = sorted({rule.name, *others})
    named = re.compile("|".join(map(_mention, names)))
    # a line that cites an operator of this name in a module where the rule is not visible is about another rule
    elsewhere = {(path, line) for path, line, module in sources.cited[rule.name] if module not in rule.modules}
    words = {word for name in names for word in (name, snake_case(name), snake_case(name).upper())}
    for path, number in sorted({*sources.lines_with(words)} - elsewhere):
        line = sources.lines[path][number - 1]
        if named.search(line):
            yield sources.place(kind_of(path), path, number, line.strip())


def _mention(name: str) -> str:
    """A pattern for lines that name an operator. Its name may be an ordinary word, such as ``Verify``."""
    method = snake_case(name)
    if "_" in method:
        return rf"\b{name}\b|\b{method}\b|\b{method.upper()}\b"
    return rf"[!\"'`]{name}\b|(?:\.|\bdef ){method}\(|[\"'`]{method}[\"'`]"


def _line(function: Any) -> int:
    return inspect.getsourcelines(function)[1]


def _entry_line(rule: Rule, entry: Model) -> int:
    return rule.sources.line_of(entry.file, rf"^\[{entry.kind}\.{re.escape(entry.name)}\]")


# --- the commands that check a change ---------------------------------------------------------------------------------


def commands(rule: Rule, places: Sequence[Place]) -> Iterator[str]:
    """The commands that check a change to a rule, in the order in which one failure explains the next."""
    every = rule.sources.releases
    found = filter(None, (every.rule(module, rule.name) for module in rule.homes))
    names = dict.fromkeys(every.stated(each.module, name) for each in found for name in each.by_release)
    releases = "".join(f" --kafka {name}" for name in names)
    for tier in TIERS:
        if models := " ".join(entry.name for entry in rule.models if entry.tier == tier):
            of_tier = "" if tier == TIERS[0] else f" --tier {tier}"
            yield f"kafka-eos check models --update{of_tier} {models}"
            if releases:
                yield f"kafka-eos check models --update{of_tier}{releases} {models}"
    if graphs := [entry.name for entry in rule.models if entry.graph == "small"]:
        yield f"kafka-eos check graphs {' '.join(graphs)}"
    for mutant in rule.mutants:
        if mutant.kind == "mutant":
            yield f"kafka-eos check models {mutant.name}"
            yield f"kafka-eos check graphs --mutant {mutant.name}"
    if refuted := dict.fromkeys(Path(place.file).stem for place in places if _is_proof(place)):
        yield f"kafka-eos check proofs --queries {' '.join(refuted)}"
    if subjects := [name for name, contracts in CONTRACTS.items() if any(map(rule.is_of, contracts))]:
        yield f"kafka-eos check contracts {' '.join(map(shlex.quote, subjects))}"
    if any(place.kind == "walk" for place in places):
        yield "kafka-eos check walks"
    yield f"kafka-eos check conjuncts {' '.join(rule.homes)}"
    yield "kafka-eos check mutants"
    if tests := dict.fromkeys(place.file for place in places if place.kind == "test" and place.file.endswith(".py")):
        yield f"pytest {' '.join(tests)}"
    yield "make test"


# --- the command ------------------------------------------------------------------------------------------------------


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``impact``."""
    parser = subparsers.add_parser(
        "impact",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("operator", metavar="OPERATOR", help="an operator of the spec, as Operator or Module!Operator")
    add_json(parser, "the places")
    parser.set_defaults(run=run)


def told(places: Sequence[Place], run: Iterable[str]) -> Iterator[str]:
    """The places as text, by group and kind, and the commands to run."""
    for group, kinds in GROUPS.items():
        if any(place.kind in kinds for place in places):
            yield f"{group}:"
        for kind in kinds:
            own = [place for place in places if place.kind == kind]
            yield from [f"  {kind} ({len(own)})"] if own else []
            for place in own:
                yield f"    {place.file}:{place.line}  {shorten(place.what, 100, placeholder=' …')}"
    yield f"{THEN_RUN}:"
    yield from (f"  {command}" for command in run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``impact``."""
    try:
        need_clone("the sources, the specs and the tests")
        rule = rule_of(arguments.operator, Sources())
        places = impact(rule)
        run = list(commands(rule, places))
    except (UnknownOperator, Missing, MalformedRegistry) as error:
        print(f"kafka-eos check impact: {error}", file=sys.stderr)
        return 2
    print("\n".join(told(places, run)))
    if arguments.json:
        rows = [asdict(place) for place in places]
        named = {"operator": rule.name, "modules": list(rule.homes)}
        write_document(arguments.json, {**named, "places": rows, "run": run})
    return 0
