"""The rules over transactions find the same by steps as by the readable rules, on both engines."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.engines.spark import SparkEngine
from kafka_eos_checks.audit.kernels.coordinators import matching, missing, slices
from kafka_eos_checks.audit.kernels.logs import beside, summary, transactions
from kafka_eos_checks.audit.kernels.logs.beside import NEVER, held_in
from kafka_eos_checks.audit.oracle import random_clusters
from kafka_eos_checks.audit.oracle.random_clusters import difference, judge
from kafka_eos_checks.audit.plan import beside_stages, slice_stages
from kafka_eos_checks.audit.rules.beside import ABORTED_INDEX, SNAPSHOT, last_batches
from kafka_eos_checks.audit.rules.transactions.names import TRANSACTION_RULES
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.kit.verdict import read_verdicts

from ..conftest import in_both


@in_both("count", 40, 160)
def test_random_clusters_are_judged_alike_by_steps_and_by_the_readable_rules(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {True: [0, 0], False: [0, 0]}
    prove = matching._Columns.prove

    def counted(self: Any, judged: Any) -> Any:
        unproved = prove(self, judged)
        counts[is_clean][0] += len(unproved)
        counts[is_clean][1] += int(unproved.sum())
        return unproved

    monkeypatch.setattr(matching._Columns, "prove", counted)
    said: set[str] = set()
    for seed in range(count):  # some are cut into slices, and proved otherwise
        is_clean = random_clusters._Cluster(seed).clean
        differs, kinds = difference(seed)
        assert not differs, f"seed {seed}: {differs}"
        said |= {name.partition(",")[0] for name in kinds}
    assert {*TRANSACTION_RULES, ABORTED_INDEX, SNAPSHOT} <= said, "each rule has something to say of some cluster"
    (clean, unproved), (others, left) = counts[True], counts[False]
    assert clean > count
    assert unproved < clean / 2, "most markers of clusters in which nothing goes wrong are proved"
    assert left > others / 4, "and where something does, the readable rules judge"


def test_without_a_cluster_nothing_is_judged() -> None:
    assert judge(0).found == "no cluster"
    assert not judge(0).ok


def read_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a split have several chunks, of a batch or two."""
    monkeypatch.setattr(headers, "BLOCK_BYTES", 200)
    monkeypatch.setattr(summary, "CHUNK_BATCHES", 1)


NOTICING = 0, 1, 4, 12, 40, 106, 226, 383, 516, 554, 677, 738  # seeds that notice what is left out below


@in_both("seeds", NOTICING, range(1000, 1080))
def test_splits_of_several_chunks_are_judged_alike(seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_small_chunks(monkeypatch)
    counts = []

    def counted(chunks: Any, *told: Any) -> Any:
        counts.append(len(chunks))
        return beside.tails(chunks, *told)

    monkeypatch.setattr(beside_stages, "tails", counted)
    assert {seed: differs for seed in seeds if (differs := difference(seed)[0])} == {}
    assert max(counts) > 4


@pytest.mark.parametrize(
    ("module", "name", "broken", "first"),  # clusters before the first one do not notice it
    [
        (matching._Columns, "_no_older_coordinator", lambda self: self.log >= 0, 12),
        (matching._Columns, "_not_fenced", lambda self: self.log >= 0, 106),
        (matching._Columns, "_both_decisions", lambda _, left: left & False, 383),
        (matching._Columns, "_in_order", lambda self, _: (self.log >= 0, self.log < 0), 0),
        (missing, "owes_from", lambda *_: inf, 226),
        (missing, "FIRST_LEADER", ANY, 40),
        (slice_stages, "_have_a_way", lambda *_: True, 554),
        (slice_stages, "both_decisions", lambda _: set(), 677),
        (slices, "_due", lambda *told, due=slices._due: due(*told)._replace(is_plain=True), 738),
        (
            slices,
            "joined",
            lambda one, two, join=slices.joined: max(join(one, two), two, key=lambda each: each.in_order),
            516,
        ),
        (transactions, "_around", lambda *_: (0, transactions.NO_TIME), 4),
        (beside_stages, "last_batches", lambda headers, offsets, ends: last_batches(headers, offsets, ends)[1:], 1),
        (beside, "_outer", lambda steps, _: np.flatnonzero(steps["is_marker"]), 1),
        (beside, "_latest", lambda parts: parts[-1], 1),
        (
            beside_stages,
            "held_in",
            lambda *told: ((n, held._replace(first_open=NEVER)) for n, held in held_in(*told)),
            0,
        ),
        (
            beside_stages,
            "held_in",
            lambda *told: ((n, held._replace(ended=held.ended[1:])) for n, held in held_in(*told)),
            0,
        ),
    ],
)
def test_a_proof_that_leaves_something_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, first: int
) -> None:
    monkeypatch.setattr(module, name, broken)
    read_in_small_chunks(monkeypatch)
    assert any(difference(seed)[0] for seed in range(first, first + 400))


def test_the_command_judges_random_clusters_from_a_first_seed(tmp_path: Path) -> None:
    assert cli.main(["lab", "fuzz", "--clusters", "5", "--first", "7", "--json", str(tmp_path / "v.json")]) == 0
    [verdict] = read_verdicts(tmp_path / "v.json")
    assert (verdict.figures["seed"], verdict.figures["clusters"]) == ("7", 5)
    assert cli.main(["lab", "fuzz", "--clusters", "0"]) == 2


def test_the_oracle_judges_transactions_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = random_clusters._Cluster(0)
    cluster.run()
    cluster.write(tmp_path)
    assert run([tmp_path], oracle=1.0, one_moment=True).verdicts[-1].ok
    monkeypatch.setattr(matching._Columns, "_in_order", lambda self, _: (self.log >= 0, self.log < 0))
    oracle = run([tmp_path], oracle=1.0, one_moment=True).verdicts[-1]
    assert not oracle.ok
    assert "transactions: only the readable rules" in oracle.evidence


@pytest.mark.spark
def test_spark_judges_random_clusters_as_the_readable_rules_do(spark: Any) -> None:
    with SparkEngine(spark) as engine:
        for seed in (3, 222):
            assert not difference(seed, engine)[0]
