"""Logs that the cleaner and retention have been at: a trace begins in the middle, and is judged from there on."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos.formats.record_batch import ControlType, Record, build_batch
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import TOPIC, TransactionLogKey, TransactionLogValue
from kafka_eos.formats.transaction_log import TransactionState as S
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos_checks import cli
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.kit.paths import recordings_folder
from kafka_eos_checks.kit.recording import kept_recording, unpack
from kafka_eos_checks.kit.verdict import Standing, read_verdicts
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.traces import coordinators, leaders
from kafka_eos_checks.traces.clients import of_paths, verdict_on_logs
from kafka_eos_checks.traces.coordinators import Recorded, ToldRecord, WrittenBatch, WrittenMarker
from kafka_eos_checks.traces.markers import FirstBatch, begin_of_new
from kafka_eos_checks.traces.replays import in_process
from kafka_eos_checks.traces.scan import pieces_of
from kafka_eos_checks.traces.validation import RememberingJudge, TraceUnusable, validate

from .cut_logs import cut_ends, cut_logs, seeds
from .test_coordinators import judge, recorded, value
from .test_replays import RULES, in_the_readable_way, said

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def committed(epoch: int, version: int = 2) -> list[TransactionLogValue | None]:
    """A transaction of one partition that began with an epoch."""
    after = epoch + (version == 2)
    ends = [value(state, after, version=version) for state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)]
    return [value(S.ONGOING, epoch, version=version), *ends]


def marker(epoch: int, offset: int, decision: ControlType = COMMIT, reign: int = 0) -> WrittenMarker:
    return WrittenMarker(7, epoch, decision, reign, offset)


def compacted(
    states: Sequence[TransactionLogValue | None],
    markers: Sequence[WrittenMarker | WrittenBatch] = (),
    reigns: Sequence[int] | None = None,
) -> Recorded:
    """The log of a transactional id of which only the last record before these is left; its first record is that."""
    logs = recorded(list(states), list(markers), list(reigns or [0] * len(states)))
    return replace(logs, given={"id": 1}, begins={f"{TOPIC}-0": 1})


def retained(
    states: Sequence[TransactionLogValue | None],
    markers: Sequence[WrittenMarker | WrittenBatch],
    reigns: Sequence[int] | None = None,
) -> Recorded:
    """A whole coordinator's log, and a partition whose first batches are gone."""
    return replace(recorded(list(states), list(markers), list(reigns or [0] * len(states))), begins={"t-0": 1})


# --- topics that were made again ------------------------------------------------------------------------------------


def at_ms(states: Sequence[TransactionLogValue | None]) -> list[TransactionLogValue | None]:
    """Records that were written at 0 ms, 10 ms, 20 ms, …"""
    return [v and replace(v, transaction_last_update_timestamp_ms=10 * place) for place, v in enumerate(states)]


@pytest.mark.parametrize("version", [1, 2])
def test_decisions_that_were_complete_before_a_log_was_new_need_no_marker_there(version: int) -> None:
    epochs = (0, 1, 2) if version == 2 else (0, 0, 0)
    states = at_ms([value(S.EMPTY, 0), *(row for epoch in epochs for row in committed(epoch, version))])
    ends = [epoch + (version == 2) for epoch in epochs]  # complete at 30, 60 and 90 ms

    def found(began_ms: int, *markers: WrittenMarker) -> str:
        logs = recorded(states, list(markers), [0] * len(states))
        return judge(replace(logs, new={"t-0": began_ms})).found

    assert found(31, marker(ends[1], 2), marker(ends[2], 4)) == "accepted"
    assert found(30, marker(ends[1], 2), marker(ends[2], 4)).startswith("rejected"), "complete when the log began"
    assert found(31, marker(ends[2], 4)).startswith("rejected"), "the second transaction has no marker"
    assert found(61, marker(ends[2], 4)) == "accepted"
    assert found(61, marker(ends[1], 0), marker(ends[2], 4)) == "accepted", "with the second one's marker it began"
    assert found(2**63 - 1) == "accepted", "it is empty"


def test_only_a_log_with_the_first_leader_epoch_at_offset_0_was_new() -> None:
    assert begin_of_new(FirstBatch(0, 0, 70)) == 70
    assert begin_of_new(FirstBatch(0, 1, 70)) == begin_of_new(FirstBatch(5, 0, 70)) == -1
    assert begin_of_new(None) == 2**63 - 1


