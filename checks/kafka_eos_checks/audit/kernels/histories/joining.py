"""Proofs over histories and logs: count the subjects that are proved, and name the suspects for the readable rules.

There are two joins here: of events and records by topic and value (:func:`join_values`), and of the events of
transactions by process and number (:func:`join_transactions`). The polls of readers are joined by process in
:mod:`kafka_eos_checks.audit.kernels.histories.following`. A subject is *proved* when its rule finds nothing and lacks
no fact. Everything else is a suspect: a key (topic and value), a transaction, an offset, a step of a reader. The
readable rules judge the suspects with all events and records on which their answer depends.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kafka_eos_checks.audit.events.blocks import NOWHERE
from kafka_eos_checks.audit.events.recorded import (
    ACKNOWLEDGED,
    COMMITTED,
    HAS_VALUE,
    INVOKED,
    POLLED,
    REFUSED,
    SENDS,
    TELLS,
    VALUED,
    Hashes,
    Rows,
    what,
    whats,
)
from kafka_eos_checks.audit.kernels.histories.stored import ABORTED, HIDDEN, OPEN, VISIBLE
from kafka_eos_checks.audit.kernels.histories.stored import COMMITTED as MADE_VISIBLE
from kafka_eos_checks.audit.segments.headers import Ints, Mask

_FAR = np.iinfo(np.int64).max
_MIX, _MIX2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)

HELD = np.dtype(
    [
        ("ended", "u8"),
        ("good", "i4"),  # sends whose value is visible on a replica of their partition
        ("nowhere", "i4"),  # sends without a partition, also in their acknowledgement
        ("hidden", "?"),  # a send whose value is visible on no replica of its partition
        ("committed", "?"),  # a COMMIT marker made its value visible
        ("polled", "?"),  # a reader of committed data was given its value
        ("suspect", "?"),
        ("first_poll", "i8"),  # the first such poll after the send
    ]
)
"""The facts of a value about the transaction in which it was sent."""


class LogOf(NamedTuple):
    """The facts of a log that the joins need."""

    place: int
    broker: int
    longest: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """The facts of a run that all its joins need.

    Attributes:
        ordered: whether the run's events have an order; otherwise their order in the files counts.
        logs: the facts of each log, by its number.
    """

    ordered: bool
    logs: dict[int, LogOf] = field(default_factory=dict)

    def when(self, rows: Rows) -> Ints:
        """The positions of events in their run, shape (n,)."""
        return rows["order" if self.ordered else "at"].astype(np.int64)

    def columns(self, stored: Rows) -> tuple[Hashes, Ints, Mask]:
        """The partition and broker of each record's log, and whether it is the longest replica."""
        count = max(self.logs, default=-1) + 1
        place, broker, longest = np.zeros(count, np.uint64), np.zeros(count, np.int64), np.zeros(count, np.bool_)
        for number, log in self.logs.items():
            place[number], broker[number], longest[number] = log
        return place[stored["log"]], broker[stored["log"]], longest[stored["log"]]

    def of_logs(self, stored: Rows) -> Rows:
        """The records of logs that count."""
        return stored[np.isin(stored["log"], list(self.logs))]

    @property
    def places(self) -> Hashes:
        """Partitions with a log, ascending."""
        return np.unique(np.array([log.place for log in self.logs.values()], np.uint64))


def spot(place: Hashes, offset: Ints) -> Hashes:
    """Hashes of offsets of partitions, shape (n,)."""
    return (place ^ offset.astype(np.uint64) * _MIX) * _MIX2


def _at_key(key: Ints, of: Hashes) -> Hashes:
    return (key.astype(np.uint64) ^ of * _MIX) * _MIX2


def is_in(some: Hashes, ordered: Hashes) -> Mask:
    """Whether each number of ``some`` is among others, which are in ascending order; shape of ``some``."""
    if not len(ordered):
        return np.zeros(len(some), np.bool_)
    at = np.minimum(np.searchsorted(ordered, some), len(ordered) - 1)
    found: Mask = ordered[at] == some
    return found


@dataclass(slots=True)
class Values:
    """The join of events and records by topic and value.

    Attributes:
        events: the events about values, dtype :data:`recorded.TOLD`.
        suspect: mask of the events whose key is a suspect, shape (events,).
        at_spot: mask of the events at suspect offsets, shape (events,).
        shown: records with a suspect key or at a suspect offset, dtype :data:`stored.STORED`.
        spots: offsets at which events do not all have the value of a record, ascending hashes.
        held: facts about the transactions of the values, dtype :data:`HELD`.
        figures: the figures of the rules, counting proved subjects.
    """

    events: Rows
    suspect: Mask
    at_spot: Mask
    shown: Rows
    spots: Hashes
    held: Rows
    figures: dict[str, int]


