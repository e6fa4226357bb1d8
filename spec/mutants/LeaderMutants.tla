----------------------------- MODULE LeaderMutants ----------------------------
(***************************************************************************)
(* What puts a leader's rules together, with one thing changed, and        *)
(* Kafka's own checks where the spec has others. A model puts one of them  *)
(* in the place of the rule; the Python function of the same name does the *)
(* same to the reference.                                                  *)
(***************************************************************************)
EXTENDS Leader, ProducerStateMutants

(* for QuestionVersion: the version of the first question that shares a guard counts, as in Kafka *)
FirstQuestionDecides(asked, version) == IF asked.guardVersion = 0 THEN version ELSE asked.guardVersion

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

(* for SequenceError: a leader fences a producer that it does not know, unless the log is empty *)
UnknownIsFenced(before, batch) ==
    IF IsOfCoordinator(batch) THEN "NONE"
    ELSE IF ~KnowsProducer(before.log, batch.producerId) /\ before.log.entries # <<>> THEN "INVALID_PRODUCER_EPOCH"
    ELSE AppendError(before.log, batch)

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

(* The producers that a leader has asked about. *)
Asked(before) == {producerId \in ProducerIds : before.asked[producerId].guardEpoch # NoEpoch}

(* A leader also refuses a batch whose epoch is below that of its questions about these producers. *)
ErrorByQuestions(producerIds, before, batch, version, guard) ==
    LET error == Guards!DataError(Guarded(before, batch.producerId), batch.epoch, guard) IN
    IF version = 0 THEN "NONE"
    ELSE IF error = "NONE" /\ \E id \in producerIds : before.asked[id].guardEpoch > batch.epoch THEN "INVALID_TXN_STATE"
    ELSE error

(* for GuardError: the question about the first producer counts for all *)
FirstQuestionCounts(before, batch, version, guard) ==
    ErrorByQuestions({id \in Asked(before) : \A other \in Asked(before) : id <= other}, before, batch, version, guard)

(* for GuardError: the question about the last producer counts for all *)
LastQuestionCounts(before, batch, version, guard) ==
    ErrorByQuestions({id \in Asked(before) : \A other \in Asked(before) : id >= other}, before, batch, version, guard)

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

(* The transactions after an entry, which is at this offset for them. *)
ToldAt(offset, before, entry, log) ==
    LET after == OfVersion2!Written(before.transactions, [entry EXCEPT !.offset = offset])
    IN  OfVersion2!WithReplicated(after, LogEndOffset(log))

(* The transactions after an entry. *)
Told(before, entry, log) == ToldAt(LogEndOffset(before.log), before, entry, log)

(* for WithEntry: transactions are not told of a batch outside of them *)
PlainIsNotTold(before, entry, log) ==
    IF entry.kind = "plain" THEN before.transactions ELSE Told(before, entry, log)

(* for WithEntry: a marker is at the end of the log behind it *)
MarkerAtLogEnd(before, entry, log) ==
    ToldAt(LogEndOffset(IF OfVersion2!IsMarker(entry) THEN log ELSE before.log), before, entry, log)

(* for WithEntry: an entry is at the offset of the record before it *)
AtLastRecord(before, entry, log) ==
    ToldAt(IF LogEndOffset(before.log) = 0 THEN 0 ELSE LogEndOffset(before.log) - 1, before, entry, log)

(* for WithEntry: of each epoch of a producer only the last entry is kept *)
LastOfEpochIsKept(before, entry, log) ==
    LET after == Told(before, entry, log)
    IN  [after EXCEPT !.entries = SelectSeq(@, LAMBDA other :
            \/ <<other.producerId, other.epoch>> # <<entry.producerId, entry.epoch>>
            \/ other.offset = LogEndOffset(before.log))]

(* for WithEntry: transactions keep the first epoch of a producer *)
FirstEpochIsKept(before, entry, log) ==
    LET known == before.transactions.producers[entry.producerId].epoch
    IN  Told(before, [entry EXCEPT !.epoch = IF known = NoEpoch THEN @ ELSE known], log)

(* for WithEntry: transactions are told the epoch after that of the entry *)
NextEpochIsTold(before, entry, log) == Told(before, [entry EXCEPT !.epoch = @ + 1], log)

(* The transactions after an entry that they take for one of another kind. *)
TakenFor(kind, before, entry, log) ==
    LET after == Told(before, [entry EXCEPT !.kind = kind], log)
    IN  [after EXCEPT !.entries[Len(after.entries)].kind = entry.kind]

(* for WithEntry: a committed transaction is in the index as well *)
CommitIsIndexed(before, entry, log) ==
    TakenFor(IF entry.kind = "commit" THEN "abort" ELSE entry.kind, before, entry, log)

(* for WithEntry: a batch outside of transactions begins one *)
PlainBegins(before, entry, log) ==
    TakenFor(IF entry.kind = "plain" THEN "transactional" ELSE entry.kind, before, entry, log)

(* for WithEntry: a batch outside of transactions aborts the one that is open *)
PlainAborts(before, entry, log) == TakenFor(IF entry.kind = "plain" THEN "abort" ELSE entry.kind, before, entry, log)

(* The transactions after an entry; if the index has a new transaction, it has these offsets. *)
Indexed(before, entry, log, firstOffset, lastOffset) ==
    LET after == Told(before, entry, log)
        last  == Len(after.abortedIndex)
    IN  IF last = Len(before.transactions.abortedIndex) THEN after
        ELSE [after EXCEPT !.abortedIndex[last].firstOffset = firstOffset, !.abortedIndex[last].lastOffset = lastOffset]

FirstOffset(before, entry) == before.transactions.producers[entry.producerId].firstOffset

(* for WithEntry: the index names the end of the log instead of the marker *)
IndexNamesLogEnd(before, entry, log) == Indexed(before, entry, log, FirstOffset(before, entry), LogEndOffset(log))

(* for WithEntry: the index names the first batch of the transaction instead of the marker *)
IndexNamesFirstTwice(before, entry, log) ==
    Indexed(before, entry, log, FirstOffset(before, entry), FirstOffset(before, entry))

(* for WithEntry: the index names the marker instead of the first batch *)
IndexNamesMarkerTwice(before, entry, log) ==
    Indexed(before, entry, log, LogEndOffset(before.log), LogEndOffset(before.log))

(* for WithEntry: the index names the commit before the transaction instead of its first batch *)
IndexNamesCommit(before, entry, log) ==
    LET commits == SelectSeq(before.transactions.entries, LAMBDA other :
                       other.kind = "commit" /\ other.producerId = entry.producerId)
        first   == IF commits = <<>> THEN FirstOffset(before, entry) ELSE commits[Len(commits)].offset
    IN  Indexed(before, entry, log, first, LogEndOffset(before.log))

(* for MarkerError: every marker is judged by the rule of version 1 (KAFKA-19446) *)
MarkersOfVersion1(before, marker, version) == OfVersion1!MarkerError(before.transactions, marker)

(* for MarkerError: every marker is judged by the rule of version 2 *)
MarkersOfVersion2(before, marker, version) == OfVersion2!MarkerError(before.transactions, marker)

(* A leader's answer to a marker by the rule of its version. *)
ErrorByVersion(before, marker, version) ==
    IF version = 2 THEN OfVersion2!MarkerError(before.transactions, marker)
    ELSE OfVersion1!MarkerError(before.transactions, marker)

(* for MarkerError: a leader takes one marker of each coordinator *)
KnownCoordinatorIsFenced(before, marker, version) ==
    LET error == ErrorByVersion(before, marker, version)
        known == before.transactions.producers[marker.producerId].coordinatorEpoch
    IN  IF error = "NONE" /\ marker.coordinatorEpoch <= known
        THEN "TRANSACTION_COORDINATOR_FENCED" ELSE error

(* for MarkerError: a marker with the epoch of its transaction is taken for one of an old coordinator *)
OwnEpochIsOfOldCoordinator(before, marker, version) ==
    LET error == ErrorByVersion(before, marker, version)
    IN  IF error # "NONE" /\ marker.epoch = before.transactions.producers[marker.producerId].epoch
        THEN "TRANSACTION_COORDINATOR_FENCED" ELSE error

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
