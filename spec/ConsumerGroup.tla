----------------------------- MODULE ConsumerGroup -----------------------------
(***************************************************************************)
(* The coordinator of a consumer group of KIP-848, next to the classic one.*)
(* Each member has an epoch of its own and reaches the group's epoch by    *)
(* itself: it gives up what it has to, and is given what others have given *)
(* up. Nobody waits for everybody. The module has rules and their effects; *)
(* ConsumeTransformProduce says who takes them, and when.                  *)
(*                                                                         *)
(* Modelled: the group's epoch, the target assignment, of each member its  *)
(*   epoch, its partitions and those that it has yet to give up; the check *)
(*   of member and epoch at TxnOffsetCommit.                               *)
(* Assumed, not checked: a heartbeat and its answer are one step, of the   *)
(*   consumer's own thread; the assignor follows Preferred.                *)
(* Out of scope: FENCED_MEMBER_EPOCH, the answer to a heartbeat after two  *)
(*   lost answers: the member then joins like one that was removed. The    *)
(*   assignment epochs of KIP-1251, with which an older epoch is accepted  *)
(*   for a partition that the member has had since that epoch. Static      *)
(*   members; regular expressions; the change from one protocol to the     *)
(*   other.                                                                *)
(*                                                                         *)
(* KIPs: 447, 848.  Kafka: ConsumerGroup, CurrentAssignmentBuilder.        *)
(***************************************************************************)
EXTENDS GroupCoordinator

(* With two instances it is clear who gets a partition that its preferred instance cannot have. *)
ASSUME Cardinality(Instances) <= 2

VARIABLE
    membership           \* the group's epoch; of each instance: its epoch (0: no member), that of its joining, its partitions, those to give up

groupVars == <<group, membership>>

NoMembership == [epoch |-> 0, since |-> 0, assigned |-> {}, revoking |-> {}]

MembershipInit ==
    membership =
        IF GroupProtocol = "classic" THEN [epoch |-> 0, members |-> [instance \in Instances |-> NoMembership]]
        ELSE [epoch |-> 1, members |-> [instance \in Instances |->
                [epoch |-> 1, since |-> 1, revoking |-> {},
                 assigned |-> {partition \in Partitions : Preferred[partition] = instance}]]]

(* The members of the group. *)
Members ==
    IF GroupProtocol = "classic" THEN group.members
    ELSE {instance \in Instances : membership.members[instance].epoch > 0}

(* The reason why offsets in a transaction are refused; "NONE" if they are not. *)
(* Kafka: ConsumerGroup.validateOffsetCommit                                    *)
MemberEpochError(member, epoch) ==
    IF member = NoMember THEN "NONE"
    ELSE IF member \notin Members THEN "UNKNOWN_MEMBER_ID"
    ELSE IF epoch # membership.members[member].epoch THEN "STALE_MEMBER_EPOCH"
    ELSE "NONE"

(* The instance that is to have a partition: the one that it prefers, or else the other. *)
Target(members, partition) ==
    IF Preferred[partition] \in members THEN Preferred[partition] ELSE CHOOSE member \in members : TRUE

(* A partition can be given to a member: no other has it, or has yet to give it up. *)
IsFree(partition, member) ==
    \A other \in Members \ {member} :
        partition \notin membership.members[other].assigned \cup membership.members[other].revoking

(* The partitions that a member is to have. *)
TargetOf(members, member) == {partition \in Partitions : Target(members, partition) = member}

(* A member that joins, in the group's next epoch. *)
Joined(member) ==
    LET epoch == membership.epoch + 1
        target == TargetOf(Members \cup {member}, member)
    IN  [epoch |-> epoch,
         members |-> [membership.members EXCEPT ![member] =
            [epoch |-> epoch, since |-> epoch, revoking |-> {},
             assigned |-> {partition \in target : IsFree(partition, member)}]]]

(* A member that says what it has is led to the group's epoch: first it gives up, then it is given. *)
Reconciled(member, owned) ==
    LET current == membership.members[member]
        target == TargetOf(Members, member)
        kept == current.assigned \cap target
        revoking == (current.revoking \cup (current.assigned \ target)) \cap owned
    IN  [membership EXCEPT !.members[member] =
            IF revoking # {} THEN [current EXCEPT !.assigned = kept, !.revoking = revoking]
            ELSE [current EXCEPT !.epoch = membership.epoch, !.revoking = {},
                                 !.assigned = kept \cup {partition \in target : IsFree(partition, member)}]]

(* The group without a member, in its next epoch. *)
MembershipWithout(member) ==
    [epoch |-> membership.epoch + 1, members |-> [membership.members EXCEPT ![member] = NoMembership]]

=============================================================================
