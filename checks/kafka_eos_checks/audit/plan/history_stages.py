"""The stages of an audit of histories that are joined with logs: functions that read and write rows.

:mod:`kafka_eos_checks.audit.plan.history_plan` runs them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.histories.history import Event, MalformedHistory
from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.events.history_files import Range, numbered_events
from kafka_eos_checks.audit.events.recorded import (
    ASKED,
    AT_BITS,
    CHANGES,
    ENDS,
    EPOCH,
    EPOCH_REQUEST,
    GIVEN,
    MEMBERSHIP,
    OFFSET_STEP,
    POLLED,
    REFUSAL,
    REQUESTING,
    SENT,
    TOLD,
    VALUED,
    WITHIN,
    Hashes,
    Rows,
    RunFacts,
    Told,
    joined_hashes,
    name_hash,
    name_hashes,
    place_hash,
    text_hash,
    told,
)
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.internal_topics.commits import CommitChunk, name_of
from kafka_eos_checks.audit.internal_topics.states import States
from kafka_eos_checks.audit.kernels.coordinators.group_log import (
    CountedCommits,
    GroupFacts,
    fold_group_log,
    read_group_log,
)
from kafka_eos_checks.audit.kernels.histories.applying import (
    CHECK,
    COVER,
    OUTPUT,
    Members,
    Offered,
    Reach,
    covers_of,
    join_commits,
    join_inputs,
    join_outputs,
    of_members,
)
from kafka_eos_checks.audit.kernels.histories.following import (
    ANY_BLOCK,
    BLOCK_BITS,
    MOVE,
    RANGE,
    STEP,
    blocks_of,
    fold_moves,
    follow_readers,
    look_into_gaps,
    moves_of,
)
from kafka_eos_checks.audit.kernels.histories.following import (
    ranges_of as offset_ranges,
)
from kafka_eos_checks.audit.kernels.histories.joining import (
    HELD,
    Setting,
    is_in,
    join_transactions,
    join_values,
    rows_near,
    spot,
)
from kafka_eos_checks.audit.kernels.histories.requesting import (
    COUNTED,
    NAMING,
    Proved,
    date_epochs,
    links_of,
    prove_generations,
    prove_offsets,
    prove_refusals,
)
from kafka_eos_checks.audit.kernels.histories.stored import (
    ABORTED,
    COMMITTED,
    HIDDEN,
    OPEN,
    PLAIN,
    STORED,
    VISIBLE,
    Backwards,
    LogEnds,
    Piece,
    SplitRecords,
    fold_pieces,
    stored_backwards,
    values_at,
)
from kafka_eos_checks.audit.moments import SKEW_MS
from kafka_eos_checks.audit.plan.declared_stages import NAMES, DeclaredLogs, gathered
from kafka_eos_checks.audit.plan.found import found_rows
from kafka_eos_checks.audit.plan.sought import Shown, events_of, in_order, sought
from kafka_eos_checks.audit.rules.applications import (
    FENCED_GENERATION,
    INPUT_RULES,
    OFFSET_ALONE,
    SKIPPED,
    judge_generations,
    judge_told,
)
from kafka_eos_checks.audit.rules.coordinator import PREPARED
from kafka_eos_checks.audit.rules.histories import (
    DUPLICATE_VALUE,
    HISTORY_RULES,
    LOST,
    REFUSED,
    UNASKED,
    duplicate_values,
    lost,
    refused,
    unasked,
)
from kafka_eos_checks.audit.rules.offsets import GroupLog
from kafka_eos_checks.audit.rules.readers import (
    ABORTED_DELIVERED,
    COMMITTED_MISSING,
    INCONSISTENT,
    NON_MONOTONIC,
    POLL_SKIP,
    PRECOMMITTED,
    STABLE_WENT_BACK,
    delivered,
    inconsistent,
    polled,
    precommitted,
    undone,
    went_back,
)
from kafka_eos_checks.audit.rules.sent_offsets import NOT_AS_SENT, not_as_sent
from kafka_eos_checks.audit.rules.timeouts import Deadlines, Decision
from kafka_eos_checks.audit.rules.transactions.judge import longest
from kafka_eos_checks.audit.segments.contents import Contents, Figures, Place, Replicas
from kafka_eos_checks.audit.segments.headers import Ints, Mask
from kafka_eos_checks.audit.segments.order import places_of_each
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split

STORE, RANGES, PIECES, GROUPS = range(90, 94)  # kinds of rows of the scan, next to those of the plan for logs
SUSPECTS_OFFSETS, NAMED_BY, SUSPECTS_DECISIONS, EVENTS = range(94, 98)
OFFERED = 89  # as RANGES, for the groups that read the partition
FACTS, FAILED, VALUES, ENDINGS, MOVES, CHANGED, REQUESTED, MEMBERS, LOG, EPOCHS = range(50, 60)
FIGURES, HELD_BY, SPOTS, SUSPECT, GAPS, PICKED, WANTED, RECORDS, FOUND, ASKED_FOR, SUSPECT_KEYS = range(60, 71)
TANGLED, BLOCKS, DECLARED, SHOWN, CLIENTS, PRODUCERS, ACCUSED, LINKS, SUSPECTED = range(71, 80)
SENDING, GIVING, ASKING, COVERING, OUTPUTS, CHECKS, INPUTS, REACHED, APPLIED = range(80, 89)  # of applications
FACTS_TASKS = 8  # that join the facts of runs, of which each range has those of all its clients and groups
COMMIT_BYTES = 150  # approximate size of a committed offset between stages
_NAMES = {  # figures of the joins -> figures of the rules
    "lost": (LOST, "checked"),
    "lost unknown": (LOST, "unknown"),
    "duplicate": (DUPLICATE_VALUE, "checked"),
    "inconsistent": (INCONSISTENT, "checked"),
    "precommitted": (PRECOMMITTED, "checked"),
    "precommitted unknown": (PRECOMMITTED, "unknown"),
    "delivered": (ABORTED_DELIVERED, "checked"),
    "unasked": (UNASKED, "checked"),
    "undone": (COMMITTED_MISSING, "checked"),
    "undone unknown": (COMMITTED_MISSING, "unknown"),
}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_range(item: tuple[int, Range], *, buckets: int, logged: Hashes) -> Iterator[Row]:
    """Read a range of a history: its events, by the bucket in which they are joined.

    Args:
        item: the number of the file, and the range.
        buckets: the number of buckets.
        logged: the partitions with a log, ascending.
    """
    number, part = item
    try:
        for each in _told_in(number, part):
            yield from _told_rows(each, buckets, logged)
    except MalformedHistory as error:
        yield Row(FAILED, 0, (number, error.line & ((1 << AT_BITS) - 1), error.reason))


def join_facts(key: int, facts: Iterable[RunFacts]) -> Iterator[Row]:
    """Join the facts that ranges have of the same run."""
    for run in runs_of(facts):
        yield Row(FACTS, key, run)


def runs_of(facts: Iterable[RunFacts]) -> list[RunFacts]:
    """The facts of each run, in the order in which the runs start."""
    runs: dict[str, RunFacts] = {}
    for each in facts:
        if each.run in runs:
            runs[each.run].add(each)
        else:
            runs[each.run] = each
    return sorted(runs.values(), key=lambda run: run.first)


def read_moves(item: tuple[int, Range], *, buckets: int, of: Mapping[str, Hashes]) -> Iterator[Row]:
    """Read a range of a history again: all moves of some readers, each by itself; ``of``: the readers of each run."""
    for each in _told_in(*item):
        moves = moves_of(each.rows)
        wanted = is_in(moves["process"], of[each.facts.run])
        yield from _scattered(MOVES, each.facts.run, moves[wanted], "process", buckets)


def _told_in(number: int, part: Range) -> Iterator[Told]:
    numbered = ((number << AT_BITS | places, events) for places, events in numbered_events(part))
    return told(numbered, str(part.path))


def _told_rows(each: Told, buckets: int, logged: Hashes) -> Iterator[Row]:
    run, kind = each.facts.run, each.rows["what"]
    yield Row(FACTS, each.facts.first % FACTS_TASKS, each.facts)
    yield from _scattered(VALUES, run, each.rows, "key", buckets, np.isin(kind, VALUED))
    yield from _scattered(ENDINGS, run, each.rows, "ended", buckets, np.isin(kind, ENDS))
    moves, steps = fold_moves(moves_of(each.rows), logged)
    yield from _scattered(MOVES, run, moves, "process", buckets)
    yield from _gap_rows(run, steps, buckets)
    changed = each.rows[np.isin(kind, CHANGES)]
    if len(changed):
        yield Row(CHANGED, 0, (run, changed), changed.nbytes)
    if len(each.applied):
        yield Row(APPLIED, 0, (run, each.applied), each.applied.nbytes)
    yield from _scattered(CLIENTS, run, each.requests, "client", buckets)
    yield from _scattered(EPOCHS, run, each.epoch_requests, "client", buckets)
    yield from _scattered(MEMBERS, run, each.members, "group", buckets)
    for rows in (each.epochs, each.refusals, each.offset_steps):
        yield from _by_bucket(PRODUCERS, run, rows, rows["pid"] % buckets)
    if len(each.declared):
        yield Row(DECLARED, int(each.declared["at"][0]) % buckets, (run, each.declared), each.declared.nbytes)
    yield from _scattered(SENDING, run, each.sent, "key", buckets)
    blocks = _block_buckets(each.given["name"], each.given["offset"], buckets)
    yield from _by_bucket(GIVING, run, each.given, blocks)
    asked = _buckets(spot(each.asked["name"], each.asked["offset"]), buckets)
    yield from _by_bucket(ASKING, run, each.asked, asked)


def _scattered(kind: int, run: str, rows: Rows, name: str, buckets: int, chosen: Mask | None = None) -> Iterator[Row]:
    """Rows by bucket of the hashes in a column; of some rows only those that are ``chosen``."""
    which = np.arange(len(rows)) if chosen is None else np.flatnonzero(chosen)
    yield from _by_bucket(kind, run, rows, _buckets(rows[name][which], buckets), which)


def _by_bucket(kind: int, run: str, rows: Rows, bucket: Ints, which: Ints | None = None) -> Iterator[Row]:
    """Rows by their buckets; ``which``: the rows that have one, without it all."""
    for number, places in places_of_each(bucket):
        own = rows[places if which is None else which[places]]
        yield Row(kind, number, (run, own), own.nbytes)


class Named(NamedTuple):
    """The logs that a history is joined with, for the scan, which gives their records as rows while it has their bytes.

    Attributes:
        logs: by number of a log in the scan, its number in the rows.
        groups: whether all commits of ``__consumer_offsets`` are needed, not only those at the edges of chunks.
        buckets: the number of buckets in which records are joined.
        declared: the declared applications.
        readers: by hash of a partition, the names (:func:`recorded.name_hash`) of it with the groups that read it.
    """

    logs: Mapping[int, int]
    groups: bool
    buckets: int
    declared: DeclaredLogs
    readers: Mapping[int, Hashes]

    def records_of(self, log: int, split: Split) -> SplitRecords | None:
        """A taker of the blocks of a split; None if no history names the topic."""
        number = self.logs.get(log)
        if number is None:
            return None
        segment = split.log.segments.index(split.segment)
        wanted = any(not each.declared.identities for each in self.declared.topics(split.log.topic))
        return SplitRecords(split.log.topic, number, split.number, segment, with_values=wanted)

    def rows(self, records: SplitRecords | None, split: Split, *, at_end: bool = False) -> Iterator[Row]:
        """The rows of the blocks that were taken since the last call; ``at_end`` also what is left of the split."""
        if records is None:
            return
        for rows in records.taken():
            yield from _stored_rows(rows, split.log, self)
        yield from self.declared.texts(records.number, (split.log.topic, split.log.partition), records.taken_values())
        if at_end:
            piece = records.finish()
            yield Row(PIECES, records.number, piece, piece.edges.nbytes)

    def rows_of_group(self, log: int, chunks: Iterable[CommitChunk]) -> Iterator[Row]:
        """All commits of a split of ``__consumer_offsets``, if they are needed."""
        if self.groups:
            for chunk in chunks:
                yield Row(GROUPS, log, (chunk, 0), COMMIT_BYTES * len(chunk.commits))


NO_HISTORY = Named({}, groups=False, buckets=1, declared=DeclaredLogs(), readers={})


def end_log(
    number: int,
    pieces: Iterable[Piece],
    *,
    logs: Sequence[PartitionLog],
    named: Named,
    check_crc: bool,
) -> Iterator[Row]:
    """Join the splits of a log: the records that several splits decide, and the facts of the log.

    A log whose offsets go backwards is read again. It has a number from ``len(logs)`` on, so that its other rows do
    not count.
    """
    log, ends, declared = logs[number], LogEnds(), named.declared
    in_order = sorted(pieces, key=lambda piece: piece.split)
    try:
        for rows in fold_pieces(in_order, number, ends):
            yield from _stored_rows(rows, log, named)
        blocks = np.concatenate([piece.blocks for piece in in_order])
        yield Row(BLOCKS, number, blocks, blocks.nbytes)
    except Backwards:
        number += len(logs)
        rows = stored_backwards(log, number, ends, check_crc=check_crc)
        yield from _stored_rows(rows, log, named)
        if declared.topics(log.topic):
            values = values_at(log, np.unique(rows["offset"]), check_crc=check_crc)
            yield from declared.texts(number, (log.topic, log.partition), values.items())
    yield Row(LOG, number, ends)


def _stored_rows(rows: Rows, log: PartitionLog, named: Named) -> Iterator[Row]:
    buckets, place = named.buckets, place_hash(log.topic, log.partition)
    yield from _scattered(STORE, "", rows, "key", buckets)
    ranges = offset_ranges(rows, place)
    yield from _by_bucket(RANGES, "", ranges, _block_buckets(ranges["place"], ranges["start"], buckets))
    readers = named.readers.get(place, np.zeros(0, np.uint64))
    for block, own in _blocks(ranges).items() if len(readers) else ():
        for bucket in np.unique(_buckets_of_block(readers, block, buckets)).tolist():
            yield Row(OFFERED, bucket, ("", own), own.nbytes)
    yield from named.declared.states((log.topic, log.partition), rows)


def _block_buckets(of: Hashes, offset: Ints, buckets: int) -> Ints:
    """The bucket of each offset's block, shape (n,); few blocks are spread evenly, too.

    Args:
        of: hashes of the partitions; or of each with a group, so that groups that read the same offsets are apart.
        offset: the offsets, shape (n,).
        buckets: how many buckets there are.
    """
    return _buckets(spot(of, offset >> BLOCK_BITS), buckets)


def _buckets_of_block(names: Hashes, block: int, buckets: int) -> Ints:
    """The bucket of a block for each group that reads its partition, shape of ``names``."""
    return _buckets(spot(names, np.full(len(names), block)), buckets)


def _overlapped(of: Hashes, low: Ints, high: Ints, buckets: int) -> tuple[Ints, Ints, Ints]:
    """The blocks that ranges of offsets overlap, as :func:`blocks_of`, and their buckets; long ranges are in each."""
    row, block, number = blocks_of(low, high, buckets)
    return row, block, np.where(block == ANY_BLOCK, number, _buckets(spot(of[row], block), buckets))


def _buckets(hashed: Hashes, buckets: int) -> Ints:
    """The bucket of each hash, shape (n,); by its upper half, because a bit of the lower half may be set in all."""
    return (hashed >> np.uint64(32)).astype(np.int64) % buckets


def end_group_log(
    log: int,
    chunks: Iterable[tuple[CommitChunk, int]],
    *,
    numbers: Mapping[int, int],
    logs: Sequence[PartitionLog],
    buckets: int,
    applied: bool,
    sending: bool,
    declared: DeclaredLogs,
) -> Iterator[Row]:
    """Fold a log of ``__consumer_offsets``: its end, the last time of its broker, and the commits that took effect.

    The commits are given as rules over applications need them if a history tells of any (``applied``), and those of
    transactions as the rule over sent offsets needs them if producers sent any (``sending``).
    """
    number = numbers[log]
    in_order = _in_log_order(chunks)
    facts = GroupFacts.of(logs[number], in_order)
    yield Row(LOG, number, (facts.end, facts.stamped_ms, facts.whole))
    if not applied and not sending:
        return
    log_of_group = fold_group_log(logs[number], in_order)
    assert log_of_group.counted is not None, "it is folded by columns"
    if sending:
        counted = _counted_rows(log_of_group.counted, number)
        yield from _by_bucket(PRODUCERS, "", counted, counted["pid"] % buckets)
    if not applied:
        return
    last: dict[int, int] = {}
    folded = log_of_group.commits
    if declared.applications:
        yield Row(NAMES, number, frozenset(folded))
    for (group, (topic, partition)), commits in folded.items():
        place = place_hash(topic, partition)
        name = name_hash(text_hash(group), place)
        offsets = [-1 if commit.offset is None else commit.offset for commit in commits]
        transactional = [commit.transactional for commit in commits]
        if group in declared.groups:
            yield from gathered(declared.rises(number, (group, (topic, partition)), offsets, transactional))
        covers = covers_of(name, offsets, transactional, number)
        last[name] = commits[-1].offset or 0 if commits else 0
        row, _, bucket = _overlapped(covers["name"], covers["low"], covers["high"], buckets)
        yield from _by_bucket(COVERING, "", covers[row], bucket)
    yield Row(REACHED, number, last)


def _in_log_order(chunks: Iterable[tuple[CommitChunk, int]]) -> list[CommitChunk]:
    return sorted((chunk for chunk, _ in chunks), key=lambda chunk: (chunk.split, chunk.start))


def _counted_rows(counted: CountedCommits, number: int) -> Rows:
    """The offsets of transactions that count in a log."""
    names = [name_of(key) for key in counted.keys]
    groups = np.array([text_hash(group) for group, _ in names], np.uint64)
    hashed = np.array([name_hash(text_hash(group), place_hash(*place)) for group, place in names], np.uint64)
    commits, name = counted.commits, counted.number
    rows = np.zeros(len(commits), COUNTED)
    rows["pid"], rows["epoch"], rows["log"] = commits.producer_id, commits.producer_epoch, number
    rows["group"], rows["key"] = groups[name], joined_hashes(hashed[name], commits.offset)
    transactional: Rows = rows[(commits.transactional != 0) & (commits.tombstone == 0)]
    return transactional


# --- joins ----------------------------------------------------------------------------------------------------------


def _by_run(values: Iterable[tuple[str, Rows]], *dtypes: np.dtype[Any]) -> dict[str, dict[np.dtype[Any], Rows]]:
    """Concatenate the rows of each run and dtype."""
    parts: dict[str, dict[np.dtype[Any], list[Rows]]] = defaultdict(lambda: {dtype: [] for dtype in dtypes})
    for run, rows in values:
        parts[run][rows.dtype].append(rows)
    return {
        run: {dtype: np.concatenate(rows) if rows else np.zeros(0, dtype) for dtype, rows in own.items()}
        for run, own in parts.items()
    }


Records = Mapping[int, Ints | None]
"""Records of logs: by number of the log their offsets, or None for all."""
JUDGED_WHOLE = "judged whole"  # of records for rules that judge a run as a whole
_Picks = tuple[Mapping[str, Hashes], Mapping[str, Hashes]]  # by run, offsets and transactions that are suspects


def join_bucket(
    bucket: int,
    values: Iterable[tuple[str, Rows]],
    *,
    settings: Mapping[str, Setting],
    buckets: int,
    picks: _Picks | None,
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Join the events and records of some topics and values.

    With ``picks``, join only those of suspects again, and pick the rows for the readable rules. The figures are then
    the difference from what the first join has counted.
    """
    by_run = _by_run(values, TOLD, STORED, _KEY)
    nothing = {dtype: np.zeros(0, dtype) for dtype in (TOLD, STORED, _KEY)}
    records = by_run.pop("", nothing)[STORED]
    for run in settings if picks is not None else by_run:
        own, setting = by_run.get(run, nothing), settings[run]
        if picks is None:
            joined = join_values(own[TOLD], records, setting)
            yield Row(FIGURES, 0, _named(joined.figures))
            keys = _as_rows(np.unique(joined.events["key"][joined.suspect]), _KEY)
            if len(keys):
                yield Row(SUSPECT_KEYS, bucket, (run, keys), keys.nbytes)
            found = np.append(joined.spots, np.zeros(int(len(keys) > 0), np.uint64))  # 0 for a key of any kind
            if len(found):
                yield Row(SPOTS, 0, (run, found), found.nbytes)
            yield from _scattered(HELD_BY, run, joined.held, "ended", buckets)
            continue
        spots, suspects = picks[0][run], picks[1][run]
        near = rows_near(own[TOLD], records, setting, own[_KEY]["key"], suspects, spots)
        before = join_values(*near, setting).figures
        joined = join_values(*near, setting, suspects, spots)
        yield Row(FIGURES, 0, _named({name: count - before[name] for name, count in joined.figures.items()}))
        keyed, at_spot = joined.events[joined.suspect], joined.events[joined.at_spot]
        number = number_of[run]
        yield Row(PICKED, number, ("keys", keyed), keyed.nbytes)
        yield Row(PICKED, number, ("spots", at_spot), at_spot.nbytes)
        ended = keyed["ended"]
        ended = np.unique(ended[ended != 0])
        yield from _scattered(ASKED_FOR, run, _as_rows(ended, _ASKED), "ended", buckets)
        shown = joined.shown
        for log in np.unique(shown["log"]).tolist():
            own_rows = shown[shown["log"] == log]
            yield Row(WANTED, log, (number, "values", own_rows), own_rows.nbytes)


