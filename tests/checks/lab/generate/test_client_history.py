"""Generated histories: in the format of histories, joined with the logs without a finding, and with planted ones."""

import json
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.consumer_offsets import OffsetCommitKey, OffsetCommitValue, decode_key, decode_value
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import TOPIC as STATE_TOPIC
from kafka_eos.histories.history import read_history
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.rules.applications import FENCED_GENERATION, INPUT_RULES
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES, REFUSED
from kafka_eos_checks.audit.rules.readers import READER_RULES
from kafka_eos_checks.audit.rules.sent_offsets import NOT_AS_SENT
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.recording import kept_recordings
from kafka_eos_checks.lab.generate import traffic
from kafka_eos_checks.lab.generate.cluster import HISTORIES, Cluster
from kafka_eos_checks.lab.generate.traffic import Workload


def cluster(seed: int, faults: int = 0, value_bytes: int = 16, transactions: int = 200) -> Cluster:
    workload = Workload(transactions=transactions, batches=2000, partitions=6, clients=10, seed=seed)
    return Cluster(workload=workload, value_bytes=value_bytes, history=True, faults=faults)


@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_history_has_no_finding_and_nothing_unknown(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "SLICE_BATCHES", [300, 1 << 20][seed % 2])
    monkeypatch.setattr(traffic, "PARTITION_BATCHES", 1)
    made = cluster(seed, transactions=600).write(tmp_path)
    result = run([tmp_path])
    assert [finding.in_words() for finding in (*result.findings, *result.notes)] == []
    assert result.unknown == 0
    verdicts = {verdict.name: verdict for verdict in result.verdicts}
    requests = (NOT_AS_SENT, FENCED_GENERATION)
    assert int(verdicts[REFUSED].figures["checked"]) > 0
    for rule in (*READER_RULES, *INPUT_RULES, *requests, "acknowledged but lost", "duplicate value"):
        assert int(verdicts[rule].figures["checked"]) >= 3, rule
        assert verdicts[rule].unjudged == ""
    assert verdicts["acknowledged but lost"].figures["events"] == made.events


def test_events_are_those_that_the_reference_writes_and_in_order(tmp_path: Path) -> None:
    made = cluster(1, value_bytes=20).write(tmp_path)
    [path] = (tmp_path / HISTORIES).iterdir()
    events = list(read_history(path))
    assert [event.order for event in events] == list(range(made.events))
    assert [event.to_json() for event in events] == path.read_text(encoding="utf-8").splitlines()
    actions = Counter((event.action, event.phase) for event in events)
    assert actions["Send", "invoke"] == actions["Send", "ok"] > 2000
    assert actions["Poll", "ok"] > 1000
    assert actions["CommitTransaction", "ok"] > actions["AbortTransaction", "ok"] > 5
    assert actions["Crash", "info"] > 0
    assert {len(str(event.detail["value"])) for event in events if "value" in event.detail} == {20}


REQUESTS = {
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "EndTxn",
    "InitProducerId",
    "JoinGroup",
    "Produce",
    "TxnOffsetCommit",
}
Form = tuple[object, ...]


def forms(lines: Iterable[bytes | str]) -> Iterator[tuple[Form, dict[str, Any]]]:
    """The requests and answers of a history: their actions, phases and columns, in order; a member's name left out."""
    for event in map(json.loads, lines):
        if event["action"] in REQUESTS:
            detail = tuple(name for name in event["detail"] if name not in {"member", "fault"})
            yield (event["action"], event["phase"], tuple(event), detail), event


def test_requests_have_the_form_of_those_that_are_recorded_between_real_clients_and_brokers(tmp_path: Path) -> None:
    recorded, kept = set[Form](), {path.name: path for path in kept_recordings()}
    for archive in ("transactions.tar.xz", "applications.tar.xz"):
        with tarfile.open(kept[archive]) as files:
            for member in files:
                history = files.extractfile(member) if member.name.endswith(".jsonl") else None
                recorded |= {form for form, _ in forms(history or ())}
    cluster(1, transactions=2000).write(tmp_path)
    [path] = (tmp_path / HISTORIES).iterdir()
    made = list(forms(path.read_text(encoding="utf-8").splitlines()))
    assert {form for form, _ in made} <= recorded
    requests: dict[tuple[int, int], set[int]] = defaultdict(set)
    for detail in (event["detail"] for _, event in made):
        requests[detail["connection"], detail["correlation"]].add(detail["request"])
    assert {len(numbers) for numbers in requests.values()} == {1}, "a connection uses no correlation id twice"
    errors = Counter((event["action"], event["error"]) for _, event in made if event["phase"] == "fail")
    assert errors.keys() >= {
        *((action, ErrorCode.CONCURRENT_TRANSACTIONS) for action in ("AddPartitionsToTxn", "Produce")),
        *((action, ErrorCode.INVALID_PRODUCER_EPOCH) for action in ("AddPartitionsToTxn", "Produce", "EndTxn")),
        ("EndTxn", ErrorCode.PRODUCER_FENCED),
    }
    undelivered = Counter(event["action"] for _, event in made if not event["detail"].get("delivered", True))
    asked = Counter(event["action"] for _, event in made if event["phase"] == "invoke")
    lost = asked - Counter(event["action"] for _, event in made if event["phase"] != "invoke")
    assert undelivered.keys() == {"Produce", "EndTxn"}
    assert lost.keys() == {"Produce", "EndTxn", "TxnOffsetCommit"}


