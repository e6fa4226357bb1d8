-------------------- MODULE TransactionCoordinatorMutants --------------------
(* Rules of TransactionCoordinator with one thing changed. *)
EXTENDS TransactionCoordinator

(* for AfterFence: the coordinator aborts by itself without a new epoch (KAFKA-5231, KAFKA-6119) *)
AbortWithoutBump(known, nextProducerId) ==
    [AfterEnd(known, FALSE, ServerVersion, nextProducerId) EXCEPT !.epoch = known.epoch]

(* for AbortFenced: a timeout brings no new epoch, InitProducerId does *)
TimeoutFencesNobody ==
    LET next    == IF NeedsNextProducerId(metadata, ServerVersion) THEN allocated ELSE NoProducerId
        request == IF fencing = "timeout" THEN "timeout" ELSE "InitProducerId fences"
        record  == IF fencing = "timeout" THEN AbortWithoutBump(metadata, next) ELSE AfterFence(metadata, next)
    IN  /\ fencing # "none"
        /\ fencing' = "none"
        /\ carried' = Nobody
        /\ IF metadata.pending = "PREPARE_EPOCH_FENCE" THEN
              /\ Append_(Raised(metadata), request, Nobody, record)
              /\ allocated' = IF next # NoProducerId THEN allocated + 1 ELSE allocated
              /\ AnswersNobody
           ELSE
              /\ Answers(IF fencing = "timeout" THEN NoAnswer
                         ELSE Answer("InitProducerId", LateFenceVerdict(metadata), Nobody), Nobody)
              /\ UNCHANGED <<metadata, appending, allocated>>
        /\ UNCHANGED <<logVars, toMark, historyVars, faults>>

(* for AfterFence: the fence and the end bump the epoch, one after the other (KAFKA-19367) *)
FenceAndEndBump(known, nextProducerId) ==
    AfterEnd([known EXCEPT !.epoch = FencingEpoch(known)], FALSE, ServerVersion, nextProducerId)

(* for AfterFence: a fence in the last epoch brings no new producer id (KAFKA-20090) *)
FenceKeepsProducerId(known, nextProducerId) == AfterEnd(Raised(known), FALSE, ServerVersion, NoProducerId)

(* for FencingEpoch: each try of a fence that could not be written bumps the epoch (KAFKA-9666) *)
EveryFenceBumps(known) == IF known.epoch = MaxEpoch THEN known.epoch ELSE known.epoch + 1

(* for FencingEpoch: each try of a fence bumps the epoch, the last one, too *)
FenceOverflows(known) == known.epoch + 1

(* for EndVerdictOfVersion1: a client may end the transaction with an epoch that it made up (KAFKA-9600) *)
EndByHigherEpoch(known, producerId, epoch, commit) ==
    IF known.producerId # producerId THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF epoch < known.epoch THEN "PRODUCER_FENCED"
    ELSE IF IsBusy(known) THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.state = "ONGOING" THEN OpenVerdict(known, commit)
    ELSE IF known.state = Completed(commit) THEN "NONE"
    ELSE "INVALID_TXN_STATE"

(* for IsEpochToEnd: every epoch may end the transaction *)
EndByAnyEpoch(known, producerId, epoch) == TRUE

(* for EndVerdictOfVersion2: the epoch is checked before the pending transition (KAFKA-18464) *)
EpochBeforeTransition(known, producerId, epoch, commit) ==
    IF known.producerId # producerId /\ ~IsRetryOfLastEpoch(known, producerId, epoch)
    THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF ~IsEpochToEnd(known, producerId, epoch) THEN "PRODUCER_FENCED"
    ELSE IF IsBusy(known) THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.state = "ONGOING" THEN OpenVerdict(known, commit)
    ELSE IF known.state = Prepared(commit) THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.state \in PreparedStates THEN "INVALID_TXN_STATE"
    ELSE IF known.state \in CompletedStates /\ IsRetryOfEnd(known, producerId, epoch)
    THEN (IF known.state = Completed(commit) THEN "NONE" ELSE "INVALID_TXN_STATE")
    ELSE IF commit THEN "INVALID_TXN_STATE"
    ELSE "DECIDE"

(* for AddError: a partition may be added while the transaction is being ended *)
AddWhileEnding(known, producerId, epoch) ==
    IF known.producerId # producerId THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"
    ELSE "NONE"

