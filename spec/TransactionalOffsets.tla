-------------------------- MODULE TransactionalOffsets ------------------------
(***************************************************************************)
(* The offsets that one client commits for one partition in its            *)
(* transactions: several TxnOffsetCommits a transaction, over an           *)
(* unreliable network, to a group coordinator whose state is a replicated  *)
(* log.                                                                    *)
(*                                                                         *)
(* Modelled: a TxnOffsetCommit and its retries, each of which arrives at   *)
(*   any later time or never; a call of the application that times out     *)
(*   while its client goes on retrying; registration, by AddOffsetsToTxn   *)
(*   (version 1) or by the group coordinator (version 2); verification;    *)
(*   the epoch bump at every end (version 2); markers; pending offsets;    *)
(*   replication, high watermark, failover of the group coordinator, which *)
(*   loads the log again; a former coordinator that does not know it was   *)
(*   replaced; OffsetFetch with requireStable.                             *)
(*   The offset that a send asks for is the send's number.                 *)
(* Assumed, not checked: the transaction coordinator is durable, and       *)
(*   requests to it are one step (Transactions shows them); verification   *)
(*   and append are one step, as the guard has it (Transactions, NoGuard); *)
(*   the in-sync replicas are the leader and one follower.                 *)
(* Out of scope: several groups, partitions and producers, and the group's *)
(*   fence (ConsumeTransformProduce); offsets committed outside of         *)
(*   transactions; the transaction's timeout; the expiry of offsets; an    *)
(*   operator who deletes a group or its offsets, and pending ones with    *)
(*   them, so that their transaction commits without them.                 *)
(*                                                                         *)
(* KIPs: 98, 447, 890.  Kafka: OffsetMetadataManager, CoordinatorRuntime,  *)
(* CoordinatorPartitionWriter, TransactionManager.                         *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Sends,               \* 1..n: the sends of offsets
    Numbers,             \* 1..n: the client's transactions
    Version,             \* the transaction version that the client speaks: 1 or 2
    Verification,        \* TRUE: the leader asks the transaction coordinator before a transaction's first offsets, as
                         \* with version 2 it always does
    Faults,              \* what may go wrong: of "request times out", "call times out", "failover",
                         \* "former coordinator"
    MaxFaults            \* how often

VARIABLES
    transaction,         \* the transaction coordinator's record: state, epoch, registered, number
    client,              \* its state, the number of its transaction, the offsets partition was added, unanswered sends
    outcome,             \* for each transaction, the application's decision: none, open, committed or aborted
    sends,               \* for each send so far: its transaction and its epoch
    copies,              \* for each send: the number of its requests in flight
    due,                 \* for each send: the position that has to be replicated before the answer; 0: no answer is due
    log,                 \* the group coordinator's partition of __consumer_offsets
    replicated,          \* the high watermark: the number of entries that a failover keeps
    memory,              \* the group coordinator's state: pending and committed offset, producer epoch, latest send
    former,              \* the offset that a former coordinator gives to a fetch
    fetched,             \* the offset that a fetch has found last
    faults               \* the number of faults so far

vars == <<transaction, client, outcome, sends, copies, due, log, replicated, memory, former, fetched, faults>>

clientVars  == <<client, outcome, sends>>
networkVars == <<copies, due>>
groupVars   == <<log, replicated, memory, former>>

NoOffset == 0

Nothing == [pending |-> NoOffset, committed |-> NoOffset, epoch |-> 0, latest |-> 0]

Init ==
    /\ transaction = [state |-> "EMPTY", epoch |-> 0, registered |-> FALSE, number |-> 0]
    /\ client = [state |-> "ready", number |-> 0, added |-> FALSE, unanswered |-> {}]
    /\ outcome = [number \in Numbers |-> "none"]
    /\ sends = <<>>
    /\ copies = [send \in Sends |-> 0]
    /\ due = [send \in Sends |-> 0]
    /\ log = <<>>
    /\ replicated = 0
    /\ memory = Nothing
    /\ former = NoOffset
    /\ fetched = NoOffset
    /\ faults = 0

(* A fault happens, if there may be one more. *)
Fault(kind) == kind \in Faults /\ faults < MaxFaults /\ faults' = faults + 1

IsPrepared == transaction.state \in {"PREPARE_COMMIT", "PREPARE_ABORT"}

(***************************************************************************)
(* The group coordinator's rules                                           *)
(***************************************************************************)

(* The coordinator's state after an offset: it is pending, and replaces an earlier one.        *)
(* Kafka: OffsetMetadataManager.replay                                                         *)
AfterOffset(known, entry) ==
    [known EXCEPT !.pending = entry.offset, !.epoch = entry.epoch, !.latest = entry.offset]

(* The committed offset after an offset was written in a transaction: unchanged. *)
CommittedAtOffset(known, entry) == known.committed

(* The committed offset after a marker: only a commit replaces it, by the pending offset. *)
CommittedAtEnd(known, entry) ==
    IF entry.kind = "commit" /\ known.pending # NoOffset THEN known.pending ELSE known.committed

(* The coordinator's state after one more entry of the log.                                 *)
(* Kafka: OffsetMetadataManager.replay, replayEndTransactionMarker, ProducerStateManager    *)
After(known, entry) ==
    IF entry.kind = "offset"
    THEN [AfterOffset(known, entry) EXCEPT !.committed = CommittedAtOffset(known, entry)]
    ELSE [known EXCEPT !.pending = NoOffset, !.committed = CommittedAtEnd(known, entry), !.epoch = entry.epoch]

RECURSIVE Loaded(_)

(* The state of a coordinator that has loaded a log. *)
Loaded(entries) ==
    IF entries = <<>> THEN Nothing
    ELSE After(Loaded(SubSeq(entries, 1, Len(entries) - 1)), entries[Len(entries)])

IsMarker(entry) == entry.kind # "offset"

(* The log ends within a transaction. *)
EndsOpen == log # <<>> /\ ~IsMarker(log[Len(log)])

(* A marker takes effect on the offsets together with its append; in 3.9 a task follows (AppliesByTask). *)
AppliesAtOnce == TRUE

(* The last entry is a marker that has not taken effect yet. *)
IsUnapplied == ~AppliesAtOnce /\ memory.pending # NoOffset /\ ~EndsOpen

(* The state of a new coordinator: everything in the log counts, pending offsets included. *)
KnownAfterLoad(entries) == Loaded(entries)

(* The transaction coordinator's answer to the leader's question about a send; "NONE" if it may be stored. *)
(* Kafka: TransactionCoordinator.handleAddPartitionsToTransaction, handleVerifyPartitionsInTransaction     *)
VerificationError(send) ==
    IF ~Verification THEN "NONE"
    ELSE IF sends[send].epoch # transaction.epoch THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF IsPrepared THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF Version = 1 /\ ~transaction.registered THEN "TRANSACTION_ABORTABLE"
    ELSE "NONE"

(* The send's transaction is open in the log: one of the same epoch, which may be an earlier one in version 1. *)
(* Kafka: UnifiedLog.hasOngoingTransaction                                                                    *)
IsOngoing(send) == EndsOpen /\ sends[send].epoch = memory.epoch

(* The leader does not ask about a transaction that is open in the log. *)

(* The reason why a send is refused; "NONE" if it is not. *)
(* Kafka: UnifiedLog.maybeStartTransactionVerification    *)
TxnOffsetCommitError(send) ==
    IF sends[send].epoch < memory.epoch THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF IsOngoing(send) THEN "NONE"
    ELSE VerificationError(send)

(* Departs from Kafka: there offsets have no sequence (CoordinatorPartitionWriter, NO_SEQUENCE) and any send is      *)
(* stored, so that a delayed retry replaces a later send's offset. Here a send carries its number.                   *)

(* A send is a retry of a stored send, or older than the latest stored one. *)
IsOutdated(send) == send <= memory.latest

(* The position up to which the log must be replicated before a send stored at that position is answered. *)
AnsweredAt(position) == position

(* The entries that a fetch with requireStable reads: those below the high watermark.      *)
(* Kafka: CoordinatorRuntime, a write without records waits for those before it (KIP-447)  *)
FetchedEntries == SubSeq(log, 1, replicated)

(* Whether an offset is refused to a fetch, because another one is pending. *)
(* Kafka: OffsetMetadataManager.fetchOffsets, UNSTABLE_OFFSET_COMMIT        *)
IsUnstable(known) == known.pending # NoOffset

(* The state from which a fetch is answered. *)
Readable == Loaded(FetchedEntries)

Found == Readable.committed
CanFetch == ~IsUnstable(Readable)

(***************************************************************************)
(* The client                                       WHO: the application   *)
(***************************************************************************)

CanSend == client.state = "open" \/ client.number + 1 \in Numbers

(* The client in its transaction; if none is open, the next one begins. *)
Within == IF client.state = "open" THEN client ELSE [client EXCEPT !.state = "open", !.number = @ + 1, !.added = FALSE]

(* The client registers the group's offsets with the transaction coordinator. *)
AddOffsets ==
    /\ Version = 1 /\ CanSend
    /\ ~IsPrepared /\ ~Within.added
    /\ client' = [Within EXCEPT !.added = TRUE]
    /\ outcome' = [outcome EXCEPT ![Within.number] = "open"]
    /\ transaction' = [transaction EXCEPT !.state = "ONGOING", !.registered = TRUE, !.number = Within.number]
    /\ UNCHANGED <<sends, networkVars, groupVars, fetched, faults>>

(* The application sends an offset, after the answer to the one before or after that call has timed out. *)
SendOffsets ==
    /\ CanSend
    /\ Version = 1 => Within.added
    /\ Len(sends) + 1 \in Sends
    /\ IF client.unanswered = {} THEN UNCHANGED faults ELSE Fault("call times out")
    /\ LET send == Len(sends) + 1 IN
       /\ sends' = Append(sends, [transaction |-> Within.number, epoch |-> transaction.epoch])
       /\ client' = [Within EXCEPT !.unanswered = @ \cup {send}]
       /\ copies' = [copies EXCEPT ![send] = 1]
    /\ outcome' = [outcome EXCEPT ![Within.number] = "open"]
    /\ UNCHANGED <<transaction, due, groupVars, fetched>>

(* The client sends a request again: the former one had no effect, or the client has waited long enough. *)
ResendOffsets(send) ==
    /\ send \in client.unanswered
    /\ IF copies[send] = 0 /\ due[send] = 0 THEN UNCHANGED faults ELSE Fault("request times out")
    /\ copies' = [copies EXCEPT ![send] = @ + 1]
    /\ UNCHANGED <<transaction, clientVars, due, groupVars, fetched>>

(* The client learns that an offset is stored. *)
ReceiveAnswer(send) ==
    /\ due[send] # 0 /\ due[send] <= replicated
    /\ client' = [client EXCEPT !.unanswered = @ \ {send}]
    /\ due' = [due EXCEPT ![send] = 0]
    /\ UNCHANGED <<transaction, outcome, sends, copies, groupVars, fetched, faults>>

SentWithin(number) == {send \in 1..Len(sends) : sends[send].transaction = number}

(* The epoch of the producer after the end of a transaction. *)
EndEpoch == IF Version = 2 THEN transaction.epoch + 1 ELSE transaction.epoch

(* It commits when every send is answered; it may abort after a call has timed out. *)

(* The application ends its transaction. *)
End(commit) ==
    /\ client.state = "open" /\ ~IsPrepared
    /\ IF client.unanswered = {} THEN UNCHANGED faults ELSE ~commit /\ Fault("call times out")
    /\ commit => SentWithin(client.number) # {}
    /\ client' = [client EXCEPT !.state = "ready", !.unanswered = {}]
    /\ outcome' = [outcome EXCEPT ![client.number] = IF commit THEN "committed" ELSE "aborted"]
    /\ transaction' =
        [transaction EXCEPT !.epoch = EndEpoch,
                            !.state = IF ~transaction.registered THEN "EMPTY"
                                      ELSE IF commit THEN "PREPARE_COMMIT" ELSE "PREPARE_ABORT"]
    /\ due' = [send \in Sends |-> 0]
    /\ UNCHANGED <<sends, copies, groupVars, fetched>>

(* A consumer asks for the group's offset, with requireStable. *)
FetchOffset ==
    /\ CanFetch
    /\ fetched' = Found
    /\ UNCHANGED <<transaction, clientVars, networkVars, groupVars, faults>>

(* A consumer asks a former coordinator, for which no offset is pending. *)
FetchFromFormer ==
    /\ former # NoOffset
    /\ Fault("former coordinator")
    /\ fetched' = former
    /\ UNCHANGED <<transaction, clientVars, networkVars, groupVars>>

(***************************************************************************)
(* The group coordinator                     WHO: the group's coordinator  *)
(***************************************************************************)

Written(entry) ==
    /\ log' = Append(log, entry)
    /\ memory' = IF IsMarker(entry) /\ ~AppliesAtOnce THEN [memory EXCEPT !.epoch = entry.epoch]
                 ELSE After(memory, entry)

(* The coordinator stores an offset; with version 2 it registers its partition. *)
StoreOffsets(send) ==
    /\ copies[send] > 0
    /\ TxnOffsetCommitError(send) = "NONE" /\ ~IsOutdated(send)
    /\ Written([kind |-> "offset", epoch |-> sends[send].epoch, transaction |-> sends[send].transaction,
                offset |-> send])
    /\ copies' = [copies EXCEPT ![send] = @ - 1]
    /\ due' = [due EXCEPT ![send] = IF send \in client.unanswered THEN AnsweredAt(Len(log) + 1) ELSE @]
    /\ transaction' =
        IF Version = 2 /\ ~IsOngoing(send)
        THEN [transaction EXCEPT !.state = "ONGOING", !.registered = TRUE, !.number = sends[send].transaction]
        ELSE transaction
    /\ UNCHANGED <<clientVars, replicated, former, fetched, faults>>

(* The coordinator acknowledges an offset that it does not store, once everything before is replicated. *)
AcknowledgeOffsets(send) ==
    /\ copies[send] > 0
    /\ TxnOffsetCommitError(send) = "NONE" /\ IsOutdated(send)
    /\ copies' = [copies EXCEPT ![send] = @ - 1]
    /\ due' = [due EXCEPT ![send] = IF send \in client.unanswered THEN Len(log) ELSE @]
    /\ UNCHANGED <<transaction, clientVars, groupVars, fetched, faults>>

(* The coordinator refuses an offset. *)
RefuseOffsets(send) ==
    /\ copies[send] > 0
    /\ TxnOffsetCommitError(send) # "NONE"
    /\ copies' = [copies EXCEPT ![send] = @ - 1]
    /\ UNCHANGED <<transaction, clientVars, due, groupVars, fetched, faults>>

IsItsMarker(entry) == entry.kind # "offset" /\ entry.transaction = transaction.number

(* The marker is written, and written again if a failover has lost it. *)
WriteMarker ==
    /\ IsPrepared
    /\ \A position \in 1..Len(log) : ~IsItsMarker(log[position])
    /\ Written([kind |-> IF transaction.state = "PREPARE_COMMIT" THEN "commit" ELSE "abort",
                epoch |-> transaction.epoch, transaction |-> transaction.number, offset |-> NoOffset])
    /\ UNCHANGED <<transaction, clientVars, networkVars, replicated, former, fetched, faults>>

(* A task gives effect to the marker, after the marker is replicated and before its writer is answered. *)
ApplyMarker ==
    /\ IsUnapplied
    /\ replicated = Len(log)
    /\ memory' = After(memory, log[Len(log)])
    /\ UNCHANGED <<transaction, clientVars, networkVars, log, replicated, former, fetched, faults>>

(* The follower gets one more entry. *)
Replicate ==
    /\ replicated < Len(log)
    /\ replicated' = replicated + 1
    /\ UNCHANGED <<transaction, clientVars, networkVars, log, memory, former, fetched, faults>>

(* The follower leads: the new coordinator loads the replicated entries; answers that were due are lost. *)
FailOver ==
    /\ Fault("failover")
    /\ log' = SubSeq(log, 1, replicated)
    /\ memory' = KnownAfterLoad(SubSeq(log, 1, replicated))
    /\ former' = IF "former coordinator" \in Faults /\ replicated = Len(log) /\ ~IsUnstable(memory)
                 THEN memory.committed ELSE former
    /\ due' = [send \in Sends |-> 0]
    /\ UNCHANGED <<transaction, clientVars, copies, replicated, fetched>>

(***************************************************************************)
(* The transaction coordinator         WHO: the transaction coordinator    *)
(***************************************************************************)

(* The marker is replicated, and the transaction coordinator closes the transaction. *)
Complete ==
    /\ IsPrepared
    /\ \E position \in 1..replicated : IsItsMarker(log[position])
    /\ ~IsUnapplied
    /\ transaction' = [transaction EXCEPT !.state = "EMPTY", !.registered = FALSE]
    /\ UNCHANGED <<clientVars, networkVars, groupVars, fetched, faults>>

Next ==
    \/ AddOffsets
    \/ SendOffsets
    \/ \E send \in Sends :
        \/ ResendOffsets(send)
        \/ ReceiveAnswer(send)
        \/ StoreOffsets(send)
        \/ AcknowledgeOffsets(send)
        \/ RefuseOffsets(send)
    \/ \E commit \in BOOLEAN : End(commit)
    \/ FetchOffset
    \/ FetchFromFormer
    \/ WriteMarker
    \/ ApplyMarker
    \/ Replicate
    \/ FailOver
    \/ Complete

Spec == Init /\ [][Next]_vars

FairSpec ==
    /\ Spec
    /\ WF_vars(WriteMarker) /\ WF_vars(ApplyMarker) /\ WF_vars(Replicate) /\ WF_vars(Complete)

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

Latest(numbers) == IF numbers = {} THEN 0 ELSE CHOOSE number \in numbers : \A other \in numbers : other <= number

(* The last offset that was sent in a transaction that the application has committed. *)
Asked == Latest({send \in 1..Len(sends) : outcome[sends[send].transaction] = "committed"})

(* A fetch finds the last offset that the last committed transaction has sent. *)
FindsWhatWasAsked == CanFetch => Found = Asked
FindsWhatWasAskedWitness ==
    CanFetch /\ \E send \in Sends : send < Asked /\ sends[send].transaction = sends[Asked].transaction

(* The committed offset is one that a committed transaction has sent. *)
NothingElseIsCommitted ==
    memory.committed # NoOffset => outcome[sends[memory.committed].transaction] = "committed"
NothingElseIsCommittedWitness == \E number \in Numbers : outcome[number] = "aborted" /\ memory.committed # NoOffset

(* The offsets that a marker at a position decides. *)
DecidedAt(position) ==
    {earlier \in 1..(position - 1) :
        /\ ~IsMarker(log[earlier])
        /\ \A between \in (earlier + 1)..(position - 1) : ~IsMarker(log[between])}

(* The offset that a commit marker commits belongs to its own transaction. *)
CommitsItsOwn ==
    \A position \in 1..Len(log) :
        log[position].kind = "commit" /\ DecidedAt(position) # {} =>
            log[Latest(DecidedAt(position))].transaction = log[position].transaction
CommitsItsOwnWitness ==
    \E position \in 1..Len(log) : log[position].kind = "commit" /\ log[position].transaction > 1

(* An offset is pending only while its transaction is open or waits for its marker. *)
NoHangingOffsets == memory.pending # NoOffset => transaction.registered
NoHangingOffsetsWitness == memory.pending # NoOffset /\ \E number \in Numbers : outcome[number] \notin {"none", "open"}

(* An offset whose send was answered stays in the log. *)
AnsweredIsKept ==
    \A send \in SentWithin(client.number) :
        client.state = "open" /\ send \notin client.unanswered =>
            \E position \in 1..Len(log) : log[position].offset >= send
AnsweredIsKeptWitness ==
    /\ client.state = "open" /\ faults > 0
    /\ \E send \in SentWithin(client.number) : send \notin client.unanswered

(* A new coordinator has the state that the one before it would have for the same log. *)
LoadsWhatWasKnown == ~IsUnapplied => memory = Loaded(log)
LoadsWhatWasKnownWitness == memory.pending # NoOffset /\ faults > 0

(* The offset that fetches find does not go back. *)
FetchedNeverGoesBack == [][fetched' >= fetched]_vars
FetchedNeverGoesBackWitness == fetched' > fetched /\ fetched # NoOffset

(* After a transaction is decided, fetches are answered again at some time. *)
OffsetsAreSettled == IsPrepared ~> CanFetch
OffsetsAreSettledWitness == IsPrepared /\ ~CanFetch

=============================================================================
