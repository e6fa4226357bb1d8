"""The default clients of eight libraries on the served cluster, which is also killed while they work.

Each library has a program in ``libraries/``, its tour; ``libraries/python/tour.py`` defines a tour's work and output. A
tour is run twice: undisturbed, and on a server with files that is killed (kill -9) and restarted up to five times.
"""

import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import pytest

from kafka_eos_checks.brokers.brokers import SMALL_JAVA, free_ports, java_command
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, have_jars
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.paths import build_folder
from kafka_eos_checks.testing.process import ServedProcess

pytestmark = pytest.mark.thorough

LIBRARIES = Path(__file__).parent / "libraries"
BUILT = build_folder() / "libraries"
PARTITIONS = {"records": 3, "transactions": 2, "copies": 1}
ROUNDS, ROUND, TRANSACTIONS, FIRST = 5, 20, 9, 50
RETENTION = ["3600000", "7200000"]
END = "end"
AT_A_TIME = 4  # tours; they mostly wait for timeouts of their libraries
TOUR_SECONDS = 300.0
KILLS = (  # the number of events of a kind after which the server is killed
    ("acknowledged", 30),  # of the default producer
    ("acknowledged", 200),  # of an idempotent one, or a plain one if that is not the default; kafka-go has neither
    ("transaction", 4),
    ("copied", 3),
    ("consumed", FIRST + 20),
)

Event = dict[str, Any]


def python_tour(library: str, module: str) -> dict[str, Any]:
    """The command of a tour in Python, and the reason if it cannot run."""
    tour = LIBRARIES / "python" / f"tour_{library}.py"
    missing = None if find_spec(module) else f"{module} is not installed; `make test-all` installs it"
    return {"command": (sys.executable, str(tour)), "missing": missing}


def built_tour(toolchain: str, built: Path, *command: str) -> dict[str, Any]:
    """The command of a tour that a toolchain has built, by default the built program; the reason if it cannot run."""
    if shutil.which(toolchain) is None:
        missing: str | None = f"{toolchain} is not installed, which the library needs"
    else:
        missing = None if built.exists() else f"{built} is not there; `make test-all` builds it"
    return {"command": command or (str(built),), "missing": missing}


