"""Compacted logs as Kafka's own log and cleaner write them: none has a finding, whatever the cleaner has left."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.rules.log import LOG_RULES
from kafka_eos_checks.audit.rules.rule_book import READABLE
from kafka_eos_checks.brokers.brokers import java_command

START_MS = 1_700_000_000_000
SEED, LOGS = 1, 40


class Producer:
    """A producer of a log: its next batch, and the marker of its transaction."""

    def __init__(self, rng: random.Random, producer_id: int) -> None:
        self._rng, self._id = rng, producer_id
        self._version, self._is_transactional = rng.choice([1, 2]), rng.random() < 0.75
        self._epoch = self._sequence = self._coordinator_epoch = 0
        self.is_open = False

    def batch(self, now: int) -> str:
        """Records with few keys, some of them tombstones."""
        records = [
            Record(offset_delta=place, key=b"%d" % self._rng.randrange(6), value=self._rng.choice([b"v" * 20, None]))
            for place in range(self._rng.choice([1, 1, 2, 5]))
        ]
        batch = build_batch(
            records,
            base_timestamp=now,
            compression=self._rng.choice([CompressionType.NONE] * 3 + [CompressionType.LZ4]),
            is_transactional=self._is_transactional,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
        )
        self._sequence += len(records)
        self.is_open = self._is_transactional
        return f"append {batch.encode().hex()}"

    def marker(self) -> str:
        """The end of its transaction, or an abort that fences it; in version 1 the others keep the epoch."""
        commit = self._rng.random() < 0.5
        is_fence = not commit and self._rng.random() < 0.1
        self._coordinator_epoch += self._rng.random() < 0.03
        if self._version == 2 or is_fence:
            self._epoch, self._sequence = self._epoch + 1, 0
        self.is_open = False
        return f"marker {self._id} {self._epoch} {int(commit)} {self._coordinator_epoch} {self._version}"


def steps(rng: random.Random, folder: Path) -> Iterator[str]:
    """The steps of some logs; every transaction ends."""
    now = START_MS
    for number in range(LOGS):
        yield f"new {folder}/t{number}-0 {rng.choice([1_000, 1_000, 100_000_000])}"
        producers = [Producer(rng, 10 * number + each) for each in range(rng.choice([1, 2, 4]))]
        for _ in range(rng.choice([10, 40, 120])):
            kind, producer = rng.random(), rng.choice(producers)
            if kind < 0.55:
                yield producer.batch(now)
            elif kind < 0.75 and producer.is_open:
                yield producer.marker()
            elif kind < 0.83:
                yield "roll"
            elif kind < 0.93:
                yield "clean"
            elif kind < 0.96:
                yield f"restart {rng.choice([1, 1, 0])}"
            else:
                later = rng.choice([1, 2_000, 60_000])
                now += later
                yield f"wait {later}"
        yield from (producer.marker() for producer in producers if producer.is_open)
        yield from rng.choice([("roll", "clean"), ("roll", "clean", "wait 5000", "clean"), ()])


@pytest.mark.java
def test_logs_that_kafkas_own_cleaner_has_cleaned_have_no_finding(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "java" / "CleanedLogs.java"
    given = "".join(f"{step}\n" for step in steps(random.Random(SEED), tmp_path))
    command = java_command(str(program), str(START_MS))
    done = subprocess.run(command, input=given, capture_output=True, check=True, text=True, timeout=300)
    assert int(done.stdout) > LOGS // 2, "so many were cleaned"
    result = run([tmp_path])
    assert list(result.findings) == []
    verdicts = {verdict.name: verdict for verdict in result.verdicts}
    for rule in (READABLE, *LOG_RULES):
        assert (verdicts[rule].ok, verdicts[rule].unjudged) == (True, ""), rule
    assert verdicts[READABLE].figures["holes"] > 100
