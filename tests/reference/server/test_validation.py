"""A client's batch is refused, or changed, by its leader, as Kafka's own classes do with random batches."""

import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from google_crc32c import value as crc32c

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    decode_batch,
)
from kafka_eos.server.configs import LARGEST_LONG, AppendRules
from kafka_eos.server.validation import Refused, one_batch, validated
from kafka_eos_checks.brokers.brokers import java_command

NOW = 1_700_000_000_000
COUNT, SEED = 1500, 1


def drawn_rules(rng: random.Random) -> AppendRules:
    """A topic's rules; its codec is mostly that of the producer."""
    return AppendRules(
        max_message_bytes=10_000,
        segment_bytes=10_000,
        timestamp_type=rng.choice([TimestampType.CREATE_TIME, *TimestampType]),
        before_max_ms=rng.choice([LARGEST_LONG, 10_000]),
        after_max_ms=rng.choice([3_600_000, 1_000]),
        is_compacted=rng.random() < 0.2,
        compression=rng.choice([None, None, *CompressionType]),
        min_in_sync=1,
    )


def drawn_batch(rng: random.Random) -> RecordBatch:
    """A batch with one to four records, some of which have no place in it, no key, or a time out of bounds."""
    base = rng.choice([NOW] * 8 + [NO_TIMESTAMP, NO_TIMESTAMP - 5])
    later = rng.choice([(0,), (0, 500), (0, 5_000), (0, -100_000)])
    records = [
        Record(
            attributes=rng.choice([0, 0, 3]),
            offset_delta=place if rng.random() < 0.98 else rng.randrange(6),
            timestamp_delta=rng.choice(later),
            key=rng.choice([b"key", b"key", b"key", None]),
            value=rng.choice([b"v" * rng.randrange(30), None]),
            headers=rng.choice([(), (), ((b"h", None),)]),
        )
        for place in range(rng.choice([1, 1, 2, 4]))
    ]
    epoch, sequence = rng.choice([(0, 0)] * 4 + [(-1, 0), (0, -1)])
    producer = {"producer_id": rng.choice([-2, 0, 7, 7]), "producer_epoch": epoch, "base_sequence": sequence}
    return build_batch(
        records,
        base_timestamp=base,
        compression=rng.choice([CompressionType.NONE, *CompressionType]),
        timestamp_type=rng.choice([TimestampType.CREATE_TIME] * 9 + [TimestampType.LOG_APPEND_TIME]),
        is_transactional=rng.random() < 0.3,
        is_control=rng.random() < 0.05,
        last_offset_delta=rng.choice([None] * 9 + [2]),
        max_timestamp=rng.choice([None] * 4 + [NO_TIMESTAMP, NOW + 10**7]),
        delete_horizon_ms=rng.choice([None] * 9 + [NOW]),
        **(producer if rng.random() < 0.4 else {}),
    )


def damaged(batch: RecordBatch, rng: random.Random) -> bytes:
    """The batch's bytes, some with a bit flipped, a byte more or a byte less.

    Compressed records stay as they are, because our reader is stricter there than Kafka's.
    """
    data = bytearray(batch.encode())
    is_plain = batch.compression is CompressionType.NONE
    kind = rng.randrange(8)
    if kind in {0, 1}:
        data[rng.randrange(21 + 2 * kind, len(data) if is_plain else HEADER_BYTES)] ^= 1 << rng.randrange(8)
    elif kind in {2, 3} and is_plain:
        del data[len(data) - rng.randint(1, 3) :]
    elif kind == 4 and is_plain:
        data += bytes(1)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    data[20] ^= kind == 5 and rng.random() < 0.3
    return bytes(data)


def header(batch: RecordBatch) -> RecordBatch:
    """The header alone."""
    return replace(batch, crc=0, payload=b"")


def by_kafka(asked: list[tuple[bytes, AppendRules]]) -> list[str]:
    """What Kafka's leader answers: see tests/java/BatchValidation.java."""
    names = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
    program = Path(__file__).parents[2] / "java" / "BatchValidation.java"
    lines = "".join(
        f"{data.hex()} {NOW} {names[rules.timestamp_type]} {rules.before_max_ms} {rules.after_max_ms} "
        f"{rules.is_compacted} {'producer' if rules.compression is None else rules.compression.name.lower()}\n"
        for data, rules in asked
    )
    command = java_command(str(program))
    done = subprocess.run(command, input=lines, capture_output=True, check=True, text=True, timeout=120)
    return done.stdout.splitlines()


def judged(data: bytes, rules: AppendRules) -> tuple[int, str | RecordBatch, bytes]:
    """The error code and the places of wrong records; or 0, the batch that is appended, and its bytes."""
    try:
        return ErrorCode.NONE, *validated(one_batch(data, 9), rules, "t-0", NOW)
    except Refused as refused:
        return refused.error, ",".join(str(each.place) for each in refused.records), b""


@pytest.mark.java
def test_kafkas_own_classes_judge_and_change_batches_alike() -> None:
    rng = random.Random(SEED)
    asked = [(damaged(drawn_batch(rng), rng), drawn_rules(rng)) for _ in range(COUNT)]
    answers = by_kafka(asked)
    assert len(answers) == COUNT
    reached = set[int]()
    for (data, rules), answer in zip(asked, answers, strict=True):
        error, found, made = judged(data, rules)
        code, _, told = answer.partition(" ")
        assert error == int(code), data.hex()
        if isinstance(found, str):
            assert found == told, data.hex()
        else:
            theirs, _ = decode_batch(bytes.fromhex(told))
            assert (header(found), found.records()) == (header(theirs), theirs.records()), data.hex()
            if found.compression in {CompressionType.NONE, data[22] & 7}:  # else the compressors may differ
                assert made.hex() == told, data.hex()
        reached.add(error)
    wrong = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD}
    assert reached == {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, *wrong}
