--------------------------- MODULE ProducerIdsMutants -------------------------
(* Rules of ProducerIds with one thing changed. *)
EXTENDS ProducerIds

(* for MayAnswer: the controller answers before the record is committed *)
AnswersUncommitted(first) == TRUE

(* for Behind: the next block starts with the last id of the one before *)
SharesLastId(first) == LastOf(first)

(* for IsNewBlock: a block that begins with the last id of the broker's own is taken for new (KAFKA-20031) *)
LastIdUnnoticed(broker, first) == first >= brokers[broker].last

(* for IsNewBlock: a broker takes the block right after its own for one that overlaps *)
AdjacentIsRefused(broker, first) == first > brokers[broker].last + 1

(* for MayAnswer: the controller answers nobody *)
NobodyIsAnswered(first) == FALSE

(* for MayAnswer: the controller answers with the first block only *)
OnlyFirstIsAnswered(first) == first = 0 /\ first < controller.committed

=============================================================================
