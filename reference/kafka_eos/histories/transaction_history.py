"""The history and logs of a run of ``Transactions``, as clients, brokers and a reader would write them.

One transactional.id, one producer id, a batch of one record for each partition of a transaction. A step of the run is a
millisecond. A marker takes one offset, and so does a batch, so that an entry's place in the log of the machine is its
offset.

========================  =============================================================================================
process                   events
========================  =============================================================================================
an instance               ``BeginTransaction``, ``Send``, ``CommitTransaction``, ``AbortTransaction``
``wire/`` an instance     ``InitProducerId``, ``AddPartitionsToTxn``, ``Produce``, ``EndTxn``
``coordinator``           ``WriteTxnMarkers``, ``TimeOut``, ``LeaderChange`` of the partition of ``__transaction_state``
``operator``              ``WriteTxnMarkers``, past the coordinator
``leader``                ``LeaderChange`` of a partition
``reader``                ``Poll``, one for each record, and ``EndOfPartition`` at the last stable offset: at the
                          beginning, and after each append
========================  =============================================================================================

The coordinator writes a record whenever its own changes. A failover writes none: it reads.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos.formats.transaction_log import (
    TRANSACTION_VERSION_2,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos.histories.history import Event
from kafka_eos.histories.simulator import Arguments, Taken
from kafka_eos.machines.transactions import Constants, Entry, Reply, Transactions

TOPIC, TRANSACTIONAL_ID = "simulated", "simulated-t"
COORDINATOR, LEADER, OPERATOR, READER = "coordinator", "leader", "operator", "reader"
PRODUCER_ID = 1000
TIMEOUT_MS = 60_000
GIVEN_UP = 3
NOT_BEGUN = -1  # as the start of a transaction that is none

_ENDS = {True: "CommitTransaction", False: "AbortTransaction"}
_MARKERS = {"commit": ControlType.COMMIT, "abort": ControlType.ABORT}
_RETRIED = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER})
_RESTS = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


def value_name(instance: str, number: int, partition: int) -> str:
    """The content of the record that an instance's transaction has on a partition."""
    return f"{instance}{number}.{partition}"


def possible_arguments() -> dict[str, Callable[[Transactions], Arguments]]:
    """The arguments, for the simulator, of the actions that handle a request: those of the requests that are there.

    An instance gives up an unanswered batch in one of :data:`GIVEN_UP` transactions, and otherwise wants to commit two
    of three. The network keeps no copy of a batch.
    """

    def of(requests: str, *fields: str) -> Callable[[Transactions], Arguments]:
        def found(state: Transactions) -> Arguments:
            given: Iterable[tuple[Hashable, ...]] = (
                tuple(getattr(request, name) for name in fields) for request in getattr(state, requests)
            )
            return sorted(set(given))

        return found

    def and_any(arguments: Callable[[Transactions], Arguments]) -> Callable[[Transactions], Arguments]:
        return lambda state: [(*given, also) for given in arguments(state) for also in (False, True)]

    batch = ("instance", "number", "partition")
    sent = of("produce_requests", *batch)
    marker = of("marker_requests", "partition", "version", "epoch", "commit", "coordinator_epoch")
    return {
        "Expire": _expiries,
        "End": _ends,
        "HandleAdd": of("add_requests", *batch),
        "StartVerification": lambda state: [(*asked, False) for asked in sent(state)],
        "AppendUnverified": sent,
        "Verify": of("verifying", *batch),
        "VerifyByFormer": of("verifying", *batch),
        "AppendVerified": of("verified", *batch),
        "HandleEnd": and_any(of("end_requests", "instance", "number", "commit")),
        "HandleMarker": marker,
        "RepeatMarker": and_any(marker),
    }


def _expiries(state: Transactions) -> Arguments:
    clients = sorted(state.clients.items())
    return [(name, ending) for name, client in clients if client.number % GIVEN_UP == 0 for ending in (False, True)]


def _ends(state: Transactions) -> Arguments:
    return [(name, commit) for name in sorted(state.clients) for commit in (True, True, False)]


class ReadCommitted:
    """A reader of committed data, and the leader that serves it.

    Kafka: UnifiedLog.lastStableOffset, CompletedFetch.nextFetchedRecord
    """

    def last_stable_offset(self, log: Sequence[Entry]) -> int:
        """The offset of the first batch whose transaction is open, or the end of the log."""
        end = len(log)
        while end and log[end - 1].kind == "data":
            end -= 1
        return end

    def is_delivered(self, log: Sequence[Entry], offset: int) -> bool:
        """Whether a record below the last stable offset is committed."""
        return next((entry.kind for entry in log[offset:] if entry.kind != "data"), "") == "commit"

    def content(self, entry: Entry, partition: int) -> str:
        """The content of a record that is delivered."""
        return value_name(entry.instance, entry.number, partition)

    def position_after(self, start: int, end: int) -> int:
        """The next position, once the reader was given everything from one position to the last stable offset."""
        return max(start, end)


