"""The stories: each known failure that a model shows, step by step, with its sequence diagram.

A story is TLC's counterexample. TLC runs once for each model; the behaviour is kept under the fingerprint of all that
it depends on (``build/checked/book``).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kafka_eos_checks.book import pages
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.book.sources import Book
from kafka_eos_checks.drawing.story import changes_in_words, in_words
from kafka_eos_checks.drawing.story_diagram import diagram
from kafka_eos_checks.drawing.story_words import Words, words_of
from kafka_eos_checks.graphs.model_check import check_models
from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Model, read_modules
from kafka_eos_checks.tla.behaviour import Step
from kafka_eos_checks.tla.parser import Definition
from kafka_eos_checks.tla.result_cache import (
    ResultCache,
    cache_folder,
    fingerprint,
    python_fingerprint,
    spec_fingerprint,
)
from kafka_eos_checks.tla.values import canonical, format_value, parse_value

_FOUND = "reader finds"  # in the comment of a variable that says what readers see


@dataclass(frozen=True, slots=True)
class Story:
    """A counterexample.

    Attributes:
        model: the model that violates its property.
        steps: the behaviour; the first step is the initial state.
        loop_to: the number of the state, from 1, to which a behaviour without end goes back, or None.
    """

    model: Model
    steps: Sequence[Step]
    loop_to: int | None


class NoStory(RuntimeError):  # noqa: N818 - named for what is missing
    """A model that must fail did not; the message says what TLC found."""


def told(book: Book) -> list[Model]:
    """The models that have a story: the known failures, and the mutants that show a finding.

    The models of inductive invariants have none, because no run starts in their initial states. Those of the deep tier
    would take TLC too long.
    """
    shown = {name for finding in book.sources.findings for name in finding.models}
    failing = [model for model in book.registry.models.values() if model.expect.violates and model.tier != "deep"]
    runs = [model for model in failing if book.modules[model.module] != "proofs"]
    mutants = [mutant for mutant in book.registry.mutants.values() if mutant.name in shown]
    return [*runs, *mutants]


def _key(model: Model) -> str:
    modules = spec_fingerprint(model.spec, read_modules(model))
    read = python_fingerprint(("kafka_eos_checks.graphs.model_check",))
    return fingerprint("story", modules, read, model.name, model.overrides, model.constants, model.bounds, model.expect)


def read_stories(models: Iterable[Model]) -> dict[str, Story]:
    """The stories of these models, by name; TLC runs for those that are not kept.

    Raises:
        NoStory: when a model does not violate its property.
        TlcMissing: when TLC has to run, and is not here.
    """
    cache = ResultCache(cache_folder("book"))
    found: dict[str, Story] = {}
    missing: list[Model] = []
    for model in models:
        kept = cache.get(_key(model))
        if kept is None:
            missing.append(model)
        else:
            found[model.name] = _story(model, kept)
    for outcome in check_models(missing):
        if not outcome.result.behaviour or outcome.found != outcome.model.expect.words:
            raise NoStory(f"{outcome.model.source}: expected {outcome.model.expect.words}, found {outcome.found}")
        steps = [
            {"action": step.action, "state": {name: format_value(value) for name, value in step.state.items()}}
            for step in outcome.result.behaviour
        ]
        result = {"steps": steps, "loop_to": outcome.result.loop_to}
        cache.put(_key(outcome.model), result)
        found[outcome.model.name] = _story(outcome.model, result)
    return {model.name: found[model.name] for model in models}


def _story(model: Model, kept: Mapping[str, object]) -> Story:
    rows = kept["steps"]
    assert isinstance(rows, list)
    steps = [Step(row["action"], {name: parse_value(text) for name, text in row["state"].items()}) for row in rows]
    loop_to = kept["loop_to"]
    return Story(model, steps, loop_to if isinstance(loop_to, int) else None)


def readers_of(book: Book, module: str) -> Iterator[tuple[str, Any]]:
    """The readers' view in a module that refines another one, in words and as an expression.

    The upper module has a variable for it, whose comment says so. The expression is what the refinement puts in its
    place.
    """
    for name, (home, definition) in book.spec.operators(module).items():
        body = definition.body
        if body[0] != "instance" or home != module:
            continue
        upper, given = book.spec.module(body[1]), dict(body[2])
        for variable in upper.variables:
            meaning = upper.meanings.get(variable, "")
            if _FOUND in meaning:
                several = f"{name}, " if sum(each.body[:2] == body[:2] for each in _defined(book, module)) > 1 else ""
                yield f"{several}{meaning}", given.get(variable, ("call", variable, ()))


def _defined(book: Book, module: str) -> Iterable[Definition]:
    return book.spec.module(module).definitions.values()


def seen_by_readers(book: Book, story: Story) -> list[list[str]]:
    """The readers' view of each state, in words; nothing for a module that says nothing of readers."""
    told_: list[list[str]] = [[] for _ in story.steps]
    expressions = list(readers_of(book, story.model.module))
    if not expressions:
        return told_
    formulas = Formulas(story.model, remember=False)
    states = [tuple(canonical(step.state[name]) for name in formulas.root.variables) for step in story.steps]
    for said, expression in expressions:
        value = formulas.evaluate(expression)
        for lines, state in zip(told_, states, strict=True):
            lines.append(f"{said[:1].upper()}{said[1:]}: {in_words(value(state, state))}")
    return told_


