"""The whole system in one process: served clusters, applications, a mirror, virtual time, faults between them.

The clusters are the reference's (:mod:`kafka_eos.server`), without sockets: brokers, coordinators, groups. A seed
decides the version of transactions and of exactly-once (a transactional.id for each partition, or a group of KIP-848),
whether inputs come from another cluster (a mirror: offsets and outputs in the target), and which kinds of faults may
happen. A reader with read_committed follows every output partition, with fetches that may be smaller than a
transaction: no input may be found twice or out of order. Cases at a boundary are drawn as well: the versions of
requests, the last millisecond of a timeout, restarts of all brokers, timestamps at the last stable offset. After every
step the invariants of :mod:`kafka_eos_checks.walks.served_invariants` must hold for the target cluster. When the faults
have stopped, every input must be found once, and every committed offset must be after the last input.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.server.cluster import Broker, Cluster, Machines, Settings
from kafka_eos.server.handlers import handle
from kafka_eos.server.handlers.request import Request
from kafka_eos.server.partitions import Leader
from kafka_eos.server.schemas import served_codec
from kafka_eos.server.storage import Directory
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos.wire.protocol import Buffer, Message
from kafka_eos_checks.brokers.fetched import batches, committed
from kafka_eos_checks.drawing.sequence_diagram import Kind, Role
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.walks.executors import each_of
from kafka_eos_checks.walks.served_application import GROUP, INPUT, OUTPUT, Application, Ask, Heard, To
from kafka_eos_checks.walks.served_invariants import Fate, Invariants, unknown_error
from kafka_eos_checks.walks.system_story import READER, TIME, Silence, Story

CLEAN = "every input found once, every invariant kept"
NOW = 1_700_000_000_000
PARTITIONS, BROKERS = 2, 3
KINDS = ("lose request", "lose answer", "repeat", "crash", "freeze", "move leader", "crash broker", "time", "restart")
FATES = frozenset({"lose request", "lose answer", "repeat"})
EXCUSED = {(1, "EndTxn"): "late-end-of-transaction", (1, "TxnOffsetCommit"): "late-offsets"}
"""By transaction.version, the requests that a run does not repeat, with the finding that is the reason.

A run counts how often it would have repeated them. With version 2 the epoch fences both requests, because this
application sends its offsets once per transaction.
"""

SET_UPS = tuple(
    f"EOS v{eos}, transaction.version {version}{mirror}"
    for eos, version, mirror in ((1, 1, ""), (1, 1, ", mirror"), (1, 2, ""), (1, 2, ", mirror"), (2, 1, ""), (2, 2, ""))
)
MOST_PEACEFUL = 4_000  # requests after the faults have stopped
SESSION_MS = 6_000
MOST_PROCESSES = 6
FETCH_BYTES = (1, 200, 1 << 20)
"""The bytes that the reader fetches at a time, at least a batch; many transactions are larger."""
LIST_OFFSETS = range(2, 11)  # with an isolation level, and no field for remote storage
AS_IT_IS, UNTOLD = Machines(), Silence()


@dataclass(slots=True)
class _Process:
    """An application that runs."""

    application: Application
    life: Generator[Ask | None, Heard, None]
    asks: Ask | None = None
    frozen: int = 0


@dataclass(slots=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        seed: the seed that determines it.
        title: its set-up, one of ``SET_UPS``.
        requests: the number of handled requests.
        milliseconds: virtual time.
        events: the events of the run, in order.
        faults: kind -> how often.
        into_transactions: restarts while transactions were open.
        excused: request -> how often it was to be repeated, and was not (:data:`EXCUSED`).
        finished: the number of complete transactions, by their fate.
        wrong: the first violation, or "".
        diagram: the diagram of a run that was cut down, as SVG; or "".
    """

    seed: int
    title: str
    requests: int = 0
    milliseconds: int = 0
    events: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    into_transactions: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    finished: Counter[Fate] = field(default_factory=Counter)
    wrong: str = ""
    diagram: str = ""


