"""Trace validation: two judges decide whether an observed run is a behaviour of the spec, and must agree.

TLC replays the trace, written as a literal, through the spec's own actions: a trace is accepted when *some* behaviour
reaches its end. The reference replays it over the set of all states that are still possible (the belief). A rejection
says which event nothing explains, what the states were, which guard refused it, and what was possible instead.

An event names one or more candidate actions; an argument that nobody saw is None.

The reference judges a trace of any length. TLC judges traces of up to :data:`TLC_STEPS` steps, because each of its
steps takes longer in a longer trace. A verdict by the reference alone says so, and why.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from pyrsistent import PVector

from kafka_eos.errors import ErrorCode, NotEnabled, Rejected
from kafka_eos.histories.history import Event
from kafka_eos.machines import machine as machines
from kafka_eos.machines.explorer import attempt
from kafka_eos.machines.machine import Instance
from kafka_eos.machines.spec_mapping import SpecValue, record_fields, snake_case, to_spec
from kafka_eos_checks.graphs.state_graph import frame_text, instance_text
from kafka_eos_checks.kit.verdict import Verdict, first_of
from kafka_eos_checks.models.registry import Configuration, Model, write_model
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.values import canonical, format_value, parse_value

NOTHING = ""  # the action of a candidate that changes nothing: the event may have had no effect

TLC_STEPS = 5_000  # the longest trace that TLC judges
REMEMBERED_STEPS = 50_000  # of a judge that remembers; some 120 MB
_BATCH_EVENTS = 50_000  # events judged by one run of TLC
_SHOWN = 12  # instances and states listed in an explanation
_MOST_INSTANCES = 20_000  # with more of them, an explanation does not list the actions enabled instead


class TraceUnusable(ValueError):  # noqa: N818 - named for the trace
    """A trace that cannot be judged: an unknown action, a place that no state has; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An action that an event may have been.

    Attributes:
        action: the name of the action, or ``NOTHING``.
        arguments: its arguments as values of the reference; None for one that nobody saw.
    """

    action: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceStep:
    """An event of a trace.

    Attributes:
        candidates: the actions it may have been.
        observed: place -> the value seen there after the event. A place is a TLA+ expression over the variables, made
            of names, fields, applications and ``Len``: ``response.error``, ``producers[0].epoch``, ``Len(log)``. It
            must exist in every state.
        text: the name of the event in an explanation; by default its first candidate.
    """

    candidates: tuple[Candidate, ...]
    observed: Mapping[str, SpecValue] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace of one machine.

    Attributes:
        name: its name.
        steps: its events.
        starts: the states in which it may begin, each as the fields of the reference in which it differs from the
            initial state. Without any, it begins in the initial state.
        ragged: the places in which its end is left out, because the logs are of different moments.
        new: the places that were made again after a part of it.
    """

    name: str
    steps: tuple[TraceStep, ...]
    starts: tuple[Mapping[str, Any], ...] = ()
    ragged: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of both judges on one trace.

    Attributes:
        trace: the trace's name.
        events: number of events.
        reference_index: the first event, from 1, that the reference cannot explain; None when it accepts.
        tlc_index: the same for TLC.
        explanation: why it is rejected, or "".
        alone: why TLC did not judge, or ""; ``tlc_index`` then is the reference's.
    """

    trace: str
    events: int
    reference_index: int | None
    tlc_index: int | None
    explanation: str = ""
    alone: str = ""

    @property
    def agreed(self) -> bool:
        """Whether both judges say the same."""
        return self.reference_index == self.tlc_index

    @property
    def found(self) -> str:
        """The verdict in words."""
        if not self.events:
            return "no events"
        if self.agreed:
            return _words(self.tlc_index)
        return f"the judges disagree: TLC {_words(self.tlc_index)}, reference {_words(self.reference_index)}"


def _too_long(trace: Trace) -> str:
    """The reason why TLC does not judge a trace, or ""."""
    steps = len(trace.steps)
    return f"{steps:,} steps: too long for TLC (limit {TLC_STEPS:,})" if steps > TLC_STEPS else ""


def _words(index: int | None) -> str:
    return "accepted" if index is None else f"rejected at event {index}"


# --- places: expressions over the variables that both judges can evaluate ---------------------------------------

_PLACE = re.compile(r"(Len\()?([A-Za-z]\w*)((?:\.[A-Za-z]\w*|\[[^][]+\])*)(\))?\Z")
_PART = re.compile(r"\.([A-Za-z]\w*)|\[([^][]+)\]")


@cache
def _place(text: str) -> tuple[bool, str, tuple[SpecValue, ...]]:
    """A place as (whether its length is meant, variable, keys)."""
    match = _PLACE.match(text)
    if match is None or bool(match[1]) != bool(match[4]):
        raise TraceUnusable(f"{text!r} is no place; write a variable, with .field or [key], or Len(…) of it")
    keys = tuple(part[1] or parse_value(part[2]) for part in _PART.finditer(match[3]))
    return bool(match[1]), match[2], keys


def evaluate(place: str, state: machines.Machine) -> SpecValue:
    """The value at a place of a state.

    Only the value itself is converted to TLA+, because the log around it may be long.

    Raises:
        TraceUnusable: the state has no such place.
    """
    length, variable, keys = _place(place)
    if variable not in state.VARIABLES:
        raise TraceUnusable(f"{place}: {state.MODULE} has no variable {variable}; it has {', '.join(state.VARIABLES)}")
    value = getattr(state, snake_case(variable))
    for key in keys:
        try:
            value = _inside(value, key)
        except (KeyError, IndexError, TypeError):
            found = format_value(to_spec(value))
            raise TraceUnusable(f"{place}: no {format_value(key)} in {found}; observe less") from None
    if length and isinstance(value, (tuple, PVector)):
        return len(value)
    return len(to_spec(value)) if length else canonical(to_spec(value))


def _inside(value: Any, key: SpecValue) -> Any:
    """The value of a record, function or sequence of the reference at a key of TLA+."""
    if isinstance(value, (tuple, PVector)):
        return value[key - 1]
    if isinstance(value, Mapping):
        return value[key] if key in value else {to_spec(outer): inner for outer, inner in value.items()}[key]
    record: type = type(value)
    return getattr(value, record_fields(record)[key])


# --- the reference as a judge ------------------------------------------------------------------------------------


class _Reference:
    """Replays traces over the set of states that are still possible."""

    def __init__(self, machine: type[Any], constants: Any) -> None:
        self.machine = machine
        self.constants = constants
        self.actions = {action.name: action for action in machines.actions(machine)}

    def domain(self, name: str) -> tuple[Any, ...]:
        """The values of a domain."""
        return tuple(self.constants.domain(name))

    def instances(self, candidate: Candidate) -> Iterator[Instance]:
        """The instances that a candidate stands for."""
        action = self.actions.get(candidate.action)
        if action is None:
            raise TraceUnusable(
                f"no action {candidate.action!r}; {self.machine.__name__} has {', '.join(self.actions)}"
            )
        if len(action.domains) != len(candidate.arguments):
            raise TraceUnusable(f"{action.name} takes {len(action.domains)} arguments, found {candidate.arguments!r}")
        if None not in candidate.arguments:
            return iter((Instance(action, candidate.arguments),))
        choices = (
            self.domain(domain) if argument is None else (argument,)
            for domain, argument in zip(action.domains, candidate.arguments, strict=True)
        )
        return (Instance(action, arguments) for arguments in product(*choices))

    def effects(self, state: Any, step: TraceStep) -> Iterator[tuple[Candidate, Instance | None, Any]]:
        """The effect of each candidate in a state: its next state, or the refusal."""
        for candidate in step.candidates:
            if candidate.action == NOTHING:
                yield candidate, None, state
                continue
            for instance in self.instances(candidate):
                yield candidate, instance, attempt(state, instance)

    def starts(self, fields: Iterable[Mapping[str, Any]]) -> list[Any]:
        """The states in which a trace with these ``starts`` may begin."""
        initial = self.machine.initial(self.constants)
        return [replace(initial, **each) for each in fields] or [initial]

    def judge(self, trace: Trace) -> tuple[int | None, list[Any]]:
        """The first unexplained event, with the states before it."""
        belief = self.starts(trace.starts)
        for place, step in enumerate(trace.steps, start=1):
            before, belief = belief, self.after(belief, step)
            if not belief:
                return place, before
        return None, belief

    def after(self, before: Iterable[Any], step: TraceStep) -> list[Any]:
        """The states that are possible after a step; none if nothing explains it."""
        return _distinct(
            after
            for state in before
            for _, _, after in self.effects(state, step)
            if not isinstance(after, (NotEnabled, Rejected)) and not _mismatches(after, step)
        )

    def explain(self, trace: Trace, index: int, before: Sequence[Any]) -> str:
        """The reasons why no state explains the event: guards, effects, and what was possible instead."""
        step = trace.steps[index - 1]
        lines = [f"{trace.name}, event {index} of {len(trace.steps)}: {_event_text(step)}"]
        lines += [f"  observed {place} = {format_value(value)}" for place, value in step.observed.items()]
        lines.append(f"  possible states before it: {len(before)}")
        for state in before[:_SHOWN]:
            shown = ", ".join(f"{name} = {format_value(value)}" for name, value in machines.dump(state).items())
            lines.append(f"  in {shown}")
            for _, instance, after in self.effects(state, step):
                label = instance_text(instance) if instance else "nothing"
                if isinstance(after, (NotEnabled, Rejected)):
                    lines.append(f"    {label} is not enabled: {after}")
                else:
                    seen = "; ".join(
                        f"{p}: spec {format_value(s)}, trace {format_value(t)}" for p, s, t in _mismatches(after, step)
                    )
                    lines.append(f"    {label} is enabled, with another effect: {seen}")
            lines.append(f"    enabled instead: {self._enabled(state)}")
        return "\n".join(lines)

    def _enabled(self, state: Any) -> str:
        sizes = 0
        for action in self.actions.values():
            size = 1
            for domain in action.domains:
                size *= len(self.domain(domain))
            sizes += size
        if sizes > _MOST_INSTANCES:
            return f"not searched among {sizes:,} instances"
        labels = [
            instance_text(instance)
            for instance in machines.instances(self.machine, self.constants)
            if not isinstance(attempt(state, instance), (NotEnabled, Rejected))
        ]
        return first_of(labels, _SHOWN) or "nothing"


class _Possible:
    """The possible states at a place of a trace, and the results of the steps that were tried there.

    Steps are distinguished by their identity, so each is kept alive together with its result.
    """

    __slots__ = ("following", "states")

    def __init__(self, states: list[Any]) -> None:
        self.states = states
        self.following: dict[int, tuple[TraceStep, _Possible]] = {}


class RememberingJudge:
    """The reference as a judge of many traces: from the same possible states it takes the same step only once.

    Traces of many transactional ids take the same steps in the same states. The result of a step is computed by the
    machine once and then remembered. Verdicts are those of :func:`replay`.
    """

    def __init__(self, machine: type[Any], constants: Any, most: int = REMEMBERED_STEPS) -> None:
        """Judge by a machine with these constants, and remember the first ``most`` distinct steps."""
        self._reference = _Reference(machine, constants)
        self._most = most
        self._remembered = 0
        self._known: dict[Any, _Possible] = {}
        self._first = _Possible(self._reference.starts(()))

    def first_rejected(
        self, steps: Iterable[TraceStep], starts: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[int | None, int]:
        """The first step, from 1, that nothing explains (None if all are explained), and the number of steps."""
        possible = self._possible(self._reference.starts(starts)) if starts else self._first
        taken = 0
        following = iter(steps)
        for step in following:
            taken += 1
            known = possible.following.get(id(step))
            possible = self._after(possible, step) if known is None else known[1]
            if not possible.states:
                return taken, taken + sum(1 for _ in following)
        return None, taken

    def _after(self, before: _Possible, step: TraceStep) -> _Possible:
        after = self._possible(self._reference.after(before.states, step))
        if self._remembered < self._most:
            self._remembered += 1
            self._known[_key_of(after.states)] = after
            before.following[id(step)] = step, after
        return after

    def _possible(self, states: list[Any]) -> _Possible:
        return self._known.get(_key_of(states)) or _Possible(states)


def _key_of(states: Sequence[Any]) -> Any:
    return states[0] if len(states) == 1 else frozenset(states)


def _distinct(states: Iterable[Any]) -> list[Any]:
    """The states without repetitions. Hashing a state takes time in proportion to its log, so a single one is not."""
    found = list(states)
    return found if len(found) < 2 else list(dict.fromkeys(found))


def _mismatches(state: Any, step: TraceStep) -> list[tuple[str, SpecValue, SpecValue]]:
    """The differences between a state and the observed values: (place, value of the spec, value of the trace)."""
    found = []
    for place, wanted in step.observed.items():
        value = evaluate(place, state)
        if value != canonical(wanted) or isinstance(value, bool) != isinstance(wanted, bool):
            found.append((place, value, wanted))
    return found


def _event_text(step: TraceStep) -> str:
    if step.text:
        return step.text
    first = step.candidates[0]
    arguments = ", ".join("?" if a is None else format_value(to_spec(a)) for a in first.arguments)
    return f"{first.action}({arguments})" if arguments else first.action or "nothing"


# --- TLC as a judge ----------------------------------------------------------------------------------------------


def _candidate_text(candidate: Candidate, actions: Mapping[str, machines.Action]) -> str:
    """A candidate as a record: the action, and for each argument the set of its possible values."""
    domains = actions[candidate.action].domains if candidate.action != NOTHING else ()
    choices = (
        domain if argument is None else f"{{{format_value(to_spec(argument))}}}"
        for domain, argument in zip(domains, candidate.arguments, strict=True)
    )
    return f'[a |-> "{candidate.action}", x |-> <<{", ".join(choices)}>>]'


def _step_text(step: TraceStep, places: Mapping[str, str], actions: Mapping[str, machines.Action]) -> str:
    candidates = ", ".join(_candidate_text(candidate, actions) for candidate in step.candidates)
    observed = ", ".join(f"{places[place]} |-> {format_value(value)}" for place, value in step.observed.items())
    return f"[c |-> <<{candidates}>>, o |-> {f'[{observed}]' if observed else '<<>>'}]"


def _call(action: machines.Action, sets: Sequence[str]) -> str:
    r"""``\E p1 \in S1 : … : Action(p1, …)``."""
    names = [f"p{place}" for place in range(1, len(sets) + 1)]
    quantifiers = "".join(f"\\E {name} \\in {values} : " for name, values in zip(names, sets, strict=True))
    call = f"{action.name}({', '.join(names)})" if names else action.name
    return f"({quantifiers}{call}{frame_text(action)})"


def trace_definitions(traces: Sequence[Trace], machine: type[machines.Machine]) -> str:
    """The TLA+ text that replays traces, and prints how far each is explained.

    Args:
        traces: the traces.
        machine: the machine with the names of actions and variables.
    """
    actions = {action.name: action for action in machines.actions(machine)}
    every = sorted({place for trace in traces for step in trace.steps for place in step.observed})
    places = {place: f"o{number}" for number, place in enumerate(every)}
    literals = [
        "<<" + ",\n    ".join(_step_text(step, places, actions) for step in trace.steps) + ">>" for trace in traces
    ]
    used = {c.action for trace in traces for step in trace.steps for c in step.candidates}
    taken = []
    for name in sorted(used - {NOTHING}):
        sets = [f"e.x[{number}]" for number in range(1, len(actions[name].domains) + 1)]
        taken.append(f'    \\/ e.a = "{name}" /\\ {_call(actions[name], sets)}')
    variables = ", ".join(machine.VARIABLES)
    if NOTHING in used:
        taken.append(f'    \\/ e.a = "{NOTHING}" /\\ UNCHANGED <<{variables}>>')
    seen = [f'    /\\ "{key}" \\in DOMAIN Event__.o => ({place})\' = Event__.o.{key}' for place, key in places.items()]
    lines = [
        "VARIABLES trace__, at__",
        "Traces__ == <<\n  " + ",\n  ".join(literals) + "\n>>",
        "Length__ == Len(Traces__[trace__])",
        "Event__ == Traces__[trace__][at__]",
        "Starts__ == <<" + ", ".join(_starts_text(trace, machine) for trace in traces) + ">>",
        *_begins(traces, machine),
        "Take__ == \\E c \\in DOMAIN Event__.c : LET e == Event__.c[c] IN",
        *taken,
        "Observed__ ==",
        *(seen or ["    TRUE"]),
        "Logged__ == /\\ at__ \\in 1..Length__ /\\ Take__ /\\ Observed__",
        "            /\\ at__' = at__ + 1 /\\ UNCHANGED trace__",
        "TraceInit__ == /\\ Init /\\ trace__ \\in DOMAIN Traces__",
        "               /\\ at__ = IF Starts__[trace__] = {} THEN 1 ELSE 0",
        f"TraceSpec__ == TraceInit__ /\\ [][Begins__ \\/ Logged__]_<<{variables}, trace__, at__>>",
        "ASSUME \\A t \\in DOMAIN Traces__ : TLCSet(t, 0)",
        'Followed__ == at__ <= TLCGet(trace__) \\/ (TLCSet(trace__, at__) /\\ PrintT(<<"at", trace__, at__>>))',
        'Accepted__ == at__ <= Length__ \\/ PrintT(<<"accepted", trace__>>)',
    ]
    return "\n".join(lines) + "\n"


def _starts_text(trace: Trace, machine: type[machines.Machine]) -> str:
    """The states in which a trace may begin, as a set of records of variables; empty for the initial state."""
    names = {snake_case(variable): variable for variable in machine.VARIABLES}
    starts = (
        ", ".join(f"{names[name]} |-> {format_value(to_spec(value))}" for name, value in start.items())
        for start in trace.starts
    )
    return "{" + ", ".join(f"[{start}]" for start in starts) + "}"


def _begins(traces: Sequence[Trace], machine: type[machines.Machine]) -> list[str]:
    """The step from the initial state to one in which a trace may begin."""
    given = {name for trace in traces for start in trace.starts for name in start}
    changed = [variable for variable in machine.VARIABLES if snake_case(variable) in given]
    same = [variable for variable in machine.VARIABLES if snake_case(variable) not in given]
    return [
        "Begins__ == /\\ at__ = 0 /\\ at__' = 1",
        "            /\\ \\E s \\in Starts__[trace__] : TRUE" + "".join(f" /\\ {v}' = s.{v}" for v in changed),
        f"            /\\ UNCHANGED <<{', '.join([*same, 'trace__'])}>>",
    ]


_ACCEPTED = re.compile(r'<<"accepted", (\d+)>>')
_AT = re.compile(r'<<"at", (\d+), (\d+)>>')


def _run_tlc(
    model: Model,
    machine: type[machines.Machine],
    traces: Sequence[Trace],
    timeout: float,
) -> dict[int, int | None]:
    """The verdicts of TLC: place of the trace -> None (accepted) or the first event not explained."""
    definitions = trace_definitions(traces, machine)
    configuration = Configuration(specification="TraceSpec__", invariants=("Accepted__", "Followed__"))
    with TemporaryDirectory(prefix="kafka-eos-trace-") as own:  # another process may replay other traces of the model
        folder, root = write_model(model, configuration, definitions, suffix="_trace", folder=Path(own))
        result = tlc.run(tlc.Job(folder=folder, module=root, timeout=timeout))
    if result.verdict != "holds":
        raise TraceUnusable(f"{model.name}: TLC {result.verdict} while it replays traces\n{result.error}")
    found: dict[int, int | None] = {}
    for line in result.prints:
        reached = _AT.match(line)
        if reached:
            found[int(reached[1]) - 1] = int(reached[2])  # each line of a trace goes further than the one before
    for line in result.prints:
        accepted = _ACCEPTED.match(line)
        if accepted:
            found[int(accepted[1]) - 1] = None
    return found


def _batches(traces: Sequence[Trace]) -> Iterator[list[int]]:
    """The places of the traces that TLC judges, in batches of one run each."""
    batch: list[int] = []
    size = 0
    for place, trace in enumerate(traces):
        if batch and size + len(trace.steps) > _BATCH_EVENTS:
            yield batch
            batch, size = [], 0
        if trace.steps and not _too_long(trace):
            batch.append(place)
            size += len(trace.steps)
    if batch:
        yield batch


# --- both judges -------------------------------------------------------------------------------------------------


def replay(model: Model, machine: type[Any], trace: Trace) -> Judgement:
    """The judgement of the reference only; ``tlc_index`` is the reference's.

    Raises:
        TraceUnusable: the trace names an action or place that the machine does not have.
    """
    constants = model.machine_constants(machine)
    index, explanation = replayed(machine, constants, trace)
    return Judgement(
        trace=trace.name, events=len(trace.steps), reference_index=index, tlc_index=index, explanation=explanation
    )


def replayed(machine: type[Any], constants: Any, trace: Trace) -> tuple[int | None, str]:
    """The first event, from 1, that the reference cannot explain, with the reason; None and "" when it accepts.

    Raises:
        TraceUnusable: the trace names an action or place that the machine does not have.
    """
    reference = _Reference(machine, constants)
    index, before = reference.judge(trace)
    return index, reference.explain(trace, index, before) if index is not None else ""


def validate(
    model: Model,
    machine: type[Any],
    traces: Sequence[Trace],
    *,
    timeout: float = 600.0,
) -> list[Judgement]:
    """Judge traces twice, those of more than ``TLC_STEPS`` steps by the reference alone.

    Args:
        model: the module, its constants and overrides; its bounds and properties are not used.
        machine: the reference's class, with the same rules as the model.
        traces: the traces, each from the initial state.
        timeout: seconds for each run of TLC.

    Raises:
        TraceUnusable: a trace names an action or place that the machine does not have, or TLC cannot evaluate it.
    """
    judged = {place: replay(model, machine, trace) for place, trace in enumerate(traces) if trace.steps}
    tlc_index: dict[int, int | None] = {}
    for places in _batches(traces):
        batch = [traces[place] for place in places]
        found = _run_tlc(model, machine, batch, timeout)
        tlc_index |= {places[number]: index for number, index in found.items()}
    judgements = []
    for place, trace in enumerate(traces):
        if not trace.steps:
            judgements.append(Judgement(trace=trace.name, events=0, reference_index=None, tlc_index=None))
        elif alone := _too_long(trace):
            judgements.append(replace(judged[place], alone=alone))
        else:
            judgements.append(replace(judged[place], tlc_index=tlc_index[place]))
    return judgements


def trace_verdicts(
    name: str,
    model: Model,
    machine: type[Any],
    traces: Sequence[Trace],
    *,
    expected: Mapping[str, int] | None = None,
    copy_of: Mapping[str, str] | None = None,
    claims: tuple[str, ...] = (),
) -> list[Verdict]:
    """A verdict on all traces that must be accepted, and one on each that must be rejected.

    A copy with a fault shows that the judges reject that fault. It has no verdict if its own trace is rejected, because
    then the copy may be rejected for the reason for which its trace is.

    Args:
        name: the name of the set of traces.
        model: see :func:`validate`.
        machine: see :func:`validate`.
        traces: the traces; no trace is a failure, and so is a trace without events.
        expected: trace -> the event at which it must be rejected.
        copy_of: trace that must be rejected -> the trace of which it is a copy with a fault.
        claims: ids of the ledger's claims that the verdicts settle.
    """
    began = monotonic()
    judgements = validate(model, machine, traces)
    seconds = monotonic() - began
    bad = expected or {}
    good = [judgement for judgement in judgements if judgement.trace not in bad]
    wrong = [judgement for judgement in good if judgement.found != "accepted"]
    rejected = {judgement.trace for judgement in wrong}
    vain = {copy for copy, original in (copy_of or {}).items() if original in rejected}
    found = f"{len(good) - len(wrong)} of {len(good)} accepted" if good else "no traces"
    if wrong:
        found += f"; {wrong[0].trace}: {wrong[0].found}"
    verdicts = [
        Verdict(
            check="trace",
            name=name,
            expected="all accepted",
            found=(found if wrong or not good else "all accepted") + _alone(good),
            ok=bool(good) and not wrong,
            seconds=seconds,
            figures={"traces": len(good), "events": sum(judgement.events for judgement in good)},
            evidence="\n".join(judgement.explanation or judgement.found for judgement in wrong),
            claims=claims,
        )
    ]
    verdicts += [
        Verdict(
            check="trace",
            name=f"{name}, copy with a fault: {judgement.trace}",
            expected=_words(bad[judgement.trace]),
            found=judgement.found + _alone([judgement]),
            ok=judgement.found == _words(bad[judgement.trace]),
            figures={"events": judgement.events},
            evidence=judgement.explanation,
        )
        for judgement in judgements
        if judgement.trace in bad and judgement.trace not in vain
    ]
    missing = sorted(bad.keys() - {judgement.trace for judgement in judgements})
    verdicts += [
        Verdict(
            check="trace",
            name=f"{name}, copy with a fault: {trace}",
            expected=_words(bad[trace]),
            found="no such trace",
            ok=False,
        )
        for trace in missing
    ]
    return verdicts


def _alone(judgements: Sequence[Judgement]) -> str:
    """The addition to a verdict if some of its traces were judged by the reference alone; otherwise ""."""
    alone = [judgement.alone for judgement in judgements if judgement.alone]
    if not alone:
        return ""
    which = "" if len(judgements) == 1 else f"{len(alone)} of {len(judgements)} "
    return f"; {which}judged by the reference, not by TLC: {alone[0]}"


# --- traces of a partition's leader ------------------------------------------------------------------------------

_LARGEST = 2**31 - 1  # TLC's integers have 32 bits


def partition_log_step(event: Event) -> TraceStep:
    """An event of a partition's leader (see ``record.trace``) as a step of PartitionLog.

    Raises:
        TraceUnusable: a column of the batch is missing.
    """
    if event.action in {"TakeSnapshot", "Restart"}:
        return TraceStep((Candidate(event.action),))
    batch = (event.producer_id, event.producer_epoch, event.base_sequence, event.record_count)
    if None in batch:
        raise TraceUnusable(f"{event.run} event {event.order}: {event.action} without the columns of its batch")
    observed: dict[str, SpecValue] = {}
    if event.error is not None:
        observed["response.error"] = ErrorCode(event.error).name
    if event.offset is not None and event.error == ErrorCode.NONE:
        observed["response.offset"] = event.offset
    return TraceStep((Candidate(event.action, batch),), observed)


def partition_log_trace(name: str, events: Iterable[Event]) -> Trace:
    """The events of a partition's leader as a trace of PartitionLog."""
    return Trace(name, tuple(partition_log_step(event) for event in events))


