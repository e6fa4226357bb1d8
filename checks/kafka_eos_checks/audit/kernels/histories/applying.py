"""Proofs over applications: inputs, the outputs that name them, and the committed offsets past them.

There are three joins. Outputs are joined with the records of their topics by topic and value (:func:`join_outputs`).
Inputs are joined with their outputs and with the commits past them by group and block of offsets
(:func:`join_inputs`). The transaction of an output is compared with the transaction that requested the commit
(:func:`join_commits`).
:mod:`kafka_eos_checks.audit.rules.applications` judges each input that is not proved.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.events.blocks import NOWHERE
from kafka_eos_checks.audit.events.recorded import Hashes, Rows, name_hashes
from kafka_eos_checks.audit.kernels.histories.joining import Setting, is_in, spot
from kafka_eos_checks.audit.kernels.histories.stored import ABORTED, COMMITTED, VISIBLE
from kafka_eos_checks.audit.segments.headers import Ints, Mask
from kafka_eos_checks.audit.segments.order import places_of_each

OUTPUT = np.dtype(
    [
        ("name", "u8"),  # group and partition of the input
        ("group", "u8"),
        ("place", "u8"),  # of the input
        ("offset", "i8"),  # of the input
        ("which", "u8"),  # which of the outputs of its input
        ("attempt", "u8"),
        ("appears", "?"),
        ("marked", "?"),  # it is visible because of a COMMIT marker
        ("suspect", "?"),
    ]
)
COVER = np.dtype([("name", "u8"), ("low", "i8"), ("high", "i8"), ("log", "i4"), ("marked", "?")])
"""The offsets ``low`` to ``high - 1``, for which the commit of ``high`` is the first past them."""
INPUT = np.dtype([("name", "u8"), ("group", "u8"), ("place", "u8"), ("offset", "i8"), ("behind", "i8")])
"""A suspect input with the committed offset past it (``behind``), or NOWHERE."""
CHECK = np.dtype([*INPUT.descr, ("attempt", "u8")])
"""An input that is proved if this attempt requested the commit past it."""


@dataclass(frozen=True, slots=True)
class Members:
    """The processes that polled for a group, with hashes of their groups, ascending; and when each first did."""

    process: Hashes
    group: Hashes
    first: Ints


def of_members(sent: Rows, members: Members, setting: Setting) -> tuple[Rows, Hashes]:
    """The outputs that processes sent after they had become members of groups, and their groups."""
    sent = sent[is_in(sent["process"], members.process)]
    at = np.searchsorted(members.process, sent["process"])
    kept = setting.when(sent) > members.first[at]
    return sent[kept], members.group[at[kept]]


def join_outputs(sent: Rows, stored: Rows, members: Members, setting: Setting, whole: Hashes) -> Rows:
    """Find out whether each output appears, dtype :data:`OUTPUT`.

    Args:
        sent: the outputs that name their inputs, dtype :data:`recorded.SENT`.
        stored: all records with these topics and values, dtype :data:`stored.STORED`.
        members: the members of groups.
        setting: the facts of the run.
        whole: topics whose logs have every offset, ascending.
    """
    sent, group = of_members(sent, members, setting)
    keys, key, sends = np.unique(sent["key"], return_inverse=True, return_counts=True)
    count = len(keys)
    stored = setting.of_logs(stored)
    _, _, longest = setting.columns(stored)
    stored = stored[longest]
    own = np.minimum(np.searchsorted(keys, stored["key"]), max(count - 1, 0))
    there = keys[own] == stored["key"] if count else np.zeros(len(stored), np.bool_)
    stored, own = stored[there], own[there]
    visible = VISIBLE[stored["state"]]
    appears = np.bincount(own[visible], minlength=count)
    suspect = (sends > 1) | (appears > 1)
    suspect[own[stored["odd"] | (~visible & (stored["state"] != ABORTED))]] = True
    marked = np.zeros(count, np.bool_)
    marked[own[stored["state"] == COMMITTED]] = True
    made = np.zeros(len(sent), OUTPUT)
    made["name"], made["group"] = name_hashes(group, sent["place"]), group
    for name in ("place", "offset", "attempt"):
        made[name] = sent[name]
    numbered = sent["number"] != NOWHERE
    made["which"] = np.where(numbered, sent["number"].astype(np.uint64), sent["key"])
    made["appears"], made["marked"] = appears[key] > 0, marked[key]
    made["suspect"] = suspect[key] | ((appears[key] == 0) & ~is_in(sent["topic"], whole))
    return made


class Reach(NamedTuple):
    """The offsets of a group in a partition: hashes of both, the first one given to a member, the last committed."""

    group: int
    place: int
    first: int
    last: int


Offered: TypeAlias = tuple[Rows, Mapping[int, Reach]]
"""The records of a block of offsets, dtype :data:`following.RANGE`, and groups with partitions of which they read."""


@dataclass(slots=True)
class Inputs:
    """The join of inputs with outputs and commits.

    Attributes:
        suspects: dtype :data:`INPUT`.
        checks: dtype :data:`CHECK`.
        checked: how many inputs this join proves.
        silent: how many of these have a commit past them and no output.
    """

    suspects: Rows
    checks: Rows
    checked: int
    silent: int


def join_inputs(
    given: Rows,
    outputs: Rows,
    covers: Rows,
    offered: Iterable[Offered],
    setting: Setting,
) -> Inputs:
    """Join the inputs of some groups and blocks of offsets.

    Args:
        given: inputs that members were given: name, group, place and offset of dtype :data:`recorded.GIVEN`.
        outputs: the outputs of these inputs, dtype :data:`OUTPUT`.
        covers: the offsets of all commits past offsets of these blocks, dtype :data:`COVER`.
        offered: the records of each block, and those of these groups that read partitions of them.
        setting: the facts of the run.
    """
    columns = ("name", "group", "place", "offset")
    both = np.zeros(len(given) + len(outputs), INPUT)
    for name in columns:
        both[name] = np.concatenate([given[name], outputs[name]])
    both["behind"] = NOWHERE
    _, first, row = np.unique(spot(both["name"], both["offset"]), return_index=True, return_inverse=True)
    inputs = both[first]
    count, of = len(inputs), row[len(given) :]
    suspect = np.zeros(count, np.bool_)
    suspect[of[outputs["suspect"]]] = True
    shown = np.flatnonzero(outputs["appears"])
    pairs = spot(row[len(given) :][shown].astype(np.uint64), outputs["which"][shown].astype(np.int64))
    _, pair, times = np.unique(pairs, return_inverse=True, return_counts=True)
    suspect[of[shown[times[pair] > 1]]] = True
    sent, appearing = np.bincount(of, minlength=count), np.bincount(of[shown], minlength=count)
    lowest, highest = np.full(count, np.iinfo(np.uint64).max), np.zeros(count, np.uint64)
    np.minimum.at(lowest, of[shown], outputs["attempt"][shown])
    np.maximum.at(highest, of[shown], outputs["attempt"][shown])
    marks = np.bincount(of[shown], outputs["marked"][shown], minlength=count)
    covered, marked = _cover(inputs, covers)
    appears = appearing > 0
    suspect |= appears & ((lowest != highest) | _outside(marks, appearing))
    suspect |= appears & ~(covered & marked)
    suspect |= ~appears & (sent > 0) & covered
    to_check = ~suspect & appears
    checks = np.zeros(int(to_check.sum()), CHECK)
    for name in INPUT.names or ():
        checks[name] = inputs[name][to_check]
    checks["attempt"] = lowest[to_check]
    silent = ~suspect & (sent == 0) & covered
    never = _never_given(inputs, offered, setting)
    _cover(never, covers)
    proved = int((~suspect).sum()) - len(checks)
    return Inputs(np.concatenate([inputs[suspect], never]), checks, proved, int(silent.sum()))


def _outside(marks: NDArray[Any], appearing: Ints) -> Mask:
    """Whether an output of each input appears that no marker made visible, because it was in no transaction."""
    return marks < appearing


def _cover(inputs: Rows, covers: Rows) -> tuple[Mask, Mask]:
    """Whether there is a commit past each input, and whether it was in a transaction; sets ``behind``."""
    covered, marked = np.zeros(len(inputs), np.bool_), np.zeros(len(inputs), np.bool_)
    covers = covers[np.lexsort((covers["low"], covers["name"]))]
    names, offsets, behind = np.ascontiguousarray(covers["name"]), inputs["offset"], inputs["behind"]
    for name, own in places_of_each(inputs["name"]):
        begin, end = (np.searchsorted(names, np.uint64(name), side) for side in ("left", "right"))
        there = covers[begin:end]
        high = there["high"]
        at = np.searchsorted(there["low"], offsets[own], "right") - 1
        inside = np.flatnonzero(at >= 0)
        inside = inside[offsets[own[inside]] < high[at[inside]]]
        covered[own[inside]] = True
        marked[own[inside]] = there["marked"][at[inside]]
        behind[own[inside]] = high[at[inside]]
    return covered, marked


def _never_given(inputs: Rows, offered: Iterable[Offered], setting: Setting) -> Rows:
    """Records that no member was given although the group committed an offset past them, dtype :data:`INPUT`."""
    chosen = [number for number, log in setting.logs.items() if log.longest]
    found = [np.zeros(0, INPUT)]
    offset = inputs["offset"]
    known = {name: offset[own] for name, own in places_of_each(inputs["name"])}
    nothing = np.zeros(0, np.int64)
    for own, names in offered:
        by_place: dict[int, list[tuple[int, Reach]]] = {}
        for name, reach in names.items():
            by_place.setdefault(reach.place, []).append((name, reach))
        visible = own[~own["hidden"] & np.isin(own["log"], chosen)]
        for place in np.unique(visible["place"]).tolist():
            here = visible[visible["place"] == place]
            for name, reach in by_place.get(place, ()):
                low, high = np.maximum(here["start"], reach.first), np.minimum(here["end"], reach.last)
                some = low < high
                if not some.any():
                    continue
                count = (high - low)[some]
                offsets = (
                    np.repeat(low[some], count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
                )
                missing = np.setdiff1d(offsets, known.get(name, nothing))
                rows = np.zeros(len(missing), INPUT)
                rows["name"], rows["group"], rows["place"] = name, reach.group, reach.place
                rows["offset"], rows["behind"] = missing, NOWHERE
                found.append(rows)
    return np.concatenate(found)


def join_commits(checks: Rows, asked: Rows) -> Rows:
    """The inputs, dtype :data:`INPUT`, whose commit was not requested by the attempt of their outputs.

    Args:
        checks: dtype :data:`CHECK`.
        asked: all requests for these commits, dtype :data:`recorded.ASKED`.
    """
    there = np.unique(spot(spot(asked["name"], asked["offset"]), asked["attempt"].astype(np.int64)))
    wanted = spot(spot(checks["name"], checks["behind"]), checks["attempt"].astype(np.int64))
    left = checks[~is_in(wanted, there)]
    found = np.zeros(len(left), INPUT)
    for name in INPUT.names or ():
        found[name] = left[name]
    return found


def covers_of(name: int, offsets: Sequence[int], marked: Sequence[bool], log: int) -> Rows:
    """The offsets that each commit of a group and partition is the first past, dtype :data:`COVER`.

    Args:
        name: hash of group and partition.
        offsets: the committed offsets, in order; -1 for a tombstone.
        marked: whether each was committed in a transaction.
        log: number of the log of ``__consumer_offsets``.
    """
    committed = np.array(offsets, np.int64)
    before = np.maximum.accumulate(np.concatenate([[0], committed]))[:-1]
    rises = np.flatnonzero(committed > before)
    found = np.zeros(len(rises), COVER)
    found["log"] = log
    found["name"], found["marked"] = name, np.array(marked, np.bool_)[rises]
    found["low"], found["high"] = before[rises], committed[rises]
    return found
