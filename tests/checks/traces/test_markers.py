"""Markers are compared with decisions in the order of both, in whole logs and in what is left of them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import TransactionLogValue
from kafka_eos.formats.transaction_log import TransactionState as S
from kafka_eos_checks.traces import coordinators
from kafka_eos_checks.traces.coordinators import CoordinatorOfTraces, Recorded, StateRecord, coordinator_constants
from kafka_eos_checks.traces.markers import Decided, WrittenBatch, WrittenMarker, matched
from kafka_eos_checks.traces.validation import RememberingJudge

from .cut_logs import seeds
from .test_coordinators import judge, recorded, value

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
OF_LETTER = {"c": COMMIT, "a": ABORT}


def decisions(letters: str) -> list[TransactionLogValue | None]:
    """Records of a client of version 1 that decides so, all in one epoch."""
    states = [value(S.EMPTY, 0, version=1)]
    for letter in letters:
        steps = (S.ONGOING, S[f"PREPARE_{OF_LETTER[letter].name}"], S[f"COMPLETE_{OF_LETTER[letter].name}"])
        states += [value(state, 0, version=1) for state in steps]
    return list(states)


def entries(letters: str) -> list[WrittenBatch | WrittenMarker]:
    """A batch and a marker for each letter."""
    return [
        entry
        for place, letter in enumerate(letters)
        for entry in (
            WrittenBatch(7, 0, "transactional", 2 * place),
            WrittenMarker(7, 0, OF_LETTER[letter], 0, 2 * place + 1),
        )
    ]


def from_decision(logs: Recorded, place: int) -> Recorded:
    """The records that compaction leaves: from the one on that completed the transaction before a decision."""
    first = 3 * place
    return replace(logs, records={"id": logs.records["id"][first:]}, given={"id": first + 1})


def of_decided(letters: str, there: str) -> Recorded:
    return recorded(decisions(letters), entries(there), [0] * (1 + 3 * len(letters)))


def rejected_decision(logs: Recorded) -> int | None:
    """The decision, counted from 0 over the whole log, that is completed without its marker; None if all are right."""
    found = judge(logs)
    if found.found == "accepted":
        return None
    place = found.explanation.partition("offset ")[2].partition(":")[0]
    return int(place) // 3 - 1


@pytest.mark.parametrize(
    ("decided", "there", "wrong"),
    [
        ("cacca", "cacca", None),
        ("ca", "ac", 0),  # both decisions have a marker, and each has the other one's
        ("caac", "acca", 0),
        ("ccac", "cacc", 1),
        ("ccccc", "ccacc", 2),
        ("ccccc", "cccc", 4),  # nothing tells which one is missing
        ("cacac", "ccac", 1),
    ],
)
def test_a_whole_log_has_the_markers_in_the_order_of_the_decisions(decided: str, there: str, wrong: int | None) -> None:
    assert rejected_decision(of_decided(decided, there)) == wrong


@pytest.mark.parametrize(
    ("there", "wrong"),
    [
        ("cccaccac", None),
        ("acccccac", 3),  # the fourth is to abort, and has the marker of a commit
        ("cccaacac", 4),
        ("cccacaac", 5),
        ("cccaccaa", 7),
        ("aaaaccac", None),  # those of transactions before the first record are not judged
        ("cccccac", 3),  # the abort's marker is missing, and that of the commit before it takes its place
        ("cccacca", 7),
        ("cccacac", 4),
    ],
)
def test_markers_of_a_log_without_its_first_records_are_matched_from_the_end(there: str, wrong: int | None) -> None:
    logs = from_decision(of_decided("cccaccac", there), 3)
    assert rejected_decision(logs) == wrong


@pytest.mark.parametrize(
    ("there", "wrong"),
    [
        ("cccaccac", None),
        ("ccac", None),
        ("c", None),
        ("", None),
        ("acac", 4),
        ("ccaa", 7),
        ("cccca", 7),
        ("caac", 5),
    ],
)
def test_markers_of_a_partition_without_its_first_batches_are_matched_from_the_end(
    there: str, wrong: int | None
) -> None:
    logs = replace(of_decided("cccaccac", there), begins={"t-0": 1})
    assert rejected_decision(logs) == wrong


def test_a_marker_too_many_is_of_no_transaction_where_none_is_gone() -> None:
    assert "of no transaction" in judge(of_decided("cc", "ccc")).explanation
    logs = replace(of_decided("cc", "ccc"), begins={"t-0": 1})
    assert "of no transaction" in judge(logs).explanation
    assert judge(from_decision(logs, 1)).found == "accepted"


def test_by_the_rules_that_leave_markers_out_their_order_tells_nothing() -> None:
    for letters, there in (("ca", "ac"), ("cac", "cc"), ("ccc", "c")):
        for first in (0, 1):
            logs = from_decision(of_decided(letters, there), first) if first else of_decided(letters, there)
            assert judge(logs, release="4.3").found == "accepted"
        assert judge(of_decided(letters, there)).found.startswith("rejected")
    assert "of no transaction" in judge(of_decided("cc", "cca"), release="4.3").explanation


def test_a_decision_that_is_not_complete_may_have_no_marker_yet() -> None:
    def open_at_the_end(letters: str, there: str, first: int) -> Recorded:
        logs = of_decided(letters, there)
        return from_decision(replace(logs, records={"id": logs.records["id"][:-1]}), first)

    for first in (0, 1):
        for there in ("caac", "caa"):
            assert judge(open_at_the_end("caac", there, first)).found == "accepted"
        assert rejected_decision(open_at_the_end("caac", "cca", first)) == 1
    assert judge(open_at_the_end("cacc", "cac", 1)).found == "accepted"
    assert judge(open_at_the_end("cac", "ca", 1)).found == "accepted"


def test_markers_of_other_epochs_do_not_disturb_the_order() -> None:
    decided = [Decided(at, (7, epoch, COMMIT), is_complete=True, until=0) for at, epoch in ((1, 0), (3, 0), (5, 1))]
    own = [WrittenMarker(7, epoch, COMMIT, 0, offset) for epoch, offset in ((0, 1), (5, 2), (0, 3), (1, 4))]
    assert matched(decided, own, is_cut=False).missing == frozenset()
    found = matched(decided, own, is_cut=True)
    assert (found.missing, found.assumed) == (frozenset(), frozenset())
    assert matched(decided, own[2:], is_cut=True).assumed == {1}
    assert matched(decided, own[3:], is_cut=True).assumed == {1, 3}
    assert matched(decided, own[:3], is_cut=True).missing == frozenset(), "its step tells that it is missing"


def test_an_open_decision_without_its_marker_does_not_tell_of_another_moment() -> None:
    last = coordinators.transition_of(value(S.PREPARE_COMMIT, 0, version=1))
    decided = [Decided(at, (7, 0, COMMIT), is_complete=at < 3, until=0 if at < 3 else -1) for at in (1, 3)]
    own = [WrittenMarker(7, 0, COMMIT, 0, offset) for offset in (1, 3, 5)]
    told = [matched(decided, own[:count], is_cut=False, last=last).is_ragged for count in range(4)]
    assert told == [True, False, False, True]
    of_another = [*own[:2], WrittenMarker(8, 9, COMMIT, 0, 5)]
    assert not matched(decided, of_another, is_cut=False, last=last).is_ragged, "nothing tells that it is later"


def test_a_marker_of_an_epoch_without_a_decision_is_of_another_moment_only_if_it_is_not_an_earlier_one() -> None:
    for stray, accepted in ((0, False), (4, True), (9, True)):
        logs = of_version_2("ccc", "ccc")
        extra = WrittenMarker(7, stray, ABORT, 0, 90)
        entries = [*logs.entries["t-0"], WrittenBatch(7, stray, "transactional", 89), extra]
        assert is_accepted(replace(logs, entries={"t-0": entries}, are_apart=True)) is accepted, f"epoch {stray}"


def test_a_marker_of_a_later_epoch_without_a_decision_is_of_no_transaction_after_a_cut() -> None:
    states = [value(S.COMPLETE_COMMIT, 4), value(S.ONGOING, 4), value(S.PREPARE_COMMIT, 5), value(S.COMPLETE_COMMIT, 5)]
    own = [WrittenMarker(7, epoch, COMMIT, 0, 10 * epoch) for epoch in (3, 4, 5, 7)]
    logs = replace(recorded(list(states), [*own], [0] * 4), given={"id": 1})
    assert "COMMIT marker of epoch 7 at t-0 offset 70, of no transaction" in judge(logs).explanation
    assert judge(replace(logs, entries={"t-0": own[:3]})).found == "accepted"


# --- whatever was taken from a right log, the rest is accepted -------------------------------------------------------


@dataclass
class Run:
    """A random run of one client of version 1 in one partition, with its right markers."""

    states: list[TransactionLogValue | None]
    reigns: list[int]
    entries: list[WrittenBatch | WrittenMarker]
    begun: list[int]  # by decision, the number of entries before it


def random_run(draw: random.Random, *, plain: bool = False) -> Run:
    """A run of two to eight transactions.

    Unless it is plain, some transactions write nothing, some markers are written twice, and some decisions have several
    coordinators.
    """
    reign = 0
    run = Run([value(S.EMPTY, 0, version=1)], [reign], [], [])
    for _ in range(draw.randrange(2, 9)):
        run.begun.append(len(run.entries))
        if plain or draw.random() < 0.8:
            run.entries.append(WrittenBatch(7, 0, "transactional", len(run.entries)))
        decision = draw.choice((COMMIT, COMMIT, ABORT))
        since, until = reign, reign + (0 if plain else draw.choice((0, 0, 0, 0, 1, 2)))
        for each in range(since, until + 1):
            times = 1 if plain else draw.choice((1, 1, 1, 2))
            for _ in range(times if each == until or draw.random() < 0.5 else 0):
                run.entries.append(WrittenMarker(7, 0, decision, each, len(run.entries)))
        reign = until
        steps = (S.ONGOING, S[f"PREPARE_{decision.name}"], S[f"COMPLETE_{decision.name}"])
        run.states += [value(state, 0, version=1) for state in steps]
        run.reigns += [since, since, until]
    return run


def ended(run: Run, last: int, entry: int) -> Recorded:
    """Copies of a run's logs that were made at different moments: its records and its entries up to some place."""
    return Recorded({"id": rows(run, 0)[: last + 1]}, {"t-0": run.entries[:entry]}, are_apart=True)


