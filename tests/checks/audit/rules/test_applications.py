"""Each rule over applications finds the mistake of a mutated application or group, and counts what it cannot judge."""

import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import SEEK_END
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS
from kafka_eos.formats.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.histories.application_history import GROUP, INPUTS, OUTPUTS
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.histories.following import BLOCK_BITS
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT, Moments, Source
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.plan import history_stages
from kafka_eos_checks.audit.plan.declared_stages import SPAN_BITS
from kafka_eos_checks.audit.rules.applications import (
    APPLICATION_RULES,
    FENCED_GENERATION,
    INPUT_RULES,
    NOT_PROCESSED,
    OFFSET_ALONE,
    OUTPUT_ALONE,
    OUTPUT_OF_NOTHING,
    SKIPPED,
    TWICE,
    UNKNOWN,
    LogFacts,
    Offsets,
    Processed,
    _never_given,
    declarations,
    judge_generations,
    judge_inputs,
    listen,
    read_requests,
)
from kafka_eos_checks.audit.rules.declared import Declared, WrongQuestion
from kafka_eos_checks.audit.rules.histories import Join
from kafka_eos_checks.audit.rules.offsets import GroupLog
from kafka_eos_checks.audit.rules.readers import INCONSISTENT, POLL_SKIP
from kafka_eos_checks.audit.segments.contents import Contents, Figures, read_contents
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.simulate.applications import (
    ApplicationPlan,
    SimulatedApplication,
    simulate_application,
    write_application,
)

from ..both_forms import join
from ..kept import as_kept, kept_join

REGISTRY = Registry()
RIGHT = ApplicationPlan(seed=1)


def judged(
    simulated: SimulatedApplication, folder: Path, keep: Callable[[PartitionLog], bool] = lambda _: True
) -> tuple[list[Finding], dict[str, int]]:
    """The findings of the rules over applications, and the number of unknown subjects of each."""
    write_application(simulated, folder)
    logs = [log for log in find_logs(folder / "brokers") if keep(log)]
    result = join(simulated.events, logs)
    findings = [finding for finding in result.findings if finding.rule in APPLICATION_RULES]
    return findings, {rule: int(result.figures[rule]["unknown"]) for rule in APPLICATION_RULES}


def first(rule: str, mutant: str, folder: Path, begin: int = 0) -> tuple[Finding, SimulatedApplication]:
    """The first finding of a rule in runs of a mutant from a seed on, before which there is none; with its run."""
    for seed in range(begin, begin + 60):
        simulated = simulate_application(ApplicationPlan(seed=seed, mutant=mutant), REGISTRY)
        for finding in judged(simulated, folder / str(seed))[0]:
            if finding.rule == rule:
                as_kept([finding])
                return finding, simulated
    raise AssertionError(f"{mutant} shows no {rule!r}")


def told(events: Sequence[Event], action: str, phase: str = "invoke") -> list[Event]:
    return [event for event in events if (event.action, event.phase) == (action, phase)]


def test_an_input_that_is_skipped_is_found_where_it_is_and_its_transaction_was_aborted(tmp_path: Path) -> None:
    finding, simulated = first(SKIPPED, "NoSeekAfterAbort", tmp_path, 3)
    place = [finding.topic, finding.partition, finding.offset]
    sent = [event for event in told(simulated.events, "Send") if event.detail["input"] == place]
    ended = {(e.process, e.detail["transaction"]) for e in told(simulated.events, "AbortTransaction", "ok")}
    assert finding.topic == INPUTS
    assert {(event.process, event.detail["transaction"]) for event in sent} <= ended
    assert "which did not commit" in finding.evidence


def test_an_input_that_nobody_was_given_counts_only_if_readers_of_committed_data_see_it() -> None:
    contents = Contents(values=dict.fromkeys(range(4), b"v"), hidden={1}, end=4)
    replicas, offsets = {("in", 0): [(PartitionLog("", "in", 0, "", ()), contents)]}, SimpleNamespace(last=lambda _: 3)
    given = {0: Processed(given=True)}
    assert _never_given(("g", ("in", 0)), given, replicas, offsets) == [2]  # type: ignore[arg-type]


def test_an_input_that_is_processed_twice_is_found_at_its_second_output(tmp_path: Path) -> None:
    finding, simulated = first(TWICE, "GenerationCheckedAtMarker", tmp_path, 5)
    log = simulated.logs[OUTPUTS, finding.partition]
    value = log[finding.offset or 0].records()[0].value
    earlier = [batch for batch in log[: finding.offset] if not batch.is_control and batch.records()[0].value == value]
    assert finding.topic == OUTPUTS
    assert earlier
    assert f"{OUTPUTS}-{finding.partition} offset {earlier[-1].base_offset}" in finding.evidence


def test_an_output_without_its_offset_is_found_where_it_is_once_for_its_transaction(tmp_path: Path) -> None:
    finding, simulated = first(OUTPUT_ALONE, "OffsetWithoutPlusOne", tmp_path)
    assert finding.topic == OUTPUTS
    found = [each for each in judged(simulated, tmp_path / "again")[0] if each.rule == OUTPUT_ALONE]
    commits = {(e.process, e.detail["transaction"]) for e in told(simulated.events, "CommitTransaction", "ok")}
    assert 0 < len(found) <= len(commits)


def test_an_offset_without_its_output_is_found_at_its_input(tmp_path: Path) -> None:
    finding, _ = first(OFFSET_ALONE, "NeverFenced", tmp_path, 1)
    assert finding.topic == INPUTS
    assert "in the transaction of its output, and no output of it appears" in finding.evidence


def test_a_commit_of_a_fenced_generation_is_found_at_its_answer(tmp_path: Path) -> None:
    finding, simulated = first(FENCED_GENERATION, "NoGenerationCheck", tmp_path, 5)
    number = int(finding.evidence.removeprefix("event ").partition(":")[0])
    answer = simulated.events[number]
    assert (answer.action, answer.phase, answer.partition) == ("TxnOffsetCommit", "ok", finding.partition)
    later = [e.generation or 0 for e in simulated.events[:number] if e.action == "JoinGroup"]
    assert (answer.generation or 0) < max(later)


@pytest.mark.parametrize("model", ["ConsumeTransformProduceTwoInputs", "ConsumeTransformProduceVersion1"])
def test_the_reference_is_exact_and_everything_about_it_is_known(model: str, tmp_path: Path) -> None:
    for seed in range(5):
        found = judged(simulate_application(replace(RIGHT, seed=seed, model=model), REGISTRY), tmp_path / str(seed))
        assert found == ([], dict.fromkeys(APPLICATION_RULES, 0))