class Whole:
    """A run of the whole system.

    Args:
        seed: the seed that determines it.
        inputs: the number of inputs of each partition.
        machines: the machines of the target cluster; they may be mutants.
        allowed: for shrinking, the numbers of the faults that may happen, counted in their order; None for all.
        story: the diagram to which the events are added.
    """

    def __init__(
        self,
        seed: int,
        inputs: int = 20,
        machines: Machines = AS_IT_IS,
        allowed: frozenset[int] | None = None,
        story: Silence = UNTOLD,
    ) -> None:
        self._random = Random(f"whole {seed}")
        self._fates = Random(f"whole {seed} faults")
        self._bounds = Random(f"whole {seed} boundaries")
        self._allowed = allowed
        self.drawn = 0
        self.inputs = inputs
        version, eos = self._random.choice((1, 2)), self._random.choice((1, 2))
        mirrors = self._random.random() < 0.25 and eos == 1
        self._kinds = [kind for kind in KINDS if self._random.random() < 0.5]
        settings = Settings(
            transactions=TransactionSettings(version=version),
            consumer_session_ms=SESSION_MS,
            timeout_check_ms=self._bounds.choice((1, 500)),
        )
        self._fetch_bytes = self._bounds.choice(FETCH_BYTES)
        self._folder = TemporaryDirectory(prefix="kafka-eos-walk-") if "restart" in self._kinds else None
        storage = Directory(Path(self._folder.name)) if self._folder else None
        self.target = self._cluster(settings, machines, seed, storage)
        self.source = self._cluster(settings, AS_IT_IS, seed + 1, None) if mirrors else self.target
        title = f"EOS v{eos}, transaction.version {version}{', mirror' if mirrors else ''}"
        self.outcome = Outcome(seed, title)
        self._story = story
        self._invariants = Invariants(self.target, GROUP, self._tell_marker)
        self.source.create_topic(INPUT, PARTITIONS)
        self.target.create_topic(OUTPUT, PARTITIONS)
        if self.source is not self.target:
            self.target.create_topic(INPUT, PARTITIONS)
        for number in range(PARTITIONS):
            self._write_inputs(number)
        self._eos, self._version, self._names = eos, version, 0
        self._processes = [self._start(number) for number in range(PARTITIONS)]
        self._late: list[Callable[[], None]] = []
        self._positions = dict.fromkeys(range(PARTITIONS), 0)
        self.found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}

    @staticmethod
    def _cluster(settings: Settings, machines: Machines, seed: int, storage: Directory | None) -> Cluster:
        brokers = [Broker(node, "127.0.0.1", 9091 + node) for node in range(1, BROKERS + 1)]
        return Cluster(brokers, settings, storage, machines, now=NOW, seed=seed)

    def _write_inputs(self, number: int) -> None:
        records = [Record(value=str(n).encode(), offset_delta=n) for n in range(self.inputs)]
        data = {"PartitionData": [{"Index": number, "Records": build_batch(records, base_timestamp=NOW).encode()}]}
        row = {"TransactionalId": None, "Acks": -1, "TimeoutMs": 1_000, "TopicData": [{"Name": INPUT} | data]}
        self._handle(self.source, "Produce", 9, self._leader(self.source, INPUT, number).node, row)

    # --- processes

    def _start(self, partition: int) -> _Process:
        self._names += 1
        application = Application(f"process-{self._names}", self._eos, self._version, partition)
        application.draw(self._bounds)
        return _Process(application, application.life())

    def _resume(self, process: _Process, heard: Heard) -> None:
        process.application.now = self.target.now
        try:
            process.asks = process.life.send(heard)
        except StopIteration:
            self._note(f"{process.application.name} ends")
            self._processes.remove(process)

    # --- requests

    @staticmethod
    def _leader(cluster: Cluster, topic: str, number: int) -> Leader:
        found = cluster.find(topic, number)
        assert isinstance(found, Leader)
        return found

    def _place(self, process: _Process, ask: Ask) -> tuple[Cluster, int]:
        if ask.to is To.SOURCE:
            return self.source, self._leader(self.source, INPUT, ask.partition).node
        if ask.to is To.LEADER:
            return self.target, self._leader(self.target, OUTPUT, ask.partition).node
        if ask.to is To.GROUPS:
            return self.target, self.target.offsets_partition(GROUP).node
        return self.target, self.target.state_partition(process.application.transactional_id).node

    def _reached(self, process: _Process, ask: Ask) -> tuple[Cluster, str, int, int]:
        """The cluster, the request and its version, and the broker."""
        cluster, node = self._place(process, ask)
        return cluster, ask.api, ask.version, node

    def _handle(self, cluster: Cluster, api: str, version: int, node: int, row: Message) -> Heard:
        """A broker's immediate answer; request and answer go through the codec."""
        codec = served_codec()
        given = codec.read(f"{api}Request", version, Buffer(codec.write(f"{api}Request", version, row)))
        answers: list[Message] = []
        answer = handle(cluster, Request(api, version, given, node, "walk", "/127.0.0.1", answers.append))
        cluster.settle()
        self._judge(self._invariants.judge())
        answer = answer if answer is not None else next(iter(answers), None)
        if answer is None:
            return None
        heard = codec.read(f"{api}Response", version, Buffer(codec.write(f"{api}Response", version, answer)))
        self._judge(unknown_error(api, version, heard))
        if api == "InitProducerId" and heard["ErrorCode"] == ErrorCode.NONE:
            name, timeout_ms = row["TransactionalId"], row["TransactionTimeoutMs"]
            wrong = self._invariants.initialized(name, timeout_ms, heard["ProducerId"], heard["ProducerEpoch"])
            self._judge(wrong)
        return heard

    def _ids(self, row: Message) -> Message:
        """The row of a heartbeat with ids of topics in place of their names."""
        if not row.get("TopicPartitions"):
            return row
        topic = self.source.topics[INPUT].topic_id
        parts = [{"TopicId": topic, "Partitions": part["Partitions"]} for part in row["TopicPartitions"]]
        return {**row, "TopicPartitions": parts}

    def _ask(self, process: _Process, faulty: bool) -> Heard:
        ask = process.asks
        assert ask is not None
        row = self._ids(ask.row)
        fate = self._fault(FATES, ask.api) if faulty else ""
        self.outcome.requests += 1
        name = process.application.name
        self._story.asked(process.application, ask, fate)
        if fate == "lose request":
            self._note(f"{ask.api} of {name} is lost")
            return None

        def arrive_late() -> None:
            self._note(f"the copy of {ask.api} arrives")
            self._story.late(process.application, ask)
            self._handle(*self._reached(process, ask), row)

        if fate == "repeat":
            self._note(f"the network keeps a copy of {ask.api} of {name}")
            self._late.append(arrive_late)
        answer = self._handle(*self._reached(process, ask), row)
        self._story.answered(process.application, ask, fate, answer)
        if fate == "lose answer":
            self._note(f"the answer to {ask.api} of {name} is lost")
            return None
        return answer

    def _note(self, event: str) -> None:
        self.outcome.events.append(f"{self.outcome.requests:5d}  {event}")

    # --- judging

    def _judge(self, wrong: str) -> None:
        """Keep the first violation."""
        if wrong and not self.outcome.wrong:
            self.outcome.wrong = wrong
            self._note(wrong)

    def _tell_marker(self, partition: str, marker: str) -> None:
        self._story.happens(partition, marker, role=Role.PARTITION)

    # --- faults

    def _fault(self, among: frozenset[str], api: str = "") -> str:
        """The fault that happens now, to a request of an API or to anything else; "" if there is none."""
        kinds = [kind for kind in self._kinds if kind in among]
        drawn = self._fates.random()
        if not kinds or drawn > 0.08:
            return ""
        kind = self._fates.choice(kinds)
        self.drawn += 1
        if self._allowed is not None and self.drawn not in self._allowed:
            return ""
        if kind == "repeat" and (self._version, api) in EXCUSED:
            self.outcome.excused[api] += 1
            return ""
        self.outcome.faults[kind] += 1
        return kind

    def _happen(self) -> None:
        kind = self._fault(frozenset(KINDS) - FATES)
        place = self._fates.randrange(len(self._processes))
        process = self._processes[place]
        name = process.application.name
        if kind == "crash":
            self._note(f"{name} crashes")
            self._story.happens(name, "crashes", Kind.CRASH)
            if process.application.retires:
                self._processes.remove(process)
            else:
                self._processes[place] = self._start(process.application.partition)
        elif kind == "freeze" and not process.application.retires and len(self._processes) < MOST_PROCESSES:
            self._note(f"{name} stands still, another process starts")
            self._story.happens(name, "stands still")
            process.application.retires = self._eos == 1
            process.frozen = self._fates.randrange(20, 120)
            self._processes.append(self._start(process.application.partition))
        elif kind == "move leader":
            cluster, leader = self.target, self._fates.choice(list(self.target.leaders()))
            self._note(f"{leader.name} gets another leader")
            node = self._fates.randrange(1, BROKERS + 1)
            self._story.happens(leader.name, f"broker {node} leads", role=Role.PARTITION)
            cluster.move_leader(leader.topic, leader.partition, node)
        elif kind == "crash broker" and not self.target.gone:
            node = self._fates.randrange(1, BROKERS + 1)
            self._note(f"broker {node} is gone for a while")
            self._story.happens(f"broker {node}", "is gone for 2 s", role=Role.BROKER)
            self.target.crash(node, self.target.now + 2_000)
        elif kind == "time":
            milliseconds = self._fates.choice((3_000, 8_000, 15_000, *self._until_timeouts()))
            self._note("time goes on")
            self._story.happens(TIME, f"{milliseconds / 1000:g} s pass")
            self._pass(milliseconds)
        elif kind == "restart":
            self._restart()
        if self._late and self._fates.random() < 0.1:
            self._late.pop(self._fates.randrange(len(self._late)))()

    def _until_timeouts(self) -> list[int]:
        """The milliseconds until the last millisecond of each open transaction's timeout, and until the next one."""
        last = self._invariants.deadlines.values()
        return [ms - self.target.now for each in sorted(last) for ms in (each, each + 1) if ms > self.target.now]

    def _restart(self) -> None:
        """Stop all brokers of the target cluster and start them from what they have stored."""
        self._note("all brokers restart")
        self._story.happens("brokers", "restart", role=Role.BROKER)
        self.outcome.into_transactions += bool(self._invariants.deadlines)
        again = self.target.restarted()
        if self.source is self.target:
            self.source = again
        self.target = again
        self._invariants.follow(again)
        again.settle()
        self._judge(self._invariants.judge(by_itself=True))

    def _pass(self, milliseconds: int) -> None:
        for cluster in {id(c): c for c in (self.source, self.target)}.values():
            cluster.advance(cluster.now + milliseconds)
            cluster.settle()
        self._judge(self._invariants.judge(by_itself=True))
        self.outcome.milliseconds += milliseconds

    # --- a run

    def run(self, requests: int = 250) -> Outcome:
        """Handle requests with faults, then without faults until everything is processed."""
        while self.outcome.requests < requests and not self.outcome.wrong:
            self._happen()
            self._turn(True)
        for late in self._late:
            late()
        for process in self._processes:
            process.frozen = 0
        until = self.outcome.requests + MOST_PEACEFUL
        while self.outcome.requests < until and not self.outcome.wrong and not self._is_done():
            self._turn(False)
        if not self.outcome.wrong and not self._is_done():
            self._judge(f"not everything is processed after {MOST_PEACEFUL} requests without faults")
        self.outcome.finished = self._invariants.finished
        if self._folder:
            self.target.close()
            self._folder.cleanup()
        return self.outcome

    def _turn(self, faulty: bool) -> None:
        self._pass(self._random.randrange(1, 60))
        process = self._random.choice(self._processes)
        if process.frozen:
            process.frozen -= 1
            self.outcome.requests += 1
            return
        if process.asks is None:
            self._resume(process, None)
        if process.asks is None:
            self.outcome.requests += 1
            return
        heard = self._ask(process, faulty)
        self._resume(process, heard)
        self._look()

    def _look(self) -> None:
        """Follow the output partitions as a read_committed reader."""
        for number in range(PARTITIONS):
            leader = self._leader(self.target, OUTPUT, number)
            if self._bounds.random() < 0.1:
                self._list_offsets(number, leader)
            if leader.last_stable_offset <= self._positions[number]:
                continue
            for value in self._fetched(number, leader.node):
                expected = len(self.found[number])
                self.found[number].append(value)
                if value != expected:
                    what = "is found again" if value in self.found[number][:-1] else "is found too early"
                    self._judge(f"input {value} of partition {number} {what}")

    def _list_offsets(self, number: int, leader: Leader) -> None:
        """Ask for the offset of a timestamp of a record next to the last stable offset."""
        timestamp = self._invariants.timestamp_at(leader.name, self._bounds.choice((-2, -1, 0, 1)))
        version, isolation = self._bounds.choice(LIST_OFFSETS), self._bounds.choice((0, 1))
        if timestamp is None:
            return
        part = {"PartitionIndex": number, "Timestamp": timestamp}
        row = {"ReplicaId": -1, "IsolationLevel": isolation, "Topics": [{"Name": OUTPUT, "Partitions": [part]}]}
        answer = self._handle(self.target, "ListOffsets", version, leader.node, row)
        assert answer is not None
        found = answer["Topics"][0]["Partitions"][0]
        place = found["Timestamp"], found["Offset"]
        self._judge(self._invariants.found_since(leader.name, timestamp, isolation == 1, place))

    def _fetched(self, number: int, node: int) -> list[int]:
        part = {"Partition": number, "FetchOffset": self._positions[number]}
        part["PartitionMaxBytes"] = self._fetch_bytes
        row = {"MaxWaitMs": 0, "MinBytes": 0, "IsolationLevel": 1, "Topics": [{"Topic": OUTPUT, "Partitions": [part]}]}
        answer = self._handle(self.target, "Fetch", 12, node, row)
        if answer is None:
            return []
        found = answer["Responses"][0]["Partitions"][0]
        if found["ErrorCode"] != ErrorCode.NONE:
            return []
        first, entries = self._positions[number], batches(found)
        if entries:
            self._positions[number] = entries[-1].next_offset
        given = committed(entries, found["AbortedTransactions"])
        for batch in given:
            self._judge(self._invariants.given(f"{OUTPUT}-{number}", batch))
        if given:
            offsets = f"{given[0].base_offset}..{given[-1].last_offset}"
            self._story.happens(READER, f"is given offsets {offsets} of {OUTPUT}-{number}")
        return [
            int((record.value or b"").decode())
            for batch in given
            for record in batch.records()
            if batch.offset(record) >= first
        ]

    def _is_done(self) -> bool:
        group = self.target.groups.known.get(GROUP)
        if group is None or any(len(found) < self.inputs for found in self.found.values()):
            return False
        offsets = [group.committed(f"{INPUT}-{number}") for number in range(PARTITIONS)]
        outputs = [self._leader(self.target, OUTPUT, number) for number in range(PARTITIONS)]
        return all(known is not None and known.offset == self.inputs for known in offsets) and all(
            leader.last_stable_offset == leader.log_end_offset for leader in outputs
        )


