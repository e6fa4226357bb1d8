"""The rules over client histories, joined with the logs, in their readable form.

The audit proves by columns that most of a history agrees with the logs
(:mod:`kafka_eos_checks.audit.plan.history_plan`); these rules judge the rest. The oracle,
:mod:`kafka_eos_checks.audit.oracle.readable_histories`, lets them judge everything.

``acknowledged but lost``
    A ``Send`` that was answered ``ok`` for an offset at which no replica of the partition has its value; a log without
    holes may have a marker there. *Unknown*, and no finding: an offset below the start of a log, in a hole or in a
    damaged region of it; a ``Send`` without an offset whose value is nowhere in the logs. For a replicated partition
    give all replicas, because one may lag. Where no log of the partition is given, readers decide: it is a finding if a
    reader has passed over the offset and no reader was given the value. *Unknown*: no reader passed it; a ``Send`` of a
    transaction that its application does not know as committed.

``duplicate value``
    A value that clients sent n times to a topic and that one broker's logs of the topic have at more than n offsets. A
    ``Send`` that was answered ``fail`` does not count among the n: its client may send the value again. The rule counts
    by topic because a client that leaves the partition to its library does not know it when it sends. Values of aborted
    transactions, or of transactions still open at the log's end, do not count, because a client sends them again. Where
    no log of the topic is given, the rule counts the offsets at which readers were given the value, except readers of
    uncommitted data.

``refused without cause``
    A fatal refusal of a producer that nobody fenced and that did nothing wrong. A request that a test had answered with
    an error (``detail.fault`` is ``error``) was not handled by the server, so neither it nor its answer counts:

    - INVALID_PRODUCER_EPOCH or PRODUCER_FENCED in the answer to a request of (producer id, epoch) that nobody fenced.
      Nobody did if no event up to the answer, in the history's order, has a higher epoch for that producer id or is
      the ``InitProducerId`` that is given one later, and no ``InitProducerId`` for the same transactional id was
      invoked since the one that gave (producer id, epoch), or was unanswered when that one was invoked (a copy that
      arrives late fences its own client), and no ``TimeOut`` of its transaction came since: the coordinator raises the
      epoch when a transaction times out. An answer to ``EndTxn`` may also give the next epoch
      (KIP-890; ``next_producer_id`` and ``next_producer_epoch`` in the event's detail).
      *Unknown*: the history does not show who gave the epoch; an ``EndTxn`` of the producer is not answered yet; or the
      log has an ABORT marker of a higher epoch, or no log is given and a transaction has begun. In the last two cases
      the coordinator may have fenced the producer when its transaction timed out; a history without ``TimeOut`` cannot
      tell when, since a log and a history have no common order. The coordinator's log can: if it shows that the next
      epoch's decision came before the timeout (:mod:`timeouts`), the marker is that of the client's own abort after the
      refusal, which excuses nothing.
    - INVALID_TXN_STATE in the answer to a ``Produce`` of a transaction that nobody ended. The same conditions hold, and
      an ``AddPartitionsToTxn`` has registered the partition since the last ``EndTxn`` of (producer id, epoch) was
      invoked. For a producer that sends no ``AddPartitionsToTxn`` (KIP-890 part 2): no ``EndTxn`` of (producer id,
      epoch) was invoked at all. Also *unknown*: the partition has a marker of the producer that was written again,
      because it may have come between the batch's verification and its append.
    - OUT_OF_ORDER_SEQUENCE_NUMBER in the answer to a ``Produce`` whose batch is either the next expected one or a retry
      that the leader has to remember. This is certain under two conditions. When the request was sent, an acknowledged
      batch of the same (partition, producer id, epoch) ended right before it, or it begins with 0. And fewer than five
      batches with later sequences were sent before the refusal. If the batch is not stored, it is then the next one; if
      it is stored, it is among the last five. Attempts that the history does not distinguish (``request`` or
      ``attempt`` in the event's detail) are judged by the first of them.

``transaction committed without its application``
    A ``Send`` of a transaction (``detail.transaction``) whose value a COMMIT marker made visible, although the client
    never invoked ``CommitTransaction`` for that transaction, or each such call was answered ``fail``, or its
    ``AbortTransaction`` was answered ``ok``. If the value was sent in several transactions, it is of those that their
    application does not know as aborted. *Unknown*: a client without events for its transactions; a marker after a
    hole, because the hole may have had the transaction's own marker.

:data:`HISTORY_RULES` also has the rules of :mod:`readers` (answers to applications, records given to readers), of
:mod:`applications` (inputs, outputs and offsets) and of :mod:`sent_offsets` (offsets sent in transactions).
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import INJECTED, Event
from kafka_eos.machines.producer_state import Limits
from kafka_eos_checks.audit.events.recorded import EPOCH_REFUSALS
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.quoting import named, quoted
from kafka_eos_checks.audit.rules.applications import (
    APPLICATION_RULES,
)
from kafka_eos_checks.audit.rules.log import HALF, SEQUENCE_MASK, Reason
from kafka_eos_checks.audit.rules.readers import (
    COMMITTED_MISSING,
    READER_RULES,
    given,
    look,
    passed_over,
    told_aborted,
)
from kafka_eos_checks.audit.rules.sent_offsets import NOT_AS_SENT
from kafka_eos_checks.audit.rules.timeouts import Deadlines
from kafka_eos_checks.audit.segments.contents import Figures, Place, Replicas, count, encoded, place_of

LOST, DUPLICATE_VALUE, REFUSED = "acknowledged but lost", "duplicate value", "refused without cause"
UNASKED = "transaction committed without its application"
HISTORY_RULES = (LOST, DUPLICATE_VALUE, REFUSED, UNASKED, *READER_RULES, *APPLICATION_RULES, NOT_AS_SENT)
BY_VALUE = (LOST, COMMITTED_MISSING)  # rules that look for the value of each of their subjects
NO_VALUES = Reason("history", "no Send or Poll of the history has a `detail.value`, by which its record would be found")
WINDOW = Limits().cached_batches  # batches that a leader remembers of a producer


@dataclass(slots=True)
class Join:
    """The result of the rules over histories.

    Attributes:
        findings: the violations.
        figures: for each rule, the number of subjects and of unknown ones.
    """

    findings: Collection[Finding] = ()
    figures: dict[str, dict[str, int | float | str]] = field(default_factory=dict)


def lost(run: Sequence[Event], replicas: Replicas, figures: Figures, *, covered: bool = True) -> Iterator[Finding]:
    """Find acknowledged sends whose value no replica has at the acknowledged offset, or no reader was given."""
    read = _Read.of(run)
    for event in run:
        if (event.action, event.phase) != ("Send", "ok"):
            continue
        count(figures, "checked")
        value, place = event.detail.get("value"), place_of(event)
        if value is None or place is None:
            count(figures, "unknown")
            continue
        own = replicas.get(place, ())
        states = [look(contents, event.offset, str(value), covered) for _, contents in own]
        states = states or [read.look(event, place)]
        if "there" in states:
            continue
        if "unknown" in states:
            count(figures, "unknown")
            continue
        yield Finding(
            rule=LOST,
            topic=place[0],
            partition=place[1],
            offset=event.offset,
            run=event.run,
            evidence=f"{event.process} was told that {quoted(str(value))} is at offset {event.offset}; "
            f"there is {states[0]}",
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """The records that readers were given, for partitions whose logs are not given.

    Attributes:
        values: by topic, the values that readers were given.
        passed: the offsets that they passed over.
        committed: transactions that their applications know as committed.
    """

    values: dict[str, set[str]]
    passed: dict[Place, list[range]]
    committed: set[tuple[str, object]]

    @classmethod
    def of(cls, run: Sequence[Event]) -> Self:
        """Collect the records that the readers of a run were given."""
        values: dict[str, set[str]] = defaultdict(set)
        for (topic, _), own in given(run).items():
            values[topic].update(own.values())
        committed = {
            (event.process, event.detail.get("transaction"))
            for event in run
            if (event.action, event.phase) == ("CommitTransaction", "ok")
        }
        return cls(values, passed_over(run), committed)

    def look(self, event: Event, place: Place) -> str:
        """The fate of an acknowledged record: ``there``, ``unknown``, or the difference in words."""
        transaction = event.detail.get("transaction")
        if str(event.detail.get("value")) in self.values[place[0]]:
            return "there"
        if transaction is not None and (event.process, transaction) not in self.committed:
            return "unknown"
        is_passed = event.offset is not None and any(event.offset in passed for passed in self.passed.get(place, ()))
        return "nothing: readers went past it, and none was given it" if is_passed else "unknown"


def duplicate_values(run: Sequence[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Find values that a broker's logs of a topic have, or readers were given, more often than clients sent them."""
    sends: Counter[tuple[str, str]] = Counter()  # topic, value
    failed: Counter[tuple[str, str]] = Counter()
    counts = {"invoke": sends, "fail": failed}
    for event in run:
        value = event.detail.get("value")
        if event.action == "Send" and event.phase in counts and event.topic is not None and value is not None:
            counts[event.phase][event.topic, str(value)] += 1
    figures["checked"] = int(figures["checked"]) + len(sends)
    topics = {topic for topic, _ in sends}
    stored: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)  # broker, topic, value -> places
    for (topic, partition), own in sorted(replicas.items()):
        for log, contents in own if topic in topics else ():
            for offset, value in contents.values.items():
                if value is not None and offset not in contents.hidden:
                    stored[log.broker, topic, value.decode(errors="replace")].append((partition, offset))
    with_logs = {topic for topic, _ in replicas}
    for (topic, partition), values in sorted(given(run).items()):
        for offset, text in sorted(values.items()) if topic in topics - with_logs else ():
            stored["", topic, text].append((partition, offset))
    for (broker, topic, value), at in stored.items():
        sent, done = sends[topic, value], max(sends[topic, value] - failed[topic, value], 0)
        if sent and done < len(at):
            partition, offset = at[done]
            failures = f", of which {sent - done} failed," if done < sent else ""
            where = ", ".join(f"{topic}-{p} offset {o}" for p, o in at)
            yield Finding(
                rule=DUPLICATE_VALUE,
                topic=topic,
                partition=partition,
                broker=broker,
                offset=offset,
                run=run[0].run,
                evidence=f"{quoted(value)} was sent {sent} time(s){failures} and is at {where}",
            )


