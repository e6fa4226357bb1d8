"""The table of commands: a door for each kind of reader, and behind each door its commands and groups of commands.

A new command is one entry here: its name, the module that has ``add_parser(subparsers, help_line)``, and its line in
the help. The module adds a parser of that name and sets ``run``, a function from the parsed arguments to the exit code.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """A command: the module that has its parser, and its line in the help."""

    module: str
    line: str


class Group(NamedTuple):
    """Commands that share a first word.

    Attributes:
        line: its line in the help of the level above.
        commands: by name.
        examples: calls that stand at the end of the group's help.
        alone: what the first word does without a second one; None when that shows the help.
    """

    line: str
    commands: dict[str, Command]
    examples: tuple[str, ...]
    alone: Command | None = None


class Door(NamedTuple):
    """The commands for one kind of reader.

    Attributes:
        reader: who comes here, in the reader's words.
        line: what is behind the door.
        commands: by name.
        example: a call to start with.
    """

    reader: str
    line: str
    commands: dict[str, Command | Group]
    example: str


_CHECK = Group(
    "check the specs, the reference and the checks themselves; without a command: something of each floor",
    {
        "all": Command(
            "kafka_eos_checks.cli.verify", "every check of the small models, and the audit of the recordings"
        ),
        "models": Command(
            "kafka_eos_checks.graphs.models_command", "TLA+ models with TLC, known failures and mutants included"
        ),
        "graphs": Command(
            "kafka_eos_checks.graphs.command", "the reference's state graphs against TLC's, with refusals"
        ),
        "behaviours": Command(
            "kafka_eos_checks.graphs.behaviours", "a model's graph and behaviours as JSON, to drive an implementation"
        ),
        "traces": Command("kafka_eos_checks.traces.command", "recorded and simulated runs against the spec"),
        "proofs": Command("kafka_eos_checks.proofs.command", "invariants of the reference without bounds, with z3"),
        "contracts": Command(
            "kafka_eos_checks.contracts.command", "contracts of functions, which CrossHair tries to break"
        ),
        "mutants": Command(
            "kafka_eos_checks.matrix.mutant_matrix", "mutants of every rule against every method, as a matrix"
        ),
        "conjuncts": Command(
            "kafka_eos_checks.matrix.conjuncts.command",
            "every conjunct of every guard removed in turn, in spec and reference, and every property made weaker",
        ),
        "code": Command("kafka_eos_checks.matrix.code_command", "a sample of changes to the code, against its tests"),
        "impact": Command("kafka_eos_checks.matrix.impact", "every place that a change to a rule of the spec touches"),
        "kafka-tests": Command(
            "kafka_eos_checks.conform.kafka_tests_command",
            "Kafka's own tests, on the server and on Kafka 4.3",
        ),
        "broker-mutants": Command(
            "kafka_eos_checks.conform.broker_mutants_command", "Kafka's own broker with a rule changed, against conform"
        ),
        "walks": Command(
            "kafka_eos_checks.walks.command", "random walks over machines and served clusters under swarms of faults"
        ),
    },
    (
        "kafka-eos check                              what `make` runs",
        "kafka-eos check all                          what `make check` runs",
        "kafka-eos check models LateEndIsNotAtomic    a known failure, told step by step",
        "kafka-eos check graphs PartitionLog",
        "kafka-eos check proofs append --queries",
    ),
    alone=Command("kafka_eos_checks.cli.quick", "something of each floor, in minutes"),
)
_LAB = Group(
    "make data and measure: record brokers, generate logs, fuzz, count costs",
    {
        "record": Command("kafka_eos_checks.lab.record.command", "record a real Kafka under faults"),
        "generate": Command(
            "kafka_eos_checks.lab.generate.command", "write logs of any size with violations at known places"
        ),
        "fuzz": Command(
            "kafka_eos_checks.lab.fuzz.command", "feed mutated batches, logs and requests to codec, audit and server"
        ),
        "sinks": Command(
            "kafka_eos_checks.lab.sinks", "kill a consumer at every step of its updates of a real database"
        ),
        "costs": Command("kafka_eos_checks.lab.costs.command", "what exactly-once costs: bytes, requests, latency"),
        "bench": Command("kafka_eos_checks.lab.bench.command", "codec, audit, graphs and server against their peers"),
    },
    (
        "kafka-eos lab generate /tmp/made --batches 1000000",
        "kafka-eos lab record one-broker/idempotent-lost-acks --out build/recording",
        "kafka-eos lab sinks outbox",
        "kafka-eos lab costs --kept",
    ),
)
_LEDGER = Group(
    "what is claimed about exactly-once, what was found, and the report of all verdicts",
    {
        "claims": Command(
            "kafka_eos_checks.ledger.claims_command", "claims about exactly-once, and what checking found"
        ),
        "findings": Command(
            "kafka_eos_checks.ledger.findings_command",
            "what checking found in Apache Kafka, with its evidence and its cure",
        ),
        "properties": Command(
            "kafka_eos_checks.ledger.properties_command", "of which release of Kafka each property of the models holds"
        ),
        "report": Command("kafka_eos_checks.ledger.report", "the HTML report of the verdicts of earlier commands"),
    },
    (
        "kafka-eos ledger findings",
        "kafka-eos ledger findings lowest-sequence",
        "kafka-eos ledger claims C15",
    ),
)

DOORS = (
    Door(
        "I run Kafka",
        "find duplicates, gaps, torn and hanging transactions in logs and in a running cluster",
        {
            "audit": Command("kafka_eos_checks.audit.command", "audit log directories and histories of clients"),
            "watch": Command("kafka_eos_checks.watch.command", "watch a running cluster and report what goes wrong"),
            "explain": Command("kafka_eos_checks.audit.explain", "draw what led to a finding of the audit"),
            "headers": Command(
                "kafka_eos_checks.audit.headers_command", "write batch headers as Parquet, to audit them elsewhere"
            ),
        },
        "kafka-eos audit example:violations",
    ),
    Door(
        "I build on Kafka",
        "test an application against a cluster with faults on demand, and see every crash",
        {
            "serve": Command("kafka_eos_checks.testing.command", "a Kafka cluster for tests, made of the reference"),
            "settings": Command(
                "kafka_eos_checks.testing.settings_command",
                "whether a client accepts its settings, and what they guarantee",
            ),
            "simulate": Command("kafka_eos_checks.simulate.command", "run the reference under seeded faults"),
        },
        "kafka-eos simulate word-count --crash-at 12",
    ),
    Door(
        "I implement Kafka",
        "compare a broker with the spec, request by request",
        {"conform": Command("kafka_eos_checks.conform.command", "any broker against the spec; --peers: known ones")},
        "kafka-eos conform --bootstrap 127.0.0.1:9092",
    ),
    Door(
        "I read specs",
        "check models, graphs and proofs, and see what they say of Kafka",
        {
            "check": _CHECK,
            "lab": _LAB,
            "ledger": _LEDGER,
            "book": Command(
                "kafka_eos_checks.book.command", "the executable spec as static pages, made from the sources"
            ),
        },
        "kafka-eos check models LateEndIsNotAtomic",
    ),
)

COMMANDS = {name: entry for door in DOORS for name, entry in door.commands.items()}

FORMER = {
    "verify": "check all",
    "model-check": "check models",
    "conformance": "check graphs",
    "prove": "check proofs",
    "contracts": "check contracts",
    "mutants": "check mutants",
    "conjuncts": "check conjuncts",
    "traces": "check traces",
    "soak": "check walks",
    "sinks": "lab sinks",
    "generate": "lab generate",
    "record": "lab record",
    "fuzz": "lab fuzz",
    "costs": "lab costs",
    "bench": "lab bench",
    "claims": "ledger claims",
    "findings": "ledger findings",
    "report": "ledger report",
    "peers": "conform --peers",
}
"""Former spelling of a command -> the spelling now."""


def calls() -> dict[tuple[str, ...], Command]:
    """Every command, by the words that call it."""
    found: dict[tuple[str, ...], Command] = {}
    for name, entry in COMMANDS.items():
        if isinstance(entry, Command):
            found[name,] = entry
            continue
        if entry.alone is not None:
            found[name,] = entry.alone
        found |= {(name, word): command for word, command in entry.commands.items()}
    return found
