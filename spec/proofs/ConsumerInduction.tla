--------------------------- MODULE ConsumerInduction ---------------------------
(***************************************************************************)
(* The invariant that kafka-eos check proofs reading shows to be inductive, for   *)
(* TLC: the search begins with every state of some small logs that has it, *)
(* reached or not, and may leave it by no action.                          *)
(*                                                                         *)
(* The conjuncts leave no choice but the entries, which aborted            *)
(* transactions the index lacks, its last stable offsets, and the offsets  *)
(* of replicas and reader: so IndInit chooses these, and the rest follows. *)
(* The index is in the order of the markers.                               *)
(***************************************************************************)
EXTENDS Consumer

Places == DOMAIN log.entries

(* The first offset of the transaction that a producer has open after some entries. *)
Opened(entries, producerId, n) ==
    LET mine == {i \in 1..n : entries[i].producerId = producerId}
        open == {i \in mine : /\ entries[i].kind = "transactional"
                              /\ \A j \in mine : j > i => ~IsMarker(entries[j])}
    IN  IF open = {} THEN NoOffset ELSE Least({entries[i].offset : i \in open})

OpenedNow(producerId) == Opened(log.entries, producerId, Len(log.entries))

IsIndexedMarker(offset) == \E k \in DOMAIN log.abortedIndex : log.abortedIndex[k].lastOffset = offset

(* Entries follow each other without holes. *)
OffsetsArePlaces == \A i \in Places : log.entries[i].offset = i - 1
OffsetsArePlacesWitness == Len(log.entries) > 1

(* The leader knows where each open transaction begins. *)
ProducersFollowLog == \A producerId \in ProducerIds : log.producers[producerId].firstOffset = OpenedNow(producerId)
ProducersFollowLogWitness == \E producerId \in ProducerIds : OpenedNow(producerId) # NoOffset

(* A transaction that holds the last stable offset back is open, or its marker is not replicated or not indexed. *)
UnstableIsUndecided ==
    \A t \in log.transactions :
        LET i == t.firstOffset + 1
            markers == MarkersBehind(log.entries, i)
            j == Least(markers)
        IN  /\ i \in Places /\ log.entries[i].kind = "transactional" /\ log.entries[i].producerId = t.producerId
            /\ IF markers = {}
               THEN t.lastOffset = NoOffset /\ t.firstOffset = OpenedNow(t.producerId)
               ELSE /\ t.firstOffset = Opened(log.entries, t.producerId, j - 1)
                    /\ \/ t.lastOffset = NoOffset /\ log.entries[j].kind = "abort" /\ ~IsIndexedMarker(j - 1)
                       \/ t.lastOffset = j - 1 /\ j - 1 >= highWatermark
UnstableIsUndecidedWitness == \E t \in log.transactions : MarkersBehind(log.entries, t.firstOffset + 1) # {}

(* Every open transaction holds the last stable offset back. *)
OpenIsUnstable ==
    \A producerId \in ProducerIds :
        OpenedNow(producerId) # NoOffset => Ongoing(producerId, OpenedNow(producerId)) \in log.transactions
OpenIsUnstableWitness == \E producerId \in ProducerIds : OpenedNow(producerId) # NoOffset

(* An ended transaction does too, until its marker is replicated, and in the index if it is an abort. *)
EndedIsIndexedAndReplicated ==
    \A j \in {i \in Places : IsMarker(log.entries[i])} :
        LET producerId == log.entries[j].producerId
            ongoing == Ongoing(producerId, Opened(log.entries, producerId, j - 1))
        IN  \/ ongoing.firstOffset = NoOffset
            \/ ongoing \in log.transactions
            \/ /\ log.entries[j].kind = "abort" => IsIndexedMarker(j - 1)
               /\ j - 1 < highWatermark \/ [ongoing EXCEPT !.lastOffset = j - 1] \in log.transactions
EndedIsIndexedAndReplicatedWitness ==
    \E j \in Places : IsMarker(log.entries[j]) /\ BatchesEndedBy(log.entries, j) # {}

(* An entry of the index is of an aborted transaction. *)
IndexIsOfAborted ==
    \A k \in DOMAIN log.abortedIndex :
        LET indexed == log.abortedIndex[k]
            j == indexed.lastOffset + 1
        IN  /\ j \in Places /\ log.entries[j].kind = "abort" /\ log.entries[j].producerId = indexed.producerId
            /\ indexed.firstOffset # NoOffset
            /\ indexed.firstOffset = Opened(log.entries, indexed.producerId, j - 1)
IndexIsOfAbortedWitness == log.abortedIndex # <<>>

(* An entry begins after the last stable offset of every earlier one. *)
LaterBeginsBehindScan ==
    \A k, l \in DOMAIN log.abortedIndex :
        k < l => log.abortedIndex[l].firstOffset >= log.abortedIndex[k].lastStableOffset
LaterBeginsBehindScanWitness == Len(log.abortedIndex) > 1

(* An open transaction begins after the last stable offset of every entry. *)
OpenBeginsBehindScan ==
    \A producerId \in ProducerIds : \A k \in DOMAIN log.abortedIndex :
        OpenedNow(producerId) # NoOffset => OpenedNow(producerId) >= log.abortedIndex[k].lastStableOffset
