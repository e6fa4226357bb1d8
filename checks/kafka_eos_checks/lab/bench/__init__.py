"""Measurements against others that do the same work, and against the project's own targets. None of it is a test."""
