----------------------------- MODULE BrokerMutants ----------------------------
(***************************************************************************)
(* Rules of Broker with one thing changed. A model replaces a rule by one  *)
(* of these operators. The Python function of the same name does the same  *)
(* to the reference.                                                       *)
(***************************************************************************)
EXTENDS Broker

(* for AnswerToLeader: the coordinator vouches for a partition that is not in the transaction *)
VouchesForAnyPartition(known, producerId, epoch, partition) ==
    Coordinator!AddError([known EXCEPT !.pending = "none"], producerId, epoch)

(* for AfterVouching: the coordinator vouches for a batch of version 2 and adds nothing *)
VouchesWithoutAdding(known, partition) == known

(* for AbortsFirst: the coordinator gives an epoch while a transaction is open *)
GivesWhileOpen(known) == FALSE

(* for AfterInit, with GivesWhileOpen: the coordinator gives the epoch before there are markers *)
AbortsMeanwhile(known, epoch, newProducerId) ==
    IF known.state = "ONGOING" THEN Coordinator!AfterFence(known, NoProducerId)
    ELSE Coordinator!AfterInit(known, epoch, newProducerId)

(* for AfterInit, with GivesWhileOpen: the open transaction goes on, under another producer id *)
OpenGoesOnElsewhere(known, epoch, newProducerId) ==
    IF known.state = "ONGOING" THEN [known EXCEPT !.producerId = newProducerId, !.epoch = 0]
    ELSE Coordinator!AfterInit(known, epoch, newProducerId)

(* for AnswerToLeader: the coordinator vouches for a producer id that is yet to come *)
VouchesForLaterId(known, producerId, epoch, partition) ==
    Coordinator!AddError(known, IF producerId > known.producerId THEN known.producerId ELSE producerId, epoch)

(* for InitError: a client waits as long as a transaction is open *)
WaitsWhileOpen(known, producerId, epoch) ==
    IF known.state = "ONGOING" THEN "CONCURRENT_TRANSACTIONS" ELSE Coordinator!InitError(known, producerId, epoch)

(* for NewProducerId: every producer is given the first producer id *)
AlwaysTheFirst == 0

