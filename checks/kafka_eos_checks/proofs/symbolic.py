"""Symbolic execution: Python runs the reference's own functions on z3 terms.

Nothing is interpreted or copied. The arguments are :class:`Number`; comparing them gives a :class:`Condition`; and
where Python asks a condition for its truth (``if``, ``and``, ``not``, ``any``), the execution forks: :func:`explore`
runs the function once for each way that its conditions allow. Loops run over concrete lengths; a collection of
unbounded length has to define its own iteration.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec

import z3

from kafka_eos.errors import NotEnabled, Rejected

MAX_PATHS = 5_000
MAX_DECISIONS = 500  # on one way

P = ParamSpec("P")


class TooManyPaths(RuntimeError):  # noqa: N818 - named for what there are too many of
    """A function with too many or too long ways through it: a loop whose end depends on a symbolic condition."""


@dataclass(slots=True)
class _Path:
    """A way through a function; the next one begins where this one has its last choice left.

    Attributes:
        solver: holds the assumptions and decisions; says which ways are possible.
        scopes: the scopes of the solver below the first decision. Each decision has one.
        prefix: the decisions to repeat.
        taken: the decisions so far.
        decided: the same by the identity of the condition, which z3 gives to equal terms.
        conditions: the formulas of these decisions.
        crashes: the conditions under which a merged function inside fails.
        open_ends: prefixes that are left to explore.
        merged: after so many decisions, the results of the merged functions in the order of their calls.
        calls: the calls of merged functions since the last decision.
        simple: conditions that were simplified, by their identity, and their truth if they have one on every way.
    """

    solver: Any
    scopes: int
    prefix: Sequence[bool] = ()
    taken: list[bool] = field(default_factory=list)
    decided: dict[int, bool] = field(default_factory=dict)
    conditions: list[Any] = field(default_factory=list)
    crashes: list[Any] = field(default_factory=list)
    open_ends: list[list[bool]] = field(default_factory=list)
    merged: list[list["_Merged"]] = field(default_factory=lambda: [[]])
    calls: int = 0
    simple: dict[int, tuple[Any, bool | None]] = field(default_factory=dict)

    def begin(self, prefix: Sequence[bool]) -> None:
        """Begin the way with these decisions, of which the solver holds all but the last from the way before."""
        self.prefix, self.calls = prefix, 0
        held = max(len(prefix) - 1, 0)
        self.solver.pop(self.solver.num_scopes() - self.scopes - held)
        del self.merged[held + 1 :]
        self.taken, self.decided, self.conditions, self.crashes = [], {}, [], []

    def decide(self, condition: Any) -> bool:
        """The truth of a condition on this way."""
        for path in _paths:
            if condition.get_id() in path.decided:
                return path.decided[condition.get_id()]
        always = self._always(condition)
        if always is not None:
            return always
        place = len(self.taken)
        if place >= MAX_DECISIONS:
            raise TooManyPaths(f"more than {MAX_DECISIONS} decisions on one way; a loop has no concrete end")
        if place < len(self.prefix):
            choice = self.prefix[place]
        else:
            choice = self._possible(condition)
            if choice and self._possible(z3.Not(condition)):
                self.open_ends.append([*self.taken, False])
        self.taken.append(choice)
        self.decided[condition.get_id()] = choice
        self.conditions.append(condition if choice else z3.Not(condition))
        self.calls = 0
        if place >= len(self.prefix) - 1:
            self.solver.push()
            self.solver.add(self.conditions[-1])
            self.merged.append([])
        return choice

    def _always(self, condition: Any) -> bool | None:
        if condition.get_id() not in self.simple:
            simple = z3.simplify(condition)
            truth = bool(z3.is_true(simple)) if z3.is_true(simple) or z3.is_false(simple) else None
            self.simple[condition.get_id()] = condition, truth
        return self.simple[condition.get_id()][1]

    def _possible(self, condition: Any) -> bool:
        self.solver.push()
        self.solver.add(condition)
        found = self.solver.check()
        self.solver.pop()
        return bool(found != z3.unsat)

    def known(self, function: Callable[[], "_Merged"]) -> "_Merged":
        """The result of a merged function; that of the way before, if this one repeats the decisions before it."""
        results = self.merged[len(self.taken)]
        if self.calls == len(results):
            results.append(function())
        self.calls += 1
        return results[self.calls - 1]


_paths: list[_Path] = []  # the innermost exploration last


_NEVER = z3.BoolVal(False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a function on one way.

    Attributes:
        condition: the condition of this way.
        value: what it returns; None if it raises.
        error: what it raises; None if it returns.
        crashed: the condition under which a merged function inside has no value.
    """

    condition: Any
    value: Any = None
    error: Exception | None = None
    crashed: Any = _NEVER


