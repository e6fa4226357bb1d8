"""Logs by URI: what a local copy gives, from an S3 on loopback, in process and on Spark; and who reads what."""

import json
import logging
import os
import pickle
import re
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kafka_eos_checks.audit import places
from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.engines.engine import asker
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.headers_command import SOURCE
from kafka_eos_checks.audit.oracle.synthetic import faulty_log, write_log
from kafka_eos_checks.audit.places import Unreachable, Uri, Window, place
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.recording import kept_recording, unpack
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload

from .conftest import submitted

fs = pytest.importorskip("pyarrow.fs", reason="URIs are read through pyarrow")

BUCKET, SECRET = "copies", "do-not-print-this"
DRIVER, WORKER = "the-driver", "a-worker"  # access keys, by which a request tells who asks
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": DRIVER, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}


class Store:
    """An S3 that notes who asked for which bytes, and refuses what it is told to.

    Attributes:
        address: its URL.
        asked: for each answer with bytes of an object: access key, path, first byte and end.
        denied: paths that are answered with 403.
        refusals: for a path, answers that it is given instead of bytes: a status and the text, in this order.
    """

    def __init__(self) -> None:
        # Not at the module's start: each process that collects the tests would import them.
        moto = pytest.importorskip("moto.server", reason="an S3 on loopback: pip install 'moto[s3]' flask flask-cors")
        serving = pytest.importorskip("werkzeug.serving")
        from moto.core import DEFAULT_ACCOUNT_ID  # noqa: PLC0415
        from moto.s3 import s3_backends  # noqa: PLC0415

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = moto.DomainDispatcherApplication(moto.create_backend_app)
        self._server = serving.make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.address = f"http://127.0.0.1:{self._server.port}"
        self.asked: list[tuple[str, str, int, int]] = []
        self.denied: set[str] = set()
        self.refusals: dict[str, list[tuple[str, bytes]]] = {}
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        keys = {"access_key": "test", "secret_key": "test"}
        self._own = fs.S3FileSystem(**keys, endpoint_override=self.address, allow_bucket_creation=True)
        self._own.create_dir(BUCKET)
        self._objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, found = environ["PATH_INFO"], re.fullmatch(r"bytes=(\d+)-(\d+)", environ.get("HTTP_RANGE", ""))
        if any(path.startswith(denied) for denied in self.denied):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
        if environ["REQUEST_METHOD"] == "GET" and self.refusals.get(path):
            status, text = self.refusals[path].pop(0)
            start(status, [("Content-Type", "application/xml")])
            return [text]
        if environ["REQUEST_METHOD"] == "GET" and found:
            key = re.search(r"Credential=([^/]*)/", environ.get("HTTP_AUTHORIZATION", ""))
            self.asked.append((key[1] if key else "", path, int(found[1]), int(found[2]) + 1))
        answer: Iterable[bytes] = self._app(environ, start)
        return answer

    def put(self, folder: Path, name: str) -> str:
        """Put a folder into the bucket; its URI. The objects are those that ``pyarrow.fs.copy_files`` makes."""
        for path in (folder, *folder.rglob("*")):
            key = f"{name}/{path.relative_to(folder)}".removesuffix("/.")
            if path.is_dir():
                self._objects.put_object(BUCKET, f"{key}/", b"")
            else:
                self._objects.put_object(BUCKET, key, path.read_bytes())
        return f"s3://{BUCKET}/{name}"

    def write(self, name: str, content: bytes) -> None:
        with self._own.open_output_stream(f"{BUCKET}/{name}") as out:
            out.write(content)

    def delete(self, name: str) -> None:
        self._own.delete_file(f"{BUCKET}/{name}")

    def segment_bytes(self, under: str) -> Counter[tuple[str, str]]:
        """Bytes of segments that were asked for, by who asked and the segment."""
        found: Counter[tuple[str, str]] = Counter()
        for who, path, start, end in self.asked:
            if path.startswith(f"/{BUCKET}/{under}") and path.endswith(".log"):
                found[who, path] += end - start
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        made = Store()
        patch.setenv("AWS_ENDPOINT_URL", made.address)
        places._file_system.cache_clear()  # of the address of another test's store
        yield made
        made.close()


