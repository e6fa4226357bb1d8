----------------------------- MODULE LeaderBounds -----------------------------
(* How far TLC searches a Leader.                                          *)
EXTENDS Leader

CONSTANT MaxEntries    \* batches and markers in the log

Bounds == Len(leader.log.entries) <= MaxEntries

=============================================================================
