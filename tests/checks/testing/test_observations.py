"""Problems, warnings and hints of the assertion, besides the findings of the audit; without a client library."""

import re
import struct
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record
from kafka_eos.histories.history import Event, read_history
from kafka_eos.server.network import Server
from kafka_eos_checks import cli
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.rules.applications import NOT_PROCESSED, OFFSET_ALONE, OUTPUT_ALONE, TWICE
from kafka_eos_checks.audit.rules.declared import WrongQuestion
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.testing import exactly_once
from kafka_eos_checks.testing.exactly_once import StoredRecord, by_value
from kafka_eos_checks.testing.in_process_broker import (
    DATA,
    HISTORY,
    ExactlyOnceWarning,
    InProcessBroker,
    NotExactlyOnce,
)
from kafka_eos_checks.testing.observations import Met, Observed, Problem, shared_ids

from .test_in_process_broker import EXACTLY_ONCE, Application, copy_all, found

pytestmark = pytest.mark.usefixtures("one_processor")
ASKED = exactly_once.Application(
    inputs=["in"], outputs=["out"], group="g", identity=by_value, everything=True, outputs_per_input=None
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "broker") as running:
        running.create_topic("in")
        running.create_topic("out")
        yield running


@pytest.fixture
def app(broker: InProcessBroker) -> Application:
    """An application with three inputs."""
    application = Application(broker)
    application.produce("in", "a", "b", "c", transactional=False)
    return application


def write(broker: InProcessBroker, topic: str, *records: Record) -> None:
    """Append records outside of any transaction."""

    def append(server: Server) -> None:
        server.cluster.topics[topic].partitions[0].append_records(list(records), server.cluster.now)

    broker.call(append)


def observed_of(broker: InProcessBroker) -> Observed:
    """The observations of the application, from the history and the logs of the broker."""
    events, data = list(read_history(broker.folder / HISTORY)), broker.folder / DATA
    identified = exactly_once.identify(find_logs(data), ASKED)
    return broker.call(lambda server: Observed.of(server.cluster, ASKED, identified, events, data, ()))


# --- problems --------------------------------------------------------------------------------------------------------


