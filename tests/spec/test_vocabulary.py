"""One vocabulary on both floors, read from the files: TLA+ modules, the reference's docstrings, the registry.

Each comparison is a function that returns its differences in words, and has a sibling test that plants one.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Self

import pytest

import kafka_eos.machines
from kafka_eos.machines.machine import Action, action, actions
from kafka_eos.machines.spec_mapping import camel_case, snake_case
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.registry import Model, Registry, constants_class
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.mutants import rules
from kafka_eos_checks.mutants.rules import MUTANTS, UnknownRule, mutated
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import names


def words(text: str) -> str:
    return " ".join(text.split())


# --- reading the reference --------------------------------------------------------------------------------------

CITED = re.compile(r"^\s*Spec:\s+(\w+)!(\w+)\s*$", re.MULTILINE)


def summary(member: object) -> str:
    """The docstring's first paragraph."""
    return words((inspect.getdoc(member) or "").split("\n\n", maxsplit=1)[0])


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


@cache
def modules_of_the_reference() -> tuple[ModuleType, ...]:
    return tuple(
        importlib.import_module(f"kafka_eos.machines.{m.name}")
        for m in pkgutil.iter_modules(kafka_eos.machines.__path__)
    )


def machines() -> list[type[Any]]:
    """Every machine of the reference, found by its ``MODULE``."""
    found = [
        member
        for module in modules_of_the_reference()
        for member in vars(module).values()
        if inspect.isclass(member) and isinstance(vars(member).get("MODULE"), str)
    ]
    return sorted(set(found), key=lambda machine: str(machine.MODULE))


# The operator that is the disjunction of a module's actions, where the module is only ever extended.
STEPS = {"ReplicatedLog": "ReplicaStep", "TransactionalPartition": "PartitionStep"}


def step_of(machine: type[Any]) -> str:
    return STEPS.get(machine.MODULE, "Next")


def twins(machine: type[Any]) -> dict[str, object]:
    """The twins of operators in the reference: methods of machine, log and limits, and functions next to them."""
    found: dict[str, object] = {}
    for cls in (machine, getattr(machine, "LOG", machine), getattr(machine, "LIMITS", machine)):
        for base in reversed(cls.__mro__[:-1]):
            beside = vars(importlib.import_module(base.__module__)).items()
            found |= {name: member for name, member in beside if isinstance(member, FunctionType)}
            found |= {name: member for name, member in vars(base).items() if _is_method(member)}
    return found


def _is_method(member: object) -> bool:
    return isinstance(member, FunctionType | property)


# --- the comparisons ----------------------------------------------------------------------------------------------


def citations(machine: type[Any]) -> Iterator[tuple[Action, str, str]]:
    """(action, module, operator) for each ``Spec:`` line."""
    for each in actions(machine):
        for module, operator in CITED.findall(inspect.getdoc(getattr(machine, each.method)) or ""):
            yield each, module, operator


def differing_citations(spec: ModuleFolder, machine: type[Any], step: str) -> list[str]:
    wanted = {(home, name) for name, (home, _) in spec.actions(machine.MODULE, step).items()}
    cited = [(module, operator) for _, module, operator in citations(machine)]
    found = [f"{module}!{name} is cited {cited.count((module, name))} times" for module, name in wanted
             if cited.count((module, name)) != 1]  # fmt: skip
    found += [f"{module}!{name} is no action of {step}" for module, name in cited if (module, name) not in wanted]
    found += [f"{action.method} is marked {action.name}, cites {name}" for action, _, name in citations(machine)
              if action.name != name]  # fmt: skip
    return sorted(found)


def differing_sentences(spec: ModuleFolder, machine: type[Any], step: str) -> list[str]:
    comments = {name: operator.comment for name, (_, operator) in spec.actions(machine.MODULE, step).items()}
    return sorted(
        f"{action.name}: {comments.get(action.name)!r} is {said!r}"
        for action in actions(machine)
        if (said := summary(getattr(machine, action.method))) != comments.get(action.name)
    )


