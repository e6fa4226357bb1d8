"""Simulated applications, as recordings: they come to rest, and their recordings match the machine."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS
from kafka_eos.histories.application_history import INPUTS, OUTPUTS
from kafka_eos.histories.history import read_history
from kafka_eos_checks.audit.kernels.coordinators.group_log import read_group_log
from kafka_eos_checks.audit.segments.contents import read_contents
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.models.registry import MalformedRegistry, Registry
from kafka_eos_checks.simulate.applications import ApplicationPlan, simulate_application, write_application

REGISTRY = Registry()
MODELS = ("ConsumeTransformProduceTwoInputs", "ConsumeTransformProduceVersion1", "ConsumerGroup")


@pytest.mark.parametrize("model", MODELS)
def test_a_run_comes_to_rest_with_every_input_processed_as_its_logs_say(model: str, tmp_path: Path) -> None:
    faults = 0
    for seed in range(8):
        simulated = simulate_application(ApplicationPlan(seed=seed, model=model), REGISTRY)
        write_application(simulated, tmp_path / str(seed))
        logs = find_logs(tmp_path / str(seed) / "brokers")
        state = simulated.state
        faults += state.faults
        for number, name in enumerate(sorted(state.constants.partitions)):
            [outputs] = [read_contents(log) for log in logs if (log.topic, log.partition) == (OUTPUTS, number)]
            visible = Counter(value for offset, value in outputs.values.items() if offset not in outputs.hidden)
            assert visible == {f"out {name}{n}".encode(): count for n, count in state.outputs[name].items()}
            assert set(visible.values()) == {1}
            [offsets] = [read_group_log(log) for log in logs if log.topic == OFFSETS]
            [commits] = [own for key, own in offsets.commits.items() if key[1] == (INPUTS, number)]
            assert commits[-1].offset == state.committed[name] == len(state.constants.inputs)
    assert faults > 8


def test_the_events_are_numbered_and_come_back_from_the_recording(tmp_path: Path) -> None:
    simulated = simulate_application(ApplicationPlan(seed=3), REGISTRY)
    write_application(simulated, tmp_path)
    assert [event.order for event in simulated.events] == list(range(len(simulated.events)))
    assert list(read_history(tmp_path / "histories" / "simulated.jsonl")) == simulated.events
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["cluster"], manifest["seed"], manifest["mutant"]) == ("simulated", 3, "")
    assert {event.run for event in simulated.events} == {"simulated-application/reference/3"}
    mutant = simulate_application(ApplicationPlan(seed=3, mutant="NeverFenced"), REGISTRY)
    assert {event.run for event in mutant.events} == {"simulated-application/NeverFenced/3"}


def test_a_mutant_of_another_machine_and_an_unknown_fault_are_refused() -> None:
    with pytest.raises(MalformedRegistry, match="of ConsumeTransformProduce; there are NoGenerationCheck, "):
        simulate_application(ApplicationPlan(seed=0, mutant="NoGuard"), REGISTRY)
    with pytest.raises(MalformedRegistry, match="no mutant 'Nothing' of ConsumeTransformProduce"):
        simulate_application(ApplicationPlan(seed=0, mutant="Nothing"), REGISTRY)
    with pytest.raises(ValueError, match="has no action 'Melt'"):
        simulate_application(ApplicationPlan(seed=0, weights={"Melt": 1.0}), REGISTRY)


def test_the_same_plan_gives_the_same_bytes_in_every_process_and_another_seed_other_ones(tmp_path: Path) -> None:
    def digest(seed: int, hashing: str = "") -> str:
        folder = tmp_path / f"{seed}-{hashing}"
        command = ["simulate", "application", "--seed", str(seed), "--out", str(folder)]
        if hashing:
            environment = os.environ | {"PYTHONHASHSEED": hashing}
            subprocess.run([sys.executable, "-m", "kafka_eos_checks.cli", *command], check=True, env=environment)
        else:
            assert main(command) == 0
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    assert digest(7, "1") == digest(7, "2") != digest(8)
    seven, eight = (simulate_application(ApplicationPlan(seed=seed), REGISTRY).events for seed in (7, 8))
    assert [event.action for event in seven] != [event.action for event in eight]


def test_the_command_writes_a_recording_that_the_audit_finds_exact_or_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = str(tmp_path / "right"), str(tmp_path / "wrong")
    assert main(["simulate", "application", "--inputs", "3", "--out", right]) == 0
    assert main(["audit", right, "--allow-unjudged"]) == 0, "there is no log of __transaction_state"
    assert "committed by the group: 3 of p" in capsys.readouterr().out
    assert main(["simulate", "application", "--mutant", "OffsetWithoutPlusOne", "--out", wrong]) == 0
    assert main(["audit", wrong]) == 1
    assert "output without its offset" in capsys.readouterr().out
    assert main(["simulate", "application", "--values", "3"]) == 2
    assert "belongs to 'kafka-eos simulate producer'" in capsys.readouterr().err
