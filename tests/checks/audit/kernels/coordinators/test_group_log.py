"""The fold of ``__consumer_offsets`` by columns against the readable rule, whatever the cuts are."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import strategies as st

from kafka_eos.formats.consumer_offsets import TOPIC, OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.record_batch import ControlRecord, ControlType, Record, build_batch, build_control_batch
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.inputs import open_inputs
from kafka_eos_checks.audit.internal_topics.commits import CommitChunk, commit_rows, concatenate_commits, name_of
from kafka_eos_checks.audit.kernels.coordinators.group_log import (
    Ended,
    GroupFacts,
    count_commits,
    end_transactions,
    fold_group_log,
    next_markers,
    read_group_log,
)
from kafka_eos_checks.audit.kernels.logs.transactions import Partition
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.rules.offsets import (
    BEYOND,
    OFFSET_RULES,
    WENT_BACK,
    Commit,
    Ends,
    GroupLog,
    Name,
    beyond_the_end,
    follow_group_log,
    went_back,
)
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.audit.segments.contents import Figures
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs, plan
from kafka_eos_checks.conform.wire import Wire, address_of

from ...conftest import drawn, in_both

RANDOMS = st.randoms(use_true_random=False)
KEYS = [OffsetCommitKey(group=group, topic="t", partition=0).encode() for group in ("g", "é", "h")]


def record_of(rng: random.Random, delta: int, now: int, faults: float, back: int) -> Record:
    value = OffsetCommitValue(version=rng.randrange(5), offset=4 * now + rng.choice((0, 1, 1, back))).encode()
    key = bytes((0, rng.choice((2, 3, 5, 7, 16)))) + b"other" if rng.random() < 0.1 else rng.choice(KEYS)
    kept = rng.choice((value, value, value, value, None, b"\0\7" if rng.random() < faults else value))
    return Record(offset_delta=delta, key=key, value=kept)


def batches_of(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Batches with their offsets: commits in transactions and outside, markers, tombstones, and faults by chance."""
    offset, faults, holes = rng.choice((0, 0, 5)), rng.choice((0.0, 0.05, 0.2)), rng.choice((0.0, 0.0, 0.1))
    back = rng.choice((2, -12))
    for now in range(rng.randint(1, 40)):
        if rng.random() < holes:
            offset += rng.choice((1, 7))
        if rng.random() < faults:
            offset = max(0, offset + rng.choice((-3, -1)))
        producer = rng.randrange(3)
        size = 1
        if rng.random() < 0.3:
            kind = rng.choice((ControlType.COMMIT, ControlType.COMMIT, ControlType.ABORT))
            marker = ControlRecord(control_type=kind, coordinator_epoch=0)
            data = build_control_batch(marker, producer_id=producer, producer_epoch=0, base_offset=offset).encode()
        else:
            size = rng.choice((1, 1, 3))
            transactional = rng.random() < 0.6
            data = build_batch(
                [record_of(rng, delta, now, faults, back) for delta in range(size)],
                base_offset=offset,
                base_timestamp=1_700_000_000_000 + now,
                producer_id=producer if transactional else -1,
                producer_epoch=0 if transactional else -1,
                is_transactional=transactional,
            ).encode()
        yield offset, data[:-1] + bytes([data[-1] ^ (rng.random() < faults / 4)])
        offset += size


@contextmanager
def random_log(rng: random.Random) -> Iterator[PartitionLog]:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, f"{TOPIC}-0")
        made = list(batches_of(rng))
        cut = rng.randint(1, len(made))
        write_segment(folder / f"{0:020d}.log", [data for _, data in made[:cut]])
        if made[cut:]:
            write_segment(folder / f"{max(made[cut][0], 1):020d}.log", [data for _, data in made[cut:]])
        [log] = find_logs(folder)
        yield log


def chunks_of(log: PartitionLog, block_bytes: int, split_bytes: int) -> list[CommitChunk]:
    with mock.patch.object(headers, "BLOCK_BYTES", block_bytes):
        return [chunk for split in plan([log], split_bytes) for chunk in commit_rows(split)]


def falls(commits: list[Commit]) -> bool:
    offsets = [commit.offset for commit in commits]
    return any(one is not None and other is not None and other < one for one, other in pairwise(offsets))


def agree(by_columns: GroupLog, expected: GroupLog) -> None:
    assert list(by_columns.commits.items()) == list(expected.commits.items())
    for name in ("log", "end", "holes", "whole", "stamped_ms"):
        assert getattr(by_columns, name) == getattr(expected, name)
    assert by_columns.counted is not None
    falling = [name_of(by_columns.counted.keys[number]) for number in by_columns.counted.falling().tolist()]
    assert falling == [name for name, commits in expected.commits.items() if falls(commits)]
    own: Figures = {"checked": 0, "unknown": 0}
    figures = dict(own)
    assert list(went_back([by_columns], own)) == list(went_back([expected], figures))
    assert own == figures


