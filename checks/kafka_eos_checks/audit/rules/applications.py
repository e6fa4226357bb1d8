"""The rules over applications: inputs that a group polled, outputs that name them, and the committed offsets.

An application is the set of processes whose ``Poll`` events have the same ``group``. An output names its input
(``detail.input`` of its ``Send``: topic, partition, offset) or has the content of an input that its process has polled.
``detail.output`` numbers or names the outputs of one input; without it each content is an output of its own. An output
*appears* if it is in a log and no marker hides it. An *attempt* is a transaction of a process (``detail.transaction``),
or the process itself if it uses no transactions. An offset is *past* an input if it is greater than the input's offset.

A test may *declare* an application instead (:mod:`declared`). Such an application writes no events itself; the history
has its requests. The transaction of an output or an offset is then taken from ``Produce``, ``TxnOffsetCommit``,
``OffsetCommit`` and ``EndTxn``.

``input processed twice``
    An output of an input appears more than once, and was sent that often. (If it was sent less often, it is a
    ``duplicate value``.)

``input skipped``
    The group's offset is past an input, and no output of the input appears. Besides, either no member was ever given
    the input, or none of the attempts that sent its outputs committed the offset, or no attempt sent any although every
    input is known to have outputs. Inputs below the first that the group was given are not its own.

``output without its offset``
    An output appears, and at the end of the logs the group's offset is not past its input. Or the output was written
    outside of any transaction. Or it appears in a transaction, and that offset was committed outside of any transaction
    or in another one. Each transaction is reported once; outside of transactions, each input is.

``offset without its output``
    The group's offset is past an input, and no output of it appears, although the attempt that committed the offset
    sent them; or the offset was committed outside of any transaction, and the outputs in one that did not commit.

``input not processed``
    No output of an input of a declared application appears, and no committed offset is past it.

``output of no input``
    An output of a declared application appears, and no input has its identity.

``fenced generation committed``
    An ``OffsetCommit`` or ``TxnOffsetCommit`` of a member of a generation was answered ``ok``, although a ``JoinGroup``
    for the same group had been answered with a later generation before the request was sent.

*Unknown*, and no finding: outputs to topics whose logs are missing, damaged or have holes; outputs whose transaction is
open at the log's end (those of a declared application do not appear yet); outputs without an input if the logs of the
inputs are missing, damaged, of an earlier moment or without some offsets, or have this identity in an open transaction;
groups whose log of offsets is missing or has holes; an input that a member was given without sending anything for it,
because an application may ignore inputs; a value that is an output of several inputs; members whose generations the
history does not have.

These are the readable rules. :mod:`kafka_eos_checks.audit.kernels.histories.applying` proves for most inputs that these
rules would find nothing. The rules judge the rest, and every declared application.

Spec:  ExactlyOnce
KIP:   KIP-98, KIP-447
Kafka: KafkaProducer.sendOffsetsToTransaction, ClassicGroup.validateOffsetCommit
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.events.recorded import COMMITS
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.quoting import quoted
from kafka_eos_checks.audit.rules.declared import Declared, Found, declarations
from kafka_eos_checks.audit.rules.log import Reason
from kafka_eos_checks.audit.rules.offsets import GroupLog
from kafka_eos_checks.audit.segments.contents import Contents, Figures, Place, Replicas, count, longest, place_of

TWICE, SKIPPED = "input processed twice", "input skipped"
OUTPUT_ALONE, OFFSET_ALONE = "output without its offset", "offset without its output"
FENCED_GENERATION = "fenced generation committed"
NOT_PROCESSED, OUTPUT_OF_NOTHING = "input not processed", "output of no input"
INPUT_RULES = (TWICE, SKIPPED, OUTPUT_ALONE, OFFSET_ALONE)
APPLICATION_RULES = (*INPUT_RULES, NOT_PROCESSED, OUTPUT_OF_NOTHING, FENCED_GENERATION)
APART = (OUTPUT_ALONE, OFFSET_ALONE)
"""Rules about an output and its offset that are apart: a mistake, of which other findings may be the result."""

IN_SOME_TOPICS, NEVER_WRITTEN = "no output of it appears in", "no output of it was ever written"
NOTHING_DONE = Reason("history", "no output of a declared application is committed, so that nothing was tested")
UNKNOWN, NOBODY = "unknown", "nobody"
LONGER = "make transaction.timeout.ms longer than a batch takes, or the batches smaller"
ABORT_FIRST = "abort before you retry; or, if both belong there, say which output each is"

Name = tuple[str, Place]  # group, partition of the input
Attempt = tuple[str, int | None]  # process, number of its transaction
Output = tuple[str, str]  # topic, value


@dataclass(slots=True)
class Processed:
    """The facts of a history about one input.

    Attributes:
        given: whether a member of the group was given it.
        has_outputs: whether the input is known to have outputs; an application may ignore other inputs.
        outputs: by the output's number or name, or by the output itself where it has none: the values that were sent,
            each with the attempts that sent it.
    """

    given: bool = False
    has_outputs: bool = False
    outputs: dict[int | str | Output, dict[Output, list[Attempt]]] = field(default_factory=lambda: defaultdict(dict))

    def attempts(self) -> set[Attempt]:
        """The attempts that sent any output of the input."""
        return {each for values in self.outputs.values() for tried in values.values() for each in tried}


@dataclass(slots=True)
class Told:
    """A run's facts about its applications.

    Attributes:
        inputs: by group and partition, and by offset.
        owners: by output, the inputs that it may come from.
        commits: by group, partition and offset, the attempts that asked to commit that offset.
    """

    inputs: dict[Name, dict[int, Processed]] = field(default_factory=lambda: defaultdict(dict))
    owners: dict[Output, set[tuple[Name, int]]] = field(default_factory=lambda: defaultdict(set))
    commits: dict[tuple[Name, int], set[Attempt]] = field(default_factory=lambda: defaultdict(set))

    def input(self, name: Name, offset: int) -> Processed:
        """The facts about an input, none at first."""
        return self.inputs[name].setdefault(offset, Processed())


def listen(run: Sequence[Event]) -> Told:
    """Collect a run's facts about its applications."""
    told = Told()
    groups: dict[str, str] = {}
    last: dict[tuple[str, str], tuple[Place, int]] = {}  # process, content -> the input that had it last
    for event in run:
        place = place_of(event)
        attempt = (event.process, _number(event))
        if (event.action, event.phase) == ("Poll", "ok") and event.group and place and event.offset is not None:
            groups[event.process] = event.group
            told.input((event.group, place), event.offset).given = True
            last[event.process, str(event.detail.get("value"))] = place, event.offset
        elif (event.action, event.phase) == ("Send", "invoke") and event.process in groups and event.topic is not None:
            value = str(event.detail.get("value"))
            source = _input(event) or last.get((event.process, value))
            if source is not None:
                name, output = (groups[event.process], source[0]), (event.topic, value)
                which = event.detail.get("output")
                sent = told.input(name, source[1]).outputs[which if isinstance(which, int | str) else output]
                sent.setdefault(output, []).append(attempt)
                told.owners[output].add((name, source[1]))
        elif event.action in {"SendOffsetsToTransaction", "CommitOffsets"} and event.phase == "invoke":
            offsets = event.detail.get("offsets")
            for partition, offset in offsets.items() if isinstance(offsets, dict) else ():
                name = (event.group or "", (event.topic or "", int(partition)))
                told.commits[name, int(offset)].add(attempt)
    return told


