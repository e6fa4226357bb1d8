----------------------------- MODULE ConsumerGroup -----------------------------
(***************************************************************************)
(* The coordinator of a consumer group of KIP-848, next to the classic one.*)
(* Each member has an epoch of its own and reaches the group's epoch by    *)
(* itself: it gives up what it has to, and is given what others have given *)
(* up. Nobody waits for everybody. The module has rules and their effects; *)
(* ConsumeTransformProduce says who takes them, and when.                  *)
(*                                                                         *)
(* Modelled: the group's epoch, the target assignment, of each member its  *)
(*   epoch, its partitions and those that it has yet to give up, each with *)
(*   the epoch in which it was assigned (KIP-1251); the check of member,   *)
(*   epoch and partitions at TxnOffsetCommit, and its error there.         *)
(* Assumed, not checked: a heartbeat and its answer are one step, of the   *)
(*   consumer's own thread; the assignor follows Preferred.                *)
(* Out of scope: FENCED_MEMBER_EPOCH, the answer to a heartbeat after two  *)
(*   lost answers: the member then joins like one that was removed. Static *)
(*   members whose member id changes; regular expressions; the change from *)
(*   one protocol to the other.                                            *)
(*                                                                         *)
(* KIPs: 447, 848, 1251.  Kafka: ConsumerGroup, CurrentAssignmentBuilder.  *)
(***************************************************************************)
EXTENDS GroupCoordinator

(* With two instances it is clear who gets a partition that its preferred instance cannot have. *)
ASSUME Cardinality(Instances) <= 2

VARIABLE
    membership           \* the group's epoch; of each instance: its epoch (0: no member), that of its joining, its partitions, those to give up, the epochs of both

groupVars == <<group, membership>>

NoMembership == [epoch |-> 0, since |-> 0, assigned |-> {}, revoking |-> {}, assignmentEpochs |-> <<>>]

MembershipInit ==
    membership =
        IF GroupProtocol = "classic" THEN [epoch |-> 0, members |-> [instance \in Instances |-> NoMembership]]
        ELSE [epoch |-> 1, members |-> [instance \in Instances |->
                LET assigned == {partition \in Partitions : Preferred[partition] = instance}
                IN  [epoch |-> 1, since |-> 1, assigned |-> assigned, revoking |-> {},
                     assignmentEpochs |-> [partition \in assigned |-> 1]]]]

(* The members of the group. *)
Members ==
    IF GroupProtocol = "classic" THEN group.members
    ELSE {instance \in Instances : membership.members[instance].epoch > 0}

(* A member has had a partition since an epoch, without interruption; one that it has yet to give up is its own. *)
(* Kafka: ConsumerGroup.createAssignmentEpochValidator                                                           *)
HasHadSince(member, partition, epoch) ==
    LET current == membership.members[member]
    IN  partition \in current.assigned \cup current.revoking /\ current.assignmentEpochs[partition] <= epoch

(* The reason why offsets of some partitions are refused; "NONE" if they are not. *)
(* Kafka: ConsumerGroup.validateOffsetCommit                                      *)
MemberEpochError(member, epoch, partitions) ==
    IF member = NoMember THEN "NONE"
    ELSE IF member \notin Members THEN "UNKNOWN_MEMBER_ID"
    ELSE IF epoch = membership.members[member].epoch THEN "NONE"
    ELSE IF epoch < membership.members[member].epoch /\ \A partition \in partitions : HasHadSince(member, partition, epoch)
    THEN "NONE"
    ELSE "STALE_MEMBER_EPOCH"

(* The error as the answer to TxnOffsetCommit has it: to that request, up to version 5, it is a generation. *)
(* Kafka: OffsetMetadataManager.validateTransactionalOffsetCommit                                           *)
ErrorInTransaction(error) == IF error = "STALE_MEMBER_EPOCH" THEN "ILLEGAL_GENERATION" ELSE error

(* The instance that is to have a partition: the one that it prefers, or else the other. *)
Target(members, partition) ==
    IF Preferred[partition] \in members THEN Preferred[partition] ELSE CHOOSE member \in members : TRUE

(* A partition can be given to a member: no other has it, or has yet to give it up. *)
IsFree(partition, member) ==
    \A other \in Members \ {member} :
        partition \notin membership.members[other].assigned \cup membership.members[other].revoking

(* The partitions that a member is to have. *)
TargetOf(members, member) == {partition \in Partitions : Target(members, partition) = member}

(* The assignment epoch of a partition that a member is given in an epoch: that epoch. *)
EpochOfGiven(member, epoch) == epoch

(* A member that joins, in the group's next epoch. *)
Joined(member) ==
    LET epoch == membership.epoch + 1
        assigned == {partition \in TargetOf(Members \cup {member}, member) : IsFree(partition, member)}
    IN  [epoch |-> epoch,
         members |-> [membership.members EXCEPT ![member] =
            [epoch |-> epoch, since |-> epoch, assigned |-> assigned, revoking |-> {},
             assignmentEpochs |-> [partition \in assigned |-> EpochOfGiven(member, epoch)]]]]

(* A member that the group has like this, and that says what it has, is led to the group's epoch. *)
Led(member, current, owned) ==
    LET target == TargetOf(Members, member)
        kept == current.assigned \cap target
        revoking == (current.revoking \cup (current.assigned \ target)) \cap owned
        assigned == kept \cup {partition \in target : IsFree(partition, member)}
    IN  [membership EXCEPT !.members[member] =
            IF revoking # {}
            THEN [current EXCEPT !.assigned = kept, !.revoking = revoking,
                                 !.assignmentEpochs = [partition \in kept \cup revoking |-> current.assignmentEpochs[partition]]]
            ELSE [current EXCEPT !.epoch = membership.epoch, !.assigned = assigned, !.revoking = {},
                                 !.assignmentEpochs = [partition \in assigned |->
                                     IF partition \in kept THEN current.assignmentEpochs[partition]
                                     ELSE EpochOfGiven(member, membership.epoch)]]]

(* A member that says what it has is led to the group's epoch: first it gives up, then it is given. *)
Reconciled(member, owned) == Led(member, membership.members[member], owned)

(* The assignment epoch of a partition whose static member has left and is back: it had the partition.              *)
(* Departs from Kafka: there it is 0, so that offsets are taken of any epoch in which the member was in the group   *)
(* (ZeroAfterLeave).                                                                                                *)
EpochAfterReturn(member, partition) == membership.members[member].assignmentEpochs[partition]

(* A static member that has left, which gives up at once what it has to, and is back in the group's epoch. *)
Returned(member) ==
    LET current == membership.members[member]
    IN  Led(member,
            [current EXCEPT !.revoking = {},
                            !.assignmentEpochs = [partition \in current.assigned |-> EpochAfterReturn(member, partition)]],
            {})

(* The group without a member, in its next epoch. *)
MembershipWithout(member) ==
    [epoch |-> membership.epoch + 1, members |-> [membership.members EXCEPT ![member] = NoMembership]]

=============================================================================
