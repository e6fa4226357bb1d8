"""The checks that tie the specs, the reference and the real Kafka to each other.

Rooms stand on floors, and a room imports from lower floors only (``lint-imports``). From the roof: ``cli``; ``matrix``;
``ledger``; ``traces``; ``lab``; ``simulate``; ``proofs`` and ``walks``; ``watch``; ``testing``; ``audit``; ``conform``;
``graphs``; ``contracts``; ``drawing``; ``models``; ``brokers``, ``mutants`` and ``tla``; ``kit``.
"""
