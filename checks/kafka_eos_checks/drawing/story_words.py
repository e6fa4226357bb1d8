"""The words of a story, read from the TLA+ modules: sentences of actions and properties, meanings of variables.

The comment above an operator says what the operator is, and the comment after a variable what the variable holds. The
docstrings of the reference repeat the former (``tests/spec/test_vocabulary.py``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import Module


@dataclass(frozen=True, slots=True)
class Words:
    """The meanings of the names of a module.

    Attributes:
        sentences: operator -> the comment above it.
        parameters: operator -> the names of its parameters.
        variables: variable -> what it holds, "" where the module does not say; in the module's order.
    """

    sentences: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


NO_WORDS = Words()


def words_in(module: Module) -> Words:
    """The words of one module; a comment without what it cites of Kafka."""
    comments = {name: re.split(r"\s+Kafka:", found.comment)[0] for name, found in module.definitions.items()}
    return Words(
        {name: comment for name, comment in comments.items() if comment},
        {name: found.parameters for name, found in module.definitions.items()},
        {name: module.meanings[name] for name in module.variables},
    )


@cache
def words_of(spec: Path, module: str) -> Words:
    """The words of a module, of those that it extends, and of its mutants.

    Args:
        spec: the folder of the modules.
        module: its name.
    """
    modules = ModuleFolder(spec)
    found = [words_in(one) for name in (f"{module}Mutants", module) for one in modules.chain(name)]
    return Words(
        {name: sentence for words in found for name, sentence in words.sentences.items()},
        {name: parameters for words in found for name, parameters in words.parameters.items()},
        {name: meaning for words in found for name, meaning in words.variables.items()},
    )
