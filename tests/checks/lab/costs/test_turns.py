from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.lab.costs.turns import QUICK, Evidence, Side, Stage, kept, kept_pairs, part, take_turns


def test_the_clients_are_sent_to_the_port_of_the_only_broker() -> None:
    cluster: Any = {1: SimpleNamespace(port=9001)}
    client: Any = SimpleNamespace()
    assert Stage(cluster, client, QUICK).bootstrap == "127.0.0.1:9001"


def test_sides_take_turns_and_each_round_begins_with_another() -> None:
    done: list[str] = []

    def do(side: Side) -> dict[str, Any]:
        done.append(side.name)
        return {"number": len(done)}

    answers = take_turns([Side(name, {}) for name in "abc"], 3, "test", do)
    assert "".join(done) == "cab" + "abc" + "bca" + "cab"
    assert {name: [row["number"] for row in rows] for name, rows in answers.items()} == {
        "a": [4, 9, 11],
        "b": [5, 7, 12],
        "c": [6, 8, 10],
    }


def test_the_kept_figures_of_a_run_are_its_rate_its_cpu_time_and_other_load() -> None:
    answer = {"records": 1000, "seconds": 0.5, "client_cpu": 0.2, "broker_cpu": 0.1, "others": 1.23456}
    lossy = {**answer, "failed": 2, "missing": 3, "p50_ms": 7.0}
    rows = kept({"plain": [answer], "lossy": [lossy, lossy]}, [])
    assert rows["plain"] == {"rate": [2000.0], "cpu_us": [300.0], "others": [1.235]}
    assert rows["lossy"]["failed"] == 4
    assert rows["lossy"]["missing"] == 6
    assert kept({"lossy": [lossy]}, ["p50_ms", "cpu_seconds"])["lossy"]["p50_ms"] == [7.0]


def test_a_pair_keeps_each_slice_and_the_total_cpu_time() -> None:
    answer = {
        "records_0": [100, 300], "seconds_0": [0.5, 1.0], "cpu_0": [0.0, 0.02],
        "records_1": [200, 200], "seconds_1": [1.0, 1.0], "cpu_1": [0.01, 0.01],
        "others": 1.5, "failed": 1,
    }  # fmt: skip
    rows = kept_pairs(("a", "b"), answer, ("rate", "seconds"))
    assert rows["a"]["rate"] == [200.0, 300.0]
    assert rows["a"]["seconds"] == [0.5, 1.0]
    assert rows["b"] == {
        "rate": [200.0, 200.0], "seconds": [1.0, 1.0], "cpu_seconds": [0.02], "cpu_us": [50.0], "others": [1.5],
    }  # fmt: skip
    assert rows["a"]["failed"] == 1


def test_a_part_says_the_load_before_and_after_it() -> None:
    evidence: Evidence = {"parts": {}}
    with part(evidence, "p", "about it") as content:
        content["sides"] = {}
    assert evidence["parts"]["p"]["about"] == "about it"
    assert evidence["parts"]["p"]["date"].endswith("UTC")
    assert len(evidence["parts"]["p"]["load_average"]) == 2
    assert evidence["parts"]["p"]["wall_seconds"] >= 0


def test_a_part_that_fails_leaves_no_evidence() -> None:
    evidence: Evidence = {"parts": {}}
    with pytest.raises(ZeroDivisionError), part(evidence, "p", "about it"):
        _ = 1 / 0
    assert evidence["parts"] == {}
