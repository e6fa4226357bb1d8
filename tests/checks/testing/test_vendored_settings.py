"""The file of known settings is what its maker writes; the answers of Java's clients are taken from the file itself."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST
from kafka_eos_checks.kit.answering import Ask
from kafka_eos_checks.testing import vendored_settings


def test_the_file_has_the_answers_of_both_releases_and_what_librdkafka_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("confluent_kafka", reason="the clients are in the extra `record`")
    text = vendored_settings.TARGET.read_text(encoding="utf-8")
    known = json.loads(text)
    whole = {
        KAFKA_VERSION: known["java"],
        NEWEST: {name: known["java"][name] | known["java_newest"][name] for name in vendored_settings.JAVA_CLIENTS},
    }

    def ask(release: str) -> Ask:
        return lambda questions: [whole[release][row["known"]["of"]] for row in questions]

    monkeypatch.setattr(vendored_settings, "java_clients", lambda release=KAFKA_VERSION: nullcontext(ask(release)))
    monkeypatch.setattr(vendored_settings, "TARGET", tmp_path / "known.json")
    vendored_settings.main()
    assert (tmp_path / "known.json").read_text(encoding="utf-8") == text
    assert capsys.readouterr().out == f"{tmp_path / 'known.json'}: {len(text)} bytes\n"


def test_a_setting_that_the_newest_release_has_besides_is_no_error() -> None:
    older = {name: {"a": {}} for name in vendored_settings.JAVA_CLIENTS}
    newest = {name: {"a": {}, "b": {"low": 1}} for name in vendored_settings.JAVA_CLIENTS}
    found = vendored_settings.of_newest(lambda rows: [newest[row["known"]["of"]] for row in rows], older)
    assert found == {"release": NEWEST} | {name: {"b": {"low": 1}} for name in vendored_settings.JAVA_CLIENTS}
    newest["consumer"] = {}
    with pytest.raises(AssertionError, match=rf"^consumer: {NEWEST} has fewer settings(\n|$)"):
        vendored_settings.of_newest(lambda rows: [newest[row["known"]["of"]] for row in rows], older)


def test_the_clients_of_a_release_run_from_its_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(vendored_settings, "need_jars", lambda release: f"jars-{release}")
    monkeypatch.setattr(vendored_settings, "answering", lambda *given: started.append(given))
    vendored_settings.java_clients("4.9")
    source = str(Path(vendored_settings.__file__).with_name("ClientSettings.java"))
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    assert started == [(["java", *quick, "-cp", "jars-4.9/*", source], 240)]
    assert Path(source).is_file()


@pytest.mark.parametrize("module", ["vendored_settings", "coverage"])
def test_only_a_call_of_the_module_writes_its_file(module: str) -> None:
    imports = [sys.executable, "-c", f"import kafka_eos_checks.testing.{module}"]
    assert subprocess.run(imports, capture_output=True, check=True).stdout == b""
