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

(* for IsLegalCall: initTransactions is legal a second time *)
InitializesTwice(operation) ==
    \/ <<client.state, Target(operation)>> \in LegalTransitions
    \/ operation = "initTransactions" /\ client.state = "READY" /\ client.identity = 1

(* for IsLegalCall: a client without a producer id begins no transaction *)
BeginsOnlyWithId(operation) ==
    /\ <<client.state, Target(operation)>> \in LegalTransitions
    /\ operation = "beginTransaction" => client.identity > 0

(* for OtherHasTimedOut: a call that has timed out does not stand in the way of another *)
TimeoutsAreForgotten(operation) == FALSE

(* for CallError: a client that had a producer id when it was refused throws that for ever *)
RefusalIsKept(operation) ==
    IF client.state = "UNINITIALIZED" /\ client.identity > 0 THEN "AuthorizationException"
    ELSE IF operation \in {"initTransactions", "send"} /\ HasError THEN client.error
    ELSE IF OtherHasTimedOut(operation) THEN "IllegalStateException"
    ELSE IF call.operation = operation THEN "NONE"
    ELSE IF IsRefusedByError(operation) THEN client.error
    ELSE IF operation \in {"send", "sendOffsetsToTransaction"}
         THEN IF client.state = "IN_TRANSACTION" THEN "NONE" ELSE "IllegalStateException"
    ELSE IF IsLegalCall(operation) THEN "NONE"
    ELSE "IllegalStateException"

(* for AfterTimeout: a commit that has timed out is taken for one that has succeeded *)
TimedOutIsDone ==
    IF call.operation = "commitTransaction" THEN [call EXCEPT !.outcome = "done"]
    ELSE IF call.operation = "sendOffsetsToTransaction" THEN NoCall ELSE [call EXCEPT !.running = FALSE]

(* for SendsRequests: what waits is sent after an abortable error too *)
SendsAfterErrors == client.state # "FATAL_ERROR"

(* for MaySendEnd: the end of a transaction does not wait for its batches *)
EndOvertakesBatches == TRUE

(* for Rank: all requests but lookups are sent in any order *)
AnyOrder(request) == IF request \in Lookups THEN 0 ELSE 1

(* for Rank: the end of a transaction does not wait for its offsets *)
EndOvertakesOffsets(request) ==
    IF request \in Lookups THEN 0
    ELSE IF request \in Ends \cup {"TxnOffsetCommit"} THEN 2
    ELSE IF request = "InitProducerId" THEN 3 ELSE 1

(* for Rank: the end of a transaction does not wait until its offsets are registered *)
EndOvertakesRegistration(request) ==
    IF request \in Lookups THEN 0
    ELSE IF request \in Ends \cup {"AddOffsetsToTxn"} THEN 2
    ELSE IF request = "InitProducerId" THEN 3 ELSE 1

(* for ReceiveOffsetsAdded: offsets are not sent once their transaction ends *)
DropsLateOffsets ==
    /\ inFlight = "AddOffsetsToTxn"
    /\ inFlight' = "none"
    /\ client' = [client EXCEPT !.started = TRUE]
    /\ queue' = IF client.state \in {"IN_TRANSACTION", "ABORTABLE_ERROR"} THEN queue \cup {"TxnOffsetCommit"} ELSE queue
    /\ UNCHANGED <<partitions, sequences, batches, coordinators, call, cluster, topic, seen, faults>>

(* for EndRequests: a client that needs another epoch asks for it in the place of an abort *)
BumpsInsteadOfAbort(request, bumps) ==
    IF ~bumps THEN {request} ELSE IF request = Abort THEN {"InitProducerId"} ELSE {request, "InitProducerId"}

(* for IsRegistered: batches are sent before their partition is registered *)
SendsUnregistered(partition) == TRUE

(* for RequestsFirst: batches do not wait for requests *)
BatchesOvertakeRequests == TRUE

(* for NextSequence: sequences go on in another epoch *)
SequencesGoOn(partition) == sequences[partition].next

(* for NextSequence: the batches of an epoch all have the first sequence *)
SequencesStay(partition) == 0

