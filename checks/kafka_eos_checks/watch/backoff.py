"""The waits before a failed operation is tried again."""

from dataclasses import dataclass

FIRST_MS = 1_000
LONGEST_MS = 5_000  # so that a broker that has restarted is watched again soon
SLOWEST_MS = 30_000  # the longest wait for one whose attempts take long, such as a host that answers nothing at all
SHARE = 3  # of the time that a failed attempt takes: others are watched for as many times longer meanwhile


@dataclass(slots=True)
class BackOff:
    """Waits that double with each failure, from a second to five; to half a minute if an attempt takes long.

    Attributes:
        wait_ms: the present wait; 0 before the first failure.
        longest_ms: the longest wait, as the last attempt shows it.
        since_ms: when it failed first, in milliseconds since the epoch.
        until_ms: when to try again.
        whys: the reasons that were told.
    """

    wait_ms: int = 0
    longest_ms: int = LONGEST_MS
    since_ms: int = 0
    until_ms: int = 0
    whys: frozenset[str] = frozenset()

    def failed(self, now_ms: int, why: str, took_ms: int = 0) -> bool:
        """Wait longer; whether that is worth a line: the wait has grown, or the reason is new.

        Args:
            now_ms: when the attempt began.
            why: why it failed.
            took_ms: how long it took.
        """
        before = self.wait_ms
        if not before:
            self.since_ms = now_ms
        self.longest_ms = min(max(SHARE * took_ms, LONGEST_MS), SLOWEST_MS)
        self.wait_ms = min(2 * before or FIRST_MS, self.longest_ms)
        self.until_ms = now_ms + took_ms + self.wait_ms
        is_new = self.wait_ms > before or why not in self.whys
        self.whys |= {why}
        return is_new

    def in_words(self) -> str:
        """The time of the next attempt, in words."""
        often = "every" if self.wait_ms == self.longest_ms else "in"
        return f"{often} {self.wait_ms / 1000:.0f} s"
