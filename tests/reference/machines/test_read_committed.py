"""The list of aborted transactions and the client's filter, compared with the definition by markers."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.read_committed import AbortedTransaction, ReadCommitted, collect_aborted, without_aborted
from kafka_eos.machines.transactional_partition import (
    ABORT,
    COMMIT,
    PLAIN,
    TRANSACTIONAL,
    LeaderLog,
    LogEntry,
    PartitionConstants,
    TransactionalPartition,
)
from kafka_eos_checks.mutants.rules import mutated

CONSTANTS = PartitionConstants(
    producer_ids=frozenset({1, 2}),
    epochs=frozenset({0}),
    max_epoch=32767,
    coordinator_epochs=frozenset({0}),
    batch_kinds=frozenset({TRANSACTIONAL, PLAIN}),
    offsets=frozenset(range(100)),
    transaction_version=1,
    max_leader_epoch=0,
    index_failures=False,
    expiration=False,
    cleaning=False,
)
PARTITION = TransactionalPartition(constants=CONSTANTS, log=TransactionalPartition.empty_log(CONSTANTS))
WORDS = {"D": TRANSACTIONAL, "C": COMMIT, "A": ABORT, "P": PLAIN}
SYMBOLS = [kind + producer for kind in "DCA" for producer in "12"]


def written(text: str) -> LeaderLog:
    """The log of a leader that was sent ``D1 A1``: a batch of producer 1, an abort marker of producer 1."""
    log = PARTITION.log
    for word in text.split():
        entry = LogEntry(kind=WORDS[word[0]], producer_id=int(word[1]), epoch=0)
        if entry.is_marker or PARTITION.batch_error(log, entry) is ErrorCode.NONE:
            log = PARTITION.appended(log, entry)
    return log


def stable(log: LeaderLog) -> int:
    """The last stable offset when everything is replicated."""
    return min((p.first_offset for p in log.producers.values() if p.is_open), default=len(log.entries))


def response(log: LeaderLog, position: int, size: int) -> list[LogEntry]:
    return list(log.entries[position : min(position + size, stable(log))])


def read(rules: ReadCommitted, log: LeaderLog, position: int, size: int, behind: int = 1) -> list[int]:
    """The offsets that a reader gets; the index search ends ``behind`` offsets after the response's last one."""
    fetched = response(log, position, size)
    aborted = rules.collected(log.aborted_index, position, fetched[-1].offset + behind) if fetched else []
    return [entry.offset for entry in rules.passed(fetched, aborted)]


def definition(log: LeaderLog, position: int, size: int) -> list[int]:
    """The offsets of records outside of transactions or in one that its producer's next marker commits."""
    found = []
    for entry in response(log, position, size):
        behind = log.entries[entry.offset + 1 :]
        marker = next((e for e in behind if e.is_marker and e.producer_id == entry.producer_id), None)
        if entry.kind == PLAIN or (entry.is_transactional and marker is not None and marker.kind == COMMIT):
            found.append(entry.offset)
    return found


def fetches(log: LeaderLog) -> Iterator[tuple[int, int]]:
    """Every position and size of a response."""
    return ((position, size) for position in range(len(log.entries)) for size in range(1, len(log.entries) + 1))


def differs(rules: ReadCommitted, log: LeaderLog) -> bool:
    """Whether some response is not read as defined."""
    return any(read(rules, log, *at) != definition(log, *at) for at in fetches(log))


def shortest_that_differs(rules: ReadCommitted, longest: int) -> str:
    """The shortest log, up to a number of entries, that is not read as defined, or ""."""
    texts = (" ".join(symbols) for length in range(1, longest + 1) for symbols in product(SYMBOLS, repeat=length))
    return next((text for text in texts if differs(rules, written(text))), "")


def test_every_response_of_every_log_of_four_entries_is_read_as_defined() -> None:
    assert shortest_that_differs(ReadCommitted(), 4) == ""


@pytest.mark.parametrize(
    ("rule", "mutant", "shortest"),
    [
        ("Overlaps", "BeginsInside", "D1 D1 A1"),
        ("EndsScan", "StopsAtFirstBehind", "D1 D2 A2 A1"),
        ("EndsScan", "StopsAtLastBehind", "D1 D2 A1 A2"),
        ("HasBegun", "BegunBefore", "D1 A1"),
        ("HasBegun", "BegunAlready", "A1 D1 A1"),
        ("Begun", "ListTakenAsSorted", "D1 D2 A2 A1"),
        ("StillActive", "AbortNeverEnds", "D1 A1 D1 C1"),
        ("IsPassedOn", "MarkersPassedOn", "C1"),
    ],
)
def test_with_one_rule_changed_a_short_log_is_read_otherwise(rule: str, mutant: str, shortest: str) -> None:
    changed: Any = mutated(ReadCommitted, {rule: mutant})
    assert shortest_that_differs(changed(), 4) == shortest


def test_a_reader_may_forget_the_producer_at_a_commit_marker_as_well() -> None:
    changed: Any = mutated(ReadCommitted, {"StillActive": "CommitEndsToo"})
    assert shortest_that_differs(changed(), 4) == ""


@given(symbols=st.lists(st.sampled_from([*SYMBOLS, "P1", "P2"]), max_size=12), behind=st.integers(1, 12))
def test_longer_logs_are_read_as_defined_however_coarse_the_search_in_the_index_is(
    symbols: list[str], behind: int
) -> None:
    log = written(" ".join(symbols))
    for at in fetches(log):
        assert read(ReadCommitted(), log, *at, behind) == definition(log, *at)


def test_the_functions_are_the_unchanged_rules() -> None:
    log = written("D1 D2 D1 A2 A1 D2")
    aborted = collect_aborted(log.aborted_index, 0, 5)
    assert aborted == [
        AbortedTransaction(producer_id=2, first_offset=1),
        AbortedTransaction(producer_id=1, first_offset=0),
    ]
    assert without_aborted(list(log.entries), aborted) == [log.entries[5]]
    assert without_aborted(list(log.entries), []) == [entry for entry in log.entries if not entry.is_marker]
