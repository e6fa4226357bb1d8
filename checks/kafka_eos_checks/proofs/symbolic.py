"""Symbolic execution: Python runs the reference's own functions on z3 terms.

Nothing is interpreted or copied. The arguments are :class:`Number`; comparing them gives a :class:`Condition`; and
where Python asks a condition for its truth (``if``, ``and``, ``not``, ``any``), the execution forks: :func:`explore`
runs the function once for each way that its conditions allow. Loops run over concrete lengths; a collection of
unbounded length has to define its own iteration.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """A way through a function.

    Attributes:
        solver: holds the assumptions and decisions; says which ways are possible.
        prefix: the decisions to repeat.
        taken: the decisions so far.
        decided: the same by the identity of the condition, which z3 gives to equal terms.
        conditions: the formulas of these decisions.
        crashes: the conditions under which a merged function inside fails.
        open_ends: prefixes that are left to explore.
    """

    solver: Any
    prefix: Sequence[bool]
    taken: list[bool]
    decided: dict[int, bool]
    conditions: list[Any]
    crashes: list[Any]
    open_ends: list[list[bool]]

    def decide(self, condition: Any) -> bool:
        """The truth of a condition on this way."""
        for path in _paths:
            if condition.get_id() in path.decided:
                return path.decided[condition.get_id()]
        simple = z3.simplify(condition)
        if z3.is_true(simple) or z3.is_false(simple):
            return bool(z3.is_true(simple))
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
        self.solver.add(self.conditions[-1])
        return choice

    def _possible(self, condition: Any) -> bool:
        self.solver.push()
        self.solver.add(condition)
        found = self.solver.check()
        self.solver.pop()
        return bool(found != z3.unsat)


_paths: list[_Path] = []  # the innermost exploration last


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
    crashed: Any = None


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
    waiting: list[list[bool]] = [[]]
    while waiting:
        path = _Path(solver, waiting.pop(), [], {}, [], [], [])
        _paths.append(path)
        solver.push()
        solver.add(*assumptions)
        try:
            value, error = function(), None
        except (NotEnabled, Rejected, LookupError, StopIteration, AssertionError) as raised:
            value, error = None, raised
        finally:
            _paths.pop()
            solver.pop()
        outcomes.append(Outcome(conjunction(path.conditions), value, error, disjunction(path.crashes)))
        if len(outcomes) > MAX_PATHS:
            raise TooManyPaths(f"more than {MAX_PATHS} ways through a function; a loop has no concrete end")
        waiting += path.open_ends
    return outcomes


def merged(function: Callable[P, Any]) -> Callable[P, Any]:
    """The same function with its ways merged into one term, so that its caller does not fork.

    For functions that return a number or a truth value.
    """

    @wraps(function)
    def run(*arguments: P.args, **keywords: P.kwargs) -> Any:
        outcomes = explore(lambda: function(*arguments, **keywords))
        values = [outcome for outcome in outcomes if outcome.error is None]
        if not values:
            assert outcomes[0].error is not None
            raise outcomes[0].error
        crashes = [outcome.condition for outcome in outcomes if outcome.error is not None]
        crashes += [z3.And(outcome.condition, outcome.crashed) for outcome in values]
        if _paths:
            _paths[-1].crashes.append(disjunction(crashes))
        if len(values) == 1:
            return values[0].value
        terms = [term_of(outcome.value) for outcome in values]
        result = terms[-1]
        for outcome, term in zip(reversed(values[:-1]), reversed(terms[:-1]), strict=True):
            result = z3.If(outcome.condition, term, result)
        return Condition(result) if z3.is_bool(result) else Number(result)

    return run


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