OpenBeginsBehindScanWitness ==
    log.abortedIndex # <<>> /\ \E producerId \in ProducerIds : OpenedNow(producerId) # NoOffset

(* The last stable offset of an entry is in the log. *)
ScanEndsInLog == \A k \in DOMAIN log.abortedIndex : log.abortedIndex[k].lastStableOffset <= Len(log.entries)
ScanEndsInLogWitness == log.abortedIndex # <<>>

(* The high watermark is replicated, and that is in the log. *)
WatermarkIsReplicated == highWatermark \in 0..replicated /\ replicated <= Len(log.entries)
WatermarkIsReplicatedWitness == highWatermark < replicated

(* The reader is not ahead of what is replicated. *)
PositionIsReplicated == positions["read_committed"] \in 0..replicated
PositionIsReplicatedWitness == positions["read_committed"] > highWatermark

(* Everything that the reader is past was decided by a replicated marker. *)
ReadIsDecided ==
    \A i \in 1..positions["read_committed"] : log.entries[i].kind = "transactional" =>
        \E j \in MarkersBehind(log.entries, i) : j - 1 < replicated
ReadIsDecidedWitness == \E i \in Places : i <= positions["read_committed"] /\ log.entries[i].kind = "transactional"

Committed(entries, i) == Fate(entries, i) \in {"plain", "commit"} /\ ~IsMarker(entries[i])

(* The reader was given the committed records before its position, and no others. *)
DeliveredIsCommitted ==
    DeliveredTo("read_committed") =
        {i - 1 : i \in {j \in 1..positions["read_committed"] : Committed(log.entries, j)}}
DeliveredIsCommittedWitness ==
    /\ DeliveredTo("read_committed") # {}
    /\ \E i \in Places : i <= positions["read_committed"] /\ Fate(log.entries, i) = "abort"

Inductive ==
    /\ OffsetsArePlaces
    /\ ProducersFollowLog
    /\ UnstableIsUndecided
    /\ OpenIsUnstable
    /\ EndedIsIndexedAndReplicated
    /\ IndexIsOfAborted
    /\ LaterBeginsBehindScan
    /\ OpenBeginsBehindScan
    /\ ScanEndsInLog
    /\ WatermarkIsReplicated
    /\ PositionIsReplicated
    /\ ReadIsDecided
    /\ DeliveredIsCommitted

Stored(chosen) ==
    [i \in DOMAIN chosen |-> [Entry(chosen[i][1], chosen[i][2], 0, IF chosen[i][1] \in BatchKinds THEN -1 ELSE 0)
                              EXCEPT !.offset = i - 1]]

(* The markers that end data. *)
Ends(entries) ==
    {j \in DOMAIN entries : IsMarker(entries[j]) /\ Opened(entries, entries[j].producerId, j - 1) # NoOffset}

OngoingBefore(entries, j) == Ongoing(entries[j].producerId, Opened(entries, entries[j].producerId, j - 1))

(* Every state of a small log that has the invariant. *)
IndInit ==
    \E n \in Offsets : \E chosen \in [1..n -> (BatchKinds \cup {"commit", "abort"}) \X ProducerIds] :
        LET entries == Stored(chosen)
            aborts  == {j \in Ends(entries) : entries[j].kind = "abort"}
            open    == {producerId \in ProducerIds : Opened(entries, producerId, n) # NoOffset}
        IN  \E watermark \in 0..n : \E copied \in watermark..n : \E position \in 0..copied :
            \E unindexed \in (IF IndexFailures THEN SUBSET aborts ELSE {{}}) :
                LET markers == SelectSeq([j \in 1..n |-> j], LAMBDA j : j \in aborts \ unindexed)
                    ended   == {j \in Ends(entries) \ unindexed : j - 1 >= watermark}
                IN  \E scans \in [DOMAIN markers -> 0..n] :
                    /\ log = [entries |-> entries,
                              producers |-> Replay(EmptyLog, entries).producers,
                              transactions |->
                                  {Ongoing(producerId, Opened(entries, producerId, n)) : producerId \in open}
                                  \cup {OngoingBefore(entries, j) : j \in unindexed}
                                  \cup {[OngoingBefore(entries, j) EXCEPT !.lastOffset = j - 1] : j \in ended},
                              abortedIndex |->
                                  [k \in DOMAIN markers |->
                                      [producerId |-> entries[markers[k]].producerId,
                                       firstOffset |-> OngoingBefore(entries, markers[k]).firstOffset,
                                       lastOffset |-> markers[k] - 1,
                                       lastStableOffset |-> scans[k]]]]
                    /\ highWatermark = watermark
                    /\ replicated = copied
                    /\ leaderEpoch = 0
                    /\ positions = [reader \in Readers |-> position]
                    /\ delivered = [reader \in Readers |->
                                       SelectSeq([i \in 1..position |-> i - 1], LAMBDA o : Committed(entries, o + 1))]
                    /\ held = [producerId \in ProducerIds |-> <<>>]
                    /\ mostHeld = 0
                    /\ Inductive

IndSpec == IndInit /\ [][Next]_vars

=============================================================================
