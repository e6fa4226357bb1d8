"""The rule book: for each rule of the audit, the meaning of a finding, whether it ends by itself, and the next step.

An entry also names the subjects of its rule, so that a rule without a subject does not count as one that holds. And it
names what is missing where the rule could not judge.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, Self

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.jepsen import anomalies as jepsen_anomalies
from kafka_eos_checks.audit.moments import DAMAGED_FILE, NO_LINE, NO_TOPIC_ID
from kafka_eos_checks.audit.rules import (
    applications,
    beside,
    coordinator,
    decided,
    epochs,
    histories,
    offsets,
    readers,
    sent_offsets,
)
from kafka_eos_checks.audit.rules import log as log_rules
from kafka_eos_checks.audit.rules.log import Reason
from kafka_eos_checks.audit.rules.transactions import names as t
from kafka_eos_checks.audit.segments.header_tables import SUFFIX
from kafka_eos_checks.kit.verdict import Verdict

READABLE = "readable"
LOADED_IN_PART = "a coordinator that loads it may know nothing that comes after"
_FILE = "--files {directory}{topic}-{partition}/{file}"
_DUMP_ALL = f"{{unpack}}kafka-dump-log --deep-iteration {_FILE}"
_DUMP = f"{_DUMP_ALL}{{around}}"
_DUMP_DATA = f"{_DUMP_ALL} --print-data-log{{around}}"
_DUMP_STATES = f"{{unpack}}kafka-dump-log --transaction-log-decoder {_FILE}{{around}}"
_AROUND = " | grep -C 20 ' position: {position} '"  # the lines around the batch, of a segment that may have millions
_EXPLAIN = "kafka-eos explain {paths} --finding {number} draws the history around it{if_drawn}"
_PLUS_ONE = "commit the offset of the last input plus one; consumer.position() is that already"
_LOGS = Reason(
    "logs-missing",
    "the logs, offsets or markers that this depends on are not given, have holes or damage, or are of a moment before "
    "the history ends (--snapshot says that the brokers stood still)",
)
_OUTPUTS = Reason(
    "logs-missing",
    f"the history has no Send of an output of them, as of inputs that the application drops, or {_LOGS.words}",
)
_STATES = Reason(
    "compacted",
    "the states before them are not in the log: it was compacted or is damaged; give a copy from before that",
)
_BEGINNING = Reason(
    "compacted",
    "what they follow from is not in the log: it does not begin at offset 0, has holes, or ends before it",
)


class Urgency(IntEnum):
    """The urgency of a finding: how soon somebody has to act, the smallest number first."""

    DATA = 0  # records or effects are lost, torn, twice or wrong
    STUCK = 1  # data is right, and a reader or an application makes no progress
    BOOKKEEPING = 2  # a broker's state is wrong, and no client's record is


class Case(NamedTuple):
    """The entry of a rule for findings whose evidence has certain words.

    Attributes:
        words: the words.
        then: see :attr:`Rule.then`; also about such a subject that could not be judged.
        decide: see :attr:`Rule.decide`.
        means: see :attr:`Rule.means`; "" if that is the same.
        ends: see :attr:`Rule.ends`; "" if that is the same.
        by_hand: see :attr:`Rule.by_hand`; a person causes no such finding otherwise.
        in_test: see :attr:`Rule.in_test`; "" if that is the same.
    """

    words: str
    then: str
    decide: str
    means: str = ""
    ends: str = ""
    by_hand: str = ""
    in_test: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The entry of a rule.

    Attributes:
        subject: the figure that counts the subjects of the rule.
        noun: the word for the subjects, in the plural.
        means: what a finding means for those who write and read data.
        ends: whether it ends by itself.
        then: what to do next; fields of the finding stand in braces.
        decide: what to decide once the next step has shown the place; fields as in ``then``.
        restart: which broker to restart; fields as in ``then``.
        by_hand: what a person may have done to cause it; "" if nothing is known. Faults of Kafka that may cause it are
            in ``findings.toml``.
        in_test: what to do next if a test of an application found it; "" if that is the same.
        missing: why some of its subjects could not be judged, if the reason is always the same.
        unjudged: what to do next about a subject that could not be judged; fields as in ``then``.
        urgency: the urgency of a finding.
        cases: what counts instead, by words in the evidence; the first that fit count. The next step of a case names
            no number of a finding, nor does the rule's after the line that says how to draw it.
    """

    subject: str
    noun: str
    means: str
    ends: str
    then: str
    decide: str = ""
    restart: str = "no broker needs it"
    by_hand: str = ""
    in_test: str = ""
    missing: Reason | None = None
    unjudged: str = ""
    urgency: Urgency = Urgency.DATA
    cases: Sequence[Case] = ()

    @property
    def draws(self) -> bool:
        """Whether the next step is to draw the history around the finding."""
        return self.then.startswith(_EXPLAIN)

    def advice(self, finding: Finding, place: "Place | None" = None, *, drawn: bool = False) -> list[str]:
        """The meaning of a finding and the next step, a line each; the next step only, if it was not judged.

        Args:
            finding: one of the rule.
            place: where it is.
            drawn: whether it is drawn already, or no history has an event of it, so that no line says how to draw it.
        """
        place, own = place or Place(), self.about(finding)
        if not finding.is_violation:
            return [f"next: {_filled(own.unjudged, finding, place)}"] if own.unjudged else []
        then = own.then.removeprefix(_EXPLAIN).removeprefix("; ") if drawn else own.then
        lines = {"means": own.means, "ends by itself": own.ends, "restart": own.restart, "next": then}
        lines |= {"decide": own.decide, "possible cause": own.by_hand}
        return [f"{name}: {_filled(text, finding, place)}" for name, text in lines.items() if text]

    def about(self, finding: Finding) -> Self:
        """The entry for a finding, by its case."""
        case = next((case for case in self.cases if case.words in finding.evidence), None)
        if case is None:
            return self
        means, ends = case.means or self.means, case.ends or self.ends
        told = replace(self, means=means, ends=ends, then=case.then, decide=case.decide, by_hand=case.by_hand)
        told = replace(told, in_test=case.in_test or self.in_test)
        return replace(told, unjudged=case.then)

    def next_in_test(self, finding: Finding, place: "Place", *, drawn: bool = False) -> str:
        """The next step after a finding in a test; "" for none. Arguments as of :meth:`advice`."""
        own = self.about(finding)
        then = own.then.removeprefix(_EXPLAIN).removeprefix("; ") if drawn else own.then
        return _filled(own.in_test or then, finding, place)


