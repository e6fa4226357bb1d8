"""The result of the rules over transactions for some producer ids."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.rules.decided import (
    Data,
)
from kafka_eos_checks.audit.rules.log import Reasons
from kafka_eos_checks.audit.rules.transactions.names import (
    FENCED,
    HANGING,
    NO_BIT,
    NO_TRANSACTION,
    OF_MARKERS,
    OLD_COORDINATOR,
    RECENT,
    TORN,
    UNKNOWN,
)
from kafka_eos_checks.audit.rules.transactions.partitions import Replaced
from kafka_eos_checks.audit.segments.contents import Figures


class Hanging(NamedTuple):
    """A finding on data that are open, or were still open when data of a later epoch came.

    Attributes:
        finding: the finding, without the coordinator's decision.
        replaced: the data that were replaced by those of a later epoch; None for data that are open.
    """

    finding: Finding
    replaced: Replaced | None = None

    @property
    def data(self) -> Data:
        """The data."""
        found = self.finding
        assert found.producer_id is not None, "data have a producer"
        assert found.producer_epoch is not None, "a producer has an epoch"
        return Data(found.producer_id, found.producer_epoch, found.topic, found.partition)


def add_figure(figures: Figures, name: str, more: int = 1) -> None:
    """Add to a figure."""
    figures[name] = int(figures[name]) + more


@dataclass(slots=True)
class Judged:
    """The result of the rules over transactions for some producer ids. Results for disjoint producer ids can be added.

    Attributes:
        findings: all findings, each with its kind, except those on open transactions.
        open: the findings on open transactions, without what :func:`with_decisions` adds.
        figures: for each rule, the numbers of what it looked at, could not judge, and found too recent.
        reasons: for each rule and reason, the subjects that could not be judged.
    """

    findings: list[Finding] = field(default_factory=list)
    open: list[Hanging] = field(default_factory=list)
    figures: dict[str, Figures] = field(
        default_factory=lambda: {
            TORN: {"markers": 0, UNKNOWN: 0, RECENT: 0},
            NO_TRANSACTION: {"markers": 0, UNKNOWN: 0, RECENT: 0},
            HANGING: {"transactions": 0, "open": 0, UNKNOWN: 0, RECENT: 0},
            FENCED: {"committed": 0, UNKNOWN: 0, RECENT: 0},
            OLD_COORDINATOR: {"markers": 0},
            NO_BIT: {"producer_ids": 0},
        }
    )
    reasons: dict[str, Reasons] = field(default_factory=lambda: defaultdict(Reasons))

    def add(self, other: "Judged") -> None:
        """Add the result for other producer ids."""
        self.findings += other.findings
        self.open += other.open
        for rule, figures in other.figures.items():
            for name, more in figures.items():
                add_figure(self.figures[rule], name, int(more))
        for rule, reasons in other.reasons.items():
            self.reasons[rule].add(reasons)

    def count_producer_ids(self, count: int) -> None:
        """Count producer ids of transactional ids, which have written to these logs."""
        add_figure(self.figures[NO_BIT], "producer_ids", count)

    def count_markers(self, markers: int, unknown: Reasons, recent: int = 0) -> None:
        """Count markers, and those that cannot be judged."""
        for rule in OF_MARKERS:
            add_figure(self.figures[rule], "markers", markers)
        for rule in (TORN, NO_TRANSACTION):
            add_figure(self.figures[rule], UNKNOWN, sum(unjudged.total for unjudged in unknown.values()))
            add_figure(self.figures[rule], RECENT, recent)
            self.reasons[rule].add(unknown)
