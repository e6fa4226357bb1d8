-------------------------- MODULE ProducerStateMutants ------------------------
(***************************************************************************)
(* Rules of ProducerState with one thing changed. A model puts one of them *)
(* in the place of the rule; the Python class of the same name does the    *)
(* same to the reference.                                                  *)
(***************************************************************************)
EXTENDS ProducerState

(* for IsDuplicate: the leader remembers no batch (KAFKA-5494) *)
NoDuplicateCache(log, batch) == FALSE

(* for IsInSequence: the leader checks no sequence *)
NoSequenceCheck(log, batch) == TRUE

(* for Remember: the cache holds one batch only *)
CacheOfOne(producers, entry) ==
    IF entry.producerId = NoProducerId THEN producers
    ELSE (entry.producerId :> [epoch   |-> entry.epoch,
                               batches |-> <<[sequence |-> entry.sequence, count |-> entry.count,
                                              offset |-> entry.offset]>>]) @@ producers

(* for SnapshotOf: only the last batch is kept, as in Kafka *)
LastBatchOnly(producer) == [producer EXCEPT !.batches = LastOf(@, 1)]

(* for RetryCandidates: the epoch is no part of a batch's identity *)
DuplicatesOfAnyEpoch(log, batch) ==
    IF KnowsProducer(log, batch.producerId)
    THEN {log.producers[batch.producerId].batches[i] : i \in DOMAIN log.producers[batch.producerId].batches}
    ELSE {}

(* for AcceptsUnknownProducer: every sequence passes, as in Kafka before 4.5 (KAFKA-15591) *)
AnySequenceOnVirginPartition(log, batch) == TRUE

(* for StartsEpoch (KAFKA-12152) *)
EpochStartsAnywhere(batch) == TRUE

(* for Follows: a gap counts as no gap *)
FollowsAfterGap(producer, batch) ==
    LET last == producer.batches[Len(producer.batches)] IN batch.sequence > LastSequence(last)

(* for IsFenced: an old epoch is accepted *)
NoFencing(producer, batch) == FALSE

(* for IsFenced: the present epoch is refused, too *)
PresentEpochIsFenced(producer, batch) == batch.epoch <= producer.epoch

(* for NextSequence: no wrap to 0 (KAFKA-7692) *)
NoWrap(sequence) == sequence + 1

(* for FailedToAppend: the state is published before the append can fail (KAFKA-6683) *)
StateBeforeAppend(log, batch) ==
    [log EXCEPT !.producers = Remember(@, [batch EXCEPT !.offset = LogEndOffset(log)])]

(* for FailedToAppend: a new producer is known, without batches, before the append can fail *)
KnownBeforeAppend(log, batch) ==
    IF KnowsProducer(log, batch.producerId) THEN log
    ELSE [log EXCEPT !.producers = (batch.producerId :> [epoch |-> 0, batches |-> <<>>]) @@ @]

(* for IsRetryOf: the last sequence is not compared *)
FirstSequenceOnly(cached, batch) == cached.sequence = batch.sequence

(* for Remember: an epoch's first batch leaves the cache as it was *)
CacheSurvivesEpoch(producers, entry) ==
    IF entry.producerId = NoProducerId THEN producers
    ELSE LET before == IF entry.producerId \in DOMAIN producers THEN producers[entry.producerId].batches ELSE <<>>
             batch == [sequence |-> entry.sequence, count |-> entry.count, offset |-> entry.offset]
         IN  (entry.producerId :> [epoch   |-> entry.epoch,
                                   batches |-> LastOf(Append(before, batch), CachedBatches)]) @@ producers

(* for LogEndOffset: offsets begin with 1 *)
OffsetsFromOne(log) ==
    IF log.entries = <<>> THEN 1
    ELSE LET last == log.entries[Len(log.entries)] IN last.offset + last.count

(* for LogEndOffset: an offset is left out behind each batch *)
OffsetsHaveHoles(log) ==
    IF log.entries = <<>> THEN 0
    ELSE LET last == log.entries[Len(log.entries)] IN last.offset + last.count + 1

(* for DuplicateOffset: the acknowledgement names the end of the log, not the first copy *)
OffsetOfLogEnd(log, batch) == LogEndOffset(log) - 1

(* for IsDuplicate: only the largest sequence is known, and what is not above it is a duplicate *)
NotAboveLargestSequence(log, batch) ==
    /\ KnowsProducer(log, batch.producerId)
    /\ LET producer == log.producers[batch.producerId]
       IN  /\ producer.epoch = batch.epoch
           /\ LastSequence(batch) <= LastSequence(producer.batches[Len(producer.batches)])

(* for DuplicateOffset: together with NotAboveLargestSequence, the only offset that is known *)
OffsetOfLastBatch(log, batch) ==
    LET batches == log.producers[batch.producerId].batches IN batches[Len(batches)].offset

=============================================================================