FEW = {"state_partitions": 1, "offset_partitions": 1}  # each file is several requests


def healthy(folder: Path) -> None:
    workload = Workload(transactions=100, batches=1200, clients=20, partitions=3, seed=1, **FEW)
    Cluster(workload=workload, brokers=2, value_bytes=20, segment_bytes=60_000).write(folder)


def faulty(folder: Path) -> None:
    workload = Workload(transactions=300, batches=1500, clients=12, partitions=4, **FEW)
    Cluster(workload=workload, brokers=2, value_bytes=20, faults=2).write(folder)


def tables(folder: Path) -> None:
    workload = Workload(transactions=200, batches=1000, clients=12, partitions=4, **FEW)
    Cluster(workload=workload, value_bytes=20, faults=1, as_tables=True).write(folder)


def with_history(folder: Path) -> None:
    workload = Workload(transactions=200, batches=1000, clients=12, partitions=4, **FEW)
    Cluster(workload=workload, value_bytes=20, faults=1, history=True).write(folder)


def recorded(folder: Path) -> None:
    unpack(kept_recording("replicated-violations"), folder)


def backwards(folder: Path) -> None:
    """Logs with damage and offsets that go backwards, which are read again as a whole."""
    for number in range(3):
        write_log(folder / f"orders-{number}", faulty_log(number, 300, 0.05), segment_batches=100)
    last = max((folder / "orders-1").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-30])


SCHEMES = {
    "faulty": "s3",
    "tables": "s3a",
    "with_history": "s3a",
    "backwards": "s3a",
    "recorded": "file",
    "healthy": "file",
}
MADE = {made.__name__: made for made in (healthy, faulty, tables, with_history, recorded, backwards)}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Callable[[str], tuple[Path, str]]:
    """The files that a function of :data:`MADE` writes, here and in the bucket."""
    known: dict[str, tuple[Path, str]] = {}

    def copy(name: str) -> tuple[Path, str]:
        if name not in known:
            folder = tmp_path_factory.mktemp(name) / name
            folder.mkdir()
            MADE[name](folder)
            known[name] = folder, store.put(folder, name)
        return known[name]

    return copy


def said(audit: Audit) -> list[Any]:
    """Everything that an audit says, except times, the order of lines of evidence, and commands that name paths."""
    verdicts = [asdict(verdict) for verdict in audit.verdicts]
    for verdict in verdicts:
        verdict |= {"seconds": 0, "advice": "", "evidence": sorted(verdict["evidence"].splitlines())}
    return [verdicts, [asdict(finding) for finding in (*audit.findings, *audit.notes)]]


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *(
            pytest.param(name, scheme, marks=() if scheme == SCHEMES[name] else pytest.mark.thorough)
            for name in MADE
            for scheme in ("file", "s3" if name == "faulty" else "s3a")
        ),
    ],
)
def test_logs_by_uri_are_judged_as_a_local_copy_is(
    name: str, scheme: str, copies: Callable[[str], tuple[Path, str]]
) -> None:
    folder, uri = copies(name)
    local = run([folder], one_moment=True)
    assert sum(log.batches for log in local.logs) > 40
    assert bool(local.findings) == (name != "healthy")
    given = folder.as_uri() if scheme == "file" else uri.replace("s3:", f"{scheme}:")
    assert said(run([place(given)], one_moment=True)) == said(local)
    rules = {verdict.name for verdict in local.verdicts}
    assert name != "faulty" or {"aborted index", "producer snapshot", "replicas differ"} <= rules


