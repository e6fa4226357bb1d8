"""The fold of ``__transaction_state`` by columns against the readable rule, whatever the cuts are."""

import itertools
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import strategies as st

from kafka_eos.formats.transaction_log import (
    TOPIC,
    WRITTEN_STATES,
    TransactionLogKey,
    TransactionLogValue,
)
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.inputs import open_inputs
from kafka_eos_checks.audit.internal_topics.decisions import COLUMNS, Decisions, concatenate_decisions
from kafka_eos_checks.audit.internal_topics.states import StateChunk, concatenate_states, state_rows
from kafka_eos_checks.audit.kernels.coordinators import coordinator_log as coordinators
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import (
    FoldedIds,
    FoldedSlice,
    LogFacts,
    fold_coordinator_log,
    fold_slice,
    fold_states,
    read_coordinator_log,
    transactions,
    with_slices,
)
from kafka_eos_checks.audit.kernels.coordinators.id_slices import sliced_ids
from kafka_eos_checks.audit.kernels.coordinators.matching import Knowledge
from kafka_eos_checks.audit.oracle import random_states
from kafka_eos_checks.audit.oracle.random_states import RandomStates, folder_of, some_kind, write_random_log
from kafka_eos_checks.audit.rules.coordinator import (
    EXHAUSTED_FROM,
    LAST_EPOCH,
    CoordinatorLog,
    TransactionalId,
    follow_coordinator_log,
    read_records,
    wrong_step,
)
from kafka_eos_checks.audit.rules.transactions.coordinators import Coordinators
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs, plan

from ...conftest import drawn, in_both
from ...internal_topics.conftest import states_of

LOG = PartitionLog("", TOPIC, 0, "", ())
RANDOMS = st.randoms(use_true_random=False)


@contextmanager
def random_log(rng: random.Random, kind: RandomStates) -> Iterator[PartitionLog]:
    with tempfile.TemporaryDirectory() as directory:
        folder = folder_of(Path(directory))
        write_random_log(folder, rng, kind)
        [log] = find_logs(folder)
        yield log


def chunks_of(log: PartitionLog, block_bytes: int, split_bytes: int) -> list[StateChunk]:
    with mock.patch.object(headers, "BLOCK_BYTES", block_bytes):
        return [chunk for split in plan([log], split_bytes) for chunk in state_rows(split)]


def agree(by_columns: CoordinatorLog, expected: CoordinatorLog) -> None:
    assert list(by_columns.ids) == list(expected.ids)
    assert dict(by_columns.ids) == expected.ids
    assert replace(by_columns, ids=expected.ids, folded=None) == expected
    assert list(transactions(by_columns.decisions)) == [
        transaction for known in expected.ids.values() for transaction in known.transactions
    ]


@drawn(RANDOMS, st.sampled_from([61, 400, 2000, 1 << 20]), st.sampled_from([1, 3000, 1 << 30]), few=20)
def test_any_log_in_any_cuts_is_folded_as_the_readable_rule_does(
    rng: random.Random, block_bytes: int, split_bytes: int
) -> None:
    with random_log(rng, some_kind(rng)) as log:
        expected = follow_coordinator_log(log)
        agree(fold_coordinator_log(log, chunks_of(log, block_bytes, split_bytes)), expected)


@in_both("count", 40, 200)
def test_logs_of_every_kind_agree_and_most_ids_are_proved(count: int) -> None:
    proved = followed = found = decided = 0
    for seed in range(count):
        rng = random.Random(seed)
        with random_log(rng, some_kind(rng)) as log:
            expected = follow_coordinator_log(log)
            by_columns = fold_coordinator_log(log, chunks_of(log, rng.choice((61, 500, 1 << 20)), 3000))
        agree(by_columns, expected)
        assert by_columns.folded is not None
        followed += by_columns.folded.followed
        proved += expected.records - expected.unreadable - by_columns.folded.followed
        bare = replace(by_columns, ids={})
        kept, sought = Knowledge([bare], [(bare, by_columns.folded)], given=True), Coordinators([expected])
        for pid, epoch in {(t.producer_id, t.marker_epoch) for t in transactions(by_columns.decisions)}:
            assert kept.transactions(pid, epoch) == sought.transactions(pid, epoch)
            assert kept.transactions(pid, epoch) is kept.transactions(pid, epoch), "each is looked for among all others"
        found += len(expected.findings)
        decided += len(by_columns.decisions)
    assert proved > count
    assert followed > count / 4
    assert found > count / 5
    assert decided > 2 * count


