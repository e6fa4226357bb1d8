"""The audit as other parts of the project call it: paths in, verdicts out."""

import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_eos.formats.log_directory import broker_id, cluster_id
from kafka_eos.formats.segment import CorruptRegion, RegionKind
from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit import moments
from kafka_eos_checks.audit.cause import names_of, seen_in
from kafka_eos_checks.audit.completeness import (
    LINKED,
    MISNAMED,
    MISSING_INSIDE,
    MIXED,
    NAMED_PARTITION,
    TOO_DEEP,
    Behind,
    DamagedFile,
    Incomplete,
    behind_others,
    cut_logs,
    damaged_files,
    holes_in,
    incomplete_logs,
    may_be_merged,
    merged_segments,
    mixed_topics,
    unseen_partitions,
)
from kafka_eos_checks.audit.engines.cost import Bill, bill
from kafka_eos_checks.audit.engines.engine import Engine, asker, costs_of
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.engines.opening import open_engine
from kafka_eos_checks.audit.events.history_files import read_events
from kafka_eos_checks.audit.events.recorded import RunFacts
from kafka_eos_checks.audit.findings import MOST_KNOWN, Finding, Kind
from kafka_eos_checks.audit.inputs import Inputs, UnusableInput, by_cluster, commands_for, open_inputs
from kafka_eos_checks.audit.jepsen.anomalies import ANOMALIES
from kafka_eos_checks.audit.jepsen.by_key import Judged
from kafka_eos_checks.audit.jepsen.export import write_operations
from kafka_eos_checks.audit.kernels.logs.fold import LogAudit
from kafka_eos_checks.audit.kernels.logs.transactions import Partition
from kafka_eos_checks.audit.marked import read_runs
from kafka_eos_checks.audit.oracle.oracle import judge
from kafka_eos_checks.audit.oracle.readable_histories import join
from kafka_eos_checks.audit.places import AT_HOME, Ask, ask_here, is_uri
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.plan.found import SHOWN_FINDINGS, Found, Tally
from kafka_eos_checks.audit.plan.history_plan import Histories, read_histories
from kafka_eos_checks.audit.plan.history_stages import NO_HISTORY, Named
from kafka_eos_checks.audit.plan.jepsen_plan import judge_operations
from kafka_eos_checks.audit.plan.stages import Scanned
from kafka_eos_checks.audit.quoting import quoted, redacted
from kafka_eos_checks.audit.rules.applications import NOTHING_DONE, OUTPUT_OF_NOTHING
from kafka_eos_checks.audit.rules.beside import ABORTED_INDEX, REPLICAS, differs_from
from kafka_eos_checks.audit.rules.coordinator import COORDINATOR_RULES
from kafka_eos_checks.audit.rules.declared import WrongQuestion
from kafka_eos_checks.audit.rules.epochs import LEADER_EPOCHS, EpochAudit, Led, Lines, read_lines
from kafka_eos_checks.audit.rules.histories import BY_VALUE, HISTORY_RULES, NO_VALUES
from kafka_eos_checks.audit.rules.log import GAP, LOG_RULES, ORDER, OUTSIDE, Reason, Reasons, Subject, Unjudged
from kafka_eos_checks.audit.rules.offsets import OFFSET_RULES
from kafka_eos_checks.audit.rules.rule_book import LOADED_IN_PART, READABLE, Place, dump_of, rule_of
from kafka_eos_checks.audit.rules.transactions.names import (
    FENCED,
    NO_BIT,
    NO_TRANSACTION,
    RECENT,
    TORN,
    TRANSACTION_RULES,
    UNKNOWN,
)
from kafka_eos_checks.audit.segments.contents import Figures
from kafka_eos_checks.audit.segments.contents import Place as LogPlace
from kafka_eos_checks.audit.segments.splits import SUFFIXES, PartitionLog, segment_with
from kafka_eos_checks.audit.weights import LEAST_WEIGHT
from kafka_eos_checks.kit.recording import as_given
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.kit.verdict import Verdict, counted, first_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_THE_SAME_MARKERS = (TORN, FENCED)  # NO_TRANSACTION counts the markers that are too recent for these rules
OF_MARKERS = (*OF_THE_SAME_MARKERS, NO_TRANSACTION)
WITHOUT_HISTORY = (
    "without a history of the clients (--history): a record that was acknowledged and is lost, or was sent once and "
    "stored twice by two producers, and what readers were given, cannot be seen"
)
WITHOUT_QUESTION = (
    "whose offsets were committed in transactions: whether each input was processed once is not asked; give a file "
    "that declares inputs and outputs (DeclareApplication and DeclareTopic, docs/histories.md)"
)
NOT_ONE_MOMENT = (
    "below the high watermark of another broker: its broker was out of sync, or the logs are not of one moment, and "
    "findings come of that; audit without --snapshot, too"
)
ALL_RECENT = Reason("other-moment", "too recent: the logs that they depend on are copies of an earlier moment")
COPY_AGAIN = (
    "next: look whether the copy was cut short, and copy this log again to its end, with all files of its folder; if "
    "the broker's own files lack the same, records are lost, and another replica may have them"
)
LOOK_FOR_MISSING = (
    "next: look into the folder of each for a segment that is missing, packed or cut; copy cleaner-offset-checkpoint, "
    "too, or compare with another replica; if the topic was never compacted, its records there are lost"
)
SHOWN_RECENT = 3  # findings of a rule that are too recent to judge: nobody has to act on them
SHOWN_LOGS = 10  # that are not judged for one reason
READ_TO_DRAW = 32 << 20  # bytes that are read once more to know whether a finding can be drawn
TRIES = 3  # a running broker may delete segments while they are audited
HARD_LINKS = "a copy of hard links keeps all segments, and is made at once, on one file system: cp -al DIRECTORY COPY"
NO_ORACLE = "--oracle has nothing to judge again: it needs logs, or a history and no share"
GONE_EACH_TIME = (
    f"a file was gone in each of {TRIES} tries: its broker deletes or compacts segments while they are read; audit a "
    f"copy; {HARD_LINKS}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit.

    Attributes:
        verdicts: one for readability and one for each rule over logs; if there are any to judge, also one for each
            rule over the coordinator's logs, over transactions, over committed offsets, over histories, and for each
            anomaly of Jepsen's.
        findings: the violations, by place.
        notes: the findings that are not violations, see :class:`findings.Kind`, by place.
        logs: the audits of the single logs, without findings.
        subject: the audited input in words: paths, brokers, clusters, sizes and moments.
        ran: how long the rules took and what ran them, in words.
        bill: the cost of the audit; None unless asked for.
        known: the moments of the logs.
        clusters: the logs of each cluster, and the evidence in their directories.
        counts: the number of all findings by rule and kind; ``findings`` and ``notes`` may be some of them only.
    """

    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    logs: tuple[LogAudit, ...] = field(default=())
    subject: str = ""
    ran: str = ""
    bill: Bill | None = None
    known: moments.Moments = moments.AT_ONE_MOMENT
    clusters: tuple[tuple[tuple[PartitionLog, ...], moments.Source], ...] = ()
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def unknown(self) -> int:
        """The number of things that could not be judged, over all rules."""
        return sum(verdict.unknown for verdict in self.verdicts)


def audit(
    paths: Sequence[Path],
    engine: str = "local",
    *,
    histories: Sequence[Path] = (),
    check_crc: bool = True,
    spark: "SparkSession | None" = None,
) -> list[Verdict]:
    """Audit log directories, recordings and histories; see :func:`open_inputs` for what ``paths`` may be.

    Args:
        paths: what to audit.
        engine: ``local`` (this process) or ``spark``; the findings are the same.
        histories: histories to join with the logs, besides those of recordings.
        check_crc: whether to compare each batch with its CRC.
        spark: a session for the engine ``spark``; without one a local session is started and stopped.

    Raises:
        UnusableInput, NotALogDirectory, MalformedHistory, OSError: the input cannot be used.
        MissingExtra: the engine's packages are not installed.
    """
    return list(run(paths, engine, histories=histories, check_crc=check_crc, spark=spark).verdicts)


def run(
    paths: Sequence[Path],
    engine: str = "local",
    *,
    histories: Sequence[Path] = (),
    check_crc: bool = True,
    oracle: float | None = None,
    seed: int = 0,
    redact: bool = False,
    spark: "SparkSession | None" = None,
    as_jepsen: Path | None = None,
    one_moment: bool = False,
    longest_ms: int = moments.LONGEST_MS,
    explain_cost: bool = False,
    jobs: int = 1,
    take: Callable[[Found], None] | None = None,
    known: Collection[tuple[Any, ...]] = frozenset(),
) -> Audit:
    """Audit as :func:`audit` does, and return all findings and the figures of each log.

    Args:
        paths: what to audit.
        engine: ``local`` or ``spark``.
        histories: further histories.
        check_crc: whether to compare each batch with its CRC.
        oracle: the share of the logs that the readable rules judge again, see :func:`oracle.judge`; None for none. With
            1.0 they judge the histories, too.
        seed: the seed that chooses these logs.
        redact: whether evidence leaves out what clients wrote, see :func:`quoting.redacted`.
        spark: a session for the engine ``spark``.
        as_jepsen: where to write the history in Jepsen's format, see :mod:`jepsen.export`.
        one_moment: whether all logs are of one moment, see :mod:`moments`; recordings are.
        longest_ms: how long a transaction may take on the cluster, in milliseconds.
        explain_cost: whether to measure the cost.
        jobs: the number of processes of the engine ``local``, where the input is worth it; see :class:`LocalEngine`.
        take: is given all findings where they are; the result then has only the first ones of each rule and kind,
            unless ``oracle`` needs all.
        known: the identities of violations that an earlier audit has found, see :func:`findings.read_known`.

    Raises:
        UnusableInput: also when ``as_jepsen`` is given and there is not exactly one run.
    """
    taken: list[Found] = []

    def take_once(found: Found) -> None:
        taken.append(found)
        if take is not None:
            take(found)

    def once() -> Audit:
        with open_inputs(paths, histories) as inputs, redacted(redact):
            if as_jepsen is not None:
                try:
                    write_operations(as_jepsen, _events(inputs))
                except ValueError as error:
                    raise UnusableInput(str(error)) from None
            judges_histories = bool(inputs.histories) and oracle == 1
            if oracle is not None and not (inputs.logs or judges_histories):
                raise UnusableInput(NO_ORACLE)
            given, source = looked_at(inputs, one_moment=one_moment, longest_ms=longest_ms)
            result = of_inputs(
                given,
                engine,
                check_crc=check_crc,
                spark=spark,
                source=source,
                explain_cost=explain_cost,
                jobs=jobs,
                take=take_once,
                keep=take is None or oracle is not None,
                known_before=known,
            )
            if oracle is None or not (result.logs or judges_histories):
                return result
            found = (*result.findings, *result.notes)
            told, events = None, list[Event]()
            if judges_histories:
                events = _events(inputs)
                told = join(events, [log for log in inputs.logs if log.has_records], result.known)
            audits = stages.with_findings(result.logs, [each for each in found if each.rule in LOG_RULES])
            agrees = judge(
                audits,
                oracle,
                seed,
                findings=found,
                clusters=result.clusters,
                histories=told,
                events=len(events) if inputs.histories else None,
            )
            return replace(result, verdicts=(*result.verdicts, agrees))

    for _ in range(TRIES - 1):
        try:
            return once()
        except FileNotFoundError as gone:  # a running broker deletes segments
            if taken:
                raise  # rather than write the findings a second time
            progress_console.print(f"{gone.filename} is gone; beginning anew; {HARD_LINKS}", markup=False)
    try:
        return once()
    except FileNotFoundError as gone:
        if gone.filename is None or is_uri(gone.filename) or Path(gone.filename).suffix[1:] not in SUFFIXES:
            raise
        raise UnusableInput(f"{gone.filename} is gone, and {GONE_EACH_TIME}") from gone


def looked_at(inputs: Inputs, *, one_moment: bool, longest_ms: int) -> tuple[Inputs, moments.Source]:
    """Inputs with what the user said of their moments, and the evidence for these; call it before logs are read."""
    of_one = one_moment or inputs.one_moment
    source = moments.look_at(inputs.logs, one_moment=of_one, longest_ms=longest_ms, whole=inputs.whole)
    return replace(inputs, options=moments.options_of(one_moment, longest_ms)), source


_NOTHING_IN_IT = "no event in it, so nothing to judge"
_ALONE = "; look why nothing was written to it; without it, the logs are judged alone"


def of_inputs(
    inputs: Inputs,
    engine: str = "local",
    *,
    check_crc: bool = True,
    spark: "SparkSession | None" = None,
    source: moments.Source = moments.ONE_MOMENT,
    explain_cost: bool = False,
    jobs: int = 1,
    take: Callable[[Found], None] | None = None,
    keep: bool = True,
    known_before: Collection[tuple[Any, ...]] = frozenset(),
) -> Audit:
    """Audit inputs that are open already, as :func:`run` does. Without logs, histories are judged by themselves.

    ``keep`` says whether the result has all findings, or only the first ones of each rule and kind; ``known_before``
    are the known ones of :func:`run`.

    Raises:
        UnusableInput: there is neither a log nor a history among them, or nothing fits a declared application.
    """
    if not inputs.logs and not inputs.histories and not inputs.operations:
        raise UnusableInput("nothing to audit; give a broker's log directory, a recording or a history")
    began, started = time.process_time(), time.perf_counter()
    judged = _Judged()
    audits: list[LogAudit] = []
    logs: list[_Logs] = []
    known, moments_of = moments.Moments(source, ()), list[tuple[moments.Moments, Inputs]]()
    with open_engine(engine, spark, jobs if jobs > 1 and inputs.weight > LEAST_WEIGHT else 1) as running:
        found = Found(running)
        parts, mixed = _unmixed(by_cluster(inputs), running)
        inputs = replace(inputs, logs=tuple(chain(*(part.logs for part in parts))))
        told = read_histories(inputs.histories, inputs.logs, running) if inputs.histories else None
        blank = inputs.histories if told is not None and not told.events else list(filter(_is_blank, inputs.histories))
        if blank:
            raise UnusableInput(f"{', '.join(map(str, blank))}: {_NOTHING_IN_IT}{_ALONE if inputs.logs else ''}")
        rows: Sequence[Any] = ()
        if inputs.logs:
            named = NO_HISTORY if told is None else told.named
            own = [source.part(part.directories.keys(), part.whole) if part.cluster else source for part in parts]
            logs = [_of_logs(*each, running, check_crc, named) for each in zip(parts, own, strict=True)]
            _add_logs(judged, logs, inputs, mixed)
            audits, rows, known = [*chain(*(each.scanned.audits for each in logs))], logs[0].scanned.rows, logs[0].known
            moments_of = [(each.known, each.inputs) for each in logs]
        if told is not None:
            try:
                judged.add(*history_verdicts(told, rows, known, check_crc=check_crc))
            except WrongQuestion as error:
                raise UnusableInput(str(error)) from None
        if inputs.operations:
            judged.add(*jepsen_verdicts(inputs, running))
        for more in judged.found:
            found += more
        if known_before:
            found = _with_known(found, known_before)
        tally, numbers = found.tally, found.numbers()
        if take is not None:
            take(found)
        said = list(found.in_order()) if keep else tally.findings
        spent = time.process_time() - began, time.perf_counter() - started
        cost = bill_of(running, inputs, *spent) if explain_cost else None
    said.sort(key=Finding.sort_key)
    findings = tuple(finding for finding in said if finding.is_violation)
    notes = tuple(finding for finding in said if not finding.is_violation)
    first = {rule: (numbers[rule], finding) for rule, finding in tally.first_violations().items()}
    for (rule, kind), shown in tally.shown.items():
        if kind == Kind.NOT_JUDGED:
            first.setdefault(rule, (0, shown[0]))
    verdicts = [draft(tally) for draft in judged.drafts]
    to_draw = [each for _, each in first.values() if rule_of(each.rule).draws]
    runs = None if engine == "spark" or not first else _runs_again(inputs, check_crc)  # on Spark the driver reads none
    drawn = (
        {} if runs is None else {each.rule: is_in for each, is_in in zip(to_draw, seen_in(to_draw, runs), strict=True)}
    )
    return Audit(
        verdicts=tuple(
            _advised(verdict, *first[verdict.name], tally, inputs, findings, drawn, runs or {})
            if verdict.name in first
            else verdict
            for verdict in verdicts
        ),
        findings=findings,
        notes=notes,
        logs=tuple(audits),
        subject=subject_of(
            inputs,
            audits,
            moments_of,
            [*chain(*(each.behind for each in logs))],
            told,
            [*chain(*(each.left_out for each in logs))],
        ),
        ran=ran_in_words(running, jobs, spent[1]),
        bill=cost,
        known=known if len(parts) == 1 else moments.Moments(source, ()),
        clusters=tuple((part.logs, each.source) for each, part in moments_of),
        counts=tally.counts,
    )


def _is_blank(history: Path) -> bool:
    """Whether a history of lines has none, as a question that a failed command should have written."""
    if history.suffix != ".jsonl" or not history.is_file():
        return False
    with history.open("rb") as lines:
        return not any(map(bytes.strip, lines))


def _runs_again(inputs: Inputs, check_crc: bool) -> dict[str, list[Event]] | None:
    """The runs of the histories; None if that is too much to read once more."""
    if inputs.history_bytes + inputs.segment_bytes > READ_TO_DRAW:
        return None
    try:
        return read_runs(inputs.histories, inputs.logs, check_crc=check_crc)
    except OSError:  # a running broker deletes segments
        return None


def _advised(
    verdict: Verdict,
    number: int,
    finding: Finding,
    tally: Tally,
    inputs: Inputs,
    found: Iterable[Finding],
    drawn: Mapping[str, bool],
    runs: Mapping[str, Sequence[Event]],
) -> Verdict:
    """A verdict with the next steps about one of its findings, which has this number in the audit.

    If others that are shown mean something else by the rule book, what differs is added about the first of each kind.
    ``drawn`` says by rule whether a history has an event of its finding, where that is known; ``runs`` are those that
    were read for it, and what they rule out is no possible cause.
    """
    from kafka_eos_checks.models.findings import possible_causes  # noqa: PLC0415 - a clean audit needs no registry

    own_runs, are_whole = [runs[name] for name in names_of(finding, runs)], states_are_whole(inputs, found)
    causes = possible_causes(verdict.name, own_runs, states_are_whole=are_whole) if finding.is_violation else {}
    place = place_of(finding, number, inputs, found)
    if verdict.name not in drawn:
        place = place._replace(if_drawn=", if it has an event of it")
    book = rule_of(verdict.name)
    lines = book.advice(finding, place, drawn=not drawn.get(verdict.name, True))
    kinds = [book.about(finding)]
    for other in tally.shown.get((verdict.name, Kind.VIOLATION), ()):
        if finding.is_violation and book.about(other) not in kinds:
            kinds.append(book.about(other))
            own = book.advice(other, place_of(other, number, inputs, found), drawn=True)  # its number is not known
            lines += [f"about {other.where}:", *(line for line in own if line not in lines)]
    own = [verdict.advice] if verdict.advice else []
    return replace(verdict, advice="\n".join([*lines, *causes.values(), *own]), causes=tuple(causes))


def states_are_whole(inputs: Inputs | None, found: Iterable[Finding]) -> bool:
    """Whether logs of ``__transaction_state`` were given, and no finding of an audit says that one is damaged."""
    is_given = inputs is not None and any(log.topic == COORDINATOR_TOPIC for log in inputs.logs)
    return is_given and not any(each.rule == READABLE and each.topic == COORDINATOR_TOPIC for each in found)


def place_of(finding: Finding, number: int, inputs: Inputs, found: Iterable[Finding]) -> Place:
    """The place of a finding, for the next step.

    Args:
        finding: the finding.
        number: its number in the audit.
        inputs: what was audited.
        found: others of the audit, among which may be its cause.
    """
    paths = " ".join(shlex.quote(as_given(path)) for path in inputs.given) or Place().paths
    place = Place(paths=" ".join((paths, *inputs.options)), number=number)
    directory = _directory_of(finding, inputs)
    if directory is not None and directory in inputs.directories:
        unpack, files = _copied(finding, directory) or _files_in(directory, inputs)
        place = place._replace(unpack=unpack, directory=files, broker=_broker_of(directory, inputs))
    if finding.rule == REPLICAS and (other := _other_replica(finding, inputs)) is not None:
        place = place._replace(other=f"\nnext: {dump_of(other, place_of(other, number, inputs, ()))}")
    same = (finding.topic, finding.partition)
    wrong = (each for each in found if each.rule == ABORTED_INDEX and each.is_violation)
    if (other := next((each for each in wrong if (each.topic, each.partition) == same), None)) is not None:
        own = _broker_of(_directory_of(other, inputs), inputs)
        place = place._replace(wrong_index=f"{own}, whose index of aborted transactions is wrong (see `{other.rule}`)")
    return place


def _other_replica(finding: Finding, inputs: Inputs) -> Finding | None:
    """The place of the batch that the one of a finding differs from, without a rule; None if it is not known."""
    for log in inputs.logs:
        is_replica = (log.topic, log.partition) == (finding.topic, finding.partition)
        if is_replica and finding.evidence.startswith(differs_from(log.broker)):
            file = segment_with(log, finding.offset or 0)
            return replace(finding, rule="", broker=log.broker, file=file, position=None)
    return None


def _directory_of(finding: Finding, inputs: Inputs) -> Path | None:
    """The log directory of a finding, None if its log is not known; without a topic it is about the directory."""
    where = (finding.broker, finding.topic, finding.partition)
    return next(
        (
            log.directory
            for log in inputs.logs
            if where in {(log.broker, log.topic, log.partition), (log.broker, "", -1)}
        ),
        None,
    )


def _broker_of(directory: Path | None, inputs: Inputs) -> str:
    """The broker of a log directory, in words."""
    known = None if directory is None else inputs.brokers.get(directory)
    return Place().broker if known is None else f"broker {known}"


_COPY = {
    "s3": "aws s3 cp",
    "gs": "gcloud storage cp",
    "hdfs": "hdfs dfs -get",
    "viewfs": "hdfs dfs -get",
}


def _copied(finding: Finding, directory: Path) -> tuple[str, str] | None:
    """As :func:`_files_in`, for a file of a store: Kafka's tools read files of this machine only."""
    scheme, _, rest = str(directory).partition("://")
    if scheme not in _COPY or rest.startswith(f"{AT_HOME}/") or not finding.file:
        return None
    folder = shlex.quote(f"{finding.topic}-{finding.partition}")
    uri = shlex.quote(f"{directory}/{finding.topic}-{finding.partition}/{finding.file}")
    return f"mkdir -p {folder} && {_COPY[scheme]} {uri} {folder}/ && ", ""


def _files_in(directory: Path, inputs: Inputs) -> tuple[str, str]:
    """The command that unpacks a log directory, "" if it is in no archive, and where its files are then."""
    whole = directory.resolve()
    for archive, folder in inputs.packed.items():
        if whole.is_relative_to(folder.resolve()):
            name = archive.name.partition(".")[0]
            target = shlex.quote(name)
            unpack = f"mkdir -p {target} && tar -xJf {shlex.quote(str(archive))} -C {target} && "
            return unpack, shlex.quote(f"{name}/{whole.relative_to(folder.resolve())}/")
    return "", shlex.quote(as_given(f"{inputs.directories[directory]}/"))


def subject_of(
    inputs: Inputs,
    audits: Sequence[LogAudit],
    moments_of: Sequence[tuple[moments.Moments, Inputs]],
    behind: Sequence[Behind] = (),
    told: Histories | None = None,
    left_out: Sequence[str] = (),
) -> str:
    """The subject of an audit in a few lines: directories, sizes, moments of each cluster, histories.

    It also says which segments were left out, if log directories that are behind others contradict ``--snapshot``, and
    if histories ask nothing about their applications.
    """
    lines = []
    if audits:
        batches, size = sum(audit.batches for audit in audits), sum(audit.segment_bytes for audit in audits)
        lines.append(f"{len(audits)} logs with {batches:,} batches in {size:,} bytes:")
        lines += _shortened([f"  {name}{_identity(folder)}" for folder, name in inputs.directories.items()])
        if len(moments_of) > 1:
            lines.append(f"{len(moments_of)} clusters, each judged for itself")
        lines += [f"cluster {own.cluster}: " * bool(own.cluster) + known.in_words() for known, own in moments_of]
        lines += _shortened(list(left_out))
        if behind and moments.SNAPSHOT in inputs.options:
            short = counted(sum(each.short for each in behind), "log")
            lines.append(f"{short} at {first_of([each.log.broker for each in behind], 3)} {NOT_ONE_MOMENT}")
        if not inputs.histories and not inputs.operations:
            lines.append(WITHOUT_HISTORY)
    lines += _shortened([f"history {path.name}" for path in (*inputs.histories, *inputs.operations)])
    lines += _unasked(() if told is None else told.runs)
    return "\n".join(lines)


def _unasked(runs: Iterable[RunFacts]) -> Iterator[str]:
    """That nobody asks about an application: groups whose offsets were sent in transactions, without a declaration."""
    groups = sorted({group for run in runs if not (run.declared or run.members) for group in run.sending})
    if groups:
        named = first_of(list(map(quoted, groups)), 3)
        yield f"no question about {'group' if len(groups) == 1 else 'groups'} {named}, {WITHOUT_QUESTION}"


def ran_in_words(engine: Engine, jobs: int, seconds: float) -> str:
    """How long an audit took, and in how many processes of the ``jobs`` that it could have, or that Spark ran it."""
    if not isinstance(engine, LocalEngine):
        return f"judged in {seconds:.1f} s on Spark"
    number = "1 process" if engine.jobs == 1 else f"{engine.jobs} processes"
    too_little = ", too little work for more" if engine.jobs < jobs else ""
    return f"judged in {seconds:.1f} s by {number}{too_little}"


def _identity(folder: Path) -> str:
    """Broker and cluster of a log directory, as its ``meta.properties`` name them."""
    told = {"broker": broker_id(folder), "cluster": cluster_id(folder)}
    words = ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)
    return f" ({words})" if words else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDraft:
    """A verdict without what the findings say; the attributes are the arguments of :func:`_verdict`."""

    rule: str
    figures: Figures
    seconds: float = 0.0
    reasons: Mapping[Reason, Unjudged] | Reason | None = None
    noted: Sequence[str] = ()

    def __call__(self, tally: Tally) -> Verdict:
        """The verdict."""
        told = self.rule, self.figures, tally
        return _verdict(*told, seconds=self.seconds, reasons=self.reasons, noted=self.noted)

    def joined(self, other: "RuleDraft") -> "RuleDraft":
        """The draft of the same rule over the logs of two clusters."""
        figures = {name: int(self.figures.get(name, 0)) + int(more) for name, more in other.figures.items()}
        reasons = self.reasons
        if isinstance(self.reasons, Reasons) and isinstance(other.reasons, Reasons):
            reasons = Reasons(self.reasons)
            reasons.add(other.reasons)
        return replace(self, figures={**self.figures, **figures}, seconds=self.seconds + other.seconds, reasons=reasons)


