"""Draw a history as a sequence diagram, around a finding of the audit or around an event that the user names.

A history has tens of thousands of events. For a finding, the diagram has the events from its cause to its
effect. For a named event, it has the requests, answers and faults of the named partition, producer,
transactional id or process: some before the event and a few after it. Sends of an application are left out if the
history has the requests that carried their records.
"""

import argparse
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kafka_eos.formats.log_directory import NotALogDirectory
from kafka_eos.histories.history import Event, MalformedHistory
from kafka_eos_checks.audit import audit, marked, moments
from kafka_eos_checks.audit.cause import cause_of, names_of, seen_in, told
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.inputs import Inputs, UnusableInput, open_inputs
from kafka_eos_checks.audit.places import place as place_of
from kafka_eos_checks.audit.rules.rule_book import Place, rule_of
from kafka_eos_checks.drawing.sequence_diagram import FAULTS, MAX_STEPS, Violation, from_events, steps_of
from kafka_eos_checks.drawing.svg import inert, visible
from kafka_eos_checks.kit.arguments import add_source_arguments
from kafka_eos_checks.kit.outputs import check_outputs, write_text
from kafka_eos_checks.kit.paths import output_folder
from kafka_eos_checks.kit.recording import as_given, given_path
from kafka_eos_checks.kit.terminal import answer_console
from kafka_eos_checks.kit.verdict import counted, first_of
from kafka_eos_checks.models.findings import possible_causes

LEGEND = """a line: the event's place in the history, who -> whom, what (details)
-x: it was lost; @ N: offset N; …: begun, or left out; ^: here the finding is seen"""
BEFORE, AFTER = 30, 10  # events drawn up to the moment, and after it
SUFFIXES = (".html", ".svg")
EPILOG = """examples:
  kafka-eos explain example:violations                      one of this package's own recordings
  kafka-eos explain recording.tar.xz                        the first finding of its audit
  kafka-eos explain recording.tar.xz --finding 6            another one
  kafka-eos explain history.jsonl --around 579              the events that lead up to event 579
  kafka-eos explain history.jsonl --topic t --partition 0 --producer-id 4000
  kafka-eos explain recording/ --run violations/late-end-of-transaction --out run.svg

exit codes: 0 drawn, 2 the input or the call cannot be used
"""


WANTED = ("topic", "partition", "producer_id", "transactional_id", "process")  # columns that options name
NAMED = 10  # values in a message


class NothingToDraw(ValueError):  # noqa: N818 - named for the input
    """No event is left, or the named event does not exist; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The subject of a diagram: the events of one run, up to one of them and a little further.

    Attributes:
        events: the events, in the order of the run.
        violation: the marked event and its text; None if no event is marked.
        left_out: by the place of an event, how many related events were left out before it.
    """

    events: list[Event]
    violation: Violation | None
    left_out: Mapping[int, int] = field(default_factory=dict)


class Explained(NamedTuple):
    """A diagram with its words.

    Attributes:
        moment: its subject.
        headline: the subject in one line.
        advice: the finding, what to do about it and what may be the cause; nothing for events without a finding.
        then: the next command.
    """

    moment: Moment
    headline: str
    advice: tuple[str, ...]
    then: tuple[str, ...]


