"""``kafka-eos conform --peers``: the reference, Apache Kafka and its imitations against the spec, on one page.

Each broker is started on the loopback interface, asked everything, and stopped again. A peer whose toolchain is absent
is skipped by name, with the reason. One that starts and cannot be asked has failed, and the others are asked all the
same.
"""

import argparse
import fnmatch
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table

from kafka_eos_checks.conform.known import known_differences
from kafka_eos_checks.conform.peers import PEERS, Absent, Peer
from kafka_eos_checks.conform.result import Report, causes_of, diagram, story, write_json
from kafka_eos_checks.conform.run import Found
from kafka_eos_checks.conform.session import STOPS, Session, Target, Unusable, conform, open_session
from kafka_eos_checks.drawing.svg import inert
from kafka_eos_checks.kit.outputs import check_output
from kafka_eos_checks.kit.paths import output_folder
from kafka_eos_checks.kit.terminal import WordTable, answer_console, progress_console

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; } th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } pre { white-space: pre-wrap; background: #f6f6f6; padding: .7rem; }
details { margin: .4rem 0; } summary { cursor: pointer; } .bad { color: #a00; } .good { color: #070; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } pre { background: #242424; } }
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """A peer, with its report, or why there is none: it is not here, or it has failed."""

    peer: Peer
    report: Report | None
    why: str = ""
    has_failed: bool = False

    @property
    def is_as_it_has_to_be(self) -> bool:
        """Whether the peer conforms, or does not have to, or is not here."""
        return not self.peer.has_to_conform or (self.report.conforms if self.report else not self.has_failed)

    @property
    def outcome(self) -> str:
        """The outcome for a peer without a report."""
        return "failed" if self.has_failed else "skipped"


def run(arguments: argparse.Namespace) -> int:
    """Run ``conform --peers``."""
    patterns = arguments.only or ["*"]
    chosen = [peer for peer in PEERS if any(fnmatch.fnmatchcase(peer.name, pattern) for pattern in patterns)]
    if not chosen:
        progress_console.print(f"kafka-eos conform --peers: none of {', '.join(peer.name for peer in PEERS)} matches")
        return 2
    page = arguments.out or output_folder() / "peers.html"
    check_output(page, makes_folder=True)
    compared = [compare(peer) for peer in chosen]
    write_page(page, compared)
    if arguments.json:
        write_json(arguments.json, [each.report for each in compared if each.report is not None])
    answer_console.print(_table(compared))
    answer_console.print(f"\n{page}", soft_wrap=True)
    if all(each.report is None for each in compared):
        said = "nothing was compared: none of these brokers could be started"
        progress_console.print(f"kafka-eos conform --peers: {said}", soft_wrap=True)
        return 1
    return 0 if all(each.is_as_it_has_to_be for each in compared) else 1


@contextmanager
def session_with(peer: Peer) -> Iterator[Session]:
    """Start a peer, and stop it again.

    Raises:
        Absent: it cannot be started here.
    """
    with (
        tempfile.TemporaryDirectory(prefix="kafka-eos-peer-") as folder,
        peer.start(Path(folder) / "peer") as bootstrap,
    ):
        target = Target(
            bootstrap=bootstrap,
            transaction_version=peer.transaction_version,
            verification=peer.verification,
            name=peer.name,
            unasked=peer.unasked,
            timeouts=True,
        )
        session = open_session(target)
        try:
            yield session
        finally:
            session.wire.close()


def compare(peer: Peer) -> Compared:
    """Start a peer, ask it everything, and stop it."""
    started = time.monotonic()
    try:
        with session_with(peer) as session:
            report = conform(session, session.edges(), keeps=True)
    except (Absent, Unusable, *STOPS) as error:
        compared = Compared(peer, None, str(error), has_failed=not isinstance(error, Absent))
        progress_console.print(f"{peer.name}: {compared.outcome}: {error}", soft_wrap=True)
        return compared
    seconds = time.monotonic() - started
    found = ", ".join(f"{count} {each}" for each, count in sorted(report.found.items()))
    said = f"{peer.name}: {found}; {report.seconds:.1f} s, {seconds:.1f} s with start and stop"
    progress_console.print(said, soft_wrap=True)
    return Compared(peer, report)


def _table(compared: Sequence[Compared]) -> Table:
    drawn = WordTable("peer")
    for column in ("edges", *(found.value for found in Found), "kinds of divergence", "seconds"):
        drawn.add_column(column, justify="right")
    for each in compared:
        drawn.add_row(each.peer.name, *_cells(each))
    return drawn


def _cells(each: Compared) -> list[str]:
    if each.report is None:
        return [f"{each.outcome}:", each.why]
    report = each.report
    counts = [str(report.found[found] or "·") for found in Found]
    return [str(report.edges), *counts, str(_kinds(report) or "·"), f"{report.seconds:.1f}"]


def _kinds(report: Report) -> int:
    return sum(results[0].found is Found.DIVERGES for results in report.kinds())


# --- the page -------------------------------------------------------------------------------------------------------


def write_page(path: Path, compared: Sequence[Compared]) -> None:
    """Write the comparison; it fetches nothing and runs no script."""
    head = ["peer", "edges", *(found.value for found in Found), "kinds of divergence", "seconds"]
    rows = "".join(_row(each, len(head)) for each in compared)
    sections = "".join(_section(each.report) for each in compared if each.report is not None)
    known = "".join(
        f"<p><b>{escape(name)}</b>: {escape(each.title)} {escape(each.reason)} "
        f"<i>Apache Kafka {escape(each.brokers)}; {escape(each.source)}</i></p>"
        for name, each in known_differences().items()
    )
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>kafka-eos: brokers compared</title><style>{STYLE}</style>
<h1>Brokers compared with the spec</h1>
<p>Every edge of the graphs of the reference's machines that a client can tell from the others was asked of each broker
as a raw request; its answer and what could be read back afterwards are compared with what the spec allows. Besides
those edges, the verdicts count the internal ones: markers and completion, for which the check waits.</p>
<table><tr>{"".join(f"<th>{escape(text)}</th>" for text in head)}</tr>{rows}</table>
<h2>Known differences</h2>{known}
{sections}</html>
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _row(each: Compared, width: int) -> str:
    if each.report is None:
        why = escape(each.why)
        return f'<tr><td>{escape(each.peer.name)}</td><td colspan="{width - 1}">{each.outcome}: {why}</td></tr>'
    style = "good" if each.report.conforms else "bad"
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in _cells(each))
    return f'<tr><td class="{style}">{escape(each.peer.name)}</td>{cells}</tr>'


def _section(report: Report) -> str:
    busy = ", ".join(f"{count} times {what}" for what, count in sorted(report.busy().items()))
    told = (
        f"<p>Right after a decision, while markers may still be written, it answered: {escape(busy)}.</p>"
        if busy
        else ""
    )
    if report.counts.unread:
        told += f"<p>Of its state this was not read back: {escape('; '.join(sorted(report.counts.unread)))}.</p>"
    kinds = "".join(_kind(report, results) for results in report.kinds())
    nothing = f"<p>{'Nothing diverges' if report.is_compared else 'Nothing was compared'}.</p>"
    return f"<h2>{escape(report.target)}</h2>{told}{kinds or nothing}"


def _kind(report: Report, results: Sequence[Any]) -> str:
    """Differing results of one kind; the first, which has the shortest scenario, is told and drawn."""
    first, *_ = results
    return (
        f"<details><summary>{escape(_summary(first))} ({len(results)})</summary>"
        f"<pre>{escape(story(first, report.client))}</pre>{_drawn(first)}</details>"
    )


def _drawn(result: Any) -> str:
    picture = diagram(result)
    return inert(picture) if picture else ""


def _summary(result: Any) -> str:
    request = result.edge.name.rpartition(": ")[2]
    if not result.differences:
        return f"{result.found}: {request}: {result.reason}"
    first = result.differences[0]
    known = f" — known of {causes_of(result)[0].brokers}" if causes_of(result) else ""
    return f"{request}: {first.what}: {first.observed}, where the spec says {first.allowed}{known}"
