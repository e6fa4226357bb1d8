"""A seeded plan of faults: a pure function of the seed and the request's number."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class FaultKind(StrEnum):
    """The kind of a fault: what the proxy does to a request instead of passing it on."""

    NONE = "none"
    DROP_ANSWER = "drop-answer"  # the broker handles it; the client's connection is closed instead of the answer
    WITHHOLD = "withhold"  # the broker handles it; from its answer on nothing reaches the client on its connection
    DELAY = "delay"  # it waits, and what follows on its connection with it
    REPEAT = "repeat"  # the same bytes again, on a connection of their own; nobody gets that answer
    OVERTAKE = "overtake"  # its connection is closed, and it arrives later, after the client's own retry


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one request.

    Attributes:
        kind: the kind of the fault.
        seconds: how long it is held back (DELAY, OVERTAKE), or how long after the original it is repeated.
    """

    kind: FaultKind = FaultKind.NONE
    seconds: float = 0.0


NO_FAULT = Fault()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan that decides the fault of the k-th request of a run, from 0, among those of its APIs.

    Attributes:
        seed: decides everything; requests are independent of each other, so the plan does not depend on timing.
        chances: probability of each kind; the rest is passed on.
        longest: upper bound of a fault's seconds.
        spared: the number of requests before the first fault.
        apis: the APIs whose requests are counted and meet faults.
        scripted: faults of single requests, which win over chance.
    """

    seed: str
    chances: Mapping[FaultKind, float] = field(default_factory=dict)
    longest: float = 0.3
    spared: int = 0
    apis: frozenset[str] = frozenset({"Produce"})
    scripted: Mapping[int, Fault] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = sum(self.chances.values())
        if total > 1 or any(chance < 0 for chance in self.chances.values()):
            raise ValueError(f"chances of faults must be from 0 to 1 in sum, not {total}")

    def fault(self, request: int) -> Fault:
        """The fault of one request."""
        if request in self.scripted:
            return self.scripted[request]
        if request < self.spared:
            return NO_FAULT
        dice = random.Random(f"{self.seed}/{request}")
        drawn = dice.random()
        for kind in FaultKind:
            drawn -= self.chances.get(kind, 0.0)
            if drawn < 0:
                return Fault(kind, round(dice.uniform(0, self.longest), 3))
        return NO_FAULT


NO_FAULTS = Plan(seed="none")
