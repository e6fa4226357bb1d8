"""The pictures: state machines, drawn from tables and state graphs, and the tower of refinements.

The arrows are read from the sources. Only the positions of the boxes are given here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import hypot
from typing import Any

from kafka_eos.formats import transaction_log
from kafka_eos.machines import transactional_producer
from kafka_eos.machines.explorer import OUTSIDE, explore
from kafka_eos.machines.machine import instances
from kafka_eos_checks.book import pages
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.drawing.svg import element, escaped, text_width
from kafka_eos_checks.graphs.command import reference_of
from kafka_eos_checks.models.registry import bounds_predicate

FONT, HIGH, GAP_X, GAP_Y, SIDE = 13, 34, 46, 62, 36
# CSS pixels: text, height of a box, room between boxes, room at the sides for arrows around boxes


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow of a picture.

    Attributes:
        source: the box at its tail.
        target: the box at its tip.
        dashed: whether it is drawn with dashes.
    """

    source: str
    target: str
    dashed: bool = False


def drawn(
    rows: Sequence[Sequence[str]], arrows: Iterable[Arrow], label: str, to: Mapping[str, str] | None = None
) -> str:
    """Boxes in rows, with arrows between them, as SVG.

    Args:
        rows: the names in the boxes, from the top.
        arrows: between them; one from a box to itself is a loop at its right side.
        label: the picture in words, for those who cannot see it.
        to: the address of a box, where it has one.
    """
    wide = max(text_width(name, FONT) for row in rows for name in row) + 24
    width = max(len(row) for row in rows) * (wide + GAP_X) + GAP_X + 2 * SIDE
    height = len(rows) * (HIGH + GAP_Y) + GAP_Y / 2
    middle: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        step = (width - 2 * SIDE) / len(row)
        middle |= {
            name: (SIDE + step * (place + 0.5), GAP_Y / 2 + number * (HIGH + GAP_Y) + HIGH / 2)
            for place, name in enumerate(row)
        }
    every = list(arrows)
    pairs = {(arrow.source, arrow.target) for arrow in every}
    lines = [_line(middle, arrow, wide, (arrow.target, arrow.source) in pairs) for arrow in every]
    boxes = [_box(name, *middle[name], wide, (to or {}).get(name, "")) for name in middle]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="{"group" if to else "img"}" '
        f'aria-label="{escaped(label)}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}">'
    )
    return f'<figure class="scroll">{head}{"".join(lines)}{"".join(boxes)}</svg></figure>'


def _box(name: str, x: float, y: float, wide: float, to: str) -> str:
    shape = element(
        "rect", {"class": "box", "x": x - wide / 2, "y": y - HIGH / 2, "width": wide, "height": HIGH, "rx": 5.0}
    )
    words = element(
        "text",
        {"x": x, "y": y + 4.5, "text-anchor": "middle", "font-size": float(FONT), "fill": "currentColor"},
        escaped(name),
    )
    return f'<a href="{escape(to)}">{shape}{words}</a>' if to else shape + words


def _line(middle: Mapping[str, tuple[float, float]], arrow: Arrow, wide: float, both: bool) -> str:
    x1, y1 = middle[arrow.source]
    x2, y2 = middle[arrow.target]
    if arrow.source == arrow.target:
        right = x1 + wide / 2
        out, up, down = right + 34, y1 - 22, y1 + 22
        bend = f"M {right:.0f} {y1 - 8:.0f} C {out:.0f} {up:.0f} {out:.0f} {down:.0f} {right + 3:.0f} {y1 + 8:.0f}"
        return _path(bend, arrow) + _tip(right + 1, y1 + 8, -1, -0.35)
    length = hypot(x2 - x1, y2 - y1)
    across = ((y1 - y2) / length, (x2 - x1) / length)
    bow = 26.0 if both else (0.10 * length if abs(y1 - y2) < 1 or length > 260 else 0)
    mid = ((x1 + x2) / 2 + across[0] * bow, (y1 + y2) / 2 + across[1] * bow)
    if abs(x1 - x2) < 1 and length > HIGH + GAP_Y + 1:  # around the boxes in between
        mid = (
            x1 + (-1.2 if x1 < max(x for x, _ in middle.values()) else 1.2) * wide,
            mid[1] + (10 if y1 < y2 else -10),
        )
    if abs(y1 - y2) < 1 and length > wide + GAP_X + 1:
        mid = (mid[0], y1 - HIGH - 0.10 * length)
    others = [place for name, place in middle.items() if name not in (arrow.source, arrow.target)]
    edges = [x for x, _ in middle.values()]
    for by in _DETOURS:
        bent = (mid[0] + across[0] * by, mid[1] + across[1] * by)
        inside = min(edges) - wide / 2 - SIDE < bent[0] < max(edges) + wide / 2 + SIDE
        if inside and not _passes((x1, y1), bent, (x2, y2), others, wide):
            mid = bent
            break
    start, end = _rim((x1, y1), mid, wide), _rim((x2, y2), mid, wide)
    bend = f"M {start[0]:.1f} {start[1]:.1f} Q {mid[0]:.1f} {mid[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    return _path(bend, arrow) + _tip(*end, end[0] - mid[0], end[1] - mid[1])


