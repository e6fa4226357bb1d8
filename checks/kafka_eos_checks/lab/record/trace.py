"""A trace of PartitionLog from a history's wire events: the actions of one partition's leader, in order.

The wire events give for each request when it was sent, when it was answered, and the answer. The leader's actions in
between are reconstructed:

- appends are in the order of their offsets;
- an answer without error, with an offset that the same batch already has, acknowledges a duplicate;
- an answer with an error of the log's own checks is a refusal, and so is one with an error about producers that no
  leader gives outside of a transaction. Requests with other errors never reached the log, or it is unknown whether they
  did (NOT_LEADER_OR_FOLLOWER from a broker that has just come back);
- a request that a test answered with an error (``detail["fault"]``) never reached the log;
- a gap between offsets was filled by requests whose answers nobody saw;
- a restart takes a snapshot first: both a clean shutdown and the recovery of an unclean one write one at the end of
  the log (``LogLoader.recoverSegment``), and a snapshot keeps only the last batch of each producer.

The leader acknowledged or refused at some moment between request and answer, and the answers of several connections
can be seen in an order other than the leader's. ``detail["invoked"]`` and ``detail["answered"]`` are the two ends, as
orders of the history; see :func:`wire_trace` for the place chosen between them.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import INJECTED, Event
from kafka_eos.machines.producer_state import Batch, Log, ProducerState

# Errors of the checks that a log makes before it appends, and errors about producers that it never gives.
_REFUSALS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
_HIGHEST_ERROR = 200  # Kafka 4.3 has errors up to 133
_Identity = tuple[int, int, int, int]  # producer id, epoch, base sequence, record count


class _KafkaLog(Log):
    """Kafka's log: a snapshot keeps only the last batch of each producer."""

    __slots__ = ()

    def snapshot_of(self, producer: ProducerState) -> ProducerState:
        return replace(producer, batches=producer.batches[-1:])


_KAFKA_LOG = _KafkaLog()


NO_WIRE_EVENTS, DAMAGED, INCOMPLETE = "no-wire-events", "damaged-history", "incomplete-history"
_AS_RECORDED = "give the history as `kafka-eos lab record` or `kafka-eos serve --record` wrote it"
_BATCH = ("producer_id", "producer_epoch", "base_sequence", "record_count")


