"""What ties the specs, the reference and the real Kafka to each other."""
