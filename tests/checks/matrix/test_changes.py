"""Changes of Python code that leave something out or mix something up."""

from textwrap import dedent

import pytest

from kafka_eos_checks.matrix.changes import KINDS, edits

parso = pytest.importorskip("parso", reason="install the extra `mutants`: it has the parser")

AFTER = {
    "if a:\n    b()": {"if True:\n    b()", "if False:\n    b()", "if a:\n    pass"},
    "x = a if b else c": {"x = a", "x = c"},
    "x = [a for a in b if a]": {"x = [a for a in b ]"},
    "f(a, b, c=1, d=2)": {"pass", "f(b, a, c=1, d=2)", "f(a, b,  d=2)", "f(a, b, c=1, )"},
    "f(a=1)": {"pass", "f()"},
    "x = a and b and c": {"x = b and c", "x = a and c", "x = a and b"},
    "x = a - b + c": {"x = a + c", "x = a - b"},
    "x = 0 <= a < 9": {"x = 0 <= a", "x = a < 9"},
    "x = min(a, b)": {"x = (a)", "x = (b)"},
    "x = sorted(a)[0]": {"x = list(a)[0]"},
    "x = max(f(a) for a in b)": set(),
    "x = (a, b)": {"x = ( b)", "x = (a, )"},
    "x = {a: 1, b: 2}": {"x = { b: 2}", "x = {a: 1, }"},
    "x = f'{a} is {b:>{w}}'": {"x = f'{a}0 is {b:>{w}}'", "x = f'{a} is {b:>{w}}0'"},
    "a.b = 1": {"pass"},
    "a[b] = 1": {"pass"},
    "a += 1": {"pass"},
    "a = 1": set(),
    "raise A": {"pass"},
    "@f(a=1)\nclass A:\n    b: int": set(),
    "def f(a, b):\n    return a.c, b.d, a.e, a.g()": {
        "def f(a, b):\n    return a.e, b.d, a.e, a.g()",
        "def f(a, b):\n    return a.c, b.d, a.c, a.g()",
        "def f(a, b):\n    return b.c, b.d, a.e, a.g()",
        "def f(a, b):\n    return a.c, a.d, a.e, a.g()",
        "def f(a, b):\n    return a.c, b.d, b.e, a.g()",
        "def f(a, b):\n    return a.c, b.d, a.e, b.g()",
    },
    "def f(a: A, b: B, c: A):\n    return g(a=a) + b.c": {
        "def f(a: A, b: B, c: A):\n    return g(a=c) + b.c",
        "def f(a: A, b: B, c: A):\n    return g() + b.c",
        "def f(a: A, b: B, c: A):\n    return b.c",
        "def f(a: A, b: B, c: A):\n    return g(a=a)",
    },
    "def f():\n    for a in b:\n        return\n    return": {"def f():\n    for a in b:\n        pass\n    return"},
}


@pytest.mark.parametrize("before", AFTER)
def test_each_change_of_a_text(before: str) -> None:
    made = [edit.made(before) for edit in edits(parso.parse(before + "\n"))]
    assert set(made) == AFTER[before]
    assert len(made) == len(AFTER[before])


def test_kinds_are_those_that_are_listed() -> None:
    text = "\n".join([*AFTER, "while a:\n    break"])
    assert {edit.kind for edit in edits(parso.parse(text + "\n"))} == set(KINDS)


def test_a_change_over_several_lines_leaves_the_others_as_they_are() -> None:
    before = dedent("""\
        x = (
            a
            and b  # why
            and c
        )
        y = 1
    """)
    made = {edit.made(before) for edit in edits(parso.parse(before))}
    assert (
        dedent("""\
        x = (
            a  # why
            and c
        )
        y = 1
    """)
        in made
    )
