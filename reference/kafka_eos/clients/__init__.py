"""Parts of Kafka's clients without a specification of their own: settings, batches in memory, error rates.

Tests compare them with Kafka's own Java classes. This room imports no other.
"""
