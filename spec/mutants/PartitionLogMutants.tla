-------------------------- MODULE PartitionLogMutants -------------------------
(* The rules of ProducerState with one thing changed, for models of PartitionLog, and claims that do not hold. *)
EXTENDS PartitionLog, ProducerStateMutants

(* Every retry of a stored batch is acknowledged, however old it is. *)
EveryRetryIsAcknowledged ==
    response.error # "NONE" =>
        \A i \in DOMAIN log.entries :
            IsCopyOf(log.entries[i], Request) => log.producers[response.producerId].epoch # response.epoch

(* The wrap of the sequence has been reached. *)
HasWrapped == \E i \in DOMAIN log.entries : i > 1 /\ log.entries[i].sequence = 0 /\ log.entries[i].epoch = 0

(* An epoch has followed another one. *)
HasLaterEpoch == \E i \in DOMAIN log.entries : log.entries[i].epoch > 0

(* A retry has been acknowledged with an offset that is not the last one. *)
HasAcknowledgedRetry == response.error = "NONE" /\ response.offset >= 0 /\ response.offset < LogEndOffset(log) - response.count

(* A fenced producer has been refused. *)
HasFenced == response.error = "INVALID_PRODUCER_EPOCH"

=============================================================================
