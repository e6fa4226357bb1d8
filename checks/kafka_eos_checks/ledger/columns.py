"""Columns: how each model, proof, contract, layer of walks and rule of the audit is judged by each release of Kafka.

Nothing is left out in silence: what is not judged by a release says why. The verdicts themselves are those of the
commands that check; here is only which of them there have to be.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_eos_checks.audit.rules.rule_book import RULE_NAMES
from kafka_eos_checks.contracts.command import rules_of_release
from kafka_eos_checks.contracts.conditions import CONTRACTS
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.models.releases import Column, Releases, columns
from kafka_eos_checks.proofs.command import proofs
from kafka_eos_checks.walks.layers import UNWALKED, layers, layers_of_release


class Judged(StrEnum):
    """How something is judged by a release."""

    OWN = "by the rules of the release"
    SHARED = "by the repaired rules, which are those of the release"
    OUTSIDE = "not of the release"
    UNJUDGED = "not judged"
    MISSING = "nobody says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """How something is judged by a release.

    Attributes:
        kind: ``model``, ``proof``, ``contract``, ``walk`` or ``audit``.
        name: the name of the model, proof, contract, layer or rule; of the module if no layer of it is walked.
        release: the release of Kafka.
        judged: how the release judges it.
        reason: why it is not judged, or not of the release; "" otherwise.
    """

    kind: str
    name: str
    release: str
    judged: Judged
    reason: str = ""


def statements(registry: Registry, releases: Releases) -> Iterator[Statement]:
    """A statement on everything that is judged, for each release."""
    for release in releases.releases:
        for column in columns(registry.models.values(), [release], releases):
            judged, reason = _of_model(column, releases)
            yield Statement(kind="model", name=column.model.name, release=release, judged=judged, reason=reason)
        for proof in proofs(()):
            rules = releases.of_module(proof.module, release)
            judged = Judged.OWN if rules else Judged.SHARED
            yield Statement(kind="proof", name=proof.name, release=release, judged=judged)
        for contract in (each for own in CONTRACTS.values() for each in own):
            rules = rules_of_release(contract, releases, release)
            judged = Judged.OWN if rules else Judged.SHARED
            yield Statement(kind="contract", name=contract.promise.__name__, release=release, judged=judged)
        yield from _of_walks(registry, releases, release)
        for rule in RULE_NAMES:  # matrix.release_replays gives a verdict on each
            yield Statement(kind="audit", name=rule, release=release, judged=Judged.OWN)


def _of_model(column: Column, releases: Releases) -> tuple[Judged, str]:
    if column.outside:
        return Judged.OUTSIDE, column.outside
    if not column.rules:
        return Judged.SHARED, ""
    if column.expected(releases) is not None or column.model.expect.violates:
        return Judged.OWN, ""
    if column.model.tier == "deep":
        return Judged.UNJUDGED, "it is of the deep tier: TLC takes long, and nobody has run it by these rules"
    call = f"kafka-eos check models {column.model.name} --kafka {column.release} --update"
    return Judged.MISSING, f'the registry has no shipped."{column.release}"; `{call}` writes it'


def _of_walks(registry: Registry, releases: Releases, release: str) -> Iterator[Statement]:
    walked = layers(registry)
    judged_layers = {layer.name for layer in layers_of_release(registry, release)}
    for layer in walked:
        [column] = columns([layer.model], [release], releases)
        judged, reason = Judged.SHARED, ""
        if column.outside:
            judged, reason = Judged.OUTSIDE, column.outside
        elif column.name in judged_layers:
            judged = Judged.OWN
        elif column.rules:
            judged, reason = Judged.UNJUDGED, "TLC shows that the release violates every property that it judges"
        yield Statement(kind="walk", name=layer.name, release=release, judged=judged, reason=reason)
    modules = {model.module for model in registry.models.values()} - {layer.model.module for layer in walked}
    for module in sorted(modules):
        reason = UNWALKED.get(module, "")
        judged = Judged.UNJUDGED if reason else Judged.MISSING
        yield Statement(kind="walk", name=module, release=release, judged=judged, reason=reason)


def unjudged(found: Sequence[Statement]) -> list[Statement]:
    """The statements on what is not judged, although it could be."""
    return [each for each in found if each.judged in {Judged.UNJUDGED, Judged.MISSING}]