# --- coordinators' logs that were compacted ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "markers"),
    [
        ([value(S.EMPTY, 4), *committed(4)], [marker(5, 9)]),
        ([value(S.ONGOING, 4), *committed(4)[1:]], [marker(5, 9)]),
        ([value(S.PREPARE_COMMIT, 5), value(S.COMPLETE_COMMIT, 5)], [marker(5, 9)]),
        ([value(S.PREPARE_ABORT, 5), value(S.COMPLETE_ABORT, 5)], [marker(5, 9, ABORT)]),
        ([value(S.COMPLETE_COMMIT, 4), *committed(4)], [marker(5, 9)]),
        ([value(S.COMPLETE_ABORT, 4), *committed(4, version=1)], [marker(4, 9)]),
        ([None, value(S.EMPTY, 0), *committed(0)], [marker(1, 9)]),
        ([value(S.EMPTY, 4), value(S.EMPTY, 4)], []),  # the client has asked again, with the epoch before
        ([value(S.COMPLETE_COMMIT, 4), value(S.EMPTY, 4)], []),
        ([value(S.COMPLETE_COMMIT, 4), value(S.EMPTY, 5)], []),
        ([value(S.EMPTY, 0), value(S.EMPTY, 1)], []),
    ],
)
def test_a_trace_begins_in_the_state_of_the_last_record_before_those_that_are_whole(
    states: list[TransactionLogValue | None], markers: list[WrittenMarker]
) -> None:
    logs = compacted(states, markers)
    assert judge(logs).found == "accepted"
    if states[0] not in (None, value(S.EMPTY, 0)):
        assert judge(replace(logs, given={})).found.startswith("rejected"), "as the first record of a whole log"


@pytest.mark.parametrize(
    ("states", "markers"),
    [
        ([value(S.EMPTY, 4), value(S.EMPTY, 6)], []),
        ([value(S.EMPTY, 4), value(S.ONGOING, 5)], []),
        ([value(S.ONGOING, 4), value(S.COMPLETE_COMMIT, 5)], [marker(5, 9)]),
        ([value(S.PREPARE_COMMIT, 5), value(S.COMPLETE_ABORT, 5)], [marker(5, 9)]),
        ([value(S.PREPARE_COMMIT, 5), value(S.COMPLETE_COMMIT, 5)], []),
        ([value(S.PREPARE_COMMIT, 5), value(S.COMPLETE_COMMIT, 5)], [marker(5, 9, ABORT)]),
        ([value(S.COMPLETE_COMMIT, 5), value(S.COMPLETE_ABORT, 5)], []),
        ([None, value(S.EMPTY, 1)], []),
        ([value(S.EMPTY, 4), *committed(4)], []),
    ],
)
def test_what_follows_the_first_record_is_judged(
    states: list[TransactionLogValue | None], markers: list[WrittenMarker]
) -> None:
    assert judge(compacted(states, markers)).found.startswith("rejected")


@pytest.mark.tlc
def test_tlc_begins_where_the_reference_begins() -> None:
    good = compacted(
        [value(S.PREPARE_COMMIT, 5), value(S.COMPLETE_COMMIT, 5), *committed(5)], [marker(5, 8), marker(6, 9)]
    )
    bad = compacted([value(S.COMPLETE_COMMIT, 5), value(S.EMPTY, 7)])
    again = compacted([value(S.EMPTY, 5), value(S.EMPTY, 5)])
    whole = recorded([value(S.EMPTY, 0), *committed(0)], [marker(1, 9)], [0] * 4)
    all_traces = [
        replace(trace, name=name)
        for name, logs in (("good", good), ("bad", bad), ("whole", whole), ("again", again))
        for trace in coordinators.coordinator_traces(logs)
    ]
    base = Registry().get("CoordinatorOfTraces")
    model = coordinators.coordinator_model(base, all_traces, versions=frozenset({1, 2}))
    found = validate(model, TransactionCoordinator, all_traces)
    assert [(each.reference_index, each.tlc_index) for each in found] == [
        (None, None),
        (2, 2),
        (None, None),
        (None, None),
    ]


