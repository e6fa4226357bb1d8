"""Boundaries in time, offset and version: a mutant of the server at each, found by the run of a fixed seed."""

import inspect
import textwrap
from types import ModuleType
from typing import Any

import pytest

from kafka_eos.server.handlers import logs, request, transactions
from kafka_eos.server.partitions import Leader
from kafka_eos.server.transactions import Coordinators
from kafka_eos_checks.walks.served_invariants import unknown_error
from kafka_eos_checks.walks.whole import run_whole


def plant(monkeypatch: pytest.MonkeyPatch, owner: type | ModuleType, name: str, right: str, wrong: str) -> None:
    """Replace a part of a function that stands in it once."""
    function = getattr(owner, name)
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(right) == 1, text
    places: dict[str, Any] = {}
    code = compile(f"from __future__ import annotations\n{text.replace(right, wrong)}", name, "exec")
    exec(code, vars(inspect.getmodule(function)), places)  # noqa: S102 - the function itself, with one part changed
    monkeypatch.setattr(owner, name, places[name])


@pytest.mark.parametrize(
    ("seed", "owner", "name", "right", "wrong", "found"),
    [
        # the aborted transactions of a fetch that begins inside one of them
        (2, Leader, "aborted_between", "entry.last_offset", "entry.first_offset", "of a transaction that is aborted"),
        # a timeout in its last millisecond, and in the one after it
        (15, Coordinators, "time_out", "timeout_ms < now", "timeout_ms <= now", "times out 1 ms before its timeout"),
        (10, Coordinators, "time_out", "timeout_ms < now", "timeout_ms + 1 < now", "open 1 ms after its timeout"),
        # the start of a transaction: not its last partition's, also after a restart, as its timeout
        (
            10,
            Coordinators,
            "_write",
            "begins and transactional.state in AT_REST",
            "begins",
            "ms after its timeout",
        ),
        (
            32,
            Coordinators,
            "_loaded",
            "value.transaction_start_",
            "value.transaction_last_update_",
            "after its timeout",
        ),
        (0, Coordinators, "_loaded", "value.transaction_timeout_ms", "0", "before its timeout has passed"),
        # timestamps of records next to the last stable offset
        (0, logs, "_offset_at", "if committed else leader.high", "if not committed else leader.high", "is found at"),
        (0, logs, "_offset_at", "if committed else leader.high", "if True else leader.high", "found at (-1, -1)"),
        # errors and the request versions that know them
        (4, transactions, "_add_partitions", "request.version < 2", "request.version < 1", "it does not know"),
        (8, request, "_told_to_producer", "error is ErrorCode.PRODUCER_FENCED", "False", "it does not know"),
    ],
)
def test_a_mutant_at_a_boundary_is_found(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    owner: type | ModuleType,
    name: str,
    right: str,
    wrong: str,
    found: str,
) -> None:
    assert not run_whole(seed).wrong
    plant(monkeypatch, owner, name, right, wrong)
    assert found in run_whole(seed).wrong


def test_restarts_fall_into_open_transactions() -> None:
    outcomes = [run_whole(seed) for seed in range(4)]
    assert any(outcome.faults["restart"] and outcome.into_transactions for outcome in outcomes)
    assert all(outcome.into_transactions <= outcome.faults["restart"] for outcome in outcomes)


def test_an_error_is_known_from_its_version_on() -> None:
    answer = {"Topics": [{"Partitions": [{"ErrorCode": 0}, {"PartitionErrorCode": 90}]}]}
    assert "AddPartitionsToTxn of version 1 is answered with PRODUCER_FENCED" in unknown_error(
        "AddPartitionsToTxn", 1, answer
    )
    assert unknown_error("AddPartitionsToTxn", 2, answer) == ""
