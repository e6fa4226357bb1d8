------------------------ MODULE ConsumeTransformProduce ------------------------
(***************************************************************************)
(* An application reads inputs, writes an output for each in a             *)
(* transaction, and sends the offset after them into the same              *)
(* transaction. Its instances share the input partitions through a group.  *)
(* EOS v1: a transactional.id for each input partition, and a new owner    *)
(* fences the one before. EOS v2: one for each instance, and the group's   *)
(* generation fences, or the member's epoch. Both refine ExactlyOnce.      *)
(*                                                                         *)
(* Modelled: rebalances of both group protocols, crashes, transactions     *)
(*   that end by timeout, by the application, or because another instance  *)
(*   asks for the same transactional.id; markers that each partition gets  *)
(*   at its own moment; the seek back after an abort; an instance that     *)
(*   stands still and comes back as a zombie: it takes no step, until it   *)
(*   takes one; a consumer that a thread of its own keeps in the group     *)
(*   while the application processes.                                      *)
(* Assumed, not checked: transactions are atomic, and nothing of a fenced  *)
(*   producer is decided for commit (AtomicTransactions, which             *)
(*   Transactions refines); a request and its answer are one step.         *)
(* Out of scope: inputs that are themselves undecided (Consumer); the      *)
(*   order in which outputs are found; state stores.                       *)
(*                                                                         *)
(* KIPs: 98, 129, 447, 848, 1251.  Kafka: StreamsProducer,                 *)
(* KafkaProducer.sendOffsetsToTransaction, OffsetMetadataManager.          *)
(***************************************************************************)
EXTENDS ConsumerGroup

CONSTANTS
    Inputs,              \* 1..n: the inputs of each partition
    Eos,                 \* "v1": one transactional.id for each partition; "v2": one for each instance
    Faults,              \* what may go wrong: "abort", "crash", "expire session", "timeout", "join while processing",
                         \* "static leave"
    MaxFaults            \* how often

ASSUME TransactionalIds = IF Eos = "v1" THEN Partitions ELSE Instances

VARIABLES
    transactions,        \* for each transactional id: its transaction's state, who holds its latest epoch, outputs not yet found
    outputs,             \* for each partition and input: how often a read_committed reader finds its output
    processes,           \* for each instance: is it up, its generation or epoch and partitions, the ids that it has initialized, its positions
    faults               \* the number of faults so far

vars == <<groupVars, pending, committed, transactions, outputs, processes, faults>>

NoOutput == [partition \in Partitions |-> [input \in Inputs |-> 0]]

Nowhere == [partition \in Partitions |-> NoOffset]

Stopped(isUp) ==
    [isUp |-> isUp, generation |-> NoGeneration, assigned |-> {}, initialized |-> {}, positions |-> Nowhere]

Init ==
    /\ GroupInit
    /\ MembershipInit
    /\ transactions = [producer \in TransactionalIds |-> [state |-> "none", holder |-> NoMember, written |-> NoOutput]]
    /\ outputs = NoOutput
    /\ processes = [instance \in Instances |->
          [Stopped(TRUE) EXCEPT !.generation = 1,   \* of a consumer group: the epoch
                                !.assigned = {partition \in Partitions : Preferred[partition] = instance}]]
    /\ faults = 0

(***************************************************************************)
(* Rules                                                                   *)
(***************************************************************************)

(* The transactional id with which an instance writes for a partition. *)
IdOf(instance, partition) == IF Eos = "v1" THEN partition ELSE instance

(* The transactional ids that an instance needs for its partitions. *)
IdsOf(instance) == {IdOf(instance, partition) : partition \in processes[instance].assigned}

(* The partitions that an instance writes for with a transactional id. *)
PartitionsOf(instance, producer) == {partition \in processes[instance].assigned : IdOf(instance, partition) = producer}

(* A transaction that is not decided. *)
IsOpen(producer) == transactions[producer].state \in {"open", "offsets sent"}

(* Another instance has taken over the transactional id, or the coordinator has ended the transaction. *)
IsFenced(instance, producer) == transactions[producer].holder # instance

(* The reason why InitProducerId is not answered with an epoch; "NONE" if it is. *)
(* Kafka: TransactionCoordinator.prepareInitProducerIdTransit                    *)
InitError(producer) == IF transactions[producer].state \in {"commit", "abort"} THEN "CONCURRENT_TRANSACTIONS" ELSE "NONE"

(* InitProducerId aborts the transaction that it finds. *)
InitAborts(producer) == IsOpen(producer)

(* An instance can write with a transactional id, as far as it knows. *)
HasInitialized(instance, producer) == producer \in processes[instance].initialized

(* An instance fetches an offset only after it has initialized its id: no former owner can still commit one. *)
MayFetch(instance, partition) == HasInitialized(instance, IdOf(instance, partition))

(* The member that an instance names when it sends offsets: EOS v1 names none. *)
PresentedMember(instance) == IF Eos = "v1" THEN NoMember ELSE instance

(* The offset that an instance sends: the next input's. *)
OffsetToSend(instance, partition) == processes[instance].positions[partition]

(* The position after an abort: none, so that the committed offset is fetched again. *)
PositionAfterAbort(instance, partition) == NoOffset

(* The generation or epoch that an instance sends with its offsets: the one in which it has read. *)
PresentedGeneration(instance) == processes[instance].generation

(* The partitions for which a transaction has outputs that no reader finds yet. *)
WrittenIn(producer) == {partition \in Partitions : transactions[producer].written[partition] # NoOutput[partition]}

(* The reason why the offsets of an instance's transaction are refused; "NONE" if they are not. *)
OffsetsError(instance, producer) ==
    IF GroupProtocol = "classic" THEN TxnOffsetCommitError(PresentedMember(instance), PresentedGeneration(instance))
    ELSE ErrorInTransaction(
            MemberEpochError(PresentedMember(instance), PresentedGeneration(instance), WrittenIn(producer)))

(* The errors of offsets that let an instance abort its transaction; any other is fatal to its producer. *)
(* Kafka: TransactionManager.TxnOffsetCommitHandler                                                     *)
AbortableErrors == {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}

(* An instance was removed since it was given its partitions. *)
IsLost(instance) == processes[instance].generation < membership.members[instance].since

(* An instance that gets its partitions again keeps its positions, unless it was removed in between. *)
KeepsPositions(instance) == ~IsLost(instance)

(* The coordinator tells an instance that it has to join, or that it is given other partitions. *)
MustJoin(instance) ==
    IF GroupProtocol = "classic"
    THEN group.state = "PREPARING_REBALANCE" \/ processes[instance].generation # group.generation
    ELSE LET member == membership.members[instance]
         IN  processes[instance].generation # member.epoch \/ processes[instance].assigned # member.assigned

(* An instance has no open transaction that it could still end. *)
HasNothingOpen(instance) ==
    \A producer \in processes[instance].initialized : IsFenced(instance, producer) \/ ~IsOpen(producer)

(* No running instance can end this transaction. *)
IsAbandoned(producer) == \A instance \in Instances : HasInitialized(instance, producer) => IsFenced(instance, producer)

(* A transaction is over when each of its partitions has the marker. *)
Settled(transaction, offsets) ==
    IF transaction.written = NoOutput /\ offsets = NothingPending THEN [transaction EXCEPT !.state = "none"]
    ELSE transaction

(* A transaction after its decision; no reader ever finds what is aborted. *)
Decided(producer, decision, holder) ==
    Settled([state |-> decision, holder |-> holder,
             written |-> IF decision = "commit" THEN transactions[producer].written ELSE NoOutput], pending[producer])

Fault(kind) == kind \in Faults /\ faults < MaxFaults /\ faults' = faults + 1

(***************************************************************************)
(* The instances                                      WHO: the application *)
(***************************************************************************)

(* InitProducerId gives an instance the next epoch: it fences the former holder and aborts what is open. *)
Initialize(instance, producer) ==
    /\ producer \in IdsOf(instance) \ processes[instance].initialized
    /\ InitError(producer) = "NONE"
    /\ transactions' = [transactions EXCEPT ![producer] =
          IF InitAborts(producer) THEN Decided(producer, "abort", instance) ELSE [@ EXCEPT !.holder = instance]]
    /\ processes' = [processes EXCEPT ![instance].initialized = @ \cup {producer}]
    /\ UNCHANGED <<groupVars, pending, committed, outputs, faults>>

(* An instance fetches the offset from which it is to read a partition. *)
FetchOffset(instance, partition) ==
    /\ partition \in processes[instance].assigned
    /\ processes[instance].positions[partition] = NoOffset
    /\ MayFetch(instance, partition)
    /\ OffsetFetchError(partition) = "NONE"
    /\ processes' = [processes EXCEPT ![instance].positions[partition] = committed[partition]]
    /\ UNCHANGED <<groupVars, pending, committed, transactions, outputs, faults>>

(* An instance reads the next input of a partition and writes its output, in a transaction. *)
Process(instance, partition) ==
    LET producer == IdOf(instance, partition)
        input == processes[instance].positions[partition] + 1
    IN  /\ HasInitialized(instance, producer) /\ ~IsFenced(instance, producer)
        /\ input \in Inputs
        /\ transactions[producer].state \in {"none", "open"}
        /\ transactions' = [transactions EXCEPT ![producer].state = "open", ![producer].written[partition][input] = @ + 1]
        /\ processes' = [processes EXCEPT ![instance].positions[partition] = input]
        /\ UNCHANGED <<groupVars, pending, committed, outputs, faults>>

(* An instance can send offsets into its transaction: it has outputs, and the offsets are not yet sent. *)
CanSend(instance, producer) ==
    HasInitialized(instance, producer) /\ ~IsFenced(instance, producer) /\ transactions[producer].state = "open"

(* An instance sends the offsets after what it has read into its transaction. *)
SendOffsets(instance, producer) ==
    LET offsets == [partition \in Partitions |->
                       IF partition \in WrittenIn(producer) THEN OffsetToSend(instance, partition) ELSE NoOffset]
    IN  /\ CanSend(instance, producer)
        /\ OffsetsError(instance, producer) = "NONE"
        /\ pending' = [pending EXCEPT ![producer] = offsets]
        /\ committed' = CommittedAtWrite(offsets)
        /\ transactions' = [transactions EXCEPT ![producer].state = "offsets sent"]
        /\ UNCHANGED <<groupVars, outputs, processes, faults>>

(* The group coordinator refuses the offsets: the instance aborts its transaction and is no member, or it ends. *)
RefuseOffsets(instance, producer) ==
    /\ CanSend(instance, producer)
    /\ OffsetsError(instance, producer) # "NONE"
    /\ IF OffsetsError(instance, producer) \in AbortableErrors
       THEN /\ transactions' = [transactions EXCEPT ![producer] = Decided(producer, "abort", instance)]
            /\ processes' = [processes EXCEPT ![instance] = [Stopped(TRUE) EXCEPT !.initialized = {producer}]]
       ELSE processes' = [processes EXCEPT ![instance] = Stopped(FALSE)] /\ UNCHANGED transactions
    /\ UNCHANGED <<groupVars, pending, committed, outputs, faults>>

(* An instance commits its transaction. *)
Commit(instance, producer) ==
    /\ HasInitialized(instance, producer) /\ ~IsFenced(instance, producer)
    /\ transactions[producer].state = "offsets sent"
    /\ transactions' = [transactions EXCEPT ![producer] = Decided(producer, "commit", instance)]
    /\ UNCHANGED <<groupVars, pending, committed, outputs, processes, faults>>

(* An instance aborts its transaction: to join without its partitions, or to seek back after a failure. *)
Abort(instance, producer) ==
    /\ HasInitialized(instance, producer) /\ ~IsFenced(instance, producer)
    /\ IsOpen(producer)
    /\ IF MustJoin(instance) THEN UNCHANGED faults ELSE Fault("abort")
    /\ transactions' = [transactions EXCEPT ![producer] = Decided(producer, "abort", instance)]
    /\ processes' = [processes EXCEPT ![instance].positions =
          [partition \in Partitions |->
              IF partition \in PartitionsOf(instance, producer) THEN PositionAfterAbort(instance, partition)
              ELSE processes[instance].positions[partition]],
          ![instance].assigned = IF MustJoin(instance) THEN @ \ PartitionsOf(instance, producer) ELSE @]
    /\ UNCHANGED <<groupVars, pending, committed, outputs>>

(* An instance learns that it is fenced, and gives up its partitions and transactional ids. *)
ReceiveFencing(instance, producer) ==
    /\ HasInitialized(instance, producer) /\ IsFenced(instance, producer)
    /\ processes' = [processes EXCEPT ![instance] = Stopped(TRUE)]
    /\ UNCHANGED <<groupVars, pending, committed, transactions, outputs, faults>>

(* An instance can join: the group is a classic one, and waits for it. *)
CanJoin(instance) ==
    /\ GroupProtocol = "classic"
    /\ processes[instance].isUp /\ instance \notin group.joined
    /\ MustJoin(instance)

(* An instance joins for the next generation, with no transaction open; version 1 closes its producers. *)
Join(instance) ==
    /\ CanJoin(instance)
    /\ HasNothingOpen(instance)
    /\ group' = GroupWith(instance)
    /\ processes' = [processes EXCEPT ![instance] =
          [Stopped(TRUE) EXCEPT !.initialized = IF Eos = "v1" THEN {} ELSE processes[instance].initialized]]
    /\ UNCHANGED <<membership, pending, committed, transactions, outputs, faults>>

(* The consumer of an instance joins in a thread of its own; the processing thread does not learn of it. *)
JoinWhileProcessing(instance) ==
    /\ CanJoin(instance)
    /\ ~HasNothingOpen(instance)
    /\ Fault("join while processing")
    /\ group' = GroupWith(instance)
    /\ UNCHANGED <<membership, pending, committed, transactions, outputs, processes>>

(* An instance without an open transaction learns its present partitions and epoch. *)
LearnAssignment(instance) ==
    LET member == membership.members[instance] IN
    /\ GroupProtocol = "consumer"
    /\ processes[instance].isUp
    /\ MustJoin(instance)
    /\ HasNothingOpen(instance)
    /\ processes' = [processes EXCEPT ![instance].generation = member.epoch, ![instance].assigned = member.assigned,
                                      ![instance].positions = [partition \in Partitions |->
          IF partition \in member.assigned /\ KeepsPositions(instance) THEN processes[instance].positions[partition]
          ELSE NoOffset]]
    /\ UNCHANGED <<groupVars, pending, committed, transactions, outputs, faults>>

(* An instance crashes; its open transaction stays open. *)
Crash(instance) ==
    /\ processes[instance].isUp
    /\ Fault("crash")
    /\ processes' = [processes EXCEPT ![instance] = Stopped(FALSE)]
    /\ UNCHANGED <<groupVars, pending, committed, transactions, outputs>>

(* An instance that crashed starts again. *)
Restart(instance) ==
    /\ ~processes[instance].isUp
    /\ processes' = [processes EXCEPT ![instance] = Stopped(TRUE)]
    /\ UNCHANGED <<groupVars, pending, committed, transactions, outputs, faults>>

(***************************************************************************)
(* The coordinators                                  WHO: the coordinators *)
(***************************************************************************)

(* The group coordinator has not heard of a member for too long and removes it. *)
ExpireSession(instance) ==
    /\ instance \in Members \cup group.joined
    /\ IF processes[instance].isUp THEN instance \notin group.joined /\ Fault("expire session") ELSE UNCHANGED faults
    /\ IF GroupProtocol = "classic" THEN group' = GroupWithout(instance) /\ UNCHANGED membership
       ELSE membership' = MembershipWithout(instance) /\ UNCHANGED group
    /\ pending' = PendingAfterRemoval(Members \ {instance})
    /\ UNCHANGED <<committed, transactions, outputs, processes>>

(* A heartbeat of an instance's consumer: it joins, gives up revoked partitions, or gets free ones. *)
Heartbeat(instance) ==
    /\ GroupProtocol = "consumer"
    /\ processes[instance].isUp
    /\ membership' = IF instance \notin Members THEN Joined(instance)
                     ELSE Reconciled(instance, IF IsLost(instance) THEN {} ELSE processes[instance].assigned)
    /\ membership' # membership
    /\ UNCHANGED <<group, pending, committed, transactions, outputs, processes, faults>>

(* The consumer of an instance leaves as a static member and is back under its member id, on another thread. *)
LeaveAndReturn(instance) ==
    /\ GroupProtocol = "consumer"
    /\ processes[instance].isUp /\ instance \in Members
    /\ Fault("static leave")
    /\ membership' = Returned(instance)
    /\ UNCHANGED <<group, pending, committed, transactions, outputs, processes>>

(* Every member has joined: the next generation begins, and each that waits for it learns its partitions. *)
CompleteRebalance(leader) ==
    /\ AllHaveJoined
    /\ leader \in group.joined /\ processes[leader].isUp
    /\ group' = NextGeneration
    /\ processes' = [instance \in Instances |->
          IF instance \in group.joined /\ processes[instance].isUp /\ processes[instance].generation = NoGeneration
          THEN [processes[instance] EXCEPT !.generation = group.generation + 1,
                                           !.assigned = AssignedTo(instance, leader)]
          ELSE processes[instance]]
    /\ UNCHANGED <<membership, pending, committed, transactions, outputs, faults>>

(* The transaction coordinator aborts a transaction that takes too long, and fences its producer. *)
TimeOut(producer) ==
    /\ IsOpen(producer)
    /\ IF IsAbandoned(producer) THEN UNCHANGED faults ELSE Fault("timeout")
    /\ transactions' = [transactions EXCEPT ![producer] = Decided(producer, "abort", NoMember)]
    /\ UNCHANGED <<groupVars, pending, committed, outputs, processes>>

(* The marker reaches an output partition: readers find the committed outputs. *)
PublishOutput(producer, partition) ==
    LET written == transactions[producer].written IN
    /\ transactions[producer].state = "commit"
    /\ written[partition] # NoOutput[partition]
    /\ outputs' = [outputs EXCEPT ![partition] = [input \in Inputs |-> @[input] + written[partition][input]]]
    /\ transactions' = [transactions EXCEPT ![producer] =
          Settled([@ EXCEPT !.written[partition] = NoOutput[partition]], pending[producer])]
    /\ UNCHANGED <<groupVars, pending, committed, processes, faults>>

