"""Real brokers on loopback: Kafka's jars, clusters, the proxy between clients and brokers, what requests say.

The kit may enter. Read ``brokers`` first.
"""
