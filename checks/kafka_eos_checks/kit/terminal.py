"""The terminal: verdict tables and progress, on standard error unless they are the answer itself."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from threading import Event, Thread
from time import monotonic
from typing import Any

from rich.console import Console, RenderableType
from rich.status import Status
from rich.table import Table

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


class ProgressConsole(Console):
    """A console whose status is a spinner on a terminal, and lines elsewhere."""

    def status(self, status: RenderableType, **more: Any) -> Status:
        """The status of long work; a context manager."""
        return super().status(status, **more) if self.is_terminal else PlainStatus(status, console=self)


progress_console = ProgressConsole(stderr=True, highlight=False)
answer_console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


def verdict_table(verdicts: Sequence[Verdict], title: str = "") -> Table:
    """A line for each verdict that had something to judge: mark, name, expected, found, figures, seconds."""
    table = Table(title=title or None, box=None, pad_edge=False, title_justify="left")
    for column in ("", "check", "name", "expected", "found", "figures"):
        table.add_column(column, overflow="fold")
    table.add_column("seconds", justify="right")
    for verdict in verdicts:
        if verdict.standing is Standing.NOTHING:
            continue
        figures = " ".join(f"{k}={v:,}" if isinstance(v, int) else f"{k}={v}" for k, v in verdict.figures.items())
        table.add_row(
            f"[{_COLOURS[verdict.standing]}]{verdict.standing.value}[/]",
            verdict.check,
            verdict.name,
            verdict.expected,
            verdict.found,
            figures,
            f"{verdict.seconds:.1f}",
        )
    return table


def plain_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without lines: the first column is text, the others are figures."""
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def print_verdicts(verdicts: Sequence[Verdict], title: str = "") -> None:
    """Print the table, then the evidence of each unexpected verdict, then what is not judged, and why."""
    answer_console.print(verdict_table(verdicts, title))
    for verdict in verdicts:
        if verdict.standing is Standing.FAIL:
            answer_console.print(
                f"\n[red]FAIL[/] {verdict.check} {verdict.name}: expected {verdict.expected}, found {verdict.found}"
            )
            _print_plain(verdict.evidence)
            _print_plain(verdict.advice)
    alike: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.unknown:
            alike[verdict.unjudged].append(verdict)
    for reason, own in alike.items():
        answer_console.print("\n[yellow]not judged[/]", end=" ")
        _print_plain(f"{', '.join(verdict.name for verdict in own)}: {reason}")
        for verdict in own:
            _print_plain(verdict.evidence if verdict.ok else "")
            _print_plain(verdict.advice if verdict.ok else "")
    nothing = [verdict.name for verdict in verdicts if verdict.standing is Standing.NOTHING]
    if nothing:
        answer_console.print("\n[yellow]nothing to judge[/] for:", end=" ")
        more = f" and {len(nothing) - MOST_NAMED} more; the report has them" if len(nothing) > MOST_NAMED else ""
        _print_plain(f"{', '.join(nothing[:MOST_NAMED])}{more}")


def _print_plain(text: str) -> None:
    if text:
        answer_console.print(text, markup=False, soft_wrap=True)  # commands stay whole
