"""Proofs by columns: a kernel proves with numpy that most data agree, and leaves the rest to the readable rules.

``logs`` has batches and transactions of one log, ``coordinators`` the logs of coordinators and their markers,
``histories`` the joins with events. May enter: ``rules`` and the rooms that read. Not: Spark or Arrow. Read
``logs/summary`` first.
"""
