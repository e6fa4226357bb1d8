-------------------------- MODULE ExternalSinkMutants -------------------------
(* Rules of ExternalSink with one thing changed. *)
EXTENDS ExternalSink

(* for IsOneTransaction: the offset stays in Kafka and is committed afterwards *)
OffsetApart == FALSE

(* for IsKnown: the sink's key differs at every attempt *)
KeyOfAttempt(input) == FALSE

(* for NotedAfter: the relay notes nothing; a relay that starts begins with the first row that is left *)
NotedByRemoval(rows) == 0

(* for EffectsAfter: the effect is that of the input before it *)
EffectOfFormer(input) == Append(effects, input - 1)

(* for EffectsAfter: the effect is that of the input after it *)
EffectOfNext(input) == Append(effects, input + 1)

HasRestarted == faults > 0 /\ stage # "down" /\ Len(effects) = Cardinality(Inputs)
HasWaitingRow == Len(outbox) > 1 /\ relayed = 1

=============================================================================