def join_values(
    events: Rows, stored: Rows, setting: Setting, transactions: Hashes | None = None, spots: Hashes | None = None
) -> Values:
    """Join events and records of some keys.

    Args:
        events: all events of one run with these keys.
        stored: all records of logs with these keys.
        setting: the facts of the run.
        transactions: transactions already known to be suspects, ascending; their keys are also suspects.
        spots: suspect offsets of all keys, ascending; without it those of these keys.
    """
    keys = _Keys(events[np.isin(events["what"], VALUED)], setting.of_logs(stored), setting)
    suspect = keys.unmatched() | keys.unclear() | keys.copied() | keys.simultaneous()
    if transactions is not None:
        suspect |= keys.any_of(keys.of_sends & is_in(keys.events["ended"], transactions) & (keys.events["ended"] != 0))
    found = keys.spots()
    at_spot = keys.tells & is_in(keys.here, found if spots is None else spots)
    shown = np.zeros(len(keys.stored), np.bool_)
    shown[keys.mine] = suspect[keys.own_key]
    shown |= is_in(spot(keys.of_log, keys.stored["offset"]), found if spots is None else spots)
    held = keys.held(suspect)
    figures = keys.figures(suspect, at_spot)
    return Values(keys.events, suspect[keys.key], at_spot, keys.stored[shown], found, held, figures)


def rows_near(
    events: Rows, stored: Rows, setting: Setting, keys: Hashes, transactions: Hashes, spots: Hashes
) -> tuple[Rows, Rows]:
    """The events and records of suspect keys, and of keys in suspect transactions or at suspect offsets.

    Args:
        events: events of one run.
        stored: records of logs.
        setting: the facts of the run.
        keys: suspect keys.
        transactions: suspect transactions, ascending.
        spots: suspect offsets, ascending.
    """
    stored = setting.of_logs(stored)
    near = is_in(events["ended"], transactions) | is_in(spot(events["place"], events["offset"]), spots)
    there = is_in(spot(setting.columns(stored)[0], stored["offset"]), spots)
    wanted = np.unique(np.concatenate([keys, events["key"][near], stored["key"][there]]))
    return events[is_in(events["key"], wanted)], stored[is_in(stored["key"], wanted)]


