"""The findings chunk by chunk equal those of the readable rule, whatever the faults and the cuts are."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks import cli
from kafka_eos_checks.audit.kernels.logs import summary
from kafka_eos_checks.audit.kernels.logs.runs import Columns, runs_of
from kafka_eos_checks.audit.kernels.logs.summary import Combine
from kafka_eos_checks.audit.oracle import random_logs
from kafka_eos_checks.audit.oracle.random_logs import by_chunks, chunked, columns_of, readable, summary_of
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.log import (
    DUPLICATE,
    GAP,
    LEADER_BACK,
    LOG_RULES,
    MARKER,
    NONE,
    OUTSIDE,
    PLAIN,
    TRANSACTIONAL,
    Batch,
    Log,
)
from kafka_eos_checks.audit.segments.headers import read_blocks
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split
from kafka_eos_checks.kit.verdict import read_verdicts

from ...conftest import drawn, in_both

LOG = PartitionLog("", "orders", 0, "", ("segment",))


@in_both("count", 500, 2_500)
def test_faulty_logs_with_random_cuts_have_the_findings_of_the_readable_rule(count: int) -> None:
    verdict = random_logs.judge(count)
    assert verdict.ok, verdict.evidence
    figures = {name: int(value) for name, value in verdict.figures.items()}
    assert all(figures[rule] for rule in LOG_RULES), "every rule is violated somewhere"
    assert figures["clean"] > count / 5, "and many logs are clean"
    assert figures["reruns"] > count / 5, "and the readable rule had to decide somewhere"
    assert figures["from_files"] == -(-count // random_logs.FILES_EVERY)


def test_a_fold_that_forgets_what_lies_before_a_chunk_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(log: Log, rows: NDArray[np.void]) -> list[int]:
        for pid in rows["producer_id"].tolist():
            log.producers.pop(pid, None)
        return list(resolve(log, rows))

    resolve = summary._resolve
    monkeypatch.setattr(summary, "_resolve", forgetful)
    verdict = random_logs.judge(60)
    assert not verdict.ok
    assert "the readable rule" in verdict.evidence


def test_the_command_compares_so_many_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "fuzz", "--logs", "20", "--first", "7", "--json", str(tmp_path / "v.json")]) == 0
    [verdict] = read_verdicts(tmp_path / "v.json")
    assert (verdict.found, verdict.figures["logs"], verdict.figures["seed"]) == ("0 logs differ", 20, "7")
    assert "0 logs differ" in capsys.readouterr().out
    assert cli.main(["lab", "fuzz", "--logs", "0"]) == 2


any_batch = st.builds(
    lambda jump, pid, epoch, sequence, count, kind: (jump, pid, epoch, sequence, 1 if kind == MARKER else count, kind),
    st.sampled_from((0, 0, 0, 0, 0, 2, -1)),
    st.sampled_from((-1, 0, 1, (1 << 63) - 1)),
    st.integers(-1, 3),
    st.integers(0, 6),
    st.integers(1, 3),
    st.sampled_from((PLAIN, TRANSACTIONAL, MARKER)),
)


@drawn(
    st.lists(any_batch, min_size=1, max_size=14),
    st.lists(st.integers(0, 14), max_size=4),
    st.sampled_from((0, 4)),
    few=100,
    many=400,
)
def test_any_log_with_any_cuts_has_the_findings_of_the_readable_rule(
    wanted: list[tuple[int, int, int, int, int, int]], cuts: list[int], offset: int
) -> None:
    batches = []
    for position, (jump, pid, epoch, sequence, count, kind) in enumerate(wanted):
        control = kind == MARKER
        offset = max(0, offset + jump)
        base, last = (NONE, sequence) if control or pid < 0 else (sequence, sequence + count - 1)
        batches.append(Batch(position, offset, offset + count - 1, pid, epoch, base, last, control and pid >= 0, kind))
        offset += count
    inside = [cut for cut in cuts if cut <= len(batches)]
    assert chunked(batches, inside) == readable(batches)


@drawn(st.lists(any_batch, min_size=1, max_size=14), st.lists(st.integers(0, 14), max_size=4), few=60, many=200)
def test_any_log_with_any_cuts_has_the_last_hole_of_the_readable_rule(
    wanted: list[tuple[int, int, int, int, int, bool]], cuts: list[int]
) -> None:
    offset, batches, log = 0, [], Log()
    for position, (jump, pid, epoch, sequence, count, _) in enumerate(wanted):
        offset = max(0, offset + jump)
        batch = Batch(position, offset, offset + count - 1, pid, epoch, sequence, sequence + count - 1, False)
        batches.append(batch)
        log = log.append(batch)[0]
        offset += count
    combine = by_chunks(batches, [cut for cut in cuts if cut <= len(batches)])
    assert (combine.holes, combine.hole) == (log.holes, log.hole)


def test_the_last_hole_has_its_first_missing_offset_and_the_next_one_that_is_there() -> None:
    batches = [Batch(i, at, at + 1, -1, -1, -1, -1, True) for i, at in enumerate((3, 5, 9, 11, 20))]
    for cuts in ([], [4], [2, 3]):
        assert by_chunks(batches, cuts).hole == (13, 20), cuts
        assert by_chunks(batches[:4], cuts).hole == (7, 9), cuts
        assert by_chunks(batches[:2], [1]).hole is None


def test_a_hole_that_begins_at_a_snapshot_hides_none_below_it() -> None:
    columns = columns_of([Batch(i, at, at, -1, -1, -1, -1, True) for i, at in enumerate((0, 2, 5))])
    assert summary.hole_starts(columns, runs_of(columns), (3, 9)) == (1, 3)
    assert summary.hole_starts(columns, runs_of(columns), (4, 9)) == (3,)


@pytest.mark.parametrize("thinned", [(), (1,), (0, 1), (2,)])
def test_the_last_batch_that_lacks_a_record_is_told(thinned: tuple[int, ...], tmp_path: Path) -> None:
    made = []
    for number, base in enumerate((0, 3, 6)):
        deltas = [0, 2] if number in thinned else [0, 1, 2]
        records = [Record(value=b"v", offset_delta=delta) for delta in deltas]
        made.append(build_batch(records, base_offset=base).encode())
    write_segment(path := tmp_path / "orders-0" / f"{0:020d}.log", made)
    [block] = read_blocks(path, 0, path.stat().st_size)
    last = max(thinned, default=None)
    assert summary.last_thinned(block.headers) == (None if last is None else (3 * last, 3 * last + 3))


def test_a_leader_epoch_is_compared_across_a_chunk_without_any() -> None:
    batches = [batch._replace(leader_epoch=epoch) for batch, epoch in zip(clean_batches(3), (5, -1, 4), strict=True)]
    for cuts in ([], [1], [2], [1, 2]):
        assert [(position, rule) for position, rule, _ in chunked(batches, cuts)] == [(2, LEADER_BACK)], cuts


def clean_batches(count: int) -> list[Batch]:
    return [Batch(i, i, i, i % 3, 0, i // 3, i // 3, unsequenced=False) for i in range(count)]


def test_a_clean_log_is_never_read_again() -> None:
    combine = by_chunks(clean_batches(90), range(0, 90, 7))
    assert (combine.finish(), combine.reruns) == ([], 0)


def test_a_fault_at_a_cut_is_found() -> None:
    batches = clean_batches(30)
    again = batches[:15] + [b._replace(base_sequence=b.base_sequence - 1, last_sequence=b.last_sequence - 1)
                            for b in batches[15:18]] + batches[18:]  # fmt: skip
    assert [rule for _, rule, _ in chunked(again, [15])] == [DUPLICATE] * 3 + [GAP] * 3


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ([(0, 10), (20, 30)], "expected split 0 byte 10, found split 0 byte 20"),
        ([(0, 10), (5, 30)], "expected split 0 byte 10, found split 0 byte 5"),
        ([(0, 10), (10, 20)], "1 split\\(s\\) of the log were never folded"),
        ([(0, 30), (0, 30)], "after the end of the log"),
    ],
)
def test_chunks_that_overlap_or_leave_a_hole_are_refused(chunks: list[tuple[int, int]], said: str) -> None:
    everything = columns_of(clean_batches(30))
    combine = Combine(
        [Split(LOG, 0, 1, "segment", 0, 30)], lambda chunk: everything.take(slice(chunk.start, chunk.end))
    )
    with pytest.raises(AssertionError, match=said):
        add_all(combine, everything, chunks)


def add_all(combine: Combine, everything: Columns, chunks: list[tuple[int, int]]) -> None:
    for start, end in chunks:
        combine.add(summary_of(everything.take(slice(start, end)), start, end))
    combine.finish()


def test_data_outside_of_a_transaction_that_an_earlier_chunk_has_opened_is_found() -> None:
    kinds = [TRANSACTIONAL, PLAIN, MARKER, PLAIN, TRANSACTIONAL, PLAIN]
    sequences = [0, 1, NONE, 2, 3, 4]
    batches = [
        Batch(i, i, i, 7, 0, sequence, sequence, unsequenced=kind == MARKER, kind=kind)
        for i, (kind, sequence) in enumerate(zip(kinds, sequences, strict=True))
    ]
    for cuts in ([], [1], [2], [3], [4], [5], range(6)):
        assert [(position, rule) for position, rule, _ in chunked(batches, cuts)] == [(1, OUTSIDE), (5, OUTSIDE)], cuts
    behind_a_hole = [*batches[:1], *(batch._replace(base_offset=batch.base_offset + 1) for batch in batches[1:2])]
    for cuts in ([], [1]):
        assert chunked(behind_a_hole, cuts) == []