@pytest.mark.thorough
def test_the_oracle_judges_by_uri_too(copies: Callable[[str], tuple[Path, str]]) -> None:
    folder, uri = copies("faulty")
    assert said(run([place(uri)], one_moment=True, oracle=1.0)) == said(run([folder], one_moment=True, oracle=1.0))


@pytest.mark.thorough
def test_a_history_by_uri_is_judged_with_logs_and_alone(
    copies: Callable[[str], tuple[Path, str]], store: Store
) -> None:
    folder, uri = copies("with_history")
    [history] = folder.rglob("*.jsonl")
    store.put(folder / history.parent.relative_to(folder), "histories")
    alone = place(f"s3://{BUCKET}/histories/{history.name}")
    assert said(run([alone])) == said(run([history]))
    logs = [place(f"{uri}/{path.relative_to(folder)}") for path in (folder / "brokers").iterdir()]
    local = run(list((folder / "brokers").iterdir()), histories=[history], one_moment=True)
    assert said(run(logs, histories=[alone], one_moment=True)) == said(local)


def test_tables_of_headers_are_made_of_logs_by_uri(copies: Callable[[str], tuple[Path, str]], tmp_path: Path) -> None:
    folder, uri = copies("with_history")
    for number, given in enumerate((folder / "brokers" / "1", f"{uri}/brokers/1")):
        assert main(["headers", str(given), "--out", str(tmp_path / str(number))]) == 0
    made, by_uri = (
        {path.relative_to(tmp_path / number): path.read_bytes() for path in (tmp_path / number).rglob("*.*")}
        for number in ("0", "1")
    )
    assert made == by_uri
    copied = {".log", ".index", ".txnindex", ".snapshot", ".metadata", ".properties"}
    assert {path.suffix for path in made} == {".parquet", *copied, ""}  # .kafka_cleanshutdown has no suffix


def test_tables_of_a_log_directory_without_properties_name_its_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "logs" / "orders-0", faulty_log(1, 5, 0.0))
    rooted = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(places, "_file_system", lambda *_: (rooted, ""))
    for _ in range(2):  # the second call knows its own tables by the name
        assert main(["headers", "s3://bucket/logs", "--out", str(tmp_path / "tables")]) == 0
    assert (tmp_path / "tables" / SOURCE).read_text(encoding="utf-8") == "s3://bucket/logs"


