"""The rules of ``spec/mutants/LeaderMutants.tla``, for the reference."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from immutables import Map
from pyrsistent import pvector

from kafka_eos.errors import ErrorCode
from kafka_eos.machines import leader as leaders
from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch, Log, ProducerState
from kafka_eos.machines.transactional_partition import ABORT, COMMIT, PLAIN, TRANSACTIONAL, LeaderLog, LogEntry

Choice = Callable[[Iterable[int]], int]


def sequence_before_guard(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int, guard: int
) -> ErrorCode:
    """For ``batch_error``: the sequence is checked before the guard."""
    if (error := rules.sequence_error(before, batch)) is not ErrorCode.NONE:
        return error
    if (error := rules.guard_error(before, batch, version, guard)) is not ErrorCode.NONE:
        return error
    return rules.transaction_error(before, batch, version)


def no_guard_asked_for(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int, guard: int
) -> ErrorCode:
    """For ``guard_error``: a leader asks for no guard (KAFKA-14402)."""
    is_old = version != leaders.OUTSIDE and batch.epoch < before.producer(batch.producer_id).epoch
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else ErrorCode.NONE


def no_transaction_looked_at(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int
) -> ErrorCode:
    """For ``transaction_error``: a leader appends batches from outside of the open transaction."""
    is_old = batch.epoch < before.producer(batch.producer_id).epoch
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else ErrorCode.NONE


def no_epoch_looked_at(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int) -> ErrorCode:
    """For ``transaction_error``: together with NoFencing, no epoch is looked at."""
    return ErrorCode.NONE


def no_retry_looked_for(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> bool:
    """For ``is_retry``: a leader that asks about transactions looks for no retries."""
    return False


def no_sequence_looked_at(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> ErrorCode:
    """For ``sequence_error``: a leader looks at no sequence."""
    return ErrorCode.NONE


def lowest_sequence_counts(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> ErrorCode:
    """For ``sequence_error``: a later sequence than the lowest that was asked about is out of order, as in Kafka.

    KAFKA-14920
    """
    if rules.is_of_coordinator(batch):
        return ErrorCode.NONE
    error = before.log.append_error(batch)
    is_later = error is ErrorCode.NONE and rules.is_above_lowest(before, batch)
    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_later else error


def version_two_begins_anew(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> ErrorCode:
    """For ``sequence_error``: an unknown producer begins a transaction of version 2 with sequence 0, as in Kafka.

    KAFKA-18202
    """
    if rules.is_of_coordinator(batch):
        return ErrorCode.NONE
    if rules.begins_behind_zero(before, batch):
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return before.log.append_error(batch)


def as_shipped(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> ErrorCode:
    """For ``sequence_error``: both refusals, as in Kafka 4.3."""
    error = version_two_begins_anew(rules, before, batch)
    return lowest_sequence_counts(rules, before, batch) if error is ErrorCode.NONE else error


def unknown_is_fenced(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> ErrorCode:
    """For ``sequence_error``: a leader fences a producer that it does not know, unless the log is empty."""
    if rules.is_of_coordinator(batch):
        return ErrorCode.NONE
    if before.log.entries and not before.log.knows_producer(batch.producer_id):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return before.log.append_error(batch)


def first_question_decides(rules: leaders.Rules, asked: leaders.Asked, version: int) -> int:
    """For ``question_version``: the version of the first question that shares a guard counts, as in Kafka."""
    return asked.guard_version or version


def every_batch_uses_guard_up(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int
) -> leaders.Asked:
    """For ``asked_after_batch``: every batch of a transaction uses the guard up, as in Kafka."""
    asked = before.questions(batch.producer_id)
    return asked if version == leaders.OUTSIDE else leaders.Asked(guard=asked.guard + 1)


def _may_lack_guard(rules: leaders.Rules, before: leaders.LeaderState, producer_id: int, version: int) -> bool:
    """A leader of Kafka 3.9 needs no guard: outside of transactions, and while one of any epoch is open."""
    asks = version != leaders.OUTSIDE and rules.guards.constants.verification
    return not asks or before.producer(producer_id).is_open


def guard_of_any_epoch(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int, guard: int
) -> ErrorCode:
    """For ``guard_error``: only the guard counts, whatever the epoch, as in Kafka 3.9."""
    has_one = _may_lack_guard(rules, before, batch.producer_id, version)
    has_one = has_one or guard == before.questions(batch.producer_id).guard
    return ErrorCode.NONE if has_one else ErrorCode.INVALID_TXN_STATE


def _error_by_questions(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int, guard: int, choose: Choice
) -> ErrorCode:
    """A leader also refuses a batch whose epoch is below that of its questions about the chosen producer."""
    error = leaders.Rules.guard_error(rules, before, batch, version, guard)
    asked = [producer_id for producer_id, each in before.asked.items() if each.guard_epoch != leaders.NO_EPOCH]
    if version == leaders.OUTSIDE or error is not ErrorCode.NONE or not asked:
        return error
    is_below = batch.epoch < before.questions(choose(asked)).guard_epoch
    return ErrorCode.INVALID_TXN_STATE if is_below else ErrorCode.NONE


def first_question_counts(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int, guard: int
) -> ErrorCode:
    """For ``guard_error``: the question about the first producer counts for all."""
    return _error_by_questions(rules, before, batch, version, guard, min)


def last_question_counts(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int, guard: int
) -> ErrorCode:
    """For ``guard_error``: the question about the last producer counts for all."""
    return _error_by_questions(rules, before, batch, version, guard, max)


def asks_unless_open(
    rules: leaders.Rules, before: leaders.LeaderState, producer_id: int, epoch: int, version: int
) -> bool:
    """For ``needs_verification``: nobody is asked while a transaction of any epoch is open, as in Kafka 3.9."""
    return not _may_lack_guard(rules, before, producer_id, version)


def asks_about_any_epoch(rules: leaders.Rules, before: leaders.LeaderState, producer_id: int, epoch: int) -> ErrorCode:
    """For ``verification_error``: a leader asks about a batch of any epoch, as in Kafka 3.9."""
    return ErrorCode.NONE


def guard_outlives_marker(
    rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int
) -> leaders.Asked:
    """For ``asked_after_marker``: a guard also serves the next transaction."""
    return before.questions(marker.producer_id)


def marker_uses_guard_up(
    rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int
) -> leaders.Asked:
    """For ``asked_after_marker``: a marker uses up the guard of a transaction that begins with its own epoch.

    KAFKA-18575
    """
    return leaders.Asked(guard=before.questions(marker.producer_id).guard + 1)


def marker_uses_all_guards_up(
    rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int
) -> leaders.LeaderState:
    """For ``with_marker``: a marker uses up the guards of the other producers as well."""
    log = rules.without_sequence(before.log, marker.producer_id, marker.epoch, 1)
    asked = {
        producer_id: rules.asked_after_marker(before, replace(marker, producer_id=producer_id), version)
        for producer_id in {*before.asked, marker.producer_id}
    }
    return leaders.LeaderState(log=log, transactions=rules.with_entry(before, marker, log), asked=Map(asked))


def marker_raises_no_epoch(rules: leaders.Rules, log: Log, producer_id: int, epoch: int, count: int) -> Log:
    """For ``without_sequence``: a marker says nothing about sequences."""
    return log.appended(Batch(producer_id=NO_PRODUCER_ID, epoch=-1, sequence=-1, count=count))


def marker_forgets_batches(rules: leaders.Rules, log: Log, producer_id: int, epoch: int, count: int) -> Log:
    """For ``without_sequence``: after a marker the sequences of every epoch restart."""
    after = log.appended(Batch(producer_id=NO_PRODUCER_ID, epoch=-1, sequence=-1, count=count))
    return replace(after, producers=after.producers.set(producer_id, ProducerState(epoch=epoch, batches=())))


def one_record_each(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: transactions count entries, not records."""
    known = before.knowing(entry.producer_id)
    end = known.entries[-1].offset + 1 if known.entries else 0
    return rules.version_2.written(known, replace(entry, offset=end))


