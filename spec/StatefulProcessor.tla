--------------------------- MODULE StatefulProcessor ---------------------------
(***************************************************************************)
(* A processor that counts its inputs by key. It keeps the counts in a     *)
(* store of its own; every change of it goes to a changelog topic, in the  *)
(* transaction of the output and the offset. Whoever goes on with the      *)
(* partition builds the store from the changelog.                          *)
(*                                                                         *)
(* Modelled: the store, the changelog with the fate of each entry, its     *)
(*   restoration entry by entry, several inputs in a transaction, aborts,  *)
(*   crashes that leave the store on disk, an instance that lives on after *)
(*   another has taken over.                                               *)
(* Assumed, not checked: a transaction of output, change and offset is     *)
(*   decided in one step, and one that is fenced commits nothing           *)
(*   (AtomicTransactions); one transactional.id for all instances.         *)
(* Out of scope: groups (ConsumeTransformProduce); compaction of the       *)
(*   changelog, which keeps the last count of each key; standby replicas;  *)
(*   stores that are transactional themselves (KIP-892).                   *)
(*                                                                         *)
(* KIPs: 98, 129.  Kafka: ProcessorStateManager, StoreChangelogReader,     *)
(* TaskCorruptedException.                                                 *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Inputs,          \* 1..n
    KeyOf,           \* for each input, its key
    Keys,            \* the keys
    Instances,       \* processes of the application, of which the group gives the partition to one
    MaxFaults        \* how many crashes, aborts and instances taken for dead there are at most

VARIABLES
    changelog,       \* its entries: key, count, and their fate: "open", "committed" or "aborted"
    outputs,         \* what readers find, in order: input, key and count
    committed,       \* how many inputs are before the committed offset
    owner,           \* the instance that has initialized its producer last, or "none"
    processes,       \* for each instance: its stage, its store, how much it has restored, its position, its open outputs
    faults           \* the number of faults so far

vars == <<changelog, outputs, committed, owner, processes, faults>>

NothingCounted == [key \in Keys |-> 0]

(* A process is "down", "restoring" or "running". *)
Init ==
    /\ changelog = <<>>
    /\ outputs = <<>>
    /\ committed = 0
    /\ owner = "none"
    /\ processes = [instance \in Instances |->
          [stage |-> "down", store |-> NothingCounted, restored |-> 0, position |-> 0, batch |-> <<>>]]
    /\ faults = 0

(***************************************************************************)
(* Rules                                                                   *)
(***************************************************************************)

(* The leaders take what an instance writes as long as nobody has fenced it. *)
MayWrite(instance) == owner = instance

(* The fate of an entry when it is written: that of its transaction, which is open. *)
FateAtWrite == "open"

(* An entry of the changelog changes the store that is restored: its transaction is committed. *)
IsRestored(entry) == entry.fate = "committed"

(* The store with which an instance starts: nothing that an earlier process has left on disk. *)
StoreAtStart(instance) == NothingCounted

(* A process that restores its store from the first entry of the changelog on. *)
Restoring(store) == [stage |-> "restoring", store |-> store, restored |-> 0, position |-> 0, batch |-> <<>>]

(* A process after it has aborted: its store is gone, and is restored. *)
AfterAbort(instance) == Restoring(NothingCounted)

(* The changelog after the decision of the transaction. *)
Decided(fate) ==
    [place \in DOMAIN changelog |->
        IF changelog[place].fate = "open" THEN [changelog[place] EXCEPT !.fate = fate] ELSE changelog[place]]

Fault == faults < MaxFaults /\ faults' = faults + 1

(***************************************************************************)
(* The instances                                      WHO: the application *)
(***************************************************************************)

(* An instance starts and fences the one before, which may still live and whose open transaction is aborted. *)
Initialize(instance) ==
    /\ processes[instance].stage = "down"
    /\ IF owner # "none" /\ processes[owner].stage # "down" THEN Fault ELSE UNCHANGED faults
    /\ owner' = instance
    /\ changelog' = Decided("aborted")
    /\ processes' = [processes EXCEPT ![instance] = Restoring(StoreAtStart(instance))]
    /\ UNCHANGED <<outputs, committed>>

(* An instance restores the next entry of the changelog, which is decided. *)
Restore(instance) ==
    LET process == processes[instance]
        entry == changelog[process.restored + 1]
    IN  /\ process.stage = "restoring" /\ process.restored < Len(changelog)
        /\ entry.fate # "open"
        /\ processes' = [processes EXCEPT ![instance].restored = @ + 1,
                                          ![instance].store[entry.key] = IF IsRestored(entry) THEN entry.count ELSE @]
        /\ UNCHANGED <<changelog, outputs, committed, owner, faults>>

(* An instance has restored its store, and goes to the committed offset. *)
Start(instance) ==
    /\ processes[instance].stage = "restoring" /\ processes[instance].restored = Len(changelog)
    /\ processes' = [processes EXCEPT ![instance].stage = "running", ![instance].position = committed]
    /\ UNCHANGED <<changelog, outputs, committed, owner, faults>>

