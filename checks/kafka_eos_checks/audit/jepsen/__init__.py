"""Histories of Jepsen's workload for Kafka: read, judged by Jepsen's own definitions, and written.

Neither Spark nor Arrow enters. Read ``anomalies`` first.
"""
