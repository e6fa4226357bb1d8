------------------------ MODULE TransactionCoordinator ------------------------
(***************************************************************************)
(* The coordinator of one transactional.id, with its log, which answers    *)
(* any request.                                                            *)
(*                                                                         *)
(* Modelled: InitProducerId, AddPartitionsToTxn and EndTxn with every      *)
(*   error code; versions 1 and 2 of transactions, also mixed; retries and *)
(*   the exhaustion of epochs; the fence of an open transaction, between   *)
(*   whose two halves a client's request may come; timeout; expiry of the  *)
(*   transactional.id; appends whose replication takes time, or so long    *)
(*   that the coordinator gives up although the record may stay in the     *)
(*   log; failover to a replica that has any part of what is not           *)
(*   replicated, or that cannot read its last record.                      *)
(* Assumed, not checked: a partition writes a marker when it is sent (its  *)
(*   own checks are those of Transactions); producer ids are handed out    *)
(*   once (KAFKA-20031); no client registers a partition, or ends a        *)
(*   transaction, with epoch -1, which nobody is given; an append of a     *)
(*   coordinator that has been replaced fails; a client's abort between    *)
(*   the halves of a fence, whose append fails, is no failed fence (in     *)
(*   version 1 it is one in Kafka: the next fence then aborts what is open *)
(*   without a new epoch).                                                 *)
(* Out of scope: the transaction's timeout in milliseconds and its bounds; *)
(*   two-phase commit (KIP-939); verification, which changes nothing;      *)
(*   version 0, which differs from 1 only in the format of the records;    *)
(*   what the coordinator's epoch fences.                                  *)
(*                                                                         *)
(* KIPs: 98, 360, 588, 890.  Kafka: TransactionCoordinator,                *)
(* TransactionMetadata, TransactionState, TransactionStateManager,         *)
(* TransactionMarkerChannelManager.                                        *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    ProducerIds,     \* 0..n: the producer ids that requests carry; a new one is one more than the last
    MaxEpoch,        \* the largest epoch there is; 32767 in Kafka
    Partitions,      \* the partitions that can be in a transaction
    Versions,        \* the transaction versions of requests: of 1 and 2
    Faults,          \* what may go wrong: of "append times out", "failover", "timeout", "expiry", "no leader"; with
                     \* "unreadable record", there are replicas that cannot read their last record
    MaxFaults        \* how often

VARIABLES
    metadata,        \* what the coordinator has in memory
    appending,       \* the record on its way into the log, and the request that it belongs to
    durable,         \* the last record that every in-sync replica has
    earlier,         \* the record before it, if replicas may have an unreadable one; only Kafka's rule needs it
    tail,            \* the records after it, whose appends were given up
    loading,         \* the coordinator has loaded records that are not replicated yet
    toMark,          \* the partitions whose marker is still to be written
    fencing,         \* who waits for the second half of a fence: "none", "InitProducerId", "timeout"
    carried,         \* the producer id and epoch that the second half carries; nobody's, since only Kafka's rules need them
    markers,         \* every marker ever written: [number, partition, epoch, commit]
    told,            \* the ends of transactions that clients were told: [number, commit, version, asked, answered]
    given,           \* the last producer id and epoch that a client was given, and those that it asked with
    answer,          \* what the last step answered to a client
    allocated,       \* the number of producer ids that have been handed out
    faults           \* the number of faults so far

vars == <<metadata, appending, durable, earlier, tail, loading, toMark, fencing, carried, markers, told, given, answer,
          allocated, faults>>

logVars     == <<durable, earlier, tail, loading>>
fenceVars   == <<fencing, carried>>
historyVars == <<markers, told>>

NoProducerId == -1
NoEpoch      == -1

Identity(producerId, epoch) == [producerId |-> producerId, epoch |-> epoch]
Nobody == Identity(NoProducerId, NoEpoch)

Answer(request, error, identity) ==
    [request |-> request, error |-> error, producerId |-> identity.producerId, epoch |-> identity.epoch]
NoAnswer == Answer("none", "NONE", Nobody)

(* The coordinator's metadata of a transactional.id that it has never met, or that has expired. *)
Forgotten(number) ==
    [producerId |-> NoProducerId, previousProducerId |-> NoProducerId, nextProducerId |-> NoProducerId, epoch |-> NoEpoch,
     lastEpoch |-> NoEpoch, state |-> "DEAD", pending |-> "none", partitions |-> {}, version |-> 1, failedFence |-> FALSE,
     number |-> number]

NoAppend == [request |-> "none", asked |-> Nobody, record |-> Forgotten(0)]

Init ==
    /\ metadata = Forgotten(0)
    /\ appending = NoAppend
    /\ durable = Forgotten(0)
    /\ earlier = Forgotten(0)
    /\ tail = <<>>
    /\ loading = FALSE
    /\ toMark = {}
    /\ fencing = "none"
    /\ carried = Nobody
    /\ markers = {}
    /\ told = {}
    /\ given = Nobody @@ [asked |-> Nobody]
    /\ answer = NoAnswer
    /\ allocated = 0
    /\ faults = 0

(***************************************************************************)
(* States                                                                  *)
(***************************************************************************)

(* The pairs of a state and one that may follow it, with the lowest transaction version that allows it. *)
LegalTransitions ==
    {<<"EMPTY", "EMPTY", 0>>, <<"COMPLETE_COMMIT", "EMPTY", 0>>, <<"COMPLETE_ABORT", "EMPTY", 0>>,
     <<"EMPTY", "ONGOING", 0>>, <<"ONGOING", "ONGOING", 0>>, <<"COMPLETE_COMMIT", "ONGOING", 0>>,
     <<"COMPLETE_ABORT", "ONGOING", 0>>,
     <<"ONGOING", "PREPARE_COMMIT", 0>>, <<"ONGOING", "PREPARE_ABORT", 0>>, <<"PREPARE_EPOCH_FENCE", "PREPARE_ABORT", 0>>,
     <<"PREPARE_COMMIT", "COMPLETE_COMMIT", 0>>, <<"PREPARE_ABORT", "COMPLETE_ABORT", 0>>,
     <<"EMPTY", "DEAD", 0>>, <<"COMPLETE_COMMIT", "DEAD", 0>>, <<"COMPLETE_ABORT", "DEAD", 0>>,
     <<"ONGOING", "PREPARE_EPOCH_FENCE", 0>>,
     <<"EMPTY", "PREPARE_ABORT", 2>>, <<"COMPLETE_COMMIT", "PREPARE_ABORT", 2>>, <<"COMPLETE_ABORT", "PREPARE_ABORT", 2>>}

PreparedStates  == {"PREPARE_COMMIT", "PREPARE_ABORT"}
CompletedStates == {"COMPLETE_COMMIT", "COMPLETE_ABORT"}
AtRest          == {"EMPTY"} \cup CompletedStates

Prepared(commit)  == IF commit THEN "PREPARE_COMMIT" ELSE "PREPARE_ABORT"
Completed(commit) == IF commit THEN "COMPLETE_COMMIT" ELSE "COMPLETE_ABORT"

(* A record decides for commit. *)
Commits(record) == record.state \in {"PREPARE_COMMIT", "COMPLETE_COMMIT"}

(* The version of the requests that the coordinator makes to itself. *)
ServerVersion == IF 2 \in Versions THEN 2 ELSE 1

(* No producer gets an epoch after this one: the last epoch is for fencing. *)
IsExhausted(epoch) == epoch >= MaxEpoch - 1

(* A transition is pending that no request of a client may interrupt. *)
IsBusy(known) == known.pending \notin {"none", "PREPARE_EPOCH_FENCE"}

(* The record that leads to a state; each remembers the producer id before it. *)
To(known, state) ==
    [known EXCEPT !.state = state, !.pending = "none", !.previousProducerId = known.producerId]

(* The part of the coordinator's metadata that the log keeps. *)
InLog(known) == [known EXCEPT !.lastEpoch = NoEpoch, !.pending = "none", !.failedFence = FALSE]

(* The metadata that a new coordinator loads from the last record: it continues a prepared transaction. *)
Loaded(record) ==
    IF record.state \in PreparedStates THEN [record EXCEPT !.pending = Completed(Commits(record))] ELSE record

(***************************************************************************)
(* InitProducerId                                                          *)
(***************************************************************************)

(* A transactional.id that the coordinator meets for the first time has a producer id and no epoch. *)
Created(known, producerId) == [Forgotten(known.number) EXCEPT !.producerId = producerId, !.state = "EMPTY"]

(* The producer id that a client presents is its own, or was until the epochs ran out. *)
IsValidProducerId(known, producerId, epoch) ==
    \/ known.epoch = NoEpoch
    \/ producerId = known.producerId
    \/ producerId = known.previousProducerId /\ IsExhausted(epoch)

(* The request is a retry: it asks again for an identity that was given already. *)
IsRetryOfInit(known, epoch) ==
    known.epoch # NoEpoch /\ epoch # NoEpoch /\ epoch # known.epoch /\ epoch = known.lastEpoch

(* Departs from Kafka: there, when the epochs have run out, every epoch but the present one fails with *)
(* UNKNOWN_SERVER_ERROR, also that of a retry (the mutant NoBumpWhenExhausted).                        *)

(* The reason why the coordinator gives no epoch although nothing is open; "NONE" if it does. *)
BumpError(known, epoch) ==
    IF known.epoch = NoEpoch \/ epoch \in {NoEpoch, known.epoch} \/ IsRetryOfInit(known, epoch) THEN "NONE"
    ELSE "PRODUCER_FENCED"

(* The reason why the coordinator gives no producer id and epoch; "NONE" if it does, or starts to abort. *)
InitError(known, producerId, epoch) ==
    IF (producerId = NoProducerId) # (epoch = NoEpoch) THEN "INVALID_REQUEST"
    ELSE IF known.pending # "none" THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF producerId # NoProducerId /\ ~IsValidProducerId(known, producerId, epoch) THEN "PRODUCER_FENCED"
    ELSE IF known.state \in PreparedStates THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.state = "ONGOING" THEN "NONE"
    ELSE BumpError(known, epoch)

(* The client needs a new producer id, since the epochs of its own have run out. *)
Rotates(known, epoch) == IsExhausted(known.epoch) /\ epoch \in {NoEpoch, known.epoch}

(* Departs from Kafka: there the retry of a request that brought a new producer id forgets the one before it, so that  *)
(* the next retry is fenced (the mutant RetryForgetsProducerId).                                                       *)

(* The coordinator's metadata after it has given the same producer id and epoch again. *)
AfterRetryOfInit(known) == [known EXCEPT !.state = "EMPTY", !.partitions = {}]

(* The coordinator's metadata after it has given a producer id and epoch. *)
AfterInit(known, epoch, newProducerId) ==
    LET last == IF epoch = NoEpoch THEN NoEpoch ELSE known.epoch
        ready == [To(known, "EMPTY") EXCEPT !.partitions = {}]
    IN  IF Rotates(known, epoch) THEN [ready EXCEPT !.producerId = newProducerId, !.epoch = 0, !.lastEpoch = last]
        ELSE IF IsRetryOfInit(known, epoch) THEN AfterRetryOfInit(known)
        ELSE [ready EXCEPT !.epoch = @ + 1, !.lastEpoch = last]

(***************************************************************************)
(* AddPartitionsToTxn                                                      *)
(***************************************************************************)

(* The reason why the coordinator adds no partition; "NONE" if it does, or has it already. *)
AddError(known, producerId, epoch) ==
    IF known.state = "DEAD" THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.pending # "none" THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.producerId # producerId THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"
    ELSE IF known.state \in PreparedStates THEN "CONCURRENT_TRANSACTIONS"
    ELSE "NONE"

(* The partition is in the transaction already. *)
IsAdded(known, partition) == known.state = "ONGOING" /\ partition \in known.partitions

(* The coordinator's metadata after a partition was added to the transaction, which begins if it has not. *)
AfterAdd(known, partition, version) ==
    [To(known, "ONGOING") EXCEPT !.partitions = @ \cup {partition}, !.version = version,
                                 !.number = IF known.state = "ONGOING" THEN @ ELSE @ + 1]

(***************************************************************************)
(* EndTxn                                                                  *)
(***************************************************************************)

(* A retry of the request that ended the previous transaction, when the epochs had run out. *)
IsRetryOfLastEpoch(known, producerId, epoch) ==
    known.pending # "PREPARE_EPOCH_FENCE" /\ producerId = known.previousProducerId /\ epoch = MaxEpoch - 1 /\ known.epoch = 0

(* A retry: the request asks for the decision that was made, with the identity before the decision's bump. *)
IsRetryOfEnd(known, producerId, epoch) ==
    known.pending # "PREPARE_EPOCH_FENCE" /\
    (epoch + 1 = known.epoch \/ IsRetryOfLastEpoch(known, producerId, epoch))

(* The epoch is one with which a transaction of version 2 may be ended in this state. *)
IsEpochToEnd(known, producerId, epoch) ==
    IF known.state \in PreparedStates THEN epoch + 1 = known.epoch
    ELSE \/ epoch = known.epoch
         \/ known.state \in CompletedStates /\ IsRetryOfEnd(known, producerId, epoch)

(* While a fence waits for its second half, a commit meets a transition that it may not replace: Kafka fails then. *)

(* The reason why the coordinator does not begin to end an open transaction, or "DECIDE" if it does. *)
OpenVerdict(known, commit) ==
    IF commit /\ known.pending = "PREPARE_EPOCH_FENCE" THEN "UNKNOWN_SERVER_ERROR" ELSE "DECIDE"

(* The reason why the coordinator does not end the transaction of a version 1 request, or "DECIDE" if it does. *)
EndVerdictOfVersion1(known, producerId, epoch, commit) ==
    IF known.producerId # producerId THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF known.epoch # epoch THEN "PRODUCER_FENCED"
    ELSE IF IsBusy(known) THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.state = "ONGOING" THEN OpenVerdict(known, commit)
    ELSE IF known.state = Completed(commit) THEN "NONE"
    ELSE IF known.state = Prepared(commit) THEN "CONCURRENT_TRANSACTIONS"
    ELSE "INVALID_TXN_STATE"

(* The reason why the coordinator does not end the transaction of a version 2 request, or "DECIDE" if it does. *)
EndVerdictOfVersion2(known, producerId, epoch, commit) ==
    IF IsBusy(known) THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.producerId # producerId /\ ~IsRetryOfLastEpoch(known, producerId, epoch)
    THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF ~IsEpochToEnd(known, producerId, epoch) THEN "PRODUCER_FENCED"
    ELSE IF known.state = "ONGOING" THEN OpenVerdict(known, commit)
    ELSE IF known.state = Prepared(commit) THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF known.state \in PreparedStates THEN "INVALID_TXN_STATE"
    ELSE IF known.state \in CompletedStates /\ IsRetryOfEnd(known, producerId, epoch)
    THEN (IF known.state = Completed(commit) THEN "NONE" ELSE "INVALID_TXN_STATE")
    ELSE IF commit THEN "INVALID_TXN_STATE"
    ELSE "DECIDE"

(* The reason why the coordinator does not begin to end the transaction, or "DECIDE" if it does. *)
EndVerdict(known, producerId, epoch, commit, version) ==
    IF known.state = "DEAD" THEN "INVALID_PRODUCER_ID_MAPPING"
    ELSE IF version = 1 THEN EndVerdictOfVersion1(known, producerId, epoch, commit)
    ELSE EndVerdictOfVersion2(known, producerId, epoch, commit)

(* The end of a transaction of version 2 in the last epoch brings a new producer id. *)
NeedsNextProducerId(known, version) == version = 2 /\ IsExhausted(known.epoch)

(* The coordinator's metadata after the end is decided. Ending what has not begun counts as a transaction too. *)
AfterEnd(known, commit, version, nextProducerId) ==
    [To(known, Prepared(commit)) EXCEPT
        !.epoch = IF version = 2 /\ @ < MaxEpoch THEN @ + 1 ELSE @,
        !.lastEpoch = IF version = 2 THEN known.epoch ELSE @,
        !.nextProducerId = nextProducerId, !.version = version, !.failedFence = FALSE,
        !.number = IF known.state = "ONGOING" THEN @ ELSE @ + 1]

(* The identity with which a client of version 2 goes on, once it is told that its transaction has ended. *)
GoesOnAs(record) ==
    IF record.nextProducerId # NoProducerId THEN Identity(record.nextProducerId, 0)
    ELSE Identity(record.producerId, record.epoch)

(* The coordinator's metadata after every marker is written. *)
AfterCompletion(known) ==
    [To(known, Completed(Commits(known))) EXCEPT
        !.producerId = IF known.nextProducerId # NoProducerId THEN known.nextProducerId ELSE @,
        !.epoch = IF known.nextProducerId # NoProducerId THEN 0 ELSE @,
        !.nextProducerId = NoProducerId, !.partitions = {}]

(***************************************************************************)
(* The coordinator's own abort                                             *)
(***************************************************************************)

(* The epoch that fences the producer of an open transaction; a fence whose append failed does not count twice. *)
FencingEpoch(known) == IF known.failedFence \/ known.epoch = MaxEpoch THEN known.epoch ELSE known.epoch + 1

(* The metadata in memory before the append: version 1 raises the epoch at once. *)
Raised(known) ==
    IF ServerVersion = 1 THEN [known EXCEPT !.epoch = FencingEpoch(known), !.lastEpoch = NoEpoch] ELSE known

(* Between the halves of a fence an abort of version 1 forgets the last epoch, as the fence would have done. *)
(* Kafka: TransactionCoordinator.endTransactionWithTV1                                                       *)

(* The metadata in memory when a client ends its transaction. *)
Interrupted(known, version) ==
    IF version = 1 /\ known.pending = "PREPARE_EPOCH_FENCE" THEN [known EXCEPT !.lastEpoch = NoEpoch] ELSE known

(* The coordinator's metadata after its own decision to abort; in version 2 the end's own bump fences. *)
AfterFence(known, nextProducerId) == AfterEnd(Raised(known), FALSE, ServerVersion, nextProducerId)

(* The pending transition says whether the second half of a fence is still due.                          *)
(* Departs from Kafka: there the second half carries the epoch that the first one has chosen (the mutant *)
(* CarriesFencingEpoch).                                                                                 *)

(* The producer id and epoch that the second half of a fence carries. *)
CarriedBy(known) == Nobody

(* "DECIDE" if the next one is aborted.                                                                          *)
(* Departs from Kafka: there the second half is an EndTxn like a client's, which aborts the next one (the mutant *)
(* AbortsNext).                                                                                                  *)

(* The answer to a fence whose transaction the client has ended itself. *)
LateFenceVerdict(known) == "CONCURRENT_TRANSACTIONS"

(***************************************************************************)
(* The coordinator's log                                                   *)
(***************************************************************************)

(* The log after an append that every in-sync replica has, and with it all records before. *)
LogAfter(append) == [durable |-> InLog(append.record), tail |-> <<>>]

(* Version 2 raises no epoch in memory before the append (KAFKA-19367).    Kafka: TransactionCoordinator.endTransaction *)

(* A fence has failed whose epoch stays in memory. The abort of a late fence (AbortsNext) has raised none. *)
IsFailedFence(append) ==
    /\ ServerVersion = 1
    /\ append.request \in {"InitProducerId fences", "timeout"}
    /\ append.asked = Nobody

(* The coordinator's metadata after an append that it gave up: as before. A completion is tried again. *)
AfterTimeout(known, append) ==
    IF append.request = "complete" THEN known
    ELSE [known EXCEPT !.pending = "none", !.failedFence = @ \/ IsFailedFence(append)]

LogEnd == IF tail = <<>> THEN durable ELSE tail[Len(tail)]

(* The record before the last one that every in-sync replica has, once a record follows it. *)
EarlierAfter(record) == IF "unreadable record" \in Faults THEN record ELSE earlier

(* A replica that cannot read its last record does not become the coordinator: another one does.                      *)
(* Departs from Kafka: there it does, logs the error, and acts on the states before that record (the mutant           *)
(* StopsAtUnreadable, in which every new coordinator is such a replica).                                              *)

(* The record that a new coordinator takes its state from. *)
LastRead(found) == IF found = <<>> THEN durable ELSE found[Len(found)]

(* Departs from Kafka: there a new coordinator acts on all that it finds in its log, and may lose it to the next one *)
(* (the mutant ActsOnLoaded).                                                                                        *)

(* A new coordinator acts when what it has loaded is replicated. *)
MayAct == ~loading

(* The metadata in memory once a record is in the log; the markers follow the decision. *)
AfterAppend(record) ==
    IF record.state = "DEAD" THEN Forgotten(record.number)
    ELSE Loaded(record)

(* Departs from Kafka: there the markers follow only a decision that has the epoch that the fence carries (the mutant *)
(* MarksCarriedEpoch).                                                                                                *)

(* The metadata in memory once the record of an append is in the log. *)
GoesOn(append) == AfterAppend(append.record)

(* An append of the previous coordinator that arrives now is refused. *)

(* The records after those that are replicated, once another replica has become the coordinator. *)
TailAfterFailover(found) == found

(* Departs from Kafka: there a late fence whose decision has another epoch is answered PRODUCER_FENCED (the mutant *)
(* AnswersLateFence).                                                                                              *)

(* The answer to a client once the record is in the log. *)
AnswerTo(append) ==
    IF append.request = "InitProducerId" THEN
        Answer("InitProducerId", "NONE", Identity(append.record.producerId, append.record.epoch))
    ELSE IF append.request = "AddPartition" THEN Answer("AddPartition", "NONE", Nobody)
    ELSE IF append.request = "EndTxn" THEN
        Answer("EndTxn", "NONE", IF append.record.version = 2 THEN GoesOnAs(append.record) ELSE Nobody)
    ELSE IF append.request = "InitProducerId fences" THEN Answer("InitProducerId", "CONCURRENT_TRANSACTIONS", Nobody)
    ELSE NoAnswer

(* The answer to a client when the record is not in the log. *)
ErrorTo(append, error) ==
    IF append.request = "InitProducerId fences" THEN Answer("InitProducerId", error, Nobody)
    ELSE IF append.request \in {"InitProducerId", "AddPartition", "EndTxn"} THEN Answer(append.request, error, Nobody)
    ELSE NoAnswer

(* The partitions that get a marker next. *)
ToMark(known) == IF known.state \in PreparedStates /\ known.pending # "none" THEN known.partitions ELSE {}

IsIdle == appending.request = "none"

(* A fault happens, if one may happen still. *)
Fault(kind) == kind \in Faults /\ faults < MaxFaults /\ faults' = faults + 1

(* A client is answered, and perhaps given a producer id and epoch. *)
Answers(next, asked) ==
    /\ answer' = next
    /\ given' = IF next.error = "NONE" /\ next.producerId # NoProducerId
                THEN Identity(next.producerId, next.epoch) @@ [asked |-> asked] ELSE given

(* Nobody is answered. *)
AnswersNobody == answer' = NoAnswer /\ UNCHANGED given

(* The history with one more entry: only properties read it, and no rule does. *)
Noted(history, entry) == history \cup {entry}

(* A record begins its way into the log; meanwhile no other transition may begin. *)
Append_(known, request, asked, record) ==
    /\ metadata' = [known EXCEPT !.pending = record.state]
    /\ appending' = [request |-> request, asked |-> asked, record |-> record]

(***************************************************************************)
(* Requests                                           WHO: a client        *)
(***************************************************************************)

(* A client asks for a producer id and epoch. An open transaction is aborted first. *)
HandleInitProducerId(producerId, epoch) ==
    LET known == IF metadata.state = "DEAD" THEN Created(metadata, allocated) ELSE metadata
        error == IF MayAct THEN InitError(known, producerId, epoch) ELSE "COORDINATOR_LOAD_IN_PROGRESS"
    IN  /\ IF error # "NONE" THEN
              /\ Answers(Answer("InitProducerId", error, Nobody), Nobody)
              /\ UNCHANGED <<metadata, appending, fenceVars, allocated>>
           ELSE IF known.state = "ONGOING" THEN
              /\ metadata' = [known EXCEPT !.pending = "PREPARE_EPOCH_FENCE"]
              /\ fencing' = "InitProducerId"
              /\ carried' = CarriedBy(known)
              /\ AnswersNobody
              /\ UNCHANGED <<appending, allocated>>
           ELSE
              /\ Append_(known, "InitProducerId", Identity(producerId, epoch), AfterInit(known, epoch, allocated))
              /\ allocated' = IF metadata.state = "DEAD" \/ Rotates(known, epoch) THEN allocated + 1 ELSE allocated
              /\ AnswersNobody
              /\ UNCHANGED fenceVars
        /\ UNCHANGED <<logVars, toMark, historyVars, faults>>

(* A client, or a partition's leader for it, adds a partition to the transaction. *)
HandleAddPartition(producerId, epoch, partition, version) ==
    LET error == IF MayAct THEN AddError(metadata, producerId, epoch) ELSE "COORDINATOR_LOAD_IN_PROGRESS"
    IN  /\ IF error # "NONE" \/ IsAdded(metadata, partition) THEN
              /\ Answers(Answer("AddPartition", error, Nobody), Nobody)
              /\ UNCHANGED <<metadata, appending>>
           ELSE
              /\ Append_(metadata, "AddPartition", Identity(producerId, epoch), AfterAdd(metadata, partition, version))
              /\ AnswersNobody
        /\ UNCHANGED <<logVars, toMark, fenceVars, historyVars, allocated, faults>>

(* A client ends its transaction. *)
HandleEndTxn(producerId, epoch, commit, version) ==
    LET asked   == Identity(producerId, epoch)
        known   == Interrupted(metadata, version)
        verdict == IF MayAct THEN EndVerdict(metadata, producerId, epoch, commit, version)
                   ELSE "COORDINATOR_LOAD_IN_PROGRESS"
        next    == IF NeedsNextProducerId(metadata, version) THEN allocated ELSE NoProducerId
        same    == IF version = 2 THEN GoesOnAs(metadata) ELSE Nobody
    IN  /\ IF verdict = "DECIDE" THEN
              /\ Append_(known, "EndTxn", asked, AfterEnd(known, commit, version, next))
              /\ allocated' = IF next # NoProducerId THEN allocated + 1 ELSE allocated
              /\ AnswersNobody
              /\ UNCHANGED told
           ELSE
              /\ told' = IF verdict # "NONE" THEN told ELSE Noted(told,
                    [number |-> metadata.number, commit |-> commit, version |-> version, asked |-> asked, answered |-> same])
              /\ Answers(Answer("EndTxn", verdict, IF verdict = "NONE" THEN same ELSE Nobody), Nobody)
              /\ UNCHANGED <<metadata, appending, allocated>>
        /\ UNCHANGED <<logVars, toMark, fenceVars, markers, faults>>

(***************************************************************************)
(* The coordinator by itself                          WHO: the coordinator *)
(***************************************************************************)

(* The transaction has been open for longer than its timeout: the coordinator begins to abort it. *)
TimeOut ==
    /\ MayAct /\ metadata.state = "ONGOING" /\ metadata.pending = "none"
    /\ Fault("timeout")
    /\ metadata' = [metadata EXCEPT !.pending = "PREPARE_EPOCH_FENCE"]
    /\ fencing' = "timeout"
    /\ carried' = CarriedBy(metadata)
    /\ AnswersNobody
    /\ UNCHANGED <<appending, logVars, toMark, historyVars, allocated>>

(* The second half of a fence: the coordinator aborts the transaction, if its client has not done so meanwhile. *)
AbortFenced ==
    LET next    == IF NeedsNextProducerId(metadata, ServerVersion) THEN allocated ELSE NoProducerId
        request == IF fencing = "timeout" THEN "timeout" ELSE "InitProducerId fences"
    IN  /\ fencing # "none"
        /\ fencing' = "none"
        /\ carried' = Nobody
        /\ IF metadata.pending = "PREPARE_EPOCH_FENCE" THEN
              /\ Append_(Raised(metadata), request, Nobody, AfterFence(metadata, next))
              /\ allocated' = IF next # NoProducerId THEN allocated + 1 ELSE allocated
              /\ AnswersNobody
           ELSE IF LateFenceVerdict(metadata) = "DECIDE" THEN
              /\ Append_(metadata, request, carried, AfterEnd(metadata, FALSE, ServerVersion, next))
              /\ allocated' = IF next # NoProducerId THEN allocated + 1 ELSE allocated
              /\ AnswersNobody
           ELSE
              /\ Answers(IF fencing = "timeout" THEN NoAnswer
                         ELSE Answer("InitProducerId", LateFenceVerdict(metadata), Nobody), Nobody)
              /\ UNCHANGED <<metadata, appending, allocated>>
        /\ UNCHANGED <<logVars, toMark, historyVars, faults>>

(* The transactional.id has not been used for long: the coordinator forgets it. *)
ExpireTransactionalId ==
    /\ MayAct /\ metadata.state \in AtRest /\ metadata.pending = "none"
    /\ Fault("expiry")
    /\ Append_(metadata, "expiry", Nobody, Forgotten(metadata.number))
    /\ AnswersNobody
    /\ UNCHANGED <<logVars, toMark, fenceVars, historyVars, allocated>>

(* A partition's marker commits if the coordinator has decided so. *)
MarkerCommits(partition) == Commits(metadata)

(* A partition of the transaction gets its marker. *)
WriteMarker(partition) ==
    /\ MayAct /\ IsIdle /\ metadata.state \in PreparedStates /\ metadata.pending # "none"
    /\ partition \in toMark
    /\ toMark' = toMark \ {partition}
    /\ markers' = Noted(markers, [number |-> metadata.number, partition |-> partition, epoch |-> metadata.epoch,
                                  commit |-> MarkerCommits(partition)])
    /\ AnswersNobody
    /\ UNCHANGED <<metadata, appending, logVars, fenceVars, told, allocated, faults>>

(* Departs from Kafka: 4.3 takes the partition for one that was deleted, and leaves its marker out (the mutant *)
(* NoLeaderIsDeleted).                                                                                         *)

(* The partitions whose marker is missing after the coordinator has found no leader of one: it asks again. *)
MarkersWithoutLeader(partition) == toMark

(* A partition of the transaction has no leader at the moment when it is to get its marker. *)
FindNoLeader(partition) ==
    /\ MayAct /\ partition \in toMark
    /\ Fault("no leader")
    /\ toMark' = MarkersWithoutLeader(partition)
    /\ AnswersNobody
    /\ UNCHANGED <<metadata, appending, logVars, fenceVars, historyVars, allocated>>

(* Every partition has its marker. *)
MayComplete == toMark = {}

(* The coordinator closes the transaction. *)
CompleteTransaction ==
    /\ MayAct /\ IsIdle /\ metadata.state \in PreparedStates /\ metadata.pending # "none"
    /\ MayComplete
    /\ Append_(metadata, "complete", Nobody, AfterCompletion(metadata))
    /\ AnswersNobody
    /\ UNCHANGED <<logVars, toMark, fenceVars, historyVars, allocated, faults>>

(***************************************************************************)
(* The coordinator's log                 WHO: leader of the log's partition *)
(***************************************************************************)

(* Every in-sync replica has the record: the coordinator takes it over and answers. *)
AppendIsReplicated ==
    LET record == appending.record
        next   == AnswerTo(appending)
    IN  /\ ~IsIdle
        /\ durable' = LogAfter(appending).durable
        /\ earlier' = EarlierAfter(LogEnd)
        /\ tail' = LogAfter(appending).tail
        /\ loading' = FALSE
        /\ metadata' = GoesOn(appending)
        /\ toMark' = ToMark(GoesOn(appending))
        /\ told' = IF next.request # "EndTxn" THEN told ELSE Noted(told,
              [number |-> record.number, commit |-> Commits(record), version |-> record.version, asked |-> appending.asked,
               answered |-> Identity(next.producerId, next.epoch)])
        /\ Answers(next, IF next.request = "InitProducerId" THEN appending.asked ELSE Nobody)
        /\ appending' = NoAppend
        /\ UNCHANGED <<fenceVars, markers, allocated, faults>>

(* The coordinator gives an append up; the record stays in the log, and may be replicated or lost. *)
AppendTimesOut ==
    /\ ~IsIdle
    /\ Fault("append times out")
    /\ tail' = Append(tail, InLog(appending.record))
    /\ metadata' = AfterTimeout(metadata, appending)
    /\ Answers(ErrorTo(appending, "COORDINATOR_NOT_AVAILABLE"), Nobody)
    /\ appending' = NoAppend
    /\ UNCHANGED <<durable, earlier, loading, toMark, fenceVars, historyVars, allocated>>

(* Every in-sync replica gets a record whose append was given up. *)
ReplicateTail ==
    /\ tail # <<>>
    /\ durable' = Head(tail)
    /\ earlier' = EarlierAfter(durable)
    /\ tail' = Tail(tail)
    /\ loading' = (loading /\ Tail(tail) # <<>>)
    /\ AnswersNobody
    /\ UNCHANGED <<metadata, appending, toMark, fenceVars, historyVars, allocated, faults>>

(* The records that are not replicated, the one on its way included. *)
Unreplicated == IF IsIdle THEN tail ELSE Append(tail, InLog(appending.record))

(* Another replica becomes the coordinator, with the first few of the records that are not replicated. *)
Failover(kept) ==
    LET found == SubSeq(Unreplicated, 1, kept) IN
    /\ kept <= Len(Unreplicated)
    /\ Fault("failover")
    /\ tail' = TailAfterFailover(found)
    /\ loading' = (found # <<>>)
    /\ metadata' = Loaded(LastRead(found))
    /\ toMark' = ToMark(metadata')
    /\ fencing' = "none"
    /\ carried' = Nobody
    /\ Answers(ErrorTo(appending, "NOT_COORDINATOR"), Nobody)
    /\ appending' = NoAppend
    /\ UNCHANGED <<durable, earlier, historyVars, allocated>>

(* The producer ids that a request may present: none, or any. *)
RequestProducerIds == ProducerIds \cup {NoProducerId}
RequestEpochs      == NoEpoch..MaxEpoch
Epochs             == 0..MaxEpoch

Next ==
    \/ \E producerId \in RequestProducerIds, epoch \in RequestEpochs : HandleInitProducerId(producerId, epoch)
    \/ \E producerId \in ProducerIds, epoch \in Epochs, version \in Versions :
        \/ \E partition \in Partitions : HandleAddPartition(producerId, epoch, partition, version)
        \/ \E commit \in BOOLEAN : HandleEndTxn(producerId, epoch, commit, version)
    \/ TimeOut
    \/ AbortFenced
    \/ ExpireTransactionalId
    \/ \E partition \in Partitions : WriteMarker(partition) \/ FindNoLeader(partition)
    \/ CompleteTransaction
    \/ AppendIsReplicated
    \/ AppendTimesOut
    \/ ReplicateTail
    \/ \E kept \in 0..MaxFaults : Failover(kept)

Spec == Init /\ [][Next]_vars

(* The coordinator and its log go on; requests and faults need not come. *)
FairSpec ==
    /\ Spec
    /\ WF_vars(AbortFenced)
    /\ WF_vars(AppendIsReplicated)
    /\ WF_vars(ReplicateTail)
    /\ WF_vars(\E partition \in Partitions : WriteMarker(partition))
    /\ WF_vars(CompleteTransaction)

(***************************************************************************)
(* Properties, over markers, answers and the log                           *)
(***************************************************************************)

(* The coordinator's memory goes only where the table lets it, until another takes over. A transactional.id may begin *)
(* anew after it was forgotten.                                                                                       *)
OnlyLegalTransitions ==
    [][\/ metadata'.state = metadata.state
       \/ faults' # faults
       \/ metadata.state = "DEAD" /\ metadata'.state = "EMPTY"
       \/ \E legal \in LegalTransitions :
             legal[1] = metadata.state /\ legal[2] = metadata'.state /\ legal[3] <= metadata'.version]_vars
OnlyLegalTransitionsWitness ==
    metadata.state \in PreparedStates /\ metadata'.state # metadata.state /\ faults' = faults

Decisions ==
    {[number |-> marker.number, commit |-> marker.commit] : marker \in markers}
        \cup {[number |-> end.number, commit |-> end.commit] : end \in told}

(* No transaction is committed here and aborted there, neither by a marker nor by an answer to a client. *)
DecisionIsFinal == \A one, other \in Decisions : one.number = other.number => one.commit = other.commit
DecisionIsFinalWitness == \E marker \in markers, end \in told : marker.number = end.number

(* Nobody is given the last epoch, and no marker has an epoch above it. *)
EpochsAreBounded ==
    /\ given.epoch < MaxEpoch
    /\ \A marker \in markers : marker.epoch <= MaxEpoch
EpochsAreBoundedWitness == given.epoch = MaxEpoch - 1

(* Every step raises the epoch of a producer id by one at most. *)
EpochsRiseByOne ==
    [][durable'.producerId = durable.producerId => durable'.epoch <= durable.epoch + 1]_vars
EpochsRiseByOneWitness ==
    durable.epoch >= 0 /\ durable'.producerId = durable.producerId /\ durable'.epoch # durable.epoch

IsNewer(one, other) ==
    one.producerId > other.producerId \/ (one.producerId = other.producerId /\ one.epoch > other.epoch)

IsSame(one, other) == one.producerId = other.producerId /\ one.epoch = other.epoch

(* The identities that clients are given never go back. *)
OnlyForward == [][IsNewer(given', given) \/ IsSame(given', given)]_vars
OnlyForwardWitness == given.producerId # NoProducerId /\ ~IsSame(given', given)

(* InitProducerId gives each producer id and epoch once, except to a client that presents the ones it had before. *)
HandedOutOnce ==
    [][answer'.error = "NONE" /\ answer'.request = "InitProducerId" =>
          IsNewer(given', given) \/ appending.asked # Nobody]_vars
HandedOutOnceWitness ==
    answer'.error = "NONE" /\ answer'.request = "InitProducerId" /\ given.producerId # NoProducerId

(* InitProducerId gives no producer id and epoch before the log says that no transaction is open. *)
GivenAtRest ==
    [][answer'.request = "InitProducerId" /\ answer'.error = "NONE" => durable'.state = "EMPTY"]_vars
GivenAtRestWitness ==
    answer'.request = "InitProducerId" /\ answer'.error = "NONE" /\ durable.state \in CompletedStates

(* When the coordinator aborts by itself, the markers have a newer identity than any client. *)
AbortFences ==
    [][appending.request \in {"timeout", "InitProducerId fences"} /\ appending'.request = "none" /\ durable' # durable =>
          IsNewer(durable', given)]_vars
AbortFencesWitness ==
    /\ appending.request \in {"timeout", "InitProducerId fences"} /\ appending'.request = "none"
    /\ durable' # durable /\ durable'.producerId = given.producerId

(* A request that is accepted has the identity of the record that it leads to. *)
AcceptedIsCurrent ==
    appending.request \in {"AddPartition", "EndTxn"} =>
        /\ appending.asked.producerId = appending.record.producerId
        /\ appending.asked.epoch = IF appending.request = "EndTxn" /\ appending.record.version = 2
                                   THEN appending.record.epoch - 1 ELSE appending.record.epoch
AcceptedIsCurrentWitness == appending.request = "EndTxn"

(* At the moment when a client is told or given something, the log has it. (The log may have more: an append that was *)
(* given up has arrived.)                                                                                             *)
AnswerIsDurable ==
    answer.error = "NONE" =>
        /\ answer.request = "EndTxn" /\ durable.number = metadata.number =>
              durable.state \in PreparedStates \cup CompletedStates \cup {"EMPTY", "DEAD"}
        /\ answer.request = "AddPartition" => metadata.partitions \subseteq durable.partitions
        /\ durable.state # "DEAD" =>
              ~IsNewer(answer, IF durable.nextProducerId = NoProducerId THEN durable
                               ELSE Identity(durable.nextProducerId, 0))
AnswerIsDurableWitness == answer.error = "NONE" /\ answer.request = "EndTxn"

(* A transaction goes on as the client was told. *)
EndsAsAnswered ==
    \A end \in told : end.version = 2 /\ end.number = metadata.number /\ metadata.state \in CompletedStates =>
        end.answered = Identity(metadata.producerId, metadata.epoch)
EndsAsAnsweredWitness ==
    \E end \in told : end.version = 2 /\ end.number = metadata.number /\ metadata.state \in CompletedStates

HasNothingNew(end) == end.version = 2 /\ end.number = metadata.number /\ metadata.state \in PreparedStates \cup CompletedStates

(* A client that asks for the end again gets the answer again, as long as nothing new has begun. *)
RetryIsAnswered ==
    \A end \in told : HasNothingNew(end) =>
        EndVerdict(metadata, end.asked.producerId, end.asked.epoch, end.commit, 2) \in {"NONE", "CONCURRENT_TRANSACTIONS"}
RetryIsAnsweredWitness == \E end \in told : HasNothingNew(end)

(* A client that goes on as it was told is not fenced, as long as nothing new has begun. *)
NoSpuriousFencing ==
    \A end \in told : HasNothingNew(end) =>
        LET answers == {EndVerdict(metadata, end.answered.producerId, end.answered.epoch, commit, 2) : commit \in BOOLEAN}
                       \cup {AddError(metadata, end.answered.producerId, end.answered.epoch)}
        IN  answers \cap {"PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"} = {}
NoSpuriousFencingWitness == \E end \in told : HasNothingNew(end)

(* A client that asks again for what it was given is not refused, as long as nothing new has begun and the coordinator *)
(* is the same.                                                                                                        *)
RetryOfInitIsAnswered ==
    metadata.state = "EMPTY" /\ metadata.pending = "none" /\ metadata.lastEpoch # NoEpoch =>
        InitError(metadata, given.asked.producerId, given.asked.epoch) = "NONE"
RetryOfInitIsAnsweredWitness == metadata.state = "EMPTY" /\ metadata.pending = "none" /\ metadata.lastEpoch # NoEpoch

(* Markers follow the decision in the log and say what it says, and completion follows the markers. *)
PrepareThenMarkersThenComplete ==
    [][/\ \A marker \in markers' \ markers : durable.state = Prepared(marker.commit)
       /\ durable'.state \in CompletedStates =>
             \A partition \in durable.partitions :
                 [number |-> durable.number, partition |-> partition, epoch |-> durable.epoch,
                  commit |-> Commits(durable')] \in markers]_vars
PrepareThenMarkersThenCompleteWitness ==
    durable.state \in PreparedStates /\ durable'.state \in CompletedStates /\ durable.partitions # {}

(* A decision that the log follows with anything except its completion was given up, and has no marker. *)
GivenUpHasNoMarker ==
    [][durable.state \in PreparedStates /\ durable' # durable /\ durable'.state # Completed(Commits(durable)) =>
          \A marker \in markers : marker.number # durable.number]_vars
GivenUpHasNoMarkerWitness ==
    durable.state \in PreparedStates /\ durable' # durable /\ durable'.state # Completed(Commits(durable))

(* While nothing is being appended, and unless an append was given up, memory is what a new coordinator would load. *)
MemoryIsReplay ==
    IsIdle /\ ("append times out" \notin Faults \/ faults = 0) =>
        \A name \in DOMAIN metadata \ {"lastEpoch", "pending"} : metadata[name] = LogEnd[name]
MemoryIsReplayWitness ==
    /\ metadata.state \in CompletedStates
    /\ IsIdle /\ ("append times out" \notin Faults \/ faults = 0)

(* Every pending transition can end, and after a decision its completion is pending. *)
NothingIsStuck ==
    /\ metadata.state \in PreparedStates => metadata.pending = Completed(Commits(metadata))
    /\ metadata.pending = "PREPARE_EPOCH_FENCE" => fencing # "none"
    /\ metadata.pending \notin {"none", "PREPARE_EPOCH_FENCE"} /\ metadata.state \notin PreparedStates => ~IsIdle
NothingIsStuckWitness == metadata.state \in PreparedStates

(* Claims that do not hold: models show it.                *)

(* A client with an epoch that is neither the present nor the last one is refused, also while a transaction is open. *)
FencedInstanceCannotAbort ==
    metadata.state = "ONGOING" /\ metadata.pending = "none" =>
        \A epoch \in 0..(metadata.epoch - 1) \ {metadata.lastEpoch} :
            InitError(metadata, metadata.producerId, epoch) = "PRODUCER_FENCED"

(* A transactional.id has one producer id. *)
OneProducerId == given.producerId \in {NoProducerId, 0}

(* After InitProducerId no transaction that began before it is committed. *)
InitRemovesUnfinished ==
    [][answer.request = "InitProducerId" => \A marker \in markers' \ markers : ~marker.commit]_vars

(* The epoch rises when a client has asked for one, and at no other time. *)
EpochCountsInits ==
    [][durable'.producerId = durable.producerId /\ durable'.epoch > durable.epoch => answer'.request = "InitProducerId"]_vars

(* Every decision is completed. *)
DecisionsComplete ==
    /\ metadata.state = "PREPARE_COMMIT" ~> metadata.state # "PREPARE_COMMIT"
    /\ metadata.state = "PREPARE_ABORT" ~> metadata.state # "PREPARE_ABORT"
DecisionsCompleteWitness == metadata.state \in PreparedStates /\ faults > 0

(* An open transaction that is being fenced ends, unless the fence is given up, with its append or its coordinator. *)
FencedTransactionsEnd ==
    metadata.pending = "PREPARE_EPOCH_FENCE" ~> metadata.state # "ONGOING" \/ metadata.pending = "none"
FencedTransactionsEndWitness == metadata.pending = "PREPARE_EPOCH_FENCE"

=============================================================================
