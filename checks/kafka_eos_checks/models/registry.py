"""The registry of models: a file for each TLA+ module in ``spec/models``, validated, and turned into what TLC reads.

A model is a module with values for its constants, a bound on the search, and an expected result. A mutant is a model
with one rule changed, and must violate the property it names. A file begins with what its models have in common; each
entry has the differences: tables (``constants``, ``overrides``) are merged, all else replaces the base's. ::

    [base]
    constants = { ProducerIds = "{0, 1}", MaxSequence = "3", MaxEntries = "3" }
    bounds = "Bounds"                                  # a state constraint
    invariants = ["NoGapNoDuplicate"]

    [model.PartitionLog]
    title = "one leader, every request"
    tier = "small"                                     # small | full | deep
    constants = { MaxEntries = "4" }
    probes = ["IsFull"]                                # state predicates that some state must fulfil
    silent = ["NoGap"]                                 # properties that say nothing with these constants
    graph = "small"                                    # the tier that compares the reference's state graph
    expect = { verdict = "holds", generated = 9876, states = 1234, depth = 9 }
    shipped."4.3" = { states = 2345, violates = { NoGap = "SnapshotOf" } }   # by the rules of a release (releases.py)
    claims = ["C03"]

    [mutant.NoDuplicateCache]
    model = "PartitionLog"
    title = "the leader remembers no batch (KAFKA-5494)"
    overrides = { IsDuplicate = "NoDuplicateCache" }   # rule -> operator of spec/mutants, in TLC and in the reference;
                                                       # "Module!Rule" for one of a module that an instance has
    violates = "NoGapNoDuplicate"
    replay = "duplicate"                               # the rule of the audit that finds it in a simulated log
    simulation = "slow"                                # the kind of simulation that shows it (mutant_replays.py)
    proofs = ["append"]                                # the proofs that it refutes
    blind.requests = "raw requests restart no broker"  # why a method cannot notice it (``BLIND``)

Every operator may be in the module or in its mutants; the one that ``bounds`` names, and probes, also in
``spec/bounds/<module>Bounds.tla``: the values that such a module needs (``MaxEntries``) are constants like any other.
"""

import importlib
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from kafka_eos.machines import machine as machines
from kafka_eos.machines.spec_mapping import SpecValue, snake_case
from kafka_eos_checks.kit.paths import build_folder, spec_folder
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.result_cache import fingerprint
from kafka_eos_checks.tla.values import MalformedValue, parse_value

TIERS = ("small", "full", "deep")
BLIND = ("replay", "requests", "simulation")  # methods that may have a reason for not noticing a mutant
LONGEST_ROOT = 50
"""Characters of a root module's name; SANY finds no module whose name has 64, and other rooms add suffixes of 9."""
_LONG_STATES = 20_000  # from this size on Java's second compiler pays


