------------------ MODULE ConsumeTransformProduceMutants ------------------
(* Rules of ConsumeTransformProduce with one thing changed. *)
EXTENDS ConsumeTransformProduce, ConsumerGroupMutants

(* for TxnOffsetCommitError: neither member nor generation is checked, as before KIP-447 (KAFKA-8587) *)
NoGenerationCheck(member, generation) == "NONE"

(* for TxnOffsetCommitError: offsets of a member that the group does not know are taken *)
UnknownMemberIsTaken(member, generation) ==
    IF member \in group.members /\ generation # group.generation THEN "ILLEGAL_GENERATION" ELSE "NONE"

(* for TxnOffsetCommitError: offsets of a member are taken in any generation *)
GenerationNotChecked(member, generation) ==
    IF member # NoMember /\ member \notin group.members THEN "UNKNOWN_MEMBER_ID" ELSE "NONE"

(* for PresentedGeneration: the current epoch, not the one in which the inputs were read *)
PresentsLatestEpoch(instance) == membership.members[instance].epoch

(* for KeepsPositions: an instance that was removed goes on where it was *)
PositionOfLostIsKept(instance) == TRUE

(* for OffsetFetchError: a fetch does not ask for stable offsets *)
NoRequireStable(partition) == "NONE"

(* for CommittedAtWrite: offsets are found as soon as they are written *)
PendingIsFound(offsets) == Over(offsets)

(* for CommittedAtMarker: an aborted transaction's offsets count too *)
MaterialisedOnAbort(producer, decision) == Over(pending[producer])

(* for PendingAfterRemoval: a group without members is deleted with its pending offsets (KAFKA-19163) *)
PendingDeletedWithGroup(members) ==
    IF members = {} THEN [producer \in TransactionalIds |-> NothingPending] ELSE pending

(* for CommittedAtMarker: the generation is checked when the marker comes *)
GenerationCheckedAtMarker(producer, decision) ==
    IF decision = "commit" /\ processes[producer].generation = group.generation THEN Over(pending[producer]) ELSE committed

(* for IsFenced: a new epoch fences nobody *)
NeverFenced(instance, producer) == FALSE

(* for InitAborts: InitProducerId leaves an open transaction as it is *)
OpenTransactionIsLeft(producer) == FALSE

(* for InitError: InitProducerId does not wait for the markers of what is decided *)
InitDoesNotWait(producer) == "NONE"

(* for MayFetch: the offset is fetched before the transactional id is initialized *)
FetchesBeforeInit(instance, partition) == TRUE

(* for IsAbandoned: the coordinator ends no transaction of an instance that is gone *)
AbandonedStaysOpen(producer) == FALSE

(* for PositionAfterAbort: the application goes on where it was *)
NoSeekAfterAbort(instance, partition) == processes[instance].positions[partition]

(* for OffsetToSend: the offset of the last input that was read *)
OffsetWithoutPlusOne(instance, partition) == processes[instance].positions[partition] - 1

HasZombie == \E instance \in Instances :
    processes[instance].isUp /\ instance \notin Members /\ processes[instance].initialized # {}
HasLaggingMember == \E instance \in Members :
    processes[instance].generation > 0 /\ IsLost(instance) /\ ~HasNothingOpen(instance)
HasPartitionToGiveUp == \E instance \in Members : membership.members[instance].revoking # {}
CommitsWhileGivingUp == \E instance \in Members :
    /\ CanSend(instance, instance) /\ ~IsLost(instance) /\ membership.members[instance].revoking # {}
    /\ processes[instance].generation # membership.members[instance].epoch
IsDone == \A partition \in Partitions : \A input \in Inputs : outputs[partition][input] = 1
HasPendingOfZombie == \E producer \in TransactionalIds \cap Instances : pending[producer] # NothingPending /\ producer \notin Members
OutputBeforeOffset == \E partition \in Partitions : \E input \in Inputs :
    outputs[partition][input] = 1 /\ input > committed[partition]
OffsetBeforeOutput == \E partition \in Partitions : \E input \in Inputs :
    outputs[partition][input] = 0 /\ input <= committed[partition]

=============================================================================