def without(simulated: SimulatedApplication, **changes: Any) -> SimulatedApplication:
    return replace(simulated, **changes)


def test_without_the_logs_of_the_outputs_nothing_is_known(tmp_path: Path) -> None:
    simulated = simulate_application(RIGHT, REGISTRY)
    found, unknown = judged(simulated, tmp_path, lambda log: log.topic != OUTPUTS)
    inputs = sum(len(own) for own in listen(simulated.events).inputs.values())
    assert found == []
    assert {unknown[rule] for rule in INPUT_RULES} == {inputs}


def test_without_the_logs_of_offsets_only_what_is_processed_twice_is_known(tmp_path: Path) -> None:
    simulated = simulate_application(RIGHT, REGISTRY)
    found, unknown = judged(simulated, tmp_path, lambda log: log.topic != OFFSETS)
    assert found == []
    assert unknown[TWICE] == 0
    assert min(unknown[rule] for rule in INPUT_RULES[1:]) > 0


def test_an_input_is_unknown_if_the_logs_may_be_older_than_its_application(tmp_path: Path) -> None:
    simulated = simulate_application(RIGHT, REGISTRY)
    write_application(simulated, tmp_path)
    result = join(simulated.events, find_logs(tmp_path / "brokers"), Moments(Source(one_moment=False), ()))
    assert result.findings == []
    inputs = sum(len(own) for own in listen(simulated.events).inputs.values())
    assert [result.figures[rule]["unknown"] for rule in INPUT_RULES] == [0, inputs, inputs, inputs]


def test_the_offsets_of_a_group_are_unknown_if_two_logs_have_them_and_a_third_has_not(tmp_path: Path) -> None:
    simulated = simulate_application(RIGHT, REGISTRY)
    write_application(simulated, tmp_path)
    [log] = [log for log in find_logs(tmp_path / "brokers") if log.topic == OFFSETS]
    folder = Path(log.folder)
    shutil.copytree(folder, folder.parent / f"{OFFSETS}-1")
    key, value = OffsetCommitKey(group="other", topic=INPUTS, partition=0), OffsetCommitValue(offset=1)
    batch = build_batch([Record(key=key.encode(), value=value.encode())])
    write_segment(folder.parent / f"{OFFSETS}-2" / f"{0:020d}.log", [batch.encode()])
    result = join(simulated.events, find_logs(tmp_path / "brokers"))
    assert result.findings == []
    inputs = sum(len(own) for own in listen(simulated.events).inputs.values())
    assert [result.figures[rule]["unknown"] for rule in INPUT_RULES] == [0, inputs, inputs, inputs]


def test_an_open_transaction_may_still_be_committed(tmp_path: Path) -> None:
    simulated = simulate_application(RIGHT, REGISTRY)
    cut = {
        place: log[: max(n for n, batch in enumerate(log) if batch.is_control)] if place[0] == OUTPUTS else log
        for place, log in simulated.logs.items()
    }
    found, unknown = judged(without(simulated, logs=cut), tmp_path)
    assert found == []
    assert unknown[TWICE] > 0


def test_an_input_of_which_nothing_was_sent_may_be_one_that_the_application_ignores(tmp_path: Path) -> None:
    simulated = simulate_application(RIGHT, REGISTRY)
    ignored = told(simulated.events, "Send")[0].detail["input"]
    value = told(simulated.events, "Send")[0].detail["value"]
    events = [event for event in simulated.events if event.detail.get("value") != value]
    found, unknown = judged(without(simulated, events=events), tmp_path)
    assert ignored[0] == INPUTS
    assert found == []
    assert (unknown[SKIPPED], unknown[OFFSET_ALONE], unknown[TWICE], unknown[OUTPUT_ALONE]) == (1, 1, 0, 0)


def test_an_input_that_no_member_was_ever_given_is_skipped(tmp_path: Path) -> None:
    simulated = simulate_application(RIGHT, REGISTRY)
    gone = [INPUTS, 0, 1]

    def about(event: Event) -> bool:
        polled = event.action == "Poll" and [event.topic, event.partition, event.offset] == gone
        return polled or (event.action == "Send" and event.detail.get("input") == gone)

    events = [event for event in simulated.events if not about(event)]
    found, _ = judged(without(simulated, events=events), tmp_path)
    assert [(finding.rule, finding.offset) for finding in found] == [(SKIPPED, 1)]
    assert "no member was given it" in found[0].evidence
    as_kept(found)


def test_inputs_without_a_committed_offset_are_not_found_skipped(tmp_path: Path) -> None:
    simulated = simulate_application(RIGHT, REGISTRY)
    own = {place: log for place, log in simulated.logs.items() if place[0] != OFFSETS} | {(OFFSETS, 0): []}
    events = [event for event in simulated.events if event.action not in {"Send", "CommitTransaction"}]
    assert judged(without(simulated, logs=own, events=events), tmp_path)[0] == []


def test_outputs_are_told_apart_by_their_number_or_name_and_without_one_by_their_content(tmp_path: Path) -> None:
    simulated = simulate_application(RIGHT, REGISTRY)
    first = told(simulated.events, "Send")[0].detail
    merged = [
        replace(event, detail=event.detail | {"input": first["input"]}) if event.action == "Send" else event
        for event in simulated.events
    ]
    assert TWICE not in {finding.rule for finding in judged(without(simulated, events=merged), tmp_path / "plain")[0]}
    for name in (0, "debit"):
        numbered = [
            replace(event, detail=event.detail | {"output": name}) if event.action == "Send" else event
            for event in merged
        ]
        found = judged(without(simulated, events=numbered), tmp_path / str(name))[0]
        assert TWICE in {finding.rule for finding in found}


def test_an_output_may_name_its_input_by_having_its_content() -> None:
    def event(action: str, phase: str, **columns: Any) -> Event:
        return Event(run="r", process="a", action=action, phase=phase, **columns)

    poll = event("Poll", "ok", topic="in", partition=0, offset=4, group="g", detail={"value": "x"})
    sent = event("Send", "invoke", topic="out", partition=0, detail={"value": "x", "transaction": 1})
    other = event("Send", "invoke", topic="out", partition=0, detail={"value": "y", "transaction": 1})
    told = listen([poll, sent, other])
    assert told.owners == {("out", "x"): {(("g", ("in", 0)), 4)}}
    assert listen([sent]).owners == {}, "its process belongs to no group"