def explore(function: Callable[[], Any], assumptions: Sequence[Any] = ()) -> list[Outcome]:
    """Every way through a function.

    Args:
        function: without arguments; its conditions are over terms that it has from its surroundings.
        assumptions: formulas that hold when it is called.

    Raises:
        TooManyPaths: for a function with more than ``MAX_PATHS`` ways, or ``MAX_DECISIONS`` decisions on one.
    """
    solver = _paths[-1].solver if _paths else z3.SimpleSolver()
    outcomes: list[Outcome] = []
    solver.push()
    solver.add(*assumptions)
    path = _Path(solver, solver.num_scopes())
    path.open_ends.append([])
    _paths.append(path)
    try:
        while path.open_ends:
            path.begin(path.open_ends.pop())
            try:
                value, error = function(), None
            except (NotEnabled, Rejected, LookupError, StopIteration, AssertionError) as raised:
                value, error = None, raised
            outcomes.append(Outcome(conjunction(path.conditions), value, error, disjunction(path.crashes)))
            if len(outcomes) > MAX_PATHS:
                raise TooManyPaths(f"more than {MAX_PATHS} ways through a function; a loop has no concrete end")
    finally:
        _paths.pop()
        solver.pop(solver.num_scopes() - path.scopes + 1)
    return outcomes


@dataclass(frozen=True, slots=True)
class _Merged:
    """The result of a merged function: a value or an error, and the condition under which it has none."""

    value: Any = None
    error: Exception | None = None
    crashed: Any = None


def merged(function: Callable[P, Any]) -> Callable[P, Any]:
    """The same function with its ways merged into one term, so that its caller does not fork.

    For functions that return a number or a truth value.
    """

    @wraps(function)
    def run(*arguments: P.args, **keywords: P.kwargs) -> Any:
        def merge() -> _Merged:
            return _merge(explore(lambda: function(*arguments, **keywords)))

        found = _paths[-1].known(merge) if _paths else merge()
        if found.error is not None:
            raise found.error.with_traceback(None)  # it may be raised on several ways
        if _paths:
            _paths[-1].crashes.append(found.crashed)
        return found.value

    return run


def _merge(outcomes: Sequence[Outcome]) -> _Merged:
    values = [outcome for outcome in outcomes if outcome.error is None]
    if not values:
        return _Merged(error=outcomes[0].error)
    crashes = [outcome.condition for outcome in outcomes if outcome.error is not None]
    crashed = disjunction([*crashes, *(z3.And(outcome.condition, outcome.crashed) for outcome in values)])
    if len(values) == 1:
        return _Merged(values[0].value, crashed=crashed)
    terms = [term_of(outcome.value) for outcome in values]
    result = terms[-1]
    for outcome, term in zip(reversed(values[:-1]), reversed(terms[:-1]), strict=True):
        result = z3.If(outcome.condition, term, result)
    return _Merged(Condition(result) if z3.is_bool(result) else Number(result), crashed=crashed)


def conjunction(formulas: Sequence[Any]) -> Any:
    """The conjunction of formulas."""
    return z3.And(*formulas) if formulas else z3.BoolVal(True)


def disjunction(formulas: Sequence[Any]) -> Any:
    """The disjunction of formulas."""
    return z3.Or(*formulas) if formulas else z3.BoolVal(False)


def term_of(value: Any) -> Any:
    """The z3 term of a value of the reference: a number, a truth value, or a symbolic one."""
    if isinstance(value, Number | Condition):
        return value.term
    if isinstance(value, bool):
        return z3.BoolVal(value)
    assert isinstance(value, int), f"no term for {value!r}"
    return z3.IntVal(int(value))


class Condition:
    """A truth value that is a formula. Asked for its truth, the execution forks."""

    __slots__ = ("term",)

    def __init__(self, term: Any) -> None:
        self.term = term

    def __hash__(self) -> int:
        return hash(-1)  # as all numbers

    def __eq__(self, other: object) -> Any:
        return Condition(self.term == term_of(other))

    def __ne__(self, other: object) -> Any:
        return Condition(self.term != term_of(other))

    def __bool__(self) -> bool:
        if not _paths:
            raise AssertionError("a condition is decided outside of an exploration")
        return _paths[-1].decide(self.term)


def chosen(term: Any, names: Sequence[Any]) -> Any:
    """The name that a code stands for; the execution forks once for each possible name."""
    return next(name for place, name in enumerate(names) if Condition(term == place))


class Number:
    """An integer that is a term, of any size, as Python's own.

    All have one hash, that of -1: so a set of them, and of -1 for "none", finds its elements by comparing terms.
    """

    __slots__ = ("term",)

    def __init__(self, term: Any) -> None:
        self.term = term

    def __hash__(self) -> int:
        return hash(-1)

    def __eq__(self, other: object) -> Any:
        return Condition(self.term == term_of(other))

    def __ne__(self, other: object) -> Any:
        return Condition(self.term != term_of(other))

    def __lt__(self, other: object) -> Any:
        return Condition(self.term < term_of(other))

    def __le__(self, other: object) -> Any:
        return Condition(self.term <= term_of(other))

    def __gt__(self, other: object) -> Any:
        return Condition(self.term > term_of(other))

    def __ge__(self, other: object) -> Any:
        return Condition(self.term >= term_of(other))

    def __add__(self, other: object) -> "Number":
        return Number(self.term + term_of(other))

    __radd__ = __add__

    def __sub__(self, other: object) -> "Number":
        return Number(self.term - term_of(other))

    def __rsub__(self, other: object) -> "Number":
        return Number(term_of(other) - self.term)

    def __mod__(self, other: int) -> "Number":
        assert isinstance(other, int), "linear arithmetic: a modulus is a number"
        assert other > 0, "z3's mod is Python's for a positive modulus only"
        return Number(self.term % other)
