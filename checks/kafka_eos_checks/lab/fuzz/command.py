"""``kafka-eos lab fuzz``: mutated record batches must be read or refused, and nothing else.

Valid batches of every kind are made from the seed; each case damages one of them. The codec must then return a
value, or :class:`~kafka_eos.errors.MalformedBatch` with a position inside the bytes, within a bounded time and
memory. A value that it reads must encode to the same bytes, and batches and regions must cover a segment of those
bytes. A case is a function of the seed and its number, so each can be run again by itself.
"""

import argparse
import multiprocessing
import random
import re
import resource
import shlex
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import FrameType

import google_crc32c

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats import record_batch, segment
from kafka_eos.formats.compression import CompressionType, compress, compress_snappy_raw
from kafka_eos.formats.record_batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    build_control_batch,
)
from kafka_eos_checks.audit.oracle import random_clusters, random_histories, random_logs
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.progress import count_progress
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.kit.workers import worker_pool
from kafka_eos_checks.lab.fuzz import frames as fuzz_frames

VALID_BATCHES = 2000
"""The number of valid batches that a seed makes; the cases mutate these."""

DECOMPRESSED_LIMIT = 4 << 20
SECONDS_PER_CASE = 5.0
MEMORY_BYTES = 4 << 30
"""The address space of a worker: unbounded allocation fails in the worker and does not exhaust the machine."""

RANDOM = {"logs": random_logs.judge, "clusters": random_clusters.judge, "histories": random_histories.judge}
"""The options that judge random cases of the audit instead."""

CASES_PER_TASK = 5000
SHRINK_TRIES = 4000
SECONDS_PER_TASK = 600.0
READ = "read"
VALID = "none"
"""The mutation of a case that is left valid, and so must be read."""

_CODEC_BITS = 0x07
_BATCH_LENGTH_AT = 8
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_NUMBER = re.compile(r"\b[0-9a-f]{8}\b|-?\b\d+")
# (position, bytes) of the header's fields that decide how the rest is read
_DECISIVE_FIELDS = ((0, 8), (8, 4), (16, 1), (21, 2), (23, 4), (27, 8), (57, 4))
_LONG_VARINTS = (b"\x80\x00", b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 12)

EPILOG = """examples:
  kafka-eos lab fuzz --count 1000000 --seed 7 --jobs 2
  kafka-eos lab fuzz --seed 7 --first 4321 --count 1
  kafka-eos lab fuzz --hex 0000000000000000...
  kafka-eos lab fuzz --clusters 1000 --first 5000
  kafka-eos lab fuzz --histories 1000 --first 5000
  kafka-eos lab fuzz --frames 200000
"""


class Violation(Exception):  # noqa: N818 - the codec's, found by this program
    """Raised when the codec breaks its rule."""


class _TooSlow(BaseException):
    """Raised by the timer; no ``except Exception`` of the code under test may swallow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that broke the rule.

    Attributes:
        number: the number of the case; with the seed it gives the bytes.
        mutation: the mutation of a valid batch.
        data: the bytes, shrunk as far as they still fail.
        violation: the codec's wrong behaviour.
    """

    number: int
    mutation: str
    data: bytes
    violation: str


@dataclass(slots=True)
class Outcome:
    """The outcome of a run of cases.

    Attributes:
        counts: cases by the codec's answer: ``read``, or the reason for the refusal without its numbers.
        slowest: seconds of the slowest case.
        failures: the cases that broke the rule.
    """

    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        """Add the outcome of another run."""
        self.counts += other.counts
        self.slowest = max(self.slowest, other.slowest)
        self.failures += other.failures


