"""Parts of Kafka's clients without a specification of their own: settings, batches in memory, error rates.

Tests compare these parts with Kafka's own Java classes. The room imports formats, which know sizes and limits, and no
machine. Read ``settings`` first.
"""