Draft = Callable[[Tally], Verdict]  # a verdict without what the findings say
Drafts = tuple[list[Draft], Collection[Finding]]


@dataclass(slots=True)
class _Judged:
    """The verdicts so far, and the findings behind them."""

    drafts: list[Draft] = field(default_factory=list)
    found: list[Collection[Finding]] = field(default_factory=list)

    def add(self, drafts: Iterable[Draft], found: Collection[Finding]) -> None:
        """Add verdicts and findings; verdicts of a rule over logs of several clusters become one."""
        known = {own.rule: at for at, own in enumerate(self.drafts) if isinstance(own, RuleDraft)}
        for draft in drafts:
            if isinstance(draft, RuleDraft) and draft.rule in known:
                at = known[draft.rule]
                self.drafts[at] = self.drafts[at].joined(draft)  # type: ignore[attr-defined]
            else:
                self.drafts.append(draft)
        self.found.append(found)


class _Logs(NamedTuple):
    """The logs of a cluster, judged by all rules that need no history.

    Attributes:
        inputs: the logs that were read in the end.
        scanned: the scan of the logs.
        known: their moments.
        incomplete: those that lack records, or may.
        damaged: small files next to them that are not in their format.
        seconds: wall time of the rules over single logs.
        drafts: the verdicts of the other rules, with their findings.
        found: the findings of the rules over single logs.
        behind: the log directories with replicas that end below the high watermark of another one.
        left_out: segments that are no part of their log any more, in words.
    """

    inputs: Inputs
    scanned: Scanned
    known: moments.Moments
    incomplete: Sequence[Incomplete]
    damaged: Sequence[DamagedFile]
    seconds: float
    drafts: Sequence[Drafts]
    found: Collection[Finding]
    behind: Sequence[Behind]
    left_out: Sequence[str]


