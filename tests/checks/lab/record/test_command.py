import json
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import Mock

import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.brokers import jars
from kafka_eos_checks.brokers.brokers import BrokerFailed, holds_records
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, RECORDED, RELEASES
from kafka_eos_checks.brokers.journal import StillWaiting
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.lab.record import command
from kafka_eos_checks.lab.record.clients import ClientFailed
from kafka_eos_checks.lab.record.command import chosen, recording_name
from kafka_eos_checks.lab.record.stage import CLUSTERS, SCENARIOS, Scenario, Stage


def test_a_clusters_name_stands_for_all_of_its_scenarios() -> None:
    groups = chosen(["three-brokers", "one-broker/trace"])
    assert list(groups) == ["one-broker", "three-brokers"]
    assert [s.name for s in groups["one-broker"]] == ["one-broker/trace"]
    assert [s.name for s in groups["three-brokers"]] == [n for n in SCENARIOS if n.startswith("three-brokers/")]


def test_an_unknown_scenario_is_named_with_those_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "record", "one-broker/zombi", "--out", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "no scenario one-broker/zombi" in message
    assert "one-broker/zombie" in message


def test_a_clusters_name_stands_for_its_scenarios_that_are_recorded_with_the_kafka_release() -> None:
    own, *others = ({s.short_name for s in chosen(["transactions"], kafka)["transactions"]} for kafka in RECORDED)
    assert [own - other for other in others] == [{"thousand"}] * 2
    assert [other - own for other in others] == [{"hundreds"}] * 2
    assert len(own.intersection(*others)) >= 7


def test_a_scenario_that_is_not_recorded_with_a_kafka_release_is_unknown_there() -> None:
    with pytest.raises(KeyError, match=r"no scenario one-broker/zombie with Kafka 3\.9\.1"):
        chosen(["one-broker/zombie"], "3.9.1")


def test_a_recording_of_another_kafka_release_has_its_number_in_its_name() -> None:
    assert recording_name("transactions", KAFKA_VERSION) == "transactions"
    assert recording_name("transactions", "3.9.1") == "transactions-3.9"
    assert recording_name("transactions", NEWEST) == "transactions-4.4"


def test_messages_are_read_by_the_schemas_of_the_newer_of_two_releases() -> None:
    own, newest = f"kafka-clients-{KAFKA_VERSION}.jar", f"kafka-clients-{NEWEST}.jar"
    assert [jars.clients_jar(kafka).name for kafka in (KAFKA_VERSION, NEWEST, "3.9.1", "2.8.2")] == [
        *(own, newest, own, own)
    ]


def test_each_kafka_release_is_pinned_in_the_pom_and_has_a_folder_of_its_own() -> None:
    pom = (CLONE / "pom.xml").read_text()
    for kafka, profile in RELEASES.items():
        assert f"<{profile}.version>{kafka}</{profile}.version>" in pom
        assert f"<id>{profile}</id>" in pom
        assert jars.jars_folder(kafka).name == profile


def test_missing_jars_that_maven_cannot_fetch_are_named_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "build_folder", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    pytest.importorskip("confluent_kafka")
    assert cli.main(["lab", "record", "one-broker", "--out", str(tmp_path / "out")]) == 2
    assert "install Maven and a JDK, and run: mvn" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_every_scenario_says_what_happens_and_belongs_to_a_cluster() -> None:
    for name, scenario in SCENARIOS.items():
        assert scenario.cluster in CLUSTERS
        assert command._summary(scenario).endswith("."), name
        assert scenario.plan(1).seed == f"{name}/1"
    assert len({s.short_name for s in SCENARIOS.values()}) == len(SCENARIOS)