(* An instance counts its next input, in its store, in the changelog and in an output. *)
Process(instance) ==
    LET process == processes[instance]
        input == process.position + 1
        key == KeyOf[input]
        count == process.store[key] + 1
    IN  /\ process.stage = "running" /\ input \in Inputs
        /\ MayWrite(instance)
        /\ changelog' = Append(changelog, [key |-> key, count |-> count, fate |-> FateAtWrite])
        /\ processes' = [processes EXCEPT ![instance].store[key] = count, ![instance].position = input,
                ![instance].batch = Append(@, [input |-> input, key |-> key, count |-> count])]
        /\ UNCHANGED <<outputs, committed, owner, faults>>

(* An instance commits its transaction: outputs, changes and offset. *)
Commit(instance) ==
    /\ processes[instance].batch # <<>> /\ MayWrite(instance)
    /\ changelog' = Decided("committed")
    /\ outputs' = outputs \o processes[instance].batch
    /\ committed' = processes[instance].position
    /\ processes' = [processes EXCEPT ![instance].batch = <<>>]
    /\ UNCHANGED <<owner, faults>>

(* An instance aborts its transaction after a failure. *)
Abort(instance) ==
    /\ processes[instance].batch # <<>> /\ MayWrite(instance)
    /\ Fault
    /\ changelog' = Decided("aborted")
    /\ processes' = [processes EXCEPT ![instance] = AfterAbort(instance)]
    /\ UNCHANGED <<outputs, committed, owner>>

(* An instance learns that it is fenced, and ends. *)
LearnFencing(instance) ==
    /\ processes[instance].stage # "down"
    /\ ~MayWrite(instance)
    /\ processes' = [processes EXCEPT ![instance].stage = "down", ![instance].batch = <<>>]
    /\ UNCHANGED <<changelog, outputs, committed, owner, faults>>

(* An instance crashes; its store stays on disk. *)
Crash(instance) ==
    /\ processes[instance].stage # "down"
    /\ Fault
    /\ processes' = [processes EXCEPT ![instance].stage = "down", ![instance].batch = <<>>]
    /\ UNCHANGED <<changelog, outputs, committed, owner>>

Next ==
    \E instance \in Instances :
        \/ Initialize(instance)
        \/ Restore(instance)
        \/ Start(instance)
        \/ Process(instance)
        \/ Commit(instance)
        \/ Abort(instance)
        \/ LearnFencing(instance)
        \/ Crash(instance)

Spec == Init /\ [][Next]_vars

(* Instances go on as long as they can; an instance that is down starts when none is up. *)
Fairness ==
    \A instance \in Instances :
        /\ WF_vars(Restore(instance) \/ Start(instance) \/ Process(instance))
        /\ WF_vars(Commit(instance))
        /\ WF_vars(LearnFencing(instance))
        /\ WF_vars((\A other \in Instances : processes[other].stage = "down") /\ Initialize(instance))

FairSpec == Spec /\ Fairness

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

(* How many of the inputs up to one have a key. *)
CountUpTo(input, key) == Cardinality({other \in Inputs : other <= input /\ KeyOf[other] = key})

(* The outputs are those of a single process that never fails. *)
CountsAreExact ==
    /\ Len(outputs) = committed
    /\ \A place \in DOMAIN outputs :
        outputs[place] = [input |-> place, key |-> KeyOf[place], count |-> CountUpTo(place, KeyOf[place])]
CountsAreExactWitness == faults > 0 /\ Len(outputs) > 1

(* The last committed entry of a key in the changelog is its count. *)
ChangelogAgrees ==
    \A key \in Keys :
        LET places == {place \in DOMAIN changelog : changelog[place].key = key /\ changelog[place].fate = "committed"}
        IN  CountUpTo(committed, key) =
                IF places = {} THEN 0 ELSE changelog[CHOOSE place \in places : \A other \in places : other <= place].count
ChangelogAgreesWitness ==
    \E key \in Keys : \A fate \in {"committed", "aborted"} : \E place \in DOMAIN changelog :
        changelog[place].key = key /\ changelog[place].fate = fate

(* The store of the instance that runs has counted what it has read. *)
StoreAgrees ==
    owner # "none" /\ processes[owner].stage = "running" =>
        \A key \in Keys : processes[owner].store[key] = CountUpTo(processes[owner].position, key)
StoreAgreesWitness == owner # "none" /\ processes[owner].stage = "running" /\ processes[owner].restored > 0

OutputsOf(input) == Cardinality({place \in DOMAIN outputs : outputs[place].input = input})

Guarantee == INSTANCE ExactlyOnce
    WITH Partitions <- {"inputs"}, offsets <- [topic \in {"inputs"} |-> committed],
         outputs <- [topic \in {"inputs"} |-> [input \in Inputs |-> OutputsOf(input)]]

(* Each input takes effect once, its output and the offset after it together, as ExactlyOnce promises. *)
RefinesExactlyOnce == Guarantee!ExactlyOnceSpec
RefinesExactlyOnceWitness == faults > 0 /\ committed > 1

(* Every input is counted in the end. *)
EveryInputIsCounted == <>[](committed = Cardinality(Inputs))
EveryInputIsCountedWitness == faults > 0 /\ committed = Cardinality(Inputs)

=============================================================================
