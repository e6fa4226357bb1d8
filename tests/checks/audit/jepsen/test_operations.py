"""Histories of Jepsen: each anomaly has one that shows it, and one next to it that does not."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.jepsen.anomalies import ANOMALIES, allowed, anomalies, subscribes
from kafka_eos_checks.audit.jepsen.cycles import STARTS, cycles
from kafka_eos_checks.audit.jepsen.operations import INFO, OK, Operation, read_operations

BEGIN, END, LOST, UNKNOWN = "invoke", "ok", "fail", "info"


def text_of(*rows: tuple[int, str, str, str]) -> str:
    """Process, type, function and value of each operation, a line each."""
    lines = (
        f"{{:index {index}, :type :{kind}, :process {process}, :f :{function}, :value {value}, :time {index}}}\n"
        for index, (process, kind, function, value) in enumerate(rows)
    )
    return "".join(lines)


def over(process: int, kind: str, function: str, value: str) -> list[tuple[int, str, str, str]]:
    """An operation that begins and is over with nothing in between."""
    return [(process, BEGIN, function, "nil"), (process, kind, function, value)]


def sends(process: int, *places: str, kind: str = END) -> list[tuple[int, str, str, str]]:
    return over(process, kind, "send", f"[{' '.join(f'[:send {place}]' for place in places)}]")


def polls(process: int, *given: str, kind: str = END) -> list[tuple[int, str, str, str]]:
    return over(process, kind, "poll", f"[{' '.join(f'[:poll {{{each}}}]' for each in given)}]")


def operations(folder: Path, *rows: tuple[int, str, str, str]) -> list[Operation]:
    path = folder / "history.edn"
    path.write_text(text_of(*rows), encoding="utf-8")
    return read_operations(path)


ABCD = sends(0, ":x [0 :a]", ":x [1 :b]", ":x [2 :c]", ":x [3 :d]")
ALL = polls(9, ":x [[0 :a] [1 :b] [2 :c] [3 :d]]")
Rows = list[tuple[int, str, str, str]]

# by name: a history with the anomaly and what the evidence says of it, and one without
CASES: dict[str, tuple[Rows, str, Rows]] = {
    ":G1a": (
        [*sends(0, ":x 2", ":y 3", kind=LOST), *polls(1, ":x [[0 2]]")],
        "key :x offset 0: operation 3 (ok, process 1) was given 2, and the send of operation 1 (fail, process 0) "
        "failed",
        [*sends(0, ":x 2", ":y 3", kind=LOST), *polls(1, ":x [[0 2]]", kind=LOST)],
    ),
    ":lost-write": (
        [*sends(0, ":x [0 :a]"), *sends(0, ":x [1 :b]"), *polls(1, ":x [[1 :b]]"), *polls(1, ":x [[0 :a]]", kind=LOST)],
        "key :x offset 0: operation 1 (ok, process 0) sent :a (offset 0), and no operation that is ok was given it; "
        "operation 5 (ok, process 1) was given :b (offset 1)",
        [*sends(0, ":x [0 :a]"), *sends(0, ":x [1 :b]"), *polls(1, ":x [[0 :a]]")],
    ),
    ":unseen": (
        [*sends(0, ":x [0 :a]", ":x [1 :b]"), *polls(1, ":x [[0 :a]]")],
        "key :x offset 1: operation 1 (ok, process 0) sent :b (offset 1), which no operation that is ok was given",
        [*sends(0, ":x [0 :a]", ":x [1 :b]", kind=UNKNOWN), *polls(1, ":x [[0 :a]]")],
    ),
    ":duplicate": (
        [*sends(0, ":x [1 :a]"), *sends(1, ":x :b"), *polls(2, ":x [[2 :b] [3 :a]]")],
        "key :x offset 3: :a is at offset 1 (sent by operation 1 (ok, process 0)) and "
        "offset 3 (given to operation 5 (ok, process 2))",
        [*sends(0, ":x [1 :a]", kind=LOST), *sends(1, ":x :b"), *polls(2, ":x [[2 :b] [3 :a]]")],
    ),
    ":inconsistent-offsets": (
        [*sends(0, ":x [0 1]", ":y 1", kind=UNKNOWN), *sends(1, ":x [0 2]"), *polls(2, ":y [[5 1]]")],
        "key :x offset 0: at the offset is 1 (sent by operation 1 (info, process 0)) and 2 (sent by operation 3 "
        "(ok, process 1))",
        [*sends(0, ":x [0 1]", ":y 1", kind=UNKNOWN), *sends(1, ":x [0 2]"), *polls(2, ":x [[0 2]]")],
    ),
    ":precommitted-read": (
        over(0, END, "txn", "[[:send :x [0 :a]] [:poll {:x [[0 :a]]}]]"),
        "key :x offset 0: operation 1 (ok, process 0) was given :a, which it sent itself",
        [*over(0, END, "txn", "[[:send :x [0 :a]] [:poll {}]]"), *polls(0, ":x [[0 :a]]")],
    ),
    ":poll-skip": (
        [*ABCD, *ALL, *polls(1, ":x [[0 :a]]"), *polls(1, ":x [[3 :d]]")],
        "key :x offset 1: operation 5 (ok, process 1) ended with :a (offset 0), and operation 7 (ok, process 1) began "
        "with :d (offset 3), over :b (offset 1), :c (offset 2)",
        [*ABCD, *ALL, *polls(1, ":x [[0 :a]]"), *over(1, END, "assign", "[:y]"), *polls(1, ":x [[3 :d]]")],
    ),
    ":nonmonotonic-poll": (
        [*ABCD, *ALL, *polls(1, ":x [[0 :a] [1 :b]]"), *polls(1, ":x [[1 :b] [2 :c]]")],
        "key :x offset 1: operation 5 (ok, process 1) ended with :b (offset 1), and operation 7 (ok, process 1) began "
        "with :b (offset 1), which is not after it",
        [*ABCD, *ALL, *polls(1, ":x [[0 :a] [1 :b]]", kind=LOST), *polls(1, ":x [[0 :a] [1 :b]]")],
    ),
    ":int-poll-skip": (
        [*ABCD, *ALL, *polls(1, ":x [[0 :a]]", ":x [[2 :c]]")],
        "key :x offset 1: operation 5 (ok, process 1) was given :a (offset 0) and then :c (offset 2), over :b (offset "
        "1)",
        [*ABCD[:1], *sends(2, ":x [0 :a]", ":x [2 :c]"), *polls(1, ":x [[0 :a]]", ":x [[2 :c]]")],
    ),
    ":int-nonmonotonic-poll": (
        [*ABCD, *ALL, *polls(1, ":x [[1 :b] [0 :a]]")],
        "key :x offset 0: operation 5 (ok, process 1) was given :b (offset 1) and then :a (offset 0), which is not "
        "after it",
        [*ABCD, *ALL, *polls(1, ":x [[0 :a] [1 :b]]")],
    ),
    ":nonmonotonic-send": (
        [*sends(0, ":x [3 :c]"), *sends(0, ":x [1 :a]"), *polls(1, ":x [[1 :a] [3 :c]]")],
        "key :x offset 1: operation 1 (ok, process 0) ended with the send of :c (offset 3), and operation 3 (ok, "
        "process 0) began with that of :a (offset 1), which is not after it",
        [*sends(0, ":x [3 :c]"), *sends(2, ":x [1 :a]"), *polls(1, ":x [[1 :a] [3 :c]]")],
    ),
    ":int-nonmonotonic-send": (
        [*sends(0, ":x [3 :c]", ":x [1 :a]"), *polls(1, ":x [[1 :a] [3 :c]]")],
        "key :x offset 1: operation 1 (ok, process 0) sent :c (offset 3) and then :a (offset 1), which is not after it",
        [*sends(0, ":x [1 :a]", ":x [3 :c]"), *polls(1, ":x [[1 :a] [3 :c]]")],
    ),
    ":int-send-skip": (
        [*sends(0, ":x [1 :a]", ":x :c"), *sends(1, ":x :b", kind=UNKNOWN), *polls(2, ":x [[1 :a] [2 :b] [3 :c]]")],
        "key :x offset 2: operation 1 (ok, process 0) sent :a (offset 1) and then :c (offset 3), over :b (offset 2)",
        [*sends(0, ":x [1 :a]", ":x :b"), *sends(1, ":x :c", kind=UNKNOWN), *polls(2, ":x [[1 :a] [2 :b] [3 :c]]")],
    ),
    ":G1c": (
        [
            (0, BEGIN, "txn", "[[:send :x :a] [:poll]]"),
            (1, BEGIN, "txn", "[[:send :y :b] [:poll]]"),
            (0, END, "txn", "[[:send :x [0 :a]] [:poll {:y [[0 :b]]}]]"),
            (1, END, "txn", "[[:send :y [0 :b]] [:poll {:x [[0 :a]]}]]"),
        ],
        "key :x: operation 3 (ok, process 1) was given :a of key :x, sent by operation 2 (ok, process 0); "
        "operation 2 (ok, process 0) was given :b of key :y, sent by operation 3 (ok, process 1)",
        [
            (0, BEGIN, "txn", "[[:send :x :a] [:poll]]"),
            (1, BEGIN, "txn", "[[:send :y :b] [:poll]]"),
            (0, END, "txn", "[[:send :x [0 :a]] [:poll {}]]"),
            (1, END, "txn", "[[:send :y [0 :b]] [:poll {:x [[0 :a]]}]]"),
            *polls(2, ":y [[0 :b]]"),
        ],
    ),
    ":G1c-process": (
        [*polls(0, ":x [[0 :a]]"), *sends(0, ":x [0 :a]")],
        "key :x: operation 3 (ok, process 0) came after operation 1 (ok, process 0); "
        "operation 1 (ok, process 0) was given :a of key :x, sent by operation 3 (ok, process 0)",
        [*sends(0, ":x [0 :a]"), *polls(0, ":x [[0 :a]]")],
    ),
    ":G1c-realtime": (
        [*polls(0, ":x [[0 :a]]"), *sends(1, ":x [0 :a]")],
        "key :x: operation 3 (ok, process 1) began when operation 1 (ok, process 0) was over; "
        "operation 1 (ok, process 0) was given :a of key :x, sent by operation 3 (ok, process 1)",
        [(1, BEGIN, "send", "[[:send :x :a]]"), *polls(0, ":x [[0 :a]]"), (1, END, "send", "[[:send :x [0 :a]]]")],
    ),
    ":G0": (
        [*sends(0, ":x [0 :a]", ":y [1 :a]"), *sends(1, ":x [1 :b]", ":y [0 :b]"), *polls(2, ":x [[0 :a] [1 :b]]")],
        "key :x: operation 3 (ok, process 1) sent :b to key :x right after :a of operation 1 (ok, process 0); "
        "operation 1 (ok, process 0) sent :a to key :y right after :b of operation 3 (ok, process 1)",
        [*sends(0, ":x [0 :a]", ":y [0 :a]"), *sends(1, ":x [1 :b]", ":y [1 :b]"), *polls(2, ":x [[0 :a] [1 :b]]")],
    ),
    "G1c by order": (
        [*sends(0, ":x [0 :a]", ":y [2 :c]"), *over(1, END, "txn", "[[:poll {:x [[0 :a]]}] [:send :y [1 :b]]]")],
        "key :x: operation 3 (ok, process 1) was given :a of key :x, sent by operation 1 (ok, process 0); "
        "operation 1 (ok, process 0) sent :c to key :y right after :b of operation 3 (ok, process 1)",
        [*sends(0, ":x [0 :a]", ":y [1 :c]"), *over(1, END, "txn", "[[:poll {:x [[0 :a]]}] [:send :y [2 :b]]]")],
    ),
}


def test_every_anomaly_has_a_case() -> None:
    assert list(CASES) == list(ANOMALIES)


@pytest.mark.parametrize("name", CASES)
def test_a_history_with_the_anomaly_shows_it_in_words_and_one_without_does_not(name: str, tmp_path: Path) -> None:
    wrong, words, right = CASES[name]
    found, _ = anomalies(operations(tmp_path, *wrong), "r")
    assert [each.in_words() for each in found if each.rule == name] == [f"{name}: r {words}"]
    assert [each for each in anomalies(operations(tmp_path, *right), "r")[0] if each.rule == name] == []


def test_without_invocations_the_order_of_a_process_is_still_known(tmp_path: Path) -> None:
    read = operations(tmp_path, *CASES[":G1c-process"][0][1::2])
    assert [each.rule for each in anomalies(read, "r")[0]] == [":G1c-process"]


def test_of_several_values_at_an_offset_each_has_to_be_read(tmp_path: Path) -> None:
    rows = [*sends(0, ":x [0 :a]"), *sends(0, ":x [0 :b]", ":x [2 :c]"), *polls(1, ":x [[0 :b] [2 :c]]")]
    found = anomalies(operations(tmp_path, *rows), "r")[0]
    assert [(each.rule, each.offset) for each in found if each.rule == ":lost-write"] == [(":lost-write", 0)]
    assert "sent :a" in found[0].evidence


def test_a_send_of_unknown_outcome_counts_as_soon_as_one_of_its_values_was_read(tmp_path: Path) -> None:
    sent = [*sends(0, ":x :a", ":y [0 :b]", kind=UNKNOWN), *sends(1, ":y :c", kind=UNKNOWN)]
    behind = polls(3, ":y [[1 :c]]")
    assert anomalies(operations(tmp_path, *sent, *behind), "r")[0] == []
    [finding] = anomalies(operations(tmp_path, *sent, *polls(2, ":x [[0 :a]]"), *behind), "r")[0]
    assert (finding.rule, finding.offset) == (":lost-write", 0)
    assert "which happened, because operation 5 (ok, process 2) was given :a" in finding.evidence


def test_only_an_operation_that_is_ok_moves_a_process_on(tmp_path: Path) -> None:
    skipped = [*ABCD, *ALL, *polls(1, ":x [[0 :a]]"), *polls(1, ":x [[1 :b]]", kind=LOST)]
    found = anomalies(operations(tmp_path, *skipped, *polls(1, ":x [[2 :c] [3 :d]]", kind=UNKNOWN)), "r")[0]
    assert [(each.rule, each.offset) for each in found] == [(":poll-skip", 1)]


def test_after_a_failed_operation_a_process_goes_on_from_where_the_last_one_ended(tmp_path: Path) -> None:
    numbers = [
        *sends(0, *(f":x [{n} {n}]" for n in range(6))),
        *polls(9, f":x [{' '.join(f'[{n} {n}]' for n in range(6))}]"),
    ]
    begun = [*numbers, *polls(1, ":x [[0 0]]"), *polls(1, ":x [[1 1] [2 2]]", kind=LOST)]
    assert anomalies(operations(tmp_path, *begun, *polls(1, ":x [[1 1]]", kind=UNKNOWN)), "r")[0] == []
    gone_on = [*begun, *polls(1, ":x [[3 3] [4 4]]", kind=LOST), *polls(1, ":x [[5 5]]")]
    found = anomalies(operations(tmp_path, *gone_on), "r")[0]
    assert [each.rule for each in found] == [":poll-skip", ":poll-skip"]
    assert [each.evidence.partition(", over ")[2] for each in found] == [
        "1 (offset 1), 2 (offset 2)",
        "1 (offset 1), 2 (offset 2), 3 (offset 3) and 1 more",
    ]


def test_of_values_that_are_all_at_the_same_two_offsets_each_is_a_duplicate(tmp_path: Path) -> None:
    rows = [row for n in range(10) for row in (*sends(0, f":x [0 {n}]"), *polls(1, f":x [[1 {n}]]"))]
    found = anomalies(operations(tmp_path, *rows), "r")[0]
    values = [each.evidence.partition(" is at ")[0] for each in found if each.rule == ":duplicate"]
    assert sorted(values, key=int) == [str(n) for n in range(10)]
    conflicts = [each for each in found if each.rule == ":inconsistent-offsets"]
    assert [each.offset for each in conflicts] == [0, 1]
    assert all(each.evidence.endswith("and 7 more") for each in conflicts)


def test_what_a_failed_poll_was_given_counts_and_what_a_failed_send_was_told_does_not(tmp_path: Path) -> None:
    rows = [*sends(0, ":x [1 0]"), *sends(0, ":x [2 1]", kind=LOST), *polls(1, ":x [[11 0] [12 1]]", kind=LOST)]
    found = anomalies(operations(tmp_path, *rows), "r")[0]
    assert [(each.rule, each.offset) for each in found] == [(":unseen", 1), (":duplicate", 11)]
    [unseen] = anomalies(operations(tmp_path, *ABCD), "r")[0]
    assert unseen.evidence.endswith(" sent :a (offset 0), which no operation that is ok was given and 3 more")


def test_a_process_that_is_assigned_a_key_again_goes_on_unless_it_seeks_to_the_beginning(tmp_path: Path) -> None:
    again = [*polls(1, ":x [[0 :a]]"), *over(1, END, "assign", "[:x :y]"), *polls(1, ":x [[0 :a]]")]
    path = tmp_path / "history.edn"
    text = text_of(*ABCD, *ALL, *again)
    path.write_text(text, encoding="utf-8")
    assert [each.rule for each in anomalies(read_operations(path), "r")[0]] == [":nonmonotonic-poll"]
    path.write_text(text.replace("[:x :y]", "[:x :y], :seek-to-beginning? true"), encoding="utf-8")
    assert anomalies(read_operations(path), "r")[0] == []


def test_a_key_that_was_rebalanced_meanwhile_may_jump_within_an_operation(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    jumped = text_of(*ABCD, *ALL, *polls(1, ":x [[0 :a]]", ":x [[2 :c]]"))
    log = ":rebalance-log [{:type :revoked, :keys [:y :x]}]"
    path.write_text(jumped.replace("[[2 :c]]}]]", f"[[2 :c]]}}]], {log}"), encoding="utf-8")
    assert anomalies(read_operations(path), "r")[0] == []


@pytest.mark.parametrize("line", ["{:type :ok, :process 0, :f {}}", "{:type :ok, :process 0, :f [{}], :value 1}"])
def test_an_operation_of_another_kind_is_left_out_whatever_it_is(line: str, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_text(line, encoding="utf-8")
    assert read_operations(path) == []


def test_a_rebalance_that_names_no_keys_gives_none(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_text("{:type :ok, :process 0, :f :poll, :value [], :rebalance-log [{:keys 7} {:keys [8]} {} 9]}")
    assert [each.rebalanced for each in read_operations(path)] == [{8}]


def test_with_subscribe_a_skip_between_operations_is_allowed_and_told(tmp_path: Path) -> None:
    skips = CASES[":poll-skip"][0]
    assert ":poll-skip" not in allowed(subscribes(operations(tmp_path, *skips)))
    assert [each.rule for each in run([tmp_path / "history.edn"]).findings] == [":poll-skip"]
    subscribed = operations(tmp_path, *over(1, END, "subscribe", "[:x]"), *skips)
    assert {":poll-skip", ":nonmonotonic-poll"} <= allowed(subscribes(subscribed))
    result = run([tmp_path / "history.edn"])
    [verdict] = [each for each in result.verdicts if each.name == ":poll-skip"]
    assert (result.findings, verdict.ok, verdict.figures["allowed"]) == ((), True, 1)
    assert verdict.evidence.startswith("allowed: :poll-skip: ")


def test_a_value_that_nobody_sent_is_unknown(tmp_path: Path) -> None:
    found, figures = anomalies(operations(tmp_path, *polls(0, ":x [[0 :a]]")), "r")
    assert (found, figures["unknown"], figures["given"]) == ([], 1, 1)


def test_an_operation_that_never_ends_may_still_happen_and_only_those_of_clients_count(tmp_path: Path) -> None:
    rows = [
        (0, BEGIN, "send", "[[:send :x :a]]"),
        (1, BEGIN, "crash", "nil"),
        (1, UNKNOWN, "crash", "nil"),
        *polls(2, ":x [[0 :a]]"),
    ]
    path = tmp_path / "history.edn"
    killed = '{:type :info, :process :nemesis, :f :kill, :value {"n1" #{:killed}}, :error #object[x.Y 0x1 "…"]}\n'
    path.write_text(text_of(*rows) + killed, encoding="utf-8")
    read = read_operations(path)
    assert [(each.index, each.outcome) for each in read] == [(4, OK), (0, INFO)]
    assert anomalies(read, "r")[0] == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{:type :ok", "no EDN: '{' is not closed"),
        ("17", "expected an operation, a map, found 17"),
        ("{:type :ok, :f :txn}", "an operation without :process"),
        ("{:type :done, :process 0, :f :txn}", ":type :done is none of :invoke, :ok, :fail, :info"),
        ("{:type {1 2}, :process 0, :f :txn}", ":type {1: 2} is none of :invoke, :ok, :fail, :info"),
        ("{:type :ok, :process 0, :f :txn, :value 3}", "expected a vector as the :value of :txn, found 3"),
        (
            "{:type :ok, :process 0, :f :txn, :value [[:append 1 2]]}",
            "(:append, 1, 2) is neither [:send key value] nor [:poll {key [[offset value] …]}]",
        ),
        ("{:type :ok, :process 0, :f :poll, :value [[:poll {1 [[2]]}]]}", "expected [offset value], found (2,)"),
        ("{:type :ok, :process 0, :f :poll, :value [[:poll {1 [[:a 2]]}]]}", "offset :a is no integer"),
        (
            f"{{:type :ok, :process 0, :f :poll, :value [[:poll {{1 [[:{'a' * 60} 2]]}}]]}}",
            f"offset :{'a' * 59}… is no integer",
        ),
        (
            f"{{:type :ok, :process 0, :f :poll, :value [[:poll {{1 [[:{'a' * 59} 2]]}}]]}}",
            f"offset :{'a' * 59} is no integer",
        ),
        (
            "{:type :ok, :process 0, :f :send, :value [[:send 1 [9 5]]]}",
            "5 is sent to key 1 a second time; the anomalies are defined for values that are sent once",
        ),
        ("{:type :invoke, :process 7, :f :txn, :value []}", "process 7 begins a second operation"),
    ],
)
def test_a_line_that_is_no_operation_of_the_workload_is_named(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    before = text_of((0, END, "send", "[[:send 1 [0 5]]]"), (7, BEGIN, "poll", "[[:poll]]"))
    path.write_text(f"{before}{line}\n", encoding="utf-8")
    with pytest.raises(MalformedHistory) as error:
        read_operations(path)
    assert (error.value.line, error.value.reason) == (3, reason)
    assert cli.main(["audit", str(path)]) == 2


def test_the_command_takes_a_history_or_a_folder_of_jepsens_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operations(tmp_path, *ABCD, *ALL)
    assert cli.main(["audit", str(tmp_path / "history.edn")]) == 0
    assert cli.main(["audit", str(tmp_path)]) == 0
    operations(tmp_path, *CASES[":G1a"][0])
    capsys.readouterr()
    assert cli.main(["audit", str(tmp_path), "--redact", "--findings", str(tmp_path / "f.jsonl")]) == 1
    told = capsys.readouterr().out
    assert "was given #" in told
    assert '"rule":":G1a"' in (tmp_path / "f.jsonl").read_text()


def test_a_history_of_another_workload_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operations(tmp_path, (0, BEGIN, "read", "nil"), (0, END, "read", "3"))
    assert cli.main(["audit", str(tmp_path)]) == 2
    assert "no :send, :poll or :txn" in capsys.readouterr().err


# --- a log that does what Kafka does ---------------------------------------------------------------------------------


@dataclass
class Kafka:
    """Logs with transactions one after the other, and readers of what is committed."""

    random: random.Random
    logs: dict[int, list[int | None]] = field(default_factory=lambda: defaultdict(list))
    positions: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    sent: int = 0
    rows: Rows = field(default_factory=list)

    def poll(self, process: int, key: int, most: int) -> str:
        start, log = self.positions[process, key], self.logs[key]
        own = [f"[{offset} {value}]" for offset, value in enumerate(log) if offset >= start and value is not None][
            :most
        ]
        if own:
            self.positions[process, key] = int(own[-1][1:].split()[0]) + 1
        return f"[:poll {{{key} [{' '.join(own)}]}}]" if own else "[:poll {}]"

    def transaction(self, process: int) -> None:
        kind = self.random.choice((END, END, END, LOST, UNKNOWN))
        before, appended, parts = dict(self.positions), [], []
        for _ in range(self.random.randint(1, 4)):
            key = self.random.randint(0, 2)
            if self.random.random() < 0.5:
                parts.append(self.poll(process, key, self.random.randint(1, 5)))
                continue
            self.sent += 1
            appended.append((key, self.sent))
        is_committed = kind == END or (kind == UNKNOWN and self.random.random() < 0.5)
        for key, value in appended:
            self.logs[key].append(value if is_committed else None)
            shown = f"[{len(self.logs[key]) - 1} {value}]" if self.random.random() < 0.8 else f"[nil {value}]"
            parts.append(f"[:send {key} {shown}]")
        for key in {key for key, _ in appended}:
            self.logs[key].append(None)  # a marker
        if kind != END:
            self.positions = defaultdict(int, before)
        self.rows += [(process, BEGIN, "txn", "nil"), (process, kind, "txn", f"[{' '.join(parts)}]")]

    def history(self, transactions: int) -> Rows:
        for _ in range(transactions):
            self.transaction(self.random.randint(0, 3))
        for key in range(3):
            self.rows += over(9, END, "poll", f"[{self.poll(9, key, 1 << 30)}]")
        return self.rows


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_behaves_like_kafka_has_only_allowed_anomalies(seed: int, tmp_path: Path) -> None:
    read = operations(tmp_path, *Kafka(random.Random(seed)).history(200))
    found = {each.rule for each in anomalies(read, "r")[0]}
    assert found <= allowed(subscribes(read)), f"seed {seed}"


# --- cycles ----------------------------------------------------------------------------------------------------------


def test_of_each_component_a_shortest_cycle_is_found() -> None:
    assert list(cycles([[1], [2], [0, 1], [4], [5], []])) == [[1, 2]]
    assert list(cycles([[1], [0], [3], [4], [2]])) == [[0, 1], [2, 3, 4]]
    assert list(cycles([[1, 2], [2], []])) == []


def test_nodes_that_do_not_count_make_a_cycle_no_longer() -> None:
    through_moments: list[list[int]] = [[3], [2], [0], [4], [5], [1, 0]]  # 0 -> 3 -> 4 -> 5 -> 0, or 5 -> 1 -> 2 -> 0
    assert list(cycles(through_moments, lambda node: node in {3, 4, 5})) == [[0, 3, 4, 5]]
    or_back: list[list[int]] = [[1, 3], [0], [], [4], [5], [0]]  # 0 -> 3 -> 4 -> 5 -> 0, or 0 -> 1 -> 0
    assert list(cycles(or_back, lambda node: node in {3, 4, 5})) == [[0, 3, 4, 5]]
    round_about = [*([node + 1] for node in range(STARTS)), [STARTS + 1], [STARTS, STARTS + 2], [0]]
    assert list(cycles(round_about, lambda node: node < STARTS)) == [[STARTS, STARTS + 1]], "no search starts there"


@pytest.mark.parametrize("seed", range(30))
def test_a_cycle_is_found_exactly_where_a_walk_comes_back(seed: int) -> None:
    rng = random.Random(seed)
    edges = [sorted({rng.randrange(12) for _ in range(rng.randint(0, 2))} - {node}) for node in range(12)]

    def reached(start: int) -> set[int]:
        seen: set[int] = set()
        ready = list(edges[start])
        while ready:
            if (node := ready.pop()) not in seen:
                seen.add(node)
                ready += edges[node]
        return seen

    on_cycles = {node for node in range(12) if node in reached(node)}
    found = list(cycles(edges))
    assert {frozenset(n for n in on_cycles if n in reached(c[0]) and c[0] in reached(n)) for c in found} == {
        frozenset(n for n in on_cycles if n in reached(m) and m in reached(n)) for m in on_cycles
    }
    for cycle in found:
        assert all(after in edges[node] for node, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True))


def test_figures_count_what_was_looked_at(tmp_path: Path) -> None:
    figures: dict[str, Any] = anomalies(operations(tmp_path, *ABCD, *ALL), "r")[1]
    assert figures == {"operations": 2, "sent": 4, "given": 4, "unknown": 0}
