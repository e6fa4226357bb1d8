"""The watching command: its output, and its wait for an unreachable cluster."""

import io
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import MalformedMessage
from kafka_eos_checks.audit.rules.log import ORDER, Batch
from kafka_eos_checks.cli import main
from kafka_eos_checks.conform.wire import Unsupported
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.watch import cluster, command
from kafka_eos_checks.watch import journal as journals
from kafka_eos_checks.watch.advice import Tools
from kafka_eos_checks.watch.cluster import ClusterFailed, Topics
from kafka_eos_checks.watch.command import Told, follow, print_json, print_report
from kafka_eos_checks.watch.journal import CHECKPOINT, REPORTS, Journal, UnusableFolder
from kafka_eos_checks.watch.watcher import Options, Watcher

from .conftest import PLACE, Log, Written


class Clock(threading.Event):
    """A fake of the clock and of the signal that ends the watcher: a wait takes no time and is recorded."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.now, self.end, self.waits = 0.0, seconds, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.now += timeout
        if self.now >= self.end:
            self.set()
        return self.is_set()


class Gone(Written):
    """A cluster whose brokers do not answer for a while."""

    def __init__(self, clock: Clock, since: float, until: float) -> None:
        super().__init__()
        self.clock, self.since, self.until = clock, since, until

    def topics(self) -> Topics:
        if self.since <= self.clock.now < self.until:
            raise ClusterFailed("nobody there")
        return super().topics()

    def fetch(self, *arguments: Any) -> dict[Any, Any]:
        self.clock.wait(1)  # so that the time advances
        return super().fetch(*arguments)


def test_an_unreachable_cluster_is_asked_less_and_less_often_and_watched_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(400)
    monkeypatch.setattr(command, "now_ms", lambda: round(clock.now * 1000))
    told: list[str] = []
    follow(Gone(clock, 5, 200).watcher(told), None, clock)
    waits = [wait for wait in clock.waits if wait != 1]
    assert waits == [2, 4, *[5] * 37]
    line = "no broker answers: nobody there; asked again"
    assert told == [
        "watching 1 partition, and silent while nothing is wrong",
        *(f"{line} {often}" for often in ("in 1 s", "in 2 s", "in 4 s", "every 5 s")),
        "a broker answers again, after 3 min 12 s",
    ]


def test_a_cluster_that_is_unreachable_at_the_start_is_an_error() -> None:
    clock = Clock(100)
    with pytest.raises(ClusterFailed):
        follow(Gone(clock, 0, 50).watcher(), None, clock)


def test_a_cluster_that_answers_is_asked_again_at_once(written: Written) -> None:
    clock, told = Clock(10), list[str]()
    follow(written.watcher(told), None, clock, once=True)
    assert clock.waits == []
    assert told == [], "a single look has a last line"


def test_a_cluster_that_knows_its_topics_and_gives_no_data_is_asked_every_second(written: Written) -> None:
    clock = Clock(10)
    written.gone = {written.leader}
    follow(written.watcher(), None, clock)
    assert clock.waits == [1.0] * 10


def options_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Options:
    """The options of the watcher that a call makes, which watches nothing."""
    seen: list[Options] = []

    def note(watcher: Watcher, *_: object, **__: object) -> command.Told:
        seen.append(watcher.options)
        return command.Told()

    monkeypatch.setattr(command, "follow", note)
    assert main(["watch", "--bootstrap", "localhost:9092", *arguments]) == 2, "nothing was watched"
    [options] = seen
    return options


@pytest.mark.parametrize(
    ("arguments", "times_ms"),
    [
        ([], (10_000, 60_000, 2_000, 86_400_000)),
        (["--once"], (0, 60_000, 0, 86_400_000)),
        (["--hanging-after", "2.5", "--lag-after", "0.001", "--forget-after", "7"], (2_500, 1, 2_000, 7_000)),
        (["--once", "--hanging-after", "3"], (3_000, 60_000, 0, 86_400_000)),
    ],
)
def test_ages_are_given_in_seconds_and_a_single_look_has_no_patience(
    arguments: list[str], times_ms: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(arguments, monkeypatch)
    found = options.hanging_after_ms, options.lag_after_ms, options.check_ms, options.forget_after_ms
    assert found == times_ms


@pytest.mark.parametrize("name", ["--hanging-after", "--lag-after", "--forget-after"])
@pytest.mark.parametrize("value", ["-0.5", "1e9", "nan", "soon"])
def test_an_age_that_is_none_is_refused(name: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["watch", "--bootstrap", "localhost:9092", f"{name}={value}"])
    assert refused.value.code == 2
    assert f"{name} {value}" in capsys.readouterr().err


def test_the_commands_that_are_advised_have_the_properties_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "admin.properties"
    config.write_text("client.id=operator\n")
    plain, configured = (options_of(more, monkeypatch).tools for more in ([], ["--command-config", str(config)]))
    assert "config" not in plain.records("orders", 0, 3, 9) + plain.producers("orders", 0)
    assert f"--consumer.config={config} --topic" in configured.records("orders", 0, 3, 9)
    assert f"--command-config={config} describe-producers" in configured.producers("orders", 0)


def test_rows_are_counted_by_what_they_are_about() -> None:
    assert Told(wrong=1, resolved=2, blind=4).rows == 7


def test_a_name_that_begins_with_a_hyphen_is_no_option_of_a_command() -> None:
    tools = Tools()
    for line in (
        tools.records("-x", 0, 3, 9), tools.abort("-x", 0, 3), tools.producers("-x", 0), tools.terminate("-x"),
        tools.about(ORDER, "-x", 0),
    ):  # fmt: skip
        assert [word for word in line.split() if word.endswith("=-x")], line
        assert " -x" not in line


def test_the_page_for_operators_has_the_commands_of_the_watcher() -> None:
    page = (CLONE / "docs" / "operators.md").read_text(encoding="utf-8").replace(" \\\n     ", " ")
    tools = Tools(bootstrap="HOST:9092")
    for line in (tools.records("orders", 0, 120, 180), tools.abort("orders", 0, 120)):
        assert f"   {line}\n" in page, line


def test_transactions_that_are_not_over_are_counted_at_the_end(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "Cluster", lambda *_: written)
    call = ["watch", "--bootstrap", "localhost:9092", "--once", "--from-start"]
    assert main(call) == 0
    assert "not over" not in capsys.readouterr().err
    written.logs[PLACE].data(7, 0, 0)
    written.logs[PLACE].stable = 0
    assert main(call) == 1
    assert "kafka-eos watch: reports of transactions that are not over: 1\n" in capsys.readouterr().err


def test_a_single_look_finds_what_hangs_also_if_reading_takes_several_answers(written: Written) -> None:
    log = written.logs[PLACE]
    log.stable = log.data(7, 0, 0)
    log.data(7, 0, 1)
    written.batches_a_fetch = lambda: 1
    assert follow(written.watcher(), None, threading.Event(), once=True, show=lambda _: None).wrong == 1


def test_the_clock_has_whole_milliseconds_since_the_epoch() -> None:
    assert isinstance(command.now_ms(), int)
    assert abs(command.now_ms() - 1000 * time.time()) < 60_000


def test_a_partition_that_cannot_be_read_ends_a_single_look_with_2(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "Cluster", lambda *_: written)
    call = ["watch", "--bootstrap", "localhost:9092", "--once", "--from-start"]
    assert main(call) == 0
    written.errors[PLACE] = ErrorCode.KAFKA_STORAGE_ERROR
    assert main(call) == 2
    assert "not read: orders-0\n" in capsys.readouterr().err
    written.errors.clear()
    for offset in range(2):
        written.logs[PLACE].append(Batch(0, offset, offset, 7, 0, 0, 0, unsequenced=False))
    assert main(call) == 1
    written.logs["unread", 0] = Log()
    written.errors["unread", 0] = ErrorCode.KAFKA_STORAGE_ERROR
    assert main(call) == 1, "a violation counts for more than what is not read"
    assert "not read: unread-0\n" in capsys.readouterr().err


def test_offsets_that_were_deleted_before_they_were_read_end_a_look_with_2(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "Cluster", lambda *_: written)
    call = ["watch", "--bootstrap", "localhost:9092", "--once", "--from-start", "--checkpoint", str(tmp_path)]
    log = written.logs[PLACE]
    log.append(Batch(0, 0, 0, 7, 0, 0, 0, unsequenced=False))
    assert main(call) == 0
    log.batches, log.start, log.end = [], 3_001, 3_001
    assert main(call) == 2
    assert capsys.readouterr().err.endswith("not judged: 3,000 offsets that were deleted before they were read\n")
    assert main(call) == 0, "said once"


def test_a_topic_that_is_not_there_ends_a_look_with_2_and_so_does_a_cluster_without_partitions(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "Cluster", lambda *_: written)
    call = ["watch", "--bootstrap", "localhost:9092", "--once"]
    assert main([*call, "--topic", "orders"]) == 0
    assert main([*call, "--topic", "orders", "--topic", "ordres"]) == 2
    assert capsys.readouterr().err.endswith("not there, or may not be described: ordres\n")
    written.logs.clear()
    assert main(call) == 2
    assert capsys.readouterr().err.endswith("nothing was watched: the cluster tells of no partition\n")


def test_a_checkpoint_of_another_cluster_or_without_a_state_ends_a_look_with_2(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "Cluster", lambda *_: written)
    call = ["watch", "--bootstrap", "localhost:9092", "--once", "--checkpoint", str(tmp_path)]
    assert main(call) == 0
    kept = (tmp_path / CHECKPOINT).read_text()
    written.cluster_id = "another"
    assert main(call) == 2
    assert "the checkpoint is of cluster cluster, and this is another" in capsys.readouterr().err
    (tmp_path / CHECKPOINT).write_text(json.dumps(json.loads(kept) | {"state": {}}))
    assert main(call) == 2
    assert "is no checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ClusterFailed("too old"), Unsupported("too old"), MalformedMessage(0, "too old")])
def test_a_cluster_that_cannot_be_asked_ends_the_call_with_2_and_gives_signals_back(
    error: Exception,
    written: Written,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails() -> Topics:
        raise error

    monkeypatch.setattr(written, "topics", fails)
    monkeypatch.setattr(cluster, "Cluster", lambda *_: written)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert main(["watch", "--bootstrap", "localhost:9092", "--once"]) == 2
    assert "too old" in capsys.readouterr().err
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_without_a_broker_to_ask_the_call_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["watch"])
    assert ended.value.code == 2
    assert "--bootstrap" in capsys.readouterr().err


def test_json_on_the_terminal_has_the_lines_of_the_file(
    written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = written.logs[PLACE]
    for offset in range(6):
        log.append(Batch(0, offset, offset, 7, 0, offset // 2, offset // 2, unsequenced=False))
    with Journal(tmp_path) as journal:
        told = follow(written.watcher(), journal, threading.Event(), once=True, show=print_json)
    printed = capsys.readouterr().out
    assert printed == (tmp_path / REPORTS).read_text()
    assert [json.loads(line)["offset"] for line in printed.splitlines()] == [1, 3, 5]
    assert (told.wrong, told.resolved) == (3, 0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.pop("partitions"),
        lambda state: state.update(partitions=3),
        lambda state: state["partitions"][0].update(position="x"),
        lambda state: state["partitions"][0].pop("producers"),
        lambda state: state.update(decided=[[1]]),
    ],
)
def test_a_state_that_no_watcher_can_continue_from_is_an_unusable_folder(
    written: Written, tmp_path: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    with Journal(tmp_path) as journal:
        follow(written.watcher(), journal, threading.Event(), once=True)
    kept = json.loads((tmp_path / CHECKPOINT).read_text())
    damage(kept["state"])
    (tmp_path / CHECKPOINT).write_text(json.dumps(kept))
    with (
        Journal(tmp_path) as journal,
        pytest.raises(UnusableFolder, match=r"checkpoint.json is no checkpoint: .*; give"),
    ):
        follow(written.watcher(), journal, threading.Event(), once=True)


def test_reports_have_the_same_numbers_with_and_without_a_folder(written: Written, tmp_path: Path) -> None:
    written.batches_a_fetch = lambda: 3  # so that not all are found in one look
    log = written.logs[PLACE]
    log.data(8, 0, 0)
    log.data(8, 1, 0)  # which hangs, and is resolved by the marker
    log.marker(8, 1)
    for offset in (3, 4):
        log.append(Batch(0, offset, offset, 7, 0, 0, 0, unsequenced=False))
    shown: list[int] = []
    follow(written.watcher(), None, threading.Event(), once=True, show=lambda row: shown.append(row["number"]))
    with Journal(tmp_path) as journal:
        follow(written.watcher(), journal, threading.Event(), once=True, show=lambda row: shown.append(row["number"]))
    assert shown == [1, 2, 3] * 2


class Busy(Written):
    """A cluster with a new batch in every look, of which each takes half a second."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def fetch(self, *arguments: Any) -> dict[Any, Any]:
        self.clock.wait(0.5)
        log = self.logs[PLACE]
        log.append(Batch(0, log.end, log.end, 7, 0, log.end, log.end, unsequenced=False))
        return super().fetch(*arguments)


