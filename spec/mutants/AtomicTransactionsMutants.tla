------------------------ MODULE AtomicTransactionsMutants ----------------------
(* Rules of AtomicTransactions with one thing changed. *)
EXTENDS AtomicTransactions

(* for Publish: readers find the newest committed transaction only *)
OnlyTheNewestIsFound(transaction, partition) ==
    /\ fate[transaction] = "commit"
    /\ partition \in written[transaction] /\ ~IsVisible(transaction, partition)
    /\ visible' = [visible EXCEPT ![partition] = <<transaction>>]
    /\ UNCHANGED <<fate, written, outcome, fenced>>

(* for Publish: readers find the batches of transactions that are not decided *)
UndecidedIsFound(transaction, partition) ==
    /\ fate[transaction] \in {"open", "commit"}
    /\ partition \in written[transaction] /\ ~IsVisible(transaction, partition)
    /\ visible' = [visible EXCEPT ![partition] = Append(@, transaction)]
    /\ UNCHANGED <<fate, written, outcome, fenced>>

(* for Publish: readers find a batch again *)
FoundAgain(transaction, partition) ==
    /\ fate[transaction] = "commit"
    /\ partition \in written[transaction] /\ Len(visible[partition]) < 2
    /\ visible' = [visible EXCEPT ![partition] = Append(@, transaction)]
    /\ UNCHANGED <<fate, written, outcome, fenced>>

(* for Decide: a transaction is decided for commit before its instance asks *)
CommittedUnasked(transaction, decision) ==
    /\ fate[transaction] = "open"
    /\ decision \in {"commit", "abort"}
    /\ decision = "commit" => transaction[1] \notin fenced
    /\ fate' = [fate EXCEPT ![transaction] = decision]
    /\ UNCHANGED <<written, visible, outcome, fenced>>

(* for Decide: a transaction that is committed may still be aborted *)
CommitIsTakenBack(transaction, decision) ==
    /\ \/ /\ fate[transaction] = "open" /\ decision \in {"commit", "abort"}
          /\ decision = "commit" => transaction[1] \notin fenced /\ outcome[transaction] = "committing"
       \/ fate[transaction] = "commit" /\ decision = "abort"
    /\ fate' = [fate EXCEPT ![transaction] = decision]
    /\ UNCHANGED <<written, visible, outcome, fenced>>

(* for Decide: a transaction that is aborted may still be committed *)
AbortIsTakenBack(transaction, decision) ==
    /\ fate[transaction] \in {"open", "abort"} /\ decision \in {"commit", "abort"}
    /\ decision = "commit" => transaction[1] \notin fenced /\ outcome[transaction] = "committing"
    /\ fate' = [fate EXCEPT ![transaction] = decision]
    /\ UNCHANGED <<written, visible, outcome, fenced>>

(* for Tell: an instance is told that its transaction is committed before that is decided *)
ToldBeforeDecided(transaction, result) ==
    /\ outcome[transaction] = "committing" /\ result = "committed"
    /\ outcome' = [outcome EXCEPT ![transaction] = result]
    /\ UNCHANGED <<fate, written, visible, fenced>>

(* for Restart: an instance that is fenced gives up *)
FencedGivesUp(instance) == FALSE

=============================================================================
