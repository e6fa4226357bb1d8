"""The properties of the kept recordings."""

import tomllib
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from kafka_eos.formats.record_batch import ControlType, decode_batch, encode_records
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.histories.history import Event, read_history
from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.brokers.jars import RECORDED
from kafka_eos_checks.cli.verify import CAUSES, PEOPLE, UNJUDGED
from kafka_eos_checks.kit.recording import kept_recordings, manifest_of, unpack
from kafka_eos_checks.lab.record.command import SCENARIOS
from kafka_eos_checks.models.findings import read_findings

Place = tuple[str, int]  # partition folder, offset


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for archive in kept_recordings():
        folders[archive.name] = tmp_path_factory.mktemp("kept") / archive.name
        unpack(archive, folders[archive.name])
    return folders


@cache
def audited(archive: Path) -> Audit:
    return run([archive])


def history(folder: Path, scenario: str) -> list[Event]:
    return list(read_history(folder / "histories" / f"{scenario}.jsonl"))


def stored(folder: Path, topic: str, node: int = 1) -> tuple[dict[str, list[Place]], dict[str, str]]:
    """The place of each value in a broker's log of a topic, and the end of its transaction (``""`` for none)."""
    places: dict[str, list[Place]] = defaultdict(list)
    ends: dict[str, str] = {}
    for partition in (folder / "brokers" / str(node)).glob(f"{topic}-[0-9]*"):
        undecided: dict[int, list[str]] = defaultdict(list)
        for segment in sorted(partition.glob("*.log")):
            content, position = segment.read_bytes(), 0
            while position < len(content):
                batch, position = decode_batch(content, position)
                control = batch.control_record()
                if control is not None:
                    end = "COMMIT" if control.control_type is ControlType.COMMIT else "ABORT"
                    ends.update(dict.fromkeys(undecided.pop(batch.producer_id, []), end))
                    continue
                for record in batch.records():
                    value = (record.value or b"").decode()
                    places[value].append((partition.name, batch.offset(record)))
                    if batch.is_transactional:
                        undecided[batch.producer_id].append(value)
    return places, ends


SOUND = [
    ("one-broker.tar.xz", "idempotent-lost-acks"),
    ("one-broker.tar.xz", "repeated-and-reordered-requests"),
    ("one-broker.tar.xz", "kill-producer"),
    ("one-broker.tar.xz", "kill-leader"),
    ("one-broker.tar.xz", "trace"),
    ("three-brokers.tar.xz", "leader-failover"),
    ("three-brokers.tar.xz", "kill-follower"),
]


@pytest.mark.parametrize(("archive", "scenario"), SOUND)
def test_every_acknowledged_record_is_stored_once_where_the_acknowledgement_says(
    kept: dict[str, Path], archive: str, scenario: str
) -> None:
    sends = [e for e in history(kept[archive], scenario) if e.action == "Send" and e.phase == "ok"]
    assert len(sends) >= 300
    for node in range(1, 4 if archive.startswith("three") else 2):
        for topic in {str(e.topic) for e in sends}:
            places, _ = stored(kept[archive], topic, node)
            for e in sends:
                if e.topic == topic:
                    assert places[e.detail["value"]] == [(f"{topic}-{e.partition}", e.offset)]


def test_the_history_is_in_one_order_in_which_no_answer_precedes_its_request(kept: dict[str, Path]) -> None:
    for folder in kept.values():
        for path in (folder / "histories").iterdir():
            asked: set[int] = set()
            events = list(read_history(path))
            assert [e.order for e in events] == list(range(len(events)))
            for e in events:
                if "request" in e.detail and e.phase == "invoke":
                    asked.add(e.detail["request"])
                elif "request" in e.detail:
                    assert e.detail["request"] in asked


def test_lost_acknowledgements_and_a_crash_end_a_librdkafka_producer(kept: dict[str, Path]) -> None:
    events = history(kept["one-broker.tar.xz"], "crash-with-lost-acks")
    blamed = [e for e in events if e.action == "Send" and e.error is not None]
    assert [(e.phase, e.error) for e in blamed] == [("info", 45)]
    places, _ = stored(kept["one-broker.tar.xz"], "crash-with-lost-acks")
    assert len(places[blamed[0].detail["value"]]) == 1  # it had already been stored


def test_lost_acknowledgements_and_a_crash_make_a_java_producer_store_records_twice(kept: dict[str, Path]) -> None:
    folder = kept["violations.tar.xz"]
    places, _ = stored(folder, "java-crash-with-lost-acks")
    twice = {value for value, found in places.items() if len(found) == 2}
    withheld = [
        e
        for e in history(folder, "java-crash-with-lost-acks")
        if e.action == "Produce" and e.phase == "ok" and e.detail.get("delivered") is False
    ]
    assert len(twice) == sum(e.record_count or 0 for e in withheld) >= 2
    sends = [e for e in history(folder, "java-crash-with-lost-acks") if e.action == "Send" and e.phase == "ok"]
    assert twice < {e.detail["value"] for e in sends}


