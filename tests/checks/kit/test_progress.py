"""Progress of long work where standard error is no terminal: lines at a moderate rate."""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Condition, Event

import pytest

from kafka_eos_checks.kit import progress, terminal
from kafka_eos_checks.kit.progress import byte_progress, count_progress, part_progress
from kafka_eos_checks.kit.terminal import PlainStatus, ProgressConsole


class Lines(io.StringIO):
    """A file whose reader can wait for a text."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Condition()

    def write(self, text: str) -> int:
        with self.written:
            self.written.notify_all()
            return super().write(text)

    def has(self, text: str) -> bool:
        """Whether the text is written within a minute."""
        with self.written:
            return self.written.wait_for(lambda: text in self.getvalue(), 60)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    found = Lines()
    monkeypatch.setattr(terminal, "EVERY", 0.01)
    monkeypatch.setattr(progress, "progress_console", ProgressConsole(file=found))
    return found


def test_a_status_without_a_terminal_is_a_line_while_the_work_lasts(lines: Lines) -> None:
    with progress.progress_console.status("TLC starts") as status:
        status.update("[1] of 2 done")
        assert lines.has("… [1] of 2 done (")
    said = lines.getvalue()
    assert not Event().wait(0.1)
    assert lines.getvalue() == said  # nothing more once it has ended


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (lambda: count_progress("runs", 2000), "… runs: 1,500 of 2,000 ("),
        (lambda: byte_progress("headers", 2_000_000), "… headers: 0 of 2 MB ("),
    ],
)
def test_a_bar_without_a_terminal_counts_in_lines(
    lines: Lines, begin: Callable[[], AbstractContextManager[progress.Advance]], said: str
) -> None:
    with begin() as advance:
        advance(1000)
        advance(500)
        assert lines.has(said)


def test_of_a_number_that_grows_the_line_has_both_numbers(lines: Lines) -> None:
    with part_progress("spark", "tasks") as show:
        show(3, 8)
        assert lines.has("… spark: 3 of 8 tasks (")


def test_short_work_leaves_no_line() -> None:
    out = io.StringIO()
    with ProgressConsole(file=out).status("quick"):
        pass
    assert out.getvalue() == ""


def test_a_terminal_keeps_its_spinner() -> None:
    assert not isinstance(ProgressConsole(file=io.StringIO(), force_terminal=True).status("x"), PlainStatus)
