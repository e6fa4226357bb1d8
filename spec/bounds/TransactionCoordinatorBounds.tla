---------------------- MODULE TransactionCoordinatorBounds ----------------------
(* How far TLC searches a TransactionCoordinator.                          *)
EXTENDS TransactionCoordinator

CONSTANT MaxTransactions    \* ends of empty transactions included

Bounds ==
    /\ metadata.number <= MaxTransactions /\ appending.record.number <= MaxTransactions
    /\ allocated <= Cardinality(ProducerIds)

=============================================================================