def test_an_offset_beyond_the_end_of_the_inputs_is_found(
    broker: InProcessBroker, app: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    app.copy("a", 0)
    app.copy("b", 1)
    app.copy("c", 3)
    said = found(broker)
    assert said.startswith("committed offset beyond the end (not exactly once: 1 finding(s))")
    assert "group 'g' has committed offset 4 of in-0, which ends at 3" in said
    assert "means: The group has read records that the partition has no more, or its offset was made up." in said
    assert "next:  commit the offset of the last input plus one; consumer.position() is that already" in said
    assert cli.main(["audit", str(broker.folder)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "committed offset 4 of in-0, which ends at 3" in printed


def test_an_offset_of_an_empty_partition_is_found_too(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("more")
    copy_all(app)
    app.send_offset(2, topic="more")
    app.end()
    said = found(broker, inputs=["in", "more"])
    assert said.startswith("committed offset beyond the end (not exactly once: 1 finding(s))")
    assert "group 'g' has committed offset 2 of more-0, which ends at 0" in said


@pytest.mark.parametrize("everything", [True, False])
def test_an_offset_that_is_set_back_outside_of_transactions_is_found(
    broker: InProcessBroker, app: Application, everything: bool
) -> None:
    copy_all(app)
    app.commit_offset(3)
    broker.assert_exactly_once(**EXACTLY_ONCE, everything=everything)
    app.commit_offset(1)
    said = found(broker, everything=everything)
    assert said.startswith("offset set back (not exactly once: 1 finding(s))")
    assert (
        "group 'g' had committed offset 3 of in-0, and then 1, outside of a transaction; outputs of 2 input(s)" in said
    )
    assert "the first of in-0 offset 1" in said


def test_an_offset_of_a_second_partition_that_is_set_back_is_found(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("first")
    app.produce("first", "x", transactional=False)
    copy_all(app)
    app.produce("out", "x")
    app.send_offset(1, topic="first")
    app.end()
    app.commit_offset(1)
    assert found(broker, inputs=["first", "in"]).startswith("offset set back (not exactly once: 1 finding(s))")


def test_an_offset_that_an_operator_has_deleted_is_not_set_back(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    partitions = [{"PartitionIndex": 0}]
    row = app.ask("OffsetDelete", 0, GroupId="g", Topics=[{"Name": "in", "Partitions": partitions}])
    assert row["Topics"][0]["Partitions"][0]["ErrorCode"] == 0
    broker.assert_exactly_once(**EXACTLY_ONCE)


def test_only_inputs_below_the_offset_that_was_taken_back_are_told_of(
    broker: InProcessBroker, app: Application
) -> None:
    app.produce("in", "d", transactional=False)
    app.copy("a", 0)
    app.copy("b", 1)
    app.produce("out", "c", "d")
    app.end()
    app.commit_offset(1)
    said = found(broker)
    assert "had committed offset 2 of in-0, and then 1, outside of a transaction; outputs of 1 input(s) from" in said


def test_an_offset_that_was_set_back_and_forward_again_is_none(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    app.commit_offset(1)
    app.commit_offset(3)
    broker.assert_exactly_once(**EXACTLY_ONCE)


def test_an_offset_past_an_input_of_the_next_transaction_is_found(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 1)
    app.copy("b", 2)
    app.copy("c", 2)
    said = found(broker)
    assert said.startswith("offset beyond its inputs, output without its offset (not exactly once: ")
    assert "transaction 0 of 'app' committed offset 2 of in-0, which is past in-0 offset 1; transaction 1 wrote" in said
    assert "here:  an offset past the input was committed too early; see 'offset beyond its inputs' above" in said


def test_offsets_that_are_sent_in_the_next_transaction_are_no_offsets_beyond_inputs(
    broker: InProcessBroker, app: Application
) -> None:
    app.copy("a", 0)
    app.produce("out", "b", "c")
    app.end()
    app.send_offset(3)
    app.end()
    assert found(broker).startswith("output without its offset (not")


@pytest.mark.parametrize("name", ["other", "a client before the application"])
def test_offsets_of_another_client_are_no_offsets_beyond_inputs_of_its_later_transactions(
    name: str, broker: InProcessBroker, app: Application
) -> None:
    app.copy("a", 0)
    other = Application(broker, name=name)
    other.send_offset(3)
    other.end()
    app.produce("out", "b", "c")
    app.end()
    assert found(broker).startswith("output without its offset (not")


def test_offsets_that_are_committed_outside_are_no_offsets_beyond_inputs(
    broker: InProcessBroker, app: Application
) -> None:
    app.copy("a", 0, commit=False)
    app.send_offset(3)
    app.commit_offset(3)
    app.end()
    app.produce("out", "a", "b", "c")
    app.end()
    assert found(broker).startswith("output without its offset (not")


def test_an_offset_that_is_committed_in_a_transaction_and_outside_is_none_beyond_outputs_of_no_transaction(
    broker: InProcessBroker, app: Application
) -> None:
    app.send_offset(3)
    app.end()
    app.commit_offset(3)
    app.produce("out", "a", "b", "c", transactional=False)
    assert found(broker).startswith("output without its offset (not")


def test_only_an_output_without_its_offset_shows_an_offset_beyond_its_inputs(
    broker: InProcessBroker, app: Application
) -> None:
    app.copy("a", 1)
    app.copy("b", 2)
    app.copy("c", 2)
    found(broker)
    [finding] = audit.run([broker.folder]).findings
    observed = observed_of(broker)
    assert [problem.name for problem in observed.problems([finding])] == ["offset beyond its inputs"]
    assert list(observed.problems([replace(finding, rule="torn transaction")])) == []
    without = replace(observed, identified=replace(observed.identified, inputs={}))
    assert list(without.problems([finding])) == list(without.hints(OUTPUT_ALONE, [finding])) == [], "of no known input"


def test_a_transaction_that_is_left_open_is_found_if_everything_is_done(
    broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    other = Application(broker, name="other")
    other.produce("in", "later")
    broker.assert_exactly_once(**EXACTLY_ONCE)
    app.produce("out", "a")
    said = found(broker)
    assert said.startswith("transaction left open (not exactly once: 1 finding(s))")
    assert re.search(
        r"'app' has a transaction open since \S+ \S+ UTC; .* timeout of 60 s, read_committed readers", said
    )
    assert "'other'" not in said
    assert broker.time_out_transaction("app")
    broker.assert_exactly_once(**EXACTLY_ONCE)


def test_a_transaction_with_nothing_but_offsets_is_left_open_too(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    app.send_offset(3)
    assert found(broker).startswith("transaction left open")
    with pytest.warns(ExactlyOnceWarning, match="'app' has a transaction open"):
        broker.assert_exactly_once(**EXACTLY_ONCE, everything=False)


def of_halves(record: StoredRecord) -> Hashable:
    text = (record.value or b"").decode()
    return text if record.topic == "in" else (text[0], text[1:])


def test_one_of_several_outputs_that_is_missing_is_found_if_the_test_gives_their_number(
    broker: InProcessBroker, app: Application
) -> None:
    for offset, values in enumerate((["a1", "a2"], ["b1"], ["c1", "c2", "c3"])):
        app.produce("out", *values)
        app.send_offset(offset + 1)
        app.end()
    broker.assert_exactly_once(**EXACTLY_ONCE, identity=of_halves)
    said = found(broker, identity=of_halves, outputs_per_input=2)
    assert said.startswith("outputs of an input (not exactly once: 2 finding(s))")
    lines = said.splitlines()
    for told, means in (
        ("in-0 offset 1 has 1 output(s) in out, 2 are expected; there: '1'", "An output of this input is missing."),
        ("in-0 offset 2 has 3 output(s) in out, 2 are expected; there: '1', '2', '3'", "There are too many."),
    ):
        place = lines.index(f"  outputs of an input: {told}")
        assert lines[place + 1] == f"    means: {means}"
    numbers = {b"a": 2, b"b": 1, b"c": 3, None: 0}
    broker.assert_exactly_once(
        **EXACTLY_ONCE, identity=of_halves, outputs_per_input=lambda record: numbers[record.value]
    )


def test_each_topic_has_so_many_outputs_of_an_input(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("more")
    for offset, values in enumerate((["a1"], ["b1", "b2"], ["c1"])):
        app.produce("more", values[0])
        app.sequence = 0  # that of the other partition
        app.produce("out", *values)
        app.send_offset(offset + 1)
        app.end()
    said = found(broker, outputs=["out", "more"], identity=of_halves, outputs_per_input=1)
    assert said.startswith("outputs of an input (not exactly once: 1 finding(s))")
    assert "in-0 offset 1 has 2 output(s) in out, 1 are expected" in said


def test_an_aborted_output_does_not_count(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a1", "a2")
    app.end(commit=False)
    app.produce("out", "a1")
    app.send_offset(1)
    app.end()
    said = found(broker, identity=of_halves, outputs_per_input=2, everything=False)
    assert "in-0 offset 0 has 1 output(s) in out, 2 are expected" in said


def test_long_lists_of_problems_are_cut(broker: InProcessBroker) -> None:
    app = Application(broker)
    app.produce("in", *(str(number) for number in range(8)), transactional=False)
    app.produce("out", *(str(number) for number in range(8)))
    app.send_offset(8)
    app.end()
    said = found(broker, outputs_per_input=2)
    assert said.count("outputs of an input: ") == 5
    assert "… and 3 more" in said


def test_a_broker_that_nobody_used_has_tested_nothing(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "broker") as broker:
        broker.create_topic("in")
        with pytest.raises(NotExactlyOnce, match="nothing was tested"):
            broker.assert_exactly_once()
        write(broker, "in", Record(value=b"a"))
        broker.assert_exactly_once()


# --- identities ------------------------------------------------------------------------------------------------------


def test_inputs_with_a_null_value_are_refused_unless_the_test_gives_identities(
    broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    headers = ((b"number", b"4"), (b"number", None))
    write(broker, "in", Record(key=b"d"), Record(key=b"e", offset_delta=1, headers=headers))
    said = "2 of 5 inputs have a null value and so no identity, for example in-0 offset 3: they would not be looked at"
    with pytest.raises(WrongQuestion, match=re.escape(said)):
        broker.assert_exactly_once(**EXACTLY_ONCE)
    seen: list[StoredRecord] = []
    broker.assert_exactly_once(**EXACTLY_ONCE, identity=lambda record: seen.append(record) or record.value)
    last = next(record for record in seen if record.key == b"e")
    assert last == StoredRecord(topic="in", partition=0, offset=4, key=b"e", value=None, headers=headers)


def test_outputs_with_a_null_value_are_refused_too(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("b", 1)
    write(broker, "out", Record(key=b"a"))
    with pytest.raises(WrongQuestion, match=r"1 of 3 outputs have a null value .*, for example out-0 offset 4"):
        broker.assert_exactly_once(**EXACTLY_ONCE)


def test_a_null_value_of_an_aborted_input_is_none(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    writer = Application(broker, name="writer")
    writer.produce("in", "x")
    writer.end(commit=False)
    broker.assert_exactly_once(**EXACTLY_ONCE)


def without_a_field(record: StoredRecord) -> Hashable:
    return {"a": 1}[(record.value or b"").decode()]


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (without_a_field, "identity of in-0 offset 1 (key None, value b'b'): KeyError: 'b'"),
        (lambda _: {}, "identity of in-0 offset 0 (key None, value b'a'): TypeError: unhashable type: 'dict'"),
        (lambda _: (1, []), "identity of in-0 offset 0 (key None, value b'a'): TypeError: unhashable type: 'list'"),
    ],
)
def test_an_identity_that_fails_names_the_record_and_the_callers_own_line(
    identity: Callable[[StoredRecord], Any], said: str, broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    with pytest.raises(WrongQuestion, match=re.escape(said)) as caught:
        broker.assert_exactly_once(**EXACTLY_ONCE, identity=identity)
    cause = caught.value.__cause__
    assert cause is not None
    own = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
    assert own == (["without_a_field"] if identity is without_a_field else [])


def test_a_long_value_is_cut_in_the_message(broker: InProcessBroker) -> None:
    app = Application(broker)
    app.produce("in", "x" * 200, transactional=False)
    with pytest.raises(WrongQuestion, match=r"value b'x{60}'…\): ZeroDivisionError"):
        broker.assert_exactly_once(**{**EXACTLY_ONCE, "group": "g"}, identity=lambda _: 1 / 0)


# --- hints -----------------------------------------------------------------------------------------------------------


def test_copies_in_one_transaction_are_told_from_those_in_two(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a")
    app.produce("out", "a", "b", "c")
    app.send_offset(3)
    app.end()
    assert "; both in one transaction (0 of 'app'): abort before you retry" in found(broker)


def test_outputs_that_an_identity_does_not_tell_apart_are_told_from_copies(
    broker: InProcessBroker, app: Application
) -> None:
    for offset, values in enumerate((["a1", "a2"], ["b1", "b2"], ["c1", "c2"])):
        app.produce("out", *values)
        app.send_offset(offset + 1)
        app.end()
    said = found(broker, identity=lambda record: (record.value or b"")[:1], outputs_per_input=2)
    assert "in-0 offset 0 has 1 output(s) in out, by identity=, which tells none of 2 records apart" in said
    assert "next:  let identity= return a tuple of two for each output: the identity, and which of the outputs" in said
    several = "here:  these outputs have different values in one transaction; if an input has several, let ide"
    assert said.count(several) == 1, "although it is so with each input"


def test_outputs_that_an_identity_tells_apart_are_no_reason_for_a_copy(
    broker: InProcessBroker, app: Application
) -> None:
    for offset, values in enumerate((["a1", "a2"], ["b1"], ["c1"])):
        app.produce("out", *values)
        app.send_offset(offset + 1)
        app.end()
    app.produce("out", "a1")
    app.end()
    said = found(broker, identity=of_halves)
    assert said.startswith("input processed twice")
    assert "these outputs have different values" not in said


def test_equal_copies_in_one_transaction_are_no_several_outputs(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "a", "b", "c")
    app.send_offset(3)
    app.end()
    assert "here:" not in found(broker)


def test_skipped_inputs_are_named_and_told_from_aborted_ones(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a")
    app.send_offset(3)
    app.end()
    said = found(broker)
    assert "here:  by their identities: 'b', 'c'\n" in said
    assert "here:  the broker was sent no output of these inputs, and no abort: look for a filter, or for an" in said
    app.produce("in", "d", "e", "f", transactional=False)
    app.send_offset(6)
    app.end()
    assert "here:  by their identities: 'b', 'c', 'd', 'e', 'f'\n" in found(broker)
    app.produce("in", "g", transactional=False)
    app.send_offset(7)
    app.end()
    assert "here:  by their identities: 'b', 'c', 'd', 'e', 'f', …\n" in found(broker)
    app.end(commit=False)  # of nothing
    app.produce("out", "x")
    app.end(commit=False)
    said = found(broker)
    assert "input skipped" in said
    assert "and no abort" not in said


def test_skipped_inputs_are_named_by_partition_and_offset(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("wide", 2)

    def append(server: Server) -> None:
        for partition, value in zip(server.cluster.topics["wide"].partitions, (b"x", b"y"), strict=True):
            partition.append_records([Record(value=value)], server.cluster.now)

    broker.call(append)
    app.copy("x", 0)
    for partition in range(2):
        topics = [{"Name": "wide", "Partitions": [{"PartitionIndex": partition, "CommittedOffset": 1}]}]
        app.ask("OffsetCommit", 8, GroupId="g", Topics=topics)
    assert "here:  by their identities: 'y'\n" in found(broker, inputs="wide")


@pytest.mark.parametrize("by", ["another", "timeout", "fault"])
def test_a_fenced_producer_is_told_if_inputs_are_not_processed(
    by: str, broker: InProcessBroker, app: Application
) -> None:
    app.copy("a", 0)
    app.produce("out", "b")
    if by == "another":
        Application(broker)  # is told CONCURRENT_TRANSACTIONS, as the transaction has to be aborted first
        Application(broker)
    elif by == "timeout":
        broker.time_out_transaction("app")
    else:
        broker.fault("error", api="Produce", error="INVALID_PRODUCER_EPOCH", nth=1)
    with pytest.raises(AssertionError):
        app.produce("out", "c")
    said = found(broker)
    reason = {
        "another": r"as another instance started with this transactional\.id \(event \d+\)",
        "timeout": "as its transaction had timed out",
        "fault": "by a fault of the test",
    }[by]
    told = re.search(rf"here:  'app' was fenced, {reason}: its Produce was refused \(event \d+\)\. A fenced", said)
    assert told is not None
    events = {event.order: event.action for event in read_history(broker.folder / HISTORY)}
    named = [events[int(number)] for number in re.findall(r"event (\d+)", told[0])]
    assert named == ["InitProducerId"] * (by == "another") + ["Produce"]
    assert ("offsets; make transaction.timeout.ms longer than a batch takes" in said) == (by == "timeout")
    assert ("offsets; instances that run at the same time need" in said) == (by != "timeout")
    assert ("warning:  'app' was fenced while it was at work" in said) == (by == "another")
    assert "here:  by their identities: 'b', 'c'\n" in said


def test_the_first_transaction_of_an_instance_can_time_out_too(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a")
    broker.time_out_transaction("app")
    with pytest.raises(AssertionError):
        app.produce("out", "b")
    assert "here:  'app' was fenced, as its transaction had timed out: its Produce was refused" in found(broker)


def test_outputs_of_two_producers_are_told_from_copies_of_one(broker: InProcessBroker, app: Application) -> None:
    other = Application(broker, name="other")
    copy_all(app)
    app.copy("a", 2)
    assert "here:" not in found(broker)
    other.copy("b", 2)
    said = found(broker)
    assert (
        "here:  transaction 1 of 'app' and transaction 0 of 'other' wrote the output of in-0 offset 1: its par" in said
    )


@pytest.mark.parametrize("name", ["app", "app-3215"])
@pytest.mark.parametrize("is_retried", [False, True])
def test_a_batch_that_is_sent_again_by_a_new_producer_after_a_commit_without_an_answer_is_told(
    name: str, is_retried: bool, broker: InProcessBroker, app: Application
) -> None:
    app.copy("a", 0)
    app.produce("out", "b", "c")
    app.send_offset(3)
    broker.fault("drop-answer", api="EndTxn", nth=1)
    with pytest.raises(struct.error):
        app.end()
    if is_retried:
        app.end()
    other = Application(broker, name=name)
    other.produce("out", "b", "c")
    other.send_offset(3)
    other.end()
    said = found(broker)
    number = 2 if name == "app" else 0
    those = f"here:  transaction 1 of 'app' and transaction {number} of '{name}' wrote the output of in-0 offset 1: "
    why = r"a producer started in between \(event \d+\), after the offset past the input was committed: go on from"
    if not is_retried:
        why = (
            r"the outcome of the first commit was unknown \(its answer was lost, event \d+\), and it did commit: retry "
            "commit_transaction on the same producer, or go on from the group's committed offsets"
        )
    assert re.search(re.escape(those) + why, said)
    assert "changed hands" not in said
    assert "?" not in said.partition("next:")[2].partition("\n")[0]


def test_a_commit_that_has_no_answer_yet_is_told_too(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    Application(broker, name="other").copy("a", 2)
    found(broker)
    events = list(observed_of(broker).events)
    number = next(number for number, event in enumerate(events) if (event.action, event.phase) == ("EndTxn", "ok"))
    events.append(events.pop(number))
    asked = next(number for number, event in enumerate(events) if event.action == "EndTxn")
    for event in (events[-1], events[asked]):  # another application asks, and is answered
        events.insert(asked, replace(event, transactional_id="of another application"))
    observed = replace(observed_of(broker), events=events)
    [finding] = audit.run([broker.folder]).findings
    [said] = observed.hints(TWICE, [finding])
    assert "was unknown (its answer had not come, event " in said


def test_a_new_producer_with_a_transaction_open_is_told_to_end_it(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a", "b", "c")
    app.send_offset(3)
    Application(broker, name="other").copy("a", 2)
    app.end()
    said = found(broker)
    assert "transaction 0 of 'other' wrote the output of in-0 offset 0: its partition may have changed hands" in said


def test_a_member_that_joins_with_a_transaction_open_is_told_to_end_it(
    broker: InProcessBroker, app: Application
) -> None:
    app.produce("out", "a", "b", "c")
    app.send_offset(3)
    join(app, "g")
    app.end()
    Application(broker, name="other").copy("a", 2)
    assert "the group rebalanced in between (event " in found(broker)


def test_a_rebalance_between_the_batch_before_and_the_output_is_not_in_between(
    broker: InProcessBroker, app: Application
) -> None:
    app.produce("out", "a")
    join(app, "g")
    app.produce("out", "b", "c")
    app.send_offset(3)
    app.end()
    Application(broker, name="other").copy("b", 2)
    said = found(broker)
    assert "wrote the output of in-0 offset 1: " in said
    assert "rebalanced" not in said
    observed, findings = observed_of(broker), audit.run([broker.folder]).findings
    events = list(observed.events)
    [joined] = [event for event in events if (event.action, event.phase) == ("JoinGroup", "ok")]
    events.remove(joined)
    wrote = [number for number, event in enumerate(events) if (event.topic, event.phase) == ("out", "ok")][1]
    events.insert(wrote, joined)  # as if it came while the batch waited for its answer
    [why] = replace(observed, events=events)._by_two(findings)
    assert "rebalanced" not in why


def test_an_output_without_its_offset_comes_before_the_inputs_that_were_processed_twice(
    broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    app.copy("a", 2)
    app.produce("in", "d", transactional=False)
    app.produce("out", "d")
    app.end()
    said = found(broker)
    assert said.startswith("output without its offset, input processed twice (not exactly once: 2 finding(s))")
    assert said.index("  output without its offset:") < said.index("  input processed twice:")


def test_a_restart_between_an_output_and_its_offset_is_no_rebalance(broker: InProcessBroker, app: Application) -> None:
    join(app, "g")
    app.produce("out", "a")
    app.end()
    broker.advance(11)
    restarted = Application(broker)
    join(restarted, "g")
    restarted.produce("out", "a")
    restarted.end()
    those = (
        "here:  transaction 0 of 'app' and transaction 1 of 'app' wrote the output of in-0 offset 0: its offset was "
    )
    said = found(broker)
    assert f"{those}sent in no transaction, so whatever ends the application in between" in said
    assert "rebalanced" not in said
    broker.advance(11)
    restarted.commit_offset(1)
    restarted.copy("b", 1)
    restarted.copy("c", 2)
    assert f"{those}committed outside of transactions, so whatever ends the application" in found(broker)


def test_an_output_in_a_transaction_of_its_own_is_told_with_the_transaction_of_its_offset(
    broker: InProcessBroker, app: Application
) -> None:
    broker.create_topic("more")
    app.produce("more", "a", "b", "c")
    app.send_offset(2, group="another")
    app.end()
    restarted = Application(broker)
    join(restarted, "g")
    restarted.produce("more", "a", "b", "c")
    restarted.end()
    restarted.produce("out", "a", "b", "c")
    restarted.send_offset(3)
    restarted.end()
    said = found(broker, outputs=["out", "more"])
    assert (
        "here:  transaction 0 of 'app' and transaction 1 of 'app' wrote the output of in-0 offset 0: its offset was "
        "sent in transaction 2 of 'app', so whatever ends the application in between has it written again. Send the "
        "offset in the transaction of the output" in said
    )
    assert "rebalanced" not in said


def join(app: Application, group: str) -> None:
    row = {"GroupId": group, "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 10_000, "ProtocolType": "consumer"}
    app.ask("JoinGroup", 3, MemberId="", Protocols=[{"Name": "range", "Metadata": b""}], **row)


def test_outputs_before_and_after_a_rebalance_are_told(broker: InProcessBroker, app: Application) -> None:
    join(app, "g")
    copy_all(app)
    join(app, "other")
    app.copy("c", 2)
    assert "rebalanced" not in found(broker), "the group had its members before the first of them"
    broker.advance(11)
    join(app, "g")
    app.copy("a", 2)
    app.copy("a", 2)
    said = found(broker)
    assert re.search(
        r"here:  transaction 0 of 'app' and transaction 4 of 'app' wrote the output of in-0 offset 0: "
        r"the group rebalanced in between \(event \d+\)\. End or abort",
        said,
    )


def test_copies_in_one_transaction_are_not_of_two_members(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a")
    join(app, "g")
    app.produce("out", "a", "b", "c")
    app.send_offset(3)
    app.end()
    said = found(broker)
    assert said.startswith("input processed twice")
    assert "rebalanced" not in said


def test_an_instance_that_started_with_another_id_is_told_with_what_is_left_open(
    broker: InProcessBroker, app: Application
) -> None:
    Application(broker, name="before").copy("a", 0)
    app.produce("out", "b")
    broker.create_topic("more")
    Application(broker, name="of another application").produce("more", "d")
    assert "started since" not in found(broker)
    restarted = Application(broker, name="random-7")
    said = "read_committed readers wait; 'random-7' started since (event "
    assert said in found(broker), "it has written nothing, as it gets no offsets"
    restarted.copy("c", 2)
    assert said in found(broker)
    assert "members of the group that start get none." in found(broker)


def test_an_application_that_was_not_fenced_is_not_told_so(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("more")
    app.copy("a", 0)
    other = Application(broker, name="other")
    other.produce("more", "d")
    broker.time_out_transaction("other")
    with pytest.raises(AssertionError):
        other.produce("more", "e")
    assert "was fenced" not in found(broker)


def test_an_offset_that_is_too_low_is_told(broker: InProcessBroker, app: Application) -> None:
    for offset, value in enumerate("abc"):
        app.produce("out", value)
        app.send_offset(offset, group="copiers")
        app.end()
    said = found(broker, group="copiers")
    assert "output without its offset" in said
    assert (
        "here:  transaction 0 of 'app' wrote the output of in-0 offset 0, and committed only offset 0 of that "
        "partition: send the offset of its last input plus one\n" in said
    )
    assert said.count("send the offset of its last input plus one") == 1, "although it is so with each of them"


def test_an_offset_that_is_lower_still_is_told(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("b", -1)
    app.copy("c", 2)
    said = found(broker)
    assert "transaction 1 of 'app' wrote the output of in-0 offset 1, and committed only offset 0 of that" in said


def test_an_output_outside_of_transactions_has_no_hint_of_its_transaction(
    broker: InProcessBroker, app: Application
) -> None:
    app.produce("out", "a", transactional=False)
    app.commit_offset(0)
    said = found(broker)
    assert "output without its offset" in said
    assert "transaction None" not in said


def test_an_offset_of_another_partition_is_told(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("more")
    app.produce("more", "d", transactional=False)
    app.produce("out", "a", "b", "c", "d")
    app.send_offset(1, topic="more")
    app.end()
    said = found(broker, inputs=["in", "more"])
    assert (
        "here:  transaction 0 of 'app' wrote the output of in-0 offset 0, and committed offsets of more-0 only: "
        in said
    )


def test_copies_in_two_transactions_have_no_hint(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a")
    app.end(commit=False)
    copy_all(app)
    app.copy("a", 2)
    said = found(broker)
    assert "input processed twice" in said
    assert "here:" not in said


def test_a_commit_without_a_generation_is_told_if_the_group_has_members(
    broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    broker.assert_exactly_once(**EXACTLY_ONCE)  # a group without members has no generation
    row = {"GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 10_000, "ProtocolType": "consumer"}
    app.ask("JoinGroup", 3, MemberId="", Protocols=[{"Name": "range", "Metadata": b""}], **row)
    said = "^transaction 0 of 'app' committed its offsets without the generation and member .* 'g' could not refuse it"
    other = Application(broker, name="other")
    other.send_offset(1, group="h")
    other.end()
    with pytest.warns(ExactlyOnceWarning, match=said) as told:
        broker.assert_exactly_once(**EXACTLY_ONCE)
    assert len(told) == 1, "once for a transactional.id, and not for other groups, which may have no members"
    app.copy("a", 2)
    assert "\nwarning:  transaction 0 of 'app' committed its offsets without the generation" in found(broker)


@pytest.mark.parametrize(("generation", "has_members"), [(None, False), (-1, False), (0, False), (1, True)])
def test_a_generation_shows_that_a_group_has_members(
    broker: InProcessBroker, generation: int | None, has_members: bool
) -> None:
    events = [
        Event(run="r", order=0, process="p", action="TxnOffsetCommit", phase="ok", group="g", generation=generation),
        Event(run="r", order=1, process="p", action="TxnOffsetCommit", phase="ok", group="h", generation=2),
    ]
    known = exactly_once.Identified()
    observed = broker.call(lambda server: Observed.of(server.cluster, ASKED, known, events, broker.folder, ()))
    assert observed.has_members == has_members


def test_an_abort_with_nothing_after_it_is_told(broker: InProcessBroker, app: Application) -> None:
    app.copy("a", 0)
    app.copy("b", 1, commit=False)
    other = Application(broker, name="other")
    other.produce("in", "d")
    other.end(commit=False)
    said = found(broker)
    assert "'other'" not in said
    assert "seek back to the committed offsets after an abort" in said
    assert "the last transaction of 'app' was aborted, and nothing of it" in said
    assert "did it go back" not in said
    app.copy("b", 1)
    said = found(broker)
    assert "and nothing of it was written again" not in said
    assert "here:  'app' aborted a transaction (event " in said
    assert "did it go back to the committed offsets?" in said


def test_an_abort_before_any_offset_was_sent_is_told_too(broker: InProcessBroker, app: Application) -> None:
    app.produce("out", "a")
    app.end(commit=False)
    app.copy("b", 1)
    app.copy("c", 2)
    app.produce("in", "d", transactional=False)
    assert "here:  'app' aborted a transaction (event " in found(broker)


def test_outputs_to_one_of_two_topics_are_told_how_to_be_declared(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("dlq")
    app.copy("a", 0)
    app.produce("dlq", "b")
    app.sequence = 1
    app.send_offset(2)
    app.end()
    app.copy("c", 2)
    assert "ask once for each topic" not in found(broker)
    said = found(broker, outputs=["out", "dlq"])
    assert said.count("ask once for each topic") == 1
    for topic, bad in (("out", False), ("dlq", True)):
        broker.assert_exactly_once(
            inputs="in",
            outputs=topic,
            group="g",
            identity=lambda record, bad=bad: record.value if (record.value == b"b") == bad else None,
        )


# --- warnings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12, 14, 15, 16])
def test_a_reader_of_uncommitted_inputs_is_a_warning(version: int, broker: InProcessBroker, app: Application) -> None:
    def fetch(topic: str, isolation: int) -> None:
        topic_id = broker.call(lambda server: server.cluster.topic_id(topic))
        named = {"Topic": topic} if version < 13 else {"TopicId": topic_id}
        places = [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1}]
        app.ask("Metadata", 12, Topics=None)
        app.ask("Fetch", version, MaxWaitMs=0, MinBytes=0, IsolationLevel=isolation, SessionEpoch=-1,
                Topics=[named | {"Partitions": places}])  # fmt: skip

    copy_all(app)
    broker.create_topic("elsewhere")
    fetch("in", 1)
    fetch("elsewhere", 0)
    broker.assert_exactly_once(**EXACTLY_ONCE)
    fetch("in", 0)
    with pytest.warns(
        ExactlyOnceWarning, match="client 'app' reads 'in' with isolation.level=read_uncommitted"
    ) as told:
        broker.assert_exactly_once(**EXACTLY_ONCE)
    fetch("out", 0)
    assert "warning:  client 'app' reads 'out'" in found(broker, outputs_per_input=2)
    assert told[0].filename == __file__
    assert "warning:  client 'app' reads 'in'" in found(broker, outputs_per_input=2)


def test_outputs_of_inputs_whose_transaction_is_open_are_a_warning(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    writer = Application(broker, name="writer")
    writer.produce("in", "d")
    broker.assert_exactly_once(**EXACTLY_ONCE)
    app.produce("out", "d")
    app.end()
    with pytest.warns(
        ExactlyOnceWarning, match=r"^1 output\(s\) could not be judged: their inputs are in a transaction"
    ):
        broker.assert_exactly_once(**EXACTLY_ONCE)
    writer.end(commit=False)
    assert "output of no input" in found(broker)


def commit(
    order: int, member: str | None, generation: int | None = 1, name: str = "x", instance: str | None = None
) -> Event:
    detail = {"request": order} | ({"member": member} if member else {}) | ({"instance": instance} if instance else {})
    return Event(
        run="r", order=order, process="p", action="TxnOffsetCommit", phase="invoke", transactional_id=name, group="g",
        generation=generation, topic="in", partition=0, detail=detail,
    )  # fmt: skip


def test_members_of_a_generation_that_share_a_transactional_id_are_a_warning() -> None:
    [said] = shared_ids([commit(1, "m1"), commit(2, "m1"), commit(3, "m2"), commit(4, "m1", 2), commit(5, "m2", 2)])
    assert said.startswith("2 members of generation 1 of group 'g' use the transactional.id 'x' (events 1 and 3)")


def test_a_producer_that_asks_for_another_epoch_is_no_other_instance(tmp_path: Path) -> None:
    def event(order: int, action: str, phase: str, producer_id: int, epoch: int, error: int | None = None) -> Event:
        where = {"topic": "out", "partition": 0} if action == "Produce" else {}
        return Event(
            run="r", order=order, process="p", action=action, phase=phase, transactional_id="x", error=error,
            producer_id=producer_id, producer_epoch=epoch, detail={"request": order // 2}, **where,
        )  # fmt: skip

    for own, told in ((-1, 1), (7, 0)):
        events = [
            event(0, "InitProducerId", "invoke", own, 0),
            event(1, "InitProducerId", "ok", 7, 2),
            event(2, "Produce", "invoke", 7, 0),
            event(3, "Produce", "fail", 7, 0, int(ErrorCode.INVALID_PRODUCER_EPOCH)),
        ]
        observed = Observed(
            application=ASKED, identified=exactly_once.Identified(), events=events, data=tmp_path, open=[],
            has_members=False,
        )  # fmt: skip
        assert len(list(observed.warnings())) == told


@pytest.mark.parametrize(
    "events",
    [
        [commit(1, "m1"), commit(2, "m2", 2)],
        [commit(1, "m1"), commit(2, "m2", name="y")],
        [commit(1, None), commit(2, None)],
        [commit(1, "m1", -1), commit(2, "m2", -1)],
        [commit(1, "m1", None), commit(2, "m2", None)],
        [commit(1, "i-1", instance="i"), commit(2, "i-2", instance="i")],
    ],
    ids=["taken over", "an id each", "no members", "generation -1", "no generation", "a static member"],
)
def test_other_uses_of_a_transactional_id_are_none(events: list[Event]) -> None:
    assert list(shared_ids(events)) == []


def test_an_offset_that_a_transaction_has_set_back_is_left_to_the_audit(
    broker: InProcessBroker, app: Application
) -> None:
    copy_all(app)
    app.send_offset(1)
    app.end()
    assert not found(broker).startswith("offset set back")


@pytest.mark.parametrize(("generations", "told"), [((-1, -1), 1), ((-1, 3), 0), ((3, -1), 0), ((3, 3), 0)])
def test_a_transaction_of_which_the_group_could_refuse_any_commit_is_no_warning(
    generations: tuple[int, int], told: int, tmp_path: Path
) -> None:
    refused = 3, 0, ("invoke", "fail")
    written = [(generation, place, ("invoke", "ok")) for place, generation in enumerate(generations)]
    events = [
        Event(
            run="r", process="p", action="TxnOffsetCommit", phase=phase, group="g", transactional_id="x",
            generation=generation, topic="in", partition=partition,
            detail={"request": number, "committed_offset": 1},
        )
        for number, (generation, partition, phases) in enumerate([refused, *written])
        for phase in phases
    ]  # fmt: skip
    observed = Observed(
        application=ASKED, identified=exactly_once.Identified(), events=events, data=tmp_path, open=[], has_members=True
    )
    assert len(list(observed.warnings())) == told


def test_hints_belong_to_a_rule_and_to_the_application(broker: InProcessBroker, app: Application) -> None:
    broker.create_topic("elsewhere")
    other = Application(broker, name="other")
    for commit in (False, True):
        other.produce("elsewhere", "x")
        other.end(commit)
    app.copy("a", 0, commit=False)
    app.copy("a", 0)
    observed = observed_of(broker)
    [hint] = observed.hints(NOT_PROCESSED, [])
    assert "'app' aborted a transaction" in hint
    assert not list(observed.hints("duplicate", []))
    said = "group 'g' committed offset 1 outside of any transaction, and no output of it appears"
    alone = Finding(rule=OFFSET_ALONE, topic="in", partition=0, evidence=said)
    of_two = replace(observed, application=replace(ASKED, outputs=["out", "elsewhere"]))
    assert not list(of_two.hints(OFFSET_ALONE, [alone])), "its outputs are in none of the topics"


# --- what a run met ---------------------------------------------------------------------------------------------------


def test_a_test_can_ask_what_its_application_met(broker: InProcessBroker, app: Application) -> None:
    """Another application on the same broker is not counted."""
    broker.create_topic("more")
    app.produce("more", "d", transactional=False)
    app.copy("a", 0)
    app.copy("b", 1, commit=False)
    broker.fault("error", api="Produce", topic="out", error="MESSAGE_TOO_LARGE", at_most=1)
    with pytest.raises(AssertionError, match="10 == 0"):
        app.produce("out", "b")
    app.end(commit=False)
    again = Application(broker)
    again.produce("out", "b")
    again.end(commit=False)
    again.produce("out", "b", "c", "d")
    again.send_offset(3)
    again.send_offset(1, topic="more")
    again.end()
    broker.create_topic("elsewhere")
    other = Application(broker, name="other")
    other.produce("elsewhere", "x")
    other.end(commit=False)
    met = broker.assert_exactly_once(**EXACTLY_ONCE | {"inputs": ["in", "more"]})
    assert met == Met(
        inputs=4,
        committed=2,
        aborted=3,
        started=2,
        most_partitions=2,
        generations=0,
        refused=Counter({"MESSAGE_TOO_LARGE": 1}),
        unasked=("elsewhere",),
    )
    assert str(met) == (
        "4 input(s), 2 transaction(s) committed and 3 aborted, offsets of at most 2 partition(s) in one, "
        "2 start(s) of producers, 0 generation(s) of the group, refused: MESSAGE_TOO_LARGE 1; "
        "written to, and not asked about: elsewhere"
    )
    assert broker.met == [met]
    assert broker.assert_exactly_once() is None, "no application"
    assert broker.met == [met]


def test_each_generation_of_the_group_is_met(broker: InProcessBroker, app: Application) -> None:
    copy_all(app)
    quiet = broker.assert_exactly_once(**EXACTLY_ONCE)
    for _ in range(2):
        row = {"GroupId": "g", "ProtocolType": "consumer", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 100}
        app.ask("JoinGroup", 3, MemberId="", Protocols=[{"Name": "range", "Metadata": b""}], **row)
    with pytest.warns(ExactlyOnceWarning, match="without the generation"):
        joined = broker.assert_exactly_once(**EXACTLY_ONCE)
    assert quiet is not None
    assert joined == replace(quiet, generations=2)
    assert str(quiet).endswith("refused: nothing")


def test_problems_of_two_kinds_are_told_apart() -> None:
    first, second = (Problem(name=name, evidence=f"of {name}", means="m", step="s") for name in ("a", "b"))
    own = [[f"  {name}: of {name}", "    means: m", "    next:  s"] for name in ("a", "b")]
    assert list(exactly_once._told([first, second])) == [*own[0], *own[1]]


@pytest.mark.parametrize(("number", "more"), [(5, []), (6, ["  … and 1 more"])])
def test_as_many_problems_as_are_shown_are_not_cut(number: int, more: list[str]) -> None:
    one = Problem(name="a", evidence="e", means="m", step="s")
    told = ["  a: e"] * exactly_once.SHOWN_FINDINGS
    assert list(exactly_once._told([one] * number)) == [*told, *more, "    means: m", "    next:  s"]
