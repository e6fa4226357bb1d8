---------------------------- MODULE TransferMutants ----------------------------
(* Rules of Transfer with one thing changed. *)
EXTENDS Transfer

(* for MayWrite: the leaders take what a fenced instance writes *)
FencedWritesAreTaken(instance) == TRUE

(* for AbortsOpen: InitProducerId leaves what it finds open, and the next instance goes on in it *)
OpenIsTakenOver == FALSE

(* for OffsetInTransaction: the offset is committed at once, outside of the transaction *)
OffsetIsCommittedApart == FALSE

(* for IsUnstable: an offset is returned although one waits for its marker *)
PendingOffsetIsPassedOver == FALSE

(* What an instance writes to one partition is lost, and the instance goes on. *)
LosesWritesTo(lost, instance, partition, inTransaction, stage) ==
    /\ MayWrite(instance)
    /\ transaction.state \in {"none", "open"}
    /\ logs' = IF partition = lost THEN logs ELSE [logs EXCEPT ![partition] =
          Append(@, [kind |-> IF inTransaction THEN "data" ELSE "plain", transfer |-> processes[instance].transfer])]
    /\ transaction' = IF ~inTransaction \/ partition = lost THEN transaction
                      ELSE [state |-> "open", partitions |-> transaction.partitions \cup {partition}]
    /\ processes' = At(instance, stage, processes[instance].transfer)
    /\ UNCHANGED <<owner, faults>>

(* for Write: debits are lost, credits and offsets are not *)
DebitIsLost(instance, partition, inTransaction, stage) == LosesWritesTo("p0", instance, partition, inTransaction, stage)

(* for Write: credits are lost, debits and offsets are not *)
CreditIsLost(instance, partition, inTransaction, stage) == LosesWritesTo("p1", instance, partition, inTransaction, stage)

HasMoved == \A transfer \in Transfers : Count(logs["p1"], "none", transfer) = 1
HasFencedInstance == owner # "none" /\ \E instance \in Instances \ {owner} : processes[instance].stage = "credit"
HasDebitBeforeCredit == \E transfer \in Transfers :
    Count(logs["p0"], "none", transfer) = 1 /\ Count(logs["p1"], "none", transfer) = 0
HasAborted == \E place \in DOMAIN logs["p1"] : logs["p1"][place].kind = "abort"

=============================================================================
