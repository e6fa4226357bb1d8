-------------------------- MODULE ConsumerGroupMutants -------------------------
(* Rules of ConsumerGroup with one thing changed. *)
EXTENDS ConsumerGroup

(* for MemberEpochError: offsets of a member that the group does not know are taken *)
RemovedMemberIsTaken(member, epoch, partitions) ==
    IF member \in Members /\ epoch # membership.members[member].epoch THEN "STALE_MEMBER_EPOCH" ELSE "NONE"

(* for MemberEpochError: offsets of a member are taken in any epoch *)
StaleEpochIsTaken(member, epoch, partitions) ==
    IF member # NoMember /\ member \notin Members THEN "UNKNOWN_MEMBER_ID" ELSE "NONE"

(* for MemberEpochError: only the latest epoch is accepted, and no request without a member *)
OnlyLatestEpoch(member, epoch, partitions) ==
    IF member \notin Members THEN IF member = NoMember /\ Members = {} THEN "NONE" ELSE "UNKNOWN_MEMBER_ID"
    ELSE IF epoch # membership.members[member].epoch THEN "STALE_MEMBER_EPOCH"
    ELSE "NONE"

(* for MemberEpochError: a member is known by its latest epoch only *)
OlderEpochIsUnknown(member, epoch, partitions) ==
    IF member = NoMember \/ (member \in Members /\ epoch = membership.members[member].epoch)
    THEN "NONE" ELSE "UNKNOWN_MEMBER_ID"

(* for HasHadSince: an older epoch is accepted for any partition that the member has, whenever it got it *)
AssignmentEpochNotChecked(member, partition, epoch) ==
    partition \in membership.members[member].assigned \cup membership.members[member].revoking

(* for HasHadSince: a partition that the member has yet to give up has no assignment epoch any more *)
RevokingHasNoEpoch(member, partition, epoch) ==
    LET current == membership.members[member]
    IN  partition \in current.assigned /\ current.assignmentEpochs[partition] <= epoch

(* for EpochOfGiven: the epoch of the group's first assignment, as if the partition had never been away *)
AssignmentEpochStays(member, epoch) == 1

(* for EpochAfterReturn: the assignment epoch is 0, as in Kafka *)
ZeroAfterLeave(member, partition) == 0

(* for ErrorInTransaction: TxnOffsetCommit is answered the error of a plain commit *)
StaleEpochIsTold(error) == error

(* for IsFree: a partition is given to its next owner before the one that has it gives it up *)
GivenBeforeRevoked(partition, member) == TRUE

=============================================================================
