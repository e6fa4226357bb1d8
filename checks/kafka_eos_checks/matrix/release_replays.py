"""Rules of the audit by release: which of them find something although nobody but Kafka has done anything wrong.

The simulator runs the machines of the reference with all rules of a release at once, and the audit judges the
recordings, as it judges the logs of a real cluster. What a rule finds there is the release's own doing: the findings of
the ledger whose rules show it alone are its causes. The repaired rules are simulated as well, and nothing may be found.

What has to be found is derived from the registry: a mutant whose rules are all of the release names the rule of the
audit that finds it (``replay``). What may be found besides are the rules that the ledger names for the findings behind
the release's rules: one cause may show in several.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

from kafka_eos_checks.audit.audit import audit
from kafka_eos_checks.audit.rules.rule_book import RULE_NAMES
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.kit.verdict import Standing, Verdict
from kafka_eos_checks.ledger.properties import AUDIT_CHECK, FINDS_NOTHING, REPAIRED, finds
from kafka_eos_checks.matrix.mutant_replays import (
    BUSY,
    ELECTING,
    EXPIRING,
    LEADERLESS,
    LOADING,
    ONCE,
    RULES,
    SLOW,
    TRANSACTING,
    AnyPlan,
    write_simulation,
)
from kafka_eos_checks.models.findings import read_findings
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.simulate.applications import REFERENCE, ApplicationPlan
from kafka_eos_checks.simulate.command import Plan
from kafka_eos_checks.simulate.transactions import TransactionsPlan

SEEDS = range(5)  # of each setting
ENTRY = "RulesOfRelease"  # the name under which the simulator finds the rules that are tried
# machine -> a model of it, whose constants a run takes over
MODELS: Mapping[str, str] = {
    "IdempotentProducer": "Snapshots",
    "Transactions": "TransactionsVersion1",
    "ConsumeTransformProduce": REFERENCE,
}


@dataclass(slots=True, kw_only=True)
class _Heard:
    """The verdicts of the audit on the recordings of some simulations.

    Attributes:
        judged: rule -> the number of recordings with something for it to judge.
        fired: rule -> the first simulation in whose recording it finds something.
    """

    judged: Counter[str] = field(default_factory=Counter)
    fired: dict[str, str] = field(default_factory=dict)


def plans(module: str, absent: Mapping[str, str]) -> Iterator[AnyPlan]:
    """The simulations of a machine, without the values of constants that a release does not have."""
    versions = [version for version in (1, 2) if str(version) != absent.get("Versions")]
    for seed in SEEDS:
        if module == "IdempotentProducer":
            for settings in (BUSY, EXPIRING, LOADING):
                yield Plan(seed=seed, mutant=ENTRY, **settings)
        elif module == "Transactions":
            for version in versions:
                for settings in (TRANSACTING, SLOW, ONCE, ELECTING, LEADERLESS):
                    yield TransactionsPlan(seed=seed, mutant=ENTRY, versions=(version,), **settings)
        else:
            yield ApplicationPlan(seed=seed, mutant=ENTRY)


def _heard(registry: Registry, module: str, rules: Mapping[str, str], tried: Sequence[AnyPlan]) -> _Heard:
    """Simulate a machine with some rules, and audit what it wrote."""
    entry = replace(registry.models[MODELS[module]], overrides=dict(rules))
    known = copy(registry)
    known.mutants = {**registry.mutants, ENTRY: entry}
    heard = _Heard()
    with tempfile.TemporaryDirectory(prefix="kafka-eos-release-") as folder:
        for number, plan in enumerate(tried):
            recording = Path(folder) / str(number)
            write_simulation(plan, recording, known)
            for verdict in (each for each in audit([recording]) if each.name in RULES):
                if verdict.standing is not Standing.NOTHING:
                    heard.judged[verdict.name] += 1
                if not verdict.ok:
                    heard.fired.setdefault(verdict.name, f"{type(plan).__name__} with seed {plan.seed}")
    return heard


def expected_rules(registry: Registry, releases: Releases, release: str) -> set[str]:
    """The rules of the audit that find mutants whose rules are all of a release, by what the registry says."""
    found = set()
    for mutant in registry.mutants.values():
        own = {rule.key: rule.by_release.get(release) for rule in releases.of_scope(mutant.module)}
        base = registry.models[mutant.model]
        is_shipped = mutant.constants == base.constants and bool(mutant.overrides)
        if mutant.replay and is_shipped and all(own.get(key) == other for key, other in mutant.overrides.items()):
            found.add(mutant.replay)
    return found


def known_rules(releases: Releases, release: str) -> set[str]:
    """The rules of the audit that the ledger names for the findings behind a release's rules."""
    ids = {rule.finding for rule in releases.rules if release in rule.by_release}
    return {rule for finding in read_findings() if finding.id in ids for rule in finding.rules}


def check(registry: Registry) -> Iterator[Verdict]:
    """A verdict on each rule of the audit by the repaired rules and by those of each release."""
    releases = Releases(registry.folder.parent)
    yield from _of_release(registry, releases, REPAIRED)
    done: dict[str, list[Verdict]] = {}
    for release in releases.releases:
        names = {releases.stated(module, release) for module in MODELS}
        own = names.pop() if len(names) == 1 else release
        if own not in done:
            done[own] = list(_of_release(registry, releases, own))
        for verdict in done[own]:
            yield replace(verdict, name=verdict.name.replace(f"Kafka {own}", f"Kafka {release}"))


def _of_release(registry: Registry, releases: Releases, release: str) -> Iterator[Verdict]:
    name = release if release == REPAIRED else f"Kafka {release}"
    needed = set() if release == REPAIRED else expected_rules(registry, releases, release)
    allowed = set() if release == REPAIRED else known_rules(releases, release)
    began = monotonic()
    judged: Counter[str] = Counter()
    fired: dict[str, str] = {}
    causes: dict[str, list[str]] = {}
    for module in MODELS:
        progress_console.print(f"simulating {module} by the rules of {name}")
        rules = {} if release == REPAIRED else releases.of_module(module, release)
        tried = list(plans(module, {} if release == REPAIRED else releases.get(release).absent))
        heard = _heard(registry, module, rules, tried)
        judged.update(heard.judged)
        fired = {**heard.fired, **fired}
        for finding, behind in _by_finding(releases, module, rules).items() if heard.fired else ():
            alone = _heard(registry, module, behind, tried)
            for rule in alone.fired:
                causes.setdefault(rule, []).append(finding)
    seconds = monotonic() - began
    for rule in RULE_NAMES:
        found = finds(causes.get(rule, ())) if rule in fired else FINDS_NOTHING
        expected = rule in needed or (rule in allowed and rule in fired)
        figures: dict[str, Any] = {"recordings": judged[rule]}
        yield Verdict(
            check=AUDIT_CHECK,
            name=f"{rule}, {name}",
            expected="finds something" if expected else FINDS_NOTHING,
            found=found,
            ok=(rule in fired) == expected and (rule not in fired or bool(causes.get(rule))),
            unjudged="" if rule in judged else "no simulation has anything for it to judge",
            seconds=seconds / len(RULE_NAMES),
            figures=figures | ({"findings": ", ".join(causes[rule])} if rule in causes else {}),
            evidence=f"first in {fired[rule]}" if rule in fired else "",
        )


def _by_finding(releases: Releases, module: str, rules: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The rules of a release by the finding that they cause."""
    found: dict[str, dict[str, str]] = {}
    for rule in releases.of_scope(module):
        if rule.finding and rule.key in rules:
            found.setdefault(rule.finding, {})[rule.key] = rules[rule.key]
    return found
