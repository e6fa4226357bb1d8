"""The rules of exactly-once, readable: over logs, coordinators, transactions, offsets, histories, applications.

Neither Spark nor Arrow enters. Read ``log`` first; ``rule_book`` says what a finding of each rule means and what to do.
"""