def differing_parameters(spec: ModuleFolder, machine: type[Any], step: str) -> list[str]:
    found = []
    operators = spec.actions(machine.MODULE, step)
    for each in actions(machine):
        given = tuple(inspect.signature(getattr(machine, each.method)).parameters)[1:]
        wanted = tuple(map(snake_case, operators[each.name][1].parameters))
        found += [f"{each.name}: {wanted} is {given}"] if given != wanted else []
        found += [f"{each.name} is {each.method}"] if snake_case(each.name) != each.method else []
    return found


def differing_declarations(spec: ModuleFolder, machine: type[Any]) -> list[str]:
    chain = spec.chain(machine.MODULE)
    variables = tuple(name for module in chain for name in module.variables)
    constants = tuple(name for module in chain for name in module.constants)
    own = tuple(f.name for f in fields(machine))
    given = tuple(camel_case(f.name, capital=True) for f in fields(constants_class(machine)))
    found = []
    if variables != machine.VARIABLES:
        found.append(f"VARIABLES {variables} is {machine.VARIABLES}")
    if own != ("constants", *map(snake_case, variables)):
        found.append(f"variables {variables} are the fields {own}")
    if given != constants:
        found.append(f"CONSTANTS {constants} is {given}")
    return found


QUOTES = str.maketrans("", "", '`"')


def plain(comment: str) -> str:
    """The first sentence of a comment or docstring, without quotes and the ``Kafka:`` at its end."""
    return first_sentence(re.split(r"\s(?:Kafka:|KIP-)", comment.translate(QUOTES), maxsplit=1)[0]).rstrip(".")


def differing_rules(spec: ModuleFolder, machine: type[Any], step: str) -> list[str]:
    """Operators that are no actions and have a comment, against their twins."""
    leaves = spec.actions(machine.MODULE, step)
    beside = twins(machine)
    return sorted(
        f"{home}!{name}: {plain(operator.comment)!r} is {plain(summary(twin))!r}"
        for name, (home, operator) in spec.operators(machine.MODULE).items()
        if name not in leaves and operator.comment and (twin := beside.get(snake_case(name))) is not None
        if plain(operator.comment) != plain(summary(twin))
    )


def as_in_spec(docstring: str) -> str:
    """A mutant's docstring in the words of its comment: operators by their names in the spec."""
    named = re.sub(r"``(\w+)``", lambda match: camel_case(match[1], capital=True), docstring)
    return named[:1].lower() + named[1:].rstrip(".")


def differing_mutants(spec: ModuleFolder, given: Mapping[str, Callable[..., object]], used: Iterable[str]) -> list[str]:
    """The mutants that the registry puts in place of rules of a machine, against functions: words and file."""
    operators = {name: op for module in map(spec.module, spec.paths) for name, op in module.definitions.items()}
    wanted = {snake_case(name): name for name in used}
    found = [f"no function {name}" for name in wanted.keys() - given.keys()]
    found += [f"{name} is used by no override" for name in given.keys() - wanted.keys()]
    for name in wanted.keys() & given.keys():
        comment, said = operators[wanted[name]].comment, as_in_spec(summary(given[name]))
        found += [f"{wanted[name]}: {comment!r} is {said!r}"] if comment.rstrip(".") != said else []
        home = snake_case(given[name].__module__.rpartition(".")[2])
        modules = [module for module in spec.paths if spec.defines(module, wanted[name])]
        homes = [snake_case(module.removesuffix("Mutants")) for module in modules]
        found += [f"{name} is in {home}, {wanted[name]} in {', '.join(homes)}"] if home not in homes else []
    return sorted(found)


# --- the project's own files --------------------------------------------------------------------------------------

SPEC = ModuleFolder(spec_folder())
MACHINES = pytest.mark.parametrize("machine", machines(), ids=lambda machine: str(machine.MODULE))
REGISTRY = Registry()
MUTANT_MODULES = {name for name in SPEC.paths if name.endswith("Mutants")}


