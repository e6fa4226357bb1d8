# ruff: noqa: ARG002, ARG005 - the fake has the signatures of confluent-kafka
import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.lab.record import workload
from kafka_eos_checks.lab.record.clients import CALLS, FATAL_EXIT, Workload


class FakeError:
    def __init__(self, code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> None:
        self._code, self._fatal, self._retriable, self._abort = code, fatal, retriable, abort

    def code(self) -> int:
        return self._code

    def name(self) -> str:
        return f"E{self._code}"

    def fatal(self) -> bool:
        return self._fatal

    def retriable(self) -> bool:
        return self._retriable

    def txn_requires_abort(self) -> bool:
        return self._abort


class FakeKafkaException(Exception):  # noqa: N818 - confluent-kafka's name
    pass


PURGE_QUEUE, PURGE_INFLIGHT = -152, -151


class FakeProducer:
    """A producer that delivers at the next poll, with the value's outcome in ``outcomes``; ``failures`` are calls'."""

    outcomes: dict[str, FakeError] = {}  # noqa: RUF012 - set by each test
    failures: dict[str, list[FakeError]] = {}  # noqa: RUF012

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.open: list[Callable[[], None]] = []
        self.stored = 0

    def __len__(self) -> int:
        return len(self.open)

    def _call(self, name: str) -> None:
        if self.failures.get(name):
            raise FakeKafkaException(self.failures[name].pop(0))

    def produce(self, topic: str, value: bytes, *, partition: int, on_delivery: Callable[..., None]) -> None:
        self._call("produce")
        error, offset = self.outcomes.get(value.decode()), self.stored
        self.stored += error is None
        self.open.append(lambda: on_delivery(error, SimpleNamespace(offset=lambda: offset)))

    def poll(self, seconds: float) -> None:
        while self.open:
            self.open.pop(0)()
        self._call("poll")

    def purge(self) -> None:
        self.open.clear()

    def init_transactions(self, seconds: float) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def commit_transaction(self, seconds: float) -> None:
        self._call("commit")

    def abort_transaction(self, seconds: float) -> None:
        self._call("abort")

    def send_offsets_to_transaction(self, offsets: list[Any], group: str, seconds: float) -> None:
        self._call("offsets")
        assert group == "metadata"


class FakeConsumer:
    """A consumer of one partition with the values ``s0``, ``s1`` …, of which ``committed`` are already copied."""

    committed_offset = -1001

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["isolation.level"] == "read_committed"
        self.position = 0

    def committed(self, partitions: list[Any], seconds: float) -> list[Any]:
        return [SimpleNamespace(partition=each.partition, offset=self.committed_offset) for each in partitions]

    def assign(self, partitions: list[Any]) -> None:
        self.position = partitions[0].offset

    def poll(self, seconds: float) -> Any:
        offset, self.position = self.position, self.position + 1
        row = {"topic": "s", "partition": 0, "offset": offset, "value": f"s{offset}".encode(), "error": None}
        return SimpleNamespace(**{name: lambda value=value: value for name, value in row.items()})

    def consumer_group_metadata(self) -> str:
        return "metadata"


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[tuple[Any, ...]]]]:
    """Run a workload on the fake; return exit code and events (action, phase, value or transaction, error)."""
    fake = SimpleNamespace(
        Producer=FakeProducer,
        Consumer=FakeConsumer,
        TopicPartition=lambda topic, partition, offset=-1: SimpleNamespace(partition=partition, offset=offset),
        KafkaException=FakeKafkaException,
        KafkaError=SimpleNamespace(_PURGE_QUEUE=PURGE_QUEUE, _PURGE_INFLIGHT=PURGE_INFLIGHT),
    )
    monkeypatch.setattr(workload, "need", lambda module, extra: fake)

    def start(
        outcomes: dict[str, FakeError] | None = None, failures: dict[str, list[FakeError]] | None = None, **work: Any
    ) -> tuple[int, list[tuple[Any, ...]]]:
        monkeypatch.setattr(FakeProducer, "outcomes", outcomes or {})
        monkeypatch.setattr(FakeProducer, "failures", failures or {})
        row = {"bootstrap": "x:1", "client": "c", "topic": "t", "records": 2, "prefix": "a", "pause_ms": 0} | work
        code = workload.main(json.dumps(row))
        told = [json.loads(line.partition(" ")[2]) for line in capsys.readouterr().out.splitlines()]
        events = []
        for event in told:
            detail = event.get("detail", {})
            about = detail.get("value", detail.get("transaction"))
            events.append((event["action"], event["phase"], about, event.get("error")))
        return code, events

    return start


