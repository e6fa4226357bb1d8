"""The pages of the modules: what a module models, its variables, and each action and rule in both languages."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks.book import pages, touches
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.listing import listing
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.book.sources import Book, Kind, Operator
from kafka_eos_checks.matrix.impact import Place
from kafka_eos_checks.models.registry import Model

_HEADER = re.compile(r"\(\*+\)\n(.*?)\n\(\*+\)\n", re.DOTALL)
_LABELS = ("Modelled:", "Assumed, not checked:", "Out of scope:")
_COLUMNS = re.compile(r"^=+(?: +=+)+$")
_TOLD = frozenset({Kind.ACTION, Kind.RULE})
FOLDERS: Mapping[str, str] = {
    "": "The spec",
    "proofs": "Invariants of the proofs",
    "mutants": "Mutants: rules with one thing changed",
    "bounds": "Bounds of searches",
}


def header(text: str) -> list[str]:
    """The paragraphs of the comment at the head of a module."""
    found = _HEADER.search(text)
    if found is None:
        return []
    lines = [line.removeprefix("(*").rstrip().removesuffix("*)").rstrip() for line in found[1].splitlines()]
    return [
        " ".join(" ".join(group).split())
        for filled, group in groupby(lines, key=lambda line: bool(line.strip()))
        if filled
    ]


def _introduction(links: Links, module: str) -> str:
    """The head of a module as a paragraph, a list for each label, and what it cites."""
    parts: list[str] = []
    for paragraph in header(links.book.spec.text(module)):
        pieces = re.split(f"({'|'.join(_LABELS)})", paragraph)
        if pieces[0].strip():
            parts.append(links.sentence(pieces[0].strip()))
        for label, said in zip(pieces[1::2], pieces[2::2], strict=True):
            items = re.split(r";\s+", said.strip().rstrip("."))
            parts.append(f"**{label.rstrip(':')}**\n\n" + "\n".join(f"- {links.sentence(each)}" for each in items))
    return "\n\n".join(parts)


def kafka_names(docstring: str) -> dict[str, tuple[str, str]]:
    """The table in the docstring of a machine: variable -> the field in Python, and in Kafka."""
    rows: dict[str, tuple[str, str]] = {}
    places: list[int] = []
    for line in docstring.splitlines():
        if _COLUMNS.match(line):
            places = [found.start() for found in re.finditer(r"=+", line)]
        elif len(places) >= 3 and line.strip() and not line.startswith("spec variable"):
            cells = [line[a:b].strip() for a, b in zip(places, [*places[1:], None], strict=True)]
            rows[cells[0]] = (cells[1].strip("`"), cells[2])
    return rows


def _docstring_of(book: Book, module: str) -> str:
    path = f"reference/kafka_eos/machines/{snake_case(module)}.py"
    text = book.sources.texts.get(path, "")
    return text.split('"""')[1] if text.startswith('"""') else ""


def _declared(links: Links, module: str) -> Iterator[str]:
    """The tables of the constants and of the variables."""
    found = links.book.spec.module(module)
    names = kafka_names(_docstring_of(links.book, module))
    if found.constants:
        rows = [(_defined(name), escape(found.meanings.get(name, ""))) for name in found.constants]
        yield "## Constants\n" + pages.table(("Constant", "Meaning"), rows)
    if found.variables:
        rows3 = [
            (_defined(name), escape(found.meanings.get(name, "")), f"<code>{escape(field)}</code>", escape(kafka))
            for name in found.variables
            for field, kafka in [names.get(name, (snake_case(name), ""))]
        ]
        yield "## Variables\n" + pages.table(("Variable", "Meaning", "Python", "Kafka"), rows3)


def _defined(name: str) -> str:
    return f'<code id="{escape(name)}">{pages.breakable(name)}</code>'


def operator_entry(links: Links, operator: Operator, places: Sequence[Place], page: str) -> str:
    """An action or rule: its sentence, its facts, both texts, and the places that a change to it touches.

    Args:
        links: the addresses.
        operator: the action or rule.
        places: what a change to it touches.
        page: the page that lists all of these.
    """
    facts = []
    if operator.kafka:
        facts.append(f"<dt>Kafka</dt><dd>{escape(operator.kafka)}</dd>")
    if operator.kips:
        facts.append(f"<dt>Proposals</dt><dd>{escape(operator.kips)}</dd>")
    if operator.errors:
        codes = ", ".join(pages.link(code, pages.of_error(code), code=True) for code in operator.errors)
        facts.append(f"<dt>May answer</dt><dd>{codes}</dd>")
    touched = "".join(touches.facts(links, operator, places, page))
    notes = "".join(f"\n\n{links.sentence(note, operator.module)}" for note in operator.notes)
    return "\n".join(
        [
            pages.anchor(operator.name),
            f"### {operator.name}",
            "",
            links.sentence(operator.sentence, operator.module) + notes,
            pages.raw(f'<dl class="facts">{"".join(facts)}</dl>') if facts else "",
            links.pair(operator),
            pages.raw(f'<dl class="facts">{touched}</dl>') if touched else "",
        ]
    )


def _models(links: Links, entries: Sequence[Model]) -> str:
    """The models and mutants of a module, with what is expected of each."""
    rows = []
    for entry in entries:
        wanted = entry.expect.violates
        home = links.book.spec.operators(_seen(links.book, entry))[wanted][0] if wanted else ""
        verdict = f"violates {pages.link(wanted, pages.of_property(home, wanted))}" if wanted else "holds"
        numbers = f"{entry.expect.states:,} states, depth {entry.expect.depth}" if entry.expect.states else ""
        name = _defined(entry.name)
        changed = ", ".join(
            f"{links.sentence(f'{entry.module}!{rule}', escape=escape)} → {escape(other)}"
            for rule, other in entry.overrides.items()
        )
        given = ", ".join(f"{name} = {value}" for name, value in entry.constants.items() if name not in entry.overrides)
        said = escape(entry.title) + (f"<br>{changed}" if changed else "")
        if entry.kind == "model":
            said += f"<details><summary>constants</summary><code>{escape(given)}</code></details>"
        rows.append((name, said, verdict, numbers or ""))
    return pages.table(("Name", "What it is", "Expected", "Size"), rows)


def _seen(book: Book, entry: Model) -> str:
    return f"{entry.module}Mutants" if f"{entry.module}Mutants" in book.modules else entry.module


def module_page(links: Links, module: str, places: Mapping[str, Sequence[Place]], where: Mapping[str, str]) -> Page:
    """The page of a module.

    Args:
        links: the addresses.
        module: its name.
        places: for each rule and action that is told, the places that it touches.
        where: for each of these the page that lists the places.
    """
    operators = links.book.operators(module)
    parts = [_introduction(links, module), _see_also(links, module), *_declared(links, module)]
    properties = [each for each in operators if each.kind is Kind.PROPERTY]
    witnesses = {each.name for each in operators if each.kind is Kind.WITNESS}
    told = [each for each in operators if each.name in places]
    for kind, title in ((Kind.ACTION, "Actions"), (Kind.RULE, "Rules")):
        chosen = [each for each in told if each.kind is kind]
        if chosen:
            names = " · ".join(f'<a href="#{each.name}">{each.name}</a>' for each in chosen)
            parts.append(f"## {title}\n" + pages.raw(f'<p class="names">{names}</p>'))
        parts += [operator_entry(links, each, places[each.name], where.get(each.name, "")) for each in chosen]
    small = [each for each in operators if _is_small(each)]
    if small:
        parts.append("## Names without a rule of their own\n" + _small(links, small))
    if properties:
        rows = [
            (
                f'<span id="{each.name}">{pages.link(each.name, pages.of_property(module, each.name))}</span>'
                + (f'<span id="{each.name}Witness"></span>' if f"{each.name}Witness" in witnesses else ""),
                links.sentence(each.sentence, module, escape),
            )
            for each in properties
        ]
        parts.append("## Properties\n" + pages.table(("Property", "In words"), rows))
    strays = witnesses - {f"{each.name}Witness" for each in properties}
    parts.append(pages.raw("".join(f'<span id="{name}"></span>' for name in sorted(strays))) if strays else "")
    return Page(path=f"modules/{module}", title=module, text="\n\n".join(filter(None, parts)), in_menu=False, wide=True)


def models_page(links: Links, module: str) -> Page:
    """The page of the models and mutants of a module."""
    said = (
        f"The models with which TLC checks {pages.link(module, pages.address(f'modules/{module}'))}, and its mutants."
    )
    parts = [f"{said} A mutant has one rule changed, and must violate the property that it names."]
    for kind, title in (("model", "Models"), ("mutant", "Mutants")):
        entries = [entry for entry in links.book.entries_of(module) if entry.kind == kind]
        if entries:
            parts.append(f"## {title}\n" + _models(links, entries))
    text = "\n\n".join(parts)
    return Page(path=f"models/{module}", title=f"Models of {module}", text=text, in_menu=False, wide=True)


def _is_small(operator: Operator) -> bool:
    """Whether the operator is only a name for a value, which needs no sentence."""
    return operator.kind is Kind.RULE and not operator.sentence and operator.tla.text.count("\n") < 2


def _small(links: Links, operators: Sequence[Operator]) -> str:
    """Small definitions, one under the other."""
    rows = []
    for each in operators:
        shown = listing("tla", each.tla.text, links.in_tla(each))
        rows.append(f'<div id="{each.name}">{shown}</div>')
    return pages.raw(f'<div class="small highlight">{"".join(rows)}</div>')


def _see_also(links: Links, module: str) -> str:
    """The modules that this one extends, instantiates, or is extended by."""
    book = links.book
    found = book.spec.module(module)
    rows = []
    for title, names in (
        ("Extends", [name for name in found.extends if name in book.modules]),
        ("Uses", [name for name in dict.fromkeys(found.instantiates) if name in book.modules]),
        (
            "Used by",
            [
                name
                for name in book.modules
                if module in {*book.spec.module(name).extends, *book.spec.module(name).instantiates}
            ],
        ),
    ):
        if names:
            links_ = ", ".join(pages.link(name, pages.address(f"modules/{name}")) for name in names)
            rows.append(f"<dt>{title}</dt><dd>{links_}</dd>")
    entries = book.entries_of(module)
    if entries:
        mutants = sum(entry.kind == "mutant" for entry in entries)
        to = pages.link(f"{len(entries) - mutants} models and {mutants} mutants", pages.address(f"models/{module}"))
        rows.append(f"<dt>Checked by</dt><dd>{to}</dd>")
    file = book.spec.paths[module].relative_to(book.sources.root).as_posix()
    rows.append(f"<dt>Source</dt><dd><code>{file}</code></dd>")
    return pages.raw(f'<dl class="facts">{"".join(rows)}</dl>')


def index_page(links: Links) -> Page:
    """The list of the modules."""
    book = links.book
    parts = [
        "A TLA+ module says which steps are allowed and what must hold. Most modules have a Python machine of "
        "the same name, "
        "whose state graph is compared with TLC's, edge by edge. Each page shows both texts next to each "
        "other."
    ]
    for folder, title in FOLDERS.items():
        names = [name for name, place in book.modules.items() if place == folder]
        rows = []
        for name in names:
            said = next(iter(header(book.spec.text(name))), "")
            said = said if len(said) < 240 else said[:237].rsplit(" ", 1)[0] + " …"
            actions = sum(home == name for home, _ in book.actions)
            rows.append((pages.link(name, pages.address(f"modules/{name}")), escape(said), str(actions or "")))
        parts.append(f"## {title}\n" + pages.table(("Module", "What it is", "Actions"), rows))
    return Page(path="modules/index", title="Modules", text="\n\n".join(parts))


def module_pages(links: Links) -> Iterator[Page]:
    """The pages of all modules, and their list."""
    yield index_page(links)
    for module in links.book.modules:
        told = [each for each in links.book.operators(module) if each.kind in _TOLD and not _is_small(each)]
        places = {each.name: links.book.places(module, each.name) for each in told}
        made, where = touches.touches_pages(links, module, [(each, places[each.name]) for each in told])
        yield module_page(links, module, places, where)
        yield from made
        if links.book.entries_of(module):
            yield models_page(links, module)
