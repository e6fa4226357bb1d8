"""Conformance of any broker: its answers to raw requests, compared with those of the spec's machines.

``visible``      the machine ``Broker``: its answers to a request, and Kafka's where a recorded difference makes others
``beyond``       requests that ``Broker`` leaves out: markers and questions of brokers, OffsetDelete, static members
``mechanisms``   the instances of its actions that are tried, and the edges that a client cannot tell apart
``deciding``     the operators of the spec that decide an answer, as the machine evaluates them
``quotient``     the graph, and paths that cover its edges
``wire``         connections to a broker: requests of chosen versions, TLS, SASL
``stage``        requests of the machines as messages of a broker, with its own ids
``run``          walks the paths and compares
``result``       the results, as a table, JSON and JUnit
``peers``        brokers to compare
"""
