"""The program of an application: it polls inputs, and sends outputs and the input offsets in one transaction.

==============  ======================================================================================================
kind            input and outputs
==============  ======================================================================================================
``word-count``  a number and words; for each word its count among the inputs of this partition, on the partition of
                the same number. The outputs are the changelog: a new owner of a partition reads its counts from them
``transfer``    ``17 alice bob 5``; a debit and a credit, on the partitions of the two accounts
``mirror``      a record of another cluster; the same value, on the partition of the same number. The offsets are in
                the target cluster, under a group that nobody joins (KIP-656)
==============  ======================================================================================================

An output names its input, and its number among that input's outputs, in its ``Send`` (``detail.input``,
``detail.output``) and in its value, which makes values unique. The lines on standard output are those of
:mod:`kafka_eos_checks.lab.record.workload`.
"""

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from kafka_eos_checks.lab.record.clients import COMMITS_OUTSIDE, MIRROR, POLLS_ON, TRANSFER, WORD_COUNT, Task
from kafka_eos_checks.lab.record.workload import Client, Source, committed_offsets, run, tell

ACCOUNTS = {"alice": 0, "bob": 1, "carol": 7}  # account -> its partition

_QUICK = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}  # a frozen member soon loses its partitions
_CALL_SECONDS = 10.0
_IDLE_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Input:
    """A record that was polled and is still to be processed."""

    topic: str
    partition: int
    offset: int
    value: str


class Inputs(Source):
    """The inputs that an application polls: the source keeps positions, and seeks to the committed offsets on abort."""

    def __init__(self, kafka: Any, task: Task, **settings: Any) -> None:
        super().__init__(kafka, task, **settings)
        self.task = task
        self.stopping = False
        self.moved = False  # whether the next input may be another than the one after the last
        self._positions: dict[int, int] = {}  # by partition, after the inputs polled for this transaction

    def keep(self) -> None:
        """Note that the polled inputs were committed."""
        self._positions = {}

    def _drop(self) -> None:
        """Note that the polled inputs are not committed."""
        self._positions = {}
        self.moved = True

    def offsets(self) -> list[Any]:
        """The offsets after the inputs polled for this transaction, in confluent-kafka's form."""
        return [self.kafka.TopicPartition(self.task.source, *place) for place in sorted(self._positions.items())]

    def take(self, message: Any) -> Input:
        """Write the event of a polled record."""
        found = Input(message.topic(), message.partition(), message.offset(), message.value().decode())
        place = {"topic": found.topic, "partition": found.partition, "offset": found.offset}
        tell("Poll", "ok", **place, group=self.task.group, isolation="read_committed", detail={"value": found.value})
        self._positions[found.partition] = found.offset + 1
        return found

    def tell_seek(self, partition: int, offset: int) -> None:
        """Write the event that the next poll of a partition begins at an offset."""
        tell("Seek", "ok", topic=self.task.source, partition=partition, offset=offset, group=self.task.group)

    def poll_some(self, records: int) -> list[Input]:
        """The next inputs; none if the whole source is processed, or after a request to stop."""
        raise NotImplementedError


