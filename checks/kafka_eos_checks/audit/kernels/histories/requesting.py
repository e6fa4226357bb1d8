"""Proofs by columns about requests: refusals with a cause, offsets that count as they were sent, present generations.

A producer id without a proof is a suspect. The readable rules (:func:`rules.histories.refused`,
:func:`rules.sent_offsets.not_as_sent`) judge it, and count all that it did. A commit of a past generation is a suspect,
too (:func:`rules.applications.judge_generations`). What is proved is counted here.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.events.recorded import (
    ABORTED_IT,
    BEGAN,
    COMMIT_SENT,
    COMMIT_TAKEN,
    COMMITTED_IT,
    ENDS_AGAIN,
    ENDS_IT,
    EPOCH,
    SENDS_OFFSET,
    STORED_OFFSET,
    UNCLEAR,
    Hashes,
    Rows,
)
from kafka_eos_checks.audit.segments.headers import Ints

COUNTED = np.dtype([("pid", "i8"), ("epoch", "i8"), ("group", "u8"), ("key", "u8"), ("log", "i8")])
"""An offset that counts since its transaction was committed; the key as in :data:`recorded.OFFSET_STEP`."""
LINK = np.dtype([("pid", "i8"), ("client", "u8")])
"""A client with requests of a producer id."""
NAMING = np.dtype([("pid", "i8"), ("group", "u8")])
"""A group whose offsets a producer sent."""


class Proved(NamedTuple):
    """The proofs about some producer ids, or about commits of generations.

    Attributes:
        suspects: the producer ids without a proof, or the places of the events that show a past generation; ascending.
        checked: how much the readable rule would check of the others.
        unknown: how much of that it could not decide.
    """

    suspects: Ints
    checked: int = 0
    unknown: int = 0


def date_epochs(requests: Rows, *, ordered: bool) -> Rows:
    """The epochs that clients were given, dtype :data:`recorded.EPOCH`, each since the request for it.

    This is the client's first request for an epoch since it was given the one before: the coordinator may fence that
    one even if it answers CONCURRENT_TRANSACTIONS.

    Args:
        requests: all requests for epochs of some clients, dtype :data:`recorded.EPOCH_REQUEST`.
        ordered: whether the run has an order; otherwise places decide.
    """
    time = ("order", "at") if ordered else ("at",)
    requests = requests[np.lexsort(tuple(requests[name] for name in (*reversed(time), "client")))]
    client, given = requests["client"], requests["given"]
    begins = np.append(True, (client[1:] != client[:-1]) | given[:-1])[: len(requests)]
    asked = requests[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    found = np.zeros(int(given.sum()), EPOCH)
    for name in EPOCH.names or ():
        found[name] = (asked if name in time else requests)[name][given]
    with_epoch: Rows = found[(found["pid"] >= 0) & (found["epoch"] >= 0)]
    return with_epoch


def prove_refusals(epochs: Rows, refusals: Rows, *, ordered: bool) -> Proved:
    """Find the refusals that came after a request with a higher epoch of the same producer id, or for one.

    Args:
        epochs: the epochs of some producer ids, dtype :data:`recorded.EPOCH`, also those of :func:`date_epochs`.
        refusals: all their refusals, dtype :data:`recorded.REFUSAL`.
        ordered: whether the run has an order; otherwise places decide.
    """
    is_refusal = np.repeat([False, True], [len(epochs), len(refusals)])
    pid, epoch = (np.concatenate([epochs[name], refusals[name]]) for name in ("pid", "epoch"))
    time = "order" if ordered else "at"
    when = np.concatenate([epochs[time], refusals[time]])
    order = np.lexsort((~is_refusal, when, pid))  # at the same time the refusal comes first, and is not explained
    producer, rank = _numbered(pid[order]), _numbered(epoch)[order]
    floor = producer * (len(pid) + 1)
    highest = np.maximum.accumulate(floor + np.where(is_refusal[order], 0, rank)) - floor
    explained = np.ones(len(pid), np.bool_)
    explained[order] = highest > rank
    explained = explained[is_refusal] & refusals["of_epoch"]
    suspects = np.unique(refusals["pid"][~explained])
    return Proved(suspects, int((~np.isin(refusals["pid"], suspects)).sum()))


def prove_offsets(steps: Rows, counted: Rows, *, ordered: bool, decided: bool, straight: bool = True) -> Proved:
    """Find the producer ids all of whose offsets count as they were sent.

    Proved are transactions of this form only: offsets are sent, the end is requested, once or several times in a row,
    and its answer comes before the next request of the kind.

    Args:
        steps: the steps of some producer ids, dtype :data:`recorded.OFFSET_STEP`.
        counted: their offsets that count, of the run's groups, dtype :data:`COUNTED`.
        ordered: whether the run has an order; otherwise places decide.
        straight: whether the events are in order where they are. Only then the requests between two others are known.
        decided: whether an offset that does not count is missing, so that nothing is proved. Otherwise nobody knows.
    """
    time = ("order", "at") if ordered else ("at",)
    steps = steps[np.lexsort(tuple(steps[name] for name in (*reversed(time), "epoch", "pid")))]
    steps = steps[~_sent_again(steps["step"])] if straight else steps
    identity = _numbered(*(np.concatenate([steps[name], counted[name]]) for name in ("pid", "epoch")))
    own, theirs = identity[: len(steps)], identity[len(steps) :]
    key = _numbered(np.concatenate([steps["key"], counted["key"]]))
    keys, key, their_key = len(key) + 1, key[: len(steps)], key[len(steps) :]
    step, begins = steps["step"], np.append(True, own[1:] != own[:-1])[: len(steps)]
    answers = np.isin(step, (COMMITTED_IT, ABORTED_IT))
    asked = np.append(False, np.isin(step, (ENDS_IT, ENDS_AGAIN))[:-1])[: len(steps)] & ~begins

    suspect = np.zeros(int(identity.max(initial=-1)) + 1, np.bool_)
    suspect[own[(step == UNCLEAR) | (answers != (asked & answers)) | (asked & ~answers)]] = True

    transaction = np.cumsum(begins | np.append(False, answers[:-1])[: len(steps)]) - 1
    committed, aborted = (np.zeros(len(steps), np.bool_) for _ in range(2))
    committed[transaction[step == COMMITTED_IT]] = True
    aborted[transaction[step == ABORTED_IT]] = True

    sent, stored = np.flatnonzero(step == SENDS_OFFSET), np.flatnonzero(step == STORED_OFFSET)
    offsets, first = np.unique(transaction[sent] * keys + key[sent], return_index=True)
    asked_for = _found(transaction[stored] * keys + key[stored], offsets)
    before = np.append(sent[first], len(steps))[asked_for] < stored
    suspect[own[stored[~before]]] = True

    there = np.unique(theirs * keys + their_key)
    stored = stored[committed[transaction[stored]]]
    stored = stored[np.unique(transaction[stored] * keys + key[stored], return_index=True)[1]]
    missing = _found(own[stored] * keys + key[stored], there) == len(there)
    if decided:
        suspect[own[stored[missing]]] = True
    sent = sent[~aborted[transaction[sent]]]
    suspect[there[~np.isin(there, own[sent] * keys + key[sent])] // keys] = True

    suspects = np.unique(steps["pid"][suspect[own]])
    proved = ~np.isin(steps["pid"], suspects)
    in_proof = np.zeros(len(suspect), np.bool_)
    in_proof[own[proved]] = True
    checked = int(proved[stored].sum()) + int(in_proof[there // keys].sum())
    return Proved(suspects, checked, int((proved[stored] & missing).sum()))


def prove_generations(steps: Rows, *, ordered: bool) -> Proved:
    """Find the commits that were taken of the generation that was present when they were sent.

    A suspect is three events: the commit is taken, it was sent, and the last generation before that began.

    Args:
        steps: all steps of members of some groups, dtype :data:`recorded.MEMBERSHIP`.
        ordered: whether the run has an order; otherwise places decide.
    """
    time = ("order", "at") if ordered else ("at",)
    steps = steps[np.lexsort(tuple(steps[name] for name in (*reversed(time), "group")))]
    began = _last(steps["step"] == BEGAN, _numbered(steps["group"]))
    commits = np.flatnonzero(steps["step"] != BEGAN)
    commits = commits[np.lexsort(tuple(steps[name][commits] for name in ("request", "process", "group")))]
    own = steps[commits]
    sent = _last(own["step"] == COMMIT_SENT, _numbered(own["group"], own["process"], own["request"]))
    taken = np.flatnonzero(own["step"] == COMMIT_TAKEN)
    answer, request = commits[taken], np.append(commits, NONE)[sent[taken]]
    joined = np.append(began, NONE)[request]
    present = np.append(steps["generation"], NONE)[joined]
    past = steps["generation"][answer] < present
    suspects = np.unique(steps["at"][np.concatenate([each[past] for each in (answer, request, joined)])])
    return Proved(suspects, int((~past).sum()), int((present < 0).sum()))


NONE = -1


def _last(is_one: NDArray[np.bool_], of: Ints) -> Ints:
    """For each row the place of the last one before it, or of itself, in the same part; :data:`NONE` without one.

    Args:
        is_one: the rows that count, shape (n,).
        of: the number of the part of each row, ascending.
    """
    places = np.arange(len(of))
    last = np.maximum.accumulate(np.where(is_one, places, NONE))
    found: Ints = np.where(of[last] == of, last, NONE)
    return found


def _sent_again(step: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The requests to end a transaction that repeat one without an answer; the steps are in order, shape (n,)."""
    ends = np.isin(step, (ENDS_IT, ENDS_AGAIN))
    again: NDArray[np.bool_] = (step == ENDS_AGAIN) & np.append(False, ends[:-1])[: len(step)]
    return again