class _Keys:
    """Events and records by key: a topic and a value.

    Args:
        events: the events about values.
        stored: records of logs that count.
        setting: the facts of the run.

    Attributes:
        key: number of each event's key among all keys of events.
        mine: the records with such a key, and ``own_key`` its number.
        here: hash of the partition and offset that each event names.
        tells: mask of the acknowledgements and polls with an offset.
        reading: mask of the polls by readers of committed data.
        of_sends: mask of the sends in any phase.
    """

    def __init__(self, events: Rows, stored: Rows, setting: Setting) -> None:
        self.events, self.stored = events, stored
        keys, number = np.unique(np.concatenate([events["key"], stored["key"]]), return_inverse=True)
        self.count, self.key, of = len(keys), number[: len(events)], number[len(events) :]
        self.of_log, self._broker, self._longest = setting.columns(stored)
        everything = np.ones(len(events), np.bool_)
        self.mine = np.flatnonzero(self.any_of(everything)[of])
        self.own_key = of[self.mine]
        self._state = stored["state"][self.mine]
        kind, self._place = events["what"], events["place"]
        self._invoked, self._acknowledged, self._polled = kind == INVOKED, kind == ACKNOWLEDGED, kind == POLLED
        self.of_sends = np.isin(kind, SENDS)
        self._has_offset = events["offset"] != NOWHERE
        located = (self._place != 0) & self._has_offset
        self.here = spot(self._place, events["offset"])
        self.tells = located & (self._acknowledged | self._polled)
        self.reading = located & self._polled & (events["flags"] & COMMITTED != 0)
        self._when = setting.when(events)
        self._sent_at = np.full(self.count, _FAR)
        np.minimum.at(self._sent_at, self.key[self._invoked], self._when[self._invoked])
        self._sends = np.bincount(self.key[self._invoked], minlength=self.count)
        self._sender = np.zeros(self.count, np.uint64)  # a transaction that sent the key; if there are others: unclear
        self._sender[self.key[self._invoked]] = events["ended"][self._invoked]
        self._sent_to, self._torn = self._destinations()
        clear = self._longest[self.mine] & ~np.isin(self._state, (ABORTED, OPEN, HIDDEN))
        shown = VISIBLE[self._state]
        places = self.of_log[self.mine]
        spots = spot(places, stored["offset"][self.mine])
        plain = ~stored["odd"][self.mine]  # the hash does not show that the value is another one
        self._matched = self._is_among(self.here, self.tells, spots, plain)
        self._readable = self._is_among(self.here, self.tells, spots, clear)
        told = self._acknowledged & ~self._has_offset
        self._known = self._is_among(self._place, told, places, np.ones(len(places), np.bool_))
        self._shown = self._is_among(self._sent_to, self._invoked, places, shown)

    def _destinations(self) -> tuple[Hashes, Mask]:
        """The place of each send, or the only one of the acknowledgements in its transaction; 0 if none or several.

        The mask has the sends without a place of which several are acknowledged.
        """
        bare = self._invoked & (self._place == 0)
        told = self._acknowledged & (self._place != 0) & (self.events["ended"] == self._sender[self.key])
        low, high = np.full(self.count, np.iinfo(np.uint64).max, np.uint64), np.zeros(self.count, np.uint64)
        for bound, ufunc in ((low, np.minimum), (high, np.maximum)):
            ufunc.at(bound, self.key[told], self._place[told])
        only = np.where(low == high, high, np.uint64(0))
        return np.where(bare, only[self.key], self._place), bare & (low < high)[self.key]

    def _is_among(self, there: Hashes, asked: Mask, known: Hashes, which: Mask) -> Mask:
        """Whether a record of each event's key is where the event is, (events,); False unless ``asked``.

        Args:
            there: the place of each event.
            asked: which events to look at.
            known: the place of each record in ``mine``.
            which: the records that count.
        """
        own, known = self.own_key[which], known[which]
        one = np.zeros(self.count, np.uint64)
        one[own] = known
        found: Mask = asked & (one[self.key] == there)  # most keys have one record
        rest = asked & ~found
        others = self.any_of(rest)[own]
        found[rest] = is_in(_at_key(self.key[rest], there[rest]), np.sort(_at_key(own[others], known[others])))
        return found

    def any_of(self, events: Mask) -> Mask:
        """Whether some of these events have each key, shape (keys,)."""
        found = np.zeros(self.count, np.bool_)
        found[self.key[events]] = True
        return found

    def unmatched(self) -> Mask:
        """Keys with an acknowledgement or a poll that matches no record, or no record visible to the reader."""
        told = self._acknowledged & (self._place != 0)
        told &= np.where(self._has_offset, ~self._matched, ~self._known)
        return self.any_of(told | (self.tells & self._polled & ~self._matched) | (self.reading & ~self._readable))

    def unclear(self) -> Mask:
        """Keys that were sent in several transactions, failed, lack a value or a topic, or belong to odd records."""
        has_value = self.events["flags"] & HAS_VALUE != 0
        failed = self.events["what"] == REFUSED
        suspect = self.any_of(self.of_sends & (~has_value | (self.events["topic"] == 0) | failed))
        suspect[self.own_key[self.stored["odd"][self.mine]]] = True
        key, ended = self.key[self._invoked], self.events["ended"][self._invoked]
        suspect[key[self._sender[key] != ended]] = True
        return suspect

    def copied(self) -> Mask:
        """Keys that are visible on a broker more often than they were sent."""
        visible = VISIBLE[self._state]
        brokers = self._broker[self.mine][visible]
        several = int(brokers.max(initial=0)) + 1
        copies = np.bincount(self.own_key[visible] * several + brokers, minlength=self.count * several)
        most = copies.reshape(-1, several).max(axis=1, initial=0)
        found: Mask = (self._sends > 0) & (most > self._sends)
        return found

    def simultaneous(self) -> Mask:
        """Keys whose send and poll have the same position in the order of events."""
        return self.any_of(self.reading & (self._sent_at[self.key] == self._when))

    def spots(self) -> Hashes:
        """Offsets of events that match no record, or no record visible to the reader, as ascending hashes."""
        return np.unique(self.here[self.tells & ~(self._matched & (self._readable | ~self.reading))])

    def _judged(self) -> Mask:
        """The polls of committed data after the send."""
        judged: Mask = self.reading & (self._sent_at[self.key] < self._when)
        return judged

    def held(self, suspect: Mask) -> Rows:
        """Facts about the transactions of keys; a suspect key has one row for each transaction that sent it."""
        in_partition = self._invoked & (self._sent_to != 0)
        rows = np.zeros(self.count, HELD)
        rows["ended"] = self._sender
        rows["good"] = np.bincount(self.key[in_partition & self._shown], minlength=self.count)
        rows["nowhere"] = np.bincount(self.key[self._invoked & (self._sent_to == 0)], minlength=self.count)
        rows["hidden"] = self.any_of((in_partition & ~self._shown) | self._torn)
        rows["committed"][self.own_key[self._state == MADE_VISIBLE]] = True
        rows["polled"] = self.any_of(self.reading)
        rows["first_poll"] = _FAR
        judged = self._judged() & (self.events["order"] != NOWHERE)
        np.minimum.at(rows["first_poll"], self.key[judged], self._when[judged])
        proved = rows[~suspect & (rows["ended"] != 0)]
        ended = np.unique(self.events["ended"][self.of_sends & suspect[self.key]])
        others = np.zeros(len(ended), HELD)
        others["ended"], others["suspect"], others["first_poll"] = ended, True, _FAR
        return np.concatenate([proved, others[ended != 0]])

    def figures(self, suspect: Mask, at_spot: Mask) -> dict[str, int]:
        """The numbers of proved subjects, by the names of figures."""
        proved = ~suspect[self.key]
        acknowledged, judged = self._acknowledged & proved, self._judged() & proved
        unordered = judged & (self.events["order"] == NOWHERE) & (self._sender[self.key] != 0)
        with_value = self.tells & (self.events["flags"] & TELLS != 0) & ~at_spot
        return {
            "lost": int(acknowledged.sum()),
            "lost unknown": int((acknowledged & (self._place == 0)).sum()),
            "duplicate": int(((self._sends > 0) & ~suspect).sum()),
            "inconsistent": int(with_value.sum()),
            "precommitted": int(judged.sum()),
            "precommitted unknown": int(unordered.sum()),
            "delivered": int((self.reading & proved).sum()),
        }


