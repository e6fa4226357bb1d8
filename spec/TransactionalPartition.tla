------------------------ MODULE TransactionalPartition ------------------------
(***************************************************************************)
(* One partition that transactions write to: its leader's log with batches *)
(* and markers of several producers, the last stable offset, and the index *)
(* of aborted transactions.                                                *)
(*                                                                         *)
(* Modelled: any batches and markers, valid or not, and which of them the  *)
(*   leader refuses (markers by the rule of transaction version 2 or of    *)
(*   the versions before); the order of a marker's effects: log, index,    *)
(*   last stable offset, and storage that fails in between (KAFKA-7866);   *)
(*   the high watermark; elections, after which the leader has any part of *)
(*   the log that holds what is replicated, and perhaps an older high      *)
(*   watermark; expiry of producers; a cleaner that removes records and,   *)
(*   once its transaction has none left, a marker.                         *)
(* Assumed, not checked: what is below the high watermark is on every      *)
(*   replica that may lead (ReplicatedLog); replicas clean alike, so that  *)
(*   none copies what is left of a transaction without its marker (a       *)
(*   replica that is away for longer than delete.retention.ms does).       *)
(* Out of scope: sequences and duplicates (ProducerState); coordinator and *)
(*   verification, which decide what a leader is sent (Transactions);      *)
(*   DeleteRecords and retention, which move the log's start; the empty    *)
(*   batches that the cleaner keeps for the epochs that they carry.        *)
(*                                                                         *)
(* KIPs: 98, 890, 1228.  Kafka: UnifiedLog, ProducerStateManager,          *)
(* ProducerAppendInfo, TransactionIndex, Cleaner.                          *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    ProducerIds,         \* the producers whose batches and markers arrive
    Epochs,              \* the producer epochs that these carry
    MaxEpoch,            \* the last producer epoch; 32767 in Kafka
    CoordinatorEpochs,   \* the coordinator epochs that markers carry
    BatchKinds,          \* what batches may be: of "transactional", "plain"
    Offsets,             \* 0..n: where the log may end
    TransactionVersion,  \* 1 or 2
    MaxLeaderEpoch,      \* how many elections there may be
    IndexFailures,       \* TRUE: the storage may fail to write an entry of the index
    Expiration,          \* TRUE: a producer's state may expire
    Cleaning             \* TRUE: the log is compacted

VARIABLES
    log,                 \* the leader's log: its entries, its producers, their transactions, and the index of aborted ones
    highWatermark,       \* the offset up to which the leader knows the log to be replicated
    replicated,          \* the offset up to which the log is replicated
    leaderEpoch          \* counts the elections

partitionVars == <<log, highWatermark, replicated, leaderEpoch>>

NoOffset == -1

NoProducer == [epoch |-> -1, coordinatorEpoch |-> -1, firstOffset |-> NoOffset]

(* log.transactions has those that hold the last stable offset back: [producerId, firstOffset, lastOffset]. The last is *)
(* the marker's offset, and NoOffset as long as there is no marker, or none that took effect.                           *)
EmptyLog == [entries |-> <<>>, producers |-> [producerId \in ProducerIds |-> NoProducer], transactions |-> {},
             abortedIndex |-> <<>>]

PartitionInit ==
    /\ log = EmptyLog
    /\ highWatermark = 0
    /\ replicated = 0
    /\ leaderEpoch = 0

Least(offsets)    == CHOOSE offset \in offsets : \A other \in offsets : offset <= other
Larger(a, b)      == IF a > b THEN a ELSE b
Smaller(a, b)     == IF a < b THEN a ELSE b

(* An entry: a batch of one record ("transactional", "plain"), or a marker ("commit", "abort"). *)
Entry(kind, producerId, epoch, coordinatorEpoch) ==
    [kind |-> kind, offset |-> NoOffset, producerId |-> producerId, epoch |-> epoch,
     coordinatorEpoch |-> coordinatorEpoch]

Batch(producerId, epoch, kind) == Entry(kind, producerId, epoch, -1)

Marker(producerId, epoch, commit, coordinatorEpoch) ==
    Entry(IF commit THEN "commit" ELSE "abort", producerId, epoch, coordinatorEpoch)

IsMarker(entry) == entry.kind \in {"commit", "abort"}

(* The offset of the next entry. The cleaner never takes the last one. *)
LogEndOffset(before) ==
    IF before.entries = <<>> THEN 0 ELSE before.entries[Len(before.entries)].offset + 1

(***************************************************************************)
(* What a leader refuses                                                   *)
(***************************************************************************)

IsOpen(producer) == producer.firstOffset # NoOffset

(* A batch is of an older epoch than the producer's. *)
IsOldBatch(producer, batch) == batch.epoch < producer.epoch

(* A batch does not belong to the transaction that its producer has open. *)
IsOutsideTransaction(producer, batch) == batch.kind = "plain" /\ IsOpen(producer)

(* The reason why a leader refuses a batch; "NONE" if it does not.    Kafka: ProducerAppendInfo.appendDataBatch *)
BatchError(before, batch) ==
    LET producer == before.producers[batch.producerId] IN
    IF IsOldBatch(producer, batch) THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF IsOutsideTransaction(producer, batch) THEN "INVALID_TXN_STATE"
    ELSE "NONE"

(* A marker's epoch has passed. Under version 2 it is above its data's, or the same when it has been written already. *)
IsOldMarker(producer, marker) ==
    \/ marker.epoch < producer.epoch
    \/ TransactionVersion = 2 /\ marker.epoch = producer.epoch /\ IsOpen(producer) /\ marker.epoch # MaxEpoch

(* A marker is of a coordinator that has been replaced. *)
IsOfOldCoordinator(producer, marker) == marker.coordinatorEpoch < producer.coordinatorEpoch

(* The reason why a leader refuses a marker; "NONE" if it does not.    Kafka: ProducerAppendInfo.appendEndTxnMarker *)
MarkerError(before, marker) ==
    LET producer == before.producers[marker.producerId] IN
    IF IsOldMarker(producer, marker) THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF IsOfOldCoordinator(producer, marker) THEN "TRANSACTION_COORDINATOR_FENCED"
    ELSE "NONE"

(***************************************************************************)
(* What an entry does to the log                                           *)
(***************************************************************************)

(* A producer after one of its entries. A batch of a later epoch joins the transaction that is open. *)
Remembered(producer, entry) ==
    IF IsMarker(entry)
    THEN [epoch |-> entry.epoch, coordinatorEpoch |-> entry.coordinatorEpoch, firstOffset |-> NoOffset]
    ELSE [producer EXCEPT !.epoch = entry.epoch,
                          !.firstOffset = IF entry.kind = "transactional" /\ @ = NoOffset THEN entry.offset ELSE @]

Ongoing(producerId, firstOffset) ==
    [producerId |-> producerId, firstOffset |-> firstOffset, lastOffset |-> NoOffset]

(* The log and its producers after an entry: the first effect of every append. *)
WithEntry(before, entry) ==
    LET producer == Remembered(before.producers[entry.producerId], entry) IN
    [before EXCEPT !.entries = Append(@, entry),
                   !.producers = [@ EXCEPT ![entry.producerId] = producer],
                   !.transactions = IF IsOpen(producer)
                                    THEN @ \cup {Ongoing(entry.producerId, producer.firstOffset)} ELSE @]

(* The last stable offset after a transaction has ended, if all were replicated. *)
StableOffsetAfter(transactions, producerId, offset) ==
    LET others == {transaction.firstOffset :
                      transaction \in {t \in transactions : t.producerId # producerId /\ t.lastOffset = NoOffset}}
    IN  IF others = {} THEN offset + 1 ELSE Least(others)

(* A marker whose transaction the index has to hold. *)
IsIndexed(marker) == marker.kind = "abort"

(* The log with a transaction's entry in the index: the second effect of a marker. *)
WithIndexEntry(before, marker, firstOffset) ==
    IF ~IsIndexed(marker) THEN before
    ELSE [before EXCEPT !.abortedIndex = Append(@,
             [producerId |-> marker.producerId, firstOffset |-> firstOffset, lastOffset |-> marker.offset,
              lastStableOffset |-> StableOffsetAfter(before.transactions, marker.producerId, marker.offset)])]

(* The log with a transaction that has ended: the last effect of a marker. *)
WithCompleted(before, marker, firstOffset) ==
    LET ongoing == Ongoing(marker.producerId, firstOffset) IN
    [before EXCEPT !.transactions = (@ \ {ongoing}) \cup {[ongoing EXCEPT !.lastOffset = marker.offset]}]

AtEnd(before, entry) == [entry EXCEPT !.offset = LogEndOffset(before)]

(* The log after an entry that has its offset. *)
Written(before, entry) ==
    LET first == before.producers[entry.producerId].firstOffset
        after == WithEntry(before, entry)
    IN  IF IsMarker(entry) /\ first # NoOffset
        THEN WithCompleted(WithIndexEntry(after, entry, first), entry, first)
        ELSE after

(* The log after a batch or a marker. *)
Appended(before, given) == Written(before, AtEnd(before, given))

(* The log after a marker that the index could not take: its transaction still holds the last stable offset. *)
WithoutIndexEntry(before, given) == WithEntry(before, AtEnd(before, given))

RECURSIVE Replay(_, _)
(* The log of a replica after some more entries, without any check.                                               *)
(* Departs from Kafka: a follower there first appends all entries of a fetch. Then it writes the index, with last *)
(* stable offsets that are too high (the mutant AppendedAtOnce).                                                  *)
Replay(before, entries) == IF entries = <<>> THEN before ELSE Replay(Written(before, Head(entries)), Tail(entries))

(* The log that a replica has when it leads: it knows every transaction that holds the last stable offset back.          *)
(* Departs from Kafka: a replica that has restarted or truncated its log loads a snapshot, which has open transactions   *)
(* only. There an ended transaction is stable below the high watermark although its marker is above it (OngoingOnly).    *)
AfterLoad(before) == before

(* The log once the transactions whose marker is replicated no longer hold the last stable offset back. *)
WithReplicated(before, offset) ==
    [before EXCEPT !.transactions = {t \in @ : t.lastOffset = NoOffset \/ t.lastOffset >= offset}]

(***************************************************************************)
(* The last stable offset                                                  *)
(***************************************************************************)

(* The first offsets of transactions that are open, or whose marker is not replicated. *)
UnstableOffsets == {transaction.firstOffset : transaction \in log.transactions}

(* The first of the offsets that are not stable. *)
FirstUnstableOffset == Least(UnstableOffsets)

(* The offset at which reading of committed data ends. *)
LastStableOffset ==
    IF UnstableOffsets = {} THEN highWatermark ELSE Smaller(highWatermark, FirstUnstableOffset)

(***************************************************************************)
(* What arrives                                        WHO: the leader     *)
(***************************************************************************)

HasRoom == LogEndOffset(log) + 1 \in Offsets

(* The leader appends a batch that passed every check. *)
AppendBatch(producerId, epoch, kind) ==
    /\ HasRoom
    /\ BatchError(log, Batch(producerId, epoch, kind)) = "NONE"
    /\ log' = Appended(log, Batch(producerId, epoch, kind))
    /\ UNCHANGED <<highWatermark, replicated, leaderEpoch>>

(* The leader appends a marker that passed every check, whether there is a transaction to end or not. *)
AppendMarker(producerId, epoch, commit, coordinatorEpoch) ==
    LET marker == Marker(producerId, epoch, commit, coordinatorEpoch) IN
    /\ HasRoom
    /\ MarkerError(log, marker) = "NONE"
    /\ log' = Appended(log, marker)
    /\ UNCHANGED <<highWatermark, replicated, leaderEpoch>>

(* The storage fails after the leader has appended an abort marker and before the index has its entry. *)
FailIndexEntry(producerId, epoch, coordinatorEpoch) ==
    LET marker == Marker(producerId, epoch, FALSE, coordinatorEpoch) IN
    /\ IndexFailures
    /\ HasRoom
    /\ MarkerError(log, marker) = "NONE"
    /\ IsOpen(log.producers[producerId])
    /\ log' = WithoutIndexEntry(log, marker)
    /\ UNCHANGED <<highWatermark, replicated, leaderEpoch>>

(***************************************************************************)
(* Replication and elections                   WHO: leader and controller  *)
(***************************************************************************)

EntriesFrom(offset)  == SelectSeq(log.entries, LAMBDA entry : entry.offset >= offset)
EntriesBelow(offset) == SelectSeq(log.entries, LAMBDA entry : entry.offset < offset)

(* The leader learns that one more entry is replicated. *)
AdvanceHighWatermark ==
    /\ EntriesFrom(highWatermark) # <<>>
    /\ highWatermark' = EntriesFrom(highWatermark)[1].offset + 1
    /\ replicated' = Larger(replicated, highWatermark')
    /\ log' = WithReplicated(log, highWatermark')
    /\ UNCHANGED leaderEpoch

IsBoundary(offset) == offset = 0 \/ \E i \in DOMAIN log.entries : log.entries[i].offset + 1 = offset

(* A replica that has the log up to an offset leads; the high watermark that it knows may be an older one. *)
ElectLeader(endOffset, watermark) ==
    /\ leaderEpoch < MaxLeaderEpoch
    /\ IsBoundary(endOffset)
    /\ replicated <= endOffset
    /\ watermark <= replicated
    /\ log' = WithReplicated(AfterLoad(Replay(EmptyLog, EntriesBelow(endOffset))), watermark)
    /\ highWatermark' = watermark
    /\ leaderEpoch' = leaderEpoch + 1
    /\ UNCHANGED replicated

(***************************************************************************)
(* What time does                                      WHO: the leader     *)
(***************************************************************************)

(* A producer that may be forgotten has no transaction open. *)
MayExpire(producer) == ~IsOpen(producer)

(* The log with a producer forgotten. *)
Forgotten(before, producerId) == [before EXCEPT !.producers = [@ EXCEPT ![producerId] = NoProducer]]

(* The leader forgets a producer that has been silent for too long. *)
ExpireProducer(producerId) ==
    /\ Expiration
    /\ log.producers[producerId] # NoProducer
    /\ MayExpire(log.producers[producerId])
    /\ log' = Forgotten(log, producerId)
    /\ UNCHANGED <<highWatermark, replicated, leaderEpoch>>

(* The batches that are left of the transaction that a marker ends. Batches and marker are given by their places. *)
BatchesEndedBy(entries, j) ==
    {i \in 1..(j - 1) :
        /\ entries[i].kind = "transactional" /\ entries[i].producerId = entries[j].producerId
        /\ \A k \in (i + 1)..(j - 1) : IsMarker(entries[k]) => entries[k].producerId # entries[j].producerId}

(* A marker may be removed when no batch of its transaction is left. *)
MayCleanMarker(i) == BatchesEndedBy(log.entries, i) = {}

(* The cleaner removes a superseded record or a marker, but never the last entry below the high watermark. *)
Clean(offset) ==
    /\ Cleaning
    /\ offset < LastStableOffset /\ offset + 1 < highWatermark
    /\ \E i \in DOMAIN log.entries :
        /\ log.entries[i].offset = offset
        /\ IsMarker(log.entries[i]) => MayCleanMarker(i)
    /\ log' = [log EXCEPT !.entries = SelectSeq(@, LAMBDA entry : entry.offset # offset),
                          !.abortedIndex = SelectSeq(@, LAMBDA transaction : transaction.lastOffset # offset)]
    /\ UNCHANGED <<highWatermark, replicated, leaderEpoch>>

PartitionStep ==
    \/ \E producerId \in ProducerIds :
        \/ \E epoch \in Epochs :
            \/ \E kind \in BatchKinds : AppendBatch(producerId, epoch, kind)
            \/ \E coordinatorEpoch \in CoordinatorEpochs :
                \/ FailIndexEntry(producerId, epoch, coordinatorEpoch)
                \/ \E commit \in BOOLEAN : AppendMarker(producerId, epoch, commit, coordinatorEpoch)
        \/ ExpireProducer(producerId)
    \/ AdvanceHighWatermark
    \/ \E endOffset \in Offsets, watermark \in Offsets : ElectLeader(endOffset, watermark)
    \/ \E offset \in Offsets : Clean(offset)

(***************************************************************************)
(* Properties, over the log alone                                          *)
(***************************************************************************)

(* The places of the markers of a batch's producer that come after it. *)
MarkersBehind(entries, i) ==
    {j \in (i + 1)..Len(entries) : IsMarker(entries[j]) /\ entries[j].producerId = entries[i].producerId}

(* The fate of a batch: "plain" belongs to no transaction, "open" is undecided. *)
Fate(entries, i) ==
    IF entries[i].kind = "plain" THEN "plain"
    ELSE IF MarkersBehind(entries, i) = {} THEN "open"
    ELSE entries[Least(MarkersBehind(entries, i))].kind

Batches(entries) == {i \in DOMAIN entries : ~IsMarker(entries[i])}

(* The marker of an aborted batch is without its entry in the index. *)
IsUnindexed(i) ==
    /\ Fate(log.entries, i) = "abort"
    /\ ~\E k \in DOMAIN log.abortedIndex :
           log.abortedIndex[k].lastOffset = log.entries[Least(MarkersBehind(log.entries, i))].offset

(* A batch is decided by the entries below an offset. *)
IsDecidedBelow(i, offset) ==
    CASE Fate(log.entries, i) = "plain" -> TRUE
      [] Fate(log.entries, i) = "open"  -> FALSE
      [] OTHER -> log.entries[Least(MarkersBehind(log.entries, i))].offset < offset /\ ~IsUnindexed(i)

(* The last stable offset: nothing below it is undecided, nor decided by a marker that may be lost, and it is below the *)
(* first such batch, and below the high watermark. A transaction whose entry of the index is missing is undecided.      *)
StableOffsetFollowsLog ==
    LET undecided == {log.entries[i].offset : i \in {j \in Batches(log.entries) : ~IsDecidedBelow(j, highWatermark)}}
    IN  LastStableOffset = Least(undecided \cup {highWatermark})
StableOffsetFollowsLogWitness ==
    \E i \in Batches(log.entries) :
        log.entries[i].offset < highWatermark /\ ~IsDecidedBelow(i, highWatermark)

(* The entry that the index has to have for an abort marker. *)
IndexEntryOf(j) ==
    LET entries == log.entries
        marker  == entries[j]
        others  == {i \in Batches(entries) : i < j /\ entries[i].producerId # marker.producerId
                                               /\ ~IsDecidedBelow(i, marker.offset)}
    IN  [producerId |-> marker.producerId,
         firstOffset |-> Least({entries[i].offset : i \in BatchesEndedBy(entries, j)}),
         lastOffset |-> marker.offset,
         lastStableOffset |-> Least({entries[i].offset : i \in others} \cup {marker.offset + 1})]

(* The entries of the index are aborted transactions, each with what the log says, in the order of their markers. *)
IndexFollowsLog ==
    LET index == log.abortedIndex
        ended == {j \in DOMAIN log.entries : log.entries[j].kind = "abort" /\ BatchesEndedBy(log.entries, j) # {}}
    IN  /\ \A k \in DOMAIN index : \E j \in ended : index[k] = IndexEntryOf(j)
        /\ \A k \in 2..Len(index) : index[k - 1].lastOffset < index[k].lastOffset
IndexFollowsLogWitness == log.abortedIndex # <<>>

(* Every aborted batch below the last stable offset has its transaction in the index, even if batches were cleaned away. *)
AbortedAreIndexed ==
    \A i \in Batches(log.entries) :
        Fate(log.entries, i) = "abort" /\ log.entries[i].offset < LastStableOffset =>
            \E k \in DOMAIN log.abortedIndex :
                LET transaction == log.abortedIndex[k] IN
                /\ transaction.producerId = log.entries[i].producerId
                /\ transaction.firstOffset <= log.entries[i].offset
                /\ transaction.lastOffset = log.entries[Least(MarkersBehind(log.entries, i))].offset
AbortedAreIndexedWitness ==
    \E i \in Batches(log.entries) : Fate(log.entries, i) = "abort" /\ log.entries[i].offset < LastStableOffset

(* The leader's state of the producers is what it would find after a restart. *)
StateFollowsLog == log.producers = Replay(EmptyLog, log.entries).producers
StateFollowsLogWitness == \E j \in DOMAIN log.entries : IsMarker(log.entries[j])

(* Pairs of entries of one producer, the first of them being before the other. *)
Follows(i, j) == i < j /\ log.entries[i].producerId = log.entries[j].producerId

(* A fenced epoch stays fenced: the epochs of a producer never go back. *)
EpochsNeverGoBack ==
    \A i, j \in DOMAIN log.entries : Follows(i, j) => log.entries[i].epoch <= log.entries[j].epoch
EpochsNeverGoBackWitness == \E producerId \in ProducerIds, epoch \in Epochs : epoch < log.producers[producerId].epoch

(* A coordinator that has been replaced writes no marker any more. *)
CoordinatorsNeverGoBack ==
    \A i, j \in DOMAIN log.entries :
        Follows(i, j) /\ IsMarker(log.entries[i]) /\ IsMarker(log.entries[j]) =>
            log.entries[i].coordinatorEpoch <= log.entries[j].coordinatorEpoch
CoordinatorsNeverGoBackWitness ==
    \E producerId \in ProducerIds, coordinatorEpoch \in CoordinatorEpochs :
        coordinatorEpoch < log.producers[producerId].coordinatorEpoch

(* A batch that belongs to no transaction is not inside one of its producer's. *)
NothingPlainInside ==
    \A j \in DOMAIN log.entries : log.entries[j].kind = "plain" =>
        \A i \in Batches(log.entries) : Follows(i, j) /\ log.entries[i].kind = "transactional" =>
            \E k \in i..j : IsMarker(log.entries[k]) /\ Follows(i, k)
NothingPlainInsideWitness ==
    "plain" \in BatchKinds /\ HasRoom /\ \E producerId \in ProducerIds : IsOpen(log.producers[producerId])

(* Under version 2 a late marker of one transaction ends no other: its epoch is above that of all it decides. *)
MarkersAreAbove ==
    TransactionVersion = 2 =>
        \A j \in DOMAIN log.entries : IsMarker(log.entries[j]) =>
            \A i \in BatchesEndedBy(log.entries, j) :
                log.entries[i].epoch < log.entries[j].epoch \/ log.entries[j].epoch = MaxEpoch
MarkersAreAboveWitness ==
    TransactionVersion = 2 /\ \E j \in DOMAIN log.entries :
        IsMarker(log.entries[j]) /\ BatchesEndedBy(log.entries, j) # {}

(* A marker that comes again right away is not refused. *)
RepeatedMarkerIsTaken ==
    \A j \in DOMAIN log.entries :
        IsMarker(log.entries[j]) /\ ~(\E k \in DOMAIN log.entries : Follows(j, k)) =>
            MarkerError(log, log.entries[j]) = "NONE"
RepeatedMarkerIsTakenWitness ==
    \E j \in DOMAIN log.entries :
        IsMarker(log.entries[j]) /\ BatchesEndedBy(log.entries, j) # {} /\ ~\E k \in DOMAIN log.entries : Follows(j, k)

(* As long as one leader reigns, what is stable stays stable. After an election the high watermark, and with it the last *)
(* stable offset, may go back to what the new leader knows.                                                              *)
StableOffsetOnlyGrows ==
    [][leaderEpoch' = leaderEpoch => LastStableOffset' >= LastStableOffset]_partitionVars
StableOffsetOnlyGrowsWitness == leaderEpoch' = leaderEpoch /\ LastStableOffset' > LastStableOffset

(* The fate of a batch below the last stable offset never changes, whichever replica leads. *)
FateIsFinal ==
    [][\A i \in Batches(log.entries) : log.entries[i].offset < LastStableOffset =>
          /\ \A j \in DOMAIN log'.entries :
                log'.entries[j].offset = log.entries[i].offset =>
                    log'.entries[j] = log.entries[i] /\ Fate(log'.entries, j) = Fate(log.entries, i)
          /\ Cleaning \/ \E j \in DOMAIN log'.entries : log'.entries[j].offset = log.entries[i].offset]_partitionVars
FateIsFinalWitness ==
    /\ log'.entries # log.entries
    /\ \E i \in Batches(log.entries) :
          log.entries[i].offset < LastStableOffset /\ log.entries[i].kind = "transactional"

=============================================================================
