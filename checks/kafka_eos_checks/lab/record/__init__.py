"""The recorder: real Kafka brokers and clients under faults, written down as histories and log directories.

Read ``scenarios`` first.
"""
