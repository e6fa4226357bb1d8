"""``kafka-eos ledger findings``: the list, one finding, and the checks that ``--check`` runs."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_eos.server.cluster import Settings
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.conform.peers import Absent, Peer
from kafka_eos_checks.graphs import model_check
from kafka_eos_checks.graphs.model_check import Outcome
from kafka_eos_checks.kit.missing import MissingClone
from kafka_eos_checks.kit.terminal import WIDE
from kafka_eos_checks.kit.verdict import Verdict, read_verdicts, write_verdicts
from kafka_eos_checks.ledger import findings_command
from kafka_eos_checks.ledger.findings import Entry
from kafka_eos_checks.ledger.findings_command import check, of_broker, of_client, tell
from kafka_eos_checks.models.findings import KafkaFinding, Report, read_findings
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.tla.tlc import Result

BY_ID = {finding.id: finding for finding in read_findings()}
RECORDED = BY_ID["aborted-records-delivered"]
OF_A_CLIENT = BY_ID["client-keeps-epoch"]


def of_model(name: str, *, ok: bool = True) -> Verdict:
    """A verdict of TLC with a run."""
    found = "violates P" if ok else "holds"
    return Verdict(check="mutant", name=name, expected="violates P", found=found, ok=ok, evidence="a run")


def taken(folder: Path, name: str, when: datetime, *verdicts: Verdict) -> None:
    """Verdicts that a command wrote to a file at some time."""
    file = folder / "verdicts" / name
    write_verdicts(file, verdicts)
    os.utime(file, (when.timestamp(), when.timestamp()))


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty build folder."""
    monkeypatch.setattr("kafka_eos_checks.kit.paths.build_folder", lambda: tmp_path)
    return tmp_path


def paragraph(shown: str, finding: str) -> str:
    """The list's text on one finding, on one line."""
    rest = shown.partition(f"\n  {finding} ")[2]
    return " ".join(rest.partition("\n\n")[0].split())


# --- the list ---------------------------------------------------------------------------------------------------------


def test_a_fresh_clone_shows_the_kept_recordings_and_says_that_the_rest_is_not_checked(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "findings"]) == 0
    shown = capsys.readouterr().out
    assert "checked now: the audit of the kept recording; not checked here: TLC on AppendedAtOnce" in paragraph(
        shown, RECORDED.id
    )
    assert "not checked here: Kafka's own client and TLC on KeepsEpochWhileEnding" in paragraph(shown, OF_A_CLIENT.id)
    assert f"\n      {RECORDED.title[:40]}" in shown
    assert "\n      checked now: the audit of the kept recording" in shown, "in line with the title"
    assert "5 checked in part, 27 not checked here." in shown
    assert f"32 findings, {sum(each.report is Report.NEW for each in BY_ID.values())} of them new: " in shown
    assert "(kafka-eos ledger findings --check) checks everything, with TLC, " in shown
    assert " Kafka's own client and a broker on loopback: it needs Java and takes some minutes.\n" in shown
    assert shown.index("Shown on a real broker (20)") < shown.index("Shown on Kafka's own client, without a broker (6)")


