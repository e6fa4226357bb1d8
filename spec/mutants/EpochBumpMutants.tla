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

=============================================================================