def _number(event: Event) -> int | None:
    value = event.detail.get("transaction")
    return value if isinstance(value, int) else None


def _input(event: Event) -> tuple[Place, int] | None:
    match event.detail.get("input"):
        case [str(topic), int(partition), int(offset)]:
            return (topic, partition), offset
    return None


@dataclass(slots=True)
class Appearances:
    """The places where outputs appear, by the logs of their topics."""

    replicas: Replicas
    _topics: dict[str, tuple[dict[str, list[Found]], set[str], bool]] = field(default_factory=dict)

    def of(self, output: Output) -> list[Found] | None:
        """The places at which an output appears; None if they are unknown."""
        found, unsure, whole = self._topic(output[0])
        if output[1] in unsure or (not whole and output[1] not in found):
            return None
        return found.get(output[1], [])

    def is_transactional(self, at: Found) -> bool:
        """Whether a marker made an output appear."""
        return at[1] in longest(self.replicas, at[0])[1].committed

    def _topic(self, topic: str) -> tuple[dict[str, list[Found]], set[str], bool]:
        if topic not in self._topics:
            found: dict[str, list[Found]] = defaultdict(list)
            unsure: set[str] = set()
            own = {place: longest(self.replicas, place)[1] for place in self.replicas if place[0] == topic}
            for place, contents in sorted(own.items()):
                for offset, value in contents.values.items():
                    text = (value or b"").decode(errors="replace")
                    if offset not in contents.hidden:
                        found[text].append((place, offset))
                    elif offset not in contents.aborted:
                        unsure.add(text)
            self._topics[topic] = found, unsure, bool(own) and all(each.whole for each in own.values())
        return self._topics[topic]


