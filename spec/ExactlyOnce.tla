------------------------------ MODULE ExactlyOnce ------------------------------
(***************************************************************************)
(* What an application that reads, transforms and writes may rely on: each *)
(* input takes effect once, in its order: its output and the offset after  *)
(* it, together. No brokers, no instances, no crashes.                     *)
(*                                                                         *)
(* Modelled: input partitions, how far each of them has taken effect, how  *)
(*   often a reader finds the output of each input.                        *)
(* Assumed, not checked: nothing; this is what ConsumeTransformProduce is  *)
(*   held to.                                                              *)
(* Out of scope: when readers find what has been decided: each partition   *)
(*   shows it at its own moment (AtomicTransactions!VisibleTogether); the  *)
(*   order of outputs in a partition (Delivery); effects outside of Kafka. *)
(*                                                                         *)
(* KIPs: 98, 129, 447.  Kafka: processing.guarantee=exactly_once.          *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS
    Partitions,          \* the input partitions
    Inputs               \* 1..n: the inputs of each of them

VARIABLES
    offsets,             \* for each partition: how many of its inputs have taken effect
    outputs              \* for each partition and input: how often a reader finds its output, in the end

exactlyOnceVars == <<offsets, outputs>>

ExactlyOnceInit ==
    /\ offsets = [partition \in Partitions |-> 0]
    /\ outputs = [partition \in Partitions |-> [input \in Inputs |-> 0]]

(* The next inputs take effect: of each partition those up to a new offset. *)
TakeEffect(upTo) ==
    /\ \A partition \in Partitions : upTo[partition] >= offsets[partition]
    /\ offsets' = upTo
    /\ outputs' = [partition \in Partitions |-> [input \in Inputs |->
                      IF input > offsets[partition] /\ input <= upTo[partition] THEN outputs[partition][input] + 1
                      ELSE outputs[partition][input]]]

ExactlyOnceSpec ==
    /\ ExactlyOnceInit
    /\ [][\E upTo \in [Partitions -> Inputs \cup {0}] : TakeEffect(upTo)]_exactlyOnceVars

(***************************************************************************)
(* What follows, checked of this module by itself                          *)
(***************************************************************************)

(* The inputs up to the offset have one output each, the others none. *)
OneOutputEach ==
    \A partition \in Partitions : \A input \in Inputs :
        outputs[partition][input] = IF input <= offsets[partition] THEN 1 ELSE 0
OneOutputEachWitness == \E partition \in Partitions, input \in Inputs : outputs[partition][input] = 1

(* What has taken effect is never taken back: no offset goes back, and OneOutputEach says what outputs follow from it. *)
EffectsAreFinal ==
    [][\A partition \in Partitions : offsets'[partition] >= offsets[partition]]_exactlyOnceVars
EffectsAreFinalWitness == offsets' # offsets /\ \E partition \in Partitions : offsets[partition] > 0

=============================================================================
