"""The history of a generated cluster's clients: records sent and polled, and the requests that clients make for them.

The history has each record that idempotent producers and transactional clients send. Clients with a group copy: each of
their batches is the output of one input, its records are numbered, and a transaction commits the offset after its last
input. After an abort such a client goes back to the committed offset. A client whose coordinator aborted the
transaction has crashed. A reader of committed data follows each of the first third of the partitions. At the end of
each slice of time it polls the records that have become stable.

Each record travels in a request, and so do offsets and ends of transactions (:mod:`client_requests`). Some requests or
answers are lost, and the request is sent again. Some transactions begin before the previous one has ended on all
partitions, and are told to wait. A new instance of a client fences the one before, some of which send another request
and are refused.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TextIO

import numpy as np

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.lab.generate.batches import FIRST_TIMESTAMP, NO_DECISION, NO_TRANSACTION, Batches
from kafka_eos_checks.lab.generate.client_requests import LOST, UNDELIVERED, Requests, Who
from kafka_eos_checks.lab.generate.traffic import SLOTS, SLOTS_IN_MS, Slice, Workload

RUN = "generated"
# Among the events of one moment and one transaction.
INIT, BEGIN, READ, ADD, SEND, OFFSETS, END, ENDED = range(8)

# Frequencies, each as a share of what its comment names.
TROUBLED = 0.02  # of transactions: one of their requests is sent again, because it or its answer was lost
BUSY = 0.1  # of transactions: the first request has to wait until the transaction before has ended everywhere
FENCED_LATE = 0.5  # of instances that another one fences: they send another request
# The request of a troubled transaction that is sent again; the answer was lost, or the request.
PRODUCE_ANSWER, PRODUCE, OFFSET, END_ANSWER, ENDING = range(1, 6)
JOINS = 2  # the number modulo 4 of groups with members; each second client has a group
NOBODY = -1, -1  # producer id and epoch of a client that has none yet
NO_MEMBER = -1, ""  # generation and member id of a client that assigns partitions to itself


def text_of(partition: int, offset: int, size: int) -> str:
    """The value of a record: 16 hexadecimal digits, and dots up to its size."""
    return f"{partition:04x}{offset:012x}".ljust(size, ".")


class Taken(NamedTuple):
    """The facts of a transaction that the history needs.

    Attributes:
        client: number of the client.
        group: number of the group that commits offsets in it, -1 for none.
        before: offset of the first input.
        firsts: for each partition, the number of batches on the partitions before it in the transaction's list.
        who: the client in its requests.
        trouble: the request that is sent again, 0 for none.
        waits: whether its first batch is told to wait.
    """

    client: int
    group: int
    before: int
    firsts: list[int]
    who: Who
    trouble: int
    waits: bool


class Row(NamedTuple):
    """A batch in a log; see :class:`batches.Batches`."""

    base: int
    size: int
    producer_id: int
    epoch: int
    sequence: int
    ms: int


class _Transaction(NamedTuple):
    """A transaction; see :class:`traffic.Transactions`, with times in milliseconds.

    Attributes:
        number: its number.
        before: offset of the first input.
        offset: one past the last input.
        commits: whether it is committed.
        late: whether an instance that is fenced at its begin or by its abort sends another request.
    """

    number: int
    partitions: list[int]
    client: int
    group: int
    before: int
    offset: int
    commits: bool
    empty: bool
    fenced: bool
    begun_anew: bool
    version_2: bool
    producer_id: int
    epoch: int
    next_producer_id: int
    next_epoch: int
    trouble: int
    waits: bool
    late: bool
    initialised: int
    begin: int
    prepared: int
    completed: int


@dataclass(slots=True)
class _Reader:
    """A reader of committed data on one partition, with the batches that it has not polled yet, in order."""

    waiting: deque[list[int]] = field(default_factory=deque)  # base offset, records, 1 visible, 0 aborted, -1 unknown
    open: dict[int, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    end: int = 0

    @property
    def stable(self) -> int:
        """The last stable offset of the partition."""
        return self.waiting[0][0] if self.waiting else self.end

    def take(self, batches: Batches) -> Iterator[tuple[int, int]]:
        """Add batches; yield base offset and record count of those that the reader polls now."""
        self.end = max(self.end, int(batches.last_offset.max(initial=-1)) + 1)
        columns = (
            batches.base_offset,
            batches.record_count,
            batches.producer_id,
            batches.decision,
            batches.transaction,
        )
        for base, count, pid, decision, transaction in zip(*(column.tolist() for column in columns), strict=True):
            if decision != NO_DECISION:
                for each in self.open.pop(pid, []):
                    each[2] = int(decision == ControlType.COMMIT)
                continue
            row = [base, count, 1 if transaction == NO_TRANSACTION else -1]
            self.waiting.append(row)
            if transaction != NO_TRANSACTION:
                self.open[pid].append(row)
        while self.waiting and self.waiting[0][2] >= 0:
            base, count, visible = self.waiting.popleft()
            if visible:
                yield base, count


Producers = Callable[[Ints, Ints], tuple[Ints, Ints]]
"""Producer ids and epochs of clients after so many rises of their epochs: :meth:`Traffic.producer`."""
_Later = tuple[int, int, int, int, list[str]]  # milliseconds, transaction, kind, number, events


@dataclass(slots=True)
class ClientHistory:
    """Writes the history of a cluster, slice by slice.

    Args:
        out: the file.
        workload: the cluster's size and its mix of requests.
        topic: the topic to which the clients write.
        inputs: the topic from which clients copy.
        names: transactional ids.
        groups: names of groups.
        value_bytes: size of each value, at least 16.
        producers: producer ids and epochs of clients.

    Attributes:
        events: number of events written.
    """

    out: TextIO
    workload: Workload
    topic: str
    inputs: str
    names: Sequence[str]
    groups: Sequence[str]
    value_bytes: int
    producers: Producers
    events: int = 0
    _requests: Requests = field(default_factory=Requests)
    _taken: dict[int, Taken] = field(default_factory=dict)
    _sent: dict[int, int] = field(default_factory=dict)  # batches of a transaction on a partition, by its number
    _before: int = 0  # first transaction of the slice before
    _later: list[_Later] = field(default_factory=list)
    _number: int = 0
    _readers: list[_Reader] = field(default_factory=list)
    _held: dict[int, tuple[int, int]] = field(default_factory=dict)  # by client, the producer id and epoch that it has
    _generations: dict[int, int] = field(default_factory=dict)  # by client
    _known: set[int] = field(default_factory=set)  # producer ids of producers without transactions

    def __post_init__(self) -> None:
        self._readers = [_Reader() for _ in range(max(1, self.workload.partitions // 3))]

    # ---- events

    def _add(self, ms: int, transaction: int, kind: int, events: list[str]) -> None:
        self._number += 1
        self._later.append((ms, transaction, kind, self._number, events))

    def _write(self, until_ms: float) -> None:
        """Write the events before a moment, in order."""
        due = sorted(each for each in self._later if each[0] < until_ms)
        self._later = [each for each in self._later if each[0] >= until_ms]
        for ms, _, _, _, events in due:
            self._tell(ms, events)

    def _tell(self, ms: int, events: Iterable[str]) -> None:
        time = f',"time_us":{ms * 1000},'
        order = self.events - 1
        for order, text in enumerate(events, self.events):
            self.out.write(f'{{"run":"{RUN}","order":{order}{time}{text}}}\n')
        self.events = order + 1

    def _value(self, partition: int, offset: int) -> str:
        return text_of(partition, offset, self.value_bytes)

    # ---- a slice

    def take(self, part: Slice, topic: Sequence[Batches], inputs: Iterable[tuple[int, Batches]]) -> None:
        """Write the events of a slice of time.

        Args:
            part: the slice.
            topic: for each partition the batches appended, with their offsets.
            inputs: numbers of the input partitions, each with the batches appended to it.
        """
        begin = FIRST_TIMESTAMP + part.number * SLOTS // SLOTS_IN_MS
        end = FIRST_TIMESTAMP + (part.number + 1) * SLOTS // SLOTS_IN_MS
        for partition, batches in inputs:
            for row in _rows(batches):
                self._add(begin, -1, SEND, self._plain(f"input-{partition}", self.inputs, partition, row))
        self._transactions(part)
        for partition, batches in enumerate(topic):
            self._batches(partition, batches)
        self._write(end)
        for partition, (reader, batches) in enumerate(zip(self._readers, topic, strict=False)):
            process = f'"process":"reader-{partition}",'
            where = f'"topic":"{self.topic}","partition":{partition},"offset":'
            for base, count in reader.take(batches):
                self._tell(
                    end,
                    (
                        f'{process}"action":"Poll","phase":"ok",{where}{offset},"isolation":"read_committed",'
                        f'"detail":{{"value":"{self._value(partition, offset)}"}}'
                        for offset in range(base, base + count)
                    ),
                )
            waits = f'"action":"EndOfPartition","phase":"ok",{where}{reader.stable},"isolation":"read_committed"'
            self._tell(end, [process + waits])

    # ---- batches

    def _batch(
        self,
        process: str,
        topic: str,
        partition: int,
        records: range,
        requests: list[str],
        more: str = "",
        copied: str = "",
    ) -> list[str]:
        """The events of a batch: its records are sent, the client makes requests, and the records are acknowledged."""
        where = f'"topic":"{topic}","partition":{partition},'
        head = f'"process":"{process}","action":"Send","phase":'
        details = [f'"detail":{{"value":"{self._value(partition, offset)}"{more}' for offset in records]
        details = [
            f'{detail}{copied},"output":{number}}}' if copied else f"{detail}}}"
            for number, detail in enumerate(details)
        ]
        acknowledged = zip(records, details, strict=True)
        return [
            *(f'{head}"invoke",{where}{detail}' for detail in details),
            *requests,
            *(f'{head}"ok",{where}"offset":{offset},{detail}' for offset, detail in acknowledged),
        ]

    def _plain(self, name: str, topic: str, partition: int, row: Row) -> list[str]:
        """The events of a batch of a producer without transactions, which is given its producer id before the first."""
        base, size, pid, epoch, sequence, _ = row
        connection = self.workload.clients + pid
        who = Who.of(name, connection, (pid, epoch), transactional=False)
        events = []
        if pid not in self._known:
            self._known.add(pid)
            new, given = (Who.of(name, connection, each, transactional=False) for each in (NOBODY, (pid, 0)))
            events = self._requests.init_producer_id(new, given)
        where = f'"topic":"{topic}","partition":{partition},'
        requests = self._requests.produce(who, where, base, sequence, size)
        return events + self._batch(name, topic, partition, range(base, base + size), requests)

    def _batches(self, partition: int, batches: Batches) -> None:
        """Add the records that were sent to a partition."""
        spread, where = self.workload.spread, f'"topic":"{self.topic}","partition":{partition},'
        columns = (batches.transaction.tolist(), batches.decision.tolist(), _rows(batches))
        for transaction, decision, row in zip(*columns, strict=True):
            if decision != NO_DECISION:
                continue
            if transaction == NO_TRANSACTION:
                events = self._plain(f"producer-{row.producer_id}", self.topic, partition, row)
                self._add(row.ms, -1, SEND, events)
                continue
            run = transaction if transaction >= 0 else NO_TRANSACTION - 1 - transaction
            number, place = divmod(run, spread)
            taken, copied = self._taken[number], ""
            if taken.group >= 0:
                copies = self._sent.get(run, 0)
                source = taken.before + taken.firsts[place] + copies
                copied = f',"input":["{self.inputs}",{taken.client % self.workload.partitions},{source}]'
                self._sent[run] = copies + 1
            batch = taken.who, where, row.base, row.sequence, row.size
            requests = self._requests.produce(*batch)
            if place == 0 and transaction >= 0:
                if taken.waits:
                    requests = self._requests.produce(*batch, error=ErrorCode.CONCURRENT_TRANSACTIONS) + requests
                if taken.trouble in {PRODUCE_ANSWER, PRODUCE}:
                    fate = UNDELIVERED if taken.trouble == PRODUCE_ANSWER else LOST
                    requests = self._requests.produce(*batch, fate=fate) + requests
            records, more = range(row.base, row.base + row.size), f',"transaction":{number}'
            events = self._batch(self.names[taken.client], self.topic, partition, records, requests, more, copied)
            self._add(row.ms, number, SEND, events)

    # ---- transactions

    def _transactions(self, part: Slice) -> None:
        """Add the begin and the end of transactions, and the inputs that are read in them."""
        own = part.transactions
        spread = self.workload.spread
        starts = (np.cumsum(own.counts, axis=1) - own.counts).tolist()
        first_number = part.first_number // spread
        self._forget(first_number)
        slots = (own.initialised, own.begin, own.prepared, own.completed)
        times = [FIRST_TIMESTAMP + (part.number * SLOTS + each.astype(np.int64)) // SLOTS_IN_MS for each in slots]
        rng = np.random.default_rng([self.workload.seed, part.number, 4])
        size = len(own)
        trouble = np.where(rng.random(size) < TROUBLED, rng.integers(PRODUCE_ANSWER, ENDING, size, endpoint=True), 0)
        columns = (
            *(own.client, own.group, own.committed_before, own.offset, own.decision == ControlType.COMMIT),
            *(own.empty, own.fenced, own.begun_anew, own.version_2, *self.producers(own.client, own.rises)),
            *(*self.producers(own.client, own.rises + own.raises), trouble, rng.random(size) < BUSY),
            *(rng.random(size) < FENCED_LATE, *times),
        )
        for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            each = _Transaction(first_number + row, own.partitions[row].tolist(), *values)
            if not each.empty:
                waits = each.waits and each.version_2  # before that AddPartitionsToTxn waits
                own_facts = each.client, each.group, each.before, starts[row], self._who(each), each.trouble, waits
                self._taken[each.number] = Taken(*own_facts)
            self._transaction(each)

    def _who(self, each: "_Transaction", producer: tuple[int, int] | None = None) -> Who:
        return Who.of(self.names[each.client], each.client, producer or (each.producer_id, each.epoch))

    def _transaction(self, each: "_Transaction") -> None:
        """Add a transaction, without its batches."""
        number, who, requests = each.number, self._who(each), self._requests
        process = self.names[each.client]
        head, detail = f'"process":"{process}","action":', f'"detail":{{"transaction":{number}}}'
        if each.begun_anew:
            self._begin_anew(each, who)
        self._add(each.begin, number, BEGIN, [f'{head}"BeginTransaction","phase":"invoke",{detail}'])
        if not each.version_2:
            partitions = who, self.topic, each.partitions
            events = requests.add_partitions(*partitions)
            if each.waits:
                events = requests.add_partitions(*partitions, error=ErrorCode.CONCURRENT_TRANSACTIONS) + events
            self._add(each.begin, number, ADD, events)
        if each.group >= 0:
            self._inputs(each, who)
        if each.fenced:
            self._fence(each, who)
        else:
            action = "CommitTransaction" if each.commits else "AbortTransaction"
            self._add(each.prepared, number, END, [f'{head}"{action}","phase":"invoke",{detail}'])
            self._add(each.completed, number, ENDED, [*self._end(each, who), f'{head}"{action}","phase":"ok",{detail}'])

    def _end(self, each: "_Transaction", who: Who) -> list[str]:
        """The events of the requests that end a transaction."""
        following = (each.next_producer_id, each.next_epoch) if each.version_2 else None
        self._held[each.client] = following or (each.producer_id, each.epoch)
        events = self._requests.end(who, each.commits, following)
        if each.trouble in {END_ANSWER, ENDING}:
            fate = UNDELIVERED if each.trouble == END_ANSWER else LOST
            events = self._requests.end(who, each.commits, following, fate=fate) + events
        return events

    def _begin_anew(self, each: "_Transaction", who: Who) -> None:
        """Add the start of a new instance; the one before may send another request, and is refused."""
        events = self._requests.init_producer_id(self._who(each, NOBODY), who)
        before = self._held.get(each.client)
        if before is not None and each.late:
            events += self._refused(each, self._who(each, before))
        self._held[each.client] = each.producer_id, each.epoch
        if each.group % 4 == JOINS:
            generation = self._generations[each.client] = self._generations.get(each.client, 0) + 1
            events += self._requests.join_group(who, self.groups[each.group], generation)
        self._add(each.initialised, each.number, INIT, events)

    def _refused(self, each: "_Transaction", fenced: Who) -> list[str]:
        """A request of a fenced instance, and its refusal."""
        requests, where = self._requests, f'"topic":"{self.topic}","partition":{each.partitions[0]},'
        kind = each.number % 3
        if kind == 0:
            return requests.produce(fenced, where, 0, 0, 1, error=ErrorCode.INVALID_PRODUCER_EPOCH)
        if kind == 1 and not each.version_2:
            return requests.add_partitions(fenced, self.topic, each.partitions, error=ErrorCode.INVALID_PRODUCER_EPOCH)
        error = ErrorCode.PRODUCER_FENCED if each.version_2 else ErrorCode.INVALID_PRODUCER_EPOCH
        return requests.end(fenced, commits=True, following=None, error=error)

    def _fence(self, each: "_Transaction", who: Who) -> None:
        """Add the end of a transaction that the coordinator aborts for a new instance, which has to wait for that."""
        crash = f'"process":"{self.names[each.client]}","action":"Crash","phase":"info"'
        new = self._who(each, NOBODY)
        waits = self._requests.init_producer_id(new, who, error=ErrorCode.CONCURRENT_TRANSACTIONS)
        self._add(each.prepared, each.number, END, [crash, *waits])
        if each.late:
            self._add(each.completed, each.number, ENDED, self._refused(each, who))

    def _inputs(self, each: "_Transaction", who: Who) -> None:
        """Add the inputs that are read in a transaction, and the offset after them."""
        client, number, group, requests = each.client, each.number, self.groups[each.group], self._requests
        partition = client % self.workload.partitions
        where = f'"topic":"{self.inputs}","partition":{partition},'
        head, name = f'"process":"{self.names[client]}","action":', f'"group":"{group}",'
        values = ((offset, self._value(partition, offset)) for offset in range(each.before, each.offset))
        polls = [
            f'{head}"Poll","phase":"ok",{where}"offset":{offset},{name}"detail":{{"value":"{value}"}}'
            for offset, value in values
        ]
        self._add(each.begin, number, READ, polls)
        member = NO_MEMBER
        if each.group % 4 == JOINS:
            generation = self._generations[client]
            member = generation, f"{self.names[client]}-{generation}"
        sent = who, where, group, member, each.offset
        events = [] if each.version_2 else requests.add_offsets(who, group)
        if each.trouble == OFFSET:
            events += requests.commit_offset(*sent, fate=LOST)
        events += requests.commit_offset(*sent)
        detail = f'"detail":{{"offsets":{{"{partition}":{each.offset}}},"transaction":{number}}}'
        before, after = (
            f'{head}"SendOffsetsToTransaction","phase":"{phase}","topic":"{self.inputs}",{name}{detail}'
            for phase in ("invoke", "ok")
        )
        self._add(each.prepared, number, OFFSETS, [before, *events, after])

    def _forget(self, first_number: int) -> None:
        """Forget the transactions of all slices before the previous one: all their batches have been appended."""
        before, self._before = self._before, first_number
        self._taken = {number: taken for number, taken in self._taken.items() if number >= before}
        self._sent = {run: sent for run, sent in self._sent.items() if run >= before * self.workload.spread}

    def close(self) -> None:
        """Write the remaining events."""
        self._write(np.inf)


def _rows(batches: Batches) -> list[Row]:
    """The rows of batches."""
    columns = (batches.base_offset, batches.record_count, batches.producer_id, batches.producer_epoch)
    every = zip(*(each.tolist() for each in (*columns, batches.base_sequence, batches.timestamp)), strict=True)
    return list(map(Row._make, every))
