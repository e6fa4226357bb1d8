"""The whole system in one process: served clusters, applications and a mirror under faults."""

import json
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from kafka_eos.machines.group_coordinator import GroupCoordinator
from kafka_eos.server.cluster import Machines
from kafka_eos.server.handlers.request import served_versions
from kafka_eos.server.transactions import Coordinators
from kafka_eos_checks import cli
from kafka_eos_checks.models.findings import read_findings
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.walks import whole
from kafka_eos_checks.walks.served_application import GROUP, INPUT, VERSIONS, Answering, Application
from kafka_eos_checks.walks.served_invariants import Fate
from kafka_eos_checks.walks.whole import EXCUSED, KINDS, SET_UPS, Outcome, Whole, run_whole, shrunk, verdict_of

ABORTED_OFFSETS_COUNT = Machines(group=mutated(GroupCoordinator, {"CommittedAtMarker": "MaterialisedOnAbort"}))


run_once = cache(run_whole)  # the outcome of a seed, which several tests look at


@cache
def first_wrong() -> Outcome:
    outcomes = (run_whole(seed, ABORTED_OFFSETS_COUNT) for seed in range(60))
    return next(outcome for outcome in outcomes if outcome.wrong)


@cache
def fewest_faults(seed: int) -> Outcome:
    return shrunk(seed, ABORTED_OFFSETS_COUNT)


def test_the_same_seed_gives_the_same_run() -> None:
    one, again = run_once(5), run_whole(5)
    assert (one.events, one.requests, one.milliseconds) == (again.events, again.requests, again.milliseconds)


def test_every_input_is_found_once_in_every_setup_under_every_kind_of_fault() -> None:
    outcomes = [run_once(seed) for seed in range(14)]
    assert [outcome.wrong for outcome in outcomes] == [""] * 14
    assert {kind for outcome in outcomes for kind in outcome.faults} == set(KINDS)
    titles = {outcome.title for outcome in outcomes}
    assert {title.split(",")[0] for title in titles} == {"EOS v1", "EOS v2"}
    assert any("mirror" in title for title in titles)
    assert titles <= set(SET_UPS)
    assert all(outcome.finished[Fate.COMMITTED] for outcome in outcomes)
    assert any(outcome.finished[Fate.ABORTED] for outcome in outcomes)


def test_counted_offsets_of_aborted_transactions_are_detected_and_shrunk() -> None:
    found = first_wrong()
    assert "moves with a transaction that is aborted" in found.wrong
    fewest = fewest_faults(found.seed)
    assert fewest.wrong
    assert fewest.faults.total() <= found.faults.total()
    assert fewest.events[-1].endswith(fewest.wrong)


