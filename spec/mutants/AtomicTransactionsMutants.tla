------------------------ MODULE AtomicTransactionsMutants ----------------------
(* Rules of AtomicTransactions with one thing changed. *)
EXTENDS AtomicTransactions

(* for Publish: readers find the newest committed transaction only *)
OnlyTheNewestIsFound(transaction, partition) ==
    /\ fate[transaction] = "commit"
    /\ partition \in written[transaction] /\ ~IsVisible(transaction, partition)
    /\ visible' = [visible EXCEPT ![partition] = <<transaction>>]
    /\ UNCHANGED <<fate, written, outcome, fenced>>

=============================================================================
