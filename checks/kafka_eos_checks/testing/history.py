"""The history of a served cluster: requests and answers, in the events that the recorder's proxy writes too."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from kafka_eos.errors import MalformedBatch
from kafka_eos.histories.history import Event, MalformedHistory, event_from_json
from kafka_eos.server.network import wall_clock
from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Buffer, MalformedMessage
from kafka_eos_checks.brokers.wire_events import Columns, Interpreter, Request, phase_of

CLUSTER = "cluster"  # in the detail of the first event, a Note: the id of the cluster
_ISOLATION_AT = 16  # bytes of a Fetch before its isolation level: ReplicaId, MaxWaitMs, MinBytes and MaxBytes
_WITHOUT_REPLICA = 15  # the first version of Fetch without ReplicaId there


TOLD_EVERY = 1 << 24  # bytes of a history; reading them takes about a second


def continued(path: Path, run: str, cluster: str | None, tell: Callable[[int], None] | None = None) -> int:
    """Prepare a history for the events of a server that is started again; returns the first number that is free.

    The half line that a killed server may have left at the end is cut off.

    Args:
        path: the history.
        run: the name of the run.
        cluster: the id of the server's cluster, which the first event names.
        tell: called with the number of bytes that are read, after every :data:`TOLD_EVERY` bytes.

    Raises:
        MalformedHistory: a line is no event that a server recorded in this run, or names another cluster.
        OSError: the file cannot be read or cut.
    """
    first = whole = 0
    with path.open("r+b") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            event = event_from_json(line.decode("utf-8", "replace"), str(path), number)
            if event.run != run or event.order is None:
                raise MalformedHistory(str(path), number, f"no event that a server recorded, of run {run!r}")
            if event.detail.get(CLUSTER, cluster) != cluster:
                wrong = f"a history of cluster {event.detail[CLUSTER]}, and the files are of cluster {cluster}"
                raise MalformedHistory(str(path), number, wrong)
            first = max(first, event.order + 1, int(event.detail.get("request", -1)) + 1)
            if tell is not None and (whole + len(line)) // TOLD_EVERY > whole // TOLD_EVERY:
                tell(whole + len(line))
            whole += len(line)
        file.truncate(whole)
    return first


class HistoryFile:
    """Writes events as they happen: a request before it has any effect, an answer before it is sent.

    Args:
        file: the file of JSON Lines.
        run: the name of the run.
        clock: milliseconds since the epoch.
        first: the number of the first request, and of the first event.

    Attributes:
        uncommitted: client ids and topics that they fetched with isolation.level=read_uncommitted.
    """

    def __init__(self, file: TextIO, run: str, clock: Callable[[], int] = wall_clock, *, first: int = 0) -> None:
        self._file = file
        self._run = run
        self._clock = clock
        self._codec = served_codec()
        self._interpreter = Interpreter(self._codec)
        self._requests, self._events = count(first), count(first)
        self.uncommitted: set[tuple[str, str]] = set()

    def asked(
        self, connection: int, node: int, frame: bytes, *, fault: str = "", repeats: Request | None = None
    ) -> Request | None:
        """A request has come; None if histories do not tell of it."""
        header, body = self._codec.read_request_header(frame)
        api, version = self._codec.names[header["RequestApiKey"]], header["RequestApiVersion"]
        try:
            if api == "Fetch":
                self._note_isolation(header["ClientId"] or "unknown", version, body)
            subjects, answered = self._interpreter.subjects(api, version, body)
        except (MalformedMessage, MalformedBatch):
            return None
        request = Request(
            number=next(self._requests),
            connection=connection,
            broker=str(node),
            client=header["ClientId"] or "unknown",
            api=api,
            version=version,
            correlation=header["CorrelationId"],
            frame=b"",
            subjects=subjects,
            answered=answered,
            repeats=repeats.number if repeats is not None else None,
        )
        self._write(request, "invoke", list(subjects), **({"fault": fault} if fault else {}))
        return request

    def _note_isolation(self, client: str, version: int, body: Buffer) -> None:
        """Remember the topics of a Fetch with read_uncommitted; only such a Fetch is decoded."""
        level = body.position + _ISOLATION_AT - (0 if version < _WITHOUT_REPLICA else 4)
        if body.data[level] == 0:
            row = self._codec.read("FetchRequest", version, body)
            self.uncommitted |= {
                (client, topic.get("Topic") or self._interpreter.topic(topic)) for topic in row["Topics"]
            }

    def answered(self, request: Request, frame: bytes, *, delivered: bool) -> None:
        """A request is answered."""
        rows = self._interpreter.answer(request, frame)
        self._write(request, None, rows, **({} if delivered else {"delivered": False}))

    def happened(self, action: str, node: int, **columns: Any) -> None:
        """Something that no client asked for has happened."""
        self._put(process=f"broker-{node}" if node else "cluster", action=action, phase="ok", **columns)

    def declare(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write down how a test describes its application."""
        for columns in rows:
            self._put(process="test", phase="ok", **columns)

    def _write(self, request: Request, phase: str | None, subjects: list[Columns], **more: Any) -> None:
        for subject in subjects:
            columns: dict[str, Any] = dict(subject)
            detail = request.detail(**columns.pop("detail", {}), **more)
            phase_or_found = phase or phase_of(columns["error"])
            process = f"proxy/{request.client}"
            self._put(process=process, action=request.api, phase=phase_or_found, **columns, detail=detail)

    def _put(self, **columns: Any) -> None:
        event = Event(run=self._run, order=next(self._events), time_us=self._clock() * 1000, **columns)
        self._file.write(event.to_json() + "\n")