def test_verdicts_of_earlier_commands_are_shown_with_their_time(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monday, tuesday = datetime(2126, 1, 7, 12, 30, tzinfo=UTC), datetime(2126, 1, 8, 12, 30, tzinfo=UTC)
    mended = replace(of_model("AppendedAtOnceMended"), check="model")
    taken(build, "mutants.json", monday, of_model("AppendedAtOnce"))
    taken(build, "models.json", tuesday, mended, of_model("ActsOnLoaded", ok=False))
    assert main(["ledger", "findings"]) == 1  # a verdict differs
    shown = capsys.readouterr().out
    when = monday.astimezone().strftime("%Y-%m-%d %H:%M")  # the oldest
    wanted = (
        f"checked now: the audit of the kept recording; checked {when}: TLC on AppendedAtOnce, AppendedAtOnceMended"
    )
    assert wanted in paragraph(shown, RECORDED.id)
    assert "DIFFERS: TLC on ActsOnLoaded; not checked here: TLC on TransactionCoordinatorVersion1" in (
        paragraph(shown, "decision-lost")
    )
    assert "1 checked, 4 checked in part, 26 not checked, 1 differs here." in shown


def test_one_finding_is_shown_with_its_meaning_its_commands_and_its_run(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "findings", RECORDED.id, "--json", str(build / "own.json")]) == 0
    shown = capsys.readouterr().out
    flat = " ".join(shown.split())
    for text in (RECORDED.title, RECORDED.consequence, RECORDED.cause, RECORDED.cure, RECORDED.reported):
        assert text in flat
    assert re.search(r"^why\n    \S.*\n    \S", shown, re.MULTILINE)
    assert "checked now: the audit finds 'aborted record delivered' in the kept recording" in flat
    assert "not checked here: TLC: AppendedAtOnce violates its property" in flat
    assert f"the audit reports it as {', '.join(RECORDED.rules)} reported" in flat
    assert "\n    kafka-eos lab record replicated-violations --out build/recording\n" in shown
    assert "\n    kafka-eos check models AppendedAtOnce AppendedAtOnceMended\n" in shown
    assert "Poll @ 2" in shown
    assert f"Diagram: {build}/findings/{RECORDED.id}.svg" in shown
    assert (build / "findings" / f"{RECORDED.id}.svg").read_text(encoding="utf-8").startswith("<svg")
    assert [verdict.name for verdict in read_verdicts(build / "own.json")] == [f"{RECORDED.id}: recording"]


def test_a_name_with_hyphens_stays_whole_at_the_end_of_a_line() -> None:
    name = "a-setting-that-has-a-long-name"
    told = "\n".join(tell(Entry(finding=replace(RECORDED, cure=f"{name} " * 30)), {}))
    assert told.count(name) == 30


def test_an_unchecked_finding_names_the_command_that_checks_it(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "findings", "decision-lost"]) == 0
    shown = capsys.readouterr().out
    assert "There is no run to show yet: `kafka-eos ledger findings decision-lost --check` takes one" in shown
    assert main(["ledger", "findings", "retry-at-last-epoch"]) == 0
    assert "the audit reports it" not in capsys.readouterr().out, "no rule of the audit does"
    for entry in ("recording", "scenario"):
        alone = replace(BY_ID["streams-reads-uncommitted"], **{entry: "made-up"}, rules=("gap",))
        told = "\n".join(tell(Entry(finding=alone), {}))
        assert "There is no run to show yet" in told, entry
    assert main(["ledger", "findings", "streams-reads-uncommitted"]) == 0
    assert "no run" not in capsys.readouterr().out, "it has neither a model nor a recording that could show one"
    assert not (build / "findings").exists()