class MalformedRegistry(ValueError):  # noqa: N818 - named for the file, as MalformedBatch is
    """An entry of the registry that cannot be used; says file, entry, reason and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expected result of a model.

    Attributes:
        violates: the property that must be violated, or "" when all hold.
        generated: states that TLC generates, duplicates included.
        states: distinct states.
        depth: depth of the search; for a violation, the number of states of the counterexample.
    """

    violates: str = ""
    generated: int | None = None
    states: int | None = None
    depth: int | None = None

    @property
    def words(self) -> str:
        """The verdict in the words of :class:`kafka_eos_checks.tla.tlc.Result`."""
        return f"violates {self.violates}" if self.violates else "holds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """The expected result of a model under the rules of a release of Kafka.

    Attributes:
        violates: property that rules of the release break -> these rules, separated by commas.
        silent: properties that hold and say nothing, since their witnesses are out of reach by these rules.
        never: actions that cannot be taken by these rules, in the place of the model's; None if those are the same.
        states: distinct states.
    """

    violates: Mapping[str, str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    never: tuple[str, ...] | None = None
    states: int | None = None

    @property
    def line(self) -> str:
        """The value in TOML."""
        parts = [] if self.states is None else [f"states = {self.states}"]
        if self.violates:
            broken = ", ".join(f'{name} = "{rules}"' for name, rules in self.violates.items())
            parts.append(f"violates = {{ {broken} }}")
        if self.silent:
            parts.append(f"silent = {json.dumps(list(self.silent))}")
        if self.never is not None:
            parts.append(f"never = {json.dumps(list(self.never))}")
        return f"{{ {', '.join(parts)} }}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An entry of the registry; the module's docstring says what the fields mean.

    Attributes:
        name: key of the entry, unique among models and mutants.
        kind: ``model`` or ``mutant``.
        module: TLA+ module.
        title: one line.
        tier: when it is run.
        constants: constant -> its value in TLA+.
        overrides: operator -> the operator that replaces it.
        bounds: a state constraint, or "".
        specification: the temporal formula.
        invariants: state predicates that are checked in every state.
        properties: temporal properties; a single one where it must be violated, since TLC does not name it.
        deadlock: whether a state without a successor is an error.
        expect: the expected result.
        shipped: release of Kafka -> the expected result with the rules of that release.
        graph: the tier in which the reference's state graph is compared with TLC's, or "" for none.
        probes: state predicates that some state must fulfil.
        never: actions that cannot be taken with these constants; every other action must be.
        silent: properties that say nothing with these constants; every other one's witness must be reached.
        machine: the reference's class, ``package.module:Class``; by default ``kafka_eos.<module>:<Module>``.
        claims: ids of the ledger's claims that the verdict settles.
        model: for a mutant, the model it changes.
        replay: for a mutant, the finding with which the replay of a log shows it.
        simulation: for such a mutant, the kind of simulation that writes such a log; "" for the usual one.
        proofs: for a mutant, the proofs that it refutes.
        blind: for a mutant, the methods of :data:`BLIND` that cannot notice it, each with the reason.
        spec: the folder of the modules.
        file: the file of the entry.
        source: the place of the entry.
    """

    name: str
    kind: str = "model"
    module: str
    title: str
    tier: str = "small"
    constants: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    bounds: str = ""
    specification: str = "Spec"
    invariants: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    deadlock: bool = False
    expect: Expectation = field(default_factory=Expectation)
    shipped: Mapping[str, Shipped] = field(default_factory=dict)
    graph: str = ""
    probes: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    machine: str = ""
    claims: tuple[str, ...] = ()
    model: str = ""
    replay: str = ""
    simulation: str = ""
    proofs: tuple[str, ...] = ()
    blind: Mapping[str, str] = field(default_factory=dict)
    spec: Path
    file: Path
    source: str = ""

    @property
    def is_short(self) -> bool:
        """Whether TLC's run is over before Java's second compiler pays."""
        return (self.expect.states or 0) < _LONG_STATES

    @property
    def root_module(self) -> str:
        """Name of the generated root module, shortened where SANY would not find a module of that name."""
        name = f"MC_{self.name}"
        return name if len(name) <= LONGEST_ROOT else f"{name[: LONGEST_ROOT - 9]}_{fingerprint(name)[:8]}"

    def machine_class(self) -> type[machines.Machine]:
        """The reference's machine for this model."""
        return import_machine(
            self.machine or f"kafka_eos.machines.{snake_case(self.module)}:{self.module}", self.source
        )

    def constant_values(self) -> dict[str, SpecValue]:
        """The values of the constants.

        Raises:
            MalformedRegistry: when a constant is an expression that only TLC can evaluate.
        """
        values = {}
        for name, text in self.constants.items():
            try:
                values[name] = parse_value(text)
            except MalformedValue as error:
                raise MalformedRegistry(f"{self.source}: constant {name}: {error}; write a literal value") from None
        return values

    def machine_constants(self, machine: type[machines.Machine] | None = None) -> Any:
        """The constants as the machine wants them."""
        cls = machine or self.machine_class()
        return machines.load_constants(constants_class(cls), self.constant_values())


