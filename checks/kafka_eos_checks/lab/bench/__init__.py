"""Benchmarks against other programs that do the same work, and against the project's own targets. None is a test."""
