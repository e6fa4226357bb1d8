# ruff: noqa: ARG002, ARG005 - the fake has the signatures of confluent-kafka
import json
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.lab.record import reader

EOF, RESET, TRANSPORT = -191, -140, -195


class FakeKafkaException(Exception):  # noqa: N818 - confluent-kafka's name
    pass


def message(partition: int, offset: int, value: str = "", error: int = 0) -> Any:
    said = SimpleNamespace(code=lambda: error) if error else None
    row = {"topic": "t", "partition": partition, "offset": offset, "value": value.encode(), "error": said}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in row.items()})


class FakeConsumer:
    """A consumer that returns the items of ``script`` one by one; it calls callable items instead."""

    script: list[Any] = []  # noqa: RUF012 - set by each test
    assigned: list[list[tuple[str, int, int]]] = []  # noqa: RUF012

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def assign(self, places: list[tuple[str, int, int]]) -> None:
        self.assigned.append(places)

    def poll(self, seconds: float) -> Any:
        found = self.script.pop(0)
        return found() if callable(found) else found

    def close(self) -> None:
        pass


def read(
    script: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    """Run a reader of two partitions on a script; return the events it wrote."""
    fake = SimpleNamespace(
        Consumer=FakeConsumer,
        KafkaException=FakeKafkaException,
        KafkaError=SimpleNamespace(_PARTITION_EOF=EOF, _AUTO_OFFSET_RESET=RESET),
        TopicPartition=lambda *place: place,
    )
    monkeypatch.setattr(reader, "need", lambda module, extra: fake)
    monkeypatch.setattr(FakeConsumer, "script", script)
    monkeypatch.setattr(FakeConsumer, "assigned", [])
    row = {"bootstrap": "x:1", "client": "c", "partitions": {"t": 2}, "isolation": "read_committed"}
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert reader.main(json.dumps(row)) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    return [json.loads(line.partition(" ")[2]) for line in capsys.readouterr().out.splitlines()]


def stop() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_every_record_and_then_the_end_of_each_partition_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = [message(0, 0, "a"), None, message(1, 3, "b"), stop, message(0, 2, error=EOF), message(1, 4, error=EOF)]
    events = read(script, monkeypatch, capsys)
    told = [(e["action"], e["partition"], e["offset"], e.get("detail", {}).get("value")) for e in events[1:]]
    assert events[0] == {"action": "Assign", "phase": "ok", "isolation": "read_committed"}
    assert told == [
        ("Poll", 0, 0, "a"),
        ("Poll", 1, 3, "b"),
        ("EndOfPartition", 0, 2, None),
        ("EndOfPartition", 1, 4, None),
    ]
    assert {e["isolation"] for e in events} == {"read_committed"}


def test_an_end_that_was_reached_before_the_request_to_stop_is_searched_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [message(0, 2, error=EOF), message(1, 0, error=EOF)]
    late = [message(0, 2, "late"), message(0, 3, error=EOF), message(1, 0, error=EOF)]
    events = read([*ends, stop, *late], monkeypatch, capsys)
    assert [(e["action"], e["offset"]) for e in events[1:]] == [
        ("Poll", 2),
        ("EndOfPartition", 3),
        ("EndOfPartition", 0),
    ]
    assert FakeConsumer.assigned == [[("t", 0, 0), ("t", 1, 0)], [("t", 0, 2), ("t", 1, 0)]]


def test_a_record_is_read_once_also_if_the_reader_is_told_to_stop_right_after_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read([message(0, 4, "a"), stop, message(0, 5, error=EOF), message(1, 0, error=EOF)], monkeypatch, capsys)
    assert FakeConsumer.assigned[-1] == [("t", 0, 5), ("t", 1, 0)]


def test_a_broker_that_is_away_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = [message(0, 0, error=TRANSPORT), stop, message(0, 0, error=EOF), message(1, 0, error=EOF)]
    assert [e["action"] for e in read(script, monkeypatch, capsys)] == ["Assign", "EndOfPartition", "EndOfPartition"]


def test_a_position_that_is_not_in_the_log_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FakeKafkaException):
        read([message(0, 0, error=RESET)], monkeypatch, capsys)
