"""The rules of ``spec/mutants/BrokerMutants.tla``, for the reference."""

from dataclasses import replace

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.machines import broker as brokers
from kafka_eos.machines import leader as leaders
from kafka_eos.machines import transaction_coordinator as coordinator
from kafka_eos.machines.broker import Broker
from kafka_eos.machines.group_coordinator import Offsets
from kafka_eos.machines.transaction_coordinator import TransactionMetadata
from kafka_eos.machines.transactional_partition import LogEntry, marker_entry
from kafka_eos_checks.mutants.producer_state import last_batch_only


def vouches_for_any_partition(
    broker: Broker, known: TransactionMetadata, producer_id: int, epoch: int, partition: str
) -> ErrorCode:
    """For ``answer_to_leader``: the coordinator vouches for a partition that is not in the transaction."""
    return broker.coordinating.add_error(replace(known, pending=None), producer_id, epoch)


def vouches_without_adding(broker: Broker, known: TransactionMetadata, partition: str) -> TransactionMetadata:
    """For ``after_vouching``: the coordinator vouches for a batch of version 2 and adds nothing."""
    return known


def gives_while_open(broker: Broker, known: TransactionMetadata) -> bool:
    """For ``aborts_first``: the coordinator gives an epoch while a transaction is open."""
    return False


def aborts_meanwhile(
    broker: Broker, known: TransactionMetadata, epoch: int, new_producer_id: int
) -> TransactionMetadata:
    """For ``after_init``, with ``gives_while_open``: the coordinator gives the epoch before there are markers."""
    if known.state is TransactionState.ONGOING:
        return broker.coordinating.after_fence(known, coordinator.NO_PRODUCER_ID)
    return Broker.after_init(broker, known, epoch, new_producer_id)


def open_goes_on_elsewhere(
    broker: Broker, known: TransactionMetadata, epoch: int, new_producer_id: int
) -> TransactionMetadata:
    """For ``after_init``, with ``gives_while_open``: the open transaction goes on, under another producer id."""
    if known.state is TransactionState.ONGOING:
        return replace(known, producer_id=new_producer_id, epoch=0)
    return Broker.after_init(broker, known, epoch, new_producer_id)


def vouches_for_later_id(
    broker: Broker, known: TransactionMetadata, producer_id: int, epoch: int, partition: str
) -> ErrorCode:
    """For ``answer_to_leader``: the coordinator vouches for a producer id that is yet to come."""
    return broker.coordinating.add_error(known, min(producer_id, known.producer_id), epoch)


