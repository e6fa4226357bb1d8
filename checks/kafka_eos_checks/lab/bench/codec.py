"""The codec against other codecs, on the same segments.

Every side reads the file, finds the batches and compares each with its CRC. The part "headers" ends there; the part
"records" decodes every record as well. A side turns a record into an object, ranges of a buffer, or a line of text. Our
side "values as objects" does the same as a client library.
The client libraries get the file in the blocks in which we read it, with the ends of each block. A whole segment at
once would cost them more in page faults than in decoding.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos_checks.audit.segments.headers import read_blocks, read_index
from kafka_eos_checks.audit.segments.reading import read_headers
from kafka_eos_checks.audit.segments.records import decode_block
from kafka_eos_checks.brokers.jars import have_jars, jars_folder
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.bench.measure import Answer, Side, Work, measure, module_or_reason, verdicts
from kafka_eos_checks.lab.generate.planted_logs import clean_batches, write

Pairs = Iterator[tuple[int, bytes | None]]  # offset and value of each record
Blocks = tuple[tuple[int, int], ...]  # begin and end in the file, in bytes

SEED = 11
LARGE_RECORDS, LARGE_VALUE = 80, 200
SMALL_RECORDS, SMALL_VALUE = 3, 100
JAVA_SECONDS = 300
_BATCH_LINE = re.compile(rb"^baseOffset: (\d+) lastOffset: \d+ count: (\d+) .* crc: (\d+) isvalid: true$", re.MULTILINE)
_RECORD_LINE = re.compile(rb"^\| offset: (\d+) .* valueSize: (\d+) ", re.MULTILINE)


# ---- headers


def our_headers(segment: Path) -> Answer:
    """Read the headers vectorised, and compare each batch with its CRC."""
    batches = records = crcs = 0
    for headers in read_headers(segment, index=read_index(segment)):
        batches += len(headers)
        records += int(headers.column("record_count").sum())
        crcs += int(headers.column("crc").sum())
    return {"batches": batches, "records": records, "sum of CRCs": crcs}


def readable_headers(segment: Path) -> Answer:
    """Read the batches with the readable decoder; their records stay encoded."""
    batches = records = crcs = 0
    for stored in read_segment(segment):
        assert isinstance(stored, StoredBatch), "a generated segment has no damage"
        batches += 1
        records += stored.batch.record_count
        crcs += stored.batch.crc
    return {"batches": batches, "records": records, "sum of CRCs": crcs}


def client_headers(memory_records: Any, segment: Path, blocks: Blocks) -> Answer:
    """Read the batches with a client library that has Java's ``MemoryRecords``."""
    batches = records = crcs = 0
    for batch in _client_batches(memory_records, segment, blocks):
        batches += 1
        records += batch.last_offset_delta + 1
        crcs += batch.crc
    return {"batches": batches, "records": records, "sum of CRCs": crcs}


def block_ranges(segment: Path) -> Blocks:
    """The byte ranges of the blocks in which we read a segment, each of whole batches."""
    return tuple((block.start, block.headers.end) for block in read_blocks(segment, index=read_index(segment)))


def _read(segment: Path, blocks: Blocks) -> Iterator[bytes]:
    with segment.open("rb", buffering=0) as file:
        for start, end in blocks:
            yield os.pread(file.fileno(), end - start, start)


def _client_batches(memory_records: Any, segment: Path, blocks: Blocks) -> Iterator[Any]:
    for data in _read(segment, blocks):
        reader = memory_records(data)
        while reader.has_next():
            batch = reader.next_batch()
            assert batch.validate_crc(), "a generated segment has no damage"
            yield batch


# ---- records


def our_records(segment: Path) -> Answer:
    """Read the records vectorised, as ranges of a buffer; no record becomes an object."""
    records = size = offsets = 0
    for block in read_blocks(segment, index=read_index(segment)):
        found = decode_block(block)
        records += len(found)
        size += int(found.value_size.sum())
        offsets += int(found.offset.sum())
    return {"records": records, "value bytes": size, "sum of offsets": offsets}


def _totals(pairs: Pairs) -> Answer:
    """Counts and sums of offsets and values, which every side that decodes records reads."""
    records = size = offsets = 0
    for offset, value in pairs:
        records += 1
        size += len(value or b"")
        offsets += offset
    return {"records": records, "value bytes": size, "sum of offsets": offsets}


