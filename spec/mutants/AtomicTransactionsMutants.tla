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

(* for Publish: readers find the batches of a transaction as soon as its instance asks to commit it *)
AskedIsFound(transaction, partition) ==
    /\ outcome[transaction] = "committing" /\ fate[transaction] # "abort"
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
    /\ decision = "commit" => transaction[1] \notin fenced /\ outcome[transaction] \in {"open", "committing"}
    /\ written[transaction] # {}
    /\ fate' = [fate EXCEPT ![transaction] = decision]
    /\ UNCHANGED <<written, visible, outcome, fenced>>

(* for Decide: a transaction is decided for commit, of which its instance was told that it is aborted *)
CommittedAfterAbort(transaction, decision) ==
    /\ fate[transaction] = "open"
    /\ decision \in {"commit", "abort"}
    /\ decision = "commit" => outcome[transaction] \in {"committing", "aborted"}
    /\ fate' = [fate EXCEPT ![transaction] = decision]
    /\ UNCHANGED <<written, visible, outcome, fenced>>

(* for Decide: what was asked to be committed is not aborted *)
AskedIsCommitted(transaction, decision) ==
    /\ fate[transaction] = "open"
    /\ decision = IF outcome[transaction] \in {"committing", "committed"} THEN "commit" ELSE "abort"
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
    /\ outcome[transaction] = "committing" /\ result = "committed" /\ fate[transaction] # "abort"
    /\ outcome' = [outcome EXCEPT ![transaction] = result]
    /\ UNCHANGED <<fate, written, visible, fenced>>

(* for Tell: an instance is told that its transaction is aborted before that is decided *)
ToldAbortedBeforeDecided(transaction, result) ==
    /\ outcome[transaction] = "open" /\ result = "aborted"
    /\ outcome' = [outcome EXCEPT ![transaction] = result]
    /\ UNCHANGED <<fate, written, visible, fenced>>

(* for Tell: an instance is told of its committed transaction that it is aborted *)
ToldTheOpposite(transaction, result) ==
    /\ fate[transaction] = "commit" /\ result = "aborted"
    /\ outcome' = [outcome EXCEPT ![transaction] = result]
    /\ UNCHANGED <<fate, written, visible, fenced>>

(* for Restart: an instance that is fenced gives up *)
FencedGivesUp(instance) == FALSE

=============================================================================
