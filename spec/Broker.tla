--------------------------------- MODULE Broker --------------------------------
(***************************************************************************)
(* A broker as its clients see it: the coordinators of some                *)
(* transactional.ids, the leader of a partition with data, and a consumer  *)
(* group with a partition for its offsets. Each action of a client is a    *)
(* request with its answer. So a test can play a behaviour against any     *)
(* implementation, request by request.                                     *)
(*                                                                         *)
(* Modelled: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn,  *)
(*   Produce, TxnOffsetCommit, OffsetCommit, JoinGroup, and the            *)
(*   ConsumerGroupHeartbeat of members that join, follow the group's epoch *)
(*   and leave (KIP-848), with any producer id, epoch, sequence, member,   *)
(*   and generation or member epoch; the verification of a transaction by  *)
(*   the leader (KIP-890); the codes of older requests; markers and        *)
(*   completions, which the coordinator writes by itself after its answer; *)
(*   a restart, after which everybody knows what is in a log or a          *)
(*   snapshot.                                                             *)
(* Assumed, not checked: a request and its answer are one step, and what   *)
(*   the step appends is replicated at once. TransactionCoordinator,       *)
(*   Leader and ConsumeTransformProduce show what happens in between.      *)
(* Out of scope: other faults, elections of another broker, timeouts and   *)
(*   expiry; several groups; a classic group with more than one member, a  *)
(*   group of KIP-848 with more than two; static members; heartbeats with  *)
(*   an epoch that is not the member's.                                    *)
(*                                                                         *)
(* KIPs: 98, 360, 447, 588, 848, 890, 1251, 1319.  Kafka: KafkaApis.       *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    MaxSequence,         \* the last sequence before the wrap to 0; 2^31 - 1 in Kafka
    CachedBatches,       \* batches remembered for each producer; 5 in Kafka
    ProducerIds,         \* 0..n: the producer ids that requests carry
    MaxEpoch,            \* the last producer epoch; 32767 in Kafka
    Sequences,           \* the sequences of batches
    BatchCounts,         \* the numbers of records in a batch
    TransactionalIds,    \* the transactional.ids
    Members,             \* the members that offsets come from: "none", "member" or somebody else
    Generations,         \* -1..n: the generations or member epochs that they claim
    Writers,             \* the producers without a transactional.id
    ClusterVersion,      \* the finalized transaction.version of the cluster: 1 or 2; 1 stands for 0 too
    ClientVersion,       \* the transaction version of the requests: 1 or 2
    Outside,             \* TRUE: clients send batches outside of transactions, with any producer id and epoch
    Verification,        \* TRUE: leaders ask the coordinator about transactions of version 1 as well (KIP-890 part 1)
    ApiVersions,         \* for each request that clients send: the version in which they send it
    GroupProtocol,       \* "classic", or "consumer" for that of KIP-848
    Consumers,           \* the consumers that join a group of KIP-848, at most two; the assignor prefers "first"
    Faults,              \* what may go wrong: of "restart"
    MaxFaults            \* how often

ASSUME /\ ClientVersion \in 1..ClusterVersion
       /\ ClusterVersion \in 1..2

VARIABLES
    coordinators,        \* for each transactional.id: the coordinator's metadata
    toMark,              \* for each transactional.id: the partitions whose marker is still to be written
    partitions,          \* for each partition: its leader's log and producer states
    writers,             \* for each producer without a transactional.id: its producer id
    group,               \* the group's state, generation and members
    membership,          \* the epoch and the members of a group of KIP-848
    pending,             \* for each producer id: the place in the log of the group's offset that waits for the marker
    committed,           \* the place in the log of the group's committed offset
    allocated,           \* the number of producer ids that have been handed out
    answer,              \* the answer to the last request
    written,             \* the acknowledged batches and offsets: [transactionalId, number, partition, offset]
    ended,               \* the acknowledged ends of transactions: [transactionalId, number, commit]
    faults               \* the number of faults so far

coordinatorVars == <<coordinators, toMark, allocated>>
groupVars       == <<group, membership, pending, committed>>
historyVars     == <<written, ended>>
vars == <<coordinatorVars, partitions, writers, groupVars, answer, historyVars, faults>>

NoEpoch      == -1
NoSequence   == -1
NoGuard      == -1
NoOffset     == -1
NoProducerId == -1
NoMember     == "none"
NoGeneration == 0
CoordinatorEpoch == 0

Partitions == {"data", "offsets"}

(***************************************************************************)
(* The rules that this module combines                                     *)
(***************************************************************************)

(* The decisions of a leader. *)
Leaders == INSTANCE Leader WITH
    Epochs <- 0..MaxEpoch, Versions <- {0, ClientVersion}, GuardNumbers <- {NoGuard},
    CoordinatorEpochs <- {CoordinatorEpoch}, Expiration <- FALSE, leader <- partitions["data"], vouched <- {}

(* The decisions about the markers and transactions in its log. *)
Logs == INSTANCE TransactionalPartition WITH
    TransactionVersion <- ClientVersion, Epochs <- 0..MaxEpoch, CoordinatorEpochs <- {CoordinatorEpoch},
    BatchKinds <- {"transactional", "plain"}, Offsets <- {}, MaxLeaderEpoch <- 0, IndexFailures <- FALSE,
    Cleaning <- FALSE, Expiration <- FALSE,
    log <- partitions["data"].transactions, highWatermark <- 0, replicated <- 0, leaderEpoch <- 0

(* The decisions of the coordinator of a transactional.id. *)
Coordinator == INSTANCE TransactionCoordinator WITH
    Versions <- 1..ClusterVersion, Faults <- {}, MaxFaults <- 0,
    metadata <- coordinators, appending <- coordinators, durable <- coordinators, earlier <- {}, tail <- <<>>,
    loading <- FALSE, fencing <- "none", carried <- {}, markers <- {}, told <- {}, given <- {}, faults <- 0

(* The decisions of the coordinator of the group. *)
Groups == INSTANCE ConsumerGroup WITH
    Instances <- Consumers, Partitions <- {"data"}, TransactionalIds <- ProducerIds,
    Preferred <- [partition \in {"data"} |-> "first"]

(* A batch as the leader of a partition sees it, and a marker. *)
Batch(producerId, epoch, sequence, count) == Leaders!Batch(producerId, epoch, sequence, count)
EndOf(partition) == Leaders!LogEndOffset(partition.log)

Identity(producerId, epoch) == [producerId |-> producerId, epoch |-> epoch]
Nobody == Identity(NoProducerId, NoEpoch)

NothingPending == [partition \in {"data"} |-> NoOffset]

(***************************************************************************)
(* Answers                                                                 *)
(***************************************************************************)

(* The first version of a request whose clients know PRODUCER_FENCED.    KIP-588 *)
FirstFenced == [InitProducerId |-> 4, AddPartitionsToTxn |-> 2, AddOffsetsToTxn |-> 2, EndTxn |-> 2]

(* The first version of a request whose clients know TRANSACTION_ABORTABLE.    KIP-890 *)
FirstAbortable == [Produce |-> 11, TxnOffsetCommit |-> 4]

IsOlder(api, first) == api \notin DOMAIN first \/ ApiVersions[api] < first[api]

(* The error code that a version of a request is answered with. A code that the version does not know is replaced by   *)
(* an older one.    Kafka: KafkaApis, AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend                    *)
WireError(api, error) ==
    IF error = "PRODUCER_FENCED" /\ IsOlder(api, FirstFenced) THEN "INVALID_PRODUCER_EPOCH"
    ELSE IF error = "TRANSACTION_ABORTABLE" /\ IsOlder(api, FirstAbortable) THEN "INVALID_TXN_STATE"
    ELSE IF error = "CONCURRENT_TRANSACTIONS" /\ api = "Produce" /\ ApiVersions[api] < 12 THEN "NOT_ENOUGH_REPLICAS"
    ELSE error

Answer(api, error, identity, offset) ==
    [api |-> api, error |-> WireError(api, error), producerId |-> identity.producerId, epoch |-> identity.epoch,
     offset |-> offset]

(* No client waits for an answer. *)
NoAnswer == Answer("none", "NONE", Nobody, NoOffset)

Says(api, error) == answer' = Answer(api, error, Nobody, NoOffset)

(* Clients send the request. *)
IsSent(api) == api \in DOMAIN ApiVersions

Init ==
    /\ coordinators = [transactionalId \in TransactionalIds |-> Coordinator!Forgotten(0)]
    /\ toMark = [transactionalId \in TransactionalIds |-> {}]
    /\ partitions = [partition \in Partitions |-> Leaders!NewLeader]
    /\ writers = [writer \in Writers |-> NoProducerId]
    /\ group = [state |-> "EMPTY", generation |-> NoGeneration, members |-> {}, joined |-> {}]
    /\ membership = [epoch |-> 1, members |-> [consumer \in Consumers |-> Groups!NoMembership]]
    /\ pending = [producerId \in ProducerIds |-> NothingPending]
    /\ committed = NothingPending
    /\ allocated = 0
    /\ answer = NoAnswer
    /\ written = {}
    /\ ended = {}
    /\ faults = 0

(***************************************************************************)
(* The coordinator                                                         *)
(***************************************************************************)

(* The producer id that is handed out next. *)
NewProducerId == allocated

(* The producer id after a transaction of version 2 in the last epoch, -1 if it goes on with its own. *)
NextProducerId(known, version) ==
    IF Coordinator!NeedsNextProducerId(known, version) THEN NewProducerId ELSE NoProducerId

(* The reason why the coordinator gives no producer id and epoch; "NONE" if it does, or aborts first. *)
InitError(known, producerId, epoch) == Coordinator!InitError(known, producerId, epoch)

(* The coordinator has to abort the open transaction before it gives a producer id and epoch. *)
AbortsFirst(known) == known.state = "ONGOING"

(* The coordinator's metadata after it has given a producer id and epoch. *)
AfterInit(known, epoch, newProducerId) == Coordinator!AfterInit(known, epoch, newProducerId)

(* The coordinator has a record in its log. The markers follow the decision. *)
Recorded(transactionalId, record) ==
    LET known == Coordinator!AfterAppend(record) IN
    /\ coordinators' = [coordinators EXCEPT ![transactionalId] = known]
    /\ toMark' = [toMark EXCEPT ![transactionalId] = Coordinator!ToMark(known)]

(* The coordinator's metadata with a partition in the transaction. *)
WithPartition(known, partition, version) ==
    IF Coordinator!IsAdded(known, partition) THEN known
    ELSE Coordinator!AfterAppend(Coordinator!AfterAdd(known, partition, version))

(* The coordinator's answer to a leader that asks about a batch. Version 2 adds the partition to the transaction.        *)
(* Version 1 requires that the transaction has it.                                                                       *)
(* Kafka: TransactionCoordinator.handleVerifyPartitionsInTransaction                                                     *)
AnswerToLeader(known, producerId, epoch, partition) ==
    IF ClientVersion = 2 THEN Coordinator!AddError(known, producerId, epoch)
    ELSE LET error == Coordinator!AddError([known EXCEPT !.pending = "none"], producerId, epoch) IN
         IF error = "NONE" /\ partition \notin known.partitions THEN "TRANSACTION_ABORTABLE" ELSE error

(* The coordinator's metadata after it has vouched for a batch. *)
AfterVouching(known, partition) == IF ClientVersion = 2 THEN WithPartition(known, partition, 2) ELSE known

(***************************************************************************)
(* The leader                                                              *)
(***************************************************************************)

(* The coordinator has to be asked before a batch of this producer is appended. *)
NeedsVerification(before, producerId, epoch) == Leaders!NeedsVerification(before, producerId, epoch, ClientVersion)

(* The reason why a leader does not ask about a batch; "NONE" if it does. *)
QuestionError(before, producerId, epoch) == Leaders!VerificationError(before, producerId, epoch)

(* The verification of a transaction's batch, before the checks of the log. The result has the error, "NONE" if the    *)
(* batch is verified or needs no verification; the guard under which the leader asked; the leader and the coordinator  *)
(* after the question.                                                                                                 *)
Verified(partition, transactionalId, producerId, epoch, sequence) ==
    LET before == partitions[partition]
        known  == coordinators[transactionalId]
        error  == AnswerToLeader(known, producerId, epoch, partition)
        Result(reason, guard, leader, metadata) ==
            [error |-> reason, guard |-> guard, leader |-> leader, metadata |-> metadata]
    IN  IF ~NeedsVerification(before, producerId, epoch) THEN Result("NONE", NoGuard, before, known)
        ELSE IF QuestionError(before, producerId, epoch) # "NONE"
        THEN Result(QuestionError(before, producerId, epoch), NoGuard, before, known)
        ELSE Result(error, before.asked[producerId].guard,
                    Leaders!WithQuestion(before, producerId, epoch, sequence, ClientVersion),
                    IF error = "NONE" THEN AfterVouching(known, partition) ELSE known)

(* The reason why a leader refuses a batch that is no retry; "NONE" if it does not. *)
BatchError(before, batch, version, guard) == Leaders!BatchError(before, batch, version, guard)

(* The leader's answer to a batch: the error, or the offset; a retry gets the offset of the first copy. *)
AnswerOfLeader(before, batch, version, guard) ==
    LET error == IF Leaders!IsRetry(before, batch) THEN "NONE" ELSE BatchError(before, batch, version, guard) IN
    [error  |-> error,
     offset |-> IF error # "NONE" THEN NoOffset
                ELSE IF Leaders!IsRetry(before, batch) THEN Leaders!DuplicateOffset(before.log, batch)
                ELSE EndOf(before)]

(* The answer to a batch of a transaction: the leader's, if the batch is verified. *)
AnswerToVerified(verified, batch) ==
    IF verified.error # "NONE" THEN [error |-> verified.error, offset |-> NoOffset]
    ELSE AnswerOfLeader(verified.leader, batch, ClientVersion, verified.guard)

(* The leader after a batch that passed every check. *)
WithBatch(before, batch, version) == Leaders!WithBatch(before, batch, version)

(* The marker of a partition in the transaction that the coordinator ends. *)
MarkerOf(known, partition) ==
    Logs!Marker(known.producerId, known.epoch, Coordinator!Commits(known), CoordinatorEpoch)

(***************************************************************************)
(* The group                                                               *)
(***************************************************************************)

(* The group has no members. *)
IsEmpty == Groups!Members = {}

(* The group has had members. *)
IsKnown == IF GroupProtocol = "classic" THEN group.generation # NoGeneration ELSE membership.epoch > 1

(* The reason why the group refuses offsets of a member; "NONE" if it does not. *)
MemberError(member, generation) ==
    IF GroupProtocol = "classic" THEN Groups!TxnOffsetCommitError(member, generation)
    ELSE Groups!MemberEpochError(member, generation, {"data"})

(* TxnOffsetCommit names topics by their ids. Its clients know the codes of epochs and of unknown groups.    KIP-1319 *)
NamesTopicsById == ApiVersions["TxnOffsetCommit"] >= 6

(* The reason why the group refuses offsets in a transaction; "NONE" if it does not. *)
(* Kafka: OffsetMetadataManager.validateTransactionalOffsetCommit                    *)
CommitError(member, generation) ==
    IF generation < 0 /\ IsEmpty THEN "NONE"
    ELSE IF member # NoMember /\ ~IsKnown
         THEN IF NamesTopicsById THEN "GROUP_ID_NOT_FOUND" ELSE "ILLEGAL_GENERATION"
    ELSE IF NamesTopicsById THEN MemberError(member, generation)
    ELSE Groups!ErrorInTransaction(MemberError(member, generation))

(* The reason why the group refuses offsets outside of transactions; "NONE" if it does not. *)
(* Kafka: OffsetMetadataManager.validateOffsetCommit                                        *)
PlainCommitError(member, generation) ==
    IF generation < 0 /\ IsEmpty THEN "NONE"
    ELSE IF member = NoMember THEN "UNKNOWN_MEMBER_ID"
    ELSE MemberError(member, generation)

(* The pending offsets with one more of a producer's transaction. *)
WithPending(producerId, place) == [pending EXCEPT ![producerId]["data"] = place]

(* The committed offset after a marker. An offset committed after the pending one stays (KAFKA-5247). *)
CommittedAfterMarker(producerId, commit) ==
    IF commit /\ pending[producerId]["data"] > committed["data"] THEN pending[producerId] ELSE committed

(***************************************************************************)
(* Requests                                           WHO: a client        *)
(***************************************************************************)

(* A client asks for the producer id and epoch of its transactional.id. An open transaction is aborted first. *)
InitProducerId(transactionalId, producerId, epoch) ==
    LET before == coordinators[transactionalId]
        isNew  == before.state = "DEAD"
        known  == IF isNew THEN Coordinator!Created(before, NewProducerId) ELSE before
        error  == InitError(known, producerId, epoch)
        next   == NextProducerId(known, Coordinator!ServerVersion)
        record == AfterInit(known, epoch, NewProducerId)
    IN  /\ IsSent("InitProducerId")
        /\ IF error # "NONE" THEN
              /\ Says("InitProducerId", error)
              /\ UNCHANGED coordinatorVars
           ELSE IF AbortsFirst(known) THEN
              /\ Recorded(transactionalId, Coordinator!AfterFence(known, next))
              /\ allocated' = IF next # NoProducerId THEN allocated + 1 ELSE allocated
              /\ Says("InitProducerId", "CONCURRENT_TRANSACTIONS")
           ELSE
              /\ Recorded(transactionalId, record)
              /\ allocated' = IF isNew \/ Coordinator!Rotates(known, epoch) THEN allocated + 1 ELSE allocated
              /\ answer' = Answer("InitProducerId", "NONE", record, NoOffset)
        /\ UNCHANGED <<partitions, writers, groupVars, historyVars, faults>>

(* A client without a transactional.id asks for a producer id, and gets a new one in epoch 0. *)
InitIdempotentProducer(writer) ==
    /\ IsSent("InitProducerId")
    /\ writers[writer] = NoProducerId
    /\ writers' = [writers EXCEPT ![writer] = NewProducerId]
    /\ allocated' = allocated + 1
    /\ answer' = Answer("InitProducerId", "NONE", Identity(NewProducerId, 0), NoOffset)
    /\ UNCHANGED <<coordinators, toMark, partitions, groupVars, historyVars, faults>>

AddedByClient(api, transactionalId, producerId, epoch, partition) ==
    LET known == coordinators[transactionalId]
        error == Coordinator!AddError(known, producerId, epoch)
    IN  /\ coordinators' = IF error # "NONE" THEN coordinators
                           ELSE [coordinators EXCEPT ![transactionalId] = WithPartition(known, partition, 1)]
        /\ Says(api, error)
        /\ UNCHANGED <<toMark, allocated, partitions, writers, groupVars, historyVars, faults>>

(* A client of version 1 adds the partition to its transaction. *)
AddPartitionsToTxn(transactionalId, producerId, epoch) ==
    /\ IsSent("AddPartitionsToTxn")
    /\ AddedByClient("AddPartitionsToTxn", transactionalId, producerId, epoch, "data")

(* A client of version 1 adds its group's offsets to its transaction. *)
AddOffsetsToTxn(transactionalId, producerId, epoch) ==
    /\ IsSent("AddOffsetsToTxn")
    /\ AddedByClient("AddOffsetsToTxn", transactionalId, producerId, epoch, "offsets")

(* A client ends its transaction. *)
EndTxn(transactionalId, producerId, epoch, commit) ==
    LET known   == coordinators[transactionalId]
        verdict == Coordinator!EndVerdict(known, producerId, epoch, commit, ClientVersion)
        next    == NextProducerId(known, ClientVersion)
        record  == IF verdict = "DECIDE" THEN Coordinator!AfterEnd(known, commit, ClientVersion, next) ELSE known
    IN  /\ IsSent("EndTxn")
        /\ IF verdict \notin {"DECIDE", "NONE"} THEN
              /\ Says("EndTxn", verdict)
              /\ UNCHANGED <<coordinatorVars, ended>>
           ELSE
              /\ IF verdict = "NONE" THEN UNCHANGED coordinatorVars
                 ELSE /\ Recorded(transactionalId, record)
                      /\ allocated' = IF next # NoProducerId THEN allocated + 1 ELSE allocated
              /\ answer' = Answer("EndTxn", "NONE", IF ClientVersion = 2 THEN Coordinator!GoesOnAs(record) ELSE Nobody,
                                  NoOffset)
              /\ ended' = Coordinator!Noted(ended,
                    [transactionalId |-> transactionalId, number |-> record.number, commit |-> commit])
        /\ UNCHANGED <<partitions, writers, groupVars, written, faults>>

(* The history with a batch that a client was told is in its transaction. *)
WrittenWith(transactionalId, number, partition, offset) ==
    Coordinator!Noted(written,
        [transactionalId |-> transactionalId, number |-> number, partition |-> partition, offset |-> offset])

(* A client sends a batch of its transaction. The leader asks the coordinator about its first batch. *)
Produce(transactionalId, producerId, epoch, sequence, count) ==
    LET verified == Verified("data", transactionalId, producerId, epoch, sequence)
        leader   == verified.leader
        batch    == Batch(producerId, epoch, sequence, count)
        said     == AnswerToVerified(verified, batch)
        appends  == said.error = "NONE" /\ ~Leaders!IsRetry(leader, batch)
    IN  /\ IsSent("Produce")
        /\ coordinators' = [coordinators EXCEPT ![transactionalId] = verified.metadata]
        /\ partitions' = [partitions EXCEPT !["data"] = IF appends THEN WithBatch(leader, batch, ClientVersion) ELSE leader]
        /\ answer' = Answer("Produce", said.error, Nobody, said.offset)
        /\ written' = IF appends THEN WrittenWith(transactionalId, verified.metadata.number, "data", said.offset)
                      ELSE written
        /\ UNCHANGED <<toMark, allocated, writers, groupVars, ended, faults>>

(* A client sends a batch outside of transactions. *)
ProduceOutside(producerId, epoch, sequence, count) ==
    LET leader == partitions["data"]
        batch  == Batch(producerId, epoch, sequence, count)
        said   == AnswerOfLeader(leader, batch, 0, NoGuard)
    IN  /\ IsSent("Produce") /\ Outside
        /\ partitions' = IF said.error = "NONE" /\ ~Leaders!IsRetry(leader, batch)
                         THEN [partitions EXCEPT !["data"] = WithBatch(leader, batch, 0)] ELSE partitions
        /\ answer' = Answer("Produce", said.error, Nobody, said.offset)
        /\ UNCHANGED <<coordinatorVars, writers, groupVars, historyVars, faults>>

(* A client writes its group's offset in its transaction. *)
TxnOffsetCommit(transactionalId, producerId, epoch, member, generation) ==
    LET verified == Verified("offsets", transactionalId, producerId, epoch, NoSequence)
        leader   == verified.leader
        batch    == Batch(producerId, epoch, NoSequence, 1)
        error    == IF verified.error # "NONE" THEN verified.error
                    ELSE IF CommitError(member, generation) # "NONE" THEN CommitError(member, generation)
                    ELSE BatchError(leader, batch, ClientVersion, verified.guard)
        appends  == error = "NONE"
    IN  /\ IsSent("TxnOffsetCommit")
        /\ coordinators' = [coordinators EXCEPT ![transactionalId] = verified.metadata]
        /\ partitions' =
            [partitions EXCEPT !["offsets"] = IF appends THEN WithBatch(leader, batch, ClientVersion) ELSE leader]
        /\ pending' = IF appends THEN WithPending(producerId, EndOf(leader)) ELSE pending
        /\ Says("TxnOffsetCommit", error)
        /\ written' = IF appends THEN WrittenWith(transactionalId, verified.metadata.number, "offsets", EndOf(leader))
                      ELSE written
        /\ UNCHANGED <<toMark, allocated, writers, group, membership, committed, ended, faults>>

(* A client commits its group's offset outside of transactions. *)
OffsetCommit(member, generation) ==
    LET leader == partitions["offsets"]
        error  == PlainCommitError(member, generation)
    IN  /\ IsSent("OffsetCommit")
        /\ member = NoMember \/ IsKnown
        /\ IF error = "NONE" THEN
              /\ partitions' = [partitions EXCEPT !["offsets"] = Leaders!WithUnidentified(leader, 1)]
              /\ committed' = [committed EXCEPT !["data"] = EndOf(leader)]
           ELSE UNCHANGED <<partitions, committed>>
        /\ Says("OffsetCommit", error)
        /\ UNCHANGED <<coordinatorVars, writers, group, membership, pending, historyVars, faults>>

(* A consumer becomes the group's only member. *)
JoinGroup ==
    /\ IsSent("JoinGroup")
    /\ group.members = {}
    /\ group' = [Groups!NextGeneration EXCEPT !.members = {"member"}]
    /\ Says("JoinGroup", "NONE")
    /\ UNCHANGED <<coordinatorVars, partitions, writers, membership, pending, committed, historyVars, faults>>

(* A consumer is told its epoch after a heartbeat. *)
TellsEpoch(epoch) ==
    /\ answer' = Answer("ConsumerGroupHeartbeat", "NONE", Identity(NoProducerId, epoch), NoOffset)
    /\ UNCHANGED <<coordinatorVars, partitions, writers, group, pending, committed, historyVars, faults>>

(* A consumer joins the group of KIP-848, and is given the partition if it is to have it and nobody else has it. *)
JoinConsumerGroup(consumer) ==
    /\ consumer \notin Groups!Members
    /\ membership' = Groups!Joined(consumer)
    /\ TellsEpoch(membership'.members[consumer].epoch)

(* A member is led to the group's epoch. It says that it has what it was given, or that it has given that up. *)
Heartbeat(consumer, givesUp) ==
    LET current == membership.members[consumer]
        owned   == IF givesUp THEN {} ELSE current.assigned \cup current.revoking
    IN  /\ consumer \in Groups!Members
        /\ membership' = Groups!Reconciled(consumer, owned)
        /\ TellsEpoch(membership'.members[consumer].epoch)

(* A member leaves the group of KIP-848. *)
LeaveConsumerGroup(consumer) ==
    /\ consumer \in Groups!Members
    /\ membership' = Groups!MembershipWithout(consumer)
    /\ TellsEpoch(NoEpoch)

(***************************************************************************)
(* Steps of the broker without a request              WHO: the coordinator *)
(***************************************************************************)

(* A partition of the transaction gets its marker. *)
WriteMarker(transactionalId, partition) ==
    LET known  == coordinators[transactionalId]
        leader == partitions[partition]
        marker == MarkerOf(known, partition)
        commit == marker.kind = "commit"
    IN  /\ partition \in toMark[transactionalId]
        /\ Leaders!MarkerError(leader, marker, known.version) = "NONE"
        /\ partitions' = [partitions EXCEPT ![partition] = Leaders!WithMarker(leader, marker, known.version)]
        /\ toMark' = [toMark EXCEPT ![transactionalId] = @ \ {partition}]
        /\ IF partition = "data" THEN UNCHANGED <<pending, committed>>
           ELSE /\ committed' = CommittedAfterMarker(known.producerId, commit)
                /\ pending' = [pending EXCEPT ![known.producerId] = NothingPending]
        /\ answer' = NoAnswer
        /\ UNCHANGED <<coordinators, allocated, writers, group, membership, historyVars, faults>>

(* The coordinator closes the transaction. *)
CompleteTransaction(transactionalId) ==
    /\ coordinators[transactionalId].state \in Coordinator!PreparedStates
    /\ toMark[transactionalId] = {}
    /\ Recorded(transactionalId, Coordinator!AfterCompletion(coordinators[transactionalId]))
    /\ answer' = NoAnswer
    /\ UNCHANGED <<allocated, partitions, writers, groupVars, historyVars, faults>>

(***************************************************************************)
(* An outage                                          WHO: an operator     *)
(***************************************************************************)

(* A leader after the restart: the producers are those of its log and of a snapshot of its end. No question is open. *)
LeaderAfterRestart(before) ==
    [before EXCEPT !.log.producers = Leaders!Rebuilt(Leaders!WithSnapshot(before.log)),
                   !.asked = [producerId \in ProducerIds |-> Leaders!AskedAfterElection(@[producerId])]]

(* A coordinator's metadata after the restart: what it loads from its log. *)
MetadataAfterRestart(known) == Coordinator!Loaded(Coordinator!InLog(known))

(* The broker is stopped and started again. What it knows of groups is in its log (GroupFollowsLog). *)
Restart ==
    /\ "restart" \in Faults /\ faults < MaxFaults
    /\ faults' = faults + 1
    /\ coordinators' = [transactionalId \in TransactionalIds |-> MetadataAfterRestart(coordinators[transactionalId])]
    /\ toMark' = [transactionalId \in TransactionalIds |-> Coordinator!ToMark(coordinators'[transactionalId])]
    /\ partitions' = [partition \in Partitions |-> LeaderAfterRestart(partitions[partition])]
    /\ answer' = NoAnswer
    /\ UNCHANGED <<allocated, writers, groupVars, historyVars>>

(* The producer ids and epochs that a request may present: none, or any. *)
RequestProducerIds == ProducerIds \cup {NoProducerId}
RequestEpochs      == NoEpoch..MaxEpoch
Epochs             == 0..MaxEpoch

Next ==
    \/ \E transactionalId \in TransactionalIds :
        \/ \E producerId \in RequestProducerIds, epoch \in RequestEpochs :
            InitProducerId(transactionalId, producerId, epoch)
        \/ \E producerId \in ProducerIds, epoch \in Epochs :
            \/ AddPartitionsToTxn(transactionalId, producerId, epoch)
            \/ AddOffsetsToTxn(transactionalId, producerId, epoch)
            \/ \E commit \in BOOLEAN : EndTxn(transactionalId, producerId, epoch, commit)
            \/ \E sequence \in Sequences, count \in BatchCounts :
                Produce(transactionalId, producerId, epoch, sequence, count)
            \/ \E member \in Members, generation \in Generations :
                TxnOffsetCommit(transactionalId, producerId, epoch, member, generation)
        \/ \E partition \in Partitions : WriteMarker(transactionalId, partition)
        \/ CompleteTransaction(transactionalId)
    \/ \E writer \in Writers : InitIdempotentProducer(writer)
    \/ \E producerId \in ProducerIds, epoch \in Epochs, sequence \in Sequences, count \in BatchCounts :
        ProduceOutside(producerId, epoch, sequence, count)
    \/ \E member \in Members, generation \in Generations : OffsetCommit(member, generation)
    \/ JoinGroup
    \/ \E consumer \in Consumers :
        \/ JoinConsumerGroup(consumer)
        \/ \E givesUp \in BOOLEAN : Heartbeat(consumer, givesUp)
        \/ LeaveConsumerGroup(consumer)
    \/ Restart

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Properties of the answers, the logs and the group                       *)
(***************************************************************************)

IsSettled == \A transactionalId \in TransactionalIds :
    coordinators[transactionalId].state \notin Coordinator!PreparedStates

(* A producer's transaction is open at the leader of a partition. *)
IsOpen(partition, producerId) == partitions[partition].transactions.producers[producerId].firstOffset # NoOffset

(* The fate of what was written: "open" is undecided. *)
FateOf(one) ==
    LET entries == partitions[one.partition].transactions.entries IN
    Logs!Fate(entries, CHOOSE i \in DOMAIN entries : entries[i].offset = one.offset)

IsOfOne(one, other) == one.transactionalId = other.transactionalId /\ one.number = other.number

(* Everything in a transaction is committed, or nothing, data and offsets alike. *)
AllOrNone == \A one, other \in written : IsOfOne(one, other) => {FateOf(one), FateOf(other)} # {"commit", "abort"}
AllOrNoneWitness ==
    \E one, other \in written :
        one.partition # other.partition /\ IsOfOne(one, other) /\ FateOf(one) = "commit" /\ FateOf(other) = "commit"

(* Everything in a transaction ends as its client was told. *)
ToldIsDone ==
    \A end \in ended, one \in written : IsOfOne(one, end) =>
        FateOf(one) \in {IF end.commit THEN "commit" ELSE "abort"} \cup (IF IsSettled THEN {} ELSE {"open"})
ToldIsDoneWitness == IsSettled /\ \E end \in ended, one \in written : IsOfOne(one, end)

(* No transaction hangs: the coordinator knows every transaction that is open at a leader, and will end it. *)
OpenIsRegistered ==
    \A partition \in Partitions, producerId \in ProducerIds : IsOpen(partition, producerId) =>
        \E transactionalId \in TransactionalIds :
            LET known == coordinators[transactionalId] IN
            /\ known.producerId = producerId
            /\ partition \in IF known.state = "ONGOING" THEN known.partitions ELSE toMark[transactionalId]
OpenIsRegisteredWitness == ~IsSettled /\ \E partition \in Partitions, producerId \in ProducerIds : IsOpen(partition, producerId)

(* Leaders accept every marker that the coordinator still has to write. *)
MarkersAreAccepted ==
    \A transactionalId \in TransactionalIds : \A partition \in toMark[transactionalId] :
        LET known == coordinators[transactionalId] IN
        Leaders!MarkerError(partitions[partition], MarkerOf(known, partition), known.version) = "NONE"
MarkersAreAcceptedWitness ==
    \E transactionalId \in TransactionalIds : \E partition \in toMark[transactionalId] :
        IsOpen(partition, coordinators[transactionalId].producerId)

(* A client is given a producer id and epoch only when no transaction of that producer is open any more. *)
NothingOpenAfterInit ==
    answer.api = "InitProducerId" /\ answer.producerId \in ProducerIds =>
        \A partition \in Partitions : ~IsOpen(partition, answer.producerId)
NothingOpenAfterInitWitness == answer.api = "InitProducerId" /\ answer.error = "NONE" /\ written # {}

(* Batches of an epoch that the coordinator has fenced are refused, also in partitions without state of the producer. *)
FencedIsRefused ==
    \A transactionalId \in TransactionalIds :
        LET known == coordinators[transactionalId] IN
        known.state \in Coordinator!AtRest => \A epoch \in 0..(known.epoch - 1), sequence \in Sequences :
            AnswerToVerified(Verified("data", transactionalId, known.producerId, epoch, sequence),
                             Batch(known.producerId, epoch, sequence, 1)).error # "NONE"
FencedIsRefusedWitness ==
    Sequences # {} /\ \E transactionalId \in TransactionalIds :
        coordinators[transactionalId].state \in Coordinator!AtRest /\ coordinators[transactionalId].epoch > 0

(* The producer ids of a transactional.id, or of a producer that has none. *)
OwnIds(producer) ==
    (IF producer \in Writers THEN {writers[producer]}
     ELSE {coordinators[producer].producerId, coordinators[producer].nextProducerId}) \ {NoProducerId}

(* No two producers have the same producer id. *)
ProducerIdsAreOwned ==
    \A one, other \in TransactionalIds \cup Writers : one # other => OwnIds(one) \cap OwnIds(other) = {}
ProducerIdsAreOwnedWitness ==
    \E one, other \in TransactionalIds \cup Writers : one # other /\ OwnIds(one) # {} /\ OwnIds(other) # {}

Offsets == partitions["offsets"]
OffsetEntries == Offsets.transactions.entries

(* The places of offsets that were committed outside of transactions. *)
PlainPlaces ==
    {Offsets.log.entries[i].offset : i \in DOMAIN Offsets.log.entries}
        \ {OffsetEntries[i].offset : i \in DOMAIN OffsetEntries}

(* The places of offsets that were committed in transactions with this fate. *)
PlacesOf(fate) ==
    {OffsetEntries[i].offset : i \in
        {k \in DOMAIN OffsetEntries : OffsetEntries[k].kind = "transactional" /\ Logs!Fate(OffsetEntries, k) = fate}}

(* The group agrees with its partition: the last committed offset counts, and open ones are pending. *)
GroupFollowsLog ==
    /\ committed["data"] \in PlainPlaces \cup PlacesOf("commit") \cup {NoOffset}
    /\ \A place \in PlainPlaces \cup PlacesOf("commit") : place <= committed["data"]
    /\ \A producerId \in ProducerIds : IsOpen("offsets", producerId) <=> pending[producerId]["data"] \in PlacesOf("open")
GroupFollowsLogWitness == PlainPlaces # {} /\ PlacesOf("commit") # {}

(* A group with members refuses offsets from anybody else who claims to be a member. *)
OnlyMembersCommit ==
    group.members # {} => \A member \in Members \ {NoMember}, generation \in Generations :
        member \notin group.members \/ generation # group.generation => CommitError(member, generation) # "NONE"
OnlyMembersCommitWitness == group.members # {}

(* Offsets come from the member that has had the partition since the epoch that it presents, or presents its latest one. *)
OnlyOwnersCommit ==
    \A member \in Consumers, epoch \in Generations :
        CommitError(member, epoch) = "NONE" /\ ~IsEmpty =>
            \/ epoch = membership.members[member].epoch
            \/ epoch < membership.members[member].epoch /\ Groups!HasHadSince(member, "data", epoch)
OnlyOwnersCommitWitness ==
    \E member \in Groups!Members : \E epoch \in Generations : epoch # membership.members[member].epoch /\ CommitError(member, epoch) = "NONE"

(* A member of a group of KIP-848 commits offsets of its partition even if its epoch rose since it has read. *)
OwnersAreHeard ==
    \A member \in Groups!Members : \A epoch \in Generations :
        epoch <= membership.members[member].epoch /\ Groups!HasHadSince(member, "data", epoch) =>
            MemberError(member, epoch) = "NONE"
OwnersAreHeardWitness ==
    \E member \in Groups!Members : \E epoch \in Generations :
        epoch < membership.members[member].epoch /\ Groups!HasHadSince(member, "data", epoch)

(* The first versions of a request are answered with no error code that came later. *)
OldCodesOnly == answer.error \in {"PRODUCER_FENCED", "TRANSACTION_ABORTABLE"} => ApiVersions[answer.api] > 1
OldCodesOnlyWitness == answer.error = "INVALID_PRODUCER_EPOCH" /\ ApiVersions[answer.api] <= 1

(* The answer to a batch of a transaction, as Produce gives it. *)
AnswerToBatch(transactionalId, batch) ==
    AnswerToVerified(Verified("data", transactionalId, batch.producerId, batch.epoch, batch.sequence), batch)

(* A coordinator answers as before the step. It may fence an InitProducerId that is sent again: the log does not keep *)
(* the epoch that a client had before the present one.                                                                *)
CoordinatorAnswersAsBefore(before, after) ==
    \A producerId \in ProducerIds, epoch \in Epochs :
        /\ \A commit \in BOOLEAN :
              Coordinator!EndVerdict(after, producerId, epoch, commit, ClientVersion)
                  = Coordinator!EndVerdict(before, producerId, epoch, commit, ClientVersion)
        /\ \/ InitError(after, producerId, epoch) = InitError(before, producerId, epoch)
           \/ Coordinator!IsRetryOfInit(before, epoch)

(* No client notices a restart: batches, ends of transactions and requests for an epoch are answered as before. *)
RestartIsUnnoticed ==
    [][faults' # faults =>
        \A transactionalId \in TransactionalIds :
            /\ \A batch \in Leaders!Requests :
                  AnswerToBatch(transactionalId, batch)' = AnswerToBatch(transactionalId, batch)
            /\ CoordinatorAnswersAsBefore(coordinators[transactionalId], coordinators'[transactionalId])]_vars
RestartIsUnnoticedWitness ==
    /\ faults' # faults
    /\ \E batch \in Leaders!Requests : Leaders!IsRetry(partitions["data"], batch)
    /\ \E transactionalId \in TransactionalIds : coordinators[transactionalId].lastEpoch # NoEpoch

(* The verification of a batch does not outlive a restart: the leader refuses it, if it begins a transaction. *)
VerificationEndsWithRestart ==
    [][faults' # faults =>
        \A batch \in Leaders!Requests :
            LET after == partitions'["data"]
                guard == partitions["data"].asked[batch.producerId].guard
            IN  NeedsVerification(after, batch.producerId, batch.epoch)
                => Leaders!GuardError(after, batch, ClientVersion, guard) # "NONE"]_vars
VerificationEndsWithRestartWitness ==
    faults' # faults /\ \E producerId \in ProducerIds : partitions["data"].asked[producerId].guardEpoch # NoEpoch

=============================================================================
