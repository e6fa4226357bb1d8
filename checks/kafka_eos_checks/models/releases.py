"""Columns of releases: the rules of Kafka as it shipped, all at once, where the spec has others.

``spec/releases.toml`` is the one place that says it. A rule of the spec that a release has otherwise has an entry there
with the operator of ``spec/mutants`` that is Kafka's; a rule that the newest of the releases has otherwise is marked
``Departs from Kafka`` in its module. :func:`shipped` puts the rules of a release into a model, so that TLC, and the
reference through :mod:`kafka_eos_checks.mutants.rules`, check that Kafka. ::

    [release."4.4"]
    title = "Apache Kafka 4.4, with its Java client"
    inherits = "4.3"                                   # it has the rules of this release, except those that name it

    [release."4.3"]
    title = "Apache Kafka 4.3, with its Java client"

    [release."3.9"]
    title = "Apache Kafka 3.9"
    absent = { Versions = "2" }                        # a model with this value in the constant is not of this release
    unstated = { TransactionalProducer = { constant = "Errors", value = '"X"', reason = "" } }  # a module without
                                                       # this release's rules where a constant has this value

    [instances]                                        # modules whose rules a module takes over by INSTANCE
    Broker = ["Leader", "TransactionCoordinator"]

    [rule.ProducerState.SnapshotOf]
    "4.3" = "LastBatchOnly"
    "3.9" = "LastBatchOnly"
    kafka = "ProducerStateManager.writeSnapshot"       # where Kafka has its rule, or the change that brought the spec's
    finding = "retry-refused-after-restart"            # of the ledger, if the rule is the cause of one

    [rule.TransactionalProducer.OffsetCommitReaction]
    "4.4" = "OffsetCommitReaction"                     # the spec's own: what it would inherit does not count
    "4.3" = "KnowsErrorsOfNames"

What is judged of a release is judged of those that inherit all of its rules of the module: they share one run
(:meth:`Releases.stated`).
"""

import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Shipped
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.values import parse_value

MARK = "Departs from Kafka"
CHECK = "release"  # the kind of the verdicts on columns
SAYS_NOTHING = "says nothing"  # of a property that holds in a column where its witness is out of reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of Kafka.

    Attributes:
        name: as Kafka numbers it, without the last number.
        title: one line.
        inherits: the release whose rules it has, except those that name it; "" if it has only its own.
        absent: constant -> a value that no model of this release has in it.
        unstated: module -> ``constant``, ``value``, and the ``reason`` why its rules are not stated for them.
    """

    name: str
    title: str
    inherits: str = ""
    absent: Mapping[str, str] = field(default_factory=dict)
    unstated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of the spec that a release has otherwise.

    Attributes:
        module: the module that defines the rule.
        name: its operator.
        by_release: release -> the operator that is Kafka's; a release that inherits it is among them.
        kafka: where Kafka has its rule.
        finding: id of the finding that it causes, or "".
        unmodelled: why no operator can say Kafka's rule, or "".
        instanced: whether the model at hand has the module as an instance, and does not extend it.
    """

    module: str
    name: str
    by_release: Mapping[str, str]
    kafka: str
    finding: str = ""
    unmodelled: str = ""
    instanced: bool = False

    @property
    def key(self) -> str:
        """The rule's name among the overrides of the model at hand."""
        return f"{self.module}!{self.name}" if self.instanced else self.name


@cache
def _read_once() -> dict[str, Any]:
    return tomllib.loads((spec_folder() / "releases.toml").read_text(encoding="utf-8"))


@cache
def releases_of(finding: str) -> tuple[str, ...]:
    """The releases with a rule that causes a finding, the newest first; :class:`Releases` checks them by the modules.

    It reads no module, because the modules take as long as everything else in a short audit.
    """
    content = _read_once()
    rules = [row for rows in content["rule"].values() for row in rows.values() if row.get("finding") == finding]
    parents = {name: own.get("inherits", "") for name, own in content["release"].items()}
    return tuple(name for name in parents if any(_named_by(row, name, parents) in row for row in rules))


def _named_by(row: Mapping[str, Any], release: str, parents: Mapping[str, str]) -> str:
    """The release that a rule names for one: itself, or the nearest that it inherits from; "" if there is none."""
    while release and release not in row:
        release = parents[release]
    return release


