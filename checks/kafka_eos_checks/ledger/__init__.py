"""Claims about exactly-once, findings in Kafka, and the report of all verdicts.

``claims.toml`` and ``findings.toml`` are the entries; ``report`` writes the page. Read ``findings`` first.
"""
