---------------------------- MODULE ApplicationLoop ---------------------------
(***************************************************************************)
(* The loop of an application as people write it: poll, transform, send,   *)
(* commit, and catch blocks around them. One instance; what it does after  *)
(* an error decides what becomes of the inputs.                            *)
(*                                                                         *)
(* Modelled: the loop with transactions: errors of a send, a commit of     *)
(*   unknown outcome, a transaction that times out, the position after an  *)
(*   abort, crashes; and two loops without: the offset committed before an *)
(*   input is processed, or after. Auto-commit commits at the next poll:   *)
(*   it is the second loop when the loop itself processes what it has      *)
(*   polled, and the first when it hands that to other threads. Kafka's    *)
(*   consumer of KIP-848 may commit what that poll returns: then it is the *)
(*   first.                                                                *)
(* Assumed, not checked: a transaction of output and offset becomes        *)
(*   visible in one step, and initTransactions ends the transaction before *)
(*   (AtomicTransactions); inputs are there once, in order.                *)
(* Out of scope: groups and zombies (ConsumeTransformProduce). Kafka's own *)
(*   client throws an IllegalStateException at an abort after a commit of  *)
(*   unknown outcome; others send it, and the application that catches the *)
(*   exception reports the same.                                           *)
(*                                                                         *)
(* KIPs: 98, 447, 691.  Kafka: KafkaProducer, KafkaConsumer.               *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Inputs,          \* 1..n
    Loop,            \* "transactions", "commit before processing" or "commit after processing"
    MaxFaults        \* how many crashes, errors, timeouts and lost answers there are at most

VARIABLES
    arrived,         \* the number of inputs that the topic has
    position,        \* the input that the next poll returns
    committed,       \* the input that the group's offset says is next
    outputs,         \* the inputs whose output readers find, in order
    transaction,     \* the last transaction: its state as the coordinator has it, and its input
    application,     \* where the loop is, with which input (0: none), and after which error
    reported,        \* for each input, what the application has last reported: "none", "committed" or "aborted"
    faults           \* the number of faults so far

vars == <<arrived, position, committed, outputs, transaction, application, reported, faults>>
kafkaVars == <<committed, outputs, transaction>>

(* An application's stage is "polling", "handling", "committed", "written", "committing", "failed" or "down". *)
At(stage, input, error) == [stage |-> stage, input |-> input, error |-> error]

Polling == At("polling", 0, "none")

(* A transaction's state is "none", "open", "asked" (to be committed), "commit" or "abort". *)
Init ==
    /\ arrived = 0
    /\ position = 1
    /\ committed = 1
    /\ outputs = <<>>
    /\ transaction = [state |-> "none", input |-> 0]
    /\ application = Polling
    /\ reported = [input \in Inputs |-> "none"]
    /\ faults = 0

Here == application.input

IsUndecided == transaction.state \in {"open", "asked"}

Aborted == [transaction EXCEPT !.state = IF IsUndecided THEN "abort" ELSE @]

MayFail == faults < MaxFaults

(* The application's reaction to an error. Only another commit can tell how a commit of unknown outcome has ended. *)
Reaction(error) ==
    IF error = "unknown outcome" THEN "retry"
    ELSE IF error = "fenced" THEN "close"
    ELSE "abort"

(* The application has been told that its transaction is committed. *)
IsTold == transaction.state = "commit"

(* The position after an abort: the application has to seek to the committed offset. *)
PositionAfterAbort == committed

(* The last transaction after the application has initialized its producer again. *)
AfterInitialization == Aborted

(***************************************************************************)
(* The inputs                                       WHO: whoever writes it *)
(***************************************************************************)

(* The topic gets its next input. *)
Arrive ==
    /\ arrived + 1 \in Inputs
    /\ arrived' = arrived + 1
    /\ UNCHANGED <<position, kafkaVars, application, reported, faults>>

(***************************************************************************)
(* Every loop                                         WHO: the application *)
(***************************************************************************)

(* The application polls its next input. *)
Poll ==
    /\ application.stage = "polling" /\ position <= arrived
    /\ application' = At("handling", position, "none")
    /\ reported' = [reported EXCEPT ![position] = "none"]
    /\ position' = position + 1
    /\ UNCHANGED <<arrived, kafkaVars, faults>>

(* The application crashes. *)
Crash ==
    /\ application.stage # "down" /\ MayFail
    /\ application' = At("down", 0, "none")
    /\ faults' = faults + 1
    /\ UNCHANGED <<arrived, position, kafkaVars, reported>>

(* The application starts, initializes its producer, and begins at the committed offset. *)
Restart ==
    /\ application.stage = "down"
    /\ application' = Polling
    /\ transaction' = AfterInitialization
    /\ position' = committed
    /\ UNCHANGED <<arrived, committed, outputs, reported, faults>>

(***************************************************************************)
(* The loop without transactions                      WHO: the application *)
(***************************************************************************)

(* The application processes its input and sends the output, in no transaction. *)
Process ==
    /\ \/ Loop = "commit after processing" /\ application.stage = "handling"
       \/ application.stage = "committed"
    /\ outputs' = Append(outputs, Here)
    /\ application' = IF application.stage = "committed" THEN Polling ELSE At("written", Here, "none")
    /\ UNCHANGED <<arrived, position, committed, transaction, reported, faults>>

(* The application commits the offset after its input, in no transaction. *)
CommitOffset ==
    /\ \/ Loop = "commit after processing" /\ application.stage = "written"
       \/ Loop = "commit before processing" /\ application.stage = "handling"
    /\ committed' = Here + 1
    /\ reported' = [reported EXCEPT ![Here] = "committed"]
    /\ application' = IF application.stage = "written" THEN Polling ELSE At("committed", Here, "none")
    /\ UNCHANGED <<arrived, position, outputs, transaction, faults>>

(***************************************************************************)
(* The loop with transactions                         WHO: the application *)
(***************************************************************************)

Begins == Loop = "transactions" /\ application.stage = "handling" /\ ~IsUndecided

(* The application begins a transaction and sends the output and the offset into it. *)
Send ==
    /\ Begins
    /\ transaction' = [state |-> "open", input |-> Here]
    /\ application' = At("written", Here, "none")
    /\ UNCHANGED <<arrived, position, committed, outputs, reported, faults>>

(* The application begins a transaction, and a send fails. *)
FailSend ==
    /\ Begins /\ MayFail
    /\ transaction' = [state |-> "open", input |-> Here]
    /\ application' = At("failed", Here, "abortable")
    /\ faults' = faults + 1
    /\ UNCHANGED <<arrived, position, committed, outputs, reported>>

(* The application asks to commit its transaction. *)
AskToCommit ==
    /\ Loop = "transactions" /\ application.stage = "written"
    /\ application' = At("committing", Here, "none")
    /\ transaction' = [transaction EXCEPT !.state = IF @ = "open" THEN "asked" ELSE @]
    /\ UNCHANGED <<arrived, position, committed, outputs, reported, faults>>

(* The application learns that its transaction is committed, and goes on. *)
LearnCommit ==
    /\ application.stage = "committing"
    /\ IsTold
    /\ application' = Polling
    /\ reported' = [reported EXCEPT ![Here] = "committed"]
    /\ UNCHANGED <<arrived, position, kafkaVars, faults>>

(* The application waits for the answer to its commit in vain. *)
LoseAnswer ==
    /\ application.stage = "committing" /\ MayFail
    /\ application' = At("failed", Here, "unknown outcome")
    /\ faults' = faults + 1
    /\ UNCHANGED <<arrived, position, kafkaVars, reported>>

(* The application learns that its transaction has timed out: it is fenced. *)
LearnFencing ==
    /\ application.stage = "committing" /\ transaction.state = "abort"
    /\ application' = At("failed", Here, "fenced")
    /\ UNCHANGED <<arrived, position, kafkaVars, reported, faults>>

Reacts(reaction) == application.stage = "failed" /\ Reaction(application.error) = reaction

(* The application commits once more. *)
RetryCommit ==
    /\ Reacts("retry")
    /\ application' = At("committing", Here, "none")
    /\ UNCHANGED <<arrived, position, kafkaVars, reported, faults>>

(* The application aborts, takes any answer for an abort, and goes on. *)
Abort ==
    /\ Reacts("abort")
    /\ transaction' = Aborted
    /\ reported' = [reported EXCEPT ![Here] = "aborted"]
    /\ position' = PositionAfterAbort
    /\ application' = Polling
    /\ UNCHANGED <<arrived, committed, outputs, faults>>

(* The application closes its producer and ends. *)
Close ==
    /\ Reacts("close")
    /\ application' = At("down", 0, "none")
    /\ UNCHANGED <<arrived, position, kafkaVars, reported, faults>>

(***************************************************************************)
(* The coordinator                                    WHO: the coordinator *)
(***************************************************************************)

(* The coordinator commits the transaction: readers find the output, and the group its offset. *)
CommitTransaction ==
    /\ transaction.state = "asked"
    /\ transaction' = [transaction EXCEPT !.state = "commit"]
    /\ outputs' = Append(outputs, transaction.input)
    /\ committed' = transaction.input + 1
    /\ UNCHANGED <<arrived, position, application, reported, faults>>

(* The coordinator aborts a transaction that has been open for too long. *)
TimeOut ==
    /\ IsUndecided /\ MayFail
    /\ transaction' = Aborted
    /\ faults' = faults + 1
    /\ UNCHANGED <<arrived, position, committed, outputs, application, reported>>

Progress ==
    \/ Arrive
    \/ Poll
    \/ Restart
    \/ Process
    \/ CommitOffset
    \/ Send
    \/ AskToCommit
    \/ LearnCommit
    \/ LearnFencing
    \/ RetryCommit
    \/ Abort
    \/ Close
    \/ CommitTransaction

Next ==
    \/ Progress
    \/ Crash
    \/ FailSend
    \/ LoseAnswer
    \/ TimeOut

Spec == Init /\ [][Next]_vars

FairSpec == Spec /\ WF_vars(Progress)

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)

Range(sequence) == {sequence[i] : i \in DOMAIN sequence}

(* No input has two outputs. *)
NoDuplicate == \A i, j \in DOMAIN outputs : outputs[i] = outputs[j] => i = j
NoDuplicateWitness == faults > 0 /\ Len(outputs) > 1

(* Every input before the committed offset has its output, or is being processed. *)
NothingIsSkipped == \A input \in Inputs : input < committed => input \in Range(outputs) \cup {Here}
NothingIsSkippedWitness == faults > 0 /\ committed > 1

(* The application reports the true outcome of each input. *)
ReportIsTrue ==
    \A input \in Inputs :
        /\ reported[input] = "committed" => input \in Range(outputs)
        /\ reported[input] = "aborted" => input \notin Range(outputs)
ReportIsTrueWitness ==
    \E one, other \in Inputs :
        reported[one] = "committed" /\ (Loop = "transactions" => reported[other] = "aborted")

(* In the end every input has its output. *)
EveryInputIsProcessed == <>(\A input \in Inputs : input \in Range(outputs))
EveryInputIsProcessedWitness == faults > 0 /\ \A input \in Inputs : input \in Range(outputs)

(***************************************************************************)
(* Refinement: an input is acknowledged when the application says so.      *)
(***************************************************************************)

Outcome == [input \in Inputs |->
    IF input > arrived THEN "unsent" ELSE IF reported[input] = "committed" THEN "acknowledged" ELSE "sent"]

Guarantee == INSTANCE Delivery WITH Values <- Inputs, outcome <- Outcome, delivered <- outputs

(* Every acknowledged value is delivered once, in order, as Delivery promises; one that was given up, at most once. *)
RefinesExactlyOnce == Guarantee!ExactlyOnce
RefinesExactlyOnceWitness == faults > 0 /\ Len(outputs) > 1 /\ \E input \in Inputs : Outcome[input] = "acknowledged"

(* Every acknowledged value is delivered, as Delivery promises. *)
RefinesAtLeastOnce == Guarantee!AtLeastOnce
RefinesAtLeastOnceWitness == faults > 0 /\ \E input \in Inputs : Outcome[input] = "acknowledged"

(* No value is delivered twice, as Delivery promises. *)
RefinesAtMostOnce  == Guarantee!AtMostOnce
RefinesAtMostOnceWitness == faults > 0 /\ Len(outputs) > 1

=============================================================================