(* for AddError: producer id and epoch are looked at before the pending transition, as in Kafka 3.9 *)
IdentityBeforePending(known, producerId, epoch) ==
    IF known.state = "DEAD" \/ known.producerId # producerId THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"
    ELSE IF known.pending # "none" \/ known.state \in PreparedStates THEN "CONCURRENT_TRANSACTIONS"
    ELSE "NONE"

(* for AddError: a producer is known by its epoch alone *)
AddByEpochAlone(known, producerId, epoch) ==
    IF known.state = "DEAD" THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.pending # "none" \/ known.state \in PreparedStates THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"
    ELSE "NONE"

(* for AddError: a producer id from before will do *)
AddByFormerId(known, producerId, epoch) ==
    IF known.state = "DEAD" THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.pending # "none" THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.producerId < producerId THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"
    ELSE IF known.state \in PreparedStates THEN "CONCURRENT_TRANSACTIONS"
    ELSE "NONE"

(* for AddError: a producer id that is yet to come will do *)
AddByLaterId(known, producerId, epoch) ==
    IF known.state = "DEAD" THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.pending # "none" THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.producerId > producerId THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"
    ELSE IF known.state \in PreparedStates THEN "CONCURRENT_TRANSACTIONS"
    ELSE "NONE"

(* for AddError: a transactional.id that nobody has initialized gets a transaction *)
AddToUnknown(known, producerId, epoch) ==
    IF known.state = "DEAD" /\ known.pending = "none" THEN "NONE"
    ELSE IF known.pending # "none" \/ known.state \in PreparedStates THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.producerId # producerId THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"
    ELSE "NONE"

(* for NeedsNextProducerId: the end of a transaction never brings a new producer id *)
NoNextProducerId(known, version) == FALSE

(* for AfterEnd: an abort leaves nothing behind, and no partition gets a marker *)
AbortForgets(known, commit, version, nextProducerId) ==
    LET ended == [To(known, IF commit THEN "PREPARE_COMMIT" ELSE "EMPTY") EXCEPT
                    !.epoch = IF version = 2 /\ @ < MaxEpoch THEN @ + 1 ELSE @,
                    !.lastEpoch = IF version = 2 THEN known.epoch ELSE @,
                    !.nextProducerId = nextProducerId, !.version = version, !.failedFence = FALSE,
                    !.number = IF known.state = "ONGOING" THEN @ ELSE @ + 1]
    IN  IF commit THEN ended ELSE [ended EXCEPT !.partitions = {}]

(* for GoesOnAs: a client is told its old producer id although a new one comes (KAFKA-18660) *)
ToldOldProducerId(record) == Identity(record.producerId, record.epoch)

(* for InLog: the log has neither the next nor the previous producer id, as before Kafka 4.3 (KAFKA-20310) *)
OneProducerIdInLog(known) ==
    [known EXCEPT !.lastEpoch = NoEpoch, !.pending = "none", !.failedFence = FALSE, !.nextProducerId = NoProducerId,
                  !.previousProducerId = NoProducerId]

(* for LogAfter: the leader does not wait for the other replicas *)
AnsweredByLeader(append) == [durable |-> durable, tail |-> Append(tail, InLog(append.record))]

(* for LogAfter: the leader does not wait for the other replicas when a transaction ends *)
EndAnsweredByLeader(append) ==
    IF append.request = "EndTxn" THEN [durable |-> durable, tail |-> Append(tail, InLog(append.record))]
    ELSE [durable |-> InLog(append.record), tail |-> <<>>]

(* for LogAfter: the leader does not wait for the other replicas when a partition is added *)
AddAnsweredByLeader(append) ==
    IF append.request = "AddPartition" THEN [durable |-> durable, tail |-> Append(tail, InLog(append.record))]
    ELSE [durable |-> InLog(append.record), tail |-> <<>>]

(* for EndVerdictOfVersion1: an abort is decided although nothing is open, as in version 2 *)
AbortOfNothing(known, producerId, epoch, commit) ==
    IF known.producerId # producerId THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"
    ELSE IF known.pending # "none" THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.state = "ONGOING" \/ ~commit THEN "DECIDE"
    ELSE IF known.state = Completed(commit) THEN "NONE"
    ELSE "INVALID_TXN_STATE"

