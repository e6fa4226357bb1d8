"""Mutated frames: their form, a server that survives them, and the report on one that does not."""

import socket
import threading

import pytest

from kafka_eos.server.schemas import SERVED, served_codec
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab.fuzz import frames as fuzz_frames
from kafka_eos_checks.lab.fuzz.frames import ANSWERED, BECAME, CLOSED, EXPECTED, UNANSWERED, correlations, frame, judge
from kafka_eos_checks.testing.process import ServedProcess


def test_seed_and_number_determine_a_frame_and_most_are_damaged() -> None:
    codec = served_codec()
    first = [frame(codec, 7, number) for number in range(200)]
    assert first == [frame(codec, 7, number) for number in range(200)]
    assert first != [frame(codec, 8, number) for number in range(200)]
    lying = [data for data in first if int.from_bytes(data[:4], "big", signed=True) != len(data) - 4]
    assert 0 < len(lying) < 20
    keys = {int.from_bytes(data[4:6], "big") for data in first}
    assert len(keys) > len(SERVED) / 2


def test_the_server_survives_damaged_frames_and_serves_others() -> None:
    verdict = judge(400, 7)
    assert verdict.found == EXPECTED
    became = {each: int(verdict.figures[each]) for each in BECAME}
    assert sum(became.values()) == verdict.figures["frames"] == 400
    assert became[ANSWERED] > 80
    assert became[CLOSED] > 80
    assert became[UNANSWERED] > 0
    assert int(verdict.figures["refused_with_an_error"]) > 0


def test_complete_answers_are_recognised_by_their_correlation_id() -> None:
    answers = b"\0\0\0\6\0\0\0\7ab" + b"\0\0\0\4\xff\xff\xff\xff" + b"\0\0\0\5\0\0\0\1c"
    found = [correlations(answers[:size]) for size in (0, 3, 9, 10, 17, 18, 26, 27)]
    assert found == [[], [], [], [7], [7], [7, -1], [7, -1], [7, -1, 1]]


class Sulking(ServedProcess):
    """A server that accepts connections and never answers."""

    def __enter__(self) -> "Sulking":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._taken: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()
        return self

    def _take(self) -> None:
        try:
            while True:
                self._taken.append(self._listener.accept()[0])
        except OSError:
            return

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._taken):
            each.close()

    @property
    def pid(self) -> int:
        return 0

    @property
    def is_alive(self) -> bool:
        return False


def test_a_server_that_no_longer_answers_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_frames, "PATIENCE_SECONDS", 0.5)
    verdict = judge(10, 7, Sulking())
    assert not verdict.ok
    assert verdict.found == "ApiVersions v3: no answer within 0.5 s, after frame 8 of seed 7"


class Ended(ServedProcess):
    """A server that answers, and has ended when it is looked at."""

    @property
    def is_alive(self) -> bool:
        return False


def test_a_server_that_has_ended_after_the_last_frame_is_reported() -> None:
    verdict = judge(8, 7, Ended())
    assert (verdict.ok, verdict.found) == (False, "the server has ended")


def test_a_server_that_takes_too_much_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_frames, "MOST_MEMORY", 1 << 20)
    assert judge(8, 7).found.endswith("MB resident")


def test_without_memory_figures_from_the_system_the_verdict_omits_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_frames, "peak_memory", lambda _: None)
    verdict = judge(8, 7)
    assert verdict.ok
    assert verdict.found == "alive, others served, memory not reported by this system"
    assert "resident_mb" not in verdict.figures


def test_the_command_refuses_a_count_below_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "fuzz", "--frames", "0"]) == 2
    assert "--frames is at least 1" in capsys.readouterr().err