def test_requests_agree_with_the_logs(tmp_path: Path) -> None:
    """Each batch, at its time, and each committed offset in the logs has one request that was answered with it."""
    cluster(2).write(tmp_path)
    [path] = (tmp_path / HISTORIES).iterdir()
    events = [event for event in read_history(path) if event.phase == "ok" and event.detail.get("delivered", True)]
    of_producer = attrgetter("producer_id", "producer_epoch", "base_sequence")
    stored, committed = Counter[tuple[object, ...]](), Counter[tuple[object, ...]]()
    for log in find_logs(tmp_path / "brokers" / "1"):
        for name in log.segments:
            for each in read_segment(log.file(name)):
                assert isinstance(each, StoredBatch)
                batch, place = each.batch, (log.topic, log.partition)
                if batch.is_control or log.topic == STATE_TOPIC:
                    continue
                if log.topic != OFFSETS_TOPIC:
                    time_us = batch.base_timestamp * 1000
                    stored[*place, batch.base_offset, *of_producer(batch), batch.record_count, time_us] += 1
                elif batch.is_transactional:
                    [record] = batch.records()
                    key, value = decode_key(record.key or b""), decode_value(record.value or b"")
                    assert isinstance(key, OffsetCommitKey)
                    assert isinstance(value, OffsetCommitValue)
                    committed[key.group, key.topic, key.partition, value.offset, *of_producer(batch)[:2]] += 1
    sent = Counter(
        (event.topic, event.partition, event.offset, *of_producer(event), event.record_count, event.time_us)
        for event in events
        if event.action == "Produce"
    )
    offsets = Counter(
        (event.group, event.topic, event.partition, event.detail["committed_offset"], *of_producer(event)[:2])
        for event in events
        if event.action == "TxnOffsetCommit"
    )
    assert (sent, offsets) == (stored, committed)


def test_clients_of_version_1_add_the_partitions_that_they_write_to_and_those_of_version_2_none(tmp_path: Path) -> None:
    cluster(2).write(tmp_path)
    [path] = (tmp_path / HISTORIES).iterdir()
    added, written = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    ends = Counter[bool]()
    for event in read_history(path):
        name, partition = event.transactional_id, event.partition
        if event.phase != "ok" or name is None:
            continue
        if event.action in {"AddPartitionsToTxn", "Produce"}:
            assert partition is not None
            (written if event.action == "Produce" else added)[name].add(partition)
        elif event.action == "EndTxn":
            is_of_2 = "next_producer_epoch" in event.detail
            assert added[name] == set() if is_of_2 else added[name] >= written[name], event
            ends[is_of_2] += bool(written[name])
            added[name], written[name] = set(), set()
    assert min(ends[False], ends[True]) > 20


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 6))])
def test_the_audit_finds_what_is_planted_in_a_history_and_nothing_else(tmp_path: Path, seed: int) -> None:
    faults = 1 + seed % 2
    workload = Workload(transactions=400, batches=2500, partitions=6, clients=12, seed=seed)
    made = Cluster(workload=workload, value_bytes=16, history=True, faults=faults).write(tmp_path)
    planted = Counter((row["rule"], row["topic"], row["partition"], row["offset"]) for row in made.planted)
    assert Counter(row["rule"] for row in made.planted) == dict.fromkeys(HISTORY_RULES, faults)
    result = run([tmp_path])
    assert Counter((f.rule, f.topic, f.partition, f.offset) for f in result.findings) == planted
    figures = {verdict.name: verdict.figures for verdict in result.verdicts}
    assert int(figures[REFUSED]["checked"]) > faults
    assert int(figures[NOT_AS_SENT]["checked"]) > 100
    assert result.unknown == 0
    assert result.notes == ()
    assert {verdict.name for verdict in result.verdicts if not verdict.ok} == set(HISTORY_RULES)


def test_the_command_plants_in_the_history_where_one_is_written(tmp_path: Path) -> None:
    made = tmp_path / "made"
    arguments = ["--transactions", "400", "--batches", "2500", "--clients", "12", "--value-bytes", "16", "--seed", "2"]
    assert main(["lab", "generate", str(made), *arguments, "--history", "--faults", "1"]) == 0
    rows = [json.loads(line) for line in (made / "planted.jsonl").read_text(encoding="utf-8").splitlines()]
    assert Counter(row["rule"] for row in rows) == dict.fromkeys(HISTORY_RULES, 1)
    findings = run([made]).findings
    assert {(f.rule, f.topic, f.partition, f.offset) for f in findings} == {
        (row["rule"], row["topic"], row["partition"], row["offset"]) for row in rows
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--headers"], "--history: not with --headers"),
        (["--value-bytes", "15"], "--value-bytes 15: with --history give 16 or more"),
        (["--value-bytes", "16", "--faults", "50"], "room for "),
    ],
)
def test_a_history_that_cannot_be_made_is_refused(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "generate", str(tmp_path / "made"), "--transactions", "50", "--history", *arguments]) == 2
    assert says in capsys.readouterr().err
