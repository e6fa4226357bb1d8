"""Sequence diagrams: messages between lifelines, time running down, as one SVG.

A diagram is drawn from :class:`Step` values. :func:`from_events` makes them from a recorded history,
:func:`from_story` takes them from a counterexample. Colours come from the page's style sheet by class; without
one the picture is drawn in ``currentColor``, so it follows the text around it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import Event
from kafka_eos_checks.drawing.svg import element, escaped, picture, text_width, wrapped

# Beyond these a picture is hard to read. The picture says how much is left out.
MAX_STEPS = 60
FIRST_STEPS = 15  # of those, how many from the beginning; the rest lead up to the violation or the end
MAX_LIFELINES = 12
MAX_STEPS_WITHOUT_FOOT = 20  # a longer picture names its lifelines again at the bottom
MAX_TITLE = 600  # characters of the full text that a pointer resting on a step shows

# The keys of an event's detail that concern the connection rather than the protocol, or that its label has already:
# they are no part of a step's note.
PLUMBING = frozenset({"broker", "connection", "correlation", "delivered"})
IN_LABEL = frozenset({"fault", "repeats", "by_hand"})

# CSS pixels
GUTTER = 34
FONT, SMALL = 12, 11
LINE, SMALL_LINE = 16, 14
PADDING = 8
MIN_GAP, MAX_GAP, PAGE_WIDTH = 128, 270, 1000
LABEL_LINES, NOTE_LINES, HEAD_LINES = 3, 4, 2
THICK = 3


class Role(StrEnum):
    """The role of a lifeline; lifelines are ordered by it, left to right."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    BROKER = "broker"
    PARTITION = "partition"


class Kind(StrEnum):
    """The way a step is drawn."""

    MESSAGE = "message"  # an arrow
    REPLY = "reply"  # a dashed arrow
    REFUSED = "refused"  # a dashed arrow that carries an error
    LOST = "lost"  # an arrow that ends in a cross before it arrives
    EVENT = "event"  # a box on one lifeline
    CRASH = "crash"  # the lifeline ends in a cross …
    RESTART = "restart"  # … and goes on


# Requests to a coordinator that name a partition, or a group.
ABOUT_A_PARTITION = frozenset({"AddPartitionsToTxn", "OffsetCommit", "TxnOffsetCommit"})
ABOUT_A_GROUP = frozenset({"AddOffsetsToTxn"})
# What happens at a coordinator without anybody asking, or to it.
BY_ITSELF = frozenset({"TimeOut", "ExpireSession", "Failover"})
MARKER = "WriteTxnMarkers"
NEVER_ARRIVES = frozenset({"close", "overtake"})  # faults that keep a request from the broker, or for a while
# The actions of a history after which a process is down, or up again.
FAULTS = {"Crash": Kind.CRASH, "Restart": Kind.RESTART}


@dataclass(frozen=True, slots=True)
class Lifeline:
    """A column: a client, a coordinator, a broker or a partition."""

    name: str
    role: Role = Role.CLIENT


@dataclass(frozen=True, slots=True)
class Step:
    """A row: a message between two lifelines, or an event on one.

    Attributes:
        source: name of the lifeline that acts.
        target: name of the lifeline that is acted on; "" or ``source`` for an event in one place.
        label: its name, e.g. the action with its arguments.
        kind: how it is drawn.
        note: the small print below, e.g. the variables that changed.
        hit: whether a fault has hit it, or it is the copy of a request; drawn as a thick line.
        number: its number at the left; None for its place among the steps, from 1.
    """

    source: str
    target: str = ""
    label: str = ""
    kind: Kind = Kind.MESSAGE
    note: str = ""
    hit: bool = False
    number: str | None = None

    def in_words(self) -> str:
        """The step as a line: source, target (``-x`` before it if the message is lost), label, and the small print."""
        arrow = "-x" if self.kind is Kind.LOST else "->"
        where = self.source if self.target in {"", self.source} else f"{self.source} {arrow} {self.target}"
        return f"{where}: {self.label}" + (f"  ({self.note})" if self.note else "")


@dataclass(frozen=True, slots=True)
class Violation:
    """The moment that the diagram is about: after step ``step`` (from 0), ``text`` holds."""

    step: int
    text: str


@dataclass(frozen=True, slots=True)
class _Page:
    """The layout: the right end of the steps' numbers, the x of each lifeline and the distance between two."""

    numbers: float

    x: Mapping[str, float]
    gap: float
    width: float


