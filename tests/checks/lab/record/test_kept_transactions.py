"""The properties of the kept recordings of transactions: each scenario left its trace, with each Kafka release."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import ControlType, RecordBatch
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import TOPIC, TransactionLogValue, TransactionState, decode_key, decode_value
from kafka_eos.histories.history import Event, read_history
from kafka_eos_checks.kit.recording import kept_recordings, unpack
from kafka_eos_checks.lab.record.clients import CALLS
from kafka_eos_checks.lab.record.command import chosen
from kafka_eos_checks.lab.record.transaction_scenarios import LIBRARIES

ARCHIVES = ("transactions.tar.xz", "transactions-3.9.tar.xz")
MANY = {ARCHIVES[0]: "thousand", ARCHIVES[1]: "hundreds"}
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
COMPLETE = {TransactionState.COMPLETE_COMMIT: "COMMIT", TransactionState.COMPLETE_ABORT: "ABORT"}


@dataclass(frozen=True)
class State:
    """A record of the coordinator's log."""

    leader_epoch: int
    value: TransactionLogValue

    @property
    def status(self) -> TransactionState:
        return self.value.transaction_status


@dataclass
class Kept:
    """An unpacked recording: the replica with the most batches of every partition."""

    name: str
    folder: Path
    batches: dict[str, list[RecordBatch]] = field(default_factory=dict)
    states: dict[str, list[State]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for partition in (self.folder / "brokers").glob("*/*-*[0-9]"):
            found = [item.batch for path in sorted(partition.glob("*.log")) for item in stored(path)]
            if len(found) > len(self.batches.get(partition.name, [])):
                self.batches[partition.name] = found
        for name, batches in self.batches.items():
            for batch in batches if name.startswith(TOPIC) else ():
                for record in batch.records():
                    value = decode_value(record.value)
                    assert value is not None, "nothing is forgotten in a run of minutes"
                    transactional_id = decode_key(record.key or b"").transactional_id
                    self.states[transactional_id].append(State(batch.partition_leader_epoch, value))

    @property
    def manifest(self) -> dict[str, object]:
        return json.loads((self.folder / "manifest.json").read_text())  # type: ignore[no-any-return]

    def history(self, scenario: str) -> list[Event]:
        return list(read_history(self.folder / "histories" / f"{scenario}.jsonl"))

    def ends(self, transactional_id: str) -> list[str]:
        """The decisions on the transactions of a transactional id, in order."""
        return [COMPLETE[s.status] for s in self.states[transactional_id] if s.status in COMPLETE]

    def committed(self, topic: str) -> list[str]:
        """The values of a topic in committed transactions."""
        return self._values(topic)["COMMIT"]

    def aborted(self, topic: str) -> list[str]:
        """The values of a topic in aborted transactions."""
        return self._values(topic)["ABORT"]

    def _values(self, topic: str) -> dict[str, list[str]]:
        values: dict[str, list[str]] = {"COMMIT": [], "ABORT": []}
        for name, batches in self.batches.items():
            undecided: dict[int, list[str]] = defaultdict(list)
            for batch in batches if name.rpartition("-")[0] == topic else ():
                control = batch.control_record()
                if control is None:
                    undecided[batch.producer_id] += [(record.value or b"").decode() for record in batch.records()]
                else:
                    end = "COMMIT" if control.control_type is ControlType.COMMIT else "ABORT"
                    values[end] += undecided.pop(batch.producer_id, [])
            assert not undecided, f"{name}: a transaction is open at the end"
        return values


def stored(path: Path) -> list[StoredBatch]:
    return [item for item in read_segment(path) if isinstance(item, StoredBatch)]


@pytest.fixture(scope="module", params=ARCHIVES)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    archive = next(path for path in kept_recordings() if path.name == request.param)
    folder = tmp_path_factory.mktemp("transactions") / "recording"
    unpack(archive, folder)
    return Kept(archive.name, folder)


def told(events: list[Event], process: str, action: str, phase: str) -> list[Event]:
    return [e for e in events if (e.process, e.action, e.phase) == (process, action, phase)]


def test_the_recording_has_the_scenarios_that_the_command_records(kept: Kept) -> None:
    scenarios = chosen(["transactions"], str(kept.manifest["kafka"]))["transactions"]
    histories = {path.stem for path in (kept.folder / "histories").glob("*.jsonl")}
    assert histories == {each.short_name for each in scenarios}


def test_there_are_more_than_a_thousand_transactions_and_hundreds_of_an_older_release(kept: Kept) -> None:
    ends = Counter(end for transactional_id in kept.states for end in kept.ends(transactional_id))
    assert sum(ends.values()) >= {ARCHIVES[0]: 1_000, ARCHIVES[1]: 200}[kept.name]
    assert min(ends["COMMIT"], ends["ABORT"]) >= 100
    many = MANY[kept.name]
    clients = [f"{library}{copy}" for library in LIBRARIES for copy in ("", "-copy")]
    for client in clients:
        assert set(kept.ends(f"{many}-{client}")) == {"COMMIT", "ABORT"}


def test_every_transaction_ended_as_its_client_was_told(kept: Kept) -> None:
    many = MANY[kept.name]
    events = kept.history(many)
    for client in (f"{library}{copy}" for library in LIBRARIES for copy in ("", "-copy")):
        heard = [
            "COMMIT" if e.action == "CommitTransaction" else "ABORT"
            for e in events
            if e.process == client and e.phase == "ok" and e.action in {"CommitTransaction", "AbortTransaction"}
        ]
        assert kept.ends(f"{many}-{client}") == heard


def test_answers_were_lost_and_the_coordinator_moved_among_the_many(kept: Kept) -> None:
    events = kept.history(MANY[kept.name])
    lost = {e.action for e in events if e.detail.get("fault") == "drop-answer"}
    assert {"Produce", "AddPartitionsToTxn", "EndTxn"} <= lost
    (moved,) = [e for e in events if e.action == "LeaderChange" and e.topic == TOPIC]
    ended = [e for e in events if e.action == "EndTxn" and e.phase == "ok"]
    assert {(e.order or 0) < (moved.order or 0) for e in ended} == {False, True}


def test_the_transaction_version_is_each_clients_own(kept: Kept) -> None:
    versions = {
        (library, state.value.client_transaction_version)
        for name, states in kept.states.items()
        for library in LIBRARIES
        for state in states
        if library in name and state.status is TransactionState.ONGOING
    }
    formats = {state.value.version for states in kept.states.values() for state in states}
    if kept.name == ARCHIVES[0]:
        assert kept.manifest["kafka"] == "4.3.0"
        assert versions == {("librdkafka", 0), ("java", 2)}
        assert formats == {1}
    else:
        assert kept.manifest["kafka"] == "3.9.1"
        assert versions == {("librdkafka", 0), ("java", 0)}
        assert formats == {0}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_was_killed_after_each_of_its_calls_and_every_record_was_copied_once(kept: Kept, library: str) -> None:
    events = kept.history("killed-between-calls")
    topic = f"killed-between-calls-{library}"
    for call in CALLS:
        client = f"{library}-{call.replace('_', '-')}"
        (pause,) = told(events, client, "Pause", "invoke")
        assert pause.detail == {"after": call}
        assert not told(events, client, "Pause", "ok")
        assert len(told(events, client, "Crash", "ok")) == 1
        sent = {e.detail["value"] for e in told(events, client, "Send", "ok")}
        assert bool(sent) == (call in {"flush", "send_offsets", "commit"})
        assert sent <= set(kept.committed(topic) if call == "commit" else kept.aborted(topic))
    assert Counter(kept.committed(topic)) == Counter(f"i{number}" for number in range(40))
    assert set(kept.ends(topic)) == {"COMMIT", "ABORT"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_commit_that_one_coordinator_prepared_was_completed_by_the_next(kept: Kept, library: str) -> None:
    name = f"killed-before-markers-{library}"
    prepared, completed = kept.states[name][-2:]
    assert (prepared.status, completed.status) == (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    assert prepared.leader_epoch < completed.leader_epoch
    assert len(prepared.value.partitions()) == 2
    assert sorted(kept.committed(f"{name}-held") + kept.committed(name)) == [f"{library}-{n}" for n in range(6)]
    # The frozen broker's only marker is the new coordinator's; the other partition got one from each.
    markers = [b.control_record() for b in kept.batches[f"{name}-held-0"] if b.is_control]
    assert len(markers) == 1
    assert sum(b.is_control for b in kept.batches[f"{name}-0"]) == 2


def test_a_coordinator_was_killed_and_moved_while_transactions_ran(kept: Kept) -> None:
    events = kept.history("coordinator-moves")
    crash, *changes = [e for e in events if (e.action, e.phase) == ("Crash", "ok") or e.action == "LeaderChange"]
    assert crash.action == "Crash"
    assert [e.topic for e in changes] == [TOPIC, TOPIC]
    states = kept.states["coordinator-moves-librdkafka"]
    assert len({state.leader_epoch for state in states}) >= 3
    for library in LIBRARIES:
        name = f"coordinator-moves-{library}"
        heard = told(events, library, "CommitTransaction", "ok")
        assert kept.ends(name).count("COMMIT") == len(heard)
        assert any((e.order or 0) > (changes[-1].order or 0) for e in heard)


def aborted_by_the_coordinator(states: list[State]) -> list[State]:
    """The aborts with an epoch that no client had: of expired transactions and of replaced clients."""
    return [
        after
        for before, after in pairwise(states)
        if after.status is TransactionState.PREPARE_ABORT
        and before.value.client_transaction_version == 0
        and after.value.producer_epoch == before.value.producer_epoch + 1
    ]


def test_an_abort_by_the_coordinator_has_the_brokers_transaction_version_not_the_clients(kept: Kept) -> None:
    for scenario in ("killed-between-calls", "frozen-zombie", "expired"):
        aborts = aborted_by_the_coordinator(kept.states[f"{scenario}-librdkafka"])
        assert aborts
        version = 2 if kept.name == ARCHIVES[0] else 0
        assert {state.value.client_transaction_version for state in aborts} == {version}


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_expired_transaction_was_aborted_by_the_coordinator_under_the_next_epoch(kept: Kept, library: str) -> None:
    events = kept.history("expired")
    resumed = next(e.order or 0 for e in events if (e.process, e.action) == (library, "Resume"))
    wire = [e for e in events if e.process == f"proxy/{library}"]
    assert not [e for e in wire if e.detail.get("committed") is False and (e.order or 0) < resumed]
    ongoing, aborted = next(
        (before, after)
        for before, after in pairwise(kept.states[f"expired-{library}"])
        if after.status is TransactionState.PREPARE_ABORT
    )
    assert aborted.value.producer_epoch == ongoing.value.producer_epoch + 1
    late = [e for e in wire if e.phase in {"ok", "fail"} and (e.order or 0) > resumed]
    assert late[0].producer_epoch == ongoing.value.producer_epoch
    if (kept.name, library) == (ARCHIVES[0], "java"):  # taken for a retry of the abort, which bumped the epoch
        assert (late[0].action, late[0].error) == ("EndTxn", ErrorCode.NONE)
        assert late[0].detail["next_producer_epoch"] == aborted.value.producer_epoch
    else:
        assert late[0].error in FENCED


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_zombie_was_fenced_and_committed_nothing_after_it_was_replaced(kept: Kept, library: str) -> None:
    events = kept.history("frozen-zombie")
    zombie, successor = f"zombie-{library}", f"successor-{library}"
    frozen = next(e.order or 0 for e in events if (e.process, e.action) == (zombie, "Freeze"))
    committing = {e.detail["transaction"] for e in told(events, zombie, "CommitTransaction", "ok")}
    sent = {e.detail["value"]: e.detail["transaction"] for e in told(events, zombie, "Send", "invoke")}
    visible = [value for value in kept.committed("frozen-zombie") if value.startswith(zombie)]
    assert {sent[value] for value in visible} <= committing
    assert not [e for e in told(events, zombie, "CommitTransaction", "ok") if (e.order or 0) > frozen]
    assert Counter(v for v in kept.committed("frozen-zombie") if v.startswith(successor)) == Counter(
        f"{successor}-{number}" for number in range(80)
    )
    refused = [e for e in events if e.process == f"proxy/{zombie}" and e.phase == "fail" and (e.order or 0) > frozen]
    assert {e.error for e in refused} & FENCED


def test_read_committed_readers_got_the_committed_records_and_the_others_all_records(kept: Kept) -> None:
    for path in sorted((kept.folder / "histories").iterdir()):
        events = list(read_history(path))
        ends = [(e.process, e.topic, e.partition) for e in events if e.action == "EndOfPartition"]
        assert len(ends) == len(set(ends)) >= 2
        for topic in {str(topic) for _, topic, _ in ends}:
            got = {
                isolation: Counter(
                    e.detail["value"]
                    for e in events
                    if e.action == "Poll" and e.topic == topic and e.isolation == isolation and e.group is None
                )
                for isolation in ("read_committed", "read_uncommitted")
            }
            assert got["read_committed"] == Counter(kept.committed(topic))
            assert got["read_uncommitted"] == Counter(kept.committed(topic) + kept.aborted(topic))


def test_copied_offsets_are_part_of_the_transactions(kept: Kept) -> None:
    for scenario in ("copy", "killed-between-calls", MANY[kept.name]):
        for library in LIBRARIES:
            copy = "-copy" if scenario == MANY[kept.name] else ""
            states = kept.states[f"{scenario}-{library}{copy}"]
            assert any("__consumer_offsets" in {topic for topic, _ in s.value.partitions()} for s in states)
    offsets = [batch for name in kept.batches if name.startswith("__consumer_offsets") for batch in kept.batches[name]]
    types = {batch.control_record().control_type for batch in offsets if batch.is_control}  # type: ignore[union-attr]
    assert types == {ControlType.COMMIT, ControlType.ABORT}


def test_committed_transactions_copy_every_record_once(kept: Kept) -> None:
    for library in LIBRARIES:
        assert Counter(kept.committed(f"copy-{library}")) == Counter(f"i{number}" for number in range(60))
        copied = Counter(kept.committed(f"{MANY[kept.name]}-{library}"))
        assert set(copied.values()) == {1}
        assert len(copied) == len(
            {e.detail["value"] for e in kept.history(MANY[kept.name]) if e.group and e.action == "Poll"}
        )