def constants_class(machine: type[machines.Machine]) -> type[Any]:
    """The dataclass of a machine's constants, from the annotation of its field ``constants``."""
    hint = get_type_hints(machine)["constants"]
    assert isinstance(hint, type)
    return hint


def rule_modules(machine: type[Any]) -> list[ModuleType]:
    """The modules that have a machine's rules: those of its classes and of its parts' classes."""
    parts = [getattr(machine, name) for name in ("LOG", "LIMITS") if hasattr(machine, name)]
    classes = [cls for part in (machine, *parts) for cls in part.__mro__ if cls is not object]
    return [sys.modules[name] for name in dict.fromkeys(cls.__module__ for cls in classes)]


def import_machine(path: str, source: str) -> type[Any]:
    """The class that ``package.module:Class`` names.

    Raises:
        MalformedRegistry: when there is none.
    """
    module, _, name = path.partition(":")
    try:
        found, why = getattr(importlib.import_module(module), name), f"{name} is no class"
    except (ImportError, AttributeError, ValueError) as error:
        found, why = None, str(error)
    if not isinstance(found, type):
        raise MalformedRegistry(f"{source}: no machine {path!r} ({why}); name one as 'package.module:Class'")
    return found


_LISTS = {"invariants", "properties", "probes", "never", "silent", "claims", "proofs"}
_TABLES = {"constants", "overrides", "blind"}
_FLAGS = {"deadlock"}
_INTERNAL = {"name", "kind", "module", "spec", "file", "source", "expect", "shipped"}
_MUTANT_ONLY = {"model", "replay", "simulation", "proofs", "blind"}
_BASE = {
    "constants",
    "overrides",
    "bounds",
    "specification",
    "deadlock",
    "invariants",
    "properties",
    "never",
    "silent",
    "machine",
}
_MERGED = ("constants", "overrides")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


def _checked(key: str, value: Any, where: str) -> Any:
    """A value of the right type, lists as tuples."""
    if key in _LISTS:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        wanted = "a list of strings"
    elif key in _TABLES:
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return dict(value)
        wanted = 'a table of strings in TLA+, as in { Limit = "3" }'
    elif key in _FLAGS:
        if isinstance(value, bool):
            return value
        wanted = "true or false"
    else:
        if isinstance(value, str):
            return value
        wanted = "a string"
    raise MalformedRegistry(f"{where}: {key} is {value!r}; write {wanted}")


def _expectation(given: Any, where: str) -> Expectation:
    known = {"verdict": str, "violates": str, "generated": int, "states": int, "depth": int}
    if not isinstance(given, dict):
        raise MalformedRegistry(f'{where}: expect is {given!r}; write {{ verdict = "holds" }} or {{ violates = "P" }}')
    for key, value in given.items():
        if key not in known or type(value) is not known[key]:
            raise MalformedRegistry(f"{where}: expect has {key} = {value!r}; it takes {', '.join(known)}")
    if ("verdict" in given) == ("violates" in given) or given.get("verdict", "holds") != "holds":
        raise MalformedRegistry(f'{where}: expect takes either verdict = "holds" or violates = "P"')
    return Expectation(**{key: value for key, value in given.items() if key != "verdict"})


def _shipped(given: Any, where: str) -> dict[str, Shipped]:
    """The expected results by release."""
    usage = 'write shipped."4.3" = { states = 12, violates = { Property = "Rule" } }'
    if not isinstance(given, dict) or not all(isinstance(row, dict) for row in given.values()):
        raise MalformedRegistry(f"{where}: shipped is {given!r}; {usage}")
    found = {}
    for release, row in given.items():
        broken = row.get("violates", {})
        named = isinstance(broken, dict) and all(isinstance(rules, str) and rules for rules in broken.values())
        unknown = row.keys() - {"states", "violates", "silent", "never"}
        if unknown or not named or type(row.get("states", 0)) is not int:
            raise MalformedRegistry(f'{where}: shipped."{release}" is {row!r}; {usage}')
        lists = {key: _checked(key, row[key], where) for key in ("silent", "never") if key in row}
        found[release] = Shipped(**{**row, **lists})
    return found


