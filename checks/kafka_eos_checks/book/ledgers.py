"""The pages of the two ledgers: findings in Kafka, and claims about exactly-once semantics."""

from html import escape

from kafka_eos_checks.book import pages
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.book.touches import bullets_of
from kafka_eos_checks.ledger.claims import read_claims
from kafka_eos_checks.models.findings import KafkaFinding, concerned


def findings_page(links: Links) -> Page:
    """The page of the findings in Kafka."""
    found = links.book.sources.findings
    parts = [
        "Problems that checking found in Apache Kafka, each with its evidence and its remedy. "
        "`kafka-eos ledger findings` says how much of the evidence is checked on your machine.",
        pages.table(
            ("Finding", "Harm", "Shown"),
            [
                (f'<a href="#{each.id}">{escape(each.title)}</a>', escape(each.harm), escape(each.shown))
                for each in found
            ],
        ),
    ]
    parts += [_finding(links, each) for each in found]
    return Page(path="findings", title="Findings in Kafka", text="\n\n".join(parts), wide=True)


def _finding(links: Links, finding: KafkaFinding) -> str:
    entries = links.book.entries
    facts = [
        f"<dt>Harm</dt><dd>{escape(finding.harm)}</dd>",
        f"<dt>Shown</dt><dd>{escape(finding.shown)}</dd>",
        f"<dt>Concerns</dt><dd>{escape(concerned(finding))}</dd>",
        f"<dt>Reported</dt><dd>{escape(finding.reported)}</dd>",
    ]
    if finding.models:
        stories = ", ".join(pages.link(name, pages.address(f"stories/{name}")) for name in finding.models)
        facts.append(f"<dt>Step through it</dt><dd>{stories}</dd>")
        rules = dict.fromkeys(
            pages.link(f"{entries[name].module}!{rule}", links.qualified(f"{entries[name].module}!{rule}") or "")
            for name in finding.models
            for rule in entries[name].overrides
        )
        facts += [f"<dt>Rules</dt><dd>{', '.join(rules)}</dd>"] if rules else []
    if finding.mended:
        mended = ", ".join(pages.link(name, pages.of_model(entries[name].module, name)) for name in finding.mended)
        facts.append(f"<dt>Mended in</dt><dd>{mended}</dd>")
    facts.append(
        f"<dt>Reproduce</dt><dd>{bullets_of(f'<code>{escape(call)}</code>' for call in finding.commands())}</dd>"
    )
    return "\n\n".join(
        [
            pages.anchor(finding.id),
            f"## {pages.prose(finding.title)}",
            links.sentence(finding.consequence),
            f"**Cause.** {links.sentence(finding.cause)}",
            f"**Cure.** {links.sentence(finding.cure)}",
            pages.raw(f'<dl class="facts">{"".join(facts)}</dl>'),
        ]
    )


def claims_page(links: Links) -> Page:
    """The page of the claims."""
    book = links.book
    parts = [
        "What introductions say about exactly-once semantics, who says so, and what settles it. *Expected* is "
        "what the project "
        "believes that checking finds; `kafka-eos ledger claims` shows what it found."
    ]
    rows = []
    for claim in read_claims():
        settling = [entry for entry in book.entries.values() if claim.id in entry.claims]
        models = ", ".join(pages.link(each.name, pages.of_model(each.module, each.name)) for each in settling)
        name = f'<span id="{claim.id}">{claim.id}</span>'
        said = escape(claim.text) + f"<details><summary>sources</summary>{escape('; '.join(claim.sources))}</details>"
        rows.append((name, said, escape(claim.expect), models))
    parts.append(pages.table(("Claim", "What is said", "Expected", "Settled by"), rows))
    return Page(path="claims", title="Claims", text="\n\n".join(parts), wide=True)
