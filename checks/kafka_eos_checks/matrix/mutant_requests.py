"""Mutants against raw requests: ``kafka-eos conform`` notices a served reference that has a mutant's rules."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos.server.cluster import Machines, Settings
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos_checks.conform.mechanisms import MECHANISMS, Mechanism
from kafka_eos_checks.conform.result import story
from kafka_eos_checks.conform.run import Found
from kafka_eos_checks.conform.session import Target, conform, open_session
from kafka_eos_checks.conform.wire import NoAnswer
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.registry import Model
from kafka_eos_checks.mutants.rules import mutated

DIVERGES, CONFORMS, HANGS = "diverges", "conforms", "comes to no end"
TOO_SLOW = "comes to no end, and neither does the unchanged reference"
FAILS = "the server fails"
"""A mutant that makes the server fail does not work, and nobody has told its rule apart from the spec's."""
SECONDS = 3.0  # for any answer
PATIENCE = 40.0  # seconds for the scenarios of a mechanism; the unchanged reference takes a few
VERSIONS = (2, 1)  # of transactions
AS_SERVED = Machines()

# module -> the served machines that have its rules, by their names in Machines and LeaderRules
SERVED: Mapping[str, tuple[str, ...]] = {
    "PartitionLog": ("sequences",),
    "IdempotentProducer": ("sequences",),
    "Consumer": ("partition",),
    "Leader": ("leader",),
    "TransactionCoordinator": ("coordinator",),
    "ConsumeTransformProduce": ("group", "consumer_group"),
}
_OF_LEADERS = ("sequences", "partition", "leader")


def machines_with(mutant: Model) -> Machines | None:
    """The machines of a served cluster with the rules that a mutant replaces; None if the server has none of them."""
    changed = {name: machine for name in SERVED.get(mutant.module, ()) if (machine := _mutated(mutant, name))}
    if not changed:
        return None
    of_leaders: dict[str, Any] = {name: machine for name, machine in changed.items() if name in _OF_LEADERS}
    others: dict[str, Any] = {name: machine for name, machine in changed.items() if name not in _OF_LEADERS}
    return replace(AS_SERVED, leaders=replace(AS_SERVED.leaders, **of_leaders), **others)


def _mutated(mutant: Model, name: str) -> type[Any] | None:
    """A served machine with a mutant's rules; None if it lacks one of the replaced rules."""
    machine: type[Any] = getattr(AS_SERVED.leaders if name in _OF_LEADERS else AS_SERVED, name)
    parts = (machine, *(getattr(machine, part) for part in ("LOG", "LIMITS") if hasattr(machine, part)))
    rules = set(map(snake_case, mutant.overrides))
    if not all(any(hasattr(part, rule) for part in parts) for rule in rules):
        return None
    return mutated(machine, mutant.overrides)


@contextmanager
def _errors() -> Iterator[list[str]]:
    """The errors with which the server fails, which it would log with a traceback; its log is silent."""
    log = logging.getLogger("kafka_eos.server")
    found: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[0]:
            found.append(f"{record.exc_info[0].__name__}: {record.exc_info[1]}")
        return False

    log.addFilter(keep)
    try:
        yield found
    finally:
        log.removeFilter(keep)


class _TooLong(Exception):  # noqa: N818 - what happened
    """The scenarios of a mechanism take longer than :data:`PATIENCE`."""


def _asked(machines: Machines, version: int, mechanism: Mechanism) -> tuple[str, int, str]:
    """The outcome, the number of diverging or unanswered edges, and the first of them as a story.

    A server that gives no answer because it fails has not come to no end. Each wait for an answer ends after
    :data:`SECONDS`, and all of them after :data:`PATIENCE`.
    """
    began = time.monotonic()

    def is_in_time(mechanism: str, left: int, diverged: list[str]) -> None:  # noqa: ARG001 - as conform calls it
        if time.monotonic() - began > PATIENCE:
            raise _TooLong

    settings = Settings(transactions=TransactionSettings(version=version))
    with _errors() as errors, ServedCluster(settings=settings, machines=machines) as cluster:
        session = open_session(Target(bootstrap=cluster.bootstrap_servers, seconds=SECONDS), [mechanism])
        try:
            report = conform(session, session.edges(), is_in_time)
        except (_TooLong, NoAnswer):
            return (FAILS, 0, errors[0]) if errors else (HANGS, 0, "")
        finally:
            session.wire.close()
    differing = [result for result in report.differing() if result.found in {Found.DIVERGES, Found.UNKNOWN}]
    if not differing:
        return CONFORMS, 0, ""
    shown = [result for result in differing if result.found is Found.DIVERGES] or differing
    first = next((result for result in shown if result.scenario), shown[0])
    told = story(first, report.client)
    if first.found is Found.DIVERGES:
        return DIVERGES, len(differing), told
    return (FAILS, len(differing), f"{errors[0]}\n{told}") if errors else (HANGS, len(differing), told)


def find_by_requests(mutant: Model, machines: Machines) -> Verdict:
    """The verdict of the first mechanism, in the first version, with a diverging edge or without an end.

    A server that fails kills nothing. A hang kills the mutant only if the unchanged reference comes to an end on this
    computer, within the same limits.

    Args:
        mutant: a mutant of the registry.
        machines: the machines with its rules.
    """
    began = time.perf_counter()
    found, edges, shown = CONFORMS, 0, ""
    for version, mechanism in product(VERSIONS, MECHANISMS):
        outcome, edges, told = _asked(machines, version, mechanism)
        if outcome == HANGS and _asked(AS_SERVED, version, mechanism)[0] != CONFORMS:
            outcome = TOO_SLOW
        if outcome in {DIVERGES, HANGS}:
            found, shown = f"{outcome}: {mechanism.name}, version {version}", told
            break
        if outcome != CONFORMS:
            found, shown = outcome, told
    return Verdict(
        check="requests-mutant",
        name=mutant.name,
        expected=f"{DIVERGES}, or {HANGS}",
        found=found,
        ok=found not in {CONFORMS, TOO_SLOW, FAILS},
        seconds=time.perf_counter() - began,
        figures={"edges": edges},
        evidence=shown,
        title=mutant.title,
    )