def generation(action: str, phase: str, number: int | None, request: int = 0, order: int = 0) -> Event:
    detail = {"request": request, "committed_offset": 3}
    row: dict[str, Any] = {"run": "r", "order": order, "process": "p", "action": action, "phase": phase}
    return Event(**row, group=GROUP, topic=INPUTS, partition=0, generation=number, detail=detail)


@pytest.mark.parametrize(
    ("steps", "found", "unknown"),
    [
        ([("JoinGroup", "ok", 1), ("OffsetCommit", "invoke", 1), ("OffsetCommit", "ok", 1)], 0, 0),
        ([("JoinGroup", "ok", 2), ("OffsetCommit", "invoke", 1), ("OffsetCommit", "ok", 1)], 1, 0),
        ([("JoinGroup", "ok", 2), ("OffsetCommit", "invoke", 1), ("OffsetCommit", "fail", 1)], 0, 0),
        # the next generation began while the request was on its way, and after it was handled for all we know
        (
            [
                ("JoinGroup", "ok", 1),
                ("TxnOffsetCommit", "invoke", 1),
                ("JoinGroup", "ok", 2),
                ("TxnOffsetCommit", "ok", 1),
            ],
            0,
            0,
        ),
        ([("TxnOffsetCommit", "invoke", 1), ("TxnOffsetCommit", "ok", 1)], 0, 1),
        ([("JoinGroup", "ok", 2), ("TxnOffsetCommit", "invoke", -1), ("TxnOffsetCommit", "ok", -1)], 0, 0),
        # a generation that began while nobody of the history listened
        ([("JoinGroup", "ok", 1), ("OffsetCommit", "invoke", 2), ("OffsetCommit", "ok", 2)], 0, 0),
    ],
)
def test_a_generation_is_fenced_only_if_the_next_had_begun_when_the_request_was_sent(
    steps: list[tuple[str, str, int]], found: int, unknown: int
) -> None:
    figures: dict[str, int | float | str] = {"checked": 0, "unknown": 0}
    events = [generation(*step, order=order) for order, step in enumerate(steps)]
    findings = list(judge_generations(events, figures))
    as_kept(findings, figures)
    assert [(each.topic, each.partition) for each in findings] == [(INPUTS, 0)] * found
    assert figures["unknown"] == unknown


# --- applications that are declared ----------------------------------------------------------------------------------

G = "g"
ROLES = (("in", "input"), ("out", "output"))


def declare(
    everything: bool = True,
    identities: dict[tuple[str, int], str] | None = None,
    reading: dict[str, dict[str, str]] | None = None,
) -> list[Event]:
    """The declaration of an application that copies ``in`` to ``out``."""

    def event(action: str, **columns: Any) -> Event:
        return Event(run="r", process="test", action=action, phase="ok", group=G, **columns)

    topics = [
        event("DeclareTopic", topic=topic, detail={"role": role, **(reading or {}).get(topic, {})})
        for topic, role in ROLES
    ]
    records = [
        event("DeclareRecord", topic=topic, partition=0, offset=offset, detail={"identity": identity})
        for (topic, offset), identity in (identities or {}).items()
    ]
    return [event("DeclareApplication", detail={"everything": everything}), *topics, *records]


class Copier:
    """An application that copies ``in`` to ``out``, and its broker's logs, batch by batch."""

    def __init__(self, inputs: int = 3) -> None:
        self.events: list[Event] = []
        self.logs: dict[str, list[RecordBatch]] = {"in": [], "out": [], OFFSETS: []}
        self.requests = 0
        for number in range(inputs):
            self.append("in", f"v{number}".encode())

    def append(self, topic: str, value: bytes, key: bytes | None = None, epoch: int = -1) -> int:
        log = self.logs[topic]
        offset = log[-1].last_offset + 1 if log else 0
        log.append(
            build_batch(
                [Record(key=key, value=value)],
                base_offset=offset,
                producer_id=7 if epoch >= 0 else -1,
                producer_epoch=epoch,
                base_sequence=-1,
                is_transactional=epoch >= 0,
            )
        )
        return offset

    def ask(self, action: str, **columns: Any) -> None:
        self.requests += 1
        detail = {"request": self.requests} | columns.pop("detail", {})
        for phase in ("invoke", "ok"):
            self.events.append(Event(run="r", process="p", action=action, phase=phase, detail=detail, **columns))

    def write(self, value: str, name: str | None = "x") -> None:
        offset = self.append("out", value.encode(), epoch=0 if name else -1)
        self.ask("Produce", topic="out", partition=0, offset=offset, transactional_id=name)

    def send_offset(self, offset: int, name: str | None = "x") -> None:
        key = OffsetCommitKey(group=G, topic="in", partition=0).encode()
        self.append(OFFSETS, OffsetCommitValue(offset=offset, commit_timestamp_ms=0).encode(), key, 0 if name else -1)
        where = {"topic": "in", "partition": 0, "group": G, "transactional_id": name}
        self.ask("TxnOffsetCommit" if name else "OffsetCommit", detail={"committed_offset": offset}, **where)

    def end(self, decision: ControlType = ControlType.COMMIT, *topics: str) -> None:
        record = ControlRecord(control_type=decision, coordinator_epoch=0)
        for topic in topics or ("out", OFFSETS):
            offset = self.logs[topic][-1].last_offset + 1
            marker = build_control_batch(record, producer_id=7, producer_epoch=0, base_offset=offset)
            self.logs[topic].append(marker)
        self.ask("EndTxn", transactional_id="x", detail={"committed": decision is ControlType.COMMIT})

    def copy_of(self, value: str) -> None:
        """Copy the first input, which has this value."""
        self.write(value)
        self.send_offset(1)
        self.end()

    def copy(self, number: int, decision: ControlType = ControlType.COMMIT) -> None:
        self.write(f"v{number}")
        self.send_offset(number + 1)
        self.end(decision)

    def judged(self, folder: Path, declaration: list[Event] | None = None) -> tuple[list[str], dict[str, Figures]]:
        """The rules that are violated, each with its place, and the figures."""
        result = self.joined(folder, declaration)
        return [f"{each.rule} {each.topic} {each.offset}" for each in result.findings], result.figures

    def joined(self, folder: Path, declaration: list[Event] | None = None, moments: Moments = AT_ONE_MOMENT) -> Join:
        """The result of both forms."""
        for topic, batches in self.logs.items():
            partition = folder / f"{topic}-0"
            partition.mkdir(parents=True, exist_ok=True)
            (partition / f"{0:020d}.log").write_bytes(b"".join(batch.encode() for batch in batches))
        events = [*self.events, *(declare() if declaration is None else declaration)]
        return kept_join(join(events, find_logs(folder), moments))


