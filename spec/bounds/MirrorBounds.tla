----------------------------- MODULE MirrorBounds -----------------------------
(* How far TLC searches a Mirror.                                          *)
EXTENDS Mirror

(* At most one record is in the target a second time. *)
Bounds == Len(target) <= Cardinality(Records) + 1

=============================================================================
