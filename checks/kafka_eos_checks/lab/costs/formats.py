"""The sizes of the formats in bytes, by the codec: nothing here is timed, and no broker is involved.

Three claims: the overhead of a batch as a function of its number of messages (C38), what idempotence adds to a batch
(C39), and what the record batch saves on disk against the message set before it (C41).
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.message_set import Message, build_message_set
from kafka_eos.formats.record_batch import HEADER_BYTES, Record, build_batch
from kafka_eos_checks.kit.verdict import Verdict

KEY_BYTES, VALUE_BYTES = 100, 50  # of the claim's example
BASE_TIMESTAMP = 1_700_000_000_000
CLAIMED_NEW = {1: 60, 3: 74, 10: 123, 50: 403}
CLAIMED_OLD = {1: 34, 3: 102, 10: 340, 50: 1700}
CLAIMED_SAVING = 0.20
CLAIMED_FIELD_BITS = 96
SEED = 41
BATCH_BYTES = 16_384  # the producer's default batch.size

Messages = Sequence[tuple[int, bytes | None, bytes | None]]  # timestamp (ms), key, value


def message_set(messages: Messages, compression: CompressionType) -> bytes:
    """Encode messages in version 1 as a broker stores them: relative offsets in a wrapper, if compressed."""
    made = [
        Message(offset=offset, timestamp=timestamp, key=key, value=value)
        for offset, (timestamp, key, value) in enumerate(messages)
    ]
    return build_message_set(made, compression=compression)


def record_batch(messages: Messages, compression: CompressionType, producer_id: int = -1) -> bytes:
    """Encode messages as a batch of version 2, idempotent if there is a producer id."""
    first = messages[0][0]
    made = [
        Record(timestamp_delta=timestamp - first, offset_delta=offset, key=key, value=value)
        for offset, (timestamp, key, value) in enumerate(messages)
    ]
    numbers = 0 if producer_id >= 0 else -1
    batch = build_batch(
        made,
        compression=compression,
        base_timestamp=first,
        producer_id=producer_id,
        producer_epoch=numbers,
        base_sequence=numbers,
    )
    return batch.encode()


def overhead(count: int, gap_ms: int) -> tuple[int, int]:
    """The bytes of a batch of ``count`` messages that are neither key nor value: version 1, version 2.

    Args:
        count: the number of messages, each with a key of 100 bytes and a value of 50.
        gap_ms: the time between the first message and each of the others.
    """
    key, value = bytes(KEY_BYTES), bytes(VALUE_BYTES)
    times = [BASE_TIMESTAMP] + [BASE_TIMESTAMP + gap_ms] * (count - 1)
    messages = [(time, key, value) for time in times]
    payload = count * (KEY_BYTES + VALUE_BYTES)
    none = CompressionType.NONE
    return len(message_set(messages, none)) - payload, len(record_batch(messages, none)) - payload


def overhead_verdict() -> Verdict:
    """C38 claims 53 + 7n bytes for n messages, 34n before; a single n with another number refutes it."""
    lines = ["messages  version 1 (claimed)  version 2 (claimed)   version 2, timestamps 100 ms apart"]
    figures: dict[str, int | float | str] = {}
    differing = []
    for count, claimed in CLAIMED_NEW.items():
        old, new = overhead(count, 0)
        late = overhead(count, 100)[1]
        lines.append(f"{count:8}  {old:9,} ({CLAIMED_OLD[count]:,})  {new:15,} ({claimed:,})  {late:20,}")
        figures[f"n={count}"] = new
        differing += [f"{new} bytes for {count}, not {claimed}"] if new != claimed else []
        differing += [f"{old} bytes for {count} before, not {CLAIMED_OLD[count]}"] if old != CLAIMED_OLD[count] else []
    one, two = overhead(1, 0)[1], overhead(2, 0)[1]
    far = overhead(65, 0)[1] - overhead(64, 0)[1]
    lines += [
        "",
        f"measured: {one - (two - one)} + {two - one}n bytes, the header's {HEADER_BYTES} among them",
        f"{far} instead of {two - one} for a message from the 65th on, whose offset delta takes two bytes; one more "
        "for a timestamp that is 64 ms or more after the first",
        f"keys of {KEY_BYTES} bytes, values of {VALUE_BYTES}; criterion: holds when each of the claim's numbers is met",
    ]
    found = f"refuted: {one - (two - one)} + {two - one}n bytes" if differing else "holds"
    return Verdict(
        check="cost",
        name="overhead of a batch",
        expected="refuted",
        found=found,
        ok=found.startswith("refuted"),
        figures=figures,
        evidence="\n".join([*lines, *differing]),
        claims=("C38",),
        title="bytes of a batch that are neither key nor value, by our codec, which Kafka's agrees with",
    )


def idempotence_verdict() -> Verdict:
    """C39 claims that idempotence adds 96 bits; a batch that is not 96 bits larger with it refutes the claim."""
    messages = [(BASE_TIMESTAMP, None, b"v" * 100)] * 10
    plain = record_batch(messages, CompressionType.NONE)
    numbered = record_batch(messages, CompressionType.NONE, producer_id=2**63 - 1)
    added = 8 * (len(numbered) - len(plain))
    fields = {"producer id": 64, "epoch": 16, "base sequence": 32}
    differing = sum(one != other for one, other in zip(plain[43:57], numbered[43:57], strict=True))
    assert plain[57:] == numbered[57:], "only the header tells the two apart"
    return Verdict(
        check="cost",
        name="what idempotence adds to a batch",
        expected="refuted",
        found=f"refuted: {added} bits" if added != CLAIMED_FIELD_BITS else "holds",
        ok=added != CLAIMED_FIELD_BITS,
        figures={"added_bits": added, "field_bits": sum(fields.values())},
        evidence=(
            f"a batch of 10 messages takes {len(plain)} bytes without idempotence and {len(numbered)} with it\n"
            + "its fields: "
            + ", ".join(f"{name} {bits} bits" for name, bits in fields.items())
            + f"; every batch of version 2 has them, and without idempotence they are -1 ({differing} bytes differ)\n"
            + "criterion: holds when a batch with a producer id is 96 bits larger than the same batch without one"
        ),
        claims=("C39",),
        title="the same messages, with a producer id and without",
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of data: its name, and messages of one batch."""

    name: str
    messages: Messages