def story_page(links: Links, story: Story) -> Page:
    """The page of a story."""
    model, book = story.model, links.book
    words = words_of(model.spec, model.module)
    violated = model.expect.violates
    seen = book.spec.operators(f"{model.module}Mutants" if f"{model.module}Mutants" in book.modules else model.module)
    home = seen[violated][0]
    parts = [_setting(links, model, home, words)]
    parts.append(
        "## Step by step\n\nEach step is an action of the spec. Below it is what the step changes. The buttons and the "
        "arrow keys go from step to step."
    )
    told_ = f"<div>{_controls()}{_listed(links, story, words)}{_states(story)}</div>"
    parts.append(pages.raw(_beside(diagram(model.module, story.steps, violated), told_)))
    parts.append(
        f"## What is violated\n\n{pages.link(violated, pages.of_property(home, violated))}: "
        f"{links.sentence(words.sentences.get(violated, ''), home)}"
    )
    if story.loop_to is not None:
        again = f"From here the run goes back to step {story.loop_to}, again and again."
        parts.append(again if story.loop_to < len(story.steps) else "From here nothing more happens.")
    parts.append(f"Tell it again with `kafka-eos check models {model.name}`.")
    title = _title(model)
    return Page(path=f"stories/{model.name}", title=title, text="\n\n".join(parts), in_menu=False, wide=True)


_NARROW = 760  # CSS pixels of a picture that has room next to the steps


def _beside(picture: str, steps: str) -> str:
    """The sequence diagram with the steps, next to them where it is narrow enough."""
    if not picture:
        return f'<div class="stepped">{steps}</div>'
    width = re.search(r' width="(\d+)', picture)
    narrow = " narrow" if width and int(width[1]) <= _NARROW else ""
    return f'<div class="stepped{narrow}"><figure class="scroll">{picture}</figure>{steps}</div>'


def _title(model: Model) -> str:
    return pages.prose(model.title[:1].upper() + model.title[1:])


def _setting(links: Links, model: Model, home: str, words: Words) -> str:
    """The model, its constants, the rules that are replaced, and the findings that it shows."""
    violated = pages.link(model.expect.violates, pages.of_property(home, model.expect.violates))
    facts = [
        f"<dt>Model</dt><dd>{pages.link(model.name, pages.of_model(model.module, model.name))} of "
        f"{pages.link(model.module, pages.address(f'modules/{model.module}'))}</dd>",
        f"<dt>Violates</dt><dd>{violated}</dd>",
    ]
    for rule, other in model.overrides.items():
        said = words.sentences.get(other, "")
        facts.append(
            f"<dt>Rule changed</dt><dd>{links.sentence(f'{model.module}!{rule}', escape=escape)} is "
            f"<code>{escape(other)}</code>: {links.sentence(said, escape=escape)}</dd>"
        )
    facts += [
        f"<dt>Finding</dt><dd>{pages.link(finding.title, pages.address('findings', finding.id))}</dd>"
        for finding in links.book.sources.findings
        if model.name in finding.models
    ]
    given = ", ".join(f"{name} = {value}" for name, value in model.constants.items() if name not in model.overrides)
    facts.append(f"<dt>Constants</dt><dd><code>{escape(given)}</code></dd>")
    return pages.raw(f'<dl class="facts">{"".join(facts)}</dl>')


