------------------------------ MODULE ProducerIds -----------------------------
(***************************************************************************)
(* Brokers give producer ids out of blocks that the controller allocates   *)
(* for them in the cluster's metadata log. The other modules rely on this: *)
(* no producer id is given out twice.                                      *)
(*                                                                         *)
(* Modelled: AllocateProducerIds, the record of a block and its commit,    *)
(*   another controller that knows only what is committed, lost requests   *)
(*   and answers, a block fetched ahead, a broker that restarts and        *)
(*   forgets its blocks.                                                   *)
(* Assumed, not checked: a committed record is never lost; an answer to a  *)
(*   request that the broker gave up is dropped with its connection.       *)
(* Out of scope: broker epochs and registration, the end of the ids.       *)
(*                                                                         *)
(* KIPs: 730.  Kafka: ProducerIdControlManager, RPCProducerIdManager,      *)
(* ProducerIdsBlock; KAFKA-20031.                                          *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Brokers,         \* the brokers that give ids out
    ProducerIds,     \* 0..n: the ids that there are
    BlockSize,       \* ids of a block; 1000 in Kafka
    MaxFaults        \* how many controllers change, answers are lost and brokers restart at most

VARIABLES
    controller,      \* the first id that no record has allocated: of all records written, and of those committed
    brokers,         \* the block that a broker gives ids out of, the first id of the one fetched ahead, its request
    given,           \* how often each id was given to a producer
    faults           \* the number of faults

vars == <<controller, brokers, given, faults>>

NoBlock == -1

(* The state of a broker that has just started: a block without an id left, and no request. *)
Started == [next |-> 0, last |-> -1, ahead |-> NoBlock, request |-> "none", offered |-> NoBlock]

Init ==
    /\ controller = [written |-> 0, committed |-> 0]
    /\ brokers = [broker \in Brokers |-> Started]
    /\ given = [id \in ProducerIds |-> 0]
    /\ faults = 0

(* The last id of a block. *)
LastOf(first) == first + BlockSize - 1

(* The first id after a block. *)
Behind(first) == LastOf(first) + 1

(* The controller answers with a block whose record is committed. *)
MayAnswer(first) == first < controller.committed

(* A broker takes no block that begins within the one that it has. *)
IsNewBlock(broker, first) == first > brokers[broker].last

MayFail == faults < MaxFaults

(***************************************************************************)
(* Asking for a block                                 WHO: the broker      *)
(***************************************************************************)

(* A broker asks for a block, as soon as it has none ahead. *)
RequestBlock(broker) ==
    /\ brokers[broker].request = "none"
    /\ brokers[broker].ahead = NoBlock
    /\ brokers' = [brokers EXCEPT ![broker].request = "sent"]
    /\ UNCHANGED <<controller, given, faults>>

(* A broker has its next block. *)
ReceiveBlock(broker) ==
    /\ brokers[broker].request = "answered"
    /\ IsNewBlock(broker, brokers[broker].offered)
    /\ brokers' = [brokers EXCEPT ![broker].ahead = brokers[broker].offered, ![broker].request = "none",
                                  ![broker].offered = NoBlock]
    /\ UNCHANGED <<controller, given, faults>>

(* A broker sees that the block overlaps with its own, and asks again. *)
RefuseBlock(broker) ==
    /\ brokers[broker].request = "answered"
    /\ ~IsNewBlock(broker, brokers[broker].offered)
    /\ brokers' = [brokers EXCEPT ![broker].request = "none", ![broker].offered = NoBlock]
    /\ UNCHANGED <<controller, given, faults>>

(***************************************************************************)
(* Allocating                                         WHO: the controller  *)
(***************************************************************************)

(* The controller writes the record of a block. *)
AllocateBlock(broker) ==
    /\ brokers[broker].request = "sent"
    /\ LastOf(controller.written) \in ProducerIds
    /\ brokers' = [brokers EXCEPT ![broker].request = "allocated", ![broker].offered = controller.written]
    /\ controller' = [controller EXCEPT !.written = Behind(@)]
    /\ UNCHANGED <<given, faults>>

(* A majority of the controllers has the next record. *)
CommitBlock ==
    /\ controller.committed < controller.written
    /\ controller' = [controller EXCEPT !.committed = Behind(@)]
    /\ UNCHANGED <<brokers, given, faults>>

(* The controller answers. *)
AnswerRequest(broker) ==
    /\ brokers[broker].request = "allocated"
    /\ MayAnswer(brokers[broker].offered)
    /\ brokers' = [brokers EXCEPT ![broker].request = "answered"]
    /\ UNCHANGED <<controller, given, faults>>

(* The state of a request after its connection breaks. *)
Broken(broker) ==
    IF broker.request = "answered" THEN broker ELSE [broker EXCEPT !.request = "none", !.offered = NoBlock]

(* Another controller takes over, with the records that are committed. *)
ChangeController ==
    /\ MayFail
    /\ controller' = [controller EXCEPT !.written = controller.committed]
    /\ brokers' = [broker \in Brokers |-> Broken(brokers[broker])]
    /\ faults' = faults + 1
    /\ UNCHANGED given

(***************************************************************************)
(* Giving ids out                                     WHO: the broker      *)
(***************************************************************************)

(* The coordinator on a broker gives a producer the next id of its block. *)
GiveProducerId(broker) ==
    /\ brokers[broker].next <= brokers[broker].last
    /\ given' = [given EXCEPT ![brokers[broker].next] = @ + 1]
    /\ brokers' = [brokers EXCEPT ![broker].next = @ + 1]
    /\ UNCHANGED <<controller, faults>>

(* A broker whose block has no id left goes on with the one that it fetched ahead. *)
TakeBlock(broker) ==
    /\ brokers[broker].next > brokers[broker].last
    /\ brokers[broker].ahead # NoBlock
    /\ brokers' = [brokers EXCEPT ![broker].next = brokers[broker].ahead, ![broker].last = LastOf(brokers[broker].ahead),
                                  ![broker].ahead = NoBlock]
    /\ UNCHANGED <<controller, given, faults>>

