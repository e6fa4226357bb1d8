"""Shared ground of all rooms: verdicts, terminal, paths, workers, memory, table schemas, recordings as files.

It imports no other room.
"""
