"""Advice about a report: a sentence, and where there is one the command of Kafka's own tools, ready to be pasted.

Options and values are one word (``--topic=-x``), because a name may begin with ``-``.

Kafka: org.apache.kafka.tools.TransactionsCommand, org.apache.kafka.tools.TopicCommand
KIP:   KIP-664, KIP-939
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_eos.formats.transaction_log import TOPIC as TRANSACTION_TOPIC
from kafka_eos_checks.audit.rules.log import DUPLICATE, GAP, LEADER_BACK, ORDER, OUTSIDE, STALE_EPOCH
from kafka_eos_checks.audit.rules.transactions.names import TORN
from kafka_eos_checks.watch.cluster import Transaction
from kafka_eos_checks.watch.reports import Ends, Report, shell_word, transaction_of
from kafka_eos_checks.watch.state import CORRUPT, CUT

READS_ALL = "read_uncommitted"
_STOP = "Stop its producer first, because its next transaction in this partition ends this one, too, by its own "
_STOP += "decision. "
_IN_THE_LOG = "The command shows which producers have written to the partition last; `kafka-transactions … list` names "
_IN_THE_LOG += "the transactional id of each."
WORDS: Mapping[str, str] = {
    DUPLICATE: "The records are in the log twice, and readers are given both: make the readers of this topic skip the "
    f"second, and look for what the producer retried. {_IN_THE_LOG}",
    GAP: f"Records between the two sequences are not in the log: look for them in the producer's log. {_IN_THE_LOG}",
    STALE_EPOCH: "A producer that was fenced has written after the one that replaced it: find the old instance and end "
    f"it. {_IN_THE_LOG}",
    OUTSIDE: "A producer has data outside of its open transaction, and readers get it even if that is aborted. Kafka's "
    f"leaders refuse such data: look for what else can write to the log. {_IN_THE_LOG}",
    ORDER: "Offsets went back: compare the replicas of the partition, and audit the leader's log directory.",
    LEADER_BACK: "A batch has the epoch of an earlier leader: compare the replicas of the partition, and audit the "
    "leader's log directory.",
    TORN: "It cannot be undone. Stop the readers of both partitions, copy the log directories of both and of "
    "__transaction_state, and let `kafka-eos audit` show the transaction; then write again what was aborted.",
    CUT: "Records that readers may have been given are gone, as after an unclean election or with a replaced disk. "
    "See who leads now, and copy the other replicas' directories before they are cut to the same length.",
    CORRUPT: "Let another replica lead. Then stop the broker that gave this, keep the partition's directory for "
    "`kafka-dump-log --deep-iteration`, and start it without: it copies the partition from the leader.",
}
"""The next step, by rule; that about a transaction depends on its coordinator's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The form of calls of Kafka's tools for this cluster.

    Attributes:
        bootstrap: the value of ``--bootstrap-server``.
        command_config: the value of ``--command-config``; "" for none.
    """

    bootstrap: str = "HOST:PORT"
    command_config: str = ""

    def transactions(self, command: str, *arguments: str) -> str:
        """A call of ``kafka-transactions``."""
        return _line(["kafka-transactions", *self._common(), command, *arguments])

    def topics(self, *arguments: str) -> str:
        """A call of ``kafka-topics``."""
        return _line(["kafka-topics", *self._common(), *arguments])

    def records(self, topic: str, partition: int, first: int, end: int) -> str:
        """The call that prints the records of a partition from an offset up to another, with all that they consist of.

        Markers between the two are no messages, so it may print as many records after the last offset. Where there are
        none, it ends after ten seconds. Newer tools have other names for some options, and know these too.
        """
        config = _options({"consumer.config": self.command_config} if self.command_config else {})
        where = _options({"topic": topic, "partition": partition, "offset": first, "isolation-level": READS_ALL})
        ends = _options({"max-messages": max(end - first, 1), "timeout-ms": 10_000})
        shown = [f"--property=print.{name}=true" for name in ("timestamp", "partition", "offset", "headers", "key")]
        return _line(["kafka-console-consumer", f"--bootstrap-server={self.bootstrap}", *config, *where, *ends, *shown])

    def abort(self, topic: str, partition: int, start_offset: int) -> str:
        """The call that ends a hanging transaction in one partition."""
        where = _options({"topic": topic, "partition": partition, "start-offset": start_offset})
        return self.transactions("abort", *where)

    def terminate(self, transactional_id: str) -> str:
        """The call that fences the producer of a transactional id, which aborts its transaction."""
        return self.transactions("forceTerminateTransaction", f"--transactionalId={transactional_id}")

    def producers(self, topic: str, partition: int) -> str:
        """The call that lists the producers of a partition."""
        return self.transactions("describe-producers", *_options({"topic": topic, "partition": partition}))

    def about(self, rule: str, topic: str, partition: int) -> str:
        """The call that shows more about a violation of a rule over logs; "" for none."""
        if rule in {DUPLICATE, GAP, OUTSIDE, STALE_EPOCH}:
            return self.producers(topic, partition)
        return self.topics("--describe", f"--topic={topic}") if rule in {ORDER, LEADER_BACK, CUT, CORRUPT} else ""

    def _common(self) -> list[str]:
        config = {"command-config": self.command_config} if self.command_config else {}
        return _options({"bootstrap-server": self.bootstrap, **config})


def nobody_tells(report: Report, tools: Tools) -> Report:
    """Advise about a transaction while the coordinators do not tell of any."""
    words = "The coordinators do not tell of it now, so it may be alive. See what the leader knows of its producer:"
    command = tools.producers(report.topic, report.partition)
    return replace(report, ends=Ends.UNKNOWN, next=words, command=command)


def hangs(report: Report, transaction: Transaction | None, start_offset: int, end: int, tools: Tools) -> Report:
    """Advise about data that no coordinator will end.

    Args:
        report: the report of the transaction.
        transaction: as the coordinator has it; None for one that no coordinator tells of.
        start_offset: the transaction's first offset, as the partition's leader has it.
        end: the partition's high watermark.
        tools: how Kafka's tools are called.
    """
    decided = "" if transaction is None else transaction.decision_about(transaction_of(report).epoch)
    command = tools.abort(report.topic, report.partition, start_offset)
    if decided == "committed":
        words = "Do not abort it before its records are kept: it is committed, and an abort takes them away from "
        words += f"readers of committed data. Kafka has no tool that commits it. Keep them, run `{command}`, and "
        words += "produce them again; or let the same producer commit another transaction with this partition, which "
        words += "ends both:"
        command = tools.records(report.topic, report.partition, start_offset, end)
    elif decided == "aborted":
        words = "Abort it in this partition, too, as its coordinator did; readers of committed data skip its records:"
    else:
        first = "Make sure that this client may describe all transactional ids, for one that it may not describe looks "
        words = f"{first}the same. " if transaction is None else ""
        words += "Look first whether its coordinator has committed it: `kafka-eos audit` of the log directories finds "
        words += f"that in {TRANSACTION_TOPIC}. If not, abort it in this partition; readers of committed data skip its "
        words += "records:"
    report = replace(_named(report, transaction), decision=decided)
    return replace(report, ends=Ends.NEVER, next=_STOP + words, command=command)


def will_end(report: Report, transaction: Transaction, tools: Tools) -> Report:
    """Advise about a transaction that its coordinator will end."""
    if transaction.times_out_ms is None:
        words = f"It is decided, and its markers are being written. If that goes on: {_if_never_completed('')}"
        command = tools.topics("--describe", "--unavailable-partitions")
    else:
        words = (
            "Wait for its application, or for the timeout. If the application is gone and readers cannot wait, fence "
        )
        words += "its producer, which aborts the transaction (with the tools of Kafka 4.1 or later):"
        command = tools.terminate(transaction.name)
    return replace(
        _named(report, transaction),
        decision=transaction.decided,
        ends=Ends.BY_ITSELF,
        ends_ms=transaction.times_out_ms,
        next=words,
        command=command,
    )


def stays_prepared(report: Report, tools: Tools) -> Report:
    """Advise about a transaction that its coordinator does not complete, although no data of it are open."""
    words = _if_never_completed(f"-{report.partition}" if report.partition >= 0 else "")
    command = tools.topics("--describe", "--unavailable-partitions")
    return replace(report, ends=Ends.UNKNOWN, next=words[0].upper() + words[1:], command=command)


def _if_never_completed(number: str) -> str:
    """Why a decided transaction is not completed, and what to do.

    Args:
        number: that of its partition of the coordinators' topic, as in ``-7``; "" for not known.
    """
    words = "its coordinator waits for a partition that has no leader (the command shows these) or too few replicas in "
    words += "sync (--under-min-isr-partitions instead). If there is none, it waits for an answer that does not come: "
    words += f"restart the broker that leads {'' if number else 'its partition of '}{TRANSACTION_TOPIC}{number}. The "
    words += "next coordinator sends the markers again, and then completes it. If that broker has logged 'Uncaught "
    words += "error in request completion' or 'Error loading transactions', see first what `kafka-eos ledger findings` "
    return words + "says of refused-marker or of half-loaded-coordinator."


def _named(report: Report, transaction: Transaction | None) -> Report:
    if transaction is None:
        return report
    return replace(report, transactional_id=transaction.name, state=transaction.state)


def _options(values: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


def _line(words: Sequence[str]) -> str:
    return " ".join(map(shell_word, words))