@dataclass(kw_only=True)
class TransactionRecorder:
    """Watches a run.

    Attributes:
        run: the run's name.
        constants: the machine's constants.
        reader: the reader of all partitions.
        events: the history so far.
        logs: by partition number, its batches.
        coordinator_log: the batches of the partition of ``__transaction_state``.
    """

    run: str
    constants: Constants
    reader: ReadCommitted = field(default_factory=ReadCommitted)
    events: list[Event] = field(default_factory=list)
    logs: dict[int, list[RecordBatch]] = field(init=False)
    coordinator_log: list[RecordBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = {name: number for number, name in enumerate(sorted(self.constants.partitions))}
        self.logs = {number: [] for number in self._numbers.values()}
        self._positions = dict.fromkeys(self.logs, 0)
        self._sequences: dict[tuple[str, int, str], int] = {}  # instance, transaction, partition -> of its batch
        self._sent: dict[tuple[str, int, str], int] = {}  # instance, epoch, partition -> how many batches
        self._requests: dict[str, int] = {}  # instance -> the number of its last request
        self._batches: dict[tuple[str, int, str], tuple[int, int]] = {}  # -> its request's number, and its epoch
        self._ends: dict[tuple[Hashable, ...], int] = {}  # request to end a transaction -> its number
        self._copies: set[tuple[Hashable, ...]] = set()  # those that the network repeats
        self._markers: set[tuple[Hashable, ...]] = set()  # markers that the network repeats
        self._asked: set[tuple[str, int, bool]] = set()  # instance, transaction, commit
        self._began_ms = NOT_BEGUN
        self._leader_epochs = dict.fromkeys(self.logs, 0)
        self._now = 0
        for number in self.logs:
            self._read(number, ())

    def watch(self, steps: Iterable[Taken[Transactions]]) -> None:
        """Write down a run, or its next part."""
        for taken in steps:
            self._now += 1
            if taken.instance.action.name == "TimeOut":
                self._now = max(self._now, self._began_ms + TIMEOUT_MS + 1)
            self._tell(taken)
            self._append(taken)

    # --- the history ----------------------------------------------------------------------------------------------

    def _tell(self, taken: Taken[Transactions]) -> None:
        told: dict[str, Callable[[Taken[Transactions]], Iterator[dict[str, Any]]]] = {
            "Initialize": self._initialize,
            "AddPartition": self._add_partition,
            "Produce": self._produce,
            "Expire": self._expire,
            "End": self._end,
            "Receive": self._receive,
            "AppendUnverified": self._appended_late,
            "AppendVerified": self._appended_late,
            "HandleEnd": self._handle_end,
            "HandleMarker": self._handle_marker,
            "RepeatMarker": self._repeat_marker,
            "AbortByAdmin": self._abort_by_admin,
            "TimeOut": self._time_out,
            "Failover": self._failover,
            "ElectLeader": self._elect_leader,
            "Crash": self._crash,
        }
        for row in told.get(taken.instance.action.name, _nothing)(taken):
            self._event(row)

    def _event(self, row: Mapping[str, Any]) -> None:
        self.events.append(Event(run=self.run, order=len(self.events), **row))

    def _asks(self, instance: str) -> None:
        self._requests[instance] = self._requests.get(instance, -1) + 1

    def _wire(self, instance: str, action: str, phase: str, epoch: int, **columns: Any) -> dict[str, Any]:
        detail = {"request": self._requests[instance]} | columns.pop("detail", {})
        return {
            "process": f"wire/{instance}",
            "action": action,
            "phase": phase,
            "transactional_id": TRANSACTIONAL_ID,
            "producer_id": PRODUCER_ID if epoch >= 0 else -1,
            "producer_epoch": epoch,
            "detail": detail,
            **columns,
        }

    def _application(self, instance: str, action: str, phase: str, number: int, **columns: Any) -> dict[str, Any]:
        detail = columns.pop("detail", {}) | {"transaction": number}
        row = {"process": instance, "action": action, "phase": phase, "transactional_id": TRANSACTIONAL_ID}
        return row | {"detail": detail, **columns}

    def _place(self, partition: str) -> dict[str, Any]:
        return {"topic": TOPIC, "partition": self._numbers[partition]}

    def _send(self, instance: str, number: int, partition: str, phase: str, **columns: Any) -> dict[str, Any]:
        value = value_name(instance, number, self._numbers[partition])
        place = self._place(partition)
        return self._application(instance, "Send", phase, number, detail={"value": value}, **place, **columns)

    def _batch(self, instance: str, number: int, partition: str) -> dict[str, Any]:
        sequence = self._sequences[instance, number, partition]
        return {**self._place(partition), "base_sequence": sequence, "record_count": 1}

    def _initialize(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        instance = str(taken.instance.arguments[0])
        self._asks(instance)
        yield self._wire(instance, "InitProducerId", "invoke", taken.before.clients[instance].epoch)

    def _begin(self, taken: Taken[Transactions], instance: str) -> Iterator[dict[str, Any]]:
        if taken.before.clients[instance].state != "open":
            number = taken.after.clients[instance].number
            yield self._application(instance, "BeginTransaction", "invoke", number)
            yield self._application(instance, "BeginTransaction", "ok", number)

    def _add_partition(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        instance, partition = map(str, taken.instance.arguments)
        yield from self._begin(taken, instance)
        self._asks(instance)
        epoch = taken.after.clients[instance].epoch
        yield self._wire(instance, "AddPartitionsToTxn", "invoke", epoch, **self._place(partition))

    def _produce(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        instance, partition = map(str, taken.instance.arguments)
        yield from self._begin(taken, instance)
        client = taken.after.clients[instance]
        counter = instance, client.epoch, partition
        self._sequences[instance, client.number, partition] = self._sent.get(counter, 0)
        self._sent[counter] = self._sent.get(counter, 0) + 1
        yield self._send(instance, client.number, partition, "invoke")
        self._asks(instance)
        self._batches[instance, client.number, partition] = self._requests[instance], client.epoch
        batch = self._batch(instance, client.number, partition)
        yield self._wire(instance, "Produce", "invoke", client.epoch, **batch)

    def _appended_late(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        """A batch that is appended when its client waits no longer: the answer goes back to nobody."""
        instance, number, partition = taken.instance.arguments
        client = taken.before.clients[str(instance)]
        before, after = (state.logs[str(partition)].entries for state in (taken.before, taken.after))
        if len(after) == len(before) or (client.awaits, client.number) == ("produce", number):
            return
        request, epoch = self._batches[str(instance), int(str(number)), str(partition)]
        batch = self._batch(str(instance), int(str(number)), str(partition)) | {"offset": len(before), "error": 0}
        detail = {"request": request, "delivered": False}
        yield self._wire(str(instance), "Produce", "ok", epoch, detail=detail, **batch)

    def _expire(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        instance = str(taken.instance.arguments[0])
        client = taken.before.clients[instance]
        yield self._send(instance, client.number, client.partition, "info")

    def _end(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        instance, commit = str(taken.instance.arguments[0]), bool(taken.instance.arguments[1])
        client = taken.before.clients[instance]
        if (instance, client.number, commit) not in self._asked:
            self._asked.add((instance, client.number, commit))
            yield self._application(instance, _ENDS[commit], "invoke", client.number)
        self._asks(instance)
        self._ends[instance, client.number, commit] = self._requests[instance]
        yield self._wire(instance, "EndTxn", "invoke", client.epoch, detail={"committed": commit})

    def _handle_end(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        """A repeated request: each copy except the first one is seen on its way."""
        *request, stays = taken.instance.arguments
        instance, number, commit = request
        if tuple(request) in self._copies:
            epoch = next(
                r.epoch
                for r in taken.before.end_requests
                if (r.instance, r.number, r.commit) == (instance, number, commit)
            )
            copied = self._ends[tuple(request)]
            detail = {"committed": commit, "request": copied, "repeats": copied}
            yield self._wire(str(instance), "EndTxn", "invoke", epoch, detail=detail)
        if stays:
            self._copies.add(tuple(request))
        else:
            self._copies.discard(tuple(request))

    def _handle_marker(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        yield self._marker(taken, *taken.instance.arguments)

    def _repeat_marker(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        *marker, _ = taken.instance.arguments
        row = self._marker(taken, *marker)
        self._markers.add(tuple(marker))
        yield row

    def _marker(self, taken: Taken[Transactions], *marker: Hashable) -> dict[str, Any]:
        """A marker that a leader is sent: it is written, or refused.

        Its epoch is no column: there it would say which epoch a client was given.
        """
        partition, _, epoch, commit, coordinator_epoch = marker
        before, after = (state.logs[str(partition)].entries for state in (taken.before, taken.after))
        detail = {"committed": commit, "epoch": epoch} | ({"repeats": True} if marker in self._markers else {})
        written = len(after) > len(before)
        return {
            "process": COORDINATOR,
            "action": "WriteTxnMarkers",
            "phase": "ok" if written else "fail",
            "transactional_id": TRANSACTIONAL_ID,
            "producer_id": PRODUCER_ID,
            "coordinator_epoch": coordinator_epoch,
            "offset": len(before) if written else None,
            "detail": detail,
            **self._place(str(partition)),
        }

    def _abort_by_admin(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        [partition] = map(str, taken.instance.arguments)
        log = taken.before.logs[partition]
        yield {
            "process": OPERATOR,
            "action": "WriteTxnMarkers",
            "phase": "ok",
            "producer_id": PRODUCER_ID,
            "coordinator_epoch": log.coordinator_epoch,
            "offset": len(log.entries),
            "detail": {"committed": False, "epoch": log.epoch, "by_hand": True},
            **self._place(partition),
        }

    def _time_out(self, _: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        row = {"process": COORDINATOR, "action": "TimeOut", "phase": "ok"}
        yield row | {"transactional_id": TRANSACTIONAL_ID, "producer_id": PRODUCER_ID}

    def _receive(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        [instance] = map(str, taken.instance.arguments)
        client = taken.before.clients[instance]
        answer = next(answer for answer in taken.before.answers if answer.instance == instance)
        told = {"init": self._init_answered, "add": self._add_answered, "produce": self._produce_answered}
        yield from told.get(client.awaits, self._end_answered)(taken.before, instance, answer)

    def _init_answered(self, _: Transactions, instance: str, answer: Reply) -> Iterator[dict[str, Any]]:
        phase = "ok" if answer.error is ErrorCode.NONE else "fail"
        epoch = answer.epoch if phase == "ok" else -1
        yield self._wire(instance, "InitProducerId", phase, epoch, error=int(answer.error))

    def _add_answered(self, before: Transactions, instance: str, answer: Reply) -> Iterator[dict[str, Any]]:
        client, phase = before.clients[instance], "ok" if answer.error is ErrorCode.NONE else "fail"
        place = self._place(client.partition)
        yield self._wire(instance, "AddPartitionsToTxn", phase, client.epoch, error=int(answer.error), **place)

    def _produce_answered(self, before: Transactions, instance: str, answer: Reply) -> Iterator[dict[str, Any]]:
        client, partition = before.clients[instance], before.clients[instance].partition
        batch = self._batch(instance, client.number, partition) | {"error": int(answer.error)}
        if answer.error is not ErrorCode.NONE:
            yield self._wire(instance, "Produce", "fail", client.epoch, **batch)
            self._sent[instance, client.epoch, partition] -= 1  # the next batch takes the sequence that is free again
            phase = "fail" if answer.error in _RETRIED else "info"
            yield self._send(instance, client.number, partition, phase, error=int(answer.error))
            return
        offset = next(
            offset
            for offset, entry in enumerate(before.logs[partition].entries)
            if (entry.instance, entry.number) == (instance, client.number)
        )
        yield self._wire(instance, "Produce", "ok", client.epoch, offset=offset, **batch)
        yield self._send(instance, client.number, partition, "ok", offset=offset)

    def _end_answered(self, before: Transactions, instance: str, answer: Reply) -> Iterator[dict[str, Any]]:
        client = before.clients[instance]
        commit, code = client.state == "committing", int(answer.error)
        ended = answer.error is ErrorCode.NONE
        detail: dict[str, Any] = {"committed": commit}
        if ended and client.version == TRANSACTION_VERSION_2:
            detail |= {"next_producer_id": PRODUCER_ID, "next_producer_epoch": answer.epoch}
        yield self._wire(instance, "EndTxn", "ok" if ended else "fail", client.epoch, error=code, detail=detail)
        if ended:
            yield self._application(instance, _ENDS[commit], "ok", client.number)
        elif answer.error not in _RETRIED:
            yield self._application(instance, _ENDS[commit], "info", client.number, error=code)

    def _failover(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        yield {
            "process": COORDINATOR,
            "action": "LeaderChange",
            "phase": "ok",
            "topic": COORDINATOR_TOPIC,
            "partition": 0,
            "transactional_id": TRANSACTIONAL_ID,
            "coordinator_epoch": taken.after.coordinator_epoch,
        }

    def _elect_leader(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        place = self._place(str(taken.instance.arguments[0]))
        self._leader_epochs[place["partition"]] += 1
        epoch = self._leader_epochs[place["partition"]]
        yield {"process": LEADER, "action": "LeaderChange", "phase": "ok", **place, "leader_epoch": epoch}

    def _crash(self, taken: Taken[Transactions]) -> Iterator[dict[str, Any]]:
        yield {"process": str(taken.instance.arguments[0]), "action": "Crash", "phase": "ok"}

    # --- the logs -------------------------------------------------------------------------------------------------

    def _append(self, taken: Taken[Transactions]) -> None:
        """Append what a step adds to the logs, and give it to the reader."""
        before, after = taken.before, taken.after
        if after.transaction != before.transaction and taken.instance.action.name != "Failover":
            self._append_state(after)
        for name, number in self._numbers.items():
            entries = after.logs[name].entries
            for entry in entries[len(before.logs[name].entries) :]:
                self.logs[number].append(self._stored(name, entry, after))
            if len(entries) > len(before.logs[name].entries):
                self._read(number, entries)

    def _stored(self, partition: str, entry: Entry, after: Transactions) -> RecordBatch:
        number = self._numbers[partition]
        offset = len(self.logs[number])
        if entry.kind != "data":
            coordinator_epoch = after.logs[partition].coordinator_epoch
            return build_control_batch(
                ControlRecord(control_type=_MARKERS[entry.kind], coordinator_epoch=coordinator_epoch),
                producer_id=PRODUCER_ID,
                producer_epoch=entry.epoch,
                base_offset=offset,
                partition_leader_epoch=self._leader_epochs[number],
                timestamp=self._now,
            )
        return build_batch(
            [Record(value=value_name(entry.instance, entry.number, number).encode())],
            base_offset=offset,
            partition_leader_epoch=self._leader_epochs[number],
            base_timestamp=self._now,
            producer_id=PRODUCER_ID,
            producer_epoch=entry.epoch,
            base_sequence=self._sequences[entry.instance, entry.number, partition],
            is_transactional=True,
        )

    def _append_state(self, after: Transactions) -> None:
        record = after.transaction
        at_rest = record.state in _RESTS
        if record.state is TransactionState.EMPTY:
            self._began_ms = NOT_BEGUN
        elif self._began_ms == NOT_BEGUN:  # an abort of what has not begun begins, too
            self._began_ms = self._now
        numbers = tuple(sorted(self._numbers[name] for name in record.partitions))
        topics = (TopicPartitions(topic=TOPIC, partition_ids=numbers),) if numbers else ()
        value = TransactionLogValue(
            producer_id=PRODUCER_ID,
            producer_epoch=record.epoch,
            transaction_timeout_ms=TIMEOUT_MS,
            transaction_status=record.state,
            transaction_partitions=None if record.state is TransactionState.EMPTY else topics,
            transaction_last_update_timestamp_ms=self._now,
            transaction_start_timestamp_ms=self._began_ms,
            client_transaction_version=record.version if record.version >= TRANSACTION_VERSION_2 else 0,
        )
        if at_rest:
            self._began_ms = NOT_BEGUN
        self.coordinator_log.append(
            build_batch(
                [Record(key=TransactionLogKey(transactional_id=TRANSACTIONAL_ID).encode(), value=value.encode())],
                base_offset=len(self.coordinator_log),
                partition_leader_epoch=after.coordinator_epoch,
                base_timestamp=self._now,
            )
        )

    def _read(self, partition: int, log: Sequence[Entry]) -> None:
        """The reader goes on from its position, up to the last stable offset."""
        start, end = self._positions[partition], self.reader.last_stable_offset(log)
        row = {"process": READER, "phase": "ok", "topic": TOPIC, "partition": partition, "isolation": "read_committed"}
        for offset in range(start, end):
            entry = log[offset]
            if entry.kind == "data" and self.reader.is_delivered(log, offset):
                value = self.reader.content(entry, partition)
                self._event(row | {"action": "Poll", "offset": offset, "detail": {"value": value}})
        self._positions[partition] = self.reader.position_after(start, end)
        self._event(row | {"action": "EndOfPartition", "offset": end})


def _nothing(_: Taken[Transactions]) -> Iterator[dict[str, Any]]:
    """The events of an action that neither a client nor its wire sees: none."""
    return iter(())