@pytest.fixture
def copier() -> Copier:
    return Copier()


def test_a_declared_application_that_copies_every_input_once_violates_no_rule(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0)
    copier.copy(1, ControlType.ABORT)
    copier.copy(1)
    copier.copy(2)
    found, figures = copier.judged(tmp_path)
    assert found == []
    assert {figures[rule]["checked"] for rule in (*INPUT_RULES, NOT_PROCESSED, OUTPUT_OF_NOTHING)} == {3}
    assert {figures[rule]["unknown"] for rule in APPLICATION_RULES} == {0}


def test_each_mistake_of_a_declared_application_is_found_by_its_rule(copier: Copier, tmp_path: Path) -> None:
    copier.write("v0")
    copier.send_offset(1, name=None)
    copier.end(ControlType.COMMIT, "out")  # v0: its offset outside of its transaction
    copier.write("v0", name=None)  # and once more
    copier.write("z", name=None)
    found, _ = copier.judged(tmp_path)
    assert found == [
        f"{OUTPUT_OF_NOTHING} out 3",
        f"{TWICE} out 2",
        f"{OUTPUT_ALONE} out 0",
        f"{NOT_PROCESSED} in 1",
        f"{NOT_PROCESSED} in 2",
    ]


def test_each_output_outside_of_transactions_is_found_and_not_only_the_first(copier: Copier, tmp_path: Path) -> None:
    for number in range(3):
        copier.write(f"v{number}", name=None)
    copier.send_offset(3, name=None)
    assert copier.judged(tmp_path)[0] == [f"{OUTPUT_ALONE} out {number}" for number in range(3)]


def test_an_aborted_output_of_no_input_is_no_finding(copier: Copier, tmp_path: Path) -> None:
    copier.write("z")
    copier.end(ControlType.ABORT, "out")
    for number in range(3):
        copier.copy(number)
    assert copier.judged(tmp_path)[0] == []


def test_an_output_is_of_no_input_only_if_the_logs_have_every_input(copier: Copier, tmp_path: Path) -> None:
    for number in range(3):
        copier.copy(number)
    unsure = {"hole": 1, "beginning": 0}
    for name, lost in unsure.items():
        batch = copier.logs["in"].pop(lost)
        found, figures = copier.judged(tmp_path / name)
        assert (found, figures[OUTPUT_OF_NOTHING]) == ([], {"checked": 3, "unknown": 1}), name
        copier.logs["in"].insert(lost, batch)
    copier.judged(tmp_path / "damage")
    with (tmp_path / "damage" / "in-0" / f"{0:020d}.log").open("r+b") as file:
        file.seek(-1, SEEK_END)
        file.write(b"?")
    result = join([*copier.events, *declare()], find_logs(tmp_path / "damage"))
    assert (result.findings, result.figures[OUTPUT_OF_NOTHING]["unknown"]) == ([], 1)


def test_the_input_of_an_output_may_be_missing_in_a_copy_of_an_earlier_moment(copier: Copier, tmp_path: Path) -> None:
    copier.write("v0", name=None)
    copier.write("z", name=None)
    assert copier.judged(tmp_path)[0][0] == f"{OUTPUT_OF_NOTHING} out 1"
    events = [*copier.events, *declare()]
    replicas = {(log.topic, log.partition): [(log, read_contents(log))] for log in find_logs(tmp_path)}
    figures: dict[str, Figures] = defaultdict(dict)
    assert list(judge_inputs(events, replicas, [], figures, covered=False)) == []
    assert figures[OUTPUT_OF_NOTHING] == {"checked": 2, "unknown": 1}
    del replicas["in", 0]
    assert list(judge_inputs(events, replicas, [], figures)) == []
    assert figures[OUTPUT_OF_NOTHING] == {"checked": 4, "unknown": 3}


def test_an_output_of_an_input_whose_transaction_is_open_may_be_of_no_input(copier: Copier, tmp_path: Path) -> None:
    copier.append("in", b"open", epoch=0)
    for number in range(3):
        copier.copy(number)
    copier.write("open", name=None)
    found, figures = copier.judged(tmp_path)
    assert (found, figures[OUTPUT_OF_NOTHING]) == ([], {"checked": 4, "unknown": 1})


def test_an_aborted_input_is_skipped_if_the_committed_offset_is_past_it(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0, ControlType.ABORT)
    copier.copy(1)
    copier.copy(2)
    assert copier.judged(tmp_path)[0] == [f"{SKIPPED} in 0"]


def test_unreached_inputs_are_no_finding_unless_every_input_has_to_be_processed(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0)
    found, figures = copier.judged(tmp_path, declare(everything=False))
    assert (found, figures[NOT_PROCESSED]["checked"]) == ([], 0)