class Read(NamedTuple):
    """The histories and logs that were read, and what the audit found in them.

    Attributes:
        runs: the runs of all histories by name, with the markers of the logs.
        findings: of the audit.
        inputs: the inputs; packed ones are no longer there.
    """

    runs: dict[str, list[Event]]
    findings: list[Finding]
    inputs: Inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The properties of the wanted events; None for any."""

    topic: str | None = None
    partition: int | None = None
    producer_id: int | None = None
    transactional_id: str | None = None
    process: str | None = None

    def has(self, event: Event) -> bool:
        """Whether an event is wanted. A fault always is; columns that the event does not have are ignored."""
        if event.action in FAULTS:
            return True
        pairs = [(getattr(self, name), getattr(event, name)) for name in WANTED]
        asked = [(wanted, found) for wanted, found in pairs if wanted is not None]
        return all(found is None or wanted == found for wanted, found in asked) and (
            not asked or any(found is not None for _, found in asked)
        )


def read_runs(paths: Sequence[Path], *, one_moment: bool = False, longest_ms: int = moments.LONGEST_MS) -> Read:
    """Read the runs of all histories, and audit the inputs.

    Args:
        paths: the inputs.
        one_moment: whether all logs are of one moment; recordings are.
        longest_ms: how long a transaction may take on the cluster, in milliseconds.

    Raises:
        UnusableInput, NotALogDirectory, MalformedHistory, OSError: the input cannot be used.
    """
    with open_inputs(paths) as inputs:
        given, source = audit.looked_at(inputs, one_moment=one_moment, longest_ms=longest_ms)
        runs = marked.read_runs(inputs.histories, inputs.logs)
        found = audit.of_inputs(given, source=source).findings if inputs.logs or inputs.histories else ()
    if not runs:
        raise UnusableInput(
            "no history of the clients in it, so nothing to draw: what they asked and were told is in no broker's log. "
            "Give a history or a recording next to the logs; without one, `kafka-eos audit` says what to look at in "
            "the logs"
        )
    return Read(runs, list(found), given)


def chosen_run(runs: dict[str, list[Event]], name: str | None) -> list[Event]:
    """The events of the run of that name, or of the only one.

    Raises:
        NothingToDraw: there is none of that name, or there are several and no name.
    """
    if name is None and len(runs) == 1:
        return next(iter(runs.values()))
    if name is None or name not in runs:
        wrong = "there are several runs" if name is None else f"no run {name!r}"
        raise NothingToDraw(f"{wrong}; give --run with one of {', '.join(sorted(runs))}")
    return runs[name]


def moment_of(finding: Finding, runs: dict[str, list[Event]]) -> Moment | None:
    """The events that led to a finding, from its cause on, and some that followed; None if no history has one.

    See :mod:`cause`. If a reader was given a record, the marked text names the broker that led at that event.
    """
    for name in names_of(finding, runs):
        cause = cause_of(finding, events := runs[name])
        if cause is not None:
            text = f"{_said(finding)}{_given_by(cause.events[cause.effect], events)}"
            return Moment(cause.events, Violation(cause.effect, text), cause.left_out)
    return None


def _given_by(seen: Event, run: Sequence[Event]) -> str:
    """The broker that gave a reader its record, because it led; "" for other events, or if the run does not tell."""
    if seen.action != "Poll":
        return ""
    earlier = run[: next(number for number, event in enumerate(run) if event is seen)]
    changes = (e for e in reversed(earlier) if (e.action, e.phase) == ("LeaderChange", "ok"))
    change = next((e for e in changes if (e.topic, e.partition) == (seen.topic, seen.partition)), None)
    if change is None:
        return ""
    since = "" if change.order is None else f" since event {change.order}"
    return f"; given by {change.process.replace('-', ' ')}, which led{since}"


def of_finding(finding: Finding, runs: dict[str, list[Event]], advice: Sequence[str] = ()) -> Moment:
    """Return the events that led to a finding, as :func:`moment_of` does.

    Raises:
        NothingToDraw: no history has an event of the finding; the message has the advice.
    """
    moment = moment_of(finding, runs)
    if moment is None:
        said = "\n".join(("no history has an event of this finding:", finding.in_words(), *advice))
        raise NothingToDraw(said)
    return moment


def explained(
    number: int | None,
    findings: Sequence[Finding],
    runs: dict[str, list[Event]],
    again: str,
    inputs: Inputs | None = None,
) -> Explained:
    """A finding with its events, the advice about it and the next command.

    Args:
        number: of the finding, from 1; None for the first one that can be drawn.
        findings: of the audit.
        runs: the events of the histories.
        again: the command that draws the same findings.
        inputs: what was audited, if it is known.

    Raises:
        NothingToDraw: there is no such finding, or no history has an event of it.
    """
    if number is None:
        number = _first_drawable(range(1, len(findings) + 1), findings, runs) or 1
    if not 1 <= number <= len(findings):
        raise NothingToDraw(f"--finding {number}: the audit has {counted(len(findings), 'finding')}")
    finding = findings[number - 1]
    place = Place() if inputs is None else audit.place_of(finding, number, inputs, findings)
    own_runs, are_whole = [runs[name] for name in names_of(finding, runs)], audit.states_are_whole(inputs, findings)
    causes = possible_causes(finding.rule, own_runs, states_are_whole=are_whole).values()
    rule = rule_of(finding.rule).about(finding)
    advice = (*rule.advice(finding, place, drawn=True), *causes)
    moment = of_finding(finding, runs, advice)
    headline = f"finding {number} of {len(findings)}, {finding.rule}: {rule.means}"
    others = (*range(number + 1, len(findings) + 1), *range(1, number))
    another = _first_drawable(others, findings, runs)
    more = f"next: {again} --finding {another} draws another of the {len(findings)} findings"
    given_by = "" if moment.violation is None else moment.violation.text.removeprefix(_said(finding))
    said = finding.in_words() + given_by
    return Explained(moment, headline, (said, *advice[1:]), (more,) if another is not None else ())


def _first_drawable(
    numbers: Iterable[int], findings: Sequence[Finding], runs: Mapping[str, Sequence[Event]]
) -> int | None:
    """The first of the numbers of findings, from 1, that a run has an event of; None if there is none."""
    return next((number for number in numbers if seen_in([findings[number - 1]], runs)[0]), None)


def _said(finding: Finding) -> str:
    return f"{finding.rule}: {finding.evidence}"


def cut_out(events: Iterable[Event], wanted: Wanted, around: int | None) -> Moment:
    """The wanted events up to the one with the order ``around``, and a few after it; without an order, the first ones.

    Raises:
        NothingToDraw: no event is wanted, or none has that order or the value of an option.
    """
    everything = list(events)
    for name in WANTED:
        there = {getattr(event, name) for event in everything} - {None}
        if getattr(wanted, name) not in {None, *there}:
            known = first_of([str(each) for each in sorted(there)], NAMED) or "none"
            option = f"--{name.replace('_', '-')} {getattr(wanted, name)}"
            raise NothingToDraw(f"{option}: no event of the run has it; there is {known}")
    kept = [event for event in told(everything) if event.order == around or wanted.has(event)]
    if not any(event.action not in FAULTS for event in kept):
        raise NothingToDraw("no event is left; leave out --topic, --partition, --producer-id or --process")
    if around is None:
        return Moment(kept[:MAX_STEPS], None)
    place = next((place for place, event in enumerate(kept) if event.order == around), None)
    if place is None:
        orders = [event.order for event in everything if event.order is not None]
        told_of = f"events {min(orders)} to {max(orders)}" if orders else "no event with an order"
        raise NothingToDraw(f"no event {around}; the run has {told_of}")
    begin = max(0, place + 1 - BEFORE)
    return Moment(kept[begin : place + 1 + AFTER], Violation(place - begin, f"event {around}"))


def story(moment: Moment) -> str:
    """The events as text, one a line under its order in the run, with the moment marked."""
    lines = []
    steps, _ = steps_of(moment.events)
    for place, (event, step) in enumerate(zip(moment.events, steps, strict=True)):
        lines += _left_out(moment, place)
        lines.append(f"{'' if event.order is None else event.order:>7}  {step.in_words()}")
        if moment.violation is not None and place == moment.violation.step:
            lines.append(f"      ^  {moment.violation.text}")
    return "\n".join(lines + _left_out(moment, len(steps)))


def _left_out(moment: Moment, place: int) -> list[str]:
    count = moment.left_out.get(place, 0)
    return [f"      …  {count} left out"] if count else []


def drawn(moment: Moment) -> str:
    """The events as one SVG element."""
    return from_events(moment.events, moment.violation, moment.left_out)


def page(title: str, subject: Explained) -> str:
    """A complete HTML page with diagram and story."""
    templates = Environment(
        loader=PackageLoader("kafka_eos_checks", "templates"), autoescape=True, undefined=StrictUndefined
    )
    picture = Markup(inert(drawn(subject.moment)))  # noqa: S704 - rebuilt from an allow-list
    template = templates.get_template("explain.html.j2")
    words = {
        "headline": subject.headline,
        "advice": "\n".join(subject.advice),
        "story": story(subject.moment),
        "then": "\n".join(subject.then),
    }
    shown = {name: visible(text) for name, text in words.items()}
    return template.render(title=visible(title), legend=LEGEND, picture=picture, **shown) + "\n"


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``explain``."""
    parser = subparsers.add_parser(
        "explain",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=given_path,
        metavar="TRACE",
        help="a .jsonl history, or a recording: a folder, a .tar.xz, or example:NAME for one of this package's own",
    )
    parser.add_argument(
        "--finding", type=int, metavar="N", help="the N-th finding of the audit (default: the first that can be drawn)"
    )
    add_source_arguments(parser)
    parser.add_argument("--around", type=int, metavar="ORDER", help="the events around this one, by its order")
    parser.add_argument("--run", dest="name", metavar="RUN", help="the run, where there are several")
    parser.add_argument("--topic", help="events of this topic")
    parser.add_argument("--partition", type=int, metavar="N", help="and of this partition")
    parser.add_argument("--producer-id", type=int, metavar="ID", help="events of this producer id")
    parser.add_argument("--transactional-id", metavar="ID", help="events of this transactional.id")
    parser.add_argument("--process", metavar="NAME", help="events of this process")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="a .html page or a bare .svg (default: build/explain.html)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Draw, print the story, write the picture."""
    out: Path = arguments.out or output_folder() / "explain.html"
    if out.suffix not in SUFFIXES:
        print(f"kafka-eos explain: --out {out}: expected a name that ends in {' or '.join(SUFFIXES)}", file=sys.stderr)
        return 2
    try:
        check_outputs({"--out": out}, arguments.paths)
        arguments.paths = list(map(place_of, arguments.paths))
        shown = _explained(arguments)
        title = ", ".join(path.name for path in arguments.paths)
        text = drawn(shown.moment) + "\n" if out.suffix == ".svg" else page(title, shown)
        write_text(out, text)
    except MalformedHistory as error:
        print(f"kafka-eos explain: {error}", file=sys.stderr)
        return 2
    except (NothingToDraw, UnusableInput, NotALogDirectory, OSError) as error:
        print(f"kafka-eos explain: {error}", file=sys.stderr)
        return 2
    told = [shown.headline, "", LEGEND, "", story(shown.moment), "", *shown.advice, *shown.then, f"\nDiagram: {out}"]
    answer_console.print(visible("\n".join(told)), markup=False, soft_wrap=True, highlight=False)
    return 0


