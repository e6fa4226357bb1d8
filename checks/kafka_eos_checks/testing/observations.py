"""Problems, warnings and hints about an application that only its running broker shows, not its logs and histories.

A *problem* fails the test like a finding of the audit. A *warning* is told although every input was processed once. A
*hint* explains findings of a rule in this test: which mistake the requests show.

``offset beyond its inputs``
    A transaction committed an offset past an input, and a later one wrote the output of that input.

``offset set back``
    An offset was committed outside of transactions, below inputs whose outputs are there and had been counted.

``transaction left open``
    The application has a transaction open, and the test says that it has processed every input.

``outputs of an input``
    An input has another number of outputs than the test says.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import Event
from kafka_eos.machines.transaction_coordinator import ONGOING
from kafka_eos.server.cluster import CONSUMER_OFFSETS, Cluster
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.coordinators.group_log import read_group_log
from kafka_eos_checks.audit.moments import in_words
from kafka_eos_checks.audit.rules.applications import (
    IN_SOME_TOPICS,
    LONGER,
    NEVER_WRITTEN,
    NOT_PROCESSED,
    OFFSET_ALONE,
    OUTPUT_ALONE,
    SKIPPED,
    TWICE,
    Attempt,
    Offsets,
    Requests,
    read_requests,
)
from kafka_eos_checks.audit.rules.declared import Found
from kafka_eos_checks.audit.segments.contents import Place, place_of, read_contents
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs

if TYPE_CHECKING:
    from kafka_eos_checks.testing.exactly_once import Application, Identified, StoredRecord

BEYOND_INPUTS, SET_BACK = "offset beyond its inputs", "offset set back"
LEFT_OPEN, OUTPUTS = "transaction left open", "outputs of an input"
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
TELL_APART = "let identity= return a tuple of two for each output: the identity, and which of the outputs it is"
BY_FAULT, TOO_LATE = "by a fault of the test", "as its transaction had timed out"
SHOWN_INPUTS = 5  # of a rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reason for which a test fails that is no finding of the audit.

    Attributes:
        name: the name of its kind.
        evidence: what was seen, and where.
        means: the consequence.
        step: the remedy.
    """

    name: str
    evidence: str
    means: str
    step: str


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that its coordinator has open.

    Attributes:
        name: the transactional.id.
        since_ms: when it began, in milliseconds since the epoch.
        timeout_ms: its timeout.
    """

    name: str
    since_ms: int
    timeout_ms: int

    def __str__(self) -> str:
        return (
            f"transactional.id {self.name!r} has a transaction open since {in_words(self.since_ms)}; until it ends, "
            f"at the latest by its timeout of {self.timeout_ms / 1000:g} s, read_committed readers wait"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """The situations that an application met in a test: a mistake shows only in a run that meets what it is about.

    Attributes:
        inputs: the committed inputs that have an identity.
        committed: the transactions that the application committed.
        aborted: the transactions that it aborted itself.
        started: how many times a producer of it was given a producer id and epoch.
        most_partitions: the most partitions whose offsets were sent in one transaction, committed or not.
        generations: the generations of its group that sent requests; a rebalance begins another one.
        refused: by error, how many requests of its producers and group were answered with it.
        unasked: the topics that clients wrote to, and that are neither inputs nor outputs of the question.
    """

    inputs: int
    committed: int
    aborted: int
    started: int
    most_partitions: int
    generations: int
    refused: Counter[str]
    unasked: tuple[str, ...] = ()

    def __str__(self) -> str:
        refused = ", ".join(f"{name} {count}" for name, count in self.refused.items())
        unasked = f"; written to, and not asked about: {', '.join(self.unasked)}" if self.unasked else ""
        return (
            f"{self.inputs} input(s), {self.committed} transaction(s) committed and {self.aborted} aborted, "
            f"offsets of at most {self.most_partitions} partition(s) in one, {self.started} start(s) of producers, "
            f"{self.generations} generation(s) of the group, refused: {refused or 'nothing'}{unasked}"
        )


@dataclass(kw_only=True)
class Observed:
    """The facts about an application on its broker.

    Attributes:
        application: the application of the test.
        identified: the identities of its records.
        events: the history.
        data: the log directory.
        open: the transactions that are open.
        has_members: whether a generation of the group has begun.
        uncommitted: client ids and topics that they read with read_uncommitted.
    """

    application: "Application"
    identified: "Identified"
    events: Sequence[Event]
    data: Path
    open: Sequence[OpenTransaction]
    has_members: bool
    uncommitted: Iterable[tuple[str, str]] = ()

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        application: "Application",
        identified: "Identified",
        events: Sequence[Event],
        data: Path,
        uncommitted: Iterable[tuple[str, str]],
    ) -> "Observed":
        """Ask the cluster."""
        return cls(
            application=application,
            identified=identified,
            events=events,
            data=data,
            open=[
                OpenTransaction(name, known.start_ms, known.timeout_ms)
                for name, known in cluster.transactions.known.items()
                if known.state is ONGOING and known.machine.metadata.pending is None
            ],
            has_members=any(
                event.group == application.group and (event.action == "JoinGroup" or (event.generation or 0) > 0)
                for event in events
            ),
            uncommitted=uncommitted,
        )

    @cached_property
    def requests(self) -> Requests:
        """The transactions as the requests show them."""
        return read_requests(self.events)

    def met(self) -> Met:
        """The situations that the application met."""
        name = self.application.group
        own = [each for each in self.events if each.group == name or each.transactional_id in self._own_ids]
        ended = [each.detail.get("committed") for each in own if (each.action, each.phase) == ("EndTxn", "ok")]
        asked = {*self.application.inputs, *self.application.outputs}
        written = {each.topic for each in self.events if each.action == "Produce" and each.topic is not None}
        partitions: dict[Attempt, set[Place]] = defaultdict(set)
        for ((group, place), _), attempts in self.requests.commits.items():
            for attempt in attempts if group == name else ():
                if attempt[1] is not None:  # in a transaction
                    partitions[attempt].add(place)
        return Met(
            inputs=len(self.identified.inputs),
            committed=ended.count(True),
            aborted=ended.count(False),
            started=sum((each.action, each.phase) == ("InitProducerId", "ok") for each in own),
            most_partitions=max(map(len, partitions.values()), default=0),
            generations=len({each.generation for each in own if each.generation is not None and each.generation >= 0}),
            refused=Counter(ErrorCode(each.error).name for each in own if each.error),
            unasked=tuple(sorted(written - asked)),
        )

    # --- problems ----------------------------------------------------------------------------------------------------

    def problems(self, findings: Sequence[Finding]) -> Iterator[Problem]:
        """The reasons to fail the test besides the findings of the audit."""
        yield from self._too_far(findings)
        yield from self._set_back()
        if self.application.everything:
            for each in self._own_open():
                yield Problem(
                    name=LEFT_OPEN,
                    evidence=f"{each}{self._started_since(each)}",
                    means="The application has not ended what it began. Until then its readers wait, and if the "
                    "transaction has offsets, members of the group that start get none.",
                    step="commit or abort in each path, also when the application ends by an error; start an instance "
                    "again with the transactional.id that it had, which aborts what it left open; everything=False, if "
                    "the test looks before it is done",
                )
        yield from self._wrong_number()

    def _own_open(self) -> list[OpenTransaction]:
        """The open transactions in which the application wrote outputs or sent offsets."""
        own = {*self.application.outputs, self.application.group}
        begun = self.requests.begun
        return [each for each in self.open if each.name in begun and begun[each.name].touched & own]

    def _started_since(self, left: OpenTransaction) -> str:
        """A producer with another id that started since, which did not abort the transaction, in words; "" for none.

        It wrote for the application, or has written nothing: without its group's offsets it cannot begin.
        """
        began = self.requests.begun[left.name].order or 0
        of_others = {each.transactional_id for each in self.events if each.topic} - self._own_ids
        for event in self.events:
            name = event.transactional_id
            is_start = (event.action, event.phase) == ("InitProducerId", "ok") and (event.order or 0) > began
            if is_start and name not in {None, left.name, *of_others}:
                return f"; {name!r} started since (event {event.order}), and aborts only transactions of its own id"
        return ""

    @cached_property
    def _own_ids(self) -> set[str]:
        """The transactional ids with which the application wrote outputs or sent offsets, or tried to."""
        own = {*self.application.outputs, self.application.group}
        return {
            event.transactional_id
            for event in self.events
            if event.transactional_id and own & {event.topic, event.group}
        }

    def _too_far(self, findings: Sequence[Finding]) -> Iterator[Problem]:
        """Yield offsets past inputs whose outputs came in a later transaction, one for each transaction."""
        told: set[Attempt] = set()
        alone = [finding for finding in findings if finding.rule == OUTPUT_ALONE]
        offsets = Offsets([read_group_log(log) for log in (self._offset_logs if alone else ())])
        for finding in alone:
            source = self._input_of(finding)
            if source is None:
                continue
            name = self.application.group, (source.topic, source.partition)
            commit, wrote = offsets.covering(name, source.offset), self.requests.attempt(_at(finding))
            if commit is None or isinstance(commit, str) or not commit.transactional:
                continue
            for asked in self.requests.commits.get((name, commit.offset or 0), ()):
                is_before = asked[0] == wrote[0] and (asked[1] or 0) < (wrote[1] or 0)
                if is_before and asked not in told:
                    told.add(asked)
                    yield Problem(
                        name=BEYOND_INPUTS,
                        evidence=f"transaction {asked[1]} of {asked[0]!r} committed offset {commit.offset} of "
                        f"{source.topic}-{source.partition}, which is past {source}; transaction {wrote[1]} wrote the "
                        "output of that input",
                        means="An application that stops between the two loses the input.",
                        step="commit the offset of the last input whose output is in the transaction, plus one",
                    )

    def _set_back(self) -> Iterator[Problem]:
        """Yield partitions whose offset a later commit outside of transactions has taken back below processed inputs.

        The audit finds an offset that a transaction has taken back.
        """
        visible: dict[Place, list[StoredRecord]] = defaultdict(list)
        for identity, source in self.identified.inputs.items():
            if any(not self._is_hidden(output) for _, output in self.identified.outputs.get(identity, ())):
                visible[source.topic, source.partition].append(source)
        for log in self._offset_logs:
            commits = read_group_log(log).commits
            for place, sources in visible.items():
                own = commits[self.application.group, place]
                if not own or own[-1].transactional or own[-1].offset is None:
                    continue
                now, highest = own[-1].offset, max(each.offset or 0 for each in own)
                again = [source for source in sources if now <= source.offset < highest]
                if again:
                    yield Problem(
                        name=SET_BACK,
                        evidence=f"group {self.application.group!r} had committed offset {highest} of "
                        f"{place[0]}-{place[1]}, and then {now}, outside of a transaction; outputs of {len(again)} "
                        f"input(s) from there on are written, the first of {min(again, key=lambda one: one.offset)}",
                        means="An application that starts again reads these inputs once more, and writes their outputs "
                        "twice.",
                        step="send offsets with send_offsets_to_transaction only; leave out consumer.commit() and "
                        "enable.auto.commit",
                    )

    def _wrong_number(self) -> Iterator[Problem]:
        """Yield inputs with another number of outputs than the test says; those without any are findings already."""
        wanted = self.application.outputs_per_input
        if wanted is None:
            return
        for identity, source in self.identified.inputs.items():
            expected = wanted if isinstance(wanted, int) else wanted(source)
            names: dict[str, list[Hashable]] = defaultdict(list)
            for which, output in self.identified.outputs.get(identity, ()):
                if not self._is_hidden(output):
                    names[output.topic].append(which)
            for topic, written in names.items():
                own = set(written)
                if len(own) == expected:
                    continue
                step = "write all outputs of an input before its offset is sent, in the same transaction"
                there = f"{expected} are expected; there: {', '.join(sorted(map(repr, own)))}"
                if own == {0} and len(written) > 1:  # no output has a name
                    there = f"by identity=, which tells none of {len(written)} records apart; {expected} are expected"
                    step = f"{TELL_APART}; then {step}"
                yield Problem(
                    name=OUTPUTS,
                    evidence=f"{source} has {len(own)} output(s) in {topic}, {there}",
                    means="An output of this input is missing." if len(own) < expected else "There are too many.",
                    step=step,
                )

    # --- warnings ----------------------------------------------------------------------------------------------------

    def warnings(self) -> Iterator[str]:
        """The dangers that the test is told of even if every input was processed once."""
        if not self.application.everything:
            yield from map(str, self._own_open())
        for client, topic in sorted(self.uncommitted):
            if topic in (*self.application.inputs, *self.application.outputs):
                yield (
                    f"client {client!r} reads {topic!r} with isolation.level=read_uncommitted: it is also given "
                    "records of transactions that abort; set read_committed"
                )
        shared = list(shared_ids(self.events))
        yield from shared
        if not shared:
            yield from self._replaced()
        yield from self._without_generation()

    def _replaced(self) -> Iterator[str]:
        """Yield the producers that were still at work when another one started with their transactional.id.

        A producer that asks for another epoch after an error gives the id and epoch that it has, and fences itself.
        """
        asked = {each.detail.get("request") for each in self.events if each.producer_id == -1}
        for event, why, started in self._fenced():
            if why not in {BY_FAULT, TOO_LATE} and started is not None and started.detail.get("request") in asked:
                yield (
                    f"{event.transactional_id!r} was fenced while it was at work, {why}: its {event.action} was "
                    f"refused (event {event.order}); unless it was meant to be replaced, give each instance a "
                    "transactional.id of its own"
                )

    def _without_generation(self) -> Iterator[str]:
        """Yield the first transaction of each transactional.id with offsets that the group could not refuse (KIP-447).

        A group without members has no generation that a request could lack.
        """
        told: set[str] = set()
        for (name, number), with_generation in self._generations().items() if self.has_members else ():
            if with_generation == {False} and name not in told:
                told.add(name)
                yield (
                    f"transaction {number} of {name!r} committed its offsets without the generation and member of its "
                    f"consumer: group {self.application.group!r} could not refuse it, although another member may "
                    "have had the partition; send the consumer's group metadata"
                )

    # --- hints -------------------------------------------------------------------------------------------------------

    def hints(self, rule: str, findings: Sequence[Finding]) -> Iterator[str]:
        """The mistakes that the requests show behind findings of a rule."""
        if rule in {NOT_PROCESSED, SKIPPED}:
            yield from self._named(findings)
        if rule == NOT_PROCESSED:
            yield from self._aborted()
            yield from self._why_fenced()
        elif rule == SKIPPED:
            yield from self._passed_over(findings)
        elif rule == TWICE:
            yield from self._not_told_apart(findings)
            yield from self._by_two(findings)
        elif rule == OUTPUT_ALONE:
            if any(self._too_far(findings)):
                yield f"an offset past the input was committed too early; see {BEYOND_INPUTS!r} above"
            yield from self._too_low(findings)
        elif rule == OFFSET_ALONE and any(IN_SOME_TOPICS in finding.evidence for finding in findings):
            yield (
                "if each input has its output in only one of the topics, ask once for each topic, with an identity= "
                "that returns None for the inputs whose output is elsewhere"
            )

    def _generations(self) -> dict[Attempt, set[bool]]:
        """Whether the group's offsets of each transaction were committed with a generation, from the requests."""
        found: dict[Attempt, set[bool]] = defaultdict(set)
        for event in self.events:
            if (event.action, event.phase, event.group) != ("TxnOffsetCommit", "ok", self.application.group):
                continue
            place, committed = place_of(event), event.detail.get("committed_offset")
            if place and isinstance(committed, int):
                for attempt in self.requests.commits.get(((self.application.group, place), committed), ()):
                    if attempt[0] == event.transactional_id:
                        found[attempt].add(event.generation is not None and event.generation >= 0)
        return found

    def _aborted(self) -> Iterator[str]:
        """Yield the last abort of each producer of the application after which it ended another transaction."""
        own = {*self.application.outputs, self.application.group}
        touched: dict[str, set[str]] = defaultdict(set)
        last: dict[str, Event] = {}
        aborted: dict[str, Event] = {}
        for event in self.events:
            name = event.transactional_id
            if name is None:
                continue
            if event.action in {"Produce", "TxnOffsetCommit"}:
                touched[name].add(event.group or event.topic or "")
            elif (event.action, event.phase) == ("EndTxn", "ok") and touched.pop(name, set()) & own:
                last[name] = event
                if event.detail.get("committed") is False:
                    aborted[name] = event
        for name, event in aborted.items():
            if last[name] is not event:
                yield f"{name!r} aborted a transaction (event {event.order}): did it go back to the committed offsets?"

    def _named(self, findings: Sequence[Finding]) -> Iterator[str]:
        """Yield the identities of the first inputs: a test knows its inputs by them, and not by their offsets."""
        names = {
            (source.topic, source.partition, source.offset): name for name, source in self.identified.inputs.items()
        }
        own = [names.get((each.topic or "", each.partition or 0, each.offset or 0)) for each in findings]
        shown = [self.identified.text(each) for each in own if each is not None][:SHOWN_INPUTS]
        if shown:
            more = ", …" if len(own) > len(shown) else ""
            yield f"by their identities: {', '.join(map(repr, shown))}{more}"

    def _fenced(self) -> Iterator[tuple[Event, str, Event | None]]:
        """Yield the first refusal of each producer of the application that was fenced, why, and the last start."""
        latest: dict[str, Event] = {}
        told: set[str] = set()
        by_fault = {each.detail.get("request") for each in self.events if "fault" in each.detail}
        for event in self.events:
            name = event.transactional_id
            if name not in self._own_ids or name is None:
                continue
            if (event.action, event.phase) == ("InitProducerId", "ok"):
                latest[name] = event
            if event.error in FENCED and name not in told:
                told.add(name)
                is_fault = event.detail.get("request") in by_fault
                started = latest.get(name)
                yield event, BY_FAULT if is_fault else _fenced_by(event, started), started

    def _why_fenced(self) -> Iterator[str]:
        """Yield why each producer of the application was fenced, and what to do."""
        for event, why, _ in self._fenced():
            remedy = LONGER if why == TOO_LATE else "instances that run at the same time need a transactional.id each"
            yield (
                f"{event.transactional_id!r} was fenced, {why}: its {event.action} was refused (event {event.order}). "
                "A fenced producer never works again: close it, and go on with a new one from the committed offsets; "
                f"{remedy}"
            )

    def _passed_over(self, findings: Sequence[Finding]) -> Iterator[str]:
        """Tell that no output of skipped inputs was sent, and that nothing was aborted after which to go back."""
        if any(NEVER_WRITTEN not in finding.evidence for finding in findings):
            return
        if any(
            each.detail.get("committed") is False and each.transactional_id in self._own_ids for each in self.events
        ):
            return
        yield (
            "the broker was sent no output of these inputs, and no abort: look for a filter, or for an error that the "
            "application catches around a send and passes over"
        )

    def _not_told_apart(self, findings: Sequence[Finding]) -> Iterator[str]:
        """Tell that outputs of one input in one transaction differ: they may be several outputs, and no copies."""
        for finding in findings:
            identity, which = self._identities.get(_at(finding), (None, 0))
            by_attempt: dict[tuple[str, Attempt], set[bytes | None]] = defaultdict(set)
            for name, output in self.identified.outputs.get(identity, ()):
                if name == which and not self._is_hidden(output):
                    attempt = self.requests.attempt(((output.topic, output.partition), output.offset))
                    by_attempt[output.topic, attempt].add(output.value)
            if any(len(values) > 1 for values in by_attempt.values()):
                yield f"these outputs have different values in one transaction; if an input has several, {TELL_APART}"
                return

    def _by_two(self, findings: Sequence[Finding]) -> Iterator[str]:
        """Yield the first input of which two transactions wrote the output, and why, as far as the requests show it."""
        for finding in findings:
            source, (identity, which) = self._input_of(finding), self._identities.get(_at(finding), (None, 0))
            wrote = self._written(
                ((output.topic, output.partition), output.offset)
                for name, output in self.identified.outputs.get(identity, ())
                if name == which and output.topic == finding.topic and not self._is_hidden(output)
            )
            if source is None or len(wrote) < 2 or any(number is None for _, number in wrote):
                continue
            (first, began), (later, again), *_ = wrote.items()
            if why := self._why_again(source, first, later, self.events[began:again]):
                those = " and ".join(f"transaction {number} of {name!r}" for name, number in (first, later))
                yield f"{those} wrote the output of {source}: {why}"
                return

    def _written(self, places: Iterable[Found]) -> dict[Attempt, int]:
        """The attempts that wrote records, in their order, and which event answered the first such request of each."""
        missing, wrote = set(places), dict[Attempt, int]()
        for number, event in enumerate(self.events):
            if (event.action, event.phase) == ("Produce", "ok") and event.offset is not None:
                place, last = place_of(event), event.offset + (event.record_count or 1) - 1
                for at in {at for at in missing if at[0] == place and event.offset <= at[1] <= last}:
                    missing.remove(at)
                    wrote.setdefault(self.requests.attempt(at), number)
        return wrote

    def _why_again(self, source: "StoredRecord", first: Attempt, later: Attempt, between: Sequence[Event]) -> str:
        """The reason for which a later transaction wrote the output of an input again; "" if the requests show none.

        Without the input's offset in the first transaction no rebalance and no commit without an answer is the reason.
        """
        name = self.application.group, (source.topic, source.partition)
        past = {
            offset: by for (of, offset), by in self.requests.commits.items() if of == name and offset > source.offset
        }
        if not any(first in by for by in past.values()):
            where = "sent in no transaction"
            if past:
                process, number = min(past[min(past)], key=str)
                where = (
                    "committed outside of transactions"
                    if number is None
                    else f"sent in transaction {number} of {process!r}"
                )
            return (
                f"its offset was {where}, so whatever ends the application in between has it written again. Send the "
                "offset in the transaction of the output"
            )
        if unknown := _without_answer(between, first[0]):
            what = "was lost" if unknown.phase == "ok" else "had not come"
            return (
                f"the outcome of the first commit was unknown (its answer {what}, event {unknown.order}), and it did "
                "commit: retry commit_transaction on the same producer, or go on from the group's committed offsets"
            )
        ended = [number for number, event in enumerate(between) if _is_ok(event, "EndTxn", first[0])][:1]
        for event in between[ended[0] :] if ended else ():
            if _is_ok(event, "InitProducerId", later[0]) and not self._joined(between[: ended[0]]):
                return (
                    f"a producer started in between (event {event.order}), after the offset past the input was "
                    "committed: go on from the group's committed offsets"
                )
        joined = self._joined(between)
        if joined is None and first[0] == later[0]:
            return ""
        why = "its partition may have changed hands while a transaction was open"
        if joined is not None:
            why = f"the group rebalanced in between (event {joined.order})"
        return (
            f"{why}. End or abort the transaction before a rebalance takes the partition (in on_revoke), and send the "
            "offsets with the consumer's group metadata"
        )

    def _joined(self, events: Iterable[Event]) -> Event | None:
        """The first event by which a member joined the group."""
        own = (each for each in events if each.group == self.application.group)
        return next((each for each in own if (each.action, each.phase) == ("JoinGroup", "ok")), None)

    def _too_low(self, findings: Sequence[Finding]) -> Iterator[str]:
        """Yield a transaction that wrote an output and committed offsets of the group, but none past its input."""
        group = self.application.group
        for finding in findings:
            source = self._input_of(finding)
            wrote = self.requests.attempt(_at(finding))
            own = {
                (place, offset)
                for ((name, place), offset), attempts in self.requests.commits.items()
                if name == group and wrote in attempts
            }
            if source is None or wrote[1] is None or not own:
                continue
            here = (source.topic, source.partition)
            in_place = [offset for place, offset in own if place == here]
            if in_place and max(in_place) > source.offset:
                continue
            said = f"transaction {wrote[1]} of {wrote[0]!r} wrote the output of {source}, and committed "
            if in_place:
                yield f"{said}only offset {max(in_place)} of that partition: send the offset of its last input plus one"
            else:
                places = ", ".join(sorted({f"{topic}-{partition}" for (topic, partition), _ in own}))
                yield f"{said}offsets of {places} only: send one for each partition of the transaction's inputs"
            return

    # --- records -----------------------------------------------------------------------------------------------------

    @cached_property
    def _identities(self) -> dict[Found, tuple[Hashable, Hashable]]:
        """By place, the identity of each output and the name that tells it from others."""
        return {
            ((output.topic, output.partition), output.offset): (identity, which)
            for identity, outputs in self.identified.outputs.items()
            for which, output in outputs
        }

    def _input_of(self, finding: Finding) -> "StoredRecord | None":
        """The input whose output a finding is about."""
        return self.identified.inputs.get(self._identities.get(_at(finding), (None, 0))[0])

    def _is_hidden(self, record: "StoredRecord") -> bool:
        """Whether a record is in a transaction that was aborted, or is open."""
        return record.offset in self._hidden.get((record.topic, record.partition), ())

    @cached_property
    def _offset_logs(self) -> list[PartitionLog]:
        return [log for log in find_logs(self.data) if log.topic == CONSUMER_OFFSETS]

    @cached_property
    def _hidden(self) -> dict[Place, set[int]]:
        logs = (log for log in find_logs(self.data) if log.topic in self.application.outputs)
        return {(log.topic, log.partition): read_contents(log).hidden for log in logs}


