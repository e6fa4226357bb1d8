"""Decisions about open transactions are told from all rows that have them, and from each row once."""

import random
from pathlib import Path
from types import SimpleNamespace

from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import read_coordinator_log
from kafka_eos_checks.audit.oracle.random_states import RandomStates, folder_of, write_random_log
from kafka_eos_checks.audit.plan.open_stages import tell_decisions
from kafka_eos_checks.audit.plan.slice_stages import Around, rows_of_ids
from kafka_eos_checks.audit.rules.decided import Data
from kafka_eos_checks.audit.segments.splits import find_logs


def test_decisions_about_a_producer_id_that_is_cut_are_told_as_those_of_any_other(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    write_random_log(folder, random.Random(0), RandomStates(records=80))
    [log] = find_logs(folder)
    states = read_coordinator_log(log)
    folded = states.folded
    assert folded is not None
    around = Around(
        partitions=[],
        chosen=[],
        coordinators=[states],
        numbers={log: 0},
        given=True,
        moments=SimpleNamespace(),  # type: ignore[arg-type] - not used here
        again=frozenset(),
    )
    every = [each for known in states.ids.values() for each in known.transactions]
    wanted = {Data(each.producer_id, each.data_epoch, *place) for each in every for place in each.partitions}
    cut = set(folded.owned_producer_id.tolist())
    bare, _, rows = rows_of_ids(0, (0, 0), folded, cut, 1, 3, None)
    [whole] = tell_decisions(0, [(0, folded)], wanted=wanted, around=around, bases={}, cut=(), buckets=1)
    values = [(0, bare), *(row.value for row in rows)]
    [pieces] = tell_decisions(0, values, wanted=wanted, around=around, bases={}, cut=cut, buckets=1)
    assert sum(answer.commits + answer.aborts for answer in whole.value.values()) > 10
    assert pieces.value == whole.value
    of_a_shorter_replica = [row.value._replace(log=1) for row in rows]
    values += of_a_shorter_replica
    [again] = tell_decisions(0, values, wanted=wanted, around=around, bases={}, cut=cut, buckets=1)
    assert again.value == whole.value
    assert of_a_shorter_replica
