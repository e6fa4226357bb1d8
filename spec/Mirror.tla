-------------------------------- MODULE Mirror --------------------------------
(***************************************************************************)
(* Tasks that copy a partition from one cluster to another. No transaction *)
(* spans two clusters: either the offsets are kept where the copies are,   *)
(* in one transaction with them, or where the records come from.           *)
(*                                                                         *)
(* Modelled: batches of records, one transactional.id for all tasks of the *)
(*   partition, crashes, a task that lives on after another has taken      *)
(*   over, offsets in the one cluster or the other, retention in the       *)
(*   source, which may delete what is copied according to the offsets.     *)
(* Assumed, not checked: a transaction of the target cluster is one step,  *)
(*   and an instance that is fenced commits nothing (AtomicTransactions);  *)
(*   the source has its records once, in order (Delivery); its group takes *)
(*   no offset of a task that has lost the partition.                      *)
(* Out of scope: the offsets of the source's own consumers, which are      *)
(*   translated; new partitions; records that have an id of their own.     *)
(*                                                                         *)
(* KIPs: 618, 656.  Kafka: MirrorSourceTask, ExactlyOnceWorkerSourceTask.  *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Records,         \* 1..n, in the order of the source
    Tasks,           \* those that may be given the partition
    BatchSize,       \* how many records a task copies in one transaction at most
    OffsetsIn        \* the cluster that keeps the offsets: "target" or "source"

VARIABLES
    produced,        \* the number of records that the source has got
    deleted,         \* the number of records that it has deleted again
    target,          \* the records that readers of the target find, in order
    offset,          \* the record that is next, according to the offsets
    tasks,           \* for each task: its stage, the record that it copies next, and the batch in its transaction
    owner            \* the task that nobody has fenced, or "none"

vars == <<produced, deleted, target, offset, tasks, owner>>

(* A task's stage is "down", "initialized", "copying", or "committed" when its offset is not. *)
Init ==
    /\ produced = 0
    /\ deleted = 0
    /\ target = <<>>
    /\ offset = 1
    /\ tasks = [task \in Tasks |-> [stage |-> "down", position |-> 0, batch |-> <<>>]]
    /\ owner = "none"

(* A task may commit as long as nobody has fenced it. *)
MayCommit(task) == owner = task

(* The record with which a task starts to copy: the one that the offsets name, whatever the task had before. *)
StartPosition(task) == offset

(* The offsets after a transaction: in the target cluster they are part of it. *)
OffsetAfter(position) == IF OffsetsIn = "target" THEN position ELSE offset

(***************************************************************************)
(* The source                                             WHO: the source  *)
(***************************************************************************)

(* The source gets its next record. *)
Produce ==
    /\ produced + 1 \in Records
    /\ produced' = produced + 1
    /\ UNCHANGED <<deleted, target, offset, tasks, owner>>

(* The source deletes its first record, which the offsets say is copied. *)
Delete ==
    /\ deleted + 1 < offset
    /\ deleted' = deleted + 1
    /\ UNCHANGED <<produced, target, offset, tasks, owner>>

(***************************************************************************)
(* The tasks                                               WHO: a task     *)
(***************************************************************************)

(* A task is given the partition, initializes its producer, and so fences the one before. *)
Initialize(task) ==
    /\ tasks[task].stage = "down"
    /\ tasks' = [tasks EXCEPT ![task].stage = "initialized"]
    /\ owner' = task
    /\ UNCHANGED <<produced, deleted, target, offset>>

(* A task reads the offsets and seeks to them. *)
Rewind(task) ==
    /\ tasks[task].stage = "initialized"
    /\ tasks' = [tasks EXCEPT ![task].stage = "copying", ![task].position = StartPosition(task)]
    /\ UNCHANGED <<produced, deleted, target, offset, owner>>

(* A task copies a record, in its open transaction. *)
Copy(task) ==
    /\ tasks[task].stage = "copying"
    /\ tasks[task].position <= produced /\ Len(tasks[task].batch) < BatchSize
    /\ tasks' = [tasks EXCEPT ![task].position = @ + 1, ![task].batch = Append(@, tasks[task].position)]
    /\ UNCHANGED <<produced, deleted, target, offset, owner>>

(* A task commits its transaction. *)
Commit(task) ==
    /\ tasks[task].batch # <<>>
    /\ MayCommit(task)
    /\ target' = target \o tasks[task].batch
    /\ offset' = OffsetAfter(tasks[task].position)
    /\ tasks' = [tasks EXCEPT ![task].stage = IF OffsetsIn = "target" THEN "copying" ELSE "committed",
                              ![task].batch = <<>>]
    /\ UNCHANGED <<produced, deleted, owner>>

(* A task commits its offset in the source cluster. *)
CommitOffset(task) ==
    /\ tasks[task].stage = "committed" /\ owner = task
    /\ offset' = tasks[task].position
    /\ tasks' = [tasks EXCEPT ![task].stage = "copying"]
    /\ UNCHANGED <<produced, deleted, target, owner>>

(* A task learns that it is fenced, and gives the partition up. *)
LearnFencing(task) ==
    /\ tasks[task].stage # "down" /\ owner # task
    /\ tasks' = [tasks EXCEPT ![task].stage = "down", ![task].batch = <<>>]
    /\ UNCHANGED <<produced, deleted, target, offset, owner>>

(* A task crashes; the next owner of the partition aborts its transaction. *)
Crash(task) ==
    /\ tasks[task].stage # "down"
    /\ tasks' = [tasks EXCEPT ![task] = [stage |-> "down", position |-> 0, batch |-> <<>>]]
    /\ UNCHANGED <<produced, deleted, target, offset, owner>>

Next ==
    \/ Produce
    \/ Delete
    \/ \E task \in Tasks :
        \/ Initialize(task)
        \/ Rewind(task)
        \/ Copy(task)
        \/ Commit(task)
        \/ CommitOffset(task)
        \/ LearnFencing(task)
        \/ Crash(task)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

Range(sequence) == {sequence[i] : i \in DOMAIN sequence}

(* No record is in the target twice. *)
NoDuplicate == \A i, j \in DOMAIN target : target[i] = target[j] => i = j
NoDuplicateWitness == target # <<>> /\ \E task \in Tasks : tasks[task].batch # <<>> /\ owner # task

(* Every record that the source has deleted is in the target. *)
NoLoss == \A record \in Records : record <= deleted => record \in Range(target)
NoLossWitness == deleted > 0

(* Every record before the offset is in the target. *)
OffsetsAreTrue == \A record \in Records : record < offset => record \in Range(target)
OffsetsAreTrueWitness == offset > 1

(* The target has the records in the order of the source. *)
Order == \A i, j \in DOMAIN target : i < j => target[i] <= target[j]
OrderWitness == Len(target) > 1

(***************************************************************************)
(* Refinement: to the source a record is acknowledged when it may be       *)
(* deleted, and is.                                                        *)
(***************************************************************************)

Outcome == [record \in Records |->
    IF record > produced THEN "unsent" ELSE IF record <= deleted THEN "acknowledged" ELSE "sent"]

Guarantee == INSTANCE Delivery WITH Values <- Records, outcome <- Outcome, delivered <- target

(* Every acknowledged value is there once, in order, as Delivery promises; one that was given up, once or not at all. *)
RefinesExactlyOnce == Guarantee!ExactlyOnce
RefinesExactlyOnceWitness == deleted > 0 /\ Len(target) > 1

(* No acknowledged value is missing, as Delivery promises. *)
RefinesAtLeastOnce == Guarantee!AtLeastOnce
RefinesAtLeastOnceWitness == deleted > 0

=============================================================================