def run_whole(seed: int, machines: Machines = AS_IT_IS) -> Outcome:
    """The run that a seed determines."""
    return Whole(seed, machines=machines).run()


def run_all(seeds: Sequence[int], jobs: int, *, spark: bool = False) -> Iterator[Outcome]:
    """The runs of many seeds, as they are done."""
    return each_of(run_whole, seeds, jobs, spark=spark, chunksize=10)


POSSIBLE_PAIRS = frozenset(frozenset(pair) for pair in combinations(sorted(KINDS), 2))
"""The pairs of faults that a run can meet."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The coverage of runs.

    Attributes:
        faults: the kinds of faults that happened.
        pairs: each pair of kinds that happened in one run, with the set-up of the run.
        set_ups: the titles of the set-ups.
        excused: request -> how often it was not repeated (:data:`EXCUSED`).
    """

    faults: frozenset[str]
    pairs: frozenset[tuple[str, frozenset[str]]]
    set_ups: frozenset[str]
    excused: Counter[str]

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Coverage":
        """The coverage of these runs."""
        pairs = {
            (outcome.title, frozenset(pair)) for outcome in outcomes for pair in combinations(sorted(outcome.faults), 2)
        }
        return cls(
            faults=frozenset(kind for outcome in outcomes for kind in outcome.faults),
            pairs=frozenset(pairs),
            set_ups=frozenset(outcome.title for outcome in outcomes),
            excused=sum((outcome.excused for outcome in outcomes), Counter[str]()),
        )

    def figures(self) -> dict[str, int | float | str]:
        """How many of the possible points were met."""
        return {
            "fault_kinds": f"{len(self.faults)}/{len(KINDS)}",
            "fault_pairs": f"{len({pair for _, pair in self.pairs})}/{len(POSSIBLE_PAIRS)}",
            "pairs_by_set_up": f"{len(self.pairs)}/{len(SET_UPS) * len(POSSIBLE_PAIRS)}",
            "set_ups": f"{len(self.set_ups)}/{len(SET_UPS)}",
            "excused": self.excused.total(),
        }

    def never_met(self) -> list[str]:
        """The pairs that no run has met, and the faults that were excused, a line each."""
        lines = [f"set-up never met: {title}" for title in SET_UPS if title not in self.set_ups]
        lines += [f"fault never met: {kind}" for kind in KINDS if kind not in self.faults]
        for title in SET_UPS:
            missing = [pair for pair in POSSIBLE_PAIRS if (title, pair) not in self.pairs]
            if title in self.set_ups and missing:
                named = "; ".join(sorted(" and ".join(sorted(pair)) for pair in missing))
                lines.append(f"pairs of faults never met with {title}: {named}")
        return lines + [
            f"{api} not repeated {self.excused[api]} time(s) with transaction.version {version}: finding {finding}"
            for (version, api), finding in EXCUSED.items()
            if self.excused[api]
        ]


