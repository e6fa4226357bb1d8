"""Comparisons: equality of answers, figures, and missing peers. No test asserts a time."""

from itertools import count

import pytest

from kafka_eos_checks.kit.terminal import answer_console
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.bench import measure as measuring
from kafka_eos_checks.lab.bench.command import tables
from kafka_eos_checks.lab.bench.measure import (
    Answer,
    Measured,
    Sample,
    Side,
    Work,
    difference,
    measure,
    module_or_reason,
    own_verdict,
    peer_verdict,
    sampled_cpu,
    short,
    spent,
    spread,
    verdicts,
    without_start,
)

WORK = Work(part="codec", name="large", given="10 records", amount=10, unit="records/s")
OURS, PEER = Side(name="ours", run=lambda: {"records": 10}), Side(name="peer", run=lambda: {"records": 10})


def made(ours: list[float], theirs: list[float], answer: Answer | None = None) -> Measured:
    samples = {"ours": [Sample(wall, wall) for wall in ours], "peer": [Sample(wall, None) for wall in theirs]}
    return Measured(samples=samples, answers={"ours": {"records": 10}, "peer": answer or {"records": 10}})


def test_a_ratio_is_taken_within_each_round() -> None:
    verdict = peer_verdict(WORK, OURS, PEER, made([1.0, 2.0, 4.0], [2.0, 8.0, 12.0]))
    assert verdict.ok
    assert verdict.found == "equal results"
    assert verdict.figures["ratio"] == 3.0
    assert verdict.figures["ratio_range"] == "2-4"
    assert (verdict.figures["ours"], verdict.figures["theirs"]) == (5.0, 1.25)
    assert verdict.figures["cpu_seconds"] == 2.0
    assert "their_cpu_seconds" not in verdict.figures


def test_different_results_are_no_comparison() -> None:
    verdict = peer_verdict(WORK, OURS, PEER, made([1.0], [2.0], {"records": 9}))
    assert not verdict.ok
    assert verdict.found == "results differ: records 10 and 9"


def test_answers_are_compared_by_the_names_they_share() -> None:
    assert difference({"records": 1, "bytes": 2}, {"records": 1, "offsets": 5}) == ""
    assert difference({"records": 1, "bytes": 2}, {"bytes": 3}) == "bytes 2 and 3"


def test_answers_without_a_common_name_are_not_equal() -> None:
    assert difference({"records": 1}, {"bytes": 1}) == "nothing to compare: records and bytes"
    assert difference({}, {})


def test_an_answer_that_changes_between_rounds_is_reported() -> None:
    numbers = count()
    changing = Side(name="ours", run=lambda: {"records": next(numbers)})
    measured = measure([changing, PEER], 2, label="test")
    assert not own_verdict(WORK, changing, measured).ok
    assert not peer_verdict(WORK, changing, PEER, measured).ok


def test_sides_take_turns_and_the_warm_up_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SHORTEST", 0.0)
    turns: list[str] = []

    def turn(name: str) -> Answer:
        turns.append(name)
        return {"turns": 1}

    sides = [Side(name=name, run=lambda name=name: turn(name)) for name in "ab"]
    measured = measure(sides, 3, label="test")
    assert "".join(turns) == "ab" * 4
    assert [len(samples) for samples in measured.samples.values()] == [3, 3]


def test_the_cpu_time_of_a_side_is_that_of_doing_its_work_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "tree_cpu", dict)
    monkeypatch.setattr(measuring, "spent", lambda *_: 42.0)
    side = Side(name="ours", run=lambda: {"records": 10}, in_process=True, times=2)
    sample, answer = measuring._sample(side, 3)
    assert (sample.cpu, answer) == (7.0, {"records": 10})


def test_a_thorough_check_is_part_of_the_answer() -> None:
    thorough = Side(name="ours", run=lambda: {"records": 10}, check=lambda: {"checksum": 7})
    wrong = Side(name="peer", run=lambda: {"records": 10}, check=lambda: {"checksum": 8})
    measured = measure([thorough, wrong], 1, label="test", warm_up=False)
    assert peer_verdict(WORK, thorough, wrong, measured).found == "results differ: checksum 7 and 8"


def test_a_missing_peer_is_named_with_the_reason() -> None:
    absent = Side(name="peer", absent="no java on the path")
    measured = measure([OURS, absent], 1, label="test", warm_up=False)
    own, skipped = verdicts(WORK, OURS, [absent], measured)
    assert (own.ok, own.figures["unit"]) == (True, "records/s")
    assert skipped.found == "skipped: no java on the path"
    assert skipped.ok
    assert "ratio" not in skipped.figures