(* for EndVerdict: whatever a client asks for after the end of version 2 passes for a retry *)
AnyEndIsRetry(known, producerId, epoch, commit, version) ==
    IF known.state = "DEAD" THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF version = 1 THEN EndVerdictOfVersion1(known, producerId, epoch, commit)
    ELSE IF known.pending = "none" /\ known.state \in CompletedStates /\ IsRetryOfEnd(known, producerId, epoch) THEN "NONE"
    ELSE EndVerdictOfVersion2(known, producerId, epoch, commit)

(* A client of version 2 asks again for an end that is complete. *)
IsRetryOfDone(known, producerId, epoch, commit, version) ==
    /\ version = 2 /\ known.pending = "none" /\ known.state = Completed(commit)
    /\ IsRetryOfEnd(known, producerId, epoch)

(* for EndVerdict: a client that asks again for an abort gets another one, as if it had begun nothing *)
AbortsAgain(known, producerId, epoch, commit, version) ==
    IF known.state = "DEAD" THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF version = 1 THEN EndVerdictOfVersion1(known, producerId, epoch, commit)
    ELSE IF ~commit /\ IsRetryOfDone(known, producerId, epoch, commit, version) THEN "DECIDE"
    ELSE EndVerdictOfVersion2(known, producerId, epoch, commit)

(* for EndVerdict: a client that asks again for an end meets a transition that the table does not have *)
RetryIsIllegal(known, producerId, epoch, commit, version) ==
    IF known.state = "DEAD" THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF version = 1 THEN EndVerdictOfVersion1(known, producerId, epoch, commit)
    ELSE IF IsRetryOfDone(known, producerId, epoch, commit, version) THEN "UNKNOWN_SERVER_ERROR"
    ELSE EndVerdictOfVersion2(known, producerId, epoch, commit)

(* for IsRetryOfEnd: no request passes for a retry *)
NoRetryOfEnd(known, producerId, epoch) == FALSE

(* for Created: a new transactional.id is taken for one whose transaction was aborted *)
CreatedAborted(known, producerId) ==
    [Forgotten(known.number) EXCEPT !.producerId = producerId, !.state = "COMPLETE_ABORT"]

(* for IsExhausted: a producer is given the last epoch, too *)
LastEpochIsGiven(epoch) == epoch >= MaxEpoch

(* for AfterInit: a client that presents nothing is given the epoch of the one before it *)
SameEpochAgain(known, epoch, newProducerId) ==
    LET last == IF epoch = NoEpoch THEN NoEpoch ELSE known.epoch
        ready == [To(known, "EMPTY") EXCEPT !.partitions = {}, !.lastEpoch = last]
    IN  IF epoch = NoEpoch /\ known.epoch # NoEpoch THEN ready
        ELSE IF Rotates(known, epoch) THEN [ready EXCEPT !.producerId = newProducerId, !.epoch = 0]
        ELSE IF IsRetryOfInit(known, epoch) THEN AfterRetryOfInit(known)
        ELSE [ready EXCEPT !.epoch = @ + 1]

(* for AfterInit: a client that presents its epoch begins with epoch 0 again *)
FirstEpochAgain(known, epoch, newProducerId) ==
    LET last == IF epoch = NoEpoch THEN NoEpoch ELSE known.epoch
        ready == [To(known, "EMPTY") EXCEPT !.partitions = {}, !.lastEpoch = last]
    IN  IF epoch # NoEpoch /\ epoch = known.epoch THEN [ready EXCEPT !.epoch = 0]
        ELSE IF Rotates(known, epoch) THEN [ready EXCEPT !.producerId = newProducerId, !.epoch = 0]
        ELSE IF IsRetryOfInit(known, epoch) THEN AfterRetryOfInit(known)
        ELSE [ready EXCEPT !.epoch = @ + 1]

(* for AnswerTo: InitProducerId is answered before the abort is complete *)
AnsweredBeforeAbort(append) ==
    LET identity == Identity(append.record.producerId, append.record.epoch) IN
    IF append.request \in {"InitProducerId", "InitProducerId fences"} THEN Answer("InitProducerId", "NONE", identity)
    ELSE IF append.request = "AddPartition" THEN Answer("AddPartition", "NONE", Nobody)
    ELSE IF append.request = "EndTxn" THEN
        Answer("EndTxn", "NONE", IF append.record.version = 2 THEN GoesOnAs(append.record) ELSE Nobody)
    ELSE NoAnswer