def test_a_scenario_has_a_history_only_if_something_is_told_also_if_it_fails(tmp_path: Path) -> None:
    proxy: Any = SimpleNamespace(begin=lambda *_: None, quiesce=lambda: None)
    cluster: Any = SimpleNamespace()
    file = tmp_path / "out" / "histories" / "s.jsonl"

    def played(how: Callable[[Stage], None]) -> dict[str, Any]:
        """It is played."""
        found = Scenario("one-broker/s", how, {}, 0.3, frozenset({"Produce"}), frozenset())
        return command.play(found, cluster, proxy, tmp_path / "out", 1, tmp_path / "work")

    def tells(stage: Stage) -> None:
        """It tells of a send."""
        stage.journal.add("client", "Send", "invoke")

    def fails(stage: Stage) -> None:
        """It tells of a send and fails."""
        tells(stage)
        raise RuntimeError("failed")

    def is_silent(stage: Stage) -> None:
        """It tells nothing."""

    told = played(tells)
    assert (told["events"], told["history"]) == (1, "histories/s.jsonl")
    assert len(file.read_text().splitlines()) == 1
    told = played(is_silent)
    assert (told["events"], told["history"]) == (0, None)
    assert not file.exists()
    with pytest.raises(RuntimeError):
        played(fails)
    assert len(file.read_text().splitlines()) == 1


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of ``record``, which records nothing."""
    calls: list[tuple[Any, ...]] = []

    def record(*asked: Any) -> Path:
        calls.append(asked)
        return Path("made", recording_name(asked[0], asked[-1]))

    monkeypatch.setattr(command, "record", record)
    monkeypatch.setattr(command, "need", lambda *_: None)
    monkeypatch.setattr(command, "need_jars", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return calls


@pytest.mark.parametrize("more", [[], ["--kafka", "3.9.1"]])
def test_a_recording_has_the_command_that_makes_it_again(
    recorded: list[tuple[Any, ...]], more: list[str], tmp_path: Path
) -> None:
    assert cli.main(["lab", "record", "transactions", "--out", str(tmp_path), "--seed", "3", *more]) == 0
    [(cluster, _, out, seed, told, kafka)] = recorded
    assert (cluster, out, seed, kafka) == ("transactions", tmp_path, 3, more[-1] if more else KAFKA_VERSION)
    assert told == " ".join(["kafka-eos lab record transactions --seed 3", *more])


def test_each_recording_is_packed_under_its_own_name(
    recorded: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[tuple[Path, Path]] = []
    monkeypatch.setattr(command, "pack", lambda *paths: packed.append(paths) or 9)
    call = ["lab", "record", "--out", "made", "--pack", "kept", "--kafka", "3.9.1", "transactions", "no-leader"]
    assert cli.main(call) == 0
    names = [f"{asked[0]}-3.9" for asked in recorded]
    assert sorted(names) == ["no-leader-3.9", "transactions-3.9"]
    assert packed == [(Path("made", name), Path("kept", f"{name}.tar.xz")) for name in names]


class FakeCluster:
    """A cluster of two brokers, whose folder must be new as that of a real one."""

    def __init__(self, folder: Path, *, size: int, settings: dict[str, str], **_: Any) -> None:
        folder.mkdir(parents=True)
        self.brokers = [SimpleNamespace(name=f"b{n}", advertised_port=n, proxied_port=n + 10) for n in range(size)]
        self.settings, self.cluster_id, self.runs = settings, "identity", True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert not self.runs

    def features(self) -> dict[str, int]:
        return {"transaction.version": 2}

    def stop_all(self) -> None:
        self.runs = False

    def copy_logs(self, target: Path) -> None:
        assert not self.runs, "logs are copied of stopped brokers"
        (target / "1").mkdir(parents=True)


def test_a_recording_replaces_the_one_before_and_has_the_logs_of_stopped_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "Cluster", FakeCluster)
    monkeypatch.setattr(command, "Proxy", lambda *_: nullcontext())
    monkeypatch.setattr(command, "load_codec", lambda _: None)
    monkeypatch.setattr(command, "client_versions", lambda kafka: {"kafka-clients": kafka})
    monkeypatch.setattr(command, "play", lambda found, *_: {"name": found.name})
    [(cluster, scenarios)] = chosen(["no-leader"]).items()
    for seed in (1, 2):
        folder = command.record(cluster, scenarios, tmp_path, seed, "the command", KAFKA_VERSION)
        assert sorted(path.name for path in folder.iterdir()) == ["brokers", "manifest.json"]
        (folder / "left.over").touch()
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert (folder, manifest["recording"], manifest["brokers"]) == (tmp_path / "no-leader", "no-leader", 3)
    assert (manifest["command"], manifest["kafka"]) == ("the command", KAFKA_VERSION)
    assert [row["name"] for row in manifest["scenarios"]] == [scenario.name for scenario in scenarios]


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("error", [BrokerFailed("it ended"), ClientFailed("it ended"), StillWaiting("it ended")])
def test_a_scenario_that_does_not_go_as_planned_is_told_in_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "record", Mock(side_effect=error))
    assert cli.main(["lab", "record", "one-broker", "--out", "made"]) == 1
    assert capsys.readouterr().err == "kafka-eos lab record: it ended\n"


def test_help_lists_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["lab", "record", "--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in SCENARIOS)


def test_only_partitions_with_records_are_kept(tmp_path: Path) -> None:
    for name, content in (("t-0", b"x"), ("t-1", b""), ("__cluster_metadata-0", b"x"), ("__consumer_offsets-1", b"x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(content)
    kept = [p.name for p in sorted(tmp_path.iterdir()) if holds_records(p)]
    assert kept == ["__consumer_offsets-1", "t-0"]
