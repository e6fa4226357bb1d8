"""Histories are read in ranges by several tasks, and refused as if one had read them from the start."""

from pathlib import Path

import pytest

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT
from kafka_eos_checks.audit.plan.history_plan import judge_histories

EVENT = '{"run":"r","process":"p","action":"Poll","phase":"ok"}'


def test_of_several_lines_that_are_no_event_the_first_one_of_the_first_file_is_told(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.jsonl" for number in range(2)]
    for lines, file in enumerate(files):
        file.write_text("\n".join([*[EVENT] * (2 - lines), "no event", EVENT, "no event", ""]), encoding="utf-8")
    with pytest.raises(MalformedHistory) as error:
        judge_histories(files, [], AT_ONE_MOMENT, LocalEngine(), range_bytes=20)
    assert (error.value.source, error.value.line) == (str(files[0]), 3)