@drawn(RANDOMS, few=10, many=30)
def test_ids_may_be_folded_in_any_groups(rng: random.Random) -> None:
    with random_log(rng, some_kind(rng)) as log:
        expected = follow_coordinator_log(log)
        chunks = chunks_of(log, 400, 1 << 30)
    facts = LogFacts.of(log, [chunk.bare() for chunk in rng.sample(chunks, len(chunks))])
    states = concatenate_states([chunk.states for chunk in chunks])
    group = np.array([rng.randrange(3) for _ in states.names], np.int64)
    folded = [fold_states(states.take(group[states.transactional_id] == number), facts) for number in range(3)]
    ids: dict[str, TransactionalId] = {}
    for each in folded:
        ids |= {name: each.transactional_id(number) for number, name in enumerate(each.names)}
    assert ids == expected.ids
    assert sorted((f for each in folded for f in each.findings), key=lambda f: f.offset or 0) == sorted(
        expected.findings, key=lambda f: f.offset or 0
    )
    assert sum(each.unknown for each in folded) == expected.unknown


def test_a_clean_log_needs_no_readable_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given_values: object) -> None:
        raise AssertionError(f"{given_values} need not be followed")

    kind = RandomStates(records=400, ids=4, fault_rate=0, hole_rate=0, damage_rate=0, exhausted=False)
    with random_log(random.Random(5), kind) as log:
        expected = follow_coordinator_log(log)
        monkeypatch.setattr(coordinators, "follow", refused)
        judged: list[tuple[TransactionLogValue | None, TransactionLogValue | None]] = []

        def counted(before: TransactionLogValue | None, after: TransactionLogValue | None) -> str:
            judged.append((before, after))
            return wrong_step(before, after)

        monkeypatch.setattr(coordinators, "wrong_step", counted)
        by_columns = read_coordinator_log(log)
    assert expected.findings == []
    agree(by_columns, expected)
    assert len(judged) < expected.records / 2, "steps that are alike are judged once"


def test_records_after_damage_are_unknown_and_those_before_it_are_judged(tmp_path: Path) -> None:
    kind = RandomStates(records=60, ids=4, fault_rate=0, hole_rate=0, damage_rate=0, exhausted=False)
    folder = folder_of(tmp_path)
    folder.mkdir()
    unknown = 0
    for number in range(4):  # no offset is missing: all that tells is the damage itself
        batches = [batch for batch in random_states._batches(random.Random(number + 20), kind) if batch[0] < 8]
        cut = number
        before, behind = (b"".join(each for _, each in some) for some in (batches[:cut], batches[cut:]))
        (folder / f"{0:020d}.log").write_bytes(before + b"\x01" * 100 + behind)
        [log] = find_logs(folder)
        expected = follow_coordinator_log(log)
        assert (expected.damaged, expected.holes) == (True, 0)
        for block_bytes in (61, 700, 1 << 20):
            agree(fold_coordinator_log(log, chunks_of(log, block_bytes, 1 << 30)), expected)
        unknown += expected.unknown
    assert unknown > 0


def test_damage_is_after_all_splits_before_its_own_and_before_all_behind_whatever_their_bytes_are() -> None:
    facts = LogFacts(PartitionLog("", "t", 0, "", ()), start=0, damage=(1, 50))
    places = SimpleNamespace(split=np.array([0, 0, 1, 1, 2, 2]), position=np.array([10, 90] * 3))
    whole = facts.whole_before(places, np.zeros(6, np.int64))  # type: ignore[arg-type]
    assert whole.tolist() == [True, True, True, False, False, False]


@pytest.mark.parametrize("seed", range(20))
def test_every_step_that_is_proved_is_one_that_the_rule_allows(seed: int) -> None:
    """Steps that are alike in the features must be alike in the rule: each class has one verdict."""
    rng = random.Random(seed)
    kind = RandomStates(records=300, ids=4, fault_rate=0.4, hole_rate=0.1, damage_rate=0)
    with random_log(rng, kind) as log:
        chunks = chunks_of(log, 1 << 20, 1 << 30)
    facts = LogFacts.of(log, chunks)
    states = concatenate_states([chunk.states for chunk in chunks])
    holes = facts.holes_before(states)
    fold = coordinators._Fold(states, facts, holes, facts.whole_before(states, holes))
    rows = np.flatnonzero(~fold.first)
    values: Sequence[TransactionLogValue | None] = list(states.take(fold.order).values())
    expected = [not wrong_step(values[row - 1], values[row]) for row in rows.tolist()]
    assert fold._legal(rows).tolist() == expected
    assert 0 < sum(expected) < len(expected)