def test_a_command_stays_on_one_line_however_long(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long, finding = max(
        ((command, finding.id) for finding in BY_ID.values() for command in finding.commands()),
        key=lambda each: len(each[0]),
    )
    assert len(long) > WIDE
    assert main(["ledger", "findings", finding]) == 0
    assert f"\n    {long}\n" in capsys.readouterr().out


def test_a_run_is_told_with_the_brackets_of_its_states(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = "1  Init: seen = [client |-> 0], log = [/a]"
    now = datetime(2126, 1, 7, 12, 30, tzinfo=UTC)
    taken(build, "mutants.json", now, replace(of_model("ActsOnLoaded"), evidence=state))
    main(["ledger", "findings", "decision-lost"])
    assert f"\n{state}\n" in capsys.readouterr().out


def test_an_unknown_finding_and_spoiled_verdicts_are_errors(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "findings", "nothing"]) == 2
    assert "no finding 'nothing'; there are aborted-records-delivered" in capsys.readouterr().err
    (build / "verdicts").mkdir()
    (build / "verdicts" / "models.json").write_text("{", encoding="utf-8")
    assert main(["ledger", "findings"]) == 2
    assert "models.json: no list of verdicts" in capsys.readouterr().err


# --- checking ---------------------------------------------------------------------------------------------------------


def found_by_tlc(models: list[Model]) -> Iterator[Outcome]:
    """The result of TLC that the registry expects."""
    for model in models:
        result = Result(verdict=model.expect.words)
        yield Outcome(model=model, result=result, found=model.expect.words)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with tests that pass, fail and are skipped."""
    monkeypatch.setattr(findings_command, "CLONE", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # every pytest would import Hypothesis and its like
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_good(): pass\ndef test_bad(): assert 0\n"
        "@pytest.mark.skip(reason='no jars')\ndef test_left_out(): pass\n"
        "@pytest.mark.parametrize('jars', [True, False])\n"
        "def test_half_of_it(jars): pytest.fail('it is') if jars else pytest.skip('no jars')\n",
        encoding="utf-8",
    )
    return tmp_path


def test_a_finding_of_kafkas_client_needs_its_test_to_pass(clone: Path) -> None:
    good, bad = (of_client(replace(OF_A_CLIENT, test=f"test_it.py::test_{name}")) for name in ("good", "bad"))
    assert good is not None
    assert bad is not None
    assert (good.ok, good.name) == (True, "client-keeps-epoch: client")
    assert (bad.ok, bad.found) == (False, "fails")
    assert bad.evidence.startswith("F ")
    assert "assert 0" in bad.evidence
    assert "1 failed in" in bad.evidence.splitlines()[-1]
    assert of_client(replace(OF_A_CLIENT, test="")) is None


def test_a_test_that_is_skipped_checks_nothing_and_says_why(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skipped = replace(OF_A_CLIENT, test="test_it.py::test_left_out", models=(), mended=())
    assert list(check([skipped], Registry())) == []
    assert "not checked: client-keeps-epoch: SKIPPED" in capsys.readouterr().err
    with pytest.raises(Absent, match="no jars"):
        of_client(skipped)


def test_a_test_of_which_a_part_fails_and_a_part_is_skipped_fails(clone: Path) -> None:
    verdict = of_client(replace(OF_A_CLIENT, test="test_it.py::test_half_of_it"))
    assert verdict is not None
    assert (verdict.ok, verdict.found) == (False, "fails")


def test_a_check_tells_of_each_verdict_at_once(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model_check, "check_models", found_by_tlc)
    list(check([replace(OF_A_CLIENT, test="test_it.py::test_good", models=("AbortsUnauthorized",))], Registry()))
    told = capsys.readouterr().err
    assert "ok   AbortsUnauthorized: violates " in told
    assert "ok   client-keeps-epoch: client: passes\n" in told

    def other(models: list[Model]) -> Iterator[Outcome]:
        return (replace(outcome, found="holds", problems=("differs",)) for outcome in found_by_tlc(models))

    monkeypatch.setattr(model_check, "check_models", other)
    list(check([replace(OF_A_CLIENT, test="test_it.py::test_bad", models=("AbortsUnauthorized",))], Registry()))
    told = capsys.readouterr().err
    assert "FAIL AbortsUnauthorized: holds\n" in told
    assert "FAIL client-keeps-epoch: client: fails\n" in told


def test_a_check_takes_each_model_once_and_keeps_the_verdicts_of_each_finding(
    build: Path, clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def check_models(models: list[Model]) -> Iterator[Outcome]:
        asked.extend(model.name for model in models)
        return found_by_tlc(models)

    monkeypatch.setattr(model_check, "check_models", check_models)
    ids = ["client-keeps-epoch", "client-ready-without-id"]
    own = [replace(BY_ID[name], test="test_it.py::test_good") for name in ids]
    monkeypatch.setattr(findings_command, "chosen", lambda _: own)
    assert main(["ledger", "findings", *ids, "--check"]) == 0
    assert asked == [*BY_ID[ids[0]].models, *BY_ID[ids[0]].mended, "AbortsUnauthorized"]
    kept = read_verdicts(build / "verdicts" / "finding-client-ready-without-id.json")
    names = {"TransactionalProducerGraph", "AbortsUnauthorized", "client-ready-without-id: client"}
    assert {verdict.name for verdict in kept} == names
    capsys.readouterr()
    monkeypatch.setattr(findings_command, "chosen", lambda _: [replace(own[0], test="test_it.py::test_left_out")])
    assert main(["ledger", "findings", ids[0], "--check"]) == 1  # the finding of the client could not be checked
    assert "not checked here: the test test_it.py brings clients to it" in capsys.readouterr().out


def test_a_check_goes_on_after_a_finding_that_cannot_be_checked_here(clone: Path) -> None:
    own = [
        replace(OF_A_CLIENT, id=name, test=f"test_it.py::test_{name}", models=(), mended=())
        for name in ("left_out", "good")
    ]
    taken = list(check(own, Registry()))
    assert [(each.name, each.ok, each.evidence) for each in taken] == [("good: client", True, "")]


def test_a_test_has_its_verdict_with_its_time_although_the_broker_of_a_scenario_is_absent(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer(name=LATE_COPY.broker, transaction_version=1, start=absent)
    monkeypatch.setattr(findings_command, "PEERS", (peer,))
    monkeypatch.setattr(findings_command, "time", SimpleNamespace(monotonic=count(100.0, 150.0).__next__))
    [verdict] = check([replace(LATE_COPY, test="test_it.py::test_good")], Registry())
    assert (verdict.name, verdict.ok, verdict.seconds) == (f"{LATE_COPY.id}: client", True, 150.0)


def test_a_check_says_before_the_models_that_a_recording_is_only_in_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_in_a_clone(name: str) -> Path:
        raise MissingClone(f"the recording {name}")

    monkeypatch.setattr(model_check, "check_models", lambda _: pytest.fail("the models take their time"))
    monkeypatch.setattr(findings_command, "kept_recording", only_in_a_clone)
    with pytest.raises(MissingClone, match=RECORDED.recording):
        list(check([RECORDED], Registry()))
    monkeypatch.setattr(model_check, "check_models", found_by_tlc)
    assert list(check([replace(OF_A_CLIENT, test="")], Registry())), "it needs no recording"


# --- scenarios of conform ---------------------------------------------------------------------------------------------


LATE_COPY = replace(BY_ID["lowest-sequence"], test="", models=(), mended=())


@contextmanager
def mended(folder: Path) -> Iterator[str]:
    """The reference, which forgets the sequence of a batch that was not appended."""
    with ServedCluster(settings=Settings(transactions=TransactionSettings(version=1))) as cluster:
        yield cluster.bootstrap_servers


@contextmanager
def as_kafka(folder: Path) -> Iterator[str]:
    """A broker that refuses the third batch, after the delayed duplicate."""
    with ServedCluster(settings=Settings(transactions=TransactionSettings(version=1))) as cluster:
        cluster.fault("error", api="Produce", nth=3, error="OUT_OF_ORDER_SEQUENCE_NUMBER")
        yield cluster.bootstrap_servers


@contextmanager
def absent(folder: Path) -> Iterator[str]:
    raise Absent("there is no Java")
    yield ""


Start = Callable[[Path], AbstractContextManager[str]]


def played_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> tuple[KafkaFinding, Peer]:
    peer = Peer(name=LATE_COPY.broker, transaction_version=1, start=start)
    monkeypatch.setattr(findings_command, "PEERS", (peer,))
    return LATE_COPY, peer


def test_a_finding_of_a_scenario_is_shown_and_drawn_if_a_broker_answers_that_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finding, _ = played_on(as_kafka, monkeypatch)
    verdict = of_broker(finding)
    assert verdict is not None
    assert verdict.ok
    assert "7. Produce(again): NONE (offset 0)\n  8. Produce(next): OUT_OF_ORDER_SEQUENCE_NUMBER" in verdict.evidence
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER, where the spec says NONE" in verdict.diagram
    commands = list(finding.commands())
    assert "kafka-eos ledger findings lowest-sequence --check" in commands
    assert any(each.endswith("--transaction-version 1 --repeat transaction-7909f3") for each in commands)


def test_a_finding_of_a_scenario_is_not_shown_if_the_broker_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    finding, _ = played_on(mended, monkeypatch)
    verdict = of_broker(finding)
    assert verdict is not None
    assert (verdict.ok, verdict.found) == (False, "another answer")


def test_a_finding_whose_broker_cannot_be_started_is_unchecked_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding, _ = played_on(absent, monkeypatch)
    assert list(check([finding], Registry())) == []
    assert "not checked: lowest-sequence: there is no Java" in capsys.readouterr().err
