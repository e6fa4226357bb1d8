"""The folder of a simulated recording, with the manifest, the history and the logs of a real cluster's recording."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_eos_checks.kit.outputs import Unwritable, make_folder

CLUSTER = "simulated"
_MANIFEST, _HISTORIES, _BROKERS = "manifest.json", "histories", "brokers"


def begin(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """Write the manifest of a new recording, in place of an earlier simulated one; return the file of its history.

    The earlier one is removed, because an audit would take its logs for replicas and partitions of the new one.

    Raises:
        Unwritable: the folder cannot be made, or has a recording that is not simulated.
    """
    parts = [folder / name for name in (_HISTORIES, _BROKERS)]
    if any(part.exists() for part in parts):
        if not _is_simulated(folder / _MANIFEST):
            raise Unwritable(f"{folder} has a recording that `kafka-eos simulate` has not written; give another folder")
        for part in parts:
            shutil.rmtree(part, ignore_errors=True)
    make_folder(folder / _HISTORIES)
    text = json.dumps({"cluster": CLUSTER, **manifest}, indent=1) + "\n"
    (folder / _MANIFEST).write_text(text, encoding="utf-8")
    return folder / _HISTORIES / f"{CLUSTER}.jsonl"


def _is_simulated(manifest: Path) -> bool:
    try:
        return bool(json.loads(manifest.read_text(encoding="utf-8"))["cluster"] == CLUSTER)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_segment(folder: Path, broker: int, partition: str, content: bytes) -> None:
    """Write the only segment of a partition's replica."""
    home = folder / _BROKERS / str(broker) / partition
    home.mkdir(parents=True, exist_ok=True)
    (home / f"{0:020d}.log").write_bytes(content)