def _fenced_by(refused: Event, started: Event | None) -> str:
    """The reason for which a request was refused as of a fenced producer, from the last start with its id, in words."""
    if started is None or (
        started.producer_id == refused.producer_id and (started.producer_epoch or 0) <= (refused.producer_epoch or 0)
    ):
        return TOO_LATE
    return f"as another instance started with this transactional.id (event {started.order})"


def _is_ok(event: Event, action: str, name: str) -> bool:
    return (event.action, event.phase, event.transactional_id) == (action, "ok", name)


def _without_answer(events: Iterable[Event], name: str) -> Event | None:
    """The end of the transaction that a transactional.id has open at first, if no answer came; None if one came."""
    asked: Event | None = None
    for event in events:
        if event.transactional_id != name:
            continue
        if event.action == "EndTxn":
            is_answered = event.phase != "invoke" and event.detail.get("delivered", True)
            if is_answered and event.phase == "ok":
                return None
            asked = None if is_answered else event
        elif asked is not None and event.action in {"InitProducerId", "Produce", "TxnOffsetCommit"}:
            break  # of the next transaction
    return asked


def _at(finding: Finding) -> Found:
    return (finding.topic, finding.partition), finding.offset or 0


def shared_ids(events: Sequence[Event]) -> Iterator[str]:
    """Yield transactional.ids that members of one generation share: each instance fences the other.

    An id that one member takes over from another changes hands with the generation. A static member that starts again
    in its generation has another member id, and the same instance.
    """
    users: dict[tuple[str, int, str], dict[str, int | None]] = defaultdict(dict)
    for event in events:
        name, group = event.transactional_id, event.group
        member = event.detail.get("instance", event.detail.get("member"))
        generation = -1 if event.generation is None else event.generation
        asked = (event.action, event.phase) == ("TxnOffsetCommit", "invoke") and generation >= 0
        if asked and name and group is not None and isinstance(member, str):
            users[group, generation, name].setdefault(member, event.order)
    told: set[str] = set()
    for (group, generation, name), members in users.items():
        if len(members) > 1 and name not in told:
            told.add(name)
            places = " and ".join(str(order) for order in list(members.values())[:2])
            yield (
                f"{len(members)} members of generation {generation} of group {group!r} use the transactional.id "
                f"{name!r} (events {places}): each instance fences the other when it starts, and aborts its "
                "transaction; give each instance a transactional.id of its own"
            )
