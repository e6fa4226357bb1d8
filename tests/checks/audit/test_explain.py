"""The command that draws a history around a moment."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import Event, write_history
from kafka_eos_checks.audit import audit, explain
from kafka_eos_checks.audit.explain import NothingToDraw, Wanted, cut_out, story
from kafka_eos_checks.audit.findings import Finding, write_findings
from kafka_eos_checks.audit.oracle.synthetic import write_log
from kafka_eos_checks.audit.rules.decided import ENDED
from kafka_eos_checks.audit.rules.log import Batch
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.recording import kept_recording

RECORDING = str(kept_recording("violations"))


def produce(order: int, phase: str, partition: int = 0, **more: object) -> Event:
    fields = {"topic": "t", "partition": partition, "producer_id": 7, "producer_epoch": 0, "base_sequence": order}
    return Event(run="r", order=order, process="client", action="Produce", phase=phase, **(fields | more))  # type: ignore[arg-type]


def run(*arguments: str) -> int:
    return main(["explain", *arguments])


def test_a_finding_is_drawn_with_what_led_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.html"
    assert run(RECORDING, "--out", str(out)) == 0
    told = capsys.readouterr().out
    assert "broker-1: Crash" in told
    assert "-x proxy/producer: Produce @ 104" in told  # an acknowledgement that got lost
    refused = told.index("OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert told.index("^  refused without cause") > refused
    assert told.index("Produce @ 105") > told.index("^  refused without cause")
    assert 'class="violation"' in out.read_text(encoding="utf-8")


def test_a_finding_has_a_headline_a_legend_its_possible_causes_and_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("example:violations", "--finding", "7", "--out", str(tmp_path / "run.html")) == 0
    told = capsys.readouterr().out
    rule = "transaction committed without its application"
    assert told.startswith(f"finding 7 of 7, {rule}: Records were committed although")
    assert explain.LEGEND in told
    assert "\npossible cause: late-end-of-transaction (" in told
    assert "\nnext: kafka-eos explain example:violations --finding 1 draws another of the 7 findings\n" in told
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert f"<h1>finding 7 of 7, {rule}" in page
    assert "possible cause: late-end-of-transaction (" in page


def test_a_torn_decision_shows_the_request_that_made_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(RECORDING, "--finding", "7", "--out", str(tmp_path / "run.svg")) == 0
    told = capsys.readouterr().out
    asked = told.index("-> coordinator of late-end-of-transaction-t: EndTxn (commit) [injected: repeat]")
    copied = told.index("-> coordinator of late-end-of-transaction-t: copy of request 84: EndTxn (commit)")
    assert asked < copied < told.index("^  transaction committed without its application")
    assert told.index("AbortTransaction") > copied
    assert told.index("INVALID_TXN_STATE") > copied


def test_markers_are_drawn_from_the_logs_and_numbers_are_the_same_in_diagram_and_story(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.html"
    assert run("example:operator-mistakes", "--finding", "2", "--out", str(out)) == 0
    told = capsys.readouterr().out
    marker = told.index("abort-by-hand-0: marker: abort @ 2")
    assert told.index("      ^  torn transaction: ") > marker
    assert told.index("abort-by-hand-0: marker: commit @ 3") > told.index("EndTxn (commit)") > marker
    page = out.read_text(encoding="utf-8")
    numbers = re.findall(r'<text class="number"[^>]*>(\d+)</text>', page)
    assert numbers == re.findall(r"^ +(\d+)  ", told, re.MULTILINE)
    assert page.index("`kafka-transactions abort`, by hand") < page.index("<svg")
    assert page.index("<h1>finding 2 of 2, torn transaction") < page.index("restart: no broker needs it")


def test_a_record_that_a_reader_was_given_names_the_broker_that_led(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("example:replicated-violations", "--finding", "1", "--out", str(tmp_path / "run.svg")) == 0
    told = capsys.readouterr().out
    assert "; given by broker 2, which led since event 49\n" in told
    assert "broker 1" not in told


def test_the_broker_that_gave_a_record_is_the_leader_of_its_own_partition() -> None:
    led = [replace(produce(n, "ok", n), action="LeaderChange", process=f"broker-{n}") for n in range(2)]
    led.append(replace(led[0], order=2, topic="other", process="broker-2"))
    polled = replace(produce(3, "ok", 0), action="Poll", process="reader", offset=0)
    finding = Finding(rule="aborted record read", topic="t", partition=0, offset=0, evidence="reader was given it")
    moment = explain.of_finding(finding, {"r": [*led, polled]})
    assert moment.violation is not None
    assert moment.violation.text.endswith("; given by broker 0, which led since event 0")


def test_only_findings_that_can_be_drawn_are_offered_and_another_repeats_the_advice() -> None:
    there = Finding(rule="duplicate", topic="t", partition=0, offset=0, evidence="e")
    elsewhere = Finding(rule="torn transaction", topic="u", partition=0, offset=0, evidence="e")
    runs = {"r": [produce(0, "ok", offset=0)]}
    findings = [elsewhere, there, elsewhere]
    shown = explain.explained(None, findings, runs, "again")
    assert shown.headline.startswith("finding 2 of 3, duplicate: ")
    assert shown.then == ()
    with pytest.raises(NothingToDraw, match=r"no history has an event of this finding:\n.*\n(.*\n)*next: repair what"):
        explain.explained(3, findings, runs, "again")
    ended = replace(there, rule="hanging transaction", evidence=f"still open when data of epoch 1 came; ABORT {ENDED}")
    headline = explain.explained(1, [ended], runs, "again").headline
    assert "The marker of a later transaction ended this transaction" in headline, "by the case of the finding"
    more = explain.explained(2, [*findings, there], runs, "again").then
    assert more == ("next: again --finding 4 draws another of the 4 findings",)


@pytest.mark.thorough
def test_the_diagram_of_a_page_fits_the_width_of_a_screen(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "run.html"
    assert run("example:replicated-violations", "--out", str(out)) == 0
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(out.as_uri())
    wide = page.evaluate("() => document.querySelector('svg').viewBox.baseVal.width")
    right = page.evaluate("() => document.querySelector('svg').getBoundingClientRect().right")
    hidden = page.evaluate(
        "() => { const s = document.querySelector('.scroll'); return s.scrollWidth - s.clientWidth }"
    )
    page.close()
    assert wide > 1300
    assert right <= 1300
    assert hidden == 0


def test_a_finding_that_the_audit_does_not_have_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(RECORDING, "--finding", "99") == 2
    assert "the audit has 7 findings" in capsys.readouterr().err


def test_a_finding_is_looked_for_by_what_the_audit_was_told_of_the_logs_moments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "logs" / "orders-0", [Batch(0, n, n, 7, 0, n, n, unsequenced=False) for n in range(50)])
    sent = Event(
        run="r", process="p", action="Send", phase="ok", topic="orders", partition=0, offset=99, detail={"value": "x"}
    )
    write_history(tmp_path / "h.jsonl", [sent])
    given, out = (str(tmp_path / "logs"), str(tmp_path / "h.jsonl")), ("--out", str(tmp_path / "h.svg"))
    assert run(*given, "--finding", "1", *out) == 2
    assert "the audit has 0 findings" in capsys.readouterr().err
    told = ("--snapshot", "--max-transaction-timeout", "30")
    assert main(["audit", *given, *told]) == 1
    again = shlex.join(("kafka-eos", "explain", *given, *told))
    assert f"next: {again} --finding 1 draws" in capsys.readouterr().out
    assert run(*given, *told, "--finding", "1", *out) == 0
    assert run(*given, *told, "--around", "1", *out) == 2
    assert run(*given, *told, "--topic", "orders", *out) == 0
    assert f"next: {again} --run RUN" in capsys.readouterr().out


def test_a_history_alone_is_drawn_around_an_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = tmp_path / "h.jsonl"
    write_history(history, [produce(0, "invoke"), produce(1, "ok", offset=0), produce(2, "invoke", partition=1)])
    assert run(str(history), "--around", "1", "--partition", "0", "--out", str(tmp_path / "h.svg")) == 0
    told = capsys.readouterr().out
    assert told.startswith("events of run r, around 1\n")
    assert f"\nnext: kafka-eos explain {history} --run RUN --around ORDER draws" in told
    assert "-> t-0: Produce" in told
    assert "-> t-1: Produce" not in told
    assert run(str(history), "--around", "5", "--out", str(tmp_path / "h.svg")) == 2
    assert "no event 5; the run has events 0 to 2" in capsys.readouterr().err


def test_of_several_runs_one_has_to_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = tmp_path / "h.jsonl"
    write_history(history, [produce(0, "ok"), Event(run="s", order=0, process="client", action="Note", phase="ok")])
    assert run(str(history)) == 2
    assert "there are several runs; give --run with one of r, s" in capsys.readouterr().err
    assert run(str(history), "--run", "s", "--out", str(tmp_path / "h.html")) == 0


def test_a_picture_is_written_by_its_names_suffix(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(RECORDING, "--out", "picture.png") == 2
    assert "ends in .html or .svg" in capsys.readouterr().err


def test_names_from_a_history_stay_text(tmp_path: Path) -> None:
    history, out = tmp_path / "h.jsonl", tmp_path / "<b>&.html"
    write_history(history, [produce(0, "ok", topic="<script>alert(1)</script>")])
    assert run(str(history), "--out", str(out)) == 0
    assert "<script" not in out.read_text(encoding="utf-8")


def test_faults_are_always_wanted_and_other_columns_have_to_agree() -> None:
    wanted = Wanted(topic="t", partition=0, producer_id=7)
    assert wanted.has(Event(run="r", process="broker-1", action="Crash", phase="ok"))
    assert wanted.has(Event(run="r", process="c", action="EndTxn", phase="invoke", producer_id=7))
    assert not wanted.has(Event(run="r", process="c", action="EndTxn", phase="invoke", producer_id=8))
    assert not wanted.has(Event(run="r", process="c", action="Note", phase="invoke"))


def test_sends_are_left_out_where_their_requests_are_there() -> None:
    send = Event(run="r", order=0, process="app", action="Send", phase="invoke", topic="t", partition=0)
    assert "Send" not in story(cut_out([send, produce(1, "ok")], Wanted(), None))
    assert "Send" in story(cut_out([send], Wanted(), None))


def test_a_long_run_is_cut_to_what_is_near_the_moment() -> None:
    events = [produce(order, "ok") for order in range(500)]
    moment = cut_out(events, Wanted(), 300)
    assert [event.order for event in moment.events] == list(range(301 - explain.BEFORE, 301 + explain.AFTER))
    assert moment.violation is not None
    assert moment.events[moment.violation.step].order == 300
    with pytest.raises(NothingToDraw, match="--topic other: no event of the run has it; there is t"):
        cut_out(events, Wanted(topic="other"), None)


def test_the_audit_offers_to_draw_a_finding_only_if_a_history_has_an_event_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history of more than 32 MiB is not read again to know that; then the line has a condition."""
    lost = replace(produce(2, "ok", offset=7, detail={"value": "x"}), action="Send", base_sequence=None)
    write_history(tmp_path / "drawn.jsonl", [lost])
    # A send is not drawn where its request is there; here the request of this one is not.
    write_history(tmp_path / "not.jsonl", [produce(0, "ok", offset=0, partition=1), lost])
    write_log(tmp_path / "t-0", [Batch(0, 0, 0, 7, 0, 0, 0, unsequenced=False)])
    paths = [tmp_path]
    for name, offered in (("drawn", True), ("not", False)):
        paths = [tmp_path / "t-0", tmp_path / f"{name}.jsonl"]
        result = audit.run(paths, one_moment=True)
        [number] = [n for n, each in enumerate(result.findings, 1) if each.rule == "acknowledged but lost"]
        [advice] = [verdict.advice for verdict in result.verdicts if verdict.name == "acknowledged but lost"]
        drawn = run(*map(str, paths), "--snapshot", "--finding", str(number), "--out", str(tmp_path / "run.svg")) == 0
        assert drawn == offered == ("kafka-eos explain" in advice)
        assert "means: " in advice
    monkeypatch.setattr(audit, "READ_TO_DRAW", 10)
    [advice] = [v.advice for v in audit.run(paths, one_moment=True).verdicts if v.name == "acknowledged but lost"]
    assert " draws the history around it, if it has an event of it" in advice


