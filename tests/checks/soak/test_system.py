"""The whole system in one process: served clusters, applications and a mirror under faults."""

import json
from pathlib import Path

import pytest

from kafka_eos.group_coordinator import GroupCoordinator
from kafka_eos.server.cluster import Machines
from kafka_eos_checks import cli
from kafka_eos_checks.mutants import mutated
from kafka_eos_checks.soak import whole
from kafka_eos_checks.soak.whole import KINDS, Outcome, Whole, run_whole, shrunk, verdict_of

ABORTED_OFFSETS_COUNT = Machines(group=mutated(GroupCoordinator, {"CommittedAtMarker": "MaterialisedOnAbort"}))


def first_wrong(machines: Machines) -> Outcome:
    return next(outcome for outcome in (run_whole(seed, machines) for seed in range(60)) if outcome.wrong)


def test_the_same_seed_gives_the_same_run() -> None:
    one, again = run_whole(5), run_whole(5)
    assert (one.events, one.requests, one.milliseconds) == (again.events, again.requests, again.milliseconds)


def test_every_input_is_found_once_in_every_set_up_under_every_kind_of_fault() -> None:
    outcomes = [run_whole(seed) for seed in range(14)]
    assert [outcome.wrong for outcome in outcomes] == [""] * 14
    assert {kind for outcome in outcomes for kind in outcome.faults} == set(KINDS)
    titles = {outcome.title for outcome in outcomes}
    assert {title.split(",")[0] for title in titles} == {"EOS v1", "EOS v2"}
    assert any("mirror" in title for title in titles)


def test_offsets_of_aborted_transactions_that_count_are_found_out_and_cut_down() -> None:
    found = first_wrong(ABORTED_OFFSETS_COUNT)
    assert "found too early" in found.wrong
    fewest = shrunk(found.seed, ABORTED_OFFSETS_COUNT)
    assert fewest.wrong
    assert fewest.faults.total() <= found.faults.total()
    assert fewest.events[-1].endswith(fewest.wrong)


def test_a_run_that_does_not_finish_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MOST_PEACEFUL", 0)
    assert "not everything is processed" in Whole(0).run(requests=3).wrong


def test_a_verdict_counts_requests_and_pairs_of_faults() -> None:
    verdict = verdict_of([run_whole(1)], 0.0)
    assert verdict.ok
    assert int(verdict.figures["requests"]) >= 250
    assert not verdict_of([], 0.0).ok


def test_the_command_runs_seeds_and_one_of_them_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "system.json"
    assert cli.main(["soak", "--system", "--seeds", "0..1", "--jobs", "1", "--json", str(target)]) == 0
    [verdict] = json.loads(target.read_text(encoding="utf-8"))
    assert verdict["figures"]["runs"] == 2
    assert cli.main(["soak", "--system", "--replay", "1"]) == 0
    assert "EOS v2" in capsys.readouterr().out
