"""The waits before a failed operation is tried again."""

from dataclasses import dataclass

FIRST_MS, LONGEST_MS = 1_000, 30_000


@dataclass(slots=True)
class BackOff:
    """Waits that double with each failure, from a second to half a minute.

    Attributes:
        wait_ms: the present wait; 0 before the first failure.
        since_ms: when it failed first, in milliseconds since the epoch.
        until_ms: when to try again.
        whys: the reasons that were told.
    """

    wait_ms: int = 0
    since_ms: int = 0
    until_ms: int = 0
    whys: frozenset[str] = frozenset()

    def failed(self, now_ms: int, why: str) -> bool:
        """Wait longer; whether that is worth a line: the wait has grown, or the reason is new."""
        before = self.wait_ms
        if not before:
            self.since_ms = now_ms
        self.wait_ms = min(2 * before or FIRST_MS, LONGEST_MS)
        self.until_ms = now_ms + self.wait_ms
        is_new = self.wait_ms > before or why not in self.whys
        self.whys |= {why}
        return is_new

    def in_words(self) -> str:
        """The time of the next attempt, in words."""
        often = "every" if self.wait_ms == LONGEST_MS else "in"
        return f"{often} {self.wait_ms // 1000} s"