def _explained(arguments: argparse.Namespace) -> Explained:
    runs, findings, inputs = read_runs(arguments.paths, one_moment=arguments.snapshot, longest_ms=arguments.longest_ms)
    wanted = Wanted(**{name: getattr(arguments, name) for name in WANTED})
    number: int | None = arguments.finding
    others = {"around": arguments.around, "run": arguments.name, **{name: getattr(wanted, name) for name in WANTED}}
    if number is not None and (given := [name for name, value in others.items() if value is not None]):
        option = f"--{given[0].replace('_', '-')}"
        raise NothingToDraw(f"--finding draws what led to a finding, whatever {option} says; leave one of them out")
    paths = (shlex.quote(as_given(str(path))) for path in arguments.paths)
    again = f"kafka-eos explain {' '.join((*paths, *inputs.options))}"
    if number is None and (arguments.around is not None or arguments.name or wanted != Wanted() or not findings):
        moment = cut_out(chosen_run(runs, arguments.name), wanted, arguments.around)
        where = "from the first on" if arguments.around is None else f"around {arguments.around}"
        headline = f"events of run {moment.events[0].run}, {where}"
        more = f"next: {again} --run RUN --around ORDER draws the events around another"
        return Explained(moment, headline, (), (more,))
    return explained(number, findings, runs, again, inputs)
