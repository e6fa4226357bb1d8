"""``kafka-eos lab fuzz``: damaged batches, logs and frames."""
