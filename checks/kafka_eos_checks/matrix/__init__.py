"""Every mutant tried by every method of checking, and every conjunct of a guard removed on its own.

Read ``mutant_matrix`` first.
"""
