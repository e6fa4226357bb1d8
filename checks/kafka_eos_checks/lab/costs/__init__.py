"""What exactly-once costs: bytes, requests, throughput and latency, on real brokers and by the codec."""
