"""Histories replayed: what is damaged is told with its place and hides nothing else, and how the command ends."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import Event
from kafka_eos_checks import cli
from kafka_eos_checks.kit.recording import kept_recording, unpack
from kafka_eos_checks.kit.verdict import Verdict, read_verdicts
from kafka_eos_checks.traces import scan
from kafka_eos_checks.traces.clients import DAMAGED, OTHER_BATCHES, SHOWN, NotJudged, client_traces, with_left_out

pytest.importorskip("pyarrow")

ALONE = pytest.param(["--alone"], id="alone")
BOTH = [ALONE, pytest.param([], id="with TLC", marks=pytest.mark.tlc)]

Row = dict[str, Any]


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one-broker")
    unpack(kept_recording("one-broker"), folder)
    return folder / "histories"


@pytest.fixture
def rows(histories: Path) -> list[Row]:
    return [json.loads(line) for line in (histories / "idempotent-lost-acks.jsonl").read_text().splitlines()]


def written(folder: Path, rows: list[Row]) -> Path:
    path = folder / "h.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answer_in(rows: list[Row], partition: int) -> int:
    """The place of an answer without error in a partition, from the middle on."""
    return next(
        place
        for place, row in enumerate(rows)
        if place > len(rows) // 2
        and (row["action"], row["phase"], row.get("partition")) == ("Produce", "ok", partition)
    )


def request_of(rows: list[Row], answer: int) -> int:
    number = rows[answer]["detail"]["request"]
    return next(
        place
        for place, row in enumerate(rows)
        if row["action"] == "Produce" and row["phase"] == "invoke" and row["detail"]["request"] == number
    )


def without_request(rows: list[Row], answer: int) -> None:
    del rows[request_of(rows, answer)]


def doubled(rows: list[Row], answer: int) -> None:
    rows.insert(answer, rows[answer])


def without_producer(rows: list[Row], answer: int) -> None:
    del rows[answer]["producer_id"]


def without_order(rows: list[Row], answer: int) -> None:
    del rows[answer]["order"]


@pytest.mark.parametrize(
    ("damage", "options"),
    [
        *((damage, ["--alone"]) for damage in (without_request, doubled, without_producer, without_order)),
        pytest.param(without_order, [], id="with TLC", marks=pytest.mark.tlc),
    ],
)
def test_a_damaged_partition_is_not_judged_with_its_place_and_the_other_one_is_judged(
    rows: list[Row],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[list[Row], int], None],
    options: list[str],
) -> None:
    answer = answer_in(rows, 1)
    order, run = rows[answer]["order"], rows[answer]["run"]
    damage(rows, answer)
    path, answers = written(tmp_path, rows), tmp_path / "verdicts.json"
    assert cli.main(["check", "traces", str(path), *options, "--json", str(answers)]) == 3
    verdict = read_verdicts(answers)[0]
    assert (verdict.ok, verdict.unknown, verdict.unjudged_for) == (True, 1, {"damaged-history": 1})
    assert (verdict.figures["traces"], verdict.found[:12]) == (1, "all accepted")
    assert verdict.figures["events"] > 0
    event = "event without an order" if damage is without_order else f"event {order}"
    assert f"h.jsonl: run {run}, {event}: " in capsys.readouterr().out


def test_a_damaged_partition_may_be_left_unjudged_if_its_reason_is_allowed(rows: list[Row], tmp_path: Path) -> None:
    without_request(rows, answer_in(rows, 1))
    path = written(tmp_path, rows)
    assert cli.main(["check", "traces", str(path), "--alone", "--allow-unjudged", "damaged-history"]) == 0
    assert cli.main(["check", "traces", str(path), "--alone", "--allow-unjudged", "other-batches"]) == 3


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("lost", [["topic"], ["partition"], ["topic", "partition"]], ids="+".join)
def test_requests_that_name_no_partition_are_not_judged(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: list[str], options: list[str]
) -> None:
    answer = answer_in(rows, 1)
    for place in (answer, request_of(rows, answer)):
        for field in lost:
            del rows[place][field]
    assert cli.main(["check", "traces", str(written(tmp_path, rows)), *options]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "no topic or no partition: h.jsonl: 2 events of action Produce; record again" in said
    assert "1 partition of a damaged history" in said


@pytest.mark.parametrize("options", BOTH)
def test_a_rejected_trace_is_a_failure_even_if_another_one_is_not_judged(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    rows[answer_in(rows, 0)]["offset"] += 1
    without_request(rows, answer_in(rows, 1))
    assert cli.main(["check", "traces", str(written(tmp_path, rows)), *options, "--allow-unjudged"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "0 of 1 accepted; idempotent-lost-acks-0: rejected at event" in said
    assert "1 partition of a damaged history" in said


@pytest.mark.parametrize("options", BOTH)
def test_the_same_partition_in_two_runs_is_two_traces(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    second = [row | {"run": "second"} for row in rows]
    without_request(second, answer_in(second, 1))
    assert cli.main(["check", "traces", str(written(tmp_path, rows + second)), *options]) == 3
    said = capsys.readouterr().out
    assert "traces=3" in said
    assert "idempotent-lost-acks-1 of run second in h.jsonl: h.jsonl: run second, event" in said


@pytest.mark.parametrize("options", BOTH)
def test_a_path_with_nothing_to_replay_does_not_hide_the_others(
    rows: list[Row], options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, empty, others = written(tmp_path, rows), tmp_path / "empty.jsonl", tmp_path / "others.jsonl"
    empty.write_text("")
    request = rows[request_of(rows, answer_in(rows, 0))]
    others.write_text(json.dumps(request | {"transactional_id": "t"}) + "\n")

    def call(*paths: Path) -> int:
        return cli.main(["check", "traces", *map(str, paths), *options])

    assert call(right) == 0
    assert call(empty, right) == 3
    said = capsys.readouterr().out
    assert "not judged empty.jsonl: 1 path with nothing to replay" in said
    assert "traces=2" in said
    assert call(empty, right, Path("--allow-unjudged=nothing-to-replay")) == 0
    assert call(others, right) == 3
    assert "1 partition with batches of a transaction" in capsys.readouterr().out
    assert call(others, right, Path("--allow-unjudged=other-batches")) == 0
    capsys.readouterr()
    assert call(empty, others) == 2
    assert f"{empty}, {others}: nothing to replay; give" in capsys.readouterr().err


def test_a_partition_with_no_answer_has_nothing_to_judge(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = rows[request_of(rows, answer_in(rows, 0))]
    assert cli.main(["check", "traces", str(written(tmp_path, [request])), "--alone"]) == 2
    assert "nothing to replay" in capsys.readouterr().err


@pytest.mark.tlc
def test_a_history_whose_only_offset_is_in_the_first_half_is_judged(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answer_in(rows, 0)
    own = [rows[request_of(rows, answer)], rows[answer]]
    for row in own:
        row.update(base_sequence=0)
    own[1]["offset"] = 0
    refused = [row | {"order": 2_000 + place, "base_sequence": 90} for place, row in enumerate(own * 2)]
    for place, row in enumerate(refused):
        row["detail"] = row["detail"] | {"request": 5_000 + place // 2}
        if row["phase"] == "ok":
            row.update(phase="fail", error=45)
            del row["offset"]
    assert cli.main(["check", "traces", str(written(tmp_path, own + refused))]) == 0
    assert "all accepted" in capsys.readouterr().out


@pytest.mark.parametrize("options", BOTH)
def test_rules_of_a_release_accept_its_finding_and_the_repaired_ones_name_it(
    histories: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    call = ["check", "traces", str(histories / "crash-with-lost-acks.jsonl"), *options]
    assert cli.main(call) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "next: --kafka 4.3 judges by the rules of Kafka 4.3 as it ships" in said
    assert "retry-refused-after-restart" in said
    assert cli.main([*call, "--kafka", "4.3"]) == 0
    assert "by the rules of Kafka 4.3 as it ships\n" in capsys.readouterr().out
    assert cli.main([*call, "--kafka", "1.0"]) == 2
    assert "1.0" in capsys.readouterr().err


def test_the_rules_of_the_release_accept_its_recordings_and_another_offset_is_rejected(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("transactions-3.9", "violations"):
        call = ["check", "traces", str(kept_recording(name)), "--alone", "--kafka", "4.3"]
        assert cli.main(call) == 3
        assert cli.main([*call, "--allow-unjudged", "other-batches"]) == 0
    rows[answer_in(rows, 0)]["offset"] += 1
    assert cli.main(["check", "traces", str(written(tmp_path, rows)), "--alone", "--kafka", "4.3"]) == 1
    said = capsys.readouterr().out
    assert "rejected at event" in said
    assert "next: --kafka" not in said, "the rules are those of the release already"


@pytest.mark.parametrize("piece_bytes", [1 << 25, 10_000])
def test_a_line_that_is_no_event_is_named_by_its_number_in_the_file(
    rows: list[Row],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    piece_bytes: int,
) -> None:
    monkeypatch.setattr(scan.pieces_of, "__defaults__", (piece_bytes,))
    path = written(tmp_path, rows)
    text = path.read_text()
    path.write_text("\n" + text[:-40])
    assert cli.main(["check", "traces", str(path), "--alone"]) == 1
    said = capsys.readouterr().out
    assert f"line {len(rows) + 1}: no JSON: " in said
    assert "line 1 column" not in said
    rows[700]["order"] = "x"
    assert cli.main(["check", "traces", str(written(tmp_path, rows)), "--alone"]) == 1
    assert "line 701: column 'order': expected int, found 'x'; correct this line, or record again" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("options", BOTH)
def test_what_the_judge_of_leaders_does_not_look_at_is_said(
    capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert cli.main(["check", "traces", "example:replicated-violations", *options]) == 3
    assert "sequences, offsets and all other producers are for `kafka-eos audit`" in capsys.readouterr().out


def test_a_reason_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for more in (["logs", "--alone", "--allow-unjudged", "bad"], ["--kafka", "4.3"]):
        with pytest.raises(SystemExit):
            cli.main(["check", "traces", *more])
    said = capsys.readouterr().err
    assert (
        "no reason 'bad'; there are cut-log, damaged-history, incomplete-history, made-again, missing-partition, "
        "no-wire-events, nothing-to-replay, other-batches" in said
    )
    assert "give their PATHs" in said


@pytest.mark.parametrize(("more", "told"), [(0, ""), (1, " and 1 more"), (7, " and 7 more")])
def test_of_many_partitions_that_are_left_out_the_first_are_named_and_the_others_counted(more: int, told: str) -> None:
    code = json.loads(json.dumps(OTHER_BATCHES))  # another object, as in a row of a table
    left_out = [NotJudged(f"t-{number}", code, "left out") for number in range(SHOWN + more)]
    verdict = Verdict(check="trace", name="clients", expected="all accepted", found="all accepted", ok=True)
    evidence = with_left_out(verdict, left_out).evidence
    assert evidence == f"left out: {', '.join(f't-{number}' for number in range(SHOWN))}{told}"
    damaged = [replace(each, code=DAMAGED, reason="gone") for each in left_out]
    shown = with_left_out(verdict, damaged).evidence.splitlines()
    assert shown == [*(f"t-{number}: gone" for number in range(SHOWN)), *([f"… and {more} more"] if more else [])]


def test_a_partition_with_a_batch_without_a_producer_is_left_out() -> None:
    batch = Event(
        run="r", process="p", action="Produce", phase="invoke", topic="t", partition=0, producer_id=-1, base_sequence=-1
    )
    [found] = client_traces([("h.jsonl", batch)], [])
    assert isinstance(found, NotJudged)
    assert (found.name, found.code) == ("t-0", OTHER_BATCHES)