class Past(NamedTuple):
    """The first commit past an input: the committed offset, and whether it was committed in a transaction."""

    offset: int | None
    transactional: bool


@dataclass(slots=True)
class Offsets:
    """The offsets that groups have committed, by the logs of ``__consumer_offsets``."""

    logs: Sequence[GroupLog]
    _commits: dict[Name, tuple[list[int], list[Past]]] = field(default_factory=dict)  # and the highest offset so far

    def covering(self, name: Name, offset: int) -> Past | str | None:
        """The first commit past an input; None if there is none, or :data:`UNKNOWN`."""
        own = [each for each in self.logs if name in each.commits]
        if len(own) > 1 or not all(each.whole for each in own or self.logs) or not self.logs:
            return UNKNOWN
        if name not in self._commits:  # a log makes the commits of a name anew each time
            commits = [Past(each.offset, each.transactional) for each in (own[0].commits[name] if own else ())]
            highest = accumulate((-1 if each.offset is None else each.offset for each in commits), max)
            self._commits[name] = list(highest), commits
        so_far, commits = self._commits[name]
        first = bisect_right(so_far, offset)
        return commits[first] if first < len(commits) else None

    def last(self, name: Name) -> int:
        """The last committed offset of a group, 0 for none."""
        commits = [commit for each in self.logs for commit in each.commits.get(name, ())]
        return (commits[-1].offset or 0) if commits else 0


def judge_inputs(
    run: Sequence[Event],
    replicas: Replicas,
    logs: Sequence[GroupLog],
    figures: dict[str, Figures],
    *,
    covered: bool = True,
) -> Iterator[Finding]:
    """Find inputs whose outputs and offset do not appear once and together.

    Args:
        run: the events.
        replicas: the replicas of the partitions of inputs and outputs.
        logs: the logs of ``__consumer_offsets``.
        figures: the figures by rule; the function adds to them.
        covered: whether all logs reach beyond the end of the run. Otherwise a record that they lack proves nothing.
    """
    for declared in declarations(run):
        yield from judge_declared(run, declared, replicas, logs, figures, covered=covered)
    yield from judge_told(run, replicas, logs, figures, covered=covered)


def judge_told(
    run: Sequence[Event],
    replicas: Replicas,
    logs: Sequence[GroupLog],
    figures: dict[str, Figures],
    *,
    covered: bool = True,
    only: Mapping[Name, Sequence[int]] | None = None,
) -> Iterator[Finding]:
    """Judge applications that write events themselves; arguments as of :func:`judge_inputs`.

    ``only`` names the inputs that are judged, by offset in ascending order; all when not given.
    """
    told = listen(run)
    if not told.owners and only is None:
        return
    appearances, offsets = Appearances(replicas), Offsets(logs)
    alone: set[Attempt] = set()
    for name in told.inputs if only is None else only:
        inputs = told.inputs[name]
        chosen = sorted([*inputs, *_never_given(name, inputs, replicas, offsets)]) if only is None else only[name]
        for offset in chosen:
            for rule in INPUT_RULES:
                count(figures[rule], "checked")
            one = Input(run[0].run, name, offset, inputs.get(offset, Processed()), told)
            yield from one.judge(appearances, offsets, figures, alone, covered=covered)


def _never_given(name: Name, inputs: dict[int, Processed], replicas: Replicas, offsets: Offsets) -> list[int]:
    """Inputs below a group's offset that the log has and no member was given."""
    given = sorted(offset for offset, each in inputs.items() if each.given)
    if not given:
        return []
    _, contents = longest(replicas, name[1])
    visible = sorted(offset for offset in contents.values if offset not in contents.hidden)
    own = visible[bisect_left(visible, given[0]) : bisect_left(visible, offsets.last(name))]
    return [offset for offset in own if offset not in inputs]