def _unmixed(parts: Sequence[Inputs], engine: Engine) -> tuple[list[Inputs], list[str]]:
    """The inputs of each cluster without the topics that :func:`mixed_topics` tells, and these in words.

    Raises:
        UnusableInput: no other log is left.
    """
    read, words = list[Inputs](), list[str]()
    for part in parts:
        mixed = mixed_topics(part.logs, asker(engine, part.logs))
        words += mixed.values()
        read.append(replace(part, logs=tuple(log for log in part.logs if log.topic not in mixed)))
    if words and not any(part.logs for part in read):
        raise UnusableInput(f"{words[0]}: {MIXED.words}")
    return [part for part in read if part.logs] or read, words


def _add_logs(judged: _Judged, logs: Sequence[_Logs], inputs: Inputs, mixed: Sequence[str]) -> None:
    """Add the verdicts of the logs of all clusters; ``mixed`` are the topics that are left out, in words."""
    unread = {LINKED: inputs.links, TOO_DEEP: inputs.deeper, MISNAMED: inputs.misnamed, MIXED: mixed}
    audits, incomplete, damaged = (
        [*chain(*parts)]
        for parts in zip(*((each.scanned.audits, each.incomplete, each.damaged) for each in logs), strict=True)
    )
    first, *others = logs
    judged.add(log_verdicts(audits, sum(each.seconds for each in logs), incomplete, unread, damaged), first.found)
    judged.found += (each.found for each in others)
    for drafts in chain(*(each.drafts for each in logs)):
        judged.add(*drafts)


