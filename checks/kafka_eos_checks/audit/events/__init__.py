"""Histories of clients: files of events (``history_files``), and the fields of events as columns (``recorded``).

May enter: the schema of events, ``places`` and the byte strings of ``segments``. Not: a rule. Read ``history_files``
first.
"""
