"""Real brokers on loopback: Kafka's jars, clusters, the proxy between clients and brokers, readers of requests.

The kit may enter. Read ``brokers`` first.
"""
