import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos.histories.history import read_history
from kafka_eos_checks.audit.audit import audit
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.models.registry import MalformedRegistry
from kafka_eos_checks.simulate.command import Plan, segment_bytes, simulate, write_recording

PLAN = Plan(seed=7, steps=120, values=6)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_audit_reads_the_recording_and_finds_nothing(tmp_path: Path) -> None:
    simulated = simulate(PLAN)
    write_recording(simulated, tmp_path)
    verdicts = {verdict.name: verdict for verdict in audit([tmp_path])}
    assert [name for name, verdict in verdicts.items() if not verdict.ok] == []
    assert verdicts["readable"].figures["logs"] == 3
    assert verdicts["readable"].figures["records"] == sum(len(log.entries) for log in simulated.state.replicas.values())
    acknowledged = list(simulated.state.outcome.values()).count("acknowledged")
    assert acknowledged > 0
    assert verdicts["acknowledged but lost"].figures["checked"] == acknowledged


def test_the_same_plan_gives_the_same_bytes_and_another_seed_other_ones(tmp_path: Path) -> None:
    for name, plan in (("one", PLAN), ("again", PLAN), ("other", Plan(seed=8, steps=120, values=6))):
        write_recording(simulate(plan), tmp_path / name)
    assert files(tmp_path / "one") == files(tmp_path / "again")
    log = "brokers/1/simulated-0/00000000000000000000.log"
    assert files(tmp_path / "one")[log] != files(tmp_path / "other")[log]


def test_the_events_are_numbered_and_come_back_from_the_recording(tmp_path: Path) -> None:
    simulated = simulate(PLAN)
    write_recording(simulated, tmp_path)
    assert [event.order for event in simulated.events] == list(range(len(simulated.events)))
    assert list(read_history(tmp_path / "histories" / "simulated.jsonl")) == simulated.events


def test_the_leader_never_forgets_its_producer_without_a_mutant() -> None:
    assert simulate(replace(PLAN, faults={"ExpireProducer": 1000.0})).state.leaders_log.knows_producer(0)


def test_the_leader_forgets_its_producer_with_a_mutant_of_expiry() -> None:
    expiring = replace(PLAN, mutant="ExpireAnyTime", faults={"ExpireProducer": 10.0})
    assert not simulate(expiring).state.leaders_log.knows_producer(0)


def test_one_replica_leads_itself() -> None:
    simulated = simulate(replace(PLAN, replicas=1))
    assert set(simulated.state.replicas) == {"a"}
    assert len(simulated.state.leaders_log.entries) > 0


def test_every_value_is_sent_and_then_answered_once() -> None:
    sends = [event for event in simulate(PLAN).events if event.action == "Send"]
    invoked = [event.detail["value"] for event in sends if event.phase == "invoke"]
    answered = [event.detail["value"] for event in sends if event.phase != "invoke"]
    assert invoked == [f"v{value}" for value in range(1, 7)]
    assert sorted(answered) == invoked


def test_a_fault_is_as_frequent_as_its_weight_says_in_place_of_the_usual_one() -> None:
    def crashes(**faults: float) -> int:
        return [event.action for event in simulate(replace(PLAN, faults=faults)).events].count("Crash")

    assert crashes(Crash=0.0) == 0 < crashes() < crashes(Crash=40.0)


def test_the_manifest_names_the_seed_and_every_fault(tmp_path: Path) -> None:
    write_recording(simulate(Plan(seed=7, steps=5, faults={"Crash": 2.5})), tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["cluster"], manifest["seed"], manifest["mutant"]) == ("simulated", 7, "")
    assert manifest["faults"]["Crash"] == 2.5
    assert manifest["faults"]["Resend"] == 2.0


def test_an_empty_log_is_an_empty_segment() -> None:
    assert segment_bytes(simulate(Plan(seed=1, steps=0)).state.leaders_log) == b""


def test_unknown_mutants_and_faults_are_refused() -> None:
    with pytest.raises(MalformedRegistry, match="no entry 'Gremlin'"):
        simulate(Plan(seed=1, mutant="Gremlin"))
    with pytest.raises(ValueError, match="no action 'Meteor'"):
        simulate(Plan(seed=1, faults={"Meteor": 1.0}))


def test_the_command_writes_a_recording_and_says_how_to_audit_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--seed", "3", "--steps", "60", "--values", "3", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("seed 3: ")
    assert f"kafka-eos audit {tmp_path / 'run'}" in said
    assert (tmp_path / "run" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--fault", "Meteor=1"], "no action 'Meteor'"),
        (["--fault", "Crash"], "expected ACTION=WEIGHT with a number"),
        (["--fault", "Crash=often"], "expected ACTION=WEIGHT with a number"),
        (["--mutant", "Gremlin"], "no entry 'Gremlin'"),
    ],
)
def test_the_command_refuses_what_it_cannot_run(
    tmp_path: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments, "--out", str(tmp_path / "run")]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_weight_is_refused_where_every_fault_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "transfer", "--fault", "Crash=2"]) == 2
    told = "kafka-eos simulate: --fault is not for transfer, in which every fault is tried\n"
    assert capsys.readouterr().err == told


def test_a_recording_takes_the_place_of_an_earlier_simulated_one(tmp_path: Path) -> None:
    for replicas in (3, 1):
        plan = ["--seed", "7", "--steps", "120", "--replicas", str(replicas)]
        assert main(["simulate", *plan, "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out" / "brokers").iterdir()] == ["1"]
    assert main(["audit", str(tmp_path / "out")]) == 0


def test_a_recording_that_is_not_simulated_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "brokers" / "1" / "orders-0" / "00000000000000000000.log"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"kept")
    for manifest in ("", "[]", '{"cluster": "mine"}'):
        (tmp_path / "manifest.json").write_text(manifest)
        assert main(["simulate", "--steps", "120", "--out", str(tmp_path)]) == 2
        assert f"{tmp_path} has a recording that `kafka-eos simulate` has not written" in capsys.readouterr().err
    assert kept.read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "-5"], "--steps -5: expected a whole number, at least 1"),
        (["--values", "0"], "--values 0: expected a whole number, at least 1"),
        (["transactions", "--transactions", "0"], "--transactions 0: expected a whole number, at least 1"),
        (["application", "--inputs", "0"], "--inputs 0: expected a whole number, at least 1"),
    ],
)
def test_a_run_of_nothing_is_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["simulate", *arguments, "--out", str(tmp_path / "out")])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("weight", ["x", "nan", "inf"])
def test_a_weight_that_is_no_number_is_refused_by_name(
    weight: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--fault", f"Crash={weight}", "--out", str(tmp_path / "out")]) == 2
    assert f"--fault Crash={weight}: expected ACTION=WEIGHT with a number, such as Crash=2" in capsys.readouterr().err