def is_accepted(logs: Recorded) -> bool:
    traces = coordinators.coordinator_traces(logs)
    judge_of = RememberingJudge(CoordinatorOfTraces, coordinator_constants(frozenset({1, 2})))
    return all(judge_of.first_rejected(trace.steps, trace.starts)[0] is None for trace in traces)


def rows(run: Run, first: int) -> list[StateRecord]:
    every = [StateRecord(reign, at, v) for at, (v, reign) in enumerate(zip(run.states, run.reigns, strict=True))]
    return every[first:]


def left_of(run: Run, first: int, entry: int, every: Sequence[WrittenBatch | WrittenMarker] | None = None) -> Recorded:
    """The logs of a run without what comes before a record and before an entry."""
    own = list(run.entries if every is None else every)[entry:]
    given = {"id": first + 1} if first else {}
    return Recorded({"id": rows(run, first)}, {"t-0": own}, {"t-0": entry} if entry else {}, given)


@pytest.mark.parametrize("seed", seeds(8, 25))
def test_what_is_left_of_a_right_run_is_accepted(seed: int) -> None:
    run = random_run(random.Random(seed))
    assert is_accepted(left_of(run, 0, 0))
    for first in range(len(run.states)):
        for entry in range(len(run.entries) + 1):
            assert is_accepted(left_of(run, first, entry)), f"seed {seed}, from record {first} and entry {entry} on"


