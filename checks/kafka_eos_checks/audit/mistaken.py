"""Files that are no input of an audit: what each seems to be, and which command takes it."""

import json
import tomllib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

from kafka_eos.histories.history import COLUMN_TYPES, REQUIRED
from kafka_eos_checks.audit.places import is_uri
from kafka_eos_checks.audit.segments.header_tables import is_table

LINE_BYTES = 1 << 20  # of the first line, or of a small file
OF_EVENTS = {"process", "action", "phase"}  # every event of a history has these, and nothing else has any
TAKEN = "`kafka-eos audit` and `kafka-eos explain RECORDING --finding N` take the logs or the history that was audited"
OF_COLUMNS: tuple[tuple[set[str], str], ...] = (
    (
        {"rule", "evidence", "seen_ms"},
        "reports of `kafka-eos watch`, for jq or an alert; audit its brokers' logs",
    ),
    ({"rule", "evidence"}, f"findings of an audit, which are its result, for jq or a table; {TAKEN}"),
    ({"rule", "topic", "partition"}, "violations that `kafka-eos lab generate` has planted; give their folder"),
    ({"check", "name", "found"}, "verdicts; `kafka-eos ledger report` makes a page of those in build/verdicts"),
    ({"recording", "scenarios"}, "the manifest of a recording; give its folder"),
)
"""By the columns of a first line, or by the fields of a document: what has them, the first that fits."""


def seems(path: Path) -> str:
    """What a file is that no audit takes, and which command does; "" for one that may be an input, or is unreadable."""
    if is_uri(str(path)) or not path.is_file():
        return ""
    if is_table(path):
        return "a table of `kafka-eos headers`; give the folder that has its partition's folder"
    look = _BY_SUFFIX.get(path.suffix)
    try:
        return look(path) if look is not None else ""
    except (OSError, ValueError, RecursionError):  # whoever reads it as what its name says tells what is wrong
        return ""


def _of(columns: Set[str]) -> str:
    return next((words for own, words in OF_COLUMNS if own <= columns), "")


def _of_lines(path: Path) -> str:
    with path.open("rb") as file:
        line = file.readline(LINE_BYTES)
    if line.startswith((BOM_UTF16_LE, BOM_UTF16_BE, b"{\0", b"\0{")):
        return "text in UTF-16, and a history is in UTF-8: iconv -f UTF-16 -t UTF-8"
    if line.startswith(BOM_UTF8):
        return "text with a byte order mark, and a history begins with {: tail -c +4 leaves the mark out"
    first = json.loads(line)
    if not isinstance(first, dict):
        return ""
    return _without_events(first.keys())


def _of_table(path: Path) -> str:
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415 - the light install has no pyarrow
    except ImportError:
        return ""
    return _without_events(set(pq.read_schema(path).names))


def _without_events(columns: Set[str]) -> str:
    """A file whose lines or rows have these columns: what it is, "" if they are events."""
    if not columns or columns & OF_EVENTS:
        return ""
    shown = ", ".join(sorted(columns)[:6])
    return _of(columns) or f"no history: a history has run, process, action, phase, and this {shown}"


def _of_document(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(LINE_BYTES)
    try:
        document = json.loads(text)
    except ValueError:  # such as lines, or a document that is longer
        document = json.loads(text[: text.find(b"\n") + 1])
    columns = _first(document).keys()
    if columns <= {*COLUMN_TYPES} and {*REQUIRED} <= columns:
        lines = "one event a line" if isinstance(document, dict) else "one event a line, as `jq -c '.[]'` prints them"
        return f"a history, and its name has to end with .jsonl; {lines}"
    return _of(columns)


def _of_packed(path: Path) -> str:
    """A packed history. Other archives are told of by whoever unpacks recordings."""
    is_history = Path(path.stem).suffix in {".jsonl", ".json", ".parquet", ".edn"}
    return f"a packed history; unpack it ({UNPACK[path.suffix]}) and give {path.stem}" if is_history else ""


def _first(document: Any) -> dict[str, Any]:
    some = document[0] if isinstance(document, list) and document else document
    return some if isinstance(some, dict) else {}


def _of_plan(path: Path) -> str:
    is_plan = "fault" in tomllib.loads(path.read_text(encoding="utf-8"))
    return "a plan of faults, which `kafka-eos serve --faults FILE` takes" if is_plan else ""


UNPACK = {".gz": "gunzip", ".zst": "unzstd", ".bz2": "bunzip2", ".xz": "unxz", ".lz4": "unlz4", ".zip": "unzip"}
_BY_SUFFIX: dict[str, Callable[[Path], str]] = {
    **dict.fromkeys(UNPACK, _of_packed),
    ".jsonl": _of_lines,
    ".parquet": _of_table,
    ".json": _of_document,
    ".toml": _of_plan,
    ".html": lambda _: "a page for a browser",
    ".properties": lambda _: "settings, which `kafka-eos settings FILE` takes",
}