def _of_logs(inputs: Inputs, source: moments.Source, engine: Engine, check_crc: bool, named: Named) -> _Logs:
    """Judge the logs of a cluster by all rules that need no history."""
    started = time.perf_counter()
    ask = asker(engine, inputs.logs)
    cut = cut_logs(inputs.logs, source, ask)
    scanned = stages.scan_logs(inputs.logs, engine, source, named, check_crc=check_crc)
    merged: Mapping[PartitionLog, Mapping[str, str]] = {}
    if named is NO_HISTORY and (able := may_be_merged(inputs.logs, source)):
        misplaced = scanned.findings.tally.shown.get((ORDER, Kind.VIOLATION), [])
        merged = merged_segments(misplaced, able, ask)
    if merged:
        inputs = replace(inputs, logs=tuple(_without(log, merged.get(log, ())) for log in inputs.logs))
        scanned = stages.scan_logs(inputs.logs, engine, source, check_crc=check_crc)
    _demand_one_cluster(scanned.audits, source, inputs)
    batches_only = [each.partition or Partition(log=each.log) for each in scanned.audits if not _has_old_formats(each)]
    incomplete = incomplete_logs(inputs.logs, batches_only, source, ask)
    incomplete += holes_in(scanned.audits, {each.log for each in incomplete})
    damaged = damaged_files(inputs.logs, source, ask)
    found_in_logs = scanned.findings + list(_unreadable(scanned.audits, incomplete, damaged))
    unlike = cut | {each.log for each in incomplete} | {audit.log for audit in scanned.audits if audit.is_damaged}
    whole = [each for each in batches_only if each.log not in unlike]
    behind = list(behind_others(whole, source))
    found_in_logs += list(_behind(behind))
    seconds = time.perf_counter() - started
    with_cut = replace(source, cut=cut)
    drafts, found, known, ended, decided_on = transaction_verdicts(scanned, engine, with_cut, check_crc=check_crc)
    told = {(each.log.topic, each.log.partition) for each in incomplete}
    unseen = list(unseen_partitions(decided_on - told, inputs.logs, source))
    incomplete += unseen
    found_in_logs += list(_unreadable((), unseen, ()))
    others = [
        (drafts, found),
        offset_verdicts(scanned, engine, known, check_crc=check_crc),
        beside_verdicts(scanned, engine, ended, one_moment=source.is_still, check_crc=check_crc),
        epoch_verdicts(scanned.audits, source, ask),
    ]
    left_out = [
        f"{log}/{old} is left out: the cleaner merged it into {new} while they were copied"
        for log, own in merged.items()
        for old, new in own.items()
    ]
    return _Logs(inputs, scanned, known, incomplete, damaged, seconds, others, found_in_logs, behind, left_out)


