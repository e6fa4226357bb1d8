"""Changes of a Python module that leave something out or mix something up; Cosmic Ray makes the others.

Mistakes that people make are often something left out or something mixed up: a condition, a statement, an argument, the
other part of a sum, a field of the same object, a parameter of the same type. Here are these, and a changed value in a
text, which tests that compare a text's beginning do not see.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Position = tuple[int, int]
"""Line, counted from 1, and column, counted from 0 in characters."""

KINDS = (
    "eos/Argument",
    "eos/Branch",
    "eos/Element",
    "eos/Field",
    "eos/Operand",
    "eos/Order",
    "eos/Parameter",
    "eos/Statement",
    "eos/Text",
)
"""The kinds of changes, named as Cosmic Ray names its own (``core/NumberReplacer``)."""

_OPERANDS = {"and_test", "or_test", "arith_expr", "expr", "and_expr", "term"}
_EITHER = {"and", "or", "+", "|", "&", "*"}
_ONE_PART = {"min": "", "max": "", "abs": "", "sorted": "list", "reversed": "list"}
"""Functions, and what is put in front of one of their arguments where it alone stays."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A text in the place of another.

    Attributes:
        kind: one of :data:`KINDS`.
        start: the place of the first character.
        end: the place after the last one.
        text: the new text.
    """

    kind: str
    start: Position
    end: Position
    text: str

    def made(self, before: str) -> str:
        """The module's text with the edit."""
        lines = before.split("\n")
        (first, left), (last, right) = self.start, self.end
        lines[first - 1 : last] = [lines[first - 1][:left] + self.text + lines[last - 1][right:]]
        return "\n".join(lines)


def edits(tree: Any) -> Iterator[Edit]:
    """All edits of a module, in the order of its syntax tree.

    Args:
        tree: the module, or a part of it, as parso has it.
    """
    if tree.type != "decorator":
        yield from _of(tree)
        for child in getattr(tree, "children", ()):
            yield from edits(child)


def _of(node: Any) -> Iterator[Edit]:
    match node.type:
        case "if_stmt":
            yield from _conditions(node)
        case "simple_stmt":
            yield from _statements(node)
        case "test":
            yield from (_edit("eos/Branch", node, _code(each)) for each in (node.children[0], node.children[4]))
        case "comp_if":
            yield _edit("eos/Operand", node, "")
        case "trailer" if node.children[0].value == "(":
            yield from _arguments(node.children[1], _code(node.parent.children[0]))
        case "testlist_comp" | "dictorsetmaker":
            yield from (_without("eos/Element", node, each) for each in _listed(node))
        case "atom_expr":
            yield from _calls(*node.children[:2])
        case "fstring_expr" if node.parent.type != "fstring_format_spec":
            yield _edit("eos/Text", node, _code(node) + "0")
        case "funcdef":
            yield from _fields(node)
            yield from _parameters(node)
        case "comparison" if len(node.children) > 3:
            yield _edit("eos/Operand", node, _code_of(node.children[:-2]))
            yield _edit("eos/Operand", node, _code_of(node.children[2:]))
        case kind if kind in _OPERANDS:
            yield from _operands(node.children)


def _code(node: Any) -> str:
    return str(node.get_code(include_prefix=False))


def _code_of(nodes: Sequence[Any]) -> str:
    return _code(nodes[0]) + "".join(node.get_code() for node in nodes[1:])


def _edit(kind: str, node: Any, text: str) -> Edit:
    return Edit(kind, node.start_pos, node.end_pos, text)


def _conditions(node: Any) -> Iterator[Edit]:
    """Each branch of an if: always, and never."""
    for word, condition in pairwise(node.children):
        if getattr(word, "value", "") in {"if", "elif"}:
            yield from (_edit("eos/Branch", condition, value) for value in ("True", "False"))


def _statements(node: Any) -> Iterator[Edit]:
    """A statement left out, if what follows may still run: it binds no new name, and ends no function."""
    ends = node.parent.type == "suite" and node.parent.parent.type == "funcdef"
    for statement in node.children:
        kind, word = statement.type, getattr(statement, "value", "")
        if (
            kind in {"atom_expr", "raise_stmt", "del_stmt", "yield_expr"}
            or (kind == "expr_stmt" and _rebinds(*statement.children[:2]))
            or ("return" in {kind.removesuffix("_stmt"), word} and not ends)
            or word in {"break", "continue"}
        ):
            yield _edit("eos/Statement", statement, "pass")


