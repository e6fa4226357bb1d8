--------------------------- MODULE ExactlyOnceMutants --------------------------
(* Rules of ExactlyOnce with one thing changed. *)
EXTENDS ExactlyOnce

(* for TakeEffect: inputs take effect up to any offset, and the outputs after it are taken back *)
EffectsAreTakenBack(upTo) ==
    /\ offsets' = upTo
    /\ outputs' = [partition \in Partitions |-> [input \in Inputs |-> IF input <= upTo[partition] THEN 1 ELSE 0]]

=============================================================================
