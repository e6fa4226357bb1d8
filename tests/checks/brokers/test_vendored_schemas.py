"""The server's vendored message schemas are those of the pinned Kafka."""

import json
from pathlib import Path

import pytest

from kafka_eos.server import schemas
from kafka_eos.wire.protocol import load_codec
from kafka_eos_checks.brokers import vendored_schemas
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, clients_jar, have_jars, need_jars

RELEASES = (KAFKA_VERSION, NEWEST)
JARS = pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")


NEWEST_JARS = pytest.mark.skipif(
    not have_jars(NEWEST), reason=f"the jars of Kafka {NEWEST} are not there; `make peers` fetches them"
)


@JARS
@NEWEST_JARS
def test_the_vendored_schemas_equal_those_in_the_jars() -> None:
    assert vendored_schemas.TARGET.read_text(encoding="utf-8") == vendored_schemas.from_jars()


@JARS
def test_the_vendored_schemas_of_the_pinned_release_equal_those_in_its_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    text = vendored_schemas.TARGET.read_text(encoding="utf-8")
    rows = {schema["name"]: schema for schema in json.loads(text)}
    monkeypatch.setattr(vendored_schemas, "of_newest", lambda: {name: rows[name] for name in schemas.of_newest()})
    assert text == vendored_schemas.from_jars()
    monkeypatch.setattr(vendored_schemas, "of_newest", dict)
    assert text != vendored_schemas.from_jars()


@JARS
@NEWEST_JARS
def test_vendored_schemas_encode_and_decode_like_those_in_the_jars() -> None:
    vendored, of_release = schemas.served_codec(), {each: load_codec(clients_jar(each)) for each in RELEASES}
    for api in (*schemas.SERVED, *schemas.REFUSED, *schemas.NOT_SERVED):
        own = of_release[NEWEST if api in schemas.NEWEST else KAFKA_VERSION]
        for message in (f"{api}Request", f"{api}Response"):
            assert vendored.versions(message) == own.versions(message)
            for version in own.versions(message):
                assert vendored.write(message, version, {}) == own.write(message, version, {})


@JARS
@NEWEST_JARS
def test_the_apis_that_are_served_as_the_newest_release_has_them_have_a_version_more_there() -> None:
    before, newest = (load_codec(clients_jar(each)) for each in RELEASES)
    for api in schemas.NEWEST:
        assert newest.versions(f"{api}Request").stop == before.versions(f"{api}Request").stop + 1


@JARS
def test_every_client_api_of_kafkas_brokers_is_served_refused_or_listed_as_not_served() -> None:
    of_clients = {
        schema["name"].removesuffix("Request")
        for schema in vendored_schemas.schemas_of(need_jars() / f"kafka-clients-{KAFKA_VERSION}.jar").values()
        if "broker" in schema.get("listeners", ()) and schema["validVersions"] != "none"
    }
    tables = (set(schemas.SERVED), set(schemas.REFUSED), set(schemas.NOT_SERVED))
    assert set().union(*tables) - of_clients == {"WriteTxnMarkers", "AddPartitionsToTxn"} - of_clients
    assert of_clients <= set().union(*tables)
    assert sum(map(len, tables)) == len(set().union(*tables))


def test_each_schema_is_vendored_once_and_used() -> None:
    rows = json.loads(vendored_schemas.TARGET.read_text(encoding="utf-8"))
    assert sorted(row["name"] for row in rows) == sorted(schemas.messages())


@JARS
@NEWEST_JARS
def test_the_command_writes_the_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vendored_schemas, "TARGET", tmp_path / "schemas.json")
    vendored_schemas.main()
    assert (tmp_path / "schemas.json").stat().st_size > 50_000
    assert f"{len(schemas.messages())} messages of Kafka 4.3.0" in capsys.readouterr().out
