import threading

import pytest

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.brokers.journal import Journal, StillWaiting


def test_events_are_in_the_order_of_their_timestamps_whenever_they_arrive() -> None:
    journal = Journal("r")
    journal.add("proxy", "Produce", "invoke", at=30)
    journal.add_line("client", '10 {"action":"Send","phase":"invoke","detail":{"value":"a0"}}\n')
    journal.add("proxy", "Produce", "ok", at=40)
    journal.add_line("client", '50 {"action":"Send","phase":"ok","offset":7}\n')
    events = journal.events()
    assert [(e.order, e.process, e.action, e.phase) for e in events] == [
        (0, "client", "Send", "invoke"),
        (1, "proxy", "Produce", "invoke"),
        (2, "proxy", "Produce", "ok"),
        (3, "client", "Send", "ok"),
    ]
    assert {e.run for e in events} == {"r"}
    assert events[3].offset == 7


def test_events_with_equal_timestamps_keep_the_order_of_their_arrival() -> None:
    journal = Journal("r")
    for name in "abc":
        journal.add(name, "Produce", "invoke", at=5)
    assert [e.process for e in journal.events()] == ["a", "b", "c"]


def test_timestamps_become_microseconds_since_the_epoch() -> None:
    journal = Journal("r")
    journal.add("a", "Stop", "ok", at=1_000_000)
    journal.add("a", "Stop", "ok", at=3_500_000)
    first, second = (e.time_us for e in journal.events())
    assert first is not None
    assert second is not None
    assert second - first == 2_500


def test_an_event_that_a_client_must_not_write_is_refused() -> None:
    with pytest.raises(MalformedHistory, match="unknown column"):
        Journal("r").add_line("client", '1 {"action":"Send","phase":"ok","value":"a"}')


def test_waiting_ends_when_enough_events_have_come() -> None:
    journal = Journal("r")
    journal.add("a", "Send", "ok")
    later = threading.Timer(0.05, journal.add, ("a", "Send", "ok"))
    later.start()
    journal.wait_for(lambda e: e.action == "Send", 2, 10, "sends")
    later.join()
    assert journal.count(lambda e: e.action == "Send") == 2


def test_waiting_gives_up_and_reports_its_progress() -> None:
    journal = Journal("r")
    journal.add("a", "Send", "ok")
    with pytest.raises(StillWaiting, match="r: 1 of 2 sends"):
        journal.wait_for(lambda e: e.action == "Send", 2, 0.05, "sends")
