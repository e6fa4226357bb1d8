"""The message schemas that the server carries are those of the pinned Kafka."""

import json
from pathlib import Path

import pytest

from kafka_eos.protocol import load_codec
from kafka_eos.server import schemas
from kafka_eos_checks import vendored_schemas
from kafka_eos_checks.record.jars import clients_jar, have_jars

JARS = pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")


@JARS
def test_they_are_what_the_jars_hold() -> None:
    assert vendored_schemas.TARGET.read_text(encoding="utf-8") == vendored_schemas.from_jars()


@JARS
def test_they_are_read_and_written_as_the_jars_own() -> None:
    own, vendored = load_codec(clients_jar()), schemas.served_codec()
    for api in schemas.SERVED:
        for message in (f"{api}Request", f"{api}Response"):
            assert vendored.versions(message) == own.versions(message)
            for version in own.versions(message):
                assert vendored.write(message, version, {}) == own.write(message, version, {})


def test_each_is_there_once_and_none_is_there_for_nothing() -> None:
    rows = json.loads(vendored_schemas.TARGET.read_text(encoding="utf-8"))
    assert sorted(row["name"] for row in rows) == sorted(schemas.messages())


@JARS
def test_the_command_writes_the_file_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vendored_schemas, "TARGET", tmp_path / "schemas.json")
    vendored_schemas.main()
    assert (tmp_path / "schemas.json").stat().st_size > 50_000
    assert "76 messages of Kafka 4.3.0" in capsys.readouterr().out
