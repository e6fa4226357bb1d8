"""Mutants against methods: every mutant of a rule, and which check notices it; conjuncts, taken away one by one.

Read ``mutant_matrix`` first.
"""