Step = tuple[TransactionLogValue | None, TransactionLogValue | None]


def legal_steps() -> list[Step]:
    """A legal step for each pair of states, and version of the client, that a log has; all of format version 1."""
    kind = RandomStates(records=3000, ids=4, fault_rate=0, hole_rate=0, damage_rate=0)
    with random_log(random.Random(7), kind) as log:
        records = list(read_records(log, CoordinatorLog(log)))
    found: dict[object, Step] = {}
    last: dict[str, TransactionLogValue | None] = {}
    for record in records:
        after = record.value and replace(record.value, version=1)
        before = last.get(record.transactional_id)
        last[record.transactional_id] = after
        if wrong_step(before, after):
            continue  # the log leaves out epochs, to come to the last ones
        if after is None or before is None:
            found.setdefault((before is None, after is None), (before, after))
        else:
            rotates, used_up = before.producer_id != after.producer_id, before.producer_epoch >= EXHAUSTED_FROM
            kinds = before.transaction_status, after.transaction_status, after.client_transaction_version
            found.setdefault((*kinds, rotates, used_up), (before, after))
    return list(found.values())


def variants(value: TransactionLogValue) -> Iterator[TransactionLogValue]:
    """The same state with another value in one field."""
    pid, epoch = value.producer_id, value.producer_epoch
    update, start = value.transaction_last_update_timestamp_ms, value.transaction_start_timestamp_ms
    for name, others in {
        "producer_id": (pid + 1, pid + 1000),
        "producer_epoch": (
            0,
            1,
            min(epoch + 1, LAST_EPOCH),
            min(epoch + 2, LAST_EPOCH),
            EXHAUSTED_FROM - 1,
            EXHAUSTED_FROM,
            LAST_EPOCH,
        ),
        "transaction_timeout_ms": (value.transaction_timeout_ms + 1,),
        "transaction_status": sorted(WRITTEN_STATES),
        "transaction_partitions": (None, *random_states.LISTS),
        "transaction_last_update_timestamp_ms": (update + 1, start),
        "transaction_start_timestamp_ms": (-1, start + 1, update),
        "previous_producer_id": (-1, pid, pid + 1),
        "next_producer_id": (-1, pid, pid + 1000, pid + 1001),
        "client_transaction_version": (-1, 0, 1, 2, 3),
        "next_producer_epoch": (-1, 0),
    }.items():
        yield from (replace(value, **{name: other}) for other in others)


def test_a_legal_step_with_another_value_in_one_field_is_told_as_the_rule_does() -> None:
    steps = legal_steps()
    assert len(steps) > 30
    assert sum(map(is_rotation, *zip(*steps, strict=True))) > 2
    for before, after in tuple(steps):
        steps += [(each, after) for each in variants(before)] if before else []
        steps += [(before, each) for each in variants(after)] if after else []
    pairs = [
        (TransactionLogKey(transactional_id=str(number)).encode(), None if value is None else value.encode())
        for number, step in enumerate(steps)
        for value in step
    ]
    states = states_of(pairs)
    count = len(states)
    fold = coordinators._Fold(states, LogFacts(LOG), np.zeros(count, np.int64), np.ones(count, np.bool_))
    told = fold._legal(np.flatnonzero(~fold.first)).tolist()
    expected = [not wrong_step(before, after) for before, after in steps]
    wrong = [step for step, one, other in zip(steps, told, expected, strict=True) if one != other]
    assert wrong == []
    assert expected.count(False) > 1000


def is_rotation(before: TransactionLogValue | None, after: TransactionLogValue | None) -> bool:
    return before is not None and after is not None and before.producer_id != after.producer_id


def test_decisions_of_several_logs_keep_their_names_and_partitions() -> None:
    parts = []
    for seed in range(3):
        with random_log(random.Random(seed), RandomStates(records=80)) as log:
            parts.append(read_coordinator_log(log).decisions)
    merged = concatenate_decisions(parts)
    assert list(transactions(merged)) == [each for part in parts for each in transactions(part)]
    assert len(merged) == sum(map(len, parts)) > 20
    again = Decisions.of(transactions(merged))
    assert list(transactions(again)) == list(transactions(merged))
    for name in COLUMNS:
        assert getattr(again, name).dtype == getattr(merged, name).dtype


RECORDINGS = Path(audit.__file__).parents[2] / "recordings"


