"""The operators of the spec with everything that a page says of them: both texts, citations, error codes, places.

Nothing is stored here: TLA+ comes from the modules, Python from the reference's syntax trees, the places from
:mod:`kafka_eos_checks.matrix.impact`.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks.kit.missing import MissingExtra
from kafka_eos_checks.matrix.impact import Place, Rule, Sources, impact
from kafka_eos_checks.models.registry import Model
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.models.witnesses import SUFFIX
from kafka_eos_checks.proofs.command import proofs
from kafka_eos_checks.tla.citations import citations, cited_operators
from kafka_eos_checks.tla.parser import Definition, Module
from kafka_eos_checks.walks.layers import Layer, layers, layers_of_release

if TYPE_CHECKING:
    from kafka_eos_checks.proofs.induction import Proof

_COMMENT = re.compile(r"\(\*(.*?)\*\)\s*$")
_RULE = re.compile(r"\(\*+\)\s*$")
_LABELLED = re.compile(r"^(Spec|KIPs?|Kafka|Raises): +(.*)$")
_FREE = re.compile(r"\s+(Kafka|KIPs?):\s+(.*?)(?=\s+(?:Kafka|KIPs?):|$)")
_KIP = re.compile(r"(?:KIP-|KAFKA-)?\b\d{2,5}\b")
_CODES = frozenset(code.name for code in ErrorCode) - {"NONE"}
_COMPARED = frozenset({"=", "#", "in", "notin"})


class Kind(StrEnum):
    """The role of an operator in its module."""

    ACTION = "action"
    RULE = "rule"
    PROPERTY = "property"
    WITNESS = "witness"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A piece of a source file.

    Attributes:
        file: from the root of the clone.
        line: its first line, counted from 1.
        text: its lines.
    """

    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """File and lines."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of the spec.

    Attributes:
        module: the module that defines it.
        name: its name.
        kind: its role.
        section: the heading of the part of the module that it stands in, or "".
        sentence: the comment above it, without citations.
        notes: the further comments above it.
        tla: its text in the module.
        python: its text in the reference, or None where the reference has no such name.
        kafka: the classes and methods of Kafka that its comment or its docstring cites.
        kips: the proposals and issues that these cite.
        errors: the error codes that it, or what it depends on, names as an answer, in the order of the text.
    """

    module: str
    name: str
    kind: Kind
    section: str
    sentence: str
    notes: tuple[str, ...]
    tla: Code
    python: Code | None
    kafka: str
    kips: str
    errors: tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """The names that the reference defines.

    Attributes:
        sources: the project's files.
    """

    sources: Sources

    @cached_property
    def _defined(self) -> Mapping[str, list[tuple[str, ast.stmt, frozenset[str]]]]:
        """Name -> where it is defined: file, node, and the modules that the file cites."""
        found: dict[str, list[tuple[str, ast.stmt, frozenset[str]]]] = {}
        for path, text in self.sources.texts.items():
            if path.endswith(".py") and path.startswith(("reference/", "checks/kafka_eos_checks/mutants/")):
                cited = frozenset(
                    one.module
                    for each in citations(Path(path), text)
                    if each.label == "Spec"
                    for one in cited_operators(each)
                )
                for node in ast.walk(ast.parse(text)):
                    for name in _names(node):
                        found.setdefault(name, []).append((path, node, cited))  # type: ignore[arg-type]
        return found

    def find(self, module: str, operator: str) -> tuple[str, ast.stmt] | None:
        """The file and node of an operator: the method of its name, else the class, else the constant.

        Args:
            module: the one that defines the operator.
            operator: its name.
        """
        own = f"/{snake_case(module)}.py"
        for name in dict.fromkeys((snake_case(operator), operator, snake_case(operator).upper())):
            places = [each for each in self._defined.get(name, ()) if module in each[2] or each[0].endswith(own)]
            if module.endswith("Mutants"):
                places += [each for each in self._defined.get(name, ()) if "/mutants/" in each[0]]
            if places:
                path, node, _ = min(places, key=lambda each: (not each[0].endswith(own), "/machines/" not in each[0]))
                return path, node
        return None

    def code(self, path: str, node: ast.stmt) -> Code:
        """The text of a definition without its docstring, to the left margin."""
        lines = self.sources.lines[path]
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        kept = list(range(first, (node.end_lineno or first) + 1))
        if _docstring(node):
            said = node.body[0]  # type: ignore[attr-defined]
            kept = [number for number in kept if not said.lineno <= number <= said.end_lineno]
        margin = len(lines[first - 1]) - len(lines[first - 1].lstrip())
        text = "\n".join(lines[number - 1][margin:] for number in kept)
        return Code(file=path, line=first, text=text)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (each.id for each in targets if isinstance(each, ast.Name) and each.id.isupper())


def _docstring(node: ast.AST) -> str:
    return (ast.get_docstring(node) or "") if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""