def test_a_first_record_whose_append_was_given_up_is_passed_over() -> None:
    given_up = [value(S.PREPARE_ABORT, 5), value(S.ONGOING, 4), *committed(4)[1:]]
    logs = compacted(given_up, [marker(5, 9)])
    assert judge(logs).found == "accepted"
    records = [
        ToldRecord(0, offset, None if v is None else coordinators.transition_of(v)) for offset, v in enumerate(given_up)
    ]
    given, rest = coordinators.split_given(records, given=True)
    assert given is not None
    assert (given.offset, [record.offset for record in rest]) == (1, [2, 3])
    assert coordinators.split_given(records, given=False) == (None, records)
    assert coordinators.split_given([], given=True) == (None, ())


def test_markers_up_to_the_first_records_epoch_may_be_of_earlier_transactions_and_later_ones_not() -> None:
    states = [value(S.COMPLETE_COMMIT, 4), *committed(4)]
    earlier = [marker(3, 2), marker(4, 4), marker(4, 5, ABORT)]
    assert judge(compacted(states, [*earlier, marker(5, 9)])).found == "accepted"
    stray = judge(
        compacted(states, [*earlier, marker(5, 9), WrittenBatch(7, 5, "transactional", 10), marker(5, 11, ABORT)])
    )
    assert "of no transaction" in stray.explanation
    assert "of no transaction" in judge(compacted([None, value(S.EMPTY, 0)], [marker(0, 2)])).explanation


def test_a_transactional_id_of_which_only_the_last_record_is_left_has_no_trace() -> None:
    assert coordinators.coordinator_traces(compacted([value(S.COMPLETE_COMMIT, 4)])) == []
    assert len(coordinators.coordinator_traces(recorded([], [], []))) == 1


def test_records_are_taken_from_the_last_one_before_the_place_from_which_on_the_log_is_whole() -> None:
    records = [ToldRecord(0, offset, None) for offset in (2, 5, 9)]
    for begin, offsets in ((0, [2, 5, 9]), (2, [2, 5, 9]), (3, [2, 5, 9]), (5, [2, 5, 9]), (6, [5, 9]), (10, [9])):
        assert [record.offset for record in coordinators.since(records, begin)] == offsets


def test_leaders_are_judged_by_version_1_where_the_coordinator_lacks_records() -> None:
    states = [value(S.COMPLETE_COMMIT, 4), *committed(4)]
    assert leaders.versions(compacted(states)) == {7: 1}
    assert leaders.versions(compacted([value(S.EMPTY, 4)])) == {7: 1}
    assert leaders.versions(recorded(list(states), [], [0] * 4)) == {7: 2}


# --- partitions whose first batches are gone -------------------------------------------------------------------------


def three(version: int) -> list[TransactionLogValue | None]:
    """Three transactions; those of version 1 have the same epoch."""
    epochs = (0, 1, 2) if version == 2 else (0, 0, 0)
    return [value(S.EMPTY, 0, version=version), *(row for epoch in epochs for row in committed(epoch, version))]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("there", "verdict"), [("123", True), ("23", True), ("3", True), ("", True), ("1", False)])
def test_markers_before_the_first_one_that_is_there_are_taken_for_written(
    version: int, there: str, verdict: bool
) -> None:
    markers = [marker(int(number) if version == 2 else 0, 10 * int(number)) for number in there]
    data = [WrittenBatch(7, each.epoch, "transactional", each.offset - 1) for each in markers]
    entries = sorted([*markers, *data], key=lambda entry: entry.offset)
    logs = retained(three(version), entries)
    if version == 1 and there == "1":
        verdict = True  # it may as well be the third one's
    assert (judge(logs).found == "accepted") is verdict
    whole = judge(replace(logs, begins={})).found == "accepted"
    assert whole is (there == "123"), "in a whole log none may be missing"


def test_a_missing_marker_of_version_1_between_others_is_missed() -> None:
    states = [value(S.EMPTY, 0, version=1)]
    for state in ("COMMIT", "ABORT", "COMMIT", "ABORT"):
        states.append(value(S.ONGOING, 0, version=1))
        states += [value(S[f"{step}_{state}"], 0, version=1) for step in ("PREPARE", "COMPLETE")]
    data = [WrittenBatch(7, 0, "transactional", offset) for offset in (0, 2, 4, 6)]
    first, second, third, last = marker(0, 1), marker(0, 3, ABORT), marker(0, 5), marker(0, 7, ABORT)

    def found(*markers: WrittenMarker) -> str:
        return judge(retained(states, sorted([*data, *markers], key=lambda entry: entry.offset))).found

    assert found(first, second, third, last) == "accepted"
    assert found(second, third, last) == found(third, last) == found(last) == "accepted"
    assert found(first, third, last).startswith("rejected")


