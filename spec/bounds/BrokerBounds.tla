----------------------------- MODULE BrokerBounds -----------------------------
(* How far TLC searches a Broker.                                          *)
EXTENDS Broker

CONSTANTS
    MaxEntries,          \* batches, markers and offsets in each partition
    MaxTransactions,     \* transactions of each transactional.id
    MaxGroupEpoch        \* the last epoch of a group of KIP-848

(* Few entries, transactions and changes of a group, and as many producer ids as requests can carry. *)
Bounds ==
    /\ \A partition \in Partitions : Len(partitions[partition].log.entries) <= MaxEntries
    /\ \A transactionalId \in TransactionalIds : coordinators[transactionalId].number <= MaxTransactions
    /\ allocated <= Cardinality(ProducerIds)
    /\ membership.epoch <= MaxGroupEpoch

=============================================================================
