"""Rows tell what the watcher cannot see, each from its beginning to its end."""

import json

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos_checks.conform.wire import Unsupported
from kafka_eos_checks.watch.blindness import DELETED, NO_COORDINATOR, NOT_READ
from kafka_eos_checks.watch.reports import RESOLVED, Row, report_row
from kafka_eos_checks.watch.watcher import REFRESH_MS, Watcher

from .conftest import PLACE, Log, Written

NOW = 1_700_000_000_000


def look(watcher: Watcher, at: int) -> list[Row]:
    """The rows about what is not seen, of one look."""
    watcher.poll(at)
    return [report_row(1, at, one) for one in watcher.blindness.take()]


def resumed(written: Written, watcher: Watcher) -> Watcher:
    again = written.watcher()
    again.resume(json.loads(json.dumps(watcher.to_json())))
    return again


def test_a_partition_that_is_not_read_has_a_row_until_it_is_read_also_by_the_next_watcher(written: Written) -> None:
    watcher = written.watcher()
    assert look(watcher, NOW) == []
    written.errors[PLACE] = 29
    [row] = look(watcher, NOW + 1_000)
    assert row == {
        "number": 1, "id": f"not read/orders-0/{NOW + 1_000}", "seen_ms": NOW + 1_000, "rule": NOT_READ,
        "kind": "not judged", "topic": "orders", "partition": 0, "evidence": "TOPIC_AUTHORIZATION_FAILED",
        "since_ms": NOW + 1_000, "since_clock": "watcher", "ends": "unknown",
    }  # fmt: skip
    assert look(watcher, NOW + 2_000) == []
    watcher = resumed(written, watcher)
    assert look(watcher, NOW + 3_000) == [], "its row is there"
    written.errors.clear()
    [over] = look(watcher, NOW + 65_000)
    assert (over["rule"], over["kind"], over["resolves"]) == (RESOLVED, "not judged", row["id"])
    assert over["evidence"] == "not read, for 1 min 4 s: it is read again"
    written.leaders[PLACE] = -1
    [again] = look(watcher, NOW + 65_000 + REFRESH_MS)
    assert (again["evidence"], again["id"] != row["id"]) == ("no leader", True)


def test_a_partition_whose_topic_is_deleted_is_not_missed_and_one_that_may_come_back_is(written: Written) -> None:
    other = "payments", 0
    written.logs[other] = Log()
    watcher = written.watcher()
    for place in (PLACE, other):
        written.errors[place] = ErrorCode.KAFKA_STORAGE_ERROR
    assert {row["topic"] for row in look(watcher, NOW)} == {"orders", "payments"}
    del written.logs[PLACE]
    written.unsure = {"payments"}
    [over] = look(watcher, NOW + REFRESH_MS)
    assert (over["topic"], over["evidence"]) == ("orders", "not read, for 10 s: its topic was deleted")


def test_a_topic_that_is_not_there_has_a_row_until_it_is_there_or_not_asked_for(written: Written) -> None:
    watcher = written.watcher(topics=frozenset({"orders", "later"}))
    [row] = look(watcher, NOW)
    assert (row["rule"], row["topic"], "partition" in row) == (NOT_READ, "later", False)
    kept = watcher.to_json()
    written.logs["later", 0] = Log()
    [over] = look(watcher, NOW + REFRESH_MS)
    assert over["resolves"] == row["id"] == f"not read/later/{NOW}"
    watcher = written.watcher()
    watcher.resume(kept)
    assert [over["resolves"] for over in look(watcher, NOW)] == [row["id"]]


def test_a_partition_that_is_not_asked_for_any_more_is_not_missed(written: Written) -> None:
    written.logs["payments", 0] = Log()
    written.errors["payments", 0] = ErrorCode.KAFKA_STORAGE_ERROR
    watcher = written.watcher()
    [row] = look(watcher, NOW)
    kept, watcher = watcher.to_json(), written.watcher(topics=frozenset({"orders"}))
    watcher.resume(kept)
    [over] = look(watcher, NOW + 5_000)
    assert (over["resolves"], over["evidence"]) == (row["id"], "not read, for 5 s: it is no longer asked for")


