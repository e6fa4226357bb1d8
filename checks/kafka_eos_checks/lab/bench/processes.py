"""The time of whole processes, from start to end: the audit of the largest kept recording."""

import json
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kafka_eos_checks.kit.paths import is_clone
from kafka_eos_checks.kit.recording import kept_recordings
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.bench.measure import Answer, Side, Work, measure, module_or_reason, verdicts

SECONDS = 180
LOCAL_TARGET, SPARK_TARGET = 2.0, 12.0  # seconds


def audit_process(recording: Path, out: Path, *options: str) -> Answer:
    """Run ``kafka-eos audit`` and count what it found."""
    command = [sys.executable, "-m", "kafka_eos_checks.cli", "audit", str(recording), "--json", str(out)]
    out.unlink(missing_ok=True)
    done = subprocess.run([*command, *options], check=False, timeout=SECONDS, capture_output=True)
    if not out.is_file():
        raise OSError(f"{' '.join(command)}: {done.stderr.decode(errors='replace')[-500:]}")
    return answer_of(json.loads(out.read_text(encoding="utf-8")), done.returncode)


def answer_of(rows: Sequence[dict[str, object]], exit_code: int) -> Answer:
    """The verdicts of an audit as numbers, without their times."""
    kept = [{name: row[name] for name in ("name", "found", "ok", "figures")} for row in rows]
    text = json.dumps(kept, sort_keys=True).encode()
    return {"exit code": exit_code, "verdicts": len(rows), "CRC of the verdicts": zlib.crc32(text)}


def run(folder: Path, *, quick: bool) -> Iterator[Verdict]:
    """Measure the audit of a recording with and without Spark, each as one process."""
    if not is_clone():
        found = "skipped: the largest of the kept recordings is only in a clone of the repository"
        yield Verdict(check="bench", name="processes: audit", expected="equal results", found=found, ok=True)
        return
    _, no_spark = module_or_reason("pyspark.sql")
    recording = max(kept_recordings(), key=lambda path: path.stat().st_size)
    given = f"{recording.name}, {recording.stat().st_size / 1e3:.0f} kB"
    local = Side(
        name="without Spark",
        run=partial(audit_process, recording, folder / "local.json"),
        in_process=False,
    )
    spark = Side(
        name="with Spark",
        run=partial(audit_process, recording, folder / "spark.json", "--spark"),
        absent=no_spark,
        in_process=False,
    )
    measured = measure([local, spark], 3 if quick else 5, label="processes", warm_up=False)
    work = Work(part="processes", name="audit", given=given, amount=1, unit="s", target=LOCAL_TARGET)
    yield from verdicts(work, local, [spark], measured)
    yield from verdicts(replace(work, target=SPARK_TARGET), spark, [], measured)