def _fields_of(entry: Mapping[str, Any], where: str, allowed: Iterable[str]) -> dict[str, Any]:
    names = set(allowed)
    for key in entry:
        if key not in names:
            raise MalformedRegistry(f"{where}: unknown key {key!r}; known are {', '.join(sorted(names))}")
    return {key: _checked(key, value, where) for key, value in entry.items()}


def _validate_shipped(model: Model) -> None:
    """Check that what a release breaks is a property that holds by the repaired rules."""
    for release, expected in model.shipped.items():
        for name in (*expected.violates, *expected.silent):
            if name not in model.invariants + model.properties or name == model.expect.violates:
                raise MalformedRegistry(
                    f'{model.source}: shipped."{release}" has {name}, and no such property holds here; delete it there'
                )


def _validate(model: Model, modules: Container[str]) -> Model:
    """Check what can be checked without TLC, next to the modules that there are."""
    where = model.source
    if not _IDENTIFIER.match(model.name):
        raise MalformedRegistry(f"{where}: {model.name!r} becomes part of a TLA+ name; use letters, digits and _")
    if model.tier not in TIERS:
        raise MalformedRegistry(f"{where}: tier is {model.tier!r}; write one of {', '.join(TIERS)}")
    if model.module not in modules:
        raise MalformedRegistry(f"{where}: no module {model.module}.tla in {model.spec}; correct 'module'")
    if not model.invariants and not model.properties:
        raise MalformedRegistry(f"{where}: nothing is checked; name invariants or properties")
    _validate_shipped(model)
    for name in model.silent:
        if name not in model.invariants + model.properties:
            raise MalformedRegistry(f"{where}: {name} is silent but not checked; delete it from 'silent'")
    violated = model.expect.violates
    if violated:
        if violated not in model.invariants + model.properties:
            raise MalformedRegistry(
                f"{where}: {violated} is to be violated but not checked; add it to invariants or properties"
            )
        if violated in model.properties and len(model.properties) > 1:
            raise MalformedRegistry(
                f"{where}: TLC does not name the temporal property that is violated; keep {violated} as the only one"
            )
    if model.graph and model.graph not in TIERS[TIERS.index(model.tier) :]:
        raise MalformedRegistry(f"{where}: graph is {model.graph!r}; write the model's own tier, or a later one")
    return model


@lru_cache(maxsize=64)
def _tables(text: str) -> Mapping[str, Any]:
    """The tables of a file. Tests and commands of one process read the same files again, and parsing takes longest."""
    return tomllib.loads(text)