def test_without_our_own_side_every_peer_is_skipped() -> None:
    absent = Side(name="ours", absent="no Spark")
    found = verdicts(WORK, absent, [PEER], measure([absent, PEER], 1, label="test", warm_up=False))
    assert [verdict.found for verdict in found] == ["skipped: no Spark"]


def test_a_missing_package_is_named_with_the_remedy() -> None:
    module, reason = module_or_reason("a_package_that_nobody_wrote")
    assert module is None
    assert "a_package_that_nobody_wrote" in reason
    assert "kafka-eos[bench]" in reason


def test_the_table_of_a_peer_that_is_not_installed_shows_the_extra_that_has_it() -> None:
    _, reason = module_or_reason("a_package_that_nobody_wrote")
    verdict = Verdict(check="bench", name="replay: ours against it", expected="equal results", found=reason, ok=True)
    with answer_console.capture() as shown:
        answer_console.print(*tables([verdict], "replay"))
    assert "'kafka-eos[bench]'" in "".join(shown.get().split())


def test_a_process_that_ended_meanwhile_takes_no_cpu_time_away() -> None:
    assert spent({1: 5.0, 7: 3.0}, {1: 6.5, 8: 0.5}) == 2.0


def test_without_psutil_there_is_no_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "module_or_reason", lambda name: (None, f"no {name}"))
    assert measuring.tree_cpu() is None
    with sampled_cpu() as total:
        pass
    assert total() is None
    assert "cpu_seconds" not in own_verdict(WORK, OURS, measure([OURS], 1, label="test")).figures


def test_the_median_start_is_subtracted_and_the_rest_shared_among_the_times() -> None:
    samples = [Sample(5.0, 1.0, 1.0), Sample(7.0, 1.0, 1.5), Sample(9.0, 1.0, 0.5)]
    assert [sample.wall for sample in without_start(samples, 2)] == [2.0, 3.0, 4.0]


def test_a_run_lost_in_the_noise_of_its_start_is_not_rated() -> None:
    samples = [Sample(1.2, 1.0, 1.0), Sample(1.4, 1.0, 0.8), Sample(1.3, 1.0, 1.3)]
    lost = without_start(samples, 1)
    assert [sample.wall for sample in lost] == [0.0] * 3
    measured = made([1.0, 1.0, 1.0], [1.0])
    measured.samples["peer"] = lost
    verdict = peer_verdict(WORK, OURS, Side(name="peer", start=dict), measured)
    assert verdict.found == "equal results; too short next to its own start to be rated"
    assert [": not rated; wall" in line for line in verdict.evidence.splitlines()] == [False, True]
    measured.samples |= {"ours": lost, "peer": [Sample(1.0, 1.0)] * 3}
    assert peer_verdict(WORK, OURS, PEER, measured).found == verdict.found
    assert "ratio" not in verdict.figures
    assert verdict.figures["their_start_seconds"] == 1.0


@pytest.mark.parametrize(
    ("unit", "target", "cpu", "words"),
    [
        ("records/s", 4.0, 2.0, "target 4 met"),
        ("records/s", 6.0, 2.0, "target 6 missed"),
        ("records/s", 6.0, 1.0, "target 6 missed by wall time, met by CPU time"),
        ("s", 3.0, 2.0, "target 3 met"),
        ("s", 1.0, 2.0, "target 1 missed"),
    ],
)
def test_a_target_is_given_in_words_and_decides_nothing(unit: str, target: float, cpu: float, words: str) -> None:
    work = Work(part="p", name="n", given="g", amount=10, unit=unit, target=target, per_core=True)
    measured = Measured(samples={"ours": [Sample(2.0, cpu)]}, answers={"ours": {"n": 1}})
    verdict = own_verdict(work, OURS, measured)
    assert verdict.found == f"the same each round; {words}"
    assert verdict.ok
    assert verdict.figures["target"] == target


def test_numbers_are_short() -> None:
    assert [short(value) for value in (0.01234, 12.34, 1234.0, 1.5e6, 3.456e9)] == [
        "0.0123",
        "12.3",
        "1.23 k",
        "1.5 M",
        "3.46 G",
    ]
    assert spread([2.0e6, 1.0e6]) == "1-2 M"
    assert spread([2.0e6, 1.0e3]) == "1 k-2 M"
