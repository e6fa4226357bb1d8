"""The machines' rules with one thing changed, a file for each module of ``spec/mutants``, and what puts them in place.

Read first ``rules``, whose :func:`~kafka_eos_checks.mutants.rules.mutated` makes a machine with such rules.
"""
