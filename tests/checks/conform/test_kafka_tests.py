"""Kafka's own tests: verdicts from outcomes, and a real run of one test class."""

import io
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from kafka_eos.server.cluster import Settings
from kafka_eos_checks import cli
from kafka_eos_checks.brokers.jars import have_tests_jars
from kafka_eos_checks.conform import kafka_tests_command as command
from kafka_eos_checks.conform.kafka_tests import (
    CLASSES,
    INSIDES,
    SOURCES,
    Ended,
    Outcome,
    StartCluster,
    outcome_of,
    run_tests,
)
from kafka_eos_checks.conform.kafka_tests.clusters import NotServed, served, settings_of
from kafka_eos_checks.conform.kafka_tests_command import (
    KAFKA,
    SERVER,
    compare,
    harness_faults,
    known_differences,
    second_try,
)

from ..kept import keep_output, kept_text

PASSED, FAILED = Outcome.PASSED, Outcome.FAILED


@pytest.fixture(autouse=True)
def kept(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test reads of the output is compared whole."""
    keep_output(capsys, tmp_path, monkeypatch)


def ended(server: Outcome, kafka: Outcome, test: str = "A.b") -> dict[str, list[Ended]]:
    return {SERVER: [Ended(test, server, "boom")], KAFKA: [Ended(test, kafka, "")]}


@pytest.mark.parametrize(
    ("server", "reason", "fault"),
    [
        (PASSED, None, ""),
        (FAILED, None, "differs, and nothing says why"),
        (FAILED, "because", ""),
        (PASSED, "because", "differs no longer"),
        (Outcome.UNUSABLE, None, "differs, and nothing says why"),
    ],
)
def test_differences_and_reasons_have_to_go_together(server: Outcome, reason: str | None, fault: str) -> None:
    known = {} if reason is None else {"A.b": reason}
    [each] = compare(ended(server, PASSED), known)
    assert each.fault == fault


def test_the_worst_outcome_of_a_tests_invocations_counts() -> None:
    rows = ended(PASSED, PASSED)
    rows[SERVER].append(Ended("A.b", FAILED, "boom"))
    [each] = compare(rows, {})
    assert each.outcomes == {SERVER: FAILED, KAFKA: PASSED}


def test_a_test_that_fails_on_both_servers_is_no_difference() -> None:
    [each] = compare(ended(FAILED, Outcome.UNUSABLE), {})
    assert not each.differs


def test_a_test_that_ran_on_only_one_server_differs() -> None:
    [each] = compare({SERVER: [], KAFKA: [Ended("A.b", PASSED, "")]}, {})
    assert each.fault


def test_what_fails_on_kafka_alone_runs_there_a_second_time_and_counts_as_it_ends_then() -> None:
    rows = ended(PASSED, FAILED)
    rows[SERVER] += [Ended("A.c", FAILED, "boom"), Ended("C.d", PASSED, "")]
    rows[KAFKA] += [Ended("A.c", FAILED, "boom"), Ended("C.d", PASSED, "")]
    for outcome in (PASSED, FAILED):
        asked: list[str] = []

        def again(classes: Sequence[str], outcome: Outcome = outcome, asked: list[str] = asked) -> list[Ended]:
            asked += classes
            return [Ended("A.b", outcome, ""), Ended("A.c", PASSED, "")]

        second = second_try(rows, {}, again)
        assert asked == ["A"]
        assert {each.test: each.outcome for each in second} == {"A.b": outcome, "A.c": FAILED, "C.d": PASSED}
    assert second_try(ended(FAILED, PASSED), {}, lambda _: []) == ended(FAILED, PASSED)[KAFKA]
    assert second_try(ended(PASSED, FAILED), {"A.b": "because"}, lambda _: []) == ended(PASSED, FAILED)[KAFKA]


def test_a_run_without_any_test_is_an_error() -> None:
    assert harness_faults([], 73, {"A.b": "because"}) == [
        f"{KAFKA} passes 0 tests, where it was 73",
        "A.b: has a reason, and was not run",
    ]
    compared = compare(ended(PASSED, PASSED), {})
    assert harness_faults(compared, 1, {}) == []


def test_the_table_shows_what_differs_and_what_kafka_does_not_pass() -> None:
    rows = {SERVER: list[Ended](), KAFKA: list[Ended]()}
    for test, server, kafka in (("A.a", PASSED, PASSED), ("A.b", FAILED, PASSED), ("A.c", FAILED, FAILED)):
        rows[SERVER].append(Ended(test, server, ""))
        rows[KAFKA].append(Ended(test, kafka, ""))
    for known in ({}, {"A.b": "because"}, {"A.a": "because"}):
        shown = io.StringIO()
        Console(file=shown, width=200).print(command._table(compare(rows, known)))
        told = re.findall(r"A\.\w", shown.getvalue())
        assert told == (["A.a"] if "A.a" in known else []) + ["A.b", "A.c"]


def test_the_page_begins_with_the_tests_that_differ(tmp_path: Path) -> None:
    every = {SERVER: list[Ended](), KAFKA: list[Ended]()}
    for name, server in (("A.a", PASSED), ("A.d", FAILED), ("A.b", PASSED), ("A.c", FAILED)):
        for peer, rows in ended(server, PASSED, name).items():
            every[peer] += rows
    command.write_page(tmp_path / "page.html", compare(every, {}), [])
    told = re.findall(r"<td>(A\.\w)</td>", (tmp_path / "page.html").read_text(encoding="utf-8"))
    assert told == ["A.c", "A.d", "A.a", "A.b"]


def test_chosen_tests_that_kafka_itself_does_not_pass_compare_nothing() -> None:
    nothing = [f"{KAFKA} passes none of these tests, so nothing was compared"]
    assert harness_faults([], None, {}) == nothing
    assert harness_faults(compare(ended(FAILED, FAILED), {}), None, {}) == nothing
    assert harness_faults(compare(ended(FAILED, PASSED), {}), None, {}) == []


def test_at_most_five_tests_differ_and_each_belongs_to_a_class_that_is_run() -> None:
    known, expected = known_differences()
    assert len(known) <= 5
    assert expected > len(known)
    classes = {name.rpartition(".")[2] for name in CLASSES}
    assert {test.partition(".")[0] for test in known} <= classes


def test_properties_of_a_broker_are_settings_of_the_server_or_refused() -> None:
    properties = {"offsets.topic.num.partitions": "1", "group.consumer.migration.policy": "upgrade"}
    found = settings_of(properties, {"group.version": 0})
    assert (found.internal_partitions, found.migration_policy) == (1, "upgrade")
    assert found.rebalance_protocols == frozenset({"classic"})
    properties = {"fetch.max.bytes": "9", "auto.create.topics.enable": "false"}
    interval = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    found = settings_of(properties | interval, {"transaction.version": 1})
    assert (found.limits.fetch_bytes, found.default_partitions, found.timeout_check_ms) == (9, 0, 200)
    assert found.transactions.version == 1
    assert settings_of({}, {"group.version": 1}) == Settings(consumer_heartbeat_ms=5_000)
    with pytest.raises(NotServed, match=r"no setting for log\.dirs"):
        settings_of({"log.dirs": "/"}, {})
    with pytest.raises(NotServed, match=r"no levels of share\.version"):
        settings_of({}, {"share.version": 1})


def test_a_test_that_needs_a_brokers_internals_is_no_failure_of_the_broker() -> None:
    assert outcome_of("FAILED", f"java.lang.UnsupportedOperationException: {INSIDES}: logManager") is Outcome.UNUSABLE
    assert outcome_of("FAILED", "expected: 1") is FAILED
    assert (outcome_of("SUCCESSFUL", ""), outcome_of("ABORTED", "")) == (PASSED, Outcome.SKIPPED)
    assert f'"{INSIDES}"' in (SOURCES / "KafkaTests.java").read_text(encoding="utf-8")


LONG = f"HeartbeatRequestTest.testThatHasAName{'AsLongAsALine' * 8}"


def played(outcomes: dict[str, Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test of a run end as told, by peer."""

    def run(start: StartCluster, selected: list[str], log: Path) -> list[Ended]:
        assert selected == ["kafka.server.HeartbeatRequestTest"]
        peer = SERVER if start is served else KAFKA
        return [Ended(LONG, outcomes[peer], "a < b\n at c")]

    monkeypatch.setattr(command, "run_tests", run)


def test_the_page_and_the_json_show_both_and_a_difference_without_a_reason_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, rows = tmp_path / "page.html", tmp_path / "rows.json"
    call = ["check", "kafka-tests", "--only", "HeartbeatRequestTest", "--out", str(page), "--json", str(rows)]
    played({SERVER: PASSED, KAFKA: PASSED}, monkeypatch)
    assert cli.main(call) == 0
    played({SERVER: FAILED, KAFKA: PASSED}, monkeypatch)
    assert cli.main(call) == 1
    told = json.loads(rows.read_text(encoding="utf-8"))
    assert told["faults"] == [f"{LONG}: differs, and nothing says why"]
    assert f"\nFAIL {LONG}: differs, and nothing says why\n" in capsys.readouterr().out
    [row] = told["tests"]
    why = {SERVER: "a < b", KAFKA: "a < b"}
    outcomes = {SERVER: "FAILS", KAFKA: "passes"}
    assert row == {"test": LONG, "outcomes": outcomes, "why": why, "reason": None}
    text = page.read_text(encoding="utf-8")
    assert "a &lt; b" in text
    kept_text(text, tmp_path)
    assert cli.main(["check", "kafka-tests", "--only", "Nothing*"]) == 2


@pytest.mark.parametrize(("more", "code"), [([], 1), (["kafka.server.FetchRequestTest"], 0)])
def test_the_number_that_kafka_passes_is_compared_if_every_class_is_run(
    more: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played({SERVER: PASSED, KAFKA: PASSED}, monkeypatch)
    monkeypatch.setattr(command, "CLASSES", ["kafka.server.HeartbeatRequestTest", *more])
    monkeypatch.setattr(command, "known_differences", lambda: ({}, 2))
    call = ["check", "kafka-tests", "--only", "Heartbeat*", "--out", str(tmp_path / "page.html")]
    assert cli.main(call) == code
    assert ("passes 1 tests, where it was 2" in capsys.readouterr().out) == (code == 1)


@pytest.mark.java
@pytest.mark.thorough
@pytest.mark.skipif(not have_tests_jars(), reason="Kafka's test jars are not there; `make kafka-tests` fetches them")
@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to compile the harness with")
def test_tests_of_kafka_run_on_the_server_and_fail_where_it_is_wrong(tmp_path: Path) -> None:
    names = (
        "HeartbeatRequestTest",
        "DeleteGroupsRequestTest",
        "DeleteRecordsRequestTest",
    )  # the last of the older harness
    selected = [f"kafka.server.{name}" for name in names]
    rows = run_tests(served, selected, tmp_path / "log")
    assert [row.outcome for row in rows] == [PASSED] * 6, rows

    def broken(brokers: int, properties: dict[str, str], features: dict[str, int], folder: Path) -> object:
        classic = {"group.coordinator.rebalance.protocols": "classic"}
        return served(brokers, dict(properties) | classic, features, folder)

    rows = run_tests(broken, selected[1:2], tmp_path / "log")  # type: ignore[arg-type]
    assert sorted(row.outcome for row in rows) == [FAILED, PASSED], rows
