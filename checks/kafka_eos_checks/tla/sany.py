"""The syntax tree of a TLA+ module, as SANY, TLC's own parser, writes it as XML: operators, levels and places."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

from kafka_eos_checks.kit.missing import find_java
from kafka_eos_checks.tla.tlc import find_jar, java_start

Xml: TypeAlias = ElementTree.Element

CONJUNCTION = frozenset({"$ConjList", "\\land"})
DISJUNCTION = frozenset({"$DisjList", "\\lor"})
CONDITIONAL = "$IfThenElse"
IMPLICATION = "=>"
QUANTIFIERS = frozenset({"$BoundedExists", "$BoundedForall"})
SQUARE_ACTION = "$SquareAct"  # [A]_v
ENUMERATION = "$SetEnumerate"  # {a, b}
FAIRNESS = frozenset({"$WF", "$SF"})
LITERALS = frozenset({"TRUE", "FALSE"})
FORMULAS = (
    CONJUNCTION
    | DISJUNCTION
    | QUANTIFIERS
    | LITERALS
    | {"\\lnot", IMPLICATION, "\\equiv", "=", "/=", "\\in", "\\notin", "\\subseteq", "<", ">", "\\leq", "\\geq"}
)
STATE_LEVEL = 1
ACTION_LEVEL = 2  # of an expression with a primed variable


class UnparsableModule(ValueError):  # noqa: N818 - named for the module
    """SANY does not accept a module; says what it said."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The place of an expression; lines and columns count from 1, the end is the last character."""

    module: str
    line: int
    column: int
    end_line: int
    end_column: int


NOWHERE = Span("", 0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expression:
    """A node of the syntax tree.

    Attributes:
        span: its place in the text.
        level: 0 constant, 1 of a state, 2 with a primed variable, 3 temporal.
        operator: TLA+'s own operator or the name of a defined one, "" for LET and for literals of other kinds.
        definition: id of the definition of ``operator``, or "".
        operands: the operands, in their order.
        bounds: the sets that bound variables range over.
        local: ids of the definitions of a LET.
        is_string: whether it is a string.
    """

    span: Span
    level: int
    operator: str = ""
    definition: str = ""
    operands: tuple["Expression", ...] = ()
    bounds: tuple["Expression", ...] = ()
    local: tuple[str, ...] = ()
    is_string: bool = False

    @property
    def body(self) -> "Expression":
        """The body of a LET or of a quantifier."""
        return self.operands[0]

    def walk(self) -> Iterator["Expression"]:
        """This expression and all that it consists of; not the definitions that it refers to."""
        yield self
        for part in (*self.bounds, *self.operands):
            yield from part.walk()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """``name(…) == body``."""

    name: str
    body: Expression


def parse(folder: Path, module: str) -> dict[str, Definition]:
    """The definitions of a module and of every one that it needs, by id.

    Args:
        folder: holds the module and those that it needs.
        module: its name.

    Raises:
        UnparsableModule: when SANY does not accept it.
        MissingExtra: when there are no TLA+ tools or no Java.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-eos-sany-") as temporary:
        java, jar = find_java(), find_jar().resolve()
        command = [*java_start(java, jar), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"]
        command += [f"-Djava.io.tmpdir={temporary}", "-cp", str(jar)]
        command += ["tla2sany.xml.XMLExporter", "-o", f"{module}.tla"]
        run = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    if run.returncode or not run.stdout.startswith(b"<?xml"):
        said = (run.stdout + run.stderr).decode(errors="replace").strip()
        raise UnparsableModule(f"{folder / module}.tla: SANY does not accept it\n{said}")
    return _Reader(ElementTree.fromstring(run.stdout)).definitions()  # noqa: S314 - our own jar wrote it


class _Reader:
    """Reads SANY's XML."""

    def __init__(self, root: Xml) -> None:
        entries = root.iterfind("context/entry")
        self.named = {_text(entry, "UID"): entry[1] for entry in entries}

    def definitions(self) -> dict[str, Definition]:
        found = {}
        for uid, node in self.named.items():
            body = node.find("body") if node.tag == "UserDefinedOpKind" else None
            if body is not None and len(body):
                found[uid] = Definition(name=_text(node, "uniquename"), body=self._expression(body[0]))
        return found

    def _expression(self, node: Xml) -> Expression:
        if node.tag == "SubstInNode":  # an operator of an instance: its body, as the instantiated module has it
            return self._expression(_child(node, "body")[0])
        span = _span(node)
        level = int(node.findtext("level", "0"))
        if node.tag == "LetInNode":
            local = tuple(_text(ref, "UID") for ref in node.iterfind("opDefs/UserDefinedOpKindRef"))
            return Expression(
                span=span, level=level, operands=(self._expression(_child(node, "body")[0]),), local=local
            )
        if node.tag != "OpApplNode":
            return Expression(span=span, level=level, is_string=node.tag == "StringNode")
        operator = _child(node, "operator")[0]
        uid = _text(operator, "UID")
        return Expression(
            span=span,
            level=level,
            operator=_text(self.named[uid], "uniquename"),
            definition=uid if operator.tag == "UserDefinedOpKindRef" else "",
            operands=tuple(self._expression(part) for part in _child(node, "operands")),
            bounds=tuple(
                self._expression(part)
                for bound in node.iterfind("boundSymbols/bound")
                for part in bound
                if part.tag not in {"FormalParamNodeRef", "tuple"}
            ),
        )


def _child(node: Xml, tag: str) -> Xml:
    [found] = node.iterfind(tag)
    return found


def _text(node: Xml, path: str) -> str:
    found = node.findtext(path)
    assert found is not None, f"{node.tag} without {path}"
    return re.sub(r"\s+", " ", found).strip()


def _span(node: Xml) -> Span:
    place = node.find("location")
    if place is None:  # the OTHER of a CASE, which SANY adds as a string
        return NOWHERE
    return Span(
        module=_text(place, "filename"),
        line=int(_text(place, "line/begin")),
        column=int(_text(place, "column/begin")),
        end_line=int(_text(place, "line/end")),
        end_column=int(_text(place, "column/end")),
    )
