"""Conformance of any broker: what the spec's machines answer to raw requests, and what the broker does.

``visible``      the machines put together as clients see them: one value, a request in, answers and next states out
``mechanisms``   which requests are tried, and when two edges of the graph are the same one to a client
``quotient``     the graph, and paths that cover its edges
``wire``         connections to a broker: requests of chosen versions, TLS, SASL
``stage``        requests of the machines as messages of a broker, with its own ids
``run``          walks the paths and compares
``result``       what was found, as a table, JSON and JUnit
``peers``        brokers to compare
"""
