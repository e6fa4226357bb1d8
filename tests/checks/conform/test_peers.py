"""``kafka-eos conform --peers``: brokers compared, and brokers that cannot be started here."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.machines.leader import LeaderRules
from kafka_eos.machines.producer_state import Log
from kafka_eos.server.cluster import Machines
from kafka_eos.server.threaded import ServedCluster
from kafka_eos_checks.brokers import jars
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.conform import peers, peers_command, session
from kafka_eos_checks.conform.mechanisms import MECHANISMS
from kafka_eos_checks.conform.peers import PEERS, Absent, Peer
from kafka_eos_checks.conform.run import Found
from kafka_eos_checks.conform.wire import Address, Unreachable, Wire
from kafka_eos_checks.mutants.rules import mutated

from ..kept import keep_output, kept_text


@pytest.fixture(autouse=True)
def kept(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test reads of the output is compared whole."""
    keep_output(capsys, tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def one_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest graph stands for all."""
    smallest = [each for each in MECHANISMS if each.name == "idempotence"]
    monkeypatch.setattr(peers_command, "open_session", lambda target: session.open_session(target, smallest))


@contextmanager
def forgetful(folder: Path) -> Iterator[str]:
    rules = LeaderRules(sequences=mutated(Log, {"IsDuplicate": "NoDuplicateCache"}))  # type: ignore[arg-type]
    with ServedCluster(machines=Machines(leaders=rules)) as cluster:
        yield cluster.bootstrap_servers


@contextmanager
def absent(folder: Path) -> Iterator[str]:
    raise Absent("there is no <toolchain>")
    yield ""


def use(monkeypatch: pytest.MonkeyPatch, *more: Peer) -> None:
    monkeypatch.setattr(peers_command, "PEERS", (PEERS[0], *more))


def test_the_page_lists_conforming_diverging_and_skipped_brokers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(
        monkeypatch,
        Peer(name="forgetful", transaction_version=2, start=forgetful),
        Peer(name="another", transaction_version=2, start=absent),
    )
    assert main(["conform", "--peers", "--out", str(tmp_path / "p.html"), "--json", str(tmp_path / "p.json")]) == 0
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "skipped: there is no &lt;toolchain&gt;" in page
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER, where the spec says NONE" in page
    assert "<svg" in page
    assert page.endswith("</details></html>\n")
    assert "<script" not in page
    kept_text(re.sub(r"<svg.*?</svg>", "SVG", page, flags=re.DOTALL).replace("<td>", "\n<td>"), tmp_path)
    assert "forgetful" in capsys.readouterr().out
    assert (tmp_path / "p.json").exists()


def test_a_diverging_peer_that_has_to_conform_ends_the_command_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, Peer(name="forgetful", transaction_version=2, start=forgetful, has_to_conform=True))
    assert main(["conform", "--peers", "--only", "forgetful", "--out", str(tmp_path / "p.html")]) == 1


@contextmanager
def dead(folder: Path) -> Iterator[str]:
    yield "127.0.0.1:1"


@pytest.mark.parametrize(("obliged", "code"), [(False, 0), (True, 1)])
def test_a_peer_that_cannot_be_asked_has_failed_and_the_others_are_compared(
    obliged: bool, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Peer(name="dead", transaction_version=2, start=dead, has_to_conform=obliged))
    assert main(["conform", "--peers", "--out", str(tmp_path / "p.html")]) == code
    assert "dead: failed: 127.0.0.1:1: " in capsys.readouterr().err
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "failed: 127.0.0.1:1: " in page
    assert PEERS[0].name in page


@pytest.mark.parametrize("release", ["4.4.0", "4.3.0", "3.9.1", "2.8.2"])
def test_a_kafka_whose_jars_are_missing_is_skipped_by_name_with_the_reason(
    release: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jars, "build_folder", lambda: tmp_path)
    assert main(["conform", "--peers", "--only", f"Apache Kafka {release}", "--out", str(tmp_path / "p.html")]) == 1
    why = f"the jars of Kafka {release} are not there; `make peers` in a clone fetches them"
    said = capsys.readouterr().err
    assert f"Apache Kafka {release}: skipped: {why}" in said
    assert "nothing was compared: none of these brokers could be started" in said
    assert f"skipped: {why}" in (tmp_path / "p.html").read_text(encoding="utf-8")


def test_the_page_goes_to_the_folder_of_output_unless_another_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jars, "build_folder", lambda: tmp_path)
    monkeypatch.setattr(peers_command, "output_folder", lambda: tmp_path / "out")
    assert main(["conform", "--peers", "--only", "Apache Kafka 2.8.2"]) == 1
    assert "skipped" in (tmp_path / "out" / "peers.html").read_text(encoding="utf-8")


@pytest.mark.broker
@pytest.mark.skipif(not have_jars("2.8.2"), reason="the jars of Kafka 2.8.2 are not there; `make peers` fetches them")
def test_kafka_before_verification_only_differs_in_taking_any_first_sequence() -> None:
    [peer] = [each for each in PEERS if each.name == "Apache Kafka 2.8.2"]
    report = peers_command.compare(peer).report
    assert report is not None
    assert set(report.found) == {Found.CONFORMS, Found.KNOWN}
    assert set(report.known()) == {"first-sequence"}
    assert report.counts.unread == set()  # none of them is about transactions


def test_of_a_broker_that_supports_nothing_the_page_does_not_say_that_nothing_diverges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        session.Session, "unsupported", lambda self: {e.request.api: "no" for e in self.edges().values()}
    )
    told = {}
    for peer in (PEERS[0], Peer(name="forgetful", transaction_version=2, start=forgetful)):
        report = peers_command.compare(peer).report
        assert report is not None
        told[peer.name] = peers_command._section(report)
    assert all("<p>Nothing was compared.</p>" in each and "diverges" not in each for each in told.values())


def test_a_page_that_cannot_be_written_is_refused_before_any_broker_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers_command, "compare", lambda _: pytest.fail("a broker is asked"))
    assert main(["conform", "--peers", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"kafka-eos: {tmp_path} cannot be written: it is a folder; give a file\n"


def test_an_unknown_peer_ends_the_command_with_2(tmp_path: Path) -> None:
    assert main(["conform", "--peers", "--only", "nobody", "--out", str(tmp_path / "p.html")]) == 2


def test_each_peer_is_asked_as_its_name_says() -> None:
    for peer in PEERS:
        named = re.search(r"(?:clients of version|transaction\.version) (\d)", peer.name)
        if named is not None:
            assert peer.transaction_version == int(named[1]), peer.name
        assert peer.transaction_version in {0, 1, 2}
    assert [peer.name for peer in PEERS if not peer.verification] == ["Apache Kafka 2.8.2"], "older than KIP-890"
    obliged = [peer.name for peer in PEERS if peer.has_to_conform]
    assert obliged == [peer.name for peer in PEERS if peer.name.startswith(("kafka-eos", "Apache Kafka 4"))]


def test_a_broker_that_was_just_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def connect(self: Wire) -> None:
        tried.append(str(self.bootstrap))
        if len(tried) < 3:
            raise Unreachable("starting")

    monkeypatch.setattr(Wire, "connect", connect)
    peers._wait_for(Address("127.0.0.1", 1))
    assert tried == ["127.0.0.1:1"] * 3
    tried.clear()
    monkeypatch.setattr(peers, "STARTING_SECONDS", -1.0)
    with pytest.raises(Unreachable, match="starting"):
        peers._wait_for(Address("127.0.0.1", 1))


def test_the_numbers_of_a_peer_are_those_of_its_report() -> None:
    forgetting = peers_command.compare(Peer(name="forgetful", transaction_version=2, start=forgetful))
    conforming = peers_command.compare(PEERS[0])
    for each, differs in ((forgetting, True), (conforming, False)):
        assert each.report is not None
        edges, *counts, kinds, _ = peers_command._cells(each)
        assert edges == str(each.report.edges)
        assert counts == [str(each.report.found[found] or "·") for found in Found]
        assert (kinds != "·") is differs
        assert kinds == (str(len(each.report.kinds())) if differs else "·")


def test_kfake_is_built_started_on_a_free_port_and_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done: list[str] = []
    built = SimpleNamespace(returncode=0, stderr="")
    process = SimpleNamespace(send_signal=lambda _: done.append("ended"), wait=lambda _: done.append("waited"))

    def start(command: list[object], **_: object) -> Any:
        done.append(" ".join(map(str, command)))
        return process

    monkeypatch.setattr(peers.shutil, "which", lambda _: "/usr/bin/go")
    monkeypatch.setattr(peers.subprocess, "run", lambda *_, **__: built)
    monkeypatch.setattr(peers.subprocess, "Popen", start)
    monkeypatch.setattr(peers, "_wait_for", lambda address: done.append(str(address)))
    with peers._kfake(tmp_path) as bootstrap:
        port = int(bootstrap.removeprefix("127.0.0.1:"))
        assert done == [f"{tmp_path / 'kfake'} {port}", bootstrap]
        done.clear()
    assert done == ["ended", "waited"]
    built.returncode, built.stderr = 1, "first\nno network\n"
    with pytest.raises(Absent, match=r"^Go cannot build it: no network$"), peers._kfake(tmp_path):
        raise AssertionError("nothing was built")


def test_a_line_of_the_page_tells_what_differs_or_why_nothing_is_known() -> None:
    edge = SimpleNamespace(name="transaction: Empty: Produce(gap)")
    lost = SimpleNamespace(what="answer", allowed="NONE", observed="LOST")
    differs = SimpleNamespace(edge=edge, found=Found.DIVERGES, differences=[lost], reason="")
    unknown = SimpleNamespace(edge=edge, found=Found.UNKNOWN, differences=[], reason="no answer in time")
    assert peers_command._summary(differs) == "Produce(gap): answer: LOST, where the spec says NONE"
    assert peers_command._summary(unknown) == "could not tell: Produce(gap): no answer in time"


def test_the_page_tells_how_often_a_busy_broker_gave_which_answer_and_what_was_not_read_back() -> None:
    report: Any = SimpleNamespace(
        busy=lambda: {"the final answer": 2, "CONCURRENT_TRANSACTIONS": 13},
        counts=SimpleNamespace(unread={"Fetch: <not offered>", "A"}),
        kinds=list,
        target="a & b",
        is_compared=True,
    )
    assert peers_command._section(report) == (
        "<h2>a &amp; b</h2><p>Right after a decision, while markers may still be written, it answered: "
        "13 times CONCURRENT_TRANSACTIONS, 2 times the final answer.</p>"
        "<p>Of its state this was not read back: A; Fetch: &lt;not offered&gt;.</p><p>Nothing diverges.</p>"
    )