_ASKED, _KEY = np.dtype([("ended", "u8")]), np.dtype([("key", "u8")])


def _as_rows(hashes: Hashes, dtype: np.dtype[Any]) -> Rows:
    """Hashes as rows of one column."""
    return hashes.astype(np.uint64).view(dtype)


def _named(figures: Mapping[str, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for name, count in figures.items():
        rule, own = _NAMES[name]
        found[rule][own] = count
    return dict(found)


def end_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    settings: Mapping[str, Setting],
) -> Iterator[Row]:
    """Join the begins and ends of some transactions with the facts of their values."""
    for run, own in _by_run(values, TOLD, HELD).items():
        joined = join_transactions(own[TOLD], own[HELD], settings[run])
        yield Row(FIGURES, 0, _named(joined.figures))
        if len(joined.suspects):
            yield Row(SUSPECT, 0, (run, joined.suspects), joined.suspects.nbytes)


def pick_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    number_of: Mapping[str, int],
    suspects: Mapping[str, Hashes],
) -> Iterator[Row]:
    """Pick the begins and ends of transactions that are suspects, or that sent the value of a suspect."""
    for run, own in _by_run(values, TOLD, _ASKED).items():
        wanted = np.unique(np.concatenate([own[_ASKED]["ended"], suspects[run]]))
        picked = own[TOLD][is_in(own[TOLD]["ended"], wanted)]
        yield Row(PICKED, number_of[run], ("ends", picked), picked.nbytes)