def shapes() -> Iterator[Shape]:
    """Kinds of data, each as one batch of the producer's default size, or of a single message."""
    dice = random.Random(SEED)
    words = ["order", "created", "paid", "shipped", "customer", "amount", "currency", "EUR", "status", "warehouse"]

    def json_value() -> bytes:
        fields = [f'"{word}": "{dice.choice(words)}-{dice.randrange(10_000)}"' for word in dice.sample(words, 6)]
        return ("{" + ", ".join(fields) + "}").encode()

    def batch(make: Mapping[str, int], value: bytes | None = None) -> Messages:
        messages: list[tuple[int, bytes | None, bytes | None]] = []
        size = 0
        while size < BATCH_BYTES:
            key = dice.randbytes(make["key"]) if make["key"] else None
            body = value if value is not None else dice.randbytes(make["value"])
            messages.append((BASE_TIMESTAMP + len(messages) // 4, key, body))
            size += len(key or b"") + len(body) + 9
        return messages

    yield Shape("one message of 10 bytes", [(BASE_TIMESTAMP, None, bytes(10))])
    yield Shape("one message of 1000 bytes", [(BASE_TIMESTAMP, None, dice.randbytes(1000))])
    yield Shape("counters: key 8, value 8", batch({"key": 8, "value": 8}))
    yield Shape("random values of 10", batch({"key": 0, "value": 10}))
    yield Shape("random values of 100", batch({"key": 0, "value": 100}))
    yield Shape("random values of 1000", batch({"key": 0, "value": 1000}))
    yield Shape("the claim's: key 100, value 50", batch({"key": 100, "value": 50}))
    count = BATCH_BYTES // 180
    yield Shape("JSON of about 170", [(BASE_TIMESTAMP + n, str(n % 50).encode(), json_value()) for n in range(count)])


def disk_verdict() -> Verdict:
    """C41 claims that version 2 takes up to 20 % less disk; data that save more refute it."""
    codecs = [codec for codec in CompressionType if codec is not CompressionType.ZSTD]
    lines = [f"{'data':32} {'messages':>8}  " + "".join(f"{codec.name.lower():>24}" for codec in codecs)]
    savings = {}
    for shape in shapes():
        cells = ""
        for codec in codecs:
            old, new = len(message_set(shape.messages, codec)), len(record_batch(shape.messages, codec))
            savings[shape.name, codec] = 1 - new / old
            cells += f"{old:>9,} {new:>7,} {100 * (new / old - 1):>+5.0f} %"
        lines.append(f"{shape.name:32} {len(shape.messages):>8,}  {cells}")
    (most_shape, most_codec), most = max(savings.items(), key=lambda item: item[1])
    (least_shape, least_codec), least = min(savings.items(), key=lambda item: item[1])
    within = most <= CLAIMED_SAVING
    said = f"{-100 * most:+.0f} % ({most_shape}) to {-100 * least:+.0f} % ({least_shape})"
    lines += [
        "",
        f"most saved: {most_shape}, {most_codec.name.lower()}; least: {least_shape}, {least_codec.name.lower()}",
        "each cell: bytes of version 1, of version 2, and the difference; zstd exists only with version 2",
        "criterion: holds when version 2 saves at most 20 % on all data, and refuted when it saves more on some",
        "not measured: the claim's +20 % for producers and +50 % for consumers. Kafka from 4.0 on does not write the "
        "older formats (KIP-724), and older brokers differ in more than the format",
    ]
    return Verdict(
        check="cost",
        name="disk, version 1 against 2",
        expected="refuted",
        found=f"holds: {said}" if within else f"refuted: {said}",
        ok=not within,
        figures={"most_saved_percent": round(100 * most, 1), "least_saved_percent": round(100 * least, 1)},
        evidence="\n".join(lines),
        claims=("C41",),
        title="the same messages in both formats, by our codec",
    )


def verdicts() -> list[Verdict]:
    """The verdicts that need only the codec."""
    return [overhead_verdict(), idempotence_verdict(), disk_verdict()]