def test_a_late_end_of_transaction_commits_records_that_were_never_to_be_committed(kept: dict[str, Path]) -> None:
    folder = kept["violations.tar.xz"]
    events = history(folder, "late-end-of-transaction")
    committing = {e.detail["transaction"] for e in events if e.action == "CommitTransaction" and e.phase == "invoke"}
    _, ends = stored(folder, "late-end-of-transaction")
    sends = [e for e in events if e.action == "Send" and e.phase == "ok"]
    leaked = {e.detail["transaction"] for e in sends if ends.get(e.detail["value"]) == "COMMIT"} - committing
    assert len(leaked) == 1
    assert any(e.action == "AbortTransaction" and e.detail["transaction"] in leaked for e in events)


def test_both_transaction_protocols_are_recorded(kept: dict[str, Path]) -> None:
    folder = kept["one-broker.tar.xz"]
    new = [e for e in history(folder, "transactions-java") if e.action == "EndTxn" and e.phase == "ok"]
    assert all(e.detail["next_producer_epoch"] == (e.producer_epoch or 0) + 1 for e in new)  # KIP-890 part 2
    assert {e.detail["committed"] for e in new} == {True, False}
    old = [e for e in history(folder, "transactions-librdkafka") if e.action == "EndTxn" and e.phase == "ok"]
    assert old
    assert not any("next_producer_epoch" in e.detail for e in old)
    _, ends = stored(folder, "transactions-librdkafka")
    assert set(ends.values()) == {"COMMIT", "ABORT"}


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(kept: dict[str, Path]) -> None:
    events = history(kept["one-broker.tar.xz"], "zombie")
    resumed = next(e.order or 0 for e in events if e.action == "Resume")
    later = [e for e in events if e.process == "proxy/zombie" and e.action == "Produce" and (e.order or 0) > resumed]
    assert {(e.phase, e.error) for e in later if e.phase != "invoke"} == {("fail", 47)}
    committing = {
        (e.process, e.detail["transaction"]) for e in events if e.action == "CommitTransaction" and e.phase == "invoke"
    }
    _, ends = stored(kept["one-broker.tar.xz"], "zombie")
    committed = {
        (e.process, e.detail["transaction"])
        for e in events
        if e.action == "Send" and e.phase == "ok" and ends[e.detail["value"]] == "COMMIT"
    }
    assert committed <= committing


@pytest.mark.parametrize("archive", kept_recordings(), ids=lambda path: path.name)
def test_every_batch_of_a_real_broker_is_encoded_again_byte_for_byte(archive: Path, kept: dict[str, Path]) -> None:
    batches = 0
    for segment in kept[archive.name].rglob("*.log"):
        stored = segment.read_bytes()
        for part in read_segment(segment):
            assert isinstance(part, StoredBatch), f"{segment.name}: {part}"
            batch = part.batch
            assert batch.encode() == stored[part.position : part.position + batch.size]
            assert encode_records(batch.records()) == batch.decompressed()
            batches += 1
    assert batches > 0


@pytest.mark.parametrize("archive", kept_recordings(), ids=lambda path: path.name)
def test_the_audit_finds_exactly_what_is_expected_of_each_recording(archive: Path) -> None:
    expected = tomllib.loads((archive.parent / "expected.toml").read_text(encoding="utf-8"))
    found = Counter(finding.rule for finding in audited(archive).findings)
    assert found == expected.get(archive.name.removesuffix(".tar.xz"), {})


def test_what_a_recording_shows_has_a_finding_of_the_ledger_behind_it_or_somebody() -> None:
    expected = tomllib.loads((kept_recordings()[0].parent / "expected.toml").read_text(encoding="utf-8"))
    causes = expected.pop(CAUSES)
    del expected[UNJUDGED]
    assert {name: found.keys() for name, found in causes.items()} == {
        name: found.keys() for name, found in expected.items() if found
    }
    known = {finding.id for finding in read_findings()} | PEOPLE
    assert {cause for found in causes.values() for cause in found.values()} <= known


def test_every_kept_recording_says_of_which_release_it_is() -> None:
    found = {archive.name.removesuffix(".tar.xz"): manifest_of(archive)["kafka"] for archive in kept_recordings()}
    assert found["transactions-3.9"] == "3.9.1"
    assert set(found.values()) == set(RECORDED)


def test_every_kept_recording_was_made_with_the_faults_that_its_scenarios_have() -> None:
    played = [each for archive in kept_recordings() for each in manifest_of(archive)["scenarios"]]
    assert len(played) > 40
    for each in played:
        plan = SCENARIOS[each["name"]].plan(each["seed"])
        chances = {str(kind): chance for kind, chance in plan.chances.items()}
        faults = {"chances": chances, "longest_seconds": plan.longest, "apis": sorted(plan.apis)}
        assert each["proxy"] == faults, each["name"]


@pytest.mark.parametrize("name", ["transactions.tar.xz", "transactions-3.9.tar.xz"])
def test_in_every_recorded_transaction_each_marker_and_delivery_can_be_judged(name: str) -> None:
    archive = next(path for path in kept_recordings() if path.name == name)
    figures = {verdict.name: verdict.figures for verdict in audited(archive).verdicts}
    for rule in ("torn transaction", "marker without transaction"):
        assert int(figures[rule]["markers"]) > 1_000
        assert figures[rule]["unknown"] == 0
    assert (figures["hanging transaction"]["open"], figures["hanging transaction"]["unknown"]) == (0, 0)
    for rule in ("acknowledged but lost", "transaction committed without its application"):
        assert int(figures[rule]["checked"]) > 400
        assert figures[rule]["unknown"] == 0
