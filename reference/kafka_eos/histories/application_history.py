"""The history and logs of a run of ``ConsumeTransformProduce``, as applications and brokers would write them.

Each partition of the machine is one of the input topic and one of the output topic; input n has offset n - 1.
Each transactional id has a producer id. A step of the run is a millisecond.

===============  ======================================================================================================
process          events
===============  ======================================================================================================
an instance      ``Assign``, ``Revoke``, ``Seek``, ``Poll``, ``BeginTransaction``, ``Send``,
                 ``SendOffsetsToTransaction``, ``CommitTransaction``, ``AbortTransaction``, ``Crash``
``wire/`` of it  ``InitProducerId``, ``JoinGroup`` of a classic group, ``TxnOffsetCommit``
``coordinator``  ``WriteTxnMarkers``, ``TimeOut`` of a transaction, ``ExpireSession`` of a member
===============  ======================================================================================================

The coordinator's own log is left out: markers follow decisions as in transaction version 1.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.histories.history import Event
from kafka_eos.histories.simulator import Taken
from kafka_eos.machines.consume_transform_produce import ABORTABLE_ERRORS, Constants, ConsumeTransformProduce
from kafka_eos.machines.group_coordinator import CLASSIC, COMMIT, NO_OFFSET

INPUTS, OUTPUTS, GROUP = "simulated-input", "simulated-output", "simulated-group"
COORDINATOR = "coordinator"
FIRST_PRODUCER_ID = 1000

_Columns = dict[str, Any]


@dataclass(kw_only=True)
class ApplicationRecorder:
    """Watches a run.

    Attributes:
        run: the run's name.
        constants: the machine's constants.
        events: the history so far.
        logs: by topic and partition number, its batches.
        offsets: the batches of the partition of ``__consumer_offsets``.
    """

    run: str
    constants: Constants
    events: list[Event] = field(default_factory=list)
    logs: dict[tuple[str, int], list[RecordBatch]] = field(default_factory=dict)
    offsets: list[RecordBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = {name: number for number, name in enumerate(sorted(self.constants.partitions))}
        producers = sorted(self.constants.transactional_ids)
        self._producer_ids = {name: FIRST_PRODUCER_ID + number for number, name in enumerate(producers)}
        self._epochs = dict.fromkeys(producers, -1)  # the latest epoch of each producer
        self._held: dict[tuple[str, str], int] = {}  # instance, producer -> its epoch
        self._open: dict[tuple[str, str], int] = {}  # instance, producer -> number of its transaction
        self._begun: dict[str, int] = {}  # instance -> how many transactions it has begun
        self._sequences: dict[tuple[str, int, str, str], int] = {}  # producer, epoch, topic, partition -> next
        self._decided: dict[str, int] = {}  # producer -> epoch of the markers of its decision
        self._requests = 0
        self._now = 0
        for name, number in self._numbers.items():
            self.logs[INPUTS, number] = [
                build_batch([Record(value=f"{name}{n}".encode())], base_offset=n - 1)
                for n in sorted(self.constants.inputs)
            ]
            self.logs[OUTPUTS, number] = []

    def watch(self, steps: Iterable[Taken[ConsumeTransformProduce]]) -> None:
        """Write down a run, or its next part."""
        for taken in steps:
            if not self._now:
                for instance in sorted(self.constants.instances):
                    self._assigned(taken.before, instance)
            self._now += 1
            name, arguments = taken.instance.action.name, [str(each) for each in taken.instance.arguments]
            tell = getattr(self, f"_{name}", None)
            for row in tell(taken, *arguments) if tell is not None else ():
                self._event(row)
            for instance in sorted(self.constants.instances):
                self._moved(taken, instance)

    # --- the history ----------------------------------------------------------------------------------------------

    def _event(self, row: Mapping[str, Any]) -> None:
        self.events.append(Event(run=self.run, order=len(self.events), **row))

    def _input(self, partition: str, offset: int) -> _Columns:
        return {"topic": INPUTS, "partition": self._numbers[partition], "offset": offset, "group": GROUP}

    def _told(self, instance: str, producer: str, action: str, phase: str, **columns: Any) -> _Columns:
        detail = columns.pop("detail", {}) | {"transaction": self._transaction(instance, producer)}
        row = {"process": instance, "action": action, "phase": phase, "transactional_id": producer}
        return row | {"detail": detail} | columns

    def _transaction(self, instance: str, producer: str) -> int:
        """The number of an instance's transaction, from the first that it does in it."""
        if (instance, producer) not in self._open:
            self._open[instance, producer] = self._begun[instance] = self._begun.get(instance, -1) + 1
        return self._open[instance, producer]

    def _assigned(self, state: ConsumeTransformProduce, instance: str) -> None:
        process = state.processes[instance]
        if self.constants.group_protocol == CLASSIC:
            row = {"process": f"wire/{instance}", "action": "JoinGroup", "group": GROUP}
            self._event(row | {"phase": "ok", "generation": process.generation, "error": 0})
        detail = {"partitions": sorted(self._numbers[each] for each in process.assigned)}
        told = {"process": instance, "action": "Assign", "phase": "ok", "topic": INPUTS, "group": GROUP}
        self._event(told | {"detail": detail})

    def _moved(self, taken: Taken[ConsumeTransformProduce], instance: str) -> None:
        """The events of an instance that learns its partitions and positions."""
        before, after = taken.before.processes[instance], taken.after.processes[instance]
        if after.is_up and after.generation != before.generation:
            if after.generation:
                self._assigned(taken.after, instance)
            else:
                row = {"process": instance, "action": "Revoke", "phase": "ok", "topic": INPUTS, "group": GROUP}
                self._event(row)
        for partition, position in sorted(after.positions.items()):
            if before.positions[partition] == NO_OFFSET != position:
                self._event({"process": instance, "action": "Seek", "phase": "ok", **self._input(partition, position)})

    def _Process(  # noqa: N802 - named for the action
        self, taken: Taken[ConsumeTransformProduce], instance: str, partition: str
    ) -> Iterator[_Columns]:
        producer = taken.before.id_of(instance, partition)
        position = taken.before.processes[instance].positions[partition]
        value = f"{partition}{position + 1}"
        place = self._input(partition, position)
        yield {
            "process": instance,
            "action": "Poll",
            "phase": "ok",
            "isolation": "read_committed",
            "detail": {"value": value},
            **place,
        }
        if (instance, producer) not in self._open:
            yield self._told(instance, producer, "BeginTransaction", "invoke")
            yield self._told(instance, producer, "BeginTransaction", "ok")
        number = self._numbers[partition]
        source = [INPUTS, number, position]
        sent = {"topic": OUTPUTS, "partition": number, "detail": {"value": f"out {value}", "input": source}}
        yield self._told(instance, producer, "Send", "invoke", **sent)
        log = self.logs[OUTPUTS, number]  # a batch takes one offset, and so does a marker
        yield self._told(instance, producer, "Send", "ok", offset=len(log), **sent)
        log.append(self._batch(instance, producer, partition, [Record(value=f"out {value}".encode())], len(log)))

    def _offsets_of(self, state: ConsumeTransformProduce, instance: str, producer: str) -> dict[str, int]:
        written = state.transactions[producer].written
        return {
            partition: state.offset_to_send(instance, partition)
            for partition in sorted(written)
            if any(written[partition].values())
        }

    def _SendOffsets(  # noqa: N802 - named for the action
        self, taken: Taken[ConsumeTransformProduce], instance: str, producer: str
    ) -> Iterator[_Columns]:
        offsets = self._offsets_of(taken.before, instance, producer)
        yield from self._send(taken.before, instance, producer, offsets, ErrorCode.NONE)
        records = [
            Record(
                offset_delta=delta,
                key=OffsetCommitKey(group=GROUP, topic=INPUTS, partition=self._numbers[partition]).encode(),
                value=OffsetCommitValue(offset=offset, commit_timestamp_ms=self._now).encode(),
            )
            for delta, (partition, offset) in enumerate(offsets.items())
        ]
        self.offsets.append(self._batch(instance, producer, "", records, self._end_of_offsets()))

    def _RefuseOffsets(  # noqa: N802 - named for the action
        self, taken: Taken[ConsumeTransformProduce], instance: str, producer: str
    ) -> Iterator[_Columns]:
        offsets = self._offsets_of(taken.before, instance, producer)
        error = taken.before.offsets_error(instance, producer)
        yield from self._send(taken.before, instance, producer, offsets, error)
        if error in ABORTABLE_ERRORS:
            yield from self._Abort(taken, instance, producer)
        else:
            yield from self._Crash(taken, instance)

    def _send(
        self, state: ConsumeTransformProduce, instance: str, producer: str, offsets: dict[str, int], error: ErrorCode
    ) -> Iterator[_Columns]:
        told = {str(self._numbers[partition]): offset for partition, offset in offsets.items()}
        row = {"topic": INPUTS, "group": GROUP, "detail": {"offsets": told}}
        yield self._told(instance, producer, "SendOffsetsToTransaction", "invoke", **row)
        is_member = state.presented_member(instance) is not None
        generation = state.presented_generation(instance) if is_member else -1
        phase = "ok" if error is ErrorCode.NONE else "fail"
        self._requests += 1
        for partition, offset in offsets.items():
            wire = {
                "process": f"wire/{instance}",
                "action": "TxnOffsetCommit",
                "topic": INPUTS,
                "partition": self._numbers[partition],
                "group": GROUP,
                "generation": generation,
                "detail": {"request": self._requests, "committed_offset": offset},
            }
            yield wire | {"phase": "invoke"}
            yield wire | {"phase": phase, "error": int(error)}
        yield self._told(instance, producer, "SendOffsetsToTransaction", phase, **row)

    def _Commit(  # noqa: N802 - named for the action
        self, _: Taken[ConsumeTransformProduce], instance: str, producer: str
    ) -> Iterator[_Columns]:
        self._decided[producer] = self._held[instance, producer]
        yield self._told(instance, producer, "CommitTransaction", "invoke")
        yield self._told(instance, producer, "CommitTransaction", "ok")
        del self._open[instance, producer]

    def _Abort(  # noqa: N802 - named for the action
        self, taken: Taken[ConsumeTransformProduce], instance: str, producer: str
    ) -> Iterator[_Columns]:
        yield self._told(instance, producer, "AbortTransaction", "invoke")
        yield from self._abort_outputs(taken.before, producer, self._held[instance, producer])
        yield self._told(instance, producer, "AbortTransaction", "ok")
        del self._open[instance, producer]

    def _ReceiveFencing(  # noqa: N802 - named for the action
        self,
        _: Taken[ConsumeTransformProduce],
        instance: str,
        producer: str,  # noqa: ARG002 - it gives up all
    ) -> Iterator[_Columns]:
        self._forget(instance)
        return iter(())

    def _Join(self, _: Taken[ConsumeTransformProduce], instance: str) -> Iterator[_Columns]:  # noqa: N802 - as above
        self._forget(instance)
        return iter(())

    def _Crash(self, _: Taken[ConsumeTransformProduce], instance: str) -> Iterator[_Columns]:  # noqa: N802 - as above
        self._forget(instance)
        yield {"process": instance, "action": "Crash", "phase": "ok"}

    def _forget(self, instance: str) -> None:
        self._open = {key: number for key, number in self._open.items() if key[0] != instance}

    # --- the coordinators and the logs ----------------------------------------------------------------------------

    def _Initialize(  # noqa: N802 - named for the action
        self, taken: Taken[ConsumeTransformProduce], instance: str, producer: str
    ) -> Iterator[_Columns]:
        before = taken.before
        if before.init_aborts(producer):
            yield from self._fence(before, producer)
        self._epochs[producer] += 1
        self._held[instance, producer] = self._epochs[producer]
        granted = {"producer_id": self._producer_ids[producer], "producer_epoch": self._epochs[producer], "error": 0}
        asked = {"process": f"wire/{instance}", "action": "InitProducerId", "transactional_id": producer}
        yield asked | granted | {"phase": "ok"}

    def _TimeOut(  # noqa: N802 - named for the action
        self, taken: Taken[ConsumeTransformProduce], producer: str
    ) -> Iterator[_Columns]:
        yield {"process": COORDINATOR, "action": "TimeOut", "phase": "ok", "transactional_id": producer}
        yield from self._fence(taken.before, producer)

    def _ExpireSession(  # noqa: N802 - named for the action
        self, _: Taken[ConsumeTransformProduce], instance: str
    ) -> Iterator[_Columns]:
        row = {"process": COORDINATOR, "action": "ExpireSession", "phase": "ok", "group": GROUP}
        yield row | {"detail": {"member": instance}}

    def _fence(self, before: ConsumeTransformProduce, producer: str) -> Iterator[_Columns]:
        self._epochs[producer] += 1
        yield from self._abort_outputs(before, producer, self._epochs[producer])

    def _abort_outputs(self, before: ConsumeTransformProduce, producer: str, epoch: int) -> Iterator[_Columns]:
        self._decided[producer] = epoch
        for partition, written in sorted(before.transactions[producer].written.items()):
            if any(written.values()):
                yield self._mark_output(partition, producer, ControlType.ABORT)

    def _mark_output(self, partition: str, producer: str, decision: ControlType) -> _Columns:
        place = OUTPUTS, self._numbers[partition]
        return self._mark(place, self.logs[place], producer, decision)

    def _PublishOutput(  # noqa: N802 - named for the action
        self, _: Taken[ConsumeTransformProduce], producer: str, partition: str
    ) -> Iterator[_Columns]:
        yield self._mark_output(partition, producer, ControlType.COMMIT)

    def _PublishOffsets(  # noqa: N802 - named for the action
        self, taken: Taken[ConsumeTransformProduce], producer: str
    ) -> Iterator[_Columns]:
        committed = taken.before.transactions[producer].state == COMMIT
        decision = ControlType.COMMIT if committed else ControlType.ABORT
        yield self._mark((OFFSETS_TOPIC, 0), self.offsets, producer, decision)

    def _mark(self, place: tuple[str, int], log: list[RecordBatch], producer: str, decision: ControlType) -> _Columns:
        """Write a marker; its event has the epoch as a detail, because the column is for epochs given to clients."""
        offset = log[-1].last_offset + 1  # a marker ends data
        log.append(
            build_control_batch(
                ControlRecord(control_type=decision, coordinator_epoch=0),
                producer_id=self._producer_ids[producer],
                producer_epoch=self._decided[producer],
                base_offset=offset,
                timestamp=self._now,
            )
        )
        return {
            "process": COORDINATOR,
            "action": "WriteTxnMarkers",
            "phase": "ok",
            "topic": place[0],
            "partition": place[1],
            "offset": offset,
            "transactional_id": producer,
            "producer_id": self._producer_ids[producer],
            "detail": {"committed": decision is ControlType.COMMIT, "epoch": self._decided[producer]},
        }

    def _end_of_offsets(self) -> int:
        return self.offsets[-1].last_offset + 1 if self.offsets else 0

    def _batch(self, instance: str, producer: str, partition: str, records: list[Record], offset: int) -> RecordBatch:
        """A batch of a transaction; the group coordinator stamps its own with sequence -1."""
        epoch = self._held[instance, producer]
        counter = producer, epoch, OUTPUTS, partition
        sequence = self._sequences.get(counter, 0) if partition else -1
        self._sequences[counter] = sequence + len(records)
        return build_batch(
            records,
            base_offset=offset,
            base_timestamp=self._now,
            producer_id=self._producer_ids[producer],
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