@cache
def shipped() -> frozenset[str]:
    """The operators that are a release's."""
    return frozenset(operator for rule in Releases().rules for operator in rule.by_release.values())


def overridden() -> list[tuple[Model, str, str]]:
    """(entry, rule, mutant) for each override of the registry."""
    entries = [*REGISTRY.models.values(), *REGISTRY.mutants.values()]
    return [(entry, rule, mutant) for entry in entries for rule, mutant in entry.overrides.items()]


def test_every_module_with_a_next_has_a_machine() -> None:
    stepping = {path.stem for path in spec_folder().glob("*.tla") if SPEC.defines(path.stem, "Next")}
    assert stepping == {machine.MODULE for machine in machines()} - STEPS.keys()


@MACHINES
def test_every_action_is_cited_by_one_method_and_every_citation_is_an_action(machine: type[Any]) -> None:
    assert SPEC.actions(machine.MODULE, step_of(machine))
    assert differing_citations(SPEC, machine, step_of(machine)) == []


@MACHINES
def test_a_method_says_of_its_action_what_the_spec_says(machine: type[Any]) -> None:
    assert differing_sentences(SPEC, machine, step_of(machine)) == []


@MACHINES
def test_a_method_has_the_parameters_of_its_action(machine: type[Any]) -> None:
    assert differing_parameters(SPEC, machine, step_of(machine)) == []


@MACHINES
def test_a_machine_has_the_variables_and_constants_of_its_module_in_their_order(machine: type[Any]) -> None:
    assert differing_declarations(SPEC, machine) == []


@MACHINES
def test_a_rule_says_what_its_operator_says(machine: type[Any]) -> None:
    assert differing_rules(SPEC, machine, step_of(machine)) == []


def test_every_rule_and_mutant_that_the_registry_names_stands_in_the_spec() -> None:
    assert overridden()
    for entry, rule, mutant in overridden():
        assert rule in SPEC.operators(entry.module), entry.source
        home, _ = SPEC.operators(f"{entry.module}Mutants")[mutant]
        assert home in MUTANT_MODULES, entry.source


def test_an_override_changes_the_machine_exactly_when_it_changes_what_an_action_depends_on() -> None:
    modules = {machine.MODULE for machine in machines()}
    for entry, rule, mutant in overridden():
        if SPEC.defines(entry.module, "Next") or entry.module in modules:
            machine = entry.machine_class()
        else:  # only TLC takes the steps of what the layers above are held to
            assert not entry.graph, entry.source
            continue
        if rule in SPEC.reached(entry.module, "Next"):
            assert issubclass(mutated(machine, {rule: mutant}), machine), entry.source
        else:  # only a property depends on it
            with pytest.raises(UnknownRule):
                mutated(machine, {rule: mutant})


def test_every_mutant_of_a_rule_is_a_function_and_every_function_a_mutant_in_the_same_words() -> None:
    used = {mutant for entry, rule, mutant in overridden() if rule in SPEC.reached(entry.module, "Next")} | shipped()
    assert differing_mutants(SPEC, MUTANTS, used) == []


