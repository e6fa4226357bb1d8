import math
import xml.etree.ElementTree as ET

import pytest

from kafka_eos_checks.plots import MAX_BARS, Bar, bar_plot, number
from kafka_eos_checks.svg import NAMESPACE, inert

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


def test_nothing_is_no_place_on_a_log_scale() -> None:
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
