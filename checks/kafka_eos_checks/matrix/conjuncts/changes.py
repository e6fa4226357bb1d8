r"""The small changes of properties and of machines that are not conjuncts of guards.

A property, in TLA+; the last four, of ``equations`` and ``sets``, only where they make the property weaker:

=============================  =============================================================
the part                       its replacement
=============================  =============================================================
``a < b``, ``a > b``           ``a <= b``, ``a >= b``: equal values count too; also the reverse
``a + b``, ``a - b``           ``a``
``a \cup b``, ``a \o b``       ``a``; of ``Append(a, b)`` as well
``{a, b}``                     ``{b}``, and ``{a}``
``\A x : p``                   ``\E x : p``, and the other way round
``a = b``, of numbers          ``a <= b``, and ``a >= b``
``x \in S``, ``x = "a"``       S, or ``{"a"}``, with one more string that x may be
``a..b``                       one more or fewer at either end
``{x \in S : p /\ q}``         ``{x \in S : p}``, and ``{x \in S : q}``
=============================  =============================================================

A machine, in Python:

=============================  =============================================================
the part                       its replacement
=============================  =============================================================
``a < b``, ``a == b``          ``a <= b``, ``a != b``, and so on
``a + b``, ``a | b``           ``a``
``all(…)``                     ``any(…)``, and the other way round
``replace(x, a=b, c=d)``       ``replace(x, c=d)``: the effect does not take place
``x.set(k, v)``, ``append``    ``x``
``a if p else b``, ``if p:``   ``p`` is ``True``, and ``False``
=============================  =============================================================
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType

from kafka_eos_checks.matrix.conjuncts.guards import on_one_line
from kafka_eos_checks.matrix.conjuncts.reference import GuardPart, functions_of, guard_parts
from kafka_eos_checks.tla.sany import ENUMERATION, QUANTIFIERS, Expression, Span

_SWAPPED = {"<": "<=", "\\leq": "<", ">": ">=", "\\geq": ">"}
_FIRST_OPERAND = frozenset({"+", "-", "\\union", "\\o", "Append"})
OTHER_QUANTIFIER = {"\\A": "\\E", "\\E": "\\A"}
_OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OTHER_CALL = {"all": "any", "any": "all", "min": "max", "max": "min"}
_UPDATES = frozenset({"set", "append", "delete", "remove", "discard", "extend"})
_OPERATORS = (ast.Add, ast.Sub, ast.BitOr, ast.BitAnd)


def of_operands(expression: Expression, text: str, is_single: Callable[[str], bool]) -> Iterator[tuple[Span, str]]:
    """The changed operators of an expression and of its parts; only operators that stand on one line.

    A quantifier over one value is left out: both quantifiers are the same there.

    Args:
        expression: any expression.
        text: the text of its module.
        is_single: whether a constant of this name is a set of one value, wherever the expression is evaluated.

    Yields:
        A place, and the text that replaces it.
    """
    for part in expression.walk():
        if part.operator in QUANTIFIERS:
            start = Span(part.span.module, part.span.line, part.span.column, part.span.line, part.span.column + 1)
            written = on_one_line(text, start)
            if written in OTHER_QUANTIFIER and not all(is_single(bound.operator) for bound in part.bounds):
                yield start, OTHER_QUANTIFIER[written]
        elif part.operator == ENUMERATION and len(part.operands) > 1 and part.span.line == part.span.end_line:
            elements = [on_one_line(text, operand.span) for operand in part.operands]
            for number in range(len(elements)):
                yield part.span, f"{{{', '.join(elements[:number] + elements[number + 1 :])}}}"
        elif len(part.operands) == 2 and part.span.line == part.span.end_line:
            first, second = (on_one_line(text, operand.span) for operand in part.operands)
            if part.operator in _SWAPPED:
                yield part.span, f"{first} {_SWAPPED[part.operator]} {second}"
            elif part.operator in _FIRST_OPERAND:
                yield part.span, first


def machine_parts(module: ModuleType) -> list[GuardPart]:
    """The parts of all guards of a module of the reference, then those of its other expressions."""
    found = guard_parts(module)
    for name, function in functions_of(module):
        seen: Counter[str] = Counter()
        for place in range(sum(1 for _ in ast.walk(function))):
            for number in range(len(_instead(_node(function, place)))):
                tree = copy.deepcopy(function)
                part = _node(tree, place)
                assert isinstance(part, ast.expr)
                (value,) = _instead(part)[number : number + 1]
                change = f"{ast.unparse(part)} -> {ast.unparse(value)}"
                seen[change] += 1
                change = change if seen[change] == 1 else f"{change} #{seen[change]}"
                line = part.lineno
                _Put(part, value).visit(tree)
                found.append(GuardPart(module=module.__name__, function=name, change=change, line=line, tree=tree))
    return found


def _node(function: ast.AST, place: int) -> ast.AST:
    """The node at a place of the walk over a function."""
    return next(node for number, node in enumerate(ast.walk(function)) if number == place)


class _Put(ast.NodeTransformer):
    """Puts a node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the node, or look for it below."""
        return self.new if node is self.old else self.generic_visit(node)


def _instead(node: ast.AST) -> list[ast.expr]:
    """The expressions to put in the place of one."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = _OTHER_COMPARISON[type(node.ops[0])]()
        return [ast.Compare(left=node.left, ops=[other], comparators=node.comparators)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        return [node.left]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in _OTHER_CALL:
            return [
                ast.Call(func=ast.Name(_OTHER_CALL[node.func.id], ast.Load()), args=node.args, keywords=node.keywords)
            ]
        if node.func.id == "replace":
            return [
                ast.Call(func=node.func, args=node.args, keywords=[k for k in node.keywords if k is not left_out])
                for left_out in node.keywords
                if left_out.arg
            ]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _UPDATES:
        return [node.func.value]
    if isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Starred):
        return [ast.Tuple(elts=[e for e in node.elts if isinstance(e, ast.Starred)], ctx=ast.Load())]
    return []
