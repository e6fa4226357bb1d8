"""Mutants of a real broker: what counts as noticed, the control, and the list; without a broker, except for one."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.brokers.brokers import BrokerFailed
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.conform import broker_mutants_command as command
from kafka_eos_checks.conform.broker_mutants_command import (
    AFTER_RESTART,
    AT_LEVEL_1,
    CONTROL,
    RESTARTED,
    SOURCE,
    VERSION_1,
    VERSION_2,
    Fate,
    Mutant,
    Outcome,
    Run,
    TooLong,
    UnusableMutants,
    chosen,
    judged,
    parsed,
    survivors,
    tried,
    verdict,
)
from kafka_eos_checks.conform.outages import Commands
from kafka_eos_checks.conform.run import Found
from kafka_eos_checks.conform.session import Target
from kafka_eos_checks.conform.wire import NoAnswer
from kafka_eos_checks.tla.result_cache import ResultCache

from ..kept import keep_output

ONE = Mutant("one", "", ("a.B", "a.C"), "It is wrong.")
OTHER = Mutant("other", "restart", ("a.D",), "It is wrong, too.")
APPLIED = "INFO started\nmutant one applied to a.B\nmutant one applied to a.C\n"


@pytest.fixture(autouse=True)
def kept(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test reads of the output is compared whole."""
    keep_output(capsys, tmp_path, monkeypatch)


# --- the list --------------------------------------------------------------------------------------------------------


def test_the_list_of_the_agent_is_read() -> None:
    assert parsed("one\t\ta.B,a.C\tIt is wrong.\nother\trestart\ta.D\tIt is wrong, too.\n") == [ONE, OTHER]


@pytest.mark.parametrize("line", ["one\t\ta.B", "\t\ta.B\twrong", "one\t\t\twrong", "one\t\ta.B\t", "one\tnow\ta.B\tx"])
def test_a_line_that_is_no_mutant_is_refused(line: str) -> None:
    with pytest.raises(UnusableMutants, match="is no mutant"):
        parsed(f"{line}\n")


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(UnusableMutants, match="lists no mutant"):
        parsed("")


def test_mutants_are_chosen_by_patterns_and_each_pattern_matches_one() -> None:
    assert chosen([ONE, OTHER], []) == [ONE, OTHER]
    assert chosen([ONE, OTHER], ["o*e", "one"]) == [ONE]
    with pytest.raises(UnusableMutants, match="no mutant matches 'two'"):
        chosen([ONE, OTHER], ["one", "two"])


@pytest.mark.parametrize(
    "text", ['[two]\nreason = "x"', '[one]\nreason = " "', "[one]", '[one]\nreason = "x"\nwhy = ""']
)
def test_an_entry_without_a_mutant_or_a_reason_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "survivors.toml"
    file.write_text('[other]\nreason = "because"\n')
    assert survivors([ONE, OTHER], file) == {"other": "because"}
    file.write_text(text)
    with pytest.raises(UnusableMutants, match=r"survivors\.toml: (one|two)"):
        survivors([ONE, OTHER], file)


def test_every_survivor_is_a_mutant_of_the_agent_and_every_name_is_given_once() -> None:
    text = SOURCE.read_text(encoding="utf-8")
    names = re.findall(r'^ +mutant\("([\w-]+)",', text, re.MULTILINE)
    assert len(set(names)) == len(names) > 50
    assert survivors([replace(ONE, name=name) for name in names]).keys() <= set(names)


# --- what counts -----------------------------------------------------------------------------------------------------


def fate(said: str = APPLIED, *, started: bool = True, by: str = "", error: Exception | None = None) -> Outcome:
    return judged(ONE, said, started=started, by=by, error=error).outcome


def test_only_a_mutant_that_was_applied_to_all_its_classes_is_noticed_or_not() -> None:
    assert fate(by="an edge") is Outcome.NOTICED
    assert fate() is Outcome.NOT_NOTICED
    for said in ("", APPLIED.replace("a.C", "a.D"), APPLIED.replace("one", "another"), APPLIED.removesuffix("\n")):
        assert fate(said, by="an edge") is Outcome.NOT_APPLIED
        assert fate(said) is Outcome.NOT_APPLIED


def test_a_mutant_that_finds_nothing_to_change_is_not_applied_whatever_else_happened() -> None:
    refused = "mutant one not applied: nothing to change in a.B.c\n"
    for started in (True, False):
        for by in ("", "an edge"):
            assert (
                fate(APPLIED + refused, started=started, by=by, error=BrokerFailed("ended (98)")) is Outcome.NOT_APPLIED
            )
    assert judged(ONE, refused, started=False, by="", error=None).by == refused.strip()