def waits_while_open(broker: Broker, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    """For ``init_error``: a client waits as long as a transaction is open."""
    if known.state is TransactionState.ONGOING:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return Broker.init_error(broker, known, producer_id, epoch)


def always_the_first(broker: Broker) -> int:
    """For ``new_producer_id``: every producer is given the first producer id."""
    return 0


def offsets_always_commit(broker: Broker, known: TransactionMetadata, partition: str) -> LogEntry:
    """For ``marker_of``: the marker of the group's offsets commits whatever the coordinator has decided."""
    commit = partition == brokers.OFFSETS or coordinator.commits(known)
    return marker_entry(known.producer_id, known.epoch, commit, brokers.COORDINATOR_EPOCH)


def offsets_always_abort(broker: Broker, known: TransactionMetadata, partition: str) -> LogEntry:
    """For ``marker_of``: the marker of the group's offsets aborts whatever the coordinator has decided."""
    commit = partition != brokers.OFFSETS and coordinator.commits(known)
    return marker_entry(known.producer_id, known.epoch, commit, brokers.COORDINATOR_EPOCH)


def marker_of_former_coordinator(broker: Broker, known: TransactionMetadata, partition: str) -> LogEntry:
    """For ``marker_of``: the markers of the second transaction come from a coordinator that has been replaced."""
    coordinator_epoch = brokers.COORDINATOR_EPOCH - (known.number > 1)
    return marker_entry(known.producer_id, known.epoch, coordinator.commits(known), coordinator_epoch)


def pending_replaces_later(broker: Broker, producer_id: int, commit: bool) -> Offsets:
    """For ``committed_after_marker``: an offset replaces one that was committed after it (KAFKA-5247)."""
    pending = broker.pending.get(producer_id, brokers.NOTHING_PENDING)
    return pending if commit and pending != brokers.NOTHING_PENDING else broker.committed


def aborted_is_committed(broker: Broker, producer_id: int, commit: bool) -> Offsets:
    """For ``committed_after_marker``: the marker of an abort commits, too."""
    return Broker.committed_after_marker(broker, producer_id, True)


def markers_are_unheard(broker: Broker, producer_id: int, commit: bool) -> Offsets:
    """For ``committed_after_marker``: the group does not hear of markers."""
    return broker.committed


def nothing_is_pending(broker: Broker, producer_id: int, place: int) -> Map[int, Offsets]:
    """For ``with_pending``: the group forgets what waits for a marker."""
    return broker.pending


def marker_of_open_epoch(broker: Broker, known: TransactionMetadata, partition: str) -> LogEntry:
    """For ``marker_of``: a marker has the epoch of the transaction, not the one after it."""
    return marker_entry(known.producer_id, known.epoch - 1, coordinator.commits(known), brokers.COORDINATOR_EPOCH)


def any_generation_commits(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``commit_error``: a group does not check the generation."""
    stranger = member is not None and member not in broker.group.members
    return ErrorCode.UNKNOWN_MEMBER_ID if stranger else ErrorCode.NONE


def old_epoch_commits(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 takes any older epoch of its members."""
    group = broker.grouping
    if member in group.members() and generation < group.membership.members[member].epoch:
        return ErrorCode.NONE
    return group.member_epoch_error(member, generation, (brokers.DATA,))


def future_epoch_commits(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 takes an epoch that it has not given yet."""
    group = broker.grouping
    if member in group.members() and group.has_had_since(member, brokers.DATA, generation):
        return ErrorCode.NONE
    return group.member_epoch_error(member, generation, (brokers.DATA,))


def latest_epoch_commits(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 takes only the latest epoch of a member, as before KIP-1251."""
    if member is None:
        return ErrorCode.NONE
    if member not in broker.grouping.members():
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_latest = generation == broker.membership.members[member].epoch
    return ErrorCode.NONE if is_latest else ErrorCode.STALE_MEMBER_EPOCH


def epoch_counts_as_generation(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 judges an epoch as a classic one does a generation."""
    error = latest_epoch_commits(broker, member, generation)
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def unknown_in_former_epoch(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 knows its members only with their latest epochs."""
    error = latest_epoch_commits(broker, member, generation)
    return ErrorCode.UNKNOWN_MEMBER_ID if error is ErrorCode.STALE_MEMBER_EPOCH else error


def latest_epoch_is_refused(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 takes only epochs before the latest one."""
    if member is None:
        return ErrorCode.NONE
    group = broker.grouping
    if member not in group.members():
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_former = generation < group.membership.members[member].epoch
    takes = is_former and group.has_had_since(member, brokers.DATA, generation)
    return ErrorCode.NONE if takes else ErrorCode.STALE_MEMBER_EPOCH


def speaks_newest(broker: Broker, api: str, error: ErrorCode) -> ErrorCode:
    """For ``wire_error``: every version gets the newest error codes."""
    return error


def vouches_for_fenced(
    broker: Broker, known: TransactionMetadata, producer_id: int, epoch: int, partition: str
) -> ErrorCode:
    """For ``answer_to_leader``: the coordinator takes an epoch that it has fenced for the present one."""
    return Broker.answer_to_leader(broker, known, producer_id, max(epoch, known.epoch), partition)


def restart_keeps_one_batch(broker: Broker, before: leaders.LeaderState) -> leaders.LeaderState:
    """For ``leader_after_restart``: only the last batch of each producer is remembered, as in Kafka."""
    after = Broker.leader_after_restart(broker, before)
    kept = {producer_id: last_batch_only(after.log, known) for producer_id, known in after.log.producers.items()}
    return replace(after, log=replace(after.log, producers=Map(kept)))


def questions_outlive_restart(broker: Broker, before: leaders.LeaderState) -> leaders.LeaderState:
    """For ``leader_after_restart``: the verification of a batch outlives a restart."""
    return replace(Broker.leader_after_restart(broker, before), asked=before.asked)


def known_outlive_restart(broker: Broker, before: leaders.LeaderState) -> leaders.LeaderState:
    """For ``leader_after_restart``: the verification of a batch outlives a restart if the log knows the producer."""
    after = Broker.leader_after_restart(broker, before)
    known = {producer_id: each for producer_id, each in before.asked.items() if before.log.knows_producer(producer_id)}
    return replace(after, asked=after.asked.update(known))


def restart_forgets_markers(broker: Broker, known: TransactionMetadata) -> TransactionMetadata:
    """For ``metadata_after_restart``: the coordinator does not go on with a prepared transaction."""
    return broker.coordinating.in_log(known)


def restart_forgets_end(broker: Broker, known: TransactionMetadata) -> TransactionMetadata:
    """For ``metadata_after_restart``: the coordinator does not know how the last transaction has ended."""
    after = Broker.metadata_after_restart(broker, known)
    return replace(after, state=TransactionState.EMPTY) if after.state in coordinator.COMPLETED_STATES else after


def restart_guesses_last_epoch(broker: Broker, known: TransactionMetadata) -> TransactionMetadata:
    """For ``metadata_after_restart``: the coordinator takes a client that it has fenced for one that asks again."""
    after = Broker.metadata_after_restart(broker, known)
    return replace(after, last_epoch=after.epoch - 1)