def follow_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    settings: Mapping[str, Setting],
    changes: Mapping[str, Rows],
    buckets: int,
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Follow the readers of some processes: their gaps, and their steps back."""
    for run, own in _by_run(values, MOVE).items():
        number = number_of[run]
        followed = follow_readers(own[MOVE], changes.get(run, np.zeros(0, TOLD)), settings[run])
        steps, ends = followed.figures["steps"], followed.figures["ends"]
        counts = {POLL_SKIP: {"checked": steps}, NON_MONOTONIC: {"checked": steps}, STABLE_WENT_BACK: {"checked": ends}}
        yield Row(FIGURES, 0, counts)
        for name, rows in (("back", followed.backward), ("fell", followed.fell), ("unlogged", followed.unlogged)):
            if len(rows):
                yield Row(PICKED, number, (name, rows), rows.nbytes)
        yield from _gap_rows(run, followed.gaps, buckets)
        if len(followed.tangled):
            yield Row(TANGLED, 0, (run, followed.tangled), followed.tangled.nbytes)


def _gap_rows(run: str, steps: Rows, buckets: int) -> Iterator[Row]:
    """Steps that pass over offsets, by their blocks of offsets."""
    row, blocks, bucket = _overlapped(steps["place"], steps["start"], steps["offset"], buckets)
    for one in np.unique(bucket).tolist():
        mine = bucket == one
        gaps = steps[row[mine]]
        yield Row(GAPS, one, (run, gaps, blocks[mine]), gaps.nbytes)


def look_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[Any, ...]],
    *,
    settings: Mapping[str, Setting],
    number_of: Mapping[str, int],
    tangled: Mapping[str, Hashes],
) -> Iterator[Row]:
    """Look for records in the gaps of readers; the chains of tangled readers do not count, they are followed again."""
    gaps: dict[str, list[tuple[Rows, Ints]]] = defaultdict(list)
    ranges = [np.zeros(0, RANGE)]
    for run, *own in values:
        if run:
            gaps[run].append((own[0], own[1]))
        else:
            ranges.append(own[0])
    by_block = _blocks(np.concatenate(ranges))
    for run, parts in gaps.items():
        rows, blocks = (np.concatenate(part) for part in zip(*parts, strict=True))
        counts = ~is_in(rows["process"], tangled[run])
        rows, blocks = rows[counts], blocks[counts]
        for block, there in by_block.items():
            over = rows[(blocks == block) | (blocks == ANY_BLOCK)]
            passed = look_into_gaps([(block, over)], there, settings[run])
            if len(passed.steps):
                yield Row(PICKED, number_of[run], ("passed", passed.steps), passed.steps.nbytes)
            for log in np.unique(passed.missing[:, 0]).tolist():
                mine = passed.missing[passed.missing[:, 0] == log]
                shown = np.zeros(len(mine), STORED)
                shown["log"], shown["offset"], shown["state"] = log, mine[:, 1], np.where(mine[:, 2], HIDDEN, PLAIN)
                yield Row(WANTED, log, (number_of[run], "passed", shown), shown.nbytes)


def _blocks(ranges: Rows) -> dict[int, Rows]:
    """Ranges of offsets by block."""
    blocks = ranges["start"] >> BLOCK_BITS
    return {block: ranges[blocks == block] for block in np.unique(blocks).tolist()}


# --- producers --------------------------------------------------------------------------------------------------------


def epoch_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    ordered: Collection[str],
    buckets: int,
) -> Iterator[Row]:
    """Date the epochs of some clients at the requests for them; ``ordered``: the runs that have an order."""
    for run, own in _by_run(values, EPOCH_REQUEST).items():
        epochs = date_epochs(own[EPOCH_REQUEST], ordered=run in ordered)
        yield from _by_bucket(PRODUCERS, run, epochs, epochs["pid"] % buckets)


def producer_bucket(
    bucket: int, values: Iterable[tuple[str, Rows]], *, runs: Mapping[str, tuple[RunFacts, bool]], logs: Sequence[int]
) -> Iterator[Row]:
    """Prove refusals and offsets sent by some producer ids; tell the suspects, and who had any of these producer ids.

    Args:
        bucket: number of the bucket.
        values: rows about the producer ids.
        runs: by name, the facts of a run, and whether an offset that does not count in the logs is missing.
        logs: the logs of ``__consumer_offsets`` that count.
    """
    by_run = _by_run(values, EPOCH, REFUSAL, OFFSET_STEP, COUNTED)
    counted = by_run.pop("", {COUNTED: np.zeros(0, COUNTED)})[COUNTED]
    counted = counted[np.isin(counted["log"], logs)]
    for name, own in by_run.items():
        run, decided = runs[name]
        refusals = own[REFUSAL]
        refused_ones = Proved(np.unique(refusals["pid"]))  # a test may have made up any of them
        if not run.made_up:
            refused_ones = prove_refusals(own[EPOCH], refusals, ordered=run.ordered)
        groups = np.array([text_hash(group) for group in run.sending], np.uint64)
        of_run = counted[np.isin(counted["group"], groups)]
        offsets = Proved(np.zeros(0, np.int64))
        if run.sending:
            known = {"ordered": run.ordered, "straight": run.straight}
            offsets = prove_offsets(own[OFFSET_STEP], of_run, decided=decided, **known)
        for rule, proved in ((REFUSED, refused_ones), (NOT_AS_SENT, offsets)):
            yield Row(FIGURES, bucket, {rule: {"checked": proved.checked, "unknown": proved.unknown}})
            if len(proved.suspects):
                of_epoch = refusals["of_epoch"]
                of_batches = np.unique(refusals["pid"][~of_epoch])
                yield Row(ACCUSED, 0, (name, rule, proved.suspects, of_batches), proved.suspects.nbytes)
        named = own[OFFSET_STEP][np.isin(own[OFFSET_STEP]["pid"], offsets.suspects)]
        if len(named):
            groups = np.unique(np.array(named[["pid", "group"]], NAMING))
            yield Row(NAMED_BY, 0, (name, groups), groups.nbytes)
        links = links_of(own[EPOCH])
        yield Row(LINKS, 0, (name, links), links.nbytes)


def member_bucket(
    bucket: int, values: Iterable[tuple[str, Rows]], *, runs: Mapping[str, RunFacts], number_of: Mapping[str, int]
) -> Iterator[Row]:
    """Prove that commits of members of some groups were of the present generation; pick the events of the others."""
    for name, own in _by_run(values, MEMBERSHIP).items():
        proved = prove_generations(own[MEMBERSHIP], ordered=runs[name].ordered)
        yield Row(FIGURES, bucket, {FENCED_GENERATION: {"checked": proved.checked, "unknown": proved.unknown}})
        if len(proved.suspects):
            yield Row(PICKED, number_of[name], ("belated", proved.suspects), proved.suspects.nbytes)


class Accused(NamedTuple):
    """Producer ids of a run without a proof of a rule, and whose requests are needed to judge them.

    Attributes:
        run: the number of the run.
        rule: the rule.
        pids: the producer ids.
        clients: the clients whose requests are needed, ascending.
        task: the number of the task that judges each, shape (n,).
        whole: the producer ids of which all requests are needed, ascending; None for all. Of the others the first
            request with each epoch of each client will do, and those that give or fence epochs, or were refused.
    """

    run: int
    rule: str
    pids: Set[int]
    clients: Hashes
    task: Ints
    whole: Ints | None

    def needed(self, rows: Rows, *, ordered: bool) -> Rows:
        """The requests that are needed, of some clients."""
        rows = rows[is_in(rows["client"], self.clients)]
        if self.whole is None:
            return rows
        within = (rows["use"] & WITHIN != 0) & ~np.isin(rows["pid"], self.whole)
        time = ("order", "at") if ordered else ("at",)
        own = np.flatnonzero(within)
        own = own[np.lexsort(tuple(rows[name][own] for name in (*reversed(time), *_WHO)))]
        who = rows[own][list(_WHO)]
        within[own[np.append(True, who[1:] != who[:-1])[: len(own)]]] = False
        needed: Rows = rows[~within]
        return needed


_WHO = ("epoch", "client", "pid")


class Wanted(NamedTuple):
    """The committed offsets that a task needs: all of some producer ids, and whether some groups have any."""

    pids: Ints
    groups: Hashes


def pick_requests(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    accused: Mapping[str, Sequence[Accused]],
    whole: Collection[str],
    ordered: Collection[str],
    starts: Ints,
) -> Iterator[Row]:
    """Seek the requests that suspect producers are judged by, and all events of applications that are judged whole."""
    for run, own in _by_run(values, REQUESTING, _AT).items():
        rows = own[REQUESTING]
        if run in whole:
            yield from sought(REQUESTED, (run,), 0, np.concatenate([rows["at"], own[_AT]]), starts)
        for each in accused.get(run, ()):
            mine = each.needed(rows, ordered=run in ordered)
            task = each.task[np.searchsorted(each.clients, mine["client"])]
            yield from sought(SUSPECTED, (each.run, each.rule), task, mine["at"], starts)


_AT = np.dtype(np.int64)


def pick_commits(
    log: int,
    chunks: Iterable[tuple[CommitChunk, int]],
    *,
    numbers: Mapping[int, int],
    logs: Sequence[PartitionLog],
    places: Mapping[int, int],
    wanted: Mapping[int, Wanted],
) -> Iterator[Row]:
    """Pick from a log of ``__consumer_offsets`` what :func:`not_as_sent` needs of it.

    These are the commits of suspects, and of each group that they name one commit, which shows that the log has it, and
    one of each partition for which offsets outside of transactions count.

    Args:
        log: the log's number in the scan.
        chunks: its chunks.
        numbers: by number in the scan, the number among ``logs``.
        logs: the logs of ``__consumer_offsets``.
        places: the logs that count, with the place of each among them.
        wanted: by task, what it needs.
    """
    number = numbers[log]
    if number not in places:
        return
    folded = fold_group_log(logs[number], _in_log_order(chunks))
    counted = folded.counted
    assert counted is not None, "it is folded by columns"
    commits, name = counted.commits, counted.number
    group = np.array([text_hash(name_of(key)[0]) for key in counted.keys], np.uint64)[name]
    alone = np.flatnonzero((commits.transactional == 0) | (commits.tombstone != 0))
    shown = np.union1d(_first(group, np.arange(len(group))), _first(name, alone))
    for task, (pids, groups) in wanted.items():
        rows = np.isin(commits.producer_id, pids)
        rows[shown[is_in(group[shown], groups)]] = True
        own = np.flatnonzero(rows)
        if len(own):
            by_name = {
                name_of(counted.keys[each]): counted.at(own[name[own] == each])
                for each in np.unique(name[own]).tolist()
            }
            yield Row(SUSPECTS_OFFSETS, task, (places[number], folded.whole, by_name), COMMIT_BYTES * len(own))


def pick_decisions(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[Any, ...]],
    *,
    wanted: Mapping[int, Ints],
) -> Iterator[Row]:
    """Pick the decisions of suspect producers from records of ``__transaction_state``.

    Args:
        bucket: the bucket of the records.
        values: rows whose last item is :class:`kafka_eos_checks.audit.internal_topics.states.States`; others are
            without records.
        wanted: by task, the producer ids.
    """
    pids, tasks = np.concatenate(list(wanted.values())), np.repeat(list(wanted), list(map(len, wanted.values())))
    order = np.argsort(pids, kind="stable")
    pids, tasks = pids[order], tasks[order]
    for *_, states in values:
        if not isinstance(states, States):
            continue
        decided = states.take(np.isin(states.transaction_status, list(PREPARED)))
        began = decided.transaction_start_timestamp_ms
        took = decided.transaction_last_update_timestamp_ms - began
        late = (began < 0) | (took > decided.transaction_timeout_ms)
        rows = np.stack([decided.producer_id, decided.producer_epoch, late], axis=1)
        first, end = (np.searchsorted(pids, decided.producer_id, side) for side in ("left", "right"))
        row = np.repeat(np.arange(len(rows)), end - first)  # of each decision once for each task that needs it
        which = np.arange(len(row)) - np.repeat(np.cumsum(end - first) - end, end - first)
        for task, places in places_of_each(tasks[which]):
            own = np.unique(rows[row[places]], axis=0)
            yield Row(SUSPECTS_DECISIONS, task, [Decision(*each) for each in own.tolist()], own.nbytes)


def _first(of: NDArray[Any], rows: Ints) -> Ints:
    """The first of some rows with each value in a column."""
    return rows[np.unique(of[rows], return_index=True)[1]]


# --- applications -----------------------------------------------------------------------------------------------------


class Crew(NamedTuple):
    """The facts about a run's applications: group members, their reach in partitions, whole topics, logs of offsets."""

    members: Members
    names: Mapping[int, Reach]
    whole: Hashes
    logs: Sequence[int]