(* An answer gets lost, and the broker may ask again. *)
LoseAnswer(broker) ==
    /\ MayFail
    /\ brokers[broker].request = "answered"
    /\ brokers' = [brokers EXCEPT ![broker].request = "none", ![broker].offered = NoBlock]
    /\ faults' = faults + 1
    /\ UNCHANGED <<controller, given>>

(* A broker restarts, and forgets the blocks that it has. *)
RestartBroker(broker) ==
    /\ MayFail
    /\ brokers[broker] # Started
    /\ brokers' = [brokers EXCEPT ![broker] = Started]
    /\ faults' = faults + 1
    /\ UNCHANGED <<controller, given>>

Next ==
    \/ \E broker \in Brokers :
        \/ RequestBlock(broker)
        \/ ReceiveBlock(broker)
        \/ RefuseBlock(broker)
        \/ AllocateBlock(broker)
        \/ AnswerRequest(broker)
        \/ GiveProducerId(broker)
        \/ TakeBlock(broker)
        \/ LoseAnswer(broker)
        \/ RestartBroker(broker)
    \/ CommitBlock
    \/ ChangeController

Spec == Init /\ [][Next]_vars

(* Nobody waits for ever: records are committed, requests handled, blocks used. *)
FairSpec ==
    /\ Spec
    /\ WF_vars(CommitBlock)
    /\ \A broker \in Brokers :
        /\ WF_vars(RequestBlock(broker)) /\ WF_vars(ReceiveBlock(broker)) /\ WF_vars(RefuseBlock(broker))
        /\ WF_vars(AllocateBlock(broker)) /\ WF_vars(AnswerRequest(broker))
        /\ WF_vars(GiveProducerId(broker)) /\ WF_vars(TakeBlock(broker))

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

(* No producer id is given to two producers. *)
ProducerIdsAreUnique == \A id \in ProducerIds : given[id] <= 1
ProducerIdsAreUniqueWitness ==
    \E one, other \in ProducerIds : given[one] > 0 /\ given[other] > 0 /\ one + BlockSize <= other

(* No id is given out before the record of its block is committed. *)
OnlyCommittedIsGiven == \A id \in ProducerIds : given[id] > 0 => id < controller.committed
OnlyCommittedIsGivenWitness == controller.committed < controller.written /\ \E id \in ProducerIds : given[id] > 0

(* A broker refuses no block that the controller allocated. *)
NoSpuriousRefusal ==
    \A broker \in Brokers : brokers[broker].request = "answered" => IsNewBlock(broker, brokers[broker].offered)
NoSpuriousRefusalWitness == \E broker \in Brokers : brokers[broker].request = "answered" /\ brokers[broker].last >= 0

(* The ids that a broker can still give out: of its block, of the one ahead, of the one that it is about to get. *)
Held(broker) ==
    LET has == brokers[broker]
        block(first) == IF first = NoBlock THEN {} ELSE first..LastOf(first)
    IN  (has.next..has.last) \cup block(has.ahead) \cup (IF has.request = "answered" THEN block(has.offered) ELSE {})

(* No two brokers hold the same id. *)
BlocksAreDisjoint == \A a, b \in Brokers : a # b => Held(a) \cap Held(b) = {}
BlocksAreDisjointWitness == \E a, b \in Brokers : a # b /\ Held(a) # {} /\ Held(b) # {}

(* As long as there are ids, a broker that has none gets one. *)
EveryBrokerGetsIds ==
    \A broker \in Brokers :
        []<>(brokers[broker].next <= brokers[broker].last \/ LastOf(controller.written) \notin ProducerIds)
EveryBrokerGetsIdsWitness ==
    \E broker \in Brokers : /\ 0 <= brokers[broker].last /\ brokers[broker].last < brokers[broker].next
                            /\ LastOf(controller.written) \in ProducerIds

HasGivenTwoBlocks == \E broker \in Brokers : brokers[broker].last > LastOf(0) /\ brokers[broker].ahead # NoBlock
HasLostRecord == faults > 0 /\ given[0] = 1

=============================================================================
