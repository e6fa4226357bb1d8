------------------------ MODULE StatefulProcessorMutants ------------------------
(* Rules of StatefulProcessor with one thing changed. *)
EXTENDS StatefulProcessor

(* for IsRestored: the changelog is read with read_uncommitted *)
RestoresUncommitted(entry) == TRUE

(* for AfterAbort: the store keeps the aborted changes *)
StoreIsKeptAfterAbort(instance) == [processes[instance] EXCEPT !.position = committed, !.batch = <<>>]

(* for StoreAtStart: the store that an earlier process has left on disk is used *)
StoreOnDiskIsUsed(instance) == processes[instance].store

(* for FateAtWrite: changes are written in no transaction *)
ChangesAreWrittenApart == "committed"

(* for MayWrite: nobody fences the instance that had the partition before *)
FormerOwnerWrites(instance) == TRUE

HasCountedAll == committed = Cardinality(Inputs)
HasAbortedEntry == \E place \in DOMAIN changelog : changelog[place].fate = "aborted"
HasRestoredCount == \E instance \in Instances :
    processes[instance].stage = "running" /\ processes[instance].restored > 1 /\ processes[instance].store # NothingCounted

(* for Process: the output has the count before the input *)
OutputHasFormerCount(instance) ==
    LET process == processes[instance]
        input == process.position + 1
        key == KeyOf[input]
        count == process.store[key] + 1
    IN  /\ process.stage = "running" /\ input \in Inputs
        /\ MayWrite(instance)
        /\ changelog' = Append(changelog, [key |-> key, count |-> count, fate |-> FateAtWrite])
        /\ processes' = [processes EXCEPT ![instance].store[key] = count, ![instance].position = input,
                ![instance].batch = Append(@, [input |-> input, key |-> key, count |-> count - 1])]
        /\ UNCHANGED <<outputs, committed, owner, faults>>

(* for Commit: after a failure no transaction has an offset *)
OffsetIsLeftOutAfterFault(instance) ==
    /\ processes[instance].batch # <<>> /\ MayWrite(instance)
    /\ changelog' = Decided("committed")
    /\ outputs' = outputs \o processes[instance].batch
    /\ committed' = IF faults > 0 THEN committed ELSE processes[instance].position
    /\ processes' = [processes EXCEPT ![instance].batch = <<>>]
    /\ UNCHANGED <<owner, faults>>

=============================================================================