_DETOURS = (0, *(side * by for by in range(20, 240, 20) for side in (1, -1)))  # of the middle of an arrow


def _passes(
    start: tuple[float, float],
    mid: tuple[float, float],
    end: tuple[float, float],
    boxes: Sequence[tuple[float, float]],
    wide: float,
) -> bool:
    """Whether a bent line passes one of these boxes."""
    for part in range(1, 40):
        there = part / 40
        one, two, three = (1 - there) ** 2, 2 * (1 - there) * there, there**2
        x, y = (one * a + two * b + three * c for a, b, c in zip(start, mid, end, strict=True))
        if any(abs(x - box[0]) < wide / 2 + 4 and abs(y - box[1]) < HIGH / 2 + 4 for box in boxes):
            return True
    return False


def _rim(box: tuple[float, float], towards: tuple[float, float], wide: float) -> tuple[float, float]:
    """The point where a line from the middle of a box leaves it."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min(wide / 2 / abs(dx) if dx else 9e9, HIGH / 2 / abs(dy) if dy else 9e9, 1.0)
    return box[0] + dx * scale, box[1] + dy * scale


def _path(bend: str, arrow: Arrow) -> str:
    dashes = {"stroke-dasharray": "5 4"} if arrow.dashed else {}
    return element("path", {"class": "edge", "d": bend, "fill": "none", "stroke": "currentColor", **dashes})


def _tip(x: float, y: float, dx: float, dy: float) -> str:
    length = hypot(dx, dy) or 1
    ux, uy = dx / length, dy / length
    back = [(x - 8 * ux - side * uy, y - 8 * uy + side * ux) for side in (4, -4)]
    corners = f"M {x:.1f} {y:.1f} L {back[0][0]:.1f} {back[0][1]:.1f} L {back[1][0]:.1f} {back[1][1]:.1f} Z"
    return element("path", {"class": "tip", "d": corners, "fill": "currentColor"})


# --- state machines ---------------------------------------------------------------------------------------------------

_COORDINATOR_ROWS = (
    ("EMPTY", "DEAD"),
    ("ONGOING", "PREPARE_EPOCH_FENCE"),
    ("PREPARE_COMMIT", "PREPARE_ABORT"),
    ("COMPLETE_COMMIT", "COMPLETE_ABORT"),
)
_PRODUCER_ROWS = (
    ("UNINITIALIZED",),
    ("INITIALIZING",),
    ("READY",),
    ("IN_TRANSACTION", "PREPARED_TRANSACTION"),
    ("COMMITTING_TRANSACTION", "ABORTING_TRANSACTION"),
    ("ABORTABLE_ERROR", "FATAL_ERROR"),
)


def _coordinator(links: Links) -> str:
    legal = transaction_log.LEGAL_TRANSITIONS
    arrows = [Arrow(a.name, b.name, version > 0) for (a, b), version in legal.items()]
    rows = _completed(_COORDINATOR_ROWS, {name for arrow in arrows for name in (arrow.source, arrow.target)})
    found = [(escape(a.name), escape(b.name), "2" if version else "0, 1, 2") for (a, b), version in legal.items()]
    return "\n\n".join(
        [
            "## The coordinator's transaction",
            "The states of a transactional.id, as the coordinator has them. Dashed arrows are those of transaction "
            "version 2. The table of "
            f"legal transitions is {links.sentence('TransactionCoordinator!LegalTransitions')}; Kafka has it in "
            f"TransactionState.",
            pages.raw(
                drawn(
                    rows,
                    arrows,
                    f"The {len(arrows)} legal transitions between the coordinator's states; the table below lists them",
                )
            ),
            pages.table(("From", "To", "Transaction versions"), found, "Legal transitions of the coordinator"),
        ]
    )


def _producer() -> str:
    legal = sorted(transactional_producer.LEGAL_TRANSITIONS)
    fatal = transactional_producer.FATAL_ERROR
    arrows = [Arrow(a, b) for a, b in legal if b != fatal]
    rows = _completed(_PRODUCER_ROWS, set(transactional_producer.STATES))
    found = [
        (escape(b), escape(", ".join(a for a, after in legal if after == b))) for b in transactional_producer.STATES
    ]
    return "\n\n".join(
        [
            "## The transactional producer of the Java client",
            f"The states of TransactionManager, with the legal transitions. Every state may lead to {fatal}: these "
            f"arrows are left out.",
            pages.raw(
                drawn(
                    rows,
                    arrows,
                    f"The {len(arrows)} legal transitions of the Java producer, except "
                    f"those to {fatal}; the table below "
                    "lists them",
                )
            ),
            pages.table(("State", "May follow on"), found, "Legal transitions of the Java producer"),
        ]
    )


def _completed(rows: Sequence[Sequence[str]], names: set[str]) -> list[list[str]]:
    """The rows with the names that the table has, and one more row for those that have no place yet."""
    found = [[name for name in row if name in names] for row in rows]
    placed = {name for row in found for name in row}
    return [row for row in [*found, sorted(names - placed)] if row]


def _projected(links: Links, model_name: str, project: Any) -> dict[tuple[str, str], set[str]]:
    """The steps of a model's graph between the names that ``project`` gives to states -> the actions that take them."""
    model = links.book.registry.models[model_name]
    machine = reference_of(model)
    constants = model.machine_constants(machine)
    first: Any = machine.initial(constants)
    graph = explore(first, instances(machine, constants), bounds_predicate(model))
    names = [project(state) for state in graph.states]
    found: dict[tuple[str, str], set[str]] = {}
    for source, label, target in zip(graph.sources, graph.labels, graph.targets, strict=True):
        if target != OUTSIDE:
            for one, other in zip(names[source], names[target], strict=True):
                if one != other:
                    found.setdefault((one, other), set()).add(graph.instances[label].action.name)
    return found