@dataclass(slots=True)
class Transactions:
    """The join of transactions with their values: the suspects, ascending, and the figures of the others."""

    suspects: Hashes
    figures: dict[str, int]


_ASKED, _TOLD = what("CommitTransaction", "invoke"), what("CommitTransaction", "ok")
_UNDONE = what("AbortTransaction", "ok")
_FAILED = what("CommitTransaction", "fail")
_COMMITS = whats("CommitTransaction")


def join_transactions(ends: Rows, held: Rows, setting: Setting) -> Transactions:
    """Join the begins and ends of transactions with the values that were sent in them.

    Args:
        ends: all events of one run that begin or end these transactions, dtype :data:`recorded.TOLD`.
        held: all facts of values about these transactions, dtype :data:`HELD`.
        setting: the facts of the run.
    """
    ends = ends[ends["ended"] != 0]
    names, who = np.unique(held["ended"], return_inverse=True)
    count = len(names)

    def any_of(which: Mask) -> Mask:
        found = np.zeros(count, np.bool_)
        found[who[which]] = True
        return found

    good, nowhere = (np.bincount(who, held[name], minlength=count) for name in ("good", "nowhere"))
    first_poll = np.full(count, _FAR)
    np.minimum.at(first_poll, who, held["first_poll"])
    asked, told, undone, failed = (
        is_in(names, np.unique(ends["ended"][ends["what"] == one])) for one in (_ASKED, _TOLD, _UNDONE, _FAILED)
    )
    commits = np.isin(ends["what"], _COMMITS) & is_in(ends["ended"], names)
    first_commit = np.full(count, _FAR)
    np.minimum.at(first_commit, np.searchsorted(names, ends["ended"][commits]), setting.when(ends)[commits])
    committed = any_of(held["committed"])
    unasked = committed & (failed | undone | ~asked)
    undone_in_part = told & any_of(held["hidden"])
    given_undone = any_of(held["polled"]) & undone
    given_early = (first_poll != _FAR) & (first_commit >= first_poll)
    suspect = any_of(held["suspect"]) | unasked | undone_in_part | given_undone | given_early
    counted = told & ~suspect
    figures = {
        "unasked": int((committed & ~suspect).sum()),
        "undone": int(good[counted].sum() + nowhere[counted].sum()),
        "undone unknown": int(nowhere[counted].sum()),
    }
    return Transactions(names[suspect], figures)
