"""The reference without one conjunct of a guard, compared with TLC's graph of the unchanged spec.

The sources of a machine are its own, those that it extends, and its logs'. These parts count as guards, with these
replacements:

=========================================================  ==========================================================
part                                                       its replacement
=========================================================  ==========================================================
a conjunct of ``enabled(…)``                               ``True``: it is not checked
a conjunct of the value of a function that returns bool    ``True``
a conjunct of ``name = … and …``                           ``True``
a disjunct of any of these                                 ``False``: the exception is not made
the condition of ``if …: return`` or of ``a if … else b``  ``False``, where an error code or a ``bool`` is decided
=========================================================  ==========================================================
"""

import ast
import copy
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kafka_eos_checks.graphs.command import LoadedGraph, load_graph, reference_of
from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.models.registry import Model, Registry, read_modules, rule_modules
from kafka_eos_checks.tla.result_cache import ResultCache, fingerprint, python_fingerprint, spec_fingerprint

VERDICTS = frozenset({"ErrorCode", "str"})  # the return types of functions that name an error
TIERS = ("small", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPart:
    """A part of a guard of the reference, and its replacement.

    Attributes:
        module: the Python module.
        function: the function's name in it, ``Class.method`` or ``function``.
        change: ``the part -> True``; the second of two equal ones in a function ends with ``#2``.
        line: the line of the part.
        tree: the function without the part.
    """

    module: str
    function: str
    change: str
    line: int
    tree: ast.FunctionDef

    @property
    def operator(self) -> str:
        """Module and function."""
        return f"{self.module.rpartition('.')[2]}!{self.function}"

    @property
    def name(self) -> str:
        """Operator and change."""
        return f"{self.operator}: {self.change}"


def guard_parts(module: ModuleType) -> list[GuardPart]:
    """The parts of all guards of a module, in the order of the text."""
    found: list[GuardPart] = []
    for name, function in functions_of(module):
        seen: Counter[str] = Counter()
        for path, value in _Places(function).found:
            tree = copy.deepcopy(function)
            part = _replace(tree, path, value)
            change = f"{ast.unparse(part)} -> {value}"
            seen[change] += 1
            change = change if seen[change] == 1 else f"{change} #{seen[change]}"
            found.append(GuardPart(module=module.__name__, function=name, change=change, line=part.lineno, tree=tree))
    return found


def functions_of(module: ModuleType) -> list[tuple[str, ast.FunctionDef]]:
    """The functions and methods of a module, by name, without class methods and static ones."""
    return [*_functions(ast.parse(inspect.getsource(module)).body)]


def _functions(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{statement.name}.")
        elif isinstance(statement, ast.FunctionDef) and not _is_of_class(statement):
            yield f"{prefix}{statement.name}", statement


def _is_of_class(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id in {"classmethod", "staticmethod"} for d in function.decorator_list)


_Path = tuple[str | int, ...]  # fields and indices that lead from a function to an expression


class _Places:
    """The guards of one function, as paths to expressions with their replacements."""

    def __init__(self, function: ast.FunctionDef) -> None:
        returns = ast.unparse(function.returns) if function.returns is not None else ""
        self.answers_bool = returns == "bool"
        self.decides = self.answers_bool or returns in VERDICTS
        self.found: list[tuple[_Path, bool]] = []
        for place, statement in enumerate(function.body):
            self._statement(statement, ("body", place))

    def _statement(self, statement: ast.stmt, path: _Path) -> None:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            if isinstance(call.func, ast.Name) and call.func.id == "enabled":
                self._formula(call.args[0], (*path, "value", "args", 0))
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BoolOp):
            self._formula(statement.value, (*path, "value"))
        elif isinstance(statement, ast.If):
            leaves = isinstance(statement.body[-1], ast.Return | ast.Raise)
            if self.decides and leaves:
                self._condition(statement.test, (*path, "test"))
            for branch in ("body", "orelse"):
                for place, inner in enumerate(getattr(statement, branch)):
                    self._statement(inner, (*path, branch, place))
        elif isinstance(statement, ast.Return) and statement.value is not None and self.decides:
            self._answer(statement.value, (*path, "value"))

    def _answer(self, expression: ast.expr, path: _Path) -> None:
        """Find the parts of the value that a deciding function returns."""
        if isinstance(expression, ast.IfExp):
            self._condition(expression.test, (*path, "test"))
            self._answer(expression.body, (*path, "body"))
            self._answer(expression.orelse, (*path, "orelse"))
        elif self.answers_bool:
            self._formula(expression, path)

    def _formula(self, expression: ast.expr, path: _Path) -> None:
        """Find the parts of a boolean expression: each conjunct, and the parts within it."""
        if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.And):
            for place, operand in enumerate(expression.values):
                self._formula(operand, (*path, "values", place))
        elif not isinstance(expression, ast.Constant):
            self.found.append((path, True))
            self._within(expression, path)

    def _within(self, expression: ast.expr, path: _Path) -> None:
        """Find the disjuncts of an expression with their conjuncts, and the conjuncts of a generator."""
        if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.Or):
            for place, operand in enumerate(expression.values):
                self.found.append(((*path, "values", place), False))
                if isinstance(operand, ast.BoolOp):
                    self._formula(operand, (*path, "values", place))
        elif isinstance(expression, ast.Call) and expression.args and isinstance(expression.args[0], ast.GeneratorExp):
            element = expression.args[0].elt
            if isinstance(element, ast.BoolOp) and isinstance(element.op, ast.And):
                self._formula(element, (*path, "args", 0, "elt"))

    def _condition(self, condition: ast.expr, path: _Path) -> None:
        """Find the changes of a branch: the branch is never taken, or a part of its condition is replaced."""
        self.found.append((path, False))
        if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And):
            self._formula(condition, path)
        else:
            self._within(condition, path)


