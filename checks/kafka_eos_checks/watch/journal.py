"""Reports and checkpoints in a folder, so that a restart neither loses nor repeats a report.

``checkpoint.json``  the positions of reading, how many reports there were by then, and the latest ones whole; the
                     time of the file is a sign of life
``reports.jsonl``    a report a line, numbered from 1

A checkpoint replaces the one before by a rename, which is atomic. It carries the reports that belong to it. They are
appended to ``reports.jsonl`` afterwards, and a restart appends those that are missing. So what was read before a rename
is reported once, and what was read after the last one is read again. Wherever the watcher is killed, the file of
reports is in the end what it would have been (Spec: ExternalSink, the strategy of an outbox whose rows have numbers).
On the terminal a report is printed once it is in the file, so a kill in between can keep it off the terminal.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kafka_eos_checks.watch.reports import Report, Row, line_of, report_row

CHECKPOINT, REPORTS, LOCK = "checkpoint.json", "reports.jsonl", "lock"
FORMAT = 3  # 2 knew neither when transactions began nor which reports were not over


class UnusableFolder(ValueError):  # noqa: N818 - named for the folder
    """A folder without a checkpoint of ours, with one that does not fit its reports, or in use by another process."""


class Journal:
    """The folder; a context manager that keeps others out of it.

    Args:
        folder: made if it is not there.

    Attributes:
        state: the state in the last checkpoint; None if there is none.
        recovered: reports that a kill had kept out of the file.

    Raises:
        UnusableFolder: see there.
        OSError: it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = (folder / LOCK).open("w", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise UnusableFolder(f"{folder} is used by another process") from None
        self.state: Row | None = None
        self._written = 0
        try:
            self.recovered = self._restore()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others use the folder."""
        self._lock.close()

    def unusable(self, error: Exception) -> UnusableFolder:
        """The error about a checkpoint that cannot be read, or whose state no watcher can continue from."""
        why = f"{type(error).__name__} {error}"
        return UnusableFolder(f"{self._folder / CHECKPOINT} is no checkpoint: {why}; give another folder")

    def commit(self, state: Row, seen_ms: int, reports: Sequence[Report]) -> list[Row]:
        """Keep the present state with the reports that belong to it; return the reports as they are written."""
        rows = [report_row(self._written + 1 + i, seen_ms, report) for i, report in enumerate(reports)]
        total = self._written + len(rows)
        whole = {"format": FORMAT, "reports": total, "latest": rows, "state": state}
        self._replace(json.dumps(whole, separators=(",", ":")))
        self._append(rows)
        self._written = total
        return rows

    def alive(self) -> None:
        """Give the checkpoint the present time, as a sign of life."""
        os.utime(self._folder / CHECKPOINT)

    def _replace(self, text: str) -> None:
        new = self._folder / f"{CHECKPOINT}.new"
        with new.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        new.replace(self._folder / CHECKPOINT)
        self._sync_folder()

    def _append(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        with (self._folder / REPORTS).open("a", encoding="utf-8") as out:
            out.write("".join(line_of(row) + "\n" for row in rows))
            out.flush()
            os.fsync(out.fileno())
        self._sync_folder()

    def _sync_folder(self) -> None:
        number = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def _restore(self) -> list[Row]:
        count = self._whole_lines()
        checkpoint = self._folder / CHECKPOINT
        if not checkpoint.exists():
            if count:
                raise UnusableFolder(f"{self._folder} has {count} reports and no {CHECKPOINT}; give another folder")
            return []
        try:
            kept = json.loads(checkpoint.read_text(encoding="utf-8"))
            known, total, latest = kept["format"], kept["reports"], kept["latest"]
            self.state = kept["state"]
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
            raise self.unusable(error) from None
        if known != FORMAT:
            raise UnusableFolder(f"{checkpoint} has format {known}, and known is {FORMAT}; give another folder")
        if type(total) is not int or not isinstance(latest, list) or not all(isinstance(row, dict) for row in latest):
            raise self.unusable(TypeError(f"{total!r} reports, the latest {latest!r}"))
        missing = total - count
        if not 0 <= missing <= len(latest):
            raise UnusableFolder(
                f"{self._folder}: {CHECKPOINT} knows {total} reports, and {REPORTS} has {count}; give another folder"
            )
        rows: list[Row] = latest[len(latest) - missing :]
        self._append(rows)
        self._written = total
        return rows

    def _whole_lines(self) -> int:
        """The number of reports in the file; an incomplete last line after a kill is removed."""
        path = self._folder / REPORTS
        if not path.exists():
            return 0
        with path.open("r+b") as file:
            count = end = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                count, end = count + 1, end + len(line)
            file.truncate(end)
        return count