def _rebinds(target: Any, sign: Any) -> bool:
    """Whether a statement gives another value to an attribute or an element, or, as by ``+=``, to a name."""
    return bool(target.type == "atom_expr" or (sign.type == "operator" and sign.value != "="))


def _listed(node: Any) -> list[Any]:
    """The first part of each element of a list, tuple, dictionary, set or call, if it has several."""
    parts = [] if node.type == "argument" else getattr(node, "children", [])
    if any(part.type.endswith("comp_for") for part in parts):
        return []
    begins = [True, *(_code(before) == "," for before in parts)]
    return [part for begin, part in zip(begins, parts, strict=False) if begin]


def _without(kind: str, node: Any, first: Any) -> Edit:
    """An element is left out, with the comma behind it."""
    place = node.children.index(first)
    behind = [part for part in node.children[place:] if _code(part) == ","]
    return Edit(kind, first.start_pos, (behind[0] if behind else node).end_pos, "")


def _arguments(node: Any, function: str) -> Iterator[Edit]:
    """Each argument with a name left out; neighbours without one exchanged, where their order is of account."""
    if node.type == "argument" and _code(node.children[1]) == "=":
        yield _edit("eos/Argument", node, "")
    given = _listed(node) if node.type == "arglist" else []
    for argument in given:
        if argument.type == "argument" and _code(argument.children[1]) == "=":
            yield _without("eos/Argument", node, argument)
    for left, right in pairwise(given if function not in _ONE_PART else ()):
        if "argument" not in {left.type, right.type} and _code(left) != _code(right):
            yield Edit("eos/Order", left.start_pos, right.end_pos, f"{_code(right)}, {_code(left)}")


def _operands(parts: Sequence[Any]) -> Iterator[Edit]:
    """Each operand left out, the first one if it may be exchanged with the second."""
    if _code(parts[1]) in _EITHER:
        yield Edit("eos/Operand", parts[0].start_pos, parts[2].start_pos, "")
    for before, operand in zip(parts[0::2], parts[2::2], strict=False):
        yield Edit("eos/Operand", before.end_pos, operand.end_pos, "")


def _calls(function: Any, given: Any) -> Iterator[Edit]:
    """A call of a function such as ``min`` or ``sorted`` is replaced by one of its arguments."""
    if getattr(function, "value", "") in _ONE_PART and given.type == "trailer":
        node = given.children[1]
        for argument in _listed(node) if node.type == "arglist" else [node]:
            if argument.type != "argument":
                text = f"{_ONE_PART[function.value]}({_code(argument)})"
                yield Edit("eos/Operand", function.start_pos, given.end_pos, text)


def _fields(function: Any) -> Iterator[Edit]:
    """Each field of an object that the function reads: the next one that it reads of the same object."""
    read: dict[str, list[Any]] = {}
    for node in _inside(function):
        if node.type == "atom_expr":
            for place, trailer in enumerate(node.children):
                called = place + 1 < len(node.children) and _code(node.children[place + 1])[0] == "("
                if trailer.type == "trailer" and trailer.children[0].value == "." and not called:
                    read.setdefault(_code_of(node.children[:place]), []).append(trailer.children[1])
    for names in read.values():
        yield from _next_ones("eos/Field", names, sorted({name.value for name in names}))


def _parameters(function: Any) -> Iterator[Edit]:
    """Each parameter that the function reads: the next one of the same type."""
    of_type: dict[str, list[str]] = {}
    for each in function.get_params():
        of_type.setdefault(_code(each.annotation) if each.annotation else "Self", []).append(each.name.value)
    for names in of_type.values():
        read = [
            node
            for node in _inside(function)
            if node.type == "name" and node.value in names and not _is_label(node, node.parent)
        ]
        yield from _next_ones("eos/Parameter", read, names)


def _is_label(name: Any, parent: Any) -> bool:
    """Whether a name is that of an attribute or of an argument."""
    is_argument = parent.type == "argument" and parent.children[0] is name and _code(parent.children[1]) == "="
    return is_argument or bool(parent.type == "trailer" and parent.children[0].value == ".")


def _next_ones(kind: str, nodes: Sequence[Any], names: Sequence[str]) -> Iterator[Edit]:
    if len(names) > 1:
        for node in nodes:
            yield _edit(kind, node, names[(names.index(node.value) + 1) % len(names)])


def _inside(function: Any) -> Iterator[Any]:
    """All nodes of a function's body, without those of functions in it."""
    rest = [function.children[-1]]
    while rest:
        node = rest.pop()
        yield node
        rest += [child for child in getattr(node, "children", ()) if child.type != "funcdef"]
