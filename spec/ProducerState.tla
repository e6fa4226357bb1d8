---------------------------- MODULE ProducerState ----------------------------
(***************************************************************************)
(* A partition leader's state of idempotent producers, and the checks it   *)
(* makes before it appends a batch. Pure operators over one replica's log; *)
(* no variables.                                                           *)
(*                                                                         *)
(* Modelled: epochs, sequences with their wrap, the cache of the last      *)
(*   batches of each producer, snapshots and the rebuilding of the state,  *)
(*   expiry, truncation.                                                   *)
(* Assumed, not checked: the content of a retry equals the content of the  *)
(*   first copy (a broker compares neither content nor CRC); a crash loses *)
(*   no byte that was written (kill -9, not loss of power).                *)
(* Out of scope: transactions and markers (TransactionalPartition, Leader);*)
(*   retention, since producers are kept until they expire by time         *)
(*   (KAFKA-7190); several snapshots, since the latest usable one decides. *)
(*                                                                         *)
(* KIPs: 98, 360.  Kafka: ProducerStateManager, ProducerStateEntry,        *)
(* ProducerAppendInfo, UnifiedLog.analyzeAndValidateProducerState.         *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    MaxSequence,     \* the last sequence before the wrap to 0; 2^31 - 1 in Kafka
    CachedBatches    \* batches remembered for each producer; 5 in Kafka

NoProducerId == -1   \* the producer id of a producer that is not idempotent

(***************************************************************************)
(* Batches and sequences                                                   *)
(***************************************************************************)

(* A batch as a producer sends it. The leader fills in the offset.         *)
Batch(producerId, epoch, sequence, count) ==
    [producerId |-> producerId, epoch |-> epoch, sequence |-> sequence, count |-> count, offset |-> -1]

(* The sequence after another one.    Kafka: DefaultRecordBatch.incrementSequence *)
NextSequence(sequence) == IF sequence = MaxSequence THEN 0 ELSE sequence + 1

(* The sequence of a batch's last record.                                  *)
LastSequence(batch) == (batch.sequence + batch.count - 1) % (MaxSequence + 1)

(***************************************************************************)
(* A log: its batches, what is known of the producers, the last snapshot   *)
(***************************************************************************)

NoProducers == [producerId \in {} |-> {}]

EmptyLog == [entries   |-> <<>>,
             producers |-> NoProducers,
             snapshot  |-> [offset |-> 0, producers |-> NoProducers]]

(* The offset that the next record gets.                                   *)
LogEndOffset(log) ==
    IF log.entries = <<>> THEN 0
    ELSE LET last == log.entries[Len(log.entries)] IN last.offset + last.count

KnowsProducer(log, producerId) == producerId \in DOMAIN log.producers

(***************************************************************************)
(* The checks, in Kafka's order: duplicate, epoch, sequence                *)
(***************************************************************************)

(* A batch has the first and the last sequence of a remembered one.        *)
IsRetryOf(cached, batch) == cached.sequence = batch.sequence /\ cached.count = batch.count

(* The remembered batches that a batch can be a retry of: those of its own epoch. *)
RetryCandidates(log, batch) ==
    IF KnowsProducer(log, batch.producerId) /\ log.producers[batch.producerId].epoch = batch.epoch
    THEN {log.producers[batch.producerId].batches[i] : i \in DOMAIN log.producers[batch.producerId].batches}
    ELSE {}

(* The batch is a retry of one that the leader remembers.                  *)
IsDuplicate(log, batch) == \E cached \in RetryCandidates(log, batch) : IsRetryOf(cached, batch)

(* The offset of the first copy of a duplicate.                                 *)
DuplicateOffset(log, batch) ==
    (CHOOSE cached \in RetryCandidates(log, batch) : IsRetryOf(cached, batch)).offset

(* The batch comes from an earlier epoch of its producer.                  *)
IsFenced(producer, batch) == batch.epoch < producer.epoch

(* A new epoch begins with sequence 0.                                     *)
StartsEpoch(batch) == batch.sequence = 0

(* The batch comes right after the last one of its epoch. An epoch that a marker has raised has none yet. *)
Follows(producer, batch) ==
    IF producer.batches = <<>> THEN StartsEpoch(batch)
    ELSE LET last == producer.batches[Len(producer.batches)]
         IN  batch.sequence = NextSequence(LastSequence(last))

(* Departs from Kafka: up to 4.4 every sequence passes there too (KAFKA-15591; the mutant AnySequenceOnVirginPartition). *)

(* Without state for the producer every sequence passes, unless the partition never held a record. *)
AcceptsUnknownProducer(log, batch) == log.entries # <<>> \/ batch.sequence = 0

(* The batch has the sequence that the log has to see next.                *)
IsInSequence(log, batch) ==
    IF ~KnowsProducer(log, batch.producerId) THEN AcceptsUnknownProducer(log, batch)
    ELSE LET producer == log.producers[batch.producerId]
         IN  IF batch.epoch # producer.epoch THEN StartsEpoch(batch) ELSE Follows(producer, batch)

(* The reason why the leader refuses a batch that is no duplicate; "NONE" if it does not. *)
AppendError(log, batch) ==
    IF batch.producerId = NoProducerId THEN "NONE"
    ELSE IF KnowsProducer(log, batch.producerId) /\ IsFenced(log.producers[batch.producerId], batch)
         THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF ~IsInSequence(log, batch) THEN "OUT_OF_ORDER_SEQUENCE_NUMBER"
    ELSE "NONE"

(***************************************************************************)
(* What an append changes                                                  *)
(***************************************************************************)

LastOf(sequence, n) == SubSeq(sequence, IF Len(sequence) > n THEN Len(sequence) - n + 1 ELSE 1, Len(sequence))

(* The producers after one more batch in the log. An epoch's first batch empties the cache. *)
Remember(producers, entry) ==
    IF entry.producerId = NoProducerId THEN producers
    ELSE LET known == entry.producerId \in DOMAIN producers /\ producers[entry.producerId].epoch = entry.epoch
             before == IF known THEN producers[entry.producerId].batches ELSE <<>>
             batch == [sequence |-> entry.sequence, count |-> entry.count, offset |-> entry.offset]
         IN  (entry.producerId :> [epoch   |-> entry.epoch,
                                   batches |-> LastOf(Append(before, batch), CachedBatches)]) @@ producers

(* The log after a batch has been appended.                                *)
Appended(log, batch) ==
    LET entry == [batch EXCEPT !.offset = LogEndOffset(log)]
    IN  [log EXCEPT !.entries = Append(@, entry), !.producers = Remember(@, entry)]

(* The log after an append that the storage failed: nothing has changed.   *)
FailedToAppend(log, batch) == log

(***************************************************************************)
(* Snapshot, rebuilding, truncation, expiry                                *)
(***************************************************************************)

(* The part of a producer's state that a snapshot keeps.                   *)
(* Departs from Kafka: a snapshot there keeps only the last batch (see the *)
(* mutant LastBatchOnly, and AutoMQ 437, which is akin to KAFKA-5494).     *)
SnapshotOf(producer) == producer

(* The log after its producers have been written to a snapshot.            *)
WithSnapshot(log) ==
    [log EXCEPT !.snapshot = [offset    |-> LogEndOffset(log),
                              producers |-> [p \in DOMAIN log.producers |-> SnapshotOf(log.producers[p])]]]

RECURSIVE Replay(_, _)
(* The producers after replaying batches in order.                         *)
Replay(producers, entries) ==
    IF entries = <<>> THEN producers ELSE Replay(Remember(producers, Head(entries)), Tail(entries))

(* The producers as a replica finds them when it loads the log again.         *)
Rebuilt(log) ==
    Replay(log.snapshot.producers,
           SelectSeq(log.entries, LAMBDA entry : entry.offset >= log.snapshot.offset))

(* The log as a replica finds it after a restart.                          *)
Reloaded(log) == [log EXCEPT !.producers = Rebuilt(log)]

(* The log cut back to an offset; a snapshot of a later end is dropped too. *)
Truncated(log, offset) ==
    Reloaded([log EXCEPT !.entries  = SelectSeq(@, LAMBDA entry : entry.offset < offset),
                         !.snapshot = IF @.offset > offset THEN EmptyLog.snapshot ELSE @])

(* The log without what was known of one producer.                         *)
Forgotten(log, producerId) ==
    [log EXCEPT !.producers = [p \in DOMAIN @ \ {producerId} |-> @[p]]]

=============================================================================
