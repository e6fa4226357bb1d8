---------------------------- MODULE FencingInduction ----------------------------
(***************************************************************************)
(* The invariant that kafka-eos check proofs fencing shows to be inductive, for   *)
(* TLC: the search begins with states that have it and the coordinator's,  *)
(* reached or not, and takes one step from each, with any action.          *)
(*                                                                         *)
(* The past is kept next to the state: what InitProducerId gave last, the  *)
(* number of transactions until then, and who was told that its partition  *)
(* is in which transaction. It is read off the answers of steps. In the    *)
(* first states, everybody was told as much as the invariant allows: with  *)
(* less it would say less. TLC counts Next as one action here; the         *)
(* coordinator's models show that each of its actions is taken from such   *)
(* states.                                                                 *)
(***************************************************************************)
EXTENDS CoordinatorInduction

VARIABLES
    given_by_init,   \* the producer id and epoch that the last answered InitProducerId gave
    until,           \* the number of transactions then
    added            \* who was told that its partition is in which transaction: [number, producerId, epoch]

past == <<given_by_init, until, added>>

(* A step with its answer: what InitProducerId gives, and who takes part from now on. *)
Remembers ==
    LET answered == answer'.error = "NONE"
        who      == IF IsIdle THEN Identity(metadata.producerId, metadata.epoch) ELSE appending.asked
    IN  /\ IF answered /\ answer'.request = "InitProducerId" THEN
              /\ given_by_init' = Identity(answer'.producerId, answer'.epoch)
              /\ until' = durable'.number
           ELSE UNCHANGED <<given_by_init, until>>
        /\ added' = IF answered /\ answer'.request = "AddPartition"
                    THEN added \cup {who @@ [number |-> metadata'.number]} ELSE added

(***************************************************************************)
(* The invariant                                                           *)
(***************************************************************************)

IsLater(record) == record.number > until \/ (record.number = until /\ record.state \in {"EMPTY", "DEAD"})

IsBehind(entry) == \A record \in Records : record.number >= entry.number

IsOfNewest(entry) == entry.number > until => IsNotNewer(given_by_init, entry)

(* Whatever goes on after InitProducerId is a later transaction. *)
FencedIsBehind == \A record \in Records : IsLater(record)
FencedIsBehindWitness == until > 0

(* The log never goes back before a transaction that a client takes part in. *)
AddedIsBehind == \A entry \in added : IsBehind(entry)
AddedIsBehindWitness == \E entry \in added, record \in Records : record.number > entry.number

(* Later transactions have no client that is older than that InitProducerId. *)
AddedByNewest == \A entry \in added : IsOfNewest(entry)
AddedByNewestWitness == \E entry \in added : entry.number > until

(* The identity that InitProducerId gave is not newer than the last that was given. *)
InitIsGiven == IsNotNewer(given_by_init, given)
InitIsGivenWitness == given_by_init.producerId # NoProducerId

(* A partition is added by the identity that the record has. *)
AddedAsItself == appending.request = "AddPartition" => IsSame(appending.asked, appending.record)
AddedAsItselfWitness == appending.request = "AddPartition"

(* No record is of an earlier transaction than the coordinator's memory. *)
MemoryIsOldest == ~loading => \A record \in Records : record.number >= metadata.number
MemoryIsOldestWitness == ~loading /\ \E record \in Records : record.number > metadata.number

(***************************************************************************)
(* What follows from it                                                    *)
(***************************************************************************)

Ends == {entry.number : entry \in (markers' \ markers) \cup (told' \ told)}

(* An ended transaction has no client that is older than the last answered InitProducerId. *)
EndedByNewest ==
    [][\A entry \in added' : entry.number \in Ends => IsNotNewer(given_by_init', entry)]_<<vars, past>>
EndedByNewestWitness == \E entry \in added' : entry.number \in Ends

(* No client ends a transaction that is older than the last answered InitProducerId. *)
AskedByNewest ==
    [][appending' # appending /\ appending'.request = "EndTxn" => IsNotNewer(given_by_init, appending'.asked)]_<<vars, past>>
AskedByNewestWitness == appending' # appending /\ appending'.request = "EndTxn"

(***************************************************************************)
(* The first states                                                        *)
(***************************************************************************)

FencingInit ==
    /\ IndInit
    /\ Unless("MemoryIsOldest", MemoryIsOldest)
    /\ given_by_init \in {Nobody, Identity(0, 0), Identity(1, 0), Identity(given.producerId, given.epoch)}
    /\ Unless("InitIsGiven", InitIsGiven)
    /\ until \in {-1} \cup FirstNumbers
    /\ Unless("FencedIsBehind", FencedIsBehind)
    /\ added = {entry \in {identity @@ [number |-> number] : identity \in FirstIdentities, number \in FirstNumbers} :
                   /\ Unless("AddedIsBehind", IsBehind(entry))
                   /\ Unless("AddedByNewest", IsOfNewest(entry))}

FencingSpec == FencingInit /\ [][Next /\ Remembers]_<<vars, past>>

=============================================================================
