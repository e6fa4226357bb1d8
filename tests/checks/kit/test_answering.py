import sys
import threading

import pytest

from kafka_eos_checks.kit.answering import NoAnswer, answering

DOUBLES = """
import json, sys, time
for line in sys.stdin:
    number = json.loads(line)
    if number == 7:
        sys.exit("no sevens")
    if number == 60:
        time.sleep(number)
    print(json.dumps(2 * number), flush=True)
"""
COMMAND = [sys.executable, "-c", DOUBLES]


def test_one_process_answers_the_questions_of_several_calls() -> None:
    with answering(COMMAND, 60) as ask:
        assert ask([1, "a"]) == [2, "aa"]
        assert ask(range(100, 5000)) == [2 * number for number in range(100, 5000)]


def test_a_process_that_answered_in_time_is_not_killed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[threading.Timer] = []

    class Noted(threading.Timer):
        def start(self) -> None:
            timers.append(self)
            super().start()

    monkeypatch.setattr(threading, "Timer", Noted)
    with answering(COMMAND, 60) as ask:
        assert [ask([1]), ask([3])] == [[2], [6]]
        assert [timer.finished.is_set() for timer in timers] == [True, True]


@pytest.mark.parametrize(("question", "seconds"), [(7, 60), (60, 0.5)])
def test_a_process_that_ends_or_takes_too_long_is_told_with_the_question(question: int, seconds: float) -> None:
    with pytest.raises(NoAnswer, match=f"no answer to {question}"), answering(COMMAND, seconds) as ask:
        ask([question, 1])


def test_asking_a_process_that_has_ended_is_told_too() -> None:
    with answering(COMMAND, 60) as ask:
        for _ in range(2):
            with pytest.raises(NoAnswer, match="no answer to 7"):
                ask([7])
