---------------------------- MODULE SharePartition ----------------------------
(***************************************************************************)
(* The leader of a partition gives its records to the members of a share   *)
(* group, which reads committed records only (KIP-932). A record that is   *)
(* not acknowledged is given again, up to a limit.                         *)
(*                                                                         *)
(* Modelled: a log of batches, of which some are aborted, up to its last   *)
(*   stable offset; a group whose first offset may lie inside of a batch;  *)
(*   acquired records, their locks and delivery counts; the filter of      *)
(*   aborted batches; acknowledgements, late ones too; members that leave. *)
(* Assumed, not checked: the list of aborted transactions is right (see    *)
(*   Consumer); states are written as soon as they change; the fetch that  *)
(*   acquires a marker archives it, while in Kafka the consumer answers    *)
(*   that there is a gap, and the leader archives it then.                 *)
(* Out of scope: another leader, DeleteRecords, gaps of compaction, renewed*)
(*   locks, limits of a fetch within a batch, and the throttled fetches    *)
(*   after half of the deliveries, which a limit of 2 does not have.       *)
(*                                                                         *)
(* KIPs: 932.  Kafka: SharePartition, InFlightState, ShareFetchUtils.      *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Batches,             \* the log: base offset, last offset and kind ("committed", "aborted", "control") of its batches
    Offsets,             \* the offsets in it: 0..n
    FirstOffset,         \* the group's first offset
    Members,             \* the members of the group
    AcknowledgeTypes,    \* the answers that members give: some of "ACCEPT", "RELEASE", "REJECT"
    DeliveryCountLimit   \* share.delivery.count.limit: 5 by default, at least 2

NoMember == "none"

VARIABLES
    startOffset,         \* the group's start offset: every record before it is done
    cachedState,         \* the state of each record, its delivery count (0: never acquired), and the member that has it
    held,                \* the offsets that a member was given and has not answered
    delivered,           \* how often each record was given to a member
    rejected             \* the offsets that a member has rejected

vars == <<startOffset, cachedState, held, delivered, rejected>>

Init ==
    /\ startOffset = FirstOffset
    /\ cachedState = [offset \in Offsets |-> [state |-> "AVAILABLE", deliveryCount |-> 0, memberId |-> NoMember]]
    /\ held = [member \in Members |-> {}]
    /\ delivered = [offset \in Offsets |-> 0]
    /\ rejected = {}

Min(set) == CHOOSE one \in set : \A other \in set : one <= other

Larger(a, b) == IF a < b THEN b ELSE a

(* The offsets of a batch. *)
OffsetsOf(batch) == batch.baseOffset..batch.lastOffset

(***************************************************************************)
(* The states of a record                                                  *)
(***************************************************************************)

(* A record is done: it is not given to anybody any more. *)
IsDone(record) == record.state \in {"ACKNOWLEDGED", "ARCHIVED"}

(* A record that no member has any more, in its next state. *)
Ended(record, state) == [record EXCEPT !.state = state, !.memberId = NoMember]

(* A record that a member has given back: it is available again, or archived after the last delivery. *)
Released(record) ==
    Ended(record, IF record.deliveryCount < DeliveryCountLimit THEN "AVAILABLE" ELSE "ARCHIVED")

(* A record after a member's answer. *)
Answered(record, answer) ==
    IF answer = "ACCEPT" THEN Ended(record, "ACKNOWLEDGED")
    ELSE IF answer = "REJECT" THEN Ended(record, "ARCHIVED")
    ELSE Released(record)

(* The start offset when records have changed: that of the first one that is not done. *)
StartOffsetAfter(records) ==
    Min({offset \in Offsets : offset >= startOffset /\ ~IsDone(records[offset])} \cup {Cardinality(Offsets)})

(***************************************************************************)
(* Fetching                                           WHO: the leader      *)
(***************************************************************************)

(* The offsets at which a fetch may begin. *)
Fetchable == {offset \in Offsets : offset >= startOffset /\ cachedState[offset].state = "AVAILABLE"}

(* A fetch acquires only records that no member has and that are not done. *)
MayAcquire(offset) == cachedState[offset].state = "AVAILABLE"

(* The batches that a fetch reads: from the first record that is available to the end of some batch. *)
Fetched(last) == {batch \in Batches : Min(Fetchable) <= batch.lastOffset /\ batch.lastOffset <= last}

(* The records after a fetch has acquired what is available in its batches. *)
Acquired(member, last) ==
    [offset \in Offsets |->
        IF Min(Fetchable) <= offset /\ offset <= last /\ MayAcquire(offset)
        THEN [state |-> "ACQUIRED", deliveryCount |-> cachedState[offset].deliveryCount + 1, memberId |-> member]
        ELSE cachedState[offset]]

(* A batch that no reader of committed records is given. *)
IsFiltered(batch) == batch.kind # "committed"

(* The offset up to which the filter looks for a cached record of a batch.                                       *)
(* Departs from Kafka: it takes the base offset, which is before the start offset if the group begins inside.    *)
LookedUp(batch) == Larger(batch.baseOffset, startOffset)

(* The filter finds no cached record at or before a batch, and throws. *)
FilterThrows(records, last) ==
    \E batch \in Fetched(last) :
        /\ IsFiltered(batch)
        /\ \A offset \in startOffset..LookedUp(batch) : records[offset].deliveryCount = 0

(* The offsets that the filter archives. *)
Filtered(last) == UNION {OffsetsOf(batch) : batch \in {one \in Fetched(last) : IsFiltered(one)}}

(* There is a record to acquire, and a fetch may end at this offset. *)
CanFetch(last) == Fetchable # {} /\ \E batch \in Fetched(last) : batch.lastOffset = last

(* A member is given the records that its fetch acquires, without those that the filter archives. *)
Acquire(member, last) ==
    /\ CanFetch(last)
    /\ LET records == Acquired(member, last)
           given == {offset \in Offsets \ Filtered(last) : records[offset] # cachedState[offset]}
       IN  /\ ~FilterThrows(records, last)
           /\ cachedState' = [offset \in Offsets |->
                  IF offset \in Filtered(last) /\ records[offset].state = "ACQUIRED"
                  THEN Ended(records[offset], "ARCHIVED") ELSE records[offset]]
           /\ held' = [held EXCEPT ![member] = @ \cup given]
           /\ delivered' = [offset \in Offsets |-> delivered[offset] + IF offset \in given THEN 1 ELSE 0]
    /\ UNCHANGED <<startOffset, rejected>>

(* The filter throws when the records are acquired: the member gets an error, and nobody the records. *)
AcquireForNobody(member, last) ==
    /\ CanFetch(last)
    /\ FilterThrows(Acquired(member, last), last)
    /\ cachedState' = Acquired(member, last)
    /\ UNCHANGED <<startOffset, held, delivered, rejected>>

(***************************************************************************)
(* Answering                                          WHO: a member        *)
(***************************************************************************)

(* A member may answer for a record as long as it has the record's lock. *)
MayAcknowledge(member, offset) == cachedState[offset].memberId = member

(* A member accepts, releases or rejects a record that it was given. *)
Acknowledge(member, offset, answer) ==
    /\ offset \in held[member]
    /\ MayAcknowledge(member, offset)
    /\ cachedState' = [cachedState EXCEPT ![offset] = Answered(@, answer)]
    /\ startOffset' = StartOffsetAfter(cachedState')
    /\ held' = [held EXCEPT ![member] = @ \ {offset}]
    /\ rejected' = IF answer = "REJECT" THEN rejected \cup {offset} ELSE rejected
    /\ UNCHANGED delivered

(* A member answers too late, which changes nothing (INVALID_RECORD_STATE; no error before the start offset). *)
AcknowledgeLate(member, offset) ==
    /\ offset \in held[member]
    /\ ~MayAcknowledge(member, offset)
    /\ held' = [held EXCEPT ![member] = @ \ {offset}]
    /\ UNCHANGED <<startOffset, cachedState, delivered, rejected>>

(* A member leaves, or is taken for dead: what it has is released. *)
ReleaseAcquiredRecords(member) ==
    /\ held[member] # {} \/ \E offset \in Offsets : cachedState[offset].memberId = member
    /\ cachedState' = [offset \in Offsets |->
           IF cachedState[offset].memberId = member THEN Released(cachedState[offset]) ELSE cachedState[offset]]
    /\ startOffset' = StartOffsetAfter(cachedState')
    /\ held' = [held EXCEPT ![member] = {}]
    /\ UNCHANGED <<delivered, rejected>>

