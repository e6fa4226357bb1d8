----------------------------- MODULE Transactions -----------------------------
(***************************************************************************)
(* Transactions over several partitions: the coordinator of one            *)
(* transactional.id, the leaders of the partitions, and the instances of   *)
(* an application that share the id, over an unreliable network.           *)
(*                                                                         *)
(* Modelled: InitProducerId, AddPartitionsToTxn, Produce, EndTxn and their *)
(*   retries; implicit registration and the epoch bump at every end        *)
(*   (version 2, KIP-890 part 2), which each client speaks or does not;    *)
(*   verification with its guard (KIP-890 part 1); markers, fenced by      *)
(*   producer and coordinator epoch; clients that abort after a batch was  *)
(*   refused or given up, and go on while it may still arrive; timeout;    *)
(*   failover of the coordinator, whose last requests may still be on      *)
(*   their way; other leaders for partitions, and none for a moment; a     *)
(*   zombie instance; a crash; an abort by hand.                           *)
(*   The partition of __consumer_offsets that a group's offsets belong to  *)
(*   is a partition like the others: AddOffsetsToTxn registers it, and     *)
(*   TxnOffsetCommit is a batch for it, though without a sequence in Kafka *)
(*   (TransactionalOffsets).                                               *)
(*   A request is handled at any later time or never, and a few more times *)
(*   than it was sent; so are markers, and batches that were refused.      *)
(* Assumed, not checked: the coordinator's log is one durable record that  *)
(*   is replaced in one step; a partition's log is never truncated; a      *)
(*   leader remembers every batch of the present epoch, where Kafka        *)
(*   remembers five (IdempotentProducer); the network repeats batches only *)
(*   where leaders verify, and a leader handles the copies of a batch one  *)
(*   after the other; the network does not repeat InitProducerId, because  *)
(*   the first one is not idempotent (EpochBump).                          *)
(* Out of scope: what readers see before a marker, and the last stable     *)
(*   offset (Consumer); appends of the coordinator that fail, exhaustion   *)
(*   of epochs, expiry (TransactionCoordinator); replication of partitions *)
(*   (ReplicatedLog); what an application does after a commit of unknown   *)
(*   outcome (ApplicationLoop).                                            *)
(*                                                                         *)
(* KIPs: 98, 360, 890, 1228.  Kafka: TransactionCoordinator,               *)
(* TransactionMetadata, TransactionMarkerChannelManager,                   *)
(* ProducerStateManager, ProducerAppendInfo, TransactionManager.           *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Instances,           \* processes of the application with the same transactional.id
    Partitions,          \* the partitions that they write to
    Numbers,             \* 1..n: an instance's transactions
    Epochs,              \* 0..n: the producer epochs that can be reached
    CoordinatorEpochs,   \* 0..n: one more than there may be failovers
    Versions,            \* the transaction versions that the clients speak: of 1 and 2
    Verification,        \* TRUE: a leader asks the coordinator before a transaction's first batch (KIP-890 part 1)
    Faults,              \* what may go wrong: of "repeat request", "repeat batch", "repeat marker", "timeout",
                         \* "failover", "former coordinator", "election", "no leader", "crash", "admin abort"
    MaxFaults            \* how often

VARIABLES
    transaction,         \* the coordinator's durable record: state, epoch, partitions
    coordinatorEpoch,    \* counts the failovers
    former,              \* the record of a former coordinator that does not know it was replaced
    toMark,              \* the partitions whose marker the coordinator has no acknowledgement for
    refused,             \* the partitions whose leader has refused the coordinator's marker
    logs,                \* for each partition: its entries, and what its leader knows of the producer
    clients,             \* for each instance: the state of its client
    outcome,             \* of each instance's transactions, as it sees them: none, open, committing, committed or aborted
    stored,              \* the batches that were acknowledged to an instance: [instance, number, partition]
    initRequests,        \* the requests for an epoch that are on their way
    addRequests,         \* the requests to register a partition that are on their way
    produceRequests,     \* the produce requests that are on their way
    verifying,           \* the produce requests that their leader is asking the coordinator about, with their guard
    verified,            \* the produce requests that the coordinator has verified
    endRequests,         \* the requests to end a transaction that are on their way
    markerRequests,      \* the markers that are on their way
    answers,             \* the answers that are on their way, at most one for each instance
    faults               \* the number of faults so far

vars == <<transaction, coordinatorEpoch, former, toMark, refused, logs, clients, outcome, stored, initRequests,
          addRequests, produceRequests, verifying, verified, endRequests, markerRequests, answers, faults>>

coordinatorVars == <<transaction, coordinatorEpoch, former, toMark, refused>>
clientVars      == <<clients, outcome, stored>>

NoEpoch == -1

NewClient == [state |-> "new", version |-> 0, epoch |-> NoEpoch, number |-> 0, awaits |-> "nothing", partition |-> "none",
              added |-> {}, produced |-> {}, bump |-> FALSE, asked |-> FALSE]

NewTransaction == [state |-> "EMPTY", version |-> 0, epoch |-> NoEpoch, partitions |-> {}]

Init ==
    /\ transaction = NewTransaction
    /\ coordinatorEpoch = 0
    /\ former = NewTransaction
    /\ toMark = {}
    /\ refused = {}
    /\ logs = [partition \in Partitions |->
                  [entries |-> <<>>, epoch |-> NoEpoch, open |-> FALSE, guard |-> 0, guardEpoch |-> NoEpoch,
                   guardVersion |-> 0, coordinatorEpoch |-> -1]]
    /\ clients = [instance \in Instances |-> NewClient]
    /\ outcome = [instance \in Instances |-> [number \in Numbers |-> "none"]]
    /\ stored = {}
    /\ initRequests = {}
    /\ addRequests = {}
    /\ produceRequests = {}
    /\ verifying = {}
    /\ verified = {}
    /\ endRequests = {}
    /\ markerRequests = {}
    /\ answers = {}
    /\ faults = 0

(***************************************************************************)
(* Transitions of the coordinator's record                                 *)
(***************************************************************************)

(* The legal transitions. PREPARE_EPOCH_FENCE and DEAD are never written.    Kafka: TransactionState *)
MayFollow ==
    [EMPTY           |-> {"EMPTY", "ONGOING", "PREPARE_ABORT"},
     ONGOING         |-> {"ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT"},
     PREPARE_COMMIT  |-> {"COMPLETE_COMMIT"},
     PREPARE_ABORT   |-> {"COMPLETE_ABORT"},
     COMPLETE_COMMIT |-> {"EMPTY", "ONGOING", "PREPARE_ABORT"},
     COMPLETE_ABORT  |-> {"EMPTY", "ONGOING", "PREPARE_ABORT"}]

IsPrepared == transaction.state \in {"PREPARE_COMMIT", "PREPARE_ABORT"}
IsAtRest   == transaction.state \in {"EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"}

(* The record decides for commit. *)
Commits == transaction.state \in {"PREPARE_COMMIT", "COMPLETE_COMMIT"}

Prepared(commit) == IF commit THEN "PREPARE_COMMIT" ELSE "PREPARE_ABORT"
Completed(commit) == IF commit THEN "COMPLETE_COMMIT" ELSE "COMPLETE_ABORT"

(* The coordinator decides: the decision and the epoch of its markers become durable in one record. *)
Decide(commit, version, epoch) ==
    /\ transaction' = [transaction EXCEPT !.state = Prepared(commit), !.version = version, !.epoch = epoch]
    /\ toMark' = transaction.partitions
    /\ refused' = {}
    /\ UNCHANGED <<coordinatorEpoch, former>>

(* The epoch with which the coordinator aborts a transaction by itself, so that its producer is fenced. *)
FencingEpoch == transaction.epoch + 1

(* The epoch with which a transaction that its producer ends goes on. *)
EndEpoch(version) == IF version = 2 THEN transaction.epoch + 1 ELSE transaction.epoch

(***************************************************************************)
(* Instances                                        WHO: the application   *)
(***************************************************************************)

(* A fault happens, if one may happen still. *)
Fault(kind) == kind \in Faults /\ faults < MaxFaults /\ faults' = faults + 1

Idle(instance) == clients[instance].awaits = "nothing"

(* An instance initializes its transactions, which fences the others; it speaks the version that it finds. *)
Initialize(instance, version) ==
    /\ clients[instance].state = "new" /\ Idle(instance)
    /\ clients[instance].version \in {0, version}
    /\ clients' = [clients EXCEPT ![instance].awaits = "init", ![instance].asked = TRUE,
                                  ![instance].version = version]
    /\ initRequests' = initRequests \cup {instance}
    /\ UNCHANGED <<coordinatorVars, logs, outcome, stored, addRequests, produceRequests, verifying, verified, endRequests,
                   markerRequests, answers, faults>>

(* The number of the transaction that an instance's next batch belongs to. *)
Current(instance) ==
    IF clients[instance].state = "open" THEN clients[instance].number ELSE clients[instance].number + 1

(* An instance in its transaction, which begins if it has not. *)
Within(client, number) ==
    IF client.state = "open" THEN client
    ELSE [client EXCEPT !.state = "open", !.number = number, !.added = {}, !.produced = {}]

Begun(instance) ==
    outcome' = [outcome EXCEPT ![instance][Current(instance)] = "open"]

(* An instance registers a partition with the coordinator. *)
AddPartition(instance, partition) ==
    /\ clients[instance].version = 1
    /\ clients[instance].state \in {"ready", "open"} /\ Idle(instance)
    /\ Current(instance) \in Numbers
    /\ partition \notin Within(clients[instance], Current(instance)).added
    /\ clients' = [clients EXCEPT ![instance] =
                      [Within(@, Current(instance)) EXCEPT !.awaits = "add", !.partition = partition]]
    /\ Begun(instance)
    /\ addRequests' = addRequests \cup {[instance |-> instance, number |-> Current(instance), partition |-> partition,
                                         version |-> clients[instance].version, epoch |-> clients[instance].epoch]}
    /\ UNCHANGED <<coordinatorVars, logs, stored, initRequests, produceRequests, verifying, verified, endRequests, markerRequests,
                   answers, faults>>

(* An instance sends a batch of its transaction to a partition. *)
Produce(instance, partition) ==
    /\ clients[instance].state \in {"ready", "open"} /\ Idle(instance)
    /\ Current(instance) \in Numbers
    /\ LET client == Within(clients[instance], Current(instance)) IN
       /\ client.version = 1 => partition \in client.added
       /\ partition \notin client.produced
       /\ clients' = [clients EXCEPT ![instance] =
                         [client EXCEPT !.awaits = "produce", !.partition = partition,
                                        !.produced = @ \cup {partition}]]
    /\ Begun(instance)
    /\ produceRequests' = produceRequests \cup
          {[instance |-> instance, number |-> Current(instance), partition |-> partition,
            version |-> clients[instance].version, epoch |-> clients[instance].epoch]}
    /\ UNCHANGED <<coordinatorVars, logs, stored, initRequests, addRequests, verifying, verified, endRequests, markerRequests,
                   answers, faults>>

(* Version 2 gives every client another epoch at the end of its transaction.                                         *)
(* Departs from Kafka: there a client asks for none if its batch fails after the application has asked it to end the *)
(* transaction, and a late batch then joins the next one (KeepsEpochWhileEnding).                                    *)

(* A client asks for another epoch after a batch has failed, because the batch may be stored or not (KIP-360). *)
AsksForEpoch(client, ending) == client.version = 1

(* The client after a batch has failed: it can only abort, and then goes on. *)
Failed(client, ending) ==
    [client EXCEPT !.state = "abortable", !.awaits = "nothing", !.bump = AsksForEpoch(client, ending)]

(* The batch may be stored or not. The application may have asked to end the transaction by then. *)

(* A batch is not acknowledged in time, and its instance gives it up. *)
Expire(instance, ending) ==
    /\ clients[instance].awaits = "produce"
    /\ clients' = [clients EXCEPT ![instance] = Failed(@, ending)]
    /\ answers' = {answer \in answers : answer.instance # instance}
    /\ UNCHANGED <<coordinatorVars, logs, outcome, stored, initRequests, addRequests, produceRequests, verifying, verified,
                   endRequests, markerRequests, faults>>

Ending(commit) == IF commit THEN "committing" ELSE "aborting"

(* An instance whose batch has failed may only abort. *)

(* An instance ends its transaction, and asks again if the coordinator was busy. *)
End(instance, commit) ==
    /\ clients[instance].state \in {"open", Ending(commit)} \cup (IF commit THEN {} ELSE {"abortable"})
    /\ Idle(instance)
    /\ IF clients[instance].version = 1 THEN clients[instance].added # {} ELSE commit => clients[instance].produced # {}
    /\ clients' = [clients EXCEPT ![instance].state = Ending(commit), ![instance].awaits = "end"]
    /\ endRequests' = endRequests \cup {[instance |-> instance, number |-> clients[instance].number,
                                         version |-> clients[instance].version, epoch |-> clients[instance].epoch,
                                         commit |-> commit]}
    /\ outcome' = [outcome EXCEPT ![instance][clients[instance].number] = IF commit THEN "committing" ELSE @]
    /\ UNCHANGED <<coordinatorVars, logs, stored, initRequests, addRequests, produceRequests, verifying, verified,
                   markerRequests, answers, faults>>