class NoTrace(ValueError):  # noqa: N818 - named for the input
    """A history that gives no trace of a partition; the message has the run, the event, the reason and what to do.

    Attributes:
        code: the reason by a short name: ``NO_WIRE_EVENTS``, ``DAMAGED`` or ``INCOMPLETE``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _damaged(event: Event, reason: str) -> NoTrace:
    place = f"run {event.run}, event {'without an order' if event.order is None else event.order}"
    return NoTrace(DAMAGED, f"{place}: {reason}; the history is damaged: {_AS_RECORDED}")


@dataclass(slots=True)
class _Question:
    """A request for one partition with its answer, if one was seen."""

    invoke: Event
    answer: Event | None = None

    @property
    def identity(self) -> _Identity:
        e = self.invoke
        return e.producer_id, e.producer_epoch, e.base_sequence, e.record_count  # type: ignore[return-value]


@dataclass(slots=True)
class _Append:
    """A batch in the log.

    Attributes:
        answers: the answers with its offset, in order.
        at: the latest order in the history at which it can have been appended.
    """

    identity: _Identity
    offset: int
    at: int
    answers: list[_Question] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.offset + self.identity[3]


def _order(event: Event) -> int:
    assert event.order is not None, "a recorded history has a total order"
    return event.order


def questions(events: Iterable[Event], topic: str, partition: int) -> list[_Question]:
    """The Produce requests of one run for one partition, in the order in which they were sent.

    Args:
        events: the events, in order.
        topic: the partition's topic.
        partition: the partition's number.

    Raises:
        NoTrace: an event does not name its request, or the events are not a request and at most one answer for each.
    """
    found: dict[int, _Question] = {}
    for event in events:
        if event.action == "Produce" and event.topic == topic and event.partition == partition:
            request = _request(event)
            asked = found.get(request)
            if event.phase == "invoke":
                if asked is not None:
                    raise _damaged(event, f"request {request} is sent again, after event {_order(asked.invoke)}")
                found[request] = _Question(event)
            elif asked is None:
                raise _damaged(event, f"an answer to request {request}, which no event before it sends")
            elif event.phase != "info":  # an answer that settles the outcome
                if asked.answer is not None:
                    raise _damaged(event, f"request {request} is answered again, after event {_order(asked.answer)}")
                found[request].answer = _answer(event, asked.invoke)
    return [question for question in found.values() if question.invoke.detail.get("fault") != INJECTED]


def _request(event: Event) -> int:
    """The number of an event's request.

    Raises:
        NoTrace: the event lacks what every event of the wire has.
    """
    if "request" not in event.detail:
        raise NoTrace(
            NO_WIRE_EVENTS,
            f"run {event.run}, event {event.order}: a Produce without 'request' in its detail, which joins it with its "
            "answer; give a history of wire events, as `kafka-eos lab record` and `kafka-eos serve --record` write it",
        )
    request, broker = event.detail["request"], event.detail.get("broker")
    if not isinstance(request, int) or not isinstance(broker, str):
        raise _damaged(event, f"its detail has request {request!r} and broker {broker!r}, not a number and a name")
    if event.order is None:
        raise _damaged(event, "it has no place among the others")
    missing = [name for name in _BATCH if getattr(event, name) is None]
    if missing:
        raise _damaged(event, f"a Produce without {', '.join(missing)}")
    return request


def _answer(event: Event, invoke: Event) -> Event:
    """An answer.

    Raises:
        NoTrace: it does not say its outcome, or speaks of another batch than its request.
    """
    if event.error is None or (event.phase == "ok") != (event.error == ErrorCode.NONE):
        raise _damaged(event, f"an answer of phase {event.phase} with error {event.error}")
    if not ErrorCode.UNKNOWN_SERVER_ERROR <= event.error <= _HIGHEST_ERROR:
        raise _damaged(event, f"an answer with error {event.error}, which Kafka does not have")
    if event.phase == "ok" and event.offset is None:
        raise _damaged(event, "an answer without error and without an offset")
    for name in _BATCH:
        if getattr(event, name) != getattr(invoke, name):
            sent = f"{getattr(invoke, name)} in its request, event {invoke.order}"
            raise _damaged(event, f"an answer with {name} {getattr(event, name)}, and {sent}")
    return event


def _in_order(events: Iterable[Event]) -> Iterator[Event]:
    """The events; no two have the same order.

    Raises:
        NoTrace: two have.
    """
    seen = set()
    for event in events:
        if event.order is not None and event.order in seen:
            raise _damaged(event, "there are two events of this order")
        seen.add(event.order)
        yield event


def _restarts(events: Iterable[Event], asked: Sequence[_Question]) -> list[Event]:
    """The restarts of the broker that answered for the partition last before and first after them.

    Raises:
        NoTrace: a restart has no order.
    """
    answers = sorted((_order(q.answer), q.answer.detail["broker"]) for q in asked if q.answer is not None)
    orders = [order for order, _ in answers]
    found = []
    for event in events:
        if event.action == "Restart" and event.phase == "invoke":
            if event.order is None:
                raise _damaged(event, "it has no place among the others")
            place = bisect_left(orders, event.order)
            around = [broker for _, broker in answers[max(place - 1, 0) : place + 1]]
            if place and set(around) == {event.process}:
                found.append(event)
    return sorted(found, key=_order)


def _acknowledged(asked: Sequence[_Question]) -> list[_Append]:
    """The batches that the answers acknowledge, by offset."""
    found: dict[tuple[int, _Identity], _Append] = {}
    answered = [q for q in asked if q.answer is not None and q.answer.error == ErrorCode.NONE]
    for question in sorted(answered, key=lambda q: _order(q.answer) if q.answer else 0):
        assert question.answer is not None, "answered"
        assert question.answer.offset is not None, "it says its outcome"
        key = question.answer.offset, question.identity
        append = found.setdefault(key, _Append(question.identity, key[0], _order(question.answer)))
        append.answers.append(question)
    return [found[key] for key in sorted(found)]


@dataclass(frozen=True)
class _Requests:
    """An index of the requests for one partition and of the restarts of its broker.

    Attributes:
        asked: the requests, in the order in which they were sent.
        restarts: the restarts, in order.
    """

    asked: Sequence[_Question]
    restarts: Sequence[Event]

    @cached_property
    def first_sent(self) -> Mapping[_Identity, _Question]:
        """The first request with each batch."""
        return {question.identity: question for question in reversed(self.asked)}

    @cached_property
    def first_unanswered(self) -> Mapping[_Identity, _Question]:
        """The first request with each batch among the requests whose answer nobody saw."""
        return {question.identity: question for question in reversed(self.asked) if question.answer is None}

    @cached_property
    def out_of_order(self) -> Mapping[tuple[int, int], Sequence[tuple[int, int, int]]]:
        """The refusals for an out-of-order sequence: producer and epoch -> (sent, answered, base sequence), as sent."""
        found = defaultdict(list)
        for question in self.asked:
            answer = question.answer
            if answer is not None and answer.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                sequence = question.identity[2]
                found[question.identity[:2]].append((_order(question.invoke), _order(answer), sequence))
        return {producer: sorted(refusals) for producer, refusals in found.items()}

    @cached_property
    def _restarted(self) -> list[int]:
        return [_order(restart) for restart in self.restarts]

    def restart_from(self, order: int) -> int | None:
        """The first restart at or after an order of the history."""
        place = bisect_left(self._restarted, order)
        return self._restarted[place] if place < len(self._restarted) else None


def _unseen(appends: list[_Append], requests: _Requests) -> list[_Append]:
    """The appends, with the unanswered appends between them.

    Raises:
        NoTrace: if no unanswered request fits into a gap.
    """
    known = {append.identity for append in appends}
    fillers = sorted(requests.first_unanswered.keys() - known)
    complete: list[_Append] = []
    next_offset = 0
    for append in appends:
        while next_offset < append.offset:
            room = append.offset - next_offset
            place = next((n for n, identity in enumerate(fillers) if identity[3] <= room), None)
            if place is None:
                answer = append.answers[0].answer or append.answers[0].invoke
                raise NoTrace(
                    INCOMPLETE,
                    f"run {answer.run}, event {answer.order}: offset {append.offset}, but offsets {next_offset} to "
                    f"{append.offset - 1} were written by no request of the history; record an empty partition, from "
                    "its first batch on, with all its producers",
                )
            filler = fillers.pop(place)
            # The request was lost with the broker: no request after the restart can have carried the batch.
            lost = requests.restart_from(_order(requests.first_unanswered[filler].invoke))
            complete.append(_Append(filler, next_offset, append.at if lost is None else min(lost, append.at)))
            next_offset += filler[3]
        complete.append(append)
        next_offset = append.end
    return complete


def _known_before_restart(append: _Append, requests: _Requests) -> int | None:
    """The restart before which a batch was appended although its answer came after, or None.

    The batch's first request was never answered, and after the restart an earlier batch of the producer was refused as
    out of order: so the leader knew the later batch when it came back. If that is not the case at the first restart
    after the request, it is not at any later one.
    """
    pid, epoch, sequence, _ = append.identity
    lost = requests.first_unanswered.get(append.identity)
    began = None if lost is None else requests.restart_from(_order(lost.invoke))
    if began is None or began >= append.at:
        return None
    refusals = requests.out_of_order.get((pid, epoch), ())
    after = range(bisect_right(refusals, began, key=lambda refusal: refusal[0]), len(refusals))
    for sent, answered, refused in (refusals[place] for place in after):
        if sent >= append.at:
            break
        if answered < append.at and refused < sequence:
            return began
    return None


def _bound(appends: list[_Append], requests: _Requests) -> None:
    """Bound the order of each append: by its first answer, the next append, and the restart that it survived."""
    latest = None
    for append in reversed(appends):
        survived = _known_before_restart(append, requests)
        append.at = min(x for x in (append.at, survived, latest) if x is not None)
        latest = append.at


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that changes the log, with the earliest and latest order of the history at which it can be."""

    event: Event
    earliest: int
    latest: int


