------------------------ MODULE PartitionLogInduction -------------------------
(***************************************************************************)
(* The invariant that kafka-eos check proofs shows to be inductive, for TLC: the  *)
(* search begins with every state of some small logs that has it, reached  *)
(* or not, and may leave it by no action.                                  *)
(*                                                                         *)
(* StateFollowsLog, SnapshotFollowsLog, SnapshotIsOfTheLog and             *)
(* OffsetsAreDense leave no choice but the batches and the place of the    *)
(* snapshot: so IndInit chooses these, and the rest follows.               *)
(***************************************************************************)
EXTENDS PartitionLog

CONSTANT MaxEntries    \* batches in the log

Places == DOMAIN log.entries

(* The place of the batch before, of the same producer; 0 if there is none. *)
Previous(i) ==
    LET earlier == {j \in 1..(i - 1) : log.entries[j].producerId = log.entries[i].producerId}
    IN  IF earlier = {} THEN 0 ELSE CHOOSE j \in earlier : \A k \in earlier : k <= j

RECURSIVE Position(_)
(* The records of the epoch before a batch, without wrap, from the epoch's first batch in the log on. *)
Position(i) ==
    LET before == Previous(i)
    IN  IF before # 0 /\ log.entries[before].epoch = log.entries[i].epoch
        THEN Position(before) + log.entries[before].count
        ELSE log.entries[i].sequence

EndOf(entries) == LogEndOffset([entries |-> entries])

(* The same holds for its state in the snapshot, for the batches before that. *)
SnapshotFollowsLog ==
    log.snapshot.producers =
        Replay(NoProducers, SelectSeq(log.entries, LAMBDA entry : entry.offset < log.snapshot.offset))
SnapshotFollowsLogWitness == log.snapshot.producers # NoProducers

(* The snapshot's offset is the end of a batch of the log. *)
SnapshotIsOfTheLog == \E n \in 0..Len(log.entries) : log.snapshot.offset = EndOf(SubSeq(log.entries, 1, n))
SnapshotIsOfTheLogWitness == 0 < log.snapshot.offset /\ log.snapshot.offset < LogEndOffset(log)

(* A batch has a record, and those in a cache have fewer than the sequences. *)
BatchesAreWellFormed ==
    \A i \in Places : log.entries[i].count >= 1 /\ log.entries[i].count * CachedBatches <= MaxSequence
BatchesAreWellFormedWitness == Places # {}

(* A later batch begins after an earlier one's end. *)
OffsetsGrow ==
    \A i, j \in Places : i < j => log.entries[i].offset + log.entries[i].count <= log.entries[j].offset
OffsetsGrowWitness == Len(log.entries) > 2

(* A sequence is the position in the epoch modulo the number of sequences. *)
SequenceIsPosition == \A i \in Places : log.entries[i].sequence = Position(i) % (MaxSequence + 1)
SequenceIsPositionWitness == \E i \in Places : Position(i) > MaxSequence

(* Two batches of an epoch share no position. *)
PositionsAreDisjoint ==
    \A i, j \in Places :
        /\ i < j
        /\ log.entries[i].producerId = log.entries[j].producerId
        /\ log.entries[i].epoch = log.entries[j].epoch
        => Position(i) + log.entries[i].count <= Position(j)
PositionsAreDisjointWitness ==
    \E i, j \in Places : /\ i < j
                         /\ log.entries[i].producerId = log.entries[j].producerId
                         /\ log.entries[i].epoch = log.entries[j].epoch

Inductive ==
    /\ StateFollowsLog
    /\ SnapshotFollowsLog
    /\ SnapshotIsOfTheLog
    /\ BatchesAreWellFormed
    /\ OffsetsAreDense
    /\ OffsetsGrow
    /\ SequenceIsPosition
    /\ PositionsAreDisjoint
    /\ NoGapAtEpochStart
    /\ NoGapAtLogStart
    /\ EpochsNeverGoBack

Batches == [producerId : ProducerIds, epoch : Epochs, sequence : Sequences, count : BatchCounts]

RECURSIVE Stored(_, _)
(* Batches with the offsets that they have in a log. *)
Stored(entries, batches) ==
    IF batches = <<>> THEN entries
    ELSE LET batch == Head(batches)
         IN  Stored(Append(entries, [producerId |-> batch.producerId, epoch |-> batch.epoch,
                                     sequence |-> batch.sequence, count |-> batch.count,
                                     offset |-> EndOf(entries)]), Tail(batches))

(* Every state of a small log that has the invariant. *)
IndInit ==
    /\ \E n \in 0..MaxEntries : \E batches \in [1..n -> Batches] : \E taken \in 0..n :
        LET entries == Stored(<<>>, batches)
            before  == SubSeq(entries, 1, taken)
        IN  log = [entries   |-> entries,
                   producers |-> Replay(NoProducers, entries),
                   snapshot  |-> [offset |-> EndOf(before), producers |-> Replay(NoProducers, before)]]
    /\ response = Response(Batch(NoProducerId, -1, -1, 0), "NONE", -1)
    /\ Inductive

IndSpec == IndInit /\ [][Next]_vars

Bounds == Len(log.entries) <= MaxEntries

=============================================================================
