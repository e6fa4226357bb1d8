"""A weaker property is written in the place of the property, and a search is made again after any change."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.guards import Conjunct
from kafka_eos_checks.matrix.conjuncts.properties import PropertySearch, Version, _tree
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.mutants import rules
from kafka_eos_checks.tla.parser import parse_expression
from kafka_eos_checks.tla.result_cache import ResultCache
from kafka_eos_checks.tla.sany import Span


@pytest.mark.parametrize("indent", ["", " ", "  "])
@pytest.mark.parametrize(
    ("body", "part", "value"),
    [("a < b", "a < b", "a <= b"), ("a < b /\\ c > d", "c > d", "c >= d"), ("x + yy", "x + yy", "x")],
)
def test_the_body_of_a_property_ends_where_its_longer_part_ends(indent: str, body: str, part: str, value: str) -> None:
    line = f"{indent}P == {body}"
    text = f"Q == a\n{line}\nR == b\n"
    begin, column = line.index(body) + 1, line.index(part) + 1
    span = Span("M", 2, column, 2, column + len(part) - 1)
    change = Conjunct(operator="M!P", change=f"{part} -> {value}", span=span, value=value)
    assert _tree(text, Span("M", 2, begin, 2, len(line)), change) == parse_expression(body.replace(part, value), "")


def allows_nothing(state: object, client: str, amount: int) -> str:
    return "STALE"


def allows_all(state: object, client: str, amount: int) -> str:
    return "NONE"


@pytest.fixture
def key(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The fingerprint of a search of the mutant NoLimit with something changed."""
    monkeypatch.setattr(rules, "no_limit", allows_nothing, raising=False)
    mutant = registry.get("NoLimit")

    def key(changed: Callable[[Model], Model] = lambda model: model, versions: tuple[Version, ...] = ()) -> str:
        return PropertySearch(cache=ResultCache(tmp_path))._key(changed(mutant), versions)

    return key


def test_a_search_is_made_again_if_something_changes_that_it_depends_on(
    key: Callable[..., str], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = key()
    assert key() == key(lambda model: replace(model, title="other words", claims=("C1",))) == first
    version = Version(name="P", change=None, tree=None, place="")
    others = [
        key(lambda model: replace(model, constants={**model.constants, "Limit": "4"})),
        key(lambda model: replace(model, bounds="")),
        key(lambda model: replace(model, invariants=("Grows",))),
        key(lambda model: replace(model, specification="Fair")),
        key(versions=(version,)),
        key(versions=(replace(version, name="Q"),)),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(rules, "no_limit", allows_all)
        others.append(key())
    for name in ("Counter.tla", "mutants/CounterMutants.tla"):
        file = registry.folder.parent / name
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace('"STALE"', '"OLD"'), encoding="utf-8")
        others.append(key())
        file.write_text(text, encoding="utf-8")
    assert len({first, *others}) == 1 + len(others)
    assert key() == first
