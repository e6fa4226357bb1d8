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

=============================================================================