def test_findings_and_logs_are_no_history_and_the_message_says_what_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = tmp_path / "findings.jsonl"
    write_findings(findings, [Finding(rule="duplicate", topic="t", partition=0)])
    assert run(str(findings)) == 2
    assert f"{findings}: this seems to be findings of an audit" in capsys.readouterr().err
    findings.write_text('{"run":"r","process":"p","action":"Send","phase":"ok","more":1}\n')
    assert run(str(findings)) == 2
    assert "unknown column 'more'" in capsys.readouterr().err
    write_log(tmp_path / "t-0", [Batch(0, 0, 0, 7, 0, 0, 0, unsequenced=False)])
    assert run(str(tmp_path / "t-0")) == 2
    assert "no history of the clients in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--topic", "nosuch"), "--topic nosuch: no event of the run has it; there is late-end-of-transaction\n"),
        (("--partition", "99"), "--partition 99: no event of the run has it; there is 0, 1\n"),
        (("--producer-id", "77777"), "--producer-id 77777: no event of the run has it; there is "),
        (("--transactional-id", "t"), "--transactional-id t: no event of the run has it; there is "),
        (("--process", "nobody", "--around", "5"), "--process nobody: no event of the run has it; there is "),
        (("--finding", "2"), "--finding draws what led to a finding, whatever --run says; leave one of them out\n"),
    ],
)
def test_an_option_that_would_choose_nothing_is_refused(
    more: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("example:violations", "--run", "violations/late-end-of-transaction")
    assert run(*given, *more, "--out", str(tmp_path / "run.svg")) == 2
    assert f"kafka-eos explain: {said}" in capsys.readouterr().err
    assert not (tmp_path / "run.svg").exists()
