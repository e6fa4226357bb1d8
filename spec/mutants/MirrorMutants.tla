----------------------------- MODULE MirrorMutants ----------------------------
(* Rules of Mirror with one thing changed. *)
EXTENDS Mirror

(* for MayCommit: nobody fences the task that had the partition before *)
NobodyIsFenced(task) == TRUE

(* for StartPosition: a task that is given the partition again goes on where it was *)
PositionIsKept(task) == IF tasks[task].position = 0 THEN offset ELSE tasks[task].position

(* for OffsetAfter: the offset is that of the last record copied, not the next one *)
OffsetOfLast(position) == IF OffsetsIn = "target" THEN position - 1 ELSE offset

(* for OffsetAfter: the offset passes the last record before that is copied *)
OffsetPassesLast(position) ==
    IF OffsetsIn = "source" THEN offset ELSE IF position = Cardinality(Records) THEN position + 1 ELSE position

HasMirroredAll == Len(target) = Cardinality(Records) /\ deleted = Cardinality(Records)
HasFormerOwner == \E task \in Tasks : tasks[task].stage = "copying" /\ tasks[task].batch # <<>> /\ owner # task

(* for Copy: a task puts the records of a batch in the opposite order *)
BatchIsTurnedRound(task) ==
    /\ tasks[task].stage = "copying"
    /\ tasks[task].position <= produced /\ Len(tasks[task].batch) < BatchSize
    /\ tasks' = [tasks EXCEPT ![task].position = @ + 1, ![task].batch = <<tasks[task].position>> \o @]
    /\ UNCHANGED <<produced, deleted, target, offset, owner>>

(* for Copy: a task copies records before the source has them *)
CopiesAhead(task) ==
    /\ tasks[task].stage = "copying"
    /\ tasks[task].position \in Records /\ Len(tasks[task].batch) < BatchSize
    /\ tasks' = [tasks EXCEPT ![task].position = @ + 1, ![task].batch = Append(@, tasks[task].position)]
    /\ UNCHANGED <<produced, deleted, target, offset, owner>>

=============================================================================
