"""Traces of a small machine and of a partition's leader, judged by TLC and by the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import Event
from kafka_eos.machines.partition_log import PartitionLog
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.values import format_value
from kafka_eos_checks.traces import validation as traces
from kafka_eos_checks.traces.command import spoil
from kafka_eos_checks.traces.validation import (
    NOTHING,
    Candidate,
    RememberingJudge,
    Trace,
    TraceStep,
    TraceUnusable,
    evaluate,
    partition_log_model,
    partition_log_step,
    partition_log_trace,
    replay,
    trace_definitions,
    trace_verdicts,
    validate,
)


@pytest.fixture
def model(registry: Registry) -> Model:
    return registry.get("OneClient")


@pytest.fixture
def machine(counter: ModuleType) -> type[Any]:
    return counter.Counter  # type: ignore[no-any-return]


def by_the_reference(
    model: Model, machine: type[Any], chosen: Sequence[Trace], _timeout: float
) -> dict[int, int | None]:
    """The verdicts of the reference, in the place of TLC's."""
    return {place: replay(model, machine, trace).reference_index for place, trace in enumerate(chosen)}


@pytest.fixture(params=[pytest.param("TLC", marks=pytest.mark.tlc), "the reference in its place"])
def second(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The second judge: TLC, and without a JVM the reference once more."""
    if request.param != "TLC":
        monkeypatch.setattr(traces, "_run_tlc", by_the_reference)
    return str(request.param)


def add(amount: int | None, **observed: object) -> TraceStep:
    return TraceStep((Candidate("Add", ("a", amount)),), dict(observed))


def read(total: int) -> TraceStep:
    return TraceStep((Candidate("Read", ("a",)),), {"seen.a": total})


RESET = TraceStep((Candidate("Reset"),), {"Len(log)": 0})
GOOD = Trace("good", (add(1, total=1), read(1), add(2, total=3), RESET, read(0), add(2, total=2)))


def seeded() -> dict[str, tuple[Trace, int]]:
    """Bad traces, each with the event at which it must be rejected."""
    steps = GOOD.steps
    wrong = add(2, total=4)
    return {
        "event deleted": (Trace("event deleted", steps[:1] + steps[2:]), 2),
        "wrong value": (Trace("wrong value", (*steps[:2], wrong, *steps[3:])), 3),
        "swapped": (Trace("swapped", (*steps[:3], steps[4], steps[3], *steps[5:])), 4),
        "bad start": (Trace("bad start", (RESET, *steps)), 1),
        "bad end": (Trace("bad end", (*steps, RESET)), 7),
    }


@pytest.mark.usefixtures("second")
def test_good_traces_are_accepted_and_seeded_bad_ones_rejected_at_their_event(model: Model, machine: type[Any]) -> None:
    bad = seeded()
    every = [GOOD, *(trace for trace, _ in bad.values()), replace(GOOD, name="again")]
    verdicts = trace_verdicts("counter", model, machine, every, expected={name: at for name, (_, at) in bad.items()})
    assert [(verdict.name, verdict.found) for verdict in verdicts] == [
        ("counter", "all accepted"),
        *((f"counter, copy with a fault: {name}", f"rejected at event {at}") for name, (_, at) in bad.items()),
    ]
    assert all(verdict.ok for verdict in verdicts)
    assert verdicts[0].figures == {"traces": 2, "events": 12}


@pytest.mark.usefixtures("second")
def test_a_copy_with_a_fault_has_a_verdict_only_if_its_own_trace_is_accepted(model: Model, machine: type[Any]) -> None:
    bad = seeded()
    wrong, late = bad["wrong value"][0], bad["bad end"][0]
    both = Trace("both", (*wrong.steps, RESET))
    every, expected = [GOOD, wrong, late, both], {late.name: 7, both.name: 7}
    copy_of = {late.name: GOOD.name, both.name: wrong.name}
    found = trace_verdicts("counter", model, machine, every, expected=expected, copy_of=copy_of)
    assert [(verdict.name, verdict.found) for verdict in found] == [
        ("counter", "1 of 2 accepted; wrong value: rejected at event 3"),
        ("counter, copy with a fault: bad end", "rejected at event 7"),
    ]
    unknown = trace_verdicts("counter", model, machine, [GOOD], expected={"gone": 1}, copy_of={"gone": GOOD.name})
    assert [verdict.ok for verdict in unknown] == [True, False], "a copy that nobody judged is missing"


@pytest.mark.usefixtures("second")
def test_an_argument_that_nobody_saw_and_an_event_without_effect_are_possible(model: Model, machine: type[Any]) -> None:
    maybe = TraceStep((Candidate("Add", ("a", 1)), Candidate(NOTHING)), text="Add timed out")
    unseen = Trace("unseen", (maybe, add(None, total=2)))
    either = Trace("either", (maybe, TraceStep((Candidate("Read", ("a",)),)), add(2, total=3)))
    neither = Trace("neither", (maybe, add(1, total=2)))
    found = validate(model, machine, [unseen, either, neither])
    assert [judgement.found for judgement in found] == ["accepted", "accepted", "rejected at event 2"]


def test_the_reference_hashes_states_only_where_there_are_several(model: Model, machine: type[Any]) -> None:
    hashed = []

    class Watched(machine):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def __hash__(self) -> int:
            hashed.append(self)
            return hash(self.total)

    rounds = Trace("rounds", GOOD.steps[:5] * 100)
    assert replay(model, Watched, rounds).found == "accepted"
    assert hashed == []
    either = TraceStep((Candidate(NOTHING), Candidate("Add", ("a", 1))))
    assert replay(model, Watched, Trace("either", (either, *rounds.steps))).found == "accepted"
    assert hashed


def test_a_rejection_says_the_states_the_guards_and_what_was_possible_instead(model: Model, machine: type[Any]) -> None:
    trace, at = seeded()["event deleted"]
    judgement = replay(model, machine, trace)
    assert judgement.reference_index == at
    assert 'event deleted, event 2 of 5: Add("a", 2)' in judgement.explanation
    assert "possible states before it: 1" in judgement.explanation
    assert 'Add("a", 2) is not enabled: STALE' in judgement.explanation
    assert 'enabled instead: Read("a"), Refuse("a", 1), Refuse("a", 2)' in judgement.explanation
    other_effect = replay(model, machine, seeded()["wrong value"][0]).explanation
    assert 'Add("a", 2) is enabled, with another effect: total: spec 3, trace 4' in other_effect


def test_of_many_instances_an_explanation_does_not_list_the_enabled_ones(
    model: Model, machine: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, _ = seeded()["event deleted"]
    monkeypatch.setattr(traces, "_MOST_INSTANCES", 6)  # Read(a), Add(a, 1 or 2), Refuse(a, 1 or 2), Reset
    assert "enabled instead: Read" in replay(model, machine, trace).explanation
    monkeypatch.setattr(traces, "_MOST_INSTANCES", 5)
    assert "enabled instead: not searched among 6 instances" in replay(model, machine, trace).explanation


def test_a_judge_remembers_as_many_steps_as_it_may(model: Model, machine: type[Any]) -> None:
    judge = RememberingJudge(machine, model.machine_constants(), 2)
    for _ in range(2):
        assert judge.first_rejected(GOOD.steps) == (None, 6)
    assert len(judge._known) == 2


@pytest.mark.tlc
def test_judges_that_disagree_are_a_failure(model: Model, machine: type[Any]) -> None:
    class Forgetful(machine):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def add_error(self, client: str, amount: int) -> str:
            error = machine.add_error(self, client, amount)
            return "NONE" if error == "STALE" else str(error)

    trace, _ = seeded()["event deleted"]
    (verdict,) = trace_verdicts("counter", model, Forgetful, [trace])
    assert not verdict.ok
    assert "the judges disagree: TLC rejected at event 2, reference rejected at event 4" in verdict.found


@pytest.mark.usefixtures("second")
def test_no_traces_and_no_events_are_failures(model: Model, machine: type[Any]) -> None:
    (nothing,) = trace_verdicts("counter", model, machine, [])
    assert (nothing.ok, nothing.found) == (False, "no traces")
    (empty,) = trace_verdicts("counter", model, machine, [Trace("empty", ()), GOOD])
    assert (empty.ok, empty.found) == (False, "1 of 2 accepted; empty: no events")
    assert empty.evidence == "no events"
    verdicts = trace_verdicts("counter", model, machine, [GOOD], expected={"gone": 1})
    assert [(verdict.ok, verdict.found) for verdict in verdicts] == [(True, "all accepted"), (False, "no such trace")]


def test_a_boolean_is_no_number(model: Model, machine: type[Any]) -> None:
    one = Trace("one", (add(1, total=1),))
    assert replay(model, machine, one).found == "accepted"
    assert replay(model, machine, Trace("true", (add(1, total=True),))).found == "rejected at event 1"


@pytest.mark.usefixtures("second")
def test_traces_are_judged_in_batches(model: Model, machine: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def watched(*arguments: Any) -> dict[int, int | None]:
        asked.append([trace.name for trace in arguments[2]])
        return run_tlc(*arguments)

    run_tlc = traces._run_tlc
    monkeypatch.setattr(traces, "_run_tlc", watched)
    monkeypatch.setattr(traces, "_BATCH_EVENTS", 12)
    bad = seeded()["wrong value"][0]
    found = validate(model, machine, [GOOD, bad, Trace("empty", ()), replace(GOOD, name="again")])
    assert [judgement.found for judgement in found] == ["accepted", "rejected at event 3", "no events", "accepted"]
    assert asked == [["good", "wrong value"], ["again"]]


@pytest.mark.usefixtures("second")
def test_a_trace_that_is_too_long_for_tlc_is_judged_by_the_reference_and_the_verdict_says_so(
    model: Model, machine: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def watched(*arguments: Any) -> dict[int, int | None]:
        asked.extend(trace.name for trace in arguments[2])
        return run_tlc(*arguments)

    run_tlc = traces._run_tlc
    monkeypatch.setattr(traces, "_run_tlc", watched)
    monkeypatch.setattr(traces, "TLC_STEPS", 5)
    bad = {name: seeded()[name] for name in ("event deleted", "wrong value")}
    short = Trace("short", GOOD.steps[:5])
    every = [GOOD, short, *(trace for trace, _ in bad.values())]
    verdicts = trace_verdicts("counter", model, machine, every, expected={name: at for name, (_, at) in bad.items()})
    assert set(asked) == {"short", "event deleted"}
    reason = "judged by the reference, not by TLC: 6 steps: too long for TLC (limit 5)"
    assert [(verdict.ok, verdict.found) for verdict in verdicts] == [
        (True, f"all accepted; 1 of 2 {reason}"),
        (True, "rejected at event 2"),
        (True, f"rejected at event 3; {reason}"),
    ]
    [missed] = trace_verdicts("counter", model, machine, [bad["wrong value"][0]])
    assert not missed.ok
    assert missed.found == f"0 of 1 accepted; wrong value: rejected at event 3; {reason}"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (TraceStep((Candidate("Sub", ("a", 1)),)), "no action 'Sub'; Counter has Read, Add, Refuse, Reset"),
        (TraceStep((Candidate("Add", ("a",)),)), "Add takes 2 arguments"),
        (add(1, sum=1), "Counter has no variable sum"),
        (TraceStep((Candidate("Add", ("a", 1)),), {"seen.z": 1}), 'seen.z: no "z" in'),
        *(
            (TraceStep((Candidate("Add", ("a", 1)),), {place: 1}), f"{place!r} is no place")
            for place in ("total + 1", "Len(log", "log)")
        ),
    ],
)
def test_a_trace_that_cannot_be_judged_is_refused(
    model: Model, machine: type[Any], step: TraceStep, reason: str
) -> None:
    with pytest.raises(TraceUnusable) as caught:
        replay(model, machine, Trace("bad", (step,)))
    assert reason in str(caught.value)


def test_a_place_is_looked_up_through_records_functions_and_sequences(model: Model, machine: type[Any]) -> None:
    state = machine.initial(model.machine_constants()).add("a", 2)
    assert evaluate("log[1].amount", state) == 2
    assert evaluate('seen["a"]', state) == 0
    assert evaluate("Len(log)", state) == 1
    assert format_value(evaluate("log", state)) == '<<[amount |-> 2, client |-> "a"]>>'


def test_tlc_replays_a_trace_as_it_is_written_and_says_how_far_it_came(
    model: Model, machine: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    maybe = TraceStep((Candidate("Add", ("a", None)), Candidate(NOTHING)))
    written = trace_definitions([Trace("one", (maybe, RESET)), Trace("two", (read(0),))], machine)
    for line in (
        '  <<[c |-> <<[a |-> "Add", x |-> <<{"a"}, Amounts>>], [a |-> "", x |-> <<>>]>>, o |-> <<>>],',
        '    [c |-> <<[a |-> "Reset", x |-> <<>>]>>, o |-> [o0 |-> 0]]>>,',
        '  <<[c |-> <<[a |-> "Read", x |-> <<{"a"}>>]>>, o |-> [o1 |-> 0]]>>',
        '    \\/ e.a = "Add" /\\ (\\E p1 \\in e.x[1] : \\E p2 \\in e.x[2] : Add(p1, p2))',
        '    \\/ e.a = "Reset" /\\ (Reset)',
        '    /\\ "o1" \\in DOMAIN Event__.o => (seen.a)\' = Event__.o.o1',
    ):
        assert line in written.splitlines(), written
    assert written.endswith("\n")
    prints = [f'<<"at", {trace}, {event}>>' for event in (1, 2) for trace in (1, 2, 3) if (trace, event) != (3, 2)]
    prints += ["noise", '<<"accepted", 2>>']
    monkeypatch.setattr(tlc, "run", lambda _: tlc.Result(verdict="holds", prints=tuple(prints)))
    wrong = Trace("wrong", (add(1, total=1), add(2, total=2)))
    found = validate(model, machine, [wrong, GOOD, Trace("late", (RESET,))])
    assert [judgement.tlc_index for judgement in found] == [2, None, 1]
    monkeypatch.setattr(tlc, "run", lambda _: tlc.Result(verdict="deadlocks", error="TLC's words"))
    with pytest.raises(TraceUnusable, match="OneClient: TLC deadlocks while it replays traces\nTLC's words"):
        validate(model, machine, [GOOD])


def leader_events() -> list[Event]:
    """The events of a leader: two appends, a retry, a restart from a snapshot, a refusal."""

    def event(order: int, action: str, sequence: int, offset: int | None, error: ErrorCode) -> Event:
        return Event(
            run="r",
            order=order,
            process="broker",
            action=action,
            phase="ok",
            producer_id=4000,
            producer_epoch=0,
            base_sequence=sequence,
            record_count=10,
            offset=offset,
            error=int(error),
        )

    return [
        event(0, "AppendBatch", 0, 0, ErrorCode.NONE),
        event(1, "AppendBatch", 10, 10, ErrorCode.NONE),
        event(2, "AcknowledgeDuplicate", 0, 0, ErrorCode.NONE),
        Event(run="r", order=3, process="broker", action="TakeSnapshot", phase="ok"),
        Event(run="r", order=4, process="broker", action="Restart", phase="ok"),
        event(5, "RefuseBatch", 30, None, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ]


@pytest.mark.tlc
def test_what_a_leader_did_is_a_trace_of_the_partition_log() -> None:
    good = partition_log_trace("leader", leader_events())
    late = list(leader_events())
    late[1] = replace(late[1], offset=11)
    bad = partition_log_trace("wrong offset", late)
    model = partition_log_model(Registry().get("PartitionLog"), [good, bad])
    verdicts = trace_verdicts("leader", model, PartitionLog, [good, bad], expected={"wrong offset": 2})
    assert [verdict.found for verdict in verdicts] == ["all accepted", "rejected at event 2"]
    assert "response.offset: spec 10, trace 11" in verdicts[1].evidence


def test_an_answer_is_compared_by_its_error_and_if_there_is_none_by_its_offset() -> None:
    *events, refused = leader_events()
    for event, observed in (
        (events[0], {"response.error": "NONE", "response.offset": 0}),
        (replace(events[0], offset=None), {"response.error": "NONE"}),
        (replace(events[0], offset=None, error=None), {}),
        (replace(refused, offset=7), {"response.error": "OUT_OF_ORDER_SEQUENCE_NUMBER"}),
    ):
        assert partition_log_step(event).observed == observed
    wrong = replace(refused, error=int(ErrorCode.INVALID_PRODUCER_EPOCH))
    for last, index in ((refused, None), (wrong, 6)):
        trace = partition_log_trace("leader", [*events, last])
        model = partition_log_model(Registry().get("PartitionLog"), [trace])
        assert replay(model, PartitionLog, trace).reference_index == index


def test_replays_at_the_same_time_share_no_file(
    model: Model, machine: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    accepts = ('<<"accepted", 1>>', '<<"accepted", 2>>')
    running: list[tlc.Job] = []

    def run(job: tlc.Job) -> tlc.Result:
        running.append(job)
        if len(running) == 2:
            return tlc.Result(verdict="holds", prints=accepts)
        before = (job.folder / f"{job.module}.tla").read_text(encoding="utf-8")
        validate(model, machine, [GOOD, replace(GOOD, name="again")])  # as another process may at the same time
        assert (job.folder / f"{job.module}.tla").read_text(encoding="utf-8") == before
        return tlc.Result(verdict="holds", prints=accepts[:1])

    monkeypatch.setattr(tlc, "run", run)
    validate(model, machine, [GOOD])
    assert len(running) == 2


def test_a_sequence_that_is_too_large_for_tlc_is_refused() -> None:
    def constants(sequence: int) -> Mapping[str, str]:
        event = replace(leader_events()[0], base_sequence=sequence)
        return partition_log_model(Registry().get("PartitionLog"), [partition_log_trace("leader", [event])]).constants

    most = constants(2**30 - 2)
    assert (most["MaxSequence"], most["Sequences"], most["CachedBatches"]) == (str(2**30 - 1), f"{{{2**30 - 2}}}", "5")
    for sequence in (2**30 - 1, 2**31 - 5):
        with pytest.raises(TraceUnusable, match="too large for TLC"):
            constants(sequence)


def test_a_copy_is_spoiled_by_the_offset_of_an_event_in_its_second_half_if_there_is_one() -> None:
    def trace(*offsets: int | None) -> Trace:
        observed = ({} if offset is None else {"response.offset": offset} for offset in offsets)
        return Trace("t", tuple(TraceStep((Candidate("AppendBatch", ()),), each) for each in observed))

    assert spoil([trace(None), trace(0, 1, 2, 3, 4, 5)]) == (trace(0, 1, 2, 4, 4, 5), 4)
    assert spoil([trace(0, 1, None, None, None, None)]) == (trace(0, 2, None, None, None, None), 2)
    assert spoil([trace(None)]) is None


def test_a_number_is_no_truth_value_and_a_step_without_a_text_is_its_action() -> None:
    class State:
        VARIABLES = ("flag",)
        flag = True

    state: Any = State()
    for wanted, differs in ((True, False), (1, True), (False, True)):
        assert bool(traces._mismatches(state, TraceStep((), {"flag": wanted}))) is differs
    State.flag = 1  # type: ignore[assignment]
    assert traces._mismatches(state, TraceStep((), {"flag": True}))
    assert traces._event_text(TraceStep((Candidate("Reset"),))) == "Reset"
    assert traces._event_text(TraceStep((Candidate(NOTHING),))) == "nothing"