class Place(NamedTuple):
    """The place of a finding, as the command of the next step names it.

    Attributes:
        paths: what was audited.
        number: the number of the finding, from 1.
        directory: the log directory with the finding, with a slash at its end; "" if it is not known.
        unpack: the command that unpacks the directory from the archive that was audited, or that copies the file
            from its store, and ``&&``; "" if the file is there.
        other: of replicas that differ, a second line, with the same command for the other one; "" if it is not known.
        if_drawn: the condition under which it can be drawn, in words; "" if that is known.
        broker: the broker with the log directory, in words.
        wrong_index: the broker with a wrong index of aborted transactions of the partition, in words.
    """

    paths: str = "PATH"
    number: int = 1
    directory: str = ""
    unpack: str = ""
    other: str = ""
    if_drawn: str = ""
    broker: str = "this one's broker"
    wrong_index: str = "no broker that is known: no index of aborted transactions is found to be wrong here"


def dump_of(finding: Finding, place: Place) -> str:
    """The command that shows the batches of the segment of a finding."""
    return _filled(_DUMP, finding, place)


def _filled(template: str, finding: Finding, place: Place) -> str:
    names = ("topic", "partition", "offset", "file", "producer_id", "producer_epoch", "base_sequence")
    fields = {name: getattr(finding, name) for name in names}
    if finding.file.endswith(SUFFIX):  # Kafka's tool reads the segment of which the table of headers was made
        place = place._replace(directory="LOG_DIR/", unpack="")
        fields["file"] = f"{finding.file.removesuffix(SUFFIX)}log"
    around = _AROUND.format(position=finding.position) if finding.position is not None else ""
    return template.format(**fields, **place._asdict(), around=around, writer=_writer_of(finding))


def _writer_of(finding: Finding) -> str:
    """How to find the application that wrote a batch. A producer without idempotence has no id to look for."""
    if finding.producer_id is None or finding.producer_id < 0:
        return "its batch has no producer id, so ask all who may write to the topic"
    return (
        f"producer {finding.producer_id}; `kafka-transactions --bootstrap-server=HOST:PORT list` has the transactional "
        "id, if there is one"
    )


