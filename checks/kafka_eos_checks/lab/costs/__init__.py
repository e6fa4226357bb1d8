"""The costs of exactly-once: bytes, requests, throughput and latency, on real brokers and by the codec."""
