"""Conformance of any broker: its answers to raw requests, compared with those of the spec's machines.

``visible``      the machine ``Broker`` with what a request presents, and Kafka's known differences from its answers
``mechanisms``   the requests that are tried, and the edges of the graph that a client cannot tell apart
``quotient``     the graph, and paths that cover its edges
``wire``         connections to a broker: requests of chosen versions, TLS, SASL
``stage``        requests of the machines as messages of a broker, with its own ids
``run``          walks the paths and compares
``result``       the results, as a table, JSON and JUnit
``peers``        brokers to compare
"""
