----------------------------- MODULE LeaderMutants ----------------------------
(***************************************************************************)
(* What puts a leader's rules together, with one thing changed, and        *)
(* Kafka's own checks where the spec has others. A model puts one of them  *)
(* in the place of the rule; the Python function of the same name does the *)
(* same to the reference.                                                  *)
(***************************************************************************)
EXTENDS Leader, ProducerStateMutants

(* for BatchError: the sequence is checked before the guard *)
SequenceBeforeGuard(before, batch, version, guard) ==
    IF SequenceError(before, batch) # "NONE" THEN SequenceError(before, batch)
    ELSE IF GuardError(before, batch, version, guard) # "NONE" THEN GuardError(before, batch, version, guard)
    ELSE TransactionError(before, batch, version)

(* for GuardError: a leader asks for no guard (KAFKA-14402) *)
NoGuardAskedFor(before, batch, version, guard) ==
    IF version # 0 /\ batch.epoch < before.transactions.producers[batch.producerId].epoch
    THEN "INVALID_PRODUCER_EPOCH" ELSE "NONE"

(* for TransactionError: a leader appends batches from outside of the open transaction *)
NoTransactionLookedAt(before, batch, version) ==
    IF batch.epoch < before.transactions.producers[batch.producerId].epoch THEN "INVALID_PRODUCER_EPOCH" ELSE "NONE"

(* for TransactionError: together with NoFencing, no epoch is looked at *)
NoEpochLookedAt(before, batch, version) == "NONE"

(* for IsRetry: a leader that asks about transactions looks for no retries *)
NoRetryLookedFor(before, batch) == FALSE

(* for SequenceError: a leader looks at no sequence *)
NoSequenceLookedAt(before, batch) == "NONE"

(* for SequenceError: a later sequence than the lowest that was asked about is out of order, as in Kafka *)
LowestSequenceCounts(before, batch) ==
    IF IsOfCoordinator(batch) THEN "NONE"
    ELSE IF AppendError(before.log, batch) = "NONE" /\ IsAboveLowest(before, batch)
    THEN "OUT_OF_ORDER_SEQUENCE_NUMBER" ELSE AppendError(before.log, batch)

(* for SequenceError: an unknown producer begins a transaction of version 2 with sequence 0, as in Kafka *)
VersionTwoBeginsAnew(before, batch) ==
    IF IsOfCoordinator(batch) THEN "NONE"
    ELSE IF BeginsBehindZero(before, batch) THEN "OUT_OF_ORDER_SEQUENCE_NUMBER" ELSE AppendError(before.log, batch)

(* for SequenceError: both refusals, as in Kafka 4.3 *)
AsShipped(before, batch) ==
    IF IsOfCoordinator(batch) THEN "NONE"
    ELSE IF BeginsBehindZero(before, batch) THEN "OUT_OF_ORDER_SEQUENCE_NUMBER"
    ELSE IF AppendError(before.log, batch) = "NONE" /\ IsAboveLowest(before, batch)
    THEN "OUT_OF_ORDER_SEQUENCE_NUMBER" ELSE AppendError(before.log, batch)

(* for AskedAfterBatch: every batch of a transaction uses the guard up, as in Kafka *)
EveryBatchUsesGuardUp(before, batch, version) ==
    LET asked == before.asked[batch.producerId] IN
    IF version = 0 THEN asked ELSE [NothingAsked EXCEPT !.guard = asked.guard + 1]

(* A leader of Kafka 3.9 needs no guard: outside of transactions, and while one of any epoch is open. *)
MayLackGuard(before, producerId, version) ==
    version = 0 \/ ~Verification \/ OfVersion2!IsOpen(before.transactions.producers[producerId])

(* for GuardError: only the guard counts, whatever the epoch, as in Kafka 3.9 *)
GuardOfAnyEpoch(before, batch, version, guard) ==
    IF MayLackGuard(before, batch.producerId, version) \/ guard = before.asked[batch.producerId].guard
    THEN "NONE" ELSE "INVALID_TXN_STATE"

(* for NeedsVerification: nobody is asked while a transaction of any epoch is open, as in Kafka 3.9 *)
AsksUnlessOpen(before, producerId, epoch, version) == ~MayLackGuard(before, producerId, version)

(* for VerificationError: a leader asks about a batch of any epoch, as in Kafka 3.9 *)
AsksAboutAnyEpoch(before, producerId, epoch) == "NONE"

(* for AskedAfterMarker: a guard also serves the next transaction *)
GuardOutlivesMarker(before, marker, version) == before.asked[marker.producerId]

(* for AskedAfterMarker: a marker uses up the guard of a transaction that begins with its own epoch *)
MarkerUsesGuardUp(before, marker, version) ==
    [NothingAsked EXCEPT !.guard = before.asked[marker.producerId].guard + 1]

(* for WithMarker: a marker uses up the guards of the other producers as well *)
MarkerUsesAllGuardsUp(before, marker, version) ==
    LET log == WithoutSequence(before.log, marker.producerId, marker.epoch, 1) IN
    [log          |-> log,
     transactions |-> WithEntry(before, marker, log),
     asked        |-> [producerId \in ProducerIds |->
                          AskedAfterMarker(before, [marker EXCEPT !.producerId = producerId], version)]]

(* for WithoutSequence: a marker says nothing about sequences *)
MarkerRaisesNoEpoch(log, producerId, epoch, count) ==
    Appended(log, Batch(NoProducerId, NoEpoch, NoSequence, count))

(* for WithoutSequence: after a marker the sequences of every epoch restart *)
MarkerForgetsBatches(log, producerId, epoch, count) ==
    LET after == Appended(log, Batch(NoProducerId, NoEpoch, NoSequence, count)) IN
    [after EXCEPT !.producers = (producerId :> [epoch |-> epoch, batches |-> <<>>]) @@ @]

(* for WithEntry: transactions count entries, not records *)
OneRecordEach(before, entry, log) == OfVersion2!Appended(before.transactions, entry)

(* for WithEntry: a transaction whose marker is replicated still holds the last stable offset back *)
NeverReplicated(before, entry, log) ==
    OfVersion2!Written(before.transactions, [entry EXCEPT !.offset = LogEndOffset(before.log)])

(* for WithEntry: transactions are not told of a batch outside of them *)
PlainIsNotTold(before, entry, log) ==
    IF entry.kind = "plain" THEN before.transactions
    ELSE OfVersion2!WithReplicated(
             OfVersion2!Written(before.transactions, [entry EXCEPT !.offset = LogEndOffset(before.log)]),
             LogEndOffset(log))

(* for WithEntry: the index names the end of the log instead of the marker *)
IndexNamesLogEnd(before, entry, log) ==
    LET after == OfVersion2!WithReplicated(
                     OfVersion2!Written(before.transactions, [entry EXCEPT !.offset = LogEndOffset(before.log)]),
                     LogEndOffset(log))
        index == after.abortedIndex
    IN  IF Len(index) = Len(before.transactions.abortedIndex) THEN after
        ELSE [after EXCEPT !.abortedIndex[Len(index)].lastOffset = LogEndOffset(log)]

(* for MarkerError: every marker is judged by the rule of version 1 (KAFKA-19446) *)
MarkersOfVersion1(before, marker, version) == OfVersion1!MarkerError(before.transactions, marker)

(* for WithForgotten: the transactions of a producer that expires are kept *)
EpochOutlivesProducer(before, producerId) == [before EXCEPT !.log = Forgotten(@, producerId)]

(* Interesting states, which have to be reached *)
HasSecondTransaction == \E i, k \in DOMAIN Entries : i < k /\ IsEnd(i) /\ Entries[k].kind = "transactional"
HasMarkerKeptGuard   == \E one \in vouched : /\ leader.asked[one.producerId].guard = one.guard
                                             /\ Between(one.producerId, one.offset, LogEndOffset(leader.log)) # {}
HasPlainAfterMarker  == \E i, k \in DOMAIN Entries : i < k /\ IsEnd(i) /\ Entries[k].kind = "plain"
HasRefusedMarker     == answer.error = "TRANSACTION_COORDINATOR_FENCED"
HasCoordinatorsBatch == \E i \in DOMAIN leader.log.entries : \E k \in DOMAIN Entries :
                            /\ Entries[k].offset = leader.log.entries[i].offset /\ ~IsEnd(k)
                            /\ leader.log.entries[i].producerId = NoProducerId
HasAbortedIndex      == leader.transactions.abortedIndex # <<>>
HasTwoOpen           == Cardinality(leader.transactions.transactions) > 1
HasIndexBesideOpen   == \E k \in DOMAIN leader.transactions.abortedIndex :
                            leader.transactions.abortedIndex[k].lastStableOffset
                            < leader.transactions.abortedIndex[k].lastOffset

=============================================================================