(* The lock of a record runs out, whatever the member does with the record. *)
TimeOutLock(offset) ==
    /\ cachedState[offset].state = "ACQUIRED"
    /\ cachedState' = [cachedState EXCEPT ![offset] = Released(@)]
    /\ startOffset' = StartOffsetAfter(cachedState')
    /\ UNCHANGED <<held, delivered, rejected>>

Next ==
    \/ \E member \in Members, last \in Offsets :
        \/ Acquire(member, last)
        \/ AcquireForNobody(member, last)
    \/ \E member \in Members, offset \in Offsets, answer \in AcknowledgeTypes : Acknowledge(member, offset, answer)
    \/ \E member \in Members, offset \in Offsets : AcknowledgeLate(member, offset)
    \/ \E member \in Members : ReleaseAcquiredRecords(member)
    \/ \E offset \in Offsets : TimeOutLock(offset)

Spec == Init /\ [][Next]_vars

(* Some member fetches, and every lock runs out. *)
FairSpec ==
    /\ Spec
    /\ WF_vars(\E member \in Members, last \in Offsets : Acquire(member, last) \/ AcquireForNobody(member, last))
    /\ \A offset \in Offsets : WF_vars(TimeOutLock(offset))

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

(* The offsets of the group's records of some kind. *)
OfKind(kind) ==
    {offset \in Offsets : offset >= FirstOffset /\ \E batch \in Batches : batch.kind = kind /\ offset \in OffsetsOf(batch)}

(* No member is given an aborted record, or a marker. *)
OnlyCommittedIsDelivered == \A offset \in Offsets \ OfKind("committed") : delivered[offset] = 0
OnlyCommittedIsDeliveredWitness == \E offset \in OfKind("aborted") : cachedState[offset].deliveryCount > 0

(* A committed record is archived only after a member has rejected it, or after as many deliveries as the limit allows. *)
ArchivedAfterDeliveries ==
    \A offset \in OfKind("committed") :
        cachedState[offset].state = "ARCHIVED" => offset \in rejected \/ delivered[offset] = DeliveryCountLimit
ArchivedAfterDeliveriesWitness ==
    \E offset \in OfKind("committed") : cachedState[offset].state = "ARCHIVED" /\ offset \notin rejected

(* No record is given to members more often than the limit allows. *)
WithinLimit == \A offset \in Offsets : delivered[offset] <= DeliveryCountLimit
WithinLimitWitness == \E offset \in Offsets : delivered[offset] = DeliveryCountLimit

(* Every record before the start offset is done. *)
NothingIsLeftBehind == \A offset \in FirstOffset..(startOffset - 1) : IsDone(cachedState[offset])
NothingIsLeftBehindWitness == startOffset > FirstOffset /\ startOffset \in Offsets

(* A record is given to a member only while no member has its lock, and only as long as it is not done. *)
OneAtATime ==
    [][\A offset \in Offsets : delivered'[offset] # delivered[offset] => cachedState[offset].state = "AVAILABLE"]_vars
OneAtATimeWitness == \E offset \in Offsets : delivered'[offset] > delivered[offset] /\ delivered[offset] > 0

(* A member's answer, or its end, changes no record whose lock it does not have. *)
OnlyTheHolderAnswers ==
    [][\A member \in Members, offset \in Offsets :
           offset \in held[member] \ held'[member] /\ cachedState'[offset] # cachedState[offset]
           => cachedState[offset].memberId = member]_vars
OnlyTheHolderAnswersWitness ==
    \E member \in Members, offset \in Offsets :
        /\ offset \in held[member] \ held'[member]
        /\ cachedState[offset].memberId \notin {member, NoMember}

(* Every record of the group is done some time. *)
EveryRecordIsDone == \A offset \in Offsets : []<>(offset < FirstOffset \/ IsDone(cachedState[offset]))
EveryRecordIsDoneWitness ==
    \E offset \in Offsets : cachedState[offset].state = "AVAILABLE" /\ cachedState[offset].deliveryCount > 0

=============================================================================