@dataclass(slots=True)
class Input:
    """An input of a group, with the facts of the history on it; of a declared one also who wrote its outputs."""

    run: str
    name: Name
    offset: int
    processed: Processed
    told: Told
    wrote: Mapping[Found, Attempt] = field(default_factory=dict)

    def judge(
        self,
        appearances: Appearances,
        offsets: Offsets,
        figures: dict[str, Figures],
        alone: set[Attempt],
        *,
        covered: bool = True,
    ) -> Iterator[Finding]:
        """The rules that it violates; ``alone``: transactions already reported for an output without its offset."""
        places = self._places(appearances)
        if places is None:
            for rule in INPUT_RULES:
                count(figures[rule], UNKNOWN)
            return
        for found in self._repeated(places):
            where = ", ".join(f"{topic}-{partition} offset {offset}" for (topic, partition), offset in found)
            said = f"{self} was processed more than once: {where}{self._within(found)}"
            yield _found(self.run, TWICE, found[1], said)
        covering = offsets.covering(self.name, self.offset)
        appearing = [at for values in places.values() for found in values.values() for at in found]
        if isinstance(covering, str) or not covered:
            for rule in INPUT_RULES[1:]:
                count(figures[rule], UNKNOWN)
        elif appearing:
            yield from self._output_alone(places, covering, appearances, figures, alone)
        elif covering is not None:
            yield from self._no_output(covering, figures)

    def judge_declared(
        self,
        declared: Declared,
        appearances: Appearances,
        offsets: Offsets,
        figures: dict[str, Figures],
        *,
        covered: bool = True,
        waiting: str = "",
    ) -> Iterator[Finding]:
        """The rules that only a declaration allows: an output in each topic, and every input processed.

        ``waiting`` says which transactions of the application were not ended or aborted last, see :func:`not_ended`.
        """
        places, covering = self._places(appearances), offsets.covering(self.name, self.offset)
        if declared.everything:
            count(figures[NOT_PROCESSED], "checked")
        if places is None or isinstance(covering, str) or not covered:
            count(figures[NOT_PROCESSED], UNKNOWN)
            return
        there = {output[0] for values in places.values() for output, found in values.items() if found}
        if declared.everything and covering is None and not there:
            said = f"no output of {self} appears, and no committed offset is past it{waiting}"
            yield _found(self.run, NOT_PROCESSED, (self.name[1], self.offset), said)
        missing = sorted(declared.outputs - there)
        if covering is not None and there and missing:
            behind = f"group {quoted(self.name[0])} committed offset {covering.offset}"
            said = f"{behind}, and {IN_SOME_TOPICS} {', '.join(missing)}"
            yield _found(self.run, OFFSET_ALONE, (self.name[1], self.offset), said)

    def __str__(self) -> str:
        group, (topic, partition) = self.name
        return f"{topic}-{partition} offset {self.offset} of group {quoted(group)}"

    def _places(self, appearances: Appearances) -> dict[int | str | Output, dict[Output, list[Found]]] | None:
        """The places of each value, by output; None if they are unknown."""
        places: dict[int | str | Output, dict[Output, list[Found]]] = {}
        for number, values in self.processed.outputs.items():
            places[number] = {}
            for output in values:
                found = appearances.of(output)
                if found is None or len(self.told.owners[output]) > 1:
                    return None
                places[number][output] = found
        return places

    def _repeated(self, places: dict[int | str | Output, dict[Output, list[Found]]]) -> Iterator[list[Found]]:
        """The places of the first output that appears more than once, and was sent that often."""
        for number, values in places.items():
            sent = Counter({output: len(tried) for output, tried in self.processed.outputs[number].items()})
            own = [at for output, found in values.items() for at in found[: sent[output]]]
            if len(own) > 1:
                yield sorted(own)
                return

    def _within(self, found: Sequence[Found]) -> str:
        """The one transaction that has all places of an output, in words; "" if there is none."""
        attempts = {self.wrote.get(at, (NOBODY, None)) for at in found}
        process, transaction = min(attempts, key=str)
        if len(attempts) > 1 or transaction is None:
            return ""
        copies = "both" if len(found) == len(("first", "second")) else "all"
        return f"; {copies} in one transaction ({transaction} of {quoted(process)}): {ABORT_FIRST}"

    def _output_alone(
        self,
        places: dict[int | str | Output, dict[Output, list[Found]]],
        covering: Past | None,
        appearances: Appearances,
        figures: dict[str, Figures],
        alone: set[Attempt],
    ) -> Iterator[Finding]:
        """Yield a finding if an output appears without the offset past its input."""
        values = [(number, output, at) for number, own in places.items() for output, f in own.items() for at in f]
        number, output, at = min(values, key=lambda value: value[2])
        outside = [value for value in values if not appearances.is_transactional(value[2])]
        attempts = set(self.processed.outputs[number][output])
        why = ""
        if covering is None:
            why = "the group's offset is not past its input"
        elif appearances.is_transactional(at):
            asked = self.told.commits.get((self.name, covering.offset or 0), set())
            if not covering.transactional:
                why = f"offset {covering.offset} was committed outside of its transaction"
            elif not asked:
                count(figures[OUTPUT_ALONE], UNKNOWN)
            elif not asked & attempts:
                process, transaction = min(asked, key=str)
                why = f"offset {covering.offset} was committed in transaction {transaction} of {process}"
        if not why and outside:
            number, output, at = min(outside, key=lambda value: value[2])
            attempts = set(self.processed.outputs[number][output])
            why = "it was written outside of any transaction"
        transactions = {attempt for attempt in attempts if attempt[1] is not None}
        if why and not transactions & alone:
            alone |= transactions
            yield _found(self.run, OUTPUT_ALONE, at, f"{quoted(output[1])} is the output of {self}; {why}")

    def _no_output(self, covering: Past, figures: dict[str, Figures]) -> Iterator[Finding]:
        """An input without an output that the group's offset is past."""
        attempts = self.processed.attempts()
        asked = self.told.commits.get((self.name, covering.offset or 0), set())
        here = (self.name[1], self.offset)
        behind = f"group {quoted(self.name[0])} committed offset {covering.offset}"
        if not self.processed.given and not attempts:
            yield _found(self.run, SKIPPED, here, f"{behind}, and no member was given it")
        elif not attempts and self.processed.has_outputs:
            yield _found(self.run, SKIPPED, here, f"{behind}, and {NEVER_WRITTEN}")
        elif not attempts:
            for rule in (SKIPPED, OFFSET_ALONE):
                count(figures[rule], UNKNOWN)
        elif not covering.transactional or asked & attempts:
            where = "in the transaction of its output" if covering.transactional else "outside of any transaction"
            yield _found(self.run, OFFSET_ALONE, here, f"{behind} {where}, and no output of it appears")
        else:
            process, transaction = min(attempts, key=str)
            sent = f"its outputs were sent in transaction {transaction} of {process}, which did not commit"
            yield _found(self.run, SKIPPED, here, f"{behind}, and {sent}")


