-------------------------- MODULE TransactionsMutants -------------------------
(***************************************************************************)
(* Rules of Transactions with one thing changed. A model puts one of them  *)
(* in the place of the rule; the Python function of the same name does the *)
(* same to the reference.                                                  *)
(***************************************************************************)
EXTENDS Transactions

(* for AsksForEpoch: a batch that fails while the transaction ends brings no new epoch, as in Kafka *)
KeepsEpochWhileEnding(client, ending) == client.version = 1 /\ ~ending

(* for AsksForEpoch: an instance keeps its epoch although a batch that it has given up may still arrive *)
KeepsEpochOfLateBatch(client, ending) == FALSE

(* for Failed: an instance goes on in its transaction after a batch has failed *)
FailureIsForgotten(client, ending) == [client EXCEPT !.awaits = "nothing"]

(* for Failed: an instance goes on waiting for the answer to a batch that has failed *)
WaitsForFailedBatch(client, ending) == [client EXCEPT !.state = "abortable"]

(* for Failed: an instance goes on with its next transaction after a batch has failed, without an abort *)
NextWithoutAbort(client, ending) == [client EXCEPT !.awaits = "nothing", !.state = "ready"]

(* for IsFenced: the coordinator gives any instance another epoch *)
EverybodyGetsAnEpoch(epoch) == FALSE

(* for FencingEpoch: the coordinator aborts by itself without a new epoch (KAFKA-5231, KAFKA-6119) *)
NoFencingBump == transaction.epoch

(* for EndEpoch: no bump at the end of a transaction, as before KIP-890 part 2 (KAFKA-17754) *)
NoEndBump(version) == transaction.epoch

(* for AddError: a partition may be added while the markers are being written *)
AddWhilePrepared(epoch) == IF epoch # transaction.epoch THEN "PRODUCER_FENCED" ELSE "NONE"

(* for AddError: a partition may be added by any epoch *)
AddByAnyEpoch(epoch) == IF IsPrepared THEN "CONCURRENT_TRANSACTIONS" ELSE "NONE"

(* for AddError: the epoch is checked before the pending transition, as in Kafka 3.9 *)
FencedBeforePending(epoch) ==
    IF epoch # transaction.epoch THEN "PRODUCER_FENCED"
    ELSE IF IsPrepared THEN "CONCURRENT_TRANSACTIONS"
    ELSE "NONE"

(* for AddError: a client that adds a partition is told for ever to ask again *)
AddsWait(epoch) == "CONCURRENT_TRANSACTIONS"

(* for DataError: a leader takes batches of any epoch *)
DataOfAnyEpoch(log, epoch, guard) ==
    IF Verification /\ ~IsOngoing(log, epoch) /\ guard # log.guard THEN "INVALID_TXN_STATE" ELSE "NONE"

(* for DataError: nothing between verification and append is noticed (KAFKA-14884) *)
NoGuard(log, epoch, guard) == IF epoch < log.epoch THEN "INVALID_PRODUCER_EPOCH" ELSE "NONE"

(* for IsDuplicate: the first batch of an epoch makes duplicates of all others *)
OneBatchAnEpoch(log, request) ==
    /\ request.epoch = log.epoch
    /\ \E i \in DOMAIN log.entries : log.entries[i].kind = "data" /\ log.entries[i].epoch = request.epoch

(* for IsDuplicate: a leader stores a batch again that comes again *)
RepeatIsStored(log, request) == FALSE

(* for GuardVersion: the first request that shares the guard decides about its version, as in Kafka *)
FirstRequestDecides(log, request) == IF log.guardVersion = 0 THEN request.version ELSE log.guardVersion

(* for UsesGuardUp: every transactional append uses the guard up, as in Kafka *)
EveryAppendUsesGuardUp(log, epoch) == TRUE

(* for IsOngoing: a transaction of any epoch counts, as in Kafka 3.9 *)
OngoingOfAnyEpoch(log, epoch) == log.open

(* for DataError: the guard is checked before the epoch, as in Kafka 3.9 *)
GuardBeforeEpoch(log, epoch, guard) ==
    IF Verification /\ ~IsOngoing(log, epoch) /\ guard # log.guard THEN "INVALID_TXN_STATE"
    ELSE IF epoch < log.epoch THEN "INVALID_PRODUCER_EPOCH"
    ELSE "NONE"

(* for HasPassed: a leader asks about batches of any epoch, as in Kafka 3.9 *)
NoEpochHasPassed(log, epoch) == FALSE

