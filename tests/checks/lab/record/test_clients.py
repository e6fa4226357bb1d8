import sys
from pathlib import Path

import pytest

from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.lab.record import clients
from kafka_eos_checks.lab.record.clients import ClientFailed, ClientProcess, Workload, start_verifiable_producer

SAY = """
import sys, time
n = 0
while True:
    sys.stdout.write(f'{time.monotonic_ns()} {{"action":"Send","phase":"invoke","offset":{n}}}\\n')
    sys.stdout.flush()
    n += 1
    time.sleep(0.005)
"""


def python(program: str, journal: Journal, folder: Path) -> ClientProcess:
    return ClientProcess(
        "client", [sys.executable, "-c", program], journal, folder, lambda line: journal.add_line("client", line)
    )


def test_kafkas_verifiable_producer_gets_its_settings_in_a_file_and_its_report_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = """
import json
print("a line of its log")
print(json.dumps({"name": "producer_send_success", "topic": "t", "partition": 1, "offset": 5, "value": "7.0"}))
print(json.dumps({"name": "producer_send_error", "topic": "t", "value": "7.1", "exception": "late"}))
"""
    asked: list[str] = []

    def java_command(tool: str, *words: str) -> list[str]:
        asked.extend((tool, *words))
        return [sys.executable, "-c", report]

    monkeypatch.setattr(clients, "java_command", java_command)
    journal = Journal("r")
    work = Workload(bootstrap="127.0.0.1:1", client="java", topic="t", partitions=2, records=2, prefix="")
    with start_verifiable_producer(work, journal, tmp_path / "clients") as client:
        client.wait()
    given = dict(zip(asked[1::2], asked[2::2], strict=True))
    assert asked[0].endswith(".VerifiableProducer")
    assert (given["--topic"], given["--bootstrap-server"], given["--max-messages"]) == ("t", "127.0.0.1:1", "2")
    settings = Path(given["--command-config"]).read_text(encoding="utf-8").splitlines()
    assert {"client.id=java", "enable.idempotence=true"} <= set(settings)
    sends = [event for event in journal.events() if event.action == "Send"]
    assert [(event.phase, event.detail["value"], event.offset) for event in sends] == [
        ("invoke", "7.0", None),
        ("invoke", "7.1", None),
        ("ok", "7.0", 5),
        ("info", "7.1", None),
    ]


def test_the_events_of_a_killed_client_precede_its_crash(tmp_path: Path) -> None:
    journal = Journal("r")
    with python(SAY, journal, tmp_path) as client:
        journal.wait_for(lambda e: e.action == "Send", 5, 10, "sends")
        client.kill()
    events = journal.events()
    assert [e.action for e in events[-1:]] == ["Crash"]
    assert events[-1].phase == "ok"
    sends = [e.offset for e in events if e.action == "Send"]
    assert sends == list(range(len(sends)))


def test_a_frozen_client_writes_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    journal = Journal("r")
    with python(SAY, journal, tmp_path) as client:
        journal.wait_for(lambda e: e.action == "Send", 3, 10, "sends")
        client.freeze()
        journal.wait_for(lambda e: e.action == "Freeze" and e.phase == "ok", 1, 10, "freezes")
        client.resume()
        before = journal.count(lambda e: e.action == "Send")
        journal.wait_for(lambda e: e.action == "Send", before + 3, 10, "sends")
        client.kill()
    events = journal.events()
    frozen = next(n for n, e in enumerate(events) if e.action == "Freeze" and e.phase == "ok")
    assert events[frozen + 1].action == "Resume"


def test_a_client_that_ends_with_an_unexpected_code_is_reported_with_its_output(tmp_path: Path) -> None:
    with (
        python("import sys; print('why', file=sys.stderr); sys.exit(4)", Journal("r"), tmp_path) as client,
        pytest.raises(ClientFailed, match=r"ended with 4, expected \(0,\).*client\.log"),
    ):
        client.wait(20)
    assert (tmp_path / "client.log").read_text() == "why\n"


def test_an_expected_exit_code_is_returned(tmp_path: Path) -> None:
    with python("import sys; sys.exit(3)", Journal("r"), tmp_path) as client:
        assert client.wait(20, expected=(0, 3)) == 3


def test_a_client_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with python("import time; time.sleep(600)", Journal("r"), tmp_path) as client:
        with pytest.raises(ClientFailed, match="still running"):
            client.wait(0.2)
        assert not client.runs()


def test_half_a_line_of_a_killed_client_is_left_out(tmp_path: Path) -> None:
    journal = Journal("r")
    program = """
import sys, time
sys.stdout.write('1 {"action":"Send","phase":"invoke"}\\n2 {"action":"Se')
sys.stdout.flush()
time.sleep(600)
"""
    with python(program, journal, tmp_path) as client:
        journal.wait_for(lambda e: e.action == "Send", 1, 10, "sends")
        client.kill()
    assert [e.action for e in journal.events()] == ["Send", "Crash", "Crash"]


def test_a_client_that_pauses_goes_on_when_it_is_told_to(tmp_path: Path) -> None:
    journal = Journal("r")
    program = """
import sys
sys.stdout.write('1 {"action":"Pause","phase":"invoke"}\\n')
sys.stdout.flush()
sys.exit(5 if sys.stdin.readline() == "\\n" else 6)
"""
    with python(program, journal, tmp_path) as client:
        journal.wait_for(lambda e: e.action == "Pause", 1, 10, "pauses")
        client.go_on()
        assert client.wait(20, expected=(5,)) == 5


def test_a_client_that_is_asked_to_stop_may_tell_the_rest(tmp_path: Path) -> None:
    journal = Journal("r")
    program = """
import signal, sys
def stop(number, frame):
    sys.stdout.write('2 {"action":"EndOfPartition","phase":"ok"}\\n')
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
sys.stdout.write('1 {"action":"Assign","phase":"ok"}\\n')
sys.stdout.flush()
signal.pause()
"""
    with python(program, journal, tmp_path) as client:
        journal.wait_for(lambda e: e.action == "Assign", 1, 10, "assignments")
        client.ask_to_stop()
        client.wait(20)
    assert [e.action for e in journal.events()] == ["Assign", "EndOfPartition"]
