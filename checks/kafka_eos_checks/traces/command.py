"""Trace validation: TLC and the reference check that recorded, simulated and told runs are behaviours of the spec.

Without paths, the kept recordings are judged by the rules of Kafka 4.3 as it ships. Where such a run shows a departure
of Kafka from the repaired rules of the spec, the repaired rules must reject it. With paths, the runs at these paths are
judged by the repaired rules, with --kafka 4.3 by those of that release. In log directories every transition of the
coordinators is judged, and of each producer that ended a transaction in them every marker, and the epoch and the
transaction of every batch. `kafka-eos audit` judges sequences, and the batches and markers of all other producers. In
histories every answer to an idempotent batch outside of transactions is judged, with its sequence and its offset. A
trace of more than 5,000 steps is judged by the reference alone, and its verdict says so.

With --spark, logs and histories of any size are replayed: workers read them piece by piece and run the reference's
machines, one trace at a time. --alone does the same in this process. Neither runs TLC.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.log_directory import NotALogDirectory
from kafka_eos.formats.transaction_log import DEFAULT_MAX_TIMEOUT_MS
from kafka_eos.histories.history import MalformedHistory, read_history
from kafka_eos.histories.simulator import Simulation
from kafka_eos.machines.consumer import Consumer
from kafka_eos.machines.idempotent_producer import IdempotentProducer
from kafka_eos.machines.machine import instances
from kafka_eos.machines.partition_log import PartitionLog
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos_checks.audit.inputs import ARCHIVE_SUFFIX, UnusableInput, contents_of, is_finished, opened, unread_in
from kafka_eos_checks.audit.moments import look_at
from kafka_eos_checks.audit.segments.splits import find_directories, find_logs
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.missing import need_clone
from kafka_eos_checks.kit.outputs import check_output, check_outputs
from kafka_eos_checks.kit.recording import given_path, kept_recording, unpacked
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.unjudged import add_allow_unjudged, exit_code
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.lab.record.trace import wire_trace
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry
from kafka_eos_checks.models.releases import Releases, shipped
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.traces.clients import (
    WORDS,
    NotJudged,
    Read,
    client_traces,
    made_again,
    not_to_the_end,
    of_paths,
    verdict_on_logs,
    with_left_out,
    without,
)
from kafka_eos_checks.traces.coordinators import (
    LEAVES_OUT,
    CoordinatorOfTraces,
    Recorded,
    UnreadableLog,
    coordinator_constants,
    coordinator_model,
    coordinator_traces,
    expired,
    read_recorded,
)
from kafka_eos_checks.traces.coordinators import spoiled as coordinators_spoiled
from kafka_eos_checks.traces.leaders import JUDGED_BY, leader_model, leader_traces
from kafka_eos_checks.traces.leaders import spoiled as leaders_spoiled
from kafka_eos_checks.traces.scan import HISTORY_SUFFIX, parts_of, pieces_of
from kafka_eos_checks.traces.validation import (
    Candidate,
    RememberingJudge,
    Trace,
    TraceStep,
    TraceUnusable,
    partition_log_model,
    partition_log_trace,
    trace_verdicts,
)

# Scenarios of the kept recordings without transactions, as (recording, scenario); a scenario's topic has its name
RECORDED = (
    ("one-broker", "trace"),
    ("one-broker", "idempotent-lost-acks"),
    ("one-broker", "repeated-and-reordered-requests"),
    ("one-broker", "kill-producer"),
    ("one-broker", "crash-with-lost-acks"),
    ("violations", "java-crash-with-lost-acks"),
)
# Runs in which the broker forgets batches that the repaired snapshot would keep
SHOWS_THE_DEPARTURE = ("one-broker/crash-with-lost-acks-0", "violations/java-crash-with-lost-acks-0")
# Recordings whose coordinators are compared with the spec, with the transaction versions that their Kafka knows
COORDINATORS = {"transactions": frozenset({1, 2}), "transactions-3.9": frozenset({1})}
SIMULATED_SEEDS, SIMULATED_STEPS = 12, 150
_WRONG_OFFSET = "one offset wrong"
RESENT = (3, 4, 5)  # M4, M5 and M6 of five batches in flight, by their sequences from 0

EPILOG = """examples:
  kafka-eos check traces
  kafka-eos check traces --only recorded --json build/traces.json
  kafka-eos check traces --only transactions         two recorded clusters' coordinators and markers
  kafka-eos check traces build/served build/served.jsonl    what `kafka-eos serve --data --record` has written
  kafka-eos check traces /copies/broker-1 --spark --table build/verdicts.parquet
  kafka-eos check traces /copies/broker-1 --alone
  kafka-eos check traces example:replicated-violations --alone
  kafka-eos check traces example:violations --alone --kafka 4.3 --allow-unjudged other-batches

