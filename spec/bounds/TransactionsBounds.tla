-------------------------- MODULE TransactionsBounds --------------------------
(* How far TLC searches Transactions.                                      *)
EXTENDS Transactions

(* A client speaks version 1 in its first transaction only. *)
UpgradedAfterFirst ==
    \A instance \in Instances : clients[instance].version = 1 => clients[instance].number <= 1

=============================================================================
