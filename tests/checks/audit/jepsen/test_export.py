"""A history written in Jepsen's format: both judges find the same in it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import Event, write_history
from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.events.history_files import read_events
from kafka_eos_checks.audit.jepsen.anomalies import allowed, anomalies, subscribes
from kafka_eos_checks.audit.jepsen.export import write_operations
from kafka_eos_checks.audit.jepsen.operations import read_operations
from kafka_eos_checks.kit.recording import kept_recording, unpacked

from ..conftest import event


def sent(value: str, offset: int, phase: str = "ok") -> list[Event]:
    answer = event("Send", phase, offset=offset if phase == "ok" else None, value=value)
    return [event("Send", "invoke", value=value), answer]


def poll(offset: int, value: str) -> Event:
    return event("Poll", "ok", "reader", offset, value=value)


def transaction(how: str, phase: str, *values: str) -> list[Event]:
    """A transaction that begins at offset 0."""
    events = [event("BeginTransaction", "ok", transaction=1)]
    for offset, value in enumerate(values):
        events.append(event("Send", "invoke", value=value, transaction=1))
        events.append(event("Send", "ok", offset=offset, value=value, transaction=1))
    return [*events, *(event(f"{how}Transaction", each, transaction=1) for each in ("invoke", phase))]


def written(folder: Path, events: Sequence[Event]) -> str:
    write_operations(folder / "h.edn", [replace(each, order=number) for number, each in enumerate(events)])
    return (folder / "h.edn").read_text(encoding="utf-8")


def both(folder: Path, events: Sequence[Event]) -> tuple[set[str], set[str]]:
    """The rules of ours that a history breaks, and the anomalies of Jepsen's."""
    write_history(folder / "h.jsonl", [replace(each, order=number) for number, each in enumerate(events)])
    ours = run([folder / "h.jsonl"], as_jepsen=folder / "h.edn").findings
    return {each.rule for each in ours}, {each.rule for each in run([folder / "h.edn"]).findings}


@pytest.mark.parametrize(("how", "outcome"), [("Commit", "ok"), ("Abort", "fail")])
def test_a_transaction_whose_begin_nobody_tells_is_one_operation(tmp_path: Path, how: str, outcome: str) -> None:
    events = transaction(how, "ok", "a", "b")[1:]
    late = event("Send", "ok", offset=1, value="b", transaction=1)
    assert written(tmp_path, [*events, late]).splitlines() == [
        f'{{:index 0, :time 0, :type :{outcome}, :process 0, :f :txn, :value [[:send "orders-0" [0 "a"]] '
        '[:send "orders-0" [1 "b"]]]}'
    ]


def test_each_operation_is_as_jepsen_writes_it(tmp_path: Path) -> None:
    events = [*transaction("Commit", "ok", "a", 'b"c'), *sent("d", 3), poll(0, "a")]
    assert written(tmp_path, events).splitlines() == [
        '{:index 0, :time 0, :type :ok, :process 0, :f :txn, :value [[:send "orders-0" [0 "a"]] '
        '[:send "orders-0" [1 "b\\"c"]]]}',
        '{:index 1, :time 1, :type :ok, :process 0, :f :send, :value [[:send "orders-0" [3 "d"]]]}',
        '{:index 2, :time 2, :type :ok, :process 1, :f :poll, :value [[:poll {"orders-0" [[0 "a"]]}]]}',
    ]
    [transaction_of_two, *_] = read_operations(tmp_path / "h.edn")
    assert transaction_of_two.sends == {"orders-0": [(0, "a"), (1, 'b"c')]}


@pytest.mark.parametrize(
    ("how", "phase", "outcome"),
    [("Commit", "ok", ":ok"), ("Commit", "fail", ":fail"), ("Abort", "ok", ":fail"), ("Abort", "info", ":info")],
)
def test_a_transaction_ends_as_its_application_was_told(how: str, phase: str, outcome: str, tmp_path: Path) -> None:
    assert f":type {outcome}, :process 0, :f :txn" in written(tmp_path, transaction(how, phase, "a"))


