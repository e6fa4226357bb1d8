"""The terminal: verdict tables and progress, on standard error unless they are the answer itself."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from kafka_eos_checks.verdict import Verdict

WIDE = 150  # columns of a table that goes to a file or a pipe

progress_console = Console(stderr=True, highlight=False)
answer_console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


def verdict_table(verdicts: Sequence[Verdict], title: str = "") -> Table:
    """One line a verdict: mark, what was checked, what was expected and found, figures, seconds."""
    table = Table(title=title or None, box=None, pad_edge=False, title_justify="left")
    for column in ("", "check", "name", "expected", "found", "figures"):
        table.add_column(column, overflow="fold")
    table.add_column("seconds", justify="right")
    for verdict in verdicts:
        figures = " ".join(f"{k}={v:,}" if isinstance(v, int) else f"{k}={v}" for k, v in verdict.figures.items())
        mark = "[green]ok[/]" if verdict.ok else "[red]FAIL[/]"
        table.add_row(
            mark,
            verdict.check,
            verdict.name,
            verdict.expected,
            verdict.found,
            figures,
            f"{verdict.seconds:.1f}",
        )
    return table


def print_verdicts(verdicts: Sequence[Verdict], title: str = "") -> None:
    """Print the table, then the evidence of whatever was not as expected."""
    answer_console.print(verdict_table(verdicts, title))
    for verdict in verdicts:
        if not verdict.ok:
            answer_console.print(
                f"\n[red]FAIL[/] {verdict.check} {verdict.name}: expected {verdict.expected}, found {verdict.found}"
            )
            answer_console.print(verdict.evidence, markup=False, soft_wrap=True)  # commands stay whole