def _checksum(pairs: Pairs) -> Answer:
    """A CRC over all values and their offsets, in order."""
    crc = 0
    for offset, value in pairs:
        crc = google_crc32c.extend(crc, offset.to_bytes(8, "big") + (value or b""))
    return {"CRC of offsets and values": crc}


def our_pairs(segment: Path) -> Pairs:
    """Offsets and values, vectorised; each becomes an object, as with the client libraries."""
    for block in read_blocks(segment, index=read_index(segment)):
        found = decode_block(block)
        yield from zip(found.offset.tolist(), found.values(), strict=True)


def readable_pairs(segment: Path) -> Pairs:
    """Offsets and values from the readable decoder."""
    for stored in read_segment(segment):
        assert isinstance(stored, StoredBatch), "a generated segment has no damage"
        base = stored.batch.base_offset
        for record in stored.batch.records():
            yield base + record.offset_delta, record.value


def client_pairs(memory_records: Any, segment: Path, blocks: Blocks) -> Pairs:
    """Offsets and values from a client library."""
    for batch in _client_batches(memory_records, segment, blocks):
        for record in batch:
            yield record.offset, record.value


def kio_pairs(read_batch: Callable[[bytes, int], tuple[Any, int]], segment: Path, blocks: Blocks) -> Pairs:
    """Offsets and values from kio, which always compares the CRC and cannot read only the headers."""
    for data in _read(segment, blocks):
        position = 0
        while position < len(data):
            batch, size = read_batch(data, position)
            position += size
            for record in batch.records:
                yield record.offset, record.value


# ---- Kafka's own tool


def dump_command(segment: Path, *options: str, times: int = 1) -> list[str]:
    """DumpLogSegments on one segment, once or several times."""
    tool = ["java", "-Xmx512m", "-cp", f"{jars_folder()}/*", "org.apache.kafka.tools.DumpLogSegments"]
    return [*tool, *options, "--files", ",".join([str(segment)] * times)]