def test_a_decision_that_two_coordinators_marked_is_one_although_others_are_gone() -> None:
    states = three(1)
    reigns = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    both = [marker(0, 4, reign=0), WrittenBatch(7, 0, "transactional", 5), marker(0, 6, reign=0), marker(0, 7, reign=1)]
    assert judge(retained(states, [WrittenBatch(7, 0, "transactional", 3), *both], reigns)).found == "accepted"
    assert judge(retained(states, both[2:], reigns)).found == "accepted"
    assert judge(retained(states, both[3:], reigns)).found == "accepted"
    assert judge(retained(states, both[:3], reigns)).found.startswith("rejected"), "the last one is not among the first"
    first = [WrittenBatch(7, 0, "transactional", 3), marker(1, 4)]
    lacking = retained(three(2), [*first, WrittenBatch(7, 2, "transactional", 5), marker(3, 6, reign=1)], reigns)
    assert judge(lacking).found.startswith("rejected"), "the second one is not gone, because the first one is there"


def test_a_marker_of_no_transaction_is_told_in_a_partition_whose_first_batches_are_gone() -> None:
    own = [
        entry
        for at in (1, 2, 3)
        for entry in (WrittenBatch(7, at - 1, "transactional", 10 * at), marker(at, 10 * at + 1))
    ]
    assert judge(retained(three(2), own)).found == "accepted"
    for epoch in (1, 3):
        more = [*own[: 2 * epoch], WrittenBatch(7, epoch, "transactional", 40), marker(epoch, 41)]
        assert "of no transaction" in judge(retained(three(2)[: 1 + 3 * epoch], more)).explanation


def test_a_decision_over_two_elections_may_have_a_marker_of_each_coordinator_although_others_are_gone() -> None:
    reigns = [4, 4, 4, 4, 4, 4, 4, 4, 4, 6]
    late = [
        *(marker(0, 4, reign=4), WrittenBatch(7, 0, "transactional", 5)),
        *(marker(0, 6, reign=4), marker(0, 7, reign=5), marker(0, 8, reign=6)),
    ]
    for first in range(len(late)):
        entries = [WrittenBatch(7, 0, "transactional", 3), *late] if not first else late[first:]
        assert judge(retained(three(1), entries, reigns)).found == "accepted", f"from {first} on"


def test_copies_with_a_fault_are_made_of_transactions_whose_markers_all_have_to_be_there() -> None:
    entries = [WrittenBatch(7, 0, "transactional", 8), marker(1, 9)]
    whole = recorded([value(S.EMPTY, 0), *committed(0)], entries, [0] * 4)
    names = {"a commit is completed as an abort", "an epoch is left out", "a marker is missing", "a marker says abort"}
    assert coordinators.spoiled(whole).keys() == names
    assert coordinators.spoiled(replace(whole, begins={"t-0": 1})) == {}
    assert coordinators.spoiled(replace(whole, given={"id": 1}, begins={f"{TOPIC}-0": 1})).keys() == names
    assert coordinators.spoiled(replace(whole, given={"id": 9}, begins={f"{TOPIC}-0": 9})) == {}
    same = compacted([value(S.COMPLETE_COMMIT, 0, version=1), *committed(0, version=1)], [marker(0, 9)])
    assert coordinators.spoiled(same) == {}, "its marker may be of an earlier one"


def test_the_first_entry_of_a_producer_may_repeat_a_marker_that_is_gone() -> None:
    logs = retained(three(2)[:4], [marker(1, 6), WrittenBatch(7, 1, "plain", 7)])
    assert [each.again for each in logs.markers["t-0"]] == [True]
    assert [each.again for each in replace(logs, begins={}).markers["t-0"]] == [False]
    assert judge(logs).found == "accepted"
    assert judge(retained([value(S.EMPTY, 0)], [marker(0, 6)])).found == "accepted"
    assert judge(recorded([value(S.EMPTY, 0)], [marker(0, 6)], [0])).found.startswith("rejected")


