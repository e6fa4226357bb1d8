--------------------- MODULE TransactionalOffsetsMutants ----------------------
(* Rules of TransactionalOffsets with one thing changed. *)
EXTENDS TransactionalOffsets

(* for IsOutdated: nothing distinguishes a late retry from a new offset, as in Kafka *)
NothingIsOutdated(send) == FALSE

(* for CanSend: a transaction has one send of offsets *)
CanSendOnce ==
    IF client.state = "open" THEN SentWithin(client.number) = {} ELSE client.number + 1 \in Numbers

(* for CommittedAtOffset: an offset counts as soon as it is written *)
OffsetCommittedAtOnce(known, entry) == entry.offset

(* for CommittedAtEnd: any marker commits the pending offset *)
AbortCommitsOffset(known, entry) == IF known.pending # NoOffset THEN known.pending ELSE known.committed

(* for IsOngoing: the epoch of the open transaction is not compared *)
OpenInAnyEpoch(send) == memory.pending # NoOffset

(* for VerificationError: the coordinator vouches for any send *)
OffsetsOfAnyTransaction(send) == "NONE"

(* for AnsweredAt: the answer waits for nothing *)
AnsweredAtOnce(position) == replicated

(* for AppliesAtOnce: a task gives effect to a marker, as in Kafka 3.9 *)
AppliesByTask == FALSE

(* for Readable: a fetch reads the coordinator's memory, as in Kafka 3.9 *)
ReadsMemory == memory

(* for FetchedEntries: a fetch reads the whole log *)
FetchDoesNotWait == log

(* for IsUnstable: a fetch ignores pending offsets *)
FetchOfUnstable(known) == FALSE

(* for KnownAfterLoad: pending offsets are forgotten *)
PendingNotLoaded(entries) == [Loaded(entries) EXCEPT !.pending = NoOffset]

=============================================================================