class _Downtime:
    """The spans of y in which the processes of lifelines are down."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._ended: list[tuple[str, float, float]] = []

    def follow(self, steps: Iterable[Step], y: float) -> None:
        """Note the crashes and restarts among steps that are drawn, or left out, at ``y``."""
        for step in steps:
            if step.kind is Kind.CRASH:
                self._since.setdefault(step.source, y)
            elif step.kind is Kind.RESTART and step.source in self._since:
                self._ended.append((step.source, self._since.pop(step.source), y))

    def spans(self, bottom: float) -> list[tuple[str, float, float]]:
        """Lifeline, from y, to y; what is still down stays so to the bottom."""
        return [*self._ended, *((name, since, bottom) for name, since in self._since.items())]


def sequence_diagram(
    lifelines: Sequence[Lifeline],
    steps: Sequence[Step],
    violation: Violation | None = None,
    left_out: Mapping[int, int] | None = None,
) -> str:
    """Draw the steps between the lifelines, in the order given.

    Args:
        lifelines: the columns, from left to right.
        steps: the rows.
        violation: the moment that is marked.
        left_out: index of a step -> how many steps the caller left out before it; the number of steps -> at the end.

    Returns:
        One SVG element, well-formed XML, with every name and label escaped.

    Raises:
        ValueError: when a step names a lifeline that is not given, or ``violation`` a step that is not there.
    """
    names = [lifeline.name for lifeline in lifelines]
    if unknown := {name for step in steps for name in (step.source, step.target) if name} - set(names):
        raise ValueError(f"no lifeline {', '.join(sorted(unknown))} among {', '.join(names)}")
    if violation is not None and not 0 <= violation.step < len(steps):
        raise ValueError(f"the violation is after step {violation.step}, but there are {len(steps)} steps")
    shown, moved = _folded(lifelines, steps)
    kept = _kept(len(steps), len(steps) - 1 if violation is None else violation.step)
    page = _page(shown, [moved[index] for index in kept])
    heads, top = _heads(page, shown, 1)
    rows: list[str] = []
    downtime = _Downtime()
    y, drawn_up_to = top + PADDING, 0
    gaps = left_out or {}
    for index in [*kept, len(steps)]:
        missing = index - drawn_up_to + sum(count for before, count in gaps.items() if drawn_up_to <= before <= index)
        if missing:
            downtime.follow(moved[drawn_up_to:index], y)
            drawn, y = _left_out(page, y, missing)
            rows.append(drawn)
        if index == len(steps):
            break
        drawn, height, anchor = _row(page, y, index, moved[index])
        rows.append(drawn)
        downtime.follow([moved[index]], y + anchor)
        y += height
        if violation is not None and index == violation.step:
            drawn, y = _violated(page, y, violation.text)
            rows.append(drawn)
        drawn_up_to = index + 1
    bottom = y + PADDING
    lines, end = _lines(page, top, bottom, downtime.spans(bottom)), bottom
    if len(kept) > MAX_STEPS_WITHOUT_FOOT:
        feet, end = _heads(page, shown, bottom)
        rows.append(feet)
    label = f"Sequence diagram of {len(steps)} steps between {', '.join(names[:MAX_LIFELINES])}"
    return picture(page.width, end + PADDING, label, lines, heads, *rows)


def from_story(
    steps: Iterable[Step],
    violation: Violation | None = None,
    roles: Mapping[str, Role] | None = None,
    left_out: Mapping[int, int] | None = None,
) -> str:
    """Draw a counterexample: lifelines are whatever its steps name, by role and then by first appearance."""
    given = list(steps)
    known = roles or {}
    names = dict.fromkeys(name for step in given for name in (step.source, step.target) if name)
    lifelines = _ordered(Lifeline(name, known.get(name, Role.CLIENT)) for name in names)
    return sequence_diagram(lifelines, given, violation, left_out)


def from_events(
    events: Iterable[Event], violation: Violation | None = None, left_out: Mapping[int, int] | None = None
) -> str:
    """Draw a history, one step an event, so that ``violation.step`` counts events; see :func:`steps_of`."""
    steps, roles = steps_of(events)
    return from_story(steps, violation, roles, left_out)


def steps_of(events: Iterable[Event]) -> tuple[list[Step], dict[str, Role]]:
    """A history as steps, one an event, and the roles of their lifelines.

    An ``invoke`` is an arrow from its process to the partition, group, coordinator or broker it names; ``ok`` and
    ``fail`` are the answers. ``info`` and whatever says ``"delivered": false`` in its detail is an answer that got
    lost, and so is a request that an injected fault keeps away. Without an invoke before it, ``ok`` is the arrow
    itself. A marker comes from the coordinator of the transactional id. A step has the event's number in its run.
    """
    roles: dict[str, Role] = {}
    waiting: Counter[tuple[str, str, str]] = Counter()
    steps = []
    for event in events:
        target, role = _target(event)
        source = _source(event)
        roles.setdefault(source, _role_of(event, source))
        if not target and event.phase != "invoke":
            target = next(
                (t for (process, action, t) in +waiting if (process, action) == (event.process, event.action)), ""
            )
        elif target:
            roles.setdefault(target, role)
        steps.append(_step_of(event, source, target, waiting))
    return steps, roles


def _source(event: Event) -> str:
    """The lifeline that acts."""
    if event.action in BY_ITSELF or (event.action == MARKER and event.transactional_id is not None):
        return _coordinator(event) or event.process
    return event.process


def _role_of(event: Event, source: str) -> Role:
    if source != event.process or source == "coordinator":
        return Role.COORDINATOR
    if event.topic is not None and source == _partition(event):
        return Role.PARTITION
    return Role.BROKER if source.lower().startswith(("broker", "cluster", "leader")) else Role.CLIENT


def _coordinator(event: Event) -> str:
    """The lifeline of a coordinator, "" for none."""
    if event.group is not None and event.action not in ABOUT_A_GROUP:
        return f"group {event.group}"
    return f"coordinator of {event.transactional_id}" if event.transactional_id is not None else ""


def _target(event: Event) -> tuple[str, Role]:
    """The lifeline that an event acts on, "" for none."""
    if event.action in BY_ITSELF:
        return "", Role.COORDINATOR
    at_a_group = event.group is not None and event.partition is None
    if event.topic is not None and event.action not in ABOUT_A_PARTITION and not at_a_group:
        return _partition(event), Role.PARTITION
    coordinator = _coordinator(event)
    return (coordinator, Role.COORDINATOR) if coordinator else (str(event.detail.get("broker", "")), Role.BROKER)


def _partition(event: Event) -> str:
    return f"{event.topic}-{'?' if event.partition is None else event.partition}"


def _step_of(event: Event, source: str, target: str, waiting: Counter[tuple[str, str, str]]) -> Step:
    """The step that shows one event; ``waiting`` counts the invocations without an answer."""
    step = _plain_step(event, source, target, waiting)
    return replace(
        step, hit=bool(IN_LABEL & event.detail.keys()), number="" if event.order is None else str(event.order)
    )


def _plain_step(event: Event, source: str, target: str, waiting: Counter[tuple[str, str, str]]) -> Step:
    label, note = _label(event), _note(event)
    if target in {"", source} or event.action in FAULTS:
        begins = event.phase == "invoke"
        kind = Kind.EVENT if begins else FAULTS.get(event.action, Kind.EVENT)
        return Step(source, label=f"{label} …" if begins else label, kind=kind, note=note)
    key = (event.process, event.action, target)
    if event.phase == "invoke":
        waiting[key] += 1
        lost = event.detail.get("fault") in NEVER_ARRIVES
        return Step(source, target, label, Kind.LOST if lost else Kind.MESSAGE, note)
    answers = waiting[key] > 0
    waiting[key] -= answers
    if not answers and event.phase == "ok":
        return Step(source, target, label, Kind.MESSAGE, note)
    lost = event.phase == "info" or event.detail.get("delivered") is False
    kind = Kind.LOST if lost else Kind.REPLY if event.phase == "ok" else Kind.REFUSED
    return Step(target, event.process, label, kind, note)


def _label(event: Event) -> str:
    """The action, what was done to it, and how it ended."""
    label = _named(event)
    if event.error:
        known = event.error in ErrorCode.__members__.values()
        return f"{label}: {ErrorCode(event.error).name if known else f'error {event.error}'}"
    if event.phase in {"invoke", "ok"}:
        return label if event.offset is None or event.phase == "invoke" else f"{label} @ {event.offset}"
    return f"{label}: {'failed' if event.phase == 'fail' else 'outcome unknown'}"


def _named(event: Event) -> str:
    """The action: with its decision if it has one, and with what was done to the request if something was."""
    name, detail = event.action, event.detail
    if name in {MARKER, "EndTxn"} and isinstance(detail.get("committed"), bool):
        decision = "commit" if detail["committed"] else "abort"
        name = f"marker: {decision}" if name == MARKER else f"EndTxn ({decision})"
    if "by_hand" in detail:
        name += ", by hand"
    if detail.get("repeats", False) is not False:
        copied = detail["repeats"]
        name = f"copy of {name}" if copied is True else f"copy of request {copied}: {name}"
    return f"{name} [injected: {detail['fault']}]" if "fault" in detail else name


def _note(event: Event) -> str:
    """The fields that identify the batch, the member or the transaction."""
    parts = [_partition(event)] if event.topic is not None and event.action in ABOUT_A_PARTITION else []
    parts += [f"group {event.group}"] if event.group is not None and event.action in ABOUT_A_GROUP else []
    parts += [f"now at {event.process}"] if event.action == "Failover" else []
    if event.producer_id is not None and event.producer_id >= 0:
        epoch = "" if event.producer_epoch is None else f" epoch {event.producer_epoch}"
        parts.append(f"PID {event.producer_id}{epoch}")
    if event.base_sequence is not None and event.base_sequence >= 0:
        parts.append(f"sequence {event.base_sequence}")
    if event.record_count is not None and event.record_count != 1:
        parts.append(f"{event.record_count} records")
    if event.generation is not None:
        parts.append(f"generation {event.generation}")
    hidden = PLUMBING | IN_LABEL | ({"committed"} if event.action in {MARKER, "EndTxn"} else set())
    parts += [f"{name}={value}" for name, value in event.detail.items() if name not in hidden]
    return ", ".join(parts)


def _ordered(lifelines: Iterable[Lifeline]) -> list[Lifeline]:
    """The lifelines by role, and within a role in the given order."""
    return sorted(lifelines, key=lambda lifeline: list(Role).index(lifeline.role))


def _folded(lifelines: Sequence[Lifeline], steps: Sequence[Step]) -> tuple[list[Lifeline], list[Step]]:
    """Lifelines and steps with the least busy lifelines folded into one when there are too many."""
    if len(lifelines) <= MAX_LIFELINES:
        return list(lifelines), list(steps)
    busy = Counter(name for step in steps for name in {step.source, step.target} if name)
    ranked = sorted(lifelines, key=lambda lifeline: -busy[lifeline.name])
    kept = {lifeline.name for lifeline in ranked[: MAX_LIFELINES - 1]}
    rest = f"{len(lifelines) - len(kept)} others, folded"
    moved = [
        replace(
            step,
            source=step.source if step.source in kept else rest,
            target=step.target if step.target in kept or not step.target else rest,
        )
        for step in steps
    ]
    return [*(lifeline for lifeline in lifelines if lifeline.name in kept), Lifeline(rest)], moved


def _kept(count: int, focus: int) -> list[int]:
    """The steps to draw: all, or the first few and those that lead up to ``focus``."""
    if count <= MAX_STEPS:
        return list(range(count))
    end = min(count, max(focus + 1, MAX_STEPS))
    return [*range(FIRST_STEPS), *range(end - (MAX_STEPS - FIRST_STEPS), end)]


def _page(lifelines: Sequence[Lifeline], steps: Sequence[Step]) -> _Page:
    """Spread the lifelines so that labels fit on a line where the page is wide enough, and wrap where it is not."""
    column = {lifeline.name: index for index, lifeline in enumerate(lifelines)}
    wanted: list[float] = [MIN_GAP]
    for step in steps:
        span = max(1, abs(column[step.source] - column[step.target or step.source]))
        text = max(text_width(step.label, FONT), text_width(step.note, SMALL) / 2)
        wanted.append((text + 4 * PADDING) / span)
    wanted += [text_width(lifeline.name, FONT) + 4 * PADDING for lifeline in lifelines]
    gap = max(MIN_GAP, min(MAX_GAP, PAGE_WIDTH / max(1, len(lifelines)), max(wanted)))
    left, right = (_overhang(lifelines[end], steps, gap) for end in (0, -1))
    numbers = max((text_width(step.number or "", SMALL) for step in steps), default=0.0)
    gutter = max(GUTTER, numbers + 2 * PADDING)
    x = {name: gutter + left + gap * index for name, index in column.items()}
    return _Page(gutter - PADDING, x, gap, gutter + left + gap * (len(lifelines) - 1) + right)


def _overhang(lifeline: Lifeline, steps: Sequence[Step], gap: float) -> float:
    """The width that boxes on a lifeline may take to either side of it."""
    here = [step for step in steps if step.source == lifeline.name and not _is_arrow(step)]
    texts = [text_width(lifeline.name, FONT)]
    texts += [max(text_width(step.label or step.kind, FONT), text_width(step.note, SMALL)) for step in here]
    return min(max(texts), gap - 4 * PADDING) / 2 + 2 * PADDING


def _is_arrow(step: Step) -> bool:
    between = step.target not in {"", step.source}
    return between and step.kind in {Kind.MESSAGE, Kind.REPLY, Kind.REFUSED, Kind.LOST}


def _text(x: float, y: float, lines: Sequence[str], style: str, size: int = FONT, anchor: str = "middle") -> str:
    """Lines of text; ``y`` is the baseline of the first."""
    height = LINE if size == FONT else SMALL_LINE
    attributes: dict[str, str | float] = {"class": style, "font-size": size, "text-anchor": anchor}
    colour = {"fill": "currentColor"}
    return "".join(
        element("text", {**attributes, **colour, "x": x, "y": y + height * index}, escaped(line))
        for index, line in enumerate(lines)
    )


def _heads(page: _Page, lifelines: Sequence[Lifeline], y: float) -> tuple[str, float]:
    """The boxes with the names, and the y below them."""
    names = [wrapped(lifeline.name, page.gap - 3 * PADDING, FONT, HEAD_LINES) for lifeline in lifelines]
    height = 2 * PADDING + LINE * max((len(lines) for lines in names), default=1)
    drawn = []
    for lifeline, lines in zip(lifelines, names, strict=True):
        x = page.x[lifeline.name]
        width = max(text_width(line, FONT) for line in lines) + 3 * PADDING
        box: dict[str, str | float] = {"class": f"head {lifeline.role}", "fill": "none", "stroke": "currentColor"}
        place = {"x": x - width / 2, "y": y, "width": width, "height": height}
        drawn.append(
            element(
                "g",
                {},
                element("title", {}, escaped(lifeline.name[:MAX_TITLE])),
                element("rect", {**box, **place, "rx": 12 if lifeline.role is Role.CLIENT else 3}),
                _text(x, y + height / 2 + 4 - LINE * (len(lines) - 1) / 2, lines, "name"),
            )
        )
    return "".join(drawn), y + height


def _lines(page: _Page, top: float, bottom: float, crashed: Sequence[tuple[str, float, float]]) -> str:
    """The lifelines, dotted while their process is down."""
    drawn = []
    for name, x in page.x.items():
        y = top
        for since, until in [(since, until) for crashed_name, since, until in crashed if crashed_name == name]:
            drawn += [_line(x, y, x, since, "lifeline"), _line(x, since, x, until, "lifeline down", "2 6")]
            y = until
        if y < bottom:
            drawn.append(_line(x, y, x, bottom, "lifeline"))
    return "".join(drawn)


def _line(x1: float, y1: float, x2: float, y2: float, style: str, dashes: str = "", width: float = 1) -> str:
    attributes: dict[str, str | float] = {"class": style, "stroke": "currentColor"}
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    more: dict[str, str | float] = {"stroke-dasharray": dashes} if dashes else {}
    more |= {"stroke-width": width} if width > 1 else {}
    return element("line", {**attributes, **ends, **more})


def _cross(x: float, y: float, style: str, size: float = 5) -> str:
    """A cross around a point."""
    across = f"M {x - size:.1f} {y - size:.1f} L {x + size:.1f} {y + size:.1f}"
    back = f"M {x - size:.1f} {y + size:.1f} L {x + size:.1f} {y - size:.1f}"
    return element("path", {"class": style, "d": f"{across} {back}", "stroke": "currentColor", "stroke-width": 2})


def _row(page: _Page, y: float, index: int, step: Step) -> tuple[str, float, float]:
    """A step: its drawing, its height, and how far down a crash or a restart takes place."""
    drawn, height, anchor = _arrow(page, y, step) if _is_arrow(step) else _box(page, y, step)
    said = str(index + 1) if step.number is None else step.number
    title = element("title", {}, escaped(f"{said}. {step.label}\n{step.note}".removeprefix(". ")[:MAX_TITLE]))
    number = _text(page.numbers, y + anchor + 4, [said], "number", SMALL, "end") if said else ""
    return element("g", {"class": f"step {step.kind}"}, title, number, drawn), height, anchor


def _arrow(page: _Page, y: float, step: Step) -> tuple[str, float, float]:
    """A message: label above, arrow, note below."""
    source, target = page.x[step.source], page.x[step.target]
    width = abs(target - source) - 3 * PADDING
    middle, forward = (source + target) / 2, 1 if target > source else -1
    label = wrapped(step.label, width, FONT, LABEL_LINES)
    note = wrapped(step.note, width, SMALL, NOTE_LINES) if step.note else []
    at = PADDING + LINE * len(label) + 2
    reach = target - forward * (page.gap * 0.4 if step.kind is Kind.LOST else 2)
    dashes = "5 4" if step.kind in {Kind.REPLY, Kind.REFUSED} else ""
    if step.kind is Kind.LOST:
        end = _cross(reach, y + at, "cross")
    else:
        tip = f"M {reach - 9 * forward:.1f} {y + at - 4.5:.1f} L {reach:.1f} {y + at:.1f}"
        end = element(
            "path",
            {"class": "tip", "fill": "currentColor", "d": f"{tip} L {reach - 9 * forward:.1f} {y + at + 4.5:.1f} Z"},
        )
    drawn = (
        _mask(middle, y + PADDING, label, FONT),
        _mask(middle, y + at + 4, note, SMALL),
        _line(source, y + at, reach, y + at, "arrow", dashes, THICK if step.hit else 1),
        end,
        _text(middle, y + PADDING + FONT - 1, label, "label"),
        _text(middle, y + at + SMALL + 4, note, "note", SMALL),
    )
    return "".join(drawn), at + PADDING + SMALL_LINE * len(note) + 2, at


def _mask(middle: float, y: float, lines: Sequence[str], size: int) -> str:
    """A patch of the page's colour behind text, so that no lifeline runs through it."""
    if not lines:
        return ""
    width = max(text_width(line, size) for line in lines) + 4
    height = len(lines) * (LINE if size == FONT else SMALL_LINE) - 2
    place = {"x": middle - width / 2, "y": y, "width": width, "height": height}
    return element("rect", {"class": "mask", "fill": "none", **place})


