------------------------------- MODULE EpochBump ------------------------------
(***************************************************************************)
(* A producer with a transactional.id asks the coordinator for its next    *)
(* epoch after a batch has expired (KIP-360), over a network that loses,   *)
(* delays, repeats and reorders. IdempotentProducer takes this as one step.*)
(*                                                                         *)
(* Modelled: the request with the producer id and epoch that the client    *)
(*   has, its retries, the answer to a retry, the last epoch and the new   *)
(*   producer id after it, another instance that takes over.               *)
(* Assumed, not checked: the client has an id already, and no transaction  *)
(*   is open; the coordinator's state is durable.                          *)
(* Out of scope: the first InitProducerId, which presents nothing and is   *)
(*   not idempotent (see the mutant PresentsNothing); transactions.        *)
(*                                                                         *)
(* KIPs: 360.  Kafka: TransactionCoordinator.handleInitProducerId,         *)
(* TransactionMetadata.prepareIncrementProducerEpoch, TransactionManager.  *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Attempts,        \* 1..n: how many requests the client sends at most
    MaxEpoch,        \* the last epoch that is handed out; 32766 in Kafka
    TakeOver         \* TRUE: another instance may ask for the same transactional.id

Nobody == [producerId |-> -1, epoch |-> -1]

VARIABLES
    coordinator,     \* the identity that it gave out last, and the one before
    client,          \* the client's identity, the attempt whose answer it waits for (0: none), and its fatal error
    attempt,         \* the number of requests sent
    requests,        \* the requests on their way
    responses,       \* the answers on their way
    takenOver        \* another instance has asked

vars == <<coordinator, client, attempt, requests, responses, takenOver>>

First == [producerId |-> 0, epoch |-> 0]

Init ==
    /\ coordinator = [current |-> First, last |-> Nobody]
    /\ client = [identity |-> First, awaits |-> 0, error |-> "NONE"]
    /\ attempt = 0
    /\ requests = {}
    /\ responses = {}
    /\ takenOver = FALSE

(* The identity that follows: the next epoch, or a new producer id when the epochs have run out. *)
Following(identity) ==
    IF identity.epoch < MaxEpoch THEN [identity EXCEPT !.epoch = @ + 1]
    ELSE [producerId |-> identity.producerId + 1, epoch |-> 0]

(* The identity that a request presents: the one that the client has. *)
Presented(identity) == identity

(* The request is a retry: it asks again for an identity that was given out already. *)
IsRetry(presented) == presented = coordinator.last

(* The reason why the coordinator refuses a request; "NONE" if it does not. *)
BumpError(presented) ==
    IF presented = Nobody \/ presented = coordinator.current \/ IsRetry(presented) THEN "NONE"
    ELSE "PRODUCER_FENCED"

(* A request that presents nothing clears it. Otherwise the instance that the request fences would pass for its retry, *)
(* and get the newcomer's identity.                                                                                    *)

(* The identity whose request the coordinator takes for a retry, after a request. *)
RememberedAfter(presented) == presented

(* The coordinator after a request that it does not refuse. *)
AfterBump(presented) ==
    IF presented # Nobody /\ presented # coordinator.current THEN coordinator
    ELSE [current |-> Following(coordinator.current), last |-> RememberedAfter(presented)]

IsAlive == client.error = "NONE"

(***************************************************************************)
(* The client                                         WHO: the producer    *)
(***************************************************************************)

Asks ==
    /\ attempt + 1 \in Attempts
    /\ attempt' = attempt + 1
    /\ client' = [client EXCEPT !.awaits = attempt + 1]
    /\ requests' = requests \cup {[attempt |-> attempt + 1, presented |-> Presented(client.identity)]}
    /\ UNCHANGED <<coordinator, responses, takenOver>>

(* The client asks for its next epoch. *)
RequestBump == IsAlive /\ client.awaits = 0 /\ Asks

(* The client has waited long enough for the answer and asks again. *)
RepeatBump == IsAlive /\ client.awaits # 0 /\ Asks

(* The client goes on in its new epoch. *)
ReceiveBump(number) ==
    /\ IsAlive /\ client.awaits = number
    /\ \E response \in responses :
        /\ response.attempt = number /\ response.error = "NONE"
        /\ client' = [client EXCEPT !.identity = response.identity, !.awaits = 0]
        /\ responses' = responses \ {response}
    /\ UNCHANGED <<coordinator, attempt, requests, takenOver>>

(* The client learns that it is fenced, and ends. *)
ReceiveFencing(number) ==
    /\ IsAlive /\ client.awaits = number
    /\ \E response \in responses :
        /\ response.attempt = number /\ response.error # "NONE"
        /\ client' = [client EXCEPT !.error = response.error, !.awaits = 0]
        /\ responses' = responses \ {response}
    /\ UNCHANGED <<coordinator, attempt, requests, takenOver>>

(***************************************************************************)
(* The coordinator                                    WHO: the coordinator *)
(***************************************************************************)

(* The coordinator answers a request, which may arrive at any later time. *)
HandleBump(number) ==
    \E request \in requests :
        /\ request.attempt = number
        /\ requests' = requests \ {request}
        /\ LET error == BumpError(request.presented)
               after == IF error = "NONE" THEN AfterBump(request.presented) ELSE coordinator
           IN  /\ coordinator' = after
               /\ responses' = IF client.awaits = number
                               THEN responses \cup {[attempt |-> number, error |-> error,
                                                     identity |-> IF error = "NONE" THEN after.current ELSE Nobody]}
                               ELSE responses
        /\ UNCHANGED <<client, attempt, takenOver>>

(* Another instance asks with the same transactional.id, and presents nothing. *)
AnotherInstanceAsks ==
    /\ TakeOver /\ ~takenOver
    /\ takenOver' = TRUE
    /\ coordinator' = AfterBump(Nobody)
    /\ UNCHANGED <<client, attempt, requests, responses>>

Next ==
    \/ RequestBump
    \/ RepeatBump
    \/ \E number \in Attempts :
        \/ ReceiveBump(number)
        \/ ReceiveFencing(number)
        \/ HandleBump(number)
    \/ AnotherInstanceAsks

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

IsNewer(a, b) == a.producerId > b.producerId \/ (a.producerId = b.producerId /\ a.epoch > b.epoch)

(* A client that nobody fenced never gets a fatal error. *)
NoSpuriousError == client.error # "NONE" => takenOver
NoSpuriousErrorWitness == ~takenOver /\ \E request \in requests : request.presented # coordinator.current

(* A client that waits for nothing and that nobody fenced has the coordinator's identity, and keeps it. *)
HoldsItsEpoch == client.awaits = 0 /\ ~takenOver => client.identity = coordinator.current
HoldsItsEpochWitness == client.awaits = 0 /\ ~takenOver /\ client.identity # First

(* A client that another instance has fenced never gets that instance's identity. *)
NobodySharesItsIdentity == takenOver => IsNewer(coordinator.current, client.identity)
NobodySharesItsIdentityWitness == takenOver /\ requests # {}

(* The client never has an identity that the coordinator has not given out. *)
NeverAhead == ~IsNewer(client.identity, coordinator.current)
NeverAheadWitness == client.identity # First

(* No epoch above the last one is ever given out. *)
EpochsAreBounded == coordinator.current.epoch <= MaxEpoch
EpochsAreBoundedWitness == coordinator.current.epoch = MaxEpoch

(* Identities only go forward. *)
OnlyForward ==
    [][/\ client'.identity = client.identity \/ IsNewer(client'.identity, client.identity)
       /\ coordinator'.current = coordinator.current \/ IsNewer(coordinator'.current, coordinator.current)]_vars
OnlyForwardWitness == coordinator'.current.producerId # coordinator.current.producerId

=============================================================================
