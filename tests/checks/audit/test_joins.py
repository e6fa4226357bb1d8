"""Pieces of state of several tasks are joined: each field of the result is made of both, whatever their order.

A state is told field by field: its value in the one part, in the other part, and in both together. No field of a part
may have the value that a new state has, so that a join which takes it from one part only is noticed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, fields
from math import inf
from operator import add
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.audit import RuleDraft
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.events.recorded import Asked, Member, RunFacts
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.jepsen import by_key
from kafka_eos_checks.audit.kernels.coordinators.slices import Counts, Markers, counted_on, joined
from kafka_eos_checks.audit.plan import slice_stages
from kafka_eos_checks.audit.plan.found import SHOWN_FINDINGS, Found, Tally
from kafka_eos_checks.audit.rules.beside import ABORTED_INDEX, REPLICAS, SNAPSHOT, Beside
from kafka_eos_checks.audit.rules.coordinator import NOT_LED, Led
from kafka_eos_checks.audit.rules.decided import Answer, Last, Marked, Owner
from kafka_eos_checks.audit.rules.declared import Identities
from kafka_eos_checks.audit.rules.log import Reason, Reasons, Subject, Unjudged
from kafka_eos_checks.audit.rules.transactions.judged import Hanging, Judged
from kafka_eos_checks.audit.rules.transactions.matching import Matching, Named

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
ONE, OTHER = Reason("one", "why"), Reason("other", "why not")


def found(offset: int, rule: str = "gap", kind: str = "violation") -> Finding:
    return Finding(rule=rule, topic="t", partition=0, offset=offset, kind=kind)


def reasons(**of: tuple[Reason, int, int]) -> Reasons:
    """Reasons, each with the number of subjects and the offset of the first one."""
    return Reasons({reason: Unjudged(total, Subject("t", 0, offset)) for reason, total, offset in of.values()})


@dataclass
class Case:
    """The fields of two parts and of both together, and how they are joined."""

    made: Callable[..., Any]
    join: Callable[[Any, Any], Any]
    parts: dict[str, tuple[Any, Any, Any]]
    ordered: set[str] = field(default_factory=set)  # fields in the order of the parts


def in_place(name: str) -> Callable[[Any, Any], Any]:
    """A join that changes its first part."""

    def join(one: Any, other: Any) -> Any:
        result, before = deepcopy(one), deepcopy(other)
        getattr(result, name)(other)
        assert repr(other) == repr(before), "the other part is left as it was"
        return result

    return join


def placed(partition: int, offset: int) -> Any:
    return SimpleNamespace(place=("t", partition)), offset


MEMBERS = [Member(9, 6, 60, 61), Member(9, 5, 70, 50), Member(9, 5, 70, 50)]
LATER = Last(*range(2, 2 + len(Last._fields)))
EARLIER = Last(*range(1, 1 + len(Last._fields)))
OWNER = Owner("x", 1, "", "ONGOING", 5, True, None)
CASES = {
    "run facts": Case(
        RunFacts,
        in_place("add"),
        {
            "run": ("r", "r", "r"),
            "first": (5, 3, 3),
            "events": (2, 3, 5),
            "ordered": (True, False, False),
            "spans": ([(1, 2, 3, True)], [(0, 4, 5, False)], [(1, 2, 3, True), (0, 4, 5, False)]),
            "last_ms": (7.0, 8.0, 8.0),
            "topics": ({"a"}, {"b"}, {"a", "b"}),
            "places": ({1: ("a", 0)}, {2: ("b", 1)}, {1: ("a", 0), 2: ("b", 1)}),
            "telling": ({1: 5, 2: 6}, {1: 4, 3: 7}, {1: 4, 2: 6, 3: 7}),
            "made_up": (True, False, True),
            "sending": ({"g"}, {"h"}, {"g", "h"}),
            "declared": (False, True, True),
            "asked": (
                Asked({"a"}, {"g": {"a"}, "h": {"b"}}),
                Asked({"c"}, {"g": {"d"}, "i": {"e"}}),
                Asked({"a", "c"}, {"g": {"a", "d"}, "h": {"b"}, "i": {"e"}}),
            ),
            "members": (
                {1: MEMBERS[0], 2: MEMBERS[0]},
                {1: MEMBERS[1], 3: MEMBERS[1]},
                {1: MEMBERS[2], 2: MEMBERS[0], 3: MEMBERS[1]},
            ),
            "groups": ({1: "g"}, {2: "h"}, {1: "g", 2: "h"}),
            "first_given": (
                {1: (1, 2, 9), 2: (1, 3, 5)},
                {1: (1, 2, 8), 3: (1, 4, 5)},
                {1: (1, 2, 8), 2: (1, 3, 5), 3: (1, 4, 5)},
            ),
            "tacit": ({1}, {2}, {1, 2}),
            "valued": (True, False, True),
        },
        {"spans"},
    ),
    "judged transactions": Case(
        Judged,
        in_place("add"),
        {
            "findings": ([found(1)], [found(2)], [found(1), found(2)]),
            "open": ([Hanging(found(3))], [Hanging(found(4))], [Hanging(found(3)), Hanging(found(4))]),
            "figures": (
                {rule: dict.fromkeys(figures, 2) for rule, figures in Judged().figures.items()},
                {rule: dict.fromkeys(figures, 3) for rule, figures in Judged().figures.items()},
                {rule: dict.fromkeys(figures, 5) for rule, figures in Judged().figures.items()},
            ),
            "reasons": (
                defaultdict(Reasons, {"gap": reasons(a=(ONE, 1, 5)), "order": reasons(a=(ONE, 1, 1))}),
                defaultdict(Reasons, {"gap": reasons(a=(ONE, 2, 4), b=(OTHER, 3, 9))}),
                {"gap": reasons(a=(ONE, 3, 4), b=(OTHER, 3, 9)), "order": reasons(a=(ONE, 1, 1))},
            ),
        },
        {"findings", "open"},
    ),
    "beside": Case(
        Beside,
        in_place("add"),
        {
            "findings": ([found(1)], [found(2)], [found(1), found(2)]),
            "figures": (
                {rule: dict.fromkeys(figures, 2) for rule, figures in Beside().figures.items()},
                {rule: dict.fromkeys(figures, 3) for rule, figures in Beside().figures.items()},
                {rule: dict.fromkeys(figures, 5) for rule, figures in Beside().figures.items()},
            ),
            "first": (
                {SNAPSHOT: Subject("t", 0, 5), REPLICAS: Subject("t", 0, 1)},
                {SNAPSHOT: Subject("t", 0, 4), ABORTED_INDEX: Subject("t", 0, 2)},
                {SNAPSHOT: Subject("t", 0, 4), REPLICAS: Subject("t", 0, 1), ABORTED_INDEX: Subject("t", 0, 2)},
            ),
        },
        {"findings"},
    ),
    "identities": Case(
        Identities,
        in_place("add"),
        {
            "first": (
                {"input": ((("in", 0), 5), "a"), "output": ((("out", 0), 1), "b")},
                {"input": ((("in", 0), 4), "c")},
                {"input": ((("in", 0), 4), "c"), "output": ((("out", 0), 1), "b")},
            ),
            "shared": (True, False, True),
        },
    ),
    "answer": Case(
        Answer,
        add,
        {
            "commits": (1, 2, 3),
            "aborts": (3, 4, 7),
            "is_named": (True, False, False),
            "last": (EARLIER, LATER, LATER),
            "owner": (OWNER, None, OWNER),
            "committed": (Marked("t", 0, 5), Marked("t", 0, 4), Marked("t", 0, 4)),
            "aborted": (Marked("t", 1, 5), Marked("t", 1, 6), Marked("t", 1, 5)),
        },
    ),
    "anomalies": Case(
        by_key.Judged,
        in_place("join"),
        {
            "findings": ([found(1)], [found(2)], [found(1), found(2)]),
            "allowed": (Counter(a=1, b=1), Counter(a=2), Counter(a=3, b=1)),
            "shown": ([found(3, "a")], [found(4, "a")], [found(3, "a"), found(4, "a")]),
            "figures": (Counter(sent=1), Counter(sent=2, given=0), Counter(sent=3, given=0)),
            "stretches": (np.array([[0, 4]]), np.array([[3, 7], [9, 9]]), np.array([[0, 7], [9, 9]])),
            "twice": ((5, "later"), (4, "first"), (4, "first")),
        },
        {"findings"},
    ),
    "tally": Case(
        Tally,
        in_place("join"),
        {
            "counts": (
                Counter({("gap", "told"): 1, ("order", "told"): 2}),
                Counter({("gap", "told"): 3}),
                Counter({("gap", "told"): 4, ("order", "told"): 2}),
            ),
            "shown": (
                {("gap", "told"): [found(3)], ("order", "told"): [found(1), found(5)]},
                {("gap", "told"): [found(n) for n in (1, 2, *range(4, 4 + SHOWN_FINDINGS))]},
                {
                    ("gap", "told"): [found(n) for n in range(1, 1 + SHOWN_FINDINGS)],
                    ("order", "told"): [found(1), found(5)],
                },
            ),
        },
    ),
    "asked": Case(
        slice_stages.Asked,
        slice_stages.Asked.and_of,
        {"data": ({1}, {2}, {1, 2}), "logs": ({3}, {4}, {3, 4})},
    ),
    "matching": Case(
        Matching,
        in_place("take"),
        {
            "seen": (
                defaultdict(dict, {Named("x", 1, 7): {COMMIT: {("t", 0): placed(0, 1)}}}),
                defaultdict(
                    dict[Any, Any],
                    {
                        Named("x", 1, 7): {COMMIT: {("t", 0): placed(0, 2), ("t", 1): placed(1, 2)}},
                        Named("x", 2, 7): {ABORT: {("t", 1): placed(1, 3)}},
                    },
                ),
                {
                    Named("x", 1, 7): {COMMIT: {("t", 0): placed(0, 1), ("t", 1): placed(1, 2)}},
                    Named("x", 2, 7): {ABORT: {("t", 1): placed(1, 3)}},
                },
            ),
            "unmatched": ([1], [2], [1, 2]),
            "unknown": ([3], [4], [3, 4]),
            "reasons": (
                reasons(a=(ONE, 1, 5)),
                reasons(a=(ONE, 2, 4), b=(OTHER, 3, 9)),
                reasons(a=(ONE, 3, 4), b=(OTHER, 3, 9)),
            ),
            "recent": ([5], [6], [5, 6]),
        },
        {"seen", "unmatched", "unknown", "recent"},  # the first marker of a partition is kept
    ),
}


def names_of(case: Case) -> set[str]:
    return set(getattr(case.made, "_fields", ())) or {each.name for each in fields(case.made)}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CASES)
def test_each_field_is_made_of_both_parts(name: str) -> None:
    case = CASES[name]
    assert set(case.parts) == names_of(case), "every field is told"
    one, other = (case.made(**{key: deepcopy(own[at]) for key, own in case.parts.items()}) for at in (0, 1))
    after, before = case.join(one, other), case.join(other, one)
    for key, (_, _, expected) in case.parts.items():
        assert repr(getattr(after, key)) == repr(expected) or getattr(after, key) == expected, key
        if key not in case.ordered:
            assert _same(getattr(before, key), expected), f"{key} in the other order"


def _same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other)) if isinstance(other, np.ndarray) else bool(one == other)


def test_the_drafts_of_one_rule_become_one_and_those_of_others_stay() -> None:
    one = RuleDraft(
        rule="gap", figures={"batches": 1, "logs": 2}, seconds=1.0, reasons=reasons(a=(ONE, 1, 5)), noted="n"
    )
    other = RuleDraft(rule="gap", figures={"batches": 3, "unknown": 4}, seconds=2.0, reasons=reasons(a=(ONE, 2, 4)))
    both = one.joined(other)
    expected = {"batches": 4, "logs": 2, "unknown": 4}
    assert (both.rule, both.figures, both.seconds, both.noted) == ("gap", expected, 3.0, "n")
    assert both.reasons == reasons(a=(ONE, 3, 4))
    assert one.reasons == reasons(a=(ONE, 1, 5)), "a draft is left as it was"
    judged = audit._Judged()
    third = RuleDraft(rule="order", figures={})
    judged.add([one, third], [found(1)])
    judged.add([other, lambda _: NotImplemented], [found(2)])
    assert judged.drafts[:2] == [both, third]
    assert len(judged.drafts) == 3
    assert judged.found == [[found(1)], [found(2)]]


def test_members_of_several_groups_have_none_and_the_first_poll_is_that_of_either_order() -> None:
    one, other = Member(9, 6, 60, 40), Member(8, 5, 70, 50)
    assert one.joined(other) == other.joined(one) == Member(0, 5, 70, 40)
    assert one.joined(one) == one
    assert Member(9, 5, 80, 1).joined(Member(9, 5, 70, 2)) == Member(9, 5, 70, 1)
    assert (one.first(True), one.first(False)) == ((6, 60), (40, 40))


def test_findings_of_two_places_are_those_of_both() -> None:
    engine, rows = LocalEngine(), (object(), object())
    both = Found(engine, rows[0], own=[found(1)]) + Found(engine, rows[1], own=[found(2)])
    assert (both.rows, both.own) == (rows, (found(1), found(2)))
    with_own = add(Found(engine, rows[0], own=[found(1)]), [found(2)])
    assert (with_own.rows, with_own.own) == (rows[:1], (found(1), found(2)))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (Led(3, 10), Led(3, 20), Led(3, 10)),
        (Led(3, 10), Led(4, 20), Led(4, 20)),
        (Led(3, 10), NOT_LED, Led(3, 10)),
        (NOT_LED, Led(4, 20), Led(4, 20)),
    ],
)
def test_the_last_leader_is_the_later_one_since_its_first_record(before: Led, after: Led, expected: Led) -> None:
    assert before.then(after) == expected


def test_summaries_of_consecutive_markers_have_the_first_of_the_one_and_the_last_of_the_other() -> None:
    before, after = Markers(1, 2, 1, 3, 4, 2, 5, 6), Markers(4, 7, 5, 8, 9, 6, 10, 11)
    assert joined(before, after) == Markers(1, 2, 1, 8, 9, 6, 5, 11)
    met = after._replace(first_epoch=3)
    assert joined(before, met) == Markers(1, 2, 1, 8, 9, 6, 5, 11), "neither is of a single epoch"
    single = Markers(3, 7, 5, 3, 7, 5, 10, 11)
    assert joined(before, single) == Markers(1, 2, 1, 3, 11, 7, 5, 11)
    assert joined(single._replace(first_coordinator=1, last_coordinator=2), met) == Markers(3, 14, 10, 8, 9, 6, 1, 11)


def test_sums_of_consecutive_decisions_have_the_first_of_the_one_and_the_last_of_the_other() -> None:
    p, q = ("p", 0), ("q", 0)
    before, after = Counts(1, {p: 1}, 3, {p: 2}), Counts(4, {p: 3}, 5, {q: 4})
    assert counted_on(before, after) == Counts(1, {p: 1}, 5, {q: 4})
    single = Counts(3, {p: 3, q: 1}, 3, {p: 3, q: 1})
    assert counted_on(before, single) == Counts(1, {p: 1}, 3, {p: 5, q: 1})
    assert counted_on(single, after) == Counts(3, {p: 3, q: 1}, 5, {q: 4})
    assert counted_on(single, single) == Counts(3, {p: 6, q: 2}, 3, {p: 6, q: 2})
    assert not counted_on(after, before).in_order


def test_facts_of_no_events_change_nothing() -> None:
    own = {key: deepcopy(parts[0]) for key, parts in CASES["run facts"].parts.items()}
    nothing = RunFacts("r", 99)
    assert nothing.last_ms == -inf
    facts = RunFacts(**own)
    facts.add(nothing)
    assert facts == RunFacts(**own)
