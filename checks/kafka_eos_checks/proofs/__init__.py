"""Inductive invariants that z3 discharges without bounds: a kit, and one file for each proof.

Read ``kit`` and ``induction`` for the method, then ``append``.
"""
