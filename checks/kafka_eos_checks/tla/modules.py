"""The TLA+ modules of a folder: their files, the modules they need, and the operators that each sees."""

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from kafka_eos_checks.tla.parser import Definition, Module, Tree, disjuncts, names, parse_module


class ModuleFolder:
    """The project's modules, anywhere below the folder, as they are when one is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, dict[str, tuple[str, Definition]]] = {}
        self._reached: dict[tuple[str, str], frozenset[str]] = {}
        self._reached_through: dict[tuple[str, str], frozenset[tuple[str, str]]] = {}
        self._asked: dict[tuple[str, str], frozenset[str]] = {}
        self._texts: dict[str, str] = {}
        self._chains: dict[str, list[Module]] = {}

    @cached_property
    def paths(self) -> dict[str, Path]:
        """Module name -> file."""
        return {path.stem: path for path in sorted(self.folder.rglob("*.tla"))}

    def text(self, module: str) -> str:
        """A module's text."""
        if module not in self._texts:
            self._texts[module] = self.paths[module].read_text(encoding="utf-8")
        return self._texts[module]

    def module(self, name: str) -> Module:
        """A module, parsed.

        Raises:
            UnknownSyntax: when it is outside of the subset that the parser reads.
        """
        return parse_module(name, self.text(name))

    def closure(self, modules: Iterable[str]) -> list[str]:
        """The modules of the project that these need, themselves included; TLC's own modules are left out."""
        found: list[str] = []
        waiting = list(modules)
        while waiting:
            name = waiting.pop()
            if name not in found and name in self.paths:
                found.append(name)
                module = self.module(name)
                waiting += [*module.extends, *module.instantiates]
        return found

    def chain(self, name: str) -> list[Module]:
        """A module and those that it extends, each after the ones that it extends itself; TLA+'s own are left out."""
        if name not in self.paths:
            return []
        if name not in self._chains:
            found: list[Module] = []
            own = self.module(name)
            for base in own.extends:
                found += [module for module in self.chain(base) if module not in found]
            self._chains[name] = [*found, own]
        return self._chains[name]

    def defines(self, module: str, operator: str) -> bool:
        """Whether a module itself defines an operator."""
        return module in self.paths and operator in self.module(module).definitions

    def operators(self, name: str) -> dict[str, tuple[str, Definition]]:
        """Every operator that a module sees: its name -> the module that defines it, and the definition."""
        if name not in self._seen:
            self._seen[name] = {
                definition.name: (module.name, definition)
                for module in self.chain(name)
                for definition in module.definitions.values()
            }
        return self._seen[name]

    def definition_text(self, name: str, operator: str) -> str:
        """The text of an operator that a module sees, with spaces in the place of comments."""
        home, definition = self.operators(name)[operator]
        lines = self.text(home).splitlines()[definition.line - 1 :]
        ends = (place for place, line in enumerate(lines) if place and not line.startswith(" "))
        text = "\n".join(lines[: next(ends)])
        return re.sub(r"\(\*.*?\*\)", lambda comment: " " * len(comment[0]), text).rstrip()

    def own_instances(self, name: str) -> dict[str, str]:
        """The modules that a module itself instantiates: name of the instance -> module."""
        definitions = self.module(name).definitions.values()
        return {each.name: each.body[1] for each in definitions if each.body[0] == "instance"}

    def instances(self, name: str) -> dict[str, str]:
        """The same of a module and those that it extends."""
        return {name: other for module in self.chain(name) for name, other in self.own_instances(module.name).items()}

    def asked(self, module: str, operator: str) -> frozenset[str]:
        """The names that the body of an operator refers to.

        Args:
            module: the one that defines it.
            operator: its name.
        """
        if (module, operator) not in self._asked:
            self._asked[module, operator] = frozenset(names(self.module(module).definitions[operator].body))
        return self._asked[module, operator]

    def actions(self, name: str, step: str) -> dict[str, tuple[str, Definition]]:
        """The actions that ``step`` is a disjunction of; as :meth:`operators`."""
        seen = self.operators(name)
        return {action: seen[action] for action, _ in self.steps(name, step)}

    def steps(self, name: str, step: str) -> list[tuple[str, tuple[Tree, ...]]]:
        """Each place where an action stands in ``step``: its name, and the sets that its parameters range over."""
        seen = self.operators(name)
        found = []
        waiting: list[tuple[str, tuple[Tree, ...]]] = [(step, ())]
        while waiting:
            word, ranges = waiting.pop()
            _, operator = seen[word]
            if operator.is_disjunction:
                bound = dict(zip(operator.parameters, ranges, strict=True))
                waiting += [part for part in disjuncts(operator.body, bound) if part[0] in seen]
            else:
                found.append((word, ranges))
        return found

    def reached(self, name: str, step: str) -> frozenset[str]:
        """Every operator that ``step`` depends on, itself included."""
        if (name, step) not in self._reached:
            self._reached[name, step] = frozenset(self._depends(name, step))
        return self._reached[name, step]

    def reached_through(self, name: str, step: str) -> frozenset[tuple[str, str]]:
        """Every operator that ``step`` depends on, also in instantiated modules: (module that defines it, operator)."""
        if (name, step) not in self._reached_through:
            self._reached_through[name, step] = frozenset(self._depends_through(name, step))
        return self._reached_through[name, step]

    def _depends_through(self, name: str, step: str) -> set[tuple[str, str]]:
        seen: set[tuple[str, str]] = set()  # (the module from which it is seen, operator)
        found: set[tuple[str, str]] = set()
        waiting = [(name, step)]
        while waiting:
            place, operator = waiting.pop()
            instance, _, inner = operator.rpartition("!")
            if instance:
                waiting.append((place, instance))
                if instance in self.instances(place):
                    waiting.append((self.instances(place)[instance], inner))
            elif operator in self.operators(place) and (place, operator) not in seen:
                seen.add((place, operator))
                home, _ = self.operators(place)[operator]
                found.add((home, operator))
                waiting += [(place, other) for other in self.asked(home, operator)]
        return found

    def _depends(self, name: str, step: str) -> set[str]:
        seen = self.operators(name)
        found: set[str] = set()
        waiting = [step]
        while waiting:
            operator = waiting.pop()
            if operator in seen and operator not in found:
                found.add(operator)
                waiting += self.asked(seen[operator][0], operator)
        return found