(* for KeepsGuard: the marker of one transaction uses up the next one's guard (KAFKA-18575) *)
GuardWiped(log, marker) == FALSE

(* for MarkerError: a marker of the epoch of an open transaction ends it (KAFKA-19446) *)
MarkerOfEqualEpoch(log, marker) ==
    IF marker.epoch < log.epoch THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF log.coordinatorEpoch > marker.coordinatorEpoch THEN "TRANSACTION_COORDINATOR_FENCED"
    ELSE "NONE"

(* for MarkerError: a marker that was written is refused when it comes again (KAFKA-19999) *)
MarkerOnlyOnce(log, marker) ==
    IF marker.epoch < log.epoch \/ (marker.version = 2 /\ marker.epoch = log.epoch) THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF log.coordinatorEpoch > marker.coordinatorEpoch THEN "TRANSACTION_COORDINATOR_FENCED"
    ELSE "NONE"

(* for MarkerError: a leader takes markers of any epoch *)
MarkerOfAnyEpoch(log, marker) ==
    IF log.coordinatorEpoch > marker.coordinatorEpoch THEN "TRANSACTION_COORDINATOR_FENCED" ELSE "NONE"

(* for MarkerError: a leader takes markers of a coordinator that has been replaced (KAFKA-9144) *)
MarkerOfAnyCoordinator(log, marker) ==
    IF marker.epoch < log.epoch THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF marker.version = 2 /\ marker.epoch = log.epoch /\ log.open THEN "INVALID_PRODUCER_EPOCH"
    ELSE "NONE"

(* for EndVerdict: the epoch is checked before the pending transition (KAFKA-18464) *)
EpochBeforePending(version, epoch, commit) ==
    IF epoch # transaction.epoch /\ ~IsRetryOfEnd(version, epoch) THEN "PRODUCER_FENCED"
    ELSE IF IsPrepared THEN (IF Commits = commit THEN "CONCURRENT_TRANSACTIONS" ELSE "INVALID_TXN_STATE")
    ELSE IF transaction.state = "ONGOING" THEN "DECIDE"
    ELSE IF transaction.state = Completed(commit) THEN "NONE"
    ELSE IF version = 2 /\ ~commit THEN "DECIDE"
    ELSE "INVALID_TXN_STATE"

(* for EndVerdict: any epoch ends the transaction (KAFKA-9600) *)
EndOfAnyEpoch(version, epoch, commit) ==
    IF IsPrepared THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF transaction.state = "ONGOING" THEN "DECIDE"
    ELSE IF transaction.state = Completed(commit) THEN "NONE"
    ELSE IF version = 2 /\ ~commit THEN "DECIDE"
    ELSE "INVALID_TXN_STATE"

(* for EndVerdict: a client of version 2 that commits what was aborted is given another decision *)
CommitsTheAborted(version, epoch, commit) ==
    IF IsPrepared THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF IsRetryOfEnd(version, epoch) /\ transaction.state \in {"COMPLETE_COMMIT", "COMPLETE_ABORT"}
    THEN (IF Commits = commit THEN "NONE" ELSE IF commit THEN "DECIDE" ELSE "INVALID_TXN_STATE")
    ELSE IF epoch # transaction.epoch THEN "PRODUCER_FENCED"
    ELSE IF transaction.state = "ONGOING" \/ ~commit THEN "DECIDE"
    ELSE "INVALID_TXN_STATE"

(* for MayTakeOver: an instance gets its epoch before the markers of the one before it are written *)
TakesOverEarly == transaction.state # "ONGOING"

(* for Initialized, with TakesOverEarly: the markers go on, with the epoch of the new instance *)
MarkersGoOn == [transaction EXCEPT !.state = IF IsPrepared THEN @ ELSE "EMPTY", !.epoch = @ + 1]

(* for EndVerdict: the coordinator acknowledges an abort, and leaves the transaction to its timeout *)
AbortLeftToTimeout(version, epoch, commit) ==
    IF IsPrepared THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF epoch # transaction.epoch THEN "PRODUCER_FENCED"
    ELSE IF ~commit THEN "NONE"
    ELSE IF transaction.state = "ONGOING" THEN "DECIDE"
    ELSE "INVALID_TXN_STATE"

(* for EndVerdict: a client that commits is told for ever to ask again *)
CommitsWait(version, epoch, commit) ==
    IF commit \/ IsPrepared THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF transaction.state = "ONGOING" \/ version = 2 THEN "DECIDE"
    ELSE "INVALID_TXN_STATE"

(* for EndVerdict: a client that aborts is told for ever to ask again *)
AbortsWait(version, epoch, commit) ==
    IF ~commit \/ IsPrepared THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF transaction.state = "ONGOING" THEN "DECIDE"
    ELSE IF transaction.state = Completed(commit) THEN "NONE"
    ELSE "INVALID_TXN_STATE"

(* for AfterVerification: a batch is stored whose partition nobody has registered *)
NotRegistered(request) == transaction

(* for EpochAfterMarker: a marker leaves the producer's epoch as it is (KAFKA-6119) *)
MarkerKeepsEpoch(log, marker) == log.epoch

(* for Upgraded: a client goes on with its epoch when it finds version 2 (KAFKA-18227) *)
UpgradedWithoutBump(client) == [client EXCEPT !.version = 2]

(* for MarkerTo: once a partition is marked, the others are told to abort *)
RestIsAborted(partition) ==
    [partition |-> partition, version |-> transaction.version, epoch |-> transaction.epoch,
     commit |-> Commits /\ toMark = transaction.partitions, coordinatorEpoch |-> coordinatorEpoch]

(* for MarkerTo: each coordinator sends its markers with a lower epoch than the one before it *)
CoordinatorsCountDown(partition) ==
    [partition |-> partition, version |-> transaction.version, epoch |-> transaction.epoch, commit |-> Commits,
     coordinatorEpoch |-> 1 - coordinatorEpoch]

(* for MarkersAfterElection: a partition that has another leader counts as marked (KAFKA-5610) *)
NotLeaderIsDone(partition) == toMark \ {partition}

(* for MarkersWithoutLeader: a partition without a leader counts as deleted, as in Kafka 4.3 (KAFKA-20734) *)
NoLeaderIsDeleted(partition) == toMark \ {partition}

(* for PartitionsToMark: after a failover nobody resumes the prepared transaction *)
NothingResumed == {}

(* for MayComplete: the coordinator closes no transaction, though every marker is written *)
NeverCompletes == FALSE

(* for MayComplete: the transaction is closed while markers are missing *)
CompletesEarly == TRUE

(* for WithData: a batch takes the place of those of its producer's earlier transactions *)
OnlyLatestIsKept(log, instance, number, epoch) ==
    LET IsKept(entry) == entry.kind # "data" \/ entry.instance # instance \/ entry.number >= number
        batch == [kind |-> "data", epoch |-> epoch, instance |-> instance, number |-> number]
    IN  [log EXCEPT !.entries = Append(SelectSeq(@, IsKept), batch),
                    !.epoch = epoch, !.open = TRUE,
                    !.guard = IF UsesGuardUp(log, epoch) THEN @ + 1 ELSE @,
                    !.guardEpoch = IF UsesGuardUp(log, epoch) THEN NoEpoch ELSE @,
                    !.guardVersion = IF UsesGuardUp(log, epoch) THEN 0 ELSE @]

(* for Decided: a failover forgets the decision and turns it into an abort *)
DecisionForgotten == [transaction EXCEPT !.state = IF IsPrepared THEN "PREPARE_ABORT" ELSE @]

(* for Decided: a failover closes a prepared commit as an abort *)
CommitClosedAsAbort == [transaction EXCEPT !.state = IF @ = "PREPARE_COMMIT" THEN "COMPLETE_ABORT" ELSE @]

(* for Decided: a failover closes a prepared abort as a commit *)
AbortClosedAsCommit == [transaction EXCEPT !.state = IF @ = "PREPARE_ABORT" THEN "COMPLETE_COMMIT" ELSE @]

(***************************************************************************)
(* Probes: states that some state of a model must show                     *)
(***************************************************************************)

(* A leader has refused a batch, and its instance is about to learn it. *)
HasRefusedBatch == \E answer \in answers : IsAbortable(clients[answer.instance].awaits, answer.error)

(* A batch that its instance has given up is on its way, and the instance is in its next transaction. *)
HasLateBatch ==
    \E request \in produceRequests \cup verifying \cup verified :
        clients[request.instance].state = "open" /\ clients[request.instance].number > request.number

(* A batch that its leader has refused comes again, and its instance is in its next transaction. *)
HasRefusedCopy == faults > 0 /\ HasLateBatch

=============================================================================