(* The client needs a new epoch, because the old one is also that of its earlier transactions (KAFKA-18227). *)

(* A client after it has found version 2. *)
Upgraded(client) == [client EXCEPT !.version = 2, !.state = "new"]

(* An instance between two transactions finds that the cluster has version 2 by now. *)
Upgrade(instance) ==
    /\ 2 \in Versions
    /\ clients[instance].version = 1 /\ clients[instance].state = "ready" /\ Idle(instance)
    /\ clients' = [clients EXCEPT ![instance] = Upgraded(@)]
    /\ UNCHANGED <<coordinatorVars, logs, outcome, stored, initRequests, addRequests, produceRequests, verifying, verified,
                   endRequests, markerRequests, answers, faults>>

(* An instance crashes, and is not seen again. *)
Crash(instance) ==
    /\ clients[instance].state \in {"ready", "open", "abortable", "committing", "aborting"}
    /\ clients' = [clients EXCEPT ![instance].state = "crashed", ![instance].awaits = "nothing"]
    /\ answers' = {answer \in answers : answer.instance # instance}
    /\ Fault("crash")
    /\ UNCHANGED <<coordinatorVars, logs, outcome, stored, initRequests, addRequests, produceRequests, verifying, verified,
                   endRequests, markerRequests>>

(* Errors after which a client sends its request again. *)
Retriable == {"CONCURRENT_TRANSACTIONS", "NOT_LEADER_OR_FOLLOWER"}

