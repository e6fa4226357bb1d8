"""Only the requests of producers without a proof are judged together; the others are proved in buckets."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.consumer_offsets import TOPIC, OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.record_batch import ControlRecord, ControlType, Record, build_batch, build_control_batch
from kafka_eos.formats.transaction_log import TOPIC as TRANSACTION_STATE
from kafka_eos.formats.transaction_log import (
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos.histories.history import Event, write_history
from kafka_eos_checks.audit import places
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT, Moments, Source
from kafka_eos_checks.audit.oracle import readable_histories
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.plan.history_plan import judge_histories
from kafka_eos_checks.audit.rules.histories import REFUSED, Join
from kafka_eos_checks.audit.rules.sent_offsets import NOT_AS_SENT
from kafka_eos_checks.audit.segments.splits import find_logs

from .test_skew import Counting

PRODUCERS, TRANSACTIONS = 30, 20
SUSPECT = "suspect producers"


def recorded(folder: Path) -> tuple[list[Event], Path]:
    """Producers that send offsets: the first loses one, the second is refused without a cause."""
    events, batches = list[Event](), list[bytes]()
    for number in range(TRANSACTIONS):
        for pid in range(PRODUCERS):
            who: dict[str, Any] = {"run": "r", "process": f"p{pid}", "transactional_id": f"t{pid}"}
            if number == 0:
                events += [Event(action="InitProducerId", phase="invoke", **who)]
            who |= {"producer_id": pid, "producer_epoch": 0}
            if number == 0:
                events += [Event(action="InitProducerId", phase="ok", **who)]
            where: dict[str, Any] = {"topic": "in", "partition": pid, "group": "g"}
            for phase in ("invoke", "ok"):
                detail: dict[str, Any] = {"committed_offset": number}
                events.append(Event(action="TxnOffsetCommit", phase=phase, detail=detail, **where, **who))
            events += [
                Event(action="EndTxn", phase=phase, detail={"committed": True}, **who) for phase in ("invoke", "ok")
            ]
            key = OffsetCommitKey(group="g", topic="in", partition=pid).encode()
            value = OffsetCommitValue(offset=number + 100 * (pid == 0 and number == 7)).encode()
            own: dict[str, Any] = {"producer_id": pid, "producer_epoch": 0}
            at = len(batches)
            stored = build_batch([Record(key=key, value=value)], base_offset=at, is_transactional=True, **own)
            commit = ControlRecord(control_type=ControlType.COMMIT, coordinator_epoch=0)
            batches += [stored.encode(), build_control_batch(commit, base_offset=at + 1, **own).encode()]
    error = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    who = {"process": "p1", "transactional_id": "t1", "producer_id": 1, "producer_epoch": 0}
    events.append(Event(run="r", action="Produce", phase="fail", topic="in", partition=0, error=error, **who))
    write_segment(folder / f"{TOPIC}-0" / f"{0:020d}.log", batches)
    write_segment(folder / "in-0" / f"{0:020d}.log", [build_batch([Record(value=b"v")]).encode()])
    history = folder / "history.jsonl"
    events = [replace(event, order=order, time_us=1) for order, event in enumerate(events)]
    write_history(history, events)
    return events, history


def test_a_suspect_producer_does_not_bring_the_requests_of_the_others(tmp_path: Path) -> None:
    events, history = recorded(tmp_path)
    logs, engine = find_logs(tmp_path), Counting()
    _, found = judge_histories([history], logs, AT_ONE_MOMENT, engine)
    readable = readable_histories.join(events, logs)
    assert sorted(map(repr, found.findings)) == sorted(map(repr, readable.findings))
    assert found.figures == readable.figures
    assert {finding.rule for finding in readable.findings} == {REFUSED, NOT_AS_SENT}
    assert found.figures[NOT_AS_SENT]["checked"] == 2 * PRODUCERS * TRANSACTIONS
    assert len(engine.given[SUSPECT]) == 2, "two of thirty producers, each in a task of its own"
    assert max(engine.given[SUSPECT].values()) <= 4 * TRANSACTIONS + 3
    assert engine.share("producers") < 0.3, "the others are proved in buckets"


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_history_far_away_is_read_again_once_for_all_suspects(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = pytest.importorskip("pyarrow.fs")
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    events, history = recorded(tmp_path)
    for pid in range(2, 10):
        who = {"process": f"p{pid}", "transactional_id": f"t{pid}", "producer_id": pid, "order": len(events)}
        events.append(replace(events[-1], **who))
    long = random.Random(1)
    events = [replace(event, detail=event.detail | {"member": long.randbytes(900).hex()}) for event in events]
    write_history(history, events)
    if form == "parquet":
        rows = [asdict(event) | {"detail": json.dumps(event.detail)} for event in events]
        history = tmp_path / "history.parquet"
        parquet.write_table(pa.Table.from_pylist(rows), history, row_group_size=len(rows) // 5, compression="none")
    answered, pread = list[int](), places.RemoteFile.pread

    def counted(file: places.RemoteFile, count: int, at: int) -> bytes:
        found = pread(file, count, at)
        answered.append(len(found))
        return found

    monkeypatch.setattr(places.RemoteFile, "pread", counted)
    local = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(places, "_file_system", lambda *_: (local, ""))
    logs, engine, size = find_logs(tmp_path), Counting(), history.stat().st_size
    before = places.bytes_read()
    _, found = judge_histories(
        [places.place(f"s3://b/{history.name}")], logs, AT_ONE_MOMENT, engine, range_bytes=900_000
    )
    read = places.bytes_read() - before
    _, nearby = judge_histories([tmp_path / "history.jsonl"], logs, AT_ONE_MOMENT, LocalEngine())
    assert sorted(map(repr, found.findings)) == sorted(map(repr, nearby.findings)) != []
    assert found.figures == nearby.figures
    assert len(engine.given[SUSPECT]) == 10, "suspects of ten tasks"
    assert size < sum(answered) < 2.6 * size, "metadata of tables, and the bytes around the ends of ranges, more often"
    assert sum(answered) < read < sum(answered) + size / 4, "each of them is counted once, and the logs"


def test_nothing_is_read_again_if_all_producers_are_proved(tmp_path: Path) -> None:
    _, history = recorded(tmp_path)
    lines = history.read_text().splitlines(keepends=True)
    history.write_text("".join(line for line in lines if '"p0"' not in line and '"fail"' not in line))
    engine = Counting()
    _, found = judge_histories([history], find_logs(tmp_path), AT_ONE_MOMENT, engine)
    assert list(found.findings) == []
    assert found.figures[NOT_AS_SENT] == {"checked": 2 * (PRODUCERS - 1) * TRANSACTIONS, "unknown": 0}
    assert SUSPECT not in engine.given


OWN: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
WHERE: dict[str, Any] = {"topic": "in", "partition": 0, "group": "g"}


def stored(at: int, offset: int | None, group: str = "g", *, transactional: bool = True) -> bytes:
    """A committed offset of the producer, or a tombstone."""
    key = OffsetCommitKey(group=group, topic="in", partition=0).encode()
    record = Record(key=key, value=None if offset is None else OffsetCommitValue(offset=offset).encode())
    return build_batch([record], base_offset=at, is_transactional=transactional, base_sequence=at, **OWN).encode()


def marker(at: int) -> bytes:
    record = ControlRecord(control_type=ControlType.COMMIT, coordinator_epoch=0)
    return build_control_batch(record, base_offset=at, **OWN).encode()


def of_another(
    at: int, group: str = "g", partition: int = 0, offset: int | None = 9, *, transactional: bool = True
) -> list[bytes]:
    """An offset or a tombstone, which another producer commits, and its marker."""
    key = OffsetCommitKey(group=group, topic="in", partition=partition).encode()
    value, own = None if offset is None else OffsetCommitValue(offset=offset), {"producer_id": 8, "producer_epoch": 0}
    record = Record(key=key, value=None if value is None else value.encode())
    if not transactional:
        return [build_batch([record], base_offset=at).encode()]
    end = ControlRecord(control_type=ControlType.COMMIT, coordinator_epoch=0)
    made = build_batch([record], base_offset=at, is_transactional=True, base_sequence=at, **own)
    return [made.encode(), build_control_batch(end, base_offset=at + 1, **own).encode()]


@pytest.mark.parametrize(
    ("logs", "found", "unknown"),
    [
        ([of_another(0)], 1, 0),
        ([of_another(0, partition=1)], 1, 0),
        ([of_another(0, "other")], 0, 1),
        ([of_another(0, "other"), of_another(0)], 1, 0),
        ([[*of_another(0), *of_another(2, transactional=False)]], 0, 1),
        ([[*of_another(0), *of_another(2, partition=1, transactional=False)]], 1, 0),
        ([[*of_another(0), *of_another(2, offset=None)]], 0, 1),
        ([of_another(5)], 0, 1),
        ([[stored(0, 6), marker(1)]], 2, 0),
        ([of_another(0), [stored(0, 6), marker(1)]], 2, 0),
    ],
    ids=[
        *("another producer's", "another partition", "another group", "another log", "outside of transactions"),
        *("outside of transactions elsewhere", "a tombstone in a transaction", "a log that begins later"),
        *("another offset", "in another log"),
    ],
)
def test_a_suspect_is_judged_by_what_the_logs_have_of_its_group(
    logs: list[list[bytes]], found: int, unknown: int, tmp_path: Path
) -> None:
    for number, batches in enumerate(logs):
        first = 5 if batches == of_another(5) else 0
        write_segment(tmp_path / "broker" / f"{TOPIC}-{number}" / f"{first:020d}.log", batches)
    own: dict[str, Any] = {"run": "r", "process": "p", "order": 0, "time_us": 1, **OWN}
    sent: dict[str, Any] = {"detail": {"committed_offset": 4}, **WHERE}
    events = [Event(action="TxnOffsetCommit", phase=phase, **sent, **own) for phase in ("invoke", "ok")]
    events += [Event(action="EndTxn", phase=phase, detail={"committed": True}, **own) for phase in ("invoke", "ok")]
    strange = {"repeats": 1}  # so that columns prove nothing
    events += [Event(action="EndTxn", phase="invoke", detail=strange, **own)]
    events = [replace(event, order=order) for order, event in enumerate(events)]
    write_history(tmp_path / "history.jsonl", events)
    partitions, engine = find_logs(tmp_path / "broker"), Counting()
    _, judged = judge_histories([tmp_path / "history.jsonl"], partitions, AT_ONE_MOMENT, engine)
    readable = readable_histories.join(events, partitions)
    assert sorted(map(repr, judged.findings)) == sorted(map(repr, readable.findings))
    assert judged.figures == readable.figures
    assert (len(judged.findings), judged.figures[NOT_AS_SENT]["unknown"]) == (found, unknown)
    assert SUSPECT in engine.given


@pytest.mark.parametrize(
    "logs",
    [
        [[stored(0, 4), marker(1)]],
        [[stored(0, 4), marker(1)], [stored(0, 5)]],
        [[stored(0, 4), marker(1)], [stored(0, 5), marker(1)]],
        [[stored(0, 4), stored(1, 5, "other"), marker(2)]],
        [[stored(0, 4), stored(1, None), marker(2)]],
        [[stored(0, 5, transactional=False), stored(1, 4), marker(2)]],
    ],
    ids=["plain", "shorter replica", "as long a replica", "other group", "tombstone", "outside of transactions"],
)
def test_what_else_is_in_the_logs_makes_no_suspect(logs: list[list[bytes]], tmp_path: Path) -> None:
    found, engine = both(tmp_path, sent_and_committed(), logs)
    assert found.figures[NOT_AS_SENT]["checked"] == 2
    assert SUSPECT not in engine.given


def test_an_offset_that_logs_lack_which_may_be_older_makes_no_suspect(tmp_path: Path) -> None:
    moments = Moments(Source(one_moment=False), ())
    found, engine = both(tmp_path, sent_and_committed(), [of_another(0)], moments=moments)
    assert found.figures[NOT_AS_SENT] == {"checked": 1, "unknown": 1}
    assert SUSPECT not in engine.given


def sent_and_committed() -> list[Event]:
    """A producer sends an offset in a transaction, and commits it."""
    own: dict[str, Any] = {"run": "r", "process": "p", **OWN}
    sent: dict[str, Any] = {"detail": {"committed_offset": 4}, **WHERE}
    events = [Event(action="TxnOffsetCommit", phase=phase, **sent, **own) for phase in ("invoke", "ok")]
    return events + [
        Event(action="EndTxn", phase=phase, detail={"committed": True}, **own) for phase in ("invoke", "ok")
    ]


def test_a_made_up_refusal_is_not_checked(tmp_path: Path) -> None:
    own: dict[str, Any] = {"run": "r", "process": "p", **OWN, "topic": "out", "partition": 0}
    error = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    events = [
        Event(action="Produce", phase="ok", **{**own, "producer_epoch": 1}),
        Event(action="Produce", phase="invoke", detail={"request": 1, "fault": "error"}, **own),
        Event(action="Produce", phase="fail", error=error, detail={"request": 1}, **own),
    ]
    assert both(tmp_path, events, [])[0].figures[REFUSED] == {"checked": 0, "unknown": 0}
    real = [replace(event, detail={"request": 1}) for event in events]
    assert both(tmp_path, real, [])[0].figures[REFUSED] == {"checked": 1, "unknown": 0}


REFUSED_ONE: dict[str, Any] = {"run": "r", "process": "p", "action": "Produce", "topic": "in", "partition": 0, **OWN}


@pytest.mark.parametrize("answer", ["ok", "info"])
def test_without_logs_nobody_knows_whether_an_open_transaction_timed_out(answer: str, tmp_path: Path) -> None:
    own: dict[str, Any] = {"run": "r", "process": "p", "action": "InitProducerId"}
    events = [Event(phase="invoke", **own), Event(phase="ok", **own, **OWN)]
    events += [Event(phase=phase, **REFUSED_ONE) for phase in ("invoke", answer)]
    events += [Event(phase="fail", error=int(ErrorCode.INVALID_PRODUCER_EPOCH), **REFUSED_ONE)]
    assert both(tmp_path, events, [])[0].figures[REFUSED] == {"checked": 1, "unknown": 1}


def test_the_first_request_with_an_epoch_is_that_of_the_history_order(tmp_path: Path) -> None:
    refusal = Event(phase="fail", error=int(ErrorCode.INVALID_PRODUCER_EPOCH), **REFUSED_ONE)
    higher = REFUSED_ONE | {"producer_epoch": 1}
    events = [refusal, Event(phase="invoke", **higher), refusal, Event(phase="ok", **higher)]
    found, engine = both(tmp_path, events, [[build_batch([Record(value=b"v")]).encode()]], topic="in", backwards=True)
    assert found.figures[REFUSED] == {"checked": 2, "unknown": 1}
    assert engine.given[SUSPECT]


def both(
    folder: Path,
    events: list[Event],
    replicas: Sequence[list[bytes]],
    *,
    topic: str = TOPIC,
    backwards: bool = False,
    moments: Moments = AT_ONE_MOMENT,
) -> tuple[Join, Counting]:
    """Judge events by the plan and by the readable rules; there are no findings, and the same figures.

    The lines of the history may go backwards.
    """
    for number, batches in enumerate(replicas):
        write_segment(folder / f"broker-{number}" / f"{topic}-0" / f"{0:020d}.log", batches)
    history = folder / "history.jsonl"
    events = [replace(event, order=order, time_us=1) for order, event in enumerate(events)]
    write_history(history, events[::-1] if backwards else events)
    logs, engine = [log for broker in sorted(folder.glob("broker-*")) for log in find_logs(broker)], Counting()
    _, found = judge_histories([history], logs, moments, engine)
    readable = readable_histories.join(events, logs, moments)
    assert [list(found.findings), list(readable.findings)] == [[], []]
    assert found.figures == readable.figures
    return found, engine


BEGAN, TIMEOUT = 1_700_000_000_000, 60_000
REFUSALS = tuple(
    map(int, (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
)


def any_requests(rng: random.Random) -> list[Event]:
    """Requests of two transactional ids and three producer ids, answered or not, in any order."""
    sequence, made_up = [0] * 3, rng.random() < 0.1
    events = list[Event]()
    for number in range(rng.randrange(4, 40)):
        action = rng.choice(
            ("Produce", "Produce", "Produce", "AddPartitionsToTxn", "EndTxn", "InitProducerId", "TimeOut")
        )
        name = rng.randrange(2)
        own: dict[str, Any] = {"run": "r", "process": f"p{name}", "transactional_id": f"t{name}", "action": action}
        pid, epoch = rng.choice((name, name, name, 2)), rng.choice((0, 0, 0, 1, 1, 2))
        if action in {"Produce", "AddPartitionsToTxn"}:
            own |= {"topic": "in", "partition": rng.choice((0, 0, 1))}
        if action == "Produce":
            own |= {"base_sequence": sequence[pid], "record_count": 1}
        detail: dict[str, Any] = {"request": number}
        asked = own | ({} if action == "InitProducerId" else {"producer_id": pid, "producer_epoch": epoch})
        if rng.random() < 0.9:
            faulty = {"fault": "error"} if made_up and rng.random() < 0.2 else {}
            events.append(Event(phase="invoke", detail=detail | faulty, **asked))
        if rng.random() < 0.8:
            own |= {"producer_id": pid, "producer_epoch": epoch}
            if rng.random() < 0.4 and action in {"Produce", "EndTxn"}:
                events.append(Event(phase="fail", error=rng.choice(REFUSALS), detail=detail, **own))
                continue
            sequence[pid] += action == "Produce"
            if action == "EndTxn":
                detail |= rng.choice(({}, {"next_producer_id": pid, "next_producer_epoch": epoch + 1}))
            events.append(Event(phase=rng.choice(("ok", "ok", "ok", "info")), detail=detail, **own))
    return [replace(event, order=order, time_us=1) for order, event in enumerate(events)]


def decided(rng: random.Random) -> Record:
    """A record of a decision, in time or late."""
    value = TransactionLogValue(
        producer_id=rng.randrange(3),
        producer_epoch=rng.randrange(1, 4),
        transaction_timeout_ms=TIMEOUT,
        transaction_status=rng.choice((TransactionState.PREPARE_ABORT, TransactionState.ONGOING)),
        transaction_partitions=(TopicPartitions(topic="in", partition_ids=(0,)),),
        transaction_last_update_timestamp_ms=BEGAN + rng.choice((0, TIMEOUT, TIMEOUT + 1)),
        transaction_start_timestamp_ms=rng.choice((BEGAN, BEGAN, BEGAN, -1)),
        next_producer_id=-1,
        client_transaction_version=2,
    )
    return Record(key=TransactionLogKey(transactional_id="t0").encode(), value=value.encode())


def test_refusals_are_judged_by_few_requests_as_by_all(tmp_path: Path) -> None:
    rng = random.Random(41)
    checked = unknown = violations = 0
    for number in range(250):
        folder = tmp_path / str(number)
        events = any_requests(rng)
        if rng.random() < 0.5:
            rng.shuffle(events)  # the lines of a history have any order
        if rng.random() < 0.1:
            events = [replace(event, order=None) for event in events]
        folder.mkdir()
        write_history(folder / "history.jsonl", events)
        markers = []
        for at in range(rng.randrange(3)):
            record = ControlRecord(control_type=ControlType.ABORT, coordinator_epoch=0)
            own: dict[str, Any] = {"producer_id": rng.randrange(3), "producer_epoch": rng.randrange(4)}
            markers.append(build_control_batch(record, base_offset=at, **own).encode())
        if rng.random() < 0.7:
            write_segment(folder / "broker" / "in-0" / f"{0:020d}.log", markers)
            records = [decided(rng) for _ in range(rng.randrange(4))]
            batches = [build_batch([record], base_offset=at).encode() for at, record in enumerate(records)]
            write_segment(folder / "broker" / f"{TRANSACTION_STATE}-0" / f"{0:020d}.log", batches)
        logs = find_logs(folder / "broker") if (folder / "broker").exists() else []
        _, found = judge_histories([folder / "history.jsonl"], logs, AT_ONE_MOMENT, LocalEngine(1))
        readable = readable_histories.join(events, logs)
        assert sorted(map(repr, found.findings)) == sorted(map(repr, readable.findings)), number
        assert found.figures == readable.figures, number
        checked += readable.figures[REFUSED]["checked"]
        unknown += readable.figures[REFUSED]["unknown"]
        violations += len(list(readable.findings))
    assert min(checked, unknown, violations) > 20
