"""Mutants against methods: the checks that notice each mutant of a rule; conjuncts, removed one by one.

Read ``mutant_matrix`` first.
"""