def never_replicated(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: a transaction whose marker is replicated still holds the last stable offset back."""
    at = replace(entry, offset=before.log.log_end_offset)
    return rules.version_2.written(before.knowing(entry.producer_id), at)


def _told_at(offset: int, rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """The transactions after an entry, which is at this offset for them."""
    written = rules.version_2.written(before.knowing(entry.producer_id), replace(entry, offset=offset))
    return rules.version_2.with_replicated(written, log.log_end_offset)


def _told(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """The transactions after an entry."""
    return _told_at(before.log.log_end_offset, rules, before, entry, log)


def plain_is_not_told(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: transactions are not told of a batch outside of them."""
    return before.knowing(entry.producer_id) if entry.kind == PLAIN else _told(rules, before, entry, log)


def marker_at_log_end(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: a marker is at the end of the log behind it."""
    offset = log.log_end_offset if entry.is_marker else before.log.log_end_offset
    return _told_at(offset, rules, before, entry, log)


def at_last_record(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: an entry is at the offset of the record before it."""
    return _told_at(max(0, before.log.log_end_offset - 1), rules, before, entry, log)


def last_of_epoch_is_kept(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: of each epoch of a producer only the last entry is kept."""
    after, own = _told(rules, before, entry, log), (entry.producer_id, entry.epoch)
    others = [other for other in after.entries[:-1] if (other.producer_id, other.epoch) != own]
    return replace(after, entries=pvector([*others, after.entries[-1]]))


def first_epoch_is_kept(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: transactions keep the first epoch of a producer."""
    known = before.producer(entry.producer_id).epoch
    return _told(rules, before, entry if known == leaders.NO_EPOCH else replace(entry, epoch=known), log)


def next_epoch_is_told(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: transactions are told the epoch after that of the entry."""
    return _told(rules, before, replace(entry, epoch=entry.epoch + 1), log)


def _taken_for(
    kinds: Mapping[str, str], rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log
) -> LeaderLog:
    """The transactions after an entry that they take for one of another kind."""
    after = _told(rules, before, replace(entry, kind=kinds.get(entry.kind, entry.kind)), log)
    last = replace(after.entries[-1], kind=entry.kind)
    return replace(after, entries=after.entries.set(len(after.entries) - 1, last))


def commit_is_indexed(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: a committed transaction is in the index as well."""
    return _taken_for({COMMIT: ABORT}, rules, before, entry, log)


def plain_begins(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: a batch outside of transactions begins one."""
    return _taken_for({PLAIN: TRANSACTIONAL}, rules, before, entry, log)


def plain_aborts(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: a batch outside of transactions aborts the one that is open."""
    return _taken_for({PLAIN: ABORT}, rules, before, entry, log)


def _indexed(
    rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log, first_offset: int, last_offset: int
) -> LeaderLog:
    """The transactions after an entry; if the index has a new transaction, it has these offsets."""
    after = _told(rules, before, entry, log)
    index = after.aborted_index
    if len(index) == len(before.transactions.aborted_index):
        return after
    new = replace(index[-1], first_offset=first_offset, last_offset=last_offset)
    return replace(after, aborted_index=index.set(len(index) - 1, new))


def index_names_log_end(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: the index names the end of the log instead of the marker."""
    first = before.producer(entry.producer_id).first_offset
    return _indexed(rules, before, entry, log, first, log.log_end_offset)


def index_names_first_twice(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: the index names the first batch of the transaction instead of the marker."""
    first = before.producer(entry.producer_id).first_offset
    return _indexed(rules, before, entry, log, first, first)


def index_names_marker_twice(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: the index names the marker instead of the first batch."""
    return _indexed(rules, before, entry, log, before.log.log_end_offset, before.log.log_end_offset)


def index_names_commit(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: the index names the commit before the transaction instead of its first batch."""
    own = [known for known in before.transactions.entries if known.producer_id == entry.producer_id]
    commits = [known.offset for known in own if known.kind == COMMIT]
    first = commits[-1] if commits else before.producer(entry.producer_id).first_offset
    return _indexed(rules, before, entry, log, first, before.log.log_end_offset)


def markers_of_version1(rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int) -> ErrorCode:
    """For ``marker_error``: every marker is judged by the rule of version 1 (KAFKA-19446)."""
    return rules.version_1.marker_error(before.knowing(marker.producer_id), marker)


def markers_of_version2(rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int) -> ErrorCode:
    """For ``marker_error``: every marker is judged by the rule of version 2."""
    return rules.version_2.marker_error(before.knowing(marker.producer_id), marker)


def known_coordinator_is_fenced(
    rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int
) -> ErrorCode:
    """For ``marker_error``: a leader takes one marker of each coordinator."""
    error = leaders.Rules.marker_error(rules, before, marker, version)
    is_known = marker.coordinator_epoch <= before.producer(marker.producer_id).coordinator_epoch
    return ErrorCode.TRANSACTION_COORDINATOR_FENCED if error is ErrorCode.NONE and is_known else error


def own_epoch_is_of_old_coordinator(
    rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int
) -> ErrorCode:
    """For ``marker_error``: a marker with the epoch of its transaction is taken for one of an old coordinator."""
    error = leaders.Rules.marker_error(rules, before, marker, version)
    is_own = marker.epoch == before.producer(marker.producer_id).epoch
    return ErrorCode.TRANSACTION_COORDINATOR_FENCED if error is not ErrorCode.NONE and is_own else error


def epoch_outlives_producer(rules: leaders.Rules, before: leaders.LeaderState, producer_id: int) -> leaders.LeaderState:
    """For ``with_forgotten``: the transactions of a producer that expires are kept."""
    return replace(before, log=before.log.forgotten(producer_id))