def _replace(tree: ast.AST, path: _Path, value: bool) -> ast.expr:
    """Replace an expression by a constant, and return the expression."""
    *way, last = path
    node: Any = tree
    for step in way:
        node = node[step] if isinstance(step, int) else getattr(node, step)
    part: ast.expr = node[last] if isinstance(last, int) else getattr(node, str(last))
    constant = ast.copy_location(ast.Constant(value=value), part)
    if isinstance(last, int):
        node[last] = constant
    else:
        setattr(node, last, constant)
    return part


def _owner(module: str, function: str) -> tuple[Any, str]:
    """The module or class that has a function, and the function's name in it."""
    owner: Any = sys.modules[module]
    *outer, name = function.split(".")
    for step in outer:
        owner = getattr(owner, step)
    return owner, name


def original_code(module: str, function: str) -> CodeType | None:
    """The code that runs whenever a function is called; None for one that may remember its result (``cache``)."""
    owner, name = _owner(module, function)
    original = vars(owner)[name]
    if isinstance(original, property):
        original = original.fget
    return original.__code__ if isinstance(original, FunctionType) else None


def codes_of(modules: Iterable[ModuleType]) -> list[CodeType]:
    """The codes of all functions of modules."""
    codes = [original_code(module.__name__, name) for module in modules for name, _ in functions_of(module)]
    return [code for code in codes if code is not None]