_NEVER = "no: what is written stays"
_SENT_TWICE = "Readers get the same records twice."
_KEEP = "; delete no segment"
_OUT_OF_QUESTION = "by DeclareRecord for each record that matters"
_SENT_TOGETHER = "write every output before the offset is sent"
_WRITER = "which application wrote it at that time ({writer})"
_BOTH_READ = (
    f"{_WRITER}; whether consumers have read both copies, by the offsets of their groups, or can skip the second{_KEEP}"
)
_ENDED_OTHERWISE = (
    "compare the marker with the decision of the coordinator, which the finding names: what was committed and is "
    "aborted here has to be produced again; of what was aborted and is committed here, whether consumers have read it"
)
_NOT_GIVEN_AGAIN = (
    "no; process it by itself, or set the group's offset back, which has all inputs after it processed again, too"
)
_ABORT_BY_HAND = (
    "kafka-transactions --bootstrap-server=HOST:PORT abort --topic={topic} --partition={partition} "
    "--start-offset={offset}"
)
_ABORT_IS_RIGHT = "nothing: readers of committed data go on, and skip its records, which were not committed"
_COMPARE = "compare {file} with the broker's own file; if only the copy is damaged, copy it again. If the broker's"
_WITHOUT_FILE = "what the audit says without {file}: it counts as missing, so what depends on it is not judged"