def test_a_log_lacks_a_marker_that_the_cleaner_has_emptied(tmp_path: Path) -> None:
    def data(offset: int) -> bytes:
        return build_batch(
            [Record(value=b"v")],
            base_offset=offset,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ).encode()

    emptied = build_batch(
        [], base_offset=1, last_offset_delta=0, is_transactional=True, is_control=True, producer_id=7, producer_epoch=0
    )
    write_segment(tmp_path / "t-0" / f"{0:020d}.log", [data(0), emptied.encode(), data(2)])
    key = TransactionLogKey(transactional_id="id").encode()
    records = [(offset, value(S.EMPTY, offset)) for offset in range(2)]
    batches = [build_batch([Record(key=key, value=v.encode())], base_offset=at).encode() for at, v in records]
    write_segment(tmp_path / f"{TOPIC}-0" / f"{0:020d}.log", batches)
    logs = coordinators.read_recorded(tmp_path)
    assert logs.begins == {"t-0": 2}
    assert [entry.offset for entry in logs.entries["t-0"]] == [2]
    rows = in_process(pieces_of([tmp_path]), RULES).to_pylist()
    assert [(row["trace"], row["position"]) for row in rows if row["subject"] == "log"] == [("t-0", 2)]


# --- recordings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_bytes", [1_000, 1 << 20])
@pytest.mark.parametrize("piece_bytes", [1, 5_000, 1 << 20])
def test_a_hole_is_found_wherever_pieces_and_blocks_end(
    block_bytes: int, piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "BLOCK_BYTES", block_bytes)
    for hole in (1, 2, 6, 11):
        own = [
            build_batch([Record(value=b"v" * 900)], base_offset=at + (at >= hole), producer_id=7, producer_epoch=0)
            for at in range(12)
        ]
        write_segment(tmp_path / "t-0" / f"{0:020d}.log", [batch.encode() for batch in own])
        pieces = pieces_of([tmp_path], piece_bytes)
        assert (len(pieces) > 1) == (piece_bytes < 1 << 20)
        rows = in_process(pieces, RULES).to_pylist()
        assert [row["position"] for row in rows if row["subject"] == "log"] == [hole + 1], f"a hole at {hole}"


def test_logs_that_begin_later_are_named_and_the_others_counted() -> None:
    begins = {f"t-{number}": 10 * number for number in range(1, 6)}
    found = verdict_on_logs("x", begins)
    words = "t-1 at offset 10, t-2 at offset 20, t-3 at offset 30 and 2 more"
    assert (found.found, found.ok) == (f"all readable; judged from where they lack nothing: {words}", True)
    damaged = verdict_on_logs("x", {}, 2, "why")
    assert (damaged.found, damaged.ok) == ("2 not whole, although traces may depend on them", False)


def test_a_path_with_a_damaged_log_is_none_without_anything_to_replay() -> None:
    readable, damaged = (verdict_on_logs("x", {"t-0": 5}, count, "why" * count) for count in (0, 1))
    with pytest.raises(TraceUnusable, match=r"^x: nothing to replay"):
        of_paths([(Path("x"), [readable])])
    assert of_paths([(Path("x"), [damaged])]) == [damaged]


def test_the_torn_end_of_the_last_of_three_segments_is_left_out(tmp_path: Path) -> None:
    for at in range(3):
        batch = build_batch([Record(value=b"v")], base_offset=at, producer_id=7, producer_epoch=0, base_sequence=at)
        torn = batch.encode()[:-3] if at == 2 else batch.encode()
        path = tmp_path / "t-0" / f"{at:020d}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(torn)
    assert [entry.offset for entry in coordinators.read_recorded(tmp_path).entries["t-0"]] == [0, 1]


@pytest.mark.parametrize("name", ["transactions", "transactions-3.9"])
@pytest.mark.parametrize("seed", seeds(2, 4))
def test_what_is_left_of_a_recording_is_accepted_whatever_was_taken(name: str, seed: int, tmp_path: Path) -> None:
    unpack(kept_recording(name), tmp_path)
    cut_logs(tmp_path / "brokers", random.Random(seed))
    found = said(in_process(pieces_of([tmp_path / "brokers"]), RULES))
    readable = {key: steps for key, steps in found.items() if key[0] != "log"}
    assert all(position is None for _, position in readable.values()), f"seed {seed}"
    assert readable == in_the_readable_way(tmp_path / "brokers"), f"seed {seed}"
    begins = {trace: position for (subject, trace), (_, position) in found.items() if subject == "log"}
    assert begins == coordinators.read_recorded(tmp_path / "brokers").begins, f"seed {seed}"
    assert len(begins) > 10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compacted") / "made"
    assert cli.main(["lab", "generate", str(folder), "--transactions", "60", "--clients", "6", "--compacted"]) == 0
    return folder