# --- applications that are declared -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begun:
    """A transaction that was begun.

    Attributes:
        order: the place of its first request in the history.
        touched: the topics and groups of its requests.
        timed_out: whether the coordinator aborted it, as it was open for too long.
    """

    order: int | None
    touched: set[str] = field(default_factory=set)
    timed_out: bool = False


_ATTEMPTING = COMMITS | {"Produce"}


def client_of(event: Event) -> str:
    """The client of a request: its transactional.id, or its process if it has none."""
    return event.process if event.transactional_id is None else event.transactional_id


class Answer(NamedTuple):
    """The successful answer to a request: a batch with its first and last offset, or a committed offset.

    Attributes:
        place: the partition.
        group: the group that committed the offset; None for a batch.
        first: the first offset, or the committed one.
        last: the last offset, or the committed one.
        attempt: the attempt that sent the request.
    """

    place: Place
    group: str | None
    first: int
    last: int
    attempt: Attempt


@dataclass(slots=True)
class Clients:
    """Clients whose requests are taken in order. It holds requests without an answer and transactions without an end.

    Attributes:
        begun: by transactional id, its transaction that was begun and not ended.
        aborted: by transactional id, its last transaction that was aborted or timed out, if none was begun since.
    """

    begun: dict[str, Begun] = field(default_factory=dict)
    aborted: dict[str, Begun] = field(default_factory=dict)
    _ended: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _sent: dict[tuple[str, str, Place], Attempt] = field(default_factory=dict)

    def take(self, event: Event) -> Answer | None:
        """Take the next event; if it answers a request that a client has sent, give the answer."""
        name, place = event.transactional_id, place_of(event)
        if (event.action, event.phase) in {("EndTxn", "ok"), ("InitProducerId", "ok")} and name in self.begun:
            self._ended[name] += 1
            ended = self.begun.pop(name)
            if event.detail.get("committed") is False or ended.timed_out:
                self.aborted[name] = ended
        if event.action == "TimeOut" and name in self.begun:
            self.begun[name] = replace(self.begun[name], timed_out=True)
        if place is None or event.action not in _ATTEMPTING:
            return None
        request = client_of(event), str(event.detail.get("request")), place
        if event.phase == "invoke":
            self._sent[request] = (event.process, None) if name is None else (name, self._ended[name])
            if name is not None:
                begun = self.begun.setdefault(name, Begun(event.order))
                begun.touched.add(place[0] if event.action == "Produce" else event.group or place[0])
                self.aborted.pop(name, None)
            return None
        sent = self._sent.pop(request, None) if "request" in event.detail else self._sent.get(request)
        if event.phase != "ok" or sent is None:
            return None
        if event.action == "Produce":
            first = event.offset
            return None if first is None else Answer(place, None, first, first + (event.record_count or 1) - 1, sent)
        offset = event.detail.get("committed_offset")
        return Answer(place, event.group or "", offset, offset, sent) if isinstance(offset, int) else None


