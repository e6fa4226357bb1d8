"""The recorder: real Kafka brokers and clients under faults, recorded as histories and log directories.

Read ``scenarios`` first.
"""
