"""Names as links to their definitions: in a module's text, in the reference's text, or in a sentence."""

import re
from collections.abc import Callable
from functools import cached_property

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks.book import pages
from kafka_eos_checks.book.listing import Target, listing
from kafka_eos_checks.book.sources import Book, Kind, Operator

_QUALIFIED = re.compile(r"\b[A-Za-z]\w*(?:![A-Z]\w*)?")
CODES = frozenset(code.name for code in ErrorCode) - {"NONE"}


class Links:
    """The addresses of names."""

    def __init__(self, book: Book) -> None:
        """Links into the pages of a book."""
        self.book = book
        self._tla: dict[str, dict[str, str]] = {}

    def names(self, module: str) -> dict[str, str]:
        """The names that a module sees -> their addresses."""
        if module not in self._tla:
            found = {
                name: pages.of_operator(one.name, name)
                for one in self.book.spec.chain(module)
                for name in (*one.constants, *one.variables, *one.definitions)
            }
            self._tla[module] = {**{code: pages.of_error(code) for code in CODES}, **found}
        return self._tla[module]

    def in_tla(self, operator: Operator) -> Target:
        """The target of a name in an operator's TLA+; its own parameters are not links."""
        names = self.names(operator.module)
        own = set(self.book.spec.module(operator.module).definitions[operator.name].parameters) | {operator.name}
        return lambda name: None if name in own else names.get(name)

    def in_python(self, module: str, own: str = "") -> Target:
        """The target of a name in the reference's text of a module."""
        names = {snake_case(name): to for name, to in self.names(module).items() if name not in CODES}
        names |= {name.upper(): to for name, to in names.items()} | self.names(module)
        skipped = {own, snake_case(own), "self"}
        return lambda name: None if name in skipped else names.get(name)

    def pair(self, operator: Operator) -> str:
        """An operator's two texts, next to each other where there is room."""
        tla = listing("tla", operator.tla.text, self.in_tla(operator))
        sides = [f'<div><p class="place">TLA+ <code>{operator.tla.place}</code></p>{tla}</div>']
        if operator.python is not None:
            target = self.in_python(operator.module, operator.name)
            python = listing("python", operator.python.text, target)
            sides.append(f'<div><p class="place">Python <code>{operator.python.place}</code></p>{python}</div>')
        return pages.raw(f'<div class="pair highlight">{"".join(sides)}</div>')

    @cached_property
    def _words(self) -> dict[str, str]:
        found = {entry.name: pages.of_model(entry.module, entry.name) for entry in self.book.entries.values()}
        found |= {code: pages.of_error(code) for code in CODES}
        found |= {name: pages.address(f"modules/{name}") for name in self.book.modules if name not in found}
        return found

    def qualified(self, name: str) -> str | None:
        """The address of ``Module!Operator``."""
        module, _, operator = name.partition("!")
        seen = self.book.spec.operators(module) if module in self.book.modules else {}
        if operator not in seen:
            return None
        home = seen[operator][0]
        is_property = self.book.kind(home, operator) is Kind.PROPERTY
        return pages.of_property(home, operator) if is_property else pages.of_operator(home, operator)

    def sentence(self, text: str, module: str = "", escape: Callable[[str], str] = pages.prose) -> str:
        """A sentence with its names as links: models, error codes, modules, ``Module!Operator``, and a module's own."""
        own = self.names(module) if module else {}
        known = {name: to for name, to in own.items() if re.search("[A-Z].*[a-z].*[A-Z]|_[A-Z]", name)}
        parts, end = [], 0
        for found in _QUALIFIED.finditer(text):
            word = found[0]
            to = self.qualified(word) if "!" in word else self._words.get(word) or known.get(word)
            if to is not None and (len(word) > 8 or "!" in word):
                parts += [escape(text[end : found.start()]), pages.link(word, to)]
                end = found.end()
        return "".join([*parts, escape(text[end:])])
