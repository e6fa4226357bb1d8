"""The transactions of a log whose offsets go backwards, read in order."""

from kafka_eos_checks.audit.kernels.logs.runs import columns_of, runs_of
from kafka_eos_checks.audit.kernels.logs.summary import READ_FIRST
from kafka_eos_checks.audit.kernels.logs.transactions import (
    Part,
    Partition,
    PartitionFold,
    steps_of,
)
from kafka_eos_checks.audit.segments.reading import read_marked
from kafka_eos_checks.audit.segments.splits import PartitionLog


def read_in_order(
    log: PartitionLog, number: int, *, check_crc: bool, high_watermark: int
) -> tuple[Partition, list[Part]]:
    """Read a log from its beginning; return its facts and its steps.

    The steps are also right if offsets go backwards, unlike those from summaries of single chunks.
    """
    holes = 0
    whole = PartitionFold(log, log.segments)
    parts: list[Part] = []
    for split, name in enumerate(log.segments):
        for headers, marks in read_marked(log.file(name), READ_FIRST, end=log.end_of(name), check_crc=check_crc):
            if not len(headers):
                continue
            columns = columns_of(headers, log.topic)
            runs = runs_of(columns, whole.end)
            told = steps_of(headers, marks, log.topic, columns, runs, high_watermark=high_watermark, holes=holes)
            holes += int(runs.holes[-1])
            place = split, int(headers.positions[0])
            offsets = int(columns.base_offset[0]), runs.end
            whole.add(place, told, offsets, holes=holes, before=0, disordered=runs.disordered)
            parts.append(Part(number, *place, told.steps))
    return whole.partition(), parts
