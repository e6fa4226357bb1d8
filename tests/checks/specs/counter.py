"""The machine of Counter.tla, which the tests of the spec tools compare and replay."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from immutables import Map

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    clients: frozenset[str]
    amounts: frozenset[int]
    limit: int

    def domain(self, name: str) -> Iterable[Any]:
        return sorted({"Clients": self.clients, "Amounts": self.amounts}[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    client: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    MODULE: ClassVar[str] = "Counter"
    VARIABLES: ClassVar[tuple[str, ...]] = ("total", "seen", "log", "readers", "response")

    constants: Constants = field(compare=False)
    total: int = 0
    seen: Map[str, int]
    log: tuple[Added, ...] = ()
    readers: frozenset[str] = frozenset()
    response: str = "NONE"

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        return cls(constants=constants, seen=Map(dict.fromkeys(constants.clients, 0)))

    @classmethod
    def context(cls, constants: Constants) -> Mapping[type, Any]:
        return {Constants: constants}

    def add_error(self, client: str, amount: int) -> str:
        if self.seen[client] != self.total:
            return "STALE"
        if self.total + amount > self.constants.limit:
            return "FULL"
        return "NONE"

    @action("Read", "Clients")
    def read(self, client: str) -> Self:
        enabled(self.seen[client] != self.total, "the client knows the counter")
        return replace(self, seen=self.seen.set(client, self.total), readers=self.readers | {client})

    @action("Add", "Clients", "Amounts")
    def add(self, client: str, amount: int) -> Self:
        error = self.add_error(client, amount)
        enabled(error == "NONE", error)
        log = (*self.log, Added(client=client, amount=amount))
        return replace(self, total=self.total + amount, log=log, response="NONE")

    @action("Refuse", "Clients", "Amounts")
    def refuse(self, client: str, amount: int) -> Self:
        error = self.add_error(client, amount)
        enabled(error != "NONE", "nothing is wrong with the request")
        return replace(self, response=error)

    @action("Reset")
    def reset(self) -> Self:
        enabled(self.total == self.constants.limit, "the limit is not reached")
        return replace(self, total=0, log=())


def within_bounds(state: Counter, max_log: int) -> bool:
    return len(state.log) <= max_log