def _event(name: str, question: _Question) -> Event:
    """A trace event about one request."""
    detail = {"request": question.invoke.detail["request"], "invoked": _order(question.invoke)}
    if question.answer is not None:
        detail["answered"] = _order(question.answer)
    return replace(question.answer or question.invoke, action=name, phase="ok", detail=detail)


def _appender(append: _Append, requests: _Requests) -> _Question:
    """The request that appended a batch: the first answered one, or an earlier one whose answer was lost."""
    if append.answers:
        first = append.answers[0]
        restart = requests.restart_from(append.at)
        if restart is None or restart >= _order(first.answer or first.invoke):
            return first
    lost = requests.first_unanswered.get(append.identity)
    return append.answers[0] if lost is None else lost


def _batch(event: Event) -> Batch:
    """The batch that an event is about."""
    columns = (event.producer_id, event.producer_epoch, event.base_sequence, event.record_count)
    producer_id, epoch, sequence, count = (-1 if value is None else value for value in columns)
    return Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)


def _gives(log: Log, event: Event) -> bool:
    """Whether a log would give the answer of an acknowledgement or refusal."""
    batch = _batch(event)
    if event.action == "AcknowledgeDuplicate":
        return log.is_duplicate(batch) and log.duplicate_offset(batch) == event.offset
    return not log.is_duplicate(batch) and log.append_error(batch) == event.error