def _dump(segment: Path, *options: str, times: int = 1) -> Answer:
    command = dump_command(segment, *options, times=times)
    subprocess.run(command, check=True, timeout=JAVA_SECONDS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {}


def _dump_answer(segment: Path, *options: str) -> Answer:
    """Counts of what the tool prints."""
    with tempfile.TemporaryFile() as out:
        command = dump_command(segment, *options)
        subprocess.run(command, check=True, timeout=JAVA_SECONDS, stdout=out, stderr=subprocess.DEVNULL)
        out.seek(0)
        return parse_dump(out.read(), records="--deep-iteration" in options)


def parse_dump(text: bytes, *, records: bool) -> Answer:
    """Counts and sums of DumpLogSegments' lines; those of records only if it printed records."""
    if records:
        found = np.array(_RECORD_LINE.findall(text), dtype=np.int64).reshape(-1, 2)
        return {
            "records": len(found),
            "value bytes": int(found[:, 1].sum()),
            "sum of offsets": int(found[:, 0].sum()),
        }
    rows = np.array(_BATCH_LINE.findall(text), dtype=np.int64).reshape(-1, 3)
    return {"batches": len(rows), "records": int(rows[:, 1].sum()), "sum of CRCs": int(rows[:, 2].sum())}


def java_absent() -> str:
    """The reason why Kafka's tool cannot run, "" if it can."""
    if shutil.which("java") is None:
        return "no java on the path; install a JDK 17 or later"
    return "" if have_jars() else f"no Kafka jars in {jars_folder()}; `make bench` fetches them"


def java_side(segment: Path, tiny: Path, *options: str, times: int) -> Side:
    """The side of DumpLogSegments; its start is measured on a segment of one batch.

    It gets the segment several times in one process, so that its compilers warm up as ours do in the first round.
    """
    return Side(
        name=" ".join(["Kafka's DumpLogSegments", *options]),
        run=partial(_dump, segment, *options, times=times),
        check=partial(_dump_answer, segment, *options),
        start=partial(_dump, tiny, *options),
        times=times,
        absent=java_absent(),
    )


# ---- sides


def _clients() -> list[tuple[str, Any, str]]:
    """Name, ``MemoryRecords`` and the reason for its absence, per client library."""
    compiled, no_compiled = module_or_reason("aiokafka.record._crecords.memory_records")
    plain, no_plain = module_or_reason("kafka.record.memory_records")
    return [
        ("aiokafka (C)", getattr(compiled, "MemoryRecords", None), no_compiled),
        ("kafka-python", getattr(plain, "MemoryRecords", None), no_plain),
    ]


def header_sides(segment: Path, tiny: Path) -> list[Side]:
    """The sides that read headers, ours first."""
    blocks = block_ranges(segment)
    sides = [Side(name="headers + CRC", run=partial(our_headers, segment))]
    sides.append(Side(name="our readable decoder", run=partial(readable_headers, segment)))
    for name, memory_records, absent in _clients():
        sides.append(Side(name=name, run=partial(client_headers, memory_records, segment, blocks), absent=absent))
    sides.append(java_side(segment, tiny, times=10))
    return sides


def record_sides(segment: Path, tiny: Path) -> list[Side]:
    """The sides that decode records, ours first: vectorised, with values as objects, readable."""
    blocks = block_ranges(segment)

    def checked(pairs: Callable[[], Pairs]) -> Callable[[], Answer]:
        return lambda: _checksum(pairs())

    objects = partial(our_pairs, segment)
    readable = partial(readable_pairs, segment)
    sides = [
        Side(name="vectorised", run=partial(our_records, segment), check=checked(objects)),
        Side(name="vectorised, values as objects", run=_run_of(objects), check=checked(objects)),
        Side(name="readable decoder", run=_run_of(readable), check=checked(readable)),
    ]
    for name, memory_records, absent in _clients():
        pairs = partial(client_pairs, memory_records, segment, blocks)
        sides.append(Side(name=name, run=_run_of(pairs), check=checked(pairs), absent=absent))
    kio, no_kio = module_or_reason("kio.records.readers")
    read_batch: Any = getattr(kio, "read_batch", None)
    pairs = partial(kio_pairs, read_batch, segment, blocks)
    sides.append(Side(name="kio", run=_run_of(pairs), check=checked(pairs), absent=no_kio))
    sides.append(java_side(segment, tiny, "--deep-iteration", times=2))
    return sides


def _run_of(pairs: Callable[[], Pairs]) -> Callable[[], Answer]:
    return lambda: _totals(pairs())


# ---- the part


def run(folder: Path, *, quick: bool) -> Iterator[Verdict]:
    """Measure the codec on generated segments.

    Args:
        folder: the folder for the segments.
        quick: use a sixth of the bytes and fewer rounds.
    """
    part = 6 if quick else 1
    rounds = 3 if quick else 5
    large = clean_batches(SEED, 6000 // part, smallest=LARGE_RECORDS, largest=LARGE_RECORDS)
    small = clean_batches(SEED, 216_000 // part, largest=SMALL_RECORDS)
    tiny = write(folder / "tiny-0", small.take(slice(1)), SMALL_VALUE, SEED).path
    for kind, batches, value_bytes in (("large", large, LARGE_VALUE), ("small", small, SMALL_VALUE)):
        segment = write(folder / f"{kind}-0", batches, value_bytes, SEED).path
        size, records = segment.stat().st_size, int(batches.record_count.sum())
        given = f"{size / 1e6:.0f} MB, {len(batches):,} batches, {records:,} records"
        work = Work(part="codec", name=kind, given=given, amount=records, unit="records/s", per_core=True)
        if kind == "large":
            headers = replace(work, amount=size, unit="B/s", target=3e9)
        else:
            headers = replace(work, amount=len(batches), unit="batches/s", target=1.5e6)
        headers = replace(headers, given=f"{given}; read, headers, CRC")
        work = replace(work, given=f"{given}; read, headers, CRC, every record")
        sides = header_sides(segment, tiny)
        yield from verdicts(headers, sides[0], sides[1:], measure(sides, rounds, label=f"codec, {kind} headers"))

        sides = record_sides(segment, tiny)
        measured = measure(sides, rounds, label=f"codec, {kind} records")
        fast, objects, readable, *peers = sides
        yield from verdicts(replace(work, target=5e6), fast, [readable, *peers], measured)
        yield from verdicts(work, objects, peers[:1], measured)
        yield from verdicts(replace(work, target=0.7e6), readable, peers[:2], measured)
