"""Shared ground of all rooms: verdicts, the terminal, paths, workers, recordings as files. It imports no other room."""
