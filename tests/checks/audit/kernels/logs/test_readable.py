"""Steps in the form of the readable rules."""

import numpy as np

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.kernels.logs.readable import marker_of
from kafka_eos_checks.audit.kernels.logs.transactions import NOTHING, STEP, Paired
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH


def test_a_marker_that_the_cleaner_has_emptied_has_no_decision_and_no_coordinator_epoch() -> None:
    steps = np.zeros(2, STEP)
    steps["is_marker"] = True
    steps["decision"] = NO_DECISION, ControlType.COMMIT
    steps["coordinator_epoch"] = NO_EPOCH, 5
    zeros, rows, nothing = np.zeros(2, np.int64), np.arange(2), np.full(2, NOTHING)
    markers = Paired(steps, zeros, zeros, rows, nothing, zeros, [], [])
    found = [marker_of(markers, number, ("segment",)) for number in range(2)]
    assert [(each.decision, each.coordinator_epoch) for each in found] == [(None, None), (ControlType.COMMIT, 5)]
