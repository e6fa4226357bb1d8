"""The program of a librdkafka consumer: it reads partitions from their beginning, and writes the records it got.

On SIGTERM it reads on to the end of each partition, writes that offset, and ends. Its lines are those of
:mod:`kafka_eos_checks.lab.record.workload`.
"""

import json
import signal
import sys
from types import FrameType
from typing import Any

from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.lab.record.clients import Reading
from kafka_eos_checks.lab.record.workload import tell

Place = tuple[str, int]  # topic, partition


class Reader:
    """A consumer with its output."""

    def __init__(self, reading: Reading) -> None:
        self.kafka = need("confluent_kafka", "record")
        self.reading = reading
        self.next = {(topic, number): 0 for topic, count in reading.partitions.items() for number in range(count)}
        self.stopping = False
        self.consumer = self.kafka.Consumer(
            {
                "bootstrap.servers": reading.bootstrap,
                "client.id": reading.client,
                "broker.address.family": "v4",
                "group.id": reading.client,  # required by the library; nothing is committed
                "isolation.level": reading.isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 250,
            }
        )

    def stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler's form
        """Read only up to the present end."""
        self.stopping = True

    def assign(self) -> None:
        """Start fetching at the present positions."""
        self.consumer.assign([self.kafka.TopicPartition(*place, offset) for place, offset in self.next.items()])

    def run(self) -> None:
        """Read until told to stop."""
        self.assign()
        tell("Assign", "ok", isolation=self.reading.isolation)
        while not self.stopping:
            self._poll()
        self.assign()  # so that the end of every partition is found again
        left = set(self.next)
        while left:
            ended = self._poll()
            if ended in left:
                left.remove(ended)
                self._tell("EndOfPartition", ended, self.next[ended])

    def _poll(self) -> Place | None:
        """Write the next record; return a partition whose end was reached.

        Raises:
            KafkaException: if a position is not in the log.
        """
        message = self.consumer.poll(0.1)
        if message is None:
            return None
        place, error = (message.topic(), message.partition()), message.error()
        if error is None:
            self.next[place] = message.offset() + 1
            self._tell("Poll", place, message.offset(), detail={"value": message.value().decode()})
            return None
        if error.code() == self.kafka.KafkaError._AUTO_OFFSET_RESET:
            raise self.kafka.KafkaException(error)
        if error.code() != self.kafka.KafkaError._PARTITION_EOF:
            return None  # brokers come and go
        self.next[place] = message.offset()
        return place

    def _tell(self, action: str, place: Place, offset: int, **columns: Any) -> None:
        about = {"topic": place[0], "partition": place[1], "offset": offset, "isolation": self.reading.isolation}
        tell(action, "ok", **about, **columns)


def main(argument: str) -> int:
    """Run a reading given as JSON."""
    reader = Reader(Reading(**json.loads(argument)))
    signal.signal(signal.SIGTERM, reader.stop)
    reader.run()
    reader.consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
