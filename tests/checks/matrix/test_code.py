"""Mutants of a small package in a clone of its own: the tests that notice them, and the survivors."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.verdict import read_verdicts
from kafka_eos_checks.matrix import code, fork_server
from kafka_eos_checks.matrix.code import Bench, CodeMutant, Fate, UnusableCode
from kafka_eos_checks.matrix.notes import MEASURED, NOTES
from kafka_eos_checks.tla.result_cache import ResultCache

RULE = '''"""A rule."""


def may_pass(weight: int | None, most: int = 7) -> bool:
    """Whether a weight may pass."""
    return weight is not None and weight < most
'''
OWN = """from toy.rule import may_pass

def test_heavy_ones_stay():
    assert not may_pass(8)
"""
OTHERS = """from toy.rule import may_pass

def test_light_ones_pass():
    assert may_pass(6)
"""


MARKERS = "[pytest]\nmarkers =\n    tlc\n    java\n    spark\n    broker\n    thorough\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with one room, a test that mirrors its module, and another test in its folder."""
    return made(tmp_path / "clone")


def made(root: Path) -> Path:
    room, tests = root / "reference" / "kafka_eos" / "room", root / "tests" / "reference" / "room"
    for folder in (room, tests, root / "reference" / "toy"):
        folder.mkdir(parents=True)
    (room / "__init__.py").write_text("", encoding="utf-8")
    (room / "rule.py").write_text(RULE, encoding="utf-8")
    (root / "reference" / "toy" / "rule.py").symlink_to(
        "../kafka_eos/room/rule.py"
    )  # the installed package is another one
    (tests / "test_rule.py").write_text(OWN, encoding="utf-8")
    (tests / "test_others.py").write_text(OTHERS, encoding="utf-8")
    return root


def mutant(before: str, after: str) -> CodeMutant:
    assert RULE.count(before) == 1
    return CodeMutant(
        file="reference/kafka_eos/room/rule.py",
        line=6,
        change=f"{before} -> {after}",
        text=RULE.replace(before, after),
    )


def test_a_room_or_a_file_names_its_modules(clone: Path) -> None:
    rule = Path("reference/kafka_eos/room/rule.py")
    assert code.modules(clone, "room") == code.modules(clone, str(rule)) == [rule]
    for file in ("room/rule.py", "room/corner/shelf.py"):
        assert code.room_tests(clone, Path("reference/kafka_eos") / file) == "tests/reference/room"
    for file in ("attic/chest.py", "errors.py"):  # a room without tests of its own, and no room
        assert code.room_tests(clone, Path("reference/kafka_eos") / file) == "tests/reference"
    with pytest.raises(UnusableCode, match="no package 'rom'"):
        code.modules(clone, "rom")


@pytest.fixture(scope="module", autouse=True)
def few_plugins() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # every pytest would import Hypothesis and its like
        yield


@pytest.fixture
def bench(clone: Path, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(root=clone, folder=tmp_path / "copy", cache=ResultCache(tmp_path / "cache"))
    yield bench
    bench.close()


NOTICED = [mutant("weight < most", "True"), mutant("weight < most", "False")]
LEFT = mutant("= 7", "= 8")


@pytest.fixture(scope="module")
def judged(few_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, list[Fate]]]:
    """A bench on which three mutants were judged, and their fates."""
    folder = tmp_path_factory.mktemp("judged")
    bench = Bench(root=made(folder / "clone"), folder=folder / "copy", cache=ResultCache(folder / "cache"))
    seen: list[Fate] = []
    fates = code.judged([bench], [*NOTICED, LEFT], seen.append)
    assert seen == fates
    yield bench, fates
    bench.close()


@pytest.fixture
def knowing(bench: Bench, judged: tuple[Bench, list[Fate]]) -> Bench:
    """A bench of its own for each test, with the results of the three mutants."""
    shutil.copytree(judged[0].cache.folder, bench.cache.folder)
    return bench


