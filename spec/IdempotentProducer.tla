-------------------------- MODULE IdempotentProducer --------------------------
(***************************************************************************)
(* A producer, an unreliable network and one replicated partition.         *)
(*                                                                         *)
(* Modelled: allocation of the producer id; a sequence for the partition;  *)
(*   several requests in flight; retries; batches that expire, with the    *)
(*   epoch bump and the sequence reset of KIP-360; restart of the producer *)
(*   with a new id; acks 0, 1 and all; idempotence on and off.             *)
(*   The network loses, delays, repeats and reorders: a request is handled *)
(*   at any later time or never, an answer arrives after those sent before *)
(*   it (one connection) or never, and each attempt of the producer is a   *)
(*   message of its own. (A duplicate that the network makes is one more   *)
(*   attempt, as the broker sees it.) NOT_LEADER_OR_FOLLOWER and           *)
(*   NOT_ENOUGH_REPLICAS are a lost request that is sent again, and        *)
(*   NOT_ENOUGH_REPLICAS_AFTER_APPEND is a lost answer.                    *)
(* Assumed, not checked: a client's answers are matched to its requests by *)
(*   correlation id, so that an attempt that it no longer waits for has no *)
(*   answer; an epoch bump is one step (EpochBump has its messages);       *)
(*   records have the time at which they are sent (Kafka's leader forgets  *)
(*   a producer by the timestamps of its records, and one whose records    *)
(*   are old while a batch is in flight: the mutant ExpireAnyTime).        *)
(* Out of scope: several partitions, whose sequences are independent;      *)
(*   several records in a batch (PartitionLog has them); a change of a     *)
(*   batch between its attempts (Kafka's clients never split or join what  *)
(*   they have sent, except after MESSAGE_TOO_LARGE).                      *)
(*                                                                         *)
(* KIPs: 98, 185, 360, 679.  Kafka: Sender, TransactionManager,            *)
(* TxnPartitionEntry, RecordAccumulator.                                   *)
(***************************************************************************)
EXTENDS ReplicatedLog

CONSTANTS
    Values,              \* 1..n: what the application sends, in this order
    Attempts,            \* 1..n: how often a batch is sent at most
    MaxInFlight,         \* max.in.flight.requests.per.connection
    Acks,                \* "0", "1" or "all"
    Idempotence,         \* enable.idempotence
    MaxEpoch,            \* the last producer epoch; 32767 in Kafka
    MaxProducerId,       \* producer ids are 0..MaxProducerId: how often the producer may restart or run out of epochs
    ResendAfterRestart,  \* TRUE: after a restart the application sends again what was not acknowledged
    Expiration           \* TRUE: the brokers may forget a producer that is silent

VARIABLES
    queue,               \* the values that the application has still to send
    producer,            \* the client's producer id, epoch, next sequence, and the error that ended it
    inFlight,            \* the batches sent and not settled, oldest first
    attempts,            \* how often each value has been sent
    requests,            \* the produce requests on their way
    responses,           \* the answers on their way, in the order in which they were sent
    outcome,             \* for each value, as the application sees it
    nextProducerId       \* the coordinator's counter

clientVars == <<queue, producer, inFlight, attempts, requests, responses, outcome, nextProducerId>>
vars == <<replicatedVars, clientVars>>

NewProducer == [producerId |-> NoProducerId, epoch |-> -1, sequence |-> -1, error |-> "NONE"]

Init ==
    /\ ReplicatedInit
    /\ queue = [i \in 1..Cardinality(Values) |-> i]
    /\ producer = NewProducer
    /\ inFlight = <<>>
    /\ attempts = [value \in Values |-> 0]
    /\ requests = {}
    /\ responses = <<>>
    /\ outcome = [value \in Values |-> "unsent"]
    /\ nextProducerId = 0

IsRunning == producer.error = "NONE"
IsReady   == IsRunning /\ (Idempotence => producer.producerId # NoProducerId)

ValuesOf(batches) == {batches[i].value : i \in DOMAIN batches}
InFlight(value)   == CHOOSE batch \in {inFlight[i] : i \in DOMAIN inFlight} : batch.value = value

(* A request: one attempt to send a batch. *)
Request(batch, attempt) == batch @@ [attempt |-> attempt]

(* The batch that a request brings to the leader. *)
BatchOf(request) ==
    Batch(request.producerId, request.epoch, request.sequence, 1)
        @@ [value |-> request.value, leaderEpoch |-> -1]

WithOutcome(values, result) == [value \in Values |-> IF value \in values THEN result ELSE outcome[value]]

(***************************************************************************)
(* What becomes of the producer when a batch fails                         *)
(***************************************************************************)

(* The producer in its next epoch, or without an id when the epochs have run out. *)
Bumped == IF producer.epoch < MaxEpoch THEN [producer EXCEPT !.epoch = @ + 1, !.sequence = 0] ELSE NewProducer

(* The batches that stay in flight when one has expired. With idempotence none, because a copy of each may still be *)
(* on its way under the old epoch.                                                                                  *)
(* Departs from Kafka: the Java client stamps them again with the new epoch (KAFKA-14034; the mutant                *)
(* RestampAfterExpiry).                                                                                             *)
KeptAfterExpiry(value) == IF Idempotence THEN <<>> ELSE SelectSeq(inFlight, LAMBDA batch : batch.value # value)

(* Departs from Kafka: there the sequence goes on after the batches that are stamped again (BumpAfterRestamp). *)

(* The producer when a batch has expired: whether the log has it is unknown, so the next needs a new epoch. *)
ProducerAfterExpiry(kept) == IF Idempotence THEN Bumped ELSE producer

(* Departs from Kafka: the Java client takes OUT_OF_ORDER_SEQUENCE_NUMBER for no fatal error, and stamps every batch *)
(* again (RestampAfterError).                                                                                       *)

(* The batches that stay in flight after a fatal error: none. *)
KeptAfterError(error) == <<>>

(* Departs from Kafka: the Java client then goes on in its next epoch (BumpAfterError). *)

(* The producer after a fatal error: it can no longer be used. *)
ProducerAfterError(error, kept) == [producer EXCEPT !.error = error]

(* A producer with nothing on its way or in flight may be forgotten: messages live less long than its state. *)
MayExpire(producerId) ==
    /\ \A request \in requests : request.producerId # producerId
    /\ \A i \in DOMAIN inFlight : inFlight[i].producerId # producerId

(* Some batches stay in flight; those with a new stamp are sent once more; the others have failed. *)
Keep(kept) ==
    LET stayed == {kept[i] : i \in DOMAIN kept} \cap {inFlight[i] : i \in DOMAIN inFlight}
        again  == {kept[i] : i \in DOMAIN kept} \ stayed
    IN  /\ inFlight' = kept
        /\ attempts' = [value \in Values |-> attempts[value] + IF value \in {b.value : b \in again} THEN 1 ELSE 0]
        /\ requests' = requests \cup {Request(batch, attempts'[batch.value]) : batch \in again}
        /\ responses' = SelectSeq(responses, LAMBDA response : response.value \in {b.value : b \in stayed})
        /\ outcome' = WithOutcome(ValuesOf(inFlight) \ ValuesOf(kept), "failed")

(***************************************************************************)
(* The producer sends                                  WHO: the producer   *)
(***************************************************************************)

(* The producer gets a producer id that nobody had before. *)
AllocateProducerId ==
    /\ Idempotence /\ IsRunning
    /\ producer.producerId = NoProducerId
    /\ nextProducerId <= MaxProducerId
    /\ producer' = [producer EXCEPT !.producerId = nextProducerId, !.epoch = 0, !.sequence = 0]
    /\ nextProducerId' = nextProducerId + 1
    /\ UNCHANGED <<replicatedVars, queue, inFlight, attempts, requests, responses, outcome>>

(* The producer sends the application's next value as a batch. *)
Send(value) ==
    /\ IsReady
    /\ queue # <<>> /\ value = Head(queue)
    /\ Len(inFlight) < MaxInFlight
    /\ attempts[value] + 1 \in Attempts
    /\ LET batch == [value |-> value, producerId |-> producer.producerId, epoch |-> producer.epoch,
                     sequence |-> producer.sequence]
       IN  /\ requests' = requests \cup {Request(batch, attempts[value] + 1)}
           /\ inFlight' = IF Acks = "0" THEN inFlight ELSE Append(inFlight, batch)
    /\ attempts' = [attempts EXCEPT ![value] = @ + 1]
    /\ queue' = Tail(queue)
    /\ outcome' = WithOutcome({value}, IF Acks = "0" THEN "acknowledged" ELSE "sent")
    /\ producer' = IF Idempotence THEN [producer EXCEPT !.sequence = NextSequence(@)] ELSE producer
    /\ UNCHANGED <<replicatedVars, responses, nextProducerId>>

(* The producer has waited long enough for an answer and sends the batch again. *)
Resend(value) ==
    /\ IsRunning
    /\ value \in ValuesOf(inFlight)
    /\ attempts[value] + 1 \in Attempts
    /\ requests' = requests \cup {Request(InFlight(value), attempts[value] + 1)}
    /\ attempts' = [attempts EXCEPT ![value] = @ + 1]
    /\ responses' = SelectSeq(responses, LAMBDA response : response.value # value)
    /\ UNCHANGED <<replicatedVars, queue, producer, inFlight, outcome, nextProducerId>>

(***************************************************************************)
(* The leader handles a request                        WHO: the leader     *)
(***************************************************************************)

(* The leader takes requests. With acks=all it refuses them while too few replicas are in sync. *)
TakesRequests == leader # NoLeader /\ (Acks = "all" => HasMinIsr)

(* A request that is on its way, named by its value and attempt. *)
IsOnItsWay(value, attempt) == \E request \in requests : request.value = value /\ request.attempt = attempt
OnItsWay(value, attempt)   == CHOOSE request \in requests : request.value = value /\ request.attempt = attempt

(* The client waits for an answer to this attempt. *)
IsAwaited(request) ==
    /\ request.value \in ValuesOf(inFlight)
    /\ Request(InFlight(request.value), attempts[request.value]) = request

(* The request is handled; its answer goes back if somebody waits for it. *)
Answer(request, error, offset) ==
    /\ requests' = requests \ {request}
    /\ responses' = IF IsAwaited(request)
                    THEN Append(responses, [value |-> request.value, error |-> error, offset |-> offset,
                                            leaderEpoch |-> leaderEpoch])
                    ELSE responses
    /\ UNCHANGED <<clusterVars, queue, producer, inFlight, attempts, outcome, nextProducerId>>

(* The leader appends a batch that passed every check. *)
AppendBatch(value, attempt) ==
    /\ TakesRequests
    /\ IsOnItsWay(value, attempt)
    /\ LET request == OnItsWay(value, attempt) IN
       /\ ~IsDuplicate(replicas[leader], BatchOf(request))
       /\ AppendError(replicas[leader], BatchOf(request)) = "NONE"
       /\ LeaderAppends(BatchOf(request))
       /\ Answer(request, "NONE", EndOffset(leader))

(* The leader acknowledges a retry with the offset of the first copy. *)
AcknowledgeDuplicate(value, attempt) ==
    /\ TakesRequests
    /\ IsOnItsWay(value, attempt)
    /\ LET request == OnItsWay(value, attempt) IN
       /\ IsDuplicate(replicas[leader], BatchOf(request))
       /\ Answer(request, "NONE", DuplicateOffset(replicas[leader], BatchOf(request)))
       /\ UNCHANGED replicas

(* The leader refuses a batch that fails a check. *)
RefuseBatch(value, attempt) ==
    /\ TakesRequests
    /\ IsOnItsWay(value, attempt)
    /\ LET request == OnItsWay(value, attempt) IN
       /\ ~IsDuplicate(replicas[leader], BatchOf(request))
       /\ AppendError(replicas[leader], BatchOf(request)) # "NONE"
       /\ Answer(request, AppendError(replicas[leader], BatchOf(request)), -1)
       /\ UNCHANGED replicas

(* The replicas forget a producer that has been silent for too long. *)
ExpireProducer(producerId) ==
    /\ Expiration
    /\ MayExpire(producerId)
    /\ \E replica \in Replicas : KnowsProducer(replicas[replica], producerId)
    /\ replicas' = [replica \in Replicas |-> Forgotten(replicas[replica], producerId)]
    /\ UNCHANGED <<clusterVars, clientVars>>

(***************************************************************************)
(* The producer gets an answer, or none                WHO: the producer   *)
(***************************************************************************)

(* An answer that has left the leader: under acks=all once the batch is replicated and enough are in sync. *)
HasLeft(response) ==
    Acks = "all" /\ response.error = "NONE" =>
        TakesRequests /\ response.leaderEpoch = leaderEpoch /\ highWatermark > response.offset

(* The answer to a value's last attempt, with the answers that are still on their way once it has arrived: those sent *)
(* after it.                                                                                                          *)
IsAnswered(value) == \E i \in DOMAIN responses : responses[i].value = value
Position(value)   == CHOOSE i \in DOMAIN responses : responses[i].value = value
After(value)      == SubSeq(responses, Position(value) + 1, Len(responses))

(* The producer learns that a batch is stored. *)
ReceiveAcknowledgement(value) ==
    /\ IsAnswered(value)
    /\ responses[Position(value)].error = "NONE"
    /\ HasLeft(responses[Position(value)])
    /\ inFlight' = SelectSeq(inFlight, LAMBDA batch : batch.value # value)
    /\ responses' = After(value)
    /\ outcome' = WithOutcome({value}, "acknowledged")
    /\ UNCHANGED <<replicatedVars, queue, producer, attempts, requests, nextProducerId>>

(* An error that no retry can mend. The producer is fenced, or a batch is refused although every batch before it is *)
(* settled and no batch after it is stored. Any other refused batch is sent again.                                  *)
(* Kafka: TransactionManager.canRetry, isNextSequence                                                               *)
IsFatal(response) ==
    \/ response.error = "INVALID_PRODUCER_EPOCH"
    \/ /\ response.error = "OUT_OF_ORDER_SEQUENCE_NUMBER"
       /\ response.value = inFlight[1].value
       /\ \A value \in Values : value > response.value => outcome[value] # "acknowledged"

(* The producer learns that a batch is refused for good. It and all batches in flight have failed. *)
ReceiveError(value) ==
    /\ IsAnswered(value)
    /\ responses[Position(value)].error # "NONE"
    /\ IsFatal(responses[Position(value)])
    /\ LET error == responses[Position(value)].error
       IN  /\ Keep(KeptAfterError(error))
           /\ producer' = ProducerAfterError(error, KeptAfterError(error))
    /\ UNCHANGED <<replicatedVars, queue, nextProducerId>>

(* The oldest batch has waited for longer than delivery.timeout.ms: its fate is unknown. *)
Expire(value) ==
    /\ IsRunning
    /\ inFlight # <<>> /\ value = inFlight[1].value
    /\ Keep(KeptAfterExpiry(value))
    /\ producer' = ProducerAfterExpiry(KeptAfterExpiry(value))
    /\ UNCHANGED <<replicatedVars, queue, nextProducerId>>

(***************************************************************************)
(* Restart                                             WHO: the producer   *)
(***************************************************************************)

(* The producer's process is killed and starts again; what it knew of its batches is gone. *)
RestartProducer ==
    /\ IsRunning
    /\ inFlight # <<>>
    /\ nextProducerId <= MaxProducerId
    /\ producer' = NewProducer
    /\ inFlight' = <<>>
    /\ responses' = <<>>
    /\ queue' = IF ResendAfterRestart THEN [i \in DOMAIN inFlight |-> inFlight[i].value] \o queue ELSE queue
    /\ outcome' = IF ResendAfterRestart THEN outcome ELSE WithOutcome(ValuesOf(inFlight), "failed")
    /\ UNCHANGED <<replicatedVars, attempts, requests, nextProducerId>>

Next ==
    \/ AllocateProducerId
    \/ \E value \in Values :
        \/ Send(value)
        \/ Resend(value)
        \/ ReceiveAcknowledgement(value)
        \/ ReceiveError(value)
        \/ Expire(value)
        \/ \E attempt \in Attempts :
            \/ AppendBatch(value, attempt)
            \/ AcknowledgeDuplicate(value, attempt)
            \/ RefuseBatch(value, attempt)
    \/ RestartProducer
    \/ \E producerId \in 0..MaxProducerId : ExpireProducer(producerId)
    \/ ReplicaStep /\ UNCHANGED clientVars

Spec == Init /\ [][Next]_vars

(* The network delivers what is sent last, the client hears of it or gives up, the partition gets a leader. *)
Fairness ==
    /\ WF_vars(AllocateProducerId)
    /\ WF_vars(AdvanceHighWatermark /\ UNCHANGED clientVars)
    /\ \A value \in Values :
        /\ WF_vars(Send(value))
        /\ WF_vars(ReceiveAcknowledgement(value))
        /\ WF_vars(ReceiveError(value))
        /\ WF_vars(Expire(value))
    /\ \A replica \in Replicas :
        /\ WF_vars(Restart(replica) /\ UNCHANGED clientVars)
        /\ WF_vars(leader = NoLeader /\ ElectLeader(replica) /\ UNCHANGED clientVars)

FairSpec == Spec /\ Fairness

(***************************************************************************)
(* Properties, over the committed log and what the application sees        *)
(***************************************************************************)

(* The values that a reader finds: those below the high watermark. *)
Delivered == [i \in DOMAIN Committed |-> Committed[i].value]

IsDelivered(value) == \E i \in DOMAIN Delivered : Delivered[i] = value

(* The content of a value; two values with one content are one message that the application sent twice. *)
Content(value) == value

(* Readers find no value twice. *)
NoDuplicate == \A i, j \in DOMAIN Delivered : i # j => Content(Delivered[i]) # Content(Delivered[j])
NoDuplicateWitness == \E value \in Values : attempts[value] > 1 /\ IsDelivered(value)

(* Readers find every acknowledged value. *)
NoLoss == \A value \in Values : outcome[value] = "acknowledged" => IsDelivered(value)
NoLossWitness == \E value \in Values : outcome[value] = "acknowledged"

(* Readers find the values in the order in which they were sent. *)
Order == \A i, j \in DOMAIN Delivered : i < j => Delivered[i] <= Delivered[j]
OrderWitness == Len(Delivered) > 1 /\ \E value \in Values : attempts[value] > 1

(* Readers find no value while an earlier one is missing that the producer has not given up. *)
NoGap ==
    \A value, earlier \in Values :
        earlier < value /\ IsDelivered(value) /\ outcome[earlier] # "failed" => IsDelivered(earlier)
NoGapWitness ==
    \E value, earlier \in Values :
        earlier < value /\ IsDelivered(value) /\ outcome[earlier] # "failed" /\ attempts[earlier] > 1

(* A producer that nobody fenced never gets a fatal error. *)
NoSpuriousError == producer.error = "NONE"
NoSpuriousErrorWitness == \E i \in DOMAIN responses : responses[i].error # "NONE"

(* After a fatal error the producer sends nothing more. *)
SilentAfterFatalError == [][~IsRunning => attempts' = attempts]_vars
SilentAfterFatalErrorWitness == ~IsRunning

(* After a fatal error nothing is in flight: every batch that was in flight has failed. *)
FatalErrorFailsAll == ~IsRunning => \A value \in Values : outcome[value] # "sent"
FatalErrorFailsAllWitness == ~IsRunning

(* Each running replica's state of the producers is what its log says. *)
StateFollowsLog ==
    \A replica \in alive : replicas[replica].producers = Replay(NoProducers, replicas[replica].entries)
StateFollowsLogWitness == \E replica \in alive : replicas[replica].producers # NoProducers

(* Every value that is sent is acknowledged or reported as failed. *)
EverySendEnds == \A value \in Values : outcome[value] = "sent" ~> outcome[value] \in {"acknowledged", "failed"}
EverySendEndsWitness == \E value \in Values : outcome[value] = "sent" /\ attempts[value] > 1

(***************************************************************************)
(* Refinement: the configurations and the guarantees that they give        *)
(***************************************************************************)

Guarantee == INSTANCE Delivery WITH delivered <- Delivered

(* Every acknowledged value is delivered once, in order, as Delivery promises; one that was given up, at most once. *)
RefinesExactlyOnce == Guarantee!ExactlyOnce
RefinesExactlyOnceWitness == \E value \in Values : outcome[value] = "acknowledged" /\ attempts[value] > 1

(* Every acknowledged value is delivered, as Delivery promises. *)
RefinesAtLeastOnce == Guarantee!AtLeastOnce
RefinesAtLeastOnceWitness == \E value \in Values : outcome[value] = "acknowledged" /\ attempts[value] > 1

(* No value is delivered twice, as Delivery promises. *)
RefinesAtMostOnce  == Guarantee!AtMostOnce
RefinesAtMostOnceWitness == \E value \in Values : outcome[value] = "acknowledged" /\ IsDelivered(value)

=============================================================================
