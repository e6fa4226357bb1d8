"""A seed draws the same case everywhere and in every version: reports name cases by their seeds, and so do tests.

Whoever changes what is drawn writes new digests here, and looks at the seeds that other tests name.
"""

import random
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from kafka_eos.formats.transaction_log import TOPIC
from kafka_eos_checks.audit.oracle import random_clusters, random_histories
from kafka_eos_checks.audit.oracle.random_declared import DeclaredWorld
from kafka_eos_checks.audit.oracle.random_logs import random_log
from kafka_eos_checks.audit.oracle.random_states import some_kind, write_random_log
from kafka_eos_checks.audit.segments.splits import find_logs

SEEDS = range(40)


def digest(drawn: Iterable[object], folder: Path) -> str:
    """A digest of numbers that were drawn and of the files below a folder."""
    found = sha256(repr([*drawn]).encode())
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        found.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def test_seeds_of_clusters(tmp_path: Path) -> None:
    drawn: list[object] = []
    for seed in SEEDS:
        cluster = random_clusters._Cluster(seed)
        cluster.run()
        cluster.write(tmp_path / f"{seed}")
        logs = find_logs(tmp_path / f"{seed}")
        source = cluster.source(logs)
        drawn += [source.one_moment, source.longest_ms]
        for each in source.directories.values():
            drawn += [each.read_ms, each.stopped, each.checkpoint_ms, sorted(each.high_watermarks.items())]
        for log in logs:
            if log.topic != TOPIC:
                random_clusters.write_beside(log, cluster.rng)
    assert digest(drawn, tmp_path) == "e7a7a9bea9aef209"


def test_seeds_of_histories_and_of_declared_applications(tmp_path: Path) -> None:
    for seed in SEEDS:
        world, declared = random_histories._World(seed), DeclaredWorld(seed)
        world.run()
        world.declare(declared.run())
        world.disturb()
        world.write(tmp_path / f"{seed}")
        declared.write(tmp_path / f"{seed}", world.write_log)
        world.write_history(tmp_path / f"{seed}", world.rng.randrange(len(world.events)))
    assert digest([], tmp_path) == "3cbd0e87f11ed772"


def test_seeds_of_logs(tmp_path: Path) -> None:
    drawn = ([[*map(tuple, batches)], cuts] for batches, cuts in map(random_log, range(200)))
    assert digest(drawn, tmp_path) == "50a43165c684f1a7"


def test_seeds_of_coordinators_logs(tmp_path: Path) -> None:
    for seed in SEEDS:
        rng = random.Random(seed)
        write_random_log(tmp_path / f"{seed}", rng, some_kind(rng))
    assert digest([], tmp_path) == "542173105fdbc1da"
