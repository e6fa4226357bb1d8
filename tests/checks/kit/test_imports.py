"""The files that a module needs, from its imports."""

import ast
from pathlib import Path

import pytest

from kafka_eos_checks.kit import imports
from kafka_eos_checks.kit.imports import needed


def test_imports_are_followed_also_in_functions_but_not_into_other_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "__init__.py": "",
        "one.py": "import ast\nfrom numpy import array\nfrom p.inner import two, name\n",
        "inner/__init__.py": "name = 1\n",
        "inner/two.py": "def f():\n    import p.three\n",
        "three.py": "from p import one\n",
        "four.py": "import p.one\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(imports, "PACKAGES", {"p": tmp_path})
    found = [path.relative_to(tmp_path).as_posix() for path in needed(["p.one"])]
    assert found == ["__init__.py", "inner/__init__.py", "inner/two.py", "one.py", "three.py"]
    assert needed(["p.nothing", "numpy"]) == []


def parsed(text: str) -> set[str]:
    """The modules that a file names, by Python's own parser."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


EVERY_FORM = """\"\"\"A text that begins with the word
from does not import anything.\"\"\"
import a.b, c as d  # e
from f.g import h as i, j
from k import (  # (l)
    m,  # n, o
    p as q,
)
if a:
    from r import s
    import t

def u():
    from v import w  # x
"""


def test_imports_of_every_form_are_found() -> None:
    found = {"a.b", "c", "f.g", "f.g.h", "f.g.j", "k", "k.m", "k.p", "r", "r.s", "t", "v", "v.w"}
    assert parsed(EVERY_FORM) == found
    assert set(imports._imported(EVERY_FORM)) == found


@pytest.mark.parametrize("room", [pytest.param("", marks=pytest.mark.thorough), "machines", "kit"])
def test_the_imports_of_the_projects_files_are_those_that_python_parses(room: str) -> None:
    files = [file for folder in imports.PACKAGES.values() for file in (folder / room).rglob("*.py")]
    assert len(files) > 10
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert parsed(text) <= set(imports._imported(text)), file
