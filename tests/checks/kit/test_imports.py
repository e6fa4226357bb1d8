"""The files that a module needs, from its imports."""

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
