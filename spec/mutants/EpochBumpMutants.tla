---------------------------- MODULE EpochBumpMutants --------------------------
(* Rules of EpochBump with one thing changed. *)
EXTENDS EpochBump

(* for Presented: the request presents nothing of what the client has, as before KIP-360 and at first *)
PresentsNothing(identity) == Nobody

(* for IsRetry: the coordinator remembers only the identity that it gave out last *)
RetryUnknown(presented) == FALSE

(* for Following: the epochs never run out *)
EpochsWithoutEnd(identity) == [identity EXCEPT !.epoch = @ + 1]

(* for Following: a new producer id goes on in the old epoch *)
EpochOfOldProducer(identity) ==
    IF identity.epoch < MaxEpoch THEN [identity EXCEPT !.epoch = @ + 1]
    ELSE [identity EXCEPT !.epoch = 0]

HasRotated == coordinator.current.producerId > 0 /\ client.identity = coordinator.current
IsFencedByAnother == client.error # "NONE"

(* for RememberedAfter: after another instance's request, the fenced one's identity passes for a retry *)
RemembersTheFenced(presented) == coordinator.current

(* for ReceiveBump: the client goes back to the identity in a late answer, while it waits for another one *)
TakesLateAnswers(number) ==
    /\ IsAlive /\ client.awaits # 0
    /\ \E response \in responses :
        /\ response.attempt = number /\ response.error = "NONE"
        /\ client' = [client EXCEPT !.identity = response.identity,
                                   !.awaits = IF number = client.awaits THEN 0 ELSE @]
        /\ responses' = responses \ {response}
    /\ UNCHANGED <<coordinator, attempt, requests, takenOver>>

(* for HandleBump: the coordinator takes the epoch back that fenced the instance it refuses *)
TakesEpochBack(number) ==
    \E request \in requests :
        /\ request.attempt = number
        /\ requests' = requests \ {request}
        /\ LET error == BumpError(request.presented)
               before == coordinator.current.epoch - 1
               after == IF error = "NONE" THEN AfterBump(request.presented)
                        ELSE IF before > request.presented.epoch THEN [coordinator EXCEPT !.current.epoch = before]
                        ELSE coordinator
           IN  /\ coordinator' = after
               /\ responses' = IF client.awaits = number
                               THEN responses \cup {[attempt |-> number, error |-> error,
                                                     identity |-> IF error = "NONE" THEN after.current ELSE Nobody]}
                               ELSE responses
        /\ UNCHANGED <<client, attempt, takenOver>>

=============================================================================
