"""The requests of a generated cluster's clients, and their answers, as a proxy between clients and brokers sees them.

``kafka-eos lab record`` writes the same events. A request has a number that joins it with its answer, and a lost
request has no answer. A client of transaction version 1 registers each partition and its group's offsets before it uses
them. A client of version 2 does not, and the answer to its EndTxn gives it the next epoch.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

ANSWERED, UNDELIVERED, LOST = range(3)  # fates of a request: the answer arrives, only the request arrives, neither does


class Who(NamedTuple):
    """A client in its requests.

    Attributes:
        process: the column with its name.
        columns: the columns of its transactional id, producer id and epoch.
        connection: the number of its connection.
    """

    process: str
    columns: str
    connection: int

    @classmethod
    def of(cls, name: str, connection: int, producer: tuple[int, int], *, transactional: bool = True) -> "Who":
        """A client with a producer id and epoch; its name is its transactional id, if it is transactional."""
        named = f'"transactional_id":"{name}",' if transactional else ""
        columns = f'{named}"producer_id":{producer[0]},"producer_epoch":{producer[1]},'
        return cls(f'"process":"proxy/{name}",', columns, connection)


@dataclass(slots=True)
class Requests:
    """Writes requests with their answers, each event as the columns after its time."""

    _number: int = 0
    _correlations: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # by connection

    def _exchange(
        self,
        who: Who,
        action: str,
        *,
        where: str = "",
        more: str = "",
        detail: str = "",
        answer: str = "",
        error: int = 0,
        fate: int = ANSWERED,
        answered: str | None = None,
    ) -> list[str]:
        """A request and its answer.

        Args:
            who: the client.
            action: the name of the API.
            where: the columns before those of the client, ``more`` those after them.
            more: see ``where``.
            detail: the request's own fields of ``detail``.
            answer: the further fields of the answer's.
            error: the answer's error code.
            fate: whether request and answer arrive.
            answered: all columns of the answer, if they are not those of the request.
        """
        self._number += 1
        self._correlations[who.connection] += 1
        columns = f"{where}{who.columns}{more}"
        joined = (
            f'"detail":{{"request":{self._number},"connection":{who.connection},'
            f'"correlation":{self._correlations[who.connection]},"broker":"broker-1"{detail}'
        )
        request = f'{who.process}"action":"{action}","phase":"invoke",{columns}{joined}}}'
        if fate == LOST:
            return [request]
        phase, delivered = "fail" if error else "ok", ',"delivered":false' if fate == UNDELIVERED else ""
        told = f'"error":{int(error)},{joined}{answer}{delivered}}}'
        return [request, f'{who.process}"action":"{action}","phase":"{phase}",{answered or columns}{told}']

    def init_producer_id(self, new: Who, given: Who, error: int = 0) -> list[str]:
        """A client without a producer id is given one, or is refused."""
        answered = new.columns if error else given.columns
        return self._exchange(new, "InitProducerId", error=error, answered=answered)

    def join_group(self, who: Who, group: str, generation: int) -> list[str]:
        """A consumer becomes a member of a group."""
        own, named = Who(who.process, "", who.connection), f'"group":"{group}",'
        return self._exchange(own, "JoinGroup", more=named, answered=f'{named}"generation":{generation},')

    def add_partitions(self, who: Who, topic: str, partitions: list[int], error: int = 0) -> list[str]:
        """Register partitions: one request, with an event of each partition."""
        first = self._number + 1
        told = []
        for partition in partitions:
            self._number = first - 1
            told.append(
                self._exchange(
                    who, "AddPartitionsToTxn", where=f'"topic":"{topic}","partition":{partition},', error=error
                )
            )
            self._correlations[who.connection] -= 1
        self._correlations[who.connection] += 1
        return [each[0] for each in told] + [each[1] for each in told]

    def produce(
        self, who: Who, where: str, offset: int, sequence: int, count: int, error: int = 0, fate: int = ANSWERED
    ) -> list[str]:
        """Send a batch."""
        more = f'"base_sequence":{sequence},"record_count":{count},'
        stored = "" if error else f'"offset":{offset},'
        answered = f"{where}{stored}{who.columns}{more}"
        return self._exchange(who, "Produce", where=where, more=more, error=error, fate=fate, answered=answered)

    def add_offsets(self, who: Who, group: str) -> list[str]:
        """Register a group's offsets."""
        return self._exchange(who, "AddOffsetsToTxn", more=f'"group":"{group}",')

    def commit_offset(
        self,
        who: Who,
        where: str,
        group: str,
        member: tuple[int, str],
        offset: int,
        error: int = 0,
        fate: int = ANSWERED,
    ) -> list[str]:
        """Send an offset in a transaction, as a member of the group with a generation; -1 and "" without one."""
        generation, name = member
        more = f'"group":"{group}","generation":{generation},'
        detail = f',"committed_offset":{offset}' + (f',"member":"{name}"' if name else "")
        return self._exchange(who, "TxnOffsetCommit", where=where, more=more, detail=detail, error=error, fate=fate)

    def end(
        self, who: Who, commits: bool, following: tuple[int, int] | None, error: int = 0, fate: int = ANSWERED
    ) -> list[str]:
        """End a transaction; the answer gives the producer id and epoch that follow, in version 2."""
        detail = f',"committed":{"true" if commits else "false"}'
        after = ""
        if following is not None and not error:
            after = f',"next_producer_id":{following[0]},"next_producer_epoch":{following[1]}'
        return self._exchange(who, "EndTxn", detail=detail, answer=after, error=error, fate=fate)