class Releases:
    """The rules of ``spec/releases.toml``.

    Attributes:
        releases: the releases by name, the newest first.
        modules: the modules of the spec.
        rules: every rule that some release has otherwise.
        instances: module -> the modules whose rules it takes over by INSTANCE.
    """

    def __init__(self, spec: Path | None = None) -> None:
        """Read and validate.

        Args:
            spec: the folder of the modules and of ``releases.toml``; by default the project's.

        Raises:
            MalformedRegistry: with the first thing that is wrong.
        """
        self.file = (spec or spec_folder()) / "releases.toml"
        try:
            content = tomllib.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise MalformedRegistry(f"{self.file}: no TOML: {error}") from None
        if content.keys() - {"instances"} != {"release", "rule"}:
            raise MalformedRegistry(f'{self.file}: tables are [release."4.3"], [instances] and [rule.Module.Operator]')
        self.modules = ModuleFolder(self.file.parent)
        self._scopes: dict[str, list[Rule]] = {}
        own = {name: self._release(name, row) for name, row in content["release"].items()}
        self.releases: dict[str, Release] = self._inheriting(own)
        self.rules = [
            self._rule(module, name, row) for module, rows in content["rule"].items() for name, row in rows.items()
        ]
        self.instances: dict[str, list[str]] = content.get("instances", {})
        for module, others in self.instances.items():
            known = self.modules.instances(module).values() if module in self.modules.paths else ()
            if missing := set(others) - set(known):
                raise MalformedRegistry(f"{self.file} [instances]: {module} instantiates no {min(missing)}")
        for module in self.modules.paths:
            names = [rule.name for rule in self.of_scope(module)]
            if twice := {name for name in names if names.count(name) > 1}:
                raise MalformedRegistry(f"{self.file}: {module} has two rules {min(twice)}; rename the operator of one")

    def _release(self, name: str, row: Mapping[str, Any]) -> Release:
        where = f'{self.file} [release."{name}"]'
        if row.keys() - {"title", "inherits", "absent", "unstated"} or "title" not in row:
            raise MalformedRegistry(f"{where}: it takes title, inherits, absent and unstated, and has {', '.join(row)}")
        if "inherits" in row and row.keys() != {"title", "inherits"}:
            raise MalformedRegistry(f"{where}: a release that inherits takes nothing but title; delete the rest")
        for module, value in row.get("unstated", {}).items():
            if module not in self.modules.paths:
                raise MalformedRegistry(f"{where}: no module {module}.tla; correct 'unstated'")
            if value.keys() != {"constant", "value", "reason"}:
                raise MalformedRegistry(f"{where}: unstated.{module} takes constant, value and reason")
        return Release(name=name, **row)

    def _inheriting(self, found: Mapping[str, Release]) -> dict[str, Release]:
        """The releases, with what they inherit besides rules."""
        names = list(found)
        for at, one in enumerate(found.values()):
            if one.inherits and one.inherits not in names[at + 1 :]:
                raise MalformedRegistry(
                    f'{self.file} [release."{one.name}"]: inherits = {one.inherits!r} is no release below it'
                )
        told: dict[str, Release] = {}
        for one in map(found.__getitem__, reversed(names)):
            parent = told[one.inherits] if one.inherits else one
            told[one.name] = replace(one, absent=parent.absent, unstated=parent.unstated)
        return {name: told[name] for name in names}

    def _rule(self, module: str, name: str, row: Mapping[str, Any]) -> Rule:
        where = f"{self.file} [rule.{module}.{name}]"
        rest = {key: value for key, value in row.items() if key not in self.releases}
        by_release = {key: value for key, value in row.items() if key in self.releases}
        if rest.keys() - {"kafka", "finding", "unmodelled"} or "kafka" not in rest:
            known = ", ".join([*self.releases, "kafka", "finding", "unmodelled"])
            raise MalformedRegistry(f"{where}: it takes {known}, and has {', '.join(row)}")
        if bool(by_release) == ("unmodelled" in rest):
            raise MalformedRegistry(f"{where}: give the operator of a release, or unmodelled = the reason")
        if not self.modules.defines(module, name):
            raise MalformedRegistry(f"{where}: {module}.tla defines no {name}; correct the table's name")
        for release, other in by_release.items():
            if other == name:
                if not self.releases[release].inherits:
                    raise MalformedRegistry(f"{where}: {release} inherits nothing; a rule of the spec needs no line")
            elif not self.modules.defines(f"{module}Mutants", other):
                raise MalformedRegistry(f"{where}: {module}Mutants.tla defines no {other}; define it there")
        parents = {release: one.inherits for release, one in self.releases.items()}
        named = {release: by_release.get(_named_by(by_release, release, parents), name) for release in self.releases}
        otherwise = {release: other for release, other in named.items() if other != name}
        return Rule(module=module, name=name, by_release=otherwise, **rest)

    def get(self, name: str) -> Release:
        """The release of that name.

        Raises:
            MalformedRegistry: when there is none.
        """
        if name not in self.releases:
            raise MalformedRegistry(f"{self.file}: no release {name!r}; there are {', '.join(self.releases)}")
        return self.releases[name]

    def stated(self, module: str, release: str) -> str:
        """The release under whose name a module is judged by the rules of one: the oldest that has the same rules."""
        scope = self.of_scope(module)
        one = self.get(release)
        while one.inherits and all(
            rule.by_release.get(one.name) == rule.by_release.get(one.inherits) for rule in scope
        ):
            one = self.get(one.inherits)
        return one.name

    def chosen(self, name: str, modules: Iterable[str]) -> str:
        """The release to check where a caller has named one: that of :meth:`stated`, if it is one for all modules.

        Standard error tells of each module that is judged under the name of another release.

        Raises:
            MalformedRegistry: as :meth:`get`.
        """
        self.get(name)
        by_module = {module: self.stated(module, name) for module in modules}
        own = sorted(module for module, release in by_module.items() if release == name)
        for release in sorted(set(by_module.values()) - {name}):
            but = f", except in {', '.join(own)}" if own else ""
            told = f"Kafka {name} has the rules of {release}, which are checked under that name{but} ({self.file})"
            print(f"kafka-eos: {told}", file=sys.stderr)
        return name if own or not by_module else next(iter(by_module.values()))

    @property
    def newest(self) -> str:
        """The release that the marks in the modules are about."""
        return next(iter(self.releases))

    def of_scope(self, module: str) -> list[Rule]:
        """The rules that a module has: its own, those of modules that it extends, and those that it takes over."""
        if module not in self._scopes:
            chain = {one.name for one in self.modules.chain(module)}
            taken = {one.name for other in self.instances.get(module, ()) for one in self.modules.chain(other)}
            found = [rule for rule in self.rules if rule.module in chain | taken]
            self._scopes[module] = [replace(rule, instanced=rule.module not in chain) for rule in found]
        return self._scopes[module]

    def rule(self, module: str, name: str) -> Rule | None:
        """The rule that a module has under this name, None if no release has it otherwise."""
        return next((rule for rule in self.of_scope(module) if rule.name == name), None)

    def has_alike(self, module: str, name: str, one: str, other: str) -> bool:
        """Whether two releases have the same operator of Kafka's for a rule; a rule of neither counts as repaired."""
        rule = self.rule(module, name)
        return one == other or (rule is not None and rule.by_release.get(one, "") == rule.by_release.get(other, None))

    def findings(self, module: str, causes: str) -> list[str]:
        """The ids of the findings behind some rules.

        Args:
            module: the module that has them.
            causes: names of rules, separated by commas.
        """
        found = [rule.finding for name in causes.split(", ") if (rule := self.rule(module, name)) and rule.finding]
        return list(dict.fromkeys(found))

    def outside(self, model: Model, release: str) -> str:
        """Why a model says nothing about a release; "" if it does."""
        found = self.get(release)
        for name, value in found.absent.items():
            if _has(model, name, value):
                return f"Kafka {release} has no {name} = {value}"
        for module in self.modules.chain(model.module):
            row = found.unstated.get(module.name)
            if row is not None and _has(model, row["constant"], row["value"]):
                return f"{module.name} with {row['value']} is not stated for {release}: {row['reason']}"
        return ""

    def replaced(self, model: Model, release: str) -> list[Rule]:
        """The rules that a model depends on and that a release has otherwise.

        A rule for which the model itself has another one is left out.
        """
        found = [rule for rule in self.of_scope(model.module) if release in rule.by_release]
        reached = self._reached(model, found, release) if found else frozenset()
        return [rule for rule in found if (rule.module, rule.name) in reached and rule.key not in model.overrides]

    def of_module(self, module: str, release: str) -> dict[str, str]:
        """The rules that a release has otherwise, of a module and of those that it extends, each with Kafka's operator.

        A rule that the specification does not use is left out.
        """
        used = self.modules.reached_through(module, "Spec")
        found = [rule for rule in self.of_scope(module) if (rule.module, rule.name) in used]
        return {rule.key: rule.by_release[release] for rule in found if release in rule.by_release}

    def unmodelled(self, model: Model) -> list[Rule]:
        """The rules that a model depends on, and whose form in Kafka no operator says."""
        found = [rule for rule in self.of_scope(model.module) if rule.unmodelled]
        reached = self.modules.reached_through(model.module, model.specification)
        return [rule for rule in found if (rule.module, rule.name) in reached]

    def _reached(self, model: Model, rules: Iterable[Rule], release: str) -> frozenset[tuple[str, str]]:
        """The operators that a model depends on, by what it checks or by the rules that take another one's place.

        Returns:
            Each as (module, operator).
        """
        starts = [model.specification, *model.invariants, *model.properties, *([model.bounds] if model.bounds else [])]
        found: set[tuple[str, str]] = set()
        for module in (model.module, f"{model.module}Bounds"):
            found = found.union(*(self.modules.reached_through(module, start) for start in starts))
        for name, other in model.overrides.items():
            if name in {operator for _, operator in found}:
                found |= self.modules.reached_through(f"{model.module}Mutants", other)
        for rule in rules:
            if (rule.module, rule.name) in found:
                found |= self.modules.reached_through(f"{rule.module}Mutants", rule.by_release[release])
        return frozenset(found)


