---------------------------- MODULE ReplicatedLog -----------------------------
(***************************************************************************)
(* One partition on several replicas: in-sync set, high watermark, leader  *)
(* epochs, elections, truncation, crash and restart. Each replica carries  *)
(* the producers' state along with its log.                                *)
(*                                                                         *)
(* Modelled: followers fetch one batch at a time; a diverged follower cuts *)
(*   its log back to the common prefix (KIP-101, KIP-279); the in-sync set *)
(*   shrinks and grows; clean and unclean elections; kill -9 and restart.  *)
(* Assumed, not checked: the controller's decisions reach everybody at     *)
(*   once. (What a deposed leader would still append is truncated later:   *)
(*   to clients that is the same as appended just before the election.)    *)
(*   Followers know the high watermark; a follower's lagging copy is a     *)
(*   matter of the consumer, not of what is committed.                     *)
(* Out of scope: loss of a disk; reassignment; the controller's own quorum.*)
(* Also out of scope: min.insync.replicas above 1, below which Kafka stops *)
(*   the high watermark, and eligible leader replicas (KIP-966, for new    *)
(*   clusters from 4.1). There the in-sync set may be empty, and a replica *)
(*   that was killed loses its place among those that may lead. Here the   *)
(*   set keeps its last members, killed ones included.                     *)
(*                                                                         *)
(* KIPs: 101, 106, 279, 497.  Kafka: Partition, ReplicaFetcherThread,      *)
(* ReplicaManager, UnifiedLog.                                             *)
(***************************************************************************)
EXTENDS ProducerState

CONSTANTS
    Replicas,            \* the replicas' names
    InitialLeader,       \* the first of them to lead
    Snapshots,           \* TRUE: a replica may write a snapshot of the producers
    UncleanElection,     \* TRUE: unclean.leader.election.enable
    MaxLeaderEpoch       \* how often a crash or a move of the leader may force an election

NoLeader == "none"

VARIABLES
    replicas,            \* each replica's log
    alive,               \* the replicas that run
    leader,              \* the leader, or NoLeader
    leaderEpoch,         \* counts the elections
    isr,                 \* the in-sync replicas
    highWatermark        \* the offset up to which every in-sync replica has the log

replicatedVars == <<replicas, alive, leader, leaderEpoch, isr, highWatermark>>

ReplicatedInit ==
    /\ replicas = [replica \in Replicas |-> EmptyLog]
    /\ alive = Replicas
    /\ leader = InitialLeader
    /\ leaderEpoch = 0
    /\ isr = Replicas
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
    /\ UNCHANGED <<alive, leader, leaderEpoch, isr, highWatermark>>

(* A follower whose log is not a prefix of the leader's truncates it to their common prefix. *)
TruncateFollower(replica) ==
    /\ IsFollower(replica)
    /\ InCommon(replica) < Len(replicas[replica].entries)
    /\ replicas' = [replicas EXCEPT ![replica] = Truncated(@, @.entries[InCommon(replica) + 1].offset)]
    /\ UNCHANGED <<alive, leader, leaderEpoch, isr, highWatermark>>

(***************************************************************************)
(* In-sync set and high watermark                      WHO: the leader     *)
(***************************************************************************)

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
    /\ InSyncEndOffset > highWatermark
    /\ highWatermark' = InSyncEndOffset
    /\ UNCHANGED <<replicas, alive, leader, leaderEpoch, isr>>

(* The leader drops a follower that has fallen behind from the in-sync set. *)
ShrinkIsr(replica) ==
    /\ leader # NoLeader
    /\ replica \in isr \ {leader}
    /\ replica \notin alive \/ InCommon(replica) < Len(replicas[leader].entries)
    /\ isr' = isr \ {replica}
    /\ UNCHANGED <<replicas, alive, leader, leaderEpoch, highWatermark>>

(* The leader takes a follower that has caught up into the in-sync set. *)
ExpandIsr(replica) ==
    /\ IsFollower(replica)
    /\ replica \notin isr
    /\ InCommon(replica) = Len(replicas[replica].entries)
    /\ EndOffset(replica) >= highWatermark
    /\ isr' = isr \cup {replica}
    /\ UNCHANGED <<replicas, alive, leader, leaderEpoch, highWatermark>>

(***************************************************************************)
(* Crash and restart                                   WHO: a replica      *)
(***************************************************************************)

(* A replica's process is killed. Its log stays on its disk. *)
Crash(replica) ==
    /\ leaderEpoch < MaxLeaderEpoch
    /\ replica \in alive
    /\ alive' = alive \ {replica}
    /\ leader' = IF replica = leader THEN NoLeader ELSE leader
    /\ UNCHANGED <<replicas, leaderEpoch, isr, highWatermark>>

(* A replica starts again and rebuilds the producers from snapshot and log. *)
Restart(replica) ==
    /\ replica \notin alive
    /\ alive' = alive \cup {replica}
    /\ replicas' = [replicas EXCEPT ![replica] = Reloaded(@)]
    /\ UNCHANGED <<leader, leaderEpoch, isr, highWatermark>>

(* A replica writes what it knows of the producers to a snapshot. *)
TakeSnapshot(replica) ==
    /\ Snapshots
    /\ replica \in alive
    /\ replicas[replica].snapshot.offset < EndOffset(replica)
    /\ replicas' = [replicas EXCEPT ![replica] = WithSnapshot(@)]
    /\ UNCHANGED <<alive, leader, leaderEpoch, isr, highWatermark>>

(***************************************************************************)
(* Elections                                           WHO: the controller *)
(***************************************************************************)

(* An in-sync replica becomes the leader; the in-sync set keeps those that run. *)
ElectLeader(replica) ==
    /\ leader = NoLeader \/ leaderEpoch < MaxLeaderEpoch
    /\ replica # leader
    /\ replica \in isr \cap alive
    /\ leader' = replica
    /\ leaderEpoch' = leaderEpoch + 1
    /\ isr' = isr \cap alive
    /\ UNCHANGED <<replicas, alive, highWatermark>>

(* No in-sync replica runs, and any other one becomes the leader: what it does not have is lost. *)
ElectUncleanLeader(replica) ==
    /\ UncleanElection
    /\ isr \cap alive = {}
    /\ replica \in alive
    /\ leader' = replica
    /\ leaderEpoch' = leaderEpoch + 1
    /\ isr' = {replica}
    /\ highWatermark' = Min(highWatermark, EndOffset(replica))
    /\ UNCHANGED <<replicas, alive>>

ReplicaStep ==
    \/ \E replica \in Replicas :
        \/ Replicate(replica)
        \/ TruncateFollower(replica)
        \/ ShrinkIsr(replica)
        \/ ExpandIsr(replica)
        \/ Crash(replica)
        \/ Restart(replica)
        \/ TakeSnapshot(replica)
        \/ ElectLeader(replica)
        \/ ElectUncleanLeader(replica)
    \/ AdvanceHighWatermark

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

(* A log's batches below the high watermark. *)
BelowHighWatermark(log) == SelectSeq(log.entries, LAMBDA entry : entry.offset < highWatermark)

(* The committed batches, as any in-sync replica has them. *)
Committed == BelowHighWatermark(replicas[CHOOSE replica \in isr : TRUE])

(* Every in-sync replica has the committed batches. *)
InSyncHaveCommitted ==
    \A a, b \in isr : /\ EndOffset(a) >= highWatermark
                      /\ BelowHighWatermark(replicas[a]) = BelowHighWatermark(replicas[b])
InSyncHaveCommittedWitness == Cardinality(isr) > 1 /\ highWatermark > 0

(* At least one replica is always in sync. *)
SomebodyIsInSync == isr # {}
SomebodyIsInSyncWitness == isr # Replicas

=============================================================================
