"""Small bar plots as SVG, for the report: one horizontal bar a row, with label, value and unit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_eos_checks.svg import element, escaped, picture, wrapped

MAX_BARS = 40  # of one plot; the last row says how many more there are

# CSS pixels
WIDTH, ROW, BAR = 900, 26, 14
FONT, LABEL_WIDTH, VALUE_WIDTH = 12, 300, 120


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: ``value`` is finite and not negative (above 0 on a log scale)."""

    label: str
    value: float


def number(value: float) -> str:
    """A number for people: three significant digits, thousands separated, counts in full."""
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def bar_plot(bars: Sequence[Bar], *, unit: str, log: bool = False, reference: float | None = None) -> str:
    """Draw the bars over one scale.

    Args:
        bars: the rows, drawn in the order given, at most ``MAX_BARS`` of them.
        unit: of every value, written after it.
        log: whether the scale is logarithmic; it then starts at the power of ten below the smallest value.
        reference: a value to mark with a line, e.g. 1 for a ratio.

    Raises:
        ValueError: when there is no bar, or one has no place on the scale.
    """
    shown = bars[:MAX_BARS]
    wrong = [bar for bar in shown if not math.isfinite(bar.value) or bar.value < 0 or (log and bar.value == 0)]
    if wrong or not shown:
        raise ValueError(f"no place on the scale for {wrong[0]}" if wrong else "a plot needs at least one bar")
    values = [bar.value for bar in shown] + ([reference] if reference is not None else [])
    low = 10.0 ** math.floor(math.log10(min(values) * 0.999)) if log else 0.0
    high = max(values)

    def x(value: float) -> float:
        """Pixels from the left of the scale."""
        part = math.log(value / low) / math.log(high / low) if log else value / (high or 1)
        return part * (WIDTH - LABEL_WIDTH - VALUE_WIDTH)

    rows = [_row(bar, index, x(bar.value), unit) for index, bar in enumerate(shown)]
    height = ROW * len(shown) + 4
    if reference is not None:
        mark: dict[str, str | float] = {"class": "reference", "stroke": "currentColor", "stroke-dasharray": "2 3"}
        at = LABEL_WIDTH + x(reference)
        rows.insert(0, element("line", {**mark, "x1": at, "y1": 0, "x2": at, "y2": height}))
    notes = [f"log scale from {number(low)}"] if log else []
    notes += [f"dotted line: {number(reference)} {unit}"] if reference is not None else []
    notes += [f"{len(bars) - MAX_BARS} more rows are left out"] if len(bars) > MAX_BARS else []
    if notes:
        height += ROW - 6
        rows.append(_text(LABEL_WIDTH, height - 6, "; ".join(notes), "note", "start"))
    return picture(WIDTH, height, f"Bar plot of {len(bars)} values in {unit or 'no unit'}", *rows)


def _row(bar: Bar, index: int, length: float, unit: str) -> str:
    top = ROW * index
    label = wrapped(bar.label, LABEL_WIDTH - 12, FONT, 1)[0]
    place = {"x": LABEL_WIDTH, "y": top + (ROW - BAR) / 2, "width": max(1.0, length), "height": BAR, "rx": 2}
    return element(
        "g",
        {"class": "row"},
        element("title", {}, escaped(f"{bar.label}: {number(bar.value)} {unit}")),
        _text(LABEL_WIDTH - 8, top + ROW / 2 + 4, label, "name", "end"),
        element("rect", {"class": "bar", "fill": "currentColor", "fill-opacity": 0.55, **place}),
        _text(LABEL_WIDTH + length + 7, top + ROW / 2 + 4, f"{number(bar.value)} {unit}".strip(), "value", "start"),
    )


def _text(x: float, y: float, words: str, style: str, anchor: str) -> str:
    attributes: dict[str, str | float] = {"class": style, "font-size": FONT, "fill": "currentColor"}
    return element("text", {**attributes, "text-anchor": anchor, "x": x, "y": y}, escaped(words))