(* The marker reaches the group's partition of __consumer_offsets: the pending offsets are committed or dropped. *)
PublishOffsets(producer) ==
    /\ transactions[producer].state \in {"commit", "abort"}
    /\ pending[producer] # NothingPending
    /\ committed' = CommittedAtMarker(producer, transactions[producer].state)
    /\ pending' = [pending EXCEPT ![producer] = NothingPending]
    /\ transactions' = [transactions EXCEPT ![producer] = Settled(@, NothingPending)]
    /\ UNCHANGED <<groupVars, outputs, processes, faults>>

Next ==
    \/ \E instance \in Instances :
        \/ Join(instance)
        \/ JoinWhileProcessing(instance)
        \/ LearnAssignment(instance)
        \/ Heartbeat(instance)
        \/ Crash(instance)
        \/ Restart(instance)
        \/ ExpireSession(instance)
        \/ LeaveAndReturn(instance)
        \/ CompleteRebalance(instance)
        \/ \E partition \in Partitions : FetchOffset(instance, partition) \/ Process(instance, partition)
        \/ \E producer \in TransactionalIds :
            \/ Initialize(instance, producer)
            \/ SendOffsets(instance, producer)
            \/ RefuseOffsets(instance, producer)
            \/ Commit(instance, producer)
            \/ Abort(instance, producer)
            \/ ReceiveFencing(instance, producer)
    \/ \E producer \in TransactionalIds :
        \/ TimeOut(producer)
        \/ PublishOffsets(producer)
        \/ \E partition \in Partitions : PublishOutput(producer, partition)

Spec == Init /\ [][Next]_vars

(* Instances and coordinators go on as long as they can, and a failed instance is noticed; it need not come back. *)
Fairness ==
    /\ \A instance \in Instances :
        /\ WF_vars(Join(instance))
        /\ WF_vars(LearnAssignment(instance))
        /\ WF_vars(Heartbeat(instance))
        /\ WF_vars(CompleteRebalance(instance))
        /\ WF_vars(~processes[instance].isUp /\ ExpireSession(instance))
        /\ \A partition \in Partitions : WF_vars(FetchOffset(instance, partition)) /\ WF_vars(Process(instance, partition))
        /\ \A producer \in TransactionalIds :
            /\ WF_vars(Initialize(instance, producer))
            /\ WF_vars(SendOffsets(instance, producer))
            /\ WF_vars(RefuseOffsets(instance, producer))
            /\ WF_vars(Commit(instance, producer))
            /\ WF_vars(MustJoin(instance) /\ Abort(instance, producer))
            /\ WF_vars(ReceiveFencing(instance, producer))
    /\ \A producer \in TransactionalIds :
        /\ WF_vars(IsAbandoned(producer) /\ TimeOut(producer))
        /\ WF_vars(PublishOffsets(producer))
        /\ \A partition \in Partitions : WF_vars(PublishOutput(producer, partition))

FairSpec == Spec /\ Fairness

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

(* The transactional ids whose transaction is decided for commit, while some partition lacks the marker. *)
Committing == {producer \in TransactionalIds : transactions[producer].state = "commit"}

RECURSIVE TotalOf(_, _, _)
TotalOf(ids, partition, input) ==
    IF ids = {} THEN 0
    ELSE LET producer == CHOOSE producer \in ids : TRUE
         IN  transactions[producer].written[partition][input] + TotalOf(ids \ {producer}, partition, input)

(* The number of times that a reader finds an input's output once the markers have come. *)
OutputsInTheEnd ==
    [partition \in Partitions |-> [input \in Inputs |->
        outputs[partition][input] + TotalOf(Committing, partition, input)]]

(* The committed offsets once the markers have come. *)
OffsetsInTheEnd ==
    [partition \in Partitions |->
        LET offsets == {committed[partition]} \cup {pending[producer][partition] : producer \in Committing}
        IN  CHOOSE offset \in offsets : \A other \in offsets : other <= offset]

(* No reader finds the output of an input twice. *)
NoReprocess == \A partition \in Partitions : \A input \in Inputs : outputs[partition][input] <= 1
NoReprocessWitness == faults > 0 /\ \E partition \in Partitions, input \in Inputs : outputs[partition][input] = 1

(* No committed offset is after an input whose output is not committed. *)
NoSkip ==
    \A partition \in Partitions : \A input \in Inputs :
        input <= committed[partition] => OutputsInTheEnd[partition][input] > 0
NoSkipWitness == faults > 0 /\ \E partition \in Partitions : committed[partition] > 0

(* No output is committed without its offset. *)
OffsetsAtomic ==
    \A partition \in Partitions : \A input \in Inputs :
        OutputsInTheEnd[partition][input] > 0 => input <= OffsetsInTheEnd[partition]
OffsetsAtomicWitness ==
    \E producer \in Committing : pending[producer] # NothingPending /\ transactions[producer].written # NoOutput

(* A partition has at most one offset pending, and it is about to move forward. *)
OnePendingOffset ==
    \A partition \in Partitions : \A one, two \in TransactionalIds :
        pending[one][partition] # NoOffset =>
            /\ pending[one][partition] > committed[partition]
            /\ pending[two][partition] # NoOffset => one = two
OnePendingOffsetWitness ==
    \E partition \in Partitions, one, two \in TransactionalIds :
        /\ pending[one][partition] # NoOffset
        /\ Eos = "v2" => one # two /\ transactions[two].written[partition] # NoOutput[partition]

(* Offsets of a member that still has every partition that it has read are not refused, whatever its epoch is by now. *)
OwnerIsHeard ==
    GroupProtocol = "consumer" =>
        \A instance \in Members : \A producer \in TransactionalIds :
            CanSend(instance, producer) /\ ~IsLost(instance) => OffsetsError(instance, producer) = "NONE"
OwnerIsHeardWitness ==
    \E instance \in Members : \E producer \in TransactionalIds :
        /\ CanSend(instance, producer) /\ ~IsLost(instance)
        /\ GroupProtocol = "consumer" /\ processes[instance].generation # membership.members[instance].epoch

(* An instance whose offsets are refused can abort its transaction and go on. *)
RefusalIsAbortable ==
    \A instance \in Instances : \A producer \in TransactionalIds :
        CanSend(instance, producer) => OffsetsError(instance, producer) \in {"NONE"} \cup AbortableErrors
RefusalIsAbortableWitness ==
    \E instance \in Instances : \E producer \in TransactionalIds :
        CanSend(instance, producer) /\ OffsetsError(instance, producer) # "NONE"

Guarantee == INSTANCE ExactlyOnce WITH offsets <- OffsetsInTheEnd, outputs <- OutputsInTheEnd

(* Each input takes effect once, its output and the offset after it together, as ExactlyOnce promises. *)
RefinesExactlyOnce == Guarantee!ExactlyOnceSpec
RefinesExactlyOnceWitness == faults > 0 /\ \E partition \in Partitions : OffsetsInTheEnd[partition] > 0

(* Every input takes effect, and readers find it. *)
EveryInputTakesEffect ==
    <>[](\A partition \in Partitions : \A input \in Inputs :
            outputs[partition][input] = 1 /\ input <= committed[partition])
EveryInputTakesEffectWitness ==
    faults > 0 /\ \A partition \in Partitions, input \in Inputs : outputs[partition][input] = 1

=============================================================================