class Crowds(NamedTuple):
    """The clients that had one of some producer ids, or another one of such a client, and so on.

    Attributes:
        clients: the clients, ascending.
        crowd: the number of the crowd of each, shape (n,).
        pids: all producer ids that they had, ascending.
        of_pid: the number of the crowd of each.
    """

    clients: Hashes
    crowd: Ints
    pids: Ints
    of_pid: Ints

    @classmethod
    def of(cls, suspects: Ints, links: Rows) -> "Crowds":
        """The crowds of some producer ids; ``links`` has each of these."""
        pids, pid = np.unique(links["pid"], return_inverse=True)
        clients, client = np.unique(links["client"], return_inverse=True)
        of_pid, of_client = np.arange(len(pids)), np.zeros(len(clients), np.int64)
        while True:
            before, of_client[:] = of_pid.copy(), len(pids)
            np.minimum.at(of_client, client, of_pid[pid])
            np.minimum.at(of_pid, pid, of_client[client])
            if np.array_equal(of_pid, before):
                break
        crowds = np.unique(of_pid[np.isin(pids, suspects)])
        with_client, with_pid = np.isin(of_client, crowds), np.isin(of_pid, crowds)
        numbers = (np.searchsorted(crowds, each) for each in (of_client[with_client], of_pid[with_pid]))
        return cls(clients[with_client], next(numbers), pids[with_pid], next(numbers))

    def number_of(self, pids: Ints) -> Ints:
        """The number of the crowd of some of its producer ids, shape (n,)."""
        found: Ints = self.of_pid[np.searchsorted(self.pids, pids)]
        return found


def links_of(epochs: Rows) -> Rows:
    """The links of producer ids and clients, each once."""
    return np.unique(np.array(epochs[["pid", "client"]], LINK)) if len(epochs) else np.zeros(0, LINK)


def _numbered(*columns: NDArray[Any]) -> Ints:
    """A number for each row, the same for the same row, ascending with the rows, shape (n,)."""
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), np.bool_)
    for column in columns:
        new[1:] |= column[order[1:]] != column[order[:-1]]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new)
    return numbers


def _found(values: Ints, among: Ints) -> Ints:
    """The place of each value among others that ascend; their number for one that is not there."""
    if not len(among):
        return np.zeros(len(values), np.int64)
    place = np.minimum(np.searchsorted(among, values), len(among) - 1)
    return np.where(among[place] == values, place, len(among))