def partition_log_model(model: Model, traces: Sequence[Trace], cached_batches: int = 5) -> Model:
    """A model of PartitionLog with the constants of some traces, for :func:`validate`.

    Raises:
        TraceUnusable: a number is too large for TLC.
    """
    arguments = [c.arguments for t in traces for s in t.steps for c in s.candidates if c.arguments]
    columns = [sorted({value for value in column if value is not None}) for column in zip(*arguments, strict=True)]
    ids, epochs, sequences, counts = columns or ([], [], [], [])
    max_sequence = _LARGEST // 2  # so that MaxSequence + 1 and sums of two sequences are integers of TLC
    largest = max([*ids, *epochs, *sequences, *counts], default=0)
    if largest >= max_sequence:
        raise TraceUnusable(f"{largest} is too large for TLC; judge the trace by the reference alone (--alone)")
    constants = {
        "MaxSequence": str(max_sequence),
        "CachedBatches": str(cached_batches),
        "ProducerIds": format_value(frozenset(ids)),
        "Epochs": format_value(frozenset(epochs)),
        "Sequences": format_value(frozenset(sequences)),
        "BatchCounts": format_value(frozenset(counts)),
        "Expiration": "FALSE",
    }
    return replace(model, name=f"{model.name}Traces", constants=constants, bounds="", probes=(), graph="")
