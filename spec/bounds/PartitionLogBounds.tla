-------------------------- MODULE PartitionLogBounds --------------------------
(* How far TLC searches a PartitionLog.                                    *)
EXTENDS PartitionLog

CONSTANT MaxEntries    \* batches in the log

Bounds == Len(log.entries) <= MaxEntries

=============================================================================
