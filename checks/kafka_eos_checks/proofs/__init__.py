"""Inductive invariants that z3 discharges without bounds; see ``induction`` for the method."""