def _without(log: PartitionLog, segments: Collection[str]) -> PartitionLog:
    return replace(log, segments=tuple(name for name in log.segments if name not in segments))


def _demand_one_cluster(audits: Sequence[LogAudit], source: moments.Source, inputs: Inputs) -> None:
    """Refuse transactions of several clusters: a producer id of one has nothing to do with that of another."""
    found: dict[str, PartitionLog] = {}
    for audit in audits:
        cluster = source.cluster_of(audit.log)
        if cluster is not None and (audit.transactional or (audit.log.topic == COORDINATOR_TOPIC and audit.batches)):
            found.setdefault(cluster, audit.log)
    if len(found) > 1:
        names = {cluster: inputs.directories.get(log.directory, log.directory) for cluster, log in found.items()}
        places = ", ".join(f"{name} of cluster {cluster}" for cluster, name in names.items())
        raise UnusableInput(f"transactions of several clusters: {places}; {commands_for(inputs)}")


def _with_known(found: Found, known: Collection[tuple[Any, ...]]) -> Found:
    """The same findings; violations that are known already are of that kind.

    A log that cannot be read stays one, because a rule may miss what it had.

    Raises:
        UnusableInput: they are too many for one process.
    """
    if len(found) > MOST_KNOWN:
        raise UnusableInput(f"{len(found):,} findings, and --known is for at most {MOST_KNOWN:,}; audit without it")
    return Found(
        found.engine,
        own=[
            replace(each, kind=Kind.KNOWN.value)
            if each.is_violation and each.rule != READABLE and each.identity in known
            else each
            for each in found
        ],
    )


