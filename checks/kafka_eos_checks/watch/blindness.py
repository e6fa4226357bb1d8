"""The times at which the watcher could not see something, as rows, so that programs can tell silence from blindness.

A row says what is not seen and since when. Another one, which ``resolves`` it, says that it is seen again. They are no
violations: their kind is ``not judged``. What is not seen yet is in the checkpoint, so that a restart ends its row.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kafka_eos_checks.audit.findings import Kind
from kafka_eos_checks.watch.cluster import Place
from kafka_eos_checks.watch.reports import RESOLVED, Clock, Ends, Report, Since, duration, identity

NO_BROKER, NO_COORDINATOR = "no broker answers", "coordinators do not tell"
NOT_READ, DELETED = "not read", "deleted before it was read"
WHOLE_TOPIC = -1  # in place of a partition
EVERYWHERE: Place = ("", WHOLE_TOPIC)


class Spot(NamedTuple):
    """A thing that the watcher cannot see: the rule of its rows, and the place."""

    rule: str
    topic: str
    partition: int


@dataclass(slots=True)
class Blindness:
    """The things that the watcher cannot see now, and the rows about them that nobody has taken yet.

    Attributes:
        since_ms: by what is not seen, since when, in milliseconds since the epoch.
    """

    since_ms: dict[Spot, int] = field(default_factory=dict)
    _rows: list[Report] = field(default_factory=list)

    def __contains__(self, rule: str) -> bool:
        return any(spot.rule == rule for spot in self.since_ms)

    def places(self, rule: str) -> list[Place]:
        """The places that a rule is about."""
        return [(spot.topic, spot.partition) for spot in self.since_ms if spot.rule == rule]

    def begins(self, rule: str, place: Place, why: str, now_ms: int) -> None:
        """Note that something is not seen; once until it ends."""
        spot = Spot(rule, *place)
        if spot not in self.since_ms:
            self.since_ms[spot] = now_ms
            self._rows.append(_report(spot, now_ms, why))

    def ends(self, rule: str, place: Place, how: str, now_ms: int) -> None:
        """Note that something is seen again, if it was not."""
        spot = Spot(rule, *place)
        if spot in self.since_ms:
            since_ms = self.since_ms.pop(spot)
            about, evidence = _report(spot, since_ms, ""), f"{rule}, for {duration(now_ms - since_ms)}: {how}"
            self._rows.append(replace(about, rule=RESOLVED, evidence=evidence, since=None, resolves=identity(about)))

    def missed(self, place: Place, first: int, end: int, now_ms: int) -> None:
        """Note that offsets were deleted before they were read."""
        row = _report(Spot(DELETED, *place), now_ms, f"offsets {first} to {end - 1}")
        self._rows.append(replace(row, offset=first, end=end, ends=Ends.NEVER))

    def take(self) -> list[Report]:
        """The rows since they were taken last."""
        taken, self._rows = self._rows, []
        return taken

    def to_json(self) -> list[list[Any]]:
        """Rows of JSON; the inverse of :meth:`resume`."""
        return [[*spot, since_ms] for spot, since_ms in self.since_ms.items()]

    def resume(self, rows: list[list[Any]]) -> None:
        """Take the rows of :meth:`to_json`."""
        self.since_ms = {Spot(rule, topic, partition): since_ms for rule, topic, partition, since_ms in rows}


def _report(spot: Spot, since_ms: int, why: str) -> Report:
    return Report(
        rule=spot.rule,
        topic=spot.topic,
        partition=spot.partition,
        evidence=why,
        kind=Kind.NOT_JUDGED.value,
        since=Since(ms=since_ms, clock=Clock.WATCHER),
        ends=Ends.UNKNOWN,
    )
