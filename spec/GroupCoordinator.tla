---------------------------- MODULE GroupCoordinator ---------------------------
(***************************************************************************)
(* The coordinator of a classic consumer group: members and generations,   *)
(* committed offsets, offsets that are pending in a transaction. The       *)
(* module has rules and their effects; ConsumeTransformProduce says who    *)
(* takes them, and when.                                                   *)
(*                                                                         *)
(* Modelled: rebalances in which every member joins again or is removed;   *)
(*   the check of member and generation at TxnOffsetCommit (KIP-447);      *)
(*   pending offsets, keyed by producer, that only a marker settles;       *)
(*   OffsetFetch with requireStable.                                       *)
(* Assumed, not checked: __consumer_offsets is one partition, durable; a   *)
(*   request and its answer are one step, so a late one is a late step     *)
(*   (TransactionalOffsets has the log, the network and the failover).     *)
(* Out of scope: the groups of KIP-848 (ConsumerGroup); static members;    *)
(*   offsets committed outside of transactions; the expiry of offsets.     *)
(*                                                                         *)
(* KIPs: 98, 447.  Kafka: OffsetMetadataManager, ClassicGroup.             *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Instances,           \* processes of the application; an instance's name is its member id
    Partitions,          \* the input partitions
    TransactionalIds,    \* one for each partition or for each instance
    Preferred,           \* for each partition: the instance that gets it whenever the instance is a member
    GroupProtocol        \* "classic", or "consumer" for that of KIP-848

NoOffset == -1
NoMember == "none"
NoGeneration == 0

VARIABLES
    group,               \* its state, generation, members, and those that have joined for the next generation
    pending,             \* for each transactional id and partition: the offset that waits for the marker
    committed            \* for each partition: the offset that a fetch finds, which is the number of inputs before it

NothingPending == [partition \in Partitions |-> NoOffset]

GroupInit ==
    /\ group = IF GroupProtocol = "classic" THEN [state |-> "STABLE", generation |-> 1, members |-> Instances, joined |-> {}]
               ELSE [state |-> "EMPTY", generation |-> NoGeneration, members |-> {}, joined |-> {}]
    /\ pending = [producer \in TransactionalIds |-> NothingPending]
    /\ committed = [partition \in Partitions |-> 0]

(* The reason why offsets in a transaction are refused; "NONE" if they are not. *)
(* Kafka: ClassicGroup.validateOffsetCommit                                     *)
TxnOffsetCommitError(member, generation) ==
    IF member = NoMember THEN "NONE"
    ELSE IF member \notin group.members THEN "UNKNOWN_MEMBER_ID"
    ELSE IF generation # group.generation THEN "ILLEGAL_GENERATION"
    ELSE "NONE"

(* The reason why a partition's offset is not returned; "NONE" if it is.       *)
(* Kafka: OffsetMetadataManager.fetchOffsets, OffsetFetchRequest.requireStable *)
OffsetFetchError(partition) ==
    IF \E producer \in TransactionalIds : pending[producer][partition] # NoOffset THEN "UNSTABLE_OFFSET_COMMIT" ELSE "NONE"

(* The committed offsets after offsets were written in a transaction: as before. *)
CommittedAtWrite(offsets) == committed

(* The offsets of a transaction over what was committed. *)
Over(offsets) ==
    [partition \in Partitions |->
        IF offsets[partition] = NoOffset THEN committed[partition] ELSE offsets[partition]]

(* The committed offsets after the marker of a transaction: only a commit replaces them by the pending ones. *)
CommittedAtMarker(producer, decision) == IF decision = "commit" THEN Over(pending[producer]) ELSE committed

(* The pending offsets when only these members are left: as before, even if there are none. *)
PendingAfterRemoval(members) == pending

(* A rebalance can end: every member has joined again. *)
AllHaveJoined == group.state = "PREPARING_REBALANCE" /\ group.members \subseteq group.joined

(* The partitions that prefer a member, and for the leader also those whose preferred member is missing. *)
AssignedTo(member, leader) ==
    {partition \in Partitions :
        IF Preferred[partition] \in group.joined THEN Preferred[partition] = member ELSE member = leader}

(* The group after a member has joined for the next generation. *)
GroupWith(member) == [group EXCEPT !.state = "PREPARING_REBALANCE", !.joined = @ \cup {member}]

(* The group after a member was removed. *)
GroupWithout(member) ==
    [group EXCEPT !.state = "PREPARING_REBALANCE", !.members = @ \ {member}, !.joined = @ \ {member}]

(* The group in its next generation. *)
NextGeneration ==
    [state |-> "STABLE", generation |-> group.generation + 1, members |-> group.joined, joined |-> {}]

=============================================================================
