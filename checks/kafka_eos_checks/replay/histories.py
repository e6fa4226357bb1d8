"""The rules over client histories, joined with the logs. Plain Python: a history is small where a log is large.

``acknowledged but lost``
    A ``Send`` that was answered ``ok`` for an offset at which no replica of the partition has its value. *Unknown*,
    and no finding: an offset below the beginning of a log, in a hole or in a damaged region of it, or of a partition
    that is not given; no offset, and the value nowhere in the logs. Of a replicated partition give all replicas: one
    alone may lag behind.

``duplicate value``
    A value that clients sent n times to a topic and that one broker's logs of the topic have at more than n offsets. A
    client that leaves the partition to its library does not know it when it sends. Values of aborted transactions, or
    of ones that are still open at the log's end, do not count, for a client sends them again.

``refused without cause``
    A fatal refusal of a producer that nobody fenced and that did nothing wrong:

    - INVALID_PRODUCER_EPOCH or PRODUCER_FENCED in the answer to a request of (producer id, epoch), although no event
      up to the answer, in the history's order, has a higher epoch for that producer id, and no ``InitProducerId`` for
      the same transactional id was invoked since the one that gave (producer id, epoch). An answer to ``EndTxn`` may
      give the next epoch too (KIP-890; ``next_producer_id`` and ``next_producer_epoch`` in the event's detail).
      *Unknown*: the history does not show who gave the epoch; an ``EndTxn`` of the producer is not answered yet; or
      the log has a marker of a higher epoch, for the coordinator may have fenced the producer when its transaction
      timed out, and a log has no common order with a history.
    - OUT_OF_ORDER_SEQUENCE_NUMBER in the answer to a ``Produce`` whose batch is either the next expected one or a
      retry that the leader has to remember. When that very request was sent, an acknowledged batch of the same
      (partition, producer id, epoch) ended right before it, or it begins with 0; and fewer than five batches with
      later sequences were sent before the refusal. A batch that is not stored is then the next one, and one that is
      stored is among the last five. Attempts that the history does not tell apart (``request`` or ``attempt`` in the
      event's detail) are judged by the first of them.

``transaction committed without its application``
    A ``Send`` of a transaction (``detail.transaction``) whose value a COMMIT marker made visible, although the client
    never invoked ``CommitTransaction`` for that transaction. *Unknown*: a client that tells nothing of its
    transactions; a marker beyond a hole, where the transaction's own marker may have been.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_eos.errors import ErrorCode
from kafka_eos.history import Event
from kafka_eos.producer_state import Limits
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.headers import CONTROL_MASK, TRANSACTIONAL_MASK, is_set, read_blocks, read_index
from kafka_eos_checks.replay.records import decode_block
from kafka_eos_checks.replay.rules import HALF, SEQUENCE_MASK
from kafka_eos_checks.replay.splits import PartitionLog

LOST, DUPLICATE_VALUE, REFUSED = "acknowledged but lost", "duplicate value", "refused without cause"
UNASKED = "transaction committed without its application"
HISTORY_RULES = (LOST, DUPLICATE_VALUE, REFUSED, UNASKED)
EPOCH_REFUSALS = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
WINDOW = Limits().cached_batches  # batches that a leader remembers of a producer
_ABORT, _COMMIT = b"\0\0", b"\0\1"  # the type in a control record's key, after its version

Place = tuple[str, int]  # topic, partition


@dataclass(slots=True)
class Contents:
    """The records of one log.

    Attributes:
        start: the first offset of the log; None for a log without batches.
        end: one past the last offset.
        values: by offset, of all data records.
        hidden: offsets of records in aborted transactions, and in open ones.
        committed: by offset of a record in a transaction, the offset of the marker that committed it.
        highest_marker: by producer id, the highest epoch of its markers.
        all_values: the same values, without their offsets.
        damaged_end: whether bytes that cannot be read follow the last batch.
    """

    start: int | None = None
    end: int = 0
    values: dict[int, bytes | None] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    committed: dict[int, int] = field(default_factory=dict)
    highest_marker: dict[int, int] = field(default_factory=dict)
    all_values: set[bytes | None] = field(default_factory=set)
    damaged_end: bool = False


def read_contents(log: PartitionLog) -> Contents:
    """All records of a log, and which of them a consumer that reads committed data does not see."""
    contents = Contents()
    open_transactions: dict[int, list[int]] = {}
    uncertain: set[int] = set()  # producers whose open transaction may have ended in a hole
    following: int | None = None
    for name in log.segments:
        path = Path(log.folder, name)
        for block in read_blocks(path, index=read_index(path)):
            headers, records = block.headers, decode_block(block)
            contents.damaged_end = bool(headers.damage)
            if not len(headers):
                continue
            base = headers.column("base_offset")
            if contents.start is None:
                contents.start = int(base[0])
            contents.end = max(contents.end, int((base + headers.column("last_offset_delta")).max()) + 1)
            control = is_set(headers, CONTROL_MASK)[records.batch].tolist()
            transactional = is_set(headers, TRANSACTIONAL_MASK)[records.batch].tolist()
            producers = headers.column("producer_id")[records.batch].tolist()
            epochs = headers.column("producer_epoch")[records.batch].tolist()
            columns = (records.offset.tolist(), producers, epochs, transactional, control)
            for offset, pid, epoch, in_transaction, is_marker, key, value in zip(
                *columns, records.keys(), records.values(), strict=True
            ):
                uncertain.update(open_transactions if offset != following else ())
                following = offset + 1
                if is_marker:
                    ended = open_transactions.pop(pid, [])
                    contents.hidden.update(ended if key is not None and key[2:4] == _ABORT else ())
                    committed = key is not None and key[2:4] == _COMMIT and pid not in uncertain
                    contents.committed.update(dict.fromkeys(ended, offset) if committed else {})
                    uncertain.discard(pid)
                    contents.highest_marker[pid] = max(epoch, contents.highest_marker.get(pid, -1))
                    continue
                contents.values[offset] = value
                if in_transaction:
                    open_transactions.setdefault(pid, []).append(offset)
    contents.hidden.update(offset for offsets in open_transactions.values() for offset in offsets)
    contents.all_values.update(contents.values.values())
    return contents


@dataclass(slots=True)
class Join:
    """What the rules over histories found.

    Attributes:
        findings: the violations.
        figures: for each rule, what it looked at and what remains unknown.
    """

    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, dict[str, int | float | str]] = field(default_factory=dict)


Replicas = Mapping[Place, Sequence[tuple[PartitionLog, Contents]]]
Figures = dict[str, int | float | str]


def join(events: Iterable[Event], logs: Sequence[PartitionLog]) -> Join:
    """Judge histories by the logs of the brokers they were recorded with.

    Args:
        events: of one or several runs. Within a run ``order`` decides, or the order given if an event has none.
        logs: replicas of partitions; those whose topic is in no event are not read.
    """
    by_run: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_run[event.run].append(event)
    topics = {event.topic for run in by_run.values() for event in run}
    replicas: dict[Place, list[tuple[PartitionLog, Contents]]] = defaultdict(list)
    for log in logs:
        if log.topic in topics:
            replicas[log.topic, log.partition].append((log, read_contents(log)))
    result = Join(figures={rule: _figures() for rule in HISTORY_RULES})
    for run in by_run.values():
        if all(event.order is not None for event in run):
            run.sort(key=lambda event: event.order or 0)
        result.findings += lost(run, replicas, result.figures[LOST])
        result.findings += duplicate_values(run, replicas, result.figures[DUPLICATE_VALUE])
        result.findings += refused(run, replicas, result.figures[REFUSED])
        result.findings += unasked(run, replicas, result.figures[UNASKED])
    return result


def _figures() -> Figures:
    return {"checked": 0, "unknown": 0}


def _count(figures: Figures, name: str) -> None:
    figures[name] = int(figures[name]) + 1


def lost(run: Iterable[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Acknowledged sends whose value no replica has at the acknowledged offset."""
    for event in run:
        if (event.action, event.phase) != ("Send", "ok"):
            continue
        _count(figures, "checked")
        value, place = event.detail.get("value"), _place(event)
        own = replicas.get(place) if place is not None else None
        if value is None or place is None or not own:
            _count(figures, "unknown")
            continue
        states = [_look(contents, event.offset, str(value)) for _, contents in own]
        if "there" in states:
            continue
        if "unknown" in states:
            _count(figures, "unknown")
            continue
        yield Finding(
            rule=LOST,
            topic=place[0],
            partition=place[1],
            offset=event.offset,
            run=event.run,
            evidence=f"{event.process} was told that {str(value)!r} is at offset {event.offset}; there is {states[0]}",
        )