@pytest.mark.tlc
def test_the_command_judges_a_compacted_log_and_says_from_where(made: Path, tmp_path: Path) -> None:
    answer = tmp_path / "verdicts.json"
    for engine in ([], ["--alone"]):
        assert cli.main(["check", "traces", str(made), *engine, "--json", str(answer)]) == 3
        first, *_, logs = read_verdicts(answer)
        assert (first.standing, logs.standing) == (Standing.OK, Standing.NOT_JUDGED)
        assert logs.evidence.count(": judged from offset ") == 4
        assert (first.name, first.figures["traces"]) == ("coordinators of made", 6)
        assert logs.found.startswith(f"all readable; judged from where they lack nothing: {TOPIC}-0 at offset ")
        assert (logs.name, logs.figures) == ("logs of made", {"begin_later": 4})
    assert cli.main(["check", "traces", str(made), "--alone", "--allow-unjudged", "cut-log"]) == 0


@pytest.mark.tlc
@pytest.mark.parametrize("engine", [[], ["--alone"]])
def test_a_log_of_last_records_only_has_nothing_to_replay(
    engine: list[str], made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = value(S.COMPLETE_COMMIT, 3)
    batch = build_batch(
        [Record(key=TransactionLogKey(transactional_id="id").encode(), value=last.encode())], base_offset=8
    )
    write_segment(tmp_path / "broker" / f"{TOPIC}-0" / f"{0:020d}.log", [batch.encode()])
    assert cli.main(["check", "traces", str(tmp_path / "broker"), *engine]) == 2
    assert "nothing to replay" in capsys.readouterr().err
    assert cli.main(["check", "traces", str(tmp_path / "broker"), str(made), *engine]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "not judged" in said
    assert "1 path with nothing to replay" in said


def write_states(folder: Path, rows: list[tuple[str, TransactionLogValue]]) -> None:
    """A coordinator's log with these records, the first at offset 8; each has a leader epoch of its own."""
    batches = [
        build_batch(
            [Record(key=TransactionLogKey(transactional_id=name).encode(), value=v.encode())],
            base_offset=8 + at,
            partition_leader_epoch=at,
        )
        for at, (name, v) in enumerate(rows)
    ]
    write_segment(folder / f"{TOPIC}-0" / f"{0:020d}.log", [batch.encode() for batch in batches])


def test_what_is_wrong_after_the_first_record_of_a_cut_log_is_told_with_its_place(tmp_path: Path) -> None:
    answer = tmp_path / "verdicts.json"
    write_states(tmp_path / "broker", [("id", value(S.EMPTY, 5)), ("id", value(S.COMPLETE_COMMIT, 5))])
    assert cli.main(["check", "traces", str(tmp_path / "broker"), "--alone", "--json", str(answer)]) == 1
    assert "offset 9: COMPLETE_COMMIT" in read_verdicts(answer)[0].evidence


def test_ids_with_their_last_record_only_are_left_out_beside_others(tmp_path: Path) -> None:
    answer = tmp_path / "verdicts.json"
    rows = [("idle", value(S.COMPLETE_COMMIT, 3)), ("busy", value(S.EMPTY, 5)), ("busy", value(S.EMPTY, 6))]
    write_states(tmp_path / "broker", rows)
    assert cli.main(["check", "traces", str(tmp_path / "broker"), "--alone", "--json", str(answer)]) == 3
    first, logs = read_verdicts(answer)
    assert (first.figures["traces"], first.standing) == (1, Standing.OK)
    assert logs.found == f"all readable; judged from where it lacks nothing: {TOPIC}-0 at offset 8"


def test_inverted_markers_of_a_cluster_that_was_compacted_and_retained_are_noticed(tmp_path: Path) -> None:
    sizes = ["--transactions", "200", "--clients", "10", "--batches", "1500", "--partitions", "2"]
    cuts = ["--retain-bytes", "60000", "--segment-bytes", "20000", "--compacted", "--version-2", "0"]
    assert cli.main(["lab", "generate", str(tmp_path / "made"), *sizes, *cuts]) == 0
    logs = coordinators.read_recorded(tmp_path / "made" / "brokers")
    owners = {row.value.producer_id: name for name, rows in logs.records.items() for row in rows if row.value}
    assert rejected_in(logs) == set()
    inverted = noticed = 0
    for name in ("generated-0", "generated-1"):
        for place, entry in enumerate(logs.entries[name]):
            if not isinstance(entry, WrittenMarker) or place % 3:
                continue
            other = entry._replace(decision=ABORT if entry.decision is COMMIT else COMMIT)
            entries = [*logs.entries[name][:place], other, *logs.entries[name][place + 1 :]]
            one = {owners[entry.producer_id]: logs.records[owners[entry.producer_id]]}
            inverted += 1
            noticed += bool(rejected_in(replace(logs, records=one, entries={**logs.entries, name: entries})))
    assert (logs.begins.keys() >= {"generated-0", "generated-1", f"{TOPIC}-0"}, inverted > 40) == (True, True)
    assert noticed >= inverted - 1, "one that is repeated may be of a transaction without data"


def rejected_in(logs: Recorded) -> set[str]:
    """The transactional ids whose traces the reference rejects."""
    judge_of = RememberingJudge(coordinators.CoordinatorOfTraces, coordinators.coordinator_constants(frozenset({1, 2})))
    traces = coordinators.coordinator_traces(logs)
    return {trace.name for trace in traces if judge_of.first_rejected(trace.steps, trace.starts)[0] is not None}


@pytest.mark.parametrize("name", ["transactions", "transactions-3.9"])
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_copies_of_different_moments_are_judged_up_to_the_end_of_the_older_one(
    name: str, seed: int, tmp_path: Path
) -> None:
    unpack(kept_recording(name), tmp_path)
    brokers = tmp_path / "brokers"
    cut_ends(brokers, random.Random(seed))
    pieces = pieces_of([brokers])
    found = said(in_process(pieces, RULES, {0}))
    assert all(position is None for _, position in found.values()), f"seed {seed}"
    strict, loose = in_the_readable_way(brokers), in_the_readable_way(brokers, are_apart=True)
    assert found == {key: loose[key] if strict[key][1] is not None else strict[key] for key in strict}, f"seed {seed}"
    assert any(position is not None for _, position in strict.values()), f"seed {seed}"


@pytest.mark.tlc
def test_the_command_says_which_ids_are_judged_without_what_came_before_a_topic_was_made_again(tmp_path: Path) -> None:
    answer = tmp_path / "verdicts.json"
    archive = recordings_folder() / "healthy" / "healthy-topics-made-again.tar.xz"
    for engine in ([], ["--alone"]):
        call = ["check", "traces", str(archive), *engine, "--json", str(answer)]
        assert cli.main(call) == 3
        first = read_verdicts(answer)[0]
        assert (first.unjudged_for, first.found) == ({"made-again": 2}, "all accepted")
        assert "topics-made-again-t: topics-made-again-0: its log begins after transactions" in first.evidence
    assert cli.main([*call, "--allow-unjudged", "made-again"]) == 0


@pytest.mark.tlc
def test_the_command_says_which_ids_are_not_judged_to_the_end(tmp_path: Path) -> None:
    unpack(kept_recording("no-leader-3.9"), tmp_path)
    brokers, answer = tmp_path / "brokers", tmp_path / "verdicts.json"
    segment = brokers / "1" / "commit-then-abort-0" / f"{0:020d}.log"
    regions = [region for region in read_segment(segment) if isinstance(region, StoredBatch)]
    segment.write_bytes(b"".join(each.batch.encode() for each in regions[:-1]))
    for engine in ([], ["--alone"]):
        call = ["check", "traces", str(brokers), *engine, "--json", str(answer)]
        assert cli.main(call) == 3
        first = read_verdicts(answer)[0]
        assert (first.unjudged_for, first.figures["traces"], first.standing) == (
            {"other-moment": 1},
            2,
            Standing.NOT_JUDGED,
        )
        assert "commit-then-abort-t: its records and the logs of commit-then-abort-0 are of different moments" in (
            first.evidence
        )
        assert cli.main([*call, "--snapshot"]) == 1
    assert cli.main([*call, "--allow-unjudged", "other-moment"]) == 0
