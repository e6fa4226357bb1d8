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
def _silent() -> Iterator[None]:
    """Silence the server's log: a mutant may make the server fail, which it would log with a traceback."""
    log = logging.getLogger("kafka_eos.server")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


class _TooLong(Exception):  # noqa: N818 - what happened
    """The scenarios of a mechanism take longer than :data:`PATIENCE`."""


def _asked(machines: Machines, version: int, mechanism: Mechanism) -> tuple[str, int, str]:
    """The outcome, the number of diverging or unanswered edges, and the first of them as a story.

    Each wait for an answer ends after :data:`SECONDS`, and all of them after :data:`PATIENCE`.
    """
    began = time.monotonic()

    def is_in_time(mechanism: str, left: int, diverged: list[str]) -> None:  # noqa: ARG001 - as conform calls it
        if time.monotonic() - began > PATIENCE:
            raise _TooLong

    settings = Settings(transactions=TransactionSettings(version=version))
    with _silent(), ServedCluster(settings=settings, machines=machines) as cluster:
        session = open_session(Target(bootstrap=cluster.bootstrap_servers, seconds=SECONDS), [mechanism])
        try:
            report = conform(session, session.edges(), is_in_time)
        except (_TooLong, NoAnswer):
            return HANGS, 0, ""
        finally:
            session.wire.close()
    differing = [result for result in report.differing() if result.found in {Found.DIVERGES, Found.UNKNOWN}]
    if not differing:
        return CONFORMS, 0, ""
    first = next((result for result in differing if result.scenario), differing[0])
    return DIVERGES if first.found is Found.DIVERGES else HANGS, len(differing), story(first, report.client)


def find_by_requests(mutant: Model, machines: Machines) -> Verdict:
    """The verdict of the first mechanism, in the first version, with a diverging edge or without an end.

    A hang kills the mutant only if the unchanged reference comes to an end on this computer, within the same limits.

    Args:
        mutant: a mutant of the registry.
        machines: the machines with its rules.
    """
    began = time.perf_counter()
    found, edges, told = CONFORMS, 0, ""
    for version, mechanism in product(VERSIONS, MECHANISMS):
        outcome, edges, told = _asked(machines, version, mechanism)
        if outcome == HANGS and _asked(AS_SERVED, version, mechanism)[0] != CONFORMS:
            found = TOO_SLOW
        elif outcome != CONFORMS:
            found = f"{outcome}: {mechanism.name}, version {version}"
            break
    return Verdict(
        check="requests-mutant",
        name=mutant.name,
        expected=f"{DIVERGES}, or {HANGS}",
        found=found,
        ok=found not in {CONFORMS, TOO_SLOW},
        seconds=time.perf_counter() - began,
        figures={"edges": edges},
        evidence=told,
        title=mutant.title,
    )
