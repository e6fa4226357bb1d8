----------------------------- MODULE PartitionLog -----------------------------
(***************************************************************************)
(* One replica that leads a partition and answers any produce request:     *)
(* valid ones, retries, and requests that no sane client sends.            *)
(*                                                                         *)
(* Modelled: the three outcomes of a request (appended, acknowledged as a  *)
(*   duplicate, refused), a failing storage, snapshot, restart, expiry.    *)
(* Assumed, not checked: requests are handled one at a time, as the lock   *)
(*   of UnifiedLog makes sure.                                             *)
(* Out of scope: replication (ReplicatedLog), clients and their network    *)
(*   (IdempotentProducer), transactions.                                   *)
(*                                                                         *)
(* KIPs: 98, 360.  Kafka: ReplicaManager.appendRecords, UnifiedLog.append. *)
(***************************************************************************)
EXTENDS ProducerState

CONSTANTS
    ProducerIds,     \* the producers that send requests
    Epochs,          \* the epochs they send
    Sequences,       \* the sequences they send
    BatchCounts,     \* the numbers of records in a batch
    Expiration       \* TRUE: a producer's state may expire

ASSUME /\ Sequences \subseteq 0..MaxSequence
       /\ \A count \in BatchCounts : count * CachedBatches <= MaxSequence  \* else a cached batch is ambiguous

VARIABLES
    log,             \* the replica's log
    response         \* the answer to the last request, with the request it answers

vars == <<log, response>>

Response(batch, error, offset) == [batch EXCEPT !.offset = offset] @@ [error |-> error]

Init == /\ log = EmptyLog
        /\ response = Response(Batch(NoProducerId, -1, -1, 0), "NONE", -1)

(***************************************************************************)
(* A produce request                                    WHO: the leader    *)
(***************************************************************************)

(* The leader appends a batch that passed every check. *)
AppendBatch(producerId, epoch, sequence, count) ==
    LET batch == Batch(producerId, epoch, sequence, count) IN
    /\ ~IsDuplicate(log, batch)
    /\ AppendError(log, batch) = "NONE"
    /\ log' = Appended(log, batch)
    /\ response' = Response(batch, "NONE", LogEndOffset(log))

(* The leader acknowledges a retry with the offset of the first copy. *)
AcknowledgeDuplicate(producerId, epoch, sequence, count) ==
    LET batch == Batch(producerId, epoch, sequence, count) IN
    /\ IsDuplicate(log, batch)
    /\ response' = Response(batch, "NONE", DuplicateOffset(log, batch))
    /\ UNCHANGED log

(* The leader refuses a batch that fails a check. *)
RefuseBatch(producerId, epoch, sequence, count) ==
    LET batch == Batch(producerId, epoch, sequence, count) IN
    /\ ~IsDuplicate(log, batch)
    /\ AppendError(log, batch) # "NONE"
    /\ response' = Response(batch, AppendError(log, batch), -1)
    /\ UNCHANGED log

(* The storage fails while the leader appends a batch that passed every check. *)
FailAppend(producerId, epoch, sequence, count) ==
    LET batch == Batch(producerId, epoch, sequence, count) IN
    /\ ~IsDuplicate(log, batch)
    /\ AppendError(log, batch) = "NONE"
    /\ log' = FailedToAppend(log, batch)
    /\ response' = Response(batch, "KAFKA_STORAGE_ERROR", -1)

(***************************************************************************)
(* The replica by itself                               WHO: the replica    *)
(***************************************************************************)

(* The replica writes what it knows of the producers to a snapshot. *)
TakeSnapshot ==
    /\ log.snapshot.offset < LogEndOffset(log)
    /\ log' = WithSnapshot(log)
    /\ UNCHANGED response

(* The replica starts again and rebuilds the producers from snapshot and log. *)
Restart ==
    /\ log' = Reloaded(log)
    /\ UNCHANGED response

(* The replica forgets a producer that has been silent for too long. *)
ExpireProducer(producerId) ==
    /\ Expiration
    /\ KnowsProducer(log, producerId)
    /\ log' = Forgotten(log, producerId)
    /\ UNCHANGED response

Next ==
    \/ \E producerId \in ProducerIds, epoch \in Epochs, sequence \in Sequences, count \in BatchCounts :
        \/ AppendBatch(producerId, epoch, sequence, count)
        \/ AcknowledgeDuplicate(producerId, epoch, sequence, count)
        \/ RefuseBatch(producerId, epoch, sequence, count)
        \/ FailAppend(producerId, epoch, sequence, count)
    \/ TakeSnapshot
    \/ Restart
    \/ \E producerId \in ProducerIds : ExpireProducer(producerId)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Properties, over the log's batches and the answers                      *)
