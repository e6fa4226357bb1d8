---------------------------- MODULE OffsetsInduction ----------------------------
(***************************************************************************)
(* The invariant that kafka-eos check proofs offsets shows to be inductive, for   *)
(* TLC: the search begins with every state that has it, reached or not, of *)
(* a group in its first generation, and may leave it by no action.         *)
(***************************************************************************)
EXTENDS ConsumeTransformProduce

Counted == [Inputs -> {0, 1}]
OffsetsOrNone == {NoOffset} \cup {0} \cup Inputs

(* An offset is right after the last input with outputs. *)
IsBehind(offset, written) ==
    (\E input \in Inputs : written[input] > 0) =>
        /\ offset \in Inputs /\ written[offset] > 0
        /\ \A input \in Inputs : written[input] > 0 => input <= offset

(* An offset is pending in a transaction that has sent its offsets. *)
PendingIsSent ==
    \A producer \in TransactionalIds :
        pending[producer] # NothingPending => transactions[producer].state \in {"offsets sent", "commit", "abort"}
PendingIsSentWitness == \E producer \in TransactionalIds : pending[producer] # NothingPending

(* Without a transaction nothing is written. *)
NoneHasWritten ==
    \A producer \in TransactionalIds :
        transactions[producer].state = "none" => transactions[producer].written = NoOutput
NoneHasWrittenWitness == \E producer \in TransactionalIds : transactions[producer].state = "none"

(* Outputs are of inputs. *)
WrittenIsOfInputs ==
    \A producer \in TransactionalIds : \A partition \in Partitions : \A input \in Inputs :
        transactions[producer].written[partition][input] >= 0 /\ input >= 1
WrittenIsOfInputsWitness == \E producer \in TransactionalIds : transactions[producer].written # NoOutput

(* In version 1 the outputs of a partition have its transactional id. *)
WrittenByOwn ==
    Eos = "v1" =>
        \A producer \in TransactionalIds : \A partition \in Partitions \ {producer} :
            \A input \in Inputs : transactions[producer].written[partition][input] = 0
WrittenByOwnWitness == Eos = "v1" /\ \E producer \in TransactionalIds : transactions[producer].written # NoOutput

(* In version 2 an instance writes with its own transactional id. *)
InitializedIsOwn == Eos = "v2" => \A instance \in Instances : processes[instance].initialized \subseteq {instance}
InitializedIsOwnWitness == Eos = "v2" /\ \E instance \in Instances : processes[instance].initialized # {}

(* An instance that writes has its position after the last input with outputs. *)
PositionIsBehindWritten ==
    \A instance \in Instances : \A producer \in processes[instance].initialized :
        transactions[producer].state = "open" /\ transactions[producer].holder = instance =>
            \A partition \in Partitions :
                IsBehind(processes[instance].positions[partition], transactions[producer].written[partition])
PositionIsBehindWrittenWitness ==
    \E instance \in Instances : \E producer \in processes[instance].initialized :
        /\ transactions[producer].state = "open" /\ transactions[producer].holder = instance
        /\ transactions[producer].written # NoOutput

(* The offset that was sent is after the last input with outputs, and there is such an input. *)
SentIsBehindWritten ==
    \A producer \in TransactionalIds : transactions[producer].state = "offsets sent" =>
        \A partition \in Partitions :
            /\ IsBehind(pending[producer][partition], transactions[producer].written[partition])
            /\ pending[producer][partition] # NoOffset =>
                  \E input \in Inputs : transactions[producer].written[partition][input] > 0
SentIsBehindWrittenWitness ==
    \E producer \in TransactionalIds :
        transactions[producer].state = "offsets sent" /\ pending[producer] # NothingPending

Inductive ==
    /\ PendingIsSent
    /\ NoneHasWritten
    /\ WrittenIsOfInputs
    /\ WrittenByOwn
    /\ InitializedIsOwn
    /\ PositionIsBehindWritten
    /\ SentIsBehindWritten

(* Every state that has the invariant, of a group in its first generation. *)
IndInit ==
    /\ group = [state |-> "STABLE", generation |-> 1, members |-> Instances, joined |-> {}]
    /\ MembershipInit
    /\ pending \in [TransactionalIds -> [Partitions -> OffsetsOrNone]]
    /\ transactions \in [TransactionalIds -> [state : {"none", "open", "offsets sent", "commit", "abort"},
                                              holder : Instances \cup {NoMember},
                                              written : [Partitions -> Counted]]]
    /\ PendingIsSent /\ NoneHasWritten /\ WrittenIsOfInputs /\ WrittenByOwn /\ SentIsBehindWritten
    /\ \E positions \in [Instances -> [Partitions -> OffsetsOrNone]] :
       \E initialized \in [Instances -> SUBSET TransactionalIds] :
       \E assigned \in [Instances -> SUBSET Partitions] :
          processes = [instance \in Instances |->
                          [isUp |-> TRUE, generation |-> 1, assigned |-> assigned[instance],
                           initialized |-> initialized[instance], positions |-> positions[instance]]]
    /\ InitializedIsOwn /\ PositionIsBehindWritten
    /\ committed \in [Partitions -> {0} \cup Inputs]
    /\ outputs = NoOutput
    /\ faults = 0

IndSpec == IndInit /\ [][Next]_vars

(* Inputs may be processed again and again here. *)
Bounds ==
    \A partition \in Partitions : \A input \in Inputs :
        /\ outputs[partition][input] <= 1
        /\ \A producer \in TransactionalIds : transactions[producer].written[partition][input] <= 1

=============================================================================