def _of_graph(
    links: Links,
    title: str,
    said: str,
    module: str,
    found: Mapping[tuple[str, str], set[str]],
    rows: Sequence[Sequence[str]],
) -> str:
    arrows = [Arrow(a, b) for a, b in sorted(found)]
    known = {name for pair in found for name in pair}
    listed = [
        (escape(a), escape(b), ", ".join(links.sentence(f"{module}!{name}", escape=escape) for name in sorted(names)))
        for (a, b), names in sorted(found.items())
    ]
    picture = drawn(_completed(rows, known), arrows, f"{title}: {len(arrows)} steps; the table below lists them")
    return "\n\n".join([f"## {title}", said, pages.raw(picture), pages.table(("From", "To", "Actions"), listed, title)])


def _partition_names(state: Any) -> list[str]:
    """The state of each partition's newest transaction, as its log has it."""
    found = []
    for log in state.logs.values():
        kinds = [entry.kind for entry in log.entries]
        found.append(
            {"data": "open", "commit": "committed", "abort": "aborted"}.get(kinds[-1], kinds[-1]) if kinds else "empty"
        )
    return found


def _member_names(state: Any) -> list[str]:
    """The state of each member of a KIP-848 group, as its coordinator has it."""
    names = []
    for member in state.membership.members.values():
        if member.epoch == 0:
            names.append("no member")
        elif member.revoking:
            names.append("gives up partitions")
        elif member.epoch < state.membership.epoch:
            names.append("behind the group's epoch")
        else:
            names.append("in the group's epoch")
    return names


def states_page(links: Links) -> Page:
    """The page of the state machines."""
    partition = _of_graph(
        links,
        "A partition's log",
        "What a reader finds at the end of a partition's log, from the state graph of the model "
        f"{links.sentence('RefinesAtomicTransactions')}: the newest entry is a batch of an open transaction, or a "
        f"marker.",
        "Transactions",
        _projected(links, "RefinesAtomicTransactions", _partition_names),
        (("empty",), ("open",), ("committed", "aborted")),
    )
    member = _of_graph(
        links,
        "A member of a KIP-848 group",
        f"A member as the group's coordinator has it, from the state graph of the model "
        f"{pages.link('ConsumerGroup', pages.of_model('ConsumeTransformProduce', 'ConsumerGroup'))}.",
        "ConsumeTransformProduce",
        _projected(links, "ConsumerGroup", _member_names),
        (("no member",), ("behind the group's epoch", "in the group's epoch"), ("gives up partitions",)),
    )
    text = "\n\n".join(
        [
            "The pictures on this page are drawn from the tables and state graphs that are checked.",
            _coordinator(links),
            _producer(),
            partition,
            member,
        ]
    )
    return Page(path="pictures/states", title="State machines", text=text, wide=True)


# --- the tower --------------------------------------------------------------------------------------------------------