def _controls() -> str:
    return (
        '<div class="controls" data-steps hidden><button type="button" data-go="-1">← Back</button>'
        '<button type="button" data-go="1">Next →</button><button type="button" data-all>All steps</button>'
        '<span data-where aria-live="polite"></span></div>'
    )


def _listed(links: Links, story: Story, words: Words) -> str:
    """The steps as a list: sentence, call, changes."""
    items = [f'<li id="step-0"><p>At the start.</p>{_start(story)}</li>']
    seen = seen_by_readers(links.book, story)
    for number, (before, step) in enumerate(zip(story.steps, story.steps[1:], strict=False), start=1):
        action = step.action.partition("(")[0]
        to = links.qualified(f"{story.model.module}!{action}")
        call = escape(step.action)
        shown = call.replace(action, f'<a href="{to}">{action}</a>', 1) if to else call
        sentence = words.sentences.get(action, "")
        changed = list(changes_in_words(before.state, step.state))
        told_ = pages.bullets(escape(change) for _, change in changed) if changed else "<p>Nothing changes.</p>"
        new = [line for line in seen[number] if line not in seen[number - 1]]
        told_ += "".join(f'<p class="seen">{escape(line)}</p>' for line in new)
        items.append(f'<li id="step-{number}"><p>{escape(sentence)}</p><p><code>{shown}</code></p>{told_}</li>')
    return f'<ol class="story" start="0">{"".join(items)}</ol>'


def _start(story: Story) -> str:
    state = story.steps[0].state
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(in_words(value))}</dd>" for name, value in state.items())
    return f'<details><summary>the first state</summary><dl class="facts">{rows}</dl></details>'


def _states(story: Story) -> str:
    """The states for the script, which shows them before and after a step."""
    rows = [{name: in_words(value) for name, value in step.state.items()} for step in story.steps]
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return f'<div data-states></div><script type="application/json" data-of="states">{text}</script>'


def index_page(links: Links, stories: Mapping[str, Story]) -> Page:
    """The list of the stories."""
    parts = [
        "A story is a run that a model finds: the shortest way to a known failure of Kafka, of a "
        "configuration or of an "
        "application. Step through it with the buttons or the arrow keys. Each step links to the rule that "
        "allows it."
    ]
    by_finding = {name: finding for finding in links.book.sources.findings for name in finding.models}
    groups: dict[str, list[Story]] = {"Found in Kafka": [], "Known failures and refuted claims": []}
    for name, story in stories.items():
        groups["Found in Kafka" if name in by_finding else "Known failures and refuted claims"].append(story)
    for title, chosen in groups.items():
        rows = [
            (
                pages.link(_plain_title(story.model), pages.address(f"stories/{story.model.name}")),
                escape(story.model.name),
                escape(story.model.module),
                str(len(story.steps) - 1),
            )
            for story in chosen
        ]
        parts.append(f"## {title}\n" + pages.table(("What happens", "Model", "Module", "Steps"), rows))
    return Page(path="stories/index", title="Stories of failures", text="\n\n".join(parts), wide=True)


def _plain_title(model: Model) -> str:
    return model.title[:1].upper() + model.title[1:]


def story_pages(links: Links, stories: Mapping[str, Story]) -> Iterator[Page]:
    """The pages of all stories, and their list."""
    yield index_page(links, stories)
    for story in stories.values():
        yield story_page(links, story)
