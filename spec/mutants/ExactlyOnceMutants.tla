--------------------------- MODULE ExactlyOnceMutants --------------------------
(* Rules of ExactlyOnce with one thing changed. *)
EXTENDS ExactlyOnce

(* for TakeEffect: inputs take effect up to any offset, and the outputs after it are taken back *)
EffectsAreTakenBack(upTo) ==
    /\ offsets' = upTo
    /\ outputs' = [partition \in Partitions |-> [input \in Inputs |-> IF input <= upTo[partition] THEN 1 ELSE 0]]

(* for TakeEffect: the inputs that have taken effect take it again with the next ones *)
EarlierTakeEffectAgain(upTo) ==
    /\ \A partition \in Partitions : upTo[partition] > offsets[partition]
    /\ offsets' = upTo
    /\ outputs' = [partition \in Partitions |-> [input \in Inputs |->
                      IF input <= upTo[partition] THEN outputs[partition][input] + 1 ELSE outputs[partition][input]]]

=============================================================================
