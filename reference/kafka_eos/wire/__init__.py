"""Bytes on the network: Kafka's messages, read and written as the schemas of ``kafka-clients`` say."""
