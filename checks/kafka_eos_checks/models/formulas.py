"""Formulas of the spec as Python functions: compiled from a module's text, with a model's constants and overrides.

A definition becomes a function of two states, before and after a step, and of its parameters; a state is a tuple of the
variables' values. A value that depends on few variables is remembered until one of them changes: an invariant is
evaluated again only where a step may have changed it. ``Formulas(…, remember=False)`` evaluates everything every time,
and has to give the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kafka_eos.machines.spec_mapping import SpecValue
from kafka_eos_checks.models.registry import Model, extended_modules, replaced_instances
from kafka_eos_checks.tla import evaluation
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import Definition, Tree, UnknownSyntax, parse_expression
from kafka_eos_checks.tla.values import canonical

State: TypeAlias = tuple[SpecValue, ...]
Formula: TypeAlias = Callable[[State, State], Any]
Dependency: TypeAlias = int | tuple[int, int]  # a variable, or (a variable, the parameter that it is applied to)

MOST_REMEMBERED = 20_000  # values of one definition
_BINDERS = frozenset(
    {"all", "exists", "filter", "image", "choose", "function", "functions", "SUBSET", "lambda", "UNION"}
)
_SCALARS = frozenset({int, str, bool})
_COMPARISONS = {"=": "==", "#": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_ARITHMETIC = {"+": "+", "-": "-", "*": "*", "%": "%", "div": "//", "^": "**", "o": "+"}
_SETS = {"cup": "|", "cap": "&", "minus": "-"}


@dataclass(slots=True)
class Namespace:
    """The meaning of names, in the root module or in an instantiated one."""

    definitions: dict[str, Definition]
    variables: tuple[str, ...]
    constants: tuple[str, ...]
    parent: "Namespace | None" = None
    replaced: Mapping[str, Tree] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Compiled:
    """A definition as a function, and what it reads."""

    function: str
    parameters: int
    reads: frozenset[Dependency] = frozenset()
    primed: bool = False
    heavy: bool = False
    recursive: bool = False
    done: bool = False


@dataclass(slots=True)
class _Scope:
    """The scope of an expression.

    Attributes:
        space: the meaning of names.
        names: bound name -> (its Python expression, its arity or None for a value, the state of a LET's definition).
        parameters: the definition's parameters, name -> place; TLA+ forbids another meaning of such a name inside.
        state: the Python name of the state in which variables are looked up, and of the one after it.
    """

    space: Namespace
    names: dict[str, tuple[str, int | None, str]]
    parameters: dict[str, int]
    state: tuple[str, str]
    owner: _Compiled

    def with_names(self, **names: tuple[str, int | None, str]) -> "_Scope":
        return _Scope(self.space, {**self.names, **names}, self.parameters, self.state, self.owner)


class Formulas:
    """The definitions of a model's module.

    Args:
        model: the model or mutant: its module, constants and overrides.
        constants: constant -> its value, instead of the model's.
        remember: whether values are remembered as long as what they read stays the same.
    """

    def __init__(self, model: Model, constants: Mapping[str, SpecValue] | None = None, remember: bool = True) -> None:
        self._folder = ModuleFolder(model.spec)
        self._remember = remember
        self.root = self._namespace(
            model.module, *(name for name in extended_modules(model) if name.endswith("Mutants"))
        )
        self.root.overrides = dict(model.overrides)
        self._replaced = {instance.name: instance for instance in replaced_instances(model)}
        self.variables = self.root.variables
        self._python: dict[str, Any] = {name: getattr(evaluation, name) for name in _HELPERS}
        self._compiled: dict[tuple[int, str], _Compiled] = {}
        self._spaces: dict[str, Namespace] = {}
        self._count = 0
        self._sources: list[str] = []
        self._caches: list[dict[Any, Any]] = []
        self.constants: dict[str, SpecValue] = {}
        for name in self.root.constants:
            if constants is not None and name in constants:
                self.constants[name] = canonical(constants[name])
            else:
                tree = parse_expression(model.constants[name], model.source)
                self.constants[name] = self.evaluate(tree)((), ())

    def _namespace(self, *names: str) -> Namespace:
        """The namespace of a module that extends others."""
        chain = list({module.name: module for name in names for module in self._folder.chain(name)}.values())
        return Namespace(
            definitions={key: definition for module in chain for key, definition in module.definitions.items()},
            variables=tuple(dict.fromkeys(variable for module in chain for variable in module.variables)),
            constants=tuple(dict.fromkeys(constant for module in chain for constant in module.constants)),
        )

    def forget(self) -> None:
        """Forget remembered values; called between runs, when a converter starts again."""
        for cache in self._caches:
            cache.clear()

    def definition(self, name: str) -> Definition:
        """A definition of the root module, after overrides.

        Raises:
            UnknownSyntax: when there is none.
        """
        found = self.root.definitions.get(self.root.overrides.get(name, name))
        if found is None:
            raise UnknownSyntax(f"no definition {name}")
        return found

    def _expression(self, tree: Tree, space: Namespace) -> _Compiled:
        self._count += 1
        name = f"expression_{self._count}"
        space.definitions[name] = Definition(name, (), tree)
        return self._define(space, name)

    def evaluate(self, tree: Tree, space: Namespace | None = None) -> Formula:
        """An expression as a function of two states; ``space`` gives names their meaning, by default the root's."""
        formula: Formula = self._python[self._expression(tree, space or self.root).function]
        return formula

    def named(self, name: str) -> Formula:
        """A definition without parameters as a function of two states."""
        formula: Formula = self._python[self._define(self.root, name).function]
        return formula

    def reads(self, tree: Tree, space: Namespace | None = None) -> frozenset[int]:
        """The places of the variables that an expression reads."""
        compiled = self._expression(tree, space or self.root)
        return frozenset(r if isinstance(r, int) else r[0] for r in compiled.reads)

    def resolved(self, tree: Tree, space: Namespace) -> tuple[Tree, Namespace]:
        """The definition of a name, with its arguments in it and with its namespace; any other expression is itself.

        A name of another module that has arguments is itself, too.
        """
        while True:
            if tree[0] == "of" and not tree[3]:
                space = self._instance(space, tree[1])
                tree = ("call", tree[2], ())
            name = tree[1] if tree[0] == "call" else ""
            found = space.definitions.get(space.overrides.get(name, name))
            if found is None or len(found.parameters) != len(tree[2]):  # as an operator that is itself an argument
                return tree, space
            tree = replaced(found.body, dict(zip(found.parameters, tree[2], strict=True)))

    # --- definitions

    def _define(self, space: Namespace, name: str) -> _Compiled:
        name = space.overrides.get(name, name)
        key = (id(space), name)
        known = self._compiled.get(key)
        if known is not None:
            if not known.done:
                known.recursive = True
            return known
        definition = space.definitions[name]
        self._count += 1
        compiled = _Compiled(f"d{self._count}_{definition.name}", len(definition.parameters))
        self._compiled[key] = compiled
        names: dict[str, tuple[str, int | None, str]] = {p: (f"p_{p}", None, "") for p in definition.parameters}
        places = {p: place for place, p in enumerate(definition.parameters)}
        scope = _Scope(space, names, places, ("s", "t"), compiled)
        body = self._code(definition.body, scope)
        if compiled.recursive:
            compiled.reads = frozenset(r if isinstance(r, int) else r[0] for r in compiled.reads)
        compiled.done = True
        parameters = "".join(f", p_{p}" for p in definition.parameters)
        source = f"def {compiled.function}(s, t{parameters}):\n    return {body}\n"
        exec(compile(source, f"<{name}>", "exec"), self._python)  # noqa: S102 - the code is our own, made of the spec
        if self._remember and compiled.heavy and not compiled.primed and not compiled.recursive:
            self._remembering(compiled, definition.parameters)
        return compiled

    def _remembering(self, compiled: _Compiled, parameters: Sequence[str]) -> None:
        """Put a function that remembers in the place of a definition's own."""
        names = [f"p_{p}" for p in parameters]
        kept = [
            f"s[{read}]" if isinstance(read, int) else f"apply(s[{read[0]}], {names[read[1]]})"
            for read in sorted(compiled.reads, key=str)
        ]
        slots = [f"k{place}" for place in range(len(kept))]
        lines = [f"    {slot} = {read}" for slot, read in zip(slots, kept, strict=True)]
        key = [f"id({slot})" for slot in slots]
        key += [f"({name} if {name}.__class__ in scalars else id({name}))" for name in names]
        inner, cache = f"{compiled.function}_plain", f"{compiled.function}_cache"
        self._python[inner] = self._python[compiled.function]
        self._python[cache] = {}
        self._caches.append(self._python[cache])
        given = "".join(f", {name}" for name in names)
        held = "".join(f", {name}" for name in (*slots, *names))
        source = "\n".join(
            [
                f"def {compiled.function}(s, t{given}):",
                *lines,
                f"    key = ({''.join(f'{one}, ' for one in key)})",
                f"    known = {cache}.get(key)",
                "    if known is not None:",
                "        return known[0]",
                f"    value = {inner}(s, None{given})",
                f"    if len({cache}) > {MOST_REMEMBERED}:",
                f"        {cache}.clear()",
                f"    {cache}[key] = (value{held},)",
                "    return value",
                "",
            ]
        )
        self._python.setdefault("scalars", _SCALARS)
        exec(compile(source, f"<{compiled.function}>", "exec"), self._python)  # noqa: S102 - as above

    def _instance(self, space: Namespace, name: str) -> Namespace:
        if name not in self._spaces:
            kind, module, given = space.definitions[name].body
            assert kind == "instance"
            changed = self._replaced.get(name) if space is self.root else None
            inner = self._namespace(module, *(changed.extended if changed else ()))
            inner.parent, inner.replaced = space, dict(given)
            if changed:
                inner.overrides = {rule: other for (_, rule, _), other in changed.overrides.items()}
            self._spaces[name] = inner
        return self._spaces[name]

    # --- expressions

    def _code(self, tree: Tree, scope: _Scope) -> str:
        kind = tree[0]
        if kind in _BINDERS:
            scope.owner.heavy = True
        code: str = getattr(self, f"_{kind}")(tree, scope)
        return code

    def _literal(self, tree: Tree, scope: _Scope) -> str:  # noqa: ARG002
        if tree[1].__class__ in _SCALARS:
            return repr(tree[1])
        self._count += 1
        self._python[f"v{self._count}"] = tree[1]
        return f"v{self._count}"

    def _and(self, tree: Tree, scope: _Scope) -> str:
        return "(" + " and ".join(self._code(item, scope) for item in tree[1]) + ")"

    def _or(self, tree: Tree, scope: _Scope) -> str:
        return "(" + " or ".join(self._code(item, scope) for item in tree[1]) + ")"

    def _not(self, tree: Tree, scope: _Scope) -> str:
        return f"(not {self._code(tree[1], scope)})"

    def _negative(self, tree: Tree, scope: _Scope) -> str:
        return f"(-{self._code(tree[1], scope)})"

    def _if(self, tree: Tree, scope: _Scope) -> str:
        condition, then, other = (self._code(part, scope) for part in tree[1:])
        return f"({then} if {condition} else {other})"

    def _case(self, tree: Tree, scope: _Scope) -> str:
        other = "choose(iter(()))" if tree[2] is None else self._code(tree[2], scope)
        for condition, value in reversed(tree[1]):
            other = f"({self._code(value, scope)} if {self._code(condition, scope)} else {other})"
        return other

    def _infix(self, tree: Tree, scope: _Scope) -> str:
        operator = tree[1]
        if operator == "..":
            return f"frozenset({self._each(tree, scope)})"
        if operator in {"in", "notin"}:
            inside = self._member(tree[2], tree[3], scope)
            return inside if operator == "in" else f"(not {inside})"
        one, two = self._code(tree[2], scope), self._code(tree[3], scope)
        if operator in {"=>", "~>"}:
            # ``~>`` where nothing more happens: what is so stays so
            return f"(not {one} or {two})"
        if operator == "<=>":
            return f"({one} == {two})"
        if operator == "subseteq":
            return f"({one} <= {two})"
        if operator == "@@":
            return f"merged({one}, {two})"
        if operator == ":>":
            return f"function({{{one}: {two}}})"
        symbol = _COMPARISONS.get(operator) or _ARITHMETIC.get(operator) or _SETS[operator]
        return f"({one} {symbol} {two})"

    def _member(self, element: Tree, elements: Tree, scope: _Scope) -> str:
        one = self._code(element, scope)
        if elements[0] == "infix" and elements[1] == "..":
            low, high = self._code(elements[2], scope), self._code(elements[3], scope)
            return f"({low} <= {one} <= {high})"
        if elements[0] == "call" and elements[1] in {"Nat", "Int"} and elements[1] not in scope.names:
            return f"({one} >= 0)" if elements[1] == "Nat" else "True"
        if elements[0] == "set":
            inside = ", ".join(self._code(item, scope) for item in elements[1])
            if all(item[0] == "literal" for item in elements[1]):
                return f"({one} in {{{inside}}})" if inside else "False"
            return f"({one} in ({inside},))"
        if elements[0] == "DOMAIN":
            return f"({one} in domain({self._code(elements[1], scope)}))"
        return f"({one} in {self._code(elements, scope)})"

    def _each(self, tree: Tree, scope: _Scope) -> str:
        """A set to be iterated over."""
        if tree[0] == "infix" and tree[1] == "..":
            return f"range({self._code(tree[2], scope)}, {self._code(tree[3], scope)} + 1)"
        if tree[0] == "DOMAIN":
            return f"domain({self._code(tree[1], scope)})"
        if tree[0] == "set":
            return "(" + "".join(f"{self._code(item, scope)}, " for item in tree[1]) + ")"
        if tree[0] == "filter":
            inner = scope.with_names(**{tree[1]: (f"b_{tree[1]}", None, "")})
            return f"(b_{tree[1]} for b_{tree[1]} in {self._each(tree[2], scope)} if {self._code(tree[3], inner)})"
        if tree[0] == "SUBSET":
            return f"subsets({self._each(tree[1], scope)})"
        if tree[0] == "functions":
            return f"functions({self._each(tree[1], scope)}, {self._each(tree[2], scope)})"
        return self._code(tree, scope)

    def _loops(self, bounds: Sequence[tuple[str, Tree]], scope: _Scope) -> tuple[str, _Scope]:
        loops = []
        for name, elements in bounds:
            loops.append(f"for b_{name} in {self._each(elements, scope)}")
            scope = scope.with_names(**{name: (f"b_{name}", None, "")})
        return " ".join(loops), scope

    def _all(self, tree: Tree, scope: _Scope) -> str:
        loops, inner = self._loops(tree[1], scope)
        return f"all({self._code(tree[2], inner)} {loops})"

    def _exists(self, tree: Tree, scope: _Scope) -> str:
        loops, inner = self._loops(tree[1], scope)
        return f"any({self._code(tree[2], inner)} {loops})"

    def _choose(self, tree: Tree, scope: _Scope) -> str:
        loops, inner = self._loops(((tree[1], tree[2]),), scope)
        return f"choose(b_{tree[1]} {loops} if {self._code(tree[3], inner)})"

    def _filter(self, tree: Tree, scope: _Scope) -> str:
        return f"frozenset({self._each(tree, scope)})"

    def _image(self, tree: Tree, scope: _Scope) -> str:
        loops, inner = self._loops(tree[2], scope)
        return f"frozenset({self._code(tree[1], inner)} {loops})"

    def _set(self, tree: Tree, scope: _Scope) -> str:
        return f"frozenset({self._each(tree, scope)})"

    def _times(self, tree: Tree, scope: _Scope) -> str:
        sets = ", ".join(self._each(item, scope) for item in tree[1])
        return f"frozenset(product({sets}))"

    def _tuple(self, tree: Tree, scope: _Scope) -> str:
        return "(" + "".join(f"{self._code(item, scope)}, " for item in tree[1]) + ")"

    def _record(self, tree: Tree, scope: _Scope) -> str:
        return "Map({" + ", ".join(f"{key!r}: {self._code(value, scope)}" for key, value in tree[1]) + "})"

    def _function(self, tree: Tree, scope: _Scope) -> str:
        loops, inner = self._loops(tree[1], scope)
        key = ", ".join(f"b_{name}" for name, _ in tree[1])
        return f"function({{({key}): {self._code(tree[2], inner)} {loops}}})"

    def _functions(self, tree: Tree, scope: _Scope) -> str:
        return f"frozenset({self._each(tree, scope)})"

    def _DOMAIN(self, tree: Tree, scope: _Scope) -> str:  # noqa: N802 - the kind of the tree
        return f"frozenset(domain({self._code(tree[1], scope)}))"

    def _UNION(self, tree: Tree, scope: _Scope) -> str:  # noqa: N802
        return f"union({self._each(tree[1], scope)})"

    def _SUBSET(self, tree: Tree, scope: _Scope) -> str:  # noqa: N802
        return f"frozenset({self._each(tree, scope)})"

    def _field(self, tree: Tree, scope: _Scope) -> str:
        return f"{self._code(tree[1], scope)}[{tree[2]!r}]"

    def _apply(self, tree: Tree, scope: _Scope) -> str:
        argument = tree[2]
        if tree[1][0] == "call" and argument[0] == "call" and argument[1] in scope.parameters:
            variable = self._variable(tree[1][1], scope)
            if variable is not None:
                self._read(scope, frozenset({(variable, scope.parameters[argument[1]])}))
                return f"apply({scope.state[0]}[{variable}], p_{argument[1]})"
        return f"apply({self._code(tree[1], scope)}, {self._code(argument, scope)})"

    def _except(self, tree: Tree, scope: _Scope) -> str:
        code = self._code(tree[1], scope)
        for path, value in tree[2]:
            inner = scope.with_names(**{"@": ("at", None, "")})
            steps = "(" + "".join(f"{self._code(step, scope)}, " for step in path) + ")"
            code = f"changed({code}, {steps}, lambda at: {self._code(value, inner)})"
        return code

    def _at(self, tree: Tree, scope: _Scope) -> str:  # noqa: ARG002
        return "at"

    def _lambda(self, tree: Tree, scope: _Scope) -> str:
        inner = scope.with_names(**{name: (f"b_{name}", None, "") for name in tree[1]})
        return f"(lambda {', '.join(f'b_{name}' for name in tree[1])}: {self._code(tree[2], inner)})"

    def _let(self, tree: Tree, scope: _Scope) -> str:
        wrapped: list[tuple[str, str]] = []
        for definition in tree[1]:
            inner = scope.with_names(**{p: (f"b_{p}", None, "") for p in definition.parameters})
            body = self._code(definition.body, inner)
            if definition.parameters:
                made = f"lambda {', '.join(f'b_{p}' for p in definition.parameters)}: {body}"
                entry: tuple[str, int | None, str] = (
                    f"l_{definition.name}",
                    len(definition.parameters),
                    scope.state[0],
                )
            else:
                made = f"Lazy(lambda: {body})"
                entry = (f"l_{definition.name}.get()", None, scope.state[0])
            wrapped.append((f"l_{definition.name}", made))
            scope = scope.with_names(**{definition.name: entry})
        code = self._code(tree[2], scope)
        for name, made in reversed(wrapped):
            code = f"(lambda {name}: {code})({made})"
        return code

    # --- what depends on the state

    def _read(self, scope: _Scope, reads: frozenset[Dependency]) -> None:
        scope.owner.reads |= reads
        if scope.state[0] != "s":
            scope.owner.primed = True

    def _variable(self, name: str, scope: _Scope) -> int | None:
        """The place of a variable of the root module."""
        if name in scope.names or scope.space.parent is not None or name in scope.space.definitions:
            return None
        return scope.space.variables.index(name) if name in scope.space.variables else None

    def _prime(self, tree: Tree, scope: _Scope) -> str:
        scope.owner.primed = True
        after = _Scope(scope.space, scope.names, scope.parameters, (scope.state[1], "None"), scope.owner)
        return self._code(tree[1], after)

    def _unchanged(self, tree: Tree, scope: _Scope) -> str:
        before = self._code(tree[1], scope)
        return f"({self._prime(('prime', tree[1]), scope)} == {before})"

    def _step(self, tree: Tree, scope: _Scope) -> str:
        return f"({self._unchanged(('unchanged', tree[2]), scope)} or {self._code(tree[1], scope)})"

    def _always(self, tree: Tree, scope: _Scope) -> str:
        return self._code(tree[1], scope)

    def _eventually(self, tree: Tree, scope: _Scope) -> str:
        return self._code(tree[1], scope)

    def _of(self, tree: Tree, scope: _Scope) -> str:
        space = self._instance(scope.space, tree[1])
        return self._called(space, tree[2], tree[3], scope)

    def _called(self, space: Namespace, name: str, given: Sequence[Tree], scope: _Scope) -> str:
        compiled = self._define(space, name)
        owner = scope.owner
        owner.heavy |= compiled.heavy
        if compiled.primed:
            owner.primed = True
        reads: set[Dependency] = set()
        for read in compiled.reads:
            if isinstance(read, int):
                reads.add(read)
                continue
            argument = given[read[1]]
            is_parameter = argument[0] == "call" and argument[1] in scope.parameters
            reads.add((read[0], scope.parameters[argument[1]]) if is_parameter else read[0])
        if reads:
            self._read(scope, frozenset(reads))
        arguments = "".join(f", {self._code(item, scope)}" for item in given)
        before, after = scope.state
        if compiled.parameters and not given:  # handed on as an operator
            return f"(lambda *given: {compiled.function}({before}, {after}, *given))"
        return f"{compiled.function}({before}, {after}{arguments})"

    def _call(self, tree: Tree, scope: _Scope) -> str:
        name, given = tree[1], tree[2]
        if name in scope.names:
            code, _, of = scope.names[name]
            if of and of != scope.state[0]:
                raise UnknownSyntax(f"{name} is defined by LET in one state and asked for in another")
            arguments = ", ".join(self._code(item, scope) for item in given)
            return f"{code}({arguments})" if given else code
        space = scope.space
        if space.overrides.get(name, name) in space.definitions:
            return self._called(space, name, given, scope)
        if name in space.variables or name in space.constants:
            return self._declared(name, scope)
        arguments = ", ".join(self._code(item, scope) for item in given)
        if name not in _BUILTINS:
            raise UnknownSyntax(f"nothing is called {name}")
        return _BUILTINS[name].format(arguments)

    def _declared(self, name: str, scope: _Scope) -> str:
        space = scope.space
        if space.parent is None:
            if name in space.variables:
                place = space.variables.index(name)
                self._read(scope, frozenset({place}))
                return f"{scope.state[0]}[{place}]"
            python = f"c_{name}"
            if python not in self._python:
                self._python[python] = self.constants[name]
            return python
        outer = f"instance {name} of {id(space)}"
        space.parent.definitions.setdefault(
            outer, Definition(f"for_{name}", (), space.replaced.get(name, ("call", name, ())))
        )
        return self._called(space.parent, outer, (), scope)


_HELPERS = (
    "Lazy",
    "Map",
    "append",
    "apply",
    "changed",
    "choose",
    "domain",
    "function",
    "functions",
    "head",
    "merged",
    "product",
    "selected",
    "subsequence",
    "subsets",
    "union",
)
_BUILTINS = {
    "Len": "len({})",
    "Append": "append({})",
    "Head": "head({})",
    "Tail": "{}[1:]",
    "SubSeq": "subsequence({})",
    "SelectSeq": "selected({})",
    "Cardinality": "len({})",
    "BOOLEAN": "frozenset((False, True))",
}


def replaced(tree: Any, bound: Mapping[str, Tree]) -> Any:
    """A tree with names replaced; bound variables of the project's modules have names of their own."""
    if not isinstance(tree, tuple):
        return tree
    if len(tree) == 3 and tree[0] == "call" and not tree[2] and tree[1] in bound:
        return bound[tree[1]]
    return tuple(replaced(item, bound) for item in tree)