def verdict_of(outcomes: Sequence[Outcome], seconds: float) -> Verdict:
    """The verdict on runs, with their coverage; the first that went wrong is shrunk, told and drawn."""
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    evidence, diagram = [], ""
    if wrong:
        first = shrunk(wrong[0].seed)
        diagram = first.diagram
        evidence = [f"seed {first.seed}, {first.title}: {first.wrong}; with these faults:", *first.events]
        evidence.append(f"again: kafka-eos check walks --system --replay {first.seed}")
    coverage = Coverage.of(outcomes)
    finished = sum((outcome.finished for outcome in outcomes), Counter[Fate]())
    return Verdict(
        check="walk",
        name="the whole system",
        expected=CLEAN,
        found=f"{len(wrong)} run(s) wrong: {wrong[0].wrong}" if wrong else CLEAN,
        ok=bool(outcomes) and not wrong,
        seconds=seconds,
        figures={
            "runs": len(outcomes),
            "requests": sum(outcome.requests for outcome in outcomes),
            "virtual_seconds": sum(outcome.milliseconds for outcome in outcomes) // 1000,
            "faults": sum(outcome.faults.total() for outcome in outcomes),
            "restarts_into_transactions": sum(outcome.into_transactions for outcome in outcomes),
            "committed": finished[Fate.COMMITTED],
            "aborted": finished[Fate.ABORTED],
        }
        | coverage.figures(),
        evidence="\n".join([*evidence, *coverage.never_met()]),
        diagram=diagram,
    )


def shrunk(seed: int, machines: Machines = AS_IT_IS) -> Outcome:
    """A run that goes wrong with as few of its faults as possible, with its diagram; none can be left out."""
    whole = Whole(seed, machines=machines)
    whole.run()
    allowed = frozenset(range(1, whole.drawn + 1))
    size = max(1, len(allowed) // 2)
    while size:
        left = sorted(allowed)
        removed = False
        for place in range(0, len(left), size):
            fewer = allowed - frozenset(left[place : place + size])
            found = Whole(seed, machines=machines, allowed=fewer).run()
            if found.wrong:
                allowed, removed = fewer, True
        if not removed:
            size //= 2
    story = Story()
    outcome = Whole(seed, machines=machines, allowed=allowed, story=story).run()
    outcome.diagram = story.drawn(outcome.wrong)
    return outcome