(* for AnswerTo: InitProducerId is answered as soon as the former transaction is complete *)
AnsweredAtCompletion(append) ==
    LET identity == Identity(append.record.producerId, append.record.epoch) IN
    IF append.request \in {"InitProducerId", "complete"} THEN Answer("InitProducerId", "NONE", identity)
    ELSE IF append.request = "AddPartition" THEN Answer("AddPartition", "NONE", Nobody)
    ELSE IF append.request = "EndTxn" THEN
        Answer("EndTxn", "NONE", IF append.record.version = 2 THEN GoesOnAs(append.record) ELSE Nobody)
    ELSE IF append.request = "InitProducerId fences" THEN Answer("InitProducerId", "CONCURRENT_TRANSACTIONS", Nobody)
    ELSE NoAnswer

(* for CarriedBy: the second half of a fence carries the epoch of the first one, as in Kafka *)
CarriesFencingEpoch(known) == Identity(known.producerId, FencingEpoch(known))

(* for LateFenceVerdict: the second half of a fence is an EndTxn like a client's, as in Kafka *)
AbortsNext(known) ==
    LET asked   == IF ServerVersion = 1 /\ carried.epoch > known.epoch THEN known.epoch ELSE carried.epoch
        verdict == EndVerdict(known, carried.producerId, asked, FALSE, ServerVersion)
    IN  IF verdict = "NONE" THEN "CONCURRENT_TRANSACTIONS" ELSE verdict

(* The decision of a late fence has another epoch than the fence, whose markers nobody sends then. *)
IsOfAnotherEpoch(append) ==
    /\ append.request \in {"InitProducerId fences", "timeout"} /\ append.asked # Nobody
    /\ append.record.version = 1 /\ append.asked.epoch # append.record.epoch

(* for GoesOn: the markers follow only a decision that has the epoch that the fence carries, as in Kafka *)
MarksCarriedEpoch(append) == IF IsOfAnotherEpoch(append) THEN append.record ELSE AfterAppend(append.record)

(* for AnswerTo: a late fence of another epoch is answered as that of a fenced producer, as in Kafka *)
AnswersLateFence(append) ==
    IF append.request = "InitProducerId" THEN
        Answer("InitProducerId", "NONE", Identity(append.record.producerId, append.record.epoch))
    ELSE IF append.request = "AddPartition" THEN Answer("AddPartition", "NONE", Nobody)
    ELSE IF append.request = "EndTxn" THEN
        Answer("EndTxn", "NONE", IF append.record.version = 2 THEN GoesOnAs(append.record) ELSE Nobody)
    ELSE IF append.request = "InitProducerId fences" THEN
        Answer("InitProducerId", IF IsOfAnotherEpoch(append) THEN "PRODUCER_FENCED" ELSE "CONCURRENT_TRANSACTIONS", Nobody)
    ELSE NoAnswer

(* for AfterTimeout: a decision whose append was given up is taken for an abort that needs no record *)
DecisionGivenUp(known, append) ==
    IF append.request = "complete" THEN known
    ELSE IF append.record.state \in PreparedStates
    THEN [known EXCEPT !.pending = "none", !.state = "COMPLETE_ABORT", !.partitions = {}]
    ELSE [known EXCEPT !.pending = "none"]

(* for Loaded: after a failover nobody goes on with the prepared transaction *)
PreparedIsLeft(record) == record

(* for AfterTimeout: a completion whose append was given up is not tried again *)
CompletionCountsAsDone(known, append) ==
    IF append.request = "complete" THEN AfterAppend(append.record)
    ELSE [known EXCEPT !.pending = "none", !.failedFence = @ \/ IsFailedFence(append)]

(* for AfterTimeout: a commit whose completion was given up counts as complete, and stays pending *)
DoneCommitStaysPending(known, append) ==
    IF append.record.state = "COMPLETE_COMMIT" THEN [append.record EXCEPT !.pending = "COMPLETE_COMMIT"]
    ELSE IF append.request = "complete" THEN known
    ELSE [known EXCEPT !.pending = "none", !.failedFence = @ \/ IsFailedFence(append)]

(* for AfterTimeout: an abort whose completion was given up counts as complete, and stays pending *)
DoneAbortStaysPending(known, append) ==
    IF append.record.state = "COMPLETE_ABORT" THEN [append.record EXCEPT !.pending = "COMPLETE_ABORT"]
    ELSE IF append.request = "complete" THEN known
    ELSE [known EXCEPT !.pending = "none", !.failedFence = @ \/ IsFailedFence(append)]

(* for AfterTimeout: after an append that was given up, the fence stays pending, and nobody goes on with it *)
FailedFenceStays(known, append) ==
    IF append.request = "complete" THEN known
    ELSE IF append.request \in {"InitProducerId fences", "timeout"}
    THEN [known EXCEPT !.pending = "PREPARE_EPOCH_FENCE", !.failedFence = TRUE]
    ELSE [known EXCEPT !.pending = "none"]

(* for AfterTimeout: what a client asked for stays pending although its record could not be written *)
UnwrittenStaysPending(known, append) ==
    IF append.request \in {"complete", "InitProducerId", "AddPartition"} THEN known
    ELSE [known EXCEPT !.pending = "none", !.failedFence = @ \/ IsFailedFence(append)]

(* for AfterTimeout: the completion of a commit, whose append was given up, is pending no longer *)
CommitIsNotTriedAgain(known, append) ==
    IF append.request = "complete" THEN [known EXCEPT !.pending = IF Commits(known) THEN "none" ELSE @]
    ELSE [known EXCEPT !.pending = "none", !.failedFence = @ \/ IsFailedFence(append)]

(* for AfterAppend: the clock went back before a decision, whose transition is refused and stays pending *)
ClockWentBack(record) ==
    IF record.state \in PreparedStates THEN [record EXCEPT !.state = "ONGOING", !.pending = record.state]
    ELSE IF record.state = "DEAD" THEN Forgotten(record.number) ELSE record

(* for AfterAppend: a transactional.id that has expired stays in memory, and nobody may use it again *)
ExpiryStaysPending(record) ==
    IF record.state = "DEAD" THEN [Forgotten(record.number) EXCEPT !.pending = "DEAD"] ELSE Loaded(record)

(* for MayComplete: a late completion has taken away that of the next transaction *)
LateCompletionTakesNext == toMark = {} /\ metadata.number <= 1

(* for MayComplete: the answer to the last marker brings the completion; an abort of nothing has no marker *)
CompletesAtLastMarker == toMark = {} /\ metadata.partitions # {}

(* for MayComplete: the transaction is closed while markers are missing *)
CompletesBeforeMarkers == TRUE

(* for MarkersWithoutLeader: a partition without a leader counts as deleted, as in Kafka 4.3 (KAFKA-20734) *)
NoLeaderIsDeleted(partition) == toMark \ {partition}

(* for MarkerCommits: once a marker has failed, the others say abort *)
AbortAfterFailedMarker(partition) == Commits(metadata) /\ toMark = metadata.partitions

(* for TailAfterFailover: an append of the previous coordinator is accepted, after what the new one loaded *)
StaleAppendTaken(found) == IF IsIdle THEN found ELSE Append(found, InLog(appending.record))

(* for LastRead: a new coordinator goes on with the state before a record that it cannot read, as in Kafka *)
StopsAtUnreadable(found) ==
    LET records == <<earlier, durable>> \o found
    IN  records[IF "unreadable record" \in Faults THEN Len(records) - 1 ELSE Len(records)]

(* for MayAct: a new coordinator acts on all that it finds in its log, as in Kafka *)
ActsOnLoaded == TRUE

(* for BumpError: when the epochs have run out, only the present epoch is known, as in Kafka *)
NoBumpWhenExhausted(known, epoch) ==
    IF IsExhausted(known.epoch) /\ epoch \notin {NoEpoch, known.epoch} THEN "UNKNOWN_SERVER_ERROR"
    ELSE IF known.epoch = NoEpoch \/ epoch \in {NoEpoch, known.epoch} \/ IsRetryOfInit(known, epoch) THEN "NONE"
    ELSE "PRODUCER_FENCED"

(* for AfterRetryOfInit: a retry takes its own producer id for the one before it, as in Kafka *)
RetryForgetsProducerId(known) == [To(known, "EMPTY") EXCEPT !.partitions = {}]

(* for Noted: the past is forgotten, so that the states of a long recorded run stay small *)
NothingNoted(history, entry) == {}

=============================================================================