def output_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    crews: Mapping[str, Crew],
    settings: Mapping[str, Setting],
    buckets: int,
) -> Iterator[Row]:
    """Join the outputs of some topics and values with the records."""
    by_run = _by_run(values, SENT, STORED)
    records = by_run.pop("", {STORED: np.zeros(0, STORED)})[STORED]
    for run, own in by_run.items():
        if run in crews:
            made = join_outputs(own[SENT], records, crews[run].members, settings[run], crews[run].whole)
            yield from _by_bucket(OUTPUTS, run, made, _block_buckets(made["name"], made["offset"], buckets))
            if len(made):
                yield Row(FACTS, 0, run)


def input_bucket(
    bucket: int,
    values: Iterable[tuple[str, Rows]],
    *,
    crews: Mapping[str, Crew],
    settings: Mapping[str, Setting],
    buckets: int,
) -> Iterator[Row]:
    """Join inputs of groups and blocks of offsets with their outputs, and with the commits past them."""
    by_run = _by_run(values, GIVEN, OUTPUT, COVER, RANGE)
    shared = by_run.pop("", {COVER: np.zeros(0, COVER), RANGE: np.zeros(0, RANGE)})
    for run, crew in crews.items():
        own = by_run.get(run, {GIVEN: np.zeros(0, GIVEN), OUTPUT: np.zeros(0, OUTPUT)})
        covers = shared[COVER][np.isin(shared[COVER]["log"], crew.logs)]
        names, offered = np.array(list(crew.names), np.uint64), list[Offered]()
        for block, records in _blocks(shared[RANGE]).items():
            here = names[_buckets_of_block(names, block, buckets) == bucket]
            offered.append((records, {name: crew.names[name] for name in here.tolist()}))
        joined = join_inputs(own[GIVEN], own[OUTPUT], covers, offered, settings[run])
        counts: dict[str, dict[str, int]] = {rule: {"checked": joined.checked} for rule in INPUT_RULES}
        for rule in (SKIPPED, OFFSET_ALONE):
            counts[rule]["unknown"] = joined.silent
        yield Row(FIGURES, bucket, counts)
        if len(joined.suspects):
            yield Row(INPUTS, 0, (run, joined.suspects), joined.suspects.nbytes)
        checks = _buckets(spot(joined.checks["name"], joined.checks["behind"]), buckets)
        yield from _by_bucket(CHECKS, run, joined.checks, checks)