@pytest.mark.parametrize("needed", [frozenset({3, 7}), frozenset({1, 2, 9}), frozenset(range(1, 10)), frozenset()])
def test_a_shrunk_run_has_no_fault_that_can_be_left_out(
    needed: frozenset[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[frozenset[int]] = []

    class Planted:
        """A run of nine faults that goes wrong if it has those that are needed."""

        drawn = 9

        def __init__(self, _: int, allowed: frozenset[int] = frozenset(range(1, 10)), **__: object) -> None:
            self.allowed = allowed

        def run(self) -> Outcome:
            tried.append(self.allowed)
            assert len(tried) < 100
            return Outcome(0, SET_UPS[0], wrong="wrong" if needed <= self.allowed else "")

    monkeypatch.setattr(whole, "Whole", Planted)
    assert shrunk(0).wrong
    assert tried[-1] == needed


def test_a_run_that_does_not_finish_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MOST_PEACEFUL", 0)
    assert "not everything is processed" in Whole(0).run(requests=3).wrong


def test_a_timeout_that_nobody_notices_is_detected_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinators, "time_out", lambda *_: None)
    outcome = run_whole(10)
    assert "ms after its timeout has passed" in outcome.wrong
    assert "restart" not in outcome.faults


def test_of_several_violations_the_first_is_kept_and_told() -> None:
    run = Whole(10)
    for wrong in ("", "first", "second", ""):
        run._judge(wrong)
    assert run.outcome.wrong == "first"
    assert [event.split()[-1] for event in run.outcome.events] == ["first"]


def test_an_input_that_an_application_leaves_out_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Application._read

    def read_too_little(application: Application, number: int) -> Answering:
        values = yield from read(application, number)
        return values[1:]

    monkeypatch.setattr(Application, "_read", read_too_little)
    assert "is found too early" in run_whole(0).wrong


def test_the_last_output_that_an_application_leaves_out_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    produce = Application._produce

    def produce_too_little(application: Application, number: int, inputs: list[bytes]) -> Answering:
        if inputs := [value for value in inputs if value != b"19"]:
            yield from produce(application, number, inputs)

    monkeypatch.setattr(Application, "_produce", produce_too_little)
    monkeypatch.setattr(whole, "MOST_PEACEFUL", 1_000)
    run = Whole(0)
    assert "not everything is processed" in run.run().wrong
    assert run.found == {number: list(range(19)) for number in range(whole.PARTITIONS)}


def test_a_verdict_counts_requests_transactions_and_coverage() -> None:
    verdict = verdict_of([run_once(1)], 0.0)
    assert verdict.ok
    assert int(verdict.figures["requests"]) >= 250
    assert int(verdict.figures["committed"]) >= 20
    assert verdict.figures["set_ups"] == "1/6"
    assert str(verdict.figures["pairs_by_set_up"]).endswith("/216")
    assert "set-up never met: EOS v1, transaction.version 2, mirror" in verdict.evidence
    assert not verdict_of([], 0.0).ok


def test_evidence_names_the_faults_and_pairs_that_no_run_met_and_the_excused_ones() -> None:
    one = Outcome(0, SET_UPS[0], milliseconds=7_500, faults=Counter(crash=1, time=2), excused=Counter(EndTxn=3))
    verdict = verdict_of([one, replace(one, faults=Counter(), excused=Counter())], 0.0)
    assert (verdict.figures["virtual_seconds"], verdict.figures["faults"]) == (15, 3)
    assert "fault never met: freeze" in verdict.evidence
    assert f"pairs of faults never met with {SET_UPS[0]}: crash and crash broker" in verdict.evidence
    assert "crash and time;" not in verdict.evidence
    assert verdict.figures["excused"] == 3
    excuse = "EndTxn not repeated 3 time(s) with transaction.version 1: finding late-end-of-transaction"
    assert excuse in verdict.evidence
    assert "not repeated" not in verdict_of([Outcome(0, SET_UPS[2])], 0.0).evidence


def test_a_set_up_is_named_once() -> None:
    named = [f"EOS v{eos}, transaction.version {version}" for eos in (1, 2) for version in (1, 2)]
    assert sorted(SET_UPS) == sorted([*named, *(f"{name}, mirror" for name in named[:2])])


def test_each_excuse_is_a_finding() -> None:
    assert set(EXCUSED.values()) <= {finding.id for finding in read_findings()}


@pytest.mark.parametrize(
    ("api", "seed", "wrong"),
    [("EndTxn", 17, "is found again"), ("TxnOffsetCommit", 164, "the offset of input-0 goes back")],
)
def test_with_version_1_a_repeated_request_breaks_runs_unless_it_is_excused(
    monkeypatch: pytest.MonkeyPatch, api: str, seed: int, wrong: str
) -> None:
    excused = run_whole(seed)
    assert not excused.wrong
    assert excused.excused[api]
    monkeypatch.setattr(whole, "EXCUSED", {key: finding for key, finding in EXCUSED.items() if key[1] != api})
    outcome = run_whole(seed)
    assert "version 1" in outcome.title
    assert f"the copy of {api} arrives" in "\n".join(outcome.events)
    assert wrong in outcome.wrong


def test_a_violating_run_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = first_wrong().seed
    monkeypatch.setattr(whole, "run_whole", partial(run_whole, machines=ABORTED_OFFSETS_COUNT))
    monkeypatch.setattr(whole, "shrunk", fewest_faults)
    assert cli.main(["check", "walks", "--system", "--replay", str(seed), "--folder", str(tmp_path)]) == 1
    path = tmp_path / f"system-{seed}.svg"
    assert f"diagram: {path}" in "".join(capsys.readouterr().out.splitlines())
    drawn = "".join(ElementTree.fromstring(path.read_text(encoding="utf-8")).itertext())  # noqa: S314 - our own file
    assert "EndTxn" in drawn
    assert "that is aborted" in drawn
    verdict = verdict_of([Outcome(seed, SET_UPS[0], wrong="wrong")], 0.0)
    assert verdict.diagram == path.read_text(encoding="utf-8")


def test_the_command_runs_seeds_and_repeats_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "system.json"
    assert cli.main(["check", "walks", "--system", "--seeds", "0..1", "--jobs", "1", "--json", str(target)]) == 0
    [verdict] = json.loads(target.read_text(encoding="utf-8"))
    assert verdict["figures"]["runs"] == 2
    assert cli.main(["check", "walks", "--system", "--replay", "1"]) == 0
    assert "EOS v2" in capsys.readouterr().out


@pytest.mark.parametrize("api", ["InitProducerId", "AddOffsetsToTxn", "EndTxn"])
def test_processes_use_every_version_that_begins_or_ends_a_transaction(api: str) -> None:
    used = {version for by_api in VERSIONS.values() for version in by_api.get(api, ())}
    assert used == set(served_versions(api))
    assert list(VERSIONS[2]["InitProducerId"]) == list(VERSIONS[1]["InitProducerId"])


@pytest.mark.parametrize(
    ("offsets", "last_stable", "found", "is_done"),
    [
        ((2, 2), 4, 2, True),
        ((2, None), 4, 2, False),
        ((2, 1), 4, 2, False),
        ((2, 2), 3, 2, False),
        ((2, 2), 4, 1, False),
    ],
)
def test_a_run_is_done_when_every_output_is_read_every_offset_is_committed_and_no_transaction_is_open(
    offsets: tuple[int | None, ...], last_stable: int, found: int, is_done: bool
) -> None:
    known = {f"{INPUT}-{n}": None if at is None else SimpleNamespace(offset=at) for n, at in enumerate(offsets)}
    groups = SimpleNamespace(known={GROUP: SimpleNamespace(committed=known.__getitem__)})
    leader = SimpleNamespace(last_stable_offset=last_stable, log_end_offset=4)
    run: Any = SimpleNamespace(
        target=SimpleNamespace(groups=groups),
        found={number: [0] * found for number in range(len(offsets))},
        inputs=2,
        _leader=lambda *_: leader,
    )
    assert whole.Whole._is_done(run) == is_done
