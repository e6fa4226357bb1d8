import xml.etree.ElementTree as ET

import pytest

from kafka_eos_checks.drawing.svg import (
    NAMESPACE,
    UnsafeSvg,
    element,
    escaped,
    inert,
    picture,
    text_width,
    visible,
    wrapped,
)


def inside(markup: str) -> str:
    return f'<svg xmlns="{NAMESPACE}" viewBox="0 0 1 1">{markup}</svg>'


def test_a_picture_of_our_own_passes_the_gate_unchanged() -> None:
    drawn = picture(
        10, 20.5, 'a "label" <b>', element("text", {"x": 1.25, "fill": "currentColor"}, escaped("a < b & c"))
    )
    assert inert(drawn) == drawn
    root = ET.fromstring(drawn)  # noqa: S314 - it passed the gate
    assert root.attrib["aria-label"] == 'a "label" <b>'
    assert root[0].text == "a < b & c"


@pytest.mark.parametrize(
    "markup",
    [
        "<script>alert(1)</script>",
        '<rect onload="alert(1)"/>',
        '<text onclick="alert(1)">x</text>',
        '<a href="https://example.org"><text>x</text></a>',
        '<image href="https://example.org/x.png"/>',
        '<use href="#x"/>',
        "<style>* { display: none }</style>",
        '<rect style="fill: url(https://example.org)"/>',
        '<rect fill="url(https://example.org)"/>',
        '<rect id="ledger"/>',
        "<foreignObject><p>x</p></foreignObject>",
        '<animate attributeName="x"/>',
        '<svg viewBox="0 0 1 1"/>',
        '<script xmlns="http://www.w3.org/1999/xhtml">alert(1)</script>',
        "<g>" * 40 + "</g>" * 40,
    ],
)
def test_content_that_our_pictures_never_have_is_refused(markup: str) -> None:
    with pytest.raises(UnsafeSvg):
        inert(inside(markup))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no picture",
        "<svg>no namespace</svg>",
        inside("<g>"),
        inside("\ud800"),
        inside("\x00"),
        f'<!DOCTYPE svg [<!ENTITY a "aaaa">]><svg xmlns="{NAMESPACE}">&a;</svg>',
        inside("") + "<script>alert(1)</script>",
    ],
)
def test_a_text_that_is_no_picture_is_refused(text: str) -> None:
    with pytest.raises(UnsafeSvg):
        inert(text)


def test_comments_and_instructions_do_not_get_through() -> None:
    kept = inert(inside("<!-- --><?xml-stylesheet href='x'?><g/>"))
    assert kept == f'<svg xmlns="{NAMESPACE}" viewBox="0 0 1 1"><g/></svg>'


def test_invisible_characters_are_written_as_escapes() -> None:
    assert visible("a\x00b\u202ec\ud800\uffff\x85") == "a\\x00b\\u202ec\\ud800\\uffff\\x85"


def test_visible_characters_stay_as_they_are() -> None:
    assert visible("größer → 我\tthen\nnext") == "größer → 我\tthen\nnext"
    assert visible(visible("a\x00b")) == visible("a\x00b")


def test_text_that_fits_is_not_cut() -> None:
    assert wrapped("AppendBatch(0, 1)", text_width("AppendBatch(0, 1)", 12) + 1, 12, 1) == ["AppendBatch(0, 1)"]


def test_text_that_is_too_long_fills_the_last_line_and_says_that_it_is_cut() -> None:
    lines = wrapped("one two three four five six seven", text_width("three four", 12) + 1, 12, 2)
    assert lines == ["one two", "three fou…"]


def test_a_word_longer_than_the_line_is_broken() -> None:
    assert wrapped("x" * 25, text_width("x" * 10, 12) + 1, 12, 3) == ["x" * 10, "x" * 10, "x" * 5]


def test_wide_characters_take_two_cells() -> None:
    assert text_width("我", 10) == 2 * text_width("n", 10)
    assert wrapped("我" * 20, text_width("我" * 10, 12) + 1, 12, 3) == ["我" * 10, "我" * 10]