(***************************************************************************)

(* The batches of one producer, in the order of the log.                   *)
BatchesOf(producerId) == SelectSeq(log.entries, LAMBDA entry : entry.producerId = producerId)

(* The sequence that has to come after a batch. Not NextSequence: a property shares no rule with what it judges. *)
Successor(batch) == (batch.sequence + batch.count) % (MaxSequence + 1)

(* Pairs of neighbours in a sequence. *)
Neighbours(sequence) == {<<sequence[i], sequence[i + 1]>> : i \in 1..(Len(sequence) - 1)}

(* Within an epoch each batch begins where the one before it ended: no gap, no duplicate. *)
NoGapNoDuplicate ==
    \A producerId \in ProducerIds : \A pair \in Neighbours(BatchesOf(producerId)) :
        pair[1].epoch = pair[2].epoch => pair[2].sequence = Successor(pair[1])
NoGapNoDuplicateWitness ==
    \E producerId \in ProducerIds : \E pair \in Neighbours(BatchesOf(producerId)) : pair[1].epoch = pair[2].epoch

(* A later epoch begins with sequence 0. *)
NoGapAtEpochStart ==
    \A producerId \in ProducerIds : \A pair \in Neighbours(BatchesOf(producerId)) :
        pair[1].epoch < pair[2].epoch => pair[2].sequence = 0
NoGapAtEpochStartWitness ==
    \E producerId \in ProducerIds : \E pair \in Neighbours(BatchesOf(producerId)) : pair[1].epoch < pair[2].epoch

(* The first batch that a partition ever holds begins with sequence 0. *)
NoGapAtLogStart == log.entries # <<>> => log.entries[1].sequence = 0
NoGapAtLogStartWitness == log.entries # <<>>

(* A fenced epoch stays fenced: the epochs of a producer never go back. *)
EpochsNeverGoBack ==
    \A producerId \in ProducerIds : \A pair \in Neighbours(BatchesOf(producerId)) : pair[1].epoch <= pair[2].epoch
EpochsNeverGoBackWitness == \E i \in DOMAIN log.entries, epoch \in Epochs : epoch < log.entries[i].epoch

(* Batches follow each other without holes in the offsets. *)
OffsetsAreDense ==
    /\ log.entries # <<>> => log.entries[1].offset = 0
    /\ \A pair \in Neighbours(log.entries) : pair[2].offset = pair[1].offset + pair[1].count
OffsetsAreDenseWitness == Len(log.entries) > 1

Request == [producerId |-> response.producerId, epoch |-> response.epoch,
            sequence |-> response.sequence, count |-> response.count]

IsCopyOf(entry, request) == \A name \in DOMAIN request : entry[name] = request[name]

(* Every acknowledged batch is in the log, as it was sent, at the offset in the answer. *)
AcknowledgedIsStored ==
    response.error = "NONE" /\ response.count > 0 =>
        \E i \in DOMAIN log.entries : /\ IsCopyOf(log.entries[i], Request)
                                      /\ log.entries[i].offset = response.offset
AcknowledgedIsStoredWitness ==
    response.error = "NONE" /\ response.count > 0 /\ response.offset + response.count < LogEndOffset(log)

(* No spurious error: a retry of one of the producer's last batches is never refused. *)
RecentRetryIsAcknowledged ==
    response.error # "NONE" =>
        LET sent   == BatchesOf(response.producerId)
            recent == LastOf(sent, CachedBatches)
        IN  \A i \in DOMAIN recent :
                ~(IsCopyOf(recent[i], Request) /\ recent[i].epoch = sent[Len(sent)].epoch)
RecentRetryIsAcknowledgedWitness == response.error # "NONE" /\ BatchesOf(response.producerId) # <<>>

(* No spurious error: the batch that has to come next is never refused. *)
NextIsAccepted ==
    response.error \in {"OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"} =>
        LET sent == BatchesOf(response.producerId)
            last == sent[Len(sent)]
        IN  /\ sent = <<>> => response.sequence # 0
            /\ sent # <<>> =>
                  IF response.epoch = last.epoch THEN response.sequence # Successor(last)
                  ELSE response.epoch < last.epoch \/ response.sequence # 0
NextIsAcceptedWitness ==
    /\ response.error \in {"OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"}
    /\ BatchesOf(response.producerId) # <<>>

(* The replica's state of the producers is what it would find after a restart from the whole log. *)
StateFollowsLog == log.producers = Replay(NoProducers, log.entries)
StateFollowsLogWitness ==
    log.producers # NoProducers /\ 0 < log.snapshot.offset /\ log.snapshot.offset < LogEndOffset(log)

=============================================================================
