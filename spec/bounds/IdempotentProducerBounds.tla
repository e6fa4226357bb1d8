----------------------- MODULE IdempotentProducerBounds -----------------------
(* IdempotentProducer is bounded by its environment: values, attempts, restarts and elections are faults that run *)
(* out. Nothing else is cut off.                                                                                 *)
EXTENDS IdempotentProducer

Bounds == TRUE

=============================================================================
