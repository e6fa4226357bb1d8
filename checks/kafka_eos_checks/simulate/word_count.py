"""``kafka-eos simulate word-count``: every place where an application can fail, one after the other and two by two.

Sentences go in, counts of words come out, with the offset after the sentence in the same transaction.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from immutables import Map

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.consume_transform_produce import V1, V2, Constants, ConsumeTransformProduce, Counts
from kafka_eos.machines.group_coordinator import CLASSIC, CONSUMER
from kafka_eos.machines.group_coordinator import Offsets as GroupOffsets
from kafka_eos_checks.simulate.schedules import (
    GO_ON,
    STALL,
    Fault,
    Offsets,
    Outputs,
    Scenario,
    shortened,
    takes_effect,
    with_mutant,
)

SENTENCES: Mapping[tuple[str, int], str] = {
    ("p", 1): "to be or not to be",
    ("p", 2): "that is the question",
    ("q", 1): "the rest is silence",
    ("q", 2): "words words words",
}

APPLICATION = (
    "ReceiveFencing",
    "RefuseOffsets",
    "Commit",
    "Join",
    "CompleteRebalance",
    "LearnAssignment",
    "Initialize",
    "FetchOffset",
)
ALONE = ("SendOffsets", "Process", "Abort")
TOGETHER = ("Process", "SendOffsets", "Abort")
MARKERS = ("PublishOffsets", "PublishOutput")
NOTICING = ("ExpireSession", "TimeOut")
AT_ONCE, LATE = (*MARKERS, *NOTICING, "Heartbeat"), ("Heartbeat", *NOTICING, *MARKERS)
ORDERS: Mapping[str, tuple[str, ...]] = {
    "one input a transaction, markers at once": (*AT_ONCE, *APPLICATION, *ALONE),
    "one input a transaction, markers late": (*APPLICATION, *ALONE, *LATE),
    "several inputs a transaction, markers at once": (*AT_ONCE, *APPLICATION, *TOGETHER),
    "several inputs a transaction, markers late": (*APPLICATION, *TOGETHER, *LATE),
}

CRASH, RESTART, TIMEOUT, FAIL = "crashes", "restarts", "is timed out", "fails to process"
JOIN = "stands still, and its consumer joins"
KINDS = (CRASH, RESTART, STALL, GO_ON, TIMEOUT, FAIL, JOIN)
TITLES = {
    (V2, CLASSIC): "word count, EOS v2",
    (V1, CLASSIC): "word count, EOS v1",
    (V2, CONSUMER): "word count, EOS v2 in a group of KIP-848",
}


def counted(outputs: Counts) -> Counter[str]:
    """The words that a reader counts in the outputs that it finds."""
    words: Counter[str] = Counter()
    for (partition, number), sentence in SENTENCES.items():
        for word in sentence.split() * outputs[partition][number]:
            words[word] += 1
    return words


EXPECTED = Counter(word for sentence in SENTENCES.values() for word in sentence.split())


def what_is_wrong(outputs: Counts, committed: GroupOffsets) -> str:
    """The errors in the result of a finished run, or ""."""
    words = counted(outputs)
    told = [f"{word!r} is counted {words[word]} times, not {n}" for word, n in EXPECTED.items() if words[word] != n]
    told += [f"the offset of {p} is {committed[p]}" for p in sorted(committed) if (p, committed[p]) not in SENTENCES]
    told += [f"{p} is not read to its end" for p in sorted(committed) if (p, committed[p] + 1) in SENTENCES]
    return shortened(told)


def in_the_end(state: ConsumeTransformProduce) -> tuple[Offsets, Outputs]:
    """The offsets and outputs once the markers have come."""
    return state.offsets_in_the_end(), state.outputs_in_the_end()


@dataclass(frozen=True, slots=True, kw_only=True)
class WordCount(Scenario):
    """Instances that count words."""

    def fail(self, state: ConsumeTransformProduce, fault: Fault) -> ConsumeTransformProduce:
        """The state after a fault."""
        name = fault.actor
        if fault.kind == STALL:
            return state.expire_session(name)
        if fault.kind == JOIN:
            return state.join_while_processing(name)
        if fault.kind in {CRASH, RESTART}:
            crashed = state.crash(name)
            return crashed.restart(name) if fault.kind == RESTART else crashed
        act = state.abort if fault.kind == FAIL else None
        for producer in sorted(state.constants.transactional_ids):
            if state.is_open(producer) and state.has_initialized(name, producer):
                return act(name, producer) if act else state.time_out(producer)
        raise NotEnabled("no open transaction")

    def recover(self, state: ConsumeTransformProduce) -> tuple[str, ConsumeTransformProduce] | None:
        """An instance that is down starts again."""
        down = (name for name, process in sorted(state.processes.items()) if not process.is_up)
        return next(((f'Restart("{name}")', state.restart(name)) for name in down), None)

    def wrong_end(self, state: ConsumeTransformProduce) -> str:
        """Words that are counted wrong, offsets that are not where they should be, or ""."""
        return what_is_wrong(state.outputs, state.committed)

    def wrong_step(self, before: ConsumeTransformProduce, after: ConsumeTransformProduce) -> str:
        """The reason why ExactlyOnce.tla does not allow a step, or ""."""
        if takes_effect(in_the_end(before), in_the_end(after)):
            return ""
        return "a step takes effect that ExactlyOnce does not allow"


def word_count(
    eos: str, protocol: str = CLASSIC, machine: type[ConsumeTransformProduce] = ConsumeTransformProduce
) -> WordCount:
    """Two instances that count words, and a partition for each of them to begin with."""
    return WordCount(
        title=TITLES[eos, protocol],
        machine=machine,
        constants=Constants(
            instances=frozenset("AB"),
            partitions=frozenset("pq"),
            transactional_ids=frozenset("pq" if eos == V1 else "AB"),
            preferred=Map({"p": "A", "q": "B"}),
            group_protocol=protocol,
            inputs=frozenset({1, 2}),
            eos=eos,
            faults=frozenset({"abort", "crash", "expire session", "timeout", "join while processing"}),
            max_faults=2,
        ),
        orders=ORDERS,
        actors=("A", "B"),
        kinds=KINDS,
        while_stalled=frozenset({GO_ON, JOIN}),
        unattended=frozenset({*MARKERS, *NOTICING}),
        is_right=machine is ConsumeTransformProduce,
    )


def scenarios(mutant: str = "") -> list[WordCount]:
    """The scenarios: each way to be exactly once, or the one from which a mutant takes its protection.

    Raises:
        MalformedRegistry: when there is no such mutant of ConsumeTransformProduce.
    """
    if not mutant:
        return [word_count(eos, protocol) for eos, protocol in TITLES]
    machine, constants = with_mutant(mutant, ConsumeTransformProduce)
    return [word_count(constants.eos, constants.group_protocol, machine)]
