"""The page of the error codes: what each means and what to do, who answers it, and what Kafka's Java producer does.

The sentences for applications are in ``errors.toml``. Everything else is read from the spec; the producer's reaction
is that of the machine ``TransactionalProducer``.
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
    """The file of error codes cannot be used; the message names file, code and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The entry of an error code: its number, its meaning, and what to do."""

    code: int
    means: str
    do: str


def read_advice(path: Path = FILE) -> dict[str, Advice]:
    """Read the sentences of every error code, in the order of their numbers.

    Raises:
        MalformedErrors: a code of the reference has none, or an entry lacks a sentence or its number.
    """
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    known = {code.name: code.value for code in ErrorCode}
    for name in known.keys() - found.keys():
        raise MalformedErrors(f"{path.name}: {name} has no entry; add means and do")
    for name, entry in found.items():
        wanted = {"means", "do"} if name in known else {"code", "means", "do"}
        if entry.keys() != wanted:
            raise MalformedErrors(f"{path.name}: {name} has {', '.join(entry)}; write {' and '.join(sorted(wanted))}")
    advice = [(name, Advice(**{"code": known.get(name, 0), **entry})) for name, entry in found.items()]
    return dict(sorted(advice, key=lambda each: each[1].code))


def reactions(machine: Machine, error: str) -> Mapping[str, list[str]]:
    """Reaction of the Java producer to an error -> the requests after which it reacts so."""
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
    names = " · ".join(f'<a href="#{name}">{name}</a>' for name in sorted(advice))
    parts = [
        "An error code is the broker's answer to a request. These are all of Kafka's. Find yours, or use the search. "
        "Meaning and *What to do* are for applications and operators. The rest is read from the spec: the rules that "
        "answer with the code, the actions in which it can happen, and what Kafka's Java producer does, by the "
        f"machine {client}.",
        pages.raw(f'<p class="names">{names}</p>'),
    ]
    for name, said in advice.items():
        facts = [f"<dt>Code</dt><dd>{said.code}</dd>"]
        for label, places in (("Rules that answer it", naming), ("Actions that may", answering)):
            shown = ", ".join(
                pages.link(f"{module}!{operator}", pages.of_operator(module, operator))
                for module, operator in places.get(name, ())
            )
            facts += [f"<dt>{label}</dt><dd>{shown}</dd>"] if shown else []
        if name in answering or name in naming:
            told = "; ".join(
                f"{escape(what)} ({escape(', '.join(requests))})" for what, requests in reactions(machine, name).items()
            )
            facts += [f"<dt>Java producer</dt><dd>{told}</dd>"] if told else []
        elif name != ErrorCode.NONE.name:
            facts.append("<dt>The spec</dt><dd>no rule answers it</dd>")
        parts += [
            pages.anchor(name),
            f"## {pages.prose(name)}",
            f"{links.sentence(said.means, escape=str)}\n\n**What to do.** {links.sentence(said.do, escape=str)}",
            pages.raw(f'<dl class="facts">{"".join(facts)}</dl>'),
        ]
    return Page(path="guides/errors", title="I see error X", text="\n\n".join(parts), wide=True)
