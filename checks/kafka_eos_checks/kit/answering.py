"""A process that answers questions, a line of JSON each with a line of JSON, until its input ends."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

Ask = Callable[[Iterable[Any]], list[Any]]


class NoAnswer(RuntimeError):  # noqa: N818 - what happened
    """The process ended instead of answering, or took too long; its standard error says why."""


@contextmanager
def answering(command: Sequence[str], seconds: float) -> Iterator[Ask]:
    """A running process, as a function from questions to answers.

    Args:
        command: its command line.
        seconds: the time for the questions of one call, after which it is killed.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def ask(questions: Iterable[Any]) -> list[Any]:
            timer = threading.Timer(seconds, process.kill)
            timer.start()
            try:
                return [answer(question) for question in questions]
            finally:
                timer.cancel()

        def answer(question: Any) -> Any:
            try:
                asked.write(json.dumps(question) + "\n")
                asked.flush()
                line = told.readline()
            except OSError:
                line = ""
            if not line:
                raise NoAnswer(f"{command[0]} … {command[-1]}: no answer to {question}")
            return json.loads(line)

        try:
            yield ask
        finally:
            with suppress(BrokenPipeError):  # it has ended before
                asked.close()