_RULES: Mapping[str, Rule] = {
    READABLE: Rule(
        subject="batches",
        noun="batches",
        means="Bytes of a segment are no batch, their CRC is wrong, or a log lacks its end. "
        "A consumer that reads there gets an error, or not all records. Or a checkpoint is damaged.",
        ends="no; another replica may have the bytes",
        then="compare with another replica; " + _DUMP_ALL,
        cases=(
            Case(
                LOADED_IN_PART,
                "compare with another replica; "
                + _DUMP_ALL
                + "; look for 'Error loading transactions from transaction "
                "log {topic}-{partition}' in the logs of the brokers that have led it since",
                "if it was loaded so: stop the producers of its transactional ids. If another replica is whole, stop "
                "{broker}, move its folder of the partition away and start it: it copies the partition from the leader",
                means="A coordinator that loads the partition goes on with the states before these bytes "
                "(`kafka-eos ledger findings half-loaded-coordinator`): later transactional ids are unknown to it, "
                "their open transactions never end, and a fenced producer may commit.",
            ),
            Case(
                NO_TOPIC_ID,
                f"{_COMPARE} is: do not move it away, because a broker takes a folder without it for a stray one, "
                "renames it (`-stray`), and begins an empty log. Copy {file} of another partition "
                "or replica of {topic}, or write its two lines, `version: 0` and `topic_id: ID`, with the TopicId that "
                "`kafka-topics --bootstrap-server=HOST:PORT --describe --topic={topic}` shows. Stop {broker} before, "
                "and start it afterwards",
                _WITHOUT_FILE,
            ),
            Case(
                f"{DAMAGED_FILE}: line 1: {NO_LINE}",
                f"{_COMPARE} is: restore it, with the ids of the broker's other log directories, or of its "
                "configuration and its cluster",
                _WITHOUT_FILE,
            ),
            Case(
                DAMAGED_FILE,
                f"{_COMPARE} is: let other replicas lead, stop {{broker}}, move the file away, and start it, which "
                "writes it anew; with leader-epoch-checkpoint, move *.index of its folder away, too, or its lines of "
                "earlier leaders are gone",
                _WITHOUT_FILE,
            ),
        ),
    ),
    log_rules.DUPLICATE: Rule(
        subject="batches",
        noun="batches",
        means="The log has a batch of an idempotent producer twice. " + _SENT_TWICE,
        ends=_NEVER,
        then=_DUMP,
        decide=_BOTH_READ,
        cases=(
            Case(
                log_rules.COPY_ELSEWHERE,
                _DUMP + "; the first copy is the line with `baseSequence: {base_sequence} `, `producerId: "
                "{producer_id} ` and `producerEpoch: {producer_epoch} ` of kafka-dump-log of an earlier segment, or a "
                "batch with that sequence in its midst",
                _BOTH_READ,
            ),
        ),
    ),
    log_rules.GAP: Rule(
        subject="batches",
        noun="batches",
        means="A batch of an idempotent producer is missing before this one: records are lost.",
        ends=_NEVER,
        then=_DUMP,
        decide=f"{_WRITER}; whether its own log has the missing batch as acknowledged: then write it again, for "
        f"consumers lack it{_KEEP}",
        missing=log_rules.FIRST_SEQUENCE,
    ),
    log_rules.STALE_EPOCH: Rule(
        subject="batches",
        noun="batches",
        means="A fenced producer has written: the leader did not refuse its epoch.",
        ends=_NEVER,
        then=_DUMP,
        decide=f"{_WRITER}, and end its old instance; whether consumers have read what it wrote{_KEEP}",
    ),
    log_rules.OUTSIDE: Rule(
        subject="transactional",
        noun="batches in transactions",
        means="A producer with an open transaction has data outside of it. Readers of committed data get it even if "
        "the transaction is aborted.",
        ends=_NEVER,
        then=_DUMP,
        decide=f"{_WRITER}; whether consumers have read it although its transaction was aborted; what else can write "
        f"to the log, for Kafka's leaders refuse it{_KEEP}",
    ),
    log_rules.ORDER: Rule(
        subject="batches",
        noun="batches",
        means="Offsets go backwards, or a batch is in another segment than its offset: the leader gave an offset "
        "twice, segments overlap, or a file has a wrong name.",
        ends=_NEVER,
        then=_DUMP,
        decide=f"{_WRITER}; which consumers have read past it, by their groups' offsets; whether another replica is "
        f"right and can lead{_KEEP}",
    ),
    log_rules.LEADER_BACK: Rule(
        subject="batches",
        noun="batches",
        means="A batch has the epoch of an earlier leader than the batch before it. Replicas compare these epochs when "
        "they follow a new leader: they may keep records that the leader does not have, or drop others.",
        ends=_NEVER,
        then=_DUMP,
        decide=f"{_WRITER}; whether the log directory was restored from another cluster; whether other replicas have "
        f"the same epoch there, and which can lead; which consumers have read past it, by their groups' offsets{_KEEP}",
    ),
    coordinator.ILLEGAL_TRANSITION: Rule(
        subject="records",
        noun="records",
        means="The transaction coordinator went from one state to another in a way that the protocol does not allow.",
        ends="no; the transactional id goes on from the wrong state",
        then=_DUMP_STATES,
        missing=_STATES,
        urgency=Urgency.BOOKKEEPING,
    ),
    coordinator.DECISION_CHANGED: Rule(
        subject="records",
        noun="records",
        means="A transaction was prepared to commit and completed as aborted, or the other way round.",
        ends=_NEVER,
        then=_DUMP_STATES,
        missing=_STATES,
    ),
    t.TORN: Rule(
        subject="markers",
        noun="markers",
        means="A transaction is committed in one partition, and aborted or lost in another: readers get a part of it.",
        ends=_NEVER,
        then="repair what the application did with that part; to find out who wrote the other marker, see "
        "kafka-dump-log --transaction-log-decoder of __transaction_state, and the operators' shell history for "
        "kafka-transactions abort",
        cases=(
            Case(
                t.AS_BY_HAND,
                _DUMP_DATA,
                _ENDED_OTHERWISE,
                means="A transaction is complete, and in a partition its records were ended by hand.",
                by_hand="`kafka-transactions abort`, by hand, of a transaction that its coordinator has decided",
            ),
            Case(
                t.BY_ANOTHER,
                _DUMP_DATA,
                _ENDED_OTHERWISE,
                means="A transaction is complete, and a partition lacks its marker. Its records have the decision of "
                "another transaction.",
            ),
            Case(
                t.WITHOUT_MARKER,
                _DUMP_DATA,
                "whether the partition has lost records, usually by an unclean leader election or because its log "
                "directory was restored from a backup: then whether a copy or another replica still has them, and "
                "whether to produce them again. If no log was cut, the records are there, and the next marker of the "
                "producer has ended them: whether they are committed or aborted as their coordinator decided",
                means="A transaction is complete, and a partition lacks its marker. Either the partition has lost it, "
                "and the records with it, or nobody wrote it, and the records have the decision of a later marker.",
            ),
        ),
        by_hand="`kafka-transactions abort`, by hand, of a transaction that its coordinator still had to end",
        in_test="look in the diagram for a delayed duplicate of EndTxn or of a marker; transaction version 2 refuses "
        "these",
    ),
    t.HANGING: Rule(
        subject="transactions",
        noun="transactions",
        means="Nobody will end this transaction. Readers of committed data get nothing from its first offset on, and "
        "the log is not compacted there.",
        ends="no",
        then="first see below what to decide; then " + _ABORT_BY_HAND,
        decide="first whether its coordinator could end it: if all brokers had been down until shortly before the "
        "copy, copy and audit again, because a coordinator aborts what timed out meanwhile within seconds of its "
        "start. Then whether its coordinator has committed it, where the finding does not say: see kafka-dump-log "
        "--transaction-log-decoder of __transaction_state for its producer and epoch. kafka-transactions writes ABORT, "
        "which takes the records of a committed transaction away on this partition; produce them again",
        cases=(
            Case(
                t.LACKS_END,
                "copy the log that lacks its end again, with all files of its folder, or give another replica of it: "
                "until then nothing tells whether the transaction is open, so do not abort it",
                "",
            ),
            Case(
                decided.ENDED,
                _DUMP_DATA,
                "nothing of it is open any more, so there is nothing to abort. Whether to produce records again that "
                "were committed, or whether consumers have read records that were aborted: compare with the decision "
                "that the finding names",
                means="The marker of a later transaction ended this transaction, with the decision about that one. "
                "Until then readers of committed data got nothing from its first offset on.",
                ends="it has ended, and keeps no reader waiting; what is written stays",
            ),
            Case(
                f"{decided.NOT_BY_HAND}, {decided.LET_IT_END}",
                "kafka-transactions --bootstrap-server=HOST:PORT forceTerminateTransaction --transactionalId=ID, with "
                "the tools of Kafka 4.1 or later and the transactional id that the finding names",
                "if all brokers had been down until shortly before the copy, nothing: a coordinator aborts what timed "
                "out meanwhile within seconds of its start. If it does not end: which broker leads that partition of "
                "__transaction_state, and whether to restart it",
            ),
            Case(decided.AS_DECIDED, _ABORT_BY_HAND, _ABORT_IS_RIGHT),
            Case(decided.TAKES_NOTHING, _ABORT_BY_HAND, _ABORT_IS_RIGHT),
            Case(
                decided.NOT_BY_HAND,
                "keep its records: " + _DUMP_ALL + " --print-data-log",
                "stop this producer first: its next transaction with this partition ends this one with its own "
                "decision, a commit gives readers these records, too, and an abort takes them away. No tool of Kafka "
                "writes the COMMIT that is missing. So abort it by hand, and produce its records again before the "
                "producer starts: " + _ABORT_BY_HAND,
            ),
        ),
        in_test="look in the diagram for a batch that came after the end of its transaction; verification and "
        "transaction version 2 refuse these",
        unjudged="give all logs of __transaction_state of the same moment, or ask the cluster's coordinators: "
        "kafka-eos watch --bootstrap HOST:PORT --once --from-start. If none has it, ask its application whether it "
        "has committed these records, because an abort takes them away. If it has not: " + _ABORT_BY_HAND,
        urgency=Urgency.STUCK,
    ),
    t.NO_TRANSACTION: Rule(
        subject="markers",
        noun="markers",
        means="A partition has a marker (COMMIT or ABORT) of a transaction that no coordinator decided so.",
        ends=_NEVER,
        then=_DUMP,
        cases=(
            Case(
                t.OUT_OF_TURN,
                _DUMP_DATA,
                "whether the data before the marker are those of the transactions without one: then produce again what "
                "was committed and is aborted here, and find out whether consumers have read what was aborted",
                means="The coordinator decided otherwise about the next transaction of this partition. Either the "
                "marker is wrong, or it is that of a later transaction and the markers before it are missing. Then it "
                "has ended the data of these transactions, too, with its own decision.",
            ),
        ),
    ),
    t.FENCED: Rule(
        subject="committed",
        noun="committed transactions",
        means="A transaction of a producer was committed after another instance had taken its place.",
        ends=_NEVER,
        then=_DUMP,
    ),
    t.OLD_COORDINATOR: Rule(
        subject="markers",
        noun="markers",
        means="A coordinator that had been replaced still wrote a marker. The leader should have refused it.",
        ends=_NEVER,
        then=_DUMP,
        urgency=Urgency.BOOKKEEPING,
    ),
    t.NO_BIT: Rule(
        subject="producer_ids",
        noun="producer ids of transactional ids in these logs",
        means="A client with a transactional id wrote records that belong to none of its transactions. Everybody reads "
        "them at once, and keeps them if the transaction is aborted. The leader cannot tell, and accepts them.",
        ends=_NEVER,
        then=_DUMP_DATA,
        decide=f"{_WRITER}, and with which client library: it has to set the transactional bit in every batch, as "
        f"Kafka's own clients do{_KEEP}",
    ),
    offsets.WENT_BACK: Rule(
        subject="checked",
        noun="committed offsets",
        means="A transaction committed an offset below the group's offset, or below one that it had sent before: "
        "inputs are processed again. With the same producer and epoch it may be a delayed retry of Kafka's client.",
        ends="no; the group goes on from the lower offset",
        then=f"{{unpack}}kafka-dump-log --offsets-decoder {_FILE}{{around}}",
        by_hand="an application that went back by itself, to an older position than its group's, in a transaction",
        in_test="commit the offsets of a partition in order, by one member at a time",
        missing=Reason("compacted", "the log was compacted or is damaged, and a hole in it may have had a tombstone"),
    ),
    offsets.BEYOND: Rule(
        subject="checked",
        noun="last offsets of groups",
        means="The group has read records that the partition has no more, or its offset was made up. If members fetch "
        "only after the log has grown past that offset, they miss what was written until then.",
        ends="when a member fetches: it goes to where auto.offset.reset says, the first record or the end of the log",
        then=f"{{unpack}}kafka-dump-log --offsets-decoder {_FILE}{{around}}; then look in the brokers' logs for "
        "`Truncating`, and for an unclean election of the partition that the evidence names",
        decide="set the group's offset to the offset at which the log was cut, before its members fetch again. Kafka "
        "does so only while no member runs: kafka-consumer-groups --bootstrap-server=HOST:PORT --group=GROUP "
        "--reset-offsets --topic=TOPIC:PARTITION --to-offset=OFFSET --execute",
        by_hand="a tool or an application that commits made-up offsets, or folders of a topic removed by hand",
        in_test=_PLUS_ONE,
        missing=Reason(
            "other-moment",
            "the partition's log ends before them, and may be the older copy, or its end is damaged; audit the "
            "directory in place, or copy it again with `cp -a`, or say --snapshot if the brokers stood still",
        ),
    ),
    beside.ABORTED_INDEX: Rule(
        subject="entries",
        noun="entries",
        means="Readers of committed data are given aborted records of this segment, or miss committed ones.",
        ends="when the segment is deleted by retention",
        then="stop the transactional producers of the topics with such findings, because a broker that catches up "
        "with several of their transactions writes such entries again; let other replicas lead, stop {broker}, remove "
        "*.index and *.txnindex in its {topic}-{partition} and in each other partition of it with such a finding "
        "(--findings FILE lists them all), and start it, which rebuilds them. Not where the rule `readable` has found "
        "a corrupt region: there the broker would cut the segment at its first damaged batch",
        restart="{broker} as the next line says, then each other broker with such a finding; no other",
        missing=_BEGINNING._replace(
            words=f"{_BEGINNING.words}, or retention took their index while the first segment was copied"
        ),
    ),
    beside.SNAPSHOT: Rule(
        subject="snapshots",
        noun="snapshots",
        means="After a restart the leader starts with a wrong state of the producer: it may refuse right batches, or "
        "accept wrong ones.",
        ends="when a later snapshot replaces it",
        restart="no broker needs it, and not {broker} before a later snapshot",
        then=f"{{unpack}}kafka-dump-log {_FILE}",
        missing=_BEGINNING,
        urgency=Urgency.BOOKKEEPING,
    ),
    beside.REPLICAS: Rule(
        subject="batches",
        noun="batches",
        means="Two replicas have different records at one offset. What is read there depends on which replica leads.",
        ends="no",
        then=_DUMP + "{other}",
        decide="which of the two is right: ask the application that wrote at that time; which consumers have read it, "
        f"by their groups' offsets; let the right one lead{_KEEP}",
        missing=Reason(
            "other-moment",
            "another replica has a batch of another leader there: one is the older copy, or its broker was down and "
            "has to truncate it, or an unclean election has lost its records; compare both with what clients sent",
        ),
    ),
    epochs.LEADER_EPOCHS: Rule(
        subject="logs",
        noun="logs with leader-epoch-checkpoint",
        means="The broker has a wrong offset for the end of an earlier leader's log. Where it leads, followers that "
        "come back cut their logs there: they may keep records that it does not have, or drop others. Where it "
        "follows, it asks about a wrong epoch. Consumers may not notice that records which they have read are gone.",
        ends="no; the broker reads the file when it starts, and writes its lines again",
        then="compare {file} with the broker's own file and with those of other replicas; a copy may be of another "
        "moment. If the broker's is wrong: let other replicas lead, stop {broker}, remove {file} and *.index in its "
        "{topic}-{partition}, and start it, which writes both anew from the batches. It does not read these while "
        "*.index is there. Not where the rule `readable` has found a corrupt region: there the broker would cut the "
        "segment at its first damaged batch",
        decide="whether the replicas of {topic}-{partition} have the same records: audit their directories together",
        restart="{broker} as the next line says",
        by_hand="segments that were restored from a backup or from another replica without the file, or the file "
        "without them",
        unjudged="audit again when the broker is stopped, or in place while nothing is written to {topic}-{partition}; "
        "what then still disagrees is wrong",
        urgency=Urgency.BOOKKEEPING,
        cases=(
            Case(
                epochs.BEGINS_AT,
                "nothing, if {file} was removed once, or if records of {topic}-{partition} were deleted up to there "
                "shortly before its broker ended. To have all lines again: let other replicas lead, stop {broker}, "
                "remove {file} and *.index in its {topic}-{partition}, and start it",
                "",
            ),
        ),
    ),
    histories.LOST: Rule(
        subject="checked",
        noun="acknowledged sends",
        means="A client was told that its record is stored, and it is not.",
        ends="no",
        then=_EXPLAIN,
        missing=_LOGS,
    ),
    histories.DUPLICATE_VALUE: Rule(
        subject="checked",
        noun="values",
        means="A client's record is stored twice, or although its send is known to have failed. " + _SENT_TWICE,
        ends=_NEVER,
        then=_EXPLAIN,
    ),
    histories.REFUSED: Rule(
        subject="checked",
        noun="refusals",
        means="A producer was refused for good although it did nothing wrong: its application stops.",
        ends="no; the application has to make a new producer",
        then=_EXPLAIN,
        missing=Reason("history", "the history does not show who gave the epoch, or what the leader had"),
        urgency=Urgency.STUCK,
    ),
    histories.UNASKED: Rule(
        subject="checked",
        noun="committed transactions",
        means="Records were committed although their application had not asked for it, or was told that it failed.",
        ends=_NEVER,
        then=_EXPLAIN,
        missing=_LOGS,
    ),
    readers.COMMITTED_MISSING: Rule(
        subject="checked",
        noun="sends of committed transactions",
        means="An application was told that its transaction is committed, and a record of it is not.",
        ends=_NEVER,
        then=_EXPLAIN,
        missing=_LOGS,
    ),
    readers.ABORTED_DELIVERED: Rule(
        subject="checked",
        noun="records given to readers of committed data",
        means="A reader of committed data was given a record that was aborted.",
        ends=_NEVER,
        restart="{wrong_index}",
        then=_EXPLAIN,
        missing=_LOGS,
    ),
    readers.PRECOMMITTED: Rule(
        subject="checked",
        noun="records given to readers of committed data",
        means="A reader of committed data was given a record before it was committed.",
        ends=_NEVER,
        then=_EXPLAIN,
        missing=Reason("history", "no `order` tells whether their application had asked for the commit before"),
    ),
    readers.POLL_SKIP: Rule(
        subject="checked",
        noun="steps of readers",
        means="A reader was not given a record that is there.",
        ends=_NEVER,
        then=_EXPLAIN,
        missing=_LOGS,
    ),
    readers.NON_MONOTONIC: Rule(
        subject="checked",
        noun="steps of readers",
        means="A reader was given the same record again.",
        ends=_NEVER,
        then=_EXPLAIN,
    ),
    readers.INCONSISTENT: Rule(
        subject="checked",
        noun="offsets told",
        means="Two clients were told of different records at one offset, or a reader of one that no log has there.",
        ends="no",
        then=_EXPLAIN,
    ),
    readers.STABLE_WENT_BACK: Rule(
        subject="checked",
        noun="ends of partitions told",
        means="The offset up to which readers of committed data can read went back.",
        ends="no",
        then=_EXPLAIN,
        urgency=Urgency.BOOKKEEPING,
    ),
    applications.TWICE: Rule(
        subject="checked",
        noun="inputs",
        means="Readers of committed data get the output twice.",
        ends=_NEVER,
        then=_EXPLAIN + "; send the input's offset in the transaction of its output, and go on from the group's "
        "committed offsets after a restart, a rebalance, or a commit whose outcome is unknown",
        missing=_LOGS,
    ),
    applications.SKIPPED: Rule(
        subject="checked",
        noun="inputs",
        means="The input is lost: the group will not be given it again, and no output of it was written.",
        ends=_NOT_GIVEN_AGAIN,
        then=_EXPLAIN + "; after an abort an application has to seek back to the first offset of the transaction",
        in_test="after an abort, seek back to the first offset of the aborted transaction before the next poll; send "
        "only offsets whose outputs were sent in the same transaction. If the application drops this input on purpose, "
        "let identity= return None for it",
        missing=_OUTPUTS,
        cases=(
            Case(
                applications.NEVER_WRITTEN,
                "after an abort an application has to seek back to the first offset of the transaction; without one, "
                "look for a filter, or for an error that is caught around a send and passed over. Inputs that are "
                f"dropped on purpose can be left out of the question, {_OUT_OF_QUESTION}",
                decide="",
            ),
        ),
    ),
    applications.OUTPUT_ALONE: Rule(
        subject="checked",
        noun="inputs",
        means="The output is visible, and nothing keeps a restarted application from reading its input again and "
        "writing it once more.",
        ends=_NEVER,
        then="write the output in a transaction, and send the input's offset plus one with "
        "send_offsets_to_transaction before commit_transaction; leave out consumer.commit() and enable.auto.commit",
        missing=_LOGS,
    ),
    applications.OFFSET_ALONE: Rule(
        subject="checked",
        noun="inputs",
        means="The input counts as processed, and an output of it is missing and will not be written any more.",
        ends=_NOT_GIVEN_AGAIN,
        then=f"commit offsets in the transaction of the outputs, not by consumer.commit() or enable.auto.commit; "
        f"{_SENT_TOGETHER}",
        missing=_OUTPUTS,
        cases=(
            Case(
                applications.IN_SOME_TOPICS,
                f"{_SENT_TOGETHER}, in the same transaction. If each input has its output in only one of the topics, "
                f"ask about each topic in a question of its own, {_OUT_OF_QUESTION}",
                decide="",
                in_test=f"{_SENT_TOGETHER}, in the same transaction",
            ),
        ),
    ),
    applications.NOT_PROCESSED: Rule(
        subject="checked",
        noun="inputs",
        means="The application has not reached this input yet, or has aborted it and not tried again.",
        ends="when the application continues",
        then=_EXPLAIN,
        in_test="let the test wait until the application is done; everything=False, if it ends earlier on purpose; if "
        "it hangs, look whether it aborts a transaction that failed",
        missing=_LOGS,
        urgency=Urgency.STUCK,
    ),
    applications.OUTPUT_OF_NOTHING: Rule(
        subject="checked",
        noun="outputs",
        means="The application wrote an output that belongs to no input, or the declared identities do not join it "
        "with its input.",
        ends=_NEVER,
        then=_EXPLAIN,
        in_test="read with isolation.level=read_committed, if its input was aborted; otherwise compare the record with "
        "the inputs; let identity= return the same for both, or None for a record that is no output of an input",
        missing=_LOGS,
    ),
    applications.FENCED_GENERATION: Rule(
        subject="checked",
        noun="commits of offsets",
        means="A member of a past generation of the group could still commit offsets.",
        ends=_NEVER,
        then=_EXPLAIN + "; call consumer.consumer_group_metadata() right before each send_offsets_to_transaction",
        missing=Reason("history", "the history does not have the members' generations"),
    ),
    sent_offsets.NOT_AS_SENT: Rule(
        subject="checked",
        noun="offsets sent in transactions",
        means="A group's offset is not the one that its application committed with its transaction.",
        ends=_NEVER,
        then=_EXPLAIN,
        missing=_LOGS,
    ),
}

RULE_NAMES = tuple(_RULES)
"""The rules of the audit by name, without the anomalies of Jepsen."""

_ANOMALY = Rule(
    subject="given",
    noun="values that readers were given",
    means="An anomaly of Jepsen's workload for Kafka, as Jepsen defines it.",
    ends=_NEVER,
    then="read the operations that the finding names",
)


def rule_of(name: str) -> Rule:
    """The entry of a rule.

    Raises:
        KeyError: there is none of this name.
    """
    return _ANOMALY if name in jepsen_anomalies.ANOMALIES else _RULES[name]


def most_urgent_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts by the urgency of their rules, otherwise in their order; of an application first what is apart."""

    def place(verdict: Verdict) -> tuple[Urgency, bool, bool]:
        urgency = _RULES[verdict.name].urgency if verdict.name in _RULES else Urgency.DATA
        return urgency, verdict.name in applications.APPLICATION_RULES, verdict.name not in applications.APART

    return sorted(verdicts, key=place)
