"""The history of a generated cluster's clients: the records sent, their acknowledgements, and the records polled.

The history has each record that idempotent producers and transactional clients send. Clients with a group copy: each of
their batches is the output of one input, its records are numbered, and a transaction commits the offset after its last
input. After an abort such a client goes back to the committed offset. A client whose coordinator aborted the
transaction has crashed. A reader of committed data follows each of the first third of the partitions. At the end of
each slice of time it polls the records that have become stable.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TextIO

import numpy as np

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.lab.generate.batches import NO_DECISION, NO_TRANSACTION, Batches
from kafka_eos_checks.lab.generate.planted_logs import FIRST_TIMESTAMP
from kafka_eos_checks.lab.generate.traffic import SLOTS, SLOTS_IN_MS, Slice, Workload

RUN = "generated"
# Among the events of one moment and one transaction.
BEGIN, READ, SEND, OFFSETS, END, ENDED = range(6)


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
        commits: whether it is committed.
    """

    client: int
    group: int
    before: int
    firsts: list[int]
    commits: bool


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


Key = tuple[int, int, int, int]  # milliseconds, transaction, kind, number


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
    events: int = 0
    _taken: dict[int, Taken] = field(default_factory=dict)
    _sent: dict[int, int] = field(default_factory=dict)  # batches of a transaction on a partition, by its number
    _before: int = 0  # first transaction of the slice before
    _later: list[tuple[Key, str]] = field(default_factory=list)
    _number: int = 0
    _readers: list[_Reader] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._readers = [_Reader() for _ in range(max(1, self.workload.partitions // 3))]

    # ---- events

    def _add(self, ms: int, transaction: int, kind: int, text: str) -> None:
        self._number += 1
        self._later.append(((ms, transaction, kind, self._number), text))

    def _write(self, until_ms: float) -> None:
        """Write the events before a moment, in order."""
        due = sorted(each for each in self._later if each[0][0] < until_ms)
        self._later = [each for each in self._later if each[0][0] >= until_ms]
        for (ms, *_), text in due:
            self._tell(ms, text)

    def _tell(self, ms: int, text: str) -> None:
        self.out.write(f'{{"run":"{RUN}","order":{self.events},"time_us":{ms * 1000},{text}}}\n')
        self.events += 1

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
            for base, count in zip(batches.base_offset.tolist(), batches.record_count.tolist(), strict=True):
                for offset in range(base, base + count):
                    self._send(begin, -1, f"input-{partition}", self.inputs, partition, offset)
        self._transactions(part)
        for partition, batches in enumerate(topic):
            self._batches(partition, batches)
        self._write(end)
        for partition, (reader, batches) in enumerate(zip(self._readers, topic, strict=False)):
            for base, count in reader.take(batches):
                for offset in range(base, base + count):
                    self._tell(end, self._polled(f"reader-{partition}", partition, offset))
            self._tell(end, self._waits(f"reader-{partition}", partition, reader.stable))

    def _polled(self, reader: str, partition: int, offset: int) -> str:
        """An event: a reader of committed data polls a record."""
        return (
            f'"process":"{reader}","action":"Poll","phase":"ok","topic":"{self.topic}","partition":{partition},'
            f'"offset":{offset},"isolation":"read_committed","detail":{{"value":"{self._value(partition, offset)}"}}'
        )

    def _waits(self, reader: str, partition: int, offset: int) -> str:
        """An event: a reader of committed data has reached the last stable offset."""
        return (
            f'"process":"{reader}","action":"EndOfPartition","phase":"ok","topic":"{self.topic}",'
            f'"partition":{partition},"offset":{offset},"isolation":"read_committed"'
        )

    def _send(
        self,
        ms: int,
        transaction: int,
        process: str,
        topic: str,
        partition: int,
        offset: int,
        more: str = "",
    ) -> None:
        """Add the events of a record that is sent and acknowledged."""
        value = self._value(partition, offset)
        where = f'"topic":"{topic}","partition":{partition}'
        detail = f'"detail":{{"value":"{value}"{more}}}'
        head = f'"process":"{process}","action":"Send"'
        self._add(ms, transaction, SEND, f'{head},"phase":"invoke",{where},{detail}')
        self._add(ms, transaction, SEND, f'{head},"phase":"ok",{where},"offset":{offset},{detail}')

    def _transactions(self, part: Slice) -> None:
        """Add the begin and the end of transactions, and the inputs that are read in them."""
        own = part.transactions
        spread = self.workload.spread
        starts = (np.cumsum(own.counts, axis=1) - own.counts).tolist()
        first_number = part.first_number // spread
        self._forget(first_number)
        columns = (own.client, own.group, own.committed_before, own.offset, own.decision, own.empty, own.fenced)
        slots = (own.initialised, own.begin, own.prepared, own.completed)
        times = [FIRST_TIMESTAMP + (part.number * SLOTS + each.astype(np.int64)) // SLOTS_IN_MS for each in slots]
        rows = zip(*(column.tolist() for column in (*columns, *times)), strict=True)
        for row, (client, group, before, offset, decision, empty, fenced, _, *at) in enumerate(rows):
            number = first_number + row
            begin, prepared, completed = at
            if empty:
                continue
            commits = decision == ControlType.COMMIT
            self._taken[number] = Taken(client, group, before, starts[row], commits)
            head, detail = f'"process":"{self.names[client]}"', f'"detail":{{"transaction":{number}}}'
            self._add(begin, number, BEGIN, f'{head},"action":"BeginTransaction","phase":"invoke",{detail}')
            if group >= 0:
                self._inputs(begin, prepared, number, client, group, range(before, offset))
            if fenced:
                self._add(prepared, number, END, f'{head},"action":"Crash","phase":"info"')
            else:
                self._end(prepared, completed, number, head, detail, commits)

    def _forget(self, first_number: int) -> None:
        """Forget the transactions of all slices before the previous one: all their batches have been appended."""
        before, self._before = self._before, first_number
        self._taken = {number: taken for number, taken in self._taken.items() if number >= before}
        self._sent = {run: sent for run, sent in self._sent.items() if run >= before * self.workload.spread}

    def _inputs(self, begin: int, prepared: int, number: int, client: int, group: int, inputs: range) -> None:
        partition = client % self.workload.partitions
        where = f'"topic":"{self.inputs}","partition":{partition}'
        head, name = f'"process":"{self.names[client]}"', f'"group":"{self.groups[group]}"'
        for offset in inputs:
            detail = f'"detail":{{"value":"{self._value(partition, offset)}"}}'
            text = f'{head},"action":"Poll","phase":"ok",{where},"offset":{offset},{name},{detail}'
            self._add(begin, number, READ, text)
        for phase in ("invoke", "ok"):
            detail = f'"detail":{{"offsets":{{"{partition}":{inputs.stop}}},"transaction":{number}}}'
            text = (
                f'{head},"action":"SendOffsetsToTransaction","phase":"{phase}","topic":"{self.inputs}",{name},{detail}'
            )
            self._add(prepared, number, OFFSETS, text)

    def _end(self, prepared: int, completed: int, number: int, head: str, detail: str, commits: bool) -> None:
        action = "CommitTransaction" if commits else "AbortTransaction"
        self._add(prepared, number, END, f'{head},"action":"{action}","phase":"invoke",{detail}')
        self._add(completed, number, ENDED, f'{head},"action":"{action}","phase":"ok",{detail}')

    def _batches(self, partition: int, batches: Batches) -> None:
        """Add the records that were sent to a partition."""
        spread = self.workload.spread
        columns = (
            *(batches.base_offset, batches.record_count, batches.producer_id),
            *(batches.timestamp, batches.decision, batches.transaction),
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for base, count, pid, ms, decision, transaction in rows:
            if decision != NO_DECISION:
                continue
            number, process, more = -1, f"producer-{pid}", ""
            copied = ""
            if transaction != NO_TRANSACTION:
                run = transaction if transaction >= 0 else NO_TRANSACTION - 1 - transaction
                number, place = divmod(run, spread)
                taken = self._taken[number]
                process, more = self.names[taken.client], f',"transaction":{number}'
                if taken.group >= 0:
                    copies = self._sent.get(run, 0)
                    source = taken.before + taken.firsts[place] + copies
                    copied = f',"input":["{self.inputs}",{taken.client % self.workload.partitions},{source}]'
                    self._sent[run] = copies + 1
            for record in range(count):
                output = f'{copied},"output":{record}' if copied else ""
                self._send(ms, number, process, self.topic, partition, base + record, more + output)

    def close(self) -> None:
        """Write the remaining events."""
        self._write(np.inf)