class Member(Inputs):
    """The inputs of a member of a group: partitions come and go."""

    def __init__(self, kafka: Any, task: Task) -> None:
        super().__init__(kafka, task, **_QUICK)
        self._polled: list[Input] = []

    def begin(self) -> None:
        """Join the group."""
        self.consumer.subscribe(
            [self.task.source], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self._changed("Assign", partitions)
        consumer.assign(partitions)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self._changed("Revoke", partitions)
        consumer.unassign()

    def _lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._changed("Revoke", partitions, lost=True)
        consumer.unassign()

    def _changed(self, action: str, partitions: list[Any], **detail: Any) -> None:
        """Write a change of the assignment; inputs that were polled but not processed go to the next owner."""
        self._polled = []
        self._drop()
        numbers = sorted(each.partition for each in partitions)
        tell(action, "ok", topic=self.task.source, group=self.task.group, detail={"partitions": numbers} | detail)

    def poll_some(self, records: int) -> list[Input]:
        """The next inputs of its partitions; none if the group has processed all, or after a request to stop."""
        self._polled = []
        while not self.stopping:
            message = self.consumer.poll(_IDLE_SECONDS)
            if message is not None and message.error() is None:
                self._polled.append(self.take(message))
            if len(self._polled) == records or (message is None and self._polled):
                return self._polled
            if message is None and self._is_done():
                break
        return []

    def _all(self) -> list[Any]:
        return [self.kafka.TopicPartition(self.task.source, number) for number in range(self.task.partitions)]

    def _is_done(self) -> bool:
        try:
            committed = self.consumer.committed(self._all(), 1.0)
        except self.kafka.KafkaException:  # the offsets' transaction has not ended yet
            return False
        processed: int = sum(max(0, each.offset) for each in committed)
        return processed >= self.task.records

    def rewind(self) -> None:
        """Seek to the committed offsets, because an abort moves no position."""
        mine = [each.partition for each in self.consumer.assignment()]
        wanted = [each for each in self._all() if each.partition in mine]
        for each in committed_offsets(self.kafka, self.consumer, wanted):
            offset = max(0, each.offset)
            self.consumer.seek(self.kafka.TopicPartition(self.task.source, each.partition, offset))
            self.tell_seek(each.partition, offset)
        self._drop()


class Careless(Member):
    """The mistake of many loops: after an abort the only member of a group polls on without a seek."""

    polled = 0

    def take(self, message: Any) -> Input:
        """Write the event of a polled record, once per record."""
        self.polled += 1
        return super().take(message)

    def _is_done(self) -> bool:
        return self.polled >= self.task.records

    def rewind(self) -> None:
        """Forget the polled inputs, and leave the position where it is."""
        self._drop()


class OtherCluster(Inputs):
    """The inputs of a mirror: all partitions of a topic of another cluster, outside of any group there."""

    def __init__(self, kafka: Any, task: Task) -> None:
        super().__init__(kafka, task)
        self.here = self.consumer  # in the target cluster, which has the offsets
        settings = {"bootstrap.servers": task.source_bootstrap, "client.id": task.client, "group.id": task.group}
        self.consumer = kafka.Consumer(settings | {"enable.auto.commit": False, "auto.offset.reset": "error"})

    def group_metadata(self) -> Any:
        """The group in the target cluster: it has no members, so only the producer's epoch fences."""
        return self.here.consumer_group_metadata()

    def begin(self) -> None:
        """Begin at the offsets in the target cluster."""
        self.rewind()

    def rewind(self) -> None:
        """Seek to the offsets in the target cluster."""
        wanted = [self.kafka.TopicPartition(self.task.source, number) for number in range(self.task.partitions)]
        committed = committed_offsets(self.kafka, self.here, wanted)
        self._next = {each.partition: max(0, each.offset) for each in committed}
        self.consumer.assign([self.kafka.TopicPartition(self.task.source, *place) for place in self._next.items()])
        for partition, offset in self._next.items():
            self.tell_seek(partition, offset)
        self._drop()

    def poll_some(self, records: int) -> list[Input]:
        """The next records; fewer only at the source's end."""
        polled: list[Input] = []
        while len(polled) < records and not self.stopping and sum(self._next.values()) < self.task.records:
            message = self.consumer.poll(_IDLE_SECONDS)
            if message is not None and message.error() is None:
                polled.append(self.take(message))
                self._next[message.partition()] = message.offset() + 1
        return polled


class Application(Client):
    """An instance of an application."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._counts: dict[int, Counter[str]] = {}
        super().__init__(task)

    def open_source(self) -> Inputs:
        """A member of a group, or a mirror."""
        kinds: dict[str, type[Inputs]] = {MIRROR: OtherCluster, POLLS_ON: Careless}
        self.inputs = kinds.get(self.task.mistake or self.task.kind, Member)(self.kafka, self.task)
        return self.inputs

    def next_values(self, records: int) -> list[Input]:
        """The next inputs; counts are read again if they may differ from the outputs."""
        inputs = self.inputs.poll_some(records)
        if self.inputs.moved:
            self._counts, self.inputs.moved = {}, False
        return inputs

    def send_some(self, values: list[Input]) -> None:
        """Send the outputs of inputs."""
        for each in values:
            for number, (partition, content) in enumerate(self._outputs(each)):
                place = [each.topic, each.partition, each.offset]
                value = f"{content} <{each.partition}@{each.offset}.{number}>"
                self.send_to(self.task.topic, partition, value, input=place, output=number)
        time.sleep(self.task.pause_ms / 1000)

    def _outputs(self, given: Input) -> Iterator[tuple[int, str]]:
        """The partition and the content of each output of an input."""
        if self.task.kind == MIRROR:
            yield given.partition, given.value
        elif self.task.kind == TRANSFER:
            _, debited, credited, amount = given.value.split()
            yield ACCOUNTS[debited], f"{debited} -{amount}"
            yield ACCOUNTS[credited], f"{credited} {amount}"
        else:
            assert self.task.kind == WORD_COUNT, self.task.kind
            counts = self._counts_of(given.partition)
            for word in given.value.split()[1:]:
                counts[word] += 1
                yield given.partition, f"{word} {counts[word]}"

    def _counts_of(self, partition: int) -> Counter[str]:
        """The counts of a partition, read from its outputs if necessary."""
        if partition not in self._counts:
            self._counts[partition] = self._restore(partition)
        return self._counts[partition]

    def _restore(self, partition: int) -> Counter[str]:
        """Read the outputs of a partition.

        The read goes to the end of the log and not just to the last stable offset: committed outputs may follow the
        open transaction of a former owner (KAFKA-10167).
        """
        settings = {
            "bootstrap.servers": self.task.bootstrap,
            "client.id": self.task.client,
            "group.id": self.task.group,  # required by the library; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        place = self.kafka.TopicPartition(self.task.topic, partition, 0)
        unstable = self.kafka.Consumer(settings | {"isolation.level": "read_uncommitted"})
        end = unstable.get_watermark_offsets(place, _CALL_SECONDS)[1]
        unstable.close()
        stable = self.kafka.Consumer(settings | {"isolation.level": "read_committed"})
        stable.assign([place])
        counts: Counter[str] = Counter()
        reached = 0
        while reached < end:
            message = stable.poll(_CALL_SECONDS)
            if message is None:
                continue
            if message.error() is None:
                word, count, _ = message.value().decode().split()
                counts[word] = int(count)
            elif message.error().code() == self.kafka.KafkaError._PARTITION_EOF:
                reached = message.offset()
        stable.close()
        return counts

    def send_offsets(self, common: dict[str, Any]) -> None:
        """Make the offsets part of the transaction; or, by mistake, commit them outside of it."""
        if self.task.mistake != COMMITS_OUTSIDE:
            super().send_offsets(common)
            return
        offsets = self.inputs.offsets()
        told = {str(each.partition): each.offset for each in offsets}
        about = common | {"topic": self.task.source, "group": self.task.group}
        about["detail"] = common["detail"] | {"offsets": told}
        tell("CommitOffsets", "invoke", **about)
        self.inputs.consumer.commit(offsets=offsets, asynchronous=False)
        tell("CommitOffsets", "ok", **about)
        self.may_pause("send_offsets")


def main(argument: str) -> int:
    """Run a task given as JSON."""
    application = Application(Task(**json.loads(argument)))

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's form
        application.inputs.stopping = True

    signal.signal(signal.SIGTERM, stop)
    code = run(application)
    application.inputs.consumer.close()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
