------------------------- MODULE TransactionalProducer ------------------------
(***************************************************************************)
(* The transactional producer's own state machine: what an application may *)
(* call, what the client sends, and what it makes of every answer.         *)
(*                                                                         *)
(* Modelled: the client's states and their transitions, calls that time    *)
(*   out and may only be repeated, the order of its requests, one at a     *)
(*   time, the search for coordinators, batches with sequences, retries    *)
(*   and expiry, each error code with the reaction to it by the request    *)
(*   that it answers, epochs after failures (KIP-360) and after every end  *)
(*   (version 2), the upgrade from version 1 to version 2; offsets of a    *)
(*   topic that is deleted and created again.                              *)
(* Assumed, not checked: an application with one thread; one batch at a    *)
(*   time for each partition, and one code for all partitions of an        *)
(*   answer; a client that knows the ids of its input topics when it is    *)
(*   given their offsets; a topic that is deleted and created again in one *)
(*   step. Requests that wait are merged.                                  *)
(* Out of scope: what brokers do with the requests (Transactions); a send  *)
(*   that fails before the client has one (Java leaves a needless bump     *)
(*   behind); OUT_OF_ORDER_SEQUENCE_NUMBER and UNKNOWN_PRODUCER_ID after   *)
(*   a batch that is not acknowledged or is deleted, which are retried;    *)
(*   PREPARED_TRANSACTION (KIP-939), which no call of 4.3 leads to.        *)
(*                                                                         *)
(* KIPs: 98, 360, 588, 654, 691, 890, 939, 1050, 1319.                     *)
(* Kafka: TransactionManager, Sender, RecordAccumulator, KafkaProducer.    *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Partitions,
    Errors,          \* the error codes that brokers may answer with
    Versions,        \* of the transactions of the cluster: {1}, {2}, or {1, 2}: it is upgraded
    SupportsBump,    \* FALSE: brokers without KIP-360, before 2.5
    MaxTransactions, \* how many transactions the application begins at most
    MaxSends,        \* how many batches it sends in each
    MaxFaults,       \* how many errors, timeouts and lost answers there are at most
    MaxRecreations   \* how often the topic of its offsets is deleted and created again at most

VARIABLES
    client,          \* its state, the exception that calls are refused with, identity, version, and what it remembers
    partitions,      \* of the transaction: new, in a request, and registered
    sequences,       \* for each partition: the identity of its last batch, and the next sequence
    batches,         \* for each partition: the batch that is not complete
    queue,           \* the requests that wait to be sent
    inFlight,        \* the request whose answer the client waits for
    coordinators,    \* the coordinators that the client knows
    call,            \* the call that waits for the client, or that has timed out and may only be repeated
    cluster,         \* the cluster's version of transactions
    topic,           \* of the offsets: how often it was created again, and how often when the client was given them
    seen,            \* what application and brokers have seen of the last transaction
    faults           \* the number of faults so far

vars == <<client, partitions, sequences, batches, queue, inFlight, coordinators, call, cluster, topic, seen, faults>>

States == {"UNINITIALIZED", "INITIALIZING", "READY", "IN_TRANSACTION", "PREPARED_TRANSACTION", "COMMITTING_TRANSACTION",
           "ABORTING_TRANSACTION", "ABORTABLE_ERROR", "FATAL_ERROR"}

(* The legal transitions between the client's states. Every state may become FATAL_ERROR. *)
LegalTransitions == {
    <<"READY", "UNINITIALIZED">>, <<"ABORTABLE_ERROR", "UNINITIALIZED">>,
    <<"UNINITIALIZED", "INITIALIZING">>, <<"COMMITTING_TRANSACTION", "INITIALIZING">>,
    <<"ABORTING_TRANSACTION", "INITIALIZING">>,
    <<"INITIALIZING", "READY">>, <<"COMMITTING_TRANSACTION", "READY">>, <<"ABORTING_TRANSACTION", "READY">>,
    <<"READY", "IN_TRANSACTION">>,
    <<"IN_TRANSACTION", "PREPARED_TRANSACTION">>, <<"INITIALIZING", "PREPARED_TRANSACTION">>,
    <<"IN_TRANSACTION", "COMMITTING_TRANSACTION">>, <<"PREPARED_TRANSACTION", "COMMITTING_TRANSACTION">>,
    <<"IN_TRANSACTION", "ABORTING_TRANSACTION">>, <<"PREPARED_TRANSACTION", "ABORTING_TRANSACTION">>,
    <<"ABORTABLE_ERROR", "ABORTING_TRANSACTION">>,
    <<"IN_TRANSACTION", "ABORTABLE_ERROR">>, <<"COMMITTING_TRANSACTION", "ABORTABLE_ERROR">>,
    <<"ABORTABLE_ERROR", "ABORTABLE_ERROR">>, <<"INITIALIZING", "ABORTABLE_ERROR">>
    } \cup {<<state, "FATAL_ERROR">> : state \in States}

Commit == "EndTxn(commit)"
Abort  == "EndTxn(abort)"
Ends   == {Commit, Abort}

CoordinatorTypes == {"TRANSACTION", "GROUP"}

CoordinatorOf(request) == IF request = "TxnOffsetCommit" THEN "GROUP" ELSE "TRANSACTION"

Lookup(type) == IF type = "GROUP" THEN "FindCoordinator(GROUP)" ELSE "FindCoordinator(TRANSACTION)"
Lookups == {Lookup(type) : type \in CoordinatorTypes}

Requests == {"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", Commit, Abort, "InitProducerId"} \cup Lookups

Calls == {"initTransactions", "beginTransaction", "send", "sendOffsetsToTransaction", "commitTransaction",
          "abortTransaction"}

NoCall  == [operation |-> "none", outcome |-> "none", running |-> FALSE]
NoBatch == [status |-> "none", retried |-> FALSE, identity |-> 0, sequence |-> 0]
NoPartitions == [new |-> {}, pending |-> {}, added |-> {}]

(* A client's identity stands for its producer id and epoch: it counts those given to the client; 0 is none. *)
Init ==
    /\ client = [state |-> "UNINITIALIZED", error |-> "NONE", identity |-> 0, version |-> 1,
                 bump |-> FALSE, started |-> FALSE]
    /\ partitions = NoPartitions
    /\ sequences = [partition \in Partitions |-> [identity |-> 0, next |-> 0]]
    /\ batches = [partition \in Partitions |-> NoBatch]
    /\ queue = {}
    /\ inFlight = "none"
    /\ coordinators = {}
    /\ call = NoCall
    /\ cluster = CHOOSE version \in Versions : \A other \in Versions : version <= other
    /\ topic = [id |-> 0, named |-> 0]
    /\ seen = [number |-> 0, version |-> 0, sends |-> 0, offsets |-> FALSE, ends |-> {}, ended |-> "none",
               failed |-> FALSE, fenced |-> FALSE, registered |-> {}, unknown |-> 0,
               last |-> [partition \in Partitions |-> [identity |-> 0, sequence |-> -1, version |-> 0]]]
    /\ faults = 0

(***************************************************************************)
(* Error codes                                                             *)
(***************************************************************************)

(* Codes whose exception is a RetriableException. *)
RetriableErrors == {
    "CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "CORRUPT_MESSAGE",
    "ELECTION_NOT_NEEDED", "ELIGIBLE_LEADERS_NOT_AVAILABLE", "FENCED_LEADER_EPOCH",
    "FETCH_SESSION_ID_NOT_FOUND", "FETCH_SESSION_TOPIC_ID_ERROR", "INCONSISTENT_TOPIC_ID",
    "INVALID_FETCH_SESSION_EPOCH", "INVALID_SHARE_SESSION_EPOCH", "KAFKA_STORAGE_ERROR", "LEADER_NOT_AVAILABLE",
    "LISTENER_NOT_FOUND", "NETWORK_EXCEPTION", "NOT_CONTROLLER", "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_OR_FOLLOWER", "OFFSET_NOT_AVAILABLE",
    "PREFERRED_LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "REQUEST_TIMED_OUT",
    "SHARE_SESSION_LIMIT_REACHED", "SHARE_SESSION_NOT_FOUND", "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION", "UNSTABLE_OFFSET_COMMIT"}

(* The client's reaction to an answer to InitProducerId. *)
InitProducerIdReaction(error) ==
    IF error \in {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"} THEN "uninitialized"
    ELSE IF error = "TRANSACTION_ABORTABLE" THEN "abortable"
    ELSE "fatal"

(* The client's reaction to an answer to FindCoordinator. *)
FindCoordinatorReaction(error) ==
    IF error \in {"GROUP_AUTHORIZATION_FAILED", "TRANSACTION_ABORTABLE"} THEN "abortable" ELSE "fatal"

(* The client's reaction to an answer to AddPartitionsToTxn. *)
AddPartitionsReaction(error) ==
    IF error \in {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
                  "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING"} THEN "fatal"
    ELSE IF error = "UNKNOWN_PRODUCER_ID" THEN "abortable with a bump"
    ELSE "abortable"

(* The client's reaction to an answer to AddOffsetsToTxn. *)
AddOffsetsReaction(error) ==
    IF error = "UNKNOWN_PRODUCER_ID" THEN "abortable with a bump"
    ELSE IF error \in {"GROUP_AUTHORIZATION_FAILED", "TRANSACTION_ABORTABLE"} THEN "abortable"
    ELSE "fatal"

(* The client's reaction to an answer to TxnOffsetCommit. *)
OffsetCommitReaction(error) ==
    IF error \in {"GROUP_AUTHORIZATION_FAILED", "FENCED_INSTANCE_ID", "TRANSACTION_ABORTABLE", "UNKNOWN_MEMBER_ID",
                  "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND", "UNKNOWN_TOPIC_ID"} THEN "abortable"
    ELSE "fatal"

(* The client's reaction to an answer to EndTxn. *)
EndReaction(request, error) ==
    IF error = "UNKNOWN_PRODUCER_ID" THEN "abortable with a bump"
    ELSE IF error = "TRANSACTION_ABORTABLE" /\ request = Commit THEN "abortable"
    ELSE "fatal"

(* The client's reaction to an answer to Produce. *)
ProduceReaction(error) ==
    IF error = "DUPLICATE_SEQUENCE_NUMBER" THEN "acknowledged"
    ELSE IF error \in {"CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "PRODUCER_FENCED",
                       "UNSUPPORTED_VERSION", "INVALID_PRODUCER_ID_MAPPING"} THEN "fatal"
    ELSE "abortable"

(* Errors after which the client looks for the coordinator first. *)
AsksForCoordinator(request, error) ==
    \/ error \in {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
    \/ request = "TxnOffsetCommit" /\ error = "REQUEST_TIMED_OUT"

(* The client's reaction to an error that is not retriable. *)
ReactionToFailure(request, error) ==
    IF request = "Produce" THEN ProduceReaction(error)
    ELSE IF request = "InitProducerId" THEN InitProducerIdReaction(error)
    ELSE IF request \in Lookups THEN FindCoordinatorReaction(error)
    ELSE IF request = "AddPartitionsToTxn" THEN AddPartitionsReaction(error)
    ELSE IF request = "AddOffsetsToTxn" THEN AddOffsetsReaction(error)
    ELSE IF request = "TxnOffsetCommit" THEN OffsetCommitReaction(error)
    ELSE EndReaction(request, error)

(* Departs from Kafka: it sends offsets of an unknown topic again and again, and its end behind them never. See *)
(* RetriesUnknownTopics.                                                                                       *)

(* The client answers an error with the same request. *)
IsRetried(request, error) ==
    error \in RetriableErrors /\ ~(request = "TxnOffsetCommit" /\ error = "UNKNOWN_TOPIC_ID")

(* The client's reaction to an error that answers a request. *)
Reaction(request, error) == IF IsRetried(request, error) THEN "retry" ELSE ReactionToFailure(request, error)

(* The exception that calls are refused with after an error. *)
ExceptionOf(request, error) ==
    IF request \in Lookups THEN "KafkaException"
    ELSE IF request = "Produce" /\ error = "INVALID_PRODUCER_EPOCH" THEN "InvalidProducerEpochException"
    ELSE IF error \in {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"} THEN "ProducerFencedException"
    ELSE "KafkaException"

(* Brokers answer TRANSACTION_ABORTABLE only to batches and offsets, and GROUP_AUTHORIZATION_FAILED only for groups; *)
(* since 2.4 they never answer UNKNOWN_PRODUCER_ID. The client would react to more of these than it should: see the  *)
(* mutants.                                                                                                          *)

(* The client sends offsets with the topics' ids, in the last version of the request (KIP-1319). *)
NamesTopicsById == client.version = 2

(* No topic has the id with which the client sends its offsets any more. *)
NamesFormerTopic == NamesTopicsById /\ topic.named # topic.id

(* Codes that brokers answer only to offsets with the topics' ids. *)
ErrorsOfTopicIds == {"STALE_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"}

(* A broker may answer a request with an error, unless another action says when (RefuseFormerTopic). *)
MayAnswer(request, error) ==
    /\ error \in ErrorsOfTopicIds => request = "TxnOffsetCommit" /\ NamesTopicsById
    /\ error = "TRANSACTION_ABORTABLE" => request \in {"TxnOffsetCommit", "Produce"}
    /\ error = "GROUP_AUTHORIZATION_FAILED" =>
           request \in {"AddOffsetsToTxn", "TxnOffsetCommit", Lookup("GROUP")}
    /\ error = "UNKNOWN_TOPIC_ID" => request # "TxnOffsetCommit"
    /\ error # "UNKNOWN_PRODUCER_ID"

(* The coordinator, or a leader, says that the client is fenced. *)
Fences(request, error) ==
    error = "PRODUCER_FENCED" \/ (error = "INVALID_PRODUCER_EPOCH" /\ request \notin {"Produce"} \cup Lookups)

(***************************************************************************)
(* Calls                                                                   *)
(***************************************************************************)

HasError == client.state \in {"ABORTABLE_ERROR", "FATAL_ERROR"}

IsEnding == client.state \in {"COMMITTING_TRANSACTION", "ABORTING_TRANSACTION"}

(* The state that a call leads to. *)
Target(operation) ==
    IF operation = "initTransactions" THEN "INITIALIZING"
    ELSE IF operation = "beginTransaction" THEN "IN_TRANSACTION"
    ELSE IF operation = "commitTransaction" THEN "COMMITTING_TRANSACTION"
    ELSE "ABORTING_TRANSACTION"

(* A call that leads to another state is legal in this one. *)
IsLegalCall(operation) == <<client.state, Target(operation)>> \in LegalTransitions

(* The coordinator has refused the client's principal: the client is about to start over. *)
IsUnauthorized == client.error = "AuthorizationException"

(* Departs from Kafka: it accepts an abort of a client that is about to start over. See AbortsUnauthorized. *)

(* An abortable error refuses every call except the abort; a fatal one refuses all. *)
IsRefusedByError(operation) ==
    HasError /\ ~(operation = "abortTransaction" /\ client.state = "ABORTABLE_ERROR" /\ ~IsUnauthorized)

(* Another call has timed out, and has to be repeated first. *)
OtherHasTimedOut(operation) == call.operation \notin {"none", operation}

(* The exception with which a call is refused; "NONE" if it is not. *)
CallError(operation) ==
    IF operation \in {"initTransactions", "send"} /\ HasError THEN client.error
    ELSE IF OtherHasTimedOut(operation) THEN "IllegalStateException"
    ELSE IF call.operation = operation THEN "NONE"
    ELSE IF IsRefusedByError(operation) THEN client.error
    ELSE IF operation \in {"send", "sendOffsetsToTransaction"}
         THEN IF client.state = "IN_TRANSACTION" THEN "NONE" ELSE "IllegalStateException"
    ELSE IF IsLegalCall(operation) THEN "NONE"
    ELSE "IllegalStateException"

(* The application makes a call that is no repetition, and that is not refused. *)
Makes(operation) == ~call.running /\ call.operation # operation /\ CallError(operation) = "NONE"

Waiting(operation) == [operation |-> operation, outcome |-> "waiting", running |-> TRUE]

(* The call after what it waits for is done, or has failed. *)
Finished(outcome) == IF call.operation = "none" THEN call ELSE [call EXCEPT !.outcome = outcome]

(* The call after it has timed out: offsets may be sent again or not. *)
AfterTimeout == IF call.operation = "sendOffsetsToTransaction" THEN NoCall ELSE [call EXCEPT !.running = FALSE]

(* The calls that wait for the answer to a request. *)
CallsOf(request) ==
    IF request \in {"AddOffsetsToTxn", "TxnOffsetCommit"} THEN {"sendOffsetsToTransaction"}
    ELSE IF request = "InitProducerId" THEN {"initTransactions", "commitTransaction", "abortTransaction"}
    ELSE IF request \in Ends /\ "InitProducerId" \notin queue THEN {"commitTransaction", "abortTransaction"}
    ELSE {}

FinishedBy(request, outcome) == IF call.operation \in CallsOf(request) THEN Finished(outcome) ELSE call

MayFail == faults < MaxFaults

(***************************************************************************)
(* What the client sends                                                   *)
(***************************************************************************)

(* New partitions count as a request that waits. *)
Due == queue \cup (IF partitions.new = {} THEN {} ELSE {"AddPartitionsToTxn"})

(* Requests are sent in this order. *)
Rank(request) ==
    IF request \in Lookups THEN 0 ELSE IF request \in Ends THEN 2 ELSE IF request = "InitProducerId" THEN 3 ELSE 1

IsIncomplete(partition) == batches[partition].status # "none"

(* The end of a transaction may be sent: it waits until every batch of it is complete. *)
MaySendEnd == ~\E partition \in Partitions : IsIncomplete(partition)

(* The partitions once the client takes its next request: new ones are in a request then. *)
Taken == [partitions EXCEPT !.pending = @ \cup partitions.new, !.new = {}]

(* The request is the one that the client takes next. *)
IsNext(request) ==
    /\ inFlight = "none" /\ request \in Due
    /\ \A other \in Due : Rank(request) <= Rank(other)
    /\ request \in Ends => MaySendEnd

(* Requests are sent; after an error they fail instead. *)
SendsRequests == ~HasError

(* Batches are sent when no request is in flight and none that can be sent waits. *)
RequestsFirst == inFlight = "none" /\ ~\E request \in Requests : IsNext(request)

(* Coordinators are looked up after an error too. *)
MayBeSent(request) == request \in Lookups \/ SendsRequests

(* The client knows the receiver of a request; a lookup goes to any broker. *)
KnowsReceiver(request) == request \in Lookups \/ CoordinatorOf(request) \in coordinators

(* Nothing of the transaction is registered anywhere: there is nothing to end. *)
NothingToEnd(request) == request \in Ends /\ ~client.started

(* The next sequence of a partition: the first of every identity is 0. *)
NextSequence(partition) ==
    IF sequences[partition].identity = client.identity THEN sequences[partition].next ELSE 0

(* A partition's batches may be sent. *)
IsRegistered(partition) == partition \in partitions.added

(* Batches that have not been sent are dropped after an error and during an abort. *)
DropsBatches == client.state \in {"ABORTABLE_ERROR", "ABORTING_TRANSACTION"}

(***************************************************************************)
(* Failures                                                                *)
(***************************************************************************)

(* The client itself asks for another epoch after a failure (KIP-360); version 2 gets one at every end. *)
BumpsByItself == SupportsBump /\ client.version = 1

(* Departs from Kafka: it asks for no other epoch after a batch that fails while the transaction ends, and what becomes *)
(* of the batch on its way is unknown. See BumpsNotWhileEnding.                                                         *)

(* The client asks for another epoch after a batch has failed. *)
BumpsAfter(batch, expired) == BumpsByItself

(* Departs from Kafka: it may need the epoch after the abort is queued, and waits for one without asking. See *)
(* AsksForNoBumpWhileAborting.                                                                                *)

(* The requests that wait after a batch has failed. *)
QueueAfter(bumps) ==
    IF client.state = "ABORTING_TRANSACTION" /\ bumps THEN queue \cup {"InitProducerId"} ELSE queue

(* The client after a failure after which it can abort and go on. *)
Failed(exception, bumps) ==
    IF client.state = "ABORTING_TRANSACTION" THEN [client EXCEPT !.bump = @ \/ bumps]
    ELSE [client EXCEPT !.state = "ABORTABLE_ERROR", !.error = exception, !.bump = @ \/ bumps]

(* Departs from Kafka: there a call that waits for offsets that are not sent yet is not told, and times out. See *)
(* TellsNobodyOfOffsets.                                                                                         *)

(* The call after an answer with a fatal error. *)
CallAfterFatal(request) == Finished("failed")

(* The client after a fatal error: it sends nothing more, and ignores every answer. *)
BecomesFatal(request, exception) ==
    /\ client' = [client EXCEPT !.state = "FATAL_ERROR", !.error = exception]
    /\ batches' = [partition \in Partitions |-> NoBatch]
    /\ queue' = {}
    /\ inFlight' = "none"
    /\ call' = CallAfterFatal(request)
    /\ UNCHANGED <<partitions, sequences, coordinators, cluster, topic>>

(* The client after a transaction: it asks for another epoch, has got one, or goes on with the old one. *)
AfterEnd(bumped) ==
    [client EXCEPT !.state = IF client.bump THEN "INITIALIZING" ELSE "READY",
                   !.error = "NONE", !.bump = FALSE, !.started = FALSE,
                   !.identity = IF bumped THEN @ + 1 ELSE @]

(***************************************************************************)
(* The application's calls                            WHO: the application *)
(***************************************************************************)

(* The application calls initTransactions. *)
InitTransactions ==
    /\ Makes("initTransactions")
    /\ client' = [client EXCEPT !.state = "INITIALIZING", !.error = "NONE"]
    /\ queue' = queue \cup {"InitProducerId"}
    /\ call' = Waiting("initTransactions")
    /\ UNCHANGED <<partitions, sequences, batches, inFlight, coordinators, cluster, topic, seen, faults>>

(* The application calls beginTransaction. *)
BeginTransaction ==
    /\ Makes("beginTransaction") /\ seen.number < MaxTransactions
    /\ client' = [client EXCEPT !.state = "IN_TRANSACTION"]
    /\ seen' = [seen EXCEPT !.number = @ + 1, !.version = client.version, !.sends = 0, !.offsets = FALSE, !.ends = {},
                            !.ended = "none", !.failed = FALSE, !.registered = {}]
    /\ UNCHANGED <<partitions, sequences, batches, queue, inFlight, coordinators, call, cluster, topic, faults>>

(* The application sends a batch. *)
Send(partition) ==
    /\ Makes("send") /\ ~IsIncomplete(partition) /\ seen.sends < MaxSends
    /\ batches' = [batches EXCEPT ![partition].status = "accumulated"]
    /\ IF client.version = 2
       THEN /\ partitions' = [partitions EXCEPT !.added = @ \cup {partition}]
            /\ client' = [client EXCEPT !.started = TRUE]
       ELSE /\ partitions' = [partitions EXCEPT !.new = @ \cup ({partition} \ (partitions.pending \cup partitions.added))]
            /\ UNCHANGED client
    /\ seen' = [seen EXCEPT !.sends = @ + 1]
    /\ UNCHANGED <<sequences, queue, inFlight, coordinators, call, cluster, topic, faults>>

(* A send of the application may fail before there is a batch. *)
MayFailSend == ~call.running /\ client.state = "IN_TRANSACTION"

(* A send of the application fails: the record is too large, or its partition is not known in time. *)
FailSend ==
    /\ MayFailSend /\ MayFail
    /\ client' = Failed("KafkaException", BumpsByItself)
    /\ seen' = [seen EXCEPT !.failed = TRUE]
    /\ faults' = faults + 1
    /\ UNCHANGED <<partitions, sequences, batches, queue, inFlight, coordinators, call, cluster, topic>>

(* The application calls sendOffsetsToTransaction. *)
SendOffsets ==
    /\ Makes("sendOffsetsToTransaction") /\ ~seen.offsets
    /\ IF client.version = 2
       THEN queue' = queue \cup {"TxnOffsetCommit"} /\ client' = [client EXCEPT !.started = TRUE]
       ELSE queue' = queue \cup {"AddOffsetsToTxn"} /\ UNCHANGED client
    /\ call' = Waiting("sendOffsetsToTransaction")
    /\ seen' = [seen EXCEPT !.offsets = TRUE]
    /\ topic' = [topic EXCEPT !.named = topic.id]
    /\ UNCHANGED <<partitions, sequences, batches, inFlight, coordinators, cluster, faults>>

(* A client of version 1 that finds version 2 asks for another epoch when it ends its transaction. *)
BumpsForUpgrade == cluster > client.version

(* The requests with which the client ends its transaction: it asks for another epoch behind the end. *)
EndRequests(request, bumps) == {request} \cup (IF bumps THEN {"InitProducerId"} ELSE {})

Ending(operation, request) ==
    LET bumps == client.bump \/ BumpsForUpgrade IN
    /\ Makes(operation)
    /\ client' = [client EXCEPT !.state = Target(operation), !.error = "NONE", !.version = cluster, !.bump = bumps]
    /\ queue' = queue \cup EndRequests(request, bumps)
    /\ call' = Waiting(operation)
    /\ UNCHANGED <<sequences, batches, inFlight, coordinators, cluster, topic, seen, faults>>

(* The application calls commitTransaction. *)
CommitTransaction ==
    /\ Ending("commitTransaction", Commit)
    /\ UNCHANGED partitions

(* The application calls abortTransaction. *)
AbortTransaction ==
    /\ Ending("abortTransaction", Abort)
    /\ partitions' = [partitions EXCEPT !.new = {}]

(* The application repeats the call that has timed out. *)
RepeatCall ==
    /\ call.operation # "none" /\ ~call.running /\ CallError(call.operation) = "NONE"
    /\ call' = [call EXCEPT !.running = TRUE]
    /\ UNCHANGED <<client, partitions, sequences, batches, queue, inFlight, coordinators, cluster, topic, seen, faults>>

(* A call takes longer than max.block.ms. *)
TimeOutCall ==
    /\ call.running /\ call.outcome = "waiting" /\ MayFail
    /\ call' = AfterTimeout
    /\ faults' = faults + 1
    /\ UNCHANGED <<client, partitions, sequences, batches, queue, inFlight, coordinators, cluster, topic, seen>>

(* A call returns, or throws the error that it has failed with. *)
EndCall ==
    /\ call.running /\ call.outcome # "waiting"
    /\ call' = NoCall
    /\ client' = IF call.operation = "initTransactions" /\ call.outcome = "done"
                 THEN [client EXCEPT !.version = cluster] ELSE client
    /\ UNCHANGED <<partitions, sequences, batches, queue, inFlight, coordinators, cluster, topic, seen, faults>>

(***************************************************************************)
(* The sender's thread                                WHO: the client      *)
(***************************************************************************)

(* The client asks for the coordinator that its next request needs. *)
FindCoordinator(type) ==
    /\ SendsRequests
    /\ \E request \in Requests :
        IsNext(request) /\ ~NothingToEnd(request) /\ ~KnowsReceiver(request) /\ CoordinatorOf(request) = type
    /\ inFlight' = Lookup(type)
    /\ queue' = Due
    /\ partitions' = Taken
    /\ UNCHANGED <<client, sequences, batches, coordinators, call, cluster, topic, seen, faults>>

(* The client sends its next request. *)
SendRequest(request) ==
    /\ MayBeSent(request) /\ IsNext(request) /\ ~NothingToEnd(request) /\ KnowsReceiver(request)
    /\ inFlight' = request
    /\ queue' = Due \ {request}
    /\ partitions' = Taken
    /\ seen' = IF request \in Ends THEN [seen EXCEPT !.ends = @ \cup {request}] ELSE seen
    /\ UNCHANGED <<client, sequences, batches, coordinators, call, cluster, topic, faults>>

(* The client ends a transaction of which no broker knows, and sends nothing. *)
SkipEnd(request) ==
    /\ SendsRequests /\ IsNext(request) /\ NothingToEnd(request)
    /\ client' = AfterEnd(FALSE)
    /\ partitions' = NoPartitions
    /\ queue' = queue \ {request}
    /\ call' = FinishedBy(request, "done")
    /\ seen' = [seen EXCEPT !.ended = request]
    /\ UNCHANGED <<sequences, batches, inFlight, coordinators, cluster, topic, faults>>

(* The next request fails because of an error before it. *)
TerminateRequest(request) ==
    /\ ~MayBeSent(request) /\ IsNext(request)
    /\ queue' = Due \ {request}
    /\ partitions' = Taken
    /\ call' = FinishedBy(request, "failed")
    /\ UNCHANGED <<client, sequences, batches, inFlight, coordinators, cluster, topic, seen, faults>>

(* The client sends a batch, for the first time or again, when no other request is to be sent. *)
SendBatch(partition) ==
    LET batch == batches[partition]
        isNew == batch.status = "accumulated"
        sent  == [batch EXCEPT !.status = "in flight",
                               !.identity = IF isNew THEN client.identity ELSE @,
                               !.sequence = IF isNew THEN NextSequence(partition) ELSE @]
    IN
    /\ RequestsFirst
    /\ (isNew /\ ~DropsBatches) \/ batch.status = "to be retried"
    /\ IsRegistered(partition)
    /\ batches' = [batches EXCEPT ![partition] = sent]
    /\ sequences' = IF isNew
                    THEN [sequences EXCEPT ![partition] = [identity |-> sent.identity, next |-> sent.sequence + 1]]
                    ELSE sequences
    /\ seen' = [seen EXCEPT !.last[partition] =
                    [identity |-> sent.identity, sequence |-> sent.sequence, version |-> seen.version]]
    /\ UNCHANGED <<client, partitions, queue, inFlight, coordinators, call, cluster, topic, faults>>

(* The client drops the batches that it has not sent yet. *)
DropBatches ==
    /\ inFlight = "none" /\ DropsBatches
    /\ \E partition \in Partitions : batches[partition].status = "accumulated"
    /\ batches' = [partition \in Partitions |->
           IF batches[partition].status = "accumulated" THEN NoBatch ELSE batches[partition]]
    /\ UNCHANGED <<client, partitions, sequences, queue, inFlight, coordinators, call, cluster, topic, seen, faults>>

(* The client whose principal was refused may be initialized again. *)
StartOver ==
    /\ IsUnauthorized
    /\ client' = [client EXCEPT !.state = "UNINITIALIZED", !.error = "NONE"]
    /\ UNCHANGED <<partitions, sequences, batches, queue, inFlight, coordinators, call, cluster, topic, seen, faults>>

(***************************************************************************)
(* Answers without error                              WHO: the brokers     *)
(***************************************************************************)

(* A broker names the coordinator. *)
ReceiveCoordinator(type) ==
    /\ inFlight = Lookup(type)
    /\ inFlight' = "none"
    /\ coordinators' = coordinators \cup {type}
    /\ UNCHANGED <<client, partitions, sequences, batches, queue, call, cluster, topic, seen, faults>>

(* The coordinator gives the client a producer id and epoch. *)
ReceiveProducerId ==
    /\ inFlight = "InitProducerId"
    /\ inFlight' = "none"
    /\ client' = [client EXCEPT !.state = "READY", !.error = "NONE", !.identity = @ + 1]
    /\ call' = FinishedBy("InitProducerId", "done")
    /\ UNCHANGED <<partitions, sequences, batches, queue, coordinators, cluster, topic, seen, faults>>

(* The coordinator has registered the partitions. *)
ReceivePartitionsAdded ==
    /\ inFlight = "AddPartitionsToTxn"
    /\ inFlight' = "none"
    /\ client' = [client EXCEPT !.started = TRUE]
    /\ partitions' = [partitions EXCEPT !.added = @ \cup partitions.pending, !.pending = {}]
    /\ seen' = [seen EXCEPT !.registered = @ \cup partitions.pending]
    /\ UNCHANGED <<sequences, batches, queue, coordinators, call, cluster, topic, faults>>

(* The coordinator has registered the group's offsets: they can be sent. *)
ReceiveOffsetsAdded ==
    /\ inFlight = "AddOffsetsToTxn"
    /\ inFlight' = "none"
    /\ client' = [client EXCEPT !.started = TRUE]
    /\ queue' = queue \cup {"TxnOffsetCommit"}
    /\ UNCHANGED <<partitions, sequences, batches, coordinators, call, cluster, topic, seen, faults>>

(* The group's coordinator has the offsets. *)
ReceiveOffsetsCommitted ==
    /\ inFlight = "TxnOffsetCommit" /\ ~NamesFormerTopic
    /\ inFlight' = "none"
    /\ call' = FinishedBy("TxnOffsetCommit", "done")
    /\ UNCHANGED <<client, partitions, sequences, batches, queue, coordinators, cluster, topic, seen, faults>>

(* The coordinator has ended the transaction; in version 2 it answers with the next epoch. *)
ReceiveEnd(request) ==
    /\ request \in Ends /\ inFlight = request
    /\ inFlight' = "none"
    /\ client' = AfterEnd(seen.version = 2)
    /\ partitions' = NoPartitions
    /\ call' = FinishedBy(request, "done")
    /\ seen' = [seen EXCEPT !.ended = request]
    /\ UNCHANGED <<sequences, batches, queue, coordinators, cluster, topic, faults>>

(* The leader has appended the batch, or has had it already. *)
AcknowledgeBatch(partition) ==
    /\ batches[partition].status = "in flight"
    /\ batches' = [batches EXCEPT ![partition] = NoBatch]
    /\ UNCHANGED <<client, partitions, sequences, queue, inFlight, coordinators, call, cluster, topic, seen, faults>>

(***************************************************************************)
(* Answers with an error, and none                    WHO: the brokers     *)
(***************************************************************************)

Answers(request, error, reactions) ==
    /\ request # "none" /\ MayAnswer(request, error) /\ Reaction(request, error) \in reactions
    /\ MayFail /\ faults' = faults + 1

(* The request waits to be sent again, perhaps after a lookup. *)
SendsAgain(looksUp) ==
    /\ inFlight' = "none"
    /\ queue' = queue \cup {inFlight} \cup (IF looksUp THEN {Lookup(CoordinatorOf(inFlight))} ELSE {})
    /\ coordinators' = IF looksUp THEN coordinators \ {CoordinatorOf(inFlight)} ELSE coordinators
    /\ UNCHANGED <<client, partitions, sequences, batches, call, cluster, topic, seen>>

(* A broker answers with a transient error: the client sends the same request again. *)
RetryRequest(error) ==
    /\ Answers(inFlight, error, {"retry"})
    /\ SendsAgain(inFlight \notin Lookups /\ AsksForCoordinator(inFlight, error))

(* The connection is lost before an answer comes: the client sends the same request again. *)
LoseConnection ==
    /\ inFlight # "none" /\ MayFail
    /\ SendsAgain(inFlight \notin Lookups)
    /\ faults' = faults + 1

BumpsFor(request, error) == Reaction(request, error) = "abortable with a bump"

(* Without another epoch the client cannot go on. *)
CannotGoOn(request, error) == BumpsFor(request, error) /\ ~SupportsBump /\ client.version = 1

FailsTransaction(error) ==
    /\ inFlight' = "none"
    /\ client' = Failed(ExceptionOf(inFlight, error), BumpsByItself /\ BumpsFor(inFlight, error))
    /\ call' = FinishedBy(inFlight, "failed")
    /\ seen' = [seen EXCEPT !.failed = @ \/ inFlight \notin Ends, !.ends = @ \ {inFlight},
                            !.fenced = @ \/ Fences(inFlight, error)]
    /\ UNCHANGED <<partitions, sequences, batches, queue, coordinators, cluster, topic>>

(* A broker answers with an error after which the client can abort and go on. *)
FailTransaction(error) ==
    /\ Answers(inFlight, error, {"abortable", "abortable with a bump"}) /\ ~CannotGoOn(inFlight, error)
    /\ FailsTransaction(error)

(* Brokers give this answer as often as they are asked, so it is no fault. *)

(* A broker answers that no topic has the id with which the client sends its offsets. *)
RefuseFormerTopic ==
    /\ inFlight = "TxnOffsetCommit" /\ NamesFormerTopic
    /\ IF Reaction(inFlight, "UNKNOWN_TOPIC_ID") = "retry" THEN SendsAgain(FALSE)
       ELSE FailsTransaction("UNKNOWN_TOPIC_ID")
    /\ UNCHANGED faults

(* The coordinator refuses the client's principal. *)
RefuseInitialization(error) ==
    /\ Answers(inFlight, error, {"uninitialized"})
    /\ inFlight' = "none"
    /\ client' = [client EXCEPT !.state = "ABORTABLE_ERROR", !.error = "AuthorizationException"]
    /\ call' = FinishedBy(inFlight, "failed")
    /\ UNCHANGED <<partitions, sequences, batches, queue, coordinators, cluster, topic, seen>>

(* A broker answers with an error that ends the producer. *)
FailProducer(error) ==
    /\ \/ Answers(inFlight, error, {"fatal"})
       \/ Answers(inFlight, error, {"abortable with a bump"}) /\ CannotGoOn(inFlight, error)
    /\ BecomesFatal(inFlight, ExceptionOf(inFlight, error))
    /\ seen' = [seen EXCEPT !.fenced = @ \/ Fences(inFlight, error)]

(* A leader answers with a transient error: the batch is to be sent again. *)
RetryBatch(partition, error) ==
    /\ batches[partition].status = "in flight" /\ Answers("Produce", error, {"retry"})
    /\ batches' = [batches EXCEPT ![partition].status = "to be retried", ![partition].retried = TRUE]
    /\ UNCHANGED <<client, partitions, sequences, queue, inFlight, coordinators, call, cluster, topic, seen>>

(* The fate of a batch is unknown if the client has given it up, or if an earlier copy of it may be on its way. *)
IsUnknown(batch, expired) == batch.retried \/ (expired /\ batch.status = "in flight")

(* The sequences after a batch has failed: that of a batch that was refused is taken again. *)
SequencesAfter(partition, expired) ==
    IF expired \/ sequences[partition].identity # batches[partition].identity THEN sequences
    ELSE [sequences EXCEPT ![partition].next = batches[partition].sequence]

FailsBatch(partition, exception, expired, fences) ==
    LET batch == batches[partition]
        bumps == BumpsAfter(batch, expired)
    IN
    /\ client' = Failed(exception, bumps)
    /\ batches' = [batches EXCEPT ![partition] = NoBatch]
    /\ sequences' = SequencesAfter(partition, expired)
    /\ queue' = QueueAfter(bumps)
    /\ seen' = [seen EXCEPT !.failed = TRUE, !.fenced = @ \/ fences,
                            !.unknown = IF IsUnknown(batch, expired) THEN batch.identity ELSE @,
                            !.last[partition].sequence = IF expired THEN @ ELSE batch.sequence - 1]
    /\ UNCHANGED <<partitions, inFlight, coordinators, call, cluster, topic>>

(* A leader refuses a batch with an error after which the client can abort and go on. *)
FailBatch(partition, error) ==
    /\ batches[partition].status = "in flight" /\ Answers("Produce", error, {"abortable"})
    /\ FailsBatch(partition, ExceptionOf("Produce", error), FALSE, Fences("Produce", error))

(* A leader refuses a batch with an error that ends the producer. *)
FailProducerByBatch(partition, error) ==
    /\ batches[partition].status = "in flight" /\ Answers("Produce", error, {"fatal"})
    /\ BecomesFatal("Produce", ExceptionOf("Produce", error))
    /\ seen' = [seen EXCEPT !.fenced = @ \/ Fences("Produce", error)]

(* A batch that is given up after a retry leaves a hole in the sequences, which only another epoch closes. *)
EndsByHole(partition) == batches[partition].retried /\ ~SupportsBump /\ client.version = 1

(* A batch is not acknowledged within delivery.timeout.ms: the client gives it up. *)
ExpireBatch(partition) ==
    /\ IsIncomplete(partition) /\ MayFail
    /\ faults' = faults + 1
    /\ IF EndsByHole(partition)
       THEN BecomesFatal("Produce", "KafkaException") /\ UNCHANGED seen
       ELSE FailsBatch(partition, "KafkaException", TRUE, FALSE)

(***************************************************************************)
(* The cluster                                        WHO: the operator    *)
(***************************************************************************)

(* The cluster goes on with the next version of transactions. *)
Upgrade ==
    /\ cluster + 1 \in Versions
    /\ cluster' = cluster + 1
    /\ UNCHANGED <<client, partitions, sequences, batches, queue, inFlight, coordinators, call, topic, seen, faults>>

(* The topic of the offsets is deleted, and created again with another id. *)
RecreateTopic ==
    /\ topic.id < MaxRecreations
    /\ topic' = [topic EXCEPT !.id = @ + 1]
    /\ UNCHANGED <<client, partitions, sequences, batches, queue, inFlight, coordinators, call, cluster, seen, faults>>

(* The steps with which client and brokers go on, whatever happened. *)
Progress ==
    \/ EndCall
    \/ \E type \in CoordinatorTypes : FindCoordinator(type) \/ ReceiveCoordinator(type)
    \/ \E request \in Requests :
        \/ SendRequest(request)
        \/ SkipEnd(request)
        \/ TerminateRequest(request)
        \/ ReceiveEnd(request)
    \/ \E partition \in Partitions : SendBatch(partition) \/ AcknowledgeBatch(partition)
    \/ DropBatches
    \/ StartOver
    \/ ReceiveProducerId
    \/ ReceivePartitionsAdded
    \/ ReceiveOffsetsAdded
    \/ ReceiveOffsetsCommitted
    \/ RefuseFormerTopic

Next ==
    \/ InitTransactions
    \/ BeginTransaction
    \/ FailSend
    \/ SendOffsets
    \/ CommitTransaction
    \/ AbortTransaction
    \/ RepeatCall
    \/ TimeOutCall
    \/ Progress
    \/ LoseConnection
    \/ \E error \in Errors :
        \/ RetryRequest(error)
        \/ FailTransaction(error)
        \/ RefuseInitialization(error)
        \/ FailProducer(error)
    \/ \E partition \in Partitions :
        \/ Send(partition)
        \/ ExpireBatch(partition)
        \/ \E error \in Errors :
            \/ RetryBatch(partition, error)
            \/ FailBatch(partition, error)
            \/ FailProducerByBatch(partition, error)
    \/ Upgrade
    \/ RecreateTopic

Spec == Init /\ [][Next]_vars

FairSpec == Spec /\ WF_vars(Progress)

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

IsInFlight(partition) == batches[partition].status = "in flight"

(* A batch leaves for the first time. *)
Leaves(partition) == batches[partition].status = "accumulated" /\ batches'[partition].status = "in flight"

(* Only legal transitions are taken. *)
OnlyLegalTransitions ==
    [][client'.state = client.state \/ <<client.state, client'.state>> \in LegalTransitions]_vars
OnlyLegalTransitionsWitness == client.state = "ABORTABLE_ERROR" /\ client'.state # client.state

(* After a fatal error nothing is sent, and no call helps. *)
FatalIsFinal ==
    [][client.state = "FATAL_ERROR" =>
           /\ client'.state = "FATAL_ERROR" /\ inFlight' = "none"
           /\ \A partition \in Partitions : batches'[partition].status # "in flight"]_vars
FatalIsFinalWitness == client.state = "FATAL_ERROR"

(* Codes with which a group refuses the offsets of a member: they say nothing of the transaction. *)
GroupRefusals ==
    {"FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"}

(* A group that refuses the offsets of a member does not end the producer: it can abort the transaction and go on. *)
RefusedOffsetsAreAborted ==
    [][inFlight = "TxnOffsetCommit" => \A error \in Errors \cap GroupRefusals : ~FailProducer(error)]_vars
RefusedOffsetsAreAbortedWitness ==
    inFlight = "TxnOffsetCommit" /\ \E error \in Errors \cap GroupRefusals : FailTransaction(error)

(* In version 2, offsets become those of the topic that they were read from, and of no other one of its name. *)
OffsetsOfTheirTopic == [][ReceiveOffsetsCommitted /\ client.version = 2 => topic.named = topic.id]_vars
OffsetsOfTheirTopicWitness == inFlight = "TxnOffsetCommit" /\ client.version = 2 /\ topic.named # topic.id

(* After a broker has said that the client is fenced, none of its requests and batches is on its way. *)
NothingAfterFencing ==
    seen.fenced => inFlight = "none" /\ ~\E partition \in Partitions : IsInFlight(partition)
NothingAfterFencingWitness == seen.fenced

(* No transaction is committed if a part of it has failed. *)
NothingCommittedAfterFailure == inFlight = Commit => ~seen.failed
NothingCommittedAfterFailureWitness == seen.failed

(* As long as the outcome is unknown, a client that has asked to commit a transaction does not ask to abort it, or the *)
(* other way round.                                                                                                    *)
OneEnd == Cardinality(seen.ends) <= 1
OneEndWitness == seen.ends # {}

(* No batch is on its way once the end of its transaction has been sent, nor one of the next before the answer. *)
NoBatchWhileEnding == seen.ends # {} => ~\E partition \in Partitions : IsInFlight(partition)
NoBatchWhileEndingWitness == seen.ends # {} /\ seen.sends > 0

(* Nothing that belongs to a transaction is asked for once its end has been sent. *)
NoRequestBehindEnd ==
    seen.ends # {} => inFlight \notin {"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"}
NoRequestBehindEndWitness == seen.ends # {} /\ (seen.registered # {} \/ seen.offsets)

(* In version 1 no batch leaves before the coordinator has registered its partition. *)
RegisteredFirst ==
    seen.version = 1 => \A partition \in Partitions : IsInFlight(partition) => partition \in seen.registered
RegisteredFirstWitness == seen.version = 1 /\ \E partition \in Partitions : IsInFlight(partition)

(* The sequences of a partition follow each other, and begin at 0 with every identity. *)
SequencesRestart ==
    [][\A partition \in Partitions : Leaves(partition) =>
           LET last == seen.last[partition]
               new  == batches'[partition]
           IN  IF new.identity = last.identity THEN new.sequence = last.sequence + 1
               ELSE new.identity > last.identity /\ new.sequence = 0]_vars
SequencesRestartWitness == \E partition \in Partitions : Leaves(partition) /\ seen.last[partition].identity > 0

(* A partition gets batches of one identity in one version of transactions only. *)
OneVersionForEachIdentity ==
    [][\A partition \in Partitions : Leaves(partition) =>
           (batches'[partition].identity = seen.last[partition].identity =>
                seen.version = seen.last[partition].version)]_vars
OneVersionForEachIdentityWitness ==
    \E partition \in Partitions :
        Leaves(partition) /\ seen.last[partition].identity > 0 /\ seen.version # seen.last[partition].version

(* Nothing is sent under the identity of a batch that was given up and may still be on its way. *)
NoIdentityIsReused ==
    [][\A partition \in Partitions : Leaves(partition) => batches'[partition].identity > seen.unknown]_vars
NoIdentityIsReusedWitness == seen.unknown > 0 /\ \E partition \in Partitions : Leaves(partition)

(* The client never asks for a producer id between the beginning and the end of a transaction. *)
NoInitializationInTransaction == inFlight = "InitProducerId" => seen.number = 0 \/ seen.ended # "none"
NoInitializationInTransactionWitness == inFlight = "InitProducerId" /\ seen.number > 0

(* A commit that returns is known to the coordinator, or the coordinator has nothing to know. *)
CommitIsKnown == call.operation = "commitTransaction" /\ call.outcome = "done" => seen.ended = Commit
CommitIsKnownWitness == call.operation = "commitTransaction" /\ call.outcome = "done" /\ seen.sends > 0

(* A client that is ready for transactions has a producer id. *)
ReadyIsInitialized == client.state \in {"READY", "IN_TRANSACTION"} => client.identity > 0
ReadyIsInitializedWitness == client.state = "IN_TRANSACTION"

(* The client accepts a call, if only the one that it is in again, unless its error is fatal. *)
NeverStuck ==
    client.state = "FATAL_ERROR" \/ IsUnauthorized \/ \E operation \in Calls : CallError(operation) = "NONE"
NeverStuckWitness ==
    /\ client.state # "FATAL_ERROR" /\ ~IsUnauthorized /\ inFlight = "none" /\ Due = {} /\ ~call.running
    /\ seen.number > 0 /\ faults > 0

(* Every call ends. *)
EveryCallEnds == call.running ~> ~call.running
EveryCallEndsWitness == call.running

=============================================================================
