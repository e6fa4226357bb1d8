--------------------------- MODULE ExactlyOnceMutants --------------------------
(* Rules of ExactlyOnce with one thing changed. *)
EXTENDS ExactlyOnce

(* for TakeEffect: while inputs of one partition take effect, another may go back, and its outputs are taken back *)
EffectsAreTakenBack(upTo) ==
    /\ \E partition \in Partitions : upTo[partition] > offsets[partition]
    /\ offsets' = upTo
    /\ outputs' = [partition \in Partitions |-> [input \in Inputs |-> IF input <= upTo[partition] THEN 1 ELSE 0]]

(* for TakeEffect: the inputs of partition p that have taken effect take it again with the next ones *)
EarlierTakeEffectAgain(upTo) ==
    /\ upTo["p"] > offsets["p"]
    /\ \A partition \in Partitions : upTo[partition] >= offsets[partition]
    /\ offsets' = upTo
    /\ outputs' = [partition \in Partitions |-> [input \in Inputs |->
                      IF input <= upTo[partition] /\ (partition = "p" \/ input > offsets[partition])
                      THEN outputs[partition][input] + 1 ELSE outputs[partition][input]]]

(* for TakeEffect: of the next inputs of a partition only the last takes effect *)
OnlyTheLastTakesEffect(upTo) ==
    /\ \A partition \in Partitions : upTo[partition] >= offsets[partition]
    /\ offsets' = upTo
    /\ outputs' = [partition \in Partitions |-> [input \in Inputs |->
                      IF input > offsets[partition] /\ input = upTo[partition] THEN outputs[partition][input] + 1
                      ELSE outputs[partition][input]]]

=============================================================================