def test_a_broker_that_does_not_start_or_ends_is_no_broker_that_differs() -> None:
    assert fate("mutant one applied to a.B\n", started=False, error=BrokerFailed("ended (1)")) is Outcome.NOT_STARTED
    assert fate(by="an edge", error=BrokerFailed("ended (1)")) is Outcome.ENDED


def test_a_broker_that_cannot_be_asked_to_the_end_is_neither_noticed_nor_not() -> None:
    for error in (TooLong("120 s"), NoAnswer("none")):
        assert fate(error=error) is Outcome.NO_END


def test_the_first_edge_that_differs_is_told_at_once_and_the_connections_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[bool] = []
    session = SimpleNamespace(edges=dict, wire=SimpleNamespace(close=lambda: closed.append(True)))
    targets: list[Target] = []
    monkeypatch.setattr(command, "open_session", lambda target: targets.append(target) or session)

    def conform(_: object, __: object, look: Callable[[str, int, list[str]], None]) -> None:
        look("transaction", 9, [])
        look("transaction", 8, ["edge one", "edge two"])
        pytest.fail("the rest is not asked for")

    monkeypatch.setattr(command, "conform", conform)
    broker: Any = SimpleNamespace(port=9092, node=1)
    for way in (VERSION_2, VERSION_1, AT_LEVEL_1):
        assert command.difference(broker, way) == "edge one"
    assert closed == [True] * 3
    assert [(each.bootstrap, each.transaction_version) for each in targets] == [
        ("127.0.0.1:9092", version) for version in (2, 1, 1)
    ]


def test_a_broker_that_is_asked_for_too_long_is_told_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(edges=dict, wire=SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(command, "open_session", lambda _: session)
    monkeypatch.setattr(command, "conform", lambda _, __, look: look("transaction", 9, []))
    monkeypatch.setattr(command, "WAY_SECONDS", {VERSION_2: -1.5})
    broker: Any = SimpleNamespace(port=9092, node=1)
    with pytest.raises(TooLong, match=f"^{VERSION_2}: 9 edges of transaction are left after -1.5 s$"):
        command.difference(broker, VERSION_2)


def test_after_a_restart_some_edges_are_asked_and_the_first_that_does_not_conform_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = [*(f"restart-{number}" for number in range(2 * RESTARTED + 1)), "transaction: e"]
    session: Any = SimpleNamespace(edges=lambda: every, wire=SimpleNamespace(close=lambda: None), outages=None)
    targets: list[Target] = []
    monkeypatch.setattr(command, "open_session", lambda target: targets.append(target) or session)
    asked: list[list[str]] = []
    results = [
        SimpleNamespace(found=found, edge=SimpleNamespace(name=f"edge {found}"))
        for found in (Found.UNSUPPORTED, Found.UNKNOWN, Found.DIVERGES)
    ]
    report: Any = SimpleNamespace(conforms=False, differing=lambda: results)
    monkeypatch.setattr(command, "conform", lambda _, wanted, __: asked.append(wanted) or report)
    monkeypatch.setattr(command, "InPlace", lambda *given: given)
    broker: Any = SimpleNamespace(port=9092, node=3)
    assert command.difference(broker, AFTER_RESTART) == "edge could not tell: could not tell"
    assert asked == [["restart-0", f"restart-{RESTARTED}", f"restart-{2 * RESTARTED}"]]
    assert (targets[0].commands, targets[0].timeouts) == (Commands(stop="stop", start="start", node=3), False)
    assert session.outages == (session.wire, targets[0].commands, broker)
    del results[1:]
    assert command.difference(broker, VERSION_2) == "nothing was compared"
    assert (asked[-1], targets[-1].commands, targets[-1].timeouts) == (every, None, True)
    report.conforms = True
    assert command.difference(broker, VERSION_2) == ""


@pytest.mark.parametrize(
    ("outcome", "reason", "ok"),
    [
        (Outcome.NOTICED, "", True),
        (Outcome.NOT_NOTICED, "", False),
        (Outcome.NOT_NOTICED, "because", True),
        (Outcome.NOTICED, "because", False),
        *((outcome, reason, False) for outcome in list(Outcome)[2:] for reason in ("", "because")),
    ],
)
def test_a_mutant_has_to_be_noticed_or_not_if_there_is_a_reason(outcome: Outcome, reason: str, ok: bool) -> None:
    assert verdict(ONE, Fate(outcome=outcome, by="an edge"), reason).ok is ok


def test_a_verdict_on_a_mutant_names_what_noticed_it_and_why_nothing_can() -> None:
    noticed, not_noticed = Fate(outcome=Outcome.NOTICED, by="an edge"), Fate(outcome=Outcome.NOT_NOTICED, by="")
    told = {
        (fate.outcome, reason): verdict(ONE, fate, reason).found
        for fate in (noticed, not_noticed)
        for reason in ("", "because")
    }
    assert told == {
        (Outcome.NOTICED, ""): f"{Outcome.NOTICED}: an edge",
        (Outcome.NOTICED, "because"): f"{Outcome.NOTICED}: an edge",
        (Outcome.NOT_NOTICED, ""): f"{Outcome.NOT_NOTICED}",
        (Outcome.NOT_NOTICED, "because"): f"{Outcome.NOT_NOTICED}: because",
    }


# --- one broker ------------------------------------------------------------------------------------------------------


class FakeCluster:
    """A cluster whose broker writes something, and is as told."""

    def __init__(self, said: str, starts: bool, given: list[Any]) -> None:
        self.said, self.starts, self.given = said, starts, given

    def __call__(self, folder: Path, **given: Any) -> "FakeCluster":
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "output.log").write_text(self.said)
        self.given.append(given)
        return self

    def __enter__(self) -> "FakeCluster":
        if not self.starts:
            raise BrokerFailed("ended (1)")
        return self

    def __exit__(self, *_: object) -> None:
        """End nothing."""

    def __getitem__(self, node: int) -> "FakeCluster":
        return self

    def check_running(self) -> None:
        """It runs."""


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    def put(said: str = APPLIED, *, starts: bool = True) -> list[Any]:
        given: list[Any] = []
        monkeypatch.setattr(command, "Cluster", FakeCluster(said, starts, given))
        return given

    return put