def labelled(docstring: str) -> dict[str, str]:
    """The lines ``Kafka: …``, ``KIP: …`` of a docstring, with the lines that continue them."""
    found: dict[str, str] = {}
    label = ""
    for line in docstring.splitlines():
        matched = _LABELLED.match(line)
        if matched:
            label = "KIP" if matched[1].startswith("KIP") else matched[1]
            found[label] = matched[2].strip()
        elif label and line.startswith(" "):
            found[label] += " " + line.strip()
        else:
            label = ""
    return found


@dataclass
class Book:
    """The sources of the pages.

    Attributes:
        sources: the project's files.
    """

    sources: Sources = field(default_factory=Sources)

    def __post_init__(self) -> None:
        self.spec = self.sources.spec
        self.registry = self.sources.registry
        self.reference = Reference(self.sources)

    @cached_property
    def modules(self) -> dict[str, str]:
        """The modules -> the folder below ``spec/`` that they stand in; "" for those of the spec itself."""
        root = self.sources.root / "spec"
        return {
            name: "" if path.parent == root else path.parent.relative_to(root).as_posix()
            for name, path in self.spec.paths.items()
        }

    @cached_property
    def releases(self) -> Releases:
        """The rules that are different in releases of Kafka."""
        return Releases(self.sources.root / "spec")

    @cached_property
    def entries(self) -> dict[str, Model]:
        """Every model and mutant."""
        return {**self.registry.models, **self.registry.mutants}

    def entries_of(self, module: str) -> list[Model]:
        """The models and mutants of a module."""
        return [entry for entry in self.entries.values() if entry.module == module]

    @cached_property
    def judged(self) -> dict[tuple[str, str], list[Model]]:
        """(module, property) -> the models and mutants that check it, by the module that defines it."""
        found: dict[tuple[str, str], list[Model]] = {}
        for entry in self.entries.values():
            seen = self.spec.operators(self._seen_from(entry.module))
            for name in (*entry.invariants, *entry.properties):
                found.setdefault((seen[name][0], name), []).append(entry)
        return found

    @cached_property
    def walked(self) -> dict[tuple[str, str], list[Layer]]:
        """(module, property) -> the layers whose random walks check it, also by the rules of each release of Kafka."""
        found: dict[tuple[str, str], list[Layer]] = {}
        shipped = [layer for name in self.releases.releases for layer in layers_of_release(self.registry, name)]
        once = {layer.name: layer for layer in (*layers(self.registry), *shipped)}  # releases share what is the same
        for layer in once.values():
            seen = self.spec.operators(self._seen_from(layer.model.module))
            for name in layer.properties:
                found.setdefault((seen[name][0], name), []).append(layer)
        return found

    @cached_property
    def proved(self) -> dict[tuple[str, str], list["Proof"]]:
        """(module, property) -> the proofs of which it is a conjunct or a consequence; empty without z3.

        Some are defined in the module of the induction, which extends the machine's.
        """
        found: dict[tuple[str, str], list[Proof]] = {}
        try:
            every = proofs(())
        except MissingExtra:
            return found
        inductions = [module for module, folder in self.modules.items() if folder == "proofs"]
        for proof in every:
            names = {each.name for each in (*proof.conjuncts, *proof.properties)}
            extending = [each for each in inductions if proof.module in {one.name for one in self.spec.chain(each)}]
            for module in (proof.module, *extending):
                for name, (home, _) in self.spec.operators(module).items():
                    if name in names and proof not in found.setdefault((home, name), []):
                        found[home, name].append(proof)
        return found

    def _seen_from(self, module: str) -> str:
        return f"{module}Mutants" if f"{module}Mutants" in self.spec.paths else module

    def steps(self, module: str) -> dict[str, str]:
        """The actions of a module's ``Next``: name -> the module that defines it."""
        if "Next" not in self.spec.operators(module):
            return {}
        return {action.name: home for home, action in self.spec.actions(module, "Next").values()}

    @cached_property
    def actions(self) -> frozenset[tuple[str, str]]:
        """(module, action) of every action of every machine."""
        return frozenset((home, name) for module in self.modules for name, home in self.steps(module).items())

    def operators(self, module: str) -> list[Operator]:
        """The operators that a module defines, in the order of its text."""
        found = self.spec.module(module)
        lines = self.spec.text(module).splitlines()
        return [self._operator(found, lines, definition) for definition in found.definitions.values()]

    def _operator(self, module: Module, lines: list[str], definition: Definition) -> Operator:
        section, notes = _above(lines, definition.line)
        cited = {
            "KIP" if label.startswith("K") and "I" in label else label: text
            for label, text in _FREE.findall(definition.comment)
        }
        python = self.reference.find(module.name, definition.name)
        if python is not None:
            cited = {**cited, **labelled(_docstring(python[1]))}
        return Operator(
            module=module.name,
            name=definition.name,
            kind=self.kind(module.name, definition.name),
            section=section,
            sentence=re.split(r"\s+(?:Kafka|KIPs?|WHO):", definition.comment)[0],
            notes=notes,
            tla=self._tla(module.name, lines, definition.line),
            python=None if python is None else self.reference.code(*python),
            kafka=cited.get("Kafka", "").rstrip("."),
            kips=", ".join(dict.fromkeys(_KIP.findall(cited.get("KIP", "")))),
            errors=self.errors_of(module.name, definition.name),
        )

    def kind(self, module: str, name: str) -> Kind:
        """The part that an operator has."""
        if (module, name) in self.actions:
            return Kind.ACTION
        if (module, name) in self.judged:
            return Kind.PROPERTY
        if name.endswith(SUFFIX) and name.removesuffix(SUFFIX) in self.spec.module(module).definitions:
            return Kind.WITNESS
        return Kind.RULE

    def _tla(self, module: str, lines: list[str], first: int) -> Code:
        """A definition's text: it ends before the next line that starts in the first column."""
        last = first
        while last < len(lines) and (not lines[last].strip() or lines[last][0] == " "):
            last += 1
        text = "\n".join(lines[first - 1 : last]).rstrip()
        file = self.spec.paths[module].relative_to(self.sources.root).as_posix()
        return Code(file=file, line=first, text=text)

    def errors_of(self, module: str, name: str) -> tuple[str, ...]:
        """The error codes that an operator may answer, in the order of its checks.

        They are the codes that it names, and those of the operators that it uses. A code that is compared is no answer,
        and neither are the codes of what is compared with it: ``AppendError(log, batch) = "NONE"`` asks for a batch
        that is not refused. In the condition of an ``IF`` it asks whether to refuse, so there the codes count. A local
        definition counts where it is used. ``IF known THEN … ELSE "CODE"`` answers its code before the codes of the
        other branch, since the condition is checked first.

        ``Next`` and formulas of behaviours, which depend on actions, answer nothing themselves.
        """
        if self.kind(module, name) is not Kind.ACTION and self._reaches_actions(module, name):
            return ()
        found: dict[str, None] = {}
        visited: set[tuple[str, str]] = set()

        def enter(home: str, operator: str) -> None:
            seen = self.spec.operators(home)
            if operator in seen and (home, operator) not in visited:
                visited.add((home, operator))
                visit(home, seen[operator][1].body, {})

        def visit(home: str, tree: object, local: Mapping[str, Definition], condition: bool = False) -> None:
            if not isinstance(tree, tuple) or _is_comparison(tree, condition):
                return
            kind = tree[0] if tree else None
            if kind == "let":
                visit(home, tree[2], {**local, **{each.name: each for each in tree[1]}}, condition)
                return
            if kind == "if":
                visit(home, tree[1], local, condition=True)
                tree = tuple(sorted(tree[2:], key=_only_codes, reverse=True))
            elif kind == "literal" and tree[1] in _CODES:
                found[tree[1]] = None
            elif kind == "call" and tree[1] in local:
                others = {name: each for name, each in local.items() if name != tree[1]}
                visit(home, local[tree[1]].body, others)
            elif kind == "call":
                enter(home, tree[1])
            elif kind == "of":
                enter(self.spec.operators(home)[tree[1]][1].body[1], tree[2])
            for part in tree:
                visit(home, part, local, condition)

        enter(module, name)
        return tuple(found)

    def _reaches_actions(self, module: str, name: str) -> bool:
        seen = self.spec.operators(module)
        return any((seen[each][0], each) in self.actions for each in self.spec.reached(module, name))

    def places(self, module: str, name: str) -> list[Place]:
        """The places that a change to an operator touches."""
        return impact(Rule(name, (module,), self.sources))