def test_what_was_only_begun_may_have_happened_and_a_crash_makes_a_new_process(tmp_path: Path) -> None:
    begun = [
        event("Send", "invoke", value="a"),
        event("Crash", "ok"),
        *sent("b", 1),
        event("Send", "invoke", value="c"),
    ]
    assert [(each.outcome, each.process) for each in read_all(tmp_path, begun)] == [
        (":info", 0),
        (":ok", 1),
        (":info", 1),
    ]


def test_after_a_crash_the_numbers_of_transactions_begin_again(tmp_path: Path) -> None:
    first, second = transaction("Commit", "ok", "a"), transaction("Commit", "ok", "b")[1:]
    assert [each.process for each in read_all(tmp_path, [*first, event("Crash", "ok"), *second])] == [0, 1]


def test_a_poll_that_does_not_tell_its_isolation_is_taken(tmp_path: Path) -> None:
    bare = replace(poll(0, "a"), isolation=None)
    assert [each.kind for each in read_all(tmp_path, [*sent("a", 0), bare])] == [":send", ":poll"]


def read_all(folder: Path, events: Sequence[Event]) -> list[Any]:
    written(folder, events)
    return read_operations(folder / "h.edn")


def test_values_sent_twice_and_readers_of_uncommitted_data_are_left_out(tmp_path: Path) -> None:
    unsure = replace(poll(2, "b"), isolation="read_uncommitted")
    assert written(tmp_path, [*sent("a", 0), *sent("a", 1), poll(0, "a"), *sent("b", 2), unsure]).count("\n") == 1


@pytest.mark.parametrize(
    ("events", "ours", "jepsens"),
    [
        ([*sent("a", 0), *sent("b", 1), poll(0, "a"), poll(1, "b")], set(), set()),
        ([*sent("a", 0), poll(0, "a"), poll(1, "a")], {"duplicate value"}, {":duplicate", ":nonmonotonic-poll"}),
        ([*transaction("Abort", "ok", "a"), poll(0, "a")], {"aborted record delivered"}, {":G1a"}),
        (
            [event("Send", "invoke", value="b"), *sent("a", 0), poll(0, "b")],
            {"inconsistent offsets"},
            {":inconsistent-offsets", ":lost-write", ":unseen"},
        ),
        (
            [*sent("a", 0), *sent("b", 1), poll(0, "a"), poll(1, "b"), poll(0, "a")],
            {"non-monotonic poll"},
            {":nonmonotonic-poll"},
        ),
        (
            [*sent("a", 0), *sent("b", 1), *sent("c", 2), poll(0, "a"), poll(2, "c")],
            {"acknowledged but lost"},
            {":lost-write", ":poll-skip", ":unseen"},
        ),
    ],
)
def test_both_judges_see_what_is_wrong(events: list[Event], ours: set[str], jepsens: set[str], tmp_path: Path) -> None:
    assert both(tmp_path, events) == (ours, jepsens)


def test_recorded_transactions_are_clean_and_a_delivered_aborted_record_is_an_aborted_read(
    tmp_path: Path,
) -> None:
    found = {}
    for recording, name in [
        ("transactions", "commit-and-abort"),
        ("transactions", "copy"),
        ("replicated-violations", "*"),
    ]:
        with unpacked(kept_recording(recording)) as folder:
            [history] = (folder / "histories").glob(f"{name}.jsonl")
            write_operations(tmp_path / "h.edn", read_events(history))
        read = read_operations(tmp_path / "h.edn")
        found[name] = {each.rule for each in anomalies(read, "r")[0]} - allowed(subscribes(read))
    assert found == {"commit-and-abort": set(), "copy": set(), "*": {":G1a"}}


def test_the_command_writes_it_and_refuses_several_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [*sent("a", 0), poll(0, "a")]
    write_history(tmp_path / "h.jsonl", events)
    assert cli.main(["audit", str(tmp_path / "h.jsonl"), "--as-jepsen", str(tmp_path / "h.edn")]) == 3, (
        "no log is given"
    )
    assert (tmp_path / "h.edn").read_text().count("\n") == 2
    write_history(tmp_path / "h.jsonl", [*events, replace(events[0], run="s")])
    assert cli.main(["audit", str(tmp_path / "h.jsonl"), "--as-jepsen", str(tmp_path / "h.edn")]) == 2
    assert "give one run" in capsys.readouterr().err