def test_a_broker_is_asked_in_one_way_after_the_other_until_something_differs(brokers: Any, tmp_path: Path) -> None:
    given = brokers()
    for differing, ways in (
        (VERSION_2, [VERSION_2]),
        (VERSION_1, [VERSION_2, VERSION_1]),
        ("", [VERSION_2, VERSION_1]),
    ):
        asked: list[str] = []

        def ask(_: object, way: str, asked: list[str] = asked, differing: str = differing) -> str:
            asked.append(way)
            return "an edge" if way == differing else ""

        found = tried(ONE, Path("agent.jar"), tmp_path / (differing or "none"), ask)
        assert (found.outcome is Outcome.NOTICED, asked) == (bool(differing), ways)
        assert found.by == (f"{differing}: an edge" if differing else "")
    assert all(each["java"][-1] == "-javaagent:agent.jar=one" for each in given)
    assert OTHER.ways == (AFTER_RESTART,)


def test_a_mutant_that_needs_it_gets_a_cluster_of_level_1(brokers: Any, tmp_path: Path) -> None:
    given = brokers()
    for needs, level in (("level 1", 1), ("", 2), ("restart", 2)):
        tried(replace(ONE, needs=needs), Path("agent.jar"), tmp_path / f"{needs}.", lambda *_: "")
        assert given[-1]["features"] == {"transaction.version": level}


def test_the_control_has_no_agent_and_a_broker_that_does_not_start_is_not_asked(brokers: Any, tmp_path: Path) -> None:
    given = brokers("")
    assert tried(CONTROL, Path("agent.jar"), tmp_path / "a", lambda *_: "").outcome is Outcome.NOT_NOTICED
    assert not any("javaagent" in word for word in given[0]["java"])
    brokers("mutant one applied to a.B\n", starts=False)

    def ask(*_: object) -> str:
        raise AssertionError

    assert tried(ONE, Path("agent.jar"), tmp_path / "c", ask).outcome is Outcome.NOT_STARTED


# --- all of them -----------------------------------------------------------------------------------------------------


def run_of(folder: Path, depends: str = "same", **outcomes: Outcome) -> tuple[Run, list[Mutant]]:
    """A run in which mutants end as told, and are noticed if nothing is; the control has the name ``control``."""
    tried_: list[Mutant] = []

    def attempt(mutant: Mutant) -> Fate:
        tried_.append(mutant)
        default = Outcome.NOTICED if mutant.name else Outcome.NOT_NOTICED
        return Fate(outcome=outcomes.get(mutant.name or "control", default))

    return Run(ResultCache(folder), depends, attempt, lambda *_: None), tried_