@pytest.mark.parametrize(("takes", "times"), [(0.0, 201), (0.5, 21), (5.0, 3)])
def test_checkpoints_take_a_twentieth_of_the_time_however_many_producers_are_in_them(
    takes: float, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(200)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    written = Busy(clock)
    with Journal(tmp_path) as journal:
        commit, count = journal.commit, 0

        def slow(*arguments: Any) -> list[dict[str, Any]]:
            nonlocal count
            count += 1
            clock.now += takes
            return commit(*arguments)

        monkeypatch.setattr(journal, "commit", slow)
        follow(written.watcher(), journal, clock)
    assert count == times


@pytest.mark.parametrize("show", [print_json, print_report])
def test_a_report_reaches_a_pipe_at_once(
    show: Callable[[dict[str, Any]], None], written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.logs[PLACE].append(Batch(0, 0, 0, 7, 0, 0, 0, unsequenced=False))
    written.logs[PLACE].append(Batch(0, 1, 1, 7, 0, 0, 0, unsequenced=False))
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="utf-8"))
    follow(written.watcher(), None, threading.Event(), once=True, show=show)
    assert b"orders" in pipe.getvalue()


def hanging(written: Written, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """Write a transaction that hangs; return the call that looks at it."""
    monkeypatch.setattr(cluster, "Cluster", lambda *_: written)
    written.logs[PLACE].stable = written.logs[PLACE].data(7, 3, 0)
    return ["watch", "--bootstrap", "localhost:9092", "--from-start", "--checkpoint", str(folder)]


def test_a_single_look_ends_with_1_and_tells_again_as_long_as_a_report_is_not_over(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [*hanging(written, monkeypatch, tmp_path), "--once"]
    assert main(call) == 1
    first = capsys.readouterr().out
    assert first.count("hanging transaction") == 1, "not again what this look has told"
    for _ in range(2):
        assert main(call) == 1
        said = capsys.readouterr()
        head, *rest = said.out.splitlines()
        assert re.search(r" hanging transaction: orders-0 offset 0 \(producer 7 epoch 3\): told before, .* ago", head)
        assert rest[-2:] == first.splitlines()[-2:], "with what to do"
        assert "0 reports, 0 resolved" in said.err
    assert main([*call, "--jsonl"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("hanging transaction: orders-0 offset 0 (producer 7 epoch 3): told")) == ("", 1)
    assert len((tmp_path / REPORTS).read_text().splitlines()) == 1
    written.logs[PLACE].marker(7, 3)
    written.logs[PLACE].stable = None
    assert main(call) == 0
    assert "told before" not in capsys.readouterr().out


def test_a_watcher_that_starts_again_says_what_is_not_over(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*hanging(written, monkeypatch, tmp_path), "--once"]) == 1
    capsys.readouterr()
    clock = Clock(3)
    written.gone = {written.leader}  # so that it waits
    with Journal(tmp_path) as journal:
        told = follow(written.watcher(), journal, clock)
    head, *_ = capsys.readouterr().out.splitlines()
    assert " hanging transaction: orders-0 offset 0 (producer 7 epoch 3): told before, " in head
    assert told.wrong == 0


def blind_rows(folder: Path) -> list[tuple[str, str, str]]:
    """The rule, kind and evidence of each row of a folder."""
    rows = map(json.loads, (folder / REPORTS).read_text().splitlines())
    return [(row["rule"], row["kind"], row["evidence"]) for row in rows]


def test_that_no_broker_answers_is_a_row_and_so_is_that_one_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(400)
    monkeypatch.setattr(command, "now_ms", lambda: round(clock.now * 1000))
    with Journal(tmp_path) as journal:
        told = follow(Gone(clock, 5, 200).watcher(), journal, clock, show=print_json)
    assert capsys.readouterr().out == (tmp_path / REPORTS).read_text()
    assert blind_rows(tmp_path) == [
        ("no broker answers", "not judged", "nobody there"),
        ("resolved", "not judged", "no broker answers, for 3 min 12 s: a broker answers"),
    ]
    assert (told.wrong, told.resolved) == (0, 0)
    first, last = map(json.loads, (tmp_path / REPORTS).read_text().splitlines())
    assert (last["resolves"], first["since_ms"]) == (first["id"], first["seen_ms"])
    assert not {"topic", "partition", "offset", "producer_id"} & first.keys()
    clock = Clock(20)
    follow(Gone(clock, 5, 10).watcher(), None, clock, show=print_report)
    assert capsys.readouterr().out == "", "people read it on standard error"


def test_a_cluster_that_is_unreachable_at_the_start_is_waited_for_on_request_and_is_a_row(tmp_path: Path) -> None:
    clock = Clock(100)
    with Journal(tmp_path) as journal, pytest.raises(ClusterFailed):
        follow(Gone(clock, 0, 50).watcher(), journal, clock)
    with Journal(tmp_path) as journal:
        follow(Gone(clock, 0, 50).watcher(told := []), journal, clock, wait=True)
    assert told[0] == "no broker answers: nobody there; asked again in 1 s"
    assert told[-1] == "watching 1 partition, and silent while nothing is wrong"
    assert [rule for rule, _, _ in blind_rows(tmp_path)] == ["no broker answers", "resolved"], "one from before"


@pytest.mark.parametrize("wait", [False, True])
def test_a_start_without_a_cluster_does_not_make_the_next_one_read_what_was_there_before(
    wait: bool, tmp_path: Path
) -> None:
    clock = Clock(3 if wait else 100)
    with Journal(tmp_path) as journal, nullcontext() if wait else pytest.raises(ClusterFailed):
        follow(Gone(clock, 0, 50).watcher(from_start=False), journal, clock, wait=wait)
    later = Gone(clock := Clock(20), 50, 50)
    later.logs[PLACE] = Log(end=7)
    with Journal(tmp_path) as journal:
        follow(watcher := later.watcher(from_start=False), journal, clock)
    assert watcher.partitions[PLACE].position == 7


def test_a_cluster_that_is_gone_later_ends_a_single_look_also_if_it_was_waited_for(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, clock = 0, Clock(100)
    monkeypatch.setattr(command, "now_ms", lambda: round(clock.now * 1000))

    def topics() -> Topics:
        nonlocal calls
        calls += 1
        if calls != 2:
            raise ClusterFailed("nobody there")
        return Written.topics(written)

    monkeypatch.setattr(written, "topics", topics)
    written.gone = {written.leader}  # so that the topics are asked for again
    with pytest.raises(ClusterFailed):
        follow(written.watcher(), None, clock, once=True, wait=True)
    assert calls == 3


def test_the_time_of_the_checkpoint_is_a_sign_of_life_with_and_without_news_and_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, touched = Clock(60), list[float]()

    def touch(path: Path) -> None:
        assert path == tmp_path / CHECKPOINT
        assert path.exists()
        touched.append(clock.now)

    monkeypatch.setattr(journals.os, "utime", touch)
    monkeypatch.setattr(command, "now_ms", lambda: round(clock.now * 1000))
    with Journal(tmp_path) as journal:
        follow(Gone(clock, 10, 50).watcher(), journal, clock)
    assert touched[0] == 1, "before there is anything to keep"
    assert max(after - before for before, after in pairwise(touched)) == 6, "a wait of 5 s and a look of 1 s"


def test_coordinators_that_do_not_tell_end_a_single_look_with_2(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "Cluster", lambda *_: written)
    call = ["watch", "--bootstrap", "localhost:9092", "--once", "--from-start"]
    written.logs[PLACE].data(7, 3, 0)
    written.known = None
    assert main(call) == 2
    assert "not judged: which transactions hang or stay prepared;" in capsys.readouterr().err
