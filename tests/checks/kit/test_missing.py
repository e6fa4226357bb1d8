"""The errors for missing packages name the package and what installs it."""

from pathlib import Path

import pytest

from kafka_eos_checks.kit.missing import MissingExtra, find_java, need


def test_a_package_that_fails_on_import_is_not_reported_as_a_missing_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert need("json", "spark").__name__ == "json"
    folder = tmp_path_factory.mktemp("packages")
    (folder / "breaks_on_import.py").write_text("import no_such_package_at_all\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        need("breaks_on_import", "spark")
    with pytest.raises(MissingExtra, match=r"^this needs no_such_package_at_all; .* pip install 'kafka-eos\[spark\]'$"):
        need("no_such_package_at_all", "spark")


def test_a_missing_part_of_a_package_is_a_missing_extra_too() -> None:
    with pytest.raises(MissingExtra, match=r"this needs no_such_package_at_all\.part; "):
        need("no_such_package_at_all.part", "spark")


def program(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "java").write_text("", encoding="utf-8")
    (folder / "java").chmod(0o755)
    return str(folder / "java")


def test_java_is_that_of_java_home_else_of_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(MissingExtra, match="this needs Java 17 or later: install a JDK, or set JAVA_HOME"):
        find_java()
    on_path = program(tmp_path / "path")
    assert find_java() == on_path
    at_home = program(tmp_path / "home" / "bin")
    assert find_java() == at_home
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == on_path
