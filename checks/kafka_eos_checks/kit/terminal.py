"""The terminal: verdict tables and progress, on standard error unless they are the answer itself."""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from threading import Event, Thread
from time import monotonic
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.status import Status
from rich.table import Table
from rich.text import Text

from kafka_eos_checks.kit.verdict import Standing, Verdict

_COLOURS = {Standing.OK: "green", Standing.FAIL: "red", Standing.NOT_JUDGED: "yellow", Standing.NOTHING: "yellow"}
WIDE = 150  # columns of a table that goes to a file or a pipe
MOST_NAMED = 60  # verdicts with nothing to judge; an audit has fewer rules

EVERY = 10.0  # seconds between two lines of progress where no spinner can be drawn


class PlainStatus(Status):
    """A status without a spinner, for a file or a pipe: its text, as a line every some seconds while the work lasts."""

    def start(self) -> None:
        """Begin to tell the status."""
        self._ended = Event()
        self._thread = Thread(target=self._tell, daemon=True)
        self._thread.start()

    def update(self, status: RenderableType | None = None, **_: Any) -> None:
        """Change the text."""
        self.status = status or self.status

    def stop(self) -> None:
        """End it."""
        self._ended.set()
        self._thread.join()

    def _tell(self) -> None:
        start = monotonic()
        while not self._ended.wait(EVERY):
            self.console.print(f"… {self.status} ({monotonic() - start:.0f} s)", markup=False, soft_wrap=True)


class TextStatus(Status):
    """A status whose text may have brackets."""

    def __init__(self, status: RenderableType, **more: Any) -> None:
        super().__init__(_plain(status), **more)

    def update(self, status: RenderableType | None = None, **more: Any) -> None:
        """Change the text."""
        super().update(None if status is None else _plain(status), **more)


def _plain(text: RenderableType) -> RenderableType:
    return Text(text) if isinstance(text, str) else text


class AnswerConsole(Console):
    """A console whose reader may have seen enough; rich would then end the program as if it had found something."""

    def on_broken_pipe(self) -> None:
        """Say so to the command."""
        raise BrokenPipeError


class ProgressConsole(AnswerConsole):
    """A console whose status is a spinner on a terminal, and lines elsewhere."""

    def status(self, status: RenderableType, **more: Any) -> Status:
        """The status of long work; a context manager."""
        return TextStatus(status, console=self, **more) if self.is_terminal else PlainStatus(status, console=self)


# rich would make a picture of what is between two colons, as of the line in protocol.py:100: or of a topic's name, and
# take what is in brackets for a style, as of kafka-eos[bench]. What has a style is a Text.
progress_console = ProgressConsole(stderr=True, highlight=False, emoji=False, markup=False)
answer_console = AnswerConsole(highlight=False, emoji=False, markup=False, width=None if sys.stdout.isatty() else WIDE)


class Wrapped:
    """A cell that is broken between words, and a name that is too long for its column between the words in it."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in self.text.split("\n", allow_blank=True):
            for part in line.divide(breaks(line.plain, options.max_width)):
                part.rstrip()
                yield part


_IN_A_NAME = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[=_/.,:!-])(?=\w)")  # Two|Replicas, holds=|1, conform_|run


def breaks(text: str, width: int) -> list[int]:
    """The places of a text, from 0, at which lines of a width begin, without the first line's."""
    found, start = list[int](), 0
    while len(text) - start > width:
        end = start + max(width, 1)
        spaces = [space.end() for space in re.finditer(r"\s+", text) if start < space.start() <= end]
        inside = [place.start() for place in _IN_A_NAME.finditer(text) if start < place.start() <= end]
        start = (spaces or inside or [end])[-1]
        found.append(start)
    return found


class WordTable(Table):
    """A table without lines whose cells are :class:`Wrapped`: plain text, or a :class:`Text` with a style."""

    def __init__(self, *columns: str, title: str = "") -> None:
        super().__init__(title=title or None, box=None, pad_edge=False, title_justify="left")
        for column in columns:
            self.add_column(column, overflow="fold")

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        """Add a row."""
        texts = (None if cell is None else _plain(cell) for cell in cells)
        super().add_row(*(Wrapped(cell) if isinstance(cell, Text) else cell for cell in texts), **more)


def verdict_table(verdicts: Sequence[Verdict], title: str = "") -> Table:
    """A line for each verdict that had something to judge: mark, name, found, figures, seconds.

    The kind of check is shown where there are several kinds. What was expected is shown below, where something else was
    found.
    """
    shown = [verdict for verdict in verdicts if verdict.standing is not Standing.NOTHING]
    several = ["check"] if len({verdict.check for verdict in shown}) > 1 else []
    table = WordTable("", *several, "name", "found", "figures", title=title)
    table.add_column("seconds", justify="right")
    for verdict in shown:
        figures = " ".join(f"{k}={v:,}" if isinstance(v, int) else f"{k}={v}" for k, v in verdict.figures.items())
        check = [verdict.check] if several else []
        mark = Text(verdict.standing.value, _COLOURS[verdict.standing])
        table.add_row(mark, *check, verdict.name, verdict.found, figures, f"{verdict.seconds:.1f}")
    return table


def plain_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without lines: the first column is text, the others are figures."""
    table = WordTable(names[0])
    for name in names[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def print_verdicts(verdicts: Sequence[Verdict], title: str = "") -> None:
    """Print the table, then the evidence of each unexpected verdict, then what is not judged, and why."""
    answer_console.print(verdict_table(verdicts, title))
    several = len({verdict.check for verdict in verdicts}) > 1
    for verdict in verdicts:
        if verdict.standing is Standing.FAIL:
            name = f"{verdict.check} {verdict.name}" if several else verdict.name
            said = f" {name}: expected {verdict.expected}, found {verdict.found}"
            answer_console.print(Text.assemble("\n", ("FAIL", "red"), said))
            _print_plain(verdict.evidence)
            _print_plain(verdict.advice)
    alike: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.unknown:
            alike[verdict.unjudged].append(verdict)
    for reason, own in alike.items():
        answer_console.print(Text.assemble("\n", ("not judged", "yellow")), end=" ")
        _print_plain(f"{', '.join(verdict.name for verdict in own)}: {reason}")
        for verdict in own:
            _print_plain(verdict.evidence if verdict.ok else "")
            _print_plain(verdict.advice if verdict.ok else "")
    nothing = [verdict.name for verdict in verdicts if verdict.standing is Standing.NOTHING]
    if nothing:
        answer_console.print(Text.assemble("\n", ("nothing to judge", "yellow"), " for:"), end=" ")
        more = f" and {len(nothing) - MOST_NAMED} more; the report has them" if len(nothing) > MOST_NAMED else ""
        _print_plain(f"{', '.join(nothing[:MOST_NAMED])}{more}")


def _print_plain(text: str) -> None:
    if text:
        answer_console.print(text, markup=False, soft_wrap=True)  # commands stay whole