def test_every_file_of_mutants_counts_and_no_two_functions_have_one_name() -> None:
    files = Path(rules.__file__).parent.glob("*.py")
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files if file.name != "rules.py"]
    written = [node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert sorted(name for name in written if not name.startswith("_")) == sorted(MUTANTS)


def test_nothing_in_the_modules_of_mutants_is_unused() -> None:
    named = {mutant for _, _, mutant in overridden()} | shipped()
    for entry in (*REGISTRY.models.values(), *REGISTRY.mutants.values()):
        named |= {entry.bounds, *entry.invariants, *entry.properties, *entry.probes}
    written = {op.name: op for name in MUTANT_MODULES for op in SPEC.module(name).definitions.values()}
    for operator in written.values():
        named |= set(names(operator.body))
    assert written.keys() - named == set()


# --- each comparison finds what it is for ---------------------------------------------------------------------------

DOOR = r"""
---- MODULE Door ----
(* A banner says nothing about what follows it. *)

CONSTANTS
    Keys,      \* those that fit
    MaxTurns   \* Open(key) == TRUE, but in a comment
VARIABLES isOpen, turnsMade

(* The key turns in
   no lock: this comment is not one for each line. *)

(* A key that fits,      *)
(* and is not worn. Kafka: none *)
Fits(key) == turnsMade < MaxTurns /\ key \in Keys

(* Somebody opens the door. It was closed. *)
Open(key) == /\ ~isOpen
             /\ Fits(key)
             /\ Turn(TRUE)

(* The wind closes the door. *)
Close == Turn(FALSE)

Turn(value) == isOpen' = value /\ turnsMade' = turnsMade + 1

Closing == Close /\ UNCHANGED frame
Next == \/ \E key \in Keys : Open(key)
        \/ Closing
(* What a visitor sees. *)
IsInviting == isOpen
====
"""


@pytest.fixture
def doors(tmp_path: Path) -> ModuleFolder:
    return folder_of(tmp_path, Door=DOOR.replace("Close == Turn(FALSE)", "Close == isOpen /\\ Turn(FALSE)"))


def folder_of(path: Path, **texts: str) -> ModuleFolder:
    for name, text in texts.items():
        (path / f"{name}.tla").write_text(text, encoding="utf-8")
    return ModuleFolder(path)


@dataclass(frozen=True, kw_only=True)
class Keys:
    keys: frozenset[int] = frozenset()
    max_turns: int = 0


@dataclass(frozen=True, kw_only=True)
class Door:
    MODULE: ClassVar[str] = "Door"
    VARIABLES: ClassVar[tuple[str, ...]] = ("isOpen", "turnsMade")

    constants: Keys
    is_open: bool
    turns_made: int

    def fits(self, key: int) -> bool:  # noqa: ARG002
        """A key that fits, and is not worn."""
        return self.turns_made < self.constants.max_turns

    @action("Open", "Keys")
    def open(self, key: int) -> Self:  # noqa: ARG002
        """Somebody opens the door. It was closed.

        Spec:  Door!Open
        """
        return self

    @action("Close")
    def close(self) -> Self:
        """The wind closes the door.

        Spec:  Door!Close
        """
        return self


def test_a_module_is_read_as_it_is_written(doors: ModuleFolder) -> None:
    door = doors.module("Door")
    assert (door.constants, door.variables) == (("Keys", "MaxTurns"), ("isOpen", "turnsMade"))
    assert door.meanings["MaxTurns"] == "Open(key) == TRUE, but in a comment"
    assert list(door.definitions) == ["Fits", "Open", "Close", "Turn", "Closing", "Next", "IsInviting"]
    assert door.definitions["Fits"].comment == "A key that fits, and is not worn. Kafka: none"
    assert DOOR.splitlines()[door.definitions["Fits"].line - 1].startswith("Fits(key) ==")
    assert door.definitions["Turn"].comment == ""
    assert set(doors.actions("Door", "Next")) == {"Open", "Close"}
    assert doors.reached("Door", "Next") == {"Next", "Open", "Fits", "Turn", "Closing", "Close"}


def test_a_machine_like_its_module_differs_in_nothing(doors: ModuleFolder) -> None:
    for compare in (differing_citations, differing_sentences, differing_parameters, differing_rules):
        assert compare(doors, Door, "Next") == []
    assert differing_declarations(doors, Door) == []


def test_a_missing_a_double_and_an_unknown_citation_are_found(doors: ModuleFolder) -> None:
    class Uncited(Door):
        def close(self) -> Self:
            """The wind closes the door."""
            return self

    class Doubled(Door):
        @action("Close")
        def slam(self) -> Self:
            """The wind closes the door.

            Spec:  Door!Close
            """
            return self

    class Unknown(Door):
        @action("Lock")
        def lock(self) -> Self:
            """Somebody locks the door.

            Spec:  Door!Lock
            """
            return self

    assert differing_citations(doors, Uncited, "Next") == ["Door!Close is cited 0 times"]
    assert differing_citations(doors, Doubled, "Next") == ["Door!Close is cited 2 times"]
    assert differing_citations(doors, Unknown, "Next") == ["Door!Lock is no action of Next"]


def test_a_citation_of_another_action_or_of_a_rule_is_found(doors: ModuleFolder) -> None:
    class Confused(Door):
        def close(self) -> Self:
            """The wind closes the door.

            Spec:  Door!Fits
            """
            return self

    assert differing_citations(doors, Confused, "Next") == [
        "Door!Close is cited 0 times",
        "Door!Fits is no action of Next",
        "close is marked Close, cites Fits",
    ]


def test_a_changed_sentence_is_found(doors: ModuleFolder) -> None:
    class Reworded(Door):
        def fits(self, key: int) -> bool:  # noqa: ARG002
            """A key that fits and is not worn."""
            return True

        def close(self) -> Self:
            """The wind shuts the door.

            Spec:  Door!Close
            """
            return self

    assert differing_sentences(doors, Reworded, "Next") == [
        "Close: 'The wind closes the door.' is 'The wind shuts the door.'"
    ]
    assert differing_rules(doors, Reworded, "Next") == [
        "Door!Fits: 'A key that fits, and is not worn' is 'A key that fits and is not worn'"
    ]


def test_another_parameter_or_method_name_is_found(doors: ModuleFolder) -> None:
    class Renamed(Door):
        def open(self, lock: int) -> Self:  # noqa: ARG002
            return self

        @action("Close")
        def shut(self) -> Self:
            return self

    assert differing_parameters(doors, Renamed, "Next") == ["Open: ('key',) is ('lock',)", "Close is shut"]


def test_other_variables_and_constants_are_found(doors: ModuleFolder) -> None:
    @dataclass(frozen=True, kw_only=True)
    class FewerKeys:
        keys: frozenset[int] = frozenset()

    @dataclass(frozen=True, kw_only=True)
    class Swapped(Door):
        VARIABLES: ClassVar[tuple[str, ...]] = ("turnsMade", "isOpen")

        open_since: int

    Swapped.__annotations__["constants"] = FewerKeys
    assert differing_declarations(doors, Swapped) == [
        "VARIABLES ('isOpen', 'turnsMade') is ('turnsMade', 'isOpen')",
        "variables ('isOpen', 'turnsMade') are the fields ('constants', 'is_open', 'turns_made', 'open_since')",
        "CONSTANTS ('Keys', 'MaxTurns') is ('Keys',)",
    ]


def test_a_mutant_without_a_function_one_too_many_and_other_words_are_found(tmp_path: Path) -> None:
    text = (
        "---- MODULE DoorMutants ----\n(* for Fits: every key fits *)\nAnyKey(key) == TRUE\nNoKey(key) == FALSE\n===="
    )
    spec = folder_of(tmp_path, DoorMutants=text)

    def python(docstring: str, module: str = "mutants.door") -> dict[str, Callable[..., object]]:
        def any_key(door: Door, key: int) -> bool:
            return True

        any_key.__doc__, any_key.__module__ = docstring, module
        return {"any_key": any_key}

    same = python("For ``fits``: every key fits.")
    assert differing_mutants(spec, same, ["AnyKey"]) == []
    assert differing_mutants(spec, same, ["AnyKey", "NoKey"]) == ["no function no_key"]
    assert differing_mutants(spec, same, []) == ["any_key is used by no override"]
    assert differing_mutants(spec, python("For ``fits``: any key fits."), ["AnyKey"]) == [
        "AnyKey: 'for Fits: every key fits' is 'for Fits: any key fits'"
    ]
    moved = python("For ``fits``: every key fits.", "mutants.window")
    assert differing_mutants(spec, moved, ["AnyKey"]) == ["any_key is in window, AnyKey in door"]