def commit_bucket(bucket: int, values: Iterable[tuple[str, Rows]]) -> Iterator[Row]:
    """Join inputs with the requests for the commits past them."""
    for run, own in _by_run(values, CHECK, ASKED).items():
        left = join_commits(own[CHECK], own[ASKED])
        yield Row(FIGURES, bucket, {rule: {"checked": len(own[CHECK]) - len(left)} for rule in INPUT_RULES})
        if len(left):
            yield Row(INPUTS, 0, (run, left), left.nbytes)


def pick_outputs(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    crews: Mapping[str, Crew],
    settings: Mapping[str, Setting],
    inputs: Mapping[str, Rows],
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Pick the outputs of suspect inputs, with their records."""
    by_run = _by_run(values, SENT, STORED)
    records = by_run.pop("", {STORED: np.zeros(0, STORED)})[STORED]
    for run, own in by_run.items():
        if run not in inputs:
            continue
        sent, group = of_members(own[SENT], crews[run].members, settings[run])
        wanted = np.unique(spot(inputs[run]["name"], inputs[run]["offset"]))
        keys = np.unique(sent["key"][is_in(spot(name_hashes(group, sent["place"]), sent["offset"]), wanted)])
        chosen = sent[is_in(sent["key"], keys)]
        yield Row(PICKED, number_of[run], ("outputs", chosen), chosen.nbytes)
        shown = settings[run].of_logs(records)
        shown = shown[is_in(shown["key"], keys)]
        for log in np.unique(shown["log"]).tolist():
            mine = shown[shown["log"] == log]
            yield Row(WANTED, log, (number_of[run], "outputs", mine), mine.nbytes)


def pick_inputs(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    inputs: Mapping[str, Rows],
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Pick the events in which members were given suspect inputs, and the requests for the commits past them."""
    for run, own in _by_run(values, GIVEN, ASKED).items():
        if run in inputs:
            suspects = inputs[run]
            given, asked = (
                rows[is_in(spot(rows["name"], rows["offset"]), np.unique(spot(suspects["name"], suspects[name])))]
                for rows, name in ((own[GIVEN], "offset"), (own[ASKED], "behind"))
            )
            yield Row(PICKED, number_of[run], ("given", given), given.nbytes)
            yield Row(PICKED, number_of[run], ("asked", asked), asked.nbytes)


def pick_records(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    chosen: Mapping[str, Records],
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Pick the records that the rules over applications without a proof need."""
    for _, rows in values:
        for log, own in places_of_each(rows["log"]):
            for run, records in chosen.items():
                offsets = records.get(log, _NONE)
                mine = rows[own if offsets is None else own[np.isin(rows["offset"][own], offsets)]]
                if len(mine):
                    yield Row(WANTED, log, (number_of[run], JUDGED_WHOLE, mine), mine.nbytes)


_NONE = np.zeros(0, np.int64)

# --- input of the readable rules --------------------------------------------------------------------------------------


def fetch_records(
    number: int, values: Iterable[tuple[int, str, Rows] | Rows], *, logs: Sequence[PartitionLog], check_crc: bool
) -> Iterator[Row]:
    """Read the values of those records of a log that the readable rules need, from the blocks that have them."""
    wanted: list[tuple[int, str, Rows]] = []
    blocks: list[Rows] = []  # of a log whose offsets go backwards none
    for value in values:
        if isinstance(value, tuple):
            wanted.append(value)
        else:
            blocks.append(value)
    if not wanted:
        return
    offsets = np.unique(np.concatenate([rows["offset"] for _, _, rows in wanted]))
    known = np.concatenate(blocks) if blocks else None
    found = values_at(logs[number % len(logs)], offsets, known, check_crc=check_crc)
    for run, name, rows in wanted:
        told_by = [found.get(offset) for offset in rows["offset"].tolist()]
        if name == JUDGED_WHOLE:
            yield Row(SHOWN, 0, (run, number, rows, told_by), rows.nbytes)
        else:
            yield Row(RECORDS, run, (name, number, rows, told_by), rows.nbytes)


class Reading(NamedTuple):
    """The inputs of the readable rules besides the rows: runs, logs with their facts, and moments."""

    runs: Sequence[RunFacts]
    logs: Sequence[PartitionLog]
    ends: Mapping[int, LogEnds]
    settings: Mapping[str, Setting]
    reach: float

    def covered(self, run: RunFacts) -> bool:
        """Whether all logs end after a run."""
        return run.last_ms + SKEW_MS <= self.reach

    def replicas(self, records: Iterable[tuple[int, Rows, Sequence[bytes | None]]]) -> Replicas:
        """All logs, with some of their records."""
        contents = {number: ends.contents() for number, ends in self.ends.items()}
        for number, rows, values in records:
            _fill(contents[number], rows, values)
        found: dict[Place, list[tuple[PartitionLog, Contents]]] = defaultdict(list)
        for number in sorted(contents, key=lambda number: number % len(self.logs)):
            log, own = self.logs[number % len(self.logs)], contents[number]
            own.values = dict(sorted(own.values.items()))
            own.committed = dict(sorted(own.committed.items(), key=lambda each: each[::-1]))  # as markers decided them
            for offset, value in own.values.items():
                own.offsets[value].append(offset)
            found[log.topic, log.partition].append((log, own))
        return found

    def all_records(self, topics: Collection[str]) -> Records:
        """All records of some topics."""
        return {number: None for number in self.ends if self.logs[number % len(self.logs)].topic in topics}


def _fill(contents: Contents, rows: Rows, values: Sequence[bytes | None]) -> None:
    for (_, offset, marker, _, state, _), value in zip(rows.tolist(), values, strict=True):
        contents.values[offset] = value
        if not VISIBLE[state]:
            contents.hidden.add(offset)
        if state == COMMITTED:
            contents.committed[offset] = marker
        elif state == ABORTED:
            contents.aborted[offset] = marker
        elif state == OPEN:
            contents.open.add(offset)


def seek_events(
    number: int,
    values: Iterable[tuple[str, NDArray[Any]]],
    *,
    runs: Sequence[RunFacts],
    inputs: Collection[str],
    starts: Ints,
) -> Iterator[Row]:
    """Seek the events that :func:`judge_run` needs of a run; ``inputs``: the runs with suspect inputs."""
    run, told_by = runs[number], set[int]()
    places = [np.zeros(0, np.int64)]
    for name, rows in values:
        places.append(rows if rows.dtype == _AT else rows["at"])
        told_by |= set(rows["process"].tolist()) if name == "keys" else set()
    every = np.unique(np.concatenate([*places, run.telling_of(told_by), run.begun if run.run in inputs else places[0]]))
    yield from sought(EVENTS, ("events",), number, every, starts)


def judge_run(
    number: int,
    values: Iterable[tuple[Any, ...]],
    *,
    reading: Reading,
    suspects: Mapping[str, Hashes],
    inputs: Mapping[str, Rows],
    groups: Sequence[PartitionLog],
    check_crc: bool,
) -> Iterator[Row]:
    """Judge the suspects of a run by the readable rules."""
    run = reading.runs[number]
    covered = reading.covered(run)
    picked, records, told_of = _by_name(values)

    def events(places: Ints) -> list[Event]:
        return [event for _, event in in_order({at: told_of[at] for at in places.tolist()}, run)]

    keys, spots, ends = (np.concatenate([np.zeros(0, TOLD), *picked[name]]) for name in ("keys", "spots", "ends"))
    unlogged = np.concatenate([np.zeros(0, np.int64), *picked["unlogged"]])
    figures: dict[str, Figures] = {rule: {"checked": 0, "unknown": 0} for rule in HISTORY_RULES}
    replicas = reading.replicas(records["values"])
    own = events(np.concatenate([keys["at"], ends["at"], unlogged]))
    of_suspects = [rows["at"][is_in(rows["ended"], suspects[run.run])] for rows in (keys, ends)]
    transactions = events(np.concatenate([*of_suspects, run.telling_of(set(keys["process"].tolist()))]))
    findings: list[Finding] = []
    given = spots["at"][spots["what"] == POLLED]  # of two polls of an offset the later counts, whatever its value
    acknowledged = events(np.concatenate([keys["at"], ends["at"], unlogged, given]))
    findings += lost(acknowledged, replicas, figures[LOST], covered=covered)
    findings += duplicate_values(own, replicas, figures[DUPLICATE_VALUE])
    findings += unasked(transactions, replicas, figures[UNASKED])
    findings += undone(transactions, replicas, figures[COMMITTED_MISSING], covered=covered)
    findings += delivered(own, replicas, figures[ABORTED_DELIVERED], covered=covered)
    findings += precommitted(own, replicas, figures[PRECOMMITTED])
    findings += inconsistent(events(spots["at"]), replicas, figures[INCONSISTENT], covered=covered)
    findings += polled(events(unlogged), replicas, figures[POLL_SKIP], figures[NON_MONOTONIC])
    counted: Figures = {}  # not used, because follow_bucket has counted the steps
    steps = _steps_of(picked["passed"] + picked["back"], told_of, run)
    findings += polled(list(steps), reading.replicas(records["passed"]), counted, counted)
    findings += went_back(_steps_of(picked["fell"], told_of, run), counted)
    belated = events(np.concatenate([np.zeros(0, np.int64), *picked["belated"]]))
    findings += judge_generations(belated, figures[FENCED_GENERATION])
    if run.run in inputs:
        at = [rows["at"] for name in _OF_INPUTS for rows in picked[name]]
        of_inputs = events(np.concatenate([*at, run.begun]))
        only: dict[tuple[str, Place], list[int]] = defaultdict(list)
        for _, group, place, offset, _ in inputs[run.run].tolist():
            only[run.groups[group], run.places[place]].append(offset)
        by_name = {name: sorted(set(offsets)) for name, offsets in only.items()}
        logs = longest([read_group_log(log, check_crc) for log in groups])
        shown = reading.replicas(records["outputs"])
        findings += judge_told(of_inputs, shown, logs, figures, covered=covered, only=by_name)
    yield from found_rows(findings, number)
    yield Row(FOUND, number, figures)


_OF_INPUTS = ("outputs", "given", "asked")
_Values = tuple[int, Rows, Sequence[bytes | None]]  # the number of a log, some of its records, and their values


def _by_name(
    values: Iterable[tuple[Any, ...]],
) -> tuple[Mapping[str, list[Rows]], Mapping[str, list[_Values]], Mapping[int, Event]]:
    """The rows of events and the records that were picked, by what they are picked for, and the events by place."""
    picked, records = defaultdict[str, list[Rows]](list), defaultdict[str, list[_Values]](list)
    fetched: list[Shown] = []
    for name, *value in values:
        if isinstance(value[0], Shown):
            fetched.append(value[0])
        elif len(value) == 3:
            records[name].append((value[0], value[1], value[2]))
        else:
            picked[name].append(value[0])
    return picked, records, events_of(fetched)


def _steps_of(parts: Sequence[Rows], told_of: Mapping[int, Event], run: RunFacts) -> Iterator[Event]:
    """Turn steps into events. For each step a new process starts at the step's start and then takes the step."""
    rows = np.unique(np.concatenate([np.zeros(0, STEP), *parts]))
    begins = {at: (start, back) for at, start, *_, back in rows.tolist()}
    for at, event in in_order({at: told_of[at] for at in begins}, run):
        start, back = begins[at]
        yield Event(run=run.run, process=event.process, action="Crash", phase="info")
        yield replace(event, action="Seek", offset=start)
        if event.action == "EndOfPartition" and event.isolation == "read_committed" and event.offset is not None:
            yield replace(event, offset=start)
        if back:
            yield replace(event, action="AbortTransaction")
        yield event


def _ordered(shown: Iterable[Shown], run: RunFacts) -> list[Event]:
    """Fetched events in the order of their run."""
    return [event for _, event in in_order(events_of(shown), run)]


def judge_producers(
    task: int,
    values: Iterable[tuple[Any, ...] | list[Decision]],
    *,
    reading: Reading,
    accused: Mapping[tuple[int, str], Accused],
    groups: Sequence[PartitionLog],
) -> Iterator[Row]:
    """Judge refusals and sent offsets of producers without a proof; ``groups``: the logs of groups that count."""
    shown: dict[tuple[int, str], list[Shown]] = defaultdict(list)
    logs: dict[int, GroupLog] = {}
    decisions: list[Decision] = []
    for value in values:
        if isinstance(value, list):
            decisions += value
            continue
        first, second, own = value
        if isinstance(own, dict):
            logs[first] = GroupLog(groups[first], own, whole=second)
        else:
            shown[first, second].append(own)
    deadlines = Deadlines.of(decisions)
    found: list[Finding] = []
    for (number, rule), requests in sorted(shown.items(), key=lambda each: each[0]):
        run, figures, only = reading.runs[number], Figures(), accused[number, rule].pids
        asked = _ordered(requests, run)
        if rule == REFUSED:
            found += refused(asked, reading.replicas([]), figures, deadlines, only=only)
        else:
            own_logs = [logs[place] for place in sorted(logs)]
            covered = reading.covered(run)
            found += not_as_sent(asked, own_logs, figures, covered=covered, groups=run.sending, only=only)
        yield Row(FOUND, task, {rule: figures})
    yield from found_rows(found, task)


def judge_applications(
    bucket: int,
    values: Iterable[tuple[Any, ...]],
    *,
    reading: Reading,
    groups: Sequence[PartitionLog],
    whole: Collection[str],
    check_crc: bool,
) -> Iterator[Row]:
    """Judge the applications of the runs of which columns prove no input (``whole``)."""
    told_by: dict[str, list[Shown]] = defaultdict(list)
    records: dict[int, list[tuple[int, Rows, Sequence[bytes | None]]]] = defaultdict(list)
    for first, second, *own in values:
        if own:
            records[first].append((second, own[0], own[1]))
        else:
            told_by[first].append(second)
    logs = longest([read_group_log(log, check_crc) for log in groups])
    found: list[Finding] = []
    for number, run in enumerate(reading.runs):
        if run.run in whole:
            figures: dict[str, Figures] = {rule: {"checked": 0, "unknown": 0} for rule in HISTORY_RULES}
            events, shown = _ordered(told_by[run.run], run), reading.replicas(records[number])
            found += judge_told(events, shown, logs, figures, covered=reading.covered(run))
            yield Row(FOUND, bucket, figures)
    yield from found_rows(found, bucket)
