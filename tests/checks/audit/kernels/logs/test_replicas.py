"""Replicas compared by digests differ where the rule that reads them whole says so; only what differs is read again."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.engines.cost import Bill
from kafka_eos_checks.audit.kernels.logs import replicas, summary
from kafka_eos_checks.audit.oracle.synthetic import faulty_log, stored, write_segment
from kafka_eos_checks.audit.rules.beside import REPLICAS, audit_beside
from kafka_eos_checks.audit.rules.log import SEQUENCE_MASK, Batch
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.audit.segments.splits import find_logs

from ...conftest import in_both

NAME = "00000000000000000000.log"


def write(folder: Path, batches: list[Batch], epochs: list[int]) -> Path:
    """A replica in two segments; the path of the first one."""
    path = folder / "t-0" / NAME
    pairs = zip(batches, epochs, strict=True)
    encoded = [replace(stored(batch), partition_leader_epoch=epoch).encode() for batch, epoch in pairs]
    half = len(batches) // 2
    write_segment(path, encoded[:half])
    write_segment(path.with_name(f"{max(batches[half].base_offset, 1):020d}.log"), encoded[half:])
    return path


def changed(rng: random.Random, batch: Batch) -> Batch:
    """A batch with one field changed."""
    name = rng.choice(("producer_id", "producer_epoch", "base_sequence", "last_offset"))
    return batch._replace(**{name: getattr(batch, name) + 1 & SEQUENCE_MASK})


@in_both("count", 12, 40)
@pytest.mark.parametrize("fault_rate", [0.0, 0.1])
def test_digests_find_the_differences_that_reading_whole_replicas_finds(
    fault_rate: float, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "BLOCK_BITS", 4)
    monkeypatch.setattr(summary, "CHUNK_BATCHES", 5)
    monkeypatch.setattr(headers, "BLOCK_BYTES", 400)
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    differences = 0
    for number in range(count):
        folder, rate = tmp_path / str(number), (0.02, 0.15)[number % 2]
        batches = faulty_log(rng.randrange(1 << 30), batches=30, fault_rate=fault_rate)
        epochs = [offset // 10 for offset in range(len(batches))]
        write(folder / "1", batches, epochs)
        for broker in ("2", "3"):
            mine = [changed(rng, batch) if rng.random() < rate else batch for batch in batches]
            kept = [place for place in range(len(mine)) if rng.random() > rate]
            later = [epochs[place] + (rng.random() < rate) for place in kept]
            path = write(folder / broker, [mine[place] for place in kept], later)
            if rng.random() < 0.2:
                data = bytearray(path.read_bytes())
                data[rng.randrange(len(data))] ^= 1
                path.write_bytes(data)
            if rng.random() < 0.2:
                path.write_bytes(path.read_bytes()[: -rng.randint(1, 30)])
        readable = audit_beside(find_logs(folder))
        result = run([folder])
        found = [finding for finding in result.findings if finding.rule == REPLICAS]
        key = [(each.broker, each.file, each.offset, each.position, each.evidence) for each in found]
        expected = [each for each in readable.findings if each.rule == REPLICAS]
        assert sorted(key) == sorted((e.broker, e.file, e.offset, e.position, e.evidence) for e in expected), (
            seed,
            number,
        )
        (verdict,) = [verdict for verdict in result.verdicts if verdict.name == REPLICAS]
        for name in ("batches", "unknown"):
            assert verdict.figures[name] == readable.figures[REPLICAS][name], (seed, number)
        differences += len(found)
    assert differences > count / 6  # some three for each: seeds with so few are fewer than one in 10^9


def test_only_chunks_that_differ_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "BLOCK_BITS", 6)
    monkeypatch.setattr(summary, "CHUNK_BATCHES", 50)
    monkeypatch.setattr(headers, "BLOCK_BYTES", 2000)
    batches = faulty_log(5, batches=2000, fault_rate=0.0)
    for broker, wrong in (("1", batches), ("2", [*batches[:1000], *map(_other, batches[1000:1001]), *batches[1001:]])):
        write(tmp_path / broker, wrong, [0] * len(batches))
    result = run([tmp_path], explain_cost=True)
    assert isinstance(result.bill, Bill)
    (found,) = [finding for finding in result.findings if finding.rule == REPLICAS]
    assert found.offset == batches[1000].base_offset
    read = {stage.label: stage.read for stage in result.bill.stages}
    assert 0 < read["replicas"] < read["scan"] / 5


def _other(batch: Batch) -> Batch:
    return batch._replace(producer_id=batch.producer_id + 100)


def test_a_difference_has_its_segment_and_time_and_a_command_for_each_broker(tmp_path: Path) -> None:
    batches = faulty_log(5, batches=20, fault_rate=0.0)
    for broker, own in (("1", batches), ("2", batches), ("3", [*batches[:-1], _other(batches[-1])])):
        write(tmp_path / broker, own, [0] * len(own))
    extra = tmp_path / "1" / "t-0" / f"{batches[-1].base_offset:020d}.log"  # the broker rolled its segment earlier
    half = max((tmp_path / "1" / "t-0").glob("*.log"))
    last = replace(stored(batches[-1]), partition_leader_epoch=0)
    half.write_bytes(half.read_bytes()[: -len(last.encode())])
    write_segment(extra, [last.encode()])
    result = run([tmp_path])
    [found] = [finding for finding in result.findings if finding.rule == REPLICAS]
    assert (found.broker, found.file, found.time_ms) == ("3", half.name, last.max_timestamp)
    [advice] = [verdict.advice for verdict in result.verdicts if verdict.name == REPLICAS]
    commands = re.findall(r"^next: kafka-dump-log .*--files (\S+)", advice, re.MULTILINE)
    assert commands == [str(tmp_path / "3" / "t-0" / half.name), str(extra)]