@dataclass(slots=True)
class Requests:
    """The transactions of sends and commits, as a broker saw them.

    Attributes:
        batches: by partition, the first and the last offset of each batch that was acknowledged, with its attempt.
        commits: by group, partition and offset, the attempts that committed it.
        begun: by transactional id, its transaction that was never ended.
        aborted: by transactional id, its last transaction that was aborted or timed out, if none was begun since.
    """

    batches: dict[Place, list[tuple[int, int, Attempt]]] = field(default_factory=lambda: defaultdict(list))
    commits: dict[tuple[Name, int], set[Attempt]] = field(default_factory=lambda: defaultdict(set))
    begun: Mapping[str, Begun] = field(default_factory=dict)
    aborted: Mapping[str, Begun] = field(default_factory=dict)

    def attempt(self, at: Found) -> Attempt:
        """The attempt that wrote a record; an attempt of nobody if no request of the history carried it."""
        place, offset = at
        own = self.batches.get(place, [])
        number = bisect_right(own, offset, key=lambda batch: batch[0]) - 1
        return own[number][2] if number >= 0 and offset <= own[number][1] else (NOBODY, None)


def _with(order: int | None) -> str:
    return "" if order is None else f" with event {order}"


def not_ended(declared: Declared, begun: Mapping[str, Begun], aborted: Mapping[str, Begun]) -> str:
    """The transactions that an application began and did not end, or aborted last, in words; "" for none."""
    own = declared.outputs | {declared.group}
    touching = {name: each for name, each in (*begun.items(), *aborted.items()) if each.touched & own}
    late = sorted(name for name, each in touching.items() if each.timed_out)
    said = [
        f"; transactional.id {quoted(name)} began a transaction{_with(each.order)} and never ended it"
        for name, each in begun.items()
        if name in touching and name not in late
    ]
    if late:
        said.append(
            f"; the last transaction of {_first_of(late)} was open for longer than its timeout, so that it was aborted "
            f"and its producer fenced: {LONGER}"
        )
    if back := sorted(name for name in aborted if name in touching and name not in late):
        said.append(
            f"; the last transaction of {_first_of(back)} was aborted, and nothing of it was written again: seek back "
            "to the committed offsets after an abort; if it went back, look for what failed each time"
        )
    return "".join(said)


def _first_of(names: Sequence[str]) -> str:
    """The first name, and how many more there are: an application has a new one for each thread that it replaces."""
    return quoted(names[0]) + (f" (and of {len(names) - 1} more)" if len(names) > 1 else "")


def read_requests(run: Sequence[Event]) -> Requests:
    """The transactions of a run, numbered for each transactional.id."""
    clients = Clients()
    requests = Requests(begun=clients.begun, aborted=clients.aborted)
    for answer in filter(None, map(clients.take, run)):
        if answer.group is None:
            requests.batches[answer.place].append((answer.first, answer.last, answer.attempt))
        else:
            requests.commits[(answer.group, answer.place), answer.first].add(answer.attempt)
    for batches in requests.batches.values():
        batches.sort(key=lambda batch: batch[0])
    return requests


class Identified(NamedTuple):
    """A record of a declared application that has an identity.

    Attributes:
        at: its partition and offset.
        identity: what an input and its outputs have in common.
        which: for one of several outputs, which it is.
        appears: whether no marker hides it.
        committed: whether a marker made it appear.
        aborted: whether a marker hides it.
    """

    at: Found
    identity: str
    which: str
    appears: bool
    committed: bool
    aborted: bool


class LogFacts(NamedTuple):
    """Whether the logs of a declared application have every record.

    Attributes:
        whole: by topic of outputs that has a log, whether its logs have every record.
        inputs_whole: whether the logs of all inputs have every record, and are not of an earlier moment than the run.
        deleted_below: by partition, the offset below which records were deleted on request.
    """

    whole: Mapping[str, bool]
    inputs_whole: bool
    deleted_below: Mapping[Place, int]

    @classmethod
    def of(
        cls, declared: Declared, is_whole: Mapping[Place, bool], deleted_below: Mapping[Place, int], *, covered: bool
    ) -> "LogFacts":
        """The facts, from whether each partition's longest log is whole, and where its deleted records end."""
        whole = {topic: True for topic, _ in is_whole if topic in declared.outputs}
        for (topic, _), own in is_whole.items():
            if topic in whole:
                whole[topic] = whole[topic] and own
        inputs = {place: own for place, own in is_whole.items() if place[0] in declared.inputs}
        there = {topic for topic, _ in inputs} == declared.inputs
        return cls(whole, covered and there and all(inputs.values()), deleted_below)


