"""Jars that Maven fetches: what is told where it cannot."""

from pathlib import Path

import pytest

from kafka_eos_checks.brokers import jars
from kafka_eos_checks.brokers.jars import NoJars, have_jars, need_jars


def maven(folder: Path, code: int) -> Path:
    """A folder with a program that ends as Maven would."""
    folder.mkdir()
    program = folder / "mvn"
    program.write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("code", "said"), [(1, r"Maven failed .*; install Maven"), (0, r"no Kafka 3\.9\.1 after Maven ran")]
)
def test_jars_that_maven_did_not_bring_are_named_with_the_remedy(
    code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(maven(tmp_path / "bin", code)))
    monkeypatch.setattr(jars, "build_folder", lambda: tmp_path)
    with pytest.raises(NoJars, match=said):
        need_jars("3.9.1")


def test_jars_that_are_there_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(maven(tmp_path / "bin", 1)))
    monkeypatch.setattr(jars, "build_folder", lambda: tmp_path)
    folder = jars.jars_folder("3.9.1")
    folder.mkdir(parents=True)
    for name in ("kafka-clients-3.9.1.jar", "kafka_2.13-3.9.1.jar"):
        assert not have_jars("3.9.1")
        (folder / name).touch()
    assert need_jars("3.9.1") == folder
