import math
import xml.etree.ElementTree as ET

import pytest

from kafka_eos_checks.drawing.plots import MAX_BARS, Bar, Curve, Point, bar_plot, curve_plot, number
from kafka_eos_checks.drawing.svg import NAMESPACE, inert

SVG = f"{{{NAMESPACE}}}"


def drawn(bars: list[Bar], **options: object) -> ET.Element:
    svg = bar_plot(bars, **{"unit": "MB/s", **options})  # type: ignore[arg-type]
    assert inert(svg) == svg
    return ET.fromstring(svg)  # noqa: S314 - it passed the gate


def lengths(root: ET.Element) -> list[float]:
    return [float(rect.get("width", "")) for rect in root.iter(f"{SVG}rect")]


def test_bars_are_as_long_as_their_values() -> None:
    first, second, third = lengths(drawn([Bar("a", 10), Bar("b", 5), Bar("c", 20)]))
    assert second == pytest.approx(first / 2, abs=0.1)
    assert third == pytest.approx(first * 2, abs=0.1)


def test_equal_ratios_are_equal_distances_on_a_log_scale() -> None:
    one, ten, hundred = lengths(drawn([Bar("a", 1.5), Bar("b", 15), Bar("c", 150)], log=True))
    assert ten - one == pytest.approx(hundred - ten, abs=0.2)
    assert one > 1


def test_label_value_and_unit_are_written() -> None:
    texts = [node.text for node in drawn([Bar("<decode>", 12345.6)]).iter(f"{SVG}text")]
    assert texts == ["<decode>", "12,346 MB/s"]


def test_the_reference_is_marked_in_every_row() -> None:
    root = drawn([Bar("a", 0.8), Bar("b", 3)], log=True, reference=1)
    assert len(root.findall(f"{SVG}line")) == 2
    assert any("dotted line: 1" in (node.text or "") for node in root.iter(f"{SVG}text"))


def test_a_value_makes_room_for_the_reference_that_would_cross_it() -> None:
    root = drawn([Bar("a", 0.83), Bar("b", 11)], log=True, reference=1)
    at = float(root.findall(f"{SVG}line")[0].get("x1", ""))
    value = next(node for node in root.iter(f"{SVG}text") if node.text == "0.83 MB/s")
    assert float(value.get("x", "")) > at


def test_rows_beyond_the_limit_are_counted() -> None:
    root = drawn([Bar(str(index), index + 1) for index in range(MAX_BARS + 3)])
    assert len(lengths(root)) == MAX_BARS
    assert any("3 more rows are left out" in (node.text or "") for node in root.iter(f"{SVG}text"))


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 10**400])
def test_a_value_without_a_place_on_the_scale_is_an_error(value: float) -> None:
    with pytest.raises(ValueError, match="no place on the scale"):
        bar_plot([Bar("a", value)], unit="s")


def test_zero_has_no_place_on_a_log_scale() -> None:
    assert lengths(drawn([Bar("a", 0)])) == [1]
    with pytest.raises(ValueError, match="no place on the scale"):
        bar_plot([Bar("a", 0)], unit="s", log=True)


def test_a_plot_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one bar"):
        bar_plot([], unit="s")


@pytest.mark.parametrize(
    ("value", "written"), [(5230, "5,230"), (4.118, "4.12"), (12345.6, "12,346"), (0.5, "0.5"), (math.inf, "inf")]
)
def test_numbers_are_written_for_people(value: float, written: str) -> None:
    assert number(value) == written


def curve(name: str, *ys: float) -> Curve:
    return Curve(name, [Point(10.0**power, y, y * 0.9, y * 1.1) for power, y in enumerate(ys)])


def drawn_curves(curves: list[Curve], **options: object) -> ET.Element:
    svg = curve_plot(curves, **{"x_label": "records", "y_label": "%", **options})  # type: ignore[arg-type]
    assert inert(svg) == svg
    return ET.fromstring(svg)  # noqa: S314 - it passed the gate


def dots(root: ET.Element) -> list[tuple[float, float]]:
    return [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in root.iter(f"{SVG}circle")]


def test_points_of_a_curve_are_at_equal_steps_of_a_log_axis_and_at_the_height_of_their_values() -> None:
    (x1, y1), (x2, y2), (x3, y3) = dots(drawn_curves([curve("a", 10, 20, 30)]))
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    assert y3 < y2 < y1


def test_a_logarithmic_height_has_equal_ratios_at_equal_steps() -> None:
    (_, y1), (_, y2), (_, y3) = dots(drawn_curves([curve("a", 1, 10, 100)], log_y=True))
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)


def test_each_curve_has_its_name_its_own_dashes_and_the_interval_of_each_point() -> None:
    root = drawn_curves([curve("<p50>", 1, 2), curve("p99", 3, 4)])
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert {"<p50>", "p99", "%, over records"} <= set(texts)
    dashes = [path.get("stroke-dasharray") for path in root.iter(f"{SVG}path")]
    assert len(set(dashes)) == 2
    assert sum(line.get("class") == "interval" for line in root.iter(f"{SVG}line")) == 4
    assert any(node.text == "<p50>, 10: 2 (1.8 to 2.2)" for node in root.iter(f"{SVG}title"))


def test_the_claimed_range_is_a_band_behind_the_curves() -> None:
    root = drawn_curves([curve("a", 50, 100)], band=(60, 80))
    (band,) = root.iter(f"{SVG}rect")
    (_, low), (_, high) = dots(drawn_curves([curve("a", 60, 80)], band=(60, 100)))
    assert low > high
    assert float(band.get("height", "")) > 0


@pytest.mark.parametrize(
    "curves", [[], [Curve("a", [])], [curve(str(n), 1, 2) for n in range(9)], [curve("a", math.nan)], [curve("a", -1)]]
)
def test_curves_without_a_place_are_an_error(curves: list[Curve]) -> None:
    with pytest.raises(ValueError, match=r"from 1 to|no place"):
        curve_plot(curves, x_label="x", y_label="y")