def _look(contents: Contents, offset: int | None, value: str) -> str:
    """``there``, ``unknown``, or what is there instead.

    A client that retried may be told that its batch is a duplicate, and then knows no offset.
    """
    if offset is None:
        return "there" if value.encode() in contents.all_values else "unknown"
    if offset in contents.values:
        stored = contents.values[offset]
        found = None if stored is None else stored.decode(errors="replace")
        return "there" if found == value else repr(found)
    if contents.start is not None and offset >= contents.end and not contents.damaged_end:
        return f"nothing: the log ends before offset {contents.end}"
    return "unknown"


def duplicate_values(run: Sequence[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Values that a broker's logs of a topic have more often than clients sent them."""
    sends: Counter[tuple[str, str]] = Counter()  # topic, value
    for event in run:
        value = event.detail.get("value")
        if (event.action, event.phase) == ("Send", "invoke") and event.topic is not None and value is not None:
            sends[event.topic, str(value)] += 1
    figures["checked"] = int(figures["checked"]) + len(sends)
    topics = {topic for topic, _ in sends}
    stored: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)  # broker, topic, value -> places
    for (topic, partition), own in sorted(replicas.items()):
        for log, contents in own if topic in topics else ():
            for offset, value in contents.values.items():
                if value is not None and offset not in contents.hidden:
                    stored[log.broker, topic, value.decode(errors="replace")].append((partition, offset))
    for (broker, topic, value), at in stored.items():
        if 0 < (sent := sends[topic, value]) < len(at):
            partition, offset = at[sent]
            where = ", ".join(f"{topic}-{p} offset {o}" for p, o in at)
            yield Finding(
                rule=DUPLICATE_VALUE,
                topic=topic,
                partition=partition,
                broker=broker,
                offset=offset,
                run=run[0].run,
                evidence=f"{value!r} was sent {sent} time(s) and is at {where}",
            )


_Ended = tuple[str, int]  # process, number of its transaction


def unasked(run: Sequence[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Transactions that were committed although their application never asked for it; each once."""
    asked: set[_Ended] = set()
    telling: set[str] = set()
    sources: dict[tuple[str, bytes], set[_Ended]] = defaultdict(set)
    for event in run:
        number, value = event.detail.get("transaction"), event.detail.get("value")
        if event.phase != "invoke" or not isinstance(number, int):
            continue
        if event.action in {"BeginTransaction", "CommitTransaction", "AbortTransaction"}:
            telling.add(event.process)
        if event.action == "CommitTransaction":
            asked.add((event.process, number))
        elif event.action == "Send" and event.topic is not None and value is not None:
            sources[event.topic, str(value).encode()].add((event.process, number))
    committed: dict[_Ended, tuple[Place, PartitionLog, int, int]] = {}
    for place, own in sorted(replicas.items()):
        for log, contents in own:
            for offset, marker in contents.committed.items():
                sent_in = sources.get((place[0], contents.values[offset] or b""), set())
                for ended in sent_in if not sent_in & asked else sent_in & asked:
                    committed.setdefault(ended, (place, log, offset, marker))
    figures["checked"] = int(figures["checked"]) + len(committed)
    for ended, (place, log, offset, marker) in committed.items():
        if ended in asked:
            continue
        process, number = ended
        if process not in telling:
            _count(figures, "unknown")
            continue
        evidence = (
            f"transaction {number} of {process} was committed (marker at offset {marker}), which it never asked for"
        )
        yield Finding(
            rule=UNASKED,
            topic=place[0],
            partition=place[1],
            broker=log.broker,
            offset=offset,
            run=run[0].run,
            evidence=evidence,
        )


def _place(event: Event) -> Place | None:
    return None if event.topic is None or event.partition is None else (event.topic, event.partition)


_Request = tuple[str, int, str]  # process, base sequence, its number or the attempt's


@dataclass(slots=True)
class _Sequences:
    """The batches of one (partition, producer id, epoch) in a history.

    Attributes:
        ends: the sequences that come right after an acknowledged batch.
        counts: by base sequence, the numbers of records with which a batch was sent.
        bases: the same base sequences, in ascending order.
        prepared: by request, whether what comes right before its batch was acknowledged when it was sent.
    """

    ends: set[int] = field(default_factory=set)
    counts: dict[int, set[int | None]] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    prepared: dict[_Request, bool] = field(default_factory=dict)

    def sent(self, request: _Request, sequence: int, count: int | None) -> None:
        """A request goes out; of attempts that cannot be told apart the first counts."""
        if sequence not in self.counts:
            insort(self.bases, sequence)
        self.counts.setdefault(sequence, set()).add(count)
        self.prepared.setdefault(request, sequence in self.ends)

    def later(self, sequence: int) -> int:
        """How many batches with later sequences were sent, modulo 2^31."""
        end = sequence + HALF
        wrapped = bisect_left(self.bases, end & SEQUENCE_MASK) if end > SEQUENCE_MASK else 0
        return wrapped + bisect_left(self.bases, end) - bisect_right(self.bases, sequence)

    def begins_epoch(self) -> bool:
        """Whether sequence 0 is the epoch's first, and not the one after 2^31 - 1."""
        return not self.bases or self.bases[-1] < HALF


def refused(run: Iterable[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Fatal refusals for which the history has no cause; the module says when there is one."""
    sequences: dict[tuple[Place, int, int], _Sequences] = defaultdict(_Sequences)
    fencing = _Fencing()
    for event in run:
        fencing.follow(event)
        pid, epoch, place = event.producer_id, event.producer_epoch, _place(event)
        if pid is None or epoch is None or pid < 0 or epoch < 0:
            continue
        evidence = ""
        if event.phase == "fail" and event.error in EPOCH_REFUSALS:
            _count(figures, "checked")
            markers = (contents.highest_marker.get(pid, -1) for own in replicas.values() for _, contents in own)
            evidence = fencing.judge(event, pid, epoch, max(markers, default=-1))
        elif event.action == "Produce" and place is not None and event.base_sequence is not None:
            evidence = _out_of_order(event, event.base_sequence, sequences[place, pid, epoch], figures)
        if evidence == UNKNOWN:
            _count(figures, "unknown")
        elif evidence:
            yield Finding(
                rule=REFUSED,
                topic=event.topic or "",
                partition=-1 if event.partition is None else event.partition,
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=event.base_sequence,
                run=event.run,
                evidence=f"event {event.order} of {event.process}: {evidence}",
            )


UNKNOWN = "unknown"


@dataclass(slots=True)
class _Fencing:
    """Who got which epoch so far, and who may have fenced it.

    Attributes:
        highest: by producer id, the highest epoch in any event.
        requests: by transactional id, how many ``InitProducerId`` were invoked.
        asking: by process and transactional id, the number of its last request among these.
        grants: by producer id and epoch, the transactional id and the number of the request that gave them.
        ending: producer ids and epochs with an ``EndTxn`` that is not answered: it may raise the epoch (KIP-890).
    """

    highest: dict[int, int] = field(default_factory=dict)
    requests: Counter[str | None] = field(default_factory=Counter)
    asking: dict[tuple[str, str | None], int] = field(default_factory=dict)
    grants: dict[tuple[int, int], tuple[str | None, int]] = field(default_factory=dict)
    ending: set[tuple[int, int]] = field(default_factory=set)

    def follow(self, event: Event) -> None:
        """Take one event in."""
        name, pid, epoch = event.transactional_id, event.producer_id, event.producer_epoch
        if event.action == "InitProducerId" and event.phase == "invoke":
            self.requests[name] += 1
            self.asking[event.process, name] = self.requests[name]
        if pid is None or epoch is None or pid < 0 or epoch < 0:
            return
        self._saw(pid, epoch)
        if event.action == "InitProducerId" and event.phase == "ok":
            self.grants[pid, epoch] = (name, self.asking.get((event.process, name), 0))
        elif event.action == "EndTxn" and event.phase == "invoke":
            self.ending.add((pid, epoch))
        elif event.action == "EndTxn" and event.phase in {"ok", "fail"}:
            self.ending.discard((pid, epoch))
            self._ended(event, pid, epoch)

    def _saw(self, pid: int, epoch: int) -> None:
        self.highest[pid] = max(epoch, self.highest.get(pid, epoch))

    def _ended(self, event: Event, pid: int, epoch: int) -> None:
        """An answer to ``EndTxn`` that gives the producer its next epoch, or its next id when epochs run out."""
        next_pid, next_epoch = event.detail.get("next_producer_id"), event.detail.get("next_producer_epoch")
        if not isinstance(next_pid, int) or not isinstance(next_epoch, int) or next_pid < 0:
            return
        self._saw(next_pid, next_epoch)
        self._saw(pid, epoch + (next_pid != pid))
        if (pid, epoch) in self.grants:
            self.grants.setdefault((next_pid, next_epoch), self.grants[pid, epoch])

    def judge(self, event: Event, pid: int, epoch: int, highest_marker: int) -> str:
        """Evidence that nobody fenced a refused producer, "" when somebody did, or :data:`UNKNOWN`."""
        if self.highest[pid] > epoch:
            return ""
        if (pid, epoch) not in self.grants or (pid, epoch) in self.ending:
            return UNKNOWN
        transactional_id, number = self.grants[pid, epoch]
        if transactional_id is not None and self.requests[transactional_id] > number:
            return ""
        if highest_marker > epoch:
            return UNKNOWN
        name = ErrorCode(event.error or 0).name
        return f"{event.action} refused with {name}, but nothing has a higher epoch and nobody asked for a new one"


def _out_of_order(event: Event, sequence: int, known: _Sequences, figures: Figures) -> str:
    """Follow one ``Produce`` event; evidence that a batch was refused that the leader has to take, or ""."""
    request = (event.process, sequence, str(event.detail.get("request", event.detail.get("attempt"))))
    if event.phase == "invoke":
        known.sent(request, sequence, event.record_count)
    elif event.phase == "ok" and event.record_count:
        known.ends.add((sequence + event.record_count) & SEQUENCE_MASK)
    elif event.phase == "fail" and event.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        _count(figures, "checked")
        same = known.counts.get(sequence) == {event.record_count} != {None}
        prepared = known.prepared.get(request, False) or (sequence == 0 and known.begins_epoch())
        later = known.later(sequence)
        if same and prepared and later < WINDOW:
            before = f"what comes before it was acknowledged and {later} later batch(es) sent"
            return f"Produce of sequence {sequence} refused with OUT_OF_ORDER_SEQUENCE_NUMBER, but {before}"
    return ""