With each run, copies of one or two of its traces are judged too, each with one fault put in ("one offset wrong", "a
commit is completed as an abort"). A copy has to be rejected at the fault. If the trace itself is rejected, its copies
show nothing and have no verdict. A marker that its coordinator sent again, because no answer came, counts once.

If the logs of a transaction's partition are not given, its transactional id is not judged: the markers there are taken
for written. A log that was compacted, or whose first segments were deleted, is judged from where it lacks nothing: a
transactional id from its last record before that offset, a partition by its batches and markers from there on. The
verdict on the logs names them, and is not green. Markers of clients of version 1, which tell no transaction, are
matched with the decisions by their order, from the last one on. One that says abort instead of commit is noticed. One
that is missing may not be: an earlier one of the same decision takes its place. With --kafka the order is not judged,
because those releases may leave markers out. Logs that were copied one after the other while brokers wrote are judged
up to the end of the older log: markers of later decisions, and decisions whose markers are not there yet, are left out,
and the verdict says so. A topic that was deleted and made again lacks the markers of transactions that were complete
before: they are taken for written, and the verdict says so. In recordings, and in the directories of one broker that
was shut down, everything is judged; --snapshot says that of other logs. A partition of a history is not judged if it
has other batches, too, or if its events are no requests with one answer each. The verdict names the file, the run and
the event. Other partitions and runs are judged all the same.

exit codes: 0 all accepted, 1 a trace is rejected or a log is damaged, 2 the input or the call cannot be used,
  3 nothing is rejected, but something could not be judged (0 with --allow-unjudged)

`kafka-eos explain PATH --run RUN --around 88` draws what led to an event of a history.
"""


class Models(NamedTuple):
    """The models whose rules judge histories, coordinators' logs and partitions' logs."""

    clients: Model
    coordinators: Model
    leaders: Model


def models_of(registry: Registry, release: str = "") -> Models:
    """The models by the repaired rules, or by those of a release of Kafka as it ships.

    Raises:
        MalformedRegistry: the release is not known.
    """
    models = Models(*map(registry.get, ("PartitionLog", "CoordinatorOfTraces", "MarkersVersion2")))
    if not release:
        return models
    releases = Releases(registry.folder.parent)
    name = releases.chosen(release, [model.module for model in models])
    return Models(*(shipped(model, releases.replaced(model, name), name) for model in models))


def recorded(registry: Registry) -> Iterator[Verdict]:
    """The wire traces of the kept recordings, against Kafka's rules and against the repaired ones."""
    model = registry.get("PartitionLog")
    traces = list(recorded_traces())
    releases = Releases(registry.folder.parent)
    release = releases.stated(model.module, releases.newest)
    as_shipped = replace(model, overrides=releases.of_module(model.module, release))
    yield from _judged(f"recorded, Kafka {release}", as_shipped, traces, ("C04", "C09"))
    for trace in traces:
        if trace.name in SHOWS_THE_DEPARTURE:
            yield _rejected(f"{trace.name}, repaired snapshot", model, trace)


def recorded_traces() -> Iterator[Trace]:
    """The traces of ``RECORDED``, one a partition, from the kept recordings."""
    for recording, rows in groupby(RECORDED, key=lambda row: row[0]):
        with unpacked(kept_recording(recording)) as folder:
            for _, scenario in rows:
                history = list(read_history(folder / "histories" / f"{scenario}.jsonl"))
                for partition in sorted({event.partition for event in history if event.partition is not None}):
                    events = wire_trace(history, scenario, partition)
                    yield partition_log_trace(f"{recording}/{scenario}-{partition}", events)


def _judged(name: str, model: Model, traces: Sequence[Trace], claims: tuple[str, ...]) -> list[Verdict]:
    """The verdicts of both judges, also on a copy of a trace with a wrong event, which must be rejected."""
    spoiled = spoil(traces)
    judged = replace(partition_log_model(model, traces), overrides=model.overrides)
    machine = mutated(PartitionLog, model.overrides)
    wrong = {} if spoiled is None else {f"{spoiled[0].name}, {_WRONG_OFFSET}": spoiled}
    return _with_spoiled(name, judged, machine, traces, wrong, claims)


def spoil(traces: Sequence[Trace]) -> tuple[Trace, int] | None:
    """A copy of the first trace that has an offset, with another one in its place: in the second half, if there is one.

    Returns:
        The copy, and the event, from 1, at which it must be rejected; None if no trace has an offset.
    """
    for trace in traces:
        places = [place for place, step in enumerate(trace.steps) if "response.offset" in step.observed]
        if places:
            middle = next((place for place in places if place >= len(trace.steps) // 2), places[-1])
            step = trace.steps[middle]
            wrong = replace(step, observed={**step.observed, "response.offset": step.observed["response.offset"] + 1})
            steps = (*trace.steps[:middle], wrong, *trace.steps[middle + 1 :])
            return Trace(trace.name, steps), middle + 1
    return None


def _rejected(name: str, model: Model, trace: Trace) -> Verdict:
    """The verdict on a trace that the repaired rules must reject, at any event."""
    (verdict,) = trace_verdicts(name, partition_log_model(model, [trace]), PartitionLog, [trace])
    found = verdict.found.removeprefix(f"0 of 1 accepted; {trace.name}: ")
    rejected = found.startswith("rejected at event")  # by both judges
    return replace(verdict, expected="rejected", found=found, ok=rejected, claims=("C09",))


def simulated(registry: Registry) -> Iterator[Verdict]:
    """Seeded runs of the producer's machine, step by step, against its spec."""
    model = registry.get("TwoReplicas")
    constants = model.machine_constants()
    faults = {"Resend": 4.0, "Expire": 1.0, "Crash": 2.0, "ElectLeader": 4.0, "ShrinkIsr": 2.0}
    assert set(faults) <= {instance.action.name for instance in instances(IdempotentProducer, constants)}
    traces = []
    for seed in range(SIMULATED_SEEDS):
        simulation = Simulation(IdempotentProducer, constants, seed, faults)
        steps = tuple(
            TraceStep(
                (Candidate(taken.instance.action.name, taken.instance.arguments),),
                {"highWatermark": taken.after.high_watermark, "producer.epoch": taken.after.producer.epoch},
            )
            for taken in simulation.run(SIMULATED_STEPS)
        )
        traces.append(Trace(f"seed {seed}", steps))
    seeds = f"simulated, seeds 0 to {SIMULATED_SEEDS - 1}"
    yield from trace_verdicts(seeds, replace(model, bounds="", probes=(), graph=""), IdempotentProducer, traces)


def told(registry: Registry) -> Iterator[Verdict]:
    """The example run M1 to M10: M4, M5 and M6 are sent again, and ten messages are stored, in order, once each."""
    sent = [*range(6), *RESENT, *range(6, 10)]
    seen: set[int] = set()
    steps = []
    for sequence in sent:
        action = "AcknowledgeDuplicate" if sequence in seen else "AppendBatch"
        seen.add(sequence)
        observed = {
            "response.error": ErrorCode.NONE.name,
            "response.offset": sequence,
            "Len(log.entries)": len(seen),
        }
        steps.append(TraceStep((Candidate(action, (0, 0, sequence, 1)),), observed))
    trace = Trace("M1 to M10", tuple(steps))
    yield from _judged("the slides' run", registry.get("PartitionLog"), [trace], ("C06",))


def transactions(registry: Registry) -> Iterator[Verdict]:
    """Every transition of the coordinators and every marker in the logs of the recorded clusters, against the spec."""
    models = models_of(registry)
    for name, versions in COORDINATORS.items():
        with unpacked(kept_recording(name)) as folder:
            logs = read_recorded(folder / "brokers")
        yield from _coordinators(models.coordinators, name, logs, versions, ("C20", "C22"))
        yield _expired(name, logs)
        yield from _leaders(models.leaders, name, logs)


def _coordinators(
    base: Model, name: str, logs: Recorded, versions: frozenset[int], claims: tuple[str, ...]
) -> Iterator[Verdict]:
    """The verdicts on coordinators' logs, and on copies with a fault."""
    counts = {"transactions": logs.transactions, "markers": sum(map(len, logs.markers.values()))}
    leaves_out = LEAVES_OUT in base.overrides
    traces, left_out = _coordinator_traces(base, logs, versions, leaves_out=leaves_out)
    wrong = coordinators_spoiled(logs, leaves_out=leaves_out)
    if not traces:
        return
    model = coordinator_model(base, [*traces, *(trace for trace, _ in wrong.values())], versions=versions)
    machine = mutated(TransactionCoordinator, base.overrides)
    first, *others = _with_spoiled(f"coordinators of {name}", model, machine, traces, wrong, claims)
    judged = {trace.name for trace in traces}
    lacking = [without(name, absent) for name, absent in sorted(logs.absent.items()) if absent and name in judged]
    yield with_left_out(replace(first, figures={**first.figures, **counts}), [*lacking, *left_out])
    yield from others


def _coordinator_traces(
    base: Model, logs: Recorded, versions: frozenset[int], *, leaves_out: bool
) -> tuple[list[Trace], list[NotJudged]]:
    """The traces of the coordinators, and what is left out of those that are only accepted without it."""
    strict = replace(logs, new={}, are_apart=False)
    looser = [replace(logs, are_apart=False)] if logs.new else []
    looser += [logs] if logs.are_apart else []
    traces = {each.name: each for each in coordinator_traces(strict, leaves_out=leaves_out)}
    if not looser:
        return list(traces.values()), []
    judge = RememberingJudge(mutated(CoordinatorOfTraces, base.overrides), coordinator_constants(versions))

    def is_rejected(trace: Trace) -> bool:
        return judge.first_rejected(trace.steps, trace.starts)[0] is not None

    left_out: list[NotJudged] = []
    doubtful = {name for name, trace in traces.items() if is_rejected(trace)}
    for way in looser if doubtful else ():
        found = {each.name: each for each in coordinator_traces(way, leaves_out=leaves_out) if each.name in doubtful}
        traces |= found
        accepted = [each for each in found.values() if not is_rejected(each)]
        doubtful.difference_update(each.name for each in accepted)
        if way.are_apart:
            left_out += (not_to_the_end(each.name, each.ragged) for each in accepted)
        else:
            left_out += (made_again(each.name, each.new) for each in accepted)
    return list(traces.values()), left_out


def _leaders(base: Model, name: str, logs: Recorded) -> Iterator[Verdict]:
    """The verdicts on partitions' logs, and on copies with a fault."""
    for version, entries in sorted(leader_traces(logs).items()):
        wrong = leaders_spoiled(entries)
        model = leader_model(base, [*entries, *(trace for trace, _ in wrong.values())], version)
        machine = mutated(Consumer, base.overrides)
        title = f"leaders of {name}, version {version}"
        first, *others = _with_spoiled(title, model, machine, entries, wrong, ())
        yield replace(first, title=JUDGED_BY)
        yield from others


@contextmanager
def opened_paths(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Each path, or the folder of its archive, unpacked for as long as the block lasts.

    Raises:
        TraceUnusable: a file that is neither a history nor an archive.
        UnusableInput: an archive that is no recording, or a folder with logs that would be left out.
        NotALogDirectory: a folder has no logs.
    """
    with ExitStack() as stack:
        here = []
        for path in paths:
            is_history = path.suffix == HISTORY_SUFFIX
            if path.is_file() and not is_history and not path.name.endswith(ARCHIVE_SUFFIX):
                kinds = f"a log directory, a recording (a folder or {ARCHIVE_SUFFIX}) or a history ({HISTORY_SUFFIX})"
                raise TraceUnusable(f"{path}: give {kinds}")
            if is_history and not path.exists():
                raise TraceUnusable(f"{path}: no such file; give a history ({HISTORY_SUFFIX}) that was recorded")
            here.append(path if is_history else stack.enter_context(opened(path)))
        logs = {contents_of(folder).logs: (path, folder) for path, folder in zip(paths, here, strict=True)}
        _refuse_unread({each: path / each.relative_to(folder) for each, (path, folder) in logs.items()})
        yield here


def _refuse_unread(folders: Mapping[Path, Path]) -> None:
    """Refuse folders with logs that would be left out, because no verdict would name them.

    Args:
        folders: the folders with log directories, each as it was given; histories are left alone.
    """
    there = {folder: find_directories(folder) for folder in folders if folder.is_dir()}
    for told in unread_in({folder: folders[folder] for folder in there}, there):
        raise UnusableInput(told)


def are_apart(folder: Path) -> bool:
    """Whether the logs at a path may be of different moments, because brokers wrote while they were copied.

    They are of one moment in a recording, after a test, and in the directories of one broker that was shut down.
    """
    if folder.suffix == HISTORY_SUFFIX or is_finished(folder):
        return False
    return not look_at(find_logs(contents_of(folder).logs), one_moment=False).one_moment


def given(models: Models, paths: Sequence[Path], *, one_moment: bool = False) -> list[Verdict]:
    """The given runs: log directories, histories of wire events, and recordings, which have both.

    Args:
        models: the models that judge.
        paths: the paths.
        one_moment: whether all logs are of one moment, whatever their directories tell.

    Raises:
        TraceUnusable, UnusableInput: there is nothing to judge in any of the paths, or one is something else.
        NotALogDirectory, UnreadableLog, MalformedHistory, OSError: it cannot be read.
    """
    with opened_paths(paths) as here:
        return of_paths(
            (path, [verdict for part in parts_of(folder) for verdict in _given(models, path, part, apart=apart)])
            for path, folder in zip(paths, here, strict=True)
            for apart in [not one_moment and are_apart(folder)]
        )


def _given(models: Models, path: Path, part: Path, *, apart: bool) -> Iterator[Verdict]:
    """The verdicts on a part of a path: a history, or the log directories in a folder."""
    if part.suffix == HISTORY_SUFFIX:
        name = path.name if path == part else f"{path.name}, {part.name}"
        yield from _history(models.clients, f"partitions of {name}", part)
        return
    logs = replace(read_recorded(part), are_apart=apart)
    if logs.records:
        yield from _coordinators(models.coordinators, path.name, logs, frozenset({1, 2}), ())
        yield from _leaders(models.leaders, path.name, logs)
    if logs.begins:
        yield verdict_on_logs(path.name, logs.begins)


def _history(model: Model, name: str, path: Path) -> Iterator[Verdict]:
    """The verdict on the partitions of a history, and on a copy of one with a fault."""
    found = partitions(path)
    traces = [each for each in found if isinstance(each, Trace)]
    left_out = [each for each in found if isinstance(each, NotJudged)]
    if traces:
        first, *others = _judged(name, model, traces, ())
    elif left_out:
        first, others = Verdict(check="trace", name=name, expected="all accepted", found="no traces", ok=True), []
    else:
        return
    yield with_left_out(first, left_out)
    yield from others


def partitions(path: Path) -> list[Trace | NotJudged]:
    """The traces of those partitions of a history to which only idempotent producers wrote, outside of transactions."""
    written: dict[tuple[str, int], list[Read]] = defaultdict(list)  # those that name no partition together
    restarts: list[Read] = []
    for event in read_history(path):
        if event.action == "Produce":
            topic, partition = event.topic, event.partition
            place = ("", -1) if topic is None or partition is None else (topic, partition)
            written[place].append((path.name, event))
        elif event.action == "Restart":
            restarts.append((path.name, event))
    return [found for _, events in sorted(written.items()) for found in client_traces(events, restarts)]


def _expired(name: str, logs: Recorded) -> Verdict:
    """The verdict on claim C24: the ages of the transactions that their coordinator aborted at their timeout."""
    ages = sorted(expired(logs))
    at_the_maximum = all(age.open_ms >= DEFAULT_MAX_TIMEOUT_MS for age in ages)
    found = "not shown" if at_the_maximum else "after their own timeout"
    return Verdict(
        check="trace",
        name=f"expired transactions of {name}",
        expected="after their own timeout",
        found=found,
        ok=found == "after their own timeout",
        figures={"transactions": len(ages), "shortest open, ms": min((age.open_ms for age in ages), default=0)},
        evidence="\n".join(
            f"{age.transactional_id}: aborted after {age.open_ms} ms; its own timeout is {age.own_ms} ms, the broker's "
            f"transaction.max.timeout.ms {DEFAULT_MAX_TIMEOUT_MS} ms"
            for age in ages
        ),
        claims=("C24",),
        title="a transaction ends with its producer's own timeout, not with the broker's largest one",
    )


def _with_spoiled(
    name: str,
    model: Model,
    machine: type[Any],
    traces: Sequence[Trace],
    wrong: Mapping[str, tuple[Trace, int]],
    claims: tuple[str, ...],
) -> list[Verdict]:
    """The verdicts on traces that must be accepted, and on copies that must be rejected at their fault.

    Args:
        name: the name of the set of traces.
        model: the model that judges.
        machine: the reference's class with the same rules.
        traces: the traces.
        wrong: name of a fault -> the trace with it, under the trace's own name, and the event where it is rejected.
        claims: ids of the ledger's claims that the verdicts settle.
    """
    bad = [replace(trace, name=what) for what, (trace, _) in wrong.items()]
    expected = {what: index for what, (_, index) in wrong.items()}
    copy_of = {what: trace.name for what, (trace, _) in wrong.items()}
    return trace_verdicts(name, model, machine, [*traces, *bad], expected=expected, copy_of=copy_of, claims=claims)


PARTS = {"recorded": recorded, "transactions": transactions, "simulated": simulated, "told": told}


def check(registry: Registry) -> Iterator[Verdict]:
    """Validate the kept, simulated and told traces."""
    for name, part in PARTS.items():
        progress_console.print(f"validating traces: {name}")
        yield from part(registry)


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``traces``."""
    parser = subparsers.add_parser(
        "traces",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=lambda text: Path(given_path(text)),
        metavar="PATH",
        help="a log directory, a .jsonl history of wire events, or a recording with both (folder or .tar.xz, or "
        "example:NAME for one of this package's own)",
    )
    parser.add_argument("--only", choices=tuple(PARTS), help="one kind of the kept traces")
    parser.add_argument(
        "--spark", action="store_true", help="replay the PATHs on Spark (a local one, or the active session)"
    )
    parser.add_argument("--alone", action="store_true", help="replay the PATHs in this process, without TLC")
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="write the verdict on each trace of a replay, as .jsonl or .parquet"
    )
    parser.add_argument(
        "--kafka",
        default="",
        metavar="RELEASE",
        help="judge the PATHs by the rules of this release of Kafka as it ships (spec/releases.toml), not by the "
        "repaired ones",
    )
    parser.add_argument(
        "--snapshot",
        action="store_true",
        help="the logs at the PATHs are of one moment: the brokers stood still, or it is a snapshot of a volume",
    )
    add_allow_unjudged(parser, WORDS)
    add_json(parser)
    parser.set_defaults(run=run, parser=parser)


def replayed(arguments: argparse.Namespace, registry: Registry) -> list[Verdict]:
    """The verdicts of a replay of the paths, on Spark or in this process; the first one has the time of all.

    Raises:
        TraceUnusable: there is nothing to judge in any of them.
        NotALogDirectory, UnusableInput, OSError: it cannot be read.
    """
    from kafka_eos_checks.traces import replays  # noqa: PLC0415 - only a replay needs Arrow

    models = models_of(registry, arguments.kafka)
    clients, coordinators, leaders = (tuple(model.overrides.items()) for model in models)
    rules = replays.Rules(coordinators, clients, leaders)
    began = monotonic()
    with opened_paths(arguments.paths) as here:
        pieces = pieces_of(here)
        apart = () if arguments.snapshot else [place for place, folder in enumerate(here) if are_apart(folder)]
        if arguments.spark:
            from kafka_eos_checks.traces.spark import on_spark  # noqa: PLC0415 - the light install has no Spark

            table = on_spark(pieces, rules, apart)
        else:
            table = replays.in_process(pieces, rules, apart)
    if arguments.table:
        replays.write_table(arguments.table, table)
    first, *others = replays.verdicts_of(table, arguments.paths)
    return [replace(first, seconds=monotonic() - began), *others]


def _advised(registry: Registry, verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """The verdicts; each on rejected traces says which findings in Kafka may be behind it, and how to accept them."""
    releases, models = Releases(registry.folder.parent), models_of(registry)
    judges = {"clients": models.clients, "partitions": models.clients}
    judges |= {"coordinators": models.coordinators, "leaders": models.leaders}
    for verdict in verdicts:
        if verdict.ok or verdict.expected != "all accepted" or "rejected at event" not in verdict.found:
            yield verdict
            continue
        subject = verdict.name.partition(" ")[0]
        judge = judges[subject]
        release = releases.stated(judge.module, releases.newest)
        rules = releases.replaced(judge, release)
        findings = ", ".join(dict.fromkeys(rule.finding for rule in rules if rule.finding))
        of_logs = subject in {"coordinators", "leaders"}
        audit = "`kafka-eos audit` of the same logs tells lost records and an abort by hand, which no rules allow for. "
        words = f"--kafka {release} judges by the rules of Kafka {release} as it ships; what only these accept "
        words += f"{'may be' if of_logs else 'is'} one of its findings: {findings} (`kafka-eos ledger findings ID`)"
        yield replace(verdict, advice=f"next: {audit if of_logs else ''}{words}")


def _judged_by(release: str, *, by_tlc: bool) -> str:
    """The sentence that says by which rules the paths were judged, and by what."""
    judges = "TLC and the Python reference" if by_tlc else "the Python reference without TLC"
    if release:
        return f"judged by {judges}, by the rules of Kafka {release} as it ships"
    others = "--kafka RELEASE judges by those of a release as it ships"
    return f"judged by {judges}, by the repaired rules of the spec; {others}"


def _refuse_what_does_not_apply(arguments: argparse.Namespace) -> None:
    replays = arguments.spark or arguments.alone
    if replays and not arguments.paths:
        arguments.parser.error("--spark and --alone replay recorded logs and histories; give their PATHs")
    if arguments.kafka and not arguments.paths:
        arguments.parser.error("--kafka names the rules for recorded logs and histories; give their PATHs")
    if arguments.snapshot and not arguments.paths:
        arguments.parser.error("--snapshot says something about logs; give their PATHs")
    if arguments.only and arguments.paths:
        arguments.parser.error("--only names one kind of the kept traces; leave it out, or the PATHs")
    if arguments.table and not replays:
        arguments.parser.error("--table has the verdicts of a replay; add --spark or --alone")
    if arguments.table and arguments.table.suffix not in {".jsonl", ".parquet"}:
        arguments.parser.error(f"--table {arguments.table}: write to a file named *.jsonl or *.parquet")


def run(arguments: argparse.Namespace) -> int:
    """Run ``traces``."""
    _refuse_what_does_not_apply(arguments)
    check_outputs({"--table": arguments.table, "--json": arguments.json}, arguments.paths)
    if arguments.table:
        check_output(arguments.table, makes_folder=True)
    try:
        registry = Registry()
        if arguments.spark or arguments.alone:
            verdicts = replayed(arguments, registry)
        elif arguments.paths:
            models = models_of(registry, arguments.kafka)
            verdicts = given(models, arguments.paths, one_moment=arguments.snapshot)
        else:
            if arguments.only not in {"simulated", "told"}:
                need_clone("the kept recordings")
            verdicts = list(PARTS[arguments.only](registry) if arguments.only else check(registry))
    except (
        MalformedRegistry,
        MalformedHistory,
        NotALogDirectory,
        OSError,
        UnreadableLog,
        TraceUnusable,
        UnusableInput,
    ) as error:
        print(f"kafka-eos check traces: {error}", file=sys.stderr)
        return 2
    if arguments.paths and not arguments.kafka:
        verdicts = list(_advised(registry, verdicts))
    print_verdicts(verdicts, "traces")
    if arguments.paths:
        said = [_judged_by(arguments.kafka, by_tlc=not (arguments.spark or arguments.alone))]
        said += dict.fromkeys(verdict.title for verdict in verdicts if verdict.title == JUDGED_BY)
        answer_console.print("", *said, sep="\n", markup=False, highlight=False, soft_wrap=True)
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return exit_code(verdicts, arguments.allow_unjudged)