def test_an_idempotent_producer_reports_each_send_and_its_outcome(run: Any) -> None:
    code, events = run()
    assert code == 0
    assert events == [
        ("Send", "invoke", "a0", None),
        ("Send", "ok", "a0", None),
        ("Send", "invoke", "a1", None),
        ("Send", "ok", "a1", None),
    ]


@pytest.mark.parametrize(
    ("code", "phase", "error"),
    [
        (45, "info", 45),
        (6, "info", 6),
        (-1, "info", -1),
        (-192, "info", None),
        (PURGE_INFLIGHT, "info", None),
        (PURGE_QUEUE, "fail", None),
    ],
)
def test_only_a_record_that_never_left_the_queue_is_known_not_to_be_stored(
    run: Any, code: int, phase: str, error: int | None
) -> None:
    _, events = run({"a1": FakeError(code)})
    assert events[-1] == ("Send", phase, "a1", error)


def test_a_fatal_error_ends_an_idempotent_producer(run: Any) -> None:
    code, events = run(failures={"poll": [FakeError(45, fatal=True)]})
    assert code == FATAL_EXIT
    assert [phase for _, phase, *_ in events] == ["invoke", "ok", "invoke", "ok"]


def test_transactions_are_reported_with_their_records(run: Any) -> None:
    code, events = run(transactional_id="x", transaction_size=1)
    assert code == 0
    assert [(action, phase) for action, phase, *_ in events] == 2 * [
        ("BeginTransaction", "invoke"),
        ("BeginTransaction", "ok"),
        ("Send", "invoke"),
        ("Send", "ok"),
        ("CommitTransaction", "invoke"),
        ("CommitTransaction", "ok"),
    ]


def test_the_seed_decides_which_transactions_are_aborted(run: Any) -> None:
    def ends(seed: int) -> list[str]:
        _, events = run(transactional_id="x", transaction_size=1, records=12, abort_chance=0.5, seed=seed)
        return [action for action, phase, *_ in events if phase == "ok" and action != "Send"]

    assert ends(1) == ends(1) != ends(2)
    assert {"AbortTransaction", "CommitTransaction"} < set(ends(1))


def test_a_retriable_commit_is_tried_again_with_its_outcome_open_until_then(run: Any) -> None:
    code, events = run(transactional_id="x", failures={"commit": [FakeError(7, retriable=True)]})
    assert code == 0
    assert events[-4:] == [
        ("CommitTransaction", "invoke", 0, None),
        ("CommitTransaction", "info", 0, 7),
        ("CommitTransaction", "invoke", 0, None),
        ("CommitTransaction", "ok", 0, None),
    ]


def test_a_commit_that_requires_an_abort_has_failed_and_is_aborted(run: Any) -> None:
    code, events = run(transactional_id="x", failures={"commit": [FakeError(48, abort=True)]})
    assert code == 0
    assert events[-4:] == [
        ("CommitTransaction", "invoke", 0, None),
        ("CommitTransaction", "fail", 0, 48),
        ("AbortTransaction", "invoke", 0, None),
        ("AbortTransaction", "ok", 0, None),
    ]


def test_a_fenced_producers_commit_has_an_open_outcome_and_ends_it(run: Any) -> None:
    code, events = run(transactional_id="x", failures={"commit": [FakeError(90, fatal=True)]})
    assert code == FATAL_EXIT
    assert events[-1] == ("CommitTransaction", "info", 0, 90)


def test_a_send_that_the_client_refuses_aborts_the_transaction(run: Any) -> None:
    code, events = run(transactional_id="x", failures={"produce": [FakeError(-172)]}, records=2, transaction_size=1)
    assert code == 0
    assert [(action, phase, about) for action, phase, about, _ in events[2:6]] == [
        ("Send", "invoke", "a0"),
        ("Send", "fail", "a0"),
        ("AbortTransaction", "invoke", 0),
        ("AbortTransaction", "ok", 0),
    ]