class Joined(Appearances):
    """The places where the outputs of a declared application appear, by their identity."""

    def __init__(self, found: dict[Output, list[Found]], marked: set[Found], whole: Mapping[str, bool]) -> None:
        super().__init__({})
        self._found, self._marked, self._whole = found, marked, whole

    def of(self, output: Output) -> list[Found] | None:
        """The places at which an output appears; None if they are unknown."""
        return self._found.get(output, [] if self._whole.get(output[0], False) else None)

    def is_transactional(self, at: Found) -> bool:
        """Whether a marker made an output appear."""
        return at in self._marked


class Candidate(NamedTuple):
    """A finding about a declared application.

    Attributes:
        finding: the finding.
        at: the input, or the output that no input has.
        transactions: those of an output without its offset, which is reported if no earlier one has any of them.
    """

    finding: Finding
    at: Found
    transactions: frozenset[Attempt] = frozenset()


def reported(candidates: Iterable[Candidate]) -> Iterator[Finding]:
    """The findings that are reported, of all in order of their inputs: each transaction counts once."""
    alone: set[Attempt] = set()
    for finding, _, transactions in candidates:
        if not transactions & alone:
            alone |= transactions
            yield finding


def judge_declared(
    run: Sequence[Event],
    declared: Declared,
    replicas: Replicas,
    logs: Sequence[GroupLog],
    figures: dict[str, Figures],
    *,
    covered: bool = True,
) -> Iterator[Finding]:
    """Judge a declared application; ``covered`` as for :func:`judge_inputs`."""
    requests, offsets = read_requests(run), Offsets(logs)
    own = {place: longest(replicas, place)[1] for place in sorted(replicas)}
    found = judge_identities(
        run[0].run,
        declared,
        _identified(declared, declared.inputs, own),
        _identified(declared, declared.outputs, own),
        LogFacts.of(
            declared,
            {place: contents.whole for place, contents in own.items()},
            {place: contents.deleted_below for place, contents in own.items()},
            covered=covered,
        ),
        requests,
        offsets,
        figures,
        covered=covered,
        waiting=not_ended(declared, requests.begun, requests.aborted),
    )
    yield from reported(found)


def _identified(declared: Declared, topics: set[str], logs: Mapping[Place, Contents]) -> Iterator[Identified]:
    """The records of some topics that have an identity, by partition and offset."""
    for place, contents in logs.items():
        for offset, value in contents.values.items() if place[0] in topics else ():
            known, at = declared.identity((place, offset), value), (place, offset)
            if known is not None:
                markers = offset in contents.committed, offset in contents.aborted
                yield Identified(at, *known, offset not in contents.hidden, *markers)


def judge_identities(
    run: str,
    declared: Declared,
    inputs: Iterable[Identified],
    outputs: Iterable[Identified],
    logs: LogFacts,
    requests: Requests,
    offsets: Offsets,
    figures: dict[str, Figures],
    *,
    covered: bool = True,
    waiting: str = "",
) -> Iterator[Candidate]:
    """Judge all records of a declared application that have some identities.

    Args:
        run: the name of the run.
        declared: the application.
        inputs: the inputs with these identities, by partition and offset.
        outputs: the outputs with these identities, by partition and offset.
        logs: what the logs of the topics lack.
        requests: the attempts of these outputs, and of the commits past these inputs.
        offsets: the commits past these inputs.
        figures: the figures by rule; the function adds to them.
        covered: as for :func:`judge_inputs`.
        waiting: see :func:`not_ended`.
    """
    known = DeclaredInputs.of(declared, inputs, logs)
    told = known.told
    found: dict[Output, list[Found]] = defaultdict(list)
    marked: set[Found] = set()
    wrote: dict[Found, Attempt] = {}
    for at, identity, which, appears, committed, _ in outputs:
        if appears:
            count(figures[OUTPUT_OF_NOTHING], "checked")
            if said := known.lack(identity, declared.group, figures[OUTPUT_OF_NOTHING]):
                yield Candidate(_found(run, OUTPUT_OF_NOTHING, at, said), at)
        output = at[0][0], f"{identity}/{which}" if which else identity
        wrote[at] = requests.attempt(at)
        for name, source in known.named.get(identity, ()):
            told.inputs[name][source].outputs[output].setdefault(output, []).append(wrote[at])
            told.owners[output].add((name, source))
        if appears:
            found[output].append(at)
            marked |= {at} if committed else set()
    told.commits = requests.commits
    appearances = Joined(found, marked, logs.whole)
    for name, own in told.inputs.items():
        for offset, processed in sorted(own.items()):
            appear = any(output in found for values in processed.outputs.values() for output in values)
            if offset < logs.deleted_below.get(name[1], 0) and not appear:
                continue  # nobody has to process it any more
            for rule in INPUT_RULES:
                count(figures[rule], "checked")
            there = {topic for values in processed.outputs.values() for topic, _ in values}
            if not all(logs.whole.get(topic, False) for topic in declared.outputs - there):  # it may be in the hole
                for rule in (*INPUT_RULES, NOT_PROCESSED):
                    count(figures[rule], UNKNOWN)
                continue
            one, at, alone = Input(run, name, offset, processed, told, wrote), (name[1], offset), set[Attempt]()
            for finding in one.judge(appearances, offsets, figures, alone, covered=covered):
                yield Candidate(finding, at, frozenset(alone) if finding.rule == OUTPUT_ALONE else frozenset())
            rest = one.judge_declared(declared, appearances, offsets, figures, covered=covered, waiting=waiting)
            yield from (Candidate(finding, at) for finding in rest)


