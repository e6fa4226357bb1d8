"""Histories of Jepsen's workload for Kafka: read, judged by Jepsen's own definitions, and written.

May enter: findings and the contents of logs. Not: our own rules, Spark or Arrow. Read ``anomalies`` first.
"""