def java_tour(kafka: str) -> dict[str, Any]:
    """The command of the tour in Java, with a release's clients, and the reason if it cannot run."""
    if shutil.which("java") is None or not have_jars(kafka):
        missing = "Kafka's jars or a JDK are not there; `make test-all` fetches the jars"
        return {"command": (), "missing": missing}
    small = (*SMALL_JAVA, "-Xmx256m")
    command = java_command(str(LIBRARIES / "java" / "Tour.java"), kafka=kafka, java=small)
    return {"command": tuple(command), "missing": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library and the properties of its tour.

    Attributes:
        name: the name of the library.
        command: the command of its tour, without arguments.
        missing: the reason why the tour cannot run here; None if it can.
        kinds: kind of producer -> its acknowledged records.
        exactly_once: the idempotent kinds, which store each record once despite a kill.
        sent: the records of a kind without acknowledgements.
        has_transactions: whether it has a transactional producer.
        deletes_groups: whether its admin client deletes groups.
        calls_in_order: whether it writes the records of asynchronous calls in the order of the calls.
        environment: the environment of the tour.
    """

    name: str
    command: tuple[str, ...]
    missing: str | None
    kinds: Mapping[str, int]
    exactly_once: frozenset[str]
    sent: Mapping[str, int] = field(default_factory=dict)
    has_transactions: bool = True
    deletes_groups: bool = True
    calls_in_order: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> list[str]:
        """The groups that its tour creates, by the suffixes of their names."""
        transactional = ["copier", "copies", "transactions", "uncommitted"] if self.has_transactions else []
        return sorted(["pair", "readers", *transactional])


def kinds(full: Iterable[str], short: Iterable[str]) -> dict[str, int]:
    """Kinds that write all rounds and kinds that write one."""
    return dict.fromkeys(full, ROUNDS * ROUND) | dict.fromkeys(short, ROUND)


CODECS = ("gzip", "snappy", "lz4", "zstd")
ALL = (
    Library(
        name="kafka-go",
        **built_tour("go", BUILT / "go" / "kafkago"),
        kinds=kinds(["all"], CODECS),
        exactly_once=frozenset(),
        sent={"default": ROUND},
        has_transactions=False,
    ),
    Library(
        name="KafkaJS",
        **built_tour("node", BUILT / "node" / "node_modules", "node", str(LIBRARIES / "node" / "tour_kafkajs.js")),
        kinds=kinds(["default", "idempotent"], ["gzip"]),
        exactly_once=frozenset({"idempotent"}),
        calls_in_order=False,
        environment={
            "NODE_PATH": str(BUILT / "node" / "node_modules"),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        },
    ),
    *(
        Library(
            name=f"Java {kafka}",
            **java_tour(kafka),
            kinds=kinds(["default", "not idempotent"], CODECS),
            exactly_once=frozenset({"default", *CODECS}),
        )
        for kafka in (NEWEST, KAFKA_VERSION)
    ),
    Library(
        name="Sarama",
        **built_tour("go", BUILT / "go" / "sarama"),
        kinds=kinds(["default", "idempotent"], CODECS),
        exactly_once=frozenset({"idempotent"}),
    ),
    Library(
        name="librdkafka",
        **python_tour("librdkafka", "confluent_kafka"),
        kinds=kinds(["default", "idempotent"], CODECS),
        exactly_once=frozenset({"idempotent"}),
    ),
    Library(
        name="franz-go",
        **built_tour("go", BUILT / "go" / "franz"),
        kinds=kinds(["default", "not idempotent"], ["none", "gzip", "lz4", "zstd"]),
        exactly_once=frozenset({"default", "none", "gzip", "lz4", "zstd"}),
    ),
    Library(
        name="kafka-python",
        **python_tour("kafka_python", "kafka"),
        kinds=kinds(["default", "not idempotent"], ["gzip", "zstd"]),
        exactly_once=frozenset({"default", "gzip", "zstd"}),
    ),
    Library(
        name="aiokafka",
        **python_tour("aiokafka", "aiokafka"),
        kinds=kinds(["default", "idempotent"], CODECS),
        exactly_once=frozenset({"idempotent"}),
        deletes_groups=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    """The run of a tour.

    Attributes:
        library: the library of the tour.
        name: the prefix of its topics and groups.
        events: the events that it printed.
        kills: the number of kills of the server.
        data: the server's files.
    """

    library: Library
    name: str
    events: list[Event]
    kills: int
    data: Path

    def saw(self, kind: str, **columns: Any) -> list[Event]:
        """The events of a kind, with some columns."""
        return [event for event in self.events if event["saw"] == kind and columns.items() <= event.items()]

    def read(self, *readers: str) -> dict[tuple[int, int], tuple[str | None, str]]:
        """The records that readers got: (partition, offset) -> (key, value), equal for all readers."""
        found: dict[tuple[int, int], tuple[str | None, str]] = {}
        for event in self.saw("consumed"):
            if event["reader"] in readers:
                row = (event["key"], event["value"])
                assert found.setdefault((event["partition"], event["offset"]), row) == row
        return found


# --- running ----------------------------------------------------------------------------------------------------------


class Server:
    """A served cluster with files, on a port that it keeps after a kill; a context manager."""

    def __init__(self, data: Path) -> None:
        [port] = free_ports(1)
        self._arguments = ("--port", str(port), "--data", str(data))
        self._process = ServedProcess(*self._arguments)

    def __enter__(self) -> Self:
        self._process.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__()

    @property
    def bootstrap(self) -> str:
        """The address for the clients."""
        return self._process.bootstrap

    def kill_and_start_again(self) -> None:
        """Kill the server with SIGKILL, and restart it with its files."""
        assert self._process.end(signal.SIGKILL) == -signal.SIGKILL
        self._process.__exit__()
        self._process = ServedProcess(*self._arguments)
        self._process.__enter__()


def run_tour(library: Library, folder: Path, *, is_killed: bool) -> Run:
    """Run a tour to its end, then also kill the server."""
    data, errors = folder / "data", folder / "errors.txt"
    name = "".join(filter(str.isalnum, library.name.lower()))
    events: list[Event] = []
    counts: collections.Counter[str] = collections.Counter()
    kills = 0
    with Server(data) as server, errors.open("w", encoding="utf-8") as said:
        command = [*library.command, server.bootstrap, name, "keep" if is_killed else "delete"]
        environment = {**os.environ, **library.environment}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment) as tour:
            late = threading.Timer(TOUR_SECONDS, tour.kill)
            late.start()
            assert tour.stdout is not None
            for line in tour.stdout:
                events.append(json.loads(line))
                saw = events[-1]["saw"]
                counts[saw] += 1
                if is_killed and (saw, counts[saw]) in KILLS:
                    server.kill_and_start_again()
                    kills += 1
            late.cancel()
        last = events[-1] if events else None
        ended = f"killed after {TOUR_SECONDS} s" if tour.returncode == -signal.SIGKILL else f"exit {tour.returncode}"
        said_last = errors.read_text(encoding="utf-8")[-3000:]
        assert tour.returncode == 0, f"{ended}, after {kills} kills of the server and {last}: {said_last}"
    return Run(library, name, events, kills, data)


@pytest.fixture(scope="module")
def started(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Library, bool], Future[Run]]]:
    """The tours of all tests that will run, a few at a time."""
    runs: dict[tuple[str, bool], Future[Run]] = {}
    with ThreadPoolExecutor(AT_A_TIME) as pool:

        def start(library: Library, is_killed: bool) -> Future[Run]:
            key = (library.name, is_killed)
            if key not in runs:
                folder = tmp_path_factory.mktemp("tour")
                runs[key] = pool.submit(run_tour, library, folder, is_killed=is_killed)
            return runs[key]

        for item in request.session.items:
            wanted = getattr(item, "callspec", None)
            if item.path == request.path and wanted is not None and wanted.params["library"].missing is None:
                start(wanted.params["library"], wanted.params["is_killed"])
        yield start


@pytest.fixture
def run(started: Callable[[Library, bool], Future[Run]], library: Library, is_killed: bool) -> Run:
    """The tour of a library."""
    if library.missing is not None:
        pytest.skip(library.missing)
    return started(library, is_killed).result()


undisturbed = pytest.mark.parametrize("is_killed", [False], ids=["undisturbed"])
killed = pytest.mark.parametrize("is_killed", [True], ids=["killed"])
each_library = pytest.mark.parametrize("library", ALL, ids=[library.name for library in ALL])


# --- judging ----------------------------------------------------------------------------------------------------------


def check_administration(run: Run) -> None:
    """Check that the cluster, the topics and the configuration are those that were created."""
    [cluster] = run.saw("cluster")
    assert (cluster["brokers"], cluster["controller"]) == ([1], 1)
    [topics] = run.saw("topics")
    assert topics["topics"] == {f"{run.name}-{end}": count for end, count in PARTITIONS.items()}
    assert [event["retention.ms"] for event in run.saw("configuration")] == RETENTION


def check_acknowledged(run: Run) -> None:
    """Check that each acknowledged record is at its acknowledged offset, and each key in one partition."""
    read = run.read("first", "second")
    homes: dict[tuple[str, str], set[int]] = collections.defaultdict(set)
    places = set()
    for event in run.saw("acknowledged"):
        place = (event["partition"], event["offset"])
        assert read.get(place) == (event["key"], event["value"])
        assert place not in places
        places.add(place)
        if event["key"] is not None:
            homes[event["kind"], event["key"]].add(event["partition"])
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len({key for _, key in homes}) == 3


def check_all_acknowledged(run: Run) -> None:
    """Check that nothing failed, every record was acknowledged, and only sent records are read."""
    assert not run.saw("failed")
    acknowledged = run.saw("acknowledged")
    assert collections.Counter(event["kind"] for event in acknowledged) == run.library.kinds
    sent = [event["value"] for event in run.saw("sent")]
    assert len(sent) == sum(run.library.sent.values())
    values = [*(event["value"] for event in acknowledged), *sent, *[END] * PARTITIONS["records"]]
    assert sorted(value for _, value in run.read("first", "second").values()) == sorted(values)
    assert len(run.saw("consumed", topic=f"{run.name}-records")) == len(values)  # each once


def check_no_gaps(run: Run) -> None:
    """Check that the readers got every offset, each partition's in order, and its end last."""
    read = run.read("first", "second")
    for partition in range(PARTITIONS["records"]):
        offsets = sorted(offset for number, offset in read if number == partition)
        assert offsets == list(range(len(offsets)))
        assert read[partition, offsets[-1]] == (None, END)


def numbers(run: Run, kind: str, partition: int) -> list[int]:
    """The records of a kind in a partition, by offset."""
    read = sorted(
        (offset, value) for (number, offset), (_, value) in run.read("first", "second").items() if number == partition
    )
    found = (re.fullmatch(rf"{kind}-(\d+)", value) for _, value in read)
    return [int(each[1]) for each in found if each is not None]


def check_order(run: Run, kinds: Iterable[str]) -> None:
    """Check that the records of a partition are in the order in which they were sent, each once."""
    together = 1 if run.library.calls_in_order else ROUND
    for kind in kinds:
        for partition in range(PARTITIONS["records"]):
            stored = numbers(run, kind, partition)
            assert len(stored) == len(set(stored)), (kind, partition)
            rounds = [number // together for number in stored]
            assert rounds == sorted(rounds), (kind, partition)


def check_transactions(run: Run) -> None:
    """Check that both records of a committed transaction are read, of an aborted none, of an unknown both or none."""
    outcomes = {event["number"]: event["outcome"] for event in run.saw("transaction")}
    assert sorted(outcomes) == list(range(TRANSACTIONS))
    read = [value for _, value in run.read("committed").values() if value != END]
    for number, outcome in outcomes.items():
        both = [read.count(f"{number}-{partition}") for partition in range(2)]
        allowed = {"committed": [[1, 1]], "aborted": [[0, 0]], "unknown": [[0, 0], [1, 1]]}[outcome]
        assert both in allowed, (number, outcome, both)
    assert len(read) == 2 * len({value.partition("-")[0] for value in read})


def check_copies(run: Run) -> None:
    """Check that every input was copied once, and that the group is at the end of its inputs."""
    copies = sorted(value for _, value in run.read("copies").values() if value != END)
    inputs = run.read("first", "second")
    assert copies == sorted(f"{partition}-{offset}" for partition, offset in inputs)
    copied = [tuple(place) for event in run.saw("copied", outcome="committed") for place in event["inputs"]]
    assert len(copied) == len(set(copied))
    assert set(copied) <= set(inputs)
    [offsets] = run.saw("committed", group=f"{run.name}-copier")
    assert offsets["offsets"] == ends(inputs)


def ends(read: Iterable[tuple[int, int]]) -> dict[str, int]:
    """The offsets after the records that were read, by partition, in the form of an event."""
    behind: dict[str, int] = {}
    for partition, offset in read:
        behind[str(partition)] = max(offset + 1, behind.get(str(partition), 0))
    return behind


def check_group_offsets(run: Run) -> None:
    """Check that a group's offsets are after its reader's records, and that the next reader starts there."""
    first, second = run.saw("committed", group=f"{run.name}-readers")
    given = run.read("first")
    assert len(given) == FIRST
    assert {partition: offset for partition, offset in first["offsets"].items() if offset} == ends(given)
    assert second["offsets"] == ends(run.read("first", "second"))
    assert not given.keys() & run.read("second").keys()


def check_rebalance(run: Run) -> None:
    """Check that one member had all partitions, then shared them with another, then had all again."""
    now: dict[str, list[int]] = {"a": [], "b": []}
    history = []
    for event in run.saw("assigned"):
        now = now | {event["member"]: event["partitions"]}
        history.append((now["a"], now["b"]))
    everything = [0, 1, 2]
    alone = [number for number, (a, _) in enumerate(history) if a == everything]
    shared = [number for number, (a, b) in enumerate(history) if a and b and sorted(a + b) == everything]
    assert alone, history
    assert shared, history
    assert alone[0] < shared[0] < alone[-1]
    [pair] = run.saw("group")
    assert (pair["group"], pair["state"], pair["members"]) == (f"{run.name}-pair", "Stable", 2)


def check_deleted(run: Run) -> None:
    """Check that the groups were listed, and that groups and topics are deleted."""
    [groups] = run.saw("groups")
    assert groups["listed"] == [f"{run.name}-{group}" for group in run.library.groups]
    assert [event["listed"] for event in run.saw("deleted groups")] == [[]] * run.library.deletes_groups
    [topics] = run.saw("deleted topics")
    assert topics["listed"] == []


def check_undisturbed(run: Run) -> None:
    """Check all properties of an undisturbed run."""
    check_administration(run)
    check_acknowledged(run)
    check_all_acknowledged(run)
    check_no_gaps(run)
    check_order(run, [*run.library.kinds, *run.library.sent])
    check_group_offsets(run)
    check_rebalance(run)
    check_deleted(run)
    if run.library.has_transactions:
        check_transactions(run)
        check_copies(run)
        outcomes = [event["outcome"] for event in run.saw("transaction")]
        assert outcomes == ["committed", "committed", "aborted"] * (TRANSACTIONS // 3)
        uncommitted = [value for _, value in run.read("uncommitted").values() if value != END]
        assert sorted(uncommitted) == sorted(f"{row}-{part}" for row in range(TRANSACTIONS) for part in range(2))
    assert run.events[-1] == {"saw": "end"}


@each_library
@undisturbed
def test_a_library_is_served_as_by_kafka(run: Run) -> None:
    check_undisturbed(run)


@each_library
@killed
def test_kill_9_loses_nothing_that_was_acknowledged_and_tears_no_transaction(run: Run) -> None:
    assert run.kills == (len(KILLS) if run.library.has_transactions else 2), run.kills
    check_administration(run)
    check_acknowledged(run)
    check_no_gaps(run)
    check_rebalance(run)
    check_order(run, run.library.exactly_once)
    if run.library.has_transactions:
        check_transactions(run)
        check_copies(run)
    assert run.events[-1] == {"saw": "end"}


@each_library
@killed
def test_kafkas_tool_and_the_audit_read_the_files_after_kills(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    if not have_jars():
        pytest.skip("Kafka's jars are not there; `make test-all` fetches them")
    logs = sorted(log for log in run.data.glob("*/*.log") if log.stat().st_size)
    assert {log.parent.name for log in logs} >= {f"{run.name}-records-{partition}" for partition in range(3)}
    tool = ("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, logs)))
    dumped = subprocess.run(java_command(*tool), capture_output=True, text=True, timeout=120, check=False)
    assert dumped.returncode == 0, dumped.stderr
    assert dumped.stdout.count("Dumping ") == len(logs)
    assert "isvalid: true" in dumped.stdout
    assert not re.findall(r"isvalid: false|[Ee]rror|Exception|mismatch", dumped.stdout + dumped.stderr)
    records = len(re.findall(r"^\| offset: ", dumped.stdout, re.MULTILINE))
    assert records > len(run.read("first", "second"))
    assert main(["audit", str(run.data)]) == 0, capsys.readouterr().out


def spoil(saw: str, value: Any, *instead: Event, column: str = "value") -> Callable[[Event], list[Event]]:
    """Replace each event that has a value in a column by one copy per change."""

    def change(event: Event) -> list[Event]:
        is_meant = event["saw"] == saw and (event[column] == value if column in event else value is None)
        return [event | new for new in instead] if is_meant else [event]

    return change


SPOILED: Mapping[str, Callable[[Event], list[Event]]] = {
    "a record is lost": spoil("consumed", "default-0"),
    "a record is read twice": spoil("consumed", "default-0", {}, {}),
    "a record is elsewhere": spoil("acknowledged", "default-0", {"offset": 1_000}),
    "a record has another value": spoil("consumed", "default-0", {"value": "default-00"}),
    "a record is not acknowledged": spoil("acknowledged", "default-0", {"saw": "failed"}),
    "a committed transaction was aborted": spoil("transaction", 3, {"outcome": "aborted"}, column="number"),
    "half a transaction is read": spoil("consumed", "3-1"),
    "a copy is lost": spoil("consumed", "0-0"),
    "the offsets are others": spoil("committed", None, {"offsets": {"0": 7}}),
    "the configuration stays": spoil("configuration", RETENTION[1], {"retention.ms": "1"}, column="retention.ms"),
    "the members do not share": spoil("assigned", "b", {"partitions": []}, column="member"),
    "a topic stays": spoil("deleted topics", [], {"listed": ["librdkafka-records"]}, column="listed"),
    "the tour stops": spoil("end", None),
}


@pytest.mark.parametrize("library", [library for library in ALL if library.name == "librdkafka"], ids=["librdkafka"])
@undisturbed
@pytest.mark.parametrize("change", SPOILED.values(), ids=SPOILED.keys())
def test_a_spoiled_tour_is_detected(run: Run, change: Callable[[Event], list[Event]]) -> None:
    check_undisturbed(run)
    with pytest.raises(AssertionError):
        check_undisturbed(replace(run, events=[new for event in run.events for new in change(event)]))