class _Entries:
    """The entries of files, validated.

    Attributes:
        models: the models by name.
        mutants: the mutants by name.
    """

    def __init__(self, texts: Iterable[tuple[Path, str]], modules: Container[str]) -> None:
        """Read and validate.

        Args:
            texts: the files and what they say.
            modules: the names of the modules that there are.
        """
        self._modules = modules
        self.models: dict[str, Model] = {}
        self.mutants: dict[str, Model] = {}
        for file, text in texts:
            self._read(file, text)

    def _read(self, file: Path, text: str) -> None:
        """Take the entries of one file."""
        try:
            content = _tables(text)
        except tomllib.TOMLDecodeError as error:
            raise MalformedRegistry(f"{file}: no TOML: {error}") from None
        unknown = content.keys() - {"base", "model", "mutant"}
        known = "[base], [model.X] and [mutant.X]"
        if unknown:
            raise MalformedRegistry(f"{file}: unknown table {min(unknown)!r}; entries are {known}")
        for kind, found in content.items():
            is_one = kind == "base" or not isinstance(found, dict)
            for name, entry in ({kind: found} if is_one else found).items():
                if not isinstance(entry, dict):
                    raise MalformedRegistry(f"{file}: {name} is {entry!r}; entries are {known}")
        base = _fields_of(content.get("base", {}), f"{file} [base]", _BASE)
        for name, entry in content.get("model", {}).items():
            self._add(self.models, self._model(file, base, name, entry))
        for name, entry in content.get("mutant", {}).items():
            self._add(self.mutants, self._mutant(file, name, entry))

    def _add(self, entries: dict[str, Model], model: Model) -> None:
        other = self.models.get(model.name) or self.mutants.get(model.name)
        if other is not None:
            raise MalformedRegistry(f"{model.source}: {other.source} has this name, too; rename one")
        entries[model.name] = model

    def _model(self, file: Path, base: Mapping[str, Any], name: str, entry: dict[str, Any]) -> Model:
        where = f"{file} [model.{name}]"
        given = dict(entry)
        expect = _expectation(given.pop("expect", {"verdict": "holds"}), where)
        shipped = _shipped(given.pop("shipped", {}), where)
        allowed = {f.name for f in fields(Model)} - _INTERNAL - _MUTANT_ONLY
        values = _fields_of(given, where, allowed)
        if "title" not in values:
            raise MalformedRegistry(f"{where}: title is missing; add it")
        values = dict(base) | values | {key: {**base.get(key, {}), **values.get(key, {})} for key in _MERGED}
        place: dict[str, Any] = {"module": file.stem, "spec": file.parent.parent, "file": file, "source": where}
        return _validate(Model(name=name, expect=expect, shipped=shipped, **place, **values), self._modules)

    def _mutant(self, file: Path, name: str, entry: dict[str, Any]) -> Model:
        where = f"{file} [mutant.{name}]"
        given = dict(entry)
        violates = _checked("violates", given.pop("violates", ""), where)
        depth = given.pop("depth", None)
        values = _fields_of(given, where, {f.name for f in fields(Model)} - _INTERNAL)
        base = self.models.get(values.get("model", ""))
        if base is None:
            raise MalformedRegistry(f"{where}: model is {values.get('model', '')!r}; name an entry [model.X]")
        for key in ("title", "overrides" if "constants" not in values else "title"):
            if not values.get(key):
                raise MalformedRegistry(f"{where}: {key} is missing; add it")
        if not violates:
            raise MalformedRegistry(f"{where}: violates is missing; name the property that must break")
        if violates in base.silent:
            raise MalformedRegistry(f"{where}: {base.name} has {violates} under 'silent'; delete it there")
        blind = values.get("blind", {})
        if blind.keys() - set(BLIND):
            raise MalformedRegistry(f"{where}: blind takes {', '.join(BLIND)}, and has {', '.join(blind)}")
        if bool(values.get("replay")) == ("replay" in blind):
            raise MalformedRegistry(f"{where}: give either replay = the finding, or blind.replay = the reason")
        if values.get("simulation") and not values.get("replay"):
            raise MalformedRegistry(f"{where}: simulation is for a mutant with replay = the finding; remove it")
        values |= {key: {**getattr(base, key), **values.get(key, {})} for key in _MERGED}
        values.setdefault("claims", ())
        temporal = violates in values.get("properties", base.properties)
        values["invariants"] = () if temporal else (violates,)
        values["properties"] = (violates,) if temporal else ()
        expect = Expectation(violates=violates, depth=depth)
        place: dict[str, Any] = {"kind": "mutant", "file": file, "source": where}
        mutant = replace(base, name=name, expect=expect, shipped={}, graph="", probes=(), silent=(), **place, **values)
        return _validate(mutant, self._modules)


@lru_cache(maxsize=8)
def _entries(texts: tuple[tuple[Path, str], ...], modules: frozenset[str]) -> _Entries:
    """The entries of files that say this, read once in a process."""
    return _Entries(texts, modules)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRegistry(f"{file}: no TOML: {error}") from None


