---------------------------- MODULE ConsumerMutants ---------------------------
(***************************************************************************)
(* Rules of reading with one thing changed, and claims that do not hold. A *)
(* model puts one of them in the place of the rule; the Python function of *)
(* the same name does the same to the reference.                           *)
(***************************************************************************)
EXTENDS Consumer, TransactionalPartitionMutants

(* for CommittedLimit: the last stable offset is read as well *)
LimitIncluded == Smaller(highWatermark, LastStableOffset + 1)

(* for UpperBound: aborted transactions are not looked for at the response's last entry (KAFKA-17801) *)
UpperBoundTooSmall(fetched) == fetched[Len(fetched)].offset

(* for UpperBound: as coarse as can be, up to the end of the log *)
UpperBoundAtLogEnd(fetched) == LogEndOffset(log)

(* for CollectAborted: the response loses its list (KAFKA-5376) *)
ListLost(position, upper) == <<>>

(* for Overlaps: only transactions that begin in the response overlap it *)
BeginsInside(transaction, position, upper) ==
    transaction.firstOffset >= position /\ transaction.firstOffset < upper

(* for EndsScan: the search ends with the first transaction that begins after the response *)
StopsAtFirstBehind(transaction, upper) == transaction.firstOffset >= upper

(* for EndsScan: the search ends with the first transaction that ends after the response *)
StopsAtLastBehind(transaction, upper) == transaction.lastOffset >= upper

(* for HasBegun: a transaction begins after its first record *)
BegunBefore(transaction, entry) == transaction.firstOffset < entry.offset

(* for HasBegun: every transaction of the list has begun where the response begins *)
BegunAlready(transaction, entry) == TRUE

(* for Begun: the list is taken to be in the order of first offsets (franz-go 1.21.4) *)
ListTakenAsSorted(aborted, waiting, entry) ==
    {k \in waiting : \A l \in waiting : l <= k => HasBegun(aborted[l], entry)}

(* for StillActive: an abort marker does not end what it aborts (librdkafka 1.7.0) *)
AbortNeverEnds(active, entry) == active

(* for StillActive: a commit marker clears the producer as well *)
CommitEndsToo(active, entry) == IF IsMarker(entry) THEN active \ {entry.producerId} ELSE active

(* for IsPassedOn: markers are passed on like records *)
MarkersPassedOn(entry) == TRUE

(* for NextPosition: the position follows the last record passed on, if there was one (aiokafka 781) *)
PositionOfRecords(position, fetched, read) == IF read = <<>> THEN position ELSE read[Len(read)] + 1

(* for NextPosition: the position stays at the last record passed on *)
LastRecordAgain(position, fetched, read) ==
    IF read = <<>> THEN fetched[Len(fetched)].offset + 1 ELSE read[Len(read)]

(* for StillHeld: the records of a committed transaction stay in the buffer after they have been passed on *)
CommittedStillHeld(mine, entry) ==
    IF entry.kind = "abort" THEN <<>> ELSE IF entry.kind = "transactional" THEN Append(mine, entry.offset) ELSE mine

(* The last stable offset is less than the first offset of every open transaction. *)
StableOffsetIsLess ==
    \A i \in Batches(log.entries) : Fate(log.entries, i) = "open" => LastStableOffset < log.entries[i].offset

(* What is committed, marker and all, on every replica, is there to be read. *)
CommittedIsReadable ==
    \A i \in Batches(log.entries) :
        log.entries[i].offset < highWatermark /\ Fate(log.entries, i) \in {"plain", "commit"}
            /\ IsDecidedBelow(i, highWatermark) => log.entries[i].offset < LastStableOffset

(* A reader that was given one record of a transaction was given all of them. *)
TransactionIsSeenAtOnce ==
    \A reader \in ReadersOfCommitted : \A j \in DOMAIN log.entries :
        LET batches == BatchesEndedBy(log.entries, j)
        IN  IsMarker(log.entries[j]) /\ batches \cap PlacesOf(reader) # {} => batches \subseteq PlacesOf(reader)

(* The buffering reader never holds more than one record. *)
OneRecordIsHeld == mostHeld <= 1

(* Interesting states, which have to be reached *)
HasFilteredAborted  == \E i \in Batches(log.entries) :
                           Fate(log.entries, i) = "abort" /\ log.entries[i].offset < positions["read_committed"]
HasReadCommitted    == \E i \in PlacesOf("read_committed") : Fate(log.entries, i) = "commit"
HasReadAborted      == \E i \in PlacesOf("read_uncommitted") : Fate(log.entries, i) = "abort"
HasReadOpen         == \E i \in PlacesOf("read_uncommitted") : Fate(log.entries, i) = "open"
HasPositionAbove    == positions["read_committed"] > LastStableOffset
HasBufferedMore     == mostHeld > 1
HasOvertaken        == positions["buffering"] > LastStableOffset /\ delivered["buffering"] # <<>>

(* for Everything: a reader is given the last record of a response only *)
OnlyTheLastRecord(fetched) ==
    LET found == SelectSeq(fetched, LAMBDA entry : IsPassedOn(entry))
    IN  IF found = <<>> THEN <<>> ELSE <<found[Len(found)].offset>>

(* for Everything: a reader is given the records of a response from the last to the first *)
LastRecordFirst(fetched) ==
    LET found == SelectSeq(fetched, LAMBDA entry : IsPassedOn(entry))
    IN  [k \in DOMAIN found |-> found[Len(found) + 1 - k].offset]

(* for NextPosition: after a response without a record it goes back over a marker before it *)
BackOverMarker(position, fetched, read) ==
    IF read = <<>> /\ \E i \in DOMAIN log.entries : log.entries[i].offset = position - 1 /\ IsMarker(log.entries[i])
    THEN position - 1 ELSE fetched[Len(fetched)].offset + 1

(* for Readable: a reader is given two records of two producers in the other order *)
OtherProducerFirst(fetched, aborted) ==
    LET read == Passed(fetched, aborted, DOMAIN aborted, {})
        producerOf(offset) == fetched[CHOOSE i \in DOMAIN fetched : fetched[i].offset = offset].producerId
    IN  IF Len(read) = 2 /\ producerOf(read[1]) # producerOf(read[2]) THEN <<read[2], read[1]>> ELSE read

(* A reader goes on behind a response, but not over a marker of this kind right behind a batch. *)
StopsAt(kind, fetched) ==
    LET last == fetched[Len(fetched)]
    IN  IF last.kind = kind /\ \E i \in Batches(log.entries) : log.entries[i].offset = last.offset - 1
        THEN last.offset ELSE last.offset + 1

(* for NextPosition: a reader never passes the marker of a committed transaction *)
StopsAtCommit(position, fetched, read) == StopsAt("commit", fetched)

(* for NextPosition: a reader never passes the marker of an aborted transaction *)
StopsAtAbort(position, fetched, read) == StopsAt("abort", fetched)

=============================================================================
