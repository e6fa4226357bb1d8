------------------------- MODULE SharePartitionMutants ------------------------
(* Rules of SharePartition with one thing changed. *)
EXTENDS SharePartition

(* for LookedUp: the filter looks at the base offset of a batch, as Kafka's does *)
BaseOffsetOnly(batch) == batch.baseOffset

(* for IsFiltered: members are given aborted records, too *)
FiltersMarkersOnly(batch) == batch.kind = "control"

(* for MayAcquire: a fetch acquires records that another member has, up to the limit *)
AcquiresAcquired(offset) ==
    ~IsDone(cachedState[offset]) /\ cachedState[offset].deliveryCount < DeliveryCountLimit

(* for MayAcquire: a fetch acquires records that were accepted *)
AcquiresAcknowledged(offset) == cachedState[offset].state \in {"AVAILABLE", "ACKNOWLEDGED"}

(* for MayAcquire: a fetch acquires records that are archived *)
AcquiresArchived(offset) == cachedState[offset].state \in {"AVAILABLE", "ARCHIVED"}

(* for MayAcknowledge: a member answers for a record that another one has by now *)
AnyMemberAcknowledges(member, offset) == cachedState[offset].state = "ACQUIRED"

(* for Released: a record is available once more after the last delivery *)
OneDeliveryMore(record) ==
    Ended(record, IF record.deliveryCount <= DeliveryCountLimit THEN "AVAILABLE" ELSE "ARCHIVED")

(* for Released: a record is archived one delivery before the last one *)
OneDeliveryFewer(record) ==
    Ended(record, IF record.deliveryCount + 1 < DeliveryCountLimit THEN "AVAILABLE" ELSE "ARCHIVED")

(* for StartOffsetAfter: the start offset does not wait for the last record of the log *)
PassesLastRecord(records) ==
    LET last == Cardinality(Offsets) - 1
    IN  Min({offset \in Offsets \ {last} : offset >= startOffset /\ ~IsDone(records[offset])} \cup {last + 1})

(* for StartOffsetAfter: the start offset does not wait for the first record of the group *)
PassesFirstRecord(records) ==
    Min({offset \in Offsets \ {FirstOffset} : offset >= startOffset /\ ~IsDone(records[offset])}
            \cup {Cardinality(Offsets)})

(* for StartOffsetAfter: the start offset passes records that are not done *)
PassesOpenRecords(records) ==
    LET done == {offset \in Offsets : offset >= startOffset /\ IsDone(records[offset])}
    IN  IF done = {} THEN startOffset ELSE (CHOOSE last \in done : \A other \in done : other <= last) + 1

(* for Fetchable: the next fetch begins after all records that were ever acquired *)
NeverLooksBack == {offset \in Offsets : offset >= startOffset /\ cachedState[offset].deliveryCount = 0}

IsAllDone == startOffset = Cardinality(Offsets)
HasLateAnswer ==
    \E member \in Members, offset \in Offsets :
        offset \in held[member] /\ cachedState[offset].memberId \notin {member, NoMember}

=============================================================================