def test_declared_identities_join_what_has_other_values_and_hide_what_has_none(
    copier: Copier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        copier.write(f"shipped {number}")
        copier.send_offset(number + 1)
        copier.end()
    copier.write("heartbeat", name=None)
    with pytest.raises(WrongQuestion, match="no output has the same identity as an input"):
        copier.judged(tmp_path)
    identities = {(topic, number * step): str(number) for topic, step in (("in", 1), ("out", 2)) for number in range(3)}
    assert copier.judged(tmp_path, declare(identities=identities))[0] == []
    monkeypatch.setattr(history_stages, "values_at", lambda *_, **__: pytest.fail("a log was read again"))
    copier.logs["other"] = []
    copier.append("other", b"of no application")
    copier.events.append(Event(run="r", process="writer", action="Send", phase="info", topic="other", partition=0))
    assert copier.judged(tmp_path, declare(identities=identities))[0] == []


def test_the_last_declaration_of_a_group_counts() -> None:
    [declared] = declarations([*declare(identities={("in", 0): "a"}), *declare(everything=False)])
    assert (declared.everything, declared.identities, declared.inputs) == (False, {}, {"in"})


def test_copies_in_one_transaction_are_told_with_it_and_others_are_not(copier: Copier, tmp_path: Path) -> None:
    for value in ("v0", "v1", "v1", "v1", "v2"):
        copier.write(value)
    copier.write("v0")
    copier.send_offset(3)
    copier.end()
    copier.write("v2")
    copier.end(ControlType.COMMIT, "out")
    found = {finding.offset: finding.evidence for finding in copier.joined(tmp_path).findings if finding.rule == TWICE}
    in_one = (
        "both in one transaction (0 of 'x'): abort before you retry; or, if both belong there, say which output each is"
    )
    assert found[5].endswith(f"out-0 offset 0, out-0 offset 5; {in_one}")
    assert "out-0 offset 3; all in one transaction (0 of 'x'): abort before you retry" in found[2]
    assert found[7].endswith("out-0 offset 4, out-0 offset 7")


def test_copies_outside_of_transactions_or_of_nobody_are_in_no_transaction(copier: Copier, tmp_path: Path) -> None:
    copier.write("v0", name=None)
    copier.write("v0", name=None)
    for number in (1, 2):
        copier.copy(number)
    [finding] = [each for each in copier.joined(tmp_path).findings if each.rule == TWICE]
    assert finding.evidence.endswith("out-0 offset 0, out-0 offset 1")


ABORTED_LAST = (
    "; the last transaction of 'x' was aborted, and nothing of it was written again: "
    "seek back to the committed offsets after an abort; if it went back, look for what failed each time"
)
TIMED_OUT = (
    "; the last transaction of 'x' was open for longer than its timeout, so that it was aborted and its producer "
    "fenced: make transaction.timeout.ms longer than a batch takes, or the batches smaller"
)


def test_an_abort_after_which_nothing_was_written_is_told_with_the_inputs_that_are_left(
    copier: Copier, tmp_path: Path
) -> None:
    copier.copy(0)
    copier.copy(1, ControlType.ABORT)
    left = copier.joined(tmp_path / "aborted").findings
    assert [finding.offset for finding in left] == [1, 2]
    assert all(finding.evidence.endswith(f"no committed offset is past it{ABORTED_LAST}") for finding in left)
    copier.copy(1)
    [finding] = copier.joined(tmp_path / "again").findings
    assert finding.evidence.endswith("no committed offset is past it")
    copier.ask("Produce", topic="elsewhere", partition=0, transactional_id="y", offset=0)
    copier.ask("EndTxn", transactional_id="y", detail={"committed": False})
    [finding] = copier.joined(tmp_path / "another").findings
    assert finding.evidence.endswith("no committed offset is past it")
    copier.send_offset(3)
    copier.end(ControlType.ABORT)
    [finding] = copier.joined(tmp_path / "offsets alone").findings
    assert finding.evidence.endswith(f"no committed offset is past it{ABORTED_LAST}")


def test_a_transaction_that_timed_out_is_told_instead_of_one_without_an_end(copier: Copier, tmp_path: Path) -> None:
    def said() -> list[str]:
        folder = tmp_path / str(len(copier.events))
        return [each.evidence.partition("is past it")[2] for each in copier.joined(folder).findings]

    copier.copy(0)
    copier.write("v1")
    copier.end(ControlType.ABORT)
    copier.events[-2:] = [Event(run="r", process="broker-1", action="TimeOut", phase="ok", transactional_id="x")]
    assert said() == [TIMED_OUT] * 2
    copier.ask("InitProducerId", transactional_id="x")
    assert said() == [TIMED_OUT] * 2
    copier.copy(1)
    assert said() == [""]


def test_one_of_several_producers_whose_last_transaction_was_aborted_is_named(copier: Copier, tmp_path: Path) -> None:
    for name in ("y", "x", "z"):
        copier.write("v0", name)
        copier.ask("EndTxn", transactional_id=name, detail={"committed": False})
    copier.end(ControlType.ABORT, "out")
    [first, *_] = copier.joined(tmp_path).findings
    assert first.evidence.endswith(ABORTED_LAST.replace("'x'", "'x' (and of 2 more)"))


def test_transactions_without_an_end_are_told_in_the_order_in_which_they_began(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0)
    copier.write("v1", "y")
    copier.write("v2", "x")
    found = copier.joined(tmp_path).findings
    assert [re.findall(r"id '(.)' began", finding.evidence) for finding in found] == [["y", "x"]] * 2


def test_a_transaction_elsewhere_follows_an_abort(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0)
    copier.copy(1, ControlType.ABORT)
    copier.ask("Produce", topic="elsewhere", partition=0, transactional_id="x", offset=0)
    copier.ask("EndTxn", transactional_id="x", detail={"committed": True})
    left = copier.joined(tmp_path).findings
    assert [finding.evidence.endswith("no committed offset is past it") for finding in left] == [True, True]


@pytest.mark.parametrize("name", ["x", "y"])
def test_offsets_may_be_committed_by_a_client_that_writes_no_output(name: str, copier: Copier, tmp_path: Path) -> None:
    copier.write("v0")
    copier.send_offset(1, name)
    copier.end()
    found, _ = copier.judged(tmp_path)
    assert (f"{OUTPUT_ALONE} out 0" in found) == (name == "y")


def test_a_producer_that_starts_again_has_another_transaction(copier: Copier, tmp_path: Path) -> None:
    copier.write("v0")
    copier.ask("InitProducerId", transactional_id="x")
    copier.send_offset(1)
    copier.end()
    assert f"{OUTPUT_ALONE} out 0" in copier.judged(tmp_path)[0]


def test_a_batch_belongs_to_its_topic_whatever_group_it_names(copier: Copier, tmp_path: Path) -> None:
    for value in (b"v0", b"v1"):
        offset = copier.append("out", value, epoch=0)
        copier.ask("Produce", topic="out", partition=0, offset=offset, transactional_id="v", group="elsewhere")
    copier.send_offset(2)
    copier.end()
    assert copier.judged(tmp_path)[0] == [f"{OUTPUT_ALONE} out 0", f"{NOT_PROCESSED} in 2"], "once for the transaction"


def test_a_record_that_only_an_earlier_declaration_names_is_ignored(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0)
    copier.send_offset(3)
    copier.end(ControlType.COMMIT, OFFSETS)
    earlier = declare(identities={("in", number): f"v{number}" for number in range(3)})
    later = declare(identities={("in", 0): "v0", ("out", 0): "v0"})
    found, figures = copier.judged(tmp_path, [*earlier, *later])
    assert (found, figures[NOT_PROCESSED]["checked"]) == ([], 1)


def test_without_offsets_or_whole_logs_a_declared_application_is_not_judged(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0)
    del copier.logs[OFFSETS]
    found, figures = copier.judged(tmp_path / "no offsets")
    assert found == []
    assert figures[SKIPPED]["unknown"] == figures[NOT_PROCESSED]["unknown"] == 3
    copier = Copier()
    copier.copy(0)
    copier.logs["out"] = copier.logs["out"][1:]
    found, figures = copier.judged(tmp_path / "a hole")
    assert found == []
    assert figures[TWICE]["unknown"] == 3


def test_without_a_single_log_of_its_offsets_a_declared_application_is_not_judged(
    copier: Copier, tmp_path: Path
) -> None:
    copier.copy(1)
    assert copier.judged(tmp_path)[0] != []
    shutil.copytree(tmp_path / f"{OFFSETS}-0", tmp_path / f"{OFFSETS}-1")
    found, figures = copier.judged(tmp_path)
    assert found == []
    assert figures[SKIPPED]["unknown"] == figures[NOT_PROCESSED]["unknown"] == 3


@pytest.mark.parametrize("broken", range(3))
def test_a_topic_is_whole_only_if_each_of_its_partitions_is(broken: int) -> None:
    declared = Declared("g", inputs={"in"}, outputs={"out"})
    for topic, whole in (("out", {"out": False}), ("in", {"out": True})):
        logs = {(each, number): (each, number) != (topic, broken) for each in ("in", "out") for number in range(3)}
        facts = LogFacts.of(declared, logs, {}, covered=True)
        assert (facts.whole, facts.inputs_whole) == (whole, topic == "out")


def test_an_aborted_output_may_be_there_again_in_a_hole(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0, ControlType.ABORT)
    copier.copy(1)
    for number in range(2):
        copier.write(f"w{number}", name=None)
    del copier.logs["out"][-2]
    found, figures = copier.judged(tmp_path)
    assert found == [f"{OUTPUT_OF_NOTHING} out 5"]
    assert figures[SKIPPED]["unknown"] == 2  # of the first input and the last one


def test_aborted_inputs_and_records_without_a_value_are_not_looked_at(copier: Copier, tmp_path: Path) -> None:
    copier.append("in", b"aborted", epoch=0)
    marker = ControlRecord(control_type=ControlType.ABORT, coordinator_epoch=0)
    copier.logs["in"].append(build_control_batch(marker, producer_id=7, producer_epoch=0, base_offset=4))
    copier.logs["in"].append(build_batch([Record(key=b"k", value=None)], base_offset=5))
    for number in range(3):
        copier.copy(number)
    found, figures = copier.judged(tmp_path)
    assert (found, figures[NOT_PROCESSED]["checked"]) == ([], 3)


def test_inputs_with_one_identity_are_not_told_apart(tmp_path: Path) -> None:
    copier = Copier(inputs=1)
    copier.append("in", b"v0")
    copier.copy(0)
    found, figures = copier.judged(tmp_path)
    assert found == []
    assert figures[TWICE]["unknown"] == 2


@pytest.mark.parametrize(
    ("reading", "before", "behind"),
    [
        ({"out": {"after": "shipped "}}, "shipped v", ""),
        ({"out": {"field": "order.id"}}, '{"order": {"id": "v', '"}}'),
        ({"in": {"after": "v"}, "out": {"field": "id"}}, '{"id": ', "}"),
    ],
    ids=str,
)
def test_the_identity_of_a_declared_topic_is_read_from_its_values(
    reading: dict[str, dict[str, str]], before: str, behind: str, tmp_path: Path
) -> None:
    copier = Copier()
    for number in (0, 2):
        copier.write(f"{before}{number}{behind}")
        copier.send_offset(number + 1)
        copier.end()
    assert copier.judged(tmp_path, declare(reading=reading))[0] == ["input skipped in 1"]


@pytest.mark.parametrize(
    ("legs", "expected"),
    [
        ([("debit", "credit"), ("debit", "credit")], []),
        ([("debit", "credit"), ("debit", "debit")], [f"{TWICE} out 4"]),
        ([("debit", "credit"), ("debit",)], []),
        ([("debit", None), ("debit", "credit")], []),
        ([(None, None), ("debit",)], [f"{TWICE} out 1"]),
    ],
)
def test_an_input_may_have_several_outputs_in_one_topic_that_say_which_they_are(
    legs: list[tuple[str | None, ...]], expected: list[str], tmp_path: Path
) -> None:
    copier = Copier(inputs=2)
    for number, own in enumerate(legs):
        for leg in own:
            copier.write(json.dumps({"of": f"v{number}"} | ({"leg": leg} if leg else {})))
        copier.send_offset(number + 1)
        copier.end()
    reading = {"out": {"field": "of", "output": "leg"}}
    assert copier.judged(tmp_path, declare(reading=reading))[0] == expected
    if all(leg for own in legs for leg in own):
        doubled = [f"{TWICE} out {3 * number + 1}" for number, own in enumerate(legs) if len(own) > 1]
        assert copier.judged(tmp_path / "plain", declare(reading={"out": {"field": "of"}}))[0] == doubled


@pytest.mark.parametrize("value", ["v0", '{"order": 5}', "{" * 100_000, "[1]", "null"])
def test_a_value_without_the_declared_field_is_its_own_identity(value: str, tmp_path: Path) -> None:
    copier = Copier(inputs=0)
    copier.append("in", value.encode())
    copier.copy_of(value)
    assert copier.judged(tmp_path, declare(reading={"out": {"field": "order.id"}}))[0] == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"action": "DeclareTopic", "topic": "in", "detail": {"role": "input", "field": 5}}, "no text in detail.field"),
        (
            {"action": "DeclareTopic", "topic": "in", "detail": {"role": "input", "after": [1]}},
            "no text in detail.after",
        ),
        (
            {"action": "DeclareTopic", "topic": "out", "detail": {"role": "output", "output": 1}},
            "no text in detail.output",
        ),
        (
            {"action": "DeclareTopic", "topic": "in", "detail": {"role": "input", "output": "leg"}},
            "of 'in' with detail.output, which only outputs have",
        ),
        ({"action": "DeclareRecord", "topic": "in", "partition": 0}, "without offset and identity"),
        ({"action": "DeclareRecord", "topic": "in", "offset": 0}, "without partition and identity"),
        (
            {"action": "DeclareRecord", "topic": "in", "partition": 0, "offset": 0, "detail": {"identity": [1]}},
            "without identity",
        ),
        ({"action": "DeclareTopic", "detail": {"role": "input"}}, "DeclareTopic without a topic"),
        ({"action": "DeclareTopic", "topic": "in", "detail": {"role": ["x"]}}, "DeclareTopic of 'in' with the role"),
        (
            {"action": "DeclareApplication", "detail": {"everything": "no"}},
            "that is neither true nor false",
        ),
        (
            {"action": "DeclareApplication", "detail": {"everthing": False}},
            "DeclareApplication with the unknown field detail.everthing; there is everything",
        ),
        (
            {"action": "DeclareTopic", "topic": "out", "detail": {"role": "output", "outputs_per_input": 1}},
            "DeclareTopic with the unknown field detail.outputs_per_input; there are role, after, field, output",
        ),
        (
            {"action": "DeclareTopic", "topic": "out", "detail": {"role": "output", "after": "x", "field": "id"}},
            "of 'out' with detail.after and detail.field; give one of them",
        ),
    ],
    ids=str,
)
def test_a_declaration_that_lacks_something_is_refused(columns: dict[str, Any], said: str, tmp_path: Path) -> None:
    copier = Copier()
    copier.copy(0)
    one = Event(run="r", process="test", phase="ok", group=G, **columns)
    with pytest.raises(WrongQuestion, match=re.escape(said)) as refused:
        copier.judged(tmp_path, [*declare(), one])
    as_kept([], refused.value)