def _has(model: Model, name: str, value: str) -> bool:
    """Whether a constant of a model is a value, or a set with it."""
    if name not in model.constants:
        return False
    constant = parse_value(model.constants[name])
    return parse_value(value) in (constant if isinstance(constant, frozenset) else {constant})


def shipped(model: Model, rules: Iterable[Rule], release: str) -> Model:
    """The model with rules of a release in the place of its own.

    Args:
        model: the model.
        rules: those to replace, by default of use all that :meth:`Releases.replaced` gives.
        release: the release of Kafka.
    """
    overrides = {**model.overrides, **{rule.key: rule.by_release[release] for rule in rules}}
    return replace(model, overrides=overrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A model under a release.

    Attributes:
        model: the model, with the repaired rules.
        release: the release of Kafka.
        outside: why the model says nothing about the release, or "".
        rules: those that the release has otherwise and the model depends on.
    """

    model: Model
    release: str
    outside: str = ""
    rules: tuple[Rule, ...] = ()

    @property
    def name(self) -> str:
        """The name of the verdict."""
        return f"{self.model.name}, Kafka {self.release}"

    @property
    def as_shipped(self) -> Model:
        """The model with the rules of the release."""
        return shipped(self.model, self.rules, self.release)

    @property
    def entry(self) -> Model:
        """:attr:`as_shipped` under a name of its own, which its folder has too, and without the graph's size."""
        name = f"{self.model.name}_Kafka_{self.release.replace('.', '_')}"
        return replace(self.as_shipped, name=name, expect=replace(self.model.expect, generated=None))

    def expected(self, releases: Releases) -> Shipped | None:
        """The result that the registry expects of the release, or of a newer one with the same rules."""
        model = self.model
        for release in (name for name in releases.releases if name in model.shipped):
            if release == self.release or shipped(model, releases.replaced(model, release), release) == self.as_shipped:
                return model.shipped[release]
        return None

    def never(self, releases: Releases) -> tuple[str, ...]:
        """The actions that cannot be taken by the rules of the release."""
        expected = self.expected(releases)
        return self.model.never if expected is None or expected.never is None else expected.never


def reached_findings(column: Column, releases: Releases) -> tuple[frozenset[str], frozenset[str]]:
    """The findings of a release that a step of a model can come upon, and those that no step can.

    A finding is of a model if a module that the model is built of has a rule behind it. A step can come upon it if it
    depends on such a rule, and the model does take the step.
    """
    model, spec = column.model, releases.modules
    modules = set(spec.closure([model.module]))
    rules = [rule for rule in releases.rules if column.release in rule.by_release and rule.module in modules]
    behind = {(rule.module, rule.name): rule.finding for rule in rules if rule.finding}
    if not behind or "Next" not in spec.operators(model.module):
        return frozenset(), frozenset(behind.values())
    never = column.never(releases)
    steps = [name for name in spec.actions(model.module, "Next") if name not in never]
    depends = frozenset().union(*(spec.reached_through(model.module, name) for name in steps))
    acting = {(rule.module, rule.name) for rule in column.rules} & depends
    reached = frozenset(behind[rule] for rule in acting if rule in behind)
    return reached, frozenset(behind.values()) - reached


def columns(models: Iterable[Model], names: Iterable[str], releases: Releases) -> list[Column]:
    """The models under each of some releases; one that has all rules of another shares the column of that one."""
    found = []
    for model in models:
        for release in dict.fromkeys(releases.stated(model.module, name) for name in names):
            outside = releases.outside(model, release)
            rules = () if outside else tuple(releases.replaced(model, release))
            found.append(Column(model=model, release=release, outside=outside, rules=rules))
    return found


def marked(modules: ModuleFolder) -> Iterator[tuple[str, str]]:
    """The rules marked :data:`MARK`: module and operator, which is the first one defined after the mark."""
    for module, path in modules.paths.items():
        definitions = sorted(modules.module(module).definitions.values(), key=lambda definition: definition.line)
        for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if f"(* {MARK}:" in text:
                yield module, next(definition.name for definition in definitions if definition.line > line)
