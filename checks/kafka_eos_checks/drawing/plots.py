"""Small bar plots as SVG, for the report: one horizontal bar a row, with label, value and unit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_eos_checks.drawing.svg import element, escaped, picture, text_width, wrapped

MAX_BARS = 40  # of one plot; the last row says how many more there are

LARGEST, SMALLEST = 1e18, 1e-9  # of the values that have a place on a scale, the latter if it is logarithmic

# CSS pixels
WIDTH, ROW, BAR = 440, 38, 12
FONT, VALUE_WIDTH = 12, 110


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a bar plot."""

    label: str
    value: float


def number(value: float) -> str:
    """A number for people: three significant digits, thousands separated, counts in full."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def drawable(value: float, log: bool) -> bool:
    """Whether a value has a place on a scale."""
    return (SMALLEST if log else 0) <= value <= LARGEST


def bar_plot(bars: Sequence[Bar], *, unit: str, log: bool = False, reference: float | None = None) -> str:
    """Draw the bars over one scale.

    Args:
        bars: the rows, drawn in the order given, at most ``MAX_BARS`` of them.
        unit: the unit of every value, written after it.
        log: whether the scale is logarithmic; it then starts at the power of ten below the smallest value.
        reference: a value to mark with a line, e.g. 1 for a ratio.

    Raises:
        ValueError: when there is no bar, or one has no place on the scale (:func:`drawable`).
    """
    shown = bars[:MAX_BARS]
    wrong = [bar for bar in shown if not drawable(bar.value, log)]
    if wrong or not shown:
        raise ValueError(f"no place on the scale for {wrong[0]}" if wrong else "a plot needs at least one bar")
    values = [bar.value for bar in shown] + ([reference] if reference is not None else [])
    low = 10.0 ** math.floor(math.log10(min(values) * 0.999)) if log else 0.0
    high = max(values)

    def x(value: float) -> float:
        """Pixels from the left of the scale."""
        part = math.log(value / low) / math.log(high / low) if log else value / (high or 1)
        return part * (WIDTH - VALUE_WIDTH)

    at = None if reference is None else x(reference)
    rows = [_row(bar, index, x(bar.value), unit, at) for index, bar in enumerate(shown)]
    height = ROW * len(shown) + 4
    if at is not None:
        mark: dict[str, str | float] = {"class": "reference", "stroke": "currentColor", "stroke-dasharray": "2 3"}
        rows += [
            element("line", {**mark, "x1": at, "y1": ROW * index + 18, "x2": at, "y2": ROW * index + 22 + BAR})
            for index in range(len(shown))
        ]
    notes = [f"log scale from {number(low)}"] if log else []
    notes += [f"dotted line: {number(reference)}"] if reference is not None else []
    notes += [f"{len(bars) - MAX_BARS} more rows are left out"] if len(bars) > MAX_BARS else []
    if notes:
        height += 22
        rows.append(_text(0, height - 6, "; ".join(notes), "note"))
    return picture(WIDTH, height, f"Bar plot of {len(bars)} values in {unit or 'no unit'}", *rows)


def _row(bar: Bar, index: int, length: float, unit: str, reference: float | None) -> str:
    """The label, and below it the bar with its value, which makes room for the reference line."""
    top, value = ROW * index, f"{number(bar.value)} {unit}".strip()
    crossed = reference is not None and length < reference < length + 12 + text_width(value, FONT)
    label = wrapped(bar.label, WIDTH, FONT, 1)[0]
    place = {"x": 0, "y": top + 20, "width": max(1.0, length), "height": BAR, "rx": 2}
    return element(
        "g",
        {"class": "row"},
        element("title", {}, escaped(f"{bar.label}: {number(bar.value)} {unit}")),
        _text(0, top + 14, label, "name"),
        element("rect", {"class": "bar", "fill": "currentColor", "fill-opacity": 0.55, **place}),
        _text((reference if reference is not None and crossed else length) + 9, top + 30, value, "value"),
    )


def _text(x: float, y: float, words: str, style: str) -> str:
    attributes: dict[str, str | float] = {"class": style, "font-size": FONT, "fill": "currentColor"}
    return element("text", {**attributes, "x": x, "y": y}, escaped(words))


# CSS pixels of a curve plot: the space left of its axes, below them, and right of them for the names of the curves
LEFT, BELOW, RIGHT = 64, 44, 150
CURVE_HEIGHT = 230
DASHES = ("", "7 3", "2 3", "9 3 2 3", "1 5")  # tell the curves apart, without colour
MAX_CURVES = len(DASHES)


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a curve, with the interval in which it is believed to be."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A name and its points, from left to right."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        """The position of a value, in pixels."""
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers: powers of ten, or up to six steps."""
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        step = 10.0 ** math.floor(math.log10(self.high - self.low))
        step = next(step * many for many in (0.2, 0.5, 1, 2, 5) if (self.high - self.low) / (step * many) <= 6)
        return [step * count for count in range(round(self.low / step), math.floor(self.high / step + 1e-9) + 1)]


