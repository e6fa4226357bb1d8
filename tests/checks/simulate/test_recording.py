"""The folder of a simulated recording takes the place of an earlier one only."""

from pathlib import Path

import pytest

from kafka_eos_checks.kit.outputs import Unwritable
from kafka_eos_checks.simulate import recording


def test_a_simulated_recording_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    for number in (1, 2):
        recording.begin(tmp_path, {"seed": number})
        recording.write_segment(tmp_path, 1, f"t-{number}", b"")
    assert [path.name for path in (tmp_path / "brokers" / "1").iterdir()] == ["t-2"]


@pytest.mark.parametrize("part", ["histories", "brokers"])
def test_a_part_of_a_recording_that_is_not_simulated_is_refused_and_stays(part: str, tmp_path: Path) -> None:
    (tmp_path / part).mkdir()
    with pytest.raises(Unwritable, match="give another folder"):
        recording.begin(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == [part]