@pytest.mark.parametrize("seed", seeds(5, 12))
def test_copies_of_a_right_run_that_were_made_at_different_moments_are_accepted(seed: int) -> None:
    run = random_run(random.Random(seed))
    apart = 0
    for last in range(len(run.states)):
        for entry in range(len(run.entries) + 1):
            logs = ended(run, last, entry)
            assert is_accepted(logs), f"seed {seed}, up to record {last} and entry {entry}"
            apart += not is_accepted(replace(logs, are_apart=False))
    assert apart > len(run.states), "as copies of one moment"


@pytest.mark.parametrize(
    ("decided", "there", "is_ragged"),
    [("cac", "cac", False), ("cac", "ca", True), ("ca", "cac", True), ("", "c", True)],
)
def test_a_trace_tells_where_its_end_is_of_another_moment(decided: str, there: str, is_ragged: bool) -> None:
    for version in (1, 2):
        logs = of_decided(decided, there) if version == 1 else of_version_2(decided, there)
        (trace,) = coordinators.coordinator_traces(replace(logs, are_apart=True))
        assert (trace.ragged == ("t-0",), is_accepted(replace(logs, are_apart=True))) == (is_ragged, True)
        (strict,) = coordinators.coordinator_traces(logs)
        assert (strict.ragged, is_accepted(logs)) == ((), not is_ragged)


