"""The words of a story, read from the TLA+ modules: sentences of actions and properties, meanings of variables.

The comment above an operator says what the operator is, and the comment behind a variable what the variable holds. The
docstrings of the reference repeat the former (``tests/spec/test_vocabulary.py``).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kafka_eos_checks.models import ModuleFolder

_DEFINITION = re.compile(r"^(\w+)(?:\(([^)]*)\))?[ ]*==", re.MULTILINE)
_VARIABLES = re.compile(r"^VARIABLES?\b(.*?)(?:\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
_EXTENDS = re.compile(r"^EXTENDS\s+(\w+(?:\s*,\s*\w+)*)", re.MULTILINE)
_BANNER = re.compile(r"\(\*+\)\s*")  # a line of asterisks, above and below the heading of a part of the module


@dataclass(frozen=True, slots=True)
class Words:
    """What the names of a module mean.

    Attributes:
        sentences: operator -> the comment above it.
        parameters: operator -> the names of its parameters.
        variables: variable -> what it holds, "" where the module does not say; in the module's order.
    """

    sentences: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


NO_WORDS = Words()


def _comment_above(lines: list[str]) -> str:
    """The comment whose last line is the last of these lines, without what it cites of Kafka."""
    above: list[str] = []
    while lines and re.fullmatch(r"\(\*.*\*\)\s*", lines[-1]) and not _BANNER.fullmatch(lines[-1]):
        above.append(lines.pop().strip()[2:-2])
    return re.split(r"\s+Kafka:", " ".join(" ".join(reversed(above)).split()), maxsplit=1)[0]


def words_in(text: str) -> Words:
    """The words of one module's text."""
    sentences, parameters = {}, {}
    for head in _DEFINITION.finditer(text):
        if comment := _comment_above(text[: head.start()].splitlines()):
            sentences[head[1]] = comment
        parameters[head[1]] = tuple(name.strip() for name in (head[2] or "").split(",") if name.strip())
    return Words(sentences, parameters, _variables(text))


def _variables(text: str) -> dict[str, str]:
    """The variables that a module declares, each with the comment behind it."""
    block = _VARIABLES.search(text)
    variables: dict[str, str] = {}
    for line in (block[1] if block else "").splitlines():
        names, _, meaning = line.partition("\\*")
        variables |= {name: meaning.strip() for name in re.findall(r"\w+", names)}
    return variables


def _extended(modules: ModuleFolder, module: str) -> Iterator[str]:
    """A module and those it extends, each after the ones that it stands on; TLA+'s own are left out."""
    if module in modules.paths:
        text = modules.text(module)
        for group in _EXTENDS.findall(text):
            for base in re.split(r"\s*,\s*", group):
                yield from _extended(modules, base)
        yield text


@cache
def words_of(spec: Path, module: str) -> Words:
    """The words of a module, of those that it extends, and of its mutants.

    Args:
        spec: the folder of the modules.
        module: its name.
    """
    modules = ModuleFolder(spec)
    found = [words_in(text) for name in (f"{module}Mutants", module) for text in _extended(modules, name)]
    return Words(
        {name: sentence for words in found for name, sentence in words.sentences.items()},
        {name: parameters for words in found for name, parameters in words.parameters.items()},
        {name: meaning for words in found for name, meaning in words.variables.items()},
    )
