------------------------------- MODULE Consumer -------------------------------
(***************************************************************************)
(* Readers of one partition that transactions write to.                    *)
(*                                                                         *)
(* Modelled: a read_committed reader, which gets the log up to the last    *)
(*   stable offset with a list of aborted transactions, and drops their    *)
(*   records by it; a read_uncommitted reader, which gets the log up to    *)
(*   the high watermark; and one that Kafka does not have: it reads up to  *)
(*   there, too, and holds each transaction's records back until it meets  *)
(*   the marker. A response holds any number of entries up to a bound; the *)
(*   first two readers keep only their position between two responses.     *)
(* Assumed, not checked: a response is put together in one step, as the    *)
(*   leader's lock makes sure, and is about one partition.                 *)
(* Out of scope: several partitions, between which nothing is atomic;      *)
(*   groups and the offsets that they commit; seek; fetching from          *)
(*   followers.                                                            *)
(*                                                                         *)
(* KIPs: 98.  Kafka: UnifiedLog.read, TransactionIndex, CompletedFetch.    *)
(***************************************************************************)
EXTENDS TransactionalPartition

CONSTANTS
    Readers,             \* of "read_committed", "read_uncommitted", "buffering"
    FetchSizes           \* how many entries a response may hold

VARIABLES
    positions,           \* for each reader: the offset that it reads next
    delivered,           \* for each reader: the offsets of the records that it passed on
    held,                \* for each producer: the offsets of the records that the buffering reader holds back
    mostHeld             \* the largest number of records held back at a time

consumerVars == <<positions, delivered, held, mostHeld>>
vars == <<partitionVars, consumerVars>>

Init ==
    /\ PartitionInit
    /\ positions = [reader \in Readers |-> 0]
    /\ delivered = [reader \in Readers |-> <<>>]
    /\ held = [producerId \in ProducerIds |-> <<>>]
    /\ mostHeld = 0

(***************************************************************************)
(* A response                                          WHO: the leader     *)
(***************************************************************************)

(* The entries of a response: those from a position on, below a limit, and no more than fit. *)
Fetched(position, limit, size) ==
    LET found == SelectSeq(log.entries, LAMBDA entry : entry.offset >= position /\ entry.offset < limit)
    IN  SubSeq(found, 1, Smaller(size, Len(found)))

(* The offset at which a response to a read_committed reader ends. *)
CommittedLimit == LastStableOffset

(* The offset up to which aborted transactions are looked for: after the response's last entry. Kafka takes one that *)
(* the offset index knows, which may be larger.                                                                      *)
UpperBound(fetched) == fetched[Len(fetched)].offset + 1

(* An aborted transaction overlaps a response. *)
Overlaps(transaction, position, upper) ==
    transaction.lastOffset >= position /\ transaction.firstOffset < upper

(* No later entry of the index can overlap a response. *)
EndsScan(transaction, upper) == transaction.lastStableOffset >= upper

(* The aborted transactions of a response, in the order of the index.    Kafka: TransactionIndex.collectAbortedTxns *)
CollectAborted(position, upper) ==
    LET index == log.abortedIndex
        ends  == {k \in DOMAIN index : EndsScan(index[k], upper)}
        found == SelectSeq(SubSeq(index, 1, IF ends = {} THEN Len(index) ELSE Least(ends)),
                           LAMBDA transaction : Overlaps(transaction, position, upper))
    IN  [k \in DOMAIN found |-> [producerId |-> found[k].producerId, firstOffset |-> found[k].firstOffset]]

(***************************************************************************)
(* What a read_committed reader makes of it            WHO: the reader     *)
(***************************************************************************)

(* An aborted transaction has begun at an entry. *)
HasBegun(transaction, entry) == transaction.firstOffset <= entry.offset

(* The waiting transactions that have begun, by their places in the list, whose order does not help. *)
Begun(aborted, waiting, entry) == {k \in waiting : HasBegun(aborted[k], entry)}

(* A record is aborted if it is transactional and its producer is in an aborted transaction. *)
IsAborted(entry, active) == entry.kind = "transactional" /\ entry.producerId \in active

(* The producers that are still in an aborted transaction after an entry. *)
StillActive(active, entry) == IF entry.kind = "abort" THEN active \ {entry.producerId} ELSE active

(* A reader never passes a marker on. *)
IsPassedOn(entry) == ~IsMarker(entry)

RECURSIVE Passed(_, _, _, _)
(* A response's records without those of the aborted transactions in its list. Those at the waiting places have not *)
(* begun yet; the active producers are in one.                                                                      *)
Passed(fetched, aborted, waiting, active) ==
    IF fetched = <<>> THEN <<>>
    ELSE LET entry == Head(fetched)
             begun == Begun(aborted, waiting, entry)
             now   == StillActive(active \cup {aborted[k].producerId : k \in begun}, entry)
         IN  (IF IsPassedOn(entry) /\ ~IsAborted(entry, now) THEN <<entry.offset>> ELSE <<>>)
                 \o Passed(Tail(fetched), aborted, waiting \ begun, now)

(* The offsets of a response's records without those of the aborted transactions in its list. *)
Readable(fetched, aborted) == Passed(fetched, aborted, DOMAIN aborted, {})

(* A reader's next position: after the response, even if the reader passed on none of it. *)
NextPosition(position, fetched, read) == fetched[Len(fetched)].offset + 1

(* The reader goes on after a response, some of whose records it passed on. *)
Read(reader, fetched, read) ==
    /\ positions' = [positions EXCEPT ![reader] = NextPosition(@, fetched, read)]
    /\ delivered' = [delivered EXCEPT ![reader] = @ \o read]
    /\ UNCHANGED partitionVars

(* The read_committed reader gets a response and drops the aborted records. *)
FetchCommitted(size) ==
    /\ "read_committed" \in Readers
    /\ LET position == positions["read_committed"]
           fetched  == Fetched(position, CommittedLimit, size)
       IN  /\ fetched # <<>>
           /\ Read("read_committed", fetched, Readable(fetched, CollectAborted(position, UpperBound(fetched))))
    /\ UNCHANGED <<held, mostHeld>>

(***************************************************************************)
(* The others                                          WHO: the reader     *)
(***************************************************************************)

(* The offsets of a response's records, including aborted and undecided ones. *)
Everything(fetched) ==
    LET found == SelectSeq(fetched, LAMBDA entry : IsPassedOn(entry))
    IN  [k \in DOMAIN found |-> found[k].offset]

(* The read_uncommitted reader gets a response and passes every record on. *)
FetchUncommitted(size) ==
    /\ "read_uncommitted" \in Readers
    /\ LET fetched == Fetched(positions["read_uncommitted"], highWatermark, size)
       IN  fetched # <<>> /\ Read("read_uncommitted", fetched, Everything(fetched))
    /\ UNCHANGED <<held, mostHeld>>

RECURSIVE Total(_, _)
Total(buffer, producerIds) ==
    IF producerIds = {} THEN 0
    ELSE LET one == CHOOSE producerId \in producerIds : TRUE
         IN  Len(buffer[one]) + Total(buffer, producerIds \ {one})

(* The records of a producer that a buffering reader holds back after one of that producer's entries. *)
StillHeld(mine, entry) ==
    IF IsMarker(entry) THEN <<>> ELSE IF entry.kind = "transactional" THEN Append(mine, entry.offset) ELSE mine

RECURSIVE Buffered(_, _)
(* The records that a buffering reader has passed on, holds back, and has held back at most, after some more entries. *)
Buffered(before, fetched) ==
    IF fetched = <<>> THEN before
    ELSE LET entry == Head(fetched)
             mine  == before.held[entry.producerId]
             now   == [before.held EXCEPT ![entry.producerId] = StillHeld(mine, entry)]
             read  == IF entry.kind = "commit" THEN mine ELSE IF entry.kind = "plain" THEN <<entry.offset>> ELSE <<>>
         IN  Buffered([read |-> before.read \o read, held |-> now,
                       most |-> Larger(before.most, Total(now, ProducerIds))], Tail(fetched))

(* The buffering reader gets a response, holds undecided records back, and passes committed ones on. *)
FetchAndHold(size) ==
    /\ "buffering" \in Readers
    /\ LET fetched == Fetched(positions["buffering"], highWatermark, size)
           after   == Buffered([read |-> <<>>, held |-> held, most |-> mostHeld], fetched)
       IN  /\ fetched # <<>>
           /\ Read("buffering", fetched, after.read)
           /\ held' = after.held
           /\ mostHeld' = after.most

Next ==
    \/ PartitionStep /\ UNCHANGED consumerVars
    \/ \E size \in FetchSizes :
        \/ FetchCommitted(size)
        \/ FetchUncommitted(size)
        \/ FetchAndHold(size)

Spec == Init /\ [][Next]_vars

(* Followers fetch, and so do readers. *)
Fairness ==
    /\ WF_vars(AdvanceHighWatermark /\ UNCHANGED consumerVars)
    /\ \A size \in FetchSizes :
        /\ WF_vars(FetchCommitted(size))
        /\ WF_vars(FetchUncommitted(size))
        /\ WF_vars(FetchAndHold(size))

FairSpec == Spec /\ Fairness

(***************************************************************************)
(* Properties, over the log and what the readers passed on                 *)
(***************************************************************************)

ReadersOfCommitted == Readers \cap {"read_committed", "buffering"}

DeliveredTo(reader) == {delivered[reader][k] : k \in DOMAIN delivered[reader]}

(* The places of a reader's records that are still in the log. *)
PlacesOf(reader) == {i \in DOMAIN log.entries : log.entries[i].offset \in DeliveredTo(reader)}

(* No record of an aborted transaction reaches a reader of committed data. *)
NoAbortedIsDelivered ==
    \A reader \in ReadersOfCommitted : \A i \in PlacesOf(reader) \cap Batches(log.entries) :
        Fate(log.entries, i) # "abort"
NoAbortedIsDeliveredWitness ==
    \E reader \in ReadersOfCommitted : \E i \in Batches(log.entries) :
        log.entries[i].offset < positions[reader] /\ Fate(log.entries, i) = "abort"

(* No record of an undecided transaction reaches a reader of committed data. *)
NoUndecidedIsDelivered ==
    \A reader \in ReadersOfCommitted : \A i \in PlacesOf(reader) \cap Batches(log.entries) :
        Fate(log.entries, i) # "open"
NoUndecidedIsDeliveredWitness ==
    \E reader \in ReadersOfCommitted : \E i \in Batches(log.entries) :
        /\ Fate(log.entries, i) = "open" /\ log.entries[i].offset < highWatermark
        /\ positions[reader] > 0

(* No reader is given a marker. *)
NoMarkerIsDelivered == \A reader \in Readers : PlacesOf(reader) \subseteq Batches(log.entries)
NoMarkerIsDeliveredWitness ==
    \E reader \in Readers : \E i \in DOMAIN log.entries :
        IsMarker(log.entries[i]) /\ log.entries[i].offset < positions[reader]

(* A reader of committed data that is past a batch has to have been given it. *)
IsFor(reader, i) ==
    \/ Fate(log.entries, i) = "plain"
    \/ /\ Fate(log.entries, i) = "commit"
       /\ \/ reader = "read_committed"
          \/ log.entries[Least(MarkersBehind(log.entries, i))].offset < positions[reader]

(* A reader of committed data misses no committed record that it has passed; the buffering reader has to be past the *)
(* marker as well.                                                                                                   *)
NothingIsSkipped ==
    \A reader \in ReadersOfCommitted : \A i \in Batches(log.entries) :
        log.entries[i].offset < positions[reader] /\ IsFor(reader, i) => log.entries[i].offset \in DeliveredTo(reader)
NothingIsSkippedWitness ==
    \E reader \in ReadersOfCommitted : \E i \in Batches(log.entries) :
        log.entries[i].offset < positions[reader] /\ IsFor(reader, i)

(* The read_uncommitted reader misses nothing: it gets aborted and undecided records too. *)
UncommittedIsEverything ==
    \A reader \in Readers \ ReadersOfCommitted : \A i \in Batches(log.entries) :
        log.entries[i].offset < positions[reader] => log.entries[i].offset \in DeliveredTo(reader)
UncommittedIsEverythingWitness ==
    \A fate \in {"abort", "open"} : \E reader \in Readers \ ReadersOfCommitted : \E i \in Batches(log.entries) :
        log.entries[i].offset < positions[reader] /\ Fate(log.entries, i) = fate

(* Nobody is given a record twice. *)
DeliveredOnce ==
    \A reader \in Readers : \A k, l \in DOMAIN delivered[reader] :
        k # l => delivered[reader][k] # delivered[reader][l]
DeliveredOnceWitness == \E reader \in Readers : Len(delivered[reader]) > 1

(* Records arrive in the order of the log; with the buffering reader only those of one producer do. *)
DeliveredInOrder ==
    \A reader \in Readers : \A k, l \in DOMAIN delivered[reader] :
        k < l /\ delivered[reader][k] > delivered[reader][l] =>
            /\ reader = "buffering"
            /\ \A i, j \in DOMAIN log.entries :
                  log.entries[i].offset = delivered[reader][k] /\ log.entries[j].offset = delivered[reader][l] =>
                      log.entries[i].producerId # log.entries[j].producerId
DeliveredInOrderWitness == \E reader \in Readers : Len(delivered[reader]) > 1

(* The buffering reader and the read_committed one have the same records when both are at the end. *)
ReadersAgree ==
    {"read_committed", "buffering"} \subseteq Readers
        /\ positions["read_committed"] = LogEndOffset(log) /\ positions["buffering"] = LogEndOffset(log) =>
            /\ DeliveredTo("read_committed") = DeliveredTo("buffering")
            /\ \A producerId \in ProducerIds : held[producerId] = <<>>
ReadersAgreeWitness ==
    /\ {"read_committed", "buffering"} \subseteq Readers
    /\ positions["read_committed"] = LogEndOffset(log) /\ positions["buffering"] = LogEndOffset(log)
    /\ DeliveredTo("read_committed") # {} /\ \E i \in Batches(log.entries) : Fate(log.entries, i) = "abort"

(* A reader that is past a transaction's marker and was given one of its records was given all that the log has. *)
TransactionIsSeenWhole ==
    \A reader \in ReadersOfCommitted : \A j \in DOMAIN log.entries :
        IsMarker(log.entries[j]) /\ log.entries[j].offset < positions[reader] =>
            LET batches == BatchesEndedBy(log.entries, j)
            IN  batches \cap PlacesOf(reader) # {} => batches \subseteq PlacesOf(reader)
TransactionIsSeenWholeWitness ==
    \E reader \in ReadersOfCommitted : \E j \in DOMAIN log.entries :
        /\ IsMarker(log.entries[j]) /\ log.entries[j].offset < positions[reader]
        /\ Cardinality(BatchesEndedBy(log.entries, j) \cap PlacesOf(reader)) > 1

(* No reader ever goes back, whichever replica leads. *)
PositionsOnlyGrow == [][\A reader \in Readers : positions'[reader] >= positions[reader]]_vars
PositionsOnlyGrowWitness == \E reader \in Readers : positions[reader] > 0 /\ positions'[reader] # positions[reader]

(* Once every transaction has ended, the last stable offset reaches the log's end, and so does every reader. *)
ReadersReachEnd ==
    <>[](\/ \E i \in Batches(log.entries) : Fate(log.entries, i) = "open"
         \/ /\ LastStableOffset >= LogEndOffset(log)
            /\ \A reader \in Readers : positions[reader] >= LogEndOffset(log))
ReadersReachEndWitness == LogEndOffset(log) > 0 /\ \A reader \in Readers : positions[reader] = LogEndOffset(log)

=============================================================================
