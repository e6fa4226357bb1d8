"""The wheel in its own environment, outside of any clone: documented calls work or name what they need.

The environment has what the wheel declares and nothing else. Its packages are links to those that run the tests, so
nothing is fetched.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.models.findings import possible_causes
from kafka_eos_checks.tla.tlc import JAR_VARIABLE, find_jar

DOCUMENTS = (
    "README.md",
    "docs/commands.md",
    "docs/histories.md",
    "docs/operators.md",
    "docs/sql.md",
    "docs/upgrading.md",
)


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and an empty folder to work in."""

    environment: Path
    folder: Path

    @property
    def python(self) -> str:
        return str(self.environment / "bin" / "python")

    @property
    def command(self) -> str:
        return str(self.environment / "bin" / "kafka-eos")

    def run(self, command: Sequence[str], path: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command without the tests' environment, except for Java if ``path`` has it."""
        variables = {name: value for name, value in os.environ.items() if name in {"JAVA_HOME", "LANG", "LC_ALL"}}
        variables |= {"PATH": path or str(self.environment / "no-programs"), "HOME": str(self.folder), **more}
        return subprocess.run(
            command, cwd=self.folder, env=variables, capture_output=True, text=True, timeout=300, check=False
        )

    def kafka_eos(self, call: str) -> subprocess.CompletedProcess[str]:
        """Run ``kafka-eos``, without Java, Maven or Go."""
        return self.run([self.command, *shlex.split(call)])


def install(wheel: Path, environment: Path, folder: Path, *extras: str) -> Installed:
    """Install the wheel and its requirements into a new environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True, timeout=120)
    [site] = environment.glob("lib/python*/site-packages")
    [own] = site.glob("kafka_eos-*.dist-info")
    linked: set[tuple[str, str]] = set()
    link(metadata.Distribution.at(own), extras, site, linked)
    folder.mkdir()
    return Installed(environment, folder)


def link(distribution: metadata.Distribution, extras: Sequence[str], site: Path, linked: set[tuple[str, str]]) -> None:
    """Link the requirements of a distribution, recursively."""
    for requirement in map(Requirement, distribution.requires or ()):
        wanted = requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in ("", *extras))
        key = (requirement.name, ",".join(sorted(requirement.extras)))
        if not wanted or key in linked:
            continue
        linked.add(key)
        found = metadata.distribution(requirement.name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))))
        link(found, sorted(requirement.extras), site, linked)


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel without extras, and a log directory ``copy/``."""
    folder = tmp_path_factory.mktemp("light")
    installed = install(wheel, folder / "environment", folder / "empty")
    for broker in (1, 2):
        made = installed.kafka_eos(f"lab generate copy/broker-{broker} --batches 2000 --faults 1")
        assert made.returncode == 0, made.stderr
    return installed


# Calls as the documents show them, or with placeholders filled in; the exit code, and the expected output.
WORK = {
    "kafka-eos --help": ("--help", 0, "usage: kafka-eos"),
    "kafka-eos audit example:violations": ("", 1, "found 5 findings"),
    "kafka-eos audit example:operator-mistakes": ("", 1, "torn transaction: "),
    "kafka-eos audit example:no-leader": ("", 1, "hanging transaction: "),
    "kafka-eos audit /var/lib/kafka/data": ("audit copy", 1, "duplicate: "),
    "kafka-eos audit copy/": ("", 1, "duplicate: "),
    "kafka-eos audit PATH…": ("audit copy", 1, "duplicate: "),
    "kafka-eos audit copy/ --html audit.html --findings findings.jsonl": ("", 1, "duplicate: "),
    "kafka-eos audit copy/broker-*/orders-* copy/broker-*/__transaction_state-* --explain-cost": (
        "audit copy/broker-1/generated-0 copy/broker-2/generated-0 --explain-cost",
        1,
        "MB at most",
    ),
    "kafka-eos ledger claims [C15]": ("ledger claims C15", 1, "C15  not checked here"),
    "kafka-eos audit FOLDER": ("audit copy", 1, "duplicate: "),
    "kafka-eos explain": ("explain example:violations", 0, "Diagram: "),
    "kafka-eos explain RECORDING": ("explain example:violations", 0, "Diagram: "),
    "kafka-eos explain TRACE": ("explain example:violations", 0, "Diagram: "),
    "kafka-eos ledger findings": ("", 0, "aborted-records-delivered"),
    "kafka-eos ledger findings [ID]": (
        "ledger findings late-end-of-transaction",
        0,
        "kafka-eos audit example:violations",
    ),
    "kafka-eos ledger findings late-end-of-transaction": ("", 0, "the audit reports it as"),
    "kafka-eos ledger findings decision-lost": ("", 0, "torn transaction"),
    "kafka-eos ledger findings no-leader-no-marker": ("", 0, "produce the records again"),
    "kafka-eos ledger findings ID": ("ledger findings static-leave", 0, "what mends it"),
    "kafka-eos lab generate copy --transactions 2000 --clients 8 --faults 1 --seed 7": (
        "lab generate cluster --transactions 2000 --clients 8 --faults 1 --seed 7",
        0,
        "2,000 transactions",
    ),
    "kafka-eos lab generate FOLDER": ("lab generate made --batches 100", 0, "100 batches"),
    "kafka-eos conform --peers": ("conform --peers --only 'kafka-eos serve, transaction.version 2'", 0, "conforms"),
    "kafka-eos check behaviours MODEL --out FOLDER": (
        "check behaviours LeaderOutside --out behaviours",
        0,
        "LeaderOutside: 121 states",
    ),
    "kafka-eos settings producer.properties": ("settings acks=1", 0, "AcksOne"),
    "kafka-eos simulate": ("", 0, "audit it with: kafka-eos audit"),
    "kafka-eos simulate transactions --scenario late-end": ("", 0, "audit it with: kafka-eos audit"),
    "kafka-eos simulate word-count": ("simulate word-count --crash-at 12 --mutant NoGenerationCheck", 0, "schedules"),
    "kafka-eos simulate word-count --crash-at 12": ("", 0, " 0 wrong"),
    "kafka-eos lab bench": ("lab bench --help", 0, "usage: kafka-eos lab bench"),
    "kafka-eos lab fuzz": ("lab fuzz --count 2000 --jobs 1", 0, "each is read or MalformedBatch"),
    "kafka-eos lab sinks": ("lab sinks outbox", 0, "the contents of the model"),
    "kafka-eos ledger properties": ("", 1, "not checked"),
    "kafka-eos ledger properties NoHangingTransaction": ("", 1, "--tell NoHangingTransaction shows how Kafka 4.3"),
    "kafka-eos check walks --seeds 0..N": ("check walks --seeds 0..3", 0, "nothing violated"),
}
# Calls that need more than the light package, with the remedy that their last line names.
TLC, CLONES, EXTRA = (
    "install Maven, which fetches it",
    "which only a clone of the repository has",
    "pip install 'kafka-eos[{}]'",
)
NEED = {
    "kafka-eos audit --spark": ("audit copy --spark", EXTRA.format("spark")),
    "kafka-eos audit copy/ --sink audits.findings": ("audit copy --sink audits.findings", EXTRA.format("spark")),
    "kafka-eos audit s3://bucket/broker-1 s3://bucket/broker-2": ("", EXTRA.format("spark")),
    "kafka-eos check graphs": ("", TLC),
    "kafka-eos check conjuncts": ("", "this needs Java 17 or later: install a JDK"),
    "kafka-eos check code": ("check code server", CLONES),
    "kafka-eos check broker-mutants": ("", CLONES),
    "kafka-eos book": ("", EXTRA.format("book")),
    "kafka-eos check contracts": ("", EXTRA.format("prove")),
    "kafka-eos lab costs": ("", EXTRA.format("record")),
    "kafka-eos ledger report": ("", "make some first: kafka-eos check models"),
    "kafka-eos ledger findings --check": ("", CLONES),
    "kafka-eos headers PATH… --out DIR": ("headers copy --out headers", EXTRA.format("spark")),
    "kafka-eos headers copy/ --out headers": ("", EXTRA.format("spark")),
    "kafka-eos check impact OPERATOR": ("check impact AppendError", CLONES),
    "kafka-eos check kafka-tests": ("", "install Maven and a JDK"),
    "kafka-eos check models": ("", TLC),
    "kafka-eos check models --kafka 4.3": ("", TLC),
    "kafka-eos check models LateEndIsNotAtomic": ("", TLC),
    "kafka-eos check models KnowsErrorsOfNames": ("", TLC),
    "kafka-eos check models TransactionsUpgrade TransactionsMixed --kafka 4.3": ("", TLC),
    "kafka-eos check models SnapshotWindowJava": ("", TLC),
    "kafka-eos check models TransactionalProducerRecreatedTopic --kafka 4.4 --kafka 4.3": ("", TLC),
    "kafka-eos check mutants": ("", TLC),
    "kafka-eos check proofs": ("", EXTRA.format("prove")),
    "kafka-eos lab record": ("lab record one-broker --out recorded", EXTRA.format("record")),
    "kafka-eos lab record random-faults --seed 7": (
        "lab record random-faults --seed 7 --out recorded",
        EXTRA.format("record"),
    ),
    "kafka-eos check impact AcceptsUnknownProducer": ("", CLONES),
    "kafka-eos check traces": ("", CLONES),
    "kafka-eos check traces FOLDER --alone": ("check traces copy --alone", EXTRA.format("spark")),
    "kafka-eos check traces FOLDER": ("check traces --only told", TLC),
    "kafka-eos check traces PATH… --kafka 4.3": ("check traces example:violations --kafka 4.3", TLC),
    "kafka-eos check traces PATH… --spark": ("check traces copy --spark", EXTRA.format("spark")),
    "kafka-eos check traces [PATH…]": ("check traces --only told", TLC),
    "kafka-eos check": ("", CLONES),
    "kafka-eos check all": ("", CLONES),
}
# Tested below with a server or with Spark, with the example, or with their page (tests/checks/audit/events).
ELSEWHERE = {
    "kafka-eos audit",
    "kafka-eos audit /var/lib/kafka/data --history lost.jsonl",
    "kafka-eos audit FOLDER question.jsonl",
    "kafka-eos audit given.jsonl",
    "kafka-eos audit lost.jsonl",
    "kafka-eos audit headers",
    "kafka-eos conform --bootstrap HOST:9092",
    "kafka-eos conform --bootstrap HOST:9092 --transaction-version 1",
    "kafka-eos conform --bootstrap HOST:PORT",
    "kafka-eos conform --bootstrap HOST:PORT --stop 'COMMAND {node}' --start 'COMMAND {node}'",
    "kafka-eos lab generate",
    "kafka-eos serve",
    "kafka-eos serve --faults plan.toml",
    "kafka-eos serve --data DIR --record history.jsonl",
    "kafka-eos serve --data copy/brokers/1",
    "kafka-eos serve --record history.jsonl",
    "kafka-eos watch",
    "kafka-eos watch --bootstrap 127.0.0.1:9092",
    "kafka-eos watch --bootstrap HOST:9092",
    "kafka-eos watch --bootstrap HOST:9092 --once --from-start",
    "kafka-eos watch --bootstrap broker-1:9092 --checkpoint /var/lib/kafka-eos",
    "kafka-eos watch --bootstrap broker-1:9092 --checkpoint /var/lib/kafka-eos "
    "--metrics /var/lib/node_exporter/kafka-eos.prom",
    "kafka-eos watch --bootstrap broker-1:9092 --topic orders --once --lag-after 5",
    "kafka-eos watch --bootstrap broker-1:9092 --jsonl | jq -r 'select(.ends == \"never\") | .command // empty'",
    "kafka-eos watch --bootstrap broker-1:9093 --command-config client.properties --once",
}


def shown() -> Iterator[str]:
    """The calls that the documents show, in lines of their own and in sentences."""
    for document in DOCUMENTS:
        text = (CLONE / document).read_text(encoding="utf-8")
        yield from re.findall(r"`(kafka-eos [^`]*)`", text)
        yield from re.findall(r"^(?: *\$ )?(kafka-eos (?!is ).*)$", text, re.MULTILINE)


def test_every_call_that_the_documents_show_is_tested_here() -> None:
    assert set(shown()) == {*WORK, *NEED, *ELSEWHERE}


@pytest.mark.thorough
@pytest.mark.parametrize("call", WORK)
def test_a_call_that_the_documents_show_works_from_the_wheel(call: str, light: Installed) -> None:
    instead, code, said = WORK[call]
    done = light.kafka_eos(instead or call.removeprefix("kafka-eos "))
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert said in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("call", NEED)
def test_a_call_that_needs_more_than_the_light_package_names_it_and_how_to_get_it(call: str, light: Installed) -> None:
    instead, remedy = NEED[call]
    done = light.kafka_eos(instead or call.removeprefix("kafka-eos "))
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert remedy in done.stderr.splitlines()[-1]


def test_the_first_example_of_the_readme_prints_what_the_readme_shows(light: Installed) -> None:
    readme = (CLONE / "README.md").read_text(encoding="utf-8")
    call, *lines = readme.split("```\n$ ", maxsplit=1)[1].split("\n```", maxsplit=1)[0].splitlines()
    printed = light.kafka_eos(call.removeprefix("kafka-eos ")).stdout.splitlines()
    expected = [line for line in lines if line != "…"]
    assert len(expected) == 2
    assert [line for line in expected if line not in printed] == []


def test_the_wheel_carries_its_version_and_answers_a_program(light: Installed) -> None:
    version = tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert light.kafka_eos("--version").stdout == f"kafka-eos {version}\n"
    done = light.kafka_eos("audit example:violations --json -")
    assert {verdict["name"] for verdict in json.loads(done.stdout) if not verdict["ok"]} >= {"duplicate value"}
    assert "found 5 findings" in done.stderr


def test_a_zip_of_the_wheel_names_the_possible_causes_of_a_finding_as_the_clone_does(
    wheel: Path, tmp_path: Path
) -> None:
    """As spark-submit puts it on the path."""
    zipped = shutil.copyfile(wheel, tmp_path / "kafka_eos.zip")
    program = (
        f"import sys; sys.path.insert(0, {str(zipped)!r}); "
        "from kafka_eos_checks.models import findings; "
        "print(findings.__file__); print(findings.possible_causes('duplicate value'))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    place, causes = done.stdout.splitlines()
    assert place.startswith(str(zipped))
    assert causes == str(possible_causes("duplicate value"))
    assert "retry-refused-after-restart" in causes


@pytest.mark.thorough
def test_a_server_of_the_wheel_is_watched_and_conforms(light: Installed) -> None:
    command = [light.command, "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=light.folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            bootstrap = server.stdout.readline().partition("bootstrap.servers=")[2].split()[0]
            watched = light.kafka_eos(f"watch --bootstrap {bootstrap} --checkpoint state --once --from-start")
            calls = [f"conform --bootstrap {bootstrap}", f"conform --bootstrap {bootstrap} --transaction-version 1"]
            conforming = [light.kafka_eos(call) for call in calls]
        finally:
            server.terminate()
    assert (watched.returncode, "0 reports" in watched.stderr) == (0, True), watched.stderr
    assert [done.returncode for done in conforming] == [0, 0], [done.stdout + done.stderr for done in conforming]


@pytest.mark.tlc
def test_a_model_that_the_readme_names_is_checked_with_the_specs_of_the_wheel(light: Installed) -> None:
    call = [light.command, "check", "models", "SnapshotWindowJava"]
    done = light.run(call, os.environ["PATH"], **{JAR_VARIABLE: str(find_jar())})
    assert (done.returncode, "violates NoDuplicate" in done.stdout) == (0, True), done.stderr


@pytest.mark.thorough
@pytest.mark.spark
def test_the_extra_for_spark_audits_and_reads_logs_with_the_environments_own_python(
    wheel: Path, light: Installed, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    installed = install(wheel, tmp_path / "environment", tmp_path / "empty", "spark")
    (installed.folder / "copy").symlink_to(light.folder / "copy")
    wrong = tmp_path / "bin" / "python3"  # the environment is not activated: Spark would start this one
    wrong.parent.mkdir()
    wrong.write_text("#!/bin/sh\nexit 1\n")
    wrong.chmod(0o755)
    path = f"{wrong.parent}:{os.environ['PATH']}"
    [example] = re.findall(r"```python\n(.*?)```", (CLONE / "docs/operators.md").read_text(encoding="utf-8"), re.DOTALL)
    read = installed.run([installed.python, "-c", example.replace("/mnt/copies", "copy")], path)
    assert read.returncode == 0, read.stderr
    assert "|broker|topic|partition|count|" in read.stdout
    headers = installed.run([installed.command, "headers", "copy", "--out", "headers"])
    assert headers.returncode == 0, headers.stderr
    for call in (["audit", "headers"], ["audit", "copy", "--spark"]):
        done = installed.run([installed.command, *call], path)
        assert (done.returncode, "duplicate: " in done.stdout) == (1, True), done.stderr
