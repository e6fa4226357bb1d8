"""The results of runs, kept in a folder.

The tally of a chunk of seeds is kept, so that an interrupted campaign continues where it stopped, as long as nothing
that determines a run has changed. Seeds that met something for the first time are kept too, as a corpus.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kafka_eos_checks.models.registry import read_modules
from kafka_eos_checks.tla.result_cache import (
    ResultCache,
    fingerprint,
    python_fingerprint,
    spec_fingerprint,
    write_whole,
)
from kafka_eos_checks.walks import campaign
from kafka_eos_checks.walks.campaign import Failure, LayerTally, Tally
from kafka_eos_checks.walks.layers import Layer
from kafka_eos_checks.walks.walk import Coverage

SEEDS_PER_CHUNK = 260
_SEPARATOR = " | "


def modules(among: Sequence[Layer]) -> tuple[str, ...]:
    """The modules of Python that determine a run, with all that they import; the bounds are imported by name."""
    machines = {layer.model.machine_class().__module__ for layer in among}
    return (campaign.__name__, "kafka_eos_checks.models.bounds", *sorted(machines))


def specs(among: Sequence[Layer]) -> Iterator[str]:
    """The parts of the spec that determine a run: the layers, and the modules of their formulas."""
    for layer in among:
        model = layer.model
        tables = [sorted(table.items()) for table in (model.constants, model.overrides)]
        yield repr((layer.name, layer.properties, model.name, model.module, model.machine, model.bounds, *tables))
    named = {name for layer in among for name in read_modules(layer.model)}
    yield spec_fingerprint(among[0].model.spec, sorted(named))


@cache
def runs_fingerprint(release: str = "") -> str:
    """The fingerprint of everything that determines a run of a release: if it changes, kept results are useless."""
    layers = campaign.all_layers(release)
    return fingerprint(python_fingerprint(modules(layers)), *specs(layers))


def to_json(tally: Tally) -> dict[str, Any]:
    """A tally as JSON."""

    def pairs(counter: Counter[tuple[str, str]]) -> dict[str, int]:
        return {_SEPARATOR.join(key): count for key, count in sorted(counter.items())}

    return {
        "seconds": round(tally.seconds, 3),
        "setup": round(tally.setup, 3),
        "failures": [[f.layer, f.seed, f.how, f.is_judged] for f in tally.failures],
        "news": [[seed, name, list(points)] for seed, name, points in tally.news],
        "layers": {
            name: {
                "runs": layer.runs,
                "steps": layer.steps,
                "fair_steps": layer.fair_steps,
                "cut_off": layer.cut_off,
                "sampled": layer.sampled,
                "actions": dict(sorted(layer.coverage.actions.items())),
                "refusals": pairs(layer.coverage.refusals),
                "faults": pairs(layer.coverage.faults),
            }
            for name, layer in sorted(tally.layers.items())
        },
    }


def from_json(given: Mapping[str, Any]) -> Tally:
    """The inverse of :func:`to_json`."""

    def counter(pairs: Mapping[str, int]) -> Counter[tuple[str, str]]:
        split = {key: key.partition(_SEPARATOR) for key in pairs}
        return Counter({(parts[0], parts[2]): pairs[key] for key, parts in split.items()})

    tally = Tally(seconds=float(given["seconds"]), setup=float(given["setup"]))
    tally.failures = [Failure(layer, seed, how, is_judged) for layer, seed, how, is_judged in given["failures"]]
    tally.news = [(seed, name, tuple(points)) for seed, name, points in given["news"]]
    for name, row in given["layers"].items():
        coverage = Coverage(Counter(row["actions"]), counter(row["refusals"]), counter(row["faults"]))
        tally.layers[name] = LayerTally(
            row["runs"], row["steps"], row["fair_steps"], row["cut_off"], row["sampled"], coverage
        )
    return tally


def chunks(first: int, last: int) -> list[tuple[int, int]]:
    """The seeds in chunks that begin at multiples of :data:`SEEDS_PER_CHUNK`; both ends of each are included."""
    found = []
    while first <= last:
        end = min(last, first - first % SEEDS_PER_CHUNK + SEEDS_PER_CHUNK - 1)
        found.append((first, end))
        first = end + 1
    return found


def read_kept(folder: Path, chunk: tuple[int, int], release: str = "") -> Tally | None:
    """The kept tally of a chunk; None if there is none since something changed that determines a run."""
    content = ResultCache(folder).get(_key(chunk, release))
    try:
        return None if content is None else from_json(content)
    except (ValueError, KeyError, TypeError, AttributeError):  # not by this program
        return None


def keep(folder: Path, chunk: tuple[int, int], tally: Tally, release: str = "") -> None:
    """Keep the tally of a chunk."""
    ResultCache(folder).put(_key(chunk, release), to_json(tally))


def _key(chunk: tuple[int, int], release: str) -> str:
    return fingerprint(runs_fingerprint(release), *chunk)


# --- the corpus -------------------------------------------------------------------------------------------------------


def write_corpus(folder: Path, tally: Tally) -> Path:
    """Add each seed that met something first to the corpus, with what it met; a corpus of other runs is replaced.

    A seed that is in the corpus already keeps its entry.
    """
    path = _corpus(folder)
    try:
        rows = {row["seed"]: row for row in _rows(path)}
    except (OSError, ValueError):
        rows = {}
    known = {(row["layer"], point) for row in rows.values() for point in row["adds"]}
    for seed, name, points in sorted(tally.news):
        adds = [point for point in points if (name, point) not in known]
        if adds and seed not in rows:
            rows[seed] = {"seed": seed, "layer": name, "adds": adds}
    content = {"fingerprint": runs_fingerprint(), "seeds": [rows[seed] for seed in sorted(rows)]}
    write_whole(path, json.dumps(content, indent=1) + "\n")
    return path


def read_corpus(folder: Path) -> list[int]:
    """The seeds of the corpus.

    Raises:
        OSError: when there is none.
        ValueError: when the file is none, or is of runs that another version of the project makes.
    """
    return sorted(row["seed"] for row in _rows(_corpus(folder)))


def _corpus(folder: Path) -> Path:
    return folder / "corpus.json"


def _rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    try:
        content = json.loads(text)
        mark, rows = content["fingerprint"], content["seeds"]
        usable = bool(rows) and all(map(_is_row, rows))
    except (ValueError, KeyError, TypeError, RecursionError):
        mark, rows, usable = "", [], False
    if not usable:
        raise ValueError(f"{path}: no corpus of seeds; write one with kafka-eos check walks --seeds 0..2000")
    if mark != runs_fingerprint():
        raise ValueError(
            f"{path}: its seeds are other runs by now; write it anew with kafka-eos check walks --seeds 0..2000"
        )
    return list(rows)


def _is_row(row: Any) -> bool:
    return (
        type(row["seed"]) is int
        and row["seed"] >= 0
        and isinstance(row["layer"], str)
        and isinstance(row["adds"], list)
    )
