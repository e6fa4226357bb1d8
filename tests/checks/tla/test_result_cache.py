"""The cache of results: fingerprints, and the results under them."""

from pathlib import Path

import pytest

from kafka_eos_checks.kit import imports
from kafka_eos_checks.tla.result_cache import (
    ResultCache,
    fingerprint,
    folder_fingerprint,
    python_fingerprint,
    spec_fingerprint,
    write_whole,
)


def test_a_result_is_kept_under_its_key_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path / "cache")
    assert cache.get("k") is None
    cache.put("k", {"verdict": "holds", "states": 3})
    assert cache.get("k") == {"verdict": "holds", "states": 3}
    (tmp_path / "cache" / "k.json").write_text('{"verdict": ', encoding="utf-8")
    assert cache.get("k") is None


@pytest.mark.parametrize("content", ["[1]", "3", "", "[" * 100_000, '{"a": '])
def test_a_file_that_holds_no_result_counts_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text(content, encoding="utf-8")
    assert ResultCache(tmp_path).get("k") is None


def test_a_result_replaces_an_earlier_one_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "a.json", "first")
    write_whole(tmp_path / "new" / "a.json", "second")
    [file] = (tmp_path / "new").iterdir()
    assert (file.name, file.read_text(encoding="utf-8")) == ("a.json", "second")


def test_values_that_only_look_alike_have_other_fingerprints() -> None:
    alike = [("ab", "c"), ("a", "bc"), ("abc",), ("a", "b", "c"), ("ab", "c", ""), ("c", "ab"), (b"ab", "cd")]
    assert len({fingerprint(*parts) for parts in alike}) == len(alike)
    assert fingerprint("a", 1) == fingerprint("a", 1)


def test_an_edit_a_new_name_and_a_new_file_change_the_fingerprint_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "A.tla").write_text("A", encoding="utf-8")
    found = [folder_fingerprint(tmp_path)]
    (tmp_path / "A.tla").write_text("B", encoding="utf-8")
    found.append(folder_fingerprint(tmp_path))
    (tmp_path / "A.tla").rename(tmp_path / "B.tla")
    found.append(folder_fingerprint(tmp_path))
    (tmp_path / "C.tla").write_text("", encoding="utf-8")
    found.append(folder_fingerprint(tmp_path))
    assert len(set(found)) == 4


def test_a_module_of_the_spec_counts_with_what_it_needs_and_nothing_else(tmp_path: Path) -> None:
    texts = {"Top": "EXTENDS Base", "Base": "A == 1", "Other": "A == 1"}
    found = []
    for edited in ("", "Other", "Base", "Top"):
        for name, text in texts.items():
            more = "B == 2" if name == edited else ""
            (tmp_path / f"{name}.tla").write_text(f"---- MODULE {name} ----\n{text}\n{more}\n====\n", encoding="utf-8")
        found.append(spec_fingerprint(tmp_path, ["Top"]))
    assert found[1] == found[0]
    assert len(set(found)) == 3


def test_a_module_of_python_counts_with_what_it_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "PACKAGES", {"kafka_eos": tmp_path})
    found = []
    for text in ("LIMIT = 1\n", "LIMIT = 2\n"):
        (tmp_path / "top.py").write_text("def f():\n    from kafka_eos.base import LIMIT\n", encoding="utf-8")
        (tmp_path / "base.py").write_text(text, encoding="utf-8")
        python_fingerprint.cache_clear()
        found.append(python_fingerprint(("kafka_eos.top",)))
    python_fingerprint.cache_clear()
    assert len(set(found)) == 2
