"""Slices of a transactional id with very many records, so that no task needs all of its states.

Records after a PREPARE that is right before its COMPLETE do not depend on anything before it, because only PREPARE
precedes COMPLETE. A *slice* is the run of records of one transactional id in one split, from the first such PREPARE to
the last such COMPLETE. It is folded by itself. In the rest, its first two and its last two records stand for it, side
by side (:class:`Joint`). What the rest needs of the slice is the number of its transactions.
"""

import numpy as np

from kafka_eos_checks.audit.internal_topics.states import TOMBSTONE, States
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import COMPLETIONS, DECISIONS, Joint, completed
from kafka_eos_checks.audit.rules.coordinator import wrong_step
from kafka_eos_checks.audit.segments.headers import Ints

_FEW = 64  # a slice has at least this part of the records
_LEAST = 3  # records from the first COMPLETE of a slice to the last one


def sliced_ids(states: States, least: int) -> tuple[States, list[tuple[Joint, States]]]:
    """Cut the records of a split, in log order.

    Args:
        states: the records.
        least: cut the transactional ids that have at least so many.

    Returns:
        The records without those that only slices have, and each slice with its records.
    """
    counts = np.bincount(states.transactional_id, minlength=len(states.names))
    kept, slices = np.ones(len(states), np.bool_), []
    for number in np.flatnonzero(counts >= least).tolist():
        rows = np.flatnonzero(states.transactional_id == number)
        ends = _ends(states, rows)
        first = next((end for end in ends.tolist() if _is_legal(states, rows[end - 1 : end + 1])), None)
        last = next((end for end in ends[::-1].tolist() if _is_legal(states, rows[end - 1 : end + 1])), None)
        if first is None or last is None or last - first < max(_LEAST, least // _FEW):
            continue
        own = states.compact(rows[first - 1 : last + 1])
        kept[rows[first + 1 : last - 1]] = False
        decided = int(completed(DECISIONS[own.transaction_status], COMPLETIONS[own.transaction_status]).sum()) - 2
        pids = np.unique(own.producer_id[own.version != TOMBSTONE])
        slices.append((Joint(int(states.offset[rows[last - 1]]), decided, tuple(pids.tolist())), own))
    return (states.take(kept) if slices else states), slices


def _ends(states: States, rows: Ints) -> Ints:
    """Which of some records of an id complete the decision right before them."""
    status = states.transaction_status[rows]
    done, decided = COMPLETIONS[status], DECISIONS[status]
    ends = (done[1:] >= 0) & (done[1:] == decided[:-1])
    for column in (states.start, states.holes):
        ends &= column[rows[1:]] == column[rows[:-1]]
    return np.flatnonzero(ends) + 1


def _is_legal(states: States, rows: Ints) -> bool:
    """Whether the second of two records may follow the first one."""
    before, after = states.take(rows).values()
    return not wrong_step(before, after)