def test_a_request_with_an_odd_detail_belongs_to_nobody(copier: Copier) -> None:
    copier.copy(0)
    odd = [replace(event, detail={"request": [1], "committed_offset": "1"}) for event in copier.events]
    requests = read_requests(odd)
    assert requests.attempt((("out", 5), 0)) == requests.attempt((("out", 0), 1)) == ("nobody", None)
    assert requests.commits == {}


# --- offsets far apart ------------------------------------------------------------------------------------------------

FAR = (0, 2, 1 << 17, 5 << 17, 1 << 40)  # of inputs; a log may start anywhere, and have any offset next
HIGHEST = 1 << 62


def at_offsets(offsets: Sequence[int], *committed: int) -> Copier:
    """An application with inputs at these offsets, which copied the first of them and committed these offsets."""
    copier = Copier(len(offsets))
    copier.logs["in"] = [replace(batch, base_offset=at) for batch, at in zip(copier.logs["in"], offsets, strict=True)]
    for number, offset in enumerate(committed):
        copier.write(f"v{number}")
        copier.send_offset(offset)
        copier.end()
    return copier


def by_member(action: str, phase: str, **columns: Any) -> Event:
    return Event(run="r", process="m", action=action, phase=phase, **columns)


def polled(number: int, offset: int, group: str | None = None) -> Event:
    where = {"topic": "in", "partition": 0, "offset": offset, "group": group}
    return by_member("Poll", "ok", **where, detail={"value": f"v{number}"})