def of_version_2(decided: str, there: str) -> Recorded:
    """As :func:`of_decided`, with the next epoch for each transaction."""
    states: list[TransactionLogValue | None] = [value(S.EMPTY, 0)]
    for epoch, letter in enumerate(decided):
        name = OF_LETTER[letter].name
        states += [
            value(S.ONGOING, epoch),
            *(value(S[f"{step}_{name}"], epoch + 1) for step in ("PREPARE", "COMPLETE")),
        ]
    written: list[WrittenBatch | WrittenMarker] = []
    for epoch, letter in enumerate(there):
        written.append(WrittenBatch(7, epoch, "transactional", 2 * epoch))
        written.append(WrittenMarker(7, epoch + 1, OF_LETTER[letter], 0, 2 * epoch + 1))
    return recorded(states, written, [0] * len(states))


@pytest.mark.parametrize(("decided", "there"), [("cacc", "ccc"), ("cacc", "c-cc"), ("cacc", "aac")])
def test_what_lies_before_the_end_of_both_logs_is_judged_although_they_are_of_different_moments(
    decided: str, there: str
) -> None:
    logs = of_version_2(decided, there.replace("-", "c"))
    kept = [e for e in logs.entries["t-0"] if there[e.offset // 2] != "-"]
    assert not is_accepted(replace(logs, entries={"t-0": kept}, are_apart=True))


def test_an_inverted_marker_is_noticed_after_any_cut_before_it() -> None:
    noticed = 0
    for seed in range(4):
        run = random_run(random.Random(seed), plain=True)
        for place, entry in enumerate(run.entries):
            if not isinstance(entry, WrittenMarker):
                continue
            other = entry._replace(decision=ABORT if entry.decision is COMMIT else COMMIT)
            wrong = [*run.entries[:place], other, *run.entries[place + 1 :]]
            decision = sum(begun <= place for begun in run.begun) - 1
            for first in range(3 * decision + 3):  # records up to its decision
                for cut in range(place + 1):
                    assert not is_accepted(left_of(run, first, cut, wrong)), f"seed {seed}: {place}, {first}, {cut}"
                    noticed += 1
    assert noticed > 500
