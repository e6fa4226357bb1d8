---------------------------- MODULE ReplicatedLog -----------------------------
(***************************************************************************)
(* One partition on several replicas: in-sync set, high watermark, leader  *)
(* epochs, elections, truncation, crash and restart. Each replica carries  *)
(* the producers' state along with its log.                                *)
(*                                                                         *)
(* Modelled: followers fetch one batch at a time; a diverged follower cuts *)
(*   its log back to the common prefix (KIP-101, KIP-279); the in-sync set *)
(*   shrinks and grows; clean and unclean elections; kill -9 and restart;  *)
(*   the loss of batches that a replica had not flushed to its disk;       *)
(*   min.insync.replicas; eligible leader replicas (KIP-966, for new       *)
(*   clusters from 4.1), with which the in-sync set may be empty.          *)
(* Assumed, not checked: the controller's decisions reach everybody at     *)
(*   once. (What a deposed leader would still append is truncated later:   *)
(*   to clients that is the same as appended just before the election.)    *)
(*   Followers know the high watermark; a follower's lagging copy is a     *)
(*   matter of the consumer, not of what is committed.                     *)
(* Out of scope: loss of a disk; reassignment; the controller's own quorum;*)
(*   a controlled shutdown, after which a replica keeps its place among    *)
(*   the eligible ones: here that is a follower that is slow.              *)
(*                                                                         *)
(* KIPs: 101, 106, 279, 497, 966.  Kafka: Partition, ReplicaFetcherThread, *)
(* ReplicaManager, UnifiedLog, PartitionChangeBuilder,                     *)
(* ReplicationControlManager.                                              *)
(***************************************************************************)
EXTENDS ProducerState

CONSTANTS
    Replicas,            \* the replicas' names
    InitialLeader,       \* the first of them to lead
    Snapshots,           \* TRUE: a replica may write a snapshot of the producers
    UncleanElection,     \* TRUE: unclean.leader.election.enable
    MinInsyncReplicas,   \* min.insync.replicas
    EligibleLeaderReplicas, \* TRUE: the controller keeps eligible leader replicas (eligible.leader.replicas.version 1)
    Volatile,            \* the replicas that lose batches that they have not flushed when they are killed
    MaxLeaderEpoch       \* how often a crash or a move of the leader may force an election

NoLeader == "none"

VARIABLES
    replicas,            \* each replica's log
    alive,               \* the replicas that run
    leader,              \* the leader, or NoLeader
    leaderEpoch,         \* counts the elections
    isr,                 \* the in-sync replicas
    elr,                 \* the eligible leader replicas: out of sync, with all that is committed
    lastKnownLeader,     \* the leader when the in-sync set became empty, or NoLeader
    highWatermark        \* the offset up to which every in-sync replica has the log

clusterVars == <<alive, leader, leaderEpoch, isr, elr, lastKnownLeader, highWatermark>>
replicatedVars == <<replicas, clusterVars>>

ReplicatedInit ==
    /\ replicas = [replica \in Replicas |-> EmptyLog]
    /\ alive = Replicas
    /\ leader = InitialLeader
    /\ leaderEpoch = 0
    /\ isr = Replicas
    /\ elr = {}
    /\ lastKnownLeader = NoLeader
    /\ highWatermark = 0

EndOffset(replica) == LogEndOffset(replicas[replica])

Min(a, b) == IF a < b THEN a ELSE b

RECURSIVE CommonLength(_, _, _)
(* The number of batches that two logs have in common from their start. The first n are known to be the same. *)
CommonLength(a, b, n) ==
    IF n < Len(a) /\ n < Len(b) /\ a[n + 1].offset = b[n + 1].offset /\ a[n + 1].leaderEpoch = b[n + 1].leaderEpoch
    THEN CommonLength(a, b, n + 1)
    ELSE n

(* The number of batches that a follower's log has in common with the leader's. *)
InCommon(follower) == CommonLength(replicas[follower].entries, replicas[leader].entries, 0)

IsFollower(replica) == replica \in alive /\ leader # NoLeader /\ replica # leader

(* The logs after the leader has appended a produce request's batch. *)
LeaderAppends(batch) ==
    replicas' = [replicas EXCEPT ![leader] = Appended(@, [batch EXCEPT !.leaderEpoch = leaderEpoch])]

(***************************************************************************)
(* Replication                                         WHO: a follower     *)
(***************************************************************************)

(* A follower fetches the next batch from the leader and appends it without any check. *)
Replicate(replica) ==
    /\ IsFollower(replica)
    /\ InCommon(replica) = Len(replicas[replica].entries)
    /\ InCommon(replica) < Len(replicas[leader].entries)
    /\ replicas' = [replicas EXCEPT ![replica] = Appended(@, replicas[leader].entries[InCommon(replica) + 1])]
    /\ UNCHANGED clusterVars

(* A follower whose log is not a prefix of the leader's truncates it to their common prefix. *)
TruncateFollower(replica) ==
    /\ IsFollower(replica)
    /\ InCommon(replica) < Len(replicas[replica].entries)
    /\ replicas' = [replicas EXCEPT ![replica] = Truncated(@, @.entries[InCommon(replica) + 1].offset)]
    /\ UNCHANGED clusterVars

(***************************************************************************)
(* In-sync set and high watermark                      WHO: the leader     *)
(***************************************************************************)

(* The number of in-sync replicas that acks=all and the high watermark need. *)
EffectiveMinIsr == Min(MinInsyncReplicas, Cardinality(Replicas))

(* As many replicas are in sync as min.insync.replicas asks for. *)
HasMinIsr == Cardinality(isr) >= EffectiveMinIsr

(* The high watermark may move: not while fewer replicas are in sync than min.insync.replicas asks for. *)
MayAdvance == HasMinIsr

(* The eligible leader replicas once only members are in sync. Those that leave the in-sync set while it is small stay *)
(* eligible, because nothing is committed without them. One that was killed may have lost batches and is not eligible. *)
EligibleWith(members, killed) ==
    IF EligibleLeaderReplicas /\ Cardinality(members) < EffectiveMinIsr
    THEN ((isr \cup elr) \ members) \ killed
    ELSE {}

(* The offset up to which every in-sync replica has the leader's log. *)
InSyncEndOffset ==
    LET shared(replica) == IF replica = leader THEN Len(replicas[leader].entries) ELSE InCommon(replica)
        endOf(replica) == IF shared(replica) = 0 THEN 0
                          ELSE LET last == replicas[leader].entries[shared(replica)] IN last.offset + last.count
        ends == {endOf(replica) : replica \in isr}
    IN  CHOOSE end \in ends : \A other \in ends : end <= other

(* The leader moves the high watermark to what every in-sync replica has. *)
AdvanceHighWatermark ==
    /\ leader # NoLeader
    /\ MayAdvance
    /\ InSyncEndOffset > highWatermark
    /\ highWatermark' = InSyncEndOffset
    /\ UNCHANGED <<replicas, alive, leader, leaderEpoch, isr, elr, lastKnownLeader>>

(* The leader drops a follower that has fallen behind from the in-sync set. *)
ShrinkIsr(replica) ==
    /\ leader # NoLeader
    /\ replica \in isr \ {leader}
    /\ replica \notin alive \/ InCommon(replica) < Len(replicas[leader].entries)
    /\ isr' = isr \ {replica}
    /\ elr' = EligibleWith(isr', {})
    /\ UNCHANGED <<replicas, alive, leader, leaderEpoch, lastKnownLeader, highWatermark>>

(* The leader takes a follower that has caught up into the in-sync set. *)
ExpandIsr(replica) ==
    /\ IsFollower(replica)
    /\ replica \notin isr
    /\ InCommon(replica) = Len(replicas[replica].entries)
    /\ EndOffset(replica) >= highWatermark
    /\ isr' = isr \cup {replica}
    /\ elr' = EligibleWith(isr', {})
    /\ UNCHANGED <<replicas, alive, leader, leaderEpoch, lastKnownLeader, highWatermark>>

(***************************************************************************)
(* Crash and restart                                   WHO: a replica      *)
(***************************************************************************)

(* The replicas that may be killed: any. *)
MayBeKilled(replica) == TRUE

(* A replica's process is killed. Its log stays on its disk. *)
Crash(replica) ==
    /\ leaderEpoch < MaxLeaderEpoch
    /\ MayBeKilled(replica)
    /\ replica \in alive
    /\ alive' = alive \ {replica}
    /\ leader' = IF replica = leader THEN NoLeader ELSE leader
    /\ UNCHANGED <<replicas, leaderEpoch, isr, elr, lastKnownLeader, highWatermark>>

(* A killed replica's machine failed as well: its last batch was not on the disk yet. *)
LoseUnflushed(replica) ==
    /\ replica \in Volatile \ alive
    /\ replicas[replica].entries # <<>>
    /\ replicas' = [replicas EXCEPT ![replica] = Truncated(@, @.entries[Len(@.entries)].offset)]
    /\ UNCHANGED clusterVars

(* A killed replica leaves the in-sync set when it registers again. Without eligible leader replicas the last one stays *)
(* in it. A replica that loses nothing would come back at once, so that its leaving is left out there.                  *)
LeavesIsr(replica) == EligibleLeaderReplicas \/ (replica \in Volatile /\ isr # {replica})

(* The last known leader once only members are in sync: the replica that was the last one in sync. *)
LastKnownWith(members, replica) == IF members = {} /\ replica \in isr THEN replica ELSE lastKnownLeader

(* A replica starts again and rebuilds the producers from snapshot and log. *)
Restart(replica) ==
    /\ replica \notin alive
    /\ alive' = alive \cup {replica}
    /\ replicas' = [replicas EXCEPT ![replica] = Reloaded(@)]
    /\ isr' = IF LeavesIsr(replica) THEN isr \ {replica} ELSE isr
    /\ elr' = EligibleWith(isr', {replica})
    /\ lastKnownLeader' = LastKnownWith(isr', replica)
    /\ UNCHANGED <<leader, leaderEpoch, highWatermark>>

(* A replica writes what it knows of the producers to a snapshot. *)
TakeSnapshot(replica) ==
    /\ Snapshots
    /\ replica \in alive
    /\ replicas[replica].snapshot.offset < EndOffset(replica)
    /\ replicas' = [replicas EXCEPT ![replica] = WithSnapshot(@)]
    /\ UNCHANGED clusterVars

(***************************************************************************)
(* Elections                                           WHO: the controller *)
(***************************************************************************)

(* The controller notices that a replica was killed. With eligible replicas the in-sync set may become empty. *)
FenceReplica(replica) ==
    /\ EligibleLeaderReplicas
    /\ leader = NoLeader
    /\ replica \in isr \ alive
    /\ isr' = isr \ {replica}
    /\ elr' = EligibleWith(isr', {})
    /\ lastKnownLeader' = LastKnownWith(isr', replica)
    /\ UNCHANGED <<replicas, alive, leader, leaderEpoch, highWatermark>>

(* With eligible leader replicas the controller fences killed replicas one by one, and elects then. *)
HasFenced == EligibleLeaderReplicas => isr \subseteq alive

(* The replicas that may lead: those in sync, else the eligible ones, else the last known leader. *)
Candidates ==
    IF isr # {} THEN isr
    ELSE IF elr # {} THEN elr
    ELSE {lastKnownLeader}

(* The replica leads, and members are in sync with it. What is above its log's end is lost. *)
Lead(replica, members) ==
    /\ leader' = replica
    /\ leaderEpoch' = leaderEpoch + 1
    /\ isr' = members
    /\ lastKnownLeader' = NoLeader
    /\ highWatermark' = Min(highWatermark, EndOffset(replica))
    /\ UNCHANGED <<replicas, alive>>

(* An in-sync replica becomes the leader, or one that stands in for it; the in-sync set keeps those that run. *)
ElectLeader(replica) ==
    /\ leader = NoLeader \/ leaderEpoch < MaxLeaderEpoch
    /\ replica # leader
    /\ HasFenced
    /\ replica \in Candidates \cap alive
    /\ Lead(replica, (isr \cap alive) \cup {replica})
    /\ elr' = elr \ {replica}

(* No in-sync replica runs, and any other one becomes the leader: what it does not have is lost. *)
ElectUncleanLeader(replica) ==
    /\ UncleanElection
    /\ HasFenced
    /\ Candidates \cap alive = {}
    /\ replica \in alive
    /\ Lead(replica, {replica})
    /\ elr' = {}

ReplicaStep ==
    \/ \E replica \in Replicas :
        \/ Replicate(replica)
        \/ TruncateFollower(replica)
        \/ ShrinkIsr(replica)
        \/ ExpandIsr(replica)
        \/ Crash(replica)
        \/ LoseUnflushed(replica)
        \/ Restart(replica)
        \/ TakeSnapshot(replica)
        \/ FenceReplica(replica)
        \/ ElectLeader(replica)
        \/ ElectUncleanLeader(replica)
    \/ AdvanceHighWatermark

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

(* A log's batches below the high watermark. *)
BelowHighWatermark(log) == SelectSeq(log.entries, LAMBDA entry : entry.offset < highWatermark)

(* The replica whose log says what is committed: the leader, or else the one of those that may lead with the longest log. *)
Keeper ==
    IF leader # NoLeader THEN leader
    ELSE LET known == IF isr \cup elr # {} THEN isr \cup elr ELSE {lastKnownLeader}
         IN  CHOOSE replica \in known : \A other \in known : EndOffset(other) <= EndOffset(replica)

(* The committed batches. *)
Committed == BelowHighWatermark(replicas[Keeper])

(* Every in-sync replica that runs has the committed batches. *)
InSyncHaveCommitted ==
    \A replica \in isr \cap alive :
        EndOffset(replica) >= highWatermark /\ BelowHighWatermark(replicas[replica]) = Committed
InSyncHaveCommittedWitness == Cardinality(isr) > 1 /\ highWatermark > 0

(* Every eligible leader replica that runs has the committed batches. *)
EligibleHaveCommitted ==
    \A replica \in elr \cap alive :
        EndOffset(replica) >= highWatermark /\ BelowHighWatermark(replicas[replica]) = Committed
EligibleHaveCommittedWitness == elr \cap alive # {} /\ highWatermark > 0

(* Some replica is in sync; with eligible leader replicas, some replica is, or the last one that was is known. *)
SomebodyIsInSync == isr # {} \/ (EligibleLeaderReplicas /\ lastKnownLeader # NoLeader)
SomebodyIsInSyncWitness == isr # Replicas

=============================================================================