def not_there(number: int, offset: int) -> Event:
    detail = {"value": f"not there {number}", "transaction": number, "input": ["in", 0, offset]}
    return by_member("Send", "invoke", topic="out", detail=detail)


def test_a_declared_application_may_commit_any_offset(tmp_path: Path) -> None:
    found, _ = at_offsets(FAR, FAR[0] + 1, HIGHEST).judged(tmp_path)
    assert found == [f"{SKIPPED} in {offset}" for offset in FAR[2:]]


def test_an_input_is_committed_with_the_first_offset_past_it_though_a_lower_one_follows(tmp_path: Path) -> None:
    found, _ = at_offsets(range(4), 3, 1, 4).judged(tmp_path)
    assert sorted(found) == [f"{SKIPPED} in 3", f"{OUTPUT_ALONE} out 2", f"{OUTPUT_ALONE} out 4"]


def test_the_log_of_a_declared_topic_may_start_anywhere(tmp_path: Path) -> None:
    start = FAR[-1]
    found, _ = at_offsets(range(start, start + 4), start + 1, start + 3).judged(tmp_path)
    assert found == [f"{SKIPPED} in {start + 2}", f"{NOT_PROCESSED} in {start + 3}"]


def test_members_may_be_given_and_commit_any_offset(tmp_path: Path) -> None:
    copier = at_offsets(FAR, FAR[0] + 1, HIGHEST)
    given = (*FAR, 1 << 50)  # the last is past the log's end
    copier.events = [each for own in enumerate(given) for each in (polled(*own, G), not_there(*own))]
    found = [f"{INCONSISTENT} in {1 << 50}", *(f"{SKIPPED} in {offset}" for offset in given)]
    assert copier.judged(tmp_path, [])[0] == found


def test_readers_may_pass_over_any_number_of_offsets(tmp_path: Path) -> None:
    copier = at_offsets(FAR)
    copier.events = [polled(0, FAR[0]), polled(9, HIGHEST)]
    assert copier.judged(tmp_path, [])[0] == [f"{POLL_SKIP} in {FAR[1]}", f"{INCONSISTENT} in {HIGHEST}"]


@pytest.mark.parametrize("bits", [SPAN_BITS, BLOCK_BITS])
def test_a_commit_and_a_step_may_pass_over_offsets_that_other_tasks_judge(bits: int, tmp_path: Path) -> None:
    offsets = [number << bits for number in range(8)]
    copier = at_offsets(offsets, *(offset + 1 for offset in offsets[::2]))
    found, _ = copier.judged(tmp_path / "declared")
    skipped = [f"{SKIPPED} in {offset}" for offset in offsets[4:7]]
    assert sorted(found) == [f"{NOT_PROCESSED} in {offsets[7]}", *skipped, *(f"{OUTPUT_ALONE} out {n}" for n in (4, 6))]
    copier.events = [each for own in enumerate(offsets) for each in (polled(*own, G), not_there(*own))]
    assert copier.judged(tmp_path / "told", [])[0] == [f"{SKIPPED} in {offset}" for offset in offsets[:7]]
    copier.events = [polled(*own) for own in list(enumerate(offsets))[::2]]
    assert copier.judged(tmp_path / "polled", [])[0] == [f"{POLL_SKIP} in {offset}" for offset in offsets[1:7:2]]


def test_that_a_group_has_committed_nothing_is_known_only_from_whole_logs() -> None:
    log, name = PartitionLog("", OFFSETS, 0, "/offsets-0", ()), ("g", ("in", 0))
    assert Offsets([GroupLog(log)]).covering(name, 0) is None
    assert Offsets([GroupLog(log, whole=False)]).covering(name, 0) == UNKNOWN
    assert Offsets([GroupLog(log), GroupLog(log, whole=False)]).covering(name, 0) == UNKNOWN
    assert Offsets([]).covering(name, 0) == UNKNOWN