def test_a_workload_goes_through_the_proxy_by_its_client_id(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    run()
    work = Workload(bootstrap="h:1", client="me", topic="t", records=1, prefix="a", config={"linger.ms": 9})
    settings = workload.Client(work).producer.settings
    assert (settings["bootstrap.servers"], settings["client.id"], settings["linger.ms"]) == ("h:1", "me", 9)
    assert settings["enable.idempotence"] is True


COPY = {"transactional_id": "x", "transaction_size": 2, "source": "s", "group": "g"}


def test_a_source_is_copied_with_its_offsets_in_the_same_transaction(run: Any) -> None:
    code, events = run(**COPY)
    assert code == 0
    assert [(action, phase, about) for action, phase, about, _ in events] == [
        ("Poll", "ok", "s0"),
        ("Poll", "ok", "s1"),
        ("BeginTransaction", "invoke", 0),
        ("BeginTransaction", "ok", 0),
        ("Send", "invoke", "s0"),
        ("Send", "ok", "s0"),
        ("Send", "invoke", "s1"),
        ("Send", "ok", "s1"),
        ("SendOffsetsToTransaction", "invoke", 0),
        ("SendOffsetsToTransaction", "ok", 0),
        ("CommitTransaction", "invoke", 0),
        ("CommitTransaction", "ok", 0),
    ]


def test_after_an_abort_the_same_records_are_read_again(run: Any) -> None:
    code, events = run(failures={"commit": [FakeError(48, abort=True)]}, **COPY)
    assert code == 0
    assert [about for action, _, about, _ in events if action == "Poll"] == ["s0", "s1", "s0", "s1"]
    assert [about for action, phase, about, _ in events if (action, phase) == ("CommitTransaction", "ok")] == [1]


def test_after_an_abort_what_was_committed_before_it_is_not_read_again(run: Any) -> None:
    _, events = run(abort_chance=0.5, seed=10, **(COPY | {"records": 4}))
    ends = [action.removesuffix("Transaction") for action, phase, *_ in events if phase == "ok"]
    assert [action for action in ends if action in {"Commit", "Abort"}] == ["Commit", "Abort", "Commit"]
    assert [about for action, _, about, _ in events if action == "Poll"] == ["s0", "s1", "s2", "s3", "s2", "s3"]


def test_offsets_that_are_refused_abort_the_transaction(run: Any) -> None:
    code, events = run(failures={"offsets": [FakeError(22, abort=True)]}, **COPY)
    assert code == 0
    assert ("SendOffsetsToTransaction", "fail", 0, 22) in events
    assert [about for action, phase, about, _ in events if (action, phase) == ("AbortTransaction", "ok")] == [0]


def test_a_copy_goes_on_after_the_committed_offsets(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeConsumer, "committed_offset", 2)
    _, events = run(records=3, **COPY)
    assert [about for action, _, about, _ in events if action == "Poll"] == ["s2"]


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_copy_waits_until_its_group_has_a_coordinator(run: Any, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    answers = iter([FakeError(code), FakeError(code)])

    def committed(self: FakeConsumer, partitions: list[Any], seconds: float) -> list[Any]:
        if (error := next(answers, None)) is not None:
            raise FakeKafkaException(error)
        return [SimpleNamespace(partition=each.partition, offset=2) for each in partitions]

    monkeypatch.setattr(FakeConsumer, "committed", committed)
    _, events = run(records=3, **COPY)
    assert [about for action, _, about, _ in events if action == "Poll"] == ["s2"]


def test_a_copy_that_may_not_read_its_groups_offsets_ends(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def committed(self: FakeConsumer, partitions: list[Any], seconds: float) -> list[Any]:
        raise FakeKafkaException(FakeError(30))

    monkeypatch.setattr(FakeConsumer, "committed", committed)
    with pytest.raises(FakeKafkaException):
        run(records=3, **COPY)


@pytest.mark.parametrize("call", CALLS)
def test_a_client_pauses_once_after_the_call_that_its_workload_names(
    run: Any, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    code, events = run(pause_after=call, **(COPY | {"records": 4}))
    assert code == 0
    actions = [f"{action} {phase}" for action, phase, *_ in events]
    at = actions.index("Pause invoke")
    assert actions.count("Pause invoke") == actions.count("Pause ok") == 1
    assert actions[at - 1 if at else None : at] == {
        "init": [],
        "begin": ["BeginTransaction ok"],
        "send_offsets": ["SendOffsetsToTransaction ok"],
        "commit": ["CommitTransaction ok"],
    }.get(call, ["Send ok"])


def test_records_go_in_turn_to_the_partitions_of_all_topics(run: Any) -> None:
    sent_to: list[tuple[str, int]] = []
    original = FakeProducer.produce

    def produce(self: FakeProducer, topic: str, value: bytes, *, partition: int, on_delivery: Any) -> None:
        sent_to.append((topic, partition))
        original(self, topic, value, partition=partition, on_delivery=on_delivery)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeProducer, "produce", produce)
        run(records=5, partitions=2, also=["u"])
    assert sent_to == [("t", 0), ("t", 1), ("u", 0), ("u", 1), ("t", 0)]
