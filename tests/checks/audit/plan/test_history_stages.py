"""The requests that suspect producers need are a client's first one with each epoch, and those that tell of epochs."""

import numpy as np
import pytest

from kafka_eos_checks.audit.events.recorded import REQUESTING, WITHIN
from kafka_eos_checks.audit.plan.history_stages import Accused, Records, pick_records

CLIENT, OTHER, PID = 1, 2, 7
ROWS = [  # client, epoch, whether it is within its epoch, and whether it is needed
    (CLIENT, 0, True, True),
    (CLIENT, 0, True, False),
    (CLIENT, 1, True, True),
    (CLIENT, 1, False, True),
    (CLIENT, 0, True, False),
    (CLIENT, 1, True, False),
    (OTHER, 1, True, False),
]


@pytest.mark.parametrize("ordered", [True, False])
def test_of_requests_within_an_epoch_the_first_one_of_each_client_is_needed(ordered: bool) -> None:
    rows = np.zeros(len(ROWS), REQUESTING)
    rows["client"], rows["epoch"] = [row[0] for row in ROWS], [row[1] for row in ROWS]
    rows["use"], rows["pid"] = [WITHIN * row[2] for row in ROWS], PID
    time = np.arange(len(ROWS))
    rows["order"], rows["at"] = (time, time[::-1]) if ordered else (time[::-1], time)
    nobody = np.zeros(0, np.int64)
    accused = Accused(0, "rule", {PID}, np.array([CLIENT], np.uint64), np.zeros(1, np.int64), nobody)
    expected = rows[[row[3] for row in ROWS]]
    assert accused.needed(rows, ordered=ordered).tolist() == expected.tolist()
    every = accused._replace(whole=np.array([PID]))
    assert every.needed(rows, ordered=ordered).tolist() == rows[rows["client"] == CLIENT].tolist()


def test_no_record_of_a_log_is_picked_for_a_run_that_needs_none_of_it() -> None:
    rows = np.array([(3, 0), (3, 1), (4, 0)], [("log", np.int64), ("offset", np.int64)])
    chosen: dict[str, Records] = {"none": {}, "some": {3: np.array([1])}, "all": {4: None}}
    picked = list(pick_records(0, [("t", rows)], chosen=chosen, number_of={"none": 0, "some": 1, "all": 2}))
    assert [(row.key, row.value[0], row.value[2]["offset"].tolist()) for row in picked] == [(3, 1, [1]), (4, 2, [0])]