@dataclass(slots=True)
class DeclaredInputs:
    """The inputs of a declared application.

    Attributes:
        told: the facts on each.
        named: by identity.
        aborted: by identity, an aborted one in words.
        unsure: identities of inputs whose transaction is open.
        all_there: whether the logs have every record of the topics of inputs.
    """

    told: Told = field(default_factory=Told)
    named: dict[str, list[tuple[Name, int]]] = field(default_factory=lambda: defaultdict(list))
    aborted: dict[str, str] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    all_there: bool = True

    @classmethod
    def of(cls, declared: Declared, inputs: Iterable[Identified], logs: LogFacts) -> "DeclaredInputs":
        """Take them from their records, which are in order of partitions and offsets."""
        found = cls(all_there=logs.inputs_whole)
        for (place, offset), identity, _, appears, _, aborted in inputs:
            if appears:
                name = declared.group, place
                found.named[identity].append((name, offset))
                found.told.inputs[name][offset] = Processed(given=True, has_outputs=True)
            elif aborted:
                where = f"; {place[0]}-{place[1]} offset {offset} has it, which was aborted"
                asked = "does the application read with isolation.level=read_committed?"
                found.aborted.setdefault(identity, f"{where}: {asked}")
            else:
                found.unsure.add(identity)
        return found

    def lack(self, identity: str, group: str, figures: Figures) -> str:
        """That no input has the identity of an output, in words; "" if one has it, or if that is not known."""
        if identity in self.named:
            return ""
        if identity in self.unsure or not self.all_there:
            count(figures, UNKNOWN)
            return ""
        said = f"{quoted(identity)} appears, and no input of group {quoted(group)} has this identity"
        return said + self.aborted.get(identity, "")


def _found(run: str, rule: str, at: Found, evidence: str) -> Finding:
    (topic, partition), offset = at
    return Finding(rule=rule, topic=topic, partition=partition, offset=offset, run=run, evidence=evidence)


def judge_generations(run: Sequence[Event], figures: Figures) -> Iterator[Finding]:
    """Find commits that the coordinator accepted from a member of a past generation."""
    present: dict[str, int] = {}
    asked: dict[tuple[str, str, str], int] = {}  # process, group, request -> the generation when it was sent
    for event in run:
        group, generation = event.group, event.generation
        if group is None or event.order is None:
            continue
        request = (event.process, group, str(event.detail.get("request")))
        if (event.action, event.phase) == ("JoinGroup", "ok") and generation is not None:
            present[group] = generation  # lower than before only if the group was forgotten meanwhile
        elif event.action in {"OffsetCommit", "TxnOffsetCommit"} and generation is not None and generation >= 0:
            if event.phase == "invoke":
                asked[request] = present.get(group, -1)
            elif event.phase == "ok":
                count(figures, "checked")
                now = asked.get(request, -1)
                if now < 0:
                    count(figures, UNKNOWN)
                elif generation < now:
                    evidence = f"{event.process} committed {event.detail.get('committed_offset')} as a member of "
                    evidence += f"generation {generation} of {quoted(group)}, when generation {now} had begun"
                    yield Finding(
                        rule=FENCED_GENERATION,
                        topic=event.topic or "",
                        partition=-1 if event.partition is None else event.partition,
                        producer_id=event.producer_id,
                        producer_epoch=event.producer_epoch,
                        run=event.run,
                        evidence=f"event {event.order}: {evidence}",
                    )
