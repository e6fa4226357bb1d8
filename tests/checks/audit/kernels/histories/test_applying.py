"""The join of inputs with their outputs and the commits past them, block by block."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from kafka_eos_checks.audit.kernels.histories.applying import COVER, INPUT, OUTPUT, join_inputs


def test_only_inputs_without_an_output_that_a_commit_is_past_are_silent() -> None:
    given = np.zeros(3, INPUT)
    given["name"], given["offset"] = 1, (0, 1, 5)
    outputs = np.zeros(1, OUTPUT)
    outputs["name"], outputs["offset"] = 1, 1
    covers = np.array([(1, 0, 3, 0, True)], COVER)
    nowhere: Any = SimpleNamespace(logs={})
    joined = join_inputs(given, outputs, covers, [], nowhere)
    assert joined.suspects["offset"].tolist() == [1], "it has an output that does not appear"
    assert (joined.checked, joined.silent) == (2, 1), "the group's offset is not past the last input"