def test_an_output_is_not_judged_if_the_history_lacks_the_request_that_committed_the_offset_past_its_input(
    copier: Copier, tmp_path: Path
) -> None:
    for number in range(3):
        copier.copy(number)
    copier.events = [event for event in copier.events if event.action != "TxnOffsetCommit"]
    found, figures = copier.judged(tmp_path)
    assert found == []
    assert [figures[rule]["unknown"] for rule in INPUT_RULES] == [3 * (rule == OUTPUT_ALONE) for rule in INPUT_RULES]


def test_an_abort_in_another_run_explains_no_input_that_is_left(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0)
    own = copier.events
    copier.events = []
    copier.ask("Produce", topic="out", partition=0, transactional_id="y", offset=0)
    copier.ask("EndTxn", transactional_id="y", detail={"committed": False})
    elsewhere = [replace(event, run="s") for event in (*copier.events, *declare())]
    copier.events = own
    left = copier.joined(tmp_path, [*declare(), *elsewhere]).findings
    ends = {(each.run, each.evidence.endswith("no committed offset is past it")) for each in left}
    assert ends == {("r", True), ("s", False)}


def test_a_transaction_without_an_end_in_another_run_explains_no_input_that_is_left(
    copier: Copier, tmp_path: Path
) -> None:
    copier.copy(0)
    own = copier.events
    copier.events = []
    copier.ask("Produce", topic="out", partition=0, transactional_id="y", offset=0)
    elsewhere = [replace(event, run="s") for event in (*copier.events, *declare())]
    copier.events = own
    left = copier.joined(tmp_path, [*declare(), *elsewhere]).findings
    ends = {(each.run, "'y' began a transaction" in each.evidence) for each in left}
    assert ends == {("r", False), ("s", True)}


def test_a_declaration_is_compared_with_the_groups_of_its_own_run(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0)
    joined = Event(run="s", process="p", action="JoinGroup", phase="ok", group="h", generation=1)
    elsewhere = [replace(event, run="s", group="h") for event in declare()]
    left = copier.joined(tmp_path, [*declare(), joined, *elsewhere]).findings
    assert Counter((each.run, each.rule) for each in left)["r", NOT_PROCESSED] == 2


def test_of_several_replicas_of_the_offsets_only_the_longest_counts(copier: Copier, tmp_path: Path) -> None:
    copier.copy(0)
    copier.joined(tmp_path / "1")
    shorter = Copier(inputs=0)
    shorter.logs = {OFFSETS: []}
    shorter.send_offset(3, name=None)
    shorter.joined(tmp_path / "2", [])
    result = join([*copier.events, *declare()], find_logs(tmp_path))
    assert [(each.rule, each.offset) for each in result.findings] == [(NOT_PROCESSED, 1), (NOT_PROCESSED, 2)]


def test_an_input_whose_output_is_in_two_transactions_reports_both_of_them(copier: Copier, tmp_path: Path) -> None:
    copier.write("v0")
    copier.end(ControlType.COMMIT, "out")
    for value in ("v0", "v1"):
        copier.write(value)
    copier.end(ControlType.COMMIT, "out")
    copier.write("v2")
    copier.send_offset(0)
    copier.end()
    found, _ = copier.judged(tmp_path)
    assert sorted(found) == [f"{TWICE} out 2", f"{OUTPUT_ALONE} out 0", f"{OUTPUT_ALONE} out 5"]


def test_an_output_has_no_input_only_if_the_logs_are_as_late_as_the_run(copier: Copier, tmp_path: Path) -> None:
    copier.write("v0", name=None)
    copier.write("z", name=None)
    assert copier.judged(tmp_path)[0][0] == f"{OUTPUT_OF_NOTHING} out 1"
    result = copier.joined(tmp_path, moments=Moments(Source(one_moment=False), ()))
    assert (result.findings, result.figures[OUTPUT_OF_NOTHING]) == ([], {"checked": 2, "unknown": 1})


@pytest.mark.parametrize("sent", [1, 2])
def test_an_output_that_is_there_twice_was_processed_twice_only_if_it_was_sent_twice(sent: int, tmp_path: Path) -> None:
    copier = Copier(inputs=1)
    for _ in range(2):
        copier.write("v0", name=None)
    copier.send_offset(1, name=None)
    output = by_member("Send", "invoke", topic="out", detail={"value": "v0", "input": ["in", 0, 0]})
    copier.events = [polled(0, 0, G), *[output] * sent]
    found, _ = copier.judged(tmp_path, [])
    assert (f"{TWICE} out 1" in found) == (sent == 2)


def test_an_output_of_an_aborted_input_is_told_with_the_first_such_input(copier: Copier, tmp_path: Path) -> None:
    marker = ControlRecord(control_type=ControlType.ABORT, coordinator_epoch=0)
    for at in (3, 5):
        copier.append("in", b"z", epoch=0)
        copier.logs["in"].append(build_control_batch(marker, producer_id=7, producer_epoch=0, base_offset=at + 1))
    copier.write("z", name=None)
    for number in range(3):
        copier.copy(number)
    [finding] = copier.joined(tmp_path).findings
    assert "in-0 offset 3 has it, which was aborted" in finding.evidence


def test_one_of_several_outputs_is_told_with_its_name(copier: Copier, tmp_path: Path) -> None:
    copier.write('{"of": "v0", "leg": "debit"}', name=None)
    reading = {"out": {"field": "of", "output": "leg"}}
    found = copier.joined(tmp_path, declare(reading=reading)).findings
    assert [each.evidence.partition(" ")[0] for each in found if each.rule == OUTPUT_ALONE] == ["'v0/debit'"]


@pytest.mark.parametrize("missing", [{"out"}, {"other"}, {"out", "other"}])
def test_an_input_without_an_output_in_some_topics_names_these(
    missing: set[str], copier: Copier, tmp_path: Path
) -> None:
    copier.logs["other"] = []
    topics = ("out", "other", "third")
    copier.logs["third"] = []
    more = [
        Event(run="r", process="t", action="DeclareTopic", phase="ok", group=G, topic=topic, detail={"role": "output"})
        for topic in topics[1:]
    ]
    for number in range(3):
        for topic in topics:
            if number != 1 or topic not in missing:
                offset = copier.append(topic, f"v{number}".encode(), epoch=0)
                copier.ask("Produce", topic=topic, partition=0, offset=offset, transactional_id="x")
        copier.send_offset(number + 1)
        copier.end(ControlType.COMMIT, *topics, OFFSETS)
    [finding] = copier.joined(tmp_path, [*declare(), *more]).findings
    assert (finding.rule, finding.offset) == (OFFSET_ALONE, 1)
    assert finding.evidence.endswith(f"no output of it appears in {', '.join(sorted(missing))}")
