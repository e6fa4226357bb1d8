-------------------------- MODULE AtomicTransactions --------------------------
(***************************************************************************)
(* What transactions promise: all batches of a transaction become visible, *)
(* or none; nothing of a fenced instance is decided for commit. No         *)
(* coordinator, no markers, no network. The layers above refine this.      *)
(*                                                                         *)
(* Modelled: the instances that share a transactional.id, one batch of a   *)
(*   transaction in each partition, what a read_committed reader finds.    *)
(* Assumed, not checked: nothing; this is what Transactions is held to.    *)
(* Out of scope: the order of several batches of one transaction in a      *)
(*   partition (Delivery); groups.                                         *)
(*                                                                         *)
(* KIPs: 98.  Kafka: the guarantees of the transactional producer.         *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Instances,           \* processes of the application with the same transactional.id
    Partitions,          \* the partitions that they write to
    Numbers              \* 1..n: an instance's transactions

VARIABLES
    fate,                \* for each transaction: "none", "open", "commit" or "abort"
    written,             \* for each transaction: the partitions that have a batch of it
    visible,             \* for each partition: the transactions whose batch a reader finds, in order
    outcome,             \* for each transaction, as its instance sees it: "none", "open", "committing", "committed" or "aborted"
    fenced               \* the instances that another one has fenced

atomicVars == <<fate, written, visible, outcome, fenced>>

Transactions == Instances \X Numbers

IsVisible(transaction, partition) == \E i \in DOMAIN visible[partition] : visible[partition][i] = transaction

AtomicInit ==
    /\ fate = [transaction \in Transactions |-> "none"]
    /\ written = [transaction \in Transactions |-> {}]
    /\ visible = [partition \in Partitions |-> <<>>]
    /\ outcome = [transaction \in Transactions |-> "none"]
    /\ fenced = {}

(* A transaction begins. *)
Begin(transaction) ==
    /\ fate[transaction] = "none"
    /\ fate' = [fate EXCEPT ![transaction] = "open"]
    /\ outcome' = [outcome EXCEPT ![transaction] = "open"]
    /\ UNCHANGED <<written, visible, fenced>>

(* A batch of an undecided transaction is stored; a batch of an aborted transaction is aborted at once. *)
Write(transaction, partition, decided) ==
    /\ fate[transaction] \in {"open", "abort"} /\ partition \notin written[transaction]
    /\ decided \in {"open", "abort"}
    /\ outcome[transaction] # "committed"
    /\ "abort" = fate[transaction] \/ outcome[transaction] = "aborted" => decided = "abort"
    /\ fate' = [fate EXCEPT ![transaction] = decided]
    /\ written' = [written EXCEPT ![transaction] = @ \cup {partition}]
    /\ UNCHANGED <<visible, outcome, fenced>>

(* The application asks to commit its transaction. *)
AskToCommit(transaction) ==
    /\ outcome[transaction] = "open"
    /\ outcome' = [outcome EXCEPT ![transaction] = "committing"]
    /\ UNCHANGED <<fate, written, visible, fenced>>

(* A transaction is decided, once and for all; for commit only if that was asked for. *)
Decide(transaction, decision) ==
    /\ fate[transaction] = "open"
    /\ decision \in {"commit", "abort"}
    /\ decision = "commit" => transaction[1] \notin fenced /\ outcome[transaction] = "committing"
    /\ fate' = [fate EXCEPT ![transaction] = decision]
    /\ UNCHANGED <<written, visible, outcome, fenced>>

(* Readers of a partition find a committed transaction. *)
Publish(transaction, partition) ==
    /\ fate[transaction] = "commit"
    /\ partition \in written[transaction] /\ ~IsVisible(transaction, partition)
    /\ visible' = [visible EXCEPT ![partition] = Append(@, transaction)]
    /\ UNCHANGED <<fate, written, outcome, fenced>>

(* An instance is told how its transaction ended; a transaction without a batch needs no decision. *)
Tell(transaction, result) ==
    /\ \/ /\ outcome[transaction] = "committing" /\ result = "committed"
          /\ fate[transaction] = "commit" \/ written[transaction] = {}
       \/ /\ outcome[transaction] = "open" /\ result = "aborted"
          /\ fate[transaction] = "abort" \/ written[transaction] = {}
    /\ outcome' = [outcome EXCEPT ![transaction] = result]
    /\ UNCHANGED <<fate, written, visible, fenced>>

(* An instance takes over: the others commit no transaction that is not committed by now. *)
TakeOver(instances) ==
    /\ fenced' = instances
    /\ UNCHANGED <<fate, written, visible, outcome>>

AtomicNext ==
    \/ \E transaction \in Transactions :
        \/ Begin(transaction)
        \/ AskToCommit(transaction)
        \/ \E decision \in {"commit", "abort"} : Decide(transaction, decision)
        \/ \E result \in {"committed", "aborted"} : Tell(transaction, result)
        \/ \E partition \in Partitions :
            \/ Publish(transaction, partition)
            \/ \E decided \in {"open", "abort"} : Write(transaction, partition, decided)
    \/ \E instances \in SUBSET Instances : TakeOver(instances)

AtomicSpec == AtomicInit /\ [][AtomicNext]_atomicVars

(***************************************************************************)
(* What follows, checked of this module by itself                          *)
(***************************************************************************)

(* No reader finds a batch of a transaction that is not committed. *)
OnlyCommittedIsVisible ==
    \A partition \in Partitions : \A i \in DOMAIN visible[partition] : fate[visible[partition][i]] = "commit"
OnlyCommittedIsVisibleWitness ==
    /\ \E partition \in Partitions : visible[partition] # <<>>
    /\ \E transaction \in Transactions : fate[transaction] = "abort" /\ written[transaction] # {}

(* No reader finds a batch twice. *)
VisibleOnce ==
    \A partition \in Partitions : \A i, j \in DOMAIN visible[partition] :
        visible[partition][i] = visible[partition][j] => i = j
VisibleOnceWitness == \E partition \in Partitions : Len(visible[partition]) > 1

(* No transaction is committed unless its instance has asked for it. *)
CommittedAsAsked ==
    \A transaction \in Transactions :
        fate[transaction] = "commit" => outcome[transaction] \in {"committing", "committed"}
CommittedAsAskedWitness == \E transaction \in Transactions : fate[transaction] = "commit"

(* An instance is told the true outcome of its transactions. *)
ToldIsTrue ==
    \A transaction \in Transactions : written[transaction] # {} =>
        /\ outcome[transaction] = "committed" => fate[transaction] = "commit"
        /\ outcome[transaction] = "aborted"   => fate[transaction] = "abort"
ToldIsTrueWitness ==
    \A result \in {"committed", "aborted"} : \E transaction \in Transactions :
        written[transaction] # {} /\ outcome[transaction] = result

(* A decision is never taken back, and what readers have found stays. *)
DecisionsAreFinal ==
    [][/\ \A transaction \in Transactions :
             fate[transaction] \in {"commit", "abort"} => fate'[transaction] = fate[transaction]
       /\ \A partition \in Partitions :
             SubSeq(visible'[partition], 1, Len(visible[partition])) = visible[partition]]_atomicVars
DecisionsAreFinalWitness == visible' # visible /\ \E transaction \in Transactions : fate[transaction] = "abort"

(* Readers find all batches of a transaction or none. Refuted: each partition shows them when its own marker lands. *)
VisibleTogether ==
    \A transaction \in Transactions :
        \A one, two \in written[transaction] : IsVisible(transaction, one) => IsVisible(transaction, two)

(***************************************************************************)
(* Two live instances with one transactional.id, each of which restarts    *)
(* whenever it finds itself fenced                                         *)
(***************************************************************************)

First(instance) == fenced = {} /\ TakeOver(Instances \ {instance})

(* An instance that is fenced restarts, and fences the others. *)
Restart(instance) == instance \in fenced /\ TakeOver(Instances \ {instance})

ContendingSpec ==
    /\ AtomicInit
    /\ [][\E instance \in Instances : First(instance) \/ Restart(instance)]_atomicVars
    /\ WF_atomicVars(\E instance \in Instances : First(instance))
    /\ \A instance \in Instances : WF_atomicVars(Restart(instance))

(* Each of them is fenced again and again. *)
FencedForEver == \A instance \in Instances : []<>(instance \in fenced)
FencedForEverWitness == \E instance \in Instances : instance \in fenced

=============================================================================
