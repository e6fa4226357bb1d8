-------------------------------- MODULE Leader --------------------------------
(***************************************************************************)
(* One partition's complete leader: its state of producers, of their       *)
(* transactions and of its verification questions to the coordinator, and  *)
(* the checks of all three in Kafka's order. It answers any batch and any  *)
(* marker.                                                                 *)
(*                                                                         *)
(* Modelled: batches of clients, in a transaction of version 1 or 2 or     *)
(*   outside of one; batches of a coordinator, which have no sequence;     *)
(*   batches without a producer id; markers of both versions; verification *)
(*   with its guard; another leader; expiry of producers.                  *)
(* Assumed, not checked: requests are handled one at a time, as the lock   *)
(*   of UnifiedLog makes sure; what is appended is replicated at once.     *)
(* Out of scope: the coordinator, which vouches for every batch that it is *)
(*   asked about (Transactions); replication (ReplicatedLog), a high       *)
(*   watermark that lags, failures of storage, the cleaner                 *)
(*   (TransactionalPartition); snapshots and restart (PartitionLog).       *)
(*                                                                         *)
(* KIPs: 98, 360, 890, 1228.  Kafka:                                       *)
(* UnifiedLog.analyzeAndValidateProducerState, ProducerAppendInfo,         *)
(* ProducerStateManager, VerificationStateEntry.                           *)
(***************************************************************************)
EXTENDS ProducerState

CONSTANTS
    ProducerIds,         \* the producers whose batches and markers arrive
    Epochs,              \* the producer epochs that these carry
    MaxEpoch,            \* the last producer epoch; 32767 in Kafka
    Sequences,           \* the sequences of batches; -1 for a coordinator's
    BatchCounts,         \* the numbers of records in a batch
    Versions,            \* of transactions: of 1 and 2; 0 for batches outside of one
    GuardNumbers,        \* -1..n: the guards of batches; -1 for none
    CoordinatorEpochs,   \* the coordinator epochs that markers carry
    Verification,        \* TRUE: the leader also asks the coordinator about transactions of version 1 (KIP-890 part 1)
    Expiration           \* TRUE: a producer's state may expire

ASSUME /\ Sequences \subseteq -1..MaxSequence
       /\ Versions \subseteq 0..2
       /\ -1 \in GuardNumbers
       /\ \A count \in BatchCounts : count * CachedBatches <= MaxSequence  \* otherwise a cached batch is ambiguous

VARIABLES
    leader,              \* the leader's state: its log, the log's transactions, and its questions to the coordinator
    vouched,             \* batches that the coordinator has vouched for; each may be appended at any time, or never
    answer               \* the answer to the last request of this leader: the error, or the offset of the batch

vars == <<leader, vouched, answer>>

NoEpoch    == -1
NoSequence == -1
NoGuard    == -1

(***************************************************************************)
(* The combined rules                                                      *)
(***************************************************************************)

(* A leader's rules for guards. They depend on no constant except Verification. *)
Guards == INSTANCE Transactions WITH
    Instances <- {}, Partitions <- {}, Numbers <- {}, Faults <- {}, MaxFaults <- 0,
    transaction <- leader, coordinatorEpoch <- leader, former <- leader, toMark <- leader, refused <- leader,
    logs <- leader, clients <- leader, outcome <- leader, stored <- leader, initRequests <- leader, addRequests <- leader,
    produceRequests <- leader, verifying <- leader, verified <- leader, endRequests <- leader,
    markerRequests <- leader, answers <- leader, faults <- leader

(* A leader's rules for transactions and markers, in version 1. *)
OfVersion1 == INSTANCE TransactionalPartition WITH
    TransactionVersion <- 1, log <- leader.transactions, highWatermark <- LogEndOffset(leader.log),
    replicated <- LogEndOffset(leader.log), leaderEpoch <- 0,
    BatchKinds <- {"transactional", "plain"}, Offsets <- {}, MaxLeaderEpoch <- 0, IndexFailures <- FALSE,
    Cleaning <- FALSE

(* A leader's rules for transactions and markers, in version 2. *)
OfVersion2 == INSTANCE TransactionalPartition WITH
    TransactionVersion <- 2, log <- leader.transactions, highWatermark <- LogEndOffset(leader.log),
    replicated <- LogEndOffset(leader.log), leaderEpoch <- 0,
    BatchKinds <- {"transactional", "plain"}, Offsets <- {}, MaxLeaderEpoch <- 0, IndexFailures <- FALSE,
    Cleaning <- FALSE

(***************************************************************************)
(* A leader's state                                                        *)
(***************************************************************************)

(* A leader's state of its questions about a producer: the guard that they share, the highest epoch and its version, *)
(* and the lowest sequence in that epoch.    Kafka: VerificationStateEntry                                            *)
NothingAsked == [guard |-> 0, guardEpoch |-> NoEpoch, guardVersion |-> 0, lowestSequence |-> NoSequence]

NewLeader == [log |-> EmptyLog, transactions |-> OfVersion2!EmptyLog,
              asked |-> [producerId \in ProducerIds |-> NothingAsked]]

NoAnswer == [error |-> "NONE", offset |-> -1]

Init ==
    /\ leader = NewLeader
    /\ vouched = {}
    /\ answer = NoAnswer

(* The facts that the rules for guards read. *)
Guarded(before, producerId) ==
    LET producer == before.transactions.producers[producerId]
        asked    == before.asked[producerId]
    IN  [entries |-> <<>>, epoch |-> producer.epoch, open |-> OfVersion2!IsOpen(producer),
         guard |-> asked.guard, guardEpoch |-> asked.guardEpoch, guardVersion |-> asked.guardVersion,
         coordinatorEpoch |-> producer.coordinatorEpoch]

(* The questions about a producer after a step; when the guard is used up, the lowest sequence is forgotten. *)
Kept(asked, guarded) ==
    [guard |-> guarded.guard, guardEpoch |-> guarded.guardEpoch, guardVersion |-> guarded.guardVersion,
     lowestSequence |-> IF guarded.guard = asked.guard THEN asked.lowestSequence ELSE NoSequence]

(***************************************************************************)
(* Verification                                                            *)
(***************************************************************************)

(* The coordinator has to be asked before a batch of this producer is appended. *)
NeedsVerification(before, producerId, epoch, version) ==
    version # 0 /\ Guards!NeedsGuard(version) /\ ~Guards!IsOngoing(Guarded(before, producerId), epoch)

(* The reason why a leader does not ask about a batch; "NONE" if it asks. *)
VerificationError(before, producerId, epoch) ==
    IF epoch < before.transactions.producers[producerId].epoch THEN "INVALID_PRODUCER_EPOCH" ELSE "NONE"

(* The lowest sequence that a leader has asked about, after one more question. *)
LowestSequence(asked, epoch, sequence) ==
    IF epoch > asked.guardEpoch THEN sequence
    ELSE IF epoch = asked.guardEpoch /\ sequence < asked.lowestSequence THEN sequence
    ELSE asked.lowestSequence

(* The version that counts if a question's epoch is above those of the questions before it. *)
(* Departs from Kafka: there the version of the first question counts (FirstQuestionDecides). *)
QuestionVersion(asked, version) == version

(* The leader after it has begun to ask about a batch. *)
WithQuestion(before, producerId, epoch, sequence, version) ==
    LET asked == before.asked[producerId]
        after == Guards!WithGuard(Guarded(before, producerId),
                                  [epoch |-> epoch, version |-> QuestionVersion(asked, version)])
    IN  [before EXCEPT !.asked[producerId] =
            [Kept(asked, after) EXCEPT !.lowestSequence = LowestSequence(asked, epoch, sequence)]]

(***************************************************************************)
(* Why a leader refuses a batch or a marker, in Kafka's order of checks    *)
(***************************************************************************)

(* A coordinator writes its records without sequences. *)
IsOfCoordinator(batch) == batch.sequence = NoSequence

(* The batch is in the log already; a coordinator's batch, which has no sequence, is never a retry. *)
IsRetry(before, batch) == IsDuplicate(before.log, batch)

(* A batch as the rules of transactions see it. *)
EntryOf(batch, version) ==
    OfVersion2!Batch(batch.producerId, batch.epoch, IF version = 0 THEN "plain" ELSE "transactional")

(* First check: a transaction begins only with a batch that the coordinator has vouched for. *)
GuardError(before, batch, version, guard) ==
    IF version = 0 THEN "NONE"
    ELSE Guards!DataError(Guarded(before, batch.producerId), batch.epoch, guard)

(* Second check: epoch and sequence. *)
(* Departs from Kafka: there the questions about other batches count, too (AsShipped). *)
SequenceError(before, batch) ==
    IF IsOfCoordinator(batch) THEN "NONE" ELSE AppendError(before.log, batch)

(* The leader has asked about an earlier sequence; Kafka refuses the batch for it, no rule here does. *)
IsAboveLowest(before, batch) ==
    LET asked == before.asked[batch.producerId] IN
    asked.guardEpoch # NoEpoch /\ batch.sequence > asked.lowestSequence

(* An unknown producer begins a transaction of version 2 with a sequence above 0; only Kafka refuses it. *)
BeginsBehindZero(before, batch) ==
    /\ ~KnowsProducer(before.log, batch.producerId)
    /\ before.asked[batch.producerId].guardVersion = 2
    /\ batch.sequence # 0

(* Third check: the epoch again, for batches of coordinators, and the open transaction. *)
TransactionError(before, batch, version) == OfVersion2!BatchError(before.transactions, EntryOf(batch, version))

(* The reason why a leader refuses a batch that is no retry; "NONE" if it accepts it. *)
BatchError(before, batch, version, guard) ==
    IF GuardError(before, batch, version, guard) # "NONE" THEN GuardError(before, batch, version, guard)
    ELSE IF SequenceError(before, batch) # "NONE" THEN SequenceError(before, batch)
    ELSE TransactionError(before, batch, version)

(* The reason why a leader refuses a marker; "NONE" if it accepts it. *)
MarkerError(before, marker, version) ==
    IF version = 2 THEN OfVersion2!MarkerError(before.transactions, marker)
    ELSE OfVersion1!MarkerError(before.transactions, marker)

(***************************************************************************)
(* What an append changes                                                  *)
(***************************************************************************)

(* The log after a coordinator's entry, which has no sequence. A new epoch that it brings has no batches yet. *)
WithoutSequence(log, producerId, epoch, count) ==
    LET after == Appended(log, Batch(NoProducerId, NoEpoch, NoSequence, count)) IN
    IF KnowsProducer(log, producerId) /\ log.producers[producerId].epoch = epoch THEN after
    ELSE [after EXCEPT !.producers = (producerId :> [epoch |-> epoch, batches |-> <<>>]) @@ @]

(* The log after a batch. *)
WithSequence(log, batch) ==
    IF IsOfCoordinator(batch) THEN WithoutSequence(log, batch.producerId, batch.epoch, batch.count)
    ELSE Appended(log, batch)

(* The transactions after an entry, which is replicated at once. *)
WithEntry(before, entry, log) ==
    OfVersion2!WithReplicated(
        OfVersion2!Written(before.transactions, [entry EXCEPT !.offset = LogEndOffset(before.log)]), LogEndOffset(log))

(* Departs from Kafka: there every batch of a transaction uses the guard up (EveryBatchUsesGuardUp). *)

(* The questions about a producer after its batch: a batch of a transaction uses up the guard. *)
AskedAfterBatch(before, batch, version) ==
    LET asked == before.asked[batch.producerId] IN
    IF version = 0 THEN asked
    ELSE Kept(asked, Guards!WithData(Guarded(before, batch.producerId), "none", 0, batch.epoch))

(* The leader after a batch that passed every check. *)
WithBatch(before, batch, version) ==
    LET log == WithSequence(before.log, batch) IN
    [log          |-> log,
     transactions |-> WithEntry(before, EntryOf(batch, version), log),
     asked        |-> [before.asked EXCEPT ![batch.producerId] = AskedAfterBatch(before, batch, version)]]

(* The questions about a producer after a marker: it uses up the guard, except of a transaction just begun. *)
AskedAfterMarker(before, marker, version) ==
    Kept(before.asked[marker.producerId],
         Guards!WithMarker(Guarded(before, marker.producerId),
                           [version |-> version, epoch |-> marker.epoch, commit |-> marker.kind = "commit",
                            coordinatorEpoch |-> marker.coordinatorEpoch]))

(* The leader after a marker that passed every check. *)
WithMarker(before, marker, version) ==
    LET log == WithoutSequence(before.log, marker.producerId, marker.epoch, 1) IN
    [log          |-> log,
     transactions |-> WithEntry(before, marker, log),
     asked        |-> [before.asked EXCEPT ![marker.producerId] = AskedAfterMarker(before, marker, version)]]

(* The leader after a batch without a producer id, which changes no producer's state. *)
WithUnidentified(before, count) ==
    [before EXCEPT !.log = Appended(@, Batch(NoProducerId, NoEpoch, NoSequence, count))]

(* The questions about a producer at a new leader: none is open. *)
AskedAfterElection(asked) == [NothingAsked EXCEPT !.guard = asked.guard + 1]

(* The leader after it has forgotten a producer. *)
WithForgotten(before, producerId) ==
    [before EXCEPT !.log = Forgotten(@, producerId), !.transactions = OfVersion2!Forgotten(@, producerId)]

(* The offset up to which committed data can be read. *)
LastStableOffset == OfVersion2!LastStableOffset

(***************************************************************************)
(* What arrives                                        WHO: the leader     *)
(***************************************************************************)

Answer(error, offset) == answer' = [error |-> error, offset |-> offset]

(* A batch may carry this guard: none, or one that the coordinator has vouched for. *)
MayPresent(producerId, epoch, version, guard) ==
    \/ guard = NoGuard
    \/ \E one \in vouched : /\ one.producerId = producerId /\ one.epoch = epoch
                            /\ one.version = version /\ one.guard = guard

(* The leader asks the coordinator about a batch, and the coordinator vouches for it. *)
StartVerification(producerId, epoch, sequence, version) ==
    /\ NeedsVerification(leader, producerId, epoch, version)
    /\ VerificationError(leader, producerId, epoch) = "NONE"
    /\ leader' = WithQuestion(leader, producerId, epoch, sequence, version)
    /\ vouched' = IF MayPresent(producerId, epoch, version, leader.asked[producerId].guard) THEN vouched
                  ELSE vouched \cup {[producerId |-> producerId, epoch |-> epoch, version |-> version,
                                      guard |-> leader.asked[producerId].guard, offset |-> LogEndOffset(leader.log)]}
    /\ UNCHANGED answer

(* The leader does not ask the coordinator about a batch of an epoch that has passed. *)
RefuseVerification(producerId, epoch, version) ==
    /\ NeedsVerification(leader, producerId, epoch, version)
    /\ VerificationError(leader, producerId, epoch) # "NONE"
    /\ Answer(VerificationError(leader, producerId, epoch), -1)
    /\ UNCHANGED <<leader, vouched>>

(* The leader appends a batch that passed every check. *)
AppendBatch(producerId, epoch, sequence, count, version, guard) ==
    LET batch == Batch(producerId, epoch, sequence, count) IN
    /\ MayPresent(producerId, epoch, version, guard)
    /\ ~IsRetry(leader, batch)
    /\ BatchError(leader, batch, version, guard) = "NONE"
    /\ leader' = WithBatch(leader, batch, version)
    /\ Answer("NONE", LogEndOffset(leader.log))
    /\ UNCHANGED vouched

(* The leader acknowledges a retry with the offset of the first copy, whatever its guard. *)
AcknowledgeDuplicate(producerId, epoch, sequence, count) ==
    LET batch == Batch(producerId, epoch, sequence, count) IN
    /\ IsRetry(leader, batch)
    /\ Answer("NONE", DuplicateOffset(leader.log, batch))
    /\ UNCHANGED <<leader, vouched>>

(* The leader refuses a batch that fails a check. *)
RefuseBatch(producerId, epoch, sequence, count, version, guard) ==
    LET batch == Batch(producerId, epoch, sequence, count) IN
    /\ MayPresent(producerId, epoch, version, guard)
    /\ ~IsRetry(leader, batch)
    /\ BatchError(leader, batch, version, guard) # "NONE"
    /\ Answer(BatchError(leader, batch, version, guard), -1)
    /\ UNCHANGED <<leader, vouched>>

(* The leader appends a batch without a producer id. *)
AppendUnidentified(count) ==
    /\ leader' = WithUnidentified(leader, count)
    /\ Answer("NONE", LogEndOffset(leader.log))
    /\ UNCHANGED vouched

(* The leader appends a marker that passed every check, whether there is a transaction to end or not. *)
AppendMarker(producerId, epoch, commit, coordinatorEpoch, version) ==
    LET marker == OfVersion2!Marker(producerId, epoch, commit, coordinatorEpoch) IN
    /\ version # 0
    /\ MarkerError(leader, marker, version) = "NONE"
    /\ leader' = WithMarker(leader, marker, version)
    /\ Answer("NONE", LogEndOffset(leader.log))
    /\ UNCHANGED vouched

(* The leader refuses a marker that fails a check. *)
RefuseMarker(producerId, epoch, commit, coordinatorEpoch, version) ==
    LET marker == OfVersion2!Marker(producerId, epoch, commit, coordinatorEpoch) IN
    /\ version # 0
    /\ MarkerError(leader, marker, version) # "NONE"
    /\ Answer(MarkerError(leader, marker, version), -1)
    /\ UNCHANGED <<leader, vouched>>

(***************************************************************************)
(* What changes around it                     WHO: controller and time     *)
(***************************************************************************)

(* Another broker becomes the leader: it has the log, but no guards; requests that wait at the old leader fail. *)
ElectLeader ==
    /\ \A producerId \in ProducerIds : leader.asked[producerId].guard + 1 \in GuardNumbers
    /\ leader' = [leader EXCEPT !.asked = [producerId \in ProducerIds |-> AskedAfterElection(@[producerId])]]
    /\ vouched' = {}
    /\ answer' = NoAnswer

(* The leader forgets a producer that has been silent for too long. *)
ExpireProducer(producerId) ==
    /\ Expiration
    /\ KnowsProducer(leader.log, producerId)
    /\ OfVersion2!MayExpire(leader.transactions.producers[producerId])
    /\ leader' = WithForgotten(leader, producerId)
    /\ UNCHANGED <<vouched, answer>>

Next ==
    \/ \E producerId \in ProducerIds, epoch \in Epochs, version \in Versions :
        \/ \E sequence \in Sequences : StartVerification(producerId, epoch, sequence, version)
        \/ RefuseVerification(producerId, epoch, version)
        \/ \E sequence \in Sequences, count \in BatchCounts, guard \in GuardNumbers :
            \/ AppendBatch(producerId, epoch, sequence, count, version, guard)
            \/ RefuseBatch(producerId, epoch, sequence, count, version, guard)
        \/ \E commit \in BOOLEAN, coordinatorEpoch \in CoordinatorEpochs :
            \/ AppendMarker(producerId, epoch, commit, coordinatorEpoch, version)
            \/ RefuseMarker(producerId, epoch, commit, coordinatorEpoch, version)
    \/ \E producerId \in ProducerIds, epoch \in Epochs, sequence \in Sequences, count \in BatchCounts :
        AcknowledgeDuplicate(producerId, epoch, sequence, count)
    \/ \E count \in BatchCounts : AppendUnidentified(count)
    \/ ElectLeader
    \/ \E producerId \in ProducerIds : ExpireProducer(producerId)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Properties, over the leader's entries and what it would answer          *)
(***************************************************************************)

Entries == leader.transactions.entries

(* The batches of one producer that have sequences, in the order of the log. *)
BatchesOf(producerId) == SelectSeq(leader.log.entries, LAMBDA entry : entry.producerId = producerId)

(* The sequence that has to come after a batch. Not NextSequence: a property shares no rule with what it judges. *)
Successor(batch) == (batch.sequence + batch.count) % (MaxSequence + 1)

(* Pairs of neighbours in a sequence. *)
Neighbours(sequence) == {<<sequence[i], sequence[i + 1]>> : i \in 1..(Len(sequence) - 1)}

(* The requests that may arrive, with an id. *)
Requests == {Batch(producerId, epoch, sequence, count) :
                producerId \in ProducerIds, epoch \in Epochs, sequence \in Sequences, count \in BatchCounts}

(* Entries follow each other without holes in the offsets. *)
OffsetsAreDense ==
    /\ leader.log.entries # <<>> => leader.log.entries[1].offset = 0
    /\ \A pair \in Neighbours(leader.log.entries) : pair[2].offset = pair[1].offset + pair[1].count
OffsetsAreDenseWitness == Len(leader.log.entries) > 1

(* The log and its transactions have the same entries: each is at the same offset in both. *)
OneLog ==
    /\ \A i \in DOMAIN Entries : \E j \in DOMAIN leader.log.entries :
          /\ leader.log.entries[j].offset = Entries[i].offset
          /\ leader.log.entries[j].producerId \in {NoProducerId, Entries[i].producerId}
    /\ \A j \in DOMAIN leader.log.entries : leader.log.entries[j].producerId # NoProducerId =>
          \E i \in DOMAIN Entries : /\ Entries[i].offset = leader.log.entries[j].offset
                                    /\ Entries[i].epoch = leader.log.entries[j].epoch
OneLogWitness == Entries # <<>> /\ Len(leader.log.entries) > Len(Entries)

(* The log and its transactions know the same epoch of a producer, or both know none. *)
OneEpoch ==
    \A producerId \in ProducerIds :
        LET known == leader.transactions.producers[producerId].epoch IN
        IF KnowsProducer(leader.log, producerId) THEN leader.log.producers[producerId].epoch = known
        ELSE known = NoEpoch
OneEpochWitness == \E producerId \in ProducerIds : KnowsProducer(leader.log, producerId)

(* Within an epoch each batch begins where the one before it ended, and a later epoch begins with sequence 0. *)
NoGapNoDuplicate ==
    \A producerId \in ProducerIds : \A pair \in Neighbours(BatchesOf(producerId)) :
        pair[2].sequence = IF pair[1].epoch = pair[2].epoch THEN Successor(pair[1]) ELSE 0
NoGapNoDuplicateWitness == \E producerId \in ProducerIds : Len(BatchesOf(producerId)) > 1

(* A fenced epoch stays fenced: the epochs of a producer's entries never go back. *)
EpochsNeverGoBack ==
    \A i, j \in DOMAIN Entries :
        i < j /\ Entries[i].producerId = Entries[j].producerId => Entries[i].epoch <= Entries[j].epoch
EpochsNeverGoBackWitness == \E i \in DOMAIN Entries, epoch \in Epochs : epoch < Entries[i].epoch

(* A batch that is acknowledged as a retry is in the log, unchanged, at the offset in the answer. *)
AcknowledgedIsStored ==
    \A batch \in Requests : IsRetry(leader, batch) =>
        \E i \in DOMAIN leader.log.entries :
            leader.log.entries[i] = [batch EXCEPT !.offset = DuplicateOffset(leader.log, batch)]
AcknowledgedIsStoredWitness == \E batch \in Requests : IsRetry(leader, batch)

(* No spurious error: a retry of one of the last batches of a producer's epoch is acknowledged, whatever its guard. *)
RecentRetryIsAcknowledged ==
    \A producerId \in ProducerIds : KnowsProducer(leader.log, producerId) =>
        LET sent == SelectSeq(BatchesOf(producerId),
                              LAMBDA entry : entry.epoch = leader.transactions.producers[producerId].epoch)
            recent == LastOf(sent, CachedBatches)
        IN  \A i \in DOMAIN recent : IsRetry(leader, recent[i])
RecentRetryIsAcknowledgedWitness ==
    \E producerId \in ProducerIds : \E i \in DOMAIN BatchesOf(producerId) :
        /\ KnowsProducer(leader.log, producerId)
        /\ BatchesOf(producerId)[i].epoch = leader.transactions.producers[producerId].epoch

(* No spurious error: the batch that has to come next is not out of order, whatever the coordinator was asked about. *)
NextIsAccepted ==
    \A producerId \in ProducerIds : BatchesOf(producerId) # <<>> =>
        LET sent == BatchesOf(producerId)
            last == sent[Len(sent)]
            next == Batch(producerId, last.epoch, Successor(last), 1)
        IN  SequenceError(leader, next) # "OUT_OF_ORDER_SEQUENCE_NUMBER"
NextIsAcceptedWitness == \E producerId \in ProducerIds : BatchesOf(producerId) # <<>>

(* No spurious error: no batch of a producer that the leader has forgotten is out of order. *)
ForgottenGoesOn ==
    \A batch \in Requests : BatchesOf(batch.producerId) # <<>> /\ ~KnowsProducer(leader.log, batch.producerId)
        => SequenceError(leader, batch) = "NONE"
ForgottenGoesOnWitness ==
    \E producerId \in ProducerIds : BatchesOf(producerId) # <<>> /\ ~KnowsProducer(leader.log, producerId)

(* The entries of a producer between two offsets. *)
Between(producerId, from, to) ==
    {i \in DOMAIN Entries : Entries[i].producerId = producerId /\ from <= Entries[i].offset /\ Entries[i].offset < to}

IsEnd(i) == Entries[i].kind \in {"commit", "abort"}

(* The batch continues an open transaction of its producer and epoch. *)
GoesOn(i) ==
    \E k \in Between(Entries[i].producerId, 0, Entries[i].offset) :
        /\ Entries[k].kind = "transactional" /\ Entries[k].epoch = Entries[i].epoch
        /\ \A m \in Between(Entries[i].producerId, Entries[k].offset, Entries[i].offset) : ~IsEnd(m)

(* Since then only markers of the epoch with which a transaction of version 2 begins have come (KAFKA-18575). *)
OnlyItsMarkers(one, to) ==
    \A m \in Between(one.producerId, one.offset, to) : IsEnd(m) =>
        /\ Entries[m].epoch = one.epoch
        /\ \E other \in vouched : /\ other.version = 2 /\ other.producerId = one.producerId
                                  /\ other.epoch = one.epoch /\ other.guard = one.guard

(* The last entry begins no transaction, or the coordinator has vouched for it since the previous marker. *)
LastIsVouchedFor ==
    LET i == Len(Entries) IN
    Entries[i].kind = "transactional" /\ ~GoesOn(i) =>
        \E one \in vouched :
            /\ one.producerId = Entries[i].producerId /\ one.epoch = Entries[i].epoch
            /\ OnlyItsMarkers(one, Entries[i].offset)

(* No transaction hangs: each begins with a batch that the coordinator has vouched for after the marker before it. *)
TransactionsAreVouchedFor == [][Verification /\ Len(Entries') > Len(Entries) => LastIsVouchedFor']_vars
TransactionsAreVouchedForWitness ==
    Verification /\ Len(Entries') > Len(Entries) /\ Entries'[Len(Entries')].kind = "transactional"

(* No spurious error: a batch that the coordinator has vouched for is not refused for its guard. Of the producer no *)
(* later epoch and no other version of its epoch was vouched for, and no entry has come since, except markers of    *)
(* version 2 with the batch's own epoch.                                                                            *)
VouchedIsAccepted ==
    \A one \in vouched :
        /\ \A other \in vouched : other.producerId = one.producerId =>
              \/ other.epoch < one.epoch
              \/ other.epoch = one.epoch /\ other.version = one.version
        /\ \A m \in Between(one.producerId, one.offset, LogEndOffset(leader.log)) :
              one.version = 2 /\ IsEnd(m) /\ Entries[m].epoch = one.epoch
        => GuardError(leader, Batch(one.producerId, one.epoch, 0, 1), one.version, one.guard) = "NONE"
VouchedIsAcceptedWitness ==
    \E one \in vouched : /\ one.offset < LogEndOffset(leader.log)
                         /\ Between(one.producerId, one.offset, LogEndOffset(leader.log)) = {}

(* A batch without verification is refused for that, whatever else is wrong with it, except for an old epoch. *)
UnverifiedIsToldSo ==
    \A batch \in Requests, version \in Versions :
        Verification /\ NeedsVerification(leader, batch.producerId, batch.epoch, version)
        => BatchError(leader, batch, version, NoGuard) =
              IF batch.epoch < leader.transactions.producers[batch.producerId].epoch
              THEN "INVALID_PRODUCER_EPOCH" ELSE "INVALID_TXN_STATE"
UnverifiedIsToldSoWitness ==
    \E batch \in Requests, version \in Versions :
        /\ KnowsProducer(leader.log, batch.producerId) /\ SequenceError(leader, batch) # "NONE"
        /\ NeedsVerification(leader, batch.producerId, batch.epoch, version)

(* The transactional batches that no marker has decided. *)
Undecided ==
    {i \in DOMAIN Entries :
        /\ Entries[i].kind = "transactional"
        /\ \A k \in DOMAIN Entries : k > i /\ Entries[k].producerId = Entries[i].producerId => ~IsEnd(k)}

(* The last stable offset is the first undecided batch's offset, or the end of the log. *)
StableIsDecided ==
    LastStableOffset = OfVersion2!Least({Entries[i].offset : i \in Undecided} \cup {LogEndOffset(leader.log)})
StableIsDecidedWitness == Undecided # {} /\ \E i \in DOMAIN Entries : i \notin Undecided

(* No batch outside of a transaction lies inside an open transaction of its producer. *)
NothingPlainInside ==
    \A i, k \in DOMAIN Entries :
        i \in Undecided /\ i < k /\ Entries[k].producerId = Entries[i].producerId => Entries[k].kind # "plain"
NothingPlainInsideWitness == Undecided # {} /\ 0 \in Versions

(* The open transaction of an epoch is ended by a marker of that epoch under version 1, and only by a later one's under *)
(* version 2.                                                                                                          *)
MarkersGoByTheirVersion ==
    \A producerId \in ProducerIds :
        LET producer == leader.transactions.producers[producerId]
            marker   == OfVersion2!Marker(producerId, producer.epoch, FALSE, producer.coordinatorEpoch)
        IN  producer.firstOffset # -1 /\ producer.epoch < MaxEpoch =>
                /\ MarkerError(leader, marker, 1) = "NONE"
                /\ MarkerError(leader, marker, 2) = "INVALID_PRODUCER_EPOCH"
MarkersGoByTheirVersionWitness ==
    \E producerId \in ProducerIds :
        LET producer == leader.transactions.producers[producerId]
        IN  producer.firstOffset # -1 /\ producer.epoch < MaxEpoch

(* The index of aborted transactions names entries of this log. *)
IndexIsOfLog ==
    \A k \in DOMAIN leader.transactions.abortedIndex :
        LET aborted == leader.transactions.abortedIndex[k] IN
        /\ \E i \in DOMAIN Entries : Entries[i].offset = aborted.lastOffset /\ Entries[i].kind = "abort"
        /\ \E i \in DOMAIN Entries : Entries[i].offset = aborted.firstOffset /\ Entries[i].kind = "transactional"
IndexIsOfLogWitness == leader.transactions.abortedIndex # <<>>

=============================================================================