def bill_of(engine: Engine, inputs: Inputs, spent: float, wall: float) -> Bill:
    """The bill of an audit.

    Args:
        engine: what ran it.
        inputs: what was audited.
        spent: CPU seconds of this process.
        wall: seconds since it began.
    """
    jvm = engine.jvm_seconds  # before the costs are collected
    size = inputs.segment_bytes + inputs.history_bytes + inputs.operation_bytes
    return bill(costs_of(engine), spent, size, in_process=engine.in_process, wall=wall, jvm=jvm)


def log_verdicts(
    audits: Sequence[LogAudit],
    seconds: float,
    incomplete: Sequence[Incomplete],
    unread: Mapping[Reason, Sequence[str]],
    damaged: Sequence[DamagedFile],
) -> list[Draft]:
    """A verdict on readability, and one for each rule over logs; about transactions only if a log has any.

    Args:
        audits: the audits of the logs.
        seconds: wall time.
        incomplete: the logs that lack records, or may.
        unread: by reason, links and folders that may have logs, and topics, that were not read.
        damaged: small files next to logs that are not in their format.
    """
    figures: Figures = {"logs": len(audits)}
    for name in ("segment_bytes", "batches", "records", "markers", "holes", "reruns"):
        figures[name] = sum(getattr(audit, name) for audit in audits)
    readable = _readable(audits, figures, seconds, incomplete, unread, damaged)
    counts = {"batches": int(figures["batches"]), "transactional": sum(audit.transactional for audit in audits)}
    rules = [rule for rule in LOG_RULES if rule != OUTSIDE or counts["transactional"]]
    return [lambda _: readable, *(partial(_of_log_rule, rule, counts[rule_of(rule).subject]) for rule in rules)]


def _of_log_rule(rule: str, subjects: int, tally: Tally) -> Verdict:
    figures: Figures = {rule_of(rule).subject: subjects}
    if rule == GAP:
        figures[UNKNOWN] = tally.counts[GAP, Kind.NOT_JUDGED]
    return _verdict(rule, figures, tally)


def _readable(
    audits: Sequence[LogAudit],
    figures: Figures,
    seconds: float,
    incomplete: Sequence[Incomplete],
    unread: Mapping[Reason, Sequence[str]],
    damaged: Sequence[DamagedFile],
) -> Verdict:
    """The verdict on readability: damage is a violation, except a torn or zero-filled tail, which a crash leaves.

    A batch whose records cannot be decoded is damage, too, where records are read: in the topics of coordinators, and
    in those that a history names.

    A log that certainly lacks records is a violation, too, and so is a damaged checkpoint. A log that may lack some,
    and one behind a symbolic link, too deep below what was given, or of a topic with several ids, is not judged.
    Messages of the formats before batches are no damage: they have nothing that the rules judge.
    """
    certain = [each for each in incomplete if each.is_certain]
    unsure = [each for each in incomplete if not each.is_certain]
    tails: list[str] = []
    regions: list[str] = []
    old = 0
    for audit in audits:
        regions += [f"{audit.log}/{file} {_in_words(audit.log, region)}" for file, region in audit.undecoded]
        for file, region in audit.damage:
            words = f"{audit.log}/{file} {_in_words(audit.log, region)}"
            is_old = region.kind is RegionKind.OLD_FORMAT
            old += (region.end - region.position) * is_old
            if _is_corrupt(audit, file, region):
                regions.append(words)
            else:
                tails.append(words if is_old else f"unfinished tail, as a crash leaves it: {words}")
    counts = {"incomplete log": len(certain), "damaged file": len(damaged)}
    parts = [counted(count, noun) for noun, count in counts.items() if count]
    if not figures["batches"] and not old:
        parts.insert(0, "no batch to read")
    elif regions or not parts:
        parts.insert(0, counted(len(regions), "corrupt region"))
    found = ", ".join(parts)
    if incomplete:
        figures = {**figures, "incomplete": len(incomplete)}
    why: dict[Reason, list[str]] = {reason: [] for reason in sorted({each.why for each in unsure})}
    also: dict[Reason, list[str]] = defaultdict(list)
    for each in unsure:
        also[each.why] += [str(each.log)] * bool(why[each.why])
        why[each.why].append(each.in_words())
    said = [*(each.in_words() for each in (*certain, *unsure)), *(each.in_words() for each in damaged)]
    lacking, elsewhere = why.get(MISSING_INSIDE, ()), why.get(NAMED_PARTITION, ())
    advice = [COPY_AGAIN] * (len(incomplete) > len(lacking) + len(elsewhere)) + [LOOK_FOR_MISSING] * bool(lacking)
    why |= {reason: list(own) for reason, own in unread.items() if own}
    nouns = {LINKED: "link", TOO_DEEP: "folder", MISNAMED: "path", MIXED: "topic"}
    told = (
        f"{counted(len(own), nouns.get(reason, 'log'))}: {reason.words}; the first: {own[0]}"
        + (f"; also {first_of(also[reason], SHOWN_LOGS)}" if also[reason] else "")
        for reason, own in why.items()
    )
    return Verdict(
        check="replay",
        name=READABLE,
        expected="0 corrupt regions",
        found=found,
        ok=found == "0 corrupt regions",
        seconds=seconds,
        figures={**figures, "unfinished_tails": len(tails)} | ({"old_format_bytes": old} if old else {}),
        evidence="\n".join(_shortened([*said, *chain(*unread.values()), *regions, *tails])),
        unjudged="; ".join(told),
        unknown=sum(map(len, why.values())),
        unjudged_for={reason.code: len(own) for reason, own in why.items()},
        advice="\n".join(advice),
    )


def _unreadable(
    audits: Iterable[LogAudit], incomplete: Iterable[Incomplete], damaged: Iterable[DamagedFile]
) -> Iterator[Finding]:
    """The corrupt regions of the logs, the logs that lack records, or may, and damaged files, as findings."""

    def found(log: PartitionLog | DamagedFile, file: str, evidence: str) -> Finding:
        topic, partition, broker = log.topic, log.partition, log.broker
        return Finding(rule=READABLE, topic=topic, partition=partition, broker=broker, file=file, evidence=evidence)

    for audit in audits:
        for file, region in (*audit.damage, *audit.undecoded):
            if _is_corrupt(audit, file, region):
                yield replace(found(audit.log, file, _in_words(audit.log, region)), position=region.position)
    for each in incomplete:
        kind = Kind.VIOLATION if each.is_certain else Kind.NOT_JUDGED
        yield replace(found(each.log, each.file, each.in_words()), offset=each.offset, kind=kind.value)
    for spoilt in damaged:
        yield found(spoilt, spoilt.damaged.file, spoilt.damaged.in_words())