def _scale(values: Sequence[float], start: float, end: float, *, log: bool) -> _Scale:
    if log:
        low, high = 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values)))
        return _Scale(low, high if high > low else 10 * low, start, end, log)
    return _Scale(0.0, max(values) * 1.05 or 1.0, start, end, log)


def curve_plot(
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    log_y: bool = False,
    band: tuple[float, float] | None = None,
) -> str:
    """Draw curves over a logarithmic x axis, each point with its interval.

    Args:
        curves: at most ``MAX_CURVES``.
        x_label: what x is, with its unit.
        y_label: what y is, with its unit.
        log_y: whether the y axis is logarithmic too; else it begins at 0.
        band: a range of y to shade, as one that is claimed.

    Raises:
        ValueError: when there is no curve, too many, or a value without a place on a scale (:func:`drawable`).
    """
    points = [point for curve in curves for point in curve.points]
    if not points or len(curves) > MAX_CURVES:
        raise ValueError(f"from 1 to {MAX_CURVES} curves with points, not {len(curves)}")
    ys = [value for point in points for value in (point.y, point.low, point.high)] + list(band or ())
    if not (all(drawable(p.x, log=True) for p in points) and all(drawable(value, log_y) for value in ys)):
        raise ValueError("a value has no place on its scale")
    across = _scale([point.x for point in points], LEFT, WIDTH + LEFT, log=True)
    up = _scale(ys, CURVE_HEIGHT, 10, log=log_y)
    parts = []
    if band is not None:
        low, high = band
        place = {"x": LEFT, "y": up(high), "width": WIDTH, "height": up(low) - up(high)}
        parts.append(element("rect", {"class": "band", "fill": "currentColor", "fill-opacity": 0.12, **place}))
    parts += _axes(across, up, x_label, y_label)
    for curve, dash in zip(curves, DASHES, strict=False):
        parts.append(_curve(curve, dash, across, up))
    parts += _names(curves, up)
    label = f"{y_label} over {x_label}: {', '.join(curve.name for curve in curves)}"
    return picture(LEFT + WIDTH + RIGHT, CURVE_HEIGHT + BELOW, label, *parts)


def _axes(across: _Scale, up: _Scale, x_label: str, y_label: str) -> list[str]:
    thin: dict[str, str | float] = {"class": "axis", "stroke": "currentColor", "stroke-width": 0.5}
    bottom = element("line", {**thin, "x1": LEFT, "y1": CURVE_HEIGHT, "x2": LEFT + WIDTH, "y2": CURVE_HEIGHT})
    side = element("line", {**thin, "x1": LEFT, "y1": 10, "x2": LEFT, "y2": CURVE_HEIGHT})
    texts = [_text(across(tick) - 8, CURVE_HEIGHT + 16, number(tick), "tick") for tick in across.ticks()]
    texts += [
        _text(LEFT - 8 - text_width(number(tick), FONT), up(tick) + 4, number(tick), "tick") for tick in up.ticks()
    ]
    return [bottom, side, *texts, _text(LEFT, CURVE_HEIGHT + 36, f"{y_label}, over {x_label}", "note")]


def _curve(curve: Curve, dash: str, across: _Scale, up: _Scale) -> str:
    """The line, a dot a point, and a bar from the low to the high end of its interval."""
    steps = [f"{across(point.x):.1f} {up(point.y):.1f}" for point in curve.points]
    line: dict[str, str | float] = {"class": "curve", "d": "M " + " L ".join(steps), "fill": "none"}
    line |= _stroke(dash)
    marks = []
    for point in curve.points:
        x = across(point.x)
        ends = {"x1": x, "y1": up(point.low), "x2": x, "y2": up(point.high)}
        said = f"{curve.name}, {number(point.x)}: {number(point.y)} ({number(point.low)} to {number(point.high)})"
        marks.append(element("line", {"class": "interval", "stroke": "currentColor", "stroke-width": 1, **ends}))
        dot: dict[str, str | float] = {"cx": x, "cy": up(point.y), "r": 2.5, "fill": "currentColor"}
        marks.append(element("circle", dot, element("title", {}, escaped(said))))
    return element("g", {"class": "series"}, element("path", line), *marks)


def _stroke(dash: str) -> dict[str, str | float]:
    stroke: dict[str, str | float] = {"stroke": "currentColor", "stroke-width": 1.5}
    return stroke | ({"stroke-dasharray": dash} if dash else {})


def _names(curves: Sequence[Curve], up: _Scale) -> list[str]:
    """Each curve's name with a sample of its line, right of the plot, from the highest end to the lowest."""
    texts = []
    at = 0.0
    order = sorted(range(len(curves)), key=lambda index: up(curves[index].points[-1].y))
    for index in order:
        at = max(at + 30, up(curves[index].points[-1].y) - 8) if at else max(14.0, up(curves[index].points[-1].y) - 8)
        start = LEFT + WIDTH + 10
        sample: dict[str, str | float] = {"x1": start, "y1": at - 4, "x2": start + 28, "y2": at - 4}
        texts.append(element("line", sample | _stroke(DASHES[index])))
        texts += [
            _text(start, at + 12 + 14 * line, words, "name")
            for line, words in enumerate(wrapped(curves[index].name, RIGHT - 14, FONT, 1))
        ]
    return texts
