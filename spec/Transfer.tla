------------------------------- MODULE Transfer -------------------------------
(***************************************************************************)
(* Money is moved from Alice to Bob. An application reads transfers from a *)
(* topic, and for each it writes a debit to the partition of Alice's       *)
(* account (p0), a credit to that of Bob's (p1), and its offset to the     *)
(* group's partition of __consumer_offsets (p7): in one transaction, or in *)
(* none.                                                                   *)
(*                                                                         *)
(* Modelled: the three writes one by one, crashes between any two of them, *)
(*   an instance that lives on after another has taken over, transactions  *)
(*   that the application aborts, a marker for each partition, readers     *)
(*   that are read_committed.                                              *)
(* Assumed, not checked: one transactional.id for all instances, whose     *)
(*   newest holder fences the others (Transactions); every write is kept   *)
(*   (IdempotentProducer); transfers are there once, in order.             *)
(* Out of scope: several transfers in one transaction, and groups          *)
(*   (ConsumeTransformProduce); whether Alice has the money.               *)
(*                                                                         *)
(* KIPs: 98.  Kafka: KafkaProducer.sendOffsetsToTransaction,               *)
(* TransactionMarkerChannelManager.                                        *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Partitions,      \* "p0": Alice's account, "p1": Bob's, "p7": the group's offsets
    Transfers,       \* 1..n, in the order of the topic
    Instances,       \* processes of the application, of which the group gives the topic to one
    Transactional,   \* whether the application uses transactions
    MaxFaults        \* how many crashes, aborts and instances taken for dead there are at most

ASSUME Partitions = {"p0", "p1", "p7"}

VARIABLES
    logs,            \* for each partition: its entries, "plain", "data" of a transaction, or "commit" and "abort" of one
    transaction,     \* its state, and the partitions that are registered and have no marker yet
    owner,           \* the instance that has initialized its producer last, or "none"
    processes,       \* for each instance: its stage, and the transfer that it is at
    faults           \* the number of faults so far

vars == <<logs, transaction, owner, processes, faults>>

(* A process is "down", or about to do what its stage says: "fetch", "debit", "credit", "send offset", "commit". *)
Init ==
    /\ logs = [partition \in Partitions |-> <<>>]
    /\ transaction = [state |-> "none", partitions |-> {}]
    /\ owner = "none"
    /\ processes = [instance \in Instances |-> [stage |-> "down", transfer |-> 0]]
    /\ faults = 0

(***************************************************************************)
(* Rules                                                                   *)
(***************************************************************************)

(* The leaders take what an instance writes; with transactions, only what the newest instance writes. *)
MayWrite(instance) == ~Transactional \/ owner = instance

(* InitProducerId aborts the transaction that it finds open. *)
AbortsOpen == transaction.state = "open"

(* The offset is written in the transaction. *)
OffsetInTransaction == Transactional

IsMarker(entry) == entry.kind \in {"commit", "abort"}

(* The kind of the first marker after a place of a log; "none" if there is none. *)
MarkerBehind(log, place) ==
    LET later == {other \in DOMAIN log : other > place /\ IsMarker(log[other])}
    IN  IF later = {} THEN "none" ELSE log[CHOOSE other \in later : \A third \in later : other <= third].kind

(* The places of a log that a read_committed reader gets, if an unmarked transaction is decided like this. *)
Found(log, undecided) ==
    {place \in DOMAIN log :
        \/ log[place].kind = "plain"
        \/ log[place].kind = "data" /\ (IF MarkerBehind(log, place) = "none" THEN undecided ELSE MarkerBehind(log, place)) = "commit"}

(* How often a reader finds a transfer in an account. *)
Count(log, undecided, transfer) == Cardinality({place \in Found(log, undecided) : log[place].transfer = transfer})

(* The committed offset: the number of transfers that are done. *)
OffsetIn(log, undecided) ==
    LET found == Found(log, undecided)
    IN  IF found = {} THEN 0 ELSE log[CHOOSE place \in found : \A other \in found : other <= place].transfer

(* No offset is returned while one waits for its marker. *)
IsUnstable == \E place \in DOMAIN logs["p7"] : logs["p7"][place].kind = "data" /\ MarkerBehind(logs["p7"], place) = "none"

Fault == faults < MaxFaults /\ faults' = faults + 1

At(instance, stage, transfer) == [processes EXCEPT ![instance] = [stage |-> stage, transfer |-> transfer]]

(* A partition's log and the transaction after an instance's write. *)
Write(instance, partition, inTransaction, stage) ==
    /\ MayWrite(instance)
    /\ transaction.state \in {"none", "open"}
    /\ logs' = [logs EXCEPT ![partition] =
          Append(@, [kind |-> IF inTransaction THEN "data" ELSE "plain", transfer |-> processes[instance].transfer])]
    /\ transaction' = IF ~inTransaction THEN transaction
                      ELSE [state |-> "open", partitions |-> transaction.partitions \cup {partition}]
    /\ processes' = At(instance, stage, processes[instance].transfer)
    /\ UNCHANGED <<owner, faults>>

(***************************************************************************)
(* The instances                                      WHO: the application *)
(***************************************************************************)

(* An instance starts and fences the one before, which may still live and whose open transaction is aborted. *)
Initialize(instance) ==
    /\ processes[instance].stage = "down"
    /\ transaction.state \in {"none", "open"}
    /\ IF owner # "none" /\ processes[owner].stage # "down" THEN Fault ELSE UNCHANGED faults
    /\ owner' = instance
    /\ transaction' = [transaction EXCEPT !.state = IF AbortsOpen THEN "abort" ELSE @]
    /\ processes' = At(instance, "fetch", 0)
    /\ UNCHANGED logs

(* An instance fetches the offset, and with it the next transfer. *)
Fetch(instance) ==
    LET next == OffsetIn(logs["p7"], "none") + 1 IN
    /\ processes[instance].stage = "fetch"
    /\ ~IsUnstable
    /\ next \in Transfers
    /\ processes' = At(instance, "debit", next)
    /\ UNCHANGED <<logs, transaction, owner, faults>>

(* An instance debits Alice's account. *)
Debit(instance) ==
    /\ processes[instance].stage = "debit"
    /\ Write(instance, "p0", Transactional, "credit")

(* An instance credits Bob's account. *)
Credit(instance) ==
    /\ processes[instance].stage = "credit"
    /\ Write(instance, "p1", Transactional, "send offset")

(* An instance sends the offset after the transfer. *)
SendOffset(instance) ==
    /\ processes[instance].stage = "send offset"
    /\ Write(instance, "p7", OffsetInTransaction, IF Transactional THEN "commit" ELSE "fetch")

(* An instance commits its transaction. *)
Commit(instance) ==
    /\ processes[instance].stage = "commit" /\ MayWrite(instance)
    /\ transaction' = [transaction EXCEPT !.state = "commit"]
    /\ processes' = At(instance, "fetch", 0)
    /\ UNCHANGED <<logs, owner, faults>>

(* An instance aborts its transaction after a failure, and seeks back to the committed offset. *)
Abort(instance) ==
    /\ processes[instance].stage \in {"credit", "send offset", "commit"}
    /\ Transactional /\ MayWrite(instance)
    /\ Fault
    /\ transaction' = [transaction EXCEPT !.state = "abort"]
    /\ processes' = At(instance, "fetch", 0)
    /\ UNCHANGED <<logs, owner>>

(* An instance learns that it is fenced, and ends. *)
LearnFencing(instance) ==
    /\ processes[instance].stage # "down"
    /\ ~MayWrite(instance)
    /\ processes' = At(instance, "down", 0)
    /\ UNCHANGED <<logs, transaction, owner, faults>>

(* An instance crashes. *)
Crash(instance) ==
    /\ processes[instance].stage # "down"
    /\ Fault
    /\ processes' = At(instance, "down", 0)
    /\ UNCHANGED <<logs, transaction, owner>>

(***************************************************************************)
(* The coordinator                                    WHO: the coordinator *)
(***************************************************************************)

(* The coordinator writes the transaction's marker to one of its partitions. *)
WriteMarker(partition) ==
    /\ transaction.state \in {"commit", "abort"}
    /\ partition \in transaction.partitions
    /\ logs' = [logs EXCEPT ![partition] = Append(@, [kind |-> transaction.state, transfer |-> 0])]
    /\ transaction' = [state |-> IF transaction.partitions = {partition} THEN "none" ELSE transaction.state,
                       partitions |-> transaction.partitions \ {partition}]
    /\ UNCHANGED <<owner, processes, faults>>

Next ==
    \/ \E instance \in Instances :
        \/ Initialize(instance)
        \/ Fetch(instance)
        \/ Debit(instance)
        \/ Credit(instance)
        \/ SendOffset(instance)
        \/ Commit(instance)
        \/ Abort(instance)
        \/ LearnFencing(instance)
        \/ Crash(instance)
    \/ \E partition \in Partitions : WriteMarker(partition)

Spec == Init /\ [][Next]_vars

(* Markers are written, and instances go on as long as they can; an instance that is down starts when none is up. *)
Fairness ==
    /\ \A partition \in Partitions : WF_vars(WriteMarker(partition))
    /\ \A instance \in Instances :
        /\ WF_vars(Fetch(instance) \/ Debit(instance) \/ Credit(instance) \/ SendOffset(instance) \/ Commit(instance))
        /\ WF_vars(LearnFencing(instance))
        /\ WF_vars((\A other \in Instances : processes[other].stage = "down") /\ Initialize(instance))

FairSpec == Spec /\ Fairness

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

(* No reader finds a debit of Alice's account twice. *)
DebitedOnce == \A transfer \in Transfers : Count(logs["p0"], "none", transfer) <= 1
DebitedOnceWitness ==
    \E transfer \in Transfers :
        /\ Count(logs["p0"], "none", transfer) = 1
        /\ Cardinality({place \in DOMAIN logs["p0"] : logs["p0"][place].transfer = transfer}) > 1

(* No reader finds a credit of Bob's account twice. *)
CreditedOnce == \A transfer \in Transfers : Count(logs["p1"], "none", transfer) <= 1
CreditedOnceWitness ==
    \E transfer \in Transfers :
        /\ Count(logs["p1"], "none", transfer) = 1
        /\ Cardinality({place \in DOMAIN logs["p1"] : logs["p1"][place].transfer = transfer}) > 1

(* Once the markers are written, a transfer has its debit and its credit, or neither, and the offset says which. *)
DebitMeetsCredit ==
    \A transfer \in Transfers : \A partition \in {"p0", "p1"} :
        Count(logs[partition], transaction.state, transfer) > 0 <=> transfer <= OffsetIn(logs["p7"], transaction.state)
DebitMeetsCreditWitness == transaction.state = "commit" /\ transaction.partitions \notin {{}, Partitions}

(* A transfer that is before the committed offset is debited and credited, at least once. *)
NothingIsLost ==
    \A transfer \in Transfers : \A partition \in {"p0", "p1"} :
        transfer <= OffsetIn(logs["p7"], "none") => Count(logs[partition], transaction.state, transfer) > 0
NothingIsLostWitness == faults > 0 /\ OffsetIn(logs["p7"], "none") > 0

(* Every transaction that is committed and over has a commit marker in p0, in p1 and in p7. *)
MarkersReachAll ==
    LET markers(partition) == Cardinality({place \in DOMAIN logs[partition] : logs[partition][place].kind = "commit"})
    IN  transaction.state = "none" => \A one, other \in Partitions : markers(one) <= markers(other)
MarkersReachAllWitness ==
    transaction.state = "none" /\ \E place \in DOMAIN logs["p0"] : logs["p0"][place].kind = "commit"

Offsets == [topic \in {"transfers"} |-> OffsetIn(logs["p7"], transaction.state)]

FoundInTheEnd(partition) ==
    [topic \in {"transfers"} |-> [transfer \in Transfers |-> Count(logs[partition], transaction.state, transfer)]]

Debits == INSTANCE ExactlyOnce
    WITH Partitions <- {"transfers"}, Inputs <- Transfers, offsets <- Offsets, outputs <- FoundInTheEnd("p0")

Credits == INSTANCE ExactlyOnce
    WITH Partitions <- {"transfers"}, Inputs <- Transfers, offsets <- Offsets, outputs <- FoundInTheEnd("p1")

(* Each input takes effect once, its output and the offset after it together, as ExactlyOnce promises. *)
RefinesExactlyOnce == Debits!ExactlyOnceSpec /\ Credits!ExactlyOnceSpec
RefinesExactlyOnceWitness == faults > 0 /\ OffsetIn(logs["p7"], transaction.state) > 0

(* Every transfer is made in the end, and readers find it. *)
EveryTransferIsMade ==
    <>[](\A transfer \in Transfers : \A partition \in {"p0", "p1"} : Count(logs[partition], "none", transfer) = 1)
EveryTransferIsMadeWitness ==
    /\ faults > 0
    /\ \A transfer \in Transfers : \A partition \in {"p0", "p1"} : Count(logs[partition], "none", transfer) = 1

=============================================================================
