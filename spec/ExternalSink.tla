----------------------------- MODULE ExternalSink -----------------------------
(***************************************************************************)
(* A consumer that makes each input of a topic into an effect outside of   *)
(* Kafka: a row of a database, a message that a relay publishes, a payment *)
(* or a mail. No transaction of Kafka reaches that far.                    *)
(*                                                                         *)
(* Modelled: the six ways to order effect and offset, crashes between any  *)
(*   two steps, the start from the committed offset, a relay with its      *)
(*   crashes, calls of a service whose answer gets lost.                   *)
(* Assumed, not checked: the inputs are there once, in order (Delivery);   *)
(*   a transaction of the database is one step, and so is one of Kafka's   *)
(*   (AtomicTransactions): the relay publishes a row and notes it in one.  *)
(* Out of scope: rebalances and zombies (Mirror); several inputs handled   *)
(*   with one commit, which only repeats or loses more of them at once.    *)
(*                                                                         *)
(* KIPs: 98, 618.  Kafka: KafkaConsumer.commitSync, and applications.      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Inputs,          \* 1..n
    Strategy,        \* "update before commit", "update after commit", "offsets in the database", "outbox",
                     \* "idempotent sink" or "side effect"
    MaxFaults        \* how many crashes and lost calls and answers there are at most

VARIABLES
    arrived,         \* the number of inputs that the topic has
    position,        \* the input that the consumer handles, or handles next
    stage,           \* how far it is: "nothing", "updated", "unknown", "committed", "done"; or "down": the consumer is
    committed,       \* the input with which a consumer starts
    effects,         \* what happened outside, in order: inputs
    outbox,          \* the rows of the outbox, in order: inputs
    relayed,         \* how many of these rows the relay has published, as it knows
    noted,           \* the same, as a relay that starts finds it
    faults           \* the number of faults so far

vars == <<arrived, position, stage, committed, effects, outbox, relayed, noted, faults>>
consumerVars == <<arrived, position, stage, committed>>
relayVars == <<relayed, noted>>

Init ==
    /\ arrived = 0
    /\ position = 1
    /\ stage = "nothing"
    /\ committed = 1
    /\ effects = <<>>
    /\ outbox = <<>>
    /\ relayed = 0
    /\ noted = 0
    /\ faults = 0

Range(sequence) == {sequence[i] : i \in DOMAIN sequence}

HasInput == position <= arrived

(* The offset is committed before anything happens. *)
CommitsFirst == Strategy = "update after commit"

(* Update and offset are in one transaction of the database. *)
IsOneTransaction == Strategy \in {"offsets in the database", "outbox"}

(* The sink finds by its key that it has an input already. *)
IsKnown(input) == Strategy = "idempotent sink" /\ input \in Range(effects)

(* The effects outside of Kafka once the consumer has made its update. *)
EffectsAfter(input) == IF Strategy = "outbox" \/ IsKnown(input) THEN effects ELSE Append(effects, input)

(* The rows of the outbox once the consumer has made its update. *)
OutboxAfter(input) == IF Strategy = "outbox" THEN Append(outbox, input) ELSE outbox

(* The rows that a starting relay finds noted: one transaction publishes a row and notes it. *)
NotedAfter(rows) == rows

(***************************************************************************)
(* The inputs                                       WHO: whoever writes it *)
(***************************************************************************)

(* The topic gets its next input. *)
Arrive ==
    /\ arrived + 1 \in Inputs
    /\ arrived' = arrived + 1
    /\ UNCHANGED <<position, stage, committed, effects, outbox, relayVars, faults>>

(***************************************************************************)
(* The consumer                                          WHO: the consumer *)
(***************************************************************************)

(* The consumer makes its update, without the offset. *)
Update ==
    /\ HasInput
    /\ ~IsOneTransaction
    /\ stage = IF CommitsFirst THEN "committed" ELSE "nothing"
    /\ stage' = IF CommitsFirst THEN "done" ELSE "updated"
    /\ effects' = EffectsAfter(position)
    /\ outbox' = OutboxAfter(position)
    /\ UNCHANGED <<arrived, position, committed, relayVars, faults>>

(* The consumer commits the offset, without the update. *)
CommitOffset ==
    /\ HasInput
    /\ stage = IF CommitsFirst THEN "nothing" ELSE "updated"
    /\ stage' = IF CommitsFirst THEN "committed" ELSE "done"
    /\ committed' = position + 1
    /\ UNCHANGED <<arrived, position, effects, outbox, relayVars, faults>>

(* The consumer makes its update and stores the offset in one transaction of the database. *)
UpdateWithOffset ==
    /\ HasInput
    /\ IsOneTransaction
    /\ stage = "nothing"
    /\ stage' = "done"
    /\ effects' = EffectsAfter(position)
    /\ outbox' = OutboxAfter(position)
    /\ committed' = position + 1
    /\ UNCHANGED <<arrived, position, relayVars, faults>>

(* The consumer goes on to the next input. *)
GoOn ==
    /\ stage = "done"
    /\ stage' = "nothing"
    /\ position' = position + 1
    /\ UNCHANGED <<arrived, committed, effects, outbox, relayVars, faults>>

(* The consumer crashes. *)
Crash ==
    /\ stage # "down" /\ faults < MaxFaults
    /\ stage' = "down"
    /\ faults' = faults + 1
    /\ UNCHANGED <<arrived, position, committed, effects, outbox, relayVars>>

(* The consumer starts again, at the offset that is stored. *)
Restart ==
    /\ stage = "down"
    /\ stage' = "nothing"
    /\ position' = committed
    /\ UNCHANGED <<arrived, committed, effects, outbox, relayVars, faults>>

(***************************************************************************)
(* A service that takes nothing back and knows no keys    WHO: the service *)
(***************************************************************************)

MayFail == HasInput /\ Strategy = "side effect" /\ stage = "nothing" /\ faults < MaxFaults

(* The service does what it is asked, and its answer is lost. *)
LoseAnswer ==
    /\ MayFail
    /\ stage' = "unknown"
    /\ effects' = EffectsAfter(position)
    /\ faults' = faults + 1
    /\ UNCHANGED <<arrived, position, committed, outbox, relayVars>>

(* The call is lost; the consumer cannot tell this from a lost answer. *)
LoseCall ==
    /\ MayFail
    /\ stage' = "unknown"
    /\ faults' = faults + 1
    /\ UNCHANGED <<arrived, position, committed, effects, outbox, relayVars>>

(* The consumer, without an answer, is to call again. *)
CallAgain ==
    /\ stage = "unknown"
    /\ stage' = "nothing"
    /\ UNCHANGED <<arrived, position, committed, effects, outbox, relayVars, faults>>

(* The consumer, without an answer, assumes that the service has done what it was asked. *)
GiveUp ==
    /\ stage = "unknown"
    /\ stage' = "updated"
    /\ UNCHANGED <<arrived, position, committed, effects, outbox, relayVars, faults>>

(***************************************************************************)
(* The relay                                                WHO: the relay *)
(***************************************************************************)

(* The relay publishes the next row of the outbox. *)
Publish ==
    /\ relayed < Len(outbox)
    /\ effects' = Append(effects, outbox[relayed + 1])
    /\ relayed' = relayed + 1
    /\ noted' = NotedAfter(relayed + 1)
    /\ UNCHANGED <<consumerVars, outbox, faults>>

(* The relay takes a row that it has published out of the outbox. *)
RemoveRow ==
    /\ relayed > 0
    /\ outbox' = Tail(outbox)
    /\ relayed' = relayed - 1
    /\ noted' = NotedAfter(relayed - 1)
    /\ UNCHANGED <<consumerVars, effects, faults>>

(* The relay crashes and starts again after the last row that is noted. *)
RestartRelay ==
    /\ Strategy = "outbox" /\ faults < MaxFaults
    /\ relayed' = noted
    /\ faults' = faults + 1
    /\ UNCHANGED <<consumerVars, effects, outbox, noted>>

Progress ==
    \/ Arrive
    \/ Update
    \/ CommitOffset
    \/ UpdateWithOffset
    \/ GoOn
    \/ Restart
    \/ CallAgain
    \/ GiveUp
    \/ Publish
    \/ RemoveRow

Next ==
    \/ Progress
    \/ Crash
    \/ LoseAnswer
    \/ LoseCall
    \/ RestartRelay

Spec == Init /\ [][Next]_vars

FairSpec == Spec /\ WF_vars(Progress)

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

(* No input has its effect twice. *)
EffectAtMostOnce == \A i, j \in DOMAIN effects : effects[i] = effects[j] => i = j
EffectAtMostOnceWitness == faults > 0 /\ Len(effects) > 1

(* An input that no consumer looks at again has had its effect, or waits in the outbox. *)
EffectAtLeastOnce == \A input \in Inputs : input < position => input \in Range(effects) \cup Range(outbox)
EffectAtLeastOnceWitness == faults > 0 /\ position > 1

(* Nothing happens outside without an input. *)
EffectsHaveInputs == Range(effects) \subseteq 1..arrived
EffectsHaveInputsWitness == effects # <<>> /\ arrived < Cardinality(Inputs)

(* In the end every input has had its effect. *)
EveryInputTakesEffect == <>(\A input \in Inputs : input \in Range(effects))
EveryInputTakesEffectWitness == faults > 0 /\ \A input \in Inputs : input \in Range(effects)

(***************************************************************************)
(* Refinement: for the consumer an input is acknowledged when the position *)
(* is after the input, and the input is not in the outbox.                 *)
(***************************************************************************)

Outcome == [input \in Inputs |->
    IF input > arrived THEN "unsent"
    ELSE IF input < position /\ input \notin Range(outbox) THEN "acknowledged" ELSE "sent"]

Guarantee == INSTANCE Delivery WITH Values <- Inputs, outcome <- Outcome, delivered <- effects

(* Every acknowledged value is delivered once, in order, as Delivery promises; one that was given up, at most once. *)
RefinesExactlyOnce == Guarantee!ExactlyOnce
RefinesExactlyOnceWitness == faults > 0 /\ Len(effects) > 1 /\ \E input \in Inputs : Outcome[input] = "acknowledged"

(* Every acknowledged value is delivered, as Delivery promises. *)
RefinesAtLeastOnce == Guarantee!AtLeastOnce
RefinesAtLeastOnceWitness == faults > 0 /\ \E input \in Inputs : Outcome[input] = "acknowledged"

(* No value is delivered twice, as Delivery promises. *)
RefinesAtMostOnce  == Guarantee!AtMostOnce
RefinesAtMostOnceWitness == faults > 0 /\ Len(effects) > 1

=============================================================================