_Ended = tuple[str, int]  # process, number of its transaction


def unasked(run: Sequence[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Find transactions that were committed although their application never asked for it; each once.

    A value that was sent again after an abort is of the transaction that was not aborted.
    """
    commits = [
        (event.phase, (event.process, event.detail.get("transaction")))
        for event in run
        if event.action == "CommitTransaction"
    ]
    called, failed = (Counter(ended for phase, ended in commits if phase == one) for one in ("invoke", "fail"))
    aborted = told_aborted(run)
    asked = set(called - failed) - aborted
    telling: set[str] = set()
    sources: dict[tuple[str, bytes], set[_Ended]] = defaultdict(set)
    for event in run:
        number, value = event.detail.get("transaction"), event.detail.get("value")
        if event.phase != "invoke" or not isinstance(number, int):
            continue
        if event.action in {"BeginTransaction", "CommitTransaction", "AbortTransaction"}:
            telling.add(event.process)
        elif event.action == "Send" and event.topic is not None and value is not None:
            sources[event.topic, encoded(str(value))].add((event.process, number))
    committed: set[_Ended] = set()
    places: dict[_Ended, tuple[Place, int, int]] = {}
    for place, own in sorted(replicas.items()):
        for _, contents in own:
            for offset, marker in contents.committed.items():
                sent_in = sources.get((place[0], contents.values[offset] or b""), set())
                committed |= sent_in & asked or sent_in
                for ended in sorted(sent_in & asked or sent_in - aborted or sent_in):
                    places.setdefault(ended, (place, offset, marker))
    figures["checked"] = int(figures["checked"]) + len(committed)
    for ended, (place, offset, marker) in places.items():
        if ended in asked:
            continue
        process, number = ended
        if process not in telling:
            count(figures, "unknown")
            continue
        told = "it is aborted" if ended in aborted else "the commit failed"
        why = f"although it was told that {told}" if ended in called else "which it never asked for"
        evidence = f"transaction {number} of {process} was committed (marker at offset {marker}), {why}"
        yield Finding(
            rule=UNASKED,
            topic=place[0],
            partition=place[1],
            offset=offset,
            run=run[0].run,
            evidence=evidence,
        )


_Request = tuple[str, int, str]  # process, base sequence, number of the request or attempt


@dataclass(slots=True)
class _Sequences:
    """The batches of one (partition, producer id, epoch) in a history.

    Attributes:
        ends: the sequences that come right after an acknowledged batch.
        counts: by base sequence, the numbers of records with which a batch was sent.
        bases: the same base sequences, in ascending order.
        prepared: by request, whether the batch right before its batch was acknowledged when the request was sent.
    """

    ends: set[int] = field(default_factory=set)
    counts: dict[int, set[int | None]] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    prepared: dict[_Request, bool] = field(default_factory=dict)

    def sent(self, request: _Request, sequence: int, count: int | None) -> None:
        """Note a sent request; of attempts that cannot be distinguished the first counts."""
        if sequence not in self.counts:
            insort(self.bases, sequence)
        self.counts.setdefault(sequence, set()).add(count)
        self.prepared.setdefault(request, sequence in self.ends)

    def later(self, sequence: int) -> int:
        """The number of batches sent with later sequences, modulo 2^31."""
        end = sequence + HALF
        wrapped = bisect_left(self.bases, end & SEQUENCE_MASK) if end > SEQUENCE_MASK else 0
        return wrapped + bisect_left(self.bases, end) - bisect_right(self.bases, sequence)

    def begins_epoch(self) -> bool:
        """Whether sequence 0 is the epoch's first, and not the one after 2^31 - 1."""
        return not self.bases or self.bases[-1] < HALF


def refused(
    run: Iterable[Event],
    replicas: Replicas,
    figures: Figures,
    deadlines: Deadlines | None = None,
    only: Container[int] | None = None,
) -> Iterator[Finding]:
    """Find fatal refusals for which the history shows no cause (see the module's docstring).

    Args:
        run: the events of a run, or at least the requests of all clients that had one of the producer ids to judge,
            and of clients that had another producer id of these, and so on.
        replicas: the logs.
        figures: the figures of the rule.
        deadlines: the decisions that the coordinators' logs show.
        only: the producer ids to judge; None for all.
    """
    sequences: dict[tuple[Place, int, int], _Sequences] = defaultdict(_Sequences)
    handled = list(_handled(run))
    fencing, given = _Fencing(deadlines or Deadlines()), _given(handled)
    for number, event in enumerate(handled):
        fencing.follow(event, given.get(number))
        pid, epoch, place = event.producer_id, event.producer_epoch, place_of(event)
        if pid is None or epoch is None or pid < 0 or epoch < 0 or (only is not None and pid not in only):
            continue
        evidence = ""
        if event.phase == "fail" and (event.error in EPOCH_REFUSALS or fencing.is_in_transaction(event)):
            count(figures, "checked")
            aborts = (contents.highest_abort.get(pid, -1) for own in replicas.values() for _, contents in own)
            rewritten = any(pid in contents.rewritten for _, contents in replicas.get(place or ("", -1), ()))
            unsure = rewritten and event.error == ErrorCode.INVALID_TXN_STATE
            highest = max(aborts, default=-1) if replicas else None
            evidence = UNKNOWN if unsure else fencing.judge(event, pid, epoch, highest)
        elif event.action == "Produce" and place is not None and event.base_sequence is not None:
            evidence = _out_of_order(event, event.base_sequence, sequences[place, pid, epoch], figures)
        if evidence == UNKNOWN:
            count(figures, "unknown")
        elif evidence:
            yield Finding(
                rule=REFUSED,
                topic=event.topic or "",
                partition=-1 if event.partition is None else event.partition,
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=event.base_sequence,
                run=event.run,
                evidence=f"{named(event)}: {evidence}",
            )


def _handled(run: Iterable[Event]) -> Iterator[Event]:
    """The events of a run, without the requests that a test had answered with an error, and without these answers."""
    injected: set[tuple[str, str]] = set()
    for event in run:
        number = event.detail.get("request")
        request = event.process, str(number)
        if event.phase == "invoke" and event.detail.get("fault") == INJECTED:
            injected.add(request)
        if number is None or request not in injected:
            yield event


def _given(events: Sequence[Event]) -> dict[int, tuple[int, int]]:
    """The producer ids and epochs that were given to clients, by the number of the event that asked for them.

    A client may ask several times before it is given one (CONCURRENT_TRANSACTIONS, lost answers). The first request
    counts, because the coordinator may have fenced the former epoch with it.
    """
    asking: dict[str, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for number, event in enumerate(events):
        if event.action != "InitProducerId":
            continue
        client = event.process if event.transactional_id is None else event.transactional_id
        if event.phase == "invoke":
            asking.setdefault(client, number)
        elif event.phase == "ok" and event.producer_id is not None and event.producer_epoch is not None:
            found[asking.pop(client, number)] = event.producer_id, event.producer_epoch
    return found


def _request(event: Event) -> tuple[str, str]:
    """The process of a request and its number there."""
    return event.process, str(event.detail.get("request", event.detail.get("attempt")))


UNKNOWN = "unknown"
_BEGIN = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit"})


@dataclass(slots=True)
class _Fencing:
    """The epochs given so far, and the requests that may have fenced them.

    Attributes:
        deadlines: the decisions that the coordinators' logs show.
        highest: by producer id, the highest epoch in any event.
        asked: by producer id, the highest epoch that was given to a request so far, or will be. It is not in
            ``highest``, because a timeout raises only epochs that were given.
        requests: by transactional id, how many ``InitProducerId`` were invoked.
        asking: by process and transactional id, the number of its last request among these.
        pending: by transactional id, the process and number of each ``InitProducerId`` that is not answered.
        crossed: those of them that were invoked while another one of their transactional id was not answered, with this
            id: without numbers, a process names its requests for several ids alike.
        grants: by producer id and epoch, the transactional id and the number of the request that gave them; -1 if the
            request was ``crossed``: the other one may have come to the coordinator after it.
        ending: producer ids and epochs with an ``EndTxn`` that is not answered: it may raise the epoch (KIP-890).
        ended: producer ids and epochs with any ``EndTxn``.
        registering: producer ids that have sent ``AddPartitionsToTxn``.
        registered: by producer id and epoch, the partitions that are registered since the last ``EndTxn``.
        open: producer ids and epochs with a request that begins a transaction since the last ``EndTxn`` that succeeded.
        holders: by transactional id, the producer id that it was given last.
    """

    deadlines: Deadlines
    highest: dict[int, int] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    requests: Counter[str | None] = field(default_factory=Counter)
    asking: dict[tuple[str, str | None], int] = field(default_factory=dict)
    pending: dict[str | None, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    crossed: set[tuple[str | None, str, str]] = field(default_factory=set)
    grants: dict[tuple[int, int], tuple[str | None, int]] = field(default_factory=dict)
    ending: set[tuple[int, int]] = field(default_factory=set)
    ended: set[tuple[int, int]] = field(default_factory=set)
    registering: set[int] = field(default_factory=set)
    registered: dict[tuple[int, int], set[Place | None]] = field(default_factory=lambda: defaultdict(set))
    open: set[tuple[int, int]] = field(default_factory=set)
    holders: dict[str | None, int] = field(default_factory=dict)

    def follow(self, event: Event, given: tuple[int, int] | None = None) -> None:
        """Follow one event; ``given``: the producer id and epoch that it asks for, if it is given some."""
        if given is not None:
            of, least = given
            self.asked[of] = max(least, self.asked.get(of, least))
        name, pid, epoch = event.transactional_id, event.producer_id, event.producer_epoch
        if event.action == "InitProducerId":
            self._follow_question(event)
        if event.action == "TimeOut":
            self._timed_out(pid if pid is not None or name is None else self.holders.get(name))
        if pid is None or epoch is None or pid < 0 or epoch < 0:
            return
        self._saw(pid, epoch)
        if event.action in _BEGIN and event.phase in {"ok", "info"}:
            self.open.add((pid, epoch))
        if event.action == "InitProducerId" and event.phase == "ok":
            number = -1 if (name, *_request(event)) in self.crossed else self.asking.get((event.process, name), 0)
            self.grants[pid, epoch] = (name, number)
            self.holders[name] = pid
        elif event.action == "AddPartitionsToTxn":
            self.registering.add(pid)
            if event.phase == "ok":
                self.registered[pid, epoch].add(place_of(event))
        elif event.action == "EndTxn" and event.phase == "invoke":
            self.ending.add((pid, epoch))
            self.ended.add((pid, epoch))
            self.registered.pop((pid, epoch), None)
        elif event.action == "EndTxn" and event.phase in {"ok", "fail"}:
            self.ending.discard((pid, epoch))
            self.open -= {(pid, epoch)} if event.phase == "ok" else set()
            self._ended(event, pid, epoch)

    def _follow_question(self, event: Event) -> None:
        """Follow an ``InitProducerId`` or its answer: how many there were, and whether another one is unanswered."""
        name, request = event.transactional_id, _request(event)
        if event.phase == "invoke":
            self.requests[name] += 1
            self.asking[event.process, name] = self.requests[name]
            self.crossed |= {(name, *request)} if self.pending[name] else set()
            self.pending[name].add(request)
        elif event.phase != "info":
            self.pending[name].discard(request)

    def _saw(self, pid: int, epoch: int) -> None:
        self.highest[pid] = max(epoch, self.highest.get(pid, epoch))

    def _timed_out(self, pid: int | None) -> None:
        """Follow a timeout: the coordinator raises the epoch, so that every epoch given so far is fenced."""
        if pid is not None and pid in self.highest:
            self._saw(pid, self.highest[pid] + 1)

    def _ended(self, event: Event, pid: int, epoch: int) -> None:
        """Follow an answer to ``EndTxn`` that gives the producer its next epoch, or its next id when epochs run out."""
        next_pid, next_epoch = event.detail.get("next_producer_id"), event.detail.get("next_producer_epoch")
        if not isinstance(next_pid, int) or not isinstance(next_epoch, int) or next_pid < 0:
            return
        self._saw(next_pid, next_epoch)
        self._saw(pid, epoch + (next_pid != pid))
        if (pid, epoch) in self.grants:
            self.grants.setdefault((next_pid, next_epoch), self.grants[pid, epoch])

    def is_in_transaction(self, event: Event) -> bool:
        """Whether a batch was refused for its transaction's state, although nobody asked to end the transaction."""
        pid, epoch = event.producer_id, event.producer_epoch
        if event.action != "Produce" or event.error != ErrorCode.INVALID_TXN_STATE or pid is None or epoch is None:
            return False
        if pid in self.registering:
            return place_of(event) in self.registered.get((pid, epoch), ())
        return (pid, epoch) not in self.ended

    def judge(self, event: Event, pid: int, epoch: int, highest_abort: int | None) -> str:
        """Evidence that nobody fenced a refused producer, "" if somebody did, or :data:`UNKNOWN`.

        Args:
            event: the refusal.
            pid: the producer id.
            epoch: the epoch of the producer.
            highest_abort: the highest epoch of the producer id's ABORT markers; None if no log is given.
        """
        if max(self.highest[pid], self.asked.get(pid, epoch)) > epoch:
            return ""
        if (pid, epoch) not in self.grants or (pid, epoch) in self.ending:
            return UNKNOWN
        transactional_id, number = self.grants[pid, epoch]
        if transactional_id is not None and self.requests[transactional_id] > number:
            return ""
        if highest_abort is None and (pid, epoch) in self.open:
            return UNKNOWN
        if highest_abort is not None and highest_abort > epoch and not self.deadlines.are_kept(pid, epoch + 1):
            return UNKNOWN
        name = ErrorCode(event.error or 0).name
        return f"{event.action} refused with {name}, but nothing has a higher epoch and nobody asked for a new one"


def _out_of_order(event: Event, sequence: int, known: _Sequences, figures: Figures) -> str:
    """Follow one ``Produce`` event; return evidence that the leader refused a batch that it has to accept, or ""."""
    request = (event.process, sequence, str(event.detail.get("request", event.detail.get("attempt"))))
    if event.phase == "invoke":
        known.sent(request, sequence, event.record_count)
    elif event.phase == "ok" and event.record_count:
        known.ends.add((sequence + event.record_count) & SEQUENCE_MASK)
    elif event.phase == "fail" and event.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        count(figures, "checked")
        same = known.counts.get(sequence) == {event.record_count} != {None}
        prepared = known.prepared.get(request, False) or (sequence == 0 and known.begins_epoch())
        later = known.later(sequence)
        if same and prepared and later < WINDOW:
            before = f"what comes before it was acknowledged and {later} later batch(es) sent"
            return f"Produce of sequence {sequence} refused with OUT_OF_ORDER_SEQUENCE_NUMBER, but {before}"
    return ""