def _behind(directories: Iterable[Behind]) -> Iterator[Finding]:
    """The findings about log directories with replicas that are behind: told, and no violations."""
    for each in directories:
        own, kind = each.log, Kind.TOLD.value
        found = Finding(rule=REPLICAS, topic=own.topic, partition=own.partition, broker=own.broker, kind=kind)
        yield replace(found, offset=each.end, evidence=each.in_words())


def _has_old_formats(audit: LogAudit) -> bool:
    """Whether a log has messages of the formats before batches, whose offsets are not read."""
    return any(region.kind is RegionKind.OLD_FORMAT for _, region in audit.damage)


def _is_corrupt(audit: LogAudit, file: str, region: CorruptRegion) -> bool:
    """Whether damage of a segment is a violation, see :func:`_readable`."""
    is_last = file == (audit.log.segments[-1] if audit.log.segments else "")
    return region.kind is RegionKind.CORRUPT or not (is_last or region.kind is RegionKind.OLD_FORMAT)


def _in_words(log: PartitionLog, region: CorruptRegion) -> str:
    loaded = log.topic == COORDINATOR_TOPIC and region.kind is RegionKind.CORRUPT
    words = f"bytes {region.position}-{region.end}: {region.kind}: {region.reason}"
    return f"{words}; {LOADED_IN_PART}" if loaded else words


def transaction_verdicts(
    scanned: Scanned, engine: Engine, source: moments.Source = moments.ONE_MOMENT, *, check_crc: bool = True
) -> tuple[list[Draft], Found, moments.Moments, Sequence[Any], Set[LogPlace]]:
    """A verdict for each rule over the coordinator's logs and over transactions, and all their findings.

    Without a log of ``__transaction_state`` and without markers there are none.

    Args:
        scanned: all logs.
        engine: what runs the rules.
        source: what is known of their moments.
        check_crc: whether to compare each batch with its CRC.

    Returns:
        The verdicts, their findings, the moments of the logs, the rows with the transactions of logs that have
        indexes, for :func:`beside_verdicts`, and the partitions of decided transactions.
    """
    started = time.perf_counter()
    audits = scanned.audits
    states, known = stages.audit_coordinators(scanned, engine)
    if not states and not any(each.transactional for each in audits if each.log.topic != COORDINATOR_TOPIC):
        return [], Found(engine), moments.Moments(source, ()), (), frozenset()
    result, ended = stages.judge_transactions(scanned, states, known, engine, source, check_crc=check_crc)
    figures: Figures = {
        "records": sum(state.records for state in states),
        "transactional_ids": sum(state.known for state in states),
        UNKNOWN: sum(state.unknown + state.unreadable for state in states),
    }
    unknown = [(state.log, state.unknown + state.unreadable) for state in states]
    of_rules: list[_OfRule] = [(rule, figures, _in_logs(rule, unknown)) for rule in COORDINATOR_RULES if states]
    of_rules += [
        (rule, result.figures[rule], result.reasons[rule]) for rule in TRANSACTION_RULES if states or rule != NO_BIT
    ]
    drafts = _drafts(of_rules, time.perf_counter() - started)
    findings = Found(engine, *([known.rows] if states else [])) + result.findings
    return drafts, findings, result.moments, ended, known.named


_OfRule = tuple[str, Figures, Mapping[Reason, Unjudged] | Reason | None]


def _drafts(of_rules: Iterable[_OfRule], seconds: float) -> list[Draft]:
    """The verdicts of some rules, by their figures and reasons; the first one has the time of all."""
    return [
        RuleDraft(rule=rule, figures=figures, seconds=0.0 if number else seconds, reasons=reasons)
        for number, (rule, figures, reasons) in enumerate(of_rules)
    ]


def beside_verdicts(
    scanned: Scanned, engine: Engine, ended: Sequence[Any], *, one_moment: bool = True, check_crc: bool = True
) -> Drafts:
    """Judge indexes, snapshots and replicas: a verdict for each rule that has something to judge, and all findings.

    The arguments are those of :func:`stages.audit_around`.
    """
    started = time.perf_counter()
    found, result = stages.audit_around(scanned, engine, ended, one_moment=one_moment, check_crc=check_crc)
    seconds = time.perf_counter() - started
    of_rules: list[_OfRule] = []
    for rule, figures in result.figures.items():
        reasons, missing = Reasons(), rule_of(rule).missing
        if rule in result.first and missing is not None:
            reasons.count(missing, result.first[rule], int(figures[UNKNOWN]))
        if any(figures.values()):
            of_rules.append((rule, figures, reasons))
    return _drafts(of_rules, seconds), found


def epoch_verdicts(
    audits: Sequence[LogAudit], source: moments.Source, ask: Ask[PartitionLog, Lines | None] = ask_here
) -> Drafts:
    """Judge what the files of logs say of their leaders; no verdict if no log with batches has such a file.

    Args:
        audits: the audits of the logs.
        source: the evidence in their directories, from before they were read.
        ask: asks :func:`read_lines` about logs.
    """
    started = time.perf_counter()
    led = [Led(each.log, each.led) for each in audits if each.led and each.partition and each.partition.is_ordered]
    led = [each for each in led if each.goes_on]
    result = EpochAudit(source)
    for each, lines in zip(led, ask(read_lines, [each.log for each in led]), strict=True):
        if lines is not None:
            result.judge(each, lines)
    of_rules: list[_OfRule] = [(LEADER_EPOCHS, result.figures, result.reasons)] if result.figures["logs"] else []
    return _drafts(of_rules, time.perf_counter() - started), result.findings


def offset_verdicts(
    scanned: Scanned, engine: Engine, known: moments.Moments = moments.AT_ONE_MOMENT, *, check_crc: bool = True
) -> Drafts:
    """A verdict for each rule over logs of ``__consumer_offsets``, and all their findings; none without such logs."""
    started = time.perf_counter()
    found, by_log = stages.audit_offsets(scanned, engine, known, check_crc=check_crc)
    seconds = time.perf_counter() - started
    of_rules: list[_OfRule] = []
    for rule in OFFSET_RULES if by_log else ():
        own = {log: told[rule] for log, told in by_log.items()}
        names = ("checked", UNKNOWN, RECENT)
        figures: Figures = {name: sum(int(each.get(name, 0)) for each in own.values()) for name in names}
        reasons = _in_logs(rule, [(log, int(each[UNKNOWN])) for log, each in own.items()])
        of_rules.append((rule, figures, reasons))
    return _drafts(of_rules, seconds), found


def _events(inputs: Inputs) -> list[Event]:
    events = [event for path in inputs.histories for event in read_events(path)]
    if not events:
        given = ", ".join(map(str, inputs.histories))
        raise UnusableInput(f"{given}: {_NOTHING_IN_IT}" if given else "no history is given")
    return events


