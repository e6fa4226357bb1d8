--------------------- MODULE TransactionalPartitionMutants --------------------
(***************************************************************************)
(* Rules of a partition that transactions write to, with one thing         *)
(* changed. A model puts one of them in the place of the rule; the Python  *)
(* function of the same name does the same to the reference.               *)
(***************************************************************************)
EXTENDS TransactionalPartition

(* for IsOldBatch: a leader takes batches of any epoch *)
AnyBatchEpoch(producer, batch) == FALSE

(* for IsOutsideTransaction: a batch of no transaction may stand inside one *)
PlainInside(producer, batch) == FALSE

(* for IsOldMarker: a leader takes markers of any epoch *)
AnyMarkerEpoch(producer, marker) == FALSE

(* for IsOldMarker: a marker of an open transaction's own epoch ends it, as before Kafka 4.2 (KAFKA-19446) *)
OwnEpochEnds(producer, marker) == marker.epoch < producer.epoch

(* for IsOldMarker: a marker that has been written is refused when it comes again (KAFKA-19999) *)
NoMarkerTwice(producer, marker) == marker.epoch <= producer.epoch

(* for IsOfOldCoordinator: the coordinator that is known may not write again *)
PresentCoordinatorIsFenced(producer, marker) == marker.coordinatorEpoch <= producer.coordinatorEpoch

(* for IsOfOldCoordinator: a leader takes markers of a coordinator that has been replaced (KAFKA-9144) *)
AnyCoordinator(producer, marker) == FALSE

(* for IsIndexed: the index gets no entry at all *)
NothingIndexed(marker) == FALSE

(* for IsIndexed: committed transactions are in the index as well *)
CommittedIndexed(marker) == TRUE

Indexed(before, marker, firstOffset, lastOffset) ==
    IF ~IsIndexed(marker) THEN before
    ELSE [before EXCEPT !.abortedIndex = Append(@,
             [producerId |-> marker.producerId, firstOffset |-> firstOffset, lastOffset |-> lastOffset,
              lastStableOffset |-> StableOffsetAfter(before.transactions, marker.producerId, marker.offset)])]

(* for WithIndexEntry: the entry ends before the marker *)
EndsBeforeMarker(before, marker, firstOffset) == Indexed(before, marker, firstOffset, marker.offset - 1)

(* for WithIndexEntry: the entry ends behind the marker *)
EndsBehindMarker(before, marker, firstOffset) == Indexed(before, marker, firstOffset, marker.offset + 1)

(* for StableOffsetAfter: an entry of the index claims that nothing else was open *)
NothingElseOpen(transactions, producerId, offset) == offset + 1

(* for StableOffsetAfter: an entry of the index claims that everything was open; only searches take longer *)
EverythingElseOpen(transactions, producerId, offset) == 0

(* for StableOffsetAfter, together with AppendedAtOnce: the producer's own next transaction counts *)
OwnNextCounts(transactions, producerId, offset) ==
    LET open   == {transaction \in transactions : transaction.lastOffset = NoOffset}
        others == {t.firstOffset : t \in {each \in open : each.producerId # producerId \/ each.firstOffset > offset}}
    IN  IF others = {} THEN offset + 1 ELSE Least(others)

(* for WithoutIndexEntry: the last stable offset advances although the index lacks the entry (KAFKA-7866) *)
CompletedUnindexed(before, given) ==
    LET entry == AtEnd(before, given)
    IN  WithCompleted(WithEntry(before, entry), entry, before.producers[entry.producerId].firstOffset)

(* for AfterLoad: a snapshot of the log's end was loaded, which has open transactions only, as in Kafka *)
OngoingOnly(before) == [before EXCEPT !.transactions = {t \in @ : t.lastOffset = NoOffset}]

(* for AfterLoad: a replica that leads fences the producers of open transactions, which no marker ends then *)
OpenAreFenced(before) ==
    [before EXCEPT !.producers =
        [id \in DOMAIN @ |-> IF IsOpen(@[id]) THEN [@[id] EXCEPT !.epoch = @ + 1] ELSE @[id]]]

(* for ElectLeader: a replica leads that has truncated its log to the high watermark that it knew, above 0 *)
TruncatedLeads(endOffset, watermark) ==
    /\ leaderEpoch < MaxLeaderEpoch
    /\ IsBoundary(endOffset)
    /\ endOffset = watermark /\ watermark > 0
    /\ watermark <= replicated
    /\ log' = WithReplicated(AfterLoad(Replay(EmptyLog, EntriesBelow(endOffset))), watermark)
    /\ highWatermark' = watermark
    /\ replicated' = watermark
    /\ leaderEpoch' = leaderEpoch + 1

RECURSIVE IndexNotRebuilt(_, _)
(* for Replay: a replica that becomes the leader has no index *)
IndexNotRebuilt(before, entries) ==
    IF entries = <<>> THEN before
    ELSE IndexNotRebuilt([Written(before, Head(entries)) EXCEPT !.abortedIndex = <<>>], Tail(entries))

RECURSIVE TransactionsNotRebuilt(_, _)
(* for Replay: a replica that becomes the leader knows of no transaction that is open *)
TransactionsNotRebuilt(before, entries) ==
    IF entries = <<>> THEN before
    ELSE TransactionsNotRebuilt([Written(before, Head(entries)) EXCEPT !.transactions = {}], Tail(entries))

RECURSIVE EndedIn(_, _)
(* The markers among some entries that end data, each with the first offset of what it ends. *)
EndedIn(before, entries) ==
    IF entries = <<>> THEN <<>>
    ELSE LET entry == Head(entries)
             first == before.producers[entry.producerId].firstOffset
         IN  (IF IsMarker(entry) /\ first # NoOffset THEN <<[marker |-> entry, firstOffset |-> first]>> ELSE <<>>)
                 \o EndedIn(WithEntry(before, entry), Tail(entries))

RECURSIVE TakenIn(_, _)
TakenIn(before, entries) == IF entries = <<>> THEN before ELSE TakenIn(WithEntry(before, Head(entries)), Tail(entries))

RECURSIVE AllCompleted(_, _)
AllCompleted(before, ended) ==
    IF ended = <<>> THEN before
    ELSE LET marker == Head(ended).marker
             first  == Head(ended).firstOffset
         IN  AllCompleted(WithCompleted(WithIndexEntry(before, marker, first), marker, first), Tail(ended))

(* for Replay: a follower takes in a whole response before it writes the entries of the index, as in Kafka *)
AppendedAtOnce(before, entries) == AllCompleted(TakenIn(before, entries), EndedIn(before, entries))

(* for UnstableOffsets: a marker counts before it is replicated *)
OpenOnly == {t.firstOffset : t \in {transaction \in log.transactions : transaction.lastOffset = NoOffset}}

(* for FirstUnstableOffset: the last of the open transactions decides, not the first *)
LastUnstableOffset == CHOOSE offset \in UnstableOffsets : \A other \in UnstableOffsets : other <= offset

(* for LastStableOffset: every replicated entry is stable *)
HighWatermarkOnly == highWatermark

(* for LastStableOffset: it is after the first record of an open transaction, not before it *)
FirstRecordIsStable == IF UnstableOffsets = {} THEN highWatermark ELSE Smaller(highWatermark, FirstUnstableOffset + 1)

(* for MayExpire: a producer may be forgotten in the middle of a transaction *)
ExpireInside(producer) == TRUE

(* for Forgotten, together with ExpireInside: its transactions are forgotten as well *)
ForgottenTransactions(before, producerId) ==
    [before EXCEPT !.producers = [@ EXCEPT ![producerId] = NoProducer],
                   !.transactions = {t \in @ : t.producerId # producerId}]

(* for MayCleanMarker: a marker goes before the batches of its transaction (KAFKA-8351, KAFKA-14055) *)
MarkerCleanedEarly(i) == TRUE

(* Interesting states, which have to be reached *)
HasIndexEntry      == log.abortedIndex # <<>>
HasUnindexed       == \E i \in Batches(log.entries) : IsUnindexed(i)
HasOverlap         == \E k, l \in DOMAIN log.abortedIndex :
                          k < l /\ log.abortedIndex[l].firstOffset < log.abortedIndex[k].lastOffset
HasUnreplicated    == \E transaction \in log.transactions : transaction.lastOffset # NoOffset
HasOldWatermark    == highWatermark < replicated
HasMergedEpochs    == \E j \in DOMAIN log.entries : IsMarker(log.entries[j]) /\
                          Cardinality({log.entries[i].epoch : i \in BatchesEndedBy(log.entries, j)}) > 1
HasForgotten       == \E i \in DOMAIN log.entries : log.producers[log.entries[i].producerId] = NoProducer
HasCleanedMarker   == \E i, j \in DOMAIN log.entries :
                          j = i + 1 /\ log.entries[j].offset > log.entries[i].offset + 2

=============================================================================