def test_nothing_counts_if_the_unchanged_broker_does_not_conform(tmp_path: Path) -> None:
    for outcome in (Outcome.NOTICED, Outcome.NOT_STARTED, Outcome.NO_END):
        run, tried_ = run_of(tmp_path, control=outcome)
        found = run.fates([ONE, OTHER])
        assert isinstance(found, Fate)
        assert found.outcome is outcome
        assert tried_ == [CONTROL]
    run, _ = run_of(tmp_path)
    assert isinstance(run.fates([ONE]), dict)  # nothing was kept of these runs


def test_the_unchanged_broker_is_asked_in_every_way_in_which_a_mutant_is(tmp_path: Path) -> None:
    run, tried_ = run_of(tmp_path)
    run.fates([OTHER, ONE])
    assert [(each.name, each.ways) for each in tried_] == [
        ("", (VERSION_2, VERSION_1)),
        ("", (AFTER_RESTART,)),
        ("other", (AFTER_RESTART,)),
        ("one", (VERSION_2, VERSION_1)),
    ]


def test_a_run_goes_on_where_it_was_ended_and_tries_errors_again(tmp_path: Path) -> None:
    run_of(tmp_path, other=Outcome.NOT_STARTED)[0].fates([ONE, OTHER])
    run, tried_ = run_of(tmp_path)
    found = run.fates([ONE, OTHER])
    assert isinstance(found, dict)
    assert {name: each.outcome for name, each in found.items()} == dict.fromkeys(("one", "other"), Outcome.NOTICED)
    assert [each.name for each in tried_] == ["", "other"]
    run, tried_ = run_of(tmp_path)
    run.fates([ONE, OTHER])
    assert tried_ == []
    run, tried_ = run_of(tmp_path, depends="another")
    run.fates([ONE])
    assert [each.name for each in tried_] == ["", "one"]


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "reasons", "code"),
    [
        ({}, {}, 0),
        ({"one": Outcome.NOT_NOTICED}, {}, 1),
        ({"one": Outcome.NOT_NOTICED}, {"one": "because"}, 0),
        ({}, {"one": "because"}, 1),
        ({"one": Outcome.NOT_APPLIED}, {"one": "because"}, 1),
        ({"": Outcome.NOTICED}, {}, 1),
    ],
)
def test_the_command_ends_with_1_unless_all_is_as_expected(
    outcomes: dict[str, Outcome],
    reasons: dict[str, str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ended(mutant: Mutant, *_: object) -> Fate:
        default = Outcome.NOTICED if mutant.name else Outcome.NOT_NOTICED
        return Fate(outcome=outcomes.get(mutant.name, default), by="an edge")

    monkeypatch.setattr(command, "compiled", lambda folder: folder / "agent.jar")
    monkeypatch.setattr(command, "listed", lambda _: [ONE])
    monkeypatch.setattr(command, "survivors", lambda _: reasons)
    monkeypatch.setattr(command, "cache_folder", lambda _: tmp_path / "kept")
    monkeypatch.setattr(command, "tried", ended)
    file = tmp_path / "verdicts.json"
    assert main(["check", "broker-mutants", "--json", str(file)]) == code
    assert file.exists() is ("" not in outcomes)
    if file.exists():
        assert json.loads(file.read_text())[0]["ok"] is (code == 0)
    assert main(["check", "broker-mutants", "two"]) == 2
    capsys.readouterr()
    assert main(["check", "broker-mutants", "--list"]) == 0
    assert capsys.readouterr().out == "one: It is wrong.\n"


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.skipif(not have_jars(), reason="the jars of Kafka are not there; `make peers` fetches them")
@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to compile the agent with")
def test_an_agent_changes_a_broker_or_says_that_it_could_not(tmp_path: Path) -> None:
    jar = command.compiled(tmp_path)
    mutants = {each.name: each for each in command.listed(jar)}
    loaded, unloaded = mutants["no-guard-check"], mutants["static-member-not-fenced"]
    assert tried(loaded, jar, tmp_path / "a", lambda *_: "").outcome is Outcome.NOT_NOTICED
    assert tried(unloaded, jar, tmp_path / "b", lambda *_: "an edge").outcome is Outcome.NOT_APPLIED
    unknown = tried(replace(loaded, name="unknown"), jar, tmp_path / "c", lambda *_: "")
    assert unknown.outcome is Outcome.NOT_STARTED
