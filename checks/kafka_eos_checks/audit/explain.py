"""Draw a history as a sequence diagram, around a finding of the audit or around an event that the user names.

A history has tens of thousands of events. For a finding, the diagram has the events from its cause to its
effect. For a named event, it has the requests, answers and faults of the named partition, producer,
transactional id or process: some before the event and a few after it. Sends of an application are left out if the
history has the requests that carried their records.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kafka_eos.formats.log_directory import NotALogDirectory
from kafka_eos.histories.history import Event, MalformedHistory
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.cause import cause_of, told
from kafka_eos_checks.audit.events.history_files import read_events
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.inputs import UnusableInput, open_inputs
from kafka_eos_checks.audit.places import place as place_of
from kafka_eos_checks.drawing.sequence_diagram import FAULTS, MAX_STEPS, Violation, from_events, steps_of
from kafka_eos_checks.drawing.svg import inert, visible
from kafka_eos_checks.kit.paths import build_folder
from kafka_eos_checks.kit.recording import given_path
from kafka_eos_checks.kit.terminal import answer_console
from kafka_eos_checks.kit.verdict import counted

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


class NothingToDraw(ValueError):  # noqa: N818 - named for the input
    """No event is left, or the named event does not exist; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The subject of a diagram: the events of one run, up to one of them and a little further.

    Attributes:
        events: in the order of the run.
        violation: the marked event and its text; None if no event is marked.
        left_out: by the place of an event, how many related events were left out before it.
    """

    events: list[Event]
    violation: Violation | None
    left_out: Mapping[int, int] = field(default_factory=dict)


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
        columns = ("topic", "partition", "producer_id", "transactional_id", "process")
        pairs = [(getattr(self, name), getattr(event, name)) for name in columns]
        asked = [(wanted, found) for wanted, found in pairs if wanted is not None]
        return all(found is None or wanted == found for wanted, found in asked) and (
            not asked or any(found is not None for _, found in asked)
        )


def read_runs(paths: Sequence[Path]) -> tuple[dict[str, list[Event]], list[Finding]]:
    """The runs of all histories by name, and what the audit finds.

    Raises:
        UnusableInput, NotALogDirectory, MalformedHistory, OSError: the input cannot be used.
    """
    runs: dict[str, list[Event]] = {}
    with open_inputs(paths) as inputs:
        for path in inputs.histories:
            for event in read_events(path):
                runs.setdefault(event.run, []).append(event)
        found = audit.of_inputs(inputs).findings if inputs.logs or inputs.histories else ()
    if not runs:
        raise UnusableInput(
            "no history in it, so nothing to draw; give a history or a recording next to the logs. Without one, "
            "`kafka-eos audit` says what to look at in the logs"
        )
    return runs, list(found)


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


def of_finding(finding: Finding, runs: dict[str, list[Event]]) -> Moment:
    """Return the events that led to a finding, from its cause on, and some that followed; see :mod:`cause`.

    Raises:
        NothingToDraw: no history has an event of the finding.
    """
    named = [runs[finding.run]] if finding.run in runs else runs.values()
    for events in named:
        cause = cause_of(finding, events)
        if cause is not None:
            violation = Violation(cause.effect, f"{finding.rule}: {finding.evidence}")
            return Moment(cause.events, violation, cause.left_out)
    raise NothingToDraw(f"no history has an event of this finding: {finding.in_words()}")


def cut_out(events: Iterable[Event], wanted: Wanted, around: int | None) -> Moment:
    """The wanted events up to the one with the order ``around``, and a few after it; without an order, the first ones.

    Raises:
        NothingToDraw: no event is wanted, or none has that order.
    """
    everything = list(events)
    kept = [event for event in told(everything) if event.order == around or wanted.has(event)]
    if not any(event.action not in FAULTS for event in kept):
        raise NothingToDraw("no event is left; leave out --topic, --partition, --producer-id or --process")
    if around is None:
        return Moment(kept[:MAX_STEPS], None)
    place = next((place for place, event in enumerate(kept) if event.order == around), None)
    if place is None:
        raise NothingToDraw(f"no event {around}; the run has events {everything[0].order} to {everything[-1].order}")
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


def page(title: str, moment: Moment) -> str:
    """A complete HTML page with diagram and story."""
    templates = Environment(
        loader=PackageLoader("kafka_eos_checks", "templates"), autoescape=True, undefined=StrictUndefined
    )
    picture = Markup(inert(drawn(moment)))  # noqa: S704 - rebuilt from an allow-list
    template = templates.get_template("explain.html.j2")
    return template.render(title=visible(title), picture=picture, story=visible(story(moment))) + "\n"


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
    parser.add_argument("--finding", type=int, metavar="N", help="the N-th finding of the audit (default: the first)")
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
    out: Path = arguments.out or build_folder() / "explain.html"
    if out.suffix not in SUFFIXES:
        print(f"kafka-eos explain: --out {out}: expected a name that ends in {' or '.join(SUFFIXES)}", file=sys.stderr)
        return 2
    try:
        arguments.paths = list(map(place_of, arguments.paths))
        moment = _moment(arguments)
        write = _writer(out, arguments)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(write(moment), encoding="utf-8")
    except (NothingToDraw, UnusableInput, NotALogDirectory, MalformedHistory, OSError) as error:
        print(f"kafka-eos explain: {error}", file=sys.stderr)
        return 2
    answer_console.print(visible(story(moment)), markup=False, soft_wrap=True, highlight=False)
    answer_console.print(f"\nDiagram: {out}", markup=False, soft_wrap=True)
    return 0


def _moment(arguments: argparse.Namespace) -> Moment:
    runs, findings = read_runs(arguments.paths)
    named = ("topic", "partition", "producer_id", "transactional_id", "process")
    wanted = Wanted(**{name: getattr(arguments, name) for name in named})
    number = arguments.finding
    if number is None and (arguments.around is not None or arguments.name or wanted != Wanted() or not findings):
        return cut_out(chosen_run(runs, arguments.name), wanted, arguments.around)
    if not 1 <= (number or 1) <= len(findings):
        raise NothingToDraw(f"--finding {number}: the audit has {counted(len(findings), 'finding')}")
    return of_finding(findings[(number or 1) - 1], runs)


def _writer(out: Path, arguments: argparse.Namespace) -> Callable[[Moment], str]:
    if out.suffix == ".svg":
        return lambda moment: drawn(moment) + "\n"
    return lambda moment: page(", ".join(path.name for path in arguments.paths), moment)