(* The client can abort after this error and go on. Every other error ends the client (all: TransactionalProducer). *)
IsAbortable(request, error) ==
    /\ request = "produce"
    /\ error \in {"INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE", "OUT_OF_ORDER_SEQUENCE_NUMBER", "TRANSACTION_ABORTABLE"}

(* An instance's client after an answer. *)
AfterAnswer(client, answer) ==
    LET heard == [client EXCEPT !.awaits = "nothing"] IN
    IF answer.error \in Retriable THEN
        [heard EXCEPT !.produced = IF client.awaits = "produce" THEN @ \ {client.partition} ELSE @]
    ELSE IF IsAbortable(client.awaits, answer.error) THEN Failed(client, FALSE)
    ELSE IF answer.error # "NONE" THEN [heard EXCEPT !.state = "failed"]
    ELSE IF client.awaits = "init" THEN [heard EXCEPT !.state = "ready", !.epoch = answer.epoch]
    ELSE IF client.awaits = "add" THEN [heard EXCEPT !.added = @ \cup {client.partition}]
    ELSE IF client.awaits = "end" THEN
        [heard EXCEPT !.epoch = answer.epoch, !.bump = FALSE, !.state = IF client.bump THEN "new" ELSE "ready"]
    ELSE heard

(* An instance gets the answer that it waits for. *)
Receive(instance) ==
    \E answer \in answers :
        /\ answer.instance = instance
        /\ answers' = {other \in answers : other.instance # instance}
        /\ LET client == clients[instance] IN
           /\ clients' = [clients EXCEPT ![instance] = AfterAnswer(client, answer)]
           /\ stored' = IF answer.error = "NONE" /\ client.awaits = "produce"
                        THEN stored \cup {[instance |-> instance, number |-> client.number,
                                           partition |-> client.partition]}
                        ELSE stored
           /\ outcome' = IF client.awaits = "end" /\ answer.error = "NONE"
                         THEN [outcome EXCEPT ![instance][client.number] =
                                  IF client.state = "committing" THEN "committed" ELSE "aborted"]
                         ELSE outcome
        /\ UNCHANGED <<coordinatorVars, logs, initRequests, addRequests, produceRequests, verifying, verified, endRequests,
                       markerRequests, faults>>

(* An answer goes back if the instance still waits for it; an earlier one to the same request is lost then. *)
Answer(instance, number, awaited, error, epoch) ==
    answers' = IF clients[instance].awaits = awaited /\ clients[instance].number = number
               THEN {other \in answers : other.instance # instance}
                       \cup {[instance |-> instance, error |-> error, epoch |-> epoch]}
               ELSE answers

(* The answer to a batch goes back if the instance still waits for it, and not for another partition's. *)
AnswerBatch(request, error) ==
    IF clients[request.instance].partition = request.partition
    THEN Answer(request.instance, request.number, "produce", error, NoEpoch) ELSE UNCHANGED answers

(***************************************************************************)
(* The coordinator                                  WHO: the coordinator   *)
(***************************************************************************)

(* The transaction of the instance before has ended, and so has the writing of its markers. *)
MayTakeOver == IsAtRest

(* An instance that has an epoch presents it, and is fenced if another one has a later epoch (KIP-360). *)
IsFenced(epoch) == epoch # NoEpoch /\ epoch # transaction.epoch

(* The record after an instance has got its epoch. *)
Initialized == [transaction EXCEPT !.state = "EMPTY", !.epoch = @ + 1]

(* An instance asks for its epoch: the transaction of the one before it is ended first. *)
HandleInit(instance) ==
    /\ instance \in initRequests
    /\ initRequests' = initRequests \ {instance}
    /\ IF MayTakeOver /\ IsFenced(clients[instance].epoch) THEN
          /\ Answer(instance, clients[instance].number, "init", "PRODUCER_FENCED", NoEpoch)
          /\ UNCHANGED coordinatorVars
       ELSE IF MayTakeOver THEN
          /\ transaction' = Initialized
          /\ Answer(instance, clients[instance].number, "init", "NONE", transaction.epoch + 1)
          /\ UNCHANGED <<coordinatorEpoch, former, toMark, refused>>
       ELSE
          /\ Answer(instance, clients[instance].number, "init", "CONCURRENT_TRANSACTIONS", NoEpoch)
          /\ IF transaction.state = "ONGOING" THEN Decide(FALSE, transaction.version, FencingEpoch)
                                              ELSE UNCHANGED coordinatorVars
    /\ UNCHANGED <<logs, clientVars, addRequests, produceRequests, verifying, verified, endRequests, markerRequests, faults>>

(* While markers are written a transition is pending, and the coordinator checks that first. *)

(* The reason why the coordinator refuses to add a partition; "NONE" if it does not. *)
AddError(epoch) ==
    IF IsPrepared THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF epoch # transaction.epoch THEN "PRODUCER_FENCED"
    ELSE "NONE"

WithPartition(partition, version) ==
    [transaction EXCEPT !.state = "ONGOING", !.version = version,
                        !.partitions = IF transaction.state = "ONGOING" THEN @ \cup {partition} ELSE {partition}]

(* The coordinator registers a partition in the transaction, which begins if it has not. *)
HandleAdd(instance, number, partition) ==
    \E request \in addRequests :
        /\ request.instance = instance /\ request.number = number /\ request.partition = partition
        /\ addRequests' = addRequests \ {request}
        /\ transaction' = IF AddError(request.epoch) = "NONE"
                         THEN WithPartition(partition, request.version) ELSE transaction
        /\ Answer(instance, number, "add", AddError(request.epoch), NoEpoch)
        /\ UNCHANGED <<coordinatorEpoch, former, toMark, refused, logs, clientVars, initRequests, produceRequests, verifying, verified,
                       endRequests, markerRequests, faults>>

(* A retry: the request asks for the decision that was made, with the epoch before the decision's bump. *)
IsRetryOfEnd(version, epoch) == version = 2 /\ epoch + 1 = transaction.epoch

(* While markers are written a transition is pending: version 2 looks at that first (KAFKA-18464), version 1 at the *)
(* epoch.                                                                                                           *)

(* The reason why the coordinator does not begin to end the transaction, or "DECIDE" if it does. *)
EndVerdict(version, epoch, commit) ==
    IF version = 1 THEN
        IF epoch # transaction.epoch THEN "PRODUCER_FENCED"
        ELSE IF IsPrepared THEN "CONCURRENT_TRANSACTIONS"
        ELSE IF transaction.state = "ONGOING" THEN "DECIDE"
        ELSE IF transaction.state = Completed(commit) THEN "NONE"
        ELSE "INVALID_TXN_STATE"
    ELSE
        IF IsPrepared THEN "CONCURRENT_TRANSACTIONS"
        ELSE IF IsRetryOfEnd(version, epoch) /\ transaction.state \in {"COMPLETE_COMMIT", "COMPLETE_ABORT"}
        THEN (IF Commits = commit THEN "NONE" ELSE "INVALID_TXN_STATE")
        ELSE IF epoch # transaction.epoch THEN "PRODUCER_FENCED"
        ELSE IF transaction.state = "ONGOING" \/ ~commit THEN "DECIDE"
        ELSE "INVALID_TXN_STATE"

(* The answer goes back when the decision is durable. *)

(* The coordinator is asked to end the transaction, perhaps by a request of which the network keeps a copy. *)
HandleEnd(instance, number, commit, stays) ==
    \E request \in endRequests :
        /\ request.instance = instance /\ request.number = number /\ request.commit = commit
        /\ endRequests' = IF stays THEN endRequests ELSE endRequests \ {request}
        /\ IF stays THEN Fault("repeat request") ELSE UNCHANGED faults
        /\ LET verdict == EndVerdict(request.version, request.epoch, commit)
               epoch   == EndEpoch(request.version)
           IN
           IF verdict = "DECIDE" THEN
              /\ Decide(commit, request.version, epoch)
              /\ Answer(instance, number, "end", "NONE", epoch)
           ELSE
              /\ Answer(instance, number, "end", verdict, transaction.epoch)
              /\ UNCHANGED coordinatorVars
        /\ UNCHANGED <<logs, clientVars, initRequests, addRequests, produceRequests, verifying, verified, markerRequests>>

(* The instance that owns the transaction can still end it. *)
OwnerIsAlive ==
    \E instance \in Instances : /\ clients[instance].epoch = transaction.epoch
                                /\ clients[instance].state \in {"ready", "open", "abortable", "committing", "aborting"}

(* A timeout counts as a fault only if the producer is alive, and was merely slow. *)

(* The transaction has been open for longer than its timeout: the coordinator aborts it and fences its producer. *)
TimeOut ==
    /\ transaction.state = "ONGOING"
    /\ Decide(FALSE, transaction.version, FencingEpoch)
    /\ IF OwnerIsAlive THEN Fault("timeout") ELSE UNCHANGED faults
    /\ UNCHANGED <<logs, clientVars, initRequests, addRequests, produceRequests, verifying, verified, endRequests, markerRequests,
                   answers>>

MarkerTo(partition) ==
    [partition |-> partition, version |-> transaction.version, epoch |-> transaction.epoch, commit |-> Commits,
     coordinatorEpoch |-> coordinatorEpoch]

(* A marker that was refused is not sent again before the next failover, and the transaction stays prepared until then. *)

(* The coordinator sends a marker to a partition of the transaction. *)
SendMarker(partition) ==
    /\ IsPrepared
    /\ partition \in toMark \ refused
    /\ MarkerTo(partition) \notin markerRequests
    /\ markerRequests' = markerRequests \cup {MarkerTo(partition)}
    /\ UNCHANGED <<coordinatorVars, logs, clientVars, initRequests, addRequests, produceRequests, verifying, verified, endRequests,
                   answers, faults>>

(* Departs from Kafka: 4.3 takes the partition for one that was deleted, and leaves its marker out (the mutant *)
(* NoLeaderIsDeleted).                                                                                         *)

(* The partitions whose marker is missing after the coordinator has found no leader of one: it asks again. *)
MarkersWithoutLeader(partition) == toMark

(* The coordinator is to send a marker to a partition that has no leader at the moment. *)
FindNoLeader(partition) ==
    /\ partition \in toMark \ refused
    /\ MarkerTo(partition) \notin markerRequests
    /\ toMark' = MarkersWithoutLeader(partition)
    /\ Fault("no leader")
    /\ UNCHANGED <<transaction, coordinatorEpoch, former, refused, logs, clientVars, initRequests, addRequests, produceRequests,
                   verifying, verified, endRequests, markerRequests, answers>>

(* Every partition has its marker. *)
MayComplete == toMark = {}

(* The coordinator closes the transaction. *)
CompleteTransaction ==
    /\ IsPrepared
    /\ MayComplete
    /\ transaction' = [transaction EXCEPT !.state = Completed(Commits), !.partitions = {}]
    /\ UNCHANGED <<coordinatorEpoch, former, toMark, refused, logs, clientVars, initRequests, addRequests, produceRequests,
                   verifying, verified, endRequests, markerRequests, answers, faults>>

(* The partitions to which a new coordinator has to send markers. *)
PartitionsToMark == IF IsPrepared THEN transaction.partitions ELSE {}

(* The record as a new coordinator reads it. *)
Decided == transaction

(* Another broker becomes the coordinator: it has the record, and sends a prepared transaction's markers again. *)
Failover ==
    /\ coordinatorEpoch + 1 \in CoordinatorEpochs
    /\ coordinatorEpoch' = coordinatorEpoch + 1
    /\ toMark' = PartitionsToMark
    /\ refused' = {}
    /\ transaction' = Decided
    /\ former' = IF "former coordinator" \in Faults THEN transaction ELSE former
    /\ Fault("failover")
    /\ UNCHANGED <<logs, clientVars, initRequests, addRequests, produceRequests, verifying, verified, endRequests,
                   markerRequests, answers>>

(***************************************************************************)
(* The partitions' leaders                          WHO: a leader          *)
(***************************************************************************)

(* The partition has an open transaction of this epoch. *)
IsOngoing(log, epoch) == log.open /\ log.epoch = epoch

NeedsGuard(version) == Verification \/ version = 2

(* The version of a guard whose epoch a request raises. *)
(* Departs from Kafka: there the first request decides, and not the one with the latest epoch (FirstRequestDecides). *)
GuardVersion(log, request) == request.version

(* Requests of one producer share the guard; a later epoch raises the guard's.    Kafka: VerificationStateEntry *)
WithGuard(log, request) ==
    IF log.guardEpoch < request.epoch
    THEN [log EXCEPT !.guardEpoch = request.epoch, !.guardVersion = GuardVersion(log, request)] ELSE log

(* The batch's epoch has passed: the leader refuses the batch without asking the coordinator. *)
HasPassed(log, epoch) == epoch < log.epoch

(* The leader is handling a request with this batch. *)
IsBeingHandled(instance, number, partition) ==
    \E request \in verifying \cup verified :
        request.instance = instance /\ request.number = number /\ request.partition = partition

(* A leader begins to ask the coordinator about a batch, perhaps in a request of which the network keeps a copy. *)
StartVerification(instance, number, partition, stays) ==
    /\ ~IsBeingHandled(instance, number, partition)
    /\ \E request \in produceRequests :
        /\ request.instance = instance /\ request.number = number /\ request.partition = partition
        /\ NeedsGuard(request.version)
        /\ produceRequests' = IF stays THEN produceRequests ELSE produceRequests \ {request}
        /\ IF HasPassed(logs[partition], request.epoch) THEN
              /\ AnswerBatch(request, "INVALID_PRODUCER_EPOCH")
              /\ UNCHANGED <<logs, verifying>>
           ELSE
              /\ verifying' = verifying \cup {[instance |-> instance, number |-> number, partition |-> partition,
                                               version |-> request.version, epoch |-> request.epoch,
                                               guard |-> logs[partition].guard]}
              /\ logs' = [logs EXCEPT ![partition] = WithGuard(@, request)]
              /\ UNCHANGED answers
    /\ IF stays THEN Fault("repeat batch") ELSE UNCHANGED faults
    /\ UNCHANGED <<coordinatorVars, clientVars, initRequests, addRequests, verified, endRequests, markerRequests>>

(* Before part 2 of KIP-890 the partition has to be registered, and the epoch is looked at first; since then the *)
(* leader's question registers it.                                                                                *)

(* The reason why the coordinator does not verify a batch; "NONE" if it does. *)
VerificationError(version, epoch, partition) ==
    IF version = 2 THEN AddError(epoch)
    ELSE IF epoch # transaction.epoch THEN "PRODUCER_FENCED"
    ELSE IF IsPrepared THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF partition \notin transaction.partitions THEN "TRANSACTION_ABORTABLE"
    ELSE "NONE"

(* The leader's answer to a batch that the coordinator does not verify. *)
Unverified(error) == IF error = "PRODUCER_FENCED" THEN "INVALID_PRODUCER_EPOCH" ELSE error

(* The record after the coordinator has verified a batch. *)
AfterVerification(request) ==
    IF request.version = 2 THEN WithPartition(request.partition, 2) ELSE transaction

(* The coordinator answers a leader that asks about a batch. *)
Verify(instance, number, partition) ==
    /\ \E request \in verifying :
        /\ request.instance = instance /\ request.number = number /\ request.partition = partition
        /\ verifying' = verifying \ {request}
        /\ LET error == VerificationError(request.version, request.epoch, partition) IN
           IF error = "NONE" THEN
              /\ verified' = verified \cup {request}
              /\ transaction' = AfterVerification(request)
              /\ UNCHANGED answers
           ELSE
              /\ AnswerBatch(request, Unverified(error))
              /\ UNCHANGED <<verified, transaction>>
    /\ UNCHANGED <<coordinatorEpoch, former, toMark, refused, logs, clientVars, initRequests, addRequests, produceRequests,
                   endRequests, markerRequests, faults>>

(* It finds the partition in its memory. So it writes no record, and does not learn that it was replaced. *)

(* A former coordinator answers a leader that asks about a batch. *)
VerifyByFormer(instance, number, partition) ==
    /\ former.state = "ONGOING" /\ partition \in former.partitions
    /\ \E request \in verifying :
        /\ request.instance = instance /\ request.number = number /\ request.partition = partition
        /\ request.epoch = former.epoch
        /\ verifying' = verifying \ {request}
        /\ verified' = verified \cup {request}
    /\ Fault("former coordinator")
    /\ UNCHANGED <<coordinatorVars, logs, clientVars, initRequests, addRequests, produceRequests, endRequests,
                   markerRequests, answers>>

(* Without verification a leader of version 2 asks only to have the partition registered: it looks at no guard. *)
(* Kafka: UnifiedLog.batchMissingRequiredVerification                                                           *)

(* The reason why a leader refuses a batch that belongs to a transaction; "NONE" if it does not. *)
DataError(log, epoch, guard) ==
    IF epoch < log.epoch THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF Verification /\ ~IsOngoing(log, epoch) /\ guard # log.guard THEN "INVALID_TXN_STATE"
    ELSE "NONE"

(* A batch uses the guard up, unless the guard belongs to a later epoch already.                                     *)
(* Departs from Kafka: there every transactional append does (the mutant EveryAppendUsesGuardUp); a late batch of an *)
(* aborted transaction then makes the next one fail.                                                                 *)
UsesGuardUp(log, epoch) == log.guardEpoch <= epoch

(* The leader's log after a batch. *)
WithData(log, instance, number, epoch) ==
    [log EXCEPT !.entries = Append(@, [kind |-> "data", epoch |-> epoch, instance |-> instance, number |-> number]),
                !.epoch = epoch, !.open = TRUE,
                !.guard = IF UsesGuardUp(log, epoch) THEN @ + 1 ELSE @,
                !.guardEpoch = IF UsesGuardUp(log, epoch) THEN NoEpoch ELSE @,
                !.guardVersion = IF UsesGuardUp(log, epoch) THEN 0 ELSE @]

(* Sequences go up within an epoch: no batch is appended after one of a later transaction. *)
IsOutOfOrder(log, request) ==
    \E i \in DOMAIN log.entries :
        LET entry == log.entries[i]
        IN  entry.instance = request.instance /\ entry.epoch = request.epoch /\ entry.number > request.number

(* The batch is stored already, with its producer's present epoch. *)
IsDuplicate(log, request) ==
    /\ request.epoch = log.epoch
    /\ \E i \in DOMAIN log.entries :
          log.entries[i].epoch = request.epoch /\ log.entries[i].number = request.number

(* The reason why a leader refuses a batch that is not stored; "NONE" if it does not. *)
AppendError(log, request, guard) ==
    LET error == DataError(log, request.epoch, guard)
    IN  IF error = "NONE" /\ IsOutOfOrder(log, request) THEN "OUT_OF_ORDER_SEQUENCE_NUMBER" ELSE error

(* A batch that is stored already is acknowledged and not stored again. *)
AppendTo(partition, request, guard) ==
    LET known == IsDuplicate(logs[partition], request)
        error == IF known THEN "NONE" ELSE AppendError(logs[partition], request, guard)
    IN
    /\ logs' = IF ~known /\ error = "NONE"
               THEN [logs EXCEPT ![partition] = WithData(@, request.instance, request.number, request.epoch)]
               ELSE logs
    /\ AnswerBatch(request, error)

(* A leader appends a batch that the coordinator has verified, if nothing has happened since. *)
AppendVerified(instance, number, partition) ==
    \E request \in verified :
        /\ request.instance = instance /\ request.number = number /\ request.partition = partition
        /\ verified' = verified \ {request}
        /\ AppendTo(partition, request, request.guard)
        /\ UNCHANGED <<coordinatorVars, clientVars, initRequests, addRequests, produceRequests, verifying, endRequests,
                       markerRequests, faults>>

(* A leader appends a batch without asking the coordinator. *)
AppendUnverified(instance, number, partition) ==
    /\ \E request \in produceRequests :
        /\ request.instance = instance /\ request.number = number /\ request.partition = partition
        /\ ~NeedsGuard(request.version)
        /\ produceRequests' = produceRequests \ {request}
        /\ AppendTo(partition, request, 0)
    /\ UNCHANGED <<coordinatorVars, clientVars, initRequests, addRequests, verifying, verified, endRequests, markerRequests,
                   faults>>

(* Under version 2 a marker's epoch is above its data's, or the same when it has been written already. The exception *)
(* for the last epoch is in TransactionalPartition: epochs do not run out here.                                      *)

(* The reason why a leader refuses a marker; "NONE" if it does not.    Kafka: ProducerAppendInfo.appendEndTxnMarker *)
MarkerError(log, marker) ==
    IF marker.epoch < log.epoch THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF marker.version = 2 /\ marker.epoch = log.epoch /\ log.open THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF log.coordinatorEpoch > marker.coordinatorEpoch THEN "TRANSACTION_COORDINATOR_FENCED"
    ELSE "NONE"

(* A marker keeps the guard of a transaction that begins with the marker's own epoch (KAFKA-18575). *)
KeepsGuard(log, marker) == log.guardVersion = 2 /\ marker.epoch = log.guardEpoch

(* The epoch that a leader knows of the producer after a marker. *)
EpochAfterMarker(log, marker) == marker.epoch

WithMarker(log, marker) ==
    [log EXCEPT !.entries = Append(@, [kind |-> IF marker.commit THEN "commit" ELSE "abort", epoch |-> marker.epoch,
                                       instance |-> "none", number |-> 0]),
                !.epoch = EpochAfterMarker(log, marker), !.open = FALSE,
                !.guard = IF KeepsGuard(log, marker) THEN @ ELSE @ + 1,
                !.guardEpoch = IF KeepsGuard(log, marker) THEN @ ELSE NoEpoch,
                !.guardVersion = IF KeepsGuard(log, marker) THEN @ ELSE 0,
                !.coordinatorEpoch = marker.coordinatorEpoch]

(* The coordinator still waits for the answer to a marker. *)
Awaits(marker) == IsPrepared /\ MarkerTo(marker.partition) = marker

(* The coordinator learns that a partition has its marker, if it still waits for that. *)
Acknowledged(marker) == IF Awaits(marker) THEN toMark \ {marker.partition} ELSE toMark

(* A leader writes a marker and tells the coordinator, or refuses it. *)
HandleMarker(partition, version, epoch, commit, number) ==
    LET marker == [partition |-> partition, version |-> version, epoch |-> epoch, commit |-> commit,
                   coordinatorEpoch |-> number] IN
    /\ marker \in markerRequests
    /\ markerRequests' = markerRequests \ {marker}
    /\ LET error == MarkerError(logs[partition], marker) IN
       /\ logs' = IF error = "NONE" THEN [logs EXCEPT ![partition] = WithMarker(@, marker)] ELSE logs
       /\ toMark' = IF error = "NONE" THEN Acknowledged(marker) ELSE toMark
       /\ refused' = IF error # "NONE" /\ Awaits(marker) THEN refused \cup {partition} ELSE refused
    /\ UNCHANGED <<transaction, coordinatorEpoch, former, clientVars, initRequests, addRequests, produceRequests,
                   verifying, verified, endRequests, answers, faults>>

(* The network delivers a marker and keeps a copy; the acknowledgement may be lost. *)
RepeatMarker(partition, version, epoch, commit, number, acknowledged) ==
    LET marker == [partition |-> partition, version |-> version, epoch |-> epoch, commit |-> commit,
                   coordinatorEpoch |-> number] IN
    /\ marker \in markerRequests
    /\ MarkerError(logs[partition], marker) = "NONE"
    /\ logs' = [logs EXCEPT ![partition] = WithMarker(@, marker)]
    /\ toMark' = IF acknowledged THEN Acknowledged(marker) ELSE toMark
    /\ Fault("repeat marker")
    /\ UNCHANGED <<transaction, coordinatorEpoch, former, refused, clientVars, initRequests, addRequests, produceRequests, verifying,
                   verified, endRequests, markerRequests, answers>>

(* An operator aborts the open transaction of a partition by hand, without the coordinator (KIP-664). *)
AbortByAdmin(partition) ==
    LET log == logs[partition] IN
    /\ log.open
    /\ logs' = [logs EXCEPT ![partition] =
                   WithMarker(log, [epoch |-> log.epoch, commit |-> FALSE, coordinatorEpoch |-> log.coordinatorEpoch])]
    /\ Fault("admin abort")
    /\ UNCHANGED <<coordinatorVars, clientVars, initRequests, addRequests, produceRequests, verifying, verified, endRequests,
                   markerRequests, answers>>

(* Markers in flight to the old leader fail and are sent again. *)

(* The markers that are missing when a partition's leader changes. *)
MarkersAfterElection(partition) == toMark

(* Another broker becomes a partition's leader: it has the log, but no guards; requests in flight to the old leader *)
(* fail.                                                                                                            *)

(* Another broker becomes the leader of a partition. *)
ElectLeader(partition) ==
    LET sent    == {request \in produceRequests \cup verifying \cup verified : request.partition = partition}
        waiting == {instance \in Instances : \E request \in sent :
                       /\ request.instance = instance /\ request.number = clients[instance].number
                       /\ clients[instance].awaits = "produce"}
    IN
    /\ Fault("election")
    /\ logs' = [logs EXCEPT ![partition].guard = @ + 1, ![partition].guardEpoch = NoEpoch,
                            ![partition].guardVersion = 0]
    /\ produceRequests' = produceRequests \ sent
    /\ verifying' = verifying \ sent
    /\ verified' = verified \ sent
    /\ markerRequests' = {marker \in markerRequests : marker.partition # partition}
    /\ toMark' = IF \E marker \in markerRequests : marker.partition = partition
                 THEN MarkersAfterElection(partition) ELSE toMark
    /\ answers' = {answer \in answers : answer.instance \notin waiting} \cup
          {[instance |-> instance, error |-> "NOT_LEADER_OR_FOLLOWER", epoch |-> NoEpoch] : instance \in waiting}
    /\ UNCHANGED <<transaction, coordinatorEpoch, former, refused, clientVars, initRequests, addRequests, endRequests>>

Next ==
    \/ \E instance \in Instances :
        \/ \E version \in Versions : Initialize(instance, version)
        \/ Upgrade(instance)
        \/ Crash(instance)
        \/ HandleInit(instance)
        \/ Receive(instance)
        \/ \E partition \in Partitions : AddPartition(instance, partition) \/ Produce(instance, partition)
        \/ \E ending \in BOOLEAN : Expire(instance, ending)
        \/ \E commit \in BOOLEAN : End(instance, commit)
        \/ \E number \in Numbers :
            \/ \E commit, stays \in BOOLEAN : HandleEnd(instance, number, commit, stays)
            \/ \E partition \in Partitions :
                \/ HandleAdd(instance, number, partition)
                \/ \E stays \in BOOLEAN : StartVerification(instance, number, partition, stays)
                \/ Verify(instance, number, partition)
                \/ VerifyByFormer(instance, number, partition)
                \/ AppendVerified(instance, number, partition)
                \/ AppendUnverified(instance, number, partition)
    \/ TimeOut
    \/ CompleteTransaction
    \/ Failover
    \/ \E partition \in Partitions :
        \/ SendMarker(partition)
        \/ FindNoLeader(partition)
        \/ ElectLeader(partition)
        \/ AbortByAdmin(partition)
        \/ \E version \in Versions, epoch \in Epochs, commit \in BOOLEAN, number \in CoordinatorEpochs :
            \/ HandleMarker(partition, version, epoch, commit, number)
            \/ \E acknowledged \in BOOLEAN : RepeatMarker(partition, version, epoch, commit, number, acknowledged)

Spec == Init /\ [][Next]_vars

(* Messages arrive, living instances go on, and a transaction whose producer is gone times out. An application ends the *)
(* transactions that it has begun.                                                                                      *)
Fairness ==
    /\ WF_vars(CompleteTransaction)
    /\ WF_vars(~OwnerIsAlive /\ TimeOut)
    /\ \A partition \in Partitions :
        /\ WF_vars(SendMarker(partition))
        /\ WF_vars(\E version \in Versions, epoch \in Epochs, commit \in BOOLEAN, number \in CoordinatorEpochs :
                      HandleMarker(partition, version, epoch, commit, number))
    /\ \A instance \in Instances :
        /\ WF_vars(HandleInit(instance))
        /\ WF_vars(Receive(instance))
        /\ WF_vars(\E partition \in Partitions : AddPartition(instance, partition))
        /\ WF_vars(\E commit \in BOOLEAN : End(instance, commit))
        /\ \A number \in Numbers :
            /\ WF_vars(\E commit \in BOOLEAN : HandleEnd(instance, number, commit, FALSE))
            /\ \A partition \in Partitions :
                /\ WF_vars(HandleAdd(instance, number, partition))
                /\ WF_vars(StartVerification(instance, number, partition, FALSE))
                /\ WF_vars(Verify(instance, number, partition))
                /\ WF_vars(AppendVerified(instance, number, partition) \/ AppendUnverified(instance, number, partition))

FairSpec == Spec /\ Fairness

(***************************************************************************)
(* Properties, over the partitions' logs and what the instances see        *)
(***************************************************************************)

(* The fate of an entry: that of the first marker after it. *)
Fate(partition, i) ==
    LET entries == logs[partition].entries
        markers == {j \in (i + 1)..Len(entries) : entries[j].kind # "data"}
    IN  IF markers = {} THEN "undecided"
        ELSE entries[CHOOSE j \in markers : \A k \in markers : j <= k].kind

(* The fates of the batches of one transaction in a partition. *)
FatesIn(partition, instance, number) ==
    {Fate(partition, i) : i \in {j \in DOMAIN logs[partition].entries :
        /\ logs[partition].entries[j].kind = "data"
        /\ logs[partition].entries[j].instance = instance
        /\ logs[partition].entries[j].number = number}}

(* … and on all partitions. *)
Fates(instance, number) == UNION {FatesIn(partition, instance, number) : partition \in Partitions}

(* No transaction is committed here and aborted there. *)
AllOrNone ==
    \A instance \in Instances, number \in Numbers : ~({"commit", "abort"} \subseteq Fates(instance, number))
AllOrNoneWitness ==
    \E instance \in Instances, number \in Numbers :
        Cardinality({partition \in Partitions :
            FatesIn(partition, instance, number) \cap {"commit", "abort"} # {}}) > 1

(* A transaction that its instance was told is committed is not aborted, and its acknowledged batches are in the logs. *)
CommittedIsKept ==
    \A instance \in Instances, number \in Numbers : outcome[instance][number] = "committed" =>
        /\ "abort" \notin Fates(instance, number)
        /\ \A batch \in stored : batch.instance = instance /\ batch.number = number =>
              \E i \in DOMAIN logs[batch.partition].entries :
                  LET entry == logs[batch.partition].entries[i]
                  IN  entry.kind = "data" /\ entry.instance = instance /\ entry.number = number
CommittedIsKeptWitness == \E batch \in stored : outcome[batch.instance][batch.number] = "committed"

(* A transaction that its instance was told is aborted is not committed. *)
AbortedIsGone ==
    \A instance \in Instances, number \in Numbers :
        outcome[instance][number] = "aborted" => "commit" \notin Fates(instance, number)
AbortedIsGoneWitness ==
    \E instance \in Instances, number \in Numbers :
        outcome[instance][number] = "aborted" /\ Fates(instance, number) # {}

(* A transaction that its instance was told is committed has every batch that the instance sent in it. *)
CommittedIsWhole ==
    \A instance \in Instances :
        LET client == clients[instance] IN
        client.number > 0 /\ outcome[instance][client.number] = "committed" =>
            \A partition \in client.produced : FatesIn(partition, instance, client.number) # {}
CommittedIsWholeWitness == \E instance \in Instances : clients[instance].state = "abortable"

(* A transaction is committed only if its instance has asked for it. *)
CommittedAsAsked ==
    \A instance \in Instances, number \in Numbers :
        "commit" \in Fates(instance, number) => outcome[instance][number] \in {"committing", "committed"}
CommittedAsAskedWitness == \E instance \in Instances, number \in Numbers : "commit" \in Fates(instance, number)

(* A marker decides the batches of one transaction. *)
OneTransactionPerMarker ==
    \A partition \in Partitions : \A i \in 1..(Len(logs[partition].entries) - 1) :
        LET one == logs[partition].entries[i]
            two == logs[partition].entries[i + 1]
        IN  one.kind = "data" /\ two.kind = "data" => one.instance = two.instance /\ one.number = two.number
OneTransactionPerMarkerWitness ==
    \E partition \in Partitions : \E i, j \in DOMAIN logs[partition].entries :
        LET one == logs[partition].entries[i]
            two == logs[partition].entries[j]
        IN  one.kind = "data" /\ two.kind = "data" /\ <<one.instance, one.number>> # <<two.instance, two.number>>

(* Every open transaction of a partition will be ended: the coordinator's record has the partition. *)
NoHangingTransaction ==
    \A partition \in Partitions : logs[partition].open =>
        partition \in transaction.partitions
NoHangingTransactionWitness == \E partition \in Partitions : logs[partition].open

(* Once an instance has an epoch, no older instance's transaction is decided for commit: no commit marker of that epoch *)
(* or of a later one follows the batches of an older instance.                                                          *)
Fenced ==
    \A partition \in Partitions : \A i, j \in DOMAIN logs[partition].entries :
        LET batch  == logs[partition].entries[i]
            marker == logs[partition].entries[j]
        IN  /\ batch.kind = "data" /\ marker.kind = "commit" /\ i < j
            /\ \A k \in (i + 1)..(j - 1) : logs[partition].entries[k].kind = "data"
            => \A other \in Instances \ {batch.instance} :
                  ~(batch.epoch < clients[other].epoch /\ clients[other].epoch <= marker.epoch)
FencedWitness ==
    \E request \in addRequests \cup produceRequests \cup verifying \cup verified \cup endRequests :
        \E other \in Instances \ {request.instance} : request.epoch < clients[other].epoch

(* Once an instance has asked for an epoch and was told to wait, no other instance's transaction begins. Refuted: if  *)
(* the open transaction was ending anyway, its instance may begin another. And in version 2 the instance whose        *)
(* transaction is aborted for this may also ask to abort it, and learns the new epoch from the answer.                *)
FirstAnswerFences ==
    \A instance \in Instances :
        LET client == clients[instance] IN
        client.state = "new" /\ client.asked /\ client.awaits = "nothing" /\ client.epoch = NoEpoch
            => transaction.state # "ONGOING"

(* A prepared transaction can complete: no leader refuses a marker that it still needs. *)
NothingIsStuck ==
    IsPrepared => \A partition \in toMark : MarkerError(logs[partition], MarkerTo(partition)) = "NONE"
NothingIsStuckWitness == IsPrepared /\ toMark # {}

(* The instances of which another one has a later epoch. *)
FencedInstances ==
    {instance \in Instances : \E other \in Instances : clients[other].epoch > clients[instance].epoch}

(* A fenced instance, of which another one has a later epoch, never gets an even later epoch. *)
FencedForGood ==
    [][\A instance \in FencedInstances : clients[instance].epoch # NoEpoch =>
           \E other \in Instances : clients'[other].epoch > clients'[instance].epoch]_vars
FencedForGoodWitness ==
    \E instance \in FencedInstances : clients[instance].epoch # NoEpoch /\ clients'[instance] # clients[instance]

(* The coordinator's record goes only where the table lets it. *)
OnlyLegalTransitions ==
    [][transaction'.state # transaction.state => transaction'.state \in MayFollow[transaction.state]]_vars
OnlyLegalTransitionsWitness == IsPrepared /\ transaction'.state # transaction.state

(* An instance that nobody fenced, and whose transaction did not time out, gets no error that makes it abort or ends it. *)
NoSpuriousError ==
    \A answer \in answers : answer.error \notin Retriable \cup {"NONE"} =>
        faults > 0 \/ \E other \in Instances \ {answer.instance} : clients[other].asked
NoSpuriousErrorWitness ==
    /\ faults = 0
    /\ \E instance \in Instances, number \in Numbers :
          /\ outcome[instance][number] \in {"committed", "aborted"}
          /\ \A other \in Instances \ {instance} : ~clients[other].asked

(* Every transaction ends, as long as its instance lives and nobody has fenced it. *)
EveryTransactionEnds ==
    \A instance \in Instances, number \in Numbers :
        outcome[instance][number] \in {"open", "committing"} ~>
            \/ outcome[instance][number] \in {"committed", "aborted"}
            \/ clients[instance].state \in {"failed", "crashed"}
EveryTransactionEndsWitness ==
    \E instance \in Instances, number \in Numbers : outcome[instance][number] = "committing"

(* The coordinator comes to rest, whichever instances are gone. *)
CoordinatorComesToRest == ~IsAtRest ~> IsAtRest
CoordinatorComesToRestWitness == ~IsAtRest /\ ~OwnerIsAlive

(* A partition's open transaction ends, so that the last stable offset goes on. *)
EveryPartitionCatchesUp == \A partition \in Partitions : logs[partition].open ~> ~logs[partition].open
EveryPartitionCatchesUpWitness == \E partition \in Partitions : logs[partition].open

(***************************************************************************)
(* Refinement                                                              *)
(***************************************************************************)

(* The fate of a transaction's batches: the coordinator's record decides it while their markers are missing. *)
FateOf(instance, number) ==
    LET fates    == Fates(instance, number)
        prepared == IsPrepared /\ \E partition \in toMark : "undecided" \in FatesIn(partition, instance, number)
    IN  IF outcome[instance][number] = "none" THEN "none"
        ELSE IF "commit" \in fates \/ (prepared /\ Commits) THEN "commit"
        ELSE IF "abort" \in fates \/ (prepared /\ ~Commits) THEN "abort"
        ELSE "open"

WrittenBy(instance, number) == {partition \in Partitions : FatesIn(partition, instance, number) # {}}

(* The batches that a read_committed reader of a partition finds. *)
VisibleIn(partition) ==
    LET entries   == logs[partition].entries
        committed == SelectSeq([i \in DOMAIN entries |-> [entry |-> entries[i], offset |-> i]],
                               LAMBDA one : one.entry.kind = "data" /\ Fate(partition, one.offset) = "commit")
    IN  [i \in DOMAIN committed |-> <<committed[i].entry.instance, committed[i].entry.number>>]

Atomic == INSTANCE AtomicTransactions WITH
    fate    <- [one \in Instances \X Numbers |-> FateOf(one[1], one[2])],
    written <- [one \in Instances \X Numbers |-> WrittenBy(one[1], one[2])],
    visible <- [partition \in Partitions |-> VisibleIn(partition)],
    outcome <- [one \in Instances \X Numbers |-> outcome[one[1]][one[2]]],
    fenced  <- FencedInstances

(* A transaction is decided once, and for commit only if its instance has asked for it, as AtomicTransactions promises. *)
RefinesAtomicTransactions == Atomic!AtomicSpec
RefinesAtomicTransactionsWitness == \E partition \in Partitions : VisibleIn(partition) # <<>>

(* Readers find a transaction's batches in all partitions at once. Refuted. *)
VisibleTogether == Atomic!VisibleTogether

=============================================================================
