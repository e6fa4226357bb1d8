"""The pages of the properties: in words, as a formula, where each is checked, and what violates it."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from kafka_eos_checks.book import pages
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.book.sources import Operator
from kafka_eos_checks.kit.verdict import counted
from kafka_eos_checks.models.registry import Model
from kafka_eos_checks.models.releases import columns
from kafka_eos_checks.walks.layers import Layer

if TYPE_CHECKING:
    from kafka_eos_checks.proofs.induction import Proof


def property_page(links: Links, operator: Operator, story_of: frozenset[str]) -> Page:
    """The page of a property.

    Args:
        links: the addresses.
        operator: the property.
        story_of: the models whose counterexample has a page.
    """
    book = links.book
    name, module = operator.name, operator.module
    judging = book.judged[module, name]
    holding = [entry for entry in judging if not entry.expect.violates and name not in entry.silent]
    silent = [entry for entry in judging if not entry.expect.violates and name in entry.silent]
    violating = [entry for entry in judging if entry.expect.violates == name]
    parts = [
        links.sentence(operator.sentence, module) or "The module gives this property no sentence of its own.",
        pages.raw(
            f'<dl class="facts"><dt>Module</dt><dd>{pages.link(module, pages.address(f"modules/{module}"))}</dd>'
            f"<dt>Kind</dt><dd>{_kind(judging, name)}</dd>"
            f"<dt>Standing</dt><dd>{_standing(holding, violating)}</dd></dl>"
        ),
        "## Formula",
        links.pair(operator),
    ]
    witness = next((each for each in book.operators(module) if each.name == f"{name}Witness"), None)
    if witness is not None:
        parts += [
            "## Witness\n\nA property that holds proves nothing unless the search reaches the case that the property "
            "is about. The witness is that case. TLC must find it true somewhere and false somewhere.",
            links.pair(witness),
        ]
    if holding:
        parts.append("## Models in which it holds\n" + _holding(holding))
    if silent:
        said = ", ".join(pages.link(each.name, pages.of_model(each.module, each.name)) for each in silent)
        parts.append(
            f"## Models in which its verdict does not count\n\nThe constants of these models are about something else: "
            f"{said}."
        )
    if violating:
        parts.append("## What violates it\n" + _violating(links, violating, story_of))
    proofs = book.proved.get((module, name), [])
    if proofs:
        parts.append("## Proof\n" + _proofs(links, name, proofs))
    walks = book.walked.get((module, name), [])
    if walks:
        parts.append("## Random walks\n" + _walks(links, walks))
    if holding:
        parts.append(_releases(links, name, holding))
    text = "\n\n".join(filter(None, parts))
    return Page(path=f"properties/{module}-{name}", title=name, text=text, in_menu=False, wide=True)


def _kind(judging: Sequence[Model], name: str) -> str:
    temporal = any(name in entry.properties for entry in judging)
    return "of behaviours: of steps, or of what must happen in the end" if temporal else "invariant: of every state"


def _standing(holding: Sequence[Model], violating: Sequence[Model]) -> str:
    if holding:
        return f"holds in {len(holding)} models; {len(violating)} models and mutants violate it"
    return "does not hold: models show the run" if violating else "checked only where the verdict does not count"


def _holding(models: Sequence[Model]) -> str:
    rows = [
        (
            pages.link(entry.name, pages.of_model(entry.module, entry.name)),
            escape(entry.title),
            f"<code>{escape(', '.join(f'{name} = {value}' for name, value in entry.constants.items()))}</code>",
            f"{entry.expect.states:,}" if entry.expect.states else "",
        )
        for entry in models
    ]
    return pages.table(("Model", "What it is", "Constants", "States"), rows)


def _violating(links: Links, models: Sequence[Model], story_of: frozenset[str]) -> str:
    rows = []
    for entry in sorted(models, key=lambda entry: entry.kind):
        changed = ", ".join(
            f"{links.sentence(f'{entry.module}!{rule}', escape=escape)} → {escape(other)}"
            for rule, other in entry.overrides.items()
        )
        said = escape(entry.title)
        if entry.name in story_of:
            said += f" {pages.link('Step through it', pages.address(f'stories/{entry.name}'))}"
        rows.append((pages.link(entry.name, pages.of_model(entry.module, entry.name)), entry.kind, said, changed))
    return pages.table(("Name", "Kind", "What happens", "Rule changed"), rows)


def _proofs(links: Links, name: str, proofs: Sequence["Proof"]) -> str:
    """The proofs by induction that show the property without bounds, each with the repaired rules that it rests on."""
    rows = []
    for proof in proofs:
        part = "conjunct of the invariant" if name in {each.name for each in proof.conjuncts} else "follows from it"
        rests = ", ".join(
            links.sentence(f"{rule.module}!{rule.name}", escape=escape)
            for cause in proof.rests_on
            if (rule := links.book.releases.rule(proof.module, cause))
        )
        refuting = [entry for entry in links.book.entries.values() if proof.is_refuted_by(entry)]
        mutants = ", ".join(pages.link(each.name, pages.of_model(each.module, each.name)) for each in refuting)
        call = f"<code>kafka-eos check proofs {proof.name}</code>"
        rows.append((f"{escape(proof.title)}<br>{call}", part, rests, mutants))
    heads = ("Proof, without bounds", "The property here", "Rests on the repair of", "Refuted by the mutants")
    return pages.table(heads, rows)


def _walks(links: Links, walks: Sequence[Layer]) -> str:
    """The layers of random walks, also by the rules of releases, with constants larger than TLC can search."""
    said = "Random walks take long runs with many faults, with constants that TLC could not search: "
    rows = [
        (
            pages.link(layer.name, pages.of_model(layer.model.module, _entry(links, layer))),
            f"<code>{escape(', '.join(f'{name} = {value}' for name, value in layer.model.constants.items()))}</code>",
        )
        for layer in walks
    ]
    return f"{said}`kafka-eos check walks`.\n" + pages.table(("Layer", "Constants"), rows)


def _entry(links: Links, layer: Layer) -> str:
    """The model of a layer; one that stands for several models has the name of the first."""
    return layer.name if layer.name in links.book.entries else layer.model.name


def _releases(links: Links, name: str, models: Sequence[Model]) -> str:
    """Whether the property holds by the rules of each release of Kafka, as the registry expects of the models."""
    releases = links.book.releases
    rows = []
    for release in releases.releases:
        asked = [column for column in columns(models, [release], releases) if not column.outside]
        told = [(column, column.expected(releases)) for column in asked if column.rules]
        broken = [(column.model, said.violates[name]) for column, said in told if said and name in said.violates]
        holds = [column for column, said in told if said and name not in said.violates and name not in said.silent]
        same = len(asked) - len(told)
        unchecked = len(told) - len(broken) - len(holds)  # no verdict is expected of the release, or a silent one
        verdict = "violated" if broken else "holds" if holds or same else "not checked"
        parts = [f"violated in {_by_rules(links, model, causes)}" for model, causes in broken]
        parts += [f"holds in {counted(len(holds), 'model')} with rules of this release"] if holds else []
        parts += [f"holds in {counted(same, 'model')} that no rule of this release touches"] if same else []
        parts += [f"not checked in {counted(unchecked, 'model')} with rules of this release"] if unchecked else []
        rows.append((escape(f"Kafka {release}"), verdict, "; ".join(parts)))
    return "## Kafka as it ships\n" + pages.table(("Release", "Verdict", "Because it"), rows)


def _by_rules(links: Links, model: Model, causes: str) -> str:
    """A model with the rules of a release that break a property in it, and the findings behind them."""
    releases = links.book.releases
    rules = [
        links.sentence(f"{rule.module}!{rule.name}", escape=escape)
        for cause in causes.split(", ")
        if (rule := releases.rule(model.module, cause))
    ]
    findings = [
        pages.link(found, pages.address("findings", found)) for found in releases.findings(model.module, causes)
    ]
    behind = f" (finding {', '.join(findings)})" if findings else ""
    return f"{pages.link(model.name, pages.of_model(model.module, model.name))} by {', '.join(rules)}{behind}"


def index_page(links: Links) -> Page:
    """The list of the properties, by module."""
    book = links.book
    parts = [
        "A property says what must hold. TLC checks it in models with bounds; some properties are proved without "
        "bounds. A property that a model is expected to violate is a known failure, a mutant, or a claim that does "
        "not hold."
    ]
    for module in book.modules:
        rows = []
        for operator in book.operators(module):
            judging = book.judged.get((module, operator.name))
            if judging:
                holding = sum(not each.expect.violates for each in judging)
                failing = sum(each.expect.violates == operator.name for each in judging)
                said = links.sentence(operator.sentence, module, escape)
                rows.append(
                    (
                        pages.link(operator.name, pages.of_property(module, operator.name)),
                        said,
                        str(holding),
                        str(failing),
                    )
                )
        if rows:
            parts.append(f"## {module}\n" + pages.table(("Property", "In words", "Holds in", "Violated by"), rows))
    return Page(path="properties/index", title="Properties", text="\n\n".join(parts))


def property_pages(links: Links, story_of: frozenset[str]) -> Iterator[Page]:
    """The pages of all properties, and their list."""
    yield index_page(links)
    for module in links.book.modules:
        for operator in links.book.operators(module):
            if (module, operator.name) in links.book.judged:
                yield property_page(links, operator, story_of)
