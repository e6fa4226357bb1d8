"""Mutants against methods: every mutant of a rule, and the checks that notice it; conjuncts, removed one by one.

Read ``mutant_matrix`` first.
"""