@in_both("left_out", {"one-broker.tar.xz", "transactions-3.9.tar.xz"}, set())
def test_the_kept_recordings_are_folded_as_the_readable_rule_does(left_out: set[str]) -> None:
    found = []
    for recording in sorted(each for each in RECORDINGS.glob("*.tar.xz") if each.name not in left_out):
        with open_inputs([recording], []) as inputs:
            for log in inputs.logs:
                if log.topic == TOPIC and log.has_records:
                    found.append(read_coordinator_log(log))
                    agree(found[-1], follow_coordinator_log(log))
    assert sum(len(each.decisions) for each in found) > 100


def test_around_one_wrong_step_in_a_long_log_only_a_few_records_are_followed() -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = folder_of(Path(directory))
        clean = RandomStates(records=900, ids=1, fault_rate=0, hole_rate=0, damage_rate=0, exhausted=False)
        write_random_log(folder, random.Random(3), replace(clean, fault_rate=0.004))
        [log] = find_logs(folder)
        expected = follow_coordinator_log(log)
        by_columns = read_coordinator_log(log)
    agree(by_columns, expected)
    assert expected.findings
    assert by_columns.folded is not None
    assert 0 < by_columns.folded.followed < 200


def in_slices(chunks: Sequence[StateChunk], facts: LogFacts, least: int) -> tuple[FoldedIds, list[FoldedSlice]]:
    """Cut the records of each split, and fold rest and slices each for itself."""
    rest, joints, slices = [], [], []
    for _, own in itertools.groupby(chunks, key=lambda chunk: chunk.split):
        left, cut = sliced_ids(concatenate_states([chunk.states for chunk in own]), least)
        rest.append(left)
        joints += [joint for joint, _ in cut]
        slices += [fold_slice(states, facts, joint) for joint, states in cut]
    return fold_states(concatenate_states(rest), facts, joints), slices


def compare_slices(log: PartitionLog, chunks: Sequence[StateChunk], least: int) -> int:
    """Compare with the readable rule; the number of slices."""
    expected = follow_coordinator_log(log)
    facts = LogFacts.of(log, chunks)
    folded, slices = in_slices(chunks, facts, least)
    whole = with_slices(folded, slices, dict(folded.bases))
    ids = {name: whole.transactional_id(number) for number, name in enumerate(whole.names)}
    assert ids == expected.ids
    findings = [*folded.findings, *(finding for each in slices for finding in each.ids.findings)]
    assert sorted(findings, key=Finding.sort_key) == sorted(expected.findings, key=Finding.sort_key)
    assert folded.unknown + sum(each.ids.unknown for each in slices) == expected.unknown
    return len(slices)


@drawn(RANDOMS, st.sampled_from([61, 400, 1 << 20]), st.sampled_from([1, 3000, 1 << 30]), st.integers(2, 30), few=20)
def test_slices_of_an_id_and_the_rest_are_folded_as_the_whole(
    rng: random.Random, block_bytes: int, split_bytes: int, least: int
) -> None:
    with random_log(rng, some_kind(rng)) as log:
        compare_slices(log, chunks_of(log, block_bytes, split_bytes), least)


@in_both("count", 20, 100)
def test_logs_in_slices_are_folded_as_whole_ones(count: int) -> None:
    slices = 0
    for seed in range(count):
        rng = random.Random(seed)
        with random_log(rng, replace(some_kind(rng), records=rng.choice((60, 150)))) as log:
            slices += compare_slices(log, chunks_of(log, rng.choice((500, 1 << 20)), rng.choice((1500, 1 << 30))), 2)
    assert slices > count / 2


@in_both("count", 15, 60)
def test_what_is_taken_about_a_producer_id_is_about_no_other_one(count: int) -> None:
    several = 0
    for seed in range(count):
        rng = random.Random(seed)
        with random_log(rng, replace(some_kind(rng), records=150, exhausted=True)) as log:
            chunks = chunks_of(log, 1 << 20, 1 << 30)
        folded = fold_states(concatenate_states([chunk.states for chunk in chunks]), LogFacts.of(log, chunks))
        for pid in set(folded.owned_producer_id.tolist()):
            own = folded.of_producer(pid)
            for column in (own.owned_producer_id, own.granted_producer_id, own.decisions.producer_id):
                assert set(column.tolist()) <= {pid}
            assert len(own.decisions) == (folded.decisions.producer_id == pid).sum()
            owners = {folded.names[n] for n in folded.owner[folded.owned_producer_id == pid].tolist()}
            assert set(own.names) == owners
            several += (
                len(set(folded.owned_producer_id[np.isin(folded.owner, folded.owner[folded.owned_producer_id == pid])]))
                > 1
            )
    assert several > count / 6
