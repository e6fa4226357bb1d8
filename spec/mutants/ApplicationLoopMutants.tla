------------------------ MODULE ApplicationLoopMutants ------------------------
(***************************************************************************)
(* Rules of ApplicationLoop with one thing changed, as introductions to    *)
(* Kafka's transactions write the loop.                                    *)
(***************************************************************************)
EXTENDS ApplicationLoop

(* for Reaction: the usual catch blocks: a fenced producer is closed, after any other error the loop aborts *)
CatchBlocks(error) == IF error = "fenced" THEN "close" ELSE "abort"

(* for PositionAfterAbort: the loop goes back to the input that it has polled *)
SeeksToPolled == application.input

(* for PositionAfterAbort: the loop polls on *)
PollsOn == position

(* for IsTold: a commit without an answer is taken for one that succeeded *)
SilenceIsConsent == TRUE

(* for AfterInitialization: the application starts with another transactional.id *)
AnotherTransactionalId == transaction

HasReportedAborted == \E input \in Inputs : reported[input] = "aborted"
HasProcessedAll    == Len(outputs) = Cardinality(Inputs) /\ application.stage = "polling"
HasClosed          == application.stage = "failed" /\ application.error = "fenced"

=============================================================================
