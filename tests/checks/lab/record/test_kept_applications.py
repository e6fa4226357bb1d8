"""The properties of the kept recordings of applications: each application was exact, each mistake was not."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import Event, read_history
from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.rules.applications import (
    FENCED_GENERATION,
    INPUT_RULES,
    OFFSET_ALONE,
    OUTPUT_ALONE,
    SKIPPED,
)
from kafka_eos_checks.audit.rules.offsets import WENT_BACK
from kafka_eos_checks.audit.segments.contents import read_contents
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.kit.recording import kept_recordings, unpack
from kafka_eos_checks.lab.record.application import ACCOUNTS
from kafka_eos_checks.lab.record.application_scenarios import COMMITTING, STEPS

KINDS = ("word-count", "transfer", "mirror")
SCENARIOS = [f"{kind}-{fate}" for kind in KINDS for fate in ("killed", "frozen")]


@dataclass(frozen=True)
class Kept:
    """An unpacked recording with its audit."""

    folder: Path
    audit: Audit

    def history(self, scenario: str) -> list[Event]:
        return list(read_history(self.folder / "histories" / f"{scenario}.jsonl"))

    def committed(self, topic: str) -> dict[int, list[str]]:
        """The values of a topic that readers find, by partition."""
        found: dict[int, list[str]] = {}
        for log in find_logs(*(self.folder / "brokers").iterdir()):
            if log.topic == topic:
                contents = read_contents(log)
                visible = [offset for offset in contents.values if offset not in contents.hidden]
                found[log.partition] = [(contents.values[offset] or b"").decode() for offset in visible]
        return found


def unpacked(name: str, folder: Path) -> Kept:
    unpack(next(path for path in kept_recordings() if path.name == f"{name}.tar.xz"), folder)
    return Kept(folder, run([folder]))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return unpacked("applications", tmp_path_factory.mktemp("applications") / "recording")


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return unpacked("application-mistakes", tmp_path_factory.mktemp("mistakes") / "recording")


def without_input(value: str) -> str:
    """An output without the input that it names."""
    content, found, _ = value.rpartition(" <")
    assert found
    return content


def test_every_input_offset_and_output_can_be_judged_and_is_exact(kept: Kept) -> None:
    figures = {verdict.name: verdict.figures for verdict in kept.audit.verdicts}
    for rule in (*INPUT_RULES, FENCED_GENERATION, WENT_BACK):
        assert int(figures[rule]["checked"]) >= 40, rule
        assert figures[rule]["unknown"] == 0, rule
    assert int(figures[INPUT_RULES[0]]["checked"]) == sum(
        len(values) for scenario in SCENARIOS for values in kept.committed(f"{scenario}-input").values()
    )
    assert kept.audit.findings == ()


@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_the_counts_of_words_are_those_of_the_sentences(kept: Kept, fate: str) -> None:
    outputs = kept.committed(f"word-count-{fate}-output")
    for partition, sentences in kept.committed(f"word-count-{fate}-input").items():
        counts = Counter(word for sentence in sentences for word in sentence.split()[1:])
        expected = [f"{word} {number}" for word, total in counts.items() for number in range(1, total + 1)]
        assert sorted(map(without_input, outputs[partition])) == sorted(expected)


@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_what_is_debited_on_one_partition_is_credited_on_another(kept: Kept, fate: str) -> None:
    outputs = kept.committed(f"transfer-{fate}-output")
    assert set(outputs) == set(ACCOUNTS.values()) == {0, 1, 7}
    balances: Counter[int] = Counter()
    for sentences in kept.committed(f"transfer-{fate}-input").values():
        for sentence in sentences:
            _, debited, credited, amount = sentence.split()
            balances[ACCOUNTS[debited]] -= int(amount)
            balances[ACCOUNTS[credited]] += int(amount)
    found = {p: sum(int(without_input(value).split()[1]) for value in values) for p, values in outputs.items()}
    assert found == balances
    assert sum(found.values()) == 0


@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_a_mirror_has_the_records_of_the_other_cluster_in_their_order(kept: Kept, fate: str) -> None:
    source = kept.committed(f"mirror-{fate}-input")
    target = kept.committed(f"mirror-{fate}-output")
    assert source == {partition: list(map(without_input, values)) for partition, values in target.items()}
    clusters = {
        line
        for folder in (kept.folder / "brokers").iterdir()
        for line in (folder / "meta.properties").read_text(encoding="utf-8").splitlines()
        if line.startswith("cluster.id=") and folder.name in {"1", f"mirror-{fate}-other-1"}
    }
    assert len(clusters) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_instance_was_killed_at_each_step_and_in_the_commit_before_it_had_an_answer(kept: Kept, kind: str) -> None:
    events = kept.history(f"{kind}-killed")
    crashed = [event.process for event in events if (event.action, event.phase) == ("Crash", "ok")]
    assert crashed == [f"{kind}-{step}" for step in STEPS]
    committing = [event for event in events if event.process.endswith(f"{kind}-{COMMITTING}")]
    assert [event.phase for event in committing if event.action == "CommitTransaction"] == ["invoke"]
    [answer] = [event for event in committing if event.action == "EndTxn" and event.phase == "ok"]
    assert answer.detail["delivered"] is False
    last = [event.action for event in events if event.process == f"{kind}-last" and event.phase == "ok"]
    assert {"AbortTransaction", "Seek"} <= set(last)


@pytest.mark.parametrize("kind", ["word-count", "transfer"])
def test_a_frozen_member_lost_its_partition_and_its_offsets_were_refused(kept: Kept, kind: str) -> None:
    events = kept.history(f"{kind}-frozen")
    frozen = [event.process for event in events if (event.action, event.phase) == ("Freeze", "ok")]
    assert frozen == [f"zombie-{step}" for step in STEPS]
    refused = {
        event.process.removeprefix("proxy/zombie-")
        for event in events
        if event.action == "TxnOffsetCommit" and event.error == ErrorCode.UNKNOWN_MEMBER_ID
    }
    assert refused == {"poll", "begin", "flush"}, "after these the offsets were taken before it was frozen"
    generations = [event.generation or 0 for event in events if event.action == "JoinGroup" and event.phase == "ok"]
    assert len(set(generations)) > 2 * len(STEPS)


def test_a_frozen_mirror_that_had_not_committed_is_fenced_by_its_successor(kept: Kept) -> None:
    events = kept.history("mirror-frozen")
    refused = {
        event.process.removeprefix("proxy/zombie-")
        for event in events
        if event.phase == "fail" and event.error == ErrorCode.INVALID_PRODUCER_EPOCH
    }
    assert refused == {"poll", "begin", "flush", "send_offsets"}


def test_polling_on_after_an_abort_skips_the_inputs_of_the_aborted_transaction(mistakes: Kept) -> None:
    events = mistakes.history("polls-on-after-abort")
    aborted = {event.detail["transaction"] for event in events if event.action == "AbortTransaction"}
    skipped = [finding for finding in mistakes.audit.findings if finding.rule == SKIPPED]
    inputs = {
        tuple(event.detail["input"])
        for event in events
        if event.action == "Send" and event.phase == "invoke" and event.detail.get("transaction") == min(aborted)
    }
    assert {(finding.topic, finding.partition, finding.offset) for finding in skipped} == inputs
    assert all("which did not commit" in finding.evidence for finding in skipped)


def test_offsets_that_are_committed_outside_of_a_transaction_outlive_it(mistakes: Kept) -> None:
    events = mistakes.history("offsets-outside")
    [killed] = [event.process for event in events if (event.action, event.phase) == ("Crash", "ok")]
    lost = {
        tuple(event.detail["input"])
        for event in events
        if event.process == killed and event.action == "Send" and event.phase == "invoke"
    }
    alone = [finding for finding in mistakes.audit.findings if finding.rule == OFFSET_ALONE]
    assert {(finding.topic, finding.partition, finding.offset) for finding in alone} == lost
    committed = {
        (event.process, event.detail["transaction"])
        for event in events
        if event.action == "CommitTransaction" and event.phase == "ok"
    }
    torn = [finding for finding in mistakes.audit.findings if finding.rule == OUTPUT_ALONE]
    assert len(torn) == len(committed)
    assert all(re.search(r"offset \d+ was committed outside of its transaction", each.evidence) for each in torn)


def test_no_other_finding_is_in_the_recordings_of_mistakes(mistakes: Kept) -> None:
    assert {finding.rule for finding in mistakes.audit.findings} == {SKIPPED, OFFSET_ALONE, OUTPUT_ALONE}
