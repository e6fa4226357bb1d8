---------------------------- MODULE ConsumerBounds ----------------------------
(* How far TLC searches the readers of a partition.                        *)
EXTENDS Consumer

(* The log is full, of transactions that markers end, before anything else happens to it. *)
(* Then another replica leads, and the reader begins.                                     *)
ReadAfterElection ==
    /\ \A j \in DOMAIN log.entries : IsMarker(log.entries[j]) => BatchesEndedBy(log.entries, j) # {}
    /\ highWatermark > 0 \/ leaderEpoch > 0 => Len(log.entries) + 1 = Cardinality(Offsets)
    /\ leaderEpoch = 0 => \A reader \in Readers : positions[reader] = 0

=============================================================================
