"""The files next to a log are shared among tasks by whole segments."""

from kafka_eos_checks.audit.plan.beside_stages import Neighbours, Stretch
from kafka_eos_checks.audit.rules.beside import Files
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split

BASES = ("00", "10", "20")
LOG = PartitionLog("", "t", 0, "/t-0", tuple(f"{base}.log" for base in BASES))


def test_an_index_and_all_splits_of_its_segment_are_in_one_stretch() -> None:
    parts = [("00.log", 0, 10), ("00.log", 10, 20), ("00.log", 20, 30), ("10.log", 0, 4), ("20.log", 0, 4)]
    splits = [Split(LOG, number, len(parts), *part) for number, part in enumerate(parts)]
    indexes = [f"{base}.txnindex" for base in BASES]
    neighbours = Neighbours.of({0: Files((), tuple(indexes))}, [splits], 10)
    assert neighbours.stretch_of[0].tolist() == [0, 0, 0, 1, 1]
    assert neighbours.stretches == [Stretch(0, (indexes[0],)), Stretch(0, (indexes[1], indexes[2]))]


def test_an_index_whose_segment_is_gone_is_in_the_first_stretch() -> None:
    parts = [("10.log", 0, 4), ("20.log", 0, 4)]
    splits = [Split(LOG, number, len(parts), *part) for number, part in enumerate(parts)]
    neighbours = Neighbours.of({0: Files((), ("05.txnindex", "20.txnindex"))}, [splits], 1)
    assert neighbours.stretches == [Stretch(0, ("05.txnindex",)), Stretch(0, ("20.txnindex",))]
