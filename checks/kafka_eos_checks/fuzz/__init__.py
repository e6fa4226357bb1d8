"""``kafka-eos fuzz``: damaged batches, logs and frames."""
