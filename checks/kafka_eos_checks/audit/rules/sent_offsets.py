"""The offsets that producers sent in their transactions, against the offsets that count in ``__consumer_offsets``.

``offsets not as sent``
    The requests of a producer id and epoch in a history (``TxnOffsetCommit`` with ``detail.committed_offset``, and
    ``EndTxn``) do not agree with the offsets that count by its markers:

    - A ``TxnOffsetCommit`` was answered ``ok``, and so was the commit of its transaction, but no such offset counts.
    - An offset counts that the producer id and epoch never sent.
    - An offset counts that they sent only in transactions whose abort was answered ``ok``.

    Only groups that the run's requests name are judged. *Unknown*, and no finding: a group of which no log has an
    offset; a log with a hole, or one that may be older than the history; an offset of a name for which offsets
    outside of transactions count too, because one of these may have replaced it; a transaction whose end is not known.
    A retry that the network delayed (``detail.repeats``) belongs to the transaction of the original request.

KIP:   KIP-98, KIP-447
Kafka: KafkaProducer.sendOffsetsToTransaction, OffsetMetadataManager.replayEndTransactionMarker
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.quoting import quoted
from kafka_eos_checks.audit.rules.offsets import Commit, GroupLog, Name
from kafka_eos_checks.audit.segments.contents import Figures, count, place_of

NOT_AS_SENT = "offsets not as sent"
Identity = tuple[int, int]  # producer id, epoch
Offset = tuple[Name, int]  # group and partition, the committed offset


@dataclass(slots=True)
class _Transaction:
    """A transaction of a producer.

    Attributes:
        sent: the offsets that were sent in it.
        stored: those whose request was answered without an error.
        ended: whether its end was requested.
        followed: whether other requests came after that.
        commits: whether it is committed; None where no answer says so.
    """

    sent: set[Offset] = field(default_factory=set)
    stored: set[Offset] = field(default_factory=set)
    ended: bool = False
    followed: bool = False
    commits: bool | None = None


def _named(run: Sequence[Event]) -> set[str]:
    """The groups whose offsets producers sent."""
    return {
        event.group
        for event in run
        if event.action == "TxnOffsetCommit" and event.producer_id is not None and event.producer_id >= 0
        if event.group is not None and place_of(event) is not None
    }


def _transactions(run: Sequence[Event]) -> Mapping[Identity, list[_Transaction]]:
    """The transactions in which offsets were sent; without producers any of whose requests has no offset."""
    found: dict[Identity, list[_Transaction]] = defaultdict(list)
    unclear: set[Identity] = set()
    for event in run:
        pid, epoch, place = event.producer_id, event.producer_epoch, place_of(event)
        if pid is None or epoch is None or pid < 0 or "repeats" in event.detail:
            continue
        own = found[pid, epoch]
        if event.action == "EndTxn":
            _end(own, event)
        elif event.action == "TxnOffsetCommit" and event.group is not None and place is not None:
            offset = event.detail.get("committed_offset")
            if not isinstance(offset, int):
                unclear.add((pid, epoch))
                continue
            sent = (event.group, place), offset
            if event.phase == "invoke":
                if not own or own[-1].ended:
                    own.append(_Transaction())
                own[-1].sent.add(sent)
            elif event.phase == "ok" and own and sent in own[-1].sent:
                own[-1].stored.add(sent)
        elif own:
            own[-1].followed = own[-1].ended
    return {identity: own for identity, own in found.items() if own and identity not in unclear}


def _end(own: list[_Transaction], event: Event) -> None:
    """Add a request to end the transaction, or its answer."""
    if event.phase == "invoke":
        if not own or own[-1].followed:
            own.append(_Transaction())  # another one, in which no offsets were sent
        own[-1].ended = True
    elif event.phase == "ok" and own and own[-1].ended and own[-1].commits is None:
        committed = event.detail.get("committed")
        own[-1].commits = committed if isinstance(committed, bool) else None


@dataclass(slots=True)
class _Counted:
    """The offsets that count, of some groups.

    Attributes:
        logs: by group, its log.
        commits: by producer id and epoch, and by offset, the log and the record.
        replaced: names for which offsets outside of transactions count.
    """

    logs: dict[str, GroupLog] = field(default_factory=dict)
    commits: dict[Identity, dict[Offset, tuple[GroupLog, Commit]]] = field(default_factory=lambda: defaultdict(dict))
    replaced: set[Name] = field(default_factory=set)

    @classmethod
    def of(cls, logs: Sequence[GroupLog], groups: Container[str]) -> "_Counted":
        found = cls()
        for log in logs:
            for name in log.commits:
                if name[0] not in groups:
                    continue
                for commit in log.commits[name]:
                    found.logs[name[0]] = log
                    if not commit.transactional or commit.offset is None:
                        found.replaced.add(name)
                    else:
                        identity = commit.producer_id, commit.producer_epoch
                        found.commits[identity].setdefault((name, commit.offset), (log, commit))
        return found

    def shows(self, name: Name) -> bool:
        """Whether an offset that does not count is really missing."""
        log = self.logs.get(name[0])
        return log is not None and log.whole and name not in self.replaced


def not_as_sent(
    run: Sequence[Event],
    logs: Sequence[GroupLog],
    figures: Figures,
    *,
    covered: bool = True,
    groups: Container[str] | None = None,
    only: Container[int] | None = None,
) -> Iterator[Finding]:
    """Find offsets of committed transactions that do not count, and offsets that count and were not sent so.

    Args:
        run: the events of a run, or at least all requests with one of the producer ids to judge.
        logs: the longest replica of each partition of ``__consumer_offsets``.
        figures: the figures of the rule.
        covered: whether the logs end after the run.
        groups: the groups that the requests of the whole run name; None if ``run`` is the whole run.
        only: the producer ids to judge; None for all.
    """
    told = _transactions(run)
    counted = _Counted.of(logs, _named(run) if groups is None else groups)
    for (pid, epoch), own in told.items():
        if only is not None and pid not in only:
            continue
        there = counted.commits.get((pid, epoch), {})
        for each in own:
            for name, offset in sorted(each.stored) if each.commits else ():
                count(figures, "checked")
                if (name, offset) in there:
                    continue
                if not covered or not counted.shows(name):
                    count(figures, "unknown")
                    continue
                group, (topic, partition) = name
                yield Finding(
                    rule=NOT_AS_SENT,
                    topic=topic,
                    partition=partition,
                    producer_id=pid,
                    producer_epoch=epoch,
                    run=run[0].run,
                    evidence=f"group {quoted(group)}: offset {offset} of {topic}-{partition} was stored in a "
                    "transaction that is committed, and does not count",
                )
        outcomes: dict[Offset, set[bool | None]] = defaultdict(set)  # by offset, of the transactions it was sent in
        for each in own:
            for sent in each.sent:
                outcomes[sent].add(each.commits)
        for (name, offset), (log, commit) in there.items():
            count(figures, "checked")
            fates = outcomes.get((name, offset), set())
            if fates - {False}:
                continue
            group, (topic, partition) = name
            how = "was sent only in transactions that are aborted" if fates else "was never sent"
            evidence = f"group {quoted(group)}: offset {offset} of {topic}-{partition} counts, and {how}"
            yield replace(log.finding(NOT_AS_SENT, commit, evidence), run=run[0].run)
