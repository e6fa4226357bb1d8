"""Small bar plots as SVG, for the report: one horizontal bar a row, with label, value and unit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_eos_checks.svg import element, escaped, picture, text_width, wrapped

MAX_BARS = 40  # of one plot; the last row says how many more there are

LARGEST, SMALLEST = 1e18, 1e-9  # of the values that have a place on a scale, the latter if it is logarithmic

# CSS pixels
WIDTH, ROW, BAR = 440, 38, 12
FONT, VALUE_WIDTH = 12, 110


@dataclass(frozen=True, slots=True)
class Bar:
    """One row."""

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
        unit: of every value, written after it.
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