class Registry:
    """The models and mutants of a folder of files, one for each module.

    Attributes:
        models: the models by name.
        mutants: the mutants by name.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Read and validate.

        Args:
            folder: the files, ``<Module>.toml``; by default the project's own. The modules are in the folder above it.

        Raises:
            MalformedRegistry: with the first thing that is wrong.
        """
        self.folder = folder or spec_folder() / "models"
        texts = tuple((file, _text(file)) for file in sorted(self.folder.glob("*.toml")))
        if not texts:
            raise MalformedRegistry(f"{self.folder}: no models; name the folder of the files <Module>.toml")
        read = _entries(texts, frozenset(ModuleFolder(self.folder.parent).paths))
        self.models, self.mutants = dict(read.models), dict(read.mutants)

    def get(self, name: str) -> Model:
        """The model or mutant of that name.

        Raises:
            MalformedRegistry: when there is none.
        """
        found = self.models.get(name) or self.mutants.get(name)
        if found is None:
            known = [*self.models, *self.mutants]
            near = ", ".join(get_close_matches(name, known, n=5, cutoff=0.5) or known[:5])
            raise MalformedRegistry(f"{self.folder}: no entry {name!r}; there are {len(known)}, such as {near}")
        return found

    def mutant_of(self, module: str, name: str) -> Model:
        """The mutant of a module of that name.

        Raises:
            MalformedRegistry: there is none; names those that there are.
        """
        own = {each: mutant for each, mutant in self.mutants.items() if mutant.module == module}
        if name not in own:
            raise MalformedRegistry(f"no mutant {name!r} of {module}; there are {', '.join(own)}")
        return own[name]

    def update(self, name: str, expect: Expectation) -> None:
        """Write a model's result into its line ``expect = …``.

        Raises:
            MalformedRegistry: when the entry has no such line.
        """
        verdict = f'violates = "{expect.violates}"' if expect.violates else 'verdict = "holds"'
        numbers = [f"{key} = {getattr(expect, key)}" for key in ("generated", "states", "depth")]
        numbers = [number for number in numbers if not number.endswith("None")]
        self._write(name, "expect", f"{{ {', '.join([verdict, *numbers])} }}")

    def update_shipped(self, name: str, release: str, found: Shipped) -> None:
        """Write a model's result by the rules of a release into its line ``shipped."<release>" = …``, or add the line.

        Raises:
            MalformedRegistry: when the entry has no line after which a new one goes.
        """
        key = f'shipped."{release}"'
        known = self.get(name).shipped
        if release in known:
            self._write(name, key, found.line)
        else:
            last = f'shipped."{list(known)[-1]}"' if known else "expect"
            self._write(name, last, None, f"\n{key} = {found.line}")

    def _write(self, name: str, key: str, value: str | None, behind: str = "") -> None:
        """Put a value into the line of a key, or keep the line, and add text after it."""
        model = self.get(name)
        text = model.file.read_text(encoding="utf-8")
        head = re.search(rf"^\[{model.kind}\.{re.escape(name)}\][^\n]*\n", text, re.MULTILINE)
        assert head is not None
        rest = re.compile(r"^\[", re.MULTILINE).search(text, head.end())
        end = rest.start() if rest else len(text)
        line = re.compile(rf"^{re.escape(key)} *=.*$", re.MULTILINE).search(text, head.end(), end)
        if line is None:
            raise MalformedRegistry(f"{model.source}: no line '{key} = …' to update; add: {key} = {value}")
        kept = line[0] if value is None else f"{key} = {value}"
        model.file.write_text(text[: line.start()] + kept + behind + text[line.end() :], encoding="utf-8")