def _box(page: _Page, y: float, step: Step) -> tuple[str, float, float]:
    """Something that happens in one place: a box on its lifeline, with a cross above it for a crash."""
    x, width = page.x[step.source], page.gap - 4 * PADDING
    label = wrapped(step.label or step.kind, width, FONT, LABEL_LINES)
    note = wrapped(step.note, width, SMALL, NOTE_LINES) if step.note else []
    widest = max([text_width(line, FONT) for line in label] + [text_width(line, SMALL) for line in note])
    above = 18 if step.kind is Kind.CRASH else PADDING
    height = 6 + LINE * len(label) + SMALL_LINE * len(note) + 4
    box = {"x": x - widest / 2 - PADDING, "y": y + above, "width": widest + 2 * PADDING, "height": height, "rx": 3}
    drawn = [
        element("rect", {"class": "box", "fill": "none", "stroke": "currentColor", **box}),
        _text(x, y + above + 6 + FONT - 1, label, "label"),
        _text(x, y + above + 6 + LINE * len(label) + SMALL - 2, note, "note", SMALL),
    ]
    if step.kind is Kind.CRASH:
        drawn.append(_cross(x, y + 10, "cross", 6))
    return "".join(drawn), above + height + PADDING, 10 if step.kind is Kind.CRASH else above + height / 2


