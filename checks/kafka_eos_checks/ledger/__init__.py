"""Claims about exactly-once and findings in Kafka with the verdicts on them, and the report of all verdicts.

``claims.toml`` and ``models/findings.toml`` are the entries; ``report`` writes the page. Read ``findings`` first.
"""
