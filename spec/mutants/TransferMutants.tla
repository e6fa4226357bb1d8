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

HasMoved == \A transfer \in Transfers : Count(logs["p1"], "none", transfer) = 1
HasFencedInstance == owner # "none" /\ \E instance \in Instances \ {owner} : processes[instance].stage = "credit"
HasDebitBeforeCredit == \E transfer \in Transfers :
    Count(logs["p0"], "none", transfer) = 1 /\ Count(logs["p1"], "none", transfer) = 0
HasAborted == \E place \in DOMAIN logs["p1"] : logs["p1"][place].kind = "abort"

=============================================================================
