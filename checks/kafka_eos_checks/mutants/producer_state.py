"""The rules of ``spec/mutants/ProducerStateMutants.tla``, for the reference."""

from dataclasses import replace

from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch, CachedBatch, Limits, Log, Producers, ProducerState


def no_duplicate_cache(log: Log, batch: Batch) -> bool:
    """For ``is_duplicate``: the leader remembers no batch (KAFKA-5494)."""
    return False


def no_sequence_check(log: Log, batch: Batch) -> bool:
    """For ``is_in_sequence``: the leader checks no sequence."""
    return True


def cache_of_one(log: Log, producers: Producers, entry: Batch) -> Producers:
    """For ``remember``: the cache holds one batch only."""
    if entry.producer_id == NO_PRODUCER_ID:
        return producers
    batch = CachedBatch(sequence=entry.sequence, count=entry.count, offset=entry.offset)
    return producers.set(entry.producer_id, ProducerState(epoch=entry.epoch, batches=(batch,)))


def last_batch_only(log: Log, producer: ProducerState) -> ProducerState:
    """For ``snapshot_of``: only the last batch is kept, as in Kafka."""
    return replace(producer, batches=producer.batches[-1:])


def duplicates_of_any_epoch(log: Log, batch: Batch) -> tuple[CachedBatch, ...]:
    """For ``retry_candidates``: the epoch is no part of a batch's identity."""
    producer = log.producers.get(batch.producer_id)
    return () if producer is None else producer.batches


def any_sequence_on_virgin_partition(log: Log, batch: Batch) -> bool:
    """For ``accepts_unknown_producer``: every sequence passes, as in Kafka before 4.5 (KAFKA-15591)."""
    return True


def epoch_starts_anywhere(log: Log, batch: Batch) -> bool:
    """For ``starts_epoch`` (KAFKA-12152)."""
    return True


def follows_after_gap(log: Log, producer: ProducerState, batch: Batch) -> bool:
    """For ``follows``: a gap counts as no gap."""
    return batch.sequence > log.limits.last_sequence(producer.batches[-1])


def no_fencing(log: Log, producer: ProducerState, batch: Batch) -> bool:
    """For ``is_fenced``: an old epoch is accepted."""
    return False


def present_epoch_is_fenced(log: Log, producer: ProducerState, batch: Batch) -> bool:
    """For ``is_fenced``: the present epoch is refused, too."""
    return batch.epoch <= producer.epoch


def no_wrap(limits: Limits, sequence: int) -> int:
    """For ``next_sequence``: no wrap to 0 (KAFKA-7692)."""
    return sequence + 1


def state_before_append(log: Log, batch: Batch) -> Log:
    """For ``failed_to_append``: the state is published before the append can fail (KAFKA-6683)."""
    return replace(log, producers=log.remember(log.producers, replace(batch, offset=log.log_end_offset)))


def known_before_append(log: Log, batch: Batch) -> Log:
    """For ``failed_to_append``: a new producer is known, without batches, before the append can fail."""
    if log.knows_producer(batch.producer_id):
        return log
    return replace(log, producers=log.producers.set(batch.producer_id, ProducerState(epoch=0, batches=())))


def first_sequence_only(log: Log, cached: CachedBatch, batch: Batch) -> bool:
    """For ``is_retry_of``: the last sequence is not compared."""
    return cached.sequence == batch.sequence


def cache_survives_epoch(log: Log, producers: Producers, entry: Batch) -> Producers:
    """For ``remember``: an epoch's first batch leaves the cache as it was."""
    if entry.producer_id == NO_PRODUCER_ID:
        return producers
    known = producers.get(entry.producer_id)
    before = () if known is None else known.batches
    batch = CachedBatch(sequence=entry.sequence, count=entry.count, offset=entry.offset)
    batches = (*before, batch)[-log.limits.cached_batches :]
    return producers.set(entry.producer_id, ProducerState(epoch=entry.epoch, batches=batches))


def offsets_from_one(log: Log) -> int:
    """For ``log_end_offset``: offsets begin with 1."""
    return log.entries[-1].offset + log.entries[-1].count if log.entries else 1


def offsets_have_holes(log: Log) -> int:
    """For ``log_end_offset``: an offset is left out behind each batch."""
    return log.entries[-1].offset + log.entries[-1].count + 1 if log.entries else 0


def offset_of_log_end(log: Log, batch: Batch) -> int:
    """For ``duplicate_offset``: the acknowledgement names the end of the log, not the first copy."""
    return log.log_end_offset - 1


def not_above_largest_sequence(log: Log, batch: Batch) -> bool:
    """For ``is_duplicate``: only the largest sequence is known, and what is not above it is a duplicate."""
    producer = log.producers.get(batch.producer_id)
    if producer is None or producer.epoch != batch.epoch:
        return False
    return log.limits.last_sequence(batch) <= log.limits.last_sequence(producer.batches[-1])


def offset_of_last_batch(log: Log, batch: Batch) -> int:
    """For ``duplicate_offset``: together with NotAboveLargestSequence, the only offset that is known."""
    return log.producers[batch.producer_id].batches[-1].offset
