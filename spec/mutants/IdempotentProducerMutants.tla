----------------------- MODULE IdempotentProducerMutants ----------------------
(***************************************************************************)
(* Rules of the producer with one thing changed, and claims that do not    *)
(* hold. A model puts one of them in the place of the rule; the Python     *)
(* class of the same name does the same to the reference.                  *)
(***************************************************************************)
EXTENDS IdempotentProducer, ProducerStateMutants

(* Batches with the stamps of the producer's next epoch, as far as they can be sent once more. *)
Restamped(batches) ==
    LET sendable == SelectSeq(batches, LAMBDA batch : attempts[batch.value] + 1 \in Attempts)
    IN  [i \in DOMAIN sendable |-> [sendable[i] EXCEPT !.epoch = Bumped.epoch, !.sequence = i - 1]]

WithoutValue(value) == SelectSeq(inFlight, LAMBDA batch : batch.value # value)

(* for KeptAfterExpiry: the other batches are stamped again, as by the Java client (KAFKA-14034) *)
RestampAfterExpiry(value) ==
    IF ~Idempotence THEN WithoutValue(value)
    ELSE IF Bumped.epoch > producer.epoch THEN Restamped(WithoutValue(value)) ELSE <<>>

(* for ProducerAfterExpiry, together with RestampAfterExpiry: the sequence goes on after these batches *)
BumpAfterRestamp(kept) ==
    IF ~Idempotence THEN producer
    ELSE IF Bumped.epoch > producer.epoch THEN [Bumped EXCEPT !.sequence = Len(kept)] ELSE Bumped

(* for KeptAfterError: every batch is stamped again, the refused one included, as by the Java client *)
RestampAfterError(error) ==
    IF error = "OUT_OF_ORDER_SEQUENCE_NUMBER" /\ Bumped.epoch > producer.epoch THEN Restamped(inFlight) ELSE <<>>

(* for KeptAfterError: the batches after the refused one stay in flight *)
KeptBehindRefused(error) == Tail(inFlight)

(* for ProducerAfterError, together with RestampAfterError: the producer goes on in its next epoch *)
BumpAfterError(error, kept) ==
    IF error = "OUT_OF_ORDER_SEQUENCE_NUMBER" /\ Bumped.epoch > producer.epoch
    THEN [Bumped EXCEPT !.sequence = Len(kept)]
    ELSE [producer EXCEPT !.error = error]

(* for ProducerAfterExpiry: the sequence of a batch that was given up is used again *)
ReuseSequence(kept) == [producer EXCEPT !.sequence = inFlight[1].sequence]

(* for ProducerAfterExpiry: the sequence goes on as if the batch had been stored *)
SkipSequence(kept) == producer

(* for InSyncEndOffset: the high watermark does not wait for the followers *)
LeaderEndOffset == EndOffset(leader)

(* for LeavesIsr: the last replica in sync leaves the in-sync set, too, without eligible leader replicas *)
LastOneLeaves(replica) == EligibleLeaderReplicas \/ replica \in Volatile

(* for LastKnownWith: nobody remembers who was the last one in sync *)
LastIsForgotten(members, replica) == lastKnownLeader

(* for IsReady: the producer sends after a fatal error *)
SendsAfterFatalError == Idempotence => producer.producerId # NoProducerId

(* for IsAwaited: the answer to a batch that was given up is heard *)
LateAnswerIsHeard(request) == TRUE

(* for MayBeKilled: only the replicas that lose what they have not flushed *)
OnlyVolatile(replica) == replica \in Volatile

(* for MayAdvance: the high watermark moves whatever min.insync.replicas says *)
AdvancesBelowMinIsr == TRUE

(* for EligibleWith: a killed replica keeps its place *)
KilledStaysEligible(members, killed) ==
    IF EligibleLeaderReplicas /\ Cardinality(members) < EffectiveMinIsr THEN (isr \cup elr) \ members ELSE {}

(* for Candidates: without anybody in sync any replica may lead *)
AnybodyLeads == IF isr # {} THEN isr ELSE Replicas

(* for MayExpire: producer state is dropped while a retry may be on its way *)
ExpireAnyTime(producerId) == TRUE

(* The outcomes after some values have got a result, if this is what a failure counts as. *)
FailureAs(counted, values, result) ==
    [value \in Values |-> IF value \notin values THEN outcome[value] ELSE IF result = "failed" THEN counted ELSE result]

(* for WithOutcome: a value that was given up is reported as acknowledged *)
FailureIsAcknowledged(values, result) == FailureAs("acknowledged", values, result)

(* for WithOutcome: a value that was given up is no longer known to have been sent *)
FailureIsUnsent(values, result) == FailureAs("unsent", values, result)

(* for Content: the application sends one message twice *)
SameContent(value) == 0

(* A refusal as out of order says nothing about loss. *)
NothingIsLostWhenOutOfOrder == producer.error = "OUT_OF_ORDER_SEQUENCE_NUMBER" => NoLoss

(* Interesting states, which have to be reached *)
HasNewLeader       == leaderEpoch > 0 /\ leader # NoLeader
HasTruncated       == \E replica \in alive : EndOffset(replica) < highWatermark /\ replica \notin isr
HasEligibleLeader  == leader # NoLeader /\ elr # {}
HasLastKnownLeader == isr \cup elr = {} /\ lastKnownLeader \in alive
HasFatalError      == ~IsRunning
HasBumpedEpoch     == producer.epoch > 0 /\ Delivered # <<>>
HasDeliveredAll    == \A value \in Values : IsDelivered(value)
HasFailedDelivered == \E value \in Values : outcome[value] = "failed" /\ IsDelivered(value)
HasFailedLost      == \A value \in Values : outcome[value] = "failed" /\ ~IsDelivered(value)

=============================================================================
