"""Histories of Jepsen's workload for Kafka: reading, judging by Jepsen's own definitions, and writing.

May enter: findings and the contents of logs. Not: our own rules, Spark or Arrow. Read ``anomalies`` first.
"""
