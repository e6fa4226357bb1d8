"""The pytest plugin: the fixture in a user's tests, and their output after a failure."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PROJECT = Path(__file__).parents[3]
EXAMPLE = PROJECT / "examples" / "exactly-once-app"


@pytest.fixture(autouse=True)
def _without_our_settings(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\naddopts = ['--strict-markers']")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run the tests like a user who has installed the package; ``check code`` has imported pytest's plugins already."""
    imported_already = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *imported_already, *arguments)


def test_every_test_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import socket

        addresses = []

        def reach(broker):
            host, _, port = broker.bootstrap_servers.rpartition(":")
            socket.create_connection((host, int(port)), 5).close()
            addresses.append(broker.bootstrap_servers)

        def test_one(kafka_eos_broker):
            reach(kafka_eos_broker)
            kafka_eos_broker.create_topic("t")

        def test_another(kafka_eos_broker):
            reach(kafka_eos_broker)
            kafka_eos_broker.create_topic("t")  # it is not there yet
            assert len(set(addresses)) == 2
    """)
    run(pytester).assert_outcomes(passed=2)


def test_a_marker_configures_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makefile(".toml", plan='[[fault]]\ndo = "close"\napi = "Produce"')
    pytester.makepyfile("""
        from pathlib import Path
        import pytest

        @pytest.mark.kafka_eos(brokers=3, transaction_version=1, faults=Path("plan.toml"), seed=7)
        def test_settings(kafka_eos_broker):
            assert len(kafka_eos_broker.bootstrap_servers.split(",")) == 3
            assert kafka_eos_broker.call(lambda server: server.cluster.settings.transactions.version) == 1
            assert [str(tally.rule) for tally in kafka_eos_broker.faults.tallies] == ["close Produce"]
            assert kafka_eos_broker.seed == 7
            kafka_eos_broker.faults.tallies.clear()
    """)
    run(pytester).assert_outcomes(passed=1)


def test_a_failing_test_names_the_findings_and_the_diagram(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from kafka_eos.formats.record_batch import Record

        def write(broker, topic, *values):
            def append(server):
                leader = server.cluster.topics[topic].partitions[0]
                leader.append_records([Record(value=value) for value in values], server.cluster.now)
            broker.create_topic(topic)
            broker.call(append)

        def test_nothing_is_copied_twice(kafka_eos_broker):
            write(kafka_eos_broker, "in", b"a", b"b")
            write(kafka_eos_broker, "out", b"a", b"b", b"b")
            kafka_eos_broker.assert_exactly_once(inputs="in", outputs="out", group="g")
    """)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E * output without its offset, input processed twice (not exactly once: 3 finding(s))",
            "E *   output without its offset: out-0 offset 0: 'a' is the output of in-0 offset 0 of group 'g'*",
            "E *     means: *",
            "E *     next:  *",
            "E *   input processed twice: out-0 offset 2: in-0 offset 1 of group 'g' was processed more than once*",
            "E *note: *is 'g' its name?",
            "E *audit: *kafka-eos audit *",
            "E *requests: *history.jsonl",
            "E *logs: *data",
        ]
    )
    result.stdout.no_fnmatch_line("*raise NotExactlyOnce*")


def test_a_fault_that_never_fires_is_a_warning_that_can_be_made_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_faults(kafka_eos_broker):
            with kafka_eos_broker.faulty("close", api="Produce"):
                pass
            kafka_eos_broker.fault("drop-answer", api="EndTxn", nth=9)
            kafka_eos_broker.fault("close", api="EndTxn", chance=0.1)
            kafka_eos_broker.fault("close", api="Metadata").fired = 1
    """)
    name = "kafka_eos_checks.testing.pytest_plugin.FaultNeverFired"
    result = run(pytester, "-W", f"default::{name}")  # here warnings are errors
    result.assert_outcomes(passed=1, warnings=2)
    result.stdout.fnmatch_lines_random(
        [
            "*pytest_plugin.py:*: FaultNeverFired: a planned fault never happened: close Produce: fired 0 time(s), 0 *",
            "*FaultNeverFired: a planned fault never happened: drop-answer EndTxn nth 9: fired 0 time(s), 0 request*",
        ]
    )
    run(pytester, "-W", f"error::{name}").assert_outcomes(passed=1, errors=1)


def test_the_short_summary_begins_with_the_rule(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    pytester.makepyfile("""
        def test_a(kafka_eos_broker):
            kafka_eos_broker.assert_exactly_once()

        def test_b(kafka_eos_broker):
            kafka_eos_broker.assert_exactly_once(inputs="in", outputs="out", group="g")

        def test_c(kafka_eos_broker):
            raise ValueError("x")
    """)
    result = run(pytester)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "FAILED *::test_a - no client has sent anything, and no topic has a record: nothing was tested",
            "FAILED *::test_b - no topic 'in'; there is none at all",
            "FAILED *::test_c - ValueError: x",
        ]
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("3", "*UsageError: marker kafka_eos: no option 3; there are brokers=, *"),
        ("transaction_version=3", "*ValueError: transaction_version=3; there are 0, 1, 2"),
        ("brokers=0", "*ValueError: brokers=0; give 1 or more"),
        (
            "faults='plan.toml'",
            "*MalformedPlan: plan.toml: close Produce broker 2: there is no broker 2; give brokers=2",
        ),
    ],
)
def test_a_wrong_setting_is_reported(pytester: pytest.Pytester, options: str, said: str) -> None:
    pytester.makefile(".toml", plan='[[fault]]\ndo = "close"\napi = "Produce"\nbroker = 2')
    pytester.makepyfile(f"""
        import pytest

        @pytest.mark.kafka_eos({options})
        def test_settings(kafka_eos_broker):
            pass
    """)
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])


def test_an_unknown_setting_is_reported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.kafka_eos(broker=3)
        def test_settings(kafka_eos_broker):
            pass
    """)
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*UsageError: marker kafka_eos: no option broker; there are brokers=, transaction_version=, *"]
    )
    result.stdout.no_fnmatch_line("*raise pytest.UsageError*")


def test_the_plugin_costs_nothing_where_it_is_not_used() -> None:
    code = (
        "import sys, kafka_eos_checks.testing.pytest_plugin; print('kafka_eos' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_broker_starts_without_the_modules_of_its_audit() -> None:
    code = (
        "import sys, kafka_eos_checks.testing.in_process_broker; print('numpy' in sys.modules, 'jinja2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.thorough
def test_the_example_passes_and_finds_its_mistakes(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="the clients are in the extra `record`")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        command, cwd=EXAMPLE, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert re.search(r"^7 passed", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_what_the_application_met_is_shown_of_a_passed_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from collections import Counter

        from kafka_eos_checks.testing.observations import Met

        def test_passes(kafka_eos_broker):
            kafka_eos_broker.met.append(
                Met(inputs=3, committed=1, aborted=2, started=1, most_partitions=1, generations=1, refused=Counter())
            )
    """)
    said = "*3 input(s), 1 transaction(s) committed and 2 aborted,*"
    run(pytester, "-rP").stdout.fnmatch_lines(["*kafka-eos teardown*", said])
    run(pytester).stdout.no_fnmatch_line(said)
