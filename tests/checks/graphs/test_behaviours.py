"""Exported graphs and behaviours: complete, deterministic, of their schema, and replayed by a program in Go."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastjsonschema  # type: ignore[import-untyped]
import pytest

from kafka_eos_checks.cli.command import main
from kafka_eos_checks.graphs.behaviours import SCHEMA, encoded, explore, write
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.registry import Registry

MODEL = "LeaderOutside"
ROOT = spec_folder().parent
REPLAY = ROOT / "examples" / "replay-behaviours" / "main.go"
PAGES = [ROOT / "docs" / "behaviours.md", REPLAY.with_name("README.md")]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("behaviours")
    write(explore(Registry().get(MODEL)), folder)
    return folder / MODEL


@pytest.fixture(scope="module")
def graph(exported: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((exported / "graph.json").read_text())
    return content


def runs(folder: Path) -> Iterator[list[dict[str, Any]]]:
    for path in sorted((folder / "behaviours").iterdir()):
        yield json.loads(path.read_text())["states"]


def test_values_are_written_as_itf_has_them() -> None:
    assert encoded((1, True, "a")) == [{"#bigint": "1"}, True, "a"]
    assert encoded(frozenset({2, 1})) == {"#set": [{"#bigint": "1"}, {"#bigint": "2"}]}
    assert encoded({"name": -1}) == {"name": {"#bigint": "-1"}}
    assert encoded({0: "a"}) == {"#map": [[{"#bigint": "0"}, "a"]]}
    assert encoded({}) == {"#map": []}


def test_the_graph_has_the_states_of_the_registry_and_decides_every_instance(graph: dict[str, Any]) -> None:
    inside = {state for state, _ in graph["refusals"]} | {source for source, *_ in graph["edges"]}
    expect = Registry().get(MODEL).expect
    assert len(inside) == expect.states
    assert len(graph["edges"]) + 1 == expect.generated
    pairs = [(state, label) for state, label in graph["refusals"]] + [(s, label) for s, label, _ in graph["edges"]]
    assert sorted(pairs) == [(state, label) for state in sorted(inside) for label in range(len(graph["instances"]))]


def test_a_run_ends_with_its_longest_number_of_steps_and_only_the_way_to_an_edge_may_exceed_it() -> None:
    explored = explore(Registry().get(MODEL))
    assert len(list(explored.runs(longest=1))) == explored.edge_count


def test_behaviours_of_kafka_as_it_ships_differ_and_name_the_rules(
    tmp_path: Path, graph: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["check", "behaviours", MODEL, "--out", str(tmp_path), "--no-runs", "--kafka"]
    assert main([*call, "4.3"]) == 0
    shipped = json.loads((tmp_path / f"{MODEL}_Kafka_4_3" / "graph.json").read_text())
    assert shipped["replaced"]["AcceptsUnknownProducer"] == "AnySequenceOnVirginPartition"
    assert graph["replaced"] == {}
    taken = {json.dumps(graph["instances"][label]) for source, label, _ in graph["edges"] if source == 0}
    by_kafka = {json.dumps(shipped["instances"][label]) for source, label, _ in shipped["edges"] if source == 0}
    more = [json.loads(each) for each in by_kafka - taken]
    assert {(each["action"], each["parameters"]["sequence"]["#bigint"]) for each in more} == {("AppendBatch", "1")}
    assert main(["check", "behaviours", "Broker", *call[3:], "3.9"]) == 2
    assert "Broker is not of Kafka 3.9: Kafka 3.9 has no " in capsys.readouterr().err


def test_the_document_shows_a_state_as_it_is_written_and_names_every_key(exported: Path, graph: dict[str, Any]) -> None:
    text = PAGES[0].read_text(encoding="utf-8")
    [shown] = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert json.loads(shown) in [{**state, "leader": "…"} for states in runs(exported) for state in states]
    assert {
        key for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)
    } == set(graph)


def test_the_behaviours_take_every_edge_and_nothing_else(exported: Path, graph: dict[str, Any]) -> None:
    numbers = {json.dumps(state, sort_keys=True): place for place, state in enumerate(graph["states"])}
    labels = {json.dumps(label, sort_keys=True): place for place, label in enumerate(graph["instances"])}
    taken = set()
    for states in runs(exported):
        metas = [state.pop("#meta") for state in states]
        places = [numbers[json.dumps(state, sort_keys=True)] for state in states]
        assert places[0] == 0
        assert [meta.pop("index") for meta in metas] == list(range(len(metas)))
        for source, meta, target in zip(places, metas[1:], places[1:], strict=False):
            taken.add((source, labels[json.dumps(meta, sort_keys=True)], target))
    assert taken == set(map(tuple, graph["edges"]))


def test_the_same_model_gives_the_same_bytes(exported: Path, tmp_path: Path) -> None:
    assert main(["check", "behaviours", MODEL, "--out", str(tmp_path)]) == 0
    files = [path.relative_to(exported) for path in exported.rglob("*.json")]
    assert files
    assert all((exported / each).read_bytes() == (tmp_path / MODEL / each).read_bytes() for each in files)


def test_runs_of_an_earlier_call_are_removed(tmp_path: Path) -> None:
    found = explore(Registry().get(MODEL))
    count = write(found, tmp_path)
    folder = tmp_path / MODEL / "behaviours"
    (folder / f"{count + 1:05}.itf.json").write_text("{}")
    assert write(found, tmp_path) == count
    assert len(list(folder.iterdir())) == count
    write(found, tmp_path, runs=False)
    assert not list(folder.iterdir())


def test_the_graph_is_of_the_schema_and_a_number_for_a_big_integer_is_not(graph: dict[str, Any]) -> None:
    validate = fastjsonschema.compile(json.loads(SCHEMA.read_text()))
    validate(graph)
    wrong = {**graph, "states": [{"answer": 5}]}
    with pytest.raises(fastjsonschema.JsonSchemaException):
        validate(wrong)
    with pytest.raises(fastjsonschema.JsonSchemaException):
        validate({key: value for key, value in graph.items() if key != "refusals"})


def test_the_pages_show_what_the_commands_print(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "behaviours", MODEL, "--out", str(exported.parent)]) == 0
    counts = capsys.readouterr().out.strip().partition(": ")[2]
    assert f"build/behaviours/{MODEL}: {counts}" in PAGES[0].read_text()
    steps = sum(len(states) - 1 for states in runs(exported))
    assert f"{len(list(runs(exported)))} behaviours, {steps} steps: the toy answers as the spec" in PAGES[1].read_text()


def test_an_unknown_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "behaviours", "Nothing", "--out", str(tmp_path)]) == 2
    assert "no entry 'Nothing'" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go")
def test_a_program_in_go_replays_the_behaviours_and_finds_the_planted_mistake(exported: Path, tmp_path: Path) -> None:
    program = tmp_path / "replay"
    subprocess.run(["go", "build", "-o", str(program), str(REPLAY)], check=True, cwd=tmp_path)
    right = subprocess.run([program, exported / "behaviours"], capture_output=True, text=True, check=False)
    assert right.returncode == 0, right.stdout + right.stderr
    assert re.fullmatch(r"\d+ behaviours, \d+ steps: the toy answers as the spec\n", right.stdout)
    wrong = subprocess.run(
        [program, "-forgets-epoch", exported / "behaviours"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 1
    assert "the spec answers map[error:INVALID_PRODUCER_EPOCH" in wrong.stdout


def test_a_folder_has_to_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", "behaviours", MODEL])
    assert "--out" in capsys.readouterr().err
