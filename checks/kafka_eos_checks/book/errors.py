"""The page of the error codes: what each means and what to do, who answers it, and what Kafka's Java producer does.

The sentences for applications are in ``errors.toml``. All else is read from the spec, and the producer's reaction is
that of the machine ``TransactionalProducer``.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.machine import Machine
from kafka_eos.machines.transactional_producer import PRODUCE, REQUESTS, TransactionalProducer
from kafka_eos_checks.book import pages
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.book.sources import Kind

FILE = Path(__file__).with_name("errors.toml")


class MalformedErrors(ValueError):  # noqa: N818 - named for the input
    """A file of error codes that cannot be used; says file, code and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The entry of an error code: its meaning, and what to do."""

    means: str
    do: str


def read_advice(path: Path = FILE) -> dict[str, Advice]:
    """Read the sentences of every error code.

    Raises:
        MalformedErrors: a code of the protocol has none, an entry is no code, or lacks a sentence.
    """
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    codes = {code.name for code in ErrorCode}
    for name in codes ^ found.keys():
        what = "has no entry; add means and do" if name in codes else "is no error code of kafka_eos/errors.py"
        raise MalformedErrors(f"{path.name}: {name} {what}")
    for name, entry in found.items():
        if entry.keys() != {"means", "do"}:
            raise MalformedErrors(f"{path.name}: {name} has {', '.join(entry)}; write means and do")
    return {name: Advice(**entry) for name, entry in found.items()}


def reactions(machine: Machine, error: str) -> Mapping[str, list[str]]:
    """What the Java producer does about an error -> the requests after which it does so."""
    assert isinstance(machine, TransactionalProducer)
    found: dict[str, list[str]] = {}
    for request in (PRODUCE, *REQUESTS):
        if machine.may_answer(request, error):
            found.setdefault(machine.reaction(request, error), []).append(request)
    return found


def errors_page(links: Links) -> Page:
    """The page of all error codes."""
    book = links.book
    advice = read_advice()
    model = book.registry.models["TransactionalProducer"]
    machine = model.machine_class().initial(model.machine_constants())
    answering: dict[str, list[tuple[str, str]]] = {}
    naming: dict[str, list[tuple[str, str]]] = {}
    for module, folder in book.modules.items():
        of_broker = not folder and module != TransactionalProducer.MODULE
        for operator in book.operators(module) if of_broker else ():
            for name in operator.errors:
                if operator.kind is Kind.ACTION:
                    answering.setdefault(name, []).append((module, operator.name))
                elif operator.kind is Kind.RULE and f'"{name}"' in operator.tla.text:
                    naming.setdefault(name, []).append((module, operator.name))
    client = pages.link("TransactionalProducer", pages.address("modules/TransactionalProducer"))
    names = " · ".join(f'<a href="#{code.name}">{code.name}</a>' for code in ErrorCode)
    parts = [
        "An error code is the broker's answer to a request. Find yours, or use the search. Meaning and *What to do* "
        "are for applications and operators. The rest is read from the spec: the rules that answer with the code, the "
        f"actions in which it can happen, and what Kafka's Java producer does, by the machine {client}.",
        pages.raw(f'<p class="names">{names}</p>'),
    ]
    for code in ErrorCode:
        said = advice[code.name]
        facts = [f"<dt>Code</dt><dd>{code.value}</dd>"]
        for label, places in (("Rules that answer it", naming), ("Actions that may", answering)):
            shown = ", ".join(
                pages.link(f"{module}!{name}", pages.of_operator(module, name))
                for module, name in places.get(code.name, ())
            )
            facts += [f"<dt>{label}</dt><dd>{shown}</dd>"] if shown else []
        if code.name in answering or code.name in naming:
            told = "; ".join(
                f"{escape(what)} ({escape(', '.join(requests))})"
                for what, requests in reactions(machine, code.name).items()
            )
            facts += [f"<dt>Java producer</dt><dd>{told}</dd>"] if told else []
        parts += [
            pages.anchor(code.name),
            f"## {pages.prose(code.name)}",
            f"{links.sentence(said.means, escape=str)}\n\n**What to do.** {links.sentence(said.do, escape=str)}",
            pages.raw(f'<dl class="facts">{"".join(facts)}</dl>'),
        ]
    return Page(path="guides/errors", title="I see error X", text="\n\n".join(parts), wide=True)
