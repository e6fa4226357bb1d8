"""The records of a log, folded from splits of any sizes, are those of the readable form."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    TimestampType,
    build_batch,
    build_control_batch,
)
from kafka_eos_checks.audit.kernels.histories import stored
from kafka_eos_checks.audit.kernels.histories.stored import (
    NO_MARKER,
    OPEN,
    VISIBLE,
    Backwards,
    LogEnds,
    Piece,
    SplitRecords,
    fold_pieces,
)
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.audit.segments.contents import Contents, read_contents
from kafka_eos_checks.audit.segments.headers import read_blocks
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs

from ...conftest import in_both

TOLD = ("start", "end", "whole", "damaged_end", "stamped_ms", "highest_abort", "rewritten")


def batches(rng: random.Random) -> list[bytes]:
    """A random log of three producers, with holes, markers that are written again, and epochs that rise."""
    offset, made = rng.choice((0, 0, 5)), []
    epochs = dict.fromkeys(range(7, 10), 0)
    holes = rng.choice((0, 0, 0.02, 0.1))
    for _ in range(rng.randint(0, 40)):
        offset += rng.randint(1, 3) * (rng.random() < holes)
        pid = rng.choice(list(epochs))
        own: dict[str, Any] = {"producer_id": pid, "producer_epoch": epochs[pid], "base_offset": offset}
        if rng.random() < 0.4:
            marker = ControlRecord(control_type=rng.choice(list(ControlType)[:2]), coordinator_epoch=0)
            made.append(build_control_batch(marker, **own))
            epochs[pid] += rng.random() < 0.5
            offset += 1
            continue
        records = [Record(offset_delta=at, value=b"%d" % (offset + at)) for at in range(rng.randint(1, 3))]
        own |= {"base_timestamp": offset, "timestamp_type": list(TimestampType)[offset % 2]}
        made.append(build_batch(records, **own, is_transactional=rng.random() < 0.8))
        offset += len(records)
    return [batch.encode() for batch in made]


def write(folder: Path, own: list[bytes], rng: random.Random) -> tuple[PartitionLog, Path, list[int]]:
    """A log of one segment, the segment, and where some of its splits begin."""
    path = folder / "t-0" / f"{0:020d}.log"
    positions = write_segment(path, own)
    return find_logs(folder)[0], path, sorted({0, *(at for at in positions if rng.random() < 0.3)})


def pieces(path: Path, begin: list[int]) -> tuple[list[Piece], list[stored.Rows]]:
    """The splits of a segment, and the rows that each of them decides alone."""
    found, rows = [], []
    ends = [*begin[1:], path.stat().st_size]
    for number, (start, end) in enumerate(zip(begin, ends, strict=True)):
        records = SplitRecords("t", 4, number, 0)
        for block in read_blocks(path, start, end):
            records.take(block)
        rows += list(records.taken())
        found.append(records.finish())
    return found, rows


@pytest.mark.parametrize("damaged", [0, 1])
def test_only_damage_after_the_last_batch_of_a_log_is_a_damaged_end(damaged: int) -> None:
    splits = [Piece(number, start=number, end=number + 1, damaged_end=number == damaged) for number in range(2)]
    ends = LogEnds()
    assert list(fold_pieces(splits, 0, ends)) == []
    assert ends.damaged_end == (damaged == 1)


def test_values_are_given_block_by_block_if_they_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "BLOCK_BYTES", 80)
    own = [build_batch([Record(value=b"%d" % at)], base_offset=at).encode() for at in range(4)]
    _, path, _ = write(tmp_path, own, random.Random(0))
    found = []
    for wanted in (True, False):
        records = SplitRecords("t", 4, 0, 0, with_values=wanted)
        blocks = list(read_blocks(path, 0, path.stat().st_size))
        assert len(blocks) > 2
        for block in blocks:
            records.take(block)
            found.append(list(records.taken_values()))
    assert [each for own_values in found for each in own_values] == [(at, b"%d" % at) for at in range(4)]


def told(contents: Contents) -> dict[int, tuple[bool, int, bool]]:
    """Whether each record is visible, the marker that decided it, and whether its transaction is open."""
    return {
        offset: (
            offset not in contents.hidden,
            contents.committed.get(offset, contents.aborted.get(offset, NO_MARKER)),
            offset in contents.open,
        )
        for offset in contents.values
    }


def difference(seed: int, folder: Path, fold: Callable[..., Any] = fold_pieces) -> str:
    """The difference of the fold from the readable form, "" for none."""
    rng = random.Random(seed)
    log, path, begin = write(folder, batches(rng), rng)
    contents = read_contents(log)
    whole, rows = pieces(path, begin)
    ends = LogEnds()
    rows += list(fold(whole, 4, ends))
    states = np.concatenate([np.zeros(0, stored.STORED), *rows])
    found = {
        offset: (bool(VISIBLE[state]), marker, state == OPEN) for _, offset, marker, _, state, _ in states.tolist()
    }
    expected = told(contents)
    if len(found) != len(states) or found != expected:
        return f"{found} is not {expected}"
    facts = [(name, getattr(ends, name), getattr(contents, name)) for name in TOLD]
    facts.append(("first_open", ends.first_open, min(contents.open, default=None)))
    return str([each for each in facts if each[1] != each[2]] or "")


@in_both("count", 80, 300)
def test_splits_of_any_sizes_give_the_records_of_the_readable_form(count: int, tmp_path: Path) -> None:
    first = random.randrange(1 << 32)
    for seed in range(first, first + count):
        assert not difference(seed, tmp_path / str(seed)), seed


@in_both("count", 30, 100)
def test_values_are_read_from_the_blocks_that_have_their_offsets(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "BLOCK_BYTES", 200)
    read: list[tuple[int, int | None]] = []

    def counted(path: Path, start: int = 0, end: int | None = None, **how: Any) -> Any:
        read.append((start, end))
        return read_blocks(path, start, end, **how)

    monkeypatch.setattr(stored, "read_blocks", counted)
    first, saved = random.randrange(1 << 32), 0
    for seed in range(first, first + count):
        rng = random.Random(seed)
        log, path, begin = write(tmp_path / str(seed), batches(rng), rng)
        blocks = np.concatenate([piece.blocks for piece in pieces(path, begin)[0]])
        there = read_contents(log).values
        only = np.array(sorted(offset for offset in there if rng.random() < 0.1), np.int64)
        read.clear()
        values = stored.values_at(log, only, blocks)
        assert values == {offset: there[offset] for offset in only.tolist()}, seed
        assert len(read) <= len(only), seed
        saved += len(blocks) - len(read)
        assert stored.values_at(log, only) == values, "without blocks the whole log is read"
        assert read[-1] == (0, None)
    assert saved > count, "blocks that were not read"


def no_edges(pieces: list[Piece], *given: Any) -> Any:
    return fold_pieces([_with(piece, "edges", piece.edges[:0]) for piece in pieces], *given)


def nothing_marked(pieces: list[Piece], *given: Any) -> Any:
    return fold_pieces([_with(piece, "marked", {}) for piece in pieces], *given)


def no_holes(pieces: list[Piece], *given: Any) -> Any:
    return fold_pieces([_with(piece, "holes", 0) for piece in pieces], *given)


def all_begin_where_the_last_ended(pieces: list[Piece], *given: Any) -> Any:
    following = 0
    for piece in pieces:
        if piece.first is not None:
            piece.first, following = following, piece.following
    return fold_pieces(pieces, *given)


def _with(piece: Piece, name: str, value: Any) -> Piece:
    setattr(piece, name, value)
    return piece


@pytest.mark.parametrize("broken", [no_edges, nothing_marked, no_holes, all_begin_where_the_last_ended])
def test_a_fold_that_leaves_something_out_is_noticed(broken: Callable[..., Any], tmp_path: Path) -> None:
    assert any(difference(seed, tmp_path / str(seed), broken) for seed in range(300))


@pytest.mark.parametrize("begin_again", [False, True])
def test_offsets_that_go_backwards_within_a_split_or_between_two_are_noticed(begin_again: bool, tmp_path: Path) -> None:
    own = [build_batch([Record(value=b"x")], base_offset=offset).encode() for offset in (0, 1, 1)]
    path = tmp_path / "t-0" / f"{0:020d}.log"
    positions = write_segment(path, own)
    whole, _ = pieces(path, [0, *positions[2:]] if begin_again else [0])
    with pytest.raises(Backwards):
        list(fold_pieces(whole, 4, LogEnds()))
