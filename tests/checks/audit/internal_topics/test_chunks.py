"""The place of each record of a chunk of an internal topic."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from kafka_eos_checks.audit.internal_topics.chunks import placed

from .conftest import records_of


def test_a_record_that_cannot_be_read_is_a_hole_before_the_next_one() -> None:
    records = records_of([(b"k", b"v")] * 4)
    block: Any = SimpleNamespace(start=0, headers=SimpleNamespace(positions=np.zeros(1, np.int64)))
    for unreadable, holes, number in (
        ([False, True, False, False], [0, 0, 1, 1], 1),
        ([True, True, False, False], [0, 1, 2, 2], 2),
        ([False, False, False, True], [0, 0, 0, 0], 1),
    ):
        columns, facts = placed(block, records, np.array(unreadable), 0, "segment")
        assert (columns["holes"].tolist(), facts["holes"]) == (holes, number)