def extended_modules(model: Model) -> list[str]:
    """The modules that a model's root module extends."""
    modules = ModuleFolder(model.spec)
    extended = [model.module]
    mutants = f"{model.module}Mutants"
    if mutants in modules.paths:
        extended.append(mutants)
    seen = {name for module in extended for name in modules.operators(module)}
    for home in [f"{module.name}Mutants" for module in modules.chain(model.module)]:
        missing = set(model.overrides.values()) - seen
        if home in modules.paths and home not in extended and missing & modules.module(home).definitions.keys():
            extended.append(home)
    bounds = f"{model.module}Bounds"
    if any(modules.defines(bounds, name) for name in (model.bounds, *model.probes) if name):
        extended.append(bounds)
    return [*extended, "TLC"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A module that a model's module instantiates, with rules in it that the model replaces.

    Attributes:
        name: of the instance.
        extended: the module, and those of its mutants that take the place of rules.
        given: the text behind INSTANCE and the module's name, with the instance's constants and variables.
        overrides: (module that has the rule, rule, number of its parameters) -> the operator that replaces it.
    """

    name: str
    extended: tuple[str, ...]
    given: str
    overrides: Mapping[tuple[str, str, int], str]

    @property
    def module(self) -> str:
        """The name of the module that has the rules and what takes their places."""
        return f"{self.name}_Rules"

    @property
    def text(self) -> str:
        """The module."""
        return f"{f' MODULE {self.module} '.center(78, '-')}\nEXTENDS {', '.join(self.extended)}\n{'=' * 78}\n"

    @property
    def definitions(self) -> str:
        """The operators of the root module that take the rules' places."""
        lines = [f"{self.module}_ == INSTANCE {self.module}{self.given}"]
        for (_, _, count), other in self.overrides.items():
            given = f"({', '.join(f'given{place}' for place in range(count))})" if count else ""
            lines.append(f"{self.name}_{other}{given} == {self.module}_!{other}{given}")
        return "\n".join(lines)

    @property
    def substitutions(self) -> list[str]:
        """The lines of the configuration that put them there."""
        return [f"{rule} <-[{module}] {self.name}_{other}" for (module, rule, _), other in self.overrides.items()]


def replaced_instances(model: Model) -> list[Instance]:
    """The instances of a model's module in which the model replaces rules, by overrides ``Module!Operator``.

    Raises:
        MalformedRegistry: when no instance has the rule, or several have.
    """
    modules = ModuleFolder(model.spec)
    qualified = [(*key.split("!"), other) for key, other in model.overrides.items() if "!" in key]
    if not qualified:
        return []
    found: dict[str, dict[tuple[str, str, int], str]] = {}
    extended: dict[str, list[str]] = {}
    instances = modules.instances(model.module)
    every = [each for module in modules.closure([model.module]) for each in modules.own_instances(module).items()]
    for home, rule, other in qualified:
        having = [name for name, module in every if home in (each.name for each in modules.chain(module))]
        if len(having) != 1 or having[0] not in instances or not modules.defines(home, rule):
            raise MalformedRegistry(
                f"{model.source}: overrides has {home}!{rule}; exactly one INSTANCE that {model.module} needs, "
                f"and in itself, has to have such a rule, and there are {len(having)}"
            )
        count = len(modules.module(home).definitions[rule].parameters)
        found.setdefault(having[0], {})[home, rule, count] = other
        extended.setdefault(having[0], [instances[having[0]]]).append(f"{home}Mutants")
    return [
        Instance(
            name=name,
            extended=tuple(dict.fromkeys(extended[name])),
            given=modules.definition_text(model.module, name).partition(f"INSTANCE {instances[name]}")[2],
            overrides=overrides,
        )
        for name, overrides in found.items()
    ]


def read_modules(model: Model) -> list[str]:
    """The modules that a model's root module is made of: those that it extends, and those of replaced instances."""
    return [*extended_modules(model), *(module for one in replaced_instances(model) for module in one.extended)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The lines of a configuration file that differ between the runs of one model.

    Attributes:
        specification: the temporal formula.
        constraint: a state constraint, or "".
        invariants: names.
        properties: names.
        deadlock: whether a state without a successor is an error.
    """

    specification: str
    constraint: str = ""
    invariants: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    deadlock: bool = False


def plain_configuration(model: Model) -> Configuration:
    """The configuration that the registry gives."""
    return Configuration(
        specification=model.specification,
        constraint=model.bounds,
        invariants=model.invariants,
        properties=model.properties,
        deadlock=model.deadlock,
    )


def _configuration_text(model: Model, configuration: Configuration) -> str:
    lines = [f"SPECIFICATION {configuration.specification}"]
    own = {rule: other for rule, other in model.overrides.items() if "!" not in rule}
    substitutions = {name: f"const_{name}" for name in model.constants} | own
    every = [f"{name} <- {other}" for name, other in substitutions.items()]
    every += [line for instance in replaced_instances(model) for line in instance.substitutions]
    if every:
        lines += ["CONSTANTS", *(f"    {line}" for line in every)]
    if configuration.constraint:
        lines.append(f"CONSTRAINT {configuration.constraint}")
    lines += [f"INVARIANT {name}" for name in configuration.invariants]
    lines += [f"PROPERTY {name}" for name in configuration.properties]
    lines.append(f"CHECK_DEADLOCK {'TRUE' if configuration.deadlock else 'FALSE'}")
    return "\n".join(lines) + "\n"


def write_model(
    model: Model,
    configuration: Configuration | None = None,
    definitions: str = "",
    suffix: str = "",
    folder: Path | None = None,
) -> tuple[Path, str]:
    """Write a folder that TLC or the Toolbox can open: the root module, its configuration, and every module it needs.

    Args:
        model: the model.
        configuration: what is checked; by default what the registry says.
        definitions: TLA+ text to add to the root module.
        suffix: a suffix of the root module's name, for a second root module in the same folder.
        folder: where to write; by default ``build/models/<name>``.

    Returns:
        The folder and the name of the root module.
    """
    target = folder or build_folder() / "models" / model.name
    target.mkdir(parents=True, exist_ok=True)
    extended = extended_modules(model)
    modules = ModuleFolder(model.spec)
    for name in modules.closure(read_modules(model)):
        shutil.copyfile(modules.paths[name], target / f"{name}.tla")
    instances = replaced_instances(model)
    for instance in instances:
        (target / f"{instance.module}.tla").write_text(instance.text, encoding="utf-8")
    root = model.root_module + suffix
    given = [(name, text) for name, text in model.constants.items() if name not in model.overrides]
    constants = "\n".join(f"const_{name} == {text}" for name, text in given)
    head = f" MODULE {root} ".center(78, "-")
    body = [head, f"(* {model.title}. Generated from the registry of models: change that. *)"]
    body += [f"EXTENDS {', '.join(extended)}", "", constants, ""]
    body += [*(instance.definitions for instance in instances), definitions, "=" * 78, ""]
    (target / f"{root}.tla").write_text("\n".join(body), encoding="utf-8")
    text = _configuration_text(model, configuration or plain_configuration(model))
    (target / f"{root}.cfg").write_text(text, encoding="utf-8")
    return target, root


def bounds_predicate(model: Model) -> Callable[[Any], bool]:
    """The Python twin of a model's bounds, a function of ``kafka_eos_checks.models.bounds``.

    It cannot drift: graph equality compares it with TLC's constraint on every state, those just outside included.
    """
    if not model.bounds:
        return lambda _: True
    name = snake_case(model.module + model.bounds)
    predicate = getattr(importlib.import_module("kafka_eos_checks.models.bounds"), name, None)
    if predicate is None:
        raise MalformedRegistry(
            f"{model.source}: no function {name}(state, constants) in kafka_eos_checks/models/bounds.py; "
            f"add the twin of {model.bounds}"
        )
    constants = model.constant_values()
    return lambda state: bool(predicate(state, constants))
