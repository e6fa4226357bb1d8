"""The scenarios of applications that consume, transform and produce: killed and frozen at each step of their loop."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka_eos.histories.history import Event
from kafka_eos_checks.brokers.brokers import HOST
from kafka_eos_checks.brokers.faults import NO_FAULTS, FaultKind, Plan
from kafka_eos_checks.lab.record.application import ACCOUNTS
from kafka_eos_checks.lab.record.clients import (
    COMMITS_OUTSIDE,
    FATAL_EXIT,
    MIRROR,
    POLLS_ON,
    TRANSFER,
    WORD_COUNT,
    ClientProcess,
    Workload,
    start_workload,
)
from kafka_eos_checks.lab.record.stage import PROGRESS_SECONDS, Stage, scenario

# The steps at which the loop is killed or frozen: after each of its calls, and in the one that commits.
COMMITTING = "committing"
STEPS = ("poll", "begin", "flush", "send_offsets", COMMITTING, "commit")

PARTITIONS = 2  # of the source
TARGET_PARTITIONS = {WORD_COUNT: PARTITIONS, TRANSFER: max(ACCOUNTS.values()) + 1, MIRROR: PARTITIONS}
WORDS = ("to", "be", "or", "not")


def contents(kind: str, seed: int, records: int) -> list[str]:
    """Values for the source of an application."""
    dice = random.Random(f"{kind} {seed}")
    content: dict[str, Callable[[], Sequence[str]]] = {
        WORD_COUNT: lambda: dice.choices(WORDS, k=2),
        TRANSFER: lambda: [*dice.sample(sorted(ACCOUNTS), 2), str(dice.randint(1, 99))],
        MIRROR: lambda: ["record"],
    }
    return [" ".join([str(number), *content[kind]()]) for number in range(records)]


@dataclass(slots=True)
class Play:
    """An application on a stage.

    Attributes:
        stage: the stage.
        kind: the kind of the application.
        work: the settings that its instances share.
        values: the values of the inputs that are still to be sent.
        source_bootstrap: ``host:port`` of the cluster with its source.
    """

    stage: Stage
    kind: str
    work: dict[str, Any]
    values: list[str]
    source_bootstrap: str

    def feed(self, records: int) -> None:
        """Send inputs, in turn to each partition of the source, and wait until they are stored."""
        values, self.values = self.values[:records], self.values[records:]
        sent = Workload(
            bootstrap=self.source_bootstrap,
            client=f"producer-{len(self.values)}",
            topic=self.work["source"],
            partitions=PARTITIONS,
            records=len(values),
            prefix="",
            values=tuple(values),
            pause_ms=0,
        )
        with start_workload(sent, self.stage.journal, self.stage.folder) as producer:
            producer.wait()

    def start(self, client: str, **work: Any) -> ClientProcess:
        """Start an instance."""
        own = {"transactional_id": f"{self.stage.name}-{client}"}
        return self.stage.start_application(client, self.kind, **(own | self.work | work))

    @property
    def may_share(self) -> bool:
        """Whether two instances can read at once; a mirror's successor takes over everything."""
        return self.kind != MIRROR

    def reach(self, client: ClientProcess, step: str, *, withheld: bool) -> None:
        """Wait until an instance is at a step; with ``withheld``, its commit gets no answer."""
        self.stage.wait_paused(client.name)
        if step != COMMITTING:
            return
        if withheld:
            plan = Plan(seed=self.stage.name, chances={FaultKind.WITHHOLD: 1.0}, apis=frozenset({"EndTxn"}))
            self.stage.proxy.follow(plan)
        client.go_on()

        def ends(event: Event) -> bool:
            asked = event.process == f"proxy/{client.name}" and event.action == "EndTxn"
            return asked and event.phase == ("ok" if withheld else "invoke")

        self.stage.journal.wait_for(ends, 1, PROGRESS_SECONDS, f"EndTxn of {client.name}")

    def settle(self, *clients: str) -> None:
        """Wait until the transactions of instances have ended."""
        ids = {self.work.get("transactional_id", f"{self.stage.name}-{client}") for client in clients}
        self.stage.wait_settled(*ids)


@contextmanager
def played(stage: Stage, kind: str, records: int, **work: Any) -> Iterator[Play]:
    """An application with its topics; a mirror also has another cluster with its source."""
    source, target = f"{stage.name}-input", stage.topic(TARGET_PARTITIONS[kind], suffix="-output")
    common: dict[str, Any] = {
        "topic": target,
        "source": source,
        "group": f"{stage.name}-group",
        "partitions": PARTITIONS,
        "records": records,
        "transaction_size": 2,
        "timeout_ms": 3_000,
        "pause_ms": 0,
    }
    # A mirror's target cluster has a topic of the source's name, because it takes offsets only for topics it knows.
    stage.topic(PARTITIONS, suffix="-input")
    values = contents(kind, stage.seed, records)
    if kind != MIRROR:
        yield Play(stage, kind, common | work, values, stage.bootstrap)
        return
    with stage.other_cluster() as other:
        other.create_topic(source, PARTITIONS)
        bootstrap = f"{HOST}:{other.brokers[0].port}"
        common |= {"source_bootstrap": bootstrap, "transactional_id": f"{stage.name}-t"}
        yield Play(stage, kind, common | work, values, bootstrap)


