"""The rules of exactly-once, readable: over logs, coordinators, transactions, offsets, histories, applications.

May enter: findings and the rooms that read. Not: kernels, Spark or Arrow. Read ``log`` first; ``rule_book`` says what a
finding of each rule means and what to do.
"""