def test_offsets_that_were_deleted_before_they_were_read_are_a_row_with_their_range(written: Written) -> None:
    watcher = written.watcher()
    look(watcher, NOW)
    written.logs[PLACE] = Log(start=3_001, end=3_001)
    [row] = look(watcher, NOW + 1_000)
    assert (row["rule"], row["kind"], row["offset"], row["end"]) == (DELETED, "not judged", 0, 3_001)
    assert (row["evidence"], row["ends"]) == ("offsets 0 to 3000", "never")


def test_coordinators_that_do_not_tell_have_a_row_until_they_do(written: Written) -> None:
    log = written.logs[PLACE]
    log.data(7, 3, 0)
    written.known = None
    told: list[str] = []
    watcher = written.watcher(told)
    [row] = look(watcher, NOW)
    assert (row["rule"], row["evidence"]) == (NO_COORDINATOR, "they do not answer")
    written.known = {}
    [over] = look(watcher, NOW + 1_000)
    assert (over["resolves"], over["evidence"][-5:]) == (row["id"], "again")
    written.logs["__transaction_state", 0] = Log()
    written.leaders["__transaction_state", 0] = -1
    rows = look(watcher, NOW + REFRESH_MS)
    assert [row["evidence"] for row in rows if row["rule"] == NO_COORDINATOR] == [
        "a partition of __transaction_state has no leader"
    ]
    log.marker(7, 3)
    assert look(watcher, NOW + REFRESH_MS + 1_000) == [], "one may stay prepared"
    written.leaders["__transaction_state", 0] = 1
    over = next(each for each in look(watcher, NOW + 2 * REFRESH_MS) if NO_COORDINATOR in each["evidence"])
    assert over["evidence"] == "coordinators do not tell, for 10 s: the coordinators tell of transactions again"
    assert told[-1] == "the coordinators tell of transactions again, after 10 s"
    assert look(watcher, NOW + 2 * REFRESH_MS + 1_000) == []


def test_a_look_in_vain_for_prepared_transactions_is_a_row_though_none_is_open(written: Written) -> None:
    written.prepared, told = None, list[str]()
    watcher = written.watcher(told)
    [row] = look(watcher, NOW)
    assert (row["rule"], row["evidence"]) == (NO_COORDINATOR, "they do not answer")
    assert told[-1].endswith("; asked again in 1 s")
    watcher = resumed(written, watcher)
    assert look(watcher, NOW + 500) == [], "its row is there"
    written.logs[PLACE].data(7, 3, 0)
    assert look(watcher, NOW + 1_500) == [], "the coordinators tell of the open one, and not of prepared ones"
    written.prepared = []
    [over] = look(watcher, NOW + 3_500)
    assert over["resolves"] == row["id"], "they were asked again after 2 s"


def test_brokers_that_cannot_tell_of_transactions_have_a_row_while_one_is_open(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported() -> None:
        raise Unsupported("ListTransactions")

    monkeypatch.setattr(written, "prepared_transactions", unsupported)
    told: list[str] = []
    watcher = written.watcher(told)
    assert look(watcher, NOW) == look(watcher, NOW + REFRESH_MS) == []
    assert told == ["not judged: which transactions stay prepared, because brokers before 3.0 do not tell"]
    log, written.known = written.logs[PLACE], None
    log.data(7, 3, 0)
    [row] = look(watcher, NOW + REFRESH_MS + 1_000)
    assert row["rule"] == NO_COORDINATOR
    log.marker(7, 3)
    _, [over] = look(watcher, NOW + REFRESH_MS + 2_000), look(watcher, NOW + REFRESH_MS + 3_000)
    assert over["evidence"] == "coordinators do not tell, for 2 s: no transaction is open any more"
    assert told[-1] == "no transaction is open any more, after 2 s"
    monkeypatch.undo()
    written.prepared = None
    [row] = look(watcher, NOW + 2 * REFRESH_MS + 2_000)
    assert row["rule"] == NO_COORDINATOR, "newer brokers may tell"