@drawn(RANDOMS, st.sampled_from([61, 400, 1 << 20]), st.sampled_from([1, 1 << 30]), few=25)
def test_any_log_in_any_cuts_is_folded_as_the_readable_rule_does(
    rng: random.Random, block_bytes: int, split_bytes: int
) -> None:
    with random_log(rng) as log:
        agree(fold_group_log(log, chunks_of(log, block_bytes, split_bytes)), follow_group_log(log))


@in_both("count", 50, 200)
def test_the_plan_finds_what_went_back_or_is_beyond_the_end_with_the_records_at_the_edges_of_chunks(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = found = past = 0
    for seed in range(count):
        rng = random.Random(seed)
        with random_log(rng) as log:
            monkeypatch.setattr(headers, "BLOCK_BYTES", rng.choice((1000, 1 << 20, 1 << 20)))
            figures: dict[str, Figures] = {rule: {"checked": 0, "unknown": 0} for rule in OFFSET_RULES}
            readable = follow_group_log(log)
            named = {place for _, place in readable.commits}
            empty = {place: Partition(log=PartitionLog("", *place, "", ("0.log",))) for place in named}
            ends = Ends(empty, frozenset(), AT_ONE_MOMENT)
            monkeypatch.setattr(stages, "_ends_of", lambda *_, ends=ends: ends)
            beyond = [replace(each, time_ms=None) for each in beyond_the_end(readable, ends, figures[BEYOND])]
            back = list(went_back([readable], figures[WENT_BACK]))
            engine = LocalEngine()
            scanned = stages.scan_logs([log], engine, split_bytes=rng.choice((1000, 1 << 30, 1 << 30)))
            own, own_figures = stages.audit_offsets(scanned, engine)
            rows = [value for rows in scanned.rows for _, value in engine.collect(stages.COMMITS, rows)]
            told = [replace(each, time_ms=None) for each in own]
            assert sorted(told, key=Finding.sort_key) == sorted([*back, *beyond], key=Finding.sort_key)
        assert own_figures == ({log: figures} if scanned.audits[0].batches else {})
        left_out += sum(number for _, number in rows)
        found, past = found + len(back), past + len(beyond)
    assert left_out > count / 8
    assert found > count / 8
    assert past > count / 8


@in_both("count", 60, 300)
def test_logs_agree_and_most_names_are_counted_by_columns(count: int) -> None:
    counted = followed = found = unknown = 0
    for seed in range(count):
        rng = random.Random(seed)
        with random_log(rng) as log:
            expected = follow_group_log(log)
            by_columns = fold_group_log(log, chunks_of(log, rng.choice((61, 500, 1 << 20)), 1 << 30))
        agree(by_columns, expected)
        assert by_columns.counted is not None
        counted += len(by_columns.counted.commits)
        followed += by_columns.counted.followed
        figures: Figures = {"checked": 0, "unknown": 0}
        found += len(list(went_back([expected], figures)))
        unknown += int(figures["unknown"])
    assert counted > 3 * count
    assert followed > count / 30
    assert found > count / 6
    assert unknown > count / 60


@drawn(RANDOMS, few=12, many=40)
def test_producers_and_then_names_may_be_folded_in_any_groups(rng: random.Random) -> None:
    with random_log(rng) as log:
        expected = follow_group_log(log)
        chunks = chunks_of(log, 400, 1 << 30)
    facts = GroupFacts.of(log, [chunk.bare() for chunk in rng.sample(chunks, len(chunks))])
    commits = concatenate_commits([chunk.commits for chunk in chunks])
    ended = [end_transactions(commits.take(commits.producer_id % 2 == part), facts) for part in (0, 1)]
    found: dict[Name, list[Commit]] = {}
    for part in range(len(commits.keys)):
        counted = count_commits(some_of(ended, part), facts)
        found |= {name_of(key): counted.of(number) for number, key in enumerate(counted.keys)}
    assert found == dict(expected.commits)


def some_of(ended: list[Ended], name: int) -> Ended:
    """The commits of one name in all logs."""
    rows = [np.flatnonzero(each.commits.key == name) for each in ended]
    columns = {
        column: np.concatenate([getattr(each, column)[own] for each, own in zip(ended, rows, strict=True)])
        for column in ("number", "ended", "holes", "committed")
    }
    commits = concatenate_commits([each.commits.take(own) for each, own in zip(ended, rows, strict=True)])
    return Ended(commits, **columns)


RECORDINGS = Path(audit.__file__).parents[2] / "recordings"


@in_both("left_out", {"one-broker.tar.xz", "transactions-3.9.tar.xz"}, set())
def test_the_kept_recordings_are_folded_as_the_readable_rule_does(left_out: set[str]) -> None:
    found = []
    for recording in sorted(each for each in RECORDINGS.glob("*.tar.xz") if each.name not in left_out):
        with open_inputs([recording], []) as inputs:
            for log in inputs.logs:
                if log.topic == TOPIC and log.has_records:
                    found.append(read_group_log(log))
                    agree(found[-1], follow_group_log(log))
    assert sum(len(commits) for each in found for commits in each.commits.values()) > 50


def test_records_of_members_between_those_of_offsets_are_passed_over(tmp_path: Path) -> None:
    with ServedCluster(data=tmp_path) as served:
        wire = Wire(address_of(served.bootstrap_servers), caps={"OffsetCommit": 9})
        wire.connect()
        topics = [{"Name": "t", "NumPartitions": 1, "ReplicationFactor": 1}]
        wire.ask("CreateTopics", {"Topics": topics, "timeoutMs": 10_000})
        row: Message = {"GroupId": "g", "MemberId": "a", "MemberEpoch": 0, "RebalanceTimeoutMs": 5_000}
        row |= {"SubscribedTopicNames": ["t"], "TopicPartitions": []}
        for offset in (1, 2):
            epoch = wire.ask("ConsumerGroupHeartbeat", row)["MemberEpoch"]
            part = {"PartitionIndex": 0, "CommittedOffset": offset, "CommittedMetadata": ""}
            commit: Message = {"GroupId": "g", "MemberId": "a", "GenerationIdOrMemberEpoch": epoch}
            wire.ask("OffsetCommit", commit | {"Topics": [{"Name": "t", "Partitions": [part]}]})
            wire.ask("ConsumerGroupHeartbeat", row | {"MemberEpoch": -1})
        wire.close()
    logs = [each for each in find_logs(tmp_path) if each.topic == TOPIC]
    found = [read_group_log(log) for log in logs]
    for log, each in zip(logs, found, strict=True):
        agree(each, follow_group_log(log))
        assert each.whole
    commits = [(name, commit.offset) for each in found for name, own in each.commits.items() for commit in own]
    assert commits == [(("g", ("t", 0)), 1), (("g", ("t", 0)), 2)]


def test_an_aborted_commit_does_not_count_where_offsets_go_back(tmp_path: Path) -> None:
    def commit(at: int, offset: int, **of_producer: int) -> bytes:
        record = Record(key=KEYS[0], value=OffsetCommitValue(version=3, offset=offset).encode())
        transactional = bool(of_producer)
        return build_batch([record], base_offset=at, is_transactional=transactional, **of_producer).encode()

    own = {"producer_id": 1, "producer_epoch": 0}
    abort = build_control_batch(
        ControlRecord(control_type=ControlType.ABORT, coordinator_epoch=0), base_offset=7, **own
    )
    batches = [commit(0, 10), commit(5, 11), commit(3, 12), commit(6, 13, **own), abort.encode()]
    write_segment(tmp_path / f"{TOPIC}-0" / f"{0:020d}.log", batches)
    [log] = find_logs(tmp_path)
    expected = follow_group_log(log)
    found = fold_group_log(log, chunks_of(log, 1 << 20, 1 << 30))
    agree(found, expected)
    assert found.counted is not None
    assert found.counted.followed == 1
    assert [each.offset for own_commits in found.commits.values() for each in own_commits] == [10, 11, 12]


def test_a_row_without_a_later_marker_of_its_producer_has_none() -> None:
    is_marker = np.array([False, False, True, False, False, False, True])
    assert next_markers(np.array([7, 8, 7, 8, 7, 9, 8]), is_marker).tolist() == [2, 6, 2, 6, -1, -1, 6]


def test_a_chunk_without_records_is_no_hole_and_those_after_it_go_on_from_the_chunk_before() -> None:
    log = PartitionLog("", "__consumer_offsets", 0, "", ())
    nothing = concatenate_commits([])
    chunks = [
        CommitChunk(
            split=split, start=start, segment=f"{split}", records=records, first_offset=first, end_offset=end,
            holes=holes, damaged=damaged, stamped_ms=stamped, commits=nothing,
            undecoded=(),
        )
        for split, start, records, first, end, holes, damaged, stamped in (
            (0, 0, 3, 0, 4, 1, False, 5), (0, 9, 0, -1, -1, 0, False, -1), (1, 0, 2, 4, 6, 0, False, 3),
            (1, 7, 1, 8, 9, 2, True, 4),
        )
    ]  # fmt: skip
    places = {(0, 0): (0, 0, "0"), (0, 9): (3, 1, "0"), (1, 0): (3, 1, "1"), (1, 7): (5, 2, "1")}
    assert GroupFacts.of(log, chunks[::-1]) == GroupFacts(log, 9, 4, False, 5, places)
    assert GroupFacts.of(log, chunks[2:3]) == GroupFacts(log, 6, 1, False, 3, {(1, 0): (0, 1, "1")})
    assert GroupFacts.of(log, chunks[1:2]) == GroupFacts(log, chunks={(0, 9): (0, 0, "0")})
