"""Try it: pages on which a reader walks the whole state graph of a small model.

The graph is the reference's own (:func:`kafka_eos.machines.explorer.explore`): in each state every action instance is
either enabled, or refused with the machine's reason.
"""

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.explorer import TooManyStates, explore
from kafka_eos.machines.machine import dump, instances
from kafka_eos_checks.book import pages
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.drawing.story import in_words
from kafka_eos_checks.drawing.story_words import words_of
from kafka_eos_checks.graphs.command import reference_of
from kafka_eos_checks.models.registry import Model, bounds_predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A model that a page lets the reader walk.

    Attributes:
        name: the page's name.
        title: the page's heading.
        model: the model's name in the registry.
        what: what the reader may try.
        constants: values that replace the model's, to make its graph smaller.
    """

    name: str
    title: str
    model: str
    what: str
    constants: Mapping[str, str] = field(default_factory=dict)


SCENARIOS = tuple(
    Scenario(name=name, **entry)
    for name, entry in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
)
MOST_STATES = 900


@dataclass(frozen=True, slots=True)
class Graph:
    """A state graph as the script reads it.

    Attributes:
        variables: the names of the variables.
        calls: every action instance, as TLA+ writes it.
        texts: the values of variables that occur, in words.
        states: for each state the places of its values in ``texts``.
        edges: for each state: the place of an instance -> the next state, or -1 where the model's bounds end.
        reasons: the refusals that occur.
        refused: the rows of refusals that occur, each a string with a character for each instance: the place of the
            reason plus 40, or a blank where the instance is enabled.
        rows: for each state the place of its row.
    """

    variables: list[str]
    calls: list[str]
    texts: list[str]
    states: list[list[int]]
    edges: list[dict[int, int]]
    reasons: list[str]
    refused: list[str]
    rows: list[int]


class TooLarge(RuntimeError):  # noqa: N818 - named for the graph
    """A model with more states than a page can hold."""


def graph_of(model: Model) -> Graph:
    """The graph of a model.

    Raises:
        TooLarge: when it has more than ``MOST_STATES`` states.
    """
    machine = reference_of(model)
    constants = model.machine_constants(machine)
    every = instances(machine, constants)
    reasons: dict[str, int] = {}
    rows = defaultdict[int, list[str]](lambda: [" "] * len(every))

    def refuse(state: int, place: int, refusal: NotEnabled | Rejected) -> None:
        rows[state][place] = chr(40 + reasons.setdefault(str(refusal) or "not enabled", len(reasons)))

    try:
        found = explore(machine.initial(constants), every, bounds_predicate(model), MOST_STATES, on_refusal=refuse)
    except TooManyStates:
        raise TooLarge(f"{model.name} has more than {MOST_STATES} states; choose a smaller model") from None
    graph = Graph(
        list(machine.VARIABLES), [each.label for each in every], [], [], [{} for _ in found.states], [], [], []
    )
    for source, label, target in zip(found.sources, found.labels, found.targets, strict=True):
        graph.edges[source][label] = target
    texts: dict[str, int] = {}
    refused: dict[str, int] = {}
    for place, state in enumerate(found.states):
        graph.states.append([texts.setdefault(in_words(value), len(texts)) for value in dump(state).values()])
        graph.rows.append(refused.setdefault("".join(rows[place]), len(refused)))
    graph.texts.extend(texts)
    graph.reasons.extend(reasons)
    graph.refused.extend(refused)
    return graph


def as_json(graph: Graph, sentences: dict[str, str], targets: dict[str, str]) -> str:
    """A graph for the script."""
    content = {
        "variables": graph.variables,
        "calls": graph.calls,
        "texts": graph.texts,
        "states": graph.states,
        "edges": [[number for edge in edges.items() for number in edge] for edges in graph.edges],
        "reasons": graph.reasons,
        "refused": graph.refused,
        "rows": graph.rows,
        "sentences": sentences,
        "targets": targets,
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def scenario_model(links: Links, scenario: Scenario) -> Model:
    """The model of a scenario, with the scenario's constants."""
    model = links.book.entries[scenario.model]
    return replace(model, constants={**model.constants, **scenario.constants})


def trying_page(links: Links, scenario: Scenario) -> Page:
    """The page on which one model can be walked."""
    model = scenario_model(links, scenario)
    graph = graph_of(model)
    words = words_of(model.spec, model.module)
    actions = list(dict.fromkeys(call.partition("(")[0] for call in graph.calls))
    sentences = {name: words.sentences.get(name, "") for name in actions}
    targets = {name: links.qualified(f"{model.module}!{name}") or "" for name in actions}
    enabled = sum(map(len, graph.edges))
    changed = ", ".join(f"{name} = {value}" for name, value in scenario.constants.items())
    named = pages.link(model.name, pages.of_model(model.module, model.name)) + (
        f", with `{changed}`" if changed else ""
    )
    text = (
        f"{scenario.what}\n\nThe page has the whole state graph of the model {named}: {len(graph.states):,} states and "
        f"{enabled:,} steps, which the Python reference has taken. Choose a step. An action that is refused says why.\n"
    )
    data = as_json(graph, sentences, {name: to.replace(pages.ROOT, "../") for name, to in targets.items()})
    known = "".join(
        f'<li><a href="{targets[name]}">{escape(name)}</a>: {escape(sentences[name])}</li>' for name in actions
    )
    html = (
        "<div data-try><p>Walking the graph needs a script. The actions are below.</p></div>"
        f'<script type="application/json" data-of="graph">{data}</script>'
        f"<details><summary>all actions</summary><ul>{known}</ul></details>"
    )
    title = f"Try it: {scenario.title}"
    return Page(path=f"try/{scenario.name}", title=title, text=text + pages.raw(html), in_menu=False, wide=True)


def trying_pages(links: Links) -> Iterator[Page]:
    """The pages of all scenarios, and their list."""
    rows = []
    for scenario in SCENARIOS:
        yield trying_page(links, scenario)
        module = links.book.entries[scenario.model].module
        to = pages.link(scenario.title, pages.address(f"try/{scenario.name}"))
        rows.append((to, pages.link(module, pages.address(f"modules/{module}")), escape(scenario.what)))
    said = (
        "Each page has the state graph of a small model, computed beforehand by the reference. You choose the "
        "next step: a request, "
        "a lost answer, a crash. The page shows what changes, and why every other action is refused."
    )
    text = said + pages.table(("Walk", "Module", "What to try"), rows)
    yield Page(path="try/index", title="Try it", text=text)
