"""The first copies of duplicates, looked for in their own segments only, so that no task reads a whole log again.

The readable form is :func:`kafka_eos_checks.audit.rules.log.first_copies`, which is given the batches that may count.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.logs.runs import columns_of
from kafka_eos_checks.audit.kernels.logs.summary import READ
from kafka_eos_checks.audit.rules.log import DUPLICATE, Batch, Sequenced, copy_in_words, first_copies
from kafka_eos_checks.audit.segments.headers import read_index
from kafka_eos_checks.audit.segments.reading import read_headers, replaced
from kafka_eos_checks.audit.segments.splits import Split


def with_first_copies(findings: Iterable[Finding], splits: Sequence[Split], check_crc: bool = True) -> list[Finding]:
    """The findings of a log, the duplicates among them with the places of their first copies.

    Args:
        findings: the findings.
        splits: all splits of the log, in order.
        check_crc: whether batches were compared with their CRC.

    Raises:
        FileNotFoundError: a segment no longer has a duplicate: its broker has replaced or cut it.
    """
    found = list(findings)
    wanted: dict[str, set[Sequenced]] = defaultdict(set)
    for each in found:
        if each.rule == DUPLICATE:
            wanted[each.file].add(_record_of(each))
    segments: dict[str, list[Split]] = {file: [split for split in splits if split.segment == file] for file in wanted}
    copies = {file: first_copies(_batches(segments[file], own, check_crc), own) for file, own in wanted.items()}
    for number, each in enumerate(found):
        if each.rule == DUPLICATE:
            first = copies[each.file].get(_record_of(each))
            if first is None:
                raise replaced(segments[each.file][0].path)
            words = copy_in_words(-1 if each.offset is None else each.offset, first)
            found[number] = replace(each, evidence=f"{each.evidence}; {words}")
    return found


def _record_of(duplicate: Finding) -> Sequenced:
    fields = (duplicate.producer_id, duplicate.producer_epoch, duplicate.base_sequence)
    return Sequenced(*(-1 if each is None else each for each in fields))


def _batches(splits: Iterable[Split], wanted: Iterable[Sequenced], check_crc: bool) -> Iterator[Batch]:
    """The batches of some splits that may have one of some records."""
    pids, _, sequences = (np.unique(column) for column in np.array([*wanted], np.int64).T)
    for split in splits:
        index = read_index(split.path)
        for headers in read_headers(split.path, split.start, split.end, index=index, check_crc=check_crc, columns=READ):
            columns = columns_of(headers, split.log.topic)
            first, last = columns.base_sequence, columns.last_sequence
            has_some = np.searchsorted(sequences, first) < np.searchsorted(sequences, last, "right")
            which = np.isin(columns.producer_id, pids) & ~columns.unsequenced & (has_some | (last < first))
            yield from columns.take(which).batches()
