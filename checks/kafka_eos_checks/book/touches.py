"""The places that a change to a rule touches: the most important next to the rule, all of them on their own page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from kafka_eos_checks.book import pages
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.book.sources import Book, Operator
from kafka_eos_checks.matrix.impact import Place
from kafka_eos_checks.models.registry import Model

_MOST_PLACES = 12  # of a kind, on the page of all places
_MOST_CHARACTERS = 200_000  # of a page of places
_MOST_NAMES = 6  # next to a rule, before the rest is folded away
_SETTLED = ", settled by its models"
_KINDS: Mapping[str, str] = {
    "action": "actions",
    "reference": "reference",
    "server": "server",
    "mutant": "mutants",
    "model": "models",
    "property": "properties",
    "conjuncts": "conjuncts",
    "proof": "proofs",
    "contract": "contracts",
    "replay": "audit",
    "walk": "random walks",
    "conform": "conformance",
    "claim": "claims",
    "finding": "findings",
    "test": "tests",
    "check": "other checks",
    "document": "documents",
}
"""Kind of a place -> its heading, in the order of the page."""


def of_kinds(book: Book, operator: Operator, places: Iterable[Place]) -> dict[str, list[Place]]:
    """The places of an operator by kind, without its own text, and without findings about other rules of its module."""
    titles = _findings(book, operator.name)
    found: dict[str, list[Place]] = {kind: [] for kind in _KINDS}
    for place in places:
        of_another = place.kind == "finding" and place.what not in titles
        if place.kind in found and not of_another:
            found[place.kind].append(place)
    return {kind: each for kind, each in found.items() if each}


def _findings(book: Book, operator: str) -> frozenset[str]:
    """The titles of the findings that a model shows by another operator in the place of this one."""
    return frozenset(
        finding.title
        for finding in book.sources.findings
        if any(operator in book.entries[name].overrides for name in finding.models)
    )


def facts(links: Links, operator: Operator, places: Sequence[Place], page: str) -> Iterator[str]:
    """The rows next to a rule: actions, properties, mutants with what notices them, findings; and all places.

    Args:
        links: the addresses.
        operator: the rule.
        places: what a change to it touches.
        page: the page that lists all of these.
    """
    found = of_kinds(links.book, operator, places)
    home = operator.module
    for kind, label in (("action", "Actions with it"), ("property", "Properties"), ("finding", "Findings")):
        if kind in found:
            shown = dict.fromkeys(_named(links, home, place) for place in found[kind])
            yield _row(label, _folded(list(shown), _KINDS[kind]))
    mutants = [
        links.book.entries[name]
        for place in found.get("mutant", ())
        if place.file.startswith("spec/models/") and (name := place.what.partition(":")[0]) in links.book.entries
    ]
    if mutants:
        yield _row("Broken by", bullets_of(_mutant(entry) for entry in mutants))
    using = [entry for entry in links.book.entries.values() if operator.name in entry.overrides.values()]
    if home.endswith("Mutants") and using:
        yield _row("Replaces", bullets_of(_replaced(links, entry, operator.name) for entry in using))
    if found:
        counted = ", ".join(f"{len(each)} in {_KINDS[kind]}" for kind, each in found.items())
        yield _row("All places", pages.link(counted, pages.address(page, operator.name)))


def _row(label: str, told: str) -> str:
    return f"<dt>{label}</dt><dd>{told}</dd>"


def _folded(items: Sequence[str], what: str) -> str:
    shown = ", ".join(items)
    if len(items) <= _MOST_NAMES:
        return shown
    return f"<details><summary>{len(items)} {what}</summary>{shown}</details>"


def noticed_by(entry: Model) -> str:
    """The checks that notice a mutant, by its entry in the registry."""
    by = [f"TLC: {entry.expect.violates}"] if entry.expect.violates else []
    by += [f"proof {name}" for name in entry.proofs]
    by += [f"the audit's rule {entry.replay}"] if entry.replay else []
    return "; ".join(by)


def _mutant(entry: Model) -> str:
    name = pages.link(entry.name, pages.of_model(entry.module, entry.name))
    return f"{name}: {escape(entry.title)} (noticed by {escape(noticed_by(entry))})"


def _replaced(links: Links, entry: Model, other: str) -> str:
    rules = ", ".join(
        links.sentence(f"{entry.module}!{rule}", escape=escape)
        for rule, mine in entry.overrides.items()
        if mine == other
    )
    return f"{rules}, in {pages.link(entry.name, pages.of_model(entry.module, entry.name))}"


def _named(links: Links, home: str, place: Place) -> str:
    """An action or a property as a link, those of this page without their module; a finding by its title."""
    if place.kind == "finding":
        ids = {finding.title: finding.id for finding in links.book.sources.findings}
        return pages.link(place.what, pages.address("findings", ids[place.what]))
    named = place.what.removesuffix(" depends on it").partition(" breaks with ")[0]
    module, _, operator = named.partition("!")
    to = pages.of_property if place.kind == "property" else pages.of_operator
    return pages.link(operator if module == home else named, to(module, operator))


def bullets_of(items: Iterable[str]) -> str:
    """A list, or the one item by itself."""
    found = list(items)
    return found[0] if len(found) == 1 else pages.bullets(found)


def _all_of_kind(links: Links, home: str, kind: str, found: Sequence[Place]) -> str:
    """Places of a kind: links where they have a page of their own, else file, line and text."""
    if kind in {"action", "property", "finding"}:
        return ", ".join(dict.fromkeys(_named(links, home, place) for place in found))
    if kind == "model":
        return _models(links, [place.what.partition(":")[0] for place in found])
    if kind == "claim":
        ids = dict.fromkeys(place.what.partition(",")[0] for place in found if place.what.endswith(_SETTLED))
        if ids:
            return ", ".join(pages.link(each, pages.address("claims", each)) for each in ids)
    told = [
        f"<code>{escape(place.file)}:{place.line}</code> {links.sentence(_short(place.what), escape=escape)}"
        for place in found[:_MOST_PLACES]
    ]
    rest = len(found) - _MOST_PLACES
    return bullets_of([*told, f"and {rest} more"] if rest > 0 else told)


def _models(links: Links, names: Sequence[str]) -> str:
    """Models as links; all models of a module as one."""
    entries = links.book.entries
    told = []
    for module in dict.fromkeys(entries[name].module for name in names):
        here = [name for name in names if entries[name].module == module]
        every = [entry.name for entry in links.book.entries_of(module) if entry.kind == "model"]
        to = pages.address(f"models/{module}")
        if len(here) == len(every) > 1:
            told.append(pages.link(f"all {len(every)} models of {module}", to))
        else:
            told += [pages.link(name, pages.of_model(module, name)) for name in here]
    return ", ".join(told)


def _short(text: str) -> str:
    return text if len(text) <= 90 else text[:87] + "…"


def touches_pages(
    links: Links, module: str, told: Sequence[tuple[Operator, Sequence[Place]]]
) -> tuple[list[Page], dict[str, str]]:
    """The pages of every place that a change to a rule of a module touches, and the page of each rule."""
    parts: list[list[str]] = []
    where: dict[str, str] = {}
    for operator, places in told:
        found = of_kinds(links.book, operator, places)
        if not found:
            continue
        rows = "".join(
            _row(f"{_KINDS[kind]} ({len(each)})", _all_of_kind(links, module, kind, each))
            for kind, each in found.items()
        )
        name = pages.link(operator.name, pages.of_operator(module, operator.name))
        part = f'<h2 id="{operator.name}">{name}</h2><dl class="facts">{rows}</dl>'
        if not parts or sum(map(len, parts[-1])) + len(part) > _MOST_CHARACTERS:
            parts.append([])
        parts[-1].append(part)
        where[operator.name] = f"touches/{module}" + (f"-{len(parts)}" if len(parts) > 1 else "")
    said = (
        f"Every place that a change to a rule of {pages.link(module, pages.address(f'modules/{module}'))} touches, as "
        "`kafka-eos check impact` finds them. The command lists all places of a kind that this page cuts short."
    )
    title = f"Places of {module}"
    made = [
        Page(path=path, title=title, text=said + pages.raw("\n".join(part)), in_menu=False, wide=True)
        for path, part in zip(dict.fromkeys(where.values()), parts, strict=True)
    ]
    return made, where