def _violated(page: _Page, y: float, text: str) -> tuple[str, float]:
    """The band that marks the violated moment, over the whole width; and the y below it."""
    lines = wrapped(text, page.width - 6 * PADDING, FONT, LABEL_LINES)
    height = 2 * PADDING + LINE * len(lines) - 4
    place: dict[str, str | float] = {"x": 1, "y": y + 4, "width": page.width - 2, "height": height, "rx": 3}
    band = element("rect", {"class": "band", "fill": "none", "stroke": "currentColor", **place})
    cross = _cross(2 * PADDING, y + 4 + height / 2, "cross", 4)
    words = _text(4 * PADDING, y + 4 + PADDING + FONT - 2, lines, "label", FONT, "start")
    return element("g", {"class": "violation"}, band, cross, words), y + height + PADDING + 4


def _left_out(page: _Page, y: float, count: int) -> tuple[str, float]:
    """The note that says how many steps are not drawn here; and the y below it."""
    words = f"… {count:,} step{'s' if count > 1 else ''} left out …"
    width = text_width(words, SMALL) + 2 * PADDING
    place = {"x": page.width / 2 - width / 2, "y": y + 4, "width": width, "height": LINE + 4}
    mask = element("rect", {"class": "mask", "fill": "none", **place})
    return element("g", {"class": "left-out"}, mask, _text(page.width / 2, y + 18, [words], "note", SMALL)), y + 30