(* for MarkerOf: the marker of the group's offsets commits whatever the coordinator has decided *)
OffsetsAlwaysCommit(known, partition) ==
    Logs!Marker(known.producerId, known.epoch, partition = "offsets" \/ Coordinator!Commits(known),
                              CoordinatorEpoch)

(* for MarkerOf: the marker of the group's offsets aborts whatever the coordinator has decided *)
OffsetsAlwaysAbort(known, partition) ==
    Logs!Marker(known.producerId, known.epoch, partition # "offsets" /\ Coordinator!Commits(known), CoordinatorEpoch)

(* for MarkerOf: the markers of the second transaction come from a coordinator that has been replaced *)
MarkerOfFormerCoordinator(known, partition) ==
    Logs!Marker(known.producerId, known.epoch, Coordinator!Commits(known),
                IF known.number > 1 THEN CoordinatorEpoch - 1 ELSE CoordinatorEpoch)

(* for CommittedAfterMarker: an offset replaces one that was committed after it (KAFKA-5247) *)
PendingReplacesLater(producerId, commit) ==
    IF commit /\ pending[producerId]["data"] # NoOffset THEN pending[producerId] ELSE committed

(* for CommittedAfterMarker: the marker of an abort commits, too *)
AbortedIsCommitted(producerId, commit) ==
    IF pending[producerId]["data"] > committed["data"] THEN pending[producerId] ELSE committed

(* for CommittedAfterMarker: the group does not hear of markers *)
MarkersAreUnheard(producerId, commit) == committed

(* for WithPending: the group forgets what waits for a marker *)
NothingIsPending(producerId, place) == pending

(* for MarkerOf: a marker has the epoch of the transaction, not the one after it *)
MarkerOfOpenEpoch(known, partition) ==
    Logs!Marker(known.producerId, known.epoch - 1, Coordinator!Commits(known), CoordinatorEpoch)

(* for CommitError: a group does not check the generation *)
AnyGenerationCommits(member, generation) ==
    IF member # NoMember /\ member \notin group.members THEN "UNKNOWN_MEMBER_ID" ELSE "NONE"

(* for MemberError: a group of KIP-848 takes any older epoch of its members *)
OldEpochCommits(member, epoch) ==
    IF member \in Groups!Members /\ epoch < membership.members[member].epoch THEN "NONE"
    ELSE Groups!MemberEpochError(member, epoch, {"data"})

(* for MemberError: a group of KIP-848 takes an epoch that it has not given yet *)
FutureEpochCommits(member, epoch) ==
    IF member \in Groups!Members /\ Groups!HasHadSince(member, "data", epoch) THEN "NONE"
    ELSE Groups!MemberEpochError(member, epoch, {"data"})

(* for MemberError: a group of KIP-848 takes only the latest epoch of a member, as before KIP-1251 *)
LatestEpochCommits(member, epoch) ==
    IF member = NoMember THEN "NONE"
    ELSE IF member \notin Groups!Members THEN "UNKNOWN_MEMBER_ID"
    ELSE IF epoch = membership.members[member].epoch THEN "NONE" ELSE "STALE_MEMBER_EPOCH"

(* for MemberError: a group of KIP-848 takes only epochs before the latest one *)
LatestEpochIsRefused(member, epoch) ==
    IF member = NoMember THEN "NONE"
    ELSE IF member \notin Groups!Members THEN "UNKNOWN_MEMBER_ID"
    ELSE IF epoch < membership.members[member].epoch /\ Groups!HasHadSince(member, "data", epoch) THEN "NONE"
    ELSE "STALE_MEMBER_EPOCH"

(* for MemberError: a group of KIP-848 judges an epoch as a classic one does a generation *)
EpochCountsAsGeneration(member, epoch) ==
    IF member = NoMember THEN "NONE"
    ELSE IF member \notin Groups!Members THEN "UNKNOWN_MEMBER_ID"
    ELSE IF epoch # membership.members[member].epoch THEN "ILLEGAL_GENERATION" ELSE "NONE"

(* for MemberError: a group of KIP-848 knows its members only with their latest epochs *)
UnknownInFormerEpoch(member, epoch) ==
    IF member = NoMember THEN "NONE"
    ELSE IF member \notin Groups!Members THEN "UNKNOWN_MEMBER_ID"
    ELSE IF epoch # membership.members[member].epoch THEN "UNKNOWN_MEMBER_ID" ELSE "NONE"

(* for WireError: every version gets the newest error codes *)
SpeaksNewest(api, error) == error

(* for AnswerToLeader: the coordinator takes an epoch that it has fenced for the present one *)
VouchesForFenced(known, producerId, epoch, partition) ==
    LET present == IF epoch < known.epoch THEN known.epoch ELSE epoch
        error   == Coordinator!AddError([known EXCEPT !.pending = IF ClientVersion = 2 THEN @ ELSE "none"], producerId, present)
    IN  IF ClientVersion = 1 /\ error = "NONE" /\ partition \notin known.partitions THEN "TRANSACTION_ABORTABLE" ELSE error

(* for LeaderAfterRestart: only the last batch of each producer is remembered, as in Kafka *)
RestartKeepsOneBatch(before) ==
    [before EXCEPT !.log.producers = [producerId \in DOMAIN before.log.producers |->
                        [before.log.producers[producerId] EXCEPT !.batches = Leaders!LastOf(@, 1)]],
                   !.asked = [producerId \in ProducerIds |-> Leaders!AskedAfterElection(@[producerId])]]

(* for LeaderAfterRestart: the verification of a batch outlives a restart *)
QuestionsOutliveRestart(before) == [before EXCEPT !.log.producers = Leaders!Rebuilt(Leaders!WithSnapshot(before.log))]

(* for LeaderAfterRestart: the verification of a batch outlives a restart if the log knows the producer *)
KnownOutliveRestart(before) ==
    LET AskedAfter(producerId) ==
            IF Leaders!KnowsProducer(before.log, producerId) THEN before.asked[producerId]
            ELSE Leaders!AskedAfterElection(before.asked[producerId])
    IN  [before EXCEPT !.log.producers = Leaders!Rebuilt(Leaders!WithSnapshot(before.log)),
                       !.asked = [producerId \in ProducerIds |-> AskedAfter(producerId)]]

(* for MetadataAfterRestart: the coordinator does not go on with a prepared transaction *)
RestartForgetsMarkers(known) == Coordinator!InLog(known)

(* for MetadataAfterRestart: the coordinator does not know how the last transaction has ended *)
RestartForgetsEnd(known) ==
    LET after == Coordinator!Loaded(Coordinator!InLog(known)) IN
    IF after.state \in Coordinator!CompletedStates THEN [after EXCEPT !.state = "EMPTY"] ELSE after

(* for MetadataAfterRestart: the coordinator takes a client that it has fenced for one that asks again *)
RestartGuessesLastEpoch(known) ==
    LET after == Coordinator!Loaded(Coordinator!InLog(known)) IN [after EXCEPT !.lastEpoch = after.epoch - 1]

(* Interesting states, which models name as probes and must reach *)
HasBothOpen    == \E producerId \in ProducerIds : IsOpen("data", producerId) /\ IsOpen("offsets", producerId)
HasLaterCommit == \E producerId \in ProducerIds : pending[producerId]["data"] \in 0..(committed["data"] - 1)

=============================================================================