def test_a_mutant_that_no_test_of_its_room_notices_survives(
    judged: tuple[Bench, list[Fate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, fates = judged
    assert [fate.by for fate in fates] == [
        "tests/reference/room/test_rule.py::test_heavy_ones_stay",
        "tests/reference/room/test_others.py::test_light_ones_pass",
        code.NONE,
    ]
    assert [str(fate)[:9] for fate in fates] == ["killed by", "killed by", "survives:"]
    assert (bench.folder / LEFT.file).read_text(encoding="utf-8") == RULE
    assert (bench.root / LEFT.file).read_text(encoding="utf-8") == RULE
    monkeypatch.setattr(Bench, "_fails", lambda *_: pytest.fail("an earlier result is kept"))
    assert [fate.by for fate in code.judged([bench], [*NOTICED, LEFT], lambda _: None)] == [fate.by for fate in fates]


def test_another_test_is_tried_on_survivors_only(
    knowing: Bench, judged: tuple[Bench, list[Fate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = OWN.replace("heavy", "many") + "    assert not may_pass(7)\n"
    (knowing.folder / "tests" / "reference" / "room" / "test_more.py").write_text(more, encoding="utf-8")
    tried: list[CodeMutant] = []
    monkeypatch.setattr(Bench, "_fate", lambda _, mutant, tests: tried.append(mutant) or min(tests))
    after = code.judged([knowing], [*NOTICED, LEFT], lambda _: None)
    assert tried == [LEFT]
    assert [fate.by for fate in after[:2]] == [fate.by for fate in judged[1][:2]]
    assert after[2].by == "tests/reference/room/test_more.py::test_many_ones_stay"


def test_survivors_are_tried_with_the_tests_that_start_a_jvm_if_asked_for(knowing: Bench) -> None:
    tests = knowing.folder / "tests" / "reference" / "room"
    (knowing.folder / "pytest.ini").write_text(MARKERS, encoding="utf-8")
    marked = "import pytest\n" + OWN.replace("def test_heavy", "@pytest.mark.tlc\ndef test_heavier").replace("8", "7")
    (tests / "test_java.py").write_text(marked, encoding="utf-8")
    left, noticed = mutant("= 7", "= 6 + 1"), LEFT
    assert [knowing.judge(each).is_killed for each in (left, noticed)] == [False, False]
    knowing.java = True
    test = "tests/reference/room/test_java.py::test_heavier_ones_stay"
    assert [knowing.judge(each).by for each in (left, noticed)] == [code.NONE, test]
    knowing.java = False
    assert not knowing.judge(noticed).is_killed, "what is kept is that of the same tests"


def test_of_a_test_with_parameters_those_that_start_a_jvm_are_tried_only_if_asked_for(bench: Bench) -> None:
    tests = bench.folder / "tests" / "reference" / "room"
    (bench.folder / "pytest.ini").write_text(MARKERS, encoding="utf-8")
    weights = '@pytest.mark.parametrize("weight", [8, pytest.param(7, marks=pytest.mark.tlc)])'
    text = "def test_heavy_ones_stay(weight):\n    assert not may_pass(weight)\n"
    (tests / "test_rule.py").write_text(
        f"import pytest\nfrom toy.rule import may_pass\n\n{weights}\n{text}", encoding="utf-8"
    )
    assert bench.judge(LEFT).by == code.NONE
    bench.java = True
    assert bench.judge(LEFT).by == "tests/reference/room/test_rule.py::test_heavy_ones_stay[7]"


@pytest.mark.thorough
def test_a_slow_computer_kills_no_mutant_and_an_endless_loop_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "_LEAST_TIMEOUT", 0.2)
    file = "tests/reference/room/test_rule.py"
    slow = OWN.replace("    assert", "    time.sleep(0.5)\n    assert")
    (bench.folder / file).write_text(f"import time\n{slow}", encoding="utf-8")
    test = f"{file}::test_heavy_ones_stay"
    assert bench._fate(mutant("= 7", "= 8"), {test: 0.0}) == ""
    endless = mutant("return weight", "while weight == 8: pass\n    return weight")
    assert bench._fate(endless, {test: 0.5}) == f"{code.NO_END} {test}"


def test_a_long_test_gives_quick_ones_no_more_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(Bench, "_fails_with", lambda *given: tried.append(given[2:]) or "")
    assert bench._fate(LEFT, {"a::long": 10.0, "a::quick": 0.5, "b::at_the_bound": 5.0}) == ""
    assert tried == [(["a::quick", "b::at_the_bound"], 15.0, 5.5), (["a::long"], 30.0, 10.0)]


def test_a_test_that_once_has_no_end_while_the_computer_stands_still_kills_no_mutant(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    test, never = "tests/reference/room/test_rule.py::test_heavy_ones_stay", "tests/a.py::test_a"
    stands_still, endless = f"{code.NO_END} {test}", f"{code.NO_END} {never}"
    for said, fate in (  # in turn with the mutant and without it
        ([stands_still, "", ""], ""),
        ([stands_still, "", never, never, ""], never),
        ([stands_still, "", stands_still, ""], stands_still),
        ([stands_still, stands_still, stands_still, "", stands_still, ""], stands_still),
        ([stands_still, "", endless, "", endless, ""], endless),
    ):
        answers = iter(said)
        monkeypatch.setattr(Bench, "_fails", lambda *_, answers=answers: next(answers))
        assert bench._fate(mutant("= 7", "= 8"), {test: 0.1, never: 0.1}) == fate
        assert next(answers, None) is None
        bench.passing.clear()


def test_a_test_counts_if_it_fails_twice_with_a_mutant_and_not_without_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, file = "tests/a.py::test_a", "tests/b.py::test_b", "tests/a.py"
    given = f"{one}[x - y]"
    for said, fate in (  # all tests with the mutant, then the failed one with it and without it
        ([given, given, ""], given),
        ([given, "", ""], ""),
        ([given, "", other, other, ""], other),
        ([given, "", other, ""], ""),
        ([file, "", other, other, ""], other),
        ([other, "", other, ""], other),  # and the tests up to the failed one, with the mutant and without it
        ([other, "", given, ""], other),
        ([other, "", other, other, given, given, ""], given),
        ([other, "", "", given, given, ""], given),
        ([given, given, f"{code.NO_END} {one}", ""], ""),
    ):
        answers, asked = iter(said), list[list[str]]()

        def fails(_: Bench, tests: list[str], *__: float, answers: Any = answers, asked: Any = asked) -> str:
            asked.append(tests)
            return str(next(answers))

        monkeypatch.setattr(Bench, "_fails", fails)
        assert bench._fate(mutant("= 7", "= 8"), {one: 0.1, other: 0.1}) == fate
        assert next(answers, None) is None
        assert asked[:2] == [[one, other], [said[0].partition("[")[0]]]
        if said[0] == other:
            assert asked[2] == [one, other]
        else:
            assert all(one not in tests for tests in asked[2:] if said[1] == "")
        bench.passing.clear()
    monkeypatch.setattr(Bench, "_fails", lambda *_: one)
    with pytest.raises(UnusableCode, match=r"fails without a mutant: tests/a.py::test_a; mend that first"):
        bench._fate(mutant("= 7", "= 8"), {one: 0.1, other: 0.1})


def test_a_test_shows_once_in_a_call_that_it_passes_without_a_mutant(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = "tests/a.py::test_a", "tests/b.py::test_b"
    answers = iter([one, one, "", one, one, other, other, ""])
    monkeypatch.setattr(Bench, "_fails", lambda *_: next(answers))
    for fate in (one, one, other):
        assert bench._fate(mutant("= 7", "= 8"), {one: 0.1, other: 0.1}) == fate
    assert next(answers, None) is None


def test_a_test_that_fails_now_and_then_kills_no_mutant(bench: Bench) -> None:
    file = "tests/reference/room/test_rule.py"
    flaky = "    turn = len(list(Path().glob('turn-*')))\n    Path(f'turn-{turn}').touch()\n    assert turn\n"
    text = f"from pathlib import Path\n{OWN.replace('8', '9')}\n\ndef test_now_and_then():\n    may_pass(9)\n{flaky}"
    (bench.folder / file).write_text(text, encoding="utf-8")
    tests = {f"{file}::test_heavy_ones_stay": 0.1, f"{file}::test_now_and_then": 0.1}
    assert bench._fate(mutant("= 7", "= 8"), tests) == ""
    assert len(list(bench.folder.glob("turn-*"))) == 3, "with the mutant: after the other one, alone, after it again"


def test_an_error_in_a_log_is_not_taken_for_a_test(bench: Bench) -> None:
    file = "tests/reference/room/test_rule.py"
    text = f"import logging\n{OWN}".replace("    assert", "    logging.error('refused')\n    assert")
    (bench.folder / file).write_text(text, encoding="utf-8")
    test = f"{file}::test_heavy_ones_stay"
    assert bench._fate(mutant("weight < most", "True"), {test: 0.1}) == test


def test_a_test_that_notices_what_another_one_has_left_behind_kills_a_mutant(bench: Bench) -> None:
    file = "tests/reference/room/test_rule.py"
    text = "from toy.rule import may_pass\nLEFT = []\n\ndef test_first():\n    LEFT.append(may_pass(7))\n"
    (bench.folder / file).write_text(f"{text}\ndef test_second():\n    assert True not in LEFT\n", encoding="utf-8")
    tests = {f"{file}::test_first": 0.1, f"{file}::test_second": 0.1}
    assert bench._fate(mutant("= 7", "= 8"), tests) == f"{file}::test_second"


def test_a_pytest_that_is_killed_or_cannot_start_kills_no_mutant(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    test = "tests/reference/room/test_rule.py::test_heavy_ones_stay"
    assert bench._fails(["tests/reference/room/test_rule.py::test_gone"], 5.0, 1.0).startswith(code.ENDED)
    killing = "import os, signal\n\ndef test_it():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    (bench.folder / "tests" / "reference" / "room" / "test_killing.py").write_text(killing, encoding="utf-8")
    assert bench._fails(["tests/reference/room/test_killing.py"], 5.0, 1.0) == f"{code.ENDED} -9"
    ended = f"{code.ENDED} -9"
    for said, fate in (  # in turn with the mutant and without it
        ([ended, "", ""], ""),
        ([ended, "", test, test, ""], test),
        ([ended, "", ended, ""], ended),
    ):
        answers = iter(said)
        monkeypatch.setattr(Bench, "_fails", lambda *_, answers=answers: next(answers))
        assert bench._fate(mutant("= 7", "= 8"), {test: 0.1}) == fate
        assert next(answers, None) is None
        bench.passing.clear()
    monkeypatch.setattr(Bench, "_fails", lambda *_: ended)
    with pytest.raises(UnusableCode, match="pytest ended with -9 without a mutant"):
        bench._fate(mutant("= 7", "= 8"), {test: 0.1})


def test_a_process_that_a_test_starts_leaves_no_compiled_mutant_for_the_next_one(bench: Bench) -> None:
    file, program = "tests/reference/room/test_rule.py", "from toy.rule import may_pass; assert not may_pass(8)"
    text = "import subprocess, sys\n\ndef test_it():\n"
    text += f"    subprocess.run([sys.executable, '-c', {program!r}], check=True)\n"
    (bench.folder / file).write_text(text, encoding="utf-8")
    assert bench._fails_with(mutant("= 7", "= 9"), [f"{file}::test_it"], 5.0, 1.0) == f"{file}::test_it"
    assert not list(bench.folder.rglob("rule.*.pyc"))


def test_a_mutant_of_a_room_without_tests_that_may_run_survives(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = bench.folder / "tests" / "reference" / "room"
    (bench.folder / "pytest.ini").write_text(MARKERS, encoding="utf-8")
    (tests / "test_rule.py").write_text(f"import pytest\npytestmark = pytest.mark.tlc\n{OWN}", encoding="utf-8")
    (tests / "test_others.py").unlink()
    fate = bench.judge(mutant("weight < most", "True"))
    assert fate.by == code.NONE
    assert str(fate).startswith("survives, no tried test is seen to execute it: reference/kafka_eos/room/rule.py:6: ")
    monkeypatch.setattr(Bench, "_fails", lambda *_, **__: pytest.fail("pytest without a name runs all tests"))
    assert bench._fate(mutant("weight < most", "True"), {}) == ""


HALF_WRITTEN = f"""import os, pathlib

def test_what_has_started_a_process_that_ended_while_it_wrote():
    if {NOTES!r} in os.environ:
        pathlib.Path(os.environ[{NOTES!r}] + ".lines.localhost.1.X").write_bytes(b"SQLite")
"""


@pytest.mark.parametrize("other", ["def test_something_else(): assert 1 + 1 == 2", HALF_WRITTEN])
def test_lines_that_were_not_executed_or_not_written_are_no_error_where_warnings_are(bench: Bench, other: str) -> None:
    tests = bench.folder / "tests" / "reference" / "room"
    (bench.folder / "pytest.ini").write_text(f"{MARKERS}filterwarnings = error\n", encoding="utf-8")
    (tests / "test_others.py").write_text(other, encoding="utf-8")
    assert bench.judge(mutant("weight < most", "True")).by.endswith("test_heavy_ones_stay")


def test_what_an_endless_test_has_started_ends_with_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_LEAST_TIMEOUT", 1.0)
    file = "tests/reference/room/test_rule.py"
    text = "import subprocess, sys\nfrom pathlib import Path\nfrom toy.rule import may_pass\n\ndef test_it():\n"
    text += "    left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    text += "    Path('left').write_text(str(left.pid))\n    assert may_pass(8) is False\n    left.kill()\n"
    (bench.folder / file).write_text(text, encoding="utf-8")
    endless = mutant("return weight", "while weight == 8: pass\n    return weight")
    assert bench._fails([f"{file}::test_it"], 5.0, 1.0) == ""
    (bench.folder / endless.file).write_text(endless.text, encoding="utf-8")
    assert bench._fails([f"{file}::test_it"], 1.0, 1.0) == f"{code.NO_END} {file}::test_it"
    assert ends(int((bench.folder / "left").read_text(encoding="utf-8")))


def ends(pid: int) -> bool:
    """Whether a process ends in some seconds."""
    with suppress(ProcessLookupError):
        for _ in range(1_000):
            os.kill(pid, 0)
            time.sleep(0.01)
        return False
    return True


def test_what_is_forked_ends_even_if_its_parent_is_killed_alone(bench: Bench) -> None:
    pid = "import os\nfrom pathlib import Path\n\ndef test_it():\n    Path('pid').write_text(str(os.getpid()))\n"
    (bench.folder / "test_it.py").write_text(
        f"{pid}    os.kill(os.getppid(), 9)\n    import time\n    time.sleep(20)\n    Path('outlived').touch()\n",
        encoding="utf-8",
    )
    with pytest.raises(UnusableCode, match="the process that starts pytest ended with -9"):
        bench._fails(["test_it.py"], 60.0, 60.0)
    assert ends(int((bench.folder / "pid").read_text(encoding="utf-8")))
    assert not (bench.folder / "outlived").exists()
    assert bench._fails(["tests/reference/room/test_rule.py"], 5.0, 1.0) == "", "another one is started"


KILLED = """import os, sys
from pathlib import Path
from kafka_eos_checks.matrix.code import Bench
from kafka_eos_checks.tla.result_cache import ResultCache
root, folder = map(Path, sys.argv[1:])
Bench(root=root, folder=folder, cache=ResultCache(folder))._fails(["test_it.py"], 600.0, 600.0)
"""


def test_pytest_ends_with_the_command_that_is_killed(clone: Path, tmp_path: Path) -> None:
    text = "import os, time\nfrom pathlib import Path\n\ndef test_it():\n    Path('pid').write_text(str(os.getpid()))\n"
    (clone / "test_it.py").write_text(text + "    Path('pid').rename('ready')\n    time.sleep(600)\n", encoding="utf-8")
    ready = tmp_path / "copy" / "ready"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(clone), str(ready.parent)]) as command:
        try:
            while not ready.exists():
                assert command.poll() is None
                time.sleep(0.01)
        finally:
            command.kill()
    assert ends(int(ready.read_text(encoding="utf-8")))


def test_what_tests_import_is_imported_for_the_next_run_in_their_order() -> None:
    """With ``_asyncio`` first, no task knows itself, and no test passes that has a timeout."""
    assert fork_server._of_others([asyncio.__name__, "kafka_eos_checks", "_asyncio"]) == ["asyncio", "_asyncio"]


def test_tests_that_execute_the_changed_line_are_run_alone(knowing: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = knowing.folder / "tests" / "reference" / "room"
    monkeypatch.setenv("ZONE", "its own")
    monkeypatch.setenv("PYTHONPATH", str(knowing.root.parent / "beside"))
    (knowing.root.parent / "beside").mkdir()
    (knowing.root.parent / "beside" / "found_beside.py").touch()
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # compiling once is quicker
    (tests / "test_a.py").write_text(
        "import os\n"
        "import found_beside\n"
        "import pytest\n"
        "def test_nothing():\n"
        f"    with pytest.raises(MemoryError):\n        bytearray({fork_server.MEMORY})\n"
        "    assert os.environ['ZONE'] == 'its own'\n"
        "    assert 'PYTHONDONTWRITEBYTECODE' not in os.environ\n",
        encoding="utf-8",
    )
    (tests / "test_process.py").write_text(
        "import os, subprocess, sys\n"
        "def test_a_fork():\n"
        "    from toy.rule import may_pass\n"
        "    if process := os.fork():\n"
        "        os.waitpid(process, 0)\n"
        "    else:\n"
        "        may_pass(6)\n"
        "        os._exit(0)  # as multiprocessing ends its own\n"
        "def test_a_process():\n"
        "    program = 'from toy.rule import may_pass; may_pass(6)'\n"
        "    subprocess.run([sys.executable, '-c', program], check=True)\n",
        encoding="utf-8",
    )
    file = "reference/kafka_eos/room/rule.py"
    notes = knowing._notes(Path(file), knowing._keys(Path(file), "tests/reference/room", code._QUICK), code._QUICK)
    names = [
        "tests/reference/room/test_others.py::test_light_ones_pass",
        "tests/reference/room/test_process.py::test_a_fork",
        "tests/reference/room/test_process.py::test_a_process",
        "tests/reference/room/test_rule.py::test_heavy_ones_stay",
    ]
    assert sorted(code.reaching_tests(notes, file, [6])) == names
    every = list(code.reaching_tests(notes, file, [4]))
    assert sorted(every) == sorted([*names, "tests/reference/room/test_a.py::test_nothing"]), "an import executes it"


def test_an_edit_of_the_clone_reaches_no_mutant_that_is_still_to_be_tried(knowing: Bench) -> None:
    (knowing.root / LEFT.file).write_text("def half_written(", encoding="utf-8")
    assert knowing.judge(mutant("weight < most", "weight > most")).is_killed


def test_tests_for_which_another_one_may_have_kept_what_the_line_gave_follow() -> None:
    tests = {"a::test_1": 0.1, "a::test_2": 0.2, "a::test_3": 0.1, "b::test_1": 0.1, "b::test_2": 0.1}
    notes = [
        {
            "tests": {name: seconds for name, seconds in tests.items() if name[0] == file},
            "reached": {"rule.py": reached},
        }
        for file, reached in (("a", {"5": [1]}), ("b", {"6": [0]}))
    ]
    assert list(code.reaching_tests(notes, "rule.py", [5])) == ["a::test_2", "a::test_3"]
    assert list(code.reaching_tests(notes, "rule.py", [5, 6])) == ["b::test_1", "a::test_2", "a::test_3", "b::test_2"]
    notes[0]["reached"]["rule.py"]["7"] = [0, 2]
    assert list(code.reaching_tests(notes, "rule.py", [7])) == ["a::test_1", "a::test_3", "a::test_2"]
    assert not code.reaching_tests(notes, "rule.py", [8]), "no test executes it"


def test_tests_in_the_file_that_mirrors_the_module_come_first_then_quick_ones() -> None:
    tests = {"room/test_room.py::test_1": 0.2, "room/test_room.py::test_2": 0.1, "room/test_rule.py::test_3": 0.3}
    tests["room/test_a.py::test_4"] = 0.15
    notes = [
        {
            "tests": {name: seconds for name, seconds in tests.items() if name.startswith(file)},
            "reached": {"room/rule.py": {"5": numbers}},
        }
        for file, numbers in (("room/test_room.py", [0, 1]), ("room/test_rule.py", [0]), ("room/test_a.py", [0]))
    ]
    found = [name.partition("::")[2] for name in code.reaching_tests(notes, "room/rule.py", [5])]
    assert found == ["test_3", "test_2", "test_4", "test_1"], "the room's own name is that of no module"


def test_the_order_of_the_call_holds_in_one_process_and_long_files_come_first_in_several(
    request: pytest.FixtureRequest,
) -> None:
    conftest: Any = request.config.pluginmanager.get_plugin(str(CLONE / "tests" / "conftest.py"))
    files = [CLONE / "tests" / file for file in ("checks/conform/test_stage.py", *conftest.LONG[:2])]
    items = [SimpleNamespace(path=file, get_closest_marker=lambda _: None) for file in files]
    conftest.pytest_collection_modifyitems(SimpleNamespace(), items)
    assert [item.path for item in items] == files
    conftest.pytest_collection_modifyitems(SimpleNamespace(workerinput={}), items)
    assert [item.path for item in items] == [*files[1:], files[0]]


def test_nothing_of_a_room_is_imported_before_its_lines_are_counted(tmp_path: Path) -> None:
    program = "import sys, kafka_eos_checks.matrix.reached as r; r._coverage.stop(); print(*sys.modules)"
    environment = os.environ | {NOTES: str(tmp_path / "notes"), MEASURED: str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    own = {name for name in done.stdout.split() if name.startswith("kafka_eos")}
    matrix = "kafka_eos_checks.matrix"
    assert own == {"kafka_eos_checks", matrix, f"{matrix}.notes", f"{matrix}.reached"}


def test_the_lines_of_a_statement_end_before_its_body() -> None:
    text = "def outer(\n    a,\n):\n    if a:\n        return (\n            1\n        )\n"
    text += "    try: pass\n    except A: pass\n"
    found = [code.statement(text, line) for line in range(1, 10)]
    assert found == [(1, 3), (1, 3), (1, 3), (4, 4), (5, 7), (5, 7), (5, 7), (8, 8), (9, 9)]


def test_tests_that_fail_without_a_mutant_say_nothing(bench: Bench) -> None:
    test = bench.folder / "tests" / "reference" / "room" / "test_rule.py"
    test.write_text("def test_it(): assert 0", encoding="utf-8")
    with pytest.raises(UnusableCode, match=r"fails without a mutant: .*test_rule.py::test_it; mend that first"):
        bench.judge(mutant("= 7", "= 8"))


def test_an_interrupted_call_runs_no_file_of_tests_again_that_it_has_run(bench: Bench) -> None:
    tests, ran = bench.folder / "tests" / "reference" / "room", bench.folder / "ran"
    (tests / "test_others.py").write_text(f"{OTHERS}    open({str(ran)!r}, 'a').write('others ')\n", encoding="utf-8")
    (tests / "test_rule.py").write_text("def test_it(): assert 0", encoding="utf-8")
    with pytest.raises(UnusableCode):
        bench.judge(mutant("= 7", "= 8"))
    (tests / "test_rule.py").write_text(f"{OWN}    open({str(ran)!r}, 'a').write('rule ')\n", encoding="utf-8")
    file = Path("reference/kafka_eos/room/rule.py")
    bench._notes(file, bench._keys(file, "tests/reference/room", code._QUICK), code._QUICK)
    assert ran.read_text(encoding="utf-8") == "others rule "


def test_benches_of_one_call_run_no_file_of_tests_twice_without_a_mutant(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTES, "of a run of this test itself without a mutant")
    ran = tmp_path / "ran"
    note = f"    import os\n    if {NOTES!r} in os.environ: open({str(ran)!r}, 'a').write(__name__ + ' ')\n"
    for name, text in (("test_others.py", OTHERS), ("test_rule.py", OWN)):
        (clone / "tests" / "reference" / "room" / name).write_text(text + note, encoding="utf-8")
    cache, measured = ResultCache(tmp_path / "cache"), dict[str, Lock]()
    benches = [Bench(root=clone, folder=tmp_path / name, cache=cache, measured=measured) for name in "ab"]
    fates: list[Fate] = []
    code.judged(benches, NOTICED, fates.append)
    assert [fate.is_killed for fate in fates] == [True, True]
    for bench in benches:
        bench.close()
    assert sorted(ran.read_text(encoding="utf-8").split()) == ["test_others", "test_rule"]


def test_a_survivor_has_to_be_explained_and_an_explained_mutant_has_to_survive() -> None:
    one, two = mutant("= 7", "= 8"), mutant("weight < most", "False")
    killed, left = Fate(mutant=two, by="test_it"), Fate(mutant=one, by=code.NONE)
    assert code.verdict("room", [killed], {}).ok
    assert not code.verdict("room", [], {}).ok  # nothing was tried
    assert not code.verdict("room", [], {one.entry: "nobody weighs 7"}, [one]).ok
    assert code.verdict("room", [killed], {one.entry: "nobody weighs 7"}, [one]).ok
    assert not code.verdict("room", [killed, left], {}).ok
    assert code.verdict("room", [killed, left], {(one.file, one.change): "nobody weighs 7"}).ok
    refuted = code.verdict("room", [killed], {(two.file, two.change): "nobody asks"})
    assert not refuted.ok
    assert "1 refuted" in refuted.found


def test_what_is_explained_names_lines_that_are_there() -> None:
    for file, change in code.read_explained():
        text = " ".join((CLONE / file).read_text(encoding="utf-8").split())
        assert " ".join(change.partition(" -> ")[0].split()) in text, f"{file}: {change}"


def test_a_broken_list_of_explanations_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.toml"
    path.write_text('[[equivalent]]\nfile = "a.py"\n', encoding="utf-8")
    with pytest.raises(UnusableCode, match="entry 1: give file, change, reason"):
        code.read_explained(path)


def test_a_package_that_is_not_there_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "code", "sevrer"]) == 2
    assert "no package 'sevrer'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("noticed", "explained", "trust", "status"),
    [(True, 0, 0, 0), (False, 0, 0, 1), (False, 1, 0, 0), (True, 1, 0, 1), (True, 1, 1, 0), (False, 0, 1, 1)],
)
def test_the_command_fails_if_a_mutant_survives_or_an_explained_one_does_not(
    noticed: bool,
    explained: int,
    trust: int,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, two = mutant("= 7", "= 8"), mutant("weight < most", "False")
    asked: list[tuple[int, int, str]] = []
    closed: list[object] = []

    def sample(root: Path, files: list[Path], count: int, seed: int, kinds: str) -> list[CodeMutant]:
        asked.append((count, seed, kinds))
        return [one, two]

    def judged(benches: list[Bench], mutants: list[CodeMutant], on_fate: Callable[[Fate], None]) -> list[Fate]:
        assert (len(benches), mutants) == (3, [one, two][explained and trust :])
        fates = [Fate(mutant=each, by="test_it" if noticed or each is two else code.NONE) for each in mutants]
        for fate in fates:
            on_fate(fate)
        return fates

    monkeypatch.setattr(code, "sample", sample)
    monkeypatch.setattr(code, "judged", judged)
    monkeypatch.setattr(code, "Bench", lambda **given: SimpleNamespace(**given, close=lambda: closed.append(given)))
    monkeypatch.setattr(code, "read_explained", lambda: {each.entry: "why" for each in [one][:explained]})
    call = [
        "check",
        "code",
        "matrix",
        "--sample",
        "2",
        "--seed",
        "5",
        "--jobs",
        "3",
        "--kinds",
        "eos/*",
        *["--trust"][:trust],
    ]
    assert cli.main([*call, "--json", str(tmp_path / "code.json")]) == status
    assert (asked, len(closed)) == ([(2, 5, "eos/*")], 3)
    (verdict,) = read_verdicts(tmp_path / "code.json")
    untried = explained and trust
    assert (verdict.name, verdict.ok, verdict.figures["killed"]) == ("matrix", status == 0, 1 + noticed - untried)
    assert (verdict.figures["mutants"], verdict.figures["not_tried"]) == (2, untried)
    told = capsys.readouterr().err
    assert ("survives: reference/kafka_eos/room/rule.py:6: = 7" in " ".join(told.split())) == (not noticed)
    assert cli.main([*call, "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(one), str(two)]


def test_a_sample_is_the_same_for_a_seed_and_leaves_annotations_out(clone: Path) -> None:
    pytest.importorskip("cosmic_ray", reason="the extra `mutants` is not installed; `make code-mutants` installs it")
    rule = Path("reference/kafka_eos/room/rule.py")
    drawn = code.sample(clone, [rule], 50, 1)
    assert drawn == code.sample(clone, [rule], 50, 1)
    assert len(drawn) > 3
    assert {each.line for each in drawn} == {4, 6}
    assert all("int | None" in each.text and each.text != RULE for each in drawn)
    assert len(code.sample(clone, [rule], 2, 1)) == 2


def test_a_sample_has_changes_of_the_kinds_that_are_asked_for(clone: Path) -> None:
    pytest.importorskip("cosmic_ray", reason="the extra `mutants` is not installed; `make code-mutants` installs it")
    rule = Path("reference/kafka_eos/room/floor.py")
    (clone / rule).write_text(FLOOR, encoding="utf-8")
    assert {each.change for each in code.sample(clone, [rule], 50, 1, "eos/Operand")} == {
        "return weight // 2 -> return weight"
    }
    assert {each.line for each in code.sample(clone, [rule], 50, 1, "core/*")} == {5, 6}


WEIGHT = """from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

Grams: TypeAlias = int | None
Heavy = Callable[[int, Grams], bool | None]
Light = tuple[int, Grams | None]
Any = TypeVar("Any", bound=int)

@dataclass(frozen=True, slots=True)
class Weight:
    grams: int

    @abstractmethod
    def is_heavy(self, **limits):
        return self.grams == 7
"""


FIRST = """def first(weight):
    return weight + 1


def second(weight):
    return (
        weight
        - 2
    )


def third(weight):
    return weight
"""


def test_the_change_that_is_shown_is_all_that_differs(clone: Path) -> None:
    pytest.importorskip("cosmic_ray", reason="the extra `mutants` is not installed; `make code-mutants` installs it")
    rule = Path("reference/kafka_eos/room/first.py")
    (clone / rule).write_text(FIRST, encoding="utf-8")
    drawn = code.sample(clone, [rule], 50, 1)
    assert {each.line for each in drawn} == {2, 7, 8}
    for each in drawn:
        before, _, after = each.change.partition(" -> ")
        flat = " ".join(FIRST.split())
        assert flat.count(before) == 1
        assert flat.replace(before, after).split() == each.text.split()


def test_a_sample_has_programs_only_and_no_flags_of_dataclasses_or_names_of_types(clone: Path) -> None:
    pytest.importorskip("cosmic_ray", reason="the extra `mutants` is not installed; `make code-mutants` installs it")
    rule = Path("reference/kafka_eos/room/weight.py")
    (clone / rule).write_text(WEIGHT, encoding="utf-8")
    drawn = code.sample(clone, [rule], 50, 1)
    for each in drawn:
        compile(each.text, "mutant", "exec")
    assert code._is_program("weight == 7")
    assert not code._is_program("weight is 7"), "Python warns of it"
    assert {each.line for each in drawn} <= {11, 17}
    whole = [each.text for each in drawn if each.line == 11 and "@dataclass" in each.text]
    assert all("frozen=True, slots=True" in text for text in whole)
    assert any(each.line == 17 for each in drawn)


FLOOR = """import struct

def floor(weight):
    try:
        return weight // 2
    except (struct.error, TypeError):
        return None
"""


def test_a_handler_of_several_exceptions_with_dotted_names_ends_no_sample(clone: Path) -> None:
    pytest.importorskip("cosmic_ray", reason="the extra `mutants` is not installed; `make code-mutants` installs it")
    rule = Path("reference/kafka_eos/room/floor.py")
    (clone / rule).write_text(FLOOR, encoding="utf-8")
    assert {each.line for each in code.sample(clone, [rule], 50, 1)} == {5, 6, 7}