def _is_comparison(tree: tuple[object, ...], condition: bool) -> bool:
    """Whether a formula compares with literals and gives no answer.

    ``answer' = "CODE"`` gives an answer, because it says what the next state is. So does ``Error(request) # "NONE"``,
    with which the action of a refusal begins.

    Args:
        tree: a formula.
        condition: whether it stands in the condition of an ``IF``.
    """
    if tree[:1] != ("infix",) or tree[1] not in _COMPARED:
        return False
    sides = tree[2:]
    if ("literal", "NONE") in sides and (condition or tree[1] == "#"):
        return False
    return any(map(_only_codes, sides)) and not any(isinstance(side, tuple) and side[0] == "prime" for side in sides)


def _only_codes(tree: object) -> bool:
    """A literal, or a set of literals."""
    return isinstance(tree, tuple) and (tree[:1] == ("literal",) or (tree[:1] == ("set",) and bool(tree[1])))


def _above(lines: list[str], line: int) -> tuple[str, tuple[str, ...]]:
    """The heading that a definition stands under, and the comments above it that are not its own sentence."""
    paragraphs: list[list[str]] = [[]]
    at = line - 2
    own = True
    while at >= 0 and (not lines[at].strip() or _COMMENT.match(lines[at])):
        if _RULE.match(lines[at]):
            break
        matched = _COMMENT.match(lines[at])
        if matched and not own:
            paragraphs[-1].insert(0, matched[1].strip())
        elif not matched:
            own = False
            paragraphs.append([])
        at -= 1
    notes = [" ".join(" ".join(each).split()) for each in reversed(paragraphs) if each]
    heading = ""
    for number in range(line - 2, 0, -1):
        if _RULE.match(lines[number]) and number >= 2 and _RULE.match(lines[number - 2]):
            matched = _COMMENT.match(lines[number - 1])
            heading = " ".join(matched[1].split()) if matched else ""
            break
    return heading, tuple(notes)
