import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.ledger.claims import Claim, MalformedClaims, Standing, ledger, read_claims

CLAIM = '[documents]\npaper="Title (2021)"\n[[claim]]\nid="C1"\ntext="t"\nsources=["{source}"]\nexpect="holds"\n'


def verdict(name: str, ok: bool, *claims: str) -> Verdict:
    return Verdict(
        check="model", name=name, expected="holds", found="holds" if ok else "violates P", ok=ok, claims=claims
    )


def claim(name: str) -> Claim:
    return Claim(id=name, text="t", sources=(), expect="holds")


def test_the_claims_of_the_project_are_complete_sentences_with_sources() -> None:
    claims = read_claims()
    assert [c.id for c in claims[:13]] == [f"C{number:02}" for number in range(1, 14)]
    for c in claims:
        assert c.text.endswith("."), c.id
        assert c.sources, c.id
        assert all(re.fullmatch(r"[A-Z].+ \(.+\).*, section “.+”", source) for source in c.sources), c.id
        assert c.expect.startswith(("holds", "refuted", "measured")), c.id
        assert "\n" not in c.text + c.expect, c.id


def test_a_source_is_read_as_title_and_section(tmp_path: Path) -> None:
    file = tmp_path / "claims.toml"
    file.write_text(CLAIM.format(source="paper: Two: Three"), encoding="utf-8")
    assert read_claims(file)[0].sources == ("Title (2021), section “Two: Three”",)


def test_the_state_of_a_claim_follows_from_its_verdicts() -> None:
    verdicts = [verdict("a", True, "C1", "C2"), verdict("b", False, "C2"), verdict("c", True)]
    entries = ledger([claim("C1"), claim("C2"), claim("C3")], verdicts)
    assert [(entry.claim.id, entry.standing, entry.verdicts) for entry in entries] == [
        ("C1", Standing.SETTLED, (0,)),
        ("C2", Standing.DIFFERS, (0, 1)),
        ("C3", Standing.OPEN, ()),
    ]


def test_a_verdict_that_could_not_judge_everything_or_anything_settles_no_claim() -> None:
    judged = verdict("a", True, "C1", "C2")
    partly = replace(verdict("b", True, "C2", "C3"), unjudged="why", unknown=1)
    nothing = replace(verdict("c", True, "C1", "C4"), unjudged="nothing is there")
    entries = ledger([claim(f"C{number}") for number in range(1, 5)], [judged, partly, nothing])
    assert [entry.standing for entry in entries] == [Standing.SETTLED, *[Standing.OPEN] * 3]


def test_an_id_that_only_a_verdict_names_has_a_row_of_its_own() -> None:
    (_, stray) = ledger([claim("C1")], [verdict("a", True, "C9")])
    assert (stray.claim.id, stray.standing, stray.verdicts) == ("C9", Standing.UNKNOWN, (0,))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("claim = ", "no TOML"),
        ('[[claim]]\nid = "C1"', "expected id, text, sources and expect, found id"),
        ('[[claim]]\nid="C1"\ntext="t"\nsources=[]\nexpect="holds"\nverdict="holds"', "1: expected"),
        ('[[claim]]\nid="C1"\ntext="t"\nsources=[]\nexpect="holds"\n' * 2, "2: the id C1 is taken"),
        (CLAIM.format(source="book: one"), "1: the source 'book: one' is no 'document: section'; documents are paper"),
        (CLAIM.format(source="paper"), "1: the source 'paper' is no 'document: section'"),
    ],
)
def test_a_claims_file_that_cannot_be_used_says_where(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "claims.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(MalformedClaims, match=rf"claims\.toml: .*{reason}"):
        read_claims(file)
