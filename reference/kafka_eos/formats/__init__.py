"""Bytes on disk, as Kafka writes them: batches, message sets, segments, indexes, records of coordinators.

Pure functions between bytes and values; only ``log_directory`` and ``segment`` look at files. This room imports no
machines. Read ``record_batch`` first.
"""
