"""The memory of how transactions ended."""

import pytest

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.watch.endings import Endings

from .conftest import PLACE


def test_both_decisions_about_a_torn_transaction_are_known_after_a_restart() -> None:
    endings, again = Endings(), Endings()
    endings.add(7, 4, ControlType.COMMIT, PLACE, 0)
    endings.add_by_hand(7, 4, PLACE, 2)
    assert endings.add(7, 5, ControlType.COMMIT, ("another", 0), 3) is not None, "it is torn"
    again.resume(endings.to_json())
    for decision in ControlType:
        assert again.add(7, 5, decision, PLACE, 4) is None, "which was told"


def test_as_many_ends_are_kept_in_a_round_as_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_eos_checks.watch.endings.MOST_ENDS", 8)
    endings, kept = Endings(), []
    for epoch in range(1, 10):
        endings.add(7, epoch, ControlType.COMMIT, PLACE, epoch)
        kept.append((len(endings.ends[7]), endings.forgotten))
    assert kept == [*((count, False) for count in range(1, 9)), (3, True)]


def test_ends_of_this_round_are_kept_of_however_many_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_eos_checks.watch.endings.MOST_PRODUCERS", 2)
    endings, kept = Endings(), []
    for pid in (1, 2, 3):
        endings.add(pid, 1, ControlType.COMMIT, PLACE, pid)
    for _ in range(2):
        endings.next_round()
        kept.append(list(endings.ends))
    assert kept == [[1, 2, 3], [2, 3]]


def test_a_commit_without_data_tells_of_an_abort_by_hand_in_its_own_partition_only() -> None:
    endings = Endings()
    endings.add(7, 4, ControlType.COMMIT, PLACE, 0)
    assert endings.add_by_hand(7, 4, PLACE, 2) is None
    assert endings.add_without_data(7, 5, ("another", 0)) is None
    told = endings.add_without_data(7, 5, PLACE)
    assert told is not None
    assert (told.decision, told.offset) == (ControlType.ABORT, 2)