(* for NextSequence: a sequence is left out behind each batch *)
SequencesHaveHoles(partition) ==
    IF sequences[partition].identity = client.identity THEN sequences[partition].next + 1 ELSE 0

(* for DropsBatches: what has not been sent waits until it can be sent *)
KeepsUnsentBatches == FALSE

(* for Reaction: a client that a leader fences may abort *)
FencedMayAbort(request, error) ==
    IF IsRetried(request, error) THEN "retry"
    ELSE IF request = "Produce" /\ error = "PRODUCER_FENCED" THEN "abortable"
    ELSE ReactionToFailure(request, error)

(* for BecomesFatal: the answer to a request is awaited after a batch with a fatal error *)
RequestOutlivesFatal(request, exception) ==
    /\ client' = [client EXCEPT !.state = "FATAL_ERROR", !.error = exception]
    /\ batches' = [partition \in Partitions |-> NoBatch]
    /\ queue' = {}
    /\ inFlight' = IF request = "Produce" THEN inFlight ELSE "none"
    /\ call' = CallAfterFatal(request)
    /\ UNCHANGED <<partitions, sequences, coordinators, cluster, topic>>

(* for BecomesFatal: batches are sent, and awaited, after the fatal error of a request *)
BatchesOutliveFatal(request, exception) ==
    /\ client' = [client EXCEPT !.state = "FATAL_ERROR", !.error = exception]
    /\ batches' = IF request = "Produce" THEN [partition \in Partitions |-> NoBatch] ELSE batches
    /\ queue' = {}
    /\ inFlight' = "none"
    /\ call' = CallAfterFatal(request)
    /\ UNCHANGED <<partitions, sequences, coordinators, cluster, topic>>

(* for Failed: a failure during a commit is told to nobody *)
CommitsDespiteFailure(exception, bumps) ==
    IF client.state = "COMMITTING_TRANSACTION" THEN client
    ELSE IF client.state = "ABORTING_TRANSACTION" THEN [client EXCEPT !.bump = @ \/ bumps]
    ELSE [client EXCEPT !.state = "ABORTABLE_ERROR", !.error = exception, !.bump = @ \/ bumps]

(* for IsRetried: offsets of an unknown topic are sent again, as in Kafka *)
RetriesUnknownTopics(request, error) == error \in RetriableErrors

(* for NamesTopicsById: offsets are sent with the names of their topics, as in Kafka up to 4.3 *)
NamesTopicsByName == FALSE

(* Up to Kafka 4.3 nobody answers that a topic id is unknown; the offsets would be sent again. *)

(* for OffsetCommitReaction: the errors of the version before are known, as in Kafka up to 4.3 *)
KnowsErrorsOfNames(error) ==
    IF error = "UNKNOWN_TOPIC_ID" THEN "retry"
    ELSE IF error \in {"GROUP_AUTHORIZATION_FAILED", "FENCED_INSTANCE_ID", "TRANSACTION_ABORTABLE", "UNKNOWN_MEMBER_ID",
                       "ILLEGAL_GENERATION"} THEN "abortable"
    ELSE "fatal"

(* for MayAnswer: in the midst of a transaction a lookup is answered with TRANSACTION_ABORTABLE *)
LookupsAreAbortable(request, error) ==
    /\ error = "TRANSACTION_ABORTABLE" =>
           request \in {"TxnOffsetCommit", "Produce"} \/ (request \in Lookups /\ seen.number > 0)
    /\ error = "GROUP_AUTHORIZATION_FAILED" =>
           request \in {"AddOffsetsToTxn", "TxnOffsetCommit", Lookup("GROUP")}
    /\ error \in ErrorsOfTopicIds => request = "TxnOffsetCommit" /\ NamesTopicsById
    /\ error = "UNKNOWN_TOPIC_ID" => request # "TxnOffsetCommit"
    /\ error # "UNKNOWN_PRODUCER_ID"

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
HasAbortedOffsets   == topic.named # topic.id /\ seen.offsets /\ seen.ended = Abort
HasUpgraded         == seen.version = 2 /\ seen.number = 2 /\ seen.ended = Commit

=============================================================================
