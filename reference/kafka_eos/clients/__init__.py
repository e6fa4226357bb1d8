"""Parts of Kafka's clients without a specification of their own: settings, batches in memory, error rates.

Formats may enter, which know sizes and limits; no machine does. Tests compare these parts with Kafka's own Java
classes. Read ``settings`` first.
"""