@contextmanager
def mutated_reference(part: GuardPart) -> Iterator[None]:
    """Replace a function by its version without the part, in this process."""
    module = sys.modules[part.module]
    owner, name = _owner(part.module, part.function)
    original = vars(owner)[name]
    setattr(owner, name, _compiled(part, module, original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _compiled(part: GuardPart, module: ModuleType, original: Any) -> Any:
    """Compile the function and keep the original's attributes: a property stays one, an action keeps its name."""
    free = inspect.unwrap(getattr(original, "fget", original)).__code__.co_freevars
    assert not free, f"{part.operator} is compiled without its class, and would fail for want of {', '.join(free)}"
    tree = copy.deepcopy(part.tree)
    tree.decorator_list = []
    made: dict[str, Any] = {}
    code = compile(ast.fix_missing_locations(ast.Module(body=[tree], type_ignores=[])), str(module.__file__), "exec")
    exec(code, vars(module), made)  # noqa: S102 - the reference's own source, with a constant in one place
    function: Callable[..., Any] = made[tree.name]
    if isinstance(original, property):
        return property(function)
    vars(function).update(vars(original))
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSubject:
    """A part of a guard, and the models whose graphs can show that it is missing, the smallest first."""

    part: GuardPart
    models: tuple[Model, ...]

    @property
    def module(self) -> str:
        """The Python module of the part."""
        return self.part.module.rpartition(".")[2]

    @property
    def place(self) -> tuple[str, str]:
        """Operator and change, as in ``spec/conjuncts.toml``."""
        return self.part.operator, self.part.change


def reference_subjects(registry: Registry) -> list[ReferenceSubject]:
    """The parts of the guards of all machines whose graph is compared for some model."""
    models: dict[ModuleType, list[Model]] = {}
    for model in registry.models.values():
        if model.graph in TIERS:
            for module in rule_modules(model.machine_class()):
                models.setdefault(module, []).append(model)
    return [
        ReferenceSubject(part=part, models=tuple(sorted(own, key=lambda model: model.expect.states or 0)))
        for module, own in models.items()
        for part in guard_parts(module)
    ]


@dataclass(slots=True, kw_only=True)
class GraphSearch:
    """A search that compares mutants of the reference with TLC's graphs, each made once and only when needed.

    Attributes:
        cache: the results of earlier comparisons.
        on_progress: called with a line about the progress.
    """

    cache: ResultCache
    on_progress: Callable[[str], None] = lambda _: None
    _graphs: dict[str, LoadedGraph] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)

    def judge(self, subject: ReferenceSubject) -> Outcome:
        """The outcome for a mutant: the first graph that differs kills it; a machine that fails has no value there.

        Raises:
            GraphUnusable: when TLC gives no graph, or the reference as it is differs from it.
        """
        part = subject.part
        means, by, where, states, seconds = Means.NONE, "", "", 0, 0.0
        for model in subject.models:
            by, is_crash, took = self._difference(model, part)
            states += model.expect.states or 0
            seconds += took
            if by:
                means, where = Means.EVALUATION if is_crash else Means.GRAPH, model.name
                break
        return Outcome(
            operator=part.operator,
            change=part.change,
            place=f"{subject.module}.py:{part.line}",
            means=means,
            by=by,
            model=where,
            states=states,
            seconds=seconds,
        )

    def _difference(self, model: Model, part: GuardPart) -> tuple[str, bool, float]:
        """How the mutant first differs from the graph of a model, "" for not, whether it crashes, and the seconds."""
        key = fingerprint(self._key(model), part.name, ast.dump(part.tree))
        known = self.cache.get(key)
        if known is not None:
            return str(known["difference"]), bool(known["crashes"]), float(known["seconds"])
        graph = self._graphs.get(model.name)
        if graph is None:
            self.on_progress(f"{model.name}: TLC exports the graph")
            graph = self._graphs[model.name] = load_graph(model)
        self.on_progress(f"{part.name} in {model.name}")
        began = monotonic()
        with mutated_reference(part):
            difference, crashes = graph.first_difference()
        seconds = monotonic() - began
        self.cache.put(key, {"difference": difference, "crashes": crashes, "seconds": seconds})
        return difference, crashes, seconds

    def _key(self, model: Model) -> str:
        """The fingerprint of what a comparison depends on besides the mutant: spec, model, reference, this package."""
        found = self._keys.get(model.name)
        if found is None:
            machine = reference_of(model)
            modules = (machine.__module__, "kafka_eos_checks.graphs.command", "kafka_eos_checks.models.bounds")
            found = self._keys[model.name] = fingerprint(
                spec_fingerprint(model.spec, read_modules(model)),
                python_fingerprint(modules),
                *(inspect.getsource(module) for module in rule_modules(machine)),
                sorted({**model.constants, **model.overrides}.items()),
                model.bounds,
            )
        return found
