---------------------- MODULE TransactionalProducerMutants --------------------
(* Rules of TransactionalProducer with one thing changed; those of Kafka 4.3, where the module departs from it. *)
EXTENDS TransactionalProducer

(* for IsRefusedByError: only a fatal error refuses calls *)
OnlyFatalRefuses(operation) == client.state = "FATAL_ERROR"

(* for IsRefusedByError: the client can abort after every error and go on *)
EveryErrorIsAbortable(operation) == HasError /\ operation # "abortTransaction"

(* for IsRefusedByError: an abort is accepted before the client starts over, as in Kafka *)
AbortsUnauthorized(operation) == HasError /\ ~(operation = "abortTransaction" /\ client.state = "ABORTABLE_ERROR")

(* for IsLegalCall: every call is legal in every state *)
EveryCallIsLegal(operation) == TRUE

(* for IsLegalCall: initTransactions is legal in a transaction *)
InitializesMidTransaction(operation) ==
    \/ <<client.state, Target(operation)>> \in LegalTransitions
    \/ operation = "initTransactions" /\ client.state = "IN_TRANSACTION"

(* for OtherHasTimedOut: a call that has timed out does not stand in the way of another *)
TimeoutsAreForgotten(operation) == FALSE

(* for AfterTimeout: a call that has timed out is taken for one that has succeeded *)
TimedOutIsDone == [call EXCEPT !.outcome = "done"]

(* for SendsRequests: what waits is sent after an abortable error too *)
SendsAfterErrors == client.state # "FATAL_ERROR"

(* for MaySendEnd: the end of a transaction does not wait for its batches *)
EndOvertakesBatches == TRUE

(* for Rank: all requests but lookups are sent in any order *)
AnyOrder(request) == IF request \in Lookups THEN 0 ELSE 1

(* for IsRegistered: batches are sent before their partition is registered *)
SendsUnregistered(partition) == TRUE

(* for RequestsFirst: batches do not wait for requests *)
BatchesOvertakeRequests == TRUE

(* for NextSequence: sequences go on in another epoch *)
SequencesGoOn(partition) == sequences[partition].next

(* for DropsBatches: what has not been sent waits until it can be sent *)
KeepsUnsentBatches == FALSE

(* for ReactionToFailure: a client that is fenced may abort *)
FencedMayAbort(request, error) ==
    IF error = "PRODUCER_FENCED" THEN "abortable"
    ELSE IF request = "Produce" THEN ProduceReaction(error)
    ELSE "fatal"

(* for MayAnswer: every broker may answer everything *)
EveryAnswerIsPossible(request, error) == TRUE

(* for BumpsByItself: the client asks for no other epoch, as before KIP-360 *)
NeverBumps == FALSE

(* for BumpsAfter: no other epoch is asked for during an end, unless there is a hole, as in Kafka *)
BumpsNotWhileEnding(batch, expired) == BumpsByItself /\ (~IsEnding \/ (expired /\ batch.retried))

(* for QueueAfter: nobody asks for the epoch that the client waits for after an abort, as in Kafka *)
AsksForNoBumpWhileAborting(bumps) == queue

(* for CallAfterFatal: a call that waits for offsets is told only by the answer to them, as in Kafka *)
TellsNobodyOfOffsets(request) ==
    IF call.operation = "sendOffsetsToTransaction" THEN FinishedBy(request, "failed") ELSE Finished("failed")

(* for AfterEnd: the client goes on in its epoch after every end *)
EndKeepsEpoch(bumped) ==
    [client EXCEPT !.state = IF client.bump THEN "INITIALIZING" ELSE "READY",
                   !.error = "NONE", !.bump = FALSE, !.started = FALSE]

(* for BumpsForUpgrade: the next version begins in the epoch of the last *)
UpgradesInEpoch == FALSE

(* for MayFailSend: another thread sends while the transaction ends *)
AnotherThreadSends == client.state \in {"IN_TRANSACTION", "COMMITTING_TRANSACTION"}

HasCommittedTwice   == seen.number = 2 /\ seen.ended = Commit
HasAbortedAnError   == seen.failed /\ seen.ended = Abort
HasBumpedAfterError == seen.failed /\ client.identity > 1 /\ client.state = "READY"
HasRepeatedACommit  == call.operation = "commitTransaction" /\ call.running /\ inFlight = Commit /\ faults > 0
IsFencedInCall      == seen.fenced /\ call.outcome = "failed"
HasLostABatch       == seen.unknown > 0 /\ \E partition \in Partitions : batches[partition].identity > seen.unknown
HasUpgraded         == seen.version = 2 /\ seen.number = 2 /\ seen.ended = Commit

=============================================================================