def refinements(links: Links) -> Iterator[tuple[str, str, str]]:
    """(module, property, module that it refines), for each property that is a formula of an instantiated module."""
    book = links.book
    for module, name in sorted(book.judged):
        if book.modules[module]:
            continue
        for instance in _instances_in(book.spec.module(module).definitions[name].body):
            home = book.spec.operators(module)[instance][1].body
            if home[0] == "instance":
                yield module, name, home[1]


def _instances_in(tree: Any) -> Iterator[str]:
    """The instances of a formula that consists only of formulas of instances."""
    if tree[0] == "of":
        yield tree[1]
    elif tree[0] == "and" and all(part[0] == "of" for part in tree[1]):
        yield from (part[1] for part in tree[1])


_MOST_BOXES = 4  # in a row


def _levels(names: Sequence[str], arrows: Sequence[Arrow]) -> list[list[str]]:
    """The modules in rows: those refined, those that refine them, the parts of these, and last those without arrows.

    In each row a module stands below those that it has arrows from or to.
    """
    tied = {name for arrow in arrows for name in (arrow.source, arrow.target)}
    solid = [arrow for arrow in arrows if not arrow.dashed]
    above = {name: {arrow.target for arrow in solid if arrow.source == name} for name in tied}
    level = {arrow.target: 0 for arrow in solid if not above[arrow.target]}
    while more := {name: 1 + max(level[each] for each in found) for name, found in above.items()
                   if name not in level and found and found <= level.keys()}:  # fmt: skip
        level |= more
    rest = [name for name in names if name in tied and name not in level]
    depth = dict.fromkeys(rest, 0)
    for _ in rest:
        for arrow in arrows:
            if arrow.source in depth and arrow.target in depth:
                depth[arrow.target] = max(depth[arrow.target], depth[arrow.source] + 1)
    base = 1 + max(level.values(), default=-1)
    level |= {name: base + number for name, number in depth.items()}
    rows: list[list[str]] = []
    place: dict[str, float] = {}
    for number in range(1 + max(level.values(), default=-1)):
        near = {
            name: [place[end] for arrow in arrows if name in (arrow.source, arrow.target)
                   for end in (arrow.source, arrow.target) if end in place]
            for name in names if level.get(name) == number
        }  # fmt: skip
        ordered = sorted(near, key=lambda name: sum(near[name]) / len(near[name]) if near[name] else 0.5)
        count = -(-len(ordered) // _MOST_BOXES)  # rows of about equal length, whose boxes alternate
        for at in range(count):
            row = ordered[at::count]
            rows.append(row)
            place |= {name: (index + 0.5) / len(row) for index, name in enumerate(row)}
    alone = [name for name in names if name not in tied]
    return rows + [alone[at : at + _MOST_BOXES] for at in range(0, len(alone), _MOST_BOXES)]


def tower_page(links: Links) -> Page:
    """The page of the tower: the modules of the spec, what each refines, and what each is built on."""
    book = links.book
    names = [name for name, folder in book.modules.items() if not folder]
    refines = list(refinements(links))
    arrows = {(module, target): Arrow(module, target) for module, _, target in refines if module != target}
    for name in names:
        found = book.spec.module(name)
        for other in (*found.extends, *found.instantiates):
            if other in names and (name, other) not in arrows and other != name:
                arrows[name, other] = Arrow(name, other, dashed=True)
    rows = _levels(names, list(arrows.values()))
    to = {name: pages.address(f"modules/{name}") for name in names}
    solid = sum(not arrow.dashed for arrow in arrows.values())
    label = (
        f"The {len(names)} modules of the spec, each a link: {solid} arrows of refinement, "
        f"{len(arrows) - solid} of use; the tables below list them"
    )
    listed = [
        (
            pages.link(module, to[module]),
            pages.link(name, pages.of_property(module, name)),
            pages.link(target, to[target]),
        )
        for module, name, target in refines
    ]
    used = [
        (pages.link(a.source, to[a.source]), pages.link(a.target, to[a.target])) for a in arrows.values() if a.dashed
    ]
    text = "\n\n".join(
        [
            "At the top is what an application may rely on. A solid arrow is a *refinement*: whatever the lower module "
            "does, seen through a mapping, the upper module allows. A dashed arrow says that a module is built from "
            "another one. Modules without an arrow stand at the bottom. Each box is a link.",
            pages.raw(drawn(rows, arrows.values(), label, to)),
            "## Refinements",
            pages.table(("Module", "Property", "Refines"), listed),
            "## Parts",
            pages.table(("Module", "Is built from"), used),
        ]
    )
    return Page(path="pictures/tower", title="The tower of refinements", text=text, wide=True)
