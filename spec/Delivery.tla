------------------------------- MODULE Delivery -------------------------------
(***************************************************************************)
(* What a producer may promise about a partition: at most once, at least   *)
(* once, exactly once. No brokers, no retries: only what was sent, what    *)
(* became of it as the sender sees it, and what a reader finds.            *)
(*                                                                         *)
(* Modelled: one sender, one partition, values sent in order.              *)
(* Assumed, not checked: nothing; this is what the others are held to.     *)
(* Out of scope: several partitions and transactions (AtomicTransactions). *)
(*                                                                         *)
(* KIPs: 98.  Kafka: the delivery semantics of the documentation.          *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANT Values          \* 1..n, sent in this order

VARIABLES
    outcome,             \* for each value, as the sender sees it: "unsent", "sent", "acknowledged" or "failed"
    delivered            \* the values that a reader finds, in order

deliveryVars == <<outcome, delivered>>

Range(sequence) == {sequence[i] : i \in DOMAIN sequence}

(* Sequences of one or more values, up to twice each. *)
SomeValues == UNION {[1..n -> Values] : n \in 1..(2 * Cardinality(Values))}

DeliveryInit == /\ outcome = [value \in Values |-> "unsent"]
                /\ delivered = <<>>

(* The application hands over a value. *)
SendValue(value) ==
    /\ outcome[value] = "unsent"
    /\ outcome' = [outcome EXCEPT ![value] = "sent"]
    /\ UNCHANGED delivered

(* The sender gives a value up, and does not know what became of it. *)
GiveUp(values) ==
    /\ values # {}
    /\ \A value \in values : outcome[value] = "sent"
    /\ outcome' = [value \in Values |-> IF value \in values THEN "failed" ELSE outcome[value]]
    /\ UNCHANGED delivered

(* The sender is told that a value is stored, and it is. *)
AcknowledgeDelivered(value) ==
    /\ outcome[value] = "sent"
    /\ value \in Range(delivered)
    /\ outcome' = [outcome EXCEPT ![value] = "acknowledged"]
    /\ UNCHANGED delivered

(* The sender takes a value as stored, whether it is or not. *)
AcknowledgeAny(value) ==
    /\ outcome[value] \in {"unsent", "sent"}
    /\ outcome' = [outcome EXCEPT ![value] = "acknowledged"]
    /\ UNCHANGED delivered

(* Readers find values that were sent, perhaps again. *)
DeliverAny(values) ==
    /\ \A i \in DOMAIN values : outcome[values[i]] # "unsent"
    /\ delivered' = delivered \o values
    /\ UNCHANGED outcome

(* Readers find values that none has found before. *)
DeliverNew(values) ==
    /\ \A i, j \in DOMAIN values : i # j => values[i] # values[j]
    /\ Range(values) \cap Range(delivered) = {}
    /\ DeliverAny(values)

(* Readers find values in the order in which they were sent, each once. What was sent between two of them has failed. *)
DeliverNext(values) ==
    /\ DeliverNew(values)
    /\ \A i \in DOMAIN delivered' : \A value \in Values :
          /\ value < delivered'[i] /\ outcome[value] # "failed" => \E j \in 1..(i - 1) : delivered'[j] = value
          /\ \A j \in 1..(i - 1) : delivered'[j] < delivered'[i]

(* Readers no longer find the last of the values that they found. *)
LoseTail ==
    /\ \E length \in 0..(Len(delivered) - 1) : delivered' = SubSeq(delivered, 1, length)
    /\ UNCHANGED outcome

Failing == \E values \in SUBSET Values : GiveUp(values)

(* No value twice; any may be missing, acknowledged ones too. *)
AtMostOnce ==
    /\ DeliveryInit
    /\ [][\/ \E value \in Values : SendValue(value) \/ AcknowledgeAny(value)
          \/ \E values \in SomeValues : DeliverNew(values)
          \/ Failing
          \/ LoseTail]_deliveryVars

(* No acknowledged value is missing; any may be there twice. *)
AtLeastOnce ==
    /\ DeliveryInit
    /\ [][\/ \E value \in Values : SendValue(value) \/ AcknowledgeDelivered(value)
          \/ \E values \in SomeValues : DeliverAny(values)
          \/ Failing]_deliveryVars

(* Every acknowledged value once, in order; one that the sender gave up on is there once or not at all. *)
ExactlyOnce ==
    /\ DeliveryInit
    /\ [][\/ \E value \in Values : SendValue(value) \/ AcknowledgeDelivered(value)
          \/ \E values \in SomeValues : DeliverNext(values)
          \/ Failing]_deliveryVars

=============================================================================