def paused_after(step: str) -> str:
    """The call after which an instance pauses in order to reach a step."""
    return "send_offsets" if step == COMMITTING else step


def killed(stage: Stage, kind: str) -> None:
    """Instances are killed at each step in turn; the next one with the same transactional id continues."""
    records = 16
    with played(stage, kind, records, transactional_id=f"{stage.name}-t") as play:
        play.feed(records)
        for step in STEPS:
            with play.start(f"{kind}-{step}", pause_after=paused_after(step)) as one:
                play.reach(one, step, withheld=True)
                one.kill()
            stage.proxy.follow(NO_FAULTS)
        with play.start(f"{kind}-last", abort_chance=0.3) as last:
            last.wait()
        play.settle("last")


def frozen(stage: Stage, kind: str) -> None:
    """An instance is frozen at each step in turn while others go on; it wakes up after they got its partitions."""
    each = last = 2
    with played(stage, kind, each * len(STEPS) + last) as play:
        if play.may_share:
            with play.start("steady") as steady:
                stage.wait_assigned("steady", PARTITIONS)
                for step in STEPS:
                    _freeze(play, step, each)
                play.feed(last)  # without these the instance would end as soon as everything is processed
                steady.wait()
        else:
            for step in STEPS:
                _replace(play, step, each)
            play.feed(last)
            with play.start("steady") as steady:
                steady.wait()
        play.settle("steady", *(f"zombie-{step}" for step in STEPS))


def _freeze(play: Play, step: str, records: int) -> None:
    """A second member of the group is frozen at a step until the first one has all partitions."""
    stage, name = play.stage, f"zombie-{step}"
    with play.start(name, pause_after=paused_after(step)) as zombie:
        stage.wait_assigned(name, PARTITIONS // 2)
        play.feed(records)
        play.reach(zombie, step, withheld=False)
        before = stage.assignments("steady", PARTITIONS)
        zombie.freeze()
        stage.wait_assigned("steady", PARTITIONS, before + 1)
        zombie.ask_to_stop()  # after it has dealt with its polled inputs
        zombie.resume()
        if step != COMMITTING:
            zombie.go_on()
        zombie.wait(expected=(0, FATAL_EXIT))


def _replace(play: Play, step: str, records: int) -> None:
    """A mirror is frozen at a step until its successor has copied all records."""
    name, fed = f"zombie-{step}", play.work["records"] - len(play.values) + records
    with play.start(name, pause_after=paused_after(step), records=fed) as zombie:
        play.feed(records)
        play.reach(zombie, step, withheld=False)
        zombie.freeze()
        with play.start(f"successor-{step}", records=fed) as successor:
            successor.wait()
        zombie.resume()
        if step != COMMITTING:
            zombie.go_on()
        zombie.wait(expected=(0, FATAL_EXIT))


@scenario("applications/word-count-killed")
def word_count_killed(stage: Stage) -> None:
    """An application that counts words is killed at each step of its loop, and also aborts transactions itself."""
    killed(stage, WORD_COUNT)


@scenario("applications/word-count-frozen")
def word_count_frozen(stage: Stage) -> None:
    """One of two instances that count words is frozen at each step, loses its partition, and wakes up."""
    frozen(stage, WORD_COUNT)


@scenario("applications/transfer-killed")
def transfer_killed(stage: Stage) -> None:
    """An application that debits one account and credits another is killed at each step of its loop."""
    killed(stage, TRANSFER)


@scenario("applications/transfer-frozen")
def transfer_frozen(stage: Stage) -> None:
    """One of two instances that transfer money is frozen at each step, loses its partition, and wakes up."""
    frozen(stage, TRANSFER)


@scenario("applications/mirror-killed")
def mirror_killed(stage: Stage) -> None:
    """A mirror of another cluster's topic is killed at each step of its loop."""
    killed(stage, MIRROR)


@scenario("applications/mirror-frozen")
def mirror_frozen(stage: Stage) -> None:
    """A mirror of another cluster's topic is frozen at each step, replaced, and wakes up."""
    frozen(stage, MIRROR)


@scenario("application-mistakes/polls-on-after-abort")
def polls_on_after_abort(stage: Stage) -> None:
    """An application aborts some transactions and polls on without a seek to the committed offset."""
    with played(stage, TRANSFER, 8) as play:
        play.feed(8)
        with play.start("careless", mistake=POLLS_ON, abort_chance=0.4) as careless:
            careless.wait()
        play.settle("careless")


@scenario("application-mistakes/offsets-outside")
def offsets_outside(stage: Stage) -> None:
    """An application commits its offsets outside of the transaction, and is killed between the two."""
    work = {"mistake": COMMITS_OUTSIDE, "transactional_id": f"{stage.name}-t"}
    with played(stage, TRANSFER, 6, **work) as play:
        play.feed(6)
        with play.start("first", pause_after="send_offsets") as first:
            stage.wait_paused("first")
            first.kill()
        with play.start("second") as second:
            second.wait()
        play.settle("first")
