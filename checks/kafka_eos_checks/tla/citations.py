"""Citations: the sources that a docstring, a comment or a module names after the labels ``Spec`` and ``Kafka``.

A citation is a list of names, separated by commas or semicolons: ``Module!Operator`` of the spec, or ``Class.method``
of Kafka. A name without its module or class belongs to the one before it. Prose between the names has no capitals.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka_eos_checks.kit.java_names import JavaNames
from kafka_eos_checks.tla.modules import ModuleFolder

_LABEL = re.compile(r"(?<![A-Za-z] )\b(Spec|Kafka):(?=\s)")  # not "Departs from Kafka: …"
_NEXT_LABEL = re.compile(r"\s*(?:[A-Z][A-Za-z]*:|Departs from|$)")
_SENTENCE_END = re.compile(r"\.(?=\s|$|\")|\"\"\"|\*\)|\s(?:Spec|Kafka|KIPs?):")
_SPEC_NAME = re.compile(r"(?:[\w/]+\.tla|\w+!\w+|[A-Z]\w*)\b")
_QUALIFIED = re.compile(r"\b([A-Z]\w+)!([A-Z]\w*)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A citation.

    Attributes:
        label: ``Spec`` or ``Kafka``.
        text: the text after the label.
        file: its file.
        line: the label's line, counted from 1.
    """

    label: str
    text: str
    file: Path
    line: int

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    def items(self) -> list[str]:
        """The items between the commas, semicolons and brackets."""
        return [item.strip() for item in re.split(r"[,;()]", self.text) if item.strip()]


def citations(file: Path, text: str) -> Iterator[Citation]:
    """The citations of a file.

    Args:
        file: its path.
        text: its contents, in Python or TLA+.
    """
    lines = text.splitlines()
    for place, line in enumerate(lines):
        for found in _LABEL.finditer(line):
            cited = _until_end(line[found.end() :], lines[place + 1 :], found.start())
            yield Citation(label=found[1], text=cited, file=file, line=place + 1)


def _until_end(first: str, following: Iterable[str], column: int) -> str:
    """The text of a citation: it ends with its sentence, or before a line that does not continue it."""
    found = first
    for line in following:
        stripped = line.removeprefix("(*") if line.startswith("(*") else line
        indented = len(line) - len(stripped.lstrip()) > column or found.replace("*)", "").rstrip().endswith((",", ";"))
        found = found.replace("*)", "") if line.startswith("(*") and indented else found
        if _SENTENCE_END.search(found) or not indented or _NEXT_LABEL.match(stripped):
            break
        found += " " + stripped.strip()
    return " ".join(_SENTENCE_END.split(found)[0].replace("``", "").split())


@dataclass(frozen=True, slots=True)
class CitedOperator:
    """An operator that a citation of the spec names.

    Attributes:
        module: a module.
        operator: an operator, constant or variable of it; "" for the module itself.
    """

    module: str
    operator: str = ""

    def is_in(self, spec: ModuleFolder) -> bool:
        """Whether the module, or one that it extends, defines or declares the name."""
        chain = spec.chain(self.module)
        known = ({*module.definitions, *module.constants, *module.variables} for module in chain)
        return bool(chain) and (not self.operator or any(self.operator in names for names in known))


def cited_operators(citation: Citation) -> list[CitedOperator]:
    """The operators that a citation of the spec names; a bare name belongs to the module before it."""
    found: list[CitedOperator] = []
    for item in citation.items():
        for word in _SPEC_NAME.findall(item):
            module, _, operator = word.partition("!")
            if operator:
                found.append(CitedOperator(module, operator))
            elif word.endswith(".tla"):
                found.append(CitedOperator(Path(word).stem))
            elif item.startswith(word) and not word.isupper():
                found.append(CitedOperator(found[-1].module, word) if found else CitedOperator(word))
    return found


def qualified_operators(text: str, spec: ModuleFolder) -> Iterator[tuple[int, CitedOperator]]:
    """Every ``Module!Operator`` of a module of the spec in a text, cited or not, with its line."""
    for number, line in enumerate(text.splitlines(), start=1):
        for module, operator in _QUALIFIED.findall(line):
            if module in spec.paths:
                yield number, CitedOperator(module, operator)


_JAVA_NAME = re.compile(r"[A-Za-z_][\w$]*(?:[.-][A-Za-z_][\w$]*)*")
_REFERENCE = re.compile(r"(?:KIP|KAFKA)-\d+|\b[A-Z0-9_]+\b|\S*/\S*")  # proposals, issues, error codes, paths


def unknown_java_names(citation: Citation, known: JavaNames) -> list[str]:
    """The names in a citation of Kafka that its jars do not have.

    The words with a capital or a dot are looked up, and a single word between commas. A bare method belongs to the
    class before it.
    """
    found: list[str] = []
    owner = ""
    for item in citation.items():
        for name in _JAVA_NAME.findall(_REFERENCE.sub(" ", item)):
            word = name.removesuffix(".json")  # a schema, of which Kafka generates a class
            before, _, last = word.rpartition(".")
            if known.classes(word):
                owner = word
            elif known.classes(before):
                owner = before
                found += [] if known.has_member(before, last) else [word]
            elif (name == item or "." in word or re.search("[A-Z]", word)) and not _is_known(word, owner, known):
                found.append(word)
    return found


def _is_known(word: str, owner: str, known: JavaNames) -> bool:
    """Whether a word that names no class is a member of the one before, a setting, a package, or "none"."""
    if word == "none" or word in known.settings or word in known.packages:
        return True
    return bool(owner) and known.has_member(owner, word)