def history_verdicts(
    histories: Histories, scanned: Sequence[Any], known: moments.Moments, *, check_crc: bool = True
) -> Drafts:
    """A verdict for each rule over histories, and all their findings; arguments as of :meth:`Histories.judge`."""
    started = time.perf_counter()
    result = histories.judge(scanned, known, check_crc=check_crc)
    seconds = time.perf_counter() - started
    why = dict.fromkeys(() if histories.valued else BY_VALUE, NO_VALUES)
    outputs = result.figures[OUTPUT_OF_NOTHING]
    if any(run.declared for run in histories.runs) and not outputs["checked"]:  # a question without an answer
        outputs[UNKNOWN], why[OUTPUT_OF_NOTHING] = 1, NOTHING_DONE
    of_rules = [(rule, {"events": histories.events, **result.figures[rule]}, why.get(rule)) for rule in HISTORY_RULES]
    return _drafts(of_rules, seconds), result.findings


def jepsen_verdicts(inputs: Inputs, engine: Engine) -> Drafts:
    """A verdict for each of Jepsen's anomalies, and all violations; anomalies that Jepsen allows are in the evidence.

    Raises:
        UnusableInput: a history has no operation of the workload.
    """
    started = time.perf_counter()
    judged = Judged()
    kept: list[Any] = []
    for path in inputs.operations:
        own = judge_operations(path, path.stat().st_size, engine, kept)
        if not own.figures["sent"] and not own.figures["given"]:
            raise UnusableInput(f"{path}: no :send, :poll or :txn of Jepsen's workload for Kafka with anything in it")
        judged.join(own)
    seconds = time.perf_counter() - started
    drafts: list[Draft] = []
    for rule in ANOMALIES:
        noted = [f"allowed: {finding.in_words()}" for finding in judged.shown if finding.rule == rule]
        figures: Figures = {**judged.figures, "allowed": judged.allowed[rule]}
        told = _shortened(noted, judged.allowed[rule])
        drafts.append(RuleDraft(rule=rule, figures=figures, seconds=0.0 if drafts else seconds, noted=told))
    return drafts, Found(engine, *kept)


def _verdict(
    rule: str,
    figures: Figures,
    tally: Tally,
    *,
    seconds: float = 0.0,
    reasons: Mapping[Reason, Unjudged] | Reason | None = None,
    noted: Sequence[str] = (),
) -> Verdict:
    """The verdict of a rule: violations, and what could not be judged.

    Args:
        rule: its name.
        figures: the rule's figures: its subjects (:attr:`rule_book.Rule.subject`), ``unknown``, ``recent`` and more.
        tally: the tally of the findings of all rules.
        seconds: wall time.
        reasons: for each reason, the subjects that could not be judged; or the only reason, None for the rule book's.
        noted: more evidence.
    """
    violations, first = tally.of(rule, violations=True)
    unknown, recent = int(figures.get(UNKNOWN, 0)), int(figures.get(RECENT, 0))
    why = _reasons(rule, unknown, reasons, tally)
    if rule in OF_MARKERS and recent and recent == int(figures[rule_of(rule).subject]) - unknown:  # nothing was judged
        why.append((ALL_RECENT, recent, None))
        figures, unknown, recent = {**figures, UNKNOWN: unknown + recent}, unknown + recent, 0
    known = tally.counts[rule, Kind.KNOWN]
    figures = {**figures, Kind.KNOWN.value: known} if known else figures
    evidence = [
        *_shortened([finding.in_words() for finding in first], violations),
        *_other_findings(rule, tally),
        *noted,
    ]
    return Verdict(
        check="replay",
        name=rule,
        expected="0 findings",
        found=counted(violations, "finding"),
        ok=not violations,
        seconds=seconds,
        figures={name: value for name, value in figures.items() if name != RECENT or value},
        evidence="\n".join(evidence),
        unjudged=_unjudged(rule, figures, why),
        unknown=unknown,
        unjudged_for=_by_code(why),
        recent=0 if rule in OF_THE_SAME_MARKERS else recent,
    )


def _other_findings(rule: str, tally: Tally) -> Iterator[str]:
    """The first findings of a rule that are no violations, kind by kind: those that are too recent last, and few."""
    for kind in (Kind.NOT_JUDGED, Kind.TOLD, Kind.TOO_RECENT):
        lines = [finding.in_words() for finding in tally.shown.get((rule, kind), ())]
        count, most = tally.counts[rule, kind], SHOWN_RECENT if kind is Kind.TOO_RECENT else SHOWN_FINDINGS
        yield from _shortened(lines, count, most)


def _reasons(
    rule: str, unknown: int, reasons: Mapping[Reason, Unjudged] | Reason | None, tally: Tally
) -> list[tuple[Reason, int, Subject | None]]:
    """The reasons why subjects could not be judged, most frequent first, each with their number and the first of them.

    If there is only one, which the rule book has unless it is given, the first is that of the findings that are not
    judged.
    """
    if reasons is None or isinstance(reasons, Reason):
        missing = reasons or rule_of(rule).missing
        shown = tally.shown.get((rule, Kind.NOT_JUDGED), [])
        first = next((_subject(each) for each in shown), None)
        return [(missing, unknown, first)] if unknown and missing is not None else []
    return sorted(((reason, *unjudged) for reason, unjudged in reasons.items()), key=lambda each: (-each[1], each[0]))


def _subject(finding: Finding) -> Subject:
    """The place of a finding."""
    offset, pid = (-1 if each is None else each for each in (finding.offset, finding.producer_id))
    return Subject(finding.topic, finding.partition, offset, pid)


def _in_logs(rule: str, unknown: Iterable[tuple[PartitionLog, int]]) -> Reasons:
    """The reason of a rule that has only one, with the numbers of what could not be judged in some logs."""
    reasons, missing = Reasons(), rule_of(rule).missing
    for log, count in unknown:
        if count and missing is not None:
            reasons.count(missing, Subject(log.topic, log.partition), count)
    return reasons


def _by_code(reasons: Iterable[tuple[Reason, int, Subject | None]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for reason, count, _ in reasons:
        counts[reason.code] += count
    return dict(counts)


def _unjudged(rule: str, figures: Figures, reasons: Sequence[tuple[Reason, int, Subject | None]]) -> str:
    """Why a rule judged nothing, or not everything; "" if it judged everything except what is too recent."""
    book = rule_of(rule)
    subjects, unknown = (int(figures.get(name, 0)) for name in (book.subject, UNKNOWN))
    if unknown:
        why = [
            f"{count:,}: " * (len(reasons) > 1) + reason.words + ("" if first is None else f"; the first {first}")
            for reason, count, first in reasons
        ]
        return f"{unknown:,} of {subjects:,} {book.noun}: " * (subjects > 0) + "; ".join(why)
    if not subjects:
        return f"there are no {book.noun} to look at"
    return ""


def _shortened(lines: list[str], count: int | None = None, most: int = SHOWN_FINDINGS) -> list[str]:
    """The first ``most`` of ``count`` lines; of those that are given, unless there are more."""
    rest = (len(lines) if count is None else count) - most
    return lines if rest <= 0 else [*lines[:most], f"… and {rest} more"]