def judge(data: bytes) -> str:
    """The codec's answer for ``data``: ``read``, or the reason for the refusal without its numbers.

    Raises:
        Violation: if the codec raises anything except MalformedBatch with a position inside ``data``, takes too long,
            or reads values that do not encode to the same bytes.
    """
    signal.setitimer(signal.ITIMER_REAL, SECONDS_PER_CASE)
    try:
        _check_cover(data)
        _read(data)
    except MalformedBatch as error:
        if not 0 <= error.position <= len(data):
            raise Violation(f"position {error.position} of {len(data)} bytes: {error.reason}") from None
        return _NUMBER.sub("N", error.reason)
    except Violation:
        raise
    except _TooSlow:
        raise Violation(f"took more than {SECONDS_PER_CASE} s") from None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # any other exception, also a panic in Rust, is a violation
        raise Violation(f"{type(error).__name__}: {error}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return READ


def _judge_valid(data: bytes) -> str:
    """:func:`judge` for a batch without mutation."""
    said = judge(data)
    if said != READ:
        raise Violation(f"a valid batch is refused: {said}")
    return said


def _read(data: bytes) -> None:
    batch, end = record_batch.decode_batch(data)
    if batch.encode() != data[:end]:
        raise Violation("the batch encodes to other bytes")
    batch.control_record()
    records = batch.records(DECOMPRESSED_LIMIT)
    section = record_batch.encode_records(records)
    if record_batch.decode_records(section, len(records)) != records:
        raise Violation("the records encode to other records")
    stored = batch.decompressed(DECOMPRESSED_LIMIT)
    if section != stored and len(section) >= len(stored):
        raise Violation("the records encode to other bytes, and not because a stored varint is too long")


def _check_cover(data: bytes) -> None:
    position = 0
    for item in segment.scan(data):
        if item.position != position:
            raise Violation(f"the segment's item at {item.position} does not follow the one before, to {position}")
        position = item.end if isinstance(item, segment.CorruptRegion) else position + item.batch.size
    if position != len(data):
        raise Violation(f"the segment's items end at {position} of {len(data)} bytes")


def _random_record(rng: random.Random, offset_delta: int) -> Record:
    def content(most: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(most))

    headers = [(rng.randbytes(rng.randrange(6)), content(6)) for _ in range(rng.choice((0, 0, 0, 1, 3)))]
    value = b"exactly once " * rng.randrange(3000) if rng.random() < 0.02 else content(200)
    return Record(
        timestamp_delta=rng.choice((0, 1, -1, 1000, rng.randrange(-(2**63), 2**63))),
        offset_delta=offset_delta,
        key=content(20),
        value=value,
        headers=tuple(headers),
    )


def random_batch(rng: random.Random) -> RecordBatch:
    """A valid batch of any codec, perhaps with headers, nulls or gaps in its offsets; or a marker."""
    producer_id, producer_epoch = rng.choice(((-1, -1), (rng.randrange(2**40), rng.randrange(2**15))))
    if rng.random() < 0.1:
        marker = ControlRecord(control_type=rng.choice(tuple(ControlType)), coordinator_epoch=rng.randrange(100))
        return build_control_batch(marker, producer_id=producer_id, producer_epoch=producer_epoch)
    offset_deltas = sorted(rng.sample(range(300), rng.choice((0, 1, 2, 5, 20, 100))))
    compression = rng.choice(tuple(CompressionType))
    compression = compression if offset_deltas else CompressionType.NONE  # an empty batch is only a header
    batch = build_batch(
        [_random_record(rng, delta) for delta in offset_deltas],
        base_offset=rng.choice((0, rng.randrange(2**62))),
        partition_leader_epoch=rng.randrange(-1, 10),
        compression=compression,
        timestamp_type=rng.choice(tuple(TimestampType)),
        is_transactional=rng.random() < 0.5,
        base_timestamp=rng.randrange(-1, 2**41),
        max_timestamp=rng.randrange(-1, 2**41),
        delete_horizon_ms=rng.choice((None, None, 5)),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=rng.choice((-1, 0, 2**31 - 1)),
    )
    if compression is CompressionType.SNAPPY and rng.random() < 0.5:
        raw = with_payload(batch.encode(), compress_snappy_raw(batch.decompressed()))
        return record_batch.decode_batch(raw)[0]
    return batch


@lru_cache(maxsize=2)
def valid_batches(seed: int) -> tuple[bytes, ...]:
    """The valid batches of a seed, encoded."""
    rng = random.Random(seed)
    return tuple(random_batch(rng).encode() for _ in range(VALID_BATCHES))


def repaired(data: bytes) -> bytes:
    """``data`` with correct length, magic and CRC, so that a change gets past these checks to the later ones."""
    if len(data) < HEADER_BYTES:
        return data
    fixed = bytearray(data)
    fixed[_BATCH_LENGTH_AT:LOG_OVERHEAD_BYTES] = struct.pack(">i", len(data) - LOG_OVERHEAD_BYTES)
    fixed[_MAGIC_AT] = record_batch.MAGIC
    fixed[_CRC_AT:CHECKED_FROM] = struct.pack(">I", google_crc32c.value(bytes(fixed[CHECKED_FROM:])))
    return bytes(fixed)


def with_payload(data: bytes, payload: bytes) -> bytes:
    """The batch with another payload, and with the length and CRC for it."""
    return repaired(data[:HEADER_BYTES] + payload)


def _flip_bits(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    flipped = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _lie_in_a_field(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    position, size = rng.choice(_DECISIVE_FIELDS)
    largest = (1 << 8 * size) - 1
    original = int.from_bytes(data[position : position + size], "big")
    lie = rng.choice(
        (0, 1, largest, largest // 2, largest // 2 + 1, original + 1, original - 1, rng.randint(0, largest))
    )
    return data[:position] + (lie % (largest + 1)).to_bytes(size, "big") + data[position + size :]


def _truncate(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _insert(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    position = rng.randrange(len(data) + 1)
    inserted = rng.choice((rng.randbytes(rng.randrange(1, 9)), bytes(rng.randrange(1, 200))))
    return data[:position] + inserted + data[position + rng.choice((0, 0, len(inserted))) :]


def _lie_in_a_varint(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    position = rng.randrange(len(data) + 1)
    return data[:position] + rng.choice(_LONG_VARINTS) + data[position + 1 :]


def _change_codec(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    attributes = data[_ATTRIBUTES_AT + 1] & ~_CODEC_BITS | rng.randrange(8)
    return data[: _ATTRIBUTES_AT + 1] + bytes([attributes]) + data[_ATTRIBUTES_AT + 2 :]


Mutation = Callable[[random.Random, bytes, bytes], bytes]
_PLAIN_MUTATIONS: tuple[Mutation, ...] = (
    _flip_bits,
    _lie_in_a_field,
    _truncate,
    _splice,
    _insert,
    _lie_in_a_varint,
    _change_codec,
)
_SECTION_MUTATIONS: tuple[Mutation, ...] = (_flip_bits, _truncate, _splice, _insert, _lie_in_a_varint)


def _mutate_records(rng: random.Random, data: bytes, other: bytes) -> tuple[str, bytes]:
    """Decompress the records, damage them, and compress them again."""
    batch = record_batch.decode_batch(data)[0]
    section = batch.decompressed()
    if not section:
        return "records of an empty batch", data
    mutation = rng.choice(_SECTION_MUTATIONS)
    mutated = mutation(rng, section, other)
    return f"records{mutation.__name__}", with_payload(data, compress(batch.compression, mutated))


def case(seed: int, number: int) -> tuple[str, bytes]:
    """The mutation and the bytes of one case."""
    rng = random.Random((seed << 40) + number)
    data, other = rng.choices(valid_batches(seed), k=2)
    kind = rng.random()
    if kind < 0.05:
        return VALID, data
    if kind < 0.35:
        return _mutate_records(rng, data, other)
    names = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mutation = rng.choice(_PLAIN_MUTATIONS)
        if len(data) > HEADER_BYTES:
            data = mutation(rng, data, other)
            names.append(mutation.__name__.lstrip("_"))
    if rng.random() < 0.6:
        data = repaired(data)
        names.append("repaired")
    return " ".join(names), data


def run_cases(seed: int, first: int, count: int) -> Outcome:
    """Run ``count`` cases from ``first`` on. The first failure ends the run and is shrunk."""
    outcome = Outcome()
    with _timer():
        for number in range(first, first + count):
            mutation, data = case(seed, number)
            started = time.perf_counter()
            try:
                said = _judge_valid(data) if mutation == VALID else judge(data)
            except Violation as violation:
                smallest = data if mutation == VALID else shrink(data)
                failure = Failure(number=number, mutation=mutation, data=smallest, violation=str(violation))
                outcome.failures.append(failure)
                return outcome
            outcome.counts[said] += 1
            outcome.slowest = max(outcome.slowest, time.perf_counter() - started)
    return outcome


@contextmanager
def _timer() -> Iterator[None]:
    """Within this context, the timer of :func:`judge` interrupts a case that takes too long."""

    def too_slow(_signal: int, _frame: FrameType | None) -> None:
        raise _TooSlow

    previous = signal.signal(signal.SIGALRM, too_slow)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, previous)


def shrink(data: bytes) -> bytes:
    """The failing bytes, cut as far as they still fail; within ``SHRINK_TRIES`` tries."""
    tries = 0
    piece = len(data) // 2
    while piece and tries < SHRINK_TRIES:
        cut_any = False
        position = 0
        while position < len(data) and tries < SHRINK_TRIES:
            without = data[:position] + data[position + piece :]
            tries += 1
            smaller = next((candidate for candidate in (without, repaired(without)) if _fails(candidate)), None)
            if smaller is None:
                position += piece
            else:
                data, cut_any = smaller, True
        if not cut_any:
            piece //= 2
    return data


def _fails(data: bytes) -> bool:
    try:
        judge(data)
    except Violation:
        return True
    return False


def _bound_memory() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, most))


def _run_task(task: tuple[int, int, int]) -> Outcome:
    return run_cases(*task)


def _outcomes(tasks: Sequence[tuple[int, int, int]], jobs: int) -> Iterator[Outcome]:
    """The outcome of each task, in this process for one job, otherwise in workers with bounded memory."""
    if jobs == 1:
        yield from map(_run_task, tasks)
        return
    with worker_pool(jobs, _bound_memory) as pool:
        pending = pool.imap_unordered(_run_task, tasks)
        for _ in tasks:
            # A worker that died or hangs in C never answers; its timer cannot interrupt it.
            yield pending.next(timeout=SECONDS_PER_TASK)


def fuzz(seed: int, first: int, count: int, jobs: int) -> Outcome:
    """Run the cases in tasks up to the first failure, with progress on standard error."""
    ends = range(first, first + count, CASES_PER_TASK)
    tasks = [(seed, start, min(CASES_PER_TASK, first + count - start)) for start in ends]
    total = Outcome()
    with count_progress(f"fuzz, seed {seed}", count) as advance:
        try:
            for outcome in _outcomes(tasks, jobs):
                total.add(outcome)
                advance(outcome.counts.total())
                if total.failures:
                    break
        except multiprocessing.TimeoutError:
            done = total.counts.total()
            violation = f"a worker does not answer; run the seed with --jobs 1 (about {done} of {count} cases are done)"
            total.failures.append(Failure(number=first, mutation="unknown", data=b"", violation=violation))
    return total


def verdict_of(seed: int, outcome: Outcome, seconds: float) -> Verdict:
    """The verdict of a run."""
    evidence = "\n\n".join(
        f"case {failure.number} of seed {seed} ({failure.mutation}): {failure.violation}\n"
        f"smallest failing bytes ({len(failure.data)}): {failure.data.hex()}\n"
        f"again: kafka-eos lab fuzz --hex {failure.data.hex() or shlex.quote('')}\n"
        f"whole: kafka-eos lab fuzz --seed {seed} --first {failure.number} --count 1"
        for failure in outcome.failures
    )
    cases = outcome.counts.total() + len(outcome.failures)
    return Verdict(
        check="fuzz",
        name="record batches",
        expected="each is read or MalformedBatch",
        found=outcome.failures[0].violation if outcome.failures else "each is read or MalformedBatch",
        ok=not outcome.failures and outcome.counts.total() > 0,
        seconds=seconds,
        figures={
            "seed": str(seed),
            "cases": cases,
            "read": outcome.counts[READ],
            "reasons": len(set(outcome.counts) - {READ}),
            "slowest_ms": round(outcome.slowest * 1000, 1),
        },
        evidence=evidence,
    )


def run(arguments: argparse.Namespace) -> int:
    """Run ``fuzz``."""
    if arguments.hex is not None:
        return _run_hex(arguments.hex)
    for kind in RANDOM:
        if getattr(arguments, kind) is not None:
            return _run_random(kind, arguments)
    if arguments.frames is not None:
        return _run_frames(arguments)
    if arguments.count < 1 or arguments.jobs < 1 or arguments.first < 0:
        print("kafka-eos lab fuzz: --count and --jobs are at least 1, --first at least 0", file=sys.stderr)
        return 2
    seed = _seed(arguments)
    started = time.perf_counter()
    outcome = fuzz(seed, arguments.first, arguments.count, arguments.jobs)
    verdict = verdict_of(seed, outcome, time.perf_counter() - started)
    for reason, count in outcome.counts.most_common():
        answer_console.print(f"{count:>12,}  {reason}", markup=False, soft_wrap=True)
    print_verdicts([verdict])
    if arguments.json:
        write_verdicts(arguments.json, [replace(verdict, figures={**verdict.figures, **outcome.counts})])
    return 0 if verdict.ok else 1


def _run_random(kind: str, arguments: argparse.Namespace) -> int:
    """Judge random cases of a kind of :data:`RANDOM`."""
    count = getattr(arguments, kind)
    if count < 1 or arguments.first < 0:
        print(f"kafka-eos lab fuzz: --{kind} is at least 1, --first at least 0", file=sys.stderr)
        return 2
    if arguments.seed is not None:
        print(f"kafka-eos lab fuzz: the number of a case is its seed with --{kind}; give --first", file=sys.stderr)
        return 2
    return _answer(RANDOM[kind](count, arguments.first), arguments.json)


def _run_frames(arguments: argparse.Namespace) -> int:
    if arguments.frames < 1:
        print("kafka-eos lab fuzz: --frames is at least 1", file=sys.stderr)
        return 2
    return _answer(fuzz_frames.judge(arguments.frames, _seed(arguments)), arguments.json)


def _seed(arguments: argparse.Namespace) -> int:
    """The given seed, or a random one."""
    return random.SystemRandom().randrange(2**32) if arguments.seed is None else int(arguments.seed)


def _answer(verdict: Verdict, path: Path | None) -> int:
    """Print a verdict, write it if there is a path, and return the exit code."""
    print_verdicts([verdict])
    if path is not None:
        write_verdicts(path, [verdict])
    return 0 if verdict.ok else 1


def _run_hex(text: str) -> int:
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        print(f"kafka-eos lab fuzz: --hex takes hexadecimal digits: {error}", file=sys.stderr)
        return 2
    with _timer():
        try:
            answer_console.print(judge(data), markup=False)
        except Violation as violation:
            answer_console.print(f"FAIL {violation}", markup=False)
            return 1
    return 0


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", help_line: str) -> None:
    """Create the subcommand's parser."""
    parser = subparsers.add_parser(
        "fuzz",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=100_000, help="number of cases (default: 100000)")
    parser.add_argument("--seed", type=int, help="seed of the cases (default: a random one, which is printed)")
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        help="number of the first case (default: 0), which is the seed of a log, a cluster or a history",
    )
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default: 2); 1 needs none")
    parser.add_argument("--hex", help="judge these bytes instead")
    parser.add_argument(
        "--logs",
        type=int,
        metavar="N",
        help="instead: audit N random logs with planted faults and random cuts, by chunks and by the readable rule",
    )
    parser.add_argument(
        "--clusters",
        type=int,
        metavar="N",
        help="instead: N random clusters, whose transactions are audited by steps and by the readable rules",
    )
    parser.add_argument(
        "--histories",
        type=int,
        metavar="N",
        help="instead: N random histories with their logs, judged by joins and by the readable rules",
    )
    parser.add_argument(
        "--frames",
        type=int,
        metavar="N",
        help="instead: send N mutated requests to a server, which must keep running and serve others",
    )
    add_json(parser, "the verdict, with the counts by reason")
    parser.set_defaults(run=run)