def test_any_file_system_of_pyarrow_can_be_read(
    copies: Callable[[str], tuple[Path, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths of HDFS begin at its root, without a bucket. This is no HDFS; ``test_hdfs`` has one."""
    folder, _ = copies("backwards")
    rooted = fs.SubTreeFileSystem(str(folder.parent), fs.LocalFileSystem())
    monkeypatch.setattr(places, "_file_system", lambda *_: (rooted, "/"))
    for uri in (f"hdfs://name:8020/{folder.name}", f"hdfs:///{folder.name}"):
        assert said(run([place(uri)])) == said(run([folder]))


# --- who reads what ---------------------------------------------------------------------------------------------------


def test_a_scan_asks_for_each_byte_of_a_segment_once(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "WINDOW_BYTES", 100_000)
    monkeypatch.setattr("kafka_eos_checks.audit.segments.headers.BLOCK_BYTES", 30_000)
    write_log(tmp_path / "orders-0", faulty_log(3, 6000, 0.0), segment_batches=4000)
    uri = store.put(tmp_path, "once")
    logs = find_logs(place(uri))
    store.asked.clear()
    [audit] = stages.audit_logs(logs)
    assert audit.batches == 6000
    for name in audit.log.segments:
        ranges = sorted((start, end) for _, path, start, end in store.asked if path.endswith(name))
        size = (tmp_path / "orders-0" / name).stat().st_size
        assert len(ranges) > 1
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])], "without gap or overlap"
        assert ranges[-1][1] == size
    store.asked.clear()
    [split] = stages.audit_logs(logs, split_bytes=70_000)
    assert (split.batches, split.findings) == (audit.batches, audit.findings)
    looked_into = sum(store.segment_bytes("once").values()) - audit.segment_bytes
    assert 0 < looked_into < 0.01 * audit.segment_bytes, "a batch at each point where a split may begin"


@pytest.mark.parametrize("seed", range(20))
def test_a_window_gives_what_the_file_has_and_asks_for_each_byte_of_its_range_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    data, asked = rng.bytes(int(rng.integers(1, 5000))), []
    monkeypatch.setattr(places, "WINDOW_BYTES", int(rng.integers(1, 700)))

    class File:
        size = len(data)

        def pread(self, count: int, at: int) -> bytes:
            asked.append((at, at + count))
            return data[at : at + count]

    start = at = int(rng.integers(len(data)))
    end = int(rng.integers(start, len(data) + 1))
    window = Window(File(), end)  # type: ignore[arg-type]
    while at < end:
        count = int(rng.integers(1, 900))
        got = window.pread(min(count, end - at), at)
        assert got == data[at : min(at + count, end)]
        at += max(1, len(got) - int(rng.integers(0, 50)))  # the batch at the end is asked for again, whole
    assert sum(b - a for a, b in asked) == end - start
    assert window.pread(10, len(data)) == b""
    assert window.pread(5, 0) == data[:5], "and backwards"


@pytest.fixture
def workers(spark: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session whose workers have keys of their own."""
    for name, value in {**ENVIRONMENT, "AWS_ACCESS_KEY_ID": WORKER, "AWS_ENDPOINT_URL": store.address}.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return spark


SLOW = {"healthy", "faulty", "tables", "recorded"}


@pytest.mark.spark
@pytest.mark.parametrize("granularity", ["batches", "transactions", "offsets"])
def test_the_data_source_reads_by_uri(
    granularity: str, workers: Any, copies: Callable[[str], tuple[Path, str]]
) -> None:
    from pyspark_kafkalog import register  # noqa: PLC0415 - needs pyspark

    register(workers)
    folder, uri = copies("healthy")

    def rows(path: str) -> list[Any]:
        reader = workers.read.format("kafka_log").option("granularity", granularity)
        frame = reader.load(path)
        return sorted(frame.drop("file").collect(), key=str)

    local = rows(f"{folder}/brokers/1")
    assert len(local) > 50
    assert rows(f"{uri}/brokers/1") == rows(f"file://{folder}/brokers/1") == local


@pytest.mark.spark
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name in SLOW else name for name in MADE]
)
def test_on_spark_the_driver_reads_no_byte_of_a_segment(
    name: str, copies: Callable[[str], tuple[Path, str]], store: Store, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, uri = copies(name)
    monkeypatch.setattr(
        stages.scan_logs,
        "__kwdefaults__",
        (stages.scan_logs.__kwdefaults__ or {}) | {"split_bytes": 5_000 if name == "backwards" else 150_000},
    )
    local = run([folder], one_moment=True)
    store.asked.clear()
    assert said(run([place(uri)], "spark", spark=workers, one_moment=True)) == said(local)
    readers = {who for who, _ in store.segment_bytes(name)}
    assert readers == {WORKER}
    times = sum(store.segment_bytes(name).values()) / sum(path.stat().st_size for path in folder.rglob("*.log"))
    print(f"{name}: each byte of a segment was asked for {times:.2f} times")
    assert 1 <= times < 5.3, (
        "the scan; transactions, snapshots, replicas beside a log; coordinators; a history, suspects"
    )


SUBMITTED = """
import json, sys
from dataclasses import asdict
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.places import place
from kafka_eos_checks.audit.engines.spark import session

with session() as spark:
    result = run([place(sys.argv[1])], "spark", spark=spark, one_moment=True)
    conf = str(spark.sparkContext.getConf().getAll())
verdicts = [asdict(verdict) for verdict in result.verdicts]
for verdict in verdicts:
    verdict |= {"seconds": 0, "advice": "", "evidence": sorted(verdict["evidence"].splitlines())}
findings = [asdict(finding) for finding in (*result.findings, *result.notes)]
json.dump({"said": [verdicts, findings], "conf": conf}, open(sys.argv[2], "w"))
"""


@pytest.mark.spark
@pytest.mark.thorough
def test_two_executors_that_see_the_logs_only_through_s3_give_the_same(
    copies: Callable[[str], tuple[Path, str]], store: Store, wheel: Path, tmp_path: Path
) -> None:
    folder, uri = copies("faulty")
    local = said(run([folder], one_moment=True))
    hidden = folder.rename(tmp_path / "elsewhere")
    store.asked.clear()
    zipped = shutil.copyfile(wheel, tmp_path / "kafka_eos.zip")
    out = tmp_path / "found.json"
    options = ("--py-files", str(zipped), "--conf", f"spark.executorEnv.AWS_ACCESS_KEY_ID={WORKER}")
    done = submitted(SUBMITTED, tmp_path, uri, str(out), options=options)
    hidden.rename(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["said"] == json.loads(json.dumps(local))
    assert {who for who, _ in store.segment_bytes("faulty")} == {WORKER}
    assert SECRET not in found["conf"] + done.stdout + done.stderr


# --- URIs, and what cannot be read ------------------------------------------------------------------------------------


def test_a_uri_is_a_path_that_the_operating_system_is_not_asked_about(tmp_path: Path) -> None:
    uri = place("s3a://bucket/a//b/00.log")
    assert (str(uri), uri.name, uri.stem, uri.suffix) == ("s3://bucket/a/b/00.log", "00.log", "00", ".log")
    assert str(uri.parent.parent.parent.parent) == "s3://bucket", "a bucket has no folder"
    assert str(uri.with_suffix(".index")) == "s3://bucket/a/b/00.index"
    again = pickle.loads(pickle.dumps(uri))  # noqa: S301 - written here
    assert (again, type(again)) == (uri, Uri)
    assert str(place("hdfs:///copies/x")) == "hdfs://default/copies/x"
    assert str(place("abfs://container@account.dfs.core.windows.net/x")).startswith("abfs://container@account")
    assert place("file:///a%20b/c") == place("file:/a%20b/c") == Path("/a b/c"), "the second is Hadoop's form"
    assert place("file:a") == Path("file:a"), "a name of this machine"
    assert type(place(str(tmp_path))) is type(tmp_path)
    for call in (os.stat, os.unlink, os.listdir, open):
        with pytest.raises(TypeError, match="is no path of this machine"):
            call(uri)
    with pytest.raises(TypeError, match="is no path of this machine"):
        uri.mkdir(parents=True)
    with pytest.raises(Unreachable, match="nothing is written there"):
        uri.write_text("")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (f"s3://AKIA:{SECRET}@bucket/x", "s3://bucket/x: it was given with a password, a key or a query"),
        (f"s3://{SECRET}@bucket/x", "s3://bucket/x: it was given with a password"),
        (f"s3://bucket/x?secret_key={SECRET}", "s3://bucket/x: it was given with a password"),
        (f"s3://bucket?secret_key={SECRET}", "s3://…: it was given with a password"),
        (f"abfs://:{SECRET}@container/x", "abfs://container/x: it was given with a password"),
        (f"hdfs://me:{SECRET}@name/x", "hdfs://name/x: it was given with a password"),
        (f"s3://AKIA:{SECRET}/{SECRET}@bucket/x", "s3://…: it was given with a password"),
        ("nowhere://host/path", "nowhere://host/path: the scheme is none of s3, gs"),
        ("s3:///path", "s3:///path: no bucket is named; expected s3://BUCKET/PATH"),
    ],
)
@pytest.mark.parametrize("command", ["audit", "explain"])
def test_a_uri_with_a_secret_or_without_a_place_is_refused_and_the_secret_is_not_told(
    uri: str, words: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([command, uri])
    except SystemExit as left:
        code = int(left.code or 0)
    told = capsys.readouterr()
    assert code == 2
    assert words in told.err
    assert SECRET not in told.err + told.out


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["audit", *arguments]) == 2
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    assert SECRET not in told.err + told.out
    return told.err


def test_what_is_not_there_is_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"s3://{BUCKET}/no: no such file or directory" in refused([f"s3://{BUCKET}/no"], capsys)
    assert "s3://no-bucket/x: no such file or directory" in refused(["s3a://no-bucket/x"], capsys)
    assert f"s3://{BUCKET}/no.jsonl: no such history" in refused([f"s3://{BUCKET}/no.jsonl"], capsys)
    store.write("packed/r.tar.xz", b"")
    assert "a packed recording is read from this machine only" in refused([f"s3://{BUCKET}/packed/r.tar.xz"], capsys)


@pytest.mark.parametrize("what", [f"orders-0/{0:020d}.log", "replication-offset-checkpoint", ""])
def test_a_missing_right_to_list_or_read_is_named(
    what: str, tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "orders-0", faulty_log(3, 50, 0.0))
    uri = store.put(tmp_path, "denied")
    store.write("denied/replication-offset-checkpoint", b"0\n0\n")
    monkeypatch.setattr(store, "denied", {f"/{BUCKET}/denied/{what}" if what else f"/{BUCKET}"})
    told = refused([uri], capsys)
    assert (f"{uri}/{what}" if what else uri) in told
    assert "need the right to list and to read (s3:ListBucket, s3:GetObject)" in told


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("fate", ["gone", "shorter", "denied"])
def test_a_segment_that_is_lost_while_it_is_read_is_named(
    fate: str,
    engine: str,
    tmp_path: Path,
    store: Store,
    workers: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_log(tmp_path / "orders-0", faulty_log(3, 50, 0.0))
    uri = store.put(tmp_path, f"{fate}-{engine}")
    name = f"{fate}-{engine}/orders-0/{0:020d}.log"
    plan = stages.plan

    def planned(*arguments: Any, **more: Any) -> Any:
        made = plan(*arguments, **more)
        if fate == "gone":
            with suppress(FileNotFoundError):  # splits are planned once more, for the internal topics
                store.delete(name)
        elif fate == "shorter":
            store.write(name, b"x")
        else:
            store.denied.add(f"/{BUCKET}/{name}")
        return made

    monkeypatch.setattr(stages, "plan", planned)
    monkeypatch.setattr("kafka_eos_checks.audit.audit.TRIES", 1)
    with pytest.raises((OSError, ValueError)) as told:
        run([place(uri)], engine, spark=workers)
    store.denied.clear()
    words = {
        "gone": "nothing there; is the name right, or was it deleted meanwhile?",
        "shorter": "1 bytes, where there were",
        "denied": "need the right to list and to read",
    }
    assert words[fate] in str(told.value)
    assert f"s3://{BUCKET}/{name}" in str(told.value)


@pytest.mark.parametrize("left", [10, 60])
def test_an_object_that_becomes_shorter_while_it_is_open_is_named(left: int, tmp_path: Path, store: Store) -> None:
    write_log(tmp_path / "orders-0", faulty_log(3, 50, 0.0))
    segment = place(store.put(tmp_path, "open")) / "orders-0" / f"{0:020d}.log"

    def read() -> None:
        with places.open_at(segment) as file:
            store.write(f"open/orders-0/{segment.name}", b"x" * left)
            file.pread(100, 50)

    with pytest.raises(Unreachable, match=f"{segment}: "):
        read()


BUSY = ("503 Slow Down", b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")


def test_a_small_object_is_asked_for_again_where_the_store_is_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PAUSES", (0, 0))
    store.write("busy", b"0\n")
    small = place(f"s3://{BUCKET}/busy")
    monkeypatch.setattr(store, "refusals", {f"/{BUCKET}/busy": [BUSY] * 2})
    assert places.bytes_of(small) == b"0\n"
    store.refusals[f"/{BUCKET}/busy"] = [BUSY] * 3
    with pytest.raises(Unreachable, match=r"busy: .*; the store refused it several times, and is probably too busy"):
        places.bytes_of(small)
    assert not store.refusals[f"/{BUCKET}/busy"]
    with pytest.raises(Unreachable, match=r"probably too busy: try again later"), places._named(place("s3://b/size")):
        raise OSError("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.")


def test_an_object_that_is_deleted_after_its_size_was_asked_for_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("going", bytes(1000))
    monkeypatch.setattr(
        store, "refusals", {f"/{BUCKET}/going": [("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>")]}
    )
    with places.open_at(place(f"s3://{BUCKET}/going")) as file, pytest.raises(FileNotFoundError, match="nothing there"):
        file.pread(1000, 0)


def test_a_file_that_becomes_shorter_while_it_is_open_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooted = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(places, "_file_system", lambda *_: (rooted, "/"))
    (tmp_path / "0.log").write_bytes(bytes(200))
    with places.open_at(place("hdfs:///0.log")) as file:
        os.truncate(tmp_path / "0.log", 60)
        with pytest.raises(Unreachable, match=r"hdfs://default/0\.log: 60 bytes, where there were 200"):
            file.pread(100, 50)
        os.truncate(tmp_path / "0.log", 200)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        pytest.param(
            "hdfs://127.0.0.1:1/copies",
            "hdfs://127.0.0.1:1/copies: Connection refused",
            marks=pytest.mark.thorough,  # the client tries for a quarter of a minute
        ),
        (
            "hdfs:///copies",
            'hdfs://default/copies: InvalidArgument("No fs.defaultFS setting found"); name the NameNode',
        ),
    ],
)
def test_an_hdfs_that_does_not_answer_is_named_with_the_remedy(
    uri: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hdfs_native", reason="HDFS: pip install 'kafka-eos[hdfs]'")
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    assert words in refused([uri], capsys)


def test_without_the_client_of_hdfs_its_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    monkeypatch.setitem(sys.modules, "hdfs_native.fsspec", None)
    assert "pip install 'kafka-eos[hdfs]'" in refused(["hdfs://127.0.0.1:2/copies"], capsys)


def test_the_tasks_of_an_engine_are_asked_only_about_files_of_other_machines(tmp_path: Path, store: Store) -> None:
    write_log(tmp_path / "orders-0", faulty_log(3, 50, 0.0))
    local, far = find_logs(tmp_path), find_logs(place(store.put(tmp_path, "asked")))
    assert asker(LocalEngine(), local) is places.ask_here
    assert asker(LocalEngine(), far) is not places.ask_here


@pytest.mark.parametrize(
    ("environment", "made"),
    [
        ({"AWS_ENDPOINT_URL": "http://localhost:9/"}, {"endpoint_override": "localhost:9", "scheme": "http"}),
        (
            {"AWS_ENDPOINT_URL_S3": "localhost:8", "AWS_ENDPOINT_URL": "http://localhost:9"},
            {"endpoint_override": "localhost:8", "scheme": "https"},
        ),
        ({"AWS_REGION": "eu-north-1"}, {"region": None}),
        ({}, {"region": "the region of bucket"}),
    ],
    ids=str,
)
def test_a_bucket_is_at_the_address_of_the_environment_or_in_the_set_region_or_its_own(
    environment: dict[str, str], made: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*places._ENDPOINTS, *places._REGIONS):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    fs = SimpleNamespace(S3FileSystem=dict, resolve_s3_region=lambda bucket: f"the region of {bucket}")
    monkeypatch.setattr(places, "need", lambda *_: fs)
    assert places._file_system.__wrapped__("s3", "bucket") == (made, "bucket")