def _logs(start: Log, steps: Sequence[_Step]) -> list[Log]:
    """The log before the first step and after each one."""
    logs = [start]
    for step in steps:
        match step.event.action:
            case "AppendBatch":
                logs.append(logs[-1].appended(_batch(step.event)))
            case "TakeSnapshot":
                logs.append(logs[-1].with_snapshot())
            case _:
                logs.append(logs[-1].reloaded())
    return logs


def _outwards(middle: int, first: int, last: int) -> Iterator[int]:
    """The numbers from first to last, those nearest to the middle first, the smaller of two before the larger."""
    for distance in range(max(middle - first, last - middle) + 1):
        for number in (middle - distance, middle + distance) if distance else (middle,):
            if first <= number <= last:
                yield number


def _places(answers: Iterable[Event], steps: Sequence[_Step], logs: Sequence[Log]) -> Iterator[int]:
    """The number of steps before each answer that changes nothing.

    An answer is placed where it was seen if the log gives it there, otherwise at the nearest place in its interval
    where the log gives it. Without such a place it stays where it was seen, so that the validation of the trace fails.
    """
    latest = [step.latest for step in steps]  # sorted, as the steps are
    earliest = list(accumulate((step.earliest for step in steps), max))
    for answer in answers:
        invoked, answered = answer.detail["invoked"], answer.detail["answered"]
        seen = bisect_right(latest, answered)
        first = bisect_left(latest, invoked)
        last = bisect_right(earliest, answered)
        places = _outwards(seen, first, max(last, seen))
        yield next((place for place in places if _gives(logs[place], answer)), seen)


def _steps(appends: Sequence[_Append], requests: _Requests) -> list[_Step]:
    """The steps that change the log, in order."""
    steps = []
    for append in appends:
        appended = _event("AppendBatch", _appender(append, requests))
        event = replace(appended, offset=append.offset, error=int(ErrorCode.NONE))
        steps.append(_Step(event, _order(requests.first_sent[append.identity].invoke), append.at))
    latest = [append.at for append in appends]  # sorted, as each is bounded by the next
    in_snapshot = 0
    for restart in requests.restarts:
        at = _order(restart)
        in_log = bisect_right(latest, at)
        if in_log > in_snapshot:  # Kafka writes no second snapshot of the same offset
            in_snapshot = in_log
            steps.append(_Step(replace(restart, action="TakeSnapshot", phase="ok"), at, at))
        steps.append(_Step(replace(restart, phase="ok"), at, at))
    return sorted(steps, key=lambda step: step.latest)  # stable: appends by offset, then snapshot, then restart


def _answers(appends: Sequence[_Append], steps: Sequence[_Step], asked: Sequence[_Question]) -> list[Event]:
    """The answers that changed nothing, in the order of the history."""
    appenders = {step.event.detail["request"] for step in steps if step.event.action == "AppendBatch"}
    events = [
        _event("AcknowledgeDuplicate", question)
        for append in appends
        for question in append.answers
        if question.invoke.detail["request"] not in appenders
    ]
    events += [_event("RefuseBatch", q) for q in asked if q.answer is not None and q.answer.error in _REFUSALS]
    return sorted(events, key=lambda event: int(event.detail["answered"]))


def wire_trace(events: Iterable[Event], topic: str, partition: int, log: Log = _KAFKA_LOG) -> list[Event]:
    """The actions of one partition's leader, as actions of PartitionLog.

    Args:
        events: one run's history, in order, with the proxy's wire events; the partition was empty when it began.
        topic: the partition's topic.
        partition: the partition's number.
        log: the rules that place acknowledgements and refusals among appends of the same time.

    Returns:
        ``AppendBatch``, ``AcknowledgeDuplicate``, ``RefuseBatch`` (phase ok, with producer_id, producer_epoch,
        base_sequence, record_count, error and, unless refused, offset), ``TakeSnapshot`` and ``Restart``, with
        ``order`` from 0. ``AppendBatch`` of a request that was never answered has no ``detail["answered"]``.

    Raises:
        NoTrace: if the history is damaged, or there is a gap of offsets that no request can have filled.
    """
    history = list(_in_order(events))
    asked = questions(history, topic, partition)
    requests = _Requests(asked, _restarts(history, asked))
    appends = _unseen(_acknowledged(asked), requests)
    _bound(appends, requests)
    steps = _steps(appends, requests)
    answers = _answers(appends, steps, asked)
    given_after = defaultdict(list)
    for answer, place in zip(answers, _places(answers, steps, _logs(log, steps)), strict=True):
        given_after[place].append(answer)
    trace = given_after[0]
    for done, step in enumerate(steps, start=1):
        trace += [step.event, *given_after[done]]
    return [replace(event, order=number, topic=topic, partition=partition) for number, event in enumerate(trace)]
