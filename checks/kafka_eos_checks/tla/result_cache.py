"""The cache of results: each is stored under the fingerprint of all that it depends on.

A fingerprint covers what a caller names: values, Python files with all that they import and the files that they name,
modules of the spec with all that they need. Another fingerprint is another entry, so an entry is never out of date,
only unused. Commands keep their results in ``build/checked/<command>``, and go on where an earlier call was ended.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kafka_eos_checks.kit.imports import needed
from kafka_eos_checks.kit.paths import build_folder
from kafka_eos_checks.tla.modules import ModuleFolder

_NAMED = re.compile(r"Path\(__file__\)\.with_name\(\"([^\"]+)\"\)")


def fingerprint(*parts: object) -> str:
    """A hash of values in their order; two lists of values have the same one only if the values' texts are the same."""
    digest = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode()
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()


@cache
def python_fingerprint(modules: tuple[str, ...]) -> str:
    """The fingerprint of these modules of Python and of all that they import, in functions too.

    A file that one of them names by ``Path(__file__).with_name("…")`` counts as well.
    """
    own = needed(modules)
    named = (path.with_name(name) for path in own for name in _NAMED.findall(path.read_text(encoding="utf-8")))
    read = [*own, *(path for path in named if path.is_file())]
    return fingerprint(*(part for path in read for part in (path.name, path.read_bytes())))


def spec_fingerprint(spec: Path, modules: Iterable[str]) -> str:
    """The fingerprint of these modules of the spec and of all that they need.

    Args:
        spec: the folder of the modules.
        modules: their names.
    """
    folder = ModuleFolder(spec)
    return fingerprint(*(part for name in sorted(folder.closure(modules)) for part in (name, folder.text(name))))


def folder_fingerprint(folder: Path) -> str:
    """The fingerprint of the files that stand in a folder."""
    return fingerprint(*(part for path in sorted(folder.iterdir()) for part in (path.name, path.read_bytes())))


def cache_folder(command: str) -> Path:
    """The folder in which a command keeps its results."""
    return build_folder() / "checked" / command


@dataclass(frozen=True, slots=True)
class ResultCache:
    """Results of earlier runs, as JSON objects by their fingerprints.

    Attributes:
        folder: holds a file for each result.
    """

    folder: Path

    def get(self, key: str) -> Mapping[str, Any] | None:
        """An earlier result; None if there is none that can be read."""
        try:
            found = json.loads(self._file(key).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def put(self, key: str, result: Mapping[str, Any]) -> None:
        """Keep a result, whole or not at all."""
        write_whole(self._file(key), json.dumps(result))

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def write_whole(file: Path, text: str) -> None:
    """Write a file so that a reader finds it whole, or as it was before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    waiting = file.with_suffix(".new")
    waiting.write_text(text, encoding="utf-8")
    waiting.replace(file)
