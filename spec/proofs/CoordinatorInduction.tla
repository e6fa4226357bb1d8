-------------------------- MODULE CoordinatorInduction --------------------------
(***************************************************************************)
(* The invariant that kafka-eos check proofs coordinator shows to be inductive,   *)
(* for TLC: the search begins with states that have it, reached or not,    *)
(* and takes one step from each, with any action.                          *)
(*                                                                         *)
(* IndInit chooses the states, numbers, producer ids and epochs of all     *)
(* records, what is pending, what is on its way for whom, the tail, who    *)
(* loads and who fences. The rest is fixed, as far as the invariant lets   *)
(* it: records have all partitions or none, by their state, and the        *)
(* server's version; a next producer id comes with the largest epoch; and  *)
(* given and told have as much as the invariant allows, because with less  *)
(* it says less.                                                           *)
(***************************************************************************)
EXTENDS TransactionCoordinator

CONSTANTS
    OnTheirWay,      \* the requests for which a record may be on its way at first, or "none"
    InLogStates,     \* the states of the records in the log at first
    MaxTail,         \* how many of these may be in the tail
    Without          \* the conjuncts that the first states need not have

IsNotNewer(one, other) == ~IsNewer(one, other)

(* A record is of a transaction that ends this way, or has ended. *)
Decides(record, commit) == record.state \in {Prepared(commit), Completed(commit)}

(* A record is of a later transaction, of the decided one, or of what comes after it without a new one. *)
IsSettled(record, number, commit) ==
    \/ record.number > number
    \/ record.number = number /\ (Decides(record, commit) \/ record.state \in {"EMPTY", "DEAD"})

TailRecords == {tail[i] : i \in DOMAIN tail}

(* The records in memory, on their way, replicated, and in the tail. *)
Records == {metadata, durable} \cup TailRecords \cup (IF IsIdle THEN {} ELSE {appending.record})

(* Conditions on one record. *)

HasAllocatedIds(record, count) ==
    /\ record.producerId >= 0 \/ record.state = "DEAD"
    /\ record.nextProducerId >= NoProducerId
    /\ record.producerId < count /\ record.nextProducerId < count

HasNextIdIfPrepared(record) == record.nextProducerId = NoProducerId \/ record.state \in PreparedStates

KeepsLastEpoch(record) == record.epoch <= MaxEpoch /\ (ServerVersion = 2 => GoesOnAs(record).epoch < MaxEpoch)

ForgetsLastEpoch(record) == ServerVersion = 1 /\ record.epoch = MaxEpoch => record.lastEpoch = NoEpoch

(* Conditions on an identity that was given. *)

IsGivenKnown(identity) ==
    \A record \in Records : record.state = "DEAD" \/ IsNotNewer(identity, GoesOnAs(record))

IsInitNewer(identity) ==
    appending.request = "InitProducerId" =>
        /\ appending.asked = Nobody => IsNewer(appending.record, identity)
        /\ appending.record.epoch < MaxEpoch

(* After a decision that anybody has seen, the log has nothing else of that transaction. *)
NotedIsSettled ==
    \A decision \in Decisions : \A record \in Records : IsSettled(record, decision.number, decision.commit)
NotedIsSettledWitness == \E decision \in Decisions : \E record \in Records : record.number > decision.number

(* A decision in memory, once it is replicated, is settled in every record. *)
MemoryIsSettled ==
    ~loading => \A commit \in BOOLEAN : Decides(metadata, commit) =>
        \A record \in Records : IsSettled(record, metadata.number, commit)
MemoryIsSettledWitness == ~loading /\ \E commit \in BOOLEAN : Decides(metadata, commit)

(* After such a decision every record goes on with its identity or a newer one. *)
MemoryGoesOn ==
    ~loading /\ metadata.state \in PreparedStates \cup CompletedStates =>
        \A record \in Records : record.state = "DEAD" \/ IsNotNewer(GoesOnAs(metadata), GoesOnAs(record))
MemoryGoesOnWitness == ~loading /\ metadata.state \in PreparedStates \cup CompletedStates

(* A new coordinator knows the last unreplicated record, and waits. *)
LoadingIsTail ==
    loading =>
        /\ tail # <<>> /\ IsIdle /\ fencing = "none"
        /\ \A name \in {"state", "number", "producerId", "nextProducerId", "epoch"} :
              metadata[name] = tail[Len(tail)][name]
LoadingIsTailWitness == loading

(* A prepared transaction is being completed as decided. *)
PreparedIsPending ==
    \A commit \in BOOLEAN : metadata.state = Prepared(commit) => metadata.pending = Completed(commit)
PreparedIsPendingWitness == metadata.state \in PreparedStates

(* The state of a record on its way is pending. *)
AppendingIsPending == ~IsIdle => metadata.pending = appending.record.state
AppendingIsPendingWitness == ~IsIdle

(* The states to which the record of a request may lead. *)
AskedStates(request) ==
    CASE request = "InitProducerId" -> {"EMPTY"}
      [] request = "AddPartition" -> {"ONGOING"}
      [] request = "EndTxn" -> PreparedStates
      [] request \in {"InitProducerId fences", "timeout"} -> {"PREPARE_ABORT"}
      [] request = "complete" -> CompletedStates
      [] request = "expiry" -> {"DEAD"}

(* A record on its way leads to the state that its request asks for. *)
AppendingIsAsAsked == ~IsIdle => appending.record.state \in AskedStates(appending.request)
AppendingIsAsAskedWitness == ~IsIdle

(* A fence is of an open transaction. *)
FenceIsOfOpen == metadata.pending = "PREPARE_EPOCH_FENCE" => metadata.state = "ONGOING"
FenceIsOfOpenWitness == metadata.pending = "PREPARE_EPOCH_FENCE"

(* Only memory knows what is pending. *)
LogHasNothingPending ==
    /\ ~IsIdle => appending.record.pending = "none"
    /\ \A record \in {durable} \cup TailRecords : record.pending = "none"
LogHasNothingPendingWitness == metadata.pending # "none"

(* An end is of a version that the server has. *)
VersionsAreServed == appending.request = "EndTxn" => appending.record.version <= ServerVersion
VersionsAreServedWitness == appending.request = "EndTxn"

(* No record goes on with less than what a client was given. *)
GivenIsKnown == IsGivenKnown(given)
GivenIsKnownWitness == given.producerId # NoProducerId

(* Every producer id was handed out. *)
IdsAreAllocated ==
    /\ allocated >= 0 /\ given.producerId < allocated
    /\ \A record \in Records : HasAllocatedIds(record, allocated)
IdsAreAllocatedWitness == \E record \in Records : record.nextProducerId # NoProducerId

(* A next producer id waits for a transaction to end. *)
NextIdIsOfPrepared == \A record \in Records : HasNextIdIfPrepared(record)
NextIdIsOfPreparedWitness == \E record \in Records : record.nextProducerId # NoProducerId

(* No epoch is above the largest; in version 2 nobody goes on with that. *)
LastEpochIsForFencing == \A record \in Records : KeepsLastEpoch(record)
LastEpochIsForFencingWitness == \E record \in Records : record.epoch = MaxEpoch

(* In version 1 nobody may present the epoch before the largest. *)
LastEpochIsNotPresented == \A record \in Records : ForgetsLastEpoch(record)
LastEpochIsNotPresentedWitness == ServerVersion = 1 /\ \E record \in Records : record.epoch = MaxEpoch

(* InitProducerId is about to give something new, below the largest epoch. *)
InitIsNewer == IsInitNewer(given)
InitIsNewerWitness == appending.request = "InitProducerId"

Inductive ==
    /\ DecisionIsFinal
    /\ NotedIsSettled
    /\ MemoryIsSettled
    /\ MemoryGoesOn
    /\ LoadingIsTail
    /\ PreparedIsPending
    /\ AppendingIsPending
    /\ AppendingIsAsAsked
    /\ FenceIsOfOpen
    /\ LogHasNothingPending
    /\ VersionsAreServed
    /\ GivenIsKnown
    /\ IdsAreAllocated
    /\ NextIdIsOfPrepared
    /\ LastEpochIsForFencing
    /\ LastEpochIsNotPresented
    /\ InitIsNewer

(* A conjunct, unless the first states do without it. *)
Unless(name, holds) == name \in Without \/ holds

(***************************************************************************)
(* The first states                                                        *)
(***************************************************************************)

(* No step leaves this answer. *)
NotYet == Answer("none", "none", Nobody)

FirstNumbers   == {0, 1}
FirstAllocated == 2
FirstIdentities ==
    {Identity(0, epoch) : epoch \in 0..MaxEpoch}
        \cup {Identity(producerId, 0) : producerId \in 1..FirstAllocated} \cup {Identity(0, MaxEpoch + 1)}

Record(identity, state, number, next) ==
    [Forgotten(number) EXCEPT
        !.producerId = identity.producerId, !.previousProducerId = 0, !.epoch = identity.epoch,
        !.nextProducerId = next, !.state = state, !.version = ServerVersion,
        !.partitions = IF state \in {"ONGOING"} \cup PreparedStates THEN Partitions ELSE {}]

(* Every record with these identities that the conjuncts about one record allow. *)
FirstRecords ==
    LET used    == {Record(identity, state, number, next) :
                       identity \in FirstIdentities, number \in FirstNumbers, next \in {NoProducerId, 1},
                       state \in {"ONGOING"} \cup PreparedStates \cup AtRest}
        created == {Record(Identity(0, NoEpoch), "EMPTY", number, NoProducerId) : number \in FirstNumbers}
    IN  {record \in used \cup created \cup {Forgotten(number) : number \in FirstNumbers} :
            /\ record.nextProducerId # NoProducerId => record.producerId = 0 /\ record.epoch = MaxEpoch
            /\ Unless("IdsAreAllocated", HasAllocatedIds(record, FirstAllocated))
            /\ Unless("NextIdIsOfPrepared", HasNextIdIfPrepared(record))
            /\ Unless("LastEpochIsForFencing", KeepsLastEpoch(record))}

(* The records of the log, in which nothing is pending. *)
FirstInLog ==
    LET pendings == {"none"} \cup (IF "LogHasNothingPending" \in Without THEN {"PREPARE_EPOCH_FENCE"} ELSE {})
    IN  {[record EXCEPT !.pending = pending] :
            record \in {known \in FirstRecords : known.state \in InLogStates}, pending \in pendings}

(* The records in memory. If no other record is between memory and the log, memory may have the epoch before the   *)
(* present one, and a fence that failed.                                                                           *)
FirstInMemory ==
    {record \in {[known EXCEPT !.lastEpoch = last, !.failedFence = failed] :
                    known \in FirstRecords, last \in NoEpoch..MaxEpoch, failed \in BOOLEAN} :
        /\ record.lastEpoch \in {NoEpoch, record.epoch - 1}
        /\ record.lastEpoch # NoEpoch \/ record.failedFence => OnTheirWay = {"none"} /\ MaxTail = 0
        /\ record.failedFence => record.state = "ONGOING"
        /\ Unless("LastEpochIsNotPresented", ForgetsLastEpoch(record))}

(* The records that may be on their way. *)
FirstAppends ==
    {append \in {[request |-> request, asked |-> asked, record |-> [record EXCEPT !.version = version]] :
                    request \in OnTheirWay \ {"none"}, asked \in {Nobody} \cup FirstIdentities, record \in FirstRecords,
                    version \in {1, 2}} :
        /\ CASE append.request = "InitProducerId" -> append.asked \in {Nobody, Identity(0, 0)}
             [] append.request = "AddPartition" -> IsSame(append.asked, append.record)
             [] OTHER -> append.asked = Nobody
        /\ append.record.version # ServerVersion => append.request = "EndTxn"
        /\ Unless("VersionsAreServed", append.record.version <= ServerVersion)
        /\ Unless("AppendingIsAsAsked", append.record.state \in AskedStates(append.request))}
    \cup (IF "none" \in OnTheirWay THEN {NoAppend} ELSE {})

(* The states that may be pending in memory. *)
FirstPendings(known) ==
    {"none", "PREPARE_EPOCH_FENCE"} \cup (IF IsIdle THEN {} ELSE {appending.record.state})
        \cup (IF known.state \in PreparedStates THEN {Completed(Commits(known))} ELSE {})

(* Every decision that may have been seen; if two exclude each other, only one of them. *)
FirstDecisions(preferred) ==
    LET MayBe(number, commit) == Unless("NotedIsSettled", \A record \in Records : IsSettled(record, number, commit))
    IN  {decision \in [number : FirstNumbers, commit : BOOLEAN] :
            /\ MayBe(decision.number, decision.commit)
            /\ Unless("DecisionIsFinal", decision.commit = preferred \/ ~MayBe(decision.number, preferred))}

(* The newest identity that a client may have been given. *)
FirstGiven ==
    LET may == {identity \in {Nobody} \cup FirstIdentities :
                   /\ Unless("IdsAreAllocated", identity.producerId < FirstAllocated)
                   /\ Unless("GivenIsKnown", IsGivenKnown(identity))
                   /\ Unless("InitIsNewer", IsInitNewer(identity))}
    IN  {identity \in may : \A other \in may : IsNotNewer(other, identity)}

IndInit ==
    /\ appending \in FirstAppends
    /\ \E known \in FirstInMemory : \E pending \in FirstPendings(known) :
          metadata = [known EXCEPT !.pending = pending]
    /\ Unless("PreparedIsPending", PreparedIsPending)
    /\ Unless("AppendingIsPending", AppendingIsPending)
    /\ Unless("FenceIsOfOpen", FenceIsOfOpen)
    /\ durable \in FirstInLog
    /\ earlier = Forgotten(0)
    /\ tail \in UNION {[1..n -> FirstInLog] : n \in 0..MaxTail}
    /\ loading \in BOOLEAN
    /\ fencing \in IF metadata.pending = "PREPARE_EPOCH_FENCE" THEN {"none", "InitProducerId", "timeout"} ELSE {"none"}
    /\ carried = Nobody
    /\ Unless("LoadingIsTail", LoadingIsTail)
    /\ Unless("MemoryIsSettled", MemoryIsSettled)
    /\ Unless("MemoryGoesOn", MemoryGoesOn)
    /\ toMark \in SUBSET ToMark(metadata)
    /\ \E identity \in FirstGiven : given = identity @@ [asked |-> Nobody]
    /\ told \in {{[number |-> decision.number, commit |-> decision.commit, version |-> ServerVersion,
                   asked |-> Nobody, answered |-> Nobody] : decision \in FirstDecisions(preferred)} :
                     preferred \in BOOLEAN}
    /\ markers = {}
    /\ answer = NotYet
    /\ allocated = FirstAllocated
    /\ faults = 0
    /\ Without = {} => Inductive

IndSpec == IndInit /\ [][Next]_vars

(* The search goes on only from the first states: their successors are only checked. *)
OneStep == answer = NotYet

=============================================================================
